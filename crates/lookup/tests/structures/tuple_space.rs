//! Tuple Space Search: conformance for rules and for flat names, damaged messages, churn, readers concurrent with the
//! writer.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use fibula_lookup::hash::{Family, SecretKey};
use fibula_lookup::testkit::conformance::{self, Scope};
use fibula_lookup::testkit::oracle::{Live, Names, Oracle, bytes_of, over_bytes};
use fibula_lookup::testkit::{Rng, seed};
use fibula_lookup::traits::{Applied, ApplyError, BatchReader, Control, InsertError, Query, Undivided};
use fibula_lookup::tuple_space::{Flow, Pattern, Rule, Settings, Tuple, TupleSpace, TupleSpaceQuery, Update};

fn settings(value_bits: u8, priority_bits: u8, max_rules: usize, seed: u64) -> Settings {
    Settings::new(value_bits, priority_bits, max_rules, Family::MulAdd, &SecretKey::from_seed(seed))
}

/// Fields are drawn from so few values that rules overlap often.
fn flow(rng: &mut Rng) -> Flow {
    let mut address =
        || Ipv4Addr::from((10 + rng.below(2) as u32) << 24 | (rng.below(2) << 23) as u32 | rng.below(4) as u32);
    let (source, destination) = (address(), address());
    let protocol = [6, 17][rng.below(2) as usize];
    let mut port = || [80, 443, 9_000][rng.below(3) as usize];
    Flow { source, destination, protocol, source_port: port(), destination_port: port() }
}

fn tuple(rng: &mut Rng) -> Tuple {
    let mut bits = || [0, 7, 8, 9, 32][rng.below(5) as usize];
    let tuple = Tuple::ANY.source(bits()).destination(bits());
    tuple.protocol(rng.below(2) == 0).ports(rng.below(4) == 0, rng.below(2) == 0)
}

pub(crate) fn pattern(rng: &mut Rng) -> Pattern {
    Pattern::new(tuple(rng), flow(rng).key())
}

/// Bits of a value of [`Rules`].
const VALUE_BITS: u8 = 4;

/// A tuple space as a table of rules: it maps a pattern to a priority and a value, as one number.
pub(crate) struct Rules(TupleSpace);

impl Rules {
    pub(crate) fn new(priority_bits: u8, seed: u64) -> Self {
        Self(TupleSpace::new(settings(VALUE_BITS, priority_bits, 4_000, seed)))
    }

    fn rule((pattern, value): (Pattern, u64)) -> Rule {
        Rule { pattern, priority: (value >> VALUE_BITS) as u32, value: value & ((1 << VALUE_BITS) - 1) }
    }

    fn number(rule: Rule) -> u64 {
        u64::from(rule.priority) << VALUE_BITS | rule.value
    }
}

impl Control for Rules {
    type Key = Pattern;
    type Query = TupleSpaceQuery;

    fn insert(&mut self, pattern: Pattern, value: u64, updates: &mut Vec<Update>) -> Result<(), InsertError> {
        self.0.insert_rule(&Self::rule((pattern, value)), updates)
    }

    fn insert_batch(&mut self, entries: &[(Pattern, u64)], updates: &mut Vec<Update>) -> Result<(), InsertError> {
        let rules: Vec<_> = entries.iter().copied().map(Self::rule).collect();
        self.0.insert_rules(&rules, updates)
    }

    fn remove(&mut self, pattern: Pattern, updates: &mut Vec<Update>) -> bool {
        self.0.remove_rule(&pattern, updates)
    }

    fn get(&self, pattern: Pattern) -> Option<u64> {
        self.0.rule(&pattern).map(Self::number)
    }

    fn export(&self) -> TupleSpaceQuery {
        self.0.export()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// The value of the rule that wins, found by trying all.
fn best(rules: impl Iterator<Item = Rule>, key: [u64; 2]) -> u64 {
    let matching = rules.filter(|rule| rule.pattern.matches(key));
    matching.max_by_key(|rule| (rule.priority, rule.pattern.tuple().rank())).map_or(0, |rule| rule.value)
}

/// The oracle of rules: the best that matches wins.
pub(crate) struct BestRule;

impl Oracle<Rules> for BestRule {
    fn probes(&self, pattern: Pattern, rng: &mut Rng) -> Vec<[u64; 2]> {
        vec![pattern.key(), flow(rng).key(), flow(rng).key()]
    }

    fn expected(&self, _control: &Rules, live: &Live<Rules>, key: [u64; 2]) -> Option<u64> {
        Some(best(live.iter().map(|(&pattern, &value)| Rules::rule((pattern, value))), key))
    }

    fn state(&self, query: &TupleSpaceQuery) -> Vec<u8> {
        bytes_of(query)
    }

    fn carried(&self, query: &TupleSpaceQuery, update: &Update) -> Option<Update> {
        over_bytes(query, update)
    }
}

#[test]
fn tables_of_rules_conform() {
    let seed = seed();
    for (priority_bits, n_names, n_operations) in [(0, 100, 800), (2, 400, 2_000), (32, 100, 800)] {
        let mut rules = Rules::new(priority_bits, seed);
        let n_values = 1 << (VALUE_BITS + priority_bits);
        let scope = Scope { n_operations, n_names, n_values, check_every: n_operations / 10, seed };
        let live = conformance::random(&mut rules, BestRule, |number| pattern(&mut Rng::new(number ^ seed)), &scope);
        let all = rules.0.rules().map(|rule| (rule.pattern, Rules::number(rule)));
        assert_eq!(all.collect::<HashMap<_, _>>(), live, "seed {seed}");
        assert_eq!(rules.export().n_tuples(), rules.0.skeleton().n_tuples(), "seed {seed}");
    }
}

#[test]
fn flat_names_are_exact_rules_of_one_tuple_and_conform() {
    let seed = seed();
    let name = |number: u64| [number.wrapping_mul(0x9E37_79B9_7F4A_7C15), number << 8 & 0xFF_FFFF_FFFF | 13 << 56];
    for (value_bits, n_names, n_operations) in [(1, 8, 20_000), (8, 300, 60_000), (63, 300, 20_000)] {
        let mut table = TupleSpace::new(settings(value_bits, 0, 1_000, seed));
        let n_values = 1 << value_bits;
        let scope = Scope { n_operations, n_names, n_values, check_every: n_operations / 5, seed };
        conformance::random(&mut table, Names::exact().in_bytes(), name, &scope);
        assert!(table.skeleton().n_tuples() <= 1);
    }
}

#[test]
fn tuples_that_cannot_win_are_not_read() {
    let mut rng = Rng::new(seed());
    let mut space = TupleSpace::new(settings(8, 8, 1_000, 1));
    let mut updates = Vec::new();
    let flow = flow(&mut rng);
    for bits in 0..=32 {
        let pattern = Pattern::new(Tuple::ANY.destination(bits), flow.key());
        space.insert_rule(&Rule { pattern, priority: bits.into(), value: 1 + u64::from(bits) }, &mut updates).unwrap();
    }
    let other = Flow { destination: Ipv4Addr::from(!u32::from(flow.destination)), ..flow };
    let reads = |space: &TupleSpace, flow: Flow| {
        let mut value = [0];
        let n_reads = space.export().lookup_counted(&[flow.key()], &mut value);
        (value[0], n_reads)
    };
    // The longest prefix has the highest priority and is tried first; a flow that matches only the shortest tries all.
    assert_eq!(reads(&space, flow), (33, 1));
    assert_eq!(reads(&space, other), (1, 33));
    // A rule of priority 40 anywhere ends the search before them.
    let any = Pattern::new(Tuple::ANY.protocol(true), flow.key());
    space.insert_rule(&Rule { pattern: any, priority: 40, value: 99 }, &mut updates).unwrap();
    assert_eq!(reads(&space, other), (99, 1));
    // Without it, and with the shortest prefix raised above all others, only that one is read.
    assert!(space.remove_rule(&any, &mut updates));
    let pattern = Pattern::new(Tuple::ANY, flow.key());
    space.insert_rule(&Rule { pattern, priority: 200, value: 7 }, &mut updates).unwrap();
    assert_eq!(reads(&space, flow), (7, 1));
}

#[test]
fn a_drop_rule_beats_what_it_covers() {
    let mut rng = Rng::new(seed());
    let mut space = TupleSpace::new(settings(8, 8, 10, 1));
    let (mut updates, flow) = (Vec::new(), flow(&mut rng));
    let rule = |tuple, priority, value| Rule { pattern: Pattern::new(tuple, flow.key()), priority, value };
    space.insert_rule(&rule(Tuple::EXACT, 1, 5), &mut updates).unwrap();
    assert_eq!(space.export().lookup(flow.key()), 5);
    space.insert_rule(&rule(Tuple::ANY, 2, 0), &mut updates).unwrap();
    assert_eq!(space.export().lookup(flow.key()), 0);
    space.insert_rule(&rule(Tuple::ANY, 1, 0), &mut updates).unwrap();
    assert_eq!(space.export().lookup(flow.key()), 5, "of equal priorities the rule that looks at more bits wins");
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let mut rng = Rng::new(seed());
    let mut space = TupleSpace::new(settings(4, 3, 2, 1));
    let mut updates = Vec::new();
    let mut rule = |priority, value| Rule { pattern: Pattern::new(Tuple::EXACT, [rng.next_u64(), 6]), priority, value };
    let (first, second) = (rule(7, 15), rule(0, 0));
    space.insert_rules(&[first, second], &mut updates).unwrap();
    updates.clear();
    let wide = |value, value_bits| Err(InsertError::ValueTooWide { value, value_bits });
    assert_eq!(space.insert_rule(&rule(0, 16), &mut updates), wide(16, 4));
    assert_eq!(space.insert_rule(&rule(8, 1), &mut updates), wide(8, 3));
    assert_eq!(space.insert_rule(&rule(1, 1), &mut updates), Err(InsertError::TooManyNames { max: 2 }));
    assert_eq!(space.insert([1, 1 << 40], 1, &mut updates), Err(InsertError::NameTooLong { name_bytes: 13 }));
    assert_eq!((space.len(), space.skeleton().n_tuples(), updates.len()), (2, 1, 0));
    assert_eq!(space.rule(&first.pattern), Some(first));
    space.insert_rule(&first, &mut updates).unwrap();
    assert!(updates.is_empty(), "a rule that is in as it is causes no message");
}

/// The digest of a structure that has applied an update.
fn digest_after(update: &Update) -> u64 {
    match update {
        Update::Change(change) => change.digest,
        Update::Whole(image) => image.digest,
    }
}

#[test]
fn lost_and_damaged_updates_are_refused_and_change_nothing() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let settings = settings(8, 4, 1_000, seed);
    let mut space = TupleSpace::new(settings.clone());
    let mut updates = Vec::new();
    for _ in 0..200 {
        let rule = Rule { pattern: pattern(&mut rng), priority: rng.below(16) as u32, value: rng.below(256) };
        space.insert_rule(&rule, &mut updates).unwrap();
    }
    let mut follower = TupleSpace::new(settings.clone()).export();
    assert!(matches!(follower.apply(&updates[1]), Err(ApplyError::Gap { current: 0, from: 1, .. })));
    let keys: Vec<_> = (0..100).map(|_| flow(&mut rng).key()).collect();
    let (mut before, mut after) = (vec![0; 100], vec![0; 100]);
    updates.push(Update::Whole(space.export().image()));
    for update in &updates {
        let mut bytes = Vec::new();
        update.encode(&settings, &mut bytes);
        for _ in 0..10 {
            let mut damaged = bytes.clone();
            match rng.below(3) {
                0 => damaged.truncate(rng.below(bytes.len() as u64) as usize),
                1 => damaged.push(0),
                _ => damaged[rng.below(bytes.len() as u64) as usize] ^= 1 << rng.below(8),
            }
            let Ok(damaged) = Update::decode(&settings, &damaged) else { continue };
            let held = follower.held();
            follower.lookup_batch(&keys, &mut before);
            // A damaged version may be old, follow a gap, or be harmless: the digest covers contents.
            if digest_after(&damaged) != digest_after(update) {
                assert_ne!(follower.apply(&damaged), Ok(Applied::Applied), "seed {seed}");
                follower.lookup_batch(&keys, &mut after);
                assert_eq!((held, &before), (follower.held(), &after), "seed {seed}");
            }
        }
        let _ = follower.apply(update).unwrap();
    }
    assert_eq!(follower.held(), space.export().held());
}

#[test]
fn thirty_turnovers_at_full_capacity_lose_no_rule_and_no_room() {
    const N_RULES: usize = 2_000;
    let seed = seed();
    let mut rng = Rng::new(seed);
    let settings = settings(8, 8, N_RULES, seed);
    let mut space = TupleSpace::new(settings.clone());
    let mut follower = space.export();
    let random = |rng: &mut Rng| Rule {
        pattern: Pattern::new(tuple(rng).destination(32), [rng.next_u64(), rng.next_u64() & 0xFF_FFFF_FFFF]),
        priority: rng.below(256) as u32,
        value: rng.below(256),
    };
    let mut rules = Vec::new();
    let mut updates = Vec::new();
    while rules.len() < N_RULES {
        rules.push(random(&mut rng));
        space.insert_rule(rules.last().unwrap(), &mut updates).unwrap();
    }
    let mut n_bytes = 0;
    for turn in 0..30 * N_RULES {
        let index = rng.below(N_RULES as u64) as usize;
        assert!(space.remove_rule(&rules[index].pattern, &mut updates));
        rules[index] = random(&mut rng);
        space.insert_rule(&rules[index], &mut updates).unwrap_or_else(|error| panic!("seed {seed}, {turn}: {error}"));
        for update in updates.drain(..) {
            assert_eq!(follower.apply(&update), Ok(Applied::Applied));
            let mut bytes = Vec::new();
            update.encode(&settings, &mut bytes);
            n_bytes += bytes.len();
        }
    }
    assert_eq!(space.len(), N_RULES);
    for rule in &rules {
        let key = rule.pattern.key();
        assert_eq!(follower.lookup(key), best(rules.iter().copied(), key), "seed {seed}");
    }
    let bits_a_rule = follower.size_bits() as f64 / N_RULES as f64;
    println!(
        "{} tuples, {bits_a_rule:.1} bits a rule, {:.1} bytes an update",
        follower.n_tuples(),
        n_bytes as f64 / (60 * N_RULES) as f64
    );
    assert!(bits_a_rule < 300.0, "{bits_a_rule} bits a rule");
    assert_eq!(follower.held(), space.export().held());
}

#[test]
fn readers_never_see_a_flow_between_two_rules() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut space = TupleSpace::new(settings(8, 8, 100_000, seed));
    let flow = flow(&mut rng);
    let rule = |tuple: Tuple, value| Rule { pattern: Pattern::new(tuple, flow.key()), priority: value as u32, value };
    let both = [rule(Tuple::EXACT, 1), rule(Tuple::ANY.source(8), 2)];
    let mut updates = Vec::new();
    space.insert_rule(&both[0], &mut updates).unwrap();
    // Tuples that are tried first and match nothing: they make a burst long enough for updates to fall into it.
    for bits in 1..=30 {
        let pattern = Pattern::new(Tuple::ANY.source(bits).destination(bits), [u64::MAX, 0]);
        space.insert_rule(&Rule { pattern, priority: 255, value: 9 }, &mut updates).unwrap();
    }
    let mut query = space.export();
    updates.clear();
    for round in 0..20_000 {
        // The next rule is inserted before the last one is removed; occasionally the hash table grows in between.
        space.insert_rule(&both[(round + 1) % 2], &mut updates).unwrap();
        if round % 40 == 0 {
            let other = Pattern::new(Tuple::EXACT, [rng.next_u64(), 5]);
            space.insert_rule(&Rule { pattern: other, priority: 200, value: 9 }, &mut updates).unwrap();
        }
        assert!(space.remove_rule(&both[round % 2].pattern, &mut updates));
    }
    let (done, started) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let mut reader = query.reader();
        let (done, started) = (&done, &started);
        scope.spawn(move || {
            let (keys, mut values) = ([flow.key(); 40], [0; 40]);
            let mut n_bursts = 0u64;
            while !done.load(Ordering::Acquire) {
                reader.lookup_batch(&keys, &mut values);
                started.store(true, Ordering::Release);
                n_bursts += 1;
                assert!(values.iter().all(|&value| value == 1 || value == 2), "{values:?} after {n_bursts} bursts");
            }
        });
        while !started.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        for update in &updates {
            assert_eq!(query.apply(update), Ok(Applied::Applied));
        }
        done.store(true, Ordering::Release);
    });
}
