//! What interfaces lose, in a network namespace of its own.

mod common;

use common::{PATIENCE, frame, ip, receive, send, veth};
use fibula_netio::Device;
use fibula_netio::backend::af_packet::{AfPacket, Options};
use fibula_netio::statistics::Statistics;
use fibula_netio::testkit::in_namespace;
use std::time::Instant;

fn what_the_kernel_discards_at_a_smaller_mtu_is_counted_from_when_it_was_first_asked() {
    in_namespace(|| {
        veth("west", "east");
        let mut statistics = Statistics::open().unwrap();
        assert_eq!(statistics.of("east").unwrap().mtu, 1500);
        let mut port = AfPacket::open("west", &Options::default()).unwrap();
        // Without anybody who takes it, a frame of such a protocol is dropped in any case.
        let taker = AfPacket::open("east", &Options::default()).unwrap();
        let long = vec![frame(1, 2, 1514, 7); 5];
        assert_eq!((send(&mut port, &long), statistics.of("east").unwrap().lost.rx_dropped), (5, 0));
        // The sender may be told that a queue is full, or nothing at all.
        ip("link set east mtu 1400");
        long.chunks(1).for_each(|one| _ = send(&mut port, one));
        let end = Instant::now() + PATIENCE;
        while statistics.of("east").unwrap().lost.rx_dropped < 5 {
            assert!(Instant::now() < end, "{:?}", statistics.of("east").unwrap());
        }
        assert_eq!(statistics.of("east").unwrap().mtu, 1400);
        drop(taker);
        // Made again, it counts from 0, and is counted on here.
        ip("link del east");
        let gone = statistics.of("east").unwrap();
        assert_eq!((gone.lost.rx_dropped, gone.mtu), (5, 0));
        veth("west", "east");
        assert_eq!(statistics.of("east").unwrap().lost.rx_dropped, 5);
        assert_eq!(Statistics::open().unwrap().of("east").unwrap().lost.rx_dropped, 0);
    });
}

fn a_tagged_frame_that_the_kernel_has_no_use_for_is_not_lost_though_it_says_so() {
    in_namespace(|| {
        veth("west", "east");
        let mut statistics = Statistics::open().unwrap();
        statistics.of("east").unwrap();
        let mut west = AfPacket::open("west", &Options::default()).unwrap();
        let east = Box::new(AfPacket::open("east", &Options::default()).unwrap());
        let tagged = |inner: [u8; 2]| {
            let mut tagged = frame(1, 2, 64, 9);
            tagged[12..18].copy_from_slice(&[0x81, 0, 0, 7, inner[0], inner[1]]);
            tagged
        };
        let frames = vec![tagged([0x88, 0xb6]), tagged([0x81, 0]), tagged([0x08, 0]), frame(1, 2, 60, 1)];
        assert_eq!(send(&mut west, &frames), 4);
        let (got, east) = receive(east, 4);
        let end = Instant::now() + PATIENCE;
        // The kernel counts once the sockets have it.
        while statistics.of("east").unwrap().lost.rx_dropped < east.counters().snapshot().rx_twice {
            assert!(Instant::now() < end);
        }
        let lost = statistics.of("east").unwrap().lost.rx_dropped;
        assert_eq!((got, lost, east.counters().snapshot().rx_twice), (frames, 2, 2));
    });
}

fn a_port_whose_mtu_was_lowered_says_so_once_a_frame_was_refused() {
    in_namespace(|| {
        veth("west", "east");
        let mut port = AfPacket::open("west", &Options::default()).unwrap();
        ip("link set west mtu 1400");
        assert_eq!(send(&mut port, &[frame(1, 2, 1514, 7), frame(1, 2, 1414, 7)]), 1);
        assert_eq!((port.counters().snapshot().tx_refused, port.max_frame()), (1, 1414));
    });
}

fibula_netio::tests! {
    namespaces: [
        what_the_kernel_discards_at_a_smaller_mtu_is_counted_from_when_it_was_first_asked,
        a_tagged_frame_that_the_kernel_has_no_use_for_is_not_lost_though_it_says_so,
        a_port_whose_mtu_was_lowered_says_so_once_a_frame_was_refused,
    ],
    anywhere: []
}
