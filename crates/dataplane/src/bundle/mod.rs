//! Bundles: several devices that form one port. Everything above sees one device.
//!
//! ```text
//!  member ─► PDUs, markers, hellos, LLDP ─► inbox ─► keeper (Aggregate) ─► outbox ─► member
//!         └► frames, if it takes some ─► worker ─► flow's hash ─► a member that sends ─►
//! ```
//! The [`Device`](netio::Device) of a bundle ([`device`]) has one device a member. A frame that comes in by any member comes in by the
//! port, so none leaves by the bundle that it came from. A frame that goes out takes the member that its flow has by highest random
//! weight ([`crate::spread`]): no flow is reordered, and when a member goes, only its flows move. Slots of flows are mixed with a
//! number of the bundle's own: those that the table of ways leads here are spread over all members.
//!
//! Among several ways (`worker::names::leads`) a trunk that is a bundle counts as often as it has members that send. All workers read
//! that number from one place ([`Links`](crate::links::Links)), not from their own devices, so that they choose alike.
//!
//! Cost: a port without members pays nothing. A frame that leaves by a bundle pays for the hash of its flow unless only one member sends;
//! a frame that comes in pays for one comparison.
//!
//! The keeper (`daemon::bundles`) decides which members take frames and send some, with an [`aggregate::Aggregate`], which has no
//! clock, lock or device. Workers read its decision by one load a burst.
//!
//! Limits: 16 members. Captures show what goes through the port, but not the PDUs, hellos and LLDP of members.

pub mod aggregate;
pub mod config;
pub mod device;
pub mod lacp;
#[cfg(test)]
mod model;
pub mod pdu;
#[cfg(test)]
mod tests;

use crate::bell::Bell;
use crate::budget::Budget;
use crate::links::Hello;
use crate::links::lldp::{self, Ear, Said};
use crate::port::PortHealth;
use crate::port::Role;
use fib::action::PortId;
use lookup::hash::{Purpose, SecretKey};
use netio::{DeviceCounters, DeviceSnapshot};
use pdu::{Malformed, Pdu, Slow};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The most members of a bundle.
pub const MAX_MEMBERS: usize = 16;

/// PDUs of each member that wait for the keeper: a partner sends at most three a second.
const MOST_WAITING: usize = 8;

/// What a member receives, besides frames.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    /// The other end's LACP information.
    Pdu(Pdu),
    /// A marker; the frame to answer with.
    Marker(Vec<u8>),
    /// A hello of a neighbour.
    Hello(Hello),
    /// A malformed frame of LACP.
    Malformed(Malformed),
}

/// What a member may send in a second: a partner sends three PDUs at most, a neighbour a hello every 5 ms and one at each change.
const PDUS_PER_SECOND: u32 = 16;
const HELLOS_PER_SECOND: u32 = 500;

/// Input that waits for the keeper.
#[derive(Debug)]
struct Inbox {
    heard: Vec<(u8, Heard)>,
    /// The input of each member.
    shares: Vec<Share>,
    /// The LLDP input of each member, if the switch listens for LLDP.
    ears: Vec<Ear>,
}

/// What a member may still send.
#[derive(Debug)]
struct Share {
    pdus: Budget,
    hellos: Budget,
}

impl Share {
    fn new(now: Instant) -> Self {
        Self { pdus: Budget::full(PDUS_PER_SECOND, now), hellos: Budget::full(HELLOS_PER_SECOND, now) }
    }
}

impl Inbox {
    /// Keeps it if there is room, and the member has not sent too much. Returns whether it does.
    fn keep(&mut self, place: usize, heard: Heard) -> bool {
        let n_waiting = self.heard.iter().filter(|(at, _)| usize::from(*at) == place).count();
        let share = &mut self.shares[place];
        let budget = if matches!(heard, Heard::Hello(_)) { &mut share.hellos } else { &mut share.pdus };
        let keeps = n_waiting < MOST_WAITING && budget.take(Instant::now());
        if keeps {
            self.heard.push((place as u8, heard));
        }
        keeps
    }
}

/// Counts of what came at a member since the start.
#[derive(Debug, Default)]
struct Tally {
    heard: AtomicU64,
    malformed: AtomicU64,
    flooded: AtomicU64,
    own: AtomicU64,
    not_taken: AtomicU64,
}

/// Counts of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// PDUs and markers that came.
    pub heard: u64,
    /// Frames of LACP that were malformed.
    pub malformed: u64,
    /// PDUs, markers and hellos in excess of what a partner sends: not looked at.
    pub flooded: u64,
    /// PDUs of this switch itself.
    pub own: u64,
    /// Frames that came while the member takes none: dropped.
    pub not_taken: u64,
}

/// One device of a bundle.
#[derive(Debug)]
struct Member {
    name: String,
    tally: Tally,
    /// For the device of each worker.
    workers: Vec<(Arc<DeviceCounters>, Arc<PortHealth>)>,
}

/// The state of a member, for people.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// The name of its state.
    pub state: &'static str,
    /// Who is at its other end.
    pub partner: Option<String>,
}

/// A member at one moment.
#[derive(Clone, Debug)]
pub struct MemberStatus {
    /// Its device.
    pub device: String,
    /// Its state, as the keeper last reported it.
    pub told: Told,
    /// Whether incoming frames are taken there.
    pub collects: bool,
    /// Whether frames leave by it.
    pub distributes: bool,
    /// Why a worker cannot use its device, if so.
    pub error: Option<String>,
    /// What its devices counted.
    pub counters: DeviceSnapshot,
    /// Counts of what came besides frames, and of what was not taken.
    pub counts: Counts,
}

/// State shared by the devices of a bundle, its keeper and observers.
#[derive(Debug)]
pub struct Bundle {
    port: PortId,
    role: Role,
    /// The switch's identity in LACP; none: LACP is off.
    system: Option<[u8; 6]>,
    members: Vec<Member>,
    /// The members that take frames, and those that send some, as a bit each.
    collects: AtomicU32,
    distributes: AtomicU32,
    /// Raised after these changed.
    version: AtomicU32,
    /// The number that flows are mixed with.
    seed: u64,
    inbox: Mutex<Inbox>,
    hears_lldp: AtomicBool,
    heard: Arc<Bell>,
    outbox: Mutex<Vec<(u8, Vec<u8>)>>,
    is_sending: AtomicBool,
    told: Mutex<Vec<Told>>,
}

impl Bundle {
    /// A bundle of devices by name, each with counters and health for every worker. `heard` rings when something came for the keeper.
    /// Without LACP (`system` is none) all members take frames and send some until the keeper decides otherwise; with it none does.
    pub fn new(
        port: PortId,
        role: Role,
        system: Option<[u8; 6]>,
        devices: Vec<(String, Vec<Arc<DeviceCounters>>)>,
        heard: Arc<Bell>,
    ) -> Self {
        let n = devices.len().min(MAX_MEMBERS);
        let member = |(name, counters): (String, Vec<Arc<DeviceCounters>>)| {
            let workers = counters.into_iter().map(|counters| (counters, Arc::new(PortHealth::new()))).collect();
            Member { name, tally: Tally::default(), workers }
        };
        let members: Vec<Member> = devices.into_iter().take(n).map(member).collect();
        let all = if system.is_none() { (1 << n) - 1 } else { 0 };
        Self {
            port,
            role,
            system,
            members,
            collects: AtomicU32::new(all),
            distributes: AtomicU32::new(all),
            version: AtomicU32::new(1),
            seed: SecretKey::random().derive(Purpose::Structure, 0),
            inbox: Mutex::new(Inbox {
                heard: Vec::new(),
                shares: (0..n).map(|_| Share::new(Instant::now())).collect(),
                ears: Vec::new(),
            }),
            hears_lldp: AtomicBool::new(false),
            heard,
            outbox: Mutex::default(),
            is_sending: AtomicBool::new(false),
            told: Mutex::new(vec![Told::default(); n]),
        }
    }

    /// The port.
    pub fn port(&self) -> PortId {
        self.port
    }

    /// What is at its other end.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The devices, in the order of members.
    pub fn devices(&self) -> impl ExactSizeIterator<Item = &str> {
        self.members.iter().map(|member| &member.name[..])
    }

    /// Changes whenever the set of members that take or send frames does.
    #[inline]
    pub(crate) fn version(&self) -> u32 {
        self.version.load(Acquire)
    }

    /// Has these members take frames and these send some from now on, as a bit each.
    pub fn set(&self, collects: u32, distributes: u32) {
        let before = (self.collects.swap(collects, Relaxed), self.distributes.swap(distributes, Relaxed));
        if before != (collects, distributes) {
            self.version.fetch_add(1, Release);
        }
    }

    /// Whether any member sends.
    pub fn is_open(&self) -> bool {
        self.distributes.load(Relaxed) != 0
    }

    fn takes(&self, place: usize) -> bool {
        self.collects.load(Relaxed) >> place & 1 != 0
    }

    /// Whether frames leave by a member.
    pub fn sends(&self, place: usize) -> bool {
        self.distributes.load(Relaxed) >> place & 1 != 0
    }

    /// Decides whether a frame that came at a member is for the keeper, and not for the worker. A frame that waited for this process tells
    /// who was there, not who is.
    fn hear(&self, place: usize, frame: &[u8], has_waited: bool) -> bool {
        if self.hears_lldp.load(Relaxed) && lldp::is_lldp(frame) {
            let mut inbox = lock(&self.inbox);
            if inbox.ears.get_mut(place).is_some_and(|ear| ear.hear(frame, has_waited, Instant::now())) {
                self.heard.ring();
            }
            return true;
        }
        let tally = &self.members[place].tally;
        let heard = if let Some(system) = self.system.filter(|_| pdu::is_slow(frame)) {
            tally.heard.fetch_add(1, Relaxed);
            match Slow::decode(frame, system) {
                Ok(Slow::Lacp(pdu)) => Heard::Pdu(pdu),
                Ok(Slow::Marker(answer)) => Heard::Marker(answer),
                Ok(Slow::Other) => return true,
                Err(why) => {
                    tally.malformed.fetch_add(1, Relaxed);
                    Heard::Malformed(why)
                }
            }
        } else if self.role == Role::Trunk
            && let Some(hello) = Hello::decode(frame)
        {
            Heard::Hello(hello)
        } else {
            return false;
        };
        if !has_waited {
            // The keeper is woken for each input, but no flood keeps it busy.
            if lock(&self.inbox).keep(place, heard) {
                self.heard.ring();
            } else {
                tally.flooded.fetch_add(1, Relaxed);
            }
        }
        true
    }

    /// The bell that rings when something came.
    pub fn bell(&self) -> Arc<Bell> {
        Arc::clone(&self.heard)
    }

    /// The input since the last call, with the places of the members.
    pub fn take_heard(&self) -> Vec<(u8, Heard)> {
        std::mem::take(&mut lock(&self.inbox).heard)
    }

    /// Has all members listen to LLDP, with an ear each.
    pub fn listen_to_lldp(&self, ears: Vec<Ear>) {
        lock(&self.inbox).ears = ears;
        self.hears_lldp.store(true, Relaxed);
    }

    /// The LLDP input since the last call, with the places of the members.
    pub fn take_lldp(&self) -> Vec<(u8, Said)> {
        let mut inbox = lock(&self.inbox);
        (0..)
            .zip(&mut inbox.ears)
            .flat_map(|(place, ear)| ear.take().into_iter().map(move |said| (place, said)))
            .collect()
    }

    /// Counts a PDU that is one of this switch itself.
    pub fn count_own(&self, place: usize) {
        self.members[place].tally.own.fetch_add(1, Relaxed);
    }

    /// Has the first worker send frames out of members. The caller must wake it.
    pub fn send(&self, frames: impl IntoIterator<Item = (u8, Vec<u8>)>) {
        let mut outbox = lock(&self.outbox);
        outbox.extend(frames);
        // A worker that does not look sends nothing outdated.
        let n_old = outbox.len().saturating_sub(MOST_WAITING * self.members.len());
        outbox.drain(..n_old);
        self.is_sending.store(!outbox.is_empty(), Release);
    }

    /// Whether there is something to send that the first worker has not seen yet.
    pub fn is_sending(&self) -> bool {
        self.is_sending.load(Relaxed)
    }

    fn take_frames(&self) -> Vec<(u8, Vec<u8>)> {
        let mut outbox = lock(&self.outbox);
        self.is_sending.store(false, Release);
        std::mem::take(&mut outbox)
    }

    /// Reports the state of the members.
    pub fn tell(&self, told: Vec<Told>) {
        *lock(&self.told) = told;
    }

    /// The members, for people.
    pub fn status(&self) -> Vec<MemberStatus> {
        let told = lock(&self.told).clone();
        let member = |(place, (member, told)): (usize, (&Member, Told))| {
            let mut counters = DeviceSnapshot::default();
            member.workers.iter().for_each(|(counts, _)| counters += counts.snapshot());
            let mut told = told;
            let down = member.workers.iter().find(|(_, health)| !health.is_up());
            let Tally { heard, malformed, flooded, own, not_taken } = &member.tally;
            let [heard, malformed, flooded, own, not_taken] =
                [heard, malformed, flooded, own, not_taken].map(|count| count.load(Relaxed));
            if down.is_some() && self.sends(place) {
                // The keeper knows carriers, not devices.
                told.state = "failed";
            }
            MemberStatus {
                device: member.name.clone(),
                told,
                collects: self.takes(place) && down.is_none(),
                distributes: self.sends(place) && down.is_none(),
                error: down.and_then(|(_, health)| health.last_failure()).map(|failure| failure.error),
                counters,
                counts: Counts { heard, malformed, flooded, own, not_taken },
            }
        };
        self.members.iter().zip(told).enumerate().map(member).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
