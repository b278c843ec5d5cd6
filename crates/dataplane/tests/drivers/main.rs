//! Every driver against one list of frames, and against a flood of wrong ones.
//!
//! `fixtures` has frames with what must become of them: the same frames out of the same ports and the same drop reasons,
//! whatever the driver; where a driver rightly differs, the fixture says so and why. Each frame is followed by one whose way
//! is known, from the same port. When that has come out, so has everything before it: nothing waits for a time.

extern crate fibula_dataplane as dataplane;

#[path = "../common/mod.rs"]
mod common;
mod fixtures;
mod flood;
mod mutants;
mod rig;

use fixtures::{Fixture, Outcome, Scene, scenes};
use lookup::testkit;
use mutants::a_driver_with_a_mistake_is_found;
use netio::testkit::in_namespace;
use rig::{Driver, Rig};

/// Sends the frame of a fixture into the switch of its scene.
fn check_one(rig: &mut Rig, scene: &Scene, fixture: &Fixture) -> Result<(), String> {
    let expected = fixture.outcome(rig.driver);
    let before = rig.totals();
    if !rig.send(fixture.port, &fixture.frame) {
        let refused = Err(format!("the far end cannot send it; {expected:?} was expected"));
        return if *expected == Outcome::Unsendable { Ok(()) } else { refused };
    }
    let out = rig.settle(scene, &[fixture.port])?;
    let after = rig.totals();
    let n_markers = scene.good.iter().filter(|good| good.port == fixture.port).count() as u64;
    let received = after.all.received - before.all.received - n_markers;
    let (drops, answered) = (after.drops_since(&before), after.all.answered - before.all.answered);
    let got = (out, drops, after.lost_since(&before), answered, received);
    let of = match expected.clone() {
        Outcome::Out(at) => (vec![at], vec![], vec![], 0, 1),
        Outcome::Answered(answer) => (vec![(fixture.port, answer)], vec![], vec![], 1, 1),
        Outcome::Dropped(reason) => (vec![], vec![(reason, 1)], vec![], 0, 1),
        Outcome::Lost(counter) => (vec![], vec![], counter.map(|counter| (counter, 1)).into_iter().collect(), 0, 0),
        Outcome::Unsendable => return Err("the far end sent it, which it cannot".to_owned()),
    };
    let what = "(frames out, drops, losses of the device, answered, received)";
    if got == of { Ok(()) } else { Err(format!("{what}\n      is {got:02x?}\n  not     {of:02x?}")) }
}

/// What is wrong with a driver, by fixture.
fn wrong(scene: &Scene, rig: &mut Rig) -> Vec<String> {
    let mut wrong = vec![];
    for fixture in &scene.fixtures {
        if let Err(why) = check_one(rig, scene, fixture) {
            wrong.push(format!("{:?}, {}: {} into port {}: {why}", rig.driver, scene.what, fixture.what, fixture.port));
            // What comes late would be taken for what follows.
            break;
        }
    }
    wrong
}

/// Every scene, in a namespace of its own.
fn every_fixture(driver: Driver) {
    let (mut all, mut n) = (vec![], 0);
    for scene in scenes() {
        in_place(driver, || {
            let mut rig = Rig::new(driver, &scene);
            all.extend(wrong(&scene, &mut rig));
            n += scene.fixtures.len();
            if driver == Driver::Xdp {
                let for_kernel = scene.fixtures.iter().filter(|fixture| fixture.is_for_kernel()).count();
                let reads = matches!(scene.kind, fib::name::NameKind::Mac | fib::name::NameKind::Ipv4);
                let expected = if reads { for_kernel - scene.left_to_workers } else { 0 };
                assert_eq!(rig.totals().in_kernel, expected as u64, "{}: sent by the kernel", scene.what);
            }
        });
    }
    assert!(all.is_empty(), "{} of {n} fixtures:\n{}", all.len(), all.join("\n"));
    println!("{driver:?}: {n} fixtures");
}

/// Frames of a flood: 10 times as many with FIBULA_DEEP.
fn n_of_flood() -> usize {
    if std::env::var_os("FIBULA_DEEP").is_some() { 100_000 } else { 10_000 }
}

fn every_flood(driver: Driver) {
    let seed = testkit::seed();
    println!("seed {seed}: FIBULA_SEED={seed} repeats it");
    for scene in scenes().into_iter().filter(|scene| !scene.good.is_empty()) {
        in_place(driver, || match flood::check(driver, &scene, seed, n_of_flood()) {
            Ok(outcome) => println!("{driver:?}, {}: {outcome}", scene.what),
            Err(why) => panic!("seed {seed}, {driver:?}, {}: {why}", scene.what),
        });
    }
}

fn in_place(driver: Driver, test: impl FnOnce() + Send) {
    if driver == Driver::Memory { test() } else { in_namespace(test) }
}

fn in_memory_every_frame_of_the_list_goes_where_it_must() {
    every_fixture(Driver::Memory);
}

fn in_memory_a_flood_breaks_nothing() {
    every_flood(Driver::Memory);
}

fn over_af_packet_every_frame_of_the_list_goes_where_it_must() {
    every_fixture(Driver::AfPacket);
}

fn over_af_packet_a_flood_ends_as_in_memory() {
    every_flood(Driver::AfPacket);
}

fn over_af_xdp_every_frame_of_the_list_goes_where_it_must() {
    every_fixture(Driver::AfXdp);
}

fn over_af_xdp_a_flood_ends_as_in_memory() {
    every_flood(Driver::AfXdp);
}

fn over_xdp_every_frame_of_the_list_goes_where_it_must() {
    every_fixture(Driver::Xdp);
}

fn over_xdp_a_flood_ends_as_in_memory() {
    every_flood(Driver::Xdp);
}

#[cfg(feature = "dpdk")]
fn over_dpdk_every_frame_of_the_list_goes_where_it_must() {
    every_fixture(Driver::Dpdk);
}

#[cfg(feature = "dpdk")]
fn over_dpdk_a_flood_ends_as_in_memory() {
    every_flood(Driver::Dpdk);
}

netio::tests! {
    namespaces: [
        over_af_packet_every_frame_of_the_list_goes_where_it_must,
        over_af_packet_a_flood_ends_as_in_memory,
        over_af_xdp_every_frame_of_the_list_goes_where_it_must,
        over_af_xdp_a_flood_ends_as_in_memory,
        over_xdp_every_frame_of_the_list_goes_where_it_must,
        over_xdp_a_flood_ends_as_in_memory,
        #[cfg(feature = "dpdk")]
        over_dpdk_every_frame_of_the_list_goes_where_it_must,
        #[cfg(feature = "dpdk")]
        over_dpdk_a_flood_ends_as_in_memory,
    ],
    anywhere: [
        in_memory_every_frame_of_the_list_goes_where_it_must,
        in_memory_a_flood_breaks_nothing,
        a_driver_with_a_mistake_is_found,
    ]
}
