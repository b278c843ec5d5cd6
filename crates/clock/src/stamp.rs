//! Whether a file is still the one that was read.

use std::path::Path;
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
