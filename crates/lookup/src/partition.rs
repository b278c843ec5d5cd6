//! Building from all names at once: partition by the first bits of the digest, then one part after another, in cache.
//!
//! The names are read once to count, then once for every slice of at most [`MAX_STREAMS`] parts, and written once, to
//! where they stay: first touching memory is a third of a build, so no copy is made in between. Threads take slices; each
//! part is solved by the thread that wrote it.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::hash::Digest;
use crate::othello::graph::{MAX_DEPTH, prefix_of};

/// Parts that are written at once: their current lines fit the second-level cache, their pages the TLB.
const MAX_STREAMS: usize = 2048;

/// The least depth at which `n_names` are at most `most` a part, on average.
pub(crate) fn depth(n_names: usize, most: usize) -> u8 {
    (0..MAX_DEPTH).find(|&depth| n_names >> depth <= most).unwrap_or(MAX_DEPTH)
}

/// What `solve` makes of each part, given its prefix, its items and memory that it keeps from part to part, in order of
/// prefixes.
/// # Errors
/// The first part's that failed.
pub(crate) fn solve<P: Copy + Sync, T, R: Send, E: Send, S: Default>(
    entries: &[(Digest, P)],
    depth: u8,
    threads: usize,
    item: impl Fn(Digest, P) -> T + Copy + Sync,
    solve: impl Fn(u32, Vec<T>, &mut S) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let n_parts = 1usize << depth;
    let n_slices = threads.max(n_parts.div_ceil(MAX_STREAMS)).clamp(1, n_parts);
    let mut counts = vec![0u32; n_parts];
    for &(digest, _) in entries {
        counts[prefix_of(digest.0, depth)] += 1;
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
            let prefixes = slice * n_parts / n_slices..(slice + 1) * n_parts / n_slices;
            let parts = items_of(entries, depth, prefixes.clone(), &counts, item);
            let outcome: Result<Vec<R>, E> =
                prefixes.zip(parts).map(|(prefix, items)| solve(prefix as u32, items, &mut scratch)).collect();
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

/// The items of every part of `prefixes`, with room for the inserts to come.
fn items_of<P: Copy, T>(
    entries: &[(Digest, P)],
    depth: u8,
    prefixes: Range<usize>,
    counts: &[u32],
    item: impl Fn(Digest, P) -> T,
) -> Vec<Vec<T>> {
    let n_items = counts[prefixes.clone()].iter();
    let mut parts: Vec<_> = n_items.map(|&n| Vec::with_capacity(with_slack(n as usize))).collect();
    for &(digest, payload) in entries {
        // A prefix below the range wraps to a large number.
        if let Some(part) = parts.get_mut(prefix_of(digest.0, depth).wrapping_sub(prefixes.start)) {
            part.push(item(digest, payload));
        }
    }
    parts
}

/// Room for the inserts that a part takes before it is solved anew: a seventh of its names, as 2.40 is of 2.10.
pub(crate) fn with_slack(n_names: usize) -> usize {
    n_names + n_names / 7 + 1
}
