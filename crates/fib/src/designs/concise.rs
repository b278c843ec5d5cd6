//! Concise: one sharded Othello from digest to action index; nothing else on a core node.
//!
//! Cost: two reads of cells a lookup, about 2.33 l bits a name for values of l bits.
//! Alien names get an arbitrary action, so gateways check names exactly at the ingress, and every switch checks the
//! names of its own hosts at the egress.
//! Source: "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", sections IV, V, VII.A.

use super::{Aliens, Design, Holdings, Settings, Table};
use lookup::hash::{Digest, Family, SecretKey};
use lookup::image::{self, ImageError};
use lookup::othello::{self, Othello, OthelloQuery, Sharded};
use lookup::traits::{InsertError, Query};

/// The design of the papers' FIB, in the form that networks here use.
pub static CONCISE: Design = Design {
    name: "concise",
    summary: "one sharded Othello from name to action; exact checks at the edge",
    aliens: Aliens::Arbitrary,
    gateway: Holdings { fib: true, valid: true, local: true },
    core: Holdings { fib: true, valid: false, local: true },
    build,
    decode,
};

struct Concise {
    family: Family,
    key: SecretKey,
    query: OthelloQuery,
}

fn build(settings: &Settings, entries: &[(Digest, u64)]) -> Result<Box<dyn Table>, InsertError> {
    let Settings { family, key, value_bits, threads } = settings.clone();
    let table = othello::Settings::new(value_bits, entries.len().max(1), &key);
    let (_, query) = Othello::<Sharded>::build(table, entries, threads)?;
    Ok(Box::new(Concise { family, key, query }))
}

fn decode(bytes: &[u8]) -> Result<Box<dyn Table>, ImageError> {
    let (header, query) = image::decode(bytes)?;
    Ok(Box::new(Concise { family: header.family, key: header.key, query }))
}

impl Table for Concise {
    fn lookup_batch(&self, digests: &[Digest], values: &mut [u64]) {
        self.query.lookup_batch(digests, values);
    }
    fn size_bits(&self) -> u64 {
        self.query.size_bits()
    }
    fn encode(&self) -> Vec<u8> {
        image::encode(&self.query, self.family, &self.key)
    }
    fn hashing(&self) -> (Family, &SecretKey) {
        (self.family, &self.key)
    }
}
