//! Files that are written completely or not at all.

use command::output::{Exit, Failure};
use rustix::fs::{AtFlags, CWD, linkat};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A new file that replaces the old one only when it is complete. Until then it has no name where the file system
/// supports that (`O_TMPFILE`), otherwise a temporary name in the same directory. Whatever interrupts writing, the old
/// file stays. Links are followed. If the path is a device or a pipe, it is written in place.
#[derive(Debug)]
pub(crate) struct AtomicFile {
    file: File,
    path: PathBuf,
    /// The temporary name: in use from the start, or given just before the old file is replaced.
    temporary: PathBuf,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Has no name; the kernel removes it when its last descriptor is closed.
    Nameless,
    /// Has its temporary name.
    Named,
    /// At its final path.
    InPlace,
}

impl AtomicFile {
    /// Writes a whole file, with these permissions (less the umask).
    /// # Errors
    /// As [`AtomicFile::create`], and those of the disk; the old file stays.
    pub(crate) fn write(path: &Path, mode: u32, bytes: &[u8]) -> anyhow::Result<()> {
        let mut file = Self::create(path, mode)?;
        file.write_all(bytes).map_err(|error| cannot_write(path, &error))?;
        file.finish()
    }

    /// Starts a file that becomes `path`, with these permissions (less the umask).
    /// # Errors
    /// [`Exit::NotFound`] if the directory does not exist, [`Exit::Refused`] if it may not be written.
    pub(crate) fn create(path: &Path, mode: u32) -> anyhow::Result<AtomicFile> {
        let cannot = |error| cannot_write(path, &error);
        let (path, is_plain) = match std::fs::metadata(path) {
            Ok(data) if data.is_file() => (std::fs::canonicalize(path).map_err(cannot)?, true),
            Ok(data) => (path.to_owned(), data.is_dir()),
            Err(_) => (path.to_owned(), true),
        };
        if !is_plain {
            let file = File::options().write(true).open(&path).map_err(cannot)?;
            return Ok(AtomicFile { file, temporary: path.clone(), path, state: State::InPlace });
        }
        let name = path.file_name().filter(|_| !path.is_dir());
        let name = name.ok_or_else(|| Failure::new(Exit::Usage, format!("{} is no file name", path.display())))?;
        let mut temporary = name.to_os_string();
        temporary.push(format!(".{}.new", std::process::id()));
        let temporary = path.with_file_name(temporary);
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let nameless = File::options().write(true).mode(mode).custom_flags(libc::O_TMPFILE).open(directory);
        let (file, state) = match nameless {
            Ok(file) => (file, State::Nameless),
            Err(_) => {
                let named = File::options().write(true).create_new(true).mode(mode).open(&temporary);
                (named.map_err(cannot)?, State::Named)
            }
        };
        Ok(AtomicFile { file, path, temporary, state })
    }

    /// Moves the file into place once it is on disk.
    /// # Errors
    /// Those of the disk; the old file stays.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        self.put().map_err(|error| cannot_write(&self.path, &error))
    }

    fn put(&mut self) -> io::Result<()> {
        if self.state == State::InPlace {
            return Ok(());
        }
        self.file.sync_all()?;
        if self.state == State::Nameless {
            let open = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            linkat(CWD, open, CWD, &self.temporary, AtFlags::SYMLINK_FOLLOW)?;
            self.state = State::Named;
        }
        std::fs::rename(&self.temporary, &self.path)?;
        self.state = State::InPlace;
        Ok(())
    }
}

impl io::Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if self.state == State::Named {
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

/// Refuses to write what is built over the list that it is built from.
/// # Errors
/// [`Exit::Usage`].
pub(crate) fn check_is_not_list(list: &Path, out: &Path) -> anyhow::Result<()> {
    let why = || format!("{} is the list itself; write to another file", out.display());
    if is_same_file(list, out) { Err(Failure::new(Exit::Usage, why())) } else { Ok(()) }
}

/// Whether both paths lead to the same plain file.
fn is_same_file(a: &Path, b: &Path) -> bool {
    match (std::fs::metadata(a), std::fs::metadata(b)) {
        (Ok(a), Ok(b)) => a.is_file() && (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

/// The error for a file that cannot be written.
pub(crate) fn cannot_write(path: &Path, error: &io::Error) -> anyhow::Error {
    let exit = match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => Exit::NotFound,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Exit::Refused,
        _ => Exit::Internal,
    };
    Failure::new(exit, format!("{} cannot be written: {error}", path.display()))
}
