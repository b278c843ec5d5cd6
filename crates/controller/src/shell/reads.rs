//! Questions about the network, which wait apart from changes.
//!
//! The writer answers them between groups of changes, from what is committed, a few at a time while changes wait. So a flood of
//! questions delays no change by more than a few answers, and each question only by those before it.

use crate::core::change::State;
use crate::core::owner::Seen;
use crate::shell::job::{Jobs, Read};
use std::fmt::{self, Debug, Formatter};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// Questions that may wait; others wait in their connections.
const QUEUED: usize = 1024;

/// Questions that are answered between two groups of changes: each reads a page of names at most, which takes some milliseconds.
pub(crate) const TURN_READS: usize = 4;

/// See the module.
pub(crate) struct Reads {
    questions: mpsc::Sender<Read>,
    waiting: Mutex<mpsc::Receiver<Read>>,
}

impl Debug for Reads {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reads").field("waiting", &self.lock().len()).finish()
    }
}

impl Default for Reads {
    fn default() -> Self {
        let (questions, waiting) = mpsc::channel(QUEUED);
        Self { questions, waiting: Mutex::new(waiting) }
    }
}

impl Reads {
    fn lock(&self) -> MutexGuard<'_, mpsc::Receiver<Read>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the writer through `jobs`; none if it has ended. A question is not read once its asker is gone.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        jobs: &Jobs,
        read: impl FnOnce(&State, &mut Seen) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        let question = move |state: &State, seen: &mut Seen| {
            if !reply.is_closed() {
                let _ = reply.send(read(state, seen));
            }
        };
        self.questions.send(Box::new(question)).await.ok()?;
        jobs.wake().ok()?;
        answer.await.ok()
    }

    /// Whether a question waits.
    pub(crate) fn wait(&self) -> bool {
        !self.lock().is_empty()
    }

    /// Answers the first `n` questions.
    pub(crate) fn answer(&self, state: &State, seen: &mut Seen, most: usize) {
        for _ in 0..most {
            let Ok(read) = self.lock().try_recv() else { return };
            read(state, seen);
        }
    }

    /// Ends all answers, including those that are waited for.
    pub(crate) fn close(&self) {
        let mut waiting = self.lock();
        waiting.close();
        while waiting.try_recv().is_ok() {}
    }
}
