//! Mistakes on purpose, which a simulation must notice. Only with the feature `kit`; the product makes none.

/// A wrong decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// Any neighbour is an alternate, also one whose shortest path leads back.
    AnyAlternate,
    /// A link that is cut while another one is changes no table.
    SecondCutIgnored,
    /// A switch takes an action table of an earlier version for a new one.
    OldActionsTaken,
    /// A value gets another meaning at once, while cells have it with the former one.
    MeaningAtOnce,
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
