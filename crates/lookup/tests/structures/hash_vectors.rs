//! The digests equal the committed golden vectors, which readers in other languages are tested against as well.

use std::fs;
use std::path::Path;

use fibula_lookup::hash::{Digest, Family, Hasher, Purpose, SecretKey};

/// The rows of a table in `vectors/`, without its header.
#[expect(clippy::disallowed_methods, reason = "golden vectors are files")]
fn rows(file: &str, header: &str) -> Vec<[String; 4]> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(header));
    let fields = |line: &str| {
        let fields: Vec<String> = line.split(',').map(str::to_owned).collect();
        fields.try_into().unwrap_or_else(|f| panic!("{file}: four fields, not {f:?}"))
    };
    lines.map(fields).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hexadecimal")).collect()
}

fn key(hex: &str) -> SecretKey {
    SecretKey::from_bytes(bytes(hex).try_into().expect("32 bytes"))
}

fn word(hex: &str) -> u64 {
    u64::from_str_radix(hex, 16).expect("hexadecimal")
}

#[test]
fn derived_words_are_the_golden_ones() {
    let rows = rows("key.csv", "key,purpose,index,word");
    assert!(rows.len() >= 100);
    let purposes = [Purpose::MulAdd, Purpose::Wy, Purpose::SipHash13, Purpose::Crc32c, Purpose::Structure];
    for [k, purpose, index, expected] in rows {
        let purpose = purposes.into_iter().find(|d| d.id().to_string() == purpose).expect("a known purpose");
        let index = index.parse().expect("a number");
        assert_eq!(key(&k).derive(purpose, index), word(&expected), "key {k}, {purpose:?} {index}");
    }
}

#[test]
fn digests_are_the_golden_ones_on_every_path() {
    let rows = rows("hash.csv", "key,family,name,digest");
    assert!(rows.len() >= 500);
    for [k, family, name, expected] in rows {
        let family = Family::from_id(family.parse().expect("a number")).expect("a known family");
        let hasher = Hasher::new(family, &key(&k));
        let (name, expected) = (bytes(&name), Digest(word(&expected)));
        assert_eq!(hasher.digest(&name), expected, "key {k}, {family}, name {name:02x?}");
        if name.len() <= 8 {
            let mut padded = [0; 8];
            padded[..name.len()].copy_from_slice(&name);
            let mut out = [Digest(0); 11];
            hasher.digest_words(&[u64::from_le_bytes(padded); 11], name.len(), &mut out);
            assert_eq!(out, [expected; 11], "key {k}, {family}, name {name:02x?}, as words");
        }
    }
}
