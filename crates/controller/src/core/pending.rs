//! Unknown switches that attach with a certificate of this network (or from this machine) and wait to be accepted.

use crate::core::Auto;
use crate::core::change::check_label;
use api::v1::PendingSwitch;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The most switches that are listed, and how long after their last attempt. They try again every few seconds.
const MAX_PENDING: usize = 1000;
const LISTED_FOR: Duration = Duration::from_secs(600);

/// Interval between log lines for a switch that is refused again for the same reason.
const REMIND: Duration = Duration::from_secs(600);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct PendingSwitches {
    auto: Auto,
    seen: BTreeMap<String, Pending>,
    /// Why switches were refused, as already logged.
    said: BTreeMap<String, (Instant, String)>,
}

/// Whether a switch is listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Noted {
    New,
    Again,
    /// It is not: listing is off, it has no name that a switch may have, or too many are listed.
    Not,
}

#[derive(Debug)]
struct Pending {
    version: String,
    from: String,
    first_ms: u64,
    last_ms: u64,
    seen: Instant,
}

impl PendingSwitches {
    /// Sets, once, what to do with them.
    pub(crate) fn set_auto(&mut self, auto: Auto) {
        self.auto = auto;
    }

    pub(crate) fn auto(&self) -> Auto {
        self.auto
    }

    /// Notes a switch that was refused because it is unknown.
    pub(crate) fn note(&mut self, name: &str, version: &str, from: String, now: Instant, now_ms: u64) -> Noted {
        if self.auto() == Auto::Off || check_label(name).is_err() {
            return Noted::Not;
        }
        let seen = &mut self.seen;
        if seen.len() >= MAX_PENDING {
            seen.retain(|_, switch| now.duration_since(switch.seen) < LISTED_FOR);
        }
        if seen.len() >= MAX_PENDING && !seen.contains_key(name) {
            return Noted::Not;
        }
        let known = seen.get(name).map(|switch| switch.first_ms);
        let (version, first_ms) = (version.to_owned(), known.unwrap_or(now_ms));
        seen.insert(name.to_owned(), Pending { version, from, first_ms, last_ms: now_ms, seen: now });
        if known.is_some() { Noted::Again } else { Noted::New }
    }

    /// Whether a switch of this name tried lately, and waits.
    pub(crate) fn waits(&self, name: &str, now: Instant) -> bool {
        self.seen.get(name).is_some_and(|switch| now.duration_since(switch.seen) < LISTED_FOR)
    }

    /// Whether to log that a switch is refused, and why: it tries again every few seconds.
    pub(crate) fn is_to_be_said(&mut self, name: &str, why: &str, now: Instant) -> bool {
        let said = &mut self.said;
        if said.get(name).is_some_and(|(at, before)| before == why && now.duration_since(*at) < REMIND) {
            return false;
        }
        said.retain(|_, (at, _)| now.duration_since(*at) < REMIND);
        if said.len() < MAX_PENDING {
            said.insert(name.to_owned(), (now, why.to_owned()));
        }
        true
    }

    /// The switches that wait: they tried lately, and have not been added since.
    pub(crate) fn list(&mut self, is_known: impl Fn(&str) -> bool, now: Instant) -> Vec<PendingSwitch> {
        let seen = &mut self.seen;
        seen.retain(|name, switch| now.duration_since(switch.seen) < LISTED_FOR && !is_known(name));
        let wire = |(name, switch): (&String, &Pending)| PendingSwitch {
            name: name.clone(),
            version: switch.version.clone(),
            address: switch.from.clone(),
            first_ms: switch.first_ms,
            last_ms: switch.last_ms,
        };
        seen.iter().map(wire).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn a_refusal_is_said_once_until_its_reason_changes_or_time_has_passed() {
        let (mut pending, start) = (PendingSwitches::default(), Instant::now());
        let mut said = |name: &str, why: &str, at| pending.is_to_be_said(name, why, at);
        assert!(said("s1", "unknown", start) && !said("s1", "unknown", start) && said("s2", "unknown", start));
        assert!(said("s1", "too late", start) && said("s1", "unknown", start));
        assert!(!said("s1", "unknown", start + REMIND / 2) && said("s1", "unknown", start + REMIND));
    }

    #[test]
    fn one_that_was_here_lately_waits() {
        let (mut pending, start) = (PendingSwitches::default(), Instant::now());
        pending.note("s1", "1", "10.0.0.9".to_owned(), start, 1);
        assert!(pending.waits("s1", start) && !pending.waits("s2", start));
        assert!(!pending.waits("s1", start + LISTED_FOR));
    }

    #[test]
    fn they_are_listed_until_they_are_known_or_gone_and_never_more_than_fit() {
        let pending = RefCell::new(PendingSwitches::default());
        let start = Instant::now();
        let note = |name: &str, at: Instant, ms| pending.borrow_mut().note(name, "1", "10.0.0.9".to_owned(), at, ms);
        assert_eq!((note("s8", start, 1), note("s8", start, 2)), (Noted::New, Noted::Again));
        assert!(pending.borrow_mut().list(|name| name == "s8", start).is_empty());
        let note = |name: &str, at, ms| note(name, at, ms) != Noted::Not;
        assert!(note("s9", start, 1000) && note("s9", start, 2000) && note("s10", start, 3000));
        assert!(!note("no name", start, 0) && !note("", start, 0));
        let names = |known: &str, at| -> Vec<_> {
            pending
                .borrow_mut()
                .list(|name| name == known, at)
                .into_iter()
                .map(|p| (p.name, p.first_ms, p.last_ms))
                .collect()
        };
        assert_eq!(names("", start), [("s10".to_owned(), 3000, 3000), ("s9".to_owned(), 1000, 2000)]);
        assert_eq!(names("s10", start), [("s9".to_owned(), 1000, 2000)]);
        let later = start + LISTED_FOR / 2;
        for i in 0..2 * MAX_PENDING {
            let is_listed = note(&format!("made-up-{i}"), later, 0);
            assert_eq!(is_listed, i < MAX_PENDING - 1, "{i}");
        }
        assert!(note("s9", later, 4000), "one that is listed stays so");
        assert_eq!(names("", later + LISTED_FOR), []);
        assert!(note("s11", later + LISTED_FOR, 0));
        pending.borrow_mut().set_auto(Auto::Off);
        assert!(!note("s12", later, 0));
    }
}
