//! The integers that index the edges and vertices of one shard: 16 bits for shards, 32 bits for the papers' sizes.
//! Narrow indices halve the cache that an update walks through.

/// An unsigned integer that indexes edges and vertices.
pub trait Index: Copy + Eq + Send + Sync + 'static {
    /// The degree of a vertex and the XOR of the indices of its edges, packed into one word that is updated at once.
    type Incidence: Copy + Default + Send;
    /// The highest index. It means "none", because there are fewer edges and vertices.
    const NONE: Self;

    /// Narrows an index that fits.
    fn new(index: usize) -> Self;
    /// Widens an index.
    fn get(self) -> usize;
    /// Adds an edge to a vertex.
    fn attach(incidence: &mut Self::Incidence, edge: usize);
    /// Removes an edge from a vertex.
    fn detach(incidence: &mut Self::Incidence, edge: usize);
    /// The number of edges at the vertex, modulo the width. It is exact, because there are fewer edges than indices.
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
