//! What hosts say of multicast groups, one report after another, with checksums made right.

use crate::pieces::{pieces, put};
use dataplane::subscriptions::report::{Message, read};
use dataplane::subscriptions::{Limits, Subscriptions, Timing};
use lookup::hash::Rng;
use netio::checksum::{fold, sum};
use std::time::{Duration, Instant};

const LIMITS: Limits = Limits { groups_per_name: 4, groups_per_port: 10, reports_per_second: 1000 };
const PORTS: u8 = 2;
const TYPE_AT: usize = 12;
const ICMPV6: u8 = 58;

pub(crate) fn run(data: &[u8]) {
    let mut now = Instant::now();
    let timing = Timing::new(30);
    let subscriptions = Subscriptions::new(LIMITS, PORTS.into());
    for (what, ip) in pieces(data).take(200) {
        now += Duration::from_millis(u64::from(what));
        let (port, name) = (what % PORTS, [2, 0, 0, 0, 0, what / PORTS % 4]);
        let frame = summed(&[&[1, 0, 0x5e, 0, 0, 1], &name[..], ip].concat());
        if let Some(Ok(Message::Report(report))) = read(&frame, TYPE_AT) {
            for (group, _) in report.words() {
                assert!(group.is_multicast(), "{group}");
            }
            let _ = subscriptions.hear(port, name, &report, (timing, now), |_| true);
        }
        let all = subscriptions.all();
        assert!(all.values().all(|groups| groups.len() <= PORTS as usize * LIMITS.groups_per_name as usize));
        let n = subscriptions.counts().subscriptions;
        assert!(n <= u64::from(PORTS) * u64::from(LIMITS.groups_per_port), "{n} subscriptions");
        for (port, group) in subscriptions.take_asks((timing, now)) {
            assert!(port < PORTS && group.is_multicast());
        }
    }
    now += timing.holds() + Duration::from_secs(1);
    subscriptions.sweep(now, |_, _| true);
    assert!(subscriptions.all().is_empty() && subscriptions.counts().subscriptions == 0, "what is not repeated ends");
}

/// The frame with right checksums, if it is of IP and has room for them.
fn summed(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let Some((head, ip)) = frame.split_first_chunk_mut::<14>() else { return frame };
    let correct = |bytes: &mut [u8], at: usize, more: u64| {
        let Some(field) = bytes.get_mut(at..at + 2) else { return };
        field.fill(0);
        let checksum = (!fold(sum(bytes) + more)).to_be_bytes();
        bytes[at..at + 2].copy_from_slice(&checksum);
    };
    match head[TYPE_AT..] {
        [8, 0] if ip.len() >= 20 => {
            let n = (usize::from(ip[0] & 15) * 4).min(ip.len());
            let total = usize::from(u16::from_be_bytes([ip[2], ip[3]])).clamp(n, ip.len());
            let (header, message) = ip[..total].split_at_mut(n);
            correct(header, 10, 0);
            correct(message, 2, 0);
        }
        [0x86, 0xdd] if ip.len() >= 40 => {
            let (header, rest) = ip.split_at_mut(40);
            let rest = &mut rest[..];
            let len = usize::from(u16::from_be_bytes([header[4], header[5]])).min(rest.len());
            let options = if header[6] == 0 && len >= 8 { 8 + 8 * usize::from(rest[1]) } else { 0 };
            if let Some(message) = rest[..len].get_mut(options..) {
                let more = sum(&header[8..]) + message.len() as u64 + u64::from(ICMPV6);
                correct(message, 2, more);
            }
        }
        _ => {}
    }
    frame
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let v4 = |message: &[u8]| {
        let head = [0x45, 0, 0, 20 + message.len() as u8, 0, 0, 0, 0, 1, 2, 0, 0, 10, 0, 0, 1, 224, 0, 0, 22];
        [&[8, 0][..], &head, message].concat()
    };
    let v6 = |message: &[u8]| {
        let source = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 22];
        let head = [0x60, 0, 0, 0, 0, 8 + message.len() as u8, 0, 1];
        [&[0x86, 0xdd][..], &head, &source, &group, &[ICMPV6, 0, 5, 2, 0, 0, 1, 0], message].concat()
    };
    let group = [0xff, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
    let record = |kind: u8, group: &[u8], sources: &[&[u8]]| {
        [&[kind, 0, 0, sources.len() as u8][..], group, &sources.concat()].concat()
    };
    let v3 = |records: &[Vec<u8>]| [&[0x22, 0, 0, 0, 0, 0, 0, records.len() as u8][..], &records.concat()].concat();
    let v2 = |records: &[Vec<u8>]| [&[143, 0, 0, 0, 0, 0, 0, records.len() as u8][..], &records.concat()].concat();
    let messages = [
        v4(&[0x12, 0, 0, 0, 239, 1, 2, 3]),
        v4(&[0x16, 0, 0, 0, 239, 1, 2, 3]),
        v4(&[0x17, 0, 0, 0, 239, 1, 2, 3]),
        v4(&[0x11, 0, 0, 0, 0, 0, 0, 0]),
        v4(&v3(&(1..=6).map(|kind| record(kind, &[239, 1, 2, kind], &[&[10, 0, 0, 2]])).collect::<Vec<_>>())),
        v4(&v3(&(1..=6).map(|kind| record(kind, &[239, 1, 2, kind], &[])).collect::<Vec<_>>())),
        v6(&[&[131, 0, 0, 0, 0, 0, 0, 0][..], &group].concat()),
        v6(&[&[132, 0, 0, 0, 0, 0, 0, 0][..], &group].concat()),
        v6(&v2(&(1..=6).map(|kind| record(kind, &group, &[&group])).collect::<Vec<_>>())),
        v6(&v2(&[record(4, &group, &[]), record(3, &group, &[])])),
    ];
    let mut rng = Rng::new(1);
    let mut seed = Vec::new();
    for _ in 0..40 {
        put(&mut seed, rng.below(256) as u8, &messages[rng.below(messages.len() as u64) as usize]);
    }
    vec![seed]
}
