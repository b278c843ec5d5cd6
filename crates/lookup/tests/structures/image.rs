//! Images and updates: there and back, and what is refused.

use fibula_lookup::hash::{Digest, Family, SecretKey, mix64};
use fibula_lookup::image::{self, ImageError};
use fibula_lookup::othello::{Option2, Othello, OthelloQuery, Publication, Settings, Sharded, Sizing, Update};
use fibula_lookup::testkit::{Rng, seed};
use fibula_lookup::traits::{ApplyError, Control, Query};

fn table<S: Sizing>(value_bits: u8, n: u64) -> (Othello<S>, OthelloQuery<S>, SecretKey) {
    let key = SecretKey::from_seed(7);
    let mask = u64::MAX >> (64 - value_bits);
    let entries: Vec<_> = (1..=n).map(|name| (Digest(mix64(name)), name & mask)).collect();
    let (control, query) = Othello::build(Settings::new(value_bits, 100_000, &key), &entries, 2).unwrap();
    (control, query, key)
}

fn there_and_back<S: Sizing>(value_bits: u8) {
    let (_, query, key) = table::<S>(value_bits, 9_000);
    let bytes = image::encode(&query, Family::Wy, &key);
    let (header, read) = image::decode::<S>(&bytes).unwrap();
    assert_eq!((header.family, header.key == key, header.n_shards as usize), (Family::Wy, true, read.held().count()));
    for name in 1..=20_000 {
        assert_eq!(read.lookup(Digest(mix64(name))), query.lookup(Digest(mix64(name))));
    }
    assert_eq!(image::encode(&read, Family::Wy, &key), bytes);
}

#[test]
fn an_image_answers_like_its_origin_for_every_width_and_sizing() {
    for value_bits in [1, 3, 8, 13, 16, 24, 32, 33, 64] {
        there_and_back::<Sharded>(value_bits);
        there_and_back::<Option2>(value_bits);
    }
}

#[test]
fn every_truncation_and_every_flipped_bit_is_refused() {
    let (_, query, key) = table::<Sharded>(8, 50);
    let bytes = image::encode(&query, Family::MulAdd, &key);
    for length in 0..bytes.len() {
        assert!(image::decode::<Sharded>(&bytes[..length]).is_err(), "{length} of {} bytes", bytes.len());
    }
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(image::decode::<Sharded>(&damaged).is_err(), "bit {bit}");
    }
    // Short ones with a checksum that fits.
    for length in 0..bytes.len() - 8 {
        let mut short = bytes[..length].to_vec();
        short.extend(xxhash_rust::xxh3::xxh3_64(&short).to_le_bytes());
        assert!(image::decode::<Sharded>(&short).is_err(), "{length} bytes and a checksum");
    }
    assert!(matches!(image::decode::<Option2>(&bytes), Err(ImageError::OtherVariant { .. })));
    assert!(matches!(image::decode::<Sharded>(b"GIF89a.."), Err(ImageError::NotAnImage { .. })));
}

#[test]
fn random_bytes_after_a_good_header_never_panic() {
    let seed = seed();
    let (_, query, key) = table::<Sharded>(8, 50);
    let bytes = image::encode(&query, Family::MulAdd, &key);
    let mut rng = Rng::new(seed);
    for _ in 0..20_000 {
        let mut damaged = bytes[..bytes.len() - 8].to_vec();
        for _ in 0..=rng.below(4) {
            let at = rng.below(damaged.len() as u64) as usize;
            damaged[at] = rng.next_u64() as u8;
        }
        // With a checksum that fits, so that the inner checks are reached.
        let checksum = xxhash_rust::xxh3::xxh3_64(&damaged);
        damaged.extend(checksum.to_le_bytes());
        if let Ok((_, read)) = image::decode::<Sharded>(&damaged) {
            let _ = read.lookup(Digest(rng.next_u64()));
        }
    }
}

#[test]
fn updates_come_back_from_bytes_and_damaged_ones_do_not_panic() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    for value_bits in [1, 8, 20, 64] {
        let (mut control, _, _) = table::<Sharded>(value_bits, 2_000);
        let mut updates = Vec::new();
        for name in 1..4_000 {
            control.insert(Digest(mix64(name * 31 + 9_000)), name & 1, &mut updates).unwrap();
            control.remove(Digest(mix64(name * 7)), &mut updates);
        }
        assert!(updates.iter().any(|update| matches!(update, Update::Shards(shards) if shards.len() == 2)));
        for update in &updates {
            let mut bytes = Vec::new();
            update.encode(value_bits, &mut bytes);
            assert_eq!(Update::decode(&bytes, value_bits).as_ref(), Ok(update));
            assert!(Update::decode(&bytes[..bytes.len() - 1], value_bits).is_err());
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
            let _ = Update::decode(&bytes, value_bits);
        }
    }
}

#[test]
fn gaps_wrong_digests_and_strange_cells_are_refused_and_change_nothing() {
    let (mut control, mut query, _) = table::<Sharded>(8, 3_000);
    let mut updates = Vec::new();
    while updates.len() < 3 {
        let name = Digest(mix64(5_000 + control.len() as u64));
        control.insert(name, 77, &mut updates).unwrap();
    }
    let before = query.shards();
    assert!(matches!(query.apply(&updates[1]), Err(ApplyError::Gap { from: 1, current: 0, .. })));
    let Update::Cells(first) = &updates[0] else { panic!("one cell of a table with room") };
    let mut wrong = first.clone();
    wrong.digest ^= 1;
    assert!(matches!(query.apply(&Update::Cells(wrong)), Err(ApplyError::WrongDigest { .. })));
    let mut far = first.clone();
    far.cells[0].0 = u32::MAX;
    assert!(matches!(query.apply(&Update::Cells(far)), Err(ApplyError::Malformed { .. })));
    let mut elsewhere = first.clone();
    (elsewhere.id.prefix, elsewhere.id.depth) = (1, 1);
    assert!(query.apply(&Update::Cells(elsewhere)).is_err());
    assert!(matches!(query.apply(&Update::Shards(Vec::new())), Ok(_) | Err(ApplyError::Malformed { .. })));
    assert_eq!(query.shards(), before);
    for update in &updates {
        query.apply(update).unwrap();
    }
    assert_eq!(query.shards(), control.export().shards());
}

#[test]
fn updates_in_batches_leave_the_same_shards_as_one_by_one_and_stop_where_one_is_refused() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let key = SecretKey::from_seed(seed);
    let settings = Settings::new(8, 100_000, &key);
    for (settings, publication) in [
        (settings.clone(), Publication::Versioned),
        (settings.clone(), Publication::Sequenced),
        (settings.with_fingerprints(8), Publication::Sequenced),
    ] {
        let mut control = Othello::<Sharded>::new(settings);
        let (mut one_by_one, mut in_batches) = (control.export(), control.export().republish(publication).unwrap());
        let (mut updates, mut kinds) = (Vec::new(), [0; 3]);
        for batch in 0..300 {
            updates.clear();
            // Grows through splits, and shrinks through merges.
            for _ in 0..rng.below(200) {
                let name = Digest(mix64(rng.below(12_000)));
                if (batch / 75) % 2 == 1 && rng.below(10) > 0 {
                    control.remove(name, &mut updates);
                } else {
                    control.insert(name, rng.below(256), &mut updates).unwrap();
                }
            }
            for update in &updates {
                kinds[if let Update::Shards(shards) = update { shards.len().min(2) } else { 0 }] += 1;
                one_by_one.apply(update).unwrap();
            }
            assert_eq!(in_batches.apply_all(&updates), Ok(updates.len()), "seed {seed}, batch {batch}");
            assert_eq!(in_batches.apply_all(&updates), Ok(0), "seed {seed}, batch {batch}: duplicates");
            assert!(in_batches.held().eq(one_by_one.held()), "seed {seed}, batch {batch}");
        }
        assert_eq!(in_batches.shards(), one_by_one.shards(), "seed {seed}");
        assert!(kinds.iter().all(|&n| n > 2), "{kinds:?}");

        // One message is lost: its shard stays behind from there on, the others come along.
        updates.clear();
        let live: Vec<_> = control.graph().iter().step_by(3).collect();
        for (name, value) in live {
            control.insert(name, value ^ 1, &mut updates).unwrap();
        }
        let lost = updates.len() / 3;
        let Update::Cells(gone) = updates.remove(lost) else { unreachable!() };
        assert!(
            matches!(in_batches.apply_all(&updates), Err(ApplyError::Gap { prefix, .. }) if prefix == gone.id.prefix)
        );
        for (id, version, _) in in_batches.held() {
            let of_shard = updates.iter().filter_map(|update| match update {
                Update::Cells(update) if update.id == id => Some(update.to),
                _ => None,
            });
            let expected = if id == gone.id { Some(gone.from) } else { of_shard.max() };
            assert!(expected.is_none_or(|expected| version == expected), "seed {seed}: {id:?}");
        }
        assert_eq!(in_batches.apply(&Update::Cells(gone)), Ok(fibula_lookup::traits::Applied::Applied));
        in_batches.apply_all(&updates).unwrap();
    }
}
