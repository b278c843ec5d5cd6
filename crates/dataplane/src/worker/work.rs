//! The working memory of one burst, from its reception to its departure.

use super::Fate;
use super::checking::Sources;
use crate::counters::DropReason;
use crate::flow::Tracking;
use crate::parse::Names;
use crate::plane::Plane;
use crate::tap::Seen;
use arc_swap::Guard;
use fib::designs;
use lookup::base::marked::Searches;
use lookup::hash::Digest;
use netio::{BURST, Burst};
use std::sync::Arc;

pub(super) struct Work<T> {
    pub(super) burst: Burst,
    /// The port that it came from.
    pub(super) entry: usize,
    pub(super) from_trunk: bool,
    /// Whether its frames waited for this process: they are forwarded, and what they say was so when they came.
    pub(super) has_waited: bool,
    /// Whether its frames are copies of one to everybody.
    pub(super) is_copied: bool,
    /// See [`Shared::epoch`](crate::plane::Shared::epoch), before the plane was loaded.
    pub(super) epoch: u32,
    /// The plane that it is forwarded by. None while there is no burst.
    pub(super) plane: Option<Guard<Arc<Plane<T>>>>,
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

impl<T> Work<T> {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self {
            burst: Burst::new(),
            entry: 0,
            from_trunk: false,
            has_waited: false,
            is_copied: false,
            epoch: 0,
            plane: None,
            seen: Seen::default(),
            sources: Sources::default(),
            tracking: Tracking::default(),
            names: Names::default(),
            digests: [Digest(0); BURST],
            searches: Searches::default(),
            values: [0; BURST],
            fates: [Fate::Drop(DropReason::Runt); BURST],
            owners: [0; BURST],
        })
    }

    /// The names, as designs look them up.
    pub(super) fn keys(&self) -> designs::Burst<'_> {
        designs::Burst { digests: &self.digests[..self.names.len()], names: &self.names }
    }
}
