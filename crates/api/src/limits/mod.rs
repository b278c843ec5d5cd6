//! Limits for the peers of a daemon: connections, streams, bytes of requests, time.
//!
//! ```text
//!  listener ── accepts ──► Guarded ── HTTP ──► Layer ── counts bytes of requests ──► service
//!      └──────────────── Guard: connections, peers, bytes in all, counters ─────────────┘
//! ```
//! A [`Guard`] is shared by the listeners of a daemon, each of which has its own limits, so that flooding one does not
//! block the others. [`Listener`] accepts connections within the limits, and closes idle ones. [`RequestLayer`] counts
//! the bytes of unanswered requests and of unread answers. A message is counted as a whole when it begins, so messages
//! never wait for each other's bytes, and none that is refused is read. A service reserves room for a large answer
//! before it creates it.
//!
//! **Peers.** The limits of a peer apply to an address at a listener, and to the holder of a certificate wherever it
//! connects from.
//!
//! **Newcomers.** When all connections of a listener are taken, one is closed for the new one. First come those of
//! strangers, from the address that has most of them, then those that have had no request in progress for the longest
//! time, and, at a listener for pages, those with the oldest requests, since streams of events go on for as long as
//! they are wanted. So peers that only hold connections lock no one out. gRPC clients reconnect by themselves. If every
//! connection has a request in progress, the newcomer is closed. If peers present certificates, half of the connections
//! are reserved for those that have presented one.
//!
//! **The sum.** [`Limits::most_bytes`]: bytes of requests and of answers, and a window of unread bytes for every
//! connection. Each item of a message counts 96 bytes extra, so that empty records, which grow forty times when
//! decoded, are counted at their real cost. The texts of decoded items come on top: about twice their bytes.

mod connections;
mod descriptors;
mod held;
mod items;
mod listener;
mod requests;
mod table;

pub use connections::{Guard, Limit};
pub use descriptors::raise_descriptors;
pub use held::Answering;
pub use listener::{Guarded, Listener};
pub use requests::{RequestLayer, WrapBody};
pub(crate) use table::{Kind, peer_text};

use serde::Deserialize;
use std::time::Duration;

/// The section `[limits]` of a daemon's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Connections per listener.
    pub connections: usize,
    /// Connections per client address, or per holder of a certificate. IPv6 addresses of one /64 count as one, and so
    /// do the loopback addresses.
    pub connections_per_peer: usize,
    /// Requests in progress per connection.
    pub streams: u32,
    /// Bytes that a peer may send ahead of what has been read, per connection.
    pub window_bytes: u32,
    /// Maximum size of a message in bytes.
    pub message_bytes: usize,
    /// Bytes of unanswered requests per connection, and of unread answers.
    pub connection_bytes: usize,
    /// The same per client address, or per holder of a certificate.
    pub peer_bytes: usize,
    /// The same per listener.
    pub total_bytes: usize,
    /// Average requests per second from one address, with up to twice as many at once. 0: no limit.
    pub requests_per_second: u32,
    /// Maximum time from the start of a connection to its first request, in milliseconds.
    pub first_request_ms: u64,
    /// Maximum time from the first byte of a message to its last, in milliseconds.
    pub message_ms: u64,
    /// Maximum time that a connection may be idle, in milliseconds.
    pub idle_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            connections_per_peer: 256,
            streams: 100,
            window_bytes: 1 << 20,
            message_bytes: 16 << 20,
            connection_bytes: 48 << 20,
            peer_bytes: 96 << 20,
            total_bytes: 256 << 20,
            requests_per_second: 0,
            first_request_ms: 10_000,
            message_ms: 60_000,
            idle_ms: 300_000,
        }
    }
}

impl Limits {
    /// Checks that the values make sense.
    /// # Errors
    /// A text for the operator.
    pub fn check(&self) -> Result<(), String> {
        let range = |name: &str, value: u64, min: u64, max: u64| {
            let good = (min..=max).contains(&value);
            good.then_some(()).ok_or(format!("limits.{name} = {value} is out of range; write {min} to {max}"))
        };
        range("connections", self.connections as u64, 1, 1 << 20)?;
        range("connections_per_peer", self.connections_per_peer as u64, 1, 1 << 20)?;
        range("streams", self.streams.into(), 1, 1 << 20)?;
        range("window_bytes", self.window_bytes.into(), 1 << 16, (1 << 31) - 1)?;
        range("message_bytes", self.message_bytes as u64, 1 << 16, crate::MAX_MESSAGE_BYTES as u64)?;
        range("first_request_ms", self.first_request_ms, 10, 3_600_000)?;
        range("message_ms", self.message_ms, 10, 86_400_000)?;
        range("idle_ms", self.idle_ms, 10, 86_400_000)?;
        // Otherwise the smaller limit would refuse what the larger one allows.
        let sizes = [
            ("message_bytes", self.message_bytes),
            ("connection_bytes", self.connection_bytes),
            ("peer_bytes", self.peer_bytes),
            ("total_bytes", self.total_bytes),
        ];
        for pair in sizes.windows(2) {
            let [(small, less), (large, more)] = [pair[0], pair[1]];
            if less > more {
                return Err(format!("limits.{small} = {less} is more than limits.{large} = {more}; raise the second"));
            }
        }
        Ok(())
    }

    /// The most bytes that requests at one listener can hold before they are decoded, and answers to them.
    pub fn most_bytes(&self) -> u64 {
        2 * self.total_bytes as u64 + self.connections as u64 * u64::from(self.window_bytes)
    }

    fn first_request(&self) -> Duration {
        Duration::from_millis(self.first_request_ms)
    }

    fn message(&self) -> Duration {
        Duration::from_millis(self.message_ms)
    }

    fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }
}

#[cfg(test)]
mod tests;
