//! What interfaces lose, in a network namespace of its own.

mod common;

use common::{PATIENCE, frame, ip, send, veth};
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
        let long = vec![frame(1, 2, 1514, 7); 5];
        assert_eq!((send(&mut port, &long), statistics.of("east").unwrap().lost.rx_dropped), (5, 0));
        // The sender is told nothing of it.
        ip("link set east mtu 1400");
        assert_eq!(send(&mut port, &long), 5);
        let end = Instant::now() + PATIENCE;
        while statistics.of("east").unwrap().lost.rx_dropped < 5 {
            assert!(Instant::now() < end, "{:?}", statistics.of("east").unwrap());
        }
        assert_eq!(statistics.of("east").unwrap().mtu, 1400);
        // Made again, it counts from 0, and is counted on here.
        ip("link del east");
        let gone = statistics.of("east").unwrap();
        assert_eq!((gone.lost.rx_dropped, gone.mtu), (5, 0));
        veth("west", "east");
        assert_eq!(statistics.of("east").unwrap().lost.rx_dropped, 5);
        assert_eq!(Statistics::open().unwrap().of("east").unwrap().lost.rx_dropped, 0);
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
        a_port_whose_mtu_was_lowered_says_so_once_a_frame_was_refused,
    ],
    anywhere: []
}
