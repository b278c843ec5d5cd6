//! The audit trail of a daemon: every change and every refused attempt, one JSON object a line.
//!
//! A line is appended with one write before the change is answered, so it survives a crash of the process. It is on the
//! disk a second later at most: a power cut may lose the lines of the last second, of changes that are in the store.
//! The log says changes too, at most ten a second; `unsaid` counts the others.
//! When the file has reached its size it is renamed to `FILE.1`, that one to `FILE.2`, and so on; the oldest is removed.
//! A line ends with a checksum of what is before it, so that nobody is shown what was not written. It does not keep who may
//! write the file from changing it.
//! If a line cannot be written, the daemon goes on; the log says so, and the metric `fibula_audit_failures_total` counts.

use crate::clock;
use crate::crash::step;
use crate::gate::{Attempt, Peer};
use crate::status::{MetricsText, plain};
use crate::throttle::Throttle;
use fib::replica::Checksum;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Written lines are on the disk after this.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// Longest text of a field, in characters.
const MAX_TEXT: usize = 300;

/// The section `[audit]` of a daemon's configuration.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The file; beside the daemon's state if absent.
    pub file: Option<PathBuf>,
    /// Bytes after which another file is begun.
    pub max_bytes: u64,
    /// Full files that are kept.
    pub keep: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { file: None, max_bytes: 16 << 20, keep: 8 }
    }
}

impl Settings {
    /// # Errors
    /// Which number is out of range.
    pub fn check(&self) -> Result<(), String> {
        let in_range = (4096..=1 << 40).contains(&self.max_bytes) && (1..=1000).contains(&self.keep);
        if in_range {
            return Ok(());
        }
        Err("[audit] is out of range; write max_bytes = 4096 to 1099511627776 and keep = 1 to 1000".to_owned())
    }
}

/// How something ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The change is made.
    Done,
    /// Whoever asked may do so, but the change is not possible.
    Refused,
    /// Somebody else was asked to make the change, and has not said whether it did.
    Unanswered,
    /// Whoever asked may not.
    TurnedAway,
}

/// One line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// When, by RFC 3339, in UTC.
    pub time: String,
    /// The name in the certificate; `uid:NUMBER`, `loopback`, `anyone` or `-`.
    pub who: String,
    /// The role in it.
    pub role: String,
    /// Address and port; `unix:pid=NUMBER`, the process at the other end of a Unix socket.
    pub from: String,
    /// What was asked for.
    pub what: String,
    /// With what, in short.
    pub detail: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Objects changed, and those that were as asked for already.
    pub changed: u64,
    /// See there.
    pub unchanged: u64,
    /// Why not, if so.
    pub reason: String,
}

/// The file that lines go to.
#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    settings: Settings,
    file: Mutex<Open>,
    lines: AtomicU64,
    failures: AtomicU64,
    throttle: Throttle,
}

#[derive(Debug)]
struct Open {
    file: File,
    bytes: u64,
    unsynced: bool,
    failing: bool,
}

impl Audit {
    /// Opens the file of `settings`, or else `default`, to append to it.
    /// # Errors
    /// When it cannot be opened or created.
    pub fn open(settings: &Settings, default: &Path) -> io::Result<Arc<Self>> {
        let path = settings.file.clone().unwrap_or_else(|| default.to_owned());
        let file = Mutex::new(Open::new(&path)?);
        let (lines, failures) = (AtomicU64::new(0), AtomicU64::new(0));
        let (settings, throttle) = (settings.clone(), Throttle::default());
        Ok(Arc::new(Self { path, settings, file, lines, failures, throttle }))
    }

    /// Keeps what is written synced as long as somebody holds `audit`. Needs a runtime.
    pub fn keep_synced(audit: &Arc<Self>) {
        let audit = Arc::downgrade(audit);
        tokio::spawn(async move {
            let mut tick = tokio::time::interval(SYNC_EVERY);
            loop {
                tick.tick().await;
                let Some(audit) = audit.upgrade() else { return };
                let _ = tokio::task::spawn_blocking(move || audit.sync()).await;
            }
        });
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every line so far is on the disk.
    pub fn sync(&self) {
        let file = {
            let mut open = self.lock();
            if !std::mem::take(&mut open.unsynced) {
                return;
            }
            open.file.try_clone()
        };
        if let Err(error) = file.and_then(|file| step("audit.sync", || file.sync_data())) {
            self.fail(&error);
        }
    }

    fn fail(&self, error: &io::Error) {
        self.failures.fetch_add(1, Relaxed);
        // Once, until a line is written again.
        if !std::mem::replace(&mut self.lock().failing, true) {
            tracing::error!(path = %self.path.display(), %error, "the audit trail cannot be written; changes are not recorded until it can");
        }
    }

    /// Appends the end of a change: objects changed and unchanged, or why it was refused.
    pub fn change(&self, peer: &Peer, what: &str, detail: &str, end: Result<(u64, u64), &str>) {
        match end {
            Ok(counts) => self.end(peer, what, detail, Outcome::Done, counts, ""),
            Err(reason) => self.end(peer, what, detail, Outcome::Refused, (0, 0), reason),
        }
    }

    /// Appends a change that somebody else was asked to make, who has not answered.
    pub fn unanswered(&self, peer: &Peer, what: &str, detail: &str, reason: &str) {
        self.end(peer, what, detail, Outcome::Unanswered, (0, 0), reason);
    }

    fn end(&self, peer: &Peer, what: &str, detail: &str, outcome: Outcome, counts: (u64, u64), reason: &str) {
        let (changed, unchanged) = counts;
        if let Some(unsaid) = self.throttle.pass() {
            tracing::info!(who = peer.name(), from = %peer.address(), what, detail, changed, reason, unsaid, "change");
        }
        self.append(&Record {
            time: now(),
            who: peer.name().to_owned(),
            role: peer.role(),
            from: peer.address().to_string(),
            what: what.to_owned(),
            detail: clip(detail),
            outcome,
            changed,
            unchanged,
            reason: clip(reason),
        });
    }

    /// Appends an attempt that was turned away.
    pub fn attempt(&self, attempt: &Attempt<'_>) {
        self.append(&Record {
            time: now(),
            who: attempt.peer.map_or("-", Peer::name).to_owned(),
            role: attempt.peer.map_or_else(|| "none".to_owned(), Peer::role),
            from: attempt.from.to_string(),
            what: clip(attempt.what),
            detail: String::new(),
            outcome: Outcome::TurnedAway,
            changed: 0,
            unchanged: 0,
            reason: clip(attempt.reason),
        });
    }

    fn append(&self, record: &Record) {
        let written = sealed(record).and_then(|line| {
            let mut open = self.lock();
            if open.bytes > 0 && open.bytes + line.len() as u64 > self.settings.max_bytes {
                self.rotate(&mut open)?;
            }
            step("audit.append", || open.file.write_all(&line))?;
            open.bytes += line.len() as u64;
            (open.unsynced, open.failing) = (true, false);
            Ok(())
        });
        match written {
            Ok(()) => _ = self.lines.fetch_add(1, Relaxed),
            Err(error) => self.fail(&error),
        }
    }

    fn rotate(&self, open: &mut Open) -> io::Result<()> {
        step("audit.rotate.sync", || open.file.sync_data())?;
        for n in (1..self.settings.keep).rev() {
            match step("audit.rotate.rename", || fs::rename(numbered(&self.path, n), numbered(&self.path, n + 1))) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        step("audit.rotate.rename", || fs::rename(&self.path, numbered(&self.path, 1)))?;
        *open = Open::new(&self.path)?;
        Ok(())
    }

    /// Metrics of it.
    pub fn metrics(&self, text: &mut MetricsText) {
        let (lines, failures) = (self.lines.load(Relaxed), self.failures.load(Relaxed));
        text.counter("fibula_audit_lines_total", "Lines of the audit trail.", plain(lines));
        text.counter("fibula_audit_failures_total", "Lines of it that could not be written.", plain(failures));
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.sync();
    }
}

impl Open {
    fn new(path: &Path) -> io::Result<Self> {
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
        Ok(Self { file, bytes, unsynced: false, failing: false })
    }
}

/// Why a line is not shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// It is not what was written, or not all of it.
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
}

/// The records at `path` and in the full files beside it, the oldest first.
/// # Errors
/// When a file is there and cannot be opened, or none is there.
pub fn records(path: &Path) -> io::Result<impl Iterator<Item = Result<Record, LineError>>> {
    let mut files = vec![(path.to_owned(), BufReader::new(File::open(path)?))];
    for n in 1.. {
        let path = numbered(path, n);
        match File::open(&path) {
            Ok(file) => files.push((path, BufReader::new(file))),
            Err(error) if error.kind() == ErrorKind::NotFound => break,
            Err(error) => return Err(error),
        }
    }
    Ok(files.into_iter().rev().flat_map(|(path, file)| {
        let read = move |(at, line): (usize, io::Result<Vec<u8>>)| match line {
            Ok(line) => unsealed(&line).ok_or_else(|| LineError::Damaged { path: path.clone(), line: at + 1 }),
            Err(error) => Err(LineError::Io { path: path.clone(), error }),
        };
        file.split(b'\n').enumerate().map(read)
    }))
}

/// What stands between a record and its checksum.
const SUM: &[u8] = b",\"sum\":\"";

/// The line of a record.
fn sealed(record: &Record) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(record)?;
    let sum = sum_of(&line);
    line.pop();
    line.extend_from_slice(SUM);
    line.extend_from_slice(sum.as_bytes());
    line.extend_from_slice(b"\"}\n");
    Ok(line)
}

/// The record of a line without its end; none if that is not what was written.
fn unsealed(line: &[u8]) -> Option<Record> {
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

fn numbered(path: &Path, n: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{n}"));
    name.into()
}

fn now() -> String {
    let now = OffsetDateTime::from(clock::now());
    // To a microsecond: enough to tell changes apart.
    let now = now.replace_nanosecond(now.nanosecond() / 1000 * 1000).unwrap_or(now);
    now.format(&Rfc3339).unwrap_or_default()
}

fn clip(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Origin;
    use crate::gate::Who;

    fn peer() -> Peer {
        Peer::new(Who::Loopback, Origin::Tcp("127.0.0.1:7".parse().unwrap()))
    }

    fn details(path: &Path) -> Vec<String> {
        records(path).unwrap().filter_map(Result::ok).map(|record| record.detail).collect()
    }

    #[test]
    fn lines_are_kept_in_order_over_full_files_and_the_oldest_go() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let settings = Settings { max_bytes: 4096, keep: 2, ..Settings::default() };
        let audit = Audit::open(&settings, &path).unwrap();
        for i in 0..100 {
            audit.change(&peer(), "put_names", &format!("{i}"), Ok((1, 0)));
        }
        let kept = details(&path);
        let expected: Vec<String> = (100 - kept.len()..100).map(|i| i.to_string()).collect();
        assert_eq!(kept, expected);
        assert!(numbered(&path, 2).exists() && !numbered(&path, 3).exists());
        assert!(fs::metadata(&path).unwrap().len() <= 4096 && (20..80).contains(&kept.len()), "{}", kept.len());
    }

    #[test]
    fn line_that_a_crash_cut_short_spoils_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let open = || Audit::open(&Settings::default(), &path).unwrap();
        open().change(&peer(), "put_names", "before", Ok((1, 0)));
        let whole = fs::metadata(&path).unwrap().len();
        open().change(&peer(), "put_names", "cut", Ok((1, 0)));
        OpenOptions::new().write(true).open(&path).unwrap().set_len(whole + 20).unwrap();
        open().change(&peer(), "remove_names", "after", Err("there is no such name"));
        assert_eq!(details(&path), ["before", "after"]);
        let damaged: Vec<LineError> = records(&path).unwrap().filter_map(Result::err).collect();
        assert!(matches!(damaged[..], [LineError::Damaged { line: 2, .. }]), "{damaged:?}");
        let last = records(&path).unwrap().last().unwrap().unwrap();
        assert_eq!((last.outcome, &last.reason[..]), (Outcome::Refused, "there is no such name"));
    }

    #[test]
    fn flipped_bit_is_reported_and_changes_no_record() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let audit = Audit::open(&Settings::default(), &path).unwrap();
        for i in 0..3 {
            audit.change(&peer(), "put_names", &format!("name {i}"), Ok((i, 0)));
        }
        let written: Vec<Record> = records(&path).unwrap().map(Result::unwrap).collect();
        let whole = fs::read(&path).unwrap();
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, damaged).unwrap();
            let (shown, refused): (Vec<_>, Vec<_>) = records(&path).unwrap().partition(Result::is_ok);
            assert!(shown.iter().all(|record| written.contains(record.as_ref().unwrap())), "bit {bit}");
            assert!(!refused.is_empty() || shown.len() == written.len(), "bit {bit} hides a record");
        }
    }

    #[test]
    fn long_texts_are_cut() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let audit = Audit::open(&Settings::default(), &path).unwrap();
        audit.change(&peer(), "put_names", &"ü".repeat(100_000), Ok((1, 0)));
        assert_eq!(details(&path)[0].chars().count(), MAX_TEXT + 4);
    }
}
