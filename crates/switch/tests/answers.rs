//! ARP answered from what the RIB knows, while that changes. What else must become of ARP, neighbour discovery and group
//! traffic, over every driver: `drivers/fixtures/hosts.rs`.

mod common;

use common::frames::arp;
use common::*;
use fib::name::NameKind;
use fib::replica::Exact;
use fibula_switch::counters::DropReason;
use std::net::IpAddr;

const ASKER: u64 = 1;
const OWNER: u64 = 2;

fn rig() -> Rig {
    let mut rig = Rig::new(NameKind::Mac);
    for (i, ip) in [(ASKER, "10.0.0.1"), (OWNER, "10.0.0.2")] {
        rig.writer.valid().put(mac(i), Some(ip.parse().unwrap()));
    }
    rig
}

#[test]
fn an_address_whose_host_is_removed_is_not_answered() {
    let mut rig = rig();
    let request = arp(1, (ASKER, [10, 0, 0, 1]), [10, 0, 0, 2]);
    assert_eq!(rig.exchange(HOST_1, &request).len(), 1);
    rig.writer.valid().remove(&mac(OWNER));
    rig.assert_dropped(HOST_1, &request, DropReason::ArpUnknown);
}

#[test]
fn an_address_that_moves_to_another_host_is_answered_with_the_new_one() {
    let mut rig = rig();
    let ip: IpAddr = "10.0.0.2".parse().unwrap();
    rig.writer.valid().put(mac(50), Some(ip));
    // The old owner goes afterwards: the address stays with the new one.
    rig.writer.valid().remove(&mac(OWNER));
    let out = rig.exchange(HOST_1, &arp(1, (ASKER, [10, 0, 0, 1]), [10, 0, 0, 2]));
    assert_eq!(out[0].1[6..12], mac_bytes(50));
    rig.writer.valid().put(mac(50), None);
    rig.assert_dropped(HOST_1, &arp(1, (ASKER, [10, 0, 0, 1]), [10, 0, 0, 2]), DropReason::ArpUnknown);
}
