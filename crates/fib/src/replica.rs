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
//! A saved image is the messages that bring an empty replica to this state, with a checksum: see [`Replica::save`].

use crate::action::{Action, ActionId, PortId};
use crate::codec::{DecodeError, PART_BYTES, actions_digest, entry_bytes, put_bytes, put_u64};
use crate::designs::{Burst, NameList, Spec, Table, TableError};
use crate::messages::{Body, ExactUpdate, ExactValue, Held, Message, Report, TableHeader, fingerprint};
use crate::name::{Name, NameKind};
use crate::topology::NodeId;
use lookup::hash::Hasher;
use std::collections::HashMap;
use std::net::IpAddr;

/// An exact table of the fast path, written by the replica alone.
pub trait Exact<V> {
    /// The value of a name.
    fn get(&self, name: &Name) -> Option<V>;
    /// Puts a name, or changes its value.
    fn put(&mut self, name: Name, value: V);
    /// Removes a name that is there.
    fn remove(&mut self, name: &Name);
    /// Replaces all entries with these.
    fn replace(&mut self, entries: Vec<(Name, V)>);
    /// Calls `each` for every entry, in any order.
    fn for_each(&self, each: &mut dyn FnMut(&Name, V));
}

impl<V: Copy> Exact<V> for HashMap<Name, V> {
    fn get(&self, name: &Name) -> Option<V> {
        HashMap::get(self, name).copied()
    }
    fn put(&mut self, name: Name, value: V) {
        self.insert(name, value);
    }
    fn remove(&mut self, name: &Name) {
        HashMap::remove(self, name);
    }
    fn replace(&mut self, entries: Vec<(Name, V)>) {
        *self = entries.into_iter().collect();
    }
    fn for_each(&self, each: &mut dyn FnMut(&Name, V)) {
        self.iter().for_each(|(name, value)| each(name, *value));
    }
}

/// What the fast path of a switch reads besides the FIB.
pub trait Tables {
    /// Holds the valid names.
    type Valid: Exact<Option<IpAddr>>;
    /// Holds the local names.
    type Local: Exact<PortId>;
    /// Valid names with their IP addresses: the ingress check of a gateway, and what ARP and ND answers are made of.
    fn valid(&mut self) -> &mut Self::Valid;
    /// Names attached to this switch, with their ports: the egress check.
    fn local(&mut self) -> &mut Self::Local;
    /// The same tables, read-only.
    fn shared(&self) -> (&Self::Valid, &Self::Local);
    /// Whether the valid names are those of the network, so that a name that is not among them does not exist. Called
    /// when it changes; at first they are not.
    fn valid_held(&mut self, held: bool) {
        let _ = held;
    }
    /// The action table changed; index 0 is drop.
    fn set_actions(&mut self, actions: &[Action]);
    /// The FIB in service changed: earlier answers may be wrong.
    fn fib_changed(&mut self) {}
    /// Another FIB replaced the old one: every worker needs a new [`reader`](Table::reader), and
    /// hashes names of this kind with this hasher.
    fn fib_replaced(&mut self, kind: NameKind, hasher: &Hasher, fib: &dyn Table);
}

/// Tables in plain maps, for tests and tools.
#[derive(Clone, Debug, Default)]
pub struct MemoryTables {
    /// Valid names.
    pub valid: HashMap<Name, Option<IpAddr>>,
    /// Local names.
    pub local: HashMap<Name, PortId>,
}

impl Tables for MemoryTables {
    type Valid = HashMap<Name, Option<IpAddr>>;
    type Local = HashMap<Name, PortId>;
    fn valid(&mut self) -> &mut Self::Valid {
        &mut self.valid
    }
    fn local(&mut self) -> &mut Self::Local {
        &mut self.local
    }
    fn shared(&self) -> (&Self::Valid, &Self::Local) {
        (&self.valid, &self.local)
    }
    fn set_actions(&mut self, _: &[Action]) {}
    fn fib_replaced(&mut self, _: NameKind, _: &Hasher, _: &dyn Table) {}
}

/// What an accepted message did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// False for a duplicate, which is acknowledged like a new message.
    pub applied: bool,
    /// What to acknowledge.
    pub change: u64,
}

/// Bounds on what a controller can make a switch hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of a whole FIB while it is collected.
    pub max_image_bytes: usize,
    /// Names of one exact table.
    pub max_names: usize,
}

impl Default for Limits {
    /// 1 GiB and 64 million names.
    fn default() -> Limits {
        Limits { max_image_bytes: 1 << 30, max_names: 64 << 20 }
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

/// An exact table as the protocol sees it.
#[derive(Debug)]
struct ExactState<V> {
    held: Held,
    n_names: usize,
    parts: Parts,
    loading: Vec<(Name, V)>,
}

impl<V> Default for ExactState<V> {
    fn default() -> Self {
        ExactState { held: Held::default(), n_names: 0, parts: Parts::default(), loading: Vec::new() }
    }
}

impl<V: ExactValue> ExactState<V> {
    fn apply(
        &mut self,
        table: &mut impl Exact<V>,
        update: ExactUpdate<V>,
        max_names: usize,
    ) -> Result<bool, ReplicaError> {
        match update {
            ExactUpdate::Load { version, digest, part, parts, entries, .. } => {
                if (Held { version, digest }) == self.held {
                    return Ok(false);
                }
                if part == 0 {
                    self.loading.clear();
                }
                let last = self.parts.accept((version, digest), part, parts)?;
                if self.loading.len() + entries.len() > max_names {
                    let got = self.loading.len() + entries.len();
                    self.loading = Vec::new();
                    return Err(ReplicaError::TooManyNames { got, max: max_names });
                }
                self.loading.extend(entries);
                if last {
                    let loaded = std::mem::take(&mut self.loading);
                    let got = loaded.iter().fold(0, |sum, (name, value)| sum ^ value.share(name));
                    if got != digest {
                        return Err(ReplicaError::ExactDigest { got, expected: digest });
                    }
                    self.n_names = loaded.len();
                    table.replace(loaded);
                    self.held = Held { version, digest };
                }
                Ok(true)
            }
            ExactUpdate::Delta { from, to, digest, put, remove, .. } => {
                if to <= self.held.version {
                    return Ok(false);
                }
                if from != self.held.version {
                    return Err(ReplicaError::ExactGap { current: self.held.version, from });
                }
                // The digest is checked before anything is stored. A name appears once in a delta.
                let names = put.iter().map(|(name, _)| name).chain(&remove);
                let gone: Vec<u64> = names.filter_map(|name| Some(table.get(name)?.share(name))).collect();
                let n_names = self.n_names + put.len() - gone.len().min(self.n_names);
                if n_names > max_names {
                    return Err(ReplicaError::TooManyNames { got: n_names, max: max_names });
                }
                let come = put.iter().map(|(name, value)| value.share(name));
                let got = gone.into_iter().chain(come).fold(self.held.digest, |sum, share| sum ^ share);
                if got != digest {
                    return Err(ReplicaError::ExactDigest { got, expected: digest });
                }
                remove.iter().for_each(|name| table.remove(name));
                put.into_iter().for_each(|(name, value)| table.put(name, value));
                (self.held, self.n_names) = (Held { version: to, digest }, n_names);
                Ok(true)
            }
        }
    }
}

/// What a switch holds, and how messages change it.
pub struct Replica<T: Tables> {
    limits: Limits,
    cluster: u64,
    term: u64,
    node: Option<NodeId>,
    change: u64,
    /// Header of the FIB that is served.
    header: Option<TableHeader>,
    fib: Option<Box<dyn Table>>,
    hasher: Option<Hasher>,
    /// Header of a FIB whose image is on its way.
    next: Option<TableHeader>,
    image: Vec<u8>,
    image_parts: Parts,
    actions: Vec<Action>,
    actions_held: Held,
    valid: ExactState<Option<IpAddr>>,
    local: ExactState<PortId>,
    valid_held: bool,
    tables: T,
}

impl<T: Tables> Replica<T> {
    /// A replica that holds nothing: it drops everything and reports so.
    pub fn new(limits: Limits, tables: T) -> Replica<T> {
        Replica {
            limits,
            cluster: 0,
            term: 0,
            node: None,
            change: 0,
            header: None,
            fib: None,
            hasher: None,
            next: None,
            image: Vec::new(),
            image_parts: Parts::default(),
            actions: vec![Action::Drop],
            actions_held: Held::default(),
            valid: ExactState::default(),
            local: ExactState::default(),
            valid_held: false,
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
            Some(expected) if expected != node => return Err(ReplicaError::WrongNode { got: node, expected }),
            _ => {}
        }
        let applied = match body {
            Body::Table(header) => self.start_table(header),
            Body::Image { table, part, parts, bytes } => self.take_image(table, part, parts, &bytes)?,
            Body::Updates { table, updates } => {
                let (n_applied, taken) = self.fib_of(table)?.apply_batch(&updates);
                // Updates before a refused one have taken effect.
                if n_applied > 0 {
                    self.tables.fib_changed();
                }
                taken?;
                n_applied > 0
            }
            Body::Resync { table, bytes } => {
                self.fib_of(table)?.overwrite(&bytes)?;
                self.tables.fib_changed();
                true
            }
            Body::Actions { version, actions } => {
                let held = Held { version, digest: actions_digest(&actions) };
                let new = version > self.actions_held.version
                    || version == self.actions_held.version && held != self.actions_held;
                if new {
                    self.tables.set_actions(&actions);
                    self.actions = actions;
                    self.actions_held = held;
                }
                new
            }
            Body::Valid(update) => self.valid.apply(self.tables.valid(), update, self.limits.max_names)?,
            Body::Local(update) => self.local.apply(self.tables.local(), update, self.limits.max_names)?,
        };
        (self.cluster, self.term, self.node) = (cluster, term, Some(node));
        self.change = self.change.max(change);
        let valid_held =
            self.header.as_ref().is_some_and(|header| header.gateway) && self.valid.held != Held::default();
        if std::mem::replace(&mut self.valid_held, valid_held) != valid_held {
            self.tables.valid_held(valid_held);
        }
        Ok(Received { applied, change })
    }

    fn start_table(&mut self, header: TableHeader) -> bool {
        if header.reset {
            self.actions_held = Held::default();
            self.valid.held = Held::default();
            self.local.held = Held::default();
        }
        let header = TableHeader { reset: false, ..header };
        if !header.gateway && self.valid.held != Held::default() {
            self.tables.valid().replace(Vec::new());
            self.valid = ExactState::default();
        }
        let same_cells = |served: &TableHeader| {
            let spec = Spec { max_names: header.spec.max_names, ..served.spec.clone() };
            TableHeader { gateway: header.gateway, spec, ..served.clone() } == header
        };
        match &mut self.header {
            Some(served) if same_cells(served) => {
                self.next = None;
                let changed = *served != header;
                *served = header;
                changed
            }
            _ => self.next.replace(header.clone()) != Some(header),
        }
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
        let got = self.image.len() + bytes.len();
        if got > self.limits.max_image_bytes {
            self.image = Vec::new();
            self.image_parts = Parts::default();
            return Err(ReplicaError::ImageTooLarge { got, max: self.limits.max_image_bytes });
        }
        self.image.extend_from_slice(bytes);
        if last {
            let image = std::mem::take(&mut self.image);
            // Workers keep their readers where the table stays the same one.
            let same = self.next.is_none();
            if same && self.fib.as_mut().is_some_and(|fib| fib.overwrite(&image).is_ok()) {
                self.tables.fib_changed();
            } else {
                let max_names = header.spec.max_names.min(self.limits.max_names);
                let fib = Spec { max_names, ..header.spec.clone() }.table(&image)?;
                let hasher = header.spec.hasher();
                self.tables.fib_replaced(header.spec.kind, &hasher, &*fib);
                (self.fib, self.hasher, self.header) = (Some(fib), Some(hasher), Some(header));
            }
            self.next = None;
        }
        Ok(true)
    }

    fn fib_of(&mut self, table: u32) -> Result<&mut Box<dyn Table>, ReplicaError> {
        match (&mut self.fib, &self.header) {
            (Some(fib), Some(header)) if header.table == table => Ok(fib),
            (_, header) => Err(ReplicaError::UnknownTable { got: table, held: header.as_ref().map(|h| h.table) }),
        }
    }

    /// What the switch has: its hello to a controller, and its answer to an error that needs a resync.
    pub fn report(&self) -> Report {
        Report {
            cluster: self.cluster,
            term: self.term,
            table: self.header.as_ref().map_or(0, |header| header.table),
            header: self.header.as_ref().map_or(0, TableHeader::fingerprint),
            actions: self.actions_held,
            valid: self.valid.held,
            local: self.local.held,
            shards: self.fib.as_ref().map_or(Vec::new(), |fib| fib.held()),
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

    /// Everything as bytes, to start from without a controller: the messages that bring an empty replica to this state.
    ///
    /// ```text
    /// | "FIBULAS1" | message length, 4 bytes | message | ... | fingerprint of all before it, 8 bytes |
    /// ```
    pub fn save(&self) -> Vec<u8> {
        let mut out = SAVED.to_vec();
        if let (Some(header), Some(fib), Some(node)) = (&self.header, &self.fib, self.node) {
            let mut put = |body| {
                let message = Message { cluster: self.cluster, term: self.term, node, change: self.change, body };
                put_bytes(&mut out, &message.encode());
            };
            put(Body::Table(TableHeader { reset: true, ..header.clone() }));
            put(Body::Actions { version: self.actions_held.version, actions: self.actions.clone() });
            image_parts(header.table, fib.image()).for_each(&mut put);
            let (valid, local) = self.tables.shared();
            load_parts(header.spec.kind, self.local.held, entries(local)).map(Body::Local).for_each(&mut put);
            if header.gateway {
                load_parts(header.spec.kind, self.valid.held, entries(valid)).map(Body::Valid).for_each(&mut put);
            }
        }
        let checksum = fingerprint(&out);
        put_u64(&mut out, checksum);
        out
    }

    /// A replica from what [`Replica::save`] wrote.
    /// # Errors
    /// [`ReplicaError::Saved`] for bytes that are damaged or from another version: start empty, the controller sends
    /// everything.
    pub fn load(limits: Limits, tables: T, saved: &[u8]) -> Result<Replica<T>, ReplicaError> {
        let damaged = |why| ReplicaError::Saved { why };
        let (content, checksum) = saved.split_last_chunk::<8>().ok_or(damaged("too short"))?;
        if fingerprint(content) != u64::from_le_bytes(*checksum) {
            return Err(damaged("wrong checksum"));
        }
        let mut rest = content.strip_prefix(SAVED).ok_or(damaged("another format"))?;
        let mut replica = Replica::new(limits, tables);
        while let Some((length, tail)) = rest.split_first_chunk::<4>() {
            let (message, tail) =
                tail.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or(damaged("a truncated message"))?;
            replica.receive(message)?;
            rest = tail;
        }
        if rest.is_empty() { Ok(replica) } else { Err(damaged("a truncated length")) }
    }
}

const SAVED: &[u8] = b"FIBULAS1";

fn entries<V: Copy>(table: &impl Exact<V>) -> Vec<(Name, V)> {
    let mut entries = Vec::new();
    table.for_each(&mut |name, value| entries.push((name.clone(), value)));
    entries
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

/// A whole exact table in messages; one message even when it is empty.
pub(crate) fn load_parts<V>(
    kind: NameKind,
    held: Held,
    entries: Vec<(Name, V)>,
) -> impl Iterator<Item = ExactUpdate<V>> {
    let mut cuts = vec![0];
    let mut bytes = 0;
    for (index, (name, _)) in entries.iter().enumerate() {
        bytes += entry_bytes(name);
        if bytes > PART_BYTES && index > 0 {
            cuts.push(index);
            bytes = entry_bytes(name);
        }
    }
    let parts = cuts.len() as u32;
    cuts.push(entries.len());
    let mut entries = entries.into_iter();
    (0..parts).map(move |part| {
        let n = cuts[part as usize + 1] - cuts[part as usize];
        let entries = entries.by_ref().take(n).collect();
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
    /// A change of an exact table is missing.
    #[error("an exact table is at version {current}, the change starts from {from}: report, to get the table")]
    ExactGap { current: u64, from: u64 },
    /// An exact table would differ from the controller's.
    #[error("an exact table would have digest {got:#018x}, {expected:#018x} expected: report, to get the table")]
    ExactDigest { got: u64, expected: u64 },
    /// A part of an image or exact table is missing.
    #[error("part {got} came where part {expected} was due: report, to get all of it")]
    MissingPart { got: u32, expected: u32 },
    /// Over the limit of this switch.
    #[error("an image of {got} bytes or more, the limit here is {max}: raise the switch's limit")]
    ImageTooLarge { got: usize, max: usize },
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
    /// For another switch.
    #[error("a message for switch {got}, this is {expected}: check the switch's name, or remove the saved image")]
    WrongNode { got: NodeId, expected: NodeId },
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
                | ReplicaError::ImageTooLarge { .. }
                | ReplicaError::TooManyNames { .. }
                | ReplicaError::Saved { .. }
        )
    }
}
