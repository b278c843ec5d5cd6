//! The half of a design that a controller holds: the names of several switches, arranged, and what each switch is told.
//!
//! A name carries its *place*, a small number; what a place means is a *value* that every *view* has its own of. A
//! view is one switch, or all switches that share their values. Where the arrangement does not depend on values, all
//! views share it: the papers' skeleton.

use super::keys::Key;
use super::table::Table;
use crate::messages::HeldShard;
use lookup::traits::InsertError;

/// What a view is to be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Emitted {
    /// An update.
    Update(Vec<u8>),
    /// Everything anew.
    Whole(Vec<u8>),
}

/// What of a table a switch lacks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Lacking {
    /// Nothing.
    Nothing,
    /// These parts, each to be taken over whatever the switch has of it.
    Parts(Vec<Vec<u8>>),
    /// Everything.
    Whole(Vec<u8>),
}

/// A row that the store keeps of an arrangement, so that a restarted controller has the same one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PartRow {
    /// Its key among the rows of the table.
    pub(crate) key: Vec<u8>,
    /// Its value; `None` deletes it.
    pub(crate) value: Option<Vec<u8>>,
}

/// Updates, each with the index of the view that it is for.
pub(crate) type Outbox = Vec<(usize, Emitted)>;

/// The names of several switches, arranged.
pub(crate) trait Skeleton: Send {
    /// Puts names at places, then removes names, and appends what brings every view along.
    ///
    /// After an error it is to be told the way back ([`Skeleton::undo`]); what was appended is void then.
    fn change(&mut self, put: &[(Key<'_>, u32)], remove: &[Key<'_>], out: &mut Outbox) -> Result<(), InsertError>;

    /// Takes back what a change that failed has done, of which the views were not told.
    fn undo(&mut self, put: &[(Key<'_>, u32)], remove: &[Key<'_>]);

    /// Tells the views what they were not told of changes that were undone.
    fn catch_up(&mut self, out: &mut Outbox);

    /// Adds a view with these values, by place; of what its switch says it has, what is right is taken as sent.
    /// # Errors
    /// [`InsertError`]: the names have no arrangement with these values.
    fn add_view(&mut self, values: Vec<u16>, report: &[HeldShard]) -> Result<(), InsertError>;

    /// Removes a view; those behind it move up.
    fn remove_view(&mut self, view: usize);

    /// Values of a view, by place.
    fn values(&self, view: usize) -> &[u16];

    /// Gives a view the value of the next new place.
    fn learn_place(&mut self, view: usize, value: u16);

    /// Gives views other values.
    fn revalue(&mut self, changed: Vec<(usize, Vec<u16>)>, out: &mut Outbox);

    /// The whole table of a view.
    fn image(&mut self, view: usize) -> Vec<u8>;

    /// Versions and digests of what a view was sent, in order of the digests of names.
    fn held(&self, view: usize) -> Vec<HeldShard>;

    /// What a switch lacks that reports this of its table; an empty report lacks everything.
    fn lacking(&mut self, view: usize, report: &[HeldShard]) -> Lacking;

    /// Tables with these values, beside all views: what offline FIBs and benchmarks take.
    /// # Errors
    /// As [`Skeleton::add_view`].
    fn export_many(&self, values: &[Vec<u16>]) -> Result<Vec<Box<dyn Table>>, InsertError>;

    /// The rows that changed since the last call.
    fn take_rows(&mut self) -> Vec<PartRow>;

    /// All rows.
    fn all_rows(&self) -> Box<dyn Iterator<Item = PartRow> + '_>;

    /// Whether so many names at once are sent as nearly the whole table.
    fn is_bulk(&self, n: usize) -> bool;

    /// Bytes of heap memory.
    fn heap_bytes(&self) -> usize;

    /// Whether there is something to catch up with.
    #[cfg(test)]
    fn is_behind(&self) -> bool;

    /// Whether a name was removed and must still be dropped.
    #[cfg(test)]
    fn must_drop(&self, key: Key<'_>) -> bool;
}
