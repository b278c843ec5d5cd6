//! Whichever of several controllers is asked: it answers for all switches, also for those that another one serves.

use crate::member::Cluster;
use crate::site::{N_CONTROLLERS, Site};
use crate::support::{
    Client, FIBULA, PATIENCE, Process, add_full_mesh, eventually, exit_code, mac, record, stderr, stdout,
};
use api::v1;
use fib::replica::{Limits, MemoryTables, Replica};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use switch::daemon::agent;

/// So many that with any ports of the controllers they spread over at least two of them: all prefer one in five of a million runs.
const N_SWITCHES: u32 = 12;

/// A switch that counts frames: as many more each time that it is asked.
struct Busy(AtomicU64);

impl agent::About for Busy {
    fn memory(&self) -> v1::MemoryUse {
        api::memory::usage(10, &[("fib", 25)])
    }

    fn counters(&self) -> Option<v1::Counters> {
        let received = self.0.fetch_add(1000, Relaxed);
        let port = v1::PortCounters { port: 1, bytes_out: received, ..v1::PortCounters::default() };
        Some(v1::Counters { received, ports: vec![port], ..v1::Counters::default() })
    }
}

async fn switches(client: &Client) -> Vec<v1::Switch> {
    client.clone().list_switches(v1::ListSwitchesRequest {}).await.unwrap().into_inner().switches
}

/// What a controller says of each switch, but for who serves it.
fn view(switches: &[v1::Switch]) -> BTreeMap<String, (bool, bool, bool, u64)> {
    let row = |switch: &v1::Switch| {
        let counts = switch.rates.is_some() && switch.memory.is_some();
        (switch.name.clone(), (switch.connected, switch.in_step, counts, switch.hosts))
    };
    switches.iter().map(row).collect()
}

fn verify(site: &Site, i: usize) -> Output {
    let url = format!("http://127.0.0.1:{}", site.ports[i].0);
    Command::new(FIBULA).args(["-j", "switch", "verify", "--controller", &url]).output().unwrap()
}

/// What the page of a controller draws: the names of the switches that are connected.
fn on_the_page(site: &Site, i: usize) -> BTreeSet<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", site.ports[i].1)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let host = format!("127.0.0.1:{}", site.ports[i].1);
    write!(stream, "GET /ui/network HTTP/1.0\r\nHost: {host}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let network: serde_json::Value = serde_json::from_str(body).unwrap();
    let switches = network["switches"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let connected = switches.iter().filter(|switch| switch["connected"] == true);
    connected.map(|switch| switch["name"].as_str().unwrap().to_owned()).collect()
}

pub(crate) async fn are_whole() {
    let cluster = Cluster::start(1, &[]);
    let store = cluster.address("views");
    let mut site = Site::new(|_| store.clone());
    (0..N_CONTROLLERS).for_each(|i| site.start(i));
    let (_, mut leader) = site.wait_for_leader().await;
    add_full_mesh(&mut leader, N_SWITCHES).await;
    let names = (0..20).map(|i| record(i, "h2")).collect();
    leader.put_names(v1::PutNamesRequest { names, only_new: true }).await.unwrap();
    // First of all, for switches go where one answers.
    let mut clients = Vec::new();
    for i in 0..N_CONTROLLERS {
        // One that follows answers when it has read all rows.
        let url = format!("http://127.0.0.1:{}", site.ports[i].0);
        eventually("it answers", async || api::client::connect(&url, PATIENCE).await.is_ok()).await;
        clients.push(site.client(i).await);
    }
    let start = |i: u32| {
        let replica = agent::Shared::new(Replica::new(Limits::default(), MemoryTables::default()));
        let about: Arc<dyn agent::About> = Arc::new(Busy(AtomicU64::new(0)));
        tokio::spawn(agent::run(format!("s{i}"), site.urls(), None, replica, about))
    };
    let agents: Vec<_> = (1..=N_SWITCHES).map(start).collect();
    for (i, client) in clients.iter().enumerate() {
        eventually("all switches are there, in step, and have said what they counted", async || {
            let view = view(&switches(client).await);
            view.len() == N_SWITCHES as usize && view.values().all(|view| *view == (true, true, true, 1))
        })
        .await;
        eventually("the page has them all", async || on_the_page(&site, i).len() == N_SWITCHES as usize).await;
    }
    let urls: BTreeSet<String> = site.urls().split(',').map(str::to_owned).collect();
    let mut served = 0;
    for (i, client) in clients.iter().enumerate() {
        let here: BTreeSet<String> = site.connected(i).into_iter().collect();
        assert!(here.len() < N_SWITCHES as usize, "all switches chose one controller");
        served += here.len();
        for switch in switches(client).await {
            let other = urls.contains(&switch.served_by);
            assert_eq!(other, !here.contains(&switch.name), "{switch:?}");
            assert!(other || switch.served_by.is_empty(), "{switch:?}");
            assert!(switch.sent_messages > 0 && switch.sent_messages == switch.acknowledged_messages, "{switch:?}");
        }
        let trace =
            client.clone().trace(v1::TraceRequest { name: mac(3), from: String::new() }).await.unwrap().into_inner();
        assert_eq!(trace.paths.len(), N_SWITCHES as usize);
        for path in trace.paths {
            assert!(path.end == "delivered" && !path.sentence.contains("; but"), "{path:?}");
        }
        let details =
            client.clone().get_switch(v1::GetSwitchRequest { name: "s1".to_owned() }).await.unwrap().into_inner();
        assert!(details.counters.is_some_and(|counters| counters.received > 0));
        let links = client.clone().list_links(v1::ListLinksRequest {}).await.unwrap().into_inner().links;
        let carries = |link: &&v1::Link| link.a.as_ref().is_some_and(|end| (&*end.switch, end.port) == ("s2", 1));
        let of_port = links
            .iter()
            .find(|link| carries(link) || link.b.as_ref().is_some_and(|end| (&*end.switch, end.port) == ("s2", 1)));
        assert!(of_port.is_some_and(|link| link.load.is_some()), "the load of a link is known everywhere");
        let verified = verify(&site, i);
        assert_eq!(exit_code(&verified), 0, "{}{}", stdout(&verified), stderr(&verified));
        assert_eq!(stdout(&verified).matches("\"checked\":true").count(), N_SWITCHES as usize, "{}", stdout(&verified));
    }
    assert_eq!(served, N_SWITCHES as usize, "each has one controller");
    // A change, and all say soon that all have it.
    leader.put_names(v1::PutNamesRequest { names: vec![record(50, "h3")], only_new: true }).await.unwrap();
    for client in &clients {
        eventually("in step again", async || view(&switches(client).await).values().all(|view| view.1)).await;
    }
    // One that is gone is gone everywhere.
    agents[0].abort();
    for (i, client) in clients.iter().enumerate() {
        eventually("it is away", async || {
            switches(client).await.iter().all(|switch| switch.connected != (switch.name == "s1"))
        })
        .await;
        let verified = verify(&site, i);
        assert_eq!(exit_code(&verified), 6, "{}", stdout(&verified));
        assert!(
            stderr(&verified).contains("s1: not checked: it is not connected to any controller"),
            "{}",
            stderr(&verified)
        );
        assert_eq!(stdout(&verified).matches("\"checked\":true").count(), N_SWITCHES as usize - 1);
    }
    captures_go_by_the_one_that_serves(&site).await;
}

/// The controller that serves a switch asks it for frames; the others say which one that is.
async fn captures_go_by_the_one_that_serves(site: &Site) {
    let config = site.directory.path().join("s1.toml");
    let state = site.directory.path().join("s1");
    let text = format!(
        "name = 's1'\ncontroller = '{}'\nstate_dir = '{}'\nlookup = '127.0.0.1:0'\n[links]\nhello_ms = 0\n",
        site.urls(),
        state.display()
    );
    std::fs::write(&config, text).unwrap();
    let _switch = Process::spawn(&["switch", "--config", config.to_str().unwrap()]);
    let clients = [site.client(0).await, site.client(1).await, site.client(2).await];
    for client in &clients {
        eventually("it is back", async || switches(client).await.iter().all(|switch| switch.connected)).await;
    }
    let urls: Vec<String> = site.urls().split(',').map(str::to_owned).collect();
    let serves = (0..N_CONTROLLERS).find(|i| site.connected(*i).contains(&"s1".to_owned())).expect("one serves it");
    for (i, url) in urls.iter().enumerate() {
        let output = Command::new(FIBULA).args(["capture", "s1:all", "--controller", url]).output().unwrap();
        let (exit, said) = match i == serves {
            // It has no ports: the switch says so itself.
            true => (4, "switch `s1`: switch s1 has no ports".to_owned()),
            false => (5, format!("switch `s1` is served by {0}; ask that one, with --controller {0}", urls[serves])),
        };
        assert!(exit_code(&output) == exit && stderr(&output).contains(&said), "{i}: {}", stderr(&output));
    }
}
