//! How the cells of a bucket are read and written, by their width.

#![expect(unsafe_code, reason = "reads and writes cells at computed addresses of the arena")]

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};

use super::super::layout::Layout;

/// How cells of one width are read and written. Every byte is always accessed by the same atomic type.
pub(super) trait Cells: Copy {
    /// Whether a bucket is one line of bytes.
    const BYTES: bool = false;
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
pub(super) struct Bytes;

impl Cells for Bytes {
    const BYTES: bool = true;
    #[inline(always)]
    fn log_lines(self) -> u32 {
        0
    }
    #[inline(always)]
    // SAFETY: the caller keeps the contract.
    unsafe fn header(self, bucket: *const u8) -> u64 {
        // SAFETY: inside the bucket, which starts at a line; the header is not a cell.
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
pub(super) struct Halves;

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
pub(super) struct Packed(pub(super) Layout);

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
                let $cells = $crate::line::kernel::cells::Bytes;
                $run
            }
            16 if cfg!(target_endian = "little") => {
                let $cells = $crate::line::kernel::cells::Halves;
                $run
            }
            _ => {
                let $cells = $crate::line::kernel::cells::Packed($layout);
                $run
            }
        }
    };
}

pub(super) use with_cells;
