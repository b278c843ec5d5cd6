//! Network namespaces: networks of interfaces that nothing else sees, for tests and benches.
#![expect(unsafe_code, reason = "unshare(2) has no safe binding for one thread, nor has gettid(2)")]

/// Moves this thread into a network namespace of its own. Returns the thread's id, by which `ip` finds the namespace.
/// # Errors
/// Without the privilege.
pub fn enter() -> std::io::Result<i32> {
    // SAFETY: no pointers; only this thread changes its namespace.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        // SAFETY: no arguments.
        0 => Ok(unsafe { libc::gettid() }),
        _ => Err(std::io::Error::last_os_error()),
    }
}
