//! One range of memory for all parts of a table: huge pages, lines of 64 bytes, one base address.
//!
//! The arena reserves address space for the table's configured maximum at the start. The kernel fills it when it is
//! touched. So a table grows without moving, and a reader needs one base address. `madvise` asks for pages of 2 MB;
//! from 64 MB on they make random reads a third faster. [`Arena::huge_page_bytes`] reports whether the kernel granted
//! them. Memory of a fixed size ([`Zeroed`]) that must be resident at once takes huge pages that the operator has
//! reserved, if there are enough.
//!
//! Limits: 2^32 lines (256 GiB). The range is returned when the last owner drops.

#![expect(
    unsafe_code,
    reason = "maps memory, and hands out ranges of it that reader threads read while others are written"
)]

use std::cell::UnsafeCell;
use std::fs::File;
use std::io;
#[cfg(all(target_os = "linux", not(miri)))]
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a cache line: what the hardware fetches at once.
pub const LINE: usize = 64;
/// Bytes of a huge page on x86-64 and on aarch64 with 4 KiB base pages.
const HUGE_PAGE: usize = 2 << 20;

/// A reserved range of memory. It is zero where it was never written.
#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
    bytes: usize,
    mapping: NonNull<u8>,
    mapping_bytes: usize,
    is_reserved: bool,
    backing: Backing,
}

/// Whose the memory of an arena is.
#[derive(Debug)]
enum Backing {
    /// The arena's alone.
    Own,
    /// A file's, of which the arena is a mapping.
    File {
        file: File,
        /// Bytes from the beginning that the file system has given.
        given: AtomicUsize,
    },
    /// Its program's, which handed it over and takes it back.
    Lent,
}

// SAFETY: an arena is a range of plain memory. Its owner decides who reads and writes which part of it.
unsafe impl Send for Arena {}
// SAFETY: as above; the arena's own methods only read its bounds.
unsafe impl Sync for Arena {}

impl Arena {
    /// Reserves `bytes` (rounded up to huge pages). Nothing is committed before it is touched.
    /// # Errors
    /// The error of the operating system, if it has no such range of addresses.
    pub fn reserve(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.next_multiple_of(HUGE_PAGE);
        let mapping_bytes = bytes + HUGE_PAGE;
        let mapping = map(mapping_bytes)?;
        let skip = mapping.as_ptr().align_offset(HUGE_PAGE);
        // SAFETY: `skip` is less than HUGE_PAGE, by which the mapping is larger than asked.
        let base = unsafe { mapping.add(skip) };
        advise_huge(base, bytes);
        Ok(Self { base, bytes, mapping, mapping_bytes, is_reserved: false, backing: Backing::Own })
    }

    /// Reserves `bytes` (rounded up to huge pages) on huge pages that the operator has reserved. All of it is resident.
    /// `None` if too few pages are free. Clearing them takes hundreds of milliseconds per GiB.
    pub fn on_reserved_pages(bytes: usize) -> Option<Self> {
        let bytes = bytes.next_multiple_of(HUGE_PAGE);
        let base = map_reserved(bytes)?;
        Some(Self { base, bytes, mapping: base, mapping_bytes: bytes, is_reserved: true, backing: Backing::Own })
    }

    /// Maps `bytes` (rounded up to huge pages) of an empty file, for other programs to map, too. The file gets this
    /// length at once, and its memory as it is [needed](Arena::commit). Where it is on a file system of huge pages, so
    /// is the arena; memory of a tmpfs is made into huge pages as it is given, where the kernel can (Linux 6.1 or later).
    /// # Errors
    /// The error of the operating system.
    pub fn on_file(file: File, bytes: usize) -> io::Result<Self> {
        let bytes = bytes.next_multiple_of(HUGE_PAGE);
        file.set_len(bytes as u64)?;
        let base = map_file(&file, bytes, Place::Aligned)?;
        let backing = Backing::File { file, given: AtomicUsize::new(0) };
        Ok(Self { base, bytes, mapping: base, mapping_bytes: bytes, is_reserved: false, backing })
    }

    /// Maps a file that has `bytes` (whole pages) of memory already, all zero: one that the kernel made, for programs in
    /// it to read.
    /// # Errors
    /// The error of the operating system.
    pub fn on_memory(file: File, bytes: usize) -> io::Result<Self> {
        let base = map_file(&file, bytes, Place::Any)?;
        let backing = Backing::File { file, given: AtomicUsize::new(bytes) };
        Ok(Self { base, bytes, mapping: base, mapping_bytes: bytes, is_reserved: false, backing })
    }

    /// Clears `bytes` of memory that the program hands over, and uses them: a memzone of DPDK, for example. Whole lines of
    /// them count. Other processes may map it.
    /// # Safety
    /// `base` is at a line and begins this many bytes, which nothing else writes, and which stay until the last owner of the
    /// arena drops.
    // SAFETY: the caller keeps the contract.
    pub unsafe fn on_lent(base: NonNull<u8>, bytes: usize) -> Self {
        assert!(base.addr().get().is_multiple_of(LINE), "an arena begins at a line");
        let bytes = bytes / LINE * LINE;
        // SAFETY: by the caller's contract.
        unsafe { base.write_bytes(0, bytes) };
        Self { base, bytes, mapping: base, mapping_bytes: bytes, is_reserved: false, backing: Backing::Lent }
    }

    /// Whether other programs may map it.
    #[inline]
    pub fn is_shared(&self) -> bool {
        !matches!(self.backing, Backing::Own)
    }

    /// Makes sure that there is memory for the first `bytes`. For memory of this process alone that is left to the
    /// kernel, and lent memory is there. A write to a page of a file that the file system cannot give would end the process.
    /// # Errors
    /// The error of the operating system: the file system is full, for example.
    pub fn commit(&self, bytes: usize) -> io::Result<()> {
        let Backing::File { file, given } = &self.backing else { return Ok(()) };
        let before = given.load(Ordering::Relaxed);
        if bytes <= before {
            return Ok(());
        }
        let bytes = bytes.next_multiple_of(HUGE_PAGE).min(self.bytes);
        give(file, before, bytes - before)?;
        // SAFETY: `before` is within the arena.
        collapse(unsafe { self.base.add(before) }, bytes - before);
        given.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Address of the first line.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Bytes reserved.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the range that are on huge pages, if the operating system reports it.
    #[expect(clippy::disallowed_methods, reason = "only /proc tells which pages the system gave")]
    pub fn huge_page_bytes(&self) -> Option<usize> {
        let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let (start, end) = (self.base() as usize, self.base() as usize + self.bytes);
        let (mut inside, mut kib) = (false, 0);
        for line in maps.lines() {
            let mut words = line.split_ascii_whitespace();
            let first = words.next()?;
            if let Some((from, to)) = first.split_once('-') {
                let from = usize::from_str_radix(from, 16).ok()?;
                let to = usize::from_str_radix(to, 16).ok()?;
                inside = from < end && start < to;
            } else if inside
                && matches!(first, "AnonHugePages:" | "ShmemPmdMapped:" | "Private_Hugetlb:" | "Shared_Hugetlb:")
            {
                kib += words.next()?.parse::<usize>().ok()?;
            }
        }
        Some(kib * 1024)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if !matches!(self.backing, Backing::Lent) {
            unmap(self.mapping, self.mapping_bytes);
        }
    }
}

#[cfg(all(unix, not(miri)))]
fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches no memory that is in use.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(NonNull::new(address.cast()).expect("mmap never maps page zero unasked"))
}

/// Where a mapping of a file may stand.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// Where the kernel wants it: a map of it may have rules of its own.
    Any,
    /// At a multiple of a huge page, or no part of it could be on one.
    Aligned,
}

#[cfg(all(target_os = "linux", not(miri)))]
fn map_file(file: &File, bytes: usize, place: Place) -> io::Result<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // What stands where the file will, and is larger.
    let reserved_bytes = bytes + HUGE_PAGE;
    let reserved = if place == Place::Aligned { Some(map(reserved_bytes)?) } else { None };
    let (at, fixed) = match reserved {
        // SAFETY: less than the huge page by which it is larger.
        Some(from) => (unsafe { from.add(from.as_ptr().align_offset(HUGE_PAGE)) }.as_ptr().cast(), libc::MAP_FIXED),
        None => (std::ptr::null_mut(), 0),
    };
    let flags = libc::MAP_SHARED | fixed;
    // SAFETY: as in `map`, or over a part of a mapping that is ours and unused. Other programs that write to the file are
    // none of this program's, and lookups stay in bounds only if there are none: so the file is private to its owner, and
    // others get it read-only.
    let address = unsafe { libc::mmap(at, bytes, protection, flags, file.as_raw_fd(), 0) };
    let mapped = if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(address) };
    if let Some(from) = reserved {
        let before = mapped.as_ref().map_or(reserved_bytes, |_| at as usize - from.as_ptr() as usize);
        if before > 0 {
            unmap(from, before);
        }
        if mapped.is_ok() && before < HUGE_PAGE {
            // SAFETY: behind the file, within what was reserved.
            unmap(unsafe { from.add(before + bytes) }, HUGE_PAGE - before);
        }
    }
    Ok(NonNull::new(mapped?.cast()).expect("mmap never maps page zero unasked"))
}

#[cfg(all(target_os = "linux", not(miri)))]
fn give(file: &File, from: usize, bytes: usize) -> io::Result<()> {
    // SAFETY: a call about a file that is open.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), from as libc::off_t, bytes as libc::off_t) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

#[cfg(any(not(target_os = "linux"), miri))]
fn map_file(_: &File, _: usize, _: Place) -> io::Result<NonNull<u8>> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(any(not(target_os = "linux"), miri))]
fn give(_: &File, _: usize, _: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Fills the pages by a call that can fail. A first write could end the process instead, because a control group may
/// allow fewer pages than the pool has.
#[cfg(all(target_os = "linux", not(miri)))]
fn map_reserved(bytes: usize) -> Option<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
    // SAFETY: as in `map`.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if address == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: advice on our own mapping, which has no other user yet.
    if unsafe { libc::madvise(address, bytes, libc::MADV_POPULATE_WRITE) } != 0 {
        // SAFETY: as in `unmap`.
        unsafe { libc::munmap(address, bytes) };
        return None;
    }
    NonNull::new(address.cast())
}

#[cfg(any(not(target_os = "linux"), miri))]
fn map_reserved(_bytes: usize) -> Option<NonNull<u8>> {
    None
}

#[cfg(all(unix, not(miri)))]
fn unmap(mapping: NonNull<u8>, bytes: usize) {
    // SAFETY: the range was mapped here, or is a part of what was, and its only owner drops it.
    unsafe { libc::munmap(mapping.as_ptr().cast(), bytes) };
}

#[cfg(all(target_os = "linux", not(miri)))]
fn advise_huge(base: NonNull<u8>, bytes: usize) {
    // SAFETY: advice on our own mapping; a refusal (no such kernel feature) changes nothing.
    unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
}

#[cfg(any(not(target_os = "linux"), miri))]
fn advise_huge(_base: NonNull<u8>, _bytes: usize) {}

#[cfg(all(target_os = "linux", not(miri)))]
fn collapse(base: NonNull<u8>, bytes: usize) {
    // SAFETY: as for `advise_huge`: pages are exchanged for a huge one of the same content.
    unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_COLLAPSE) };
}

#[cfg(any(not(target_os = "linux"), miri))]
fn collapse(_base: NonNull<u8>, _bytes: usize) {}

// Under Miri the heap replaces the mapping.
#[cfg(any(not(unix), miri))]
fn layout(bytes: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(bytes, LINE).expect("arenas are far below isize::MAX")
}

#[cfg(any(not(unix), miri))]
fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: the size is not zero.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout(bytes)) }).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

#[cfg(any(not(unix), miri))]
fn unmap(mapping: NonNull<u8>, bytes: usize) {
    // SAFETY: allocated by `map` with this layout.
    unsafe { std::alloc::dealloc(mapping.as_ptr(), layout(bytes)) };
}

/// Bytes of the smallest page.
const PAGE: usize = 4 << 10;
/// Memory of at least this size is on huge pages: half of one.
const HUGE_FROM: usize = HUGE_PAGE / 2;

/// A cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; LINE]);

/// Memory of a fixed size, zero at first, that starts at a line. It is on huge pages, or on the heap if a huge page
/// would be mostly empty.
#[derive(Debug)]
pub struct Zeroed {
    base: NonNull<u8>,
    memory: Memory,
}

#[derive(Debug)]
enum Memory {
    Heap(Heap),
    Pages(Arena),
}

/// A boxed slice of lines, owned by its pointer. Moving a `Box` would assert that no other pointer leads to its
/// content.
#[derive(Debug)]
struct Heap(NonNull<[UnsafeCell<Line>]>);

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: it was a box, and only this owner frees it.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

// SAFETY: as for an arena: plain memory, whose owner decides who reads and writes which part.
unsafe impl Send for Zeroed {}
// SAFETY: as above; its own methods only read its bounds.
unsafe impl Sync for Zeroed {}

impl Zeroed {
    /// # Errors
    /// As [`Arena::reserve`].
    pub fn new(bytes: usize) -> io::Result<Self> {
        if bytes >= HUGE_FROM {
            let arena = Arena::reserve(bytes)?;
            return Ok(Self { base: arena.base, memory: Memory::Pages(arena) });
        }
        let lines: Box<[_]> = (0..bytes.div_ceil(LINE)).map(|_| UnsafeCell::new(Line([0; LINE]))).collect();
        let heap = Heap(NonNull::new(Box::into_raw(lines)).expect("a box is never null"));
        Ok(Self { base: heap.0.cast(), memory: Memory::Heap(heap) })
    }

    /// Address of the first line.
    #[inline(always)]
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Bytes reserved.
    pub fn bytes(&self) -> usize {
        match &self.memory {
            Memory::Heap(heap) => heap.0.len() * LINE,
            Memory::Pages(arena) => arena.bytes(),
        }
    }

    /// Makes all memory resident, and keeps its content. It is copied to huge pages that the operator has reserved if
    /// there are enough of them. Otherwise the operating system is asked again to make huge pages of it (Linux 6.1 or
    /// later): a machine that has run for a while may have had none when the memory was first touched.
    pub fn touch(&mut self) {
        if let Memory::Pages(arena) = &self.memory
            && !arena.is_reserved
            && let Some(reserved) = Arena::on_reserved_pages(arena.bytes)
        {
            // SAFETY: two ranges of this many bytes, which `self` and this function own.
            unsafe { std::ptr::copy_nonoverlapping(arena.base(), reserved.base(), arena.bytes) };
            *self = Self { base: reserved.base, memory: Memory::Pages(reserved) };
            return;
        }
        for at in (0..self.bytes()).step_by(PAGE) {
            // SAFETY: within the range, which `self` owns. Volatile, because the compiler would omit a write of the same byte.
            unsafe {
                let byte = self.base().add(at);
                byte.write_volatile(byte.read_volatile());
            }
        }
        if let Memory::Pages(arena) = &self.memory {
            collapse(arena.base, arena.bytes);
        }
    }

    /// Bytes on huge pages, if the operating system reports it.
    pub fn huge_page_bytes(&self) -> Option<usize> {
        match &self.memory {
            Memory::Heap(..) => Some(0),
            Memory::Pages(arena) => arena.huge_page_bytes(),
        }
    }

    /// Bytes on huge pages that the operator has reserved.
    pub fn reserved_page_bytes(&self) -> usize {
        match &self.memory {
            Memory::Pages(arena) if arena.is_reserved => arena.bytes,
            _ => 0,
        }
    }
}

/// The free lines of an arena. Allocation is best fit, and free neighbours are joined. An operation is O(log free
/// ranges).
#[derive(Debug, Default)]
pub struct Lines {
    /// Free ranges: first line to length.
    by_start: std::collections::BTreeMap<u32, u32>,
    /// The same ranges by length.
    by_length: std::collections::BTreeSet<(u32, u32)>,
    /// Lines from here on are unused.
    end: u32,
    limit: u32,
    free: u64,
}

impl Lines {
    /// The lines of an arena of `bytes`, all free.
    pub fn new(bytes: usize) -> Self {
        Self { limit: u32::try_from(bytes / LINE).unwrap_or(u32::MAX), ..Self::default() }
    }

    /// Takes `n` lines.
    pub fn take(&mut self, n: u32) -> Option<u32> {
        if let Some(&(length, start)) = self.by_length.range((n, 0)..).next() {
            self.forget(start, length);
            if length > n {
                self.note(start + n, length - n);
            }
            return Some(start);
        }
        let start = self.end;
        self.end = start.checked_add(n).filter(|&end| end <= self.limit)?;
        Some(start)
    }

    /// Frees lines.
    pub fn give(&mut self, mut start: u32, mut n: u32) {
        if let Some((&before, &length)) = self.by_start.range(..start).next_back()
            && before + length == start
        {
            self.forget(before, length);
            (start, n) = (before, n + length);
        }
        if let Some(&length) = self.by_start.get(&(start + n)) {
            self.forget(start + n, length);
            n += length;
        }
        if start + n == self.end {
            self.end = start;
        } else {
            self.note(start, n);
        }
    }

    /// Lines that are taken.
    pub fn used(&self) -> u64 {
        u64::from(self.end) - self.free
    }

    fn note(&mut self, start: u32, length: u32) {
        self.by_start.insert(start, length);
        self.by_length.insert((length, start));
        self.free += u64::from(length);
    }

    fn forget(&mut self, start: u32, length: u32) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
        self.free -= u64::from(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_is_zeroed_and_writable_to_its_end() {
        let arena = Arena::reserve(3 * HUGE_PAGE - 5).unwrap();
        assert_eq!(arena.bytes(), 3 * HUGE_PAGE);
        // SAFETY: the last byte of the range.
        unsafe {
            let last = arena.base().add(arena.bytes() - 1);
            assert_eq!(last.read(), 0);
            last.write(7);
            assert_eq!(last.read(), 7);
        }
    }

    #[test]
    fn touched_memory_keeps_its_content_and_is_written_to_its_end() {
        for bytes in [100, 3 * HUGE_PAGE] {
            let mut memory = Zeroed::new(bytes).unwrap();
            // SAFETY: the first and the last byte of memory that this test owns.
            unsafe {
                memory.base().write(7);
                memory.touch();
                assert_eq!(memory.base().read(), 7);
                memory.base().add(memory.bytes() - 1).write(8);
            }
            assert!(memory.bytes() >= bytes && memory.reserved_page_bytes() <= memory.bytes());
        }
    }

    #[test]
    fn freed_lines_coalesce_and_are_taken_again() {
        let mut lines = Lines::new(100 * LINE);
        let taken: Vec<u32> = (0..10).map(|_| lines.take(10).unwrap()).collect();
        assert_eq!(lines.take(1), None);
        assert_eq!(lines.used(), 100);
        for index in [2, 4, 3] {
            lines.give(taken[index], 10);
        }
        assert_eq!(lines.used(), 70);
        assert_eq!(lines.take(30), Some(20));
        for index in [9, 0, 1, 8, 7, 5, 6] {
            lines.give(taken[index], 10);
        }
        lines.give(20, 30);
        assert_eq!((lines.used(), lines.end, lines.by_start.len()), (0, 0, 0));
    }
}
