//! The parts of the bpf system call that a switch uses: maps, programs for XDP, and the links that attach them.
//!
//! Why not a library: a table is a map whose size is known only when it is made, or an arena, and the program that reads it
//! is loaded again for every table and trunk, without an object file. That is a few commands. What is here ends with its
//! last descriptor, so nothing stays in the kernel when the process ends, even by `kill -9`.
//!
//! Needs CAP_BPF, CAP_NET_ADMIN and, for programs that follow addresses, CAP_PERFMON; Linux 5.9, arenas 6.9.
#![expect(unsafe_code, reason = "the bpf system call has no safe binding")]

use libc::c_int;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Commands of bpf(2).
const MAP_CREATE: c_int = 0;
const MAP_LOOKUP: c_int = 1;
const MAP_UPDATE: c_int = 2;
const MAP_DELETE: c_int = 3;
const MAP_NEXT_KEY: c_int = 4;
const PROG_LOAD: c_int = 5;
const PROG_TEST_RUN: c_int = 10;
const MAP_FREEZE: c_int = 22;
const LINK_CREATE: c_int = 28;
const LINK_UPDATE: c_int = 29;

const HASH: u32 = 1;
const ARRAY: u32 = 2;
const PER_CPU_ARRAY: u32 = 6;
const DEVMAP: u32 = 14;
const XSKMAP: u32 = 17;
const ARENA: u32 = 33;
const FLAG_NO_PREALLOC: u32 = 1;
const FLAG_READ_ONLY: u32 = 1 << 7;
const FLAG_MAPPABLE: u32 = 1 << 10;

const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// In the driver, or, slower, after the driver has made a socket buffer.
const DRIVER_MODE: u32 = 1 << 2;
const GENERIC_MODE: u32 = 1 << 1;

/// The instruction that loads an address, and who it is of: a map or a value in a map, by number or by descriptor.
const LOAD_ADDRESS: u8 = 0x18;
const MAP_BY_DESCRIPTOR: u8 = 1;
const VALUE_BY_DESCRIPTOR: u8 = 2;
const MAP_BY_NUMBER: u8 = 5;
const VALUE_BY_NUMBER: u8 = 6;

/// Bytes of a program's log, which says what the kernel has against it.
const LOG_BYTES: usize = 1 << 20;

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

#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    n_instructions: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    verdict: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    nanoseconds: u32,
    context_size_in: u32,
    context_size_out: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    /// The kernel refuses what is not zero behind the attributes that it knows.
    spare: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
struct LinkUpdate {
    link: u32,
    program: u32,
    flags: u32,
    old: u32,
}

/// Calls bpf(2).
/// # Safety
/// `attributes` are those of the command, and what they point at lives until the call returns.
// SAFETY: the caller keeps the contract.
unsafe fn bpf<T>(command: c_int, attributes: &mut T) -> io::Result<c_int> {
    let (address, size) = (std::ptr::from_mut(attributes), size_of::<T>());
    // SAFETY: by the caller's contract.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, address, size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as c_int) }
}

/// As [`bpf`], for commands that return a descriptor.
/// # Safety
/// As for [`bpf`].
// SAFETY: the caller keeps the contract.
unsafe fn descriptor<T>(command: c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: by the caller's contract; the descriptor was made just now and has no other owner.
    unsafe { Ok(OwnedFd::from_raw_fd(bpf(command, attributes)?)) }
}

fn name_of(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    let n = name.len().min(bytes.len() - 1);
    bytes[..n].copy_from_slice(&name.as_bytes()[..n]);
    bytes
}

/// Frames of a test go on as if an interface had received them.
const LIVE: u32 = 1 << 1;

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

/// Why a program was not loaded.
#[derive(Debug, thiserror::Error)]
#[error("{source}{}{}", if verdict.is_empty() { "" } else { ": " }, verdict)]
pub struct LoadError {
    /// The error of the operating system.
    pub source: io::Error,
    /// The last lines of the verifier's log, if there are any.
    pub verdict: String,
}

/// A program for XDP.
#[derive(Debug)]
pub struct Program(OwnedFd);

impl Program {
    /// Loads instructions that refer to `maps` by number.
    /// # Errors
    /// [`LoadError`].
    /// # Panics
    /// If they refer to another map.
    pub fn load(instructions: &[u8], maps: &[BorrowedFd<'_>]) -> Result<Self, LoadError> {
        let mut code = instructions.to_vec();
        for instruction in code.chunks_exact_mut(8).filter(|instruction| instruction[0] == LOAD_ADDRESS) {
            let of = match instruction[1] >> 4 {
                MAP_BY_NUMBER => MAP_BY_DESCRIPTOR,
                VALUE_BY_NUMBER => VALUE_BY_DESCRIPTOR,
                _ => continue,
            };
            let number = u32::from_le_bytes([instruction[4], instruction[5], instruction[6], instruction[7]]);
            instruction[1] = instruction[1] & 15 | of << 4;
            instruction[4..8].copy_from_slice(&maps[number as usize].as_raw_fd().to_le_bytes());
        }
        // Most programs are accepted: the log is asked for when one was not.
        Self::try_load(&code, &mut []).map(Self).map_err(|source| {
            let mut log = vec![0; LOG_BYTES];
            let _ = Self::try_load(&code, &mut log);
            let text = String::from_utf8_lossy(log.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned();
            let lines: Vec<&str> = text.lines().rev().filter(|line| !line.starts_with("processed ")).take(3).collect();
            LoadError { source, verdict: lines.into_iter().rev().collect::<Vec<_>>().join("; ") }
        })
    }

    fn try_load(code: &[u8], log: &mut [u8]) -> io::Result<OwnedFd> {
        let mut attributes = ProgLoad {
            prog_type: PROG_TYPE_XDP,
            n_instructions: (code.len() / 8) as u32,
            instructions: code.as_ptr().addr() as u64,
            license: c"Apache-2.0".as_ptr().addr() as u64,
            log_level: (!log.is_empty()).into(),
            log_size: log.len() as u32,
            log: if log.is_empty() { 0 } else { log.as_mut_ptr().addr() as u64 },
            kernel_version: 0,
            flags: 0,
            name: name_of("fibula"),
            interface: 0,
            attach_type: ATTACH_XDP,
        };
        // SAFETY: these are its attributes; instructions and log live until the call returns.
        unsafe { descriptor(PROG_LOAD, &mut attributes) }
    }

    /// Runs it over a copy of a frame, `repeat` times: its last verdict, the frame afterwards, and nanoseconds a run.
    /// # Errors
    /// The error of the operating system.
    pub fn run(&self, frame: &[u8], repeat: u32) -> io::Result<(u32, Vec<u8>, u32)> {
        let mut out = vec![0; frame.len() + 256];
        let mut attributes = TestRun {
            program: self.0.as_raw_fd() as u32,
            data_size_in: frame.len() as u32,
            data_size_out: out.len() as u32,
            data_in: frame.as_ptr().addr() as u64,
            data_out: out.as_mut_ptr().addr() as u64,
            repeat,
            ..TestRun::default()
        };
        // SAFETY: these are its attributes; both frames live until the call returns.
        unsafe { bpf(PROG_TEST_RUN, &mut attributes)? };
        out.truncate(attributes.data_size_out as usize);
        Ok((attributes.verdict, out, attributes.nanoseconds))
    }
}

impl Program {
    /// Runs it over `repeat` live frames, which go where it says. They begin as `frame`, or as another left them.
    /// # Errors
    /// The error of the operating system.
    pub fn run_live(&self, frame: &[u8], repeat: u32) -> io::Result<()> {
        let mut attributes = TestRun {
            program: self.0.as_raw_fd() as u32,
            data_size_in: frame.len() as u32,
            data_in: frame.as_ptr().addr() as u64,
            repeat,
            flags: LIVE,
            ..TestRun::default()
        };
        // SAFETY: these are its attributes; the frame lives until the call returns.
        unsafe { bpf(PROG_TEST_RUN, &mut attributes)? };
        Ok(())
    }
}

/// A program attached to an interface, until this value or the process ends.
#[derive(Debug)]
pub struct Link {
    fd: OwnedFd,
    in_driver: bool,
}

impl Link {
    /// Attaches a program: in the driver if that can, otherwise before the stack.
    /// # Errors
    /// The error of the operating system; `EBUSY` or `EEXIST` if there is another program.
    pub fn attach(interface: u32, program: &Program) -> io::Result<Self> {
        let link = |flags| {
            let program = program.0.as_raw_fd() as u32;
            let mut attributes = LinkCreate { program, interface, attach_type: ATTACH_XDP, flags };
            // SAFETY: these are its attributes.
            unsafe { descriptor(LINK_CREATE, &mut attributes) }
        };
        let (fd, in_driver) = match link(DRIVER_MODE) {
            Ok(fd) => (fd, true),
            // A foreign program is attached: it would run before the stack as well.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) => return Err(error),
            Err(_) => (link(GENERIC_MODE)?, false),
        };
        Ok(Self { fd, in_driver })
    }

    /// Puts another program in the place of the one before. Every frame meets one of the two.
    /// # Errors
    /// The error of the operating system; the program before stays.
    pub fn replace(&self, program: &Program) -> io::Result<()> {
        let (link, program) = (self.fd.as_raw_fd() as u32, program.0.as_raw_fd() as u32);
        let mut attributes = LinkUpdate { link, program, flags: 0, old: 0 };
        // SAFETY: these are its attributes.
        unsafe { bpf(LINK_UPDATE, &mut attributes)? };
        Ok(())
    }

    /// Whether frames are taken in the driver, before the kernel makes a socket buffer of them.
    pub fn is_in_driver(&self) -> bool {
        self.in_driver
    }
}
