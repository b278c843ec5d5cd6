//! OGW, the Othello for a gateway: full names, each found by one Othello lookup and compared exactly.
//!
//! | module | content |
//! |---|---|
//! | [`skeleton`] | [`GatewaySkeleton`]: the names, and which slot each has |
//! | [`view`] | what one switch's slots hold |
//! | `rows` | what a store keeps for a skeleton besides the names |
//! | [`update`] | the message: a name in its slot with the cells that lead there, or whole shards |
//! | [`query`] | [`GatewayQuery`], the query half, and the [`Reader`]s concurrent with its writer |
//!
//! A shard of the Othello maps a name to its slot. The slot is the 16-bit index of the name's edge in the graph, which
//! does not change until the shard is next solved. Slots hold name and value as in a
//! [`cuckoo::exact`](crate::cuckoo::exact) table.
//! ```text
//! shard: | cells of 16 bits: 2.10 to 2.40 per name | slots: names that fit until solved again, 1.00 to 1.14 per name |
//! ```
//! An insert writes the name's slot and recolours one component. A change of value or a removal writes only the slot.
//!
//! Cost: 2 cell reads and 1 slot read per lookup, in three waves of prefetches. A MAC with a 16-bit value takes 64 bits
//! per slot: 98 to 112 bits per name in all.
//! Alien names and removed names: 0 (drop), for certain.
//! Source: Shi, Qian, Wang, "Re-designing Compact-structure based Forwarding for Programmable Networks", sections III and
//! IV.C (gateways hold full keys; an OthelloSet holds indices to them). Differs: indices are local to a shard.
//! Readers: an update edits cells and slot in place, guarded by the counter of its shard. Shards that are solved again
//! go into a new directory, which shares all other shards and is published by one pointer.
//! Limits: values of 1 to 64 bits. Two names with equal digests cannot both be in a table. Shards are on the heap, on
//! small pages.

pub mod query;
mod rows;
pub mod skeleton;
pub mod update;
pub mod view;

pub use query::{GatewayQuery, Reader};
pub use skeleton::GatewaySkeleton;
pub use update::{NameUpdate, SlotShard, Update, WholeShards};
pub use view::GatewayView;

/// What a table is built with: the settings of an exact table, which an OGW can replace.
pub use crate::cuckoo::exact::Settings;

use super::{Sharded, Sides, Sizing};
use crate::base::part::PartId;
use crate::cuckoo::slot_prf;
use crate::hash::{Purpose, mix64};
use crate::traits::Single;

/// Control half of one table whose payloads are the values.
///
/// ```
/// use fibula_lookup::hash::{Family, SecretKey};
/// use fibula_lookup::othello::gateway::{Gateway, Settings};
/// use fibula_lookup::traits::{Control, Query};
///
/// let settings = Settings::new(6, 16, 1000, Family::MulAdd, &SecretKey::from_seed(1));
/// let mut table = Gateway::<1>::new(settings);
/// let mut switch = table.export();
/// let mut updates = Vec::new();
/// table.insert([7], 42, &mut updates)?;
/// for update in &updates {
///     switch.apply(update)?;
/// }
/// assert_eq!((switch.lookup([7]), switch.lookup([8])), (42, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Gateway<const W: usize> = Single<GatewaySkeleton<W, u64>>;

/// Bits of a slot index: those of an edge index in one shard.
const INDEX_BITS: u8 = 16;

/// Settings of the Othello that maps names to slots.
fn othello_settings(settings: &Settings) -> super::Settings {
    let seed = settings.key.derive(Purpose::Structure, 3);
    super::Settings { seed, ..super::Settings::new(INDEX_BITS, settings.max_names, &settings.key) }
}

/// Edges that a shard of this size takes before it is solved again: the slots before those of its stash.
fn n_edges(sides: Sides) -> usize {
    (u64::from(sides.cells()) * 1000 / Sharded::MIN_MILLICELLS) as usize
}

/// A slot's contribution to the digest of its shard.
fn slot_digest(seed: u64, id: PartId, slot: u32, words: &[u64]) -> u64 {
    slot_prf(mix64(seed ^ (u64::from(id.prefix) << 8 | u64::from(id.depth))), slot, words)
}
