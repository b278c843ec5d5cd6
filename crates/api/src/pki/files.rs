//! The files of an authority: read and replaced whole.

use super::PkiError;
use crate::crash::step;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

pub(super) fn make_directory(path: &Path) -> Result<(), PkiError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| io_error(path, e))
}

pub(super) fn read(path: &Path) -> Result<String, PkiError> {
    fs::read_to_string(path).map_err(|e| io_error(path, e))
}

/// Replaces a whole file and syncs it: acknowledged contents survive a power cut.
pub(super) fn write(path: &Path, text: &str, mode: u32) -> Result<(), PkiError> {
    let partial = path.with_extension("partial");
    let written = match fs::remove_file(&partial) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(mode);
            step("pki.create", || options.open(&partial)).and_then(|mut file| {
                step("pki.write", || file.write_all(text.as_bytes()))?;
                step("pki.sync", || file.sync_all())?;
                step("pki.rename", || fs::rename(&partial, path))?;
                let directory = path.parent().unwrap_or(Path::new("."));
                step("pki.directory.sync", || fs::File::open(directory)?.sync_all())
            })
        }
    };
    written.map_err(|e| io_error(path, e))
}

pub(super) fn io_error(path: &Path, source: io::Error) -> PkiError {
    PkiError::Io { path: path.to_owned(), source }
}

pub(super) fn damaged(path: &Path, reason: &dyn std::fmt::Display) -> PkiError {
    PkiError::Damaged { path: path.to_owned(), reason: reason.to_string() }
}
