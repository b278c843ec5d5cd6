//! Carriers of veth in a network namespace of its own.

mod common;

use common::{PATIENCE, ip, veth};
use fibula_netio::carrier::Carriers;
use fibula_netio::testkit::in_namespace;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What was said last of each interface.
struct Known {
    carriers: Carriers,
    last: BTreeMap<String, bool>,
}

impl Known {
    fn open() -> Self {
        Self { carriers: Carriers::open().unwrap(), last: BTreeMap::new() }
    }

    #[track_caller]
    fn wait(&mut self, name: &str, has_carrier: bool) {
        let began = Instant::now();
        while self.last.get(name) != Some(&has_carrier) {
            assert!(began.elapsed() < PATIENCE, "{name} {has_carrier}: {:?}", self.last);
            self.last.extend(self.carriers.wait(Duration::from_millis(100)).unwrap());
        }
    }
}

fn carriers_come_and_go_with_the_other_end() {
    in_namespace(|| {
        veth("west", "east");
        let mut known = Known::open();
        // What there is comes first.
        known.wait("west", true);
        ip("link set east down");
        known.wait("west", false);
        known.wait("east", false);
        ip("link set east up");
        known.wait("west", true);
        ip("link del east");
        known.wait("west", false);
        veth("west", "east");
        known.wait("west", true);
    });
}

fn more_changes_than_the_socket_has_room_for_are_caught_up() {
    in_namespace(|| {
        veth("west", "east");
        let mut known = Known::open();
        known.wait("west", true);
        for _ in 0..400 {
            ip("link set east down");
            ip("link set east up");
        }
        ip("link set east down");
        known.wait("west", false);
    });
}

fibula_netio::tests! {
    namespaces: [
        carriers_come_and_go_with_the_other_end,
        more_changes_than_the_socket_has_room_for_are_caught_up,
    ],
    anywhere: []
}
