//! The controller: a thin shell around [`fib::network`], with a durable store and northbound and southbound services.
//!
//! ```text
//! operators ─ north ─┐           ┌─ store (commit) ─ then ─┐
//!                    ├─ writer ──┤                         ├─ push ─ session ─ south ─ switches
//! switches ── south ─┘ (1 thread)└─ fib::network (effects) ┘   (phases)  (bounded)
//!                        ↑
//!          follow: what another controller commits, while that one leads
//! ```
//! Promises: a change is answered only after it is committed. A switch is sent only what is committed. A restarted
//! controller sends a switch only what it lacks. A slow or absent switch delays nothing by more than one phase timeout.
//! Limits: one controller at a time commits to a store (the lock of its file, or a lease in etcd); the RIB is in memory.
//!
//! | module | contents | may use |
//! |---|---|---|
//! | [`hosts`] | names of host ports, and which names switches found, with their rows | [`fib`] |
//! | [`store`] | durable rows: SQLite, etcd | `hosts`, for what a damaged store lost |
//! | `core` | the state, and every decision about it: no I/O, no runtime, no lock, no clock | `hosts`, the messages of `api::v1` |
//! | `wire` | changes, refusals and the replication log as messages, both ways | `hosts`, `core`, `store` |
//! | `shell` | threads, services, sessions: everything that waits, locks or listens | all of the above |
//! | `kit` | what simulations drive: the core, with one thread | all of the above |
//!
//! Imports point one way along this list, and no two modules import each other; the test `imports` of the command checks both.

mod core;
pub mod hosts;
#[cfg(feature = "kit")]
pub mod kit;
mod shell;
pub mod store;
mod wire;

pub use crate::core::{change, groups, learning};
pub use crate::shell::config;
pub use crate::shell::controller::{Controller, Pulse};
pub use crate::shell::events::KINDS as EVENT_KINDS;
pub use crate::shell::restore::StartError;
