//! `fibula switch verify`: each switch is asked by the controller that serves it.

use crate::remote::{Client, Remote, answer};
use api::v1;
use command::output::{Exit, Failure, Output};
use serde::Serialize;
use std::collections::BTreeMap;

/// A switch whose memory was compared with the controller's expectation.
#[derive(Serialize)]
struct VerifiedRow {
    switch: String,
    /// Whether it was compared.
    checked: bool,
    /// Number of parts of its tables that were compared.
    parts: usize,
    differ: usize,
    damaged_tables: usize,
}

/// # Errors
/// [`Exit::CheckFailed`] if something differs, or a switch could not be asked; those of the controller for an unknown
/// name.
pub(crate) async fn run(mut client: Client, remote: &Remote, names: Vec<String>, out: &Output) -> anyhow::Result<()> {
    let switches = answer(client.list_switches(v1::ListSwitchesRequest {}).await)?.switches;
    let by_name: BTreeMap<String, v1::Switch> =
        switches.into_iter().map(|switch| (switch.name.clone(), switch)).collect();
    let names: Vec<String> = if names.is_empty() { by_name.keys().cloned().collect() } else { names };
    let (mut rows, mut found) = (Vec::new(), Vec::new());
    let mut clients: BTreeMap<String, Result<Client, String>> = BTreeMap::new();
    for switch in names {
        let there = by_name.get(&switch);
        let by = there.map(|there| there.served_by.clone()).unwrap_or_default();
        if !by.is_empty() && !clients.contains_key(&by) {
            let connected = remote.connect_to(&by).await?;
            clients.insert(by.clone(), connected.map_err(|error| error.to_string()));
        }
        let asked = match clients.get(&by) {
            _ if there.is_some_and(|there| !there.connected) => Err("it is not connected to any controller".to_owned()),
            Some(Err(why)) => Err(why.clone()),
            other => {
                let mut client = match other {
                    Some(Ok(client)) => client.clone(),
                    _ => client.clone(),
                };
                match client.verify_switch(v1::VerifySwitchRequest { name: switch.clone() }).await {
                    Ok(answer) => Ok(answer.into_inner()),
                    // An unknown switch is a mistake of the caller.
                    Err(status) if there.is_none() => return Err(crate::remote::refusal(&status)),
                    Err(status) => Err(api::client::reason(&status)),
                }
            }
        };
        let v1::VerifySwitchReply { parts, damage } = match asked {
            Ok(reply) => reply,
            Err(why) => {
                found.push(format!("{switch}: not checked: {why}"));
                rows.push(VerifiedRow { switch, checked: false, parts: 0, differ: 0, damaged_tables: 0 });
                continue;
            }
        };
        let n_found = found.len();
        found.extend(parts.iter().filter(|part| part.digest != part.expected_digest).map(|part| {
            let v1::VerifiedPart { part, version, expected_digest, digest } = part;
            format!(
                "{switch}: {part} has digest {digest:#018x} at version {version}, the controller expects {expected_digest:#018x}; restart the switch without its saved image"
            )
        }));
        let differ = found.len() - n_found;
        found.extend(damage.iter().map(|damage| {
            format!("{switch}: {damage}. Its memory was damaged; the controller has sent the table again. Look for bad memory")
        }));
        rows.push(VerifiedRow { switch, checked: true, parts: parts.len(), differ, damaged_tables: damage.len() });
    }
    out.rows(&rows)?;
    if found.is_empty() { Ok(()) } else { Err(Failure::new(Exit::CheckFailed, found.join("\n"))) }
}
