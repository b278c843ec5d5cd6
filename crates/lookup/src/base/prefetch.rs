//! Bursts of names that are looked up together, and the prefetch of their lines.
#![expect(unsafe_code, reason = "prefetch instructions")]

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
