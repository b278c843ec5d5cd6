//! Computes the cells of a bucket from the solution of its names and their values at one switch.
//!
//! Cost: about 0.3 us for 50 names with 8-bit values, less than 0.1 us with AVX-512.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "calls vector forms after detecting them"))]

#[cfg(target_arch = "x86_64")]
use super::avx512;
use super::layout::Layout;
use super::processor::{by_processor, with_width};
#[cfg(target_arch = "x86_64")]
use crate::base::processor::{Kernel, Vectors};

/// The number of value bits, or of combinations, that one step processes. The compiler makes vectors of loops of this
/// length.
const LANES: usize = 8;

/// Transposes a matrix of 8 by 8 bits. Each byte is a row.
#[inline(always)]
fn transposed(square: u64) -> u64 {
    let swap = |square: u64, distance: u32, mask: u64| {
        let bits = (square ^ square >> distance) & mask;
        square ^ bits ^ bits << distance
    };
    let square = swap(square, 7, 0x00AA_00AA_00AA_00AA);
    let square = swap(square, 14, 0x0000_CCCC_0000_CCCC);
    swap(square, 28, 0x0000_0000_F0F0_F0F0)
}

#[inline(always)]
fn fill_cells_with<const W: usize, const C: usize>(
    layout: Layout,
    solution: &[u64],
    values: &[u64],
    words: &mut [u64],
) {
    const { assert!(C == 64 * W) };
    let (pivots, combinations) = solution.split_at(W);
    let (combinations, _) = combinations.as_chunks::<W>();
    let mut cells = [0; C];
    for first_bit in (0..layout.value_bits).step_by(LANES) {
        // Up to 8 bits of the values, transposed: for each bit, the set of names that have it.
        let mut planes = [[0; W]; LANES];
        for (index, values) in values.chunks(LANES).enumerate() {
            let byte = |value: u64| value >> first_bit & 0xFF;
            let square = values.iter().rev().fold(0, |square, &value| square << 8 | byte(value));
            let square = transposed(square);
            for (bit, plane) in planes.iter_mut().enumerate() {
                plane[index / 8 % W] |= (square >> (8 * bit) & 0xFF) << (index % 8 * 8);
            }
        }
        for (cells, combinations) in cells.chunks_mut(LANES).zip(combinations.chunks(LANES)) {
            let mut lanes = [[0; W]; LANES];
            lanes[..combinations.len()].copy_from_slice(combinations);
            for (bit, plane) in planes.iter().enumerate() {
                for (cell, combination) in cells.iter_mut().zip(lanes) {
                    let both = plane.iter().zip(combination).fold(0, |sum, (plane, names)| sum ^ plane & names);
                    *cell |= u64::from(both.count_ones() & 1) << (first_bit as usize + bit);
                }
            }
        }
    }
    let mut cells = cells.iter();
    for (word, &pivots) in pivots.iter().enumerate() {
        let mut left = pivots;
        while left != 0 {
            let slot = (word * 64) as u32 + left.trailing_zeros();
            left &= left - 1;
            let (word, shift) = layout.place(slot);
            words[word] |= cells.next().expect("a cell for every pivot") << shift;
        }
    }
}

/// Writes the cells for these values into a bucket of zeros. The values are in the order of names.
pub(super) fn fill_cells(layout: Layout, solution: &[u64], values: &[u64], words: &mut [u64]) {
    #[cfg(target_arch = "x86_64")]
    if layout.value_bits == 8
        && Kernel::get().vectors() == Vectors::Avx512Ifma
        && let Some(bucket) = words.as_mut_array()
    {
        // SAFETY: the processor has the kernel.
        unsafe { avx512::fill_bytes(solution, values, bucket) };
        return;
    }
    fill_cells_of_any_width(layout, solution, values, words);
}

by_processor! {
    fn fill_cells_of_any_width(layout: Layout, solution: &[u64], values: &[u64], words: &mut [u64]) {
        with_width!(layout, fill_cells_with(layout, solution, values, words))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Trade;
    use super::super::solve::solve;
    use super::*;
    use crate::testkit::{Rng, seed};

    #[test]
    fn the_form_for_bytes_is_equal_to_that_of_any_width() {
        let mut rng = Rng::new(seed());
        for trade in Trade::ALL {
            let layout = Layout::new(8, trade);
            let mut filled = 0;
            for round in 0..2_000 {
                let digests: Vec<_> = (0..round % 60).map(|_| rng.next_u64()).collect();
                let mut solution = Vec::new();
                if !solve(layout, &digests, rng.next_u64() as u8, &mut solution) {
                    continue;
                }
                let values: Vec<_> = digests.iter().map(|_| rng.below(256)).collect();
                let (mut words, mut expected) = ([0; 8], [0; 8]);
                fill_cells(layout, &solution, &values, &mut words);
                fill_cells_of_any_width(layout, &solution, &values, &mut expected);
                assert_eq!(words, expected);
                filled += 1;
            }
            assert!(filled > 500, "{filled}");
        }
    }
}
