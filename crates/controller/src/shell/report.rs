//! Reports of switches, decoded by their receivers and not by the writer, on which everything else waits.

/// Reports above this size are decoded where they do not hold up other tasks.
const BIG_REPORT_BYTES: usize = 64 << 10;

/// Decodes a report of this many bytes.
pub(crate) fn decoding<T>(n_bytes: usize, decode: impl FnOnce() -> T) -> T {
    if n_bytes > BIG_REPORT_BYTES { tokio::task::block_in_place(decode) } else { decode() }
}
