//! Functions of a table.
#![expect(unsafe_code, reason = "functions that C calls")]
#![expect(clippy::missing_safety_doc, reason = "the header says for all functions what pointers lead to")]

use crate::actions::{Meaning, Meanings};
use crate::error::{Code, Error, Result};
use crate::guard;
use crate::options::{DESIGNS, Options};
use crate::pointers;
use crate::reader::{Known, check_len};
use crate::store::{self, Lookups, Place, Store};
use fib::designs::Spec;
use fib::file::{self, Content};
use fib::messages::fingerprint;
use fib::name::{Name, NameKind};
use lookup::base::arena::{Arena, LINE};
use lookup::hash::{Digest, Hasher};
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How a table begins, so that another pointer is noticed.
const MARK: u32 = 0xF1BA_0001;
/// How a message of updates begins: then the number of names, 8 bytes, the mark of the table, 8, each update behind its
/// length, 4, and a fingerprint of all that, 8.
const UPDATES: &[u8] = b"FIBULAU1";
const HEADER: usize = 24;
/// Updates are recorded up to the size of the table and this. More are longer than the table, which is sent instead.
const RECORDED: usize = 64 << 10;

/// A set of names with values. The mark is first, so that it can be read whatever a pointer leads to.
// Not as a plain attribute: cbindgen would show the fields in the header.
#[cfg_attr(all(), repr(C))]
pub struct Table {
    mark: AtomicU32,
    pub(crate) spec: Spec,
    pub(crate) hasher: Hasher,
    pub(crate) shared: Arc<Shared>,
    state: Mutex<State>,
}

/// What readers know of their table.
#[derive(Default)]
pub(crate) struct Shared {
    is_poisoned: AtomicBool,
    /// The number of times that the table has moved.
    moves: AtomicU32,
    readers: Mutex<Readers>,
}

/// The readers that are not freed, by number.
#[derive(Default)]
struct Readers {
    next: u64,
    entered: HashMap<u64, Entered>,
}

/// A reader that is not freed.
#[derive(Default)]
struct Entered {
    /// What waits for it, if it has not looked up since the table moved.
    waiting: Option<Box<Lookups>>,
    /// The location, as soon as it exists.
    known: Option<Known>,
}

/// The number of a reader.
pub(crate) struct ReaderId {
    id: u64,
    moves: u32,
}

impl Shared {
    fn readers(&self) -> MutexGuard<'_, Readers> {
        // Nothing in it panics half done.
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another reader, of the table where it is now. The caller has the table's lock.
    pub(crate) fn enter(&self) -> ReaderId {
        let mut readers = self.readers();
        let id = readers.next;
        readers.next += 1;
        readers.entered.insert(id, Entered::default());
        ReaderId { id, moves: self.moves.load(Ordering::Relaxed) }
    }

    /// The location of a reader that has entered.
    pub(crate) fn know(&self, reader: &ReaderId, known: Known) {
        if let Some(entered) = self.readers().entered.get_mut(&reader.id) {
            entered.known = Some(known);
        }
    }

    pub(crate) fn leave(&self, reader: &ReaderId) {
        self.readers().entered.remove(&reader.id);
    }

    /// Takes all readers offline that no thread looks up by.
    pub(crate) fn rest(&self) {
        self.readers().entered.values().filter_map(|entered| entered.known.as_ref()).for_each(Known::rest);
    }

    /// Access to the table where it is, if it has moved since the reader asked.
    #[inline]
    pub(crate) fn moved(&self, reader: &mut ReaderId) -> Option<Box<Lookups>> {
        if self.moves.load(Ordering::Acquire) == reader.moves { None } else { self.take(reader) }
    }

    #[cold]
    fn take(&self, reader: &mut ReaderId) -> Option<Box<Lookups>> {
        let mut readers = self.readers();
        reader.moves = self.moves.load(Ordering::Relaxed);
        readers.entered.get_mut(&reader.id)?.waiting.take()
    }

    /// The table has moved: every reader finds access to it. The caller has the table's lock, so nothing changes before.
    fn hand_over(&self, store: &dyn Store) {
        let mut readers = self.readers();
        for entered in readers.entered.values_mut() {
            let mut lookups = store.reader();
            // One that sleeps keeps no memory from being used again.
            lookups.offline();
            entered.waiting = Some(lookups);
        }
        self.moves.fetch_add(1, Ordering::Release);
    }

    /// Whether a change of the table panicked.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.is_poisoned.load(Ordering::Relaxed)
    }
}

/// What changes, behind the lock.
pub(crate) struct State {
    pub(crate) store: Box<dyn Store>,
    /// Number of names, as the table that this one follows said it.
    n_told: u64,
    /// Whether more was recorded than the table has, or what updates do not say, so that all of it is due.
    is_whole_due: bool,
    meanings: Meanings,
    /// Addresses of the program's memory that it is in.
    lent: Range<usize>,
}

impl State {
    fn n_names(&self) -> u64 {
        self.store.n_names().unwrap_or(self.n_told)
    }

    /// Forgets updates that are longer than the table.
    fn trim(&mut self) {
        let most = self.store.size_bytes() + RECORDED;
        if self.store.recorded().is_some_and(|recorded| recorded.len() > most) {
            self.store.record(None);
            self.is_whole_due = true;
        }
    }
}

/// Sets the mark of readers when a change panics.
struct Poison<'a>(&'a Shared);

impl Drop for Poison<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.is_poisoned.store(true, Ordering::Relaxed);
        }
    }
}

/// Calls a body with the table, alone.
/// # Safety
/// A pointer that is not NULL is to a table that is not freed meanwhile.
pub(crate) unsafe fn in_locked<T>(
    table: *const Table,
    body: impl FnOnce(&Table, &mut State) -> Result<T>,
) -> Result<T> {
    pointers::check("the table", table, 1)?;
    // SAFETY: the caller's.
    let table = unsafe { &*table };
    if table.mark.load(Ordering::Relaxed) != MARK {
        return Err(Error::argument("this is not a table: give one of fibula_table_new that is not freed"));
    }
    let mut state = table.state.lock().map_err(|_| Error::poisoned())?;
    let _poison = Poison(&table.shared);
    guard::checkpoint();
    body(table, &mut state)
}

impl Table {
    fn new(spec: Spec, mut store: Box<dyn Store>, n_told: u64, meanings: Meanings) -> *mut Table {
        let shared = Arc::<Shared>::default();
        store.know_readers(shared.clone());
        let state = Mutex::new(State { store, n_told, is_whole_due: false, meanings, lent: 0..0 });
        let hasher = spec.hasher();
        Box::into_raw(Box::new(Table { mark: AtomicU32::new(MARK), spec, hasher, shared, state }))
    }

    /// The digest of a name that the table can have.
    fn digest(&self, name: &[u8]) -> Result<Digest> {
        check_len(self.spec.kind, name.len())?;
        if self.spec.kind == NameKind::Text {
            Name::from_bytes(NameKind::Text, name).map_err(|error| Error::argument(error.to_string()))?;
        }
        Ok(self.hasher.digest(name))
    }

    /// By which updates of another table, or of this one under another key, are noticed.
    fn id(&self) -> [u8; 8] {
        self.hasher.digest(self.spec.design.name.as_bytes()).0.to_le_bytes()
    }

    fn export(&self, state: &mut State) -> Result<Vec<u8>> {
        let actions = state.meanings.all(&self.spec)?;
        state.store.sync()?;
        Ok(file::encode(&self.spec, state.n_names(), &actions, &state.store.image()))
    }

    /// Values mean this from now on.
    fn tell(&self, state: &mut State, meanings: Meanings) -> Result<()> {
        if state.store.is_shared() {
            state.store.tell_actions(&meanings.all(&self.spec)?)?;
        }
        state.meanings = meanings;
        Ok(())
    }

    fn apply(&self, state: &mut State, bytes: &[u8]) -> Result<()> {
        if state.store.n_names().is_some() {
            return Err(Error::argument("this table follows no other: make one that does by fibula_table_follow"));
        }
        let other = || {
            let text = "these are updates of another table: make a new follower from an export of that one";
            Error::new(Code::FIBULA_EGAP, text)
        };
        if bytes.starts_with(file::MAGIC) {
            let content = Content::decode(bytes)?;
            if content.spec != self.spec {
                return Err(other());
            }
            let meanings = Meanings::of(&content.actions);
            state.store.overwrite(content.image)?;
            state.n_told = content.n_names;
            return self.tell(state, meanings);
        }
        let damaged = || Error::new(Code::FIBULA_EDAMAGED, "these are no updates, or damaged ones: fetch them again");
        let (content, sum) = bytes.split_last_chunk::<8>().ok_or_else(damaged)?;
        if content.len() < HEADER || !content.starts_with(UPDATES) || fingerprint(content) != u64::from_le_bytes(*sum) {
            return Err(damaged());
        }
        let (header, mut rest) = content.split_at(HEADER);
        if header[16..] != self.id() {
            return Err(other());
        }
        let mut updates = Vec::new();
        while let Some((len, more)) = rest.split_first_chunk::<4>() {
            let (update, after) = more.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or_else(damaged)?;
            updates.push(update);
            rest = after;
        }
        state.store.apply(&updates)?;
        state.n_told = header[8..16].try_into().map_or(0, u64::from_le_bytes);
        Ok(())
    }
}

/// Gives bytes to the caller.
/// # Safety
/// Pointers that are not NULL are to variables that only this call uses.
unsafe fn give(bytes: Vec<u8>, to: *mut *mut u8, len: *mut usize) -> Result<()> {
    // SAFETY: the caller's.
    let (to, len) = unsafe { (pointers::output("the address of bytes", to, 1)?, pointers::output("len", len, 1)?) };
    let bytes = bytes.into_boxed_slice();
    len[0] = bytes.len();
    to[0] = Box::into_raw(bytes).cast();
    Ok(())
}

/// Makes an empty table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fibula_table_new(options: *const Options, table: *mut *mut Table) -> c_int {
    guard::call(|| {
        // SAFETY: the caller's.
        let (options, out) =
            unsafe { (pointers::slice("options", options, 1)?, pointers::output("the table's address", table, 1)?) };
        out[0] = std::ptr::null_mut();
        // SAFETY: the caller's.
        let spec = unsafe { options[0].spec()? };
        let store = store::open(&spec, None)?;
        out[0] = Table::new(spec, store, 0, Meanings::default());
        Ok(())
    })
}

/// Frees a table, once no other thread uses it. Its readers stay valid. A file where it was shared stays, with its last
/// values. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fibula_table_free(table: *mut Table) -> c_int {
    guard::call(|| {
        if table.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's.
        match unsafe { in_locked(table, |_, _| Ok(())) } {
            Err(error) if error.code != Code::FIBULA_EPANIC => return Err(error),
            _ => {}
        }
        // SAFETY: made by Table::new, and freed once by the caller's promise.
        let table = unsafe { Box::from_raw(table) };
        table.mark.store(0, Ordering::Relaxed);
        Ok(())
    })
}

/// Gives a name a value, whether or not it has one. 0 usually means drop.
/// FIBULA_EAGAIN, FIBULA_ENOMEM: readers, or memory, keep lookups from showing it. The text says whether the change was
/// made; if so, fibula_table_sync shows it later, else repeat the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fibula_table_set(
    table: *mut Table,
    name: *const c_void,
    name_bytes: usize,
    value: u32,
) -> c_int {
    guard::call(|| {
        // SAFETY: the caller's.
        let name = unsafe { pointers::bytes("the name", name, name_bytes)? };
        // SAFETY: the caller's.
        unsafe {
            in_locked(table, |table, state| {
                state.store.set(table.digest(name)?, value.into())?;
                state.trim();
                Ok(())
            })
        }
    })
}

/// Gives n names of one length values. They begin stride bytes apart; of equal names the last counts. Much faster than one
/// by one for many names. If it fails, some of the names may have their values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fibula_table_set_batch(
    table: *mut Table,
    names: *const c_void,
    name_bytes: usize,
    stride: usize,
    values: *const u32,
    n: usize,
) -> c_int {
    guard::call(|| {
        // SAFETY: the caller's.
        let values = unsafe { pointers::slice("values", values, n)? };
        if n == 0 {
            return Ok(());
        }
        if stride < name_bytes {
            let text = format!(
                "names of {name_bytes} bytes that begin {stride} apart: a stride must be at least as long as a name"
            );
            return Err(Error::argument(text));
        }
        pointers::check("names", names.cast::<u8>(), n.saturating_mul(stride))?;
        let name = |at: usize| {
            // SAFETY: the caller guarantees this many names.
            unsafe { pointers::bytes("a name", names.cast::<u8>().add(at * stride).cast(), name_bytes) }
        };
        // SAFETY: the caller's.
        unsafe {
            in_locked(table, |table, state| {
                let entry = |(at, value): (usize, &u32)| Ok((table.digest(name(at)?)?, u64::from(*value)));
                let entries: Vec<_> = values.iter().enumerate().map(entry).collect::<Result<_>>()?;
                let set = state.store.set_batch(&entries);
                state.trim();
                set
            })
        }
    })
}

/// Removes a name. FIBULA_ENOENT if it is not there. Afterwards lookups give what they give for names that were never set;
/// concise and ofw give 0 until the part of the table is rebuilt.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fibula_table_remove(table: *mut Table, name: *const c_void, name_bytes: usize) -> c_int {
    guard::call(|| {
        // SAFETY: the caller's.
        let name = unsafe { pointers::bytes("the name", name, name_bytes)? };
        // SAFETY: the caller's.
        unsafe {
            in_locked(table, |table, state| {
                let was_there = state.store.remove(table.digest(name)?)?;
                state.trim();
                if was_there { Ok(()) } else { Err(absent()) }
            })
        }
    })
}

/// The value of a name as it was set, or FIBULA_ENOENT: exact, unlike a lookup by a reader, but it waits for the lock of the
/// table. A follower stores no names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fibula_table_get(
    table: *mut Table,
    name: *const c_void,
    name_bytes: usize,
    value: *mut u32,
) -> c_int {
    guard::call(|| {
        // SAFETY: the caller's.
        let (name, out) = unsafe {
            (pointers::bytes("the name", name, name_bytes)?, pointers::output("the value's address", value, 1)?)
        };
        // SAFETY: the caller's.
        out[0] = unsafe {
            in_locked(table, |table, state| Ok(state.store.get(table.digest(name)?)?.ok_or_else(absent)? as u32))?
        };
        Ok(())
    })
}

fn absent() -> Error {
    Error::new(Code::FIBULA_ENOENT, "the table does not have this name")
}

/// The number of names; in a follower, that of the table it follows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fibula_table_count(table: *mut Table, n: *mut u64) -> c_int {
    guard::call(|| {
        // SAFETY: the caller's.
        let out = unsafe { pointers::output("the number's address", n, 1)? };
        // SAFETY: the caller's.
        out[0] = unsafe { in_locked(table, |_, state| Ok(state.n_names()))? };
        Ok(())
    })
}

/// Carries out changes that wait for readers. FIBULA_EAGAIN while a thread is in the middle of a lookup with old memory: try
/// again. Readers that sleep, or whose thread ended, are not waited for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fibula_table_sync(table: *mut Table) -> c_int {
    // SAFETY: the caller's.
    guard::call(|| unsafe { in_locked(table, |_, state| state.store.sync()) })
}

/// Says what values mean to other programs: without this, a value is the number of a port, and 0 is drop. Other programs see
/// all of it at once. With changes recorded, the next fibula_table_updates gives the whole table, so that followers have it.
/// Cost: 24 bytes for each possible value where the table is shared; give all values in one call. If it fails, nothing
/// changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fibula_table_set_actions(table: *mut Table, meanings: *const Meaning, n: usize) -> c_int {
    guard::call(|| {
        // SAFETY: the caller's.
        let given = unsafe { pointers::slice("meanings", meanings, n)? };
        // SAFETY: the caller's.
        unsafe {
            in_locked(table, |table, state| {
                // Refused as a whole, because no reader could use it.
                state.meanings.all(&table.spec)?;
                if state.store.n_names().is_none() {
                    let text = "this table follows another, which gives values their meanings";
                    return Err(Error::new(Code::FIBULA_EFOLLOWER, text));
                }
                let mut meanings = state.meanings.clone();
                for meaning in given {
                    let (value, action) = meaning.read(&table.spec)?;
                    meanings.set(value, action);
                }
                table.tell(state, meanings)?;
                if state.store.recorded().is_some() {
                    state.store.record(None);
                    state.is_whole_due = true;
                }
                Ok(())
            })
        }
    })
}

/// The table as the bytes of a FIB file, which fibula_load of fibula.h and `fibula fib lookup` read: a value is the number of
/// a port unless fibula_table_set_actions says otherwise, and 0 is drop. They have the hash key. Free them by fibula_bytes_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fibula_table_export(table: *mut Table, bytes: *mut *mut u8, len: *mut usize) -> c_int {
    guard::call(|| {
        pointers::check("the address of bytes", bytes, 1)?;
        pointers::check("len", len, 1)?;
        // SAFETY: the caller's.
        unsafe { give(in_locked(table, |table, state| table.export(state))?, bytes, len) }
    })
}

/// Shows the table at a path, where fibula_attach of fibula.h reads it in place while it changes, from other programs. Best
/// on a file system in memory, as /dev/shm. It replaces what is there. The table moves to the file; its readers follow at
/// their next lookup, and each keeps the memory before until then. Values have at most 16 bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fibula_table_share(table: *mut Table, path: *const c_char) -> c_int {
    guard::call(|| {
        // SAFETY: the caller's.
        let path = unsafe { pointers::text("the path", path)? };
        let path =
            path.filter(|path| !path.is_empty()).ok_or_else(|| Error::argument("no path: give that of a file"))?;
        // SAFETY: the caller's.
        unsafe { in_locked(table, |table, state| share(table, state, Place::File(Path::new(path)))) }
    })
}

/// Moves the table to memory of the program's, from which other processes that map it read it in place by
/// fibula_attach_memory of fibula.h: a memzone of DPDK with its secondary processes, for example. The memory begins at a
/// multiple of 64 bytes, and is cleared first. It is the table's until the table and all its readers are freed, or the table
/// moves again and every reader has looked up since. The table grows within it; then changes fail with FIBULA_ENOMEM, and the
/// table stays as it is until it moves to more. Values have at most 16 bits.
/// FIBULA_ENOMEM: these bytes hold less than the table has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fibula_table_place(table: *mut Table, memory: *mut c_void, bytes: usize) -> c_int {
    guard::call(|| {
        pointers::check("memory", memory.cast::<u8>(), bytes)?;
        let base = NonNull::new(memory.cast::<u8>()).ok_or_else(|| Error::argument("no memory: give its address"))?;
        if !base.addr().get().is_multiple_of(LINE) {
            let text = format!("memory at {base:p}: it must begin at a multiple of {LINE} bytes");
            return Err(Error::argument(text));
        }
        // SAFETY: the caller's.
        unsafe {
            in_locked(table, |table, state| {
                let lent = base.addr().get()..base.addr().get().saturating_add(bytes);
                if lent.start < state.lent.end && state.lent.start < lent.end {
                    return Err(Error::argument(
                        "the table is in this memory already: give other memory to move it to",
                    ));
                }
                share(table, state, Place::Memory(Arena::on_lent(base, bytes)))?;
                state.lent = lent;
                Ok(())
            })
        }
    })
}

/// The most bytes that fibula_table_place can use for this table: those of as many names as it may have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fibula_table_most_bytes(table: *mut Table, bytes: *mut usize) -> c_int {
    guard::call(|| {
        // SAFETY: the caller's.
        let out = unsafe { pointers::output("the address of bytes", bytes, 1)? };
        // SAFETY: the caller's.
        out[0] = unsafe { in_locked(table, |_, state| Ok(state.store.most_bytes()))? };
        Ok(())
    })
}

/// Moves the table to where other programs find it.
fn share(table: &Table, state: &mut State, place: Place<'_>) -> Result<()> {
    let actions = state.meanings.all(&table.spec)?;
    state.store.share(&table.spec, &actions, place)?;
    state.lent = 0..0;
    table.shared.hand_over(&*state.store);
    Ok(())
}

/// Begins to record changes for followers. Changes from now on are in what fibula_table_updates gives. Call it before
/// fibula_table_export.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fibula_table_record(table: *mut Table) -> c_int {
    // SAFETY: the caller's.
    guard::call(|| unsafe {
        in_locked(table, |table, state| {
            state.meanings.all(&table.spec)?;
            if state.store.n_names().is_none() {
                let text = "this table follows another: pass the updates of that one on instead";
                return Err(Error::new(Code::FIBULA_EFOLLOWER, text));
            }
            if state.store.recorded().is_none() && !state.is_whole_due {
                state.store.record(Some(Vec::new()));
            }
            Ok(())
        })
    })
}

/// The changes since the last call, or since fibula_table_record, as bytes for fibula_table_apply of every follower; the whole
/// table, where that is shorter. Free them by fibula_bytes_free. Followers need them in order; one that has some of them
/// already, because it was made from a later export, ignores those.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fibula_table_updates(table: *mut Table, bytes: *mut *mut u8, len: *mut usize) -> c_int {
    guard::call(|| {
        pointers::check("the address of bytes", bytes, 1)?;
        pointers::check("len", len, 1)?;
        // SAFETY: the caller's.
        let updates = unsafe {
            in_locked(table, |table, state| {
                if state.is_whole_due {
                    let whole = table.export(state)?;
                    state.is_whole_due = false;
                    state.store.record(Some(Vec::new()));
                    return Ok(whole);
                }
                let n_names = state.n_names();
                let recorded = state.store.recorded().ok_or_else(|| {
                    Error::argument("no changes are recorded: call fibula_table_record before the first of them")
                })?;
                let recorded = std::mem::take(recorded);
                let mut out = Vec::with_capacity(HEADER + recorded.len() + 8);
                out.extend_from_slice(UPDATES);
                out.extend_from_slice(&n_names.to_le_bytes());
                out.extend_from_slice(&table.id());
                out.extend_from_slice(&recorded);
                out.extend_from_slice(&fingerprint(&out).to_le_bytes());
                Ok(out)
            })?
        };
        // SAFETY: the caller's.
        unsafe { give(updates, bytes, len) }
    })
}

/// Makes a table that follows the one of an export: readers look up in it, and fibula_table_apply changes it. It stores no
/// names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fibula_table_follow(bytes: *const c_void, len: usize, table: *mut *mut Table) -> c_int {
    guard::call(|| {
        // SAFETY: the caller's.
        let (bytes, out) =
            unsafe { (pointers::bytes("bytes", bytes, len)?, pointers::output("the table's address", table, 1)?) };
        out[0] = std::ptr::null_mut();
        let content = Content::decode(bytes)?;
        if !DESIGNS.contains(&content.spec.design.name) {
            let text = format!("design {}: libfibula has {}", content.spec.design.name, DESIGNS.join(", "));
            return Err(Error::new(Code::FIBULA_EUNSUPPORTED, text));
        }
        let store = store::open(&content.spec, Some(content.image))?;
        out[0] = Table::new(content.spec, store, content.n_names, Meanings::of(&content.actions));
        Ok(())
    })
}

/// Changes a follower by bytes of fibula_table_updates, or of a later fibula_table_export.
/// FIBULA_EGAP: bytes before these were lost; apply an export. FIBULA_EAGAIN: readers keep old memory; apply the same bytes
/// again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fibula_table_apply(table: *mut Table, bytes: *const c_void, len: usize) -> c_int {
    guard::call(|| {
        // SAFETY: the caller's.
        let bytes = unsafe { pointers::bytes("bytes", bytes, len)? };
        // SAFETY: the caller's.
        unsafe { in_locked(table, |table, state| table.apply(state, bytes)) }
    })
}

/// Frees bytes that a function gave, with the length that it said. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fibula_bytes_free(bytes: *mut u8, len: usize) -> c_int {
    guard::call(|| {
        if !bytes.is_null() {
            // SAFETY: the caller's: a boxed slice of this length, made by `give`.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(bytes, len)) });
        }
        Ok(())
    })
}
