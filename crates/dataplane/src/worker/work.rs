//! The working memory of one burst, from its reception to its departure.

use super::check::Sources;
use crate::counters::DropReason;
use crate::flow::Tracking;
use crate::parse::Names;
use crate::tap::Seen;
use fib::designs;
use lookup::base::marked::Searches;
use lookup::hash::Digest;
use netio::{BURST, Burst};

/// The worker's decision on a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Sends it out of the port with this index.
    Forward(u8),
    /// Sends it out of the trunk with this index, with these [`shim::flags`](crate::shim::flags) beside those that it has.
    Marked(u8, u8),
    /// Sends it, to an unknown name, out of the port with this index.
    Alien(u8),
    /// Sends it back out of the port it came from, as an answer.
    Answer,
    /// The keeper of trunks has its contents, or it has no receivers.
    Hello,
    /// It is a broadcast or multicast: copies of it are made.
    Copy,
    Drop(DropReason),
}

/// The kind of a frame before anything is looked up.
pub(super) enum Parsed {
    /// It has a name.
    Name,
    /// It was turned into an answer.
    Answer,
    /// See [`Fate::Hello`].
    Hello,
    /// See [`Fate::Copy`].
    Copy,
}

/// See the module.
pub(super) struct Work {
    pub(super) burst: Burst,
    /// The port that it came from.
    pub(super) entry: usize,
    pub(super) from_trunk: bool,
    /// Whether its frames waited for this process: they are forwarded, and what they say held when they came.
    pub(super) has_waited: bool,
    /// Whether its frames are copies of a broadcast or multicast.
    pub(super) is_copied: bool,
    /// See [`Shared::epoch`](crate::plane::Shared::epoch), before the plane was loaded.
    pub(super) epoch: u32,
    /// For a burst from outside, the frames that are addressed to the gateway, as a bit each.
    pub(super) to_us: Option<u32>,
    /// Frames from which the gateway took the shim, a bit each.
    pub(super) bare: u32,
    /// The frames as they came, if there is a tap at the port.
    pub(super) seen: Seen,
    pub(super) sources: Sources,
    pub(super) tracking: Tracking,
    pub(super) names: Names,
    pub(super) digests: [Digest; BURST],
    /// The searches for the names among the valid ones.
    pub(super) searches: Searches,
    pub(super) values: [u64; BURST],
    pub(super) fates: [Fate; BURST],
    /// The packet of the burst that a name belongs to.
    pub(super) owners: [u8; BURST],
}

impl Default for Work {
    fn default() -> Self {
        Self {
            burst: Burst::new(),
            entry: 0,
            from_trunk: false,
            has_waited: false,
            is_copied: false,
            epoch: 0,
            to_us: None,
            bare: 0,
            seen: Seen::default(),
            sources: Sources::default(),
            tracking: Tracking::default(),
            names: Names::default(),
            digests: [Digest(0); BURST],
            searches: Searches::default(),
            values: [0; BURST],
            fates: [Fate::Drop(DropReason::Runt); BURST],
            owners: [0; BURST],
        }
    }
}

impl Work {
    /// The names, as designs look them up.
    pub(super) fn keys(&self) -> designs::Burst<'_> {
        designs::Burst { digests: &self.digests[..self.names.len()], names: &self.names }
    }
}
