//! The half of a design that a controller holds: the names of several switches, and what each switch is told.
//!
//! A name carries its *place*, a small number. What a place means is a *value*, and every *view* has its own values. A
//! view is one switch, or all switches that share their values. The skeleton of names is shared by all views.

use super::keys::Key;
use super::table::Table;
use lookup::traits::{Crowd, HeldPart, InsertError, Row};

/// What to send to a view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Emitted {
    /// An update.
    Update(Vec<u8>),
    /// The whole table.
    Whole(Vec<u8>),
}

/// The parts of a table that a switch lacks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Lacking {
    /// Nothing.
    Nothing,
    /// These parts, each replacing whatever the switch has of it.
    Parts(Vec<Vec<u8>>),
    /// Everything.
    Whole(Vec<u8>),
}

/// Updates, each with the index of the view that it is for.
pub(crate) type ViewUpdates = Vec<(usize, Emitted)>;

/// The names of several switches, and their views.
pub(crate) trait FibControl: Send {
    /// Puts names at places, then removes names, and appends the updates of every view.
    ///
    /// After an error, call [`FibControl::undo`]; what was appended is then void.
    fn change(&mut self, put: &[(Key<'_>, u32)], remove: &[Key<'_>], out: &mut ViewUpdates) -> Result<(), InsertError>;

    /// The parts that would be crowded if these new names were put.
    fn crowds(&self, keys: &[Key<'_>]) -> Vec<Crowd>;

    /// Reverts a failed change, without updates for the views.
    fn undo(&mut self, put: &[(Key<'_>, u32)], remove: &[Key<'_>]);

    /// Appends the updates that the views lack after changes were undone.
    fn catch_up(&mut self, out: &mut ViewUpdates);

    /// Goes on making a view that [`FibControl::add_view`] with these values then adds at once. Takes as long as it takes to
    /// read `n_names` names, and says how many are left of them. Whether nothing is left to be made before.
    /// # Errors
    /// As [`FibControl::add_view`].
    fn prepare_view(&mut self, values: &[u16], n_names: &mut usize) -> Result<bool, InsertError>;

    /// Forgets what [`FibControl::prepare_view`] made.
    fn forget_prepared(&mut self);

    /// Adds a view with these values, by place. `rows` are those of the last view of its switch. Parts that the switch
    /// reports correctly count as sent.
    /// # Errors
    /// [`InsertError`]: the names have no arrangement with these values.
    fn add_view(&mut self, values: Vec<u16>, rows: &[Row], report: &[HeldPart]) -> Result<(), InsertError>;

    /// The rows of a view that changed since the last call.
    fn take_view_rows(&mut self, view: usize) -> Vec<Row>;

    /// All rows of a view.
    fn view_rows(&self, view: usize) -> Vec<Row>;

    /// Removes a view; later views move up.
    fn remove_view(&mut self, view: usize);

    /// Values of a view, by place.
    fn values(&self, view: usize) -> &[u16];

    /// Gives a view the value of the next new place.
    fn learn_place(&mut self, view: usize, value: u16);

    /// Replaces the values of views. `moved`: the values of names may have changed, in these views or in some that are not
    /// here. Then every part gets another version, whichever views there are: another controller has other views. Else
    /// the values of places without names changed alone, and nothing is sent.
    fn revalue(&mut self, moved: bool, changed: Vec<(usize, Vec<u16>)>, out: &mut ViewUpdates);

    /// The whole table of a view.
    /// # Errors
    /// As [`FibControl::add_view`].
    fn image(&mut self, view: usize) -> Result<Vec<u8>, InsertError>;

    /// Versions and digests of what a view was sent, in the order of name digests.
    fn held(&self, view: usize) -> Vec<HeldPart>;

    /// The messages that a switch with this report lacks; with an empty report, everything.
    /// # Errors
    /// As [`FibControl::add_view`].
    fn lacking(&mut self, view: usize, report: &[HeldPart]) -> Result<Lacking, InsertError>;

    /// Tables with these values, independent of the views: for offline FIBs and benchmarks.
    /// # Errors
    /// As [`FibControl::add_view`].
    fn export_many(&self, values: &[Vec<u16>]) -> Result<Vec<Box<dyn Table>>, InsertError>;

    /// The rows that changed since the last call.
    fn take_rows(&mut self) -> Vec<Row>;

    /// All rows.
    fn all_rows(&self) -> Box<dyn Iterator<Item = Row> + '_>;

    /// Whether a change of `n` names sends nearly the whole table.
    fn is_bulk(&self, n: usize) -> bool;

    /// Parts that changes of names made anew, split or merged since this was made. Parts that are sent again because their
    /// values changed do not count.
    fn n_rebuilt(&self) -> u64;

    /// Bytes of heap memory.
    fn heap_bytes(&self) -> usize;

    /// Whether there is something to catch up with.
    fn is_behind(&self) -> bool;

    /// Whether a name was removed and must still be dropped.
    #[cfg(any(test, feature = "testkit"))]
    fn must_drop(&self, key: Key<'_>) -> bool;
}
