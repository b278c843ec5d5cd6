//! Stable small numbers for ports and switches: what the cells of a FIB hold.
//!
//! An index keeps its meaning while any switch may hold cells with it. A retired index gets another one only when no
//! unused index is left. A value that comes back gets its old index at once.
//!
//! * [`Indices::assign`] waits until the switches have acknowledged a change later than the retirement.
//! * [`Indices::displace`] waits for no switch. It says since which version of the action table the index has the new meaning. A
//!   switch with an earlier table is sent one first in which the index drops, then cells without the former meaning, then the
//!   table with the new one.

use crate::action::PortId;
use crate::topology::NodeId;
use std::collections::HashMap;
use std::hash::Hash;

/// The meaning of a value of a switch's FIB in port mode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Meaning {
    /// A port: one of hosts, or the next hop to all switches without a value of their own.
    Port(PortId),
    /// A switch that names are attached to, another than this one.
    Switch(NodeId),
}

impl Meaning {
    pub(crate) fn is_switch(self) -> bool {
        matches!(self, Meaning::Switch(_))
    }
}

/// One index: what it means, and since which change it is out of use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot<T> {
    pub(crate) value: T,
    pub(crate) retired_at: Option<u64>,
    /// The version of the action table since which it means this, if cells may hold it with an earlier meaning; or 0.
    pub(crate) since: u64,
}

impl<T> Slot<T> {
    /// An index in use.
    pub(crate) fn new(value: T) -> Slot<T> {
        Slot { value, retired_at: None, since: 0 }
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.retired_at.is_none()
    }
}

/// Indices from 1 on; 0 is drop.
#[derive(Clone, Debug)]
pub(crate) struct Indices<T> {
    slots: Vec<Slot<T>>,
    /// The slot of every value that has one, in use or not.
    known: HashMap<T, usize>,
    max: usize,
}

impl<T: Copy + Eq + Hash> Indices<T> {
    /// For values of `value_bits` bits.
    pub(crate) fn new(value_bits: u8) -> Indices<T> {
        Indices::from_slots(value_bits, Vec::new())
    }

    /// From stored slots.
    pub(crate) fn from_slots(value_bits: u8, slots: Vec<Slot<T>>) -> Indices<T> {
        let mut known = HashMap::with_capacity(slots.len());
        // If two slots have the same value, which no store should contain, the first counts.
        slots.iter().enumerate().for_each(|(at, slot)| _ = known.entry(slot.value).or_insert(at));
        Indices { slots, known, max: (1 << value_bits) - 1 }
    }

    /// Most indices there can be.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Index `i + 1` is at place `i`.
    pub(crate) fn slots(&self) -> &[Slot<T>] {
        &self.slots
    }

    /// The index of a value in use.
    pub(crate) fn get(&self, value: T) -> Option<u16> {
        let at = *self.known.get(&value)?;
        self.slots[at].is_in_use().then_some(at as u16 + 1)
    }

    /// Indices that are not in use.
    pub(crate) fn n_free(&self) -> usize {
        self.max.saturating_sub(self.slots.iter().filter(|slot| slot.is_in_use()).count())
    }

    /// Assigns an index to a value that comes into use. `acknowledged` is the latest change that every switch that
    /// could hold the index has acknowledged. `None` when all indices are taken.
    pub(crate) fn assign(&mut self, value: T, acknowledged: u64) -> Option<u16> {
        if let Some(index) = self.assign_unused(value) {
            return Some(index);
        }
        let free = |slot: &Slot<T>| slot.retired_at.is_some_and(|at| at < acknowledged);
        let at = self.slots.iter().position(free)?;
        Some(self.give(at, Slot::new(value)))
    }

    /// As [`Indices::assign`], but takes no index from another value.
    pub(crate) fn assign_unused(&mut self, value: T) -> Option<u16> {
        if let Some(&at) = self.known.get(&value) {
            self.slots[at].retired_at = None;
            return Some(at as u16 + 1);
        }
        (self.slots.len() < self.max).then(|| {
            self.known.insert(value, self.slots.len());
            self.slots.push(Slot::new(value));
            self.slots.len() as u16
        })
    }

    /// Gives a value the index of another one for which `gives_way` holds, although cells may hold it; of several a retired
    /// one, or else the latest. `since`: see [`Slot::since`]. The index, and whether the other one was in use.
    pub(crate) fn displace(
        &mut self,
        value: T,
        since: u64,
        gives_way: impl Fn(&Slot<T>) -> bool,
    ) -> Option<(u16, bool)> {
        let retired = self.slots.iter().position(|slot| !slot.is_in_use() && gives_way(slot));
        let at = retired.or_else(|| self.slots.iter().rposition(gives_way))?;
        let was_in_use = self.slots[at].is_in_use();
        Some((self.give(at, Slot { since, ..Slot::new(value) }), was_in_use))
    }

    fn give(&mut self, at: usize, slot: Slot<T>) -> u16 {
        self.known.remove(&self.slots[at].value);
        self.known.insert(slot.value, at);
        self.slots[at] = slot;
        at as u16 + 1
    }

    /// Retires the index of a value with this change.
    pub(crate) fn retire(&mut self, value: T, change: u64) {
        if let Some(&at) = self.known.get(&value) {
            self.slots[at].retired_at = Some(change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_reused_only_after_a_later_acknowledgement() {
        let mut indices = Indices::new(1);
        assert_eq!(indices.assign('a', 0), Some(1));
        assert_eq!(indices.assign('a', 0), Some(1));
        assert_eq!(indices.assign('b', 9), None);
        indices.retire('a', 5);
        assert_eq!(indices.get('a'), None);
        assert_eq!(indices.assign('b', 5), None);
        assert_eq!(indices.clone().assign('a', 0), Some(1));
        assert_eq!(indices.assign('b', 6), Some(1));
        assert_eq!(indices.get('b'), Some(1));
    }

    #[test]
    fn a_displaced_value_is_a_retired_one_or_the_latest_and_says_since_when() {
        let mut indices = Indices::new(2);
        for value in ['a', 'b', 'c'] {
            indices.assign(value, 0);
        }
        indices.retire('b', 5);
        assert_eq!(indices.n_free(), 1);
        assert_eq!(indices.assign_unused('d'), None);
        assert_eq!(indices.displace('d', 7, |slot| slot.value != 'c'), Some((2, false)));
        assert_eq!((indices.get('b'), indices.get('d'), indices.slots()[1].since), (None, Some(2), 7));
        assert_eq!(indices.displace('e', 9, |slot| slot.value != 'd'), Some((3, true)));
        assert_eq!(indices.displace('f', 9, |_| false), None);
        // What is retired and comes back still says since when: cells may be older.
        indices.retire('d', 10);
        assert_eq!(indices.assign_unused('d'), Some(2));
        assert_eq!(indices.slots()[1].since, 7);
    }
}
