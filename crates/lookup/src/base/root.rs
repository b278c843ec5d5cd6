//! The first page of the arena of a served table: where readers begin, those in other programs and in the kernel, too.
//!
//! It says what the table is, where its directory is, and has the counters by which a reader learns that the writer
//! changed what it read. Everything else is at lines that it refers to: `docs/formats/table-in-memory.md`.

#![expect(unsafe_code, reason = "shows the first page of an arena as atomic words")]

use std::sync::atomic::{AtomicU64, Ordering};

use super::arena::Arena;
use crate::publish::Entry;
use crate::publish::outside::{Counters, Undo};

/// Lines of the root.
pub(crate) const ROOT_LINES: u32 = 64;
/// The first word of a table that is whole.
const MAGIC: u64 = u64::from_le_bytes(*b"FIBULAM1");

/// What a table is: the word of the root from which readers in other languages know how to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// 1: line, 2: Othello.
    pub structure: u8,
    /// Bits of a value.
    pub value_bits: u8,
    /// Bits of a fingerprint in a cell.
    pub fingerprint_bits: u8,
    /// Cells of a name: 2 of an Othello, 3 or 4 of a line.
    pub cells_of_name: u8,
}

/// The root of a table. Initially zero, but for the places of the journal, which say nothing while its count is zero.
#[repr(C)]
pub(crate) struct Root {
    magic: AtomicU64,
    /// Bytes of the arena.
    bytes: AtomicU64,
    /// [`Form`], a byte each.
    form: AtomicU64,
    /// What names are, and how they are hashed: set by a caller that knows it.
    names: [AtomicU64; 5],
    /// First line and depth of the directory.
    directory: Entry,
    /// First line and number of bytes of what else the table's owner tells.
    annex: Entry,
    /// Process and start time of the writer, 0 if they are to stay hidden.
    writer: [AtomicU64; 2],
    spare: [AtomicU64; 4],
    counters: Counters,
    /// Processors fetch lines in pairs: what the writer writes rarely is not fetched with the counters.
    apart: [AtomicU64; 8],
    undo: Undo,
}

#[cfg(not(loom))]
const _: () = assert!(
    size_of::<Root>() <= ROOT_LINES as usize * super::arena::LINE && std::mem::offset_of!(Root, counters) == 128
);

impl Root {
    /// The root of an arena, whose first lines nothing else may use.
    pub(crate) fn of(arena: &Arena) -> &Self {
        // SAFETY: an arena begins at a line and is longer than a root.
        unsafe { Self::at(arena.base()) }
    }

    /// The root at the base of an arena.
    /// # Safety
    /// `base` is that of an arena, which lives as long as the result.
    #[inline(always)]
    pub(crate) unsafe fn at<'a>(base: *const u8) -> &'a Self {
        // SAFETY: by the caller's contract; it is atomic words, for which all contents are valid.
        unsafe { &*base.cast::<Self>() }
    }

    /// Says what the table is.
    pub(crate) fn describe(&self, form: Form, bytes: usize) {
        let Form { structure, value_bits, fingerprint_bits, cells_of_name } = form;
        let form = [structure, value_bits, fingerprint_bits, cells_of_name, 0, 0, 0, 0];
        self.form.store(u64::from_le_bytes(form), Ordering::Relaxed);
        self.bytes.store(bytes as u64, Ordering::Relaxed);
    }

    /// What the table is.
    pub(crate) fn form(&self) -> Form {
        let [structure, value_bits, fingerprint_bits, cells_of_name, ..] =
            self.form.load(Ordering::Relaxed).to_le_bytes();
        Form { structure, value_bits, fingerprint_bits, cells_of_name }
    }

    /// Sets what the names are, and who writes. Then the root is whole.
    pub(crate) fn complete(&self, names: [u64; 5], writer: [u64; 2]) {
        for (to, from) in self.names.iter().zip(names).chain(self.writer.iter().zip(writer)) {
            to.store(from, Ordering::Relaxed);
        }
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// The first line of the directory, and its depth.
    #[inline(always)]
    pub(crate) fn directory(&self) -> (u32, u8) {
        let word = self.directory.load();
        (word as u32, (word >> 32) as u8)
    }

    /// Publishes a directory, whose entries are written.
    pub(crate) fn follow(&self, line: u32, depth: u8) {
        self.directory.publish(u64::from(line) | u64::from(depth) << 32);
    }

    /// Publishes an annex, whose bytes are written.
    pub(crate) fn annex(&self, line: u32, bytes: u32) {
        self.annex.publish(u64::from(line) | u64::from(bytes) << 32);
    }

    #[inline(always)]
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn undo(&self) -> &Undo {
        &self.undo
    }
}
