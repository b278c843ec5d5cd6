//! The controller and the switches as processes: started, watched, stopped.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::sys::die_with_parent;

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
}

/// The processes of a run. Dropping it ends them.
#[derive(Debug, Default)]
pub(super) struct Processes(Vec<Process>);

impl Processes {
    /// Starts this binary with `arguments` in the network namespace of the calling thread, which must live as long as
    /// the process is needed. Its output goes to `DIRECTORY/NAME.log`.
    pub(super) fn start(&mut self, directory: &Path, name: &str, arguments: &[&OsStr]) -> io::Result<()> {
        self.start_program(directory, name, std::env::current_exe()?.as_os_str(), arguments)
    }

    /// As [`Processes::start`], of another program.
    pub(super) fn start_program(
        &mut self,
        directory: &Path,
        name: &str,
        program: &OsStr,
        arguments: &[&OsStr],
    ) -> io::Result<()> {
        let log = directory.join(format!("{name}.log"));
        let output = File::create(&log)?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // Ctrl-C is meant for the demo, which ends its processes in order.
            .process_group(0);
        die_with_parent(&mut command);
        let child = command.spawn()?;
        self.0.push(Process { name: name.to_owned(), log, child });
        Ok(())
    }

    /// kill -9. From here on it need not run.
    pub(super) fn kill(&mut self, name: &str) -> io::Result<()> {
        let Some(at) = self.0.iter().position(|process| process.name == name) else { return Ok(()) };
        let mut process = self.0.remove(at);
        process.child.kill()?;
        process.child.wait().map(drop)
    }

    /// Fails if any process has ended.
    pub(super) fn check(&mut self) -> Result<(), Ended> {
        for process in &mut self.0 {
            if let Ok(Some(status)) = process.child.try_wait() {
                let log = tail(&process.log).unwrap_or_else(|e| format!("(cannot read it: {e})"));
                return Err(Ended { name: process.name.clone(), status, log });
            }
        }
        Ok(())
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
