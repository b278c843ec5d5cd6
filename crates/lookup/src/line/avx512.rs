//! Systems whose rows are single words, with AVX-512: 64 rows of 64 bits stay in eight registers. And the cells of such a
//! system, if they are bytes.
//!
//! Each step of an elimination waits for the one before. In registers a row is ready after about 10 cycles, through
//! memory after more than 20.

#![expect(unsafe_code, reason = "vector intrinsics")]

use std::arch::x86_64::*;

use super::words::ROWS;

/// Rows per register.
const LANES: usize = 8;

type Registers = [__m512i; ROWS / LANES];

#[target_feature(enable = "avx512f")]
fn load(rows: &[u64; ROWS]) -> Registers {
    let (rows, _) = rows.as_chunks::<LANES>();
    // SAFETY: each chunk has the 64 bytes that are read.
    std::array::from_fn(|at| unsafe { _mm512_loadu_si512(rows[at].as_ptr().cast()) })
}

#[target_feature(enable = "avx512f")]
fn store(registers: &Registers, rows: &mut [u64; ROWS]) {
    let (rows, _) = rows.as_chunks_mut::<LANES>();
    for (to, from) in rows.iter_mut().zip(registers) {
        // SAFETY: each chunk has room for the 64 bytes that are written.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), *from) };
    }
}

/// The lowest one of each lane.
#[target_feature(enable = "avx512f")]
fn lowest_ones(row: __m512i) -> __m512i {
    _mm512_and_si512(row, _mm512_sub_epi64(_mm512_setzero_si512(), row))
}

/// The lanes in which both have a common one. This is assembly, because the compiler inverts masks that it understands,
/// and then has to copy registers.
#[target_feature(enable = "avx512f")]
fn meet(a: __m512i, b: __m512i) -> u8 {
    let lanes: u8;
    // SAFETY: reads two registers, writes one.
    unsafe {
        std::arch::asm!("vptestmq {}, {}, {}", out(kreg) lanes, in(zmm_reg) a, in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    lanes
}

/// Whether the rows that are not zero are independent.
///
/// A row that alone has a one in some column is independent of the others, so it can be left out. Such rows are left out
/// round by round, all at once. The others, if there are no more than columns that they have ones in, are eliminated. Most
/// crowded systems that have no solution are refused before that.
#[target_feature(enable = "avx512f,avx512bw,popcnt")]
pub(super) fn are_independent(rows: &[u64; ROWS]) -> bool {
    let mut registers = load(rows);
    loop {
        let lonely = lonely_columns(&registers);
        for register in &mut registers {
            *register = _mm512_maskz_mov_epi64(_mm512_testn_epi64_mask(*register, lonely), *register);
        }
        if low_word(lonely).count_ones() < ROUND_PAYS {
            break;
        }
    }
    let mut left = [0; ROWS + LANES];
    let mut n_left = 0;
    let mut columns = _mm512_setzero_si512();
    for register in registers {
        columns = _mm512_or_si512(columns, register);
        let lanes = _mm512_test_epi64_mask(register, register);
        // SAFETY: at most 56 rows are before these eight.
        unsafe {
            _mm512_storeu_si512(left.as_mut_ptr().add(n_left).cast(), _mm512_maskz_compress_epi64(lanes, register));
        }
        n_left += lanes.count_ones() as usize;
    }
    if n_left > (_mm512_reduce_or_epi64(columns) as u64).count_ones() as usize {
        return false;
    }
    match n_left {
        0 => true,
        1..=32 => have_full_rank::<4>(&left, n_left),
        33..=48 => have_full_rank::<6>(&left, n_left),
        _ => have_full_rank::<8>(&left, n_left),
    }
}

/// Columns that a round must find for the next one to pay. A round takes as long as the elimination of this many rows.
const ROUND_PAYS: u32 = 5;

/// The columns in which one row has a one, in all lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn lonely_columns(registers: &Registers) -> __m512i {
    let pair = |at: usize| {
        let (a, b) = (registers[2 * at], registers[2 * at + 1]);
        Counted { odd: _mm512_xor_si512(a, b), many: _mm512_and_si512(a, b) }
    };
    let counted = pair(0).and(pair(1)).and(pair(2).and(pair(3)));
    let counted = counted.and(counted.moved(|lanes| _mm512_shuffle_i64x2::<0b01_00_11_10>(lanes, lanes)));
    let counted = counted.and(counted.moved(|lanes| _mm512_shuffle_i64x2::<0b10_11_00_01>(lanes, lanes)));
    let counted = counted.and(counted.moved(|lanes| _mm512_shuffle_epi32::<0b01_00_11_10>(lanes)));
    _mm512_andnot_si512(counted.many, counted.odd)
}

/// The ones of some rows in each column: those with an odd number, and those with more than one.
#[derive(Clone, Copy)]
struct Counted {
    odd: __m512i,
    many: __m512i,
}

impl Counted {
    /// Of these rows and others.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn and(self, other: Self) -> Self {
        // many | other.many | odd & other.odd
        let many = _mm512_ternarylogic_epi64::<0xF8>(_mm512_or_si512(self.many, other.many), self.odd, other.odd);
        Self { odd: _mm512_xor_si512(self.odd, other.odd), many }
    }

    /// With other lanes.
    #[inline(always)]
    fn moved(self, moved: impl Fn(__m512i) -> __m512i) -> Self {
        Self { odd: moved(self.odd), many: moved(self.many) }
    }
}

/// The word in the first lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn low_word(register: __m512i) -> u64 {
    _mm_cvtsi128_si64(_mm512_castsi512_si128(register)).cast_unsigned()
}

/// Whether the first `n_rows` rows, in `REGISTERS` registers, are independent. The others are zero.
#[inline]
#[target_feature(enable = "avx512f,popcnt")]
fn have_full_rank<const REGISTERS: usize>(rows: &[u64; ROWS + LANES], n_rows: usize) -> bool {
    let (rows, _) = rows.as_chunks::<LANES>();
    // SAFETY: each chunk has the 64 bytes that are read.
    let mut registers: [_; REGISTERS] =
        std::array::from_fn(|at| unsafe { _mm512_loadu_si512(rows[at].as_ptr().cast()) });
    let mut pivots = _mm512_setzero_si512();
    // Unrolled over registers, because registers cannot be indexed. The loop over lanes must not be unrolled: the code
    // would not fit the registers and would use the stack.
    let lanes = std::hint::black_box(LANES as i64);
    macro_rules! registers {
        ($($at:literal)*) => { $(
            if $at < REGISTERS && $at * LANES < n_rows {
                let mut row = _mm512_broadcastq_epi64(_mm512_castsi512_si128(registers[$at % REGISTERS]));
                for lane in 1..=lanes {
                    // The next row is taken out before it is reduced, and reduced here too: a step waits for one test, and
                    // not for a permutation besides. After the last row comes the first, which is not used.
                    let next = _mm512_permutexvar_epi64(_mm512_set1_epi64(lane), registers[$at % REGISTERS]);
                    let pivot = lowest_ones(row);
                    pivots = _mm512_or_si512(pivots, pivot);
                    // Registers before this one need not be reduced any more.
                    for other in &mut registers[$at % REGISTERS..] {
                        let has = meet(*other, pivot);
                        *other = _mm512_mask_xor_epi64(*other, has, *other, row);
                    }
                    row = _mm512_mask_xor_epi64(next, meet(next, pivot), next, row);
                }
                if (low_word(pivots).count_ones() as usize) < n_rows.min(($at + 1) * LANES) {
                    return false;
                }
            }
        )* };
    }
    registers!(0 1 2 3 4 5 6 7);
    true
}

/// Brings rows to reduced echelon form. Writes the pivot column of each as a bit, or zero where it depends on the rows
/// before it, and its combination: the set of rows that it is the sum of. Rows from `n_rows` on are zero.
#[target_feature(enable = "avx512f")]
pub(super) fn eliminate(rows: &[u64; ROWS], n_rows: usize, pivots: &mut [u64; ROWS], combinations: &mut [u64; ROWS]) {
    let mut registers = load(rows);
    let lanes = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    let mut combined: Registers =
        std::array::from_fn(|at| _mm512_sllv_epi64(_mm512_set1_epi64(1 << (at * LANES)), lanes));
    let mut found = [_mm512_setzero_si512(); ROWS / LANES];
    let n_lanes = std::hint::black_box(LANES as i64);
    macro_rules! registers {
        ($($at:literal)*) => { $( if $at * LANES < n_rows {
            let mut row = _mm512_broadcastq_epi64(_mm512_castsi512_si128(registers[$at]));
            let mut combination = _mm512_broadcastq_epi64(_mm512_castsi512_si128(combined[$at]));
            for lane in 0..n_lanes {
                // The next row is taken out before it is reduced, as in `are_independent`.
                let index = _mm512_set1_epi64(lane + 1);
                let next = _mm512_permutexvar_epi64(index, registers[$at]);
                let next_combination = _mm512_permutexvar_epi64(index, combined[$at]);
                let pivot = lowest_ones(row);
                let itself = 1u8 << lane;
                found[$at] = _mm512_mask_mov_epi64(found[$at], itself, pivot);
                for other in 0..ROWS / LANES {
                    // All rows but this one.
                    let others = if other == $at { !itself } else { 0xFF };
                    let has = meet(registers[other], pivot) & others;
                    registers[other] = _mm512_mask_xor_epi64(registers[other], has, registers[other], row);
                    combined[other] = _mm512_mask_xor_epi64(combined[other], has, combined[other], combination);
                }
                let has = meet(next, pivot);
                row = _mm512_mask_xor_epi64(next, has, next, row);
                combination = _mm512_mask_xor_epi64(next_combination, has, next_combination, combination);
            }
        } )* };
    }
    registers!(0 1 2 3 4 5 6 7);
    store(&found, pivots);
    store(&combined, combinations);
}

/// As [`fill_cells`](super::fill::fill_cells), for cells of 8 bits and names whose rows are single words.
///
/// The cells of eight pivots are computed at once, one bit after the other: a bit of a cell is the parity of the names of
/// its combination whose values have it. Then the cells are spread over the slots of their pivots.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi2,avx512vpopcntdq,popcnt")]
pub(super) fn fill_bytes(solution: &[u64], values: &[u64], bucket: &mut [u64; LANES]) {
    let (pivots, combinations) = (solution[0], &solution[1..]);
    let mut bytes = [0u8; ROWS];
    bytes.iter_mut().zip(values).for_each(|(byte, &value)| *byte = value as u8);
    // SAFETY: 64 bytes, an unaligned load.
    let values = unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
    // For each bit, the names whose values have it.
    macro_rules! names {
        ($($bit:literal)*) => {
            [$( _mm512_set1_epi64(_mm512_movepi8_mask(_mm512_slli_epi16::<{ 7 - $bit }>(values)).cast_signed()) ),*]
        };
    }
    let names = names!(0 1 2 3 4 5 6 7);
    let mut cells = [0u8; ROWS];
    for (cells, combinations) in cells.chunks_exact_mut(LANES).zip(combinations.chunks(LANES)) {
        let lanes = 0xFF >> (LANES - combinations.len());
        // SAFETY: as many combinations are loaded as there are.
        let combinations = unsafe { _mm512_maskz_loadu_epi64(lanes, combinations.as_ptr().cast()) };
        let mut sum = _mm512_setzero_si512();
        macro_rules! bits {
            ($($bit:literal)*) => { $(
                let ones = _mm512_popcnt_epi64(_mm512_and_si512(combinations, names[$bit]));
                // sum | ones << bit & 1 << bit
                sum = _mm512_ternarylogic_epi64::<0xF8>(sum, _mm512_slli_epi64::<$bit>(ones), _mm512_set1_epi64(1 << $bit));
            )* };
        }
        bits!(0 1 2 3 4 5 6 7);
        // SAFETY: eight bytes, an unaligned store.
        unsafe { _mm_storel_epi64(cells.as_mut_ptr().cast(), _mm512_cvtepi64_epi8(sum)) };
    }
    // SAFETY: 64 bytes are loaded and stored, unaligned. The cells of a bucket of bytes are in the order of slots.
    unsafe {
        let cells = _mm512_loadu_si512(cells.as_ptr().cast());
        _mm512_storeu_si512(bucket.as_mut_ptr().cast(), _mm512_maskz_expand_epi8(pivots, cells));
    }
}
