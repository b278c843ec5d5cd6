//! Addresses of Ethernet.

/// A MAC address.
pub type Mac = [u8; 6];
