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
use std::time::SystemTime;

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
