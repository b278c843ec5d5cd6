//! What a switch reports about itself, and answers, through its controller.

use api::v1::{Ask, Counters, MemoryUse, Said};
use std::pin::Pin;
use tokio::sync::mpsc;

/// What a switch reports about itself through its controller. A function that returns memory use implements it.
pub trait About: Send + Sync {
    /// Its memory use.
    fn memory(&self) -> MemoryUse;

    /// Its counters; none if it forwards nothing.
    fn counters(&self) -> Option<Counters> {
        None
    }

    /// Whether it answers requests of operators.
    fn answers(&self) -> bool {
        false
    }

    /// Answers an operator's request that came through the controller; none if it answers nothing.
    fn answer(&self, _switch: &str, _ask: Ask) -> Option<Answering> {
        None
    }
}

/// An answer in preparation: the messages in order.
pub type Answering = Pin<Box<dyn Future<Output = mpsc::Receiver<Said>> + Send>>;

impl<F: Fn() -> MemoryUse + Send + Sync> About for F {
    fn memory(&self) -> MemoryUse {
        self()
    }
}
