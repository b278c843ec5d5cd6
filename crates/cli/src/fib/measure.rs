//! Designs built and measured: their size, how many aliens pass, and how fast they are side by side.

use std::time::Instant;

use command::output::{Exit, Failure};
use fib::designs::{Aliens, BURST, Burst, Design, NameList, Spec, Table, keys};
use fib::model::designs::{Demand, Figures};
use fib::name::{Name, NameKind};
use lookup::hash::{Digest, Family, Hasher, SecretKey};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use serde::Serialize;

/// Aliens looked up: enough for two digits of a rate of 1 in 10,000.
const ALIENS: u64 = 1 << 20;
/// Approximate number of lines read for one figure of a design. So a design with a filter for each of 60,000 ports gets
/// fewer lookups.
const LINES: f64 = 5e8;
/// Minimum lookups per round, and maximum distinct names among them.
const MIN_LOOKUPS: usize = 1 << 17;
const LOOKUPS: usize = 1 << 20;
/// Rounds: each design is measured once in each, and its median counts.
const ROUNDS: usize = 5;
/// Minimum number of lookups in a round of [`inside`].
const INSIDE: usize = 1 << 22;
/// Bytes of a text name, as in the model.
const TEXT_BYTES: usize = 52;

/// Measured figures of one design.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measured {
    pub(super) n_names: u64,
    pub(super) fingerprint_bits: u8,
    pub(super) bits_per_name: f64,
    pub(super) wrong_answers: u64,
    /// Names that were looked up.
    pub(super) names_asked: u64,
    /// The rate that the built design declares: null where aliens get any action.
    pub(super) declared_false_positive_rate: Option<f64>,
    pub(super) false_positive_rate: f64,
    pub(super) lookups_m_per_s: f64,
    pub(super) build_s: f64,
}

/// Live names with their values, and aliens.
struct Names {
    live: Vec<Name>,
    values: Vec<u16>,
    aliens: Vec<Name>,
}

/// A built design.
struct Built {
    spec: Spec,
    table: Box<dyn Table>,
    hasher: Hasher,
    build_s: f64,
    /// Names answered wrongly, and names looked up.
    wrong: (u64, u64),
    /// Lines read per lookup.
    lines: f64,
}

/// Builds the designs of all `rows` with `n_names`, looks up the names in each, and times all in turns. Reports
/// progress on standard error.
/// # Errors
/// Exit code 2 when the kind has fewer names, 5 when a design cannot be built.
pub(super) fn measure(demand: &Demand, rows: &[Figures], n_names: u64, seed: u64) -> anyhow::Result<Vec<Measured>> {
    let names = names(demand, n_names, seed)?;
    let built = rows.iter().map(|row| build(row, demand, &names, seed)).collect::<Result<Vec<_>, _>>()?;
    let rates = rates(&built, &names, seed);
    let measured = built.iter().zip(rates).map(|(built, lookups_m_per_s)| {
        let aliens = &names.aliens[..built.most(names.aliens.len(), 1)];
        let passed = built.lookups(aliens).iter().filter(|&&value| value != 0).count();
        Measured {
            n_names,
            fingerprint_bits: built.spec.fingerprint_bits,
            bits_per_name: built.table.size_bits() as f64 / n_names as f64,
            wrong_answers: built.wrong.0,
            names_asked: built.wrong.1,
            declared_false_positive_rate: match built.spec.aliens_in(&*built.table, demand.n_actions) {
                Aliens::Arbitrary => None,
                Aliens::DroppedBut { rate } => Some(rate),
                Aliens::Dropped => Some(0.0),
            },
            false_positive_rate: passed as f64 / aliens.len() as f64,
            lookups_m_per_s,
            build_s: built.build_s,
        }
    });
    Ok(measured.collect())
}

/// Million lookups per second of the designs of `rows` at a core switch, with `n_names`: names are digests, which the
/// edge has computed, and two bursts are in flight, as at a busy switch.
/// # Errors
/// As for [`measure`].
pub(super) fn inside(demand: &Demand, rows: &[Figures], n_names: u64, seed: u64) -> anyhow::Result<Vec<f64>> {
    let names = names(demand, n_names, seed)?;
    let built = rows.iter().map(|row| build(row, demand, &names, seed)).collect::<Result<Vec<_>, _>>()?;
    let order = random_order(names.live.len(), seed);
    let mut samples = vec![Vec::new(); built.len()];
    for _ in 0..ROUNDS {
        for (built, samples) in built.iter().zip(&mut samples) {
            let digests: Vec<Digest> =
                order.iter().map(|&at| built.hasher.digest(names.live[at as usize].as_bytes())).collect();
            let start = Instant::now();
            let passes = (INSIDE / digests.len()).max(1);
            (0..passes).for_each(|_| built.pipelined(&digests));
            samples.push((passes * digests.len()) as f64 / 1e6 / start.elapsed().as_secs_f64());
        }
    }
    Ok(samples.into_iter().map(median).collect())
}

/// The places of up to [`LOOKUPS`] of the names, in random order.
fn random_order(n_names: usize, seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..n_names as u32).collect();
    let n_queries = n_names.min(LOOKUPS);
    order.partial_shuffle(&mut StdRng::seed_from_u64(seed), n_queries).0.to_vec()
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn build(row: &Figures, demand: &Demand, names: &Names, seed: u64) -> anyhow::Result<Built> {
    let n_names = names.live.len();
    eprintln!("building {} with {n_names} names", row.design);
    let refused = |error: String| Failure::new(Exit::Refused, format!("{} cannot be built: {error}", row.design));
    let design = Design::by_name(row.design).map_err(|error| refused(error.to_string()))?;
    let key = SecretKey::from_seed(seed);
    let spec = Spec::new(design, demand.kind, Family::MulAdd, key, demand.value_bits as u8, n_names)
        .with_fingerprint(row.l_f as u8)
        .map_err(|error| refused(error.to_string()))?;
    let hasher = spec.hasher();
    let entries: Vec<_> = keys(&hasher, names.live.iter()).into_iter().zip(names.values.iter().copied()).collect();
    let start = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let table = spec.build(&entries, threads).map_err(|error| refused(error.to_string()))?;
    let build_s = start.elapsed().as_secs_f64();
    let lines = row.lines.max(row.lines_alien);
    let mut built = Built { spec, table, hasher, build_s, wrong: (0, 0), lines };
    let n_asked = built.most(n_names, 1);
    let answers = built.lookups(&names.live[..n_asked]).into_iter().zip(&names.values);
    built.wrong = (answers.filter(|(got, expected)| *got != u64::from(**expected)).count() as u64, n_asked as u64);
    Ok(built)
}

/// Million lookups per second of each design: the median over rounds in which all take turns.
fn rates(built: &[Built], names: &Names, seed: u64) -> Vec<f64> {
    let order = random_order(names.live.len(), seed);
    let n_queries = order.len();
    // Contiguous, like names in frames, so that the measurement is of the table.
    let queries: Vec<Name> = order.iter().map(|&at| names.live[at as usize].clone()).collect();
    let mut samples = vec![Vec::new(); built.len()];
    for _ in 0..ROUNDS {
        for (built, samples) in built.iter().zip(&mut samples) {
            let queries = &queries[..built.most(n_queries, 8 * ROUNDS)];
            let passes = (built.most(MIN_LOOKUPS, 8 * ROUNDS) / queries.len()).max(1);
            let start = Instant::now();
            for _ in 0..passes {
                std::hint::black_box(built.lookups(queries));
            }
            samples.push((passes * queries.len()) as f64 / 1e6 / start.elapsed().as_secs_f64());
        }
    }
    samples.into_iter().map(median).collect()
}

impl Built {
    /// The number of lookups, at most `n`, that the budget of [`LINES`] divided by `times` allows.
    fn most(&self, n: usize, times: usize) -> usize {
        n.min((LINES / self.lines) as usize / times).max(1)
    }

    /// Looks up digests with two bursts in flight.
    fn pipelined(&self, digests: &[Digest]) {
        let mut reader = self.table.reader();
        let burst = |digests| Burst { digests, names: &NameList(&[]) };
        let mut begun = digests.chunks(BURST);
        begun.by_ref().take(1).for_each(|digests| reader.begin(&burst(digests)));
        for digests in digests.chunks(BURST) {
            if let Some(next) = begun.next() {
                reader.begin(&burst(next));
            }
            let mut values = [0; BURST];
            reader.finish(&burst(digests), &mut values[..digests.len()]);
            std::hint::black_box(values);
        }
    }

    /// Looks up names as a switch does: the digests of a burst, then the burst.
    fn lookups(&self, names: &[Name]) -> Vec<u64> {
        let mut reader = self.table.reader();
        let mut values = vec![0; names.len()];
        for (names, values) in names.chunks(BURST).zip(values.chunks_mut(BURST)) {
            let mut digests = [Digest(0); BURST];
            let mut burst = [&names[0]; BURST];
            for ((digest, place), name) in digests.iter_mut().zip(&mut burst).zip(names) {
                (*digest, *place) = (self.hasher.digest(name.as_bytes()), name);
            }
            let names = NameList(&burst[..names.len()]);
            reader.lookup_batch(&Burst { digests: &digests[..names.0.len()], names: &names }, values);
        }
        values
    }
}

fn names(demand: &Demand, n_names: u64, seed: u64) -> anyhow::Result<Names> {
    let bytes = match demand.kind {
        NameKind::Text => TEXT_BYTES,
        _ => demand.name_bits() as usize / 8,
    };
    let numbers = 1u64.checked_shl(8 * bytes as u32).unwrap_or(u64::MAX);
    let aliens = ALIENS.min(numbers.saturating_sub(n_names));
    if n_names == 0 || aliens == 0 || n_names > 1 << 30 {
        let text = format!("{n_names} names of kind {} and aliens besides cannot be generated", demand.kind);
        return Err(Failure::new(Exit::Usage, format!("{text}: give --measure-n a number that leaves some")));
    }
    let make = |number: u64| name(demand.kind, bytes, number, seed);
    let live = (0..n_names).map(make).collect::<Result<Vec<_>, _>>()?;
    let aliens = (n_names..n_names + aliens).map(make).collect::<Result<Vec<_>, _>>()?;
    let mut random = StdRng::seed_from_u64(seed ^ 0x7661_6c75);
    let values = (0..n_names).map(|_| random.random_range(1..=demand.n_actions as u16)).collect();
    Ok(Names { live, values, aliens })
}

/// The name with this number: scattered, and distinct for every number that fits its bits.
fn name(kind: NameKind, n_bytes: usize, number: u64, seed: u64) -> anyhow::Result<Name> {
    let bits = (8 * n_bytes).min(64) as u32;
    let mask = u64::MAX >> (64 - bits);
    let mut x = number.wrapping_add(seed) & mask;
    for _ in 0..2 {
        x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask;
        x ^= x >> (bits / 2);
    }
    let bytes = if kind == NameKind::Text {
        format!("/{x:016x}{:>width$}", "", width = n_bytes - 17).replace(' ', "v").into_bytes()
    } else {
        let rest = StdRng::seed_from_u64(x).next_u64().to_le_bytes();
        x.to_le_bytes().into_iter().chain(rest.into_iter().cycle()).take(n_bytes).collect()
    };
    Ok(Name::from_bytes(kind, &bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_of_all_kinds_differ() {
        let kinds =
            [NameKind::Mac, NameKind::Ipv4, NameKind::Ipv6, NameKind::FiveTuple, NameKind::Teid, NameKind::Text];
        for kind in kinds.into_iter().chain([1, 2, 7, 9, 64].map(NameKind::Fixed)) {
            let demand = Demand::new(kind, 200, 32, 0.01);
            let names = names(&demand, 200, 1).unwrap();
            let distinct: HashSet<&Name> = names.live.iter().chain(&names.aliens).collect();
            assert_eq!(distinct.len(), names.live.len() + names.aliens.len(), "{kind}");
            assert!(names.values.iter().all(|value| (1..=32).contains(value)));
        }
        assert!(names(&Demand::new(NameKind::Fixed(1), 300, 2, 0.5), 300, 1).is_err());
    }
}
