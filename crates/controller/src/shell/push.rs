//! The task that pushes: see [`crate::core::push`].

use crate::core::push::{Outgoing, Pushed, Pusher};
use crate::shell::session::Session;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Most changes taken together, so that a flood does not become one endless group.
const MAX_GROUP: usize = 4096;

/// Sends what comes from `changes`, each a list in the order of the changes, until the writer is gone. The writer adds
/// each list to `pending`; this subtracts it once it is queued for its switches.
pub(crate) async fn push(
    mut changes: mpsc::Receiver<Vec<Outgoing<Arc<Session>>>>,
    phase_timeout: Duration,
    pending: &AtomicU64,
) {
    let (mut groups, mut pusher) = (Vec::new(), Pusher::new(phase_timeout));
    loop {
        let n_lists = changes.recv_many(&mut groups, MAX_GROUP).await;
        if n_lists == 0 {
            return;
        }
        pusher.take(groups.drain(..).flatten());
        while let Pushed::Waits { line, sequence, until } = pusher.go_on(Instant::now().into_std(), |switch| {
            tracing::warn!(%switch, timeout_ms = phase_timeout.as_millis(), "the switch has not acknowledged in time; going on without it");
        }) {
            let _ = tokio::time::timeout_at(until.into(), line.acknowledged(sequence)).await;
        }
        pending.fetch_sub(n_lists as u64, AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use fib::topology::NodeId;

    #[tokio::test(start_paused = true)]
    async fn next_phase_follows_the_acknowledgement_or_the_timeout() {
        let ((slow, _slow_out), (fast, mut fast_out)) =
            (Session::pair(NodeId(1), 1000), Session::pair(NodeId(2), 1000));
        let outgoing = |session: &Arc<Session>, phase| {
            session.lock().reserve(1, 1);
            let (node, line) = (session.lock().node(), Arc::clone(session));
            Outgoing { phase, node, line, message: Bytes::from_static(b"x") }
        };
        let (changes, receiver) = mpsc::channel(4);
        let timeout = Duration::from_secs(5);
        let pusher = tokio::spawn(async move { push(receiver, timeout, &AtomicU64::new(2)).await });
        let start = Instant::now();
        changes.send(vec![outgoing(&fast, 0), outgoing(&slow, 1), outgoing(&fast, 2)]).await.unwrap();
        assert_eq!(fast_out.next().await.unwrap().sequence, 1);
        fast.lock().acknowledge(1);
        assert_eq!(fast_out.next().await.unwrap().sequence, 2);
        assert_eq!(start.elapsed(), timeout, "the slow one");
        drop(changes);
        pusher.await.unwrap();
    }
}
