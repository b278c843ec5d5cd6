//! Packet input and output behind one trait, [`Device`]: bursts of up to [`BURST`] frames, no allocation per frame.
//!
//! | backend | what it is | cost per frame |
//! |---|---|---|
//! | [`backend::loopback`] | in-memory ports in pairs: tests, in-process networks | two pointer swaps; the bytes never move |
//! | [`backend::pcap`] | a capture file as input, another as output | one copy each way |
//! | [`backend::af_packet`] | a Linux interface through a kernel ring | one copy each way, one system call per burst |
//! | [`backend::af_xdp`] | a Linux interface before the kernel's stack | the same; without the kernel's own copy where the driver can |
//! | `backend::dpdk` (feature `dpdk`) | any device of DPDK, polled | none between two such ports, else one copy; one call per burst |
//!
//! A frame lives in a [`Packet`], an owned buffer of fixed size, or one that a device has lent. The buffers circulate: [`Device::rx_burst`] takes
//! empty ones from the worker's [`Pool`] and hands out full ones, [`Device::tx_burst`] puts them back. Moving a frame
//! between ports moves a pointer, whatever its length.
//!
//! To write a backend, read the documentation of [`Device`]: it is the guide.
//! What senders leave to hardware, checksums and the cutting of super-frames, goes along with a packet: [`offload`].
//! Limits: frames of at most [`MAX_FRAME_LIMIT`] bytes, super-frames of [`LARGEST_FRAME`]; one thread owns a device at a time.

pub mod addresses;
pub mod carrier;
pub mod checksum;
mod counters;
mod device;
pub mod namespace;
mod netlink;
pub mod offload;
mod packet;
pub mod pcapng;
mod several;
pub mod statistics;
pub mod takers;
#[cfg(feature = "testkit")]
pub mod testkit;
mod wait;

pub mod backend;
pub mod bpf;

pub use counters::{Counter, DeviceCounters, DeviceSnapshot};
pub use device::{Device, NetError, Readiness};
pub use packet::{BURST, Burst, FrameTooLong, HEADROOM, LARGEST_FRAME, Lender, Loan, MAX_FRAME_LIMIT, Packet, Pool};
pub use several::Several;
pub use wait::{Waiter, Waker};
