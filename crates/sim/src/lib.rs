//! Simulations of what no machine here can be measured at: seeded, over the same structures that switches run.
//!
//! | module | what |
//! |---|---|
//! | [`arrivals`] | when packets come, and for which names |
//! | [`cache`] | which of the lines that a lookup touches are where |
//! | [`queue`] | how long packets wait for one processor |
//! | [`delay`] | the three together: the distribution of processing delay |
//! | [`random`] | what arrivals are drawn from |
//! | [`network`] | every node of a topology a forwarder |

pub mod arrivals;
pub mod cache;
pub mod delay;
pub mod network;
pub mod queue;
pub mod random;
