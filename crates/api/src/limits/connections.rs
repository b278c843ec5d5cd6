//! The connections of a daemon, and what each holds.

use super::Limits;
use crate::address::Origin;
use crate::status::MetricsText;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;
use tokio::time::Instant;

/// How often the log says that a limit refuses something.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// What was refused or closed. The names are labels of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// All connections were taken, and each of them had asked something whole and waited for the answer.
    Connections,
    /// The same for the connections of one peer.
    PeerConnections,
    /// A connection that had asked nothing whole yet, or that was idle, was closed for a new one.
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

/// The connections of all listeners of a daemon, and the limits that they share.
#[derive(Debug)]
pub struct Guard {
    limits: Limits,
    table: Mutex<Table>,
    total_bytes: AtomicUsize,
    refused: [AtomicU64; Limit::ALL.len()],
    said: Mutex<[Option<Instant>; Limit::ALL.len()]>,
}

/// A connection of a listener.
pub(super) type Key = (u32, Origin);

#[derive(Debug, Default)]
struct Table {
    next_listener: u32,
    next_turn: u64,
    connections: HashMap<Key, Entry>,
    /// Connections that may be closed for a new one, in this order.
    closable: BTreeMap<Turn, Key>,
    peers: HashMap<Who, Peer>,
}

/// When a connection is closed for a new one. Those that have asked nothing whole yet come before all others, in the
/// order of their arrival, also with a request begun: strangers close each other, and nobody who works. The others can
/// be closed while they have no request in progress, in the order in which their last ones ended.
type Turn = (bool, u64);

#[derive(Debug)]
struct Entry {
    connection: Arc<Connection>,
    n_requests: usize,
    turn: Option<Turn>,
}

#[derive(Debug, Default)]
struct Peer {
    n_connections: usize,
    closable: BTreeSet<Turn>,
    shared: Arc<PeerState>,
}

/// What the connections of a peer share.
#[derive(Debug, Default)]
struct PeerState {
    bytes: AtomicUsize,
    bucket: Mutex<Option<(f64, Instant)>>,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) key: Key,
    peer: Arc<PeerState>,
    bytes: AtomicUsize,
    closed: AtomicBool,
    /// Whether a request came whole, or a message of one.
    has_asked: AtomicBool,
    /// When it was accepted or its last request ended, and whether there was one.
    quiet: Mutex<(Instant, bool)>,
    /// Whoever reads from it.
    reader: Mutex<Option<Waker>>,
}

/// What counts as one peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Who {
    Host(IpAddr),
    User(u32),
}

/// IPv6 hosts choose from a whole /64.
fn peer_of(origin: Origin) -> Who {
    match origin {
        Origin::Unix { uid, .. } => Who::User(uid),
        Origin::Tcp(address) => Who::Host(match address.ip().to_canonical() {
            IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
            ip => ip,
        }),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds to a counter, if it does not exceed `max` then.
fn add_up_to(counter: &AtomicUsize, n: usize, max: usize) -> Result<(), usize> {
    counter.fetch_update(Relaxed, Relaxed, |now| now.checked_add(n).filter(|&sum| sum <= max)).map(drop)
}

impl Connection {
    /// Closes it as soon as it is read from.
    fn close(&self) {
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
}

impl Guard {
    /// A guard over these limits.
    pub fn new(limits: Limits) -> Arc<Guard> {
        Arc::new(Guard {
            limits,
            table: Mutex::default(),
            total_bytes: AtomicUsize::new(0),
            refused: Default::default(),
            said: Mutex::new([None; Limit::ALL.len()]),
        })
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Connections at this moment.
    pub fn connections(&self) -> usize {
        lock(&self.table).connections.len()
    }

    /// Bytes of requests that are not answered at this moment.
    pub fn request_bytes(&self) -> usize {
        self.total_bytes.load(Relaxed)
    }

    /// How often a limit refused or closed something.
    pub fn refused(&self, limit: Limit) -> u64 {
        self.refused[limit as usize].load(Relaxed)
    }

    /// Adds the counters to a daemon's metrics.
    pub fn metrics(&self, text: &mut MetricsText) {
        use crate::status::plain;
        text.gauge("fibula_connections", "Connections at this moment.", plain(self.connections() as u64));
        let bytes = plain(self.request_bytes() as u64);
        text.gauge("fibula_request_bytes", "Bytes of requests that are not answered yet.", bytes);
        let samples = Limit::ALL.map(|(limit, name)| (format!("limit=\"{name}\""), self.refused(limit)));
        text.counter("fibula_refused_total", "What the limits refused or closed, by limit.", samples);
    }

    pub(super) fn new_listener(&self) -> u32 {
        let mut table = lock(&self.table);
        table.next_listener += 1;
        table.next_listener
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
    pub(super) fn admit(&self, listener: u32, origin: Origin) -> Option<Arc<Connection>> {
        let who = peer_of(origin);
        let mut table = lock(&self.table);
        let of_peer = table.peers.get(&who).map_or(0, |peer| peer.n_connections);
        let over = if of_peer >= self.limits.connections_per_peer {
            Some((Limit::PeerConnections, table.peers[&who].closable.first().copied()))
        } else if table.connections.len() >= self.limits.connections {
            Some((Limit::Connections, table.closable.first_key_value().map(|(turn, _)| *turn)))
        } else {
            None
        };
        if let Some((limit, first)) = over {
            let Some(key) = first.and_then(|turn| table.closable.get(&turn).copied()) else {
                drop(table);
                self.refuse(limit, Some(origin));
                return None;
            };
            table.close(key);
            self.refuse(Limit::Replaced, Some(key.1));
        }
        table.forget_peers(self.limits.connections);
        let key = (listener, origin);
        // A connection from there can only be one that has ended, and whose end is not noticed yet.
        table.remove(key);
        let peer = table.peers.entry(who).or_default();
        peer.n_connections += 1;
        let connection = Arc::new(Connection {
            key,
            peer: Arc::clone(&peer.shared),
            bytes: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            has_asked: AtomicBool::new(false),
            quiet: Mutex::new((Instant::now(), false)),
            reader: Mutex::new(None),
        });
        let entry = Entry { connection: Arc::clone(&connection), n_requests: 0, turn: None };
        table.connections.insert(key, entry);
        table.set_closable(key, true);
        Some(connection)
    }

    /// Closes the connection whose turn it is, if there is one.
    pub(super) fn replace_one(&self) {
        let mut table = lock(&self.table);
        if let Some((_, &key)) = table.closable.first_key_value() {
            table.close(key);
        }
    }

    /// A connection has ended.
    pub(super) fn ended(&self, connection: &Arc<Connection>) {
        let mut table = lock(&self.table);
        let is_it = |entry: &Entry| Arc::ptr_eq(&entry.connection, connection);
        if table.connections.get(&connection.key).is_some_and(is_it) {
            table.remove(connection.key);
        }
    }

    /// A request begins on a connection. None: its listener has no guard.
    pub(super) fn begin(self: &Arc<Self>, key: Key) -> Option<Held> {
        let mut table = lock(&self.table);
        let entry = table.connections.get_mut(&key)?;
        entry.n_requests += 1;
        let connection = Arc::clone(&entry.connection);
        if connection.has_asked.load(Relaxed) {
            table.set_closable(key, false);
        }
        *lock(&connection.quiet) = (Instant::now(), true);
        Some(Held { guard: Arc::clone(self), connection, bytes: AtomicUsize::new(0) })
    }

    /// Whether a connection has no request in progress.
    pub(super) fn is_quiet(&self, key: Key) -> bool {
        lock(&self.table).connections.get(&key).is_none_or(|entry| entry.n_requests == 0)
    }
}

impl Table {
    /// Closes a connection and makes room at once.
    fn close(&mut self, key: Key) {
        if let Some(entry) = self.remove(key) {
            entry.connection.close();
        }
    }

    fn remove(&mut self, key: Key) -> Option<Entry> {
        self.set_closable(key, false);
        let entry = self.connections.remove(&key)?;
        if let Some(peer) = self.peers.get_mut(&peer_of(key.1)) {
            peer.n_connections -= 1;
        }
        Some(entry)
    }

    fn set_closable(&mut self, key: Key, closable: bool) {
        let Some(entry) = self.connections.get_mut(&key) else { return };
        let peer = self.peers.entry(peer_of(key.1)).or_default();
        if let Some(turn) = entry.turn.take() {
            self.closable.remove(&turn);
            peer.closable.remove(&turn);
        }
        if closable {
            let turn = (entry.connection.has_asked.load(Relaxed), self.next_turn);
            self.next_turn += 1;
            entry.turn = Some(turn);
            self.closable.insert(turn, key);
            peer.closable.insert(turn);
        }
    }

    /// Peers without connections are kept for their rates, as long as they are not too many.
    fn forget_peers(&mut self, max: usize) {
        if self.peers.len() > 2 * max.max(1024) {
            self.peers.retain(|_, peer| peer.n_connections > 0);
        }
    }
}

/// A request in progress, and its bytes.
#[derive(Debug)]
pub(super) struct Held {
    guard: Arc<Guard>,
    connection: Arc<Connection>,
    bytes: AtomicUsize,
}

impl Held {
    pub(super) fn limits(&self) -> &Limits {
        &self.guard.limits
    }

    /// Counts a refusal of this request.
    pub(super) fn refuse(&self, limit: Limit) {
        self.guard.refuse(limit, Some(self.connection.key.1));
    }

    /// The request, or a message of it, has come whole: its connection has asked something.
    pub(super) fn came_whole(&self) {
        let connection = &self.connection;
        if connection.has_asked.load(Relaxed) {
            return;
        }
        let mut table = lock(&self.guard.table);
        connection.has_asked.store(true, Relaxed);
        if table.connections.get(&connection.key).is_some_and(|entry| Arc::ptr_eq(&entry.connection, connection)) {
            table.set_closable(connection.key, false);
        }
    }

    /// Reserves bytes until they are released or the request ends.
    /// # Errors
    /// Which limit does not allow it, how many bytes are in use, and how many it allows.
    pub(super) fn reserve(&self, n: usize) -> Result<(), (Limit, usize, usize)> {
        let limits = &self.guard.limits;
        let counters = [
            (Limit::ConnectionBytes, &self.connection.bytes, limits.connection_bytes),
            (Limit::PeerBytes, &self.connection.peer.bytes, limits.peer_bytes),
            (Limit::TotalBytes, &self.guard.total_bytes, limits.total_bytes),
        ];
        for (at, (limit, counter, max)) in counters.iter().enumerate() {
            if let Err(now) = add_up_to(counter, n, *max) {
                counters[..at].iter().for_each(|(_, counter, _)| _ = counter.fetch_sub(n, Relaxed));
                self.refuse(*limit);
                return Err((*limit, now, *max));
            }
        }
        self.bytes.fetch_add(n, Relaxed);
        Ok(())
    }

    /// Gives reserved bytes back.
    pub(super) fn release(&self, n: usize) {
        let n = n.min(self.bytes.load(Relaxed));
        self.bytes.fetch_sub(n, Relaxed);
        for counter in [&self.connection.bytes, &self.connection.peer.bytes, &self.guard.total_bytes] {
            counter.fetch_sub(n, Relaxed);
        }
    }

    /// Whether the peer may make a request now: a bucket of twice the requests of a second.
    pub(super) fn takes_turn(&self) -> bool {
        let rate = f64::from(self.guard.limits.requests_per_second);
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

impl Drop for Held {
    fn drop(&mut self) {
        self.release(usize::MAX);
        let key = self.connection.key;
        let mut table = lock(&self.guard.table);
        let Some(entry) = table.connections.get_mut(&key) else { return };
        if Arc::ptr_eq(&entry.connection, &self.connection) {
            entry.n_requests -= 1;
            if entry.n_requests == 0 {
                *lock(&self.connection.quiet) = (Instant::now(), true);
                if self.connection.has_asked.load(Relaxed) {
                    table.set_closable(key, true);
                }
                // Whoever waits for its end has to count from now.
                if let Some(waker) = lock(&self.connection.reader).take() {
                    waker.wake();
                }
            }
        }
    }
}
