//! OFW: an Othello whose cells hold a value, a fingerprint and a bit that says whether any name uses the cell. With
//! `l_f = 0` it is Concise.
//!
//! Equations (5), (6), (9) and the memory of section V.A. The last of the `l_f` bits is the emptiness indicator, so
//! `l_f - 1` bits are left to distinguish names.

use super::Symbols;
use super::lines::expected_lines;

/// Othello Forwarder of `m_a + m_b` cells with `l_f` bits of fingerprint, emptiness indicator included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ofw {
    /// The rest of the symbols.
    pub s: Symbols,
    /// Bits of the fingerprint, the last of which is the emptiness indicator; 0 is Concise.
    pub l_f: u32,
    /// Cells of the first array.
    pub m_a: f64,
    /// Cells of the second array.
    pub m_b: f64,
}

impl Ofw {
    /// The sizes before rounding to powers of two: `m_a = 1.33 n_k`, `m_b = n_k`, from which the paper's 2.33, 0.471
    /// and 0.368 follow.
    pub fn unrounded(s: Symbols, l_f: u32) -> Self {
        Self { s, l_f, m_a: 1.33 * s.n_k, m_b: s.n_k }
    }

    /// The papers' Option 2: each side the next power of two; 2.67 to 4 cells per name.
    pub fn option_2(s: Symbols, l_f: u32) -> Self {
        let power = |cells: f64| (cells.ceil() as u64).next_power_of_two() as f64;
        Self { s, l_f, m_a: power(1.33 * s.n_k), m_b: power(s.n_k) }
    }

    /// Two equal sides that together have `cells` cells per name.
    pub fn even(s: Symbols, l_f: u32, cells: f64) -> Self {
        Self { s, l_f, m_a: cells / 2.0 * s.n_k, m_b: cells / 2.0 * s.n_k }
    }

    /// `M^o` and `M_f^o` in bits, section V.A: `(m_a + m_b) (l_p + l_f)`.
    pub fn memory(&self) -> f64 {
        (self.m_a + self.m_b) * f64::from(self.cell())
    }

    fn cell(&self) -> u32 {
        self.s.l_p + self.l_f
    }

    /// `epsilon_a`: share of the cells of the first array that no name uses.
    pub fn epsilon_a(&self) -> f64 {
        epsilon(self.m_a, self.s.n_k)
    }

    /// `epsilon_b`: share of the cells of the second array that no name uses.
    pub fn epsilon_b(&self) -> f64 {
        epsilon(self.m_b, self.s.n_k)
    }

    /// Hash calls that compare the fingerprint: none where there is none to compare.
    fn fingerprint_call(&self) -> f64 {
        if self.l_f > 1 { 1.0 } else { 0.0 }
    }

    /// `C_h^o`, equation (5): two positions and the fingerprint.
    pub fn c_h(&self) -> f64 {
        2.0 + self.fingerprint_call()
    }

    /// `C_h,e^o`, equation (5): an alien whose cell of the first array is empty ends there.
    pub fn c_h_alien(&self) -> f64 {
        if self.l_f == 0 {
            return 2.0;
        }
        let (a, b) = (self.epsilon_a(), self.epsilon_b());
        a + (1.0 - a) * (2.0 + (1.0 - b) * self.fingerprint_call())
    }

    /// Lines of one cell: `1 + (l_f + l_p - l_g) / l_c`.
    fn cell_lines(&self) -> f64 {
        expected_lines(self.cell().into(), self.s.l_c)
    }

    /// `E(C_m^o)`, equation (6).
    pub fn c_m(&self) -> f64 {
        self.s.name_lines() + 2.0 * self.cell_lines()
    }

    /// `E(C_m,e^o)`, equation (6): the first cell is always read, the second if the first is not empty. The printed
    /// equation counts only cells that are not empty.
    pub fn c_m_alien(&self) -> f64 {
        let cells = if self.l_f == 0 { 2.0 } else { 1.0 + (1.0 - self.epsilon_a()) };
        self.s.name_lines() + cells * self.cell_lines()
    }

    /// `FP^o`, equation (9). Without a fingerprint every alien gets some value: the rate is 1, where the printed
    /// equation gives `2 (1 - epsilon_a) (1 - epsilon_b)`.
    pub fn fp(&self) -> f64 {
        if self.l_f == 0 {
            return 1.0;
        }
        0.5f64.powi(self.l_f as i32 - 1) * (1.0 - self.epsilon_a()) * (1.0 - self.epsilon_b())
    }
}

/// `((m - 1) / m)^n_k`, about `e^(-n_k / m)`.
fn epsilon(m: f64, n_k: f64) -> f64 {
    (n_k * (-1.0 / m).ln_1p()).exp()
}

/// The equations as printed, where they differ from what they should say.
pub mod printed {
    use super::Ofw;

    /// Equation (6) for aliens: a first cell that is empty counts for nothing, though it was read; nor does an empty
    /// second one.
    pub fn c_m_alien(o: &Ofw) -> f64 {
        let (a, b) = (o.epsilon_a(), o.epsilon_b());
        o.s.name_lines() + ((1.0 - a) * b + 2.0 * (1.0 - a) * (1.0 - b)) * o.cell_lines()
    }

    /// Equation (9) also where `l_f = 0`.
    pub fn fp(o: &Ofw) -> f64 {
        0.5f64.powi(o.l_f as i32 - 1) * (1.0 - o.epsilon_a()) * (1.0 - o.epsilon_b())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paper(l_f: u32) -> Ofw {
        Ofw::unrounded(Symbols { l_p: 8, ..Symbols::default() }, l_f)
    }

    #[test]
    fn shares_of_empty_cells_are_the_printed_numbers() {
        let o = paper(1);
        assert!((o.epsilon_a() - 0.471).abs() < 1e-3 && (o.epsilon_b() - 0.368).abs() < 1e-3);
        assert!((o.memory() / (2.33 * o.s.n_k * 9.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn one_bit_filters_more_than_half_of_the_aliens() {
        assert!((paper(1).fp() - 0.334).abs() < 1e-3 && paper(0).fp() == 1.0);
        assert!(printed::fp(&paper(0)) < 0.7, "the printed equation lets a third of the aliens vanish from Concise");
        assert!((paper(9).fp() * 256.0 - paper(1).fp()).abs() < 1e-12);
    }

    #[test]
    fn empty_cells_are_read_before_they_are_found_empty() {
        let o = paper(9);
        // The name, the first cell, and the second in 53 of 100 cases; cells of 17 bits straddle one line in 32.
        assert!((o.c_m_alien() - (1.0 + (2.0 - o.epsilon_a()) * (1.0 + 16.0 / 512.0))).abs() < 1e-9);
        assert!(printed::c_m_alien(&o) < 2.0 && o.c_m_alien() > 2.5);
        assert_eq!((o.c_h(), paper(1).c_h(), paper(0).c_h()), (3.0, 2.0, 2.0));
        let (a, b) = (o.epsilon_a(), o.epsilon_b());
        let printed = a + 2.0 * (1.0 - a) * b + 3.0 * (1.0 - a) * (1.0 - b);
        assert!((o.c_h_alien() - printed).abs() < 1e-12, "equation (5) is right");
    }

    #[test]
    fn powers_of_two_never_have_2_33_cells_a_name() {
        let cells = |n_k: f64| {
            let o = Ofw::option_2(Symbols { n_k, ..Symbols::default() }, 0);
            (o.m_a + o.m_b) / n_k
        };
        let sizes = (1000..100_000).map(|n| cells(f64::from(n)));
        let (least, most) = sizes.fold((f64::MAX, 0f64), |(least, most), cells| (least.min(cells), most.max(cells)));
        assert!(least > 2.66 && most < 4.01, "{least} to {most}");
    }
}
