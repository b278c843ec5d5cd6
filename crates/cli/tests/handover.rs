//! A switch that restarts while frames cross it, under a service manager that keeps its sockets: every frame arrives once and in order.
//! The test is the manager. It keeps what `FDSTORE=1` brings, and starts the next process with it as systemd does.

mod support;

use fib::durable::Tenants;
use fib::name::{Name, NameKind};
use fib::network::{Network, Settings};
use fib::replica::{Limits, MemoryTables, Replica};
use fib::rib::Attachment;
use fib::topology::End;
use lookup::hash::SecretKey;
use netio::backend::af_packet::{AfPacket, Options};
use netio::testkit::in_namespace;
use netio::{BURST, Burst, Device, Packet, Pool};
use rustix::io::FdFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::io::{BufRead, BufReader, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use support::{FIBULA, PATIENCE};
use switch::daemon::saved::SavedImage;

netio::tests! {
    namespaces: [
        frames_that_come_during_a_restart_arrive_once_and_in_order,
        frames_that_come_after_a_kill_arrive_once_and_in_order,
        a_kill_among_frames_loses_those_in_the_worker_s_hands_at_most,
        sockets_of_a_port_that_is_none_any_more_are_closed,
    ],
    anywhere: []
}

/// Frames on their way at most: fewer than a ring holds, so that none is lost however long a restart takes.
const ON_THEIR_WAY: u32 = 512;

const HERE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const THERE: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// The image of a switch with a name at each of its two ports.
fn image() -> Vec<u8> {
    let settings = Settings { kind: NameKind::Mac, max_names: 1000, ..Settings::new(7, SecretKey::from_seed(3)) };
    let mut network = Network::new(settings, 1).unwrap();
    let (s1, _) = network.add_switch("s1", Tenants::All).unwrap();
    for (port, mac) in [(1, HERE), (2, THERE)] {
        let port = fib::action::PortId(port);
        network.add_host_port(End { node: s1, port }).unwrap();
        let name = Name::from_bytes(NameKind::Mac, &mac).unwrap();
        network.add_name(&name, Attachment::new(s1, port)).unwrap();
    }
    let mut replica = Replica::new(Limits::default(), MemoryTables::default());
    for message in network.attach(s1, &replica.report()).unwrap() {
        replica.apply(message).unwrap();
    }
    replica.save()
}

/// A service manager with one service.
struct Manager {
    directory: tempfile::TempDir,
    notified: UnixDatagram,
    kept: Vec<(String, OwnedFd)>,
}

impl Manager {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let notified = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        notified.set_nonblocking(true).unwrap();
        SavedImage::new(&directory.path().join("state")).unwrap().write(&image()).unwrap();
        let manager = Self { directory, notified, kept: Vec::new() };
        manager.configure(&["near", "far"]);
        manager
    }

    fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    /// Writes a configuration with these ports.
    fn configure(&self, devices: &[&str]) {
        let state = self.path("state");
        let mut text = format!(
            "name = 's1'\ncontroller = 'http://127.0.0.1:1'\nstate_dir = '{}'\nrestart_wait_ms = 60000\n[links]\nhello_ms = 0\n",
            state.display()
        );
        for (id, device) in (1..).zip(devices) {
            text += &format!("[[port]]\nid = {id}\ndevice = '{device}'\nrole = 'host'\n");
        }
        std::fs::write(self.path("switch.toml"), text).unwrap();
    }

    /// Starts the service with what is kept.
    fn start(&mut self) -> Daemon {
        // The shell moves descriptors to where they belong, and its process becomes the daemon. These are none that it uses itself.
        let given: Vec<OwnedFd> = (20..)
            .zip(&self.kept)
            .map(|(least, (_, socket))| {
                let given = rustix::io::fcntl_dupfd_cloexec(socket, least).unwrap();
                rustix::io::fcntl_setfd(&given, FdFlags::empty()).unwrap();
                given
            })
            .collect();
        let moved: String =
            (3..).zip(&given).map(|(to, from)| format!(" {to}<&{0} {0}<&-", from.as_raw_fd())).collect();
        let names: Vec<&str> = self.kept.iter().map(|(name, _)| name.as_str()).collect();
        let script = format!("export LISTEN_PID=$$; exec \"$0\" switch --config \"$1\"{moved}");
        let mut child = Command::new("bash")
            .args(["-c", &script, FIBULA])
            .arg(self.path("switch.toml"))
            .env("LISTEN_FDS", names.len().to_string())
            .env("LISTEN_FDNAMES", names.join(":"))
            .env("NOTIFY_SOCKET", self.path("notify"))
            // It warns of its controller, which there is none of.
            .env("FIBULA_LOG", "error")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        drop(given);
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Daemon { child, stdout }
    }

    /// Does what the service has asked for. Returns whether it has said that it serves.
    fn listen(&mut self) -> bool {
        let mut serves = false;
        loop {
            let mut bytes = [0; 4096];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let received = {
                let mut pieces = [IoSliceMut::new(&mut bytes)];
                rustix::net::recvmsg(&self.notified, &mut pieces, &mut control, RecvFlags::CMSG_CLOEXEC)
            };
            let Ok(received) = received else { return serves };
            let message = std::str::from_utf8(&bytes[..received.bytes]).unwrap();
            let name = message.lines().find_map(|line| line.strip_prefix("FDNAME=")).unwrap_or_default().to_owned();
            serves |= message.lines().any(|line| line == "READY=1");
            for message in control.drain() {
                let RecvAncillaryMessage::ScmRights(sockets) = message else { panic!("another message") };
                self.kept.extend(sockets.map(|socket| (name.clone(), socket)));
            }
            if message.lines().any(|line| line == "FDSTOREREMOVE=1") {
                self.kept.retain(|(kept, _)| *kept != name);
            }
        }
    }

    fn names(&self) -> Vec<&str> {
        self.kept.iter().map(|(name, _)| name.as_str()).collect()
    }
}

struct Daemon {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Daemon {
    /// Waits until it says that it serves.
    fn serves(&mut self) {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "it ended before it served: {:?}", self.child.wait());
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Hosts at both ports: one sends numbered frames, the other has to get them.
struct Hosts {
    sender: AfPacket,
    receiver: AfPacket,
    pool: Pool,
    burst: Burst,
    n_sent: u32,
    got: Vec<u32>,
}

impl Hosts {
    fn new() -> Self {
        for (port, host) in [("near", "near-host"), ("far", "far-host")] {
            ip(&format!("link add {port} type veth peer name {host}"));
            for name in [port, host] {
                if std::path::Path::new("/proc/sys/net/ipv6").exists() {
                    ip(&format!("link set {name} addrgenmode none"));
                }
                ip(&format!("link set {name} up"));
            }
            let began = Instant::now();
            while [port, host].iter().any(|name| !ip(&format!("link show {name}")).contains("state UP")) {
                assert!(began.elapsed() < PATIENCE, "{port} has no carrier");
            }
        }
        let open = |name| AfPacket::open(name, &Options::default()).unwrap();
        let (sender, receiver) = (open("near-host"), open("far-host"));
        Self { sender, receiver, pool: Pool::new(4 * BURST, 2048), burst: Burst::new(), n_sent: 0, got: Vec::new() }
    }

    /// Sends up to `most` frames more, as long as few enough are on their way, and receives what comes, until `done`.
    #[track_caller]
    fn go_on(&mut self, most: u32, mut done: impl FnMut(&Self) -> bool) {
        let (began, last) = (Instant::now(), self.n_sent + most);
        while !done(self) {
            assert!(began.elapsed() < PATIENCE, "{} of {} frames arrived", self.got.len(), self.n_sent);
            let free = ON_THEIR_WAY.saturating_sub(self.n_sent - self.got.len() as u32).min(last - self.n_sent);
            let mut frames: Burst = (self.n_sent..self.n_sent + free.min(BURST as u32)).map(numbered).collect();
            self.n_sent += self.sender.tx_burst(&mut Pool::new(0, 2048), &mut frames).unwrap() as u32;
            if self.receiver.rx_burst(&mut self.pool, &mut self.burst).unwrap() == 0 {
                // The switch needs a processor, too.
                std::thread::yield_now();
            }
            let number = |packet: &Packet| u32::from_be_bytes(packet.frame()[20..24].try_into().unwrap());
            self.got.extend(self.burst.iter().map(number));
            self.pool.put_all(&mut self.burst);
        }
    }

    /// Sends no more until all have arrived.
    #[track_caller]
    fn settle(&mut self) {
        self.go_on(0, |hosts| hosts.got.len() as u32 == hosts.n_sent);
    }

    /// Sends until no more may be on their way: no switch forwards them.
    #[track_caller]
    fn fill(&mut self) {
        self.go_on(u32::MAX / 2, |hosts| hosts.n_sent - hosts.got.len() as u32 == ON_THEIR_WAY);
    }

    /// Goes on until so many more frames have arrived.
    #[track_caller]
    fn more(&mut self, n: usize) {
        let enough = self.got.len() + n;
        self.go_on(u32::MAX / 2, |hosts| hosts.got.len() >= enough);
    }

    #[track_caller]
    fn got_all_once_and_in_order(&self) {
        assert!(self.got.iter().copied().eq(0..self.n_sent), "{} of {}", self.got.len(), self.n_sent);
    }
}

fn numbered(number: u32) -> Packet {
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&THERE);
    frame[6..12].copy_from_slice(&HERE);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[20..24].copy_from_slice(&number.to_be_bytes());
    Packet::from_frame(&frame)
}

fn ip(arguments: &str) -> String {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new("ip").args(arguments.split_whitespace()).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A manager whose service forwards.
fn forwarding() -> (Manager, Daemon, Hosts) {
    let (mut manager, mut hosts) = (Manager::new(), Hosts::new());
    let mut daemon = manager.start();
    daemon.serves();
    while !manager.listen() {
        std::thread::yield_now();
    }
    assert_eq!(manager.names(), ["near-0-of-1", "far-0-of-1"]);
    hosts.more(1000);
    (manager, daemon, hosts)
}

fn frames_that_come_during_a_restart_arrive_once_and_in_order() {
    in_namespace(|| {
        let (mut manager, mut daemon, mut hosts) = forwarding();
        for _ in 0..3 {
            daemon.signal("-TERM");
            hosts.go_on(u32::MAX / 2, |_| daemon.has_ended());
            hosts.fill();
            daemon = manager.start();
            hosts.more(2000);
            daemon.serves();
        }
        hosts.settle();
        hosts.got_all_once_and_in_order();
        manager.listen();
        assert_eq!(manager.names(), ["near-0-of-1", "far-0-of-1"], "the same sockets all the time");
    });
}

fn frames_that_come_after_a_kill_arrive_once_and_in_order() {
    in_namespace(|| {
        let (mut manager, mut daemon, mut hosts) = forwarding();
        hosts.settle();
        daemon.signal("-KILL");
        while !daemon.has_ended() {
            std::thread::yield_now();
        }
        hosts.fill();
        daemon = manager.start();
        hosts.more(2000);
        daemon.serves();
        hosts.settle();
        hosts.got_all_once_and_in_order();
    });
}

fn a_kill_among_frames_loses_those_in_the_worker_s_hands_at_most() {
    in_namespace(|| {
        let (mut manager, mut daemon, mut hosts) = forwarding();
        for kill in 1..=3 {
            daemon.signal("-KILL");
            hosts.go_on(u32::MAX / 2, |_| daemon.has_ended());
            daemon = manager.start();
            // More than may be on their way: all sent before have arrived, or never will.
            hosts.more(2000);
            daemon.serves();
            assert!(hosts.got.is_sorted_by(|a, b| a < b), "none twice, and in order");
            let lost = *hosts.got.last().unwrap() as usize + 1 - hosts.got.len();
            // Those that were received and not sent: a burst that is looked up, one behind it, and one that is checked.
            assert!(lost <= kill * 3 * BURST, "{lost} frames are lost by {kill} kills");
        }
    });
}

fn sockets_of_a_port_that_is_none_any_more_are_closed() {
    in_namespace(|| {
        let (mut manager, mut daemon, _hosts) = forwarding();
        daemon.signal("-TERM");
        while !daemon.has_ended() {
            std::thread::yield_now();
        }
        manager.configure(&["near"]);
        daemon = manager.start();
        daemon.serves();
        while !manager.listen() {
            std::thread::yield_now();
        }
        assert_eq!(manager.names(), ["near-0-of-1"]);
    });
}
