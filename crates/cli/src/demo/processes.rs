//! The controller, the switches and what hosts run as processes: started, watched, stopped.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::netns;
use super::sys::{die_with_parent, run_in};

/// A process has this long to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// How much of a log goes into an error message.
const LOG_TAIL_BYTES: u64 = 2000;

/// A process of the demo that ended when it should not have.
#[derive(Debug, thiserror::Error)]
#[error("{name} ended with {status}; the end of its log:\n{log}")]
pub(super) struct Ended {
    pub(super) name: String,
    pub(super) status: ExitStatus,
    pub(super) log: String,
}

#[derive(Debug)]
struct Process {
    name: String,
    log: PathBuf,
    child: Child,
    may_end: bool,
}

/// What is to run.
#[derive(Debug)]
pub(super) struct Program<'a> {
    /// Of the process and its log.
    pub(super) name: &'a str,
    /// Looked for in PATH, and where programs of administrators are.
    pub(super) program: &'a OsStr,
    pub(super) arguments: &'a [&'a OsStr],
    /// The network namespace; that of the calling thread if absent.
    pub(super) namespace: Option<&'a str>,
    /// Whether its work is done at some time. Otherwise it fails when it ends.
    pub(super) may_end: bool,
}

/// PATH, and where programs of administrators are.
pub(super) fn search_path() -> OsString {
    let path = std::env::var_os("PATH").filter(|path| !path.is_empty());
    let mut path = path.unwrap_or_else(|| "/usr/bin:/bin".into());
    path.push(":/usr/sbin:/sbin");
    path
}

/// The processes of a run. Dropping it ends them.
#[derive(Debug, Default)]
pub(super) struct Processes(Vec<Process>);

impl Processes {
    /// Starts this binary with `arguments` in the network namespace of the calling thread. As [`Processes::start_program`].
    pub(super) fn start(&mut self, directory: &Path, name: &str, arguments: &[&OsStr]) -> io::Result<()> {
        let program = std::env::current_exe()?;
        let program = Program { name, program: program.as_os_str(), arguments, namespace: None, may_end: false };
        self.start_program(directory, &program)
    }

    /// Starts a program. The calling thread must live as long as it is needed. Its output goes to `DIRECTORY/NAME.log`.
    pub(super) fn start_program(&mut self, directory: &Path, program: &Program<'_>) -> io::Result<()> {
        let Program { name, may_end, .. } = *program;
        let log = directory.join(format!("{name}.log"));
        let output = File::create(&log)?;
        let mut command = Command::new(program.program);
        command
            .args(program.arguments)
            .env("PATH", search_path())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // Ctrl-C is meant for the demo, which ends its processes in order.
            .process_group(0);
        die_with_parent(&mut command);
        if let Some(namespace) = program.namespace {
            run_in(&mut command, netns::open(namespace)?);
        }
        let child = command.spawn()?;
        self.0.push(Process { name: name.to_owned(), log, child, may_end });
        Ok(())
    }

    /// kill -9. From here on it need not run.
    pub(super) fn kill(&mut self, name: &str) -> io::Result<()> {
        let Some(at) = self.0.iter().position(|process| process.name == name) else { return Ok(()) };
        let mut process = self.0.remove(at);
        process.child.kill()?;
        process.child.wait().map(drop)
    }

    /// Fails if any process has ended that should not have.
    pub(super) fn check(&mut self) -> Result<(), Ended> {
        // One that was waited for leaves: its PID may be another's from then on. Of several that failed, the others are told of by
        // the next call.
        let mut at = 0;
        while let Some(Process { name, log, child, may_end }) = self.0.get_mut(at) {
            let Ok(Some(status)) = child.try_wait() else {
                at += 1;
                continue;
            };
            let failed = (!(*may_end && status.success())).then(|| {
                let log = tail(log).unwrap_or_else(|e| format!("(cannot read it: {e})"));
                Ended { name: name.clone(), status, log }
            });
            self.0.remove(at);
            if let Some(failed) = failed {
                return Err(failed);
            }
        }
        Ok(())
    }

    /// Whether a process of that name was started and has not been seen to end.
    pub(super) fn is_running(&self, name: &str) -> bool {
        self.0.iter().any(|process| process.name == name)
    }

    /// Resident memory of each process in bytes, by name.
    pub(super) fn resident_bytes(&self) -> Vec<(String, u64)> {
        self.0
            .iter()
            .filter_map(|process| {
                let status = std::fs::read_to_string(format!("/proc/{}/status", process.child.id())).ok()?;
                let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
                let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
                Some((process.name.clone(), kib * 1024))
            })
            .collect()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        // Newest first: the switches before their controller.
        for process in self.0.iter().rev() {
            if let Some(pid) = Pid::from_raw(process.child.id() as i32) {
                // It is not reaped yet, so the PID is still its own; it may have ended already.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        let deadline = Instant::now() + GRACE;
        for process in &mut self.0 {
            while matches!(process.child.try_wait(), Ok(None)) {
                if Instant::now() > deadline {
                    // If it has ended meanwhile, that is as good as killed.
                    let _ = process.child.kill();
                    let _ = process.child.wait();
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(LOG_TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
