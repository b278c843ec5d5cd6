//! Errors as codes and texts.
#![expect(unsafe_code, reason = "names of functions without mangling")]

use fib::file::FibError;
use lookup::traits::{ApplyError, DecodeError, InsertError, ShareError};
use std::cell::RefCell;
use std::ffi::{CString, c_char};

/// What functions return. `fibula_last_error` says it in words, with what to do.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(non_camel_case_types, reason = "these are the names in the header, which is made from this")]
pub enum Code {
    /// Done.
    FIBULA_OK = 0,
    /// An argument is NULL, of the wrong length, or out of range.
    FIBULA_EINVAL = -1,
    /// The table does not have this name.
    FIBULA_ENOENT = -2,
    /// The table has as many names as it may have.
    FIBULA_EFULL = -3,
    /// The name finds no place under this hash key: create the table again, with another key.
    FIBULA_EPLACE = -4,
    /// A thread in the middle of a lookup keeps old memory from being used again. The change waits: fibula_table_sync carries it
    /// out later.
    FIBULA_EAGAIN = -5,
    /// No memory.
    FIBULA_ENOMEM = -6,
    /// A file cannot be made or written.
    FIBULA_EIO = -7,
    /// An earlier update was lost, or the update is of another table: create the follower again from an export.
    FIBULA_EGAP = -8,
    /// These bytes are damaged, or not from this library.
    FIBULA_EDAMAGED = -9,
    /// The reader is in use by another thread.
    FIBULA_EBUSY = -10,
    /// A follower changes by fibula_table_apply only.
    FIBULA_EFOLLOWER = -11,
    /// The design or the width of the values does not allow this.
    FIBULA_EUNSUPPORTED = -12,
    /// A bug of the library. The handle is of no use any more: free it.
    FIBULA_EPANIC = -13,
}

/// Why a function failed.
#[derive(Debug)]
pub(crate) struct Error {
    pub(crate) code: Code,
    pub(crate) text: String,
}

impl Error {
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// A wrong argument.
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(Code::FIBULA_EINVAL, text)
    }

    /// A handle in which something panicked before.
    pub(crate) fn poisoned() -> Self {
        Self::new(Code::FIBULA_EPANIC, "the library failed in an earlier call with this handle: free it")
    }
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl From<InsertError> for Error {
    fn from(error: InsertError) -> Self {
        let code = match error {
            InsertError::TooManyNames { .. } => Code::FIBULA_EFULL,
            InsertError::ValueTooWide { .. } => Code::FIBULA_EINVAL,
            _ => Code::FIBULA_EPLACE,
        };
        Self::new(code, error.to_string())
    }
}

impl From<ApplyError> for Error {
    fn from(error: ApplyError) -> Self {
        let code = match error {
            ApplyError::ReadersStalled { .. } => Code::FIBULA_EAGAIN,
            ApplyError::ArenaFull { .. } => Code::FIBULA_ENOMEM,
            _ => Code::FIBULA_EGAP,
        };
        Self::new(code, error.to_string())
    }
}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Self {
        Self::new(Code::FIBULA_EDAMAGED, format!("an update that cannot be read: {error}"))
    }
}

impl From<FibError> for Error {
    fn from(error: FibError) -> Self {
        Self::new(Code::FIBULA_EDAMAGED, error.to_string())
    }
}

impl From<ShareError> for Error {
    fn from(error: ShareError) -> Self {
        match error {
            ShareError::Apply(error) => error.into(),
            ShareError::Memory(_) => Self::new(Code::FIBULA_EIO, error.to_string()),
            _ => Self::new(Code::FIBULA_EUNSUPPORTED, error.to_string()),
        }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps the text of an error for this thread.
pub(crate) fn keep(text: String) {
    let mut bytes = text.into_bytes();
    bytes.retain(|byte| *byte != 0);
    let text = CString::new(bytes).unwrap_or_default();
    // A thread that ends has no text any more.
    let _ = LAST.try_with(|last| last.replace(text));
}

/// What went wrong in the last call of this thread that failed, and what to do about it. Valid until the next call that
/// fails in this thread; empty if none failed. Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn fibula_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The version of the library that runs, as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn fibula_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
