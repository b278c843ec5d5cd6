//! The file in which other programs read a table in place: as a switch does it.

use lookup::base::arena::Arena;
use lookup::traits::ShareError;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Who may read it: it has the hash key.
const MODE: u32 = 0o640;

/// Makes a file beside `path`, has `fill` put a table there, and puts it in the place of what is at `path`. If that fails,
/// the file before stays.
pub(crate) fn at<T>(
    path: &Path,
    fill: impl FnOnce(&mut dyn FnMut(usize) -> io::Result<Arena>) -> Result<T, ShareError>,
) -> Result<T, ShareError> {
    let mut new = path.to_path_buf().into_os_string();
    new.push(".new");
    let new = PathBuf::from(new);
    let filled = fill(&mut |bytes| Arena::on_file(create(&new)?, bytes)).and_then(|table| {
        fs::rename(&new, path)?;
        Ok(table)
    });
    if filled.is_err() {
        let _ = fs::remove_file(&new);
    }
    filled
}

fn create(path: &Path) -> io::Result<File> {
    // What a program that was killed left there.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().read(true).write(true).create_new(true).mode(MODE).open(path)
}

/// This process, and when it started, in clock ticks since the machine did.
pub(crate) fn this_process() -> io::Result<[u64; 2]> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name of the program, in parentheses, may have spaces; the start is the 22nd field.
    let start = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(19)?.parse().ok());
    let start = start.ok_or_else(|| io::Error::other("/proc/self/stat has no start time"))?;
    Ok([std::process::id().into(), start])
}
