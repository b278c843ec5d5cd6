//! The changes that the page makes, for those who may make them with a command.

use super::{MAX_ACT, Refused, Shown, answer, bad};
use api::gate::Peer;
use api::v1;
use api::v1::northbound_server::Northbound;
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;
use tonic::Request;

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

/// A change, for a peer that may make it with a command. It is recorded like a command's.
pub(super) async fn act(
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
}
