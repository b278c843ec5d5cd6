//! Attaching and detaching switches: what an attached switch has, compared with what it should have.
//!
//! The exact tables of a switch are read name by name, and changes may come between: [`Network::begin_reading`].

use super::values::interim_actions;
use super::{Network, NetworkError};
use crate::action::{Action, PortId};
use crate::designs::Lacking;
use crate::durable::{RowChange, Tenants};
use crate::messages::{Body, ExactUpdate, Held, Message, Report, TableHeader, ValueMode};
use crate::name::Name;
use crate::replica::{Cuts, image_parts};
use crate::rib::Attachment;
use crate::topology::{NodeId, TopologyError};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::ops::Bound::{Excluded, Unbounded};

/// The messages that an attached switch lacks, in preparation.
#[must_use]
pub struct Lacks {
    node: NodeId,
    /// The state that it is brought to is that after this change.
    change: u64,
    pieces: VecDeque<Piece>,
    /// Whether names are read as they were when the reading began.
    is_reading: bool,
}

/// A message, or a whole exact table.
enum Piece {
    Body(Body),
    Local(Reading<PortId>),
    Valid(Tenants, Reading<Option<IpAddr>>),
}

/// The result of preparing the next message for a switch.
#[derive(Debug)]
pub enum Next {
    /// The next message.
    Message(Message),
    /// So many names were read, and the message is not complete.
    Later,
    /// The switch lacks nothing more.
    End,
}

/// A whole exact table that is read in the order of names, twice: first its parts are counted, then they are made.
struct Reading<V> {
    held: Held,
    cuts: Cuts,
    /// The number of parts, once they are counted.
    parts: Option<u32>,
    /// Parts made.
    part: u32,
    /// Entries of the next part.
    entries: Vec<(Name, V)>,
    /// The last name read.
    after: Option<Name>,
}

impl<V> Reading<V> {
    fn new(held: Held) -> Self {
        Reading { held, cuts: Cuts::default(), parts: None, part: 0, entries: Vec::new(), after: None }
    }

    /// Reads at most `n_names` names more, and says how many are left of them. The next part; `None`: it is not complete.
    fn next_part(
        &mut self,
        network: &Network,
        before: Option<&BTreeMap<Name, Option<Attachment>>>,
        n_names: &mut usize,
        value: impl Fn(&Attachment) -> Option<V>,
    ) -> Option<ExactUpdate<V>> {
        let after = self.after.take();
        for (name, attachment) in network.names_as_read(after.as_ref(), before) {
            if let Some(value) = value(&attachment) {
                let is_cut = self.cuts.is_before(&name);
                let part = (self.parts.is_some() && is_cut).then(|| self.load(network));
                if self.parts.is_some() {
                    self.entries.push((name.clone(), value));
                }
                if part.is_some() {
                    self.after = Some(name);
                    return part;
                }
            }
            *n_names = n_names.saturating_sub(1);
            if *n_names == 0 {
                self.after = Some(name);
                return None;
            }
        }
        if self.parts.is_some() {
            return Some(self.load(network));
        }
        self.parts = Some(self.cuts.n_parts());
        self.cuts = Cuts::default();
        None
    }

    /// The entries so far as a part.
    fn load(&mut self, network: &Network) -> ExactUpdate<V> {
        let Held { version, digest } = self.held;
        let (part, parts) = (self.part, self.parts.unwrap_or_default());
        self.part += 1;
        let entries = std::mem::take(&mut self.entries);
        ExactUpdate::Load { kind: network.settings.kind, version, digest, part, parts, entries }
    }

    fn is_complete(&self) -> bool {
        self.parts == Some(self.part)
    }
}

impl Lacks {
    /// Whether it lacks nothing.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }
}

impl Network {
    /// Whether [`Network::attach`] accepts this report.
    /// # Errors
    /// [`NetworkError::WrongCluster`], [`TopologyError::UnknownNode`].
    pub fn check_report(&self, node: NodeId, report: &Report) -> Result<(), NetworkError> {
        if !self.switches.contains_key(&node) {
            return Err(TopologyError::UnknownNode { id: node }.into());
        }
        let expected = self.settings.cluster;
        if report.cluster != 0 && report.cluster != expected {
            return Err(NetworkError::WrongCluster { id: node, got: report.cluster, expected });
        }
        Ok(())
    }

    /// Attaches a switch that sent this report, and returns what it lacks, in order; nothing when nothing differs.
    ///
    /// From now on mutations cause messages for it. It also answers a report of a switch that is attached already.
    /// Costs as much as a table with the switch's values, unless it shares a view with others or
    /// [`Network::prepare_view`] has made it.
    /// # Errors
    /// [`NetworkError::WrongCluster`], [`TopologyError::UnknownNode`], [`NetworkError::Graph`]; unchanged.
    pub fn attach(&mut self, node: NodeId, report: &Report) -> Result<Vec<Message>, NetworkError> {
        let lacks = self.attach_lacking(node, report)?;
        Ok(self.messages(lacks).collect())
    }

    /// As [`Network::attach`], without the messages: [`Network::messages`] makes them.
    /// # Errors
    /// As [`Network::attach`].
    pub fn attach_lacking(&mut self, node: NodeId, report: &Report) -> Result<Lacks, NetworkError> {
        self.check_report(node, report)?;
        let switch = self.switches.get(&node).ok_or(TopologyError::UnknownNode { id: node })?;
        let header = self.header(node);
        let (actions, local) = (self.held_actions(node), switch.local);
        let valid = self.tables[&header.table].valid;
        // A switch that is ahead was served by a store that has since been set back: its versions mean nothing.
        let reset = report.table == 0
            || report.actions.version > actions.version
            || report.local.version > local.version
            || report.valid.version > valid.version;
        let has = |theirs: Held, ours: Held| !reset && theirs == ours;

        let mut pieces = VecDeque::new();
        if reset || report.header != header.fingerprint() {
            pieces.push_back(Piece::Body(Body::Table(TableHeader { reset, ..header.clone() })));
        }
        let cells = self.attach_view(node, &header, report)?;
        let switch = &self.switches[&node];
        let (mut before_cells, mut last) = (None, None);
        if !has(report.actions, actions) {
            // What the cells of such a switch mean is not known. It has forgotten which actions it had, not what it serves; or under the same
            // version it has something else, and what it says is of a store that has since been set back.
            let is_other = |theirs: Held, ours: Held| theirs.version == ours.version && theirs.digest != ours.digest;
            let is_of_other_store = is_other(report.actions, actions)
                || is_other(report.local, local)
                || header.gateway && is_other(report.valid, valid);
            let is_forgotten = reset || report.actions.version == 0;
            let is_unknown = self.settings.mode == ValueMode::Port && (is_forgotten || is_of_other_store);
            let interim = if is_unknown {
                // As old as what it has, so that it takes it, and is sent it again if it gets no further.
                let version = if is_forgotten { 0 } else { report.actions.version };
                Some(Body::Actions { version, actions: vec![Action::Drop; switch.actions.len()] })
            } else {
                let interim = interim_actions(&switch.values, &switch.actions, report.actions.version);
                interim.map(|interim| switch.known(interim))
            };
            let actions = Piece::Body(switch.actions_body());
            // What values mean now comes after the cells if some of these may have them with another meaning.
            match interim.filter(|_| !cells.is_empty()) {
                Some(interim) => (before_cells, last) = (Some(interim), Some(actions)),
                None if is_unknown => last = Some(actions),
                None => pieces.push_back(actions),
            }
        }
        // Parts take effect one by one, an image with its last part.
        let is_image = matches!(cells.first(), Some(Body::Image { .. }));
        let n_before = if is_image { cells.len() - 1 } else { 0 };
        if !has(report.local, local) {
            pieces.push_back(Piece::Local(Reading::new(local)));
        }
        let mut cells = cells.into_iter().map(Piece::Body);
        pieces.extend(cells.by_ref().take(n_before));
        pieces.extend(before_cells.map(Piece::Body));
        pieces.extend(cells);
        pieces.extend(last);
        if header.gateway && !has(report.valid, valid) {
            let tenants = self.tables[&header.table].tenants.clone();
            pieces.push_back(Piece::Valid(tenants, Reading::new(valid)));
        }

        if let Some(switch) = self.switches.get_mut(&node) {
            switch.attached = true;
            switch.held_back = None;
            if pieces.is_empty() {
                switch.acknowledged = self.change;
            }
        }
        Ok(Lacks { node, change: self.change, pieces, is_reading: false })
    }

    /// Goes on making the view that [`Network::attach_lacking`] needs for a switch, for as long as it takes to read
    /// `n_names` names, and says how many are left of them. Whether it is made, or is only made at once. The network may
    /// change between calls. One switch at a time: another one begins anew.
    /// # Errors
    /// [`NetworkError::Graph`].
    pub fn prepare_view(&mut self, node: NodeId, n_names: &mut usize) -> Result<bool, NetworkError> {
        let Some(switch) = self.switches.get(&node) else { return Ok(true) };
        let (id, of) = (switch.table, self.view_of(node));
        let table = &self.tables[&id];
        if table.views.iter().any(|view| view.of == of) || table.absent.contains_key(&of) {
            return Ok(true);
        }
        let values = self.values(of);
        let table = self.tables.get_mut(&id).expect("switches have tables that are there");
        Ok(table.control.prepare_view(&values, n_names)?)
    }

    /// Forgets the result of [`Network::prepare_view`] if no switch attached to it.
    pub fn forget_prepared(&mut self) {
        self.tables.values_mut().for_each(|table| table.control.forget_prepared());
    }

    /// The messages with what a switch lacks, in order. A whole exact table is read part by part as its messages are
    /// asked for. The network must not change meanwhile; see [`Network::next_message`].
    pub fn messages(&self, mut lacks: Lacks) -> impl Iterator<Item = Message> {
        std::iter::from_fn(move || {
            loop {
                match self.next_message(&mut lacks, &mut usize::MAX.clone()) {
                    Next::Message(message) => return Some(message),
                    Next::Later => {}
                    Next::End => return None,
                }
            }
        })
    }

    /// Goes on making the messages with what a switch lacks. Reads at most `n_names` names, and says how many are left of
    /// them. The network may change between calls after [`Network::begin_reading`].
    pub fn next_message(&self, lacks: &mut Lacks, n_names: &mut usize) -> Next {
        let Some(mut piece) = lacks.pieces.pop_front() else { return Next::End };
        let node = lacks.node;
        let before = self.before_reading.as_ref().filter(|_| lacks.is_reading);
        let (body, is_complete) = match &mut piece {
            Piece::Body(_) => (None, true),
            Piece::Local(reading) => {
                let here = |attachment: &Attachment| (attachment.switch == node).then_some(attachment.port);
                (reading.next_part(self, before, n_names, here).map(Body::Local), reading.is_complete())
            }
            Piece::Valid(tenants, reading) => {
                let held = |attachment: &Attachment| tenants.holds(attachment.tenant).then_some(attachment.ip);
                (reading.next_part(self, before, n_names, held).map(Body::Valid), reading.is_complete())
            }
        };
        let body = match piece {
            Piece::Body(whole) => Some(whole),
            reading if !is_complete => {
                lacks.pieces.push_front(reading);
                body
            }
            _ => body,
        };
        let (cluster, term, change) = (self.settings.cluster, self.term, lacks.change);
        body.map_or(Next::Later, |body| Next::Message(Message { cluster, term, node, change, body }))
    }

    /// From now on until [`Network::end_reading`], [`Network::next_message`] reads the names for these messages as they are
    /// now, whatever changes. Call it right after [`Network::attach_lacking`]. One reading at a time. Costs memory for each name that
    /// changes meanwhile: [`Network::n_changed_since_reading`].
    pub fn begin_reading(&mut self, lacks: &mut Lacks) {
        lacks.is_reading = true;
        self.before_reading = Some(BTreeMap::new());
    }

    /// What was to be read is read.
    pub fn end_reading(&mut self) {
        self.before_reading = None;
    }

    /// Names that changed since [`Network::begin_reading`].
    pub fn n_changed_since_reading(&self) -> usize {
        self.before_reading.as_ref().map_or(0, BTreeMap::len)
    }

    /// The names after `after`, in order. Those in `before` are as it says.
    fn names_as_read(
        &self,
        after: Option<&Name>,
        before: Option<&BTreeMap<Name, Option<Attachment>>>,
    ) -> impl Iterator<Item = (Name, Attachment)> {
        let mut now = self.rib.page(after, usize::MAX).peekable();
        let rest = (after.map_or(Unbounded, Excluded), Unbounded);
        let mut before = before.into_iter().flat_map(move |before| before.range::<Name, _>(rest)).peekable();
        std::iter::from_fn(move || {
            loop {
                let Some((changed, _)) = before.peek() else { return now.next() };
                if let Some(unchanged) = now.next_if(|(name, _)| name < *changed) {
                    return Some(unchanged);
                }
                let (changed, attachment) = before.next()?;
                now.next_if(|(name, _)| name == changed);
                if let Some(attachment) = attachment {
                    return Some((changed.clone(), *attachment));
                }
            }
        })
    }

    /// The rows that the store must have after switches were attached or detached. A mutation returns them with its own.
    pub fn take_view_rows(&mut self) -> Vec<RowChange> {
        let mut rows = Vec::new();
        self.tables.iter_mut().for_each(|(id, table)| table.take_view_rows(*id, &mut rows));
        rows
    }

    /// The rows of all views.
    pub fn view_rows(&self) -> impl Iterator<Item = RowChange> {
        self.tables.iter().flat_map(|(id, table)| table.view_rows(*id))
    }

    /// The report that an attached switch would send once everything sent to it took effect.
    pub fn held(&self, node: NodeId) -> Option<Report> {
        let switch = self.switches.get(&node).filter(|switch| switch.attached)?;
        let table = self.tables.get(&switch.table)?;
        let view = table.views.iter().position(|view| view.switches.contains(&node))?;
        let header = self.header(node);
        Some(Report {
            cluster: self.settings.cluster,
            term: self.term,
            table: switch.table,
            header: header.fingerprint(),
            actions: self.held_actions(node),
            valid: if header.gateway { table.valid } else { Held::default() },
            local: switch.local,
            shards: table.control.held(view),
        })
    }

    /// Detaches a switch: mutations cause no messages for it until it attaches again.
    pub fn detach(&mut self, node: NodeId) {
        if let Some(switch) = self.switches.get_mut(&node) {
            switch.attached = false;
            switch.held_back = None;
        }
        for table in self.tables.values_mut() {
            table.detach(node);
        }
    }

    /// Whether a switch is attached.
    pub fn is_attached(&self, node: NodeId) -> bool {
        self.switches.get(&node).is_some_and(|switch| switch.attached)
    }

    /// The view of a switch, created if missing, and the parts of its table that the switch lacks.
    fn attach_view(&mut self, node: NodeId, header: &TableHeader, report: &Report) -> Result<Vec<Body>, NetworkError> {
        let shards = if report.table == header.table { &report.shards[..] } else { &[] };
        let index = self.join_view(node, header.table, shards)?;
        let Some(table) = self.tables.get_mut(&header.table) else { return Ok(Vec::new()) };
        Ok(match table.control.lacking(index, shards)? {
            Lacking::Nothing => Vec::new(),
            Lacking::Parts(parts) => {
                parts.into_iter().map(|bytes| Body::Resync { table: header.table, bytes }).collect()
            }
            Lacking::Whole(image) => image_parts(header.table, image).collect(),
        })
    }
}
