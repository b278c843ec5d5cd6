//! AF_XDP over veth in a network namespace of its own.

mod common;

use common::{PATIENCE, all_sizes_arrive, frame, ip, numbered_frames_arrive, receive, send, veth, veth_with};
use fibula_netio::backend::af_packet::{self, AfPacket};
use fibula_netio::backend::af_xdp::{AfXdp, Options};
use fibula_netio::takers::Takers;
use fibula_netio::testkit::{in_namespace, missing};
use fibula_netio::{Burst, Device, NetError, Packet, Pool};
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use std::time::Instant;

fn few() -> Options {
    Options { ring_frames: 256, ..Options::default() }
}

fn open(name: &str) -> Box<AfXdp> {
    Box::new(AfXdp::open(name, &few()).unwrap())
}

fn packet(name: &str) -> Box<AfPacket> {
    Box::new(AfPacket::open(name, &af_packet::Options::default()).unwrap())
}

fn frames_of_all_sizes_arrive_whole_and_in_order() {
    in_namespace(|| {
        veth("west", "east");
        all_sizes_arrive(open("west"), open("east"));
    });
    in_namespace(|| {
        veth("west", "east");
        all_sizes_arrive(packet("west"), open("east"));
    });
    in_namespace(|| {
        veth("west", "east");
        all_sizes_arrive(open("west"), packet("east"));
    });
}

fn frames_pass_for_longer_than_the_rings_are() {
    in_namespace(|| {
        veth("west", "east");
        let (mut a, mut b) = (open("west"), open("east"));
        assert!(a.mode().is_some(), "it says how frames come");
        numbered_frames_arrive(&mut *a, &mut *b, 20_000);
    });
}

fn a_veth_takes_redirected_frames_while_its_other_end_has_a_program() {
    in_namespace(|| {
        veth("west", "east");
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        let index = |name: &str| name_to_index(&socket, name).unwrap();
        let Some(mut takers) = Takers::open().unwrap() else {
            return missing("a kernel that says it, Linux 6.3 or later");
        };
        assert!(!takers.takes(index("west")).unwrap());
        let other_end = open("east");
        assert!(takers.takes(index("west")).unwrap() && !takers.takes(index("east")).unwrap());
        drop(other_end);
        // The last descriptor is closed a moment later.
        let began = Instant::now();
        while takers.takes(index("west")).unwrap() {
            assert!(began.elapsed() < PATIENCE, "nobody is at the other end");
        }
        let error = takers.takes(1 << 30).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{error}");
    });
}

fn frames_that_cannot_be_sent_are_refused_and_the_others_of_the_burst_go() {
    in_namespace(|| {
        veth("west", "east");
        let (mut a, b) = (open("west"), open("east"));
        assert_eq!(a.max_frame(), 1514);
        let frames = [frame(1, 2, 60, 1), frame(1, 2, 1600, 2), frame(1, 2, 60, 3), vec![0; 5], frame(1, 2, 60, 4)];
        assert_eq!(send(&mut *a, &frames), 3);
        assert_eq!(a.counters().snapshot().tx_refused, 2);
        let fills: Vec<_> = receive(b, 3).0.iter().map(|f| f[20]).collect();
        assert_eq!(fills, [1, 3, 4]);
    });
}

fn a_burst_into_full_rings_waits_and_is_sent_later() {
    in_namespace(|| {
        veth("west", "east");
        let (mut a, mut b) = (open("west"), open("east"));
        // Nobody receives: what the receiver has no chunk for is lost there, and what the sender has in its ring is not.
        let frames: Vec<_> = (0..4096).map(|i| frame(1, 2, 60, i as u8)).collect();
        let sent = send(&mut *a, &frames);
        let (mut pool, mut burst, mut got) = (Pool::new(64, 2048), Burst::new(), 0);
        while b.rx_burst(&mut pool, &mut burst).unwrap() > 0 {
            got += burst.len();
            pool.put_all(&mut burst);
        }
        assert!(sent >= got && (256..4096).contains(&got), "{sent} sent, {got} received");
        assert_eq!(send(&mut *a, &frames[..100]), 100);
        assert_eq!(receive(b, 100).0.len(), 100);
    });
}

fn every_worker_needs_a_queue() {
    in_namespace(|| {
        veth("west", "east");
        let error = AfXdp::open_group("east", &few(), 2).unwrap_err();
        assert!(matches!(error, NetError::BadOption { .. }), "{error}");
        assert!(error.to_string().contains("1 receive queues") && error.to_string().contains("workers = 1"), "{error}");
        assert!(!error.is_transient());
    });
    in_namespace(|| {
        veth_with("numrxqueues 2 numtxqueues 2", "west", "east");
        let mut workers = AfXdp::open_group("east", &few(), 2).unwrap();
        let mut peer = AfXdp::open_group("west", &few(), 2).unwrap();
        // A socket of queue i sends by queue i, which its peer receives by queue i.
        for (queue, peer) in peer.iter_mut().enumerate() {
            assert_eq!(send(peer, &[frame(1, 2, 60, queue as u8)]), 1);
        }
        let (mut pool, mut burst) = (Pool::new(64, 2048), Burst::new());
        let end = Instant::now() + PATIENCE;
        let mut got = [None, None];
        while got.contains(&None) && Instant::now() < end {
            for (worker, got) in workers.iter_mut().zip(&mut got) {
                worker.rx_burst(&mut pool, &mut burst).unwrap();
                *got = burst.first().map(|p| p.frame()[20]).or(*got);
                pool.put_all(&mut burst);
            }
        }
        assert_eq!(got, [Some(0), Some(1)]);
    });
}

fn what_stands_in_the_way_is_said() {
    in_namespace(|| {
        veth("west", "east");
        let first = open("east");
        let error = AfXdp::open("east", &few()).unwrap_err();
        assert!(error.to_string().contains("another XDP program"), "{error}");
        // The program goes with its owner.
        drop(first);
        drop(open("east"));
        ip("link set west mtu 9000");
        ip("link set east mtu 9000");
        let error = AfXdp::open("east", &few()).unwrap_err();
        assert!(error.to_string().contains("its MTU is 9000"), "{error}");
    });
    let missing = AfXdp::open("no-such-if", &few()).unwrap_err();
    assert!(matches!(missing, NetError::NoSuchInterface { .. } | NetError::NotPermitted { .. }), "{missing}");
    in_namespace(|| {
        ip("link add west type veth peer name east");
        assert!(matches!(AfXdp::open("west", &few()).unwrap_err(), NetError::Down { .. }));
    });
}

fn an_interface_that_goes_down_and_up_or_is_made_anew_works_again() {
    in_namespace(|| {
        veth("west", "east");
        let mut port = open("east");
        ip("link set east down");
        let (mut pool, mut burst) = (Pool::new(64, 2048), Burst::new());
        // Before it sleeps, the worker asks what to wait for; then the port says that it is down.
        assert!(matches!(port.readiness(), fibula_netio::Readiness::Ready));
        let error = port.rx_burst(&mut pool, &mut burst).unwrap_err();
        assert!(matches!(error, NetError::Down { .. }), "{error}");
        assert!(port.revive().unwrap_err().is_transient());
        ip("link set east up");
        port.revive().unwrap();
        let mut peer = packet("west");
        let (got, mut port) = {
            assert_eq!(send(&mut *peer, &[frame(1, 2, 60, 7)]), 1);
            receive(port, 1)
        };
        assert_eq!(got, [frame(1, 2, 60, 7)]);
        drop(peer);
        ip("link del east");
        let end = Instant::now() + PATIENCE;
        let error = loop {
            burst.push(Packet::from_frame(&frame(1, 2, 60, 7)));
            match port.tx_burst(&mut pool, &mut burst) {
                Err(error) => break error,
                Ok(_) => pool.put_all(&mut burst),
            }
            assert!(Instant::now() < end, "no error");
        };
        assert!(error.is_transient(), "{error}");
        assert!(port.revive().unwrap_err().is_transient());
        veth("west", "east");
        port.revive().unwrap();
        let mut peer = packet("west");
        assert_eq!(send(&mut *peer, &[frame(1, 2, 60, 9)]), 1);
        assert_eq!(receive(port, 1).0, [frame(1, 2, 60, 9)]);
    });
}

fn a_process_that_is_killed_leaves_no_program() {
    if let Ok(name) = std::env::var("FIBULA_TEST_HOLD") {
        let _held = open(&name);
        println!("held");
        loop {
            std::thread::park();
        }
    }
    in_namespace(|| {
        veth("west", "east");
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["a_process_that_is_killed_leaves_no_program", "--exact", "--nocapture"])
            .env("FIBULA_TEST_HOLD", "east")
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        assert!(lines.any(|line| line.unwrap().contains("held")));
        assert!(ip("link show east").contains("xdp"), "{}", ip("link show east"));
        child.kill().unwrap();
        child.wait().unwrap();
        let end = Instant::now() + PATIENCE;
        while ip("link show east").contains("xdp") {
            assert!(Instant::now() < end, "{}", ip("link show east"));
        }
    });
}

fn a_local_sender_s_unfinished_checksum_is_completed() {
    in_namespace(|| {
        veth("west", "east");
        let port = open("east");
        ip("addr add 10.9.0.1/24 dev west");
        ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev west");
        let socket = std::net::UdpSocket::bind("10.9.0.1:4000").unwrap();
        for size in [1, 100, 1400] {
            socket.send_to(&vec![0x5a; size], "10.9.0.2:4001").unwrap();
        }
        let (frames, port) = receive(port, 3);
        for frame in frames {
            let packet = etherparse::SlicedPacket::from_ethernet(&frame).unwrap();
            let (Some(etherparse::NetSlice::Ipv4(ip)), Some(etherparse::TransportSlice::Udp(udp))) =
                (packet.net, packet.transport)
            else {
                panic!("no datagram")
            };
            let expected = udp.to_header().calc_checksum_ipv4(&ip.header().to_header(), udp.payload()).unwrap();
            assert_eq!(udp.checksum(), expected);
        }
        assert_eq!(port.counters().snapshot().rx_checksums, 3, "veth leaves checksums to hardware by default");
    });
}

fibula_netio::tests! {
    namespaces: [
        a_local_sender_s_unfinished_checksum_is_completed,
        frames_of_all_sizes_arrive_whole_and_in_order,
        frames_pass_for_longer_than_the_rings_are,
        a_veth_takes_redirected_frames_while_its_other_end_has_a_program,
        frames_that_cannot_be_sent_are_refused_and_the_others_of_the_burst_go,
        a_burst_into_full_rings_waits_and_is_sent_later,
        every_worker_needs_a_queue,
        what_stands_in_the_way_is_said,
        an_interface_that_goes_down_and_up_or_is_made_anew_works_again,
        a_process_that_is_killed_leaves_no_program,
    ],
    anywhere: []
}
