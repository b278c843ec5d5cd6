//! What a simulation sees of an owner, and where.

use super::Owner;
use crate::core::change::State;
use crate::core::session::Line;
use api::seam::Moment;
use std::cell::RefCell;

/// The visible state of a controller at a moment.
#[expect(missing_debug_implementations, reason = "a view of everything")]
pub struct Sight<'a> {
    /// The network and its hosts, in memory.
    pub state: &'a State,
    /// The streams whose switches the status calls in step.
    pub in_step: Vec<usize>,
}

impl<L: Line, T> Owner<L, T> {
    /// The visible state now.
    pub fn sight(&self) -> Sight<'_> {
        let all_made = self.progress.is_all_made();
        let is_in_step = |line: &&L| line.with(|session| session.is_in_step(!session.is_parked(), all_made));
        Sight { state: &self.state, in_step: self.lines.values().filter(is_in_step).map(Line::id).collect() }
    }
}

type Watch = Box<dyn FnMut(Moment, Sight<'_>)>;

thread_local! {
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// Has all owners of this thread report where they are. A report may unwind, as if the process ended there; after that there are
/// no more reports.
pub fn watch(watch: Option<Watch>) {
    WATCH.set(watch);
}

pub(super) fn pass<L: Line, T>(moment: Moment, owner: &Owner<L, T>) {
    if let Some(mut watch) = WATCH.take() {
        watch(moment, owner.sight());
        WATCH.set(Some(watch));
    }
}
