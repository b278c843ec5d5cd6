//! Pages that are open in browsers, as the controller notices them: each asks for the network every two seconds, sooner if something
//! happens, and hears events.

use super::failed;
use crate::BenchError;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often a page asks if nothing happens, and at most if something does (`crates/controller/web/feed.js`).
pub(super) const EVERY: Duration = Duration::from_secs(2);
pub(super) const AT_MOST_EVERY: Duration = Duration::from_millis(300);
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

/// Keeps pages open for some time. Each asks once in a period, if it is answered within it; they begin one after the other.
pub(super) fn keep_open(socket: &Path, pages: u32, every: Duration, time: Duration) -> Result<(), BenchError> {
    let began = Instant::now();
    let page = |number: u32| -> std::io::Result<()> {
        let (mut page, mut events) = (Page::open(socket)?, Page::open(socket)?);
        events.ask("/ui/events")?;
        let mut due = began + every / pages * number;
        while due < began + time {
            wait_until(due);
            page.network()?;
            due = Instant::now().max(due + every);
        }
        wait_until(began + time);
        Ok(())
    };
    let kept = std::thread::scope(|scope| {
        let page = &page;
        let all: Vec<_> = (0..pages).map(|number| scope.spawn(move || page(number))).collect();
        all.into_iter().try_for_each(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    kept.map_err(|error| failed("keeping pages open", &error))
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
