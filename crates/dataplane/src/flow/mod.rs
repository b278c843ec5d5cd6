//! The flow stage: connection tracking, a load balancer and source NAT. It runs before the names of frames are read.
//!
//! ```text
//!  port ─► burst ─► flow stage ─► parse of names ─► lookup ─► act ─► ports of exit
//!                     │ drops: no rule, invalid, fragment, no server, no port, table full
//!                     └ changes addresses, ports and destination MACs before names are read
//! ```
//! | module | contents |
//! |---|---|
//! | [`packet`] | finds the flow of a frame |
//! | `key` | makes the table's key of a flow |
//! | [`state`], [`tcp`] | states of a flow, and their timeouts |
//! | [`rules`] | which flows may begin |
//! | [`balance`] | virtual addresses and their servers |
//! | [`check`] | when a server is down |
//! | [`nat`] | outside addresses and ports |
//! | [`rewrite`] | addresses and ports in packets, checksums |
//! | [`stage`] | a burst, from the lookup to the last byte |
//! | [`export`] | the export of ended flows |
//! | [`config`] | the section `[flow]` of `switch.toml` |
//! | [`control`] | all that happens outside the workers |
//!
//! A flow begins when a rule accepts its first packet. Packets of known flows pass. All other IP packets are dropped.
//! `docs/how-to/filter-balance-translate.md` shows the use, `docs/decisions/0008-flow-stage.md` the reasons for the
//! design.

pub mod balance;
pub mod check;
pub mod config;
pub mod control;
mod counters;
mod course;
pub mod export;
mod key;
pub mod nat;
pub mod packet;
pub mod rewrite;
pub mod rules;
mod share;
pub mod stage;
pub mod state;
pub mod tcp;
#[cfg(test)]
mod tests;
mod view;

pub use control::Flows;
pub use counters::FlowCounts;
pub use stage::{Ends, Stage};
pub(crate) use stage::{Route, Tracking};
pub use view::FlowView;

use crate::mac::Mac;
use balance::Balancer;
use packet::Endpoint;

/// A virtual address, by its index in the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct VirtualId(pub u16);

/// A virtual address and its first servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Virtual {
    /// The address and port that clients connect to.
    pub endpoint: Endpoint,
    /// TCP or UDP.
    pub protocol: u8,
    /// The MAC address with which the switch answers for it.
    pub mac: Mac,
    /// Its servers, in the order of the configuration; none has flows.
    pub balancer: Balancer,
    /// How its servers are checked, if they are.
    pub check: Option<check::Check>,
}

/// The settings of the stage.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Which flows may begin.
    pub rules: rules::Rules,
    /// The timeout of each state.
    pub timeouts: state::Timeouts,
    /// Virtual addresses.
    pub virtuals: Vec<Virtual>,
    /// Source NAT, if any.
    pub nat: Option<nat::NatSettings>,
    /// The most flows of one stage.
    pub max_flows: u32,
    /// Whether a TCP connection that is older than the switch may be picked up in the middle, if a rule accepts it.
    pub pick_up: bool,
    /// Whether ended flows are kept for [`Stage::take_ended`].
    pub export: bool,
}

impl Settings {
    /// Whether all packets of a flow have the same two MAC addresses, so that one worker sees all of them.
    pub fn is_plain(&self) -> bool {
        self.virtuals.is_empty() && self.nat.is_none()
    }
}
