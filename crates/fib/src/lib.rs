//! Names, actions, RIB, topology, and the network that derives all switches' FIBs from one graph. No I/O, no clock.
//!
//! ```text
//! rib (names)  ┐
//!              ├─► network ─► messages ─► codec ─► … ─► replica (the switch's side)
//! topology     ┘      └─► durable rows (what the store commits before the messages go out)
//! ```
//! `list` reads names from files; `file` is a FIB without a network; `designs` defines the FIB designs;
//! `rules` are lists and tables of rules over five-tuples.

pub mod action;
pub mod codec;
pub mod designs;
pub mod durable;
pub mod file;
pub mod hash_index;
mod indices;
pub mod list;
pub mod messages;
pub mod mistakes;
pub mod model;
pub mod name;
pub mod network;
pub mod replica;
pub mod rib;
pub mod rules;
pub mod search;
pub mod topology;
pub mod unicast;
