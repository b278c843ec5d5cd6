//! Named steps at which a test campaign kills a process: every write, sync, rename, send and acknowledgement of a
//! daemon, and of the commands that write what daemons read.
//!
//! Without the feature `crash-points`, as in the product, a step only calls its closure. With it, the environment
//! variable `FIBULA_CRASH` may name one moment, such as `before:image.rename:1`: the process kills itself with SIGKILL
//! before the first time that it would rename an image. `FIBULA_CRASH_SEEN` names a file to which each step appends its
//! name, so that a test can find unused names.
//!
//! Writes of SQLite are here, too, as `sqlite.write` and `sqlite.truncate`: see `controller::store`. It syncs inside a
//! checkpoint, where no step is possible; before and after the checkpoint are steps.

/// Every step of a controller.
pub const CONTROLLER: &[&str] = &[
    "store.remove",
    "store.create",
    "store.sync",
    "store.rename",
    "store.directory.sync",
    "log.create",
    "log.grow",
    "log.grow.sync",
    "log.directory.sync",
    "log.header.write",
    "log.header.sync",
    "log.record.write",
    "log.record.sync",
    "sqlite.write",
    "sqlite.truncate",
    "sqlite.commit",
    "sqlite.seal",
    "sqlite.checkpoint",
    "audit.append",
    "writer.answer",
    "writer.push",
    "session.send",
    "session.acknowledge",
    "stream.send",
    "request.answer",
];

/// Every step of a switch.
pub const SWITCH: &[&str] = &[
    "agent.hello",
    "agent.apply",
    "agent.acknowledge",
    "image.create",
    "image.write",
    "image.checksum.write",
    "image.sync",
    "image.rename",
    "image.directory.sync",
];

/// Every step of `fibula store backup`, `repair` and `restore`, in addition to those of a store.
pub const COPY: &[&str] =
    &["copy.remove", "copy.complete", "copy.rename", "copy.directory.sync", "restore.rename", "restore.directory.sync"];

/// Every step of `fibula pki`.
pub const PKI: &[&str] = &["pki.create", "pki.write", "pki.sync", "pki.rename", "pki.directory.sync"];

/// Steps that happen after another failure, after many changes, or once per second.
pub const RARE: &[&str] = &[
    "log.void.write",
    "log.void.sync",
    "log.shrink",
    "audit.sync",
    "audit.rotate.sync",
    "audit.rotate.rename",
    "image.set-aside",
];

/// Takes a step.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub fn step<R>(_name: &'static str, take: impl FnOnce() -> R) -> R {
    take()
}

/// Takes a step, unless the process is killed before it; it may be killed after it.
#[cfg(feature = "crash-points")]
pub fn step<R>(name: &'static str, take: impl FnOnce() -> R) -> R {
    let dies_after = planned::reach(name);
    let taken = take();
    if dies_after {
        planned::die();
    }
    taken
}

#[cfg(feature = "crash-points")]
mod planned {
    use std::io::Write;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    struct Plan {
        before: bool,
        name: String,
        nth: u64,
        taken: AtomicU64,
    }

    static PLAN: OnceLock<(Option<Plan>, Option<std::path::PathBuf>)> = OnceLock::new();

    fn plan() -> &'static (Option<Plan>, Option<std::path::PathBuf>) {
        PLAN.get_or_init(|| {
            let plan = std::env::var("FIBULA_CRASH").ok().and_then(|text| {
                let (side, rest) = text.split_once(':')?;
                let (name, nth) = rest.split_once(':')?;
                let (before, nth) = (side == "before", nth.parse().ok()?);
                Some(Plan { before, name: name.to_owned(), nth, taken: AtomicU64::new(0) })
            });
            (plan, std::env::var_os("FIBULA_CRASH_SEEN").map(Into::into))
        })
    }

    /// Whether the process is to be killed after this step.
    pub(super) fn reach(name: &'static str) -> bool {
        let (plan, seen) = plan();
        if let Some(seen) = seen {
            let file = std::fs::OpenOptions::new().create(true).append(true).open(seen);
            let _ = file.and_then(|mut file| file.write_all(format!("{name}\n").as_bytes()));
        }
        let Some(plan) = plan.as_ref().filter(|plan| plan.name == name) else { return false };
        let is_now = plan.taken.fetch_add(1, Relaxed) + 1 == plan.nth;
        if is_now && plan.before {
            die();
        }
        is_now
    }

    pub(super) fn die() -> ! {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        // The signal arrives before the call returns.
        std::process::abort()
    }
}
