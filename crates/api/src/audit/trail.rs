//! A file of lines, its full predecessors, and the format of a line.

use super::{Record, Settings};
use crate::crash::step;
use fib::replica::Checksum;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A file that lines go to.
#[derive(Debug)]
pub(super) struct Trail {
    path: PathBuf,
    file: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    max_bytes: u64,
    keep: u32,
    file: File,
    bytes: u64,
    unsynced: bool,
    failing: bool,
}

impl Trail {
    pub(super) fn open(path: PathBuf, settings: &Settings) -> io::Result<Self> {
        let file = Mutex::new(Open::new(&path, settings.max_bytes, settings.keep)?);
        Ok(Self { path, file })
    }

    /// Sets the size at which a new file is started, and the number of full files to keep. Those beyond are removed.
    /// # Errors
    /// One cannot be removed; the sizes apply nevertheless.
    pub(super) fn set_sizes(&self, settings: &Settings) -> io::Result<()> {
        let mut open = self.lock();
        let before = std::mem::replace(&mut open.keep, settings.keep);
        open.max_bytes = settings.max_bytes;
        for n in settings.keep + 1..=before {
            match fs::remove_file(numbered(&self.path, n)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every line so far is on the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        let file = {
            let mut open = self.lock();
            if !std::mem::take(&mut open.unsynced) {
                return Ok(());
            }
            open.file.try_clone()
        };
        file.and_then(|file| step("audit.sync", || file.sync_data()))
    }

    /// Continues in the file that now has this name.
    pub(super) fn reopen(&self) -> io::Result<()> {
        let mut open = self.lock();
        *open = Open::new(&self.path, open.max_bytes, open.keep)?;
        Ok(())
    }

    /// Records that it cannot be written. Returns whether that is new.
    pub(super) fn fails(&self) -> bool {
        !std::mem::replace(&mut self.lock().failing, true)
    }

    pub(super) fn append(&self, line: &[u8]) -> io::Result<()> {
        let mut open = self.lock();
        if open.bytes > 0 && open.bytes + line.len() as u64 > open.max_bytes {
            self.rotate(&mut open)?;
        }
        step("audit.append", || open.file.write_all(line))?;
        open.bytes += line.len() as u64;
        (open.unsynced, open.failing) = (true, false);
        Ok(())
    }

    fn rotate(&self, open: &mut Open) -> io::Result<()> {
        step("audit.rotate.sync", || open.file.sync_data())?;
        for n in (1..open.keep).rev() {
            match step("audit.rotate.rename", || fs::rename(numbered(&self.path, n), numbered(&self.path, n + 1))) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        step("audit.rotate.rename", || fs::rename(&self.path, numbered(&self.path, 1)))?;
        *open = Open::new(&self.path, open.max_bytes, open.keep)?;
        Ok(())
    }
}

impl Open {
    fn new(path: &Path, max_bytes: u64, keep: u32) -> io::Result<Self> {
        let mut file = OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(path)?;
        let mut bytes = file.metadata()?.len();
        // A crash may have cut the last line short; the next one must not continue it.
        if bytes > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
                bytes += 1;
            }
        }
        Ok(Self { max_bytes, keep, file, bytes, unsynced: false, failing: false })
    }
}

/// The separator between a record and its checksum.
const SUM: &[u8] = b",\"sum\":\"";

/// Formats the line of a record.
pub(super) fn sealed(record: &Record) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(record)?;
    let sum = sum_of(&line);
    line.pop();
    line.extend_from_slice(SUM);
    line.extend_from_slice(sum.as_bytes());
    line.extend_from_slice(b"\"}\n");
    Ok(line)
}

/// Parses a line without its end; none if it is damaged.
pub(super) fn unsealed(line: &[u8]) -> Option<Record> {
    let rest = line.strip_suffix(b"\"}")?;
    let (rest, sum) = rest.split_at_checked(rest.len().checked_sub(16)?)?;
    let record = [rest.strip_suffix(SUM)?, b"}"].concat();
    if sum_of(&record).as_bytes() != sum {
        return None;
    }
    serde_json::from_slice(&record).ok()
}

fn sum_of(record: &[u8]) -> String {
    let mut checksum = Checksum::new(record.len() as u64);
    checksum.push(record);
    checksum.finish().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The name of the n-th full file beside a file.
pub(super) fn numbered(path: &Path, n: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{n}"));
    name.into()
}

/// The file of refusals, beside that of changes; the same one if that is a device or a pipe.
pub(super) fn of_refusals(path: &Path) -> PathBuf {
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".refused");
    name.into()
}
