//! Bursts of names that are looked up together, and the prefetch of their lines.
#![expect(unsafe_code, reason = "prefetch instructions")]

use crate::publish::ring::AHEAD;

/// Names per burst. Their cache misses overlap: a processor core has 10 to 48 misses in flight, and two per name fill
/// that.
pub const BURST: usize = 32;

/// Starts fetching the line of `address`. It never faults, whatever the address.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program sees.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a prefetch reads nothing that the program sees.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", not(miri)))))]
    let _ = address;
}

/// Looks up keys in bursts. [`AHEAD`] bursts are begun before the first of them is finished. `B` is what a burst that
/// has begun must remember.
/// # Panics
/// When `values` is shorter than `keys`.
#[inline(always)]
pub(crate) fn in_bursts<K, B: Default>(
    keys: &[K],
    values: &mut [u64],
    begin: impl Fn(&[K], &mut B),
    finish: impl Fn(&[K], &mut B, &mut [u64]),
) {
    let values = &mut values[..keys.len()];
    if keys.len() <= BURST {
        let mut burst = B::default();
        begin(keys, &mut burst);
        finish(keys, &mut burst, values);
        return;
    }
    // One burst more than is ahead, and a power of two, so that an index is a mask.
    let mut ring: [B; (AHEAD + 1).next_power_of_two()] = Default::default();
    let mut left = keys.chunks(BURST).zip(values.chunks_mut(BURST)).enumerate();
    for (at, keys) in keys.chunks(BURST).enumerate() {
        begin(keys, &mut ring[at % ring.len()]);
        if at >= AHEAD {
            let (at, (keys, values)) = left.next().expect("so many bursts were begun");
            finish(keys, &mut ring[at % ring.len()], values);
        }
    }
    left.for_each(|(at, (keys, values))| finish(keys, &mut ring[at % ring.len()], values));
}
