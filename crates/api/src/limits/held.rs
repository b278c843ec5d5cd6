//! Requests in progress, and the bytes that they and their answers hold.

use super::Limits;
use super::connections::{Connection, Guard, Limit, lock};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::time::Instant;
use tonic::{Request, Status};

/// What bytes are of: each has the limits for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    /// Requests without an answer.
    Request,
    /// Answers in preparation, or not yet read.
    Answer,
}

/// Bytes that are held.
#[derive(Debug, Default)]
pub(super) struct InUse([AtomicUsize; 2]);

impl InUse {
    fn counter(&self, of: Use) -> &AtomicUsize {
        let [requests, answers] = &self.0;
        match of {
            Use::Request => requests,
            Use::Answer => answers,
        }
    }

    pub(super) fn bytes(&self, of: Use) -> usize {
        self.counter(of).load(Relaxed)
    }

    /// Adds bytes if the sum is at most `max` then. A single answer may be larger: its size depends on the network, not
    /// on the request.
    fn add_up_to(&self, of: Use, n: usize, max: usize) -> Result<(), usize> {
        let fits = |now: usize, sum: usize| sum <= max || of == Use::Answer && now == 0;
        let add = |now: usize| now.checked_add(n).filter(|&sum| fits(now, sum));
        self.counter(of).fetch_update(Relaxed, Relaxed, add).map(drop)
    }

    fn add(&self, of: Use, n: usize) {
        self.counter(of).fetch_add(n, Relaxed);
    }

    fn sub(&self, of: Use, n: usize) {
        self.counter(of).fetch_sub(n, Relaxed);
    }
}

/// A request in progress, and its bytes.
#[derive(Debug)]
pub(super) struct Held {
    guard: Arc<Guard>,
    connection: Arc<Connection>,
    own: InUse,
}

impl Held {
    pub(super) fn new(guard: Arc<Guard>, connection: Arc<Connection>) -> Self {
        Self { guard, connection, own: InUse::default() }
    }

    pub(super) fn limits(&self) -> Arc<Limits> {
        self.guard.limits()
    }

    /// Counts a refusal of this request.
    pub(super) fn refuse(&self, limit: Limit) {
        self.guard.refuse(limit, Some(self.connection.key.1));
    }

    /// The request, or a message of it, has come whole: its connection has asked something.
    pub(super) fn came_whole(&self) {
        if !self.connection.is_known.load(Relaxed) {
            lock(&self.guard.table).asked(&self.connection);
        }
    }

    /// Reserves bytes until they are released or the request ends.
    /// # Errors
    /// What to tell the peer.
    pub(super) fn reserve(&self, of: Use, n: usize) -> Result<(), Status> {
        let limits = self.limits();
        let max = |limit| match limit {
            Limit::ConnectionBytes => limits.connection_bytes,
            Limit::PeerBytes => limits.peer_bytes,
            _ => limits.total_bytes,
        };
        for (at, (limit, in_use)) in self.connection.in_use().enumerate() {
            if let Err(now) = in_use.add_up_to(of, n, max(limit)) {
                self.connection.in_use().take(at).for_each(|(_, in_use)| in_use.sub(of, n));
                self.refuse(limit);
                return Err(refusal(of, limit, now, n, max(limit)));
            }
        }
        self.own.add(of, n);
        Ok(())
    }

    /// Counts bytes that are already there.
    pub(super) fn add(&self, of: Use, n: usize) {
        self.connection.in_use().for_each(|(_, in_use)| in_use.add(of, n));
        self.own.add(of, n);
    }

    /// Gives reserved bytes back.
    pub(super) fn release(&self, of: Use, n: usize) {
        let n = n.min(self.own.bytes(of));
        self.own.sub(of, n);
        self.connection.in_use().for_each(|(_, in_use)| in_use.sub(of, n));
    }

    /// Bytes that this request holds.
    pub(super) fn bytes(&self, of: Use) -> usize {
        self.own.bytes(of)
    }

    /// Whether the peer may make a request now: a bucket with twice the requests per second.
    pub(super) fn takes_turn(&self) -> bool {
        let rate = f64::from(self.limits().requests_per_second);
        if rate == 0.0 {
            return true;
        }
        let (now, burst) = (Instant::now(), 2.0 * rate);
        let mut bucket = lock(&self.connection.peer.bucket);
        let (tokens, since) = bucket.unwrap_or((burst, now));
        let tokens = (tokens + (now - since).as_secs_f64() * rate).min(burst);
        let turn = tokens >= 1.0;
        *bucket = Some((if turn { tokens - 1.0 } else { tokens }, now));
        turn
    }
}

fn refusal(of: Use, limit: Limit, now: usize, n: usize, max: usize) -> Status {
    let whose = match limit {
        Limit::ConnectionBytes => "on this connection",
        Limit::PeerBytes => "from your address, or with your certificate",
        _ => "at this address of the daemon",
    };
    let (are, help) = match of {
        Use::Request => ("requests are unanswered", "wait for answers and try again"),
        Use::Answer => ("answers are not read yet", "read them, ask for less at a time and try again"),
    };
    Status::resource_exhausted(format!(
        "{now} bytes of {are} {whose}, and {n} more would be over {max}; {help}, or raise limits.{}",
        limit.name()
    ))
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release(Use::Request, usize::MAX);
        self.release(Use::Answer, usize::MAX);
        let connection = &self.connection;
        if lock(&self.guard.table).end(connection) {
            *lock(&connection.quiet) = (Instant::now(), true);
            // Anyone who waits for its end has to count from now.
            if let Some(waker) = lock(&connection.reader).take() {
                waker.wake();
            }
        }
    }
}

/// What a service reserves for an answer before it makes it. It is in the extensions of a request, and given back when the answer is read.
#[derive(Clone, Debug)]
pub struct Answering(pub(super) Arc<Held>);

impl Answering {
    /// That of a request; none, if nothing limits it.
    pub fn of<T>(request: &Request<T>) -> Option<Self> {
        request.extensions().get().cloned()
    }

    /// Reserves room for the answer to a request, in bytes as it is in memory.
    /// # Errors
    /// What to tell anyone who asks, if too many answers of theirs, or of all, are not read yet.
    pub fn reserve<T>(request: &Request<T>, bytes: usize) -> Result<(), Status> {
        request.extensions().get::<Self>().map_or(Ok(()), |answering| answering.0.reserve(Use::Answer, bytes))
    }
}
