//! Positions from digests: the mix of a digest with the tweak of the part that it belongs to.

/// Multiplier of the position mix: odd, its bits balanced (the 64-bit golden ratio).
pub(crate) const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
/// Spreads a tweak of 15 bits over 47 bits of the digest, so that a change of tweak moves every name its own way.
/// A tweak XORed in directly would shift large classes of names rigidly and keep their collisions.
pub(crate) const TWEAK_SPREAD: u64 = 0x9E37_79B1;
/// Tweaks are 15 bits.
pub(crate) const TWEAKS: u16 = 1 << 15;

/// The bijective mix of a digest with a shard's tweak; its halves are range-reduced to the two positions.
#[inline]
pub(crate) fn mix(digest: u64, tweak: u16) -> u64 {
    let x = (digest ^ (u64::from(tweak) * TWEAK_SPREAD)).wrapping_mul(MIX);
    x ^ (x >> 32)
}
