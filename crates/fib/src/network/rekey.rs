//! A new hash key, prepared while changes continue.
//!
//! ```text
//! begin_rekey ─► copy_names, in turns ─► Rekey::build, on any thread ─► finish_rekey
//!      └── names that change from here on are noted, and changed in the new tables at the end ──┘
//! ```
//! Cost beside changes: the copying, some 0.2 µs a name in turns of any length; at the end, the names that changed
//! meanwhile and the rows of the new tables. The index of digests and the skeletons are built beside: 0.2 s per million
//! names and table on one core. Memory: the new tables, the copy of the names, and 12 bytes a name.

use super::table::Table;
use super::{Draft, Effects, Network, NetworkError, Settings};
use crate::designs::{FibControl, Key, Spec, ViewUpdates};
use crate::durable::{RowChange, Tenants};
use crate::messages::Report;
use crate::name::Name;
use crate::rib::Rehashed;
#[cfg(doc)]
use crate::rib::RibError;
use crate::topology::NodeId;
use lookup::hash::{Digest, SecretKey};
use std::collections::BTreeSet;

/// The number of a name that was copied and has gone since: its number was copied again, with another name.
const GONE: u32 = u32::MAX;

/// A name as it was copied.
struct Copied {
    name: Name,
    /// In the RIB, or [`GONE`].
    number: u32,
    place: u32,
    tenant: u32,
}

/// The names copied so far for tables under another key.
#[must_use]
pub struct Rekey {
    settings: Settings,
    tables: Vec<(u32, Tenants, Spec)>,
    /// In order.
    names: Vec<Copied>,
    /// The place of a number in `names`, or [`GONE`].
    places: Vec<u32>,
}

/// Tables under another key, of the names when they were copied.
#[must_use]
pub struct Rekeyed {
    settings: Settings,
    rehashed: Rehashed,
    tables: Vec<(u32, Spec, Box<dyn FibControl>)>,
    names: Vec<Copied>,
}

/// What became of a rekey.
#[must_use]
pub struct Replaced {
    /// The change. It has rows and no messages.
    pub effects: Effects,
    /// The switches that were attached, and what each has once everything sent to it took effect. They are detached:
    /// [`Network::attach_lacking`] with this says what they lack, which is the new table.
    pub attached: Vec<(NodeId, Report)>,
    /// The old tables. To drop them takes time in proportion to the names, and may be done elsewhere.
    pub discarded: Box<dyn Send>,
}

impl Rekey {
    /// Builds the tables, on `threads` threads.
    /// # Errors
    /// [`DigestCollision`](RibError::DigestCollision) when two names collide under this key (try another),
    /// [`NetworkError::Graph`].
    pub fn build(self, threads: usize) -> Result<Rekeyed, NetworkError> {
        let Rekey { settings, tables, mut names, places } = self;
        drop(places);
        names.retain(|copied| copied.number != GONE);
        let copied = names.iter().map(|copied| (copied.number, &copied.name, copied.tenant));
        let rehashed = Rehashed::new(settings.hasher(), copied)?;
        let mut built = Vec::with_capacity(tables.len());
        for (id, tenants, spec) in tables {
            let held = |each: &mut dyn FnMut(Key<'_>, u32)| {
                for Copied { name, number, place, .. } in names.iter().filter(|copied| tenants.holds(copied.tenant)) {
                    each(Key { digest: Digest(rehashed.digest(*number)), name }, *place);
                }
            };
            let control = spec.control(&held, threads)?;
            built.push((id, spec, control));
        }
        Ok(Rekeyed { settings, rehashed, tables: built, names })
    }
}

impl Network {
    /// Begins to change the hash key. One rekey at a time; [`Network::give_up_rekey`] ends it before its end.
    pub fn begin_rekey(&mut self, key: SecretKey) -> Rekey {
        self.changed_since_rekey = Some(BTreeSet::new());
        let settings = Settings { key, ..self.settings.clone() };
        let table = |(id, table): (&u32, &Table)| {
            let spec = Spec { key: settings.key.clone(), ..table.spec.clone() };
            (*id, table.tenants.clone(), spec)
        };
        let tables = self.tables.iter().map(table).collect();
        Rekey { settings, tables, names: Vec::new(), places: Vec::new() }
    }

    /// Copies at most `n_names` names more. Whether all are copied.
    pub fn copy_names(&self, rekey: &mut Rekey, n_names: usize) -> bool {
        let Rekey { names, places, .. } = rekey;
        let after = names.last().map(|copied| copied.name.clone());
        let n_before = names.len();
        for (number, name, attachment) in self.rib.numbered(after.as_ref()).take(n_names) {
            let at = number as usize;
            if places.len() <= at {
                places.resize(at + 1, GONE);
            }
            if let Some(gone) = names.get_mut(places[at] as usize) {
                gone.number = GONE;
            }
            places[at] = names.len() as u32;
            let place = self.places.index[&self.place_of(attachment.end())];
            names.push(Copied { name, number, place, tenant: attachment.tenant });
        }
        names.len() - n_before < n_names
    }

    /// No rekey is in progress any more.
    pub fn give_up_rekey(&mut self) {
        self.changed_since_rekey = None;
    }

    /// Replaces all tables by those under the new key. Switches serve their old tables until they have the new ones.
    /// # Errors
    /// [`NetworkError::Overtaken`] when tables came or went since [`Network::begin_rekey`],
    /// [`DigestCollision`](RibError::DigestCollision), [`NetworkError::Graph`]; unchanged.
    pub fn finish_rekey(&mut self, rekeyed: Rekeyed) -> Result<Replaced, NetworkError> {
        let changed = self.changed_since_rekey.take().unwrap_or_default();
        let Rekeyed { settings, mut rehashed, mut tables, names } = rekeyed;
        if !self.tables.keys().eq(tables.iter().map(|(id, ..)| id)) {
            return Err(NetworkError::Overtaken);
        }
        let before = |name: &Name| names.binary_search_by(|copied| copied.name.cmp(name)).ok().map(|at| &names[at]);
        for name in &changed {
            if let Some(copied) = before(name) {
                rehashed.remove(name, copied.number);
            }
        }
        for name in &changed {
            self.rib.rehash(&mut rehashed, name)?;
        }
        for (id, _, control) in &mut tables {
            let tenants = &self.tables[id].tenants;
            let (mut put, mut remove) = (Vec::new(), Vec::new());
            for name in &changed {
                let key = Key { digest: settings.hasher().digest(name.as_bytes()), name };
                match self.rib.get(name).filter(|now| tenants.holds(now.tenant)) {
                    Some(now) => put.push((key, self.places.index[&self.place_of(now.end())])),
                    None if before(name).is_some_and(|copied| tenants.holds(copied.tenant)) => remove.push(key),
                    None => {}
                }
            }
            control.change(&put, &remove, &mut ViewUpdates::new())?;
        }
        // From here on nothing fails.
        let nodes: Vec<NodeId> = self.switches.keys().copied().collect();
        let attached: Vec<(NodeId, Report)> =
            nodes.iter().filter_map(|node| Some((*node, self.held(*node)?))).collect();
        self.rib.rekey(rehashed);
        self.settings = settings;
        let mut draft = Draft::default();
        let mut discarded = Vec::new();
        for (old_id, spec, control) in tables {
            let Some(old) = self.tables.remove(&old_id) else { continue };
            self.keep_rebuilt(&old);
            let table = Table::new(old.tenants.clone(), spec, control, old.valid);
            draft.rows.push(old.row(old_id).delete());
            draft.rows.extend(old.all_rows(old_id).map(RowChange::delete));
            discarded.push(old);
            let id = self.next_table;
            self.next_table += 1;
            draft.row(table.row(id));
            draft.rows.extend(table.all_rows(id));
            self.tables.insert(id, table);
            for node in &nodes {
                if let Some(switch) = self.switches.get_mut(node).filter(|switch| switch.table == old_id) {
                    (switch.table, switch.attached) = (id, false);
                    draft.row(self.switch_row(*node));
                }
            }
        }
        let discarded = Box::new((discarded, names));
        Ok(Replaced { effects: self.finish(draft), attached, discarded })
    }

    /// Changes the hash key at once, with the messages for the attached switches.
    ///
    /// About 0.2 s per million names and table, and as much for each attached switch.
    /// # Errors
    /// [`DigestCollision`](RibError::DigestCollision) when two names collide under this key too (try another),
    /// [`NetworkError::Graph`].
    pub fn rekey(&mut self, key: SecretKey) -> Result<Effects, NetworkError> {
        let mut rekey = self.begin_rekey(key);
        self.copy_names(&mut rekey, usize::MAX);
        let replaced = rekey.build(self.settings.threads).and_then(|rekeyed| self.finish_rekey(rekeyed));
        self.give_up_rekey();
        let Replaced { mut effects, attached, .. } = replaced?;
        let mut messages = Vec::new();
        for (node, report) in attached {
            messages.extend(self.attach(node, &report)?.into_iter().map(|message| (node, message)));
        }
        if !messages.is_empty() {
            effects.phases.push(messages);
        }
        effects.durable.extend(self.take_view_rows());
        Ok(effects)
    }
}
