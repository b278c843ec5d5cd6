//! Cables that should not be: one address at two ports, a loop through a bridge, two networks joined. Each is reported, and harms no one else.

use super::multicast::bridge;
use super::{Host, Network, Site, in_step, ip, place, soon, switch, with_controller};
use crate::PATIENCE;
use api::v1;
use std::time::Instant;

/// Whether the controller says these words of hosts.
async fn said_of_hosts(network: &Network, words: &str) -> bool {
    let list = network.client.clone().list_hosts(v1::ListHostsRequest {}).await.unwrap().into_inner();
    list.troubles.iter().any(|trouble| trouble.contains(words))
}

pub(crate) fn two_hosts_with_one_address_are_told_and_others_are_served() {
    with_controller("egress", |network @ Network { site, runtime, client, .. }| {
        let [one, two, twin, three] = [(); 4].map(|()| Host::new());
        for (host, port, index) in [(&one, "p1", 1), (&two, "p2", 2), (&twin, "p3", 1), (&three, "p4", 4)] {
            host.plug(port, index);
        }
        // The twin comes after the host, and says nothing before.
        twin.inside(|| ip("link set eth down"));
        let _switches = [
            switch(site, "s1", "", "t1", &[(1, "p1"), (3, "p3")]),
            switch(site, "s2", "", "t2", &[(2, "p2"), (4, "p4")]),
        ];
        soon(runtime, "both switches are in step", async || in_step(client).await == 2);
        two.reaches_soon(2, &three, 4);
        one.reaches_soon(1, &two, 2);
        assert_eq!(place(runtime, client, 1), "s1.1 10.0.0.1");
        twin.inside(|| ip("link set eth up"));
        // Both send, in turns. Its home is where it was before its last moves: on a slow machine, where the first are long ago, of the
        // twin.
        let began = Instant::now();
        let told = [("s1:1", "s1:3"), ("s1:3", "s1:1")].map(|(home, place)| {
            format!("02:00:00:00:00:01 moves repeatedly between {home} and {place}: two hosts have it")
        });
        while !told.iter().any(|told| runtime.block_on(said_of_hosts(network, told))) {
            assert!(began.elapsed() < PATIENCE, "nobody says that two hosts have one address");
            twin.speaks_to(2);
            one.speaks_to(2);
        }
        let seen = String::from_utf8(site.fibula(&["host", "seen"]).stdout).unwrap();
        assert!(seen.lines().any(|line| line.contains("02:00:00:00:00:01") && line.contains("frozen")), "{seen}");
        assert!(two.is_answered_by(4) && three.is_answered_by(2), "the others are served meanwhile");
    });
}

pub(crate) fn a_loop_through_a_bridge_at_two_host_ports_is_told_and_others_are_served() {
    with_controller("port", |network @ Network { site, runtime, client, .. }| {
        let [one, two, three] = [(); 3].map(|()| Host::new());
        one.plug("p1", 1);
        two.plug("p2", 2);
        // A host behind a bridge, which has a cable to each of two ports.
        bridge("lan", "p3");
        ip("link add p4 mtu 1500 type veth peer name br4");
        std::fs::write("/proc/sys/net/ipv6/conf/br4/disable_ipv6", "1").unwrap();
        three.plug("br5", 3);
        for device in ["br4", "br5"] {
            ip(&format!("link set {device} master lan"));
        }
        ip("link set br4 up");
        ip("link set p4 up");
        let _switches = [
            switch(site, "s1", "", "t1", &[(1, "p1"), (3, "p3"), (4, "p4")]),
            switch(site, "s2", "", "t2", &[(2, "p2")]),
        ];
        soon(runtime, "both switches are in step", async || in_step(client).await == 2);
        one.reaches_soon(1, &two, 2);
        let began = Instant::now();
        let told = "02:00:00:00:00:03 moves repeatedly between s1:";
        while !runtime.block_on(said_of_hosts(network, told)) {
            assert!(began.elapsed() < PATIENCE, "nobody says that frames go round");
            // What it asks all goes through both cables.
            three.inside(|| ip("neigh flush dev eth"));
            three.reaches(2);
        }
        assert!(one.is_answered_by(2) && two.is_answered_by(1), "the others are served meanwhile");
    });
}

pub(crate) fn two_networks_joined_by_mistake_are_told_and_exchange_nothing() {
    with_controller("egress", |network @ Network { site, runtime, client, .. }| {
        let other_site = Site::new("auto_links = \"on\"\nauto_switches = \"on\"\n");
        let _other_controller = other_site.start();
        let other = runtime.block_on(other_site.client());
        let [one, two] = [(); 2].map(|()| Host::new());
        one.plug("p1", 1);
        two.plug("p2", 2);
        let _switches = [switch(site, "s1", "", "t1", &[(1, "p1")]), switch(&other_site, "x1", "", "t2", &[(2, "p2")])];
        for client in [client, &other] {
            soon(runtime, "its switch is in step", async || in_step(client).await == 1);
        }
        for (client, told) in [
            (client, "s1:9 is joined to x1:9, a switch of another network"),
            (&other, "x1:9 is joined to s1:9, a switch of another network"),
        ] {
            soon(runtime, told, async || {
                let list = client.clone().list_links(v1::ListLinksRequest::default()).await.unwrap().into_inner();
                assert!(list.links.is_empty() && list.found.is_empty(), "{list:?}");
                list.troubles.iter().any(|trouble| trouble.contains(told))
            });
        }
        assert!(!one.reaches(2) && !two.reaches(1), "hosts of two networks");
        let _ = network;
    });
}
