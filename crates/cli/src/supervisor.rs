//! What a daemon tells the service manager that started it: that it serves, that it works, that it stops (`sd_notify(3)`).
//!
//! A message is a datagram to the socket that `NOTIFY_SOCKET` names: one system call. Without the variable nothing is told.
//! Where the manager watches (`WATCHDOG_USEC`), [`Supervisor::watch`] sends a sign of life for each proof of life that it
//! gets, so what hangs is restarted. Messages that cannot be sent are lost: a daemon does not end because nobody listens.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// Signs of life in the time after which the manager gives a daemon up: one may come late, and one be lost.
const SIGNS: u32 = 4;

/// The service manager, if there is one.
pub(crate) struct Supervisor {
    socket: Option<UnixDatagram>,
    /// After so long without a sign of life this process is ended.
    patience: Option<Duration>,
}

impl Supervisor {
    /// That of this process, by its environment.
    pub(crate) fn of_this_process() -> Self {
        let own = std::process::id().to_string();
        // The variable names a process where the manager means one alone.
        let is_for_us = std::env::var("WATCHDOG_PID").map_or(true, |pid| pid == own);
        let patience = std::env::var("WATCHDOG_USEC").ok().filter(|_| is_for_us);
        Self::new(std::env::var_os("NOTIFY_SOCKET"), patience.as_deref())
    }

    fn new(at: Option<OsString>, patience_us: Option<&str>) -> Self {
        let socket = at.filter(|at| !at.is_empty()).and_then(|at| {
            let connected = connect(&at);
            connected
                .inspect_err(|error| tracing::warn!(%error, ?at, "the service manager cannot be told anything"))
                .ok()
        });
        let patience = patience_us.and_then(|text| text.parse().ok()).filter(|&us| us > 0).map(Duration::from_micros);
        Self { patience: patience.filter(|_| socket.is_some()), socket }
    }

    /// The daemon serves; `sentence` is shown by `systemctl status`.
    pub(crate) fn serves(&self, sentence: &str) {
        self.tell(&format!("READY=1\nSTATUS={}", sentence.replace('\n', " ")));
    }

    /// The daemon stops because it was told to.
    pub(crate) fn stops(&self) {
        self.tell("STOPPING=1\nSTATUS=stopping");
    }

    /// Sends a sign of life each time that `works` says yes, for ever. It is asked often enough that one no is forgiven; while it
    /// does not answer, it is not asked again.
    pub(crate) async fn watch(&self, mut works: impl AsyncFnMut() -> bool) -> Infallible {
        let Some(patience) = self.patience else { return std::future::pending().await };
        let mut tick = tokio::time::interval(patience / SIGNS);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            if works().await {
                self.tell("WATCHDOG=1");
            } else {
                tracing::error!("this process does not work as it should; unless it does soon, it is restarted");
            }
        }
    }

    fn tell(&self, message: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(message.as_bytes())
        {
            tracing::warn!(%error, what = message, "the service manager was not told");
        }
    }
}

/// A socket whose messages go to `at`: a path, or an abstract name behind an @. It never blocks.
fn connect(at: &std::ffi::OsStr) -> io::Result<UnixDatagram> {
    let address = match at.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(at)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn received(manager: &UnixDatagram) -> String {
        let mut bytes = [0; 4096];
        let n = manager.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..n].to_vec()).unwrap()
    }

    #[test]
    fn manager_is_told_at_a_path_and_at_an_abstract_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let name = format!("fibula-test-{}", std::process::id());
        let at_path = UnixDatagram::bind(&path).unwrap();
        let at_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        for (manager, at) in [(at_path, path.into_os_string()), (at_name, format!("@{name}").into())] {
            let supervisor = Supervisor::new(Some(at), None);
            supervisor.serves("serves\nat last");
            assert_eq!(received(&manager), "READY=1\nSTATUS=serves at last");
            supervisor.stops();
            assert_eq!(received(&manager), "STOPPING=1\nSTATUS=stopping");
        }
    }

    #[test]
    fn daemon_without_a_manager_goes_on() {
        for at in [None, Some(OsString::new()), Some("/nowhere/at/all".into())] {
            let supervisor = Supervisor::new(at, Some("1000"));
            supervisor.serves("serves");
            assert_eq!(supervisor.patience, None);
        }
    }

    #[tokio::test]
    async fn signs_of_life_are_sent_for_proofs_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let manager = tokio::net::UnixDatagram::bind(&path).unwrap();
        let supervisor = Supervisor::new(Some(path.into_os_string()), Some("40000"));
        let asked = Cell::new(0);
        // It does not work when it is asked first, works then, and does not answer in the end.
        let works = async || {
            asked.set(asked.get() + 1);
            match asked.get() {
                1 => false,
                2 | 3 => true,
                _ => std::future::pending().await,
            }
        };
        let signs = async {
            let mut bytes = [0; 64];
            for _ in 0..2 {
                let n = manager.recv(&mut bytes).await.unwrap();
                assert_eq!(&bytes[..n], b"WATCHDOG=1");
            }
            assert!(asked.get() >= 3, "the first no was followed by a sign of life");
            // Many times as long as between two questions.
            tokio::time::timeout(Duration::from_millis(200), manager.recv(&mut bytes)).await
        };
        tokio::select! {
            never = supervisor.watch(works) => match never {},
            late = signs => assert!(late.is_err(), "a sign of life without a proof"),
        }
        assert_eq!(asked.get(), 4);
    }
}
