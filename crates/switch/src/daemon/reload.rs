//! What a switch takes of a changed configuration while it runs.

use super::Switch;
use super::checks::Checks;
use super::config::Config;
use api::audit::Audit;
use api::config::Changes;
use api::gate::Gate;
use api::limits::{Limits, raise_descriptors};
use dataplane::acl::AccessList;
use dataplane::assembly::Monitor;
use dataplane::flow::Flows;
use dataplane::flow::balance::{Member, Server, ServerError};
use dataplane::flow::control::{Change, ChangeError};
use fib::action::PortId;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// What a running switch can be told, besides its plane.
pub(super) struct Live {
    pub(super) gate: Arc<Gate>,
    pub(super) audit: Arc<Audit>,
    pub(super) flows: Option<Flows>,
    pub(super) checks: Option<Arc<Checks>>,
    /// Of ended flows.
    pub(super) export: Option<PathBuf>,
}

impl Config {
    /// The keys that a switch takes while it runs.
    pub const LIVE: api::config::Live = api::config::Live {
        keys: &[
            "log",
            "audit.max_bytes",
            "audit.keep",
            "tls",
            "port.acl",
            "flow.default",
            "flow.rule",
            "flow.timeouts",
            "flow.pick_up",
            "flow.virtual.servers",
            "flow.virtual.check",
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
        ],
        parts: &["flow", "gateway", "tls"],
    };

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
            refused.push(format!(
                "the audit trail {path} cannot be opened: {error}; the trail continues in the previous file"
            ));
        }
        if let (Some((keeper, _)), Some(path)) = (&self.keeper, export)
            && let Err(error) = tokio::task::block_in_place(|| keeper.reopen(path))
        {
            let path = path.display();
            refused.push(format!(
                "the export of flows {path} cannot be opened: {error}; the export continues in the previous file"
            ));
        }
        refused
    }

    /// Reads certificates, access lists and routes again, from where the configuration has them now, and takes of a configuration what it can while it runs:
    /// [`Config::LIVE`]. `before` is the one that was read before: what operators changed of servers since then stays, unless the
    /// file says something new of that server. Returns what cannot be used; there it goes on as before.
    pub fn reload(&self, before: &Config, config: &Config, changes: &Changes) -> Vec<String> {
        let Live { gate, audit, flows, checks, .. } = &self.live;
        let mut refused = Vec::new();
        if let (Some(tls), Some(files)) = (gate.tls(), &config.tls)
            && let Err(error) = tls.read_from(files)
        {
            refused.push(format!("{error}; the previous certificates stay in use"));
        }
        if let Err(error) = audit.set_sizes(&config.audit) {
            refused.push(format!("a full file of the audit trail that is over `keep` cannot be removed: {error}"));
        }
        refused.extend(change_lists(self.plane.monitor(), config));
        for list in self.plane.monitor().access_lists() {
            match list.read_again() {
                Ok(Some(_)) => tracing::info!(acl = %list.status().path.display(), "access list read again"),
                Ok(None) => {}
                Err(error) => refused.push(format!("{error}; the previous access list stays in use")),
            }
        }
        let connections = raise_descriptors(config.limits.connections, config.n_listeners());
        gate.limits().set_limits(Limits { connections, ..config.limits.clone() });
        if let (Some(flows), Ok(Some(settings))) = (flows, config.flow_settings()) {
            flows.retune(&settings);
            if changes.live.iter().any(|key| key.contains(".servers")) {
                refused.extend(change_servers(flows, before, config));
            }
            if let Some(checks) = checks {
                checks.follow(&settings.virtuals);
            }
        }
        // Routes may stand in a file of their own, which is read with the configuration.
        if let Ok(Some(settings)) = config.gateway_settings()
            && let Err(error) = self.plane.monitor().reroute(&settings)
        {
            refused.push(format!("the changed routes do not fit the table: {error}; the previous ones stay in use"));
        }
        refused
    }
}

/// Gives each port the access list of the file that it names now, or none. Ports that name one file share its list.
fn change_lists(monitor: &Monitor, config: &Config) -> Vec<String> {
    let path_at = |id: PortId| monitor.access_list(id).map(|list| list.path().to_owned());
    let (mut refused, mut lists) = (Vec::new(), monitor.access_lists());
    for port in config.ports.iter().filter(|port| path_at(port.id) != port.acl) {
        let list = match &port.acl {
            None => None,
            Some(path) => match lists.iter().find(|list| list.path() == path) {
                Some(list) => Some(Arc::clone(list)),
                None => match AccessList::open(path) {
                    Ok(list) => {
                        lists.push(Arc::clone(&list));
                        Some(list)
                    }
                    Err(error) => {
                        refused
                            .push(format!("acl of port {}: {error}; the previous access list stays in use", port.id));
                        continue;
                    }
                },
            },
        };
        // A port that is new has its list when it is there.
        if monitor.set_access_list(port.id, list) {
            let acl = port.acl.as_ref().map(|path| path.display().to_string());
            tracing::info!(port = %port.id, acl, "the port has another access list");
        }
    }
    refused
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
        let is_it = |other: &&dataplane::flow::Virtual| {
            (other.endpoint, other.protocol) == (service.endpoint, service.protocol)
        };
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
