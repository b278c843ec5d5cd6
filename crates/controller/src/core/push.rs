//! Pushes committed changes to the switches, phase by phase.
//!
//! A change that adds is sent to its destination before the others; one that removes, to the others before the
//! destination. So no switch sends frames where they would be lost. The next phase is sent after the switches of the
//! previous one have acknowledged, or after the phase timeout. A late switch is not waited for again until it has caught up.
//!
//! While a phase waits, further changes gather and go out together, so the rate does not depend on the round trip.
//! Messages to one switch stay in order, so in a group a message may go out earlier than its own phase, never later.

#![cfg_attr(not(feature = "kit"), allow(unreachable_pub, reason = "simulations drive it"))]

use crate::core::session::{Line, Session};
use api::seam::{Mistake, mistaken};
use bytes::Bytes;
use fib::topology::NodeId;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// A message for a switch, with the index of its phase in its change.
#[derive(Debug)]
pub struct Outgoing<L> {
    pub(crate) phase: usize,
    pub(crate) node: NodeId,
    pub(crate) line: L,
    pub(crate) message: Bytes,
}

/// What the pusher waits for.
#[allow(missing_docs, reason = "their names say it")]
#[derive(Debug)]
pub enum Pushed<L> {
    /// More messages: those that it had are queued for their switches.
    All,
    /// The acknowledgement of a switch, or the end of its session, but only until this time.
    Waits { line: L, sequence: u64, until: Instant },
}

/// The messages of a group of changes on their way, phase by phase.
#[derive(Debug)]
pub struct Pusher<L> {
    phases: VecDeque<Vec<Outgoing<L>>>,
    /// The switches that were sent the last phase, each with the last sequence.
    waiting_for: VecDeque<(L, u64)>,
    until: Option<Instant>,
    timeout: Duration,
}

impl<L: Line> Pusher<L> {
    /// A pusher that waits this long for the acknowledgements of a phase.
    pub fn new(timeout: Duration) -> Pusher<L> {
        Pusher { phases: VecDeque::new(), waiting_for: VecDeque::new(), until: None, timeout }
    }

    /// Takes the next group, once the last one is queued in full.
    pub fn take(&mut self, messages: impl Iterator<Item = Outgoing<L>>) {
        self.phases = by_phase(messages).into();
    }

    /// Queues messages for their switches, up to the first phase that must wait. Calls `late` with each switch that has not
    /// acknowledged in time: it goes on without that switch.
    pub fn go_on(&mut self, now: Instant, mut late: impl FnMut(NodeId)) -> Pushed<L> {
        loop {
            while let Some((line, sequence)) = self.waiting_for.front() {
                let until = *self.until.get_or_insert(now + self.timeout);
                let sequence = *sequence;
                let is_awaited = line.with(|session| is_awaited(session, sequence));
                if is_awaited && now < until {
                    return Pushed::Waits { line: line.clone(), sequence, until };
                }
                if let Some((line, _)) = self.waiting_for.pop_front().filter(|_| is_awaited) {
                    late(line.with(|session| session.node()));
                    self.give_up(&line);
                }
            }
            self.until = None;
            let Some(phase) = self.phases.pop_front() else { return Pushed::All };
            let sent = send(phase, now);
            // No wait follows the last phase.
            if !self.phases.is_empty() {
                self.waiting_for = sent;
            }
        }
    }

    /// Goes on without a switch that is late.
    fn give_up(&mut self, line: &L) {
        line.with(|session| session.set_lagging());
        if mistaken(Mistake::LatePhasesDropped) {
            let node = line.with(|session| session.node());
            for phase in &mut self.phases {
                let of_it = phase.extract_if(.., |outgoing| outgoing.node == node);
                of_it.for_each(|Outgoing { line, message, .. }| line.with(|session| session.skip(&message)));
            }
        }
    }
}

/// Whether the next phase waits for this switch: one that is late is not waited for again until it has caught up.
fn is_awaited(session: &Session, sequence: u64) -> bool {
    !session.is_lagging() && !session.is_ended() && session.acked() < sequence
}

/// Sorts messages by phase: each is as late as its own phase and the later messages to the same switch allow.
fn by_phase<L>(messages: impl Iterator<Item = Outgoing<L>>) -> Vec<Vec<Outgoing<L>>> {
    let mut messages: Vec<Outgoing<L>> = messages.collect();
    let mut earliest: BTreeMap<NodeId, usize> = BTreeMap::new();
    for outgoing in messages.iter_mut().rev() {
        let phase = earliest.entry(outgoing.node).or_insert(outgoing.phase);
        *phase = outgoing.phase.min(*phase);
        outgoing.phase = *phase;
    }
    let n_phases = messages.iter().map(|o| o.phase + 1).max().unwrap_or(0);
    let mut phases: Vec<Vec<Outgoing<L>>> = (0..n_phases).map(|_| Vec::new()).collect();
    for outgoing in messages {
        phases[outgoing.phase].push(outgoing);
    }
    phases
}

/// Queues the messages; returns the switches to wait for, each with its last sequence.
fn send<L: Line>(phase: Vec<Outgoing<L>>, now: Instant) -> VecDeque<(L, u64)> {
    let mut sent = BTreeMap::new();
    for Outgoing { node, line, message, .. } in phase {
        if let Some(sequence) = line.with(|session| session.send(message, now)) {
            sent.insert(node, (line, sequence));
        }
    }
    sent.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::session::Next;
    use crate::core::single::Stream;

    fn line(node: u32) -> Stream {
        Line::open(Session::new(NodeId(node), 1000))
    }

    fn outgoing(line: &Stream, phase: usize, message: &'static str) -> Outgoing<Stream> {
        line.with(|session| session.reserve(message.len(), 1));
        let node = line.with(|session| session.node());
        Outgoing { phase, node, line: line.clone(), message: Bytes::from_static(message.as_bytes()) }
    }

    fn text(line: &Stream) -> Option<String> {
        let Next::Message(message) = line.with(|session| session.take()) else { return None };
        Some(String::from_utf8(message.message.to_vec()).unwrap())
    }

    #[test]
    fn messages_to_one_switch_keep_their_order_across_phases() {
        let (a, b) = (line(1), line(2));
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

    #[test]
    fn second_phase_waits_for_the_first() {
        let (a, b, now) = (line(1), line(2), Instant::now());
        let mut pusher = Pusher::new(Duration::from_secs(3600));
        pusher.take([outgoing(&a, 0, "first"), outgoing(&b, 1, "second")].into_iter());
        let Pushed::Waits { line, sequence, until } = pusher.go_on(now, |_| panic!("in time")) else { panic!("waits") };
        assert!(line.is(&a) && sequence == 1 && until == now + Duration::from_secs(3600));
        assert_eq!(text(&a).unwrap(), "first");
        assert_eq!(b.with(|session| session.progress().0), 0, "nothing sent before the acknowledgement");
        a.with(|session| session.acknowledge(1));
        assert!(matches!(pusher.go_on(now, |_| panic!("in time")), Pushed::All));
        assert_eq!(text(&b).unwrap(), "second");
    }

    #[test]
    fn slow_switch_delays_the_others_once_and_not_again() {
        let (slow, fast, timeout) = (line(1), line(2), Duration::from_secs(5));
        let mut pusher = Pusher::new(timeout);
        let (start, mut now, mut n_late) = (Instant::now(), Instant::now(), 0);
        for _ in 0..3 {
            pusher.take([outgoing(&slow, 0, "x"), outgoing(&fast, 1, "y")].into_iter());
            while let Pushed::Waits { until, .. } = pusher.go_on(now, |node| {
                assert_eq!(node, NodeId(1));
                n_late += 1;
            }) {
                assert_eq!(text(&fast), None);
                now = until;
            }
            assert_eq!(text(&fast).unwrap(), "y");
            fast.with(|session| session.acknowledge(session.progress().0));
        }
        assert!(now < start + 2 * timeout && now >= start + timeout && n_late == 1, "one timeout in all");
        slow.with(|session| session.acknowledge(session.progress().0));
        assert!(!slow.with(|session| session.is_lagging()));
        assert_eq!(text(&slow).unwrap(), "x");
    }
}
