//! Switches that claim the same name.
//!
//! A process of a switch draws a number when it starts, and sends it. A process that replaces another looks like a restart. But a
//! process that speaks again after another has replaced it shows that both live. From then on the one that was there first
//! is served, and the other is refused for as long as the first is there.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The most names that are remembered, and how long after they were last claimed.
const MAX_NAMES: usize = 10_000;
const KEPT_FOR: Duration = Duration::from_secs(600);

/// What a process sent before it ended may be read this much later.
const LATE: Duration = Duration::from_secs(3);

/// A process that another controller serves, and that has been silent for this long, is gone.
const GONE_AFTER: Duration = Duration::from_secs(60);

/// A pair is reported for this long after the second process last tried. It tries again every few seconds.
const SAID_FOR: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct DuplicateNames {
    names: HashMap<String, Name>,
}

#[derive(Debug)]
struct Name {
    /// The process that is served.
    first: Process,
    /// The one before it, or the one that is refused.
    other: Option<Process>,
    /// When the other one spoke last, if both live.
    both: Option<Instant>,
}

/// A process that claims a name.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) number: u64,
    pub(crate) from: String,
    /// Whether it was served here: then it counts as present for as long as it is served.
    pub(crate) is_ours: bool,
    pub(crate) spoke: Instant,
}

/// Decides what to do with a process that claims a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Welcome {
    /// It is served.
    Yes,
    /// It is served, and another process, at this address, claims the same name.
    YesOfTwo(String),
    /// The one at this address was there first, and is served.
    No(String),
}

impl DuplicateNames {
    /// A process claims a name. `is_served`: this controller serves a switch of that name.
    pub(crate) fn hear(&mut self, name: &str, process: Process, is_served: impl FnOnce() -> bool) -> Welcome {
        // An earlier version sends no number.
        if process.number == 0 {
            return Welcome::Yes;
        }
        let now = process.spoke;
        let names = &mut self.names;
        if let Some(known) = names.get_mut(name) {
            return known.hear(process, is_served);
        }
        if names.len() >= MAX_NAMES {
            names.retain(|_, known| now.saturating_duration_since(known.first.spoke) < KEPT_FOR);
        }
        if names.len() < MAX_NAMES {
            names.insert(name.to_owned(), Name { first: process, other: None, both: None });
        }
        Welcome::Yes
    }

    /// A sentence for each name that two processes claim.
    pub(crate) fn troubles(&self, now: Instant) -> Vec<String> {
        let names = &self.names;
        let lately = |known: &Name| known.both.is_some_and(|at| now.saturating_duration_since(at) < SAID_FOR);
        let sentence =
            |(name, known): (&String, &Name)| Some(sentence(name, &known.first.from, &known.other.as_ref()?.from));
        let mut troubles: Vec<_> = names.iter().filter(|(_, known)| lately(known)).filter_map(sentence).collect();
        troubles.sort_unstable();
        troubles
    }
}

/// What is wrong, and what to do.
pub(crate) fn sentence(name: &str, first: &str, other: &str) -> String {
    format!(
        "two switches claim the name `{name}`: the one at {first} is served, the one at {other} is not; give one of them \
         another name, and a certificate for it"
    )
}

impl Name {
    fn hear(&mut self, process: Process, is_served: impl FnOnce() -> bool) -> Welcome {
        let now = process.spoke;
        if process.number == self.first.number {
            self.first = Process { is_ours: self.first.is_ours || process.is_ours, ..process };
            return Welcome::Yes;
        }
        if self.both.is_some() {
            let spoke_lately = !self.first.is_ours && now.saturating_duration_since(self.first.spoke) < GONE_AFTER;
            if spoke_lately || is_served() {
                (self.other, self.both) = (Some(process), Some(now));
                return Welcome::No(self.first.from.clone());
            }
            self.other = Some(std::mem::replace(&mut self.first, process));
            self.both = None;
            return Welcome::Yes;
        }
        match &mut self.other {
            Some(other) if other.number == process.number => {
                if now.saturating_duration_since(other.spoke) < LATE {
                    return Welcome::Yes;
                }
                let process = Process { is_ours: other.is_ours || process.is_ours, ..process };
                let second = std::mem::replace(&mut self.first, process);
                let from = second.from.clone();
                (self.other, self.both) = (Some(second), Some(now));
                Welcome::YesOfTwo(from)
            }
            other => {
                // What is known of the process before it counts from when another one replaced it.
                let before = std::mem::replace(&mut self.first, process);
                *other = Some(Process { spoke: now, ..before });
                Welcome::Yes
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: (u64, &str) = (1, "10.0.0.1");
    const B: (u64, &str) = (2, "10.0.0.2");

    struct Bench {
        duplicates: DuplicateNames,
        now: Instant,
    }

    impl Bench {
        fn new() -> Self {
            Self { duplicates: DuplicateNames::default(), now: Instant::now() }
        }

        fn hear(&mut self, (number, from): (u64, &str), is_served: bool, after_s: u64) -> Welcome {
            self.now += Duration::from_secs(after_s);
            let process = Process { number, from: from.to_owned(), is_ours: is_served, spoke: self.now };
            self.duplicates.hear("s1", process, || is_served)
        }

        fn n_troubles(&self) -> usize {
            self.duplicates.troubles(self.now).len()
        }
    }

    #[test]
    fn restarts_are_no_twins() {
        let mut bench = Bench::new();
        for number in 1..50 {
            for _ in 0..3 {
                assert_eq!(bench.hear((number, A.1), true, 1), Welcome::Yes);
            }
            // What the process before had sent is read late.
            assert_eq!(bench.hear((number - 1, A.1), true, 0), Welcome::Yes);
            assert_eq!(bench.n_troubles(), 0);
        }
    }

    #[test]
    fn of_two_that_speak_in_turn_the_first_is_served_until_it_is_gone() {
        let mut bench = Bench::new();
        assert_eq!(bench.hear(A, false, 0), Welcome::Yes);
        assert_eq!(bench.hear(B, true, 100), Welcome::Yes);
        assert_eq!(bench.hear(A, true, 1), Welcome::Yes, "it may be late");
        assert_eq!(bench.hear(A, true, 3), Welcome::YesOfTwo(B.1.to_owned()));
        for _ in 0..100 {
            assert_eq!(bench.hear(B, true, 5), Welcome::No(A.1.to_owned()));
        }
        let third = (3, B.1);
        assert_eq!(bench.hear(third, true, 0), Welcome::No(A.1.to_owned()), "the second one, started again");
        let said = bench.duplicates.troubles(bench.now).join("; ");
        assert!(said.contains("10.0.0.1 is served, the one at 10.0.0.2 is not"), "{said}");
        assert_eq!(bench.hear(B, false, 1), Welcome::Yes, "the first is gone");
        assert_eq!(bench.n_troubles(), 0);
        assert_eq!(bench.hear(A, true, 5), Welcome::YesOfTwo(B.1.to_owned()), "it was not");
        // It was served here before, so it is gone once it is not served, whatever it sent last.
        let mut bench = Bench::new();
        assert_eq!((bench.hear(A, true, 0), bench.hear(B, true, 0)), (Welcome::Yes, Welcome::Yes));
        assert_eq!(bench.hear(A, false, 5), Welcome::YesOfTwo(B.1.to_owned()));
        assert_eq!(bench.hear(B, false, 1), Welcome::Yes);
    }

    #[test]
    fn one_that_another_controller_serves_is_there_for_a_minute_after_it_spoke() {
        let mut bench = Bench::new();
        assert_eq!(bench.hear(A, false, 0), Welcome::Yes);
        assert_eq!(bench.hear(B, false, 1), Welcome::Yes);
        assert_eq!(bench.hear(A, false, 5), Welcome::YesOfTwo(B.1.to_owned()));
        assert_eq!(bench.hear(B, false, 50), Welcome::No(A.1.to_owned()));
        assert_eq!(bench.hear(B, false, 20), Welcome::Yes);
    }

    #[test]
    fn a_pair_is_told_of_as_long_as_it_lives_and_names_are_bounded() {
        let mut bench = Bench::new();
        for process in [A, B, A] {
            bench.hear(process, true, 10);
        }
        assert_eq!(bench.n_troubles(), 1);
        bench.now += SAID_FOR;
        assert_eq!(bench.n_troubles(), 0);
        for i in 0..2 * MAX_NAMES {
            let process = Process { number: 7, from: String::new(), is_ours: true, spoke: bench.now };
            assert_eq!(bench.duplicates.hear(&format!("made-up-{i}"), process, || true), Welcome::Yes);
        }
        assert_eq!(bench.duplicates.names.len(), MAX_NAMES);
        assert_eq!(bench.hear((0, B.1), false, 0), Welcome::Yes, "an earlier version");
    }
}
