//! The memory of a daemon: how much is resident, which parts hold it, and returning free memory.
//!
//! The structures count their own parts. The rest is everything else that is resident: the program, its stacks and
//! buffers, messages in transit, and memory that is free but not returned to the system. Memory that a structure has
//! reserved but never written is not resident, so the rest may be negative.

#![cfg_attr(
    all(target_os = "linux", target_env = "gnu"),
    expect(unsafe_code, reason = "calls of the allocator of glibc")
)]

use crate::v1::{MemoryPart, MemoryUse};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Maximum number of parts kept of another process, and maximum length of their names.
const MAX_PARTS: usize = 16;
const MAX_PART_BYTES: usize = 32;
/// The name of the last row.
const TOTAL: &str = "total";

/// Interval at which [`keep_small`] checks.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Traffic after which free memory is returned when there is a pause.
const TRIM_AFTER_BYTES: u64 = 8 << 20;
/// Traffic after which it is returned without a pause: an import of millions of names has none.
const TRIM_BUSY_AFTER_BYTES: u64 = 32 << 20;

/// The operating system's figures for this process, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resident {
    /// Resident now.
    pub now: u64,
    /// The peak so far.
    pub peak: u64,
}

/// The memory of this process; none if `/proc` does not show it.
pub fn resident() -> Option<Resident> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let bytes = |field| {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
    };
    Some(Resident { now: bytes("VmRSS:")?, peak: bytes("VmHWM:")? })
}

/// The memory of this process, with this number of names. `parts` are in bytes.
pub fn usage(n_names: u64, parts: &[(&str, u64)]) -> MemoryUse {
    let part = |(part, bytes): &(&str, u64)| MemoryPart { part: (*part).to_owned(), bytes: *bytes };
    let (resident_bytes, peak_bytes) = resident().map_or((0, 0), |Resident { now, peak }| (now, peak));
    MemoryUse { names: n_names, resident_bytes, peak_bytes, parts: parts.iter().map(part).collect() }
}

/// The same for another process, bounded to what a daemon can plausibly report.
pub fn bounded(mut memory: MemoryUse) -> MemoryUse {
    let is_part =
        |part: &str| part.len() <= MAX_PART_BYTES && part.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    memory.parts.retain(|part| is_part(&part.part));
    memory.parts.truncate(MAX_PARTS);
    memory.parts.shrink_to_fit();
    memory
}

/// The row of a status page: bytes by part, and bytes a name by part.
///
/// ```text
/// {"resident_bytes": n, "peak_bytes": n, "bytes": {part: n, …, "rest": n}, "bytes_per_name": {part: x, …, "total": x}}
/// ```
/// Without names there is no `bytes_per_name`; where the operating system does not say what is resident, there are only
/// the parts.
pub fn json(memory: &MemoryUse) -> Value {
    let rows = rows(memory);
    let mut row = Map::new();
    if memory.resident_bytes > 0 {
        row.insert("resident_bytes".to_owned(), memory.resident_bytes.into());
        row.insert("peak_bytes".to_owned(), memory.peak_bytes.into());
    }
    let parts = rows.iter().filter(|row| row.part != TOTAL);
    row.insert("bytes".to_owned(), parts.map(|row| (row.part.clone(), row.bytes.into())).collect::<Map<_, _>>().into());
    if memory.names > 0 {
        let each = rows.into_iter().map(|row| (row.part, json!(row.bytes_per_name)));
        row.insert("bytes_per_name".to_owned(), each.collect::<Map<_, _>>().into());
    }
    row.into()
}

/// One part of the memory of a daemon.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The name; `rest` is what is resident otherwise, `total` is everything.
    pub part: String,
    /// Its bytes.
    pub bytes: i64,
    /// Bytes per name, to a tenth; none without names.
    pub bytes_per_name: Option<f64>,
}

/// The parts, the rest and the total.
pub fn rows(memory: &MemoryUse) -> Vec<Row> {
    let mut bytes: Vec<(String, i64)> =
        memory.parts.iter().map(|part| (part.part.clone(), part.bytes.cast_signed())).collect();
    let counted = bytes.iter().fold(0i64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    let mut total = counted;
    if memory.resident_bytes > 0 {
        total = memory.resident_bytes.cast_signed();
        bytes.push(("rest".to_owned(), total.saturating_sub(counted)));
    }
    bytes.push((TOTAL.to_owned(), total));
    let a_name = |bytes: i64| (memory.names > 0).then(|| (bytes as f64 / memory.names as f64 * 10.0).round() / 10.0);
    bytes.into_iter().map(|(part, bytes)| Row { part, bytes, bytes_per_name: a_name(bytes) }).collect()
}

/// Makes the allocator return large blocks at once, and, from then on, other free memory after much traffic. `traffic`
/// counts the bytes that the daemon has handled. Never returns.
pub async fn keep_small(traffic: impl Fn() -> u64) {
    allocator::map_large_blocks();
    let (mut trimmed_at, mut before) = (0, 0);
    let mut tick = tokio::time::interval(LOOK_EVERY);
    loop {
        tick.tick().await;
        let now = traffic();
        let at_rest = now.saturating_sub(before) < TRIM_AFTER_BYTES;
        before = now;
        let after = if at_rest { TRIM_AFTER_BYTES } else { TRIM_BUSY_AFTER_BYTES };
        if now.saturating_sub(trimmed_at) >= after {
            trimmed_at = now;
            let _ = tokio::task::spawn_blocking(allocator::trim).await;
        }
    }
}

/// Returns free memory to the system, for callers that have just freed much that [`keep_small`] does not know of. Takes
/// some milliseconds per 100 MB.
pub fn give_back() {
    allocator::trim();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod allocator {
    /// Blocks of at least this size are mappings of their own. By default, glibc raises this, up to 32 MiB, with the
    /// blocks that are freed, and keeps all smaller ones.
    const LARGE_BYTES: libc::c_int = 256 << 10;

    pub(super) fn map_large_blocks() {
        // SAFETY: sets a parameter of the allocator, which takes its own lock.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES) };
    }

    pub(super) fn trim() {
        // SAFETY: gives back free pages under the allocator's own locks.
        unsafe { libc::malloc_trim(0) };
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod allocator {
    pub(super) fn map_large_blocks() {}
    pub(super) fn trim() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn parts_and_rest_are_what_is_resident() {
        let row = json(&usage(1000, &[("fib", 5000), ("valid_names", 11_000)]));
        let bytes = |part: &str| row["bytes"][part].as_i64().unwrap();
        assert_eq!(bytes("fib") + bytes("valid_names") + bytes("rest"), row["resident_bytes"].as_i64().unwrap());
        assert_eq!(
            (row["bytes_per_name"]["fib"].as_f64(), row["bytes_per_name"]["valid_names"].as_f64()),
            (Some(5.0), Some(11.0))
        );
        assert!(row["peak_bytes"].as_u64() >= row["resident_bytes"].as_u64());
        assert!(json(&usage(0, &[])).get("bytes_per_name").is_none());
    }

    #[test]
    fn what_is_kept_of_another_process_is_bounded() {
        let part = |part: &str, bytes| MemoryPart { part: part.to_owned(), bytes };
        let mut said = vec![part("fib", 7), part(&"x".repeat(33), 1), part("\u{1b}[2J", 1), part("Rest", 1)];
        said.extend((0..100).map(|_| part("valid_names", u64::MAX)));
        let memory = MemoryUse { names: 3, resident_bytes: u64::MAX, peak_bytes: 0, parts: said };
        let kept = bounded(memory);
        assert_eq!((kept.parts.len(), &kept.parts[0], &kept.parts[1].part[..]), (16, &part("fib", 7), "valid_names"));
        assert_eq!(rows(&kept).len(), 18, "whatever the numbers, the rows can be made");
    }

    /// Touching memory makes it resident: the row counts it.
    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_written_is_resident() {
        let before = resident().unwrap().now;
        let block = std::hint::black_box(vec![1u8; 64 << 20]);
        let grown = resident().unwrap().now - before;
        assert!(grown > 60 << 20, "{grown} bytes more after writing {}", block.len());
    }
}
