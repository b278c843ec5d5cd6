//! What waits for one switch, what is on its way, and what it has acknowledged: sequences, changes, and answers to reports.
//!
//! A message is reserved when its change is made, and goes out in that order. An answer to a report covers what was made before it, and
//! what is made meanwhile waits until the answer is queued whole.

use api::seam::{Mistake, mistaken};
use bytes::Bytes;
use std::collections::VecDeque;

/// See the module.
#[derive(Debug)]
pub(crate) struct Queue {
    is_open: bool,
    next_sequence: u64,
    /// Number of reports that the writer has taken, and of those that are answered.
    taken: u64,
    answered: u64,
    /// The latest report was answered with the state after this change.
    covered: u64,
    /// Whether the making of messages is suspended; in a new queue it is, until its report is answered.
    parked: bool,
    /// The change of each message that is made and not queued, in order. 0: an answer to a report covers it.
    unqueued: VecDeque<u64>,
    /// Messages that wait until an answer to a report is queued whole. They are the first of `unqueued`.
    held_back: Vec<Bytes>,
    /// Whether an answer to a report is being queued.
    answering: bool,
    /// The sequence of the last message of the latest answer; none if it was given up.
    answer_end: Option<u64>,
    /// Why the switch refuses what it is sent, and the reports that were answered before it said so.
    stuck: Option<(String, u64)>,
    /// (sequence, change) of each message that is not acknowledged.
    in_flight: VecDeque<(u64, u64)>,
}

/// Decides what to do with a message.
#[derive(Debug)]
pub(crate) enum Next {
    /// It goes out, with the number of reports that are answered.
    Sent { sequence: u64, answered: u64, message: Bytes },
    /// It does not go out, and its bytes no longer wait: the queue is closed, or an answer covers it.
    Dropped(Bytes),
    /// It waits until an answer is queued whole.
    Held,
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledged {
    /// The last message such that everything up to it is acknowledged.
    pub(crate) sequence: u64,
    /// The last change whose messages are all acknowledged by this, if there is one.
    pub(crate) change: Option<u64>,
    /// Whether nothing is on its way any more.
    pub(crate) is_caught_up: bool,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue {
            is_open: true,
            next_sequence: 1,
            // The hello's.
            taken: 1,
            answered: 0,
            covered: 0,
            parked: true,
            unqueued: VecDeque::new(),
            held_back: Vec::new(),
            answering: false,
            answer_end: None,
            stuck: None,
            in_flight: VecDeque::new(),
        }
    }
}

impl Queue {
    /// Nothing goes out any more.
    pub(crate) fn close(&mut self) {
        self.is_open = false;
    }

    pub(crate) fn set_parked(&mut self, parked: bool) {
        self.parked = parked;
    }

    pub(crate) fn is_parked(&self) -> bool {
        self.parked
    }

    /// The sequence of the last message that went out.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.next_sequence - 1
    }

    /// Reserves the next place for a message of `change`.
    pub(crate) fn reserve(&mut self, change: u64) {
        self.unqueued.push_back(change);
    }

    /// The message of the first place that is reserved and free.
    pub(crate) fn send(&mut self, message: Bytes) -> Next {
        let is_covered = self.unqueued.get(self.held_back.len()) == Some(&0);
        if self.answering && !is_covered {
            self.held_back.push(message);
            return Next::Held;
        }
        self.send_now(message)
    }

    fn send_now(&mut self, message: Bytes) -> Next {
        match self.unqueued.pop_front() {
            Some(change) if change > 0 => self.enqueue(message, change),
            _ => Next::Dropped(message),
        }
    }

    fn enqueue(&mut self, message: Bytes, change: u64) -> Next {
        if !self.is_open {
            return Next::Dropped(message);
        }
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.in_flight.push_back((sequence, change));
        Next::Sent { sequence, answered: self.answered, message }
    }

    /// Gives up the first place that is reserved.
    pub(crate) fn skip(&mut self) {
        self.unqueued.pop_front();
    }

    /// The switch cannot hold what it was sent: nothing more of this answer is sent.
    pub(crate) fn set_stuck(&mut self, reason: String) {
        self.stuck = Some((reason, self.answered));
    }

    /// Why the switch cannot follow, if so. It can again once it has acknowledged the answer to a later report.
    pub(crate) fn stuck(&self) -> Option<&str> {
        self.stuck.as_ref().map(|(reason, _)| &**reason)
    }

    /// Whether a message that went out with this number of answered reports is part of what the switch refuses.
    pub(crate) fn is_refused(&self, with_answered: u64) -> bool {
        self.stuck.as_ref().is_some_and(|(_, answered)| with_answered <= *answered)
    }

    /// Whether an acknowledgement is due.
    pub(crate) fn awaits_acknowledgement(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Whether everything made so far is acknowledged.
    pub(crate) fn is_caught_up(&self) -> bool {
        self.unqueued.is_empty() && self.in_flight.is_empty() && !self.answering
    }

    /// As [`Queue::is_caught_up`], for what the status says.
    pub(crate) fn serves_all_made(&self) -> bool {
        (self.unqueued.is_empty() && !self.answering || mistaken(Mistake::StatusIgnoresQueue))
            && (self.in_flight.is_empty() || mistaken(Mistake::StatusIgnoresFlight))
    }

    /// Whether the whole answer to the last report is acknowledged, where everything up to `acked` is.
    pub(crate) fn is_reconciled(&self, acked: u64) -> bool {
        self.answer_end.is_some_and(|end| end <= acked) && !self.answering && self.answered == self.taken
    }

    /// Whether the switch lacks nothing that is made, or still to be made.
    pub(crate) fn is_settled(&self) -> bool {
        !self.parked && self.is_caught_up()
    }

    /// The last report was taken, the `n_received`th of the switch.
    pub(crate) fn take(&mut self, n_received: u64) {
        self.taken = n_received;
    }

    /// Begins the answer to the last report that was taken: what the switch lacks of the state after `change`.
    ///
    /// After a rekey a switch is sent its tables although it did not ask. This answers no other report.
    pub(crate) fn begin_answer(&mut self, change: u64) {
        self.answered = if mistaken(Mistake::ReportsMiscounted) { self.answered + 1 } else { self.taken };
        self.covered = change;
        self.answering = true;
        self.answer_end = Some(0);
        // The switch takes in nothing that was sent before it asked. Acknowledging a part of the answer, it says nothing of
        // these changes: the rest of the answer may bring them.
        self.in_flight.iter_mut().for_each(|(_, change)| *change = 0);
        // The answer covers what was made before. What is made after it adds something, even if it belongs to the same change: the
        // table of a switch may be made anew after a change that was refused.
        self.unqueued.iter_mut().for_each(|change| *change = 0);
    }

    pub(crate) fn is_answering(&self) -> bool {
        self.answering
    }

    /// A message of the answer that was begun.
    pub(crate) fn answer(&mut self, message: Bytes) -> Next {
        let next = self.enqueue(message, self.covered);
        if let Next::Sent { sequence, .. } = &next {
            self.answer_end = Some(*sequence);
        }
        next
    }

    /// The answer is queued whole: the messages that waited for it follow.
    pub(crate) fn end_answer(&mut self) -> Vec<Next> {
        self.answering = false;
        std::mem::take(&mut self.held_back).into_iter().map(|message| self.send_now(message)).collect()
    }

    /// The answer is not continued: the switch asked again, or cannot hold it. A later answer covers what waited for it, which is
    /// returned.
    pub(crate) fn give_up_answer(&mut self) -> Vec<Bytes> {
        self.answering = false;
        self.answer_end = None;
        // The switch does not have the state after that change, even if it acknowledges these.
        let answer = self.covered;
        self.in_flight.iter_mut().filter(|(_, change)| *change == answer).for_each(|(_, change)| *change = 0);
        let held_back = std::mem::take(&mut self.held_back);
        self.unqueued.drain(..held_back.len().min(self.unqueued.len()));
        self.unqueued.iter_mut().for_each(|change| *change = 0);
        held_back
    }

    /// The change of the first message that is not acknowledged.
    fn next_change(&self) -> Option<u64> {
        let uncovered = || self.unqueued.iter().copied().find(|&change| change > 0);
        let queued = self.in_flight.front().map(|&(_, change)| change);
        queued.or_else(|| if self.answering { Some(self.covered) } else { uncovered() })
    }

    /// An acknowledgement of everything up to `sequence`, at most of the last one sent.
    pub(crate) fn acknowledge(&mut self, sequence: u64) -> Acknowledged {
        let sequence = sequence.min(self.last_sequence());
        let mut last = None;
        while let Some(&(first, change)) = self.in_flight.front()
            && first <= sequence
        {
            self.in_flight.pop_front();
            // A change may have many messages, and those of a later phase may still be with the pusher: it is
            // acknowledged with the last of them.
            let next = if mistaken(Mistake::AcknowledgedBetweenPhases) {
                self.in_flight.front().map(|&(_, change)| change)
            } else {
                self.next_change()
            };
            if next != Some(change) {
                last = last.max(Some(change));
            }
        }
        let is_caught_up = self.in_flight.is_empty();
        if is_caught_up {
            self.stuck = None;
        }
        Acknowledged { sequence, change: last, is_caught_up }
    }
}
