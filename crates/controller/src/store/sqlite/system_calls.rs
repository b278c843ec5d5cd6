//! Each write of SQLite as a step at which a crash is tried: see [`api::crash`]. Built for tests alone.
#![expect(unsafe_code, reason = "SQLite takes its system calls as C functions")]

use api::crash::step;
use rusqlite::ffi::{sqlite3_syscall_ptr, sqlite3_vfs_find};
use std::ffi::{c_int, c_void};
use std::sync::Once;

type Write = unsafe extern "C" fn(c_int, *const c_void, usize) -> isize;
type Pwrite = unsafe extern "C" fn(c_int, *const c_void, usize, libc::off_t) -> isize;
type Ftruncate = unsafe extern "C" fn(c_int, libc::off_t) -> c_int;

/// As `write(2)`.
unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, len: usize) -> isize {
    // SAFETY: SQLite passes what `write` takes.
    step("sqlite.write", || unsafe { libc::write(fd, bytes, len) })
}

/// As `pwrite(2)`.
unsafe extern "C" fn pwrite(fd: c_int, bytes: *const c_void, len: usize, at: libc::off_t) -> isize {
    // SAFETY: SQLite passes what `pwrite` takes.
    step("sqlite.write", || unsafe { libc::pwrite(fd, bytes, len, at) })
}

/// As `ftruncate(2)`.
unsafe extern "C" fn ftruncate(fd: c_int, len: libc::off_t) -> c_int {
    // SAFETY: SQLite passes what `ftruncate` takes.
    step("sqlite.truncate", || unsafe { libc::ftruncate(fd, len) })
}

/// From now on SQLite writes through the functions above.
pub(super) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the default VFS of Unix takes system calls by these names and with these signatures; it casts the
        // pointers back to them (`aSyscall` in `os_unix.c`). The VFS lives as long as the process.
        unsafe {
            let vfs = sqlite3_vfs_find(std::ptr::null());
            let Some(set) = (*vfs).xSetSystemCall else { return };
            set(vfs, c"write".as_ptr(), std::mem::transmute::<Write, sqlite3_syscall_ptr>(write));
            // Which of the three SQLite was built to call depends on the platform. Files have offsets of 64 bits on all.
            for name in [c"pwrite", c"pwrite64"] {
                set(vfs, name.as_ptr(), std::mem::transmute::<Pwrite, sqlite3_syscall_ptr>(pwrite));
            }
            set(vfs, c"ftruncate".as_ptr(), std::mem::transmute::<Ftruncate, sqlite3_syscall_ptr>(ftruncate));
        }
    });
}
