//! Benchmarks: structures side by side in one run, on the same names in the same order, every answer checked.
//!
//! Figures that are quoted anywhere come from here, through `fibula bench`. A run builds all contestants of one setting
//! and checks that each gives every name its value. Then it measures them in turn, round by round, so that disturbances
//! of the machine affect all of them; ratios are medians over the rounds. A contestant that answers differently in a
//! timed run ends the bench with an error.

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

use fib::designs::{Design, UnknownDesign};

/// All designs, those of the papers among them.
pub(crate) fn designs() -> impl Iterator<Item = &'static Design> {
    papers::add();
    fib::designs::all()
}

/// The design of this name, of all.
pub(crate) fn design(name: &str) -> Result<&'static Design, UnknownDesign> {
    papers::add();
    Design::by_name(name)
}

/// Why a bench ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// There is no contestant of this name.
    #[error("this bench has no contestant `{name}`; it has {known}")]
    UnknownContestant {
        /// The name that was given.
        name: String,
        /// The known ones, separated by commas.
        known: String,
    },
    /// The contestant is not part of this build or cannot start here.
    #[error("{contestant}: {reason}")]
    Unavailable {
        /// Its name.
        contestant: &'static str,
        /// The reason, and what to do about it.
        reason: String,
    },
    /// The contestant cannot hold such a set.
    #[error("{contestant} cannot be built with {n} names: {reason}")]
    Build {
        /// Its name.
        contestant: String,
        /// Names in the set.
        n: u64,
        /// The reason.
        reason: String,
    },
    /// A wrong answer, found when every name was looked up before the measurement.
    #[error("{contestant} answers {got} for name {name:#x} instead of {expected}, so its figures would be worthless")]
    WrongAnswer {
        /// Its name.
        contestant: String,
        /// The name that was looked up.
        name: u64,
        /// The answer.
        got: u64,
        /// The correct value.
        expected: u64,
    },
    /// The answers of a timed run do not add up.
    #[error("the answers of {contestant} in a timed run have checksum {got:016x} instead of {expected:016x}")]
    Checksum {
        /// Its name.
        contestant: String,
        /// Sum of its answers.
        got: u64,
        /// Sum of the correct values.
        expected: u64,
    },
    /// A process of the bench failed, or printed something else than the others.
    #[error("process {number} of the bench: {reason}")]
    Process {
        /// Its number, from 1.
        number: u32,
        /// Its exit code, if it ended with one that is not 0.
        code: Option<i32>,
        /// What it wrote to standard error, or what was unexpected.
        reason: String,
    },
    /// A setting out of range.
    #[error("{0}")]
    Setting(String),
}

impl BenchError {
    /// Whether an answer was wrong, as opposed to something that could not be run.
    pub fn is_wrong_answer(&self) -> bool {
        matches!(self, Self::WrongAnswer { .. } | Self::Checksum { .. })
    }
}
