//! Models of `publish` under loom: every interleaving and every permitted stale read of one writer and one reader, and
//! the same with one defect, which must be found.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p fibula-lookup --test loom_publish --release`, seconds once it is built.
//!
//! loom has said "ok" to broken protocols before (its SeqCst *accesses* are no stronger than AcqRel, so it can only be
//! too strict there; its SeqCst *fences* also synchronise like a lock, so it can be too lenient behind them). The
//! proofs here use SeqCst fences alone, and only for store-load order. Each of them, like each ordering and each step,
//! is removed by a mutant that fails.
#![cfg(loom)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fibula_lookup::publish::mutants::{self, Mutant};
use fibula_lookup::publish::{ANYWHERE, Domain, Entry, Journal, ReaderSlot, Sequence};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

/// A wrong use of the primitives by the query structure, as opposed to a defect in them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Misuse {
    Nothing,
    /// The writer reuses the old version at once.
    ReusedBeforePassed,
    /// The writer advances before it unpublishes.
    AdvancedBeforeUnpublishing,
    /// The reader loads the entry once per cell instead of once per lookup.
    EntryLoadedTwice,
    /// The reader continues to use a version after its next pin.
    KeptOverPin,
    /// The reader continues to use what it loaded for a burst after it has finished that burst.
    KeptOverFinish,
    /// The reader reads while it is offline.
    ReadOffline,
    /// The writer stores a cell in place on which a live name's answer depends.
    LiveCellInPlace,
    /// The reader of lines accepts what it read, whether the counter moved or not.
    LinesUnvalidated,
    /// It does not read a bumped name again, because its first line was not written.
    BumpedTakenAsRead,
    /// It accepts what it read again without validation.
    ReadAgainUnvalidated,
    /// The writer of lines writes the two lines under separate counts.
    LinesWrittenApart,
    /// It records one place of two.
    OnePlaceNoted,
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    loom::model(model);
}

/// Whether the model fails with the defect. loom's report of the failure is ignored.
fn fails(mutant: Option<Mutant>, model: impl Fn() + Sync + Send + 'static) -> bool {
    mutants::with(mutant, || catch_unwind(AssertUnwindSafe(|| check(model))).is_err())
}

/// Runs the model with the defect, and requires it to fail.
fn must_fail(what: &dyn std::fmt::Debug, mutant: Option<Mutant>, model: impl Fn() + Sync + Send + 'static) {
    assert!(fails(mutant, model), "the model does not notice {what:?}");
    println!("found: {what:?}");
}

/// Two versions of memory, each a pair of equal words if it is whole. Unsynchronised cells: loom reports any race.
struct Memory {
    entry: Entry,
    versions: [[UnsafeCell<u64>; 2]; 2],
    domain: Domain,
}

// SAFETY: that the protocol keeps accesses to the cells apart is what the models show; loom panics where it does not.
#[expect(unsafe_code, reason = "loom's cells are not Sync; loom itself checks that they are not raced for")]
unsafe impl Sync for Memory {}

impl Memory {
    fn new() -> Memory {
        let version = || [UnsafeCell::new(0), UnsafeCell::new(0)];
        Memory { entry: Entry::new(0), versions: [version(), version()], domain: Domain::new() }
    }

    #[expect(unsafe_code, reason = "dereferences loom's checked pointer")]
    fn read(&self, version: u64, cell: usize) -> u64 {
        // SAFETY: loom panics on a read that races with a write.
        self.versions[version as usize][cell].with(|value| unsafe { *value })
    }

    #[expect(unsafe_code, reason = "dereferences loom's checked pointer")]
    fn write(&self, version: u64, value: u64) {
        for cell in &self.versions[version as usize] {
            // SAFETY: loom panics on a write that races with any other access.
            cell.with_mut(|old| unsafe { *old = value });
        }
    }

    /// Writes version 1, publishes it, and reuses version 0 if its readers have released it by then. Returns whether it
    /// did.
    fn writer(&self, misuse: Misuse) -> bool {
        self.write(1, 1);
        let early = (misuse == Misuse::AdvancedBeforeUnpublishing).then(|| self.domain.advance());
        self.entry.publish(1);
        let epoch = early.unwrap_or_else(|| self.domain.advance());
        let reuses = self.domain.passed(epoch) || misuse == Misuse::ReusedBeforePassed;
        if reuses {
            self.write(0, 2);
            self.entry.publish(0);
        }
        reuses
    }

    /// One lookup, which must see one whole version.
    fn lookup(&self, misuse: Misuse) -> u64 {
        let version = self.entry.load();
        let again = if misuse == Misuse::EntryLoadedTwice { self.entry.load() } else { version };
        self.read_whole([version, again]);
        version
    }

    /// Reads a cell of each of two versions, which must be the same.
    fn read_whole(&self, [version, again]: [u64; 2]) {
        assert_eq!(self.read(version, 0), self.read(again, 1), "a mixture of versions");
    }
}

/// (i) Versioned publication: `bursts` bursts of one lookup each by a reader that stays online.
fn versions_model(misuse: Misuse, reused: &'static AtomicUsize) -> impl Fn() + Sync + Send + 'static {
    move || {
        let memory = Arc::new(Memory::new());
        let mut slot = memory.domain.register();
        let reader = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                slot.pin();
                let version = memory.lookup(misuse);
                slot.pin();
                if misuse == Misuse::KeptOverPin {
                    memory.read(version, 0);
                }
                memory.lookup(misuse);
            })
        };
        reused.fetch_add(usize::from(memory.writer(misuse)), Relaxed);
        reader.join().expect("the reader ends");
    }
}

/// (ii) A reader that sleeps between two bursts.
fn offline_model(misuse: Misuse, reused: &'static AtomicUsize) -> impl Fn() + Sync + Send + 'static {
    move || {
        let memory = Arc::new(Memory::new());
        let mut slot = memory.domain.register();
        let reader = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                burst(&memory, &mut slot, misuse);
                slot.offline();
                if misuse == Misuse::ReadOffline {
                    memory.lookup(misuse);
                }
                burst(&memory, &mut slot, misuse);
            })
        };
        reused.fetch_add(usize::from(memory.writer(misuse)), Relaxed);
        reader.join().expect("the reader ends");
    }
}

fn burst(memory: &Memory, slot: &mut ReaderSlot, misuse: Misuse) {
    let _pin = slot.pin();
    memory.lookup(misuse);
}

/// A reader that begins a second burst before it finishes the first: what it loaded for each stays until that burst is
/// finished.
fn in_flight_model(misuse: Misuse, reused: &'static AtomicUsize) -> impl Fn() + Sync + Send + 'static {
    move || {
        let memory = Arc::new(Memory::new());
        let mut slot = memory.domain.register();
        let reader = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                let mut begin = || {
                    slot.begin();
                    memory.entry.load()
                };
                let (first, second) = (begin(), begin());
                memory.read_whole([first; 2]);
                slot.finish();
                if misuse == Misuse::KeptOverFinish {
                    memory.read(first, 0);
                }
                memory.read_whole([second; 2]);
                slot.finish();
            })
        };
        reused.fetch_add(usize::from(memory.writer(misuse)), Relaxed);
        reader.join().expect("the reader ends");
    }
}

/// A reader that registers while the writer runs, and leaves before the writer ends.
fn late_reader_model(reused: &'static AtomicUsize) -> impl Fn() + Sync + Send + 'static {
    move || {
        let memory = Arc::new(Memory::new());
        let reader = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                let mut slot = memory.domain.register();
                burst(&memory, &mut slot, Misuse::Nothing);
            })
        };
        reused.fetch_add(usize::from(memory.writer(Misuse::Nothing)), Relaxed);
        reader.join().expect("the reader ends");
    }
}

/// Two readers, both online from the start: the writer must wait for the slower.
fn two_readers_model(misuse: Misuse, reused: &'static AtomicUsize) -> impl Fn() + Sync + Send + 'static {
    move || {
        let memory = Arc::new(Memory::new());
        let readers = [0, 1].map(|_| {
            let memory = Arc::clone(&memory);
            let mut slot = memory.domain.register();
            slot.pin();
            thread::spawn(move || {
                memory.lookup(misuse);
                slot.pin();
            })
        });
        reused.fetch_add(usize::from(memory.writer(misuse)), Relaxed);
        for reader in readers {
            reader.join().expect("the reader ends");
        }
    }
}

/// (iii) In place: cells a and b hold the answer 1 ^ 2 of a live name. Cell c is isolated. It gives a new name, which
/// reads a and c, its answer.
fn in_place_model(misuse: Misuse) -> impl Fn() + Sync + Send + 'static {
    move || {
        let cells = Arc::new([1, 2, 0].map(AtomicU64::new));
        let reader = {
            let cells = Arc::clone(&cells);
            thread::spawn(move || {
                let [a, b, c] = cells.each_ref().map(|cell| cell.load(Relaxed));
                assert_eq!(a ^ b, 3, "a live name's answer changed");
                assert!([1, 9].contains(&(a ^ c)), "the new name's answer is neither alien nor its own");
            })
        };
        cells[2].store(8, Relaxed);
        if misuse == Misuse::LiveCellInPlace {
            cells[0].store(5, Relaxed);
            cells[1].store(6, Relaxed);
        }
        reader.join().expect("the reader ends");
    }
}

/// (iv) The sequence counter: `n_writes` writes, and a reader that tries `n_reads` times and must accept only whole
/// pairs.
fn sequence_model(n_writes: u64, n_reads: u32, accepted: &'static AtomicUsize) -> impl Fn() + Sync + Send + 'static {
    move || {
        let shared = Arc::new((Sequence::new(), [AtomicU64::new(0), AtomicU64::new(0)]));
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (sequence, cells) = &*shared;
                let mut newest = 0;
                for _ in 0..n_reads {
                    let Some(stamp) = sequence.read_begin() else { continue };
                    let [a, b] = cells.each_ref().map(|cell| cell.load(Relaxed));
                    if sequence.read_validate(stamp) {
                        assert_eq!(a, b, "half a write");
                        assert!(a >= newest, "time ran backwards");
                        newest = a;
                        accepted.fetch_add(1, Relaxed);
                    }
                }
            })
        };
        let (sequence, cells) = &*shared;
        for value in 1..=n_writes {
            let write = sequence.write();
            cells.iter().for_each(|cell| cell.store(value, Relaxed));
            write.commit();
        }
        reader.join().expect("the reader ends");
    }
}

/// (v) The journal: a write at each of two places, and a reader of `place` that accepts what it read if it overlapped
/// neither write, or only the other one.
fn journal_model(place: u64, beside: &'static AtomicUsize) -> impl Fn() + Sync + Send + 'static {
    move || {
        let places = [0, 1].map(|_| [AtomicU64::new(0), AtomicU64::new(0)]);
        let shared = Arc::new((Journal::new(), places));
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (journal, places) = &*shared;
                let since = journal.begin();
                let [a, b] = places[place as usize].each_ref().map(|cell| cell.load(Relaxed));
                let met = !journal.is_unchanged(since);
                if !met || !journal.written(since).is_at(place) {
                    assert_eq!(a, b, "half a write");
                    beside.fetch_add(usize::from(met), Relaxed);
                }
            })
        };
        let (journal, places) = &*shared;
        for (place, cells) in places.iter().enumerate() {
            let write = journal.write(place as u64);
            cells.iter().for_each(|cell| cell.store(1, Relaxed));
            write.commit();
        }
        reader.join().expect("the reader ends");
    }
}

/// (vi) Lines: one write of both lines bumps a name from a first line to a second one, and a write of the second line
/// alone gives it another tweak. The first line has a header, which says whether it keeps the name, and a cell; the
/// second has a tweak and a cell whose XOR is the value. The reader reads under the journal. If the writer wrote
/// meanwhile, it reads again a name of a written line, and any bumped name. It answers 7 or, if the writer interfered
/// both times, nothing.
fn lines_model(misuse: Misuse, answered: &'static AtomicUsize) -> impl Fn() + Sync + Send + 'static {
    const KEEPS: u64 = 1;
    const VALUE: u64 = 7;
    const FIRST: u64 = 0;
    const SECOND: u64 = 1;
    move || {
        let lines = [[KEEPS, VALUE], [0, 0]].map(|line| line.map(AtomicU64::new));
        let shared = Arc::new((Journal::new(), lines));
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (journal, [first, second]) = &*shared;
                let one = || match first[0].load(Relaxed) {
                    KEEPS => (first[1].load(Relaxed), false),
                    _ => (second[0].load(Relaxed) ^ second[1].load(Relaxed), true),
                };
                let since = journal.begin();
                let (found, bumped) = one();
                let stands = misuse == Misuse::LinesUnvalidated
                    || journal.is_unchanged(since)
                    || (!journal.written(since).is_at(FIRST) && (!bumped || misuse == Misuse::BumpedTakenAsRead));
                let again = || {
                    let stamp = journal.sequence().read_begin()?;
                    let found = one().0;
                    let stands = misuse == Misuse::ReadAgainUnvalidated || journal.sequence().read_validate(stamp);
                    stands.then_some(found)
                };
                if let Some(answer) = if stands { Some(found) } else { again() } {
                    assert_eq!(answer, VALUE, "a mixture of two versions of lines");
                    answered.fetch_add(1, Relaxed);
                }
            })
        };
        let (journal, [first, second]) = &*shared;
        let mut write = journal.write(if misuse == Misuse::OnePlaceNoted { SECOND } else { ANYWHERE });
        first[0].store(0, Relaxed);
        first[1].store(0, Relaxed);
        if misuse == Misuse::LinesWrittenApart {
            write.commit();
            write = journal.write(SECOND);
        }
        second[1].store(VALUE, Relaxed);
        write.commit();
        let write = journal.write(SECOND);
        second[0].store(1, Relaxed);
        second[1].store(VALUE ^ 1, Relaxed);
        write.commit();
        reader.join().expect("the reader ends");
    }
}

/// A counter for what a test does not count.
static UNCOUNTED: AtomicUsize = AtomicUsize::new(0);

#[test]
fn a_version_is_seen_whole_and_reused_only_when_unread() {
    static REUSED: AtomicUsize = AtomicUsize::new(0);
    check(versions_model(Misuse::Nothing, &REUSED));
    assert!(REUSED.load(Relaxed) > 0, "no execution reused memory: the model shows nothing");
}

#[test]
fn a_sleeping_reader_neither_blocks_the_writer_nor_wakes_to_reused_memory() {
    static REUSED: AtomicUsize = AtomicUsize::new(0);
    check(offline_model(Misuse::Nothing, &REUSED));
    assert!(REUSED.load(Relaxed) > 0, "no execution reused memory: the model shows nothing");
}

#[test]
fn what_a_burst_in_flight_loaded_is_not_reused() {
    static REUSED: AtomicUsize = AtomicUsize::new(0);
    check(in_flight_model(Misuse::Nothing, &REUSED));
    assert!(REUSED.load(Relaxed) > 0, "no interleaving reuses memory");
}

#[test]
fn a_reader_may_come_and_go_while_the_writer_works() {
    static REUSED: AtomicUsize = AtomicUsize::new(0);
    check(late_reader_model(&REUSED));
    assert!(REUSED.load(Relaxed) > 0, "no execution reused memory: the model shows nothing");
}

#[test]
fn the_writer_waits_for_the_slowest_reader() {
    static REUSED: AtomicUsize = AtomicUsize::new(0);
    // Three threads in full take minutes; few defects need more than three preemptions to show.
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(3);
    bounded.check(two_readers_model(Misuse::Nothing, &REUSED));
    assert!(REUSED.load(Relaxed) > 0, "no execution reused memory: the model shows nothing");
}

#[test]
fn an_isolated_cell_may_be_stored_in_place() {
    check(in_place_model(Misuse::Nothing));
}

#[test]
fn the_sequence_counter_accepts_whole_writes_only() {
    static ACCEPTED: AtomicUsize = AtomicUsize::new(0);
    // Two of both would take minutes and find nothing more.
    check(sequence_model(2, 1, &ACCEPTED));
    check(sequence_model(1, 2, &ACCEPTED));
    assert!(ACCEPTED.load(Relaxed) > 0, "no execution accepted a read: the model shows nothing");
}

#[test]
fn what_was_written_elsewhere_is_read_once() {
    static BESIDE: AtomicUsize = AtomicUsize::new(0);
    check(journal_model(0, &BESIDE));
    check(journal_model(1, &BESIDE));
    assert!(BESIDE.load(Relaxed) > 0, "no execution met a write elsewhere: the model shows nothing");
}

#[test]
fn a_burst_of_lines_sees_one_version_or_reads_again() {
    static ANSWERED: AtomicUsize = AtomicUsize::new(0);
    // In full it takes a minute.
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(3);
    bounded.check(lines_model(Misuse::Nothing, &ANSWERED));
    assert!(ANSWERED.load(Relaxed) > 0, "no execution answered: the model shows nothing");
}

#[test]
fn every_defect_of_the_domain_is_found() {
    for mutant in Mutant::VERSIONS {
        let asleep = matches!(
            mutant,
            Mutant::OfflineRelaxed | Mutant::OnlineUnannounced | Mutant::OnlineUnfenced | Mutant::ScanUnfenced
        );
        if asleep {
            must_fail(&mutant, Some(mutant), offline_model(Misuse::Nothing, &UNCOUNTED));
        } else {
            must_fail(&mutant, Some(mutant), versions_model(Misuse::Nothing, &UNCOUNTED));
        }
    }
}

#[test]
fn every_defect_of_bursts_in_flight_is_found() {
    for mutant in Mutant::IN_FLIGHT {
        must_fail(&mutant, Some(mutant), in_flight_model(Misuse::Nothing, &UNCOUNTED));
    }
}

#[test]
fn every_defect_of_the_sequence_counter_is_found() {
    for mutant in Mutant::SEQUENCE {
        must_fail(&mutant, Some(mutant), sequence_model(2, 1, &UNCOUNTED));
    }
}

#[test]
fn every_defect_of_the_journal_is_found() {
    for mutant in Mutant::JOURNAL {
        let notices = |&place: &u64| fails(Some(mutant), journal_model(place, &UNCOUNTED));
        let place = [0, 1].into_iter().find(notices);
        println!("found: {mutant:?} by the reader of place {}", place.expect("no model notices the defect"));
    }
}

#[test]
fn every_misuse_is_found() {
    use Misuse::*;
    for misuse in [ReusedBeforePassed, AdvancedBeforeUnpublishing, EntryLoadedTwice, KeptOverPin] {
        must_fail(&misuse, None, versions_model(misuse, &UNCOUNTED));
    }
    must_fail(&KeptOverFinish, None, in_flight_model(KeptOverFinish, &UNCOUNTED));
    must_fail(&ReadOffline, None, offline_model(ReadOffline, &UNCOUNTED));
    must_fail(&LiveCellInPlace, None, in_place_model(LiveCellInPlace));
    for misuse in [LinesUnvalidated, BumpedTakenAsRead, ReadAgainUnvalidated, LinesWrittenApart, OnePlaceNoted] {
        must_fail(&misuse, None, lines_model(misuse, &UNCOUNTED));
    }
}
