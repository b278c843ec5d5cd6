//! Elimination over GF(2): the names of a bucket form a linear system, which is solved once for all values.
//!
//! Each name is a row with ones in its 3 or 4 slots. The rows are brought to reduced echelon form with leftmost pivots,
//! one after another. For each reduced row, its *combination* is kept: the set of rows that it is the sum of. If all
//! rows are independent, the cell at a pivot is the XOR of the values of its row's combination, and all other cells are
//! 0. So the cells are a pure function of the names, the tweak and the values, in whatever order the names came. A
//! system of dependent rows is refused, even where the present values happen to fit it, because later values would not.
//!
//! An insert or a removal edits the solution. That takes a few hundred instructions; solving again takes thousands.
//!
//! The tweak is found before anything is solved. Rows of one word, which values of 8 bits have, have functions of their
//! own ([`words`]). The others share one.
//!
//! Source: Gauss and Jordan. Tables as in the method of the four Russians do not pay at this size.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "calls vector forms after detecting them"))]

use super::layout::{Layout, MAX_PARTS};
use super::processor::{by_processor, with_width};
use super::words;

/// The set of pivot columns as bits, and then the combination of each, in the order of columns. Each has `row_words`
/// words.
pub(super) type Solution = Vec<u64>;

/// Rows in reduced echelon form, by pivot column. `C` is 64 `W`. The rows of other columns are zero.
struct Echelon<const W: usize, const C: usize> {
    rows: [[u64; W]; C],
    combinations: [[u64; W]; C],
}

impl<const W: usize, const C: usize> Echelon<W, C> {
    fn new() -> Self {
        Self { rows: [[0; W]; C], combinations: [[0; W]; C] }
    }

    /// Adds the row of name `index`. Returns false if it depends on the rows added before.
    #[inline(always)]
    fn add<const COMBINED: bool>(&mut self, slots: &[u16], index: usize) -> bool {
        let (mut row, mut combination) = ([0; W], [0; W]);
        combination[index / 64 % W] = 1 << (index % 64);
        for &slot in slots {
            let slot = usize::from(slot) % C;
            row[slot / 64] ^= 1 << (slot % 64);
            // No pivot row has a one in the pivot column of another, so one pass clears all of them from the row.
            for word in 0..W {
                row[word] ^= self.rows[slot][word];
                if COMBINED {
                    combination[word] ^= self.combinations[slot][word];
                }
            }
        }
        let Some(word) = row.iter().position(|&word| word != 0) else { return false };
        let bit = row[word] & row[word].wrapping_neg();
        let pivot = word * 64 + bit.trailing_zeros() as usize;
        // Narrow rows: all of them, with a mask, since that is a vector loop. The same pass puts the new row in its
        // place, which is zero until then: a separate store of one word would delay the vector loads that follow. Wide
        // rows: only those that have the bit.
        for at in 0..C {
            let has = self.rows[at][word] & bit != 0 || at == pivot;
            if W > 2 && !has {
                continue;
            }
            let mask = 0u64.wrapping_sub(has.into());
            for word in 0..W {
                self.rows[at][word] ^= row[word] & mask;
                if COMBINED {
                    self.combinations[at][word] ^= combination[word] & mask;
                }
            }
        }
        true
    }
}

#[inline(always)]
fn has_full_rank_with<const W: usize, const C: usize>(slots: &[[u16; MAX_PARTS]], n_parts: usize) -> bool {
    let mut echelon = Echelon::<W, C>::new();
    slots.iter().enumerate().all(|(index, slots)| echelon.add::<false>(&slots[..n_parts], index))
}

#[inline(always)]
fn solve_with<const W: usize, const C: usize>(
    slots: &[[u16; MAX_PARTS]],
    n_parts: usize,
    solution: &mut Solution,
) -> bool {
    let mut echelon = Echelon::<W, C>::new();
    if !slots.iter().enumerate().all(|(index, slots)| echelon.add::<true>(&slots[..n_parts], index)) {
        return false;
    }
    solution.clear();
    solution.resize(W, 0);
    for (column, row) in echelon.rows.iter().enumerate() {
        if *row != [0; W] {
            solution[column / 64] |= 1 << (column % 64);
            solution.extend(echelon.combinations[column]);
        }
    }
    true
}

/// Adds one more name to the solution: the last of `slots`. Returns false, and changes nothing, if its row depends on
/// the others.
///
/// The reduced rows are not kept. Those that the new row meets follow from their combinations.
#[inline(always)]
fn add_with<const W: usize, const C: usize>(
    solution: &mut Solution,
    slots: &[[u16; MAX_PARTS]],
    n_parts: usize,
) -> bool {
    const { assert!(C == 64 * W) };
    let index = slots.len() - 1;
    let (pivots, combinations) = solution.split_at_mut(W);
    let (combinations, _) = combinations.as_chunks_mut::<W>();
    let mut combination = [0; W];
    combination[index / 64 % W] = 1 << (index % 64);
    for &slot in &slots[index][..n_parts] {
        let slot = usize::from(slot) % C;
        if pivots[slot / 64] >> (slot % 64) & 1 != 0 {
            let met = combinations[n_below(pivots, slot)];
            combination.iter_mut().zip(met).for_each(|(word, met)| *word ^= met);
        }
    }
    let mut row = [0; W];
    for (word, &names) in combination.iter().enumerate() {
        let mut left: u64 = names;
        while left != 0 {
            let name = word * 64 + left.trailing_zeros() as usize;
            left &= left - 1;
            for &slot in &slots[name][..n_parts] {
                row[usize::from(slot) / 64 % W] ^= 1u64 << (slot % 64);
            }
        }
    }
    let Some(word) = row.iter().position(|&word| word != 0) else { return false };
    let pivot = word * 64 + row[word].trailing_zeros() as usize;
    // The names that have a one in the pivot's column. A reduced row has a one there if its combination has an odd
    // number of them.
    let mut column = [0u64; W];
    for (name, slots) in slots.iter().enumerate() {
        let has = slots[..n_parts].iter().any(|&slot| usize::from(slot) == pivot);
        column[name / 64 % W] |= u64::from(has) << (name % 64);
    }
    for other in combinations {
        let has = other.iter().zip(column).fold(0, |sum, (other, column)| sum ^ other & column).count_ones() & 1;
        let mask = 0u64.wrapping_sub(has.into());
        other.iter_mut().zip(combination).for_each(|(other, new)| *other ^= new & mask);
    }
    let at = W + n_below(pivots, pivot) * W;
    pivots[pivot / 64] |= 1 << (pivot % 64);
    solution.splice(at..at, combination);
    true
}

/// The number of pivots before a column.
#[inline(always)]
fn n_below(pivots: &[u64], column: usize) -> usize {
    let before = pivots[..column / 64].iter().map(|word| word.count_ones()).sum::<u32>();
    (before + (pivots[column / 64] & ((1 << (column % 64)) - 1)).count_ones()) as usize
}

/// Removes the name `index` from the solution. The last of `n_names` takes its place.
///
/// Of the combinations that contain the name, the one with the rightmost pivot is removed, and is added to the others,
/// which clears the name from them. Its row begins to the right of theirs, so they stay reduced.
#[inline(always)]
fn remove_with<const W: usize>(solution: &mut Solution, index: usize, n_names: usize) {
    let (pivots, combinations) = solution.split_at_mut(W);
    let (combinations, _) = combinations.as_chunks_mut::<W>();
    let has = |combination: &[u64; W], name: usize| combination[name / 64] >> (name % 64) & 1;
    let at = combinations.iter().rposition(|combination| has(combination, index) != 0);
    let at = at.expect("every name is in a combination");
    let leaving = combinations[at];
    let last = n_names - 1;
    for other in combinations.iter_mut() {
        let mask = 0u64.wrapping_sub(has(other, index));
        other.iter_mut().zip(leaving).for_each(|(other, leaving)| *other ^= leaving & mask);
        let moved = has(other, last);
        other[last / 64] &= !(1 << (last % 64));
        other[index / 64] |= (moved & u64::from(index != last)) << (index % 64);
    }
    let mut n = at;
    for word in pivots {
        let here = word.count_ones() as usize;
        if n < here {
            let bit = (0..n).fold(*word, |left, _| left & (left - 1)).trailing_zeros();
            *word &= !(1 << bit);
            break;
        }
        n -= here;
    }
    solution.drain(W + at * W..W + (at + 1) * W);
}

by_processor! {
    fn has_full_rank_of_any_width(layout: Layout, slots: &[[u16; MAX_PARTS]]) -> bool {
        with_width!(layout, has_full_rank_with(slots, layout.n_parts))
    }
}

by_processor! {
    fn solve_of_any_width(layout: Layout, slots: &[[u16; MAX_PARTS]], solution: &mut Solution) -> bool {
        with_width!(layout, solve_with(slots, layout.n_parts, solution))
    }
}

by_processor! {
    /// Writes the slots of names under a tweak.
    fn place(layout: Layout, digests: &[u64], tweak: u8, slots: &mut [[u16; MAX_PARTS]]) {
        slots.iter_mut().zip(digests).for_each(|(slots, &digest)| *slots = layout.slots(digest, tweak));
    }
}

/// The first of `n` tweaks, beginning with `tweak`, under which the rows of names are independent.
pub(super) fn find_tweak(layout: Layout, digests: &[u64], tweak: u8, n: u8) -> Option<u8> {
    if words::fit(layout, digests.len()) {
        return words::find_tweak(layout, digests, tweak, n);
    }
    let mut slots = vec![[0; MAX_PARTS]; digests.len()];
    (0..n).map(|step| tweak.wrapping_add(step)).find(|&tweak| {
        place(layout, digests, tweak, &mut slots);
        has_full_rank_of_any_width(layout, &slots)
    })
}

/// Writes the solution of names under a tweak. Returns false, and changes nothing, if their rows are not independent.
pub(super) fn solve(layout: Layout, digests: &[u64], tweak: u8, solution: &mut Solution) -> bool {
    if words::fit(layout, digests.len()) {
        return words::solve(layout, digests, tweak, solution);
    }
    let mut slots = vec![[0; MAX_PARTS]; digests.len()];
    place(layout, digests, tweak, &mut slots);
    solve_of_any_width(layout, &slots, solution)
}

/// Adds one more name to the solution of names under a tweak: the last of `digests`. Returns false, and changes nothing, if
/// its row depends on the others.
pub(super) fn append(layout: Layout, solution: &mut Solution, digests: &[u64], tweak: u8) -> bool {
    if words::fit(layout, digests.len()) {
        return words::append(layout, solution, digests, tweak);
    }
    let mut slots = vec![[0; MAX_PARTS]; digests.len()];
    place(layout, digests, tweak, &mut slots);
    add(layout, solution, &slots)
}

by_processor! {
    /// Adds one more name to a solution: the last of `slots`. Returns false, and changes nothing, if its row depends on
    /// the others.
    fn add(layout: Layout, solution: &mut Solution, slots: &[[u16; MAX_PARTS]]) -> bool {
        with_width!(layout, add_with(solution, slots, layout.n_parts))
    }
}

/// Removes the name `index` from a solution of `n_names`. The last of them takes its place.
pub(super) fn remove(layout: Layout, solution: &mut Solution, index: usize, n_names: usize) {
    match layout.row_words() {
        1 => remove_with::<1>(solution, index, n_names),
        2 => remove_with::<2>(solution, index, n_names),
        4 => remove_with::<4>(solution, index, n_names),
        _ => remove_with::<8>(solution, index, n_names),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Trade;
    use super::super::fill::fill_cells;
    use super::*;
    use crate::testkit::{Rng, seed};

    /// What a function solves, if it does.
    fn solved(solve: impl FnOnce(&mut Solution) -> bool) -> Option<Solution> {
        let mut solution = vec![7; 3];
        solve(&mut solution).then_some(solution)
    }

    #[test]
    fn a_solution_gives_every_name_its_value_whatever_the_order() {
        let mut rng = Rng::new(seed());
        for value_bits in [1, 2, 3, 4, 5, 7, 8, 11, 16, 24, 32] {
            let layout = Layout::new(value_bits, Trade::Balanced);
            let mut n_solved = 0;
            while n_solved < 8 {
                let n_names = rng.below(layout.n_cells() as u64 * 8 / 10) as usize;
                let names: Vec<(u64, u64)> =
                    (0..n_names).map(|_| (rng.next_u64(), rng.next_u64() & layout.value_mask())).collect();
                let tweak = rng.next_u64() as u8;
                let digests = |names: &[(u64, u64)]| -> Vec<_> { names.iter().map(|name| name.0).collect() };
                let found = find_tweak(layout, &digests(&names), tweak, 1);
                let Some(solution) = solved(|to| solve(layout, &digests(&names), tweak, to)) else {
                    assert_eq!(found, None);
                    continue;
                };
                assert_eq!(found, Some(tweak));
                let mut words = vec![0; layout.n_words()];
                let values: Vec<u64> = names.iter().map(|name| name.1).collect();
                fill_cells(layout, &solution, &values, &mut words);
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
                let solution = solved(|to| solve(layout, &digests(&backwards), tweak, to)).expect("the same rows");
                let values: Vec<u64> = backwards.iter().map(|name| name.1).collect();
                fill_cells(layout, &solution, &values, &mut again);
                assert_eq!(words, again);
                n_solved += 1;
            }
        }
    }

    #[test]
    fn an_edited_solution_is_the_one_of_a_new_elimination() {
        let mut rng = Rng::new(seed());
        let (mut refused, mut removed) = (0, 0);
        for value_bits in [1, 2, 3, 8, 16, 32] {
            for trade in [Trade::Balanced, Trade::Small] {
                let layout = Layout::new(value_bits, trade);
                let most = layout.n_cells() * 9 / 10;
                let (mut names, mut edited) = (Vec::new(), solved(|to| solve(layout, &[], 7, to)).expect("no rows"));
                for step in 0..4 * layout.n_cells() {
                    if names.len() < most && (step < most || rng.below(2) == 0) {
                        names.push(layout.slots(rng.next_u64(), 7));
                        let before = edited.clone();
                        if !add(layout, &mut edited, &names) {
                            assert!(!has_full_rank_of_any_width(layout, &names));
                            assert_eq!(edited, before);
                            names.pop();
                            refused += 1;
                        }
                    } else if !names.is_empty() {
                        let index = rng.below(names.len() as u64) as usize;
                        remove(layout, &mut edited, index, names.len());
                        names.swap_remove(index);
                        removed += 1;
                    }
                    if value_bits > 2 || step % 16 == 0 {
                        assert_eq!(Some(&edited), solved(|to| solve_of_any_width(layout, &names, to)).as_ref());
                    }
                }
            }
        }
        assert!(refused > 0 && removed > 0, "{refused} refused, {removed} removed: too few names");
    }

    #[test]
    fn the_forms_for_one_line_are_equal_to_that_of_any_width() {
        let mut rng = Rng::new(seed());
        for (value_bits, trade) in [(8, Trade::Balanced), (8, Trade::Small), (11, Trade::Balanced), (16, Trade::Small)]
        {
            let layout = Layout::new(value_bits, trade);
            let (mut n_solved, mut found) = (0, 0);
            for round in 0..20 * layout.n_cells() {
                let digests: Vec<_> = (0..round % (layout.n_cells() + 1)).map(|_| rng.next_u64()).collect();
                // The range of tweaks wraps around sometimes.
                let (first, n) = (rng.next_u64() as u8, rng.below(10) as u8);
                let solution = |tweak| {
                    let slots: Vec<_> = digests.iter().map(|&digest| layout.slots(digest, tweak)).collect();
                    let solution = solved(|to| solve_of_any_width(layout, &slots, to));
                    assert_eq!(has_full_rank_of_any_width(layout, &slots), solution.is_some());
                    solution
                };
                let expected = (0..n).map(|step| first.wrapping_add(step)).find(|&tweak| solution(tweak).is_some());
                assert_eq!(find_tweak(layout, &digests, first, n), expected);
                assert_eq!(solved(|to| solve(layout, &digests, first, to)), solution(first));
                if words::fit(layout, digests.len()) {
                    assert_eq!(words::find_tweak_in_memory(layout, &digests, first, n), expected);
                    assert_eq!(solved(|to| words::solve_in_memory(layout, &digests, first, to)), solution(first));
                }
                n_solved += usize::from(solution(first).is_some());
                found += usize::from(expected.is_some_and(|tweak| tweak != first));
            }
            assert!(layout.row_words() > 1 || n_solved > 0 && found > 0);
        }
    }

    #[test]
    fn dependent_rows_are_refused() {
        let layout = Layout::new(8, Trade::Balanced);
        let slots = [[2, 30, 50, 0], [3, 30, 50, 0], [2, 31, 50, 0], [3, 31, 50, 0]];
        assert!(!has_full_rank_of_any_width(layout, &slots));
        assert_eq!(solved(|to| solve_of_any_width(layout, &slots, to)), None);
        assert!(solved(|to| solve_of_any_width(layout, &slots[..3], to)).is_some());
        assert!(solved(|to| solve(layout, &[], 7, to)).is_some());
        // No tweak separates equal names.
        assert_eq!(solved(|to| solve(layout, &[5, 9, 5], 7, to)), None);
        assert_eq!(find_tweak(layout, &[5, 9, 5], 7, u8::MAX), None);
    }

    /// The shares are those of the table in `docs/derivations/line.md`.
    #[test]
    fn tweaks_solve_as_often_as_the_derivation_says() {
        const NAMES: [usize; 10] = [40, 44, 48, 50, 52, 54, 56, 57, 58, 59];
        let shares = [
            (Trade::Balanced, [0.86, 0.80, 0.70, 0.56, 0.44, 0.28, 0.11, 0.070, 0.031, 0.011]),
            (Trade::Small, [0.99, 0.98, 0.97, 0.95, 0.89, 0.77, 0.55, 0.37, 0.20, 0.060]),
        ];
        let mut rng = Rng::new(1);
        for (trade, shares) in shares {
            let layout = Layout::new(8, trade);
            for (n_names, expected) in NAMES.into_iter().zip(shares) {
                let n = 2_000;
                let mut digests = vec![0; n_names];
                let solved = (0..n).filter(|_| {
                    digests.fill_with(|| rng.next_u64());
                    find_tweak(layout, &digests, 7, 1).is_some()
                });
                let share = solved.count() as f64 / f64::from(n);
                println!("{trade:?}: {n_names} names in {} cells: {share}", layout.n_cells());
                // Four standard deviations of the difference of two samples, and the rounding of the table.
                let most = 4.0 * (2.0 * expected * (1.0 - expected) / f64::from(n)).sqrt() + 0.006;
                assert!((share - expected).abs() < most, "{trade:?}: {n_names} names: {share}, expected {expected}");
            }
        }
    }
}
