//! (2,4)-Cuckoo and CFW: slots read in order until one matches, lines counted as they are reached; names moved at
//! random until all have a place, so that a name is equally likely in each slot.

use std::collections::HashMap;

use fibula_fib::model::{Cfw, Cuckoo, Symbols};
use lookup::cuckoo::filtable::{FiltableSkeleton, Settings};
use lookup::hash::{Digest, SecretKey};
use lookup::testkit::Rng;
use lookup::traits::Skeleton;

use super::{Counts, Measured, costs_hold, hash, holds, measure, names, seed};

const SLOTS: u64 = 4;

/// The mark by which a slot is compared.
type Mark = fn(u64, u32) -> u64;

/// A table whose slots hold a mark of a name and its value.
struct Table {
    slots: Vec<Option<u64>>,
    slot_bits: u64,
    l_c: u64,
    /// The numbers of its two hash functions.
    functions: [u64; 2],
    mark: Mark,
    l_f: u32,
}

impl Table {
    fn n_buckets(&self) -> u64 {
        self.slots.len() as u64 / SLOTS
    }

    fn place(&mut self, names: &[u64], rng: &mut Rng) {
        for &name in names {
            let mut homeless = name;
            let mut bucket = self.bucket(homeless, rng.below(2) as usize);
            for moves in 0.. {
                assert!(moves < 100_000, "the table is too full");
                let free: Vec<u64> = (bucket * SLOTS..bucket * SLOTS + SLOTS)
                    .filter(|&slot| self.slots[slot as usize].is_none())
                    .collect();
                if !free.is_empty() {
                    self.slots[free[rng.below(free.len() as u64) as usize] as usize] = Some(homeless);
                    break;
                }
                let slot = (bucket * SLOTS + rng.below(SLOTS)) as usize;
                homeless = self.slots[slot].replace(homeless).expect("a full bucket");
                let first = self.bucket(homeless, 0);
                bucket = if first == bucket { self.bucket(homeless, 1) } else { first };
            }
        }
    }

    fn bucket(&self, name: u64, which: usize) -> u64 {
        hash(name, self.functions[which], self.n_buckets())
    }

    /// The name in the first slot that matches.
    fn find(&self, name: u64, counts: &Counts) -> Option<u64> {
        for which in 0..2 {
            let bucket = counts.hash(name, self.functions[which], self.n_buckets());
            let start = bucket * SLOTS * self.slot_bits;
            let mut seen = None;
            for slot in 0..SLOTS {
                let last = (start + (slot + 1) * self.slot_bits - 1) / self.l_c;
                counts.read(last - seen.unwrap_or(start / self.l_c) + u64::from(seen.is_none()));
                seen = Some(last);
                let found = self.slots[(bucket * SLOTS + slot) as usize];
                if let Some(found) = found.filter(|&found| (self.mark)(found, self.l_f) == (self.mark)(name, self.l_f))
                {
                    return Some(found);
                }
            }
        }
        None
    }
}

fn whole(name: u64, _: u32) -> u64 {
    name
}

fn fingerprint(name: u64, l_f: u32) -> u64 {
    hash(name, 2, 1 << l_f)
}

fn n_slots(n: usize, s: &Symbols) -> usize {
    (n as f64 / s.r_l / SLOTS as f64).ceil() as usize * SLOTS as usize
}

fn exact(live: &[u64], s: &Symbols, functions: [u64; 2], rng: &mut Rng) -> Table {
    let slots = vec![None; n_slots(live.len(), s)];
    let mut table = Table { slots, slot_bits: (s.l_k + s.l_p).into(), l_c: s.l_c, functions, mark: whole, l_f: 0 };
    table.place(live, rng);
    table
}

struct Forwarder {
    first: Table,
    second: Table,
    counts: Counts,
}

impl Forwarder {
    fn build(live: &[u64], model: &Cfw, rng: &mut Rng) -> Self {
        let s = &model.s;
        let slots = vec![None; n_slots((live.len() as f64 * model.e_eta()).round() as usize, s)];
        let slot_bits = (model.l_f + s.l_p).into();
        let mut first = Table { slots, slot_bits, l_c: s.l_c, functions: [0, 1], mark: fingerprint, l_f: model.l_f };
        // Names under each bucket and fingerprint: more than one, and all of them collide.
        let mut under: HashMap<(u64, u64), u32> = HashMap::new();
        let spots = |name: u64| {
            let mut buckets = vec![first.bucket(name, 0), first.bucket(name, 1)];
            buckets.dedup();
            buckets.into_iter().map(move |bucket| (bucket, fingerprint(name, model.l_f))).collect::<Vec<_>>()
        };
        live.iter().flat_map(|&name| spots(name)).for_each(|spot| *under.entry(spot).or_default() += 1);
        let (collide, alone): (Vec<u64>, Vec<u64>) =
            live.iter().copied().partition(|&name| spots(name).iter().any(|spot| under[spot] > 1));
        first.place(&alone, rng);
        // A few dozen names do not always fill a table to 0.95; its load does not matter here.
        let second = exact(&collide, &Symbols { r_l: 0.8, ..*s }, [3, 4], rng);
        Self { first, second, counts: Counts::default() }
    }

    fn lookup(&self, name: u64) -> Option<u64> {
        self.counts.hashes.set(self.counts.hashes.get() + 1); // The fingerprint.
        self.first.find(name, &self.counts).or_else(|| self.second.find(name, &self.counts))
    }
}

#[test]
fn full_names_cost_what_two_buckets_cost() {
    let mut rng = Rng::new(seed());
    for l_k in [48, 128] {
        let s = Symbols { n_k: 5_000.0, l_p: 8, l_k, ..Symbols::default() };
        let (mut valid, mut aliens) = (Vec::new(), Vec::new());
        for _ in 0..12 {
            let (live, others) = names(&mut rng, 5_000, 10_000);
            let table = exact(&live, &s, [0, 1], &mut rng);
            let counts = Counts::default();
            valid.push(measure(&live, 1.0, &counts, |name| table.find(name, &counts) != Some(name)));
            aliens.push(measure(&others, 1.0, &counts, |name| table.find(name, &counts).is_some()));
        }
        assert!(valid.iter().chain(&aliens).all(|one| one.wrong == 0.0));
        let model = Cuckoo { s };
        costs_hold(&format!("(2,4)-Cuckoo, l_k = {l_k}, names"), &valid, model.c_h(), model.c_m());
        costs_hold(&format!("(2,4)-Cuckoo, l_k = {l_k}, aliens"), &aliens, model.c_h_alien(), model.c_m_alien());
    }
}

fn check(l_f: u32, l_p: u32) {
    let mut rng = Rng::new(seed());
    // Slots of level 2 have 64 bits: it is too small for its buckets to begin equally often everywhere in a line.
    let model = Cfw { s: Symbols { n_k: 20_000.0, l_p, l_k: 64 - l_p, ..Symbols::default() }, l_f };
    let (mut valid, mut aliens) = (Vec::<Measured>::new(), Vec::<Measured>::new());
    let mut share = Vec::new();
    for _ in 0..24 {
        let (live, others) = names(&mut rng, 20_000, 20_000);
        let forwarder = Forwarder::build(&live, &model, &mut rng);
        share.push(forwarder.first.slots.iter().flatten().count() as f64 / 20_000.0);
        let counts = &forwarder.counts;
        valid.push(measure(&live, 1.0, counts, |name| forwarder.lookup(name) != Some(name)));
        aliens.push(measure(&others, 1.0, counts, |name| forwarder.lookup(name).is_some()));
    }
    assert!(valid.iter().all(|one| one.wrong == 0.0), "CR^c = 0");
    let what = format!("CFW, l_f = {l_f}, l_p = {l_p}");
    holds(&format!("{what}, E_eta"), share.into_iter(), model.e_eta());
    costs_hold(&format!("{what}, names"), &valid, model.c_h(), model.c_m());
    costs_hold(&format!("{what}, aliens"), &aliens, model.c_h_alien(), model.c_m_alien());
    holds(&format!("{what}, FP"), aliens.iter().map(|one| one.wrong), model.fp());
}

#[test]
fn two_levels_cost_what_equations_3_4_and_8_say() {
    check(10, 6);
    check(13, 8);
}

#[test]
fn short_fingerprints_and_buckets_that_straddle_lines_do_too() {
    check(7, 3);
    check(9, 8);
}

/// The product's own table: the share of its names in level 1, and that it does not depend on their number.
#[test]
fn e_eta_is_that_of_the_product_at_any_number_of_names() {
    let mut rng = Rng::new(seed());
    for (l_f, n, instances) in [(7u8, 4_000, 16), (10, 4_000, 16), (10, 40_000, 6), (13, 40_000, 6)] {
        let shares: Vec<f64> = (0..instances)
            .map(|instance| {
                let settings = Settings::new(6, l_f, n, &SecretKey::from_seed(instance));
                let mut skeleton = FiltableSkeleton::with_capacity(settings, n);
                let entries: Vec<_> = (0..n).map(|_| (Digest(rng.next_u64()), 1u64)).collect();
                _ = skeleton.insert_batch(&entries).unwrap();
                1.0 - skeleton.n_second() as f64 / n as f64
            })
            .collect();
        let model = Cfw { s: Symbols { l_p: 6, ..Symbols::default() }, l_f: l_f.into() };
        holds(&format!("Filtable, l_f = {l_f}, {n} names, E_eta"), shares.into_iter(), model.e_eta());
    }
}
