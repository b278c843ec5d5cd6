//! What runs did, added up.

use super::{Scenario, Violation};
use crate::random::mix64;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// A hash over all events and answers.
    pub trace: u64,
    /// Events.
    pub events: u64,
    /// Virtual milliseconds.
    pub millis: u64,
    /// Requests answered as done.
    pub answered: u64,
    /// Messages to switches.
    pub messages: u64,
    /// Answers of switches that were checked.
    pub checks: u64,
    /// Statements of the status that were checked: a switch is in step.
    pub claims: u64,
    /// Frames that were followed.
    pub frames: u64,
    /// Times that operators asked for another hash key.
    pub rekeys: u64,
    /// Switches that were verified while they ran.
    pub verified: u64,
    /// Times that a value of port mode got another meaning while cells could have it, at any switch.
    pub displaced: u64,
    /// Crashes by kind.
    pub crashes: BTreeMap<&'static str, u64>,
    /// Other faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Number of times that each point was passed at which a crash can be asked for.
    pub points: BTreeMap<&'static str, u64>,
}

impl Outcome {
    /// All passages of points.
    pub fn n_points(&self) -> u64 {
        self.points.values().sum()
    }

    pub(super) fn trace(&mut self, what: u64) {
        self.trace = mix64(self.trace ^ what);
    }

    fn add(&mut self, more: Outcome) {
        self.trace(more.trace);
        self.events += more.events;
        self.millis += more.millis;
        self.answered += more.answered;
        self.messages += more.messages;
        self.checks += more.checks;
        self.claims += more.claims;
        self.frames += more.frames;
        self.rekeys += more.rekeys;
        self.verified += more.verified;
        self.displaced += more.displaced;
        let by_kind =
            [(&mut self.crashes, more.crashes), (&mut self.faults, more.faults), (&mut self.points, more.points)];
        for (sum, more) in by_kind {
            more.into_iter().for_each(|(kind, n)| *sum.entry(kind).or_default() += n);
        }
    }
}

/// What many runs did.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Seeds.
    pub seeds: u64,
    /// Runs: of each seed one, and one for each crash that was asked for.
    pub runs: u64,
    /// The sums; its trace is that of all runs.
    pub sum: Outcome,
    /// What was found.
    pub findings: Vec<(Scenario, Violation)>,
}

impl Totals {
    /// Adds a run.
    pub fn add(&mut self, scenario: &Scenario, result: Result<Outcome, Violation>) {
        self.runs += 1;
        match result {
            Ok(outcome) => self.sum.add(outcome),
            Err(violation) => self.findings.push((scenario.clone(), violation)),
        }
    }

    /// Adds others.
    pub fn merge(&mut self, other: Totals) {
        self.seeds += other.seeds;
        self.runs += other.runs;
        self.sum.add(other.sum);
        self.findings.extend(other.findings);
    }

    /// One line of JSON: what [`Totals`] has, as numbers, with objects for what is counted by kind.
    pub fn json(&self, first_seed: u64) -> String {
        let counts = |counts: &BTreeMap<&'static str, u64>| {
            let items: Vec<String> = counts.iter().map(|(kind, n)| format!("{kind:?}:{n}")).collect();
            format!("{{{}}}", items.join(","))
        };
        let mut found: BTreeMap<&'static str, u64> = BTreeMap::new();
        self.findings.iter().for_each(|(_, violation)| *found.entry(violation.kind()).or_default() += 1);
        let Outcome {
            trace,
            events,
            millis,
            answered,
            messages,
            checks,
            claims,
            frames,
            rekeys,
            verified,
            displaced,
            ..
        } = self.sum;
        let mut line = format!(
            r#"{{"kind":"simulation","version":{:?},"first_seed":{first_seed},"seeds":{},"runs":{},"#,
            env!("CARGO_PKG_VERSION"),
            self.seeds,
            self.runs
        );
        let _ = write!(
            line,
            r#""events":{events},"virtual_seconds":{},"requests_answered":{answered},"messages":{messages},"checks":{checks},"claims":{claims},"frames":{frames},"rekeys":{rekeys},"verified":{verified},"displaced":{displaced},"#,
            millis / 1000
        );
        let (crashes, faults, points) = (&self.sum.crashes, &self.sum.faults, &self.sum.points);
        let _ = write!(
            line,
            r#""crashes":{},"faults":{},"points":{},"findings":{},"findings_by_kind":{},"trace":"{trace:016x}"}}"#,
            counts(crashes),
            counts(faults),
            counts(points),
            self.findings.len(),
            counts(&found)
        );
        line
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Outcome { trace, events, millis, answered, messages, checks, claims, frames, .. } = &self.sum;
        let Outcome { rekeys, verified, displaced, crashes, faults, points, .. } = &self.sum;
        let list = |counts: &BTreeMap<&'static str, u64>| {
            counts.iter().map(|(kind, n)| format!("{n} {kind}")).collect::<Vec<_>>().join(", ")
        };
        writeln!(f, "{} seeds, {} runs, {} findings", self.seeds, self.runs, self.findings.len())?;
        writeln!(
            f,
            "{events} events in {} virtual seconds, {answered} requests answered, {messages} messages",
            millis / 1000
        )?;
        writeln!(f, "checked: {checks} answers of switches, {claims} times in step, {frames} frames")?;
        writeln!(f, "asked for: {rekeys} other hash keys, {verified} verifications that were answered")?;
        writeln!(f, "values that got another meaning: {displaced}")?;
        writeln!(f, "crashes: {}", list(crashes))?;
        writeln!(f, "faults: {}", list(faults))?;
        writeln!(f, "points passed: {}", list(points))?;
        write!(f, "trace {trace:016x}")
    }
}
