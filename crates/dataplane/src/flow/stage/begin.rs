//! The beginning of flows.

use super::loose::Loose;
use super::record::{
    Cold, ColdSlot, DOWNWARDS, GENERATION_SHIFT, Hot, Place, TRANSLATED, Translation, Volume, hot, state_of,
};
use super::{Fate, Stage, Tracking, lifetime, put_mac};
use crate::counters::DropReason;
use crate::flow::VirtualId;
use crate::flow::balance::Server;
use crate::flow::course;
use crate::flow::export::Why;
use crate::flow::key::WORDS;
use crate::flow::nat::NatError;
use crate::flow::packet::{self, Address, Body, Endpoint, Headers, Tuple};
use crate::flow::rewrite::rewrite;
use crate::flow::state::State;
use crate::flow::tcp::{LastSyn, Tcp};
use crate::neighbours::Neighbours;
use arrayvec::ArrayVec;
use fib::action::PortId;
use lookup::flow::InsertError;
use lookup::hash::{Digest, mix64};

/// The table grows at this load. Above it, an insert has to move other entries.
const GROW_ABOVE: (usize, usize) = (17, 20);
/// The most ports that are tried for a flow whose answers would be taken for those of another flow.
const NAT_ATTEMPTS: u64 = 8;
/// The most servers that are tried for such a flow.
const SERVER_ATTEMPTS: u64 = 8;

impl Stage {
    /// Handles a packet whose flow was not in the table when the burst was looked up, or that begins its flow anew.
    pub(super) fn begin_or_go_on(
        &mut self,
        tracking: &mut Tracking,
        j: usize,
        port: PortId,
        frame: &mut [u8],
        neighbours: &Neighbours,
    ) -> Result<(), DropReason> {
        let (key, digest) = (tracking.keys[j], tracking.digests[j]);
        let old = self.table.lookup(&key, digest);
        if let Some(slot) = old {
            match self.go_on(tracking, j, slot, port, frame) {
                Fate::Pass => return Ok(()),
                Fate::End => {
                    self.end_unanswered(slot);
                    return Ok(());
                }
                Fate::Drop(reason) => return Err(reason),
                Fate::Later => {}
            }
        }
        // The packet was parsed before.
        let Ok(headers) = packet::parse(frame, tracking.type_at) else {
            return Err(self.refuse(DropReason::FlowInvalid));
        };
        let Headers { tuple, ref body, .. } = headers;
        let Some((tcp, state)) = course::open(tuple.protocol, body, self.settings.pick_up) else {
            return Err(self.refuse(DropReason::FlowInvalid));
        };
        // A packet from an endpoint to itself has no other side.
        if tuple.source == tuple.destination && tuple.source.port != 0 {
            return Err(self.refuse(DropReason::FlowInvalid));
        }
        if !self.settings.rules.accept(&tuple, port) {
            self.counts.refused_rule += 1;
            return Err(DropReason::FlowRefused);
        }
        // The old flow ends when the new one begins, if the new one may begin.
        if let Some(slot) = old {
            let hot = *self.table.value(slot);
            self.table.remove_at(slot);
            self.end(&hot, Why::Reopened);
        }
        if !self.make_room(port) {
            return Err(DropReason::FlowTable);
        }
        let (entries, capacity) = (self.table.len(), self.table.capacity());
        if entries * GROW_ABOVE.1 > capacity * GROW_ABOVE.0 && !self.table.is_growing() {
            // At its largest size the table is used as it is.
            let _ = self.table.grow();
        }
        let server = self.virtual_at.get(&(tuple.destination, tuple.protocol)).copied();
        let is_translated = server.is_some() || self.nat.as_ref().is_some_and(|nat| nat.applies(&tuple));
        if is_translated {
            return self.begin_translated((&key, digest), &headers, server, (tcp, state), frame, (port, neighbours));
        }
        let place = self.take_place();
        let flags = if tracking.is_downwards(j) { DOWNWARDS } else { 0 };
        let hot = hot(place, flags, tcp, state, tracking.briefs[j].ip_bytes);
        if let Err(reason) = self.insert(&key, digest, &hot, state) {
            self.free.push(place.index);
            return Err(reason);
        }
        self.settle(place, &headers, port, None);
        Ok(())
    }

    fn begin_translated(
        &mut self,
        (key, digest): (&[u64; WORDS], Digest),
        headers: &Headers,
        to: Option<VirtualId>,
        (tcp, state): (Tcp, State),
        frame: &mut [u8],
        (port, neighbours): (PortId, &Neighbours),
    ) -> Result<(), DropReason> {
        let original = headers.tuple;
        let mut translation = Translation {
            reply: original.reversed(),
            shared: hot(Place { index: 0, generation: 0 }, TRANSLATED, tcp, state, headers.ip_bytes()),
            macs: [None; 2],
            server: None,
            outside: None,
            renewed: self.now,
        };
        if let Some(id) = to {
            let Some((index, server)) = self.choose_server(id, &original)? else {
                self.counts.refused_no_server += 1;
                return Err(DropReason::FlowNoServer);
            };
            let Some(mac) = server.mac.or_else(|| neighbours.get(server.endpoint.address.into())) else {
                self.counts.refused_no_server_mac += 1;
                return Err(DropReason::FlowNoServer);
            };
            translation.reply.source = server.endpoint;
            translation.macs[0] = Some(mac);
            translation.server = Some((id, index));
        } else if matches!(headers.body, Body::Other) {
            // ICMP messages other than echo have no identifier to translate.
            self.counts.refused_nat_impossible += 1;
            return Err(DropReason::FlowNoPort);
        } else {
            translation.macs[1] = frame.get(6..12).and_then(|mac| mac.try_into().ok());
            self.allocate(&original, digest, port, &mut translation)?;
        }
        let place = self.take_place();
        let reply_key = self.keys.key(&translation.reply).words;
        let pointer = hot(place, TRANSLATED, Tcp::default(), state, 0);
        let reply_digest = self.table.digest(&reply_key);
        let inserted = self.insert(key, digest, &pointer, state).and_then(|()| {
            self.insert(&reply_key, reply_digest, &pointer, state).inspect_err(|_| {
                self.table.remove(key, digest);
            })
        });
        if let Err(reason) = inserted {
            if let Some(outside) = translation.outside {
                self.release(original.protocol, outside, original.source.address);
            }
            self.free.push(place.index);
            return Err(reason);
        }
        match translation.server {
            Some((id, server)) => {
                self.virtuals[usize::from(id.0)].begin(server);
                self.counts.balanced += 1;
            }
            None => self.counts.translated += 1,
        }
        rewrite(frame, headers, &translation.reply.reversed());
        put_mac(frame, translation.macs[0]);
        self.settle(place, headers, port, Some(Box::new(translation)));
        Ok(())
    }

    /// The index of a server for a new flow to a virtual address, whose answers cannot be taken for those of another
    /// flow.
    fn choose_server(&mut self, id: VirtualId, original: &Tuple) -> Result<Option<(u16, Server)>, DropReason> {
        let steady = steady_digest(original);
        for attempt in 0..SERVER_ATTEMPTS {
            let Some((index, server)) = self.virtuals[usize::from(id.0)].choose(steady ^ attempt) else {
                return Ok(None);
            };
            let reply = Tuple { source: server.endpoint, ..original.reversed() };
            let key = self.keys.key(&reply).words;
            let Some(slot) = self.table.lookup(&key, self.table.digest(&key)) else {
                return Ok(Some((index, server)));
            };
            let hot = *self.table.value(slot);
            // A flow that the server began, and the client never answered, makes way for the flow that the client
            // begins.
            let is_its_own = hot[0] & TRANSLATED == 0 && self.began_at(&hot) == Some(server.endpoint);
            if is_its_own && matches!(state_of(&hot), State::UdpNew | State::SynSent | State::OtherNew) {
                self.table.remove_at(slot);
                self.end(&hot, Why::Reopened);
                return Ok(Some((index, server)));
            }
        }
        self.counts.refused_server_taken += 1;
        Err(DropReason::FlowNoServer)
    }

    /// The MAC address that the first packet of a flow came from.
    fn began_at(&self, hot: &Hot) -> Option<Endpoint> {
        let place = Place::of(hot);
        let cold = self.cold_slots.get(place.index as usize).filter(|cold| cold.generation == place.generation);
        cold.and_then(|slot| slot.cold.as_ref()).map(|cold| cold.original.source)
    }

    /// Finds a port whose answers belong to no other flow.
    fn allocate(
        &mut self,
        original: &Tuple,
        digest: Digest,
        port: PortId,
        translation: &mut Translation,
    ) -> Result<(), DropReason> {
        let inside = original.source.address;
        let mut taken: ArrayVec<Endpoint, { NAT_ATTEMPTS as usize }> = ArrayVec::new();
        let mut result = Err(NatError::Exhausted(inside));
        while !taken.is_full() {
            let Some(nat) = &mut self.nat else { break };
            result = nat.allocate(original, digest.0 ^ taken.len() as u64);
            for _ in 0..NAT_ATTEMPTS {
                let Err(NatError::Exhausted(address) | NatError::Share(address)) = result else { break };
                // A host that has its share makes room itself.
                let must_be_own = matches!(result, Err(NatError::Share(_)));
                let makes_room = |cold: &Cold| {
                    let outside = cold.translation.as_ref().and_then(|translation| translation.outside);
                    cold.original.protocol == original.protocol
                        && outside.is_some_and(|outside| outside.address == address)
                        && (!must_be_own || cold.original.source.address == inside)
                };
                if !self.make_room_outside(port, makes_room) {
                    break;
                }
                let Some(nat) = &mut self.nat else { break };
                result = nat.allocate(original, digest.0 ^ taken.len() as u64);
            }
            let Ok(outside) = result else { break };
            let reply = Tuple { destination: outside, ..original.reversed() };
            let key = self.keys.key(&reply).words;
            if self.table.lookup(&key, self.table.digest(&key)).is_none() {
                translation.reply = reply;
                translation.outside = Some(outside);
                break;
            }
            taken.push(outside);
        }
        for endpoint in &taken {
            self.release(original.protocol, *endpoint, inside);
        }
        let counts = &mut self.counts;
        match result {
            Ok(_) if translation.outside.is_some() => return Ok(()),
            Ok(_) => counts.refused_nat_taken += 1,
            Err(NatError::Exhausted(_)) => counts.refused_nat_exhausted += 1,
            Err(NatError::Share(_)) => counts.refused_nat_share += 1,
            Err(NatError::Protocol | NatError::Family) => counts.refused_nat_impossible += 1,
        }
        Err(DropReason::FlowNoPort)
    }

    pub(super) fn release(&mut self, protocol: u8, outside: Endpoint, inside: Address) {
        if let Some(nat) = &mut self.nat {
            nat.release(protocol, outside, inside);
        }
    }

    fn take_place(&mut self) -> Place {
        let index = self.free.pop().unwrap_or_else(|| {
            self.cold_slots.push(ColdSlot::default());
            self.cold_slots.len() as u32 - 1
        });
        let slot = &mut self.cold_slots[index as usize];
        slot.generation = (slot.generation + 1) % (1 << (64 - GENERATION_SHIFT));
        Place { index, generation: slot.generation }
    }

    fn settle(&mut self, place: Place, headers: &Headers, port: PortId, translation: Option<Box<Translation>>) {
        let syn = match &headers.body {
            Body::Tcp(segment) => LastSyn::opening(segment),
            _ => LastSyn::default(),
        };
        let (original, began) = (headers.tuple, self.now as u32);
        let loose = Loose::new(port);
        let cold = Cold { original, began, syn, loose, volume: Volume::default(), translation };
        self.cold_slots[place.index as usize].cold = Some(cold);
        self.crowd.enter(&mut self.cold_slots, place.index);
        self.counts.begun += 1;
    }

    fn insert(&mut self, key: &[u64; WORDS], digest: Digest, hot: &Hot, state: State) -> Result<(), DropReason> {
        let lifetime = lifetime(&self.settings.timeouts, state);
        self.migrate(1);
        let reported = &mut self.reported;
        let inserted = self.table.insert(key, digest, hot, lifetime, |_, hot| reported.push(*hot));
        self.end_reported();
        let counts = &mut self.counts;
        match inserted {
            Ok(_) => return Ok(()),
            Err(InsertError::Exists { .. }) => {
                counts.refused_nat_taken += 1;
                return Err(DropReason::FlowNoPort);
            }
            Err(InsertError::Full { .. }) => counts.refused_table_full += 1,
            Err(_) => counts.refused_table_crowded += 1,
        }
        Err(DropReason::FlowTable)
    }
}

/// A digest that is the same on every switch.
fn steady_digest(tuple: &Tuple) -> u64 {
    let end = |digest: u64, end: Endpoint| {
        let address = mix64(digest ^ end.address.0 as u64) ^ (end.address.0 >> 64) as u64;
        mix64(address) ^ u64::from(end.port)
    };
    mix64(end(end(0, tuple.source), tuple.destination))
}
