//! A flow, for people and programs that inspect it.

use super::packet::Tuple;
use super::state::State;

/// A flow as operators see it.
#[derive(Clone, Debug)]
pub struct FlowView {
    /// The addresses of its first packet as it came in.
    pub original: Tuple,
    /// The addresses of answers as they come in: the reverse of the first packet's, unless the flow is translated.
    pub reply: Tuple,
    /// Its state.
    pub state: State,
    /// Packets of each direction.
    pub packets: [u64; 2],
    /// Bytes of each direction, IP headers included.
    pub bytes: [u64; 2],
    /// Time since its first packet.
    pub age_s: u64,
    /// Seconds until it ends if no packet comes.
    pub remaining_s: u64,
}
