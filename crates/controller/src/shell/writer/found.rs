//! What follows from what switches find: cut links, cables, hosts. The controller that leads carries it out.

use super::{Group, Input, Writer};
use crate::core::Auto;
use crate::core::change::{Change, MAX_BATCH, Place, Refusal};
use crate::core::happened::Level;
use crate::core::learning::Decided;
use crate::core::summary::summary;
use crate::store::StoreError;
use api::seam::now;
use api::v1::{ForgetfulPort, SeenHost};
use fib::topology::{End, NodeId, Wanted};
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::oneshot;

/// An end of each link that a change adds.
pub(super) fn joined(change: &Change) -> Vec<Place> {
    match change {
        Change::AddLink { a, .. } => vec![a.clone()],
        Change::AddLinks { links } => links.iter().map(|(a, ..)| a.clone()).collect(),
        _ => Vec::new(),
    }
}

impl Writer {
    /// Cuts those of the links that were just added of which a switch has said before that they carry nothing. It says so once.
    pub(super) fn see_joined(&mut self, joined: &[Place], group: &mut Group) -> Result<(), StoreError> {
        let nodes: BTreeSet<NodeId> = joined.iter().filter_map(|end| self.state.node(&end.switch).ok()).collect();
        let cut =
            nodes.into_iter().flat_map(|node| self.shared.known.trunks.lock().changed_at(&self.state.network, node));
        let links: BTreeMap<End, bool> = cut.collect();
        if links.is_empty() {
            return Ok(());
        }
        let links = links.into_iter().map(|(end, cut)| (self.state.place(end), cut)).collect();
        let _ = self.change_unasked(Change::SeeLinks { links }, group)?;
        Ok(())
    }

    /// Carries out what follows from what a switch sees at its trunks. The controller that leads does so.
    pub(super) fn see(&mut self, node: NodeId, group: &mut Group) -> Result<(), StoreError> {
        if self.store.is_none() {
            return Ok(());
        }
        let links = self.shared.known.trunks.lock().changed_at(&self.state.network, node);
        if !links.is_empty() {
            let links = links.into_iter().map(|(end, cut)| (self.state.place(end), cut)).collect();
            let _ = self.change_unasked(Change::SeeLinks { links }, group)?;
        }
        if self.shared.known.trunks.lock().auto() != Auto::On {
            return Ok(());
        }
        // Now that it is known which links are cut: those that were found themselves are not in the way.
        let found = self.shared.known.trunks.lock().found(&self.state.network);
        if !found.is_empty() {
            let wanted = Wanted { found: true, ..Wanted::default() };
            let links = found.into_iter().map(|(a, b)| (self.state.place(a), self.state.place(b), wanted)).collect();
            let _ = self.change_unasked(Change::AddLinks { links }, group)?;
        }
        Ok(())
    }

    /// Carries out what follows from what a switch saw at its host ports.
    pub(super) fn learn(
        &mut self,
        switch: &str,
        (hosts, forgetful): (&[SeenHost], &[ForgetfulPort]),
        group: &mut Group,
    ) -> Result<(), StoreError> {
        // One that was removed meanwhile has no ports.
        let (true, Ok(node)) = (self.store.is_some(), self.state.node(switch)) else { return Ok(()) };
        let at_ms = api::clock::unix_ms();
        self.shared.known.learning.lock().set_forgetful(node, forgetful, now());
        let decided = self.shared.known.learning.lock().decide(&self.state, node, hosts, now(), at_ms);
        let more = decided.more();
        if !decided.losers.is_empty() {
            let (records, more) = decided.losses(&self.state);
            if self.change_unasked(Change::Learn { records, at_ms, more }, group)?.is_err() {
                // Who announces it does so again.
                return Ok(());
            }
        }
        let Decided { hosts, mut records, taken, .. } = decided;
        for (name, text) in taken {
            self.shared.events.note("host", Level::Warning, name, text);
        }
        if records.is_empty() {
            return Ok(());
        }
        for (name, place) in hosts {
            let (end, host) = (End { node, port: place.port }, name.clone());
            // What is at the other ports does not depend on it.
            if let Err(refusal) = self.change_unasked(Change::AddHosts { hosts: vec![(name, place)] }, group)? {
                let what = format!("the host {host}");
                self.shared.known.learning.lock().refused(&self.state, end, &what, &refusal.to_string(), now());
                records.retain(|record| record.host != host);
            }
        }
        match self.change_unasked(Change::Learn { records: records.clone(), at_ms, more: more.clone() }, group)? {
            Ok(()) => {
                self.shared.known.learning.lock().done(&self.state, &records);
                return Ok(());
            }
            // Hosts that still send are seen again.
            Err(Refusal::TooFast { .. }) => return Ok(()),
            // One of them may be to blame.
            Err(_) => {}
        }
        for record in records {
            let more = more.iter().filter(|(name, _)| *name == record.name).cloned().collect();
            let alone = vec![record];
            match self.change_unasked(Change::Learn { records: alone.clone(), at_ms, more }, group)? {
                Ok(()) => self.shared.known.learning.lock().done(&self.state, &alone),
                Err(refusal) => self.not_learnt(&alone[0].host, &alone[0].name, &refusal),
            }
        }
        Ok(())
    }

    /// The network refused a name at a host.
    fn not_learnt(&self, host: &str, name: &str, refusal: &Refusal) {
        if let Ok(end) = self.state.hosts.end(host) {
            self.shared.known.learning.lock().refused(&self.state, end, name, &refusal.to_string(), now());
        }
    }

    /// Forgets learnt names that have been silent for too long.
    pub(super) fn forget(&mut self, group: &mut Group) -> Result<(), StoreError> {
        if self.store.is_none() {
            return Ok(());
        }
        let silent = self.shared.known.learning.lock().silent(&self.state, now());
        for names in silent.chunks(MAX_BATCH) {
            // What is refused, because its tenant changes too fast, is silent the next time as well.
            let change = Change::RemoveNames { names: names.to_vec(), ignore_missing: true };
            if self.change_unasked(change, group)?.is_ok() {
                self.shared.known.learning.lock().forgotten(names.len());
            }
        }
        Ok(())
    }

    /// A change that nobody asked for: nobody waits for an answer, but what is refused is known at once.
    fn change_unasked(&mut self, change: Change, group: &mut Group) -> Result<Result<(), Refusal>, StoreError> {
        let (what, detail) = summary(&change);
        // Hosts come and go as they like; links do not.
        match &change {
            Change::Learn { .. } | Change::RemoveNames { .. } => {
                tracing::debug!(what, detail, "switches found what is not as it was");
            }
            // Nor do those who flap at will fill the log.
            _ => {
                if let Some(unsaid) = self.found_lines.pass() {
                    tracing::info!(what, detail, unsaid, "switches found what is not as it was");
                }
            }
        }
        let (reply, mut answer) = oneshot::channel();
        self.decide(Input::Change { change, reply }, group)?;
        Ok(match answer.try_recv() {
            Ok(Err(refusal)) => Err(refusal),
            _ => Ok(()),
        })
    }
}
