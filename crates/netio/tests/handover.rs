//! Packet sockets that outlive the process that opened them: what comes while none reads is received by the next one, once and in
//! order, or its loss is counted.

mod common;

use common::{PATIENCE, frame, ip, receive, send, veth};
use fibula_netio::backend::af_packet::{AfPacket, Handover, Offloads, Options, Vault};
use fibula_netio::offload::{Kind, Offload};
use fibula_netio::testkit::in_namespace;
use fibula_netio::{Burst, Device, Packet, Pool};
use rustix::net::RecvFlags;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A service manager's store.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<Vec<(String, OwnedFd)>>>);

impl Vault for Store {
    fn keep(&self, name: &str, socket: BorrowedFd<'_>) {
        self.0.lock().unwrap().push((name.to_owned(), socket.try_clone_to_owned().unwrap()));
    }

    fn forget(&self, name: &str) {
        self.0.lock().unwrap().retain(|(kept, _)| kept != name);
    }
}

impl Store {
    /// What the next process is started with.
    fn handover(&self) -> Arc<Handover> {
        let kept = self.0.lock().unwrap();
        let left = kept.iter().map(|(name, socket)| (name.clone(), socket.try_clone().unwrap())).collect();
        Handover::new(Box::new(self.clone()), left)
    }

    /// The ports of the next process, and what it has to tell.
    fn open(&self, options: &Options, n_workers: usize) -> (Vec<AfPacket>, Vec<String>) {
        let handover = self.handover();
        let options = Options { handover: Some(Arc::clone(&handover)), ..options.clone() };
        let members = AfPacket::open_group("east", &options, n_workers).unwrap();
        (members, handover.settle())
    }

    /// As [`Store::open`], of one worker, which has nothing to tell.
    fn next(&self) -> Box<AfPacket> {
        let (mut members, notices) = self.open(&small(), 1);
        assert_eq!(notices, Vec::<String>::new());
        Box::new(members.remove(0))
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.0.lock().unwrap().iter().map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    }
}

fn small() -> Options {
    Options { ring_frames: 256, offloads: Offloads::TurnOff, ..Options::default() }
}

/// The far end of the cable, and who sees what comes to the near one. It is opened before others, so the kernel gives it each frame
/// after them.
struct Peer {
    device: AfPacket,
    witness: Box<dyn Device>,
    n_sent: u32,
}

impl Peer {
    fn new() -> Self {
        veth("west", "east");
        let witness = Box::new(AfPacket::open("east", &Options { ring_frames: 2048, ..Options::default() }).unwrap());
        Self { device: AfPacket::open("west", &small()).unwrap(), witness, n_sent: 0 }
    }

    /// Sends frames with the next numbers and waits until they have come. Returns them.
    fn send(&mut self, n: u32) -> Vec<Vec<u8>> {
        let numbered = |i: u32| {
            let mut frame = frame((i % 60) as u8, 100, 60, 0);
            frame[20..24].copy_from_slice(&i.to_be_bytes());
            frame
        };
        let frames: Vec<_> = (self.n_sent..self.n_sent + n).map(numbered).collect();
        assert_eq!(send(&mut self.device, &frames), frames.len());
        self.n_sent += n;
        let witness =
            std::mem::replace(&mut self.witness, Box::new(AfPacket::absent_group("none", &small(), 1).remove(0)));
        let (seen, witness) = receive(witness, frames.len());
        self.witness = witness;
        assert_eq!(seen, frames);
        frames
    }
}

fn what_comes_while_nobody_reads_is_received_by_the_next_once_and_in_order() {
    in_namespace(|| {
        let (mut peer, store) = (Peer::new(), Store::default());
        let mut port: Box<dyn Device> = store.next();
        // Over the end of the ring more than once, and from an empty one as well.
        for n in [0, 3, 100, 200, 256, 31, 32, 33] {
            let before = peer.send(40);
            let (got, ended) = receive(port, before.len());
            assert_eq!(got, before);
            drop(ended);
            let waiting = peer.send(n);
            let mut next: Box<dyn Device> = store.next();
            if n == 0 {
                assert_eq!(next.rx_burst(&mut Pool::new(4, 2048), &mut Burst::new()).unwrap(), 0);
            }
            let (got, same) = receive(next, waiting.len());
            next = same;
            assert_eq!(got, waiting);
            assert_eq!(next.has_waited(), n > 0);
            let after = peer.send(1);
            let (got, same) = receive(next, 1);
            assert_eq!(got, after);
            assert!(!same.has_waited(), "it came while somebody read");
            let counts = same.counters().snapshot();
            assert_eq!((counts.rx_frames, counts.rx_waited), (u64::from(n) + 1, n.into()));
            assert_eq!((counts.rx_stale, counts.rx_overrun, counts.faults), (0, 0, 0));
            port = same;
        }
        assert_eq!(store.names(), ["east-0-of-1"], "one socket, from the first to the last");
    });
}

fn a_burst_does_not_mix_what_waited_with_what_did_not() {
    in_namespace(|| {
        let (mut peer, store) = (Peer::new(), Store::default());
        drop(store.next());
        peer.send(40);
        let mut port = store.next();
        let (mut pool, mut burst) = (Pool::new(128, 2048), Burst::new());
        let mut next = |port: &mut AfPacket| {
            let n = port.rx_burst(&mut pool, &mut burst).unwrap();
            pool.put_all(&mut burst);
            (n, port.has_waited())
        };
        assert_eq!(next(&mut port), (32, true));
        // It has looked, so these have not waited for it.
        peer.send(10);
        assert_eq!(next(&mut port), (8, true));
        assert_eq!(next(&mut port), (10, false));
        assert_eq!(next(&mut port), (0, false));
    });
}

/// Datagrams of three segments, each with a number.
fn super_frames(n: u8) -> Vec<Packet> {
    let made = |i: u8| {
        let (mut frame, mut packet) = (vec![], Packet::large());
        let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(7, 9).write(&mut frame, &[i; 3000]).unwrap();
        packet.fill(&frame).unwrap();
        packet.set_offload(Offload::checksum(34, 6).segments(Kind::Udp, 1000));
        packet
    };
    (0..n).map(made).collect()
}

/// The numbers of super-frames that come, in order.
fn receive_super_frames(port: &mut AfPacket, n: usize) -> Vec<u8> {
    let (mut pool, mut burst, mut numbers) = (Pool::with_large(4, 2048, 4), Burst::new(), vec![]);
    let began = Instant::now();
    while numbers.len() < n {
        assert!(began.elapsed() < PATIENCE, "only {numbers:?} came");
        port.rx_burst(&mut pool, &mut burst).unwrap();
        for packet in &burst {
            assert!(packet.len() == 3042 && packet.frame()[42..].iter().all(|byte| *byte == packet.frame()[42]));
            numbers.push(packet.frame()[42]);
        }
        pool.put_all(&mut burst);
    }
    numbers
}

fn super_frames_wait_for_the_next_one_and_one_that_was_taken_and_not_noted_is_lost_alone() {
    in_namespace(|| {
        veth("west", "east");
        let (store, options) = (Store::default(), Options { offloads: Offloads::Carry, ..small() });
        drop(store.open(&options, 1));
        let mut west = AfPacket::open("west", &options).unwrap();
        let mut pool = Pool::new(0, 2048);
        for n_taken in [0, 1, 2] {
            let mut burst = Burst::from_iter(super_frames(5));
            assert_eq!(west.tx_burst(&mut pool, &mut burst).unwrap(), 5);
            // Anyone who was to note them is killed.
            for _ in 0..n_taken {
                let kept = store.0.lock().unwrap();
                rustix::net::recv(&kept[0].1, &mut vec![0; 70_000][..], RecvFlags::empty()).unwrap();
            }
            let (mut members, notices) = store.open(&options, 1);
            assert_eq!(notices, Vec::<String>::new());
            let numbers = receive_super_frames(&mut members[0], 5 - n_taken);
            assert_eq!(numbers, (n_taken as u8..5).collect::<Vec<_>>());
            assert_eq!(members[0].counters().snapshot().rx_overrun, n_taken as u64);
        }
    });
}

fn what_waited_too_long_is_dropped_and_counted() {
    in_namespace(|| {
        let (mut peer, store) = (Peer::new(), Store::default());
        drop(store.next());
        peer.send(100);
        // Any time is too long.
        let (mut members, _) = store.open(&Options { max_wait: Duration::ZERO, ..small() }, 1);
        let mut port = members.remove(0);
        let (mut pool, mut burst) = (Pool::new(64, 2048), Burst::new());
        assert_eq!(port.rx_burst(&mut pool, &mut burst).unwrap(), 0);
        assert_eq!(pool.available(), 64);
        let fresh = peer.send(5);
        let (got, port) = receive(Box::new(port), 5);
        assert_eq!(got, fresh);
        let counts = port.counters().snapshot();
        assert_eq!((counts.rx_stale, counts.rx_waited, counts.rx_frames), (100, 0, 5));
    });
}

fn what_finds_no_room_while_nobody_reads_is_counted_by_the_next() {
    in_namespace(|| {
        let (mut peer, store) = (Peer::new(), Store::default());
        let port: Box<dyn Device> = store.next();
        // The ring is full from its middle to its middle.
        let (_, port) = receive(port, peer.send(100).len());
        drop(port);
        let waiting = peer.send(300);
        let (got, port) = receive(store.next(), 256);
        assert_eq!(got, waiting[..256]);
        assert_eq!(port.counters().snapshot().rx_overrun, 44);
        let after = peer.send(40);
        let (got, port) = receive(port, 40);
        assert_eq!(got, after);
        assert_eq!(port.counters().snapshot().rx_overrun, 44, "no loss is counted twice");
    });
}

/// The numbers of the frames that workers receive until there are `n`, of each worker in its order.
fn deal(workers: &mut [AfPacket], n: usize) -> Vec<Vec<u32>> {
    let (mut pool, mut burst) = (Pool::new(64, 2048), Burst::new());
    let mut got = vec![vec![]; workers.len()];
    let end = Instant::now() + PATIENCE;
    while got.iter().map(Vec::len).sum::<usize>() < n && Instant::now() < end {
        for (worker, got) in workers.iter_mut().zip(&mut got) {
            worker.rx_burst(&mut pool, &mut burst).unwrap();
            got.extend(burst.iter().map(|p| u32::from_be_bytes(p.frame()[20..24].try_into().unwrap())));
            pool.put_all(&mut burst);
        }
    }
    got
}

fn workers_share_what_waited_as_they_share_what_comes() {
    in_namespace(|| {
        let (mut peer, store) = (Peer::new(), Store::default());
        let (mut workers, notices) = store.open(&small(), 2);
        assert!(notices.is_empty());
        peer.send(120);
        let before = deal(&mut workers, 120);
        drop(workers);
        peer.send(240);
        let (mut workers, notices) = store.open(&small(), 2);
        assert_eq!(notices, Vec::<String>::new());
        let waited = deal(&mut workers, 240);
        assert_eq!(waited.iter().map(Vec::len).sum::<usize>(), 240);
        assert!(waited.iter().all(|of_one| of_one.is_sorted_by(|a, b| a < b)));
        // A sender stays with its worker.
        let senders = |numbers: &[u32]| numbers.iter().map(|i| i % 60).collect::<std::collections::BTreeSet<_>>();
        for (before, waited) in before.iter().zip(&waited) {
            assert_eq!(senders(before), senders(waited));
        }
        // One whose interface is made anew makes a new group with the others, and these are the ones that are kept.
        assert_eq!(store.names(), ["east-0-of-2", "east-1-of-2"]);
    });
}

/// What another process left is not used: `change` and these options and workers do not fit it. New sockets are, and are kept.
#[track_caller]
fn is_refused(why: &str, n_left: usize, change: impl FnOnce(&Store) + Send, options: &Options, n_workers: usize) {
    in_namespace(|| {
        let (mut peer, store) = (Peer::new(), Store::default());
        drop(store.open(&small(), n_left));
        peer.send(20);
        change(&store);
        let (mut workers, notices) = store.open(options, n_workers);
        assert!(notices.len() == 1 && notices[0].contains(why), "{notices:?}");
        let names: Vec<_> = (0..n_workers).map(|i| format!("east-{i}-of-{n_workers}")).collect();
        assert_eq!(store.names(), names);
        let mut sender = AfPacket::open("west", &small()).unwrap();
        assert_eq!(send(&mut sender, &[frame(1, 2, 60, 7)]), 1);
        let got = deal(&mut workers, 1);
        assert_eq!(got.iter().flatten().collect::<Vec<_>>(), [&0x0707_0707], "{why}");
        assert!(workers.iter().all(|worker| worker.counters().snapshot().rx_waited == 0));
        drop(workers);
        let (_, notices) = store.open(options, n_workers);
        assert_eq!(notices, Vec::<String>::new(), "those fit");
    });
}

fn what_does_not_fit_is_closed_and_opened_anew_with_a_notice() {
    let (same, nothing) = (small(), |_: &Store| ());
    is_refused("they are 2 sockets of 2 workers, and there are 1", 2, nothing, &same, 1);
    is_refused("they are 1 sockets of 1 workers, and there are 2", 1, nothing, &same, 2);
    let without_one = |store: &Store| store.forget("east-1-of-2");
    is_refused("they are 1 sockets of 2 workers, and there are 2", 2, without_one, &same, 2);
    is_refused("other sizes", 1, nothing, &Options { ring_frames: 512, ..small() }, 1);
    let jumbo = |_: &Store| {
        ip("link set west mtu 4000");
        ip("link set east mtu 4000");
    };
    is_refused("other sizes", 1, jumbo, &same, 1);
    let anew = |_: &Store| {
        ip("link del east");
        veth("west", "east");
    };
    is_refused("deleted and created again", 1, anew, &same, 1);
    let foreign = |store: &Store| {
        store.forget("east-0-of-1");
        store.keep("east-0-of-1", UnixDatagram::unbound().unwrap().as_fd());
    };
    is_refused("not a packet socket", 1, foreign, &same, 1);
    // Of an interface with the same number, as they are in every namespace.
    let elsewhere = |store: &Store| {
        let theirs = Store::default();
        let kept = theirs.clone();
        in_namespace(move || {
            veth("west", "east");
            drop(kept.open(&small(), 1));
        });
        *store.0.lock().unwrap() = std::mem::take(&mut *theirs.0.lock().unwrap());
    };
    is_refused("another network namespace", 1, elsewhere, &same, 1);
}

fn sockets_of_ports_that_are_none_any_more_are_closed_with_a_notice() {
    in_namespace(|| {
        let (mut peer, store) = (Peer::new(), Store::default());
        drop(store.open(&small(), 2));
        store.keep("somebody-else-s", UnixDatagram::unbound().unwrap().as_fd());
        let handover = store.handover();
        let notices = handover.settle();
        assert_eq!(notices.len(), 2, "{notices:?}");
        assert!(
            notices[0].contains("east is no longer a port") && notices[1].contains("somebody-else-s"),
            "{notices:?}"
        );
        assert_eq!(store.names(), Vec::<String>::new());
        assert_eq!(handover.settle(), Vec::<String>::new());
        peer.send(1);
    });
}

fn an_interface_that_was_down_meanwhile_is_taken_over() {
    in_namespace(|| {
        let (mut peer, store) = (Peer::new(), Store::default());
        drop(store.next());
        let before = peer.send(3);
        ip("link set east down");
        ip("link set east up");
        let mut port = store.next();
        let (mut pool, mut burst) = (Pool::new(64, 2048), Burst::new());
        assert_eq!(port.rx_burst(&mut pool, &mut burst).unwrap(), 3, "its having been down is no failure now");
        assert!(burst.iter().map(|packet| packet.frame().to_vec()).eq(before));
        pool.put_all(&mut burst);
        // Both directions.
        assert_eq!(send(&mut *port, &[frame(9, 9, 60, 9)]), 1);
        let mut sender = AfPacket::open("west", &small()).unwrap();
        assert_eq!(send(&mut sender, &[frame(1, 2, 60, 7)]), 1);
        let (got, port) = receive(port, 1);
        assert_eq!((got, port.counters().snapshot().faults), (vec![frame(1, 2, 60, 7)], 0));
    });
}

fn an_interface_that_is_made_anew_later_is_kept_in_the_place_of_the_old_one() {
    in_namespace(|| {
        let (_, store) = (Peer::new(), Store::default());
        let mut port = store.next();
        ip("link del east");
        assert!(port.revive().is_err());
        veth("west", "east");
        port.revive().unwrap();
        drop(port);
        assert_eq!(store.names(), ["east-0-of-1"]);
        let mut sender = AfPacket::open("west", &small()).unwrap();
        assert_eq!(send(&mut sender, &[frame(1, 2, 60, 7)]), 1);
        assert_eq!(receive(store.next(), 1).0, [frame(1, 2, 60, 7)]);
    });
}

fibula_netio::tests! {
    namespaces: [
        what_comes_while_nobody_reads_is_received_by_the_next_once_and_in_order,
        a_burst_does_not_mix_what_waited_with_what_did_not,
        super_frames_wait_for_the_next_one_and_one_that_was_taken_and_not_noted_is_lost_alone,
        what_waited_too_long_is_dropped_and_counted,
        what_finds_no_room_while_nobody_reads_is_counted_by_the_next,
        workers_share_what_waited_as_they_share_what_comes,
        what_does_not_fit_is_closed_and_opened_anew_with_a_notice,
        sockets_of_ports_that_are_none_any_more_are_closed_with_a_notice,
        an_interface_that_was_down_meanwhile_is_taken_over,
        an_interface_that_is_made_anew_later_is_kept_in_the_place_of_the_old_one,
    ],
    anywhere: []
}
