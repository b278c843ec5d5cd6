//! Reads the lines of a trail.

use super::Record;
use super::trail::{numbered, of_refusals, unsealed};
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Upper bound on the length of a line: texts of 300 characters, of which each may be escaped as six.
pub(super) const MAX_LINE: usize = 16 << 10;

/// The end of an overlong line is searched for within this many bytes: a file without line ends is not a trail.
const MAX_SKIPPED: u64 = 1 << 20;

/// Why a line is not shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// It is damaged or incomplete.
    #[error("line {line} of {path} is damaged, or a crash cut it short")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Its number, from 1.
        line: usize,
    },
    /// The file cannot be read.
    #[error("{path} cannot be read: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The line does not end.
    #[error(
        "line {line} of {path} has no end within {} bytes: this is not an audit trail, so reading stops here",
        MAX_SKIPPED
    )]
    Endless {
        /// The file.
        path: PathBuf,
        /// Its number, from 1.
        line: usize,
    },
}

/// The records of changes at `path`, of refusals beside it, and of the full files of both, oldest first.
/// # Errors
/// An existing file cannot be opened, or there is none at `path`.
pub fn records(path: &Path) -> io::Result<impl Iterator<Item = Result<Record, LineError>>> {
    let changes = files(path, File::open(path)?)?;
    let refusals = of_refusals(path);
    let refusals = match File::open(&refusals) {
        Ok(_) if refusals == path => Vec::new(),
        Ok(file) => files(&refusals, file)?,
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    let of = |files: Vec<Lines>| files.into_iter().flatten().peekable();
    Ok(Merged(of(changes), of(refusals)))
}

/// The lines of a file, and of the full files beside it, oldest first.
fn files(path: &Path, file: File) -> io::Result<Vec<Lines>> {
    let mut files = vec![Lines::new(path.to_owned(), file)];
    for n in 1.. {
        let path = numbered(path, n);
        match File::open(&path) {
            Ok(file) => files.push(Lines::new(path, file)),
            Err(error) if error.kind() == ErrorKind::NotFound => break,
            Err(error) => return Err(error),
        }
    }
    files.reverse();
    Ok(files)
}

/// Two trails merged by time. A damaged line is reported at its position.
struct Merged<I: Iterator<Item = Result<Record, LineError>>>(Peekable<I>, Peekable<I>);

impl<I: Iterator<Item = Result<Record, LineError>>> Iterator for Merged<I> {
    type Item = Result<Record, LineError>;

    fn next(&mut self) -> Option<Self::Item> {
        let when = |next: &Result<Record, LineError>| {
            next.as_ref().ok().and_then(|record| OffsetDateTime::parse(&record.time, &Rfc3339).ok())
        };
        let is_second = match (self.0.peek(), self.1.peek()) {
            (Some(one), Some(other)) => when(other) < when(one),
            (None, _) => true,
            (_, None) => false,
        };
        if is_second { self.1.next() } else { self.0.next() }
    }
}

/// The lines of one file.
struct Lines {
    path: PathBuf,
    file: BufReader<File>,
    n_read: usize,
    has_ended: bool,
}

impl Lines {
    fn new(path: PathBuf, file: File) -> Self {
        Self { path, file: BufReader::new(file), n_read: 0, has_ended: false }
    }

    /// The next line without its end; none at the end of the file.
    fn read(&mut self) -> Result<Option<Vec<u8>>, LineError> {
        let failed = |path: &Path, error| LineError::Io { path: path.to_owned(), error };
        let mut line = Vec::new();
        let bounded = self.file.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut line);
        bounded.map_err(|error| failed(&self.path, error))?;
        self.n_read += 1;
        if line.len() == MAX_LINE && line.last() != Some(&b'\n') {
            let mut skipped = 0;
            while skipped < MAX_SKIPPED {
                let buffer = self.file.fill_buf().map_err(|error| failed(&self.path, error))?;
                let (n, is_end) = match buffer.iter().position(|byte| *byte == b'\n') {
                    Some(at) => (at + 1, true),
                    None => (buffer.len(), buffer.is_empty()),
                };
                self.file.consume(n);
                skipped += n as u64;
                if is_end {
                    return Ok(Some(line));
                }
            }
            return Err(LineError::Endless { path: self.path.clone(), line: self.n_read });
        }
        if line.is_empty() {
            return Ok(None);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        Ok(Some(line))
    }
}

impl Iterator for Lines {
    type Item = Result<Record, LineError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        match self.read() {
            Ok(Some(line)) => {
                let damaged = || LineError::Damaged { path: self.path.clone(), line: self.n_read };
                Some(unsealed(&line).ok_or_else(damaged))
            }
            Ok(None) => {
                self.has_ended = true;
                None
            }
            Err(error) => {
                self.has_ended = true;
                Some(Err(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_has_no_lines_is_not_read_for_ever_and_takes_no_memory() {
        let all: Vec<_> = records(Path::new("/dev/zero")).unwrap().collect();
        assert!(matches!(all[..], [Err(LineError::Endless { line: 1, .. })]), "{all:?}");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let mut file = File::create(&path).unwrap();
        file.write_all(&vec![b'x'; MAX_LINE + 70_000]).unwrap();
        file.write_all(b"\nshort\n").unwrap();
        let all: Vec<_> = records(&path).unwrap().collect();
        assert!(
            matches!(all[..], [Err(LineError::Damaged { line: 1, .. }), Err(LineError::Damaged { line: 2, .. })]),
            "{all:?}"
        );
    }
}
