//! The share of aliens that get an action.

use crate::designs::{Aliens, Burst, Design, FibControl, Key, NameList, Spec, Table, keys};
use crate::name::{Name, NameKind};
use lookup::hash::{Family, Hasher, SecretKey};

const N: usize = 20_000;
const ALIENS: usize = 100_000;
/// Tables of one design, since filters and fingerprints of one are alike for all aliens.
const TABLES: u64 = 6;

fn spec(design: &'static Design, kind: NameKind, seed: u64) -> Spec {
    Spec::new(design, kind, Family::MulAdd, SecretKey::from_seed(seed), 5, N)
}

fn names(range: std::ops::Range<usize>) -> Vec<Name> {
    let mac = |i: usize| Name::from_bytes(NameKind::Mac, &(0x0200_0000_0000 + i as u64).to_be_bytes()[2..]);
    range.map(|i| mac(i).unwrap()).collect()
}

fn value(number: usize, n_actions: usize) -> u32 {
    1 + (number % n_actions) as u32
}

fn answers(table: &dyn Table, hasher: &Hasher, names: &[Name]) -> Vec<u64> {
    let mut values = vec![0; names.len()];
    for (names, values) in names.chunks(32).zip(values.chunks_mut(32)) {
        let list: Vec<&Name> = names.iter().collect();
        let digests: Vec<_> = names.iter().map(|name| hasher.digest(name.as_bytes())).collect();
        table.lookup_batch(&Burst { digests: &digests, names: &NameList(&list) }, values);
    }
    values
}

/// The share of aliens that get an action from a table with this rate, new and after three turnovers; and then of the
/// names that were removed.
fn measured(design: &'static Design, rate: f64, n_actions: usize, seed: u64) -> [f64; 3] {
    let spec = spec(design, NameKind::Mac, seed).with_rate(rate, n_actions as u32).unwrap();
    let (hasher, live, aliens) = (spec.hasher(), names(0..N), names(1 << 30..(1 << 30) + ALIENS));
    let places = keys(&hasher, live.iter());
    let fill = |each: &mut dyn FnMut(Key<'_>, u32)| {
        places.iter().enumerate().for_each(|(i, key)| each(*key, value(i, n_actions)));
    };
    let mut control = spec.control(&fill, 2).unwrap();
    let values: Vec<u16> = (0..=n_actions as u16).collect();
    let passed = |table: &dyn Table, names: &[Name]| {
        answers(table, &hasher, names).iter().filter(|&&value| value != 0).count() as f64 / names.len() as f64
    };
    let share = |control: &dyn FibControl, live: &[Name], first: usize, gone: &[Name]| {
        let table = control.export_many(std::slice::from_ref(&values)).unwrap().remove(0);
        let own = answers(&*table, &hasher, live);
        let right = |(i, got): (usize, &u64)| *got == u64::from(value(first + i, n_actions));
        assert!(own.iter().enumerate().all(right), "{design}, seed {seed}: a live name is answered wrongly");
        [passed(&*table, &aliens), passed(&*table, gone)]
    };
    let [fresh, _] = share(&*control, &live, 0, &aliens);
    if design.is_static {
        return [fresh; 3];
    }
    // Three turnovers, a slice at a time, as names come and go.
    let all = names(0..4 * N);
    let all_keys = keys(&hasher, all.iter());
    for start in (0..3 * N).step_by(100) {
        let coming = start + N..start + N + 100;
        let put: Vec<_> = coming.map(|i| (all_keys[i], value(i, n_actions))).collect();
        let mut out = Vec::new();
        control.change(&[], &all_keys[start..start + 100], &mut out).unwrap();
        control.change(&put, &[], &mut out).unwrap();
    }
    let [churned, removed] = share(&*control, &all[3 * N..], 3 * N, &all[..3 * N]);
    [fresh, churned, removed]
}

/// Mean and standard error over tables.
fn mean(samples: &[f64]) -> (f64, f64) {
    let n = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / n;
    let between = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / (n - 1.0) / n;
    // Where hardly an alien passes, tables differ less than chance lets them.
    (mean, between.max(mean / (n * ALIENS as f64)).sqrt())
}

/// What passes is within three standard errors of what was wanted, or less where a fingerprint is
/// longer than it need be. It holds for a new table, and after names came and went.
pub fn aliens_pass_at_the_wanted_rate_at_most(designs: &[&'static Design]) {
    let seed = std::env::var("FIBULA_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("seed {seed}");
    let n_actions = 31;
    for &design in designs {
        for rate in [0.2, 0.01, 0.001] {
            let Ok(made) = spec(design, NameKind::Mac, seed).with_rate(rate, n_actions) else { continue };
            if matches!(made.aliens(), Aliens::Dropped) && rate < 0.2 {
                continue;
            }
            let samples: Vec<_> =
                (0..TABLES).map(|i| measured(design, rate, n_actions as usize, seed * 100 + i)).collect();
            for (at, when) in ["new", "after churn", "removed names"].into_iter().enumerate() {
                let (mean, error) = mean(&samples.iter().map(|sample| sample[at]).collect::<Vec<_>>());
                println!("{design}, {rate} wanted, {when}: {mean:.6} +- {error:.6}");
                assert!(mean <= rate + 3.0 * error, "{design}, seed {seed}, {when}: {mean}, {rate} wanted");
                let Aliens::DroppedBut { rate: declared } = made.aliens_of(n_actions) else { continue };
                assert!(mean <= declared + 3.0 * error, "{design}, {when}: {mean}, {declared} declared");
            }
        }
    }
}
