//! OGW, the Othello at a gateway: full names, each found by one Othello lookup and compared exactly.
//!
//! | module | what |
//! |---|---|
//! | [`skeleton`] | [`GatewaySkeleton`]: the names, and which slot each has |
//! | [`view`] | what one switch's slots hold |
//! | `rows` | what a store keeps of a skeleton besides the names |
//! | [`update`] | the message: a name in its slot with the cells that lead there, or whole shards |
//! | [`query`] | [`GatewayQuery`], the half of words; [`Reader`]s beside its writer |
//!
//! A shard of the Othello maps a name to its slot, an index of 16 bits that the name keeps until the shard is solved
//! anew: that of its edge in the graph. Slots hold name and value as in a [`cuckoo::exact`](crate::cuckoo::exact) table.
//! ```text
//! shard: | cells of 16 bits: 2.10 to 2.40 a name | slots: as many as names it takes before it is solved anew, 1.00 to 1.14 a name |
//! ```
//! A new name writes its slot and recolours one component; another value, or a removal, writes the slot alone.
//!
//! Cost: 2 cell reads and 1 slot read a lookup, in three waves of prefetches. A MAC with a 16-bit value takes 64 bits a
//! slot: 98 to 112 bits a name in all.
//! Alien names, and removed ones: 0 (drop), for certain.
//! Source: Shi, Qian, Wang, "Re-designing Compact-structure based Forwarding for Programmable Networks", sections III and
//! IV.C (gateways hold full keys; an OthelloSet holds indices to them). Differs: indices are local to a shard.
//! Readers: an update edits cells and slot in place under the counter of its shard; shards that are solved anew make a
//! new directory, published by one pointer, which shares all other shards.
//! Limits: values of 1 to 64 bits; two names with equal digests cannot both be in; shards stand on the heap, on small
//! pages.

pub mod query;
mod rows;
pub mod skeleton;
pub mod update;
pub mod view;

pub use query::{GatewayQuery, Reader};
pub use skeleton::GatewaySkeleton;
pub use update::{NameUpdate, SlotShard, Update, WholeShards};
pub use view::GatewayView;

/// What a table is built with: the settings of an exact table, which an OGW can stand in for.
pub use crate::cuckoo::exact::Settings;

use super::{Sharded, Sides, Sizing};
use crate::base::part::PartId;
use crate::cuckoo::slot_prf;
use crate::hash::{Purpose, mix64};
use crate::traits::Single;

/// Control half of one table whose names carry their values themselves.
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

/// Bits of an index to a slot: what edges of one shard have.
const INDEX_BITS: u8 = 16;

/// Settings of the Othello that maps names to slots.
fn othello_settings(settings: &Settings) -> super::Settings {
    let seed = settings.key.derive(Purpose::Structure, 3);
    super::Settings { seed, ..super::Settings::new(INDEX_BITS, settings.max_names, &settings.key) }
}

/// Edges that a shard of this size takes before it is solved anew: the slots before those of its stash.
fn n_edges(sides: Sides) -> usize {
    (u64::from(sides.cells()) * 1000 / Sharded::MIN_MILLICELLS) as usize
}

/// A slot's share of its shard's digest.
fn slot_digest(seed: u64, id: PartId, slot: u32, words: &[u64]) -> u64 {
    slot_prf(mix64(seed ^ (u64::from(id.prefix) << 8 | u64::from(id.depth))), slot, words)
}
