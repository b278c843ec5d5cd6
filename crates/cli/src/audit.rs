//! `fibula audit show`: the audit trail, as a running controller answers, or read from the files of a controller or a
//! switch. The table names each action by the command that performs it.

use crate::remote::{Client, Remote, answer};
use api::audit::{LineError, Outcome, Record, records};
use api::v1;
use api::words::counted;
use command::output::{Exit, Failure, Output};
use controller::config::Config;
use serde::Serialize;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Arguments of `fibula audit`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Show who changed what and who was turned away, oldest first
    ///
    /// Asks the controller, which takes the role admin, unless --config or --file names files of this machine.
    Show {
        /// Read the files of the controller of this machine that has this configuration
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Read this audit trail; a switch keeps its own in `audit.jsonl` in its state_dir
        #[arg(long, value_name = "FILE", conflicts_with = "config")]
        file: Option<PathBuf>,
        /// Show at most this many, the latest ones
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
        /// Only from this time on: 2026-11-24, 2026-11-24T06:00:00Z, or 90s, 30m, 12h or 7d ago
        #[arg(long, value_name = "TIME", value_parser = since)]
        since: Option<OffsetDateTime>,
        /// Only those by this name
        #[arg(long, value_name = "NAME")]
        who: Option<String>,
        /// Only those with this outcome: done, refused, unanswered or turned-away
        #[arg(long, value_name = "OUTCOME", value_parser = outcome_of)]
        outcome: Option<Outcome>,
        #[command(flatten)]
        remote: Remote,
    },
}

#[derive(Serialize)]
struct Row {
    time: String,
    who: String,
    role: String,
    from: String,
    what: String,
    detail: String,
    outcome: Outcome,
    changed: u64,
    reason: String,
}

fn outcome_of(text: &str) -> Result<Outcome, String> {
    serde_json::from_value(text.into()).map_err(|_| "write done, refused, unanswered or turned-away".to_owned())
}

fn since(text: &str) -> Result<OffsetDateTime, String> {
    let wrong = || "write a time like 2026-11-24, 2026-11-24T06:00:00Z, 30m, 12h or 7d".to_owned();
    // A date stands for its first moment.
    let moment = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.to_owned() };
    if let Ok(time) = OffsetDateTime::parse(&moment, &Rfc3339) {
        return Ok(time);
    }
    let (digits, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let n: u32 = digits.parse().map_err(|_| wrong())?;
    Ok(OffsetDateTime::from(api::clock::now()) - Duration::from_secs(u64::from(n) * seconds))
}

impl Args {
    /// # Errors
    /// Exit code 2 if the configuration is not usable, 4 if the file does not exist, 5 if it may not be read, 6 if a
    /// line is damaged; the other lines are shown.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        let Verb::Show { config, file, limit, since, who, outcome, remote } = self.verb;
        let path = match (file, config) {
            (Some(file), _) => file,
            (None, Some(config)) => {
                crate::laboratory::hand_over_if_named_in(&config);
                crate::remote::config(Config::load(&config))?.audit_path()
            }
            (None, None) => return remote.run(|client| ask(client, (since, who, outcome, limit), out)),
        };
        let cannot = |error: std::io::Error| {
            let exit = if error.kind() == ErrorKind::PermissionDenied { Exit::Refused } else { Exit::NotFound };
            let text = format!("{} cannot be read: {error}; name the file with --file, or --config", path.display());
            Failure::new(exit, text)
        };
        let (mut rows, mut unreadable) = (Vec::new(), Vec::new());
        for record in records(&path).map_err(cannot)? {
            let record = match record {
                Ok(record) => record,
                Err(damaged @ LineError::Damaged { .. }) => {
                    unreadable.push(damaged);
                    continue;
                }
                Err(error) => return Err(Failure::new(Exit::BadInput, error.to_string())),
            };
            let is_late_enough =
                |since: OffsetDateTime| OffsetDateTime::parse(&record.time, &Rfc3339).is_ok_and(|time| time >= since);
            if since.is_none_or(is_late_enough)
                && who.as_ref().is_none_or(|who| *who == record.who)
                && outcome.is_none_or(|outcome| outcome == record.outcome)
            {
                rows.push(Row::from(record));
            }
        }
        let n_older = rows.len().saturating_sub(limit as usize);
        print(&rows[n_older..], n_older > 0, out)?;
        let Some(first) = unreadable.first() else { return Ok(()) };
        let others = match unreadable.len() - 1 {
            0 => String::new(),
            n => format!(", and {n} others are"),
        };
        Err(Failure::new(Exit::CheckFailed, format!("{first}{others}; the lines above are whole")))
    }
}

async fn ask(
    mut client: Client,
    (since, who, outcome, limit): (Option<OffsetDateTime>, Option<String>, Option<Outcome>, u32),
    out: &Output,
) -> anyhow::Result<()> {
    let since_ms = since.map_or(0, |since| u64::try_from(since.unix_timestamp_nanos() / 1_000_000).unwrap_or(0));
    let outcome = outcome.and_then(|outcome| serde_json::to_value(outcome).ok());
    let outcome = outcome.and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default();
    let ask = v1::ShowAuditRequest { since_ms, who: who.unwrap_or_default(), outcome, limit };
    let v1::AuditPage { records, more, damaged } = answer(client.show_audit(ask).await)?;
    let row = |record: v1::AuditRecord| {
        let v1::AuditRecord { time, who, role, from, what, detail, outcome: ended, changed, reason } = record;
        let ended = outcome_of(&ended).map_err(|why| Failure::new(Exit::Internal, format!("{ended}: {why}")))?;
        Ok(Row { time, who, role, from, what, detail, outcome: ended, changed, reason })
    };
    print(&records.into_iter().map(row).collect::<anyhow::Result<Vec<_>>>()?, more, out)?;
    match damaged {
        0 => Ok(()),
        n => Err(Failure::new(
            Exit::CheckFailed,
            format!("{} of the trail damaged; the lines above are whole", counted(n, "line is", "lines are")),
        )),
    }
}

/// A record in the table.
#[derive(Serialize)]
struct Shown {
    time: String,
    who: String,
    from: String,
    did: String,
    ended: String,
}

impl From<&Row> for Shown {
    fn from(row: &Row) -> Self {
        let outcome = serde_json::to_value(row.outcome).ok().and_then(|word| word.as_str().map(str::to_owned));
        let ended = outcome.unwrap_or_default();
        let ended = match (&*row.reason, row.changed) {
            ("", 0) if row.outcome == Outcome::Done => "unchanged".to_owned(),
            ("", n) if n > 1 => format!("{ended}: {n} changed"),
            ("", _) => ended,
            (reason, _) => format!("{ended}: {reason}"),
        };
        // To the second; JSON has the exact time. A process of this machine is identified by its number.
        let time = row.time.split_once('.').map_or(&*row.time, |(second, _)| second).replace('T', " ");
        let from = row.from.rsplit_once(':').map_or(&*row.from, |(host, _)| host);
        let from = if row.from.starts_with("unix:") { "this machine" } else { from }.to_owned();
        Shown { time, who: row.who.clone(), from, did: did(&row.what, &row.detail), ended }
    }
}

/// Maximum width of the table.
const WIDEST: usize = 100;

fn print(rows: &[Row], more: bool, out: &Output) -> anyhow::Result<()> {
    out.rows_within(rows, |row| Shown::from(row), WIDEST)?;
    if more {
        eprintln!("there are older records; raise --limit, or give --since, --who or --outcome");
    }
    Ok(())
}

/// The kinds of records, and the command that makes each.
const VERBS: [(&str, &str); 30] = [
    ("add_switch", "switch add"),
    ("add_switches", "switch add"),
    ("accept_switches", "switch accept"),
    ("remove_switch", "switch del"),
    ("drain_switch", "switch drain"),
    ("undrain_switch", "switch undrain"),
    ("add_host", "host add"),
    ("add_hosts", "host add"),
    ("accept_hosts", "host accept"),
    ("forget_host", "host forget"),
    ("remove_host", "host del"),
    ("add_link", "link add"),
    ("add_links", "link add"),
    ("accept_links", "link accept"),
    ("set_link", "link set"),
    ("drain_link", "link drain"),
    ("undrain_link", "link undrain"),
    ("remove_link", "link del"),
    ("see_links", "link seen"),
    ("add_names", "name add"),
    ("put_names", "name set"),
    ("import_names", "name import"),
    ("remove_names", "name del"),
    ("learn", "name learnt"),
    ("set_log", "log"),
    ("set_drained", "controller drain"),
    ("drain", "controller drain"),
    ("resume", "controller resume"),
    ("flush_flows", "flow flush"),
    ("change_server", "flow server"),
];

/// The action in the words of the command that performs it. For requests that were turned away, the name of the service
/// comes before.
fn did(what: &str, detail: &str) -> String {
    let asked = what.rsplit('/').next().unwrap_or(what);
    // `DrainLink` as `drain_link`.
    let snake = asked.chars().fold(String::new(), |mut text, c| {
        if c.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(c.to_ascii_lowercase());
        text
    });
    let verb = VERBS.iter().find(|(name, _)| *name == snake).map_or(what, |(_, verb)| *verb);
    format!("{verb} {detail}").trim_end().to_owned()
}

impl From<Record> for Row {
    fn from(record: Record) -> Self {
        let Record { time, who, role, from, what, detail, outcome, changed, mut reason, times, .. } = record;
        if times > 1 {
            reason = format!("{reason} ({times} times)");
        }
        Row { time, who, role, from, what, detail, outcome, changed, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_told_in_the_words_of_commands() {
        for (what, detail, told) in [
            ("drain_switch", "s1", "switch drain s1"),
            ("put_names", "02:00:00:00:00:01 at h1", "name set 02:00:00:00:00:01 at h1"),
            ("/fibula.v1.Northbound/DrainLink", "", "link drain"),
            ("AcceptHosts", "", "host accept"),
            ("rekey", "another hash key", "rekey another hash key"),
            ("GET /metrics", "", "GET /metrics"),
        ] {
            assert_eq!(did(what, detail), told);
        }
    }

    #[test]
    fn times_are_absolute_or_ago() {
        let at = |text| since(text).unwrap().unix_timestamp();
        assert_eq!(at("1970-01-02"), 86_400);
        assert_eq!(at("1970-01-01T01:00:00+01:00"), 0);
        let now = OffsetDateTime::from(api::clock::now()).unix_timestamp();
        assert!((0..60).contains(&(now - 7200 - at("2h"))));
        for wrong in ["", "h", "2", "yesterday", "2026-13-01", "-1h"] {
            assert!(since(wrong).is_err(), "{wrong}");
        }
    }
}
