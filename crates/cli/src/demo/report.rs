//! The result of a demo: one table for people, one JSON object for programs.

mod undeclared;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use api::words::counted;
use fib::designs::Design;
use serde::Serialize;

use super::backend::Tables;
use super::judge::{Judge, Phase};
use super::layout::Layout;
use super::phases::Findings;
use undeclared::Undeclared;

/// Frames of one phase, or of all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Frames {
    pub(super) phase: &'static str,
    /// Probes to live names (and pings): those sent, those that arrived, and those that did not.
    pub(super) sent: u64,
    pub(super) delivered: u64,
    pub(super) lost: u64,
    /// Unicast frames of any kind that came out at the wrong station.
    pub(super) misdelivered: u64,
    pub(super) duplicated: u64,
    /// Probes that came out after a later one from the same host to the same name.
    pub(super) reordered: u64,
    /// Probes to removed and unknown names; one that arrives anywhere is misdelivered.
    pub(super) sent_to_nobody: u64,
    /// Frames of any kind that the promiscuous sockets saw.
    pub(super) seen: u64,
}

/// A demo fails if more than one frame in so many was not judged.
const MOST_UNJUDGED: u64 = 1000;

/// All results of a demo. Field names are those of the JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Report {
    pub(super) topology: String,
    /// "namespaces" or "in-process".
    pub(super) network: &'static str,
    /// How the switches' ports take frames.
    pub(super) driver: String,
    pub(super) value_mode: String,
    pub(super) gateway_design: &'static str,
    pub(super) core_design: &'static str,
    pub(super) switches: usize,
    pub(super) links: usize,
    pub(super) hosts: usize,
    pub(super) names: u64,
    pub(super) bits_per_name: f64,
    pub(super) image_bytes_min: u64,
    pub(super) image_bytes_max: u64,
    pub(super) switch_memory_bytes: Option<u64>,
    pub(super) controller_memory_bytes: Option<u64>,
    /// By part, of the switch that takes the most and of the controller.
    pub(super) switch_bytes_per_name: BTreeMap<String, f64>,
    pub(super) controller_bytes_per_name: BTreeMap<String, f64>,
    pub(super) pings_sent: u64,
    pub(super) pings_answered: u64,
    pub(super) pings_answered_at_first_try: u64,
    pub(super) ping_rtt_median_us: f64,
    pub(super) ping_rtt_max_us: f64,
    pub(super) tcp_bytes: Option<u64>,
    pub(super) tcp_mbit_per_s: Option<f64>,
    pub(super) tcp_retransmits: Option<u64>,
    pub(super) tcp_bytes_during_churn: Option<u64>,
    /// From the end of a controller that followed until every switch had the next change.
    pub(super) moved_on_ms: Option<f64>,
    /// From the end of the controller that led, of several, until the next change was acknowledged.
    pub(super) leaderless_ms: Option<f64>,
    pub(super) udp_datagrams_sent: Option<u64>,
    pub(super) udp_datagrams_received: Option<u64>,
    pub(super) udp_mbit_per_s: Option<f64>,
    pub(super) frames_sent: u64,
    pub(super) frames_delivered: u64,
    pub(super) frames_lost: u64,
    pub(super) frames_misdelivered: u64,
    pub(super) names_added: Option<u64>,
    pub(super) names_moved: Option<u64>,
    pub(super) names_removed: Option<u64>,
    pub(super) host_moves: Option<u64>,
    pub(super) updates_per_s: Option<f64>,
    pub(super) cut_link: Option<String>,
    pub(super) converged_ms: Option<f64>,
    pub(super) outage_ms: Option<f64>,
    pub(super) drained_switch: Option<String>,
    /// From the request until no path of others led through it, and the changes of paths that it took.
    pub(super) drained_ms: Option<f64>,
    pub(super) drain_steps: Option<u32>,
    /// Of a network in which nothing is declared.
    #[serde(flatten)]
    pub(super) undeclared: Option<Undeclared>,
    /// Frames that the switches dropped, by reason.
    pub(super) drops: BTreeMap<String, u64>,
    /// Frames that came faster than the switches took them from their devices: what a machine loses that is too slow for them.
    pub(super) overrun_at_switches: u64,
    /// Frames that the kernel sent, if it is to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) forwarded_in_kernel: Option<u64>,
    /// Frames that did not fit the promiscuous sockets' buffers, and so were not judged.
    pub(super) missed_by_sniffers: u64,
    pub(super) seconds: f64,
    pub(super) phases: Vec<Frames>,
    pub(super) offences: Vec<String>,
}

/// Figures that only a network of processes has.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Outside {
    pub(super) missed_by_sniffers: u64,
    pub(super) switch_memory_bytes: Option<u64>,
    pub(super) controller_memory_bytes: Option<u64>,
}

/// How a network was run.
pub(super) struct How<'a> {
    /// "namespaces" or "in-process".
    pub(super) network: &'static str,
    /// How the switches' ports take frames.
    pub(super) driver: &'a str,
    pub(super) value_mode: &'a str,
    /// Designs of gateways and of the core.
    pub(super) designs: [&'static Design; 2],
}

impl Report {
    pub(super) fn new(
        layout: &Layout,
        how: &How<'_>,
        judge: &Judge,
        findings: &Findings,
        tables: &Tables,
        outside: Outside,
        seconds: f64,
    ) -> Self {
        let phases = frames(judge, findings);
        let sum = |of: fn(&Frames) -> u64| phases.iter().map(of).sum();
        let (tcp, udp, churn) = (findings.tcp.as_ref(), findings.udp.as_ref(), findings.churn.as_ref());
        Self {
            topology: layout.topology.name.clone(),
            network: how.network,
            driver: how.driver.to_owned(),
            value_mode: how.value_mode.to_owned(),
            gateway_design: how.designs[0].name,
            core_design: how.designs[1].name,
            switches: layout.n_switches(),
            links: layout.topology.links.len(),
            hosts: layout.hosts.len(),
            names: tables.names,
            bits_per_name: tables.bits_a_name(),
            image_bytes_min: tables.image_bytes.iter().min().copied().unwrap_or_default(),
            image_bytes_max: tables.image_bytes.iter().max().copied().unwrap_or_default(),
            switch_memory_bytes: outside.switch_memory_bytes,
            controller_memory_bytes: outside.controller_memory_bytes,
            switch_bytes_per_name: tables.switch_memory.clone(),
            controller_bytes_per_name: tables.controller_memory.clone(),
            pings_sent: findings.pings.pairs,
            pings_answered: findings.pings.answered,
            pings_answered_at_first_try: findings.pings.at_first_try,
            ping_rtt_median_us: findings.pings.rtt_median_us,
            ping_rtt_max_us: findings.pings.rtt_max_us,
            tcp_bytes: tcp.map(|t| t.bytes),
            tcp_mbit_per_s: tcp.map(|t| t.megabits_a_second()),
            tcp_retransmits: tcp.map(|t| t.retransmits),
            tcp_bytes_during_churn: churn.and_then(|c| c.tcp.as_ref()).map(|t| t.bytes),
            moved_on_ms: churn.and_then(|c| c.moved_on).map(milliseconds),
            leaderless_ms: churn.and_then(|c| c.leaderless).map(milliseconds),
            udp_datagrams_sent: udp.map(|u| u.datagrams_sent),
            udp_datagrams_received: udp.map(|u| u.datagrams_received),
            udp_mbit_per_s: udp.map(|u| u.megabits_a_second()),
            frames_sent: sum(|f| f.sent),
            frames_delivered: sum(|f| f.delivered),
            frames_lost: sum(|f| f.lost),
            frames_misdelivered: sum(|f| f.misdelivered),
            names_added: churn.map(|c| c.added),
            names_moved: churn.map(|c| c.moved),
            names_removed: churn.map(|c| c.removed),
            host_moves: churn.map(|c| c.host_moves),
            updates_per_s: churn.map(|c| c.updates_a_second()),
            cut_link: findings.cut.as_ref().map(|c| c.link.clone()),
            converged_ms: findings.cut.as_ref().map(|c| c.converged_ms),
            outage_ms: findings.cut.as_ref().map(|c| c.outage_ms),
            drained_switch: findings.drain.as_ref().map(|d| d.switch.clone()),
            drained_ms: findings.drain.as_ref().map(|d| milliseconds(d.took)),
            drain_steps: findings.drain.as_ref().map(|d| d.steps),
            undeclared: Undeclared::new(findings),
            drops: tables.drops.clone(),
            overrun_at_switches: tables.overrun,
            forwarded_in_kernel: tables.in_kernel,
            missed_by_sniffers: outside.missed_by_sniffers,
            seconds,
            phases,
            offences: judge.offences(),
        }
    }

    /// Why the run counts as failed, if it does.
    pub(super) fn failure(&self) -> Option<String> {
        if self.frames_misdelivered > 0 {
            let details = self.offences.join("; ");
            return Some(format!("{} frames were misdelivered: {details}", self.frames_misdelivered));
        }
        if self.pings_answered < self.pings_sent {
            let missing = self.pings_sent - self.pings_answered;
            return Some(format!("{missing} of {} pings were not answered", self.pings_sent));
        }
        // What nobody saw may have been misdelivered, so a result without it says little.
        let seen: u64 = self.phases.iter().map(|phase| phase.seen).sum();
        let missed = self.missed_by_sniffers;
        (missed.saturating_mul(MOST_UNJUDGED) > seen).then(|| {
            format!(
                "{missed} frames were not judged, against {seen} that were: the machine is too slow to watch them all; run fewer \
                 other programs, or a smaller network"
            )
        })
    }

    /// The table for people.
    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "{}: {} switches, {} links, {} hosts, {}\n\n",
            self.topology,
            self.switches,
            self.links,
            self.hosts,
            match self.network {
                "namespaces" if self.undeclared.is_some() => {
                    format!("nothing declared, every switch a process with {} ports", self.driver)
                }
                "namespaces" => {
                    format!("every switch a process with {} ports, every host a network namespace", self.driver)
                }
                _ => "all in one process over in-memory ports".to_owned(),
            }
        );
        let header = ["frames", "sent", "delivered", "lost", "reordered", "misdelivered", "to nobody", "seen in all"];
        let rows = self.phases.iter().map(|f| {
            [f.sent, f.delivered, f.lost, f.reordered, f.misdelivered, f.sent_to_nobody, f.seen]
                .map(grouped)
                .into_iter()
                .fold(format!("  {:<8}", f.phase), |row, cell| row + &format!("{cell:>13}"))
        });
        let head = header[1..].iter().fold(format!("  {:<8}", header[0]), |row, cell| row + &format!("{cell:>13}"));
        for line in std::iter::once(head).chain(rows) {
            text.push_str(&line);
            text.push('\n');
        }
        text.push('\n');
        for (name, value) in self.lines() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {name:<30}{value}");
        }
        text
    }

    fn lines(&self) -> Vec<(&'static str, String)> {
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        let mut lines = vec![
            (
                "design",
                match (self.gateway_design, self.core_design) {
                    (gateway, core) if gateway == core => core.to_owned(),
                    (gateway, core) => format!("{gateway} at gateways, {core} inside"),
                },
            ),
            ("names", grouped(self.names)),
            ("bits a name", format!("{:.2}", self.bits_per_name)),
            (
                "image bytes a switch",
                match (self.image_bytes_min, self.image_bytes_max) {
                    (min, max) if min == max => grouped(max),
                    (min, max) => format!("{} to {}", grouped(min), grouped(max)),
                },
            ),
            ("frames sent", grouped(self.frames_sent)),
            ("frames delivered", grouped(self.frames_delivered)),
            ("frames lost", grouped(self.frames_lost)),
            ("frames misdelivered", grouped(self.frames_misdelivered)),
            ("pings answered", {
                let first = self.pings_answered_at_first_try;
                format!(
                    "{} of {} ({first} at the first try), median {:.2} ms, slowest {:.2} ms",
                    self.pings_answered,
                    self.pings_sent,
                    self.ping_rtt_median_us / 1e3,
                    self.ping_rtt_max_us / 1e3
                )
            }),
        ];
        if let (Some(rate), Some(bytes), Some(again)) = (self.tcp_mbit_per_s, self.tcp_bytes, self.tcp_retransmits) {
            lines.push((
                "bulk TCP",
                format!("{rate:.0} Mbit/s, {}, {} segments sent again", mib(bytes), grouped(again)),
            ));
        }
        if let Some(bytes) = self.tcp_bytes_during_churn {
            lines.push(("TCP beside the churn", mib(bytes)));
        }
        if let (Some(rate), Some(n_sent), Some(n_received)) =
            (self.udp_mbit_per_s, self.udp_datagrams_sent, self.udp_datagrams_received)
        {
            let (sent, lost) = (grouped(n_sent), grouped(n_sent - n_received));
            lines.push(("bulk UDP", format!("{rate:.0} Mbit/s, {sent} datagrams, {lost} lost")));
        }
        if let (Some(rate), Some(added), Some(moved), Some(removed), Some(host_moves)) =
            (self.updates_per_s, self.names_added, self.names_moved, self.names_removed, self.host_moves)
        {
            let ([added, moved, removed], rate) = ([added, moved, removed].map(grouped), grouped(rate as u64));
            lines.push((
                "updates a second",
                format!("{rate} ({added} added, {moved} moved, {removed} removed, {host_moves} host moves)"),
            ));
        }
        if let Some(ms) = self.moved_on_ms {
            lines.push(("follower killed", format!("its switches have the next change after {ms:.0} ms")));
        }
        if let Some(ms) = self.leaderless_ms {
            lines.push(("leader killed", format!("the next change is acknowledged after {ms:.0} ms")));
        }
        lines.extend(self.undeclared.iter().map(Undeclared::found));
        if let (Some(link), Some(converged), Some(outage)) = (&self.cut_link, self.converged_ms, self.outage_ms) {
            lines.push(("time to converge after a cut", healed(converged, outage, link)));
        }
        lines.extend(self.undeclared.iter().flat_map(Undeclared::lines));
        if let (Some(switch), Some(ms), Some(steps)) = (&self.drained_switch, self.drained_ms, self.drain_steps) {
            let lost = self.phases.iter().find(|f| f.phase == Phase::Drain.name()).map_or(0, |f| f.lost);
            lines.push((
                "drained a switch",
                format!(
                    "{switch}, in {} of paths and {ms:.0} ms, {} frames lost",
                    counted(u64::from(steps), "change", "changes"),
                    grouped(lost)
                ),
            ));
        }
        if let Some(n) = self.forwarded_in_kernel {
            lines.push(("forwarded in the kernel", format!("{} frames, from trunks to trunks and hosts", grouped(n))));
        }
        let drops: Vec<String> = self.drops.iter().map(|(why, &n)| format!("{} {why}", grouped(n))).collect();
        lines.push(("dropped by switches", if drops.is_empty() { "none".to_owned() } else { drops.join(", ") }));
        if let (Some(switch), Some(controller)) = (self.switch_memory_bytes, self.controller_memory_bytes) {
            lines.push(("resident memory", format!("{} a switch, {} the controller", mib(switch), mib(controller))));
        }
        let memory = [
            ("bytes a name at a switch", &self.switch_bytes_per_name),
            ("bytes a name, controller", &self.controller_bytes_per_name),
        ];
        // A handful of names says nothing about what a name takes.
        let memory = memory.into_iter().filter(|(_, parts)| self.undeclared.is_none() && !parts.is_empty());
        for (line, parts) in memory {
            let parts: Vec<String> = parts.iter().map(|(part, bytes)| format!("{part} {bytes:.1}")).collect();
            lines.push((line, parts.join(", ")));
        }
        if self.missed_by_sniffers > 0 {
            let missed = grouped(self.missed_by_sniffers);
            lines.push(("not judged", format!("{missed} frames: the promiscuous sockets had no room")));
        }
        if self.overrun_at_switches > 0 {
            let lost = grouped(self.overrun_at_switches);
            lines.push(("overrun", format!("{lost} frames: they came faster than switches took them")));
        }
        lines.push(("time", format!("{:.1} s", self.seconds)));
        lines
    }
}

fn frames(judge: &Judge, findings: &Findings) -> Vec<Frames> {
    Phase::ALL
        .into_iter()
        .map(|phase| {
            let counts = judge.counts(phase);
            // Pings carry no probe number: an answered ping arrived in both directions.
            let (sent, delivered) = match phase {
                Phase::Ping => (findings.pings.pairs, findings.pings.answered),
                _ => (counts.sent, counts.delivered),
            };
            Frames {
                phase: phase.name(),
                sent,
                delivered,
                lost: sent - delivered,
                misdelivered: counts.misdelivered,
                duplicated: counts.duplicates,
                reordered: counts.overtaken,
                sent_to_nobody: counts.sent_to_nobody,
                seen: counts.seen,
            }
        })
        .filter(|f| f.sent > 0 || f.seen > 0 || f.misdelivered > 0)
        .collect()
}

/// How a cut was healed.
fn healed(converged_ms: f64, outage_ms: f64, link: &str) -> String {
    format!("{converged_ms:.1} ms to new tables everywhere, last frame lost after {outage_ms:.1} ms ({link})")
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A number with separated thousands.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::topology::Topology;
    use super::*;

    fn report(judge: &Judge, findings: &Findings) -> Report {
        let layout = Layout::new(Topology::choose("ring", Some(3)).unwrap(), 1);
        let tables = Tables { names: 1003, image_bytes: vec![2500, 2600], ..Tables::default() };
        let designs: [&'static Design; 2] = [&fib::designs::CFW, &fib::designs::CONCISE];
        let how = How { network: "namespaces", driver: "af_packet", value_mode: "port", designs };
        Report::new(&layout, &how, judge, findings, &tables, Outside::default(), 1.5)
    }

    fn judge() -> Judge {
        Judge::new((0..6).map(|i| format!("station {i}")).collect())
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn one_misdelivered_frame_fails_the_run_and_is_described() {
        let judge = judge();
        assert_eq!(report(&judge, &Findings::default()).failure(), None);
        judge.observe(1, [&[6, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 8, 0][..]]);
        let report = report(&judge, &Findings::default());
        assert_eq!(report.frames_misdelivered, 1);
        assert!(report.failure().unwrap().contains("06:00:00:00:00:01"));
        assert!(report.table().contains("frames misdelivered           1\n"), "{}", report.table());
    }

    #[test]
    fn an_unanswered_ping_fails_the_run() {
        let mut findings = Findings::default();
        findings.pings.pairs = 6;
        findings.pings.answered = 5;
        assert!(report(&judge(), &findings).failure().unwrap().contains("1 of 6 pings"));
    }

    #[test]
    fn frames_that_nobody_judged_fail_the_run() {
        let judge = judge();
        judge.add([([6, 0, 0, 0, 0, 1], 1)]);
        (0..2000).for_each(|_| judge.observe(1, [&[6, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 8, 0][..]]));
        let missed = |n| Report { missed_by_sniffers: n, ..report(&judge, &Findings::default()) }.failure();
        assert_eq!(missed(2), None);
        assert!(missed(3).unwrap().contains("3 frames were not judged, against 2000"));
    }

    #[test]
    fn the_json_has_what_the_table_has() {
        let json = serde_json::to_value(report(&judge(), &Findings::default())).unwrap();
        for key in ["names", "bits_per_name", "image_bytes_max", "frames_sent", "frames_delivered", "frames_lost"] {
            assert!(json[key].is_number(), "{key}");
        }
        assert_eq!(json["bits_per_name"].as_f64().unwrap(), 2600.0 * 8.0 / 1003.0);
    }
}
