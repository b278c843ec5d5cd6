//! What simulations and fuzzing drive: the [owner](Owner) of a network, and the [pusher](Pusher). The product is built without it.
//!
//! The caller provides threads, channels and connections, and decides when a turn is taken and when messages come and go. The time is
//! that of [`api::seam`].

pub use crate::core::hear::{Heard, hear};
pub use crate::core::owner::{Answer, Bounds, Followed, Input, Kind, Owner, Sight, Taken, Task, Told, Turn, watch};
pub use crate::core::pace::Rates;
pub use crate::core::push::{Outgoing, Pushed, Pusher};
pub use crate::core::session::{Line, Next, Session, decode};
pub use crate::core::single::Stream;
pub use crate::core::trunks::Trunks;
pub use crate::core::verify::{Verdict, Verifying};
pub use crate::shell::follow::state_at;
pub use crate::shell::restore::restore;
pub use crate::shell::writer::view_rows;
pub use crate::wire::replication::{followed, told};

use crate::core::change::{Change, Changed, Outcome, Refusal, State};
use crate::hosts::Hosts;
use crate::store::{RowChange, StoreError};
use fib::network::Effects;
use std::time::Duration;

/// Parked switches are updated after this long without a bulk batch.
pub const QUIET: Duration = crate::core::owner::QUIET;

/// What a change did.
#[derive(Debug)]
pub struct Done {
    /// The number of objects.
    pub changed: Changed,
    /// The rows to commit first.
    pub rows: Vec<RowChange>,
    /// The messages to send then, with their rows taken out.
    pub effects: Vec<Effects>,
}

/// Carries out a change as the owner does, without committing it.
/// # Errors
/// [`Refusal`]; nothing changed.
pub fn carry_out(state: &mut State, change: Change) -> Result<Done, Refusal> {
    let Outcome { changed, mut rows, mut effects } = state.carry_out(change)?;
    effects.iter_mut().for_each(|effects| rows.append(&mut effects.durable));
    Ok(Done { changed, rows, effects })
}

/// The rows that make a state.
pub fn rows(state: &State) -> impl Iterator<Item = RowChange> {
    let State { network, hosts } = state;
    let host = |(name, end)| Hosts::default().insert(name, end);
    network.rows().chain(hosts.iter().map(host)).chain(hosts.learnt.rows())
}

/// The error of a disk without room.
pub fn disk_full(path: &str) -> StoreError {
    let error = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL);
    StoreError::Failed { path: path.into(), error: rusqlite::Error::SqliteFailure(error, None) }
}
