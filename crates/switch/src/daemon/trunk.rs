//! A trunk, as a switch reports it.

use dataplane::links::{LinkState, Neighbour, Session};
use fib::action::PortId;
use std::time::{Duration, Instant};

/// A trunk, as it is reported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trunk {
    /// Its number.
    pub port: PortId,
    /// How it is.
    pub state: LinkState,
    /// The time of the last change of state.
    pub since: Instant,
    /// Whether frames avoid it, if they can.
    pub is_down: bool,
    /// Who is at the other end.
    pub neighbour: Option<Neighbour>,
    /// Where no switch says hello: who says in LLDP that it is there.
    pub device: Option<String>,
    /// Number of times in a row that it went down soon after it had come up, and how long it is held down therefore.
    pub falls: (u32, Duration),
}

impl Trunk {
    pub(crate) fn of(port: PortId, session: &Session) -> Self {
        let (state, since) = session.state();
        let neighbour = session.neighbour().cloned();
        Self { port, state, since, is_down: session.is_down(), neighbour, device: None, falls: session.falls() }
    }
}
