//! Bloom forwarders: conformance, churn, hostile sequences, and exceptions and rates against their expected values.

use std::collections::BTreeMap;

use fibula_lookup::bloom::{Shape, Standard};
use fibula_lookup::bloom_fib::{
    BloomFib, BloomFibQuery, BloomView, Figures, Form, Names, Policy, Settings, Update, sizing,
};
use fibula_lookup::hash::{Digest, SecretKey, mix64};
use fibula_lookup::testkit::conformance::{self, Scope};
use fibula_lookup::testkit::oracle;
use fibula_lookup::testkit::{Rng, seed};
use fibula_lookup::traits::{
    Applied, ApplyError, Control, InsertError, Query, RestoreError, Row, Skeleton, Undivided, View,
};

use super::rates::{Judge, Mean, judge};

/// All policies, with so few bits that exceptions are many.
const POLICIES: [Policy; 4] = [
    Policy::Bfw { hashes: 5 },
    Policy::Buffalo { bits_a_name: 6, max_hashes: 8 },
    Policy::Buffalo { bits_a_name: 20, max_hashes: 3 },
    Policy::SummaryCache { bits_a_name: 4, hashes: 4 },
];
const FORMS: [Form; 2] = [Form::Separate, Form::Sliced];

fn all() -> impl Iterator<Item = (Policy, Form)> {
    POLICIES.into_iter().flat_map(|policy| FORMS.map(|form| (policy, form)))
}

fn name(number: u64, seed: u64) -> Digest {
    Digest(mix64(number ^ mix64(seed)))
}

fn settings(value_bits: u8, max_names: usize, policy: Policy, form: Form, seed: u64) -> Settings {
    Settings::new(value_bits, max_names, policy, form, &SecretKey::from_seed(seed))
}

/// Every live name, alone and in a batch.
fn check(table: &BloomFib, query: &BloomFibQuery, context: &str) {
    let (names, values): (Vec<_>, Vec<_>) = table.skeleton().iter().unzip();
    let mut got = vec![0; names.len()];
    query.lookup_batch(&names, &mut got);
    for ((&name, value), got) in names.iter().zip(values).zip(got) {
        assert_eq!((got, query.lookup(name)), (value, value), "{context}: {name:?}");
    }
}

fn follow(query: &mut BloomFibQuery, updates: &mut Vec<Update>) {
    for update in updates.drain(..) {
        query.apply(&update).unwrap();
    }
}

#[test]
fn every_policy_conforms_in_both_forms() {
    let seed = seed();
    for (policy, form) in all() {
        for (value_bits, n_names, n_operations) in [(1, 8, 6_000), (3, 300, 8_000), (6, 1_000, 8_000)] {
            let settings = settings(value_bits, n_names as usize * 2, policy, form, seed);
            let scope = Scope { n_operations, n_names, n_values: 1 << value_bits, check_every: n_operations / 5, seed };
            println!("{settings:?}");
            let oracle = oracle::Names::aliens().in_bytes();
            conformance::random(&mut BloomFib::new(settings), oracle, |number| name(number, seed), &scope);
        }
    }
}

#[test]
fn thousands_of_ports_conform() {
    let seed = seed();
    let settings = settings(12, 4_000, Policy::Buffalo { bits_a_name: 14, max_hashes: 8 }, Form::Separate, seed);
    let scope = Scope { n_operations: 3_000, n_names: 2_000, n_values: 1 << 12, check_every: 1_500, seed };
    let oracle = oracle::Names::aliens().in_bytes();
    conformance::random(&mut BloomFib::new(settings), oracle, |number| name(number, seed), &scope);
}

/// Turns a full table over: every removed name makes room for a new one, and some names change their ports.
fn churn(policy: Policy, form: Form, n_names: u64, n_turnovers: u64, seed: u64) -> Vec<Figures> {
    let n_ports = 20;
    let mut rng = Rng::new(seed);
    let mut table = BloomFib::new(settings(5, n_names as usize, policy, form, seed));
    let mut updates = Vec::new();
    let mut live: Vec<u64> = (0..n_names).collect();
    let entries: Vec<_> = live.iter().map(|&n| (name(n, seed), rng.below(n_ports))).collect();
    table.insert_batch(&entries, &mut updates).unwrap();
    let mut query = table.export();
    updates.clear();
    let mut next = n_names;
    let mut figures = Vec::new();
    for turnover in 0..n_turnovers {
        for _ in 0..n_names {
            let at = rng.below(n_names) as usize;
            if rng.below(4) == 0 {
                table.insert(name(live[at], seed), rng.below(n_ports), &mut updates).unwrap();
            } else {
                assert!(table.remove(name(live[at], seed), &mut updates));
                // Some names come back.
                let number = if rng.below(3) == 0 { rng.below(next) } else { next };
                let number = if table.get(name(number, seed)).is_some() { next } else { number };
                next += u64::from(number == next);
                table.insert(name(number, seed), rng.below(n_ports), &mut updates).unwrap();
                live[at] = number;
            }
            follow(&mut query, &mut updates);
        }
        let error = table.insert(name(u64::MAX, seed), 1, &mut updates).unwrap_err();
        assert_eq!(error, InsertError::TooManyNames { max: n_names as usize });
        check(&table, &query, &format!("{policy:?} {form:?}, turnover {turnover}, seed {seed}"));
        figures.push(table.figures());
    }
    figures
}

#[test]
fn thirty_turnovers_at_full_capacity_lose_no_name_and_keep_the_exact_table_at_its_size() {
    let seed = seed();
    for (policy, form) in all() {
        let figures = churn(policy, form, 1_000, 30, seed);
        for Figures { n_names, n_exceptions, expected_exceptions, n_exact_slots, .. } in &figures {
            assert_eq!(*n_names, 1_000);
            // Exceptions of one table are correlated, because names share filters, but not by this much.
            let bound = expected_exceptions * 1.5 + 30.0;
            assert!((*n_exceptions as f64) < bound, "{policy:?} {form:?}: {n_exceptions}, bound {bound}, seed {seed}");
            assert!(*n_exact_slots <= 64.max(n_exceptions * 4), "{n_exact_slots} slots for {n_exceptions}");
        }
        let last = figures.last().unwrap();
        println!("{policy:?} {form:?}: {} exceptions, {:.1} expected", last.n_exceptions, last.expected_exceptions);
    }
}

#[test]
fn removing_what_is_not_there_and_inserting_what_is_changes_nothing() {
    let seed = seed();
    for (policy, form) in all() {
        let mut table = BloomFib::new(settings(4, 2_000, policy, form, seed));
        let mut updates = Vec::new();
        let entries: Vec<_> = (0..1_000).map(|n| (name(n, seed), n % 16)).collect();
        table.insert_batch(&entries, &mut updates).unwrap();
        let (mut query, before) = (table.export(), table.figures());
        updates.clear();
        for n in 1_000..5_000 {
            assert!(!table.remove(name(n, seed), &mut updates));
        }
        for &(name, value) in &entries {
            table.insert(name, value, &mut updates).unwrap();
        }
        assert!(updates.is_empty());
        assert_eq!(table.figures(), before);
        check(&table, &query, &format!("{policy:?}, seed {seed}"));
        // A retransmitted removal does not take a second name's bits.
        for n in 0..100 {
            assert!(table.remove(name(n, seed), &mut updates));
            assert!(!table.remove(name(n, seed), &mut updates));
        }
        let wide = table.insert(name(1, seed), 16, &mut updates).unwrap_err();
        assert_eq!(wide, InsertError::ValueTooWide { value: 16, value_bits: 4 });
        follow(&mut query, &mut updates);
        check(&table, &query, &format!("{policy:?}, seed {seed}"));
    }
}

#[test]
fn counters_count_on_beyond_what_they_show() {
    let seed = seed();
    let policy = Policy::SummaryCache { bits_a_name: 1, hashes: 32 };
    let mut table = BloomFib::new(settings(2, 4_000, policy, Form::Separate, seed));
    let mut updates = Vec::new();
    let mut query = table.export();
    // 32 functions on one bit per name: every counter counts far beyond what it can hold.
    for n in 0..1_500 {
        table.insert(name(n, seed), n % 4, &mut updates).unwrap();
        follow(&mut query, &mut updates);
    }
    assert!(table.figures().n_saturated > 0);
    check(&table, &query, &format!("full, seed {seed}"));
    for n in 0..1_400 {
        assert!(table.remove(name(n, seed), &mut updates));
        follow(&mut query, &mut updates);
        if n % 100 == 0 {
            check(&table, &query, &format!("after {n}, seed {seed}"));
        }
    }
    check(&table, &query, &format!("at the end, seed {seed}"));
    assert!(table.figures().n_saturated > 0);
    for n in 1_400..1_500 {
        assert!(table.remove(name(n, seed), &mut updates));
    }
    follow(&mut query, &mut updates);
    assert!(query.image().bits.iter().chain(&query.image().counters).all(|&word| word == 0), "seed {seed}");
}

/// Over many tables, after a fill and after churn: aliens that match and exceptions, minus the values expected for the
/// filters as they are sized and filled. Tables differ, so the spread is measured between tables.
fn rates(policy: Policy, form: Form, n_tables: u64, n_turnovers: u64) {
    judge(|seed, judge| rates_under(policy, form, n_tables, n_turnovers, seed, judge));
}

fn rates_under(policy: Policy, form: Form, n_tables: u64, n_turnovers: u64, seed: u64, judge: &mut Judge) {
    let (n_names, n_ports, n_aliens) = (1_000, 8, 2_000);
    let (mut fp, mut exceptions) = (Vec::new(), Vec::new());
    let mut expected = Vec::new();
    for table_number in 0..n_tables {
        let seed = mix64(seed ^ table_number);
        let mut rng = Rng::new(seed);
        let entries: Vec<_> = (0..n_names).map(|n| (name(n, seed), 1 + n % n_ports)).collect();
        let settings = settings(4, n_names as usize * 2, policy, form, seed);
        let (mut table, _) = BloomFib::build(settings, &entries, 1).unwrap();
        let mut updates = Vec::new();
        for n in 0..n_names * n_turnovers {
            // The new name goes to the port of the removed one, so that no filter is rebuilt.
            let port = table.get(name(n, seed)).unwrap();
            assert!(table.remove(name(n, seed), &mut updates));
            table.insert(name(n + n_names, seed), port, &mut updates).unwrap();
        }
        let query = table.export();
        let aliens: Vec<_> = (0..n_aliens).map(|_| Digest(rng.next_u64())).collect();
        let mut got = vec![0; aliens.len()];
        query.lookup_batch(&aliens, &mut got);
        let figures = table.figures();
        let rate = got.iter().filter(|&&value| value != 0).count() as f64 / n_aliens as f64;
        fp.push(rate - figures.expected_fp);
        expected.push(figures.expected_fp);
        exceptions.push(figures.n_exceptions as f64 - figures.expected_exceptions);
        // The formula of the paper is that of half-full filters.
        if let Policy::Bfw { hashes } = policy {
            let published = sizing::rate_of_all(vec![0.5f64.powi(hashes.into()); n_ports as usize]);
            assert!((figures.expected_fp / published - 1.0).abs() < 0.15, "{} and {published}", figures.expected_fp);
        }
    }
    for (what, samples) in [("false positives", &fp), ("exceptions", &exceptions)] {
        judge.is(
            &Mean::of(samples),
            0.0,
            &format!("{policy:?} {form:?} x {n_turnovers}: {what} beyond those expected"),
        );
    }
    println!("  expected false positives {:.4}", Mean::of(&expected).mean);
}

#[test]
fn rates_and_exceptions_are_as_expected_after_a_fill_and_after_churn() {
    for (policy, form) in all() {
        // 8 filters per table: 1,000 filters after the fill, as many after churn.
        rates(policy, form, 125, 0);
        rates(policy, form, if std::env::var_os("FIBULA_DEEP").is_some() { 125 } else { 12 }, 30);
    }
    rates(POLICIES[0], Form::Separate, 125, 3);
    rates(POLICIES[1], Form::Sliced, 125, 3);
}

#[test]
fn sizes_follow_the_policy_and_count_the_counters() {
    let key = 5;
    let entries: Vec<_> = (0..32_000).map(|n| (name(n, key), 1 + n % 32)).collect();
    let built = |policy, form| BloomFib::build(settings(6, 32_000, policy, form, key), &entries, 1).unwrap();
    // The paper's configuration: collision rate 1 %, d = 32, that is l = 7; m = l n / ln 2, and the counters.
    let (table, query) = built(Policy::bfw(0.01, 32), Form::Separate);
    assert!(table.plan().ports().iter().all(|port| port.hashes == 7 && port.bits.abs_diff(10_099) <= 1));
    let stats = query.stats();
    assert_eq!(stats.counter_bits, stats.filter_bits * 4);
    assert!(stats.size_bits > stats.filter_bits * 5);
    // BUFFALO has no counters in the data plane, and the rate that was asked for.
    let (table, query) = built(Policy::buffalo(0.001, 32), Form::Separate);
    assert_eq!(query.stats().counter_bits, 0);
    assert!(table.plan().ports().iter().all(|port| port.hashes <= 8));
    let fp = table.figures().expected_fp;
    assert!(fp < 0.001_05, "{fp}");
    let bits = table.plan().ports().iter().map(|port| u64::from(port.bits)).sum::<u64>();
    let Policy::Buffalo { bits_a_name, .. } = table.settings().policy else { unreachable!() };
    assert!(bits.abs_diff(32_000 * u64::from(bits_a_name)) < 32);
    // A larger port has fewer bits per name.
    let mut uneven = BloomFib::new(settings(2, 50_000, Policy::buffalo(0.01, 2), Form::Separate, key));
    let entries: Vec<_> = (0..22_000).map(|n| (name(n, key), if n < 2_000 { 1 } else { 2 })).collect();
    uneven.insert_batch(&entries, &mut Vec::new()).unwrap();
    let per_name: Vec<f64> =
        uneven.plan().ports().iter().zip([2e3, 2e4]).map(|(port, names)| f64::from(port.bits) / names).collect();
    assert!(per_name[0] > per_name[1] + 2.0, "{per_name:?}");
    // Summary Cache: 16 bits and four functions, the known rate of 0.24 %.
    let (table, _) = built(Policy::summary_cache(), Form::Separate);
    let shape = Shape::<Standard>::new(16_000, 4).unwrap();
    assert!(table.plan().ports().iter().all(|port| u64::from(port.bits) == shape.bits() && port.hashes == 4));
    assert!((shape.expected_fp(1_000) / 0.0024 - 1.0).abs() < 0.01);
}

#[test]
fn updates_survive_their_bytes_and_damaged_ones_are_refused() {
    let seed = seed();
    for (policy, form) in all() {
        let mut rng = Rng::new(seed);
        let settings = settings(3, 5_000, policy, form, seed);
        let mut table = BloomFib::new(settings.clone());
        let mut updates = Vec::new();
        let mut query = table.export();
        let mut twin = BloomFibQuery::from_image(&settings, &query.image()).unwrap();
        for _ in 0..600 {
            let name = name(rng.below(400), seed);
            if rng.below(3) == 0 {
                table.remove(name, &mut updates);
            } else {
                table.insert(name, rng.below(8), &mut updates).unwrap();
            }
        }
        for update in updates {
            let mut bytes = Vec::new();
            update.encode(&mut bytes);
            assert_eq!(Update::decode(&bytes, &settings).as_ref(), Ok(&update));
            assert!(Update::decode(&bytes[..bytes.len() - 1], &settings).is_err());
            bytes.push(0);
            assert!(Update::decode(&bytes, &settings).is_err());
            bytes.pop();
            for _ in 0..3 {
                let mut damaged = bytes.clone();
                let at = rng.below(damaged.len() as u64) as usize;
                damaged[at] ^= 1 << rng.below(8);
                let Ok(damaged) = Update::decode(&damaged, &settings) else { continue };
                let held = twin.held();
                match twin.apply(&damaged) {
                    // The version of a message is not in its digest: one too high is a gap for the next message.
                    Ok(Applied::Applied) => twin.overwrite(&query.image()).unwrap(),
                    Ok(_) | Err(_) => assert_eq!(twin.held(), held, "seed {seed}"),
                }
            }
            assert_eq!(query.apply(&update), Ok(Applied::Applied));
            assert_eq!(twin.apply(&update), Ok(Applied::Applied));
            assert_eq!(twin.apply(&update), Ok(Applied::AlreadyThere));
            assert_eq!(twin.held(), query.held());
        }
        check(&table, &query, &format!("seed {seed}"));
        check(&table, &twin, &format!("seed {seed}"));
        assert_eq!(query.image(), table.export().image());
    }
}

#[test]
fn a_lost_update_is_a_gap_and_an_image_repairs_it() {
    let settings = settings(4, 1_000, POLICIES[0], Form::Separate, 9);
    let mut table = BloomFib::new(settings);
    let mut updates = Vec::new();
    for n in 0..64 {
        table.insert(name(n, 9), 1 + n % 3, &mut updates).unwrap();
    }
    let mut query = table.export();
    updates.clear();
    table.insert(name(100, 9), 1, &mut updates).unwrap();
    table.insert(name(101, 9), 1, &mut updates).unwrap();
    let [lost, later] = &updates[..] else { panic!("{updates:?}") };
    assert!(matches!(query.apply(later), Err(ApplyError::Gap { .. })));
    let Update::Cells(mut wrong) = lost.clone() else { panic!("{lost:?}") };
    wrong.cells.pop();
    assert!(matches!(query.apply(&Update::Cells(wrong.clone())), Err(ApplyError::WrongDigest { .. })));
    wrong.cells = vec![wrong.cells[0]; 2];
    assert!(matches!(query.apply(&Update::Cells(wrong)), Err(ApplyError::Malformed { .. })));
    query.overwrite(&table.export().image()).unwrap();
    check(&table, &query, "after the image");
}

/// What a payload means at a switch.
fn at_switch(payload: u32) -> u64 {
    mix64(payload.into()) % 8
}

/// Whether all names have their values in a query structure.
fn answers(names: &Names, query: &BloomFibQuery) -> bool {
    names.iter().all(|(name, payload)| query.lookup(name) == at_switch(payload))
}

/// Names that were inserted and removed in a skeleton with one view, so that the exact table was rebuilt several times.
fn churned(settings: &Settings, n_names: u64, seed: u64) -> (Names, BloomView) {
    let mut rng = Rng::new(seed);
    let mut names = Names::build(settings, &[], 1).unwrap();
    let (mut view, _) = BloomView::open(&names, at_switch).unwrap();
    for _ in 0..n_names * 3 {
        let (number, payload) = (rng.below(n_names), rng.below(50) as u32);
        let change = match rng.below(4) {
            0 => names.remove(name(number, seed)),
            _ => names.insert(name(number, seed), payload).unwrap(),
        };
        view.updates(&names, &change, at_switch, &mut Vec::new()).unwrap();
    }
    (names, view)
}

fn rows(view: &BloomView) -> Vec<Row> {
    View::<Names>::rows(view).collect()
}

#[test]
fn damaged_rows_of_a_view_are_refused_or_make_filters_without_a_wrong_answer() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut n_misplaced = 0;
    for (policy, form) in all() {
        let settings = settings(3, 2_000, policy, form, seed);
        let (mut names, view) = churned(&settings, 1_000, seed);
        let rows = rows(&view);
        let (restored, _) = BloomView::restore(&names, &rows, at_switch).unwrap();
        assert_eq!(restored.held(&names)[0].1.digest, view.held(&names)[0].1.digest);
        assert_eq!(BloomView::restore(&names, &rows[1..], at_switch).err(), Some(RestoreError::Parts));
        let mut n_refused = 0;
        for _ in 0..300 {
            let mut damaged = rows.clone();
            let at = rng.below(rows.len() as u64) as usize;
            let bytes = match rng.below(8) {
                0 => &mut damaged[at].key,
                _ => damaged[at].value.as_mut().unwrap(),
            };
            let byte = rng.below(bytes.len() as u64) as usize;
            match rng.below(4) {
                0 => bytes.truncate(byte),
                1 => bytes.push(rng.below(256) as u8),
                2 => _ = damaged.swap_remove(at),
                _ => bytes[byte] ^= 1 << rng.below(8),
            }
            match BloomView::restore(&names, &damaged, at_switch) {
                Err(_) => n_refused += 1,
                Ok((_, images)) => {
                    let query = BloomFibQuery::from_image(&settings, &images[0]).unwrap();
                    assert!(answers(&names, &query), "seed {seed}");
                }
            }
        }
        assert!(n_refused > 200, "{policy:?} {form:?}: {n_refused} of 300 are refused, seed {seed}");
        // The names changed while the switch was away. Rows of filters that were wrong about no name also fit these.
        (0..500).for_each(|n| _ = names.remove(name(n, seed)));
        match BloomView::restore(&names, &rows, at_switch) {
            Err(error) => {
                assert!(matches!(error, RestoreError::Places { .. }), "{policy:?} {form:?}: {error}, seed {seed}");
                n_misplaced += 1;
            }
            Ok((_, images)) => {
                let query = BloomFibQuery::from_image(&settings, &images[0]).unwrap();
                assert!(answers(&names, &query), "{policy:?} {form:?}: seed {seed}");
            }
        }
    }
    assert!(n_misplaced > 0, "seed {seed}");
}

#[test]
fn rows_of_an_earlier_view_of_a_switch_do_no_harm() {
    let seed = seed();
    let settings = settings(3, 4_000, POLICIES[0], Form::Separate, seed);
    let (mut names, earlier) = churned(&settings, 3_000, seed);
    let mut store: BTreeMap<_, _> = rows(&earlier).into_iter().map(|row| (row.key, row.value)).collect();
    let n_before = store.len();
    (0..2_500).for_each(|n| _ = names.remove(name(n, seed)));
    let (mut view, _) = BloomView::export(&names, at_switch).unwrap();
    store.extend(View::<Names>::take_rows(&mut view).into_iter().map(|row| (row.key, row.value)));
    assert!(n_before == store.len() && rows(&view).len() < n_before, "some rows are left");
    let stored: Vec<Row> = store.into_iter().map(|(key, value)| Row { key, value }).collect();
    let (restored, _) = BloomView::restore(&names, &stored, at_switch).unwrap();
    assert_eq!(restored.held(&names), view.held(&names));
}

#[test]
fn a_view_that_missed_changes_of_names_or_values_is_made_anew() {
    let seed = seed();
    for (policy, form) in all() {
        let settings = settings(3, 2_000, policy, form, seed);
        let (mut names, mut view) = churned(&settings, 1_000, seed);
        let image = view.image(&names, 0, at_switch).unwrap();
        let mut query = BloomFibQuery::from_image(&settings, &image).unwrap();
        assert!(answers(&names, &query), "seed {seed}");
        (0..300).for_each(|n| _ = names.insert(name(2_000 + n, seed), n as u32).unwrap());
        query.overwrite(&view.renew(&names, 0, at_switch).unwrap()).unwrap();
        assert!(answers(&names, &query), "seed {seed}");
        _ = names.touch();
        query.overwrite(&view.renew(&names, 0, |payload| at_switch(payload + 1)).unwrap()).unwrap();
        assert!(names.iter().all(|(name, payload)| query.lookup(name) == at_switch(payload + 1)), "seed {seed}");
        // Another view's image has no counts: what follows is the whole table.
        let (other, images) = BloomView::export(&names, at_switch).unwrap();
        view.note(&names, 0, &images[0]);
        assert_eq!(view.held(&names), other.held(&names));
        let (mut updates, change) = (Vec::new(), names.remove(name(2_000, seed)));
        view.updates(&names, &change, at_switch, &mut updates).unwrap();
        assert!(matches!(updates[..], [Update::Table(_)]), "seed {seed}");
        follow(&mut query, &mut updates);
        assert!(answers(&names, &query), "seed {seed}");
    }
}
