//! Bits of an update message of an Othello: the papers' Table III, and what its figures stand for.
//!
//! A message lists the cells whose value changes: all cells on one side of the new or changed edge, which are XORed
//! with the same mask. That side is a tree of `s` cells in a random forest. A random cell has on average `n_k / m`
//! names, and each leads to a cell with as many more, so
//! `chi = E(s) = 1 / (1 - n_k / m)`, and `s` has the Borel distribution. Derivations: `docs/derivations/model.md`.

/// Cells a name changes, as Table III was computed: 2.40 for a new name, 2.34 for a changed action, in *both* of its
/// columns, though the second table is fuller.
pub const PRINTED_CELLS: (f64, f64) = (2.40, 2.34);

/// An Othello of `n_k` names, two sides of `m` cells each, values of `l` bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Messages {
    /// Names.
    pub n_k: f64,
    /// Cells of a side.
    pub m: f64,
    /// Bits of a value.
    pub l: u32,
}

impl Messages {
    /// Names per cell.
    fn lambda(&self) -> f64 {
        self.n_k / self.m
    }

    /// `chi`: cells of a tree that one cell is in, on average; section IV of the paper on Othello, which has
    /// `p = n (m_a + m_b) / (2 m_a m_b)` for `n_k / m`.
    pub fn chi(&self) -> f64 {
        1.0 / (1.0 - self.lambda())
    }

    /// Probability that a tree has `s` cells (Borel): `e^(-x s) (x s)^(s - 1) / s!` with `x = n_k / m`.
    pub fn tree(&self, s: u32) -> f64 {
        let (x, size) = (self.lambda(), f64::from(s));
        (-x * size + (size - 1.0) * (x * size).ln() - ln_factorial(s)).exp()
    }

    /// Bits of the index of a cell.
    pub fn index_bits(&self) -> f64 {
        (2.0 * self.m).log2()
    }

    /// A list of cells with their new values, which is what Table III counts: `cells (index + l)`, and for a new name
    /// its value once more.
    pub fn list_bits(&self, cells: f64) -> f64 {
        cells * (self.index_bits() + f64::from(self.l))
    }

    /// A list of cells and one mask to XOR them with. A repeated message undoes itself, so none is sent like this.
    pub fn mask_bits(&self) -> f64 {
        self.chi() * self.index_bits() + f64::from(self.l)
    }

    /// Entropy of the content of a message: the number of cells, the unordered set of cells, and the mask:
    /// `H(s) + E(log2 (2m choose s)) + l`.
    pub fn entropy(&self) -> f64 {
        let cells = 2.0 * self.m;
        let mut ln_choose = 0.0;
        let mut bits = f64::from(self.l);
        for s in 1..10_000 {
            ln_choose += ((cells - f64::from(s - 1)) / f64::from(s)).ln();
            let p = self.tree(s);
            bits += p * (ln_choose / std::f64::consts::LN_2 - p.log2());
            if p < 1e-15 && f64::from(s) > self.chi() {
                break;
            }
        }
        bits
    }
}

fn ln_factorial(n: u32) -> f64 {
    (2..=n).map(|i| f64::from(i).ln()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEFT: Messages = Messages { n_k: 3e5, m: 524_288.0, l: 8 };
    const RIGHT: Messages = Messages { n_k: 1.4e6, m: 2_097_152.0, l: 16 };

    #[test]
    fn trees_have_a_distribution_with_the_papers_mean() {
        for column in [LEFT, RIGHT] {
            let sum: f64 = (1..2000).map(|s| column.tree(s)).sum();
            let mean: f64 = (1..2000).map(|s| f64::from(s) * column.tree(s)).sum();
            assert!((sum - 1.0).abs() < 1e-9 && (mean / column.chi() - 1.0).abs() < 1e-6, "{sum}, {mean}");
        }
        assert!((LEFT.chi() - 2.337).abs() < 1e-3 && (RIGHT.chi() - 3.008).abs() < 1e-3);
    }

    #[test]
    fn table_iii_is_a_list_of_as_many_cells_in_both_columns() {
        for (column, added, changed) in [(LEFT, 75.2, 65.6), (RIGHT, 107.2, 88.8)] {
            let add = column.list_bits(PRINTED_CELLS.0) + f64::from(column.l);
            let change = column.list_bits(PRINTED_CELLS.1);
            println!("{add:.1} and {change:.1} bits, printed {added} and {changed}");
            assert!((add - added).abs() < 0.05 && (change - changed).abs() < 0.15);
        }
        // With the trees that the second table has, its messages are a quarter longer than printed.
        assert!((LEFT.list_bits(LEFT.chi()) - 65.6).abs() < 0.3);
        assert!((RIGHT.list_bits(RIGHT.chi()) - 114.3).abs() < 0.1);
    }

    #[test]
    fn entropy_is_less_than_any_form_of_the_message() {
        for column in [LEFT, RIGHT] {
            let (entropy, mask) = (column.entropy(), column.mask_bits());
            println!("{entropy:.1} bits of entropy, {mask:.1} with a mask");
            assert!(entropy < column.list_bits(column.chi()));
            assert!((entropy - mask).abs() < 3.0, "{entropy}, {mask}: order and number weigh about the same");
        }
    }
}
