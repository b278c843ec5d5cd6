//! The lookup loops. They turn digests into values, in bursts, and read the words of a query structure.
//!
//! The lookup of a burst of up to 32 names has two halves, so that all its memory accesses overlap:
//! ```text
//! begin   1. entry[i]  = directory[digest[i] >> (64 - depth)]      one atomic load: offset, size and tweak of the shard
//!         2. x         = mix(digest[i], tweak)
//!            a[i]      = base + offset + reduce(high half of x)    prefetch a[i], b[i]
//!            b[i]      = base + offset + side + reduce(low half of x)
//! finish  3. value[i]  = *a[i] ^ *b[i], or 0 if fingerprints show an alien
//! ```
//! [`lookup_batch`] begins two bursts before it finishes the first. So the memory system always has requests, also
//! while the processor reads. A caller that has one burst at a time begins and finishes each, or keeps bursts in flight
//! itself: see [`Ring`](crate::publish::ring::Ring).
//!
//! No branch depends on a name, with one exception: if the writer edited cells while a burst was read, the names that
//! read a line of those cells are read again. The flag of the stash, which is not seen in practice, is ORed over the burst and tested
//! once. Loops 1 and 2 have vector versions (`avx2`, four digests at a time; `avx512`, eight) and a scalar version.
//! They must agree. The directory has 8 bytes per shard of thousands of names: 128 KiB for 64M names. It stays in the
//! first or second-level cache, so its loads need no prefetch.

#![expect(unsafe_code, reason = "reads cells at computed addresses of the arena, and prefetches them")]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::fingerprint::{CellFormat, Check};
use super::sizing::Sizing;
use crate::base::arena::LINE;
use crate::base::cells::{cells_per_word, value_mask};
use crate::base::part::prefix_of;
use crate::base::prefetch::{BURST, prefetch};
use crate::base::processor::{Kernel, Vectors};
use crate::base::served;
use crate::base::touches::{Region, Touch};
use crate::hash::Digest;
use crate::hash::tweak::mix;
use crate::publish::ring::AHEAD;
use crate::publish::seq_lock::{Edits, Gate};
use crate::publish::{Entry, Since};

/// What lookups read: a directory, and the arena behind it.
///
/// Invariant on which every unsafe block here relies: the writer packed each entry for a shard whose words (and stash)
/// lie inside the arena and stay there while the reader is pinned.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    pub(super) entries: &'a [Entry],
    pub(super) depth: u8,
    pub(super) base: *const u8,
    pub(super) format: CellFormat,
    /// The lock behind the counter of edits in place.
    pub(super) gate: &'a Gate,
    /// Whether prefetching cells pays.
    pub(super) prefetch: bool,
}

impl<'a> Words<'a> {
    /// Guards edits in place. Its journal has a place for each: see [`place_of`].
    #[inline(always)]
    fn edits(&self) -> Edits<'a> {
        // SAFETY: the base is that of the arena of a table that is served.
        unsafe { served::edits(self.base, self.gate) }
    }
}

/// How cells of one width are found and read.
trait Layout: Copy {
    /// The byte offset of the word or integer, and the bit shift in it, of the cell that `half` (32 bits) selects in a
    /// side.
    fn locate(self, half: u64, side_words: u64) -> (usize, u32);
    /// The integer at `address`, shifted.
    /// # Safety
    /// `address` was located in a shard that is still there.
    unsafe fn read(self, address: *const u8, shift: u32) -> u64;
    /// The bits of a cell: a mask for the XOR of two cells.
    fn mask(self) -> u64;
    /// log2 of the bytes of a cell, if it is an integer of its own.
    const NATIVE: Option<u32>;
}

#[derive(Clone, Copy)]
struct Native<T>(PhantomData<T>);

macro_rules! native {
    ($int:ty, $atomic:ty) => {
        impl Layout for Native<$int> {
            const NATIVE: Option<u32> = Some(size_of::<$int>().trailing_zeros());
            #[inline(always)]
            fn locate(self, half: u64, side_words: u64) -> (usize, u32) {
                let cells = side_words * (8 / size_of::<$int>() as u64);
                (((half * cells) >> 32) as usize * size_of::<$int>(), 0)
            }
            // SAFETY: the caller keeps the contract of `Layout::read`.
            #[inline(always)]
            unsafe fn read(self, address: *const u8, _shift: u32) -> u64 {
                // SAFETY: inside a shard by the caller's contract, and aligned, because shards start on lines. Writers
                // of published cells use the same atomic type.
                u64::from(unsafe { <$atomic>::from_ptr(address.cast_mut().cast()) }.load(Ordering::Relaxed))
            }
            #[inline(always)]
            fn mask(self) -> u64 {
                u64::MAX
            }
        }
    };
}
native!(u8, AtomicU8);
native!(u16, AtomicU16);
native!(u32, AtomicU32);
native!(u64, AtomicU64);

#[derive(Clone, Copy)]
struct PackedLayout {
    cell_bits: u32,
    cells_per_word: u64,
    mask: u64,
}

impl Layout for PackedLayout {
    const NATIVE: Option<u32> = None;
    #[inline(always)]
    fn locate(self, half: u64, side_words: u64) -> (usize, u32) {
        // Reduced to the word, and then the fraction to the cell. The result is the cell of a reduction to all cells,
        // without a division.
        let product = half * side_words;
        let cell = ((product & 0xFFFF_FFFF) * self.cells_per_word) >> 32;
        ((product >> 32) as usize * 8, cell as u32 * self.cell_bits)
    }
    // SAFETY: the caller keeps the contract of `Layout::read`.
    #[inline(always)]
    unsafe fn read(self, address: *const u8, shift: u32) -> u64 {
        // SAFETY: as for native cells; packed cells are read and written by whole words.
        unsafe { AtomicU64::from_ptr(address.cast_mut().cast()) }.load(Ordering::Relaxed) >> shift
    }
    #[inline(always)]
    fn mask(self) -> u64 {
        self.mask
    }
}

/// How a value follows from two cells.
trait Cell: Copy {
    /// The layout of cells.
    type Layout: Layout;
    fn layout(self) -> Self::Layout;
    fn answer(self, first: u64, second: u64, digest: Digest) -> u64;
}

/// The whole cell is the value.
#[derive(Clone, Copy)]
struct Plain<L>(L);

impl<L: Layout> Cell for Plain<L> {
    type Layout = L;
    #[inline(always)]
    fn layout(self) -> L {
        self.0
    }
    #[inline(always)]
    fn answer(self, first: u64, second: u64, _digest: Digest) -> u64 {
        (first ^ second) & self.0.mask()
    }
}

/// The cell also has a fingerprint and an emptiness indicator.
#[derive(Clone, Copy)]
struct Checked<L>(L, Check);

impl<L: Layout> Cell for Checked<L> {
    type Layout = L;
    #[inline(always)]
    fn layout(self) -> L {
        self.0
    }
    #[inline(always)]
    fn answer(self, first: u64, second: u64, digest: Digest) -> u64 {
        self.1.answer(first, second, digest.0)
    }
}

/// Work on the cells of a table. It is compiled once for each way to find and read them.
trait Visitor {
    type Output;
    fn visit(self, cell: impl Cell) -> Self::Output;
}

/// Runs `visitor` for a format. There is one `match` per call, and none per name.
#[inline(always)]
fn with_cell<V: Visitor>(format: CellFormat, visitor: V) -> V::Output {
    #[inline(always)]
    fn with_layout<V: Visitor>(format: CellFormat, layout: impl Layout, visitor: V) -> V::Output {
        if format.fingerprint_bits == 0 {
            visitor.visit(Plain(layout))
        } else {
            visitor.visit(Checked(layout, format.check()))
        }
    }
    match format.cell_bits() {
        8 => with_layout(format, Native::<u8>(Default::default()), visitor),
        16 => with_layout(format, Native::<u16>(Default::default()), visitor),
        32 => with_layout(format, Native::<u32>(Default::default()), visitor),
        64 => with_layout(format, Native::<u64>(Default::default()), visitor),
        bits => with_layout(format, packed(bits), visitor),
    }
}

/// A burst whose lookup has begun: the places of the two cells of each name. Aligned, so that vector stores cross no
/// line.
#[repr(align(64))]
pub(super) struct Spots {
    entries: [MaybeUninit<u64>; BURST],
    /// Byte offsets from the base of the arena.
    first: [MaybeUninit<usize>; BURST],
    second: [MaybeUninit<usize>; BURST],
    /// Written only for cells that are not integers of their own.
    shifts: [MaybeUninit<(u8, u8)>; BURST],
    /// The OR of the entries.
    flags: u64,
    /// How many names have spots.
    n: usize,
}

impl Spots {
    pub(super) fn unwritten() -> Self {
        Self {
            entries: [MaybeUninit::uninit(); BURST],
            first: [MaybeUninit::uninit(); BURST],
            second: [MaybeUninit::uninit(); BURST],
            shifts: [MaybeUninit::uninit(); BURST],
            flags: 0,
            n: 0,
        }
    }

    /// Starts fetching all cells.
    #[inline(always)]
    fn prefetch(&self, base: *const u8) {
        for (first, second) in self.first[..self.n].iter().zip(&self.second) {
            // The two cells are the only misses of a lookup. They are read when those of the whole burst are in flight.
            // SAFETY: this many spots are written.
            let (first, second) = unsafe { (first.assume_init(), second.assume_init()) };
            prefetch(base.wrapping_add(first));
            prefetch(base.wrapping_add(second));
        }
    }
}

/// The value of one name.
pub(super) fn lookup<S: Sizing>(words: &Words<'_>, digest: Digest) -> u64 {
    struct One<'a, S>(&'a Words<'a>, Digest, PhantomData<S>);
    impl<S: Sizing> Visitor for One<'_, S> {
        type Output = u64;
        #[inline(always)]
        fn visit(self, cell: impl Cell) -> u64 {
            one::<S, _, _>(self.0, cell, self.1, &mut |_| {})
        }
    }
    with_cell(words.format, One(words, digest, PhantomData::<S>))
}

/// Calls `touch` for everything that [`lookup`] reads.
pub(super) fn touches<S: Sizing>(words: &Words<'_>, digest: Digest, touch: &mut dyn FnMut(Touch)) {
    struct Touched<'a, S>(&'a Words<'a>, Digest, &'a mut dyn FnMut(Touch), PhantomData<S>);
    impl<S: Sizing> Visitor for Touched<'_, S> {
        type Output = ();
        fn visit(self, cell: impl Cell) {
            let Self(words, digest, touch, _) = self;
            touch(Touch { region: Region::Counters, offset: 0, bytes: 8, stage: 0 });
            one::<S, _, _>(words, cell, digest, &mut |seen| touch(seen));
        }
    }
    with_cell(words.format, Touched(words, digest, touch, PhantomData::<S>));
}

/// The values of many names.
/// # Panics
/// When `values` is shorter than `digests`.
pub(super) fn lookup_batch<S: Sizing>(kernel: Kernel, words: &Words<'_>, digests: &[Digest], values: &mut [u64]) {
    struct Many<'a, S>(Kernel, &'a Words<'a>, &'a [Digest], &'a mut [u64], PhantomData<S>);
    impl<S: Sizing> Visitor for Many<'_, S> {
        type Output = ();
        #[inline(always)]
        fn visit(self, cell: impl Cell) {
            let Self(kernel, words, digests, values, _) = self;
            match vectors::<S, _>(kernel, cell) {
                // SAFETY: the processor has the kernel.
                #[cfg(target_arch = "x86_64")]
                Vectors::Avx2 => unsafe { avx2::bursts::<S, _>(words, cell, digests, values) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Vectors::Avx512 | Vectors::Avx512Ifma => unsafe {
                    if kernel.gathers() {
                        avx512::bursts::<true, S, _>(words, cell, digests, values);
                    } else {
                        avx512::bursts::<false, S, _>(words, cell, digests, values);
                    }
                },
                _ => bursts::<Scalar, S, _>(words, cell, digests, values),
            }
        }
    }
    let values = &mut values[..digests.len()];
    with_cell(words.format, Many(kernel, words, digests, values, PhantomData::<S>));
}

/// Begins the lookup of a burst.
/// # Panics
/// When there are more than [`BURST`] digests.
pub(super) fn begin<S: Sizing>(kernel: Kernel, words: &Words<'_>, digests: &[Digest], spots: &mut Spots) {
    struct Begin<'a, S>(Kernel, &'a Words<'a>, &'a [Digest], &'a mut Spots, PhantomData<S>);
    impl<S: Sizing> Visitor for Begin<'_, S> {
        type Output = ();
        #[inline(always)]
        fn visit(self, cell: impl Cell) {
            let Self(kernel, words, digests, spots, _) = self;
            match vectors::<S, _>(kernel, cell) {
                // SAFETY: the processor has the kernel.
                #[cfg(target_arch = "x86_64")]
                Vectors::Avx2 => unsafe { avx2::Avx2::locate::<S, _>(words, cell.layout(), digests, spots) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Vectors::Avx512 | Vectors::Avx512Ifma => unsafe {
                    if kernel.gathers() {
                        avx512::Avx512::<true>::locate::<S, _>(words, cell.layout(), digests, spots);
                    } else {
                        avx512::Avx512::<false>::locate::<S, _>(words, cell.layout(), digests, spots);
                    }
                },
                // SAFETY: every processor has it.
                _ => unsafe { Scalar::locate::<S, _>(words, cell.layout(), digests, spots) },
            }
        }
    }
    assert!(digests.len() <= BURST, "a burst has at most {BURST} names");
    with_cell(words.format, Begin(kernel, words, digests, spots, PhantomData::<S>));
}

/// Finishes the lookup of a burst.
/// # Safety
/// The spots were begun with these digests and words, and the shards found then are still there.
/// # Panics
/// When `values` or `digests` are not as many as were begun.
// SAFETY: the caller keeps the contract.
pub(super) unsafe fn finish<S: Sizing>(words: &Words<'_>, digests: &[Digest], spots: &Spots, values: &mut [u64]) {
    struct Finish<'a, S>(&'a Words<'a>, &'a [Digest], &'a Spots, &'a mut [u64], PhantomData<S>);
    impl<S: Sizing> Visitor for Finish<'_, S> {
        type Output = ();
        #[inline(always)]
        fn visit(self, cell: impl Cell) {
            let Self(words, digests, spots, values, _) = self;
            // SAFETY: by the contract of `finish`, which alone makes this visitor.
            unsafe { read_burst::<S, _>(words, cell, digests, spots, values) };
        }
    }
    assert!(digests.len() == spots.n && values.len() == spots.n, "a burst is finished with what it was begun with");
    with_cell(words.format, Finish(words, digests, spots, values, PhantomData::<S>));
}

/// The vector loops for these cells. Only cells that are integers of their own, in shards of even sides, have any.
fn vectors<S: Sizing, C: Cell>(kernel: Kernel, _cell: C) -> Vectors {
    if S::SHARDED && C::Layout::NATIVE.is_some() { kernel.vectors() } else { Vectors::Scalar }
}

fn packed(cell_bits: u8) -> PackedLayout {
    PackedLayout {
        cell_bits: cell_bits.into(),
        cells_per_word: cells_per_word(cell_bits).into(),
        mask: value_mask(cell_bits),
    }
}

/// Loops 1 and 2.
trait Locate {
    /// Writes the spots of up to [`BURST`] digests. Each entry is loaded once, and used for the whole burst.
    /// # Safety
    /// The processor has the instructions.
    unsafe fn locate<S: Sizing, L: Layout>(words: &Words<'_>, layout: L, digests: &[Digest], spots: &mut Spots);
}

struct Scalar;

impl Locate for Scalar {
    // SAFETY: nothing is demanded of the caller.
    #[inline(always)]
    unsafe fn locate<S: Sizing, L: Layout>(words: &Words<'_>, layout: L, digests: &[Digest], spots: &mut Spots) {
        spots.flags = 0;
        spots.n = digests.len();
        locate_from::<S, L>(0, words, layout, digests, spots);
        if words.prefetch {
            spots.prefetch(words.base);
        }
    }
}

/// The spots of the digests from `start` on, one by one.
#[inline(always)]
fn locate_from<S: Sizing, L: Layout>(
    start: usize,
    words: &Words<'_>,
    layout: L,
    digests: &[Digest],
    spots: &mut Spots,
) {
    for (index, &digest) in digests.iter().enumerate().skip(start) {
        let entry = entry_of(words, digest);
        spots.flags |= entry;
        let (first, second) = locate::<S, L>(layout, entry, digest.0);
        spots.entries[index].write(entry);
        spots.first[index].write(first.0);
        spots.second[index].write(second.0);
        spots.shifts[index].write((first.1 as u8, second.1 as u8));
    }
}

/// All bursts of a call. [`AHEAD`] bursts are begun before the first of them is finished.
#[inline(always)]
fn bursts<V: Locate, S: Sizing, C: Cell>(words: &Words<'_>, cell: C, digests: &[Digest], values: &mut [u64]) {
    if digests.len() <= BURST {
        let mut spots = Spots::unwritten();
        // SAFETY: the caller of this function has checked the processor, and the spots are written before they are read.
        unsafe {
            V::locate::<S, _>(words, cell.layout(), digests, &mut spots);
            read_burst::<S, C>(words, cell, digests, &spots, values);
        }
        return;
    }
    many_bursts::<V, S, C>(words, cell, digests, values);
}

/// As [`bursts`], for more than one.
#[inline(always)]
fn many_bursts<V: Locate, S: Sizing, C: Cell>(words: &Words<'_>, cell: C, digests: &[Digest], values: &mut [u64]) {
    // One element more than is in use, so that an index is a mask. Written one by one: an array of them would be copied.
    let mut ring = [const { MaybeUninit::<Spots>::uninit() }; (AHEAD + 1).next_power_of_two()];
    let mut left = values.chunks_mut(BURST).zip(digests.chunks(BURST)).enumerate();
    let read = |ring: &[MaybeUninit<Spots>], (at, (values, digests)): (usize, (&mut [u64], &[Digest]))| {
        // SAFETY: the spots of these digests were written below.
        unsafe { read_burst::<S, C>(words, cell, digests, ring[at % ring.len()].assume_init_ref(), values) };
    };
    for (at, digests) in digests.chunks(BURST).enumerate() {
        let spots = ring[at % ring.len()].write(Spots::unwritten());
        // SAFETY: the caller of this function has checked the processor.
        unsafe { V::locate::<S, _>(words, cell.layout(), digests, spots) };
        if at >= AHEAD {
            read(&ring, left.next().expect("so many bursts were begun"));
        }
    }
    left.for_each(|burst| read(&ring, burst));
}

/// The places of the two cells of `digest` in the shard of `entry`: byte offset from the base, and shift.
#[inline(always)]
fn locate<S: Sizing, L: Layout>(layout: L, entry: u64, digest: u64) -> ((usize, u32), (usize, u32)) {
    let geometry = S::unpack(entry, 1);
    let x = mix(digest, geometry.tweak);
    let (first, first_shift) = layout.locate(x >> 32, geometry.sides.a.into());
    let (second, second_shift) = layout.locate(x & 0xFFFF_FFFF, geometry.sides.b.into());
    let shard = geometry.offset_lines as usize * LINE;
    let second_side = shard + geometry.sides.a as usize * 8;
    ((shard + first, first_shift), (second_side + second, second_shift))
}

#[inline(always)]
fn entry_of(words: &Words<'_>, digest: Digest) -> u64 {
    let index = prefix_of(digest.0, words.depth);
    debug_assert!(index < words.entries.len());
    // SAFETY: the directory has 2^depth entries, and the index has depth bits.
    unsafe { words.entries.get_unchecked(index) }.load()
}

/// The lines of the shard at `shard_line` that an edit in place writes: that line, and 32 bits for the lines from there
/// on, modulo 32. `offsets` are bytes from the beginning of the shard.
pub(super) fn place_of(shard_line: u32, offsets: impl Iterator<Item = usize>) -> u64 {
    offsets.fold(u64::from(shard_line) << 32, |place, offset| place | line_bit(offset))
}

/// The bit in a place of the line at `offset` bytes from the beginning of a shard.
fn line_bit(offset: usize) -> u64 {
    1 << (offset / LINE % 32)
}

/// Whether an edit met the reads of a name at these offsets from the base, in the shard of `entry`.
///
/// One line of two is enough. With both cells of a name edited one after the other, a reader may have seen the second
/// edit and not the first.
#[inline]
fn meets<S: Sizing>(entry: u64, offsets: [usize; 2]) -> impl Fn(u64) -> bool {
    let shard_line = S::unpack(entry, 1).offset_lines;
    let lines = place_of(shard_line, offsets.into_iter().map(|offset| offset - shard_line as usize * LINE));
    move |edited| edited >> 32 == lines >> 32 && edited & lines & 0xFFFF_FFFF != 0
}

/// Loop 3, and the rare cases: cells that were edited meanwhile, and stashes.
/// # Safety
/// The spots and entries of `digests` are written, and their shards are still there.
#[inline(always)]
unsafe fn read_burst<S: Sizing, C: Cell>(
    words: &Words<'_>,
    cell: C,
    digests: &[Digest],
    spots: &Spots,
    values: &mut [u64],
) {
    let since = words.edits().journal.begin();
    // SAFETY: by the caller's contract.
    unsafe { read_spots(words, cell, digests, spots, values) };
    if S::unpack(spots.flags, 1).stash {
        // SAFETY: by the caller's contract.
        unsafe { look_into_stashes::<S>(words, spots, digests, values) };
    }
    if !words.edits().journal.is_unchanged(since) {
        // SAFETY: by the caller's contract.
        unsafe { read_edited::<S, C>(words, cell, digests, spots, values, since) };
    }
}

/// Reads names again whose cells may have been edited since `since`.
/// # Safety
/// As for [`read_burst`].
#[cold]
unsafe fn read_edited<S: Sizing, C: Cell>(
    words: &Words<'_>,
    cell: C,
    digests: &[Digest],
    spots: &Spots,
    values: &mut [u64],
    since: Since,
) {
    let written = words.edits().journal.written(since);
    for (index, (value, &digest)) in values.iter_mut().zip(digests).enumerate() {
        // SAFETY: by the caller's contract.
        let (entry, first, second) = unsafe {
            (spots.entries[index].assume_init(), spots.first[index].assume_init(), spots.second[index].assume_init())
        };
        if written.is_where(meets::<S>(entry, [first, second])) {
            *value = one::<S, C, _>(words, cell, digest, &mut |_| {});
        }
    }
}

/// Reads both cells of every spot.
/// # Safety
/// The first `values.len()` spots are written, and located in shards that are still there.
#[inline(always)]
unsafe fn read_spots<C: Cell>(words: &Words<'_>, cell: C, digests: &[Digest], spots: &Spots, values: &mut [u64]) {
    // A full burst has a loop of its own, which the compiler unrolls.
    if let (Ok(values), Ok(digests)) =
        (<&mut [u64; BURST]>::try_from(&mut *values), <&[Digest; BURST]>::try_from(digests))
    {
        for index in 0..BURST {
            // SAFETY: by the caller's contract.
            unsafe { read_spot(words, cell, digests[index], spots, index, &mut values[index]) };
        }
        return;
    }
    for (index, (value, &digest)) in values.iter_mut().zip(digests).enumerate() {
        // SAFETY: by the caller's contract.
        unsafe { read_spot(words, cell, digest, spots, index, value) };
    }
}

/// Reads both cells of a spot.
/// # Safety
/// The spot is written, and located in a shard that is still there.
#[inline(always)]
unsafe fn read_spot<C: Cell>(words: &Words<'_>, cell: C, digest: Digest, spots: &Spots, index: usize, value: &mut u64) {
    let layout = cell.layout();
    // SAFETY: by the caller's contract.
    unsafe {
        let (first_shift, second_shift) =
            if C::Layout::NATIVE.is_some() { (0, 0) } else { spots.shifts[index].assume_init() };
        let first = layout.read(words.base.add(spots.first[index].assume_init()), first_shift.into());
        let second = layout.read(words.base.add(spots.second[index].assume_init()), second_shift.into());
        *value = cell.answer(first, second, digest);
    }
}

/// Corrects the values of names that are in a stash.
/// # Safety
/// The first `values.len()` entries are written, and their shards are still there.
#[cold]
unsafe fn look_into_stashes<S: Sizing>(words: &Words<'_>, spots: &Spots, digests: &[Digest], values: &mut [u64]) {
    for (index, value) in values.iter_mut().enumerate() {
        // SAFETY: by the caller's contract.
        let entry = unsafe { spots.entries[index].assume_init() };
        if let Some(stashed) = stashed::<S>(words, entry, digests[index], &mut |_| {}) {
            *value = stashed;
        }
    }
}

/// The value of a name in the stash of its shard: `count, (digest, value)...` as 64-bit words after the cells.
fn stashed<S: Sizing>(words: &Words<'_>, entry: u64, digest: Digest, seen: &mut impl FnMut(Touch)) -> Option<u64> {
    let geometry = S::unpack(entry, 1);
    if !geometry.stash {
        return None;
    }
    let offset = geometry.offset_lines as usize * LINE + geometry.sides.cells() as usize * 8;
    let mut word = |index: usize| {
        seen(Touch { region: Region::Words, offset: offset + index * 8, bytes: 8, stage: 1 });
        // SAFETY: the entry says that a stash follows the words of its shard. A stash is never edited in place.
        unsafe { words.base.add(offset).cast::<u64>().add(index).read() }
    };
    (0..word(0) as usize).find(|&at| word(1 + 2 * at) == digest.0).map(|at| word(2 + 2 * at))
}

/// The value of one name, without prefetching. Calls `seen` for every read.
fn one<S: Sizing, C: Cell, F: FnMut(Touch)>(words: &Words<'_>, cell: C, digest: Digest, seen: &mut F) -> u64 {
    let layout = cell.layout();
    words.edits().read_at(|| {
        seen(Touch { region: Region::Directory, offset: prefix_of(digest.0, words.depth) * 8, bytes: 8, stage: 0 });
        let entry = entry_of(words, digest);
        let (first, second) = locate::<S, _>(layout, entry, digest.0);
        let met = meets::<S>(entry, [first.0, second.0]);
        if let Some(value) = stashed::<S>(words, entry, digest, seen) {
            return (value, met);
        }
        for (offset, _) in [first, second] {
            let bytes = C::Layout::NATIVE.map_or(8, |log_bytes| 1 << log_bytes);
            seen(Touch { region: Region::Words, offset, bytes, stage: 1 });
        }
        // SAFETY: located by an entry of the directory; see `Words`.
        let value = unsafe {
            let first = layout.read(words.base.add(first.0), first.1);
            cell.answer(first, layout.read(words.base.add(second.0), second.1), digest)
        };
        (value, met)
    })
}
