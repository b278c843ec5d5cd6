//! The filter of a daemon's log, shown and changed while it runs.
//!
//! The log belongs to the process, which has one: the command that runs a daemon [installs](install) what changes it, and whoever
//! serves a request to change it calls [`state`] and [`set`]. A process without one, such as a test, refuses.

use crate::v1::LogState;
use std::sync::OnceLock;

/// Bytes of a filter: it may have regular expressions, which are compiled.
const MAX_FILTER: usize = 1000;

/// The log of a process.
pub trait Log: Send + Sync {
    /// Its filter, and that with which it began.
    fn filter(&self) -> (String, String);

    /// Changes it.
    /// # Errors
    /// What is wrong with the filter; the one before stays.
    fn set_filter(&self, filter: &str) -> Result<(), String>;
}

static LOG: OnceLock<Box<dyn Log>> = OnceLock::new();

/// Why a filter is not shown or changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// Nothing is installed.
    #[error(
        "this program has no log whose filter could be changed; start it as `fibula controller` or `fibula switch`"
    )]
    NoLog,
    /// It is longer than any that makes sense.
    #[error("the filter has {got} bytes; give at most {max}")]
    TooLong {
        /// As given.
        got: usize,
        /// At most.
        max: usize,
    },
    /// It is no filter.
    #[error("{0}")]
    Bad(String),
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

/// Changes the filter; the answer says what it was before.
/// # Errors
/// [`LogError`]; the filter is as it was.
pub fn set(filter: &str) -> Result<LogState, LogError> {
    let log = LOG.get().ok_or(LogError::NoLog)?;
    if filter.len() > MAX_FILTER {
        return Err(LogError::TooLong { got: filter.len(), max: MAX_FILTER });
    }
    let (before, _) = log.filter();
    log.set_filter(filter).map_err(LogError::Bad)?;
    let (filter, at_start) = log.filter();
    Ok(LogState { filter, at_start, before })
}
