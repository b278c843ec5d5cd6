//! One processor, first come, first served.
