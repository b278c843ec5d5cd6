//! Network namespaces on this machine: created in one batch, entered by a thread, removed when dropped.
//!
//! Every namespace of a run is called `fibula-PID-ROLE` (PID of the demo), so that a later run can recognise the
//! leftovers of a killed one: namespaces whose PID is no longer alive are removed with all processes inside.
//! Needs CAP_SYS_ADMIN and CAP_NET_ADMIN, and `ip` of iproute2.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const DIRECTORY: &str = "/run/netns";
const PREFIX: &str = "fibula-";

/// Why namespaces could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum NetnsError {
    #[error("cannot run `ip`: {0}; install iproute2")]
    NoIp(#[source] io::Error),
    #[error("`ip {arguments}` failed: {message}")]
    Ip { arguments: String, message: String },
    #[error("in the network namespace {name}")]
    Inside { name: String, source: io::Error },
}

/// The namespaces of one run.
#[derive(Debug)]
pub(super) struct Namespaces {
    prefix: String,
    names: Vec<String>,
}

impl Namespaces {
    /// Creates a namespace for every role, after removing those of dead runs. On an error none is left.
    pub(super) fn create<'a>(roles: impl IntoIterator<Item = &'a str>) -> Result<Self, NetnsError> {
        remove_leftovers()?;
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let mut this = Self { prefix, names: Vec::new() };
        let mut script = String::new();
        for role in roles {
            let name = format!("{}{role}", this.prefix);
            script.push_str(&format!("netns add {name}\n"));
            this.names.push(name);
        }
        ip_batch(None, &script)?;
        Ok(this)
    }

    /// The full name of the namespace of `role`.
    pub(super) fn name(&self, role: &str) -> String {
        format!("{}{role}", self.prefix)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.names {
            remove(name);
        }
    }
}

/// Whether this process may create namespaces and `ip` is installed; otherwise the reason.
pub(super) fn privileged() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("network namespaces need root".to_owned());
    }
    // Root in a container may lack CAP_SYS_ADMIN: try it rather than guess.
    Namespaces::create(["try"]).map(drop).map_err(|e| e.to_string())
}

/// Whether the kernel's neighbour table can hold what `n_hosts` hosts need when all talk to each other; if not, what to
/// do. All namespaces share that table, and its size is set outside them.
pub(super) fn check_neighbours(n_hosts: usize) -> Result<(), String> {
    let setting = std::fs::read_to_string("/proc/sys/net/ipv4/neigh/default/gc_thresh3");
    let max = setting.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(usize::MAX);
    let needed = n_hosts * (n_hosts - 1);
    if needed <= max {
        return Ok(());
    }
    Err(format!(
        "{n_hosts} hosts have {needed} neighbours together, and Linux keeps {max}: take fewer hosts, raise \
         net.ipv4.neigh.default.gc_thresh3, or use --in-process"
    ))
}

/// The namespace itself.
pub(super) fn open(name: &str) -> io::Result<File> {
    File::open(Path::new(DIRECTORY).join(name))
}

/// Moves the calling thread, and every thread and process that it starts later, into the namespace.
pub(super) fn enter(name: &str) -> Result<(), NetnsError> {
    open(name).and_then(|file| enter_file(&file)).map_err(|source| NetnsError::Inside { name: name.to_owned(), source })
}

/// As [`enter`]. Makes one system call; allocates nothing.
pub(super) fn enter_file(namespace: &File) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Runs `f` on a new thread inside the namespace. Sockets that it opens and returns stay in the namespace.
pub(super) fn within<T: Send>(name: &str, f: impl FnOnce() -> io::Result<T> + Send) -> Result<T, NetnsError> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter(name)?;
            f().map_err(|source| NetnsError::Inside { name: name.to_owned(), source })
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs the lines of `script` as `ip` commands in one process, inside `namespace` or in the current one.
pub(super) fn ip_batch(namespace: Option<&str>, script: &str) -> Result<(), NetnsError> {
    let mut arguments = Vec::new();
    if let Some(name) = namespace {
        arguments.extend(["-n", name]);
    }
    arguments.extend(["-batch", "-"]);
    run(&arguments, script).map(|_| ())
}

/// Runs one `ip` command and returns what it printed.
pub(super) fn ip(arguments: &[&str]) -> Result<String, NetnsError> {
    run(arguments, "").map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn run(arguments: &[&str], input: &str) -> Result<Output, NetnsError> {
    let mut child = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C is meant for the demo: it must not kill an `ip` that is cleaning up.
        .process_group(0)
        .spawn()
        .map_err(NetnsError::NoIp)?;
    // `ip -batch` prints nothing while it reads well-formed commands, so writing all before reading cannot deadlock.
    let written = child.stdin.take().expect("piped").write_all(input.as_bytes());
    let output = child.wait_with_output().map_err(NetnsError::NoIp)?;
    if output.status.success() && written.is_ok() {
        return Ok(output);
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(NetnsError::Ip { arguments: arguments.join(" "), message })
}

/// Removes a namespace and ends the processes in it. Never fails: it runs in destructors and on leftovers.
fn remove(name: &str) {
    let pids = ip(&["netns", "pids", name]).unwrap_or_default();
    let own = std::process::id().to_string();
    let pids: Vec<Pid> = pids
        .lines()
        .map(str::trim)
        .filter(|pid| *pid != own)
        .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
        .collect();
    for &pid in &pids {
        // If it is already gone, that is as good as killed.
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
    let deadline = Instant::now() + Duration::from_secs(1);
    while Instant::now() < deadline && pids.iter().any(|&pid| rustix::process::test_kill_process(pid).is_ok()) {
        std::thread::sleep(Duration::from_millis(5));
    }
    // It may not exist yet, or was removed by hand: either way nothing is left.
    let _ = ip(&["netns", "del", name]);
}

/// Removes the namespaces of demos that are no longer running. Call it before this run creates any.
fn remove_leftovers() -> Result<(), NetnsError> {
    let Ok(entries) = std::fs::read_dir(DIRECTORY) else { return Ok(()) };
    for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        if owner(&name).is_some_and(is_dead) {
            remove(&name);
        }
    }
    Ok(())
}

/// The PID in the name of a namespace of ours.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok()
}

/// Whether this PID belongs to a run that is over. Our own PID counts as dead: a process asks before it creates
/// anything under its PID, so what exists then is from an earlier process with the same PID.
pub(super) fn is_dead(pid: u32) -> bool {
    pid == std::process::id() || !is_running(pid)
}

fn is_running(pid: u32) -> bool {
    // A zombie's command line is empty.
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_have_an_owner() {
        assert_eq!(owner("fibula-123-h4"), Some(123));
        assert_eq!(owner("fibula-x-h4"), None);
        assert_eq!(owner("fibula-123"), None);
        assert_eq!(owner("my-net"), None);
    }

    #[test]
    fn a_dead_pid_is_not_running() {
        assert!(is_running(std::process::id()));
        // PIDs are below 2^22.
        assert!(!is_running(u32::MAX));
    }
}
