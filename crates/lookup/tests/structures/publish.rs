//! What the publication primitives promise, on one thread and on two real ones.
#![cfg(not(loom))]

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use fibula_lookup::publish::{Domain, Entry, Sequence};

#[test]
fn an_epoch_passes_when_every_online_reader_has_announced_it() {
    let domain = Domain::new();
    let (mut a, mut b, mut c) = (domain.register(), domain.register(), domain.register());
    assert_eq!(domain.n_readers(), 3);
    a.pin();
    b.pin();
    let epoch = domain.advance();
    assert!(!domain.passed(epoch), "c is offline; a and b are not");
    a.pin();
    assert!(!domain.passed(epoch));
    b.offline();
    assert!(domain.passed(epoch));
    // Readers that come online afterwards do not take it back.
    b.pin();
    c.pin();
    assert!(domain.passed(epoch));
    let next = domain.advance();
    assert!(epoch < next && domain.passed(epoch) && !domain.passed(next));
    assert_eq!(domain.completed(), epoch);
}

#[test]
fn a_reader_that_goes_takes_its_claim_with_it() {
    let domain = Domain::new();
    let mut reader = domain.register();
    reader.pin();
    let epoch = domain.advance();
    assert!(!domain.passed(epoch));
    drop(reader);
    assert!(domain.passed(epoch));
    assert_eq!(domain.n_readers(), 0);
}

#[test]
fn without_readers_everything_passes_at_once_and_the_future_does_not() {
    let domain = Domain::new();
    let epoch = domain.advance();
    assert_eq!(domain.completed(), epoch);
    let other = Domain::new();
    let (_, later) = (other.advance(), other.advance());
    assert!(!domain.passed(later), "an epoch that has not begun has not passed");
}

#[test]
fn readers_may_outlive_the_writers_handle() {
    let domain = Domain::new();
    let mut reader = domain.clone().register();
    drop(domain);
    reader.pin();
    let elsewhere = thread::spawn(move || {
        reader.pin();
    });
    elsewhere.join().expect("a slot may move to another thread");
}

#[test]
fn a_write_under_way_refuses_readers_until_it_commits() {
    let sequence = Sequence::new();
    let before = sequence.read_begin().expect("at rest");
    assert!(sequence.read_validate(before));
    let write = sequence.write();
    assert_eq!(sequence.read_begin(), None);
    assert!(!sequence.read_validate(before));
    write.commit();
    assert!(!sequence.read_validate(before));
    let after = sequence.read_begin().expect("at rest");
    assert!(sequence.read_validate(after) && after != before);
}

#[test]
fn an_abandoned_write_refuses_readers_until_the_next_one() {
    let sequence = Sequence::new();
    let before = sequence.read_begin().expect("at rest");
    drop(sequence.write());
    assert_eq!(sequence.read_begin(), None, "half a write is never taken for whole");
    sequence.write().commit();
    assert!(!sequence.read_validate(before));
    assert!(sequence.read_begin().is_some());
}

/// Cells in each version; all of them are equal in a whole version.
const WIDTH: usize = 8;

/// Ends the other thread's loop, whether the test passes or panics.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn two_threads_never_see_a_mixture_of_versions() {
    const LOOKUPS: u64 = 1_000_000;
    let memory: [[AtomicU64; WIDTH]; 4] = Default::default();
    let (entry, domain, stop, start) = (Entry::new(0), Domain::new(), AtomicBool::new(false), Barrier::new(2));
    let mut reader = domain.register();
    thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            let mut newest = 0;
            let _stop = StopAtEnd(&stop);
            // Without two idle cores the writer may be scheduled late: the lookups go on until it has made an update.
            let mut n_lookups = 0;
            while n_lookups < LOOKUPS || newest == 0 {
                {
                    let _pin = reader.pin();
                    let version = &memory[entry.load() as usize];
                    let value = version[0].load(Relaxed);
                    assert!(version.iter().all(|cell| cell.load(Relaxed) == value), "a mixture of versions");
                    assert!(value >= newest, "time ran backwards");
                    newest = value;
                }
                n_lookups += 1;
                if n_lookups % 4096 == 0 {
                    reader.offline();
                }
            }
        });
        start.wait();
        let (mut value, mut current, mut free, mut retired) = (0, 0, vec![1, 2, 3], Vec::new());
        while !stop.load(Relaxed) {
            let completed = domain.completed();
            retired.retain(|&(epoch, version)| {
                let unread = epoch <= completed;
                free.extend(unread.then_some(version));
                !unread
            });
            let Some(next) = free.pop() else {
                thread::yield_now();
                continue;
            };
            value += 1;
            memory[next].iter().for_each(|cell| cell.store(value, Relaxed));
            entry.publish(next as u64);
            retired.push((domain.advance(), current));
            current = next;
        }
    });
}

#[test]
fn two_threads_never_accept_half_a_write() {
    const LOOKUPS: u64 = 1_000_000;
    let cells: [AtomicU64; WIDTH] = Default::default();
    let (sequence, stop, start) = (Sequence::new(), AtomicBool::new(false), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            let _stop = StopAtEnd(&stop);
            let (mut n_lookups, mut newest) = (0, 0);
            while n_lookups < LOOKUPS || newest == 0 {
                n_lookups += 1;
                let Some(stamp) = sequence.read_begin() else { continue };
                let values = cells.each_ref().map(|cell| cell.load(Relaxed));
                if sequence.read_validate(stamp) {
                    assert_eq!(values, [values[0]; WIDTH], "half a write");
                    newest = values[0];
                }
            }
        });
        start.wait();
        let mut value = 0;
        while !stop.load(Relaxed) {
            value += 1;
            let write = sequence.write();
            cells.iter().for_each(|cell| cell.store(value, Relaxed));
            write.commit();
        }
    });
}
