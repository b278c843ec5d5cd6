//! Capture files as ports: frames are read from one file, and frames sent are written to another.
//!
//! Reads classic pcap in both byte orders with microsecond or nanosecond times (through `pcap-file`); writes
//! nanoseconds in the machine's byte order. Timestamps of the input are ignored: frames arrive as fast as they are
//! taken. One copy each way; a record that was cut at capture time is counted as malformed and skipped.
//! Limits: Ethernet captures only; pcapng is refused with the command that converts it.

use crate::{Burst, Device, DeviceCounters, NetError, Pool, Readiness};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::{DataLink, PcapError, TsResolution};
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MAX_FRAME: usize = 65_000;

/// A port whose receiving side is a capture and whose sending side is another; either may be missing.
pub struct Pcap {
    name: String,
    input: Option<PcapReader<Box<dyn Read + Send>>>,
    output: Option<PcapWriter<Box<dyn Write + Send>>>,
    record: u64,
    /// A damaged record found after good ones of the same burst.
    pending: Option<NetError>,
    counters: Arc<DeviceCounters>,
}

impl Pcap {
    /// Opens files: frames are received from `input` and sent to `output`, which is created or overwritten.
    /// # Errors
    /// [`NetError::Io`] with the path, [`NetError::Malformed`] if `input` is not an Ethernet capture.
    pub fn open(input: Option<&Path>, output: Option<&Path>) -> Result<Self, NetError> {
        let path = |p: Option<&Path>| p.map_or_else(|| "none".to_owned(), |p| p.display().to_string());
        let name = format!("pcap {} -> {}", path(input), path(output));
        let io = |action, path: &Path, source| NetError::Io { device: path.display().to_string(), action, source };
        let input = match input {
            Some(p) => Some(Box::new(File::open(p).map_err(|e| io("open", p, e))?) as Box<dyn Read + Send>),
            None => None,
        };
        let output = match output {
            Some(p) => {
                let file = File::create(p).map_err(|e| io("create", p, e))?;
                Some(Box::new(BufWriter::new(file)) as Box<dyn Write + Send>)
            }
            None => None,
        };
        Self::from_streams(&name, input, output)
    }

    /// As [`Pcap::open`], over any streams.
    /// # Errors
    /// As for [`Pcap::open`].
    pub fn from_streams(
        name: &str,
        input: Option<Box<dyn Read + Send>>,
        output: Option<Box<dyn Write + Send>>,
    ) -> Result<Self, NetError> {
        let input = match input {
            Some(mut stream) => {
                let mut magic = [0; 4];
                let io = |source| NetError::Io { device: name.to_owned(), action: "read", source };
                let got = read_fully(&mut stream, &mut magic).map_err(io)?;
                if magic == [0x0a, 0x0d, 0x0d, 0x0a] {
                    return Err(malformed(name, 0, "this is pcapng; convert it with `editcap -F pcap IN OUT`"));
                }
                let whole: Box<dyn Read + Send> = Box::new(std::io::Cursor::new(magic).take(got as u64).chain(stream));
                let reader = PcapReader::new(whole).map_err(|e| pcap_error(name, 0, e))?;
                let link = reader.header().datalink;
                if link != DataLink::ETHERNET {
                    return Err(malformed(name, 0, &format!("its link type is {link:?}; use an Ethernet capture")));
                }
                Some(reader)
            }
            None => None,
        };
        let output = match output {
            Some(stream) => {
                let header = PcapHeader {
                    datalink: DataLink::ETHERNET,
                    ts_resolution: TsResolution::NanoSecond,
                    ..PcapHeader::default()
                };
                Some(PcapWriter::with_header(stream, header).map_err(|e| pcap_error(name, 0, e))?)
            }
            None => None,
        };
        Ok(Self { name: name.to_owned(), input, output, record: 0, pending: None, counters: Arc::default() })
    }

    /// Ends the output and returns its stream, flushed, so that the whole file is known to be written.
    /// # Errors
    /// [`NetError::Io`].
    pub fn finish(mut self) -> Result<Option<Box<dyn Write + Send>>, NetError> {
        let Some(output) = self.output.take() else { return Ok(None) };
        let mut stream = output.into_writer();
        stream.flush().map_err(|source| NetError::Io { device: self.name.clone(), action: "write", source })?;
        Ok(Some(stream))
    }
}

fn read_fully(stream: &mut dyn Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match stream.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}

fn malformed(name: &str, record: u64, reason: &str) -> NetError {
    NetError::Malformed { device: name.to_owned(), record, reason: reason.to_owned() }
}

fn pcap_error(name: &str, record: u64, error: PcapError) -> NetError {
    match error {
        PcapError::IoError(source) if source.kind() != std::io::ErrorKind::UnexpectedEof => {
            NetError::Io { device: name.to_owned(), action: "read or write", source }
        }
        PcapError::IncompleteBuffer | PcapError::IoError(_) => malformed(name, record, "the file ends in it"),
        other => malformed(name, record, &other.to_string()),
    }
}

impl Device for Pcap {
    fn name(&self) -> &str {
        &self.name
    }

    fn max_frame(&self) -> usize {
        MAX_FRAME
    }

    /// # Errors
    /// [`NetError::Malformed`] once, at a damaged record: the port is exhausted from then on.
    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Burst) -> Result<usize, NetError> {
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        let before = out.len();
        while !out.is_full()
            && let Some(reader) = &mut self.input
        {
            let Some(mut packet) = pool.take() else { break };
            let Some(record) = reader.next_packet() else {
                pool.put(packet);
                self.input = None;
                break;
            };
            self.record += 1;
            match record {
                Ok(record) if (record.data.len() as u64) < u64::from(record.orig_len) => {
                    self.counters.rx_malformed.add(1);
                    pool.put(packet);
                }
                Ok(record) if packet.fill(&record.data).is_err() => {
                    self.counters.rx_oversized.add(1);
                    pool.put(packet);
                }
                Ok(_) => {
                    self.counters.rx_frames.add(1);
                    self.counters.rx_bytes.add(packet.len() as u64);
                    out.push(packet);
                }
                Err(error) => {
                    let error = pcap_error(&self.name, self.record, error);
                    self.counters.rx_malformed.add(1);
                    pool.put(packet);
                    self.input = None;
                    if out.len() == before {
                        return Err(error);
                    }
                    self.pending = Some(error);
                }
            }
        }
        Ok(out.len() - before)
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Burst) -> Result<usize, NetError> {
        let n = frames.len();
        let Some(output) = &mut self.output else {
            // There is no output: a port that only replays drops what is sent to it, and counts it.
            self.counters.tx_refused.add(n as u64);
            pool.put_all(frames);
            return Ok(0);
        };
        #[expect(clippy::disallowed_methods, reason = "the date that a capture file shows")]
        let time: Duration = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for (i, packet) in frames.iter().enumerate() {
            let record = PcapPacket::new(time, packet.len() as u32, packet.frame());
            if let Err(error) = output.write_packet(&record) {
                frames.drain(..i).for_each(|sent| pool.put(sent));
                if i > 0 {
                    return Ok(i);
                }
                return Err(pcap_error(&self.name, self.record, error));
            }
            self.counters.tx_frames.add(1);
            self.counters.tx_bytes.add(packet.len() as u64);
        }
        pool.put_all(frames);
        Ok(n)
    }

    fn readiness(&mut self) -> Readiness<'_> {
        if self.input.is_some() || self.pending.is_some() { Readiness::Ready } else { Readiness::Exhausted }
    }

    fn counters(&self) -> Arc<DeviceCounters> {
        self.counters.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Packet;
    use std::sync::Mutex;

    /// A stream whose bytes can be looked at afterwards.
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn capture(big_endian: bool, nanoseconds: bool, link: u32, frames: &[&[u8]]) -> Vec<u8> {
        let magic: u32 = if nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
        let word = |v: u32| if big_endian { v.to_be_bytes() } else { v.to_le_bytes() };
        let half = |v: u16| if big_endian { v.to_be_bytes() } else { v.to_le_bytes() };
        let mut bytes = word(magic).to_vec();
        bytes.extend(half(2));
        bytes.extend(half(4));
        for v in [0, 0, 65_535, link] {
            bytes.extend(word(v));
        }
        for frame in frames {
            for v in [1, 2, frame.len() as u32, frame.len() as u32] {
                bytes.extend(word(v));
            }
            bytes.extend(*frame);
        }
        bytes
    }

    fn reader(bytes: Vec<u8>) -> Result<Pcap, NetError> {
        Pcap::from_streams("test", Some(Box::new(std::io::Cursor::new(bytes))), None)
    }

    #[test]
    fn captures_of_both_byte_orders_and_both_resolutions_are_read() {
        for (big_endian, nanoseconds) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut port = reader(capture(big_endian, nanoseconds, 1, &[&[1; 60], &[2; 1514]])).unwrap();
            let (mut pool, mut out) = (Pool::new(4, 1514), Burst::new());
            assert_eq!(port.rx_burst(&mut pool, &mut out).unwrap(), 2);
            assert_eq!((out[0].frame(), out[1].frame()), (&[1u8; 60][..], &[2u8; 1514][..]));
            assert!(matches!(port.readiness(), Readiness::Exhausted));
            assert_eq!(port.rx_burst(&mut pool, &mut out).unwrap(), 0);
        }
    }

    #[test]
    fn what_was_written_is_read_back() {
        let file = Shared::default();
        let mut port = Pcap::from_streams("out", None, Some(Box::new(file.clone()))).unwrap();
        let mut pool = Pool::new(0, 1514);
        let mut burst: Burst = (0..5u8).map(|i| Packet::from_frame(&[i; 64])).collect();
        assert_eq!(port.tx_burst(&mut pool, &mut burst).unwrap(), 5);
        assert_eq!(pool.available(), 5);
        port.finish().unwrap();
        let bytes = file.0.lock().unwrap().clone();
        let mut port = reader(bytes).unwrap();
        assert_eq!(port.rx_burst(&mut Pool::new(9, 1514), &mut burst).unwrap(), 5);
        assert!(burst.iter().enumerate().all(|(i, p)| p.frame() == [i as u8; 64]));
    }

    #[test]
    fn oversized_and_cut_records_are_counted_and_skipped() {
        let mut bytes = capture(false, false, 1, &[&[1; 3000], &[2; 60]]);
        let at = bytes.len() - 60 - 4;
        bytes[at..at + 4].copy_from_slice(&1500u32.to_le_bytes()); // the original was longer than what was kept
        let mut port = reader(bytes).unwrap();
        let (mut pool, mut out) = (Pool::new(4, 1514), Burst::new());
        assert_eq!(port.rx_burst(&mut pool, &mut out).unwrap(), 0);
        let counts = port.counters().snapshot();
        assert_eq!((counts.rx_oversized, counts.rx_malformed, counts.rx_frames), (1, 1, 0));
        assert_eq!(pool.available(), 4);
    }

    #[test]
    fn a_capture_that_ends_in_a_record_gives_the_whole_ones_and_then_a_typed_error() {
        let mut bytes = capture(false, false, 1, &[&[1; 60], &[2; 60]]);
        bytes.truncate(bytes.len() - 10);
        let mut port = reader(bytes).unwrap();
        let (mut pool, mut out) = (Pool::new(4, 1514), Burst::new());
        assert_eq!(port.rx_burst(&mut pool, &mut out).unwrap(), 1);
        let error = port.rx_burst(&mut pool, &mut out).unwrap_err();
        assert!(matches!(error, NetError::Malformed { record: 2, .. }), "{error}");
        assert_eq!(out.len(), 1);
        assert_eq!(port.rx_burst(&mut pool, &mut out).unwrap(), 0, "exhausted, not failing for ever");
    }

    #[test]
    fn what_is_no_ethernet_capture_is_refused() {
        for bytes in [vec![], vec![1, 2], vec![7; 100], capture(false, false, 113, &[])] {
            assert!(matches!(reader(bytes), Err(NetError::Malformed { record: 0, .. })));
        }
        let error = reader(vec![0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 0]).err().unwrap();
        assert!(error.to_string().contains("editcap"), "{error}");
        let missing = Pcap::open(Some(Path::new("/nonexistent.pcap")), None).err().unwrap();
        assert!(missing.to_string().contains("/nonexistent.pcap"), "{missing}");
    }
}
