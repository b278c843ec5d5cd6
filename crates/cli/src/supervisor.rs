//! Notifications to the service manager that started a daemon: that it serves, works, reloads or stops
//! (`sd_notify(3)`).
//!
//! A message is a datagram to the socket that `NOTIFY_SOCKET` names: one system call. Without the variable, nothing is
//! sent. If the manager has a watchdog (`WATCHDOG_USEC`), [`Supervisor::watch`] sends a keep-alive for each proof of
//! work that it gets, so a daemon that hangs is restarted. Messages that cannot be sent are lost: a missing manager is
//! no reason to stop.
//!
//! The manager also keeps sockets (`FDSTORE=1`, sd_pid_notify_with_fds(3)) and passes them to the next process of the
//! service (`LISTEN_FDS`, sd_listen_fds(3)): [`Supervisor::handover`]. It keeps them across restarts, however a process
//! ended, and closes them when the service is stopped.

use netio::backend::af_packet::{Handover, Vault, inherited};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::retry_on_intr;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// Keep-alives per watchdog interval: one may be late, and one be lost.
const SIGNS: u32 = 4;

/// How long a socket waits for the manager to take it. A manager takes thousands per second.
const HANDOVER_WAIT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// The service manager, if there is one.
pub(crate) struct Supervisor {
    socket: Option<UnixDatagram>,
    /// The manager kills this process after this time without a keep-alive.
    patience: Option<Duration>,
}

impl Supervisor {
    /// The manager of this process, from its environment.
    pub(crate) fn of_this_process() -> Self {
        let own = std::process::id().to_string();
        // The variable names the process that is meant.
        let is_for_us = std::env::var("WATCHDOG_PID").map_or(true, |pid| pid == own);
        let patience = std::env::var("WATCHDOG_USEC").ok().filter(|_| is_for_us);
        Self::new(std::env::var_os("NOTIFY_SOCKET"), patience.as_deref())
    }

    fn new(at: Option<OsString>, patience_us: Option<&str>) -> Self {
        let socket = at.filter(|at| !at.is_empty()).and_then(|at| {
            let connected = connect(&at);
            connected.inspect_err(|error| tracing::warn!(%error, ?at, "the service manager cannot be reached")).ok()
        });
        let patience = patience_us.and_then(|text| text.parse().ok()).filter(|&us| us > 0).map(Duration::from_micros);
        Self { patience: patience.filter(|_| socket.is_some()), socket }
    }

    /// The daemon serves; `sentence` is shown by `systemctl status`.
    pub(crate) fn serves(&self, sentence: &str) {
        self.tell(&format!("READY=1\nSTATUS={}", sentence.replace('\n', " ")));
    }

    /// The daemon reloads; [`Self::serves`] follows when that is done.
    pub(crate) fn reloads(&self) {
        self.tell("RELOADING=1\nSTATUS=reloading");
    }

    /// The daemon stops because it was told to.
    pub(crate) fn stops(&self) {
        self.tell("STOPPING=1\nSTATUS=stopping");
    }

    /// Sends a keep-alive each time that `works` returns true, for ever. It is asked often enough that a single false
    /// does no harm; while it does not answer, it is not asked again.
    pub(crate) async fn watch(&self, mut works: impl AsyncFnMut() -> bool) -> Infallible {
        let Some(patience) = self.patience else { return std::future::pending().await };
        let mut tick = tokio::time::interval(patience / SIGNS);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            if works().await {
                self.tell("WATCHDOG=1");
            } else {
                tracing::error!("this process does not work properly; it will be restarted unless it recovers soon");
            }
        }
    }

    /// Keeps packet sockets across a restart, and holds those of the previous process. None without a manager. Only the
    /// first caller gets the descriptors; if no manager can be told about them, they are closed.
    pub(crate) fn handover(&self) -> Option<Arc<Handover>> {
        let left = inherited();
        let store = self.socket.as_ref()?.try_clone().and_then(Store::new);
        let store = store
            .inspect_err(|error| tracing::warn!(%error, "frames that arrive during a restart will be lost"))
            .ok()?;
        Some(Handover::new(Box::new(store), left))
    }

    fn tell(&self, message: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(message.as_bytes())
        {
            tracing::warn!(%error, what = message, "the service manager was not told");
        }
    }
}

/// The manager's descriptor store. A thread of its own makes the requests one after the other, so workers do not wait
/// for it.
struct Store(mpsc::Sender<Request>);

/// A request to the store.
enum Request {
    Keep(String, OwnedFd),
    Forget(String),
    /// All earlier requests are done when the other end is dropped.
    Finish(mpsc::Sender<Infallible>),
}

impl Vault for Store {
    fn keep(&self, name: &str, socket: BorrowedFd<'_>) {
        match socket.try_clone_to_owned() {
            Ok(socket) => self.ask(Request::Keep(name.to_owned(), socket)),
            Err(error) => tracing::warn!(%error, name, "frames that arrive during a restart will be lost"),
        }
    }

    fn forget(&self, name: &str) {
        self.ask(Request::Forget(name.to_owned()));
    }

    fn finish(&self) {
        let (sender, finished) = mpsc::channel();
        self.ask(Request::Finish(sender));
        let _ = finished.recv();
    }
}

impl Store {
    fn new(socket: UnixDatagram) -> io::Result<Self> {
        let (asks, asked) = mpsc::channel();
        let mut clerk = Clerk { socket, unforgotten: BTreeSet::new() };
        std::thread::Builder::new().name("handover".to_owned()).spawn(move || {
            asked.into_iter().for_each(|request| clerk.answer(request));
        })?;
        Ok(Self(asks))
    }

    fn ask(&self, request: Request) {
        // The thread ends after this.
        let _ = self.0.send(request);
    }
}

/// The thread that makes the requests.
struct Clerk {
    socket: UnixDatagram,
    /// Names that the manager was to forget but was not told about. Two sockets with one name would be useless to the
    /// next process.
    unforgotten: BTreeSet<String>,
}

impl Clerk {
    fn answer(&mut self, request: Request) {
        // One failure is enough to wait for.
        while let Some(name) = self.unforgotten.pop_first() {
            if !self.forget(name) {
                break;
            }
        }
        match request {
            Request::Keep(name, _) if self.unforgotten.contains(&name) => {
                tracing::warn!(
                    name,
                    "frames that arrive during a restart will be lost: the manager keeps an earlier socket"
                );
            }
            Request::Keep(name, socket) => {
                // Not polled: a socket reports an error while its interface is down, and would be closed because of
                // that.
                let _ = self.send(&format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0"), &[socket.as_fd()]);
            }
            Request::Forget(name) => _ = self.forget(name),
            Request::Finish(sender) => drop(sender),
        }
    }

    /// Whether the manager was told.
    fn forget(&mut self, name: String) -> bool {
        let is_told = self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), &[]).is_ok();
        if !is_told {
            self.unforgotten.insert(name);
        }
        is_told
    }

    fn send(&self, message: &str, sockets: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !sockets.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(sockets));
        }
        let pieces = [IoSlice::new(message.as_bytes())];
        // A burst of messages may exceed the manager's queue.
        let mut queue = [PollFd::new(&self.socket, PollFlags::OUT)];
        let sent = retry_on_intr(|| rustix::event::poll(&mut queue, Some(&HANDOVER_WAIT))).and_then(|_| {
            retry_on_intr(|| rustix::net::sendmsg(&self.socket, &pieces, &mut control, SendFlags::NOSIGNAL))
        });
        sent.map(drop).inspect_err(|error| {
            tracing::warn!(%error, what = message, "frames that arrive during a restart may be lost: the service manager was not told");
        })
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
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
    use std::cell::Cell;
    use std::io::{IoSliceMut, Read as _, Write as _};

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
    fn manager_gets_a_socket_under_its_name_and_is_told_to_forget_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let supervisor = Supervisor::new(Some(path.into_os_string()), None);
        let store = Store::new(supervisor.socket.unwrap()).unwrap();
        let (one, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
        store.keep("eth1-0-of-1", one.as_fd());
        drop(one);
        let mut bytes = [0; 256];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let n = {
            let mut pieces = [IoSliceMut::new(&mut bytes)];
            rustix::net::recvmsg(&manager, &mut pieces, &mut control, RecvFlags::empty()).unwrap().bytes
        };
        assert_eq!(&bytes[..n], b"FDSTORE=1\nFDNAME=eth1-0-of-1\nFDPOLL=0");
        let mut kept = Vec::new();
        for message in control.drain() {
            let RecvAncillaryMessage::ScmRights(descriptors) = message else { panic!("another message") };
            kept.extend(descriptors);
        }
        assert_eq!(kept.len(), 1);
        // It is the same, and open as long as the manager has it.
        other.write_all(b"still there").unwrap();
        let mut stored = std::os::unix::net::UnixStream::from(kept.remove(0));
        let mut read = [0; 11];
        stored.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"still there");
        store.forget("eth1-0-of-1");
        assert_eq!(received(&manager), "FDSTOREREMOVE=1\nFDNAME=eth1-0-of-1");
    }

    #[test]
    fn what_the_manager_was_not_told_to_forget_it_is_told_before_anything_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let (socket, other) = (connect(path.as_os_str()).unwrap(), UnixDatagram::unbound().unwrap());
        let keep = |name: &str| Request::Keep(name.to_owned(), other.as_fd().try_clone_to_owned().unwrap());
        let mut clerk = Clerk { socket, unforgotten: BTreeSet::new() };
        drop(manager);
        clerk.answer(Request::Forget("eth1-0-of-1".to_owned()));
        clerk.answer(keep("eth1-0-of-1"));
        assert_eq!(clerk.unforgotten.len(), 1);
        // The manager is there again.
        std::fs::remove_file(&path).unwrap();
        let manager = UnixDatagram::bind(&path).unwrap();
        clerk.socket = connect(path.as_os_str()).unwrap();
        clerk.answer(keep("eth1-0-of-1"));
        assert_eq!(received(&manager), "FDSTOREREMOVE=1\nFDNAME=eth1-0-of-1");
        assert_eq!(received(&manager), "FDSTORE=1\nFDNAME=eth1-0-of-1\nFDPOLL=0");
        manager.set_nonblocking(true).unwrap();
        assert!(manager.recv(&mut [0; 64]).is_err() && clerk.unforgotten.is_empty());
    }

    #[test]
    fn whoever_asks_the_store_does_not_wait_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let store = Store::new(connect(path.as_os_str()).unwrap()).unwrap();
        // More than its queue has room for, and it reads nothing until all are asked.
        let names: Vec<_> = (0..1000).map(|i| format!("eth{i}-0-of-1")).collect();
        names.iter().for_each(|name| store.forget(name));
        for name in &names {
            assert_eq!(received(&manager), format!("FDSTOREREMOVE=1\nFDNAME={name}"));
        }
        store.finish();
    }

    #[test]
    fn daemon_without_a_manager_goes_on() {
        for at in [None, Some(OsString::new()), Some("/nowhere/at/all".into())] {
            let supervisor = Supervisor::new(at, Some("1000"));
            supervisor.serves("serves");
            assert_eq!(supervisor.patience, None);
            assert!(supervisor.handover().is_none());
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
