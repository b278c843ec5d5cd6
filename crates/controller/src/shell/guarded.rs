//! A value behind a lock: how the pure parts of [`crate::core`] are shared by threads and tasks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the module. A panic elsewhere leaves the value usable, as it was: nothing here is changed halfway.
#[derive(Debug, Default)]
pub(crate) struct Guarded<T>(Mutex<T>);

impl<T> Guarded<T> {
    pub(crate) fn new(value: T) -> Guarded<T> {
        Guarded(Mutex::new(value))
    }

    /// The value, for as long as the guard lives: for a statement, never across an await.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
