//! One real thread updates at full speed, another looks up and checks every answer.
//!
//! 10^7 answers in all by default; `FIBULA_DEEP=1` checks 10^9.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fibula_lookup::hash::{Digest, SecretKey, mix64};
use fibula_lookup::line::{self, LineTable};
use fibula_lookup::othello::{Option2, Othello, Settings, Sharded, Sizing};
use fibula_lookup::testkit::{Rng, seed};
use fibula_lookup::traits::{ApplyError, BatchReader, Control, Query, Replicated};

/// Names below this keep their value forever; the next as many move between two values; the rest come and go.
const N_STABLE: u64 = 6_000;
const BURST: usize = 32;

fn name(number: u64) -> Digest {
    Digest(mix64(number))
}

fn stable_value(number: u64) -> u64 {
    1 + number % 99
}

fn apply<Q: Query>(query: &mut Q, update: &Q::Update) {
    loop {
        match query.apply(update) {
            Ok(_) => return,
            // The bound on old versions is reached. The reader need only do its next burst.
            Err(ApplyError::ReadersStalled { .. }) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Ends the other thread's loop, whether the test passes or panics.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn entries() -> Vec<(Digest, u64)> {
    (0..2 * N_STABLE).map(|n| (name(n), stable_value(n))).collect()
}

fn othello_stays_right<S: Sizing>(fingerprint_bits: u8, n_answers: u64) {
    let seed = seed();
    let settings = Settings::new(8, 100_000, &SecretKey::from_seed(seed)).with_fingerprints(fingerprint_bits);
    let (control, query) = Othello::<S>::build(settings, &entries(), 1).unwrap();
    let reader = query.reader();
    answers_stay_right(control, query, reader, n_answers, seed);
}

fn answers_stay_right<C>(
    mut control: C,
    mut query: C::Query,
    reader: impl BatchReader<[Digest]>,
    n_answers: u64,
    seed: u64,
) where
    C: Control<Key = Digest> + Send,
    C::Query: Send,
    <C::Query as Query>::Update: Send,
{
    let (done, n_updates) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (done, n_updates) = (&done, &n_updates);
        let _stop = StopAtEnd(done);
        // Dropped before `_stop`, so that a writer that waits for the reader stops, too.
        let mut reader = reader;
        let writer = scope.spawn(move || {
            let mut rng = Rng::new(seed);
            let mut updates = Vec::new();
            while !done.load(Ordering::Relaxed) {
                updates.clear();
                match rng.below(3) {
                    0 => {
                        let n = N_STABLE + rng.below(N_STABLE);
                        let value = stable_value(n) + 100 * rng.below(2);
                        control.insert(name(n), value, &mut updates).unwrap();
                    }
                    1 => control
                        .insert(name((2 + rng.below(3)) * N_STABLE + rng.below(N_STABLE)), 7, &mut updates)
                        .unwrap(),
                    _ => {
                        control.remove(name((2 + rng.below(3)) * N_STABLE + rng.below(N_STABLE)), &mut updates);
                    }
                }
                updates.iter().for_each(|update| apply(&mut query, update));
                n_updates.fetch_add(updates.len() as u64, Ordering::Relaxed);
            }
        });
        let mut rng = Rng::new(seed ^ 1);
        let (mut numbers, mut names, mut values) = ([0; BURST], [Digest(0); BURST], [0; BURST]);
        let mut n_answered = 0;
        // Without a second idle core the writer may be scheduled late: the lookups go on until it has made some
        // updates.
        let too_few = || n_updates.load(Ordering::Relaxed) < n_answers / 10_000 && !writer.is_finished();
        while n_answered < n_answers || too_few() {
            n_answered += BURST as u64;
            for (number, digest) in numbers.iter_mut().zip(&mut names) {
                *number = rng.below(2 * N_STABLE);
                *digest = name(*number);
            }
            if rng.below(2) == 0 {
                reader.lookup_batch(&names, &mut values);
            } else {
                // In flight a little longer.
                reader.begin(&names);
                (0..rng.below(100)).for_each(|_| std::hint::spin_loop());
                reader.finish(&names, &mut values);
            }
            for (&number, &value) in numbers.iter().zip(&values) {
                let expected = stable_value(number);
                let moved = number >= N_STABLE && value == expected + 100;
                let right = value == expected || moved;
                assert!(right, "seed {seed}: name {number} answers {value} instead of {expected}");
            }
        }
        reader.offline();
    });
}

fn n_answers(share: u64) -> u64 {
    let all: u64 = if std::env::var_os("FIBULA_DEEP").is_some() { 1_000_000_000 } else { 10_000_000 };
    all * share / 100
}

#[test]
fn answers_stay_right_under_updates() {
    othello_stays_right::<Sharded>(0, n_answers(40));
}

#[test]
fn answers_stay_right_under_updates_with_fingerprints() {
    othello_stays_right::<Sharded>(8, n_answers(40));
}

#[test]
fn answers_of_the_papers_size_stay_right_under_updates() {
    othello_stays_right::<Option2>(0, n_answers(20));
}

#[test]
fn answers_of_lines_stay_right_under_updates() {
    let seed = seed();
    let settings = line::Settings::new(8, 100_000, &SecretKey::from_seed(seed));
    let (control, query) = LineTable::build(settings, &entries(), 1).unwrap();
    let reader = query.reader();
    answers_stay_right(control, query, reader, n_answers(30), seed);
}

#[test]
fn a_reader_that_never_moves_on_stalls_updates_but_breaks_nothing() {
    let settings = Settings::new(64, 100_000, &SecretKey::from_seed(1));
    let entries: Vec<_> = (0..5_000).map(|n| (name(n), n + 1)).collect();
    let (mut control, mut query) = Othello::<Sharded>::build(settings, &entries, 1).unwrap();
    let mut reader = query.reader();
    let pinned = reader.pin();
    let mut updates = Vec::new();
    let stalled = 'stall: loop {
        // All names at once: new versions of all shards.
        updates.clear();
        let altered: Vec<_> = (0..5_000).map(|n| (name(n), control.get(name(n)).unwrap() + 5_000)).collect();
        control.insert_batch(&altered, &mut updates).unwrap();
        for (at, update) in updates.iter().enumerate() {
            match query.apply(update) {
                Ok(_) => {}
                Err(error @ ApplyError::ReadersStalled { .. }) => break 'stall (error, updates[at..].to_vec()),
                Err(error) => panic!("{error}"),
            }
        }
    };
    assert!(stalled.0.to_string().contains("let readers unpin"), "{}", stalled.0);
    let _ = pinned.lookup(name(3));
    reader.offline();
    assert_eq!(
        query.apply_batch(&stalled.1),
        (stalled.1.len(), Ok(())),
        "old versions are reclaimed once it is offline"
    );
    let _ = reader.pin();
    for n in 0..5_000 {
        assert_eq!(Some(query.lookup(name(n))), control.get(name(n)));
    }
}
