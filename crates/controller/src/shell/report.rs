//! Reports of switches, decoded by who receives them and not by the writer, for whom everybody waits.

/// Reports above this size are decoded where they do not hold up other tasks.
const BIG_REPORT_BYTES: usize = 64 << 10;

/// Decodes a report of so many bytes.
pub(crate) fn decoding<T>(n_bytes: usize, decode: impl FnOnce() -> T) -> T {
    if n_bytes > BIG_REPORT_BYTES { tokio::task::block_in_place(decode) } else { decode() }
}
