//! Three controllers as processes on three members of etcd: the one that leads is killed while names change, and the others
//! serve what is committed. Without etcd (Debian: etcd-server) the test counts as ignored.

#[path = "../../controller/tests/etcd/member.rs"]
mod member;
mod support;

use api::v1;
use fib::replica::{Limits, MemoryTables, Replica};
use libtest_mimic::{Arguments, Trial};
use member::Cluster;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;
use support::{Client, FIBULA, PATIENCE, add_full_mesh, eventually, exit_code, mac, record, stderr};
use switch::daemon::agent;

const N_CONTROLLERS: usize = 3;
const N_KILLS: usize = 4;

struct Site {
    directory: tempfile::TempDir,
    /// Of gRPC and of the status page.
    ports: Vec<(u16, u16)>,
    running: Vec<Option<Child>>,
}

impl Site {
    fn new(store: &str) -> Site {
        let directory = tempfile::tempdir().unwrap();
        let sockets: Vec<_> = (0..2 * N_CONTROLLERS).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let port = |socket: &TcpListener| socket.local_addr().unwrap().port();
        let ports: Vec<_> = sockets.chunks(2).map(|pair| (port(&pair[0]), port(&pair[1]))).collect();
        for (i, (listen, status)) in ports.iter().enumerate() {
            let audit = directory.path().join(format!("audit{i}.jsonl"));
            let text = format!(
                "listen = \"127.0.0.1:{listen}\"\nstatus = \"127.0.0.1:{status}\"\nstore = \"{store}\"\nname_kind = \"mac\"\n\
                 max_names = 100000\n[audit]\nfile = \"{}\"\n",
                audit.display()
            );
            std::fs::write(directory.path().join(format!("{i}.toml")), text).unwrap();
        }
        Site { directory, ports, running: (0..N_CONTROLLERS).map(|_| None).collect() }
    }

    fn start(&mut self, i: usize) {
        let config = self.directory.path().join(format!("{i}.toml"));
        let mut command = Command::new(FIBULA);
        command.args(["controller", "--config"]).arg(config).stdout(Stdio::null()).stderr(Stdio::null());
        self.running[i] = Some(command.spawn().unwrap());
    }

    fn kill(&mut self, i: usize) {
        let mut child = self.running[i].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn urls(&self) -> String {
        let urls: Vec<String> = self.ports.iter().map(|(port, _)| format!("http://127.0.0.1:{port}")).collect();
        urls.join(",")
    }

    /// A client of the one that leads, and which it is.
    async fn leader(&self) -> Option<(usize, Client)> {
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

    async fn wait_for_leader(&self) -> (usize, Client) {
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

    async fn client(&self, i: usize) -> Client {
        let url = format!("http://127.0.0.1:{}", self.ports[i].0);
        api::client::northbound(api::client::connect(&url, PATIENCE).await.unwrap())
    }

    /// The switches that a controller serves.
    fn connected(&self, i: usize) -> Vec<String> {
        let status = self.status(i).unwrap_or_default();
        let switches = status["connected"].as_array().cloned().unwrap_or_default();
        switches.iter().map(|switch| switch["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// What `/status` says of a controller.
    fn status(&self, i: usize) -> std::io::Result<serde_json::Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports[i].1))?;
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

async fn names(client: &mut Client) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut batches = client.export_names(v1::ExportNamesRequest {}).await.unwrap().into_inner();
    while let Some(batch) = batches.message().await.unwrap() {
        names.extend(batch.names.into_iter().map(|name| name.name));
    }
    names
}

async fn leaders_are_killed() {
    let cluster = Cluster::start(3, &[]);
    let store = cluster.address("site");
    let mut site = Site::new(&store);
    (0..N_CONTROLLERS).for_each(|i| site.start(i));
    let (_, mut client) = site.wait_for_leader().await;
    add_full_mesh(&mut client, 3).await;
    let switch = |name: &str| {
        let replica = agent::Shared::new(Replica::new(Limits::default(), MemoryTables::default()));
        let memory: agent::Memory = Arc::new(|| api::memory::usage(10, &[("fib", 25)]));
        tokio::spawn(agent::run(name.to_owned(), site.urls(), None, Arc::clone(&replica), memory));
        (name.to_owned(), replica)
    };
    let switches = ["s1", "s2", "s3"].map(switch);

    let (mut acknowledged, mut next) = (BTreeSet::new(), 0);
    for round in 0..N_KILLS {
        let (leader, mut client) = site.wait_for_leader().await;
        let address = format!("127.0.0.1:{}", site.ports[leader].0);
        for other in (0..N_CONTROLLERS).filter(|i| *i != leader) {
            eventually("the others say who leads", async || {
                site.status(other).is_ok_and(|status| status["follows"]["address"] == address)
            })
            .await;
        }
        let writer = tokio::spawn(async move {
            let mut written = BTreeSet::new();
            // A batch that is more than one transaction of etcd, now and then.
            for size in [1, 1, 1, 300].into_iter().cycle() {
                let names = (next..next + size).map(|i| record(i, "h2")).collect();
                if client.put_names(v1::PutNamesRequest { names, only_new: true }).await.is_err() {
                    return (written, next + size);
                }
                written.extend((next..next + size).map(mac));
                next += size;
            }
            unreachable!("it is killed")
        });
        let before = site.status(leader).unwrap()["transactions"].as_u64().unwrap();
        eventually("names are written", async || {
            site.status(leader).is_ok_and(|status| status["transactions"].as_u64() > Some(before + 30))
        })
        .await;
        let others = (0..N_CONTROLLERS).filter(|i| *i != leader).flat_map(|i| site.connected(i));
        let stay: Vec<String> = others.collect();
        let connects = |name: &String| {
            let (_, replica) = switches.iter().find(|(switch, _)| switch == name).unwrap();
            replica.status().connects
        };
        let before: Vec<u64> = stay.iter().map(connects).collect();
        site.kill(leader);
        let (written, after) = writer.await.unwrap();
        acknowledged.extend(written);
        next = after;
        let (_, mut client) = site.wait_for_leader().await;
        let found = names(&mut client).await;
        let missing = acknowledged.difference(&found).count();
        assert_eq!(missing, 0, "round {round}: names that were acknowledged are missing, of {}", acknowledged.len());
        eventually("all switches have every name", async || {
            switches.iter().all(|(_, switch)| switch.replica().tables().valid.len() == found.len())
        })
        .await;
        let after: Vec<u64> = stay.iter().map(connects).collect();
        assert_eq!(before, after, "round {round}: a switch of a controller that was not killed had to connect again");
        site.start(leader);
    }
    followers_serve(&site, next).await;

    (0..N_CONTROLLERS).for_each(|i| site.kill(i));
    copied_there_and_back(site.directory.path(), &store, &cluster.address("other"));
}

/// What is acknowledged can be read everywhere at once, changes are refused where they cannot be made, and a switch that goes
/// on to another controller is sent nothing.
async fn followers_serve(site: &Site, mut next: u32) {
    let (leader, mut client) = site.wait_for_leader().await;
    let followers: Vec<usize> = (0..N_CONTROLLERS).filter(|i| *i != leader).collect();
    for i in &followers {
        eventually("it follows", async || site.status(*i).is_ok_and(|status| status["position"].is_u64())).await;
    }
    for _ in 0..30 {
        let put = v1::PutNamesRequest { names: vec![record(next, "h1")], only_new: true };
        client.put_names(put.clone()).await.unwrap();
        for i in &followers {
            let mut follower = site.client(*i).await;
            let read = follower.get_name(v1::GetNameRequest { name: mac(next) }).await;
            assert_eq!(read.unwrap().into_inner().host, "h1", "what was acknowledged is not known");
            let refused = follower.put_names(put.clone()).await.unwrap_err();
            assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
            let address = format!("127.0.0.1:{}", site.ports[leader].0);
            assert!(refused.message().contains(&address), "{refused}");
        }
        next += 1;
    }
    let replica = agent::Shared::new(Replica::new(Limits::default(), MemoryTables::default()));
    client.add_switch(v1::AddSwitchRequest { name: "s4".to_owned(), tenants: vec![] }).await.unwrap();
    for (nth, i) in [leader, followers[0], followers[1], leader].into_iter().enumerate() {
        let memory: agent::Memory = Arc::new(|| api::memory::usage(10, &[("fib", 25)]));
        let url = format!("http://127.0.0.1:{}", site.ports[i].0);
        let agent = tokio::spawn(agent::run("s4".to_owned(), url, None, Arc::clone(&replica), memory));
        let at = site.client(i).await;
        let found = std::cell::RefCell::new(None);
        eventually("the switch is in step", || {
            let (mut at, found) = (at.clone(), &found);
            async move {
                let switches = at.list_switches(v1::ListSwitchesRequest {}).await.unwrap().into_inner().switches;
                let switch = switches.into_iter().find(|switch| switch.name == "s4").unwrap();
                let in_step = switch.in_step;
                *found.borrow_mut() = Some(switch);
                in_step
            }
        })
        .await;
        let sent = found.take().unwrap().sent_messages;
        assert_eq!(sent > 0, nth == 0, "controller {i}: {sent} messages");
        agent.abort();
        let _ = agent.await;
    }
    for i in followers {
        assert_eq!(site.status(i).unwrap()["strayed"], 0, "controller {i}");
    }
}

fn copied_there_and_back(directory: &Path, store: &str, other: &str) {
    let run = |from: &str, to: &str| Command::new(FIBULA).args(["store", "copy", from, to]).output().unwrap();
    let file = |name: &str| format!("sqlite:{}", directory.join(name).display());
    for (from, to) in [(store, &*file("a")), (&*file("a"), other), (other, &*file("b"))] {
        let copied = run(from, to);
        assert_eq!(exit_code(&copied), 0, "{from} to {to}: {}", stderr(&copied));
    }
    let rows = |name: &str| {
        let store = controller::store::SqliteStore::open_existing(&directory.join(name)).unwrap();
        controller::store::Store::sealed(&store).unwrap().1
    };
    assert_eq!(rows("a"), rows("b"));
    assert!(rows("a").n_rows > 100);
    for (from, to) in [(&*file("a"), other), (other, &*file("b"))] {
        let refused = run(from, to);
        assert!(exit_code(&refused) != 0 && stderr(&refused).contains("exists"), "{}", stderr(&refused));
    }
}

fn main() -> ExitCode {
    let without = !member::is_installed();
    if without {
        eprintln!("1 test is ignored: it needs etcd (Debian: etcd-server)");
    }
    let test = || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(leaders_are_killed());
        runtime.shutdown_timeout(Duration::from_secs(1));
        Ok(())
    };
    let name = "killed_leaders_lose_nothing_acknowledged_and_switches_move_on";
    let trial = Trial::test(name, test).with_ignored_flag(without);
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}
