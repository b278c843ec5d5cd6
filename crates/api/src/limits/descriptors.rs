//! The number of files and connections that the system lets this process have open.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Descriptors that a daemon needs in addition to its connections: files, devices, timers of the runtime.
const OTHERS: u64 = 64;

/// Raises the limit of this process to the maximum that the system allows, and returns how many connections each of
/// this many listeners can have.
pub fn raise_descriptors(connections: usize, n_listeners: usize) -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit.current = limit.maximum,
            Err(error) => tracing::warn!(%error, "the limit of open files cannot be raised"),
        }
    }
    let Some(files) = limit.current else { return connections };
    let n_listeners = n_listeners.max(1);
    let fit = (usize::try_from(files.saturating_sub(OTHERS)).unwrap_or(usize::MAX) / n_listeners).max(1);
    if fit < connections {
        let needed = (connections * n_listeners) as u64 + OTHERS;
        tracing::warn!(
            files,
            connections = fit,
            "fewer open files are allowed than limits.connections = {connections} at each of {n_listeners} listeners needs; allow {needed} (ulimit -n, or LimitNOFILE of systemd)"
        );
    }
    fit.min(connections)
}
