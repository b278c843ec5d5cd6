//! Rates averaged over many filters, with their standard errors.

/// Mean and standard error of one number per filter. The standard error includes the spread between filters.
pub(crate) struct Mean {
    pub(crate) mean: f64,
    pub(crate) error: f64,
}

impl Mean {
    pub(crate) fn of(samples: &[f64]) -> Self {
        let n = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / n;
        let variance = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / (n - 1.0);
        Self { mean, error: (variance / n).sqrt() }
    }

    pub(crate) fn must_be(&self, expected: f64, context: &str) {
        let sigmas = (self.mean - expected) / self.error;
        println!("{context}: {:.6} +- {:.6}, expected {expected:.6}: {sigmas:+.2} sigma", self.mean, self.error);
        assert!(sigmas.abs() <= 3.0, "{context}: {} +- {}, expected {expected}", self.mean, self.error);
    }
}
