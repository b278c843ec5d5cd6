//! Compares what a switch serves with what the controller says: digests that the switch computes again from its memory.
//!
//! The network changes meanwhile. So the controller's digests are read before and after the switch computes its own, and
//! a part is compared at a version that both sides have had. Parts that have no such version are asked for again. A
//! version means something only once the switch has all of the controller's answer to its report: before, it may be a version
//! of changes that were lost when the controller's store was set back.

#[cfg(feature = "kit")]
use crate::core::session::{Session, decode};
use api::seam::{Mistake, mistaken};
use api::v1::VerifiedPart;
#[cfg(feature = "kit")]
use api::v1::{ToSwitch, Verified};
use fib::messages::{Held, Report};
use std::collections::BTreeMap;

/// Versions and digests by part.
pub(crate) type Parts = BTreeMap<String, Held>;

/// The parts that a report is of.
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

/// A verification that has begun.
#[cfg(feature = "kit")]
#[derive(Debug)]
pub struct Verifying {
    /// What the switch was to have then.
    before: Parts,
    /// The number of the question.
    number: u64,
}

/// The result of a verification.
#[cfg(feature = "kit")]
#[derive(Debug)]
pub enum Verdict {
    /// The switch has what it should.
    Same,
    /// This part differs.
    Differs(String),
    /// Too much changed meanwhile: the question has to be repeated.
    Open,
}

#[cfg(feature = "kit")]
impl Verifying {
    /// Begins to verify a switch, which should have this now, with a question of this number. None while it lacks the answer to its
    /// report.
    pub fn begin(session: &mut Session, held: &Report, number: u64) -> Option<Verifying> {
        let asks = session.is_reconciled() && session.ask_now(ToSwitch { verify: number, ..ToSwitch::default() });
        asks.then(|| Verifying { before: parts(held), number })
    }

    /// The result, with an answer of the switch, which should have this by now. None: it is the answer to another question.
    pub fn verdict(&self, answer: &Verified, after: Option<&Report>) -> Option<Verdict> {
        if answer.verify != self.number {
            return None;
        }
        if !answer.damage.is_empty() {
            return Some(Verdict::Differs(answer.damage.join("; ")));
        }
        let Ok(theirs) = decode(&answer.report) else {
            return Some(Verdict::Differs("a report that cannot be read".to_owned()));
        };
        let compared = after.and_then(|after| compare(&self.before, &parts(&theirs), &parts(after)));
        Some(compared.map_or(Verdict::Open, |parts| {
            match parts.into_iter().find(|part| part.digest != part.expected_digest) {
                Some(part) => Verdict::Differs(part.part),
                None => Verdict::Same,
            }
        }))
    }
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
