//! Priorities of lines that reach the journal of systemd through standard error.
//!
//! The journal takes a line of a service for one of priority 6 unless it begins with `<N>`, which it takes away (sd-daemon(3)). So
//! `journalctl -p warning` finds warnings only if they say so. `JOURNAL_STREAM` has the device and the inode of the stream that leads to
//! the journal; a standard error that is anything else, a terminal or a file, gets the lines as they are. In all of them what
//! [cannot be seen](crate::visible) is written out.

use lookup::base::visible::visible_letters;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use tracing::{Level, Metadata};
use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::fmt::MakeWriter;

/// The prefix of a line that says why a program ended.
const ERROR: &str = "<3>";

/// Standard error of this process.
pub(crate) struct StandardError {
    is_journal: bool,
}

/// Lines of one priority.
pub(crate) struct Lines {
    prefix: &'static str,
}

impl StandardError {
    pub(crate) fn of_this_process() -> Self {
        let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
        Self { is_journal: is_stream(&stream, io::stderr()) }
    }

    /// For what says why the program ends.
    pub(crate) fn errors(&self) -> Lines {
        Lines { prefix: if self.is_journal { ERROR } else { "" } }
    }
}

impl<'a> MakeWriter<'a> for StandardError {
    type Writer = Lines;

    fn make_writer(&'a self) -> Lines {
        Lines { prefix: "" }
    }

    fn make_writer_for(&'a self, event: &Metadata<'_>) -> Lines {
        Lines { prefix: if self.is_journal { prefix_of(*event.level()) } else { "" } }
    }
}

impl Write for Lines {
    /// Writes all of it, in one call: lines of several threads do not mix.
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let text_seen = String::from_utf8_lossy(text);
        io::stderr().write_all(&with_prefix(self.prefix, visible_letters(&text_seen).as_bytes()))?;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The same priorities for events that go to the journal themselves.
pub(super) fn mappings() -> PriorityMappings {
    PriorityMappings { info: Priority::Informational, debug: Priority::Debug, ..PriorityMappings::new() }
}

fn prefix_of(level: Level) -> &'static str {
    match level {
        Level::ERROR => ERROR,
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        _ => "<7>",
    }
}

/// Whether a file is the one of this device and inode, `DEVICE:INODE`.
fn is_stream(stream: &str, file: impl AsFd) -> bool {
    let named = stream.split_once(':').and_then(|(device, inode)| Some((device.parse().ok()?, inode.parse().ok()?)));
    let found = file.as_fd().try_clone_to_owned().and_then(|file| File::from(file).metadata());
    found.is_ok_and(|found| named == Some((found.dev(), found.ino())))
}

/// Each line is an entry of its own in the journal.
fn with_prefix(prefix: &str, text: &[u8]) -> Vec<u8> {
    text.split_inclusive(|byte| *byte == b'\n').flat_map(|line| [prefix.as_bytes(), line].concat()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn only_the_stream_that_the_manager_names_is_the_journal() {
        let (ours, other) = UnixStream::pair().unwrap();
        let named = |stream: &UnixStream| {
            let found = File::from(stream.as_fd().try_clone_to_owned().unwrap()).metadata().unwrap();
            format!("{}:{}", found.dev(), found.ino())
        };
        assert!(is_stream(&named(&ours), &ours));
        assert!(!is_stream(&named(&other), &ours), "inherited, and standard error was replaced");
        for wrong in ["", ":", "8:", "8", "a:b", "-1:2", "8:99999999999999999999999"] {
            assert!(!is_stream(wrong, &ours), "{wrong}");
        }
    }

    #[test]
    fn lines_begin_with_the_priority_of_their_level() {
        let levels = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
        assert_eq!(levels.map(prefix_of), ["<3>", "<4>", "<6>", "<7>", "<7>"]);
        assert_eq!(with_prefix("<4>", b"one\ntwo\n"), b"<4>one\n<4>two\n");
        assert_eq!(with_prefix("", b"one\ntwo"), b"one\ntwo");
    }
}
