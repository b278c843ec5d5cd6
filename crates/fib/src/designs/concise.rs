//! Concise: one sharded Othello from digest to action index; nothing else on a core node.
//!
//! Cost: two reads of cells a lookup, about 2.33 l bits a name for values of l bits.
//! Alien names get an arbitrary action, so gateways check names exactly at the ingress, and every switch checks the
//! names of its own hosts at the egress.
//! Source: "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", sections IV, V, VII.A.

use super::{Aliens, Design, graph};

/// The design of the papers' FIB, in the form that networks here use.
pub static CONCISE: Design = Design {
    name: "concise",
    summary: "one sharded Othello from name to action; exact checks at the edge",
    aliens: |_| Aliens::Arbitrary,
    fingerprint_bits: |_| 0,
    fingerprints: |_| 0..=0,
    is_static: false,
    restarts_alike: true,
    skeleton: graph::skeleton,
    restore: graph::restore,
    table: graph::table,
};
