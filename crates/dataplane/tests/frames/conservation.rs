//! Whatever comes in, for every kind of name: each frame goes out once or is one counted drop, and goes only where it
//! may.

use crate::common::frames::{any_kind, nearly_a_frame};
use crate::common::*;
use dataplane::assembly::Settings;
use dataplane::parse::{NameField, Names};
use dataplane::shim::INITIAL_HOPS;
use fib::action::{Action, PortId};
use fib::name::{Name, NameKind};
use fib::replica::Exact;
use fib::topology::NodeId;
use proptest::prelude::*;
use std::collections::HashMap;

const FIXED_OFFSET: usize = 5;
const PORTS: [u16; 4] = [HOST_1, HOST_2, TRUNK_8, TRUNK_9];

/// A frame, and where and how it comes in.
#[derive(Clone, Debug)]
struct Input {
    port: u16,
    /// As a host sent it, or would have.
    inner: Vec<u8>,
    /// The hops it carries, on a trunk; none: it comes without a shim.
    hops: Option<u8>,
    /// What is known of its name, if it has one: a value of the FIB, whether it is valid, where it is local.
    value: u64,
    valid: bool,
    local: Option<u16>,
}

impl Input {
    fn outer(&self) -> Vec<u8> {
        match self.hops {
            Some(hops) if self.is_from_trunk() && self.inner.len() >= 12 => with_shim(&self.inner, hops),
            _ => self.inner.clone(),
        }
    }

    fn is_from_trunk(&self) -> bool {
        self.port >= TRUNK_8
    }

    /// Its name, read from the frame as the host sent it.
    fn name(&self, kind: NameKind) -> Option<Name> {
        let mut names = Names::default();
        if self.inner.len() < 14 {
            return None;
        }
        NameField::new(kind, Some(FIXED_OFFSET)).unwrap().extract(&self.inner, 12, &mut names).ok()?;
        let (len, word) = (names.name_len(0), names.word(0).to_le_bytes());
        let bytes = if len <= 8 { &word[..len] } else { &names.padded(0)[..len] };
        Name::from_bytes(kind, bytes).ok()
    }
}

fn inputs() -> impl Strategy<Value = Vec<Input>> {
    let frame = prop_oneof![4 => nearly_a_frame(), 1 => prop::collection::vec(any::<u8>(), 0..200)];
    let hops = prop_oneof![4 => (0..4u8).prop_map(Some), 1 => Just(None)];
    let port = prop::sample::select(PORTS.to_vec());
    let local = prop::option::of(prop::sample::select(vec![HOST_1, HOST_2, TRUNK_9, 77]));
    let one = (port, frame, hops, 0..9u64, any::<bool>(), local)
        .prop_map(|(port, inner, hops, value, valid, local)| Input { port, inner, hops, value, valid, local });
    prop::collection::vec(one, 1..60)
}

fn rig(kind: NameKind, inputs: &[Input]) -> (Rig, HashMap<Name, Input>) {
    let settings = Settings { fixed_offset: Some(FIXED_OFFSET), ..Settings::default() };
    let mut rig = Rig::with_settings(kind, &settings);
    let tunnel = Action::Tunnel { node: NodeId(3), remote: "10.0.0.1".parse().unwrap() };
    let mut actions = vec![Action::Drop, Action::Local, tunnel, Action::Port(PortId(500))];
    actions.extend(PORTS.map(|port| Action::Port(PortId(port))));
    rig.writer.set_actions(&actions);
    rig.writer.valid().put(mac(2), Some("10.0.0.2".parse().unwrap()));
    rig.writer.valid().put(mac(4), Some("fd00::2".parse().unwrap()));
    let mut known = HashMap::new();
    for input in inputs {
        let Some(name) = input.name(kind) else { continue };
        known.entry(name.clone()).or_insert_with(|| {
            rig.route(&name, input.value);
            if input.valid {
                rig.writer.valid().put(name.clone(), None);
            }
            if let Some(port) = input.local {
                rig.writer.local().put(name.clone(), PortId(port));
            }
            input.clone()
        });
    }
    (rig, known)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_frame_goes_once_where_it_may_or_is_a_counted_drop(kind in any_kind(), inputs in inputs()) {
        let (mut rig, known) = rig(kind, &inputs);
        let mut one_by_one = vec![];
        for input in &inputs {
            let before = rig.counts();
            // `run` checks that every frame received is sent or dropped.
            let out = rig.exchange(input.port, &input.outer());
            let after = rig.counts();
            prop_assert_eq!(after.received - before.received, 1);
            prop_assert_eq!(after.sent - before.sent, out.len() as u64);
            prop_assert!(out.len() <= 1, "{:?}", out);
            let Some((port, frame)) = out.first() else { continue };
            one_by_one.push(out[0].clone());
            if after.answered > before.answered {
                prop_assert!(*port == input.port && !input.is_from_trunk(), "an answer goes back to the host that asked");
                prop_assert!(input.inner[0] & 1 == 1 && frame[..6] == input.inner[6..12] && frame[0] & 1 == 0);
                continue;
            }
            prop_assert!(*port != input.port, "out of the port of entry");
            prop_assert!(input.inner[0] & 1 == 0, "a group frame forwarded");
            let name = input.name(kind).unwrap();
            let entry = &known[&name];
            prop_assert!(input.is_from_trunk() || entry.valid || name == mac(2) || name == mac(4), "an alien from a host");
            if *port < TRUNK_8 {
                prop_assert_eq!(entry.local, Some(*port), "at a host that does not have the name");
                prop_assert_eq!(frame, &input.inner, "a host sees what a host sent");
            } else {
                let hops = if input.is_from_trunk() { input.hops.unwrap() - 1 } else { INITIAL_HOPS };
                prop_assert!(hops > 0);
                prop_assert_eq!(frame, &with_shim(&input.inner, hops));
            }
        }
        // And in bursts, mixed, nothing else comes out.
        inputs.iter().for_each(|input| rig.send(input.port, &input.outer()));
        let mut in_bursts = rig.run();
        one_by_one.sort_unstable();
        in_bursts.sort_unstable();
        prop_assert_eq!(one_by_one, in_bursts);
    }
}
