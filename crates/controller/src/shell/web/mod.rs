//! The dashboard: a page of the controller, and the JSON answers and events that it is made of. `docs/how-to/watch-in-a-browser.md`.
//!
//! It sends the northbound service the requests of commands, with the rights of the user who opened the page, and adds nothing that a
//! command cannot ask. The answer about the whole network is made once a second at most, however many pages are open.
//!
//! A page without certificates is open to every page in a browser that reaches it. So a request must name its host in a way that no other
//! page can (`api::gate`), and a change needs a header that other pages cannot send. Changes are made only where the configuration says so: at a
//! loopback address without certificates every process of the machine could make them.

mod act;
mod edges;
mod questions;

use crate::shell::config::Dashboard;
use crate::shell::north::North;
use api::gate::{Attempt, Gate, Needs, Peer, Turned, Who};
use api::identity::Role;
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
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::io::Write;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tonic::{Code, Request, Status};

/// How old the answer about the network may be, if nothing has happened since.
const NETWORK_FOR: Duration = Duration::from_secs(1);

/// How old it must be before the next one is made, so that the cost of pages does not grow with the number of events.
const NETWORK_AT_LEAST: Duration = Duration::from_millis(250);

/// How long a page gets events before it has to ask again.
const EVENTS_FOR: Duration = Duration::from_secs(600);

/// The most bytes of a change.
const MAX_ACT: usize = 4096;

/// The most names of a search.
const MAX_NAMES: usize = 1000;

/// The most hosts that wait to be accepted that a page is told of.
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

/// The sources of the answers. The service is there once the controller serves.
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

    /// Why no peer like this one changes anything from the page, whatever its rights by command: the page only shows, or the peer has
    /// no certificate where others need one.
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

    /// Whether the page shows buttons to a peer: it may change something with a command, even without a certificate.
    fn may_change(&self, peer: &Peer) -> bool {
        self.only_shows(peer).is_none() && Gate::may(peer, Needs::Role(Role::Writer))
    }

    /// Admits a change that a request of the northbound service would make, or counts and records it, and returns why not.
    fn admit(&self, peer: &Peer, rpc: &str) -> Result<(), Refused> {
        let what = format!("/fibula.v1.Northbound/{rpc}");
        if let Some(reason) = self.only_shows(peer) {
            let attempt = Attempt { turned: Turned::Role, peer: Some(peer), from: peer.address(), what: &what, reason };
            self.gate.turn_away(&attempt);
            return Err(Refused(StatusCode::FORBIDDEN, reason.to_owned()));
        }
        Ok(self.gate.admit(Some(peer), &what)?)
    }

    /// The part of the answer that is the same for all pages, as an object in JSON.
    async fn network(&self) -> Result<Arc<str>, Refused> {
        let mut kept = self.network.lock().await;
        let north = self.north()?;
        if let Some((at, before, text)) = &*kept {
            if at.elapsed() < NETWORK_FOR && *before == north.last_event() {
                return Ok(Arc::clone(text));
            }
            // Requests that come meanwhile wait for the lock, and get the same answer.
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
            switches.troubles.into_iter().chain(links.troubles).chain(north.host_troubles().await?).collect();
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

/// The pages, for peers that may read what the controller knows; none, if they are off.
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
        .route("/ui/names", get(questions::names))
        .route("/ui/switch", get(questions::of_switch))
        .route("/ui/history", get(questions::history))
        .route("/ui/trace", get(questions::trace))
        .route("/ui/events", get(questions::events))
        .route("/ui/act", post(act::act))
        .route_layer(from_fn_with_state(Arc::clone(&web), guard))
        .with_state(web)
}

/// Keeps out peers that may only read `/metrics`, and foreign pages; sets what browsers may do with ours.
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
        // Whether paths between other switches may lead through it: not if it was drained.
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
    // As of now: a page that finds less than before concludes that the controller restarted.
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

/// The parameters behind `?`. Those that cannot be read are refused in the form that the page reads.
struct Asked<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let asked = Query::from_request_parts(parts, state).await;
        asked.map(|Query(asked)| Self(asked)).map_err(|error| bad(&error.body_text()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
