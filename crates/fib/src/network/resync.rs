//! Attaching and detaching switches: what an attached switch has, compared with what it should have.

use super::{Network, NetworkError};
use crate::designs::Lacking;
use crate::durable::RowChange;
use crate::messages::{Body, Held, Message, Report, TableHeader};
use crate::replica::{image_parts, load_parts};
use crate::topology::{NodeId, TopologyError};

/// What an attached switch lacks.
#[must_use]
pub struct Lacks {
    node: NodeId,
    pieces: Vec<Piece>,
}

/// A message, or a whole exact table at this version.
enum Piece {
    Body(Body),
    Local(Held),
    Valid(Held),
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
    /// From now on mutations cause messages for it. Also answers a report of a switch that is attached already.
    /// Costs as much as a table with the switch's values, unless it shares a view with others.
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

        let mut pieces = Vec::new();
        if reset || report.header != header.fingerprint() {
            pieces.push(Piece::Body(Body::Table(TableHeader { reset, ..header.clone() })));
        }
        if !has(report.actions, actions) {
            let actions = Body::Actions { version: actions.version, actions: switch.actions.clone() };
            pieces.push(Piece::Body(actions));
        }
        if !has(report.local, local) {
            pieces.push(Piece::Local(local));
        }
        pieces.extend(self.attach_view(node, &header, report)?.into_iter().map(Piece::Body));
        if header.gateway && !has(report.valid, valid) {
            pieces.push(Piece::Valid(valid));
        }

        if let Some(switch) = self.switches.get_mut(&node) {
            switch.attached = true;
            if pieces.is_empty() {
                switch.acknowledged = self.change;
            }
        }
        Ok(Lacks { node, pieces })
    }

    /// The messages with what a switch lacks, in order. A whole exact table is read part by part as its messages are
    /// asked for. The network must not have changed since [`Network::attach_lacking`].
    pub fn messages(&self, lacks: Lacks) -> impl Iterator<Item = Message> {
        let Lacks { node, pieces } = lacks;
        let kind = self.settings.kind;
        let bodies = move |piece| -> Box<dyn Iterator<Item = Body>> {
            match piece {
                Piece::Body(body) => Box::new(std::iter::once(body)),
                Piece::Local(held) => {
                    Box::new(load_parts(kind, held, move || self.local_entries(node)).map(Body::Local))
                }
                Piece::Valid(held) => {
                    let entries = move || self.valid_entries(&self.tables[&self.switches[&node].table].tenants);
                    Box::new(load_parts(kind, held, entries).map(Body::Valid))
                }
            }
        };
        pieces.into_iter().flat_map(bodies).map(move |body| self.message(node, body))
    }

    /// The rows that the store must have after switches were attached or detached. A mutation returns them with its own.
    pub fn take_view_rows(&mut self) -> Vec<RowChange> {
        let mut rows = Vec::new();
        self.tables.iter_mut().for_each(|(id, table)| table.take_view_rows(*id, &mut rows));
        rows
    }

    /// What an attached switch has once everything sent to it took effect: the report that it would send then.
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
