//! The controller's `/metrics` and `/status`.

use crate::core::learning::Counts;
use crate::core::presence::{Absent, Connected};
use crate::shell::shared::{Shared, Totals};
use crate::shell::telemetry::Telemetry;
use api::audit::Audit;
use api::gate::Gate;
use api::memory;
use api::status::{MetricsText, StatusSource, plain};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(crate) struct Page {
    pub(crate) shared: Arc<Shared>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) audit: Arc<Audit>,
    pub(crate) telemetry: Option<Arc<Telemetry>>,
}

impl Page {
    /// Bytes by part; see [`memory::usage`].
    fn parts(&self) -> [(&'static str, u64); 3] {
        let sizes = &self.shared.sizes;
        let waiting: usize = self.shared.sessions().iter().map(|session| session.lock().backlog_bytes()).sum();
        [
            ("rib", sizes.rib_bytes.load(Relaxed)),
            ("skeletons", sizes.skeleton_bytes.load(Relaxed)),
            ("waiting_messages", waiting as u64),
        ]
    }
}

impl StatusSource for Page {
    fn status_json(&self) -> String {
        let sizes = &self.shared.sizes;
        let Totals { changes, transactions, messages, message_bytes, resyncs, .. } = &self.shared.totals;
        let read = |value: &AtomicU64| value.load(Relaxed);
        let switch = |c: Connected| {
            json!({
                "name": c.name, "id": c.node.0, "in_step": c.in_step, "sent_messages": c.sent_messages,
                "acknowledged_messages": c.acked_messages, "sent_bytes": c.sent_bytes,
                "cannot_follow": c.cannot_follow, "sharing": c.sharing,
            })
        };
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "follows": self.shared.lead.leader(),
            "position": self.shared.lead.followed_to(), "strayed": read(&self.shared.lead.strayed),
            "drained": self.shared.lead.drained.load(Relaxed),
            "uptime_seconds": self.shared.started.elapsed().as_secs_f64(),
            "names": read(&sizes.names), "switches": read(&sizes.switches), "hosts": read(&sizes.hosts),
            "learnt": read(&sizes.learnt), "subscriptions": self.shared.known.subscriptions.lock().count(), "links": read(&sizes.links), "changes": read(changes), "transactions": read(transactions),
            "messages": read(messages), "message_bytes": read(message_bytes), "resyncs": read(resyncs),
            "pending_pushes": read(&self.shared.progress.pending_pushes), "connections": self.gate.limits().connections(),
            "request_bytes": self.gate.limits().request_bytes(),
            "memory": memory::json(&memory::usage(read(&sizes.names), &self.parts())),
            "turned_away": self.gate.turned_away().into_iter().collect::<BTreeMap<_, _>>(),
            "connected": self.shared.connected().into_iter().map(switch).collect::<Vec<_>>(),
        })
        .to_string()
    }

    fn metrics_text(&self) -> String {
        let shared = &self.shared;
        let read = |value: &AtomicU64| plain(value.load(Relaxed));
        let connected = shared.connected();
        let absent = shared.absent(&connected);
        let each = |value: fn(&Connected) -> u64| -> Vec<(String, u64)> {
            connected.iter().map(|c| (format!("switch=\"{}\"", c.name), value(c))).collect()
        };
        // Of every switch, so that one that goes away is seen to be away, and not missing.
        let all = |here: fn(&Connected) -> u64, away: fn(&Absent) -> u64| -> Vec<(String, u64)> {
            let away = absent.iter().map(|a| (format!("switch=\"{}\"", a.name), away(a)));
            each(here).into_iter().chain(away).collect()
        };
        let mut text = MetricsText::default();
        let follows = u64::from(shared.lead.leader().is_some());
        text.gauge("fibula_follows", "1: this controller follows another one, which leads.", plain(follows));
        text.counter(
            "fibula_strayed_total",
            "Times that a follower had to read all rows of the store again.",
            read(&shared.lead.strayed),
        );
        text.gauge("fibula_names", "Names in the network.", read(&shared.sizes.names));
        text.gauge("fibula_switches", "Switches that were added.", read(&shared.sizes.switches));
        text.gauge(
            "fibula_switches_connected",
            "Switches connected to this controller.",
            plain(connected.len() as u64),
        );
        text.gauge("fibula_hosts", "Host ports.", read(&shared.sizes.hosts));
        text.gauge("fibula_names_learnt", "Learnt names.", read(&shared.sizes.learnt));
        let (Counts { learnt, moved, addresses, forgotten, full, declared, taken, flapping, refused }, n_unknown) =
            *shared.sizes.seen.lock();
        text.gauge("fibula_hosts_unknown", "Names that switches saw but that are not learnt.", plain(n_unknown as u64));
        let events = [
            ("learnt", learnt),
            ("moved", moved),
            ("address", addresses),
            ("forgotten", forgotten),
            ("port_full", full),
            ("declared_elsewhere", declared),
            ("address_of_another", taken),
            ("flapping", flapping),
            ("refused", refused),
        ];
        let events = events.map(|(event, n)| (format!("event=\"{event}\""), n));
        text.counter("fibula_learn_events_total", "Outcomes for names that switches saw, by event.", events);
        let wanted = plain(shared.known.subscriptions.lock().count() as u64);
        text.gauge("fibula_group_subscriptions", "Multicast subscriptions: groups, counted for each name.", wanted);
        text.gauge("fibula_links", "Links.", read(&shared.sizes.links));
        text.counter("fibula_changes_total", "Objects that requests changed.", read(&shared.totals.changes));
        text.counter("fibula_transactions_total", "Transactions committed.", read(&shared.totals.transactions));
        text.counter("fibula_messages_total", "Messages generated for switches.", read(&shared.totals.messages));
        text.counter(
            "fibula_message_bytes_total",
            "Bytes of messages generated for switches.",
            read(&shared.totals.message_bytes),
        );
        let rebuilt = shared.sizes.rebuilt.lock().clone();
        let rebuilt = rebuilt.into_iter().map(|(design, n)| (format!("design=\"{design}\""), n));
        let anew = "Parts of FIBs rebuilt because names changed, not counting rekeys.";
        text.counter("fibula_parts_rebuilt_total", anew, rebuilt);
        text.counter(
            "fibula_resyncs_total",
            "Resynchronisations that switches requested.",
            read(&shared.totals.resyncs),
        );
        let too_fast = read(&shared.totals.too_fast);
        text.counter("fibula_changes_too_fast_total", "Changes refused by the rate limit of a tenant.", too_fast);
        let delayed = read(&shared.totals.reports_delayed);
        text.counter("fibula_reports_delayed_total", "Reports of switches that had to wait.", delayed);
        let is_here = "1: the switch is connected to this controller.";
        text.gauge("fibula_switch_connected", is_here, all(|_| 1, |_| 0));
        let is_in_step = "1: the switch has every committed change; 0 also if it is not connected here.";
        text.gauge("fibula_switch_in_step", is_in_step, all(|c| c.in_step.into(), |_| 0));
        let cannot = "1: the switch cannot hold its new table, and serves the one it has.";
        text.gauge("fibula_switch_cannot_follow", cannot, each(|c| c.cannot_follow.is_some().into()));
        let behind =
            "Seconds since the switch was last in step, or became known, as last checked; 0 if it is in step now.";
        text.gauge("fibula_switch_behind_seconds", behind, all(|c| c.behind.as_secs(), |a| a.behind.as_secs()));
        let waiting = "Messages that the switch has not acknowledged yet: how many versions it is behind. If it is not connected \
                       here, those when its stream ended, and the transactions since.";
        let unacknowledged = |c: &Connected| c.sent_messages.saturating_sub(c.acked_messages);
        text.gauge("fibula_switch_waiting_messages", waiting, all(unacknowledged, |a| a.lacks));
        let sharing =
            "Destinations that share a value in its FIB (port mode), so that failures heal and flows spread less well.";
        text.gauge("fibula_switch_sharing_destinations", sharing, each(|c| c.sharing));
        let times =
            "Time from sending a message to a switch to its acknowledgement, for one message per switch at a time.";
        text.histogram("fibula_update_seconds", times, &shared.totals.update_times);
        text.counter("fibula_switch_sent_messages_total", "Messages sent to a switch.", each(|c| c.sent_messages));
        text.counter(
            "fibula_switch_acknowledged_total",
            "Messages that a switch acknowledged.",
            each(|c| c.acked_messages),
        );
        self.gate.metrics(&mut text);
        self.audit.metrics(&mut text);
        self.telemetry.iter().for_each(|telemetry| telemetry.metrics(&mut text));
        text.memory(&self.parts());
        text.finish()
    }
}
