//! The data plane: parse, lookup in batches, act, transmit; ports, counters, ARP and ND answers; the daemon around it.
//!
//! ```text
//!  fib::replica ──► plane (one writer) ──► workers ──► netio devices
//!    messages        FIB reader, exact tables,   parse → lookup_batch → act → tx
//!                    actions, neighbours
//! ```
//! | room | what |
//! |---|---|
//! | [`parse`] | from a frame to its name, for every kind of name |
//! | [`shim`] | the four bytes between switches |
//! | [`table`] | the lookups of a worker: a FIB, or the empty forwarder |
//! | [`exact`] | exact tables: valid names, local names |
//! | [`plane`] | what workers read and the control side changes |
//! | [`directory`] | which port a name is at, for programs that ask |
//! | [`flow`] | connection tracking, load balancer and source NAT: a stage of the loop |
//! | [`gateway`] | IP routing between names inside and prefixes outside |
//! | [`port`] | what is at the other end of a port, and how it does |
//! | [`worker`] | the loop |
//! | [`dataplane`] | ports and workers built, started, watched, stopped |
//! | [`counters`] | every reason to drop a frame |
//! | [`daemon`] | a switch as a process: ports from a file, a controller, a saved image |
//! | [`bench`] | the worker loop measured, with a table and without |

mod answer;

pub mod bench;
pub mod counters;
pub mod daemon;
pub mod dataplane;
pub mod directory;
pub mod exact;
pub mod flow;
pub mod gateway;
pub mod parse;
pub mod plane;
pub mod port;
pub mod shim;
pub mod table;
pub mod worker;
