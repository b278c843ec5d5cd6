//! Random numbers from a seed, the same on every machine.

/// splitmix64's finaliser over a Weyl step: a bijection.
pub const fn mix64(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A stream of random numbers from a seed: splitmix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(mix64(seed))
    }

    /// The next number, uniform over 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix64(self.0)
    }

    /// A number below `n`; `n` is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Uniform in (0, 1].
    pub fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Exponentially distributed, with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.unit().ln()
    }

    /// Moves a random choice of `count` items, in random order, to the front of `items`.
    /// # Panics
    /// If `count` exceeds the number of items.
    pub fn shuffle_front<T>(&mut self, items: &mut [T], count: usize) {
        assert!(count <= items.len());
        for i in 0..count {
            let j = i + self.below((items.len() - i) as u64) as usize;
            items.swap(i, j);
        }
    }
}

/// Draws ranks 1..=n with probability in proportion to 1/rank^s, in O(1), by rejection from the continuous distribution
/// that lies above it.
///
/// Source: Hörmann, Derflinger, "Rejection-inversion to generate variates from monotone discrete distributions", 1996.
#[derive(Clone, Debug)]
pub struct Zipf {
    n: u64,
    exponent: f64,
    h_low: f64,
    h_high: f64,
}

impl Zipf {
    /// A distribution of exponent 1.
    pub fn new(n: u64) -> Self {
        Self::with_exponent(n, 1.0)
    }

    /// A distribution of exponent s; 0 is uniform.
    /// # Panics
    /// If there is no rank, or the exponent is negative or not a number.
    pub fn with_exponent(n: u64, exponent: f64) -> Self {
        assert!(n > 0 && exponent >= 0.0, "Zipf of {n} ranks and exponent {exponent}");
        let h = |x| integral(x, exponent);
        Self { n, exponent, h_low: h(1.5) - 1.0, h_high: h(n as f64 + 0.5) }
    }

    /// A rank; 1 is the most popular.
    pub fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let u = self.h_high + random.unit() * (self.h_low - self.h_high);
            let x = inverse(u, self.exponent);
            let rank = (x.round() as u64).clamp(1, self.n);
            if u >= integral(rank as f64 + 0.5, self.exponent) - (rank as f64).powf(-self.exponent) {
                return rank;
            }
        }
    }
}

/// The integral of 1/x^s from 1, for s = 1 the logarithm.
fn integral(x: f64, s: f64) -> f64 {
    if s == 1.0 { x.ln() } else { (x.powf(1.0 - s) - 1.0) / (1.0 - s) }
}

/// The inverse of [`integral`].
fn inverse(u: f64, s: f64) -> f64 {
    if s == 1.0 { u.exp() } else { (1.0 + (1.0 - s) * u).powf(1.0 / (1.0 - s)) }
}

#[cfg(test)]
mod tests {
    use lookup::testkit::seed;

    use super::*;

    #[test]
    fn ranks_are_drawn_in_proportion_to_a_power_of_them() {
        let (n, n_draws) = (100, 1_000_000);
        let mut random = Random::new(seed());
        for exponent in [0.0, 0.8, 1.0, 1.3] {
            let zipf = Zipf::with_exponent(n, exponent);
            let mut counts = vec![0u64; n as usize + 1];
            (0..n_draws).for_each(|_| counts[zipf.draw(&mut random) as usize] += 1);
            let all: f64 = (1..=n).map(|rank| (rank as f64).powf(-exponent)).sum();
            for rank in [1, 2, 3, 10, 50, 100] {
                let expected = n_draws as f64 * (rank as f64).powf(-exponent) / all;
                let deviation = (counts[rank as usize] as f64 - expected) / expected.sqrt();
                assert!(deviation.abs() < 5.0, "exponent {exponent}, rank {rank}: {deviation} sigma");
            }
        }
    }

    #[test]
    fn exponential_numbers_have_their_mean() {
        let mut random = Random::new(seed());
        let n = 1_000_000;
        let mean = (0..n).map(|_| random.exponential(3.0)).sum::<f64>() / f64::from(n);
        assert!((mean / 3.0 - 1.0).abs() < 6.0 / f64::from(n).sqrt(), "{mean}");
    }
}
