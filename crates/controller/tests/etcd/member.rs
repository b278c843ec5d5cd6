//! A cluster of etcd in a temporary directory, for tests.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What tests with members need.
pub(crate) const ETCD: &str = "etcd (package etcd-server; scripts/setup test)";

/// The program that members run, if there is one.
pub(crate) fn etcd() -> Option<PathBuf> {
    netio::testkit::tool("etcd")
}

/// Where a member runs.
#[derive(Clone)]
pub(crate) struct Place {
    /// Its address.
    pub(crate) host: String,
    /// The command that starts another one there, if it is not here.
    pub(crate) enter: Vec<String>,
}

/// Members, each a process that ends with this.
pub(crate) struct Cluster {
    pub(crate) directory: tempfile::TempDir,
    places: Vec<Place>,
    /// For clients, and for the other members.
    pub(crate) ports: Vec<(u16, u16)>,
    members: Vec<Option<Child>>,
    flags: Vec<String>,
}

impl Cluster {
    /// Starts so many members, and waits until they listen. `CLIENT` in a flag stands for a member's port for clients.
    pub(crate) fn start(n_members: usize, flags: &[&str]) -> Cluster {
        let here = Place { host: "127.0.0.1".to_owned(), enter: vec![] };
        Self::start_at(vec![here; n_members], flags)
    }

    /// As [`Cluster::start`], a member at each place.
    pub(crate) fn start_at(places: Vec<Place>, flags: &[&str]) -> Cluster {
        let n_members = places.len();
        // All at once, so that they differ.
        let sockets: Vec<_> = (0..2 * n_members).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let port = |socket: &TcpListener| socket.local_addr().unwrap().port();
        let ports = sockets.chunks(2).map(|pair| (port(&pair[0]), port(&pair[1]))).collect();
        drop(sockets);
        let mut cluster = Cluster {
            directory: tempfile::tempdir().unwrap(),
            places,
            ports,
            members: (0..n_members).map(|_| None).collect(),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        };
        (0..n_members).for_each(|i| cluster.run(i));
        (0..n_members).for_each(|i| cluster.wait(i));
        cluster
    }

    /// Starts a member that does not run.
    pub(crate) fn run(&mut self, i: usize) {
        let url = |i: usize, port: u16| format!("http://{}:{port}", self.places[i].host);
        let names: Vec<String> =
            self.ports.iter().enumerate().map(|(i, (_, peer))| format!("m{i}={}", url(i, *peer))).collect();
        let ((client, peer), url) = (self.ports[i], |port| url(i, port));
        let words = [&self.places[i].enter[..], &[etcd().expect(ETCD).display().to_string()]].concat();
        let child = Command::new(&words[0])
            .args(&words[1..])
            .args(["--name", &format!("m{i}"), "--initial-cluster", &names.join(",")])
            .args(["--listen-client-urls", &url(client), "--advertise-client-urls", &url(client)])
            .args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)])
            .arg("--data-dir")
            .arg(self.directory.path().join(format!("m{i}")))
            .args(self.flags.iter().map(|flag| flag.replace("CLIENT", &client.to_string())))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(self.directory.path().join(format!("m{i}.log"))).unwrap())
            .spawn()
            .unwrap();
        self.members[i] = Some(child);
    }

    /// Whether it can write, with the others.
    fn is_healthy(&self, i: usize) -> bool {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect((&*self.places[i].host, self.ports[i].0))?;
            stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        ask().is_ok_and(|answer| answer.contains("\"health\":\"true\""))
    }

    /// Waits until a member can write, with the others.
    pub(crate) fn wait(&self, i: usize) {
        let began = Instant::now();
        while !self.is_healthy(i) {
            assert!(began.elapsed() < Duration::from_secs(60), "etcd does not start");
            #[expect(clippy::disallowed_methods, reason = "another process can only be polled")]
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// kill -9 of a member.
    pub(crate) fn kill(&mut self, i: usize) {
        if let Some(mut child) = self.members[i].take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Where clients reach the members.
    pub(crate) fn members(&self) -> Vec<String> {
        self.places.iter().zip(&self.ports).map(|(place, (client, _))| format!("{}:{client}", place.host)).collect()
    }

    /// The address of a store there.
    pub(crate) fn address(&self, prefix: &str) -> String {
        format!("etcd://{}/{prefix}", self.members().join(","))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|i| self.kill(i));
    }
}
