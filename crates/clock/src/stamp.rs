//! Detects whether a file has changed since it was read.

use std::path::Path;
use std::time::SystemTime;

/// Attributes that change when a file is written or replaced: modification time, length and inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp(SystemTime, u64, u64);

impl Stamp {
    /// The stamp of a file; none if it cannot be accessed.
    pub fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self(metadata.modified().ok()?, metadata.len(), metadata.ino()))
    }
}
