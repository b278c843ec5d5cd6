//! Flow tables after many turnovers: nothing is lost, nothing fails, and the hint stays accurate.

use fibula_lookup::flow::{
    CuckooPlusPlus, Horton, Inline, Optimistic, Pessimistic, Policy, Published, Settings, Split, Table, Timed,
};
use fibula_lookup::hash::{Digest, Family, SecretKey};
use fibula_lookup::testkit::{Rng, seed};
use flow_names::Named;

use super::flow_names;

fn settings(capacity: usize, seed: u64) -> Settings {
    let key = SecretKey::from_seed(seed);
    Settings { capacity, max_capacity: capacity, family: Family::default(), key, now: 0 }
}

/// A table at `load`, and the names in it.
struct Churned<L: Named, P: Policy> {
    table: Table<L, P>,
    names: Vec<u64>,
    next: u64,
    rng: Rng,
}

impl<L: Named, P: Policy> Churned<L, P> {
    fn filled(capacity: usize, load: f64, seed: u64) -> Self {
        let table = Table::new(&settings(capacity, seed)).unwrap();
        let capacity = table.capacity();
        let mut churned = Self { table, names: Vec::new(), next: 0, rng: Rng::new(seed) };
        while (churned.names.len() as f64) < load * capacity as f64 {
            churned.add();
        }
        churned
    }

    fn add(&mut self) {
        let key = L::key_of(self.next);
        let digest = self.table.digest(&key);
        self.table.insert(&key, digest, &L::value_of(self.next), 1000, |_, _| {}).unwrap();
        self.names.push(self.next);
        self.next += 1;
    }

    /// Replaces random flows, one after another, `n` times as many as the table has.
    fn turn_over(&mut self, n: usize) {
        for _ in 0..n * self.names.len() {
            let victim = self.rng.below(self.names.len() as u64) as usize;
            let name = self.names.swap_remove(victim);
            let key = L::key_of(name);
            let value = self.table.remove(&key, self.table.digest(&key));
            assert!(value.is_some_and(|value| L::is_equal(&value, &L::value_of(name))), "{}: {name}", P::NAME);
            self.add();
        }
    }

    fn check(&self) {
        let audit = self.table.audit().unwrap_or_else(|error| panic!("{}: {error}", P::NAME));
        assert_eq!(audit.n_entries, self.names.len());
        let keys: Vec<_> = self.names.iter().map(|&name| L::key_of(name)).collect();
        let (mut digests, mut slots) = (vec![Digest(0); keys.len()], vec![None; keys.len()]);
        self.table.digests(&keys, &mut digests);
        self.table.lookup_batch(&keys, &digests, &mut slots);
        for (&name, slot) in self.names.iter().zip(slots) {
            let value = self.table.value(slot.unwrap_or_else(|| panic!("{}: {name} is lost", P::NAME)));
            assert!(L::is_equal(value, &L::value_of(name)), "{}: {name}", P::NAME);
        }
    }

    /// Share of absent flows for which the hint sends a lookup to the second bucket.
    fn hint_rate(&self) -> f64 {
        let n = 1_000_000;
        let hits =
            (0..n).filter(|&name| self.table.reads_second(self.table.digest(&L::key_of(name | 1 << 31)))).count();
        hits as f64 / n as f64
    }

    fn report(&self, when: &str) {
        let audit = self.table.audit().unwrap();
        let secondary = audit.n_secondary as f64 / audit.n_entries as f64;
        println!("{:14} {} {when}: hint {:.5}, in second bucket {secondary:.3}", P::NAME, L::LAYOUT, self.hint_rate());
    }
}

fn churn<L: Named, P: Policy>(capacity: usize, load: f64, turnovers: usize) -> f64 {
    let mut churned = Churned::<L, P>::filled(capacity, load, seed());
    churned.check();
    churned.report(&format!("load {load}, filled"));
    churned.turn_over(turnovers);
    churned.check();
    churned.report(&format!("load {load}, {turnovers} turnovers"));
    churned.hint_rate()
}

#[test]
fn no_insert_fails_and_nothing_is_lost_at_load_095() {
    churn::<Split<2, 2>, CuckooPlusPlus>(1 << 16, 0.95, 3);
    churn::<Split<2, 2>, Timed>(1 << 16, 0.95, 3);
    churn::<Split<2, 2>, Optimistic>(1 << 16, 0.95, 3);
    churn::<Split<2, 2>, Pessimistic>(1 << 16, 0.95, 3);
    churn::<Split<2, 2>, Horton>(1 << 16, 0.95, 3);
    churn::<Split<2, 2>, Published>(1 << 16, 0.95, 3);
    churn::<Inline<4, 4>, Timed>(1 << 16, 0.95, 3);
    churn::<Inline<6, 2>, CuckooPlusPlus>(1 << 16, 0.95, 3);
}

#[test]
fn flows_in_their_second_bucket_are_removed_without_loss_of_others() {
    // The published code looks for the records of such a flow in the wrong bucket: after this, 1.6 % are not found.
    let mut churned = Churned::<Split<2, 2>, CuckooPlusPlus>::filled(1 << 16, 0.9, seed());
    churned.turn_over(3);
    churned.check();
}

#[test]
fn the_filter_stays_sharp_over_30_turnovers() {
    let rate = churn::<Split<2, 2>, CuckooPlusPlus>(1 << 15, 0.95, 30);
    assert!(rate < 0.01, "{rate}");
    let rate = churn::<Split<2, 2>, Timed>(1 << 15, 0.8, 30);
    assert!(rate < 0.004, "{rate}");
    // Half as many bits for the records of five slots.
    let rate = churn::<Inline<4, 4>, Timed>(1 << 15, 0.95, 30);
    assert!(rate < 0.03, "{rate}");
}

#[test]
fn the_remap_array_is_right_after_30_turnovers() {
    churn::<Split<2, 2>, Horton>(1 << 15, 0.95, 30);
}

/// Share of the flows in their second bucket after turnovers, and after a round of moves back.
fn come_home<L: Named, P: Policy>(load: f64) -> (f64, f64) {
    let mut churned = Churned::<L, P>::filled(1 << 15, load, seed());
    churned.turn_over(3);
    let share = |churned: &Churned<L, P>| {
        churned.check();
        churned.table.audit().unwrap().n_secondary as f64 / churned.names.len() as f64
    };
    let before = share(&churned);
    let (mut n_moved, mut n_left) = (0, usize::MAX);
    while n_left > 0 {
        let progress = churned.table.rehome(3);
        assert!(progress.n_moved <= 3 * 8, "a step of three buckets is bounded");
        (n_moved, n_left) = (n_moved + progress.n_moved, progress.n_buckets_left);
    }
    let after = share(&churned);
    churned.report(&format!("load {load}, brought home"));
    assert_eq!(((before - after) * churned.names.len() as f64).round() as usize, n_moved);
    churned.table.rehome(usize::MAX);
    churned.check();
    churned.report(&format!("load {load}, brought home twice"));
    (before, after)
}

#[test]
fn flows_come_back_to_their_first_bucket() {
    for (before, after) in [
        come_home::<Split<2, 2>, Timed>(0.8),
        come_home::<Split<2, 2>, CuckooPlusPlus>(0.8),
        come_home::<Inline<4, 4>, Timed>(0.7),
    ] {
        assert!(before > 0.2 && after < 0.6 * before, "{before} in their second bucket, {after} after a round");
    }
    let (before, after) = come_home::<Split<2, 2>, Timed>(0.95);
    assert!(before > 0.35 && after < 0.8 * before, "{before} in their second bucket, {after} after a round");
    come_home::<Split<2, 2>, Horton>(0.95);
    come_home::<Split<1, 1>, Optimistic>(0.9);
}
