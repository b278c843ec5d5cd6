//! The integers that index the edges and vertices of one shard: 16 bits for shards, 32 for the papers' sizes.
//! Half the width is half the cache that an update walks through.

/// An unsigned integer that indexes edges and vertices.
pub trait Index: Copy + Eq + Send + Sync + 'static {
    /// A degree and the XOR of the indices of the incident edges, added and XORed as one word.
    type Incidence: Copy + Default + Send;
    /// The highest index, which means "none": edges and vertices are fewer.
    const NONE: Self;

    /// Narrows an index that is known to fit.
    fn new(index: usize) -> Self;
    /// Widens.
    fn get(self) -> usize;
    /// One more edge at a vertex.
    fn attach(incidence: &mut Self::Incidence, edge: usize);
    /// One edge less.
    fn detach(incidence: &mut Self::Incidence, edge: usize);
    /// Edges at the vertex, modulo the width (exact, for edges are fewer than indices).
    fn degree(incidence: Self::Incidence) -> usize;
    /// The edge of a vertex of degree one.
    fn only_edge(incidence: Self::Incidence) -> usize;
}

macro_rules! index {
    ($int:ty, $wide:ty) => {
        impl Index for $int {
            type Incidence = $wide;
            const NONE: Self = <$int>::MAX;

            #[inline]
            fn new(index: usize) -> Self {
                debug_assert!(index <= <$int>::MAX as usize);
                index as $int
            }
            #[inline]
            fn get(self) -> usize {
                self as usize
            }
            #[inline]
            fn attach(incidence: &mut $wide, edge: usize) {
                *incidence = incidence.wrapping_add(1 << <$int>::BITS) ^ (edge as $wide);
            }
            #[inline]
            fn detach(incidence: &mut $wide, edge: usize) {
                *incidence = incidence.wrapping_sub(1 << <$int>::BITS) ^ (edge as $wide);
            }
            #[inline]
            fn degree(incidence: $wide) -> usize {
                (incidence >> <$int>::BITS) as usize
            }
            #[inline]
            fn only_edge(incidence: $wide) -> usize {
                (incidence & <$int>::MAX as $wide) as usize
            }
        }
    };
}
index!(u16, u32);
index!(u32, u64);
