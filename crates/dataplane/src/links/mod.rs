//! Monitored trunks: the neighbour at the other end of each, and whether frames get there.
//!
//! ```text
//!  worker ─► hellos that came ─► inbox ─► keeper ─► outbox ─► worker ─► hellos that leave
//!  carrier (netlink) ────────────────────►   │
//!                                            └─► down: a bit a port ─► workers take alternates
//! ```
//! Each trunk has a [`Session`], which decides from hellos ([`hello`]), the carrier and time whether it is up. None of it is on
//! the path of other frames: a worker meets a hello where it would drop a multicast, and it looks for hellos to send and for
//! trunks that went down, or have other members, by one load each a burst.
//!
//! The keeper (`daemon::links`) owns the sessions, so they need no lock. It also keeps what is sent and received in LLDP ([`lldp`]), and
//! the hellos that came at host ports ([`local`]).

pub mod hello;
pub mod lldp;
pub mod local;
mod session;

pub use hello::Hello;
#[cfg(any(test, feature = "kit"))]
pub use session::leave_out;
pub use session::{Event, LinkState, Neighbour, Rule, Session, Tally, Timing};

use crate::bell::Bell;
use crate::bits::NotedPorts;
use crate::budget::Budget;
use lldp::Desk;
use local::Strays;
pub(crate) use local::is_chatter;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Hellos of a trunk that are read in a second: as many as the most neighbours that are told apart send, each at its highest rate.
const READ_PER_SECOND: u32 = 1600;
/// Hellos of a trunk that are read at once.
const READ_AT_ONCE: u32 = 64;

/// State shared by the keeper and the workers.
#[derive(Debug)]
pub struct Links {
    /// The trunks that are down, by their indices among the ports.
    down: [AtomicU64; 4],
    /// How many members of each trunk send; 0: it is no bundle, or none does.
    members: [AtomicU8; 256],
    /// A number of the switch at the other end of each trunk; 0 if it is unknown.
    neighbours: [AtomicU64; 256],
    /// Raised after any of these changed.
    version: AtomicU32,
    /// The trunks at which frames of switches came since the keeper last looked.
    came: NotedPorts,
    inbox: Mutex<Inbox>,
    heard: Bell,
    outbox: Mutex<Vec<(u8, Vec<u8>)>>,
    is_sending: AtomicBool,
    /// For each trunk that is watched by hellos: the index of its port, and its hellos.
    tallies: Mutex<Vec<(u8, Arc<Tally>)>>,
    lldp: Desk,
    strays: Strays,
    own: Box<[Own; 256]>,
}

/// Frames and bytes at a port that switches and devices send to each other: hellos and LLDP.
#[derive(Debug, Default)]
struct Own {
    came: [AtomicU64; 2],
    left: [AtomicU64; 2],
}

/// The frames and bytes of a port that are not traffic, because neighbours sent them to each other: hellos and LLDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OwnFrames {
    /// Frames and bytes that came.
    pub came: [u64; 2],
    /// Frames and bytes that left.
    pub left: [u64; 2],
}

/// Hellos that came, with the indices of their ports.
#[derive(Debug, Default)]
struct Inbox {
    hellos: Vec<(u8, Hello)>,
    /// Hellos that came in a flood and were not read.
    unread: BTreeMap<u8, u64>,
    budgets: HashMap<u8, Budget>,
}

impl Default for Links {
    fn default() -> Self {
        Self {
            down: Default::default(),
            members: [const { AtomicU8::new(0) }; 256],
            neighbours: [const { AtomicU64::new(0) }; 256],
            version: AtomicU32::default(),
            came: NotedPorts::default(),
            inbox: Mutex::default(),
            heard: Bell::default(),
            outbox: Mutex::default(),
            is_sending: AtomicBool::default(),
            tallies: Mutex::default(),
            lldp: Desk::default(),
            strays: Strays::default(),
            own: Box::new(
                [const { Own { came: [AtomicU64::new(0), AtomicU64::new(0)], left: [AtomicU64::new(0), AtomicU64::new(0)] } };
                    256],
            ),
        }
    }
}

impl Links {
    /// Changes whenever a trunk goes down or comes up, has another neighbour, or a bundle gets or loses a member that sends.
    #[inline]
    pub fn version(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    /// Whether the keeper marked a port as leading nowhere.
    pub fn is_down(&self, index: u8) -> bool {
        self.down[usize::from(index >> 6)].load(Ordering::Relaxed) >> (index & 63) & 1 != 0
    }

    /// Has the workers take alternates of a port, or stop doing so.
    pub fn set_down(&self, index: u8, is_down: bool) {
        let (word, bit) = (&self.down[usize::from(index >> 6)], 1 << (index & 63));
        let before =
            if is_down { word.fetch_or(bit, Ordering::Relaxed) } else { word.fetch_and(!bit, Ordering::Relaxed) };
        if (before & bit != 0) != is_down {
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// How often a port counts among several ways.
    pub fn n_members(&self, index: u8) -> u16 {
        u16::from(self.members[usize::from(index)].load(Ordering::Relaxed)).max(1)
    }

    /// Has a bundle count as often among several ways as it has members that send.
    pub fn set_members(&self, index: u8, n_members: u8) {
        if self.members[usize::from(index)].swap(n_members, Ordering::Relaxed) != n_members {
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// A number that trunks to the same neighbour share; 0 if it is unknown.
    pub(crate) fn neighbour(&self, index: u8) -> u64 {
        self.neighbours[usize::from(index)].load(Ordering::Relaxed)
    }

    /// Sets the switch at the other end of a trunk, so that the workers know parallel trunks.
    pub fn set_neighbour(&self, index: u8, neighbour: Option<&Neighbour>) {
        let number = neighbour.map_or(0, |neighbour| {
            let mut hasher = DefaultHasher::new();
            neighbour.switch.hash(&mut hasher);
            hasher.finish() | 1
        });
        if self.neighbours[usize::from(index)].swap(number, Ordering::Relaxed) != number {
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// Sets the trunks that are watched by hellos.
    pub fn set_tallies(&self, tallies: Vec<(u8, Arc<Tally>)>) {
        *lock(&self.tallies) = tallies;
    }

    /// The trunks that are watched by hellos: the index of each among the ports, and its hellos.
    pub fn tallies(&self) -> Vec<(u8, Arc<Tally>)> {
        lock(&self.tallies).clone()
    }

    /// The frames of neighbours to each other at a port.
    pub fn own_frames(&self, index: u8) -> OwnFrames {
        let read = |counts: &[AtomicU64; 2]| counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        let own = &self.own[usize::from(index)];
        OwnFrames { came: read(&own.came), left: read(&own.left) }
    }

    /// Notes that a frame from the keeper leaves by a port.
    pub(crate) fn left(&self, index: u8, frame: &[u8]) {
        count(&self.own[usize::from(index)].left, frame);
    }

    /// Takes a multicast that a worker received from a trunk. Returns whether it was a hello; the keeper has it then, unless it waited for
    /// this process: then it tells who was there, not who is.
    #[cold]
    pub(crate) fn hear(&self, index: u8, frame: &[u8], has_waited: bool) -> bool {
        let is_hello = self.take_hello(index, frame, has_waited);
        if is_hello {
            count(&self.own[usize::from(index)].came, frame);
        }
        is_hello
    }

    fn take_hello(&self, index: u8, frame: &[u8], has_waited: bool) -> bool {
        if !frame.starts_with(&hello::GROUP) {
            return false;
        }
        if has_waited {
            return Hello::decode(frame).is_some();
        }
        // The clock of a simulation, in which many hellos come at once.
        let now = clock::now();
        let mut inbox = lock(&self.inbox);
        let new = || Budget::with_burst(READ_PER_SECOND, READ_AT_ONCE, now);
        // Counted before it is read, and for each trunk separately: a flood at one costs the others nothing, and does not wake the keeper.
        if !inbox.budgets.entry(index).or_insert_with(new).take(now) {
            *inbox.unread.entry(index).or_default() += 1;
            drop(inbox);
            if let Some((_, tally)) = lock(&self.tallies).iter().find(|(of, _)| *of == index) {
                tally.flooded();
            }
            return true;
        }
        let Some(hello) = Hello::decode(frame) else { return false };
        inbox.hellos.push((index, hello));
        drop(inbox);
        self.heard.ring();
        true
    }

    /// Notes that a worker received frames that another switch sends on.
    #[inline]
    pub(crate) fn come(&self, index: u8) {
        self.came.note(index);
    }

    /// The trunks, by their indices, at which such frames came since the last call.
    pub fn take_came(&self) -> Vec<u8> {
        self.came.take().collect()
    }

    /// What is sent and received in LLDP.
    pub fn lldp(&self) -> &Desk {
        &self.lldp
    }

    /// Takes an LLDP frame that a worker received at a port. Returns whether the port listens; the keeper has it then, if it is to be read.
    #[cold]
    pub(crate) fn hear_lldp(&self, index: u8, frame: &[u8], has_waited: bool) -> bool {
        let listens = self.lldp.listens(index);
        if listens && self.lldp.hear(index, frame, has_waited) {
            self.heard.ring();
        }
        if listens {
            count(&self.own[usize::from(index)].came, frame);
        }
        listens
    }

    /// Takes a frame to a group address that a worker received at a port other than a trunk. Returns whether the keeper has it, if it is
    /// [for one link alone](local::is_for_one_link); none if it is something else.
    #[cold]
    pub(crate) fn hear_at_host(&self, index: u8, frame: &[u8], has_waited: bool) -> Option<bool> {
        if !local::is_for_one_link(frame) {
            return None;
        }
        if !has_waited {
            self.strays.hear(index, frame, Instant::now());
        }
        Some(lldp::is_lldp(frame) && self.hear_lldp(index, frame, has_waited))
    }

    /// The last hello of each host port at which any came since the last call, with the indices of the ports.
    pub fn take_strays(&self) -> Vec<(u8, Hello)> {
        self.strays.take()
    }

    /// Waits until hellos came, or LLDP.
    pub async fn heard(&self) {
        self.heard.rung().await;
    }

    /// The hellos that came since the last call, with the indices of their ports, and how many more there were at which port.
    pub fn take_heard(&self) -> (Vec<(u8, Hello)>, BTreeMap<u8, u64>) {
        let mut inbox = lock(&self.inbox);
        (std::mem::take(&mut inbox.hellos), std::mem::take(&mut inbox.unread))
    }

    /// Has the first worker send frames out of ports. The caller must wake it.
    pub fn send(&self, frames: impl IntoIterator<Item = (u8, Vec<u8>)>) {
        let mut outbox = lock(&self.outbox);
        outbox.extend(frames);
        self.is_sending.store(!outbox.is_empty(), Ordering::Release);
    }

    /// Whether there are frames to send.
    #[inline]
    pub fn is_sending(&self) -> bool {
        self.is_sending.load(Ordering::Relaxed)
    }

    /// The frames to send.
    pub(crate) fn take_frames(&self) -> Vec<(u8, Vec<u8>)> {
        let mut outbox = lock(&self.outbox);
        self.is_sending.store(false, Ordering::Release);
        std::mem::take(&mut outbox)
    }
}

fn count([frames, bytes]: &[AtomicU64; 2], frame: &[u8]) {
    frames.fetch_add(1, Ordering::Relaxed);
    bytes.fetch_add(frame.len() as u64, Ordering::Relaxed);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::action::PortId;

    #[test]
    fn a_flood_at_one_trunk_is_counted_there_and_leaves_those_at_others_alone() {
        let links = Links::default();
        let tallies = [3, 4].map(|index| (index, Arc::<Tally>::default()));
        links.set_tallies(tallies.to_vec());
        let (switch, port, session) = ("s1".to_owned(), PortId(6), 7);
        let hello = Hello { switch, port, session, hears: None, cluster: 0, interval_ms: 100, multiplier: 3 };
        const FLOOD: u64 = 100_000;
        let heard = (0..FLOOD).filter(|_| links.hear(3, &hello.encode(), false)).count();
        assert!(links.hear(4, &hello.encode(), false));
        let (read, unread) = links.take_heard();
        let n_read = |index| read.iter().filter(|(of, _)| *of == index).count() as u64;
        assert_eq!((heard as u64, n_read(4), unread.keys().copied().collect::<Vec<_>>()), (FLOOD, 1, vec![3]));
        assert_eq!((n_read(3) + unread[&3], n_read(3) >= READ_AT_ONCE.into()), (FLOOD, true));
        assert_eq!(tallies.map(|(_, tally)| tally.unread()), [unread[&3], 0]);
        assert_eq!(links.take_heard(), (vec![], BTreeMap::new()));
        assert!(!links.hear(3, &[1, 0, 0x5e, 0, 0, 1], false), "another multicast is none");
    }
}
