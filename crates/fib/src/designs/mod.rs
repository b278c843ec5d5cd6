//! FIB designs: what is looked up on the way from a name to an action, and two declared policies.
//!
//! A design is no concept beside the seam: it is a pair of control and query structures from name to action, and it
//! says what an alien name gets and what a gateway holds as against a core node. One file a design; a design is
//! selected by its name. `docs/how-to/add-a-fib-design.md` says how to add one.
//!
//! | design | structures | bits a name | alien names |
//! |---|---|---|---|
//! | [`concise`](CONCISE) | one sharded Othello | 2.1 to 2.4 a bit of value | an arbitrary action; refused at gateways |

mod concise;

pub use concise::CONCISE;

use lookup::hash::{Digest, Family, SecretKey};
use lookup::image::ImageError;
use lookup::traits::InsertError;

/// All designs.
pub static DESIGNS: &[&Design] = &[&CONCISE];

/// A FIB design.
#[derive(Debug)]
pub struct Design {
    /// What it is selected by.
    pub name: &'static str,
    /// One line about it.
    pub summary: &'static str,
    /// What a lookup of an alien name gives.
    pub aliens: Aliens,
    /// What a switch with host ports holds.
    pub gateway: Holdings,
    /// What a switch without host ports holds.
    pub core: Holdings,
    pub(crate) build: Build,
    pub(crate) decode: Decode,
}

type Build = fn(&Settings, &[(Digest, u64)]) -> Result<Box<dyn Table>, InsertError>;
type Decode = fn(&[u8]) -> Result<Box<dyn Table>, ImageError>;

/// What the FIB answers for a name that was never inserted, or whose tombstone is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aliens {
    /// Any action: the frame reaches some port, so gateways must refuse the name first.
    Arbitrary,
    /// Drop, except with a probability of 2^-bits.
    DroppedBut {
        /// Bits of the fingerprint.
        bits: u8,
    },
    /// Drop.
    Dropped,
}

/// What a switch holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holdings {
    /// The FIB: name to action, without names.
    pub fib: bool,
    /// An exact table of all valid names, for the ingress check.
    pub valid: bool,
    /// An exact table of its own names, for the egress check.
    pub local: bool,
}

/// What a table is built with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Family of the digests.
    pub family: Family,
    /// Their key.
    pub key: SecretKey,
    /// Bits of a value.
    pub value_bits: u8,
    /// Threads for the build.
    pub threads: usize,
}

/// The query half of a design, whatever it is made of: for tools; the fast path knows the type.
pub trait Table: Send {
    /// The values of `digests`, in order.
    fn lookup_batch(&self, digests: &[Digest], values: &mut [u64]);
    /// Memory that lookups need, in bits.
    fn size_bits(&self) -> u64;
    /// The table as bytes that carry their own checksum.
    fn encode(&self) -> Vec<u8>;
    /// How names are digested.
    fn hashing(&self) -> (Family, &SecretKey);
}

impl Design {
    /// The design of this name.
    /// # Errors
    /// [`UnknownDesign`], which lists those there are.
    pub fn by_name(name: &str) -> Result<&'static Design, UnknownDesign> {
        let known = DESIGNS.iter().copied().find(|design| design.name == name);
        known.ok_or_else(|| UnknownDesign { got: crate::name::clip(name) })
    }

    /// What a switch holds.
    pub fn holdings(&self, gateway: bool) -> Holdings {
        if gateway { self.gateway } else { self.core }
    }
}

/// No design has this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no FIB design `{got}`: use {}", DESIGNS.iter().map(|design| design.name).collect::<Vec<_>>().join(", "))]
pub struct UnknownDesign {
    /// The start of the name.
    pub got: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use lookup::hash::Hasher;

    #[test]
    fn designs_are_found_by_their_unique_names() {
        for design in DESIGNS {
            assert!(std::ptr::eq(Design::by_name(design.name).unwrap(), *design));
        }
        let error = Design::by_name("tcam").unwrap_err().to_string();
        assert!(error.contains("tcam") && error.contains("concise"));
    }

    /// The law for what a design declares: live names get their values, before and after a trip through bytes.
    #[test]
    fn every_design_answers_for_every_live_name() {
        let key = SecretKey::from_seed(5);
        let hasher = Hasher::new(Family::MulAdd, &key);
        let entries: Vec<(Digest, u64)> =
            (0..10_000u64).map(|i| (hasher.digest(&i.to_be_bytes()), 1 + i % 15)).collect();
        let digests: Vec<Digest> = entries.iter().map(|entry| entry.0).collect();
        for design in DESIGNS {
            let settings = Settings { family: Family::MulAdd, key: key.clone(), value_bits: 4, threads: 2 };
            let table = (design.build)(&settings, &entries).unwrap();
            let decoded = (design.decode)(&table.encode()).unwrap();
            for table in [table, decoded] {
                let mut values = vec![0; entries.len()];
                table.lookup_batch(&digests, &mut values);
                assert!(values.iter().zip(&entries).all(|(got, (_, value))| got == value), "{}", design.name);
                assert_eq!(table.hashing(), (Family::MulAdd, &key));
                assert!(table.size_bits() < 10_000 * 4 * 3);
            }
            // A switch whose FIB answers anything for aliens must be able to refuse them.
            assert!(design.aliens != Aliens::Arbitrary || design.gateway.valid);
        }
    }
}
