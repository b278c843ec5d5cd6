//! Runs the commands of a set one after another, each in a separate process, and stores what they print.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Map, Value};

use super::{FIGURES, Figures, Header, RECORDS, Record, RecordsError};
use crate::figures::store::Source;
use crate::machine::Machine;

/// What is to be recorded, and where.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Root of the source tree.
    pub root: PathBuf,
    /// The program that has the benches.
    pub program: PathBuf,
    /// Short name of this machine, such as `Zen 4`: the processor alone does not identify it.
    pub label: String,
    /// Name of a set in the definition of the figures.
    pub set: String,
    /// What else a reader should know of the machine, such as that it is shared.
    pub remark: Option<String>,
}

/// Runs what the record of this machine does not have yet. `say` receives progress messages.
/// # Errors
/// When the record is of another machine or commit, a file cannot be read or written, or some commands fail; then the
/// others have been recorded.
pub fn record(plan: &Plan, say: &mut dyn FnMut(&str)) -> Result<PathBuf, RecordsError> {
    let figures = Figures::read(&plan.root)?;
    let Some(commands) = figures.commands(&plan.set) else {
        let known = figures.sets.keys().cloned().collect::<Vec<_>>().join(", ");
        let reason = format!("no set {:?}: there are {known}", plan.set);
        return Err(RecordsError::malformed(&plan.root.join(FIGURES), reason));
    };
    let words = plan.label.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let id = words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-");
    let path = plan.root.join(RECORDS).join(id + ".jsonl");
    let done = open(plan, &path)?;
    let mut failed = Vec::new();
    for (at, command) in commands.iter().enumerate() {
        let full = format!("fibula {command}");
        let step = format!("[{}/{}] {full}", at + 1, commands.len());
        if done.contains(&full) {
            say(&format!("{step}: recorded before"));
            continue;
        }
        say(&step);
        match lines(plan, command, &full) {
            Ok(lines) => append(&path, &lines)?,
            Err(reason) => {
                say(&reason);
                failed.push(full);
            }
        }
    }
    if failed.is_empty() { Ok(path) } else { Err(RecordsError::Failed(failed)) }
}

/// Starts the record, or reads which commands it has.
fn open(plan: &Plan, path: &Path) -> Result<Vec<String>, RecordsError> {
    let machine = Machine::read().to_string();
    let header = Header {
        label: plan.label.clone(),
        machine: plan.remark.as_ref().map_or(machine.clone(), |remark| format!("{machine}; {remark}")),
        version: env!("CARGO_PKG_VERSION").into(),
        commit: source(&plan.root).commit,
        date: source(&plan.root).date,
    };
    if path.exists() {
        let record = Record::read(path)?;
        if record.header.commit != header.commit {
            let of = |header: &Header| format!("{} at commit {}", header.label, header.commit);
            let (found, here) = (of(&record.header), of(&header));
            return Err(RecordsError::OtherRecord { path: path.to_owned(), found, here });
        }
        return Ok(record.rows.into_iter().map(|row| row.command).collect());
    }
    append(path, &[serde_json::to_value(&header).expect("a header is plain text")])?;
    Ok(Vec::new())
}

/// The commit of a source tree, and today.
pub(crate) fn source(root: &Path) -> Source {
    Source { commit: commit(root), date: output("date", &["-u", "+%F"], root).unwrap_or_else(|| "unknown".into()) }
}

/// The commit of the tree, marked if the code has changes.
fn commit(root: &Path) -> String {
    let commit = output("git", &["rev-parse", "--short=7", "HEAD"], root).unwrap_or_else(|| "unknown".into());
    // From the top of the tree, wherever in it `root` is.
    let changes = output("git", &["status", "--porcelain", "--", ":/crates", ":/Cargo.lock"], root).unwrap_or_default();
    if changes.is_empty() { commit } else { commit + " with changes" }
}

fn output(program: &str, arguments: &[&str], folder: &Path) -> Option<String> {
    let output = Command::new(program).args(arguments).current_dir(folder).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The output of one command, as lines of a record.
fn lines(plan: &Plan, command: &str, full: &str) -> Result<Vec<Value>, String> {
    let is_bench = command.starts_with("bench ");
    let mut child = Command::new(&plan.program);
    for word in command.split_whitespace() {
        match word.strip_prefix('$') {
            Some(name) => child.arg(std::env::var_os(name).ok_or_else(|| format!("{name} is not set: skipped"))?),
            None => child.arg(word),
        };
    }
    if is_bench {
        child.arg("-j");
    }
    let output =
        child.stderr(Stdio::inherit()).output().map_err(|error| format!("{}: {error}", plan.program.display()))?;
    if !output.status.success() {
        return Err(format!("{full}: {}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut head = Map::from_iter([("command".to_owned(), Value::from(full))]);
    if !is_bench {
        head.insert("bench".into(), Value::from(command));
        head.insert("text".into(), Value::from(text.trim_end()));
        return Ok(vec![Value::Object(head)]);
    }
    let row = |line: &str| {
        let row: Map<String, Value> = serde_json::from_str(line).map_err(|error| format!("{full}: {error}"))?;
        Ok(Value::Object(head.clone().into_iter().chain(row).collect()))
    };
    text.lines().map(row).collect()
}

/// Appends lines in one write, so that a record ends with a complete command.
fn append(path: &Path, lines: &[Value]) -> Result<(), RecordsError> {
    let error = |error| RecordsError::File { path: path.to_owned(), error };
    fs::create_dir_all(path.parent().unwrap_or(path)).map_err(error)?;
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(error)?;
    file.write_all(text.as_bytes()).map_err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_the_code_mark_its_commit_from_wherever_in_the_tree() {
        let tree = tempfile::tempdir().unwrap();
        let inner = tree.path().join("crates/one");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("a.rs"), "1").unwrap();
        let git = |arguments: &[&str]| {
            let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
            let output = Command::new("git").args(who).args(arguments).current_dir(tree.path()).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        git(&["init", "-q"]);
        git(&["add", "."]);
        git(&["commit", "-q", "-m", "first"]);
        for folder in [tree.path(), &inner] {
            assert_eq!(commit(folder).len(), 7, "{}", commit(folder));
        }
        fs::write(inner.join("a.rs"), "2").unwrap();
        for folder in [tree.path(), &inner] {
            assert!(commit(folder).ends_with(" with changes"), "{}", commit(folder));
        }
    }
}
