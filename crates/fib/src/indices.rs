//! Stable small numbers for actions and egress switches: what the cells of a FIB hold.
//!
//! An index keeps its meaning while any switch may hold cells with it. A retired index is reassigned only when no
//! unused index is left, and only after the switches have acknowledged a change later than its retirement. A value that
//! comes back gets its old index at once.

use std::collections::HashMap;
use std::hash::Hash;

/// One index: what it means, and since which change it is out of use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot<T> {
    pub(crate) value: T,
    pub(crate) retired_at: Option<u64>,
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
        self.slots[at].retired_at.is_none().then_some(at as u16 + 1)
    }

    /// Assigns an index to a value that comes into use. `acknowledged` is the latest change that every switch that
    /// could hold the index has acknowledged. `None` when all indices are taken.
    pub(crate) fn assign(&mut self, value: T, acknowledged: u64) -> Option<u16> {
        let at = match self.known.get(&value) {
            Some(&at) => at,
            None if self.slots.len() < self.max => {
                self.slots.push(Slot { value, retired_at: None });
                self.slots.len() - 1
            }
            None => {
                let free = |slot: &Slot<T>| slot.retired_at.is_some_and(|at| at < acknowledged);
                let at = self.slots.iter().position(free)?;
                self.known.remove(&self.slots[at].value);
                at
            }
        };
        self.known.insert(value, at);
        self.slots[at] = Slot { value, retired_at: None };
        Some(at as u16 + 1)
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
}
