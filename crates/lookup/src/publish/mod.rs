//! Publication: one writer changes a structure while readers on other threads look names up in it, without a lock.
//!
//! Query structures are made from four primitives:
//!
//! | primitive | cost to a reader | purpose |
//! |---|---|---|
//! | [`Entry`] | one load (Acquire; plain on x86) | one 64-bit word that says where everything else is, and what it is |
//! | [`Domain`] | one load per burst, one store if the writer did anything since | knowing when old memory is unread |
//! | [`Sequence`] | two loads and a fence (free on x86), and a retry after a concurrent write | changing memory in place |
//! | [`Journal`] | the same, and a retry of the places written concurrently | changing one of many places in place |
//!
//! **Versions**, for a part that is rebuilt. The writer writes the new part elsewhere, [`Entry::publish`]es it, and then
//! [`Domain::advance`]s. Memory that was published before is reused once that epoch has [`Domain::passed`]. A reader
//! [`ReaderSlot::pin`]s once per burst, loads the entry **once** per lookup, and reads only what that value refers to.
//! It never waits. A reader must go [`ReaderSlot::offline`] before it sleeps; otherwise the writer runs out of memory
//! to reuse.
//!
//! **From outside**, for programs that map a table and that the writer does not know: `outside`.
//!
//! A table that is replaced as a whole (another size, another build) is one pointer and a domain: `rcu`.
//!
//! **In place**, for a change of a few words. A cell on which no live name's answer depends may be stored at any time, by
//! one relaxed store. Any other change in place needs a [`Sequence`] or a [`Journal`]. `seq_lock` adds the lock for
//! readers that had to retry too often.
//!
//! Not used: the bit vectors D1 and D2 of the Othello paper. They give wrong answers, as
//! `tests/structures/publish_schedules.rs` shows.
//!
//! Source: quiescent-state-based reclamation as in Hart, McKenney, Brown, Walpole, "Performance of memory reclamation
//! for lockless synchronization"; the counter is Boehm's, "Can seqlocks get along with programming language memory
//! models?". Checked by loom: `tests/loom_publish.rs` runs the models, and breaks every ordering and every step on
//! which the proof depends, one at a time, to see the models fail.

mod domain;
mod entry;
mod journal;
#[cfg(loom)]
pub mod mutants;
pub mod outside;
pub(crate) mod rcu;
pub mod ring;
pub(crate) mod seq_lock;
mod sequence;
mod sync;

pub use domain::{Domain, Epoch, Pin, ReaderSlot};
pub use entry::Entry;
pub use journal::{ANYWHERE, Journal, Since, Written};
pub use sequence::{Sequence, Stamp, WriteGuard};
