//! Processes of `fibula` that may kill themselves at a moment, and limits for whatever waits for them.

use crate::site::Crash;
use crate::support::{FIBULA, PATIENCE};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How `fibula` is run.
#[derive(Clone)]
pub(crate) struct Binary {
    /// Where its log goes.
    pub(crate) log: PathBuf,
    /// Where the steps go that it takes, if they are asked for.
    pub(crate) seen: Option<PathBuf>,
    /// A mistake that it makes, by the name in `api::seam`.
    pub(crate) mistake: Option<&'static str>,
}

impl Binary {
    fn command(&self, arguments: &[&str], crash: Option<&Crash>) -> Command {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&self.log).unwrap();
        let mut command = Command::new(FIBULA);
        command.args(arguments).env("FIBULA_LOG", "info").stdin(Stdio::null()).stderr(log);
        let crash = crash.map(Crash::to_string);
        command.envs(crash.map(|crash| ("FIBULA_CRASH", crash)));
        command.envs(self.seen.as_ref().map(|seen| ("FIBULA_CRASH_SEEN", seen)));
        command.envs(self.mistake.map(|mistake| ("FIBULA_MISTAKE", mistake)));
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str], crash: Option<&Crash>) -> ExitStatus {
        let child = self.command(arguments, crash).stdout(Stdio::null()).spawn().unwrap();
        self.daemon(child).ended(&format!("`fibula {}`", arguments.join(" ")))
    }

    /// Starts a daemon, to be killed at that moment; returns when it serves, or has ended before.
    pub(crate) fn start(&self, arguments: &[&str], crash: Option<&Crash>) -> Started {
        let mut child = self.command(arguments, crash).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let mut daemon = self.daemon(child);
        let (said, says) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = said.send(BufReader::new(stdout).read_line(&mut line).map(|_| line));
        });
        let what = || format!("the start of `fibula {}`", arguments.join(" "));
        let line = says.recv_timeout(PATIENCE).unwrap_or_else(|_| never(&what(), &self.log)).unwrap();
        match line.is_empty() {
            true => Started::Ended(daemon.ended(&what())),
            false => Started::Serves(daemon),
        }
    }

    fn daemon(&self, child: Child) -> Daemon {
        Daemon { child, log: self.log.clone() }
    }
}

/// How a process ended, or that it serves.
pub(crate) enum Started {
    Serves(Daemon),
    Ended(ExitStatus),
}

/// A process; killed when dropped.
pub(crate) struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until it has ended by itself.
    pub(crate) fn ended(&mut self, why: &str) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            if began.elapsed() >= PATIENCE {
                never(&format!("the end of a process: {why}"), &self.log);
            }
            #[expect(clippy::disallowed_methods, reason = "a process can only be polled")]
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    /// SIGTERM.
    pub(crate) fn stop(mut self) -> ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        self.ended("SIGTERM")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a process killed itself; otherwise it ended well.
pub(crate) fn is_kill(status: ExitStatus, what: &str) -> bool {
    let killed = status.signal() == Some(9);
    assert!(killed || status.success(), "{what}: {status}");
    killed
}

/// What should have happened did not: says what can be known of it.
pub(crate) fn never(what: &str, log: &Path) -> ! {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    let last = lines[lines.len().saturating_sub(200)..].join("\n");
    panic!("not within {PATIENCE:?}: {what}\n{}log:\n{last}", children());
}

/// The threads of our child processes, each with its state and where it waits in the kernel.
fn children() -> String {
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let entries = |path: &str| std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let field = |status: &str, name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim().to_owned()
    };
    let own = std::process::id().to_string();
    let is_ours = |process: &PathBuf| field(&read(process.join("status")), "PPid:") == own;
    let mut text = String::new();
    for process in entries("/proc").filter(is_ours) {
        let line = read(process.join("cmdline")).replace('\0', " ");
        text += &format!("process {}: {line}\n", process.display());
        for thread in entries(&process.join("task").to_string_lossy()) {
            let status = read(thread.join("status"));
            let (name, state) = (field(&status, "Name:"), field(&status, "State:"));
            let [at, call] = ["wchan", "syscall"].map(|file| read(thread.join(file)));
            text += &format!("  thread {name}: {state}, in {at}, system call {call}\n");
        }
    }
    text
}
