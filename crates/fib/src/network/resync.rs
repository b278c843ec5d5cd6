//! Switches that come and go: what an attached switch has against what it should have.

use super::table::{Table, View, differing, in_parts, span};
use super::{Network, NetworkError};
use crate::messages::{Body, Held, HeldShard, Message, Report, TableHeader, ValueMode};
use crate::replica::{image_parts, load_parts};
use crate::topology::{NodeId, TopologyError};
use lookup::othello::{ShardId, ShardImage, Update};
use std::collections::{BTreeSet, HashMap};

impl Network {
    /// Whether [`Network::attach`] takes this report.
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

    /// Takes a switch in that says what it has, and returns what it lacks, in order; nothing when nothing differs.
    ///
    /// From now on mutations cause messages for it. Also the answer to a report of a switch that is attached already.
    /// Costs a colouring of the whole table, unless the switch shares a view with others.
    /// # Errors
    /// [`NetworkError::WrongCluster`], [`TopologyError::UnknownNode`]; unchanged.
    pub fn attach(&mut self, node: NodeId, report: &Report) -> Result<Vec<Message>, NetworkError> {
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

        let mut bodies = Vec::new();
        if reset || report.header != header.fingerprint() {
            bodies.push(Body::Table(TableHeader { reset, ..header.clone() }));
        }
        if !has(report.actions, actions) {
            bodies.push(Body::Actions { version: actions.version, actions: switch.actions.clone() });
        }
        if !has(report.local, local) {
            bodies.extend(load_parts(header.kind, local, self.local_entries(node)).map(Body::Local));
        }
        bodies.extend(self.attach_view(node, &header, report));
        if header.gateway && !has(report.valid, valid) {
            let entries = self.valid_entries(&self.tables[&header.table].tenants);
            bodies.extend(load_parts(header.kind, valid, entries).map(Body::Valid));
        }

        if let Some(switch) = self.switches.get_mut(&node) {
            switch.attached = true;
            if bodies.is_empty() {
                switch.acknowledged = self.change;
            }
        }
        Ok(bodies.into_iter().map(|body| self.message(node, body)).collect())
    }

    /// What an attached switch has once everything sent to it took effect: the report that it would send then.
    pub fn held(&self, node: NodeId) -> Option<Report> {
        let switch = self.switches.get(&node).filter(|switch| switch.attached)?;
        let table = self.tables.get(&switch.table)?;
        let view = table.views.iter().find(|view| view.switches.contains(&node))?;
        let header = self.header(node);
        Some(Report {
            cluster: self.settings.cluster,
            term: self.term,
            table: switch.table,
            header: header.fingerprint(),
            actions: self.held_actions(node),
            valid: if header.gateway { table.valid } else { Held::default() },
            local: switch.local,
            shards: held(view, &table.graph),
        })
    }

    /// Lets go of a switch: mutations cause no messages for it until it attaches again.
    pub fn detach(&mut self, node: NodeId) {
        if let Some(switch) = self.switches.get_mut(&node) {
            switch.attached = false;
        }
        for table in self.tables.values_mut() {
            table.views.retain_mut(|view| {
                view.switches.remove(&node);
                !view.switches.is_empty()
            });
        }
    }

    /// Whether a switch is attached.
    pub fn is_attached(&self, node: NodeId) -> bool {
        self.switches.get(&node).is_some_and(|switch| switch.attached)
    }

    /// The view of a switch, made if there is none, and what of its shards the switch lacks.
    fn attach_view(&mut self, node: NodeId, header: &TableHeader, report: &Report) -> Vec<Body> {
        let of = (self.settings.mode == ValueMode::Port).then_some(node);
        let known = self.tables[&header.table].views.iter().any(|view| view.of == of);
        let values = if known { Vec::new() } else { self.values(of) };
        let Some(table) = self.tables.get_mut(&header.table) else { return Vec::new() };
        let mut new_images = None;
        if !known {
            let (mut view, images) = View::new(&table.graph, of, values);
            adopt(&mut view, table, report);
            table.views.push(view);
            new_images = Some(images);
        }
        let Some(view) = table.views.iter_mut().find(|view| view.of == of) else { return Vec::new() };
        view.switches.insert(node);

        let ours: Vec<HeldShard> = held(view, &table.graph);
        let runs = if report.table == header.table { differing(&report.shards, &ours) } else { None };
        if runs.as_ref().is_some_and(Vec::is_empty) {
            return Vec::new();
        }
        let images = new_images.unwrap_or_else(|| view.images(&table.graph));
        let Some(runs) = runs else { return image_parts(images, header).collect() };
        let starts: BTreeSet<u64> = runs.iter().map(|run| span(ours[run.start].id).start).collect();
        let mut lacking = vec![false; images.len()];
        runs.into_iter().for_each(|run| lacking[run].fill(true));
        let images = images.into_iter().zip(lacking).filter(|(_, lacks)| *lacks).map(|(image, _)| image);
        let may_cut = |image: &ShardImage| starts.contains(&span(image.id).start);
        in_parts(images, may_cut)
            .map(|part| {
                let mut bytes = Vec::new();
                Update::Shards(part).encode(header.value_bits, &mut bytes);
                Body::Resync { table: header.table, bytes }
            })
            .collect()
    }
}

fn held(view: &View, graph: &lookup::othello::Graph) -> Vec<HeldShard> {
    view.colouring.held(graph).map(|(_, id, version, digest)| HeldShard { id, version, digest }).collect()
}

/// A new view takes over the versions that its first switch has of shards that are as they should be: later versions
/// changed no cell of it, so it was told of none.
fn adopt(view: &mut View, table: &Table, report: &Report) {
    let theirs: HashMap<ShardId, &HeldShard> = report.shards.iter().map(|shard| (shard.id, shard)).collect();
    let ours: Vec<_> = view.colouring.held(&table.graph).collect();
    for (slot, id, version, digest) in ours {
        if let Some(shard) = theirs.get(&id).filter(|shard| shard.digest == digest && shard.version < version) {
            view.colouring.set_version(slot, shard.version);
        }
    }
}
