//! The twenty 32-bit hash functions of Table IV, by their numbers there.
//!
//! The paper takes names and functions from Henke, Schmoll, Zseby, "Empirical evaluation of hash functions for
//! multipoint measurements", and prints no code. These are the published forms. RS, JS, PJW, BKDR, SDBM, DJB, DEK and
//! AP are as in Arash Partow's collection of general purpose hash functions. BOB is Bob Jenkins' lookup2 as in RFC
//! 5475, appendix A.2, and OAAT is his one-at-a-time. Hsieh is Paul Hsieh's SuperFastHash. OCaml, SML and STL are the
//! string hashes of OCaml 3, of the SML/NJ library and of SGI's library. Simple is the multiplier 31 of Kernighan and
//! Ritchie; SBOX is Bret Mulvey's. MD5 and SHA-1 are folded to 32 bits by exclusive or. Differs: SBOX needs 256 random
//! words, which the paper does not print; ours are drawn from a fixed seed.

use md5::{Digest as _, Md5};
use sha1::Sha1;

use crate::names::mix64;

/// A hash function of Table IV.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Its name there.
    pub name: &'static str,
    /// The function.
    pub hash: fn(&[u8]) -> u32,
}

/// Table IV: h1 to h20.
pub const TABLE_IV: [Function; 20] = [
    Function { name: "APHash", hash: ap },
    Function { name: "BKDR", hash: |key| multiplied(key, 0, 131, 0) },
    Function { name: "BOB", hash: |key| bob(key, 0) },
    Function { name: "CRC32", hash: crc32fast::hash },
    Function { name: "DEKHash", hash: dek },
    Function { name: "DJBHash", hash: |key| multiplied(key, 5381, 33, 0) },
    Function { name: "FNV32", hash: fnv32 },
    Function { name: "Hsieh", hash: hsieh },
    Function { name: "JSHash", hash: js },
    Function { name: "OCaml", hash: |key| multiplied(key, 0, 19, 0) },
    Function { name: "OAAT", hash: oaat },
    Function { name: "PJWHash", hash: pjw },
    Function { name: "RSHash", hash: rs },
    Function { name: "SBOX", hash: sbox },
    Function { name: "SDBM", hash: |key| multiplied(key, 0, 65_599, 0) },
    Function { name: "Simple", hash: |key| multiplied(key, 0, 31, 0) },
    Function { name: "SML", hash: |key| multiplied(key, 0, 33, 720) },
    Function { name: "STL", hash: |key| multiplied(key, 0, 5, 0) },
    Function { name: "MD5", hash: |key| folded(&Md5::digest(key)) },
    Function { name: "SHA-1", hash: |key| folded(&Sha1::digest(key)) },
];

/// `h = h * multiplier + byte + addend` over all bytes.
fn multiplied(key: &[u8], start: u32, multiplier: u32, addend: u32) -> u32 {
    let step = |hash: u32, &byte: &u8| hash.wrapping_mul(multiplier).wrapping_add(u32::from(byte)).wrapping_add(addend);
    key.iter().fold(start, step)
}

fn folded(digest: &[u8]) -> u32 {
    digest.chunks_exact(4).fold(0, |hash, word| hash ^ little_endian(word))
}

/// Up to four bytes as an integer, lowest byte first.
fn little_endian(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte))
}

fn ap(key: &[u8]) -> u32 {
    let step = |hash: u32, (index, &byte): (usize, &u8)| {
        let byte = u32::from(byte);
        hash ^ if index % 2 == 0 {
            hash << 7 ^ byte.wrapping_mul(hash >> 3)
        } else {
            !((hash << 11).wrapping_add(byte) ^ hash >> 5)
        }
    };
    key.iter().enumerate().fold(0xAAAA_AAAA, step)
}

fn dek(key: &[u8]) -> u32 {
    key.iter().fold(key.len() as u32, |hash, &byte| hash.rotate_left(5) ^ u32::from(byte))
}

/// FNV-1.
fn fnv32(key: &[u8]) -> u32 {
    key.iter().fold(0x811c_9dc5, |hash: u32, &byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(byte))
}

fn js(key: &[u8]) -> u32 {
    let step = |hash: u32, &byte: &u8| hash ^ (hash << 5).wrapping_add(byte.into()).wrapping_add(hash >> 2);
    key.iter().fold(0x4e67_c6a7, step)
}

fn oaat(key: &[u8]) -> u32 {
    let mut hash = key.iter().fold(0u32, |hash, &byte| {
        let hash = hash.wrapping_add(byte.into());
        let hash = hash.wrapping_add(hash << 10);
        hash ^ hash >> 6
    });
    hash = hash.wrapping_add(hash << 3);
    hash ^= hash >> 11;
    hash.wrapping_add(hash << 15)
}

fn pjw(key: &[u8]) -> u32 {
    key.iter().fold(0, |hash: u32, &byte| {
        let hash = (hash << 4).wrapping_add(byte.into());
        let high = hash & 0xf000_0000;
        (hash ^ high >> 24) & !high
    })
}

fn rs(key: &[u8]) -> u32 {
    let (mut hash, mut factor) = (0u32, 63_689u32);
    for &byte in key {
        hash = hash.wrapping_mul(factor).wrapping_add(byte.into());
        factor = factor.wrapping_mul(378_551);
    }
    hash
}

const BOXES: [u32; 256] = {
    let (mut boxes, mut at) = ([0; 256], 0);
    while at < boxes.len() {
        boxes[at] = mix64(0x5b0c ^ (at as u64) << 32) as u32;
        at += 1;
    }
    boxes
};

fn sbox(key: &[u8]) -> u32 {
    key.iter().fold(0, |hash, &byte| (hash ^ BOXES[usize::from(byte)]).wrapping_mul(3))
}

fn hsieh(key: &[u8]) -> u32 {
    if key.is_empty() {
        return 0;
    }
    let (words, rest) = key.as_chunks::<4>();
    let mut hash = words.iter().fold(key.len() as u32, |hash, word| {
        let hash = hash.wrapping_add(little_endian(&word[..2]));
        let hash = hash << 16 ^ (little_endian(&word[2..]) << 11 ^ hash);
        hash.wrapping_add(hash >> 11)
    });
    // The last byte of an odd rest is signed.
    let signed = |byte: u8| byte.cast_signed() as u32;
    match *rest {
        [a, b, c] => {
            hash = hash.wrapping_add(little_endian(&[a, b]));
            hash ^= hash << 16;
            hash ^= signed(c) << 18;
            hash = hash.wrapping_add(hash >> 11);
        }
        [a, b] => {
            hash = hash.wrapping_add(little_endian(&[a, b]));
            hash ^= hash << 11;
            hash = hash.wrapping_add(hash >> 17);
        }
        [a] => {
            hash = hash.wrapping_add(signed(a));
            hash ^= hash << 10;
            hash = hash.wrapping_add(hash >> 1);
        }
        _ => {}
    }
    hash ^= hash << 3;
    hash = hash.wrapping_add(hash >> 5);
    hash ^= hash << 4;
    hash = hash.wrapping_add(hash >> 17);
    hash ^= hash << 25;
    hash.wrapping_add(hash >> 6)
}

/// Bob Jenkins' lookup2, 12 bytes per round; each `seed` gives another function.
#[inline]
pub fn bob(key: &[u8], seed: u32) -> u32 {
    let (mut a, mut b, mut c) = (0x9e37_79b9u32, 0x9e37_79b9u32, seed);
    let (rounds, rest) = key.as_chunks::<12>();
    for round in rounds {
        a = a.wrapping_add(u32::from_le_bytes([round[0], round[1], round[2], round[3]]));
        b = b.wrapping_add(u32::from_le_bytes([round[4], round[5], round[6], round[7]]));
        c = c.wrapping_add(u32::from_le_bytes([round[8], round[9], round[10], round[11]]));
        [a, b, c] = bob_mix([a, b, c]);
    }
    // The lowest byte of the third word is reserved for the length.
    c = c.wrapping_add(key.len() as u32);
    if rest.len() > 8 {
        c = c.wrapping_add(little_endian(&rest[8..]) << 8);
    }
    if rest.len() > 4 {
        b = b.wrapping_add(little_endian(&rest[4..rest.len().min(8)]));
    }
    a = a.wrapping_add(match rest.first_chunk::<4>() {
        Some(word) => u32::from_le_bytes(*word),
        None => little_endian(rest),
    });
    bob_mix([a, b, c])[2]
}

#[inline(always)]
fn bob_mix([mut a, mut b, mut c]: [u32; 3]) -> [u32; 3] {
    for [first, second, third] in [[13, 8, 13], [12, 16, 5], [3, 10, 15]] {
        a = a.wrapping_sub(b).wrapping_sub(c) ^ c >> first;
        b = b.wrapping_sub(c).wrapping_sub(a) ^ a << second;
        c = c.wrapping_sub(a).wrapping_sub(b) ^ b >> third;
    }
    [a, b, c]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key of the collection's own test.
    const PARTOW: &[u8] = b"abcdefghijklmnopqrstuvwxyz1234567890";

    #[test]
    fn functions_have_their_published_values() {
        let vectors: [(&str, &[u8], u32); 26] = [
            ("RSHash", PARTOW, 4_097_835_502),
            ("JSHash", PARTOW, 1_651_003_062),
            ("PJWHash", PARTOW, 126_631_744),
            ("BKDR", PARTOW, 3_153_586_616),
            ("SDBM", PARTOW, 3_449_571_336),
            ("DJBHash", PARTOW, 729_241_521),
            ("DEKHash", PARTOW, 2_923_964_919),
            // HashLib's tests.
            ("APHash", b"", 0xAAAA_AAAA),
            ("APHash", b"123456789", 0xC0E8_6BE5),
            ("APHash", b"abcde", 0x7F6A_697A),
            // The specification of FNV.
            ("FNV32", b"", 0x811c_9dc5),
            ("FNV32", b"a", 0x050c_5d7e),
            ("FNV32", b"foobar", 0x31f0_b262),
            // The test of SuperFastHash in Chromium.
            ("Hsieh", b"", 0),
            ("Hsieh", b"hello world", 2_794_219_650),
            ("Hsieh", b"helmo world", 1_006_697_176),
            ("Hsieh", b"hello\0 world", 2_319_902_537),
            ("OAAT", b"a", 0xca2e_9442),
            ("OAAT", b"The quick brown fox jumps over the lazy dog", 0x519e_91f5),
            ("CRC32", b"123456789", 0xCBF4_3926),
            // RFC 1321: d41d8cd9 8f00b204 e9800998 ecf8427e; FIPS 180: a9993e36 4706816a ba3e2571 7850c26c 9cd0d89d.
            ("MD5", b"", (0xd41d_8cd9u32 ^ 0x8f00_b204 ^ 0xe980_0998 ^ 0xecf8_427e).swap_bytes()),
            ("SHA-1", b"abc", (0xa999_3e36u32 ^ 0x4706_816a ^ 0xba3e_2571 ^ 0x7850_c26c ^ 0x9cd0_d89d).swap_bytes()),
            // By hand.
            ("Simple", b"ab", 97 * 31 + 98),
            ("OCaml", b"ab", 97 * 19 + 98),
            ("SML", b"ab", (97 + 720) * 33 + 98 + 720),
            ("STL", b"ab", 97 * 5 + 98),
        ];
        for (name, key, expected) in vectors {
            let function = TABLE_IV.iter().find(|function| function.name == name).unwrap();
            assert_eq!((function.hash)(key), expected, "{name} of {:?}", String::from_utf8_lossy(key));
        }
    }

    /// lookup2 with its switch implemented byte by byte, as in the RFC.
    fn bob_by_bytes(key: &[u8], seed: u32) -> u32 {
        let mut words = [0x9e37_79b9u32, 0x9e37_79b9, seed];
        let (mut place, mut left) = (0, key.len());
        for &byte in key {
            // When fewer than 12 bytes are left, the third word starts at its second byte.
            let shift = if left < 12 && place >= 8 { place - 7 } else { place % 4 };
            words[place / 4] = words[place / 4].wrapping_add(u32::from(byte) << (8 * shift));
            place += 1;
            if place == 12 {
                words = bob_mix(words);
                (place, left) = (0, left - 12);
            }
        }
        words[2] = words[2].wrapping_add(key.len() as u32);
        bob_mix(words)[2]
    }

    #[test]
    fn bob_reads_every_length_as_the_rfc_does() {
        let key: Vec<u8> = (0..60).map(|index| mix64(index) as u8).collect();
        for length in 0..=key.len() {
            for seed in [0, 1, u32::MAX] {
                assert_eq!(bob(&key[..length], seed), bob_by_bytes(&key[..length], seed), "{length} bytes");
            }
        }
    }

    #[test]
    fn table_iv_has_twenty_different_functions() {
        let hashes: std::collections::HashSet<u32> = TABLE_IV.iter().map(|function| (function.hash)(PARTOW)).collect();
        assert_eq!(hashes.len(), 20);
    }
}
