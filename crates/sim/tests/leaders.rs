//! Several controllers on one etcd hold over many seeds, find every mutant, and are the same for the same seed.

use fibula_sim::leaders::{MUTANTS, Outcome, Scenario, run};
use lookup::testkit;

fn is_deep() -> bool {
    std::env::var_os("FIBULA_DEEP").is_some()
}

#[test]
fn several_controllers_hold_over_many_seeds() {
    let first = testkit::seed();
    println!("seed {first}");
    let mut sum = Outcome::default();
    for i in 0..if is_deep() { 2000 } else { 20 } {
        let seed = first.wrapping_add(i);
        let outcome = run(&Scenario::new(seed)).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        sum.add(&outcome);
    }
    println!("{sum:?}");
    let Outcome { acknowledged, unknown, promoted, followed, overtaken, misfortunes, compared, .. } = sum;
    assert!([acknowledged, unknown, promoted, followed, overtaken, misfortunes, compared].iter().all(|n| *n > 0));
}

#[test]
fn same_seed_gives_the_same_run() {
    let seed = testkit::seed();
    println!("seed {seed}");
    let [one, same, other] = [seed, seed, seed ^ 1].map(|seed| run(&Scenario::new(seed)).unwrap());
    assert_eq!(one, same);
    assert_ne!(one.trace, other.trace);
}

/// Seeds in which to look for a mutant; without one they are clean.
const MUTANT_SEEDS: u64 = 200;

#[test]
fn every_mutant_is_found_and_nothing_without_one() {
    let finds = |mutant, seed| run(&Scenario { mutant, ..Scenario::new(seed) }).err();
    let (mut missed, mut clean) = (Vec::new(), 0);
    for mutant in MUTANTS {
        let found = (0..MUTANT_SEEDS).find_map(|seed| Some((seed, finds(Some(mutant), seed)?)));
        match found {
            Some((seed, violation)) => {
                println!("{mutant:?}: seed {seed}, {violation}");
                for seed in clean..=seed {
                    assert_eq!(finds(None, seed), None, "seed {seed}");
                }
                clean = clean.max(seed + 1);
            }
            None => missed.push(mutant),
        }
    }
    assert!(missed.is_empty(), "not found within {MUTANT_SEEDS} seeds: {missed:?}");
}
