//! `fibula controller log` and `fibula switch log`: what a daemon logs, shown and changed while it runs.

use crate::remote::{Client, answer};
use api::log::LogError;
use api::v1;
use command::log::FilterError;
use command::output::Output;
use serde::Serialize;

/// The log of this process, for the daemon that runs in it.
struct OfThisProcess;

impl api::log::Log for OfThisProcess {
    fn filter(&self) -> (String, String) {
        command::log::filter()
    }

    fn check(&self, filter: &str) -> Result<(), LogError> {
        command::log::check_filter(filter).map_err(error_of)
    }

    fn set_filter(&self, filter: &str) -> Result<String, LogError> {
        command::log::set_filter(filter).map_err(error_of)
    }
}

fn error_of(error: FilterError) -> LogError {
    match error {
        FilterError::NoLog => LogError::NoLog,
        error => LogError::Bad { why: error.to_string() },
    }
}

/// Lets the daemon of this process show and change its log.
pub(crate) fn install() {
    api::log::install(Box::new(OfThisProcess));
}

/// What a daemon logs.
#[derive(Serialize)]
struct LogRow {
    /// The name of the switch; empty: the controller.
    of: String,
    filter: String,
    at_start: String,
}

/// Shows or changes the filter of a switch, or of the controller if `switch` is empty.
/// # Errors
/// Those of the controller, with the exit code for their kind.
pub(crate) async fn run(
    mut client: Client,
    switch: String,
    filter: Option<String>,
    out: &Output,
) -> anyhow::Result<()> {
    let of = if switch.is_empty() { "controller".to_owned() } else { switch.clone() };
    let Some(filter) = filter else {
        let v1::LogState { filter, at_start, .. } = answer(client.get_log(v1::GetLogRequest { switch }).await)?;
        return out.rows(&[LogRow { of, filter, at_start }]);
    };
    let changed = answer(client.set_log(v1::SetLogRequest { switch, filter }).await)?;
    let v1::LogState { filter, at_start, before } = changed;
    let sentence = format!("{of} logs by `{filter}`; it was `{before}`, and `{at_start}` at the start");
    out.done(&LogRow { of, filter, at_start }, sentence)
}
