//! Sessions of a driver with one thread: simulations, and tests of the core.

#![cfg_attr(not(feature = "kit"), allow(unreachable_pub, reason = "simulations drive it"))]

#[cfg(feature = "kit")]
use crate::core::session::Next;
use crate::core::session::{Line, Session};
#[cfg(feature = "kit")]
use fib::topology::NodeId;
use std::cell::RefCell;
use std::rc::Rc;

/// The controller's end of the stream of a switch.
#[derive(Clone, Debug)]
pub struct Stream(Rc<RefCell<Session>>);

impl Line for Stream {
    fn open(session: Session) -> Self {
        Stream(Rc::new(RefCell::new(session)))
    }

    fn with<R>(&self, change: impl FnOnce(&mut Session) -> R) -> R {
        change(&mut self.0.borrow_mut())
    }

    fn id(&self) -> usize {
        Rc::as_ptr(&self.0).addr()
    }
}

#[cfg(feature = "kit")]
impl Stream {
    /// Distinguishes live streams.
    pub fn id(&self) -> usize {
        Line::id(self)
    }

    /// The switch.
    pub fn node(&self) -> NodeId {
        self.with(|session| session.node())
    }

    /// The last change all of whose messages are acknowledged; 0: none.
    pub fn acked_change(&self) -> u64 {
        self.with(|session| session.acked_change())
    }

    /// Takes what the transport is to send next.
    pub fn take(&self) -> Next {
        self.with(Session::take)
    }
}
