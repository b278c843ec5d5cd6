//! Distinguishes a whole store from a damaged one: a checksum in each row, and a seal over all rows.
//!
//! The seal has the number of rows and the sum, modulo 2^128, of a 128-bit hash of each row (an additive multiset hash). A
//! change adds the hashes of the rows that come and subtracts those of the rows that go, so it costs two hashes a row. It
//! is committed in the same transaction as the rows, in a row of its own (kind 0), and recomputed from all rows at every
//! start.
//!
//! The keys of the hashes are fixed: they find damage, not forgery. Anyone who can write the file can make another seal.

use super::RowChange;
use lookup::hash::{SecretKey, WyPair};
use std::sync::LazyLock;

/// Kind of the row that holds the seal.
pub(super) const SEAL_ROW: u8 = 0;

/// A 128-bit hash of a row. The checksum in the row is its first half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RowHash(pub(super) u128);

impl RowHash {
    /// Hashes `kind`, the length of `key`, `key` and `value`. Overwrites `scratch`.
    pub(super) fn of(kind: u8, key: &[u8], value: &[u8], scratch: &mut Vec<u8>) -> RowHash {
        static HASHER: LazyLock<WyPair> = LazyLock::new(|| {
            let keys = [*b"fibula store checksum of a row 1", *b"fibula store checksum of a row 2"];
            WyPair::new(keys.map(SecretKey::from_bytes).each_ref())
        });
        scratch.clear();
        scratch.push(kind);
        scratch.extend_from_slice(&(key.len() as u32).to_le_bytes());
        scratch.extend_from_slice(key);
        scratch.extend_from_slice(value);
        let [first, second] = HASHER.digest(scratch).map(|digest| u128::from(digest.0));
        RowHash(second << 64 | first)
    }

    /// The checksum that is kept in the row.
    pub(super) fn checksum(self) -> i64 {
        (self.0 as u64).cast_signed()
    }
}

/// A 64-bit fingerprint of bytes that are no row.
pub(super) fn fingerprint(bytes: &[u8]) -> u64 {
    RowHash::of(0xff, &[], bytes, &mut Vec::new()).0 as u64
}

/// Number of rows, and the sum of their hashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    /// The number, modulo 2^64.
    pub n_rows: u64,
    /// The sum, modulo 2^128.
    pub digest: u128,
}

impl Sum {
    pub(super) fn add(&mut self, row: RowHash) {
        self.n_rows = self.n_rows.wrapping_add(1);
        self.digest = self.digest.wrapping_add(row.0);
    }

    /// Adds a row that is put, or takes away one that is deleted, as if it had been empty.
    pub(crate) fn add_change(&mut self, row: &RowChange, scratch: &mut Vec<u8>) {
        let hash = RowHash::of(row.kind, &row.key, row.value.as_deref().unwrap_or_default(), scratch);
        if row.value.is_some() { self.add(hash) } else { self.remove(hash) }
    }

    /// Adds a row that is there.
    pub(super) fn add_row(&mut self, row: &RowChange, scratch: &mut Vec<u8>) {
        self.add(RowHash::of(row.kind, &row.key, row.value.as_deref().unwrap_or_default(), scratch));
    }

    pub(super) fn remove(&mut self, row: RowHash) {
        self.n_rows = self.n_rows.wrapping_sub(1);
        self.digest = self.digest.wrapping_sub(row.0);
    }
}

/// What the row of kind 0 says about the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Seal {
    /// Random; the log of changes has the same.
    pub(super) store: u128,
    /// The term of the last owner.
    pub(super) term: u64,
    /// Transactions so far.
    pub(super) n_commits: u64,
    pub(super) sum: Sum,
    /// Whether the last owner stopped in order, so that the file alone is all of the store.
    pub(super) closed: bool,
}

const SEAL_LEN: usize = 16 + 8 + 8 + 8 + 16 + 1 + 8;

impl Seal {
    pub(super) fn row(&self) -> RowChange {
        let mut value = Vec::with_capacity(SEAL_LEN);
        value.extend_from_slice(&self.store.to_le_bytes());
        value.extend_from_slice(&self.term.to_le_bytes());
        value.extend_from_slice(&self.n_commits.to_le_bytes());
        value.extend_from_slice(&self.sum.n_rows.to_le_bytes());
        value.extend_from_slice(&self.sum.digest.to_le_bytes());
        value.push(self.closed.into());
        value.extend_from_slice(&fingerprint(&value).to_le_bytes());
        RowChange { kind: SEAL_ROW, key: Vec::new(), value: Some(value) }
    }

    /// The seal in the value of its row, if it is whole.
    pub(super) fn decode(value: &[u8]) -> Option<Seal> {
        let (content, check) = value.split_last_chunk::<8>()?;
        if value.len() != SEAL_LEN || fingerprint(content) != u64::from_le_bytes(*check) {
            return None;
        }
        let (store, rest) = content.split_first_chunk()?;
        let (term, rest) = rest.split_first_chunk()?;
        let (n_commits, rest) = rest.split_first_chunk()?;
        let (n_rows, rest) = rest.split_first_chunk()?;
        let (digest, rest) = rest.split_first_chunk()?;
        Some(Seal {
            store: u128::from_le_bytes(*store),
            term: u64::from_le_bytes(*term),
            n_commits: u64::from_le_bytes(*n_commits),
            sum: Sum { n_rows: u64::from_le_bytes(*n_rows), digest: u128::from_le_bytes(*digest) },
            closed: rest == [1],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seal_comes_back_from_its_row_and_no_flipped_bit_is_overlooked() {
        let sum = Sum { n_rows: 7, digest: u128::MAX / 3 };
        let seal = Seal { store: 1 << 100, term: 3, n_commits: 4, sum, closed: true };
        let value = seal.row().value.unwrap();
        assert_eq!(Seal::decode(&value), Some(seal));
        for bit in 0..value.len() * 8 {
            let mut damaged = value.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Seal::decode(&damaged), None, "bit {bit}");
        }
        assert_eq!(Seal::decode(&value[1..]), None);
    }

    #[test]
    fn sum_depends_on_rows_and_not_on_their_order() {
        let hash = |kind, key: &[u8], value: &[u8]| RowHash::of(kind, key, value, &mut Vec::new());
        let rows = [hash(1, b"a", b"bc"), hash(1, b"ab", b"c"), hash(2, b"a", b"bc"), hash(1, b"", b"abc")];
        let sum = |rows: &[RowHash]| {
            let mut sum = Sum::default();
            rows.iter().for_each(|row| sum.add(*row));
            sum
        };
        let mut some = sum(&rows);
        some.remove(rows[1]);
        assert_eq!(some, sum(&[rows[3], rows[2], rows[0]]));
        assert_eq!(rows.iter().map(|row| row.0).collect::<std::collections::BTreeSet<_>>().len(), rows.len());
    }
}
