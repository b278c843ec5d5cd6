//! The simulated system holds over many seeds, finds every mutant, and is the same for the same seed.

use fibula_sim::system::{Mutant, Outcome, Scenario, Totals, run};
use lookup::testkit;

fn is_deep() -> bool {
    std::env::var_os("FIBULA_DEEP").is_some()
}

fn check(scenario: &Scenario) -> Outcome {
    run(scenario).unwrap_or_else(|violation| panic!("{scenario:?}: {violation}"))
}

#[test]
fn system_holds_over_many_seeds() {
    let first = testkit::seed();
    println!("seed {first}");
    let mut totals = Totals::default();
    for i in 0..if is_deep() { 10_000 } else { 40 } {
        let scenario = Scenario::new(first.wrapping_add(i));
        let result = run(&scenario);
        totals.seeds += 1;
        totals.add(&scenario, result);
    }
    println!("{}", totals.json(first));
    assert!(totals.findings.is_empty(), "{:?}", totals.findings);
    let Outcome { answered, checks, claims, frames, displaced, crashes, faults, .. } = totals.sum;
    assert!([answered, checks, claims, frames, displaced].iter().all(|n| *n > 0));
    assert!(crashes.len() > 4 && faults.len() > 2, "{crashes:?}, {faults:?}");
}

/// Seeds that once found something, which is mended: a switch that came back to a controller whose store was set back was
/// said to be damaged.
const ONCE_FOUND: [u64; 4] = [61_792, 82_510, 85_749, 1_054_077];

#[test]
fn what_was_found_once_is_mended() {
    for seed in ONCE_FOUND {
        check(&Scenario { value_bits: 8, ..Scenario::new(seed) });
    }
}

#[test]
fn fifty_switches_hold() {
    let seed = testkit::seed();
    println!("seed {seed}");
    let steps = if is_deep() { 60 } else { 8 };
    check(&Scenario { switches: 50, steps, ..Scenario::new(seed) });
}

#[test]
fn same_seed_gives_the_same_run() {
    let seed = testkit::seed();
    println!("seed {seed}");
    let [one, same, other] = [seed, seed, seed ^ 1].map(|seed| check(&Scenario::new(seed)));
    assert_eq!(one, same);
    assert_ne!(one.trace, other.trace);
}

/// Seeds in which to look for a mutant; without one they are clean.
const MUTANT_SEEDS: u64 = 500;

#[test]
fn every_mutant_is_found_and_nothing_without_one() {
    let finds = |mutant, seed| run(&Scenario { mutant, ..Scenario::new(seed) }).err();
    let (mut missed, mut clean) = (Vec::new(), 0);
    for mutant in Mutant::ALL {
        let found = (0..MUTANT_SEEDS).find_map(|seed| Some((seed, finds(Some(*mutant), seed)?)));
        let Some((seed, violation)) = found else {
            missed.push(mutant);
            continue;
        };
        println!("{mutant:?}: seed {seed}, {violation}");
        for seed in clean..=seed {
            assert_eq!(finds(None, seed), None, "seed {seed}");
        }
        clean = clean.max(seed + 1);
    }
    assert!(missed.is_empty(), "not found within {MUTANT_SEEDS} seeds: {missed:?}");
}

#[test]
fn system_holds_when_killed_at_any_point() {
    let first = testkit::seed();
    println!("seed {first}");
    for i in 0..if is_deep() { 20 } else { 1 } {
        let scenario = Scenario { switches: 3, steps: 8, ..Scenario::new(first.wrapping_add(i)) };
        let n_points = check(&scenario).n_points();
        let every = if is_deep() { 1 } else { 1 + n_points / 40 };
        for kill in (0..n_points).step_by(every as usize) {
            check(&Scenario { kill: Some(kill), ..scenario.clone() });
        }
    }
}
