//! Mistakes on purpose, which a simulation must notice. Only with the feature `kit`; the product makes none.

/// A wrong decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// A trunk is up though its neighbour does not hear it.
    OneWayIsUp,
    /// A trunk stays up though its neighbour is silent.
    UnheardIsUp,
    /// Frames take the alternate of a way that is up.
    AlternateWhileUp,
    /// Frames of a way that is down do not take its alternate.
    AlternateNotTaken,
    /// Frames take a way that is down.
    DownWayTaken,
    /// Frames on a detour go back by the way that they came by.
    WayOfEntryTaken,
    /// Frames that go in a circle are sent on.
    CirclesNotEnded,
    /// A frame to a host is sent twice.
    SentTwice,
}

#[cfg(feature = "kit")]
mod kit {
    use super::Mistake;
    use std::cell::Cell;

    thread_local! {
        static MISTAKE: Cell<Option<Mistake>> = const { Cell::new(None) };
    }

    /// The mistake that is made in this thread, from now on.
    pub fn set_mistake(mistake: Option<Mistake>) {
        MISTAKE.set(mistake);
    }

    /// Whether to make this mistake.
    pub(crate) fn mistaken(mistake: Mistake) -> bool {
        MISTAKE.get() == Some(mistake)
    }
}

#[cfg(feature = "kit")]
pub(crate) use kit::mistaken;
#[cfg(feature = "kit")]
pub use kit::set_mistake;

/// Whether to make this mistake: no.
#[cfg(not(feature = "kit"))]
#[inline(always)]
pub(crate) const fn mistaken(_: Mistake) -> bool {
    false
}
