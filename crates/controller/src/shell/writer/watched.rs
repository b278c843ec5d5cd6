//! What a simulation sees of a writer, and where.

use super::Writer;
use crate::core::change::State;
use crate::shell::session::Session;
use crate::shell::shared::Shared;
use api::seam::Moment;
use std::cell::RefCell;
use std::sync::Arc;

/// Distinguishes streams that live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamId(usize);

impl StreamId {
    pub(crate) fn of(session: &Arc<Session>) -> StreamId {
        StreamId(Arc::as_ptr(session).addr())
    }
}

/// What can be seen of a controller at a moment.
#[expect(missing_debug_implementations, reason = "a view of everything")]
pub struct Sight<'a> {
    /// The network and its hosts, in memory.
    pub state: &'a State,
    shared: &'a Shared,
}

impl<'a> Sight<'a> {
    pub(crate) fn of(writer: &'a Writer) -> Sight<'a> {
        Sight { state: &writer.state, shared: &writer.shared }
    }

    /// The streams whose switches the status calls in step.
    pub fn in_step(&self) -> Vec<StreamId> {
        let in_step = self.shared.connected().into_iter().filter(|switch| switch.in_step);
        in_step.filter_map(|switch| self.shared.session(switch.node)).map(|session| StreamId::of(&session)).collect()
    }
}

type Watch = Box<dyn FnMut(Moment, Sight<'_>)>;

thread_local! {
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// Has all writers of this thread tell where they are. What is told may unwind, as if the process ended there; then it is
/// told nothing more.
pub fn watch(watch: Option<Watch>) {
    WATCH.set(watch);
}

pub(super) fn pass(moment: Moment, writer: &Writer) {
    if let Some(mut watch) = WATCH.take() {
        watch(moment, Sight::of(writer));
        WATCH.set(Some(watch));
    }
}
