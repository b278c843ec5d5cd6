//! Concise: one sharded Othello from digest to action index; nothing else on a core node.
//!
//! Cost: two reads of cells per lookup, about 2.33 l bits per name for values of l bits.
//! Alien names get an arbitrary action, so gateways check names exactly at the ingress, and every switch checks the
//! names of its own hosts at the egress.
//! Source: "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", sections IV, V, VII.A.

use super::{Design, Spec, Structure};
use crate::halves;
use crate::model::designs::concise;
use lookup::othello::{Graph, Settings};

/// The design of the papers' FIB, in the form that networks here use.
pub static CONCISE: Design = Design::new(
    "concise",
    "one sharded Othello from name to action: choose it for tables that fit the processor's cache",
    halves!(Othello),
    concise,
);

/// An Othello, with fingerprints where the design has them.
pub struct Othello;

impl Structure for Othello {
    type Skeleton = Graph;
    fn settings(spec: &Spec) -> Settings {
        Settings::new(spec.value_bits, spec.max_names, &spec.key).with_fingerprints(spec.fingerprint_bits)
    }
}
