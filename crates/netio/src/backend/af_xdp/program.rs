//! The program that hands the frames of an interface to the sockets of its workers.
//!
//! ```text
//! return bpf_redirect_map(sockets, frame's receive queue, XDP_PASS if that queue has no socket)
//! ```
//! It is attached by a link, which ends with the last descriptor of it: nothing stays attached when the process ends,
//! even by `kill -9`. Another program may take its place, which decides about some frames itself and hands on the rest.

use crate::bpf::{Link, Map, Program};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most receive queues of an interface.
pub(super) const MAX_QUEUES: u32 = 64;

/// Who has a program of his own for an interface.
pub trait Ahead: fmt::Debug + Send + Sync {
    /// The interface is there, perhaps again. It may be told of [another program](Attached::replace) now and later.
    fn attached(&self, to: &Arc<Attached>);
}

/// The program attached to an interface, with the map of its sockets.
#[derive(Debug)]
pub struct Attached {
    ifindex: u32,
    longest: AtomicUsize,
    sockets: Map,
    plain: Program,
    link: Link,
}

impl Attached {
    /// Loads and attaches the program that hands on everything, at an interface that sends frames of up to `longest` bytes.
    pub(super) fn to(ifindex: u32, longest: usize) -> io::Result<Self> {
        let sockets = Map::sockets(MAX_QUEUES)?;
        let plain = Program::load(&hand_on(), &[sockets.as_fd()]).map_err(|error| error.source)?;
        let link = Link::attach(ifindex, &plain)?;
        Ok(Self { ifindex, longest: AtomicUsize::new(longest), sockets, plain, link })
    }

    /// The interface.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// The longest frame that it sends, in bytes, with a VLAN tag.
    pub fn longest(&self) -> usize {
        self.longest.load(Ordering::Relaxed)
    }

    /// Its MTU may have changed.
    pub(super) fn set_longest(&self, longest: usize) {
        self.longest.store(longest, Ordering::Relaxed);
    }

    /// The sockets of its workers, by receive queue: for what another program leaves.
    pub fn sockets(&self) -> &Map {
        &self.sockets
    }

    /// Puts another program in the place of the one before, which none means: all frames are handed on.
    /// # Errors
    /// The error of the operating system; the program before stays.
    pub fn replace(&self, program: Option<&Program>) -> io::Result<()> {
        self.link.replace(program.unwrap_or(&self.plain))
    }

    /// Whether its program runs in the driver, and not in front of the stack.
    pub fn is_in_driver(&self) -> bool {
        self.link.is_in_driver()
    }

    /// Hands the frames of a receive queue to a socket.
    pub(super) fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.sockets.set(queue, &socket.as_raw_fd().to_ne_bytes())
    }
}

/// Its instructions: code, registers (destination in the low half), offset, immediate.
fn hand_on() -> Vec<u8> {
    let program: [(u8, u8, i16, i32); 6] = [
        // r2 = context.rx_queue_index
        (0x61, 0x12, 16, 0),
        // r1 = the map with number 0
        (0x18, 0x51, 0, 0),
        (0, 0, 0, 0),
        // r3 = XDP_PASS
        (0xb7, 0x03, 0, 2),
        // r0 = bpf_redirect_map(r1, r2, r3)
        (0x85, 0, 0, 51),
        (0x95, 0, 0, 0),
    ];
    let bytes = |(code, registers, offset, immediate): (u8, u8, i16, i32)| {
        let ([o0, o1], [i0, i1, i2, i3]) = (offset.to_le_bytes(), immediate.to_le_bytes());
        [code, registers, o0, o1, i0, i1, i2, i3]
    };
    program.into_iter().flat_map(bytes).collect()
}
