//! Compares what a switch serves with what the controller says: digests that the switch computes again from its memory.
//!
//! The network changes meanwhile. So the controller's digests are read before and after the switch computes its own, and
//! a part is compared at a version that both sides have had. Parts that have no such version are asked for again. A
//! version says something only once the switch has all that the controller answered to its report: before, it may be one
//! of changes that the controller's store was set back from.

use crate::north::North;
use crate::session::Session;
use api::seam::{Mistake, mistaken};
use api::v1::{VerifiedPart, VerifySwitchReply};
use fib::messages::{Held, Report};
use fib::name::clip;
use fib::topology::NodeId;
use lookup::base::visible::shell_word;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::oneshot::Receiver;
use tonic::Status;

/// How long a switch may take to compute its digests.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a switch is asked before it is said to be behind, and the pause in between.
const ROUNDS: u32 = 30;
const PAUSE: Duration = Duration::from_millis(200);

/// Versions and digests by part.
pub(crate) type Parts = BTreeMap<String, Held>;

impl North {
    pub(crate) async fn verify(&self, name: &str) -> Result<VerifySwitchReply, Status> {
        let node = self.node(name).await?;
        let mut damage = Vec::new();
        for _ in 0..ROUNDS {
            let session = self.shared.session(node).ok_or_else(|| self.gone(name, node))?;
            if session.is_reconciled() {
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

    /// That a switch is not connected here, and who serves it.
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

    /// What the switch has by the controller's account; none while it is parked.
    async fn held(&self, node: NodeId) -> Result<Option<Parts>, Status> {
        self.read(move |state| state.network.held(node).as_ref().map(parts)).await
    }
}

/// What the switch has by its own account.
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
    let report = crate::south::decode(&verified.report)
        .map_err(|reason| Status::internal(format!("the report of switch `{}` is malformed: {reason}", clip(name))))?;
    Ok(parts(&report))
}

/// What a switch answers that was asked.
pub(crate) async fn answer_of<T>(name: &str, answer: Receiver<T>, patience: Duration) -> Result<T, Status> {
    let answer = tokio::time::timeout(patience, answer).await.map_err(|_| {
        let (name, seconds) = (clip(name), patience.as_secs());
        Status::deadline_exceeded(format!("switch `{name}` has not answered within {seconds} s; try again"))
    })?;
    answer.map_err(|_| {
        let name = clip(name);
        Status::unavailable(format!(
            "the stream of switch `{name}` ended, or somebody else asked it, before it answered; try again"
        ))
    })
}

pub(crate) fn parts(report: &Report) -> Parts {
    let exact = [("actions", report.actions), ("local names", report.local), ("valid names", report.valid)];
    let exact = exact.into_iter().map(|(part, held)| (part.to_owned(), held));
    let fib = report.shards.iter().map(|part| {
        (format!("fib {}: {}", report.table, part.id), Held { version: part.version, digest: part.digest })
    });
    exact.chain(fib).collect()
}

/// Every part at a version that both sides have had; none if one has no such version.
pub(crate) fn compare(before: &Parts, theirs: &Parts, after: &Parts) -> Option<Vec<VerifiedPart>> {
    let compared = |(part, got): (&String, &Held)| {
        let same = |ours: &Parts| {
            ours.get(part)
                .filter(|ours| ours.version == got.version || mistaken(Mistake::VerifiedAtAnyVersion))
                .copied()
        };
        let expected = same(before).or_else(|| same(after))?;
        Some(VerifiedPart {
            part: part.clone(),
            version: got.version,
            expected_digest: expected.digest,
            digest: got.digest,
        })
    };
    let has_all = |ours: &Parts| ours.len() == theirs.len() && ours.keys().eq(theirs.keys());
    if !has_all(before) && !has_all(after) {
        return None;
    }
    theirs.iter().map(compared).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(parts: &[(&str, u64, u64)]) -> Parts {
        parts.iter().map(|&(part, version, digest)| (part.to_owned(), Held { version, digest })).collect()
    }

    #[test]
    fn parts_are_compared_at_a_version_of_both() {
        let (before, after) = (held(&[("a", 1, 10), ("b", 5, 50)]), held(&[("a", 2, 20), ("b", 5, 50)]));
        for (theirs, equal) in [
            (held(&[("a", 1, 10), ("b", 5, 50)]), [true, true]),
            (held(&[("a", 2, 20), ("b", 5, 51)]), [true, false]),
            (held(&[("a", 1, 20), ("b", 5, 50)]), [false, true]),
        ] {
            let parts = compare(&before, &theirs, &after).expect("both have had these versions");
            assert_eq!(parts.iter().map(|part| part.digest == part.expected_digest).collect::<Vec<_>>(), equal);
        }
        for theirs in [held(&[("a", 3, 30), ("b", 5, 50)]), held(&[("a", 1, 10)]), held(&[("a", 1, 10), ("c", 5, 50)])]
        {
            assert_eq!(compare(&before, &theirs, &after), None, "{theirs:?}");
        }
    }
}
