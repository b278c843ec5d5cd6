//! Updates of an Othello: encoded and decoded, and what is refused.

use fibula_lookup::hash::{Digest, SecretKey, mix64};
use fibula_lookup::othello::{Othello, OthelloQuery, Settings, Sharded, Sizing, Update};
use fibula_lookup::testkit::{Rng, seed};
use fibula_lookup::traits::{ApplyError, Control, Query, Replicated};

fn table<S: Sizing>(value_bits: u8, n: u64) -> (Othello<S>, OthelloQuery<S>, SecretKey) {
    let key = SecretKey::from_seed(7);
    let mask = u64::MAX >> (64 - value_bits);
    let entries: Vec<_> = (1..=n).map(|name| (Digest(mix64(name)), name & mask)).collect();
    let (control, query) = Othello::build(Settings::new(value_bits, 100_000, &key), &entries, 2).unwrap();
    (control, query, key)
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
    let before = query.images();
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
    assert_eq!(query.images(), before);
    for update in &updates {
        query.apply(update).unwrap();
    }
    assert_eq!(query.images(), control.export().images());
}

#[test]
fn updates_in_batches_leave_the_same_shards_as_one_by_one_and_stop_where_one_is_refused() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let key = SecretKey::from_seed(seed);
    let settings = Settings::new(8, 100_000, &key);
    for settings in [settings.clone(), settings.with_fingerprints(8)] {
        let mut control = Othello::<Sharded>::new(settings);
        let (mut one_by_one, mut in_batches) = (control.export(), control.export());
        let (mut updates, mut kinds) = (Vec::new(), [0; 3]);
        for batch in 0..300 {
            updates.clear();
            // Grows by splits, and shrinks by merges.
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
            assert_eq!(in_batches.apply_batch(&updates), (updates.len(), Ok(())), "seed {seed}, batch {batch}");
            assert_eq!(in_batches.apply_batch(&updates), (0, Ok(())), "seed {seed}, batch {batch}: duplicates");
            assert_eq!(in_batches.held(), one_by_one.held(), "seed {seed}, batch {batch}");
        }
        assert_eq!(in_batches.images(), one_by_one.images(), "seed {seed}");
        assert!(kinds.iter().all(|&n| n > 2), "{kinds:?}");

        // One message is lost: those before the next one of its shard take effect.
        updates.clear();
        let live: Vec<_> = control.skeleton().iter().step_by(3).collect();
        for (name, value) in live {
            control.insert(name, value ^ 1, &mut updates).unwrap();
        }
        let Update::Cells(gone) = updates.remove(updates.len() / 3) else { unreachable!() };
        let misses =
            |update: &Update| matches!(update, Update::Cells(update) if update.from == gone.to && update.id == gone.id);
        let next = updates.iter().position(misses).expect("many updates for each shard");
        let gap = ApplyError::Gap { part: gone.id, current: gone.from, from: gone.to };
        assert_eq!(in_batches.apply_batch(&updates), (next, Err(gap)), "seed {seed}");
        assert_eq!(in_batches.apply(&Update::Cells(gone)), Ok(fibula_lookup::traits::Applied::Applied));
        assert_eq!(in_batches.apply_batch(&updates), (updates.len() - next, Ok(())), "seed {seed}");
        assert_eq!(in_batches.images(), control.export().images(), "seed {seed}");
    }
}
