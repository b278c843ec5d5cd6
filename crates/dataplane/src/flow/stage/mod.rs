//! The stage itself: the flows of one worker, or of a switch, and the handling of a burst.
//!
//! ```text
//!  begin                             advance       finish
//!  burst ─► parse ─► keys ─► digests ─► tags ─► entries ─┬─ there: state, counters, timer, translation
//!                                                        └─ not there: state machine, rules, server or port, insert
//! ```
//! The next burst may begin before this one is finished, so that the memory of its flows arrives meanwhile. Only the last
//! phase changes flows, and its lookups see all that earlier bursts changed. So the result is that of bursts one by one.
//!
//! A flow is one entry of a [`FlowTable`]: 16 bytes of key and 48 bytes of state and counters, in one cache line. A
//! translated flow is two entries, one for each direction, which point to a shared state. Data that is needed only when
//! a flow begins, ends or is shown is beside the table (`Cold`).
//!
//! The table keeps the timers. A packet renews the entry that it found, with the timeout of its state. For a translated
//! flow it also renews the other entry, once a second and when the state changes. So both entries stay when all packets
//! go in one direction. Packets that may begin a flow do not renew it while it is unanswered, and a SYN never does:
//! they would keep the flow at a server that is gone. (Source NAT is excepted: RFC 4787, REQ-6, wants that packets from
//! inside keep their outside port.)
//!
//! A new flow passes these steps in order: the packet may be the first of a flow; a rule accepts it; it gets a server;
//! it gets a port; its entries are inserted. If a step fails, what the steps before took is released.

mod begin;
mod crowd;
mod end;
mod loose;
mod read;
mod record;
mod tracking;

pub use end::Ends;
pub(crate) use tracking::{Route, Tracking};

use super::balance::Balancer;
use super::counters::FlowCounts;
use super::export::Ended;
use super::key::{Keys, WORDS};
use super::nat::Nat;
use super::packet::{self, Body, Endpoint};
use super::rewrite::{rewrite, rewrite_error};
use super::state::{Direction, State, Timeouts};
use super::tcp::{Judgement, LastSyn};
use super::{Settings, VirtualId};
use crate::counters::DropReason;
use crate::mac::Mac;
use crate::neighbours::Neighbours;
use crowd::{Crowd, is_loose};
use fib::action::PortId;
use lookup::flow::{CapacityError, FlowTable, Slot};
use netio::Burst;
use record::{
    Cold, ColdSlot, DOWNWARDS, HOT, Hot, Place, TRANSLATED, advance, advance_open, after_syn, is_full, is_unanswered,
    route, set_route, state_of, take_counts,
};
use std::collections::{HashMap, VecDeque};
use std::time::{Instant, SystemTime};

/// Entries at the start. The table doubles when it must.
const FIRST_CAPACITY: usize = 1 << 14;

/// The reason why there is no stage.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StageError {
    /// The table cannot have that size.
    #[error("connection tracking has no table: {0}; lower flow.max_flows")]
    Table(#[from] CapacityError),
}

/// The fate of a packet.
enum Fate {
    Pass,
    Drop(DropReason),
    /// It passes, and its flow ends: an ICMP error says that the destination will not answer.
    End,
    /// Handle it after the packets that change no entry but their own.
    Later,
}

/// See the module.
pub struct Stage {
    settings: Settings,
    table: FlowTable<WORDS, HOT>,
    keys: Keys,
    cold_slots: Vec<ColdSlot>,
    free: Vec<u32>,
    virtuals: Vec<Balancer>,
    virtual_at: HashMap<(Endpoint, u8), VirtualId>,
    nat: Option<Nat>,
    counts: FlowCounts,
    crowd: Crowd,
    ended: VecDeque<Ended>,
    epoch: (Instant, SystemTime),
    /// Seconds since the epoch, at the last burst.
    now: u64,
    /// The timeout of an open TCP connection.
    open_lifetime: u16,
    /// Ended entries that the table reported.
    reported: Vec<Hot>,
}

impl Stage {
    /// A stage without flows.
    /// # Errors
    /// [`StageError`]
    pub fn new(settings: Settings) -> Result<Self, StageError> {
        // A translated flow has two entries, and the table is filled to 0.8 at most.
        let most = (settings.max_flows as usize).saturating_mul(5).div_ceil(2).max(FIRST_CAPACITY);
        let table = lookup::flow::Settings {
            max_capacity: most.next_power_of_two().min(1 << 30),
            ..lookup::flow::Settings::new(FIRST_CAPACITY.min(most))
        };
        let virtual_at = settings.virtuals.iter().zip(0..);
        let virtual_at =
            virtual_at.map(|(service, id)| ((service.endpoint, service.protocol), VirtualId(id))).collect();
        let virtuals = settings.virtuals.iter().map(|service| service.balancer.clone()).collect();
        Ok(Self {
            table: FlowTable::new(&table)?,
            keys: Keys::new(),
            cold_slots: vec![],
            free: vec![],
            virtuals,
            virtual_at,
            nat: settings.nat.clone().map(Nat::new),
            counts: FlowCounts::default(),
            crowd: Crowd::default(),
            ended: VecDeque::new(),
            epoch: (Instant::now(), clock::date::now()),
            now: 0,
            open_lifetime: lifetime(&settings.timeouts, State::Established),
            settings,
            reported: vec![],
        })
    }

    /// Seconds of the stage's clock now.
    pub fn clock(&self) -> u64 {
        self.epoch.0.elapsed().as_secs()
    }

    /// Counts so far.
    pub fn counts(&self) -> FlowCounts {
        self.counts
    }

    /// Flows, with those that have timed out but were not found yet.
    pub fn len(&self) -> usize {
        self.cold_slots.len() - self.free.len()
    }

    /// Whether there are no flows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes the rules, the timeouts and `pick_up` of other settings. Present flows go on, with the new timeouts from their next
    /// packet on.
    pub(crate) fn retune(&mut self, settings: &Settings) {
        self.settings.rules.clone_from(&settings.rules);
        (self.settings.timeouts, self.settings.pick_up) = (settings.timeouts, settings.pick_up);
        self.open_lifetime = lifetime(&self.settings.timeouts, State::Established);
    }

    /// The counters of the table, its entries and its slots.
    pub fn table(&self) -> (lookup::flow::Counters, usize, usize) {
        (self.table.counters(), self.table.len(), self.table.capacity())
    }

    /// Outside ports in use.
    pub fn nat_ports(&self) -> u64 {
        self.nat.as_ref().map_or(0, Nat::in_use)
    }

    /// The servers of a virtual address.
    pub fn balancer(&mut self, id: VirtualId) -> Option<&mut Balancer> {
        self.virtuals.get_mut(usize::from(id.0))
    }

    /// The last phase of a burst that came in by a port, at `now` seconds of the stage's clock. It translates packets,
    /// and writes to `tracking` which packets are dropped, and by which port the others leave, if their flow knows it.
    pub(crate) fn finish(
        &mut self,
        tracking: &mut Tracking,
        burst: &mut Burst,
        port: PortId,
        now: u64,
        neighbours: &Neighbours,
    ) {
        self.set_time(now);
        let Tracking { n, keys, digests, in_flight, slots, .. } = tracking;
        let n = *n;
        if n == 0 {
            return;
        }
        slots[..n].fill(None);
        self.table.finish_batch(&keys[..n], &digests[..n], in_flight, |j, slot, _| slots[j] = Some(slot));
        let (mut later, mut ending) = (0u32, 0u32);
        for j in 0..n {
            let owner = usize::from(tracking.owners[j]);
            let fate = match tracking.slots[j] {
                Some(slot) => self.go_on(tracking, j, slot, port, burst[owner].frame_mut()),
                None => Fate::Later,
            };
            match fate {
                Fate::Pass => {}
                Fate::Later => later |= 1 << j,
                Fate::End => ending |= 1 << j,
                Fate::Drop(reason) => tracking.refuse(owner, reason),
            }
        }
        // Inserts and removals invalidate slots: from here on each packet is looked up again.
        while later != 0 {
            let j = later.trailing_zeros() as usize;
            later &= later - 1;
            let owner = usize::from(tracking.owners[j]);
            if let Err(reason) = self.begin_or_go_on(tracking, j, port, burst[owner].frame_mut(), neighbours) {
                tracking.refuse(owner, reason);
            }
        }
        while ending != 0 {
            let j = ending.trailing_zeros() as usize;
            ending &= ending - 1;
            if let Some(slot) = self.table.lookup(&tracking.keys[j], tracking.digests[j]) {
                self.end_unanswered(slot);
            }
        }
    }

    /// Records in flows by which port their packets leave. `routes` are routes of packets of the burst that was tracked
    /// last with `tracking`, whose flows [learn](Tracking::learns).
    pub(crate) fn learn(&mut self, tracking: &Tracking, routes: impl Iterator<Item = (usize, Route)>) {
        for (i, route) in routes {
            let j = usize::from(tracking.flow_of[i]);
            // Entries may have moved since the burst was looked up.
            let Some(slot) = self.table.lookup(&tracking.keys[j], tracking.digests[j]) else { continue };
            let hot = self.table.value_mut(slot);
            let direction = direction_of(hot, tracking.is_downwards(j));
            set_route(hot, direction, tracking.epoch, route);
        }
    }

    fn refuse(&mut self, reason: DropReason) -> DropReason {
        let counts = &mut self.counts;
        *match reason {
            DropReason::FlowFragment => &mut counts.refused_fragment,
            _ => &mut counts.refused_invalid,
        } += 1;
        reason
    }

    fn set_time(&mut self, now: u64) {
        if now != self.now {
            self.now = now;
            self.table.advance(now);
        }
    }

    /// Moves entries to the larger table while the table grows.
    fn migrate(&mut self, n_buckets: usize) {
        if self.table.is_growing() {
            let reported = &mut self.reported;
            self.table.migrate(n_buckets, |_, hot| reported.push(*hot));
            self.end_reported();
        }
    }

    /// Handles a packet of a known flow.
    #[inline]
    fn go_on(&mut self, tracking: &mut Tracking, j: usize, slot: Slot, port: PortId, frame: &mut [u8]) -> Fate {
        let hot = self.table.value_mut(slot);
        let direction = direction_of(hot, tracking.is_downwards(j));
        let route = route(hot, direction, tracking.epoch);
        if advance_open(hot, direction, &tracking.briefs[j]) {
            // This cannot fail: timeouts are in range.
            let _ = self.table.refresh(slot, self.open_lifetime);
            self.counts.tracked += 1;
        } else {
            let fate = self.go_on_otherwise(tracking, j, (slot, direction), port, frame);
            if !matches!(fate, Fate::Pass) || tracking.briefs[j].body.is_error() {
                return fate;
            }
        }
        tracking.set_route(j, route);
        Fate::Pass
    }

    fn go_on_otherwise(
        &mut self,
        tracking: &Tracking,
        j: usize,
        (slot, direction): (Slot, Direction),
        port: PortId,
        frame: &mut [u8],
    ) -> Fate {
        let brief = &tracking.briefs[j];
        let place = Place::of(self.table.value(slot));
        if self.table.value(slot)[0] & TRANSLATED != 0 {
            return self.go_on_translated(tracking, j, slot, port, frame);
        }
        if let Body::Error { is_final, sequence } = brief.body {
            self.counts.related += 1;
            let ends = is_final && direction == Direction::Reply && is_about(self.table.value(slot), sequence);
            return if ends { Fate::End } else { Fate::Pass };
        }
        let is_syn = brief.body.is_syn();
        let hot = self.table.value(slot);
        if is_syn && direction == Direction::Reply && asks_rules(state_of(hot)) {
            let rules = &self.settings.rules;
            if !packet::parse(frame, tracking.type_at).is_ok_and(|headers| rules.accept(&headers.tuple, port)) {
                self.counts.refused_rule += 1;
                return Fate::Drop(DropReason::FlowRefused);
            }
        }
        let hot = self.table.value_mut(slot);
        let (before, was_loose) = (state_of(hot), is_loose(hot));
        let mut unread = LastSyn::default();
        let mut last = &mut unread;
        if (is_full(hot, direction) || matches!(brief.body, Body::Tcp(_)))
            && let Some(ColdSlot { cold: Some(cold), .. }) = self.cold_slots.get_mut(place.index as usize)
        {
            if is_full(hot, direction) {
                take_counts(hot, &mut cold.volume);
            }
            last = &mut cold.syn;
        }
        match advance(hot, direction, brief, last) {
            Judgement::Pass => {}
            Judgement::Invalid => return Fate::Drop(self.refuse(DropReason::FlowInvalid)),
            Judgement::Reopen => return Fate::Later,
        }
        let (state, is_loose) = (state_of(hot), is_loose(hot));
        if state != before || !(is_syn || direction == Direction::Original && is_unanswered(hot)) {
            let _ = self.table.refresh(slot, lifetime(&self.settings.timeouts, state));
        }
        if is_loose != was_loose {
            self.crowd.set(&mut self.cold_slots, place.index, is_loose);
        }
        self.counts.tracked += 1;
        Fate::Pass
    }

    fn go_on_translated(&mut self, tracking: &Tracking, j: usize, slot: Slot, port: PortId, frame: &mut [u8]) -> Fate {
        // The packet was parsed before.
        let Ok(headers) = packet::parse(frame, tracking.type_at) else {
            return Fate::Drop(self.refuse(DropReason::FlowInvalid));
        };
        let headers = &headers;
        let place = Place::of(self.table.value(slot));
        let cold = self.cold_slots.get_mut(place.index as usize).filter(|cold| cold.generation == place.generation);
        let Some(ColdSlot { cold: Some(cold), .. }) = cold else {
            return Fate::Drop(self.refuse(DropReason::FlowInvalid));
        };
        let Cold { original, volume, syn, translation: Some(translation), .. } = cold else {
            return Fate::Drop(self.refuse(DropReason::FlowInvalid));
        };
        let (direction, out) = match headers.tuple {
            tuple if tuple == *original => (Direction::Original, translation.reply.reversed()),
            tuple if tuple == translation.reply => (Direction::Reply, original.reversed()),
            // The packet has the addresses that packets have only after translation. No host sends it here.
            _ => return Fate::Drop(self.refuse(DropReason::FlowInvalid)),
        };
        let mac = translation.macs[direction as usize];
        if let Body::Error { is_final, sequence } = headers.body {
            if !rewrite_error(frame, headers, &out) {
                return Fate::Drop(self.refuse(DropReason::FlowInvalid));
            }
            put_mac(frame, mac);
            self.counts.related += 1;
            let ends = is_final && direction == Direction::Reply && is_about(&translation.shared, sequence);
            return if ends { Fate::End } else { Fate::Pass };
        }
        let (before, is_syn) = (state_of(&translation.shared), headers.body.is_syn());
        let was_loose = is_loose(&translation.shared);
        if is_syn && direction == Direction::Reply && asks_rules(before) {
            if !self.settings.rules.accept(&headers.tuple, port) {
                self.counts.refused_rule += 1;
                return Fate::Drop(DropReason::FlowRefused);
            }
        } else if is_syn
            && let Some((id, server)) = translation.server
            && !self.virtuals[usize::from(id.0)].takes_new_flows(server)
        {
            // It goes to another server.
            return Fate::Later;
        }
        if is_full(&translation.shared, direction) {
            take_counts(&mut translation.shared, volume);
        }
        match advance(&mut translation.shared, direction, &tracking.briefs[j], syn) {
            Judgement::Pass => {}
            Judgement::Invalid => return Fate::Drop(self.refuse(DropReason::FlowInvalid)),
            Judgement::Reopen => return Fate::Later,
        }
        let state = state_of(&translation.shared);
        let lifetime = lifetime(&self.settings.timeouts, state);
        let is_unanswered = translation.outside.is_none() && is_unanswered(&translation.shared);
        if state != before || !(is_syn || direction == Direction::Original && is_unanswered) {
            let _ = self.table.refresh(slot, lifetime);
            if state != before || self.now != translation.renewed {
                translation.renewed = self.now;
                for tuple in [*original, translation.reply] {
                    let key = self.keys.key(&tuple).words;
                    let _ = self.table.lookup_refresh(&key, self.table.digest(&key), lifetime);
                }
            }
        }
        rewrite(frame, headers, &out);
        put_mac(frame, mac);
        let is_loose = is_loose(&translation.shared);
        if is_loose != was_loose {
            self.crowd.set(&mut self.cold_slots, place.index, is_loose);
        }
        self.counts.tracked += 1;
        Fate::Pass
    }
}

/// Whether an error about a packet with this sequence number ends a flow: the flow is unanswered, and the packet is the
/// SYN that was sent last. Others guess the addresses, but not the number (RFC 5927).
fn is_about(hot: &Hot, sequence: u32) -> bool {
    is_unanswered(hot) && (state_of(hot) != State::SynSent || sequence.wrapping_add(1) == after_syn(hot))
}

/// Whether a rule must accept a SYN of the side that answers: it may begin a connection that no rule has seen.
fn asks_rules(state: State) -> bool {
    !matches!(state, State::SynSent | State::SynReceived)
}

#[inline]
fn direction_of(hot: &Hot, downwards: bool) -> Direction {
    if downwards == (hot[0] & DOWNWARDS != 0) { Direction::Original } else { Direction::Reply }
}

/// Timers end up to a second early.
fn lifetime(timeouts: &Timeouts, state: State) -> u16 {
    timeouts.of(state) + 1
}

fn put_mac(frame: &mut [u8], mac: Option<Mac>) {
    if let Some(mac) = mac {
        frame[..6].copy_from_slice(&mac);
    }
}
