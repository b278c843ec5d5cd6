//! Asks a switch for the digests of what it serves, and compares them: see [`crate::core::verify`].

use super::North;
use crate::core::session::decode;
use crate::core::verify::{Parts, compare, parts};
use crate::shell::report::decoding;
use crate::shell::session::Session;
use api::v1::VerifySwitchReply;
use fib::name::clip;
use fib::topology::NodeId;
use lookup::base::visible::shell_word;
use std::time::Duration;
use tokio::sync::oneshot::Receiver;
use tonic::Status;

/// How long a switch may take to compute its digests.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a switch is asked before it counts as behind, and the pause in between.
const ROUNDS: u32 = 30;
const PAUSE: Duration = Duration::from_millis(200);

impl North {
    pub(crate) async fn verify(&self, name: &str) -> Result<VerifySwitchReply, Status> {
        let node = self.node(name).await?;
        let mut damage = Vec::new();
        for _ in 0..ROUNDS {
            let session = self.shared.session(node).ok_or_else(|| self.gone(name, node))?;
            if session.lock().is_reconciled() {
                let before = self.held(node).await?;
                let theirs = held_by_switch(name, &session, &mut damage).await?;
                let after = self.held(node).await?;
                if let (Some(before), Some(after)) = (before, after)
                    && let Some(parts) = compare(&before, &theirs, &after)
                {
                    return Ok(VerifySwitchReply { parts, damage });
                }
            }
            #[expect(clippy::disallowed_methods, reason = "the switch gets time to catch up")]
            tokio::time::sleep(PAUSE).await;
        }
        let (word, name) = (shell_word(name), clip(name));
        Err(Status::unavailable(format!(
            "switch `{name}` is behind, or changes come faster than it can be compared; try again when `fibula switch show {word}` says that it is in step"
        )))
    }

    /// The id of a switch.
    pub(crate) async fn node(&self, name: &str) -> Result<NodeId, Status> {
        let wanted = name.to_owned();
        self.read(move |state| state.node(&wanted)).await?.map_err(|refusal| self.refused(&refusal))
    }

    /// The error that a switch is not connected here, with the controller that serves it.
    pub(crate) fn gone(&self, name: &str, node: NodeId) -> Status {
        let name = clip(name);
        let Some(there) = self.shared.there(node) else {
            return Status::failed_precondition(format!(
                "switch `{name}` is not connected to this controller; of several, ask the one that serves it, and otherwise start it and \
                 try again"
            ));
        };
        let by = there.served_by;
        Status::failed_precondition(format!("switch `{name}` is served by {by}; ask that one, with --controller {by}"))
    }

    /// What the switch has according to the controller; none while it is parked.
    async fn held(&self, node: NodeId) -> Result<Option<Parts>, Status> {
        self.read(move |state| state.network.held(node).as_ref().map(parts)).await
    }
}

/// What the switch has according to itself.
async fn held_by_switch(name: &str, session: &Session, damage: &mut Vec<String>) -> Result<Parts, Status> {
    let answer = session.verify().ok_or_else(|| {
        let name = clip(name);
        Status::unavailable(format!("switch `{name}` is being verified, or its stream has ended; try again"))
    })?;
    let verified = tokio::select! {
        biased;
        verified = answer_of(name, answer, PATIENCE) => verified?,
        () = session.until_ended() => {
            return Err(Status::unavailable(format!("the stream of switch `{}` ended before it answered; try again", clip(name))));
        }
    };
    damage.extend(verified.damage);
    let report = decoding(verified.report.len(), || decode(&verified.report))
        .map_err(|reason| Status::internal(format!("the report of switch `{}` is malformed: {reason}", clip(name))))?;
    Ok(parts(&report))
}

/// The answer of a switch that was asked.
pub(crate) async fn answer_of<T>(name: &str, answer: Receiver<T>, patience: Duration) -> Result<T, Status> {
    let answer = tokio::time::timeout(patience, answer).await.map_err(|_| {
        let (name, seconds) = (clip(name), patience.as_secs());
        Status::deadline_exceeded(format!("switch `{name}` has not answered within {seconds} s; try again"))
    })?;
    answer.map_err(|_| {
        let name = clip(name);
        Status::unavailable(format!(
            "the stream of switch `{name}` ended, or another request reached it, before it answered; try again"
        ))
    })
}
