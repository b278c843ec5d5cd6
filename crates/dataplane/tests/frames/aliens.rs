//! Packets in, packets out: frames to names that the network does not know.

use crate::common::*;
use dataplane::alien::{Policy, Server};
use dataplane::assembly::{BuildError, PortSpec, Settings, build};
use dataplane::counters::DropReason;
use dataplane::port::Role;
use dataplane::table::FibTable;
use fib::action::PortId;
use fib::name::NameKind;
use fib::replica::{Exact, Tables};
use netio::backend::loopback;

fn rig(aliens: Policy) -> Rig {
    Rig::with_settings(NameKind::Mac, &Settings { aliens, ..Settings::default() })
}

fn spread(servers: &[(u16, u16)]) -> Policy {
    Policy::Spread(servers.iter().map(|&(port, weight)| Server { port: PortId(port), weight }).collect())
}

#[test]
fn punted_frames_leave_by_the_port_for_them_as_they_came() {
    let mut rig = rig(Policy::Punt(PortId(HOST_2)));
    rig.writer.valid_held(true);
    rig.add(&mac(5), 3);
    assert_eq!(rig.exchange(HOST_1, &to_mac(6)), [(HOST_2, to_mac(6))]);
    assert_eq!(rig.counts().aliens, 1);
    // A known name is forwarded as ever, and a frame never leaves by its port of entry.
    assert_eq!(rig.exchange(HOST_1, &to_mac(5)).len(), 1);
    rig.assert_dropped(HOST_2, &to_mac(6), DropReason::InputPort);
    assert_eq!(rig.counts().aliens, 1);
    // Without the exact table nothing is known about what a host sends to.
    rig.writer.valid_held(false);
    rig.assert_dropped(HOST_1, &to_mac(6), DropReason::Alien);
    rig.writer.valid_held(true);
    // What is removed is unknown.
    rig.writer.valid().remove(&mac(5));
    assert_eq!(rig.exchange(HOST_1, &to_mac(5)), [(HOST_2, to_mac(5))]);
}

#[test]
fn frames_from_trunks_are_unknown_if_the_fib_drops_them_and_no_exact_table_has_them() {
    let mut rig = rig(Policy::Punt(PortId(HOST_2)));
    rig.route(&mac(5), 0);
    // Without an exact table, as at a core node.
    assert_eq!(rig.exchange(TRUNK_8, &with_shim(&to_mac(5), 7)), [(HOST_2, to_mac(5))]);
    rig.writer.valid_held(true);
    assert_eq!(rig.exchange(TRUNK_8, &with_shim(&to_mac(5), 7)), [(HOST_2, to_mac(5))]);
    assert_eq!(rig.counts().aliens, 2);
    // A name that is known has no route for now.
    rig.writer.valid().put(mac(5), None);
    rig.assert_dropped(TRUNK_8, &with_shim(&to_mac(5), 7), DropReason::NoRoute);
}

#[test]
fn spread_frames_reach_each_server_by_its_weight_and_a_name_always_the_same() {
    let mut rig = rig(spread(&[(HOST_1, 1), (HOST_2, 3)]));
    let mut at_2 = 0;
    for i in 0..2000 {
        let out = rig.exchange(TRUNK_8, &with_shim(&to_mac(i), 7));
        assert_eq!(out, rig.exchange(TRUNK_9, &with_shim(&to_mac(i), 7)));
        let [(port, frame)] = &out[..] else { panic!("{out:?}") };
        assert_eq!(*frame, to_mac(i));
        at_2 += usize::from(*port == HOST_2);
    }
    assert_eq!(rig.counts().aliens, 4000);
    // Five standard deviations, for the one key of the rig.
    assert!((at_2 as f64 - 1500.0).abs() < 5.0 * (2000.0f64 * 0.75 * 0.25).sqrt(), "{at_2} of 2000");
}

#[test]
fn a_port_for_unknown_names_must_be_at_a_host() {
    let refused = |aliens: Policy| {
        let ports = [(1, Role::Host), (8, Role::Trunk)].map(|(id, role)| {
            PortSpec::new(id, role, loopback::pair("near", "far", &loopback::Settings::default()).unwrap().0)
        });
        build::<FibTable>(&Settings { aliens, ..Settings::default() }, ports.into()).err().unwrap()
    };
    for policy in [Policy::Punt(PortId(8)), Policy::Punt(PortId(3)), spread(&[(1, 1), (8, 1)])] {
        let error = refused(policy);
        assert!(matches!(error, BuildError::Alien { .. }) && error.to_string().contains("choose another"), "{error}");
    }
    assert!(refused(spread(&[(1, 1001)])).to_string().contains("weight over 1000"));
}
