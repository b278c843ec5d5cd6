//! A tap's record of a frame, and its bytes between a worker and a reader of the same process.
//!
//! ```text
//!  0        8           12     16    18    20     21         22       23       24
//!  | time   | its bytes | kept | port| exit| index| direction| verdict| reason | the bytes kept
//! ```

use crate::counters::DropReason;
use fib::action::PortId;

const HEADER: usize = 24;

/// Whether a frame comes or goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// It was received.
    In,
    /// It was sent, or was to be.
    Out,
}

/// The fate of a frame at a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It goes on to this port.
    Forwarded(PortId),
    /// It left.
    Sent,
    /// It was turned into an answer, which leaves by the same port.
    Answered,
    /// It was a hello of a neighbour, which goes no further.
    Heard,
    /// It is a broadcast or multicast: copies of it are made.
    Copied,
    /// It was dropped.
    Dropped(DropReason),
}

/// One frame at one port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// When the burst that it is in came or left, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The index of the port among those of the switch.
    pub index: u8,
    /// Its number.
    pub port: PortId,
    /// Whether it comes or goes.
    pub direction: Direction,
    /// Its fate.
    pub verdict: Verdict,
    /// Its length in bytes.
    pub original_len: u32,
    /// The first of its bytes.
    pub bytes: &'a [u8],
}

impl<'a> Record<'a> {
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        let (verdict, exit, reason) = match self.verdict {
            Verdict::Forwarded(exit) => (0, exit.0, 0),
            Verdict::Sent => (1, 0, 0),
            Verdict::Answered => (2, 0, 0),
            Verdict::Heard => (3, 0, 0),
            Verdict::Dropped(reason) => (4, 0, reason as u8),
            Verdict::Copied => (5, 0, 0),
        };
        // The whole header is written at once, so that a chunk is asked for room twice a record.
        let mut header = [0; HEADER];
        header[0..8].copy_from_slice(&self.time_ns.to_le_bytes());
        header[8..12].copy_from_slice(&self.original_len.to_le_bytes());
        header[12..16].copy_from_slice(&(self.bytes.len() as u32).to_le_bytes());
        header[16..18].copy_from_slice(&self.port.0.to_le_bytes());
        header[18..20].copy_from_slice(&exit.to_le_bytes());
        header[20..].copy_from_slice(&[self.index, u8::from(self.direction == Direction::Out), verdict, reason]);
        to.extend_from_slice(&header);
        to.extend_from_slice(self.bytes);
    }

    fn decode(chunk: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (header, rest) = chunk.split_first_chunk::<HEADER>()?;
        let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let word = |at: usize| u32::from(half(at)) | u32::from(half(at + 2)) << 16;
        let (bytes, rest) = rest.split_at_checked(word(12) as usize)?;
        let record = Self {
            time_ns: u64::from(word(0)) | u64::from(word(4)) << 32,
            index: header[20],
            port: PortId(half(16)),
            direction: if header[21] == 0 { Direction::In } else { Direction::Out },
            verdict: match header[22] {
                0 => Verdict::Forwarded(PortId(half(18))),
                1 => Verdict::Sent,
                2 => Verdict::Answered,
                3 => Verdict::Heard,
                5 => Verdict::Copied,
                _ => Verdict::Dropped(*DropReason::ALL.get(usize::from(header[23]))?),
            },
            original_len: word(8),
            bytes,
        };
        Some((record, rest))
    }
}

/// The records of a chunk, in the order of their verdicts.
pub fn records(mut chunk: &[u8]) -> impl Iterator<Item = Record<'_>> {
    std::iter::from_fn(move || {
        let (record, rest) = Record::decode(chunk)?;
        chunk = rest;
        Some(record)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let dropped = DropReason::ALL.iter().map(|&reason| Verdict::Dropped(reason));
        let others =
            [Verdict::Forwarded(PortId(65_535)), Verdict::Sent, Verdict::Answered, Verdict::Heard, Verdict::Copied];
        let bytes: Vec<u8> = (0..=255).collect();
        let written: Vec<Record<'_>> = (0..)
            .zip(others.into_iter().chain(dropped))
            .map(|(i, verdict)| Record {
                time_ns: u64::MAX - i,
                index: i as u8,
                port: PortId(1000 + i as u16),
                direction: if i % 2 == 0 { Direction::In } else { Direction::Out },
                verdict,
                original_len: 70_000,
                bytes: &bytes[i as usize..],
            })
            .collect();
        let mut chunk = vec![];
        written.iter().for_each(|record| record.encode(&mut chunk));
        assert_eq!(records(&chunk).collect::<Vec<_>>(), written);
    }
}
