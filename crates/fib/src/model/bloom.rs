//! BFW: one Bloom filter per port, queried in turn until one says yes, with counters.
//!
//! Equations (1), (2), (7) and the memory of section V.A. `p` is the share of bits that are zero: `(1 - p)^l` is the
//! false-positive rate of one filter, `p = 1/2` where filters have the fewest bits.

use super::Symbols;

/// Bloom Forwarder with `l` hash functions and zero bits in a share `p` of each filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bfw {
    /// The rest of the symbols.
    pub s: Symbols,
    /// Hash functions of a filter.
    pub l: u32,
    /// Share of zero bits.
    pub p: f64,
}

impl Bfw {
    /// The forwarder whose filters each have the false-positive rate `f`, with `l` hash functions.
    pub fn with_rate(s: Symbols, l: u32, f: f64) -> Self {
        Self { s, l, p: 1.0 - f.powf(1.0 / f64::from(l)) }
    }

    /// `m`: bits of all filters, `l n_k / -ln p`; the printed `h n_k / ln 2` where `p = 1/2`.
    ///
    /// A filter of `m_i` bits that holds `n_i` names has a share `(1 - 1/m_i)^(l n_i)` of zeros, about
    /// `e^(-l n_i / m_i)`.
    pub fn m(&self) -> f64 {
        f64::from(self.l) * self.s.n_k / -self.p.ln()
    }

    /// `M^b` in bits, section V.A: filters, plus counters of `l_s` bits.
    pub fn memory(&self) -> f64 {
        (1.0 + self.s.l_s) * self.m()
    }

    /// `M_f^b` in bits, section V.A: the filters.
    pub fn fast_memory(&self) -> f64 {
        self.m()
    }

    /// False-positive rate of one filter, `(1 - p)^l`.
    pub fn f(&self) -> f64 {
        (1.0 - self.p).powi(self.l as i32)
    }

    /// `C_t`: hash calls, and bits read, of a test that fails; it ends at the first zero. `1/p - l f / (1 - f)`.
    pub fn c_t(&self) -> f64 {
        let f = self.f();
        1.0 / self.p - f64::from(self.l) * f / (1.0 - f)
    }

    /// `E(C_h^b)`, equation (1), of a name in one of the filters, each equally likely. The printed equation omits that
    /// a false positive of an earlier filter ends the lookup.
    pub fn c_h(&self) -> f64 {
        let (d, f) = (f64::from(self.s.d), self.f());
        // Of d names, one per port, this many reach their own filter; the others end before.
        let reach = self.fp() / f;
        (self.a_filter() * (d - reach) / f + f64::from(self.l) * reach) / d
    }

    /// `E(C_h,e^b)`, equation (1), of an alien.
    pub fn c_h_alien(&self) -> f64 {
        self.a_filter() * self.fp() / self.f()
    }

    /// Calls of a filter to a name that is not in it: `C_t` if it says no, `l` otherwise. `i` filters in a row are
    /// reached with probability `(1 - f)^(i - 1)`, whose sum to `d` is `FP / f`.
    fn a_filter(&self) -> f64 {
        let f = self.f();
        (1.0 - f) * self.c_t() + f * f64::from(self.l)
    }

    /// `E(C_m^b)`, equation (2): the name's lines, then a line for every hash call.
    pub fn c_m(&self) -> f64 {
        self.s.name_lines() + self.c_h()
    }

    /// `E(C_m,e^b)`, equation (2).
    pub fn c_m_alien(&self) -> f64 {
        self.s.name_lines() + self.c_h_alien()
    }

    /// `FP^b`, equation (7): some filter says yes to an alien.
    pub fn fp(&self) -> f64 {
        -(f64::from(self.s.d) * (-self.f()).ln_1p()).exp_m1()
    }

    /// `E(CR^b)`, equation (7): a filter before a name's own says yes, and its port is taken. `1 - FP^b / (d f)`.
    pub fn cr(&self) -> f64 {
        (1.0 - self.fp() / (f64::from(self.s.d) * self.f())).max(0.0)
    }

    /// Share of names to which some filter besides their own says yes: what an exact table of all doubtful names holds.
    pub fn multi_matches(&self) -> f64 {
        -(f64::from(self.s.d - 1) * (-self.f()).ln_1p()).exp_m1()
    }
}

/// The equations as printed, where they differ from what they should say. `p = 1/2` in (7).
pub mod printed {
    use super::Bfw;

    /// Equation (1), right-hand side: no false positive on the way. The sum to its left ends at `d - 1`, and is less.
    pub fn c_h(b: &Bfw) -> f64 {
        f64::from(b.s.d - 1) / 2.0 * b.c_t() + f64::from(b.l)
    }

    /// Equation (1), left-hand side: the sum to `d - 1`.
    pub fn c_h_sum(b: &Bfw) -> f64 {
        let d = f64::from(b.s.d);
        (1..b.s.d).map(|i| (f64::from(i - 1) * b.c_t() + f64::from(b.l)) / d).sum()
    }

    /// Equation (1) for aliens: yes and no are exchanged, so that nearly every alien stops at the first filter; the
    /// probabilities do not add up to one; the filter that says yes costs `C_t`.
    pub fn c_h_alien(b: &Bfw) -> f64 {
        let (f, d) = (b.f(), b.s.d);
        let stops = |i: u32| f.powi(i as i32 - 1) * (1.0 - f) * f64::from(i) * b.c_t();
        (1..d).map(stops).sum::<f64>() + f.powi(d as i32) * f64::from(d) * b.c_t()
    }

    /// Equation (7): the rate at which a random port meets the first false positive, `FP^b / d`.
    pub fn cr(b: &Bfw) -> f64 {
        let (f, d) = (0.5f64.powi(b.l as i32), b.s.d);
        (1..=d).map(|i| (1.0 - f).powi(i as i32 - 1) * f / f64::from(d)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paper(l: u32) -> Bfw {
        Bfw { s: Symbols { d: 32, ..Symbols::default() }, l, p: 0.5 }
    }

    #[test]
    fn failing_test_costs_what_the_sum_over_its_probes_says() {
        for (l, p) in [(1, 0.5), (7, 0.5), (8, 0.77), (3, 0.2)] {
            let b = Bfw { p, ..paper(l) };
            let ends_at = |t: i32| (1.0 - p).powi(t - 1) * p / (1.0 - b.f());
            let sum: f64 = (1..=l as i32).map(|t| f64::from(t) * ends_at(t)).sum();
            assert!((b.c_t() - sum).abs() < 1e-12, "l = {l}, p = {p}: {} and {sum}", b.c_t());
        }
    }

    #[test]
    fn alien_costs_what_the_sum_over_the_filter_it_ends_at_says() {
        let b = paper(5);
        let (f, d) = (b.f(), 32);
        let ends_at = |i: i32| (1.0 - f).powi(i - 1) * f * (f64::from(i - 1) * b.c_t() + f64::from(b.l));
        let sum = (1..=d).map(ends_at).sum::<f64>() + (1.0 - f).powi(d) * f64::from(d) * b.c_t();
        assert!((b.c_h_alien() - sum).abs() < 1e-9, "{} and {sum}", b.c_h_alien());
        // 32 filters that mostly say no; the printed equation stops after one.
        assert!(sum > 35.0 && printed::c_h_alien(&b) < 2.0);
    }

    #[test]
    fn printed_cost_of_a_name_is_the_limit_without_false_positives() {
        let b = paper(30);
        assert!((b.c_h() / printed::c_h(&b) - 1.0).abs() < 1e-6);
        assert!(printed::c_h_sum(&b) < printed::c_h(&b) - 1.0, "the printed sum lacks the last port");
        let many_errors = paper(4);
        assert!(many_errors.c_h() < 0.8 * printed::c_h(&many_errors));
    }

    #[test]
    fn collision_rate_is_the_sum_over_ports_and_not_the_printed_one() {
        let b = paper(7);
        let sum: f64 = (1..=32).map(|i| (1.0 - (1.0 - b.f()).powi(i - 1)) / 32.0).sum();
        assert!((b.cr() - sum).abs() < 1e-12);
        assert!((printed::cr(&b) - b.fp() / 32.0).abs() < 1e-12);
        // At 32 ports the printed equation gives an eleventh of the true misdeliveries.
        assert!(b.cr() / printed::cr(&b) > 11.0, "{} and {}", b.cr(), printed::cr(&b));
    }

    #[test]
    fn half_the_bits_are_zero_where_memory_is_the_printed_one() {
        let b = paper(7);
        assert!((b.m() - 7.0 * b.s.n_k / std::f64::consts::LN_2).abs() < 1.0);
        assert!((b.memory() / b.fast_memory() - 5.0).abs() < 1e-12);
        assert!((Bfw::with_rate(b.s, 7, b.f()).p - 0.5).abs() < 1e-12);
    }
}
