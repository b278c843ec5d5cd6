//! The Bloomier filter: a value is the XOR of three cells.
//!
//! Names are the edges of a hypergraph over the cells: each has three positions, one in each third of a shard. The
//! graph is peeled: a cell that only one name has is assigned to that name, the name is removed, and so on. Then cells
//! are filled in the opposite order, each name's own cell last. Below 0.818 names per cell (1.222 cells per name)
//! peeling succeeds for almost every large set.
//!
//! Shards of 16,384 names are peeled one by one in the second-level cache (430 KB including their entries), on all
//! threads; the directory has 16 bytes per shard. Smaller shards fail more often at 1.23 cells (fluctuations fall with
//! the square root of the size), larger ones exceed the cache. A shard that fails is peeled again with other positions,
//! and after [`TRIES_A_SIZE`] failures with a fiftieth more cells.
//!
//! Cost: 3 cell reads, all at once; 1.23 l bits per name (l dividing 64, else 1.23 * 64 / floor(64 / l)).
//! Alien names: an arbitrary value. Updates: none.
//! Source: Chazelle, Kilian, Rubinfeld, Tal, "The Bloomier filter", and Majewski et al., "A family of perfect hashing
//! methods", with three hash functions and 1.23 cells per name as in "Memory-efficient and Ultra-fast Network Lookup
//! and Forwarding using Othello Hashing", section VI. Differs: sharded; one keyed digest per name; cells have no masks,
//! since a lookup need not detect aliens.
//! Limits: no two names with one digest; 2^32 words of cells.

use super::{Entry, MAX_NAMES, Settings, StaticMap, entry, put_words, reduce, sort_distinct, take_words};
use crate::base::bytes::{Bytes, DecodeError, at_most};
use crate::base::cells::{Cells, CellsVisitor, cells_per_word, value_mask, with_cells};
use crate::base::partition;
use crate::base::prefetch::BURST;
use crate::base::words::{Words, prefetch_word};
use crate::hash::{Digest, mix64};
use crate::traits::{Build, InsertError};

/// Names per shard: the maximum of the average.
const MEAN_SHARD: usize = 16_384;
/// Cells per name, in thousandths.
const MILLICELLS: u64 = 1_230;
/// Extra cells in every third, without which a handful of names could not be distinguished.
const SPARE_CELLS: u64 = 2;
/// Failures after which a shard grows. One of 16,384 names needs 1.1 tries on average, one of a thousand 2.
pub const TRIES_A_SIZE: u32 = 12;
/// Growth of a shard, in thousandths of a cell per name.
const GROWTH: u64 = 25;
/// Maximum number of tries: at the last one, a shard has 1.6 cells per name.
pub const MAX_TRIES: u32 = 192;
/// Bytes of a shard in the directory of an image.
const SHARD_BYTES: usize = 12;
/// Multiplier for the third position: the 64-bit golden ratio.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// The location of a shard, and the parameters of its names' positions.
#[derive(Clone, Copy, Debug)]
struct Shard {
    tweak: u64,
    start: u32,
    /// Words of each third.
    third: u32,
}

/// The number of cells per word, and their width.
#[derive(Clone, Copy, Debug)]
struct Layout {
    value_bits: u8,
    cells_per_word: u32,
}

/// A static map from digests to values.
#[derive(Clone, Debug)]
pub struct Bloomier {
    directory: Vec<Shard>,
    cells: Words,
    layout: Layout,
    n_names: usize,
}

/// The three uniform words of 32 bits that select a name's cells.
#[inline(always)]
fn selectors(digest: u64, tweak: u64) -> [u64; 3] {
    let x = mix64(digest ^ tweak);
    [x >> 32, x & 0xFFFF_FFFF, (x ^ x >> 32).wrapping_mul(MIX) >> 32]
}

impl Layout {
    /// The word and the cell in it that `selector` chooses among `third` words.
    #[inline(always)]
    fn locate(self, selector: u64, third: u32) -> (u32, u32) {
        let product = selector * u64::from(third);
        let cell = ((product & 0xFFFF_FFFF) * u64::from(self.cells_per_word)) >> 32;
        ((product >> 32) as u32, cell as u32)
    }

    /// The vertices of a name: cells of the shard, numbered consecutively over its thirds.
    #[inline]
    fn vertices(self, digest: u64, tweak: u64, third: u32) -> [u32; 3] {
        let mut offset = 0;
        selectors(digest, tweak).map(|selector| {
            let (word, cell) = self.locate(selector, third);
            let vertex = (offset + word) * self.cells_per_word + cell;
            offset += third;
            vertex
        })
    }
}

impl Bloomier {
    /// Number of names.
    pub fn len(&self) -> usize {
        self.n_names
    }

    /// Whether no name is in.
    pub fn is_empty(&self) -> bool {
        self.n_names == 0
    }

    /// Cells, used or not.
    pub fn n_cells(&self) -> u64 {
        self.cells.len() as u64 * u64::from(self.layout.cells_per_word)
    }

    /// Index of the word and shift of the cell, for all three cells.
    #[inline(always)]
    fn spots(&self, digest: Digest) -> [(u32, u32); 3] {
        let shard = self.directory[reduce(digest.0, self.directory.len() as u64).0 as usize];
        let mut start = shard.start;
        selectors(digest.0, shard.tweak).map(|selector| {
            let (word, cell) = self.layout.locate(selector, shard.third);
            let spot = (start + word, cell * u32::from(self.layout.value_bits));
            start += shard.third;
            spot
        })
    }

    #[inline(always)]
    fn value(&self, words: &[u64], spots: [(u32, u32); 3]) -> u64 {
        let cells = spots.map(|(word, shift)| words[word as usize] >> shift);
        (cells[0] ^ cells[1] ^ cells[2]) & value_mask(self.layout.value_bits)
    }
}

impl StaticMap for Bloomier {
    #[inline]
    fn lookup(&self, digest: Digest) -> u64 {
        self.value(&self.cells, self.spots(digest))
    }

    fn lookup_batch(&self, digests: &[Digest], values: &mut [u64]) {
        let words = &*self.cells;
        let values = &mut values[..digests.len()];
        let mut spots = [[(0, 0); 3]; BURST];
        for (digests, values) in digests.chunks(BURST).zip(values.chunks_mut(BURST)) {
            for (spots, &digest) in spots.iter_mut().zip(digests) {
                *spots = self.spots(digest);
                for &(word, _) in &*spots {
                    prefetch_word(words, word as usize);
                }
            }
            for (value, &spots) in values.iter_mut().zip(&spots) {
                *value = self.value(words, spots);
            }
        }
    }

    fn size_bits(&self) -> u64 {
        self.cells.size_bits() + size_of_val(&self.directory[..]) as u64 * 8
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend((self.n_names as u64).to_le_bytes());
        out.extend((self.directory.len() as u32).to_le_bytes());
        for shard in &self.directory {
            out.extend(shard.tweak.to_le_bytes());
            out.extend(shard.third.to_le_bytes());
        }
        put_words(&self.cells, out);
    }

    fn decode(settings: &Settings, bytes: &mut Bytes) -> Result<Self, DecodeError> {
        let n_names = at_most("names", bytes.u64()?, MAX_NAMES)? as usize;
        let n_shards = bytes.count(SHARD_BYTES)?;
        // Every digest maps to some shard, and to a cell in each of its thirds.
        if n_shards == 0 {
            return Err(DecodeError::Malformed { reason: "a Bloomier filter has no shards" });
        }
        let mut directory = Vec::with_capacity(n_shards);
        let mut start = 0;
        for _ in 0..n_shards {
            let (tweak, third) = (bytes.u64()?, bytes.u32()?);
            if third == 0 {
                return Err(DecodeError::Malformed { reason: "a shard of a Bloomier filter has no cells" });
            }
            directory.push(Shard { tweak, start, third });
            let end = u64::from(start) + 3 * u64::from(third);
            start = at_most("words", end, u32::MAX.into())? as u32;
        }
        let cells = take_words(bytes, start.into())?;
        let layout = Layout { value_bits: settings.value_bits, cells_per_word: cells_per_word(settings.value_bits) };
        Ok(Self { directory, cells, layout, n_names })
    }
}

impl Build for Bloomier {
    type Key = Digest;
    type Settings = Settings;

    fn build(settings: &Settings, entries: &[(Digest, u64)], threads: usize) -> Result<Self, InsertError> {
        settings.check(entries)?;
        let layout = Layout { value_bits: settings.value_bits, cells_per_word: cells_per_word(settings.value_bits) };
        let n_shards = entries.len().div_ceil(MEAN_SHARD).max(1);
        let shard_of = |digest: Digest| reduce(digest.0, n_shards as u64).0 as usize;
        let solved =
            partition::solve_by(entries, n_shards, shard_of, threads, entry, |index, mut entries, (): &mut ()| {
                solve(layout, mix64(settings.seed.wrapping_add(index as u64)), &mut entries)
            })?;
        let n_words: usize = solved.iter().map(|(_, words)| words.len()).sum();
        let mut cells = Words::zeroed(n_words);
        let mut directory = Vec::with_capacity(n_shards);
        let mut start = 0;
        for (shard, words) in solved {
            cells[start..start + words.len()].copy_from_slice(&words);
            let start_word = u32::try_from(start).expect("2^32 words of cells are 32 GiB");
            directory.push(Shard { start: start_word, ..shard });
            start += words.len();
        }
        Ok(Self { directory, cells, layout, n_names: entries.len() })
    }
}

/// Finds positions under which the names of a shard can be peeled, and its cells.
fn solve(layout: Layout, seed: u64, entries: &mut [Entry]) -> Result<(Shard, Vec<u64>), InsertError> {
    let n_names = entries.len();
    let mut peeling = Peeling::default();
    for attempt in 0..MAX_TRIES {
        let millicells = MILLICELLS + GROWTH * u64::from(attempt / TRIES_A_SIZE);
        let cells = (n_names as u64 * millicells).div_ceil(3_000) + SPARE_CELLS;
        let third = u32::try_from(cells.div_ceil(layout.cells_per_word.into())).unwrap_or(u32::MAX);
        let tweak = mix64(seed ^ u64::from(attempt));
        let n_words = 3 * third as usize;
        if peeling
            .run(entries, n_words * layout.cells_per_word as usize, |digest| layout.vertices(digest, tweak, third))
        {
            let mut words = vec![0; n_words];
            let fill =
                Fill { entries, order: &peeling.order, vertices: |digest| layout.vertices(digest, tweak, third) };
            with_cells(&mut words, layout.value_bits, fill);
            return Ok((Shard { tweak, start: 0, third }, words));
        }
        if attempt == 0 {
            // Two names with one digest have the same cells under every tweak: detect them instead of trying for ever.
            sort_distinct(entries)?;
        }
    }
    Err(InsertError::Unsolvable { n_names, tries: MAX_TRIES })
}

/// The peeling of a hypergraph, and its scratch space.
#[derive(Default)]
struct Peeling {
    /// Per vertex: the number of its edges, and the XOR of their indices, which is the edge if there is only one.
    vertices: Vec<(u32, u32)>,
    /// Vertices that may have one edge.
    single: Vec<u32>,
    /// Edges in the order of removal, each with the vertex assigned to it.
    order: Vec<(u32, u32)>,
}

impl Peeling {
    /// Peels the graph; false if some edges remain.
    fn run(&mut self, entries: &[Entry], n_vertices: usize, vertices_of: impl Fn(u64) -> [u32; 3]) -> bool {
        self.vertices.clear();
        self.vertices.resize(n_vertices, (0, 0));
        self.single.clear();
        self.order.clear();
        for (edge, &(digest, _)) in entries.iter().enumerate() {
            for vertex in vertices_of(digest) {
                let (degree, edges) = &mut self.vertices[vertex as usize];
                *degree += 1;
                *edges ^= edge as u32;
            }
        }
        let with_one_edge = self.vertices.iter().enumerate().filter(|(_, (degree, _))| *degree == 1);
        self.single.extend(with_one_edge.map(|(vertex, _)| vertex as u32));
        while let Some(own) = self.single.pop() {
            let (degree, edge) = self.vertices[own as usize];
            if degree != 1 {
                continue;
            }
            self.order.push((edge, own));
            for vertex in vertices_of(entries[edge as usize].0) {
                let (degree, edges) = &mut self.vertices[vertex as usize];
                *degree -= 1;
                *edges ^= edge;
                if *degree == 1 {
                    self.single.push(vertex);
                }
            }
        }
        self.order.len() == entries.len()
    }
}

/// Fills cells in the reverse order of peeling.
struct Fill<'a, V> {
    entries: &'a [Entry],
    order: &'a [(u32, u32)],
    vertices: V,
}

impl<V: Fn(u64) -> [u32; 3]> CellsVisitor for Fill<'_, V> {
    type Output = ();

    fn visit(self, mut cells: impl Cells) {
        for &(edge, own) in self.order.iter().rev() {
            let (digest, value) = self.entries[edge as usize];
            // The edge's own cell is still zero.
            let others = (self.vertices)(digest).into_iter().fold(0, |sum, vertex| sum ^ cells.get(vertex as usize));
            cells.set(own as usize, value ^ others);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::Rng;

    /// Tries and cells of `n_shards` random shards of `n_names`, from a fixed seed: evidence for the constants above.
    fn tries(n_shards: u64, n_names: usize, value_bits: u8) -> Vec<(u64, f64)> {
        let layout = Layout { value_bits, cells_per_word: cells_per_word(value_bits) };
        let mut rng = Rng::new(n_names as u64);
        let shard = |seed| {
            let mut entries: Vec<Entry> = (0..n_names).map(|_| (rng.next_u64(), 0)).collect();
            let (shard, _) = solve(layout, seed, &mut entries).unwrap();
            let tries = (0..MAX_TRIES.into()).position(|attempt| mix64(seed ^ attempt) == shard.tweak).unwrap() + 1;
            (tries as u64, f64::from(3 * shard.third * layout.cells_per_word) / n_names as f64)
        };
        (0..n_shards).map(shard).collect()
    }

    #[test]
    fn a_full_shard_is_peeled_within_a_few_tries() {
        let mut tries: Vec<_> = tries(64, MEAN_SHARD, 8).into_iter().map(|(tries, _)| tries).collect();
        tries.sort_unstable();
        println!("{tries:?}");
        assert!(tries.iter().sum::<u64>() <= 2 * 64, "{tries:?}");
        assert!(tries[63] <= TRIES_A_SIZE.into(), "{tries:?}");
    }

    #[test]
    fn a_shard_of_any_size_is_peeled_far_from_the_bound() {
        for n_names in [1, 2, 3, 5, 10, 30, 100, 300, 1_000, 3_000, 8_193] {
            for value_bits in [1, 64] {
                let shards = tries(64, n_names, value_bits);
                let most = shards.iter().map(|&(tries, _)| tries).max().unwrap();
                let mean = shards.iter().map(|&(tries, _)| tries).sum::<u64>() as f64 / 64.0;
                println!("{n_names} names, {value_bits} bits: {mean} tries, at most {most}");
                assert!(most <= u64::from(MAX_TRIES) / 2, "{n_names} names, {value_bits} bits: {most} tries");
            }
        }
    }
}
