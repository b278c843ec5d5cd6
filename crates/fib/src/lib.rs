//! Names, actions, RIB, topology, and the network that derives all switches' FIBs from one graph. No I/O, no clock.
//!
//! ```text
//! rib (names)  ┐
//!              ├─► network ─► messages ─► codec ─► … ─► replica (the switch's side)
//! topology     ┘      └─► durable rows (what the store commits before the messages go out)
//! ```
//! `text` reads what people and tools write, for everything that reads lists: `list` (names), `prefixes` and `rules` (over five-tuples);
//! `file` is a FIB without a network; `designs` defines the FIB designs.

pub mod action;
pub mod codec;
pub mod designs;
pub mod durable;
pub mod file;
pub mod hash_index;
pub mod list;
pub mod messages;
pub mod mistakes;
pub mod model;
pub mod name;
pub mod network;
pub mod prefixes;
pub mod replica;
pub mod rib;
pub mod rules;
pub mod search;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
pub mod text;
pub mod topology;
pub mod unicast;
mod value_allocation;
