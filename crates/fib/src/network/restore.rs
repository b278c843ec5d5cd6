//! The state of a network as rows, and a network from rows: the same cells, digests and versions.

use super::table::Table;
use super::{Network, NetworkError, Settings, Switch};
use crate::codec::DecodeError;
use crate::durable::{Row, RowChange, Tenants};
use crate::indices::{Indices, Slot};
use crate::messages::{ExactValue, Held};
use crate::rib::RibError;
use crate::topology::{End, Node, NodeId, TopologyError};
use lookup::hash::Digest;
use lookup::othello::{self, Graph, ShardState};
use std::collections::BTreeMap;

impl Network {
    /// Every row: what the store of a new network starts with, and what it holds after any number of changes.
    pub fn rows(&self) -> impl Iterator<Item = RowChange> {
        let mut rows = vec![self.network_row()];
        rows.extend(self.switches.keys().map(|id| self.switch_row(*id)));
        rows.extend(self.topology.links().map(|link| Row::Link(*link)));
        rows.extend(self.host_ports.iter().map(|end| Row::HostPort(*end)));
        rows.extend(self.tables.iter().map(|(id, table)| table.row(*id)));
        rows.extend((1..).zip(self.egress.slots()).map(|(index, slot)| Row::Egress { index, slot: *slot }));
        let names = self.rib.iter().map(|(name, _, attachment)| Row::Name(name.clone(), *attachment));
        let shards = self.tables.iter().flat_map(|(id, table)| table.all_rows(*id));
        rows.into_iter().chain(names).chain(shards).map(|row| row.encode())
    }

    /// A network from its rows, the one of kind 1 first (as a store that sorts by kind and key gives them).
    ///
    /// The hash key and the cluster are those of the rows; what else of `settings` is stored must agree. No switch is
    /// attached. Costs about as much as building every graph.
    /// # Errors
    /// [`RestoreError`].
    pub fn restore(
        settings: Settings,
        term: u64,
        rows: impl IntoIterator<Item = RowChange>,
    ) -> Result<Network, RestoreError> {
        let names = settings.kind;
        let live = rows.into_iter().filter_map(|row| Some((row.kind, row.key, row.value?)));
        let mut decoded = live.map(|(kind, key, value)| {
            // A name of another kind would be a riddle; the first row says which kind it is.
            Row::decode(kind, &key, &value, names).map_err(|source| RestoreError::Row { kind, source })
        });
        let first = decoded.next().ok_or(RestoreError::NoNetwork)??;
        let mut network = from_network_row(first, settings, term)?;

        let mut stored: BTreeMap<u32, StoredTable> = BTreeMap::new();
        let mut links = Vec::new();
        let mut egress: BTreeMap<u16, Slot<NodeId>> = BTreeMap::new();
        for row in decoded {
            match row? {
                Row::Network { .. } => return Err(RestoreError::NoNetwork),
                Row::Switch(id, row) => {
                    let transit = row.tenants == Tenants::All;
                    network.topology.add_node(id, Node { name: row.name, transit })?;
                    let switch = Switch {
                        tenants: row.tenants,
                        table: row.table,
                        local: Held { version: row.local_version, digest: 0 },
                        ports: Indices::from_slots(network.settings.value_bits, row.ports),
                        actions: Vec::new(),
                        actions_version: row.actions_version,
                        attached: false,
                        acknowledged: 0,
                    };
                    network.switches.insert(id, switch);
                }
                Row::Link(link) => links.push(link),
                Row::HostPort(end) => _ = network.host_ports.insert(end),
                Row::Name(name, attachment) => {
                    network.rib.upsert(&name, attachment).map_err(|error| match error {
                        RibError::TooManyNames { max, .. } => RestoreError::TooManyNames { max },
                        other => NetworkError::from(other).into(),
                    })?;
                }
                Row::Table { id, tenants, valid_version } => {
                    let table = stored.entry(id).or_default();
                    table.tenants = Some(tenants);
                    table.valid_version = valid_version;
                }
                Row::Shard { table, state, tombstones } => {
                    let table = stored.entry(table).or_default();
                    table.tombstones.extend(tombstones.into_iter().map(|digest| (digest, 0)));
                    table.states.push(state);
                }
                Row::Egress { index, slot } => _ = egress.insert(index, slot),
            }
        }
        for link in links {
            network.topology.add_link(link.a, link.b, link.cost)?;
            network.topology.set_up(link.a, link.up)?;
        }
        if egress.keys().copied().ne(1..=egress.len() as u16) {
            return Err(RestoreError::Gap { what: "egress indices" });
        }
        network.egress = Indices::from_slots(network.settings.value_bits, egress.into_values().collect());
        network.restore_tables(stored)?;
        network.routes = network.topology.routes();
        let nodes: Vec<NodeId> = network.switches.keys().copied().collect();
        for node in nodes {
            let actions = network.action_table(node);
            if let Some(switch) = network.switches.get_mut(&node) {
                switch.actions = actions;
            }
        }
        Ok(network)
    }

    fn restore_tables(&mut self, stored: BTreeMap<u32, StoredTable>) -> Result<(), RestoreError> {
        let attachments: Vec<_> =
            self.rib.iter().map(|(name, digest, attachment)| (name.clone(), digest, *attachment)).collect();
        let mut entries = Vec::with_capacity(attachments.len());
        for (name, digest, attachment) in &attachments {
            let end = attachment.end();
            let switch = self.switches.get_mut(&end.node).filter(|_| self.host_ports.contains(&end));
            let switch = switch.ok_or(RestoreError::Dangling { end })?;
            switch.local.digest ^= attachment.port.share(name);
            entries.push((*digest, self.intern(end)));
        }
        for (id, mut stored) in stored {
            let tenants = stored.tenants.ok_or(RestoreError::Gap { what: "tables" })?;
            stored.states.sort_by_key(|state| super::table::span(state.id).start);
            let held = || attachments.iter().zip(&entries).filter(|((.., at), _)| tenants.holds(at.tenant));
            let live: Vec<(Digest, u32)> = held().map(|(_, entry)| *entry).collect();
            let digest = held().fold(0, |sum, ((name, _, attachment), _)| sum ^ attachment.ip.share(name));
            let graph = Graph::restore(self.settings.table(), &stored.states, &live, &stored.tombstones)
                .map_err(|source| RestoreError::Graph { table: id, source })?;
            let valid = Held { version: stored.valid_version, digest };
            self.tables.insert(id, Table::new(tenants, graph, valid));
        }
        let orphan = self.switches.values().any(|switch| !self.tables.contains_key(&switch.table));
        if orphan { Err(RestoreError::Gap { what: "tables" }) } else { Ok(()) }
    }
}

#[derive(Default)]
struct StoredTable {
    tenants: Option<Tenants>,
    valid_version: u64,
    states: Vec<ShardState>,
    tombstones: Vec<(Digest, u32)>,
}

fn from_network_row(row: Row, settings: Settings, term: u64) -> Result<Network, RestoreError> {
    let Row::Network { cluster, family, key, mode, kind, value_bits, change, next_node, next_table } = row else {
        return Err(RestoreError::NoNetwork);
    };
    let agree = |what, stored: String, configured: String| {
        if stored == configured { Ok(()) } else { Err(RestoreError::Mismatch { what, stored, configured }) }
    };
    agree("the kind of name", kind.to_string(), settings.kind.to_string())?;
    agree("the value mode", mode.to_string(), settings.mode.to_string())?;
    agree("the hash family", family.to_string(), settings.family.to_string())?;
    agree("the width of values", value_bits.to_string(), settings.value_bits.to_string())?;
    let mut network = Network::bare(Settings { cluster, key, ..settings }, term)?;
    (network.change, network.next_node, network.next_table) = (change, next_node, next_table);
    Ok(network)
}

/// Why rows make no network.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum RestoreError {
    /// The row that everything else hangs off is missing, not first, or there twice.
    #[error("the store has no row of the network itself where it is due: restore it from a backup")]
    NoNetwork,
    /// A row that cannot be read.
    #[error("a row of kind {kind} in the store cannot be read ({source}): restore it from a backup")]
    Row { kind: u8, source: DecodeError },
    /// Configured otherwise than stored.
    #[error(
        "{what} is {stored} in the store and {configured} in the configuration: correct the configuration, or start with an empty store"
    )]
    Mismatch { what: &'static str, stored: String, configured: String },
    /// Configured for fewer names than there are.
    #[error("the store holds more names than the configured max_names = {max}: raise max_names")]
    TooManyNames { max: usize },
    /// Rows that others need are missing.
    #[error("rows of {what} are missing in the store: restore it from a backup")]
    Gap { what: &'static str },
    /// A name hangs off nothing.
    #[error("the store has a name at {end}, which is no host port in it: restore it from a backup")]
    Dangling { end: End },
    /// Parts that contradict each other.
    #[error("the store contradicts itself ({0}): restore it from a backup")]
    Network(#[from] NetworkError),
    /// Shards that contradict the names.
    #[error("table {table}: {source}")]
    Graph { table: u32, source: othello::RestoreError },
}

impl From<TopologyError> for RestoreError {
    fn from(error: TopologyError) -> RestoreError {
        RestoreError::Network(error.into())
    }
}
