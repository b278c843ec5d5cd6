//! The links of the list in which a [crowd](super::crowd) keeps the loose flows of a port.

use fib::action::PortId;

/// No flow.
pub(super) const NONE: u32 = u32::MAX;

/// The position of a flow among the loose flows of its port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Loose {
    pub(super) port: PortId,
    pub(super) is_in: bool,
    pub(super) before: u32,
    pub(super) after: u32,
}

impl Loose {
    /// The links of a flow that came in by a port, and is in no list yet.
    pub(super) fn new(port: PortId) -> Self {
        Self { port, is_in: false, before: NONE, after: NONE }
    }
}
