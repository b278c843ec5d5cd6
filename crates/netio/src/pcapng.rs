//! Captures as pcapng: several interfaces in one file, a direction and a comment a frame, counts at the end.
//!
//! ```text
//!  section header | an interface each | frames ... | statistics of each interface
//! ```
//! Blocks are put together in memory (through `pcap-file`) and written when [`Writer::flush`] is called. So a file ends with a
//! whole block, except after a failure; then [`Writer::whole_bytes`] says where the last whole block ends.
//! Source: draft-ietf-opsawg-pcapng. Times are nanoseconds since 1970.
//! Limits: Ethernet. What is written is in the machine's byte order, as readers expect.

use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::pcapng::{PcapNgBlock, PcapNgWriter};
use pcap_file::{DataLink, Endianness, PcapError};
use std::borrow::Cow;
use std::io::{self, ErrorKind, Write};
use std::time::Duration;

/// Nanoseconds: times are in units of 10^-9 seconds.
const NANOSECONDS: u8 = 9;
/// The direction in the flags of a frame.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;
/// Bytes of a block before its length, and of that.
const TYPE_BYTES: usize = 4;
const LENGTH_BYTES: usize = 4;

/// An interface whose frames are in a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface<'a> {
    /// Its name, as the system has it.
    pub name: &'a str,
    /// A description for people.
    pub description: &'a str,
    /// Bytes that are kept of a frame at most; 0: all.
    pub snap_bytes: u32,
}

/// A frame of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The index of its interface.
    pub interface: u32,
    /// When it was there, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Whether it left by the interface; otherwise it came.
    pub is_outbound: bool,
    /// Bytes that it had.
    pub original_len: u32,
    /// The first of them.
    pub bytes: &'a [u8],
    /// A comment; nothing if empty.
    pub comment: &'a str,
}

/// The counts of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that are in the capture, and those that should be and are not.
    pub seen: u64,
    /// Frames that should be in it and are not.
    pub lost: u64,
}

/// Writes a capture.
pub struct Writer<W> {
    blocks: PcapNgWriter<Vec<u8>>,
    to: W,
    whole_bytes: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a capture of these interfaces with what is said of it as a whole. Nothing is written yet.
    /// # Errors
    /// None that can happen in memory.
    pub fn new(to: W, application: &str, comment: &str, interfaces: &[Interface<'_>]) -> io::Result<Self> {
        let options = vec![
            SectionHeaderOption::Comment(Cow::Owned(comment.to_owned())),
            SectionHeaderOption::UserApplication(Cow::Owned(application.to_owned())),
        ];
        let section = SectionHeaderBlock { endianness: Endianness::native(), options, ..SectionHeaderBlock::default() };
        let blocks = PcapNgWriter::with_section_header(Vec::new(), section).map_err(to_io)?;
        let mut writer = Self { blocks, to, whole_bytes: 0 };
        for &Interface { name, description, snap_bytes } in interfaces {
            let options = vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(name)),
                InterfaceDescriptionOption::IfDescription(Cow::Borrowed(description)),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ];
            writer.block(InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: snap_bytes, options })?;
        }
        Ok(writer)
    }

    /// Adds a frame.
    /// # Errors
    /// The interface does not exist.
    pub fn frame(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        let mut options = vec![EnhancedPacketOption::Flags(if frame.is_outbound { OUTBOUND } else { INBOUND })];
        if !frame.comment.is_empty() {
            options.push(EnhancedPacketOption::Comment(Cow::Borrowed(frame.comment)));
        }
        self.block(EnhancedPacketBlock {
            interface_id: frame.interface,
            timestamp: Duration::from_nanos(frame.time_ns),
            original_len: frame.original_len,
            data: Cow::Borrowed(frame.bytes),
            options,
        })
    }

    /// Adds what was counted of an interface until a time.
    /// # Errors
    /// The interface does not exist.
    pub fn counts(&mut self, interface: u32, time_ns: u64, counts: Counts) -> io::Result<()> {
        // The format has the upper half of a time first in either byte order; the library writes it as one number.
        let timestamp = if cfg!(target_endian = "little") { time_ns.rotate_left(32) } else { time_ns };
        let options =
            vec![InterfaceStatisticsOption::IsbIfRecv(counts.seen), InterfaceStatisticsOption::IsbIfDrop(counts.lost)];
        self.block(InterfaceStatisticsBlock { interface_id: interface, timestamp, options })
    }

    fn block<'b>(&mut self, block: impl PcapNgBlock<'b>) -> io::Result<()> {
        self.blocks.write_pcapng_block(block).map(|_| ()).map_err(to_io)
    }

    /// Writes what was added.
    /// # Errors
    /// The errors of the stream. [`Writer::whole_bytes`] are valid, and unwritten data is discarded.
    pub fn flush(&mut self) -> io::Result<()> {
        let blocks = std::mem::take(self.blocks.get_mut());
        let mut written = 0;
        let mut result = Ok(());
        while written < blocks.len() && result.is_ok() {
            match self.to.write(&blocks[written..]) {
                Ok(0) => result = Err(ErrorKind::WriteZero.into()),
                Ok(n) => written += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => result = Err(error),
            }
        }
        self.whole_bytes += whole(&blocks, written) as u64;
        result.and_then(|()| self.to.flush())
    }

    /// Bytes up to the end of the last whole block that the stream has taken.
    pub fn whole_bytes(&self) -> u64 {
        self.whole_bytes
    }

    /// The stream, for example to shorten a file.
    pub fn get_ref(&self) -> &W {
        &self.to
    }
}

/// Bytes of the blocks that are whole in the first `written` bytes.
fn whole(blocks: &[u8], written: usize) -> usize {
    let mut end = 0;
    while let Some(length) = blocks.get(end + TYPE_BYTES..end + TYPE_BYTES + LENGTH_BYTES) {
        let length = length.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes) as usize);
        if length == 0 || end + length > written {
            break;
        }
        end += length;
    }
    end
}

fn to_io(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::new(ErrorKind::InvalidInput, other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_file::pcapng::{Block, PcapNgReader};

    const INTERFACES: [Interface<'_>; 2] = [
        Interface { name: "eth1", description: "port 1, host", snap_bytes: 0 },
        Interface { name: "eth2", description: "port 2, trunk", snap_bytes: 96 },
    ];

    fn capture(to: impl Write) -> io::Result<Vec<u64>> {
        let mut writer = Writer::new(to, "fibula", "switch s1", &INTERFACES)?;
        writer.flush()?;
        let mut ends = vec![writer.whole_bytes()];
        let dropped = Frame {
            interface: 1,
            time_ns: 1_700_000_000_123_456_789,
            is_outbound: false,
            original_len: 1514,
            bytes: &[7; 61],
            comment: "dropped: alien",
        };
        for frame in [dropped.clone(), Frame { comment: "", is_outbound: true, interface: 0, ..dropped }] {
            writer.frame(&frame)?;
            writer.flush()?;
            ends.push(writer.whole_bytes());
        }
        writer.counts(1, 1_700_000_001_000_000_001, Counts { seen: 3, lost: 2 })?;
        writer.flush()?;
        ends.push(writer.whole_bytes());
        Ok(ends)
    }

    #[test]
    fn what_was_written_is_read_back_with_directions_comments_and_counts() {
        let mut bytes = vec![];
        capture(&mut bytes).unwrap();
        let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
        let mut said = vec![];
        while let Some(block) = reader.next_block() {
            said.push(match block.unwrap().into_owned() {
                Block::InterfaceDescription(interface) => format!("{} {:?}", interface.snaplen, interface.options[0]),
                Block::EnhancedPacket(frame) => {
                    assert_eq!((frame.data.len(), frame.original_len), (61, 1514));
                    assert_eq!(frame.timestamp, Duration::new(1_700_000_000, 123_456_789));
                    format!("{} {:?}", frame.interface_id, frame.options)
                }
                Block::InterfaceStatistics(counts) => {
                    format!("{} {:?} {}", counts.interface_id, counts.options, counts.timestamp.rotate_left(32))
                }
                other => format!("{other:?}"),
            });
        }
        assert_eq!(
            said,
            [
                "0 IfName(\"eth1\")",
                "96 IfName(\"eth2\")",
                "1 [Flags(1), Comment(\"dropped: alien\")]",
                "0 [Flags(2)]",
                "1 [IsbIfRecv(3), IsbIfDrop(2)] 1700000001000000001",
            ]
        );
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn blocks_are_those_of_the_specification() {
        let mut bytes = vec![];
        let ends = capture(&mut bytes).unwrap();
        let frame = &bytes[ends[1] as usize..ends[2] as usize];
        let time = 1_700_000_000_123_456_789u64;
        let words = [6, 108, 0, (time >> 32) as u32, time as u32, 61, 1514].map(u32::to_le_bytes).concat();
        let data = [&[7; 61][..], &[0; 3]].concat();
        let options = [2, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(frame, [&words[..], &data, &options, &108u32.to_le_bytes()].concat());
        let counts = &bytes[ends[2] as usize..];
        let time = 1_700_000_001_000_000_001u64;
        let head = [5, 52, 1, (time >> 32) as u32, time as u32].map(u32::to_le_bytes).concat();
        assert_eq!(counts[..head.len()], head);
    }

    /// Takes this many bytes and then no more, as a disk does.
    struct Small(usize);

    impl Write for Small {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(self.0);
            self.0 -= n;
            if n == 0 { Err(ErrorKind::StorageFull.into()) } else { Ok(n) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn after_a_full_disk_the_end_of_the_last_whole_block_is_known() {
        let mut bytes = vec![];
        let ends = capture(&mut bytes).unwrap();
        let mut blocks = vec![0];
        while let Some(&end) = blocks.last().filter(|end| **end < bytes.len()) {
            blocks.push(end + u32::from_ne_bytes(bytes[end + 4..end + 8].try_into().unwrap()) as usize);
        }
        assert!(blocks.len() == 7 && ends.last() == Some(&(bytes.len() as u64)), "{blocks:?} {ends:?}");
        for room in 0..bytes.len() {
            let mut writer = Writer::new(Small(room), "fibula", "switch s1", &INTERFACES).unwrap();
            writer.blocks.get_mut().clone_from(&bytes);
            assert_eq!(writer.flush().unwrap_err().kind(), ErrorKind::StorageFull);
            let last = blocks.iter().rfind(|end| **end <= room).unwrap();
            assert_eq!(writer.whole_bytes(), *last as u64, "{room}");
        }
    }

    #[test]
    fn a_frame_of_an_unknown_interface_is_refused() {
        let mut writer = Writer::new(vec![], "fibula", "", &INTERFACES).unwrap();
        assert!(writer.counts(2, 0, Counts::default()).is_err());
    }
}
