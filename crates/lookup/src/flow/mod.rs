//! Cuckoo++ flow tables: exact keys and values for per-flow traffic state; one cache line for most misses, two for most
//! hits, timers in the metadata.
//!
//! | module | what |
//! |---|---|
//! | `table` | [`FlowTable`], and [`InlineTable`] for 8 bytes: lookup, insert, upsert, refresh, remove |
//! | `batch` | lookups, inserts and removals in batches; bursts of lookups in flight |
//! | `phases` | the phases of lookups: prefetch, then compare, without a branch on what was found |
//! | `maintenance` | what the caller drives between bursts: the clock, the scan for ended entries, growth |
//! | `policy` | the five lookup [policies](Policy): two constants each |
//! | `bucket`, [`simd`] | the line of metadata, the books of entries that live elsewhere; vector compares, and their scalar twin |
//! | `split`, `inline` | the two [layouts](Layout): entries in a separate array, or in the lines |
//! | `store` | one generation of buckets and entries: find, insert by a shortest chain of moves, remove |
//! | `clock` | why no 16-bit timer revives |
//! | `report` | counters, memory, a recount of all books |
//!
//! Cost: 8 bytes of metadata per slot, plus the entry padded to a power of two up to a line: 40 bytes per slot for
//! 16-byte keys and values. After many turnovers at load 0.95 one miss in 300 reads a second line. One table per core:
//! writers take `&mut self`. Flows are steered to cores by bits 16 to 31 of their digests.
//! Source: Le Scouarnec, "Cuckoo++ Hash Tables: High-Performance Hash Tables for Networking Applications". Differs,
//! with figures, in `docs/derivations/flow-tables.md`: the other bucket by XOR, a counted filter, unsigned timers, and
//! a clock that is held so that no entry revives.
//! Limits: 2^30 slots, a power of two; load up to 0.95; lifetimes up to [`MAX_LIFETIME`] units.
//! ```
//! use fibula_lookup::flow::{FlowTable, Settings};
//!
//! let mut flows: FlowTable<2, 1> = FlowTable::new(&Settings::new(1 << 10))?;
//! let key = [0x0A00_0001_0A00_0002, 6 << 32 | 443];
//! let digest = flows.digest(&key);
//! flows.insert(&key, digest, &[0], 30, |_key, _value| {})?;
//! let slot = flows.lookup(&key, digest).expect("it was inserted");
//! flows.value_mut(slot)[0] += 1;
//! flows.advance(30);
//! assert_eq!(flows.lookup(&key, digest), None);
//! flows.scan(usize::MAX, |key, value| println!("{key:x?} ended after {} packets", value[0]));
//! assert!(flows.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batch;
mod bucket;
mod clock;
mod error;
mod inline;
mod layout;
mod maintenance;
mod phases;
mod policy;
mod report;
pub mod simd;
mod split;
mod store;
mod table;
#[cfg(test)]
mod tests;

pub use batch::InFlight;
pub use clock::{MAX_LIFETIME, Step};
pub use error::{CapacityError, InsertError};
pub use inline::Inline;
pub use layout::Layout;
pub use policy::{CuckooPlusPlus, Horton, Optimistic, Pessimistic, Policy, Published, Second, Timed};
pub use report::{Audit, AuditError, Counters, MemoryReport, Progress};
pub use split::Split;
pub use table::{FlowTable, InlineTable, Settings, Slot, Table};
