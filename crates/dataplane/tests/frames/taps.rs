//! Taps at the ports of a worker: what they copy, what they say of it, and that nothing waits for whoever reads.

use crate::common::frames::arp;
use crate::common::*;
use dataplane::counters::DropReason;
use dataplane::shim::INITIAL_HOPS;
use dataplane::source::CheckSource;
use dataplane::tap::{CHUNKS, Direction, Reader, Taps, Verdict, Wanted, records};
use fib::name::NameKind;
use fib::replica::Exact;
use std::sync::Arc;

/// What was seen: port, direction, verdict, the frame.
type Seen = (u16, Direction, Verdict, Vec<u8>);

const INDICES: [(u16, u8); 4] = [(HOST_1, 0), (HOST_2, 1), (TRUNK_8, 2), (TRUNK_9, 3)];

fn open(rig: &Rig, ports: &[u16], drops_only: bool) -> (Arc<Taps>, Reader) {
    let taps = rig.monitor.taps().clone();
    let mut wanted = Wanted::default();
    for (port, index) in INDICES {
        if ports.contains(&port) {
            wanted.add(index, drops_only, 2048);
        }
    }
    let reader = taps.open(1, wanted).pop().unwrap();
    (taps, reader)
}

fn read(reader: &Reader) -> Vec<Seen> {
    let mut seen = vec![];
    while reader.read(|chunk| {
        for record in records(chunk) {
            assert_eq!(record.original_len as usize, record.bytes.len());
            assert!(record.time_ns > 1_700_000_000_000_000_000, "{}", record.time_ns);
            assert_eq!(INDICES.iter().find(|of| of.0 == record.port.0).unwrap().1, record.index);
            seen.push((record.port.0, record.direction, record.verdict, record.bytes.to_vec()));
        }
    }) {}
    seen
}

fn to(port: u16) -> Verdict {
    Verdict::Forwarded(fib::action::PortId(port))
}

/// Names 1 and 2 at the host ports, 8 behind the trunk.
fn rig() -> Rig {
    let mut rig = Rig::with_check(NameKind::Mac, &Default::default(), CheckSource::Mac);
    for (i, value, ip) in [(1, 1, "10.0.0.1"), (2, 2, "10.0.0.2"), (8, 3, "10.0.0.8")] {
        rig.add(&mac(i), value);
        rig.writer.valid().put(mac(i), Some(ip.parse().unwrap()));
    }
    rig
}

#[test]
fn frames_are_shown_as_they_came_and_as_they_left_with_what_became_of_them() {
    let mut rig = rig();
    let (_, reader) = open(&rig, &[HOST_1, TRUNK_8], false);
    let frame = between(1, 8);
    rig.exchange(HOST_1, &frame);
    let shimmed = with_shim(&frame, INITIAL_HOPS);
    let forwarded =
        [(HOST_1, Direction::In, to(TRUNK_8), frame.clone()), (TRUNK_8, Direction::Out, Verdict::Sent, shimmed)];
    assert_eq!(read(&reader), forwarded);
    // Two ports without a tap say nothing.
    rig.exchange(HOST_2, &between(2, 999));
    assert_eq!(read(&reader), []);
    // The answer is written over the question; both are shown.
    let question = arp(1, (1, [10, 0, 0, 1]), [10, 0, 0, 2]);
    let answers = rig.exchange(HOST_1, &question);
    let seen = read(&reader);
    assert_eq!(seen[0], (HOST_1, Direction::In, Verdict::Answered, question));
    assert_eq!(seen[1], (HOST_1, Direction::Out, Verdict::Sent, answers[0].1.clone()));
    // Frames of one burst that are dropped before and after the others' names are looked up.
    let burst = [
        (between(1, 999), Verdict::Dropped(DropReason::Alien)),
        (between(77, 8), Verdict::Dropped(DropReason::SourceMac)),
        (between(1, 8), to(TRUNK_8)),
        (between(78, 2), Verdict::Dropped(DropReason::SourceMac)),
        (between(1, 2), to(HOST_2)),
        (vec![2; 9], Verdict::Dropped(DropReason::Runt)),
    ];
    burst.iter().for_each(|(frame, _)| rig.send(HOST_1, frame));
    rig.run();
    let mut came: Vec<_> = read(&reader).into_iter().filter(|seen| seen.1 == Direction::In).collect();
    let mut expected: Vec<Seen> =
        burst.into_iter().map(|(frame, verdict)| (HOST_1, Direction::In, verdict, frame)).collect();
    // Sources are judged first.
    came.sort_by(|a, b| a.3.cmp(&b.3));
    expected.sort_by(|a, b| a.3.cmp(&b.3));
    assert_eq!(came, expected);
    let counts = rig.counts();
    assert_eq!((counts.dropped(DropReason::SourceMac), counts.dropped(DropReason::Runt)), (2, 1));
}

#[test]
fn full_bursts_that_stay_in_flight_have_each_their_own_verdicts() {
    let mut rig = rig();
    let (_, reader) = open(&rig, &[HOST_1, TRUNK_8], false);
    // Every third is dropped for its source, every fifth for its destination.
    let frames: Vec<Vec<u8>> = (0..192u64)
        .map(|i| {
            let mut frame = between(if i % 3 == 0 { 70 } else { 1 }, if i % 5 == 0 { 999 } else { 8 });
            frame[20..28].copy_from_slice(&i.to_le_bytes());
            frame
        })
        .collect();
    frames.iter().for_each(|frame| rig.send(HOST_1, frame));
    rig.run();
    let seen = read(&reader);
    let number = |frame: &[u8], at: usize| u64::from_le_bytes(frame[at..at + 8].try_into().unwrap());
    let mut verdicts = vec![None; frames.len()];
    for (_, _, verdict, frame) in seen.iter().filter(|seen| seen.1 == Direction::In) {
        let i = number(frame, 20);
        assert_eq!(*frame, frames[i as usize]);
        assert_eq!(verdicts[i as usize].replace(*verdict), None);
    }
    for (i, verdict) in verdicts.into_iter().enumerate() {
        let expected = match i {
            _ if i % 3 == 0 => Verdict::Dropped(DropReason::SourceMac),
            _ if i % 5 == 0 => Verdict::Dropped(DropReason::Alien),
            _ => to(TRUNK_8),
        };
        assert_eq!(verdict, Some(expected), "frame {i}");
    }
    let left: Vec<u64> = seen.iter().filter(|seen| seen.1 == Direction::Out).map(|seen| number(&seen.3, 24)).collect();
    assert_eq!(left, (0..192).filter(|i| i % 3 != 0 && i % 5 != 0).collect::<Vec<_>>());
}

#[test]
fn a_tap_for_drops_copies_no_other_frame() {
    let mut rig = rig();
    let (_, reader) = open(&rig, &[HOST_1, HOST_2, TRUNK_8, TRUNK_9], true);
    rig.exchange(HOST_1, &between(1, 8));
    rig.exchange(TRUNK_8, &with_shim(&between(8, 1), 5));
    assert_eq!(read(&reader), []);
    let late = with_shim(&between(8, 1), 0);
    rig.exchange(HOST_1, &between(1, 999));
    rig.exchange(TRUNK_8, &late);
    rig.exchange(TRUNK_8, &between(8, 1));
    let dropped = |port, reason, frame| (port, Direction::In, Verdict::Dropped(reason), frame);
    let expected = [
        dropped(HOST_1, DropReason::Alien, between(1, 999)),
        dropped(TRUNK_8, DropReason::HopLimit, late),
        dropped(TRUNK_8, DropReason::NoShim, between(8, 1)),
    ];
    assert_eq!(read(&reader), expected);
    // What the port of exit does not take is dropped there: the ring of its other end holds 256, and nobody reads.
    for _ in 0..10 {
        (0..32).for_each(|_| rig.send(HOST_1, &between(1, 8)));
        while rig.worker.poll_once() > 0 {}
    }
    let refused = rig.counts().dropped(DropReason::TxFull);
    let seen = read(&reader);
    let shimmed = with_shim(&between(1, 8), INITIAL_HOPS);
    let expected = (TRUNK_8, Direction::Out, Verdict::Dropped(DropReason::TxFull), shimmed);
    assert!(
        refused > 0 && seen.len() as u64 == refused && seen.iter().all(|seen| *seen == expected),
        "{refused} {seen:?}"
    );
}

#[test]
fn frames_go_on_when_nobody_reads_and_what_is_not_copied_is_counted() {
    for drops_only in [false, true] {
        let mut rig = rig();
        let (_, reader) = open(&rig, &[HOST_1], drops_only);
        let mut long = between(1, 8);
        long.resize(1514, 7);
        let mut alien = between(1, 999);
        alien.resize(1514, 7);
        let n = 8000;
        for _ in 0..n / 32 {
            (0..16).for_each(|_| rig.send(HOST_1, &long));
            (0..16).for_each(|_| rig.send(HOST_1, &alien));
            assert_eq!(rig.run().len(), 16);
        }
        let wanted = if drops_only { n / 2 } else { n };
        let lost = reader.lost(0, drops_only);
        let kept = read(&reader).len() as u64;
        assert_eq!(kept + lost, wanted, "{drops_only}");
        assert!(kept > CHUNKS as u64 && lost > 0, "{kept} kept, {lost} lost");
        assert!(reader.lost(0, true) <= reader.lost(0, false));
        // There is room again, and nothing more is lost.
        rig.exchange(HOST_1, &alien);
        assert_eq!(read(&reader).len(), 1);
        assert_eq!(reader.lost(0, drops_only), lost);
    }
}

#[test]
fn a_tap_that_is_closed_copies_nothing_and_one_that_is_opened_again_does() {
    let mut rig = rig();
    let (taps, reader) = open(&rig, &[HOST_1], false);
    rig.exchange(HOST_1, &between(1, 8));
    assert_eq!(read(&reader).len(), 1);
    taps.close();
    rig.exchange(HOST_1, &between(1, 8));
    assert!(read(&reader).is_empty() && reader.lost(0, false) == 0);
    // The one of before is not served any more, also if the worker saw nothing of the time between.
    let (taps, second) = open(&rig, &[HOST_1], false);
    taps.close();
    let (taps, third) = open(&rig, &[HOST_1], true);
    rig.exchange(HOST_1, &between(1, 999));
    assert_eq!([&reader, &second, &third].map(|reader| read(reader).len()), [0, 0, 1]);
    let mut wanted = Wanted::default();
    wanted.add(1, false, 20);
    taps.set(wanted);
    rig.exchange(HOST_1, &between(1, 999));
    rig.exchange(HOST_2, &between(2, 8));
    let mut lens = vec![];
    while third.read(|chunk| lens.extend(records(chunk).map(|r| (r.port.0, r.bytes.len(), r.original_len)))) {}
    assert_eq!(lens, [(HOST_2, 20, 60)]);
}
