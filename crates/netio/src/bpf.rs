//! The parts of the bpf system call that a switch uses: maps, programs for XDP, and the links that attach them.
//!
//! Why not a library: a table is a map whose size is known only when it is made, or an arena, and the program that reads it
//! is loaded again for every table and trunk, without an object file. That is a few commands. What is here ends with its
//! last descriptor, so nothing stays in the kernel when the process ends, even by `kill -9`.
//!
//! Needs CAP_BPF, CAP_NET_ADMIN and, for programs that follow addresses, CAP_PERFMON; Linux 5.9, arenas 6.9.
#![expect(unsafe_code, reason = "the bpf system call has no safe binding")]

mod map;

pub use map::{Map, Words};

use libc::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Commands of bpf(2).
const PROG_LOAD: c_int = 5;
const PROG_TEST_RUN: c_int = 10;
const LINK_CREATE: c_int = 28;
const LINK_UPDATE: c_int = 29;

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
