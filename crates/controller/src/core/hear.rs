//! Decides what follows from a message of a connected switch, other than its hello.

#![cfg_attr(not(feature = "kit"), allow(unreachable_pub, reason = "simulations drive it"))]

use crate::core::happened::Level;
use crate::core::session::{Line, decode};
use api::crash::step;
use api::v1::from_switch::Body;
use api::v1::{SaidLog, SeenTrunk, Subscriptions, Verified};
use fib::name::clip;
use std::time::{Duration, Instant};

/// Characters that are kept of a switch's reason.
const MAX_REASON: usize = 300;

/// What a message says, apart from what concerns the session alone.
#[allow(missing_docs, reason = "their names say it")]
#[derive(Debug)]
pub enum Heard {
    /// Nothing more.
    Nothing,
    /// It acknowledges messages. Says whether the parked switch has caught up with this and, now and then, how long the
    /// acknowledgement took.
    Acknowledged {
        is_caught_up: bool,
        took: Option<Duration>,
    },
    /// It asks for what it lacks, with a report that the session keeps. Not `is_first`: the owner has not taken the previous one yet.
    Asks {
        reason: String,
        is_first: bool,
    },
    /// It cannot hold what it was sent.
    Stuck {
        reason: String,
    },
    /// What it sees at its trunks.
    Trunks(Vec<SeenTrunk>),
    /// What its hosts want of multicasts.
    Subscriptions(Subscriptions),
    /// The answers to questions.
    Verified(Verified),
    Log(SaidLog),
    /// It sent its counters. Has events for the faults that begin, and whether the switch wants to know its standing.
    Counted {
        events: Vec<(Level, String)>,
        takes_standing: bool,
    },
}

/// Takes in a message of a switch.
/// # Errors
/// Why its stream ends.
pub fn hear<L: Line>(line: &L, body: Option<Body>, now: Instant) -> Result<Heard, String> {
    Ok(match body {
        Some(Body::Ack(ack)) => step("session.acknowledge", || {
            line.with(|session| {
                let is_caught_up = session.acknowledge(ack.sequence);
                Heard::Acknowledged { is_caught_up, took: session.said().acknowledged(ack.sequence, now) }
            })
        }),
        Some(Body::Resync(resync)) => {
            // It may be large, so this happens before anyone waits for the session.
            let report = decode(&resync.report).map_err(|reason| format!("its report is malformed: {reason}"))?;
            Heard::Asks { reason: clip(&resync.reason), is_first: line.with(|session| session.ask(report)) }
        }
        Some(Body::Verified(verified)) => Heard::Verified(verified),
        Some(Body::Log(said)) => Heard::Log(said),
        Some(Body::Trunks(report)) => Heard::Trunks(report.trunks),
        Some(Body::Memory(memory)) => {
            line.with(|session| session.said().set_memory(memory));
            Heard::Nothing
        }
        Some(Body::Counters(counters)) => line.with(|session| {
            let mut events = session.said().hear_servers(&counters.checked_servers);
            let begun = session.said().set_counters(counters, now);
            events.extend(begun.into_iter().map(|text| (Level::Warning, text)));
            Heard::Counted { events, takes_standing: session.said().takes_standing() }
        }),
        Some(Body::Subscriptions(subscriptions)) => Heard::Subscriptions(subscriptions),
        Some(Body::Refused(refused)) => {
            line.with(|session| session.set_stuck(refused.reason.chars().take(MAX_REASON).collect()));
            Heard::Stuck { reason: clip(&refused.reason) }
        }
        Some(Body::Hello(_)) | None => return Err("a second hello, or an empty message".to_owned()),
    })
}
