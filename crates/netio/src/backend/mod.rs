//! The backends: one module each, each an implementation of [`Device`](crate::Device).

pub mod af_packet;
pub mod af_xdp;
#[cfg(feature = "dpdk")]
pub mod dpdk;
pub mod found;
mod interface;
pub mod loopback;
pub mod pcap;
