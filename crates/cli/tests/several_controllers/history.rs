//! Whatever stands still, is cut off or dies: all changes that were answered have one order, that in which they were made.
//!
//! Operators change a few names through controllers as processes, and write down when they asked, what, and what they were
//! told. Meanwhile controllers are killed, stopped (SIGSTOP) and continued, ended (SIGTERM), cut off from etcd, some so that
//! their requests arrive and the answers do not, and their dates are set forward and back; and members of etcd, the one that
//! leads them among them, are cut off from all others. At the end each name's history must have an order in which every answer is
//! right, no change comes before one that was answered before it was asked, and the last one gives what is found. (Wing and
//! Gong, "Testing and verifying concurrent objects", 1993.)

use crate::cables::{self, Cables};
use crate::member::Cluster;
use crate::proxy::{Passes, Proxy};
use crate::site::{N_CONTROLLERS, Site, clock_library, signal};
use crate::support::{Client, HOST_PORT, PATIENCE, mac, record};
use api::v1;
use lookup::testkit::{Rng, seed};
use netio::testkit::{in_namespace, may_make_namespaces, missing};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use time::format_description::well_known::Rfc3339;
use tonic::Code;

const N_NAMES: u32 = 10;
const N_OPERATORS: u64 = 4;

/// Faults of a run.
const N_FAULTS: u64 = 2;

/// Runs at the same time: they mostly wait.
const AT_ONCE: usize = 5;

/// How long an operator waits for an answer.
const ANSWER: Duration = Duration::from_secs(2);

/// A change of one name. Each put has a value of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    Put(u32),
    /// The name was there.
    Remove,
    /// It is unknown whether the name was there.
    RemoveIfThere,
}

/// A change that was made, or may have been.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    asked: Instant,
    /// None: it is unknown whether it was made, or will be.
    answered: Option<Instant>,
    what: What,
}

/// Whether there is an order of the changes of a name that ends with this value.
pub(crate) fn has_order(changes: &[Made], found: Option<u32>) -> bool {
    assert!(changes.len() <= 128, "{} changes of one name", changes.len());
    let all = changes.iter().enumerate().fold(0_u128, |all, (i, _)| all | 1 << i);
    let mut tried = HashSet::new();
    let mut stack = vec![(0_u128, None)];
    while let Some((made, value)) = stack.pop() {
        if !tried.insert((made, value)) {
            continue;
        }
        let left = || changes.iter().enumerate().filter(|(i, _)| made >> i & 1 == 0);
        // What nobody was told need not have been made.
        if value == found && left().all(|(_, change)| change.answered.is_none()) {
            return true;
        }
        debug_assert!(made != all || value != found);
        // The next one was asked before any that is left was answered.
        let until = left().filter_map(|(_, change)| change.answered).min();
        for (i, change) in left().filter(|(_, change)| until.is_none_or(|until| change.asked <= until)) {
            let next = match change.what {
                What::Put(new) => Some(new),
                What::Remove if value.is_none() => continue,
                What::Remove | What::RemoveIfThere => None,
            };
            stack.push((made | 1 << i, next));
        }
    }
    false
}

type History = Arc<Mutex<BTreeMap<u32, Vec<Made>>>>;

/// What is to become of a request that failed.
fn is_refused(code: Code) -> bool {
    matches!(code, Code::FailedPrecondition | Code::NotFound | Code::AlreadyExists | Code::ResourceExhausted)
}

struct Operator {
    rng: Rng,
    urls: Vec<String>,
    clients: Vec<Option<Client>>,
    /// The controller that answered last.
    at: usize,
    history: History,
    values: Arc<AtomicU32>,
}

impl Operator {
    async fn run(mut self, stop: Arc<AtomicBool>) {
        while !stop.load(Relaxed) {
            self.change().await;
            let pause = Duration::from_millis(20 + self.rng.below(80));
            #[expect(clippy::disallowed_methods, reason = "an operator thinks between two changes")]
            tokio::time::sleep(pause).await;
        }
    }

    async fn change(&mut self) {
        let name = self.rng.below(u64::from(N_NAMES)) as u32;
        let value = (self.rng.below(4) > 0).then(|| self.values.fetch_add(1, Relaxed));
        if self.clients[self.at].is_none() {
            let connected = api::client::connect(&self.urls[self.at], ANSWER).await;
            self.clients[self.at] = connected.ok().map(api::client::northbound);
        }
        let Some(client) = &mut self.clients[self.at] else {
            self.at = (self.at + 1) % N_CONTROLLERS;
            return;
        };
        let asked = Instant::now();
        let answer = async {
            match value {
                Some(tenant) => {
                    let names = vec![v1::NameRecord { tenant, ..record(name, "h1") }];
                    client.put_names(v1::PutNamesRequest { names, only_new: false }).await
                }
                None => {
                    let request = v1::RemoveNamesRequest { names: vec![mac(name)], ignore_missing: true };
                    client.remove_names(request).await
                }
            }
        };
        let answer = tokio::time::timeout(ANSWER, answer).await;
        let unsure = value.map_or(What::RemoveIfThere, What::Put);
        let (answered, what) = match answer {
            // A change that was none is not committed: it says what the controller knew.
            Ok(Ok(changed)) if changed.get_ref().changed == 0 => return,
            Ok(Ok(_)) => (Some(Instant::now()), value.map_or(What::Remove, What::Put)),
            Ok(Err(status)) if is_refused(status.code()) => {
                self.at = (self.at + 1) % N_CONTROLLERS;
                return;
            }
            Ok(Err(_)) | Err(_) => {
                self.clients[self.at] = None;
                self.at = (self.at + 1) % N_CONTROLLERS;
                (None, unsure)
            }
        };
        self.history.lock().unwrap().entry(name).or_default().push(Made { asked, answered, what });
    }
}

async fn pause(millis: u64) {
    #[expect(clippy::disallowed_methods, reason = "how long a fault lasts")]
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

/// Controllers that ended are started again, as systemd does.
async fn keep_running(site: &Arc<Mutex<Site>>, stop: Arc<AtomicBool>) {
    while !stop.load(Relaxed) {
        {
            let mut site = site.lock().unwrap();
            for i in 0..N_CONTROLLERS {
                let ended = site.running[i].as_mut().is_none_or(|child| child.try_wait().unwrap().is_some());
                if ended {
                    site.start(i);
                }
            }
        }
        pause(100).await;
    }
}

/// What happened in a run.
#[derive(Default, Debug)]
struct Counts {
    answered: usize,
    unsure: usize,
    faults: BTreeMap<&'static str, u32>,
    /// Records of audits with a date that is not the true one.
    misdated: usize,
}

/// Of faults.
fn n_kinds() -> u64 {
    if clock_library().is_some() { 6 } else { 5 }
}

async fn fault(rng: &mut Rng, site: &Arc<Mutex<Site>>, proxies: &[Vec<Proxy>], counts: &mut Counts) {
    let leads = |i: &usize| site.lock().unwrap().status(*i).is_ok_and(|status| status["follows"].is_null());
    // Mostly the one that leads.
    let leader = (0..N_CONTROLLERS).find(leads).filter(|_| rng.below(4) > 0);
    let who = leader.unwrap_or_else(|| rng.below(N_CONTROLLERS as u64) as usize);
    let id = || site.lock().unwrap().running[who].as_ref().map(std::process::Child::id);
    let what = match rng.below(n_kinds()) {
        0 => {
            if let Some(child) = &mut site.lock().unwrap().running[who] {
                let _ = child.kill();
            }
            "killed"
        }
        1 => {
            if let Some(id) = id() {
                signal(id, "TERM");
            }
            "ended"
        }
        2 => {
            if let Some(id) = id() {
                signal(id, "STOP");
                pause(2000 + rng.below(2500)).await;
                signal(id, "CONT");
            }
            "stopped"
        }
        3 => {
            proxies[who].iter().for_each(|proxy| proxy.set(Passes::Nothing));
            pause(2000 + rng.below(3000)).await;
            proxies[who].iter().for_each(|proxy| proxy.set(Passes::All));
            "cut off"
        }
        4 => {
            proxies[who].iter().for_each(|proxy| proxy.set(Passes::Requests));
            pause(500 + rng.below(4000)).await;
            proxies[who].iter().for_each(|proxy| proxy.set(Passes::All));
            "without answers"
        }
        _ => {
            // By seconds, as by a time server, to years, as by a dead battery.
            let seconds = 10_i64.pow(1 + rng.below(8) as u32);
            let back = rng.below(2) == 0;
            site.lock().unwrap().set_clock(who, if back { -seconds } else { seconds });
            pause(rng.below(2000)).await;
            "set to another date"
        }
    };
    *counts.faults.entry(what).or_default() += 1;
}

async fn run(seed: u64, members: Vec<String>) -> Result<Counts, String> {
    let mut rng = Rng::new(seed);
    let mut proxies = Vec::new();
    for _ in 0..N_CONTROLLERS {
        let mut of_one = Vec::new();
        for member in &members {
            of_one.push(Proxy::new(member.clone()).await);
        }
        proxies.push(of_one);
    }
    let store = |i: usize| {
        let members: Vec<String> = proxies[i].iter().map(|proxy| format!("127.0.0.1:{}", proxy.port)).collect();
        format!("etcd://{}/run{seed}", members.join(","))
    };
    let site = Arc::new(Mutex::new(Site::new(store)));
    let urls: Vec<String> = site.lock().unwrap().urls().split(',').map(str::to_owned).collect();
    let ended = Arc::new(AtomicBool::new(false));
    let (kept, stop) = (Arc::clone(&site), Arc::clone(&ended));
    let keeper = tokio::spawn(async move { keep_running(&kept, stop).await });

    set_up(&urls).await;
    let history = History::default();
    let (values, quiet) = (Arc::new(AtomicU32::new(1)), Arc::new(AtomicBool::new(false)));
    let mut operators = tokio::task::JoinSet::new();
    for i in 0..N_OPERATORS {
        let operator = Operator {
            rng: Rng::new(seed ^ (i + 1) << 32),
            urls: urls.clone(),
            clients: (0..N_CONTROLLERS).map(|_| None).collect(),
            at: i as usize % N_CONTROLLERS,
            history: Arc::clone(&history),
            values: Arc::clone(&values),
        };
        operators.spawn(operator.run(Arc::clone(&quiet)));
    }
    let mut counts = Counts::default();
    for _ in 0..N_FAULTS {
        pause(rng.below(800)).await;
        fault(&mut rng, &site, &proxies, &mut counts).await;
    }
    pause(1000).await;
    quiet.store(true, Relaxed);
    while operators.join_next().await.is_some() {}

    let found = found(&urls).await;
    ended.store(true, Relaxed);
    keeper.await.unwrap();
    counts.misdated = misdated(&site.lock().unwrap());
    for (name, changes) in &*history.lock().unwrap() {
        counts.answered += changes.iter().filter(|change| change.answered.is_some()).count();
        counts.unsure += changes.iter().filter(|change| change.answered.is_none()).count();
        let value = found.get(&mac(*name)).copied();
        if !has_order(changes, value) {
            return Err(format!("seed {seed}: name {name} has {value:?} in the end, after {changes:#?}"));
        }
    }
    Ok(counts)
}

/// Adds a switch with a host, whichever controller leads meanwhile.
async fn set_up(urls: &[String]) {
    let began = Instant::now();
    let is_there = |done: &Result<_, tonic::Status>| match done {
        Ok(_) => true,
        Err(status) => status.code() == Code::AlreadyExists,
    };
    loop {
        let mut client = leader(urls, &[]).await;
        let switch = client.add_switch(v1::AddSwitchRequest { name: "s1".to_owned(), tenants: vec![] }).await;
        let host = v1::Host { name: "h1".to_owned(), switch: "s1".to_owned(), port: HOST_PORT, ..v1::Host::default() };
        let host = client.add_host(host).await;
        if is_there(&switch) && is_there(&host) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{switch:?}, {host:?}");
        pause(50).await;
    }
}

/// All names and their values in the end. A controller that commits now says what there is: what is still on the way comes too late.
async fn found(urls: &[String]) -> BTreeMap<String, u32> {
    let began = Instant::now();
    loop {
        let mut client = leader(urls, &[record(N_NAMES, "h1")]).await;
        let exported = async {
            let mut found = BTreeMap::new();
            let mut batches = client.export_names(v1::ExportNamesRequest {}).await?.into_inner();
            while let Some(batch) = batches.message().await? {
                found.extend(batch.names.into_iter().map(|name| (name.name, name.tenant)));
            }
            Ok::<_, tonic::Status>(found)
        };
        match exported.await {
            Ok(found) => return found,
            Err(status) => assert!(began.elapsed() < PATIENCE, "{status}"),
        }
    }
}

/// Records of the controllers' audits that were not written in the last minutes, by their dates.
fn misdated(site: &Site) -> usize {
    let now = time::OffsetDateTime::from(api::clock::now());
    let audits = (0..N_CONTROLLERS).map(|i| site.directory.path().join(format!("audit{i}.jsonl")));
    let texts = audits.map(|audit| std::fs::read_to_string(audit).unwrap_or_default());
    let is_other = |record: &str| {
        let record: serde_json::Value = serde_json::from_str(record).ok()?;
        let date = time::OffsetDateTime::parse(record["time"].as_str()?, &Rfc3339).ok()?;
        Some((now - date).abs() > Duration::from_secs(600))
    };
    texts.map(|text| text.lines().filter(|record| is_other(record) == Some(true)).count()).sum()
}

/// A client of the one that leads, once it has put these names.
async fn leader(urls: &[String], names: &[v1::NameRecord]) -> Client {
    let began = Instant::now();
    loop {
        for url in urls {
            let asked = tokio::time::timeout(ANSWER, async {
                let mut client = api::client::northbound(api::client::connect(url, ANSWER).await.ok()?);
                let status = client.get_status(v1::GetStatusRequest {}).await.ok()?.into_inner();
                let put = v1::PutNamesRequest { names: names.to_vec(), only_new: false };
                (status.leader.is_empty() && client.put_names(put).await.is_ok()).then_some(client)
            });
            if let Ok(Some(client)) = asked.await {
                return client;
            }
        }
        assert!(began.elapsed() < PATIENCE, "no controller leads");
        pause(50).await;
    }
}

/// Members of etcd are cut off, one at a time, until this is aborted; `cuts` counts.
async fn cut_members(mut rng: Rng, n_members: usize, cuts: Arc<AtomicU32>) {
    loop {
        pause(1000 + rng.below(4000)).await;
        let member = rng.below(n_members as u64) as usize;
        cables::set(member, false);
        // Until the others have chosen another to lead them, and less.
        pause(200 + rng.below(3000)).await;
        cables::set(member, true);
        cuts.fetch_add(1, Relaxed);
    }
}

pub(crate) fn hold_over_many_seeds() {
    if may_make_namespaces() {
        in_namespace(|| hold_with(Some(&Cables::lay(3))));
    } else {
        missing("root, or CAP_SYS_ADMIN, to cut members of etcd off");
        hold_with(None);
    }
}

fn hold_with(cables: Option<&Cables>) {
    let first = seed();
    println!("seed {first}");
    let n_runs = if std::env::var_os("FIBULA_DEEP").is_some() { 1000 } else { 20 };
    let cluster = match cables {
        Some(cables) => Cluster::start_at(cables.places(), &[]),
        None => Cluster::start(3, &[]),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (members, cuts) = (cluster.members(), Arc::new(AtomicU32::new(0)));
    let sum = runtime.block_on(async {
        let cutting = cutting(cables.is_some(), first, members.len(), &cuts);
        let (mut running, mut sum) = (tokio::task::JoinSet::new(), Counts::default());
        for i in 0..n_runs {
            if running.len() == AT_ONCE {
                add(&mut sum, running.join_next().await);
            }
            running.spawn(run(first.wrapping_add(i), members.clone()));
            if i > 0 && i % 100 == 0 {
                println!("{i} runs have begun: {sum:?}, members of etcd cut off: {}", cuts.load(Relaxed));
            }
        }
        while !running.is_empty() {
            add(&mut sum, running.join_next().await);
        }
        cutting.abort();
        sum
    });
    let cuts = cuts.load(Relaxed);
    println!("{n_runs} runs: {sum:?}, members of etcd cut off: {cuts}");
    assert!(sum.answered as u64 > 20 * n_runs && sum.faults.len() as u64 == n_kinds(), "{sum:?}");
    assert!(cables.is_none() || u64::from(cuts) > n_runs / 10, "members of etcd cut off: {cuts}");
    if n_kinds() == 6 {
        assert!(sum.misdated > 0, "no controller took the date that was set: {sum:?}");
    } else {
        missing("libfaketime, which sets the dates of controllers (scripts/setup test)");
    }
    runtime.shutdown_timeout(Duration::from_secs(1));
}

fn cutting(is_cut: bool, seed: u64, n_members: usize, cuts: &Arc<AtomicU32>) -> tokio::task::JoinHandle<()> {
    let cuts = Arc::clone(cuts);
    tokio::spawn(async move {
        if is_cut {
            cut_members(Rng::new(!seed), n_members, cuts).await;
        }
    })
}

fn add(sum: &mut Counts, done: Option<Result<Result<Counts, String>, tokio::task::JoinError>>) {
    let counts = match done.unwrap() {
        Ok(Ok(counts)) => counts,
        Ok(Err(violation)) => panic!("{violation}"),
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    };
    sum.answered += counts.answered;
    sum.unsure += counts.unsure;
    sum.misdated += counts.misdated;
    counts.faults.into_iter().for_each(|(what, n)| *sum.faults.entry(what).or_default() += n);
}

pub(crate) mod tests {
    use super::*;

    /// Changes with the times at which they were asked for and answered.
    fn order(changes: &[(u64, Option<u64>, What)], found: Option<u32>) -> bool {
        let began = Instant::now();
        let at = |millis| began + Duration::from_millis(millis);
        let made: Vec<Made> = changes
            .iter()
            .map(|&(asked, answered, what)| Made { asked: at(asked), answered: answered.map(at), what })
            .collect();
        has_order(&made, found)
    }

    pub(crate) fn wrong_histories_are_found() {
        use What::{Put, Remove, RemoveIfThere};
        let two = [(0, Some(1), Put(1)), (2, Some(3), Put(2))];
        assert!(order(&[], None) && order(&two, Some(2)));
        // The last one is lost, the first one comes again, one that nobody made.
        assert!(!order(&two, Some(1)) && !order(&two, None) && !order(&two, Some(3)));
        // Two at the same time come in any order.
        let both = [(0, Some(5), Put(1)), (2, Some(3), Put(2))];
        assert!(order(&both, Some(1)) && order(&both, Some(2)) && !order(&both, None));
        // What nobody was told may be made, at any time after it was asked for, or not.
        let unsure = [(0, Some(1), Put(1)), (2, None, Put(2)), (3, Some(4), Put(3))];
        assert!(order(&unsure, Some(3)) && order(&unsure, Some(2)) && !order(&unsure, Some(1)));
        // But not before.
        let late = [(0, Some(1), Put(1)), (2, Some(3), Put(2)), (4, None, RemoveIfThere)];
        assert!(order(&late, None) && order(&late, Some(2)) && !order(&late, Some(1)));
        // A removal that removed something had something to remove.
        assert!(!order(&[(0, Some(1), Remove)], None));
        assert!(order(&[(0, Some(9), Remove), (1, Some(2), Put(1))], None));
        assert!(!order(&[(0, Some(1), Remove), (2, Some(3), Put(1))], Some(1)));
        let again = [(0, Some(1), Put(1)), (2, Some(3), Remove), (4, Some(5), Remove)];
        assert!(!order(&again, None));
        // Many at the same time are judged, too.
        let many: Vec<_> = (0..100).map(|i| (i, Some(i + 5), Put(i as u32))).collect();
        assert!(order(&many, Some(99)) && order(&many, Some(95)) && !order(&many, Some(60)));
    }
}
