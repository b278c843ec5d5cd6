//! Every interleaving of one query with two updates of the cells it reads: the paper's bit vectors give wrong
//! answers, the sequence counter and the versions give none.
//!
//! The name's cells are A[i] and B[j]. Update k sets them so that its answer is `ANSWERS[k]`, and every mixture of two
//! versions differs from all of these. The counter, the entry and the epochs are the real ones. The cells are not,
//! because a real lookup cannot be stopped between two reads.
#![cfg(not(loom))]

use std::cell::Cell;

use super::papers_protocol::{Affected, BrokenStripes, N_STRIPES, SecondBit};
use fibula_lookup::publish::{Domain, Entry, Epoch, ReaderSlot, Sequence, Stamp, WriteGuard};

/// A[i] and B[j] before the first update, after it, and after the second.
const CELLS: [[u64; 2]; 3] = [[0x01, 0x10], [0x02, 0x20], [0x04, 0x40]];
const ANSWERS: [u64; 3] = [0x11, 0x22, 0x44];
/// Any cell index will do.
const I: usize = 77;

/// A protocol, one step at a time. A query and an update have four steps each.
trait Protocol {
    /// The query's step; the fourth returns what it answers, or `None` if it has to try again.
    fn read(&mut self, step: usize) -> Option<u64>;
    /// A step of update `k` (1 or 2).
    fn write(&mut self, k: usize, step: usize);
}

#[derive(Default, PartialEq, Eq, Debug)]
struct Outcomes {
    right: u32,
    again: u32,
    wrong: u32,
}

/// Runs `n_updates` updates concurrently with one query, in every order.
/// `answers` are the name's, after 0, 1 and 2 updates.
fn every_interleaving(n_updates: usize, answers: [u64; 3], mut run: impl FnMut(&str) -> Option<u64>) -> Outcomes {
    let n_steps = 4 + 4 * n_updates;
    let mut outcomes = Outcomes::default();
    for reads in (0u32..1 << n_steps).filter(|reads| reads.count_ones() == 4) {
        let schedule: String = (0..n_steps).map(|i| if reads >> i & 1 == 1 { 'R' } else { 'W' }).collect();
        match run(&schedule) {
            None => outcomes.again += 1,
            Some(answer) if is_right(&schedule, answers, answer) => outcomes.right += 1,
            Some(_) => outcomes.wrong += 1,
        }
    }
    outcomes
}

/// Whether the answer is that of one version, and of one that was served at some time during the query.
fn is_right(schedule: &str, answers: [u64; 3], answer: u64) -> bool {
    let writes_before = |at: usize| schedule[..at].bytes().filter(|&step| step == b'W').count();
    let first = schedule.find('R').expect("a query");
    let last = schedule.rfind('R').expect("a query");
    // Updates complete before the query began, and updates begun before it ended.
    let (oldest, newest) = (writes_before(first) / 4, writes_before(last).div_ceil(4));
    answers[oldest..=newest].contains(&answer)
}

/// Drives a protocol along a schedule such as `RRWWWRWWR`, to the end of the query.
fn drive(mut protocol: impl Protocol, schedule: &str) -> Option<u64> {
    let (mut reads, mut writes) = (0, 0);
    for step in schedule.bytes() {
        if step == b'W' {
            protocol.write(writes / 4 + 1, writes % 4);
            writes += 1;
        } else {
            let answer = protocol.read(reads);
            reads += 1;
            if reads == 4 {
                return answer;
            }
        }
    }
    panic!("the schedule {schedule} does not end the query");
}

/// D1 and D2 as published.
struct Paper {
    stripes: BrokenStripes,
    cells: [u64; 2],
    second: Option<SecondBit>,
    read: [u64; 2],
    /// Whether the second update changes another name's cells of the same stripe.
    elsewhere: bool,
}

impl Paper {
    fn new(elsewhere: bool) -> Paper {
        Paper { stripes: BrokenStripes::new(), cells: CELLS[0], second: None, read: [0; 2], elsewhere }
    }
}

impl Protocol for Paper {
    fn read(&mut self, step: usize) -> Option<u64> {
        match step {
            0 => self.second = Some(self.stripes.query_begin(I)),
            1 | 2 => self.read[step - 1] = self.cells[step - 1],
            _ => {
                let whole = self.stripes.query_end(I, self.second.expect("the query began"));
                return whole.then_some(self.read[0] ^ self.read[1]);
            }
        }
        None
    }

    fn write(&mut self, k: usize, step: usize) {
        let elsewhere = k == 2 && self.elsewhere;
        let affected = Affected::of([if elsewhere { I + N_STRIPES } else { I }]);
        match step {
            0 => self.stripes.update_begin(&affected),
            1 | 2 if elsewhere => {}
            1 | 2 => self.cells[step - 1] = CELLS[k][step - 1],
            _ => self.stripes.update_end(&affected),
        }
    }
}

/// The sequence counter, cells in place.
struct Counted<'a> {
    sequence: &'a Sequence,
    guard: Option<WriteGuard<'a>>,
    cells: [u64; 2],
    stamp: Option<Stamp>,
    read: [u64; 2],
}

impl Protocol for Counted<'_> {
    fn read(&mut self, step: usize) -> Option<u64> {
        match step {
            0 => self.stamp = self.sequence.read_begin(),
            1 | 2 => self.read[step - 1] = self.cells[step - 1],
            _ => {
                let whole = self.stamp.is_some_and(|stamp| self.sequence.read_validate(stamp));
                return whole.then_some(self.read[0] ^ self.read[1]);
            }
        }
        None
    }

    fn write(&mut self, k: usize, step: usize) {
        match step {
            0 => self.guard = Some(self.sequence.write()),
            1 | 2 => self.cells[step - 1] = CELLS[k][step - 1],
            _ => self.guard.take().expect("the write began").commit(),
        }
    }
}

/// Versions: copied, published, reused when passed.
struct Versions<'a> {
    entry: Entry,
    memory: [[u64; 2]; 3],
    domain: Domain,
    reader: ReaderSlot,
    /// The version that the query found.
    found: usize,
    read: [u64; 2],
    /// The version being written, and when the one before was retired.
    next: usize,
    retired: Option<Epoch>,
    n_reused: &'a Cell<u32>,
}

impl<'a> Versions<'a> {
    fn new(n_reused: &'a Cell<u32>) -> Versions<'a> {
        let domain = Domain::new();
        let mut reader = domain.register();
        // The reader is online from an earlier burst, as it is in a busy switch.
        reader.pin();
        let memory = [CELLS[0], [0xdead; 2], [0xdead; 2]];
        let (entry, retired) = (Entry::new(0), None);
        Versions { entry, memory, domain, reader, found: 0, read: [0; 2], next: 1, retired, n_reused }
    }
}

impl Protocol for Versions<'_> {
    fn read(&mut self, step: usize) -> Option<u64> {
        match step {
            0 => {
                self.reader.pin();
            }
            1 => self.found = self.entry.load() as usize,
            2 => self.read[0] = self.memory[self.found][0],
            _ => return Some(self.read[0] ^ self.memory[self.found][1]),
        }
        None
    }

    fn write(&mut self, k: usize, step: usize) {
        match step {
            0 => {
                self.next = match self.retired {
                    None => 1,
                    Some(epoch) if self.domain.passed(epoch) => {
                        self.n_reused.set(self.n_reused.get() + 1);
                        0
                    }
                    Some(_) => 2,
                };
                self.memory[self.next][0] = CELLS[k][0];
            }
            1 => self.memory[self.next][1] = CELLS[k][1],
            2 => self.entry.publish(self.next as u64),
            _ => self.retired = Some(self.domain.advance()),
        }
    }
}

#[test]
fn the_papers_protocol_answers_wrong_on_its_failing_schedule() {
    let answer = drive(Paper::new(false), "RRWWWRWWR");
    assert_eq!(answer, Some(CELLS[0][0] ^ CELLS[1][1]), "old A with new B, taken for consistent");
    assert!(!ANSWERS.contains(&answer.expect("accepted")));
    // The second update may even be of another name: any cell of the stripe will do.
    assert_eq!(drive(Paper::new(true), "RRWWWRWWR"), answer);
}

#[test]
fn the_papers_protocol_is_right_with_one_update_and_wrong_with_two() {
    let one = every_interleaving(1, ANSWERS, |schedule| drive(Paper::new(false), schedule));
    assert_eq!(one, Outcomes { right: 2, again: 68, wrong: 0 });
    let two = every_interleaving(2, ANSWERS, |schedule| drive(Paper::new(false), schedule));
    assert_eq!(two, Outcomes { right: 236, again: 136, wrong: 123 });
    let only_the_first_counts = [ANSWERS[0], ANSWERS[1], ANSWERS[1]];
    let elsewhere = every_interleaving(2, only_the_first_counts, |schedule| drive(Paper::new(true), schedule));
    assert_eq!(elsewhere, Outcomes { right: 293, again: 136, wrong: 66 });
}

#[test]
fn the_sequence_counter_is_never_wrong() {
    let run = |schedule: &str| {
        let sequence = Sequence::new();
        let (guard, stamp) = (None, None);
        drive(Counted { sequence: &sequence, guard, cells: CELLS[0], stamp, read: [0; 2] }, schedule)
    };
    let outcomes = every_interleaving(2, ANSWERS, run);
    assert_eq!(outcomes.wrong, 0);
    assert!(outcomes.right > 0 && outcomes.again > 0, "{outcomes:?}");
}

#[test]
fn versions_are_never_wrong_and_never_tried_again() {
    let n_reused = Cell::new(0);
    let outcomes = every_interleaving(2, ANSWERS, |schedule| drive(Versions::new(&n_reused), schedule));
    assert_eq!(outcomes, Outcomes { right: 495, again: 0, wrong: 0 });
    assert!(n_reused.get() > 0, "no schedule reused memory");
}
