//! Packed cells of 1 to 64 bits in 64-bit words. A cell never straddles two words.
//!
//! Cell `i` of `l` bits is in word `i / c` at bit `(i % c) * l`, where `c = floor(64 / l)`. So a cell is always
//! read by one load and written by one store. A width that divides 64 wastes no bits; any other width wastes `64 - c *
//! l` bits per word. Cells of 8, 16, 32 and 64 bits are read and written as integers of their own size.

#[cfg(target_endian = "big")]
compile_error!("cells are laid out for little-endian machines");

/// Cells per word, for cells of `value_bits` bits.
/// # Panics
/// When `value_bits` is 0 or over 64.
pub const fn cells_per_word(value_bits: u8) -> u32 {
    assert!(value_bits >= 1 && value_bits <= 64);
    64 / value_bits as u32
}

/// The largest value of a cell.
pub const fn value_mask(value_bits: u8) -> u64 {
    u64::MAX >> (64 - value_bits as u32)
}

/// Random access to the cells of some words.
pub trait Cells {
    /// The value of a cell.
    fn get(&self, cell: usize) -> u64;
    /// Sets a cell to a value that fits.
    fn set(&mut self, cell: usize, value: u64);
}

macro_rules! native_cells {
    ($int:ty) => {
        impl Cells for &mut [$int] {
            #[inline]
            fn get(&self, cell: usize) -> u64 {
                u64::from(self[cell])
            }
            #[inline]
            fn set(&mut self, cell: usize, value: u64) {
                self[cell] = value as $int;
            }
        }
    };
}
native_cells!(u8);
native_cells!(u16);
native_cells!(u32);
native_cells!(u64);

/// Cells of a width that has no integer type.
pub struct Packed<'a> {
    words: &'a mut [u64],
    value_bits: u32,
    cells_per_word: usize,
    mask: u64,
}

impl Cells for Packed<'_> {
    #[inline]
    fn get(&self, cell: usize) -> u64 {
        let shift = (cell % self.cells_per_word) as u32 * self.value_bits;
        self.words[cell / self.cells_per_word] >> shift & self.mask
    }
    #[inline]
    fn set(&mut self, cell: usize, value: u64) {
        let shift = (cell % self.cells_per_word) as u32 * self.value_bits;
        let word = &mut self.words[cell / self.cells_per_word];
        *word = *word & !(self.mask << shift) | value << shift;
    }
}

/// Work on cells. It is compiled once for each way to store them.
pub trait CellsVisitor {
    /// What the work yields.
    type Output;
    /// Does the work.
    fn visit(self, cells: impl Cells) -> Self::Output;
}

/// Runs `visitor` on the cells of `value_bits` bits in `words`. There is one `match` per call, and none per cell.
pub fn with_cells<V: CellsVisitor>(words: &mut [u64], value_bits: u8, visitor: V) -> V::Output {
    match value_bits {
        8 => visitor.visit(bytemuck::cast_slice_mut::<u64, u8>(words)),
        16 => visitor.visit(bytemuck::cast_slice_mut::<u64, u16>(words)),
        32 => visitor.visit(bytemuck::cast_slice_mut::<u64, u32>(words)),
        64 => visitor.visit(words),
        _ => visitor.visit(Packed {
            words,
            value_bits: u32::from(value_bits),
            cells_per_word: cells_per_word(value_bits) as usize,
            mask: value_mask(value_bits),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fill;
    impl CellsVisitor for Fill {
        type Output = Vec<u64>;
        fn visit(self, mut cells: impl Cells) -> Vec<u64> {
            for cell in 0..40 {
                cells.set(cell, u64::MAX);
            }
            for cell in (0..40).step_by(3) {
                cells.set(cell, 0);
            }
            (0..40).map(|cell| cells.get(cell) & 1).collect()
        }
    }

    struct Extremes(u64);
    impl CellsVisitor for Extremes {
        type Output = ();
        fn visit(self, mut cells: impl Cells) {
            let value = |cell: usize| (cell as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) & self.0;
            for cell in 0..128 {
                cells.set(cell, self.0);
            }
            for cell in (0..128).rev() {
                cells.set(cell, value(cell));
            }
            for cell in 0..128 {
                assert_eq!(cells.get(cell), value(cell));
            }
        }
    }

    #[test]
    fn cells_of_every_width_keep_their_value_and_leave_their_neighbours() {
        for value_bits in 1..=64 {
            let words = 128usize.div_ceil(cells_per_word(value_bits) as usize);
            with_cells(&mut vec![0; words], value_bits, Extremes(value_mask(value_bits)));
        }
    }

    #[test]
    fn one_bit_cells_are_exact_under_overwrites() {
        let expected: Vec<u64> = (0..40).map(|cell| u64::from(cell % 3 != 0)).collect();
        assert_eq!(with_cells(&mut [0; 1], 1, Fill), expected);
    }
}
