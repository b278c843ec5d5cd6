//! Entries grouped into the parts of a structure, and the parts solved one by one on several threads.

use std::sync::Mutex;

use crate::hash::Digest;
use crate::traits::InsertError;

/// A digest and its value.
pub(super) type Entry = (u64, u64);

/// Entries in order of their part.
pub(super) struct Parts {
    entries: Vec<Entry>,
    /// Where each part starts, and the end.
    starts: Vec<usize>,
}

impl Parts {
    /// Groups `entries` by `part_of`: one pass to count, one to write.
    pub(super) fn group(entries: &[(Digest, u64)], n_parts: usize, part_of: impl Fn(u64) -> usize) -> Self {
        let mut starts = vec![0; n_parts + 1];
        for &(digest, _) in entries {
            starts[part_of(digest.0) + 1] += 1;
        }
        for part in 0..n_parts {
            starts[part + 1] += starts[part];
        }
        let mut next = starts.clone();
        let mut grouped = vec![(0, 0); entries.len()];
        for &(digest, value) in entries {
            let at = &mut next[part_of(digest.0)];
            grouped[*at] = (digest.0, value);
            *at += 1;
        }
        Self { entries: grouped, starts }
    }

    /// What `solve` makes of every part, in order, on up to `threads` threads.
    pub(super) fn solve<T: Send>(
        mut self,
        threads: usize,
        solve: impl Fn(usize, &mut [Entry]) -> Result<T, InsertError> + Sync,
    ) -> Result<Vec<T>, InsertError> {
        let n_parts = self.starts.len() - 1;
        let mut left = &mut self.entries[..];
        let mut slices = Vec::with_capacity(n_parts);
        for bounds in self.starts.windows(2) {
            let (slice, rest) = left.split_at_mut(bounds[1] - bounds[0]);
            slices.push(slice);
            left = rest;
        }
        let next = Mutex::new(slices.into_iter().enumerate());
        let results = Mutex::new(Vec::with_capacity(n_parts));
        let work = || {
            loop {
                let taken = next.lock().expect("no panic in a worker").next();
                let Some((part, entries)) = taken else { return };
                let outcome = solve(part, entries);
                results.lock().expect("no panic in a worker").push((part, outcome));
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.min(n_parts) {
                scope.spawn(work);
            }
            work();
        });
        let mut results = results.into_inner().expect("no panic in a worker");
        results.sort_unstable_by_key(|&(part, _)| part);
        results.into_iter().map(|(_, outcome)| outcome).collect()
    }
}

/// Sorts `entries`, and refuses two with one digest.
pub(super) fn sort_distinct(entries: &mut [Entry]) -> Result<(), InsertError> {
    entries.sort_unstable();
    match entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(InsertError::DuplicateDigest { digest: pair[0].0 }),
        None => Ok(()),
    }
}
