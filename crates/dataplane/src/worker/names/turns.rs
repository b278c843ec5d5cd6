//! The fate of frames that cannot go on by their own way: they take the alternate, or turn.
//!
//! ```text
//!  S: own ways down ─► alternate, marked DETOUR; also back to where it came from   ─┐
//!  N: came by an own way, marked DETOUR ─► another way, marked TURNED               ├► as in `fib::topology::routes`
//!                                       └► without one: the alternate               ─┘
//! ```
//! A frame takes one detour. While it comes by the own way of the switch that gets it, it goes away from its destination; after that
//! each switch is nearer. So it does not circle, whatever has failed, if tables agree. If not, the hop limit ends it.

use super::{Exit, Names};
use crate::counters::DropReason;
use crate::shim;
use crate::worker::rules::Rules;
use crate::worker::work::Work;

impl<R: Rules> Names<R> {
    /// Where the frame with the `i`th name goes that came by its own way, or from the switch that it leads to; of several ways its flow
    /// takes this one. If its sender has lost its own ways, by another, or else by the alternate. In tables that do not agree yet a
    /// frame may come back, too: that one is dropped.
    #[cold]
    pub(super) fn turn(
        &self,
        work: &Work,
        entry: usize,
        spread: Option<(u16, u64)>,
        i: usize,
    ) -> Result<Exit, DropReason> {
        if !R::turns(flags_of(work, i)) {
            return Err(DropReason::InputPort);
        }
        if let Some(exit) = spread.and_then(|(spread, flow)| self.leads.other_trunk_of(spread, flow, entry)) {
            return Ok(Exit::Marked(exit, shim::TURNED));
        }
        // The switch that gets it there may have to turn it as well, so it is not marked.
        let alternate = self.leads.alternate_of(work.values[i]);
        let exit = alternate.filter(|exit| !self.leads.are_parallel(entry, *exit));
        exit.map(|exit| Exit::Marked(exit, 0)).ok_or(DropReason::InputPort)
    }

    /// Where the frame with the `i`th name goes while its own ways are down: by the alternate, once. That may be where it came from,
    /// if the neighbour there has this switch among its ways: it turns the frame.
    #[cold]
    pub(super) fn detour(
        &self,
        work: &Work,
        entry: Option<usize>,
        alternate: u8,
        own: Option<u8>,
        i: usize,
    ) -> Result<Exit, DropReason> {
        let has_shim = work.from_trunk && entry.is_some();
        if !has_shim || flags_of(work, i) & shim::DETOUR == 0 {
            return Ok(Exit::Marked(alternate, shim::DETOUR));
        }
        let own = own.ok_or(DropReason::NoPort)?;
        match entry {
            // A link that is down in the other direction.
            Some(entry) if self.leads.are_parallel(entry, own) => self.turn(work, entry, None, i),
            _ => Ok(Exit::Marked(own, 0)),
        }
    }
}

/// The [`shim::flags`] of the frame with the `i`th name, which came from a trunk.
fn flags_of(work: &Work, i: usize) -> u8 {
    shim::flags(work.burst[usize::from(work.owners[i])].frame())
}
