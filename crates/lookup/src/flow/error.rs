//! Why an operation on a flow table was refused.

use super::Slot;

/// Why a flow was not inserted. The table is unchanged, except by an upsert whose flow was there.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum InsertError {
    /// The flow exists already.
    #[error("the flow exists already: use upsert to replace its value")]
    Exists {
        /// The flow's slot.
        slot: Slot,
    },
    /// No chain of moves within bounds frees a slot.
    #[error("no free slot for a flow among {n_entries} of {n_slots} slots: let the table grow, or shorten lifetimes")]
    Full {
        /// Slots in use.
        n_entries: usize,
        /// Slots of the table.
        n_slots: usize,
    },
    /// The buckets of the flow are full of flows that cannot move to others: more flows share a few buckets and tags
    /// than these hold. A keyed hash makes this impossible in practice.
    #[error("more flows share the buckets and the tag of this one than fit: choose another secret key")]
    Crowded,
    /// The lifetime is zero, or longer than 16-bit timers can express.
    #[error("a lifetime of {got} units is not 1 to {max}: choose a longer unit of time")]
    Lifetime {
        /// The lifetime asked for, in units.
        got: u16,
        /// The longest, in units.
        max: u16,
    },
}

/// Why a table cannot be made, or not of that size.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum CapacityError {
    /// The operating system has no memory.
    #[error("no memory for {n_slots} slots: {source}")]
    Memory {
        /// Slots of the table, or of the next one.
        n_slots: usize,
        /// The operating system's error.
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
    /// The table is already growing.
    #[error("the table is growing already: migrate until it has grown")]
    Growing,
}
