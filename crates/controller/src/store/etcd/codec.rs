//! The bytes in etcd: the seal, a row, and the journal of a big commit.
//!
//! ```text
//! seal     "fibula rib etcd 1" | term 8 | commits 8 | bytes of the journal 8 | its fingerprint 8 | fingerprint of this 8
//! row      value | checksum of kind, key and value 8
//! journal  kind 1 | bytes of the key 4 | bytes of the value + 1, or 0 for a deletion 4 | key | value, and so on
//! told     term 8 | number of the commit 8 | number of this part 4 | parts 4 | a piece of follow.proto's Told
//! ```

use super::EtcdAddress;
use crate::store::seal::{RowHash, fingerprint};
use crate::store::sqlite::hex;
use crate::store::{RowChange, StoreError};

const FORMAT: &[u8; 17] = b"fibula rib etcd 1";

/// The most bytes of the journal in one key. etcd takes requests of up to 1.5 MiB.
pub(super) const CHUNK: usize = 1 << 20;

/// The most bytes of the replication log in one key.
const TOLD: usize = CHUNK - 64;

/// The contents of the key that every transaction compares and every commit replaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Seal {
    pub(super) term: u64,
    pub(super) n_commits: u64,
    /// Bytes of the journal that are yet to be applied; 0 if there is none.
    pub(super) journal_bytes: u64,
    pub(super) journal_fingerprint: u64,
}

impl Seal {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = FORMAT.to_vec();
        for word in [self.term, self.n_commits, self.journal_bytes, self.journal_fingerprint] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&fingerprint(&bytes).to_le_bytes());
        bytes
    }

    /// The seal in these bytes, if they are whole.
    pub(super) fn decode(bytes: &[u8]) -> Option<Seal> {
        let (content, check) = bytes.split_last_chunk::<8>()?;
        let words = content.strip_prefix(FORMAT).filter(|words| words.len() == 32)?;
        if fingerprint(content) != u64::from_le_bytes(*check) {
            return None;
        }
        let mut words = words.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let mut next = || words.next().unwrap_or_default();
        Some(Seal { term: next(), n_commits: next(), journal_bytes: next(), journal_fingerprint: next() })
    }

    /// The seal with this journal yet to be applied.
    pub(super) fn with_journal(self, journal: &[u8]) -> Seal {
        Seal { journal_bytes: journal.len() as u64, journal_fingerprint: fingerprint(journal), ..self }
    }

    /// Whether the seal is of this journal.
    pub(super) fn is_of(&self, journal: &[u8]) -> bool {
        *self == self.with_journal(journal)
    }
}

/// The values of the parts of a commit's entry in the replication log.
pub(super) fn told(seal: &Seal, told: &[u8]) -> Vec<Vec<u8>> {
    let n_parts = told.len().div_ceil(TOLD) as u32;
    let part = |(number, piece): (u32, &[u8])| {
        let head = [seal.term.to_le_bytes(), seal.n_commits.to_le_bytes()].concat();
        [&head[..], &number.to_le_bytes(), &n_parts.to_le_bytes(), piece].concat()
    };
    (0..).zip(told.chunks(TOLD)).map(part).collect()
}

/// The part of a commit's entry in the replication log that has arrived.
#[derive(Debug, Default)]
pub(super) struct Telling {
    /// Term and number of the commit.
    of: (u64, u64),
    n_parts: u32,
    parts: Vec<Vec<u8>>,
}

impl Telling {
    /// Takes the next part. Parts of an earlier commit, or of one that did not take place, are dropped.
    pub(super) fn take(&mut self, value: &[u8]) {
        let Some((head, piece)) = value.split_first_chunk::<24>() else { return };
        let (words, _) = head.as_chunks::<8>();
        let of = (u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]));
        let [number, n_parts] =
            [0, 4].map(|at| u32::from_le_bytes([words[2][at], words[2][at + 1], words[2][at + 2], words[2][at + 3]]));
        if number == 0 || of != self.of {
            *self = Telling { of, n_parts, parts: Vec::new() };
        }
        if number as usize == self.parts.len() {
            self.parts.push(piece.to_vec());
        }
    }

    /// The entry of this commit; empty if it has not come in full.
    pub(super) fn of(&mut self, seal: &Seal) -> Vec<u8> {
        let Telling { of, n_parts, parts } = std::mem::take(self);
        let is_whole = of == (seal.term, seal.n_commits) && parts.len() == n_parts as usize;
        if is_whole { parts.concat() } else { Vec::new() }
    }
}

/// The value of a row's key.
pub(super) fn sealed_value(kind: u8, key: &[u8], value: &[u8], scratch: &mut Vec<u8>) -> Vec<u8> {
    let checksum = RowHash::of(kind, key, value, scratch).checksum();
    [value, &checksum.to_le_bytes()].concat()
}

/// The row in a key and its value, if it is whole. `key` begins with the kind.
pub(super) fn row(key: &[u8], value: &[u8], scratch: &mut Vec<u8>) -> Option<RowChange> {
    let (kind, key) = key.split_first()?;
    let (value, check) = value.split_last_chunk::<8>()?;
    let is_whole = RowHash::of(*kind, key, value, scratch).checksum() == i64::from_le_bytes(*check);
    is_whole.then(|| RowChange { kind: *kind, key: key.to_vec(), value: Some(value.to_vec()) })
}

/// The row in this key is not as it was put.
pub(super) fn wrong_row(store: &EtcdAddress, key: &[u8]) -> StoreError {
    let what = format!("the row {} has a wrong checksum", hex(key));
    StoreError::Damaged { path: store.to_string().into(), what }
}

/// The journal with these changes.
pub(super) fn journal<'a>(changes: impl Iterator<Item = &'a RowChange>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for RowChange { kind, key, value } in changes {
        bytes.push(*kind);
        bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&value.as_ref().map_or(0, |value| value.len() as u32 + 1).to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value.as_deref().unwrap_or_default());
    }
    bytes
}

/// The changes in a journal; `None` if it is no journal.
pub(super) fn changes(mut journal: &[u8]) -> Option<Vec<RowChange>> {
    let mut changes = Vec::new();
    while let Some((kind, rest)) = journal.split_first() {
        let (key_len, rest) = rest.split_first_chunk()?;
        let (value_len, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*key_len) as usize)?;
        let value_len = u32::from_le_bytes(*value_len) as usize;
        let (value, rest) = rest.split_at_checked(value_len.saturating_sub(1))?;
        let value = (value_len > 0).then(|| value.to_vec());
        changes.push(RowChange { kind: *kind, key: key.to_vec(), value });
        journal = rest;
    }
    Some(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row_of(kind: u8, key: &[u8], value: Option<&[u8]>) -> RowChange {
        RowChange { kind, key: key.to_vec(), value: value.map(<[u8]>::to_vec) }
    }

    #[test]
    fn seal_comes_back_and_no_flipped_bit_is_overlooked() {
        let seal = Seal { term: 3, n_commits: u64::MAX, journal_bytes: 5, journal_fingerprint: 1 << 63 };
        let bytes = seal.encode();
        assert_eq!(Seal::decode(&bytes), Some(seal));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Seal::decode(&damaged), None, "bit {bit}");
        }
        assert_eq!(Seal::decode(&bytes[1..]), None);
    }

    #[test]
    fn row_comes_back_and_no_flipped_bit_is_overlooked() {
        let scratch = &mut Vec::new();
        let key = [5, 0, 0xff, b'/'];
        let value = sealed_value(key[0], &key[1..], b"value", scratch);
        assert_eq!(row(&key, &value, scratch), Some(row_of(5, &key[1..], Some(b"value"))));
        for bit in 0..value.len() * 8 {
            let mut damaged = value.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(row(&key, &damaged, scratch), None, "bit {bit}");
        }
        assert_eq!(row(&[], &value, scratch), None);
    }

    #[test]
    fn what_is_told_comes_back_whole_or_not_at_all() {
        let seal = Seal { term: 3, n_commits: 9, ..Seal::default() };
        for len in [1, 10, TOLD, TOLD + 1, 3 * TOLD] {
            let content: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let parts = told(&seal, &content);
            let mut telling = Telling::default();
            // Of a commit that did not take place.
            told(&Seal { term: 2, ..seal }, &[5; 2 * TOLD]).iter().for_each(|part| telling.take(part));
            parts.iter().for_each(|part| telling.take(part));
            assert!(telling.of(&seal) == content);
            assert_eq!(telling.of(&seal), [0; 0], "once");
            for (missing, _) in parts.iter().enumerate() {
                let others = parts.iter().enumerate().filter(|(i, _)| *i != missing);
                others.for_each(|(_, part)| telling.take(part));
                assert_eq!(telling.of(&seal), [0; 0], "part {missing} is missing");
            }
            parts.iter().for_each(|part| telling.take(part));
            assert_eq!(telling.of(&Seal { n_commits: 10, ..seal }), [0; 0], "of another commit");
        }
        assert_eq!(told(&seal, &[]), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn journal_comes_back_and_a_cut_one_does_not() {
        let changes_of =
            [row_of(1, b"", Some(b"")), row_of(2, b"key", None), row_of(255, &[0; 300], Some(&[7; 70_000]))];
        let bytes = journal(changes_of.iter());
        assert_eq!(changes(&bytes).unwrap(), changes_of);
        let seal = Seal::default().with_journal(&bytes);
        assert!(seal.is_of(&bytes));
        for cut in [1, 8, 9, 14, 20, bytes.len() - 1] {
            assert!(!seal.is_of(&bytes[..cut]), "{cut}");
        }
        for cut in [1, 8, 20, bytes.len() - 1] {
            assert_eq!(changes(&bytes[..cut]), None, "{cut}");
        }
    }
}
