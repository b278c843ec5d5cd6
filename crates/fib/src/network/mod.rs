//! Derives one FIB per switch from one RIB and one topology: every change of the network becomes the messages that
//! switches need and the rows that a store must keep.
//!
//! Phase I (the graph of names) runs once for all switches that hold the same names; a switch's FIB is that graph
//! coloured by its routes. A name's payload in the graph is the index of the place it is attached to; a switch's view is a
//! small array from place to value.
//!
//! * **Port mode**: the value is a port of the switch (the papers' model), or as long as values are left, the switch that the
//!   name is attached to: see [`values`].
//! * **Egress mode**: the value is the index of the switch that the name is attached to. All switches of a table share one
//!   image, and a route change touches action tables only.
//!
//! **Tenants.** Switches that hold only some tenants' names get their own tables, with one graph per distinct set of
//! tenants. This keeps their FIBs as small as their names, which deriving drop for the other names would not, and costs
//! the controller another graph. Such a switch is never on a path between others (it could not know their names), and
//! names of other tenants cannot be attached to it. A name that it does not hold is alien to it, so the exact check at its
//! ingress refuses it.
//!
//! **Views** exist for attached switches only ([`Network::attach`]); with none attached a mutation costs the graph alone.
//!
//! **Order.** [`Effects::phases`] must be delivered in order. A new name is installed at its destination first, and
//! becomes valid at the gateways last. A moved name is installed from its destination outwards, so that no two switches
//! ever point at each other. A removed name becomes invalid at the gateways first. Batches keep the first and the last
//! of these phases and send all FIBs in one phase (the hop limit of the frames bounds loops meanwhile).
//!
//! Cost: a name's change is O(1) in the graph and an update of some 6 cells per switch. Where values are ports, a route change
//! colours all names once for every switch whose routes change, and sends the shards that differ; otherwise it changes action
//! tables only.
//!
//! Source: "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", sections III, V;
//! "compact structure forwarding", section IV.C-D (the shared skeleton). Differs: tombstones, versions and digests per
//! shard, egress mode, durable rows.
//!
//! Limits: 2^`value_bits` - 1 ports per switch (port mode) or switches (egress mode); `max_names` names.

mod actions;
mod error;
mod host_ports;
#[cfg(any(test, feature = "testkit"))]
pub(crate) mod laws;
mod names;
mod rekey;
mod restore;
mod resync;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod values;
mod weights;
mod wiring;

pub use error::NetworkError;
pub use rekey::{Rekey, Rekeyed, Replaced};
pub use restore::RestoreError;
pub use resync::{Lacks, Next};

use crate::action::{Action, PortId};
use crate::designs::{self, Aliens, CONCISE, Design, FibControl, Key, RateError, Spec};
use crate::durable::{Row, RowChange, Tenants};
use crate::messages::{Body, Held, Message, ValueMode};
use crate::name::{Name, NameKind};
use crate::replica::{image_parts, load_parts};
use crate::rib::{Attachment, Rib};
use crate::topology::{End, Link, Node, NodeId, Routes, Topology, TopologyError, Wanted, check_weight};
use crate::value_allocation::{Indices, Meaning, Slot};
use lookup::base::part::HeldPart;
use lookup::hash::{Family, Hasher, SecretKey};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use table::Table;

/// The settings of a network.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Distinguishes networks; not 0, and random where several might meet.
    pub cluster: u64,
    /// The meaning of the values of FIBs.
    pub mode: ValueMode,
    /// Kind of the names.
    pub kind: NameKind,
    /// Family of the digests.
    pub family: Family,
    /// Key of the digests.
    pub key: SecretKey,
    /// Bits of a value, 1 to 16.
    pub value_bits: u8,
    /// Most names.
    pub max_names: usize,
    /// Threads for building whole graphs.
    pub threads: usize,
    /// The design of switches with host ports.
    pub gateway: &'static Design,
    /// The design of the other switches.
    pub core: &'static Design,
    /// The share of alien names that may get an action, in tables of designs that recognise aliens. `None`: what the
    /// fingerprints that suit the values give.
    pub false_positives: Option<f64>,
}

impl Settings {
    /// A network of MAC addresses in port mode with 8-bit values, multiply-add digests, at most 2^24 names, and Concise
    /// everywhere.
    pub fn new(cluster: u64, key: SecretKey) -> Settings {
        Settings {
            cluster,
            mode: ValueMode::Port,
            kind: NameKind::Mac,
            family: Family::MulAdd,
            key,
            value_bits: 8,
            max_names: 1 << 24,
            threads: 1,
            gateway: &CONCISE,
            core: &CONCISE,
            false_positives: None,
        }
    }

    /// A table of this design in this network.
    fn spec(&self, design: &'static Design) -> Result<Spec, RateError> {
        let spec = Spec::new(design, self.kind, self.family, self.key.clone(), self.value_bits, self.max_names);
        match self.false_positives {
            // Tables that recognise no alien serve inside a network, where none come.
            Some(rate) if spec.aliens() != Aliens::Arbitrary => spec.with_rate(rate, (1 << self.value_bits) - 1),
            _ => Ok(spec),
        }
    }

    /// Whether the designs can hold the wanted rate: that of gateways must recognise aliens.
    /// # Errors
    /// [`RateError`] says what to do.
    pub fn check_rate(&self) -> Result<(), RateError> {
        let Some(rate) = self.false_positives else { return Ok(()) };
        let n_actions = (1 << self.value_bits) - 1;
        let of = |design| Spec::new(design, self.kind, self.family, self.key.clone(), self.value_bits, self.max_names);
        of(self.gateway).with_rate(rate, n_actions)?;
        self.spec(self.core).map(|_| ())
    }

    fn hasher(&self) -> Hasher {
        Hasher::new(self.family, &self.key)
    }
}

/// The effects of a mutation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Effects {
    /// The change's number, which its messages carry.
    pub change: u64,
    /// Messages by phase: each must be delivered before the next starts, and to one switch in this order.
    pub phases: Vec<Vec<(NodeId, Message)>>,
    /// The rows that the store must commit before the first message goes out.
    pub durable: Vec<RowChange>,
}

impl Effects {
    /// All messages in order of phases.
    pub fn messages(&self) -> impl Iterator<Item = &(NodeId, Message)> {
        self.phases.iter().flatten()
    }
}

/// The names, the topology, and what every switch must hold.
pub struct Network {
    settings: Settings,
    term: u64,
    change: u64,
    next_node: u32,
    next_table: u32,
    rib: Rib,
    topology: Topology,
    routes: Routes,
    /// Whether action tables wait for cells; see [`Switch::held_back`].
    holds_back: bool,
    /// Port mode: the destinations among which values were last given out.
    settled: Option<BTreeSet<NodeId>>,
    /// The number of times that routes were recomputed.
    n_reroutes: u64,
    host_ports: BTreeSet<End>,
    switches: BTreeMap<NodeId, Switch>,
    tables: BTreeMap<u32, Table>,
    /// Egress mode: indices of switches.
    egress: Indices<NodeId>,
    places: Places,
    /// While exact tables are read: names that changed since, as they were before.
    before_reading: Option<BTreeMap<Name, Option<Attachment>>>,
    /// While another hash key is prepared: names that changed since.
    changed_since_rekey: Option<BTreeSet<Name>>,
    /// Parts that were rebuilt in tables that no longer exist, by design.
    rebuilt_before: BTreeMap<&'static str, u64>,
    /// Whether values are ports alone, as in earlier versions.
    #[cfg(any(test, feature = "testkit"))]
    has_ports_only: bool,
}

/// The network's state for one switch.
struct Switch {
    tenants: Tenants,
    table: u32,
    local: Held,
    /// Port mode: what its values stand for.
    values: Indices<Meaning>,
    actions: Vec<Action>,
    actions_version: u64,
    /// The version before those action tables in which values have another meaning, while cells without the former one could not be
    /// made: until they are, the switch has a table in which these values drop.
    held_back: Option<u64>,
    /// Whether it knows weights of ways. Messages to it depend on this, but no version does.
    weighs: bool,
    attached: bool,
    acknowledged: u64,
}

/// Places that names are attached to, as small numbers: the payload of names in the graphs. They mean nothing outside this
/// process, so they need not outlive it.
#[derive(Default)]
struct Places {
    index: HashMap<End, u32>,
    ends: Vec<End>,
}

/// A mutation in progress: messages by phase, and rows.
#[derive(Default)]
struct Draft {
    outbox: Vec<(u32, NodeId, Body)>,
    rows: Vec<RowChange>,
    /// Whether destinations with names got or lost values of their own.
    revalued: bool,
}

impl Draft {
    fn send(&mut self, phase: u32, node: NodeId, body: Body) {
        self.outbox.push((phase, node, body));
    }

    fn row(&mut self, row: Row) {
        self.rows.push(row.encode());
    }
}

/// A switch and its FIB.
pub type Derived = (NodeId, Box<dyn designs::Table>);

impl Network {
    /// A network without switches and names. `term` must grow with every start of a controller.
    ///
    /// Store [`Network::rows`] before anything else.
    /// # Errors
    /// [`NetworkError::Settings`].
    pub fn new(settings: Settings, term: u64) -> Result<Network, NetworkError> {
        let mut network = Network::bare(settings, term)?;
        let spec = network.settings.spec(network.settings.core)?;
        let control = spec.control(&|_| (), 1)?;
        network.tables.insert(1, Table::new(Tenants::All, spec, control, Held::default()));
        network.next_table = 2;
        Ok(network)
    }

    /// A network without even a table.
    fn bare(settings: Settings, term: u64) -> Result<Network, NetworkError> {
        if settings.cluster == 0 {
            return Err(NetworkError::Settings { why: "the cluster id is 0, which stands for none" });
        }
        if !(1..=16).contains(&settings.value_bits) {
            return Err(NetworkError::Settings { why: "value_bits is not in 1 to 16" });
        }
        settings.check_rate()?;
        Ok(Network {
            term,
            change: 0,
            next_node: 1,
            next_table: 1,
            rib: Rib::new(settings.kind, settings.max_names, settings.hasher()),
            topology: Topology::default(),
            routes: Routes::default(),
            holds_back: false,
            settled: None,
            n_reroutes: 0,
            host_ports: BTreeSet::new(),
            switches: BTreeMap::new(),
            tables: BTreeMap::new(),
            egress: Indices::new(settings.value_bits),
            places: Places::default(),
            before_reading: None,
            changed_since_rekey: None,
            rebuilt_before: BTreeMap::new(),
            #[cfg(any(test, feature = "testkit"))]
            has_ports_only: false,
            settings,
        })
    }

    /// Settings of the network; the key is that of the latest rekey.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The controller's term.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Raises the term, for a controller that learns that its switches have seen a later one. A term never falls.
    pub fn raise_term(&mut self, term: u64) {
        self.term = self.term.max(term);
    }

    /// Number of the latest change.
    pub fn change(&self) -> u64 {
        self.change
    }

    /// The names.
    pub fn rib(&self) -> &Rib {
        &self.rib
    }

    /// Switches and links.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The next hops at this moment.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Ports that hosts are attached to.
    pub fn host_ports(&self) -> impl Iterator<Item = End> {
        self.host_ports.iter().copied()
    }

    /// Whose names a switch holds.
    pub fn tenants(&self, node: NodeId) -> Option<&Tenants> {
        Some(&self.switches.get(&node)?.tenants)
    }

    /// Bytes of heap memory of the skeletons.
    pub fn skeleton_bytes(&self) -> usize {
        self.tables.values().map(|table| table.control.heap_bytes()).sum()
    }

    /// Adds a switch; it carries transit traffic unless it is restricted to some tenants.
    /// # Errors
    /// [`TopologyError::NameTaken`], [`NetworkError::TooManySwitches`] (egress mode), [`NetworkError::Graph`].
    pub fn add_switch(&mut self, name: &str, tenants: Tenants) -> Result<(NodeId, Effects), NetworkError> {
        let mut draft = Draft::default();
        let id = self.enter(name, tenants, &mut draft)?;
        self.settle_values(&mut draft);
        Ok((id, self.rerouted(draft, &[id])))
    }

    /// Adds a switch, without routes.
    fn enter(&mut self, name: &str, tenants: Tenants, draft: &mut Draft) -> Result<NodeId, NetworkError> {
        let id = NodeId(self.next_node);
        if let Some(taken) = self.topology.node_by_name(name) {
            return Err(TopologyError::NameTaken { name: name.to_owned(), id: taken }.into());
        }
        // Checks that may refuse come first: a table in memory but not in the store would be missing after a restart.
        let mut egress = None;
        if self.settings.mode == ValueMode::Egress {
            let acknowledged = self.switches.values().map(|switch| switch.acknowledged).min().unwrap_or(u64::MAX);
            let mut indices = self.egress.clone();
            let max = indices.max();
            let index = indices.assign(id, acknowledged).ok_or(NetworkError::TooManySwitches { max })?;
            draft.row(Row::Egress { index, slot: Slot::new(id) });
            egress = Some(indices);
        }
        let table = self.table_for(&tenants, self.settings.core, draft)?;
        if let Some(egress) = egress {
            self.egress = egress;
        }
        self.topology.add_node(id, Node { name: name.to_owned(), transit: tenants == Tenants::All })?;
        self.next_node += 1;
        self.switches.insert(
            id,
            Switch {
                tenants,
                table,
                local: Held::default(),
                values: Indices::new(self.settings.value_bits),
                actions: vec![Action::Drop],
                actions_version: 1,
                held_back: None,
                weighs: true,
                attached: false,
                acknowledged: 0,
            },
        );
        Ok(id)
    }

    /// Removes a switch without links and host ports.
    /// # Errors
    /// [`TopologyError::NodeHasLinks`], [`NetworkError::HasHostPorts`], [`TopologyError::UnknownNode`].
    pub fn remove_switch(&mut self, id: NodeId) -> Result<Effects, NetworkError> {
        let ports = self.ports_of(id).count();
        if ports > 0 {
            return Err(NetworkError::HasHostPorts { id, ports });
        }
        let mut draft = Draft::default();
        self.topology.remove_node(id)?;
        draft.rows.push(self.switch_row(id).delete());
        self.detach(id);
        if let Some(index) = self.egress.get(id) {
            let slot = Slot { retired_at: Some(self.change + 1), ..Slot::new(id) };
            self.egress.retire(id, self.change + 1);
            draft.row(Row::Egress { index, slot });
        }
        if let Some(switch) = self.switches.remove(&id) {
            if let Some(table) = self.tables.get_mut(&switch.table) {
                table.forget(id);
            }
            self.drop_unused_table(switch.table, &mut draft);
        }
        self.refresh_routes(&mut draft);
        Ok(self.finish(draft))
    }

    /// Joins two switches.
    /// # Errors
    /// [`NetworkError::PortOfHosts`], [`NetworkError::TooManyActions`] (port mode), [`TopologyError`]; unchanged.
    pub fn add_link(&mut self, one: End, other: End, cost: u32) -> Result<Effects, NetworkError> {
        self.add_link_as(one, other, Wanted { cost, ..Wanted::default() })
    }

    /// As [`Network::add_link`], for a link that carries no frames yet.
    /// # Errors
    /// As [`Network::add_link`].
    pub fn add_link_down(&mut self, one: End, other: End, cost: u32) -> Result<Effects, NetworkError> {
        self.add_link_as(one, other, Wanted { cost, up: false, ..Wanted::default() })
    }

    /// As [`Network::add_link`], for a link as it is wanted.
    /// # Errors
    /// As [`Network::add_link`].
    pub fn add_link_as(&mut self, one: End, other: End, wanted: Wanted) -> Result<Effects, NetworkError> {
        let mut draft = Draft::default();
        let link = self.connect(one, other, wanted, &mut draft)?;
        Ok(self.rerouted(draft, &[link.a.node, link.b.node]))
    }

    /// Adds a link; the routes stay.
    fn connect(&mut self, one: End, other: End, wanted: Wanted, draft: &mut Draft) -> Result<Link, NetworkError> {
        let Wanted { cost, weight, up, found } = wanted;
        check_weight(weight)?;
        for end in [one, other] {
            if self.host_ports.contains(&end) {
                return Err(NetworkError::PortOfHosts { end });
            }
        }
        let link = self.topology.add_link(one, other, cost)?;
        let values_before = self.switches.get(&link.a.node).map(|switch| switch.values.clone());
        if let Err(error) = self.assign_port(link.a, draft).and_then(|()| self.assign_port(link.b, draft)) {
            if let (Some(switch), Some(values)) = (self.switches.get_mut(&link.a.node), values_before) {
                switch.values = values;
            }
            self.topology.remove_link(link.a)?;
            return Err(error);
        }
        self.topology.set_up(link.a, up)?;
        self.topology.set_found(link.a, found)?;
        let link = self.topology.set_weight(link.a, weight)?;
        draft.row(Row::Link(link));
        Ok(link)
    }

    /// Removes a link, given one of its ends.
    /// # Errors
    /// [`TopologyError::NoLink`].
    pub fn remove_link(&mut self, end: End) -> Result<Effects, NetworkError> {
        let link = self.topology.remove_link(end)?;
        self.retire_port(link.a);
        self.retire_port(link.b);
        let mut draft = Draft::default();
        draft.rows.push(Row::Link(link).delete());
        self.settle_values(&mut draft);
        Ok(self.rerouted(draft, &[link.a.node, link.b.node]))
    }

    /// Changes the cost of a link, given one of its ends.
    /// # Errors
    /// [`TopologyError::NoLink`], [`TopologyError::ZeroCost`].
    pub fn set_link_cost(&mut self, end: End, cost: u32) -> Result<Effects, NetworkError> {
        let link = self.topology.set_cost(end, cost)?;
        Ok(self.link_changed(link))
    }

    /// Sets how much longer than its cost a link counts in paths, given one of its ends.
    /// # Errors
    /// [`TopologyError::NoLink`].
    pub fn set_link_raised(&mut self, end: End, raised: u32) -> Result<Effects, NetworkError> {
        let link = self.topology.set_raised(end, raised)?;
        Ok(self.link_changed(link))
    }

    /// Takes a link into or out of use, given one of its ends.
    /// # Errors
    /// [`TopologyError::NoLink`].
    pub fn set_link_up(&mut self, end: End, up: bool) -> Result<Effects, NetworkError> {
        let link = self.topology.set_up(end, up)?;
        Ok(self.link_changed(link))
    }

    fn link_changed(&mut self, link: Link) -> Effects {
        let mut draft = Draft::default();
        draft.row(Row::Link(link));
        self.rerouted(draft, &[])
    }

    /// Declares a port that hosts are attached to; the first one makes the switch a gateway, which holds the valid names.
    /// # Errors
    /// [`NetworkError::PortOfHosts`] when it is one already, [`TopologyError::PortHasLink`],
    /// [`TopologyError::UnknownNode`], [`NetworkError::TooManyActions`] (port mode).
    pub fn add_host_port(&mut self, end: End) -> Result<Effects, NetworkError> {
        self.add_host_ports(&[end])
    }

    /// Withdraws a port that hosts hung off.
    /// # Errors
    /// [`NetworkError::HasNames`] while names are attached to it, [`NetworkError::NoHostPort`].
    pub fn remove_host_port(&mut self, end: End) -> Result<Effects, NetworkError> {
        let names = self.rib.len_at(end);
        if names > 0 {
            return Err(NetworkError::HasNames { end, names });
        }
        if !self.host_ports.remove(&end) {
            return Err(NetworkError::NoHostPort { end });
        }
        let mut draft = Draft::default();
        let last = self.ports_of(end.node).next().is_none();
        if last && let Err(error) = self.retable(end.node, self.settings.core, &mut draft) {
            self.host_ports.insert(end);
            return Err(error);
        }
        self.retire_port(end);
        draft.rows.push(Row::HostPort(end).delete());
        if last {
            self.announce_gateway(end.node, &mut draft)?;
        }
        self.settle_values(&mut draft);
        Ok(self.rerouted(draft, &[end.node]))
    }

    /// Moves a switch to the table of a design, if it has another. The announcement sends what it needs.
    fn retable(&mut self, node: NodeId, design: &'static Design, draft: &mut Draft) -> Result<(), NetworkError> {
        let (tenants, old) = (self.switches[&node].tenants.clone(), self.switches[&node].table);
        if self.tables[&old].spec.design == design {
            return Ok(());
        }
        let table = self.table_for(&tenants, design, draft)?;
        if self.switches[&node].attached {
            if let Err(error) = self.join_view(node, table, &[]) {
                self.drop_unused_table(table, &mut Draft::default());
                return Err(error);
            }
            if let Some(table) = self.tables.get_mut(&old) {
                table.detach(node);
            }
        }
        if let Some(table) = self.tables.get_mut(&old) {
            table.forget(node);
        }
        if let Some(switch) = self.switches.get_mut(&node) {
            switch.table = table;
        }
        self.drop_unused_table(old, draft);
        Ok(())
    }

    /// Tells an attached switch that it became a gateway, with the valid names, or ceased to be one. Sends its FIB if
    /// the design changed.
    fn announce_gateway(&mut self, node: NodeId, draft: &mut Draft) -> Result<(), NetworkError> {
        if !self.switches[&node].attached {
            return Ok(());
        }
        let header = self.header(node);
        let gateway = header.gateway;
        draft.send(0, node, Body::Table(header.clone()));
        if self.settings.gateway != self.settings.core {
            let index = self.join_view(node, header.table, &[])?;
            if let Some(table) = self.tables.get_mut(&header.table) {
                let image = table.control.image(index)?;
                image_parts(header.table, image).for_each(|part| draft.send(0, node, part));
            }
        }
        if gateway {
            let table = &self.tables[&header.table];
            let parts = load_parts(self.settings.kind, table.valid, || self.valid_entries(&table.tenants));
            parts.for_each(|part| draft.send(1, node, Body::Valid(part)));
        }
        Ok(())
    }

    /// Records that a switch confirmed a message of this change, and so has everything of the changes before it.
    pub fn acknowledge(&mut self, node: NodeId, change: u64) {
        if let Some(switch) = self.switches.get_mut(&node) {
            switch.acknowledged = switch.acknowledged.max(change.min(self.change));
        }
    }

    /// The action of `node` for a live name, from routes alone: what its FIB must answer.
    pub fn action(&self, node: NodeId, name: &Name) -> Action {
        let Some(attachment) = self.rib.get(name) else { return Action::Drop };
        if !self.switches.get(&node).is_some_and(|switch| switch.tenants.holds(attachment.tenant)) {
            return Action::Drop;
        }
        if node == attachment.switch {
            return match self.settings.mode {
                ValueMode::Port => Action::Port(attachment.port),
                ValueMode::Egress => Action::Local,
            };
        }
        let hop = self.routes.hop(node, attachment.switch).map(|hop| match self.settings.mode {
            ValueMode::Port if !self.has_own_value(node, attachment.switch) => self.routes.hop_by(node, hop.port),
            ValueMode::Port | ValueMode::Egress => hop,
        });
        hop.map_or(Action::Drop, Action::from)
    }

    /// The FIBs of `nodes`, all derived from the skeletons together: what `fibula bench build` measures. Switches that do
    /// not exist are left out.
    /// # Errors
    /// [`NetworkError::Graph`]: names that have no arrangement, in a design that may find none.
    pub fn derive(&self, nodes: &[NodeId]) -> Result<Vec<Derived>, NetworkError> {
        let mut fibs = Vec::with_capacity(nodes.len());
        for (id, table) in &self.tables {
            let of: Vec<NodeId> =
                nodes.iter().copied().filter(|node| self.switches.get(node).is_some_and(|s| s.table == *id)).collect();
            let values: Vec<Vec<u16>> = of.iter().map(|node| self.values(Some(*node))).collect();
            fibs.extend(of.into_iter().zip(table.control.export_many(&values)?));
        }
        Ok(fibs)
    }

    /// Finds the table of these tenants in this design, or builds one.
    fn table_for(
        &mut self,
        tenants: &Tenants,
        design: &'static Design,
        draft: &mut Draft,
    ) -> Result<u32, NetworkError> {
        let is_it = |table: &Table| table.tenants == *tenants && table.spec.design == design;
        if let Some((id, _)) = self.tables.iter().find(|(_, table)| is_it(table)) {
            return Ok(*id);
        }
        let spec = self.settings.spec(design)?;
        let control = self.build_control(&spec, tenants)?;
        let valid = Held { version: 1, digest: names::digest_of(self.valid_entries(tenants)) };
        let table = Table::new(tenants.clone(), spec, control, valid);
        let id = self.next_table;
        self.next_table += 1;
        draft.row(table.row(id));
        draft.rows.extend(table.all_rows(id));
        self.tables.insert(id, table);
        Ok(id)
    }

    /// Builds the control half of these tenants' names.
    fn build_control(&self, spec: &Spec, tenants: &Tenants) -> Result<Box<dyn FibControl>, NetworkError> {
        let mut places = HashMap::new();
        self.places.ends.iter().zip(0u32..).for_each(|(end, place)| _ = places.insert(*end, place));
        let names = |each: &mut dyn FnMut(Key<'_>, u32)| {
            for (name, digest, attachment) in self.rib.iter().filter(|(.., held)| tenants.holds(held.tenant)) {
                each(Key { digest, name: &name }, places[&self.place_of(attachment.end())]);
            }
        };
        Ok(spec.control(&names, self.settings.threads)?)
    }

    /// The switch whose view a switch has: its own, or that of all.
    fn view_of(&self, node: NodeId) -> Option<NodeId> {
        (self.settings.mode == ValueMode::Port).then_some(node)
    }

    /// The view of a switch in a table, created if missing; the switch is added to those that it serves.
    fn join_view(&mut self, node: NodeId, table: u32, report: &[HeldPart]) -> Result<usize, NetworkError> {
        let of = self.view_of(node);
        let known = self.tables[&table].views.iter().position(|view| view.of == of);
        let values = if known.is_some() { Vec::new() } else { self.values(of) };
        let table = self.tables.get_mut(&table).expect("switches have tables that are there");
        let index = match known {
            Some(index) => index,
            None => table.add_view(of, values, report)?,
        };
        table.views[index].switches.insert(node);
        Ok(index)
    }

    fn drop_unused_table(&mut self, id: u32, draft: &mut Draft) {
        let used = self.switches.values().any(|switch| switch.table == id);
        let table = &self.tables[&id];
        // The table that new switches get stays.
        if used || table.tenants == Tenants::All && table.spec.design == self.settings.core {
            return;
        }
        if let Some(mut table) = self.tables.remove(&id) {
            self.keep_rebuilt(&table);
            table.take_view_rows(id, &mut draft.rows);
            draft.rows.push(table.row(id).delete());
            draft.rows.extend(table.all_rows(id).map(RowChange::delete));
        }
    }

    /// The part of an end that the graphs distinguish: in egress mode the switch alone.
    fn place_of(&self, end: End) -> End {
        match self.settings.mode {
            ValueMode::Port => end,
            ValueMode::Egress => End { node: end.node, port: PortId(0) },
        }
    }

    /// The number of a place; every view learns the value of a new one.
    fn intern(&mut self, end: End) -> u32 {
        let place = self.place_of(end);
        if let Some(index) = self.places.index.get(&place) {
            return *index;
        }
        let index = self.places.ends.len() as u32;
        self.places.index.insert(place, index);
        self.places.ends.push(place);
        let mut tables = std::mem::take(&mut self.tables);
        for table in tables.values_mut() {
            for (index, view) in table.views.iter().enumerate() {
                table.control.learn_place(index, self.value(view.of, place));
            }
        }
        self.tables = tables;
        index
    }

    /// Numbers the change, collects its rows, and sorts its messages into phases.
    fn finish(&mut self, mut draft: Draft) -> Effects {
        self.change += 1;
        self.send_held_back(&mut draft);
        for (id, table) in &mut self.tables {
            table.take_rows(*id, &mut draft.rows);
        }
        draft.row(self.network_row());
        draft.outbox.sort_by_key(|(phase, ..)| *phase);
        let mut phases: Vec<Vec<(NodeId, Message)>> = Vec::new();
        let mut current = None;
        for (phase, node, body) in draft.outbox {
            if current != Some(phase) {
                phases.push(Vec::new());
                current = Some(phase);
            }
            if let Some(messages) = phases.last_mut() {
                messages.push((node, self.message(node, body)));
            }
        }
        Effects { change: self.change, phases, durable: draft.rows }
    }

    fn message(&self, node: NodeId, body: Body) -> Message {
        Message { cluster: self.settings.cluster, term: self.term, node, change: self.change, body }
    }
}
