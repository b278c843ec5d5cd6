//! Which bytes a lookup reads. Models of caches use this.
//!
//! Places are offsets and not addresses, so they are the same in every run. They come from the lookup of one name
//! itself, or from the functions by which it finds its places, so they follow every change of the lookup. Tests compare
//! them with the lookup bit by bit. The batched loops do not use this module.

use crate::traits::Query;

/// A separate piece of memory that lookups read. Each begins at a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Region {
    /// The directory of parts: 8 bytes per entry.
    Directory,
    /// Cells, buckets, slots.
    Words,
    /// Counters that show readers concurrent writes, if these are not stored among the words.
    Counters,
}

/// Bytes that a lookup reads at once. All are in one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The region.
    pub region: Region,
    /// The first byte, counted from the beginning of the region.
    pub offset: usize,
    /// How many.
    pub bytes: usize,
    /// Reads of one stage do not wait for each other. Those of the next stage need their results.
    pub stage: u8,
}

/// A query structure that reports what its lookups read.
pub trait Touches: Query {
    /// Calls `touch` for everything that a lookup of `key` reads, in the order of stages, if no writer writes
    /// meanwhile.
    fn touches(&self, key: Self::Key, touch: &mut dyn FnMut(Touch));
}

#[cfg(test)]
pub(crate) use tests::Memory;

#[cfg(test)]
mod tests {
    #![expect(unsafe_code, reason = "flips bits of tables behind their backs")]

    use std::fmt::Debug;

    use super::*;
    use crate::cuckoo::exact::{self, Cuckoo};
    use crate::hash::{Digest, Family, SecretKey};
    use crate::line::{self, LineTable};
    use crate::othello::{self, Option1, Option2, Othello, Sharded, Sizing};
    use crate::testkit::{Rng, seed};
    use crate::traits::Control;

    /// A structure whose words the test can edit.
    pub(crate) trait Memory: Touches {
        /// The first byte of [`Region::Words`], and how many bytes were ever in use.
        fn memory(&self) -> (*mut u8, usize);

        /// Whether a byte is of [`Region::Words`]: the directory may be among them.
        fn is_word(&self, byte: usize) -> bool {
            let _ = byte;
            true
        }
    }

    /// The words that a lookup reads, in its order, as ranges of bytes.
    fn words_of<Q: Touches>(query: &Q, key: Q::Key) -> Vec<(usize, usize)> {
        let mut touches = Vec::new();
        query.touches(key, &mut |touch| {
            if touch.region == Region::Words {
                touches.push((touch.offset, touch.offset + touch.bytes));
            }
        });
        touches
    }

    /// Flips all bits, or `n_flips` of them, one at a time, and looks every key up: if an answer changes, the bit must
    /// be in a touch. Conversely, each of the last `n_decisive` touches of a key has a bit that changes its answer, and
    /// so has some touch of each of the first keys.
    fn hold<Q: Memory>(query: &Q, keys: &[Q::Key], n_flips: Option<usize>, n_decisive: usize)
    where
        Q::Key: Debug,
    {
        let (base, n_bytes) = query.memory();
        let flip = |bit: usize| {
            assert!(bit / 8 < n_bytes);
            // SAFETY: within the words of a structure that no other thread has.
            unsafe { base.add(bit / 8).write_volatile(base.add(bit / 8).read_volatile() ^ 1 << (bit % 8)) };
        };
        let all = |values: &mut Vec<u64>| {
            values.resize(keys.len(), 0);
            query.lookup_batch(keys, values);
        };
        let touched: Vec<_> = keys.iter().map(|&key| words_of(query, key)).collect();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        all(&mut before);
        let mut rng = Rng::new(seed());
        let n_bits = n_bytes * 8;
        for index in 0..n_flips.unwrap_or(n_bits) {
            let bit = if n_flips.is_some() { rng.below(n_bits as u64) as usize } else { index };
            if !query.is_word(bit / 8) {
                continue;
            }
            flip(bit);
            all(&mut after);
            for (at, &key) in keys.iter().enumerate() {
                if n_flips.is_none() || after[at] != before[at] {
                    assert_eq!(query.lookup(key), after[at], "{key:?} alone and in a batch");
                }
                let is_touched = || touched[at].iter().any(|&(first, end)| (first..end).contains(&(bit / 8)));
                assert!(after[at] == before[at] || is_touched(), "{key:?} reads byte {} and does not say so", bit / 8);
            }
            flip(bit);
        }
        for (at, &key) in keys.iter().enumerate().take(300) {
            let decides = |&(first, end): &(usize, usize)| {
                (first * 8..end * 8).any(|bit| {
                    flip(bit);
                    let answer = query.lookup(key);
                    flip(bit);
                    answer != before[at]
                })
            };
            let decisive = &touched[at][touched[at].len() - n_decisive..];
            assert!(decisive.iter().all(decides), "{key:?} needs not all of {decisive:?}");
            assert!(touched[at].iter().any(decides), "{key:?} needs nothing of what it touches");
        }
        all(&mut after);
        assert_eq!(before, after, "every flip was taken back");
    }

    /// Names, and as many aliens. In the keys the names come first.
    fn digests(n_names: usize) -> (Vec<(Digest, u64)>, Vec<Digest>) {
        let mut rng = Rng::new(seed());
        let keys: Vec<_> = (0..2 * n_names).map(|_| Digest(rng.next_u64())).collect();
        (keys[..n_names].iter().map(|&key| (key, 1 + rng.below(15))).collect(), keys)
    }

    fn of_othello<S: Sizing>(value_bits: u8, n_names: usize, n_flips: Option<usize>) {
        let (entries, keys) = digests(n_names);
        let settings = othello::Settings::new(value_bits, n_names, &SecretKey::from_seed(1));
        let (_, query) = Othello::<S>::build(settings, &entries, 1).unwrap();
        hold(&query, &keys, n_flips, 2);
    }

    #[test]
    fn an_othello_reads_what_it_says() {
        for value_bits in [5, 8, 16] {
            of_othello::<Option1>(value_bits, 200, None);
            of_othello::<Option2>(value_bits, 200, None);
            of_othello::<Sharded>(value_bits, 200, None);
            of_othello::<Sharded>(value_bits, 20_000, Some(1_000));
        }
    }

    #[test]
    fn a_line_table_reads_what_it_says() {
        for value_bits in [5, 8, 16, 20] {
            for (n_names, n_flips) in [(200, None), (20_000, Some(1_000))] {
                let (entries, keys) = digests(n_names);
                let settings = line::Settings::new(value_bits, n_names, &SecretKey::from_seed(1));
                let (_, query) = LineTable::build(settings, &entries, 1).unwrap();
                // Most lookups read the cells of a bucket last, and a few read the stash last.
                hold(&query, &keys[..n_names], n_flips, 1);
            }
        }
    }

    #[test]
    fn a_cuckoo_table_reads_what_it_says() {
        for (name_bytes, value_bits) in [(6, 8), (8, 8)] {
            let settings = exact::Settings::new(name_bytes, value_bits, 200, Family::MulAdd, &SecretKey::from_seed(1));
            let (entries, keys) = digests(200);
            let name = |digest: Digest| [digest.0 >> (64 - 8 * u32::from(name_bytes))];
            let entries: Vec<_> = entries.iter().map(|&(digest, value)| (name(digest), value)).collect();
            let mut control = Cuckoo::<1>::with_capacity(settings, 200);
            control.insert_batch(&entries, &mut Vec::new()).unwrap();
            let query = control.export();
            hold(&query, &entries.iter().map(|entry| entry.0).collect::<Vec<_>>(), None, 0);

            // A lookup that stops when it has found the name reads the same, or less.
            for (at, &digest) in keys.iter().enumerate() {
                let mut until_found = Vec::new();
                query.touches_until_found(name(digest), &mut |touch| until_found.push(touch));
                let words: Vec<_> = until_found.iter().filter(|touch| touch.region == Region::Words).collect();
                let all = words_of(&query, name(digest));
                assert!(words.iter().zip(&all).all(|(touch, &(first, _))| touch.offset == first));
                assert!(words.len() == 2 || at < 200 && words.len() == 1, "an alien is in neither bucket");
            }
        }
    }
}
