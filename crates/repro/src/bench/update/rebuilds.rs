//! How often the additions of this bench make a table anew, counted rather than timed.

use lookup::othello::{Graph, Option2};
use lookup::traits::Control;

use super::tables::{Measured, Ours};
use super::{CHANGES, input, of_round};
use crate::BenchError;
use crate::bench::Options;
use crate::names::Random;

/// How often one Othello in the papers' second size is made anew in each run of the bench: by the names that the run adds
/// to it one by one. The names, their order and the table are those of the bench.
/// # Errors
/// [`BenchError`]
pub(crate) fn of_additions(options: &Options) -> Result<Vec<u64>, BenchError> {
    options.check()?;
    let n = options.n[0];
    let n_changes = options.operations.unwrap_or(CHANGES).min(n);
    let all = options.names.generate((n + n_changes) as usize, options.seed);
    let (names, spare) = all.split_at(n as usize);
    let mut table = Ours::<Graph<Option2, u64>>::build(&input(options, names), all.len())?;
    let mut random = Random::new(options.seed);
    let mut of_runs = Vec::new();
    for round in 1..=options.runs {
        let [inserts, alters] = of_round(options, names, spare, round, &mut random);
        let mut n_rebuilds = 0;
        for (changes, is_counted) in [(&inserts, true), (&alters, false)] {
            for &(name, value) in changes {
                let digest = table.digest(name);
                if let Err(error) = table.control.insert(digest, value, &mut table.updates) {
                    return Err(table.refused(error));
                }
                let of_this = table.updates.drain(..).filter(<Graph<Option2, u64> as Measured>::is_rebuild).count();
                n_rebuilds += if is_counted { of_this as u64 } else { 0 };
            }
        }
        for &(name, _) in &inserts {
            table.control.remove(table.digest(name), &mut table.updates);
            table.updates.clear();
        }
        // The bench adds them once more, in one batch.
        let entries: Vec<_> = inserts.iter().map(|&(name, value)| (table.digest(name), value)).collect();
        table.control.insert_batch(&entries, &mut table.updates).map_err(|error| table.refused(error))?;
        for &(name, _) in &inserts {
            table.control.remove(table.digest(name), &mut table.updates);
            table.updates.clear();
        }
        of_runs.push(n_rebuilds);
    }
    Ok(of_runs)
}
