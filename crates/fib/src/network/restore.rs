//! The state of a network as rows, and a network from rows: the same cells, digests and versions.

use super::table::Table;
use super::{Draft, Network, NetworkError, Settings, Switch};
use crate::codec::DecodeError;
use crate::designs::{Design, Key};
use crate::durable::{Row, RowChange, Tenants};
use crate::messages::{ExactValue, Held};
use crate::rib::{Loading, RibError};
use crate::topology::{End, Node, NodeId, TopologyError};
use crate::value_allocation::{Indices, Slot};
use lookup::traits::Row as PartRow;
use std::collections::{BTreeMap, HashMap, HashSet};

impl Network {
    /// Every row: what the store of a new network starts with, and what it holds after any number of changes.
    pub fn rows(&self) -> impl Iterator<Item = RowChange> {
        let mut rows = vec![self.network_row()];
        rows.extend(self.switches.keys().map(|id| self.switch_row(*id)));
        rows.extend(self.topology.links().map(|link| Row::Link(*link)));
        rows.extend(self.host_ports.iter().map(|end| Row::HostPort(*end)));
        rows.extend(self.tables.iter().map(|(id, table)| table.row(*id)));
        rows.extend((1..).zip(self.egress.slots()).map(|(index, slot)| Row::Egress { index, slot: *slot }));
        let names = self.rib.iter().map(|(name, _, attachment)| Row::Name(name, attachment));
        let parts = self.tables.iter().flat_map(|(id, table)| table.all_rows(*id));
        rows.into_iter().chain(names).map(|row| row.encode()).chain(parts)
    }

    /// A network from its rows, the one of kind 1 first (as a store that sorts by kind and key gives them).
    ///
    /// The hash key and the cluster are those of the rows. Whatever else of `settings` is stored must agree, except the
    /// designs: if these differ, switches get other tables. In port mode destinations get values of their own that had none
    /// in an earlier version; then the switches at which they do get other cells. The rows that this changes are returned, to be committed
    /// before anything else. No switch is attached. Costs about as much as building every table.
    /// # Errors
    /// [`RestoreError`].
    pub fn restore(
        settings: Settings,
        term: u64,
        rows: impl IntoIterator<Item = RowChange>,
    ) -> Result<(Network, Vec<RowChange>), RestoreError> {
        let names = settings.kind;
        let live = rows.into_iter().filter_map(|row| Some((row.kind, row.key, row.value?)));
        let mut decoded = live.map(|(kind, key, value)| {
            // Names cannot be decoded without their kind, which is in the first row.
            Row::decode(kind, &key, &value, names).map_err(|source| RestoreError::Row { kind, source })
        });
        let first = decoded.next().ok_or(RestoreError::NoNetwork)??;
        let mut network = from_network_row(first, settings, term)?;

        let mut stored: BTreeMap<u32, StoredTable> = BTreeMap::new();
        let mut links = Vec::new();
        let mut egress: BTreeMap<u16, Slot<NodeId>> = BTreeMap::new();
        let Settings { kind, max_names, .. } = network.settings;
        let mut rib = Loading::new(kind, max_names, network.settings.hasher());
        let refused = |error| match error {
            RibError::TooManyNames { max, .. } => RestoreError::TooManyNames { max },
            other => NetworkError::from(other).into(),
        };
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
                        values: Indices::from_slots(network.settings.value_bits, row.values),
                        actions: Vec::new(),
                        weighs: true,
                        actions_version: row.actions_version,
                        held_back: None,
                        attached: false,
                        acknowledged: 0,
                    };
                    network.switches.insert(id, switch);
                }
                Row::Link(link) => links.push(link),
                Row::HostPort(end) => _ = network.host_ports.insert(end),
                Row::Name(name, attachment) => rib.add(&name, &attachment).map_err(refused)?,
                Row::Table { id, tenants, valid_version, design } => {
                    let table = stored.entry(id).or_default();
                    table.of = Some((tenants, design));
                    table.valid_version = valid_version;
                }
                Row::Part { table, key, value } => {
                    stored.entry(table).or_default().parts.push(PartRow { key, value: Some(value) });
                }
                Row::View { table, of, key, value } => {
                    let views = &mut stored.entry(table).or_default().views;
                    views.entry(of).or_default().push(PartRow { key, value: Some(value) });
                }
                Row::Egress { index, slot } => _ = egress.insert(index, slot),
            }
        }
        network.rib = rib.finish().map_err(refused)?;
        for link in links {
            network.topology.add_link(link.a, link.b, link.cost)?;
            network.topology.set_up(link.a, link.up)?;
            network.topology.set_cut(link.a, link.cut)?;
            network.topology.set_raised(link.a, link.raised)?;
            network.topology.set_weight(link.a, link.weight)?;
            network.topology.set_found(link.a, link.found)?;
        }
        if egress.keys().copied().ne(1..=egress.len() as u16) {
            return Err(RestoreError::Gap { what: "egress indices" });
        }
        network.egress = Indices::from_slots(network.settings.value_bits, egress.into_values().collect());
        let mut draft = Draft::default();
        network.restore_tables(stored, &mut draft)?;
        network.restore_designs(&mut draft)?;
        network.routes = network.topology.routes();
        network.restore_values(&mut draft);
        let nodes: Vec<NodeId> = network.switches.keys().copied().collect();
        for node in nodes {
            let actions = network.action_table(node);
            if let Some(switch) = network.switches.get_mut(&node) {
                switch.actions = actions;
            }
        }
        if !draft.rows.is_empty() {
            draft.row(network.network_row());
        }
        Ok((network, draft.rows))
    }

    fn restore_tables(&mut self, stored: BTreeMap<u32, StoredTable>, draft: &mut Draft) -> Result<(), RestoreError> {
        let mut ends = Vec::new();
        let mut known = HashSet::new();
        // The contributions of each tenant's names to a digest of valid names.
        let mut shares: BTreeMap<u32, u64> = BTreeMap::new();
        for (name, _, attachment) in self.rib.iter() {
            let end = attachment.end();
            let switch = self.switches.get_mut(&end.node).filter(|_| self.host_ports.contains(&end));
            let switch = switch.ok_or(RestoreError::Dangling { end })?;
            switch.local.digest ^= attachment.port.share(&name);
            *shares.entry(attachment.tenant).or_default() ^= attachment.ip.share(&name);
            if known.insert(end) {
                ends.push(end);
            }
        }
        let places: HashMap<End, u32> = ends.into_iter().map(|end| (end, self.intern(end))).collect();
        for (id, stored) in stored {
            let (tenants, (design, fingerprint_bits)) = stored.of.ok_or(RestoreError::Gap { what: "tables" })?;
            let spec = Design::by_name(&design).ok().and_then(|design| self.settings.spec(design).ok());
            let spec = spec.filter(|spec| [self.settings.gateway, self.settings.core].contains(&spec.design));
            // If a rate is configured, only its fingerprints are acceptable.
            let spec = spec
                .filter(|spec| self.settings.false_positives.is_none() || spec.fingerprint_bits == fingerprint_bits);
            let Some(spec) = spec else {
                // A table whose design or rate is no longer configured: its switches get other tables below.
                let row = Row::Table { id, tenants, valid_version: 0, design: (design, fingerprint_bits) };
                draft.rows.push(row.delete());
                draft.rows.extend(stored.parts.into_iter().map(|row| Row::part(id, row.key, None)));
                for (of, rows) in stored.views {
                    draft.rows.extend(rows.into_iter().map(|row| Row::view(id, of, PartRow { value: None, ..row })));
                }
                continue;
            };
            let live = |each: &mut dyn FnMut(Key<'_>, u32)| {
                for (name, digest, attachment) in self.rib.iter().filter(|(.., held)| tenants.holds(held.tenant)) {
                    each(Key { digest, name: &name }, places[&attachment.end()]);
                }
            };
            let held = shares.iter().filter(|(tenant, _)| tenants.holds(**tenant));
            let digest = held.fold(0, |sum, (_, share)| sum ^ share);
            let spec =
                spec.with_fingerprint(fingerprint_bits).map_err(|source| RestoreError::Row { kind: 6, source })?;
            let control = spec
                .restored(&stored.parts, &live)
                .map_err(|source| RestoreError::Arrangement { table: id, source })?;
            let valid = Held { version: stored.valid_version, digest };
            let mut table = Table::new(tenants, spec, control, valid);
            table.absent = stored.views;
            if stored.parts.is_empty() {
                draft.rows.extend(table.all_rows(id));
            }
            self.tables.insert(id, table);
        }
        Ok(())
    }

    /// Gives destinations values of their own that have none: those of a store from before there were such values.
    fn restore_values(&mut self, draft: &mut Draft) {
        for node in self.settle(draft, false) {
            if let Some(switch) = self.switches.get_mut(&node) {
                switch.actions_version += 1;
            }
            draft.row(self.switch_row(node));
        }
    }

    /// Gives every switch a table of the design that is configured for it.
    fn restore_designs(&mut self, draft: &mut Draft) -> Result<(), RestoreError> {
        self.table_for(&Tenants::All, self.settings.core, draft)?;
        let nodes: Vec<NodeId> = self.switches.keys().copied().collect();
        for node in nodes {
            let gateway = self.ports_of(node).next().is_some();
            let design = if gateway { self.settings.gateway } else { self.settings.core };
            let tenants = self.switches[&node].tenants.clone();
            let table = self.table_for(&tenants, design, draft)?;
            if let Some(switch) = self.switches.get_mut(&node).filter(|switch| switch.table != table) {
                switch.table = table;
                draft.row(self.switch_row(node));
            }
        }
        let tables: Vec<u32> = self.tables.keys().copied().collect();
        tables.into_iter().for_each(|id| self.drop_unused_table(id, draft));
        Ok(())
    }
}

#[derive(Default)]
struct StoredTable {
    /// Its tenants, its design and the bits of a fingerprint.
    of: Option<(Tenants, (String, u8))>,
    valid_version: u64,
    parts: Vec<PartRow>,
    views: BTreeMap<Option<NodeId>, Vec<PartRow>>,
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

/// Why rows do not make a network.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum RestoreError {
    /// The row of the network is missing, not first, or duplicate.
    #[error("the store has no row of the network itself where it is due: restore it from a backup")]
    NoNetwork,
    /// A row that cannot be read. Its checksum was right.
    #[error(
        "this version of fibula cannot read a row of kind {kind} in the store ({source}): if a later version wrote the store, run that one; otherwise restore it from a backup"
    )]
    Row { kind: u8, source: DecodeError },
    /// The configuration differs from the store.
    #[error(
        "{what} is {stored} in the store and {configured} in the configuration: correct the configuration, or start with an empty store"
    )]
    Mismatch { what: &'static str, stored: String, configured: String },
    /// The configuration allows fewer names than there are.
    #[error("the store holds more names than the configured max_names = {max}: raise max_names")]
    TooManyNames { max: usize },
    /// Rows that others need are missing.
    #[error("rows of {what} are missing in the store: restore it from a backup")]
    Gap { what: &'static str },
    /// A name is attached to nothing.
    #[error("the store has a name at {end}, which is not a host port in it: restore it from a backup")]
    Dangling { end: End },
    /// Parts that contradict each other.
    #[error("the store contradicts itself ({0}): restore it from a backup")]
    Network(#[from] NetworkError),
    /// An arrangement that contradicts the names.
    #[error("table {table}: {source}")]
    Arrangement { table: u32, source: lookup::traits::RestoreError },
}

impl From<TopologyError> for RestoreError {
    fn from(error: TopologyError) -> RestoreError {
        RestoreError::Network(error.into())
    }
}
