//! Sets of up to 32 names of a burst, a bit for each.

/// The set of the first `n`, at most 32.
#[inline(always)]
pub fn first(n: usize) -> u32 {
    ((1u64 << n) - 1) as u32
}

/// The indices of the bits that are set.
#[inline(always)]
pub fn ones(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
        bits &= bits - 1;
        Some(at)
    })
}
