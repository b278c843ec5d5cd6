//! The audit trail of a daemon: every change and every refused attempt, as one JSON object per line.
//!
//! Changes go to one file, and refused attempts to another, `FILE.refused`, so that a flood of refusals cannot push out
//! changes. For each source, the first ten attempts in a minute get their own lines; the others are summed up in one.
//! A line is appended with one write before the change is answered, so it survives a crash of the process. It is synced
//! to disk within a second: a power cut may lose the lines of the last second, for changes that are in the store. The
//! log reports changes, too, at most ten per second; `unsaid` counts the others.
//! When a file has reached its size it is renamed to `FILE.1`, that one to `FILE.2`, and so on; the oldest is removed.
//! Lines have a bounded length, both when written and when read.
//! A line ends with a checksum of its contents, so that damage is detected. It does not prevent tampering by someone
//! who may write the file.
//! If a line cannot be written, the daemon continues; the log says so, and the metric `fibula_audit_failures_total`
//! counts it.

mod read;
mod sums;
mod trail;

pub use read::{LineError, records};

use crate::clock;
use crate::gate::{Attempt, Peer};
use crate::seam;
use crate::status::{MetricsText, plain};
use crate::throttle::Throttle;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use sums::{Source, Sums};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use trail::Trail;

/// Maximum time until a written line is synced to disk.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// Maximum length of a text field, in characters.
const MAX_TEXT: usize = 300;

/// The section `[audit]` of a daemon's configuration.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The file; beside the daemon's state if absent.
    pub file: Option<PathBuf>,
    /// Size in bytes after which a new file is started, for changes and for refusals.
    pub max_bytes: u64,
    /// Number of full files to keep of each.
    pub keep: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { file: None, max_bytes: 16 << 20, keep: 8 }
    }
}

impl Settings {
    /// # Errors
    /// Checks the ranges; the error names the number that is out of range.
    pub fn check(&self) -> Result<(), String> {
        let in_range = (4096..=1 << 40).contains(&self.max_bytes) && (1..=1000).contains(&self.keep);
        if in_range {
            return Ok(());
        }
        Err("[audit] is out of range; write max_bytes = 4096 to 1099511627776 and keep = 1 to 1000".to_owned())
    }
}

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The change was made.
    Done,
    /// The caller has permission, but the change is not possible.
    Refused,
    /// The change was passed on to another process, which has not answered.
    Unanswered,
    /// The caller lacks permission.
    TurnedAway,
}

/// One line of the trail.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The time, in RFC 3339 format and UTC.
    pub time: String,
    /// The name in the certificate; `uid:NUMBER`, `loopback`, `anyone` or `-`.
    pub who: String,
    /// The role in the certificate.
    pub role: String,
    /// Address and port; `unix:pid=NUMBER` is the process at the other end of a Unix socket.
    pub from: String,
    /// The request.
    pub what: String,
    /// Its arguments, abbreviated.
    pub detail: String,
    /// The outcome.
    pub outcome: Outcome,
    /// Number of objects changed.
    pub changed: u64,
    /// Number of objects that needed no change.
    pub unchanged: u64,
    /// The reason, unless the outcome is `done`.
    pub reason: String,
    /// The number of attempts: more than one in a summary of refusals to one source, of which this is the last.
    #[serde(default = "once")]
    pub times: u64,
}

fn once() -> u64 {
    1
}

impl Record {
    /// The time in milliseconds since 1970; none if it cannot be parsed.
    pub fn at_ms(&self) -> Option<u64> {
        let at = OffsetDateTime::parse(&self.time, &Rfc3339).ok()?;
        u64::try_from(at.unix_timestamp_nanos() / 1_000_000).ok()
    }
}

/// The files of the trail.
#[derive(Debug)]
pub struct Audit {
    changes: Trail,
    refusals: Trail,
    sums: Sums,
    lines: AtomicU64,
    failures: AtomicU64,
    throttle: Throttle,
}

impl Audit {
    /// Opens the file of `settings`, or else `default`, for appending.
    /// # Errors
    /// When it cannot be opened or created.
    pub fn open(settings: &Settings, default: &Path) -> io::Result<Arc<Self>> {
        let path = settings.file.clone().unwrap_or_else(|| default.to_owned());
        let refusals = Trail::open(trail::of_refusals(&path), settings)?;
        let changes = Trail::open(path, settings)?;
        let (lines, failures) = (AtomicU64::new(0), AtomicU64::new(0));
        let (sums, throttle) = (Sums::default(), Throttle::default());
        Ok(Arc::new(Self { changes, refusals, sums, lines, failures, throttle }))
    }

    /// Syncs written lines for as long as `audit` is in use. Needs a runtime.
    pub fn keep_synced(audit: &Arc<Self>) {
        let audit = Arc::downgrade(audit);
        tokio::spawn(async move {
            let mut tick = tokio::time::interval(SYNC_EVERY);
            loop {
                tick.tick().await;
                let Some(audit) = audit.upgrade() else { return };
                let synced = move || {
                    audit.sum_up(Some(seam::now()));
                    audit.sync();
                };
                let _ = tokio::task::spawn_blocking(synced).await;
            }
        });
    }

    /// Continues in the files that now have these names, which are new if the old ones were renamed. The old ones are
    /// synced and closed.
    /// # Errors
    /// A file cannot be opened or created; the trail then continues in the old one.
    pub fn reopen(&self) -> io::Result<()> {
        self.sync();
        self.changes.reopen()?;
        self.refusals.reopen()
    }

    /// Applies `max_bytes` and `keep` of changed settings; the file stays. Full files beyond `keep` are removed.
    /// # Errors
    /// A file cannot be removed; the sizes apply nevertheless.
    pub fn set_sizes(&self, settings: &Settings) -> io::Result<()> {
        let changes = self.changes.set_sizes(settings);
        self.refusals.set_sizes(settings).and(changes)
    }

    /// The path of the file of changes.
    pub fn path(&self) -> &Path {
        self.changes.path()
    }

    /// Waits until every line so far is on the disk.
    pub fn sync(&self) {
        for trail in [&self.changes, &self.refusals] {
            if let Err(error) = trail.sync() {
                self.fail(trail, &error);
            }
        }
    }

    fn fail(&self, trail: &Trail, error: &io::Error) {
        self.failures.fetch_add(1, Relaxed);
        // Only once, until a line is written again.
        if trail.fails() {
            let path = trail.path().display();
            tracing::error!(%path, %error, "the audit trail cannot be written; changes are not recorded until it can");
        }
    }

    /// Writes the summaries that are complete: those a minute old, or all if no time is given.
    fn sum_up(&self, now: Option<Instant>) {
        for record in self.sums.take(now) {
            self.append(&self.refusals, &Record { time: time(), ..record });
        }
    }

    /// Appends the outcome of a change: objects changed and unchanged, or the reason of a refusal.
    pub fn change(&self, peer: &Peer, what: &str, detail: &str, end: Result<(u64, u64), &str>) {
        match end {
            Ok(counts) => self.end(peer, what, detail, Outcome::Done, counts, ""),
            Err(reason) => self.end(peer, what, detail, Outcome::Refused, (0, 0), reason),
        }
    }

    /// Appends a change that was passed on to another process, which has not answered.
    pub fn unanswered(&self, peer: &Peer, what: &str, detail: &str, reason: &str) {
        self.end(peer, what, detail, Outcome::Unanswered, (0, 0), reason);
    }

    fn end(&self, peer: &Peer, what: &str, detail: &str, outcome: Outcome, counts: (u64, u64), reason: &str) {
        let (changed, unchanged) = counts;
        if let Some(unsaid) = self.throttle.pass() {
            tracing::info!(who = peer.name(), from = %peer.address(), what, detail, changed, reason, unsaid, "change");
        }
        let record = Record {
            time: time(),
            who: peer.name().to_owned(),
            role: peer.role(),
            from: peer.address().to_string(),
            what: what.to_owned(),
            detail: clip(detail),
            outcome,
            changed,
            unchanged,
            reason: clip(reason),
            times: 1,
        };
        match outcome {
            Outcome::Refused => self.refuse(Source::new(&record.who, peer.address()), record, seam::now()),
            _ => self.append(&self.changes, &record),
        }
    }

    /// Appends a rejected attempt.
    pub fn attempt(&self, attempt: &Attempt<'_>) {
        self.attempt_at(attempt, seam::now());
    }

    fn attempt_at(&self, attempt: &Attempt<'_>, now: Instant) {
        let record = Record {
            time: time(),
            who: attempt.peer.map_or("-", Peer::name).to_owned(),
            role: attempt.peer.map_or_else(|| "none".to_owned(), Peer::role),
            from: attempt.from.to_string(),
            what: clip(attempt.what),
            detail: String::new(),
            outcome: Outcome::TurnedAway,
            changed: 0,
            unchanged: 0,
            reason: clip(attempt.reason),
            times: 1,
        };
        self.refuse(Source::new(&record.who, attempt.from), record, now);
    }

    /// Appends a refusal, or adds it to the summary of its source.
    fn refuse(&self, source: Source, record: Record, now: Instant) {
        self.sum_up(Some(now));
        if let Some(record) = self.sums.add(source, record, now) {
            self.append(&self.refusals, &record);
        }
    }

    fn append(&self, trail: &Trail, record: &Record) {
        match trail::sealed(record).and_then(|line| trail.append(&line)) {
            Ok(()) => _ = self.lines.fetch_add(1, Relaxed),
            Err(error) => self.fail(trail, &error),
        }
    }

    /// Metrics of it.
    pub fn metrics(&self, text: &mut MetricsText) {
        let (lines, failures) = (self.lines.load(Relaxed), self.failures.load(Relaxed));
        text.counter("fibula_audit_lines_total", "Lines written to the audit trail.", plain(lines));
        text.counter(
            "fibula_audit_failures_total",
            "Lines of the audit trail that could not be written.",
            plain(failures),
        );
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.sum_up(None);
        self.sync();
    }
}

/// The current time, in the format of a record.
fn time() -> String {
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
    use super::trail::{numbered, of_refusals};
    use super::*;
    use crate::address::Origin;
    use crate::gate::{Turned, Who};
    use std::fs::{self, OpenOptions};

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
    fn sizes_that_change_are_kept_from_the_next_line_on_and_files_beyond_them_go() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let settings = Settings { max_bytes: 4096, keep: 5, ..Settings::default() };
        let audit = Audit::open(&settings, &path).unwrap();
        let say = |n: usize| (0..n).for_each(|i| audit.change(&peer(), "put_names", &format!("{i}"), Ok((1, 0))));
        let full = || (1..10).filter(|&n| numbered(&path, n).exists()).count();
        say(150);
        assert_eq!(full(), 5);
        audit.set_sizes(&Settings { keep: 2, ..settings.clone() }).unwrap();
        assert_eq!(full(), 2, "at once, not when the next file is full");
        say(150);
        assert_eq!(full(), 2);
        audit.set_sizes(&Settings { max_bytes: 1 << 20, keep: 2, ..settings }).unwrap();
        say(150);
        assert!(fs::metadata(&path).unwrap().len() > 4096);
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
    fn renamed_file_is_let_go_and_each_line_is_in_one_of_both() {
        let directory = tempfile::tempdir().unwrap();
        let (path, old) = (directory.path().join("audit.jsonl"), directory.path().join("old"));
        let audit = Audit::open(&Settings::default(), &path).unwrap();
        let say = |detail: &str| audit.change(&peer(), "put_names", detail, Ok((1, 0)));
        say("before");
        fs::rename(&path, &old).unwrap();
        say("meanwhile");
        audit.reopen().unwrap();
        say("after");
        assert_eq!(
            (details(&old), details(&path)),
            (vec!["before".to_owned(), "meanwhile".to_owned()], vec!["after".to_owned()])
        );
    }

    #[test]
    fn long_texts_are_cut() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let audit = Audit::open(&Settings::default(), &path).unwrap();
        audit.change(&peer(), "put_names", &"ü".repeat(100_000), Ok((1, 0)));
        assert_eq!(details(&path)[0].chars().count(), MAX_TEXT + 4);
    }

    fn attempt(from: Origin, what: &str) -> Attempt<'_> {
        Attempt { turned: Turned::Role, peer: None, from, what, reason: "no" }
    }

    #[test]
    fn whoever_is_refused_as_often_as_they_like_pushes_no_change_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let settings = Settings { max_bytes: 4096, keep: 2, ..Settings::default() };
        let audit = Audit::open(&settings, &path).unwrap();
        audit.change(&peer(), "drain_switch", "what an admin did", Ok((1, 0)));
        let start = Instant::now();
        // A day of attempts, from one address after another, and of changes that are refused.
        for minute in 0..24 * 60 {
            let now = start + Duration::from_secs(60 * minute);
            for address in 0..3 {
                let from = Origin::Tcp(([10, 0, minute as u8, address], 7).into());
                (0..20).for_each(|i| audit.attempt_at(&attempt(from, &"x".repeat(i)), now));
            }
        }
        (0..1000).for_each(|i| audit.change(&peer(), "remove_names", &format!("{i}"), Err("there is no such name")));
        assert!(details(&path).iter().any(|detail| detail == "what an admin did"));
        let of_refusals = of_refusals(&path);
        assert!(numbered(&of_refusals, 2).exists() && !numbered(&of_refusals, 3).exists());
        assert!(!numbered(&path, 1).exists(), "no refusal is among the changes");
    }

    #[test]
    fn of_one_source_ten_refusals_a_minute_have_lines_and_the_others_are_summed_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let audit = Audit::open(&Settings::default(), &path).unwrap();
        let start = Instant::now();
        let [noisy, other] = [1, 2].map(|host| Origin::Tcp(([10, 0, 0, host], 7).into()));
        for i in 0..500 {
            // Another port each time.
            let from = Origin::Tcp(([10, 0, 0, 1], 1000 + i).into());
            audit.attempt_at(&attempt(from, &format!("{i}")), start);
        }
        audit.attempt_at(&attempt(other, "once"), start);
        let lines = || records(&path).unwrap().map(Result::unwrap).collect::<Vec<_>>();
        assert_eq!(lines().len(), 11, "the sum is not complete");
        audit.sum_up(Some(start + Duration::from_secs(61)));
        let sums: Vec<Record> = lines().into_iter().filter(|record| record.times > 1).collect();
        let [sum] = &sums[..] else { panic!("{sums:?}") };
        assert_eq!((sum.times, &sum.what[..], &sum.from[..9]), (490, "499", &noisy.to_string()[..9]));
        assert_eq!(lines().iter().map(|record| record.times).sum::<u64>(), 501, "each is counted");
        // What is not complete at the end is written then.
        (0..20).for_each(|_| audit.attempt_at(&attempt(noisy, "again"), start + Duration::from_secs(62)));
        drop(audit);
        assert_eq!(lines().iter().map(|record| record.times).sum::<u64>(), 521);
    }

    #[test]
    fn a_crowd_of_sources_is_summed_up_as_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let audit = Audit::open(&Settings::default(), &path).unwrap();
        let start = Instant::now();
        for source in 0..20_000_u32 {
            audit.attempt_at(&attempt(Origin::Tcp((source.to_be_bytes(), 7).into()), "x"), start);
        }
        audit.sum_up(None);
        let lines: Vec<Record> = records(&path).unwrap().map(Result::unwrap).collect();
        assert!(lines.len() < 300, "{} lines", lines.len());
        assert_eq!(lines.iter().map(|record| record.times).sum::<u64>(), 20_000);
        assert!(lines.iter().any(|record| record.from == "others"));
    }

    #[test]
    fn changes_and_refusals_are_shown_in_the_order_of_their_times() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let audit = Audit::open(&Settings::default(), &path).unwrap();
        for i in 0..9 {
            let end = if i % 2 == 0 { Ok((1, 0)) } else { Err("no") };
            audit.change(&peer(), "put_names", &format!("{i}"), end);
        }
        assert_eq!(details(&path), ["0", "1", "2", "3", "4", "5", "6", "7", "8"]);
    }

    #[test]
    fn no_line_is_longer_than_one_that_is_read() {
        let text = "\u{1}".repeat(100_000);
        let record = Record {
            time: time(),
            who: "x".repeat(63),
            role: "controller".to_owned(),
            from: "x".repeat(100),
            what: clip(&text),
            detail: clip(&text),
            outcome: Outcome::TurnedAway,
            changed: u64::MAX,
            unchanged: u64::MAX,
            reason: clip(&text),
            times: u64::MAX,
        };
        assert!(trail::sealed(&record).unwrap().len() < read::MAX_LINE);
    }
}
