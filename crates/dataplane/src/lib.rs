//! The data plane: parse, lookup in batches, act, transmit; ports, counters, ARP and ND answers.
//!
//! Everything here runs without a runtime, services and a configuration file: the daemon around it is the crate `switch`.
//!
//! ```text
//!  fib::replica ──► plane (one writer) ──► workers ──► netio devices
//!    messages        FIB reader, exact tables,   parse → lookup_batch → act → tx
//!                    actions, neighbours
//! ```
//! | module | contents |
//! |---|---|
//! | [`parse`] | finds the name in a frame, for every kind of name |
//! | [`shim`] | the four bytes between switches |
//! | [`table`] | the lookups of a worker: a FIB, or the empty forwarder |
//! | [`exact`] | exact tables: valid names, local names |
//! | [`acl`] | which frames may enter by a port, by rules over five fields |
//! | [`source`] | whether a frame from a host states its true sender |
//! | [`plane`] | what workers read and the control side changes |
//! | [`neighbours`] | MAC addresses of IP addresses |
//! | [`directory`] | which port a name is at, for programs that ask |
//! | [`flow`] | connection tracking, load balancer and source NAT: a stage of the loop |
//! | [`gateway`] | IP routing between names inside and prefixes outside |
//! | [`port`] | the role of a port, and whether it works |
//! | [`dhcp`] | DHCP broadcasts, each directed to its receiver |
//! | [`groups`] | broadcasts and multicasts: a copy for each other name of the sender's tenant |
//! | [`subscriptions`] | which names want which multicast groups (IGMP, MLD), and the queries for that |
//! | [`learn`] | host ports that learn: sources that are not names there, for the controller |
//! | [`links`] | monitored trunks: the neighbour at the other end, and whether frames get there |
//! | [`alien`] | what to do with frames to names that the network does not know |
//! | [`tap`] | copies of frames with the fate of each, for people who look |
//! | [`maglev`] | servers by digest, in proportion to weights |
//! | [`bundle`] | several devices that form one port, with LACP |
//! | [`worker`] | the loop |
//! | [`assembly`] | builds ports and workers, starts, watches and stops them |
//! | [`bell`] | wakes the task that keeps trunks, bundles or learnt names |
//! | [`counters`] | the counters of a worker, with every reason to drop a frame |
//! | [`losses`] | frames that devices and interfaces discard where no worker sees them |
//! | [`mod@bench`] | measures the worker loop, with a FIB and without |

mod answer;
mod asked;
pub mod bits;

pub mod acl;
pub mod alien;
pub mod assembly;
pub mod bell;
pub mod bench;
mod budget;
pub mod bundle;
pub mod counters;
pub mod dhcp;
pub mod directory;
pub mod exact;
pub mod flow;
pub mod gateway;
pub mod groups;
pub mod kernel;
mod known;
pub mod learn;
pub mod links;
pub mod losses;
pub mod mac;
pub mod maglev;
pub mod neighbours;
pub mod parse;
pub mod plane;
pub mod port;
mod retry;
pub mod share;
pub mod shim;
pub mod source;
mod spread;
pub mod subscriptions;
pub mod table;
pub mod tap;
pub mod worker;
