//! A switch's side of the southbound protocol: messages in, a FIB and exact tables out. Pure.
//!
//! The daemon of a switch wraps a [`Replica`]: it hands over bytes ([`Replica::receive`]), sends back the acknowledgement
//! or, after an error that [`ReplicaError::needs_resync`], the [`Replica::report`]. The replica is the single writer of
//! the FIB; the other tables that the fast path reads are behind [`Tables`].
//!
//! Every message takes effect whole, or is refused and leaves what is served unchanged (of several updates in one
//! message, those before the refused one take effect). A new FIB or a whole exact table is collected from its parts
//! while the old one serves, until the last part has come. A duplicate is acknowledged and changes nothing.
//!
//! The names of a network are of one kind: the first table header or exact table says which, and all later ones must agree. Otherwise a saved image could hold names that it cannot be read back with.
//!
//! A saved image is the messages that bring an empty replica to this state, with a checksum: see [`Replica::save`].

use crate::action::{Action, ActionId, PortId};
use crate::codec::{DecodeError, PART_BYTES, actions_digest, entry_bytes};
use crate::designs::{Burst, NameList, Spec, Table, TableError};
use crate::messages::{Body, ExactUpdate, ExactValue, Held, Message, Report, TableHeader};
use crate::mistakes::{Mistake, mistaken};
use crate::name::{Name, NameKind};
use crate::topology::NodeId;
use lookup::hash::Hasher;
use std::collections::HashSet;
use std::net::IpAddr;

mod growth;
mod saved;
mod tables;
mod verify;
pub use saved::{Checksum, ReadError};
pub use tables::{Exact, Meaning, MemoryTables, Tables};
pub use verify::Verified;

/// The effect of an accepted message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// False for a duplicate, which is acknowledged like a new message.
    pub applied: bool,
    /// What to acknowledge.
    pub change: u64,
}

/// The id of a table that the controller does not know of.
const NO_TABLE: u32 = 0;

/// Bounds on what a controller can make a switch hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of the tables together: the FIB, and the exact tables as they are in messages. While a new table replaces an
    /// old one, both are in memory, and the new one's messages with them.
    pub max_table_bytes: usize,
    /// Names of one exact table.
    pub max_names: usize,
}

impl Default for Limits {
    /// 4 GiB and 64 million names.
    fn default() -> Limits {
        Limits { max_table_bytes: 4 << 30, max_names: 64 << 20 }
    }
}

/// Parts of an image or exact table, as they arrive.
#[derive(Debug, Default)]
struct Parts {
    id: (u64, u64),
    next: u32,
}

impl Parts {
    /// Accepts `part`, or returns which is missing. True for the last.
    fn accept(&mut self, id: (u64, u64), part: u32, parts: u32) -> Result<bool, ReplicaError> {
        if part == 0 {
            *self = Parts { id, next: 0 };
        }
        if self.id != id || self.next != part {
            let expected = if self.id == id { self.next } else { 0 };
            *self = Parts::default();
            return Err(ReplicaError::MissingPart { got: part, expected });
        }
        self.next += 1;
        Ok(self.next == parts)
    }
}

/// An exact table as the protocol sees it. `L` are entries on their way.
#[derive(Debug)]
struct ExactState<L> {
    held: Held,
    n_names: usize,
    /// Bytes of the names in messages.
    bytes: usize,
    parts: Parts,
    loading: Option<Loading<L>>,
}

/// A whole table on its way, with its digest and its size so far.
#[derive(Debug)]
struct Loading<L> {
    entries: L,
    n_names: usize,
    bytes: usize,
    digest: u64,
}

impl<L> Default for ExactState<L> {
    fn default() -> Self {
        ExactState { held: Held::default(), n_names: 0, bytes: 0, parts: Parts::default(), loading: None }
    }
}

impl<L> ExactState<L> {
    /// Forgets the version and not what is served, which from now on has a version that no controller reaches. So only a
    /// whole table replaces it, even an empty one, and until then the report says that it is not the controller's.
    fn forget(&mut self) {
        match self.n_names {
            0 => self.held = Held::default(),
            _ => self.held.version = u64::MAX,
        }
    }

    fn apply<V: ExactValue>(
        &mut self,
        table: &mut impl Exact<V, Loading = L>,
        update: ExactUpdate<V>,
        max_names: usize,
        max_bytes: usize,
    ) -> Result<bool, ReplicaError> {
        let too_large = |got| ReplicaError::TooLarge { got, max: max_bytes };
        match update {
            ExactUpdate::Load { version, digest, part, parts, entries, .. } => {
                if (Held { version, digest }) == self.held {
                    return Ok(false);
                }
                if has_twice(entries.iter().map(|(name, _)| name)) {
                    (self.loading, self.parts) = (None, Parts::default());
                    return Err(ReplicaError::NameTwice);
                }
                let bytes: usize = entries.iter().map(|(name, _)| entry_bytes(name)).sum();
                if part == 0 {
                    // The parts are of one size, except the last.
                    let at_least = bytes.saturating_mul(parts.saturating_sub(1) as usize).max(bytes);
                    if at_least > max_bytes {
                        (self.loading, self.parts) = (None, Parts::default());
                        return Err(too_large(at_least));
                    }
                    let n_names = entries.len().saturating_mul(parts as usize).min(max_names);
                    self.loading = Some(Loading { entries: table.begin(n_names), n_names: 0, bytes: 0, digest: 0 });
                }
                let last = self.parts.accept((version, digest), part, parts).inspect_err(|_| self.loading = None)?;
                let Some(loading) = &mut self.loading else {
                    return Err(ReplicaError::MissingPart { got: part, expected: 0 });
                };
                loading.n_names += entries.len();
                loading.bytes += bytes;
                if loading.bytes > max_bytes {
                    let got = loading.bytes;
                    (self.loading, self.parts) = (None, Parts::default());
                    return Err(too_large(got));
                }
                if loading.n_names > max_names {
                    let got = loading.n_names;
                    (self.loading, self.parts) = (None, Parts::default());
                    return Err(ReplicaError::TooManyNames { got, max: max_names });
                }
                loading.digest = entries.iter().fold(loading.digest, |sum, (name, value)| sum ^ value.share(name));
                table.load(&mut loading.entries, entries);
                if last && let Some(Loading { entries, n_names, bytes, digest: got }) = self.loading.take() {
                    if got != digest {
                        return Err(ReplicaError::ExactDigest { got, expected: digest });
                    }
                    table.replace(entries);
                    (self.held, self.n_names, self.bytes) = (Held { version, digest }, n_names, bytes);
                }
                Ok(true)
            }
            ExactUpdate::Delta { from, to, digest, put, remove, .. } => {
                if self.held.version == u64::MAX {
                    return Err(ReplicaError::ExactGap { current: self.held.version, from });
                }
                if to <= self.held.version {
                    return Ok(false);
                }
                if from != self.held.version {
                    return Err(ReplicaError::ExactGap { current: self.held.version, from });
                }
                // The digest is checked before anything is stored.
                let names = put.iter().map(|(name, _)| name).chain(&remove);
                if has_twice(names.clone()) {
                    return Err(ReplicaError::NameTwice);
                }
                let mut bytes = self.bytes + put.iter().map(|(name, _)| entry_bytes(name)).sum::<usize>();
                let gone: Vec<u64> = names
                    .filter_map(|name| {
                        let share = table.get(name)?.share(name);
                        bytes = bytes.saturating_sub(entry_bytes(name));
                        Some(share)
                    })
                    .collect();
                let n_names = self.n_names + put.len() - gone.len().min(self.n_names);
                if n_names > max_names {
                    return Err(ReplicaError::TooManyNames { got: n_names, max: max_names });
                }
                if bytes > max_bytes && bytes > self.bytes {
                    return Err(too_large(bytes));
                }
                let come = put.iter().map(|(name, value)| value.share(name));
                let got = gone.into_iter().chain(come).fold(self.held.digest, |sum, share| sum ^ share);
                if got != digest {
                    return Err(ReplicaError::ExactDigest { got, expected: digest });
                }
                remove.iter().for_each(|name| table.remove(name));
                put.into_iter().for_each(|(name, value)| table.put(name, value));
                (self.held, self.n_names, self.bytes) = (Held { version: to, digest }, n_names, bytes);
                Ok(true)
            }
        }
    }
}

fn has_twice<'a>(mut names: impl Iterator<Item = &'a Name>) -> bool {
    let (Some(first), Some(second)) = (names.next(), names.next()) else { return false };
    let mut seen = HashSet::from([first]);
    !std::iter::once(second).chain(names).all(|name| seen.insert(name))
}

/// A controller sends version 0 as long as cells may stand that have another meaning.
fn meaning(actions: &[Action], held: Held) -> Meaning<'_> {
    Meaning { actions, is_known: held.version > 0 }
}

/// The state of a switch, and how messages change it.
pub struct Replica<T: Tables> {
    limits: Limits,
    cluster: u64,
    term: u64,
    node: Option<NodeId>,
    change: u64,
    /// Kind of all names, once a message said it.
    kind: Option<NameKind>,
    /// Header of the FIB that is served.
    header: Option<TableHeader>,
    fib: Option<Box<dyn Table>>,
    /// See [`Replica::fib_at_most`].
    fib_most: Option<usize>,
    /// Parts that came whole for FIBs that were replaced, and as those that replaced them.
    parts_before: u64,
    hasher: Option<Hasher>,
    /// Header of a FIB whose image is on its way.
    next: Option<TableHeader>,
    image: Vec<u8>,
    image_parts: Parts,
    actions: Vec<Action>,
    actions_held: Held,
    valid: ExactState<<T::Valid as Exact<Option<IpAddr>>>::Loading>,
    local: ExactState<<T::Local as Exact<PortId>>::Loading>,
    valid_held: bool,
    /// Whether the FIB has other words than its digests say, and no other has come since.
    is_damaged: bool,
    /// Whether id and versions mean nothing until a table header resets them.
    must_start_over: bool,
    tables: T,
}

impl<T: Tables> Replica<T> {
    /// The network that it is of; 0 as long as nothing was received.
    pub fn cluster(&self) -> u64 {
        self.cluster
    }

    /// A replica that holds nothing: it drops everything and reports so.
    pub fn new(limits: Limits, tables: T) -> Replica<T> {
        Replica {
            limits,
            cluster: 0,
            term: 0,
            node: None,
            change: 0,
            kind: None,
            header: None,
            fib: None,
            fib_most: None,
            parts_before: 0,
            hasher: None,
            next: None,
            image: Vec::new(),
            image_parts: Parts::default(),
            actions: vec![Action::Drop],
            actions_held: Held::default(),
            valid: ExactState::default(),
            local: ExactState::default(),
            valid_held: false,
            is_damaged: false,
            must_start_over: false,
            tables,
        }
    }

    /// Applies one message.
    /// # Errors
    /// [`ReplicaError`]; what is served is unchanged.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Received, ReplicaError> {
        self.apply(Message::decode(bytes)?)
    }

    /// As [`Replica::receive`], for a message in this process.
    /// # Errors
    /// [`ReplicaError`]; what is served is unchanged.
    pub fn apply(&mut self, message: Message) -> Result<Received, ReplicaError> {
        let Message { cluster, term, node, change, body } = message;
        if self.cluster != 0 && cluster != self.cluster {
            return Err(ReplicaError::WrongCluster { got: cluster, expected: self.cluster });
        }
        if term < self.term {
            return Err(ReplicaError::StaleTerm { got: term, current: self.term });
        }
        match self.node {
            Some(expected) if expected != node && !self.must_start_over => {
                return Err(ReplicaError::WrongNode { got: node, expected });
            }
            _ => {}
        }
        let kind = match &body {
            Body::Table(header) => Some(header.spec.kind),
            Body::Valid(update) => Some(update.kind()),
            Body::Local(update) => Some(update.kind()),
            _ => None,
        };
        if let (Some(got), Some(expected)) = (kind, self.kind)
            && got != expected
        {
            return Err(ReplicaError::WrongKind { got, expected });
        }
        let applied = match body {
            Body::Table(header) => self.start_table(header)?,
            Body::Image { table, part, parts, bytes } => self.take_image(table, part, parts, &bytes)?,
            Body::Updates { table, updates } => {
                self.check_growth(updates.iter().map(<[u8]>::len).sum())?;
                let (n_applied, taken) = self.fib_of(table)?.apply_batch(&updates);
                // Updates before a refused one have taken effect.
                if n_applied > 0 {
                    self.tables.fib_changed();
                }
                taken?;
                n_applied > 0
            }
            Body::Resync { table, bytes } => {
                self.check_growth(bytes.len())?;
                self.fib_of(table)?.overwrite(&bytes)?;
                self.fib_most = None;
                self.tables.fib_changed();
                true
            }
            Body::Actions { version, actions } => {
                let held = Held { version, digest: actions_digest(&actions) };
                let new = version > self.actions_held.version
                    || version == self.actions_held.version && held != self.actions_held
                    || mistaken(Mistake::OldActionsTaken) && held != self.actions_held;
                if new {
                    self.tables.set_actions(&actions);
                    self.actions = actions;
                    self.actions_held = held;
                    if let Some(fib) = &mut self.fib {
                        self.tables.show_actions(meaning(&self.actions, held), &mut **fib);
                    }
                }
                new
            }
            Body::Valid(update) => {
                let fib_bytes = self.fib_at_most();
                let room = self.room(fib_bytes + self.local.bytes);
                self.valid.apply(self.tables.valid(), update, self.limits.max_names, room)?
            }
            Body::Local(update) => {
                let fib_bytes = self.fib_at_most();
                let room = self.room(fib_bytes + self.valid.bytes);
                self.local.apply(self.tables.local(), update, self.limits.max_names, room)?
            }
        };
        (self.cluster, self.term, self.node) = (cluster, term, Some(node));
        self.kind = self.kind.or(kind);
        self.change = self.change.max(change);
        let valid_held =
            self.header.as_ref().is_some_and(|header| header.gateway) && self.valid.held != Held::default();
        if std::mem::replace(&mut self.valid_held, valid_held) != valid_held {
            self.tables.valid_held(valid_held);
        }
        Ok(Received { applied, change })
    }

    /// Forgets which switch this is and which versions it has, not what it serves: the next report asks for everything.
    /// For a switch that was removed from the network and added again, and so got another id.
    pub fn start_over(&mut self) {
        self.must_start_over = true;
    }

    /// Whether a table is on its way whose last message has not come.
    pub fn is_loading(&self) -> bool {
        self.next.is_some() || !self.image.is_empty() || self.valid.loading.is_some() || self.local.loading.is_some()
    }

    fn start_table(&mut self, header: TableHeader) -> Result<bool, ReplicaError> {
        let same_cells = |served: &TableHeader| {
            let (spec, reset) = (Spec { max_names: header.spec.max_names, ..served.spec.clone() }, header.reset);
            TableHeader { gateway: header.gateway, spec, reset, ..served.clone() } == header
        };
        let is_served = self.header.as_ref().is_some_and(same_cells);
        if let Some(served) = self.header.as_mut().filter(|served| served.table == header.table && !is_served) {
            // It is served until it is replaced, but messages for this id are not for it.
            served.table = NO_TABLE;
            if !header.reset {
                // The controller considers it its own.
                return Err(ReplicaError::OtherTable { table: header.table });
            }
        }
        if header.reset {
            self.must_start_over = false;
            self.actions_held = Held::default();
            self.valid.forget();
            self.local.forget();
        }
        let header = TableHeader { reset: false, ..header };
        if !header.gateway && self.valid.held != Held::default() {
            self.tables.valid().replace_with(Vec::new());
            self.valid = ExactState::default();
        }
        Ok(match &mut self.header {
            Some(served) if is_served => {
                self.next = None;
                let changed = *served != header;
                *served = header;
                changed
            }
            _ => self.next.replace(header.clone()) != Some(header),
        })
    }

    fn take_image(&mut self, table: u32, part: u32, parts: u32, bytes: &[u8]) -> Result<bool, ReplicaError> {
        let header = match (&self.next, &self.header) {
            (Some(next), _) if next.table == table => next.clone(),
            (_, Some(served)) if served.table == table => served.clone(),
            _ => return Err(ReplicaError::UnknownTable { got: table, held: self.header.as_ref().map(|h| h.table) }),
        };
        if part == 0 {
            self.image.clear();
        }
        let last = self.image_parts.accept((u64::from(table), u64::from(parts)), part, parts)?;
        let max = self.room(self.valid.bytes + self.local.bytes);
        // The parts are of one size, except the last: so the first part says nearly how many bytes will come.
        let whole = if part == 0 { bytes.len().saturating_mul(parts.saturating_sub(1) as usize) } else { 0 };
        let got = (self.image.len() + bytes.len()).max(whole);
        if got > max {
            self.image = Vec::new();
            self.image_parts = Parts::default();
            return Err(ReplicaError::TooLarge { got, max });
        }
        self.image.reserve_exact(whole.max(bytes.len()));
        self.image.extend_from_slice(bytes);
        if last {
            let image = std::mem::take(&mut self.image);
            // Workers keep their readers where the table stays the same one.
            let same = self.next.is_none();
            if same && self.fib.as_mut().is_some_and(|fib| fib.overwrite(&image).is_ok()) {
                self.tables.fib_changed();
            } else {
                let max_names = header.spec.max_names.min(self.limits.max_names);
                let mut fib = Spec { max_names, ..header.spec.clone() }.table(&image)?;
                self.parts_before = self.parts_received() + fib.held().len() as u64;
                let hasher = header.spec.hasher();
                self.tables.show(&header.spec, meaning(&self.actions, self.actions_held), &mut *fib);
                self.tables.fib_replaced(header.spec.kind, &hasher, &*fib);
                (self.fib, self.hasher, self.header) = (Some(fib), Some(hasher), Some(header));
            }
            self.is_damaged = false;
            self.next = None;
            self.fib_most = None;
        }
        Ok(true)
    }

    fn fib_of(&mut self, table: u32) -> Result<&mut Box<dyn Table>, ReplicaError> {
        match (&mut self.fib, &self.header) {
            (Some(fib), Some(header)) if header.table == table => Ok(fib),
            (_, header) => Err(ReplicaError::UnknownTable { got: table, held: header.as_ref().map(|h| h.table) }),
        }
    }

    /// The switch's report: its hello to a controller, and its answer to an error that needs a resync.
    pub fn report(&self) -> Report {
        if self.must_start_over || self.header.as_ref().is_some_and(|header| header.table == NO_TABLE) {
            return Report { cluster: self.cluster, term: self.term, ..Report::default() };
        }
        Report {
            cluster: self.cluster,
            term: self.term,
            table: self.header.as_ref().map_or(0, |header| header.table),
            header: self.header.as_ref().map_or(0, TableHeader::fingerprint),
            actions: self.actions_held,
            valid: self.valid.held,
            local: self.local.held,
            shards: self.fib.as_ref().filter(|_| !self.is_damaged).map_or(Vec::new(), |fib| fib.held()),
        }
    }

    /// What this switch does with a name: the FIB's value through the action table. (In egress mode
    /// [`Action::Local`] means: look in the local names.) Without a FIB everything is dropped.
    pub fn action(&self, name: &Name) -> Action {
        let (Some(fib), Some(hasher)) = (&self.fib, &self.hasher) else { return Action::Drop };
        let mut value = [0];
        let digests = [hasher.digest(name.as_bytes())];
        fib.lookup_batch(&Burst { digests: &digests, names: &NameList(&[name]) }, &mut value);
        self.actions.get(value[0] as usize).copied().unwrap_or(Action::Drop)
    }

    /// The FIB, once its first image is complete.
    pub fn fib(&self) -> Option<&dyn Table> {
        self.fib.as_deref()
    }

    /// The hasher of the names.
    pub fn hasher(&self) -> Option<&Hasher> {
        self.hasher.as_ref()
    }

    /// The header of the FIB that is served.
    pub fn header(&self) -> Option<&TableHeader> {
        self.header.as_ref()
    }

    /// The action table; an [`ActionId`] is an index into it.
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }

    /// The action of an index; drop when the table has no such entry.
    pub fn action_of(&self, id: ActionId) -> Action {
        self.actions.get(usize::from(id.0)).copied().unwrap_or(Action::Drop)
    }

    /// The id that the controller gave this switch.
    pub fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// The latest change that a message carried.
    pub fn change(&self) -> u64 {
        self.change
    }

    /// The tables of the fast path.
    pub fn tables(&self) -> &T {
        &self.tables
    }

    /// The tables of the fast path, to keep what else belongs to them.
    pub fn tables_mut(&mut self) -> &mut T {
        &mut self.tables
    }
}

/// Where an exact table is cut into messages.
#[derive(Default)]
pub(crate) struct Cuts {
    n_cuts: u32,
    /// Bytes of the present part.
    bytes: usize,
}

impl Cuts {
    /// Whether there is a cut before the next entry.
    pub(crate) fn is_before(&mut self, name: &Name) -> bool {
        let bytes = entry_bytes(name);
        let cut = self.bytes > 0 && self.bytes + bytes > PART_BYTES;
        self.bytes = if cut { bytes } else { self.bytes + bytes };
        self.n_cuts += u32::from(cut);
        cut
    }

    pub(crate) fn n_parts(&self) -> u32 {
        self.n_cuts + 1
    }
}

/// A whole FIB in messages.
pub(crate) fn image_parts(table: u32, image: Vec<u8>) -> impl Iterator<Item = Body> + use<> {
    let parts = image.len().div_ceil(PART_BYTES) as u32;
    (0..parts).map(move |part| {
        let start = part as usize * PART_BYTES;
        let bytes = image[start..image.len().min(start + PART_BYTES)].to_vec();
        Body::Image { table, part, parts, bytes }
    })
}

/// A whole exact table in messages; one message even when it is empty. `entries` is called twice, and each message is
/// made when it is asked for: so no more than one part is in memory.
pub(crate) fn load_parts<V, I: Iterator<Item = (Name, V)>>(
    kind: NameKind,
    held: Held,
    entries: impl Fn() -> I,
) -> impl Iterator<Item = ExactUpdate<V>> {
    let mut cuts = Cuts::default();
    entries().for_each(|(name, _)| _ = cuts.is_before(&name));
    let parts = cuts.n_parts();
    let (mut cuts, mut rest) = (Cuts::default(), entries().peekable());
    (0..parts).map(move |part| {
        // The entry after the cut was counted when its cut was found.
        let mut entries = Vec::from_iter(rest.next());
        if part == 0 {
            entries.iter().for_each(|(name, _)| _ = cuts.is_before(name));
        }
        entries.extend(std::iter::from_fn(|| rest.next_if(|(name, _)| !cuts.is_before(name))));
        ExactUpdate::Load { kind, version: held.version, digest: held.digest, part, parts, entries }
    })
}

/// Why a message was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum ReplicaError {
    /// The bytes are not a message.
    #[error("a message that cannot be read: {0}")]
    Decode(#[from] DecodeError),
    /// The FIB refused the update.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A message for a table that this switch does not have, or not yet.
    #[error("a message for table {got}, the table here is {held:?}: report, to get the right one")]
    UnknownTable { got: u32, held: Option<u32> },
    /// Another table under the id of the one here: the controller's store was set back, and its switches had tables since that
    /// it does not know of.
    #[error("table {table} of the controller is another one than table {table} here: report, to get everything")]
    OtherTable { table: u32 },
    /// A change of an exact table is missing.
    #[error("an exact table is at version {current}, the change starts from {from}: report, to get the table")]
    ExactGap { current: u64, from: u64 },
    /// An exact table would differ from the controller's.
    #[error("an exact table would have digest {got:#018x}, {expected:#018x} expected: report, to get the table")]
    ExactDigest { got: u64, expected: u64 },
    /// A message about an exact table has a name twice, so its digest is not that of a table.
    #[error("a change of an exact table has a name twice: report, to get the table")]
    NameTwice,
    /// A part of an image or exact table is missing.
    #[error("part {got} came where part {expected} was due: report, to get all of it")]
    MissingPart { got: u32, expected: u32 },
    /// Over the limit of this switch.
    #[error(
        "a table of {got} bytes or more; {max} of the switch's max_table_bytes are left for it: raise that, or remove names"
    )]
    TooLarge { got: usize, max: usize },
    /// Over the limit of this switch.
    #[error("an exact table of {got} names or more, the limit here is {max}: raise the switch's limit")]
    TooManyNames { got: usize, max: usize },
    /// Another network's controller.
    #[error(
        "a message of network {got:#x}, this switch belongs to {expected:#x}: check the controller's address, or remove the saved image"
    )]
    WrongCluster { got: u64, expected: u64 },
    /// A controller that was replaced meanwhile.
    #[error("a message of term {got}, the controller is in term {current}")]
    StaleTerm { got: u64, current: u64 },
    /// For another switch, or for this one under another id.
    #[error("a message for switch {got}, this is {expected}: start over if the controller calls this switch {got} now")]
    WrongNode { got: NodeId, expected: NodeId },
    /// Names of another kind than the network's.
    #[error(
        "names of kind {got}, the names here are of kind {expected}: check the controller's address, or remove the saved image"
    )]
    WrongKind { got: NameKind, expected: NameKind },
    /// A saved image that cannot be used.
    #[error("the saved image cannot be used ({why}): start without it, the controller sends everything")]
    Saved { why: &'static str },
}

impl ReplicaError {
    /// Whether to send the report, so that the controller sends what is missing.
    pub fn needs_resync(&self) -> bool {
        !matches!(
            self,
            ReplicaError::WrongCluster { .. }
                | ReplicaError::StaleTerm { .. }
                | ReplicaError::WrongNode { .. }
                | ReplicaError::WrongKind { .. }
                | ReplicaError::TooLarge { .. }
                | ReplicaError::TooManyNames { .. }
                | ReplicaError::Saved { .. }
        )
    }

    /// Whether the size exceeds the switch's limit. The switch keeps what it has, and refuses the same again until it
    /// is smaller.
    pub fn is_over_limit(&self) -> bool {
        matches!(self, ReplicaError::TooLarge { .. } | ReplicaError::TooManyNames { .. })
    }
}
