//! The filter of this switch's log, as its controller asks for it.

use api::log::LogError;
use api::v1::{AskLog, SaidLog};
use fib::name::clip;

/// Shows the filter, or changes it.
pub(super) fn said(switch: &str, AskLog { number, filter }: AskLog) -> SaidLog {
    let state = if filter.is_empty() { api::log::state() } else { api::log::set(&filter) };
    match &state {
        Ok(_) if filter.is_empty() => {}
        Ok(state) => tracing::info!(switch, filter, before = state.before, "the controller changed the log filter"),
        // It may be anything, and as long as a message.
        Err(error) => {
            let filter = clip(&filter);
            tracing::warn!(switch, filter, %error, "the controller asked for a log that cannot be");
        }
    }
    let error = match &state {
        Ok(_) | Err(LogError::NoLog) => String::new(),
        Err(error) => error.to_string(),
    };
    SaidLog { number, state: state.ok(), error }
}
