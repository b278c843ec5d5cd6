//! The controller's decisions without its services, for simulations and fuzzing. The product is built without.

use crate::change::{Change, Changed, Refusal, State};
use crate::store::RowChange;
use fib::network::Effects;

/// What a change did.
#[derive(Debug)]
pub struct Done {
    /// How many objects.
    pub changed: Changed,
    /// The rows to commit first.
    pub rows: Vec<RowChange>,
    /// The messages to send then, with their rows taken out.
    pub effects: Vec<Effects>,
}

/// Carries out a change as the writer does, without committing it.
/// # Errors
/// [`Refusal`]; nothing changed.
pub fn carry_out(state: &mut State, change: Change) -> Result<Done, Refusal> {
    let crate::change::Outcome { changed, mut rows, mut effects } = state.carry_out(change)?;
    effects.iter_mut().for_each(|effects| rows.append(&mut effects.durable));
    Ok(Done { changed, rows, effects })
}
