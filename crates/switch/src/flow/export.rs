//! Flows that ended, a JSON object a line.
//!
//! ```json
//! {"protocol":"tcp","source":"10.0.0.1:40000","destination":"10.0.0.2:80","state":"time_wait","ended":"expired",
//!  "began_unix_seconds":1700000000.0,"seconds":130,"packets":[7,5],"bytes":[512,9000]}
//! ```
//! (in one line). `packets` and `bytes` are those of the first packet's direction and of the other; bytes count from the
//! IP header on. A translated flow has `reply_source` and `reply_destination` besides: what answers look like where they
//! come in. `seconds` is from the first packet to the end, the time without packets included.

use super::balance::endpoint_text;
use super::packet::{Endpoint, ICMP, ICMPV6, Tuple};
use super::stage::FlowView;
use super::state::protocol_name;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant, SystemTime};

/// Why a flow ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// No packet came in time.
    Expired,
    /// Its two ends began another.
    Reopened,
    /// It was flushed.
    Flushed,
}

/// A flow that ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// As it was at its end.
    pub flow: FlowView,
    /// When it began.
    pub began: SystemTime,
    /// Why it ended.
    pub why: Why,
}

/// A flow in text.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FlowText {
    /// `tcp`, `udp`, `icmp`, `icmpv6`, or a number.
    pub protocol: String,
    /// Where its first packet came from.
    pub source: String,
    /// Where that went to.
    pub destination: String,
    /// Where answers come from, if somebody translates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_source: Option<String>,
    /// Where they go to, if somebody translates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_destination: Option<String>,
    /// The VLAN, if there is a tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Its state.
    pub state: &'static str,
}

impl FlowText {
    /// A flow in text.
    pub fn new(flow: &FlowView) -> Self {
        let Tuple { source, destination, protocol, vlan } = flow.original;
        let text = |end: Endpoint| match protocol {
            super::packet::TCP | super::packet::UDP => endpoint_text(end),
            // The side that asks has the identifier.
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

/// Batches of ended flows that wait to be written, at most.
const QUEUE_BATCHES: usize = 16;

/// Writes flows on a thread of its own, so that a pipe which nobody empties, or a slow disk, holds nobody up.
pub struct Writer {
    queue: SyncSender<Vec<Ended>>,
    done: Receiver<io::Result<()>>,
}

impl Writer {
    /// Starts the thread.
    /// # Errors
    /// The system refused it.
    pub fn start(mut export: Export) -> io::Result<Self> {
        let (queue, batches) = sync_channel::<Vec<Ended>>(QUEUE_BATCHES);
        let (tell, done) = sync_channel(1);
        std::thread::Builder::new().name("flow-export".to_owned()).spawn(move || {
            let result = batches.into_iter().try_for_each(|batch| export.write(&batch));
            let _ = tell.send(result);
        })?;
        Ok(Self { queue, done })
    }

    /// Hands flows over, and waits for room until `patience` has passed. How many were not taken: all, if those before
    /// them are not written by then, or cannot be.
    pub fn offer(&self, mut flows: Vec<Ended>, patience: Duration) -> usize {
        let began = Instant::now();
        loop {
            match self.queue.try_send(flows) {
                Ok(()) => return 0,
                Err(TrySendError::Full(back)) if began.elapsed() < patience => flows = back,
                Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => return back.len(),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Why it has ended, if it has: told once.
    pub fn failure(&self) -> Option<io::Error> {
        self.done.try_recv().ok().and_then(Result::err)
    }

    /// Waits until everything is written, at most `patience`.
    /// # Errors
    /// It cannot be written, or was not by then.
    pub fn finish(self, patience: Duration) -> io::Result<()> {
        drop(self.queue);
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "nobody takes what is written");
        self.done.recv_timeout(patience).map_err(late).and_then(|result| result)
    }
}

/// Where ended flows are written.
pub struct Export(BufWriter<Box<dyn Write + Send>>);

impl Export {
    /// Appends to a file, which is made if it is missing; `-` is standard output.
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

    /// Writes flows out, all of them.
    /// # Errors
    /// They cannot be written.
    pub fn write(&mut self, flows: &[Ended]) -> io::Result<()> {
        for Ended { flow, began, why } in flows {
            let line = Line {
                flow: FlowText::new(flow),
                ended: match why {
                    Why::Expired => "expired",
                    Why::Reopened => "reopened",
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

    /// A pipe that says how many lines it is given, and takes them when the test says so.
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
        // It is being written; so many wait behind it.
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
