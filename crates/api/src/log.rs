//! The filter of a daemon's log, shown and changed while it runs.
//!
//! The log belongs to the process, which has one: the command that runs a daemon [installs](install) what changes it, and whoever
//! serves a request to change it calls [`state`] and [`set`]. A process without one, such as a test, refuses.

use crate::v1::LogState;
use std::sync::OnceLock;

/// Bytes of a filter: less than what a line of the audit trail keeps, so that it has all of it.
pub const MAX_FILTER: usize = 200;

/// The log of a process.
pub trait Log: Send + Sync {
    /// Its filter, and that with which it began.
    fn filter(&self) -> (String, String);

    /// Whether a filter could be taken.
    /// # Errors
    /// [`LogError`].
    fn check(&self, filter: &str) -> Result<(), LogError>;

    /// Changes it, and returns what it was before.
    /// # Errors
    /// [`LogError`]; the one before stays.
    fn set_filter(&self, filter: &str) -> Result<String, LogError>;
}

static LOG: OnceLock<Box<dyn Log>> = OnceLock::new();

/// Why a filter is not shown or changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// Nothing is installed.
    #[error(
        "there is no log whose filter could be changed; start the program as `fibula controller` or `fibula switch`"
    )]
    NoLog,
    /// It is longer than any that makes sense.
    #[error("the filter has {got} bytes; give at most {max}: a level, and the parts of the program that matter")]
    TooLong {
        /// As given.
        got: usize,
        /// At most.
        max: usize,
    },
    /// It is no filter.
    #[error("{why}")]
    Bad {
        /// What is wrong with it, and how one is written.
        why: String,
    },
}

/// Says what the log of this process is; the first one counts.
pub fn install(log: Box<dyn Log>) {
    let _ = LOG.set(log);
}

/// The filter, and that with which the process began.
/// # Errors
/// [`LogError::NoLog`].
pub fn state() -> Result<LogState, LogError> {
    let (filter, at_start) = LOG.get().ok_or(LogError::NoLog)?.filter();
    Ok(LogState { filter, at_start, before: String::new() })
}

/// Whether a filter could be taken here: for another process, before it is asked. A process without a log knows its length alone.
/// # Errors
/// [`LogError`].
pub fn check(filter: &str) -> Result<(), LogError> {
    if filter.len() > MAX_FILTER {
        return Err(LogError::TooLong { got: filter.len(), max: MAX_FILTER });
    }
    LOG.get().map_or(Ok(()), |log| log.check(filter))
}

/// Changes the filter; the answer says what it was before. The log says so before it changes: afterwards it may say nothing.
/// # Errors
/// [`LogError`]; the filter is as it was.
pub fn set(filter: &str) -> Result<LogState, LogError> {
    let log = LOG.get().ok_or(LogError::NoLog)?;
    check(filter)?;
    let (_, at_start) = log.filter();
    tracing::info!(filter, "what is logged changes now");
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
