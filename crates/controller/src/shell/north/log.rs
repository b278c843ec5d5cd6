//! The filters of the logs of this controller and of its switches, shown and changed while they run.
//!
//! A switch is asked on the stream that it has anyway, so operators need no access to its machine, and the controller's audit trail
//! has every change. Limits: the switch must be connected to this controller; a switch of an earlier version cannot be asked.

use super::North;
use super::verify::answer_of;
use api::gate::Peer;
use api::log::LogError;
use api::v1::{LogState, SetLogRequest};
use fib::name::clip;
use lookup::base::visible::{shell_word, visible};
use std::time::Duration;
use tonic::Status;

/// How long a switch may take: all it does is change a filter.
const PATIENCE: Duration = Duration::from_secs(10);

/// Characters that are kept of what a switch says.
const MAX_TEXT: usize = 500;

/// Why there is no filter to show.
enum Failed {
    /// Nothing was changed.
    Refused(Status),
    /// The switch was asked, so what it logs may have changed.
    Unanswered(Status),
}

impl From<Status> for Failed {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

impl North {
    /// The filter of the log of a switch, or of this controller if it names none.
    pub(crate) async fn log(&self, switch: &str) -> Result<LogState, Status> {
        if switch.is_empty() {
            return api::log::state().map_err(|error| status_of(&error));
        }
        self.ask_switch(switch, "").await.map_err(|failed| match failed {
            Failed::Refused(status) | Failed::Unanswered(status) => status,
        })
    }

    /// Changes the filter. Records that before answering. Dropping this future may leave a change without a record.
    pub(crate) async fn change_log(&self, peer: &Peer, request: SetLogRequest) -> Result<LogState, Status> {
        let SetLogRequest { switch, filter } = request;
        let changed = self.set_filter(&switch, &filter).await;
        let of = if switch.is_empty() { "the controller".to_owned() } else { format!("switch {}", clip(&switch)) };
        let detail = format!("{of}: {}", shown(&filter));
        match changed {
            Ok(state) => {
                let counts = if state.before == state.filter { (0, 1) } else { (1, 0) };
                self.audit.change(peer, "set_log", &detail, Ok(counts));
                Ok(state)
            }
            Err(Failed::Refused(status)) => {
                self.audit.change(peer, "set_log", &detail, Err(status.message()));
                Err(status)
            }
            Err(Failed::Unanswered(status)) => {
                self.audit.unanswered(peer, "set_log", &detail, &format!("asked, not answered: {}", status.message()));
                let (name, why) = (shell_word(&switch), status.message());
                let look = format!("{why}. It may have changed what it logs: `fibula switch log {name}` shows it");
                Err(Status::new(status.code(), look))
            }
        }
    }

    async fn set_filter(&self, switch: &str, filter: &str) -> Result<LogState, Failed> {
        if filter.is_empty() {
            let why = "the filter is empty; give a level, such as info, or off for no log at all";
            return Err(Status::invalid_argument(why).into());
        }
        // Checked here, so that no switch is sent an invalid filter.
        api::log::check(filter).map_err(|error| status_of(&error))?;
        if switch.is_empty() {
            return Ok(api::log::set(filter).map_err(|error| status_of(&error))?);
        }
        self.ask_switch(switch, filter).await
    }

    async fn ask_switch(&self, name: &str, filter: &str) -> Result<LogState, Failed> {
        let node = self.node(name).await?;
        let session = self.shared.session(node).ok_or_else(|| self.gone(name, node))?;
        if !session.lock().said().says_log() {
            let name = clip(name);
            let why =
                format!("switch `{name}` has an earlier version, which cannot be asked for its log; update it first");
            return Err(Status::failed_precondition(why).into());
        }
        let answer = session.ask_log(filter).ok_or_else(|| {
            let name = clip(name);
            Status::unavailable(format!(
                "another request for the log of switch `{name}` is in progress, or its stream has ended; try again"
            ))
        })?;
        let said = tokio::select! {
            biased;
            said = answer_of(name, answer, PATIENCE) => said,
            () = session.until_ended() => Err(Status::unavailable(format!("the stream of switch `{}` has ended", clip(name)))),
        };
        let said = said.map_err(Failed::Unanswered)?;
        let of = |why: String| format!("switch `{}`: {why}", clip(name));
        match (said.error.is_empty(), said.state) {
            (true, Some(LogState { filter, at_start, before })) => {
                Ok(LogState { filter: shown(&filter), at_start: shown(&at_start), before: shown(&before) })
            }
            (true, None) => Err(Status::failed_precondition(of(LogError::NoLog.to_string())).into()),
            (false, _) => Err(Status::invalid_argument(of(shown(&said.error))).into()),
        }
    }
}

/// Foreign text, as it is passed on.
fn shown(text: &str) -> String {
    let end = text.char_indices().nth(MAX_TEXT).map_or(text.len(), |(end, _)| end);
    visible(&text[..end]).into_owned()
}

fn status_of(error: &LogError) -> Status {
    match error {
        LogError::NoLog => Status::failed_precondition(error.to_string()),
        _ => Status::invalid_argument(error.to_string()),
    }
}
