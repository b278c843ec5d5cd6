//! The lookup loops. They turn digests into values, in bursts, and read the words of a query structure.
//!
//! The lookup of one name, as in [`one`]:
//! ```text
//! group = directory[first bits of the digest]
//! for each level that the group has:
//!     bucket = group's bucket for the digest at that level
//!     if rank of the digest < bucket's threshold:
//!         return XOR of the cells at slots(digest, bucket's tweak)
//! return the stash's value of the digest, if it has one
//! ```
//! A burst of 32 names goes through the first level together, so that all its memory accesses overlap. The next burst
//! is prefetched before this one is read:
//! ```text
//! 1. line[i]   = base + offset + reduce(middle bits of digest[i])      prefetch line[i]: the only miss of a lookup
//! 2. header    = tweak and threshold in line[i]
//! 3. slots[i]  = mix(digest[i], tweak), four 16-bit numbers reduced    four names at a time with AVX2
//!    keep[i]   = rank(digest[i]) < threshold
//! 4. value[i]  = XOR of the cells of line[i] at slots[i]
//! 5. where not keep[i], one in fifty: the lookup of one name; its second line was prefetched after step 3
//! ```
//! The only data-dependent branch is that of step 5.

#![expect(unsafe_code, reason = "reads and writes cells at computed addresses of the arena")]

use crate::base::prefetch::BURST;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};

#[cfg(target_arch = "x86_64")]
use super::avx2;
use super::layout::{self, Geometry, LEVELS, Layout, MAX_PARTS};
use crate::base::arena::LINE;
use crate::base::part::prefix_of;
use crate::base::prefetch::prefetch;
use crate::base::touches::{Region, Touch};
use crate::hash::Digest;
use crate::publish::seq_lock::SeqLock;

/// Keeps readers of buckets and their writer apart. It has cache lines of its own, because the writer writes it.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(super) struct Guard(pub(super) SeqLock);

/// What lookups read.
pub(super) type Served<'a> = crate::base::served::Served<'a, Guard>;

/// How cells of one width are read and written. Every byte is always accessed by the same atomic type.
pub(super) trait Cells: Copy {
    /// log2 of the lines of a bucket.
    fn log_lines(self) -> u32;
    /// Tweak and threshold, as in the first two bytes. The bits above them are arbitrary.
    /// # Safety
    /// `bucket` is the address of a bucket that is still there.
    unsafe fn header(self, bucket: *const u8) -> u64;
    /// The cell in `slot`. The bits above it are arbitrary.
    /// # Safety
    /// As for `header`, and the slot is in range.
    unsafe fn read(self, bucket: *const u8, slot: u16) -> u64;
    /// The bits of a value: a mask for the XOR of cells.
    fn mask(self) -> u64;
    /// Writes all words of a bucket.
    /// # Safety
    /// As for `header`, and the caller is the one writer.
    unsafe fn store(self, bucket: *mut u8, words: &[u64]);
}

/// Cells of 8 bits.
#[derive(Clone, Copy)]
struct Bytes;

impl Cells for Bytes {
    #[inline(always)]
    fn log_lines(self) -> u32 {
        0
    }
    #[inline(always)]
    // SAFETY: the caller keeps the contract.
    unsafe fn header(self, bucket: *const u8) -> u64 {
        // SAFETY: inside the bucket, which starts at a line; the header is no cell.
        unsafe { AtomicU16::from_ptr(bucket.cast::<u16>().cast_mut()) }.load(Ordering::Relaxed).into()
    }
    #[inline(always)]
    // SAFETY: the caller keeps the contract.
    unsafe fn read(self, bucket: *const u8, slot: u16) -> u64 {
        // SAFETY: inside the bucket.
        unsafe { AtomicU8::from_ptr(bucket.add(slot.into()).cast_mut()) }.load(Ordering::Relaxed).into()
    }
    #[inline(always)]
    fn mask(self) -> u64 {
        u64::MAX
    }
    // SAFETY: the caller keeps the contract.
    unsafe fn store(self, bucket: *mut u8, words: &[u64]) {
        // SAFETY: as for `header`.
        unsafe { AtomicU16::from_ptr(bucket.cast()) }.store(words[0] as u16, Ordering::Relaxed);
        for (at, byte) in words.iter().flat_map(|word| word.to_le_bytes()).enumerate().skip(2) {
            // SAFETY: inside the bucket.
            unsafe { AtomicU8::from_ptr(bucket.add(at)) }.store(byte, Ordering::Relaxed);
        }
    }
}

/// Cells of 16 bits.
#[derive(Clone, Copy)]
struct Halves;

impl Cells for Halves {
    #[inline(always)]
    fn log_lines(self) -> u32 {
        1
    }
    #[inline(always)]
    // SAFETY: the caller keeps the contract.
    unsafe fn header(self, bucket: *const u8) -> u64 {
        // SAFETY: as above.
        unsafe { self.read(bucket, 0) }
    }
    #[inline(always)]
    // SAFETY: the caller keeps the contract.
    unsafe fn read(self, bucket: *const u8, slot: u16) -> u64 {
        // SAFETY: inside the bucket, which starts at a line.
        let half = unsafe { AtomicU16::from_ptr(bucket.cast::<u16>().add(slot.into()).cast_mut()) };
        u16::from_le(half.load(Ordering::Relaxed)).into()
    }
    #[inline(always)]
    fn mask(self) -> u64 {
        u64::MAX
    }
    // SAFETY: the caller keeps the contract.
    unsafe fn store(self, bucket: *mut u8, words: &[u64]) {
        for (at, word) in words.iter().enumerate() {
            for part in 0..4 {
                let half = ((word >> (16 * part)) as u16).to_le();
                // SAFETY: inside the bucket, which starts at a line.
                unsafe { AtomicU16::from_ptr(bucket.cast::<u16>().add(4 * at + part)) }.store(half, Ordering::Relaxed);
            }
        }
    }
}

/// Cells of any width, in 64-bit words.
#[derive(Clone, Copy)]
struct Packed(Layout);

impl Cells for Packed {
    #[inline(always)]
    fn log_lines(self) -> u32 {
        self.0.log_lines
    }
    #[inline(always)]
    // SAFETY: the caller keeps the contract.
    unsafe fn header(self, bucket: *const u8) -> u64 {
        // SAFETY: inside the bucket, which starts at a line.
        unsafe { AtomicU64::from_ptr(bucket.cast::<u64>().cast_mut()) }.load(Ordering::Relaxed)
    }
    #[inline(always)]
    // SAFETY: the caller keeps the contract.
    unsafe fn read(self, bucket: *const u8, slot: u16) -> u64 {
        let (word, shift) = self.0.place(slot.into());
        // SAFETY: inside the bucket, which starts at a line.
        unsafe { AtomicU64::from_ptr(bucket.cast::<u64>().add(word).cast_mut()) }.load(Ordering::Relaxed) >> shift
    }
    #[inline(always)]
    fn mask(self) -> u64 {
        self.0.value_mask()
    }
    // SAFETY: the caller keeps the contract.
    unsafe fn store(self, bucket: *mut u8, words: &[u64]) {
        for (at, &word) in words.iter().enumerate() {
            // SAFETY: inside the bucket, which starts at a line.
            unsafe { AtomicU64::from_ptr(bucket.cast::<u64>().add(at)) }.store(word, Ordering::Relaxed);
        }
    }
}

/// Runs `$run` with the cells of a layout. There is one `match` per call, and none per name.
macro_rules! with_cells {
    ($layout:expr, $cells:ident => $run:expr) => {
        match $layout.value_bits {
            // Words are numbers and bytes are memory. Their order is the same on little-endian machines only.
            8 if cfg!(target_endian = "little") => {
                let $cells = Bytes;
                $run
            }
            16 if cfg!(target_endian = "little") => {
                let $cells = Halves;
                $run
            }
            _ => {
                let $cells = Packed($layout);
                $run
            }
        }
    };
}

/// Writes a bucket that readers see, inside a [`Guard`].
/// # Safety
/// `bucket` is the address of a served bucket of this layout, and the caller is the one writer.
pub(super) unsafe fn store_bucket(layout: Layout, bucket: *mut u8, words: &[u64]) {
    // SAFETY: by the caller's contract.
    with_cells!(layout, cells => unsafe { cells.store(bucket, words) });
}

/// The value of one name.
pub(super) fn lookup(served: Served<'_>, layout: Layout, digest: Digest) -> u64 {
    with_cells!(layout, cells => served.extra.0.read(|| one(served, layout, cells, digest.0, &mut |_| {})))
}

/// Calls `touch` for everything that [`lookup`] reads.
pub(super) fn touches(served: Served<'_>, layout: Layout, digest: Digest, touch: &mut dyn FnMut(Touch)) {
    touch(Touch { region: Region::Counters, offset: 0, bytes: 8, stage: 0 });
    with_cells!(layout, cells => {
        one(served, layout, cells, digest.0, &mut |seen| touch(seen));
    });
}

/// The values of many names.
/// # Panics
/// When `values` is shorter than `digests`.
pub(super) fn lookup_batch(served: Served<'_>, layout: Layout, digests: &[Digest], values: &mut [u64]) {
    let values = &mut values[..digests.len()];
    with_cells!(layout, cells => match layout.n_parts {
        3 => dispatch::<_, 3>(served, layout, cells, digests, values),
        _ => dispatch::<_, 4>(served, layout, cells, digests, values),
    });
}

#[inline(always)]
fn entry_of(served: Served<'_>, digest: u64) -> u64 {
    let index = prefix_of(digest, served.depth);
    debug_assert!(index < served.entries.len());
    // SAFETY: the directory has 2^depth entries, and the index has depth bits.
    unsafe { served.entries.get_unchecked(index) }.load()
}

/// The address of a bucket, by its number in its group.
#[inline(always)]
fn bucket_at(served: Served<'_>, log_lines: u32, geometry: Geometry, index: u32) -> *const u8 {
    served.base.wrapping_add((geometry.offset_lines as usize + ((index as usize) << log_lines)) * LINE)
}

/// The value of one name. If a writer writes meanwhile, the value may be wrong, but nothing else can go wrong. Calls
/// `seen` for every read.
fn one<C: Cells>(served: Served<'_>, layout: Layout, cells: C, digest: u64, seen: &mut impl FnMut(Touch)) -> u64 {
    seen(Touch { region: Region::Directory, offset: prefix_of(digest, served.depth) * 8, bytes: 8, stage: 0 });
    let geometry = Geometry::unpack(entry_of(served, digest));
    let mut before = 0;
    for (level, n) in geometry.n_buckets.into_iter().map(u32::from).enumerate().filter(|level| level.1 > 0) {
        let bucket = bucket_at(served, cells.log_lines(), geometry, before + layout::bucket(digest, level, n));
        // The place of a bucket does not depend on other buckets. It is read only if no bucket before it keeps the
        // name.
        let mut seen = |slot: u16| {
            let (offset, bytes) = layout.bytes_of(slot.into());
            let offset = bucket.addr() - served.base.addr() + offset;
            seen(Touch { region: Region::Words, offset, bytes, stage: 1 + level as u8 });
        };
        (0..layout.header_slots as u16).for_each(&mut seen);
        // SAFETY: a bucket of a group that the directory leads to. The group stays while the reader is pinned.
        let header = unsafe { cells.header(bucket) };
        if layout::rank(digest, level) < (header >> 8) as u8 {
            let slots = layout.slots(digest, header as u8);
            let cells_of = slots[..layout.n_parts].iter().map(|&slot| {
                seen(slot);
                // SAFETY: as above; slots are inside a bucket for any digest and tweak.
                unsafe { cells.read(bucket, slot) }
            });
            return cells_of.fold(0, |sum, cell| sum ^ cell) & cells.mask();
        }
        before += n;
    }
    if geometry.stash { stashed(served, layout, geometry, digest, seen) } else { 0 }
}

#[cold]
fn stashed(served: Served<'_>, layout: Layout, geometry: Geometry, digest: u64, seen: &mut impl FnMut(Touch)) -> u64 {
    let start = bucket_at(served, layout.log_lines, geometry, geometry.n_all() as u32).cast::<u64>();
    let mut word = |index: usize| {
        let offset = start.addr() - served.base.addr() + index * 8;
        seen(Touch { region: Region::Words, offset, bytes: 8, stage: 1 + LEVELS as u8 });
        // SAFETY: a group with a stash has STASH_BYTES after its buckets. They are not written once the group is published.
        unsafe { start.add(index).read() }
    };
    let found = (0..word(0) as usize).find(|at| word(1 + 2 * at) == digest);
    found.map_or(0, |at| word(2 + 2 * at))
}

/// The addresses of the first buckets of a burst.
pub(super) type Spots = [MaybeUninit<*const u8>; BURST];

#[inline(always)]
pub(super) fn prefetch_bucket(cells: impl Cells, bucket: *const u8) {
    for line in 0..1 << cells.log_lines() {
        prefetch(bucket.wrapping_add(line * LINE));
    }
}

/// Step 1.
#[inline(always)]
fn locate(served: Served<'_>, cells: impl Cells, digests: &[Digest], spots: &mut Spots) {
    for (digest, spot) in digests.iter().zip(spots) {
        let geometry = Geometry::unpack(entry_of(served, digest.0));
        let index = layout::bucket(digest.0, 0, geometry.n_buckets[0].into());
        let bucket = bucket_at(served, cells.log_lines(), geometry, index);
        prefetch_bucket(cells, bucket);
        spot.write(bucket);
    }
}

/// Step 1, in the version for this processor.
/// # Safety
/// The processor has AVX2 where `AVX2` says so.
#[inline(always)]
unsafe fn locate_burst<const AVX2: bool>(served: Served<'_>, cells: impl Cells, digests: &[Digest], spots: &mut Spots) {
    #[cfg(target_arch = "x86_64")]
    if AVX2 && let Some(digests) = digests.first_chunk::<BURST>() {
        // SAFETY: by the caller's contract.
        return unsafe { avx2::locate(served, cells, digests, spots) };
    }
    locate(served, cells, digests, spots);
}

/// Steps 2 to 5. A name whose line the writer wrote meanwhile is read again by itself. If the writer wrote anywhere,
/// bumped names are read again too.
/// # Safety
/// The spots of these digests are written, and their groups are still there. The processor has AVX2 where `AVX2` is
/// true.
#[inline(always)]
unsafe fn read<C: Cells, const PARTS: usize, const AVX2: bool>(
    served: Served<'_>,
    layout: Layout,
    cells: C,
    digests: &[Digest],
    spots: &Spots,
    values: &mut [u64],
) {
    // SAFETY: by the caller's contract.
    let bucket = |index: usize| unsafe { spots[index].assume_init() };
    let journal = served.extra.0.journal();
    let since = journal.begin();
    // SAFETY: by the caller's contract.
    let header = |index: usize| unsafe { cells.header(bucket(index)) };
    let mut slots = [[0; MAX_PARTS]; BURST];
    #[cfg(target_arch = "x86_64")]
    let kept = match digests.first_chunk::<BURST>() {
        // SAFETY: by the caller's contract.
        Some(digests) if AVX2 => unsafe { avx2::slots(layout, digests, spots, &mut slots) },
        _ => slots_of(layout, digests, header, &mut slots),
    };
    #[cfg(not(target_arch = "x86_64"))]
    let kept = slots_of(layout, digests, header, &mut slots);
    let bumped = !kept & ((1u64 << digests.len()) - 1) as u32;
    let mut left = bumped;
    while left != 0 {
        // Prefetch the second line of a bumped name while the others are read.
        let digest = digests[left.trailing_zeros() as usize].0;
        left &= left - 1;
        let geometry = Geometry::unpack(entry_of(served, digest));
        let [first, second, _] = geometry.n_buckets.map(u32::from);
        let index = first + layout::bucket(digest, 1, second);
        prefetch_bucket(cells, bucket_at(served, cells.log_lines(), geometry, index));
    }
    for (index, value) in values.iter_mut().enumerate() {
        // SAFETY: by the caller's contract; slots are inside a bucket for any digest and tweak.
        let cells_of = slots[index][..PARTS].iter().map(|&slot| unsafe { cells.read(bucket(index), slot) });
        *value = cells_of.fold(0, |sum, cell| sum ^ cell) & cells.mask();
    }
    let mut left = bumped;
    while left != 0 {
        let index = left.trailing_zeros() as usize;
        left &= left - 1;
        values[index] = one(served, layout, cells, digests[index].0, &mut |_| {});
    }
    if !journal.is_unchanged(since) {
        let written = journal.written(since);
        let is_written = |index: usize| written.is_at(place_of(bucket(index)));
        let written = (0..digests.len()).fold(0, |all, index| all | u32::from(is_written(index)) << index);
        read_again(served, layout, cells, digests, bumped | written, values);
    }
}

/// Reads the names of a burst whose bits are set in `which`, one by one, under the counter.
#[cold]
#[inline(never)]
fn read_again<C: Cells>(
    served: Served<'_>,
    layout: Layout,
    cells: C,
    digests: &[Digest],
    mut which: u32,
    values: &mut [u64],
) {
    while which != 0 {
        let index = which.trailing_zeros() as usize;
        which &= which - 1;
        values[index] = served.extra.0.read(|| one(served, layout, cells, digests[index].0, &mut |_| {}));
    }
}

/// The place that the journal records for a bucket.
#[inline(always)]
pub(super) fn place_of(bucket: *const u8) -> u64 {
    bucket.addr() as u64
}

/// Steps 2 and 3. Returns a bit for each name that its first bucket keeps.
#[inline(always)]
fn slots_of(
    layout: Layout,
    digests: &[Digest],
    header: impl Fn(usize) -> u64,
    slots: &mut [[u16; MAX_PARTS]; BURST],
) -> u32 {
    let mut kept = 0;
    for (index, digest) in digests.iter().enumerate() {
        let header = header(index);
        slots[index] = layout.slots(digest.0, header as u8);
        kept |= u32::from(layout::rank(digest.0, 0) < (header >> 8) as u8) << index;
    }
    kept
}

fn dispatch<C: Cells, const PARTS: usize>(
    served: Served<'_>,
    layout: Layout,
    cells: C,
    digests: &[Digest],
    values: &mut [u64],
) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("bmi2") {
        // SAFETY: the processor has what the function is compiled for.
        return unsafe { bursts_avx2::<C, PARTS>(served, layout, cells, digests, values) };
    }
    bursts::<C, PARTS, false>(served, layout, cells, digests, values);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2")]
// SAFETY: the caller has checked that the processor has them.
unsafe fn bursts_avx2<C: Cells, const PARTS: usize>(
    served: Served<'_>,
    layout: Layout,
    cells: C,
    digests: &[Digest],
    values: &mut [u64],
) {
    bursts::<C, PARTS, true>(served, layout, cells, digests, values);
}

/// All bursts of a call. Each burst is located before the one before it is read.
#[inline(always)]
fn bursts<C: Cells, const PARTS: usize, const AVX2: bool>(
    served: Served<'_>,
    layout: Layout,
    cells: C,
    digests: &[Digest],
    values: &mut [u64],
) {
    let (mut one, mut other): (Spots, Spots) = ([MaybeUninit::uninit(); BURST], [MaybeUninit::uninit(); BURST]);
    let (mut here, mut next) = (&mut one, &mut other);
    let mut bursts = digests.chunks(BURST).zip(values.chunks_mut(BURST));
    let Some((mut digests, mut values)) = bursts.next() else { return };
    // SAFETY: the caller has checked the processor, and a burst is located before it is read.
    unsafe {
        locate_burst::<AVX2>(served, cells, digests, here);
        for (next_digests, next_values) in bursts {
            locate_burst::<AVX2>(served, cells, next_digests, next);
            read::<C, PARTS, AVX2>(served, layout, cells, digests, here, values);
            std::mem::swap(&mut here, &mut next);
            (digests, values) = (next_digests, next_values);
        }
        read::<C, PARTS, AVX2>(served, layout, cells, digests, here, values);
    }
}

const _: () = assert!(BURST == 32 && LEVELS == 3);
