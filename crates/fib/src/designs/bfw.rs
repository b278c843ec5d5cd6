//! BFW, the Bloom Forwarder: a filter a port of l hash functions and l n / ln 2 bits, and its counters beside it.
//!
//! Cost: filters are asked one after another up to the first match; five bits for each bit of a filter, since the
//! counters stand in the switch, as published; 16 bytes for each name that a filter before its own matches.
//! Alien names get the first port that matches, with the rate that l is chosen for; gateways check names exactly.
//! Source: "Re-designing Compact-structure based Forwarding for Programmable Networks", IV.A, V. Differs: no valid name
//! is ever answered wrongly, see `lookup::bloom_fib`.

use super::{Design, Halves, Spec, Structure, bloom};
use lookup::bloom_fib::{Names, Policy, Settings};

/// The Bloom forwarder, with its counters in the data plane.
pub static BFW: Design = Design {
    name: "bfw",
    summary: "a half-full counting Bloom filter a port, counters in the switch, and what they get wrong exactly",
    aliens: bloom::aliens,
    fingerprint_bits: bloom::fingerprint_bits,
    fingerprints: |_| bloom::FINGERPRINTS,
    is_static: false,
    halves: Halves::of::<Bfw>(),
};

struct Bfw;

impl Structure for Bfw {
    type Skeleton = Names;
    fn settings(spec: &Spec) -> Settings {
        bloom::settings(spec, policy(spec))
    }
}

/// Half-full filters: each function makes false positives half as many.
pub(super) fn policy(spec: &Spec) -> Policy {
    Policy::Bfw { hashes: spec.fingerprint_bits }
}
