//! Questions of the page: names, switches, curves, ways and events.

use super::{Asked, EVENTS_FOR, MAX_NAMES, Refused, Shown, answer, bad, host, rates, switch};
use crate::core::history::EVERY;
use api::gate::Peer;
use api::limits::Answering;
use api::v1;
use api::v1::northbound_server::Northbound;
use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::response::sse::{Event, KeepAlive, Sse};
use serde::Deserialize;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::IpAddr;
use std::time::Instant;
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Request};

#[derive(Deserialize)]
pub(super) struct NamesQuery {
    #[serde(default)]
    q: String,
    #[serde(default)]
    host: String,
    limit: Option<usize>,
}

pub(super) async fn names(
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
        // Typing shows that there are none.
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
pub(super) struct SwitchQuery {
    name: String,
}

pub(super) async fn of_switch(
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
pub(super) struct HistoryQuery {
    name: Option<String>,
}

/// Traffic into a switch, or into the network, in the last hour.
pub(super) async fn history(State(web): State<Shown>, Asked(query): Asked<HistoryQuery>) -> Result<Response, Refused> {
    let values = web.north()?.shared.known.history.lock().of(query.name.as_deref());
    Ok(answer(&json!({ "every_s": EVERY.as_secs(), "bytes_s": values })))
}

#[derive(Deserialize)]
pub(super) struct TraceQuery {
    name: String,
    from: String,
}

pub(super) async fn trace(State(web): State<Shown>, Asked(query): Asked<TraceQuery>) -> Result<Response, Refused> {
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
pub(super) struct EventsQuery {
    #[serde(default)]
    after: u64,
}

pub(super) async fn events(
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
