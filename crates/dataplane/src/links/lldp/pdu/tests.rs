use super::super::is_lldp;
use super::*;
use lookup::testkit::{Rng, seed};

fn own(switch: &str, device: &str) -> Own {
    Own {
        switch: switch.to_owned(),
        source: [2, 1, 2, 3, 4, 5],
        port: PortId(9),
        role: "host",
        device: device.to_owned(),
        address: Some([192, 0, 2, 7].into()),
    }
}

/// The bytes are those of the standard.
#[test]
fn a_frame_has_these_bytes() {
    let mut bytes = vec![1, 0x80, 0xc2, 0, 0, 0x0e, 2, 1, 2, 3, 4, 5, 0x88, 0xcc];
    bytes.extend(b"\x02\x03\x07s1\x04\x05\x05eth1\x06\x02\x00\x79");
    bytes.extend(b"\x08\x12port 9 of s1, host\x0a\x02s1");
    let description = concat!("fibula ", env!("CARGO_PKG_VERSION"));
    bytes.extend([12, description.len() as u8]);
    bytes.extend(description.bytes());
    bytes.extend([14, 4, 0, 4, 0, 4, 16, 12, 5, 1, 192, 0, 2, 7, 1, 0, 0, 0, 0, 0]);
    bytes.extend([254, 9, 0, 0x80, 0xc2, 7, 3, 0, 0, 0, 9, 254, 9, 0, 0x12, 0x0f, 3, 3, 0, 0, 0, 9, 0, 0]);
    let frame = own("s1", "eth1").encode(121, Some(Aggregation { is_used: true, port: PortId(9) }));
    assert_eq!(frame, bytes);
    let mut farewell = bytes[..30].to_vec();
    farewell[28..].fill(0);
    farewell.resize(60, 0);
    assert_eq!(own("s1", "eth1").farewell(), farewell);
}

#[test]
fn what_a_switch_says_is_read_whatever_the_names() {
    for (switch, device) in
        [("s1", "eth1"), (&"x".repeat(600) as &str, "0000:03:00.0"), ("\u{e4}".repeat(300).as_str(), "e")]
    {
        let own = own(switch, device);
        let frame = own.encode(121, None);
        assert!(is_lldp(&frame) && frame.len() >= SHORTEST && frame.len() < 1500);
        let said = Said::decode(&frame).unwrap();
        assert_eq!((said.source, said.ttl_s, said.addresses.clone()), (own.source, 121, vec![own.address.unwrap()]));
        assert_eq!((said.chassis.kind, said.port.kind, &said.port.text[..]), ("local", "interface", device));
        assert!(switch.starts_with(&said.chassis.text) && said.chassis.text.len() >= 254.min(switch.len()));
        assert!(
            switch.starts_with(said.name.as_deref().unwrap())
                && said.port_text.as_deref().unwrap().starts_with("port 9 of ")
        );
        assert_eq!(said.capabilities, [Capability { name: "bridge", is_on: true }]);
        let farewell = Said::decode(&own.farewell()).unwrap();
        assert!(farewell.ttl_s == 0 && farewell.is_from_same(&said) && farewell.name.is_none());
    }
    assert!(!is_lldp(&[]) && !is_lldp(&[0; 60]));
}

fn frame(fields: &[(u16, &[u8])]) -> Vec<u8> {
    let mut frame = [&GROUP[..], &[2, 0, 0, 0, 0, 7], &ETHER_TYPE].concat();
    fields.iter().for_each(|(kind, value)| put(&mut frame, *kind, value));
    frame
}

const FIRST: [(u16, &[u8]); 3] = [(CHASSIS, &[4, 2, 0, 0, 0, 0, 7]), (PORT, b"\x05eth0"), (TTL, &[0, 120])];

#[test]
fn only_what_is_as_the_standard_has_it_is_read() {
    let said = Said::decode(&frame(&FIRST)).unwrap();
    assert_eq!((said.chassis.kind, &said.chassis.text[..]), ("mac", "02:00:00:00:00:07"));
    let with = |more: &[(u16, &[u8])]| Said::decode(&frame(&[&FIRST[..], more].concat()));
    // An unknown field, an end, and bytes behind it.
    for more in [(9, &[][..]), (126, &[1; 511]), (ORGANISATION, &[0, 0x80, 0xc2, 1]), (END, &[])] {
        assert!(with(&[more]).is_ok(), "{more:?}");
    }
    assert!(with(&[(END, &[]), (CHASSIS, &[])]).is_ok());
    assert_eq!(
        with(&[(ADDRESS, &[5, 1, 10, 0, 0, 1, 2, 0, 0, 0, 9, 0])]).unwrap().addresses,
        [IpAddr::from([10, 0, 0, 1])]
    );
    let many = with(&[(ADDRESS, &[5, 1, 10, 0, 0, 1, 2, 0, 0, 0, 9, 0][..]); 9]).unwrap();
    assert_eq!(many.addresses.len(), MOST_ADDRESSES);
    assert!(with(&[(ADDRESS, &[7, 6, 1, 2, 3, 4, 5, 6, 2, 0, 0, 0, 9, 0])]).unwrap().addresses.is_empty(), "a MAC");
    for (wrong, more) in [
        (0, (CHASSIS, &[7, 1][..])),
        (0, (PORT, &[7, 1])),
        (0, (TTL, &[0, 1])),
        (1, (NAME, b"s1")),
        (1, (CAPABILITIES, &[0, 4, 0, 4])),
        (2, (CAPABILITIES, &[0, 4, 0])),
        (2, (DESCRIPTION, &[b'x'; 256])),
        (2, (ORGANISATION, &[0, 0x80, 0xc2])),
        (2, (END, &[1])),
        (2, (ADDRESS, &[5, 1, 10, 0, 0, 1, 2, 0, 0, 0, 9])),
        (2, (ADDRESS, &[5, 1, 10, 0, 0, 1, 2, 0, 0, 0, 9, 1])),
        (2, (ADDRESS, &[255, 1, 10, 0, 0, 1, 2, 0, 0, 0, 9, 0])),
        (2, (ADDRESS, &[])),
    ] {
        // A repeated field, or one out of place.
        let fields = if wrong == 1 { vec![more, more] } else { vec![more] };
        let got = with(&fields);
        let is_right = if wrong == 2 {
            matches!(got, Err(Malformed::Value { kind, .. }) if kind == more.0)
        } else {
            matches!(got, Err(Malformed::Order { kind, .. }) if kind == more.0)
        };
        assert!(is_right, "{more:?}: {got:?}");
    }
    let [chassis, port, ttl] = FIRST;
    for fields in
        [&[port, chassis, ttl][..], &[chassis, ttl, port], &[chassis, port, (NAME, b"s1"), ttl], &[chassis, port]]
    {
        assert!(Said::decode(&frame(fields)).is_err(), "{fields:?}");
    }
    for wrong in [&[4, 2, 0, 0, 0, 0][..], &[0, 1], &[8, 1], &[7], &[], &[7; 257]] {
        assert!(matches!(
            Said::decode(&frame(&[(CHASSIS, wrong), port, ttl])),
            Err(Malformed::Value { kind: CHASSIS, .. })
        ));
    }
    assert!(Said::decode(&frame(&[chassis, port, (TTL, &[1])])).is_err());
    for source in [[1, 0, 0, 0, 0, 1], [0; 6], [0xff; 6]] {
        let mut from = frame(&FIRST);
        from[6..12].copy_from_slice(&source);
        assert_eq!(Said::decode(&from), Err(Malformed::Sender));
    }
}

#[test]
fn a_frame_that_is_cut_is_refused_or_ends_between_two_fields() {
    let whole = own("s1", "eth1").encode(121, None);
    let mut ends = vec![30];
    while let Some(head) =
        whole.get(ends[ends.len() - 1]..).and_then(<[u8]>::first_chunk).filter(|head| **head != [0, 0])
    {
        ends.push(ends[ends.len() - 1] + 2 + usize::from(u16::from_be_bytes(*head) & 0x1ff));
    }
    assert_eq!(ends.len(), 6);
    for end in 0..whole.len() {
        let is_whole = ends.contains(&end) || end >= ends[5] + 2;
        assert_eq!(Said::decode(&whole[..end]).is_ok(), is_whole, "{end} bytes");
    }
}

#[test]
fn what_strangers_write_is_escaped() {
    let name = "\u{1b}[2J\u{202e}evil\n\u{7}\u{200b}\u{e4} \"it's\"".as_bytes();
    let said = Said::decode(&frame(&[&FIRST[..], &[(NAME, name), (DESCRIPTION, b"a\xff\0\0")]].concat())).unwrap();
    assert_eq!(said.name.as_deref(), Some("\\u{1b}[2J\\u{202e}evil\\n\\u{7}\\u{200b}\u{e4} \"it's\""));
    assert_eq!(said.description.as_deref(), Some("a\u{fffd}"));
    let chassis = Said::decode(&frame(&[(CHASSIS, b"\x07\x1b]0;x\x07"), FIRST[1], FIRST[2]])).unwrap().chassis;
    assert_eq!(chassis.text, "\\u{1b}]0;x\\u{7}");
}

/// The longest text of 255 bytes: each of them escaped.
const LONGEST: usize = 8 * MAX_TEXT;

#[test]
fn whatever_comes_is_read_or_refused_and_what_is_kept_is_bounded() {
    let mut rng = Rng::new(seed());
    let mut counts = [0; 2];
    for _ in 0..20_000 {
        let mut frame = own("s1", "eth1").encode(121, Some(Aggregation { is_used: true, port: PortId(1) }));
        for _ in 0..rng.below(4) {
            match rng.below(3) {
                0 => frame.truncate(rng.below(frame.len() as u64 + 1) as usize),
                1 => frame.extend((0..rng.below(600)).map(|_| 0).collect::<Vec<u8>>()),
                _ => {}
            }
            if frame.len() > HEADER {
                let at = HEADER + rng.below((frame.len() - HEADER) as u64) as usize;
                frame[at] = rng.below(256) as u8;
            }
        }
        let said = Said::decode(&frame);
        counts[usize::from(said.is_ok())] += 1;
        let Ok(said) = said else { continue };
        let Said { chassis, port, port_text, name, description, addresses, .. } = said;
        for text in [Some(chassis.text), Some(port.text), port_text, name, description].into_iter().flatten() {
            assert!(text.len() <= LONGEST && !text.contains(char::is_control), "{text:?}");
        }
        assert!(addresses.len() <= MOST_ADDRESSES);
    }
    assert!(counts.iter().all(|n| *n > 1000), "{counts:?}");
}
