//! Stable small numbers for actions and egress switches: what the cells of a FIB hold.
//!
//! An index keeps its meaning while any switch may hold cells that say so: a retired index is given to something else
//! only when none is left that was never used, and only once the switches have acknowledged a later change than that
//! of its retirement. The same thing coming back gets its old index at once.

/// One index: what it means, and since which change it is out of use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot<T> {
    pub(crate) value: T,
    pub(crate) retired_at: Option<u64>,
}

/// Indices from 1 on; 0 is drop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Indices<T> {
    slots: Vec<Slot<T>>,
    max: usize,
}

impl<T: Copy + PartialEq> Indices<T> {
    /// For values of `value_bits` bits.
    pub(crate) fn new(value_bits: u8) -> Indices<T> {
        Indices { slots: Vec::new(), max: (1 << value_bits) - 1 }
    }

    /// As stored.
    pub(crate) fn from_slots(value_bits: u8, slots: Vec<Slot<T>>) -> Indices<T> {
        Indices { slots, max: (1 << value_bits) - 1 }
    }

    /// Most indices there can be.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Index `i + 1` is at place `i`.
    pub(crate) fn slots(&self) -> &[Slot<T>] {
        &self.slots
    }

    /// The index of something in use.
    pub(crate) fn get(&self, value: T) -> Option<u16> {
        let at = self.slots.iter().position(|slot| slot.value == value && slot.retired_at.is_none())?;
        Some(at as u16 + 1)
    }

    /// The index for something that comes into use; `acknowledged` is a change after which every switch that could
    /// hold the index has spoken. `None` when all are taken.
    pub(crate) fn assign(&mut self, value: T, acknowledged: u64) -> Option<u16> {
        let known = self.slots.iter().position(|slot| slot.value == value);
        let at = match known {
            Some(at) => at,
            None if self.slots.len() < self.max => {
                self.slots.push(Slot { value, retired_at: None });
                self.slots.len() - 1
            }
            None => {
                let free = |slot: &Slot<T>| slot.retired_at.is_some_and(|at| at < acknowledged);
                self.slots.iter().position(free)?
            }
        };
        self.slots[at] = Slot { value, retired_at: None };
        Some(at as u16 + 1)
    }

    /// Takes something out of use with this change.
    pub(crate) fn retire(&mut self, value: T, change: u64) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.value == value) {
            slot.retired_at = Some(change);
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
