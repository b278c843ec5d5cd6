//! The concurrency control of the Othello paper, its bit vectors D1 and D2. **It gives wrong answers.**
//!
//! It is here so that a test can show where it fails.
//!
//! ```text
//! update (Algorithm 2)                          query for cells A[i], B[j], p = i mod 512 (Algorithm 3)
//!   W1  flip D1[p], p of every A[i] that changes   R1  d2 = D2[p]
//!   W2  write the cells of A                       R2  alpha = A[i]
//!   W3  write the cells of B                       R3  beta = B[j]
//!   W4  flip D2[p] of the same                     R4  d1 = D1[p]; d1 == d2: alpha ^ beta, else try again
//! ```
//! **Why it is wrong.** A bit says whether the number of flips was odd. It does not say how many there were. Suppose that
//! one update completes and a second one on the same stripe begins while a query runs:
//! ```text
//! schedule  R1 R2 W1 W2 W3 R3 W4 W1' R4      (RRWWWRWWR)
//! D1[p]     0  0  1  1  1  1  1  0   0       the query compares its old D2 = 0 with D1 = 0, and returns
//! D2[p]     0  0  0  0  0  0  1  1   1       old A ^ new B
//! ```
//! A counter instead of the bit repairs it: [`Sequence`](fibula_lookup::publish::Sequence). The prose of the paper also
//! inverts the condition (it reads a difference as "no ongoing update"); Algorithm 3 has it right.
//!
//! Cost: 128 bytes; a query loads two words more. The paper asks for "reorder barriers": they are acquire and release
//! fences here, so that the algorithm alone is what is wrong.
//!
//! Source: Yu, Belazzougui, Qian, Zhang, "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello
//! Hashing", section V.C, Algorithms 2 and 3.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Bits in D1 and in D2; the paper's number.
pub(super) const N_STRIPES: usize = 512;

/// The paper's D1 and D2: **broken** (see the module).
///
/// The steps are separate calls, so that a test can run any schedule; the cells are the caller's. One writer.
#[derive(Debug)]
pub(super) struct BrokenStripes {
    d1: [AtomicU64; N_STRIPES / 64],
    d2: [AtomicU64; N_STRIPES / 64],
}

/// The bit of D2 that a query began with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SecondBit(bool);

/// The stripes that an update affects: each is flipped once, however many cells of it change.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Affected([u64; N_STRIPES / 64]);

impl Affected {
    /// The stripes of the cells of A with these indices.
    pub(super) fn of(a_indices: impl IntoIterator<Item = usize>) -> Affected {
        let mut affected = Affected::default();
        for i in a_indices {
            affected.0[i % N_STRIPES / 64] |= 1 << (i % 64);
        }
        affected
    }
}

impl BrokenStripes {
    /// All bits 0: no update under way.
    pub(super) fn new() -> BrokenStripes {
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        BrokenStripes { d1: zeros(), d2: zeros() }
    }

    /// W1: flips D1. Then write the cells, relaxed.
    pub(super) fn update_begin(&self, affected: &Affected) {
        flip(&self.d1, affected);
        fence(Ordering::Release);
    }

    /// W4: flips D2.
    pub(super) fn update_end(&self, affected: &Affected) {
        fence(Ordering::Release);
        flip(&self.d2, affected);
    }

    /// R1: begins a query that will read `A[a_index]`. Then read the cells, relaxed.
    #[inline]
    pub(super) fn query_begin(&self, a_index: usize) -> SecondBit {
        let bit = bit(&self.d2, a_index);
        fence(Ordering::Acquire);
        SecondBit(bit)
    }

    /// R4: whether the paper accepts what was read as consistent. It may not be.
    #[inline]
    pub(super) fn query_end(&self, a_index: usize, second: SecondBit) -> bool {
        fence(Ordering::Acquire);
        bit(&self.d1, a_index) == second.0
    }
}

fn flip(bits: &[AtomicU64], affected: &Affected) {
    for (word, flips) in bits.iter().zip(affected.0) {
        if flips != 0 {
            word.store(word.load(Ordering::Relaxed) ^ flips, Ordering::Relaxed);
        }
    }
}

#[inline]
fn bit(bits: &[AtomicU64], a_index: usize) -> bool {
    (bits[a_index % N_STRIPES / 64].load(Ordering::Relaxed) >> (a_index % 64)) & 1 == 1
}
