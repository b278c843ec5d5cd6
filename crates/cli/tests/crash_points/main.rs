//! Kills of real processes before and after every named step (`api::crash`), and flipped bits in every file that they leave.
//!
//! What must hold: everything acknowledged is there and on record, a request without an answer was carried out whole or not at all, a
//! switch's image is whole, switches come into step and answer as the network says, and commands work when given again.
//!
//! Whatever is waited for has a time limit; with what never came, the threads of all processes and their log are printed.
//!
//! `FIBULA_CRASH_ROUNDS=N` makes N rounds instead of a few; `FIBULA_CRASH_FIRST=I` begins with the Ith, so that a campaign
//! goes on where it stopped: round I kills at moment I modulo the number of moments. `FIBULA_FLIPS=N` flips N bits of each
//! file. `FIBULA_RECORD=FILE` appends what was done as a line of JSON. `FIBULA_SEED` repeats a run.

#[path = "../support/mod.rs"]
mod support;

mod flips;
mod ledger;
mod mutants;
mod pki;
mod process;
mod site;
mod world;

use lookup::testkit;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeSet;
use std::io::Write;
use world::World;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

fn record(line: &serde_json::Value) {
    println!("{line}");
    if let Some(path) = std::env::var_os("FIBULA_RECORD") {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "{line}").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_killed_at_any_step_loses_nothing_and_leaves_nothing_half_done() {
    let seed = testkit::seed();
    let sites = site::all();
    let deep = std::env::var_os("FIBULA_DEEP").is_some();
    let n_rounds = number("FIBULA_CRASH_ROUNDS").unwrap_or(if deep { sites.len() as u64 } else { 60 });
    let mut rng = StdRng::seed_from_u64(seed);
    let first = number("FIBULA_CRASH_FIRST").unwrap_or_else(|| rng.random_range(0..sites.len() as u64));
    let mut world = World::new(rng.random(), None, None);
    let mut killed = BTreeSet::new();
    for round in first..first + n_rounds {
        let crash = &sites[(round % sites.len() as u64) as usize];
        let before = world.totals.kills;
        world.round(crash).await;
        if world.totals.kills > before {
            killed.insert(crash);
        }
    }
    world.settle().await;
    let totals = world.totals;
    assert!(totals.kills * 2 > n_rounds, "most moments are reached: {totals:?}");
    record(&serde_json::json!({
        "kind": "crash", "seed": seed, "first": first, "rounds": n_rounds, "kills": totals.kills, "moments": killed.len(),
        "all_moments": sites.len(), "requests": totals.requests, "stops": totals.stops, "checks": totals.checks,
        "findings": 0,
    }));
}

/// Without this it would not be known whether the rounds can find anything. What they say of each is on standard error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_mistake_is_found() {
    let seed = testkit::seed();
    let deep = std::env::var_os("FIBULA_DEEP").is_some();
    let mut missed = Vec::new();
    for (mistake, of) in &mutants::ALL[..if deep { mutants::ALL.len() } else { 2 }] {
        match mutants::found(mistake, *of, seed).await {
            Some(round) => println!("{mistake}: found in round {round}"),
            None => missed.push(mistake),
        }
    }
    assert!(missed.is_empty(), "not found within {} rounds: {missed:?}", mutants::MOST_ROUNDS);
}

/// A name that no process reaches would be a moment that is never tried.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_named_step_is_taken() {
    let seed = testkit::seed();
    let directory = tempfile::tempdir().unwrap();
    let seen = directory.path().join("seen");
    let mut world = World::new(seed, Some(seen.clone()), None);
    let never = |of, step| site::Crash { step, before: true, nth: u32::MAX, of };
    use site::Of::{Backup, Controller, Pki, Repair, Restore, Switch};
    for of in [Controller, Switch, Backup, Restore, Repair, Pki, Pki] {
        world.round(&never(of, "none")).await;
    }
    world.settle().await;
    let seen = std::fs::read_to_string(seen).unwrap();
    let seen: BTreeSet<&str> = seen.lines().collect();
    let named = [api::crash::CONTROLLER, api::crash::SWITCH, api::crash::COPY, api::crash::PKI].concat();
    let untaken: Vec<_> = named.iter().filter(|name| !seen.contains(*name)).collect();
    assert!(untaken.is_empty(), "steps that nothing takes: {untaken:?}");
    let unnamed: Vec<_> =
        seen.iter().filter(|step| !named.contains(step) && !api::crash::RARE.contains(step)).collect();
    assert!(unnamed.is_empty(), "steps without a name in the list: {unnamed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flipped_bit_in_any_file_is_mended_or_refused() {
    let seed = testkit::seed();
    let deep = std::env::var_os("FIBULA_DEEP").is_some();
    let n = number("FIBULA_FLIPS").unwrap_or(if deep { 2000 } else { 20 }) as usize;
    let mut rng = StdRng::seed_from_u64(seed);
    let mut total = flips::Flips::default();
    for stopped in [false, true] {
        let mut world = World::new(rng.random(), None, None);
        let orderly = site::Crash { step: "none", before: true, nth: 1, of: site::Of::Switch };
        world.round(&orderly).await;
        world.at_rest(stopped).await;
        let images = std::fs::read_dir(world.site.path("")).unwrap().map(|entry| entry.unwrap().path().join("image"));
        let image = images.into_iter().find(|image| image.exists()).expect("the switch stopped in order");
        let flips = tokio::task::block_in_place(|| flips::flip(&world.site.path(""), &image, n, &mut rng));
        (total.flips, total.unharmed) = (total.flips + flips.flips, total.unharmed + flips.unharmed);
    }
    record(&serde_json::json!({
        "kind": "flips", "seed": seed, "flips": total.flips, "unharmed": total.unharmed, "findings": 0,
    }));
}
