//! Conversion of a caller's pointers.
#![expect(unsafe_code, reason = "pointers of a caller become references and slices")]

use crate::error::{Error, Result};
use std::ffi::{CStr, c_char, c_void};

/// The bytes at a pointer.
/// # Safety
/// Converts a non-NULL pointer to this many bytes, which no thread changes for `'a`.
pub(crate) unsafe fn bytes<'a>(what: &str, at: *const c_void, len: usize) -> Result<&'a [u8]> {
    // SAFETY: the caller's.
    unsafe { slice(what, at.cast(), len) }
}

/// The values at a pointer.
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn slice<'a, T>(what: &str, at: *const T, len: usize) -> Result<&'a [T]> {
    if len == 0 {
        return Ok(&[]);
    }
    check(what, at, len)?;
    // SAFETY: the caller's; it is aligned, and no longer than memory can be.
    Ok(unsafe { std::slice::from_raw_parts(at, len) })
}

/// The values that a function writes.
/// # Safety
/// Converts a non-NULL pointer to this many values, which only this function uses for `'a`.
pub(crate) unsafe fn output<'a, T>(what: &str, at: *mut T, len: usize) -> Result<&'a mut [T]> {
    if len == 0 {
        return Ok(&mut []);
    }
    check(what, at, len)?;
    // SAFETY: the caller's; it is aligned, and no longer than memory can be. Values of C need no initialisation to be
    // written.
    Ok(unsafe { std::slice::from_raw_parts_mut(at, len) })
}

/// A text; `None` for NULL.
/// # Safety
/// Converts a non-NULL pointer to a NUL-terminated text, which no thread changes for `'a`.
pub(crate) unsafe fn text<'a>(what: &str, at: *const c_char) -> Result<Option<&'a str>> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's.
    let text = unsafe { CStr::from_ptr(at) }.to_str();
    text.map(Some).map_err(|_| Error::argument(format!("{what} is no UTF-8 text")))
}

/// Refuses a pointer that cannot point to this many values.
pub(crate) fn check<T>(what: &str, at: *const T, len: usize) -> Result<()> {
    if at.is_null() {
        return Err(Error::argument(format!("{what} is NULL: give the address of a variable")));
    }
    if !at.is_aligned() {
        return Err(Error::argument(format!("{what} is not aligned: it is not a pointer to what it should be")));
    }
    match len.checked_mul(size_of::<T>()) {
        Some(n_bytes) if n_bytes <= isize::MAX as usize => Ok(()),
        _ => Err(Error::argument(format!("{what} has {len} elements, more than memory can have"))),
    }
}
