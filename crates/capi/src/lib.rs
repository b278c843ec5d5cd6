//! libfibula: tables of names that C programs change and look up. `c/include/libfibula.h` is made from this crate, and
//! docs/how-to/use-libfibula.md says how to use it.
//!
//! ```text
//!  fibula_table_set ─► guard ─► Table: a lock ─► store: Single<S>, one of lookup's control halves
//!                                                  │ updates
//!                                                  ├─► its query half ◄─ fibula_reader_lookup_burst, any number of threads
//!                                                  └─► record ─► fibula_table_updates ─► fibula_table_apply elsewhere
//! ```
//! `unsafe` is what the boundary needs: pointers of a caller become references and slices in `table`, `reader`,
//! `options` and `pointers`, and nowhere else.
//!
//! Cost: what the structure costs, and a lock for each call of a table, or an atomic exchange for each of a reader.
//! Limits: names are known by their digests. Two names have one digest with a probability of n^2 / 2^65; the later one
//! then takes the place of the former. Values have at most 32 bits, and 16 where other programs read the table.

pub mod actions;
pub mod error;
mod guard;
mod options;
mod pointers;
pub mod reader;
mod store;
pub mod table;
