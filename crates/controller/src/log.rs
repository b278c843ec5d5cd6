//! The filters of the logs of this controller and of its switches, shown and changed while they run.
//!
//! A switch is asked on the stream that it has anyway, so nobody needs a way to its machine, and the audit trail of the controller
//! has every change. Limits: the switch must be connected to this controller.

use crate::north::North;
use api::gate::Peer;
use api::log::LogError;
use api::v1::{LogState, SetLogRequest};
use fib::name::clip;
use std::time::Duration;
use tonic::Status;

/// How long a switch may take: it does nothing for it but to change a filter.
const PATIENCE: Duration = Duration::from_secs(10);

/// Characters that are kept of what a switch says.
const MAX_TEXT: usize = 1500;

impl North {
    /// The filter of the log of a switch, or of this controller if it names none.
    pub(crate) async fn log(&self, switch: &str) -> Result<LogState, Status> {
        if switch.is_empty() {
            return api::log::state().map_err(|error| status_of(&error));
        }
        self.ask_switch(switch, "").await
    }

    /// Changes it. It is recorded before it is answered.
    pub(crate) async fn change_log(&self, peer: &Peer, request: SetLogRequest) -> Result<LogState, Status> {
        let SetLogRequest { switch, filter } = request;
        let changed = if filter.is_empty() {
            Err(Status::invalid_argument("the filter is empty; give a level, such as info, or off for no log at all"))
        } else if switch.is_empty() {
            api::log::set(&filter).map_err(|error| status_of(&error))
        } else {
            self.ask_switch(&switch, &filter).await
        };
        let of = if switch.is_empty() { "the controller".to_owned() } else { format!("switch {}", clip(&switch)) };
        let detail = format!("{of}: {filter}");
        let end = match &changed {
            Ok(state) if state.before == state.filter => Ok((0, 1)),
            Ok(_) => Ok((1, 0)),
            Err(status) => Err(status.message()),
        };
        self.audit.change(peer, "set_log", &detail, end);
        changed
    }

    async fn ask_switch(&self, name: &str, filter: &str) -> Result<LogState, Status> {
        let node = self.node(name).await?;
        let session = self.shared.session(node).ok_or_else(|| gone(name))?;
        let answer = session.ask_log(filter).ok_or_else(|| {
            let name = clip(name);
            Status::unavailable(format!(
                "somebody else asks switch `{name}` for its log just now, or its stream has ended; try again"
            ))
        })?;
        let answer = tokio::time::timeout(PATIENCE, answer).await.map_err(|_| {
            let (name, seconds) = (clip(name), PATIENCE.as_secs());
            Status::deadline_exceeded(format!("switch `{name}` has not answered within {seconds} s; try again"))
        })?;
        let said = answer.map_err(|_| gone(name))?;
        match (said.error.is_empty(), said.state) {
            (true, Some(LogState { filter, at_start, before })) => {
                Ok(LogState { filter: shown(&filter), at_start: shown(&at_start), before: shown(&before) })
            }
            (true, None) => Err(Status::internal(format!("switch `{}` answered without a filter", clip(name)))),
            (false, _) => Err(Status::invalid_argument(format!("switch `{}`: {}", clip(name), shown(&said.error)))),
        }
    }
}

/// A text of a switch, as it is passed on.
fn shown(text: &str) -> String {
    text.chars().take(MAX_TEXT).map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

fn status_of(error: &LogError) -> Status {
    match error {
        LogError::NoLog => Status::failed_precondition(error.to_string()),
        _ => Status::invalid_argument(error.to_string()),
    }
}

fn gone(name: &str) -> Status {
    Status::failed_precondition(format!(
        "switch `{}` is not connected to this controller; of several, ask the one that serves it, and otherwise start it and try again",
        clip(name)
    ))
}
