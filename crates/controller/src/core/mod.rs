//! The state of the network and every decision about it, without I/O: no runtime, no RPC, no lock and no clock.
//!
//! Inputs, including the time, are arguments of methods, and what follows is returned: rows to commit, messages to send, words to say. The
//! messages of `api::v1` are read and made here as the plain data that they are. Who calls when, what is locked meanwhile, and what
//! is sent where, [`crate::shell`] decides. `imports`, a test of the command, holds all of this.
//!
//! | module | decides |
//! |---|---|
//! | [`change`] | what a change does to network and hosts, whole or not at all |
//! | [`happened`], [`summary`] | what a change is called, in events and in the audit trail |
//! | [`learning`] | what to do with names that switches see |
//! | [`trunks`] | which links are cut, and which cables become links |
//! | [`groups`], [`subscriptions`] | who receives broadcasts, and which multicasts each name wants |
//! | [`pending`], [`duplicates`] | switches that wait to be accepted, and switches that claim the same name |
//! | [`presence`], [`elsewhere`] | which switches are connected here, to another controller, or not at all |
//! | [`owner`] | the order of everything: what changes, is committed, answered and sent, turn by turn |
//! | [`session`], [`queue`] | what waits for one switch, and what it has acknowledged; [`hear`]: what follows from its messages |
//! | [`push`] | which messages wait for the acknowledgement of which others |
//! | [`counters`], [`history`] | what switches report about themselves, and the curves of an hour |
//! | [`trace`], [`verify`] | the path of a frame, and whether a switch has what it should |
//! | [`pace`] | how often peers may cause work that delays everyone else |

pub mod change;
pub(crate) mod counters;
pub(crate) mod duplicates;
pub(crate) mod elsewhere;
pub mod groups;
pub(crate) mod happened;
pub(crate) mod hear;
pub(crate) mod history;
pub mod learning;
pub(crate) mod owner;
pub(crate) mod pace;
pub(crate) mod pending;
pub(crate) mod presence;
pub(crate) mod push;
pub(crate) mod queue;
pub(crate) mod session;
#[cfg(any(test, feature = "kit"))]
pub(crate) mod single;
pub(crate) mod subscriptions;
pub(crate) mod summary;
pub(crate) mod trace;
pub(crate) mod trunks;
pub(crate) mod verify;

use serde::Deserialize;

/// What to do with switches, links and names that are found but not declared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Auto {
    /// They are ignored.
    Off,
    /// They are listed, until an operator accepts them.
    #[default]
    Confirm,
    /// They are accepted at once.
    On,
}
