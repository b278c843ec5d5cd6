//! Peak memory is that of the whole process, so this test has a process of its own.

use fibula_repro::machine::PeakMemory;

#[test]
fn peak_memory_counts_what_was_touched_and_freed_again() {
    let peak = PeakMemory::start();
    let touched = vec![1u8; 64 << 20];
    assert_eq!(touched.iter().map(|&b| u64::from(b)).sum::<u64>(), 64 << 20);
    drop(touched);
    assert!(peak.grown_bytes() >= 60 << 20, "{}", peak.grown_bytes());
}
