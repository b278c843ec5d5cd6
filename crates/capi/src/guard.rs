//! No panic leaves the library: it becomes an error.

use crate::error::{Code, Error, Result, keep};
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of a function for C: its code, and the text of its error for this thread.
///
/// What panics within a lock or a [`Turn`](crate::reader::Turn) leaves it poisoned, so no caller sees half a change.
pub(crate) fn call(body: impl FnOnce() -> Result<()>) -> c_int {
    let body = || {
        #[cfg(test)]
        tests::panic_if_told();
        body()
    };
    let error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return Code::FIBULA_OK as c_int,
        Ok(Err(error)) => error,
        Err(panic) => {
            let said = panic.downcast_ref::<&str>().map(|said| (*said).to_owned());
            let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            // The value of a panic may panic again when it is dropped.
            std::mem::forget(panic);
            Error::new(Code::FIBULA_EPANIC, format!("a bug of libfibula: {said}; free the handle, and report this"))
        }
    };
    keep(error.text);
    error.code as c_int
}

/// A panic where a test wants one, inside whatever a function has locked.
pub(crate) fn checkpoint() {
    #[cfg(test)]
    tests::panic_inside_if_told();
}

#[cfg(test)]
mod tests {
    #![expect(unsafe_code, reason = "calls the functions for C")]

    use super::*;
    use crate::error::fibula_last_error;
    use crate::options::Options;
    use crate::reader::{fibula_reader_free, fibula_reader_lookup, fibula_reader_new};
    use crate::table::{fibula_table_count, fibula_table_free, fibula_table_new, fibula_table_set};
    use std::cell::Cell;
    use std::ffi::CStr;
    use std::ptr;

    thread_local! {
        static BEFORE: Cell<bool> = const { Cell::new(false) };
        static INSIDE: Cell<bool> = const { Cell::new(false) };
    }

    pub(super) fn panic_if_told() {
        assert!(!BEFORE.take(), "told to panic");
    }

    pub(super) fn panic_inside_if_told() {
        assert!(!INSIDE.take(), "told to panic inside");
    }

    fn said() -> String {
        // SAFETY: a text of this thread, which makes no call meanwhile.
        unsafe { CStr::from_ptr(fibula_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_an_error_and_poisons_what_it_left_half_done() {
        let options = Options::of(c"mac", 8, 100);
        let (mut table, mut reader, mut value, mut n) = (ptr::null_mut(), ptr::null_mut(), 0, 0);
        let name = [2u8, 0, 0, 0, 0, 1].as_ptr().cast();
        // SAFETY: the pointers are to variables of this test and to handles that it has not freed.
        unsafe {
            assert_eq!(fibula_table_new(&options, &mut table), 0, "{}", said());
            assert_eq!(fibula_table_set(table, name, 6, 7), 0);
            assert_eq!(fibula_reader_new(table, &mut reader), 0);

            BEFORE.set(true);
            assert_eq!(fibula_table_set(table, name, 6, 8), Code::FIBULA_EPANIC as c_int);
            assert!(said().contains("told to panic"), "{}", said());
            assert_eq!(fibula_reader_lookup(reader, name, 6, &mut value), 0);
            assert_eq!((fibula_table_count(table, &mut n), n, value), (0, 1, 7), "nothing was begun");

            INSIDE.set(true);
            assert_eq!(fibula_reader_lookup(reader, name, 6, &mut value), Code::FIBULA_EPANIC as c_int);
            assert_eq!(fibula_reader_lookup(reader, name, 6, &mut value), Code::FIBULA_EPANIC as c_int);
            assert!(said().contains("earlier call"), "{}", said());
            assert_eq!(fibula_reader_free(reader), 0);
            assert_eq!(fibula_reader_new(table, &mut reader), 0, "another reader of the table works");

            INSIDE.set(true);
            assert_eq!(fibula_table_set(table, name, 6, 9), Code::FIBULA_EPANIC as c_int);
            assert_eq!(fibula_table_set(table, name, 6, 9), Code::FIBULA_EPANIC as c_int);
            assert_eq!(fibula_table_count(table, &mut n), Code::FIBULA_EPANIC as c_int);
            assert!(said().contains("earlier call"), "{}", said());
            assert_eq!(fibula_reader_lookup(reader, name, 6, &mut value), Code::FIBULA_EPANIC as c_int);
            assert_eq!(fibula_reader_free(reader), 0);
            assert_eq!(fibula_table_free(table), 0);
        }
    }
}
