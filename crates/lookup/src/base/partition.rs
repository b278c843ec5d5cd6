//! Builds parts from all names at once: partitions the names by their digests, then solves one part after another, in
//! the cache.
//!
//! The names are read once to count them, and once more for every slice of at most [`MAX_STREAMS`] parts. They are
//! written once, to where they stay: the first write to new memory is a third of a build, so there is no copy in
//! between. Threads take slices. The thread that wrote a part solves it.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::base::part::{MAX_DEPTH, prefix_of};
use crate::hash::Digest;

/// Parts that are written at the same time. Their current lines fit into the second-level cache, and their pages into
/// the TLB.
const MAX_STREAMS: usize = 2048;

/// The least depth at which parts have at most `most` of `n_names` names on average.
pub(crate) fn depth(n_names: usize, most: usize) -> u8 {
    (0..MAX_DEPTH).find(|&depth| n_names >> depth <= most).unwrap_or(MAX_DEPTH)
}

/// As [`solve_by`], for parts whose digests begin with the `depth` bits of their number.
/// # Errors
/// The error of the first part that failed.
pub(crate) fn solve<P: Copy + Sync, T, R: Send, E: Send, S: Default>(
    entries: &[(Digest, P)],
    depth: u8,
    threads: usize,
    item: impl Fn(Digest, P) -> T + Copy + Sync,
    solve: impl Fn(u32, Vec<T>, &mut S) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let part_of = |digest: Digest| prefix_of(digest.0, depth);
    solve_by(entries, 1 << depth, part_of, threads, item, |prefix, items, scratch| solve(prefix as u32, items, scratch))
}

/// The result of `solve` for each part, in the order of their numbers. `part_of` gives the number of a digest's part.
/// `solve` gets the number of a part, its items, and scratch memory that it keeps from part to part.
/// # Errors
/// The error of the first part that failed.
pub(crate) fn solve_by<P: Copy + Sync, T, R: Send, E: Send, S: Default>(
    entries: &[(Digest, P)],
    n_parts: usize,
    part_of: impl Fn(Digest) -> usize + Copy + Sync,
    threads: usize,
    item: impl Fn(Digest, P) -> T + Copy + Sync,
    solve: impl Fn(usize, Vec<T>, &mut S) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let n_slices = threads.max(n_parts.div_ceil(MAX_STREAMS)).clamp(1, n_parts);
    let mut counts = vec![0u32; n_parts];
    for &(digest, _) in entries {
        counts[part_of(digest)] += 1;
    }
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let work = || {
        let mut scratch = S::default();
        loop {
            let slice = next.fetch_add(1, Ordering::Relaxed);
            if slice >= n_slices {
                return;
            }
            let numbers = slice * n_parts / n_slices..(slice + 1) * n_parts / n_slices;
            let parts = items_of(entries, part_of, numbers.clone(), &counts, item);
            let outcome: Result<Vec<R>, E> =
                numbers.zip(parts).map(|(number, items)| solve(number, items, &mut scratch)).collect();
            results.lock().expect("no panic in a worker").push((slice, outcome));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(n_slices) {
            scope.spawn(work);
        }
        work();
    });
    let mut results = results.into_inner().expect("no panic in a worker");
    results.sort_unstable_by_key(|&(slice, _)| slice);
    let mut all = Vec::with_capacity(n_parts);
    for (_, outcome) in results {
        all.append(&mut outcome?);
    }
    Ok(all)
}

/// The items of every part in `numbers`, with capacity for later inserts.
fn items_of<P: Copy, T>(
    entries: &[(Digest, P)],
    part_of: impl Fn(Digest) -> usize,
    numbers: Range<usize>,
    counts: &[u32],
    item: impl Fn(Digest, P) -> T,
) -> Vec<Vec<T>> {
    let n_items = counts[numbers.clone()].iter();
    let mut parts: Vec<_> = n_items.map(|&n| Vec::with_capacity(with_slack(n as usize))).collect();
    for &(digest, payload) in entries {
        // A number below the range wraps to a large one, which no part has.
        if let Some(part) = parts.get_mut(part_of(digest).wrapping_sub(numbers.start)) {
            part.push(item(digest, payload));
        }
    }
    parts
}

/// Capacity for the inserts that a part takes before it is solved again: a seventh of its names, because shards fill
/// from 2.40 down to 2.10 cells per name.
pub(crate) fn with_slack(n_names: usize) -> usize {
    n_names + n_names / 7 + 1
}
