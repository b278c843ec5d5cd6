//! Links between daemons over real interfaces, without a controller: they are found, fail in every way, and frames go round.

#[path = "links/bundles.rs"]
mod bundles;
#[path = "../../dataplane/tests/common/mod.rs"]
mod common;
#[path = "links/lldp.rs"]
mod lldp;

use bundles::{
    a_member_that_is_cut_moves_its_flows_and_no_other, a_static_bundle_of_af_xdp_follows_carriers_and_hellos,
};
use common::netns::{ip, open, receive, send, veth};
use common::*;
use fib::action::PortId;
use fib::durable::Tenants;
use fib::messages::ValueMode;
use fib::network::{Network, Settings};
use fib::replica::{Limits, MemoryTables, Replica};
use fib::rib::Attachment;
use fib::topology::{End, NodeId};
use fibula_switch::daemon::Switch;
use fibula_switch::daemon::config::Config;
use fibula_switch::daemon::saved::SavedImage;
use lldp::{
    each_member_of_a_bundle_says_who_it_is, forged_lldp_changes_what_is_shown_and_nothing_else,
    neighbours_are_heard_until_they_go,
};
use lookup::hash::SecretKey;
use netio::Device;
use netio::testkit::in_namespace;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Three switches, each joined to both others: port 10 + j of switch i leads to switch j. Each has a host at port 1.
struct Triangle {
    _directory: tempfile::TempDir,
    daemons: Vec<Daemon>,
}

struct Daemon {
    runtime: tokio::runtime::Runtime,
    switch: Option<Switch>,
    status: SocketAddr,
    config: Config,
}

/// The interface of switch `i` to switch `j`.
fn trunk(i: usize, j: usize) -> String {
    format!("t{i}{j}")
}

/// The other end of that interface, where there is a bridge between the two.
fn wire(i: usize, j: usize) -> String {
    format!("w{i}{j}")
}

impl Triangle {
    /// `bridged`: the cable between 1 and 2 is a bridge, which can fail without a word.
    fn new(hello_ms: u16, bridged: bool) -> Self {
        for (i, j) in [(1, 2), (1, 3), (2, 3)] {
            if bridged && (i, j) == (1, 2) {
                veth(&trunk(1, 2), &wire(1, 2), 1504);
                veth(&trunk(2, 1), &wire(2, 1), 1504);
                ip("link add bridge type bridge stp_state 0 mcast_snooping 0");
                for end in [wire(1, 2), wire(2, 1)] {
                    ip(&format!("link set {end} master bridge"));
                }
                ip("link set bridge mtu 1504 up");
            } else {
                veth(&trunk(i, j), &trunk(j, i), 1504);
            }
        }
        let directory = tempfile::tempdir().unwrap();
        let settings =
            Settings { mode: ValueMode::Egress, max_names: 1000, ..Settings::new(7, SecretKey::from_seed(3)) };
        let mut network = Network::new(settings, 1).unwrap();
        let nodes: Vec<NodeId> =
            (1..=3).map(|i| network.add_switch(&format!("s{i}"), Tenants::All).unwrap().0).collect();
        let end = |i: usize, port| End { node: nodes[i - 1], port: PortId(port) };
        for (i, j) in [(1, 2), (1, 3), (2, 3)] {
            network.add_link(end(i, 10 + j as u16), end(j, 10 + i as u16), 1).unwrap();
        }
        for i in 1..=3 {
            network.add_host_port(end(i, HOST_1)).unwrap();
            network.add_name(&mac(i as u64), Attachment::new(nodes[i - 1], PortId(HOST_1))).unwrap();
        }
        let daemons = (1..=3).map(|i| {
            veth(&format!("sw{i}"), &format!("host{i}"), 1500);
            let state = directory.path().join(format!("s{i}"));
            std::fs::create_dir(&state).unwrap();
            let mut toml = format!(
                "name = 's{i}'\ncontroller = 'http://127.0.0.1:1'\nstate_dir = '{}'\nstatus = '127.0.0.1:0'\n\
                 [links]\nhello_ms = {hello_ms}\n[[port]]\nid = 1\ndevice = 'sw{i}'\nrole = 'host'\n",
                state.display()
            );
            for j in (1..=3).filter(|j| *j != i) {
                let device = trunk(i, j);
                toml += &format!("[[port]]\nid = {}\ndevice = '{device}'\nrole = 'trunk'\n", 10 + j);
            }
            let mut replica = Replica::new(Limits::default(), MemoryTables::default());
            for message in network.attach(nodes[i - 1], &replica.report()).unwrap() {
                replica.apply(message).unwrap();
            }
            SavedImage::new(&state).unwrap().write(&replica.save()).unwrap();
            Daemon::new(Config::parse(&toml).unwrap())
        });
        Self { daemons: daemons.collect(), _directory: directory }
    }

    /// Of port `j` of switch `i`: state, whether it is down, and its neighbour.
    fn link(&self, i: usize, j: usize) -> (String, bool, String) {
        let page = self.daemons[i - 1].json();
        let port = page["ports"].as_array().unwrap().iter().find(|port| port["id"] == 10 + j).unwrap();
        let text = |key: &str| port["link"][key].as_str().unwrap_or_default().to_owned();
        (text("state"), port["link"]["down"] == true, text("neighbour"))
    }

    #[track_caller]
    fn wait(&self, i: usize, j: usize, state: &str) {
        let began = Instant::now();
        while self.link(i, j).0 != state {
            assert!(began.elapsed() < PATIENCE, "s{i} to s{j} is not {state}: {:?}", self.link(i, j));
            std::thread::yield_now();
        }
    }

    fn wait_for_all(&self) {
        for (i, j) in [(1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (3, 2)] {
            self.wait(i, j, "up");
        }
    }

    /// A frame from host 1 to host 2 arrives.
    #[track_caller]
    fn assert_arrives(&self) {
        let (mut from, mut to) = (open("host1"), open("host2"));
        send(&mut from, &between(1, 2));
        while receive(&mut to) != between(1, 2) {}
    }

    /// Sends frames from host 1 to host 2 until one arrives.
    fn send_until_one_arrives(&self) {
        let (mut from, mut to) = (open("host1"), open("host2"));
        let (mut pool, mut burst) = (netio::Pool::new(64, 2048), netio::Burst::new());
        let began = Instant::now();
        loop {
            send(&mut from, &between(1, 2));
            to.rx_burst(&mut pool, &mut burst).unwrap();
            if burst.drain(..).any(|packet| packet.frame() == between(1, 2)) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "no frame arrives");
            std::thread::yield_now();
        }
    }

    fn stop(mut self) {
        self.daemons.iter_mut().for_each(Daemon::stop);
    }
}

impl Daemon {
    fn new(config: Config) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let switch = runtime.block_on(Switch::start(config.clone())).unwrap();
        let status = switch.status_address().unwrap().tcp().unwrap();
        Self { runtime, switch: Some(switch), status, config }
    }

    fn stop(&mut self) {
        self.switch.take().into_iter().for_each(|switch| self.runtime.block_on(switch.stop()));
    }

    fn page(&self, path: &str) -> String {
        page(self.status, path)
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.page("/status")).unwrap()
    }
}

fn with_triangle(hello_ms: u16, bridged: bool, test: impl FnOnce(Triangle) + Send) {
    in_namespace(|| {
        ip("link set lo up");
        test(Triangle::new(hello_ms, bridged));
    });
}

fn neighbours_are_found_and_a_cut_cable_is_gone_round_at_once() {
    with_triangle(100, false, |triangle| {
        triangle.wait_for_all();
        assert_eq!(triangle.link(1, 2), ("up".to_owned(), false, "s2:11".to_owned()));
        triangle.assert_arrives();
        ip(&format!("link set {} down", trunk(2, 1)));
        triangle.wait(1, 2, "no_carrier");
        triangle.assert_arrives();
        // The way leads over s3.
        let over = triangle.daemons[2].json()["frames"]["sent"].as_u64().unwrap();
        triangle.assert_arrives();
        // A frame arrives before its worker has counted it.
        let began = Instant::now();
        while triangle.daemons[2].json()["frames"]["sent"].as_u64().unwrap() <= over {
            assert!(began.elapsed() < PATIENCE, "s3 sends nothing");
        }
        let metrics = triangle.daemons[0].page("/metrics");
        assert!(metrics.contains("fibula_link_up{port=\"12\",device=\"t12\",state=\"no_carrier\"} 0"), "{metrics}");
        assert!(metrics.contains("fibula_link_up{port=\"13\",device=\"t13\",state=\"up\"} 1"), "{metrics}");
        assert!(metrics.contains("fibula_link_falls_total{port=\"12\",device=\"t12\"} 1"), "{metrics}");
        ip(&format!("link set {} up", trunk(2, 1)));
        triangle.wait_for_all();
        triangle.assert_arrives();
        triangle.stop();
    });
}

fn a_cable_that_fails_silently_is_gone_round() {
    with_triangle(20, true, |triangle| {
        triangle.wait_for_all();
        triangle.send_until_one_arrives();
        ip(&format!("link set {} nomaster", wire(1, 2)));
        // Until the hellos are missed, frames are lost.
        triangle.send_until_one_arrives();
        triangle.wait(1, 2, "silent");
        triangle.wait(2, 1, "silent");
        // On a slow machine other links fall, too, if nobody says anything for 60 ms.
        triangle.send_until_one_arrives();
        assert!(triangle.link(1, 2).1);
        let metrics = triangle.daemons[0].page("/metrics");
        let count = |of: &str| {
            let line = metrics.lines().find_map(|line| line.strip_prefix(of));
            line.unwrap_or_else(|| panic!("{of}: {metrics}")).trim().parse::<u64>().unwrap()
        };
        // Three until its neighbour was taken for gone.
        assert!(count("fibula_hellos_lost_total{port=\"12\",device=\"t12\"}") >= 3, "{metrics}");
        count("fibula_hellos_lost_total{port=\"13\",device=\"t13\"}");
        assert!(count("fibula_hellos_heard_total{port=\"13\",device=\"t13\"}") > 0, "{metrics}");
        assert!(count("fibula_lookups_total") > 0, "{metrics}");
        ip(&format!("link set {} master bridge", wire(1, 2)));
        triangle.wait_for_all();
        triangle.stop();
    });
}

fn a_cable_that_fails_in_one_direction_is_down_at_both_ends() {
    with_triangle(20, true, |triangle| {
        triangle.wait_for_all();
        // Nothing reaches s1 from s2 any more; what s1 sends arrives.
        ip(&format!("link set {} type bridge_slave flood off mcast_flood off learning off", wire(1, 2)));
        ip("link set bridge type bridge fdb_flush");
        triangle.wait(1, 2, "silent");
        triangle.wait(2, 1, "one_way");
        assert!(triangle.link(1, 2).1 && triangle.link(2, 1).1);
        triangle.send_until_one_arrives();
        triangle.stop();
    });
}

/// As where more frames come than a switch can take, and hellos are lost among them.
fn frames_show_that_a_neighbour_is_there_while_its_hellos_are_lost() {
    with_triangle(1000, true, |triangle| {
        triangle.wait_for_all();
        let heard = || {
            let metrics = triangle.daemons[0].page("/metrics");
            let of = "fibula_hellos_heard_total{port=\"12\",device=\"t12\"} ";
            metrics.lines().find_map(|line| line.strip_prefix(of)).unwrap().parse::<u64>().unwrap()
        };
        // Multicasts from s2 do not reach s1 any more.
        ip(&format!("link set {} type bridge_slave mcast_flood off", wire(1, 2)));
        let before = heard();
        let mut from = open("host2");
        let (began, mut judged) = (Instant::now(), Duration::ZERO);
        // It would be gone after three seconds.
        while began.elapsed() < Duration::from_secs(5) {
            let turn = Instant::now();
            send(&mut from, &between(2, 1));
            let link = triangle.link(1, 2);
            // Without a frame for a second it may be down.
            if turn.elapsed() < Duration::from_millis(500) {
                assert_eq!(link, ("up".to_owned(), false, "s2:11".to_owned()), "{:?}", began.elapsed());
                judged = began.elapsed();
            }
        }
        assert!(judged > Duration::from_secs(4), "the machine is too slow to judge: {judged:?}");
        // One may have been on its way.
        assert!(heard() <= before + 1);
        triangle.wait(1, 2, "silent");
        triangle.wait(2, 1, "one_way");
        triangle.stop();
    });
}

fn a_third_switch_on_a_cable_and_a_cable_back_are_told() {
    with_triangle(20, true, |triangle| {
        triangle.wait_for_all();
        // The cable from s3 to s1 is plugged into the bridge.
        veth("plug", "socket", 1504);
        ip("link set socket master bridge");
        ip(&format!("link set {} down", trunk(3, 1)));
        let mut third = Daemon::new({
            let mut config = triangle.daemons[2].config.clone();
            config.name = "s4".to_owned();
            config.state_dir = config.state_dir.join("other");
            config.ports.retain(|port| port.id == PortId(11));
            config.ports[0].device = "plug".to_owned();
            config
        });
        triangle.wait(1, 2, "several");
        triangle.wait(2, 1, "several");
        assert!(triangle.link(1, 2).1);
        third.stop();
        triangle.wait(1, 2, "up");
        // A cable from a switch to itself.
        let mut looped = Daemon::new({
            veth("loop1", "loop2", 1504);
            let mut config = triangle.daemons[2].config.clone();
            config.name = "s5".to_owned();
            config.state_dir = config.state_dir.join("third");
            config.ports.retain(|port| port.id != PortId(1));
            config.ports[0].device = "loop1".to_owned();
            config.ports[1].device = "loop2".to_owned();
            config
        });
        let began = Instant::now();
        let state = |page: &serde_json::Value, i: usize| page["ports"][i]["link"]["state"].as_str() == Some("looped");
        while !(state(&looped.json(), 0) && state(&looped.json(), 1)) {
            assert!(began.elapsed() < PATIENCE, "{:#}", looped.json());
        }
        looped.stop();
        // A trunk that leads to the host port of s1.
        let mut stray = Daemon::new({
            let mut config = triangle.daemons[2].config.clone();
            config.name = "s6".to_owned();
            config.state_dir = config.state_dir.join("fourth");
            config.ports.retain(|port| port.id == PortId(11));
            config.ports[0].device = "host1".to_owned();
            config
        });
        let told = || {
            let page = triangle.daemons[0].json();
            let port = page["ports"].as_array().unwrap().iter().find(|port| port["id"] == HOST_1).unwrap();
            (port["link"]["state"].as_str() == Some("host_port"), port["link"]["neighbour"].as_str() == Some("s6:11"))
        };
        while told() != (true, true) {
            assert!(began.elapsed() < PATIENCE, "{:#}", triangle.daemons[0].json());
        }
        let metrics = triangle.daemons[0].page("/metrics");
        let dropped =
            metrics.lines().find_map(|line| line.strip_prefix("fibula_frames_dropped_total{reason=\"link_local\"} "));
        assert!(dropped.unwrap().parse::<u64>().unwrap() > 0, "{metrics}");
        assert!(!metrics.contains("state=\"host_port\""), "it is no trunk");
        stray.stop();
        triangle.stop();
    });
}

fn without_hellos_nothing_is_said_and_carriers_are_followed() {
    with_triangle(0, false, |triangle| {
        ip(&format!("link set {} down", trunk(1, 2)));
        triangle.wait(2, 1, "no_carrier");
        ip(&format!("link set {} up", trunk(1, 2)));
        triangle.wait(2, 1, "unwatched");
        triangle.wait(1, 2, "unwatched");
        // The socket that went down with its interface takes a moment, and the first frame with it.
        triangle.send_until_one_arrives();
        triangle.assert_arrives();
        assert_eq!(triangle.daemons[0].json()["frames"]["originated"], 0);
        assert!(!triangle.daemons[0].page("/metrics").contains("fibula_hellos_lost_total{"), "none is expected");
        triangle.stop();
    });
}

netio::tests! {
    namespaces: [
        neighbours_are_found_and_a_cut_cable_is_gone_round_at_once,
        a_cable_that_fails_silently_is_gone_round,
        a_cable_that_fails_in_one_direction_is_down_at_both_ends,
        frames_show_that_a_neighbour_is_there_while_its_hellos_are_lost,
        a_third_switch_on_a_cable_and_a_cable_back_are_told,
        without_hellos_nothing_is_said_and_carriers_are_followed,
        neighbours_are_heard_until_they_go,
        forged_lldp_changes_what_is_shown_and_nothing_else,
        each_member_of_a_bundle_says_who_it_is,
        a_member_that_is_cut_moves_its_flows_and_no_other,
        a_static_bundle_of_af_xdp_follows_carriers_and_hellos,
    ],
    anywhere: []
}
