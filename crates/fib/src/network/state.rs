//! Data derived from the state of a network: headers, values, action tables, exact tables, rows.

use super::Network;
use crate::action::{Action, PortId};
use crate::codec::actions_digest;
use crate::durable::{Row, SwitchRow, Tenants};
use crate::messages::{Held, TableHeader, ValueMode};
use crate::name::Name;
use crate::topology::{End, NodeId};
use crate::value_allocation::Meaning;
use std::net::IpAddr;

impl Network {
    pub(super) fn ports_of(&self, node: NodeId) -> impl Iterator<Item = End> {
        let range = End { node, port: PortId(0) }..=End { node, port: PortId(u16::MAX) };
        self.host_ports.range(range).copied()
    }

    pub(super) fn header(&self, node: NodeId) -> TableHeader {
        let table = self.switches[&node].table;
        TableHeader {
            table,
            spec: self.tables[&table].spec.clone(),
            mode: self.settings.mode,
            // Gateways hold the valid names with any design.
            gateway: self.ports_of(node).next().is_some(),
            reset: false,
        }
    }

    pub(super) fn values(&self, of: Option<NodeId>) -> Vec<u16> {
        self.places.ends.iter().map(|place| self.value(of, *place)).collect()
    }

    /// The action table of a switch as it must be now.
    pub(super) fn action_table(&self, node: NodeId) -> Vec<Action> {
        self.action_table_to(node, &self.egress_prepared())
    }

    /// Where egress values lead, for [`Network::action_table_to`]: the same for all switches.
    pub(super) fn egress_prepared(&self) -> Vec<Option<usize>> {
        self.routes.prepared(self.egress.slots().iter().map(|slot| slot.value))
    }

    /// [`Network::action_table`] of one switch of many.
    pub(super) fn action_table_to(&self, node: NodeId, egress: &[Option<usize>]) -> Vec<Action> {
        let mut actions = vec![Action::Drop];
        match self.settings.mode {
            // A retired index keeps its meaning, for cells that are not updated yet.
            ValueMode::Port => {
                actions.extend(self.switches[&node].values.slots().iter().map(|slot| match slot.value {
                    Meaning::Port(port) => self.routes.hop_by(node, port).into(),
                    Meaning::Switch(to) => self.routes.hop(node, to).map_or(Action::Drop, Action::from),
                }))
            }
            ValueMode::Egress => {
                let hops = self.routes.hops_to(node, egress);
                actions.extend(self.egress.slots().iter().zip(hops).map(|(slot, hop)| match slot.value {
                    _ if slot.retired_at.is_some() => Action::Drop,
                    here if here == node => Action::Local,
                    _ => hop.map_or(Action::Drop, Action::from),
                }));
            }
        }
        actions
    }

    pub(super) fn held_actions(&self, node: NodeId) -> Held {
        let switch = &self.switches[&node];
        let digest = actions_digest(&switch.known_actions());
        Held { version: switch.actions_version, digest }
    }

    pub(super) fn valid_entries(&self, tenants: &Tenants) -> impl Iterator<Item = (Name, Option<IpAddr>)> {
        let held = self.rib.iter().filter(|(_, _, attachment)| tenants.holds(attachment.tenant));
        held.map(|(name, _, attachment)| (name, attachment.ip))
    }

    pub(super) fn switch_row(&self, id: NodeId) -> Row {
        let switch = &self.switches[&id];
        let name = self.topology.node(id).map(|node| node.name.clone()).unwrap_or_default();
        Row::Switch(
            id,
            SwitchRow {
                name,
                tenants: switch.tenants.clone(),
                table: switch.table,
                local_version: switch.local.version,
                actions_version: switch.actions_version,
                values: switch.values.slots().to_vec(),
            },
        )
    }

    pub(super) fn network_row(&self) -> Row {
        Row::Network {
            cluster: self.settings.cluster,
            family: self.settings.family,
            key: self.settings.key.clone(),
            mode: self.settings.mode,
            kind: self.settings.kind,
            value_bits: self.settings.value_bits,
            change: self.change,
            next_node: self.next_node,
            next_table: self.next_table,
        }
    }
}
