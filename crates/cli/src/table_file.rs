//! Reading and writing the files of offline tables, for all nouns.

use crate::atomic_file::AtomicFile;
use command::output::{Exit, Failure, Output};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::path::Path;

/// Kinds of files: their first bytes, a description, and how to read them.
const KINDS: [(&[u8], &str, &str); 9] = [
    (fib::file::MAGIC, "a FIB file", "read it with `fibula fib`"),
    (&lookup::bloom::image::MAGIC, "a filter file", "read it with `fibula filter`"),
    (&lookup::lpm::file::MAGIC, "a file of prefixes", "read it with `fibula lpm`"),
    (fib::rules::MAGIC, "a file of rules", "read it with `fibula rules`"),
    (b"SQLite f", "a controller's store", "look at it with `fibula store check`"),
    (&[0x0a, 0x0d, 0x0d, 0x0a], "a capture", "read it with tshark or Wireshark"),
    (&[0x1f, 0x8b], "packed with gzip", "unpack it first"),
    (b"BZh", "packed with bzip2", "unpack it first"),
    (b"PK\x03\x04", "a zip archive", "unpack it first"),
];

/// Reads the bytes of a table; `-` is standard input. `verb` is the command suggested for files of another noun.
/// # Errors
/// Those of [`command::read_image`], and [`Exit::BadInput`] for a file of another kind, naming it.
pub(crate) fn read(path: &Path, magic: &[u8], verb: &str) -> anyhow::Result<Vec<u8>> {
    let bytes = command::read_image(path, magic)?;
    match KINDS.iter().find(|(begins, ..)| *begins != magic && bytes.starts_with(begins)) {
        None => Ok(bytes),
        Some((_, what, how)) => {
            let shown = path.display();
            let how = match how.strip_prefix("read it with `fibula ").and_then(|noun| noun.strip_suffix('`')) {
                Some(noun) => format!("fibula {noun} {verb} {shown}"),
                None => (*how).to_owned(),
            };
            Err(Failure::new(Exit::BadInput, format!("{shown}: this is {what}: {how}")))
        }
    }
}

/// Refuses to read both the table and the questions from standard input.
/// # Errors
/// [`Exit::Usage`].
pub(crate) fn check_questions(path: &Path, asked: &[String]) -> anyhow::Result<()> {
    if path.as_os_str() == "-" && asked.is_empty() {
        let why = "standard input is the table, so it cannot contain the questions, too: give them as arguments";
        return Err(Failure::new(Exit::Usage, why));
    }
    Ok(())
}

/// Refuses to write a table to a terminal.
/// # Errors
/// [`Exit::Usage`].
pub(crate) fn check_out(path: &Path) -> anyhow::Result<()> {
    if path.as_os_str() == "-" && io::stdout().is_terminal() {
        let why =
            "standard output is a terminal, and a table is binary: name a file, or redirect it, as in `-o - > FILE`";
        return Err(Failure::new(Exit::Usage, why));
    }
    Ok(())
}

/// Writes a table, and describes it, on standard error if standard output is the table.
/// # Errors
/// Those of [`AtomicFile::write`] and [`Output::done`].
pub(crate) fn write<T: Serialize>(
    path: &Path,
    mode: u32,
    bytes: &[u8],
    shown: &T,
    sentence: impl Display,
    out: &Output,
) -> anyhow::Result<()> {
    AtomicFile::write(path, mode, bytes)?;
    if !AtomicFile::is_stdout(path) {
        return out.done(shown, sentence);
    }
    let text = if out.is_json() { serde_json::to_string(shown)? } else { sentence.to_string() };
    eprintln!("{}", command::visible::visible(&text));
    Ok(())
}
