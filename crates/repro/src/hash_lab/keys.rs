//! Keys to hash: 4-byte IPv4 addresses, and the 13 bytes of an IPv4 5-tuple.

use std::collections::HashSet;

use crate::names::Random;

/// Distinct keys of one length, packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    bytes: Vec<u8>,
    key_bytes: usize,
}

impl Keys {
    /// Bytes per address.
    pub const ADDRESS: usize = 4;
    /// Bytes per 5-tuple: source, destination, protocol, both ports, as in names of the kind `5-tuple`.
    pub const TUPLE: usize = 13;

    /// An empty set of keys with `key_bytes` bytes each.
    /// # Panics
    /// When `key_bytes` is 0.
    pub fn new(key_bytes: usize) -> Self {
        assert!(key_bytes > 0, "keys have at least one byte");
        Self { bytes: Vec::new(), key_bytes }
    }

    /// The distinct keys among `keys`, in the order of first occurrence.
    pub fn distinct<const N: usize>(keys: impl IntoIterator<Item = [u8; N]>) -> Self {
        let (mut seen, mut distinct) = (HashSet::new(), Self::new(N));
        keys.into_iter().filter(|key| seen.insert(*key)).for_each(|key| distinct.push(&key));
        distinct
    }

    /// Appends a key.
    /// # Panics
    /// When its length differs.
    pub fn push(&mut self, key: &[u8]) {
        assert_eq!(key.len(), self.key_bytes, "all keys of a set have one length");
        self.bytes.extend_from_slice(key);
    }

    /// Bytes per key.
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.key_bytes
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.key_bytes)
    }

    /// The keys, concatenated.
    pub fn packed(&self) -> &[u8] {
        &self.bytes
    }

    /// `n` distinct synthetic addresses: clusters of up to a few hundred in a /24, as in real networks.
    /// # Panics
    /// When `n` is more than 2^28.
    pub fn addresses(n: usize, seed: u64) -> Self {
        assert!(n <= 1 << 28, "{n} addresses: at most 2^28");
        let mut random = Random::new(seed);
        let mut network = 0;
        Self::distinct_of(n, || {
            if random.below(64) == 0 {
                network = random.below(223 << 16) as u32 + (1 << 16);
            }
            (network << 8 | random.below(256) as u32).to_be_bytes()
        })
    }

    /// `n` distinct synthetic 5-tuples: clients in clusters, few servers, ephemeral ports in sequence, mostly TCP.
    /// # Panics
    /// When `n` is more than 2^28.
    pub fn tuples(n: usize, seed: u64) -> Self {
        let clients = Self::addresses(n / 8 + 1, seed);
        let servers = Self::addresses(n / 64 + 1, seed ^ 1);
        let mut random = Random::new(seed ^ 2);
        let mut port = 32_768u16;
        Self::distinct_of(n, || {
            let mut tuple = [0; Self::TUPLE];
            let pick = |keys: &Self, index: u64| keys.bytes[index as usize * 4..][..4].to_vec();
            tuple[..4].copy_from_slice(&pick(&clients, random.below(clients.len() as u64)));
            tuple[4..8].copy_from_slice(&pick(&servers, random.below(servers.len() as u64)));
            port = port.checked_add(random.below(3) as u16).unwrap_or(32_768);
            tuple[8] = if random.below(5) == 0 { 17 } else { 6 };
            tuple[9..11].copy_from_slice(&port.to_be_bytes());
            tuple[11..].copy_from_slice(&[443u16, 80, 53, 8080][random.below(4) as usize].to_be_bytes());
            tuple
        })
    }

    fn distinct_of<const N: usize>(n: usize, mut next: impl FnMut() -> [u8; N]) -> Self {
        let (mut seen, mut keys) = (HashSet::with_capacity(n), Self::new(N));
        while keys.len() < n {
            let key = next();
            if seen.insert(key) {
                keys.push(&key);
            }
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_different_and_follow_from_the_seed() {
        for (keys, again, others) in [
            (Keys::addresses(50_000, 1), Keys::addresses(50_000, 1), Keys::addresses(50_000, 2)),
            (Keys::tuples(50_000, 1), Keys::tuples(50_000, 1), Keys::tuples(50_000, 2)),
        ] {
            assert_eq!((keys.len(), keys.iter().collect::<HashSet<_>>().len()), (50_000, 50_000));
            assert!(keys == again && keys != others);
        }
        let distinct = Keys::distinct([[1, 2], [3, 4], [1, 2]]);
        assert_eq!(distinct.packed(), [1, 2, 3, 4]);
    }
}
