//! A [session](crate::core::session) shared by the writer, the pusher and the services, and those who wait for it.

mod question;

use crate::core::session::{self, Line, News, Next};
use crate::shell::guarded::Guarded;
use crate::shell::session::question::Question;
use api::v1::{AskLog, SaidLog, ToSwitch, Verified};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, MutexGuard};
use tokio::sync::{Notify, oneshot, watch};

/// See the module.
#[derive(Debug)]
pub(crate) struct Session {
    session: Guarded<session::Session>,
    news: watch::Sender<News>,
    /// Notified when there is something for the stream.
    outbox: Notify,
    /// Those who wait for its digests, and for the filter of its log.
    verifying: Question<Verified>,
    logging: Question<SaidLog>,
}

/// Access to the session. Afterwards, those who wait for what changed look again.
pub(crate) struct Held<'a> {
    session: MutexGuard<'a, session::Session>,
    of: &'a Session,
}

impl Deref for Held<'_> {
    type Target = session::Session;

    fn deref(&self) -> &session::Session {
        &self.session
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut session::Session {
        &mut self.session
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let news = self.session.news();
        self.of.news.send_if_modified(|before| std::mem::replace(before, news) != news);
        if self.session.has_next() {
            self.of.outbox.notify_one();
        }
    }
}

impl Line for Arc<Session> {
    fn open(session: session::Session) -> Self {
        Arc::new(Session {
            session: Guarded::new(session),
            news: watch::Sender::default(),
            outbox: Notify::new(),
            verifying: Question::default(),
            logging: Question::default(),
        })
    }

    fn with<R>(&self, change: impl FnOnce(&mut session::Session) -> R) -> R {
        change(&mut self.lock())
    }

    fn id(&self) -> usize {
        Arc::as_ptr(self).addr()
    }
}

impl Session {
    /// Access to the session, for a statement.
    pub(crate) fn lock(&self) -> Held<'_> {
        Held { session: self.session.lock(), of: self }
    }

    /// Returns true when a change [is served](session::Session::has_served), false when the session ended before.
    pub(crate) async fn serves(&self, change: u64) -> bool {
        let mut news = self.news.subscribe();
        loop {
            if self.lock().has_served(change) {
                return true;
            }
            if self.lock().is_ended() || news.changed().await.is_err() {
                return false;
            }
        }
    }

    /// Returns when everything up to `sequence` is acknowledged, or the session ended.
    pub(crate) async fn acknowledged(&self, sequence: u64) {
        let _ = self.news.subscribe().wait_for(|news| news.acked >= sequence || news.is_ended).await;
    }

    /// Returns when the session ended.
    pub(crate) async fn until_ended(&self) {
        let _ = self.news.subscribe().wait_for(|news| news.is_ended).await;
    }

    /// Has the switch compute its digests again, and returns where its answer will come. None if the session ended, or
    /// another answer is waited for.
    pub(crate) fn verify(&self) -> Option<oneshot::Receiver<Verified>> {
        self.verifying.ask(false, |verify| self.lock().ask_now(ToSwitch { verify, ..ToSwitch::default() }))
    }

    /// The answer of the switch to [`Session::verify`].
    pub(crate) fn verified(&self, answer: Verified) {
        self.verifying.answer(answer.verify, answer);
    }

    /// Asks the switch for the filter of its log, and has it take another one if that is not empty; as [`Session::verify`]. A change does
    /// not wait for those who only ask.
    pub(crate) fn ask_log(&self, filter: &str) -> Option<oneshot::Receiver<SaidLog>> {
        let ask = |number| AskLog { number, filter: filter.to_owned() };
        let ask = |number| self.lock().ask_now(ToSwitch { log: Some(ask(number)), ..ToSwitch::default() });
        self.logging.ask(!filter.is_empty(), ask)
    }

    /// The answer of the switch to [`Session::ask_log`].
    pub(crate) fn said_log(&self, answer: SaidLog) {
        self.logging.answer(answer.number, answer);
    }
}

/// The stream's end of a session.
#[derive(Debug)]
pub(crate) struct Outbox(Arc<Session>);

impl Outbox {
    /// The outbox of a session, which ends with it.
    pub(crate) fn of(session: &Arc<Session>) -> Outbox {
        Outbox(Arc::clone(session))
    }

    /// The next message; none when the session ended, even if messages are still queued.
    pub(crate) async fn next(&mut self) -> Option<ToSwitch> {
        loop {
            let next = self.0.lock().take();
            match next {
                Next::Message(message) => return Some(*message),
                Next::Ended => return None,
                Next::Nothing => self.0.outbox.notified().await,
            }
        }
    }

    /// Returns when the session ended.
    pub(crate) async fn until_ended(&self) {
        self.0.until_ended().await;
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.0.lock().end();
    }
}

#[cfg(test)]
impl Session {
    /// A session and its stream.
    pub(crate) fn pair(node: fib::topology::NodeId, limit_bytes: usize) -> (Arc<Session>, Outbox) {
        let session = Line::open(session::Session::new(node, limit_bytes));
        let outbox = Outbox::of(&session);
        (session, outbox)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use fib::topology::NodeId;
    use std::time::Instant;

    fn send(session: &Session, change: u64) -> Option<u64> {
        let mut session = session.lock();
        session.reserve(1, change);
        session.send(Bytes::from_static(b"x"), Instant::now())
    }

    #[tokio::test]
    async fn waiting_ends_with_the_acknowledgement_or_the_session() {
        let (session, outbox) = Session::pair(NodeId(1), 1 << 20);
        send(&session, 1);
        send(&session, 2);
        session.lock().acknowledge(1);
        session.acknowledged(1).await;
        drop(outbox);
        session.acknowledged(2).await;
        assert_eq!(send(&session, 3), None);
    }

    #[tokio::test]
    async fn stream_waits_for_messages_and_for_the_end() {
        let (session, mut outbox) = Session::pair(NodeId(1), 1 << 20);
        let stream = tokio::spawn(async move {
            let first = outbox.next().await.unwrap();
            (first.sequence, outbox.next().await.is_none())
        });
        tokio::task::yield_now().await;
        send(&session, 1);
        tokio::task::yield_now().await;
        session.lock().end();
        assert_eq!(stream.await.unwrap(), (1, true));
    }
}
