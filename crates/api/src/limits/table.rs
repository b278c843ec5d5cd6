//! Which connections there are, whose they are, and which one is closed for a new one.

use super::Limits;
use super::connections::{Connection, Limit, Listening, PeerState};
use crate::address::Origin;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A connection of a listener.
pub(super) type Key = (u32, Origin);

/// How a listener tells strangers from others, and what its requests are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kind {
    /// Anyone who shows no certificate is a stranger; otherwise, anyone who has asked nothing whole yet.
    pub(crate) has_certificates: bool,
    /// Nothing that takes long is worth more than a new connection: a page asks for its events again.
    pub(crate) for_pages: bool,
}

/// What counts as one peer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Who {
    Host(IpAddr),
    User(u32),
    /// Anyone who has the certificate of this name.
    Holder(String),
}

/// IPv6 hosts choose from a whole /64, and this machine from all addresses of the loopback device.
pub(super) fn peer_of(origin: Origin) -> Who {
    match origin {
        Origin::Unix { uid, .. } => Who::User(uid),
        Origin::Tcp(address) => Who::Host(match address.ip().to_canonical() {
            ip if ip.is_loopback() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
            ip => ip,
        }),
    }
}

/// What tells a peer from others, as text.
pub(crate) fn peer_text(origin: Origin) -> String {
    match peer_of(origin) {
        Who::Host(ip) => ip.to_string(),
        Who::User(uid) => format!("uid:{uid}"),
        Who::Holder(uri) => uri,
    }
}

/// An address at a listener, or a holder (of listener 0: everywhere).
pub(super) type Place = (u32, Who);

/// When a connection is closed for a new one: in the order of the ranks, and of the numbers in each.
type Turn = (Rank, u64);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Rank {
    /// Of a stranger, in the order of their arrival, also with a request begun: strangers close each other, and none that works.
    Stranger,
    /// Without a request in progress, in the order in which their last ones ended.
    Idle,
    /// With a request in progress, at a listener for pages, in the order in which these began.
    Busy,
}

#[derive(Debug)]
pub(super) struct Entry {
    connection: Arc<Connection>,
    n_requests: usize,
    turn: Option<Turn>,
    holder: Option<Place>,
}

impl Entry {
    pub(super) fn new(connection: Arc<Connection>) -> Self {
        Self { connection, n_requests: 0, turn: None, holder: None }
    }

    /// Those whose connections it is one of: a listener, an address there, and a holder.
    fn owners(&self) -> impl Iterator<Item = Place> {
        let (listener, origin) = self.connection.key;
        [Some((listener, peer_of(origin))), self.holder.clone()].into_iter().flatten()
    }
}

/// Connections together.
#[derive(Debug, Default)]
struct Closable {
    n_connections: usize,
    turns: BTreeMap<Turn, Key>,
    n_strangers: usize,
}

impl Closable {
    fn first(&self) -> Option<Key> {
        self.turns.first_key_value().map(|(_, key)| *key)
    }

    fn add(&mut self, turn: Turn, key: Key) {
        self.n_strangers += usize::from(turn.0 == Rank::Stranger);
        self.turns.insert(turn, key);
    }

    fn take(&mut self, turn: Turn) {
        if self.turns.remove(&turn).is_some() {
            self.n_strangers -= usize::from(turn.0 == Rank::Stranger);
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Peer {
    closable: Closable,
    pub(super) shared: Arc<PeerState>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Table {
    next_turn: u64,
    connections: HashMap<Key, Entry>,
    listeners: HashMap<u32, Closable>,
    pub(super) peers: HashMap<Place, Peer>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }

    pub(super) fn has(&self, connection: &Arc<Connection>) -> bool {
        self.connections.get(&connection.key).is_some_and(|entry| Arc::ptr_eq(&entry.connection, connection))
    }

    pub(super) fn is_quiet(&self, key: Key) -> bool {
        self.connections.get(&key).is_none_or(|entry| entry.n_requests == 0)
    }

    /// Closes a connection for one more from an address at a listener, if one has to be, and returns from where it was.
    pub(super) fn make_room(
        &mut self,
        listening: &Listening,
        who: &Place,
        limits: &Limits,
    ) -> Result<Option<Origin>, Limit> {
        if let Some(closed) = self.make_room_of(who, limits.connections_per_peer)? {
            return Ok(Some(closed));
        }
        // Anyone who has shown a certificate finds half of them free of strangers, who may come in any number.
        let most_strangers =
            if listening.kind.has_certificates { limits.connections.div_ceil(2) } else { limits.connections };
        let here = self.listeners.entry(listening.number).or_default();
        let is_full = here.n_connections >= limits.connections;
        if !is_full && here.n_strangers < most_strangers {
            return Ok(None);
        }
        self.close_first(listening.number).map(Some).ok_or(Limit::Connections)
    }

    /// The same for one more of an address or a holder, which may have `most`.
    pub(super) fn make_room_of(&mut self, who: &Place, most: usize) -> Result<Option<Origin>, Limit> {
        let Some(peer) = self.peers.get(who).filter(|peer| peer.closable.n_connections >= most) else {
            return Ok(None);
        };
        let key = peer.closable.first().ok_or(Limit::PeerConnections)?;
        self.close(key);
        Ok(Some(key.1))
    }

    /// Closes the connection of a listener whose turn it is. Of strangers it is one of those that have the most: who comes from many
    /// addresses has few from each.
    pub(super) fn close_first(&mut self, listener: u32) -> Option<Origin> {
        let of_peers = self.peers.iter().filter(|((at, _), peer)| *at == listener && peer.closable.n_strangers > 0);
        let crowd = of_peers.max_by_key(|(_, peer)| peer.closable.n_strangers).map(|(_, peer)| &peer.closable);
        let key = crowd.or(self.listeners.get(&listener))?.first()?;
        self.close(key);
        Some(key.1)
    }

    /// Closes a connection and makes room at once.
    fn close(&mut self, key: Key) {
        if let Some(entry) = self.remove(key) {
            entry.connection.close();
        }
    }

    pub(super) fn insert(&mut self, key: Key, entry: Entry) {
        for place in entry.owners() {
            self.peers.entry(place).or_default().closable.n_connections += 1;
        }
        self.listeners.entry(key.0).or_default().n_connections += 1;
        self.connections.insert(key, entry);
        self.set_turn(key);
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Entry> {
        self.take_turn(key);
        let entry = self.connections.remove(&key)?;
        for place in entry.owners() {
            if let Some(peer) = self.peers.get_mut(&place) {
                peer.closable.n_connections -= 1;
            }
        }
        if let Some(listener) = self.listeners.get_mut(&key.0) {
            listener.n_connections -= 1;
        }
        Some(entry)
    }

    /// A connection is one of a holder from now on.
    pub(super) fn belongs_to(&mut self, key: Key, holder: Place) {
        self.take_turn(key);
        if let Some(entry) = self.connections.get_mut(&key) {
            entry.holder = Some(holder.clone());
            self.peers.entry(holder).or_default().closable.n_connections += 1;
        }
        self.set_turn(key);
    }

    /// A request begins.
    pub(super) fn begin(&mut self, key: Key) -> Option<Arc<Connection>> {
        let entry = self.connections.get_mut(&key)?;
        entry.n_requests += 1;
        let connection = Arc::clone(&entry.connection);
        // A stranger's turn stays that of its arrival.
        if connection.is_known.load(Relaxed) {
            self.set_turn(key);
        }
        Some(connection)
    }

    /// A request of a connection has ended. Whether it was the last one.
    pub(super) fn end(&mut self, connection: &Arc<Connection>) -> bool {
        let key = connection.key;
        let Some(entry) = self.connections.get_mut(&key).filter(|entry| Arc::ptr_eq(&entry.connection, connection))
        else {
            return false;
        };
        entry.n_requests -= 1;
        let is_last = entry.n_requests == 0;
        if is_last && connection.is_known.load(Relaxed) {
            self.set_turn(key);
        }
        is_last
    }

    /// A connection has made a whole request, and is no longer a stranger's.
    pub(super) fn asked(&mut self, connection: &Arc<Connection>) {
        connection.is_known.store(true, Relaxed);
        if self.has(connection) {
            self.set_turn(connection.key);
        }
    }

    fn take_turn(&mut self, key: Key) {
        let Some(entry) = self.connections.get_mut(&key) else { return };
        let Some(turn) = entry.turn.take() else { return };
        let owners: Vec<Place> = entry.owners().collect();
        for place in owners {
            if let Some(peer) = self.peers.get_mut(&place) {
                peer.closable.take(turn);
            }
        }
        if let Some(listener) = self.listeners.get_mut(&key.0) {
            listener.take(turn);
        }
    }

    /// Gives a connection the turn that is its by now, behind all others of its rank.
    fn set_turn(&mut self, key: Key) {
        self.take_turn(key);
        let Some(entry) = self.connections.get_mut(&key) else { return };
        let rank = if !entry.connection.is_known.load(Relaxed) {
            Rank::Stranger
        } else if entry.n_requests == 0 {
            Rank::Idle
        } else if entry.connection.listening.kind.for_pages {
            Rank::Busy
        } else {
            return;
        };
        let turn = (rank, self.next_turn);
        self.next_turn += 1;
        entry.turn = Some(turn);
        let owners: Vec<Place> = entry.owners().collect();
        for place in owners {
            self.peers.entry(place).or_default().closable.add(turn, key);
        }
        self.listeners.entry(key.0).or_default().add(turn, key);
    }

    /// Peers without connections are kept for their rates, as long as they are not too many.
    pub(super) fn forget_peers(&mut self, max: usize) {
        if self.peers.len() > 2 * max.max(1024) {
            self.peers.retain(|_, peer| peer.closable.n_connections > 0);
        }
    }
}
