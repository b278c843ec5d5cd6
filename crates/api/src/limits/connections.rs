//! The connections of a daemon, and what the limits refuse.

use super::Limits;
use super::held::{Held, InUse, Use};
use super::table::{Entry, Key, Kind, Peer, Table, Who, peer_of};
use crate::address::Origin;
use crate::identity::Identity;
use crate::status::MetricsText;
use arc_swap::ArcSwap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;
use tokio::time::Instant;

/// Interval at which the log says that a limit refuses something.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// What was refused or closed. The names are labels of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// All connections of a listener were taken, and each of them had asked something whole and waited for the answer.
    Connections,
    /// The same for the connections of one peer.
    PeerConnections,
    /// A connection of a stranger, or one that was idle, was closed for a new one.
    Replaced,
    /// No request came in time.
    FirstRequest,
    /// No further request came in time.
    Idle,
    /// A message is too large.
    Message,
    /// A message did not come to its end in time.
    MessageTime,
    /// Too many bytes of one connection.
    ConnectionBytes,
    /// Too many bytes of one peer.
    PeerBytes,
    /// Too many bytes in all.
    TotalBytes,
    /// Too many requests a second.
    Requests,
    /// The system allows no more open files.
    Descriptors,
}

impl Limit {
    const ALL: [(Limit, &'static str); 12] = [
        (Limit::Connections, "connections"),
        (Limit::PeerConnections, "connections_per_peer"),
        (Limit::Replaced, "replaced"),
        (Limit::FirstRequest, "first_request_ms"),
        (Limit::Idle, "idle_ms"),
        (Limit::Message, "message_bytes"),
        (Limit::MessageTime, "message_ms"),
        (Limit::ConnectionBytes, "connection_bytes"),
        (Limit::PeerBytes, "peer_bytes"),
        (Limit::TotalBytes, "total_bytes"),
        (Limit::Requests, "requests_per_second"),
        (Limit::Descriptors, "descriptors"),
    ];

    /// The setting in `[limits]`, where there is one.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// The connections of all listeners of a daemon, and the limits of each.
#[derive(Debug)]
pub struct Guard {
    limits: ArcSwap<Limits>,
    pub(super) table: Mutex<Table>,
    listeners: Mutex<Vec<Arc<Listening>>>,
    refused: [AtomicU64; Limit::ALL.len()],
    said: Mutex<[Option<Instant>; Limit::ALL.len()]>,
}

/// A listener, and what all its connections hold.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) number: u32,
    pub(super) kind: Kind,
    pub(super) in_use: InUse,
}

/// What the connections of a peer share.
#[derive(Debug, Default)]
pub(super) struct PeerState {
    pub(super) in_use: InUse,
    pub(super) bucket: Mutex<Option<(f64, Instant)>>,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) key: Key,
    pub(super) listening: Arc<Listening>,
    /// Of its address.
    pub(super) peer: Arc<PeerState>,
    /// Of the holder of its certificate, once that is known.
    pub(super) holder: OnceLock<Arc<PeerState>>,
    pub(super) in_use: InUse,
    closed: AtomicBool,
    /// Whether it is not a stranger's: a certificate was shown or, where none is, a request or a message of one came whole.
    pub(super) is_known: AtomicBool,
    /// When it was accepted or its last request ended, and whether there was one.
    pub(super) quiet: Mutex<(Instant, bool)>,
    /// The task that reads from it.
    pub(super) reader: Mutex<Option<Waker>>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    /// Closes it as soon as it is read from.
    pub(super) fn close(&self) {
        self.closed.store(true, Relaxed);
        if let Some(waker) = lock(&self.reader).take() {
            waker.wake();
        }
    }

    /// Whether it was closed for another; otherwise wakes `waker` when it is.
    pub(super) fn is_closed(&self, waker: &Waker) -> bool {
        {
            let mut reader = lock(&self.reader);
            if !reader.as_ref().is_some_and(|known| known.will_wake(waker)) {
                *reader = Some(waker.clone());
            }
        }
        self.closed.load(Relaxed)
    }

    /// Since when it has had no request, and whether it had one before.
    pub(super) fn quiet_since(&self) -> (Instant, bool) {
        *lock(&self.quiet)
    }

    /// Those that hold bytes together with it, from the smallest: it, its address, the holder of its certificate, its listener.
    pub(super) fn in_use(&self) -> impl Iterator<Item = (Limit, &InUse)> {
        let holder = self.holder.get().map(|holder| (Limit::PeerBytes, &holder.in_use));
        [(Limit::ConnectionBytes, &self.in_use), (Limit::PeerBytes, &self.peer.in_use)]
            .into_iter()
            .chain(holder)
            .chain([(Limit::TotalBytes, &self.listening.in_use)])
    }
}

impl Guard {
    /// A guard over these limits.
    pub fn new(limits: Limits) -> Arc<Guard> {
        Arc::new(Guard {
            limits: ArcSwap::from_pointee(limits),
            table: Mutex::default(),
            listeners: Mutex::default(),
            refused: Default::default(),
            said: Mutex::new([None; Limit::ALL.len()]),
        })
    }

    /// The limits.
    pub fn limits(&self) -> Arc<Limits> {
        self.limits.load_full()
    }

    /// Sets other limits, from the next connection and the next request on. What a listener was told when it began stays: `streams`,
    /// `window_bytes` and `message_bytes`.
    pub fn set_limits(&self, limits: Limits) {
        let now = self.limits();
        let (streams, window_bytes, message_bytes) = (now.streams, now.window_bytes, now.message_bytes);
        self.limits.store(Arc::new(Limits { streams, window_bytes, message_bytes, ..limits }));
    }

    /// Connections at this moment.
    pub fn connections(&self) -> usize {
        lock(&self.table).len()
    }

    /// Bytes of requests that are not answered at this moment.
    pub fn request_bytes(&self) -> usize {
        lock(&self.listeners).iter().map(|listening| listening.in_use.bytes(Use::Request)).sum()
    }

    /// Bytes of answers that are made or not read at this moment.
    pub fn answer_bytes(&self) -> usize {
        lock(&self.listeners).iter().map(|listening| listening.in_use.bytes(Use::Answer)).sum()
    }

    /// Number of times that a limit refused or closed something.
    pub fn refused(&self, limit: Limit) -> u64 {
        self.refused[limit as usize].load(Relaxed)
    }

    /// Adds the counters to a daemon's metrics.
    pub fn metrics(&self, text: &mut MetricsText) {
        use crate::status::plain;
        text.gauge("fibula_connections", "Current connections.", plain(self.connections() as u64));
        let bytes = plain(self.request_bytes() as u64);
        text.gauge("fibula_request_bytes", "Bytes of requests in progress.", bytes);
        let bytes = plain(self.answer_bytes() as u64);
        text.gauge("fibula_answer_bytes", "Bytes of answers in preparation or not yet read by the client.", bytes);
        let samples = Limit::ALL.map(|(limit, name)| (format!("limit=\"{name}\""), self.refused(limit)));
        text.counter(
            "fibula_refused_total",
            "Connections and requests refused or closed by a limit, by limit.",
            samples,
        );
    }

    pub(super) fn new_listener(&self, kind: Kind) -> Arc<Listening> {
        let mut listeners = lock(&self.listeners);
        let number = listeners.len() as u32 + 1;
        let listening = Arc::new(Listening { number, kind, in_use: InUse::default() });
        listeners.push(Arc::clone(&listening));
        listening
    }

    /// Counts a refusal, and says so in the log now and then.
    pub(super) fn refuse(&self, limit: Limit, peer: Option<Origin>) {
        let n = self.refused[limit as usize].fetch_add(1, Relaxed) + 1;
        let now = Instant::now();
        let last = &mut lock(&self.said)[limit as usize];
        if last.is_none_or(|last| now - last >= SAY_EVERY) {
            *last = Some(now);
            let peer = peer.map(|peer| peer.to_string()).unwrap_or_default();
            tracing::warn!(limit = limit.name(), peer, so_far = n, "a peer is over a limit, and refused or closed");
        }
    }

    /// Admits a connection, and closes another for it where that is needed and possible.
    pub(super) fn admit(&self, listening: &Arc<Listening>, origin: Origin) -> Option<Arc<Connection>> {
        let mut table = lock(&self.table);
        let key = (listening.number, origin);
        // A connection from there can only be one that has ended, and whose end is not noticed yet.
        table.remove(key);
        let who = (listening.number, peer_of(origin));
        let limits = self.limits();
        match table.make_room(listening, &who, &limits) {
            Ok(None) => {}
            Ok(Some(closed)) => self.refuse(Limit::Replaced, Some(closed)),
            Err(limit) => {
                drop(table);
                self.refuse(limit, Some(origin));
                return None;
            }
        }
        table.forget_peers(limits.connections);
        let Peer { shared, .. } = table.peers.entry(who).or_default();
        let connection = Arc::new(Connection {
            key,
            listening: Arc::clone(listening),
            peer: Arc::clone(shared),
            holder: OnceLock::new(),
            in_use: InUse::default(),
            closed: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
            quiet: Mutex::new((Instant::now(), false)),
            reader: Mutex::new(None),
        });
        table.insert(key, Entry::new(Arc::clone(&connection)));
        Some(connection)
    }

    /// A connection has shown the certificate of this holder, and is no longer a stranger's. False: the holder has as many connections
    /// as one may have, and all of them have requests in progress.
    pub(super) fn prove(&self, connection: &Arc<Connection>, holder: &Identity) -> bool {
        let who = (0, Who::Holder(holder.uri()));
        let mut table = lock(&self.table);
        if !table.has(connection) {
            return false;
        }
        match table.make_room_of(&who, self.limits().connections_per_peer) {
            Ok(None) => {}
            Ok(Some(closed)) => self.refuse(Limit::Replaced, Some(closed)),
            Err(limit) => {
                drop(table);
                self.refuse(limit, Some(connection.key.1));
                return false;
            }
        }
        let Peer { shared, .. } = table.peers.entry(who.clone()).or_default();
        let _ = connection.holder.set(Arc::clone(shared));
        connection.is_known.store(true, Relaxed);
        table.belongs_to(connection.key, who);
        true
    }

    /// Closes the connection whose turn it is, if there is one.
    pub(super) fn replace_one(&self, listening: &Listening) {
        lock(&self.table).close_first(listening.number);
    }

    /// A connection has ended.
    pub(super) fn ended(&self, connection: &Arc<Connection>) {
        let mut table = lock(&self.table);
        if table.has(connection) {
            table.remove(connection.key);
        }
    }

    /// A request begins on a connection. None: its listener has no guard.
    pub(super) fn begin(self: &Arc<Self>, key: Key) -> Option<Held> {
        let connection = lock(&self.table).begin(key)?;
        *lock(&connection.quiet) = (Instant::now(), true);
        Some(Held::new(Arc::clone(self), connection))
    }

    /// Whether a connection has no request in progress.
    pub(super) fn is_quiet(&self, key: Key) -> bool {
        lock(&self.table).is_quiet(key)
    }
}
