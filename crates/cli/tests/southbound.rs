//! Switches against a controller, over gRPC: gaps, slow switches, strangers, saved images.

#[path = "southbound/links.rs"]
mod links;
mod support;
#[path = "southbound/weights.rs"]
mod weights;

use api::v1::from_switch::Body;
use api::v1::{self, Ack, FromSwitch, Hello, Resync, ToSwitch};
use dataplane::groups::{Groups, Snooping};
use dataplane::subscriptions::Timing;
use fib::action::PortId;
use fib::messages::{Report, Uplink};
use fib::name::{Name, NameKind};
use fib::replica::{Limits, MemoryTables, Replica};
use lookup::traits::{HeldPart, PartId};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};
use support::{Client, HOST_PORT, PATIENCE, Process, Site, add_full_mesh, eventually, in_step, mac, record, stdout};
use switch::daemon::agent;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

/// How long to wait for one more message that may not come.
const A_MOMENT: Duration = Duration::from_millis(20);

/// A switch driven by hand.
struct Manual {
    to_controller: mpsc::Sender<FromSwitch>,
    incoming: Streaming<ToSwitch>,
}

impl Manual {
    async fn attach(site: &Site, first: Body) -> Result<Manual, tonic::Status> {
        let channel = api::client::connect(&site.url, PATIENCE).await.unwrap();
        let (to_controller, outgoing) = mpsc::channel(16);
        to_controller.send(FromSwitch { body: Some(first) }).await.unwrap();
        let incoming = api::client::southbound(channel).attach(ReceiverStream::new(outgoing)).await?.into_inner();
        Ok(Manual { to_controller, incoming })
    }

    async fn send(&self, body: Body) {
        self.to_controller.send(FromSwitch { body: Some(body) }).await.unwrap();
    }

    async fn next(&mut self) -> ToSwitch {
        let next = tokio::time::timeout(PATIENCE, self.incoming.message()).await;
        next.expect("a message comes").unwrap().unwrap()
    }

    /// Applies and acknowledges messages until the replica maps the name to `action`.
    async fn apply_until(&mut self, replica: &mut Replica<MemoryTables>, name: &Name, port: PortId) {
        while replica.action(name).port() != Some(port) {
            let ToSwitch { sequence, message, .. } = self.next().await;
            replica.receive(&message).unwrap();
            self.send(Body::Ack(Ack { sequence })).await;
        }
    }
}

fn replica() -> Replica<MemoryTables> {
    Replica::new(Limits::default(), MemoryTables::default())
}

fn report(replica: &Replica<MemoryTables>) -> bytes::Bytes {
    Uplink::Report(replica.report()).encode().into()
}

fn hello(switch: &str, report: bytes::Bytes) -> Body {
    Body::Hello(Hello {
        switch: switch.to_owned(),
        report,
        version: "test".to_owned(),
        says_log: true,
        weighs_ways: true,
        ..Hello::default()
    })
}

fn name(index: u32) -> Name {
    Name::parse(NameKind::Mac, &mac(index)).unwrap()
}

async fn put(client: &Client, index: u32, host: &str) {
    let names = vec![record(index, host)];
    client.clone().put_names(v1::PutNamesRequest { names, only_new: false }).await.unwrap();
}

/// What a switch says that its names want: all the same group.
fn wants(number: u64, names: &[u32]) -> v1::Subscriptions {
    let groups = || vec![vec![239, 1, 2, 3].into()];
    let subscriber = |index: &u32| v1::Subscriber { name: name(*index).as_bytes().to_vec().into(), groups: groups() };
    let subscribers = names.iter().map(subscriber).collect();
    v1::Subscriptions { session: 7, number, asking: false, subscribers }
}

impl Manual {
    /// A switch that is told who hears what; without `subscriptions`, one that does not hear what hosts want.
    async fn attach_for_groups(site: &Site, switch: &str, subscriptions: Option<v1::Subscriptions>) -> Manual {
        let Body::Hello(hello) = hello(switch, report(&replica())) else { unreachable!() };
        let hello = Hello { takes_groups: true, subscriptions, ..hello };
        Manual::attach(site, Body::Hello(hello)).await.unwrap()
    }

    /// What it is told next of its tenant that has two names: the names that want the group, and those that get all; none, if it is
    /// to go on as before.
    async fn told(&mut self) -> Option<(Vec<String>, Vec<String>)> {
        loop {
            let Some(mut groups) = self.next().await.groups else { continue };
            let Some(group) = groups.groups.pop().filter(|group| group.names.len() == 2) else { continue };
            assert_eq!(groups.snooping.unwrap().query_interval_s, 30);
            let named = |indices: &[u32]| {
                let names = indices.iter().map(|index| &group.names[*index as usize]);
                names.map(|bytes| Name::from_bytes(NameKind::Mac, bytes).unwrap().to_string()).collect()
            };
            return group.wanted.as_ref().map(|wanted| {
                assert!(wanted.groups.iter().all(|group| group.group == [239, 1, 2, 3][..]));
                (named(wanted.groups.first().map_or(&[][..], |group| &group.names)), named(&wanted.of_all))
            });
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn switches_are_told_who_wants_a_group_and_go_on_as_before_while_a_controller_starts() {
    let site = Site::new("[groups]\ntenants = [0]\n");
    let controller = site.start();
    let mut client = site.client().await;
    add_full_mesh(&mut client, 2).await;
    put(&client, 1, "h1").await;
    put(&client, 2, "h2").await;
    let two = || vec![name(2).to_string()];
    let mut one = Manual::attach_for_groups(&site, "s1", Some(wants(1, &[]))).await;
    assert_eq!(one.told().await, None, "nothing is known of s2");
    // One of an earlier version does not say what its hosts want: they get all.
    let deaf = Manual::attach_for_groups(&site, "s2", None).await;
    assert_eq!(one.told().await, Some((vec![], two())));
    // It is away, and its hosts are there still.
    drop(deaf);
    eventually("it is away", async || {
        let switches = client.clone().list_switches(v1::ListSwitchesRequest {}).await.unwrap().into_inner().switches;
        switches.iter().any(|switch| switch.name == "s2" && !switch.connected)
    })
    .await;
    one.send(Body::Subscriptions(wants(2, &[1]))).await;
    assert_eq!(one.told().await, Some((vec![name(1).to_string()], two())));
    one.send(Body::Subscriptions(wants(3, &[]))).await;
    assert_eq!(one.told().await, Some((vec![], two())));
    // What is said of a name that is elsewhere counts for nothing.
    let other = Manual::attach_for_groups(&site, "s2", Some(wants(1, &[1, 2]))).await;
    while one.told().await != Some((two(), vec![])) {}
    let list = client.list_groups(v1::ListGroupsRequest::default()).await.unwrap().into_inner();
    let [v1::Subscribed { tenant: 0, group, name, at: Some(at) }] = &list.subscribed[..] else { panic!("{list:?}") };
    assert_eq!((&**group, &*two()[0], &*at.switch), ("239.1.2.3", &**name, "s2"));
    assert!(list.snooping && list.tenants == [0]);
    other.send(Body::Subscriptions(wants(2, &[]))).await;
    assert_eq!(one.told().await, Some((vec![], vec![])));
    // As those say it that another controller serves; what comes late does not count.
    let channel = api::client::connect(&site.url, PATIENCE).await.unwrap();
    let see = async |subscriptions| {
        let request = v1::SeeSubscriptionsRequest { switch: "s2".to_owned(), subscriptions, process: 0 };
        api::client::southbound(channel.clone()).see_subscriptions(request).await.unwrap();
    };
    see(Some(wants(4, &[2]))).await;
    see(Some(wants(3, &[]))).await;
    assert_eq!(one.told().await, Some((two(), vec![])));
    // One that does not hear its hosts says so there as well.
    see(None).await;
    assert_eq!(one.told().await, Some((vec![], two())));
    let request = v1::SeeSubscriptionsRequest { switch: "nobody".to_owned(), ..Default::default() };
    let refused = api::client::southbound(channel).see_subscriptions(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);

    drop((controller, other));
    let _controller = site.start();
    let mut one = Manual::attach_for_groups(&site, "s1", Some(wants(1, &[]))).await;
    assert_eq!(one.told().await, None, "it goes on as before");
    let asking = v1::Subscriptions { asking: true, ..wants(5, &[]) };
    let other = Manual::attach_for_groups(&site, "s2", Some(asking)).await;
    // That it asks is not that its hosts want nothing.
    other.send(Body::Subscriptions(wants(6, &[2]))).await;
    assert_eq!(one.told().await, Some((two(), vec![])));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_several_controllers_is_told_what_hosts_want() {
    // Of two networks, so that neither knows it from the other.
    let sites = [(); 2].map(|()| Site::new("[groups]\ntenants = [0]\n"));
    let _controllers = sites.each_ref().map(Site::start);
    let mut clients = Vec::new();
    for site in &sites {
        let mut client = site.client().await;
        add_full_mesh(&mut client, 2).await;
        put(&client, 1, "h1").await;
        clients.push(client);
    }
    let heard = dataplane::subscriptions::Subscriptions::new(dataplane::subscriptions::Limits::default(), 1);
    let groups = Arc::new(Groups::new(Some(heard)));
    let snooping = Snooping { timing: Timing::new(30), floods_unknown: false, mdns_for_all: true };
    groups.tell(Some(snooping), []);
    let shared = agent::Shared::with_groups(replica(), groups);
    let urls = sites.each_ref().map(|site| &*site.url).join(",");
    let about = Arc::new(v1::MemoryUse::default);
    let agent = tokio::spawn(agent::run("s1".to_owned(), urls, None, Arc::clone(&shared), about));
    for (number, names) in [(1, &[1][..]), (2, &[])] {
        shared.set_subscriptions(wants(number, names));
        for client in &clients {
            eventually("both are told", async || {
                let list = client.clone().list_groups(v1::ListGroupsRequest::default()).await.unwrap().into_inner();
                list.subscribed.len() == names.len()
            })
            .await;
        }
    }
    agent.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_several_controllers_is_told_that_a_switch_does_not_hear_its_hosts() {
    let sites = [(); 2].map(|()| Site::new("[groups]\ntenants = [0]\n"));
    let _controllers = sites.each_ref().map(Site::start);
    for site in &sites {
        let mut client = site.client().await;
        add_full_mesh(&mut client, 2).await;
        put(&client, 1, "h1").await;
        put(&client, 2, "h2").await;
    }
    let urls = sites.each_ref().map(|site| &*site.url).join(",");
    let shared = agent::Shared::with_groups(replica(), Arc::new(Groups::new(None)));
    let about = Arc::new(v1::MemoryUse::default);
    let agent = tokio::spawn(agent::run("s2".to_owned(), urls, None, shared, about));
    for site in &sites {
        let mut one = Manual::attach_for_groups(site, "s1", Some(wants(1, &[]))).await;
        while one.told().await != Some((vec![], vec![name(2).to_string()])) {}
    }
    agent.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn switch_that_missed_a_message_gets_what_it_lacks() {
    let site = Site::new("");
    let _controller = site.start();
    let mut client = site.client().await;
    add_full_mesh(&mut client, 2).await;
    let mut replica = replica();
    let mut switch = Manual::attach(&site, hello("s1", report(&replica))).await.unwrap();
    put(&client, 1, "h1").await;
    switch.apply_until(&mut replica, &name(1), PortId(HOST_PORT as u16)).await;

    // All messages of one change are lost, and those of the next do not fit.
    put(&client, 2, "h2").await;
    let lost = switch.next().await;
    put(&client, 3, "h2").await;
    let mut refused = None;
    while refused.is_none() {
        let message = switch.next().await.message;
        refused = replica.receive(&message).err();
    }
    let error = refused.unwrap();
    assert!(error.needs_resync(), "{error}");
    switch.send(Body::Resync(Resync { report: report(&replica), reason: error.to_string() })).await;
    let mut answered = lost.answered;
    while answered == lost.answered {
        // Messages in flight may fit or not.
        let next = switch.next().await;
        answered = next.answered;
        let received = replica.receive(&next.message);
        assert!(answered == lost.answered || received.is_ok(), "{received:?}");
        switch.send(Body::Ack(Ack { sequence: next.sequence })).await;
    }
    switch.apply_until(&mut replica, &name(2), PortId(2)).await;
    switch.apply_until(&mut replica, &name(3), PortId(2)).await;
    let start = Instant::now();
    while in_step(&client).await == 0 {
        assert!(start.elapsed() < PATIENCE, "not in step");
        if let Ok(ToSwitch { sequence, message, .. }) = tokio::time::timeout(A_MOMENT, switch.next()).await {
            replica.receive(&message).unwrap();
            switch.send(Body::Ack(Ack { sequence })).await;
        }
    }
    assert_eq!(replica.tables().valid.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_switch_blocks_neither_changes_nor_other_switches() {
    let site = Site::new("phase_timeout_ms = 100\nswitch_backlog_bytes = 65536\n");
    let _controller = site.start();
    let mut client = site.client().await;
    add_full_mesh(&mut client, 3).await;
    let _slow = Manual::attach(&site, hello("s1", report(&replica()))).await.unwrap();
    let others = [site.switch("s2"), site.switch("s3")];
    eventually("the others in step", async || in_step(&client).await == 2).await;

    const N_NAMES: u32 = 20_000;
    for first in (0..N_NAMES).step_by(1000) {
        let names = (first..first + 1000).map(|i| record(i, "h2")).collect();
        let put = client.put_names(v1::PutNamesRequest { names, only_new: true });
        tokio::time::timeout(PATIENCE, put).await.expect("the change is not held up").unwrap();
    }
    eventually("the others in step", async || in_step(&client).await == 2).await;
    for (switch, port) in others.iter().zip([HOST_PORT as u16, 2]) {
        let replica = switch.replica();
        assert!((0..N_NAMES).all(|i| replica.action(&name(i)).port() == Some(PortId(port))));
    }
}

/// A report of 60 MiB: of more parts than the table has, which cover all digests.
fn huge_report(replica: &Replica<MemoryTables>) -> bytes::Bytes {
    const SPLIT: u32 = 900_000;
    let part = |prefix, depth| HeldPart { id: PartId { prefix, depth }, version: 1, digest: 0 };
    let halves = (0..2 * SPLIT).map(|prefix| part(prefix, 22));
    let shards = halves.chain((SPLIT..1 << 21).map(|prefix| part(prefix, 21))).collect();
    let report = Uplink::Report(Report { shards, ..replica.report() }).encode();
    assert!((60 << 20..64 << 20).contains(&report.len()), "{}", report.len());
    report.into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_of_60_mib_is_answered_while_others_make_changes() {
    let site = Site::new("[limits]\nmessage_bytes = 67108864\nconnection_bytes = 67108864\n");
    // Only tables of hundreds of millions of names may be reported at such length. While the switch sends its report it
    // acknowledges nothing; changes do not wait for it.
    let config = site.path("controller.toml");
    let wanted = "max_names = 300000000\nphase_timeout_ms = 1";
    let text = std::fs::read_to_string(&config).unwrap().replace("max_names = 1000000", wanted);
    std::fs::write(&config, text).unwrap();
    let _controller = site.start();
    let client = site.client().await;
    add_full_mesh(&mut client.clone(), 1).await;
    let mut replica = replica();
    let mut switch = Manual::attach(&site, hello("s1", report(&replica))).await.unwrap();
    put(&client, 0, "h1").await;
    switch.apply_until(&mut replica, &name(0), PortId(HOST_PORT as u16)).await;

    let n_changes = Arc::new(AtomicU32::new(0));
    let (changing, counted) = (client.clone(), Arc::clone(&n_changes));
    let operator = tokio::spawn(async move {
        for i in 1.. {
            put(&changing, i, "h1").await;
            counted.store(i, SeqCst);
        }
    });
    eventually("changes are made", async || n_changes.load(SeqCst) > 0).await;
    let resync = Resync { report: huge_report(&replica), reason: "test".to_owned() };
    let before = n_changes.load(SeqCst);
    switch.send(Body::Resync(resync)).await;
    loop {
        let ToSwitch { sequence, message, answered, .. } = switch.next().await;
        replica.receive(&message).unwrap();
        switch.send(Body::Ack(Ack { sequence })).await;
        if answered == 2 {
            break;
        }
    }
    let meanwhile = n_changes.load(SeqCst) - before;
    println!("{meanwhile} changes meanwhile");
    assert!(meanwhile >= 5, "{meanwhile} changes were answered between the report and its answer");
    operator.abort();
    let start = Instant::now();
    while in_step(&client).await == 0 {
        assert!(start.elapsed() < PATIENCE, "the switch is brought into step");
        if let Ok(next) = tokio::time::timeout(A_MOMENT, switch.incoming.message()).await {
            let ToSwitch { sequence, message, .. } = next.unwrap().unwrap();
            replica.receive(&message).unwrap();
            switch.send(Body::Ack(Ack { sequence })).await;
        }
    }
}

/// Two trunks and a host take all values of 2 bits, so that the other two switches with hosts share them.
#[tokio::test(flavor = "multi_thread")]
async fn destinations_that_share_a_value_are_counted_where_operators_look() {
    let reserved = support::reserved_port();
    let status = reserved.local_addr().unwrap().as_socket().unwrap();
    let site = Site::new(&format!("value_bits = 2\nstatus = \"{status}\"\n"));
    let _controller = site.start();
    let mut client = site.client().await;
    add_full_mesh(&mut client, 3).await;
    let _switch = site.switch("s1");
    eventually("in step", async || in_step(&client).await == 1).await;
    let page = |path: &str| {
        let mut stream = TcpStream::connect(status).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let configuration = site.path("controller.toml");
    for (said, expected) in [
        (page("/status"), "\"sharing\":2"),
        (page("/metrics"), "fibula_switch_sharing_destinations{switch=\"s1\"} 2"),
        (stdout(&site.fibula(&["-j", "switch", "show", "s1"])), "\"sharing\":2"),
        // Whether it is connected or not.
        (stdout(&site.fibula(&["-j", "switch", "show", "s2"])), "\"sharing\":2"),
        (stdout(&site.fibula(&["doctor", "--config", configuration.to_str().unwrap()])), "switches, up to 2 others"),
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    client.remove_host(v1::RemoveHostRequest { name: "h3".to_owned() }).await.unwrap();
    eventually("one less", async || page("/status").contains("\"sharing\":1")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn switch_that_cannot_hold_its_table_serves_the_old_one_and_says_why() {
    let site = Site::new("");
    let _controller = site.start();
    let mut client = site.client().await;
    add_full_mesh(&mut client, 2).await;
    let small = site.switch_with("s1", Limits { max_table_bytes: 100_000, ..Limits::default() });
    let large = site.switch("s2");
    put(&client, 1, "h2").await;
    eventually("both in step", async || in_step(&client).await == 2).await;

    let names: Vec<v1::NameRecord> = (10..20_010).map(|i| record(i, "h2")).collect();
    let gone = names.iter().map(|record| record.name.clone()).collect();
    client.put_names(v1::PutNamesRequest { names, only_new: true }).await.unwrap();
    let asking = client.clone();
    let reason = async || {
        let switches = asking.clone().list_switches(v1::ListSwitchesRequest {}).await.unwrap().into_inner().switches;
        let s1 = switches.into_iter().find(|switch| switch.name == "s1").unwrap();
        assert!(s1.connected, "it stays connected");
        s1.cannot_follow
    };
    eventually("a reason", async || reason().await.contains("max_table_bytes")).await;
    eventually("the other in step", async || in_step(&client).await == 1).await;
    assert_eq!(small.replica().action(&name(1)).port(), Some(PortId(2)), "the old table serves");
    assert!(small.status().cannot_follow.contains("max_table_bytes"));
    assert_eq!(large.replica().action(&name(20_009)).port(), Some(PortId(HOST_PORT as u16)));
    let shown = site.fibula(&["-j", "switch", "show", "s1"]);
    assert!(support::stdout(&shown).contains("max_table_bytes"), "{}", support::stdout(&shown));

    client.remove_names(v1::RemoveNamesRequest { names: gone, ignore_missing: false }).await.unwrap();
    eventually("both in step again", async || in_step(&client).await == 2).await;
    assert_eq!((reason().await, small.status().cannot_follow), (String::new(), String::new()));
    put(&client, 2, "h2").await;
    eventually("both in step", async || in_step(&client).await == 2).await;
    assert_eq!(small.replica().action(&name(2)).port(), Some(PortId(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_and_nonsense_are_turned_away() {
    let site = Site::new("");
    let _controller = site.start();
    add_full_mesh(&mut site.client().await, 1).await;
    let cases = [
        (hello("s9", report(&replica())), Code::NotFound, "s9"),
        (hello("s1", bytes::Bytes::from_static(b"nonsense")), Code::InvalidArgument, "malformed"),
        (Body::Ack(Ack { sequence: 1 }), Code::InvalidArgument, "hello"),
    ];
    for (first, code, reason) in cases {
        let status = Manual::attach(&site, first).await.err().unwrap();
        assert_eq!(status.code(), code);
        assert!(status.message().contains(reason), "{}", status.message());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn second_stream_of_a_switch_replaces_the_first() {
    let site = Site::new("");
    let _controller = site.start();
    let client = site.client().await;
    add_full_mesh(&mut client.clone(), 1).await;
    let mut first = Manual::attach(&site, hello("s1", report(&replica()))).await.unwrap();
    let switch = site.switch("s1");
    let ended = async { while let Ok(Some(_)) = first.incoming.message().await {} };
    tokio::time::timeout(PATIENCE, ended).await.expect("the first stream ends");
    put(&client, 1, "h1").await;
    eventually("the second stream in step", async || in_step(&client).await == 1).await;
    assert_eq!(switch.replica().action(&name(1)).port(), Some(PortId(HOST_PORT as u16)));
}

async fn memory_of_first(client: &Client) -> Option<v1::MemoryUse> {
    let switches = client.clone().list_switches(v1::ListSwitchesRequest {}).await.unwrap().into_inner().switches;
    switches.into_iter().next()?.memory
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_switch_says_of_its_memory_is_shown_and_bounded() {
    let site = Site::new("");
    let _controller = site.start();
    let client = site.client().await;
    add_full_mesh(&mut client.clone(), 1).await;
    let switch = Manual::attach(&site, hello("s1", report(&replica()))).await.unwrap();
    assert_eq!(memory_of_first(&client).await, None);
    let part = |part: &str, bytes| v1::MemoryPart { part: part.to_owned(), bytes };
    let mut parts = vec![part("fib", 2400), part(&"x".repeat(10_000), 1)];
    parts.extend((0..1_000).map(|_| part("valid_names", 11_000)));
    let (resident_bytes, peak_bytes) = (1 << 20, 3 << 20);
    switch.send(Body::Memory(v1::MemoryUse { names: 1000, resident_bytes, peak_bytes, parts })).await;
    eventually("the controller knows", async || memory_of_first(&client).await.is_some()).await;
    let kept = memory_of_first(&client).await.unwrap();
    assert_eq!((kept.parts.len(), &kept.parts[0]), (16, &part("fib", 2400)));

    let shown = stdout(&site.fibula(&["-j", "switch", "show", "s1"]));
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let memory = &shown["memory"];
    assert_eq!((&memory["bytes_per_name"]["fib"], &memory["peak_bytes"]), (&2.4.into(), &peak_bytes.into()), "{shown}");
    let shown = stdout(&site.fibula(&["switch", "show", "s1"]));
    assert!(shown.contains("memory of the switch: 1.00 MiB resident, 3.00 MiB at most so far\n"), "{shown}");
    assert!(shown.contains("fib") && shown.contains("2.400") && shown.contains("total"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn switch_process_starts_from_its_saved_image_without_a_controller() {
    let site = Site::new("");
    let controller = site.start();
    let client = site.client().await;
    add_full_mesh(&mut client.clone(), 2).await;
    put(&client, 1, "h2").await;
    let state = site.path("s1");
    let config = site.path("s1.toml");
    std::fs::write(
        &config,
        format!(
            "name = \"s1\"\ncontroller = \"{}\"\nstate_dir = \"{}\"\nlookup = \"127.0.0.1:0\"\n",
            site.url,
            state.display()
        ),
    )
    .unwrap();
    let start = || Process::spawn(&["switch", "--config", config.to_str().unwrap()]);
    let process = start();
    eventually("the switch in step", async || in_step(&client).await == 1).await;
    eventually("its memory is known", async || memory_of_first(&client).await.is_some()).await;
    let memory = memory_of_first(&client).await.unwrap();
    assert!(memory.resident_bytes > 0 && memory.parts.iter().any(|part| part.part == "fib"), "{memory:?}");
    assert_eq!(process.terminate(), Some(0));
    drop(controller);

    let image = state.join("image");
    let saved = std::fs::read(&image).unwrap();
    let replica = Replica::load(Limits::default(), MemoryTables::default(), &saved).unwrap();
    assert_eq!(replica.action(&name(1)).port(), Some(PortId(2)));
    assert_eq!(start().terminate(), Some(0));

    // A damaged image is set aside; the switch starts empty.
    std::fs::write(&image, &saved[..saved.len() / 2]).unwrap();
    assert_eq!(start().terminate(), Some(0));
    assert!(state.join("image.bad").exists() && !image.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn switch_removed_and_added_again_comes_back_by_itself() {
    let site = Site::new("");
    let _controller = site.start();
    let mut client = site.client().await;
    add_full_mesh(&mut client, 2).await;
    let switch = site.switch("s2");
    put(&client, 1, "h2").await;
    eventually("in step", async || in_step(&client).await == 1).await;

    client.remove_names(v1::RemoveNamesRequest { names: vec![mac(1)], ignore_missing: false }).await.unwrap();
    client.remove_host(v1::RemoveHostRequest { name: "h2".to_owned() }).await.unwrap();
    let end = Some(v1::LinkEnd { switch: "s2".to_owned(), port: 1 });
    client.remove_link(v1::RemoveLinkRequest { end }).await.unwrap();
    client.remove_switch(v1::RemoveSwitchRequest { name: "s2".to_owned() }).await.unwrap();
    client.add_switch(v1::AddSwitchRequest { name: "s2".to_owned(), tenants: vec![] }).await.unwrap();
    client
        .add_host(v1::Host { name: "h2".to_owned(), switch: "s2".to_owned(), port: HOST_PORT, ..v1::Host::default() })
        .await
        .unwrap();
    put(&client, 2, "h2").await;
    eventually("in step again", async || in_step(&client).await == 1).await;
    assert_eq!(switch.replica().action(&name(2)).port(), Some(PortId(HOST_PORT as u16)));
    assert_eq!(switch.replica().tables().valid.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn switch_follows_a_controller_whose_store_was_set_back() {
    let site = Site::new("");
    let controller = site.start();
    let client = site.client().await;
    add_full_mesh(&mut client.clone(), 1).await;
    put(&client, 1, "h1").await;
    assert_eq!(controller.terminate(), Some(0));
    let stores = || {
        let files = std::fs::read_dir(site.path("")).unwrap().map(|file| file.unwrap().path());
        files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("rib.")).collect::<Vec<_>>()
    };
    let backup: Vec<_> = stores().into_iter().map(|path| (std::fs::read(&path).unwrap(), path)).collect();

    let switch = site.switch("s1");
    for i in 2..6 {
        let controller = site.start();
        let client = site.client().await;
        put(&client, i, "h1").await;
        eventually("in step", async || in_step(&client).await == 1).await;
        controller.kill();
    }
    stores().iter().for_each(|path| std::fs::remove_file(path).unwrap());
    backup.iter().for_each(|(bytes, path)| std::fs::write(path, bytes).unwrap());
    let _controller = site.start();
    let client = site.client().await;
    put(&client, 9, "h1").await;
    eventually("in step with the older state", async || in_step(&client).await == 1).await;
    let replica = switch.replica();
    assert_eq!(replica.action(&name(9)).port(), Some(PortId(HOST_PORT as u16)));
    assert_eq!(replica.tables().valid.len(), 2, "the names of the backup, and the new one");
}

#[tokio::test(flavor = "multi_thread")]
async fn switches_that_nobody_added_wait_to_be_accepted_or_are_added_at_once() {
    let pending = async |client: &Client| -> Vec<String> {
        let list = client.clone().list_switches(v1::ListSwitchesRequest {}).await.unwrap().into_inner();
        list.pending.into_iter().map(|switch| switch.name).collect()
    };
    let site = Site::new("");
    let _controller = site.start();
    let mut client = site.client().await;
    add_full_mesh(&mut client, 1).await;
    let (_one, _nine) = (site.switch("s1"), site.switch("s9"));
    eventually("s9 is listed", async || pending(&client).await == ["s9"]).await;
    let request =
        |names: &[&str]| v1::AcceptSwitchesRequest { names: names.iter().map(|&name| name.to_owned()).collect() };
    let unknown = client.accept_switches(request(&["s9", "s8"])).await.unwrap_err();
    assert!(unknown.message().starts_with("no switch `s8` waits to be accepted"), "{}", unknown.message());
    assert_eq!(pending(&client).await, ["s9"], "all or none");
    let listed = site.fibula(&["switch", "pending"]);
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(text.lines().any(|line| line.starts_with("s9") && line.contains("127.0.0.1")), "{text}");
    assert!(site.fibula(&["switch", "accept", "s9"]).status.success());
    assert_eq!(pending(&client).await, [""; 0]);
    eventually("both are in step", async || in_step(&client).await == 2).await;

    for (auto, known) in [("off", 0), ("on", 1)] {
        let site = Site::new(&format!("auto_switches = \"{auto}\""));
        let _controller = site.start();
        let client = site.client().await;
        let refused = Manual::attach(&site, hello("s9", report(&replica()))).await;
        assert_eq!(refused.is_ok(), auto == "on");
        let list = client.clone().list_switches(v1::ListSwitchesRequest {}).await.unwrap().into_inner();
        assert_eq!((list.switches.len(), list.pending.len()), (known, 0), "{auto}");
        // What is no name for a switch is refused as before.
        assert!(Manual::attach(&site, hello("no name", report(&replica()))).await.is_err());
        assert_eq!(pending(&client).await, [""; 0]);
    }
}
