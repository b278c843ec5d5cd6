//! One real thread changes a Bloom forwarder at full speed, another looks up and checks every answer. A name that stays
//! has its value, a name that moves has one of its two, while other names are inserted and removed and make exceptions
//! of them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fibula_lookup::bloom_fib::{BloomFib, Form, Policy, Settings};
use fibula_lookup::hash::{Digest, SecretKey, mix64};
use fibula_lookup::testkit::{Rng, seed};
use fibula_lookup::traits::{ApplyError, BatchReader, Control, Query, Undivided};

/// Names below this keep their value forever; the next as many move between two values; the rest come and go.
const N_STABLE: u64 = 400;
const BURST: usize = 32;

fn digest(number: u64) -> Digest {
    Digest(mix64(number))
}

fn value_of(number: u64) -> u64 {
    1 + number % 15
}

fn moved(number: u64) -> u64 {
    1 + (number + 7) % 15
}

/// Ends the other thread's loop, whether the test passes or panics.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whether `answer` is right for the name with this number.
fn is_right(number: u64, answer: u64) -> bool {
    match number / N_STABLE {
        0 => answer == value_of(number),
        1 => answer == value_of(number) || answer == moved(number),
        _ => unreachable!("only names that stay in are asked for"),
    }
}

/// Runs both threads until `n_answers` answers were checked.
fn run(mut control: BloomFib, seed: u64) {
    let n_answers: u64 = if std::env::var_os("FIBULA_DEEP").is_some() { 50_000_000 } else { 300_000 };
    let mut updates = Vec::new();
    for number in 0..2 * N_STABLE {
        control.insert(digest(number), value_of(number), &mut updates).unwrap();
    }
    let mut query = control.export();
    let mut reader = query.reader();
    let (done, n_updates) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (done, n_updates) = (&done, &n_updates);
        let _stop = StopAtEnd(done);
        let writer = scope.spawn(move || {
            let mut rng = Rng::new(seed);
            while !done.load(Ordering::Relaxed) {
                updates.clear();
                let number = 2 * N_STABLE + rng.below(N_STABLE);
                match rng.below(3) {
                    0 => {
                        let number = N_STABLE + rng.below(N_STABLE);
                        let new = if rng.below(2) == 0 { value_of(number) } else { moved(number) };
                        control.insert(digest(number), new, &mut updates).unwrap();
                    }
                    1 => control.insert(digest(number), value_of(number), &mut updates).unwrap(),
                    _ => {
                        control.remove(digest(number), &mut updates);
                    }
                }
                for update in &updates {
                    // The bound on old versions is reached. The reader need only do its next burst.
                    while let Err(error) = query.apply(update) {
                        assert!(matches!(error, ApplyError::ReadersStalled { .. }), "{error}");
                        std::thread::yield_now();
                    }
                }
                n_updates.fetch_add(updates.len() as u64, Ordering::Relaxed);
            }
        });
        let mut rng = Rng::new(seed ^ 1);
        let (mut numbers, mut names, mut values) = ([0; BURST], [Digest(0); BURST], [0; BURST]);
        let mut n_answered = 0;
        // Without a second idle core the writer may be scheduled late: the lookups go on until it has made some
        // updates.
        let too_few = || n_updates.load(Ordering::Relaxed) < n_answers / 300 && !writer.is_finished();
        while n_answered < n_answers || too_few() {
            n_answered += BURST as u64;
            for (number, name) in numbers.iter_mut().zip(&mut names) {
                *number = rng.below(2 * N_STABLE);
                *name = digest(*number);
            }
            reader.lookup_batch(&names, &mut values);
            for (&number, &answer) in numbers.iter().zip(&values) {
                assert!(is_right(number, answer), "seed {seed}: name {number} answers {answer}");
            }
        }
        reader.offline();
    });
}

#[test]
fn no_live_name_is_answered_wrongly_while_exceptions_come_and_go() {
    let seed = seed();
    for (policy, form) in [
        // So few bits that a third of the names are exceptions.
        (Policy::Bfw { hashes: 3 }, Form::Separate),
        (Policy::Buffalo { bits_a_name: 4, max_hashes: 8 }, Form::Sliced),
    ] {
        let key = SecretKey::from_seed(seed);
        let table = BloomFib::new(Settings::new(4, 10_000, policy, form, &key));
        run(table, seed);
    }
}
