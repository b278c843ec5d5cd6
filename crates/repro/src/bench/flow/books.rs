//! Where entries of a flow table are, counted rather than timed: entries in their second buckets, entries that a bucket
//! has elsewhere, bytes per slot.

use super::{Options, fill, made, sides, turn_over};
use crate::BenchError;
use crate::bench::Listener;

/// Shares of the entries that are in their second bucket at each of `options.load`: while one table fills, and in a
/// separate table after `turnovers` turnovers. The loads ascend.
/// # Errors
/// [`BenchError`]
pub(crate) fn second_shares(
    options: &Options,
    name: &str,
    turnovers: usize,
    listener: &mut dyn Listener,
) -> Result<[Vec<f64>; 2], BenchError> {
    options.check()?;
    let capacity = options.capacity[0];
    let mut shares: [Vec<f64>; 2] = Default::default();
    let Some(mut filling) = made(options, name, capacity, listener)? else { return Ok(shares) };
    let mut n_before = 0;
    for &load in &options.load {
        let n = (capacity as f64 * load) as u64;
        fill(options, name, filling.as_mut(), n_before..n)?;
        n_before = n;
        shares[0].extend(filling.second_share());
        if turnovers > 0 {
            let Some(mut side) = made(options, name, capacity, listener)? else { continue };
            fill(options, name, side.as_mut(), 0..n)?;
            turn_over(options, name, side.as_mut(), n, turnovers)?;
            shares[1].extend(side.second_share());
        }
    }
    Ok(shares)
}

/// How many buckets have 0, 1, 2 ... entries that are in their second bucket, in a table at `options.load[0]` after
/// `turnovers` turnovers; `None` if the policy does not count them.
/// # Errors
/// [`BenchError`]
pub(crate) fn moved_counts(
    options: &Options,
    name: &str,
    turnovers: usize,
    listener: &mut dyn Listener,
) -> Result<Option<Vec<u64>>, BenchError> {
    options.check()?;
    let (capacity, load) = (options.capacity[0], options.load[0]);
    let n = (capacity as f64 * load) as u64;
    let Some(mut side) = made(options, name, capacity, listener)? else { return Ok(None) };
    fill(options, name, side.as_mut(), 0..n)?;
    turn_over(options, name, side.as_mut(), n, turnovers)?;
    Ok(side.moved_counts())
}

/// Bytes per slot, over the slots that may be filled; `None` if the contestant is not available here.
/// # Errors
/// [`BenchError`]
pub(crate) fn bytes_a_slot(
    options: &Options,
    name: &str,
    listener: &mut dyn Listener,
) -> Result<Option<f64>, BenchError> {
    options.check()?;
    let capacity = options.capacity[0];
    let side = made(options, name, capacity, listener)?;
    Ok(side.map(|side| side.bytes() as f64 / sides::usable_slots(name, capacity) as f64))
}

/// Entries that were moved per insert into an empty table, up to each of `options.load`, which ascend; none if the
/// contestant does not count them.
/// # Errors
/// [`BenchError`]
pub(crate) fn moves_an_insert(
    options: &Options,
    name: &str,
    listener: &mut dyn Listener,
) -> Result<Vec<f64>, BenchError> {
    options.check()?;
    let capacity = options.capacity[0];
    let Some(mut side) = made(options, name, capacity, listener)? else { return Ok(Vec::new()) };
    let (mut moves, mut n_before) = (Vec::new(), 0);
    for &load in &options.load {
        let n = (capacity as f64 * load) as u64;
        fill(options, name, side.as_mut(), n_before..n)?;
        n_before = n;
        moves.extend(side.n_moved().map(|moved| moved as f64 / n as f64));
    }
    Ok(moves)
}
