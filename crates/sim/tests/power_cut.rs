//! The store of a controller on a disk whose power is cut: acknowledged changes survive, and the start is not refused.
//!
//! The store is the real one, SQLite and its log included. What it writes, truncates and syncs is recorded by the functions
//! below, which take the place of the C library's in this process. Then, for moments between any two of these, the files are
//! made as a disk may leave them: everything up to the last sync of a file is there; of what follows, nothing, everything,
//! some writes, or some sectors of 512 bytes. A store is opened on them.
//!
//! Each mistake below must be found. None of them loses anything when only the process is killed.
#![expect(unsafe_code, reason = "takes the place of functions of the C library")]

use api::seam::{Mistake, set_mistake};
use controller::store::{RowChange, SqliteStore, Store, StoreError};
use fibula_sim::random::Random;
use lookup::testkit;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Clone, Debug)]
enum Event {
    Write {
        file: String,
        at: u64,
        bytes: Vec<u8>,
    },
    Truncate {
        file: String,
        len: u64,
    },
    /// Of the directory, if there is no name.
    Sync {
        file: String,
    },
    Unlink {
        file: String,
    },
    Rename {
        from: String,
        to: String,
    },
    /// So many transactions are acknowledged.
    Acknowledged(usize),
}

thread_local! {
    /// The directory that is watched, and what happened to its files.
    static TRACE: RefCell<Option<(PathBuf, Vec<Event>)>> = const { RefCell::new(None) };
}

fn note(fd: c_int, event: impl FnOnce(String) -> Event) {
    let _ = TRACE.try_with(|trace| {
        let Ok(mut trace) = trace.try_borrow_mut() else { return };
        let Some((directory, events)) = trace.as_mut() else { return };
        let Ok(path) = std::fs::read_link(format!("/proc/self/fd/{fd}")) else { return };
        if let Ok(file) = path.strip_prefix(&*directory) {
            events.push(event(file.to_string_lossy().into_owned()));
        }
    });
}

/// # Safety
/// As of `pwrite(2)`.
unsafe fn written(fd: c_int, bytes: *const c_void, at: i64, result: isize) -> isize {
    if result > 0 {
        // SAFETY: so many bytes were read from there.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), result as usize) };
        note(fd, |file| Event::Write { file, at: at as u64, bytes: bytes.to_vec() });
    }
    result
}

/// As `write(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, len: usize) -> isize {
    // SAFETY: the caller's.
    unsafe {
        let at = libc::lseek(fd, 0, libc::SEEK_CUR);
        written(fd, bytes, at, libc::syscall(libc::SYS_write, fd, bytes, len) as isize)
    }
}

/// As `pwrite(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite(fd: c_int, bytes: *const c_void, len: usize, at: i64) -> isize {
    // SAFETY: the caller's.
    unsafe { written(fd, bytes, at, libc::syscall(libc::SYS_pwrite64, fd, bytes, len, at) as isize) }
}

/// As `pwrite(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite64(fd: c_int, bytes: *const c_void, len: usize, at: i64) -> isize {
    // SAFETY: the caller's.
    unsafe { pwrite(fd, bytes, len, at) }
}

/// As `ftruncate(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ftruncate(fd: c_int, len: i64) -> c_int {
    // SAFETY: `ftruncate` takes any numbers.
    let result = unsafe { libc::syscall(libc::SYS_ftruncate, fd, len) as c_int };
    note(fd, |file| Event::Truncate { file, len: len as u64 });
    result
}

/// As `ftruncate(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ftruncate64(fd: c_int, len: i64) -> c_int {
    // SAFETY: the same.
    unsafe { ftruncate(fd, len) }
}

/// As `fsync(2)`. Nothing is synced: the disk is the one of this test.
#[unsafe(no_mangle)]
extern "C" fn fsync(fd: c_int) -> c_int {
    note(fd, |file| Event::Sync { file });
    0
}

/// As `fdatasync(2)`.
#[unsafe(no_mangle)]
extern "C" fn fdatasync(fd: c_int) -> c_int {
    fsync(fd)
}

/// As `unlink(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller's path is one.
    let (result, path) = unsafe {
        (libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, path, 0) as c_int, CStr::from_ptr(path).to_string_lossy())
    };
    let _ = TRACE.try_with(|trace| {
        let Ok(mut trace) = trace.try_borrow_mut() else { return };
        let Some((directory, events)) = trace.as_mut() else { return };
        if let Ok(file) = Path::new(&*path).strip_prefix(&*directory)
            && result == 0
        {
            events.push(Event::Unlink { file: file.to_string_lossy().into_owned() });
        }
    });
    result
}

/// As `rename(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller's paths are two.
    let (result, paths) = unsafe {
        let result = libc::syscall(libc::SYS_renameat2, libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0) as c_int;
        (result, [from, to].map(|path| CStr::from_ptr(path).to_string_lossy()))
    };
    let _ = TRACE.try_with(|trace| {
        let Ok(mut trace) = trace.try_borrow_mut() else { return };
        let Some((directory, events)) = trace.as_mut() else { return };
        let [from, to] = paths.map(|path| {
            Path::new(&*path).strip_prefix(&*directory).ok().map(|path| path.to_string_lossy().into_owned())
        });
        if let (0, Some(from), Some(to)) = (result, from, to) {
            events.push(Event::Rename { from, to });
        }
    });
    result
}

type Rows = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

fn rows(store: &SqliteStore) -> Result<Rows, StoreError> {
    store.rows().map(|row| row.map(|row| ((row.kind, row.key), row.value.unwrap_or_default()))).collect()
}

fn open(directory: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(&directory.join("rib.sqlite"), Duration::ZERO)
}

fn changes(random: &mut Random) -> Vec<RowChange> {
    let most = if random.below(8) == 0 { 60 } else { 6 };
    let n = 1 + random.below(most);
    let change = |_| {
        let key = vec![random.below(40) as u8; 1 + random.below(2) as usize];
        let value = (random.below(4) > 0).then(|| vec![random.below(256) as u8; random.below(300) as usize]);
        RowChange { kind: 1 + random.below(3) as u8, key, value }
    };
    (0..n).map(change).collect()
}

/// Commits transactions, closes and reopens the store. Returns what happened on the disk, and the rows after each
/// transaction.
fn work(random: &mut Random) -> Result<(Vec<Event>, Vec<Rows>), StoreError> {
    let directory = tempfile::tempdir().unwrap();
    TRACE.set(Some((directory.path().to_owned(), Vec::new())));
    let mut store = open(directory.path())?;
    let mut states = vec![Rows::new()];
    for n in 1..=30 {
        match random.below(12) {
            0 => store.close()?,
            1 => {}
            _ => {
                let (changes, mut state) = (changes(random), states[states.len() - 1].clone());
                for RowChange { kind, key, value } in changes.clone() {
                    match value {
                        Some(value) => _ = state.insert((kind, key), value),
                        None => _ = state.remove(&(kind, key)),
                    }
                }
                store.commit(&changes)?;
                states.push(state);
                let n_done = states.len() - 1;
                TRACE.with_borrow_mut(|trace| trace.as_mut().unwrap().1.push(Event::Acknowledged(n_done)));
                continue;
            }
        }
        // After the last one there is nothing to go on with.
        if n < 30 {
            drop(store);
            store = open(directory.path())?;
            // As a start of the controller does.
            rows(&store)?;
        }
    }
    drop(store);
    Ok((TRACE.take().unwrap().1, states))
}

const SECTOR: u64 = 512;

/// What is kept of the writes to a file after its last sync.
#[derive(Clone, Copy, Debug)]
enum Keeps {
    Nothing,
    Everything,
    Before(usize),
    SomeWrites,
    SomeSectors,
}

fn apply(content: &mut Vec<u8>, event: &Event, mut keeps: impl FnMut() -> bool) {
    match event {
        Event::Write { at, bytes, .. } => {
            let (mut at, mut bytes) = (*at, &bytes[..]);
            while !bytes.is_empty() {
                let (sector, rest) = bytes.split_at(bytes.len().min((SECTOR - at % SECTOR) as usize));
                if keeps() {
                    let end = at as usize + sector.len();
                    content.resize(content.len().max(end), 0);
                    content[at as usize..end].copy_from_slice(sector);
                }
                (at, bytes) = (at + sector.len() as u64, rest);
            }
        }
        Event::Truncate { len, .. } if keeps() => content.resize(*len as usize, 0),
        _ => {}
    }
}

/// What happened to each file, by the name that it has after a power cut. Which of the names that changed since the
/// directory was synced are the new ones is `random`: the first so many.
fn files<'e>(events: &'e [Event], random: &mut Random) -> BTreeMap<String, Vec<&'e Event>> {
    let mut files: Vec<Vec<&Event>> = Vec::new();
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    // The names after each change that is not synced; the last that are, first.
    let mut possible: Vec<BTreeMap<String, usize>> = vec![BTreeMap::new()];
    for event in events {
        match event {
            Event::Acknowledged(_) => {}
            Event::Sync { file } if file.is_empty() => possible = vec![names.clone()],
            Event::Write { file, .. } | Event::Truncate { file, .. } | Event::Sync { file } => {
                let next = files.len();
                let at = *names.entry(file.clone()).or_insert(next);
                if at == next {
                    files.push(Vec::new());
                    // A name that is new is there with its file.
                    possible.iter_mut().for_each(|names| _ = names.entry(file.clone()).or_insert(at));
                }
                files[at].push(event);
            }
            Event::Unlink { file } => {
                names.remove(file);
                possible.push(names.clone());
            }
            Event::Rename { from, to } => {
                if let Some(at) = names.remove(from) {
                    names.insert(to.clone(), at);
                }
                possible.push(names.clone());
            }
        }
    }
    let names = possible.swap_remove(random.below(possible.len() as u64) as usize);
    names.into_iter().map(|(name, at)| (name, files[at].clone())).collect()
}

/// The files as a power cut after these events may leave them.
fn cut(events: &[Event], into: &Path, random: &mut Random) -> String {
    let mut what = String::new();
    for (file, of) in files(events, random) {
        let n_synced = of.iter().rposition(|event| matches!(event, Event::Sync { .. })).map_or(0, |at| at + 1);
        let (synced, after) = of.split_at(n_synced);
        let mut content = Vec::new();
        synced.iter().for_each(|event| apply(&mut content, event, || true));
        let keeps = match random.below(5) {
            0 => Keeps::Nothing,
            1 => Keeps::Everything,
            2 => Keeps::Before(random.below(after.len() as u64 + 1) as usize),
            3 => Keeps::SomeWrites,
            _ => Keeps::SomeSectors,
        };
        for (n, event) in after.iter().enumerate() {
            let whole = match keeps {
                Keeps::Nothing => false,
                Keeps::Everything | Keeps::SomeSectors => true,
                Keeps::Before(most) => n < most,
                Keeps::SomeWrites => random.below(2) == 0,
            };
            let torn = matches!(keeps, Keeps::SomeSectors);
            apply(&mut content, event, || whole && (!torn || random.below(2) == 0));
        }
        what += &format!("{file}: {} of {} after the last sync, {keeps:?}; ", after.len(), of.len());
        // Without a sync of it, a file need not be there.
        if !of.is_empty() && (n_synced > 0 || !content.is_empty() || random.below(2) == 0) {
            std::fs::write(into.join(&file), content).unwrap();
        }
    }
    what
}

/// Cuts the power at some moments of some work. Returns what was lost, if anything was.
fn trials(seed: u64, n_cuts: u64) -> Option<String> {
    let mut random = Random::new(seed);
    let (events, states) = match work(&mut random) {
        Ok(done) => done,
        Err(error) => return Some(format!("seed {seed}, without a power cut: {error}")),
    };
    // Before that, a store is made that no one relies on: it may exist or not, but is not refused.
    let first = events.iter().position(|event| matches!(event, Event::Acknowledged(_))).unwrap_or(events.len());
    for n in 0..n_cuts {
        let most = if n % 4 == 0 { first } else { events.len() };
        let at = random.below(most as u64 + 1) as usize;
        let done = events[..at].iter().rev().find_map(|event| match event {
            Event::Acknowledged(n) => Some(*n),
            _ => None,
        });
        let done = done.unwrap_or(0);
        let directory = tempfile::tempdir().unwrap();
        let what = cut(&events[..at], directory.path(), &mut random);
        let what = || format!("seed {seed}, cut after event {at} of {}, {done} acknowledged: {what}", events.len());
        let opened = open(directory.path()).and_then(|store| Ok((rows(&store)?, store)));
        let (found, mut store) = match opened {
            Ok(opened) => opened,
            Err(error) => return Some(format!("{}: {error}", what())),
        };
        let Some(n) = (done..states.len().min(done + 2)).find(|n| states[*n] == found) else {
            return Some(format!("{}: {} rows that are not those of {done} or the next", what(), found.len()));
        };
        // It goes on from there.
        if random.below(8) == 0 {
            let more = changes(&mut random);
            store.commit(&more).unwrap();
            drop(store);
            let has = open(directory.path()).and_then(|store| rows(&store));
            let mut state = states[n].clone();
            for RowChange { kind, key, value } in more {
                match value {
                    Some(value) => _ = state.insert((kind, key), value),
                    None => _ = state.remove(&(kind, key)),
                }
            }
            match has {
                Ok(has) if has == state => {}
                has => return Some(format!("{}: the next transaction is not there: {:?}", what(), has.err())),
            }
        }
    }
    None
}

#[test]
fn power_cut_at_any_moment_loses_nothing_that_was_acknowledged() {
    let first = testkit::seed();
    let n_seeds = if std::env::var_os("FIBULA_DEEP").is_some() { 400 } else { 4 };
    for seed in first..first + n_seeds {
        assert_eq!(trials(seed, 40), None);
    }
}

#[test]
fn every_mistake_of_the_store_is_found() {
    for mistake in [
        Mistake::LogNotWritten,
        Mistake::LogNotSynced,
        Mistake::LogBegunEarly,
        Mistake::SealedAfterCommit,
        Mistake::CommittedInHalves,
    ] {
        set_mistake(Some(mistake));
        let found = (0..60).find_map(|seed| trials(seed, 40));
        set_mistake(None);
        println!("{mistake:?}: {found:?}");
        assert!(found.is_some(), "{mistake:?} is not found");
    }
}
