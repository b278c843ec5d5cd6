//! Every kind of name, read from frames as etherparse builds them: the name is what `fib` writes for it, on both sides
//! of a shim, and every frame without one is dropped for the right reason.

use crate::common::frames::*;
use crate::common::*;
use dataplane::assembly::{BuildError, Settings, build};
use dataplane::counters::DropReason;
use dataplane::parse::{FieldError, NameField, Names, envelope};
use dataplane::table::FibTable;
use etherparse::PacketBuilder;
use fib::name::{Name, NameKind};
use proptest::prelude::*;

/// The frame is forwarded by this name: from a host, and behind a shim.
#[track_caller]
fn is_named(kind: NameKind, name: &str, frame: &[u8]) {
    let mut rig = Rig::new(kind);
    rig.add(&Name::parse(kind, name).unwrap(), 2);
    assert_eq!(rig.exchange(HOST_1, frame), [(HOST_2, frame.to_vec())], "{:?}", rig.counts());
    assert_eq!(rig.exchange(TRUNK_8, &with_shim(frame, 9)), [(HOST_2, frame.to_vec())]);
}

#[track_caller]
fn is_dropped(kind: NameKind, frame: &[u8], reason: DropReason) {
    let mut rig = Rig::new(kind);
    rig.assert_dropped(HOST_1, frame, reason);
    rig.assert_dropped(TRUNK_8, &with_shim(frame, 9), reason);
}

#[test]
fn mac_names_are_destinations_whatever_is_inside() {
    for frame in [udp4(b"x", 1), udp6(b"x", 1), tagged(&udp4(b"x", 1), 0x8100), udp4(b"", 1)[..14].to_vec()] {
        is_named(NameKind::Mac, "02:00:00:00:08:08", &frame);
    }
}

#[test]
fn ip_names_are_destinations_also_behind_two_vlan_tags() {
    for (kind, name, frame) in
        [(NameKind::Ipv4, "10.0.0.2", udp4(b"hello", 9)), (NameKind::Ipv6, "fd00::2", udp6(b"hello", 9))]
    {
        is_named(kind, name, &frame);
        is_named(kind, name, &tagged(&frame, 0x8100));
        is_named(kind, name, &tagged(&tagged(&frame, 0x8100), 0x88a8));
        is_dropped(kind, &tagged(&tagged(&tagged(&frame, 0x8100), 0x8100), 0x8100), DropReason::VlanTags);
    }
}

#[test]
fn the_other_ip_version_and_other_protocols_have_no_ip_name() {
    is_dropped(NameKind::Ipv4, &udp6(b"x", 1), DropReason::NoName);
    is_dropped(NameKind::Ipv6, &udp4(b"x", 1), DropReason::NoName);
    is_dropped(NameKind::Ipv4, &ethernet(GATEWAY, SOURCE, 0x0806, &[0; 28]), DropReason::NoName);
    let mut lying = udp4(b"x", 1);
    lying[14] = 0x65; // an IPv4 EtherType, version 6
    is_dropped(NameKind::Ipv4, &lying, DropReason::NoName);
    lying[14] = 0x44; // a header of 16 bytes
    is_dropped(NameKind::Ipv4, &lying, DropReason::NoName);
}

#[test]
fn packets_cut_anywhere_are_dropped_as_truncated() {
    let whole4 = udp4(b"hello", 9);
    let whole6 = udp6(b"hello", 9);
    for len in 14..whole4.len() {
        is_dropped(NameKind::Ipv4, &whole4[..len], DropReason::Truncated);
        is_dropped(NameKind::FiveTuple, &whole4[..len], DropReason::Truncated);
    }
    for len in (14..whole6.len()).step_by(5) {
        is_dropped(NameKind::Ipv6, &whole6[..len], DropReason::Truncated);
    }
}

#[test]
fn five_tuples_have_the_ports_of_the_protocols_that_have_them() {
    let kind = NameKind::FiveTuple;
    is_named(kind, "10.0.0.1:4000->10.0.0.2:9/udp", &udp4(b"hello", 9));
    is_named(kind, "[fd00::1]:4000->[fd00::2]:9/udp", &udp6(b"hello", 9));
    is_named(kind, "10.0.0.1:4000->10.0.0.2:9/udp", &tagged(&udp4(b"hello", 9), 0x8100));
    let mut tcp = vec![];
    let builder = PacketBuilder::ethernet2(SOURCE, GATEWAY).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
    builder.tcp(5, 6, 7, 8).write(&mut tcp, b"").unwrap();
    is_named(kind, "10.0.0.1:5->10.0.0.2:6/tcp", &tcp);
    let mut ping = vec![];
    let builder = PacketBuilder::ethernet2(SOURCE, GATEWAY).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
    builder.icmpv4_echo_request(1, 2).write(&mut ping, b"ping").unwrap();
    is_named(kind, "10.0.0.1:0->10.0.0.2:0/icmp", &ping);
}

#[test]
fn ip_options_and_extension_headers_are_walked() {
    let kind = NameKind::FiveTuple;
    let plain = udp4(b"hello", 9);
    let mut options = [&plain[..34], &[1, 1, 1, 0], &plain[34..]].concat();
    options[14] = 0x46;
    options[17] += 4;
    is_named(kind, "10.0.0.1:4000->10.0.0.2:9/udp", &options);

    let name = "[fd00::1]:4000->[fd00::2]:9/udp";
    let frame = udp6(b"hello", 9);
    let pad = [0u8, 0, 1, 4, 0, 0, 0, 0];
    is_named(kind, name, &extended(&extended(&frame, 60, &pad), 0, &pad));
    is_named(kind, name, &extended(&frame, 51, &[0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]));
    is_named(kind, name, &extended(&frame, 44, &[0, 0, 0, 1, 0, 0, 0, 1])); // a first fragment
    let mut many = frame.clone();
    (0..9).for_each(|_| many = extended(&many, 60, &pad));
    // More than are walked: the ninth is taken for the protocol, which has no ports.
    is_named(kind, "[fd00::1]:0->[fd00::2]:0/60", &many);
    is_dropped(kind, &extended(&frame, 60, &[0, 200, 1, 4, 0, 0, 0, 0]), DropReason::Truncated);
}

#[test]
fn later_fragments_have_no_ports_and_no_five_tuple() {
    let mut fragment = udp4(b"hello", 9);
    fragment[20..22].copy_from_slice(&[0x20, 0x10]);
    is_dropped(NameKind::FiveTuple, &fragment, DropReason::Fragment);
    is_dropped(NameKind::Teid, &fragment, DropReason::Fragment);
    is_named(NameKind::Ipv4, "10.0.0.2", &fragment);
    // Without ports there is nothing that a later fragment lacks.
    let mut ping = udp4(b"hello", 9);
    ping[20..22].copy_from_slice(&[0x00, 0x10]);
    ping[23] = 1;
    is_named(NameKind::FiveTuple, "10.0.0.1:0->10.0.0.2:0/icmp", &ping);
    is_dropped(
        NameKind::FiveTuple,
        &extended(&extended(&udp6(b"x", 9), 60, &[17, 0, 1, 4, 0, 0, 0, 0]), 44, &[0, 0, 0, 8, 0, 0, 0, 1]),
        DropReason::Fragment,
    );
    let later = extended(&udp6(b"hello", 9), 44, &[0, 0, 0, 8, 0, 0, 0, 1]);
    is_dropped(NameKind::FiveTuple, &later, DropReason::Fragment);
    is_named(NameKind::Ipv6, "fd00::2", &later);
}

#[test]
fn tunnel_ids_are_read_from_gtp_u_and_nowhere_else() {
    let kind = NameKind::Teid;
    is_named(kind, "0xdeadbeef", &udp4(&gtp(0xdead_beef), 2152));
    is_named(kind, "7", &udp6(&gtp(7), 2152));
    is_dropped(kind, &udp4(&gtp(7), 2153), DropReason::NoName);
    is_dropped(kind, &udp4(&gtp(7)[..7], 2152), DropReason::Truncated);
    let mut version_2 = gtp(7);
    version_2[0] = 0x48;
    is_dropped(kind, &udp4(&version_2, 2152), DropReason::NoName);
}

#[test]
fn fixed_fields_are_read_on_either_side_of_the_shim_and_across_it() {
    let frame: Vec<u8> = (0..100).map(|i| i * 2).collect();
    for (offset, width) in [(0usize, 4usize), (0, 12), (4, 8), (8, 8), (6, 60), (11, 2), (12, 2), (14, 45), (36, 64)] {
        let kind = NameKind::Fixed(width as u8);
        let mut rig = Rig::with_settings(kind, &Settings { fixed_offset: Some(offset), ..Settings::default() });
        let name = Name::from_bytes(kind, &frame[offset..offset + width]).unwrap();
        rig.add(&name, 2);
        assert_eq!(rig.exchange(HOST_1, &frame), [(HOST_2, frame.clone())], "{offset}+{width}");
        assert_eq!(rig.exchange(TRUNK_8, &with_shim(&frame, 9)), [(HOST_2, frame.clone())], "{offset}+{width}");
        if offset + width > 14 {
            rig.assert_dropped(HOST_1, &frame[..(offset + width - 1)], DropReason::Truncated);
        }
    }
}

#[test]
fn text_names_are_refused_when_a_switch_is_set_up() {
    let error = NameField::new(NameKind::Text, None).unwrap_err().to_string();
    assert!(error.contains("do not carry text names"), "{error}");
    let mut rig = Rig::new(NameKind::Text);
    rig.assert_dropped(HOST_1, &to_mac(1), DropReason::NoField);
    assert!(matches!(rig.writer.field_error(), Some(FieldError::NotInFrames { .. })));
}

#[test]
fn a_fixed_field_without_a_place_drops_everything_and_says_what_to_configure() {
    let mut rig = Rig::new(NameKind::Fixed(8));
    rig.assert_dropped(HOST_1, &to_mac(1), DropReason::NoField);
    let error = rig.writer.field_error().unwrap().to_string();
    assert!(error.contains("fixed:8") && error.contains("fixed_offset"), "{error}");
    // And a place without a field is said, but harms nobody.
    let mut rig = Rig::with_settings(NameKind::Mac, &Settings { fixed_offset: Some(34), ..Settings::default() });
    rig.add(&mac(5), 2);
    assert_eq!(rig.exchange(HOST_1, &to_mac(5)).len(), 1);
    let error = rig.writer.field_error().unwrap().to_string();
    assert!(error.contains("fixed_offset = 34") && error.contains("mac"), "{error}");
    let far = Settings { fixed_offset: Some(1451), ..Settings::default() };
    assert!(matches!(build::<FibTable>(&far, vec![]), Err(BuildError::FixedOffset { got: 1451 })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_make_the_parser_panic(
        frame in prop_oneof![nearly_a_frame(), prop::collection::vec(any::<u8>(), 0..200)],
        kind in any_kind(),
        offset in 0..80usize,
        from_trunk: bool,
    ) {
        let frame = if from_trunk && frame.len() > 12 { with_shim(&frame, 9) } else { frame };
        let mut names = Names::default();
        if let Ok(type_at) = envelope(&frame, from_trunk) {
            let field = NameField::new(kind, Some(offset)).unwrap();
            let named = field.extract(&frame, type_at, &mut names).is_ok();
            prop_assert_eq!(names.len(), usize::from(named));
        }
    }

    #[test]
    fn a_name_in_a_frame_has_the_bytes_of_the_name_in_the_rib(
        source: [u8; 4], destination: [u8; 4], ports: (u16, u16), payload in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut frame = vec![];
        PacketBuilder::ethernet2(SOURCE, GATEWAY)
            .ipv4(source, destination, 64)
            .udp(ports.0, ports.1)
            .write(&mut frame, &payload)
            .unwrap();
        let text = format!(
            "{}:{}->{}:{}/udp",
            std::net::Ipv4Addr::from(source), ports.0, std::net::Ipv4Addr::from(destination), ports.1
        );
        let name = Name::parse(NameKind::FiveTuple, &text).unwrap();
        let mut names = Names::default();
        NameField::new(NameKind::FiveTuple, None).unwrap().extract(&frame, 12, &mut names).unwrap();
        prop_assert_eq!(&names.padded(0)[..names.name_len(0)], name.as_bytes());
    }
}
