//! AF_PACKET over veth in a network namespace of its own.
#![expect(unsafe_code, reason = "a socket option without a safe binding")]

mod common;

use common::{PATIENCE, all_sizes_arrive, frame, ip, receive, send, veth};
use fibula_netio::backend::af_packet::{AfPacket, Offloads, Options, disable_offloads, joining_offloads};
use fibula_netio::backend::loopback;
use fibula_netio::offload::{Kind, Offload, Segments, renew};
use fibula_netio::testkit::in_namespace;
use fibula_netio::{Burst, Device, NetError, Packet, Pool, Waiter};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn quiet() -> Options {
    Options { ring_frames: 256, offloads: Offloads::TurnOff, ..Options::default() }
}

fn frames_of_all_sizes_arrive_whole_and_in_order() {
    in_namespace(|| {
        veth("west", "east");
        let open = |name| Box::new(AfPacket::open(name, &quiet()).unwrap());
        all_sizes_arrive(open("west"), open("east"));
    });
    let settings = loopback::Settings { ring_frames: 256, ..Default::default() };
    let (a, b) = loopback::pair("west", "east", &settings).unwrap();
    all_sizes_arrive(Box::new(a), Box::new(b));
}

fn frames_are_dealt_to_exactly_one_worker_and_a_pair_of_hosts_to_always_the_same() {
    in_namespace(|| {
        veth("west", "east");
        let mut a = AfPacket::open("west", &quiet()).unwrap();
        let mut workers = AfPacket::open_group("east", &quiet(), 2).unwrap();
        let frames: Vec<_> = (0..240).map(|i| frame(i % 60, 100, 60, i)).collect();
        assert_eq!(send(&mut a, &frames), 240);
        // Sent means delivered here: veth hands a frame to the receiver's ring before the system call returns, except
        // when the kernel defers it to another thread; so wait for the total.
        let (mut pool, mut burst) = (Pool::new(64, 2048), Burst::new());
        let mut got = [vec![], vec![]];
        let end = Instant::now() + PATIENCE;
        while got[0].len() + got[1].len() < 240 && Instant::now() < end {
            for (worker, got) in workers.iter_mut().zip(&mut got) {
                worker.rx_burst(&mut pool, &mut burst).unwrap();
                got.extend(burst.iter().map(|p| (p.frame()[11], p.frame()[20])));
                pool.put_all(&mut burst);
            }
        }
        let (first, second) = (&got[0], &got[1]);
        assert_eq!(first.len() + second.len(), 240);
        assert!(first.len() >= 48 && second.len() >= 48, "{} and {}", first.len(), second.len());
        assert!(first.iter().all(|(source, _)| second.iter().all(|(other, _)| source != other)));
        for sorted in [first, second] {
            for source in 0..60 {
                let order: Vec<_> = sorted.iter().filter(|f| f.0 == source).map(|f| f.1).collect();
                assert!(order.is_sorted(), "source {source}: {order:?}");
            }
        }
    });
}

fn a_vlan_tag_that_the_kernel_took_off_is_put_back() {
    in_namespace(|| {
        veth("west", "east");
        let mut a = AfPacket::open("west", &quiet()).unwrap();
        let b = Box::new(AfPacket::open("east", &quiet()).unwrap());
        let tagged = |tpid: [u8; 2], len| {
            let mut f = frame(1, 2, len, 9);
            f[12..18].copy_from_slice(&[tpid[0], tpid[1], 0x20, 0x07, 0x88, 0xb5]);
            f
        };
        let frames = vec![tagged([0x81, 0], 64), tagged([0x88, 0xa8], 64), tagged([0x81, 0], 1518), frame(1, 2, 60, 1)];
        assert_eq!(send(&mut a, &frames), 4);
        assert_eq!(receive(b, 4).0, frames);
    });
}

fn frames_above_the_mtu_are_refused_and_the_others_of_the_burst_go() {
    in_namespace(|| {
        veth("west", "east");
        let mut a = AfPacket::open("west", &quiet()).unwrap();
        assert_eq!(a.max_frame(), 1514);
        let b = Box::new(AfPacket::open("east", &quiet()).unwrap());
        let frames = [frame(1, 2, 60, 1), frame(1, 2, 1600, 2), frame(1, 2, 60, 3), vec![0; 5], frame(1, 2, 60, 4)];
        assert_eq!(send(&mut a, &frames), 3);
        assert_eq!(a.counters().snapshot().tx_refused, 2);
        let fills: Vec<_> = receive(b, 3).0.iter().map(|f| f[20]).collect();
        assert_eq!(fills, [1, 3, 4]);
    });
}

/// The datagrams that the namespace's own stack sends out of `west`, as seen by a port on `east`: a local sender leaves
/// checksums and segmentation to the interface.
fn local_udp(port: AfPacket, sizes: &[usize], expected: usize) -> (Vec<Vec<u8>>, fibula_netio::DeviceSnapshot) {
    ip("addr add 10.9.0.1/24 dev west");
    ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev west");
    let socket = std::net::UdpSocket::bind("10.9.0.1:4000").unwrap();
    for &size in sizes {
        socket.send_to(&vec![0x5a; size], "10.9.0.2:4001").unwrap();
    }
    let (frames, port) = receive(Box::new(port), expected);
    (frames, port.counters().snapshot())
}

fn udp_checksum_is_right(frame: &[u8]) -> bool {
    let packet = etherparse::SlicedPacket::from_ethernet(frame).unwrap();
    let Some(etherparse::NetSlice::Ipv4(ip)) = packet.net else { return false };
    let Some(etherparse::TransportSlice::Udp(udp)) = packet.transport else { return false };
    udp.to_header().calc_checksum_ipv4(&ip.header().to_header(), udp.payload()).unwrap() == udp.checksum()
}

fn a_local_sender_s_unfinished_checksum_is_completed() {
    in_namespace(|| {
        veth("west", "east");
        let port = AfPacket::open("east", &quiet()).unwrap();
        let (frames, counts) = local_udp(port, &[1, 100, 1400], 3);
        assert_eq!(frames.len(), 3);
        assert!(frames.iter().all(|f| udp_checksum_is_right(f)));
        assert_eq!(counts.rx_checksums, 3, "veth leaves checksums to hardware by default");
    });
}

fn a_sender_with_its_offloads_turned_off_leaves_nothing_to_complete() {
    in_namespace(|| {
        veth("west", "east");
        disable_offloads("west").unwrap();
        let port = AfPacket::open("east", &quiet()).unwrap();
        let (frames, counts) = local_udp(port, &[1, 100, 1400], 3);
        assert!(frames.len() == 3 && frames.iter().all(|f| udp_checksum_is_right(f)));
        assert_eq!(counts.rx_checksums, 0);
    });
}

fn a_frame_longer_than_a_slot_is_counted_and_dropped() {
    in_namespace(|| {
        veth("west", "east");
        let port = AfPacket::open("east", &quiet()).unwrap();
        // The peer's MTU is larger than what this port was opened for: its frames do not fit the slots.
        ip("link set west mtu 9000");
        ip("link set east mtu 9000");
        let (frames, counts) = local_udp(port, &[8000, 100], 1);
        assert!(frames.iter().all(|f| f.len() < 1514));
        assert_eq!((frames.len(), counts.rx_oversized), (1, 1));
    });
}

fn carrying() -> Options {
    Options { offloads: Offloads::Carry, ..quiet() }
}

/// Bytes of each datagram that [`super_frame`] has, and how many it has; the last one is shorter.
const EACH: usize = 1000;
const N_DATAGRAMS: usize = 40;

/// Has the namespace's own stack send many datagrams with one call out of `west`, and returns what a port at the other end receives.
fn super_frame(port: &mut AfPacket) -> Packet {
    ip("addr add 10.9.0.1/24 dev west");
    ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev west");
    let socket = std::net::UdpSocket::bind("10.9.0.1:4000").unwrap();
    let size = EACH as libc::c_int;
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `size` is valid for reads of its size during the call.
    let set = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, (&raw const size).cast(), len)
    };
    assert_eq!(set, 0);
    let payload: Vec<u8> = (0..N_DATAGRAMS * EACH - 300).map(|i| (i / 3) as u8).collect();
    socket.send_to(&payload, "10.9.0.2:4001").unwrap();
    next_packet(port)
}

fn next_packet(port: &mut AfPacket) -> Packet {
    let (mut pool, mut burst, began) = (Pool::with_large(8, 2048, 2), Burst::new(), Instant::now());
    while port.rx_burst(&mut pool, &mut burst).unwrap() == 0 {
        assert!(began.elapsed() < PATIENCE, "nothing came");
        std::thread::yield_now();
    }
    assert_eq!(burst.len(), 1);
    burst.remove(0)
}

fn a_super_frame_goes_from_port_to_port_whole() {
    in_namespace(|| {
        veth("west", "east");
        veth("north", "south");
        let [mut east, mut south, mut north] =
            ["east", "south", "north"].map(|name| AfPacket::open(name, &carrying()).unwrap());
        let packet = super_frame(&mut east);
        let left = packet.offload();
        assert_eq!((left.kind(), packet.len()), (Some(Kind::Udp), 42 + N_DATAGRAMS * EACH - 300));
        assert_eq!(packet.wire_len(), 42 + EACH);
        let frame = packet.frame().to_vec();
        let (mut pool, mut burst) = (Pool::with_large(0, 2048, 1), Burst::from_iter([packet]));
        assert_eq!(south.tx_burst(&mut pool, &mut burst).unwrap(), 1);
        let got = next_packet(&mut north);
        assert_eq!(got.offload(), left);
        assert!(got.frame() == frame, "it is as it was sent");
        let (came, went) = (east.counters().snapshot(), south.counters().snapshot());
        assert_eq!((came.rx_super, came.rx_oversized, went.tx_super, went.tx_segments), (1, 0, 1, 0));
    });
}

fn receive_of(port: &mut AfPacket, pool: &mut Pool, n: usize) -> Burst {
    let (mut burst, began) = (Burst::new(), Instant::now());
    while burst.len() < n {
        port.rx_burst(pool, &mut burst).unwrap();
        assert!(began.elapsed() < PATIENCE, "{} of {n} came", burst.len());
    }
    burst
}

/// The segments of a stream, as a sender without offloads sends them, that wait in the ring are one packet, also with a tag that the
/// kernel takes off; what comes after it is another.
fn segments_that_wait_are_joined() {
    in_namespace(|| {
        veth("west", "east");
        let [mut west, mut east, mut witness] =
            ["west", "east", "east"].map(|name| AfPacket::open(name, &carrying()).unwrap());
        for tag in [&[][..], &[0x81, 0, 0, 7]] {
            let mut frame = vec![];
            let tcp = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 9, 0, 1], [10, 9, 0, 2], 64);
            tcp.tcp(1, 2, 3, 4).ack(5).write(&mut frame, &[7; 8 * 1448]).unwrap();
            frame.splice(12..12, tag.iter().copied());
            let mut long = Packet::large();
            long.fill(&frame).unwrap();
            let start = 34 + tag.len() as u16;
            long.set_offload(Offload::checksum(start, 16).segments(Kind::TcpV4, 1448));
            renew(&mut long);
            let segments = Segments::of(&long).unwrap();
            let mut burst = Burst::new();
            for i in 0..segments.len() {
                let mut segment = Packet::new(2048);
                segments.write(i, &mut segment).unwrap();
                burst.push(segment);
            }
            burst.push(Packet::from_frame(&[&[2; 12][..], &[8, 6], &[0; 46]].concat()));
            let mut pool = Pool::with_large(16, 2048, 1);
            assert_eq!(west.tx_burst(&mut pool, &mut burst).unwrap(), 9);
            // A veth delivers before the call returns, or soon after. Without large packets nothing is joined.
            receive_of(&mut witness, &mut Pool::new(16, 2048), 9);
            let mut burst = receive_of(&mut east, &mut pool, 2);
            assert!(burst[0].frame() == long.frame() && burst[0].offload() == long.offload());
            assert_eq!(burst[1].frame()[12..14], [8, 6]);
            pool.put_all(&mut burst);
        }
        let came = east.counters().snapshot();
        assert_eq!((came.rx_frames, came.rx_joined, came.rx_super), (4, 16, 2));
    });
}

/// Receives the datagrams of a super-frame that was sent by `south`, and checks each.
fn datagrams_of(north: AfPacket, tags: usize) {
    let (frames, _) = receive(Box::new(north), N_DATAGRAMS);
    let mut payload = vec![];
    for mut frame in frames {
        assert!(frame.len() <= 42 + tags + EACH);
        frame.drain(12..12 + tags);
        assert!(udp_checksum_is_right(&frame));
        payload.extend_from_slice(&frame[42..]);
    }
    assert!(payload == (0..N_DATAGRAMS * EACH - 300).map(|i| (i / 3) as u8).collect::<Vec<_>>());
}

fn a_super_frame_is_cut_where_the_interface_does_not_take_it() {
    in_namespace(|| {
        veth("west", "east");
        veth("north", "south");
        disable_offloads("south").unwrap();
        let [mut east, mut south] = ["east", "south"].map(|name| AfPacket::open(name, &carrying()).unwrap());
        let north = AfPacket::open("north", &quiet()).unwrap();
        let (mut pool, mut burst) = (Pool::new(0, 2048), Burst::from_iter([super_frame(&mut east)]));
        assert_eq!(south.tx_burst(&mut pool, &mut burst).unwrap(), 1);
        datagrams_of(north, 0);
        let went = south.counters().snapshot();
        assert_eq!((went.tx_super, went.tx_segments, went.tx_frames), (0, N_DATAGRAMS as u64, N_DATAGRAMS as u64));
        assert_eq!(pool.available_large(), 1);
    });
}

fn a_super_frame_is_cut_behind_a_tag_that_the_kernel_does_not_know() {
    in_namespace(|| {
        veth("west", "east");
        veth("north", "south");
        let [mut east, mut south] = ["east", "south"].map(|name| AfPacket::open(name, &carrying()).unwrap());
        let north = AfPacket::open("north", &quiet()).unwrap();
        let mut packet = super_frame(&mut east);
        assert!(packet.insert(12, [0x88, 0xb5, 64, 0]));
        assert_eq!(Segments::of(&packet).unwrap().len(), N_DATAGRAMS);
        assert_eq!(south.tx_burst(&mut Pool::new(0, 2048), &mut Burst::from_iter([packet])).unwrap(), 1);
        datagrams_of(north, 4);
        assert_eq!(south.counters().snapshot().tx_segments, N_DATAGRAMS as u64);
    });
}

/// Its segments count, not its length; and where these are too long it is not sent.
fn a_super_frame_is_judged_by_its_segments() {
    in_namespace(|| {
        veth("west", "east");
        veth("north", "south");
        ip("link set south mtu 1027");
        let [mut east, mut south] = ["east", "south"].map(|name| AfPacket::open(name, &carrying()).unwrap());
        let packet = super_frame(&mut east);
        let mut copies = [(); 2].map(|()| Packet::large());
        copies.iter_mut().for_each(|copy| copy.copy_of(&packet).unwrap());
        let send = |south: &mut AfPacket, copy| {
            south.tx_burst(&mut Pool::new(0, 2048), &mut Burst::from_iter([copy])).unwrap()
        };
        let [first, second] = copies;
        // A tag may come on top, so an MTU of 1024 takes 1028 bytes and more.
        assert_eq!((send(&mut south, first), south.counters().snapshot().tx_refused), (1, 0));
        ip("link set south mtu 1000");
        let mut south = AfPacket::open("south", &carrying()).unwrap();
        assert_eq!((send(&mut south, second), south.counters().snapshot().tx_refused), (0, 1));
    });
}

fn checksums_that_are_left_are_left_to_the_next_receiver_or_completed_behind_a_tag() {
    in_namespace(|| {
        veth("west", "east");
        veth("north", "south");
        let [mut east, mut south, mut north] =
            ["east", "south", "north"].map(|name| AfPacket::open(name, &carrying()).unwrap());
        ip("addr add 10.9.0.1/24 dev west");
        ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev west");
        let socket = std::net::UdpSocket::bind("10.9.0.1:4000").unwrap();
        for is_tagged in [false, true] {
            socket.send_to(&[7; 333], "10.9.0.2:4001").unwrap();
            let mut packet = next_packet(&mut east);
            assert!(packet.offload().start() == Some(34) && !udp_checksum_is_right(packet.frame()));
            assert!(!is_tagged || packet.insert(12, [0x88, 0xb5, 64, 0]));
            assert_eq!(south.tx_burst(&mut Pool::new(0, 2048), &mut Burst::from_iter([packet])).unwrap(), 1);
            let mut got = next_packet(&mut north);
            assert_eq!(got.offload().is_none(), is_tagged);
            assert!(!is_tagged || got.remove(12, 4));
            assert_eq!(udp_checksum_is_right(got.frame()), is_tagged);
            assert!(fibula_netio::offload::complete(&mut got) && udp_checksum_is_right(got.frame()));
        }
    });
}

fn offloads_that_were_turned_off_are_on_again_when_the_port_is_closed() {
    in_namespace(|| {
        veth("west", "east");
        let found = joining_offloads("east").unwrap();
        assert!(found.contains(&"tso") && found.contains(&"gso"), "{found:?}");
        let port = AfPacket::open("east", &carrying()).unwrap();
        assert_eq!(joining_offloads("east").unwrap(), found, "who carries them changes nothing");
        drop(port);
        let mut workers = AfPacket::open_group("east", &quiet(), 2).unwrap();
        assert!(joining_offloads("east").unwrap().is_empty());
        // Opened anew meanwhile, they are still off.
        ip("link set east down");
        ip("link set east up");
        workers[0].revive().unwrap();
        assert!(joining_offloads("east").unwrap().is_empty());
        drop(workers);
        assert_eq!(joining_offloads("east").unwrap(), found);
    });
}

/// Calls `rx_burst`, asleep in between, until it fails.
fn next_error(device: AfPacket) -> (NetError, AfPacket) {
    let (waiter, mut pool, mut burst) = (Waiter::new().unwrap(), Pool::new(64, 2048), Burst::new());
    let mut devices = [Holder(device)];
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Err(error) = devices[0].0.rx_burst(&mut pool, &mut burst) {
            let [Holder(device)] = devices;
            return (error, device);
        }
        pool.put_all(&mut burst);
        waiter.sleep(&mut devices, |_| false, Some(Duration::from_millis(100))).unwrap();
    }
    panic!("no error within {PATIENCE:?}");
}

struct Holder(AfPacket);

impl AsMut<dyn Device> for Holder {
    fn as_mut(&mut self) -> &mut (dyn Device + 'static) {
        &mut self.0
    }
}

fn an_interface_that_goes_down_wakes_the_sleeper_and_works_again_when_it_is_up() {
    in_namespace(|| {
        veth("west", "east");
        let port = AfPacket::open("east", &quiet()).unwrap();
        let mut peer = AfPacket::open("west", &quiet()).unwrap();
        ip("link set east down");
        let (error, mut port) = next_error(port);
        assert!(matches!(error, NetError::Down { .. }), "{error}");
        assert!(port.revive().unwrap_err().is_transient());
        assert_eq!(port.counters().snapshot().faults, 1);
        ip("link set east up");
        port.revive().unwrap();
        let frames = [frame(1, 2, 60, 7)];
        // Both directions, on the same sockets as before.
        assert_eq!(send(&mut peer, &frames), 1);
        let (got, mut port) = receive(Box::new(port), 1);
        assert_eq!(got, frames);
        assert_eq!(send(&mut *port, &frames), 1);
    });
}

fn an_interface_deleted_and_made_anew_is_found_again_by_every_worker() {
    in_namespace(|| {
        veth("west", "east");
        let mut workers = AfPacket::open_group("east", &quiet(), 2).unwrap();
        ip("link del east");
        let mut burst = Burst::from_iter([Packet::from_frame(&frame(1, 2, 60, 7))]);
        let error = workers[0].tx_burst(&mut Pool::new(0, 2048), &mut burst).unwrap_err();
        assert!(matches!(error, NetError::Down { .. } | NetError::NoSuchInterface { .. }), "{error}");
        assert_eq!(burst.len(), 1, "the frame is still the caller's");
        assert!(workers[0].revive().unwrap_err().is_transient());
        veth("west", "east");
        for worker in &mut workers {
            worker.revive().unwrap();
        }
        let mut peer = AfPacket::open("west", &quiet()).unwrap();
        let frames: Vec<_> = (0..60).map(|i| frame(i, 100, 60, i)).collect();
        assert_eq!(send(&mut peer, &frames), 60);
        let (mut pool, mut burst, mut got) = (Pool::new(64, 2048), Burst::new(), 0);
        let end = Instant::now() + PATIENCE;
        while got < 60 && Instant::now() < end {
            for worker in &mut workers {
                got += worker.rx_burst(&mut pool, &mut burst).unwrap();
                pool.put_all(&mut burst);
            }
        }
        assert_eq!(got, 60);
    });
}

fn opening_what_is_not_there_or_not_up_is_a_typed_error() {
    let missing = AfPacket::open("no-such-if", &quiet()).unwrap_err();
    assert!(matches!(missing, NetError::NoSuchInterface { .. } | NetError::NotPermitted { .. }), "{missing}");
    in_namespace(|| {
        ip("link add west type veth peer name east");
        assert!(matches!(AfPacket::open("west", &quiet()).unwrap_err(), NetError::Down { .. }));
        assert!(matches!(AfPacket::open_group("west", &quiet(), 2).unwrap_err(), NetError::Down { .. }));
    });
}

fn an_interface_that_is_not_there_yet_is_opened_when_it_comes() {
    in_namespace(|| {
        let mut port = AfPacket::absent_group("east", &quiet(), 1).remove(0);
        let (mut pool, mut burst) = (Pool::new(4, 2048), Burst::new());
        let error = port.rx_burst(&mut pool, &mut burst).unwrap_err();
        assert!(matches!(error, NetError::NoSuchInterface { .. }), "{error}");
        burst.push(Packet::from_frame(&frame(1, 2, 60, 7)));
        assert!(port.tx_burst(&mut pool, &mut burst).unwrap_err().is_transient());
        assert_eq!((burst.len(), port.max_frame()), (1, 0));
        assert!(port.revive().unwrap_err().is_transient());
        assert_eq!(port.counters().snapshot().faults, 2);
        ip("link add west type veth peer name east");
        ip("link set west addrgenmode none up");
        assert!(matches!(port.revive().unwrap_err(), NetError::Down { .. }));
        ip("link set east addrgenmode none up");
        port.revive().unwrap();
        assert_eq!((port.tx_burst(&mut pool, &mut burst).unwrap(), port.max_frame()), (1, 1514));
        let mut peer = AfPacket::open("west", &quiet()).unwrap();
        assert_eq!(send(&mut peer, &[frame(1, 2, 60, 8)]), 1);
        assert_eq!(receive(Box::new(port), 1).0, [frame(1, 2, 60, 8)]);
    });
}

fn a_revived_interface_does_not_fail_once_more_because_it_was_down() {
    in_namespace(|| {
        veth("west", "east");
        let mut port = AfPacket::open("east", &quiet()).unwrap();
        ip("link set east down");
        ip("link set east up");
        // Revived before the error was read from the socket, as when a send or another port's frame came first.
        port.revive().unwrap();
        let mut burst = Burst::from_iter([Packet::from_frame(&frame(1, 2, 60, 7))]);
        assert_eq!(port.tx_burst(&mut Pool::new(0, 2048), &mut burst).unwrap(), 1);
        port.woken(true);
        assert_eq!(port.rx_burst(&mut Pool::new(4, 2048), &mut burst).unwrap(), 0);
        assert_eq!(port.counters().snapshot().faults, 0);
    });
}

/// Ends the other thread even when this one panics.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn no_frame_is_received_twice_while_workers_join() {
    in_namespace(|| {
        veth("west", "east");
        let done = AtomicBool::new(false);
        let numbered = |i: u64| {
            let mut f = frame((i % 251) as u8, 100, 60, 0);
            f[14..22].copy_from_slice(&i.to_be_bytes());
            f
        };
        // Opened here, since a new thread inherits the namespace, and the sender must be ready before.
        let mut sender = AfPacket::open("west", &quiet()).unwrap();
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let mut next = 0..;
                while !done.load(Ordering::Acquire) {
                    let frames: Vec<_> = next.by_ref().take(fibula_netio::BURST).map(numbered).collect();
                    send(&mut sender, &frames);
                }
            });
            let ending = SetOnDrop(&done);
            let (mut pool, mut burst) = (Pool::new(64, 2048), Burst::new());
            for _ in 0..8 {
                let mut workers = AfPacket::open_group("east", &quiet(), 4).unwrap();
                let mut got = vec![];
                for worker in &mut workers {
                    // What the ring holds, not what arrives meanwhile.
                    for _ in 0..256 / fibula_netio::BURST {
                        worker.rx_burst(&mut pool, &mut burst).unwrap();
                        got.extend(burst.iter().map(|p| u64::from_be_bytes(p.frame()[14..22].try_into().unwrap())));
                        pool.put_all(&mut burst);
                    }
                }
                let n = got.len();
                got.sort_unstable();
                got.dedup();
                assert_eq!(got.len(), n, "frames came twice");
            }
            drop(ending);
            sending.join().unwrap();
        });
    });
}

fibula_netio::tests! {
    namespaces: [
        frames_of_all_sizes_arrive_whole_and_in_order,
        frames_are_dealt_to_exactly_one_worker_and_a_pair_of_hosts_to_always_the_same,
        a_vlan_tag_that_the_kernel_took_off_is_put_back,
        frames_above_the_mtu_are_refused_and_the_others_of_the_burst_go,
        a_local_sender_s_unfinished_checksum_is_completed,
        a_sender_with_its_offloads_turned_off_leaves_nothing_to_complete,
        a_frame_longer_than_a_slot_is_counted_and_dropped,
        a_super_frame_goes_from_port_to_port_whole,
        a_super_frame_is_cut_where_the_interface_does_not_take_it,
        a_super_frame_is_cut_behind_a_tag_that_the_kernel_does_not_know,
        segments_that_wait_are_joined,
        a_super_frame_is_judged_by_its_segments,
        offloads_that_were_turned_off_are_on_again_when_the_port_is_closed,
        checksums_that_are_left_are_left_to_the_next_receiver_or_completed_behind_a_tag,
        an_interface_that_goes_down_wakes_the_sleeper_and_works_again_when_it_is_up,
        an_interface_deleted_and_made_anew_is_found_again_by_every_worker,
        opening_what_is_not_there_or_not_up_is_a_typed_error,
        an_interface_that_is_not_there_yet_is_opened_when_it_comes,
        a_revived_interface_does_not_fail_once_more_because_it_was_down,
        no_frame_is_received_twice_while_workers_join,
    ],
    anywhere: []
}
