//! The hash laboratory: which hash functions are suitable for Bloom filters.
//!
//! | module | what |
//! |---|---|
//! | [`functions`] | the twenty functions of Table IV |
//! | [`chi_squared`] | the randomness test of one function, the independence test of two |
//! | [`keys`] | 4-byte addresses and 13-byte 5-tuples to run them on |
//!
//! [`Table::of_the_paper`] is Table V and half of Table VI; [`Table::of_families`] applies the same tests to fibula's
//! own digests. Source: Lu et al., "Low Computational Cost Bloom Filters", section IV. Differs: the paper's keys are
//! CAIDA traces, which are not available here; a capture can be given instead. Verdicts depend on the keys as much as
//! on the functions.

pub mod chi_squared;
pub mod functions;
pub mod keys;

use lookup::hash::{Family, Hasher, SecretKey};

use chi_squared::{Sums, Verdict};
use functions::TABLE_IV;
use keys::Keys;

/// Keys that each function hashes before the next function does.
const BATCH: usize = 1024;

/// A function under test: its name, and its value for a key.
pub type Named = (String, Box<dyn Fn(&[u8]) -> u64>);

/// Verdicts on functions over one set of keys.
#[derive(Clone, Debug)]
pub struct Table {
    /// Names of the functions.
    pub names: Vec<String>,
    /// The randomness test of each: (11) to (13).
    pub randomness: Vec<Verdict>,
    /// The independence test of each pair `(i, j)`, i < j, ordered by i, then j: (14) to (16).
    pub pairs: Vec<(usize, usize, Verdict)>,
}

impl Table {
    /// Tests functions whose values have `bits` bits.
    /// # Panics
    /// When there are fewer than [`chi_squared::LEAST_VALUES`] keys.
    pub fn new(keys: &Keys, bits: u32, functions: Vec<Named>) -> Self {
        let mut sums = vec![Sums::new(bits); functions.len()];
        let pairs = (0..functions.len()).flat_map(|i| (i + 1..functions.len()).map(move |j| (i, j)));
        let mut pairs: Vec<(usize, usize, Sums)> = pairs.map(|(i, j)| (i, j, Sums::new(bits))).collect();
        let mut values = vec![[0; BATCH]; functions.len()];
        for batch in keys.packed().chunks(BATCH * keys.key_bytes()) {
            let n = batch.len() / keys.key_bytes();
            for (((_, hash), values), sums) in functions.iter().zip(&mut values).zip(&mut sums) {
                for (value, key) in values.iter_mut().zip(batch.chunks_exact(keys.key_bytes())) {
                    *value = hash(key);
                    sums.add(*value);
                }
            }
            for (i, j, sums) in &mut pairs {
                values[*i].iter().zip(&values[*j]).take(n).for_each(|(one, other)| sums.add(one ^ other));
            }
        }
        Self {
            names: functions.into_iter().map(|(name, _)| name).collect(),
            randomness: sums.iter().map(Sums::verdict).collect(),
            pairs: pairs.into_iter().map(|(i, j, sums)| (i, j, sums.verdict())).collect(),
        }
    }

    /// The functions of Table IV.
    /// # Panics
    /// As [`Table::new`].
    pub fn of_the_paper(keys: &Keys) -> Self {
        let named = |function: &functions::Function| -> Named {
            let hash = function.hash;
            (function.name.to_owned(), Box::new(move |key| hash(key).into()))
        };
        Self::new(keys, 32, TABLE_IV.iter().map(named).collect())
    }

    /// fibula's digest families, each under two keys derived from `seed`: 64-bit values.
    /// # Panics
    /// As [`Table::new`].
    pub fn of_families(keys: &Keys, seed: u64) -> Self {
        let named = |family, number| -> Named {
            let hasher = Hasher::new(family, &SecretKey::from_seed(seed.wrapping_add(number)));
            (format!("{family}, key {}", number + 1), Box::new(move |key| hasher.digest(key).0))
        };
        let under = |number| Family::ALL.map(move |family| named(family, number));
        Self::new(keys, 64, [under(0), under(1)].into_iter().flatten().collect())
    }

    /// CRC32c under two seeds as two functions, which are not independent: their exclusive or is the same constant for
    /// all keys of a length.
    /// # Panics
    /// As [`Table::new`].
    pub fn of_plain_crc32c(keys: &Keys) -> Self {
        let named = |seed: u32| -> Named {
            (format!("CRC32c, seed {seed:#010x}"), Box::new(move |key| crc32c::crc32c_append(seed, key).into()))
        };
        Self::new(keys, 32, [0x1234_5678, 0x9abc_def0].map(named).into())
    }

    /// Whether all tests pass at a level of significance.
    pub fn passes(&self, alpha: f64) -> bool {
        self.randomness.iter().chain(self.pairs.iter().map(|pair| &pair.2)).all(|verdict| verdict.passes(alpha))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 7;

    #[test]
    fn our_digests_pass_on_keys_of_both_lengths() {
        for keys in [Keys::addresses(200_000, SEED), Keys::tuples(200_000, SEED)] {
            let table = Table::of_families(&keys, SEED);
            for (name, verdict) in table.names.iter().zip(&table.randomness) {
                assert!(verdict.passes(1e-4), "{name}, {} bytes: {verdict:?}", keys.key_bytes());
            }
            for (i, j, verdict) in &table.pairs {
                let (one, other) = (&table.names[*i], &table.names[*j]);
                assert!(verdict.passes(1e-4), "{one} and {other}, {} bytes: {verdict:?}", keys.key_bytes());
            }
            assert!(table.passes(1e-4));
        }
    }

    #[test]
    fn two_seeds_do_not_make_two_functions_of_crc32c() {
        for keys in [Keys::addresses(10_000, SEED), Keys::tuples(10_000, SEED)] {
            let table = Table::of_plain_crc32c(&keys);
            let (_, _, verdict) = table.pairs[0];
            assert!(!verdict.passes(1e-4) && verdict.statistic > 10_000.0, "{verdict:?}");
        }
    }

    #[test]
    fn good_functions_pass_and_bad_ones_fail_on_clustered_keys() {
        for keys in [Keys::addresses(100_000, SEED), Keys::tuples(100_000, SEED)] {
            let table = Table::of_the_paper(&keys);
            let passes =
                |name| table.randomness[table.names.iter().position(|known| known == name).unwrap()].passes(1e-4);
            for name in ["BOB", "MD5", "SHA-1"] {
                assert!(passes(name), "{name}, {} bytes", keys.key_bytes());
            }
            // The defects of a multiplier show on short keys only; PJW has four bits that are always zero.
            let bad: &[&str] = match keys.key_bytes() {
                Keys::ADDRESS => &["DJBHash", "OCaml", "Simple", "STL", "PJWHash", "DEKHash"],
                _ => &["PJWHash"],
            };
            for name in bad {
                assert!(!passes(name), "{name}, {} bytes", keys.key_bytes());
            }
            assert_eq!(table.pairs.len(), 190);
        }
    }
}
