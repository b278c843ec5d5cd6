//! Several workers, sleeping and waking, while the tables change; ports that go away; a switch over real interfaces.

extern crate fibula_dataplane as dataplane;

mod common;

use common::frames::tagged;
use common::netns::{ip, open, receive, send, veth};
use common::*;
use dataplane::assembly::{BuildError, Dataplane, PortSpec, Pulse, Settings, build, check_mtus};
use dataplane::counters::DropReason;
use dataplane::plane::PlaneWriter;
use dataplane::port::Role;
use dataplane::table::FibTable;
use fib::action::{Action, PortId};
use fib::name::NameKind;
use fib::replica::Exact;
use lookup::hash::{Digest, Family, Hasher, SecretKey};
use lookup::othello::{Othello, OthelloQuery, Settings as TableSettings};
use lookup::traits::{Control, Query};
use netio::backend::loopback::{self, Loopback};
use netio::testkit::in_namespace;
use netio::{BURST, Burst, Device, DeviceCounters, NetError, Pool, Readiness};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

struct Fib {
    hasher: Hasher,
    control: Othello,
    query: OthelloQuery,
}

impl Fib {
    fn new(entries: impl Iterator<Item = (u64, u64)>) -> Self {
        let key = SecretKey::from_seed(11);
        let hasher = Hasher::new(Family::default(), &key);
        let entries: Vec<(Digest, u64)> = entries.map(|(i, value)| (hasher.digest(mac(i).as_bytes()), value)).collect();
        let mut control = Othello::new(TableSettings::new(8, 20_000, &key));
        control.insert_batch(&entries, &mut vec![]).unwrap();
        let query = control.export();
        Self { hasher, control, query }
    }

    fn publish(&self, writer: &mut PlaneWriter<FibTable>) {
        let hasher = self.hasher.clone();
        writer.set_table(NameKind::Mac, &self.hasher, || {
            FibTable::new(NameKind::Mac, hasher.clone(), Box::new(common::ByDigest(self.query.reader())))
        });
    }
}

/// A host port of two workers and a trunk of two workers; the far ends are the test's, one a worker.
struct TwoWorkers {
    plane: Dataplane,
    writer: PlaneWriter<FibTable>,
    hosts: Vec<Loopback>,
    trunks: Vec<Loopback>,
}

fn two_workers() -> TwoWorkers {
    let (mut hosts, mut trunks, mut specs) = (vec![], vec![], vec![]);
    for (id, role, far_ends) in [(HOST_1, Role::Host, &mut hosts), (TRUNK_8, Role::Trunk, &mut trunks)] {
        let mut device = || {
            let (near, far) = loopback::pair("near", "far", &loopback::Settings::default()).unwrap();
            far_ends.push(far);
            near
        };
        let mut spec = PortSpec::new(id, role, device());
        spec.devices.push(Box::new(device()));
        specs.push(spec);
    }
    let settings = Settings { workers: 2, ..Settings::default() };
    let (plane, mut writer) = Dataplane::start(&settings, specs).unwrap();
    writer.set_actions(&[Action::Drop, Action::Port(PortId(HOST_1)), Action::Port(PortId(TRUNK_8))]);
    TwoWorkers { plane, writer, hosts, trunks }
}

/// Receives `n` frames, the receiver's own patience being the only clock.
fn collect(end: &mut Loopback, n: usize) -> Vec<Vec<u8>> {
    let (mut frames, began) = (vec![], Instant::now());
    while frames.len() < n {
        match end.recv(<[u8]>::to_vec).unwrap() {
            Some(frame) => frames.push(frame),
            None => std::thread::yield_now(),
        }
        assert!(began.elapsed() < PATIENCE, "{} of {n} frames after {PATIENCE:?}", frames.len());
    }
    frames
}

fn two_workers_forward_every_frame_in_order_while_names_and_cells_change() {
    let mut rig = two_workers();
    let mut fib = Fib::new((0..1000).map(|i| (i, 2)));
    rig.writer.valid().replace_with((0..1000).map(|i| (mac(i), None)).collect());
    fib.publish(&mut rig.writer);
    let TwoWorkers { plane, mut writer, mut hosts, mut trunks } = rig;
    const N: usize = 20_000;
    std::thread::scope(|scope| {
        for (host, trunk) in hosts.iter_mut().zip(&mut trunks) {
            scope.spawn(move || {
                let mut next = 0;
                while next < N {
                    let batch = (N - next).min(100);
                    for i in next..next + batch {
                        let mut frame = to_mac(i as u64 % 1000);
                        frame[40..48].copy_from_slice(&(i as u64).to_le_bytes());
                        assert!(host.send(&frame).unwrap());
                    }
                    for (at, frame) in collect(trunk, batch).into_iter().enumerate() {
                        let i = next + at;
                        assert_eq!(frame[44..52], (i as u64).to_le_bytes(), "in order");
                        assert_eq!(frame[..6], mac_bytes(i as u64 % 1000));
                    }
                    next += batch;
                }
            });
        }
        // Meanwhile other names come and go, everywhere, so that shards and exact tables are rebuilt under the readers.
        let mut updates = vec![];
        for i in 1000..9000 {
            let digest = fib.hasher.digest(mac(i).as_bytes());
            fib.control.insert(digest, 1, &mut updates).unwrap();
            writer.valid().put(mac(i), None);
            if i % 2 == 0 {
                fib.control.remove(digest, &mut updates);
                writer.valid().remove(&mac(i));
            }
            for update in updates.drain(..) {
                // A writer too far ahead of its readers waits for them.
                let began = Instant::now();
                while let Err(error) = fib.query.apply(&update) {
                    assert!(began.elapsed() < PATIENCE, "{error}");
                    std::thread::yield_now();
                }
            }
        }
    });
    // A frame arrives before its worker has counted it as sent.
    let began = Instant::now();
    while plane.status().total.sent < 40_000 && began.elapsed() < PATIENCE {
        std::thread::yield_now();
    }
    let status = plane.status();
    assert_eq!((status.total.received, status.total.sent, status.total.dropped_total()), (40_000, 40_000, 0));
    assert!(status.workers.iter().all(|worker| worker.received == 20_000), "each has its own queue");
    assert_eq!(status.ports.iter().map(|port| port.counters.rx_frames).sum::<u64>(), 40_000);
    plane.stop().unwrap();
}

fn a_full_burst_is_in_flight_until_the_next_poll_and_goes_by_the_fib_that_it_came_under() {
    let (mut ends, mut specs) = (vec![], vec![]);
    for (id, role) in [(HOST_1, Role::Host), (TRUNK_8, Role::Trunk)] {
        let (near, far) = loopback::pair("near", "far", &loopback::Settings::default()).unwrap();
        specs.push(PortSpec::new(id, role, near));
        ends.push(far);
    }
    let (mut workers, monitor, mut writer) = build::<FibTable>(&Settings::default(), specs).unwrap();
    writer.set_actions(&[Action::Drop, Action::Port(PortId(HOST_1)), Action::Port(PortId(TRUNK_8))]);
    writer.valid().put(mac(5), None);
    let (to_trunk, to_nowhere) = (Fib::new([(5, 2)].into_iter()), Fib::new([(5, 0)].into_iter()));
    to_trunk.publish(&mut writer);
    for _ in 0..2 * BURST + 5 {
        ends[0].send(&to_mac(5)).unwrap();
    }
    let worker = &mut workers[0];
    let sent = || monitor.status().total.sent;
    assert_eq!((worker.poll_once(), sent()), (BURST, 0), "a full burst waits for the next one");
    // What the old FIB began, it finishes. The next burst finds the new one.
    to_nowhere.publish(&mut writer);
    assert_eq!((worker.poll_once(), sent()), (BURST, BURST as u64), "the first has left");
    assert_eq!(worker.poll_once(), 5, "a burst that is not full does not wait");
    let total = monitor.status().total;
    assert_eq!((total.received, total.sent, total.dropped(DropReason::NoRoute)), (69, 32, 37));
    // Without a following burst, a full one is finished by a poll that receives nothing.
    (0..BURST).for_each(|_| assert!(ends[0].send(&to_mac(5)).unwrap()));
    assert_eq!((worker.poll_once(), monitor.status().total.dropped(DropReason::NoRoute)), (BURST, 37));
    assert_eq!((worker.poll_once(), monitor.status().total.dropped(DropReason::NoRoute)), (0, 69));
    assert_eq!(collect(&mut ends[1], BURST).len(), BURST);
}

fn an_idle_worker_sleeps_and_a_frame_wakes_it() {
    let mut rig = two_workers();
    let fib = Fib::new([(5, 2)].into_iter());
    rig.writer.valid().put(mac(5), None);
    fib.publish(&mut rig.writer);
    for round in 0..200 {
        // The frame may come while the worker is awake, going to sleep, or asleep: it must arrive in every case.
        rig.hosts[round % 2].send(&to_mac(5)).unwrap();
        assert_eq!(collect(&mut rig.trunks[round % 2], 1).len(), 1);
    }
    let began = Instant::now();
    while rig.plane.status().workers.iter().any(|worker| worker.sleeps == 0) {
        assert!(began.elapsed() < PATIENCE, "a worker does not sleep");
        std::thread::yield_now();
    }
    rig.plane.stop().unwrap();
}

fn a_switch_without_ports_starts_sleeps_and_stops() {
    let (plane, _writer) = Dataplane::start(&Settings::default(), vec![]).unwrap();
    plane.stop().unwrap();
}

/// A port that receives one burst, and sends nothing: it refuses the first frame for good and then fails.
struct Fickle {
    to_receive: Vec<Vec<u8>>,
    receive: fn(),
    counters: Arc<DeviceCounters>,
}

impl Device for Fickle {
    fn name(&self) -> &str {
        "fickle"
    }
    fn max_frame(&self) -> usize {
        1518
    }
    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Burst) -> Result<usize, NetError> {
        (self.receive)();
        let n = self.to_receive.len();
        for frame in self.to_receive.drain(..) {
            let mut packet = pool.take().unwrap();
            packet.fill(&frame).unwrap();
            out.push(packet);
        }
        Ok(n)
    }
    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Burst) -> Result<usize, NetError> {
        frames.drain(..1).for_each(|packet| pool.put(packet));
        Err(NetError::NoSuchInterface { device: "fickle".into() })
    }
    fn readiness(&mut self) -> Readiness<'_> {
        Readiness::Exhausted
    }
    fn counters(&self) -> Arc<DeviceCounters> {
        self.counters.clone()
    }
}

fn fickle(id: u16, to_receive: Vec<Vec<u8>>, receive: fn()) -> PortSpec {
    PortSpec::new(id, Role::Host, Fickle { to_receive, receive, counters: Arc::default() })
}

fn frames_of_a_burst_that_a_port_fails_in_are_all_counted() {
    let specs = vec![fickle(HOST_1, vec![to_mac(5); 10], || ()), fickle(HOST_2, vec![], || ())];
    let (mut workers, monitor, mut writer) = build::<FibTable>(&Settings::default(), specs).unwrap();
    writer.set_actions(&[Action::Drop, Action::Port(PortId(HOST_2))]);
    writer.valid().put(mac(5), None);
    writer.local().put(mac(5), PortId(HOST_2));
    Fib::new([(5, 1)].into_iter()).publish(&mut writer);
    assert_eq!(workers[0].poll_once(), 10);
    let total = monitor.status().total;
    let dropped = [DropReason::TxRefused, DropReason::PortDown].map(|reason| total.dropped(reason));
    assert_eq!((total.received, total.sent, dropped), (10, 0, [1, 9]));
    assert!(!monitor.status().ports[1].up);
}

fn a_worker_that_panicked_is_seen_to_have_ended() {
    let specs = vec![fickle(HOST_1, vec![], || panic!("a driver's mistake, made on purpose"))];
    let (plane, _writer) = Dataplane::start(&Settings::default(), specs).unwrap();
    let began = Instant::now();
    while plane.workers_running() > 0 {
        assert!(began.elapsed() < PATIENCE, "the worker runs on");
        std::thread::yield_now();
    }
    assert!(!plane.beat(&mut Pulse::default()));
    assert!(plane.stop().unwrap_err().to_string().contains("panicked"));
}

fn a_worker_gives_a_sign_of_life_unless_it_hangs() {
    static HANGS: AtomicBool = AtomicBool::new(true);
    let hang = || {
        while HANGS.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    };
    let (plane, _writer) = Dataplane::start(&Settings::default(), vec![fickle(HOST_1, vec![], hang)]).unwrap();
    let mut pulse = Pulse::default();
    // Nothing can have been done since a question that was not asked.
    assert!(plane.beat(&mut pulse));
    assert!(!plane.beat(&mut pulse), "it hangs in its driver");
    HANGS.store(false, Ordering::Relaxed);
    // It has no frames, and sleeps anew each time that it is woken.
    for _ in 0..3 {
        let began = Instant::now();
        while !plane.beat(&mut pulse) {
            assert!(began.elapsed() < PATIENCE, "no sign of life");
            std::thread::yield_now();
        }
    }
    plane.stop().unwrap();
}

fn ports_that_do_not_fit_are_refused_with_the_numbers() {
    let pair = |max_frame| loopback::pair("a", "b", &loopback::Settings { max_frame, ..Default::default() }).unwrap().0;
    let start = |settings: &Settings, specs| Dataplane::start(settings, specs).err().unwrap();
    let one = Settings::default();
    let twice = vec![PortSpec::new(3, Role::Host, pair(1514)), PortSpec::new(3, Role::Trunk, pair(1514))];
    assert!(matches!(start(&one, twice), BuildError::DuplicatePort(PortId(3))));
    let two = Settings { workers: 2, ..Settings::default() };
    let missing = start(&two, vec![PortSpec::new(3, Role::Host, pair(1514))]);
    assert!(matches!(missing, BuildError::Devices { got: 1, workers: 2, .. }), "{missing}");
    assert!(matches!(start(&Settings { workers: 0, ..one }, vec![]), BuildError::NoWorkers));

    let small = vec![PortSpec::new(1, Role::Host, pair(1514)), PortSpec::new(8, Role::Trunk, pair(1514))];
    let error = check_mtus(&small).unwrap_err().to_string();
    assert!(error.contains("trunk 8") && error.contains("1514") && error.contains("ip link set"), "{error}");
    let enough = vec![PortSpec::new(1, Role::Host, pair(1514)), PortSpec::new(8, Role::Trunk, pair(1518))];
    check_mtus(&enough).unwrap();
}

fn frames_cross_a_switch_over_real_interfaces_also_after_one_was_down() {
    in_namespace(|| {
        veth("sw-host", "host", 1500);
        veth("sw-trunk", "trunk", 1504);
        let specs = vec![
            PortSpec::new(HOST_1, Role::Host, open("sw-host")),
            PortSpec::new(TRUNK_8, Role::Trunk, open("sw-trunk")),
        ];
        check_mtus(&specs).unwrap();
        let (plane, mut writer) = Dataplane::start(&Settings::default(), specs).unwrap();
        writer.set_actions(&[Action::Drop, Action::Port(PortId(HOST_1)), Action::Port(PortId(TRUNK_8))]);
        let fib = Fib::new([(5, 2), (6, 1)].into_iter());
        writer.valid().put(mac(5), None);
        writer.local().put(mac(6), PortId(HOST_1));
        fib.publish(&mut writer);
        let (mut host, mut trunk) = (open("host"), open("trunk"));

        let mut longest = to_mac(5);
        longest.resize(1514, 7);
        for frame in [to_mac(5), longest] {
            send(&mut host, &frame);
            assert_eq!(receive(&mut trunk), with_shim(&frame, dataplane::shim::INITIAL_HOPS));
        }
        // VLAN tags, which the kernel takes off, are back in their place; the longest frame with one needs a trunk
        // with 4 bytes more.
        for len in [60, 1514, 1518] {
            let mut frame = tagged(&to_mac(5), 0x8100);
            frame.resize(len, 7);
            send(&mut host, &frame);
            if len < 1518 {
                assert_eq!(receive(&mut trunk), with_shim(&frame, dataplane::shim::INITIAL_HOPS));
            }
        }
        let began = Instant::now();
        while plane.status().total.dropped(DropReason::TxRefused) == 0 {
            assert!(began.elapsed() < PATIENCE, "the frame that is too long is not counted");
            std::thread::yield_now();
        }
        for frame in [to_mac(6), tagged(&to_mac(6), 0x8100), tagged(&tagged(&to_mac(6), 0x8100), 0x88a8)] {
            send(&mut trunk, &with_shim(&frame, 9));
            assert_eq!(receive(&mut host), frame);
        }
        send(&mut host, &to_mac(77));

        // The trunk goes: counted, the other port works on; it comes back and is used again, on its own.
        ip("link set sw-trunk down");
        let began = Instant::now();
        while plane.status().ports[1].up {
            assert!(began.elapsed() < PATIENCE, "the port is not found down");
            std::thread::yield_now();
        }
        send(&mut host, &to_mac(5));
        while plane.status().total.dropped(DropReason::PortDown) == 0 {
            assert!(began.elapsed() < PATIENCE, "the frame to the port that is down is not counted");
            std::thread::yield_now();
        }
        ip("link set sw-trunk up");
        while !plane.status().ports[1].up {
            assert!(began.elapsed() < PATIENCE, "the port is not found up");
            std::thread::yield_now();
        }
        // The far end saw its carrier go, too: opened anew.
        drop(trunk);
        let mut trunk = open("trunk");
        send(&mut host, &to_mac(5));
        assert_eq!(receive(&mut trunk), with_shim(&to_mac(5), dataplane::shim::INITIAL_HOPS));
        let status = plane.status();
        assert!(status.ports[1].last_failure.as_ref().unwrap().error.contains("sw-trunk"));
        assert_eq!(status.total.dropped(DropReason::Alien), 1);
        plane.stop().unwrap();
    });
}

netio::tests! {
    namespaces: [
        frames_cross_a_switch_over_real_interfaces_also_after_one_was_down,
    ],
    anywhere: [
        two_workers_forward_every_frame_in_order_while_names_and_cells_change,
        a_full_burst_is_in_flight_until_the_next_poll_and_goes_by_the_fib_that_it_came_under,
        an_idle_worker_sleeps_and_a_frame_wakes_it,
        a_switch_without_ports_starts_sleeps_and_stops,
        frames_of_a_burst_that_a_port_fails_in_are_all_counted,
        a_worker_that_panicked_is_seen_to_have_ended,
        a_worker_gives_a_sign_of_life_unless_it_hangs,
        ports_that_do_not_fit_are_refused_with_the_numbers,
    ]
}
