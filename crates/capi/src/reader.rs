//! Functions of a thread that looks names up.
#![expect(unsafe_code, reason = "functions that C calls")]
#![expect(clippy::missing_safety_doc, reason = "the header says for all functions what pointers lead to")]

use crate::error::{Code, Error, Result};
use crate::guard;
use crate::pointers;
use crate::store::Lookups;
use crate::table::{ReaderId, Shared, Table, in_locked};
use fib::designs::BURST;
use fib::name::{MAX_TEXT, NameKind};
use lookup::hash::{Digest, Hasher};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// How a reader begins, so that another pointer is noticed.
const MARK: u32 = 0xF1BA_0002;
const FREE: u8 = 0;
const IN_USE: u8 = 1;
const POISONED: u8 = 2;
/// A thread that changes the table takes the reader offline: for a few instructions.
const RESTING: u8 = 3;

/// A thread's access to a table. The mark is first, as in a table: one is not taken for the other.
// Not as a plain attribute: cbindgen would show the fields in the header.
#[cfg_attr(all(), repr(C))]
pub struct Reader {
    mark: AtomicU32,
    state: AtomicU8,
    body: Body,
}

struct Body {
    hasher: Hasher,
    kind: NameKind,
    shared: Arc<Shared>,
    id: ReaderId,
    lookups: Box<Lookups>,
}

impl Drop for Body {
    fn drop(&mut self) {
        self.shared.leave(&self.id);
    }
}

/// The use of a reader by one thread, for a call.
struct Turn<'a> {
    state: &'a AtomicU8,
    body: &'a mut Body,
}

impl<'a> Turn<'a> {
    /// # Safety
    /// A pointer that is not NULL is to a reader that is not freed meanwhile.
    unsafe fn of(reader: *mut Reader) -> Result<Turn<'a>> {
        pointers::check("the reader", reader, 1)?;
        // SAFETY: the caller's. Fields are reached one by one, since another thread may have the body.
        let (mark, state) = unsafe { (&(*reader).mark, &(*reader).state) };
        if mark.load(Ordering::Relaxed) != MARK {
            return Err(Error::argument("this is not a reader: give one of fibula_reader_new that is not freed"));
        }
        let taken = loop {
            match state.compare_exchange(FREE, IN_USE, Ordering::Acquire, Ordering::Relaxed) {
                Err(RESTING) => std::thread::yield_now(),
                taken => break taken,
            }
        };
        match taken {
            Ok(_) => {}
            Err(IN_USE) => {
                let text = "another thread uses this reader: make one for each thread by fibula_reader_new";
                return Err(Error::new(Code::FIBULA_EBUSY, text));
            }
            Err(_) => return Err(Error::poisoned()),
        }
        // SAFETY: the thread that changes the state to IN_USE has exclusive use of the body, until the turn ends.
        let turn = Turn { state, body: unsafe { &mut (*reader).body } };
        if turn.body.shared.is_poisoned() { Err(Error::poisoned()) } else { Ok(turn) }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let state = if std::thread::panicking() { POISONED } else { FREE };
        self.state.store(state, Ordering::Release);
    }
}

/// Finds a reader that has not been freed, for holders of the list of readers.
pub(crate) struct Known(*mut Reader);

// SAFETY: what it leads to is touched only by anyone who changes its state, as between threads that call with one reader.
unsafe impl Send for Known {}

impl Known {
    /// Takes the reader offline, unless a thread looks up by it right now. So a thread that sleeps, or that ended without
    /// freeing its reader, keeps no memory.
    pub(crate) fn rest(&self) {
        // SAFETY: a reader leaves the list before it is freed, and the caller has the list.
        let state = unsafe { &(*self.0).state };
        if state.compare_exchange(FREE, RESTING, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            // SAFETY: anyone who changes the state from FREE has the body alone, until it is FREE again.
            unsafe { (*self.0).body.lookups.offline() };
            state.store(FREE, Ordering::Release);
        }
    }
}

impl Body {
    /// Looks names up in bursts. `name` is the i-th of them.
    fn look_up<'n>(
        &mut self,
        n: usize,
        len: usize,
        name: impl Fn(usize) -> Result<&'n [u8]>,
        values: &mut [u32],
    ) -> Result<()> {
        guard::checkpoint();
        check_len(self.kind, len)?;
        if let Some(lookups) = self.shared.moved(&mut self.id) {
            self.lookups = lookups;
        }
        for (burst, out) in values.chunks_mut(BURST).enumerate() {
            let (mut digests, mut found) = ([Digest(0); BURST], [0; BURST]);
            let start = burst * BURST;
            let names = start..n.min(start + BURST);
            if matches!(len, 4 | 6 | 8) {
                let mut words = [0; BURST];
                for (word, at) in words.iter_mut().zip(names) {
                    *word = word_of(name(at)?);
                }
                self.hasher.digest_words(&words[..out.len()], len, &mut digests[..out.len()]);
            } else {
                for (digest, at) in digests.iter_mut().zip(names) {
                    *digest = self.hasher.digest(name(at)?);
                }
            }
            self.lookups.lookup_batch(&digests[..out.len()], &mut found[..out.len()]);
            for (out, value) in out.iter_mut().zip(found) {
                *out = value as u32;
            }
        }
        Ok(())
    }
}

/// A name of 4, 6 or 8 bytes as [`Hasher::digest_words`] takes it.
#[inline]
fn word_of(name: &[u8]) -> u64 {
    let mut word = [0; 8];
    match name.len() {
        4 => word[..4].copy_from_slice(name),
        6 => word[..6].copy_from_slice(name),
        _ => word.copy_from_slice(name),
    }
    u64::from_le_bytes(word)
}

/// Refuses names of lengths that a table cannot have.
pub(crate) fn check_len(kind: NameKind, len: usize) -> Result<()> {
    let fits = match kind {
        NameKind::FiveTuple => len == 13 || len == 37,
        NameKind::Text => (1..=MAX_TEXT).contains(&len),
        _ => kind.width() == Some(len),
    };
    if fits {
        return Ok(());
    }
    let expected = match kind.width() {
        Some(width) => width.to_string(),
        None if kind == NameKind::Text => format!("1 to {MAX_TEXT}"),
        None => "13 or 37".to_owned(),
    };
    Err(Error::argument(format!("a name of {len} bytes: {kind} names have {expected}")))
}

/// Makes a reader of the table, for one thread at a time. Any thread may call this. A reader stays valid, with the last
/// values of the table, when the table is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fibula_reader_new(table: *mut Table, reader: *mut *mut Reader) -> c_int {
    guard::call(|| {
        // SAFETY: the caller's.
        let out = unsafe { pointers::output("the reader's address", reader, 1)? };
        out[0] = std::ptr::null_mut();
        // SAFETY: the caller's.
        let body = unsafe {
            in_locked(table, |table, state| {
                let (id, lookups) = (table.shared.enter(), state.store.reader());
                let (hasher, kind, shared) = (table.hasher.clone(), table.spec.kind, table.shared.clone());
                Ok(Body { hasher, kind, shared, id, lookups })
            })?
        };
        let reader = Reader { mark: AtomicU32::new(MARK), state: AtomicU8::new(FREE), body };
        let reader = Box::into_raw(Box::new(reader));
        // SAFETY: no other thread has it yet.
        let body = unsafe { &(*reader).body };
        body.shared.know(&body.id, Known(reader));
        out[0] = reader;
        Ok(())
    })
}

/// Frees a reader. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fibula_reader_free(reader: *mut Reader) -> c_int {
    guard::call(|| {
        if reader.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's.
        match unsafe { Turn::of(reader) } {
            Err(error) if error.code != Code::FIBULA_EPANIC => return Err(error),
            _ => {}
        }
        // SAFETY: the caller's.
        let body = unsafe { &(*reader).body };
        // From here on, no other thread takes it offline.
        body.shared.leave(&body.id);
        // SAFETY: made by fibula_reader_new, and freed once by the caller's promise.
        let reader = unsafe { Box::from_raw(reader) };
        reader.mark.store(0, Ordering::Relaxed);
        Ok(())
    })
}

/// Looks up one name. A name that is not in the table gets what its design gives: any value, or mostly 0 with ofw.
/// fibula_reader_lookup_burst takes less time a name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fibula_reader_lookup(
    reader: *mut Reader,
    name: *const c_void,
    name_bytes: usize,
    value: *mut u32,
) -> c_int {
    guard::call(|| {
        // SAFETY: the caller's.
        let (turn, values) = unsafe { (Turn::of(reader)?, pointers::output("the value's address", value, 1)?) };
        check_len(turn.body.kind, name_bytes)?;
        // SAFETY: the caller's.
        let name = unsafe { pointers::bytes("the name", name, name_bytes)? };
        turn.body.look_up(1, name_bytes, |_| Ok(name), values)
    })
}

/// Looks up n names of one length, best 32 at a time: their words are fetched together. Each value is one that the name had
/// during the call. No lock, no allocation; lookups never wait for the writer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fibula_reader_lookup_burst(
    reader: *mut Reader,
    names: *const *const c_void,
    name_bytes: usize,
    n: usize,
    values: *mut u32,
) -> c_int {
    guard::call(|| {
        // SAFETY: the caller's.
        let turn = unsafe { Turn::of(reader)? };
        // SAFETY: the caller's.
        let (names, values) = unsafe { (pointers::slice("names", names, n)?, pointers::output("values", values, n)?) };
        if n == 0 {
            return Ok(());
        }
        check_len(turn.body.kind, name_bytes)?;
        // SAFETY: the caller's.
        let name = |at: usize| unsafe { pointers::bytes("a name", names[at], name_bytes) };
        turn.body.look_up(n, name_bytes, name, values)
    })
}

/// Says that the thread will not look up for a while. Call it before the thread sleeps or waits: the memory of old
/// parts of the table is kept until every reader has looked up again, or is offline. A change that needs the memory takes
/// readers offline that no thread looks up by. The next lookup ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fibula_reader_offline(reader: *mut Reader) -> c_int {
    guard::call(|| {
        // SAFETY: the caller's.
        let turn = unsafe { Turn::of(reader)? };
        let Body { shared, id, lookups, .. } = &mut *turn.body;
        if let Some(moved) = shared.moved(id) {
            *lookups = moved;
        }
        lookups.offline();
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::table::{fibula_table_free, fibula_table_new, fibula_table_set};
    use std::ptr;

    #[test]
    fn a_reader_in_use_is_refused_to_others() {
        let options = Options::of(c"teid", 8, 10);
        let (mut table, mut reader, mut value) = (ptr::null_mut(), ptr::null_mut(), 0);
        let name = [0u8, 0, 0, 1].as_ptr().cast();
        let busy = Code::FIBULA_EBUSY as c_int;
        // SAFETY: the pointers are to variables of this test and to handles that it has not freed.
        unsafe {
            assert_eq!(fibula_table_new(&options, &mut table), 0);
            assert_eq!(fibula_table_set(table, name, 4, 7), 0);
            assert_eq!(fibula_reader_new(table, &mut reader), 0);
            let turn = Turn::of(reader).expect("nobody else's");
            assert_eq!(fibula_reader_lookup(reader, name, 4, &mut value), busy);
            assert_eq!(fibula_reader_offline(reader), busy);
            assert_eq!(fibula_reader_free(reader), busy);
            drop(turn);
            assert_eq!((fibula_reader_lookup(reader, name, 4, &mut value), value), (0, 7));
            assert_eq!(fibula_reader_free(reader), 0);
            assert_eq!(fibula_table_free(table), 0);
        }
    }

    /// Gives all names another value, in one call; the code.
    fn change_all(table: *mut crate::table::Table, names: &[[u8; 4]], value: u32) -> c_int {
        let values = vec![value; names.len()];
        // SAFETY: as many names, 4 bytes apart, as values; the table is not freed.
        unsafe {
            crate::table::fibula_table_set_batch(table, names.as_ptr().cast(), 4, 4, values.as_ptr(), names.len())
        }
    }

    #[test]
    fn a_change_waits_for_a_lookup_and_for_no_reader_that_sleeps_or_whose_thread_ended() {
        const MOST: u32 = 20_000;
        let options = Options::of(c"teid", 16, 100_000);
        let names: Vec<[u8; 4]> = (0..100_000u32).map(u32::to_be_bytes).collect();
        let (mut table, mut sleeper, mut value) = (ptr::null_mut(), ptr::null_mut(), 0);
        let again = Code::FIBULA_EAGAIN as c_int;
        let name = names[7].as_ptr().cast();
        // SAFETY: the pointers are to variables of this test and to handles that it has not freed.
        unsafe {
            assert_eq!(fibula_table_new(&options, &mut table), 0);
            assert_eq!(change_all(table, &names, 1), 0);
            let of_another = table as usize;
            // A thread that looks up and ends.
            let ended = std::thread::spawn(move || {
                let (mut reader, mut value) = (ptr::null_mut(), 0);
                assert_eq!(fibula_reader_new(of_another as *mut _, &mut reader), 0);
                assert_eq!(
                    (fibula_reader_lookup(reader, 7u32.to_be_bytes().as_ptr().cast(), 4, &mut value), value),
                    (0, 1)
                );
                reader as usize
            });
            let ended = ended.join().expect("it looks up") as *mut Reader;
            assert_eq!(fibula_reader_new(table, &mut sleeper), 0);
            assert_eq!(fibula_reader_lookup(sleeper, name, 4, &mut value), 0);
            // In the middle of a lookup, it keeps what it reads: so many changes later there is no memory.
            let turn = Turn::of(sleeper).expect("nobody else's");
            let n = (2..MOST).find(|&n| change_all(table, &names, n % 60_000) != 0).expect("it waits at some point");
            assert_eq!(change_all(table, &names, 5), again);
            drop(turn);
            assert_eq!(crate::table::fibula_table_sync(table), 0);
            // Twice as many changes beside readers that sleep.
            for change in 0..2 * n {
                assert_eq!(change_all(table, &names, change % 60_000), 0, "change {change}, {n} beside a lookup");
            }
            assert_eq!((fibula_reader_lookup(sleeper, name, 4, &mut value), value), (0, (2 * n - 1) % 60_000));
            assert_eq!(fibula_reader_free(sleeper), 0);
            assert_eq!(fibula_reader_free(ended), 0);
            assert_eq!(fibula_table_free(table), 0);
        }
    }
}
