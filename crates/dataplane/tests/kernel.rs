//! The kernel half of a switch against changes at full speed, and against whatever stands in its way.
//!
//! The program of a trunk runs over frames by the kernel's own test call, as it would where they came from. Frames are not
//! sent, but counted for the trunk that they would be sent to.

extern crate fibula_dataplane as dataplane;

mod common;

use common::netns::{ip, open_af_xdp, veth};
use common::{HOST_1, HOST_2, PATIENCE, ethernet, mac, mac_bytes, with_shim};
use dataplane::assembly::{self, build};
use dataplane::kernel::{Kernel, Memory};
use dataplane::plane::{PlaneWriter, ShownTo};
use fib::action::PortId;
use fib::designs::Design;
use fib::durable::Tenants;
use fib::messages::ValueMode;
use fib::name::{Name, NameKind};
use fib::network::{Network, Settings};
use fib::replica::{Limits, Replica};
use fib::rib::Attachment;
use fib::topology::{End, NodeId};
use lookup::hash::{Family, SecretKey};
use lookup::testkit::{self, Rng};
use netio::Device;
use netio::backend::af_xdp::{AfXdp, Options};
use netio::testkit::in_namespace;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// The trunks of the switch, each to another switch.
const TRUNKS: [u16; 4] = [8, 9, 10, 11];
/// Its ports for hosts.
const HOSTS: [u16; 2] = [HOST_1, HOST_2];
/// Names that are always there, and those that come and go: so few that most changes write where most names are read.
const N_STAYING: u64 = 60;
const N_PASSING: u64 = 60;
/// Frames of one call: each run takes a hop away.
const REPEAT: u32 = 250;
const REDIRECT: u32 = 4;

/// A network with a replica of its switch `s1` that the kernel forwards by. Names are at others, unless a test says so.
struct Rig {
    network: Network,
    s1: NodeId,
    others: Vec<NodeId>,
    replica: Replica<PlaneWriter>,
    kernel: Arc<Kernel>,
    devices: Vec<AfXdp>,
    /// The other ends: with programs, so that these ports take what the kernel sends.
    ends: Vec<AfXdp>,
}

/// The wire of a port, and its other end.
fn wire(port: u16) -> AfXdp {
    let far = format!("far{port}");
    veth(&interface(port), &far, 1504);
    open_af_xdp(&far)
}

fn interface(port: u16) -> String {
    format!("t{port}")
}

impl Rig {
    fn new(settings: Settings, memory: Memory) -> Self {
        // A program for arrays that does not look whether it was overtaken: with it, tests beside a writer must fail.
        let mutant = std::env::var_os("FIBULA_KERNEL_MUTANT").map(|path| std::fs::read(path).unwrap());
        let memory = if mutant.is_some() { Memory::Array } else { memory };
        let kernel = Kernel::with_program(&TRUNKS.map(PortId), &HOSTS.map(PortId), memory, mutant).unwrap();
        let mut ends = vec![];
        let devices = [&TRUNKS[..], &HOSTS].concat().into_iter().map(|port| {
            ends.push(wire(port));
            let options =
                Options { ring_frames: 64, ahead: Some(kernel.place(PortId(port)).unwrap()), ..Options::default() };
            AfXdp::open(&interface(port), &options).unwrap()
        });
        let devices = devices.collect();
        let mut network = Network::new(settings, 1).unwrap();
        let (s1, _) = network.add_switch("s1", Tenants::All).unwrap();
        let end = |node, port| End { node, port: PortId(port) };
        for port in HOSTS {
            network.add_host_port(end(s1, port)).unwrap();
        }
        let others = TRUNKS.map(|port| {
            let (other, _) = network.add_switch(&format!("s{port}"), Tenants::All).unwrap();
            network.add_link(end(s1, port), end(other, 1), 1).unwrap();
            network.add_host_port(end(other, HOST_1 + 1)).unwrap();
            other
        });
        let with_kernel =
            assembly::Settings { shown_to: ShownTo::Kernel(kernel.clone()), ..assembly::Settings::default() };
        let (_workers, _monitor, writer) = build(&with_kernel, Vec::new()).unwrap();
        let replica = Replica::new(Limits::default(), writer);
        Self { network, s1, others: others.to_vec(), replica, kernel, devices, ends }
    }

    fn attach(&mut self) {
        for message in self.network.attach(self.s1, &self.replica.report()).unwrap() {
            self.replica.apply(message).unwrap();
        }
    }

    fn place(&self, number: u64) -> Attachment {
        Attachment::new(self.others[number as usize % TRUNKS.len()], PortId(HOST_1 + 1))
    }

    fn add(&mut self, number: u64) {
        let effects = self.network.add_name(&mac(number), self.place(number)).unwrap();
        self.follow(effects);
    }

    fn remove(&mut self, number: u64) {
        let effects = self.network.remove_name(&mac(number)).unwrap();
        self.follow(effects);
    }

    fn follow(&mut self, effects: fib::network::Effects) {
        let change = effects.change;
        for (_, message) in effects.phases.into_iter().flatten().filter(|(node, _)| *node == self.s1) {
            self.replica.apply(message).unwrap();
        }
        self.network.acknowledge(self.s1, change);
    }
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn frame_to(number: u64) -> Vec<u8> {
    with_shim(&ethernet(mac_bytes(number), mac_bytes(70), 0x9999, &[0; 50]), 255)
}

/// Frames sent to each trunk so far.
fn sent(kernel: &Kernel) -> [u64; 4] {
    TRUNKS.map(|port| kernel.counters(PortId(port)).unwrap().tx_frames)
}

fn settings(design: &str, seed: u64) -> Settings {
    let core = Design::by_name(design).unwrap();
    Settings { max_names: 100_000, gateway: core, core, ..Settings::new(7, SecretKey::from_seed(seed)) }
}

/// Every frame to a name that stays leads where the name is, or to the workers, whatever changes beside it.
fn beside_a_writer(design: &str, memory: Memory, least: u64) {
    let seed = testkit::seed();
    in_namespace(|| {
        let mut rig = Rig::new(settings(design, seed), memory);
        rig.attach();
        (0..N_STAYING).for_each(|number| rig.add(number));
        let kernel = rig.kernel.clone();
        let status = kernel.status();
        assert!(status.error.is_none() && status.memory.is_some(), "{status:?}");
        let (done, n_changes) = (AtomicBool::new(false), AtomicU64::new(0));
        let (mut asked, mut rng) = (0, Rng::new(seed));
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let (mut rng, mut there) = (Rng::new(seed + 1), vec![false; N_PASSING as usize]);
                while !done.load(Ordering::Relaxed) {
                    let at = rng.below(N_PASSING);
                    let is_there = &mut there[at as usize];
                    if *is_there {
                        rig.remove(N_STAYING + at)
                    } else {
                        rig.add(N_STAYING + at)
                    }
                    *is_there = !*is_there;
                    n_changes.fetch_add(1, Ordering::Relaxed);
                }
            });
            // Also when this thread fails: the other would write for ever.
            let end = SetOnDrop(&done);
            let before = sent(&kernel);
            // In at a trunk where the name is not.
            let mut expected = before;
            while asked < least || n_changes.load(Ordering::Relaxed) < 1000 {
                let number = rng.below(N_STAYING);
                let at = number as usize % TRUNKS.len();
                let entry = PortId(TRUNKS[(at + 1) % TRUNKS.len()]);
                let (_, _, _) = kernel.try_frame(entry, &frame_to(number), REPEAT).unwrap().expect("a program");
                asked += u64::from(REPEAT);
                expected[at] += u64::from(REPEAT);
                let now = sent(&kernel);
                for (trunk, (now, most)) in now.into_iter().zip(expected).enumerate() {
                    assert!(now <= most, "seed {seed}: {number} was sent to trunk {trunk} and is at {at}");
                }
                // What the workers got is not counted for a trunk.
                expected = now;
            }
            drop(end);
            writing.join().unwrap();
            let total: u64 = sent(&kernel).iter().sum::<u64>() - before.iter().sum::<u64>();
            let changes = n_changes.load(Ordering::Relaxed);
            println!("{design}: {asked} frames beside {changes} changes, {total} sent by the kernel, 0 wrong");
            assert!(total > asked / 2, "{total} of {asked} frames were sent by the kernel");
        });
    });
}

/// Frames of a test: 10^7 with FIBULA_DEEP.
fn least() -> u64 {
    if std::env::var_os("FIBULA_DEEP").is_some() { 10_000_000 } else { 1_000_000 }
}

fn frames_beside_a_writer_go_where_their_names_are_concise() {
    beside_a_writer("concise", Memory::Best, least());
}

fn frames_beside_a_writer_go_where_their_names_are_line_in_an_array() {
    beside_a_writer("line", Memory::Array, least());
}

fn frames_beside_a_writer_go_where_their_names_are_ofw() {
    beside_a_writer("ofw", Memory::Best, least());
}

/// All names, in both kinds of memory and every design: as the workers would look them up.
fn the_kernel_answers_as_the_table() {
    let seed = testkit::seed();
    for design in ["concise", "ofw", "line", "line-fast", "line-small"] {
        for memory in [Memory::Best, Memory::Array] {
            in_namespace(|| {
                let mut rig = Rig::new(settings(design, seed), memory);
                // Before there is a table, there is no program.
                assert!(rig.kernel.try_frame(PortId(8), &frame_to(1), 1).unwrap().is_none());
                (0..1000).for_each(|number| {
                    let at = rig.place(number);
                    rig.network.add_name(&mac(number), at).unwrap();
                });
                rig.attach();
                let status = rig.kernel.status();
                // The kernel itself says whether it has arenas. Where it has, nothing else may be taken.
                let has_arenas = netio::bpf::Map::arena(4096).is_ok();
                let expected = if memory == Memory::Best && has_arenas { "arena" } else { "array" };
                assert_eq!(status.memory, Some(expected), "{design} in {memory:?}: {status:?}");
                for number in 0..1000 {
                    let (before, at) = (sent(&rig.kernel), number as usize % TRUNKS.len());
                    let entry = PortId(TRUNKS[(at + 1) % TRUNKS.len()]);
                    let (verdict, frame, _) = rig.kernel.try_frame(entry, &frame_to(number), 1).unwrap().unwrap();
                    let (mut sent_before, mut changed) = (before, frame_to(number));
                    sent_before[at] += 1;
                    assert_eq!(
                        (verdict, sent(&rig.kernel)),
                        (REDIRECT, sent_before),
                        "{design}, seed {seed}: {number}"
                    );
                    changed[14] -= 1;
                    assert_eq!(frame, changed, "one hop less");
                }
            });
        }
    }
}

fn ipv4_names_are_found_behind_the_shim_and_odd_packets_are_left() {
    let seed = testkit::seed();
    in_namespace(|| {
        let mut rig = Rig::new(Settings { kind: NameKind::Ipv4, ..settings("concise", seed) }, Memory::Best);
        let name = Name::from_bytes(NameKind::Ipv4, &[10, 1, 2, 3]).unwrap();
        let place = rig.place(0);
        rig.network.add_name(&name, place).unwrap();
        rig.attach();
        let packet = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut ip =
                vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 9, 9, 9, 9, 10, 1, 2, 3, 0, 1, 0, 2, 0, 8, 0, 0];
            change(&mut ip);
            with_shim(&ethernet(mac_bytes(1), mac_bytes(70), 0x0800, &ip), 9)
        };
        let verdict = |frame: &[u8]| {
            let before = sent(&rig.kernel)[0];
            rig.kernel.try_frame(PortId(9), frame, 1).unwrap().unwrap();
            sent(&rig.kernel)[0] - before
        };
        assert_eq!(verdict(&packet(&|_| {})), 1);
        for (what, change) in [
            ("version 6", (&|ip: &mut Vec<u8>| ip[0] = 0x65) as &dyn Fn(&mut Vec<u8>)),
            ("a header of 16 bytes", &|ip| ip[0] = 0x44),
            ("a total below the header", &|ip| ip[3] = 19),
            ("a total behind the frame", &|ip| ip[2] = 1),
        ] {
            assert_eq!(verdict(&packet(change)), 0, "{what}");
        }
        let mut tagged = packet(&|_| {});
        tagged.splice(16..16, [0x81, 0, 0, 5]);
        assert_eq!(verdict(&tagged), 0, "a tag");
        // The kernel runs no program over less than an Ethernet header. The packet ends after 46 bytes.
        for n in 14..46 {
            assert_eq!(verdict(&packet(&|_| {})[..n]), 0, "{n} bytes");
        }
    });
}

fn a_trunk_that_is_down_gets_no_frames_from_the_kernel() {
    let seed = testkit::seed();
    in_namespace(|| {
        let mut rig = Rig::new(settings("concise", seed), Memory::Best);
        rig.attach();
        rig.add(0);
        let run = |rig: &Rig| rig.kernel.try_frame(PortId(9), &frame_to(0), 1).unwrap().unwrap().0;
        assert_eq!((run(&rig), sent(&rig.kernel)[0]), (REDIRECT, 1));
        rig.kernel.look_at(PortId(8), false);
        run(&rig);
        assert_eq!(sent(&rig.kernel)[0], 1, "the workers count it");
        rig.kernel.look_at(PortId(8), true);
        assert_eq!((run(&rig), sent(&rig.kernel)[0]), (REDIRECT, 2));
    });
}

fn a_trunk_that_is_deleted_and_made_again_forwards_again() {
    let seed = testkit::seed();
    in_namespace(|| {
        let mut rig = Rig::new(settings("concise", seed), Memory::Best);
        rig.attach();
        (0..2).for_each(|number| rig.add(number));
        let to_8 = |rig: &Rig| rig.kernel.try_frame(PortId(9), &frame_to(0), 1).unwrap().unwrap();
        to_8(&rig);
        ip(&format!("link del {}", interface(8)));
        let began = Instant::now();
        // The kernel takes the interface out of its map by itself, in its own time.
        loop {
            let before = sent(&rig.kernel)[0];
            to_8(&rig);
            if sent(&rig.kernel)[0] == before {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "frames are sent to an interface that is gone");
        }
        let _end = wire(8);
        rig.devices[0].revive().unwrap();
        let before = sent(&rig.kernel);
        assert_eq!(to_8(&rig).0, REDIRECT);
        let from_8 = rig.kernel.try_frame(PortId(8), &frame_to(1), 1).unwrap().unwrap();
        let after = sent(&rig.kernel);
        assert_eq!((from_8.0, after[0] - before[0], after[1] - before[1]), (REDIRECT, 1, 1));
    });
}

fn a_table_that_is_made_anew_takes_the_place_of_the_one_before() {
    let seed = testkit::seed();
    in_namespace(|| {
        let mut rig = Rig::new(settings("concise", seed), Memory::Best);
        rig.attach();
        (0..100).for_each(|number| rig.add(number));
        // Another key: every part of the table is another.
        rig.network.rekey(SecretKey::from_seed(seed ^ 1)).unwrap();
        rig.attach();
        for number in 0..100 {
            let (before, at) = (sent(&rig.kernel), number as usize % TRUNKS.len());
            let entry = PortId(TRUNKS[(at + 1) % TRUNKS.len()]);
            assert_eq!(rig.kernel.try_frame(entry, &frame_to(number), 1).unwrap().unwrap().0, REDIRECT);
            assert_eq!(sent(&rig.kernel)[at], before[at] + 1, "seed {seed}: {number}");
        }
        // A trunk fails: names behind it have no way, and the workers drop their frames.
        let effects = rig.network.set_link_up(End { node: rig.s1, port: PortId(8) }, false).unwrap();
        rig.follow(effects);
        let before = sent(&rig.kernel);
        rig.kernel.try_frame(PortId(9), &frame_to(0), 1).unwrap();
        assert_eq!(sent(&rig.kernel), before, "its actions changed");
    });
}

/// At which port a frame to a name leaves, and how it looks then.
fn left_with(rig: &Rig, name: &Name, payload: &[u8]) -> (Option<u16>, Vec<u8>) {
    let inner = ethernet(name.as_bytes().try_into().unwrap(), mac_bytes(70), 0x9999, payload);
    let ports = [&HOSTS[..], &TRUNKS].concat();
    let counts = || ports.iter().map(|&port| rig.kernel.counters(PortId(port)).unwrap().tx_frames).collect::<Vec<_>>();
    let before = counts();
    let (_, frame, _) = rig.kernel.try_frame(PortId(9), &with_shim(&inner, 9), 1).unwrap().unwrap();
    let sent: Vec<u64> = counts().into_iter().zip(before).map(|(now, before)| now - before).collect();
    assert!(sent.iter().sum::<u64>() <= 1, "one frame leaves once: {sent:?}");
    (sent.iter().position(|&n| n == 1).map(|at| ports[at]), frame)
}

fn left(rig: &Rig, name: &Name) -> Option<u16> {
    left_with(rig, name, &[0; 50]).0
}

impl Rig {
    /// With names 0 to 19 at its first port for hosts, and 20 to 39 elsewhere.
    fn with_hosts(settings: Settings) -> Self {
        let mut rig = Self::new(settings, Memory::Best);
        rig.attach();
        (0..20).for_each(|number| rig.add_at(number, HOSTS[0]));
        (20..40).for_each(|number| rig.add(number));
        rig
    }

    /// Adds a name at a port for hosts.
    fn add_at(&mut self, number: u64, port: u16) {
        let effects = self.network.add_name(&mac(number), Attachment::new(self.s1, PortId(port))).unwrap();
        self.follow(effects);
    }
}

fn hosts_get_frames_of_their_names_alone() {
    let seed = testkit::seed();
    for mode in [ValueMode::Egress, ValueMode::Port] {
        in_namespace(|| {
            let mut rig = Rig::with_hosts(Settings { mode, ..settings("concise", seed) });
            for number in 0..20 {
                let (port, frame) = left_with(&rig, &mac(number), &[7; 50]);
                assert_eq!(port, Some(HOSTS[0]), "seed {seed}, {mode:?}: {number}");
                assert_eq!(frame, ethernet(mac_bytes(number), mac_bytes(70), 0x9999, &[7; 50]), "without the shim");
            }
            // One that leaves, and one that moves.
            rig.remove(3);
            rig.remove(4);
            rig.add_at(4, HOSTS[1]);
            assert_eq!([3, 4].map(|number| left(&rig, &mac(number))), [None, Some(HOSTS[1])], "seed {seed}, {mode:?}");
            // Names that nobody has, whatever the table says of them.
            for number in 1000..3000 {
                let port = left(&rig, &mac(number));
                assert!(!port.is_some_and(|port| HOSTS.contains(&port)), "seed {seed}: {number} is nobody's");
            }
            // All local names come anew.
            rig.network.rekey(SecretKey::from_seed(seed ^ 1)).unwrap();
            rig.attach();
            let now = [4, 5].map(|number| left(&rig, &mac(number)));
            assert_eq!(now, [Some(HOSTS[1]), Some(HOSTS[0])], "seed {seed}, {mode:?}");
            assert!(!left(&rig, &mac(3)).is_some_and(|port| HOSTS.contains(&port)), "seed {seed}: it is nobody's now");
        });
    }
}

fn an_entry_of_another_name_or_of_another_port_than_the_tables_is_for_the_workers() {
    let seed = testkit::seed();
    for mode in [ValueMode::Egress, ValueMode::Port] {
        in_namespace(|| {
            let mut rig = Rig::with_hosts(Settings { mode, ..settings("concise", seed) });
            rig.add_at(50, HOSTS[1]);
            // As if the memory of 5 had been used for 6, which is at the same port, or for 50.
            for read in [6, 50] {
                rig.kernel.mistake_entry(&mac(5), &mac(read)).unwrap();
                assert_eq!(left(&rig, &mac(5)), None, "{mode:?}: it reads what is of {read}");
            }
            // The exact map says another port than the table.
            rig.kernel.put_local(&mac(7), Some(PortId(HOSTS[1])));
            let expected = if mode == ValueMode::Port { None } else { Some(HOSTS[1]) };
            assert_eq!(left(&rig, &mac(7)), expected, "{mode:?}");
        });
    }
}

fn a_host_gets_frames_as_long_as_its_port_takes_while_that_is_up() {
    let seed = testkit::seed();
    in_namespace(|| {
        let mut rig = Rig::with_hosts(settings("concise", seed));
        // The MTU of all ports is 1504, and a frame may have a tag.
        for (len, expected) in [(1504 + 4, Some(HOSTS[0])), (1504 + 5, None)] {
            assert_eq!(left_with(&rig, &mac(4), &vec![1; len]).0, expected, "{len} bytes behind the header");
        }
        rig.kernel.look_at(PortId(HOSTS[0]), false);
        assert_eq!(left(&rig, &mac(4)), None, "the port is down");
        rig.kernel.look_at(PortId(HOSTS[0]), true);
        assert_eq!(left(&rig, &mac(4)), Some(HOSTS[0]));
        // It is deleted and made again, with a smaller MTU.
        ip(&format!("link del {}", interface(HOSTS[0])));
        let far = format!("far{}", HOSTS[0]);
        veth(&interface(HOSTS[0]), &far, 1300);
        let _end = open_af_xdp(&far);
        rig.devices[TRUNKS.len()].revive().unwrap();
        for (len, expected) in [(1304, Some(HOSTS[0])), (1305, None)] {
            assert_eq!(left_with(&rig, &mac(4), &vec![1; len]).0, expected, "{len} bytes behind the header");
        }
    });
}

fn a_port_that_takes_nothing_from_the_kernel_is_for_the_workers() {
    let seed = testkit::seed();
    in_namespace(|| {
        let mut rig = Rig::new(settings("concise", seed), Memory::Best);
        rig.attach();
        rig.add(0);
        assert_eq!(left(&rig, &mac(0)), Some(8));
        assert_eq!(rig.kernel.status().not_taking, []);
        // The other end of port 8 has neither a program nor GRO any more.
        rig.ends.remove(0);
        let began = Instant::now();
        loop {
            rig.kernel.look_at(PortId(8), true);
            if rig.kernel.status().not_taking == [PortId(8)] {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "port 8 takes frames: {:?}", rig.kernel.status());
        }
        assert_eq!(left(&rig, &mac(0)), None);
        let _end = open_af_xdp("far8");
        rig.kernel.look_at(PortId(8), true);
        assert_eq!(left(&rig, &mac(0)), Some(8));
    });
}

fn what_the_kernel_cannot_read_is_left_to_the_workers_with_the_reason() {
    let seed = testkit::seed();
    for (settings, reason) in [
        (settings("cuckoo", seed), "cuckoo"),
        (Settings { family: Family::Wy, ..settings("concise", seed) }, "muladd"),
        (Settings { kind: NameKind::Ipv6, ..settings("concise", seed) }, "ipv6"),
    ] {
        in_namespace(|| {
            let mut rig = Rig::new(settings, Memory::Best);
            rig.attach();
            let status = rig.kernel.status();
            assert!(status.memory.is_none() && status.error.as_ref().unwrap().contains(reason), "{status:?}");
            assert!(rig.kernel.try_frame(PortId(8), &frame_to(1), 1).unwrap().is_none());
        });
    }
}

fn nothing_of_it_stays_when_it_ends() {
    let seed = testkit::seed();
    in_namespace(|| {
        let mut rig = Rig::new(settings("concise", seed), Memory::Best);
        rig.attach();
        let listed = || {
            let output = std::process::Command::new("ip").args(["-o", "link"]).output().unwrap();
            String::from_utf8(output.stdout).unwrap().lines().filter(|line| line.contains(" xdp")).count()
        };
        // Those of the other ends, too.
        assert_eq!(listed(), 2 * (TRUNKS.len() + HOSTS.len()));
        drop(rig);
        let began = Instant::now();
        while listed() > 0 {
            assert!(began.elapsed() < PATIENCE, "{} programs stay attached", listed());
        }
    });
}

netio::tests! {
    namespaces: [
        frames_beside_a_writer_go_where_their_names_are_concise,
        frames_beside_a_writer_go_where_their_names_are_line_in_an_array,
        frames_beside_a_writer_go_where_their_names_are_ofw,
        the_kernel_answers_as_the_table,
        ipv4_names_are_found_behind_the_shim_and_odd_packets_are_left,
        a_trunk_that_is_down_gets_no_frames_from_the_kernel,
        a_trunk_that_is_deleted_and_made_again_forwards_again,
        hosts_get_frames_of_their_names_alone,
        an_entry_of_another_name_or_of_another_port_than_the_tables_is_for_the_workers,
        a_host_gets_frames_as_long_as_its_port_takes_while_that_is_up,
        a_port_that_takes_nothing_from_the_kernel_is_for_the_workers,
        a_table_that_is_made_anew_takes_the_place_of_the_one_before,
        what_the_kernel_cannot_read_is_left_to_the_workers_with_the_reason,
        nothing_of_it_stays_when_it_ends,
    ],
    anywhere: []
}
