//! What follows from what switches find: cut links, cables, hosts. The controller that leads carries it out.

use super::{Event, Owner};
use crate::core::Auto;
use crate::core::change::{Change, Changed, MAX_BATCH, Place, Refusal};
use crate::core::happened::Level;
use crate::core::learning::Decided;
use crate::core::session::Line;
use crate::core::summary::summary;
use api::v1::{ForgetfulPort, SeenHost};
use fib::topology::{End, NodeId, Wanted};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// An end of each link that a change adds.
pub(super) fn joined(change: &Change) -> Vec<Place> {
    match change {
        Change::AddLink { a, .. } => vec![a.clone()],
        Change::AddLinks { links } => links.iter().map(|(a, ..)| a.clone()).collect(),
        _ => Vec::new(),
    }
}

impl<L: Line, T> Owner<L, T> {
    /// Cuts those of the newly added links that a switch has already reported to carry nothing. It reports that only once.
    pub(super) fn see_joined(&mut self, joined: &[Place], now: Instant) {
        let nodes: BTreeSet<NodeId> = joined.iter().filter_map(|end| self.state.node(&end.switch).ok()).collect();
        let cut = nodes.into_iter().flat_map(|node| self.seen.trunks.changed_at(&self.state.network, node));
        let links: BTreeMap<End, bool> = cut.collect();
        if !links.is_empty() {
            let links = links.into_iter().map(|(end, cut)| (self.state.place(end), cut)).collect();
            let _ = self.change_unasked(Change::SeeLinks { links }, now);
        }
    }

    /// Carries out what follows from what a switch sees at its trunks. The controller that leads does so.
    pub(super) fn see(&mut self, node: NodeId, now: Instant) {
        if !self.leads {
            return;
        }
        let links = self.seen.trunks.changed_at(&self.state.network, node);
        if !links.is_empty() {
            let links = links.into_iter().map(|(end, cut)| (self.state.place(end), cut)).collect();
            let _ = self.change_unasked(Change::SeeLinks { links }, now);
        }
        if self.seen.trunks.auto() != Auto::On {
            return;
        }
        // Only now is it known which links are cut: links that were found, and are cut, are not in the way.
        let found = self.seen.trunks.found(&self.state.network);
        if !found.is_empty() {
            let wanted = Wanted { found: true, ..Wanted::default() };
            let links = found.into_iter().map(|(a, b)| (self.state.place(a), self.state.place(b), wanted)).collect();
            let _ = self.change_unasked(Change::AddLinks { links }, now);
        }
    }

    /// Carries out what follows from what a switch saw at its host ports.
    pub(super) fn learn(
        &mut self,
        switch: &str,
        (hosts, forgetful): (&[SeenHost], &[ForgetfulPort]),
        at_ms: u64,
        now: Instant,
    ) {
        // One that was removed meanwhile has no ports.
        let (true, Ok(node)) = (self.leads, self.state.node(switch)) else { return };
        self.seen.learning.set_forgetful(node, forgetful, now);
        let decided = self.seen.learning.decide(&self.state, node, hosts, now, at_ms);
        let more = decided.more();
        if !decided.losers.is_empty() {
            let (records, more) = decided.losses(&self.state);
            if self.change_unasked(Change::Learn { records, at_ms, more }, now).is_err() {
                // A host that announces it does so again.
                return;
            }
        }
        let Decided { hosts, mut records, taken, .. } = decided;
        let taken = taken.into_iter().map(|(name, text)| Event::Host { level: Level::Warning, name, text });
        self.group.turn.events.extend(taken);
        if records.is_empty() {
            return;
        }
        for (name, place) in hosts {
            let (end, host) = (End { node, port: place.port }, name.clone());
            // What is at the other ports does not depend on it.
            if let Err(refusal) = self.change_unasked(Change::AddHosts { hosts: vec![(name, place)] }, now) {
                self.not_learnt(end, &format!("the host {host}"), &refusal, now);
                records.retain(|record| record.host != host);
            }
        }
        match self.change_unasked(Change::Learn { records: records.clone(), at_ms, more: more.clone() }, now) {
            Ok(_) => return self.seen.learning.done(&self.state, &records),
            // Hosts that still send are seen again.
            Err(Refusal::TooFast { .. }) => return,
            // One of them may be to blame.
            Err(_) => {}
        }
        for record in records {
            let more = more.iter().filter(|(name, _)| *name == record.name).cloned().collect();
            let alone = vec![record];
            match self.change_unasked(Change::Learn { records: alone.clone(), at_ms, more }, now) {
                Ok(_) => self.seen.learning.done(&self.state, &alone),
                Err(refusal) => {
                    if let Ok(end) = self.state.hosts.end(&alone[0].host) {
                        self.not_learnt(end, &alone[0].name, &refusal, now);
                    }
                }
            }
        }
    }

    /// The network refused a name at a host, or a host.
    fn not_learnt(&mut self, end: End, what: &str, refusal: &Refusal, now: Instant) {
        self.seen.learning.refused(&self.state, end, what, &refusal.to_string(), now);
    }

    /// Forgets learnt names that have been silent for too long.
    pub(super) fn forget(&mut self, now: Instant) {
        if !self.leads {
            return;
        }
        let silent = self.seen.learning.silent(&self.state, now);
        for names in silent.chunks(MAX_BATCH) {
            // What is refused, because its tenant changes too fast, is silent the next time as well.
            let change = Change::RemoveNames { names: names.to_vec(), ignore_missing: true };
            if self.change_unasked(change, now).is_ok() {
                self.seen.learning.forgotten(names.len());
            }
        }
    }

    /// A change that no one asked for: no one waits for an answer, but a refusal is known at once.
    fn change_unasked(&mut self, change: Change, now: Instant) -> Result<Changed, Refusal> {
        let (what, detail) = summary(&change);
        // Hosts come and go as they like; links do not.
        let is_frequent = matches!(change, Change::Learn { .. } | Change::RemoveNames { .. });
        self.group.turn.events.push(Event::Found { what, detail, is_frequent });
        self.change(change, now)
    }
}
