//! What runs a daemon on this machine: the systemd unit that reads its configuration, and the process that locks its
//! state.
//!
//! Nothing is started, stopped or locked. Requests to systemd have a time limit; it answers even for units that were
//! never loaded.

use super::{Findings, PATIENCE};
use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// This directory exists if systemd runs this machine (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";
const PROPERTIES: &str = "--property=LoadState,ActiveState,SubState,Result,ExecMainStatus,ExecMainExitTimestamp,\
    ExecMainStartTimestamp,MainPID,UnitFileState,User,AmbientCapabilities,ProtectHome,ProtectSystem,ReadWritePaths,StateDirectory";

/// The exit code of a daemon whose command line, configuration or certificate is wrong.
const WRONG_CONFIGURATION: &str = "2";

/// The daemon of a configuration.
#[derive(Debug)]
pub(super) struct Service {
    /// The unit that reads the configuration, or why it is unknown.
    unit: Result<Unit, String>,
    /// The process that holds the lock on the state.
    holder: Option<Process>,
    /// Whether the daemon has left something there.
    has_state: bool,
    /// The command that runs it by hand.
    by_hand: String,
}

/// What systemd reports about a unit.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) name: String,
    properties: HashMap<String, String>,
}

/// A process, as the kernel shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) is_stopped: bool,
}

/// The state of a daemon, as far as this machine shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// It runs as this process.
    Runs(Process),
    /// It does not run.
    Down,
    /// Nothing on this machine shows its state.
    Unknown,
}

impl Service {
    /// The service of a configuration whose daemon locks this file.
    pub(super) fn of(path: &Path, daemon: &str, lock: Option<&Path>) -> Self {
        let unit = unit_of(path).ok_or_else(|| format!("no service reads {}", path.display()));
        Self {
            unit: unit.and_then(|name| Unit::load(&name)),
            holder: lock.and_then(holder),
            has_state: lock.is_some_and(Path::exists),
            by_hand: format!("fibula {daemon} --config {}", path.display()),
        }
    }

    pub(super) fn unit(&self) -> Option<&Unit> {
        self.unit.as_ref().ok()
    }

    /// The process of the daemon.
    pub(super) fn process(&self) -> Option<Process> {
        let of_unit = self.unit().and_then(|unit| unit.get("MainPID").parse().ok()).filter(|pid| *pid != 0);
        of_unit.and_then(Process::of).or_else(|| self.holder.clone())
    }

    pub(super) fn state(&self) -> State {
        match (self.process(), &self.unit) {
            (Some(process), _) => State::Runs(process),
            (None, Ok(_)) => State::Down,
            (None, Err(_)) if self.has_state => State::Down,
            (None, Err(_)) => State::Unknown,
        }
    }

    /// Commands that show its state, for the person who fixes it.
    pub(super) fn look(&self) -> String {
        match self.unit() {
            Some(Unit { name, .. }) => format!("systemctl status {name}; journalctl -e -u {name}"),
            None => "see its output where it was started".to_owned(),
        }
    }

    /// The command that restarts it.
    pub(super) fn restart(&self) -> String {
        self.unit().map_or_else(
            || format!("stop it and start it again: {}", self.by_hand),
            |Unit { name, .. }| format!("systemctl restart {name}"),
        )
    }

    /// Reports whether it runs. `answers`: whether its status page does.
    pub(super) fn look_at(&self, answers: bool, findings: &mut Findings) {
        let what = "service";
        if let Some(process) = self.process().filter(|process| process.is_stopped) {
            let (pid, look) = (process.pid, self.look());
            findings.bad(
                what,
                format!("process {pid} was stopped by a signal (SIGSTOP) or a debugger, and does nothing; kill -CONT {pid}; {look}"),
            );
            return;
        }
        match &self.unit {
            Ok(unit) => unit.look_at(self.has_state, self.holder.as_ref(), findings),
            Err(why) if answers => findings.untried(what, format!("{why}; but a daemon answers")),
            Err(why) => match self.state() {
                State::Runs(Process { pid, .. }) => {
                    findings.ok(what, format!("process {pid} runs, started by hand: {why}"));
                }
                State::Down => findings.bad(
                    what,
                    format!(
                        "the daemon has run here, but does not run now; start it with {}, since {why}",
                        self.by_hand
                    ),
                ),
                State::Unknown => findings.untried(what, format!("{why}; {} runs the daemon", self.by_hand)),
            },
        }
    }
}

impl Unit {
    fn load(name: &str) -> Result<Self, String> {
        if !Path::new(BOOTED).is_dir() {
            return Err("systemd does not run this machine".to_owned());
        }
        let text = output_of(Command::new("systemctl").args(["show", "--no-pager", PROPERTIES, "--", name]), PATIENCE)?;
        let unit = Self::parse(name, &text);
        match unit.get("LoadState") {
            "" => Err("the answer of systemctl is not understood".to_owned()),
            "not-found" => Err(format!("there is no unit {name}: the package is not installed")),
            _ => Ok(unit),
        }
    }

    fn parse(name: &str, text: &str) -> Self {
        let properties = text.lines().filter_map(|line| line.split_once('='));
        // Some versions report n/a for what has never happened.
        let properties = properties.filter(|(_, value)| *value != "n/a");
        let properties = properties.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect();
        Self { name: name.to_owned(), properties }
    }

    /// A property; empty if it has none.
    pub(super) fn get(&self, property: &str) -> &str {
        self.properties.get(property).map_or("", String::as_str)
    }

    /// Why it ended the last time, according to systemd.
    fn why(&self) -> String {
        let status = self.get("ExecMainStatus");
        match self.get("Result") {
            "exit-code" if status == WRONG_CONFIGURATION => {
                "exit code 2: its configuration or its certificate is wrong".to_owned()
            }
            "exit-code" => format!("exit code {status}"),
            "signal" | "core-dump" => format!("it was killed by signal {status}"),
            "watchdog" => "it sent no keep-alive".to_owned(),
            "timeout" => "it did not start, or did not stop, in time".to_owned(),
            "start-limit-hit" => "it ended too often in a row".to_owned(),
            "oom-kill" => "the kernel had no memory left".to_owned(),
            result => result.to_owned(),
        }
    }

    fn look_at(&self, has_state: bool, holder: Option<&Process>, findings: &mut Findings) {
        let (what, name, why) = ("service", &self.name, self.why());
        let look = format!("systemctl status {name}; journalctl -e -u {name}");
        if !matches!(self.get("LoadState"), "loaded" | "masked") {
            findings.bad(what, format!("systemd cannot use the unit {name}; systemctl status {name} shows why"));
            return;
        }
        match (self.get("ActiveState"), self.get("SubState")) {
            ("active" | "reloading", _) => {
                findings.ok(what, format!("{name} runs, as process {}", self.get("MainPID")));
                if self.get("UnitFileState") == "disabled" {
                    findings.warn(what, format!("{name} does not start at boot; systemctl enable {name}"));
                }
            }
            ("failed", _) => {
                let again = match self.get("Result") {
                    "start-limit-hit" => format!("systemctl reset-failed {name}; systemctl start {name}"),
                    _ => format!("systemctl restart {name}"),
                };
                findings.bad(what, format!("{name} has failed ({why}); {look}; once it is fixed: {again}"));
            }
            ("activating", "auto-restart" | "auto-restart-queued") => {
                findings.bad(what, format!("{name} fails repeatedly ({why}), and is restarted; {look}"));
            }
            ("activating", _) => findings.warn(what, format!("{name} is starting, and does not serve yet; {look}")),
            ("deactivating", _) => findings.warn(what, format!("{name} is stopping; check again in a moment")),
            _ if self.get("LoadState") == "masked" => {
                findings.bad(what, format!("{name} is masked; systemctl unmask {name}; systemctl enable --now {name}"));
            }
            _ if holder.is_some() => {
                let pid = holder.map_or(0, |process| process.pid);
                findings.warn(
                    what,
                    format!("process {pid} was started by hand and not as {name}, which cannot start meanwhile; stop it, then systemctl enable --now {name}"),
                );
            }
            // systemd forgets the history of a unit that nothing needs.
            _ if has_state || !self.get("ExecMainStartTimestamp").is_empty() => {
                let verb = if self.get("UnitFileState") == "enabled" { "start" } else { "enable --now" };
                findings
                    .bad(what, format!("{name} is stopped; systemctl {verb} {name}; to see why it stopped: {look}"));
            }
            _ => findings.warn(what, format!("{name} was never started; systemctl enable --now {name}")),
        }
    }
}

impl Process {
    pub(super) fn of(pid: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim();
        let is_stopped = field("State:").starts_with(['T', 't']);
        // The real uid, the effective one, and two more.
        let uid = field("Uid:").split_whitespace().nth(1)?.parse().ok()?;
        Some(Self { pid, name: field("Name:").to_owned(), uid, is_stopped })
    }
}

/// The package's unit that reads a configuration.
fn unit_of(path: &Path) -> Option<String> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if path == Path::new(super::CONTROLLER) {
        return Some("fibula-controller.service".to_owned());
    }
    let name = path.file_name()?.to_str()?.strip_suffix(".toml")?;
    (path.parent()? == Path::new(super::SWITCHES)).then(|| format!("fibula-switch@{name}.service"))
}

/// The lock file of the controller with this store.
pub(super) fn lock_of_store(store: &Path) -> PathBuf {
    let mut path = store.as_os_str().to_owned();
    path.push("-log");
    path.into()
}

/// The visible process that holds a lock on a file. The kernel lists locks by inode.
fn holder(path: &Path) -> Option<Process> {
    let inode = fs::metadata(path).ok()?.ino();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    holders(&locks, inode).filter_map(Process::of).find(|process| process.name.starts_with("fibula"))
}

fn holders(locks: &str, inode: u64) -> impl Iterator<Item = u32> {
    locks.lines().filter_map(move |line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, file, ..] = fields[..] else { return None };
        let of_file: u64 = file.rsplit(':').next()?.parse().ok()?;
        (of_file == inode).then(|| pid.parse().ok())?
    })
}

/// The standard output of a command, if it ends within this time. The command is killed after that.
fn output_of(command: &mut Command, patience: Duration) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = child.map_err(|error| format!("{program} cannot be run: {error}"))?;
    let (said, hears) = mpsc::channel();
    if let Some(mut stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut text = String::new();
            let read = stdout.read_to_string(&mut text);
            let _ = said.send(read.map(|_| text));
        });
    }
    let heard = hears.recv_timeout(patience);
    let _ = child.kill();
    let _ = child.wait();
    match heard {
        Ok(Ok(text)) => Ok(text),
        Ok(Err(error)) => Err(format!("the output of {program} cannot be read: {error}")),
        Err(_) => Err(format!("{program} does not answer in time")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Grade;

    const UNIT: &str = "fibula-switch@s1.service";

    fn found(text: &str, has_state: bool) -> Vec<(Grade, String)> {
        let mut findings = Findings::default();
        Unit::parse(UNIT, text).look_at(has_state, None, &mut findings);
        findings.rows.into_iter().map(|row| (row.grade, row.finding)).collect()
    }

    #[test]
    fn states_of_a_unit_are_told_apart_each_with_what_to_do() {
        let never =
            "LoadState=loaded\nActiveState=inactive\nSubState=dead\nResult=success\nExecMainStartTimestamp=n/a\n";
        for (text, has_state, grade, part) in [
            ("LoadState=loaded\nActiveState=active\nSubState=running\nMainPID=7\n", true, Grade::Ok, "process 7"),
            (
                "LoadState=loaded\nActiveState=failed\nResult=exit-code\nExecMainStatus=2\n",
                true,
                Grade::Bad,
                "exit code 2: its configuration",
            ),
            (
                "LoadState=loaded\nActiveState=failed\nResult=start-limit-hit\n",
                true,
                Grade::Bad,
                "systemctl reset-failed fibula-switch@s1.service",
            ),
            (
                "LoadState=loaded\nActiveState=activating\nSubState=auto-restart\nResult=signal\nExecMainStatus=9\n",
                true,
                Grade::Bad,
                "signal 9",
            ),
            ("LoadState=loaded\nActiveState=activating\nSubState=start\n", true, Grade::Warning, "does not serve yet"),
            (never, false, Grade::Warning, "was never started; systemctl enable --now"),
            (never, true, Grade::Bad, "is stopped"),
            (
                "LoadState=loaded\nActiveState=inactive\nUnitFileState=enabled\nExecMainStartTimestamp=Sat\n",
                false,
                Grade::Bad,
                "is stopped; systemctl start",
            ),
            ("LoadState=masked\nActiveState=inactive\n", false, Grade::Bad, "systemctl unmask"),
            ("LoadState=bad-setting\nActiveState=inactive\n", false, Grade::Bad, "cannot use the unit"),
        ] {
            let found = found(text, has_state);
            assert!(found[0].0 == grade && found[0].1.contains(part), "{text}: {found:?}");
        }
        let disabled = "LoadState=loaded\nActiveState=active\nMainPID=7\nUnitFileState=disabled\n";
        assert_eq!(found(disabled, true)[1].0, Grade::Warning);
    }

    #[test]
    fn a_configuration_is_of_the_unit_that_reads_it() {
        let unit = |path: &str| unit_of(Path::new(path));
        assert_eq!(unit("/etc/fibula/controller.toml").as_deref(), Some("fibula-controller.service"));
        assert_eq!(unit("/etc/fibula/switch/s-1.toml").as_deref(), Some("fibula-switch@s-1.service"));
        assert_eq!(unit("/tmp/controller.toml"), None);
    }

    #[test]
    fn who_holds_a_lock_is_read_as_the_kernel_lists_it() {
        let locks = "1: POSIX  ADVISORY  WRITE 1 fe:00:77 0 EOF\n2: FLOCK  ADVISORY  WRITE 22 fe:00:77 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 33 fe:00:770 0 EOF\n2: -> FLOCK  ADVISORY  WRITE 44 fe:00:77 0 EOF\n";
        assert_eq!(holders(locks, 77).collect::<Vec<_>>(), [22], "those who wait have it not");
    }

    #[test]
    fn a_command_that_does_not_answer_is_waited_for_no_longer_than_the_bound() {
        let long = Duration::from_secs(600);
        assert_eq!(output_of(Command::new("echo").arg("x=y"), long).as_deref(), Ok("x=y\n"));
        let error = output_of(Command::new("sleep").arg("1000"), Duration::from_millis(1)).unwrap_err();
        assert!(error.contains("does not answer in time"), "{error}");
        assert!(output_of(&mut Command::new("/no/such/program"), long).unwrap_err().contains("cannot be run"));
    }
}
