//! Addresses of learnt names: who has which, and for how long.

use super::*;

/// As [`seen`], for a host that announces the address to everyone.
fn announced(port: u32, index: u8, ip: &str) -> SeenHost {
    SeenHost { announces: true, ..seen(port, index, ip) }
}

/// The name that has an address.
fn holder(bench: &Bench, ip: &str) -> Option<u8> {
    let ip = ip.parse().unwrap();
    let (rib, learnt) = (bench.state.network.rib(), &bench.state.hosts.learnt);
    rib.by_ip(ip).or_else(|| learnt.holder(ip).cloned()).and_then(|name| name.as_bytes().last().copied())
}

/// Two routers with a virtual address and no virtual MAC address (RFC 5798 as it is often run): the last one to announce it has it.
#[test]
fn an_address_goes_to_who_announces_it_and_its_holder_keeps_its_own() {
    let mut bench = Bench::new();
    bench.see("s1", &[seen(1, NAME_A, "10.0.0.10"), seen(2, NAME_B, "10.0.0.11"), seen(2, NAME_B, "fd00::b")]);
    bench.see("s1", &[announced(1, NAME_A, "10.0.0.100")]);
    bench.see("s1", &[announced(1, NAME_A, "10.0.0.100"), seen(1, NAME_A, "10.0.0.10")]);
    assert_eq!(["10.0.0.10", "10.0.0.100"].map(|ip| holder(&bench, ip)), [Some(NAME_A); 2]);
    // Merely using the address is not enough to get it.
    bench.now += 2 * MOVES_WITHIN;
    bench.see("s1", &[seen(2, NAME_B, "10.0.0.100")]);
    assert_eq!(holder(&bench, "10.0.0.100"), Some(NAME_A));
    assert!(bench.trouble().contains("claims 10.0.0.100"), "{}", bench.trouble());
    let node = bench.state.node("s1").unwrap();
    let decided =
        bench.learning.decide(&bench.state, node, &[announced(2, NAME_B, "10.0.0.100")], bench.now, 1_700_000_000_000);
    let told = format!("took over 10.0.0.100 from {} at s1:1: it announced it at s1:2", text(NAME_A));
    assert_eq!(decided.taken, [(text(NAME_B), told)]);
    bench.now += 2 * MOVES_WITHIN;
    bench.see("s1", &[announced(2, NAME_B, "10.0.0.100")]);
    assert_eq!(["10.0.0.10", "10.0.0.100"].map(|ip| holder(&bench, ip)), [Some(NAME_A), Some(NAME_B)]);
    assert_eq!(["10.0.0.11", "fd00::b"].map(|ip| holder(&bench, ip)), [Some(NAME_B); 2]);
    // The first one is back.
    bench.now += 2 * MOVES_WITHIN;
    bench.see("s1", &[announced(1, NAME_A, "10.0.0.100")]);
    assert_eq!(holder(&bench, "10.0.0.100"), Some(NAME_A));
    // Also the address of a record goes, and a further one takes its place there.
    bench.see("s1", &[announced(2, NAME_B, "10.0.0.10")]);
    assert_eq!(bench.at(&text(NAME_A)), "s1.1 10.0.0.100");
    assert_eq!((bench.more(NAME_A).len(), holder(&bench, "10.0.0.10")), (0, Some(NAME_B)));
    // That of a declared name does not.
    bench.see("s1", &[announced(2, NAME_B, "10.0.0.1")]);
    assert_eq!(holder(&bench, "10.0.0.1"), Some(1));
    // What is forgotten leaves its addresses.
    bench.state.carry_out(Change::RemoveNames { names: vec![text(NAME_B)], ignore_missing: false }).unwrap();
    assert_eq!(["10.0.0.10", "10.0.0.11", "fd00::b"].map(|ip| holder(&bench, ip)), [None; 3]);
}

#[test]
fn an_address_that_goes_back_and_forth_stays_and_an_old_one_may_be_given_to_another() {
    let mut bench = Bench::new();
    bench.see("s1", &[seen(1, NAME_A, "10.0.0.10"), seen(2, NAME_B, "10.0.0.11")]);
    bench.see("s1", &[announced(1, NAME_A, "10.0.0.100")]);
    for _ in 0..50 {
        bench.see("s1", &[announced(2, NAME_B, "10.0.0.100")]);
        bench.see("s1", &[announced(1, NAME_A, "10.0.0.100")]);
    }
    let conflicts = bench.conflicts();
    assert!(conflicts.iter().any(|(_, is, _)| is == "address"), "{conflicts:?}");
    // A has another address later, so its old one goes to the host that uses it.
    let mut bench = Bench::new();
    bench.see("s1", &[seen(1, NAME_A, "10.0.0.10"), seen(2, NAME_B, "")]);
    bench.see("s1", &[seen(2, NAME_B, "10.0.0.10")]);
    assert_eq!(holder(&bench, "10.0.0.10"), Some(NAME_A));
    bench.see("s1", &[seen(1, NAME_A, "10.0.0.20")]);
    bench.see("s1", &[seen(2, NAME_B, "10.0.0.10")]);
    assert_eq!(["10.0.0.10", "10.0.0.20"].map(|ip| holder(&bench, ip)), [Some(NAME_B), Some(NAME_A)]);
    // Rows bring it all back.
    bench.see("s1", &[seen(1, NAME_A, "fd00::a")]);
    let learnt = &bench.state.hosts.learnt;
    let mut again = crate::hosts::names::Learnt::default();
    learnt.rows().for_each(|row| again.restore(&bench.state.network, &row.key, row.value.as_deref().unwrap()));
    assert_eq!((&again, again.holder("fd00::a".parse().unwrap()).is_some()), (learnt, true));
}

#[test]
fn an_address_that_changes_again_and_again_stays_and_a_switch_has_a_quota_too() {
    let mut bench = Bench::new();
    for i in 0..100 {
        bench.see("s1", &[seen(1, NAME_A, &format!("10.0.1.{i}"))]);
    }
    assert_eq!((bench.at(&text(NAME_A)), bench.more(NAME_A).len()), ("s1.1 10.0.1.0".to_owned(), MOST_MOVES));
    assert!(bench.trouble().contains("repeatedly claims another address"), "{}", bench.trouble());
    // A port that only reports changes nothing.
    bench.now += FROZEN;
    bench.see("s1", &[SeenHost { accept: false, ..seen(1, NAME_A, "10.0.2.1") }]);
    assert_eq!((bench.at(&text(NAME_A)), bench.more(NAME_A).len()), ("s1.1 10.0.1.0".to_owned(), MOST_MOVES));

    let bench = &mut Bench::new();
    bench.learning.set(Settings { max_names_per_switch: 5, ..Settings::default() });
    let hosts: Vec<SeenHost> = (10..40).map(|i| seen(u32::from(i), i, "")).collect();
    assert_eq!(bench.see("s1", &hosts).len(), 5);
    assert_eq!(bench.see("s1", &hosts).len(), 0);
    assert_eq!(bench.see("s2", &[seen(4, NAME_A, "")]).len(), 1);
}
