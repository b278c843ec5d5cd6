//! A controller, two switches that follow it from within this process, and a switch that is a process; each round kills one
//! process at one moment, and goes on with what it left.

use crate::ledger::{Ledger, N_SWITCHES, Request, State, state_of};
use crate::process::{Binary, Daemon, Started, is_kill, never};
use crate::site::{Crash, Of};
use crate::support::{Client, HOST_PORT, PATIENCE, Site, mac};
use api::{audit, v1};
use fib::action::PortId;
use fib::name::{Name, NameKind};
use fib::replica::{Limits, MemoryTables, Replica};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};
use switch::daemon::agent;
use tokio::task::{AbortHandle, block_in_place};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Sets of requests to a controller that is to be killed: enough for the last moment of most steps.
const LOAD: usize = 30;
/// The same beside a switch.
const SWITCH_LOAD: usize = 10;

/// What was done and seen.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Totals {
    pub(crate) rounds: u64,
    /// Processes that killed themselves where they were to.
    pub(crate) kills: u64,
    pub(crate) requests: u64,
    /// Stops in order.
    pub(crate) stops: u64,
    /// Answers of switches that were compared.
    pub(crate) checks: u64,
}

type Follower = Arc<agent::Shared<MemoryTables>>;

/// All of it.
pub(crate) struct World {
    pub(crate) site: Site,
    pub(crate) rng: StdRng,
    pub(crate) totals: Totals,
    binary: Binary,
    ledger: Ledger,
    /// Runs in order, for rounds that kill something else.
    controller: Option<Daemon>,
    followers: Vec<Follower>,
    agents: Vec<AbortHandle>,
    /// What the last rounds did, for anyone who reads why one failed.
    after: String,
    fresh_states: u32,
    copies: u32,
}

impl World {
    /// With a file that the steps go to that processes take, and a mistake that they make.
    pub(crate) fn new(seed: u64, seen: Option<PathBuf>, mistake: Option<&'static str>) -> World {
        let follower = |_| agent::Shared::new(Replica::new(Limits::default(), MemoryTables::default()));
        let site = Site::new("phase_timeout_ms = 50\n");
        World {
            binary: Binary { log: site.path("log"), seen, mistake },
            site,
            rng: StdRng::seed_from_u64(seed),
            totals: Totals::default(),
            ledger: Ledger::default(),
            controller: None,
            followers: (1..N_SWITCHES).map(follower).collect(),
            agents: Vec::new(),
            after: "the start".to_owned(),
            fresh_states: 0,
            copies: 0,
        }
    }

    /// Kills a process at this moment, if it reaches it.
    pub(crate) async fn round(&mut self, crash: &Crash) {
        let killed = match crash.of {
            Of::Controller => self.controller_round(crash).await,
            Of::Switch => self.switch_round(crash).await,
            Of::Backup => self.backup_round(crash).await,
            Of::Restore => self.restore_round(crash).await,
            Of::Repair => self.repair_round(crash).await,
            Of::Pki => block_in_place(|| crate::pki::round(&self.site.path("pki"), crash, &self.binary)),
        };
        self.totals.rounds += 1;
        self.totals.kills += u64::from(killed);
        self.after =
            format!("{}, then {:?} {crash}", self.after.rsplit(", then ").next().unwrap_or_default(), crash.of);
    }

    fn config(&self) -> String {
        self.site.path("controller.toml").to_str().unwrap().to_owned()
    }

    /// Stops the controller in order, if one runs.
    fn stop(&mut self) {
        self.agents.drain(..).for_each(|agent| agent.abort());
        if let Some(controller) = self.controller.take() {
            let status = block_in_place(|| controller.stop());
            assert!(status.success(), "after {}: the controller stopped with {status}", self.after);
            self.totals.stops += 1;
        }
    }

    /// Waits for what should happen soon.
    async fn soon<T>(&self, what: &str, wait: impl Future<Output = T>) -> T {
        let got = tokio::time::timeout(PATIENCE, wait).await;
        got.unwrap_or_else(|_| never(&format!("{what}, after {}", self.after), &self.binary.log))
    }

    async fn connect(&self) -> Option<Client> {
        Some(api::client::northbound(api::client::connect(&self.site.url, CONNECT_TIMEOUT).await.ok()?))
    }

    /// A controller that is not killed, with what there should be.
    async fn serve(&mut self) -> Client {
        if self.controller.is_none() {
            let config = self.config();
            let started = block_in_place(|| self.binary.start(&["controller", "--config", &config], None));
            let Started::Serves(controller) = started else { panic!("after {}: no controller starts", self.after) };
            self.controller = Some(controller);
            let mut client = self.connect().await.expect("it serves");
            let state = self.soon("what there is", state_of(&mut client)).await.expect("it answers");
            self.check(&state);
            for request in self.ledger.missing_network() {
                self.make(&client, &request).await;
            }
            self.follow();
        }
        self.connect().await.expect("it serves")
    }

    /// All that was acknowledged is there, and is on record.
    fn check(&mut self, found: &State) {
        let trail = self.site.path("rib.audit.jsonl");
        let records = audit::records(&trail).unwrap();
        let records = records.map(|record| record.unwrap_or_else(|error| panic!("after {}: {error}", self.after)));
        let n_done = records.filter(|record| record.outcome == audit::Outcome::Done).count() as u64;
        let (least, most) = self.ledger.n_done();
        assert!((least..=most).contains(&n_done), "after {}: {n_done} records of {least} to {most}", self.after);
        self.ledger.check(found, &self.after);
    }

    /// A request that nothing speaks against.
    async fn make(&mut self, client: &Client, request: &Request) {
        let mut client = client.clone();
        let answer = self.soon(&format!("the answer to {request:?}"), request.send(&mut client)).await;
        answer.unwrap_or_else(|status| panic!("after {}: {status} to {request:?}", self.after));
        self.ledger.acknowledge(request);
    }

    /// The followers connect, with what they had before.
    fn follow(&mut self) {
        self.agents.drain(..).for_each(|agent| agent.abort());
        for (i, follower) in (1..).zip(&self.followers) {
            let memory: Arc<dyn agent::About> = Arc::new(|| api::memory::usage(10, &[]));
            let run = agent::run(format!("s{i}"), self.site.url.clone(), None, Arc::clone(follower), memory);
            self.agents.push(tokio::spawn(run).abort_handle());
        }
    }

    /// Makes requests until the daemon ends or these are made. Returns whether it has ended.
    async fn load(&mut self, client: &Client, daemon: &mut Daemon, n: usize) -> bool {
        let mut firsts = self.ledger.missing_network();
        firsts.reverse();
        for _ in 0..n + firsts.len() {
            let was_complete = firsts.is_empty();
            let requests = firsts.pop().map_or_else(|| self.ledger.next(&mut self.rng), |first| vec![first]);
            if firsts.is_empty() && !was_complete {
                self.follow();
            }
            let asked = requests.into_iter().map(|request| {
                let mut client = client.clone();
                tokio::spawn(async move { (request.send(&mut client).await, request) })
            });
            let asked: Vec<_> = asked.collect();
            let mut failed = None;
            for answer in asked {
                let (answer, request) = self.soon("the answer to a request", answer).await.unwrap();
                match answer {
                    Ok(()) => self.ledger.acknowledge(&request),
                    Err(status) => {
                        failed = Some(format!("{status} to {request:?}"));
                        self.ledger.leave_open(request);
                    }
                }
            }
            if let Some(failed) = failed {
                block_in_place(|| daemon.ended(&failed));
                return true;
            }
        }
        false
    }

    async fn controller_round(&mut self, crash: &Crash) -> bool {
        self.stop();
        // What only a new store does, and sometimes anything, is done with a new store.
        let is_of_new = crash.step == "log.grow" || crash.step.starts_with("store.");
        if is_of_new || crash.nth == 1 && self.rng.random_bool(0.1) {
            self.begin_anew().await;
        }
        let what = format!("{} with {crash}", self.after);
        let config = self.config();
        let started = block_in_place(|| self.binary.start(&["controller", "--config", &config], Some(crash)));
        let mut daemon = match started {
            Started::Ended(status) => return is_kill(status, &what),
            Started::Serves(daemon) => daemon,
        };
        let state = match self.connect().await {
            Some(mut client) => {
                let state = self.soon("what there is", state_of(&mut client)).await;
                state.map(|state| (client, state)).ok()
            }
            None => None,
        };
        let Some((client, state)) = state else { return is_kill(block_in_place(|| daemon.ended(&what)), &what) };
        self.check(&state);
        if self.ledger.missing_network().is_empty() {
            self.follow();
        }
        let ended = self.load(&client, &mut daemon, LOAD).await;
        if !ended && !daemon.has_ended() && self.rng.random_bool(0.2) {
            self.until_in_step(&client, N_SWITCHES as usize - 1, &mut daemon).await;
        }
        self.totals.requests = self.ledger.n_acknowledged;
        self.agents.drain(..).for_each(|agent| agent.abort());
        let status = block_in_place(|| if ended { daemon.ended(&what) } else { daemon.stop() });
        self.totals.stops += u64::from(status.success());
        is_kill(status, &what)
    }

    /// Checks what there is, and goes on with an empty directory.
    async fn begin_anew(&mut self) {
        self.settle().await;
        self.stop();
        let totals = self.totals;
        let n_acknowledged = self.ledger.n_acknowledged;
        let seed = self.rng.random();
        *self = World { totals, ..World::new(seed, self.binary.seen.take(), self.binary.mistake) };
        self.ledger.n_acknowledged = n_acknowledged;
    }

    async fn until_in_step(&self, client: &Client, n: usize, daemon: &mut Daemon) {
        let began = Instant::now();
        while !daemon.has_ended() {
            let mut client = client.clone();
            let listed = self.soon("a list of switches", client.list_switches(v1::ListSwitchesRequest {})).await;
            let in_step = |list: v1::SwitchList| list.switches.iter().filter(|s| s.connected && s.in_step).count();
            if listed.is_ok_and(|list| in_step(list.into_inner()) >= n) {
                return;
            }
            if began.elapsed() >= PATIENCE {
                never(&format!("{n} switches in step, after {}", self.after), &self.binary.log);
            }
            #[expect(clippy::disallowed_methods, reason = "a running daemon can only be polled")]
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// All that was acknowledged is there, and the followers have it.
    pub(crate) async fn settle(&mut self) {
        let client = self.serve().await;
        let n = self.followers.len();
        let mut controller = self.controller.take().unwrap();
        self.until_in_step(&client, n, &mut controller).await;
        assert!(!controller.has_ended(), "after {}: the controller ended", self.after);
        self.controller = Some(controller);
        for (i, follower) in (1..).zip(self.followers.clone()) {
            self.check_exactly(i, &follower.replica());
        }
        self.totals.requests = self.ledger.n_acknowledged;
    }

    /// A switch answers as the network says.
    fn check_exactly(&mut self, switch: u32, replica: &Replica<MemoryTables>) {
        let names = self.ledger.names();
        for (name, at) in &names {
            let port = if *at == switch { HOST_PORT } else { *at };
            let got = replica.action(&parsed(*name));
            assert_eq!(got.port(), Some(PortId(port as u16)), "after {}: s{switch}, {}", self.after, mac(*name));
        }
        let is_valid = |name: &Name| names.keys().any(|known| parsed(*known) == *name);
        assert_eq!(replica.tables().valid.len(), names.len(), "after {}: valid at s{switch}", self.after);
        assert!(replica.tables().valid.keys().all(is_valid));
        self.totals.checks += names.len() as u64;
    }

    async fn switch_round(&mut self, crash: &Crash) -> bool {
        let client = self.serve().await;
        if self.rng.random_bool(0.25) {
            self.fresh_states += 1;
        }
        let state = self.site.path(&format!("s3-{}", self.fresh_states));
        let config = self.site.path("switch.toml");
        let (url, dir) = (&self.site.url, state.display());
        let text = format!("name = 's3'\ncontroller = '{url}'\nstate_dir = '{dir}'\nlookup = '127.0.0.1:0'\n");
        std::fs::write(&config, text).unwrap();
        let arguments = ["switch", "--config", config.to_str().unwrap()];
        let what = format!("{} with {crash}", self.after);
        let status = match block_in_place(|| self.binary.start(&arguments, Some(crash))) {
            Started::Ended(status) => status,
            Started::Serves(mut daemon) => {
                let mut controller = self.controller.take().unwrap();
                let ended = self.load(&client, &mut controller, SWITCH_LOAD).await;
                assert!(!ended, "after {what}: the controller ended");
                self.controller = Some(controller);
                self.until_in_step(&client, N_SWITCHES as usize, &mut daemon).await;
                block_in_place(|| if daemon.has_ended() { daemon.ended(&what) } else { daemon.stop() })
            }
        };
        let killed = is_kill(status, &what);
        self.check_image(&state.join("image"), killed, &what);
        killed
    }

    /// What a switch left is whole: after a stop in order what the network says, after a kill what it said at a time.
    fn check_image(&mut self, path: &std::path::Path, killed: bool, what: &str) {
        let image = match std::fs::read(path) {
            Ok(image) => image,
            Err(error) => return assert!(killed, "after {what}: {error}"),
        };
        let replica = Replica::load(Limits::default(), MemoryTables::default(), &image);
        let replica = replica.unwrap_or_else(|error| panic!("after {what}: {error}"));
        if !killed {
            return self.check_exactly(3, &replica);
        }
        for name in 0..60 {
            if !replica.tables().valid.contains_key(&parsed(name)) {
                continue;
            }
            let Some(port) = replica.action(&parsed(name)).port() else { panic!("after {what}: {}", mac(name)) };
            let at = if u32::from(port.0) == HOST_PORT { 3 } else { u32::from(port.0) };
            assert!(self.ledger.places(name).contains(&at), "after {what}: {} was never at s{at}", mac(name));
            self.totals.checks += 1;
        }
    }

    fn fibula(&self, arguments: &[&str], crash: Option<&Crash>) -> ExitStatus {
        block_in_place(|| self.binary.run(arguments, crash))
    }

    fn paths(&mut self) -> [String; 2] {
        self.copies += 1;
        let copy = format!("copy-{}", self.copies);
        [self.site.path("rib.sqlite"), self.site.path(&copy)].map(|path| path.to_str().unwrap().to_owned())
    }

    async fn backup_round(&mut self, crash: &Crash) -> bool {
        self.serve().await;
        self.stop();
        let [store, copy] = self.paths();
        let what = format!("{} with {crash}", self.after);
        let arguments = ["store", "backup", "--store", &store, "--to", &copy];
        let killed = is_kill(self.fibula(&arguments, Some(crash)), &what);
        if std::path::Path::new(&copy).exists() {
            assert!(self.fibula(&["store", "check", "--store", &copy], None).success(), "after {what}: half a copy");
            let [has, should] =
                [&copy, &store].map(|path| block_in_place(|| crate::flips::rows(path.as_ref()).unwrap()));
            assert!(has == should, "after {what}: a copy of {} rows of {}", has.len(), should.len());
        } else {
            assert!(killed && self.fibula(&arguments, None).success(), "after {what}: no copy can be made");
        }
        killed
    }

    /// The damaged store stays as it is; the new one is whole or not there, and what is left of it is none.
    async fn repair_round(&mut self, crash: &Crash) -> bool {
        self.serve().await;
        match self.rng.random_bool(0.5) {
            true => self.stop(),
            false => drop(self.controller.take()),
        }
        self.agents.drain(..).for_each(|agent| agent.abort());
        let [store, new] = self.paths();
        let files = || ["", "-wal", "-log"].map(|suffix| std::fs::read(format!("{store}{suffix}")).ok());
        let before = files();
        let what = format!("{} with {crash}", self.after);
        let arguments = ["store", "repair", "--store", &store, "--to", &new];
        let killed = is_kill(self.fibula(&arguments, Some(crash)), &what);
        assert!(files() == before, "after {what}: the store that was repaired is another one");
        let partial = format!("{new}.partial");
        let is_there = std::path::Path::new(&partial).exists();
        // Complete, and not renamed yet; or no store.
        let left = is_there.then(|| block_in_place(|| crate::flips::rows(partial.as_ref()).ok())).flatten();
        if !std::path::Path::new(&new).exists() {
            assert!(killed && self.fibula(&arguments, None).success(), "after {what}: there is no repair any more");
        }
        let [has, should] = [&new, &store].map(|path| block_in_place(|| crate::flips::rows(path.as_ref()).unwrap()));
        assert!(has == should, "after {what}: a new store of {} rows of {}", has.len(), should.len());
        assert!(left.is_none_or(|left| left == should), "after {what}: parts of a store count as one");
        killed
    }

    async fn restore_round(&mut self, crash: &Crash) -> bool {
        self.serve().await;
        self.stop();
        let before: State = self.ledger.state();
        let [store, copy] = self.paths();
        assert!(self.fibula(&["store", "backup", "--store", &store, "--to", &copy], None).success());
        let client = self.serve().await;
        for request in self.ledger.next(&mut self.rng) {
            self.make(&client, &request).await;
        }
        self.stop();
        let what = format!("{} with {crash}", self.after);
        let arguments = ["store", "restore", "--from", &copy, "--store", &store];
        let killed = is_kill(self.fibula(&arguments, Some(crash)), &what);
        if !killed {
            self.ledger.put_back(before);
            return false;
        }
        // In between the store is the old one, or the new one, or is refused; then the command is given again.
        let config = self.config();
        let started = block_in_place(|| self.binary.start(&["controller", "--config", &config], None));
        let is_old_or_new = match started {
            Started::Ended(status) => {
                assert_eq!(status.code(), Some(3), "after {what}");
                false
            }
            Started::Serves(controller) => {
                let mut client = self.connect().await.expect("it serves");
                let state = self.soon("what there is", state_of(&mut client)).await.expect("it answers");
                let is_old = state == before;
                assert!(is_old || state == self.ledger.state(), "after {what}: another network");
                if is_old {
                    self.ledger.put_back(before.clone());
                }
                assert!(block_in_place(|| controller.stop()).success());
                true
            }
        };
        if !is_old_or_new {
            assert!(self.fibula(&arguments, None).success(), "after {what}: the copy cannot be put back");
            self.ledger.put_back(before);
        }
        killed
    }

    /// The directory of everything, at rest after a kill or a stop, for tests that damage copies of it.
    pub(crate) async fn at_rest(&mut self, stopped: bool) {
        let client = self.serve().await;
        for _ in 0..20 {
            for request in self.ledger.next(&mut self.rng) {
                self.make(&client, &request).await;
            }
        }
        match stopped {
            true => self.stop(),
            false => drop(self.controller.take()),
        }
    }
}

fn parsed(name: u32) -> Name {
    Name::parse(NameKind::Mac, &mac(name)).unwrap()
}
