//! One connected switch: what waits for it, what it acknowledged, and when it is cut off.
//!
//! The writer never waits for a switch. Messages queue up to a limit in bytes; a switch that falls further behind is
//! cut off: its stream ends, the queue is freed, and when it connects again it gets what it lacks from its report.

use api::v1::ToSwitch;
use bytes::Bytes;
use fib::topology::NodeId;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{mpsc, watch};

/// Counted for each queued message beyond its bytes.
const MESSAGE_OVERHEAD: usize = 64;

/// The writer's and the pusher's end of a stream.
#[derive(Debug)]
pub(crate) struct Session {
    node: NodeId,
    limit_bytes: usize,
    queue: Mutex<Queue>,
    backlog_bytes: AtomicUsize,
    sent_bytes: AtomicU64,
    /// Highest sequence acknowledged.
    acked: watch::Sender<u64>,
    /// Highest change all of whose messages are acknowledged.
    acked_change: AtomicU64,
    lagging: AtomicBool,
    ended: watch::Sender<bool>,
}

#[derive(Debug)]
struct Queue {
    sender: Option<mpsc::UnboundedSender<ToSwitch>>,
    next_sequence: u64,
    /// Reports answered.
    answered: u64,
    /// (sequence, change) of what is not acknowledged.
    in_flight: VecDeque<(u64, u64)>,
}

/// The stream's end of it.
#[derive(Debug)]
pub(crate) struct Outbox {
    session: Arc<Session>,
    receiver: mpsc::UnboundedReceiver<ToSwitch>,
}

impl Session {
    /// A session whose queue holds at most `limit_bytes`.
    pub(crate) fn new(node: NodeId, limit_bytes: usize) -> (Arc<Session>, Outbox) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let session = Arc::new(Session {
            node,
            limit_bytes,
            queue: Mutex::new(Queue {
                sender: Some(sender),
                next_sequence: 1,
                answered: 0,
                in_flight: VecDeque::new(),
            }),
            backlog_bytes: AtomicUsize::new(0),
            sent_bytes: AtomicU64::new(0),
            acked: watch::Sender::new(0),
            acked_change: AtomicU64::new(0),
            lagging: AtomicBool::new(false),
            ended: watch::Sender::new(false),
        });
        (Arc::clone(&session), Outbox { session, receiver })
    }

    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// Queues a message of `change`; gives its sequence, or none if the session has ended, or ends by this. An empty
    /// queue takes a message of any size.
    pub(crate) fn send(&self, message: Bytes, change: u64) -> Option<u64> {
        let backlog_bytes = self.backlog_bytes.load(Relaxed);
        if backlog_bytes > 0 && backlog_bytes + message.len() + MESSAGE_OVERHEAD > self.limit_bytes {
            if !self.is_ended() {
                tracing::warn!(switch = %self.node, limit_bytes = self.limit_bytes, "switch is too far behind, cut off until it resyncs");
            }
            self.end();
            return None;
        }
        self.enqueue(message, change)
    }

    /// Queues what a switch lacks after it connected or asked. An image is as big as it is, so the limit counts what
    /// waits before it: a switch that asks again and again without reading is cut off.
    pub(crate) fn send_image(&self, messages: impl IntoIterator<Item = Bytes>, change: u64) {
        if self.backlog_bytes.load(Relaxed) > self.limit_bytes {
            return self.end();
        }
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).answered += 1;
        for message in messages {
            self.enqueue(message, change);
        }
    }

    fn enqueue(&self, message: Bytes, change: u64) -> Option<u64> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let sequence = queue.next_sequence;
        let len = message.len();
        queue.sender.as_ref()?.send(ToSwitch { sequence, message, answered: queue.answered }).ok()?;
        self.backlog_bytes.fetch_add(len + MESSAGE_OVERHEAD, Relaxed);
        self.sent_bytes.fetch_add(len as u64, Relaxed);
        queue.next_sequence += 1;
        queue.in_flight.push_back((sequence, change));
        Some(sequence)
    }

    /// Takes an acknowledgement of everything up to `sequence`. Later than what was sent: counts as the last one sent.
    pub(crate) fn acknowledge(&self, sequence: u64) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let sequence = sequence.min(queue.next_sequence - 1);
        while let Some(&(first, change)) = queue.in_flight.front()
            && first <= sequence
        {
            queue.in_flight.pop_front();
            // The messages of one change may be many: it is acknowledged with the last of them.
            if queue.in_flight.front().is_none_or(|&(_, next)| next != change) {
                self.acked_change.fetch_max(change, Relaxed);
            }
        }
        if queue.in_flight.is_empty() {
            self.lagging.store(false, Relaxed);
        }
        self.acked.send_if_modified(|acked| sequence > std::mem::replace(acked, sequence.max(*acked)));
    }

    /// The last change all of whose messages are acknowledged; 0: none.
    pub(crate) fn acked_change(&self) -> u64 {
        self.acked_change.load(Relaxed)
    }

    /// Messages sent, messages acknowledged, bytes sent.
    pub(crate) fn progress(&self) -> (u64, u64, u64) {
        let sent = self.queue.lock().unwrap_or_else(PoisonError::into_inner).next_sequence - 1;
        (sent, *self.acked.borrow(), self.sent_bytes.load(Relaxed))
    }

    /// Whether the switch once missed a deadline and has not caught up since: nobody waits for it.
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
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).sender = None;
        self.ended.send_replace(true);
    }
}

impl Outbox {
    /// The next message; none when the session ended, whatever is still queued then.
    pub(crate) async fn next(&mut self) -> Option<ToSwitch> {
        tokio::select! {
            biased;
            () = self.session.until_ended() => None,
            next = self.receiver.recv() => {
                let next = next?;
                self.session.backlog_bytes.fetch_sub(next.message.len() + MESSAGE_OVERHEAD, Relaxed);
                Some(next)
            }
        }
    }
}

impl Outbox {
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
mod tests {
    use super::*;

    const MESSAGE: &[u8] = &[7; 100];

    #[tokio::test]
    async fn messages_come_in_order_with_their_numbers() {
        let (session, mut outbox) = Session::new(NodeId(1), 1 << 20);
        assert_eq!(session.send(Bytes::from_static(b"a"), 1), Some(1));
        assert_eq!(session.send(Bytes::from_static(b"b"), 1), Some(2));
        for (sequence, bytes) in [(1, b"a"), (2, b"b")] {
            let next = outbox.next().await.unwrap();
            assert_eq!((next.sequence, &next.message[..]), (sequence, &bytes[..]));
        }
    }

    #[tokio::test]
    async fn switch_that_reads_nothing_is_cut_off_at_the_limit() {
        let (session, mut outbox) = Session::new(NodeId(1), 1000);
        let n_sent = (0..).take_while(|_| session.send(Bytes::from_static(MESSAGE), 1).is_some()).count();
        assert_eq!(n_sent, 1000 / (MESSAGE.len() + MESSAGE_OVERHEAD));
        assert!(session.is_ended());
        assert!(outbox.next().await.is_none());
    }

    #[tokio::test]
    async fn switch_that_asks_without_reading_is_cut_off() {
        let (session, _outbox) = Session::new(NodeId(1), 1000);
        let image = || [Bytes::from_static(&[7; 5000])];
        session.send_image(image(), 1);
        assert!(!session.is_ended(), "an image may be larger than the limit");
        session.send_image(image(), 1);
        assert!(session.is_ended());
    }

    #[tokio::test]
    async fn reading_makes_room() {
        let (session, mut outbox) = Session::new(NodeId(1), 1000);
        for _ in 0..100 {
            session.send(Bytes::from_static(MESSAGE), 1).unwrap();
            outbox.next().await.unwrap();
        }
    }

    #[test]
    fn change_is_acknowledged_with_its_last_message() {
        let (session, _outbox) = Session::new(NodeId(1), 1 << 20);
        for change in [5, 5, 6, 6, 6] {
            session.send(Bytes::from_static(MESSAGE), change);
        }
        let acked = [1, 2, 4, 3, 99].map(|sequence| {
            session.acknowledge(sequence);
            session.acked_change()
        });
        assert_eq!(acked, [0, 5, 5, 5, 6]);
        assert_eq!(session.progress(), (5, 5, 500));
    }

    #[tokio::test]
    async fn waiting_ends_with_the_acknowledgement_or_the_session() {
        let (session, outbox) = Session::new(NodeId(1), 1 << 20);
        session.send(Bytes::from_static(MESSAGE), 1);
        session.send(Bytes::from_static(MESSAGE), 2);
        session.acknowledge(1);
        session.acknowledged(1).await;
        drop(outbox);
        session.acknowledged(2).await;
        assert_eq!(session.send(Bytes::from_static(MESSAGE), 3), None);
    }
}
