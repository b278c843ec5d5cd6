//! The IP addresses of the names in an exact table, and the names of IP addresses, without a copy of any name.
//!
//! ```text
//!  table    slot:    | name and value: 0 no address, 1 IPv4, 2 IPv6 |
//!  column   slot:    | the IPv4 address, or the place of the IPv6 address in `wide` plus one, 4 bytes; 0: none |
//!           only those runs of 256 slots of which one had an address
//!  index    hash of an address: | slot, 4 bytes |
//! ```
//! A slot is in the index only while its value and its column are
//! those of its address: [`Addresses::clear`] comes before a change of either, and [`Addresses::set`] after it. So
//! the data of a slot that is found in the index may be read.
//!
//! The address of a name leads back to it, unless another name was given the same address later. Such slots, of which
//! there are few or none, are listed. So the check of a source reads the line of its name and its place in the column,
//! and no index.
//!
//! Cost: nothing as long as no name has an address. Then up to 4.1 bytes a slot of the table, 16 bytes an IPv6 address,
//! and 5 to 6.3 bytes an address in the index.

use super::{ExactTable, ExactWriter};
use fib::hash_index::HashIndex;
use fib::name::{Name, NameKind};
use lookup::base::marked::Searches;
use lookup::base::prefetch::prefetch;
use lookup::hash::Digest;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The value of a name in the exact table: how its address is stored.
pub(crate) fn value_of(ip: Option<IpAddr>) -> u16 {
    match ip {
        None => 0,
        Some(IpAddr::V4(_)) => 1,
        Some(IpAddr::V6(_)) => 2,
    }
}

/// Slots of a run.
const RUN: usize = 256;

/// What is stored for each slot: zero until it is set.
#[derive(Debug, Default)]
struct Column {
    runs: Vec<Option<Box<[u32; RUN]>>>,
    n_runs: usize,
}

impl Column {
    fn get(&self, slot: usize) -> u32 {
        self.runs.get(slot / RUN).and_then(Option::as_ref).map_or(0, |run| run[slot % RUN])
    }

    /// Stores a value for a slot of a table with `n_slots` slots.
    fn set(&mut self, n_slots: usize, slot: usize, stored: u32) {
        if self.runs.is_empty() {
            self.runs.resize_with(n_slots.div_ceil(RUN), || None);
        }
        let run = self.runs[slot / RUN].get_or_insert_with(|| {
            self.n_runs += 1;
            Box::new([0; RUN])
        });
        run[slot % RUN] = stored;
    }

    /// Begins to fetch what is stored for a slot.
    #[inline]
    fn fetch(&self, slot: usize) {
        if let Some(Some(run)) = self.runs.get(slot / RUN) {
            prefetch((&raw const run[slot % RUN]).cast());
        }
    }

    fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    fn heap_bytes(&self) -> usize {
        self.runs.capacity() * 8 + self.n_runs * RUN * 4
    }
}

/// The addresses of the names in `table`. See the module.
#[derive(Debug)]
pub(crate) struct Addresses {
    table: Arc<ExactTable>,
    column: Column,
    wide: Vec<[u8; 16]>,
    /// Places in `wide` that no name uses.
    free: Vec<u32>,
    index: HashIndex,
    hasher: RandomState,
    /// Slots whose address leads to another name.
    losers: HashSet<u32>,
}

impl Addresses {
    /// No addresses of the names in `table`.
    pub(crate) fn new(table: Arc<ExactTable>) -> Self {
        let (column, wide, free, index) = (Column::default(), Vec::new(), Vec::new(), HashIndex::default());
        Self { table, column, wide, free, index, hasher: RandomState::new(), losers: HashSet::new() }
    }

    /// The number of addresses that lead to a name.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// The address of the name in a slot, as it was last [`set`](Addresses::set).
    pub(crate) fn at(&self, slot: usize) -> Option<IpAddr> {
        if self.column.is_empty() {
            return None;
        }
        let stored = self.column.get(slot);
        match self.table.value_at(slot)? {
            1 => Some(IpAddr::V4(Ipv4Addr::from_bits(stored))),
            2 => Some(IpAddr::V6(Ipv6Addr::from(*self.wide.get((stored as usize).checked_sub(1)?)?))),
            _ => None,
        }
    }

    /// The address of a MAC address, if it leads back to it. Any thread may ask, even while the name changes.
    pub(crate) fn of(&self, digest: Digest, mac: &[u8]) -> Option<IpAddr> {
        self.leading_to(self.table.slot_of(digest, mac)?)
    }

    /// Begins questions for the addresses of MAC addresses: starts fetching where those are.
    #[inline]
    pub(crate) fn begin(&self, digests: &[Digest]) {
        // Fetching is all that is asked for.
        self.table.begin(digests, &mut Searches::default());
    }

    /// The slot of a MAC address, given as a word. Starts fetching its address.
    #[inline]
    pub(crate) fn advance(&self, digest: Digest, mac: u64) -> Option<u32> {
        if self.table.kind() != NameKind::Mac {
            return None;
        }
        let slot = self.table.slot_of_word(digest, mac)?;
        self.column.fetch(slot);
        Some(slot as u32)
    }

    /// The address of the name in a slot, if it leads back to the name.
    #[inline]
    pub(crate) fn leading_to(&self, slot: usize) -> Option<IpAddr> {
        let is_loser = !self.losers.is_empty() && self.losers.contains(&(slot as u32));
        // While the name changes, its value may be there before its address.
        self.at(slot).filter(|ip| !is_loser && !ip.is_unspecified())
    }

    /// The name that has an address. Names of other kinds than MAC addresses are not found.
    pub(crate) fn name_of(&self, ip: IpAddr) -> Option<Name> {
        self.table.name_at(self.find(ip)?)
    }

    /// Stores the address of the name in `slot`. The value of the slot must be that of the address. Another name that
    /// had the address loses it.
    pub(crate) fn set(&mut self, slot: usize, ip: IpAddr) {
        let stored = match ip {
            IpAddr::V4(ip) => ip.to_bits(),
            IpAddr::V6(ip) => {
                let place = self.free.pop().unwrap_or(self.wide.len() as u32);
                match self.wide.get_mut(place as usize) {
                    Some(free) => *free = ip.octets(),
                    None => self.wide.push(ip.octets()),
                }
                place + 1
            }
        };
        self.column.set(self.table.n_slots(), slot, stored);
        self.link(slot, ip);
    }

    /// Forgets the address of the name in `slot`, before its value changes.
    pub(crate) fn clear(&mut self, slot: usize) {
        let Some(ip) = self.at(slot) else { return };
        self.unlink(slot, ip);
        self.losers.remove(&(slot as u32));
        if ip.is_ipv6() {
            self.free.push(self.column.get(slot) - 1);
        }
        self.column.set(self.table.n_slots(), slot, 0);
    }

    /// The same addresses for the table that `writer` has now, which holds the same names in other slots.
    pub(crate) fn moved(&self, writer: &ExactWriter) -> Self {
        let mut new = Self::new(writer.table().clone());
        if self.column.is_empty() {
            return new;
        }
        (new.wide, new.free) = (self.wide.clone(), self.free.clone());
        new.index = HashIndex::with_capacity(self.index.len());
        for (slot, value) in self.table.live().filter(|(_, value)| *value != value_of(None)) {
            let Some((to, now)) = self.table.name_at(slot).and_then(|name| writer.slot_of(&name)) else { continue };
            if now == value {
                new.column.set(new.table.n_slots(), to, self.column.get(slot));
                match self.at(slot) {
                    Some(ip) if self.find(ip) == Some(slot) => new.link(to, ip),
                    _ => _ = new.losers.insert(to as u32),
                }
            }
        }
        new
    }

    /// Bytes of heap memory, without those of the table.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.column.heap_bytes()
            + self.free.capacity() * 4
            + self.wide.capacity() * 16
            + self.losers.capacity() * 5
            + self.index.heap_bytes()
    }

    /// The slot of the name that has an address.
    fn find(&self, ip: IpAddr) -> Option<usize> {
        let slot = self.index.find(self.hasher.hash_one(ip), |slot| self.at(slot as usize) == Some(ip));
        slot.map(|slot| slot as usize)
    }

    fn link(&mut self, slot: usize, ip: IpAddr) {
        if self.table.kind() != NameKind::Mac {
            return;
        }
        let hash = self.hasher.hash_one(ip);
        self.losers.remove(&(slot as u32));
        if let Some(other) = self.find(ip) {
            self.index.replace(hash, other as u32, slot as u32);
            if other != slot {
                self.losers.insert(other as u32);
            }
            return;
        }
        let mut index = std::mem::take(&mut self.index);
        index.insert(hash, slot as u32, |slot| self.hash_at(slot));
        self.index = index;
    }

    /// Removes an address, unless it belongs to another name by now.
    fn unlink(&mut self, slot: usize, ip: IpAddr) {
        let mut index = std::mem::take(&mut self.index);
        index.remove(self.hasher.hash_one(ip), slot as u32, |slot| self.hash_at(slot));
        self.index = index;
    }

    /// The hash of the address of a slot that has one.
    fn hash_at(&self, slot: u32) -> u64 {
        self.at(slot as usize).map_or(0, |ip| self.hasher.hash_one(ip))
    }
}
