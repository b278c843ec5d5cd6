//! Where things are in a bucket, and which bits of a digest select them. Both halves of a table agree on this.
//!
//! ```text
//! bucket, 1 line of 64 bytes (2 from 9 bits of value on, 4 from 17):
//! | tweak, 8 bits | threshold, 8 bits | cells of l bits, none across two 64-bit words |
//!
//! digest, 64 bits:
//! | group: up to 24 of 63..40 | first bucket: 39..8                      | first rank: 7..0 |
//!                             | second rank: 31..24 | second bucket: 23..8 |
//!                                                   | third rank: 23..16   |
//! cells of a name in its bucket: mix(digest, tweak) as four numbers of 16 bits, each reduced to a part of the cells
//! ```

use super::Trade;
use crate::base::arena::LINE;
use crate::base::cells::value_mask;
use crate::hash::tweak::mix;

/// The most cells of a name.
pub(super) const MAX_PARTS: usize = 4;
/// The most 64-bit words of a bucket.
pub(super) const MAX_WORDS: usize = 32;
/// Levels of buckets. The names that the last one bumps are in the stash.
pub(super) const LEVELS: usize = 3;
/// Bits of a bucket's header.
const HEADER_BITS: u32 = 16;
/// The threshold of a bucket that bumps no name. It is above every rank.
pub(super) const KEEP_ALL: u8 = 255;
/// Bytes of a stash in the arena: a count, then the digest and the value of each name.
pub(super) const STASH_BYTES: usize = 8 + 16 * super::MAX_STASH;

/// The cells of a bucket, and how names find theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// l: bits of a cell.
    pub(super) value_bits: u32,
    /// log2 of the lines of a bucket.
    pub(super) log_lines: u32,
    /// Cells per word.
    pub(super) per_word: u32,
    /// 2^16 / `per_word`, rounded up: it turns a division into a multiplication.
    inverse: u32,
    /// Slots that the header occupies.
    pub(super) header_slots: u32,
    /// Cells of a name: 3 or 4.
    pub(super) n_parts: usize,
    /// The number of cells of each part, 16 bits each, and in `starts` the first cell of each part.
    pub(super) lengths: u64,
    pub(super) starts: u64,
}

impl Layout {
    pub(super) fn new(value_bits: u8, trade: Trade) -> Self {
        let value_bits = u32::from(value_bits);
        let log_lines = match value_bits {
            0..=8 => 0,
            9..=16 => 1,
            _ => 2,
        };
        let per_word = 64 / value_bits;
        let header_slots = HEADER_BITS.div_ceil(value_bits);
        let n_cells = per_word * (8 << log_lines) - header_slots;
        let n_parts = usize::from(trade.cells_a_name());
        let (mut lengths, mut starts) = (0, 0);
        for part in 0..n_parts as u32 {
            let bound = |part: u32| u64::from(header_slots + n_cells * part / n_parts as u32);
            starts |= bound(part) << (16 * part);
            lengths |= (bound(part + 1) - bound(part)) << (16 * part);
        }
        let inverse = (1u32 << 16).div_ceil(per_word);
        Self { value_bits, log_lines, per_word, inverse, header_slots, n_parts, lengths, starts }
    }

    /// Bytes of a bucket.
    pub(super) fn bytes(self) -> usize {
        LINE << self.log_lines
    }

    /// 64-bit words of a bucket.
    pub(super) fn n_words(self) -> usize {
        8 << self.log_lines
    }

    /// Slots of a bucket: its cells, and the slots that the header occupies.
    pub(super) fn n_slots(self) -> usize {
        self.n_words() * self.per_word as usize
    }

    /// Cells of a bucket.
    pub(super) fn n_cells(self) -> usize {
        self.n_slots() - self.header_slots as usize
    }

    /// 64-bit words of a row, which has a bit for each slot: 1, 2, 4 or 8.
    pub(super) fn row_words(self) -> usize {
        self.n_slots().div_ceil(64).next_power_of_two()
    }

    pub(super) fn value_mask(self) -> u64 {
        value_mask(self.value_bits as u8)
    }

    /// The slots whose XOR is the value of `digest` in a bucket with this tweak. The first `n_parts` of them count.
    #[inline(always)]
    pub(super) fn slots(self, digest: u64, tweak: u8) -> [u16; MAX_PARTS] {
        // Arrays of halfwords: the compiler has one instruction for the upper halves of all four products.
        let lanes = |word: u64| bytemuck::cast::<u64, [u16; MAX_PARTS]>(word.to_le()).map(u16::from_le);
        let (x, lengths, starts) = (lanes(mix(digest, tweak.into())), lanes(self.lengths), lanes(self.starts));
        std::array::from_fn(|part| ((u32::from(x[part]) * u32::from(lengths[part])) >> 16) as u16 + starts[part])
    }

    /// The slots of `digest` in a bucket of at most 64 slots, as the bits of a word. It uses no arrays, so that the
    /// compiler makes vectors of loops over digests or tweaks.
    #[inline(always)]
    pub(super) fn row(self, digest: u64, tweak: u8) -> u64 {
        let x = mix(digest, tweak.into());
        let lane = |word: u64, part: usize| word >> (16 * part) & 0xFFFF;
        let slot = |part| ((lane(x, part) * lane(self.lengths, part)) >> 16) + lane(self.starts, part);
        // With three parts, the fourth is slot 0. That is the header, not a cell.
        (0..MAX_PARTS).fold(0, |row, part| row | 1 << (slot(part) % 64)) & !1
    }

    /// Word and shift of a slot.
    #[inline(always)]
    pub(super) fn place(self, slot: u32) -> (usize, u32) {
        let word = (slot * self.inverse) >> 16;
        (word as usize, (slot - word * self.per_word) * self.value_bits)
    }

    /// The offset and the number of the bytes that are read with a slot: those of the cell where cells are read one by
    /// one, those of its word otherwise.
    pub(super) fn bytes_of(self, slot: u32) -> (usize, usize) {
        let (word, shift) = self.place(slot);
        match self.value_bits {
            8 | 16 if cfg!(target_endian = "little") => (word * 8 + shift as usize / 8, self.value_bits as usize / 8),
            _ => (word * 8, 8),
        }
    }
}

/// The bucket of a digest at a level. 32 bits of the digest choose it at the first level, 16 at the second. The third
/// level has one bucket.
#[inline(always)]
pub(super) fn bucket(digest: u64, level: usize, n_buckets: u32) -> u32 {
    match level {
        0 => (((digest >> 8 & 0xFFFF_FFFF) * u64::from(n_buckets)) >> 32) as u32,
        1 => (((digest >> 8 & 0xFFFF) * u64::from(n_buckets)) >> 16) as u32,
        _ => 0,
    }
}

/// The rank of a name at a level, below [`KEEP_ALL`]. A bucket keeps the names whose rank is below its threshold.
#[inline(always)]
pub(super) fn rank(digest: u64, level: usize) -> u8 {
    let byte = (digest >> [0, 24, 16][level]) as u8;
    byte - (byte >> 7)
}

/// What a reader needs to know about a group. It has 64 bits, so that one atomic load reads all of it.
///
/// ```text
/// | first line in the arena, 32 | stash?, 1 | third?, 1 | second buckets, 14 | first buckets, 16 |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) offset_lines: u32,
    pub(super) n_buckets: [u16; LEVELS],
    pub(super) stash: bool,
}

/// The most buckets of the second level.
pub(super) const MAX_SECOND: u16 = (1 << 14) - 1;
/// The bit of a packed geometry that is set if there is a stash.
pub(super) const STASH_BIT: u64 = 1 << 31;

impl Geometry {
    pub(super) fn pack(self) -> u64 {
        let [first, second, third] = self.n_buckets.map(u64::from);
        u64::from(self.offset_lines) << 32 | u64::from(self.stash) << 31 | third << 30 | second << 16 | first
    }

    #[inline(always)]
    pub(super) fn unpack(entry: u64) -> Self {
        Self {
            offset_lines: (entry >> 32) as u32,
            n_buckets: [entry as u16, (entry >> 16) as u16 & MAX_SECOND, (entry >> 30) as u16 & 1],
            stash: entry & STASH_BIT != 0,
        }
    }

    /// Buckets of all levels.
    pub(super) fn n_all(self) -> usize {
        self.n_buckets.iter().map(|&n| usize::from(n)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_cells_once_and_no_header() {
        for value_bits in 1..=32 {
            for trade in [Trade::Fast, Trade::Balanced, Trade::Small] {
                let layout = Layout::new(value_bits, trade);
                let mut end = layout.header_slots;
                assert!(layout.place(end).1 >= 16 || layout.place(end).0 > 0, "{layout:?}");
                for part in 0..layout.n_parts {
                    let lane = |word: u64| (word >> (16 * part)) as u16;
                    assert_eq!(u32::from(lane(layout.starts)), end);
                    end += u32::from(lane(layout.lengths));
                }
                assert_eq!(end as usize, layout.n_slots());
                let places: Vec<_> = (0..end).map(|slot| layout.place(slot)).collect();
                assert!(
                    places.iter().all(|&(word, shift)| { word < layout.n_words() && shift + layout.value_bits <= 64 })
                );
                assert!(places.windows(2).all(|pair| pair[0] < pair[1]));
            }
        }
    }

    #[test]
    fn geometry_survives_packing() {
        for geometry in [
            Geometry { offset_lines: u32::MAX, n_buckets: [u16::MAX, MAX_SECOND, 1], stash: false },
            Geometry { offset_lines: 7, n_buckets: [1, 0, 0], stash: true },
        ] {
            assert_eq!(Geometry::unpack(geometry.pack()), geometry);
        }
    }

    #[test]
    fn ranks_are_below_the_threshold_that_keeps_all() {
        assert!(
            (0..=u64::MAX >> 32).step_by(9_973).all(|digest| (0..LEVELS).all(|level| rank(digest, level) < KEEP_ALL))
        );
    }
}
