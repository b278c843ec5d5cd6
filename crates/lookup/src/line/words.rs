//! Systems whose rows are single words: buckets of at most 64 slots, such as those for 8-bit values.
//!
//! Elimination handles one row after the other, and each step waits for the one before. At the default load more than
//! half of all tweaks fail. With AVX-512 a whole system fits into registers. Without it, the rank is computed for four
//! tweaks at a time, one per vector lane, in about the time of one.
//!
//! Cost at 50 names of 62 cells (AMD EPYC, Zen 3, AVX2): 1.4 us for four ranks, 1.7 us for a solution.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "calls vector forms after detecting them"))]

#[cfg(target_arch = "x86_64")]
use super::avx512;
use super::layout::Layout;
use super::processor::by_processor;
use super::solve::Solution;
#[cfg(target_arch = "x86_64")]
use crate::base::processor::{Kernel, Vectors};

/// The most rows of a system. Unused rows are zero.
pub(super) const ROWS: usize = 64;

/// All ones if the word is not zero.
#[inline(always)]
fn is_some(word: u64) -> u64 {
    0u64.wrapping_sub((word != 0).into())
}

/// Whether these functions can handle `n_names` names of a layout.
pub(super) fn fit(layout: Layout, n_names: usize) -> bool {
    layout.row_words() == 1 && n_names <= ROWS
}

/// As [`find_tweak`](super::solve::find_tweak), for names that [`fit`].
pub(super) fn find_tweak(layout: Layout, digests: &[u64], tweak: u8, n: u8) -> Option<u8> {
    #[cfg(target_arch = "x86_64")]
    if Kernel::get().vectors() == Vectors::Avx512Ifma {
        let mut rows = [0; ROWS];
        return (0..n).map(|step| tweak.wrapping_add(step)).find(|&tweak| {
            place(layout, digests, tweak, &mut rows);
            // SAFETY: the processor has AVX-512.
            unsafe { avx512::are_independent(&rows) }
        });
    }
    find_tweak_in_memory(layout, digests, tweak, n)
}

/// As [`find_tweak`], without AVX-512.
pub(super) fn find_tweak_in_memory(layout: Layout, digests: &[u64], tweak: u8, n: u8) -> Option<u8> {
    (0..n).step_by(TWEAKS).find_map(|step| {
        let independent = independent_of_several(layout, digests, tweak.wrapping_add(step));
        let tries = u32::from(step) + independent.trailing_zeros();
        (independent != 0 && tries < n.into()).then_some(tweak.wrapping_add(tries as u8))
    })
}

/// As [`solve`](super::solve::solve), for names that [`fit`].
pub(super) fn solve(layout: Layout, digests: &[u64], tweak: u8, solution: &mut Solution) -> bool {
    #[cfg(target_arch = "x86_64")]
    if Kernel::get().vectors() == Vectors::Avx512Ifma {
        let (mut rows, mut pivots, mut combinations) = ([0; ROWS], [0; ROWS], [0; ROWS]);
        place(layout, digests, tweak, &mut rows);
        // SAFETY: the processor has AVX-512.
        unsafe { avx512::eliminate(&rows, digests.len(), &mut pivots, &mut combinations) };
        return put_solution(&pivots[..digests.len()], &combinations, solution);
    }
    solve_in_memory(layout, digests, tweak, solution)
}

/// As [`solve`], without AVX-512.
pub(super) fn solve_in_memory(layout: Layout, digests: &[u64], tweak: u8, solution: &mut Solution) -> bool {
    let (mut rows, mut pivots, mut combinations) = ([0; ROWS], [0; ROWS], [0; ROWS]);
    place(layout, digests, tweak, &mut rows);
    eliminate_in_memory(&mut rows, digests.len(), &mut pivots, &mut combinations);
    put_solution(&pivots[..digests.len()], &combinations, solution)
}

by_processor! {
    /// Writes the rows of names under a tweak.
    fn place(layout: Layout, digests: &[u64], tweak: u8, rows: &mut [u64; ROWS]) {
        rows.iter_mut().zip(digests).for_each(|(row, &digest)| *row = layout.row(digest, tweak));
    }
}

/// Tweaks that are tried at once: the lanes of an AVX2 vector.
const TWEAKS: usize = 4;

by_processor! {
    /// The tweaks, of [`TWEAKS`] beginning with `tweak`, under which the rows of names are independent, as bits.
    fn independent_of_several(layout: Layout, digests: &[u64], tweak: u8) -> u8 {
        // Explicit loops over lanes: the compiler sometimes does not inline a closure that makes an array, and then
        // uses no vectors.
        let mut rows = [[0u64; TWEAKS]; ROWS];
        for (row, &digest) in rows.iter_mut().zip(digests) {
            for (lane, row) in row.iter_mut().enumerate() {
                *row = layout.row(digest, tweak.wrapping_add(lane as u8));
            }
        }
        let mut independent = [u64::MAX; TWEAKS];
        let n_rows = digests.len().min(ROWS);
        for at in 0..n_rows {
            let row = rows[at];
            let mut pivot = [0; TWEAKS];
            for lane in 0..TWEAKS {
                pivot[lane] = row[lane] & row[lane].wrapping_neg();
                independent[lane] &= is_some(row[lane]);
            }
            if independent == [0; TWEAKS] {
                break;
            }
            for other in &mut rows[at + 1..n_rows] {
                let mut reduced = *other;
                for lane in 0..TWEAKS {
                    reduced[lane] ^= row[lane] & is_some(reduced[lane] & pivot[lane]);
                }
                *other = reduced;
            }
        }
        (0..TWEAKS).fold(0, |bits, lane| bits | (independent[lane] as u8 & 1) << lane)
    }
}

by_processor! {
    /// Brings the first `n_rows` rows to reduced echelon form. Writes the pivot column of each as a bit, or zero where
    /// it depends on the rows before it, and its combination: the set of rows that it is the sum of.
    fn eliminate_in_memory(rows: &mut [u64; ROWS], n_rows: usize, pivots: &mut [u64; ROWS], combinations: &mut [u64; ROWS]) {
        combinations.iter_mut().enumerate().for_each(|(at, combination)| *combination = 1 << at);
        // Unused rows are zero. Including some of them fills the last vector, and spares the loop a remainder.
        let n_filled = n_rows.next_multiple_of(4).min(ROWS);
        for at in 0..n_rows.min(ROWS) {
            let (row, combination) = (rows[at], combinations[at]);
            let pivot = row & row.wrapping_neg();
            pivots[at] = pivot;
            for other in 0..n_filled {
                // All rows but this one, by a mask: a store of one word would delay the vector loads that follow.
                let has = is_some(rows[other] & pivot) & is_some((other ^ at) as u64);
                rows[other] ^= row & has;
                combinations[other] ^= combination & has;
            }
        }
    }
}

/// As [`append`](super::solve::append), for names that [`fit`].
pub(super) fn append(layout: Layout, solution: &mut Solution, digests: &[u64], tweak: u8) -> bool {
    let mut rows = [0; ROWS];
    place(layout, digests, tweak, &mut rows);
    let Some((pivots, combinations)) = solution.split_first_mut() else { unreachable!("a solution has its pivots") };
    let (combination, pivot) = reduce(&rows, digests.len() - 1, *pivots, combinations);
    if pivot == 0 {
        return false;
    }
    let at = 1 + n_below(*pivots, pivot);
    *pivots |= pivot;
    solution.insert(at, combination);
    true
}

/// The number of pivots before the one in `column`, a word with one bit.
#[inline(always)]
fn n_below(pivots: u64, column: u64) -> usize {
    (pivots & (column - 1)).count_ones() as usize
}

by_processor! {
    /// Reduces the row of name `index`, the last one, by a solution of the names before it. Returns its combination and its
    /// pivot, and clears that column in the combinations. The pivot is 0, and nothing changes, if the row depends on the
    /// others. Rows after it are zero.
    fn reduce(rows: &[u64; ROWS], index: usize, pivots: u64, combinations: &mut [u64]) -> (u64, u64) {
        let mut combination = 1 << index;
        let mut met = rows[index] & pivots;
        while met != 0 {
            let column = met & met.wrapping_neg();
            combination ^= combinations[n_below(pivots, column)];
            met ^= column;
        }
        let mut row = 0;
        for (name, of_name) in rows.iter().enumerate() {
            row ^= of_name & is_some(combination >> name & 1);
        }
        let pivot = row & row.wrapping_neg();
        if pivot == 0 {
            return (0, 0);
        }
        // The names that have a one in the pivot's column. A reduced row has a one there if its combination has an odd
        // number of them.
        let mut column = 0;
        for (name, of_name) in rows.iter().enumerate() {
            column |= u64::from(of_name & pivot != 0) << name;
        }
        for other in combinations {
            *other ^= combination & is_some(u64::from((*other & column).count_ones() & 1));
        }
        (combination, pivot)
    }
}

/// Writes the solution, from the pivot and the combination of each row. Returns false if rows depend on others.
fn put_solution(pivots: &[u64], combinations: &[u64; ROWS], solution: &mut Solution) -> bool {
    let columns = pivots.iter().fold(0, |columns, pivot| columns | pivot);
    if columns.count_ones() as usize != pivots.len() {
        return false;
    }
    let mut by_column = [0; 64];
    for (pivot, &combination) in pivots.iter().zip(combinations) {
        by_column[pivot.trailing_zeros() as usize % 64] = combination;
    }
    solution.clear();
    solution.push(columns);
    let mut left = columns;
    while left != 0 {
        solution.push(by_column[left.trailing_zeros() as usize]);
        left &= left - 1;
    }
    true
}
