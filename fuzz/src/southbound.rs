//! Southbound: what a controller sends, what a switch saves, and what it reports.

use crate::pieces::{pieces, put};
use fib::action::PortId;
use fib::designs::{self, CONCISE, Design};
use fib::durable::Tenants;
use fib::messages::{Body, ExactUpdate, ExactValue, Message, Report, Uplink, ValueMode};
use fib::name::{Name, NameKind};
use fib::network::{Effects, Network, Settings};
use fib::replica::{Exact, Limits, MemoryTables, Replica, ReplicaError};
use fib::rib::Attachment;
use fib::topology::{End, NodeId};
use lookup::hash::{Family, Hasher, SecretKey};
use std::net::{IpAddr, Ipv4Addr};

/// So that no input asks for much memory.
const LIMITS: Limits = Limits { max_table_bytes: 1 << 20, max_names: 2_000 };

/// Marks a piece whose digests are to be corrected, so that changed entries get past them.
const MEND: u8 = 1;

/// Applies messages one after another.
pub(crate) fn messages(data: &[u8]) {
    let mut replica = Replica::new(LIMITS, MemoryTables::default());
    for (what, piece) in pieces(data).take(64) {
        let message = match Message::decode(piece) {
            Ok(message) => message,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                continue;
            }
        };
        let again = Message::decode(&message.encode()).expect("what was read can be written and read");
        assert_eq!(again, message);
        let message = if what & MEND != 0 { mended(message, &replica) } else { message };
        let before = replica.report();
        match replica.apply(message.clone()) {
            Ok(received) => assert_eq!(received.change, message.change),
            // Of several updates in one message those before the refused one take effect.
            Err(_) if matches!(message.body, Body::Updates { .. }) => {}
            // Asks for everything: what is served is no part of what the controller has.
            Err(ReplicaError::OtherTable { .. }) => {
                let after = replica.report();
                assert_eq!((after.table, after.shards.len()), (0, 0), "{after:?}");
                assert!([after.actions, after.valid, after.local].iter().all(|held| held.version == 0), "{after:?}");
                assert!(replica.fib().is_some(), "what is served stays");
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                let after = replica.report();
                // A table that begins with `reset` forgets versions before its image comes; nothing else may change.
                assert_eq!(before, after, "a refused message changed what is held: {error}");
            }
        }
    }
    keeps(&replica);
}

/// What a replica holds can be saved, and loaded as the same.
fn keeps(replica: &Replica<MemoryTables>) {
    let report = replica.report();
    let bytes = Uplink::Report(report.clone()).encode();
    assert_eq!(Uplink::decode(&bytes), Ok(Uplink::Report(report.clone())));
    let loaded = Replica::load(LIMITS, MemoryTables::default(), &replica.save());
    let loaded = loaded.unwrap_or_else(|error| panic!("what was saved does not load: {error}"));
    // A switch without a FIB has nothing to save.
    if replica.fib().is_none() {
        return;
    }
    let held = loaded.report();
    assert_eq!((held.table, held.header, &held.shards), (report.table, report.header, &report.shards));
    // A table that is not what its digest says, since two parts of it had the same name, gets a version that no controller
    // has.
    for (held, before) in [(held.local, report.local), (held.valid, report.valid)] {
        assert!(held == before || held.version == u64::MAX, "{held:?}, before {before:?}");
    }
    let kind = replica.header().map_or(NameKind::Mac, |header| header.spec.kind);
    for name in (0..8).filter_map(|i| name(kind, i)) {
        assert_eq!(replica.action(&name), loaded.action(&name), "{name}");
        assert_eq!(replica.tables().local.get(&name), loaded.tables().local.get(&name), "{name}");
    }
}

/// The message with the digests of exact tables as this replica computes them.
fn mended(message: Message, replica: &Replica<MemoryTables>) -> Message {
    let (report, tables) = (replica.report(), replica.tables());
    let body = match message.body {
        Body::Valid(update) => Body::Valid(with_digest(update, report.valid.digest, &tables.valid)),
        Body::Local(update) => Body::Local(with_digest(update, report.local.digest, &tables.local)),
        other => other,
    };
    Message { body, ..message }
}

fn with_digest<V: ExactValue>(update: ExactUpdate<V>, held: u64, table: &impl Exact<V>) -> ExactUpdate<V> {
    let share = |(name, value): &(Name, V)| value.share(name);
    match update {
        ExactUpdate::Load { kind, version, part, parts, entries, .. } => {
            let digest = entries.iter().map(share).fold(0, |sum, share| sum ^ share);
            ExactUpdate::Load { kind, version, digest, part, parts, entries }
        }
        ExactUpdate::Delta { kind, from, to, put, remove, .. } => {
            let names = put.iter().map(|(name, _)| name).chain(&remove);
            let gone = names.filter_map(|name| Some(table.get(name)?.share(name)));
            let digest = gone.chain(put.iter().map(share)).fold(held, |sum, share| sum ^ share);
            ExactUpdate::Delta { kind, from, to, digest, put, remove }
        }
    }
}

/// Loads a saved image, given without its first bytes and its checksum.
pub(crate) fn saved(data: &[u8]) {
    let image = sealed(b"FIBULAS1", data);
    match Replica::load(LIMITS, MemoryTables::default(), &image) {
        Ok(replica) => keeps(&replica),
        Err(error) => assert!(matches!(&error, ReplicaError::Saved { .. }) || !error.to_string().is_empty()),
    }
}

/// Reads what a switch sends.
pub(crate) fn uplink(data: &[u8]) {
    if let Ok(uplink) = Uplink::decode(data) {
        assert_eq!(Uplink::decode(&uplink.encode()), Ok(uplink.clone()));
        if let Uplink::Report(report) = uplink {
            let mut lab = Lab::new(&CONCISE, ValueMode::Port, NameKind::Mac);
            let lacks = lab.network.attach(lab.node, &report);
            for message in lacks.into_iter().flatten() {
                assert_eq!(Message::decode(&message.encode()), Ok(message));
            }
        }
    }
}

/// Bytes with the fingerprint that formats of `fib` end with.
pub(crate) fn sealed(magic: &[u8], content: &[u8]) -> Vec<u8> {
    let hasher = Hasher::new(Family::Wy, &SecretKey::from_bytes(*b"fibula southbound fingerprint 01"));
    let mut bytes = [magic, content].concat();
    let checksum = hasher.digest(&bytes).0;
    bytes.extend(checksum.to_le_bytes());
    bytes
}

pub(crate) fn name(kind: NameKind, i: u8) -> Option<Name> {
    let bytes = match kind {
        NameKind::Mac => vec![2, 0, 0, 0, 0, i],
        NameKind::Ipv4 | NameKind::Teid => vec![10, 0, 0, i],
        NameKind::Ipv6 => [&[0xfd; 15][..], &[i]].concat(),
        NameKind::FiveTuple => [&[10, 0, 0, i][..], &[7; 9]].concat(),
        NameKind::Fixed(width) => vec![i; width.into()],
        _ => format!("/video/{i}").into_bytes(),
    };
    Name::from_bytes(kind, &bytes).ok()
}

/// Three switches in a row, hosts at each; the messages to the first.
struct Lab {
    network: Network,
    node: NodeId,
    ends: Vec<End>,
    kind: NameKind,
}

impl Lab {
    fn new(design: &'static Design, mode: ValueMode, kind: NameKind) -> Lab {
        let settings = Settings::new(7, SecretKey::from_seed(3));
        let settings = Settings { max_names: 500, mode, kind, gateway: design, core: design, ..settings };
        let mut network = Network::new(settings, 1).expect("good settings");
        let nodes = ["s1", "s2", "s3"].map(|name| network.add_switch(name, Tenants::All).expect("a new switch").0);
        let end = |node: usize, port| End { node: nodes[node], port: PortId(port) };
        network.add_link(end(0, 8), end(1, 8), 1).expect("a new link");
        network.add_link(end(1, 9), end(2, 9), 1).expect("a new link");
        let ends = vec![end(0, 1), end(0, 2), end(1, 1), end(2, 1)];
        network.add_host_ports(&ends).expect("new ports");
        let mut lab = Lab { network, node: nodes[0], ends, kind };
        (0..5).for_each(|i| _ = lab.put(i, i));
        lab
    }

    fn put(&mut self, i: u8, at: u8) -> Option<Effects> {
        let end = self.ends[usize::from(at) % self.ends.len()];
        let ip = at.is_multiple_of(2).then_some(IpAddr::V4(Ipv4Addr::new(10, 1, 0, i)));
        let place = Attachment { ip, ..Attachment::new(end.node, end.port) };
        self.network.set_name(&name(self.kind, i)?, place).ok()
    }

    /// What a switch is sent that attaches empty and sees some changes.
    fn messages(&mut self) -> Vec<Message> {
        let mut messages = self.network.attach(self.node, &Report::default()).expect("the switch is known");
        let mut changes = vec![self.put(1, 2), self.put(6, 3)];
        changes.push(name(self.kind, 0).and_then(|name| self.network.remove_name(&name).ok()));
        changes.push(self.network.set_link_up(End { node: self.node, port: PortId(8) }, false).ok());
        let changes = changes.into_iter().flatten().flat_map(|effects| effects.phases.into_iter().flatten());
        messages.extend(changes.filter(|(node, _)| *node == self.node).map(|(_, message)| message));
        messages
    }
}

/// Every design that has short messages, in both modes, and every kind of name.
fn labs() -> impl Iterator<Item = Lab> {
    let kinds =
        [NameKind::Ipv4, NameKind::Ipv6, NameKind::FiveTuple, NameKind::Teid, NameKind::Fixed(9), NameKind::Text];
    let designs = designs::all().flat_map(|design| [(design, ValueMode::Port), (design, ValueMode::Egress)]);
    let kinds = kinds.map(|kind| Lab::new(&CONCISE, ValueMode::Port, kind));
    designs.map(|(design, mode)| Lab::new(design, mode, NameKind::Mac)).chain(kinds)
}

pub(crate) fn message_seeds() -> Vec<Vec<u8>> {
    let seed = |mut lab: Lab| {
        let mut out = Vec::new();
        let encoded = lab.messages().into_iter().map(|message| message.encode());
        // Longer ones are images of designs that fill whole pages.
        encoded.filter(|bytes| bytes.len() < 16_000).for_each(|bytes| put(&mut out, MEND, &bytes));
        out
    };
    labs().map(seed).collect()
}

fn followed(lab: &mut Lab) -> Replica<MemoryTables> {
    let mut replica = Replica::new(LIMITS, MemoryTables::default());
    for message in lab.messages() {
        replica.apply(message).expect("messages in order are applied");
    }
    replica
}

pub(crate) fn saved_seeds() -> Vec<Vec<u8>> {
    let images = labs().map(|mut lab| followed(&mut lab).save());
    images.filter(|image| image.len() < 40_000).map(|image| image[8..image.len() - 8].to_vec()).collect()
}

pub(crate) fn uplink_seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = labs()
        .map(|mut lab| Uplink::Report(followed(&mut lab).report()).encode())
        .filter(|seed| seed.len() < 9_000)
        .collect();
    seeds.push(Uplink::Ack { change: 77 }.encode());
    seeds.push(Uplink::Report(Report::default()).encode());
    seeds
}
