//! Pages that are open in browsers, as far as the controller notices: each asks for the network every two seconds and hears events.

use super::failed;
use crate::BenchError;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often a page asks (`crates/controller/web/feed.js`).
const EVERY: Duration = Duration::from_secs(2);
/// The longest time without an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection of a page to the controller.
struct Page(BufReader<UnixStream>);

impl Page {
    fn open(socket: &Path) -> std::io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    fn ask(&mut self, path: &str) -> std::io::Result<()> {
        write!(self.0.get_mut(), "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
    }

    /// Asks for the network; the bytes of the answer.
    fn network(&mut self) -> std::io::Result<usize> {
        self.ask("/ui/network")?;
        let invalid = |what: &str| std::io::Error::other(what.to_owned());
        let (mut line, mut length, mut is_ok) = (String::new(), None, None);
        loop {
            line.clear();
            self.0.read_line(&mut line)?;
            let text = line.trim_end().to_ascii_lowercase();
            match text.strip_prefix("content-length:") {
                Some(value) => length = value.trim().parse().ok(),
                None if text.is_empty() => break,
                None => _ = is_ok.get_or_insert(text.contains(" 200 ")),
            }
        }
        if is_ok != Some(true) {
            return Err(invalid("the page is refused"));
        }
        let mut body = vec![0; length.ok_or_else(|| invalid("the answer has no length"))?];
        self.0.read_exact(&mut body)?;
        Ok(body.len())
    }
}

/// Milliseconds from a page's question to its last byte, several times, and the bytes of an answer.
pub(super) fn answers(socket: &Path, runs: u32) -> Result<(Vec<f64>, usize), BenchError> {
    let asked = || -> std::io::Result<_> {
        let (mut page, mut times, mut bytes) = (Page::open(socket)?, Vec::new(), 0);
        for _ in 0..runs {
            let began = Instant::now();
            bytes = page.network()?;
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        Ok((times, bytes))
    };
    asked().map_err(|error| failed("asking as a page", &error))
}

/// Keeps pages open for some time. They ask one after the other.
pub(super) fn keep_open(socket: &Path, pages: u32, time: Duration) -> Result<(), BenchError> {
    let kept = || -> std::io::Result<()> {
        let mut all = (0..pages).map(|_| Page::open(socket)).collect::<Result<Vec<_>, _>>()?;
        let mut streams = (0..pages).map(|_| Page::open(socket)).collect::<Result<Vec<_>, _>>()?;
        streams.iter_mut().try_for_each(|stream| stream.ask("/ui/events"))?;
        let began = Instant::now();
        for turn in 0.. {
            let due = EVERY / pages * turn;
            if due >= time {
                break;
            }
            wait_until(began + due);
            let page = turn as usize % all.len();
            all[page].network()?;
        }
        wait_until(began + time);
        Ok(())
    };
    kept().map_err(|error| failed("keeping pages open", &error))
}

/// Waits until a moment.
pub(super) fn wait_until(moment: Instant) {
    loop {
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::park_timeout(left);
    }
}
