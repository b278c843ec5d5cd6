//! Access lists at ports: which frames enter.

use crate::common::frames::{GATEWAY, SOURCE, arp, extended, nearly_a_frame, solicitation, tagged, udp4, udp6, v6};
use crate::common::*;
use dataplane::acl::AccessList;
use dataplane::assembly::Settings;
use dataplane::counters::DropReason;
use dataplane::gateway;
use dataplane::source::CheckSource;
use etherparse::PacketBuilder;
use fib::name::NameKind;
use fib::rules::{ListedRule, parse};
use lookup::hash::mix64;
use lookup::rules::Prefix;
use lookup::testkit;
use proptest::prelude::*;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;

/// The name that all frames here are for, at port 2.
const TO: u64 = 0x0808;

struct Listed {
    rig: Rig,
    list: Arc<AccessList>,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Listed {
    fn new(rules: &str) -> Self {
        Self::over(NameKind::Mac, rules)
    }

    fn over(kind: NameKind, rules: impl AsRef<[u8]>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list.acl");
        fs::write(&path, rules).unwrap();
        let list = AccessList::open(&path).unwrap();
        let mut rig = Rig::with_acl(kind, &Settings::default(), CheckSource::Off, list.clone());
        if kind == NameKind::Mac {
            rig.add(&mac(TO), 2);
        }
        Self { rig, list, path, _directory: directory }
    }

    /// Whether a frame from the host at port 1 arrives at that at port 2. If it does not, it must be the list's doing.
    #[track_caller]
    fn enters(&mut self, frame: &[u8]) -> bool {
        assert_eq!(frame[..6], mac_bytes(TO));
        let before = self.rig.counts();
        let out = self.rig.exchange(HOST_1, frame);
        let refused = self.rig.counts().dropped(DropReason::Acl) - before.dropped(DropReason::Acl);
        assert_eq!(out.len() as u64 + refused, 1, "{frame:02x?}: {out:?}");
        assert!(out.iter().all(|got| *got == (HOST_2, frame.to_vec())));
        refused == 0
    }

    fn write(&self, rules: &str) {
        fs::write(&self.path, rules).unwrap();
    }

    fn verdicts(&self) -> [u64; 2] {
        self.rig.monitor.status().ports[0].acl.as_ref().unwrap().1
    }
}

fn ipv4(source: [u8; 4], destination: [u8; 4], protocol: u8, ports: [u16; 2]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(SOURCE, GATEWAY).ipv4(source, destination, 64);
    let mut frame = vec![];
    match protocol {
        6 => builder.tcp(ports[0], ports[1], 1, 1000).write(&mut frame, b"x").unwrap(),
        17 => builder.udp(ports[0], ports[1]).write(&mut frame, b"x").unwrap(),
        _ => {
            builder.icmpv4_echo_request(ports[0], ports[1]).write(&mut frame, b"x").unwrap();
            frame[23] = protocol;
        }
    }
    frame
}

fn ipv6(source: [u8; 16], destination: [u8; 16], protocol: u8, ports: [u16; 2]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(SOURCE, GATEWAY).ipv6(source, destination, 64);
    let mut frame = vec![];
    match protocol {
        6 => builder.tcp(ports[0], ports[1], 1, 1000).write(&mut frame, b"x").unwrap(),
        17 => builder.udp(ports[0], ports[1]).write(&mut frame, b"x").unwrap(),
        _ => {
            builder.icmpv6_echo_request(ports[0], ports[1]).write(&mut frame, b"x").unwrap();
            frame[20] = protocol;
        }
    }
    frame
}

/// `frame` as the fragment of IPv4 at an offset in units of 8 bytes.
fn fragment4(mut frame: Vec<u8>, offset: u16) -> Vec<u8> {
    frame[20..22].copy_from_slice(&(0x2000 | offset).to_be_bytes());
    frame
}

#[test]
fn the_first_rule_that_matches_decides_and_the_rest_is_denied() {
    let mut list = Listed::new("deny tcp from 10.6.0.0/16 to any port 22-23\nallow tcp\npermit udp from fd00::/16\n");
    let to = [192, 0, 2, 1];
    for (frame, enters) in [
        (ipv4([10, 6, 0, 1], to, 6, [9, 22]), false),
        (ipv4([10, 6, 0, 1], to, 6, [22, 24]), true),
        (ipv4([10, 7, 0, 1], to, 6, [9, 22]), true),
        (ipv4([10, 7, 0, 1], to, 17, [9, 22]), false),
        (ipv6(v6(1), v6(2), 17, [9, 9]), true),
        (ipv6([0xfe; 16], v6(2), 17, [9, 9]), false),
        (ipv6([0xfe; 16], v6(2), 6, [9, 9]), true),
    ] {
        assert_eq!(list.enters(&frame), enters, "{frame:02x?}");
        // A tag changes nothing.
        assert_eq!(list.enters(&tagged(&frame, 0x8100)), enters);
        assert_eq!(list.enters(&tagged(&tagged(&frame, 0x8100), 0x88a8)), enters);
        // Whoever receives it may skip more tags than a switch does.
        let before = list.rig.counts().dropped(DropReason::VlanTags);
        let out = list.rig.exchange(HOST_1, &tagged(&tagged(&tagged(&frame, 0x8100), 0x8100), 0x8100));
        assert!(out.is_empty() && list.rig.counts().dropped(DropReason::VlanTags) == before + 1, "{out:?}");
    }
    assert_eq!(list.verdicts(), [12, 16]);
    // What comes through a trunk was judged elsewhere.
    let denied = ipv4([10, 6, 0, 1], to, 6, [9, 22]);
    assert_eq!(list.rig.exchange(TRUNK_8, &with_shim(&denied, 9)), [(HOST_2, denied)]);
}

#[test]
fn an_empty_list_lets_nothing_in_but_what_keeps_neighbours_known() {
    let mut list = Listed::new("# nobody\n");
    assert!(!list.enters(&udp4(b"x", 1)) && !list.enters(&udp6(b"x", 1)));
    assert!(!list.enters(&ethernet(GATEWAY, SOURCE, 0x88cc, &[0; 50])));
    let mut unicast_arp = arp(2, (1, [10, 0, 0, 1]), [10, 0, 0, 2]);
    unicast_arp[..6].copy_from_slice(&GATEWAY);
    assert!(list.enters(&unicast_arp) && list.enters(&tagged(&unicast_arp, 0x8100)));
    let mut probe = solicitation(1, v6(1).into(), v6(2).into());
    probe[..6].copy_from_slice(&GATEWAY);
    assert!(list.enters(&probe));
    // Not from a neighbour: it may have passed a router.
    probe[21] = 254;
    assert!(!list.enters(&probe));
    probe[21] = 255;
    // An echo request, and a redirect.
    for kind in [128, 137] {
        probe[54] = kind;
        assert!(!list.enters(&probe), "{kind}");
    }
    // Questions to all are answered or dropped, as without a list.
    list.rig.assert_dropped(HOST_1, &arp(1, (1, [10, 0, 0, 1]), [10, 0, 0, 2]), DropReason::ArpUnknown);
    list.rig.assert_dropped(HOST_1, &[2; 13], DropReason::Runt);
}

#[test]
fn a_fragment_without_ports_enters_only_if_no_rule_compares_them() {
    let first = fragment4(udp4(&[7; 64], 53), 0);
    let later = fragment4(udp4(&[7; 64], 53), 9);
    let later6 = extended(&udp6(&[7; 64], 53), 44, &[17, 0, 0, 0x49, 0, 0, 0, 1]);
    let first6 = extended(&udp6(&[7; 64], 53), 44, &[17, 0, 0, 1, 0, 0, 0, 1]);
    for ports in ["permit udp to any port 53\n", "permit udp\n"] {
        let mut list = Listed::new(ports);
        assert!(list.enters(&first) && list.enters(&first6), "{ports}");
        list.rig.assert_dropped(HOST_1, &later, DropReason::Fragment);
        list.rig.assert_dropped(HOST_1, &later6, DropReason::Fragment);
    }
    let mut list = Listed::new("deny from 10.0.0.9\npermit any\n");
    for frame in [&first, &later, &first6, &later6] {
        assert!(list.enters(frame));
    }
    let mut list = Listed::new("permit from 10.0.0.9\n");
    for frame in [&first, &later, &first6, &later6] {
        assert!(!list.enters(frame));
    }
    // Ports that the packet ends before, and an extension header behind which there could be any.
    let mut list = Listed::new("permit udp to any port 53\n");
    let mut cut = udp4(b"", 53);
    cut[16..18].copy_from_slice(&23u16.to_be_bytes());
    list.rig.assert_dropped(HOST_1, &cut, DropReason::Truncated);
    let many = (0..9).fold(udp6(b"x", 53), |frame, _| extended(&frame, 60, &[0, 0, 1, 4, 0, 0, 0, 0]));
    assert!(!list.enters(&many));
}

/// The same as [`AccessList`], rule by rule.
fn is_permitted(rules: &[ListedRule], [source, destination]: [IpAddr; 2], protocol: u8, ports: [u16; 2]) -> bool {
    let within = |address: IpAddr, prefix: lookup::rules::Prefix| match address {
        IpAddr::V4(ip) => prefix.is_empty() || (ip.to_bits() ^ prefix.v4().to_bits()) >> (32 - prefix.len()) == 0,
        IpAddr::V6(ip) => prefix.is_empty() || (ip.to_bits() ^ prefix.v6().to_bits()) >> (128 - prefix.len()) == 0,
    };
    let matches = |rule: &&ListedRule| {
        let pattern = &rule.rule;
        rule.is_v4.is_none_or(|is_v4| is_v4 == source.is_ipv4())
            && within(source, pattern.source)
            && within(destination, pattern.destination)
            && match pattern.protocol {
                Some(_) if rule.is_any_icmp => protocol == if source.is_ipv4() { 1 } else { 58 },
                wanted => wanted.is_none_or(|wanted| wanted == protocol),
            }
            && pattern.source_ports.contains(&ports[0])
            && pattern.destination_ports.contains(&ports[1])
    };
    rules.iter().find(matches).is_some_and(|rule| rule.action == "permit")
}

/// Numbers that follow from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = mix64(self.0.wrapping_add(1));
        self.0 % n
    }
}

fn random_rule(draw: &mut Draw) -> String {
    let is_v4 = draw.below(2) == 0;
    let mut rule = ["permit", "deny"][draw.below(2) as usize].to_owned();
    let protocol = draw.below(5);
    // `icmp` without addresses is that of both versions.
    let is_any_icmp = protocol == 4;
    let icmp = if is_v4 || is_any_icmp { " icmp" } else { " icmpv6" };
    rule += [" any", " tcp", " udp", icmp, icmp][protocol as usize];
    for side in [" from ", " to "] {
        rule += side;
        rule += &match (draw.below(3), is_v4) {
            _ if is_any_icmp => "any".to_owned(),
            (0, _) => "any".to_owned(),
            (_, true) => {
                let address = Ipv4Addr::new(10, 0, draw.below(2) as u8, draw.below(4) as u8);
                let len = 20 + draw.below(13) as u8;
                format!("{}/{len}", Prefix::new(address.into(), len).v4())
            }
            (_, false) => {
                let [a, b] = [draw.below(2) as u16, draw.below(4) as u16];
                let len = 100 + draw.below(29) as u8;
                format!("{}/{len}", Prefix::new(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, a, b).into(), len).v6())
            }
        };
        if draw.below(3) == 0 && protocol < 3 {
            let low = draw.below(8);
            rule += &format!(" port {low}-{}", low + draw.below(4));
        }
    }
    rule + "\n"
}

#[test]
fn bursts_are_judged_as_rule_by_rule() {
    let mut draw = Draw(testkit::seed());
    for _ in 0..40 {
        let n_rules = draw.below(60);
        let text: String = (0..n_rules).map(|_| random_rule(&mut draw)).collect();
        let rules = parse(&text).unwrap();
        let mut list = Listed::new(&text);
        let (mut expected, mut n) = (vec![], 0);
        for _ in 0..200 {
            let protocol = draw.below(3) as usize;
            let drawn = [draw.below(8) as u16, draw.below(12) as u16];
            let mut end = |is_v4: bool| {
                let [a, b] = [draw.below(2) as u8, draw.below(5) as u8];
                if is_v4 {
                    IpAddr::V4(Ipv4Addr::new(10, 0, a, b))
                } else {
                    let mut octets = v6(b);
                    octets[13] = a;
                    IpAddr::V6(Ipv6Addr::from(octets))
                }
            };
            let is_v4 = n % 3 != 0;
            let icmp = if is_v4 { 1 } else { 58 };
            let protocol = [6, 17, icmp][protocol];
            let ends = [end(is_v4), end(is_v4)];
            let frame = match ends {
                [IpAddr::V4(a), IpAddr::V4(b)] => ipv4(a.octets(), b.octets(), protocol, drawn),
                [IpAddr::V6(a), IpAddr::V6(b)] => ipv6(a.octets(), b.octets(), protocol, drawn),
                _ => unreachable!(),
            };
            let ports = if protocol == icmp { [0, 0] } else { drawn };
            if is_permitted(&rules, ends, protocol, ports) {
                expected.push((HOST_2, frame.clone()));
            }
            list.rig.send(HOST_1, &frame);
            n += 1;
        }
        assert_eq!(list.rig.run(), expected, "{text}");
        assert_eq!(list.verdicts(), [expected.len() as u64, n - expected.len() as u64]);
    }
}

#[test]
fn a_list_that_changes_is_used_and_a_wrong_one_leaves_the_one_before() {
    let mut list = Listed::new("permit udp\n");
    assert!(list.enters(&udp4(b"x", 1)));
    assert!(list.list.reload().unwrap().is_none(), "nothing has changed");
    list.write("deny udp to any port 1\npermit udp\n");
    assert!(list.list.reload().unwrap().is_none(), "it may be being written");
    assert!(list.list.reload().unwrap().is_some());
    assert!(!list.enters(&udp4(b"x", 1)) && list.enters(&udp4(b"x", 2)));
    list.write("deny udp\npermit udp to any port 77777\n");
    assert!(list.list.reload().unwrap().is_none());
    let error = list.list.reload().unwrap_err().to_string();
    assert!(error.contains("list.acl:2: `77777` is not a range of ports"), "{error}");
    // It is said once, and stays in the status.
    assert!(list.list.reload().unwrap().is_none());
    assert_eq!((list.list.status().rules, list.list.status().error), (2, Some(error)));
    assert!(!list.enters(&udp4(b"x", 1)) && list.enters(&udp4(b"x", 2)));
    fs::remove_file(&list.path).unwrap();
    assert!(list.list.reload().unwrap().is_none());
    assert!(list.list.reload().unwrap_err().to_string().contains("cannot read"));
    assert!(list.enters(&udp4(b"x", 2)));
    list.write("permit any\n");
    let taken = [list.list.reload().unwrap().is_some(), list.list.reload().unwrap().is_some()];
    assert_eq!((taken, list.list.status().error), ([false, true], None));
    assert!(list.enters(&udp4(b"x", 1)));
}

/// As editors, spreadsheets and archives leave it.
#[test]
fn a_list_is_the_same_however_it_was_saved() {
    let plain = "# web\ndeny udp from 10.0.0.0/8 to any port 1\npermit any\n";
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, plain.as_bytes()).unwrap();
    for bytes in [
        plain.as_bytes().to_vec(),
        format!("\u{feff}{}", plain.replace('\n', "\r\n")).into(),
        b"rule,,\r\"DENY UDP from 10.0.0.0 255.0.0.0 to any port 1\",,\r; all others\rpermit any ; and more,,".to_vec(),
        packed.finish().unwrap(),
    ] {
        let mut list = Listed::over(NameKind::Mac, &bytes);
        assert_eq!(list.list.status().rules, 2);
        assert!(!list.enters(&udp4(b"x", 1)) && list.enters(&udp4(b"x", 2)), "{}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn lists_that_cannot_be_used_say_what_to_write() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("web.acl");
    for (text, says) in [
        ("permit any\nforward tcp\n", "web.acl:2: `forward` is not an action of this list: write permit or deny"),
        ("permt tcp\n", "web.acl:1: `permt` is not an action of this list: write permit or deny"),
        ("# web\npermit\n", "web.acl:2: `permit` does not say for what: write `permit any`"),
        ("permit,tcp,10.0.0.0/8\n", "web.acl:1: `permit,tcp,10.0.0.0/8` has commas"),
        ("permit icmp from fd00::/8\n", "web.acl:1: `icmp` is of IPv4"),
        ("permit from 10.6.1.2/16\n", "web.acl:1: 10.6.1.2/16 has bits set"),
        ("permit tcpp\n", "web.acl:1: `tcpp` is not a protocol"),
    ] {
        fs::write(&path, text).unwrap();
        let error = AccessList::open(&path).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(AccessList::open(&path).unwrap_err().to_string().contains("cannot read"));
    let endless = AccessList::open("/dev/zero".as_ref());
    assert!(endless.is_err());
}

#[test]
fn frames_from_outside_are_judged_and_a_lists_drops_come_before_those_of_sources() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("list.acl");
    fs::write(&path, "permit tcp\n").unwrap();
    let list = AccessList::open(&path).unwrap();
    let outside =
        gateway::Outside { port: fib::action::PortId(OUTSIDE_3), addresses: vec![("192.0.2.1".parse().unwrap(), 24)] };
    let gateway = gateway::Settings {
        mac: mac_bytes(0xfe),
        port: fib::action::PortId(100),
        addresses: vec!["10.0.0.254".parse().unwrap()],
        outside: vec![outside],
        routes: vec![],
    };
    let settings = Settings { gateway: Some(gateway), ..Settings::default() };
    let mut rig = Rig::with_acl(NameKind::Mac, &settings, CheckSource::Mac, list);
    rig.assert_dropped(OUTSIDE_3, &udp4(b"x", 1), DropReason::Acl);
    rig.assert_dropped(OUTSIDE_3, &ipv4([1; 4], [2; 4], 6, [1, 2]), DropReason::NotForGateway);
    rig.assert_dropped(HOST_1, &udp4(b"x", 1), DropReason::Acl);
    rig.assert_dropped(HOST_1, &ipv4([1; 4], [2; 4], 6, [1, 2]), DropReason::SourceMac);
}

proptest! {
    /// Whatever comes, each frame is accounted for, and none that is not permitted leaves.
    #[test]
    fn damaged_frames_do_no_harm(frames in prop::collection::vec(nearly_a_frame(), 1..100)) {
        let mut list = Listed::new("permit udp to any port 2152\n");
        frames.iter().for_each(|frame| list.rig.send(HOST_1, frame));
        list.rig.run();
    }
}
