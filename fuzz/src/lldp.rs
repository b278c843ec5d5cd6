//! Frames of LLDP, one after another, as a port that listens reads them.

use crate::pieces::{pieces, put};
use dataplane::links::lldp::{Aggregation, ETHER_TYPE, GROUP, MOST_NEIGHBOURS, Own, Said, Station};
use fib::action::PortId;
use std::time::{Duration, Instant};

const HEADER: usize = 14;
/// Bytes of the longest text: 255, each of them escaped.
const LONGEST: usize = 8 * 255;

pub(crate) fn run(data: &[u8]) {
    let mut now = Instant::now();
    let mut station = Station::new(Some(Duration::from_secs(30)), now);
    for (seconds, fields) in pieces(data).take(100) {
        now += Duration::from_secs(seconds.into());
        station.judge(now);
        let frame = [&GROUP[..], &[2, 0, 0, 0, 0, 1], &ETHER_TYPE, fields].concat();
        let Ok(said) = Said::decode(&frame) else { continue };
        let texts = [&said.chassis.text, &said.port.text];
        let more = [&said.port_text, &said.name, &said.description].into_iter().flatten();
        for text in texts.into_iter().chain(more) {
            assert!(text.len() <= LONGEST && !text.contains(char::is_control), "{text:?}");
        }
        let (is_known, goes) =
            (station.neighbours().iter().any(|known| known.said.is_from_same(&said)), said.ttl_s == 0);
        assert_eq!(station.hear(said, now), is_known || !goes);
        assert!(station.neighbours().len() <= MOST_NEIGHBOURS);
        assert!(station.deadline().is_some(), "it speaks");
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let own = |switch: &str, address: [u8; 4]| {
        let (switch, device) = (switch.to_owned(), "eth1".to_owned());
        Own { switch, source: [2, 0, 0, 0, 0, 1], port: PortId(1), role: "host", device, address: Some(address.into()) }
    };
    let one = own("s1", [192, 0, 2, 1]);
    let member = one.encode(121, Some(Aggregation { is_used: true, port: PortId(1) }));
    // A chassis and a port of each kind, and fields of organisations.
    let foreign =
        b"\x02\x07\x04\x02\0\0\0\0\x07\x04\x07\x03\x02\0\0\0\0\x08\x06\x02\0\x78\xfe\x06\0\x80\xc2\x01\0\x07\0\0";
    let addressed = b"\x02\x06\x05\x01\x0a\0\0\x01\x04\x03\x07\x39\x39\x06\x02\0\x02\x0a\x04\x1b[2J\0\0";
    let mut seed = Vec::new();
    for fields in [
        &member[HEADER..],
        foreign,
        addressed,
        &one.farewell()[HEADER..],
        &own("s2", [10, 0, 0, 1]).encode(1, None)[HEADER..],
    ] {
        put(&mut seed, 1, fields);
    }
    vec![seed]
}
