//! Elimination over GF(2): the names of a bucket as a linear system, solved once for all values.
//!
//! Each name is a row with ones in its 3 or 4 slots. The rows are brought to reduced echelon form with leftmost pivots
//! as they come, and what was added up to each row is kept (its *combination*). When all rows are independent the pivot
//! cell of a row is the XOR of the values of its combination and all other cells are 0: a pure function of the names,
//! the tweak and the values, whatever order the names came in. A system of dependent rows is refused even where the
//! values of the day happen to fit it, for tomorrow's would not.
//!
//! A name that comes or leaves edits the solution: a few hundred instructions, where solving anew takes thousands.
//!
//! Cost at 50 names of 62 cells: see `fibula bench build`; rank alone is a third of a solution.
//! Source: Gauss and Jordan; "four Russians" tables do not pay at this size.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "calls vector forms after detecting them"))]

#[cfg(target_arch = "x86_64")]
use super::avx512;
use super::layout::{Layout, MAX_PARTS};
#[cfg(target_arch = "x86_64")]
use super::processor::Processor;
use super::processor::{by_processor, with_width};

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
        let bit = row[word] & row[word].wrapping_neg();
        let pivot = word * 64 + bit.trailing_zeros() as usize;
        // Narrow rows: all, with a mask, for that is a vector loop; and the new row comes to its place, which is zero, in
        // the same pass, for a store of one word would hold up the loads of vectors that come next. Wide rows: those
        // that have the bit.
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
fn solve_with<const W: usize, const C: usize>(slots: &[[u16; MAX_PARTS]], n_parts: usize) -> Option<Solution> {
    let mut echelon = Echelon::<W, C>::new();
    if !slots.iter().enumerate().all(|(index, slots)| echelon.add::<true>(&slots[..n_parts], index)) {
        return None;
    }
    // Room for one name more, so that an insert need not allocate.
    let mut solution = Vec::with_capacity((slots.len() + 2) * W);
    solution.resize(W, 0);
    for (column, row) in echelon.rows.iter().enumerate() {
        if *row != [0; W] {
            solution[column / 64] |= 1 << (column % 64);
            solution.extend(echelon.combinations[column]);
        }
    }
    Some(solution)
}

/// The solution with one name more, the last of `slots`; false, and nothing changes, when its row depends on the others.
///
/// The reduced rows are not kept: those that the new one meets follow from their combinations.
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
    // Names with a one in the pivot's column: a reduced row has one there when it combines an odd number of them.
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

/// Pivots before a column.
#[inline(always)]
fn n_below(pivots: &[u64], column: usize) -> usize {
    let before = pivots[..column / 64].iter().map(|word| word.count_ones()).sum::<u32>();
    (before + (pivots[column / 64] & ((1 << (column % 64)) - 1)).count_ones()) as usize
}

/// The solution without the name `index`, whose place the last of `n_names` takes.
///
/// Of the combinations that have the name, that of the rightmost pivot leaves, and clears the name from the others: its
/// row begins behind theirs, so that these stay reduced.
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
    fn solve_of_any_width(layout: Layout, slots: &[[u16; MAX_PARTS]]) -> Option<Solution> {
        with_width!(layout, solve_with(slots, layout.n_parts))
    }
}

/// The rows of a system that fits one line, where the processor has a form for those.
#[cfg(target_arch = "x86_64")]
fn narrow(layout: Layout, slots: &[[u16; MAX_PARTS]]) -> Option<[u64; avx512::ROWS]> {
    let has_form = layout.row_words() == 1 && slots.len() <= avx512::ROWS;
    (has_form && matches!(Processor::get(), Processor::Avx512)).then(|| {
        let mut rows = [0; avx512::ROWS];
        for (row, slots) in rows.iter_mut().zip(slots) {
            *row = slots[..layout.n_parts].iter().fold(0, |row, &slot| row | 1 << (slot % 64));
        }
        rows
    })
}

/// Whether the rows of names in these slots are independent.
pub(super) fn has_full_rank(layout: Layout, slots: &[[u16; MAX_PARTS]]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if let Some(rows) = narrow(layout, slots) {
        // SAFETY: the processor has AVX-512.
        return unsafe { avx512::rank(&rows, slots.len()) } as usize == slots.len();
    }
    has_full_rank_of_any_width(layout, slots)
}

/// The solution for names in these slots, if their rows are independent.
pub(super) fn solve(layout: Layout, slots: &[[u16; MAX_PARTS]]) -> Option<Solution> {
    #[cfg(target_arch = "x86_64")]
    if let Some(rows) = narrow(layout, slots) {
        let (mut pivots, mut combinations) = ([0; avx512::ROWS], [0; avx512::ROWS]);
        // SAFETY: the processor has AVX-512.
        unsafe { avx512::eliminate(&rows, &mut pivots, &mut combinations) };
        return solution_of(&pivots[..slots.len()], &combinations);
    }
    solve_of_any_width(layout, slots)
}

/// The solution of narrow rows, from the pivot of each and what was combined to it.
#[cfg(target_arch = "x86_64")]
fn solution_of(pivots: &[u64], combinations: &[u64; 64]) -> Option<Solution> {
    let columns = pivots.iter().fold(0, |columns, pivot| columns | pivot);
    if columns.count_ones() as usize != pivots.len() {
        return None;
    }
    let mut by_column = [0; 64];
    for (pivot, &combination) in pivots.iter().zip(combinations) {
        by_column[pivot.trailing_zeros() as usize % 64] = combination;
    }
    // Room for one name more, so that an insert need not allocate.
    let mut solution = Vec::with_capacity(pivots.len() + 2);
    solution.push(columns);
    let mut left = columns;
    while left != 0 {
        solution.push(by_column[left.trailing_zeros() as usize]);
        left &= left - 1;
    }
    Some(solution)
}

by_processor! {
    /// Brings a solution to one name more, the last of `slots`; false, and nothing changes, when its row depends on the
    /// others.
    fn add(layout: Layout, solution: &mut Solution, slots: &[[u16; MAX_PARTS]]) -> bool {
        with_width!(layout, add_with(solution, slots, layout.n_parts))
    }
}

/// Takes the name `index` out of a solution of `n_names`; the last of them takes its place.
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
    use super::super::paint::paint;
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
                let values: Vec<u64> = names.iter().map(|name| name.1).collect();
                paint(layout, &solution, &values, &mut words);
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
                let values: Vec<u64> = backwards.iter().map(|name| name.1).collect();
                paint(layout, &solution, &values, &mut again);
                assert_eq!(words, again);
                solved += 1;
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
                let (mut names, mut edited) = (Vec::new(), solve(layout, &[]).expect("no rows"));
                for step in 0..4 * layout.n_cells() {
                    if names.len() < most && (step < most || rng.below(2) == 0) {
                        names.push(layout.slots(rng.next_u64(), 7));
                        let before = edited.clone();
                        if !add(layout, &mut edited, &names) {
                            assert!(!has_full_rank(layout, &names));
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
                        assert_eq!(Some(&edited), solve(layout, &names).as_ref());
                    }
                }
            }
        }
        assert!(refused > 0 && removed > 0, "{refused} refused, {removed} removed: too few names");
    }

    #[test]
    fn the_form_for_one_line_is_equal_to_that_of_any_width() {
        let mut rng = Rng::new(seed());
        for trade in [Trade::Balanced, Trade::Small] {
            let layout = Layout::new(8, trade);
            let mut solved = 0;
            for round in 0..20 * layout.n_cells() {
                let n_names = round % (layout.n_cells() + 1);
                let slots: Vec<_> = (0..n_names).map(|_| layout.slots(rng.next_u64(), 7)).collect();
                let solution = solve_of_any_width(layout, &slots);
                assert_eq!(has_full_rank(layout, &slots), solution.is_some());
                assert_eq!(has_full_rank_of_any_width(layout, &slots), solution.is_some());
                assert_eq!(solve(layout, &slots), solution);
                solved += usize::from(solution.is_some());
            }
            assert!(solved > 0);
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
