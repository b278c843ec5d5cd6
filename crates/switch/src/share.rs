//! The table of a running switch in a file, for other programs to map: `share = "PATH"`.
//!
//! The workers look names up in the same memory; there is one copy. A table that the switch makes anew is another file,
//! which takes the place of the one before when it is complete. The file stays when the switch ends: readers have its
//! last table until another switch shows one there. The bytes: `docs/formats/table-in-memory.md`.

use fib::action::Action;
use fib::designs::{Spec, Table};
use lookup::base::shown;
use lookup::traits::ShareError;
use std::fs;
use std::path::{Path, PathBuf};

/// Where a switch shows its table, and how that went.
#[derive(Debug, Clone)]
pub struct Share {
    path: PathBuf,
    error: Option<String>,
    /// Whether a table of this switch is there.
    is_shown: bool,
}

impl Share {
    /// A switch that will show its table at `path`.
    pub fn at(path: PathBuf) -> Self {
        Self { path, error: None, is_shown: false }
    }

    /// Where.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the present table can be read there.
    pub fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// Why it cannot.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Shows a table that has no reader yet, instead of the one before. Forwarding does not depend on it: what goes wrong
    /// is logged, and said by the status.
    pub fn show(&mut self, spec: &Spec, actions: &[Action], fib: &mut dyn Table) {
        let shown = self.move_table(spec, actions, fib);
        self.note(shown.map_err(|error| format!("design {}: {error}", spec.design.name)));
    }

    /// Tells other programs that values mean something else now, if they can read the table.
    pub fn show_actions(&mut self, actions: &[Action], fib: &mut dyn Table) {
        if self.is_shown {
            self.note(fib.tell_actions(actions).map_err(|error| error.to_string()));
        }
    }

    fn note(&mut self, shown: Result<(), String>) {
        self.is_shown = shown.is_ok();
        self.error = shown.err();
        if let Some(error) = &self.error {
            tracing::error!(path = %self.path.display(), "other programs cannot read the table: {error}; forwarding goes on");
            // Rather none than one that is old.
            let _ = fs::remove_file(&self.path);
        }
    }

    fn move_table(&self, spec: &Spec, actions: &[Action], fib: &mut dyn Table) -> Result<(), ShareError> {
        let writer = shown::this_process()?;
        shown::at(&self.path, |make| {
            fib.share(spec, writer, make)?;
            Ok(fib.tell_actions(actions)?)
        })
    }
}
