//! Three controllers as processes.

use crate::support::{Client, FIBULA, PATIENCE, eventually, reserved_port};
use api::v1;
use socket2::Socket;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub(crate) const N_CONTROLLERS: usize = 3;

pub(crate) struct Site {
    pub(crate) directory: tempfile::TempDir,
    /// Of gRPC and of the status page.
    pub(crate) ports: Vec<(u16, u16)>,
    pub(crate) running: Vec<Option<Child>>,
    /// While a controller is down, no other process gets its ports: an operator would change another network.
    _reserved: Vec<Socket>,
}

impl Site {
    /// `store`: where each of them finds it.
    pub(crate) fn new(store: impl Fn(usize) -> String) -> Site {
        let directory = tempfile::tempdir().unwrap();
        let reserved: Vec<Socket> = (0..2 * N_CONTROLLERS).map(|_| reserved_port()).collect();
        let sockets = &reserved;
        let port = |socket: &Socket| socket.local_addr().unwrap().as_socket().unwrap().port();
        let ports: Vec<_> = sockets.chunks(2).map(|pair| (port(&pair[0]), port(&pair[1]))).collect();
        for (i, (listen, status)) in ports.iter().enumerate() {
            let audit = directory.path().join(format!("audit{i}.jsonl"));
            let text = format!(
                "listen = \"127.0.0.1:{listen}\"\nstatus = \"127.0.0.1:{status}\"\nstore = \"{}\"\nname_kind = \"mac\"\n\
                 max_names = 100000\n[audit]\nfile = \"{}\"\n",
                store(i),
                audit.display()
            );
            std::fs::write(directory.path().join(format!("{i}.toml")), text).unwrap();
            std::fs::write(directory.path().join(format!("clock{i}")), "+0\n").unwrap();
        }
        Site { directory, ports, running: (0..N_CONTROLLERS).map(|_| None).collect(), _reserved: reserved }
    }

    pub(crate) fn start(&mut self, i: usize) {
        let config = self.directory.path().join(format!("{i}.toml"));
        let mut command = Command::new(FIBULA);
        let log = File::options().create(true).append(true).open(self.log_of(i)).unwrap();
        command.args(["controller", "--config"]).arg(config).stdout(Stdio::null()).stderr(log);
        if let Some(library) = clock_library() {
            // Dates alone: what waits does so by the monotonic clock, which no administrator sets.
            command
                .env("LD_PRELOAD", library)
                .env("FAKETIME_TIMESTAMP_FILE", self.directory.path().join(format!("clock{i}")));
            command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        self.running[i] = Some(command.spawn().unwrap());
    }

    fn log_of(&self, i: usize) -> PathBuf {
        self.directory.path().join(format!("log{i}"))
    }

    /// What a controller has logged since it was started for the first time.
    pub(crate) fn log(&self, i: usize) -> String {
        std::fs::read_to_string(self.log_of(i)).unwrap_or_default()
    }

    /// Sets the date of a controller so many seconds before or after the true one, if there is what does so.
    pub(crate) fn set_clock(&self, i: usize, seconds: i64) {
        // Renamed into place: it is read while it is set.
        let [new, file] = ["new", "clock"].map(|name| self.directory.path().join(format!("{name}{i}")));
        std::fs::write(&new, format!("{seconds:+}\n")).unwrap();
        std::fs::rename(new, file).unwrap();
    }

    pub(crate) fn kill(&mut self, i: usize) {
        let mut child = self.running[i].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(crate) fn urls(&self) -> String {
        let urls: Vec<String> = self.ports.iter().map(|(port, _)| format!("http://127.0.0.1:{port}")).collect();
        urls.join(",")
    }

    /// A client of the one that leads, and which it is.
    pub(crate) async fn leader(&self) -> Option<(usize, Client)> {
        for (i, (port, _)) in self.ports.iter().enumerate() {
            if let Ok(channel) = api::client::connect(&format!("http://127.0.0.1:{port}"), PATIENCE).await {
                let mut client = api::client::northbound(channel);
                let status = client.get_status(v1::GetStatusRequest {}).await;
                if status.is_ok_and(|status| status.into_inner().leader.is_empty()) {
                    return Some((i, client));
                }
            }
        }
        None
    }

    pub(crate) async fn wait_for_leader(&self) -> (usize, Client) {
        let found = std::cell::RefCell::new(None);
        eventually("a controller leads", async || {
            let leader = self.leader().await;
            let is_found = leader.is_some();
            *found.borrow_mut() = leader;
            is_found
        })
        .await;
        found.take().unwrap()
    }

    pub(crate) async fn client(&self, i: usize) -> Client {
        let url = format!("http://127.0.0.1:{}", self.ports[i].0);
        api::client::northbound(api::client::connect(&url, PATIENCE).await.unwrap())
    }

    pub(crate) fn signal(&self, i: usize, name: &str) {
        signal(self.running[i].as_ref().unwrap().id(), name);
    }

    /// The switches that a controller serves.
    pub(crate) fn connected(&self, i: usize) -> Vec<String> {
        let status = self.status(i).unwrap_or_default();
        let switches = status["connected"].as_array().cloned().unwrap_or_default();
        switches.iter().map(|switch| switch["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// What `/status` says of a controller.
    pub(crate) fn status(&self, i: usize) -> std::io::Result<serde_json::Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports[i].1))?;
        // One that is stopped does not answer.
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /status HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
        Ok(serde_json::from_str(body).unwrap_or_default())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        (0..N_CONTROLLERS)
            .filter(|i| self.running[*i].is_some())
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|i| self.kill(i));
    }
}

/// libfaketime, by which a process has a date of its own: among the tools of tests, or installed.
pub(crate) fn clock_library() -> Option<PathBuf> {
    let roots = netio::testkit::tools().into_iter().chain([PathBuf::from("/")]);
    let mut folders = roots.flat_map(|root| std::fs::read_dir(root.join("usr/lib"))).flatten().flatten();
    folders.find_map(|folder| {
        let library = folder.path().join("faketime/libfaketimeMT.so.1");
        library.exists().then_some(library)
    })
}

/// Sends a process a signal, unless it has just ended.
pub(crate) fn signal(id: u32, name: &str) {
    let _ = Command::new("kill").args([&format!("-{name}"), &id.to_string()]).stderr(Stdio::null()).status().unwrap();
}
