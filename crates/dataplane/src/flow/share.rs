//! Limits the share of one port.

/// A port may have this many flows, or ports of translated addresses, for each place that is left.
pub(super) const SHARE: u64 = 8;
