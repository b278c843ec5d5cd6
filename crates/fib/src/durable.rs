//! What a store must keep, as rows of bytes: everything that a restarted controller needs to derive the same cells.
//!
//! A store keeps one map from (kind, key) to value. Every mutation of a network returns the rows that it changed, to
//! be committed before its messages go out; all rows together restore the network. Keys sort by meaning (big-endian);
//! values are little-endian, as in [`codec`](crate::codec).
//!
//! | kind | key | value |
//! |---|---|---|
//! | 1 network | | cluster, hash family and key, mode, kind of name, widths, counters |
//! | 2 switch | id | name, tenants, table, versions, what its values stand for |
//! | 3 link | lesser end | other end, cost, state; how much longer it counts and its weight, unless that is nothing and 1 |
//! | 4 host port | switch, port | |
//! | 5 name | its bytes | attachment |
//! | 6 table | id | tenants, version of the valid names, design, bits of a fingerprint |
//! | 7 part | table, and what the design adds | what the design needs to restore the arrangement of its names |
//! | 8 egress index | index | switch, since when out of use |
//! | 9 view | table, switch (0 for all of the table), and what the design adds | what the design needs to restore the switch's table |

use crate::action::PortId;
use crate::codec::{DecodeError, Input, put_bytes, put_ip, put_u32, put_u64};
use crate::designs::CONCISE;
use crate::messages::ValueMode;
use crate::name::{Name, NameKind};
use crate::rib::Attachment;
use crate::topology::{End, Link, NodeId, check_weight};
use crate::value_allocation::{Meaning, Slot};
use lookup::hash::{Family, SecretKey};
use std::collections::BTreeSet;

mod salvage;
pub use salvage::{Lost, Salvaged, salvage, settings_of};

/// The kind of the rows of views. What they say depends on which switches are attached, and to what; without them a switch
/// is sent more than it lacks, at worst.
pub const VIEW: u8 = 9;

/// One change of the store.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RowChange {
    /// Which kind of row.
    pub kind: u8,
    /// Its key among the rows of its kind.
    pub key: Vec<u8>,
    /// Its value; `None` deletes the row.
    pub value: Option<Vec<u8>>,
}

impl RowChange {
    /// The deletion of this row.
    pub fn delete(self) -> RowChange {
        RowChange { value: None, ..self }
    }
}

/// Whose names a switch holds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Tenants {
    /// All names.
    All,
    /// Names of these tenants; such a switch carries no transit traffic.
    Only(BTreeSet<u32>),
}

impl Tenants {
    /// Whether names of this tenant are among them.
    pub fn holds(&self, tenant: u32) -> bool {
        match self {
            Tenants::All => true,
            Tenants::Only(tenants) => tenants.contains(&tenant),
        }
    }
}

/// A decoded row.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Row {
    Network {
        cluster: u64,
        family: Family,
        key: SecretKey,
        mode: ValueMode,
        kind: NameKind,
        value_bits: u8,
        change: u64,
        next_node: u32,
        next_table: u32,
    },
    Switch(NodeId, SwitchRow),
    Link(Link),
    HostPort(End),
    Name(Name, Attachment),
    Table {
        id: u32,
        tenants: Tenants,
        valid_version: u64,
        /// Its name, and the bits of a fingerprint.
        design: (String, u8),
    },
    Part {
        table: u32,
        /// The key without the table.
        key: Vec<u8>,
        value: Vec<u8>,
    },
    /// The data that a design needs to restore one switch's table.
    View {
        table: u32,
        of: Option<NodeId>,
        key: Vec<u8>,
        value: Vec<u8>,
    },
    Egress {
        index: u16,
        slot: Slot<NodeId>,
    },
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct SwitchRow {
    pub(crate) name: String,
    pub(crate) tenants: Tenants,
    pub(crate) table: u32,
    pub(crate) local_version: u64,
    pub(crate) actions_version: u64,
    pub(crate) values: Vec<Slot<Meaning>>,
}

fn end_key(end: End) -> Vec<u8> {
    let mut key = end.node.0.to_be_bytes().to_vec();
    key.extend(end.port.0.to_be_bytes());
    key
}

fn part_key(table: u32, key: &[u8]) -> Vec<u8> {
    [&table.to_be_bytes(), key].concat()
}

fn view_key(table: u32, of: Option<NodeId>, key: &[u8]) -> Vec<u8> {
    [&table.to_be_bytes(), &of.map_or(0, |node| node.0).to_be_bytes(), key].concat()
}

fn put_tenants(out: &mut Vec<u8>, tenants: &Tenants) {
    match tenants {
        Tenants::All => out.push(0),
        Tenants::Only(tenants) => {
            out.push(1);
            put_u32(out, tenants.len() as u32);
            tenants.iter().for_each(|tenant| put_u32(out, *tenant));
        }
    }
}

fn tenants(input: &mut Input<'_>) -> Result<Tenants, DecodeError> {
    Ok(match input.u8()? {
        0 => Tenants::All,
        1 => {
            let count = input.count(4)?;
            Tenants::Only((0..count).map(|_| input.u32()).collect::<Result<_, _>>()?)
        }
        other => return Err(DecodeError::Unknown { field: "tenants", got: other.into() }),
    })
}

fn put_state<T>(out: &mut Vec<u8>, slot: &Slot<T>) {
    out.push(u8::from(slot.retired_at.is_some()) | u8::from(slot.since > 0) << 1);
    put_u64(out, slot.retired_at.unwrap_or(0));
    if slot.since > 0 {
        put_u64(out, slot.since);
    }
}

fn slot<T>(value: T, input: &mut Input<'_>) -> Result<Slot<T>, DecodeError> {
    let state = input.u8()?;
    if state > 3 {
        return Err(DecodeError::Unknown { field: "state of a value", got: state.into() });
    }
    let at = input.u64()?;
    let since = if state & 2 != 0 { input.u64()? } else { 0 };
    Ok(Slot { value, retired_at: (state & 1 != 0).then_some(at), since })
}

/// Ports are as actions were in rows from before switches could be values.
fn put_meaning(out: &mut Vec<u8>, meaning: Meaning) {
    match meaning {
        Meaning::Port(port) => {
            out.push(1);
            out.extend_from_slice(&port.0.to_le_bytes());
        }
        Meaning::Switch(node) => {
            out.push(128);
            put_u32(out, node.0);
        }
    }
}

fn meaning(input: &mut Input<'_>) -> Result<Meaning, DecodeError> {
    Ok(match input.u8()? {
        1 => Meaning::Port(PortId(input.u16()?)),
        128 => Meaning::Switch(NodeId(input.u32()?)),
        other => return Err(DecodeError::Unknown { field: "meaning of a value", got: other.into() }),
    })
}

impl Row {
    /// The deletion of this row.
    pub(crate) fn delete(self) -> RowChange {
        self.encode().delete()
    }

    /// Part of the arrangement of a table's names; `None` deletes it.
    pub(crate) fn part(table: u32, key: Vec<u8>, value: Option<Vec<u8>>) -> RowChange {
        RowChange { kind: 7, key: part_key(table, &key), value }
    }

    /// Part of what a design keeps of one switch's table; `None` deletes it.
    pub(crate) fn view(table: u32, of: Option<NodeId>, row: lookup::traits::Row) -> RowChange {
        RowChange { kind: VIEW, key: view_key(table, of, &row.key), value: row.value }
    }

    pub(crate) fn delete_name(name: &Name) -> RowChange {
        RowChange { kind: 5, key: name.as_bytes().to_vec(), value: None }
    }

    pub(crate) fn encode(&self) -> RowChange {
        let mut value = Vec::new();
        let out = &mut value;
        let (kind, row_key) = match self {
            Row::Network { cluster, family, key, mode, kind, value_bits, change, next_node, next_table } => {
                put_u64(out, *cluster);
                out.push(family.id());
                out.extend_from_slice(key.as_bytes());
                out.push(matches!(mode, ValueMode::Egress).into());
                out.extend_from_slice(&kind.to_wire());
                out.push(*value_bits);
                put_u64(out, *change);
                put_u32(out, *next_node);
                put_u32(out, *next_table);
                (1, Vec::new())
            }
            Row::Switch(id, row) => {
                put_bytes(out, row.name.as_bytes());
                put_tenants(out, &row.tenants);
                put_u32(out, row.table);
                put_u64(out, row.local_version);
                put_u64(out, row.actions_version);
                put_u32(out, row.values.len() as u32);
                for slot in &row.values {
                    put_meaning(out, slot.value);
                    put_state(out, slot);
                }
                (2, id.0.to_be_bytes().to_vec())
            }
            Row::Link(link) => {
                put_u32(out, link.b.node.0);
                out.extend_from_slice(&link.b.port.0.to_le_bytes());
                put_u32(out, link.cost);
                let weighs = link.weight != 1;
                let state = u8::from(link.up) | u8::from(link.cut) << 1;
                let found = u8::from(link.found) << 4;
                out.push(state | u8::from(link.raised > 0) << 2 | u8::from(weighs) << 3 | found);
                if link.raised > 0 {
                    put_u32(out, link.raised);
                }
                out.extend(weighs.then_some(link.weight));
                (3, end_key(link.a))
            }
            Row::HostPort(end) => (4, end_key(*end)),
            Row::Name(name, attachment) => {
                put_u32(out, attachment.switch.0);
                out.extend_from_slice(&attachment.port.0.to_le_bytes());
                put_u32(out, attachment.tenant);
                put_ip(out, attachment.ip);
                (5, name.as_bytes().to_vec())
            }
            Row::Table { id, tenants, valid_version, design: (design, fingerprint_bits) } => {
                put_tenants(out, tenants);
                put_u64(out, *valid_version);
                put_bytes(out, design.as_bytes());
                out.push(*fingerprint_bits);
                (6, id.to_be_bytes().to_vec())
            }
            Row::Part { table, key, value } => {
                out.extend_from_slice(value);
                (7, part_key(*table, key))
            }
            Row::View { table, of, key, value } => {
                out.extend_from_slice(value);
                (9, view_key(*table, *of, key))
            }
            Row::Egress { index, slot } => {
                put_u32(out, slot.value.0);
                put_state(out, slot);
                (8, index.to_be_bytes().to_vec())
            }
        };
        RowChange { kind, key: row_key, value: Some(value) }
    }

    /// The row in `key` and `value`; `names` is the kind of the network's names.
    pub(crate) fn decode(kind: u8, key: &[u8], value: &[u8], names: NameKind) -> Result<Row, DecodeError> {
        let mut key_input = Input::raw(key);
        let mut input = Input::raw(value);
        let be_u32 = |input: &mut Input<'_>| Ok::<_, DecodeError>(u32::from_be_bytes(input.array()?));
        let be_end = |input: &mut Input<'_>| {
            Ok::<_, DecodeError>(End {
                node: NodeId(u32::from_be_bytes(input.array()?)),
                port: PortId(u16::from_be_bytes(input.array()?)),
            })
        };
        let row = match kind {
            1 => {
                let cluster = input.u64()?;
                let family = input.u8()?;
                let family = Family::from_id(family)
                    .map_err(|_| DecodeError::Unknown { field: "hash family", got: family.into() })?;
                Row::Network {
                    cluster,
                    family,
                    key: SecretKey::from_bytes(input.array()?),
                    mode: if input.u8()? == 0 { ValueMode::Port } else { ValueMode::Egress },
                    kind: input.kind()?,
                    value_bits: input.u8()?,
                    change: input.u64()?,
                    next_node: input.u32()?,
                    next_table: input.u32()?,
                }
            }
            2 => {
                let id = NodeId(be_u32(&mut key_input)?);
                let name = String::from_utf8(input.bytes()?.to_vec())
                    .map_err(|_| DecodeError::Unknown { field: "name of a switch", got: id.0.into() })?;
                let (tenants, table) = (tenants(&mut input)?, input.u32()?);
                let (local_version, actions_version) = (input.u64()?, input.u64()?);
                let count = input.count(10)?;
                let values =
                    (0..count).map(|_| slot(meaning(&mut input)?, &mut input)).collect::<Result<_, DecodeError>>()?;
                Row::Switch(id, SwitchRow { name, tenants, table, local_version, actions_version, values })
            }
            3 => {
                let a = be_end(&mut key_input)?;
                let b = End { node: NodeId(input.u32()?), port: PortId(input.u16()?) };
                let (cost, state) = (input.u32()?, input.u8()?);
                if state > 31 {
                    return Err(DecodeError::Unknown { field: "state of a link", got: state.into() });
                }
                let raised = if state & 4 != 0 { input.u32()? } else { 0 };
                let weight = if state & 8 != 0 { input.u8()? } else { 1 };
                check_weight(weight)
                    .map_err(|_| DecodeError::Unknown { field: "weight of a link", got: weight.into() })?;
                let [up, cut, found] = [1, 2, 16].map(|bit| state & bit != 0);
                Row::Link(Link { a, b, cost, raised, weight, up, cut, found })
            }
            4 => Row::HostPort(be_end(&mut key_input)?),
            5 => {
                let name = Name::from_bytes(names, key_input.take(key.len())?)?;
                let (switch, port) = (NodeId(input.u32()?), PortId(input.u16()?));
                Row::Name(name, Attachment { switch, port, tenant: input.u32()?, ip: input.ip()? })
            }
            6 => {
                let id = be_u32(&mut key_input)?;
                let (tenants, valid_version) = (tenants(&mut input)?, input.u64()?);
                // Rows from before designs could be chosen end here.
                let design = if input.is_empty() {
                    (CONCISE.name.to_owned(), 0)
                } else {
                    (String::from_utf8_lossy(input.bytes()?).into_owned(), input.u8()?)
                };
                Row::Table { id, tenants, valid_version, design }
            }
            7 => {
                let table = be_u32(&mut key_input)?;
                let rest = |input: &mut Input<'_>| input.rest().to_vec();
                Row::Part { table, key: rest(&mut key_input), value: rest(&mut input) }
            }
            9 => {
                let table = be_u32(&mut key_input)?;
                let of = Some(NodeId(be_u32(&mut key_input)?)).filter(|node| node.0 != 0);
                let rest = |input: &mut Input<'_>| input.rest().to_vec();
                Row::View { table, of, key: rest(&mut key_input), value: rest(&mut input) }
            }
            8 => {
                let index = u16::from_be_bytes(key_input.array()?);
                let value = NodeId(input.u32()?);
                Row::Egress { index, slot: slot(value, &mut input)? }
            }
            other => return Err(DecodeError::Unknown { field: "kind of row", got: other.into() }),
        };
        key_input.end()?;
        input.end()?;
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows() -> Vec<Row> {
        let end = |node, port| End { node: NodeId(node), port: PortId(port) };
        let name = Name::parse(NameKind::Mac, "02:00:00:00:00:01").unwrap();
        let ip = Some("fd00::1".parse().unwrap());
        let only = Tenants::Only([1, 7].into());
        let value = |value, retired_at, since| Slot { value, retired_at, since };
        let switch = SwitchRow {
            name: "s1".into(),
            tenants: only.clone(),
            table: 2,
            local_version: 3,
            actions_version: 4,
            values: vec![
                value(Meaning::Port(PortId(1)), None, 0),
                value(Meaning::Port(PortId(2)), Some(8), 5),
                value(Meaning::Switch(NodeId(9)), None, 3),
            ],
        };
        vec![
            Row::Network {
                cluster: 1,
                family: Family::SipHash13,
                key: SecretKey::from_seed(1),
                mode: ValueMode::Egress,
                kind: NameKind::Mac,
                value_bits: 8,
                change: 7,
                next_node: 3,
                next_table: 4,
            },
            Row::Switch(NodeId(2), switch),
            Row::Link(Link {
                a: end(1, 2),
                b: end(3, 4),
                cost: 5,
                raised: 0,
                weight: 1,
                up: false,
                cut: true,
                found: false,
            }),
            Row::Link(Link {
                a: end(1, 3),
                b: end(3, 5),
                cost: 5,
                raised: 9,
                weight: 1,
                up: true,
                cut: false,
                found: true,
            }),
            Row::Link(Link {
                a: end(1, 4),
                b: end(3, 6),
                cost: 5,
                raised: 9,
                weight: 64,
                up: true,
                cut: false,
                found: false,
            }),
            Row::HostPort(end(1, 9)),
            Row::Name(name, Attachment { ip, tenant: 7, ..Attachment::new(NodeId(1), PortId(9)) }),
            Row::Table { id: 1, tenants: Tenants::All, valid_version: 8, design: ("concise".into(), 0) },
            Row::Table { id: 2, tenants: only, valid_version: 8, design: ("cfw".into(), 10) },
            Row::Part { table: 2, key: vec![1, 2, 3], value: vec![4, 5] },
            Row::Part { table: 2, key: vec![], value: vec![] },
            Row::View { table: 2, of: Some(NodeId(3)), key: vec![1], value: vec![4] },
            Row::View { table: 2, of: None, key: vec![], value: vec![] },
            Row::Egress { index: 3, slot: Slot { retired_at: Some(5), ..Slot::new(NodeId(4)) } },
        ]
    }

    #[test]
    fn rows_round_trip() {
        for row in rows() {
            let RowChange { kind, key, value } = row.encode();
            assert_eq!(Row::decode(kind, &key, &value.unwrap(), NameKind::Mac), Ok(row));
        }
    }

    #[test]
    fn declared_links_of_weight_1_are_as_they_were_before_there_were_weights_and_marks() {
        let end = |node, port| End { node: NodeId(node), port: PortId(port) };
        let link =
            Link { a: end(1, 2), b: end(3, 4), cost: 5, raised: 0, weight: 1, up: true, cut: false, found: false };
        let (key, value) = ([0, 0, 0, 1, 0, 2], [3, 0, 0, 0, 4, 0, 5, 0, 0, 0, 1]);
        let before = RowChange { kind: 3, key: key.to_vec(), value: Some(value.to_vec()) };
        assert_eq!(Row::Link(link).encode(), before);
        assert_eq!(Row::decode(3, &key, &value, NameKind::Mac), Ok(Row::Link(link)));
        let longer = RowChange { value: Some([&value[..10], &[5, 9, 0, 0, 0]].concat()), ..before };
        assert_eq!(Row::Link(Link { raised: 9, ..link }).encode(), longer);

        let weighed = |weight: u8| [&value[..10], &[9, weight]].concat();
        assert_eq!(Row::Link(Link { weight: 7, ..link }).encode().value, Some(weighed(7)));
        // Of a link without the mark it is known that it was declared; no later mark is passed over.
        let found = [&value[..10], &[1 | 16]].concat();
        assert_eq!(Row::Link(Link { found: true, ..link }).encode().value.as_ref(), Some(&found));
        assert_eq!(Row::decode(3, &key, &found, NameKind::Mac), Ok(Row::Link(Link { found: true, ..link })));
        let later = [&value[..10], &[1 | 32]].concat();
        let unknown = DecodeError::Unknown { field: "state of a link", got: 33 };
        assert_eq!(Row::decode(3, &key, &later, NameKind::Mac), Err(unknown));
        for weight in [0, 65] {
            let wrong = DecodeError::Unknown { field: "weight of a link", got: weight.into() };
            assert_eq!(Row::decode(3, &key, &weighed(weight), NameKind::Mac), Err(wrong));
        }
    }

    #[test]
    fn tables_from_before_there_were_designs_are_concise() {
        let row = Row::Table { id: 1, tenants: Tenants::All, valid_version: 8, design: ("concise".into(), 0) };
        let RowChange { kind, key, value } = row.encode();
        let value = value.unwrap();
        let old = &value[..value.len() - 4 - "concise".len() - 1];
        assert_eq!(Row::decode(kind, &key, old, NameKind::Mac), Ok(row));
    }

    /// As a version wrote it in which values were ports alone: of two ports, one retired.
    #[test]
    fn a_switch_from_before_values_could_be_switches_is_read_and_written_as_it_was() {
        let written: &[&[u8]] = &[
            b"\x02\0\0\0s1\0",
            b"\x03\0\0\0\x07\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x02\0\0\0",
            b"\x01\x05\0\0\0\0\0\0\0\0\0\0",
            b"\x01\x06\x80\x01\x2a\0\0\0\0\0\0\0",
        ];
        let (key, written) = ([0, 0, 0, 4], written.concat());
        let row = Row::decode(2, &key, &written, NameKind::Mac).unwrap();
        let Row::Switch(NodeId(4), switch) = &row else { panic!("{row:?}") };
        assert_eq!((&*switch.name, switch.table, switch.local_version, switch.actions_version), ("s1", 3, 7, 9));
        let retired = Slot { retired_at: Some(42), ..Slot::new(Meaning::Port(PortId(0x8006))) };
        assert_eq!(switch.values, [Slot::new(Meaning::Port(PortId(5))), retired]);
        assert_eq!(row.encode().value.unwrap(), written);
    }

    proptest! {
        #[test]
        fn damaged_rows_never_panic(which in 0usize..14, at in any::<proptest::sample::Index>(), byte in any::<u8>()) {
            let RowChange { kind, key, value } = rows()[which].encode();
            let value = value.unwrap();
            let mut changed = value.clone();
            if !changed.is_empty() {
                let at = at.index(changed.len());
                changed[at] = byte;
                let _ = Row::decode(kind, &key, &changed[..at], NameKind::Mac);
            }
            let _ = Row::decode(kind, &key, &changed, NameKind::Mac);
            let _ = Row::decode(byte, &key, &value, NameKind::Mac);
            let _ = Row::decode(kind, &value, &key, NameKind::Mac);
        }
    }
}
