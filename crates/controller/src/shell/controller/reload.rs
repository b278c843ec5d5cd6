//! Applies a changed configuration to a running controller.

use super::Controller;
use crate::core::change::State;
use crate::core::happened::Level;
use crate::core::owner::{Seen, Task};
use crate::shell::config::Config;
use crate::shell::job::Jobs;
use crate::shell::shared::Shared;
use api::audit::Audit;
use api::config::Changes;
use api::gate::Gate;
use api::limits::{Limits, raise_descriptors};
use std::sync::Arc;

/// The parts of a running controller that can change.
pub(crate) struct Live {
    pub(crate) shared: Arc<Shared>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) audit: Arc<Audit>,
    pub(crate) jobs: Jobs,
}

impl Config {
    /// The keys that take effect while a controller runs.
    pub const LIVE: api::config::Live = api::config::Live {
        keys: &[
            "log",
            "audit.max_bytes",
            "audit.keep",
            "tls",
            "auto_links",
            "auto_switches",
            "learn",
            "rates",
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
        parts: &["tls"],
    };

    /// The values in a text, by key.
    pub fn keys_of(text: &str) -> Option<serde_json::Value> {
        toml::from_str(text).ok()
    }
}

impl Controller {
    /// Reopens its files under their present names: a renamed file is replaced by a new one. Returns those that could
    /// not be opened; the trail then continues in the previous file.
    pub fn reopen_files(&self) -> Vec<String> {
        let audit = &self.live.audit;
        let refused = |error| {
            format!(
                "the audit trail {} cannot be opened: {error}; the trail continues in the previous file",
                audit.path().display()
            )
        };
        audit.reopen().map_err(refused).err().into_iter().collect()
    }

    /// Reads the certificates again, from where the configuration has them now, and applies what can change at run time: [`Config::LIVE`].
    /// Returns what cannot be used; there the previous value stays.
    pub async fn reload(&self, config: &Config, changes: &Changes) -> Vec<String> {
        let Live { shared, gate, audit, jobs } = &self.live;
        let mut refused = Vec::new();
        if let (Some(tls), Some(files)) = (gate.tls(), &config.tls)
            && let Err(error) = tokio::task::block_in_place(|| tls.read_from(files))
        {
            refused.push(format!("{error}; the previous certificates stay in use"));
        }
        if let Err(error) = tokio::task::block_in_place(|| audit.set_sizes(&config.audit)) {
            refused.push(format!("a full file of the audit trail that is over `keep` cannot be removed: {error}"));
        }
        let connections = raise_descriptors(config.limits.connections, 1 + usize::from(config.status.is_some()));
        gate.limits().set_limits(Limits { connections, ..config.limits.clone() });
        shared.known.pending.lock().set_auto(config.auto_switches);
        let (auto_links, learn) = (config.auto_links, config.learn.clone());
        let set = move |_: &State, seen: &mut Seen| {
            seen.trunks.set_auto(auto_links);
            seen.learning.set(learn);
        };
        let _ = jobs.look(set).await;
        let _ = jobs.send(Task::Rates(config.rates.clone())).await;
        if !changes.live.is_empty() {
            let text = format!("takes a changed configuration: {}", changes.live.join(", "));
            shared.events.note("controller", Level::Info, "this controller", text);
        }
        refused
    }
}
