//! One connected switch: what waits for it, what it acknowledged, and when it is cut off.
//!
//! The owner never waits for a switch. Messages count from the moment they are made. If more than a limit in bytes
//! waits for a switch, the owner parks it: nothing more is made for it until it has acknowledged everything. Then it
//! gets what it lacks by that time, once. So a slow switch costs its limit and one group of changes in memory.

#![cfg_attr(not(feature = "kit"), allow(unreachable_pub, reason = "simulations drive it"))]

use crate::core::counters::Said;
use crate::core::queue::{self, Acknowledged, Queue};
use api::crash::step;
use api::v1::{Ask, Groups, Standing, ToSwitch};
use bytes::Bytes;
use fib::messages::{Report, Uplink};
use fib::topology::NodeId;
use std::collections::VecDeque;
use std::time::Instant;

/// Bytes counted for each queued message besides its own.
const MESSAGE_OVERHEAD: usize = 64;

/// Places for messages that an empty queue keeps.
const KEPT_PLACES: usize = 64;

/// The bytes of those parts of a message that may be large.
pub(crate) fn weight(message: &ToSwitch) -> usize {
    message.message.len() + message.groups.as_ref().map_or(0, prost::Message::encoded_len)
}

/// The report in a message of a switch.
/// # Errors
/// Why there is none.
pub fn decode(report: &[u8]) -> Result<Report, String> {
    match Uplink::decode(report).map_err(|error| error.to_string())? {
        Uplink::Report(report) => Ok(report),
        Uplink::Ack { .. } => Err("it is an acknowledgement and not a report".to_owned()),
    }
}

/// A handle to the session of a switch, shared by the owner, the pusher and the stream of the switch.
///
/// The shell's threads share a session behind a lock; a simulation has one thread and needs none.
pub trait Line: Clone {
    /// A handle to a new session.
    fn open(session: Session) -> Self;

    /// Reads or changes the session. Must not be called from inside another such call.
    fn with<R>(&self, change: impl FnOnce(&mut Session) -> R) -> R;

    /// Distinguishes live sessions.
    fn id(&self) -> usize;

    /// Whether both are handles to one session.
    fn is(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

/// What the stream of a switch has for the transport.
#[derive(Debug)]
pub enum Next {
    /// A message for the switch.
    Message(Box<ToSwitch>),
    /// Nothing yet.
    Nothing,
    /// The session ended, even if messages are still queued.
    Ended,
}

/// What those who wait for a session look at: they look again whenever any of it changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct News {
    /// See [`Session::acked`].
    pub(crate) acked: u64,
    /// See [`Session::is_ended`].
    pub(crate) is_ended: bool,
    /// Counts possible changes of what the switch serves, even without an acknowledgement.
    n_turned: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Session {
    node: NodeId,
    limit_bytes: usize,
    queue: Queue,
    /// What the transport has not taken.
    outbox: VecDeque<ToSwitch>,
    backlog_bytes: usize,
    sent_bytes: u64,
    news: News,
    /// Highest change all of whose messages are acknowledged.
    acked_change: u64,
    is_lagging: bool,
    said: Said,
    /// Whether it can answer the questions that operators ask switches.
    answers: bool,
    /// Reports received, that of the hello included. The switch counts those that it sends, and acknowledges a message only if
    /// all of them are answered.
    n_reports: u64,
    /// The last one, until the owner takes it.
    last_report: Option<Report>,
}

impl Session {
    /// A session whose queue holds at most `limit_bytes`. It is parked.
    pub(crate) fn new(node: NodeId, limit_bytes: usize) -> Session {
        Session {
            node,
            limit_bytes,
            queue: Queue::default(),
            outbox: VecDeque::new(),
            backlog_bytes: 0,
            sent_bytes: 0,
            news: News::default(),
            acked_change: 0,
            is_lagging: false,
            said: Said::default(),
            answers: false,
            n_reports: 1,
            last_report: None,
        }
    }

    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// The values that those who wait look at.
    pub(crate) fn news(&self) -> News {
        self.news
    }

    /// What the switch reports about itself.
    pub(crate) fn said(&mut self) -> &mut Said {
        &mut self.said
    }

    /// Counts a message of `change` that [`Session::send`] will get.
    pub(crate) fn reserve(&mut self, len: usize, change: u64) {
        self.queue.reserve(change);
        self.backlog_bytes += len + MESSAGE_OVERHEAD;
    }

    fn release(&mut self, len: usize) {
        self.backlog_bytes -= len + MESSAGE_OVERHEAD;
    }

    /// Queues the next message for which there is a reservation; returns its sequence, or none if the session has ended, a
    /// later answer to a report covers the message, or it waits until an answer is queued whole.
    pub(crate) fn send(&mut self, message: Bytes, now: Instant) -> Option<u64> {
        let next = self.queue.send(message);
        self.pass_on(next, now)
    }

    /// Handles a message as the queue decides. Returns its sequence, if it goes out.
    fn pass_on(&mut self, next: queue::Next, now: Instant) -> Option<u64> {
        match next {
            queue::Next::Held => None,
            queue::Next::Dropped(message) => {
                self.release(message.len());
                None
            }
            queue::Next::Sent { sequence, answered, message } => {
                self.sent_bytes += message.len() as u64;
                let message = ToSwitch { sequence, message, answered, ..ToSwitch::default() };
                step("session.send", || self.outbox.push_back(message));
                self.said.sent(sequence, now);
                Some(sequence)
            }
        }
    }

    /// Gives up the next message.
    pub(crate) fn skip(&mut self, message: &Bytes) {
        self.queue.skip();
        self.release(message.len());
    }

    /// Takes what the transport is to send next. Leaves out what the switch refuses.
    pub(crate) fn take(&mut self) -> Next {
        while !self.is_ended() {
            let Some(message) = self.outbox.pop_front() else { return Next::Nothing };
            if self.outbox.is_empty() && self.outbox.capacity() > KEPT_PLACES {
                self.outbox = VecDeque::new();
            }
            self.release(weight(&message));
            if !self.queue.is_refused(message.answered) {
                return Next::Message(Box::new(message));
            }
        }
        Next::Ended
    }

    /// Whether the transport has something to take, or to know.
    pub(crate) fn has_next(&self) -> bool {
        self.is_ended() || !self.outbox.is_empty()
    }

    /// Bytes that wait for the switch.
    pub(crate) fn backlog_bytes(&self) -> usize {
        if self.is_ended() { 0 } else { self.backlog_bytes }
    }

    /// Whether more than the limit waits for the switch.
    pub(crate) fn is_over_limit(&self) -> bool {
        self.backlog_bytes > self.limit_bytes
    }

    /// Records whether the making of messages for the switch is suspended.
    pub(crate) fn set_parked(&mut self, parked: bool) {
        self.queue.set_parked(parked);
        self.news.n_turned += 1;
    }

    pub(crate) fn is_parked(&self) -> bool {
        self.queue.is_parked()
    }

    /// Notes that the switch cannot hold what it was sent: nothing more of this answer is sent, and no one waits for it.
    pub(crate) fn set_stuck(&mut self, reason: String) {
        self.queue.set_stuck(reason);
        self.set_lagging();
    }

    /// Why the switch cannot follow, if so. It can again once it has acknowledged the answer to a later report.
    pub(crate) fn stuck(&self) -> Option<&str> {
        self.queue.stuck()
    }

    /// Whether everything made for the switch is acknowledged.
    pub(crate) fn is_caught_up(&self) -> bool {
        self.queue.is_caught_up() && self.backlog_bytes == 0
    }

    /// Whether the switch has acknowledged the whole answer to its last report. Until then its versions may count changes
    /// that this controller does not know, such as those after the backup that its store was set back to.
    pub(crate) fn is_reconciled(&self) -> bool {
        self.queue.is_reconciled(self.news.acked)
    }

    /// Whether an acknowledgement is due.
    pub(crate) fn awaits_acknowledgement(&self) -> bool {
        self.queue.awaits_acknowledgement()
    }

    /// Whether everything made for the switch so far took effect there.
    pub(crate) fn serves_all_made(&self) -> bool {
        self.queue.serves_all_made()
    }

    /// Whether the switch is in step, where it was told to be (not parked) before, and then all messages of what is committed
    /// were made. In this order, this says that it serves every change that was committed before.
    pub(crate) fn is_in_step(&self, is_told: bool, all_made: bool) -> bool {
        is_told && all_made && self.serves_all_made() && !self.is_ended() && self.stuck().is_none()
    }

    /// Begins the answer to the last report that was taken: what the switch lacks of the state after `change`. An image may exceed
    /// the limit, so what waits before it counts: a switch that asks again and again without reading is cut off.
    ///
    /// After a rekey a switch is sent its tables although it did not ask. This answers no other report.
    ///
    /// Messages of later changes wait until [`Session::end_answer`].
    pub(crate) fn begin_answer(&mut self, change: u64) {
        if self.is_over_limit() {
            return self.end();
        }
        self.queue.begin_answer(change);
        self.news.n_turned += 1;
    }

    /// Queues a message of the answer that was begun.
    pub(crate) fn answer(&mut self, message: Bytes, now: Instant) {
        if !self.queue.is_answering() {
            return;
        }
        self.backlog_bytes += message.len() + MESSAGE_OVERHEAD;
        let next = self.queue.answer(message);
        self.pass_on(next, now);
    }

    /// The answer is queued whole: the messages that waited for it follow.
    pub(crate) fn end_answer(&mut self, now: Instant) {
        for next in self.queue.end_answer() {
            self.pass_on(next, now);
        }
        self.news.n_turned += 1;
    }

    /// The answer is not continued: the switch asked again, or cannot hold it. A later answer covers what waited for it.
    pub(crate) fn give_up_answer(&mut self) {
        let given_up = self.queue.give_up_answer();
        given_up.iter().for_each(|message| self.release(message.len()));
    }

    /// Records an acknowledgement of everything up to `sequence`, at most of the last one sent. Returns whether a
    /// parked switch has caught up with this.
    pub(crate) fn acknowledge(&mut self, sequence: u64) -> bool {
        let Acknowledged { sequence, change, is_caught_up } = self.queue.acknowledge(sequence);
        self.acked_change = self.acked_change.max(change.unwrap_or_default());
        if is_caught_up {
            self.is_lagging = false;
        }
        self.news.acked = self.news.acked.max(sequence);
        self.queue.is_parked() && is_caught_up
    }

    /// Highest sequence acknowledged.
    pub(crate) fn acked(&self) -> u64 {
        self.news.acked
    }

    /// The last change all of whose messages are acknowledged; 0: none.
    pub(crate) fn acked_change(&self) -> u64 {
        self.acked_change
    }

    /// Whether all that is made of a change for this switch is acknowledged, and nothing of it is still to be made. What is queued
    /// for a later change may carry what the switch lacks of this one.
    pub(crate) fn has_served(&self, change: u64) -> bool {
        self.acked_change >= change || !self.is_ended() && self.queue.is_settled()
    }

    /// The number of messages sent, of messages acknowledged, and of bytes sent.
    pub(crate) fn progress(&self) -> (u64, u64, u64) {
        (self.queue.last_sequence(), self.news.acked, self.sent_bytes)
    }

    /// Keeps a report for the owner, replacing one that it has not taken. Returns whether there was none: then the owner is to
    /// be told. So a switch that reports as fast as it can gives the owner no more to do than one that waits.
    pub(crate) fn ask(&mut self, report: Report) -> bool {
        self.n_reports += 1;
        self.last_report.replace(report).is_none()
    }

    /// The last report, once. Its answer also answers those before it.
    pub(crate) fn take_report(&mut self) -> Option<Report> {
        let last = self.last_report.take()?;
        self.queue.take(self.n_reports);
        Some(last)
    }

    /// Reports received.
    #[cfg(test)]
    pub(crate) fn n_reports(&self) -> u64 {
        self.n_reports
    }

    /// Notes whether the switch can answer the questions that operators ask switches.
    pub(crate) fn set_answers(&mut self, answers: bool) {
        self.answers = answers;
    }

    pub(crate) fn answers(&self) -> bool {
        self.answers
    }

    /// Tells the switch who receives the broadcasts of its hosts, if it understands that and was last told another generation, in
    /// which that has another key.
    pub(crate) fn tell_groups(&mut self, generation: u64, key: impl Fn() -> u64, groups: impl FnOnce() -> Groups) {
        if self.said.lacks_groups(generation, &key)
            && !self.is_over_limit()
            && self.ask_now(ToSwitch { groups: Some(groups()), ..ToSwitch::default() })
        {
            self.said.set_groups_told(generation, key());
        }
    }

    /// Tells the switch its standing, for other controllers.
    pub(crate) fn tell_standing(&mut self, standing: Standing) {
        self.ask_now(ToSwitch { standing: Some(standing), ..ToSwitch::default() });
    }

    /// Asks the switch what an operator wants to know of it. Returns whether the question is on its way; the answer goes elsewhere.
    pub(crate) fn ask_for(&mut self, ask: Ask) -> bool {
        self.ask_now(ToSwitch { ask: Some(ask), ..ToSwitch::default() })
    }

    /// Sends a question; a switch that refuses its tables can answer too. Returns whether the session goes on.
    pub(crate) fn ask_now(&mut self, question: ToSwitch) -> bool {
        // Repeated questions must not fill the queue of a switch that reads slowly.
        if self.is_over_limit() || self.is_ended() {
            return false;
        }
        self.backlog_bytes += weight(&question) + MESSAGE_OVERHEAD;
        self.outbox.push_back(ToSwitch { answered: u64::MAX, ..question });
        true
    }

    /// Whether the switch missed a deadline and has not caught up since: then it is not waited for.
    pub(crate) fn is_lagging(&self) -> bool {
        self.is_lagging
    }

    pub(crate) fn set_lagging(&mut self) {
        self.is_lagging = true;
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.news.is_ended
    }

    /// Ends the session: no more messages, the stream ends.
    pub fn end(&mut self) {
        self.queue.close();
        self.news.is_ended = true;
    }
}

#[cfg(test)]
mod tests;
