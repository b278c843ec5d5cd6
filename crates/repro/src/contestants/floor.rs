//! The floor, which no Othello can beat: the same digests, then per name two range reductions and two independent
//! random byte reads from two flat arrays, XOR, and nothing else: no shard, no tweak, no publication.
//!
//! Together the arrays have the size of the structure that the floor is compared with, and they are on huge pages.
//! Positions are computed with AVX2 if available. Whether it prefetches is decided by trying both before the
//! measurement, so that small tables do not pay for instructions that only large ones need.
//! Its answers mean nothing.

#![expect(unsafe_code, reason = "unchecked reads and prefetches, as the structures it is the floor of have them")]

use std::time::{Duration, Instant};

use lookup::hash::{Digest, Hasher};

use super::{Burst, Contestant, Input, Kind, MAX_BATCH, Reader};
use crate::BenchError;
use crate::names::{Random, mix64};
use crate::pages::Pages;

pub(super) const KIND: Kind = Kind {
    name: "floor",
    about: "the same loop and digests with two random reads from flat arrays and nothing else",
    build: |input| build(input, Reads::Two),
    default: true,
};
pub(super) const ONE_LINE: Kind = Kind {
    name: "floor-line",
    about: "the same with one random read: what no structure of one cache line a lookup can beat",
    build: |input| build(input, Reads::One),
    default: false,
};

/// Random reads per name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    One,
    Two,
}

struct Floor {
    a: Pages,
    b: Pages,
    hasher: Hasher,
    name_len: usize,
    reads: Reads,
    prefetch: bool,
}

fn build(input: &Input<'_>, reads: Reads) -> Result<Box<dyn Contestant>, BenchError> {
    let half = match reads {
        Reads::One => input.floor_bytes.max(1),
        Reads::Two => input.floor_bytes.div_ceil(2).max(1),
    };
    if u32::try_from(half).is_err() {
        return Err(input.build_error(
            KIND.name,
            format!("its arrays would have {half} bytes each, the most is 2^32 - 1; use fewer names"),
        ));
    }
    let mut random = Random::new(input.seed);
    let mut filled = |bytes| {
        let mut pages = Pages::zeroed(bytes);
        pages.fill_with(|| random.next_u64() as u8);
        pages
    };
    let mut floor = Floor {
        a: filled(half),
        b: filled(if reads == Reads::One { 1 } else { half }),
        hasher: input.hasher(),
        name_len: input.name_len,
        reads,
        prefetch: false,
    };
    floor.prefetch = floor.prefetch_pays();
    Ok(Box::new(floor))
}

impl Floor {
    /// Tries both forms in turn on made-up names, different ones each time.
    fn prefetch_pays(&self) -> bool {
        let mut best = [Duration::MAX; 2];
        for trial in 0..6 {
            let names: Vec<u64> = (0..1 << 20).map(|i| mix64(i + (trial << 32))).collect();
            let prefetch = trial % 2 == 1;
            let mut reader = FloorReader { floor: self, prefetch, digests: [Digest(0); MAX_BATCH] };
            let start = Instant::now();
            std::hint::black_box(reader.sum(&names, 32, 1));
            let best = &mut best[usize::from(prefetch)];
            *best = start.elapsed().min(*best);
        }
        best[1] < best[0]
    }
}

impl Contestant for Floor {
    fn size_bits(&self) -> u64 {
        match self.reads {
            Reads::One => 8 * self.a.len() as u64,
            Reads::Two => 8 * (self.a.len() + self.b.len()) as u64,
        }
    }

    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(FloorReader { floor: self, prefetch: self.prefetch, digests: [Digest(0); MAX_BATCH] })
    }

    fn answers(&self) -> bool {
        false
    }

    fn note(&self) -> String {
        if self.prefetch { "prefetched".into() } else { "without prefetch, which is faster here".into() }
    }
}

struct FloorReader<'a> {
    floor: &'a Floor,
    prefetch: bool,
    digests: [Digest; MAX_BATCH],
}

impl Burst for FloorReader<'_> {
    #[inline]
    fn lookup(&mut self, names: &[u64], values: &mut [u64]) {
        let digests = &mut self.digests[..names.len()];
        self.floor.hasher.digest_words(names, self.floor.name_len, digests);
        match self.floor.reads {
            Reads::One => read_one(&self.floor.a, digests, values, self.prefetch),
            Reads::Two => read(&self.floor.a, &self.floor.b, digests, values, self.prefetch),
        }
    }
}

fn read(a: &[u8], b: &[u8], digests: &[Digest], values: &mut [u64], prefetch: bool) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: AVX2 is available.
        return unsafe { read_avx2(a, b, digests, values, prefetch) };
    }
    read_any(a, b, digests, values, prefetch);
}

/// [`read_any`] compiled for AVX2: the compiler vectorises the multiplications four wide.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn read_avx2(a: &[u8], b: &[u8], digests: &[Digest], values: &mut [u64], prefetch: bool) {
    read_any(a, b, digests, values, prefetch);
}

#[inline(always)]
fn read_any(a: &[u8], b: &[u8], digests: &[Digest], values: &mut [u64], prefetch: bool) {
    assert!(!a.is_empty() && !b.is_empty() && values.len() == digests.len());
    let (len_a, len_b) = (a.len() as u64, b.len() as u64);
    for (digests, values) in digests.chunks(CHUNK).zip(values.chunks_mut(CHUNK)) {
        // Position in `a` in the low half, in `b` in the high half: two vector multiplications per four names.
        let mut positions = [0u64; CHUNK];
        for (position, digest) in positions.iter_mut().zip(digests) {
            let at_a = ((digest.0 >> 32) * len_a) >> 32;
            let at_b = (digest.0 & LOW) * len_b;
            *position = at_a | (at_b & !LOW);
        }
        let positions = &positions[..digests.len()];
        if prefetch {
            for position in positions {
                prefetch_read(a, position & LOW);
                prefetch_read(b, position >> 32);
            }
        }
        for (value, position) in values.iter_mut().zip(positions) {
            let (at_a, at_b) = ((position & LOW) as usize, (position >> 32) as usize);
            debug_assert!(at_a < a.len() && at_b < b.len());
            // SAFETY: 32 bits times a length, divided by 2^32, is below the length.
            *value = unsafe { u64::from(a.get_unchecked(at_a) ^ b.get_unchecked(at_b)) };
        }
    }
}

/// One read per name, at a position computed by one range reduction.
#[inline(always)]
fn read_one(a: &[u8], digests: &[Digest], values: &mut [u64], prefetch: bool) {
    assert!(!a.is_empty() && values.len() == digests.len());
    let len = a.len() as u64;
    for (digests, values) in digests.chunks(CHUNK).zip(values.chunks_mut(CHUNK)) {
        let mut positions = [0u64; CHUNK];
        for (position, digest) in positions.iter_mut().zip(digests) {
            *position = ((digest.0 >> 32) * len) >> 32;
        }
        let positions = &positions[..digests.len()];
        if prefetch {
            positions.iter().for_each(|&position| prefetch_read(a, position));
        }
        for (value, &position) in values.iter_mut().zip(positions) {
            debug_assert!((position as usize) < a.len());
            // SAFETY: 32 bits times a length, divided by 2^32, is below the length.
            *value = unsafe { (*a.get_unchecked(position as usize)).into() };
        }
    }
}

/// Names whose positions are computed before the first is read.
const CHUNK: usize = 32;
/// The low half of a word.
const LOW: u64 = 0xffff_ffff;

#[inline(always)]
fn prefetch_read(array: &[u8], at: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: any address may be prefetched.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(array.as_ptr().wrapping_add(at as usize).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (array, at);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floor_reads_one_byte_of_each_array_with_and_without_prefetch() {
        let a: Vec<u8> = (0..1000u32).map(|i| mix64(u64::from(i)) as u8).collect();
        let b: Vec<u8> = (0..777u32).map(|i| mix64(u64::from(i) + 5000) as u8).collect();
        let digests: Vec<Digest> = (0..MAX_BATCH as u64).map(|i| Digest(mix64(i + 9))).collect();
        for prefetch in [false, true] {
            let mut values = [0; MAX_BATCH];
            read(&a, &b, &digests, &mut values, prefetch);
            for (digest, value) in digests.iter().zip(values) {
                let at_a = ((digest.0 >> 32) * 1000) >> 32;
                let at_b = ((digest.0 & 0xffff_ffff) * 777) >> 32;
                assert_eq!(value, u64::from(a[at_a as usize] ^ b[at_b as usize]));
            }
        }
    }

    #[test]
    fn positions_of_the_extreme_digests_lie_inside() {
        let mut values = [0; 2];
        read(&[1, 2, 3], &[4], &[Digest(0), Digest(u64::MAX)], &mut values, true);
        assert_eq!(values, [1 ^ 4, 3 ^ 4]);
    }
}
