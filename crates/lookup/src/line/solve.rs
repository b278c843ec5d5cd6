//! Elimination over GF(2): the names of a bucket as a linear system, solved once for all values.
//!
//! Each name is a row with ones in its 3 or 4 slots. The rows are brought to reduced echelon form with leftmost pivots
//! as they come, and what was added up to each row is kept (its *combination*). When all rows are independent the pivot
//! cell of a row is the XOR of the values of its combination and all other cells are 0: a pure function of the names,
//! the tweak and the values, whatever order the names came in. A system of dependent rows is refused even where the
//! values of the day happen to fit it, for tomorrow's would not.
//!
//! Cost at 50 names of 62 cells: see `fibula bench build`; rank alone is a third of a solution.
//! Source: Gauss and Jordan; "four Russians" tables do not pay at this size.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "calls the AVX2 form after detecting it"))]

use super::layout::{Layout, MAX_PARTS};

/// The pivot columns as a bit set, then, in their order, the combination of each: `row_words` words each.
pub(super) type Solution = Vec<u64>;

/// Rows in reduced echelon form, by pivot column; `C` is 64 `W`. All other rows are zero.
struct Echelon<const W: usize, const C: usize> {
    rows: [[u64; W]; C],
    combinations: [[u64; W]; C],
}

impl<const W: usize, const C: usize> Echelon<W, C> {
    fn new() -> Self {
        Self { rows: [[0; W]; C], combinations: [[0; W]; C] }
    }

    /// Adds the row of name `index`; false when it depends on those that are in.
    #[inline(always)]
    fn add<const COMBINED: bool>(&mut self, slots: &[u16], index: usize) -> bool {
        let (mut row, mut combination) = ([0; W], [0; W]);
        combination[index / 64 % W] = 1 << (index % 64);
        for &slot in slots {
            let slot = usize::from(slot) % C;
            row[slot / 64] ^= 1 << (slot % 64);
            // No pivot row has a one in another's column, so that one pass clears the row of all of them.
            for word in 0..W {
                row[word] ^= self.rows[slot][word];
                if COMBINED {
                    combination[word] ^= self.combinations[slot][word];
                }
            }
        }
        let Some(word) = row.iter().position(|&word| word != 0) else { return false };
        let bit = row[word].trailing_zeros();
        // Narrow rows: all, with a mask, for that is a vector loop. Wide ones: those that have the bit.
        for at in 0..C {
            let has = self.rows[at][word] >> bit & 1;
            if W > 2 && has == 0 {
                continue;
            }
            let mask = 0u64.wrapping_sub(has);
            for word in 0..W {
                self.rows[at][word] ^= row[word] & mask;
                if COMBINED {
                    self.combinations[at][word] ^= combination[word] & mask;
                }
            }
        }
        let pivot = word * 64 + bit as usize;
        self.rows[pivot] = row;
        self.combinations[pivot] = combination;
        true
    }
}

#[inline(always)]
fn has_full_rank_with<const W: usize, const C: usize>(slots: &[[u16; MAX_PARTS]], n_parts: usize) -> bool {
    let mut echelon = Echelon::<W, C>::new();
    slots.iter().enumerate().all(|(index, slots)| echelon.add::<false>(&slots[..n_parts], index))
}

#[inline(always)]
fn solve_with<const W: usize, const C: usize>(slots: &[[u16; MAX_PARTS]], n_parts: usize) -> Option<Solution> {
    let mut echelon = Echelon::<W, C>::new();
    if !slots.iter().enumerate().all(|(index, slots)| echelon.add::<true>(&slots[..n_parts], index)) {
        return None;
    }
    let mut solution = Vec::with_capacity((slots.len() + 1) * W);
    solution.resize(W, 0);
    for (column, row) in echelon.rows.iter().enumerate() {
        if *row != [0; W] {
            solution[column / 64] |= 1 << (column % 64);
            solution.extend(echelon.combinations[column]);
        }
    }
    Some(solution)
}

/// `$run!(W, C)` for the width of the layout's rows.
macro_rules! with_width {
    ($layout:expr, $function:ident ( $($argument:expr),* )) => {
        match $layout.row_words() {
            1 => $function::<1, 64>($($argument),*),
            2 => $function::<2, 128>($($argument),*),
            4 => $function::<4, 256>($($argument),*),
            _ => $function::<8, 512>($($argument),*),
        }
    };
}

#[inline(always)]
fn has_full_rank_here(layout: Layout, slots: &[[u16; MAX_PARTS]]) -> bool {
    with_width!(layout, has_full_rank_with(slots, layout.n_parts))
}

#[inline(always)]
fn solve_here(layout: Layout, slots: &[[u16; MAX_PARTS]]) -> Option<Solution> {
    with_width!(layout, solve_with(slots, layout.n_parts))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1")]
fn has_full_rank_avx2(layout: Layout, slots: &[[u16; MAX_PARTS]]) -> bool {
    has_full_rank_here(layout, slots)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1")]
fn solve_avx2(layout: Layout, slots: &[[u16; MAX_PARTS]]) -> Option<Solution> {
    solve_here(layout, slots)
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("bmi1")
}

/// Whether the rows of names in these slots are independent.
pub(super) fn has_full_rank(layout: Layout, slots: &[[u16; MAX_PARTS]]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the processor has what the function is compiled for.
        return unsafe { has_full_rank_avx2(layout, slots) };
    }
    has_full_rank_here(layout, slots)
}

/// The solution for names in these slots, if their rows are independent.
pub(super) fn solve(layout: Layout, slots: &[[u16; MAX_PARTS]]) -> Option<Solution> {
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the processor has what the function is compiled for.
        return unsafe { solve_avx2(layout, slots) };
    }
    solve_here(layout, slots)
}

/// The values of names, transposed: a bit set of names for each bit of a value.
type Planes<const W: usize> = [[u64; W]; 32];

/// Writes the cells that a solution has for these values, in the order of names, into a bucket of zeros.
pub(super) fn paint(layout: Layout, solution: &[u64], values: impl Iterator<Item = u64>, words: &mut [u64]) {
    #[inline(always)]
    fn with<const W: usize, const C: usize>(
        layout: Layout,
        solution: &[u64],
        values: impl Iterator<Item = u64>,
        words: &mut [u64],
    ) {
        const { assert!(C == 64 * W) };
        let bits = layout.value_bits as usize;
        let mut planes: Planes<W> = [[0; W]; 32];
        for (index, value) in values.enumerate() {
            for (bit, plane) in planes[..bits].iter_mut().enumerate() {
                plane[index / 64] |= (value >> bit & 1) << (index % 64);
            }
        }
        let (pivots, combinations) = solution.split_at(W);
        let (combinations, _) = combinations.as_chunks::<W>();
        let mut combinations = combinations.iter();
        for (word, &pivots) in pivots.iter().enumerate() {
            let mut left = pivots;
            while left != 0 {
                let slot = (word * 64) as u32 + left.trailing_zeros();
                left &= left - 1;
                let combination = combinations.next().expect("a combination for every pivot");
                let mut cell = 0;
                for (bit, plane) in planes[..bits].iter().enumerate() {
                    let both =
                        plane.iter().zip(combination).fold(0, |sum, (plane, combination)| sum ^ plane & combination);
                    cell |= u64::from(both.count_ones() & 1) << bit;
                }
                let (word, shift) = layout.place(slot);
                words[word] |= cell << shift;
            }
        }
    }
    with_width!(layout, with(layout, solution, values, words));
}

#[cfg(test)]
mod tests {
    use super::super::Trade;
    use super::*;
    use crate::testkit::{Rng, seed};

    #[test]
    fn a_solution_gives_every_name_its_value_whatever_the_order() {
        let mut rng = Rng::new(seed());
        for value_bits in [1, 2, 3, 4, 5, 7, 8, 11, 16, 24, 32] {
            let layout = Layout::new(value_bits, Trade::Balanced);
            let mut solved = 0;
            while solved < 8 {
                let n_names = rng.below(layout.n_cells() as u64 * 8 / 10) as usize;
                let names: Vec<(u64, u64)> =
                    (0..n_names).map(|_| (rng.next_u64(), rng.next_u64() & layout.value_mask())).collect();
                let tweak = rng.next_u64() as u8;
                let slots = |names: &[(u64, u64)]| -> Vec<_> {
                    names.iter().map(|&(digest, _)| layout.slots(digest, tweak)).collect()
                };
                let Some(solution) = solve(layout, &slots(&names)) else {
                    assert!(!has_full_rank(layout, &slots(&names)));
                    continue;
                };
                assert!(has_full_rank(layout, &slots(&names)));
                let mut words = vec![0; layout.n_words()];
                paint(layout, &solution, names.iter().map(|name| name.1), &mut words);
                for &(digest, value) in &names {
                    let found = layout.slots(digest, tweak)[..layout.n_parts].iter().fold(0, |sum, &slot| {
                        let (word, shift) = layout.place(slot.into());
                        sum ^ words[word] >> shift
                    });
                    assert_eq!(found & layout.value_mask(), value);
                }
                let mut backwards = names.clone();
                backwards.reverse();
                let mut again = vec![0; layout.n_words()];
                let solution = solve(layout, &slots(&backwards)).expect("the same rows");
                paint(layout, &solution, backwards.iter().map(|name| name.1), &mut again);
                assert_eq!(words, again);
                solved += 1;
            }
        }
    }

    #[test]
    fn dependent_rows_are_refused() {
        let layout = Layout::new(8, Trade::Balanced);
        let slots = [[2, 30, 50, 0], [3, 30, 50, 0], [2, 31, 50, 0], [3, 31, 50, 0]];
        assert!(!has_full_rank(layout, &slots));
        assert!(solve(layout, &slots).is_none());
        assert!(solve(layout, &slots[..3]).is_some());
        assert!(solve(layout, &[]).is_some());
    }

    #[test]
    #[ignore = "a table of chances, for choosing bounds"]
    fn chances_of_full_rank() {
        let mut rng = Rng::new(1);
        for (value_bits, trade) in
            [(8, Trade::Balanced), (8, Trade::Small), (16, Trade::Balanced), (4, Trade::Balanced), (1, Trade::Balanced)]
        {
            let layout = Layout::new(value_bits, trade);
            for n_names in (layout.n_cells() * 6 / 10..=layout.n_cells()).step_by(layout.n_cells() / 62) {
                let n = if value_bits == 1 { 100 } else { 2000 };
                let solved = (0..n)
                    .filter(|_| {
                        let slots: Vec<_> = (0..n_names).map(|_| layout.slots(rng.next_u64(), 7)).collect();
                        has_full_rank(layout, &slots)
                    })
                    .count();
                println!(
                    "{} cells, {} a name: {n_names} names: {}",
                    layout.n_cells(),
                    layout.n_parts,
                    solved as f64 / n as f64
                );
            }
        }
    }
}
