//! What campaigns did and found, by version and over all their records: `docs/reliability/records`, to which `scripts/campaign` appends a
//! line of JSON for each run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{RecordsError, read};

/// The folder of the records.
const FOLDER: &str = "docs/reliability/records";

/// What is told of each kind of run: its fields, and what they count.
const DONE: &[(&str, &str, &str)] = &[
    ("simulation", "seeds", "simulated systems, each with a seed of its own"),
    ("simulation", "requests_answered", "requests answered in them"),
    ("simulation", "messages", "messages to switches in them"),
    ("simulation", "checks", "answers of switches compared in them"),
    ("simulation", "frames", "frames followed from host to host in them"),
    ("simulation", "crashes", "crashes in them"),
    ("simulation", "faults", "other faults in them"),
    ("leaders", "seeds", "simulated groups of three controllers on one etcd, each with a seed of its own"),
    ("leaders", "acknowledged", "changes acknowledged in them"),
    ("leaders", "followed", "commits followed in them"),
    ("leaders", "misfortunes", "requests to etcd that something befell in them"),
    ("crash", "kills", "processes killed before or after a named step"),
    ("crash", "stops", "daemons stopped in order between the kills"),
    ("crash", "requests", "requests acknowledged, and looked for after the kills"),
    ("crash", "checks", "answers of switches and of saved images compared after the kills"),
    ("flips", "flips", "bits flipped in files, one at a time"),
    ("fuzz", "executions", "inputs to fuzz targets"),
];

/// The kinds of runs.
const KINDS: [&str; 5] = ["simulation", "leaders", "crash", "flips", "fuzz"];

/// All runs of all records.
pub(super) struct Campaigns(Vec<Value>);

impl Campaigns {
    /// Reads the records of a source tree; it may have none.
    pub(super) fn read(root: &Path) -> Result<Campaigns, RecordsError> {
        let Ok(files) = fs::read_dir(root.join(FOLDER)) else { return Ok(Campaigns(Vec::new())) };
        let mut paths: Vec<_> = files.filter_map(|file| Some(file.ok()?.path())).collect();
        paths.retain(|path| path.extension().is_some_and(|ending| ending == "jsonl"));
        paths.sort();
        let mut runs = Vec::new();
        for path in paths {
            for (at, line) in read(&path)?.lines().enumerate() {
                let run: Value = serde_json::from_str(line)
                    .map_err(|error| RecordsError::malformed(&path, format!("line {}: {error}", at + 1)))?;
                runs.push(run);
            }
        }
        Ok(Campaigns(runs))
    }

    /// The text for what follows `campaign/` in a marker.
    pub(super) fn resolve(&self, what: &str) -> Result<String, String> {
        match what {
            "done" => Ok(self.done()),
            "fuzz" => Ok(self.targets()),
            "hours" => Ok(self.hours()),
            "moments" => Ok(grouped(self.of("crash").map(|run| number(run, "all_moments")).fold(0.0, f64::max))),
            _ => Err(format!("campaign/{what} is none of campaign/done, /fuzz, /hours and /moments")),
        }
    }

    fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |run| run["kind"] == kind)
    }

    /// A table of what was done with the newest version, and with all.
    fn done(&self) -> String {
        let newest = self.versions().last().map_or("", |(version, ..)| *version);
        let mut text = format!("\n| | {newest} | all |\n|---|---:|---:|\n");
        for (kind, field, what) in DONE {
            if self.of(kind).any(|run| !run[field].is_null()) {
                let of = |runs: &mut dyn Iterator<Item = &Value>| grouped(runs.map(|run| number(run, field)).sum());
                let (new, all) =
                    (of(&mut self.of(kind).filter(|run| run["version"] == newest)), of(&mut self.of(kind)));
                let _ = writeln!(text, "| {what} | {new} | {all} |");
            }
        }
        text
    }

    /// The versions that ran, in the order in which they began, each with its first day and its runs.
    fn versions(&self) -> Vec<(&str, &str, Vec<&Value>)> {
        let mut versions: Vec<(&str, &str, Vec<&Value>)> = Vec::new();
        for run in &self.0 {
            let (date, version) = (run["date"].as_str().unwrap_or(""), run["version"].as_str().unwrap_or(""));
            match versions.iter_mut().find(|(known, ..)| *known == version) {
                Some((_, first, runs)) => {
                    *first = date.min(first);
                    runs.push(run);
                }
                None => versions.push((version, date, vec![run])),
            }
        }
        versions.sort_by_key(|(_, first, runs)| (*first, runs.first().and_then(|run| run["began"].as_str())));
        versions
    }

    /// The version that began last; none if nothing ran.
    pub(super) fn newest(&self) -> Option<&str> {
        self.versions().last().map(|(version, ..)| *version)
    }

    /// A table of the versions: the hours of each kind, and what was found.
    fn hours(&self) -> String {
        let mut text = format!("\n| version | since | {} | all | runs that found something |\n", KINDS.join(" | "));
        let _ = writeln!(text, "|---|---|{}---:|---:|", "---:|".repeat(KINDS.len()));
        for (version, first, runs) in self.versions() {
            let hours = |kind: Option<&str>| {
                let of_kind = runs.iter().filter(|run| kind.is_none_or(|kind| run["kind"] == kind));
                let seconds: f64 = of_kind.map(|run| number(run, "seconds")).sum();
                if seconds > 0.0 { format!("{:.2}", seconds / 3600.0) } else { String::new() }
            };
            let found: f64 = runs.iter().map(|run| number(run, "findings")).sum();
            let of_kinds = KINDS.map(|kind| hours(Some(kind))).join(" | ");
            let _ = writeln!(text, "| {version} | {first} | {of_kinds} | {} | {} |", hours(None), grouped(found));
        }
        text
    }

    /// A table of the fuzz targets.
    fn targets(&self) -> String {
        let mut targets: BTreeMap<&str, [f64; 4]> = BTreeMap::new();
        for run in self.of("fuzz") {
            let [executions, edges, seconds, findings] =
                targets.entry(run["target"].as_str().unwrap_or("")).or_default();
            *executions += number(run, "executions");
            *edges = edges.max(number(run, "edges"));
            *seconds += number(run, "seconds");
            *findings += number(run, "findings");
        }
        let mut text =
            String::from("\n| target | inputs | edges covered | seconds | findings |\n|---|---:|---:|---:|---:|\n");
        for (target, counts) in targets {
            let [executions, edges, seconds, findings] = counts.map(grouped);
            let _ = writeln!(text, "| {target} | {executions} | {edges} | {seconds} | {findings} |");
        }
        text
    }
}

/// A number, or the sum of those of an object.
fn number(run: &Value, field: &str) -> f64 {
    match &run[field] {
        Value::Object(counts) => counts.values().filter_map(Value::as_f64).sum(),
        number => number.as_f64().unwrap_or(0.0),
    }
}

/// A whole number with its thousands apart.
fn grouped(number: f64) -> String {
    // The sum of nothing is -0.
    let digits = format!("{:.0}", number + 0.0);
    let first = digits.len() % 3;
    let (head, tail) = digits.split_at(first);
    let groups = tail.as_bytes().chunks(3).map(|group| String::from_utf8_lossy(group).into_owned());
    let groups: Vec<String> = Some(head.to_owned()).filter(|head| !head.is_empty()).into_iter().chain(groups).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_summed_by_kind() {
        let runs = r#"
            {"version":"a","date":"2026-11-24","kind":"crash","kills":700,"all_moments":750,"seconds":1800,"findings":0}
            {"version":"b","date":"2026-11-25","kind":"crash","kills":800,"all_moments":752,"seconds":1800,"findings":1}
            {"version":"b","date":"2026-11-25","kind":"simulation","crashes":{"disk":2,"switch":3},"seconds":0,"findings":0}
            {"version":"b","date":"2026-11-25","kind":"fuzz","target":"saved","executions":1000000,"edges":5,"seconds":60,"findings":0}
        "#;
        let runs = Campaigns(runs.trim().lines().map(|line| serde_json::from_str(line).expect("a run")).collect());
        let done = runs.resolve("done").expect("a table");
        for line in [
            "| | b | all |",
            "| processes killed before or after a named step | 800 | 1,500 |",
            "| inputs to fuzz targets | 1,000,000 | 1,000,000 |",
            "| crashes in them | 5 | 5 |",
        ] {
            assert!(done.contains(line), "{line} in {done}");
        }
        assert!(!done.contains("flipped"), "nothing is told of what did not run: {done}");
        let hours = runs.resolve("hours").expect("a table");
        assert!(hours.contains("| a | 2026-11-24 |  |  | 0.50 |  |  | 0.50 | 0 |"), "{hours}");
        assert!(hours.contains("| b | 2026-11-25 |  |  | 0.50 |  | 0.02 | 0.52 | 1 |"), "{hours}");
        assert_eq!(runs.newest(), Some("b"));
        assert_eq!(runs.resolve("moments").expect("a number"), "752");
        assert!(runs.resolve("fuzz").expect("a table").contains("| saved | 1,000,000 | 5 | 60 | 0 |"));
        runs.resolve("other").expect_err("no such text");
    }
}
