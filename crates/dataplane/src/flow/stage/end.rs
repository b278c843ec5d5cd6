//! The end of flows, and flows as operators see them.

use super::Stage;
use super::record::{Cold, Hot, Place, TRANSLATED, is_unanswered, state_of};
use crate::flow::export::{Ended, Why};
use crate::flow::packet::Tuple;
use crate::flow::view::FlowView;
use lookup::flow::Slot;
use std::time::Duration;

/// The most ended flows that wait to be exported.
const MAX_ENDED: usize = 1 << 16;

/// The addresses of a flow's packets as they come in, in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// The addresses of its first packet.
    pub original: Tuple,
    /// The addresses of answers.
    pub reply: Tuple,
}

impl Stage {
    /// Ends the flows of the entries that the table reported.
    pub(super) fn end_reported(&mut self) {
        while let Some(hot) = self.reported.pop() {
            self.end(&hot, Why::Expired);
        }
    }

    /// Ends the flow of an entry whose packets are unanswered, if that is still so.
    pub(super) fn end_unanswered(&mut self, slot: Slot) {
        let hot = *self.table.value(slot);
        if self.state_of(&hot).is_some_and(|state| is_unanswered(&state)) {
            self.table.remove_at(slot);
            self.end(&hot, Why::Unreachable);
        }
    }

    /// The state of a flow: that of its entry, unless it is translated.
    fn state_of(&self, hot: &Hot) -> Option<Hot> {
        if hot[0] & TRANSLATED == 0 {
            return Some(*hot);
        }
        let place = Place::of(hot);
        let cold = self.cold_slots.get(place.index as usize).filter(|cold| cold.generation == place.generation)?;
        cold.cold.as_ref()?.translation.as_ref().map(|translation| translation.shared)
    }

    /// Ends the flow of an entry that the table has removed.
    pub(super) fn end(&mut self, hot: &Hot, why: Why) {
        let place = Place::of(hot);
        // The table may report both entries of a translated flow.
        let cold = self.cold_slots.get_mut(place.index as usize).filter(|cold| cold.generation == place.generation);
        let Some(cold) = cold.and_then(|slot| slot.cold.take()) else { return };
        self.free.push(place.index);
        self.crowd.leave(&mut self.cold_slots, &cold);
        let mut last = *hot;
        let mut reply = cold.original.reversed();
        if let Some(translation) = &cold.translation {
            (last, reply) = (translation.shared, translation.reply);
            for tuple in [cold.original, reply] {
                let key = self.keys.key(&tuple).words;
                let slot = self.table.lookup(&key, self.table.digest(&key));
                if let Some(slot) = slot.filter(|&slot| Place::of(self.table.value(slot)) == place) {
                    self.table.remove_at(slot);
                }
            }
            if let Some((id, server)) = translation.server {
                self.virtuals[usize::from(id.0)].end(server);
            }
            if let Some(outside) = translation.outside {
                self.release(cold.original.protocol, outside, cold.original.source.address);
            }
        }
        *match why {
            Why::Expired => &mut self.counts.expired,
            Why::Reopened => &mut self.counts.reopened,
            Why::Unreachable => &mut self.counts.unreachable,
            Why::Evicted => &mut self.counts.evicted,
            Why::Flushed => &mut self.counts.flushed,
        } += 1;
        if !self.settings.export {
            return;
        }
        if self.ended.len() >= MAX_ENDED {
            self.counts.export_lost += 1;
            return;
        }
        let flow = self.view(&cold, &reply, &last, 0);
        let began = self.epoch.1 + Duration::from_secs(cold.began.into());
        self.ended.push_back(Ended { flow, began, why });
    }

    fn view(&self, cold: &Cold, reply: &Tuple, hot: &Hot, remaining_s: u64) -> FlowView {
        let mut volume = cold.volume;
        volume.add(hot);
        FlowView {
            original: cold.original,
            reply: *reply,
            state: state_of(hot),
            packets: volume.packets,
            bytes: volume.bytes,
            age_s: self.now.saturating_sub(cold.began.into()),
            remaining_s,
        }
    }

    /// Takes at most `n` of the flows that have ended since the last call.
    pub fn take_ended(&mut self, n: usize) -> Vec<Ended> {
        let n = n.min(self.ended.len());
        self.ended.drain(..n).collect()
    }

    /// Advances the clock to `now`, visits a number of buckets of the table, and ends the flows that have timed out
    /// there. Returns the number of buckets of the table.
    pub fn scan(&mut self, now: u64, n_buckets: usize) -> usize {
        self.set_time(now);
        self.migrate(n_buckets);
        let reported = &mut self.reported;
        self.table.scan(n_buckets, |_, hot| reported.push(*hot));
        self.end_reported();
        self.table.capacity().div_ceil(8)
    }

    /// Shows the flows of at most `n` places. Returns the next place, if there are more. A flow stays at its place as
    /// long as it lives.
    pub fn show(&self, from: usize, n: usize, mut each: impl FnMut(FlowView)) -> Option<usize> {
        let end = self.cold_slots.len().min(from.saturating_add(n));
        for cold in self.cold_slots.get(from..end).into_iter().flatten().filter_map(|slot| slot.cold.as_ref()) {
            let key = self.keys.key(&cold.original).words;
            let Some(slot) = self.table.lookup(&key, self.table.digest(&key)) else { continue };
            let remaining = u64::from(self.table.remaining(slot).unwrap_or(0));
            let hot = cold.translation.as_ref().map_or(*self.table.value(slot), |translation| translation.shared);
            each(self.view(cold, &cold.reply(), &hot, remaining));
        }
        (end < self.cold_slots.len()).then_some(end)
    }

    /// Ends the flows of `n` places for which `which` returns true. Returns the next place, if there are more.
    pub fn flush(&mut self, from: usize, n: usize, which: impl Fn(&Ends) -> bool) -> Option<usize> {
        let end = self.cold_slots.len().min(from.saturating_add(n));
        for index in from..end {
            let Some(cold) = &self.cold_slots[index].cold else { continue };
            let (original, reply) = (cold.original, cold.reply());
            if !which(&Ends { original, reply }) {
                continue;
            }
            let key = self.keys.key(&original).words;
            // The scan ends those that have timed out.
            if let Some(hot) = self.table.remove(&key, self.table.digest(&key)) {
                self.end(&hot, Why::Flushed);
            }
        }
        (end < self.cold_slots.len()).then_some(end)
    }
}
