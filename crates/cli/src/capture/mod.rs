//! `fibula capture`: the frames at the ports of a running switch, with the fate of each, as lines or as pcapng.

mod file;
mod lines;

use crate::remote::{Remote, answer, exit_of, refusal};
use api::client::ConnectError;
use api::identity::Kind;
use api::v1;
use api::words::counted;
use command::output::{Exit, Failure, Output, note};
use dataplane::parse::NameField;
use fib::name::NameKind;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

/// Arguments of `fibula capture`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A port number, the name of an interface, or `all`, at the switch at --at; or, with the name of a switch and a
    /// colon before it (s1:3, s1:eth1, s1:all), at that switch, through the controller
    port: String,
    /// Address of the switch to ask directly: `control` in its switch.toml; by default the variable FIBULA_CONTROL, or
    /// 127.0.0.1:4605. Refused with SWITCH:PORT
    #[arg(long, visible_alias = "switch", value_name = "ADDRESS")]
    at: Option<String>,
    /// Only frames that are dropped
    #[arg(long)]
    drops: bool,
    /// Only frames from or to this name, or this MAC address
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Bytes to keep of each frame [default: all]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    snap: Option<u32>,
    /// End after this many frames
    #[arg(short = 'c', long, value_name = "FRAMES", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this time: 500ms, 10s, 5m, 1h
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    at_most: Option<Duration>,
    /// Write pcapng to this file, or to standard output if it is `-`, instead of a line for each frame
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    remote: Remote,
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time; write it like 500ms, 10s, 5m or 1h");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let n: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit_ms = match &text[digits..] {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    n.checked_mul(unit_ms).filter(|&ms| ms > 0).map(Duration::from_millis).ok_or_else(wrong)
}

/// Where frames go.
enum Sink {
    Lines(lines::Lines),
    File(file::Capture),
}

/// What the switch said at the beginning, and the counts since.
struct Session {
    start: v1::CaptureStart,
    field: Option<NameField>,
    /// Frames by port.
    seen: BTreeMap<u32, u64>,
    /// Frames that the switch could not pass on, by port.
    lost: BTreeMap<u32, u64>,
    /// Dropped frames by reason.
    dropped: BTreeMap<String, u64>,
}

impl Session {
    fn new(start: v1::CaptureStart) -> Self {
        let kind = start.name_kind.parse::<NameKind>().ok();
        let offset = start.fixed_offset.map(|offset| offset as usize);
        let field = kind.and_then(|kind| NameField::new(kind, offset).ok());
        Self { start, field, seen: BTreeMap::new(), lost: BTreeMap::new(), dropped: BTreeMap::new() }
    }

    fn device(&self, port: u32) -> &str {
        self.start.ports.iter().find(|known| known.port == port).map_or("", |known| &known.device)
    }

    fn count(&mut self, frame: &v1::CapturedFrame) {
        *self.seen.entry(frame.port).or_default() += 1;
        if frame.verdict() == v1::FrameVerdict::Dropped {
            *self.dropped.entry(frame.reason.clone()).or_default() += 1;
        }
    }

    fn n_seen(&self) -> u64 {
        self.seen.values().sum()
    }

    /// Says which frames the capture cannot contain.
    fn limits(&self) -> Option<String> {
        let in_kernel = self.start.ports.iter().filter(|port| port.in_kernel);
        let ports: Vec<String> = in_kernel.map(|port| format!("{} ({})", port.port, port.device)).collect();
        (!ports.is_empty()).then(|| {
            format!(
                "the kernel forwards frames from trunks by itself (driver xdp), so they are not captured at ports {}",
                ports.join(", ")
            )
        })
    }

    /// Prints a summary on standard error if standard output carries the frames.
    fn sum_up(&self) {
        let lost: u64 = self.lost.values().sum();
        let missing =
            if lost > 0 { format!(", {lost} more were not captured: they came too fast") } else { String::new() };
        note(format!("{}{missing}", counted(self.n_seen(), "frame", "frames")));
        for (reason, n) in &self.dropped {
            note(format!("{n} {}", dropped(reason)));
        }
    }
}

/// Why a frame was dropped, in words.
fn dropped(reason: &str) -> String {
    match api::drops::why(reason) {
        // From a newer switch.
        "" => format!("dropped: {reason}"),
        why => format!("dropped: {reason} ({})", why.trim_end_matches('.')),
    }
}

impl Args {
    /// # Errors
    /// Exit code 1 if the file cannot be written, 2 for an invalid address or a capture to a terminal, 3 for an invalid
    /// name, 4 if the switch does not answer or has no such port, 5 without the role `admin` or with too many captures.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        crate::remote::block_on(self.capture(out))
    }

    async fn capture(self, out: &Output) -> anyhow::Result<()> {
        file::refuse_a_terminal(self.file.as_deref(), std::io::stdout().is_terminal())?;
        // First, so that no signal ends the capture before its file is complete.
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        // Names of switches have no colon.
        let (switch, port) = self.port.split_once(':').unwrap_or(("", &self.port));
        let channel = if self.port.contains(':') {
            if switch.is_empty() || port.is_empty() {
                let why = format!("`{}` is not a port of a switch; write it like s1:3, s1:eth1 or s1:all", self.port);
                return Err(Failure::new(Exit::Usage, why));
            }
            if let Some(at) = &self.at {
                let why = format!(
                    "the controller asks the switch of `{}`, so --at {at} cannot be used; leave it out, or ask the switch \
                     directly: fibula capture {port} --at {at}",
                    self.port
                );
                return Err(Failure::new(Exit::Usage, why));
            }
            self.remote.channel().await?
        } else {
            let at = self.address();
            let connected = self.remote.credentials().connect(Kind::Switch, &at).await?;
            connected.map_err(|error| unreachable(&at, error))?
        };
        let request = v1::CaptureRequest {
            switch: switch.to_owned(),
            port: if port == "all" { String::new() } else { port.to_owned() },
            drops_only: self.drops,
            snap_bytes: self.snap.unwrap_or(0),
            name: self.name.clone().unwrap_or_default(),
        };
        let mut batches = answer(api::client::captures(channel).capture(request).await)?;
        let first = batches.message().await.map_err(|status| refusal(&status))?;
        let Some(start) = first.and_then(|batch| batch.start) else {
            return Err(Failure::new(Exit::NotFound, "the switch ended the capture before it began; ask it again"));
        };
        let mut session = Session::new(start);
        let mut sink = match &self.file {
            Some(path) => Sink::File(file::Capture::create(path, &session)?),
            None => Sink::Lines(lines::Lines::new(*out)),
        };
        if let Some(limits) = session.limits() {
            note(limits);
        }
        let until = self.at_most.map(|at_most| Instant::now() + at_most);
        let mut ended = Ok(());
        loop {
            let message = tokio::select! {
                message = batches.message() => message,
                _ = interrupt.recv() => break,
                _ = terminate.recv() => break,
                () = tokio::time::sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => break,
            };
            let batch = match message {
                Ok(Some(batch)) => batch,
                Ok(None) => {
                    ended = Err(Failure::new(Exit::NotFound, "the switch was stopped, which ended the capture"));
                    break;
                }
                Err(status) => {
                    ended = Err(refusal(&status));
                    break;
                }
            };
            session.lost.extend(batch.lost.iter().map(|loss| (loss.port, loss.frames)));
            for frame in &batch.frames {
                if self.count.is_some_and(|count| session.n_seen() >= count) {
                    break;
                }
                session.count(frame);
                match &mut sink {
                    Sink::Lines(lines) => lines.frame(frame, &session)?,
                    Sink::File(file) => file.frame(frame)?,
                }
            }
            match &mut sink {
                Sink::Lines(lines) => lines.flush()?,
                Sink::File(file) => file.flush()?,
            }
            if self.count.is_some_and(|count| session.n_seen() >= count) {
                break;
            }
        }
        if let Sink::File(file) = sink {
            file.finish(&session)?;
        }
        session.sum_up();
        ended
    }

    /// The address of the switch to ask directly.
    fn address(&self) -> String {
        let of_environment = || std::env::var("FIBULA_CONTROL").ok().filter(|at| !at.is_empty());
        self.at.clone().or_else(of_environment).unwrap_or_else(|| "127.0.0.1:4605".to_owned())
    }
}

fn unreachable(at: &str, error: ConnectError) -> anyhow::Error {
    match error {
        ConnectError::Unreachable { reason, .. } => Failure::new(
            Exit::NotFound,
            format!(
                "no switch answers at {at} ({reason}); set --at or FIBULA_CONTROL to the address of `control` in its \
                 switch.toml, and add that line if it is missing: control = \"127.0.0.1:4605\""
            ),
        ),
        ConnectError::BadUrl { .. } => {
            Failure::new(Exit::Usage, format!("`{at}` is not an address; write it like 10.0.0.2:4605"))
        }
        error => Failure::new(exit_of(&error), error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(["10", "10s"].map(duration), [Ok(Duration::from_secs(10)), Ok(Duration::from_secs(10))]);
        assert_eq!(["5m", "1h"].map(duration), [Ok(Duration::from_secs(300)), Ok(Duration::from_secs(3600))]);
        for wrong in ["", "s", "0s", "-1s", "1d", "1.5s", "99999999999999999999s", "18446744073709551615h"] {
            assert!(duration(wrong).unwrap_err().contains("500ms"), "{wrong}");
        }
    }

    #[test]
    fn a_reason_that_is_not_known_here_is_said_by_its_name() {
        assert!(dropped("alien").starts_with("dropped: alien (A host sent to a name that no host has."));
        assert_eq!(dropped("of_a_later_version"), "dropped: of_a_later_version");
    }
}
