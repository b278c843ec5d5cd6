//! Frames as pcapng, in a file or on standard output.

use super::{Session, dropped};
use api::v1;
use command::output::{Exit, Failure, OrExit, to_stdout};
use netio::pcapng::{Counts, Frame, Interface, Writer};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Stdout, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Where the blocks go.
enum Target {
    File(File),
    Stdout(Stdout),
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.write(bytes),
            Self::Stdout(stdout) => stdout.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.flush(),
            Self::Stdout(stdout) => stdout.flush(),
        }
    }
}

/// Keeps bytes away from a terminal, which would obey control characters in them.
/// # Errors
/// [`Exit::Usage`] if the capture would be written to a terminal.
pub(super) fn refuse_a_terminal(path: Option<&Path>, is_terminal: bool) -> anyhow::Result<()> {
    if is_terminal && path.is_some_and(|path| path.as_os_str() == "-") {
        let why = "standard output is a terminal, and a capture is binary: name a file, or pipe it, as in `-w - | tshark -r -`";
        return Err(Failure::new(Exit::Usage, why));
    }
    Ok(())
}

/// Opens a file for frames. Frames contain what hosts say to each other, so only the owner may read a new file; an
/// existing file is replaced, and keeps its mode.
fn open(path: &Path) -> io::Result<File> {
    File::options().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Describes what is in a file that could not be written further.
fn left(bytes: u64) -> String {
    match bytes {
        0 => "; it is empty, and not a capture".to_owned(),
        bytes => format!("; it keeps the first {bytes} bytes, which are a whole capture"),
    }
}

/// A capture that is being written.
pub(super) struct Capture {
    path: PathBuf,
    writer: Writer<Target>,
    /// The interface of each port, in the order of the capture.
    interfaces: HashMap<u32, u32>,
}

impl Capture {
    /// Begins a capture at a path, or on standard output if this is `-`.
    /// # Errors
    /// When it cannot be written.
    pub(super) fn create(path: &Path, session: &Session) -> anyhow::Result<Self> {
        let target = if path.as_os_str() == "-" {
            Target::Stdout(io::stdout())
        } else {
            let cannot =
                || format!("cannot write {}; name a file in a directory that you may write to", path.display());
            Target::File(open(path).or_exit(Exit::Refused, cannot())?)
        };
        let start = &session.start;
        let described: Vec<String> =
            start.ports.iter().map(|port| format!("port {}, {}", port.port, port.role)).collect();
        let interfaces: Vec<Interface<'_>> = start
            .ports
            .iter()
            .zip(&described)
            .map(|(port, description)| Interface { name: &port.device, description, snap_bytes: start.snap_bytes })
            .collect();
        let limits = session.limits().map(|limits| format!("; {limits}")).unwrap_or_default();
        let comment = format!("switch {}{limits}", start.switch);
        let application = concat!("fibula ", env!("CARGO_PKG_VERSION"));
        let writer = Writer::new(target, application, &comment, &interfaces)?;
        let interfaces = (0..).zip(&start.ports).map(|(i, port)| (port.port, i)).collect();
        let mut capture = Self { path: path.to_owned(), writer, interfaces };
        capture.flush()?;
        Ok(capture)
    }

    /// # Errors
    /// The frame is from a port that the switch did not name.
    pub(super) fn frame(&mut self, frame: &v1::CapturedFrame) -> anyhow::Result<()> {
        let comment = match frame.verdict() {
            v1::FrameVerdict::Dropped => dropped(&frame.reason),
            v1::FrameVerdict::Answered => "answered by the switch".to_owned(),
            v1::FrameVerdict::Heard => "hello of a neighbour".to_owned(),
            v1::FrameVerdict::Copied => "broadcast: copied for each other name of the tenant".to_owned(),
            v1::FrameVerdict::Forwarded | v1::FrameVerdict::Sent | v1::FrameVerdict::Unspecified => String::new(),
        };
        let Some(&interface) = self.interfaces.get(&frame.port) else { return Ok(()) };
        let v1::CapturedFrame { time_ns, outbound, original_bytes, ref data, .. } = *frame;
        let original_len = original_bytes.max(data.len() as u32);
        let frame = Frame { interface, time_ns, is_outbound: outbound, original_len, bytes: data, comment: &comment };
        Ok(self.writer.frame(&frame)?)
    }

    /// Writes what is buffered.
    /// # Errors
    /// The capture cannot be written; the file then has whole blocks only. Or the reader of standard output has gone.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        let Err(error) = self.writer.flush() else { return Ok(()) };
        let (path, bytes) = (self.path.display(), self.writer.whole_bytes());
        match self.writer.get_ref() {
            Target::Stdout(_) => Err(to_stdout(error)),
            Target::File(_) if error.kind() == ErrorKind::BrokenPipe => Err(to_stdout(error)),
            Target::File(file) => {
                // A pipe or a device has no length, so nothing can be taken back.
                let is_whole = file.set_len(bytes).is_ok();
                let what = if is_whole { left(bytes) } else { String::new() };
                let help = "make room, or name a file elsewhere; --snap keeps less of each frame";
                Err(error).or_exit(Exit::Internal, format!("cannot write {path}{what}; {help}"))
            }
        }
    }

    /// Ends the capture with the final counts.
    /// # Errors
    /// As [`Capture::flush`].
    pub(super) fn finish(mut self, session: &Session) -> anyhow::Result<()> {
        let now_ns = api::clock::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        for (i, port) in (0..).zip(&session.start.ports) {
            let of = |counts: &std::collections::BTreeMap<u32, u64>| counts.get(&port.port).copied().unwrap_or(0);
            let (seen, lost) = (of(&session.seen), of(&session.lost));
            self.writer.counts(i, now_ns, Counts { seen: seen + lost, lost })?;
        }
        self.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use command::output::exit_of;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_capture_goes_to_files_and_pipes_and_to_no_terminal() {
        let out = Some(Path::new("-"));
        let refused = refuse_a_terminal(out, true).unwrap_err();
        assert_eq!(exit_of(&refused), Exit::Usage);
        for (path, is_terminal) in [(out, false), (Some(Path::new("x.pcapng")), true), (None, true)] {
            refuse_a_terminal(path, is_terminal).unwrap();
        }
    }

    #[test]
    fn a_capture_is_for_its_owner_alone_and_replaces_what_was_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.pcapng");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        open(&path).unwrap();
        assert_eq!(mode(), 0o600);
        std::fs::write(&path, "a longer capture").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        open(&path).unwrap();
        assert_eq!((mode(), std::fs::read(&path).unwrap().len()), (0o640, 0));
    }

    #[test]
    fn an_empty_file_is_no_capture() {
        assert!(left(0).contains("empty") && !left(0).contains("whole"));
        assert!(left(124).contains("first 124 bytes, which are a whole capture"));
    }
}
