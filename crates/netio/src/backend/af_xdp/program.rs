//! The program that hands the frames of an interface to the sockets of its workers.
//!
//! ```text
//! return bpf_redirect_map(sockets, frame's receive queue, XDP_PASS if that queue has no socket)
//! ```
//! It is attached by a link, which ends with the last descriptor of it: nothing stays attached when the process ends,
//! even by `kill -9`.
#![expect(unsafe_code, reason = "the bpf system call has no safe binding")]

use libc::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Commands of bpf(2), and what it calls a map of sockets, a program for XDP, and its place.
const MAP_CREATE: c_int = 0;
const MAP_UPDATE: c_int = 2;
const PROG_LOAD: c_int = 5;
const LINK_CREATE: c_int = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;

/// In the driver, or, slower, after the driver has made a socket buffer.
const DRIVER_MODE: u32 = 1 << 2;
const GENERIC_MODE: u32 = 1 << 1;

/// Most receive queues of an interface.
pub(super) const MAX_QUEUES: u32 = 64;

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

#[repr(C)]
struct MapUpdate {
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
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    /// Destination in the low half, source in the high one.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// Calls bpf(2).
/// # Safety
/// `attributes` are those of the command, and what they point at lives until the call returns.
// SAFETY: the caller keeps the contract.
unsafe fn bpf<T>(command: c_int, attributes: &T) -> io::Result<c_int> {
    let (address, size) = (std::ptr::from_ref(attributes), size_of::<T>());
    // SAFETY: by the caller's contract.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, address, size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as c_int) }
}

/// As [`bpf`], for commands that return a descriptor.
/// # Safety
/// As for [`bpf`].
// SAFETY: the caller keeps the contract.
unsafe fn descriptor<T>(command: c_int, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: by the caller's contract; the descriptor was made just now and has no other owner.
    unsafe { Ok(OwnedFd::from_raw_fd(bpf(command, attributes)?)) }
}

/// The program attached to an interface, with the map of its sockets.
#[derive(Debug)]
pub(super) struct Program {
    sockets: OwnedFd,
    /// Ends with this value, or with the process.
    _link: OwnedFd,
    in_driver: bool,
}

impl Program {
    /// Loads and attaches it: in the driver if that can, otherwise before the stack.
    pub(super) fn attach(ifindex: u32) -> io::Result<Self> {
        let map = MapCreate { map_type: MAP_TYPE_XSKMAP, key_size: 4, value_size: 4, max_entries: MAX_QUEUES };
        // SAFETY: these are its attributes.
        let sockets = unsafe { descriptor(MAP_CREATE, &map)? };
        let program = load(&sockets)?;
        let link = |mode| {
            let attributes = LinkCreate {
                program: program.as_raw_fd() as u32,
                interface: ifindex,
                attach_type: ATTACH_XDP,
                flags: mode,
            };
            // SAFETY: these are its attributes.
            unsafe { descriptor(LINK_CREATE, &attributes) }
        };
        let (link, in_driver) = match link(DRIVER_MODE) {
            Ok(link) => (link, true),
            // Somebody else's program is there: it would be so before the stack as well.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) => return Err(error),
            Err(_) => (link(GENERIC_MODE)?, false),
        };
        Ok(Self { sockets, _link: link, in_driver })
    }

    /// Whether frames are taken in the driver, before the kernel makes a socket buffer of them.
    pub(super) fn is_in_driver(&self) -> bool {
        self.in_driver
    }

    /// Hands the frames of a receive queue to a socket.
    pub(super) fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let socket = socket.as_raw_fd() as u32;
        let attributes = MapUpdate {
            map: self.sockets.as_raw_fd() as u32,
            spare: 0,
            key: (&raw const queue).addr() as u64,
            value: (&raw const socket).addr() as u64,
            flags: 0,
        };
        // SAFETY: these are its attributes, and key and value live until the call returns.
        unsafe { bpf(MAP_UPDATE, &attributes)? };
        Ok(())
    }
}

fn load(sockets: &OwnedFd) -> io::Result<OwnedFd> {
    let op = |code, registers, offset, immediate| Instruction { code, registers, offset, immediate };
    let program = [
        // r2 = context.rx_queue_index
        op(0x61, 0x12, 16, 0),
        // r1 = the map, whose descriptor the loader replaces by its address
        op(0x18, 0x11, 0, sockets.as_raw_fd()),
        op(0, 0, 0, 0),
        // r3 = XDP_PASS
        op(0xb7, 0x03, 0, 2),
        // r0 = bpf_redirect_map(r1, r2, r3)
        op(0x85, 0, 0, 51),
        op(0x95, 0, 0, 0),
    ];
    let mut name = [0; 16];
    name[..6].copy_from_slice(b"fibula");
    let attributes = ProgLoad {
        prog_type: PROG_TYPE_XDP,
        n_instructions: program.len() as u32,
        instructions: program.as_ptr().addr() as u64,
        license: c"Apache-2.0".as_ptr().addr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name,
        interface: 0,
        attach_type: ATTACH_XDP,
    };
    // SAFETY: these are its attributes, and the instructions live until the call returns.
    unsafe { descriptor(PROG_LOAD, &attributes) }
}
