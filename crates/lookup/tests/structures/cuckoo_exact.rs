//! (2,4)-Cuckoo: conformance, churn at full load, hostile names and messages, readers concurrent with the writer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fibula_lookup::base::part::PartId;
use fibula_lookup::cuckoo::LOAD;
use fibula_lookup::cuckoo::exact::update::SlotsUpdate;
use fibula_lookup::cuckoo::exact::{Cuckoo, CuckooQuery, Settings, Update, name};
use fibula_lookup::hash::{Family, SecretKey};
use fibula_lookup::testkit::conformance::{self, Scope};
use fibula_lookup::testkit::oracle::Names;
use fibula_lookup::testkit::{Rng, seed};
use fibula_lookup::traits::{Applied, ApplyError, Control, InsertError, Query, Undivided};

fn settings(name_bytes: u8, value_bits: u8, max_names: usize, seed: u64) -> Settings {
    Settings::new(name_bytes, value_bits, max_names, Family::MulAdd, &SecretKey::from_seed(seed))
}

/// Names that are sequential in their last bytes, as in an address plan.
fn nth<const W: usize>(n: u64, name_bytes: u8) -> [u64; W] {
    let mut bytes = vec![0; name_bytes.into()];
    let len = bytes.len().min(8);
    let tail = bytes.len() - len;
    bytes[tail..].copy_from_slice(&n.to_be_bytes()[8 - len..]);
    name(&bytes).unwrap()
}

fn run<const W: usize>(name_bytes: u8, value_bits: u8, n_names: u64, n_operations: usize, seed: u64) {
    let settings = settings(name_bytes, value_bits, n_names as usize, seed);
    let n_values = if value_bits == 64 { u64::MAX } else { 1 << value_bits };
    let scope = Scope { n_operations, n_names, n_values, check_every: n_operations.div_ceil(5), seed };
    let mut table = Cuckoo::<W>::new(settings);
    conformance::random(&mut table, Names::exact().in_bytes(), |n| nth(n, name_bytes), &scope);
}

#[test]
fn every_way_to_lay_out_a_slot_conforms() {
    let seed = seed();
    for value_bits in [1, 8, 16, 32, 63, 64] {
        for name_bytes in [4, 6, 8] {
            run::<1>(name_bytes, value_bits, 200, 4_000, seed);
        }
        for name_bytes in [9, 13, 16] {
            run::<2>(name_bytes, value_bits, 200, 4_000, seed);
        }
        run::<5>(37, value_bits, 200, 4_000, seed);
        run::<8>(64, value_bits, 200, 4_000, seed);
    }
}

#[test]
fn a_table_conforms_while_it_grows_and_shrinks() {
    let seed = seed();
    run::<1>(6, 16, 20_000, 600_000, seed);
    run::<2>(13, 8, 5_000, 200_000, seed);
    run::<1>(4, 2, 8, 200_000, seed);
}

/// Applies everything, and returns how many slots were written and how many tables were sent.
fn follow<const W: usize>(query: &mut CuckooQuery<W>, updates: &mut Vec<Update<W>>) -> (usize, usize) {
    let (mut n_writes, mut n_tables) = (0, 0);
    for update in updates.drain(..) {
        match &update {
            Update::Slots(slots) => n_writes += slots.writes.len(),
            Update::Table(_) => n_tables += 1,
        }
        assert_eq!(query.apply(&update), Ok(Applied::Applied));
    }
    (n_writes, n_tables)
}

#[test]
fn thirty_turnovers_at_full_load_lose_no_name_and_rebuild_nothing() {
    const N: u64 = 20_000;
    let seed = seed();
    let mut control = Cuckoo::<1>::with_capacity(settings(6, 16, N as usize, seed), N as usize);
    let mut query = control.export();
    let mut updates = Vec::new();
    let mut names: Vec<u64> = (0..N).collect();
    for &n in &names {
        control.insert([n], n & 0xFFFF, &mut updates).unwrap();
    }
    assert!(
        control.len() as f64 > LOAD * control.skeleton().n_slots() as f64 * 0.999,
        "{} slots",
        control.skeleton().n_slots()
    );
    follow(&mut query, &mut updates);
    let mut rng = Rng::new(seed);
    let (mut n_writes, mut n_tables) = (0, 0);
    for n in N..31 * N {
        let gone = rng.below(N) as usize;
        assert!(control.remove([names[gone]], &mut updates));
        control.insert([n], n & 0xFFFF, &mut updates).unwrap();
        let counted = follow(&mut query, &mut updates);
        (n_writes, n_tables) = (n_writes + counted.0, n_tables + counted.1);
        assert_eq!(query.lookup([names[gone]]), 0, "seed {seed}: a removed name drops");
        names[gone] = n;
        if n % N == 0 {
            names.iter().for_each(|&n| assert_eq!(query.lookup([n]), n & 0xFFFF, "seed {seed}: {n}"));
        }
    }
    names.iter().for_each(|&n| assert_eq!(query.lookup([n]), n & 0xFFFF, "seed {seed}: {n}"));
    println!("{:.3} writes an insert, {n_tables} tables", (n_writes as f64 - 30.0 * N as f64) / (30.0 * N as f64));
    assert_eq!(n_tables, 0, "seed {seed}: a table that is never over its load finds a way for every name");
}

#[test]
fn names_inserted_again_change_their_value_only() {
    let seed = seed();
    let mut control = Cuckoo::<2>::new(settings(16, 16, 1_000, seed));
    let mut query = control.export();
    let mut updates = Vec::new();
    for round in 0..5 {
        for n in 0..1_000 {
            control.insert(nth(n, 16), n + round, &mut updates).unwrap();
            control.insert(nth(n, 16), n + round, &mut updates).unwrap();
        }
        follow(&mut query, &mut updates);
        assert_eq!(control.len(), 1_000);
        (0..1_000).for_each(|n| assert_eq!(query.lookup(nth(n, 16)), n + round, "seed {seed}"));
    }
}

#[test]
fn hostile_names_find_a_place() {
    let seed = seed();
    let one_bit =
        |n: u64| -> [u64; 8] { std::array::from_fn(|word| if n / 64 == word as u64 { 1 << (n % 64) } else { 0 }) };
    let mut control = Cuckoo::<8>::new(settings(64, 32, 513, seed));
    let mut updates = Vec::new();
    for n in 0..512 {
        control.insert(one_bit(n), n + 1, &mut updates).unwrap();
    }
    control.insert([0; 8], 9_999, &mut updates).unwrap();
    let query = control.export();
    (0..512).for_each(|n| assert_eq!(query.lookup(one_bit(n)), n + 1));
    assert_eq!(query.lookup([0; 8]), 9_999);
    assert_eq!(query.lookup([1; 8]), 0);
    // Arithmetic progressions, and progressions in only the top bytes.
    for step in [1, 256, 1 << 16, 1 << 40] {
        let mut control = Cuckoo::<1>::new(settings(6, 16, 30_000, seed));
        let entries: Vec<_> = (0..250)
            .flat_map(|n| [([(n * step) & 0xFFFF_FFFF_FFFF], n), ([(n * 0x101 * step) & 0xFFFF_FFFF_FFFF], n)])
            .collect();
        let expected: HashMap<_, _> = entries.iter().copied().collect();
        control.insert_batch(&entries, &mut Vec::new()).unwrap();
        let query = control.export();
        expected.iter().for_each(|(&name, &value)| assert_eq!(query.lookup(name), value));
    }
}

#[test]
fn what_does_not_fit_is_refused_with_numbers_and_changes_nothing() {
    let mut control = Cuckoo::<1>::new(settings(6, 4, 3, 1));
    let mut updates = Vec::new();
    let entries = [([1], 1), ([2], 2), ([3], 3)];
    control.insert_batch(&entries, &mut updates).unwrap();
    updates.clear();
    assert_eq!(control.insert([4], 1, &mut updates), Err(InsertError::TooManyNames { max: 3 }));
    assert_eq!(control.insert([1], 16, &mut updates), Err(InsertError::ValueTooWide { value: 16, value_bits: 4 }));
    assert_eq!(control.insert([1 << 48], 1, &mut updates), Err(InsertError::NameTooLong { name_bytes: 6 }));
    assert_eq!(name::<1>(&[0; 9]), Err(InsertError::NameTooLong { name_bytes: 8 }));
    assert!(!control.remove([1 << 48], &mut updates));
    assert!(updates.is_empty());
    let query = control.export();
    entries.iter().for_each(|&(name, value)| assert_eq!(query.lookup(name), value));
    assert_eq!(query.lookup([1 | 1 << 48]), 0, "a longer name is an alien");
}

#[test]
fn a_message_that_does_not_fit_is_refused_and_changes_nothing() {
    let seed = seed();
    let mut control = Cuckoo::<1>::with_capacity(settings(8, 16, 1_000, seed), 1_000);
    let mut query = control.export();
    let mut updates = Vec::new();
    for n in 1..501 {
        control.insert([n], n, &mut updates).unwrap();
    }
    let (first, rest) = updates.split_at(1);
    let Update::Slots(second) = &rest[0] else { panic!("a slot was written") };
    assert_eq!(query.apply(&rest[0]), Err(ApplyError::Gap { part: PartId::WHOLE, current: 0, from: 1 }));
    assert_eq!(query.apply(&first[0]), Ok(Applied::Applied));
    let held = query.held();
    let mut wrong = second.clone();
    wrong.digest ^= 1;
    assert!(matches!(query.apply(&Update::Slots(wrong)), Err(ApplyError::WrongDigest { .. })));
    let mut wrong = second.clone();
    wrong.writes[0].value ^= 1;
    assert!(matches!(query.apply(&Update::Slots(wrong)), Err(ApplyError::WrongDigest { .. })));
    let mut wrong = second.clone();
    wrong.writes[0].value = 1 << 16;
    assert!(matches!(query.apply(&Update::Slots(wrong)), Err(ApplyError::Malformed { .. })));
    let mut wrong = second.clone();
    wrong.writes[0].slot = u32::MAX;
    assert!(matches!(query.apply(&Update::Slots(wrong)), Err(ApplyError::Malformed { .. })));
    let mut image = control.export().image();
    image.words[5] ^= 1;
    assert!(matches!(query.apply(&Update::Table(image)), Err(ApplyError::WrongDigest { .. })));
    let mut image = control.export().image();
    image.words.pop();
    assert!(query.apply(&Update::Table(image)).is_err());
    assert_eq!((query.held(), query.lookup([1]), query.lookup([2])), (held, 1, 0));
    for update in rest {
        assert_eq!(query.apply(update), Ok(Applied::Applied));
        assert_eq!(query.apply(&first[0]), Ok(Applied::AlreadyThere));
    }
    (1..501).for_each(|n| assert_eq!(query.lookup([n]), n));
    // After loss the sender is authoritative, whatever the version.
    let early = first[0].clone();
    query.overwrite(&control.export().image()).unwrap();
    assert_eq!(query.apply(&early), Ok(Applied::AlreadyThere));
    assert_eq!(query.image(), control.export().image());
}

#[test]
fn updates_survive_their_bytes_and_cut_ones_are_refused() {
    let settings = settings(13, 12, 1_000, 3);
    let mut control = Cuckoo::<2>::new(settings.clone());
    let mut query = control.export();
    let mut updates = Vec::new();
    for n in 0..300 {
        control.insert(nth(n, 13), n, &mut updates).unwrap();
    }
    control.remove(nth(7, 13), &mut updates);
    assert!(updates.iter().any(|update| matches!(update, Update::Table(_))));
    for update in &updates {
        let mut bytes = Vec::new();
        update.encode(&settings, &mut bytes);
        let read = Update::<2>::decode(&bytes, &settings).unwrap();
        assert_eq!(read, *update);
        assert_eq!(query.apply(&read), Ok(Applied::Applied));
        for cut in 0..bytes.len().min(100) {
            assert!(Update::<2>::decode(&bytes[..cut], &settings).is_err());
        }
        bytes.push(0);
        assert!(Update::<2>::decode(&bytes, &settings).is_err());
    }
    (0..300).filter(|&n| n != 7).for_each(|n| assert_eq!(query.lookup(nth(n, 13)), n));
}

/// Applies the writes of every message one at a time, and looks up the names that it moves after each. Returns the
/// first that is missed, if any.
fn missed_between_writes(reversed: bool) -> Option<String> {
    const N: u64 = 4_000;
    let seed = seed();
    let mut control = Cuckoo::<1>::with_capacity(settings(6, 16, N as usize, seed), N as usize);
    let mut query = control.export();
    let mut rng = Rng::new(seed);
    let (mut n_moves, mut updates) = (0, Vec::new());
    for n in 1..10 * N {
        control.insert([n], n % 65_536, &mut updates).unwrap();
        if control.len() == N as usize {
            while !control.remove([1 + rng.below(n)], &mut updates) {}
        }
        for update in updates.drain(..) {
            let Update::Slots(mut update) = update else { panic!("a table with room is not rebuilt") };
            if reversed {
                update.writes.reverse();
            }
            n_moves += update.writes.len() - 1;
            // One write at a time, as readers may see them; the query half computes the digest after each.
            for &write in &update.writes {
                let from = query.held().0;
                let one = |digest| Update::Slots(SlotsUpdate { from, to: from + 1, digest, writes: vec![write] });
                let Err(ApplyError::WrongDigest { got, .. }) = query.apply(&one(0)) else { panic!("a digest of 0") };
                assert_eq!(query.apply(&one(got)), Ok(Applied::Applied));
                for moved in update.writes.iter().map(|write| write.name).filter(|&name| name != [n]) {
                    if control.get(moved).is_some_and(|value| value != query.lookup(moved)) {
                        return Some(format!("seed {seed}: {moved:?} of {update:?}"));
                    }
                }
            }
            assert_eq!(query.held().1, update.digest);
        }
        assert_eq!(query.lookup([n]), control.get([n]).unwrap_or(0), "seed {seed}");
    }
    assert!(n_moves > 5_000, "{n_moves} names moved");
    None
}

#[test]
fn after_every_write_of_every_message_every_live_name_is_found() {
    assert_eq!(missed_between_writes(false), None);
    assert!(missed_between_writes(true).is_some(), "the order of writes makes no difference");
}

/// One real thread moves names at full speed, another looks up names that stay and checks every answer.
fn stable_names_are_never_missed<const W: usize>(name_bytes: u8, value_bits: u8, grows: bool, n_answers: u64) {
    const N: u64 = 3_000;
    let seed = seed();
    // Two thirds of a full table stay; the others come and go, and displace them. Or most come and go in waves, and the
    // table grows and shrinks under them.
    let (max, capacity, wave) =
        if grows { (8 * N as usize, 0, 20 * N) } else { (N as usize * 3 / 2, N as usize * 3 / 2, 1) };
    let mut control = Cuckoo::<W>::with_capacity(settings(name_bytes, value_bits, max, seed), capacity);
    let mut updates = Vec::new();
    for n in 0..N {
        control.insert(nth(n, name_bytes), n + 1, &mut updates).unwrap();
    }
    updates.clear();
    let mut query = control.export();
    let mut reader = query.reader();
    let (done, n_updates) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (done, n_updates) = (&done, &n_updates);
        let writer = scope.spawn(move || {
            let mut rng = Rng::new(seed);
            let mut operation = 0;
            while !done.load(Ordering::Relaxed) {
                operation += 1;
                let n = N + rng.below(max as u64);
                if operation / wave % 2 == 0 && control.len() < max {
                    control.insert(nth(n, name_bytes), 7, &mut updates).unwrap();
                } else {
                    control.remove(nth(n, name_bytes), &mut updates);
                }
                n_updates.fetch_add(updates.len() as u64, Ordering::Relaxed);
                follow(&mut query, &mut updates);
            }
        });
        let mut rng = Rng::new(seed ^ 1);
        let mut n_answered = 0;
        let too_few = || n_updates.load(Ordering::Relaxed) < n_answers / 1_000 && !writer.is_finished();
        while n_answered < n_answers || too_few() {
            let numbers: [u64; 32] = std::array::from_fn(|_| rng.below(N));
            let names = numbers.map(|n| nth(n, name_bytes));
            let mut values = [0; 32];
            reader.pin().lookup_batch(&names, &mut values);
            n_answered += 32;
            for (n, value) in numbers.into_iter().zip(values) {
                if value != n + 1 {
                    done.store(true, Ordering::Relaxed);
                    panic!("seed {seed}: name {n} answers {value}");
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn names_of_one_word_are_never_missed_while_they_move() {
    stable_names_are_never_missed::<1>(6, 16, false, 3_000_000);
}

#[test]
fn names_are_never_missed_while_their_table_grows_and_shrinks() {
    stable_names_are_never_missed::<1>(6, 16, true, 3_000_000);
    stable_names_are_never_missed::<2>(16, 64, true, 1_000_000);
}

#[test]
fn names_of_many_words_are_never_torn_while_they_move() {
    stable_names_are_never_missed::<2>(16, 16, false, 2_000_000);
    stable_names_are_never_missed::<8>(64, 16, false, 1_000_000);
}
