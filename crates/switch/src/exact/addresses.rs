//! The IP addresses of the names in an exact table, and the names of IP addresses, without a copy of any name.
//!
//! ```text
//!  table    slot:    | name and value: 0 no address, 1 IPv4, 2 IPv6 |
//!  column   slot:    | the IPv4 address, or the place of the IPv6 address in `wide`, 4 bytes |
//!  index    hash of an address: | slot, 4 bytes |
//! ```
//! The index has open addressing with linear probing. A slot is in the index only while its value and its column are
//! those of its address: [`Addresses::clear`] comes before a change of either, and [`Addresses::set`] after it. So
//! whoever finds a slot in the index may read the rest.
//!
//! Cost: nothing as long as no name has an address. Then 4 bytes a slot of the table, 16 bytes an IPv6 address, and 5
//! to 6.3 bytes an address in the index. Source: Knuth, vol. 3, 6.4, algorithms L and R.

use super::{ExactTable, ExactWriter};
use fib::name::{Name, NameKind};
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

const NO_SLOT: u32 = u32::MAX;
/// At most this share of the index is in use: a search for an unknown address then ends after 13 places on average.
const FULL: (usize, usize) = (4, 5);

/// The value of a name in the exact table: how its address is stored.
pub(crate) fn value_of(ip: Option<IpAddr>) -> u16 {
    match ip {
        None => 0,
        Some(IpAddr::V4(_)) => 1,
        Some(IpAddr::V6(_)) => 2,
    }
}

/// The addresses of the names in `table`. See the module.
#[derive(Debug)]
pub(crate) struct Addresses {
    table: Arc<ExactTable>,
    column: Vec<u32>,
    wide: Vec<[u8; 16]>,
    /// Places in `wide` that no name uses.
    free: Vec<u32>,
    index: Vec<u32>,
    n_indexed: usize,
    hasher: RandomState,
}

impl Addresses {
    /// No addresses of the names in `table`.
    pub(crate) fn new(table: Arc<ExactTable>) -> Self {
        let (column, wide, free, index) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { table, column, wide, free, index, n_indexed: 0, hasher: RandomState::new() }
    }

    /// The number of addresses that lead to a name.
    pub(crate) fn len(&self) -> usize {
        self.n_indexed
    }

    /// The address of the name in a slot, as it was last [`set`](Addresses::set).
    pub(crate) fn at(&self, slot: usize) -> Option<IpAddr> {
        let stored = *self.column.get(slot)?;
        match self.table.value_at(slot)? {
            1 => Some(IpAddr::V4(Ipv4Addr::from_bits(stored))),
            2 => Some(IpAddr::V6(Ipv6Addr::from(self.wide[stored as usize]))),
            _ => None,
        }
    }

    /// The name that has an address. Names of other kinds than MAC addresses are not found.
    pub(crate) fn name_of(&self, ip: IpAddr) -> Option<Name> {
        self.table.name_at(self.index[self.find(ip)?] as usize)
    }

    /// Stores the address of the name in `slot`. The value of the slot must be that of the address. Another name that
    /// had the address loses it.
    pub(crate) fn set(&mut self, slot: usize, ip: IpAddr) {
        if self.column.is_empty() {
            self.column = vec![0; self.table.n_slots()];
        }
        self.column[slot] = match ip {
            IpAddr::V4(ip) => ip.to_bits(),
            IpAddr::V6(ip) => {
                let place = self.free.pop().unwrap_or(self.wide.len() as u32);
                match self.wide.get_mut(place as usize) {
                    Some(free) => *free = ip.octets(),
                    None => self.wide.push(ip.octets()),
                }
                place
            }
        };
        self.link(slot, ip);
    }

    /// Forgets the address of the name in `slot`, before its value changes.
    pub(crate) fn clear(&mut self, slot: usize) {
        let Some(ip) = self.at(slot) else { return };
        self.unlink(slot, ip);
        if ip.is_ipv6() {
            self.free.push(self.column[slot]);
        }
    }

    /// The same addresses for the table that `writer` has now, which holds the same names in other slots.
    pub(crate) fn moved(&self, writer: &ExactWriter) -> Self {
        let mut new = Self::new(writer.table().clone());
        if self.column.is_empty() {
            return new;
        }
        (new.wide, new.free) = (self.wide.clone(), self.free.clone());
        new.column = vec![0; new.table.n_slots()];
        new.index = empty_index(self.n_indexed);
        for (slot, value) in self.table.live().filter(|(_, value)| *value != value_of(None)) {
            let Some((to, now)) = self.table.name_at(slot).and_then(|name| writer.slot_of(&name)) else { continue };
            let linked = self.at(slot).filter(|ip| self.find(*ip).is_some_and(|at| self.index[at] as usize == slot));
            if let Some(ip) = linked.filter(|_| now == value) {
                new.column[to] = self.column[slot];
                new.link(to, ip);
            } else if now == value {
                new.column[to] = self.column[slot];
            }
        }
        new
    }

    /// Bytes of heap memory, without those of the table.
    pub(crate) fn heap_bytes(&self) -> usize {
        (self.column.capacity() + self.free.capacity() + self.index.capacity()) * 4 + self.wide.capacity() * 16
    }

    fn home(&self, ip: IpAddr) -> usize {
        let hash = self.hasher.hash_one(ip) >> 32;
        ((hash * self.index.len() as u64) >> 32) as usize
    }

    fn next(&self, at: usize) -> usize {
        if at + 1 == self.index.len() { 0 } else { at + 1 }
    }

    /// Where the index has an address.
    fn find(&self, ip: IpAddr) -> Option<usize> {
        if self.index.is_empty() {
            return None;
        }
        let mut at = self.home(ip);
        // The loop ends: a place in five is empty.
        while self.index[at] != NO_SLOT {
            if self.at(self.index[at] as usize) == Some(ip) {
                return Some(at);
            }
            at = self.next(at);
        }
        None
    }

    fn link(&mut self, slot: usize, ip: IpAddr) {
        if self.table.kind() != NameKind::Mac {
            return;
        }
        if let Some(at) = self.find(ip) {
            self.index[at] = slot as u32;
            return;
        }
        if (self.n_indexed + 1) * FULL.1 > self.index.len() * FULL.0 {
            let old = std::mem::replace(&mut self.index, empty_index(self.n_indexed + self.n_indexed / 4));
            for slot in old.into_iter().filter(|slot| *slot != NO_SLOT) {
                if let Some(ip) = self.at(slot as usize) {
                    self.occupy(slot, ip);
                }
            }
        }
        self.occupy(slot as u32, ip);
        self.n_indexed += 1;
    }

    /// Puts a slot into the first empty place for its address.
    fn occupy(&mut self, slot: u32, ip: IpAddr) {
        let mut at = self.home(ip);
        while self.index[at] != NO_SLOT {
            at = self.next(at);
        }
        self.index[at] = slot;
    }

    /// Removes an address, unless it belongs to another name by now. Places after it close the gap (algorithm R).
    fn unlink(&mut self, slot: usize, ip: IpAddr) {
        let Some(mut gap) = self.find(ip).filter(|at| self.index[*at] as usize == slot) else { return };
        let mut at = gap;
        loop {
            at = self.next(at);
            let Some(ip) = Some(self.index[at]).filter(|slot| *slot != NO_SLOT).and_then(|s| self.at(s as usize))
            else {
                break;
            };
            // It may move to the gap unless its search starts after the gap.
            let home = self.home(ip);
            let stays = if gap <= at { gap < home && home <= at } else { gap < home || home <= at };
            if !stays {
                self.index[gap] = self.index[at];
                gap = at;
            }
        }
        self.index[gap] = NO_SLOT;
        self.n_indexed -= 1;
    }
}

/// An index with room for at least `n` addresses.
fn empty_index(n: usize) -> Vec<u32> {
    vec![NO_SLOT; (n.max(8) + 1) * FULL.1 / FULL.0 + 1]
}
