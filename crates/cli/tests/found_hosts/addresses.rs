//! Hosts with several addresses, of both families, and an address that moves between hosts without a MAC address of its own, as
//! that of keepalived does.

use super::{Host, Network, Site, in_step, ip, run, soon, switch, with_controller};
use crate::PATIENCE;
use std::time::Instant;

/// Belongs to one host and then to another.
const SHARED: [u8; 4] = [10, 0, 0, 100];

/// Announces to all that this host has the shared address, as keepalived does.
fn announce(host: &Host, index: u8) {
    let source = [2, 0, 0, 0, 0, index];
    let request: &[u8] = &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1];
    let frame = [&[0xff; 6][..], &source, request, &source, &SHARED, &[0; 6], &SHARED].concat();
    host.sends(std::iter::repeat_n(frame, 5));
}

/// Whether an address answers a host that has forgotten its neighbours, and is the host of this MAC address.
fn is_at(asks: &Host, address: &'static str, index: u8) -> bool {
    asks.inside(|| ip("neigh flush dev eth"));
    let is_answered = asks.pings(address.to_owned(), "1");
    let shown = asks.inside(move || run("ip", &["neigh", "show", address, "dev", "eth"]).stdout);
    is_answered && String::from_utf8_lossy(&shown).contains(&format!("lladdr 02:00:00:00:00:{index:02x}"))
}

fn seen(site: &Site) -> String {
    String::from_utf8(site.fibula(&["host", "seen"]).stdout).unwrap()
}

#[track_caller]
fn soon_at(asks: &Host, site: &Site, places: &[(&'static str, u8)], mut meanwhile: impl FnMut()) {
    let began = Instant::now();
    while !places.iter().all(|(address, index)| is_at(asks, address, *index)) {
        assert!(began.elapsed() < PATIENCE, "not all of {places:?} answer where they are\n{}", seen(site));
        meanwhile();
    }
}

pub(super) fn every_address_of_a_host_is_answered_and_one_that_moves_is_at_its_new_host() {
    with_controller("egress", |Network { site, runtime, client, .. }| {
        let [one, two, three] = [(); 3].map(|()| Host::new());
        for (host, port, index) in [(&one, "p1", 1), (&two, "p2", 2), (&three, "p3", 3)] {
            host.plug(port, index);
            host.inside(move || ip(&format!("addr add fd00::{index}/64 dev eth nodad")));
        }
        let _switches =
            [switch(site, "s1", "", "t1", &[(1, "p1"), (3, "p3")]), switch(site, "s2", "", "t2", &[(2, "p2")])];
        soon(runtime, "both switches are in step", async || in_step(client).await == 2);
        one.reaches_soon(1, &two, 2);
        three.reaches_soon(3, &one, 1);

        // A second address does not displace the first, nor does one of the other family.
        one.inside(|| ip("addr add 10.0.0.100/24 dev eth"));
        let both = [("10.0.0.1", 1), ("10.0.0.100", 1), ("10.0.0.2", 2), ("fd00::1", 1), ("fd00::2", 2)];
        soon_at(&three, site, &both, || {
            announce(&one, 1);
            // A host is found by what it says.
            for host in [&one, &two] {
                host.pings("fd00::3".to_owned(), "0.2");
            }
        });

        // The first host fails without a word of that address, and another takes it over.
        one.inside(|| ip("addr del 10.0.0.100/24 dev eth"));
        two.inside(|| ip("addr add 10.0.0.100/24 dev eth"));
        let moved = [("10.0.0.1", 1), ("10.0.0.100", 2), ("10.0.0.2", 2), ("fd00::1", 1), ("fd00::2", 2)];
        soon_at(&three, site, &moved, || announce(&two, 2));
        let seen = seen(site);
        let line = |mac: &str| seen.lines().find(|line| line.contains(mac)).unwrap_or_default().to_owned();
        assert!(line("02:00:00:00:00:02").contains("10.0.0.100"), "{seen}");
        assert!(!line("02:00:00:00:00:01").contains("10.0.0.100"), "{seen}");
    });
}
