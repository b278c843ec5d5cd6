//! The configuration file of a daemon: read whole, checked whole; errors start with its name. Whether a file has changed.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What changes if a file is written or replaced: time of modification, length and inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp(SystemTime, u64, u64);

impl Stamp {
    /// That of a file; none if it cannot be seen.
    pub fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self(metadata.modified().ok()?, metadata.len(), metadata.ino()))
    }
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not a valid configuration.
    #[error("{path}: {message}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Where and why.
        message: String,
    },
}

/// Reads the file at `path`; `parse` makes a configuration of its text, or says what is wrong with it.
/// # Errors
/// [`ConfigError`].
pub fn load<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<T, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    parse(&text).map_err(|message| ConfigError::Invalid { path: path.to_owned(), message })
}
