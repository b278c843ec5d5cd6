//! Ports of DPDK: drivers over veth in a network namespace of its own, and drivers that need nothing.

mod common;

use common::{PATIENCE, all_sizes_arrive, frame, ip, numbered_frames_arrive, receive, send, veth};
use fibula_netio::backend::af_packet::{self, AfPacket};
use fibula_netio::backend::dpdk::{BUSY, Dpdk, Eal, EalError, EalOptions, Options};
use fibula_netio::backend::loopback;
use fibula_netio::testkit::in_namespace;
use fibula_netio::{Burst, Device, NetError, Packet, Pool, Readiness, Waiter};
use std::io::BufRead;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Whatever the machine has reserved is left alone.
fn small(arguments: &[&str]) -> EalOptions {
    let arguments = ["--no-huge", "-m", "256"].iter().chain(arguments).map(|&argument| argument.to_owned()).collect();
    EalOptions { arguments, devices: vec![] }
}

fn eal() -> Eal {
    Eal::start(&small(&[])).unwrap()
}

/// A name for a device that no other test has: they share one EAL.
fn named(driver: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{driver}{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn open(device: &str) -> Box<Dpdk> {
    Box::new(Dpdk::open(eal(), device, &Options::default()).unwrap_or_else(|error| panic!("{error}")))
}

fn on(interface: &str) -> String {
    format!("{},iface={interface}", named("net_af_packet"))
}

fn packet(name: &str) -> Box<AfPacket> {
    Box::new(AfPacket::open(name, &af_packet::Options::default()).unwrap())
}

/// Two ports in one process, with shared memory between them. The first one can send at once, the second one as soon as the
/// first has received: that gives it buffers to fill.
fn memif(directory: &Path) -> (Box<Dpdk>, Box<Dpdk>) {
    let socket = directory.join("memif.sock");
    let device = |role| format!("{},role={role},socket-abstract=no,socket={}", named("net_memif"), socket.display());
    let (mut b, mut a) = (open(&device("server")), open(&device("client")));
    let end = Instant::now() + PATIENCE;
    while a.revive().is_err() || b.revive().is_err() {
        assert!(Instant::now() < end, "no link");
    }
    (a, b)
}

fn frames_of_all_sizes_arrive_whole_and_in_order() {
    in_namespace(|| {
        veth("west", "east");
        all_sizes_arrive(open(&on("west")), open(&on("east")));
    });
    in_namespace(|| {
        veth("west", "east");
        all_sizes_arrive(packet("west"), open(&on("east")));
    });
    in_namespace(|| {
        veth("west", "east");
        all_sizes_arrive(open(&on("west")), packet("east"));
    });
}

fn frames_of_all_sizes_pass_through_xdp_sockets_of_dpdk() {
    in_namespace(|| {
        veth("west", "east");
        let device = format!("{},iface=east", named("net_af_xdp"));
        all_sizes_arrive(packet("west"), open(&device));
    });
}

fn frames_of_all_sizes_pass_through_shared_memory() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = memif(directory.path());
    all_sizes_arrive(a, b);
}

fn frames_pass_for_longer_than_the_rings_and_buffers_last() {
    let directory = tempfile::tempdir().unwrap();
    let (mut a, mut b) = memif(directory.path());
    numbered_frames_arrive(&mut *a, &mut *b, 50_000);
}

fn an_empty_pool_and_a_full_burst_keep_frames_waiting() {
    let mut port = open(&named("net_null"));
    let (mut pool, mut burst) = (Pool::new(40, 2048), Burst::new());
    assert_eq!(port.rx_burst(&mut pool, &mut burst).unwrap(), 32);
    assert_eq!(port.rx_burst(&mut pool, &mut burst).unwrap(), 0, "the burst is full");
    let mut second = Burst::new();
    assert_eq!(port.rx_burst(&mut pool, &mut second).unwrap(), 8, "the pool has no more");
    assert_eq!(pool.available(), 0);
    // What was received earlier stays as it is.
    assert!(burst.iter().all(|packet| packet.len() == 64));
    assert_eq!(port.tx_burst(&mut pool, &mut burst).unwrap(), 32);
    pool.put_all(&mut second);
    assert_eq!((pool.available(), port.counters().snapshot().rx_frames), (40, 40));
}

fn buffers_are_lent_as_long_as_enough_are_left_for_copies() {
    let mut port = open(&named("net_null"));
    let mut pool = Pool::new(4096, 2048);
    let mut bursts = Vec::new();
    let receive = |port: &mut Dpdk, pool: &mut Pool, bursts: &mut Vec<Burst>| {
        let mut burst = Burst::new();
        port.rx_burst(pool, &mut burst).unwrap();
        let n_lent = burst.iter().filter(|packet| packet.loan().is_some()).count();
        bursts.push(burst);
        n_lent
    };
    assert_eq!(receive(&mut port, &mut pool, &mut bursts), 32);
    while receive(&mut port, &mut pool, &mut bursts) > 0 {
        assert!(bursts.len() < 100, "no end of buffers");
    }
    assert!(bursts.len() > 32, "only {} bursts were lent", bursts.len());
    // All others stay where they are: frames come in and go out as copies.
    for _ in 0..100 {
        assert_eq!(receive(&mut port, &mut pool, &mut bursts), 0);
        let mut burst = bursts.pop().unwrap();
        assert_eq!((burst.len(), port.tx_burst(&mut pool, &mut burst).unwrap()), (32, 32));
    }
}

fn a_frame_between_two_ports_stays_in_its_buffer() {
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [(mut a, mut b), (mut c, mut d)] = directories.each_ref().map(|directory| memif(directory.path()));
    let mut pool = Pool::new(64, 2048);
    let arrived = |port: &mut Dpdk, pool: &mut Pool| {
        let (mut burst, end) = (Burst::new(), Instant::now() + PATIENCE);
        while burst.is_empty() {
            assert!(Instant::now() < end, "no frame");
            port.rx_burst(pool, &mut burst).unwrap();
        }
        burst
    };
    let whole = frame(1, 2, 1000, 9);
    send(&mut *a, std::slice::from_ref(&whole));
    let mut burst = arrived(&mut b, &mut pool);
    let before = burst[0].loan().expect("the frame was copied");
    assert!(burst[0].insert(12, [1, 2, 3, 4]));
    let after = burst[0].loan().unwrap();
    assert_eq!((before.1, before.2 - 4), (after.1, after.2), "the frame has moved to another buffer");
    assert_eq!(c.tx_burst(&mut pool, &mut burst).unwrap(), 1);
    assert_eq!((pool.available(), c.counters().snapshot().tx_bytes), (64, 1004));
    let burst = arrived(&mut d, &mut pool);
    assert_eq!((&burst[0].frame()[..12], &burst[0].frame()[12..16]), (&whole[..12], &[1, 2, 3, 4][..]));
    assert_eq!(burst[0].frame()[16..], whole[12..]);
}

fn frames_that_cannot_be_sent_are_refused_and_the_others_of_the_burst_go() {
    in_namespace(|| {
        veth("west", "east");
        let (mut a, b) = (open(&on("west")), open(&on("east")));
        assert_eq!(a.max_frame(), 1514);
        let frames = [frame(1, 2, 60, 1), frame(1, 2, 1600, 2), frame(1, 2, 60, 3), vec![0; 5], frame(1, 2, 60, 4)];
        assert_eq!(send(&mut *a, &frames), 3);
        assert_eq!(a.counters().snapshot().tx_refused, 2);
        let fills: Vec<_> = receive(b, 3).0.iter().map(|f| f[20]).collect();
        assert_eq!(fills, [1, 3, 4]);
    });
}

fn tagged_frames_and_long_ones_arrive_whole() {
    in_namespace(|| {
        veth("west", "east");
        let mut tagged = frame(1, 2, 64, 9);
        tagged[12..18].copy_from_slice(&[0x81, 0, 0x20, 0x07, 0x88, 0xb5]);
        assert_eq!(send(&mut *packet("west"), std::slice::from_ref(&tagged)), 1);
        let b = open(&on("east"));
        assert_eq!(send(&mut *packet("west"), &[tagged.clone(), frame(1, 2, 1514, 8)]), 2);
        assert_eq!(receive(b, 2).0, [tagged, frame(1, 2, 1514, 8)]);
    });
    in_namespace(|| {
        veth("west", "east");
        ip("link set west mtu 9000");
        ip("link set east mtu 9000");
        let (mut a, b) = (open(&on("west")), open(&on("east")));
        assert_eq!((a.max_frame(), b.max_frame()), (9014, 9014));
        let frames = [frame(1, 2, 9014, 1), frame(1, 2, 60, 2), frame(1, 2, 9013, 3)];
        assert_eq!(send(&mut *a, &frames), 3);
        let received = |port| {
            let (waiter, mut pool, mut burst) = (Waiter::new().unwrap(), Pool::new(8, 9216), Burst::new());
            let (mut ports, mut got): ([Box<dyn Device>; 1], Vec<Vec<u8>>) = ([port], vec![]);
            while got.len() < 3 {
                ports[0].rx_burst(&mut pool, &mut burst).unwrap();
                got.extend(burst.iter().map(|p| p.frame().to_vec()));
                pool.put_all(&mut burst);
                waiter.sleep(&mut ports, |_| false, Some(PATIENCE)).unwrap();
            }
            got
        };
        assert_eq!(received(b), frames);
        let short = format!("{},framesz=2048", on("east"));
        let error = Dpdk::open(eal(), &short, &Options::default()).unwrap_err();
        assert!(error.to_string().contains("raise framesz"), "{error}");
    });
}

fn every_worker_has_a_queue_or_the_error_says_how() {
    let options = Options::default();
    let refused = |device: &str, workers| {
        let error = Dpdk::open_group(eal(), device, &options, workers).unwrap_err();
        assert!(matches!(error, NetError::BadOption { .. }) && !error.is_transient(), "{error}");
        error.to_string()
    };
    let one = named("net_ring");
    let error = refused(&one, 100);
    assert!(error.contains("queues for 100 workers") && error.contains("set workers = "), "{error}");
    // What was refused is not left open.
    drop(open(&one));
    in_namespace(|| {
        veth("west", "east");
        for given in [1, 3] {
            let error = refused(&format!("{},qpairs={given}", on("east")), 2);
            assert!(error.contains(&format!("it has {given} queues for 2 workers")), "{error}");
        }
        let mut workers = Dpdk::open_group(eal(), &on("east"), &options, 2).unwrap();
        let frames: Vec<_> = (0..240).map(|i| frame(i % 60, 100, 60, i)).collect();
        assert_eq!(send(&mut *packet("west"), &frames), 240);
        let (mut pool, mut burst, mut got) = (Pool::new(64, 2048), Burst::new(), vec![]);
        let end = Instant::now() + PATIENCE;
        while got.len() < 240 && Instant::now() < end {
            for worker in &mut workers {
                worker.rx_burst(&mut pool, &mut burst).unwrap();
                got.extend(burst.iter().map(|p| p.frame().to_vec()));
                pool.put_all(&mut burst);
            }
        }
        got.sort_by_key(|f| f[20]);
        assert_eq!(got, frames, "each once");
    });
}

fn what_is_no_device_is_a_typed_error_with_what_dpdk_said() {
    for (device, said) in [
        ("", "it is not a device of DPDK"),
        ("net null0", "it is not a device of DPDK"),
        ("net_no_such_driver0", "write a virtual device such as"),
        ("net_af_packet99", "Driver cannot attach the device"),
        ("0000:ff:1f.7", "dpdk-devbind.py"),
    ] {
        let error = Dpdk::open(eal(), device, &Options::default()).unwrap_err();
        assert!(matches!(error, NetError::BadOption { .. }) && !error.is_transient(), "{device}: {error}");
        assert!(error.to_string().contains(said), "{device}: {error}");
    }
    let wide = Options { mtu: 9000, ..Options::default() };
    let directory = tempfile::tempdir().unwrap();
    let device = format!("{},socket-abstract=no,socket={}", named("net_memif"), directory.path().join("s").display());
    // Its server is not there yet.
    let error = Dpdk::open(eal(), &device, &Options::default()).unwrap_err();
    assert!(matches!(error, NetError::Down { .. }) && error.to_string().contains("Failed to connect"), "{error}");
    let device = format!("{device},role=server");
    let error = Dpdk::open(eal(), &device, &wide).unwrap_err();
    assert!(error.to_string().contains("its largest MTU is 1500"), "{error}");
    // Room above the MTU is a wish.
    let trunk = Options { room: 4, ..Options::default() };
    assert_eq!(Dpdk::open(eal(), &device, &trunk).unwrap().max_frame(), 1514);
    assert_eq!(Dpdk::open(eal(), &named("net_null"), &trunk).unwrap().max_frame(), 1518);
    in_namespace(|| {
        let missing = Dpdk::open(eal(), &on("no-such-if"), &Options::default()).unwrap_err();
        assert!(matches!(missing, NetError::NoSuchInterface { .. }), "{missing}");
        ip("link add west type veth peer name east");
        let down = Dpdk::open(eal(), &on("west"), &Options::default()).unwrap_err();
        assert!(matches!(down, NetError::Down { .. }), "{down}");
    });
}

/// Both workers of a port fail, and both can be revived, in whatever order.
fn an_interface_that_goes_down_and_up_or_is_made_anew_works_again() {
    in_namespace(|| {
        veth("west", "east");
        let mut workers = Dpdk::open_group(eal(), &on("east"), &Options::default(), 2).unwrap();
        let (mut pool, mut burst) = (Pool::new(64, 2048), Burst::new());
        let end = Instant::now() + PATIENCE;
        let fail = |workers: &mut [Dpdk], pool: &mut Pool, burst: &mut Burst| {
            for worker in workers {
                let error = loop {
                    let _ = worker.readiness();
                    match worker.rx_burst(pool, burst) {
                        Err(error) => break error,
                        Ok(_) => pool.put_all(burst),
                    }
                    assert!(Instant::now() < end, "no error");
                };
                assert!(error.is_transient(), "{error}");
                assert!(worker.revive().unwrap_err().is_transient());
            }
        };
        ip("link set east down");
        fail(&mut workers, &mut pool, &mut burst);
        burst.push(Packet::from_frame(&frame(1, 2, 60, 7)));
        let error = workers[0].tx_burst(&mut pool, &mut burst).unwrap_err();
        assert!(matches!(error, NetError::Down { .. }) && burst.len() == 1, "{error}");
        burst.clear();
        ip("link set east up");
        let arrives = |workers: &mut [Dpdk], pool: &mut Pool, burst: &mut Burst, fill| {
            let mut got = vec![];
            assert_eq!(send(&mut *packet("west"), &[frame(1, 2, 60, fill)]), 1);
            while got.is_empty() {
                assert!(Instant::now() < end, "nothing arrives");
                for worker in &mut *workers {
                    worker.rx_burst(pool, burst).unwrap();
                    got.extend(burst.iter().map(|p| p.frame().to_vec()));
                    pool.put_all(burst);
                }
            }
            assert_eq!(got, [frame(1, 2, 60, fill)]);
        };
        workers.iter_mut().for_each(|worker| worker.revive().unwrap());
        arrives(&mut workers, &mut pool, &mut burst, 7);
        ip("link del east");
        fail(&mut workers, &mut pool, &mut burst);
        veth("west", "east");
        // The first one gives up its queue of the former interface, and waits for the second.
        assert!(workers[0].revive().unwrap_err().is_transient());
        workers[1].revive().unwrap();
        workers[0].revive().unwrap();
        arrives(&mut workers, &mut pool, &mut burst, 9);
    });
}

fn an_interface_that_is_not_there_yet_is_opened_when_it_comes() {
    in_namespace(|| {
        let mut ports = Dpdk::absent_group(eal(), &on("east"), &Options::default(), 1).unwrap();
        let (mut pool, mut burst) = (Pool::new(8, 2048), Burst::new());
        assert!(ports[0].rx_burst(&mut pool, &mut burst).unwrap_err().is_transient());
        assert_eq!(ports[0].max_frame(), 0);
        veth("west", "east");
        ports[0].revive().unwrap();
        assert_eq!(send(&mut *packet("west"), &[frame(1, 2, 60, 3)]), 1);
        assert_eq!(receive(Box::new(ports.remove(0)), 1).0, [frame(1, 2, 60, 3)]);
    });
}

fn a_port_without_a_link_is_down_until_it_has_one() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("memif.sock");
    let device = |role| format!("{},role={role},socket-abstract=no,socket={}", named("net_memif"), socket.display());
    let mut server = open(&device("server"));
    let (mut pool, mut burst) = (Pool::new(8, 2048), Burst::new());
    let end = Instant::now() + PATIENCE;
    let error = loop {
        let _ = server.readiness();
        match server.rx_burst(&mut pool, &mut burst) {
            Err(error) => break error,
            Ok(n) => assert!(n == 0 && Instant::now() < end, "no error"),
        }
    };
    assert!(matches!(error, NetError::Down { .. }) && error.to_string().contains("no link"), "{error}");
    let _client = open(&device("client"));
    while server.revive().is_err() {
        assert!(Instant::now() < end, "no link");
    }
    assert_eq!(server.rx_burst(&mut pool, &mut burst).unwrap(), 0);
}

fn an_idle_port_lets_its_worker_sleep_and_wakes_it_and_other_ports_are_served() {
    let directory = tempfile::tempdir().unwrap();
    let (mut a, mut b) = memif(directory.path());
    let (mut pool, mut burst) = (Pool::new(64, 2048), Burst::new());
    let end = Instant::now() + PATIENCE;
    let quiet = Instant::now();
    loop {
        assert_eq!(b.rx_burst(&mut pool, &mut burst).unwrap(), 0);
        if matches!(b.readiness(), Readiness::Descriptor(_)) {
            break;
        }
        assert!(Instant::now() < end, "it polls for ever");
    }
    assert!(quiet.elapsed() >= BUSY, "it polls for a while");
    // A sleep without a limit ends by itself.
    let waiter = Waiter::new().unwrap();
    let (near, mut far) = loopback::pair("near", "far", &loopback::Settings::default()).unwrap();
    let mut ports: [Box<dyn Device>; 2] = [b, Box::new(near)];
    for _ in 0..20 {
        assert!(waiter.sleep(&mut ports, |_| false, None).unwrap());
    }
    assert_eq!(send(&mut *a, &[frame(1, 2, 60, 5)]), 1);
    assert_eq!(send(&mut far, &[frame(1, 2, 60, 6)]), 1);
    for (port, fill) in ports.iter_mut().zip([5, 6]) {
        assert_eq!(port.rx_burst(&mut pool, &mut burst).unwrap(), 1);
        assert_eq!(burst[0].frame(), frame(1, 2, 60, fill));
        pool.put_all(&mut burst);
    }
    // Frames make it busy again.
    assert!(matches!(ports[0].readiness(), Readiness::Ready));
    let quiet = Instant::now();
    let never = Options { longest_nap: Duration::ZERO, ..Options::default() };
    let mut port = Dpdk::open(eal(), &named("net_ring"), &never).unwrap();
    while quiet.elapsed() < 100 * BUSY {
        assert!(matches!(port.readiness(), Readiness::Ready));
    }
}

/// This test again, in a process of its own, which does what `what` says and prints a line with it.
fn again(test: &str, what: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env("FIBULA_TEST_DPDK", what);
    command
}

fn asked() -> Option<String> {
    std::env::var("FIBULA_TEST_DPDK").ok()
}

fn arguments_that_eal_refuses_are_a_typed_error() {
    if let Some(what) = asked() {
        let error = Eal::start(&small(&["--no-such-argument"])).unwrap_err();
        assert!(matches!(error, EalError::Refused { .. }));
        // It cannot be tried again.
        assert_eq!(Eal::start(&small(&[])).unwrap_err().to_string(), error.to_string());
        println!("{what}{error}");
        return;
    }
    let output = again("arguments_that_eal_refuses_are_a_typed_error", "refused:").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("refused:"), "{said}");
    // EAL's usage is not between it.
    assert!(!said.contains("EAL common options"), "{said}");
    assert!(said.contains("--no-such-argument") && said.contains("unrecognized option"), "{said}");
    assert!(said.contains("correct its arguments"), "{said}");
}

fn without_privileges_it_runs_and_interfaces_are_refused() {
    const NAME: &str = "without_privileges_it_runs_and_interfaces_are_refused";
    if let Some(what) = asked() {
        let mut port = open("net_null0");
        let (mut pool, mut burst) = (Pool::new(32, 2048), Burst::new());
        assert_eq!(port.rx_burst(&mut pool, &mut burst).unwrap(), 32);
        let error = Dpdk::open(eal(), "net_af_packet0,iface=lo", &Options::default()).unwrap_err();
        assert!(matches!(error, NetError::NotPermitted { .. }), "{error}");
        println!("{what}{error}");
        return;
    }
    // A program that anybody may run.
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let program = directory.path().join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let open =
        |path: &Path| std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    open(directory.path());
    open(&program);
    let mut command = Command::new(&program);
    command.args([NAME, "--exact", "--nocapture"]).env("FIBULA_TEST_DPDK", "refused:").env_remove("XDG_RUNTIME_DIR");
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let output = command.current_dir("/").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("refused:") && text.contains("CAP_NET_RAW"), "{text}");
}

/// Files and directories of this process in the places where DPDK has its.
fn remains(pid: u32) -> Vec<String> {
    let ours = format!("fibula-{pid}");
    let mut found = vec![];
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let huge = mounts.lines().filter(|line| line.split(' ').nth(2) == Some("hugetlbfs"));
    let places = huge.filter_map(|line| line.split(' ').nth(1)).chain(["/var/run/dpdk", "/tmp/dpdk", "/dev/shm"]);
    for place in places {
        let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
        found.extend(entries.filter_map(|e| e.file_name().into_string().ok()).filter(|name| name.contains(&ours)));
    }
    found
}

fn a_process_that_is_killed_leaves_nothing() {
    if let Some(what) = asked() {
        let interface = std::env::var("FIBULA_TEST_INTERFACE").unwrap();
        let _held = open(&format!("net_af_packet0,iface={interface}"));
        println!("{what}");
        loop {
            std::thread::park();
        }
    }
    in_namespace(|| {
        veth("west", "east");
        let mut command = again("a_process_that_is_killed_leaves_nothing", "held");
        let mut child = command.env("FIBULA_TEST_INTERFACE", "east").stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("held")));
        let promiscuity = || ip("-d link show east").split("promiscuity ").nth(1).map(|text| text.starts_with('0'));
        assert_eq!(promiscuity(), Some(false));
        assert_eq!(remains(child.id()), [""; 0]);
        child.kill().unwrap();
        child.wait().unwrap();
        let end = Instant::now() + PATIENCE;
        while promiscuity() != Some(true) {
            assert!(Instant::now() < end, "{}", ip("-d link show east"));
        }
        assert_eq!(remains(child.id()), [""; 0]);
        // Another has the interface at once.
        drop(open(&on("east")));
    });
}

fibula_netio::tests! {
    namespaces: [
        frames_of_all_sizes_arrive_whole_and_in_order,
        frames_of_all_sizes_pass_through_xdp_sockets_of_dpdk,
        frames_that_cannot_be_sent_are_refused_and_the_others_of_the_burst_go,
        tagged_frames_and_long_ones_arrive_whole,
        every_worker_has_a_queue_or_the_error_says_how,
        what_is_no_device_is_a_typed_error_with_what_dpdk_said,
        an_interface_that_goes_down_and_up_or_is_made_anew_works_again,
        an_interface_that_is_not_there_yet_is_opened_when_it_comes,
        a_process_that_is_killed_leaves_nothing,
    ],
    anywhere: [
        frames_of_all_sizes_pass_through_shared_memory,
        frames_pass_for_longer_than_the_rings_and_buffers_last,
        an_empty_pool_and_a_full_burst_keep_frames_waiting,
        buffers_are_lent_as_long_as_enough_are_left_for_copies,
        a_frame_between_two_ports_stays_in_its_buffer,
        a_port_without_a_link_is_down_until_it_has_one,
        an_idle_port_lets_its_worker_sleep_and_wakes_it_and_other_ports_are_served,
        arguments_that_eal_refuses_are_a_typed_error,
        without_privileges_it_runs_and_interfaces_are_refused,
    ]
}
