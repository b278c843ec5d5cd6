//! Why an operation on a flow table was refused.

use super::Slot;

/// Why a flow was not inserted. The table is unchanged, but for an upsert whose flow was there.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum InsertError {
    /// The flow is there already.
    #[error("the flow is there already: use upsert to replace its value")]
    Exists {
        /// Where.
        slot: Slot,
    },
    /// No chain of moves within bounds frees a slot.
    #[error("no free slot for a flow among {n_entries} of {n_slots} slots: let the table grow, or shorten lifetimes")]
    Full {
        /// Slots in use.
        n_entries: usize,
        /// Slots.
        n_slots: usize,
    },
    /// The buckets of the flow are full of flows that have no others to go to: more flows share a few buckets and tags
    /// than these hold, which a keyed hash makes impossible in practice.
    #[error("more flows share the buckets and the tag of this one than fit: choose another secret key")]
    Crowded,
    /// The lifetime is nothing, or longer than timers of 16 bits can tell.
    #[error("a lifetime of {got} units is not 1 to {max}: choose a longer unit of time")]
    Lifetime {
        /// What was asked, in units.
        got: u16,
        /// The longest, in units.
        max: u16,
    },
}

/// Why there is no table, or none of that size.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum CapacityError {
    /// The operating system has no memory.
    #[error("no memory for {n_slots} slots: {source}")]
    Memory {
        /// Slots of the table, or of the next one.
        n_slots: usize,
        /// What it said.
        source: std::io::Error,
    },
    /// More slots than the settings, or 32-bit slot numbers, allow.
    #[error("{wanted} slots are more than the limit of {max}")]
    Limit {
        /// Slots asked for.
        wanted: usize,
        /// The limit.
        max: usize,
    },
    /// The table is growing already.
    #[error("the table is growing already: migrate until it has grown")]
    Growing,
}
