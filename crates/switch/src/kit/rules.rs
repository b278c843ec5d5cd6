//! Wrong rules for workers, of which a simulation makes one at a time.

use dataplane::worker::rules::{Correct, Rules};
use std::cell::Cell;

/// A wrong decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// Frames take the alternate of a way that is up.
    AlternateWhileUp,
    /// Frames of a way that is down do not take its alternate.
    AlternateNotTaken,
    /// Frames take a way that is down.
    DownWayTaken,
    /// Frames on a detour do not turn, and are dropped where they came from.
    WayOfEntryTaken,
    /// Frames that go in a circle are sent on.
    CirclesNotEnded,
    /// A frame to a host is sent twice.
    SentTwice,
}

thread_local! {
    static MISTAKE: Cell<Option<Mistake>> = const { Cell::new(None) };
}

/// The mistake that is made in this thread, from now on.
pub fn set_mistake(mistake: Option<Mistake>) {
    MISTAKE.set(mistake);
}

pub(super) fn is_made(mistake: Mistake) -> bool {
    MISTAKE.get() == Some(mistake)
}

/// The correct rules, but for the mistake of this thread.
pub(super) struct Mistaken;

impl Rules for Mistaken {
    fn may_go_back() -> bool {
        is_made(Mistake::CirclesNotEnded) || Correct::may_go_back()
    }

    fn count_hop(frame: &mut [u8]) -> bool {
        is_made(Mistake::CirclesNotEnded) || Correct::count_hop(frame)
    }

    fn turns(flags: u8) -> bool {
        !is_made(Mistake::WayOfEntryTaken) && Correct::turns(flags)
    }

    fn takes_alternate(own_is_up: bool, alternate_is_up: bool) -> bool {
        let is_due = Correct::takes_alternate(own_is_up && !is_made(Mistake::AlternateWhileUp), alternate_is_up);
        is_due && !is_made(Mistake::AlternateNotTaken)
    }

    fn spreads_over(is_up: bool) -> bool {
        is_made(Mistake::DownWayTaken) || Correct::spreads_over(is_up)
    }
}
