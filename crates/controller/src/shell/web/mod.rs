//! The dashboard: a page of the controller, and the JSON answers and events that it is made of. `docs/how-to/watch-in-a-browser.md`.
//!
//! It asks the northbound service what a command would ask, with the rights of whoever opened the page, and adds nothing that a
//! command cannot ask. The answer about the whole network is made once a second at most, however many pages are open.
//!
//! A page without certificates is open to every page in a browser that reaches it. So a request must name its host in a way that no other
//! page can (`api::gate`), and a change needs a header that other pages cannot send. Changes are made only where the configuration says so: at a
//! loopback address without certificates every process of the machine could make them.

mod edges;

use crate::core::history::EVERY;
use crate::shell::config::Dashboard;
use crate::shell::north::North;
use api::gate::{Attempt, Gate, Needs, Peer, Turned, Who};
use api::identity::Role;
use api::limits::Answering;
use api::v1;
use api::v1::northbound_server::Northbound;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Query, State};
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::io::Write;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Request, Status};

/// How old the answer about the network may be, if nothing has happened since.
const NETWORK_FOR: Duration = Duration::from_secs(1);

/// How old it is at least when the next one is made, whatever happens: what pages take does not grow with what happens.
const NETWORK_AT_LEAST: Duration = Duration::from_millis(250);

/// How long a page gets events before it has to ask again.
const EVENTS_FOR: Duration = Duration::from_secs(600);

/// Bytes of a change.
const MAX_ACT: usize = 4096;

/// Names of a search.
const MAX_NAMES: usize = 1000;

/// Hosts that wait to be accepted, of which a page is told.
const MAX_WAITING: usize = 50;

/// What a browser lets the page do; the stand-in of its tests says the same.
const POLICY: &str = include_str!("policy.txt").trim_ascii_end();

/// A file of the page: its path, its type, its bytes.
type File = (&'static str, &'static str, &'static [u8]);

macro_rules! files {
    ($($name:literal: $kind:literal,)*) => {
        [$((concat!("/ui/", $name), $kind, include_bytes!(concat!("../../../web/", $name)).as_slice()),)*]
    };
}

const FILES: &[File] = &files! {
    "index.html": "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "early.js": "text/javascript; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "attention.js": "text/javascript; charset=utf-8",
    "dom.js": "text/javascript; charset=utf-8",
    "events.js": "text/javascript; charset=utf-8",
    "feed.js": "text/javascript; charset=utf-8",
    "graph.js": "text/javascript; charset=utf-8",
    "inventory.js": "text/javascript; charset=utf-8",
    "layout.js": "text/javascript; charset=utf-8",
    "link.js": "text/javascript; charset=utf-8",
    "names.js": "text/javascript; charset=utf-8",
    "switch.js": "text/javascript; charset=utf-8",
    "units.js": "text/javascript; charset=utf-8",
};

/// What the answers are made from. The service is there once the controller serves.
pub(crate) struct Web {
    north: OnceLock<North>,
    gate: Arc<Gate>,
    /// Whether those without a certificate may come from other machines. `metrics_open` alone does not let them.
    is_open: bool,
    mode: Dashboard,
    /// The last answer, when it was made, and the last event before it. A page that hears of an event asks at once, and looks again
    /// two seconds later only.
    network: tokio::sync::Mutex<Option<(Instant, u64, Arc<str>)>>,
}

type Shown = Arc<Web>;

/// An answer that is an error: its status, and a sentence.
struct Refused(StatusCode, String);

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        let code = match status.code() {
            Code::InvalidArgument => StatusCode::BAD_REQUEST,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::PermissionDenied | Code::Unauthenticated => StatusCode::FORBIDDEN,
            Code::FailedPrecondition | Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
            Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(code, status.message().to_owned())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, [(CONTENT_TYPE, "application/json")], json!({ "error": self.1 }).to_string()).into_response()
    }
}

fn bad(why: &str) -> Refused {
    Refused(StatusCode::BAD_REQUEST, why.to_owned())
}

fn answer(value: &Value) -> Response {
    answer_text(value.to_string())
}

fn answer_text(json: String) -> Response {
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], json).into_response()
}

impl Web {
    pub(crate) fn new(gate: Arc<Gate>, is_open: bool, mode: Dashboard) -> Shown {
        Arc::new(Self { north: OnceLock::new(), gate, is_open, mode, network: tokio::sync::Mutex::new(None) })
    }

    /// Why a peer may not look.
    fn refusal(&self, peer: &Peer) -> Option<&'static str> {
        match peer.who() {
            Who::Anyone if !self.is_open => {
                Some("`metrics_open` opens /metrics and /status only; ask for the dashboard with a certificate")
            }
            Who::User { name } if !is_ours(name) => Some(
                "of a Unix socket the dashboard is for root and the user of the controller; the others have /metrics and /status",
            ),
            _ => None,
        }
    }

    /// From now on there are answers.
    pub(crate) fn serve(&self, north: North) {
        let _ = self.north.set(north);
    }

    fn north(&self) -> Result<&North, Refused> {
        let why =
            "this controller does not serve yet: it waits until it can read the store, or until another one leads";
        self.north.get().ok_or_else(|| Refused(StatusCode::SERVICE_UNAVAILABLE, why.to_owned()))
    }

    /// Why nobody like this peer changes anything from the page, whatever he may do by command: the page only shows, or he comes
    /// without a certificate where others need one.
    fn only_shows(&self, peer: &Peer) -> Option<&'static str> {
        if self.mode != Dashboard::Change {
            return Some(
                "this page only shows: write `dashboard = \"change\"` in controller.toml and restart the controller, or use the \
                 command",
            );
        }
        let is_open = matches!(peer.who(), Who::Loopback | Who::Anyone);
        (is_open && self.gate.tls().is_some()).then_some(
            "this page may look only: open it with a certificate of a writer or an admin, or use the command",
        )
    }

    /// Whether a peer finds buttons on the page: whoever may change something with a command, without a certificate as well.
    fn may_change(&self, peer: &Peer) -> bool {
        self.only_shows(peer).is_none() && Gate::may(peer, Needs::Role(Role::Writer))
    }

    /// Lets a change in that a request of the northbound service would make, or counts and records it, and says why not.
    fn admit(&self, peer: &Peer, rpc: &str) -> Result<(), Refused> {
        let what = format!("/fibula.v1.Northbound/{rpc}");
        if let Some(reason) = self.only_shows(peer) {
            let attempt = Attempt { turned: Turned::Role, peer: Some(peer), from: peer.address(), what: &what, reason };
            self.gate.turn_away(&attempt);
            return Err(Refused(StatusCode::FORBIDDEN, reason.to_owned()));
        }
        Ok(self.gate.admit(Some(peer), &what)?)
    }

    /// What all pages are told alike, as an object in JSON.
    async fn network(&self) -> Result<Arc<str>, Refused> {
        let mut kept = self.network.lock().await;
        let north = self.north()?;
        if let Some((at, before, text)) = &*kept {
            if at.elapsed() < NETWORK_FOR && *before == north.last_event() {
                return Ok(Arc::clone(text));
            }
            // Who asks meanwhile waits for the lock, and has the same answer.
            #[expect(clippy::disallowed_methods, reason = "so that it is not made more often")]
            tokio::time::sleep(NETWORK_AT_LEAST.saturating_sub(at.elapsed())).await;
        }
        let last_event = north.last_event();
        let status = north.get_status(Request::new(v1::GetStatusRequest {})).await?.into_inner();
        let switches = north.list_switches(Request::new(v1::ListSwitchesRequest {})).await?.into_inner();
        let links = north.list_links(Request::new(v1::ListLinksRequest {})).await?.into_inner();
        let (waiting, n_waiting) = north.waiting_hosts(MAX_WAITING).await?;
        let with_edges = edges::of(north, &switches.switches, status.hosts).await?;
        let troubles: Vec<String> =
            switches.troubles.into_iter().chain(links.troubles).chain(north.host_troubles()).collect();
        let value = json!({
            "version": status.version, "name_kind": status.name_kind,
            "follows": (!status.leader.is_empty()).then_some(status.leader), "drained": status.drained,
            "names": status.names, "max_names": status.max_names, "changes": status.changes,
            "learnt": north.learnt(), "pending_pushes": status.pending_pushes,
            "switches": with_edges,
            "pending": switches.pending.iter().map(|p| json!({
                "name": p.name, "version": p.version, "address": p.address, "first_ms": p.first_ms, "last_ms": p.last_ms,
            })).collect::<Vec<_>>(),
            "links": links.links.iter().map(link).collect::<Vec<_>>(),
            "found": links.found.iter().map(|found| json!({ "a": end(&found.a), "b": end(&found.b) })).collect::<Vec<_>>(),
            "waiting": waiting.iter().map(|host| json!({
                "name": host.name, "ip": host.ip, "at": end(&host.at), "tenant": host.tenant, "first_ms": host.first_ms, "why": host.why,
            })).collect::<Vec<_>>(),
            "n_waiting": n_waiting,
            "troubles": troubles,
        });
        let text: Arc<str> = value.to_string().into();
        *kept = Some((Instant::now(), last_event, Arc::clone(&text)));
        Ok(text)
    }
}

/// The pages, for those who may read what the controller knows; none, if there are to be none.
pub(crate) fn router(web: Shown) -> Router {
    if web.mode == Dashboard::Off {
        return Router::new();
    }
    let mut router = Router::new().route("/", get(|headers: HeaderMap| async move { file(&FILES[0], &headers) }));
    for one in FILES {
        router = router.route(one.0, get(move |headers: HeaderMap| async move { file(one, &headers) }));
    }
    router
        .route("/ui/network", get(network))
        .route("/ui/names", get(names))
        .route("/ui/switch", get(of_switch))
        .route("/ui/history", get(history))
        .route("/ui/trace", get(trace))
        .route("/ui/events", get(events))
        .route("/ui/act", post(act))
        .route_layer(from_fn_with_state(Arc::clone(&web), guard))
        .with_state(web)
}

/// Keeps out who may read `/metrics` only, and pages of elsewhere; says what browsers may do with ours.
async fn guard(
    State(web): State<Shown>,
    Extension(peer): Extension<Peer>,
    request: axum::extract::Request,
    next: Next,
) -> Response {
    let mut response = match web.refusal(&peer) {
        Some(why) => Refused(StatusCode::FORBIDDEN, why.to_owned()).into_response(),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// Whether a user of this machine is root or the one that this process runs as.
fn is_ours(name: &str) -> bool {
    let own = std::fs::metadata("/proc/self").map(|process| std::os::unix::fs::MetadataExt::uid(&process));
    name == "uid:0" || own.is_ok_and(|own| name == format!("uid:{own}"))
}

fn file((path, kind, bytes): &File, headers: &HeaderMap) -> Response {
    static SMALL: OnceLock<Vec<(&'static str, Bytes)>> = OnceLock::new();
    let small = SMALL.get_or_init(|| {
        let small = |(path, _, bytes): &File| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            // Writing to memory does not fail.
            let _ = encoder.write_all(bytes);
            (*path, Bytes::from(encoder.finish().unwrap_or_default()))
        };
        FILES.iter().map(small).collect()
    });
    // Asked for again after an update of the controller.
    let mut response = Response::builder().header(CONTENT_TYPE, *kind).header(CACHE_CONTROL, "no-cache");
    let takes = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let body = match small.iter().find(|(known, _)| known == path).filter(|_| takes.contains("gzip")) {
        Some((_, small)) => {
            response = response.header(CONTENT_ENCODING, "gzip");
            Body::from(small.clone())
        }
        None => Body::from(*bytes),
    };
    response.body(body).unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

fn end(end: &Option<v1::LinkEnd>) -> Value {
    end.as_ref().map_or(Value::Null, |end| json!({ "switch": end.switch, "port": end.port }))
}

fn rates(rates: &v1::Rates) -> Value {
    json!({
        "age_ms": rates.age_ms, "frames_in_s": rates.frames_in, "frames_out_s": rates.frames_out,
        "bytes_in_s": rates.bytes_in, "bytes_out_s": rates.bytes_out, "drops_s": rates.drops,
        "expected_drops_s": rates.expected_drops,
    })
}

fn switch(switch: &v1::Switch) -> Value {
    json!({
        "name": switch.name, "id": switch.id, "connected": switch.connected, "in_step": switch.in_step,
        "cannot_follow": (!switch.cannot_follow.is_empty()).then_some(&switch.cannot_follow),
        // Whether paths of others may lead through it: not of one that was drained.
        "transit": !switch.drained, "hosts": switch.hosts, "sent_messages": switch.sent_messages,
        "acknowledged_messages": switch.acknowledged_messages, "sent_bytes": switch.sent_bytes,
        "counters": switch.rates.as_ref().map(rates),
    })
}

fn link(link: &v1::Link) -> Value {
    json!({
        "a": end(&link.a), "b": end(&link.b), "cost": link.cost, "weight": link.weight, "up": link.up, "cut": link.cut, "raised": link.raised,
        "drained": link.drained,
        "bytes_s": link.load.map(|load| [load.a_to_b, load.b_to_a]),
    })
}

fn host(host: &v1::Host) -> Value {
    json!({ "name": host.name, "switch": host.switch, "port": host.port, "learnt": host.learnt })
}

async fn network(State(web): State<Shown>, Extension(peer): Extension<Peer>) -> Result<Response, Refused> {
    let network = web.network().await?;
    let who = match peer.who() {
        Who::Certificate { .. } | Who::User { .. } => peer.name().into(),
        _ => Value::Null,
    };
    // Of this moment: a page that finds less than before takes it for another start of the controller.
    let own = json!({
        "uptime_seconds": web.north()?.uptime().as_secs_f64(),
        "now_ms": api::clock::unix_ms(),
        "may_change": web.may_change(&peer),
        "who": who,
    });
    // One object with the members of both.
    let own = own.to_string();
    Ok(answer_text(format!("{},{}", &own[..own.len() - 1], &network[1..])))
}

/// What is asked behind `?`. What cannot be read is refused in the form that the page reads.
struct Asked<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let asked = Query::from_request_parts(parts, state).await;
        asked.map(|Query(asked)| Self(asked)).map_err(|error| bad(&error.body_text()))
    }
}

#[derive(Deserialize)]
struct NamesQuery {
    #[serde(default)]
    q: String,
    #[serde(default)]
    host: String,
    limit: Option<usize>,
}

async fn names(
    State(web): State<Shown>,
    room: Option<Extension<Answering>>,
    Asked(query): Asked<NamesQuery>,
) -> Result<Response, Refused> {
    let start = Instant::now();
    let NamesQuery { q, host, limit } = query;
    let (north, limit) = (web.north()?, limit.unwrap_or(50).clamp(1, MAX_NAMES) as u32);
    let is_address = host.is_empty() && q.trim().parse::<IpAddr>().is_ok();
    let ask = v1::ListNamesRequest { limit, prefix: q.clone(), host, ..v1::ListNamesRequest::default() };
    let mut page = match north.list_names(with_room(room.clone(), ask)).await {
        // Anyone who types sees that there are none.
        Err(status) if status.code() == Code::InvalidArgument => v1::NamePage::default(),
        page => page?.into_inner(),
    };
    if page.names.is_empty() && is_address {
        let ask = v1::GetNameRequest { ip: q.trim().to_owned(), ..v1::GetNameRequest::default() };
        page.names.extend(north.get_name(with_room(room, ask)).await.ok().map(tonic::Response::into_inner));
    }
    let places = north.places(page.names.iter().map(|record| record.host.clone()).collect()).await?;
    let names = page.names.iter().zip(places).map(|(record, at)| {
        let (switch, port) = at.map_or((Value::Null, Value::Null), |(switch, port)| (switch.into(), port.into()));
        json!({
            "name": record.name, "host": record.host, "switch": switch, "port": port, "tenant": record.tenant,
            "ip": record.ip, "learnt_ms": record.learnt_ms,
        })
    });
    let names: Vec<Value> = names.collect();
    Ok(answer(&json!({ "names": names, "more": page.more, "took_ms": start.elapsed().as_secs_f64() * 1e3 })))
}

/// A request for whose answer room is reserved as for one of gRPC.
fn with_room<T>(room: Option<Extension<Answering>>, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(Extension(room)) = room {
        request.extensions_mut().insert(room);
    }
    request
}

#[derive(Deserialize)]
struct SwitchQuery {
    name: String,
}

async fn of_switch(
    State(web): State<Shown>,
    room: Option<Extension<Answering>>,
    Asked(query): Asked<SwitchQuery>,
) -> Result<Response, Refused> {
    let ask = v1::GetSwitchRequest { name: query.name };
    let v1::SwitchDetails { switch: one, hosts, counters } =
        web.north()?.get_switch(with_room(room, ask)).await?.into_inner();
    let mut value = one.as_ref().map_or(Value::Null, switch);
    value["hosts"] = hosts.iter().map(host).collect();
    value["memory"] = one.and_then(|one| one.memory).map_or(Value::Null, |memory| {
        let parts = memory.parts.iter().map(|part| json!({ "part": part.part, "bytes": part.bytes }));
        json!({ "resident_bytes": memory.resident_bytes, "names": memory.names, "parts": parts.collect::<Vec<_>>() })
    });
    value["counters"] = counters.map_or(Value::Null, |counters| {
        let ports = counters.ports.iter().map(|port| {
            let mut value = port.rates.as_ref().map_or_else(|| json!({}), rates);
            for (key, count) in [
                ("frames_in", port.frames_in),
                ("bytes_in", port.bytes_in),
                ("frames_out", port.frames_out),
                ("bytes_out", port.bytes_out),
                ("hellos_lost", port.hellos_lost),
                ("port", port.port.into()),
            ] {
                value[key] = count.into();
            }
            value["name"] = port.device.clone().into();
            value["kind"] = port.role.clone().into();
            value["up"] = port.up.into();
            value["device_there"] = port.device_there.clone().into();
            value
        });
        let drops = counters.drops.iter().map(
            |drop| json!({ "reason": drop.reason, "total": drop.total, "a_second": drop.a_second, "why": drop.why, "expected": api::drops::is_expected(&drop.reason) }),
        );
        json!({
            "age_ms": counters.age_ms, "ports": ports.collect::<Vec<_>>(), "drops": drops.collect::<Vec<_>>(),
            "totals": { "frames_in": counters.received, "frames_out": counters.sent },
        })
    });
    Ok(answer(&value))
}

#[derive(Deserialize)]
struct HistoryQuery {
    name: Option<String>,
}

/// What came into a switch, or into the network, in the last hour.
async fn history(State(web): State<Shown>, Asked(query): Asked<HistoryQuery>) -> Result<Response, Refused> {
    let values = web.north()?.shared.known.history.lock().of(query.name.as_deref());
    Ok(answer(&json!({ "every_s": EVERY.as_secs(), "bytes_s": values })))
}

#[derive(Deserialize)]
struct TraceQuery {
    name: String,
    from: String,
}

async fn trace(State(web): State<Shown>, Asked(query): Asked<TraceQuery>) -> Result<Response, Refused> {
    if query.from.is_empty() {
        return Err(bad("say at which switch the frame enters: from=SWITCH"));
    }
    let ask = v1::TraceRequest { name: query.name, from: query.from };
    let traced = web.north()?.trace(Request::new(ask)).await?.into_inner();
    let path = traced.paths.into_iter().next().unwrap_or_default();
    let hops = path.hops.iter().map(|hop| {
        json!({ "switch": hop.switch, "does": hop.does, "port": hop.port, "value": hop.value, "action": hop.action })
    });
    let hops: Vec<Value> = hops.collect();
    Ok(answer(&json!({ "hops": hops, "end": path.end, "sentence": path.sentence })))
}

#[derive(Deserialize)]
struct EventsQuery {
    #[serde(default)]
    after: u64,
}

async fn events(
    State(web): State<Shown>,
    Extension(peer): Extension<Peer>,
    Asked(query): Asked<EventsQuery>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refused> {
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.parse().ok());
    let ask = v1::WatchRequest { after: last.unwrap_or(query.after), ..v1::WatchRequest::default() };
    let until = async move { _ = tokio::time::timeout(EVENTS_FOR, peer.until_withdrawn()).await };
    let stream = web.north()?.events(ask, until)?.into_inner();
    let events = stream.filter_map(Result::ok).map(|event| {
        let data = json!({
            "seq": event.sequence, "at_ms": event.at_ms, "kind": event.kind, "level": event.level,
            "subject": event.subject, "text": event.text, "missed": event.missed,
        });
        Ok(Event::default().id(event.sequence.to_string()).data(data.to_string()))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

#[derive(Deserialize)]
struct Act {
    #[serde(rename = "do")]
    what: String,
    #[serde(default)]
    name: String,
    end: Option<ActEnd>,
}

#[derive(Deserialize)]
struct ActEnd {
    switch: String,
    port: u32,
}

/// A change, for whoever may make it with a command. It is recorded like those.
async fn act(
    State(web): State<Shown>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refused> {
    if !headers.contains_key("x-fibula") {
        return Err(Refused(StatusCode::FORBIDDEN, "a change needs the header X-Fibula: 1".to_owned()));
    }
    let bytes = axum::body::to_bytes(body, MAX_ACT)
        .await
        .map_err(|_| bad(&format!("the change is too long; {MAX_ACT} bytes are enough for each")))?;
    let act: Act = serde_json::from_slice(&bytes).map_err(|error| bad(&format!("not a change: {error}")))?;
    let north = || web.north();
    let ask = |rpc: &str| web.admit(&peer, rpc);
    let undo = act.what.ends_with(".undrain");
    let end = act.end.map(|end| v1::LinkEnd { switch: end.switch, port: end.port });
    let drained = |drained: v1::Drained| {
        let word = if undo { "back in use" } else { "drained" };
        format!("{word} after {} of paths", api::words::counted(drained.steps.into(), "change", "changes"))
    };
    let sentence = match &*act.what {
        "switch.accept" => {
            ask("AcceptSwitches")?;
            let names = vec![act.name];
            let added_now = north()?.accept_switches(as_peer(&peer, v1::AcceptSwitchesRequest { names })).await?;
            accepted(&added_now.into_inner(), "switch", "switches")
        }
        "links.accept" => {
            ask("AcceptLinks")?;
            let added_now = north()?.accept_links(as_peer(&peer, v1::AcceptLinksRequest::default())).await?;
            accepted(&added_now.into_inner(), "link", "links")
        }
        "host.accept" => {
            ask("AcceptHosts")?;
            let names = vec![act.name];
            let added_now = north()?.accept_hosts(as_peer(&peer, v1::AcceptHostsRequest { names })).await?;
            accepted(&added_now.into_inner(), "name", "names")
        }
        "link.drain" | "link.undrain" => {
            ask("DrainLink")?;
            drained(north()?.drain_link(as_peer(&peer, v1::DrainLinkRequest { end, undo })).await?.into_inner())
        }
        "switch.drain" | "switch.undrain" => {
            ask("DrainSwitch")?;
            let name = act.name;
            drained(north()?.drain_switch(as_peer(&peer, v1::DrainSwitchRequest { name, undo })).await?.into_inner())
        }
        _ => {
            return Err(bad(
                "there is no such change; there are switch.accept, links.accept, host.accept, link.drain, \
                            link.undrain, switch.drain and switch.undrain",
            ));
        }
    };
    *web.network.lock().await = None;
    Ok(answer(&json!({ "sentence": sentence })))
}

/// What was accepted, in the words of the commands.
fn accepted(changed: &v1::Changed, one: &str, many: &str) -> String {
    let added = api::words::counted(changed.changed, one, many);
    let already = match changed.unchanged {
        0 => String::new(),
        n => format!(", {n} unchanged"),
    };
    format!("{added} added{already}")
}

/// A request as the peer would make it.
fn as_peer<T>(peer: &Peer, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(peer.clone());
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_accepted_is_said_as_by_the_commands() {
        let said = |changed, unchanged| {
            accepted(&v1::Changed { changed, unchanged, ..v1::Changed::default() }, "switch", "switches")
        };
        assert_eq!(said(1, 0), "1 switch added");
        assert_eq!(said(2, 1), "2 switches added, 1 unchanged");
    }

    #[test]
    fn every_file_of_the_page_is_served_and_they_are_light() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/web");
        let files = std::fs::read_dir(directory).unwrap().filter_map(Result::ok).filter(|entry| entry.path().is_file());
        let mut files: Vec<String> = files.map(|entry| format!("/ui/{}", entry.file_name().display())).collect();
        let mut served: Vec<&str> = FILES.iter().map(|(path, ..)| *path).collect();
        files.sort();
        served.sort_unstable();
        assert_eq!(served, files);
        assert_eq!(FILES[0].0, "/ui/index.html", "it is what `/` is answered with");
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        FILES.iter().for_each(|(_, _, bytes)| encoder.write_all(bytes).unwrap());
        let n_bytes = encoder.finish().unwrap().len();
        assert!(n_bytes < 150_000, "{n_bytes} bytes compressed");
    }
}
