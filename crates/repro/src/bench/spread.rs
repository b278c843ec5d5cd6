//! Alien names spread over servers by weight: how evenly, and which of them move.
//!
//! Ten servers have weights of 1 to 5, twice. The aliens are [`ALIENS`] names that no table holds. Three figures for each
//! contestant, in per cent, a sample for each run, with a hash key of its own:
//! * `spread/uneven`: by how much the server that is furthest from its due share is off, of that share,
//! * `spread/gone`: aliens that move when a server goes that has a tenth of them; so 10 is the least,
//! * `spread/names`: aliens that move when one in a hundred of the `n` names that the table holds leaves, and as many
//!   come. Of Maglev and ranges none can: names take no part in them, so their figure is 0 by what they are, and not by
//!   a measurement.
//!
//! Source: section VII.A of "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", which
//! proposes random colours to balance load.

use dataplane::maglev::{self, NOBODY, SLOTS};
use lookup::hash::{Digest, Rng, SecretKey, mix64};
use lookup::othello::spread::Servers;
use lookup::othello::{Othello, OthelloQuery, Settings, Sharded};
use lookup::traits::{Control, Query};

use super::{Listener, Options};
use crate::BenchError;
use crate::report::{Row, Setting};

/// Aliens of a run.
const ALIENS: usize = 1 << 22;
/// Weights of the servers.
const WEIGHTS: [u16; 10] = [1, 2, 3, 4, 5, 1, 2, 3, 4, 5];
/// The server that goes: it has a tenth of the aliens.
const GONE: usize = 2;
/// Bits of a value, where values are colours.
const VALUE_BITS: u8 = 16;

/// The contestants, all of which run when none are named.
pub const CONTESTANTS: [(&str, &str); 4] = [
    ("colours", "the papers' random colours of isolated cells, with slots by weight"),
    ("maglev", "the table of a switch: slots by weight, chosen by the name's digest"),
    ("ranges", "a range of digests for each server, in order"),
    ("chance", "a server at random: what the number of aliens alone leaves uneven"),
];

/// The servers of the aliens: at first, without one server, and with other live names.
struct Spread([Vec<u16>; 3]);

/// Runs the bench.
/// # Errors
/// [`BenchError`]; tables completed before the error have been handed to `listener`.
pub fn run(options: &Options, listener: &mut dyn Listener) -> Result<(), BenchError> {
    options.check()?;
    let chosen = options.chosen(&CONTESTANTS)?;
    for &n in &options.n {
        let mut samples = vec![[const { Vec::new() }; 3]; chosen.len()];
        for run in 0..options.runs {
            let seed = mix64(options.seed ^ u64::from(run) << 32);
            let mut rng = Rng::new(seed);
            let aliens: Vec<Digest> = (0..ALIENS).map(|_| Digest(rng.next_u64())).collect();
            for (name, samples) in chosen.iter().zip(&mut samples) {
                let Spread([before, gone, names]) = spread(name, n as usize, seed, &aliens)?;
                samples[0].push(uneven(&before));
                samples[1].push(moved(&before, &gone));
                samples[2].push(moved(&before, &names));
            }
        }
        let setting =
            Setting { n, value_bits: VALUE_BITS, names: "digests".into(), threads: 1, batch: 1, in_flight: 1 };
        for (at, bench) in ["spread/uneven", "spread/gone", "spread/names"].into_iter().enumerate() {
            let row =
                |(name, samples): (&String, &[Vec<f64>; 3])| Row::new(bench, name, &setting, "%", samples[at].clone());
            listener.table(&chosen.iter().zip(&samples).map(row).collect::<Vec<_>>());
        }
    }
    Ok(())
}

fn spread(contestant: &str, n: usize, seed: u64, aliens: &[Digest]) -> Result<Spread, BenchError> {
    let without = |server: usize| if server == GONE { 0 } else { WEIGHTS[server] };
    let all = |weight: &dyn Fn(usize) -> u16| -> Vec<u16> { (0..WEIGHTS.len()).map(weight).collect() };
    let (before, gone) = (all(&|server| WEIGHTS[server]), all(&without));
    Ok(match contestant {
        "colours" => colours(n, seed, aliens, &before, &gone)?,
        "maglev" => {
            let first = by_slots(aliens, &before);
            Spread([first.clone(), by_slots(aliens, &gone), first])
        }
        "ranges" => {
            let first = by_range(aliens, &before);
            Spread([first.clone(), by_range(aliens, &gone), first])
        }
        _ => {
            let mut rng = Rng::new(!seed);
            let random: Vec<Digest> = aliens.iter().map(|_| Digest(rng.next_u64())).collect();
            let again: Vec<Digest> = aliens.iter().map(|_| Digest(rng.next_u64())).collect();
            let first = by_range(&random, &before);
            Spread([first.clone(), by_range(&again, &gone), by_range(&again, &before)])
        }
    })
}

/// Aliens by the slots of a Maglev table.
fn by_slots(aliens: &[Digest], weights: &[u16]) -> Vec<u16> {
    let mut slots = vec![NOBODY; SLOTS];
    let server = |(index, &weight): (u16, &u16)| maglev::Server { index, name: mix64(u64::from(index) + 1), weight };
    maglev::fill(&mut slots, (0..).zip(weights).map(server));
    aliens.iter().map(|digest| slots[maglev::slot(digest.0)]).collect()
}

/// Aliens by ranges of digests.
fn by_range(aliens: &[Digest], weights: &[u16]) -> Vec<u16> {
    let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
    let server = |digest: &Digest| {
        let mut at = ((u128::from(digest.0) * u128::from(total)) >> 64) as u64;
        let mut index = 0;
        while at >= u64::from(weights[index]) {
            at -= u64::from(weights[index]);
            index += 1;
        }
        index as u16
    };
    aliens.iter().map(server).collect()
}

/// Aliens by the colours of an Othello of `n` names.
fn colours(n: usize, seed: u64, aliens: &[Digest], before: &[u16], gone: &[u16]) -> Result<Spread, BenchError> {
    let refused = |error: &dyn std::fmt::Display| BenchError::Setting(format!("colours of {n} names: {error}"));
    let wide = |weights: &[u16]| weights.iter().map(|&weight| u64::from(weight)).collect::<Vec<_>>();
    let settings = Settings::new(VALUE_BITS, n.max(1), &SecretKey::from_seed(seed)).with_spread();
    let mut rng = Rng::new(mix64(seed));
    let entry = |rng: &mut Rng, value: usize| (Digest(rng.next_u64()), 1 + (value % WEIGHTS.len()) as u64);
    let names: Vec<_> = (0..n).map(|at| entry(&mut rng, at)).collect();
    let (mut table, mut query) = Othello::<Sharded>::build(settings, &names, 1).map_err(|error| refused(&error))?;
    let mut servers = Servers::new(VALUE_BITS, &wide(before)).map_err(|error| refused(&error))?;
    let values = |query: &OthelloQuery| {
        let mut values = vec![0; aliens.len()];
        query.lookup_batch(aliens, &mut values);
        values
    };
    let by = |servers: &Servers, values: &[u64]| -> Vec<u16> {
        values.iter().map(|&value| servers.server(value).unwrap_or(NOBODY)).collect()
    };
    let first = values(&query);
    let at_first = by(&servers, &first);
    let mut updates = Vec::new();
    for (at, (name, _)) in names.iter().enumerate().take(n / 100) {
        table.remove(*name, &mut updates);
        let (digest, value) = entry(&mut rng, at);
        table.insert(digest, value, &mut updates).map_err(|error| refused(&error))?;
    }
    for update in &updates {
        query.apply(update).map_err(|error| refused(&error))?;
    }
    let with_others = by(&servers, &values(&query));
    servers.set_weights(&wide(gone)).map_err(|error| refused(&error))?;
    Ok(Spread([at_first, by(&servers, &first), with_others]))
}

/// How far the worst server is from its share, in per cent of that.
fn uneven(servers: &[u16]) -> f64 {
    let mut counts = [0u64; WEIGHTS.len()];
    servers.iter().filter(|&&server| server != NOBODY).for_each(|&server| counts[usize::from(server)] += 1);
    let total: u16 = WEIGHTS.iter().sum();
    let off = |(&count, &weight): (&u64, &u16)| {
        let due = servers.len() as f64 * f64::from(weight) / f64::from(total);
        (count as f64 / due - 1.0).abs() * 100.0
    };
    counts.iter().zip(&WEIGHTS).map(off).fold(0.0, f64::max)
}

/// Aliens that have another server, in per cent.
fn moved(before: &[u16], after: &[u16]) -> f64 {
    let n = before.iter().zip(after).filter(|(before, after)| before != after).count();
    n as f64 / before.len() as f64 * 100.0
}
