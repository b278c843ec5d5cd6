//! Alien names distributed over servers: a flow that is not in the table goes to a server with a probability given by
//! the server's weight.
//!
//! In a table with [`Settings::with_spread`] the root of every component, and every isolated cell, has a pseudo-random
//! colour instead of 0. It is a function of the key, the shard and the vertex. Live names are unaffected. An alien XORs
//! two cells, which are in different components except about once in 1,000 times. So its value is spread evenly over
//! all values of `l` bits. Cells, messages and digests stay pure functions of (graph, tombstones, name → value).
//! [`Servers`] then maps values to servers:
//!
//! ```text
//! value | 0    | 1 … n             | n + 1 … 2^l - 1                   |
//!       | drop | server value - 1  | any server, as the weights demand |
//! ```
//! A live name is pinned to a server by a value in the middle part, which no change of weights moves. Aliens get values
//! of all parts, and the slots of the middle part count for their servers. One alien in `2^l` gets 0: drop.
//!
//! **Weights** are met to half a slot ([`Servers::shares`]): for a weight of a hundredth of the sum, 14 bits give
//! 0.3 %. The unevenness of the cells comes on top. It shrinks with their number. Measured with 1 to 20,000 names,
//! shares from a twentieth to a quarter, and 2M aliens: at most 0.5 % off, and most of that is the error of the sample.
//! A table of one shard is sized for [`LEAST_NAMES`], because a handful of cells cannot be even.
//!
//! **When names come and go**, aliens that read a changed cell move: see the figures at [`Servers`].
//!
//! Source: Yu, Belazzougui, Qian, Zhang, "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello
//! Hashing", section VII.A, which proposes it in a sentence.

use super::{Settings, mix_cell};
use crate::base::cells::value_mask;
use crate::base::part::PartId;
use crate::hash::mix64;

/// The least number of names for which a table of one shard is sized where aliens are spread: 2.4 cells each, 20 KB for
/// 16 bits.
pub const LEAST_NAMES: usize = 4096;

/// Odd, so that its multiples visit every slot once.
const SCATTER: usize = 0x9E37_79B1;

/// The colours of the roots of a shard.
#[derive(Clone, Copy)]
pub(super) struct Roots {
    seed: u64,
    mask: u64,
}

impl Roots {
    pub(super) fn new(settings: &Settings, id: PartId) -> Self {
        let mask = if settings.spread { settings.value_mask() } else { 0 };
        let place = u64::from(id.prefix) << 8 | u64::from(id.depth);
        Self { seed: mix64(settings.seed.wrapping_add(0xA11E) ^ place << 24), mask }
    }

    /// The colour of `vertex` if it is a root or isolated.
    #[inline]
    pub(super) fn colour(self, vertex: u32) -> u64 {
        mix64(mix_cell(self.seed, vertex)) & self.mask
    }
}

/// Maps values to servers. There is a slot for every value, and slots are apportioned by weight.
///
/// How aliens move when names come and go, measured over 16,000 names in eight shards: a name that comes, goes or gets
/// another value moves 0.013 to 0.015 % of them, which is the share of two names of the table. 160 changes of each kind
/// together moved 6.1 %. A shard that is solved again (because of a cycle, growth, or when a twentieth of its names are
/// gone) moves all of its aliens. An alien flow that must keep its server must be inserted, with [`Servers::pin`].
///
/// ```
/// use fibula_lookup::hash::SecretKey;
/// use fibula_lookup::othello::{Othello, Settings, spread::Servers};
/// use fibula_lookup::hash::Digest;
/// use fibula_lookup::traits::{Control, Query};
///
/// let mut servers = Servers::new(12, &[3, 1, 1])?;
/// let mut table: Othello = Othello::new(Settings::new(12, 1000, &SecretKey::from_seed(1)).with_spread());
/// table.insert(Digest(7), servers.pin(2).unwrap(), &mut Vec::new())?;
/// let switch = table.export();
/// assert_eq!(servers.server(switch.lookup(Digest(7))), Some(2));
/// // Half the weight of server 0 goes to server 1; live names stay.
/// servers.set_weights(&[3, 3, 1])?;
/// assert_eq!(servers.server(switch.lookup(Digest(7))), Some(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Servers {
    /// The server of each value. [`Servers::DROP`] at 0.
    slots: Vec<u16>,
    n_servers: usize,
}

/// Why no table of servers can be built from weights. The table is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// There are more servers than values, or fewer than before.
    #[error("{n_servers} servers: at least {least} and at most {most} have a value of their own")]
    Servers {
        /// Servers given.
        n_servers: usize,
        /// The least number of servers.
        least: usize,
        /// The largest number of servers.
        most: usize,
    },
    /// The weights say nothing about shares.
    #[error("all weights are 0, or their sum exceeds 2^63: aliens need a server to land on")]
    Weights,
    /// Values of that width have too many slots, or none.
    #[error("{value_bits} bits of a value: from 1 to 24 can be mapped to servers slot by slot")]
    ValueBits {
        /// Bits asked for.
        value_bits: u8,
    },
    /// The stored slots are not those of a table.
    #[error("stored slot {slot} names no server, or not its own: build the table from weights")]
    Slot {
        /// The slot.
        slot: usize,
    },
}

impl Servers {
    /// The mark in the slot of value 0.
    const DROP: u16 = u16::MAX;
    /// Bits of the widest values.
    const MAX_BITS: u8 = 24;

    /// Slots for all values of `value_bits` bits, apportioned to servers by their weights.
    /// # Errors
    /// [`WeightsError`].
    pub fn new(value_bits: u8, weights: &[u64]) -> Result<Self, WeightsError> {
        if !(1..=Self::MAX_BITS).contains(&value_bits) {
            return Err(WeightsError::ValueBits { value_bits });
        }
        let mut servers = Self { slots: vec![Self::DROP; 1 << value_bits], n_servers: 0 };
        servers.set_weights(weights)?;
        Ok(servers)
    }

    /// The table of the slots that [`Servers::slots`] gave. A controller stores them, because slots depend on earlier
    /// weights too.
    /// # Errors
    /// [`WeightsError`].
    pub fn from_slots(slots: &[u16]) -> Result<Self, WeightsError> {
        let value_bits = slots.len().trailing_zeros() as u8;
        if !slots.len().is_power_of_two() || !(1..=Self::MAX_BITS).contains(&value_bits) {
            return Err(WeightsError::ValueBits { value_bits });
        }
        let n_servers = slots[1..].iter().copied().max().map_or(0, usize::from) + 1;
        let own = |slot: usize| slot == 0 || slot > n_servers || usize::from(slots[slot]) == slot - 1;
        let wrong = |slot: &usize| (slots[*slot] == Self::DROP) != (*slot == 0) || !own(*slot);
        if let Some(slot) = (0..slots.len()).find(wrong) {
            return Err(WeightsError::Slot { slot });
        }
        Ok(Self { slots: slots.to_vec(), n_servers })
    }

    /// The server of each value, and `u16::MAX` at 0.
    pub fn slots(&self) -> &[u16] {
        &self.slots
    }

    /// The number of servers, including those of weight 0.
    pub fn n_servers(&self) -> usize {
        self.n_servers
    }

    /// The server that `value` means. `None` (drop) for 0 and for values that the table does not have.
    #[inline]
    pub fn server(&self, value: u64) -> Option<u16> {
        self.slots.get(usize::try_from(value).ok()?).copied().filter(|&server| server != Self::DROP)
    }

    /// The value of a live name that belongs to `server`. It does not depend on weights.
    pub fn pin(&self, server: u16) -> Option<u64> {
        (usize::from(server) < self.n_servers).then_some(u64::from(server) + 1)
    }

    /// The share of aliens that each server gets: its share of all slots.
    pub fn shares(&self) -> Vec<f64> {
        let counts = self.counts(self.n_servers);
        counts.iter().map(|&count| count as f64 / self.slots.len() as f64).collect()
    }

    /// Reapportions the slots, and returns how many moved. As few as possible move, each from a server that has too
    /// many to one that has too few. Servers may be added. To remove a server, set its weight to 0: it keeps its number
    /// and one slot.
    /// # Errors
    /// [`WeightsError`].
    pub fn set_weights(&mut self, weights: &[u64]) -> Result<usize, WeightsError> {
        let most = (self.slots.len() - 1).min(usize::from(Self::DROP));
        if weights.len() < self.n_servers.max(1) || weights.len() > most {
            return Err(WeightsError::Servers { n_servers: weights.len(), least: self.n_servers.max(1), most });
        }
        let wanted = apportion(self.slots.len() - 1, weights)?;
        let before = self.slots.clone();
        for server in self.n_servers..weights.len() {
            self.slots[server + 1] = server as u16;
        }
        self.n_servers = weights.len();
        let mut counts = self.counts(self.n_servers);
        let mut needy = (0..self.n_servers).filter(|&server| counts[server] < wanted[server]).collect::<Vec<_>>();
        // Slots are taken from all over the table, because where live names have the first values, the cells of one
        // component differ in few bits.
        let mask = self.slots.len() - 1;
        let scattered = (0..=mask).map(|at| at.wrapping_mul(SCATTER) & mask);
        for slot in scattered.filter(|&slot| slot > weights.len()) {
            let owner = usize::from(self.slots[slot]);
            let spare = self.slots[slot] == Self::DROP || counts[owner] > wanted[owner];
            if spare && let Some(&server) = needy.last() {
                if self.slots[slot] != Self::DROP {
                    counts[owner] -= 1;
                }
                self.slots[slot] = server as u16;
                counts[server] += 1;
                if counts[server] == wanted[server] {
                    needy.pop();
                }
            }
        }
        debug_assert!(needy.is_empty() && counts == wanted);
        Ok(before.iter().zip(&self.slots).filter(|(old, new)| old != new).count())
    }

    fn counts(&self, n_servers: usize) -> Vec<usize> {
        let mut counts = vec![0; n_servers];
        for &server in &self.slots[1..] {
            if server != Self::DROP {
                counts[usize::from(server)] += 1;
            }
        }
        counts
    }
}

/// The number of slots of each server, `n_slots` in all, by the method of largest remainders. Each server has at least
/// its own slot.
fn apportion(n_slots: usize, weights: &[u64]) -> Result<Vec<usize>, WeightsError> {
    let total: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
    if total == 0 || total > 1 << 63 {
        return Err(WeightsError::Weights);
    }
    // A server whose weight is worth less than a slot gets one slot. The others share the rest.
    let mut small = vec![false; weights.len()];
    let (mut rest, mut sum) = (n_slots as u128, total);
    loop {
        let next = (0..weights.len()).filter(|&at| !small[at] && u128::from(weights[at]) * rest < sum);
        let next: Vec<_> = next.collect();
        if next.is_empty() {
            break;
        }
        for at in next {
            small[at] = true;
            rest -= 1;
            sum -= u128::from(weights[at]);
        }
    }
    let quota = |at: usize| {
        if small[at] { (1, 0) } else { (u128::from(weights[at]) * rest / sum, u128::from(weights[at]) * rest % sum) }
    };
    let mut slots: Vec<usize> = (0..weights.len()).map(|at| quota(at).0 as usize).collect();
    let mut by_remainder: Vec<usize> = (0..weights.len()).filter(|&at| !small[at]).collect();
    by_remainder.sort_by_key(|&at| (std::cmp::Reverse(quota(at).1), at));
    let missing = n_slots - slots.iter().sum::<usize>();
    by_remainder.into_iter().take(missing).for_each(|at| slots[at] += 1);
    Ok(slots)
}

const _: () = assert!(value_mask(Servers::MAX_BITS) < u32::MAX as u64);
