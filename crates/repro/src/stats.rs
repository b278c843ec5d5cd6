//! Summaries of repeated measurements, and a histogram of latencies.

/// Median, smallest and largest of a few measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Summarises `samples`.
    /// # Panics
    /// When there are none.
    pub fn of(samples: &[f64]) -> Self {
        assert!(!samples.is_empty(), "a summary needs a sample");
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let mid = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[mid] } else { (sorted[mid - 1] + sorted[mid]) / 2.0 };
        Self { median, min: sorted[0], max: sorted[sorted.len() - 1] }
    }
}

/// Median of the ratios `a[i] / b[i]` of two contestants measured in the same rounds: a disturbance of a whole round
/// cancels out.
/// # Panics
/// When the two differ in length or are empty.
pub fn median_ratio(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len(), "one sample a round");
    let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
    Summary::of(&ratios).median
}

/// Counts of latencies in buckets whose width is at most 1/16 of their value: 8 KB, whatever is recorded.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max_ns: u64,
}

/// Sub-buckets per power of two.
const SUB: u64 = 16;

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; 64 * SUB as usize], total: 0, max_ns: 0 }
    }
}

impl Histogram {
    /// Counts one latency.
    pub fn record(&mut self, ns: u64) {
        self.counts[Self::bucket(ns)] += 1;
        self.total += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    /// The latency, in ns, that a share `quantile` of the recorded ones does not exceed (to 1/16); 1.0 gives the exact
    /// maximum. 0 if nothing was recorded.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        let wanted = (quantile * self.total as f64).ceil() as u64;
        if wanted >= self.total {
            return self.max_ns;
        }
        let mut seen = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && count > 0 {
                return Self::upper_ns(bucket).min(self.max_ns);
            }
        }
        self.max_ns
    }

    fn bucket(ns: u64) -> usize {
        if ns < SUB {
            return ns as usize;
        }
        let exponent = u64::from(ns.ilog2());
        let shift = exponent - u64::from(SUB.ilog2());
        ((shift + 1) * SUB + ((ns >> shift) - SUB)) as usize
    }

    fn upper_ns(bucket: usize) -> u64 {
        let bucket = bucket as u64;
        if bucket < SUB {
            return bucket;
        }
        let shift = bucket / SUB - 1;
        ((bucket % SUB + SUB + 1) << shift).wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_an_even_number_is_the_mean_of_the_middle() {
        assert_eq!(Summary::of(&[4.0, 1.0, 2.0, 9.0]), Summary { median: 3.0, min: 1.0, max: 9.0 });
        assert_eq!(Summary::of(&[5.0, 1.0, 9.0]).median, 5.0);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        assert_eq!(median_ratio(&[10.0, 20.0, 40.0], &[5.0, 10.0, 10.0]), 2.0);
    }

    #[test]
    fn quantiles_are_right_to_a_sixteenth() {
        let mut histogram = Histogram::default();
        for ns in 1..=100_000 {
            histogram.record(ns);
        }
        for (quantile, exact) in [(0.5, 50_000.0), (0.99, 99_000.0), (0.999, 99_900.0)] {
            let got = histogram.quantile_ns(quantile) as f64;
            assert!(got >= exact && got <= exact * 1.07, "{quantile}: {got}");
        }
        assert_eq!(histogram.quantile_ns(1.0), 100_000);
    }

    #[test]
    fn histogram_takes_the_largest_integer() {
        let mut histogram = Histogram::default();
        histogram.record(u64::MAX);
        assert_eq!(histogram.quantile_ns(0.5), u64::MAX);
    }

    #[test]
    fn empty_histogram_answers_zero() {
        assert_eq!(Histogram::default().quantile_ns(0.99), 0);
    }
}
