//! Floors: the same digests by the same kernel, the same calls with as many bursts in flight, then per name one or two
//! random byte reads from flat arrays, and nothing else: no directory, no tweak, no publication.
//!
//! `floor` has two reads per name, as an Othello, `floor-line` one, and `positions` none. The arrays have the size of the
//! structure that the floor is compared with, and are on huge pages. Whether a floor prefetches is decided by trying both
//! before the measurement, for single bursts and for bursts in flight, so that small tables do not pay for instructions
//! that only large ones need. The note in the table says which won, and which kernel computes digests and positions. A
//! reader chooses the kernel once.
//! The answers of a floor mean nothing, but [`Flat`] arrays with the right contents make an Othello: see `published`.

#![expect(unsafe_code, reason = "unchecked reads and prefetches, as the structures it is the floor of have them")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use lookup::base::prefetch::{BURST, prefetch};
use lookup::base::processor::Kernel;
use lookup::hash::{Digest, Hasher};
use lookup::publish::ring::{AHEAD, Ring};

use super::{Burst, Calls, Contestant, Input, Kind, Reader};
use crate::BenchError;
use crate::names::{Random, mix64};
use crate::pages::Pages;

pub(super) const KIND: Kind = Kind {
    name: "floor",
    about: "the same calls and digests with two random reads from flat arrays and nothing else",
    build: |input| build(input, Reads::Two),
    default: true,
};
pub(super) const ONE_LINE: Kind = Kind {
    name: "floor-line",
    about: "the same with one random read",
    build: |input| build(input, Reads::One),
    default: false,
};

pub(super) const POSITIONS: Kind = Kind {
    name: "positions",
    about: "part of a lookup: the digests, and two positions in flat arrays that are not read",
    build: |input| build(input, Reads::None),
    default: false,
};

/// Random reads per name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reads {
    None,
    One,
    Two,
}

/// Two arrays of bytes, and the hasher that finds places in them.
pub(super) struct Flat {
    a: Pages,
    b: Pages,
    hasher: Hasher,
    name_len: usize,
    reads: Reads,
    prefetch: Prefetch,
}

/// Whether a reader prefetches.
#[derive(Clone, Copy, Default)]
struct Prefetch {
    in_a_call: bool,
    in_flight: bool,
}

fn build(input: &Input<'_>, reads: Reads) -> Result<Box<dyn Contestant>, BenchError> {
    let half = if reads == Reads::One { input.floor_bytes } else { input.floor_bytes.div_ceil(2) }.max(1);
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
    let arrays = [filled(half), filled(if reads == Reads::One { 1 } else { half })];
    Ok(Box::new(Flat::new(arrays, input.hasher(), input.name_len, reads)))
}

impl Flat {
    /// Arrays of fewer than 2^32 bytes, at least one each. The high half of a digest selects a byte of the first, the low
    /// half one of the second.
    pub(super) fn new([a, b]: [Pages; 2], hasher: Hasher, name_len: usize, reads: Reads) -> Self {
        assert!([&a, &b].into_iter().all(|array| (1..1 << 32).contains(&array.len())), "a position has 32 bits");
        let mut flat = Self { a, b, hasher, name_len, reads, prefetch: Prefetch::default() };
        if reads != Reads::None {
            flat.prefetch = Prefetch { in_a_call: flat.prefetch_pays(1), in_flight: flat.prefetch_pays(2) };
        }
        flat
    }

    /// Tries both forms in turn on made-up names, different ones each time. Of many short trials some are undisturbed.
    fn prefetch_pays(&self, in_flight: u32) -> bool {
        let mut best = [Duration::MAX; 2];
        for trial in 0..40 {
            let names: Vec<u64> = (0..1 << 16).map(|i| mix64(i + (trial << 32))).collect();
            let prefetch = trial % 2 == 1;
            let mut reader = FlatReader::new(self, Prefetch { in_a_call: prefetch, in_flight: prefetch });
            let start = Instant::now();
            black_box(reader.sum(&names, Calls::new(32, in_flight), 1));
            let best = &mut best[usize::from(prefetch)];
            *best = start.elapsed().min(*best);
        }
        best[1] < best[0]
    }
}

impl Contestant for Flat {
    fn size_bits(&self) -> u64 {
        match self.reads {
            Reads::One => 8 * self.a.len() as u64,
            Reads::None | Reads::Two => 8 * (self.a.len() + self.b.len()) as u64,
        }
    }

    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(FlatReader::new(self, self.prefetch))
    }

    fn answers(&self) -> bool {
        false
    }

    fn note(&self) -> String {
        let on = |prefetch| if prefetch { "on" } else { "off" };
        let Prefetch { in_a_call, in_flight } = self.prefetch;
        let prefetch = match self.reads {
            Reads::None => String::new(),
            _ if in_a_call == in_flight => format!(", prefetch {}: faster here", on(in_a_call)),
            _ => format!(", prefetch {}, with bursts in flight {}: faster here", on(in_a_call), on(in_flight)),
        };
        format!("{} by {}{prefetch}", self.hasher.family(), Kernel::get())
    }
}

/// The positions of a burst in the two arrays.
#[derive(Clone, Copy)]
struct Spots {
    a: [u64; BURST],
    b: [u64; BURST],
}

impl Spots {
    const UNUSED: Spots = Spots { a: [0; BURST], b: [0; BURST] };
}

struct FlatReader<'a> {
    flat: &'a Flat,
    kernel: Kernel,
    locate: Locate,
    prefetch: Prefetch,
    digests: [Digest; BURST],
    in_flight: Ring<Spots>,
}

impl<'a> FlatReader<'a> {
    fn new(flat: &'a Flat, prefetch: Prefetch) -> Self {
        let kernel = Kernel::get();
        let (digests, in_flight) = ([Digest(0); BURST], Ring::new(|_| Spots::UNUSED));
        Self { flat, kernel, locate: locate_by(kernel), prefetch, digests, in_flight }
    }

    #[inline(always)]
    fn start(&mut self, names: &[u64], fetches: bool) {
        let digests = &mut self.digests[..names.len()];
        self.flat.hasher.digest_words_with(self.kernel, names, self.flat.name_len, digests);
        let Flat { a, b, reads, .. } = self.flat;
        let spots = self.in_flight.push();
        let len_b = if *reads == Reads::One { 0 } else { b.len() };
        // SAFETY: `locate_by` chose it for a kernel of this processor.
        unsafe { (self.locate)(digests, a.len() as u32, len_b as u32, spots) };
        if fetches {
            for index in 0..names.len() {
                prefetch(a.as_ptr().wrapping_add(spots.a[index] as usize));
                if *reads == Reads::Two {
                    prefetch(b.as_ptr().wrapping_add(spots.b[index] as usize));
                }
            }
        }
    }
}

impl Burst for FlatReader<'_> {
    #[inline]
    fn lookup(&mut self, names: &[u64], values: &mut [u64]) {
        let fetches = self.prefetch.in_a_call;
        let mut begun = names.chunks(BURST);
        let mut left = names.chunks(BURST).zip(values.chunks_mut(BURST));
        begun.by_ref().take(AHEAD).for_each(|names| self.start(names, fetches));
        for names in begun {
            self.start(names, fetches);
            left.next().into_iter().for_each(|(names, values)| self.finish(names, values));
        }
        left.for_each(|(names, values)| self.finish(names, values));
    }

    fn has_phases(&self) -> bool {
        self.flat.reads != Reads::None
    }

    #[inline]
    fn begin(&mut self, names: &[u64]) {
        self.start(names, self.prefetch.in_flight);
    }

    #[inline]
    fn finish(&mut self, _names: &[u64], values: &mut [u64]) {
        let spots = self.in_flight.pop();
        let Flat { a, b, reads, .. } = self.flat;
        // SAFETY: each position is 32 bits times the length of its array, divided by 2^32.
        let read = |array: &[u8], at: u64| unsafe { u64::from(*array.get_unchecked(at as usize)) };
        match reads {
            Reads::None => _ = black_box(spots),
            Reads::One => {
                for (value, &at) in values.iter_mut().zip(&spots.a) {
                    *value = read(a, at);
                }
            }
            Reads::Two => {
                for ((value, &at_a), &at_b) in values.iter_mut().zip(&spots.a).zip(&spots.b) {
                    *value = read(a, at_a) ^ read(b, at_b);
                }
            }
        }
    }
}

/// Writes the positions of digests in arrays of these lengths.
// SAFETY: the caller knows that the processor has the instructions: `locate_by` gives it for a kernel that it has.
type Locate = unsafe fn(&[Digest], u32, u32, &mut Spots);

/// The loop for a kernel, which the processor has: there is no other.
fn locate_by(kernel: Kernel) -> Locate {
    match kernel.name() {
        #[cfg(target_arch = "x86_64")]
        "avx512" | "avx512-ifma" | "avx512-gather" => locate_avx512,
        #[cfg(target_arch = "x86_64")]
        "avx2" => locate_avx2,
        _ => locate_any,
    }
}

/// [`locate_any`], eight names per vector.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn locate_avx512(digests: &[Digest], len_a: u32, len_b: u32, spots: &mut Spots) {
    locate_any(digests, len_a, len_b, spots);
}

/// [`locate_any`], four names per vector.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn locate_avx2(digests: &[Digest], len_a: u32, len_b: u32, spots: &mut Spots) {
    locate_any(digests, len_a, len_b, spots);
}

#[inline(always)]
fn locate_any(digests: &[Digest], len_a: u32, len_b: u32, spots: &mut Spots) {
    // Lengths of 32 bits make every product one of 32 bits by 32, which AVX2 has too. A whole burst has a loop of its own,
    // which the compiler unrolls.
    let (len_a, len_b) = (u64::from(len_a), u64::from(len_b));
    let at = |digest: Digest| (((digest.0 >> 32) * len_a) >> 32, ((digest.0 & LOW) * len_b) >> 32);
    match digests.as_array::<BURST>() {
        Some(digests) => {
            for (index, &digest) in digests.iter().enumerate() {
                (spots.a[index], spots.b[index]) = at(digest);
            }
        }
        None => {
            for (index, &digest) in digests.iter().enumerate() {
                (spots.a[index], spots.b[index]) = at(digest);
            }
        }
    }
}

/// The low half of a word.
const LOW: u64 = 0xffff_ffff;

#[cfg(test)]
mod tests {
    use super::*;
    use lookup::hash::{Family, SecretKey};

    #[test]
    fn a_floor_reads_one_byte_of_each_array_in_every_calling_pattern() {
        let bytes = |n: u64, from: u64| (0..n).map(|i| mix64(i + from) as u8).collect::<Vec<u8>>();
        let (a, b) = (bytes(1000, 0), bytes(777, 5000));
        let pages = |bytes: &[u8]| {
            let mut pages = Pages::zeroed(bytes.len());
            let mut left = bytes.iter();
            pages.fill_with(|| *left.next().unwrap_or(&0));
            pages
        };
        let hasher = Hasher::new(Family::MulAdd, &SecretKey::from_seed(1));
        let names: Vec<u64> = (0..253).map(mix64).collect();
        for reads in [Reads::One, Reads::Two] {
            let floor = Flat::new([pages(&a), pages(&b)], hasher.clone(), 6, reads);
            let expected = |name: u64| {
                let digest = hasher.digest_word(name, 6).0;
                let at_a = ((digest >> 32) * floor.a.len() as u64) >> 32;
                let at_b = ((digest & LOW) * floor.b.len() as u64) >> 32;
                let second = if reads == Reads::Two { floor.b[at_b as usize] } else { 0 };
                u64::from(floor.a[at_a as usize] ^ second)
            };
            let sum = names.iter().fold(0u64, |sum, &name| sum + expected(name));
            for calls in [(1, 1), (7, 1), (32, 1), (256, 1), (32, 2), (32, 3), (5, 4)] {
                let calls = Calls::new(calls.0, calls.1);
                for prefetch in [false, true] {
                    let prefetch = Prefetch { in_a_call: prefetch, in_flight: prefetch };
                    assert_eq!(FlatReader::new(&floor, prefetch).sum(&names, calls, 1), sum, "{calls:?}");
                }
            }
        }
    }

    #[test]
    fn positions_of_the_extreme_digests_lie_inside_by_every_kernel() {
        for kernel in Kernel::available() {
            let mut spots = Spots::UNUSED;
            // SAFETY: the processor has the kernel.
            unsafe { locate_by(kernel)(&[Digest(0), Digest(u64::MAX)], 3, 1, &mut spots) };
            assert_eq!((spots.a[..2].to_vec(), spots.b[..2].to_vec()), (vec![0, 2], vec![0, 0]), "{kernel}");
        }
    }
}
