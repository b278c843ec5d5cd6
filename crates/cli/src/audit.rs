//! `fibula audit show`: the audit trail of a controller or a switch, read from its files.

use api::audit::{LineError, Outcome, Record, records};
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
    /// Show who changed what and who was turned away, the oldest first, on the machine of the daemon
    Show {
        /// Configuration of the controller, which names the file
        #[arg(long, value_name = "FILE", default_value = "/etc/fibula/controller.toml")]
        config: PathBuf,
        /// The audit trail itself: of a switch, `audit.jsonl` in its state_dir
        #[arg(long, value_name = "FILE", conflicts_with = "config")]
        file: Option<PathBuf>,
        /// From this time on: 2026-11-24, 2026-11-24T06:00:00Z, or 90s, 30m, 12h or 7d ago
        #[arg(long, value_name = "TIME", value_parser = since)]
        since: Option<OffsetDateTime>,
        /// By this name
        #[arg(long, value_name = "NAME")]
        who: Option<String>,
        /// That ended so: done, refused, unanswered or turned-away
        #[arg(long, value_name = "OUTCOME", value_parser = outcome)]
        outcome: Option<Outcome>,
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

fn outcome(text: &str) -> Result<Outcome, String> {
    serde_json::from_value(text.into()).map_err(|_| "write done, refused, unanswered or turned-away".to_owned())
}

fn since(text: &str) -> Result<OffsetDateTime, String> {
    let wrong = || "write a time like 2026-11-24, 2026-11-24T06:00:00Z, 30m, 12h or 7d".to_owned();
    // A day is its first moment.
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
    /// Exit code 2 for a configuration that is not usable, 4 if there is no such file, 5 if it may not be read, 6 if a line is
    /// damaged: the others are shown.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        let Verb::Show { config, file, since, who, outcome } = self.verb;
        let path = match file {
            Some(file) => file,
            None => crate::remote::config(Config::load(&config))?.audit_path(),
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
        out.rows(&rows)?;
        let Some(first) = unreadable.first() else { return Ok(()) };
        let others = match unreadable.len() - 1 {
            0 => String::new(),
            n => format!(", and {n} others are"),
        };
        Err(Failure::new(Exit::CheckFailed, format!("{first}{others}; the lines above are whole")))
    }
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
