//! A controller as a process, switches without ports as tasks of the test, and a client between them.

#![allow(dead_code, reason = "every test file uses a part of it")]

pub(crate) mod peer;

use api::v1::northbound_client::NorthboundClient;
use api::v1::{self};
use fib::replica::{Limits, MemoryTables, Replica};
use socket2::{Domain, Socket, Type};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use switch::daemon::agent;
use tempfile::TempDir;
use tonic::transport::Channel;

/// The binary under test: `fibula`, or `fibula-lab` in the laboratory's tests.
pub(crate) const FIBULA: &str = match (option_env!("CARGO_BIN_EXE_fibula"), option_env!("CARGO_BIN_EXE_fibula-lab")) {
    (Some(product), _) => product,
    (None, Some(laboratory)) => laboratory,
    (None, None) => panic!("there is no binary to test"),
};

/// Timeout of everything that should happen soon: long enough that only what never happens takes this long, on any
/// machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) type Client = NorthboundClient<Channel>;

/// A directory with a store and a configuration, and a port that stays the same across restarts.
pub(crate) struct Site {
    directory: TempDir,
    pub(crate) url: String,
    /// Bound and never listening: the controller may bind the same port, but the kernel neither assigns it to a process
    /// that asks for any free port nor uses it as the local end of a connection.
    _reserved: Socket,
}

impl Site {
    /// `extra`: further lines of controller.toml.
    pub(crate) fn new(extra: &str) -> Site {
        Site::of_kind("mac", extra)
    }

    /// As [`Site::new`], with names of a kind.
    pub(crate) fn of_kind(kind: &str, extra: &str) -> Site {
        let directory = tempfile::tempdir().unwrap();
        let reserved = reserved_port();
        let address = reserved.local_addr().unwrap().as_socket().unwrap();
        let site = Site { directory, url: format!("http://{address}"), _reserved: reserved };
        let store = site.path("rib.sqlite");
        let text = format!(
            "listen = \"{address}\"\nstore = \"{}\"\nname_kind = \"{kind}\"\nmax_names = 1000000\n{extra}",
            store.display()
        );
        std::fs::write(site.path("controller.toml"), text).unwrap();
        site
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    /// Starts the controller and returns once it listens.
    pub(crate) fn start(&self) -> Process {
        Process::spawn(&["controller", "--config", self.path("controller.toml").to_str().unwrap()])
    }

    /// As [`Site::start`], and the controller may open this many files, or this many if it asks for more.
    pub(crate) fn start_with_files(&self, n_files: u64, most_files: u64) -> Process {
        let limited = format!("ulimit -Sn {n_files} && ulimit -Hn {most_files} && exec \"$@\"");
        let configuration = self.path("controller.toml");
        let mut shell = Command::new("sh");
        shell.args(["-c", &limited, "sh", FIBULA, "controller", "--config"]).arg(configuration);
        Process::serving(&mut shell)
    }

    pub(crate) async fn client(&self) -> Client {
        api::client::northbound(api::client::connect(&self.url, PATIENCE).await.unwrap())
    }

    /// Runs `fibula` with these arguments against this controller, to completion.
    pub(crate) fn fibula(&self, arguments: &[&str]) -> Output {
        Command::new(FIBULA).args(arguments).env("FIBULA_CONTROLLER", &self.url).output().unwrap()
    }

    /// Starts a switch without ports.
    pub(crate) fn switch(&self, name: &str) -> Arc<agent::Shared<MemoryTables>> {
        self.switch_with(name, Limits::default())
    }

    /// Starts a switch without ports that may hold so much.
    pub(crate) fn switch_with(&self, name: &str, limits: Limits) -> Arc<agent::Shared<MemoryTables>> {
        let shared = agent::Shared::new(Replica::new(limits, MemoryTables::default()));
        let memory: Arc<dyn agent::About> = Arc::new(|| api::memory::usage(10, &[("fib", 25)]));
        tokio::spawn(agent::run(name.to_owned(), self.url.clone(), None, Arc::clone(&shared), memory));
        shared
    }
}

/// A port that processes may listen at and no one else gets.
pub(crate) fn reserved_port() -> Socket {
    let reserved = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    reserved.set_reuse_address(true).unwrap();
    reserved.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    reserved
}

/// A daemon; killed when dropped.
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts `fibula` and returns when it has printed its first line, which says that it serves.
    pub(crate) fn spawn(arguments: &[&str]) -> Process {
        Process::serving(Command::new(FIBULA).args(arguments))
    }

    /// As [`Process::spawn`]; its log goes to a file.
    pub(crate) fn logging(arguments: &[&str], log: &Path) -> Process {
        let log = std::fs::File::create(log).unwrap();
        Process::started(Command::new(FIBULA).args(arguments).stderr(log))
    }

    /// As [`Process::logging`], by the filter of the configuration.
    pub(crate) fn logging_by_its_configuration(command: &mut Command, log: &Path) -> Process {
        let log = std::fs::File::create(log).unwrap();
        Process::spawned(command.env_remove("FIBULA_LOG").stderr(log))
    }

    fn serving(command: &mut Command) -> Process {
        Process::started(command.stderr(Stdio::inherit()))
    }

    fn started(command: &mut Command) -> Process {
        Process::spawned(command.env("FIBULA_LOG", "warn"))
    }

    fn spawned(command: &mut Command) -> Process {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the daemon ended before it served: {:?}", child.wait());
        Process { child }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// kill -9.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGHUP.
    pub(crate) fn hang_up(&self) {
        let status = Command::new("kill").args(["-HUP", &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// SIGTERM; returns the exit code.
    pub(crate) fn terminate(mut self) -> Option<i32> {
        let status = Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        assert!(status.success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks until the answer is true.
/// # Panics
/// If it is still false after [`PATIENCE`].
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut ask: impl FnMut() -> F) {
    let start = Instant::now();
    while !ask().await {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        #[expect(clippy::disallowed_methods, reason = "a running daemon can only be polled")]
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The number of connected switches that are up to date.
pub(crate) async fn in_step(client: &Client) -> usize {
    let switches = client.clone().list_switches(v1::ListSwitchesRequest {}).await.unwrap().into_inner().switches;
    switches.iter().filter(|s| s.connected && s.in_step).count()
}

/// Switches s1 to sn, fully meshed: si has the link to sj on port j. Host hi is at port 100 of si.
pub(crate) async fn add_full_mesh(client: &mut Client, n_switches: u32) {
    for i in 1..=n_switches {
        client.add_switch(v1::AddSwitchRequest { name: format!("s{i}"), tenants: vec![] }).await.unwrap();
    }
    for i in 1..=n_switches {
        let host = v1::Host { name: format!("h{i}"), switch: format!("s{i}"), port: HOST_PORT, ..v1::Host::default() };
        client.add_host(host).await.unwrap();
        for j in i + 1..=n_switches {
            let end = |switch, port| Some(v1::LinkEnd { switch: format!("s{switch}"), port });
            client
                .add_link(v1::Link { a: end(i, j), b: end(j, i), cost: 1, up: true, ..v1::Link::default() })
                .await
                .unwrap();
        }
    }
}

/// The port of each switch of a full mesh at which its host is.
pub(crate) const HOST_PORT: u32 = 100;

pub(crate) fn mac(index: u32) -> String {
    let [a, b, c, d] = index.to_be_bytes();
    format!("02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

pub(crate) fn record(index: u32, host: &str) -> v1::NameRecord {
    v1::NameRecord { name: mac(index), host: host.to_owned(), tenant: 0, ..v1::NameRecord::default() }
}

pub(crate) fn exit_code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn write(path: &Path, lines: impl Iterator<Item = String>) {
    let mut text = lines.collect::<Vec<_>>().join("\n");
    text.push('\n');
    std::fs::write(path, text).unwrap();
}
