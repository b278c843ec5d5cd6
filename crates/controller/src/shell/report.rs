//! Reports of switches, decoded by who receives them.

use fib::messages::{Report, Uplink};

/// Reports above this size are decoded where they do not hold up other tasks.
const BIG_REPORT_BYTES: usize = 64 << 10;

/// The report of a switch. Decoded by who receives it and not by the writer, for whom everybody waits.
pub(crate) fn decode(report: &[u8]) -> Result<Report, String> {
    let decode = || match Uplink::decode(report).map_err(|error| error.to_string())? {
        Uplink::Report(report) => Ok(report),
        Uplink::Ack { .. } => Err("it is an acknowledgement and not a report".to_owned()),
    };
    if report.len() > BIG_REPORT_BYTES { tokio::task::block_in_place(decode) } else { decode() }
}
