//! What a switch takes of a changed configuration while it runs.

use super::Switch;
use super::config::Config;
use crate::acl::AccessList;
use crate::flow::Flows;
use crate::flow::balance::{Member, Server, ServerError};
use crate::flow::control::{Change, ChangeError};
use api::audit::Audit;
use api::config::Changes;
use api::gate::Gate;
use api::limits::{Limits, raise_descriptors};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// What a running switch can be told, besides its plane.
pub(super) struct Live {
    pub(super) gate: Arc<Gate>,
    pub(super) audit: Arc<Audit>,
    /// The access lists. The ports hold them.
    pub(super) lists: Vec<Weak<AccessList>>,
    pub(super) flows: Option<Flows>,
    /// Of ended flows.
    pub(super) export: Option<PathBuf>,
}

impl Config {
    /// The keys that a switch takes while it runs; a section stands for all its keys.
    pub const LIVE: &[&str] = &[
        "log",
        "flow.virtual.servers",
        "gateway.route",
        "gateway.routes_file",
        "limits.connections",
        "limits.connections_per_peer",
        "limits.connection_bytes",
        "limits.peer_bytes",
        "limits.total_bytes",
        "limits.requests_per_second",
        "limits.first_request_ms",
        "limits.message_ms",
        "limits.idle_ms",
    ];

    /// What stands in a text by its keys.
    pub fn keys_of(text: &str) -> Option<serde_json::Value> {
        toml::from_str(text).ok()
    }
}

impl Switch {
    /// Goes on in files that have the names now of those that it writes: another file, where one was renamed. Returns what could
    /// not be opened; there it goes on in the file before.
    pub fn reopen_files(&self) -> Vec<String> {
        let Live { audit, export, .. } = &self.live;
        let mut refused = Vec::new();
        if let Err(error) = audit.reopen() {
            let path = audit.path().display();
            refused.push(format!("the audit trail {path} cannot be opened: {error}; it goes on in the file before"));
        }
        if let (Some((keeper, _)), Some(path)) = (&self.keeper, export)
            && let Err(error) = tokio::task::block_in_place(|| keeper.reopen(path))
        {
            let path = path.display();
            refused
                .push(format!("the export of flows {path} cannot be opened: {error}; it goes on in the file before"));
        }
        refused
    }

    /// Reads certificates, access lists and routes again, and takes of a configuration what it can while it runs:
    /// [`Config::LIVE`]. `before` is the one that was read before: what operators changed of servers since then stays, unless the
    /// file says something new of that server. Returns what cannot be used; there it goes on as before.
    pub fn reload(&self, before: &Config, config: &Config, changes: &Changes) -> Vec<String> {
        let Live { gate, lists, flows, .. } = &self.live;
        let mut refused = Vec::new();
        if let Some(tls) = gate.tls()
            && let Err(error) = tls.read_again()
        {
            refused.push(format!("{error}; the certificates before stay in use"));
        }
        for list in lists.iter().filter_map(Weak::upgrade) {
            match list.read_again() {
                Ok(Some(_)) => tracing::info!(acl = %list.status().path.display(), "access list read again"),
                Ok(None) => {}
                Err(error) => refused.push(format!("{error}; the access list before stays in use")),
            }
        }
        let connections = raise_descriptors(config.limits.connections, config.n_listeners());
        gate.limits().set_limits(Limits { connections, ..config.limits.clone() });
        if changes.live.iter().any(|key| key.contains(".servers"))
            && let Some(flows) = flows
        {
            refused.extend(change_servers(flows, before, config));
        }
        // Routes may stand in a file of their own, which is read with the configuration.
        if let Ok(Some(settings)) = config.gateway_settings()
            && let Err(error) = self.plane.monitor().reroute(&settings)
        {
            refused.push(format!("the changed routes do not fit the table: {error}; those before stay in use"));
        }
        refused
    }
}

/// Adds servers that are new in the configuration, changes those with another weight or MAC address, and removes those that are
/// no longer there.
fn change_servers(flows: &Flows, before: &Config, now: &Config) -> Vec<String> {
    let settings = |config: &Config| config.flow_settings().ok().flatten().unwrap_or_default();
    let (before, now) = (settings(before), settings(now));
    let servers = |members: &mut dyn Iterator<Item = &Member>| -> HashMap<_, Server> {
        members.map(|member| (member.server.endpoint, member.server)).collect()
    };
    let mut refused = Vec::new();
    for service in &now.virtuals {
        let is_it =
            |other: &&crate::flow::Virtual| (other.endpoint, other.protocol) == (service.endpoint, service.protocol);
        let Some(old) = before.virtuals.iter().find(is_it) else { continue };
        let (was, is) = (servers(&mut old.balancer.members()), servers(&mut service.balancer.members()));
        let added =
            is.values().filter(|server| was.get(&server.endpoint) != Some(server)).map(|&server| Change::Add(server));
        let removed = was
            .keys()
            .filter(|endpoint| !is.contains_key(endpoint))
            .map(|&server| Change::Remove { server, keep: false });
        for change in added.chain(removed) {
            match flows.change(service.endpoint, service.protocol, change) {
                // An operator was faster.
                Ok(()) | Err(ChangeError::Server(ServerError::Unknown(_))) => {}
                Err(error) => refused.push(error.to_string()),
            }
        }
    }
    refused
}
