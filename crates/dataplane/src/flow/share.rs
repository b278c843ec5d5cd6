//! How much of what there is one port may have.

/// A port may have so many flows, or ports of translated addresses, for each place that is left.
pub(super) const SHARE: u64 = 8;
