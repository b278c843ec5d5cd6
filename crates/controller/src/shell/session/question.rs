//! A question to a switch, and the caller that waits for its answer: one at a time. An urgent one takes the place of one that waits.

use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Questions of one kind. They are numbered, so that a late answer is not taken for another question's.
#[derive(Debug)]
pub(crate) struct Question<T>(Mutex<Asked<T>>);

#[derive(Debug)]
struct Asked<T> {
    n_asked: u64,
    waiting: Option<oneshot::Sender<T>>,
    /// Whether the question that is waiting is urgent.
    is_urgent: bool,
}

impl<T> Default for Question<T> {
    fn default() -> Self {
        Self(Mutex::new(Asked { n_asked: 0, waiting: None, is_urgent: false }))
    }
}

impl<T> Question<T> {
    fn lock(&self) -> MutexGuard<'_, Asked<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks through `send`, which gets the number and returns whether the question is on its way; returns where the answer will come.
    /// None if it is not, or if another answer is awaited. An urgent question cuts off one that is not, whose caller gets none.
    pub(super) fn ask(&self, is_urgent: bool, send: impl FnOnce(u64) -> bool) -> Option<oneshot::Receiver<T>> {
        let mut asked = self.lock();
        let is_waited_for = asked.waiting.as_ref().is_some_and(|waiting| !waiting.is_closed());
        if is_waited_for && (asked.is_urgent || !is_urgent) || !send(asked.n_asked + 1) {
            return None;
        }
        let (reply, answer) = oneshot::channel();
        *asked = Asked { n_asked: asked.n_asked + 1, waiting: Some(reply), is_urgent };
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn whoever_changes_something_does_not_wait_for_whoever_only_asks() {
        let (question, sent) = (Question::default(), Cell::new(0));
        let ask = |is_urgent| {
            question.ask(is_urgent, |number| {
                sent.set(number);
                true
            })
        };
        let mut show = ask(false).unwrap();
        assert!(ask(false).is_none(), "one at a time");
        let mut change = ask(true).unwrap();
        assert_eq!(sent.get(), 2);
        assert!(ask(true).is_none() && ask(false).is_none(), "a change is not cut off");
        assert_eq!(show.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        // The answer to the question that was cut off has no receiver.
        question.answer(1, "as it was");
        assert_eq!(change.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        question.answer(2, "changed");
        assert_eq!(change.try_recv(), Ok("changed"));
        assert!(ask(false).is_some());
        assert!(question.ask(true, |_| false).is_none(), "the stream has ended");
    }
}
