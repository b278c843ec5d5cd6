//! Members of etcd that can be cut off from each other and from all others: each is in a network namespace of its own, and
//! has a cable to a bridge.

use crate::member::Place;
use crate::support::PATIENCE;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// The cables, as many as there are members.
pub(crate) struct Cables {
    /// What keeps the namespaces.
    keepers: Vec<Child>,
}

impl Cables {
    /// Lays so many, in the network namespace of this thread, which has nothing yet.
    pub(crate) fn lay(n: usize) -> Self {
        ip("link set lo up");
        ip("link add bridge type bridge stp_state 0 forward_delay 0");
        ip("addr add 10.99.0.254/24 dev bridge");
        ip("link set bridge up");
        let mut cables = Self { keepers: vec![] };
        for i in 0..n {
            let keeper = Command::new("unshare").args(["--net", "sleep", "infinity"]).stdin(Stdio::null()).spawn();
            let id = keeper.as_ref().unwrap().id();
            cables.keepers.push(keeper.unwrap());
            let namespace = |id: &str| std::fs::read_link(format!("/proc/{id}/ns/net")).unwrap();
            let began = Instant::now();
            // Of this thread, not of its process.
            while namespace(&id.to_string()) == namespace("thread-self") {
                assert!(began.elapsed() < PATIENCE, "no namespace for a member of etcd");
                std::thread::yield_now();
            }
            ip(&format!("link add m{i} type veth peer name eth0 netns {id}"));
            ip(&format!("link set m{i} master bridge up"));
            for line in [&*format!("addr add {}/24 dev eth0", host(i)), "link set eth0 up", "link set lo up"] {
                run("nsenter", &[&format!("--net=/proc/{id}/ns/net"), "ip"], line);
            }
        }
        cables
    }

    /// Where the members run.
    pub(crate) fn places(&self) -> Vec<Place> {
        let enter = |keeper: &Child| vec!["nsenter".to_owned(), format!("--net=/proc/{}/ns/net", keeper.id())];
        self.keepers.iter().enumerate().map(|(i, keeper)| Place { host: host(i), enter: enter(keeper) }).collect()
    }
}

impl Drop for Cables {
    fn drop(&mut self) {
        for keeper in &mut self.keepers {
            let _ = keeper.kill().and_then(|()| keeper.wait());
        }
    }
}

/// Cuts the cable of a member, or mends it, from a thread of the same namespace.
pub(crate) fn set(i: usize, is_whole: bool) {
    ip(&format!("link set m{i} {}", if is_whole { "up" } else { "down" }));
}

fn host(i: usize) -> String {
    format!("10.99.0.{}", i + 1)
}

fn ip(line: &str) {
    run("ip", &[], line);
}

fn run(program: &str, before: &[&str], line: &str) {
    let words: Vec<&str> = before.iter().copied().chain(line.split_whitespace()).collect();
    let output = Command::new(program).args(&words).output().unwrap();
    assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}
