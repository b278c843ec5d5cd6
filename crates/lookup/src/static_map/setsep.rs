//! SetSep: for every small group of names and every bit of the value, a hash function that happens to be right.
//!
//! ```text
//! block   n / 1024 of them, by digest                 256 buckets of about 4 names, 64 groups of about 16
//! bucket  goes to one of four candidate groups        2 bits per bucket say which: groups become equal in size
//! group   for each of the l bits of a value           a seed of 16 bits and an array of 8 bits
//!
//! bit b of the value = array[b] >> top3(h1 + seed[b] * h2) & 1        (h1, h2: 32 bits each, from the digest)
//!
//! bytes of a block:  | choices, 64 | group 0: l seeds of 2, l arrays of 1 | group 1 | ... | group 63 |
//! ```
//! A seed is right if names of the group that differ in the bit never share one of the 8 places. For 16 names one seed
//! in 750 is right; each is tried for all bits at once. A group without a seed for some bit (too many names in it) goes
//! to an exact table of digests, which its first seed, 0, indicates.
//!
//! Cost: a line for the choice, then 3 l bytes of the group (one or two lines for l = 8); 0.5 + 1.5 l bits per name.
//! Tables of less than a thousand names take the memory of 1,024.
//! Alien names: an arbitrary value; 0 in groups that are in the exact table. Updates: none.
//! Source: "SetSep" of Zhou et al., "Scaling up clustered network appliances with ScaleBricks", as far as Othello's
//! papers describe it: "1 + l hash values, 2 + 2 l values a lookup" and 2.19 MB for 1.4M names with l = 8, which is
//! 0.5 + 1.5 l bits per name ("A Concise Forwarding Information Base for Scalable and Fast Flat Name Switching", 7.2;
//! Table I of the later paper says 2 + 1.5 l). Differs: one keyed digest per name; all bits of a value share one pass
//! over the seeds.
//! Limits: no two names with one digest; builds are some forty times slower than the Bloomier filter's.

use super::{Entry, MAX_NAMES, Settings, StaticMap, entry, put_words, reduce, sort_distinct, take_words};
use crate::base::arena::LINE;
use crate::base::bytes::{Bytes, DecodeError, at_most};
use crate::base::cells::value_mask;
use crate::base::partition;
use crate::base::prefetch::BURST;
use crate::base::words::{Words, prefetch_word};
use crate::hash::{Digest, mix64};
use crate::traits::{Build, InsertError};

/// Names per block: the maximum of the average.
const MEAN_BLOCK: usize = 1024;
/// Buckets per block.
const BUCKETS: usize = 256;
/// Groups per block.
const GROUPS: usize = 64;
/// Candidate groups per bucket.
const CHOICES: usize = 4;
/// Bytes of the choices of a block.
const CHOICE_BYTES: usize = BUCKETS / 4;
/// Bytes of seed and array, per bit of the value.
const BIT_BYTES: usize = 3;
/// Larger groups are not tried: with 24 names half the bits have no seed at all.
const MAX_GROUP: usize = 24;
/// Increment between the words drawn from a digest: the 64-bit golden ratio.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The candidate groups of each bucket, all distinct.
static CANDIDATES: [[u8; CHOICES]; BUCKETS] = candidates();

const fn candidates() -> [[u8; CHOICES]; BUCKETS] {
    let mut table = [[0; CHOICES]; BUCKETS];
    let mut bucket = 0;
    while bucket < BUCKETS {
        let random = mix64(bucket as u64 + 1);
        let mut choice = 0;
        while choice < CHOICES {
            // Each in a different quarter of the circle that starts at the bucket's own group.
            let quarter = GROUPS / CHOICES;
            let inside = (random >> (8 * choice)) as usize % quarter;
            table[bucket][choice] = ((bucket + choice * quarter + inside) % GROUPS) as u8;
            choice += 1;
        }
        bucket += 1;
    }
    table
}

/// Bytes of a block, a multiple of a word.
fn block_bytes(value_bits: u8) -> usize {
    CHOICE_BYTES + GROUPS * BIT_BYTES * usize::from(value_bits)
}

/// The data that a lookup derives from a digest.
#[derive(Clone, Copy, Default)]
struct Place {
    block: usize,
    bucket: usize,
    h1: u32,
    h2: u32,
}

impl Place {
    #[inline(always)]
    fn of(digest: u64, seed: u64, n_blocks: usize) -> Self {
        let x = mix64(digest ^ seed);
        let (block, rest) = reduce(x, n_blocks as u64);
        let y = mix64(x.wrapping_add(STEP));
        Self { block: block as usize, bucket: (rest >> 56) as usize, h1: y as u32, h2: (y >> 32) as u32 }
    }
}

/// The place, of eight, that a name has in its group's arrays under `seed`.
#[inline(always)]
fn place_of(h1: u32, h2: u32, seed: u16) -> u32 {
    h1.wrapping_add(h2.wrapping_mul(seed.into())) >> 29
}

/// A static map from digests to values.
#[derive(Clone, Debug)]
pub struct SetSep {
    words: Words,
    /// Digests and values of groups without seeds, sorted by digest.
    exact: Vec<Entry>,
    n_blocks: usize,
    settings: Settings,
    n_names: usize,
}

impl SetSep {
    /// Number of names.
    pub fn len(&self) -> usize {
        self.n_names
    }

    /// Whether no name is in.
    pub fn is_empty(&self) -> bool {
        self.n_names == 0
    }

    /// Number of names in the exact table, whose groups have no seed.
    pub fn n_exact(&self) -> usize {
        self.exact.len()
    }

    /// First byte of the record of a group; a multiple of [`LINE`] for `group` 0.
    #[inline(always)]
    fn record_at(&self, block: usize, group: usize) -> usize {
        let record = BIT_BYTES * usize::from(self.settings.value_bits);
        block * (CHOICE_BYTES + GROUPS * record) + CHOICE_BYTES + group * record
    }

    /// First byte of a block.
    #[inline(always)]
    fn block_at(&self, block: usize) -> usize {
        self.record_at(block, 0) - CHOICE_BYTES
    }

    #[inline(always)]
    fn group_of(&self, bytes: &[u8], place: Place) -> usize {
        let choices = bytes[self.block_at(place.block) + place.bucket / 4];
        let choice = choices >> (2 * (place.bucket % 4)) & 3;
        CANDIDATES[place.bucket][usize::from(choice)].into()
    }

    #[inline(always)]
    fn value(&self, bytes: &[u8], record_at: usize, place: Place, digest: Digest) -> u64 {
        let value_bits = usize::from(self.settings.value_bits);
        let record = &bytes[record_at..record_at + BIT_BYTES * value_bits];
        let (seeds, arrays) = record.split_at(2 * value_bits);
        let mut value = 0;
        for (bit, (seed, array)) in seeds.as_chunks::<2>().0.iter().zip(arrays).enumerate() {
            let at = place_of(place.h1, place.h2, u16::from_le_bytes(*seed));
            value |= u64::from(array >> at & 1) << bit;
        }
        if seeds[..2] == [0, 0] {
            return self.exact_value(digest);
        }
        value
    }

    #[cold]
    fn exact_value(&self, digest: Digest) -> u64 {
        let found = self.exact.binary_search_by_key(&digest.0, |&(digest, _)| digest);
        found.map_or(0, |index| self.exact[index].1)
    }
}

impl StaticMap for SetSep {
    fn lookup(&self, digest: Digest) -> u64 {
        let bytes: &[u8] = bytemuck::cast_slice(&self.words);
        let place = Place::of(digest.0, self.settings.seed, self.n_blocks);
        self.value(bytes, self.record_at(place.block, self.group_of(bytes, place)), place, digest)
    }

    fn lookup_batch(&self, digests: &[Digest], values: &mut [u64]) {
        let words = &*self.words;
        let bytes: &[u8] = bytemuck::cast_slice(words);
        let values = &mut values[..digests.len()];
        let record_bytes = BIT_BYTES * usize::from(self.settings.value_bits);
        let mut places = [Place::default(); BURST];
        let mut records = [0; BURST];
        for (digests, values) in digests.chunks(BURST).zip(values.chunks_mut(BURST)) {
            for (place, digest) in places.iter_mut().zip(digests) {
                *place = Place::of(digest.0, self.settings.seed, self.n_blocks);
                prefetch_word(words, self.block_at(place.block) / 8);
            }
            for (record, &place) in records.iter_mut().zip(&places[..digests.len()]) {
                *record = self.record_at(place.block, self.group_of(bytes, place));
                // The lines of the record, up to its last byte.
                for byte in (*record / LINE * LINE..*record + record_bytes).step_by(LINE) {
                    prefetch_word(words, byte / 8);
                }
            }
            for (index, (value, &digest)) in values.iter_mut().zip(digests).enumerate() {
                *value = self.value(bytes, records[index], places[index], digest);
            }
        }
    }

    fn size_bits(&self) -> u64 {
        self.words.size_bits() + size_of_val(&self.exact[..]) as u64 * 8
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend((self.n_names as u64).to_le_bytes());
        out.extend((self.n_blocks as u32).to_le_bytes());
        out.extend((self.exact.len() as u32).to_le_bytes());
        put_words(&self.words, out);
        for (digest, value) in &self.exact {
            out.extend(digest.to_le_bytes());
            out.extend(value.to_le_bytes());
        }
    }

    fn decode(settings: &Settings, bytes: &mut Bytes) -> Result<Self, DecodeError> {
        let n_names = at_most("names", bytes.u64()?, MAX_NAMES)? as usize;
        let (n_blocks, n_exact) = (bytes.u32()? as usize, bytes.u32()? as usize);
        if n_blocks == 0 {
            return Err(DecodeError::Malformed { reason: "a SetSep has no blocks" });
        }
        let words = take_words(bytes, n_blocks as u64 * block_bytes(settings.value_bits) as u64 / 8)?;
        let entries = bytes.take(n_exact.saturating_mul(size_of::<Entry>()))?;
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        let exact: Vec<Entry> =
            entries.chunks_exact(size_of::<Entry>()).map(|entry| (word(&entry[..8]), word(&entry[8..]))).collect();
        if !exact.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(DecodeError::Malformed { reason: "the exact names of a SetSep are not in order" });
        }
        for (_, value) in &exact {
            at_most("value", *value, value_mask(settings.value_bits))?;
        }
        Ok(Self { words, exact, n_blocks, settings: settings.clone(), n_names })
    }
}

impl Build for SetSep {
    type Key = Digest;
    type Settings = Settings;

    fn build(settings: &Settings, entries: &[(Digest, u64)], threads: usize) -> Result<Self, InsertError> {
        settings.check(entries)?;
        let n_blocks = entries.len().div_ceil(MEAN_BLOCK).max(1);
        let block_of = |digest: Digest| Place::of(digest.0, settings.seed, n_blocks).block;
        let solved =
            partition::solve_by(entries, n_blocks, block_of, threads, entry, |_, mut entries, (): &mut ()| {
                solve_block(settings, n_blocks, &mut entries)
            })?;
        let block_bytes = block_bytes(settings.value_bits);
        let mut words = Words::zeroed(n_blocks * block_bytes / 8);
        let blocks = bytemuck::cast_slice_mut::<u64, u8>(&mut words).chunks_exact_mut(block_bytes);
        let mut exact = Vec::new();
        for (bytes, solved) in blocks.zip(solved) {
            bytes.copy_from_slice(&solved.bytes);
            exact.extend(solved.exact);
        }
        exact.sort_unstable();
        Ok(Self { words, exact, n_blocks, settings: settings.clone(), n_names: entries.len() })
    }
}

/// A block in the form that lookups read, and the entries that did not fit.
struct SolvedBlock {
    bytes: Vec<u8>,
    exact: Vec<Entry>,
}

/// A name of a group.
#[derive(Clone, Copy)]
struct Member {
    h1: u32,
    h2: u32,
    value: u64,
}

fn solve_block(settings: &Settings, n_blocks: usize, entries: &mut [Entry]) -> Result<SolvedBlock, InsertError> {
    sort_distinct(entries)?;
    let places: Vec<_> = entries.iter().map(|&(digest, _)| Place::of(digest, settings.seed, n_blocks)).collect();
    let mut sizes = [0; BUCKETS];
    for place in &places {
        sizes[place.bucket] += 1;
    }
    let choices = assign(&sizes);
    let group_of = |place: &Place| usize::from(CANDIDATES[place.bucket][usize::from(choices[place.bucket])]);
    let mut groups = vec![Vec::new(); GROUPS];
    for (place, &(_, value)) in places.iter().zip(&*entries) {
        groups[group_of(place)].push(Member { h1: place.h1, h2: place.h2, value });
    }
    let record_bytes = BIT_BYTES * usize::from(settings.value_bits);
    let mut bytes = vec![0; CHOICE_BYTES + GROUPS * record_bytes];
    for (bucket, choice) in choices.iter().enumerate() {
        bytes[bucket / 4] |= choice << (2 * (bucket % 4));
    }
    let mut unsolved = [false; GROUPS];
    for (group, record) in bytes[CHOICE_BYTES..].chunks_exact_mut(record_bytes).enumerate() {
        unsolved[group] = !solve_group(&groups[group], settings.value_bits, record);
    }
    let exact = places.iter().zip(&*entries).filter(|(place, _)| unsolved[group_of(place)]).map(|(_, &entry)| entry);
    Ok(SolvedBlock { exact: exact.collect(), bytes })
}

/// Chooses a group for each bucket so that groups become equal: buckets in order of size, the largest first, each to
/// its smallest candidate; then moves that make two groups more equal, until there are none.
fn assign(sizes: &[u32; BUCKETS]) -> [u8; BUCKETS] {
    let mut choices = [0; BUCKETS];
    let mut loads = [0; GROUPS];
    let mut order: Vec<usize> = (0..BUCKETS).collect();
    order.sort_by_key(|&bucket| std::cmp::Reverse(sizes[bucket]));
    let load = |loads: &[u32; GROUPS], bucket: usize, choice: usize| loads[usize::from(CANDIDATES[bucket][choice])];
    let smallest = |loads: &[u32; GROUPS], bucket| (0..CHOICES).min_by_key(|&choice| load(loads, bucket, choice));
    for &bucket in &order {
        let choice = smallest(&loads, bucket).expect("there are candidates");
        choices[bucket] = choice as u8;
        loads[usize::from(CANDIDATES[bucket][choice])] += sizes[bucket];
    }
    // Every move lowers the sum of the squares of the loads, so this terminates.
    let mut moved = true;
    while moved {
        moved = false;
        for &bucket in &order {
            let (old, size) = (usize::from(choices[bucket]), sizes[bucket]);
            let new = smallest(&loads, bucket).expect("there are candidates");
            if load(&loads, bucket, new) + size < load(&loads, bucket, old) {
                loads[usize::from(CANDIDATES[bucket][old])] -= size;
                loads[usize::from(CANDIDATES[bucket][new])] += size;
                choices[bucket] = new as u8;
                moved = true;
            }
        }
    }
    choices
}

/// Finds seed and array of every bit; false, and a record of zeros, if some bit has none.
///
/// A seed is tried for all bits at once: each place records which bits are one, and which zero, in a name there.
fn solve_group(members: &[Member], value_bits: u8, record: &mut [u8]) -> bool {
    let mut open = value_mask(value_bits);
    let tries = if members.len() > MAX_GROUP { 0 } else { u16::MAX };
    for seed in 1..=tries {
        let (mut ones, mut zeros) = ([0u64; 8], [0u64; 8]);
        let mut wrong = 0;
        for member in members {
            let at = place_of(member.h1, member.h2, seed) as usize;
            ones[at] |= member.value;
            zeros[at] |= !member.value;
            wrong |= ones[at] & zeros[at];
            if wrong & open == open {
                break;
            }
        }
        let mut right = open & !wrong;
        open &= wrong;
        while right != 0 {
            let bit = right.trailing_zeros() as usize;
            right &= right - 1;
            record[2 * bit..2 * bit + 2].copy_from_slice(&seed.to_le_bytes());
            let array = (0..8).fold(0, |array, at| array | (ones[at] >> bit & 1) << at);
            record[2 * usize::from(value_bits) + bit] = array as u8;
        }
        if open == 0 {
            return true;
        }
    }
    record.fill(0);
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{Rng, seed};

    #[test]
    fn candidates_of_a_bucket_differ_and_groups_are_candidates_equally_often() {
        let mut times = [0; GROUPS];
        for candidates in CANDIDATES {
            for (index, &group) in candidates.iter().enumerate() {
                assert!(!candidates[..index].contains(&group), "{candidates:?}");
                times[usize::from(group)] += 1;
            }
        }
        assert!(times.iter().all(|times| (4..=30).contains(times)), "{times:?}");
    }

    #[test]
    fn groups_come_out_within_a_few_names_of_their_mean() {
        let mut rng = Rng::new(seed());
        for _ in 0..200 {
            let mut sizes = [0; BUCKETS];
            (0..1024).for_each(|_| sizes[rng.below(256) as usize] += 1);
            let mut loads = [0; GROUPS];
            for (bucket, choice) in assign(&sizes).into_iter().enumerate() {
                loads[usize::from(CANDIDATES[bucket][usize::from(choice)])] += sizes[bucket];
            }
            assert_eq!(loads.iter().sum::<u32>(), 1024);
            assert!(loads.iter().all(|&load| load <= 21), "{loads:?}");
        }
    }
}
