use super::*;
use crate::counters::DropReason;
use fib::designs::{self, CONCISE, Spec};
use lookup::hash::{Family, SecretKey};

fn load(place: Place, wiring: Wiring, workers: usize) -> (Load, Hasher, Box<dyn designs::Table>, Vec<u64>) {
    let key = SecretKey::from_seed(5);
    let names: Vec<u64> = (0..2000u64).map(|i| i << 16 | 2).collect();
    let spec = Spec::new(&CONCISE, NameKind::Mac, Family::default(), key, 8, 4000);
    let hasher = spec.hasher();
    let macs: Vec<Name> =
        names.iter().map(|name| Name::from_bytes(NameKind::Mac, &name.to_le_bytes()[..6]).unwrap()).collect();
    let keys = designs::keys(&hasher, macs.iter()).into_iter();
    let entries: Vec<_> = keys.zip(&names).map(|(key, name)| (key, 1 + (name >> 16) as u16 % 4)).collect();
    let fib = spec.build(&entries, 1).unwrap();
    let load = Load {
        place,
        wiring,
        frame_bytes: 64,
        sources: (0..300u64).map(|i| i << 20 | 6).collect(),
        check_source: CheckSource::Off,
        acl: None,
        destinations: names.clone().into(),
        n_exits: 4,
        spread: false,
        watched: false,
        forgets: false,
        workers,
        frames: 6400,
        connections: None,
    };
    (load, hasher, fib, names)
}

const CASES: [(Place, Wiring); 4] = [
    (Place::Core, Wiring::Rings),
    (Place::Core, Wiring::Bare),
    (Place::Gateway, Wiring::Rings),
    (Place::Gateway, Wiring::Bare),
];

#[test]
fn every_frame_goes_where_its_name_says() {
    for (place, wiring) in CASES {
        for workers in [1, 2] {
            let (load, hasher, fib, valid) = load(place, wiring, workers);
            let measured = forward_with_fib(&load, &hasher, &*fib, &valid).unwrap();
            assert_eq!(measured.counts.dropped_total(), 0);
            assert_eq!(measured.exits.iter().sum::<u64>(), measured.counts.sent);
            let (least, most) = (measured.exits.iter().min().unwrap(), measured.exits.iter().max().unwrap());
            assert!(most - least <= 4 * workers as u64, "{:?}", measured.exits);
            assert!(measured.frames >= 6400 * workers as u64);
        }
    }
}

#[test]
fn flows_leave_by_all_ways_and_each_by_one() {
    for (place, wiring) in CASES {
        let (load, hasher, fib, valid) = load(place, wiring, 1);
        let exits = |destinations: &[u64], sources: &[u64]| {
            let load =
                Load { spread: true, destinations: destinations.into(), sources: sources.into(), ..load.clone() };
            let measured = forward_with_fib(&load, &hasher, &*fib, &valid).unwrap();
            assert_eq!(measured.counts.dropped_total(), 0);
            measured.exits.into_iter().filter(|n| *n > 0).count()
        };
        assert_eq!((exits(&load.destinations, &load.sources), exits(&load.destinations[..1], &[])), (4, 1));
    }
}

#[test]
fn a_switch_that_is_watched_and_learns_sends_hellos_beside_the_same_frames() {
    for (place, wiring) in CASES {
        let (load, hasher, fib, valid) = load(place, wiring, 1);
        let exits = |watched| {
            let load = Load { watched, forgets: watched, check_source: CheckSource::Mac, ..load.clone() };
            let measured = forward_with_fib(&load, &hasher, &*fib, &valid).unwrap();
            assert_eq!(measured.counts.dropped_total(), 0);
            (measured.exits, measured.counts.originated)
        };
        let ((plain, none), (watched, hellos)) = (exits(false), exits(true));
        assert_eq!((plain, none), (watched, 0));
        assert!(hellos >= 4 && hellos % 4 == 0, "{hellos}");
    }
}

#[test]
fn checks_of_sources_stop_no_true_frame_and_every_false_one() {
    for wiring in [Wiring::Rings, Wiring::Bare] {
        for check_source in [CheckSource::Mac, CheckSource::MacAndIp] {
            let (load, hasher, fib, valid) = load(Place::Gateway, wiring, 1);
            let load = Load { check_source, ..load };
            assert_eq!(forward_with_fib(&load, &hasher, &*fib, &valid).unwrap().counts.dropped_total(), 0);
            let load = Load { sources: Arc::from([]), ..load };
            let counts = forward_with_fib(&load, &hasher, &*fib, &valid).unwrap().counts;
            assert_eq!((counts.sent, counts.dropped(DropReason::SourceMac)), (0, counts.received));
        }
    }
}

#[test]
fn unknown_names_stop_at_the_gateway() {
    let (mut load, hasher, fib, valid) = load(Place::Gateway, Wiring::Rings, 1);
    load.destinations = (0..500u64).map(|i| i << 24 | 0x04).collect();
    let measured = forward_with_fib(&load, &hasher, &*fib, &valid).unwrap();
    assert_eq!(measured.counts.sent, 0);
    assert_eq!(measured.counts.dropped(DropReason::Alien), measured.counts.dropped_total());
}

#[test]
fn connections_are_tracked_and_a_flood_is_not_unless_it_may() {
    for (place, wiring) in CASES {
        for (flood_after, flood_accepted, workers) in [(None, false, 1), (Some(1), false, 2), (Some(3), true, 1)] {
            let (mut load, hasher, fib, valid) = load(place, wiring, workers);
            load.connections = Some(Connections { tracked: true, flood_after, flood_accepted });
            let counts = forward_with_fib(&load, &hasher, &*fib, &valid).unwrap().counts;
            assert_eq!(counts.dropped_total(), counts.dropped(DropReason::FlowRefused));
            let refused = if flood_accepted { 0 } else { flood_after.map_or(0, |after| u64::from(after) + 1) };
            let expected = counts.received.checked_div(refused).unwrap_or(0);
            assert!(counts.dropped_total().abs_diff(expected) <= workers as u64, "{counts:?}");
        }
    }
}

#[test]
fn a_tap_sees_every_frame_come_and_leave_or_counts_it_and_changes_no_way() {
    for (place, wiring) in CASES {
        let (load, hasher, fib, valid) = load(place, wiring, 2);
        let (measured, copied) = forward_tapped(&load, &hasher, &*fib, &valid, false).unwrap();
        let counts = measured.counts;
        assert_eq!(counts.dropped_total(), 0);
        assert_eq!(copied.frames + copied.lost, counts.received + counts.sent, "{copied:?}");
        let (_, copied) = forward_tapped(&load, &hasher, &*fib, &valid, true).unwrap();
        assert_eq!(copied, Copied::default());
    }
}

#[test]
fn the_empty_forwarder_sends_everything() {
    for (place, wiring) in CASES {
        let (load, hasher, ..) = load(place, wiring, 2);
        let measured = forward_empty(&load, &hasher).unwrap();
        assert_eq!(measured.counts.dropped_total(), 0);
        assert!(measured.frames >= 12_800 && measured.exits.iter().all(|&n| n > 0));
    }
}
