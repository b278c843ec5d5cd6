//! Simulations of what cannot be measured on our machines: seeded, over the same structures that switches run.
//!
//! | module | what |
//! |---|---|
//! | [`arrivals`] | when packets arrive, and for which names |
//! | [`cache`] | which level holds each line that a lookup reads |
//! | [`queue`] | how long packets wait for one processor |
//! | [`delay`] | the three together: the distribution of processing delay |
//! | [`random`] | random numbers, from which arrivals are drawn |
//! | [`network`] | networks whose nodes are all forwarders |
//! | `failures` | networks in which links fail, one after another, before the first failure is over |
//! | `system` | controller, switches and operators under faults |
//! | `leaders` | several controllers on one etcd under faults |

pub mod arrivals;
pub mod cache;
pub mod delay;
#[cfg(feature = "system")]
pub mod failures;
#[cfg(feature = "system")]
pub mod leaders;
pub mod network;
pub mod queue;
pub mod random;
#[cfg(feature = "system")]
mod site;
#[cfg(feature = "system")]
pub mod system;
