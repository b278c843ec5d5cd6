//! Maps: memory that programs and this process share.

use super::{bpf, descriptor, name_of};
use libc::c_int;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Commands of bpf(2).
const MAP_CREATE: c_int = 0;
const MAP_LOOKUP: c_int = 1;
const MAP_UPDATE: c_int = 2;
const MAP_DELETE: c_int = 3;
const MAP_NEXT_KEY: c_int = 4;
const MAP_FREEZE: c_int = 22;

/// Kinds of maps.
const HASH: u32 = 1;
const ARRAY: u32 = 2;
const PER_CPU_ARRAY: u32 = 6;
const DEVMAP: u32 = 14;
const XSKMAP: u32 = 17;
const ARENA: u32 = 33;

/// How a map is made.
const FLAG_NO_PREALLOC: u32 = 1;
const FLAG_READ_ONLY: u32 = 1 << 7;
const FLAG_MAPPABLE: u32 = 1 << 10;

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
    inner: u32,
    numa_node: u32,
    name: [u8; 16],
    interface: u32,
    types: [u32; 4],
    extra: u64,
}

/// For look-ups, updates and deletions; `flags` for updates only.
#[repr(C)]
struct MapElement {
    map: u32,
    spare: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// A map with keys of 32 bits, unless it is a [hash](Map::hash).
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    value_bytes: usize,
    entries: u32,
}

impl Map {
    fn new(map_type: u32, value_bytes: usize, entries: u32, flags: u32) -> io::Result<Self> {
        let value_size = u32::try_from(value_bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let key_size = match map_type {
            ARENA => 0,
            HASH => 8,
            _ => 4,
        };
        let name = name_of("fibula");
        let mut attributes =
            MapCreate { map_type, key_size, value_size, max_entries: entries, flags, name, ..MapCreate::default() };
        // SAFETY: these are its attributes, and point at nothing.
        let fd = unsafe { descriptor(MAP_CREATE, &mut attributes)? };
        Ok(Self { fd, value_bytes, entries })
    }

    /// Values of any size, which this process can map. All memory is taken at once.
    /// # Errors
    /// The error of the operating system, as for all that make maps.
    pub fn array(value_bytes: usize, entries: u32) -> io::Result<Self> {
        Self::new(ARRAY, value_bytes, entries, FLAG_MAPPABLE)
    }

    /// One value that never changes again: the kernel treats it as a constant in programs.
    /// # Errors
    /// As for [`Map::array`].
    pub fn constant(value: &[u8]) -> io::Result<Self> {
        let map = Self::new(ARRAY, value.len(), 1, FLAG_READ_ONLY)?;
        map.set(0, value)?;
        let mut attributes = map.fd.as_raw_fd() as u32;
        // SAFETY: these are its attributes.
        unsafe { bpf(MAP_FREEZE, &mut attributes)? };
        Ok(map)
    }

    /// A value for each processor. Programs write that of theirs.
    /// # Errors
    /// As for [`Map::array`].
    pub fn per_cpu(value_bytes: usize, entries: u32) -> io::Result<Self> {
        Self::new(PER_CPU_ARRAY, value_bytes, entries, 0)
    }

    /// Interfaces to send frames out of.
    /// # Errors
    /// As for [`Map::array`].
    pub fn interfaces(entries: u32) -> io::Result<Self> {
        Self::new(DEVMAP, 4, entries, 0)
    }

    /// AF_XDP sockets.
    /// # Errors
    /// As for [`Map::array`].
    pub fn sockets(entries: u32) -> io::Result<Self> {
        Self::new(XSKMAP, 4, entries, 0)
    }

    /// Memory that programs and this process share, at most 4 GiB. Pages come when this process touches them.
    /// # Errors
    /// As for [`Map::array`]; `EINVAL` before Linux 6.9.
    pub fn arena(bytes: usize) -> io::Result<Self> {
        let pages = u32::try_from(bytes.div_ceil(4096)).map_err(|_| io::ErrorKind::InvalidInput)?;
        Self::new(ARENA, 0, pages, FLAG_MAPPABLE)
    }

    /// A hash map with keys of 64 bits. All memory is taken at once.
    /// # Errors
    /// As for [`Map::array`].
    pub fn hash(value_bytes: usize, entries: u32) -> io::Result<Self> {
        Self::new(HASH, value_bytes, entries, 0)
    }

    /// As [`Map::hash`], with memory allocated for existing entries only.
    /// # Errors
    /// As for [`Map::array`].
    pub fn growing_hash(value_bytes: usize, entries: u32) -> io::Result<Self> {
        Self::new(HASH, value_bytes, entries, FLAG_NO_PREALLOC)
    }

    /// As [`Map::set`], in a [hash](Map::hash).
    /// # Errors
    /// The error of the operating system.
    /// # Panics
    /// If the value has another size.
    pub fn set_hashed(&self, key: u64, value: &[u8]) -> io::Result<()> {
        assert_eq!(value.len(), self.value_bytes, "the value of a map");
        self.element(MAP_UPDATE, (&raw const key).addr(), value.as_ptr().addr()).map(drop)
    }

    /// As [`Map::remove`], from a [hash](Map::hash).
    /// # Errors
    /// The error of the operating system.
    pub fn remove_hashed(&self, key: u64) -> io::Result<()> {
        self.delete((&raw const key).addr())
    }

    /// The word that a [hash](Map::hash) with values of one word has for a key.
    /// # Errors
    /// The error of the operating system.
    /// # Panics
    /// If values have another size.
    pub fn hashed(&self, key: u64) -> io::Result<Option<u64>> {
        assert_eq!(self.value_bytes, size_of::<u64>(), "the value of a map");
        let mut word = 0_u64;
        match self.element(MAP_LOOKUP, (&raw const key).addr(), (&raw mut word).addr()) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            found => found.map(|_| Some(word)),
        }
    }

    /// The keys of a [hash](Map::hash), while this process alone changes it.
    /// # Errors
    /// The error of the operating system.
    pub fn hashed_keys(&self) -> io::Result<Vec<u64>> {
        let mut keys: Vec<u64> = Vec::new();
        loop {
            let (last, mut next) = (keys.last().copied(), 0_u64);
            let key = last.as_ref().map_or(0, |last| std::ptr::from_ref(last).addr());
            match self.element(MAP_NEXT_KEY, key, (&raw mut next).addr()) {
                Ok(_) => keys.push(next),
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(keys),
                Err(error) => return Err(error),
            }
        }
    }

    /// Puts a value, of the size of values.
    /// # Errors
    /// The error of the operating system.
    /// # Panics
    /// If the value has another size.
    pub fn set(&self, key: u32, value: &[u8]) -> io::Result<()> {
        assert_eq!(value.len(), self.value_bytes, "the value of a map");
        self.element(MAP_UPDATE, (&raw const key).addr(), value.as_ptr().addr()).map(drop)
    }

    /// Removes a value, if it exists.
    /// # Errors
    /// The error of the operating system.
    pub fn remove(&self, key: u32) -> io::Result<()> {
        self.delete((&raw const key).addr())
    }

    /// `key` is the address of a key.
    fn delete(&self, key: usize) -> io::Result<()> {
        match self.element(MAP_DELETE, key, 0) {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
            _ => Ok(()),
        }
    }

    /// The value of every processor, as words, one after the other, of a map that has [them](Map::per_cpu).
    /// # Errors
    /// The error of the operating system.
    pub fn words_of_cpus(&self, key: u32) -> io::Result<Vec<u64>> {
        let mut words = vec![0; self.value_bytes.div_ceil(8) * possible_cpus()?];
        self.element(MAP_LOOKUP, (&raw const key).addr(), words.as_mut_ptr().addr())?;
        Ok(words)
    }

    /// `key` and `value` are addresses, of bytes of the map's sizes.
    fn element(&self, command: c_int, key: usize, value: usize) -> io::Result<c_int> {
        let (map, key, value) = (self.fd.as_raw_fd() as u32, key as u64, value as u64);
        let mut attributes = MapElement { map, spare: 0, key, value, flags: 0 };
        // SAFETY: these are its attributes; the callers own key and value, which live until the call returns.
        unsafe { bpf(command, &mut attributes) }
    }

    /// The values of an [array](Map::array) of words, which programs read while they are written.
    /// # Errors
    /// The error of the operating system.
    pub fn words(&self) -> io::Result<Words> {
        let n = self.entries as usize * self.value_bytes.div_ceil(8);
        let (fd, protection) = (self.fd.as_raw_fd(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), 8 * n, protection, libc::MAP_SHARED, fd, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Words { at: NonNull::new(address.cast()).expect("mmap never maps page zero unasked"), n })
    }

    /// Another descriptor of the same map, as a file to map.
    /// # Errors
    /// The error of the operating system.
    pub fn file(&self) -> io::Result<std::fs::File> {
        Ok(self.fd.try_clone()?.into())
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The words of a map, mapped.
#[derive(Debug)]
pub struct Words {
    at: NonNull<AtomicU64>,
    n: usize,
}

// SAFETY: a mapping of atomic words, which any thread may use.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Deref for Words {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: this many words are mapped as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.n) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what was mapped; its owner is being dropped.
        unsafe { libc::munmap(self.at.as_ptr().cast(), 8 * self.n) };
    }
}

/// Processors that the kernel has memory for.
fn possible_cpus() -> io::Result<usize> {
    // Such as 0-7, or 0,2-3.
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<usize>().ok());
    last.map(|last| last + 1)
        .ok_or_else(|| io::Error::other("the kernel does not say how many processors there may be"))
}
