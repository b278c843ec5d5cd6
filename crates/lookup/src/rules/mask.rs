//! The bits of a flow that a table hashes.

use super::rule::{Flow, words};

/// The first bits of each field of a flow: those that all flows of a rule share, or those that a table hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mask {
    /// Bits of the source address.
    pub source: u8,
    /// Bits of the destination address.
    pub destination: u8,
    /// Bits of the source port.
    pub source_port: u8,
    /// Bits of the destination port.
    pub destination_port: u8,
    /// Whether the protocol is among them.
    pub protocol: bool,
}

impl Mask {
    /// Bits in all.
    pub fn n_bits(self) -> u32 {
        let fields = [self.source, self.destination, self.source_port, self.destination_port];
        fields.map(u32::from).iter().sum::<u32>() + 8 * u32::from(self.protocol)
    }

    /// Whether `rule` shares all bits of this mask, so that a table with it can hold the rule.
    pub(super) fn is_in(self, rule: Self) -> bool {
        self.source <= rule.source
            && self.destination <= rule.destination
            && self.source_port <= rule.source_port
            && self.destination_port <= rule.destination_port
            && self.protocol <= rule.protocol
    }

    /// The bits as a flow.
    pub(super) fn flow<const W: usize>(self) -> Flow<W> {
        let address = |len: u8| u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
        let port = |len: u8| u64::from(u16::MAX.checked_shl(16 - u32::from(len)).unwrap_or(0));
        let protocol = if self.protocol { 0xFF } else { 0 };
        Flow {
            addresses: words([self.source, self.destination].map(address)),
            rest: port(self.source_port) | port(self.destination_port) << 16 | protocol << 32,
        }
    }

    /// The four lengths and the flag, in five bytes.
    pub(super) fn bytes(self) -> [u8; 5] {
        [self.source, self.destination, self.source_port, self.destination_port, self.protocol.into()]
    }

    /// The mask of its bytes; none if a field has fewer bits.
    pub(super) fn of_bytes<const W: usize>(bytes: [u8; 5]) -> Option<Self> {
        let [source, destination, source_port, destination_port, protocol] = bytes;
        let most = if W == 1 { 32 } else { 128 };
        let fits = source.max(destination) <= most && source_port.max(destination_port) <= 16 && protocol <= 1;
        fits.then_some(Self { source, destination, source_port, destination_port, protocol: protocol == 1 })
    }
}
