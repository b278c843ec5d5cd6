//! A question to a switch, and who waits for its answer: one at a time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Questions of a kind. They are numbered, so that an answer that comes late is nobody's.
#[derive(Debug)]
pub(crate) struct Question<T>(Mutex<Asked<T>>);

#[derive(Debug)]
struct Asked<T> {
    n_asked: u64,
    waiting: Option<oneshot::Sender<T>>,
}

impl<T> Default for Question<T> {
    fn default() -> Self {
        Self(Mutex::new(Asked { n_asked: 0, waiting: None }))
    }
}

impl<T> Question<T> {
    fn lock(&self) -> MutexGuard<'_, Asked<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks by `send`, which gets the number and says whether the question is on its way, and returns where the answer will come.
    /// None if it is not, or another answer is waited for.
    pub(super) fn ask(&self, send: impl FnOnce(u64) -> bool) -> Option<oneshot::Receiver<T>> {
        let mut asked = self.lock();
        if asked.waiting.as_ref().is_some_and(|waiting| !waiting.is_closed()) || !send(asked.n_asked + 1) {
            return None;
        }
        let (reply, answer) = oneshot::channel();
        (asked.n_asked, asked.waiting) = (asked.n_asked + 1, Some(reply));
        Some(answer)
    }

    /// An answer came.
    pub(super) fn answer(&self, number: u64, answer: T) {
        let mut asked = self.lock();
        if number == asked.n_asked
            && let Some(waiting) = asked.waiting.take()
        {
            let _ = waiting.send(answer);
        }
    }
}
