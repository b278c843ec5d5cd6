//! The flow stage: connection tracking, a load balancer and source NAT, between the ports and the names.
//!
//! ```text
//!  port ─► burst ─► flow stage ─► parse of names ─► lookup ─► act ─► ports of exit
//!                     │ drops: no rule, invalid, fragment, no server, no port, no room
//!                     └ new addresses, ports and destination MACs, before names are read
//! ```
//! | room | what |
//! |---|---|
//! | [`packet`] | from a frame to its flow |
//! | `key` | from a flow to the table's key |
//! | [`state`], [`tcp`] | states, and how long each lasts |
//! | [`rules`] | which flows may begin |
//! | [`balance`] | virtual addresses and their servers |
//! | [`nat`] | addresses and ports of ours |
//! | [`rewrite`] | addresses and ports in packets, checksums |
//! | [`stage`] | a burst, from the lookup to the last byte |
//! | [`export`] | flows that ended |
//! | [`config`] | all of it in `switch.toml` |
//! | [`control`] | what others than the workers do with it |
//!
//! Flows begin where a rule accepts their first packet; packets of flows that are there pass; everything else of IP is
//! dropped. See `docs/how-to/filter-balance-translate.md` for use, and
//! `docs/decisions/0008-flow-stage.md` for why it is built like this.

pub mod balance;
pub mod config;
pub mod control;
mod counters;
pub mod export;
mod key;
pub mod nat;
pub mod packet;
pub mod rewrite;
pub mod rules;
pub mod stage;
pub mod state;
pub mod tcp;
#[cfg(test)]
mod tests;

pub use control::Flows;
pub use counters::FlowCounts;
pub use stage::{FlowView, Stage};
pub(crate) use stage::{Route, Tracking};

use crate::plane::Mac;
use balance::{Balancer, Server, ServerError};
use packet::Endpoint;

/// A virtual address, by its number in the order of the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct VirtualId(pub u16);

/// A virtual address and its servers at the start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Virtual {
    /// Where clients connect to.
    pub endpoint: Endpoint,
    /// TCP or UDP.
    pub protocol: u8,
    /// What the address is to neighbours that ask for it.
    pub mac: Mac,
    /// In the order of the configuration.
    pub servers: Vec<Server>,
}

impl Virtual {
    /// Its servers, none with flows.
    /// # Errors
    /// [`ServerError`]
    pub fn balancer(&self) -> Result<Balancer, ServerError> {
        Balancer::new(self.endpoint.address, &self.servers)
    }
}

/// How the stage works.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Which flows may begin.
    pub rules: rules::Rules,
    /// How long each state lasts.
    pub timeouts: state::Timeouts,
    /// Virtual addresses.
    pub virtuals: Vec<Virtual>,
    /// Source NAT, if any.
    pub nat: Option<nat::NatSettings>,
    /// Flows at most, of one stage.
    pub max_flows: u32,
    /// Whether a TCP connection that was there before us may be taken up in the middle, where a rule accepts it.
    pub pick_up: bool,
    /// Whether flows that end are kept for [`Stage::take_ended`].
    pub export: bool,
}

impl Settings {
    /// Whether all packets of a flow are between the same two MAC addresses, so that the worker of one sees all.
    pub fn is_plain(&self) -> bool {
        self.virtuals.is_empty() && self.nat.is_none()
    }
}
