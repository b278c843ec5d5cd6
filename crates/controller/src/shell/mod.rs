//! Everything that waits, locks, listens or runs concurrently: threads and services round [`crate::core`].
//!
//! | module | does |
//! |---|---|
//! | [`controller`] | starts and stops all of this |
//! | [`writer`] | the one thread that owns state and store; [`job`] has its requests, [`reads`] those that only read |
//! | [`push`], [`session`] | messages to switches, phase by phase; what waits for one switch |
//! | [`north`], [`south`], [`relay`], [`web`], [`status`] | requests of operators, switches, browsers and collectors |
//! | [`follow`], [`lead`], [`restore`] | the controller that leads, and the contents of a store at the start |
//! | [`shared`] | what the others share |

pub(crate) mod backup;
pub mod config;
pub(crate) mod controller;
pub(crate) mod events;
pub(crate) mod follow;
pub(crate) mod groups;
pub(crate) mod guarded;
pub(crate) mod job;
pub(crate) mod lead;
pub(crate) mod north;
pub(crate) mod push;
pub(crate) mod reads;
pub(crate) mod relay;
pub(crate) mod report;
pub(crate) mod restore;
pub(crate) mod session;
pub(crate) mod shared;
pub(crate) mod south;
pub(crate) mod status;
pub(crate) mod telemetry;
pub(crate) mod trail;
pub(crate) mod turns;
pub(crate) mod web;
pub(crate) mod writer;
