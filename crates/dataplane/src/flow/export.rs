//! The export of ended flows, one JSON object a line.
//!
//! ```json
//! {"protocol":"tcp","source":"10.0.0.1:40000","destination":"10.0.0.2:80","state":"time_wait","ended":"expired",
//!  "began_unix_seconds":1700000000.0,"seconds":130,"packets":[7,5],"bytes":[512,9000]}
//! ```
//! (in one line). `packets` and `bytes` are those of the first packet's direction and of the other one. Bytes count
//! from the IP header on. A translated flow also has `reply_source` and `reply_destination`: the addresses of answers
//! as they come in. `seconds` is the time from the first packet to the end, with the time after the last packet.

use super::balance::endpoint_text;
use super::packet::{Endpoint, ICMP, ICMPV6, Tuple};
use super::state::protocol_name;
use super::view::FlowView;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant, SystemTime};

/// The reason why a flow ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// No packet came before its timeout.
    Expired,
    /// Its endpoints began a new flow.
    Reopened,
    /// An ICMP error said that the destination would not answer its packets.
    Unreachable,
    /// It was not answered or was over, and made room for another.
    Evicted,
    /// It was flushed.
    Flushed,
}

/// An ended flow.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The flow at its end.
    pub flow: FlowView,
    /// The time when it began.
    pub began: SystemTime,
    /// The reason why it ended.
    pub why: Why,
}

/// A flow as text.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FlowText {
    /// `tcp`, `udp`, `icmp`, `icmpv6`, or a number.
    pub protocol: String,
    /// The source of its first packet.
    pub source: String,
    /// The destination of its first packet.
    pub destination: String,
    /// The source of answers, if the flow is translated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_source: Option<String>,
    /// The destination of answers, if the flow is translated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_destination: Option<String>,
    /// The VLAN, if there is a tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Its state.
    pub state: &'static str,
}

impl FlowText {
    /// A flow as text.
    pub fn new(flow: &FlowView) -> Self {
        let Tuple { source, destination, protocol, vlan } = flow.original;
        let text = |end: Endpoint| match protocol {
            super::packet::TCP | super::packet::UDP => endpoint_text(end),
            // The identifier belongs to the side that asks.
            ICMP | ICMPV6 if end.port != 0 => endpoint_text(end),
            _ => std::net::IpAddr::from(end.address).to_string(),
        };
        let is_translated = flow.reply != flow.original.reversed();
        Self {
            protocol: protocol_name(protocol),
            source: text(source),
            destination: text(destination),
            reply_source: is_translated.then(|| text(flow.reply.source)),
            reply_destination: is_translated.then(|| text(flow.reply.destination)),
            vlan: (vlan != 0).then_some(vlan),
            state: flow.state.name(),
        }
    }
}

/// A line of the export.
#[derive(Serialize)]
struct Line {
    #[serde(flatten)]
    flow: FlowText,
    ended: &'static str,
    began_unix_seconds: f64,
    seconds: u64,
    packets: [u64; 2],
    bytes: [u64; 2],
}

/// The most batches of ended flows that wait to be written.
const QUEUE_BATCHES: usize = 16;

/// Writes flows on its own thread, so that a full pipe or a slow disk delays nothing else.
pub struct Writer {
    queue: SyncSender<Vec<Ended>>,
    done: Receiver<io::Result<()>>,
}

impl Writer {
    /// Starts the thread.
    /// # Errors
    /// The system refused a thread.
    pub fn start(mut export: Export) -> io::Result<Self> {
        let (queue, batches) = sync_channel::<Vec<Ended>>(QUEUE_BATCHES);
        let (tell, done) = sync_channel(1);
        std::thread::Builder::new().name("flow-export".to_owned()).spawn(move || {
            let result = batches.into_iter().try_for_each(|batch| export.write(&batch));
            let _ = tell.send(result);
        })?;
        Ok(Self { queue, done })
    }

    /// Passes flows to the thread, and waits for room for at most `patience`. Returns how many were not taken: none, or
    /// all if there was no room in time or the thread has failed.
    pub fn offer(&self, mut flows: Vec<Ended>, patience: Duration) -> usize {
        let began = Instant::now();
        loop {
            match self.queue.try_send(flows) {
                Ok(()) => return 0,
                Err(TrySendError::Full(back)) if began.elapsed() < patience => flows = back,
                Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => return back.len(),
            }
            #[expect(clippy::disallowed_methods, reason = "a bounded channel has no send with a timeout")]
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The error that ended the thread, if there is one. It is returned once.
    pub fn failure(&self) -> Option<io::Error> {
        self.done.try_recv().ok().and_then(Result::err)
    }

    /// Waits at most `patience` until everything is written.
    /// # Errors
    /// Writing failed, or did not end in time.
    pub fn finish(self, patience: Duration) -> io::Result<()> {
        drop(self.queue);
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the reader does not accept what is written");
        self.done.recv_timeout(patience).map_err(late).and_then(|result| result)
    }
}

/// The destination of ended flows.
pub struct Export(BufWriter<Box<dyn Write + Send>>);

impl Export {
    /// Appends to a file, and makes it if it is missing; `-` is standard output.
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::to(io::stdout()));
        }
        let file: File = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self::to(file))
    }

    /// Writes to anything.
    pub fn to(writer: impl Write + Send + 'static) -> Self {
        Self(BufWriter::new(Box::new(writer)))
    }

    /// Writes flows.
    /// # Errors
    /// They cannot be written.
    pub fn write(&mut self, flows: &[Ended]) -> io::Result<()> {
        for Ended { flow, began, why } in flows {
            let line = Line {
                flow: FlowText::new(flow),
                ended: match why {
                    Why::Expired => "expired",
                    Why::Reopened => "reopened",
                    Why::Unreachable => "unreachable",
                    Why::Evicted => "evicted",
                    Why::Flushed => "flushed",
                },
                began_unix_seconds: began.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |t| t.as_secs_f64()),
                seconds: flow.age_s,
                packets: flow.packets,
                bytes: flow.bytes,
            };
            serde_json::to_writer(&mut self.0, &line)?;
            self.0.write_all(b"\n")?;
        }
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::state::State;
    use std::sync::mpsc;

    fn ended() -> Ended {
        let (original, reply) = (Tuple::default(), Tuple::default());
        let flow = FlowView {
            original,
            reply,
            state: State::OtherNew,
            packets: [1, 0],
            bytes: [20, 0],
            age_s: 1,
            remaining_s: 0,
        };
        Ended { flow, began: SystemTime::UNIX_EPOCH, why: Why::Expired }
    }

    /// A pipe that reports how many lines it gets, and takes them when the test lets it.
    struct Pipe(Receiver<()>, mpsc::Sender<usize>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.1.send(bytes.iter().filter(|&&byte| byte == b'\n').count());
            self.0.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_pipe_that_takes_nothing_holds_nobody_up_and_what_was_taken_is_written_later() {
        let ((open, gate), (written, lines)) = (mpsc::channel(), mpsc::channel());
        let writer = Writer::start(Export::to(Pipe(gate, written))).unwrap();
        assert_eq!(writer.offer(vec![ended(); 2], Duration::ZERO), 0);
        assert_eq!(lines.recv().unwrap(), 2);
        // One batch is being written, and the queue is full.
        (0..QUEUE_BATCHES).for_each(|_| assert_eq!(writer.offer(vec![ended(); 3], Duration::ZERO), 0));
        assert_eq!(writer.offer(vec![ended(); 7], Duration::ZERO), 7);
        assert!(writer.failure().is_none());
        (0..=QUEUE_BATCHES).for_each(|_| open.send(()).unwrap());
        writer.finish(Duration::from_secs(60)).unwrap();
        assert_eq!(lines.iter().sum::<usize>(), 3 * QUEUE_BATCHES);
    }

    #[test]
    fn what_cannot_be_written_is_told_once_and_counted() {
        let ((open, gate), (written, _lines)) = (mpsc::channel(), mpsc::channel());
        drop(open);
        let writer = Writer::start(Export::to(Pipe(gate, written))).unwrap();
        let mut failure = None;
        while failure.is_none() {
            writer.offer(vec![ended()], Duration::from_secs(60));
            failure = writer.failure();
        }
        assert_eq!(failure.unwrap().kind(), io::ErrorKind::BrokenPipe);
        assert!(writer.failure().is_none());
        assert_eq!(writer.offer(vec![ended()], Duration::from_secs(60)), 1);
    }
}
