//! The moments at which a process is killed: before or after the nth time that it takes a step.

use api::crash;
use std::fmt::{self, Display, Formatter};

/// One moment.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Crash {
    pub(crate) step: &'static str,
    pub(crate) before: bool,
    pub(crate) nth: u32,
    pub(crate) of: Of,
}

/// Which process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Of {
    Controller,
    Switch,
    Backup,
    Restore,
    Repair,
    Pki,
}

impl Display for Crash {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let side = if self.before { "before" } else { "after" };
        write!(f, "{side}:{}:{}", self.step, self.nth)
    }
}

/// Number of times that a process of a round takes a step, at least in most rounds.
fn times(of: Of, step: &str) -> u32 {
    match (of, step) {
        (Of::Controller, "sqlite.write") => 40,
        (
            Of::Controller,
            "log.record.write" | "log.record.sync" | "sqlite.commit" | "sqlite.seal" | "audit.append" | "writer.answer"
            | "request.answer" | "session.send" | "stream.send",
        ) => 24,
        (Of::Controller, "writer.push" | "session.acknowledge") => 12,
        (Of::Controller, "log.header.write" | "log.header.sync" | "log.grow.sync" | "sqlite.checkpoint") => 2,
        (Of::Switch, "agent.apply") => 12,
        (Of::Switch, "agent.acknowledge" | "image.write") => 8,
        (_, "store.remove") => 4,
        (Of::Backup | Of::Restore | Of::Repair, "sqlite.write") => 16,
        (Of::Backup | Of::Restore | Of::Repair, "copy.remove" | "restore.rename") => 3,
        (
            Of::Backup | Of::Restore | Of::Repair,
            "sqlite.seal" | "sqlite.commit" | "sqlite.checkpoint" | "log.header.write",
        ) => 2,
        (Of::Pki, _) => 5,
        _ => 1,
    }
}

/// All moments, those of one process apart from each other.
pub(crate) fn all() -> Vec<Crash> {
    let copies = |step: &&&'static str| !step.starts_with("restore.");
    let is_of_store = |step: &&&str| ["store.", "log.", "sqlite."].iter().any(|start| step.starts_with(start));
    let of_store: Vec<_> = crash::CONTROLLER.iter().filter(is_of_store).collect();
    let steps = crash::CONTROLLER.iter().map(|step| (Of::Controller, step));
    let steps = steps.chain(crash::SWITCH.iter().map(|step| (Of::Switch, step)));
    let steps = steps.chain(crash::COPY.iter().filter(copies).chain(of_store.clone()).map(|step| (Of::Backup, step)));
    let steps = steps.chain(crash::COPY.iter().filter(copies).chain(of_store.clone()).map(|step| (Of::Repair, step)));
    let steps = steps.chain(crash::COPY.iter().chain(of_store).map(|step| (Of::Restore, step)));
    let steps = steps.chain(crash::PKI.iter().map(|step| (Of::Pki, step)));
    let mut all: Vec<Crash> = Vec::new();
    for (of, step) in steps {
        for nth in 1..=times(of, step) {
            all.extend([true, false].map(|before| Crash { step, before, nth, of }));
        }
    }
    // A stride that has no divisor in common with their number leaves none out.
    let stride = (all.len() * 5 / 8..).find(|stride| gcd(*stride, all.len()) == 1).unwrap();
    (0..all.len()).map(|i| all[i * stride % all.len()].clone()).collect()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
