//! What becomes of the groups that a host has joined when it is plugged in elsewhere, and when it is gone.

use super::{Host, Network, ip, soon, switch, with_sections};
use crate::PATIENCE;
use api::v1;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

const GROUP: &str = "239.1.2.3:7000";

/// Plugs a bridge in at a port: a host behind it does not notice where that is, and the port does not notice when the host goes.
pub(crate) fn bridge(name: &str, port: &str) {
    let uplink = format!("{name}u");
    ip(&format!("link add {name} type bridge stp_state 0 mcast_snooping 0"));
    ip(&format!("link add {port} mtu 1500 type veth peer name {uplink}"));
    for device in [name, &uplink] {
        // Nothing here says anything of its own.
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6"), "1").unwrap();
    }
    ip(&format!("link set {uplink} master {name}"));
    for device in [name, port, &uplink] {
        ip(&format!("link set {device} up"));
    }
}

/// Sends to the group until someone hears it.
#[track_caller]
fn heard_soon(mouth: &UdpSocket, ears: &UdpSocket) {
    let (began, mut heard) = (Instant::now(), [0; 64]);
    for i in 0.. {
        let text = format!("to the group {i}");
        mouth.send_to(text.as_bytes(), GROUP).unwrap();
        // Earlier ones may come late.
        while let Ok(n) = ears.recv(&mut heard) {
            if heard[..n] == *text.as_bytes() {
                return;
            }
        }
        assert!(began.elapsed() < PATIENCE, "nobody hears the group");
    }
}

pub(super) fn what_a_host_joined_follows_it_and_ends_when_it_is_gone_without_a_word() {
    let sections = "[groups]\ntenants = [0]\nquery_interval_s = 2\n";
    with_sections("egress", sections, |Network { site, runtime, client, .. }| {
        bridge("b2", "p2");
        bridge("b4", "p4");
        let [one, two] = [(1, "p1"), (2, "h2")].map(|(index, port)| {
            let host = Host::new();
            host.plug(port, index);
            host.inside(|| ip("route add 224.0.0.0/4 dev eth"));
            host
        });
        ip("link set h2 master b2");
        let extra = "group_frames_per_second = 10000";
        let _switches =
            [switch(site, "s1", extra, "t1", &[(1, "p1"), (4, "p4")]), switch(site, "s2", extra, "t2", &[(2, "p2")])];
        soon(runtime, "both switches are in step", async || super::in_step(client).await == 2);
        one.reaches_soon(1, &two, 2);
        let ears = two.inside(|| {
            let ears = UdpSocket::bind("0.0.0.0:7000").unwrap();
            ears.join_multicast_v4(&Ipv4Addr::new(239, 1, 2, 3), &Ipv4Addr::new(10, 0, 0, 2)).unwrap();
            ears.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            ears
        });
        let mouth = one.inside(|| UdpSocket::bind("10.0.0.1:0").unwrap());
        let of_group = async || {
            let group = "239.1.2.3".to_owned();
            let ask = v1::ListGroupsRequest { group, tenant: Some(0), ..v1::ListGroupsRequest::default() };
            client.clone().list_groups(ask).await.unwrap().into_inner()
        };
        let is_at = async |switch: &str, port: u32| {
            let list = of_group().await;
            let at = |row: &v1::Subscribed| row.at.as_ref().map(|end| (end.switch.clone(), end.port));
            list.subscribed.iter().map(at).eq([Some((switch.to_owned(), port))])
                && list.members.is_some_and(|members| members.of_all.is_empty())
        };
        heard_soon(&mouth, &ears);
        soon(runtime, "it has joined at the one switch", async || is_at("s2", 2).await);

        // It is plugged in at the other switch, and joins nothing anew.
        ip("link set h2 nomaster");
        ip("link set h2 master b4");
        one.reaches_soon(1, &two, 2);
        soon(runtime, "it has joined at the other switch", async || is_at("s1", 4).await);
        heard_soon(&mouth, &ears);

        // It is gone, and its port is up still.
        ip("link del h2");
        soon(runtime, "nobody has joined any more", async || of_group().await.subscribed.is_empty());
        let frame = "01005e010203 020000000001 0800 4500001c00000000401100000a000001ef010203 1b581b5800080000";
        let traced = site.fibula(&["trace", frame]);
        let text = String::from_utf8(traced.stdout).unwrap();
        assert!(text.contains("no other name has joined 239.1.2.3"), "{text}");
        assert_eq!(traced.status.code(), Some(5), "nobody gets it");
    });
}
