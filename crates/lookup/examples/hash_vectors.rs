//! Writes the golden vectors of the digests: `cargo run -p fibula-lookup --example hash_vectors -- vectors`.
//!
//! Run it only when a family is added: the digests of a family that is in use never change.

#![expect(clippy::disallowed_methods, reason = "it writes files")]

use std::fs;
use std::path::PathBuf;

use fibula_lookup::hash::{Family, Hasher, Purpose, SecretKey, mix64};

fn main() -> std::io::Result<()> {
    let directory = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| "vectors".into()));
    let keys = [[0; 32], std::array::from_fn(|i| i as u8), [0xff; 32]].map(SecretKey::from_bytes);

    let mut words = String::from("key,purpose,index,word\n");
    for key in &keys {
        for purpose in [Purpose::MulAdd, Purpose::Wy, Purpose::SipHash13, Purpose::Crc32c, Purpose::Structure] {
            for index in [0, 1, 2, 3, 16, 32, u64::MAX] {
                let word = key.derive(purpose, index);
                words += &format!("{},{},{index},{word:016x}\n", hex(key.as_bytes()), purpose.id());
            }
        }
    }
    fs::write(directory.join("key.csv"), words)?;

    let mut digests = String::from("key,family,name,digest\n");
    for key in &keys {
        for family in Family::ALL {
            let hasher = Hasher::new(family, key);
            for name in names() {
                let digest = hasher.digest(&name).0;
                digests += &format!("{},{},{},{digest:016x}\n", hex(key.as_bytes()), family.id(), hex(&name));
            }
        }
    }
    fs::write(directory.join("hash.csv"), digests)
}

/// Every length with a path of its own, with even, odd, zero and full bytes.
fn names() -> Vec<Vec<u8>> {
    let lengths = (0..=18).chain([23, 24, 25, 31, 32, 33, 37, 47, 48, 49, 63, 64, 65, 100, 257, 300]);
    let mixed = lengths.map(|len| (0..len).map(|i| mix64(i + 256 * len) as u8).collect());
    let flat = [6, 8, 16, 32].into_iter().flat_map(|len| [vec![0; len], vec![0xff; len]]);
    mixed.chain(flat).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
