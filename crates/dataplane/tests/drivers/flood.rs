//! Random frames, and frames of the list with a few bytes changed, cut or added.

use super::fixtures::{Scene, is_fragment};
use super::rig::{At, Driver, PORTS, Rig, WINDOW};
use lookup::testkit::Rng;

/// Longest random frame: well within every MTU.
const LONGEST: u64 = 300;

/// `n` frames that follow from a seed.
pub(crate) fn frames(scene: &Scene, seed: u64, n: usize) -> Vec<At> {
    let mut rng = Rng::new(seed);
    (0..n).map(|_| (PORTS[rng.below(4) as usize], frame(scene, &mut rng))).collect()
}

fn frame(scene: &Scene, rng: &mut Rng) -> Vec<u8> {
    let mut random = |n: u64| (0..n).map(|_| rng.below(256) as u8).collect::<Vec<u8>>();
    let noise = random(8);
    let len = u64::from(noise[0]) * LONGEST / 255;
    if noise[1] < 24 {
        return random(len);
    }
    let pick = |n: usize, by: u8, and: u8| (usize::from(by) << 8 | usize::from(and)) % n;
    let mut frame = scene.fixtures[pick(scene.fixtures.len(), noise[2], noise[3])].frame.clone();
    // Of the long ones, few: they are all alike.
    frame.truncate(LONGEST as usize);
    for _ in 0..noise[4] % 4 {
        let change = random(3);
        if !frame.is_empty() {
            // Mostly where headers are.
            let at = pick(frame.len(), change[0] & 7, change[1]) % frame.len().min(usize::from(change[0]) + 20);
            frame[at] = change[2];
        }
    }
    match noise[5] % 8 {
        0 => frame.truncate(pick(frame.len() + 1, noise[6], noise[7])),
        1 => frame.extend(random(u64::from(noise[6]))),
        2 if frame.len() >= 12 => drop(frame.splice(12..12, [0x81, 0, noise[6], noise[7]])),
        3 if frame.len() >= 12 => drop(frame.splice(12..12, [0x88, 0xb5, noise[6], noise[7]])),
        _ => {}
    }
    frame
}

/// Whether a frame comes to the switch over such a wire.
fn comes(driver: Driver, frame: &[u8]) -> bool {
    let ends_in_tag = (14..20).contains(&frame.len()) && matches!(frame[12..14], [0x81, 0] | [0x88, 0xa8]);
    match driver {
        Driver::Memory => true,
        Driver::AfPacket | Driver::Dpdk => frame.len() >= 14 && !ends_in_tag,
        Driver::AfXdp | Driver::Xdp => frame.len() >= 14,
    }
}

/// As a driver hands a frame on: see `Fixture::has_service_tag`.
fn as_handed_on(driver: Driver, mut frame: Vec<u8>) -> Vec<u8> {
    if driver == Driver::Dpdk && frame.len() >= 14 && frame[12..14] == [0x88, 0xa8] {
        frame[12..14].copy_from_slice(&[0x81, 0]);
    }
    frame
}

/// What came out, sorted, and what was dropped why.
type Outcome = (Vec<At>, Vec<(String, u64)>);

/// Plays frames through a switch.
fn play(rig: &mut Rig, scene: &Scene, frames: &[At]) -> Result<Outcome, String> {
    let before = rig.totals();
    let mut out = vec![];
    for part in frames.chunks(WINDOW) {
        for (port, frame) in part {
            rig.send(*port, frame);
        }
        out.extend(rig.settle(scene, &PORTS)?);
    }
    out.sort_unstable();
    let after = rig.totals();
    let lost = after.lost_since(&before);
    if !lost.is_empty() {
        return Err(format!("the devices lost frames: {lost:?}"));
    }
    let answered = after.all.answered - before.all.answered;
    let drops = after.drops_since(&before).into_iter().map(|(reason, n)| (reason.name().to_owned(), n));
    Ok((out, drops.chain([("answered".to_owned(), answered)]).collect()))
}

/// Plays a flood through a driver, and through memory what of it comes over such a wire: the outcome must be the same. The
/// counters add up after each part of it, and the switch still forwards then ([`Rig::settle`]).
pub(crate) fn check(driver: Driver, scene: &Scene, seed: u64, n: usize) -> Result<String, String> {
    let mut frames = frames(scene, seed, n);
    if driver == Driver::Dpdk {
        // The kernel keeps some of them, and which is its business: see `Scene::add`.
        frames.retain(|(_, frame)| !is_fragment(frame));
    }
    let (out, drops) = play(&mut Rig::new(driver, scene), scene, &frames)?;
    let of_wire: Vec<At> = frames
        .into_iter()
        .filter(|(_, frame)| comes(driver, frame))
        .map(|(port, frame)| (port, as_handed_on(driver, frame)))
        .collect();
    let (mut expected, expected_drops) = play(&mut Rig::new(Driver::Memory, scene), scene, &of_wire)?;
    expected.sort_unstable();
    if let Some(missing) = expected.iter().find(|&at| n_of(&expected, at) > n_of(&out, at)) {
        return Err(format!("out of port {} came no, or one less {:02x?}", missing.0, missing.1));
    }
    if let Some(more) = out.iter().find(|&at| n_of(&out, at) > n_of(&expected, at)) {
        return Err(format!("out of port {} came {:02x?}, which does not come in memory", more.0, more.1));
    }
    if drops != expected_drops {
        return Err(format!("dropped {drops:?}; in memory {expected_drops:?}"));
    }
    Ok(format!("{} of {n} frames came over the wire, {} went on, dropped {drops:?}", of_wire.len(), out.len()))
}

/// How often a sorted list has it.
fn n_of(sorted: &[At], at: &At) -> usize {
    sorted.partition_point(|other| other <= at) - sorted.partition_point(|other| other < at)
}
