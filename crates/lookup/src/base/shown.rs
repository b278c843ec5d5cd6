//! A file in which other programs read a table in place: made beside its path, and put there when it is whole.
//!
//! Both the switch and libfibula show tables this way. It is here, among code that otherwise does no input or output, because it is
//! part of the format: who may read the file, and how a reader finds out whether its writer lives.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::arena::Arena;
use crate::traits::ShareError;

/// The mode of the file: its readers have the hash key, by which names can be chosen that a table holds badly.
const MODE: u32 = 0o640;

/// [`beside`], and then [`put`].
/// # Errors
/// [`ShareError`]; what was at `path` stays.
pub fn at<T>(
    path: &Path,
    fill: impl FnOnce(&mut dyn FnMut(usize) -> io::Result<Arena>) -> Result<T, ShareError>,
) -> Result<T, ShareError> {
    let table = beside(path, fill)?;
    put(path)?;
    Ok(table)
}

/// Makes a file beside `path`, and has `fill` put a table there.
/// # Errors
/// [`ShareError`]; the file is removed.
pub fn beside<T>(
    path: &Path,
    fill: impl FnOnce(&mut dyn FnMut(usize) -> io::Result<Arena>) -> Result<T, ShareError>,
) -> Result<T, ShareError> {
    fill(&mut |bytes| Arena::on_file(create(&new(path))?, bytes)).inspect_err(|_| discard(path))
}

/// Puts the file that lies beside `path` in the place of what is at `path`.
/// # Errors
/// Of the file system; the file beside it is removed.
pub fn put(path: &Path) -> io::Result<()> {
    fs::rename(new(path), path).inspect_err(|_| discard(path))
}

/// Removes the file that lies beside `path`, if there is one.
pub fn discard(path: &Path) {
    let _ = fs::remove_file(new(path));
}

fn new(path: &Path) -> PathBuf {
    let mut new = path.to_path_buf().into_os_string();
    new.push(".new");
    PathBuf::from(new)
}

fn create(path: &Path) -> io::Result<File> {
    // What a program that was killed left there.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().read(true).write(true).create_new(true).mode(MODE).open(path)
}

/// This process, and when it started, in clock ticks since the machine did: what a table says of its writer.
/// # Errors
/// The error of the operating system.
pub fn this_process() -> io::Result<[u64; 2]> {
    #[expect(clippy::disallowed_methods, reason = "only /proc tells when a process started")]
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name of the program, in parentheses, may have spaces; the start is the 22nd field.
    let start = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(19)?.parse().ok());
    let start = start.ok_or_else(|| io::Error::other("/proc/self/stat has no start time"))?;
    Ok([std::process::id().into(), start])
}
