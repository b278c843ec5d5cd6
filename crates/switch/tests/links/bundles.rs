//! A trunk of two cables between two switches: one is a veth, the other has a relay in between that can stop passing frames on
//! without a word. Each flow's frames are numbered.

use super::Daemon;
use crate::common::netns::{ip, open, send, veth};
use crate::common::*;
use fib::action::PortId;
use fib::durable::Tenants;
use fib::messages::ValueMode;
use fib::network::{Network, Settings};
use fib::replica::{Limits, MemoryTables, Replica};
use fib::rib::Attachment;
use fib::topology::{End, NodeId};
use fibula_switch::daemon::config::Config;
use fibula_switch::daemon::saved::SavedImage;
use lookup::hash::SecretKey;
use netio::backend::af_packet::AfPacket;
use netio::testkit::in_namespace;
use netio::{Burst, Device, Pool};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const TRUNK: u16 = 9;
const FLOWS: u16 = 64;
/// How long the frames of a round are waited for.
const ROUND: Duration = Duration::from_millis(20);

/// What passes frames between two interfaces.
struct Wire {
    is_cut: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Wire {
    fn new(one: &str, other: &str) -> Self {
        let [is_cut, ends] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let (mut sides, cut, end) = ([open(one), open(other)], Arc::clone(&is_cut), Arc::clone(&ends));
        let thread = std::thread::spawn(move || {
            let (mut pool, mut burst) = (Pool::new(64, 2048), Burst::new());
            while !end.load(Relaxed) {
                for from in 0..2 {
                    sides[from].rx_burst(&mut pool, &mut burst).unwrap();
                    if !cut.load(Relaxed) {
                        sides[1 - from].tx_burst(&mut pool, &mut burst).unwrap();
                    }
                    pool.put_all(&mut burst);
                }
                std::thread::yield_now();
            }
        });
        Self { is_cut, ends, thread }
    }
}

pub(crate) struct Pair {
    _directory: tempfile::TempDir,
    pub(crate) daemons: Vec<Daemon>,
    wire: Wire,
}

impl Pair {
    pub(crate) fn new(more: &str, bundle: &str) -> Self {
        veth("a1", "a2", 1504);
        veth("b1", "w1", 1504);
        veth("b2", "w2", 1504);
        for host in ["1", "2", "3"] {
            veth(&format!("sw{host}"), &format!("host{host}"), 1500);
        }
        let wire = Wire::new("w1", "w2");
        let directory = tempfile::tempdir().unwrap();
        let settings =
            Settings { mode: ValueMode::Egress, max_names: 1000, ..Settings::new(7, SecretKey::from_seed(3)) };
        let mut network = Network::new(settings, 1).unwrap();
        let nodes: Vec<NodeId> =
            (1..=2).map(|i| network.add_switch(&format!("s{i}"), Tenants::All).unwrap().0).collect();
        let end = |i: usize, port| End { node: nodes[i], port: PortId(port) };
        network.add_link(end(0, TRUNK), end(1, TRUNK), 1).unwrap();
        // Hosts 2 and 3 are both at s2.
        for (name, node, port) in [(1, 0, HOST_1), (2, 1, HOST_1), (3, 1, HOST_2)] {
            network.add_host_port(end(node, port)).unwrap();
            network.add_name(&mac(name), Attachment::new(nodes[node], PortId(port))).unwrap();
        }
        let daemons = (0..2).map(|i| {
            let state = directory.path().join(format!("s{i}"));
            std::fs::create_dir(&state).unwrap();
            let hosts = if i == 0 { &[("sw1", HOST_1)][..] } else { &[("sw2", HOST_1), ("sw3", HOST_2)] };
            let host = |(device, port): &(&str, u16)| {
                format!("[[port]]\nid = {port}\ndevice = '{device}'\nrole = 'host'\ndriver = 'af_packet'\n")
            };
            let hosts: String = hosts.iter().map(host).collect();
            let side = i + 1;
            let toml = format!(
                "name = 's{side}'\ncontroller = 'http://127.0.0.1:1'\nstate_dir = '{}'\nstatus = '127.0.0.1:0'\n{more}\n{hosts}\
                 [[port]]\nid = {TRUNK}\nrole = 'trunk'\n[port.bundle]\nmembers = ['a{side}', 'b{side}']\n{bundle}\n",
                state.display()
            );
            let mut replica = Replica::new(Limits::default(), MemoryTables::default());
            for message in network.attach(nodes[i], &replica.report()).unwrap() {
                replica.apply(message).unwrap();
            }
            SavedImage::new(&state).unwrap().write(&replica.save()).unwrap();
            Daemon::new(Config::parse(&toml).unwrap())
        });
        Self { daemons: daemons.collect(), wire, _directory: directory }
    }

    pub(crate) fn trunk(&self, i: usize) -> Value {
        let page = self.daemons[i].json();
        page["ports"].as_array().unwrap().iter().find(|port| port["id"] == TRUNK).unwrap().clone()
    }

    fn states(&self, i: usize) -> [String; 2] {
        let trunk = self.trunk(i);
        [0, 1].map(|place| trunk["members"][place]["state"].as_str().unwrap_or_default().to_owned())
    }

    /// Until the members of both switches are so.
    #[track_caller]
    fn wait(&self, is: impl Fn(&[String; 2]) -> bool) {
        let began = Instant::now();
        while !(0..2).all(|i| is(&self.states(i))) {
            assert!(began.elapsed() < PATIENCE, "{:#} {:#}", self.trunk(0), self.trunk(1));
            std::thread::yield_now();
        }
    }

    pub(crate) fn wait_for_both(&self) {
        self.wait(|states| *states == ["up", "up"]);
    }

    fn sent_by(&self, place: usize) -> u64 {
        self.trunk(0)["members"][place]["counters"]["tx_frames"].as_u64().unwrap()
    }

    pub(crate) fn stop(mut self) {
        self.daemons.iter_mut().for_each(Daemon::stop);
        self.wire.ends.store(true, Relaxed);
        self.wire.thread.join().unwrap();
    }
}

/// Numbered frames of flows from host 1 to host 2.
struct Traffic {
    from: AfPacket,
    to: AfPacket,
    elsewhere: AfPacket,
    pool: Pool,
    received: u64,
    next: u32,
    /// When the frames were sent that have not come: by flow and number.
    missing: HashMap<(u16, u32), Instant>,
    /// The number of the last frame of each flow.
    last: Vec<u32>,
    /// Frames that came after later ones of their flow.
    late: u64,
}

impl Traffic {
    fn new() -> Self {
        let last = vec![0; FLOWS.into()];
        let [from, to, elsewhere] = ["host1", "host2", "host3"].map(open);
        Self {
            from,
            to,
            elsewhere,
            pool: Pool::new(256, 2048),
            received: 0,
            next: 1,
            missing: HashMap::new(),
            last,
            late: 0,
        }
    }

    /// A frame of each flow; returns how many did not come in time.
    fn round(&mut self) -> u64 {
        for flow in 0..FLOWS {
            let mut frame = frames::udp4(&self.next.to_be_bytes(), 1000 + flow);
            frame[..6].copy_from_slice(&mac_bytes(2));
            frame[6..12].copy_from_slice(&mac_bytes(1));
            self.missing.insert((flow, self.next), Instant::now());
            send(&mut self.from, &frame);
        }
        self.next += 1;
        let (before, began) = (self.received, Instant::now());
        while self.received < before + u64::from(FLOWS) && began.elapsed() < ROUND {
            self.take();
            std::thread::yield_now();
        }
        (before + u64::from(FLOWS)).saturating_sub(self.received)
    }

    fn take(&mut self) {
        let mut burst = Burst::new();
        self.to.rx_burst(&mut self.pool, &mut burst).unwrap();
        for packet in &burst {
            let frame = packet.frame();
            if frame[12..14] != [8, 0] {
                continue;
            }
            assert_eq!(frame[..6], mac_bytes(2), "misdelivered");
            let flow = u16::from_be_bytes([frame[36], frame[37]]) - 1000;
            let number = u32::from_be_bytes(frame[42..46].try_into().unwrap());
            let last = &mut self.last[usize::from(flow)];
            assert!(self.missing.remove(&(flow, number)).is_some(), "flow {flow}, frame {number}: twice");
            self.late += u64::from(number < *last);
            *last = number.max(*last);
            self.received += 1;
        }
        self.pool.put_all(&mut burst);
        self.elsewhere.rx_burst(&mut self.pool, &mut burst).unwrap();
        assert!(!burst.iter().any(|packet| packet.frame()[12..14] == [8, 0]), "misdelivered");
        self.pool.put_all(&mut burst);
    }

    /// Waits until all frames come that are on their way, and asserts that from now on none is lost.
    #[track_caller]
    fn assert_whole(&mut self) {
        let began = Instant::now();
        let mut in_a_row = 0;
        while in_a_row < 20 {
            in_a_row = if self.round() == 0 { in_a_row + 1 } else { 0 };
            assert!(began.elapsed() < PATIENCE, "frames are lost all the time");
        }
    }

    /// Sends until frames of all flows come again; how many were lost, and how long after the cut the last of them was sent.
    #[track_caller]
    fn lost_until_whole(&mut self, cut: impl FnOnce() + Send + 'static) -> (u64, Duration) {
        // While frames are under way.
        let cuts = std::thread::spawn(cut);
        let began = Instant::now();
        let mut in_a_row = 0;
        while in_a_row < 50 || !cuts.is_finished() {
            in_a_row = if self.round() == 0 { in_a_row + 1 } else { 0 };
            assert!(began.elapsed() < PATIENCE, "frames are lost all the time");
        }
        cuts.join().unwrap();
        // A frame that comes late, as on a slow machine, is not lost.
        let lost: Vec<Duration> = self.missing.values().filter_map(|sent| sent.checked_duration_since(began)).collect();
        (lost.len() as u64, lost.into_iter().max().unwrap_or_default())
    }
}

/// `most_late`: frames of a flow that moves that may come late, since a ring keeps them for as long as there is no carrier.
fn cut_and_mend(pair: Pair, what: &str, most_late: u64) {
    pair.wait_for_both();
    let mut traffic = Traffic::new();
    traffic.assert_whole();
    let before = [0, 1].map(|place| pair.sent_by(place));
    (0..20).for_each(|_| _ = traffic.round());
    for (place, before) in before.into_iter().enumerate() {
        let n = pair.sent_by(place) - before;
        assert!(n > 20 * u64::from(FLOWS) / 5, "member {place} has {n} of {} frames", 20 * FLOWS);
    }
    let link = |i: usize| pair.trunk(i)["link"].clone();
    assert_eq!((&link(0)["state"], &link(0)["neighbour"]), (&"up".into(), &"s2:9".into()));

    // By carrier: at both ends.
    let (lost, time) = traffic.lost_until_whole(|| ip("link set a2 down"));
    pair.wait(|[a, b]| a == "no_carrier" && b == "up");
    println!("{what}: a cable without carrier: {lost} frames lost in {time:?}");
    assert!(!link(0)["down"].as_bool().unwrap() && !link(1)["down"].as_bool().unwrap());
    let metrics = pair.daemons[0].page("/metrics");
    assert!(metrics.contains("fibula_member_up{port=\"9\",member=\"a1\",state=\"no_carrier\"} 0"), "{metrics}");
    assert!(metrics.contains("fibula_member_up{port=\"9\",member=\"b1\",state=\"up\"} 1"), "{metrics}");
    assert!(metrics.contains("fibula_link_up{port=\"9\",device=\"a1+b1\",state=\"up\"} 1"), "{metrics}");
    ip("link set a2 up");
    pair.wait_for_both();
    traffic.assert_whole();

    // Without a word.
    let cut = Arc::clone(&pair.wire.is_cut);
    let cuts = Arc::clone(&cut);
    let (lost, time) = traffic.lost_until_whole(move || cuts.store(true, Relaxed));
    pair.wait(|[a, b]| a == "up" && b == "silent");
    // LACP alone takes three seconds.
    assert!(time < Duration::from_secs(2), "{time:?}");
    println!("{what}: a cable that is cut without a word: {lost} frames lost in {time:?}");
    assert!(lost > 0, "its flows went by it");
    assert!(!link(0)["down"].as_bool().unwrap());

    // The last one.
    ip("link set a2 down");
    let began = Instant::now();
    while !(0..2).all(|i| link(i)["down"] == true && pair.trunk(i)["up"] == false) {
        assert!(began.elapsed() < PATIENCE, "{:#}", pair.trunk(0));
        std::thread::yield_now();
    }
    ip("link set a2 up");
    cut.store(false, Relaxed);
    pair.wait_for_both();
    traffic.assert_whole();
    let n_sent = u32::from(FLOWS) * (traffic.next - 1);
    println!("{what}: {} of {n_sent} frames came after later ones of their flows", traffic.late);
    assert!(traffic.late <= most_late, "{} frames were reordered", traffic.late);
    pair.stop();
}

pub(crate) fn a_member_that_is_cut_moves_its_flows_and_no_other() {
    in_namespace(|| {
        ip("link set lo up");
        let pair = Pair::new("workers = 2", "lacp = 'active'");
        // What says LACP at the port of a host is a multicast, as ever.
        let mut forged = dataplane::bundle::pdu::Pdu::default().encode();
        forged[6..12].copy_from_slice(&mac_bytes(1));
        send(&mut open("host1"), &forged);
        let began = Instant::now();
        let dropped = || pair.daemons[0].json()["drops"]["link_local"].as_u64().unwrap_or(0);
        while dropped() == 0 {
            assert!(began.elapsed() < PATIENCE, "{:#}", pair.daemons[0].json()["drops"]);
        }
        cut_and_mend(pair, "LACP and hellos", 0);
    });
}

pub(crate) fn a_static_bundle_of_af_xdp_follows_carriers_and_hellos() {
    in_namespace(|| {
        ip("link set lo up");
        cut_and_mend(Pair::new("driver = 'af_xdp'", ""), "static, af_xdp", 2 * u64::from(FLOWS));
    });
}
