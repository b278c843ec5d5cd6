//! Those who look at a running network: events, paths, searches, and the answers that the dashboard is made of.

mod support;

use api::otlp::v1::any_value::Value as Attribute;
use api::otlp::v1::trace_service_server::{TraceService, TraceServiceServer};
use api::otlp::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse, Span};
use api::v1::{self, Counters, DropCount, MemoryUse, PortCounters};
use fib::replica::{Limits, MemoryTables, Replica};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use support::{Client, Process, Site, add_full_mesh, eventually, exit_code, in_step, mac, record, stderr, stdout};
use switch::daemon::agent;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

/// A controller with pages, and a full mesh of switches that are connected.
struct Network {
    site: Site,
    pages: String,
    _controller: Process,
    client: Client,
    /// What s1 says it received.
    received: Arc<AtomicU64>,
}

/// A switch that says what a test wants it to have counted.
struct Counting(Arc<AtomicU64>);

impl agent::About for Counting {
    fn memory(&self) -> MemoryUse {
        api::memory::usage(10, &[("fib", 25)])
    }

    fn counters(&self) -> Option<Counters> {
        // It forwards more each time that it says so.
        let received = self.0.fetch_add(1000, Relaxed);
        let trunk = PortCounters {
            port: 2,
            device: "eth2".to_owned(),
            role: "trunk".to_owned(),
            up: true,
            frames_out: received,
            bytes_out: 100 * received,
            ..PortCounters::default()
        };
        let alien = DropCount { reason: "alien".to_owned(), total: received / 10, ..DropCount::default() };
        Some(Counters { ports: vec![trunk], drops: vec![alien], received, sent: received, ..Counters::default() })
    }
}

impl Network {
    /// With a page by which who may changes things.
    async fn new(n_switches: u32) -> Network {
        Network::with(n_switches, "dashboard = \"change\"\n").await
    }

    /// `extra`: further lines of controller.toml.
    async fn with(n_switches: u32, extra: &str) -> Network {
        let pages = support::reserved_port();
        let address = pages.local_addr().unwrap().as_socket().unwrap();
        drop(pages);
        let site = Site::new(&format!("status = \"{address}\"\n{extra}"));
        let controller = site.start();
        let mut client = site.client().await;
        add_full_mesh(&mut client, n_switches).await;
        let received = Arc::new(AtomicU64::new(1000));
        let shared = agent::Shared::new(Replica::new(Limits::default(), MemoryTables::default()));
        let about = Arc::new(Counting(Arc::clone(&received)));
        tokio::spawn(agent::run("s1".to_owned(), site.url.clone(), None, shared, about));
        (2..=n_switches).for_each(|i| _ = site.switch(&format!("s{i}")));
        eventually("all in step", async || in_step(&client).await == n_switches as usize).await;
        Network { site, pages: address.to_string(), _controller: controller, client, received }
    }

    /// The answer to a request of a page: its status, its headers, its text.
    fn ask(&self, request: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(&self.pages).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, text) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_ascii_lowercase(), text.to_owned())
    }

    fn get(&self, path: &str) -> Value {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.pages);
        let (status, head, text) = self.ask(&request);
        assert!(head.contains("content-security-policy: default-src 'none'"), "{path}: {head}");
        serde_json::from_str(&text).map(|value: Value| json!({"status": status, "is": value})).unwrap_or_else(|error| {
            panic!("{path}: {error}: {text}");
        })
    }

    fn act(&self, header: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let request = format!(
            "POST /ui/act HTTP/1.1\r\nHost: {}\r\n{header}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.pages,
            body.len()
        );
        let (status, _, text) = self.ask(&request);
        (status, serde_json::from_str(&text).unwrap())
    }

    /// What a sample of `/metrics` says.
    fn metric(&self, sample: &str) -> u64 {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.pages);
        let (_, _, text) = self.ask(&request);
        let value = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("{sample} is not in\n{text}")).parse().unwrap()
    }

    /// The audit trail.
    fn audit(&self) -> String {
        let config = self.site.path("controller.toml");
        // What the controller says of it is what stands in its files.
        let asked = self.done(&["-j", "audit", "show"]);
        let read = self.done(&["-j", "audit", "show", "--config", config.to_str().unwrap()]);
        assert!(read.starts_with(&asked), "{read}\n{asked}");
        asked
    }

    fn done(&self, arguments: &[&str]) -> String {
        let output = self.site.fibula(arguments);
        assert_eq!(exit_code(&output), 0, "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    }

    /// Events so far, one a line.
    fn events(&self) -> String {
        self.done(&["monitor", "--once"])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_that_is_away_is_counted_as_away_and_falls_behind() {
    let mut network = Network::new(1).await;
    for name in ["s2", "s3"] {
        network.done(&["switch", "add", name]);
    }
    let attach = |url: String| {
        let shared = agent::Shared::new(Replica::new(Limits::default(), MemoryTables::default()));
        let about: Arc<dyn agent::About> = Arc::new(|| api::memory::usage(10, &[("fib", 25)]));
        tokio::spawn(agent::run("s2".to_owned(), url, None, shared, about))
    };
    let s2 = attach(network.site.url.clone());
    let client = network.client.clone();
    eventually("both in step", async || in_step(&client).await == 2).await;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", network.pages);
    // Connected, in step, versions that it lacks, seconds since it was in step.
    let all = |network: &Network, switch: &str| {
        let (_, _, text) = network.ask(&request);
        ["connected", "in_step", "waiting_messages", "behind_seconds"].map(|metric| {
            let start = format!("fibula_switch_{metric}{{switch=\"{switch}\"}} ");
            let samples: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(&start)).collect();
            assert_eq!(samples.len(), 1, "{start}: {text}");
            samples[0].parse::<u64>().unwrap()
        })
    };
    assert_eq!((all(&network, "s1"), all(&network, "s2")), ([1, 1, 0, 0], [1, 1, 0, 0]));
    assert_eq!(all(&network, "s3")[..2], [0, 0], "it was never here");

    s2.abort();
    eventually("s2 is away", async || all(&network, "s2")[0] == 0).await;
    let [_, in_step_now, lacks, _] = all(&network, "s2");
    assert_eq!(in_step_now, 0);
    for i in 1..=3 {
        let names = vec![record(i, "h1")];
        network.client.put_names(v1::PutNamesRequest { names, only_new: true }).await.unwrap();
    }
    assert!(all(&network, "s2")[2] >= lacks + 3, "three transactions after {lacks}: {:?}", all(&network, "s2"));
    eventually("the time goes on", async || all(&network, "s2")[3] >= 2).await;
    eventually("s1 follows", async || all(&network, "s1") == [1, 1, 0, 0]).await;

    let _s2 = attach(network.site.url.clone());
    eventually("s2 is back", async || all(&network, "s2") == [1, 1, 0, 0]).await;
    network.done(&["switch", "del", "s3"]);
    let (_, _, text) = network.ask(&request);
    assert!(!text.contains("switch=\"s3\""), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_is_told_to_commands_and_pages_and_numbers_go_on() {
    let mut network = Network::new(3).await;
    let events = network.events();
    assert!(events.contains("switch      s1: connected from 127.0.0.1:"), "{events}");
    assert!(events.contains("link        s1:2 – s2:1: added, cost 1"), "{events}");
    let names = (1..=500).map(|i| record(i, "h1")).collect();
    network.client.put_names(v1::PutNamesRequest { names, only_new: true }).await.unwrap();
    eventually("names are an event", async || {
        network.events().contains("500 names: added, moved or removed, in 1 change\n")
    })
    .await;
    network.done(&["link", "set", "s2:1", "--state", "down"]);
    let events = network.events();
    assert!(events.contains("warning  link        s2:1 – s1:2: taken out of use"), "{events}");
    // Every question about switches and updates has its metric.
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", network.pages);
    let (_, _, metrics) = network.ask(&request);
    for metric in [
        "fibula_parts_rebuilt_total{design=\"concise\"} ",
        "fibula_switch_waiting_messages{switch=\"s1\"} ",
        "fibula_switch_behind_seconds{switch=\"s1\"} ",
        "fibula_update_seconds_bucket{le=",
        "fibula_names_learnt ",
    ] {
        assert!(metrics.lines().any(|line| line.starts_with(metric)), "{metric} is not in\n{metrics}");
    }
    // A refused change is no event.
    assert_eq!(exit_code(&network.site.fibula(&["link", "del", "s9:9"])), 4);
    assert_eq!(network.events(), events);

    // The stream of a page begins with what is kept, and goes on after the number that it is given.
    let mut stream = TcpStream::connect(&network.pages).unwrap();
    let listed = network.done(&["monitor", "--once", "--json"]);
    let sequences: Vec<u64> =
        listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["sequence"].as_u64().unwrap()).collect();
    let head = format!("GET /ui/events HTTP/1.1\r\nHost: {}\r\nLast-Event-ID: {}\r\n\r\n", network.pages, sequences[1]);
    stream.write_all(head.as_bytes()).unwrap();
    let (mut text, mut part) = (String::new(), [0; 4096]);
    while !text.contains("taken out of use") {
        let n = stream.read(&mut part).unwrap();
        assert!(n > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&part[..n]));
    }
    let first = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let first: Value = serde_json::from_str(first).unwrap();
    assert_eq!(first["seq"], sequences[2], "{text}");
    network.done(&["switch", "add", "s4"]);
    while !text.contains("\"subject\":\"s4\"") {
        let n = stream.read(&mut part).unwrap();
        assert!(n > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&part[..n]));
    }
    let wrong = network.site.fibula(&["monitor", "--kind", "weather"]);
    assert_eq!(exit_code(&wrong), 3, "{}", stderr(&wrong));
    assert!(stderr(&wrong).contains("there are link, switch, host, names, controller"), "{}", stderr(&wrong));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_monitor_sees_a_controller_go_and_come() {
    let site = Site::new("");
    let controller = site.start();
    site.fibula(&["switch", "add", "s1"]);
    // Ended in any case: what it does not say would be waited for for ever.
    let mut monitor = Command::new("timeout");
    monitor
        .args([&support::PATIENCE.as_secs().to_string(), support::FIBULA, "monitor", "--json"])
        .env("FIBULA_CONTROLLER", &site.url);
    let mut monitor = monitor.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(monitor.stdout.take().unwrap()));
    let mut subjects = lines.map_while(Result::ok).map(|line| {
        let event: Value = serde_json::from_str(&line).unwrap();
        event["subject"].as_str().unwrap().to_owned()
    });
    assert!(subjects.any(|subject| subject == "s1"));
    controller.kill();
    let _controller = site.start();
    site.fibula(&["switch", "add", "s2"]);
    assert!(subjects.any(|subject| subject == "s2"));
    // SIGTERM, which is passed on; a timeout that is killed leaves what it began.
    assert!(Command::new("kill").arg(monitor.id().to_string()).status().unwrap().success());
    monitor.wait().unwrap();
    // Its output ends with it.
    subjects.for_each(drop);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_says_where_a_frame_goes_and_why_it_does_not_arrive() {
    let mut network = Network::new(3).await;
    network.client.put_names(v1::PutNamesRequest { names: vec![record(1, "h3")], only_new: true }).await.unwrap();
    let path = network.done(&["trace", &mac(1), "--from", "s1"]);
    assert!(path.starts_with("02:00:00:00:00:01 is at host h3 (s3:100), tenant 0\n"), "{path}");
    assert!(path.contains("1  s1  sends it by port 3 to s3"), "{path}");
    assert!(
        path.contains("2  s3  delivers it by port 100 to host h3  [value ")
            && path.contains(": port:100]\n     delivered: to host h3 at s3:100\n"),
        "{path}"
    );
    let rows = network.done(&["trace", &mac(1), "--from", "s1", "--json"]);
    let hop: Value = serde_json::from_str(rows.lines().nth(1).unwrap()).unwrap();
    assert!(hop["action"] == "port:100" && hop["value"].as_u64().is_some_and(|value| value > 0), "{rows}");
    // From all switches.
    assert_eq!(network.done(&["trace", &mac(1)]).matches("delivered").count(), 3);
    let json = network.get(&format!("/ui/trace?name={}&from=s2", mac(1)));
    assert_eq!((&json["is"]["end"], &json["is"]["hops"][1]["switch"]), (&"delivered".into(), &"s3".into()), "{json}");
    assert_eq!(
        (&json["is"]["hops"][1]["action"], &json["is"]["hops"][1]["value"]),
        (&"port:100".into(), &hop["value"])
    );

    for link in ["s1:3", "s2:3"] {
        network.done(&["link", "set", link, "--state", "down"]);
    }
    let lost = network.site.fibula(&["trace", &mac(1), "--from", "s1"]);
    assert_eq!(exit_code(&lost), 5);
    assert!(stdout(&lost).contains("dropped: no path leads from s1 to s3"), "{}", stdout(&lost));
    let alien = network.site.fibula(&["trace", &mac(7), "--from", "s1"]);
    assert!(stdout(&alien).contains("no host has the name"), "{}", stdout(&alien));
    network.done(&["switch", "add", "s4"]);
    network.done(&["link", "add", "s4:1", "s3:9"]);
    let doubtful = network.done(&["trace", &mac(1), "--from", "s4"]);
    assert!(doubtful.contains("; but s4 is not connected"), "{doubtful}");
    assert_eq!(exit_code(&network.site.fibula(&["trace", &mac(1), "--from", "s9"])), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_is_traced_from_who_sends_it_and_ends_where_its_switch_drops_it() {
    let mut network = Network::new(3).await;
    let with_ip = |i, host: &str, ip: &str| v1::NameRecord { ip: ip.to_owned(), ..record(i, host) };
    let names = vec![with_ip(1, "h1", "10.0.0.1"), with_ip(2, "h2", "10.0.0.2"), record(3, "h3"), record(4, "h1")];
    network.client.put_names(v1::PutNamesRequest { names, only_new: true }).await.unwrap();
    let hex = |i: u32| mac(i).replace(':', "");
    let frame = |to: u32, from: u32, rest: &str| format!("{}{}{rest}", hex(to), hex(from));
    let ip = format!("0800{}", "00".repeat(40));
    let arp = |mac: u32, ip: &str| format!("0806 0001080006040002 {} {ip} {} 0a000003", hex(mac), hex(3));

    // With --from, and where its sender is without.
    for arguments in [&["--from", "s1"][..], &[]] {
        let told = network.done(&[&["trace", &frame(3, 1, &ip)][..], arguments].concat());
        assert!(told.contains("1  s1  sends it by port 3 to s3") && told.contains("delivered: to host h3"), "{told}");
        assert!(told.contains("not checked: which of several paths") && told.contains("access lists"), "{told}");
    }
    network.done(&["trace", &frame(3, 1, &arp(1, "0a000001")), "--from", "s1"]);
    // An address that nobody has is anybody's.
    network.done(&["trace", &frame(3, 1, &arp(1, "0a000009")), "--from", "s1"]);
    network.done(&["trace", &frame(3, 1, &arp(4, "0a000009")), "--from", "s1"]);

    for (reason, frame, says) in [
        ("source_mac", frame(3, 2, &ip), "is at s2:100, not at a port of s1"),
        ("source_mac", frame(3, 9, &ip), "is not a name"),
        ("source_arp", frame(3, 1, &arp(1, "0a000002")), "impersonates another"),
        ("source_arp", frame(3, 1, &arp(2, "0a000009")), "impersonates another"),
        ("source_arp", format!("ffffffffffff{}{}", hex(1), arp(1, "0a000002")), "impersonates another"),
        ("vlan_tags", frame(3, 1, "810000028100000381000004 0806"), "more than two VLAN tags"),
        ("input_port", frame(4, 1, &ip), "behind the same port"),
        ("input_port", frame(1, 1, &ip), "behind the same port"),
    ] {
        let told = network.site.fibula(&["trace", &frame, "--from", "s1"]);
        let text = stdout(&told);
        assert_eq!(exit_code(&told), 5, "{reason}: {text}{}", stderr(&told));
        assert!(text.contains(&format!("1  s1  drops it: {reason}")) && text.contains(says), "{text}");
        assert!(!text.contains("delivered"), "{text}");
    }
    let nowhere = network.site.fibula(&["trace", &frame(3, 9, &ip), "--json"]);
    let rows: Vec<Value> = stdout(&nowhere).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((exit_code(&nowhere), &rows[1]["end"]), (5, &"dropped".into()), "{rows:?}");
    assert!(rows[1]["not_looked_at"].as_str().unwrap().contains("check_source"), "{rows:?}");
    assert_eq!(exit_code(&network.site.fibula(&["trace", &frame(3, 1, &ip), "--from", "s9"])), 4);
    // Who has an address is known to everybody who may read.
    let asked = v1::GetNameRequest { ip: "10.0.0.2".to_owned(), ..v1::GetNameRequest::default() };
    assert_eq!(network.client.get_name(asked).await.unwrap().into_inner().name, mac(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_show_the_network_its_rates_and_its_names() {
    let mut network = Network::new(3).await;
    let names = (1..=300).map(|i| record(i, if i % 3 == 0 { "h2" } else { "h1" })).collect();
    network.client.put_names(v1::PutNamesRequest { names, only_new: true }).await.unwrap();
    let client = network.client.clone();
    eventually("rates are known", async || {
        let asked = client.clone().get_switch(v1::GetSwitchRequest { name: "s1".to_owned() }).await.unwrap();
        asked.into_inner().switch.unwrap().rates.is_some_and(|rates| rates.frames_in > 0.0)
    })
    .await;
    assert!(network.received.load(Relaxed) > 2000);
    let switch = &network.get("/ui/switch?name=s1")["is"];
    assert_eq!((&switch["hosts"][0]["name"], &switch["counters"]["ports"][0]["name"]), (&"h1".into(), &"eth2".into()));
    let drop = &switch["counters"]["drops"][0];
    assert!(drop["reason"] == "alien" && drop["why"].as_str().unwrap().contains("no host has"), "{switch}");
    eventually("a page has the load of the link", async || {
        let page = network.get("/ui/network");
        let page = &page["is"];
        assert_eq!(
            (&page["may_change"], &page["follows"], &page["switches"][2]["name"]),
            (&true.into(), &Value::Null, &"s3".into())
        );
        let link = page["links"].as_array().unwrap().iter().find(|link| link["a"]["port"] == 2).unwrap();
        link["bytes_s"][0].as_f64().is_some_and(|rate| rate > 0.0) && page["names"] == 300
    })
    .await;

    let uptime = || network.get("/ui/network")["is"]["uptime_seconds"].as_f64().unwrap();
    assert!(uptime() < uptime(), "it is of the moment, whatever else is a second old");
    // A page asks when it hears of an event: what it is told is from after it.
    for (command, drained) in [("drain", true), ("undrain", false)] {
        let _kept = network.get("/ui/network");
        network.done(&["link", command, "s1:2"]);
        let page = network.get("/ui/network");
        let links = page["is"]["links"].as_array().unwrap();
        assert!(
            links.iter().any(|link| (&link["a"]["port"], &link["drained"]) == (&2.into(), &drained.into())),
            "{page}"
        );
    }

    let found = &network.get("/ui/names?q=02:00:00:00:01&limit=10")["is"];
    assert_eq!(found["names"].as_array().unwrap().len(), 10, "{found}");
    assert_eq!((&found["names"][0]["name"], &found["more"]), (&mac(256).into(), &true.into()));
    let at = &network.get("/ui/names?host=h2&limit=1000")["is"];
    assert_eq!((at["names"].as_array().unwrap().len(), &at["names"][0]["switch"]), (100, &"s2".into()));
    assert_eq!(network.done(&["name", "list", "--prefix", "02:00:00:00:01:0"]).lines().count(), 17);
    assert_eq!(network.done(&["name", "list", "--host", "h2", "--limit", "20"]).lines().count(), 21);
    assert_eq!(network.done(&["top", "--once"]).matches("in step").count(), 3);

    // Wrong questions have answers that say so.
    for (path, status) in [
        ("/ui/switch?name=s9", 404),
        ("/ui/switch?name=%3Cscript%3E", 404),
        ("/ui/trace?name=zz&from=s1", 400),
        ("/ui/trace?name=02:00:00:00:00:01&from=", 400),
        ("/ui/names?host=h9", 404),
        ("/ui/names?limit=abc", 400),
        ("/ui/switch", 400),
        ("/ui/events?after=x", 400),
    ] {
        let answer = network.get(path);
        assert!(answer["status"] == status && answer["is"]["error"].is_string(), "{path}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_changes_something_only_for_those_who_may_and_never_for_other_pages() {
    let network = Network::new(3).await;
    let drain = json!({"do": "link.drain", "end": {"switch": "s1", "port": 2}});
    let (status, answer) = network.act("", &drain);
    assert!(status == 403 && answer["error"].as_str().unwrap().contains("X-Fibula"), "{answer}");
    let (status, answer) = network.act("X-Fibula: 1\r\n", &drain);
    assert_eq!(status, 200, "{answer}");
    let list = network.done(&["link", "list"]);
    assert!(list.lines().skip(1).any(|line| line.contains("drained")), "{list}");
    let audit = network.audit();
    assert!(audit.contains("drain_link") && !audit.contains("set_link"), "{audit}");
    let mut command = std::process::Command::new(support::FIBULA);
    let table = command
        .args(["audit", "show"])
        .env("FIBULA_CONTROLLER", &network.site.url)
        .env("COLUMNS", "200")
        .output()
        .unwrap();
    let table = stdout(&table);
    assert!(table.contains("link drain s1:2") && table.lines().all(|line| line.chars().count() <= 100), "{table}");
    for body in [json!({"do": "rekey"}), json!({}), json!("text"), json!({"do": "x".repeat(10_000)})] {
        let (status, answer) = network.act("X-Fibula: 1\r\n", &body);
        assert!(status == 400 && answer["error"].is_string(), "{answer}");
    }
    let (status, answer) = network.act("X-Fibula: 1\r\n", &json!({"do": "switch.accept", "name": "s9"}));
    assert_eq!(status, 404, "{answer}");
    // A name that somebody else gave to this machine: another page's script would be let in by its browser.
    let ask = |path: &str, host: &str| {
        network.ask(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
    };
    let refused = "fibula_turned_away_total{reason=\"host_name\"}";
    let before = network.metric(refused);
    for (n, path) in (1..).zip(["/ui/network", "/ui/names?q=02", "/", "/status", "/metrics"]) {
        for host in ["localhost", "controller:4601", "127.0.0.1", "[::1]:4601"] {
            assert_eq!(ask(path, host).0, 200, "{path} of {host}");
        }
        let (status, _, text) = ask(path, "evil.example");
        assert!(status == 403 && text.contains("localhost"), "{text}");
        assert_eq!(network.metric(refused) - before, n);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_only_shows_unless_it_is_for_changes_and_who_tries_is_counted_and_recorded() {
    let network = Network::with(3, "").await;
    assert_eq!(network.get("/ui/network")["is"]["may_change"], false);
    let role = "fibula_turned_away_total{reason=\"role\"}";
    let before = network.metric(role);
    let changes = [
        json!({"do": "link.drain", "end": {"switch": "s1", "port": 2}}),
        json!({"do": "switch.accept", "name": "s9"}),
        json!({"do": "links.accept"}),
        json!({"do": "host.accept", "name": mac(9)}),
        json!({"do": "switch.undrain", "name": "s1"}),
    ];
    for change in &changes {
        let (status, answer) = network.act("X-Fibula: 1\r\n", change);
        let why = answer["error"].as_str().unwrap();
        assert!(status == 403 && why.contains("dashboard = \"change\"") && why.contains("command"), "{answer}");
    }
    // Nobody is kept from what is no change.
    assert_eq!(network.act("X-Fibula: 1\r\n", &json!({"do": "rekey"})).0, 400);
    assert_eq!(network.metric(role) - before, changes.len() as u64);
    let audit = network.audit();
    assert!(audit.contains("DrainLink") && audit.contains("AcceptHosts") && audit.contains("turned-away"), "{audit}");
    let list = network.done(&["link", "list"]);
    assert!(list.lines().skip(1).all(|line| line.ends_with(" no")), "{list}");
    // Commands go on as before.
    network.done(&["link", "drain", "s1:2"]);

    let none = Network::with(1, "dashboard = \"off\"\n").await;
    for path in ["/", "/ui/network", "/ui/index.html", "/ui/app.js", "/ui/events"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", none.pages);
        assert_eq!(none.ask(&request).0, 404, "{path}");
    }
    let act =
        "POST /ui/act HTTP/1.1\r\nHost: localhost\r\nX-Fibula: 1\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    assert_eq!(none.ask(act).0, 404);
    assert_eq!(none.metric("fibula_switches"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_wait_are_told_to_pages_fifty_of_them_and_accepted_there() {
    let network = Network::new(1).await;
    let channel = api::client::connect(&network.site.url, support::PATIENCE).await.unwrap();
    let host = |i: u8| v1::SeenHost {
        port: 5,
        name: vec![2, 0, 0, 0, 0, i].into(),
        ip: if i == 1 { vec![10, 0, 0, 9] } else { vec![] }.into(),
        accept: false,
        tenant: 7,
        max_names: 100,
        ..v1::SeenHost::default()
    };
    let hosts = (1..=52).map(host).collect();
    let request = v1::SeeHostsRequest { switch: "s1".to_owned(), hosts, ..v1::SeeHostsRequest::default() };
    api::client::southbound(channel).see_hosts(request).await.unwrap();
    let waiting = || network.get("/ui/network")["is"].clone();
    eventually("they are told", async || waiting()["n_waiting"] == 52).await;
    let told = waiting();
    assert_eq!(told["waiting"].as_array().unwrap().len(), 50);
    let first = &told["waiting"][0];
    assert_eq!((&first["name"], &first["ip"], &first["tenant"]), (&mac(1).into(), &"10.0.0.9".into(), &7.into()));
    assert_eq!(first["at"], json!({"switch": "s1", "port": 5}));
    assert!(first["first_ms"].as_u64().is_some_and(|ms| ms > 0) && first["why"].is_string(), "{first}");
    let (status, answer) = network.act("X-Fibula: 1\r\n", &json!({"do": "host.accept", "name": mac(1)}));
    assert_eq!((status, &answer["sentence"]), (200, &"1 name added".into()), "{answer}");
    assert_eq!(waiting()["n_waiting"], 51, "a change is seen at once");
    let seen = network.done(&["host", "seen"]);
    assert!(seen.lines().any(|line| line.contains(&mac(1)) && line.contains("learnt")), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_for_everybody_are_no_dashboard_for_everybody() {
    let reserved = support::reserved_port();
    let port = reserved.local_addr().unwrap().as_socket().unwrap().port();
    let site = Site::new(&format!("status = \"0.0.0.0:{port}\"\nmetrics_open = true\n"));
    drop(reserved);
    let _controller = site.start();
    let ask = |request: String| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let get = |path: &str| ask(format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"));
    assert!(get("/metrics").starts_with("HTTP/1.1 200"), "{}", get("/metrics"));
    for path in ["/", "/ui/network", "/ui/names?q=", "/ui/events", "/ui/app.js"] {
        assert!(get(path).starts_with("HTTP/1.1 403"), "{path}: {}", get(path));
    }
    let body = json!({"do": "links.accept"}).to_string();
    let length = body.len();
    let act = format!(
        "POST /ui/act HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Fibula: 1\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    assert!(ask(act.clone()).starts_with("HTTP/1.1 403"), "{}", ask(act));
}

/// A collector that keeps what it gets.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let spans = request.into_inner().resource_spans.into_iter().flat_map(|of| of.scope_spans);
        self.0.lock().unwrap().extend(spans.flat_map(|of| of.spans));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn attribute(span: &Span, key: &str) -> Option<Attribute> {
    span.attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?.value
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_traced_from_its_request_to_the_last_acknowledgement() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let collector = Collector::default();
    let service = TraceServiceServer::new(collector.clone());
    tokio::spawn(
        tonic::transport::Server::builder().add_service(service).serve_with_incoming(TcpListenerStream::new(listener)),
    );
    let site = Site::new(&format!("[telemetry]\notlp = \"http://{at}\"\n"));
    let _controller = site.start();
    let mut client = site.client().await;
    add_full_mesh(&mut client, 3).await;
    let _switches = ["s1", "s2", "s3"].map(|name| site.switch(name));
    eventually("all in step", async || in_step(&client).await == 3).await;
    let put = |host: &str| v1::PutNamesRequest { names: vec![record(1, host)], only_new: false };
    client.put_names(put("h3")).await.unwrap();
    client.put_names(put("h9")).await.unwrap_err();

    let roots = || -> Vec<Span> {
        let spans = collector.0.lock().unwrap();
        spans.iter().filter(|span| span.name == "put_names" && span.parent_span_id.is_empty()).cloned().collect()
    };
    eventually("both traces are there", async || roots().len() == 2).await;
    let (done, refused): (Vec<Span>, Vec<Span>) = roots().into_iter().partition(|root| root.status.is_none());
    let below = |root: &Span| -> Vec<Span> {
        let spans = collector.0.lock().unwrap();
        spans.iter().filter(|span| span.trace_id == root.trace_id && **span != *root).cloned().collect()
    };
    let root = &done[0];
    let spans = below(root);
    assert_eq!((root.trace_id.len(), root.span_id.len(), spans.len()), (16, 8, 7), "{spans:#?}");
    for span in &spans {
        let (start, end) = (span.start_time_unix_nano, span.end_time_unix_nano);
        assert!(span.parent_span_id == root.span_id && span.status.is_none(), "{span:#?}");
        assert!(
            root.start_time_unix_nano <= start && start <= end && end <= root.end_time_unix_nano,
            "{span:#?} {root:#?}"
        );
    }
    let named = |name: &str| -> Vec<&Span> { spans.iter().filter(|span| span.name == name).collect() };
    for steps in ["queue", "apply", "commit", "push", "acknowledge"].windows(2) {
        let (before, after) = (named(steps[0])[0], named(steps[1])[0]);
        assert_eq!(before.end_time_unix_nano, after.start_time_unix_nano, "{steps:?}");
    }
    let acknowledged: BTreeSet<String> = named("acknowledge")
        .iter()
        .map(|span| match attribute(span, "fibula.switch") {
            Some(Attribute::StringValue(switch)) => switch,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(acknowledged.into_iter().collect::<Vec<_>>(), ["s1", "s2", "s3"]);
    let last = named("acknowledge").iter().map(|span| span.end_time_unix_nano).max();
    assert_eq!(Some(root.end_time_unix_nano), last, "the last acknowledgement ends it");
    assert_eq!(named("queue")[0].start_time_unix_nano, root.start_time_unix_nano);
    assert_eq!(attribute(root, "fibula.changed"), Some(Attribute::IntValue(1)));
    assert_eq!(attribute(root, "fibula.switches"), Some(Attribute::IntValue(3)));
    assert_eq!(attribute(root, "fibula.acknowledged"), Some(Attribute::IntValue(3)));

    assert_eq!(refused[0].status.as_ref().unwrap().message, "refused");
    let names: Vec<String> = below(&refused[0]).into_iter().map(|span| span.name).collect();
    assert_eq!(names, ["queue"], "nothing follows a refusal");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_costs_nothing_but_a_counted_loss() {
    let (pages, nobody) = (support::reserved_port(), support::reserved_port());
    let [at, collector] = [&pages, &nobody].map(|socket| socket.local_addr().unwrap().as_socket().unwrap());
    let site = Site::new(&format!("status = \"{at}\"\n[telemetry]\notlp = \"http://{collector}\"\n"));
    let _controller = site.start();
    let mut client = site.client().await;
    // More than may wait for the collector.
    for i in 0..300 {
        client.add_switch(v1::AddSwitchRequest { name: format!("t{i}"), tenants: vec![] }).await.unwrap();
    }
    let counted = |outcome: &str| -> u64 {
        let mut stream = TcpStream::connect(at).unwrap();
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let of = format!("fibula_traces_total{{outcome=\"{outcome}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&of)).unwrap_or_else(|| panic!("{text}")).parse().unwrap()
    };
    eventually("the loss is counted", async || counted("lost") > 1).await;
    assert_eq!(counted("sent"), 0);
}
