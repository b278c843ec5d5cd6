//! A filter in front of a table: names that it rejects are aliens and get 0; all others are looked up in the table.
//!
//! Both are ordinary structures with the same key type. The filter's value is 1 for its names, and filter and table
//! hold the same names. An insert changes the table first, a removal the filter first, so that what passes the filter
//! is in the table.
//!
//! Cost: filter plus table; a rejected alien costs the filter lookup only. Updates: those of both halves, each wrapped
//! with a version of the pair, so that a lost one is noticed.
//! Readers: each half is read concurrently with its writer as usual. A burst that began before a name was removed may
//! find the name in the filter and its place in the table already reused. It then gets the answer of an alien that
//! passes.
//! ```text
//! | from 8 | to 8 | digest 8 | kind 1: 0 filter, 1 table, 2 both whole | bytes of the filter's or the table's update |
//! kind 2: | bytes of the filter 8 | the filter's | the table's |
//! ```
//! The digest in an update is the filter's, mixed with the version; the table checks its own. The digest of the pair's
//! state combines both.
//! Limits: a pair is one part, whatever its table is: a lost update costs the whole pair. The parts of a table keep
//! their own versions behind the pair's; after a restart, those at a switch are unknown, so the first change of each part
//! sends it whole. The filter is undivided.

mod query;
mod skeleton;
mod view;

pub use query::{FilteredQuery, Reader};
pub use skeleton::Filtered;
pub use view::FilteredView;

use crate::bloom_fib::{self, BloomFibQuery};
use crate::cuckoo::exact::{self, CuckooQuery};
use crate::hash::mix64;
use crate::traits::{HeldPart, Image, ImageOf, PartId, Replicated, Row, UpdateOf};

/// A query structure that can be put in front of another: its value is 1 for its names, 0 for others.
pub trait Filter: Replicated {
    /// The digest of a filter that has applied `update`.
    fn digest_after(update: &Self::Update) -> u64;
}

impl<const W: usize> Filter for CuckooQuery<W> {
    fn digest_after(update: &exact::Update<W>) -> u64 {
        match update {
            exact::Update::Slots(update) => update.digest,
            exact::Update::Table(image) => image.digest,
        }
    }
}

impl Filter for BloomFibQuery {
    fn digest_after(update: &bloom_fib::Update) -> u64 {
        match update {
            bloom_fib::Update::Cells(update) => update.digest,
            bloom_fib::Update::Table(image) => image.digest,
        }
    }
}

/// An update of a pair, under one version: `F` and `T` are the updates of filter and table, `I` and `J` their images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update<F, T, I, J> {
    from: u64,
    to: u64,
    digest: u64,
    what: What<F, T, I, J>,
}

impl<F, T, I, J> Update<F, T, I, J> {
    /// The table's update, if this carries one; none if it carries the filter's update, or images of both.
    pub fn of_table(&self) -> Option<&T> {
        match &self.what {
            What::Table(update) => Some(update),
            What::Filter(_) | What::Both(_) => None,
        }
    }
}

/// What an update changes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum What<F, T, I, J> {
    Filter(F),
    Table(T),
    Both(Pair<I, J>),
}

/// Filter and table, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair<I, J> {
    version: u64,
    filter: Vec<I>,
    table: Vec<J>,
}

impl<I: Image, J: Image> Image for Pair<I, J> {
    fn held(&self) -> HeldPart {
        let digest = both(self.filter.iter().map(Image::held), self.table.iter().map(Image::held));
        HeldPart { id: PartId::WHOLE, version: self.version, digest }
    }

    fn under(self, version: u64) -> Self {
        Self { version, ..self }
    }

    fn n_bytes(&self) -> usize {
        let filter: usize = self.filter.iter().map(Image::n_bytes).sum();
        filter + self.table.iter().map(Image::n_bytes).sum::<usize>()
    }
}

/// The digest stated in an update: the filter's, mixed with the version.
fn named(filter_digest: u64, version: u64) -> u64 {
    filter_digest ^ mix64(version)
}

/// The digest of the state of a pair.
fn both(filter: impl Iterator<Item = HeldPart>, table: impl Iterator<Item = HeldPart>) -> u64 {
    filter.chain(table).fold(0, |sum: u64, part| mix64(sum.rotate_left(1) ^ part.digest))
}

/// The updates of a pair.
type PairUpdate<F, T> = Update<UpdateOf<F>, UpdateOf<T>, ImageOf<F>, ImageOf<T>>;

/// Versions that one change may use: one update per half, more where a half is itself a pair.
const STEP: u64 = 16;

/// Marks rows as those of one half.
fn marked(mark: u8, row: Row) -> Row {
    Row { key: [&[mark], &row.key[..]].concat(), ..row }
}

/// The rows with this mark, with the mark removed.
fn of_half(rows: &[Row], mark: u8) -> Vec<Row> {
    let own = rows.iter().filter(|row| row.key.first() == Some(&mark));
    own.map(|row| Row { key: row.key[1..].to_vec(), value: row.value.clone() }).collect()
}

const OF_PAIR: u8 = 0;
const OF_FILTER: u8 = 1;
const OF_TABLE: u8 = 2;

/// The digest of a filter, which has one part.
fn digest_of_all(parts: impl Iterator<Item = HeldPart>) -> u64 {
    parts.fold(0, |sum, part| sum ^ part.digest)
}

/// The build parameters of both halves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings<F, T> {
    /// Settings of the filter.
    pub filter: F,
    /// Settings of the table.
    pub table: T,
}
