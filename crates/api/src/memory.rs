//! The memory of a daemon: how much is resident, what holds it, and giving back what is free.
//!
//! The parts are counted by the structures themselves. The rest is what is resident without them: the program, its
//! stacks and buffers, messages on their way, and memory that is free but not given back. Memory that a structure
//! has reserved and never written is not resident, so the rest may be negative.

#![cfg_attr(
    all(target_os = "linux", target_env = "gnu"),
    expect(unsafe_code, reason = "calls of the allocator of glibc")
)]

use serde_json::{Map, Value, json};
use std::time::Duration;

/// How often [`keep_small`] looks.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// After this many bytes of traffic what is free is given back.
const TRIM_AFTER_BYTES: u64 = 8 << 20;

/// What the operating system says of this process, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resident {
    /// Resident now.
    pub now: u64,
    /// The most that was resident at a time.
    pub peak: u64,
}

/// The memory of this process; none where `/proc` does not say.
pub fn resident() -> Option<Resident> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let bytes = |field| {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
    };
    Some(Resident { now: bytes("VmRSS:")?, peak: bytes("VmHWM:")? })
}

/// The row of a status page: bytes by part, and bytes a name by part. `parts` are in bytes.
///
/// ```text
/// {"resident_bytes": n, "peak_bytes": n, "bytes": {part: n, …, "rest": n}, "bytes_per_name": {part: x, …, "total": x}}
/// ```
/// Without names there is no `bytes_per_name`; without `/proc` there are only the parts.
pub fn status(n_names: u64, parts: &[(&str, u64)]) -> Value {
    let mut bytes: Vec<(&str, i64)> = parts.iter().map(|(part, bytes)| (*part, bytes.cast_signed())).collect();
    let mut row = Map::new();
    if let Some(Resident { now, peak }) = resident() {
        let counted: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
        bytes.push(("rest", now.cast_signed() - counted.cast_signed()));
        row.insert("resident_bytes".to_owned(), now.into());
        row.insert("peak_bytes".to_owned(), peak.into());
    }
    let table = |value: &dyn Fn(i64) -> Value| -> Map<String, Value> {
        bytes.iter().map(|(part, bytes)| ((*part).to_owned(), value(*bytes))).collect()
    };
    row.insert("bytes".to_owned(), table(&|bytes| bytes.into()).into());
    if n_names > 0 {
        let a_name = |bytes: i64| json!((bytes as f64 / n_names as f64 * 10.0).round() / 10.0);
        let mut each = table(&a_name);
        each.insert("total".to_owned(), a_name(bytes.iter().map(|(_, bytes)| bytes).sum()));
        row.insert("bytes_per_name".to_owned(), each.into());
    }
    row.into()
}

/// Makes the allocator give large blocks back at once, and from then on, after much traffic has come to rest, what else
/// is free. `traffic` counts the bytes that the daemon has handled. Never returns.
pub async fn keep_small(traffic: impl Fn() -> u64) {
    allocator::map_large_blocks();
    let (mut trimmed_at, mut before) = (0, 0);
    let mut tick = tokio::time::interval(LOOK_EVERY);
    loop {
        tick.tick().await;
        let now = traffic();
        let at_rest = now.saturating_sub(before) < TRIM_AFTER_BYTES;
        before = now;
        if at_rest && now.saturating_sub(trimmed_at) >= TRIM_AFTER_BYTES {
            trimmed_at = now;
            let _ = tokio::task::spawn_blocking(allocator::trim).await;
        }
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod allocator {
    /// From this size on a block is a mapping of its own. glibc would raise this, up to 32 MiB, with the blocks that are
    /// freed, and keep all smaller ones.
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
        let row = status(1000, &[("fib", 5000), ("valid_names", 11_000)]);
        let bytes = |part: &str| row["bytes"][part].as_i64().unwrap();
        assert_eq!(bytes("fib") + bytes("valid_names") + bytes("rest"), row["resident_bytes"].as_i64().unwrap());
        assert_eq!(
            (row["bytes_per_name"]["fib"].as_f64(), row["bytes_per_name"]["valid_names"].as_f64()),
            (Some(5.0), Some(11.0))
        );
        assert!(row["peak_bytes"].as_u64() >= row["resident_bytes"].as_u64());
        assert!(status(0, &[]).get("bytes_per_name").is_none());
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
