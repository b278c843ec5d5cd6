//! Three controllers as processes on three members of etcd: the one that leads is killed while names change, and the others
//! serve what is committed. Without etcd the tests are skipped.

mod cables;
mod history;
#[path = "../../../controller/tests/etcd/member.rs"]
mod member;
mod proxy;
mod site;
#[path = "../support/mod.rs"]
mod support;
mod views;

use api::v1;
use dataplane::links::{LinkState, Neighbour};
use fib::action::PortId;
use fib::replica::{Limits, MemoryTables, Replica};
use libtest_mimic::Arguments;
use member::Cluster;
use netio::testkit::{NAMESPACES, may_make_namespaces, path, runs_here, trial};
use site::{N_CONTROLLERS, Site};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{Client, FIBULA, PATIENCE, add_full_mesh, eventually, exit_code, mac, record, stderr};
use switch::daemon::agent;
use switch::daemon::links::Trunk;

const N_KILLS: usize = 4;

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
    let mut site = Site::new(|_| store.clone());
    (0..N_CONTROLLERS).for_each(|i| site.start(i));
    let (_, mut client) = site.wait_for_leader().await;
    add_full_mesh(&mut client, 3).await;
    let switch = |name: &str| {
        let replica = agent::Shared::new(Replica::new(Limits::default(), MemoryTables::default()));
        let memory: Arc<dyn agent::About> = Arc::new(|| api::memory::usage(10, &[("fib", 25)]));
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
    links_are_as_switches_see_them(&mut site, &switches).await;

    (0..N_CONTROLLERS).for_each(|i| site.kill(i));
    copied_there_and_back(site.directory.path(), &store, &cluster.address("other"));
}

/// What a switch sees at its trunks counts, whichever controller serves it; also what it saw while none led.
async fn links_are_as_switches_see_them(site: &mut Site, switches: &[(String, Arc<agent::Shared<MemoryTables>>); 3]) {
    // Port `j` of switch `i` leads to switch `j`.
    let see = |i: usize, cut: bool| {
        let (others, now) = ((1..=3_u16).filter(|j| usize::from(*j) != i), Instant::now());
        let trunk = |j: u16| Trunk {
            port: PortId(j),
            state: if cut { LinkState::NoCarrier } else { LinkState::Up },
            since: now,
            is_down: cut,
            neighbour: (!cut).then(|| Neighbour { switch: format!("s{j}"), port: PortId(i as u16) }),
            device: None,
            falls: (0, Duration::ZERO),
        };
        switches[i - 1].1.set_trunks(others.map(trunk).collect());
    };
    let cut = async |client: &Client| {
        let links = client.clone().list_links(v1::ListLinksRequest {}).await;
        links.map_or(9, |links| links.into_inner().links.iter().filter(|link| link.cut).count())
    };
    for i in 1..=3 {
        (1..=3).for_each(|all| see(all, false));
        let (_, client) = site.wait_for_leader().await;
        eventually("all links are whole", async || cut(&client).await == 0).await;
        see(i, true);
        eventually("both links of one switch are cut", async || cut(&client).await == 2).await;
    }
    let (leader, _) = site.wait_for_leader().await;
    site.kill(leader);
    see(3, false);
    let (_, client) = site.wait_for_leader().await;
    eventually("the next one knows what is whole again", async || cut(&client).await == 0).await;
    for i in (0..N_CONTROLLERS).filter(|i| *i != leader) {
        let follower = site.client(i).await;
        eventually("and the others follow", async || cut(&follower).await == 0).await;
        assert_eq!(site.status(i).unwrap()["strayed"], 0);
    }
    site.start(leader);
}

/// What is acknowledged can be read everywhere at once, changes are refused where they cannot be made, and a switch that goes
/// on to another controller is sent nothing.
async fn followers_serve(site: &Site, mut next: u32) {
    let (leader, mut client) = site.wait_for_leader().await;
    let followers: Vec<usize> = (0..N_CONTROLLERS).filter(|i| *i != leader).collect();
    let address = format!("127.0.0.1:{}", site.ports[leader].0);
    for i in &followers {
        let follows =
            |status: serde_json::Value| status["position"].is_u64() && status["follows"]["address"] == address;
        eventually("it follows", async || site.status(*i).is_ok_and(follows)).await;
    }
    for _ in 0..30 {
        let put = v1::PutNamesRequest { names: vec![record(next, "h1")], only_new: true };
        client.put_names(put.clone()).await.unwrap();
        for i in &followers {
            let mut follower = site.client(*i).await;
            let read = follower.get_name(v1::GetNameRequest { name: mac(next), ..Default::default() }).await;
            assert_eq!(read.unwrap().into_inner().host, "h1", "what was acknowledged is not known");
            let refused = follower.put_names(put.clone()).await.unwrap_err();
            assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
            assert!(refused.message().contains(&address), "{refused}");
        }
        next += 1;
    }
    let replica = agent::Shared::new(Replica::new(Limits::default(), MemoryTables::default()));
    client.add_switch(v1::AddSwitchRequest { name: "s4".to_owned(), tenants: vec![] }).await.unwrap();
    for (nth, i) in [leader, followers[0], followers[1], leader].into_iter().enumerate() {
        let memory: Arc<dyn agent::About> = Arc::new(|| api::memory::usage(10, &[("fib", 25)]));
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
        // Otherwise this stream would be looked at when the switch comes back.
        eventually("its stream ends", async || !site.connected(i).contains(&"s4".to_owned())).await;
    }
    drained(site, &mut client).await;
    for i in followers {
        assert_eq!(site.status(i).unwrap()["strayed"], 0, "controller {i}");
    }
}

/// The switches of a controller that is drained, or stands still, go on to others, and come back afterwards.
async fn drained(site: &Site, client: &mut Client) {
    let names: Vec<String> = (0..12).map(|i| format!("d{i}")).collect();
    client.add_switches(v1::AddSwitchesRequest { names: names.clone() }).await.unwrap();
    let mut agents = tokio::task::JoinSet::new();
    for name in &names {
        let replica = agent::Shared::new(Replica::new(Limits::default(), MemoryTables::default()));
        let memory: Arc<dyn agent::About> = Arc::new(|| api::memory::usage(10, &[("fib", 25)]));
        agents.spawn(agent::run_with(name.clone(), site.urls(), None, replica, memory, Duration::from_millis(500)));
    }
    let serves = |i: usize| site.connected(i).into_iter().filter(|name| names.contains(name)).collect::<BTreeSet<_>>();
    let all_at = |which: &[usize]| which.iter().map(|i| serves(*i).len()).sum::<usize>() == names.len();
    eventually("all are served", async || all_at(&[0, 1, 2])).await;
    // Where each is at home, once none is on its way.
    let (began, mut before) = (Instant::now(), [0, 1, 2].map(serves));
    loop {
        assert!(began.elapsed() < PATIENCE, "switches go from one controller to the other all the time");
        #[expect(clippy::disallowed_methods, reason = "nothing says that nobody is on its way")]
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = std::mem::replace(&mut before, [0, 1, 2].map(serves));
        if now == before {
            break;
        }
    }
    let Some(who) = (0..N_CONTROLLERS).find(|i| !before[*i].is_empty()) else { panic!("somebody serves them") };
    let others: Vec<usize> = (0..N_CONTROLLERS).filter(|i| *i != who).collect();
    let url = format!("http://127.0.0.1:{}", site.ports[who].0);
    let fibula = |arguments: &[&str]| {
        let run = Command::new(FIBULA).args(arguments).env("PATH", path()).output().unwrap();
        assert_eq!(exit_code(&run), 0, "{}", stderr(&run));
        String::from_utf8(run.stdout).unwrap()
    };
    println!("{}", fibula(&["controller", "drain", "--controller", &url]));
    eventually("all are served by others", async || all_at(&others)).await;
    let list = fibula(&["controller", "list", "--controller", &site.urls()]);
    println!("{list}");
    assert!(list.contains("drained") && list.contains("leads") && list.contains("follows"), "{list}");
    fibula(&["controller", "resume", "--controller", &url]);
    // And none is listed by two.
    let are_back = || serves(who).is_superset(&before[who]) && all_at(&[0, 1, 2]);
    eventually("those that were there come back", async || are_back()).await;

    // One that stands still keeps its connections, and its switches go on to others all the same.
    let (leader, _) = site.wait_for_leader().await;
    let Some(still) = (0..N_CONTROLLERS).find(|i| *i != leader && !serves(*i).is_empty()) else {
        panic!("a follower serves one")
    };
    let (moving, others) = (serves(still), [(still + 1) % N_CONTROLLERS, (still + 2) % N_CONTROLLERS]);
    site.signal(still, "STOP");
    eventually("all are served by those that go on", async || all_at(&others)).await;
    site.signal(still, "CONT");
    let are_back = || serves(still).is_superset(&moving) && all_at(&[0, 1, 2]);
    eventually("those of the one that stood still come back", async || are_back()).await;
    agents.shutdown().await;
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

/// A controller of another network, with the prefix of this one by mistake, says so and harms nothing, not even when it could
/// lead.
async fn another_network_has_the_same_prefix() {
    let cluster = Cluster::start(1, &[]);
    let store = cluster.address("site");
    let mut site = Site::new(|_| store.clone());
    let config = site.directory.path().join("1.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("name_kind = \"mac\"", "name_kind = \"ipv4\"")).unwrap();
    site.start(0);
    let (_, mut client) = site.wait_for_leader().await;
    add_full_mesh(&mut client, 2).await;
    let put = |i| v1::PutNamesRequest { names: vec![record(i, "h1")], only_new: true };
    client.put_names(put(1)).await.unwrap();

    let log = site.directory.path().join("1.log");
    let stderr = std::fs::File::create(&log).unwrap();
    let mut other = Command::new(FIBULA).args(["controller", "--config"]).arg(&config).stderr(stderr).spawn().unwrap();
    let says = || std::fs::read_to_string(&log).unwrap_or_default();
    eventually("it says what differs", async || says().contains("the kind of name is mac in the store")).await;
    client.put_names(put(2)).await.unwrap();
    site.kill(0);
    let ended = tokio::task::spawn_blocking(move || other.wait().unwrap());
    assert!(!ended.await.unwrap().success());
    site.start(0);
    let (_, mut client) = site.wait_for_leader().await;
    assert_eq!(names(&mut client).await.len(), 2);
    client.put_names(put(3)).await.unwrap();
}

/// Two controllers of an upgraded network find the store as it was before: they cannot follow, and go on trying. One leads, converts the store,
/// and the other follows it and serves.
async fn a_store_is_converted_while_another_waits() {
    let cluster = Cluster::start(1, &[]);
    let store = cluster.address("site");
    let mut site = Site::new(|_| store.clone());
    site.start(0);
    let (_, mut client) = site.wait_for_leader().await;
    add_full_mesh(&mut client, 2).await;
    let names = (0..2000).map(|i| record(i, "h2")).collect();
    client.put_names(v1::PutNamesRequest { names, only_new: true }).await.unwrap();
    // Another design stands for what a new version stores otherwise: both make rows at the start that the store does not have.
    for i in [1, 2] {
        let config = site.directory.path().join(format!("{i}.toml"));
        let text = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, format!("gateway_design = \"line\"\n{text}")).unwrap();
        site.start(i);
    }
    let waits = |i: usize| site.log(i).contains("this controller cannot follow yet");
    eventually("both wait", async || waits(1) && waits(2)).await;
    site.kill(0);
    let (leader, _) = site.wait_for_leader().await;
    let (other, address) = (3 - leader, format!("127.0.0.1:{}", site.ports[leader].0));
    let replica = agent::Shared::new(Replica::new(Limits::default(), MemoryTables::default()));
    let memory: Arc<dyn agent::About> = Arc::new(|| api::memory::usage(10, &[("fib", 25)]));
    let url = format!("http://127.0.0.1:{}", site.ports[other].0);
    tokio::spawn(agent::run("s1".to_owned(), url, None, Arc::clone(&replica), memory));
    let has = |n: usize| replica.replica().tables().valid.len() == n;
    eventually("a switch has all names from the one that waited", async || has(2000)).await;
    let status = site.status(other).unwrap();
    assert_eq!((&status["follows"]["address"], &status["strayed"]), (&address.into(), &0.into()), "{status}");
    assert!(!site.log(other).contains("it serves no requests until it leads"), "{}", site.log(other));
    assert!(site.log(leader).contains("the configuration names other FIB designs"), "{}", site.log(leader));
    // And what the leader then commits.
    let (_, mut client) = site.wait_for_leader().await;
    client.put_names(v1::PutNamesRequest { names: vec![record(2000, "h2")], only_new: true }).await.unwrap();
    eventually("it also follows what comes", async || has(2001)).await;
}

/// Frames of real hosts while names change, through switches that three controllers serve.
fn network_goes_on_when_the_leader_is_killed() {
    let arguments = ["--json", "demo", "--topology", "ring", "--controllers", "3", "--names", "500", "--seconds", "3"];
    let demo = Command::new(FIBULA).args(arguments).env("PATH", path()).output().unwrap();
    assert_eq!(exit_code(&demo), 0, "{}", stderr(&demo));
    let report: serde_json::Value = serde_json::from_slice(&demo.stdout).unwrap();
    assert_eq!(report["frames_misdelivered"], 0, "{report}");
    for lost in ["moved_on_ms", "leaderless_ms"] {
        assert!(report[lost].as_f64().is_some_and(|ms| ms > 0.0), "{lost}: {report}");
    }
    assert!(report["names_added"].as_u64() > Some(0) && report["frames_delivered"].as_u64() > Some(0), "{report}");
}

fn in_runtime(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test);
    runtime.shutdown_timeout(Duration::from_secs(1));
}

fn main() -> ExitCode {
    let has_etcd = member::etcd().is_some();
    let with_etcd = |name, test: fn()| runs_here(trial(name, test), has_etcd, member::ETCD);
    // Reported once, for want of etcd or else of namespaces.
    let demo = with_etcd("network_goes_on_when_the_leader_is_killed", network_goes_on_when_the_leader_is_killed);
    let demo = if has_etcd { runs_here(demo, may_make_namespaces(), NAMESPACES) } else { demo };
    let trials = vec![
        with_etcd("killed_leaders_lose_nothing_acknowledged_and_switches_move_on", || in_runtime(leaders_are_killed())),
        with_etcd("another_network_with_the_same_prefix_is_refused_and_harms_nothing", || {
            in_runtime(another_network_has_the_same_prefix());
        }),
        with_etcd("a_store_is_converted_while_another_waits", || {
            in_runtime(a_store_is_converted_while_another_waits());
        }),
        with_etcd("every_view_is_whole_whichever_controller_is_asked", || in_runtime(views::are_whole())),
        with_etcd("whatever_stands_still_is_cut_off_or_dies_the_changes_have_one_order", history::hold_over_many_seeds),
        demo,
        trial("wrong_histories_are_found", history::tests::wrong_histories_are_found),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
