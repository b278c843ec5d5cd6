//! A file that is written whole or not at all.

use crate::output::{Exit, Failure};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A new file under a name of its own beside the one it is to become; gone when dropped unfinished. Whatever stops
/// the writing, a good file that is there already stays.
#[derive(Debug)]
pub(crate) struct WholeFile {
    file: File,
    path: PathBuf,
    temporary: PathBuf,
}

impl WholeFile {
    /// Starts a file that becomes `path`, with these permissions (less the umask).
    /// # Errors
    /// [`Exit::NotFound`] for a directory that is not there, [`Exit::Refused`] for one that may not be written.
    pub(crate) fn create(path: &Path, mode: u32) -> anyhow::Result<WholeFile> {
        let name = path.file_name().filter(|_| !path.is_dir());
        let name = name.ok_or_else(|| Failure::new(Exit::Usage, format!("{} is no file name", path.display())))?;
        let mut temporary = name.to_os_string();
        temporary.push(format!(".{}.new", std::process::id()));
        let temporary = path.with_file_name(temporary);
        let file = File::options().write(true).create_new(true).mode(mode).open(&temporary);
        let file = file.map_err(|error| cannot_write(path, &error))?;
        Ok(WholeFile { file, path: path.to_owned(), temporary })
    }

    /// Puts the file in its place, once it is on the disk.
    /// # Errors
    /// Those of the disk; what was there before stays.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        let put = self.file.sync_all().and_then(|()| std::fs::rename(&self.temporary, &self.path));
        put.map_err(|error| cannot_write(&self.path, &error))
    }
}

impl io::Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        // After `finish` there is nothing under this name.
        let _ = std::fs::remove_file(&self.temporary);
    }
}

/// What to say of a file that cannot be written.
pub(crate) fn cannot_write(path: &Path, error: &io::Error) -> anyhow::Error {
    let exit = match error.kind() {
        ErrorKind::NotFound => Exit::NotFound,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Exit::Refused,
        _ => Exit::Internal,
    };
    Failure::new(exit, format!("{} cannot be written: {error}", path.display()))
}
