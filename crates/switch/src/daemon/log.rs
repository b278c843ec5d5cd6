//! The filter of this switch's log, as its controller asks for it.

use api::v1::{AskLog, SaidLog};

/// Shows the filter, or changes it.
pub(super) fn said(switch: &str, AskLog { number, filter }: AskLog) -> SaidLog {
    if filter.is_empty() {
        let state = api::log::state();
        let error = state.as_ref().err().map(ToString::to_string).unwrap_or_default();
        return SaidLog { number, state: state.ok(), error };
    }
    match api::log::set(&filter) {
        Ok(state) => {
            tracing::info!(switch, filter, before = state.before, "the controller changed what is logged");
            SaidLog { number, state: Some(state), error: String::new() }
        }
        Err(error) => {
            tracing::warn!(switch, filter, %error, "the controller asked for a log that cannot be");
            SaidLog { number, state: None, error: error.to_string() }
        }
    }
}
