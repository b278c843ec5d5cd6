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
//! The lookup of a burst of up to 32 names has two halves. Its names go through the first level together, so that all
//! their memory accesses overlap:
//! ```text
//! begin   1. line[i]   = base + offset + reduce(middle bits of digest[i])      prefetch line[i]: the only miss of a lookup
//! finish  2. header    = tweak and threshold in line[i]
//!         3. slots[i]  = mix(digest[i], tweak), four 16-bit numbers reduced
//!            keep[i]   = rank(digest[i]) < threshold
//!         4. value[i]  = XOR of the cells of line[i] at slots[i]
//!         5. where not keep[i], one in fifty: the lookup of one name
//! ```
//! Step 5 has the only data-dependent branch. The lines of these names are prefetched first. [`lookup_batch`] begins two
//! bursts before it finishes the first, and takes step 5 for several bursts together.
//!
//! Steps 1 to 4 have vector versions: `avx2` computes four names at a time, and reads their cells one by one. `avx512`
//! holds eight whole lines in registers, and picks the cells of each by one byte permutation. All versions agree with the
//! scalar one.

#![expect(unsafe_code, reason = "reads and writes cells at computed addresses of the arena")]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod cells;

use std::mem::MaybeUninit;

use super::layout::{self, Geometry, LEVELS, Layout, MAX_PARTS};
use crate::base::arena::LINE;
use crate::base::part::prefix_of;
use crate::base::prefetch::{BURST, prefetch};
use crate::base::processor::{Kernel, Vectors};
use crate::base::touches::{Region, Touch};
use crate::hash::Digest;
use crate::publish::ring::AHEAD;
use cells::{Cells, with_cells};

/// What lookups read.
pub(super) type Served<'a> = crate::base::served::Served<'a, ()>;

/// Writes a bucket that readers see, inside an edit.
/// # Safety
/// `bucket` is the address of a served bucket of this layout, and the caller is the one writer.
pub(super) unsafe fn store_bucket(layout: &Layout, bucket: *mut u8, words: &[u64]) {
    // SAFETY: by the caller's contract.
    with_cells!(*layout, cells => unsafe { cells.store(bucket, words) });
}

/// The value of one name.
pub(super) fn lookup(served: &Served<'_>, layout: &Layout, digest: Digest) -> u64 {
    with_cells!(*layout, cells => served.edits().read(|| one(served, layout, cells, digest.0, &mut |_| {})))
}

/// Calls `touch` for everything that [`lookup`] reads.
pub(super) fn touches(served: &Served<'_>, layout: &Layout, digest: Digest, touch: &mut dyn FnMut(Touch)) {
    touch(Touch { region: Region::Counters, offset: 0, bytes: 8, stage: 0 });
    with_cells!(*layout, cells => {
        one(served, layout, cells, digest.0, &mut |seen| touch(seen));
    });
}

/// The values of many names.
/// # Panics
/// When `values` is shorter than `digests`.
pub(super) fn lookup_batch(
    kernel: Kernel,
    served: &Served<'_>,
    layout: &Layout,
    digests: &[Digest],
    values: &mut [u64],
) {
    fn with<C: Cells, const PARTS: usize>(
        kernel: Kernel,
        served: &Served<'_>,
        layout: &Layout,
        cells: C,
        digests: &[Digest],
        values: &mut [u64],
    ) {
        match vectors::<C>(kernel) {
            // SAFETY: the processor has the kernel.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512Ifma => unsafe {
                if kernel.gathers() {
                    avx512::bursts::<true, C, PARTS>(served, layout, cells, digests, values);
                } else {
                    avx512::bursts::<false, C, PARTS>(served, layout, cells, digests, values);
                }
            },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2 => unsafe { avx2::bursts::<C, PARTS>(served, layout, cells, digests, values) },
            _ => bursts::<Scalar, C, PARTS>(served, layout, cells, digests, values),
        }
    }
    let values = &mut values[..digests.len()];
    with_cells!(*layout, cells => match layout.n_parts {
        3 => with::<_, 3>(kernel, served, layout, cells, digests, values),
        _ => with::<_, 4>(kernel, served, layout, cells, digests, values),
    });
}

/// Begins the lookup of a burst.
/// # Panics
/// When there are more than [`BURST`] digests.
pub(super) fn begin(kernel: Kernel, served: &Served<'_>, layout: &Layout, digests: &[Digest], spots: &mut Spots) {
    fn with<C: Cells>(kernel: Kernel, served: &Served<'_>, cells: C, digests: &[Digest], spots: &mut Spots) {
        match vectors::<C>(kernel) {
            // SAFETY: the processor has the kernel.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512Ifma => unsafe {
                if kernel.gathers() {
                    avx512::Avx512::<true>::locate(served, cells, digests, spots);
                } else {
                    avx512::Avx512::<false>::locate(served, cells, digests, spots);
                }
            },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2 => unsafe { avx2::Avx2::locate(served, cells, digests, spots) },
            // SAFETY: every processor has it.
            _ => unsafe { Scalar::locate(served, cells, digests, spots) },
        }
    }
    assert!(digests.len() <= BURST, "a burst has at most {BURST} names");
    with_cells!(*layout, cells => with(kernel, served, cells, digests, spots));
}

/// Finishes the lookup of a burst.
/// # Safety
/// The spots were begun with these digests and this table, and the groups found then are still there.
/// # Panics
/// When `values` or `digests` are not as many as were begun.
// SAFETY: the caller keeps the contract.
pub(super) unsafe fn finish(
    kernel: Kernel,
    served: &Served<'_>,
    layout: &Layout,
    digests: &[Digest],
    spots: &Spots,
    values: &mut [u64],
) {
    // SAFETY: the caller keeps the contract of `finish`.
    unsafe fn with<C: Cells, const PARTS: usize>(
        kernel: Kernel,
        served: &Served<'_>,
        layout: &Layout,
        cells: C,
        digests: &[Digest],
        spots: &Spots,
        values: &mut [u64],
    ) {
        match vectors::<C>(kernel) {
            // SAFETY: the processor has the kernel; and by the contract of `finish`.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512Ifma => unsafe {
                avx512::finish::<C, PARTS>(served, layout, cells, digests, spots, values);
            },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2 => unsafe { avx2::finish::<C, PARTS>(served, layout, cells, digests, spots, values) },
            // SAFETY: by the contract of `finish`.
            _ => unsafe { finish_burst::<Scalar, C, PARTS>(served, layout, cells, digests, spots, values) },
        }
    }
    assert!(digests.len() == spots.n && values.len() == spots.n, "a burst is finished with what it was begun with");
    with_cells!(*layout, cells => match layout.n_parts {
        // SAFETY: by the caller's contract.
        3 => unsafe { with::<_, 3>(kernel, served, layout, cells, digests, spots, values) },
        // SAFETY: by the caller's contract.
        _ => unsafe { with::<_, 4>(kernel, served, layout, cells, digests, spots, values) },
    });
}

/// The names of a burst that their first buckets keep, as bits: those that do not go the slow way.
#[cfg(test)]
pub(super) fn kept(kernel: Kernel, served: &Served<'_>, layout: &Layout, digests: &[Digest]) -> u32 {
    fn with<V: Steps, C: Cells>(served: &Served<'_>, layout: &Layout, cells: C, digests: &[Digest]) -> u32 {
        let (mut spots, mut values) = (Spots::unwritten(), vec![0; digests.len()]);
        // SAFETY: the caller has checked the processor, and the spots are written before they are read.
        unsafe {
            V::locate(served, cells, digests, &mut spots);
            V::read::<C, 3>(layout, cells, digests, &spots, &mut values)
        }
    }
    fn by<C: Cells>(kernel: Kernel, served: &Served<'_>, layout: &Layout, cells: C, digests: &[Digest]) -> u32 {
        match vectors::<C>(kernel) {
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512Ifma => with::<avx512::Avx512<false>, C>(served, layout, cells, digests),
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2 => with::<avx2::Avx2, C>(served, layout, cells, digests),
            _ => with::<Scalar, C>(served, layout, cells, digests),
        }
    }
    assert!(digests.len() <= BURST && layout.n_parts == 3);
    with_cells!(*layout, cells => by(kernel, served, layout, cells, digests))
}

/// The vector loops for these cells. The loop of AVX-512 is for buckets of one line of bytes, and needs byte
/// permutations.
fn vectors<C: Cells>(kernel: Kernel) -> Vectors {
    match kernel.vectors() {
        Vectors::Avx512Ifma if C::BYTES => Vectors::Avx512Ifma,
        Vectors::Scalar => Vectors::Scalar,
        _ => Vectors::Avx2,
    }
}

#[inline(always)]
fn entry_of(served: &Served<'_>, digest: u64) -> u64 {
    let index = prefix_of(digest, served.depth);
    debug_assert!(index < served.entries.len());
    // SAFETY: the directory has 2^depth entries, and the index has depth bits.
    unsafe { served.entries.get_unchecked(index) }.load()
}

/// The address of a bucket, by its number in its group.
#[inline(always)]
fn bucket_at(served: &Served<'_>, log_lines: u32, geometry: Geometry, index: u32) -> *const u8 {
    served.base.wrapping_add((geometry.offset_lines as usize + ((index as usize) << log_lines)) * LINE)
}

/// The value of one name. If a writer writes meanwhile, the value may be wrong, but nothing else can go wrong. Calls
/// `seen` for every read.
fn one<C: Cells>(served: &Served<'_>, layout: &Layout, cells: C, digest: u64, seen: &mut impl FnMut(Touch)) -> u64 {
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
fn stashed(served: &Served<'_>, layout: &Layout, geometry: Geometry, digest: u64, seen: &mut impl FnMut(Touch)) -> u64 {
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

/// A burst whose lookup has begun: the addresses of the first buckets of its names.
#[repr(align(64))]
pub(super) struct Spots {
    buckets: [MaybeUninit<*const u8>; BURST],
    /// How many names have spots.
    n: usize,
}

// SAFETY: the addresses are used only with the table that they are from, through its reader.
unsafe impl Send for Spots {}

impl Spots {
    pub(super) fn unwritten() -> Self {
        Self { buckets: [MaybeUninit::uninit(); BURST], n: 0 }
    }

    /// Starts fetching all buckets.
    #[inline(always)]
    fn prefetch(&self, cells: impl Cells) {
        for bucket in &self.buckets[..self.n] {
            // SAFETY: this many spots are written.
            prefetch_bucket(cells, unsafe { bucket.assume_init() });
        }
    }

    /// # Safety
    /// The spot is written.
    #[inline(always)]
    // SAFETY: the caller keeps the contract.
    unsafe fn bucket(&self, index: usize) -> *const u8 {
        // SAFETY: by the caller's contract.
        unsafe { self.buckets[index].assume_init() }
    }
}

#[inline(always)]
fn prefetch_bucket(cells: impl Cells, bucket: *const u8) {
    for line in 0..1 << cells.log_lines() {
        prefetch(bucket.wrapping_add(line * LINE));
    }
}

/// Starts fetching the bucket of a name at the second level.
#[inline(always)]
fn prefetch_second(served: &Served<'_>, cells: impl Cells, digest: Digest) {
    let geometry = Geometry::unpack(entry_of(served, digest.0));
    let [first, second, _] = geometry.n_buckets.map(u32::from);
    let index = first + layout::bucket(digest.0, 1, second);
    prefetch_bucket(cells, bucket_at(served, cells.log_lines(), geometry, index));
}

/// Steps 1 to 4, for one kind of processor.
trait Steps {
    /// Step 1, for up to [`BURST`] digests.
    /// # Safety
    /// The processor has the instructions.
    unsafe fn locate(served: &Served<'_>, cells: impl Cells, digests: &[Digest], spots: &mut Spots);

    /// Steps 2 to 4. Writes a value for each name, and returns a bit for each name that its first bucket keeps. The
    /// other values mean nothing.
    /// # Safety
    /// As for `locate`, and the spots of these digests are written, and their groups are still there.
    unsafe fn read<C: Cells, const PARTS: usize>(
        layout: &Layout,
        cells: C,
        digests: &[Digest],
        spots: &Spots,
        values: &mut [u64],
    ) -> u32;

    /// Appends `from` plus the number of each bit of `bumped` to the list.
    /// # Safety
    /// As for `locate`.
    #[inline(always)]
    // SAFETY: nothing is demanded of the caller here.
    unsafe fn note(mut bumped: u32, from: usize, list: &mut Bumped) {
        while bumped != 0 {
            list.names[list.n] = (from + bumped.trailing_zeros() as usize) as u16;
            list.n += 1;
            bumped &= bumped - 1;
        }
    }
}

/// The names that one [`lookup_batch`] takes together.
const MANY: usize = 8 * BURST;

/// The numbers of the names whose first bucket does not keep them.
struct Bumped {
    /// A whole burst may be stored at the end.
    names: [u16; MANY + BURST],
    n: usize,
}

struct Scalar;

impl Steps for Scalar {
    #[inline(always)]
    // SAFETY: nothing is demanded of the caller.
    unsafe fn locate(served: &Served<'_>, cells: impl Cells, digests: &[Digest], spots: &mut Spots) {
        spots.n = digests.len();
        locate_from(0, served, cells, digests, spots);
        if served.prefetch {
            spots.prefetch(cells);
        }
    }

    #[inline(always)]
    // SAFETY: the caller keeps the contract.
    unsafe fn read<C: Cells, const PARTS: usize>(
        layout: &Layout,
        cells: C,
        digests: &[Digest],
        spots: &Spots,
        values: &mut [u64],
    ) -> u32 {
        let mut slots = [[0; MAX_PARTS]; BURST];
        // SAFETY: by the caller's contract.
        unsafe {
            let kept = slots_from(0, layout, cells, digests, spots, &mut slots);
            read_cells::<C, PARTS>(cells, spots, &slots, values);
            kept
        }
    }
}

/// Step 1 for the digests from `start` on, one by one.
#[inline(always)]
fn locate_from(start: usize, served: &Served<'_>, cells: impl Cells, digests: &[Digest], spots: &mut Spots) {
    for (digest, spot) in digests.iter().zip(&mut spots.buckets).skip(start) {
        let geometry = Geometry::unpack(entry_of(served, digest.0));
        let index = layout::bucket(digest.0, 0, geometry.n_buckets[0].into());
        spot.write(bucket_at(served, cells.log_lines(), geometry, index));
    }
}

/// Steps 2 and 3 for the digests from `start` on. Returns a bit for each name that its first bucket keeps.
/// # Safety
/// As for [`Steps::read`].
#[inline(always)]
// SAFETY: the caller keeps the contract.
unsafe fn slots_from(
    start: usize,
    layout: &Layout,
    cells: impl Cells,
    digests: &[Digest],
    spots: &Spots,
    slots: &mut [[u16; MAX_PARTS]; BURST],
) -> u32 {
    let mut kept = 0;
    for (index, digest) in digests.iter().enumerate().skip(start) {
        // SAFETY: by the caller's contract.
        let header = unsafe { cells.header(spots.bucket(index)) };
        slots[index] = layout.slots(digest.0, header as u8);
        kept |= u32::from(layout::rank(digest.0, 0) < (header >> 8) as u8) << index;
    }
    kept
}

/// Step 4.
/// # Safety
/// As for [`Steps::read`], and the slots are inside a bucket.
#[inline(always)]
// SAFETY: the caller keeps the contract.
unsafe fn read_cells<C: Cells, const PARTS: usize>(
    cells: C,
    spots: &Spots,
    slots: &[[u16; MAX_PARTS]; BURST],
    values: &mut [u64],
) {
    for (index, value) in values.iter_mut().enumerate() {
        // SAFETY: by the caller's contract.
        let cells_of = slots[index][..PARTS].iter().map(|&slot| unsafe { cells.read(spots.bucket(index), slot) });
        *value = cells_of.fold(0, |sum, cell| sum ^ cell) & cells.mask();
    }
}

/// Steps 2 to 4 of a burst, and the names whose lines the writer wrote meanwhile again. Returns a bit for each bumped
/// name, whose value means nothing.
/// # Safety
/// As for [`Steps::read`].
#[inline(always)]
// SAFETY: the caller keeps the contract.
unsafe fn read_first<V: Steps, C: Cells, const PARTS: usize>(
    served: &Served<'_>,
    layout: &Layout,
    cells: C,
    digests: &[Digest],
    spots: &Spots,
    values: &mut [u64],
) -> u32 {
    let all = ((1u64 << digests.len()) - 1) as u32;
    let journal = served.edits().journal;
    let since = journal.begin();
    // SAFETY: by the caller's contract.
    let bumped = !unsafe { V::read::<C, PARTS>(layout, cells, digests, spots, values) } & all;
    if journal.is_unchanged(since) {
        return bumped;
    }
    let written = journal.written(since);
    // SAFETY: by the caller's contract.
    let is_written = |index: usize| written.is_at(place_of(served.base, unsafe { spots.bucket(index) }));
    let written = (0..digests.len()).fold(0, |all, index| all | u32::from(is_written(index)) << index);
    read_again(served, layout, cells, digests, written, values);
    bumped & !written
}

/// Steps 2 to 5 of a burst.
/// # Safety
/// As for [`Steps::read`].
#[inline(always)]
// SAFETY: the caller keeps the contract.
unsafe fn finish_burst<V: Steps, C: Cells, const PARTS: usize>(
    served: &Served<'_>,
    layout: &Layout,
    cells: C,
    digests: &[Digest],
    spots: &Spots,
    values: &mut [u64],
) {
    // SAFETY: by the caller's contract.
    let mut bumped = unsafe { read_first::<V, C, PARTS>(served, layout, cells, digests, spots, values) };
    let names = std::iter::from_fn(|| {
        let index = bumped.trailing_zeros() as usize;
        let is_some = bumped != 0;
        bumped &= bumped.wrapping_sub(1);
        is_some.then_some(index)
    });
    read_bumped(served, layout, cells, digests, names, values);
}

/// Step 5: the values of bumped names, one by one. If the writer wrote meanwhile, they are read again under the counter.
#[inline(always)]
fn read_bumped<C: Cells>(
    served: &Served<'_>,
    layout: &Layout,
    cells: C,
    digests: &[Digest],
    names: impl Iterator<Item = usize>,
    values: &mut [u64],
) {
    let sequence = served.edits().sequence();
    for index in names {
        let stamp = sequence.read_begin();
        values[index] = one(served, layout, cells, digests[index].0, &mut |_| {});
        if !stamp.is_some_and(|stamp| sequence.read_validate(stamp)) {
            values[index] = served.edits().read(|| one(served, layout, cells, digests[index].0, &mut |_| {}));
        }
    }
}

/// Reads the names of a burst whose bits are set in `which`, one by one, under the counter.
#[cold]
#[inline(never)]
fn read_again<C: Cells>(
    served: &Served<'_>,
    layout: &Layout,
    cells: C,
    digests: &[Digest],
    mut which: u32,
    values: &mut [u64],
) {
    while which != 0 {
        let index = which.trailing_zeros() as usize;
        which &= which - 1;
        values[index] = served.edits().read(|| one(served, layout, cells, digests[index].0, &mut |_| {}));
    }
}

/// The place that the journal records for a bucket: its offset from the base.
#[inline(always)]
pub(super) fn place_of(base: *const u8, bucket: *const u8) -> u64 {
    (bucket.addr() - base.addr()) as u64
}

/// All bursts of a call.
#[inline(always)]
fn bursts<V: Steps, C: Cells, const PARTS: usize>(
    served: &Served<'_>,
    layout: &Layout,
    cells: C,
    digests: &[Digest],
    values: &mut [u64],
) {
    if digests.len() <= BURST {
        let mut spots = Spots::unwritten();
        // SAFETY: the caller of this function has checked the processor, and the spots are written before they are read.
        unsafe {
            V::locate(served, cells, digests, &mut spots);
            finish_burst::<V, C, PARTS>(served, layout, cells, digests, &spots, values);
        }
        return;
    }
    for (digests, values) in digests.chunks(MANY).zip(values.chunks_mut(MANY)) {
        many_bursts::<V, C, PARTS>(served, layout, cells, digests, values);
    }
}

/// As [`bursts`], for up to [`MANY`] names. [`AHEAD`] bursts are begun before the first of them is read. Bumped names are
/// only noted, without a branch for each, and read at the end, when their second lines have been prefetched together.
#[inline(always)]
fn many_bursts<V: Steps, C: Cells, const PARTS: usize>(
    served: &Served<'_>,
    layout: &Layout,
    cells: C,
    digests: &[Digest],
    values: &mut [u64],
) {
    // One element more than is in use, so that an index is a mask. Written one by one: an array of them would be copied.
    let mut ring = [const { MaybeUninit::<Spots>::uninit() }; (AHEAD + 1).next_power_of_two()];
    let mut noted = Bumped { names: [0; MANY + BURST], n: 0 };
    let mut left = values.chunks_mut(BURST).zip(digests.chunks(BURST)).enumerate();
    let mut read = |ring: &[MaybeUninit<Spots>], (at, (values, digests)): (usize, (&mut [u64], &[Digest]))| {
        // SAFETY: the spots of these digests were written below.
        unsafe {
            let spots = ring[at % ring.len()].assume_init_ref();
            let bumped = read_first::<V, C, PARTS>(served, layout, cells, digests, spots, values);
            V::note(bumped, at * BURST, &mut noted);
        }
    };
    for (at, digests) in digests.chunks(BURST).enumerate() {
        let spots = ring[at % ring.len()].write(Spots::unwritten());
        // SAFETY: the caller of this function has checked the processor.
        unsafe { V::locate(served, cells, digests, spots) };
        if at >= AHEAD {
            read(&ring, left.next().expect("so many bursts were begun"));
        }
    }
    left.for_each(|burst| read(&ring, burst));
    let names = || noted.names[..noted.n].iter().map(|&name| usize::from(name));
    if served.prefetch {
        names().for_each(|name| prefetch_second(served, cells, digests[name]));
    }
    read_bumped(served, layout, cells, digests, names(), values);
}

const _: () = assert!(BURST == 32 && LEVELS == 3);
