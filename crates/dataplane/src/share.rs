//! The table of a running switch in a file, for other programs to map: `share = "PATH"`.
//!
//! The workers look names up in the same memory; there is one copy. A table that the switch makes anew is another file,
//! which takes the place of the previous one when it is complete and the controller has said what its values mean. The file
//! stays when the switch ends: readers have its last table until another switch shows one there. The bytes:
//! `docs/formats/table-in-memory.md`.

use fib::designs::{Spec, Table};
use fib::replica::Meaning;
use lookup::base::shown;
use lookup::traits::ShareError;
use std::fs;
use std::path::{Path, PathBuf};

/// The place where a switch shows its table, and the status of that.
#[derive(Debug, Clone)]
pub struct Share {
    path: PathBuf,
    error: Option<String>,
    /// Whether a table of this switch is there.
    is_shown: bool,
    /// Whether the present table lies beside it, until its values have a meaning.
    waits: bool,
}

impl Share {
    /// A switch that will show its table at `path`.
    pub fn at(path: PathBuf) -> Self {
        Self { path, error: None, is_shown: false, waits: false }
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

    /// Shows a table that has no reader yet, instead of the previous one. Forwarding does not depend on it: errors
    /// are logged, and shown by the status.
    pub fn show(&mut self, spec: &Spec, actions: Meaning<'_>, fib: &mut dyn Table) {
        (self.is_shown, self.waits) = (false, false);
        let moved = shown::this_process().map_err(ShareError::from).and_then(|writer| {
            shown::beside(&self.path, |make| {
                fib.share(spec, writer, make)?;
                Ok(fib.tell_actions(actions.actions)?)
            })
        });
        match moved {
            Ok(()) if !actions.is_known => self.waits = true,
            Ok(()) => self.put(),
            Err(error) => self.failed(format!("design {}: {error}", spec.design.name)),
        }
    }

    /// Tells other programs that values now mean something else, if they can read the table.
    pub fn show_actions(&mut self, actions: Meaning<'_>, fib: &mut dyn Table) {
        if !self.is_shown && !self.waits {
            return;
        }
        match fib.tell_actions(actions.actions) {
            Ok(()) if self.waits && actions.is_known => self.put(),
            Ok(()) => {}
            Err(error) => self.failed(error.to_string()),
        }
    }

    /// A table of which all values drop says less than the last one of a switch that ended.
    fn put(&mut self) {
        self.waits = false;
        match shown::put(&self.path) {
            Ok(()) => (self.is_shown, self.error) = (true, None),
            Err(error) => self.failed(error.to_string()),
        }
    }

    fn failed(&mut self, error: String) {
        tracing::error!(path = %self.path.display(), "other programs cannot read the table: {error}; forwarding continues");
        (self.is_shown, self.waits, self.error) = (false, false, Some(error));
        shown::discard(&self.path);
        // No table is better than an old one.
        let _ = fs::remove_file(&self.path);
    }
}
