//! The directory of a run: configuration, logs and databases. It is removed with the run unless it is to be kept.

use std::io;
use std::path::{Path, PathBuf};

use super::netns::is_dead;

const PREFIX: &str = "fibula-demo-";

/// A directory that exists as long as this value.
#[derive(Debug)]
pub(super) struct StateDirectory {
    path: PathBuf,
    keep: bool,
}

impl StateDirectory {
    /// `keep`: created if it does not exist, must be empty, and is not removed. Otherwise a new temporary directory;
    /// those of dead runs are removed first.
    pub(super) fn create(keep: Option<&Path>) -> io::Result<Self> {
        if let Some(path) = keep {
            std::fs::create_dir_all(path)?;
            if std::fs::read_dir(path)?.next().is_some() {
                let reason = format!("{} is not empty; give --keep a new directory", path.display());
                return Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, reason));
            }
            return Ok(Self { path: path.canonicalize()?, keep: true });
        }
        Self::temporary(&std::env::temp_dir())
    }

    fn temporary(parent: &Path) -> io::Result<Self> {
        remove_leftovers(parent);
        let path = parent.join(format!("{PREFIX}{}", std::process::id()));
        // Not `create_dir_all`: a directory that someone else created there is not ours to use.
        std::fs::create_dir(&path)?;
        Ok(Self { path, keep: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StateDirectory {
    fn drop(&mut self) {
        if !self.keep {
            // What cannot be removed now, the next run removes.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

fn remove_leftovers(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|pid| pid.parse().ok());
        if owner.is_some_and(is_dead) {
            // One of another user may not be ours to remove.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_directory_goes_with_the_run_and_takes_dead_ones_along() {
        let parent = tempfile::tempdir().unwrap();
        // PIDs are below 2^22, so the first is dead; so is the process that had our own PID before us.
        for pid in [u32::MAX, std::process::id()] {
            std::fs::create_dir_all(parent.path().join(format!("{PREFIX}{pid}/s1"))).unwrap();
        }
        let state = StateDirectory::temporary(parent.path()).unwrap();
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 1, "its own");
        assert_eq!(std::fs::read_dir(state.path()).unwrap().count(), 0, "and empty");
        let path = state.path().to_owned();
        std::fs::write(path.join("file"), "x").unwrap();
        drop(state);
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_to_keep_is_new_and_stays() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("keep");
        let state = StateDirectory::create(Some(&path)).unwrap();
        std::fs::write(state.path().join("file"), "x").unwrap();
        drop(state);
        assert!(path.join("file").exists());
        assert!(StateDirectory::create(Some(&path)).unwrap_err().to_string().contains("not empty"));
    }
}
