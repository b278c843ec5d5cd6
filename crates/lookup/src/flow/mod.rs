//! Cuckoo++ flow tables: exact keys and values that come and go with the traffic, one cache line for most misses, two
//! for most hits, timers in the metadata.

mod batch;
mod bucket;
mod clock;
mod error;
mod policy;
mod report;
pub mod simd;
mod slab;
mod store;
mod table;
mod tend;

pub use clock::{MAX_LIFETIME, Step};
pub use error::{CapacityError, InsertError};
pub use policy::{CuckooPlusPlus, Horton, Optimistic, Pessimistic, Policy, Second, Timed};
pub use report::{Audit, AuditError, Counters, MemoryReport, Progress};
pub use table::{FlowTable, Settings, Slot};
