//! A switch as a process, around the data plane of the crate `dataplane`.
//!
//! ```text
//!  controller ──► daemon::agent ──► fib::replica ──► dataplane::plane ──► workers
//!                 status, configuration, trunks, bundles, learnt names, subscriptions, captures
//! ```
//! | module | what |
//! |---|---|
//! | [`daemon`] | configuration file, controller, saved image, and what keeps the protocols between neighbours |
//! | `kit` | a switch whose ports end in the caller's hands, for simulations |

pub mod daemon;
#[cfg(feature = "kit")]
pub mod kit;
