//! (2,4)-Cuckoo with full names, and CFW: a Cuckoo Filtable of fingerprints before a table of the names that collide.
//!
//! Equations (3), (4), (8) and the memory of section V.A. Slots are read in order, bucket by bucket, until one
//! matches; slots and buckets are adjacent, without gaps. A name is equally likely in each slot of its buckets.

use super::Symbols;
use super::lines::{expected_lines, expected_prefix_lines};

/// Cuckoo table of full names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cuckoo {
    /// All symbols.
    pub s: Symbols,
}

impl Cuckoo {
    fn slot(&self) -> u64 {
        u64::from(self.s.l_k + self.s.l_p)
    }

    /// Memory in bits: `e_l n_k (l_k + l_p)`.
    pub fn memory(&self) -> f64 {
        self.s.e_l() * self.s.n_k * self.slot() as f64
    }

    /// Hash calls of a name: half of the names are in the first of two buckets.
    pub fn c_h(&self) -> f64 {
        f64::from(self.s.n_b + 1) / 2.0
    }

    /// Hash calls of an alien: all buckets.
    pub fn c_h_alien(&self) -> f64 {
        self.s.n_b.into()
    }

    /// Lines of a name, its own included.
    pub fn c_m(&self) -> f64 {
        self.s.name_lines() + lines_of_a_name(&self.s, self.slot())
    }

    /// Lines of an alien, its own included.
    pub fn c_m_alien(&self) -> f64 {
        self.s.name_lines() + f64::from(self.s.n_b) * bucket_lines(&self.s, self.slot())
    }
}

/// `E(C_b)`: lines of a bucket of `slot` bits per slot.
fn bucket_lines(s: &Symbols, slot: u64) -> f64 {
    expected_lines(u64::from(s.n_s) * slot, s.l_c)
}

/// `E(C_m,i)`: lines of the first `j` slots of a bucket; `j = (i - 1) mod n_s + 1`.
fn slot_lines(s: &Symbols, slot: u64, j: u32) -> f64 {
    expected_prefix_lines(u64::from(j) * slot, u64::from(s.n_s) * slot, s.l_c)
}

/// Lines until a name is found that is equally likely in each slot: the sum of equation (4), with the buckets *before*
/// slot `i`, `floor((i - 1) / n_s)`, where `floor(i / n_s)` is printed.
fn lines_of_a_name(s: &Symbols, slot: u64) -> f64 {
    let slots = s.n_b * s.n_s;
    let until = |i: u32| f64::from((i - 1) / s.n_s) * bucket_lines(s, slot) + slot_lines(s, slot, (i - 1) % s.n_s + 1);
    (1..=slots).map(until).sum::<f64>() / f64::from(slots)
}

/// Cuckoo Forwarder with fingerprints of `l_f` bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cfw {
    /// The rest of the symbols.
    pub s: Symbols,
    /// Bits of a fingerprint.
    pub l_f: u32,
}

impl Cfw {
    fn slot(&self) -> u64 {
        u64::from(self.l_f + self.s.l_p)
    }

    fn second(&self) -> Cuckoo {
        Cuckoo { s: self.s }
    }

    fn fingerprints(&self) -> f64 {
        2f64.powi(self.l_f as i32)
    }

    /// `E_eta(l_f)`: share of the names in level 1, where level 1 is filled to `r_l`.
    ///
    /// Two names share one of their buckets with probability `n_b^2 / buckets` and the fingerprint with `2^-l_f`; a
    /// name stays in level 1 if it collides with none. Level 1 has `E n_k / (r_l n_s)` buckets, so
    /// `E = exp(-n_b^2 n_s r_l / (E 2^l_f))`, whatever `n_k` is. Of the two solutions the larger is taken; 0 where there
    /// is none: with fewer than 6 bits so many names leave level 1 that it cannot be filled.
    pub fn e_eta(&self) -> f64 {
        let s = &self.s;
        let c = f64::from(s.n_b * s.n_b * s.n_s) * s.r_l / self.fingerprints();
        if c >= (-1f64).exp() {
            return 0.0;
        }
        let newton = |e: f64| e - (e * e.ln() + c) / (e.ln() + 1.0);
        (0..60).fold(1.0, |e, _| newton(e))
    }

    /// `M_f^c` in bits, section V.A: level 1.
    pub fn fast_memory(&self) -> f64 {
        self.e_eta() * self.s.n_k * self.s.e_l() * self.slot() as f64
    }

    /// `M^c` in bits, section V.A: both levels.
    pub fn memory(&self) -> f64 {
        self.fast_memory() + (1.0 - self.e_eta()) * self.second().memory()
    }

    /// Probability that none of the first `j` slots of a bucket matches an alien. The fingerprints of a bucket all
    /// differ, or their names would be in level 2.
    fn none_of(&self, j: u32) -> f64 {
        1.0 - f64::from(j) * self.s.r_l / self.fingerprints()
    }

    /// `E(C_h^c)`, equation (3): the fingerprint, and on average `(n_b + 1) / 2` buckets; a name of level 2 needs all
    /// `n_b` of level 1 first. The printed equation counts one call too many for those: `1 + n_b` for `n_b`.
    pub fn c_h(&self) -> f64 {
        1.0 + f64::from(self.s.n_b + 1) / 2.0 + (1.0 - self.e_eta()) * f64::from(self.s.n_b)
    }

    /// `E(C_h,e^c)`, equation (3), of an alien; the printed `1 + 2 n_b` is the limit without false positives.
    pub fn c_h_alien(&self) -> f64 {
        let g = self.none_of(self.s.n_s);
        let n_b = self.s.n_b as i32;
        1.0 + (0..n_b).map(|bucket| g.powi(bucket)).sum::<f64>() + g.powi(n_b) * f64::from(n_b)
    }

    /// `E(C_m^c)`, equation (4), with the lines of level 2, which the printed equation omits.
    pub fn c_m(&self) -> f64 {
        let all_of_first = f64::from(self.s.n_b) * bucket_lines(&self.s, self.slot());
        let second = all_of_first + lines_of_a_name(&self.s, self.second().slot());
        let e = self.e_eta();
        self.s.name_lines() + e * lines_of_a_name(&self.s, self.slot()) + (1.0 - e) * second
    }

    /// `E(C_m,e^c)`, equation (4), with the lines of level 2, which the printed equation omits though equation (3)
    /// counts their hash calls.
    pub fn c_m_alien(&self) -> f64 {
        let s = &self.s;
        let g = self.none_of(s.n_s);
        let step = |j: u32| slot_lines(s, self.slot(), j) - slot_lines(s, self.slot(), j - 1);
        let bucket: f64 = (1..=s.n_s).map(|j| self.none_of(j - 1) * step(j)).sum();
        let first: f64 = (0..s.n_b as i32).map(|before| g.powi(before) * bucket).sum();
        let second = f64::from(s.n_b) * bucket_lines(s, self.second().slot());
        s.name_lines() + first + g.powi(s.n_b as i32) * second
    }

    /// `FP^c`, equation (8): `1 - (1 - r_l n_s / 2^l_f)^n_b`. The printed exponent has `E_eta` as a factor, although
    /// the memory of level 1 already accounts for it, and treats the fingerprints of a bucket as independent.
    pub fn fp(&self) -> f64 {
        1.0 - self.none_of(self.s.n_s).powi(self.s.n_b as i32)
    }
}

/// The equations as printed, where they differ from what they should say.
pub mod printed {
    use super::{Cfw, bucket_lines, slot_lines};

    /// Equation (3).
    pub fn c_h(c: &Cfw) -> f64 {
        let n_b = f64::from(c.s.n_b);
        2.0 + (n_b - 1.0) / 2.0 + (1.0 - c.e_eta()) * (1.0 + n_b)
    }

    /// Equation (3) for aliens.
    pub fn c_h_alien(c: &Cfw) -> f64 {
        1.0 + 2.0 * f64::from(c.s.n_b)
    }

    /// Equation (4): every last slot of a bucket counts a bucket too many, level 2 is missing.
    pub fn c_m(c: &Cfw) -> f64 {
        let (s, slot) = (&c.s, c.slot());
        let until = |i: u32| f64::from(i / s.n_s) * bucket_lines(s, slot) + slot_lines(s, slot, (i - 1) % s.n_s + 1);
        s.name_lines() + (1..=s.n_b * s.n_s).map(until).sum::<f64>() / f64::from(s.n_b * s.n_s)
    }

    /// Equation (4) for aliens: level 2 is missing.
    pub fn c_m_alien(c: &Cfw) -> f64 {
        c.s.name_lines() + f64::from(c.s.n_b) * bucket_lines(&c.s, c.slot())
    }

    /// Equation (8).
    pub fn fp(c: &Cfw) -> f64 {
        let slots = c.s.r_l * c.e_eta() * f64::from(c.s.n_s * c.s.n_b);
        -(slots * (-1.0 / c.fingerprints()).ln_1p()).exp_m1()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lookup::cuckoo::filtable::level1_share;

    fn paper(l_f: u32) -> Cfw {
        Cfw { s: Symbols { l_p: 6, ..Symbols::default() }, l_f }
    }

    #[test]
    fn share_of_level_1_is_a_fixed_point_and_that_of_the_structure() {
        for l_f in 6..=20 {
            let e = paper(l_f).e_eta();
            let per_bucket = 4.0 * paper(l_f).s.r_l / e;
            assert!((level1_share(l_f as u8, per_bucket) - e).abs() < 1e-9, "l_f = {l_f}: {e}");
        }
        assert!((paper(10).e_eta() - 0.985).abs() < 1e-3 && (paper(13).e_eta() - 0.998).abs() < 1e-3);
        assert_eq!(paper(5).e_eta(), 0.0);
    }

    #[test]
    fn equation_3_counts_a_call_too_many_for_level_2() {
        let c = paper(8);
        assert!((printed::c_h(&c) - c.c_h() - (1.0 - c.e_eta())).abs() < 1e-12);
        // From the two cases: found in level 1, or all of level 1 and then found in level 2.
        let cases = c.e_eta() * (1.0 + 1.5) + (1.0 - c.e_eta()) * (1.0 + 2.0 + 1.5);
        assert!((c.c_h() - cases).abs() < 1e-12, "{} and {cases}", c.c_h());
        assert!((paper(20).c_h_alien() - printed::c_h_alien(&c)).abs() < 1e-4);
    }

    #[test]
    fn equation_4_counts_half_a_bucket_of_lines_more_than_there_are() {
        // Buckets of 64 bits are one line each: 1 or 2 lines, 1.5 on average; printed: 2 of 8 slots count one more.
        let c = paper(10);
        let level_2 = (1.0 - c.e_eta()) * (2.0 + lines_of_a_name(&c.s, 54) - 1.5);
        assert!((c.c_m() - level_2 - 2.5).abs() < 1e-9 && (printed::c_m(&c) - 2.75).abs() < 1e-9);
        assert!(c.c_m_alien() - printed::c_m_alien(&c) > 2.0);
    }

    #[test]
    fn equation_8_takes_level_1_for_emptier_than_the_memory_says() {
        let c = paper(7);
        // 7.6 names in two buckets, of which at most one per bucket matches.
        assert!((c.fp() - (1.0 - (1.0 - 3.8 / 128.0f64).powi(2))).abs() < 1e-12);
        assert!(printed::fp(&c) < 0.9 * c.fp());
        assert!((printed::fp(&paper(14)) / paper(14).fp() - 1.0).abs() < 2e-3);
    }

    #[test]
    fn a_third_of_the_memory_of_cuckoo_at_one_per_cent() {
        let s = Symbols { l_p: 6, l_k: 64, ..Symbols::default() };
        let c = Cfw { s, l_f: 10 };
        assert!(c.fp() < 0.01 && c.memory() * 3.0 < Cuckoo { s }.memory());
        assert!(c.fast_memory() < c.memory());
    }
}
