//! One connected switch: what waits for it, what it acknowledged, and when it is cut off.
//!
//! The writer never waits for a switch. Messages count from the moment they are made. If more than a limit in bytes
//! waits for a switch, the writer parks it: nothing more is made for it until it has acknowledged everything. Then it
//! gets what it lacks by that time, once. So a slow switch costs its limit and one group of changes in memory.

mod question;

use crate::core::counters::Said;
use crate::core::queue::{Acknowledged, Next, Queue};
use crate::shell::guarded::Guarded;
use crate::shell::session::question::Question;
use api::crash::step;
use api::seam::now;
use api::v1::{Ask, AskLog, Groups, SaidLog, Standing, ToSwitch, Verified};
use bytes::Bytes;
use fib::messages::Report;
use fib::topology::NodeId;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, oneshot, watch};

/// Bytes counted for each queued message besides its own.
const MESSAGE_OVERHEAD: usize = 64;

/// Bytes of a message that may be large.
pub(crate) fn weight(message: &ToSwitch) -> usize {
    message.message.len() + message.groups.as_ref().map_or(0, prost::Message::encoded_len)
}

/// The writer's and the pusher's end of a stream.
#[derive(Debug)]
pub(crate) struct Session {
    node: NodeId,
    limit_bytes: usize,
    line: Guarded<Line>,
    backlog_bytes: AtomicUsize,
    sent_bytes: AtomicU64,
    /// Highest sequence acknowledged.
    acked: watch::Sender<u64>,
    /// Highest change all of whose messages are acknowledged.
    acked_change: AtomicU64,
    lagging: AtomicBool,
    ended: watch::Sender<bool>,
    said: Guarded<Said>,
    /// Who waits for its digests, and who for the filter of its log.
    verifying: Question<Verified>,
    logging: Question<SaidLog>,
    /// Whether it can be asked what operators ask switches themselves.
    answers: AtomicBool,
    reports: Mutex<Reports>,
}

/// What the switch reported.
#[derive(Debug)]
struct Reports {
    /// Reports received, that of the hello included. The switch counts those that it sends, and acknowledges a message only if
    /// all of them are answered.
    n_received: u64,
    /// The last one, until the writer takes it.
    last: Option<Report>,
}

/// What waits for the switch, and the way to its stream.
#[derive(Debug)]
struct Line {
    queue: Queue,
    /// None when the session has ended.
    sender: Option<mpsc::UnboundedSender<ToSwitch>>,
}

/// The stream's end of a session.
#[derive(Debug)]
pub(crate) struct Outbox {
    session: Arc<Session>,
    receiver: mpsc::UnboundedReceiver<ToSwitch>,
}

impl Session {
    /// A session whose queue holds at most `limit_bytes`. It is parked.
    pub(crate) fn new(node: NodeId, limit_bytes: usize) -> (Arc<Session>, Outbox) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let session = Arc::new(Session {
            node,
            limit_bytes,
            line: Guarded::new(Line { queue: Queue::default(), sender: Some(sender) }),
            backlog_bytes: AtomicUsize::new(0),
            sent_bytes: AtomicU64::new(0),
            acked: watch::Sender::new(0),
            acked_change: AtomicU64::new(0),
            lagging: AtomicBool::new(false),
            ended: watch::Sender::new(false),
            said: Guarded::default(),
            verifying: Question::default(),
            logging: Question::default(),
            answers: AtomicBool::new(false),
            reports: Mutex::new(Reports { n_received: 1, last: None }),
        });
        (Arc::clone(&session), Outbox { session, receiver })
    }

    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// Counts a message of `change` that [`Session::send`] will get.
    pub(crate) fn reserve(&self, len: usize, change: u64) {
        self.lock().queue.reserve(change);
        self.backlog_bytes.fetch_add(len + MESSAGE_OVERHEAD, Relaxed);
    }

    fn release(&self, len: usize) {
        self.backlog_bytes.fetch_sub(len + MESSAGE_OVERHEAD, Relaxed);
    }

    /// Queues the next message for which there is a reservation; returns its sequence, or none if the session has ended, a
    /// later answer to a report covers the message, or it waits until an answer is queued whole.
    pub(crate) fn send(&self, message: Bytes) -> Option<u64> {
        let mut line = self.lock();
        let next = line.queue.send(message);
        self.pass_on(&line, next)
    }

    /// Does with a message what the queue says. Its sequence, if it goes out.
    fn pass_on(&self, line: &Line, next: Next) -> Option<u64> {
        match next {
            Next::Held => None,
            Next::Dropped(message) => {
                self.release(message.len());
                None
            }
            Next::Sent { sequence, answered, message } => {
                let len = message.len();
                let message = ToSwitch { sequence, message, answered, ..ToSwitch::default() };
                // The receiver at the other end has gone, so this session ends.
                let _ = step("session.send", || line.sender.as_ref()?.send(message).ok());
                self.sent_bytes.fetch_add(len as u64, Relaxed);
                self.said.lock().sent(sequence, now());
                Some(sequence)
            }
        }
    }

    /// Does not send the next message.
    pub(crate) fn skip(&self, message: &Bytes) {
        self.lock().queue.skip();
        self.release(message.len());
    }

    /// Bytes that wait for the switch.
    pub(crate) fn backlog_bytes(&self) -> usize {
        if self.is_ended() { 0 } else { self.backlog_bytes.load(Relaxed) }
    }

    /// Whether more than the limit waits for the switch.
    pub(crate) fn is_over_limit(&self) -> bool {
        self.backlog_bytes.load(Relaxed) > self.limit_bytes
    }

    /// Records whether the making of messages for the switch is suspended.
    pub(crate) fn set_parked(&self, parked: bool) {
        self.lock().queue.set_parked(parked);
        self.look_again();
    }

    /// Has those who wait for what the switch serves look again: not only acknowledgements change it.
    fn look_again(&self) {
        self.acked.send_modify(|_| {});
    }

    pub(crate) fn is_parked(&self) -> bool {
        self.lock().queue.is_parked()
    }

    /// The switch cannot hold what it was sent: nothing more of this answer is sent, and nobody waits for it.
    pub(crate) fn set_stuck(&self, reason: String) {
        self.lock().queue.set_stuck(reason);
        self.set_lagging();
    }

    /// Why the switch cannot follow, if it cannot. It can again once it has acknowledged the answer to a later report.
    pub(crate) fn stuck(&self) -> Option<String> {
        self.lock().queue.stuck().map(str::to_owned)
    }

    /// Whether a message is part of what the switch refuses.
    fn is_refused(&self, message: &ToSwitch) -> bool {
        self.lock().queue.is_refused(message.answered)
    }

    /// Whether everything made for the switch is acknowledged.
    pub(crate) fn is_caught_up(&self) -> bool {
        self.lock().queue.is_caught_up() && self.backlog_bytes.load(Relaxed) == 0
    }

    /// Whether the switch has acknowledged the whole answer to its last report. Until then its versions may count changes
    /// that this controller does not know, such as those after the backup that its store was set back to.
    pub(crate) fn is_reconciled(&self) -> bool {
        let line = self.lock();
        line.queue.is_reconciled(*self.acked.borrow())
    }

    /// Whether an acknowledgement is to come.
    pub(crate) fn awaits_acknowledgement(&self) -> bool {
        self.lock().queue.awaits_acknowledgement()
    }

    /// Whether everything made for the switch so far took effect there.
    pub(crate) fn serves_all_made(&self) -> bool {
        self.lock().queue.serves_all_made()
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock()
    }

    /// Begins the answer to the last report that was taken: what the switch lacks of the state after `change`. The limit does
    /// not bound an image, so it counts what waits before it: a switch that asks again and again without reading is cut off.
    ///
    /// After a rekey a switch is sent its tables although it did not ask. This answers no other report.
    ///
    /// Messages of later changes wait until [`Session::end_answer`].
    pub(crate) fn begin_answer(&self, change: u64) {
        if self.is_over_limit() {
            return self.end();
        }
        self.lock().queue.begin_answer(change);
        self.look_again();
    }

    /// Queues a message of the answer that was begun.
    pub(crate) fn answer(&self, message: Bytes) {
        let mut line = self.lock();
        if !line.queue.is_answering() {
            return;
        }
        self.backlog_bytes.fetch_add(message.len() + MESSAGE_OVERHEAD, Relaxed);
        let next = line.queue.answer(message);
        self.pass_on(&line, next);
    }

    /// The answer is queued whole: the messages that waited for it follow.
    pub(crate) fn end_answer(&self) {
        let mut line = self.lock();
        for next in line.queue.end_answer() {
            self.pass_on(&line, next);
        }
        drop(line);
        self.look_again();
    }

    /// The answer is not continued: the switch asked again, or cannot hold it. A later answer covers what waited for it.
    pub(crate) fn give_up_answer(&self) {
        let given_up = self.lock().queue.give_up_answer();
        given_up.iter().for_each(|message| self.release(message.len()));
    }

    /// Records an acknowledgement of everything up to `sequence`, at most of the last one sent. Returns whether a
    /// parked switch has caught up with this.
    pub(crate) fn acknowledge(&self, sequence: u64) -> bool {
        let mut line = self.lock();
        let Acknowledged { sequence, change, is_caught_up } = line.queue.acknowledge(sequence);
        if let Some(change) = change {
            self.acked_change.fetch_max(change, Relaxed);
        }
        if is_caught_up {
            self.lagging.store(false, Relaxed);
        }
        self.acked.send_if_modified(|acked| sequence > std::mem::replace(acked, sequence.max(*acked)));
        line.queue.is_parked() && is_caught_up
    }

    /// The last change all of whose messages are acknowledged; 0: none.
    pub(crate) fn acked_change(&self) -> u64 {
        self.acked_change.load(Relaxed)
    }

    /// Whether all that is made of a change for this switch is acknowledged, and nothing of it is still to be made. What is queued
    /// for a later change may carry what the switch lacks of this one.
    fn has_served(&self, change: u64) -> bool {
        if self.acked_change() >= change {
            return true;
        }
        if self.is_ended() {
            return false;
        }
        self.lock().queue.is_settled()
    }

    /// Returns true when that is so, false when the session ended before.
    pub(crate) async fn serves(&self, change: u64) -> bool {
        let (mut acked, mut ended) = (self.acked.subscribe(), self.ended.subscribe());
        while !self.has_served(change) {
            tokio::select! {
                changed = acked.changed() => if changed.is_err() { return false },
                _ = ended.wait_for(|&ended| ended) => return false,
            }
        }
        true
    }

    /// Messages sent, messages acknowledged, bytes sent.
    pub(crate) fn progress(&self) -> (u64, u64, u64) {
        let line = self.lock();
        (line.queue.last_sequence(), *self.acked.borrow(), self.sent_bytes.load(Relaxed))
    }

    /// Keeps a report for the writer, instead of one that it has not taken. Whether there was none: then the writer is to
    /// be told. So a switch that reports as fast as it can gives the writer no more to do than one that waits.
    pub(crate) fn ask(&self, report: Report) -> bool {
        let mut reports = self.lock_reports();
        reports.n_received += 1;
        reports.last.replace(report).is_none()
    }

    /// The last report, once. Its answer answers those before it, too.
    pub(crate) fn take_report(&self) -> Option<Report> {
        let mut reports = self.lock_reports();
        let last = reports.last.take()?;
        self.lock().queue.take(reports.n_received);
        Some(last)
    }

    /// Reports received.
    #[cfg(test)]
    pub(crate) fn n_reports(&self) -> u64 {
        self.lock_reports().n_received
    }

    fn lock_reports(&self) -> MutexGuard<'_, Reports> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the switch says of itself.
    pub(crate) fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock()
    }

    /// Has the switch compute its digests again, and returns where its answer will come. None if the session ended, or
    /// another answer is waited for.
    pub(crate) fn verify(&self) -> Option<oneshot::Receiver<Verified>> {
        self.verifying.ask(false, |verify| self.ask_now(ToSwitch { verify, ..ToSwitch::default() }))
    }

    /// The answer of the switch to [`Session::verify`].
    pub(crate) fn verified(&self, answer: Verified) {
        self.verifying.answer(answer.verify, answer);
    }

    /// Asks the switch for the filter of its log, and has it take another one if that is not empty; as [`Session::verify`]. That does not
    /// wait for whoever only asks.
    pub(crate) fn ask_log(&self, filter: &str) -> Option<oneshot::Receiver<SaidLog>> {
        let ask = |number| AskLog { number, filter: filter.to_owned() };
        self.logging
            .ask(!filter.is_empty(), |number| self.ask_now(ToSwitch { log: Some(ask(number)), ..ToSwitch::default() }))
    }

    /// Notes whether the switch can be asked what operators ask switches themselves.
    pub(crate) fn set_answers(&self, answers: bool) {
        self.answers.store(answers, Relaxed);
    }

    pub(crate) fn answers(&self) -> bool {
        self.answers.load(Relaxed)
    }

    /// Asks the switch what an operator wants to know of it. Whether that is on its way: it is answered elsewhere.
    pub(crate) fn ask_for(&self, ask: Ask) -> bool {
        self.ask_now(ToSwitch { ask: Some(ask), ..ToSwitch::default() })
    }

    /// The answer of the switch to [`Session::ask_log`].
    pub(crate) fn said_log(&self, answer: SaidLog) {
        self.logging.answer(answer.number, answer);
    }

    /// Tells the switch who hears what its hosts say to everybody, if it understands that and was last told another generation, in
    /// which that has another key.
    pub(crate) fn tell_groups(&self, generation: u64, key: impl Fn() -> u64, groups: impl FnOnce() -> Groups) {
        if self.said.lock().lacks_groups(generation, &key)
            && !self.is_over_limit()
            && self.ask_now(ToSwitch { groups: Some(groups()), ..ToSwitch::default() })
        {
            self.said.lock().set_groups_told(generation, key());
        }
    }

    /// Tells the switch how it is found, for other controllers, if it understands that.
    pub(crate) fn tell_standing(&self, standing: impl FnOnce() -> Standing) {
        if self.said.lock().takes_standing() {
            self.ask_now(ToSwitch { standing: Some(standing()), ..ToSwitch::default() });
        }
    }

    /// Sends a question; also a switch that refuses its tables can answer. Whether the session goes on.
    fn ask_now(&self, question: ToSwitch) -> bool {
        // Whoever asks again and again does not fill the queue of a switch that reads slowly.
        if self.is_over_limit() {
            return false;
        }
        let line = self.lock();
        let Some(sender) = &line.sender else { return false };
        self.backlog_bytes.fetch_add(weight(&question) + MESSAGE_OVERHEAD, Relaxed);
        sender.send(ToSwitch { answered: u64::MAX, ..question }).is_ok()
    }

    /// Whether the switch missed a deadline and has not caught up since: it is not waited for.
    pub(crate) fn is_lagging(&self) -> bool {
        self.lagging.load(Relaxed)
    }

    pub(crate) fn set_lagging(&self) {
        self.lagging.store(true, Relaxed);
    }

    /// Returns when everything up to `sequence` is acknowledged, or the session ended.
    pub(crate) async fn acknowledged(&self, sequence: u64) {
        let mut acked = self.acked.subscribe();
        let mut ended = self.ended.subscribe();
        tokio::select! {
            _ = acked.wait_for(|&acked| acked >= sequence) => {}
            _ = ended.wait_for(|&ended| ended) => {}
        }
    }

    pub(crate) fn is_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Returns when the session ended.
    pub(crate) async fn until_ended(&self) {
        let _ = self.ended.subscribe().wait_for(|&ended| ended).await;
    }

    /// Ends the session: no more messages, the stream ends.
    pub(crate) fn end(&self) {
        let mut line = self.lock();
        line.sender = None;
        line.queue.close();
        drop(line);
        self.ended.send_replace(true);
    }
}

impl Outbox {
    /// The next message; none when the session ended, even if messages are still queued.
    pub(crate) async fn next(&mut self) -> Option<ToSwitch> {
        loop {
            let next = tokio::select! {
                biased;
                () = self.session.until_ended() => return None,
                next = self.receiver.recv() => next?,
            };
            self.session.release(weight(&next));
            if !self.session.is_refused(&next) {
                return Some(next);
            }
        }
    }

    /// Returns when the session ended.
    pub(crate) async fn until_ended(&self) {
        self.session.until_ended().await;
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.session.end();
    }
}

#[cfg(test)]
mod tests;
