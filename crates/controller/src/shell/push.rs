//! Pushes committed changes to the switches, phase by phase.
//!
//! A change that adds is sent to its destination before the others; one that removes, to the others before the
//! destination. So no switch sends frames where they would be lost. The next phase is sent after the switches of the
//! previous one have acknowledged, or after the phase timeout. A late switch is not waited for until it has caught up.
//!
//! While a phase waits, further changes gather and go out together, so the rate does not depend on the round trip.
//! Messages to one switch stay in order, so in a group a message may go out earlier than its own phase, never later.

use crate::shell::session::Session;
use api::seam::{Mistake, mistaken};
use bytes::Bytes;
use fib::topology::NodeId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel};
use std::time::Duration;
use tokio::sync::mpsc;

/// A message for a switch, with the index of its phase in its change.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) phase: usize,
    pub(crate) session: Arc<Session>,
    pub(crate) message: Bytes,
}

/// Most changes taken together, so that a flood does not become one endless group.
const MAX_GROUP: usize = 4096;

/// Sends what comes from `changes`, each a list in the order of the changes, until the writer is gone. The writer adds
/// each list to `pending`; this subtracts it once it is queued for its switches.
pub(crate) async fn push(mut changes: mpsc::Receiver<Vec<Outgoing>>, phase_timeout: Duration, pending: &AtomicU64) {
    let mut groups = Vec::new();
    loop {
        let n_lists = changes.recv_many(&mut groups, MAX_GROUP).await;
        if n_lists == 0 {
            return;
        }
        let mut phases = Phases::of(groups.drain(..).flatten());
        while let Some(sent) = phases.send_next() {
            wait(&sent, &mut phases, phase_timeout).await;
        }
        pending.fetch_sub(n_lists as u64, AcqRel);
    }
}

/// Who was sent messages, each with the last sequence.
pub(crate) type Sent = Vec<(Arc<Session>, u64)>;

/// The messages of a group, by phase.
#[derive(Debug, Default)]
pub(crate) struct Phases(VecDeque<Vec<Outgoing>>);

impl Phases {
    pub(crate) fn of(messages: impl Iterator<Item = Outgoing>) -> Phases {
        Phases(by_phase(messages).into())
    }

    /// Queues the messages of the next phase for their switches. Returns those to [wait for](is_awaited); nobody is after
    /// the last phase. `None`: all are sent.
    pub(crate) fn send_next(&mut self) -> Option<Sent> {
        let sent = send(self.0.pop_front()?);
        Some(if self.0.is_empty() { Vec::new() } else { sent })
    }

    /// Goes on without a switch that is late.
    pub(crate) fn give_up(&mut self, session: &Session) {
        session.set_lagging();
        if mistaken(Mistake::LatePhasesDropped) {
            for phase in &mut self.0 {
                let of_it = phase.extract_if(.., |outgoing| outgoing.session.node() == session.node());
                of_it.for_each(|Outgoing { message, .. }| session.skip(&message));
            }
        }
    }
}

/// Whether the next phase waits for this switch: one that is late is not waited for again until it has caught up.
pub(crate) fn is_awaited(session: &Session, sequence: u64) -> bool {
    !session.is_lagging() && !session.is_ended() && session.progress().1 < sequence
}

/// Sorts messages by phase: each is as late as its own phase and the later messages to the same switch allow.
fn by_phase(messages: impl Iterator<Item = Outgoing>) -> Vec<Vec<Outgoing>> {
    let mut messages: Vec<Outgoing> = messages.collect();
    let mut earliest: BTreeMap<NodeId, usize> = BTreeMap::new();
    for outgoing in messages.iter_mut().rev() {
        let phase = earliest.entry(outgoing.session.node()).or_insert(outgoing.phase);
        *phase = outgoing.phase.min(*phase);
        outgoing.phase = *phase;
    }
    let n_phases = messages.iter().map(|o| o.phase + 1).max().unwrap_or(0);
    let mut phases: Vec<Vec<Outgoing>> = (0..n_phases).map(|_| Vec::new()).collect();
    for outgoing in messages {
        phases[outgoing.phase].push(outgoing);
    }
    phases
}

/// Queues the messages; returns the sessions to wait for, each with its last sequence.
fn send(phase: Vec<Outgoing>) -> Sent {
    let mut sent = BTreeMap::new();
    for Outgoing { session, message, .. } in phase {
        if let Some(sequence) = session.send(message) {
            sent.insert(session.node(), (session, sequence));
        }
    }
    sent.into_values().collect()
}

async fn wait(sent: &Sent, phases: &mut Phases, timeout: Duration) {
    let deadline = tokio::time::Instant::now() + timeout;
    for (session, sequence) in sent.iter().filter(|(session, sequence)| is_awaited(session, *sequence)) {
        if tokio::time::timeout_at(deadline, session.acknowledged(*sequence)).await.is_err() {
            phases.give_up(session);
            tracing::warn!(switch = %session.node(), timeout_ms = timeout.as_millis(), "the switch has not acknowledged in time; going on without it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::session::Outbox;

    fn outgoing(session: &Arc<Session>, phase: usize, message: &'static str) -> Outgoing {
        session.reserve(message.len(), 1);
        Outgoing { phase, session: Arc::clone(session), message: Bytes::from_static(message.as_bytes()) }
    }

    async fn text(outbox: &mut Outbox) -> String {
        String::from_utf8(outbox.next().await.unwrap().message.to_vec()).unwrap()
    }

    #[test]
    fn messages_to_one_switch_keep_their_order_across_phases() {
        let (a, _a_out) = Session::new(NodeId(1), 1000);
        let (b, _b_out) = Session::new(NodeId(2), 1000);
        let messages = [
            outgoing(&a, 0, "a1"),
            outgoing(&b, 1, "b1"),
            outgoing(&b, 0, "b2"),
            outgoing(&a, 1, "a2"),
            outgoing(&b, 2, "b3"),
        ];
        let phases = by_phase(messages.into_iter());
        let texts: Vec<Vec<&[u8]>> = phases.iter().map(|p| p.iter().map(|o| &o.message[..]).collect()).collect();
        assert_eq!(texts, [vec![&b"a1"[..], b"b1", b"b2"], vec![b"a2"], vec![b"b3"]]);
    }

    #[tokio::test]
    async fn second_phase_waits_for_the_first() {
        let (a, mut a_out) = Session::new(NodeId(1), 1000);
        let (b, mut b_out) = Session::new(NodeId(2), 1000);
        let (changes, receiver) = mpsc::channel(4);
        changes.send(vec![outgoing(&a, 0, "first"), outgoing(&b, 1, "second")]).await.unwrap();
        let pusher = tokio::spawn(async move { push(receiver, Duration::from_secs(3600), &AtomicU64::new(1)).await });
        assert_eq!(text(&mut a_out).await, "first");
        assert_eq!(b.progress().0, 0, "nothing sent before the acknowledgement");
        a.acknowledge(1);
        assert_eq!(text(&mut b_out).await, "second");
        drop(changes);
        pusher.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn slow_switch_delays_the_others_once_and_not_again() {
        let (slow, mut slow_out) = Session::new(NodeId(1), 1000);
        let (fast, mut fast_out) = Session::new(NodeId(2), 1000);
        let (changes, receiver) = mpsc::channel(4);
        let timeout = Duration::from_secs(5);
        tokio::spawn(async move { push(receiver, timeout, &AtomicU64::new(3)).await });
        let start = tokio::time::Instant::now();
        for _ in 0..3 {
            changes.send(vec![outgoing(&slow, 0, "x"), outgoing(&fast, 1, "y")]).await.unwrap();
            assert_eq!(text(&mut fast_out).await, "y");
            fast.acknowledge(fast.progress().0);
        }
        assert_eq!(start.elapsed(), timeout, "one timeout in all");
        slow.acknowledge(slow.progress().0);
        assert!(!slow.is_lagging());
        assert_eq!(text(&mut slow_out).await, "x");
    }
}
