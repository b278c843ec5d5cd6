//! LLDP between switches, a stranger at a host port, and members of a bundle.

use super::bundles::Pair;
use super::{Daemon, Triangle, with_triangle};
use crate::common::netns::{ip, open, receive, send};
use crate::common::*;
use dataplane::learn::Learn;
use dataplane::links::lldp::{Own, Said, is_lldp};
use fib::action::PortId;
use fibula_switch::daemon::config::{Config, Lldp};
use netio::Device;
use netio::testkit::in_namespace;
use serde_json::Value;
use std::time::Instant;

/// Starts a switch of the triangle anew.
fn restart(triangle: &mut Triangle, i: usize, change: impl FnOnce(&mut Config)) {
    let mut config = triangle.daemons[i - 1].config.clone();
    triangle.daemons[i - 1].stop();
    // What serves its pages still holds the directory.
    let image = config.state_dir.join("image");
    config.state_dir = config.state_dir.join("next");
    std::fs::create_dir(&config.state_dir).unwrap();
    std::fs::copy(image, config.state_dir.join("image")).unwrap();
    change(&mut config);
    triangle.daemons[i - 1] = Daemon::new(config);
}

fn port(daemon: &Daemon, id: u16) -> Value {
    let page = daemon.json();
    page["ports"].as_array().unwrap().iter().find(|port| port["id"] == id).unwrap().clone()
}

/// Until a port is as it should be.
#[track_caller]
fn wait_for(daemon: &Daemon, id: u16, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let port = port(daemon, id);
        if is(&port) {
            return port;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: {port:#}");
        std::thread::yield_now();
    }
}

/// The next frame of LLDP.
fn next(device: &mut impl Device) -> Vec<u8> {
    std::iter::repeat_with(|| receive(device)).find(|frame| is_lldp(frame)).unwrap()
}

/// What a stranger says, who calls himself as a switch of the network does.
fn forged(name: &str, device: &str) -> Own {
    let (switch, device) = (name.to_owned(), device.to_owned());
    Own { switch, source: [2, 0, 0, 0, 0x66, 0x66], port: PortId(11), role: "trunk", device, address: None }
}

pub(crate) fn neighbours_are_heard_until_they_go() {
    with_triangle(100, false, |mut triangle| {
        triangle.wait_for_all();
        let (mut host, began) = (open("host1"), Instant::now());
        restart(&mut triangle, 1, |config| {
            config.links.lldp = Lldp::Both;
            config.ports[1].lldp = Some(Lldp::Listen);
        });
        restart(&mut triangle, 2, |config| config.links.lldp = Lldp::Both);

        // Four within seconds, where those in turn take 90.
        let frames = [(); 4].map(|()| next(&mut host));
        assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
        let said = Said::decode(&frames[0]).unwrap();
        assert!(frames.iter().all(|frame| Said::decode(frame).as_ref() == Ok(&said)));
        assert_eq!((&said.chassis.text[..], &said.port.text[..], said.ttl_s), ("s1", "sw1", 121));
        assert_eq!((said.name.as_deref(), said.port_text.as_deref()), (Some("s1"), Some("port 1 of s1, host")));

        // A port that does not listen to hosts is heard all the same, and one that says nothing is not.
        let there = wait_for(&triangle.daemons[0], 12, "s1 hears s2", |port| port["neighbours"][0]["name"] == "s2");
        assert_eq!((&there["role"], &there["neighbours"][0]["port"]), (&"trunk".into(), &"t21".into()), "{there:#}");
        assert_eq!((&there["lldp"]["said"], &there["lldp"]["does"]), (&0.into(), &"listen".into()), "{there:#}");
        assert!(there["lldp"]["heard"].as_u64().unwrap() >= 1);
        assert_eq!(port(&triangle.daemons[1], 11)["neighbours"], Value::Array(vec![]));
        let metrics = triangle.daemons[0].page("/metrics");
        assert!(metrics.contains("fibula_lldp_neighbours{port=\"12\",device=\"t12\"} 1"), "{metrics}");
        assert!(metrics.contains("fibula_lldp_frames_total{port=\"12\",device=\"t12\",event=\"said\"} 0"), "{metrics}");

        // One that stops in order says so. The cable is as it was.
        triangle.daemons[1].stop();
        wait_for(&triangle.daemons[0], 12, "s2 is gone", |port| port["neighbours"] == Value::Array(vec![]));
        triangle.wait(1, 2, "silent");
        // Another device is plugged in.
        let mut frame = forged("patch-9", "port 7").encode(121, None);
        let at = frame.windows(7).position(|bytes| bytes == b"fibula ").unwrap();
        frame[at..at + 7].copy_from_slice(b"foreign");
        send(&mut open("t21"), &frame);
        let is_told = |port: &Value| port["link"]["device_there"] == "patch-9, port port 7";
        wait_for(&triangle.daemons[0], 12, "a foreign device is told", is_told);
        // LLDP from a trunk is no sign that a device is there that is no switch.
        assert_eq!(triangle.daemons[0].json()["drops"]["no_shim"], Value::Null);
        // So does the other, to its host.
        triangle.daemons[0].stop();
        let last =
            std::iter::repeat_with(|| Said::decode(&next(&mut host)).unwrap()).find(|said| said.ttl_s == 0).unwrap();
        assert_eq!((&last.chassis.text[..], last.name), ("s1", None));
        triangle.stop();
    });
}

pub(crate) fn forged_lldp_changes_what_is_shown_and_nothing_else() {
    with_triangle(100, false, |mut triangle| {
        // By default all ports listen. Sources are checked, and those that are no names are learnt.
        restart(&mut triangle, 1, |config| config.learn = Learn::Report);
        triangle.wait_for_all();
        let s1 = |triangle: &Triangle| triangle.daemons[0].json();
        let mut hosts = ["host1", "host2", "host3"].map(open);
        let mut groups = [0x0e, 0x03, 0x00].into_iter().map(|last| {
            let mut frame = forged("s2", "t21").encode(121, None);
            frame[5] = last;
            frame
        });
        groups.by_ref().for_each(|frame| send(&mut hosts[0], &frame));
        let evil = forged("\u{1b}[2Jroot# ", "x");
        send(&mut hosts[0], &evil.encode(u16::MAX, None));
        let there = wait_for(&triangle.daemons[0], 1, "it is shown", |port| port["neighbours"][1]["name"].is_string());
        assert_eq!((&there["role"], &there["neighbours"][0]["name"]), (&"host".into(), &"s2".into()), "{there:#}");
        assert_eq!(there["neighbours"][1]["name"], "\\u{1b}[2Jroot# ");
        assert_eq!((&there["lldp"]["heard"], &there["lldp"]["said"]), (&4.into(), &0.into()));

        let ends = [(1, 2), (2, 1), (1, 3), (3, 1)];
        let neighbours = ends.map(|(i, j)| triangle.link(i, j).2);
        // A flood of good frames, and one of frames that are none.
        let (good, mut wrong) = (forged("s3", "t31").encode(121, None), forged("s3", "t31").encode(121, None));
        wrong[15] = 0xff;
        let flooded = |port: &Value| port["lldp"]["flooded"].as_u64().unwrap_or(0);
        // The ring of a worker that gets no time loses some.
        let began = Instant::now();
        let there = loop {
            (0..200).for_each(|i| send(&mut hosts[0], if i % 2 == 0 { &good } else { &wrong }));
            let there = port(&triangle.daemons[0], 1);
            if flooded(&there) > 1000 {
                break there;
            }
            assert!(began.elapsed() < PATIENCE, "{there:#}");
        };
        assert!(there["neighbours"].as_array().unwrap().len() <= 4, "{there:#}");

        // Links are as they were, frames arrive, and nobody else has heard any of it.
        triangle.assert_arrives();
        for (i, j) in ends {
            triangle.wait(i, j, "up");
        }
        assert_eq!(ends.map(|(i, j)| triangle.link(i, j).2), neighbours);
        let page = s1(&triangle);
        assert_eq!(page["drops"]["source_mac"], Value::Null, "{:#}", page["drops"]);
        assert_eq!(page["frames"]["groups"], 0, "{:#}", page["frames"]);
        assert!(page["ports"][1]["neighbours"].as_array().unwrap().is_empty());
        let metrics = triangle.daemons[0].page("/metrics");
        assert!(metrics.contains("fibula_sources_noted_total{event=\"noted\"} 0"), "{metrics}");
        for host in &mut hosts[1..] {
            send(host, &between(1, 1));
            let (mut pool, mut burst) = (netio::Pool::new(64, 2048), netio::Burst::new());
            host.rx_burst(&mut pool, &mut burst).unwrap();
            assert!(!burst.iter().any(|packet| is_lldp(packet.frame())));
            pool.put_all(&mut burst);
        }

        // The cable is pulled: whoever was there is not there any more.
        ip("link set host1 down");
        wait_for(&triangle.daemons[0], 1, "it is gone", |port| port["neighbours"] == Value::Array(vec![]));

        // With LLDP off it is for the other end of the cable, as other multicasts of one link are.
        ip("link set host1 up");
        restart(&mut triangle, 1, |config| config.links.lldp = Lldp::Off);
        let mut host = open("host1");
        let began = Instant::now();
        while s1(&triangle)["drops"]["link_local"].as_u64().unwrap_or(0) == 0 {
            send(&mut host, &good);
            assert!(began.elapsed() < PATIENCE, "{:#}", s1(&triangle)["drops"]);
        }
        assert_eq!(port(&triangle.daemons[0], 1)["neighbours"], Value::Null);
        triangle.stop();
    });
}

pub(crate) fn each_member_of_a_bundle_says_who_it_is() {
    in_namespace(|| {
        ip("link set lo up");
        let pair = Pair::new("[links]\nlldp = 'both'", "");
        pair.wait_for_both();
        let is_known = |i: usize| {
            let members = pair.trunk(i)["members"].clone();
            let name = |place: usize, key: &str| members[place]["neighbours"][0][key].clone();
            let (other, ports) = if i == 0 { ("s2", ["a2", "b2"]) } else { ("s1", ["a1", "b1"]) };
            (0..2).all(|place| name(place, "name") == other && name(place, "port") == ports[place])
        };
        let began = Instant::now();
        while !(is_known(0) && is_known(1)) {
            assert!(began.elapsed() < PATIENCE, "{:#} {:#}", pair.trunk(0), pair.trunk(1));
            std::thread::yield_now();
        }
        assert_eq!(pair.trunk(0)["neighbours"], Value::Null, "they are beside the members");
        let metrics = pair.daemons[0].page("/metrics");
        assert!(metrics.contains("fibula_lldp_neighbours{port=\"9\",device=\"b1\"} 1"), "{metrics}");
        ip("link set a2 down");
        let began = Instant::now();
        while pair.trunk(0)["members"][0]["neighbours"] != Value::Array(vec![]) {
            assert!(began.elapsed() < PATIENCE, "{:#}", pair.trunk(0));
            std::thread::yield_now();
        }
        assert!(pair.trunk(0)["members"][1]["neighbours"][0]["name"] == "s2");
        pair.stop();
    });
}
