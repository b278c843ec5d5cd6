//! Keys and values of numbered flows, for each layout of a flow table.

use fibula_lookup::flow::{Inline, Layout, Split};

/// A layout whose tests name flows by number.
pub(crate) trait Named: Layout {
    /// The name of the layout.
    const LAYOUT: &'static str;

    /// The key of a flow. Numbers below 2^32 have different keys.
    fn key_of(name: u64) -> Self::Key;
    /// A value. Numbers that differ in the low 32 bits have different values.
    fn value_of(n: u64) -> Self::Value;
    /// Whether two values are equal.
    fn is_equal(a: &Self::Value, b: &Self::Value) -> bool;
}

impl<const K: usize, const V: usize> Named for Split<K, V> {
    const LAYOUT: &'static str = "split";

    fn key_of(name: u64) -> [u64; K] {
        std::array::from_fn(|word| if word + 1 == K { name } else { word as u64 })
    }

    fn value_of(n: u64) -> [u64; V] {
        std::array::from_fn(|word| n + word as u64)
    }

    fn is_equal(a: &[u64; V], b: &[u64; V]) -> bool {
        a == b
    }
}

impl<const K: usize, const V: usize> Named for Inline<K, V> {
    const LAYOUT: &'static str = "inline";

    fn key_of(name: u64) -> [u8; K] {
        *name.to_be_bytes().last_chunk().expect("up to 8 bytes")
    }

    fn value_of(n: u64) -> [u8; V] {
        *n.to_le_bytes().first_chunk().expect("up to 8 bytes")
    }

    fn is_equal(a: &[u8; V], b: &[u8; V]) -> bool {
        a == b
    }
}
