//! What tests share: reproducible random numbers, and the conformance test that every structure passes.

pub mod conformance;
#[cfg(test)]
pub(crate) mod kernels;
pub mod oracle;

pub use crate::hash::Rng;

/// The seed of a random test: `FIBULA_SEED` if set, otherwise the clock. Printed, so that a failure can be reproduced.
#[expect(clippy::disallowed_methods, reason = "a seed, not a time")]
pub fn seed() -> u64 {
    let seed = std::env::var("FIBULA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| now.as_nanos() as u64)
    });
    println!("FIBULA_SEED={seed}");
    seed
}
