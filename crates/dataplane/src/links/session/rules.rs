//! The rules of a session.

/// The rules that a trunk's state follows from. Tests and simulations leave some out, and must notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// A link that carries frames one way only is down.
    BothWays,
    /// With two others at the port it is down.
    OneNeighbour,
    /// A neighbour that is no longer heard is gone.
    Expires,
    /// A link whose neighbour is gone is down.
    GoneIsDown,
    /// A link that was never up is not down when its neighbour is gone.
    NeverUpIsNotDown,
    /// A link whose neighbour sends hellos but never heard us is also down.
    UnheardIsDown,
    /// The neighbour first has the time to hear us.
    UnheardWaits,
    /// Such a link stays down until it was up, even if its neighbour falls silent.
    UnheardStays,
    /// Without carrier it is down at once.
    CarrierCounts,
    /// A switch that hears itself is no neighbour.
    NotItself,
    /// A link that fell is held down for a while.
    Held,
    /// With each fall it is held down for longer.
    HeldLonger,
    /// It is never held down for longer than [`LONGEST_HOLD`].
    NotForEver,
    /// A link whose neighbour restarts has not fallen.
    RestartIsExcused,
    /// It has fallen if the neighbour restarts again before it heard us.
    ExcusedOnce,
    /// A neighbour whose frames come is there, even if its hellos do not come.
    FramesCount,
    /// Frames alone show that for a limited time.
    FramesForAWhile,
}

#[cfg(any(test, feature = "kit"))]
mod kit {
    use super::Rule;
    use std::cell::Cell;

    thread_local! {
        static LEFT_OUT: Cell<Option<Rule>> = const { Cell::new(None) };
    }

    /// Leaves a rule out in this thread, from now on.
    pub fn leave_out(rule: Option<Rule>) {
        LEFT_OUT.set(rule);
    }

    pub(in crate::links::session) fn holds(rule: Rule) -> bool {
        LEFT_OUT.get() != Some(rule)
    }
}

#[cfg(any(test, feature = "kit"))]
pub(super) use kit::holds;
#[cfg(any(test, feature = "kit"))]
pub use kit::leave_out;

/// Whether sessions follow a rule: they follow all.
#[cfg(not(any(test, feature = "kit")))]
#[inline(always)]
pub(super) const fn holds(_: Rule) -> bool {
    true
}
