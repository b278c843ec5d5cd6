//! Hosts' reports are read correctly or not at all, and what is kept of them is bounded.

use super::query::ROBUSTNESS;
use super::report::{Malformed, Message, read};
use super::*;
use crate::shim;
use netio::checksum::{fold, sum};
use proptest::prelude::*;
use std::net::Ipv6Addr;
use std::time::Duration;

const HOST: Mac = [2, 0, 0, 0, 0, 1];
const OTHER: Mac = [2, 0, 0, 0, 0, 2];

fn group(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn with_checksum(mut bytes: Vec<u8>, at: usize, more: u64) -> Vec<u8> {
    let checksum = !fold(sum(&bytes) + more);
    bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// A frame with a message of IGMP, whose checksum is put in.
fn igmp(message: &[u8]) -> Vec<u8> {
    let len = (24 + message.len()) as u16;
    let mut header = vec![0x46, 0xc0, 0, 0, 0, 0, 0x40, 0, 1, 2, 0, 0, 10, 0, 0, 1, 224, 0, 0, 22, 0x94, 4, 0, 0];
    header[2..4].copy_from_slice(&len.to_be_bytes());
    let mut frame = [&[1, 0, 0x5e, 0, 0, 22][..], &HOST, &[8, 0]].concat();
    frame.extend(with_checksum(header, 10, 0));
    frame.extend(with_checksum(message.to_vec(), 2, 0));
    frame.resize(frame.len().max(60), 0);
    frame
}

/// A frame with a message of MLD behind these options, from a link-local address.
fn mld_with(options: &[u8], message: &[u8]) -> Vec<u8> {
    let source: Ipv6Addr = "fe80::1".parse().unwrap();
    let addresses = [source.octets(), "ff02::16".parse::<Ipv6Addr>().unwrap().octets()].concat();
    let more = sum(&addresses) + message.len() as u64 + 58;
    let mut frame = [&[0x33, 0x33, 0, 0, 0, 22][..], &HOST, &[0x86, 0xdd, 0x60, 0, 0, 0, 0]].concat();
    let next = if options.is_empty() { 58 } else { 0 };
    frame.extend([(options.len() + message.len()) as u8, next, 1]);
    frame.extend(addresses);
    frame.extend(options);
    frame.extend(with_checksum(message.to_vec(), 2, more));
    frame
}

fn mld(message: &[u8]) -> Vec<u8> {
    mld_with(&[58, 0, 5, 2, 0, 0, 1, 0], message)
}

/// A record of IGMPv3 or MLDv2, with auxiliary data.
fn record(kind: u8, group: IpAddr, n_sources: u16) -> Vec<u8> {
    let (group, source) = match group {
        IpAddr::V4(group) => (group.octets().to_vec(), vec![10; 4]),
        IpAddr::V6(group) => (group.octets().to_vec(), vec![0xfd; 16]),
    };
    let head = [&[kind, 1][..], &n_sources.to_be_bytes(), &group].concat();
    [head, source.repeat(n_sources.into()), vec![9; 4]].concat()
}

fn records(kind: u8, records: &[Vec<u8>]) -> Vec<u8> {
    [vec![kind, 0, 0, 0, 0, 0, 0, records.len() as u8], records.concat()].concat()
}

fn words(frame: &[u8]) -> Vec<(IpAddr, Says)> {
    let Some(Ok(Message::Report(report))) = read(frame, shim::AT) else { panic!("a report: {frame:02x?}") };
    report.words().collect()
}

#[test]
fn reports_of_all_versions_say_which_groups_a_host_wants() {
    let (v4, v6) = (group("239.1.2.3"), group("ff15::7"));
    let IpAddr::V6(octets) = v6 else { panic!() };
    for (kind, says) in [(0x12, Says::Wants), (0x16, Says::Wants), (0x17, Says::Leaves)] {
        assert_eq!(words(&igmp(&[kind, 0, 0, 0, 239, 1, 2, 3])), [(v4, says)]);
    }
    for (kind, says) in [(131, Says::Wants), (132, Says::Leaves)] {
        let message = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &octets.octets()].concat();
        assert_eq!(words(&mld(&message)), [(v6, says)]);
    }
    let expected = [
        (1, 0, Some(Says::Leaves)),
        (1, 2, Some(Says::Wants)),
        (2, 0, Some(Says::Wants)),
        (2, 3, Some(Says::Wants)),
        (3, 0, Some(Says::Leaves)),
        (3, 1, Some(Says::Wants)),
        (4, 0, Some(Says::Wants)),
        (4, 1, Some(Says::Wants)),
        (5, 0, None),
        (5, 1, Some(Says::Wants)),
        (6, 0, None),
        (6, 1, Some(Says::MayLeave)),
        (7, 1, None),
        (0, 0, None),
    ];
    for (group, kind, frame) in [(v4, 0x22, igmp as fn(&[u8]) -> Vec<u8>), (v6, 143, mld)] {
        let all: Vec<Vec<u8>> = expected.iter().map(|(kind, n, _)| record(*kind, group, *n)).collect();
        let says: Vec<_> = expected.iter().filter_map(|(.., says)| Some((group, (*says)?))).collect();
        assert_eq!(words(&frame(&records(kind, &all[..2]))), says[..2]);
        // MLD's length is a byte in these frames.
        for ((_, _, says), one) in expected.iter().zip(&all) {
            let said = words(&frame(&records(kind, std::slice::from_ref(one))));
            assert_eq!(said, says.map(|says| (group, says)).into_iter().collect::<Vec<_>>());
        }
        assert!(words(&frame(&records(kind, &[]))).is_empty());
    }
    let tagged = |frame: Vec<u8>| [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat();
    let one = igmp(&[0x16, 0, 0, 0, 239, 1, 2, 3]);
    assert!(read(&one, shim::AT).is_some());
    assert_eq!(read(&tagged(one), shim::AT), None, "nobody would ask behind the tag");
}

#[test]
fn what_is_not_as_a_host_writes_it_is_refused_and_what_is_not_of_groups_is_none() {
    let v2 = [0x16, 0, 0, 0, 239, 1, 2, 3];
    let v1_of_mld = [&[131, 0, 0, 0, 0, 0, 0, 0][..], &[0xff; 16]].concat();
    let bad = |frame: Vec<u8>| assert_eq!(read(&frame, shim::AT), Some(Err(Malformed)), "{frame:02x?}");
    let changed = |mut frame: Vec<u8>, at: usize, to: u8| {
        frame[at] = to;
        frame
    };
    // IPv4: a wrong checksum of the header and of the message, a part of a packet, another TTL, which is summed.
    bad(changed(igmp(&v2), 24, 1));
    bad(changed(igmp(&v2), 44, 1));
    for (at, value) in [(20, 0x20), (21, 1), (22, 2)] {
        let mut frame = changed(igmp(&v2), at, value);
        frame[24..26].fill(0);
        let header = with_checksum(frame[14..38].to_vec(), 10, 0);
        frame[14..38].copy_from_slice(&header);
        bad(frame);
    }
    bad(igmp(&[0x16, 0, 0, 0, 10, 1, 2, 3]));
    bad(igmp(&[0x16, 0, 0, 0, 239, 1, 2]));
    // More records, sources or auxiliary data than there are, and a record of no group.
    bad(igmp(&[0x22, 0, 0, 0, 0, 0, 0, 1]));
    let one = record(4, group("239.1.2.3"), 1);
    for (at, value) in [(1, 9), (3, 9), (4, 10)] {
        bad(igmp(&records(0x22, &[changed(one.clone(), at, value)])));
    }
    bad(igmp(&changed(records(0x22, &[one]), 7, 2)));

    // IPv6: no options, no alert or another one; from a router; another hop limit; not from this link.
    bad(mld_with(&[], &v1_of_mld));
    bad(mld_with(&[58, 0, 1, 4, 0, 0, 0, 0], &v1_of_mld));
    bad(mld_with(&[58, 0, 5, 2, 0, 1, 1, 0], &v1_of_mld));
    bad(mld_with(&[58, 0, 1, 99, 0, 0, 0, 0], &v1_of_mld));
    assert_eq!(words(&mld_with(&[58, 1, 0, 1, 1, 7, 5, 2, 0, 0, 1, 4, 0, 0, 0, 0], &v1_of_mld)).len(), 1);
    bad(changed(mld(&v1_of_mld), 21, 2));
    bad(changed(mld(&v1_of_mld), 64, 1));
    bad(changed(mld(&v1_of_mld), 22, 0x20));
    bad(mld(&v1_of_mld[..20]));
    bad(mld(&[&v1_of_mld[..8], &[0xfd; 16]].concat()));
    let one = record(4, group("ff15::7"), 1);
    for (at, value) in [(1, 9), (3, 9), (4, 0xfd)] {
        bad(mld(&records(143, &[changed(one.clone(), at, value)])));
    }
    // A host that has no address yet reports; it does not ask.
    let unspecified = |frame: Vec<u8>| {
        let mut frame = frame;
        frame[22..38].fill(0);
        let message = frame.split_off(62);
        let more = sum(&frame[22..54]) + message.len() as u64 + 58;
        let mut message = message;
        message[2..4].fill(0);
        frame.extend(with_checksum(message, 2, more));
        frame
    };
    assert_eq!(words(&unspecified(mld(&v1_of_mld))).len(), 1);
    bad(unspecified(query::general(Timing::new(1))[1].clone()));

    // Other messages and protocols are no concern of this.
    assert_eq!(read(&igmp(&[0x13, 0, 0, 0, 239, 1, 2, 3]), shim::AT), None);
    assert_eq!(read(&mld(&[135; 24]), shim::AT), None);
    assert_eq!(read(&changed(igmp(&v2), 23, 17), shim::AT), None);
    for frame in [igmp(&v2), mld(&v1_of_mld)] {
        for len in 0..frame.len().min(46) {
            assert!(!matches!(read(&frame[..len], shim::AT), Some(Ok(_))), "cut after {len}");
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_cause_a_panic_and_what_is_read_is_of_groups(
        bytes in prop::collection::vec(any::<u8>(), 0..120), kind in 0..6u8
    ) {
        // Behind headers that are right, so that the message is reached.
        let kinds = [0x12, 0x17, 0x22, 131, 132, 143];
        let message = [&[kinds[usize::from(kind)]][..], &bytes].concat();
        let message = if message.len() < 4 { [message, vec![0; 4]].concat() } else { message };
        for frame in [igmp(&message), mld(&message), bytes] {
            if let Some(Ok(Message::Report(report))) = read(&frame, shim::AT) {
                prop_assert!(report.words().all(|(group, _)| group.is_multicast()));
            }
        }
    }
}

/// A table, and reports of hosts to it at a time.
struct Bench {
    subscriptions: Subscriptions,
    start: Instant,
}

const TIMING: Timing = Timing { interval: Duration::from_secs(125) };

impl Bench {
    fn new(limits: Limits) -> Self {
        Self { subscriptions: Subscriptions::new(limits, 1), start: Instant::now() }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.start + Duration::from_secs(seconds)
    }

    fn says(&self, port: u8, name: Mac, frame: &[u8], seconds: u64) -> Result<(), Refused> {
        let Some(Ok(Message::Report(report))) = read(frame, shim::AT) else { panic!("a report") };
        self.subscriptions.hear(port, name, &report, (TIMING, self.at(seconds)), |_| true)
    }

    fn groups_of(&self, name: Mac) -> Vec<IpAddr> {
        self.subscriptions.all().remove(&name).unwrap_or_default()
    }

    fn sweep(&self, seconds: u64, port: u8) {
        self.subscriptions.sweep(self.at(seconds), |_, at| at == port);
    }
}

fn v2(kind: u8, last: u8) -> Vec<u8> {
    igmp(&[kind, 0, 0, 0, 239, 1, 2, last])
}

fn v3(kind: u8, groups: std::ops::Range<u32>, n_sources: u16) -> Vec<u8> {
    let all: Vec<_> =
        groups.map(|i| record(kind, std::net::Ipv4Addr::from_bits(0xef02_0000 + i).into(), n_sources)).collect();
    igmp(&records(0x22, &all))
}

#[test]
fn a_subscription_holds_until_it_is_left_or_not_repeated() {
    let bench = Bench::new(Limits::default());
    let version = || bench.subscriptions.version();
    bench.says(3, HOST, &v2(0x16, 1), 0).unwrap();
    bench.says(3, HOST, &v2(0x16, 2), 100).unwrap();
    assert_eq!((bench.groups_of(HOST).len(), version()), (2, 2));
    bench.says(3, HOST, &v2(0x17, 2), 101).unwrap();
    assert_eq!((bench.groups_of(HOST), version()), (vec![group("239.1.2.1")], 3));
    bench.says(3, HOST, &v2(0x17, 2), 101).unwrap();
    bench.says(3, HOST, &v2(0x16, 1), 200).unwrap();
    bench.sweep(261, 3);
    assert_eq!((bench.groups_of(HOST).len(), version()), (1, 3), "it was repeated");
    bench.sweep(460, 3);
    assert_eq!((bench.groups_of(HOST).len(), version()), (0, 4), "two questions and the time for an answer");

    // A name that moves leaves its reports behind.
    bench.says(3, HOST, &v2(0x16, 1), 500).unwrap();
    bench.says(4, HOST, &v2(0x16, 2), 501).unwrap();
    bench.sweep(502, 4);
    assert_eq!(bench.groups_of(HOST), [group("239.1.2.2")]);
    bench.subscriptions.sweep(bench.at(503), |_, _| false);
    assert!(bench.subscriptions.all().is_empty());
}

#[test]
fn a_host_of_an_old_protocol_speaks_for_those_behind_the_same_port() {
    let bench = Bench::new(Limits::default());
    for (port, name) in [(3, HOST), (3, OTHER), (4, [2, 0, 0, 0, 0, 3])] {
        bench.says(port, name, &v2(0x16, 1), 0).unwrap();
    }
    bench.says(3, HOST, &v2(0x16, 1), 200).unwrap();
    bench.subscriptions.sweep(bench.at(261), |name, at| at == if name[5] == 3 { 4 } else { 3 });
    assert_eq!(bench.subscriptions.all().into_keys().collect::<Vec<_>>(), [HOST, OTHER]);
    // A host that leaves speaks for itself, and so do hosts that name the kinds of their records.
    bench.says(3, HOST, &v2(0x17, 1), 262).unwrap();
    bench.says(3, HOST, &igmp(&records(0x22, &[record(2, group("239.1.2.1"), 0)])), 459).unwrap();
    bench.sweep(461, 3);
    assert_eq!(bench.subscriptions.all().into_keys().collect::<Vec<_>>(), [HOST]);
}

#[test]
fn a_host_that_gives_up_sources_is_asked_and_forgotten_if_it_says_nothing() {
    let bench = Bench::new(Limits::default());
    bench.says(3, HOST, &v3(5, 0..2, 1), 0).unwrap();
    bench.says(3, HOST, &v3(6, 0..2, 1), 10).unwrap();
    bench.says(3, HOST, &v3(6, 7..8, 1), 10).unwrap();
    let asks = |seconds| bench.subscriptions.take_asks((TIMING, bench.at(seconds)));
    let asked = 20;
    let all = [(3, group("239.2.0.0")), (3, group("239.2.0.1"))];
    assert_eq!(asks(asked), all, "and not for one that it does not have");
    bench.says(3, HOST, &v3(1, 1..2, 1), asked + 1).unwrap();
    bench.sweep(asked + u64::from(ROBUSTNESS), 3);
    assert_eq!(bench.groups_of(HOST).len(), 2, "it has the time to answer from when it was asked");
    bench.sweep(asked + u64::from(ROBUSTNESS) + 1, 3);
    assert_eq!(bench.groups_of(HOST), [group("239.2.0.1")]);
    // A host that reports before it is asked need not be asked.
    bench.says(3, HOST, &v3(6, 1..2, 1), 30).unwrap();
    bench.says(3, HOST, &v3(5, 1..2, 1), 30).unwrap();
    assert!(asks(30).is_empty());
}

#[test]
fn a_flood_fills_what_its_name_and_its_port_may_have_and_harms_nobody_else() {
    let limits = Limits { groups_per_name: 10, groups_per_port: 25, reports_per_second: 100 };
    let bench = Bench::new(limits);
    assert_eq!(bench.says(3, HOST, &v3(4, 0..11, 0), 0), Err(Refused), "of eleven, ten are taken");
    bench.says(3, HOST, &v3(4, 0..10, 0), 1).expect("what it has, it may repeat");
    for (second, name) in (2..).zip([3, 4, 5].map(|last| [2, 0, 0, 0, 0, last])) {
        let _ = bench.says(3, name, &v3(4, 0..10, 0), second);
    }
    assert_eq!(bench.subscriptions.counts().subscriptions, 25);
    // Changes above the rate are refused; repeated reports, and another port, are heard.
    let before = bench.subscriptions.version();
    for _ in 0..1000 {
        for kind in [0x17, 0x16] {
            let _ = bench.says(3, HOST, &igmp(&[kind, 0, 0, 0, 239, 2, 0, 0]), 60);
        }
    }
    assert_eq!(bench.subscriptions.version() - before, 100);
    assert_eq!(bench.says(3, HOST, &v3(3, 9..10, 0), 60), Err(Refused));
    bench.says(3, HOST, &v3(2, 1..10, 0), 60).expect("it has these");
    bench.says(4, OTHER, &v3(4, 0..10, 0), 60).unwrap();
    assert_eq!(bench.groups_of(OTHER).len(), 10);
    let counts = bench.subscriptions.counts();
    assert_eq!(counts.subscriptions, 35);
    assert!(counts.refused > 900 && counts.reports > 100, "{counts:?}");
    bench.subscriptions.clear();
    assert!(bench.subscriptions.all().is_empty() && bench.subscriptions.counts().subscriptions == 0);
}

/// Names at a port, each of which reports at a time that it wants as many groups as it may by default.
fn fill(bench: &Bench, port: u8, n_names: u8, seconds: u64) -> Vec<Result<(), Refused>> {
    let says = |name| bench.says(port, [2, 0, 0, 0, port, name], &v3(2, 0..64, 0), seconds);
    (0..n_names).map(says).collect()
}

#[test]
fn what_a_switch_keeps_is_divided_among_its_ports_so_that_some_do_not_take_all() {
    let n_ports = 20;
    let subscriptions = Subscriptions::new(Limits::default(), n_ports.into());
    let bench = Bench { subscriptions, start: Instant::now() };
    for port in 1..n_ports {
        assert!(fill(&bench, port, 16, 0).contains(&Err(Refused)));
    }
    assert_eq!(fill(&bench, 0, 6, 0), [Ok(()); 6], "what is its own");
    fill(&bench, 0, 16, 100);
    let n = bench.subscriptions.counts().subscriptions as usize;
    assert!(n <= MOST && n > MOST - usize::from(n_ports), "{n}");
}

#[test]
fn it_is_known_once_of_each_port_why_its_reports_are_not_taken() {
    let bench = Bench::new(Limits { groups_per_name: 2, reports_per_second: 1, ..Limits::default() });
    let refused = || bench.subscriptions.take_refusals();
    bench.says(3, HOST, &v3(2, 0..2, 0), 0).expect("so many it may have");
    assert_eq!(refused(), []);
    bench.says(3, HOST, &v3(2, 2..9, 0), 0).expect_err("no more");
    assert_eq!((refused(), refused()), (vec![(3, Why::Full)], vec![]));
    bench.subscriptions.refuse(200, Why::Malformed);
    bench.subscriptions.refuse(64, Why::Often);
    bench.subscriptions.refuse(200, Why::Often);
    assert_eq!(refused(), [(64, Why::Often), (200, Why::Often), (200, Why::Malformed)]);
    assert_eq!(bench.subscriptions.counts().refused, 4);
}

#[test]
fn all_that_a_port_may_have_can_be_said_at_once_and_is_repeated_when_it_is_asked_for() {
    let bench = Bench::new(Limits::default());
    for seconds in [0, 30, 60] {
        assert_eq!(fill(&bench, 3, 16, seconds), [Ok(()); 16]);
    }
    bench.subscriptions.sweep(bench.at(300), |_, _| true);
    assert_eq!(bench.subscriptions.counts().subscriptions, 1024);
}
