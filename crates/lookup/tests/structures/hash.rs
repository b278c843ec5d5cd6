//! Digests: every path computes the same function, and every family spreads hostile and sequential names evenly.

use std::collections::HashSet;
use std::str::FromStr;

use fibula_lookup::base::processor::Kernel;
use fibula_lookup::hash::{Digest, Family, FamilyError, Hasher, MIX_1, MIX_2, MIX_SHIFT, SecretKey, mix64};
use fibula_lookup::testkit::{Rng, seed};

fn hashers(key: &SecretKey) -> [Hasher; 4] {
    Family::ALL.map(|family| Hasher::new(family, key))
}

#[test]
fn vector_and_scalar_paths_agree_on_millions_of_names() {
    let mut rng = Rng::new(seed());
    let key = SecretKey::from_seed(rng.next_u64());
    for hasher in hashers(&key) {
        let n = if hasher.family() == Family::MulAdd { 500_000 } else { 20_000 };
        for len in 0..=8 {
            // An odd count leaves a tail for the scalar twin.
            let mut names: Vec<u64> = (0..n + len).map(|_| rng.next_u64()).collect();
            for (i, edge) in [0, 1, u64::MAX, 1 << 63, 0xffff_ffff, 1 << 32, u64::MAX - 1].into_iter().enumerate() {
                names[i] = edge;
            }
            let mut scalar = vec![Digest(1); names.len()];
            hasher.digest_words_with(Kernel::SCALAR, &names, len, &mut scalar);
            for kernel in Kernel::available() {
                let mut vector = vec![Digest(0); names.len()];
                hasher.digest_words_with(kernel, &names, len, &mut vector);
                assert!(vector == scalar, "{} at length {len}, {kernel}", hasher.family());
            }
            for (name, digest) in names.iter().zip(&scalar).step_by(37) {
                assert_eq!(*digest, hasher.digest(&name.to_le_bytes()[..len]), "{} {name:#x}", hasher.family());
                assert_eq!(*digest, hasher.digest_word(*name, len), "{} {name:#x}", hasher.family());
            }
        }
    }
}

#[test]
fn keys_of_words_have_the_digests_of_their_bytes() {
    fn check<const K: usize>(hasher: &Hasher, rng: &mut Rng) {
        // Words of few bits, and of nearly all, have the carries that random words seldom have.
        let word = |rng: &mut Rng| [rng.next_u64(), 0, u64::MAX, rng.next_u64() >> 33][rng.next_u64() as usize % 4];
        let keys: Vec<[u64; K]> = (0..10_003).map(|_| std::array::from_fn(|_| word(rng))).collect();
        for kernel in Kernel::available() {
            let mut digests = vec![Digest(0); keys.len()];
            hasher.digest_keys_with(kernel, &keys, &mut digests);
            for (key, digest) in keys.iter().zip(digests) {
                let bytes: Vec<u8> = key.iter().flat_map(|word| word.to_le_bytes()).collect();
                assert_eq!(digest, hasher.digest(&bytes), "{hasher:?} {key:x?} {kernel}");
                assert_eq!(digest, hasher.digest_key(key), "{hasher:?} {key:x?}");
            }
        }
    }
    fn check_columns<const N: usize>(hasher: &Hasher, rng: &mut Rng) {
        let columns: [[u64; N]; 2] = std::array::from_fn(|_| std::array::from_fn(|_| rng.next_u64()));
        for (kernel, n) in Kernel::available().flat_map(|kernel| (0..=N).map(move |n| (kernel, n))) {
            let mut digests = [Digest(0); N];
            hasher.digest_columns_with(kernel, [&columns[0], &columns[1]], n, &mut digests);
            for (at, digest) in digests[..n].iter().enumerate() {
                let key = columns.map(|column| column[at]);
                assert_eq!(*digest, hasher.digest_key(&key), "{hasher:?} {key:x?}, {at} of {n}, {kernel}");
            }
        }
    }
    let mut rng = Rng::new(seed());
    for hasher in &hashers(&SecretKey::from_seed(rng.next_u64())) {
        check::<1>(hasher, &mut rng);
        check::<2>(hasher, &mut rng);
        check::<5>(hasher, &mut rng);
        check_columns::<32>(hasher, &mut rng);
        check_columns::<5>(hasher, &mut rng);
    }
}

#[test]
fn names_of_two_words_have_the_digests_of_their_bytes() {
    let mut rng = Rng::new(seed());
    for hasher in &hashers(&SecretKey::from_seed(rng.next_u64())) {
        // Words of few bits, and of nearly all, have the carries that random words seldom have. Bytes above the length
        // are not zero.
        let word = |rng: &mut Rng| [rng.next_u64(), 0, u64::MAX, rng.next_u64() >> 33][rng.next_u64() as usize % 4];
        let names: Vec<[u64; 2]> = (0..5_003).map(|_| std::array::from_fn(|_| word(&mut rng))).collect();
        for len in 9..=16 {
            for kernel in Kernel::available() {
                let mut digests = vec![Digest(0); names.len()];
                hasher.digest_pairs_with(kernel, &names, len, &mut digests);
                for (name, digest) in names.iter().zip(digests) {
                    let bytes: Vec<u8> = name.iter().flat_map(|word| word.to_le_bytes()).collect();
                    assert_eq!(digest, hasher.digest(&bytes[..len]), "{hasher:?} {name:x?}, {len} bytes, {kernel}");
                }
            }
        }
    }
}

#[test]
fn arrays_of_every_length_have_the_digests_of_names() {
    fn check<const N: usize>(hasher: &Hasher, rng: &mut Rng) {
        let byte = |rng: &mut Rng| [rng.next_u64() as u8, 0, 0xff][rng.next_u64() as usize % 3];
        // Every number of names in the last vector, and of vectors in the last step of a loop.
        for n in (0..150).chain([1_000]) {
            let names: Vec<[u8; N]> = (0..n).map(|_| std::array::from_fn(|_| byte(rng))).collect();
            let expected: Vec<Digest> = names.iter().map(|name| hasher.digest(name)).collect();
            for kernel in Kernel::available() {
                let mut digests = vec![Digest(0); n];
                hasher.digest_arrays_with(kernel, &names, &mut digests);
                assert_eq!(digests, expected, "{hasher:?}, {n} names of {N} bytes, {kernel}");
            }
        }
    }
    macro_rules! lengths {
        ($hasher:ident, $rng:ident, $($n:literal)*) => { $( check::<$n>($hasher, $rng); )* };
    }
    let rng = &mut Rng::new(seed());
    for hasher in &hashers(&SecretKey::from_seed(rng.next_u64())) {
        lengths!(hasher, rng, 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 33);
    }
}

#[test]
#[should_panic(expected = "9 to 16 bytes")]
fn pairs_of_eight_bytes_are_refused() {
    Hasher::new(Family::MulAdd, &SecretKey::from_seed(1)).digest_pairs(&[[1, 2]], 8, &mut [Digest(0)]);
}

#[test]
fn short_batches_are_whole() {
    let hasher = Hasher::new(Family::MulAdd, &SecretKey::from_seed(3));
    for n in 0..40 {
        let names: Vec<u64> = (0..n).collect();
        let mut out = vec![Digest(0); names.len()];
        hasher.digest_words(&names, 6, &mut out);
        assert!(names.iter().zip(&out).all(|(name, digest)| *digest == hasher.digest(&name.to_le_bytes()[..6])));
    }
}

#[test]
fn a_batch_of_mixed_lengths_equals_one_by_one() {
    let mut rng = Rng::new(seed());
    let bytes: Vec<u8> = (0..600).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    let names: Vec<&[u8]> = (0..4200).map(|len| &bytes[len % 7..][..len]).collect();
    for hasher in hashers(&SecretKey::from_seed(rng.next_u64())) {
        let mut out = vec![Digest(0); names.len()];
        hasher.digest_batch(&names, &mut out);
        assert!(names.iter().zip(&out).all(|(name, digest)| *digest == hasher.digest(name)), "{}", hasher.family());
    }
}

#[test]
#[should_panic(expected = "at most 8 bytes")]
fn words_of_nine_bytes_are_refused() {
    Hasher::new(Family::Wy, &SecretKey::from_seed(1)).digest_words(&[1], 9, &mut [Digest(0)]);
}

#[test]
fn families_survive_ids_and_names() {
    for family in Family::ALL {
        assert_eq!(Family::from_id(family.id()), Ok(family));
        assert_eq!(Family::from_str(&family.to_string()), Ok(family));
    }
    assert_eq!(Family::from_id(0), Err(FamilyError::UnknownId { id: 0 }));
    assert_eq!(Family::from_id(5), Err(FamilyError::UnknownId { id: 5 }));
    assert!(matches!("md5".parse::<Family>(), Err(FamilyError::UnknownName { name }) if name == "md5"));
}

#[test]
fn keys_do_not_print_themselves() {
    let key = SecretKey::from_bytes([0xab; 32]);
    assert_eq!(format!("{key:?}"), "SecretKey(..)");
    for hasher in hashers(&key) {
        assert!(format!("{hasher:?}").starts_with("Hasher { family: "), "{hasher:?}");
    }
    assert_ne!(SecretKey::random(), SecretKey::random());
}

#[test]
fn length_is_part_of_the_name() {
    for hasher in hashers(&SecretKey::from_seed(7)) {
        assert_ne!(hasher.digest(b"a"), hasher.digest(b"a\0"));
        let zeros = [0; 300];
        let digests: HashSet<Digest> = (0..=300).map(|len| hasher.digest(&zeros[..len])).collect();
        assert_eq!(digests.len(), 301, "{}", hasher.family());
    }
}

#[test]
fn every_byte_of_a_name_counts() {
    for hasher in hashers(&SecretKey::from_seed(8)) {
        for len in [1, 2, 3, 4, 7, 8, 9, 12, 13, 15, 16, 17, 31, 32, 33, 37, 64, 65, 1000] {
            let mut name: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let whole = hasher.digest(&name);
            for at in 0..len {
                for bit in 0..8 {
                    name[at] ^= 1 << bit;
                    assert_ne!(hasher.digest(&name), whole, "{} len {len} byte {at}", hasher.family());
                    name[at] ^= 1 << bit;
                }
            }
        }
    }
}

#[test]
fn another_key_gives_other_digests() {
    for family in Family::ALL {
        for len in [0, 1, 6, 8, 13, 16, 17, 64] {
            let name = vec![0x5a; len];
            let digests: HashSet<Digest> =
                (0..100).map(|seed| Hasher::new(family, &SecretKey::from_seed(seed)).digest(&name)).collect();
            assert_eq!(digests.len(), 100, "{family} len {len}");
        }
    }
}

/// `n` names that an attacker or an ordinary vendor could choose, of one length.
fn hostile_sets(n: u64) -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let mac = |word: u64| word.to_be_bytes()[2..].to_vec();
    let spread = |word: u64, len: usize, stride: usize| {
        // Bit i of the word becomes the top bit of byte i * stride - 1: names that differ where products do not mix.
        let mut name = vec![0; len];
        (1..=20).for_each(|i| name[(i * stride - 1) % len] ^= (((word >> (i - 1)) & 1) as u8) << 7);
        name
    };
    let cancelling = cancelling_places();
    vec![
        ("sequential MACs", (0..n).map(|i| mac(0x0002_a5b0_0000_0000 + i)).collect()),
        ("little-endian counters", (0..n).map(|i| i.to_le_bytes().to_vec()).collect()),
        ("counters in the top bits", (0..n).map(|i| (i << 40).to_le_bytes().to_vec()).collect()),
        ("counter in the second word", (0..n).map(|i| [[7; 8], i.to_le_bytes()].concat()).collect()),
        ("equal words", (0..n).map(|i| [i.to_le_bytes(), i.to_le_bytes()].concat()).collect()),
        ("top bits of the bytes of 64", (0..n).map(|i| spread(i, 64, 3)).collect()),
        ("top bits of the words of 256 bytes", (0..n).map(|i| spread(i, 256, 8)).collect()),
        ("paths", (0..n).map(|i| format!("/srv/files/archive/2014/{i:08}.bin").into_bytes()).collect()),
        ("CRC32c is the same for all", (0..n).map(|i| equal_crc(i as u32)).collect()),
        ("places cancel in the CRC", (0..n / 10).map(|i| at_places(&cancelling, 1, i)).collect()),
        ("top bits cancel in the CRC", (0..n / 10).map(|i| at_places(&cancelling, 1 << 63, i)).collect()),
    ]
}

/// A 12-byte name with CRC32c 0 whose first 8 bytes hold `i`. Anyone can compute it.
fn equal_crc(i: u32) -> Vec<u8> {
    let mut name = [i.to_le_bytes(), (!i).to_le_bytes(), [0; 4]].concat();
    // The register before the last four bytes; writing it as those bytes drives it to 0, and the constant to ~0.
    let register = !crc32c::crc32c(&name[..8]);
    name[8..].copy_from_slice(&(register ^ register_before_zero()).to_le_bytes());
    name
}

/// The four bytes that, fed to an empty register, leave it as all ones, so that the final complement gives 0.
fn register_before_zero() -> u32 {
    const REVERSED_POLYNOMIAL: u32 = 0x82f6_3b78;
    (0..32).fold(u32::MAX, |r, _| if r >> 31 == 1 { ((r ^ REVERSED_POLYNOMIAL) << 1) | 1 } else { r << 1 })
}

/// Sets of places among 64 words at which any one change, made at all of them, does not change the CRC32c: bit i of a
/// set is word i. They depend on the polynomial only, not on the change. There are 64 - 32 independent ones.
fn cancelling_places() -> Vec<u64> {
    let effect = |place: usize| {
        let mut name = [0; 512];
        name[8 * place] = 1;
        crc32c::crc32c(&name) ^ crc32c::crc32c(&[0; 512])
    };
    // Elimination: a combination that is reduced to no effect is such a set.
    let mut basis: Vec<(u32, u64)> = Vec::new();
    let mut sets = Vec::new();
    for place in 0..64 {
        let (mut crc, mut set) = (effect(place), 1u64 << place);
        for &(other, places) in &basis {
            if crc ^ other < crc {
                (crc, set) = (crc ^ other, set ^ places);
            }
        }
        if crc == 0 {
            sets.push(set);
        } else {
            basis.push((crc, set));
            basis.sort_by_key(|&(crc, _)| std::cmp::Reverse(crc));
        }
    }
    sets
}

/// The 512-byte name whose words are `word` at the places of the sets chosen by the bits of `i`, and 0 elsewhere.
fn at_places(sets: &[u64], word: u64, i: u64) -> Vec<u8> {
    let chosen = sets.iter().enumerate().filter(|(bit, _)| (i >> bit) & 1 == 1);
    let places = chosen.fold(0, |places, (_, set)| places ^ set);
    (0..64).flat_map(|place| (word * ((places >> place) & 1)).to_le_bytes()).collect()
}

#[test]
fn no_two_hostile_names_share_a_digest_and_digests_are_even() {
    let mut rng = Rng::new(seed());
    let key = SecretKey::from_seed(rng.next_u64());
    for (what, names) in hostile_sets(1_000_000) {
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        for hasher in hashers(&key) {
            let family = hasher.family();
            let mut digests = vec![Digest(0); names.len()];
            hasher.digest_batch(&names, &mut digests);
            for (part, shift) in [("top", 52), ("middle", 26), ("low", 0)] {
                let z = chi_squared_z(digests.iter().map(|d| (d.0 >> shift) & 0xfff));
                // 132 tests a run: 7 sigma is a false alarm in 1e9 runs. Too even is as suspicious as too uneven.
                assert!(z.abs() < 7.0, "{family}, {what}: {part} bits are {z:.1} sigma off");
            }
            digests.sort_unstable();
            digests.dedup();
            assert_eq!(digests.len(), names.len(), "{family}, {what}: names share a digest");
        }
    }
}

/// The distance of the chi-squared of 4096 equal bins from its mean, in standard deviations.
fn chi_squared_z(bins_hit: impl Iterator<Item = u64>) -> f64 {
    const BINS: usize = 4096;
    let mut count = [0u32; BINS];
    let mut n = 0;
    bins_hit.for_each(|bin| {
        count[bin as usize] += 1;
        n += 1;
    });
    let expected = f64::from(n) / BINS as f64;
    let chi: f64 = count.iter().map(|&c| (f64::from(c) - expected).powi(2) / expected).sum();
    let freedom = (BINS - 1) as f64;
    (chi - freedom) / (2.0 * freedom).sqrt()
}

#[test]
fn flipping_any_input_bit_flips_each_output_bit_half_of_the_time() {
    const TRIALS: u32 = 4000;
    let mut rng = Rng::new(seed());
    for len in [6, 8, 13, 24] {
        for hasher in hashers(&SecretKey::from_seed(rng.next_u64())) {
            let names: Vec<Vec<u8>> = (0..TRIALS).map(|_| (0..len).map(|_| rng.next_u64() as u8).collect()).collect();
            for bit in 0..8 * len {
                let mut flips = [0u32; 64];
                for name in &names {
                    let mut other = name.clone();
                    other[bit / 8] ^= 1 << (bit % 8);
                    let change = hasher.digest(name).0 ^ hasher.digest(&other).0;
                    flips.iter_mut().enumerate().for_each(|(i, f)| *f += (change >> i) as u32 & 1);
                }
                // Mean 2000, sigma 31.6; over some 10^5 counts the largest is near 4.5 sigma, 8 is a defect.
                let worst = flips.into_iter().max_by_key(|f| f.abs_diff(TRIALS / 2)).expect("64 counts");
                assert!(
                    worst.abs_diff(TRIALS / 2) < 253,
                    "{} len {len}: input bit {bit} flips an output bit {worst} of {TRIALS} times",
                    hasher.family()
                );
            }
        }
    }
}

#[test]
fn mix64_is_a_bijection_with_a_known_inverse() {
    let mut rng = Rng::new(seed());
    let inverse = |m: u64| (0..6).fold(m, |x: u64, _| x.wrapping_mul(2u64.wrapping_sub(m.wrapping_mul(x))));
    let unshift = |x: u64| x ^ (x >> MIX_SHIFT);
    for _ in 0..100_000 {
        let x = rng.next_u64();
        let y = unshift(mix64(x)).wrapping_mul(inverse(MIX_2));
        assert_eq!(unshift(unshift(y).wrapping_mul(inverse(MIX_1))), x);
    }
}

#[test]
fn a_pair_of_plain_crcs_is_one_crc_and_a_constant() {
    let names = hostile_sets(1000).into_iter().find(|(what, _)| *what == "sequential MACs").expect("listed").1;
    let apart = |name: &[u8]| crc32c::crc32c_append(1, name) ^ crc32c::crc32c_append(2, name);
    let constant = apart(&names[0]);
    assert!(names.iter().all(|name| apart(name) == constant), "this is why crc32c with two seeds is one function");

    // Names that one seed cannot distinguish, no seed can.
    let same: Vec<Vec<u8>> = (0..1000).map(equal_crc).collect();
    for seed in [0, 1, 0xdead_beef] {
        let crcs: HashSet<u32> = same.iter().map(|name| crc32c::crc32c_append(seed, name)).collect();
        assert_eq!(crcs.len(), 1);
    }

    // A secret function of each word does not help either, if it is the same at every place.
    let sets = cancelling_places();
    assert_eq!(sets.len(), 32);
    let hidden = |name: Vec<u8>| -> Vec<u8> {
        name.chunks(8).flat_map(|word| mix64(u64::from(word[0]) + 12345).to_le_bytes()).collect()
    };
    let crcs: HashSet<u32> = (0..1000).map(|i| crc32c::crc32c(&hidden(at_places(&sets, 1, i)))).collect();
    assert_eq!(crcs.len(), 1);

    // The repaired family has no such constant. The halves of the joined CRC are mixed, so check the digest.
    let hasher = Hasher::new(Family::Crc32c, &SecretKey::from_seed(5));
    let digests: HashSet<Digest> = same.iter().map(|name| hasher.digest(name)).collect();
    assert_eq!(digests.len(), same.len());
}
