//! A line for each frame.

use super::Session;
use api::v1;
use command::output::{Output, to_stdout};
use command::visible::visible;
use dataplane::tap::Ends;
use serde::Serialize;
use std::io::{BufWriter, Stdout, Write};
use time::format_description::well_known::Rfc3339;
use time::{OffsetDateTime, UtcDateTime};

/// Width of the names of interfaces and ends, so that columns line up.
const DEVICE_COLUMNS: usize = 10;
const NAME_COLUMNS: usize = 17;

/// Prints frames.
pub(super) struct Lines {
    out: Output,
    stdout: BufWriter<Stdout>,
}

#[derive(Serialize)]
struct Row<'a> {
    time: String,
    port: u32,
    device: &'a str,
    direction: &'static str,
    source: Option<String>,
    destination: Option<String>,
    bytes: u32,
    verdict: &'static str,
    exit: Option<u32>,
    reason: Option<&'a str>,
}

impl<'a> Row<'a> {
    fn new(frame: &'a v1::CapturedFrame, session: &'a Session) -> Self {
        let Ends { source, destination } = Ends::of(&frame.data, session.field);
        let verdict = frame.verdict();
        let time =
            OffsetDateTime::from_unix_timestamp_nanos(frame.time_ns.into()).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        Row {
            time: UtcDateTime::from(time).format(&Rfc3339).unwrap_or_default(),
            port: frame.port,
            device: session.device(frame.port),
            direction: if frame.outbound { "out" } else { "in" },
            source: source.map(|name| name.to_string()),
            destination: destination.map(|name| name.to_string()),
            bytes: frame.original_bytes,
            verdict: match verdict {
                v1::FrameVerdict::Forwarded => "forwarded",
                v1::FrameVerdict::Sent => "sent",
                v1::FrameVerdict::Answered => "answered",
                v1::FrameVerdict::Heard => "hello",
                v1::FrameVerdict::Copied => "copied",
                v1::FrameVerdict::Dropped => "dropped",
                v1::FrameVerdict::Unspecified => "unknown",
            },
            exit: (verdict == v1::FrameVerdict::Forwarded).then_some(frame.exit),
            reason: Some(&*frame.reason).filter(|reason| !reason.is_empty()),
        }
    }

    fn line(&self) -> String {
        let Row { port, device, direction, bytes, verdict, .. } = self;
        // With a fixed number of digits: 2026-11-27T11:39:15.123456Z.
        let time = self.time.split_once('T').map_or("", |(_, time)| time.trim_end_matches('Z'));
        let (seconds, fraction) = time.split_once('.').unwrap_or((time, ""));
        let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".to_owned());
        let (source, destination) = (name(&self.source), name(&self.destination));
        let verdict = match (self.exit, self.reason) {
            (Some(exit), _) => format!("to port {exit}"),
            (None, Some(reason)) => format!("{verdict}: {reason}"),
            (None, None) => (*verdict).to_owned(),
        };
        format!(
            "{seconds}.{fraction:0<6.6}  {port:>3} {device:<DEVICE_COLUMNS$}  {direction:<3}  {source:>NAME_COLUMNS$} → \
             {destination:<NAME_COLUMNS$}  {bytes:>5}  {verdict}"
        )
    }
}

impl Lines {
    pub(super) fn new(out: Output) -> Self {
        Self { out, stdout: BufWriter::new(std::io::stdout()) }
    }

    /// # Errors
    /// When standard output is closed.
    pub(super) fn frame(&mut self, frame: &v1::CapturedFrame, session: &Session) -> anyhow::Result<()> {
        let row = Row::new(frame, session);
        let text = if self.out.is_json() { command::output::json(&row)? } else { visible(&row.line()).into_owned() };
        writeln!(self.stdout, "{text}").map_err(to_stdout)
    }

    /// # Errors
    /// When standard output is closed.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        self.stdout.flush().map_err(to_stdout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_port_the_direction_both_ends_and_what_became_of_the_frame() {
        let ports = vec![v1::CapturePort { port: 1, device: "eth1".to_owned(), ..v1::CapturePort::default() }];
        let session = Session::new(v1::CaptureStart { ports, ..v1::CaptureStart::default() });
        let frame = v1::CapturedFrame {
            time_ns: 1_700_000_000_120_000_000,
            port: 1,
            verdict: v1::FrameVerdict::Dropped.into(),
            reason: "alien".to_owned(),
            original_bytes: 60,
            data: [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0].to_vec().into(),
            ..v1::CapturedFrame::default()
        };
        let expected =
            "22:13:20.120000    1 eth1        in   02:00:00:00:00:01 → 02:00:00:00:00:02     60  dropped: alien";
        assert_eq!(Row::new(&frame, &session).line(), expected);
        let sent = v1::FrameVerdict::Forwarded.into();
        let frame = v1::CapturedFrame { verdict: sent, exit: 8, reason: String::new(), ..frame };
        assert!(Row::new(&frame, &session).line().ends_with("  60  to port 8"));
    }
}
