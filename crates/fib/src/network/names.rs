//! Adding, moving and removing names.

use super::table::Table;
use super::{Draft, Effects, Network, NetworkError};
use crate::action::PortId;
use crate::codec::{PART_BYTES, entry_bytes};
use crate::designs::{Key, ViewUpdates};
use crate::durable::Row;
use crate::messages::{Body, ExactUpdate, ExactValue, Held};
use crate::name::{Name, NameKind};
use crate::rib::Attachment;
use crate::topology::NodeId;
use lookup::hash::Digest;
use lookup::traits::{Crowd, InsertError};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

/// A tenant may have this many times as many names in a crowded part as there is room left for all. So one tenant takes
/// at most two thirds of the part, ten tenants together leave a twentieth of it, and a later tenant still has room.
/// Source: the dynamic thresholds of Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet
/// switches".
const TIMES_ROOM: usize = 2;

/// The phase in which the places that a name left remove it.
const LAST: u32 = u32::MAX;

/// The old and the new place of a name.
struct Step {
    name: Name,
    digest: Digest,
    before: Option<Attachment>,
    after: Option<Attachment>,
}

impl Step {
    fn key(&self) -> Key<'_> {
        Key { digest: self.digest, name: &self.name }
    }
}

/// Entries put into and removed from an exact table, each with the difference that it makes to the table's digest.
struct ExactChange<V>(Vec<(Name, Option<V>, u64)>);

impl<V: ExactValue> ExactChange<V> {
    fn record(&mut self, name: &Name, before: Option<V>, after: Option<V>) {
        if before != after {
            let share = |value: Option<V>| value.map_or(0, |value| value.share(name));
            self.0.push((name.clone(), after, share(before) ^ share(after)));
        }
    }

    /// Advances `held` to later versions, and returns the updates, of bounded size each.
    fn advance(self, kind: NameKind, held: &mut Held) -> Vec<ExactUpdate<V>> {
        let mut updates = Vec::new();
        let mut entries = self.0.into_iter().peekable();
        while entries.peek().is_some() {
            let (mut put, mut remove, mut bytes) = (Vec::new(), Vec::new(), 0);
            let from = held.version;
            while let Some((name, after, difference)) = entries.next_if(|_| bytes < PART_BYTES) {
                bytes += entry_bytes(&name);
                held.digest ^= difference;
                match after {
                    Some(value) => put.push((name, value)),
                    None => remove.push(name),
                }
            }
            held.version += 1;
            let (to, digest) = (held.version, held.digest);
            updates.push(ExactUpdate::Delta { kind, from, to, digest, put, remove });
        }
        updates
    }
}

/// The digest of an exact table with these entries.
pub(super) fn digest_of<V: ExactValue>(entries: impl Iterator<Item = (Name, V)>) -> u64 {
    entries.fold(0, |digest, (name, value)| digest ^ value.share(&name))
}

impl Network {
    /// Adds a new name.
    /// # Errors
    /// [`NetworkError::NameExists`], and those of [`Network::set_name`]; unchanged.
    pub fn add_name(&mut self, name: &Name, attachment: Attachment) -> Result<Effects, NetworkError> {
        if self.rib.get(name).is_some() {
            return Err(NetworkError::NameExists { name: name.clone() });
        }
        self.set_name(name, attachment)
    }

    /// Adds a name, or moves it, or changes its address or tenant.
    /// # Errors
    /// [`NetworkError::NoHostPort`], [`NetworkError::TenantNotHeld`], [`NetworkError::Rib`],
    /// [`NetworkError::Graph`]; unchanged.
    pub fn set_name(&mut self, name: &Name, attachment: Attachment) -> Result<Effects, NetworkError> {
        let step = self.step(name, Some(attachment))?;
        self.run(vec![step])
    }

    /// Removes a name: first it is invalid at the gateways, then dropped everywhere.
    /// # Errors
    /// [`NetworkError::UnknownName`].
    pub fn remove_name(&mut self, name: &Name) -> Result<Effects, NetworkError> {
        let step = self.step(name, None)?;
        self.run(vec![step])
    }

    /// Whether a batch of `n` names changes most of some table, so that each attached switch is sent nearly all of its
    /// FIB.
    pub fn is_bulk(&self, n: usize) -> bool {
        self.tables.values().any(|table| table.control.is_bulk(n))
    }

    /// As [`Network::set_name`] for many, all or none; of equal names the last counts.
    ///
    /// A large batch arranges and sends each table once: whole, or the shards that change.
    /// # Errors
    /// [`NetworkError::Batch`] names the first item refused; unchanged.
    pub fn put_names(&mut self, names: &[(Name, Attachment)]) -> Result<Effects, NetworkError> {
        let last: HashMap<&Name, usize> = names.iter().enumerate().map(|(index, (name, _))| (name, index)).collect();
        // Names and addresses of the batch may also conflict with each other.
        let new = last.keys().filter(|name| self.rib.get(name).is_none()).count();
        let (got, max) = (self.rib.len() + new, self.settings.max_names);
        if got > max {
            return Err(crate::rib::RibError::TooManyNames { got, max }.into());
        }
        let mut steps = Vec::with_capacity(last.len());
        let (mut digests, mut ips) = (HashSet::new(), HashMap::new());
        for (index, (name, attachment)) in names.iter().enumerate() {
            let step = self.step(name, Some(*attachment)).map_err(|source| batch(index, source))?;
            if last.get(name) != Some(&index) {
                continue;
            }
            if !digests.insert(step.digest) {
                let source = crate::rib::RibError::DigestCollision {
                    name: name.clone(),
                    tenant: attachment.tenant,
                    digest: step.digest,
                };
                return Err(batch(index, source.into()));
            }
            if let Some(ip) = attachment.ip
                && let Some(holder) = ips.insert(ip, index)
            {
                let source = crate::rib::RibError::IpInUse { ip, holder: names[holder].0.clone() };
                return Err(batch(index, source.into()));
            }
            steps.push(step);
        }
        drop((last, digests, ips));
        self.run(steps)
    }

    /// As [`Network::remove_name`] for many, all or none; a name named twice counts once.
    /// # Errors
    /// [`NetworkError::Batch`] names the first item refused; unchanged.
    pub fn remove_names(&mut self, names: &[Name]) -> Result<Effects, NetworkError> {
        let mut steps = BTreeMap::new();
        for (index, name) in names.iter().enumerate() {
            let step = self.step(name, None).map_err(|source| batch(index, source))?;
            steps.insert(name, step);
        }
        self.run(steps.into_values().collect())
    }

    /// Removes names and adds, moves or changes others, all or none: one change. An address may pass from one of them to another. What
    /// is put is not removed.
    ///
    /// Cost: as [`Network::put_names`] and [`Network::remove_names`].
    /// # Errors
    /// [`NetworkError::Batch`] names the first item refused, of those to be removed and then those to be put; unchanged.
    pub fn change_names(&mut self, remove: &[Name], put: &[(Name, Attachment)]) -> Result<Effects, NetworkError> {
        let mut after: HashMap<&Name, Option<IpAddr>> = put.iter().map(|(name, at)| (name, at.ip)).collect();
        let mut steps = Vec::with_capacity(remove.len() + put.len());
        for (index, name) in remove.iter().enumerate() {
            if after.contains_key(name) {
                continue;
            }
            steps.push(self.step(name, None).map_err(|source| batch(index, source))?);
            after.insert(name, None);
        }
        let n_new = put.iter().filter(|(name, _)| self.rib.get(name).is_none()).count();
        let (got, max) = (self.rib.len() - steps.len() + n_new, self.settings.max_names);
        if n_new > 0 && got > max {
            return Err(crate::rib::RibError::TooManyNames { got, max }.into());
        }
        let (mut digests, mut ips) = (HashSet::new(), HashMap::new());
        for (index, (name, attachment)) in put.iter().enumerate() {
            let step = (|| {
                self.check_place(attachment)?;
                let gives_up = |holder: &Name| after.get(holder).is_some_and(|ip| *ip != attachment.ip);
                let digest = self.rib.check_among(name, attachment, gives_up)?;
                if !digests.insert(digest) {
                    let (name, tenant) = (name.clone(), attachment.tenant);
                    return Err(crate::rib::RibError::DigestCollision { name, tenant, digest }.into());
                }
                if let Some(ip) = attachment.ip
                    && let Some(holder) = ips.insert(ip, name)
                {
                    return Err(crate::rib::RibError::IpInUse { ip, holder: holder.clone() }.into());
                }
                Ok(Step { name: name.clone(), digest, before: self.rib.get(name), after: Some(*attachment) })
            })();
            steps.push(step.map_err(|source: NetworkError| batch(remove.len() + index, source))?);
        }
        drop((after, digests, ips));
        self.run(steps)
    }

    /// Whether names may be there.
    fn check_place(&self, attachment: &Attachment) -> Result<(), NetworkError> {
        let end = attachment.end();
        let switch = self.switches.get(&end.node);
        let switch = switch.ok_or(crate::topology::TopologyError::UnknownNode { id: end.node })?;
        if !self.host_ports.contains(&end) {
            return Err(NetworkError::NoHostPort { end });
        }
        if !switch.tenants.holds(attachment.tenant) {
            return Err(NetworkError::TenantNotHeld { id: end.node, tenant: attachment.tenant });
        }
        Ok(())
    }

    /// Checks one change of a name; nothing is changed.
    fn step(&self, name: &Name, after: Option<Attachment>) -> Result<Step, NetworkError> {
        let before = self.rib.get(name);
        let digest = match &after {
            None if before.is_none() => return Err(NetworkError::UnknownName { name: name.clone() }),
            None => self.rib.digest(name),
            Some(attachment) => {
                self.check_place(attachment)?;
                self.rib.check(name, attachment)?
            }
        };
        Ok(Step { name: name.clone(), digest, before, after })
    }

    /// Applies checked changes: graphs first, since only they may still fail.
    fn run(&mut self, mut steps: Vec<Step>) -> Result<Effects, NetworkError> {
        steps.retain(|step| step.before != step.after);
        if steps.is_empty() {
            return Ok(Effects { change: self.change, ..Effects::default() });
        }
        let mut fibs = Draft::default();
        self.change_graphs(&steps, &mut fibs)?;
        // What gives up its address does so before another name gets it.
        for Step { name, before, after, .. } in &steps {
            if let (Some(before), Some(after)) = (before, after)
                && before.ip.is_some()
                && before.ip != after.ip
            {
                self.rib.upsert(name, Attachment { ip: None, ..*before }).expect("the name is there");
            }
        }
        let mut draft = Draft::default();
        for step in &steps {
            if let Some(before) = &mut self.before_reading {
                before.entry(step.name.clone()).or_insert(step.before);
            }
            if let Some(changed) = &mut self.changed_since_rekey {
                changed.insert(step.name.clone());
            }
            match step.after {
                Some(attachment) => {
                    self.rib.upsert(&step.name, attachment).expect("the step was checked");
                    draft.row(Row::Name(step.name.clone(), attachment));
                }
                None => {
                    self.rib.remove(&step.name);
                    draft.rows.push(Row::delete_name(&step.name));
                }
            }
        }
        // Within a phase a switch learns of a local name before its FIB sends frames there.
        self.change_local(&steps, &mut draft);
        draft.outbox.append(&mut fibs.outbox);
        self.change_valid(&steps, &mut draft);
        Ok(self.finish(draft))
    }

    /// The names of every table, and the updates of its views.
    fn change_graphs(&mut self, steps: &[Step], draft: &mut Draft) -> Result<(), NetworkError> {
        let places: Vec<u32> =
            steps.iter().map(|step| step.after.map_or(0, |attachment| self.intern(attachment.end()))).collect();
        let mut tables = std::mem::take(&mut self.tables);
        let mut done = Vec::new();
        let mut outcome = Ok(());
        for (id, table) in &mut tables {
            done.push(*id);
            outcome = self.change_graph(*id, table, steps, &places, draft);
            if outcome.is_err() {
                break;
            }
        }
        if outcome.is_err() {
            for id in done {
                if let Some(table) = tables.get_mut(&id) {
                    self.undo(table, steps);
                }
            }
        }
        self.tables = tables;
        outcome
    }

    fn change_graph(
        &self,
        id: u32,
        table: &mut Table,
        steps: &[Step],
        places: &[u32],
        draft: &mut Draft,
    ) -> Result<(), NetworkError> {
        let holds = |attachment: &Option<Attachment>| attachment.is_some_and(|a| table.tenants.holds(a.tenant));
        let mut put = Vec::new();
        let mut remove = Vec::new();
        for (step, place) in steps.iter().zip(places) {
            if holds(&step.after) {
                put.push((step.key(), *place));
            } else if holds(&step.before) {
                remove.push(step.key());
            }
        }
        self.check_crowds(table, steps)?;
        let mut out = ViewUpdates::new();
        table.control.change(&put, &remove, &mut out).map_err(|error| blamed(error, steps))?;
        table.send(id, out, draft, |node| match steps {
            [step] => self.phase(step, node),
            _ => 1,
        });
        Ok(())
    }

    /// Refuses new names of a tenant that has most of a crowded part, to leave room for those of others.
    fn check_crowds(&self, table: &Table, steps: &[Step]) -> Result<(), NetworkError> {
        let holds = |attachment: Option<Attachment>| attachment.filter(|a| table.tenants.holds(a.tenant));
        let new: Vec<(&Step, u32)> = steps
            .iter()
            .filter(|step| holds(step.before).is_none())
            .filter_map(|step| Some((step, holds(step.after)?.tenant)))
            .collect();
        let keys: Vec<Key<'_>> = new.iter().map(|(step, _)| step.key()).collect();
        for Crowd { part, n_names, max } in table.control.crowds(&keys) {
            let mut of_tenants = self.rib.tenants_in(part.span());
            let here = new.iter().filter(|(step, _)| part.span().contains(&(step.digest.0 >> 32)));
            let tenants: Vec<u32> = here.map(|(_, tenant)| *tenant).collect();
            tenants.iter().for_each(|tenant| *of_tenants.entry(*tenant).or_default() += 1);
            let most = max.saturating_sub(n_names) * TIMES_ROOM;
            let over = tenants.into_iter().map(|tenant| (tenant, of_tenants[&tenant])).find(|&(_, n)| n > most);
            if let Some((tenant, n_names)) = over {
                return Err(NetworkError::TenantCrowds { tenant, part, n_names, most });
            }
        }
        Ok(())
    }

    /// The phase in which a switch is sent a single name's change.
    fn phase(&self, step: &Step, node: NodeId) -> u32 {
        match (step.before, step.after) {
            // A moved name is installed from its destination outwards.
            (Some(_), Some(after)) => self.routes.most_hops(node, after.switch).unwrap_or(LAST - 1),
            (None, Some(after)) => u32::from(node != after.switch),
            (Some(before), None) => 1 + u32::from(node == before.switch),
            (None, None) => 0,
        }
    }

    /// Restores a table to the state before `steps`. The next mutation updates its views.
    fn undo(&self, table: &mut Table, steps: &[Step]) {
        let (mut put, mut remove) = (Vec::new(), Vec::new());
        for step in steps {
            let place = step.before.filter(|before| table.tenants.holds(before.tenant));
            match place.and_then(|before| self.places.index.get(&self.place_of(before.end()))) {
                Some(place) => put.push((step.key(), *place)),
                None => remove.push(step.key()),
            }
        }
        table.control.undo(&put, &remove);
    }

    /// The exact tables of local names.
    fn change_local(&mut self, steps: &[Step], draft: &mut Draft) {
        let mut come: BTreeMap<NodeId, ExactChange<PortId>> = BTreeMap::new();
        let mut gone: BTreeMap<NodeId, ExactChange<PortId>> = BTreeMap::new();
        let none = || ExactChange(Vec::new());
        for step in steps {
            let port_at = |attachment: Option<Attachment>, node| {
                attachment.filter(|attachment| attachment.switch == node).map(|attachment| attachment.port)
            };
            if let Some(after) = step.after {
                let before = port_at(step.before, after.switch);
                come.entry(after.switch).or_insert_with(none).record(&step.name, before, Some(after.port));
            }
            if let Some(before) = step.before
                && port_at(step.after, before.switch).is_none()
            {
                gone.entry(before.switch).or_insert_with(none).record(&step.name, Some(before.port), None);
            }
        }
        // Added before frames are sent there, removed after all other switches have the name's new place.
        for (phase, changes) in [(0, come), (LAST, gone)] {
            for (node, change) in changes {
                let Some(switch) = self.switches.get_mut(&node) else { continue };
                let updates = change.advance(self.settings.kind, &mut switch.local);
                if updates.is_empty() {
                    continue;
                }
                if switch.attached {
                    updates.into_iter().for_each(|update| draft.send(phase, node, Body::Local(update)));
                }
                draft.row(self.switch_row(node));
            }
        }
    }

    /// The exact tables of valid names, and the gateways that hold them.
    fn change_valid(&mut self, steps: &[Step], draft: &mut Draft) {
        let is_gateway = |node: NodeId| self.ports_of(node).next().is_some();
        let gateways: Vec<(NodeId, u32)> = self
            .switches
            .iter()
            .filter(|(node, switch)| switch.attached && is_gateway(**node))
            .map(|(node, switch)| (*node, switch.table))
            .collect();
        for (id, table) in &mut self.tables {
            let (mut come, mut gone) = (ExactChange(Vec::new()), ExactChange(Vec::new()));
            for step in steps {
                let ip = |attachment: Option<Attachment>| -> Option<Option<IpAddr>> {
                    attachment.filter(|attachment| table.tenants.holds(attachment.tenant)).map(|held| held.ip)
                };
                let (before, after) = (ip(step.before), ip(step.after));
                let change = if after.is_some() { &mut come } else { &mut gone };
                change.record(&step.name, before, after);
            }
            let version = table.valid.version;
            // Invalid first, valid last.
            for (phase, change) in [(0, gone), (LAST, come)] {
                for update in change.advance(self.settings.kind, &mut table.valid) {
                    for (node, _) in gateways.iter().filter(|(_, of)| of == id) {
                        draft.send(phase, *node, Body::Valid(update.clone()));
                    }
                }
            }
            if table.valid.version != version {
                draft.row(table.row(*id));
            }
        }
    }
}

/// An error of a graph, with the tenant whose names caused it: the one with the most names in the crowded part.
fn blamed(error: InsertError, steps: &[Step]) -> NetworkError {
    let InsertError::Crowded { part, .. } = error else { return error.into() };
    let mut n_names: BTreeMap<u32, usize> = BTreeMap::new();
    for step in steps.iter().filter(|step| part.span().contains(&(step.digest.0 >> 32))) {
        if let Some(after) = step.after {
            *n_names.entry(after.tenant).or_default() += 1;
        }
    }
    match n_names.into_iter().max_by_key(|&(_, n)| n) {
        Some((tenant, _)) => NetworkError::Crowded { tenant, source: error },
        None => error.into(),
    }
}

fn batch(index: usize, source: NetworkError) -> NetworkError {
    NetworkError::Batch { index, source: Box::new(source) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_changes_come_in_a_chain_of_versions() {
        let mut change = ExactChange(Vec::new());
        let mut table: HashMap<Name, PortId> = HashMap::new();
        for i in 0..100_000u64 {
            let name = Name::from_bytes(NameKind::Mac, &i.to_be_bytes()[2..]).unwrap();
            let (before, after) = if i % 3 == 0 { (Some(PortId(1)), None) } else { (None, Some(PortId(2))) };
            before.into_iter().for_each(|port| _ = table.insert(name.clone(), port));
            change.record(&name, before, after);
        }
        let entries: Vec<_> = table.iter().map(|(name, port)| (name.clone(), *port)).collect();
        let mut held = Held { version: 7, digest: digest_of(entries.iter().cloned()) };
        let mut at = 7;
        let updates = change.advance(NameKind::Mac, &mut held);
        assert!(updates.len() > 1);
        for update in updates {
            let ExactUpdate::Delta { from, to, put, remove, digest, .. } = update else {
                panic!("a change is no load")
            };
            assert_eq!((from, to), (at, at + 1));
            at = to;
            table.extend(put);
            remove.iter().for_each(|name| _ = table.remove(name));
            let entries: Vec<_> = table.iter().map(|(name, port)| (name.clone(), *port)).collect();
            assert_eq!(digest, digest_of(entries.iter().cloned()));
        }
        assert_eq!((held.version, table.len()), (at, 66_666));
    }
}
