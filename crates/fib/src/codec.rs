//! Southbound messages to bytes and back.
//!
//! Little-endian integers; the layout is drawn in `docs/formats/southbound-messages.md`. A decoder trusts nothing. It
//! checks every length against the bytes present before it allocates, so a message of n bytes makes it allocate at most
//! a small multiple of n. It checks every index and enumeration, and refuses trailing bytes.

use crate::action::{Action, PortId, Ways};
use crate::designs::{self, Spec};
use crate::messages::{
    Body, ExactUpdate, ExactValue, Held, Message, Report, TableHeader, Updates, Uplink, ValueMode, fingerprint,
};
use crate::name::{Name, NameError, NameKind};
use crate::topology::NodeId;
use lookup::base::bytes::{Bytes, BytesError};
use lookup::base::part::HeldPart;
use lookup::base::part::PartId;
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};

/// First byte of every message.
pub const FORMAT: u8 = 2;
/// Longest message, in bytes. Senders cut longer content into parts.
pub const MAX_MESSAGE: usize = 64 << 20;
/// Where senders cut: a part of an image or of an exact table has about this many bytes. Both ends of a stream keep memory
/// for the longest message that went over it, so a controller of a thousand switches pays this a thousand times.
pub const PART_BYTES: usize = 1 << 16;
/// Most parts of one image or exact table.
pub const MAX_PARTS: u32 = 1 << 20;
/// Most entries of an action table.
pub const MAX_ACTIONS: usize = 1 << 16;
const MAX_DEPTH: u8 = 32;

impl Message {
    /// The message as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT, 0];
        put_u64(&mut out, self.cluster);
        put_u64(&mut out, self.term);
        put_u32(&mut out, self.node.0);
        put_u64(&mut out, self.change);
        out[1] = match &self.body {
            Body::Table(header) => {
                header.encode(&mut out);
                1
            }
            Body::Image { table, part, parts, bytes } => {
                [*table, *part, *parts].into_iter().for_each(|field| put_u32(&mut out, field));
                put_bytes(&mut out, bytes);
                2
            }
            Body::Updates { table, updates } => {
                put_u32(&mut out, *table);
                put_u32(&mut out, updates.len() as u32);
                out.extend_from_slice(updates.as_bytes());
                3
            }
            Body::Resync { table, bytes } => {
                put_u32(&mut out, *table);
                put_bytes(&mut out, bytes);
                7
            }
            Body::Actions { version, actions } => {
                put_u64(&mut out, *version);
                put_actions(&mut out, actions);
                4
            }
            Body::Valid(update) => {
                update.encode(&mut out);
                5
            }
            Body::Local(update) => {
                update.encode(&mut out);
                6
            }
        };
        out
    }

    /// Whether these bytes are of a message with an action table, if they are of a message.
    pub fn has_actions(bytes: &[u8]) -> bool {
        bytes.get(1) == Some(&4)
    }

    /// Decodes a message.
    /// # Errors
    /// [`DecodeError`]; allocates no more than the bytes justify.
    pub fn decode(bytes: &[u8]) -> Result<Message, DecodeError> {
        let mut input = Input::new(bytes)?;
        let kind = input.u8()?;
        let (cluster, term, node, change) = (input.u64()?, input.u64()?, NodeId(input.u32()?), input.u64()?);
        let body = match kind {
            1 => Body::Table(TableHeader::decode(&mut input)?),
            2 => {
                let (table, (part, parts)) = (input.u32()?, input.part()?);
                Body::Image { table, part, parts, bytes: input.bytes()?.to_vec() }
            }
            3 => {
                let (table, count) = (input.u32()?, input.u32()?);
                let start = input.0.0;
                for _ in 0..count {
                    input.bytes()?;
                }
                let bytes = &start[..start.len() - input.0.0.len()];
                Body::Updates { table, updates: Updates::of_checked(count, bytes) }
            }
            4 => Body::Actions { version: input.u64()?, actions: input.actions()? },
            5 => Body::Valid(ExactUpdate::decode(&mut input, |input| input.ip())?),
            6 => Body::Local(ExactUpdate::decode(&mut input, |input| Ok(PortId(input.u16()?)))?),
            7 => Body::Resync { table: input.u32()?, bytes: input.bytes()?.to_vec() },
            _ => return Err(DecodeError::Unknown { field: "kind of message", got: kind.into() }),
        };
        input.end()?;
        Ok(Message { cluster, term, node, change, body })
    }
}

impl Uplink {
    /// The answer as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        match self {
            Uplink::Report(report) => {
                out.push(1);
                put_u64(&mut out, report.cluster);
                put_u64(&mut out, report.term);
                put_u32(&mut out, report.table);
                put_u64(&mut out, report.header);
                for held in [report.actions, report.valid, report.local] {
                    put_u64(&mut out, held.version);
                    put_u64(&mut out, held.digest);
                }
                put_u32(&mut out, report.shards.len() as u32);
                for shard in &report.shards {
                    put_u32(&mut out, shard.id.prefix);
                    out.push(shard.id.depth);
                    put_u64(&mut out, shard.version);
                    put_u64(&mut out, shard.digest);
                }
            }
            Uplink::Ack { change } => {
                out.push(2);
                put_u64(&mut out, *change);
            }
        }
        out
    }

    /// Decodes an answer.
    /// # Errors
    /// [`DecodeError`]; allocates no more than the bytes justify.
    pub fn decode(bytes: &[u8]) -> Result<Uplink, DecodeError> {
        let mut input = Input::new(bytes)?;
        let uplink = match input.u8()? {
            1 => {
                let (cluster, term, table, header) = (input.u64()?, input.u64()?, input.u32()?, input.u64()?);
                let (actions, valid, local) = (input.held()?, input.held()?, input.held()?);
                let n_shards = input.count(21)?;
                let mut shards = Vec::with_capacity(n_shards);
                for _ in 0..n_shards {
                    let id = PartId { prefix: input.u32()?, depth: input.u8()? };
                    if id.depth > MAX_DEPTH || u64::from(id.prefix) >> id.depth != 0 {
                        return Err(DecodeError::Unknown { field: "shard", got: id.prefix.into() });
                    }
                    shards.push(HeldPart { id, version: input.u64()?, digest: input.u64()? });
                }
                Uplink::Report(Report { cluster, term, table, header, actions, valid, local, shards })
            }
            2 => Uplink::Ack { change: input.u64()? },
            other => return Err(DecodeError::Unknown { field: "kind of answer", got: other.into() }),
        };
        input.end()?;
        Ok(uplink)
    }
}

impl TableHeader {
    fn encode(&self, out: &mut Vec<u8>) {
        put_u32(out, self.table);
        self.spec.encode(out);
        out.push(match self.mode {
            ValueMode::Port => 1,
            ValueMode::Egress => 2,
        });
        out.push(u8::from(self.gateway) | u8::from(self.reset) << 1);
    }

    fn decode(input: &mut Input<'_>) -> Result<TableHeader, DecodeError> {
        let (table, spec) = (input.u32()?, Spec::decode(input)?);
        let mode = match input.u8()? {
            1 => ValueMode::Port,
            2 => ValueMode::Egress,
            other => return Err(DecodeError::Unknown { field: "value mode", got: other.into() }),
        };
        let flags = input.u8()?;
        if flags > 3 {
            return Err(DecodeError::Unknown { field: "flags", got: flags.into() });
        }
        Ok(TableHeader { table, spec, mode, gateway: flags & 1 != 0, reset: flags & 2 != 0 })
    }

    /// The fingerprint by which a [`Report`] identifies this header.
    pub fn fingerprint(&self) -> u64 {
        let mut bytes = Vec::new();
        TableHeader { reset: false, ..self.clone() }.encode(&mut bytes);
        fingerprint(&bytes)
    }
}

impl<V: ExactValue> ExactUpdate<V> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ExactUpdate::Load { kind, version, digest, part, parts, entries } => {
                out.push(1);
                out.extend_from_slice(&kind.to_wire());
                put_u64(out, *version);
                put_u64(out, *digest);
                put_u32(out, *part);
                put_u32(out, *parts);
                put_entries(out, entries);
            }
            ExactUpdate::Delta { kind, from, to, digest, put, remove } => {
                out.push(2);
                out.extend_from_slice(&kind.to_wire());
                [*from, *to, *digest].into_iter().for_each(|field| put_u64(out, field));
                put_entries(out, put);
                put_u32(out, remove.len() as u32);
                remove.iter().for_each(|name| put_name(out, name));
            }
        }
    }

    fn decode(
        input: &mut Input<'_>,
        value: impl Fn(&mut Input<'_>) -> Result<V, DecodeError>,
    ) -> Result<ExactUpdate<V>, DecodeError> {
        let form = input.u8()?;
        let kind = input.kind()?;
        match form {
            1 => {
                let (version, digest, (part, parts)) = (input.u64()?, input.u64()?, input.part()?);
                let entries = input.entries(kind, &value)?;
                Ok(ExactUpdate::Load { kind, version, digest, part, parts, entries })
            }
            2 => {
                let (from, to, digest) = (input.u64()?, input.u64()?, input.u64()?);
                let put = input.entries(kind, &value)?;
                let n_removed = input.count(2)?;
                let remove = (0..n_removed).map(|_| input.name(kind)).collect::<Result<_, _>>()?;
                Ok(ExactUpdate::Delta { kind, from, to, digest, put, remove })
            }
            other => Err(DecodeError::Unknown { field: "form of an exact update", got: other.into() }),
        }
    }
}

impl ExactValue for Option<IpAddr> {
    fn encode(&self, out: &mut Vec<u8>) {
        put_ip(out, *self);
    }
}

impl ExactValue for PortId {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes());
    }
}

pub(crate) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}

pub(crate) fn put_ip(out: &mut Vec<u8>, ip: Option<IpAddr>) {
    match ip {
        None => out.push(0),
        Some(IpAddr::V4(v4)) => {
            out.push(4);
            out.extend_from_slice(&v4.octets());
        }
        Some(IpAddr::V6(v6)) => {
            out.push(6);
            out.extend_from_slice(&v6.octets());
        }
    }
}

pub(crate) fn put_action(out: &mut Vec<u8>, action: &Action) {
    match action {
        Action::Drop => out.push(0),
        Action::Port(port) => {
            out.push(1);
            out.extend_from_slice(&port.0.to_le_bytes());
        }
        Action::Local => out.push(2),
        Action::Tunnel { node, remote } => {
            out.push(3);
            put_u32(out, node.0);
            put_ip(out, Some(*remote));
        }
        Action::Punt => out.push(4),
        Action::Protected { port, alternate } => {
            out.push(5);
            out.extend_from_slice(&port.0.to_le_bytes());
            out.extend_from_slice(&alternate.0.to_le_bytes());
        }
        // Ways of one weight are as they were before there were weights, so switches of that time read them.
        Action::Spread { ways, alternate } => {
            let is_even = ways.is_even();
            out.extend([if is_even { 6 } else { 7 }, ways.len() as u8, alternate.is_some().into()]);
            for (port, weight) in ways.with_weights() {
                out.extend_from_slice(&port.0.to_le_bytes());
                out.extend((!is_even).then_some(weight));
            }
            alternate.iter().for_each(|port| out.extend_from_slice(&port.0.to_le_bytes()));
        }
    }
}

fn put_actions(out: &mut Vec<u8>, actions: &[Action]) {
    put_u32(out, actions.len() as u32);
    actions.iter().for_each(|action| put_action(out, action));
}

/// The digest of an action table, as [`Held`] carries it.
pub fn actions_digest(actions: &[Action]) -> u64 {
    let mut bytes = Vec::new();
    put_actions(&mut bytes, actions);
    fingerprint(&bytes)
}

/// What values mean, as a table in memory says it: 24 bytes an action, the first for value 0.
pub fn actions_in_memory(actions: &[Action]) -> Vec<u8> {
    let mut out = Vec::with_capacity(24 * actions.len());
    for (value, action) in (0..).zip(actions) {
        let mut record = [0; 24];
        match action {
            Action::Drop => {}
            // Other readers do not know which ports are down. They do not choose by flow: each value has one of its ways.
            Action::Port(_) | Action::Protected { .. } | Action::Spread { .. } => {
                record[0] = 1;
                record[2..4].copy_from_slice(&action.port_for(value).unwrap_or_default().0.to_le_bytes());
            }
            Action::Local => record[0] = 2,
            Action::Tunnel { node, remote } => {
                record[0] = 3;
                record[4..8].copy_from_slice(&node.0.to_le_bytes());
                match remote {
                    IpAddr::V4(address) => {
                        record[1] = 4;
                        record[8..12].copy_from_slice(&address.octets());
                    }
                    IpAddr::V6(address) => {
                        record[1] = 16;
                        record[8..].copy_from_slice(&address.octets());
                    }
                }
            }
            Action::Punt => record[0] = 4,
        }
        out.extend_from_slice(&record);
    }
    out
}

fn put_name(out: &mut Vec<u8>, name: &Name) {
    let bytes = name.as_bytes();
    out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_entries<V: ExactValue>(out: &mut Vec<u8>, entries: &[(Name, V)]) {
    put_u32(out, entries.len() as u32);
    for (name, value) in entries {
        put_name(out, name);
        value.encode(out);
    }
}

/// Most bytes that an entry of an exact table takes in a message.
pub(crate) fn entry_bytes(name: &Name) -> usize {
    2 + name.as_bytes().len() + 17
}

/// [`Bytes`], with readers for the fields of messages and rows.
pub(crate) struct Input<'a>(Bytes<'a>);

impl<'a> Deref for Input<'a> {
    type Target = Bytes<'a>;
    fn deref(&self) -> &Bytes<'a> {
        &self.0
    }
}

impl<'a> DerefMut for Input<'a> {
    fn deref_mut(&mut self) -> &mut Bytes<'a> {
        &mut self.0
    }
}

impl<'a> Input<'a> {
    fn new(bytes: &'a [u8]) -> Result<Input<'a>, DecodeError> {
        if bytes.len() > MAX_MESSAGE {
            return Err(DecodeError::TooLong { got: bytes.len(), max: MAX_MESSAGE });
        }
        let mut input = Input::raw(bytes);
        match input.u8()? {
            FORMAT => Ok(input),
            got => Err(DecodeError::Format { got, expected: FORMAT }),
        }
    }

    /// Fields without a format byte before them, such as a stored row.
    pub(crate) fn raw(bytes: &'a [u8]) -> Input<'a> {
        Input(Bytes(bytes))
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let n = self.u32()? as usize;
        Ok(self.take(n)?)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.0.is_empty()
    }

    /// The remaining bytes.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0.0)
    }

    fn held(&mut self) -> Result<Held, DecodeError> {
        Ok(Held { version: self.u64()?, digest: self.u64()? })
    }

    fn part(&mut self) -> Result<(u32, u32), DecodeError> {
        let (part, parts) = (self.u32()?, self.u32()?);
        if part >= parts || parts > MAX_PARTS {
            return Err(DecodeError::Unknown { field: "part", got: part.into() });
        }
        Ok((part, parts))
    }

    pub(crate) fn kind(&mut self) -> Result<NameKind, DecodeError> {
        let wire = self.array()?;
        NameKind::from_wire(wire).ok_or(DecodeError::Unknown { field: "kind of name", got: wire[0].into() })
    }

    pub(crate) fn ip(&mut self) -> Result<Option<IpAddr>, DecodeError> {
        Ok(match self.u8()? {
            0 => None,
            4 => Some(IpAddr::from(self.array::<4>()?)),
            6 => Some(IpAddr::from(self.array::<16>()?)),
            other => return Err(DecodeError::Unknown { field: "IP version", got: other.into() }),
        })
    }

    pub(crate) fn action(&mut self) -> Result<Action, DecodeError> {
        Ok(match self.u8()? {
            0 => Action::Drop,
            1 => Action::Port(PortId(self.u16()?)),
            2 => Action::Local,
            3 => {
                let node = NodeId(self.u32()?);
                let remote = self.ip()?.ok_or(DecodeError::Unknown { field: "tunnel address", got: 0 })?;
                Action::Tunnel { node, remote }
            }
            4 => Action::Punt,
            5 => Action::Protected { port: PortId(self.u16()?), alternate: PortId(self.u16()?) },
            kind @ (6 | 7) => {
                let (n, has_alternate) = (self.u8()?, self.u8()?);
                if has_alternate > 1 {
                    return Err(DecodeError::Unknown { field: "flag of an alternate", got: has_alternate.into() });
                }
                let weighed = (0..n)
                    .map(|_| Ok((PortId(self.u16()?), if kind == 7 { self.u8()? } else { 1 })))
                    .collect::<Result<Vec<_>, DecodeError>>()?;
                // One form only, so that equal tables have equal digests.
                let is_that =
                    |ways: &Ways| ways.with_weights().eq(weighed.iter().copied()) && ways.is_even() == (kind == 6);
                let ways = Ways::weighed(weighed.iter().copied()).filter(is_that);
                let ways = ways.ok_or(DecodeError::Unknown { field: "list of ports", got: n.into() })?;
                let alternate = if has_alternate == 1 { Some(PortId(self.u16()?)) } else { None };
                Action::Spread { ways, alternate }
            }
            other => return Err(DecodeError::Unknown { field: "action", got: other.into() }),
        })
    }

    pub(crate) fn actions(&mut self) -> Result<Vec<Action>, DecodeError> {
        let count = self.count(1)?;
        if count > MAX_ACTIONS {
            return Err(DecodeError::TooLong { got: count, max: MAX_ACTIONS });
        }
        let actions = (0..count).map(|_| self.action()).collect::<Result<Vec<_>, _>>()?;
        match actions.first() {
            Some(Action::Drop) => Ok(actions),
            _ => Err(DecodeError::Unknown { field: "action of index 0", got: 1 }),
        }
    }

    pub(crate) fn name(&mut self, kind: NameKind) -> Result<Name, DecodeError> {
        let n = usize::from(self.u16()?);
        Ok(Name::from_bytes(kind, self.take(n)?)?)
    }

    fn entries<V>(
        &mut self,
        kind: NameKind,
        value: impl Fn(&mut Input<'_>) -> Result<V, DecodeError>,
    ) -> Result<Vec<(Name, V)>, DecodeError> {
        // The smallest entry: a length, one byte of name and one of value.
        let count = self.count(4)?;
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            entries.push((self.name(kind)?, value(self)?));
        }
        Ok(entries)
    }
}

/// Why bytes are not a message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum DecodeError {
    /// Too few bytes, or too many.
    #[error(transparent)]
    Bytes(#[from] BytesError),
    /// Another format, from another version of fibula.
    #[error("format {got}, this version reads {expected}: run the same version on both sides")]
    Format { got: u8, expected: u8 },
    /// Over a limit of the format.
    #[error("{got} is more than the {max} that the format allows")]
    TooLong { got: usize, max: usize },
    /// A field has an invalid value.
    #[error("{field} cannot be {got}")]
    Unknown { field: &'static str, got: u64 },
    /// A design that this version does not know.
    #[error("{}", unknown_design(.name))]
    Design {
        /// The start of its name.
        name: String,
    },
    /// A name is invalid.
    #[error("a name in the message: {0}")]
    Name(#[from] NameError),
}

fn unknown_design(name: &str) -> String {
    if designs::is_elsewhere(name) {
        return designs::where_it_is(name);
    }
    format!("there is no FIB design `{name}` in this version: run the same version on both sides")
}

#[cfg(test)]
mod weights;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{MAX_WAYS, MAX_WEIGHT};
    use crate::designs::DESIGNS;
    use lookup::hash::{Family, SecretKey};
    use proptest::prelude::*;

    fn any_ip() -> impl Strategy<Value = Option<IpAddr>> + Clone {
        prop_oneof![
            Just(None),
            any::<[u8; 4]>().prop_map(|b| Some(IpAddr::from(b))),
            any::<[u8; 16]>().prop_map(|b| Some(IpAddr::from(b)))
        ]
    }

    fn any_exact<V: ExactValue>(
        value: impl Strategy<Value = V> + Clone + 'static,
    ) -> impl Strategy<Value = ExactUpdate<V>> {
        let kinds = prop_oneof![
            Just(NameKind::Mac),
            Just(NameKind::FiveTuple),
            Just(NameKind::Fixed(45)),
            Just(NameKind::Ipv6)
        ];
        kinds.prop_flat_map(move |kind| {
            let len = match kind {
                NameKind::Mac => 6,
                NameKind::Ipv6 => 16,
                NameKind::FiveTuple => 37,
                _ => 45,
            };
            let name = proptest::collection::vec(any::<u8>(), len)
                .prop_map(move |bytes| Name::from_bytes(kind, &bytes).unwrap());
            let entries = proptest::collection::vec((name.clone(), value.clone()), 0..5);
            let names = proptest::collection::vec(name, 0..5);
            prop_oneof![
                (any::<u64>(), any::<u64>(), 0u32..7, 7u32..MAX_PARTS, entries.clone()).prop_map(
                    move |(version, digest, part, parts, entries)| ExactUpdate::Load {
                        kind,
                        version,
                        digest,
                        part,
                        parts,
                        entries
                    }
                ),
                (any::<u64>(), any::<u64>(), any::<u64>(), entries, names).prop_map(
                    move |(from, to, digest, put, remove)| ExactUpdate::Delta { kind, from, to, digest, put, remove }
                ),
            ]
        })
    }

    /// Ways of weights up to this.
    fn any_spread(most: u8) -> impl Strategy<Value = Action> {
        let ways = proptest::collection::btree_map(any::<u16>(), 1..=most, 2..=MAX_WAYS);
        (ways, any::<Option<u16>>()).prop_map(|(ways, other)| {
            let ways = Ways::weighed(ways.into_iter().map(|(port, weight)| (PortId(port), weight))).unwrap();
            Action::Spread { ways, alternate: other.map(PortId) }
        })
    }

    fn any_body() -> impl Strategy<Value = Body> {
        let bytes = proptest::collection::vec(any::<u8>(), 0..40);
        let action = prop_oneof![
            Just(Action::Drop),
            any::<u16>().prop_map(|p| Action::Port(PortId(p))),
            any::<[u16; 2]>().prop_map(|[p, q]| Action::Protected { port: PortId(p), alternate: PortId(q) }),
            any_spread(1),
            any_spread(MAX_WEIGHT),
            Just(Action::Local),
            Just(Action::Punt),
            (any::<u32>(), any::<[u8; 16]>())
                .prop_map(|(node, ip)| Action::Tunnel { node: NodeId(node), remote: IpAddr::from(ip) }),
        ];
        let header = (any::<u32>(), 0usize..4, any::<[u8; 32]>(), 1u8..=16, any::<bool>(), any::<bool>(), any::<u64>());
        let header = (header, any::<usize>());
        prop_oneof![
            header.prop_map(|((table, family, key, value_bits, gateway, reset, max_names), design)| {
                Body::Table(TableHeader {
                    table,
                    spec: Spec::new(
                        DESIGNS[design % DESIGNS.len()],
                        NameKind::Fixed(value_bits),
                        Family::ALL[family],
                        SecretKey::from_bytes(key),
                        value_bits,
                        max_names as usize,
                    ),
                    mode: if gateway { ValueMode::Egress } else { ValueMode::Port },
                    gateway,
                    reset,
                })
            }),
            (any::<u32>(), 0u32..3, 3u32..9, bytes.clone()).prop_map(|(table, part, parts, bytes)| Body::Image {
                table,
                part,
                parts,
                bytes
            }),
            (any::<u32>(), proptest::collection::vec(bytes.clone(), 0..4))
                .prop_map(|(table, updates)| Body::Updates { table, updates: updates.iter().collect() }),
            (any::<u32>(), bytes).prop_map(|(table, bytes)| Body::Resync { table, bytes }),
            (any::<u64>(), proptest::collection::vec(action, 0..6)).prop_map(|(version, mut actions)| {
                actions.insert(0, Action::Drop);
                Body::Actions { version, actions }
            }),
            any_exact(any_ip()).prop_map(Body::Valid),
            any_exact(any::<u16>().prop_map(PortId)).prop_map(Body::Local),
        ]
    }

    fn any_message() -> impl Strategy<Value = Message> {
        (any::<u64>(), any::<u64>(), any::<u32>(), any::<u64>(), any_body())
            .prop_map(|(cluster, term, node, change, body)| Message { cluster, term, node: NodeId(node), change, body })
    }

    fn any_uplink() -> impl Strategy<Value = Uplink> {
        let shard = (0u8..=24, any::<u32>(), any::<u64>(), any::<u64>()).prop_map(|(depth, bits, version, digest)| {
            let prefix = (u64::from(bits) & ((1 << depth) - 1)) as u32;
            HeldPart { id: PartId { prefix, depth }, version, digest }
        });
        let held = (any::<u64>(), any::<u64>()).prop_map(|(version, digest)| Held { version, digest });
        let ids = (any::<u64>(), any::<u64>(), any::<u32>(), any::<u64>());
        let report = (ids, held.clone(), held.clone(), held, proptest::collection::vec(shard, 0..9)).prop_map(
            |((cluster, term, table, header), actions, valid, local, shards)| {
                Uplink::Report(Report { cluster, term, table, header, actions, valid, local, shards })
            },
        );
        prop_oneof![report, any::<u64>().prop_map(|change| Uplink::Ack { change })]
    }

    proptest! {
        #[test]
        fn messages_round_trip(message in any_message(), uplink in any_uplink()) {
            prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
            prop_assert_eq!(Uplink::decode(&uplink.encode()), Ok(uplink));
        }

        /// Any change of any byte, any cut and any tail: an error or another message, never a panic.
        #[test]
        fn mutated_messages_never_panic(
            message in any_message(), uplink in any_uplink(), at in any::<proptest::sample::Index>(), byte in any::<u8>(),
        ) {
            for bytes in [message.encode(), uplink.encode()] {
                let at = at.index(bytes.len());
                let mut changed = bytes.clone();
                changed[at] = byte;
                for input in [&changed[..], &bytes[..at]] {
                    if let Ok(decoded) = Message::decode(input) {
                        prop_assert_eq!(decoded.encode(), input);
                    }
                    if let Ok(decoded) = Uplink::decode(input) {
                        prop_assert_eq!(decoded.encode(), input);
                    }
                }
                let mut longer = bytes.clone();
                longer.push(byte);
                prop_assert!(Message::decode(&longer).is_err() && Uplink::decode(&longer).is_err());
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u8..8) {
            for (i, byte) in [FORMAT, kind].into_iter().enumerate() {
                if let Some(place) = bytes.get_mut(i) {
                    *place = byte;
                }
            }
            let _ = Message::decode(&bytes);
            let _ = Uplink::decode(&bytes);
        }
    }

    #[test]
    fn counts_are_checked_before_anything_is_allocated() {
        let message =
            Message { cluster: 1, term: 1, node: NodeId(1), change: 1, body: Body::Resync { table: 1, bytes: vec![] } };
        let mut bytes = message.encode();
        let at = bytes.len() - 4;
        bytes[at..].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Message::decode(&bytes), Err(BytesError::Truncated { needed: u32::MAX as usize, left: 0 }.into()));
        let delta = ExactUpdate::<PortId>::Delta {
            kind: NameKind::Mac,
            from: 0,
            to: 1,
            digest: 0,
            put: vec![],
            remove: vec![],
        };
        let mut bytes = Message { body: Body::Local(delta), ..message }.encode();
        let at = bytes.len() - 8;
        bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        let needed = u32::MAX as usize * 4;
        assert_eq!(Message::decode(&bytes), Err(BytesError::Truncated { needed, left: 4 }.into()));
    }

    #[test]
    fn another_format_is_named() {
        assert_eq!(Message::decode(&[9]), Err(DecodeError::Format { got: 9, expected: FORMAT }));
        assert_eq!(Message::decode(&[]), Err(BytesError::Truncated { needed: 1, left: 0 }.into()));
    }
}
