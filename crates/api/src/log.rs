//! The filter of a daemon's log, which can be shown and changed while the daemon runs.
//!
//! The log belongs to the process, which has one: the command that runs a daemon [installs](install) the means to
//! change it, and services that handle requests for changes call [`state`] and [`set`]. A process without one, such as
//! a test, refuses.

use crate::v1::LogState;
use std::sync::OnceLock;

/// Maximum bytes of a filter: less than a line of the audit trail holds, so the trail records it in full.
pub const MAX_FILTER: usize = 200;

/// The log of a process.
pub trait Log: Send + Sync {
    /// The current filter, and the one at the start.
    fn filter(&self) -> (String, String);

    /// Checks that a filter is valid.
    /// # Errors
    /// [`LogError`].
    fn check(&self, filter: &str) -> Result<(), LogError>;

    /// Changes the filter, and returns the previous one.
    /// # Errors
    /// [`LogError`]; the previous one stays.
    fn set_filter(&self, filter: &str) -> Result<String, LogError>;
}

static LOG: OnceLock<Box<dyn Log>> = OnceLock::new();

/// Reasons why a filter is not shown or changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// No log is installed.
    #[error("there is no log with a filter to change; start the program as `fibula controller` or `fibula switch`")]
    NoLog,
    /// The filter is too long.
    #[error("the filter has {got} bytes; use at most {max}: a level, and the parts of the program that matter")]
    TooLong {
        /// As given.
        got: usize,
        /// At most.
        max: usize,
    },
    /// The filter is invalid.
    #[error("{why}")]
    Bad {
        /// What is wrong with it, and how to write one.
        why: String,
    },
}

/// Sets the log of this process; the first one counts.
pub fn install(log: Box<dyn Log>) {
    let _ = LOG.set(log);
}

/// The current filter, and the one at the start of the process.
/// # Errors
/// [`LogError::NoLog`].
pub fn state() -> Result<LogState, LogError> {
    let (filter, at_start) = LOG.get().ok_or(LogError::NoLog)?.filter();
    Ok(LogState { filter, at_start, before: String::new() })
}

/// Checks that a filter would be valid here, before another process is asked. A process without a log checks only the
/// length.
/// # Errors
/// [`LogError`].
pub fn check(filter: &str) -> Result<(), LogError> {
    if filter.len() > MAX_FILTER {
        return Err(LogError::TooLong { got: filter.len(), max: MAX_FILTER });
    }
    LOG.get().map_or(Ok(()), |log| log.check(filter))
}

/// Changes the filter; the answer contains the previous one. The change is logged beforehand: afterwards it might be
/// filtered out.
/// # Errors
/// [`LogError`]; the filter is unchanged.
pub fn set(filter: &str) -> Result<LogState, LogError> {
    let log = LOG.get().ok_or(LogError::NoLog)?;
    check(filter)?;
    let (_, at_start) = log.filter();
    tracing::info!(filter, "the log filter changes");
    let before = log.set_filter(filter)?;
    Ok(LogState { filter: filter.to_owned(), at_start, before })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_a_log_refuses_and_still_knows_what_is_too_long() {
        assert_eq!((state(), set("info")), (Err(LogError::NoLog), Err(LogError::NoLog)));
        assert_eq!(check(&"x".repeat(MAX_FILTER)), Ok(()));
        let too_long = LogError::TooLong { got: MAX_FILTER + 1, max: MAX_FILTER };
        assert_eq!(check(&"x".repeat(MAX_FILTER + 1)), Err(too_long));
    }
}
