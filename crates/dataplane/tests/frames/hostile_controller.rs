//! Whatever a controller sends, in whatever order: the data plane goes on, and accounts for every frame.

use crate::common::frames::{any_kind, nearly_a_frame};
use crate::common::*;
use dataplane::assembly::Settings;
use fib::action::{Action, PortId};
use fib::durable::Tenants;
use fib::messages::{Body, ExactUpdate, ExactValue, Message};
use fib::name::{Name, NameKind};
use fib::network::{self, Network};
use fib::replica::{Limits, Replica};
use fib::rib::Attachment;
use fib::topology::{End, NodeId};
use lookup::hash::SecretKey;
use proptest::prelude::*;

/// A name of a kind, made of one byte.
fn name(kind: NameKind, fill: u8) -> Name {
    let bytes = match kind {
        NameKind::Mac => vec![2, 0, 0, 0, 0, fill],
        NameKind::Ipv4 | NameKind::Teid => vec![10, 0, 0, fill],
        NameKind::Ipv6 => vec![fill; 16],
        NameKind::FiveTuple => vec![fill; 13],
        NameKind::Fixed(width) => vec![fill; usize::from(width)],
        NameKind::Text => vec![b'a' + fill % 26; 9],
    };
    Name::from_bytes(kind, &bytes).unwrap()
}

/// All that a proper controller tells a switch of a network with a few names.
fn proper(kind: NameKind, seed: u64) -> Vec<Message> {
    let settings = network::Settings { kind, max_names: 1000, ..network::Settings::new(7, SecretKey::from_seed(seed)) };
    let mut network = Network::new(settings, 1 + seed).unwrap();
    let (s1, _) = network.add_switch("s1", Tenants::All).unwrap();
    network.add_host_port(End { node: s1, port: PortId(HOST_1) }).unwrap();
    for fill in 0..5 {
        network.add_name(&name(kind, fill), Attachment::new(s1, PortId(HOST_1))).unwrap();
    }
    network.attach(s1, &Default::default()).unwrap()
}

/// A whole table of local names with ports and kinds that no table has.
fn odd_local(entries: &[(NameKind, u8, u16)], version: u64) -> Body {
    let mut entries: Vec<_> = entries.iter().map(|&(kind, fill, port)| (name(kind, fill), PortId(port))).collect();
    entries.sort();
    entries.dedup_by(|a, b| a.0 == b.0);
    let digest = entries.iter().fold(0, |sum, (name, port)| sum ^ port.share(name));
    let kind = NameKind::Mac;
    Body::Local(ExactUpdate::Load { kind, version, digest, part: 0, parts: 1, entries })
}

#[derive(Clone, Debug)]
enum Step {
    Proper { kind: NameKind, seed: u64, skip: usize },
    Local { entries: Vec<(NameKind, u8, u16)>, version: u64 },
    Actions { ports: Vec<u16>, version: u64 },
    Damaged { kind: NameKind, which: prop::sample::Index, at: prop::sample::Index, to: u8 },
    Frames(Vec<(usize, Vec<u8>)>),
}

fn step() -> impl Strategy<Value = Step> {
    let kind = || prop_oneof![4 => any_kind(), 1 => Just(NameKind::Text)];
    let port = || prop_oneof![Just(HOST_1), Just(TRUNK_8), Just(u16::MAX), Just(u16::MAX - 1), any::<u16>()];
    prop_oneof![
        (kind(), 0..3u64, 0..4usize).prop_map(|(kind, seed, skip)| Step::Proper { kind, seed, skip }),
        (prop::collection::vec((kind(), 0..6u8, port()), 0..20), 1..9u64)
            .prop_map(|(entries, version)| Step::Local { entries, version }),
        (prop::collection::vec(port(), 0..9), 1..9u64).prop_map(|(ports, version)| Step::Actions { ports, version }),
        (kind(), any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>())
            .prop_map(|(kind, which, at, to)| Step::Damaged { kind, which, at, to }),
        prop::collection::vec((0..4usize, nearly_a_frame()), 1..40).prop_map(Step::Frames),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_message_stops_the_data_plane_or_hides_a_frame(steps in prop::collection::vec(step(), 1..12), offset in prop::option::of(0..60usize)) {
        let settings = Settings { fixed_offset: offset, ..Settings::default() };
        let Rig { mut worker, writer, monitor, mut ends, .. } = Rig::without_fib(NameKind::Mac, &settings);
        let mut replica = Replica::new(Limits::default(), writer);
        for step in steps {
            // Refused or not: nothing may panic, and what is served serves on.
            let mut say = |body| drop(replica.apply(Message { cluster: 7, term: 99, node: NodeId(1), change: 1, body }));
            match step {
                Step::Proper { kind, seed, skip } => {
                    for message in proper(kind, seed).into_iter().skip(skip) {
                        say(message.body);
                    }
                }
                Step::Local { entries, version } => say(odd_local(&entries, version)),
                Step::Actions { ports, version } => {
                    let mut actions = vec![Action::Drop];
                    actions.extend(ports.into_iter().map(|port| Action::Port(PortId(port))));
                    say(Body::Actions { version, actions });
                }
                Step::Damaged { kind, which, at, to } => {
                    let messages = proper(kind, 1);
                    let mut bytes = messages[which.index(messages.len())].encode();
                    let at = at.index(bytes.len());
                    bytes[at] = to;
                    let _ = replica.receive(&bytes);
                }
                Step::Frames(frames) => {
                    for (port, frame) in frames {
                        prop_assert!(ends[port].1.send(&frame).unwrap());
                    }
                    while worker.poll_once() > 0 {}
                    for (_, end) in &mut ends {
                        while end.recv(<[u8]>::len).unwrap().is_some() {}
                    }
                    let total = monitor.status().total;
                    prop_assert_eq!(total.received, total.sent + total.dropped_total());
                }
            }
        }
    }
}
