//! A network from what is left of its rows.
//!
//! What operators said is kept: switches, links, host ports, names. What follows from it is left out, and made again by
//! the next start: tables, the arrangement of their names, views. A row that needs a lost one is lost, too. Ids and
//! versions skip ahead, so that none is used for a second thing. Indices of actions that are left keep their meaning:
//! switches use them until their new tables have come.

use super::{Row, RowChange, SwitchRow};
use crate::messages::ValueMode;
use crate::name::NameKind;
use crate::network::{RestoreError, Settings};
use crate::topology::{End, NodeId};
use crate::value_allocation::{Indices, Meaning, Slot};
use std::collections::{BTreeMap, HashSet};

/// By how much ids and versions skip ahead: more than a store can be behind.
const SKIP: u32 = 1 << 20;

/// The remains of a network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Salvaged {
    /// Rows from which [`Network::restore`](crate::network::Network::restore) makes a network, in order.
    pub rows: Vec<RowChange>,
    /// The host ports in them.
    pub host_ports: Vec<End>,
    /// The rows that were left out although an operator's word was in them.
    pub lost: Vec<Lost>,
}

/// A row that was left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// Its kind.
    pub kind: u8,
    /// The lost object, and the reason.
    pub what: String,
}

/// Keeps of `rows`, in any order, what makes a network. `host_ports` are known from elsewhere: their own rows may be lost.
/// # Errors
/// [`RestoreError::NoNetwork`]: the row of the network itself is lost, and with it the hash key and the kind of names.
pub fn salvage(
    rows: impl IntoIterator<Item = RowChange>,
    host_ports: impl IntoIterator<Item = End>,
) -> Result<Salvaged, RestoreError> {
    type Rows = Vec<(Vec<u8>, Vec<u8>)>;
    let mut by_kind: BTreeMap<u8, Rows> = BTreeMap::new();
    for RowChange { kind, key, value } in rows {
        if let Some(value) = value {
            by_kind.entry(kind).or_default().push((key, value));
        }
    }
    let mut lost = Vec::new();
    let mut decoded = |kind: u8, names: NameKind| -> Vec<Row> {
        let rows = by_kind.remove(&kind).unwrap_or_default().into_iter();
        let row = |(key, value): (Vec<u8>, Vec<u8>)| match Row::decode(kind, &key, &value, names) {
            Ok(row) => Some(row),
            Err(error) => {
                lost.push(Lost { kind, what: format!("a row of kind {kind} that cannot be read: {error}") });
                None
            }
        };
        rows.filter_map(row).collect()
    };
    // The row of the network does not depend on the kind of names; it says which it is.
    let Some(Row::Network { cluster, family, key, mode, kind, value_bits, change, next_node, next_table }) =
        decoded(1, NameKind::Mac).pop()
    else {
        return Err(RestoreError::NoNetwork);
    };
    let [switches, links, ports, names, indices] = [2, 3, 4, 5, 8].map(|row| decoded(row, kind));

    let (next_node, next_table) = (next_node.saturating_add(SKIP), next_table.saturating_add(SKIP));
    let change = change.saturating_add(SKIP.into());
    let network = Row::Network { cluster, family, key, mode, kind, value_bits, change, next_node, next_table };
    let mut kept = vec![network.encode()];
    let switch = |row| if let Row::Switch(id, switch) = row { Some((id, switch)) } else { None };
    let mut switches: BTreeMap<NodeId, SwitchRow> = switches.into_iter().filter_map(switch).collect();
    let mut used = HashSet::new();
    for row in links {
        if let Row::Link(link) = row {
            if switches.contains_key(&link.a.node) && switches.contains_key(&link.b.node) {
                used.extend([link.a, link.b]);
                kept.push(Row::Link(link).encode());
            } else {
                let what = format!("the link between {} and {}: a switch of it is lost", link.a, link.b);
                lost.push(Lost { kind: 3, what });
            }
        }
    }
    let ports = ports.into_iter().filter_map(|row| if let Row::HostPort(end) = row { Some(end) } else { None });
    let mut host_ports: Vec<End> = ports.chain(host_ports).filter(|end| !used.contains(end)).collect();
    host_ports.sort_unstable();
    host_ports.dedup();
    host_ports.retain(|end| {
        let is_known = switches.contains_key(&end.node);
        if !is_known {
            lost.push(Lost { kind: 4, what: format!("the host {end}: its switch is lost") });
        }
        is_known
    });
    kept.extend(host_ports.iter().map(|end| Row::HostPort(*end).encode()));
    used.extend(&host_ports);
    if mode == ValueMode::Egress {
        kept.extend(egress_rows(indices, switches.keys().copied(), change));
    }
    for (&id, switch) in &mut switches {
        switch.table = 0;
        switch.local_version = switch.local_version.saturating_add(SKIP.into());
        switch.actions_version = switch.actions_version.saturating_add(SKIP.into());
        let ports = used.iter().filter(|end| end.node == id).map(|end| Meaning::Port(end.port));
        let mut values = Indices::from_slots(value_bits.clamp(1, 16), std::mem::take(&mut switch.values));
        // Switches give way to ports. The next start gives them values that are left.
        let gives_way = |slot: &Slot<Meaning>| slot.value.is_switch() || !slot.is_in_use();
        for port in ports {
            let has_one = values.assign_unused(port).is_some()
                || values.displace(port, switch.actions_version, gives_way).is_some();
            if !has_one {
                let what = format!(
                    "the value of a port of switch {}: it has more ports than values, and drops what leads there",
                    switch.name
                );
                lost.push(Lost { kind: 2, what });
            }
        }
        // The changes of lost commits are unknown: each may have had another meaning.
        let since = switch.actions_version;
        switch.values = values.slots().iter().map(|slot| Slot { since, ..*slot }).collect();
    }
    kept.extend(switches.into_iter().map(|(id, switch)| Row::Switch(id, switch).encode()));
    for row in names {
        if let Row::Name(name, attachment) = row {
            if host_ports.binary_search(&attachment.end()).is_ok() {
                kept.push(Row::Name(name, attachment).encode());
            } else {
                let what = format!("the name {name} at {}: that host port is lost", attachment.end());
                lost.push(Lost { kind: 5, what });
            }
        }
    }
    Ok(Salvaged { rows: kept, host_ports, lost })
}

/// The settings of a network in the value of its row of kind 1, with Concise everywhere and at most 2^24 names.
pub fn settings_of(network: &[u8]) -> Option<Settings> {
    let row = Row::decode(1, &[], network, NameKind::Mac).ok()?;
    let Row::Network { cluster, family, key, mode, kind, value_bits, .. } = row else { return None };
    Some(Settings { mode, kind, family, value_bits, ..Settings::new(cluster, key) })
}

/// The egress indices without gaps, in which every switch has one. A gap for which there is no switch gets one that
/// never existed.
fn egress_rows(rows: Vec<Row>, switches: impl Iterator<Item = NodeId>, change: u64) -> impl Iterator<Item = RowChange> {
    let mut slots: BTreeMap<u16, Slot<NodeId>> = BTreeMap::new();
    for row in rows {
        if let Row::Egress { index, slot } = row {
            slots.insert(index, slot);
        }
    }
    for switch in switches {
        match slots.values_mut().find(|slot| slot.value == switch) {
            Some(slot) => slot.retired_at = None,
            None => {
                let free = (1..).find(|index| !slots.contains_key(index)).unwrap_or(u16::MAX);
                slots.insert(free, Slot::new(switch));
            }
        }
    }
    for index in 1..slots.keys().last().copied().unwrap_or(0) {
        slots.entry(index).or_insert(Slot { retired_at: Some(change), ..Slot::new(NodeId(0)) });
    }
    slots.into_iter().map(|(index, slot)| Row::Egress { index, slot }.encode())
}
