//! The gRPC services, their messages, conversions to and from the domain types, and a client.
//!
//! [`v1`] is generated from `proto/fibula/v1`. Its types stay at the edge: the controller and the switch convert them as
//! they come in. [`client`] opens channels with windows and limits for big streams. [`lookup`] serves answers about
//! names, [`flow`] the connections that a switch tracks, [`capture`] copies of its frames. [`config`] reads the configuration file of a daemon, [`address`] says
//! where it listens, [`status`] serves its pages `/metrics` and `/status`, and [`memory`] counts what holds its memory. [`tls`] makes connections
//! between holders of certificates, [`identity`] reads who they are, [`gate`] says what each may ask, [`limits`] bounds
//! what each may take, [`throttle`] what is logged of it, and [`pki`] issues certificates. [`audit`] records what was asked of a daemon, [`log`] changes what it logs.
//! [`groups`] writes multicast groups. [`etcd`] is a client of etcd, [`otlp`] one of collectors of traces. [`seam`] lets a simulation set the time of a daemon, and its mistakes.

pub mod address;
pub mod audit;
pub mod capture;
pub mod client;
pub use ::clock::date as clock;
pub mod config;
pub mod crash;
pub mod drops;
pub mod etcd;
pub mod flow;
pub mod gate;
pub mod groups;
pub mod identity;
pub mod limits;
pub mod log;
pub mod lookup;
pub mod memory;
pub mod otlp;
pub mod pki;
pub mod seam;
mod serve;
mod socket;
pub mod status;
pub mod throttle;
pub mod tls;
pub mod words;

/// The generated messages, clients and servers of `fibula.v1`.
pub mod v1 {
    #![allow(
        missing_docs,
        unreachable_pub,
        clippy::all,
        clippy::allow_attributes_without_reason,
        reason = "generated; documented in the .proto files"
    )]
    tonic::include_proto!("fibula.v1");
}

/// Bytes that a receiver may have in flight per stream; four times as much per connection. With the protocol's default
/// of 64 KiB a big stream waits for a round trip every 64 KiB.
pub const STREAM_WINDOW: u32 = 4 << 20;

/// The largest single gRPC message either side accepts: the largest southbound message and its envelope.
pub const MAX_MESSAGE_BYTES: usize = fib::codec::MAX_MESSAGE + (1 << 10);

/// The key of a refusal's metadata that says which item of a batch was refused, counted from 0.
pub const REFUSED_ITEM: &str = "fibula-item";

/// The address the controller listens on unless told otherwise.
pub const DEFAULT_CONTROLLER: &str = "127.0.0.1:4600";
