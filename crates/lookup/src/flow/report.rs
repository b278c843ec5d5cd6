//! A table's counters, its memory, and an audit of its books.

use super::bucket::Line;
use super::layout::{Layout, Memory, lanes};
use super::policy::{Policy, Second};
use super::store::Store;
use super::table::Table;
use crate::hash::{Digest, Hasher};

/// Counts of a table's operations since it was made.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Counters {
    /// Flows inserted.
    pub inserted: u64,
    /// Flows removed by the caller.
    pub removed: u64,
    /// Ended entries whose slots an insert reused.
    pub ended_reused: u64,
    /// Ended entries that were removed by the scan, or when the table grew.
    pub ended_scanned: u64,
    /// Entries that were moved to their other bucket: to make space, or to be in their first.
    pub moved: u64,
    /// Inserts refused: the flow was there.
    pub refused_exists: u64,
    /// Inserts refused: the table is full.
    pub refused_full: u64,
    /// Inserts refused: too many flows share buckets and tag.
    pub refused_crowded: u64,
    /// Inserts and refreshes refused: the lifetime is out of range.
    pub refused_lifetime: u64,
    /// Units by which the clock was held because the scan was behind.
    pub held_units: u64,
    /// Units by which the caller's clock went back.
    pub back_units: u64,
}

/// The memory of a table, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MemoryReport {
    /// Lines of metadata, including the entries if these are inline.
    pub buckets_bytes: usize,
    /// Separate keys and values.
    pub entries_bytes: usize,
    /// The part of both that is on huge pages, if the operating system reports it.
    pub huge_page_bytes: Option<usize>,
    /// The part of that on pages that the operator has reserved.
    pub reserved_page_bytes: usize,
    /// Slots, including those of an old generation.
    pub n_slots: usize,
}

/// The progress of a scan, a migration or a round of moves to first buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// Buckets that remain in this round.
    pub n_buckets_left: usize,
    /// Ended entries that were removed in this step.
    pub n_ended: usize,
    /// Entries that moved in this step: to the new generation, or to their first bucket.
    pub n_moved: usize,
}

/// The counts of an audit.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Audit {
    /// Entries stored, ended or not.
    pub n_entries: usize,
    /// Those of them in their second bucket.
    pub n_secondary: usize,
}

/// A table's books contradict its entries: a defect of this library, or of the hardware's memory.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("bucket {bucket}: {what}")]
pub struct AuditError {
    /// The bucket concerned.
    pub bucket: u32,
    /// What is wrong.
    pub what: String,
}

impl<L: Layout, P: Policy> Table<L, P> {
    /// How much memory is used for what.
    pub fn memory(&self) -> MemoryReport {
        let stores = || std::iter::once(&self.store).chain(&self.old);
        let [buckets_bytes, entries_bytes] = stores()
            .map(|store| store.memory.bytes())
            .fold([0; 2], |sum, bytes| [sum[0] + bytes[0], sum[1] + bytes[1]]);
        MemoryReport {
            buckets_bytes,
            entries_bytes,
            huge_page_bytes: stores().map(|store| store.memory.huge_page_bytes()).sum(),
            reserved_page_bytes: stores().map(|store| store.memory.reserved_page_bytes()).sum(),
            n_slots: stores().map(Store::n_slots).sum(),
        }
    }

    /// Whether a lookup of this absent flow would read the second bucket: a false positive of the hint.
    pub fn reads_second(&self, digest: Digest) -> bool {
        self.store.second(self.store.place(digest)).is_some()
    }

    /// The number of buckets that have 0, 1, 2 ... entries in their second bucket (the paper's moved counter, Figure
    /// 5); none for policies without that counter. O(buckets).
    pub fn moved_counts(&self) -> Option<Vec<u64>> {
        if matches!(P::SECOND, Second::Always | Second::Fetched) {
            return None;
        }
        let mut counts = vec![0];
        for line in std::iter::once(&self.store).chain(&self.old).flat_map(|store| store.memory.lines()) {
            let moved = usize::from(line.moved());
            counts.resize(counts.len().max(moved + 1), 0);
            counts[moved] += 1;
        }
        Some(counts)
    }

    /// Recounts everything and compares it with the books: every entry is where its key says; every owner has the right
    /// number and tags of its entries elsewhere. O(slots), with as much memory as the metadata.
    /// # Errors
    /// [`AuditError`]: the first contradiction.
    pub fn audit(&self) -> Result<Audit, AuditError> {
        let mut sum = Audit::default();
        for store in std::iter::once(&self.store).chain(&self.old) {
            let audit = audit(store, &self.hasher)?;
            sum.n_entries += audit.n_entries;
            sum.n_secondary += audit.n_secondary;
        }
        Ok(sum)
    }
}

fn audit<M: Memory, P: Policy>(store: &Store<M, P>, hasher: &Hasher) -> Result<Audit, AuditError> {
    let mut recounted = vec![M::Line::default(); store.n_buckets()];
    let mut sum = Audit::default();
    let lines = || (0u32..).zip(store.memory.lines());
    let error = |bucket, what: String| AuditError { bucket, what };
    for (bucket, line) in lines() {
        for lane in (0..M::Line::SLOTS).filter(|lane| line.occupied() >> lane & 1 != 0) {
            let slot = bucket * lanes::<M>() + lane as u32;
            let place = store.place(M::digest(hasher, store.memory.key(slot)));
            let first = if line.is_secondary(lane) { store.owner(slot) } else { bucket };
            if (first, store.memory.tag(slot)) != (place.first, place.tag) {
                return Err(error(bucket, format!("slot {lane} holds a flow of {place:?} as one of {first}")));
            }
            if line.is_secondary(lane) {
                recounted[first as usize].moved_out::<P>(place.tag, line.function_of(lane));
                sum.n_secondary += 1;
            }
            sum.n_entries += 1;
        }
    }
    for ((bucket, line), recounted) in lines().zip(&recounted) {
        if !line.has_books_of::<P>(recounted) {
            return Err(error(bucket, format!("its books are {line:?}, a recount gives {recounted:?}")));
        }
    }
    if sum.n_entries != store.n_entries() {
        return Err(error(0, format!("{} entries are stored, {} counted", sum.n_entries, store.n_entries())));
    }
    Ok(sum)
}
