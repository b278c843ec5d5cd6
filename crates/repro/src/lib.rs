//! Benchmarks: structures side by side in one run, on the same names in the same order, every answer checked.
//!
//! Figures that are quoted anywhere come from here, through `fibula bench`. A run builds all contestants of one
//! setting, checks that each gives every name its value, and then measures them in turn, round by round, so that
//! whatever the machine does meets all of them; ratios are medians over the rounds. A contestant that answers
//! differently in a timed run ends the bench with an error.

pub mod bench;
pub mod contestants;
pub mod figures;
pub mod hash_lab;
pub mod kinds;
pub mod machine;
pub mod names;
mod pages;
pub mod records;
pub mod report;
pub mod stats;

/// Why a bench ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// No contestant of this name.
    #[error("this bench has no contestant `{name}`; it has {known}")]
    UnknownContestant {
        /// The name that was given.
        name: String,
        /// Those there are, separated by commas.
        known: String,
    },
    /// The contestant is not part of this build or cannot start here.
    #[error("{contestant}: {reason}")]
    Unavailable {
        /// Which one.
        contestant: &'static str,
        /// Why, and what to do about it.
        reason: String,
    },
    /// The contestant cannot hold such a set.
    #[error("{contestant} cannot be built with {n} names: {reason}")]
    Build {
        /// Which one.
        contestant: String,
        /// Names in the set.
        n: u64,
        /// Why.
        reason: String,
    },
    /// A wrong answer, found when every name was looked up before the measurement.
    #[error("{contestant} answers {got} for name {name:#x} instead of {expected}, so its figures would be worthless")]
    WrongAnswer {
        /// Which one.
        contestant: String,
        /// The name asked for.
        name: u64,
        /// What came back.
        got: u64,
        /// What was put in.
        expected: u64,
    },
    /// The answers of a timed run do not add up.
    #[error("the answers of {contestant} in a timed run have checksum {got:016x} instead of {expected:016x}")]
    Checksum {
        /// Which one.
        contestant: String,
        /// Sum of its answers.
        got: u64,
        /// Sum of the values.
        expected: u64,
    },
    /// A setting out of range.
    #[error("{0}")]
    Setting(String),
}

impl BenchError {
    /// Whether an answer was wrong, as against something that could not be run.
    pub fn is_wrong_answer(&self) -> bool {
        matches!(self, Self::WrongAnswer { .. } | Self::Checksum { .. })
    }
}
