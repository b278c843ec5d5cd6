//! Models of readers in other programs under loom: every interleaving and every permitted stale read of one writer and
//! one reader that it does not know, and the same with one defect, which must be found.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p fibula-lookup --test loom_outside --release`, seconds once it is built;
//! `LOOM_MAX_PREEMPTIONS=20` before it for all interleavings.
#![cfg(loom)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fibula_lookup::publish::mutants::{self, Mutant};
use fibula_lookup::publish::outside::{Before, Counters, Undo};
use fibula_lookup::publish::{ANYWHERE, Entry, Journal};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

/// A wrong use of the primitives, as opposed to a defect in them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Misuse {
    Nothing,
    /// The writer does not count that it reuses memory.
    ReuseUncounted,
    /// It counts it after it has written.
    CountedAfterwards,
    /// The reader does not look at the counters.
    Unchecked,
    /// The writer notes what it changes after it has begun.
    NotedTooLate,
    /// It notes one word of two.
    OneWordNoted,
}

/// Whether the model fails with the defect. loom's report of the failure is ignored.
fn fails(mutant: Option<Mutant>, model: impl Fn() + Sync + Send + 'static) -> bool {
    mutants::with(mutant, || catch_unwind(AssertUnwindSafe(|| loom::model(model))).is_err())
}

/// Two blocks of two words; a version has equal words.
struct Table {
    counters: Counters,
    undo: Undo,
    entry: Entry,
    blocks: [[AtomicU64; 2]; 2],
}

impl Table {
    fn new() -> Self {
        let word = || AtomicU64::new(10);
        Self {
            counters: Counters::default(),
            undo: Undo::new(),
            entry: Entry::new(0),
            blocks: [[word(), word()], [word(), word()]],
        }
    }

    /// Both words of the first block, as an outside reader sees them.
    fn read(&self) -> Option<[u64; 2]> {
        self.counters.read_outside(&self.undo, |before| {
            [0, 1].map(|at| {
                let word = self.blocks[0][at].load(Relaxed);
                match before(at as u64) {
                    Before::Same => word,
                    Before::Was(word) => word,
                    Before::Unknown => panic!("two words are not too many"),
                }
            })
        })
    }

    fn fill(&self, block: usize, version: u64) {
        self.blocks[block].iter().for_each(|word| word.store(version, Relaxed));
    }
}

/// The writer publishes version 11 in the second block, and version 12 in the first, which it reuses.
fn reuse_model(misuse: Misuse, accepted: &'static AtomicUsize) -> impl Fn() + Sync + Send + 'static {
    move || {
        let table = Arc::new(Table::new());
        let reader = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let read = || {
                    let block = table.entry.load() as usize;
                    table.blocks[block].each_ref().map(|word| word.load(Relaxed))
                };
                let found = match misuse {
                    Misuse::Unchecked => Some(read()),
                    _ => table.counters.read_outside(&table.undo, |_| read()),
                };
                if let Some([first, second]) = found {
                    assert_eq!(first, second, "parts of two versions");
                    accepted.fetch_add(1, Relaxed);
                }
            })
        };
        table.fill(1, 11);
        table.entry.publish(1);
        // Here it waits for the readers that it knows: there are none.
        if !matches!(misuse, Misuse::ReuseUncounted | Misuse::CountedAfterwards) {
            table.counters.reuse.announce();
        }
        table.fill(0, 12);
        if misuse == Misuse::CountedAfterwards {
            table.counters.reuse.announce();
        }
        table.entry.publish(0);
        reader.join().unwrap();
    }
}

/// Changes both words in place. A writer that dies does not change the second one.
fn write(table: &Table, version: u64, dies: bool, misuse: Misuse) {
    let journal = &table.counters.journal;
    let n = if misuse == Misuse::OneWordNoted { 1 } else { 2 };
    let words: Vec<_> = (0..n).map(|at| (at as u64, table.blocks[0][at].load(Relaxed))).collect();
    let guard;
    if misuse == Misuse::NotedTooLate {
        guard = journal.write(ANYWHERE);
        table.undo.note(&Journal::new(), words);
    } else {
        table.undo.note(journal, words);
        guard = journal.write(ANYWHERE);
    }
    table.blocks[0][0].store(version, Relaxed);
    if !dies {
        table.blocks[0][1].store(version, Relaxed);
        guard.commit();
    }
}

/// The writer changes both words in place, twice; the second time it dies before it is done.
fn undo_model(misuse: Misuse, accepted: &'static AtomicUsize) -> impl Fn() + Sync + Send + 'static {
    move || {
        let table = Arc::new(Table::new());
        let reader = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                if let Some([first, second]) = table.read() {
                    assert_eq!(first, second, "half a write");
                    accepted.fetch_add(1, Relaxed);
                }
            })
        };
        write(&table, 11, false, misuse);
        write(&table, 12, true, misuse);
        reader.join().unwrap();
        // The writer is dead in the middle of its last write: that is undone for whoever reads now.
        let found = table.read();
        assert_eq!(found, Some([11, 11]), "the last whole version");
    }
}

static ACCEPTED: AtomicUsize = AtomicUsize::new(0);

#[test]
fn an_outside_reader_sees_one_version_or_reads_again() {
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    loom::model(reuse_model(Misuse::Nothing, &SEEN));
    assert!(SEEN.load(Relaxed) > 10, "{} reads accepted", SEEN.load(Relaxed));
}

#[test]
fn a_write_under_way_or_left_by_a_dead_writer_is_undone() {
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    // All interleavings take a minute and a half; those with three preemptions take seconds.
    let mut few = loom::model::Builder::new();
    few.preemption_bound = few.preemption_bound.or(Some(3));
    few.check(undo_model(Misuse::Nothing, &SEEN));
    assert!(SEEN.load(Relaxed) > 10, "{} reads accepted", SEEN.load(Relaxed));
}

#[test]
fn every_defect_of_reuse_is_found() {
    for mutant in Mutant::REUSE {
        assert!(fails(Some(mutant), reuse_model(Misuse::Nothing, &ACCEPTED)), "{mutant:?} passes");
    }
    for misuse in [Misuse::ReuseUncounted, Misuse::CountedAfterwards, Misuse::Unchecked] {
        assert!(fails(None, reuse_model(misuse, &ACCEPTED)), "{misuse:?} passes");
    }
}

#[test]
fn every_defect_of_the_note_is_found() {
    for mutant in Mutant::UNDO {
        assert!(fails(Some(mutant), undo_model(Misuse::Nothing, &ACCEPTED)), "{mutant:?} passes");
    }
    for misuse in [Misuse::NotedTooLate, Misuse::OneWordNoted] {
        assert!(fails(None, undo_model(misuse, &ACCEPTED)), "{misuse:?} passes");
    }
}

#[test]
fn a_note_that_is_too_small_says_so() {
    loom::model(|| {
        let table = Table::new();
        table.undo.note(&table.counters.journal, (0..3).map(|place| (place, 0)));
        let write = table.counters.journal.write(ANYWHERE);
        let found = table.counters.read_outside(&table.undo, |before| before(0));
        assert_eq!(found, Some(Before::Unknown));
        write.commit();
    });
}
