//! Keys of the flow table: 16 bytes for either version of IP, the same for both directions of a flow.
//!
//! ```text
//!  IPv4   word 0:  lower end, address and port (48 bits) | upper end, its lower 16 bits
//!         word 1:  upper end, its other 32 bits | protocol (8) | VLAN (12) | 0
//!  IPv6   word 0:  digest of both ends, protocol and VLAN
//!         word 1:  another digest of the same (63 bits) | 1
//! ```
//! An IPv4 key is the flow itself. An IPv6 key is 127 bits of a keyed hash, which cannot be predicted without the
//! secret. Two flows among 2^24 have the same key with a probability of 2^-80, so equal keys are taken for the same
//! flow.

use super::packet::{Endpoint, Tuple};
use lookup::hash::{Family, Hasher, SecretKey};

/// Words of a key.
pub(super) const WORDS: usize = 2;

/// Bytes of both ends, protocol and VLAN.
const LONG: usize = 40;

/// A key, and whether its packet goes from the upper end to the lower.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Key {
    pub(super) words: [u64; WORDS],
    pub(super) downwards: bool,
}

/// Makes keys.
pub(super) struct Keys([Hasher; 2]);

impl Keys {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| Hasher::new(Family::Wy, &SecretKey::random())))
    }

    #[inline]
    pub(super) fn key(&self, tuple: &Tuple) -> Key {
        if !tuple.source.address.is_v4() {
            return self.long(tuple);
        }
        let word = |end: Endpoint| (end.address.0 as u64 & 0xffff_ffff) << 16 | u64::from(end.port);
        Self::short(word(tuple.source), word(tuple.destination), tuple.protocol, tuple.vlan)
    }

    /// The key of an IPv4 flow, whose ends are address and port in 48 bits.
    #[inline]
    pub(super) fn short(source: u64, destination: u64, protocol: u8, vlan: u16) -> Key {
        let (lower, upper) = (source.min(destination), source.max(destination));
        let rest = u64::from(protocol) << 32 | u64::from(vlan) << 40;
        Key { words: [lower | upper << 48, upper >> 16 | rest], downwards: source > destination }
    }

    fn long(&self, tuple: &Tuple) -> Key {
        let downwards = tuple.source > tuple.destination;
        let (lower, upper) =
            if downwards { (tuple.destination, tuple.source) } else { (tuple.source, tuple.destination) };
        let mut bytes = [0; LONG];
        bytes[..16].copy_from_slice(&lower.address.0.to_be_bytes());
        bytes[16..32].copy_from_slice(&upper.address.0.to_be_bytes());
        bytes[32..34].copy_from_slice(&lower.port.to_be_bytes());
        bytes[34..36].copy_from_slice(&upper.port.to_be_bytes());
        bytes[36] = tuple.protocol;
        bytes[37..39].copy_from_slice(&tuple.vlan.to_be_bytes());
        let [first, second] = [0, 1].map(|i: usize| self.0[i].digest(&bytes).0);
        Key { words: [first, second | 1 << 63], downwards }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::packet::Address;
    use std::collections::HashMap;

    #[test]
    fn both_directions_have_one_key_and_no_other_flow_has_it() {
        let keys = Keys::new();
        let mut seen: HashMap<[u64; 2], [Tuple; 2]> = HashMap::new();
        let v4 = [1, 2, 0xffff_ffff].map(|host: u32| Address::v4(host.to_be_bytes()));
        let v6 = [1, 2, u128::MAX].map(Address);
        for addresses in [v4, v6] {
            for (a, b) in addresses.iter().flat_map(|&a| addresses.map(|b| (a, b))) {
                for (p, q) in [0u16, 1, 0xffff].iter().flat_map(|&p| [0u16, 1, 0xffff].map(|q| (p, q))) {
                    for (protocol, vlan) in [(6, 0), (17, 0), (6, 4095)] {
                        let (source, destination) =
                            (Endpoint { address: a, port: p }, Endpoint { address: b, port: q });
                        let tuple = Tuple { source, destination, protocol, vlan };
                        let (key, back) = (keys.key(&tuple), keys.key(&tuple.reversed()));
                        assert_eq!(key.words, back.words);
                        assert_eq!(key.downwards != back.downwards, source != destination);
                        let both = [tuple, tuple.reversed()];
                        let owner = *seen.entry(key.words).or_insert(both);
                        assert!(owner.contains(&tuple), "{tuple:?} and {owner:?}");
                    }
                }
            }
        }
        assert_eq!(seen.len(), 2 * 3 * (9 * 9 + 9) / 2);
    }
}
