//! Files that are written completely or not at all.

use command::output::{Exit, Failure};
use rustix::fs::{AtFlags, CWD, linkat};
use std::fs::{File, Metadata, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// A new file that replaces the old one only when it is complete. Until then it has no name where the file system
/// supports that (`O_TMPFILE`), otherwise a temporary name in the same directory. If writing is interrupted, the old
/// file stays. Links are followed, even to a missing file. A device, a pipe and our own output (`-`, `/dev/stdout`) are
/// written in place. A file that is replaced keeps its permissions and its owner, where the owner can be kept.
#[derive(Debug)]
pub(crate) struct AtomicFile {
    file: File,
    path: PathBuf,
    /// The temporary name: in use from the start, or only just before the old file is replaced.
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
    /// As [`AtomicFile::create`], and disk errors; the old file stays.
    pub(crate) fn write(path: &Path, mode: u32, bytes: &[u8]) -> anyhow::Result<()> {
        let mut file = Self::create(path, mode)?;
        file.write_all(bytes).map_err(|error| cannot_write(path, &error))?;
        file.finish()
    }

    /// Whether a path is standard output.
    pub(crate) fn is_stdout(path: &Path) -> bool {
        is_output(path, 1, "stdout") || path.as_os_str() == "-"
    }

    /// Starts a file that becomes `path`, with these permissions (less the umask).
    /// # Errors
    /// [`Exit::NotFound`] if the directory does not exist, [`Exit::Refused`] if it may not be written.
    pub(crate) fn create(path: &Path, mode: u32) -> anyhow::Result<AtomicFile> {
        let cannot = |error| cannot_write(path, &error);
        let in_place =
            |file| AtomicFile { file, temporary: path.to_owned(), path: path.to_owned(), state: State::InPlace };
        if let Some(open) = own_output(path) {
            return open.map(in_place).map_err(cannot);
        }
        let before = std::fs::metadata(path).ok();
        if before.as_ref().is_some_and(|data| !data.is_file() && !data.is_dir()) {
            return File::options().write(true).open(path).map(in_place).map_err(cannot);
        }
        let path = end_of_links(path);
        let name = path.file_name().filter(|_| !path.is_dir());
        let name = name.ok_or_else(|| Failure::new(Exit::Usage, format!("{} is not a file name", path.display())))?;
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
        let file = AtomicFile { file, path, temporary, state };
        if let Some(before) = before {
            keep(&file.file, &before).map_err(|error| cannot_write(&file.path, &error))?;
        }
        Ok(file)
    }

    /// Moves the file into place once it is on disk.
    /// # Errors
    /// Disk errors; the old file stays.
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

/// The output that this process already writes to, if the path names it. The file behind it must not be replaced: its
/// readers have the old one open.
fn own_output(path: &Path) -> Option<io::Result<File>> {
    let output = match () {
        () if AtomicFile::is_stdout(path) => io::stdout().as_fd().try_clone_to_owned(),
        () if is_output(path, 2, "stderr") => io::stderr().as_fd().try_clone_to_owned(),
        () => return None,
    };
    Some(output.map(File::from))
}

fn is_output(path: &Path, number: u32, name: &str) -> bool {
    let names = [format!("/dev/{name}"), format!("/dev/fd/{number}"), format!("/proc/self/fd/{number}")];
    names.iter().any(|name| path == Path::new(name))
}

/// The target of a path, whether or not the file exists.
fn end_of_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    // As many links as the kernel follows.
    for _ in 0..40 {
        let Ok(to) = std::fs::read_link(&path) else { break };
        path = path.with_file_name(to);
    }
    path
}

/// Gives a new file the owner and permissions of the one that it replaces. If the owner cannot be kept, permissions
/// stay as created: they would give another owner or group more than it had.
fn keep(file: &File, before: &Metadata) -> io::Result<()> {
    let now = file.metadata()?;
    let is_other = (now.uid(), now.gid()) != (before.uid(), before.gid());
    if is_other && fchown(file, Some(before.uid()), Some(before.gid())).is_err() {
        return Ok(());
    }
    file.set_permissions(Permissions::from_mode(before.mode() & 0o777))
}

/// Refuses to overwrite the list that a table is built from.
/// # Errors
/// [`Exit::Usage`].
pub(crate) fn check_is_not_list(list: &Path, out: &Path) -> anyhow::Result<()> {
    let why = || format!("{} is the list itself; write to another file", out.display());
    if is_same_file(list, out) { Err(Failure::new(Exit::Usage, why())) } else { Ok(()) }
}

/// Whether both paths lead to the same regular file.
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
