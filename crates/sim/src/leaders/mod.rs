//! Several controllers on one etcd, under faults: one leads, the others follow.
//!
//! **Real**: the store in etcd with its requests and retries, the election, the following of commits, and the controller's
//! writer with its network. **Modelled**: [etcd] itself. Time is virtual. Everything follows from the seed.
//!
//! **Faults.** A controller pauses for any time, even in the middle of a commit, and goes on as if nothing had happened, while
//! another leads and commits. It crashes, and is cut off from etcd. Requests to etcd do not arrive, arrive twice, arrive long
//! after the client has given them up, or their answers are lost. A commit tells the changes of another.
//!
//! **What must hold.**
//! - Changes that were answered exist at the end. Each request that was not answered exists whole or not at all. Of several
//!   changes to one name, the last wins.
//! - A controller that leads has the state that is in etcd; one that follows has that of the commit that it has carried out.
//! - After the faults one leads, and all have the same state.
//!
//! There are no switches, and so no messages to them.

mod etcd;

use crate::random::{Random, mix64};
use crate::site::{Answer, Bounds, Site};
use api::seam::{Mistake, set_mistake, set_time};
use controller::change::{Change, Changed, Place, Record, Refusal};
use controller::store::{Candidate, EtcdAddress, Followed, Model, NOTHING, Position, RowChange, Watching};
use etcd::{Etcd, Reached, STEP_MS};
use fib::action::PortId;
use fib::durable::VIEW;
use fib::network::Settings;
use fib::topology::Wanted;
use lookup::hash::SecretKey;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const N_CONTROLLERS: usize = 3;
const N_HOSTS: u64 = 4;

/// Names of a batch that is more than one transaction of etcd.
const BIG: u64 = 130;

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Everything follows from it.
    pub seed: u64,
    /// Steps with faults.
    pub steps: u64,
    /// A mistake to make.
    pub mutant: Option<Mistake>,
}

impl Scenario {
    /// 400 steps.
    pub fn new(seed: u64) -> Scenario {
        Scenario { seed, steps: 400, mutant: None }
    }
}

/// The mistakes that runs must find.
pub const MUTANTS: [Mistake; 8] = [
    // Transactions do not compare the seal.
    Mistake::GuardLeftOut,
    // A transaction whose comparison failed counts as carried out.
    Mistake::FailedGuardIsSuccess,
    // A controller that takes the lead does not replace the seal.
    Mistake::LeadKeepsSeal,
    // A big commit that was acknowledged is not finished by the next leader.
    Mistake::JournalThrownAway,
    // A big commit counts as made before it is written.
    Mistake::JournalNamedFirst,
    // A follower leads with the state that it has, whatever was committed since.
    Mistake::LeadsBehind,
    // A follower goes on when changes have another result.
    Mistake::FollowsBlindly,
    // A commit that does not say what it changed counts as one that changed nothing.
    Mistake::UntoldIsNothing,
];

/// What a run did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// A hash over all events.
    pub trace: u64,
    /// Changes that were answered as made.
    pub acknowledged: u64,
    /// Changes with an unknown outcome.
    pub unknown: u64,
    /// Times that a controller began to lead, and those of them after it had followed.
    pub leads: u64,
    /// See `leads`.
    pub promoted: u64,
    /// Commits that were followed.
    pub followed: u64,
    /// Times that another led in the middle of a commit.
    pub overtaken: u64,
    /// Transactions of etcd, and requests that something befell.
    pub transactions: u64,
    /// See `transactions`.
    pub misfortunes: u64,
    /// Comparisons of a controller's state with etcd's.
    pub compared: u64,
}

impl Outcome {
    /// Adds what another run did; the hash is that of one run, and stays.
    pub fn add(&mut self, other: &Outcome) {
        self.acknowledged += other.acknowledged;
        self.unknown += other.unknown;
        self.leads += other.leads;
        self.promoted += other.promoted;
        self.followed += other.followed;
        self.overtaken += other.overtaken;
        self.transactions += other.transactions;
        self.misfortunes += other.misfortunes;
        self.compared += other.compared;
    }
}

/// What was found.
pub type Violation = String;

enum State {
    Down,
    Begins,
    Follows(Box<Site>, Box<Watching>),
    /// With its lease.
    Leads(Box<Site>, i64),
}

struct Controller {
    reached: Arc<Reached>,
    candidate: Candidate,
    followed: Followed,
    state: State,
    /// The step until which it stands still.
    paused: u64,
    asked: Vec<Asked>,
    /// What the last commit with changes said that it followed.
    said: Vec<u8>,
}

/// A request that is not answered yet.
struct Asked {
    names: BTreeSet<u64>,
    value: Option<u64>,
    answer: Answer<Changed>,
}

/// The possible places of a name: that of the last change that was answered, and those of changes with an unknown outcome.
#[derive(Clone, Debug)]
struct Possible {
    values: BTreeSet<Option<u64>>,
    busy: bool,
}

struct World {
    random: Random,
    etcd: Arc<Etcd>,
    address: EtcdAddress,
    settings: Settings,
    controllers: Vec<Controller>,
    step: u64,
    names: BTreeMap<u64, Possible>,
    outcome: Outcome,
    is_ready: bool,
    is_healed: bool,
}

/// Runs a scenario.
/// # Errors
/// What did not hold.
pub fn run(scenario: &Scenario) -> Result<Outcome, Violation> {
    set_mistake(scenario.mutant);
    // What panics has found something, too.
    let result = World::new(scenario.seed).run(scenario.steps);
    set_mistake(None);
    set_time(None);
    result
}

fn bounds() -> Bounds {
    Bounds {
        switch_backlog_bytes: 1 << 20,
        waiting_bytes: 1 << 20,
        bulk_names: usize::MAX,
        phase_timeout: Duration::from_secs(1),
        turn_names: 1 << 20,
    }
}

fn text(name: u64) -> String {
    let [a, b, c, d] = (name as u32).to_be_bytes();
    format!("02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

impl World {
    fn new(seed: u64) -> World {
        let etcd = Etcd::new(mix64(seed));
        let address: EtcdAddress = "etcd://a:1,b:1,c:1/site".parse().expect("an address");
        let controllers = (0..N_CONTROLLERS).map(|i| Controller::new(i, &etcd, &address)).collect();
        World {
            random: Random::new(seed),
            etcd,
            address,
            settings: Settings::new(1, SecretKey::from_seed(seed)),
            controllers,
            step: 0,
            names: BTreeMap::new(),
            outcome: Outcome::default(),
            is_ready: false,
            is_healed: false,
        }
    }

    fn run(mut self, steps: u64) -> Result<Outcome, Violation> {
        for _ in 0..steps {
            self.step()?;
        }
        self.heal()?;
        self.check_end()?;
        (self.outcome.transactions, self.outcome.misfortunes) = self.etcd.counts();
        Ok(self.outcome)
    }

    fn step(&mut self) -> Result<(), Violation> {
        self.step += 1;
        set_time(Some(Duration::from_millis(self.step * STEP_MS)));
        self.etcd.step();
        let who = self.random.below(N_CONTROLLERS as u64) as usize;
        let what = self.random.below(100);
        self.outcome.trace = mix64(self.outcome.trace ^ (what << 8 | who as u64));
        match what {
            0..60 => self.go_on(who)?,
            60..90 => self.ask(who),
            90..94 => self.controllers[who].paused = self.step + 1 + self.random.below(120),
            94..96 => self.crash(who),
            96..98 => {
                let cut = self.random.below(2) == 0;
                self.controllers[who].reached.cut.store(cut, Relaxed);
            }
            98 => self.rekey(who),
            _ => self.meet_another(who),
        }
        self.hear(who);
        Ok(())
    }

    /// A controller does what it does next.
    fn go_on(&mut self, who: usize) -> Result<(), Violation> {
        if self.controllers[who].paused > self.step {
            return Ok(());
        }
        let controller = &mut self.controllers[who];
        match std::mem::replace(&mut controller.state, State::Down) {
            State::Down => controller.state = State::Begins,
            State::Begins => self.begin(who),
            State::Follows(site, watching) => self.follow(who, site, watching)?,
            State::Leads(mut site, lease) => {
                let keeps = controller.reached.cut.load(Relaxed) || self.etcd.keep_alive(lease);
                let settles = self.is_healed || self.random.below(3) == 0;
                // One that fails ends, and begins anew.
                if keeps && (!settles || site.settle().is_ok()) && turns(&mut site) {
                    controller.state = State::Leads(site, lease);
                    if self.random.below(4) == 0 {
                        self.compare_leader(who)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, who: usize) {
        let controller = &mut self.controllers[who];
        if let Ok(Some(store)) = controller.candidate.lead_now() {
            let lease = store.lease();
            let Ok(mut site) = Site::start(self.settings.clone(), Box::new(store), &bounds()) else { return };
            self.outcome.leads += 1;
            if !self.is_ready {
                if !set_up(&mut site) {
                    return;
                }
                self.is_ready = true;
            }
            controller.state = State::Leads(Box::new(site), lease);
            return;
        }
        controller.state = State::Begins;
        let Ok(Some(position)) = controller.followed.position_now() else { return };
        let follower = &controller.followed.follower;
        if let Ok(site) = Site::follow(self.settings.clone(), follower, position, &bounds()) {
            controller.state = State::Follows(Box::new(site), Box::new(follower.watch(position)));
        }
    }

    fn follow(&mut self, who: usize, mut site: Box<Site>, mut watching: Box<Watching>) -> Result<(), Violation> {
        let controller = &mut self.controllers[who];
        let n_commits = self.random.below(4);
        for _ in 0..n_commits {
            match watching.next_now() {
                Ok(Some(mut commit)) => {
                    // Now and then a commit says what the last one with changes did.
                    let confused = !self.is_healed && self.random.below(30) == 0 && !controller.said.is_empty();
                    if confused {
                        commit.told.clone_from(&controller.said);
                    } else if commit.told != NOTHING {
                        controller.said.clone_from(&commit.told);
                    }
                    site.commit(commit);
                }
                Ok(None) => break,
                Err(error) => return Err(format!("controller {who} cannot follow: {error}")),
            }
            self.outcome.followed += 1;
        }
        if !turns(&mut site) {
            return Err(format!("controller {who} failed while it followed"));
        }
        if site.position().is_none() {
            if let Ok(Some(position)) = controller.followed.position_now() {
                let follower = &controller.followed.follower;
                if site.read_again(self.settings.clone(), follower, position).is_ok() {
                    watching = Box::new(follower.watch(position));
                }
                turns(&mut site);
            }
            controller.state = State::Follows(site, watching);
            return Ok(());
        }
        let leads = self.random.below(3) == 0;
        let Ok(Some(store)) = (if leads { controller.candidate.lead_now() } else { Ok(None) }) else {
            controller.state = State::Follows(site, watching);
            return Ok(());
        };
        let lease = store.lease();
        // It may be that not all comes in time.
        let in_time = self.random.below(4) > 0;
        let last = controller::store::Store::n_commits(&store);
        while in_time
            && watching.number() < last
            && let Ok(Some(commit)) = watching.next_now()
        {
            site.commit(commit);
        }
        site.lead(Box::new(store), self.settings.clone());
        (self.outcome.leads, self.outcome.promoted) = (self.outcome.leads + 1, self.outcome.promoted + 1);
        if turns(&mut site) {
            controller.state = State::Leads(site, lease);
            self.compare_leader(who)?;
        }
        Ok(())
    }

    /// An operator asks a controller, whichever it takes for the one that leads, for a change.
    fn ask(&mut self, who: usize) {
        let is_big = self.random.below(8) == 0;
        let first = if is_big { 1000 } else { self.random.below(40) };
        let names: BTreeSet<u64> = (first..first + if is_big { BIG } else { 1 + self.random.below(3) }).collect();
        let value = (self.random.below(4) > 0).then(|| self.random.below(N_HOSTS));
        let is_busy = |name: &u64| self.names.get(name).is_some_and(|possible| possible.busy);
        if !self.is_ready || names.iter().any(is_busy) {
            return;
        }
        self.request(who, names, value);
    }

    /// Asks a controller that serves to put these names at a host, or to remove them. None of them may be asked for already.
    fn request(&mut self, who: usize, names: BTreeSet<u64>, value: Option<u64>) {
        let change = match value {
            Some(host) => {
                let record = |name: &u64| Record { name: text(*name), host: format!("h{host}"), tenant: 0, ip: None };
                Change::PutNames { records: names.iter().map(record).collect(), only_new: false }
            }
            None => Change::RemoveNames { names: names.iter().map(|name| text(*name)).collect(), ignore_missing: true },
        };
        let controller = &mut self.controllers[who];
        let (State::Leads(site, _) | State::Follows(site, _)) = &mut controller.state else { return };
        let answer = site.change(change);
        for name in &names {
            let new = || Possible { values: BTreeSet::from([None]), busy: false };
            self.names.entry(*name).or_insert_with(new).busy = true;
        }
        controller.asked.push(Asked { names, value, answer });
    }

    /// Takes in what a controller has answered.
    fn hear(&mut self, who: usize) {
        let is_gone = matches!(self.controllers[who].state, State::Down | State::Begins);
        let names = &mut self.names;
        let outcome = &mut self.outcome;
        self.controllers[who].asked.retain_mut(|Asked { names: of, value, answer }| {
            let answered = answer.poll();
            let answered = if is_gone { answered.or(Some(Err(Refusal::Stopping))) } else { answered };
            let Some(answered) = answered else { return true };
            outcome.trace = mix64(outcome.trace ^ u64::from(answered.is_ok()));
            for name in of.iter() {
                let Some(possible) = names.get_mut(name) else { continue };
                possible.busy = false;
                match &answered {
                    Ok(_) => possible.values = BTreeSet::from([*value]),
                    Err(Refusal::StoreFailed { .. } | Refusal::Stopping) => _ = possible.values.insert(*value),
                    Err(_) => {}
                }
            }
            match answered {
                Ok(_) => outcome.acknowledged += 1,
                Err(Refusal::StoreFailed { .. } | Refusal::Stopping) => outcome.unknown += 1,
                Err(_) => {}
            }
            false
        });
    }

    fn crash(&mut self, who: usize) {
        self.controllers[who].state = State::Down;
    }

    fn rekey(&mut self, who: usize) {
        if let State::Leads(site, _) = &mut self.controllers[who].state {
            drop(site.rekey());
        }
    }

    /// In the middle of this controller's next commit it stands still, and another leads and commits.
    fn meet_another(&mut self, who: usize) {
        if !self.is_ready || !matches!(self.controllers[who].state, State::Leads(..)) {
            return;
        }
        // Names of its own, so that it knows what they must be.
        let name = 5000 + self.step;
        let etcd = Arc::clone(&self.etcd);
        let (address, settings) = (self.address.clone(), self.settings.clone());
        let mutant = MUTANTS.into_iter().find(|mutant| api::seam::mistaken(*mutant));
        let time = Duration::from_millis(self.step * STEP_MS);
        let made = Arc::new(Mutex::new(None));
        let told = Arc::clone(&made);
        let meanwhile = move || {
            let other = std::thread::spawn(move || {
                set_mistake(mutant);
                set_time(Some(time));
                // The lease of the one that stands still runs out.
                (0..60).for_each(|_| etcd.step());
                let model: Arc<dyn Model> = Reached::new(&etcd);
                let candidate = Candidate::simulated(&address, &model, "another".to_owned());
                let Ok(Some(store)) = candidate.lead_now() else { return None };
                let mut site = Site::start(settings, Box::new(store), &bounds()).ok()?;
                let record = Record { name: text(name), host: "h1".to_owned(), tenant: 0, ip: None };
                let mut answer = site.change(Change::PutNames { records: vec![record], only_new: false });
                let went_on = turns(&mut site);
                let answered = answer.poll().is_some_and(|answer| answer.is_ok());
                // Half of the time it crashes.
                if went_on && name.is_multiple_of(2) {
                    let _ = site.close();
                }
                Some(answered)
            });
            *told.lock().unwrap_or_else(PoisonError::into_inner) = other.join().ok().flatten();
        };
        let reached = Arc::clone(&self.controllers[who].reached);
        *reached.meanwhile.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(meanwhile));
        // A commit for it to happen in: a big one has many transactions.
        let names: BTreeSet<u64> = (1000..1000 + BIG).collect();
        if !names.iter().any(|name| self.names.get(name).is_some_and(|possible| possible.busy)) {
            let value = self.random.below(N_HOSTS);
            self.request(who, names, Some(value));
            let controller = &mut self.controllers[who];
            if let State::Leads(site, _) = &mut controller.state
                && !turns(site)
            {
                controller.state = State::Down;
            }
        }
        *reached.meanwhile.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if let Some(answered) = *made.lock().unwrap_or_else(PoisonError::into_inner) {
            self.outcome.overtaken += 1;
            let values = if answered { BTreeSet::from([Some(1)]) } else { BTreeSet::from([None, Some(1)]) };
            self.names.insert(name, Possible { values, busy: false });
        }
    }

    /// The faults end.
    fn heal(&mut self) -> Result<(), Violation> {
        self.etcd.settle();
        self.is_healed = true;
        for controller in &mut self.controllers {
            controller.reached.cut.store(false, Relaxed);
            controller.paused = 0;
        }
        for _ in 0..400 {
            self.step += 1;
            set_time(Some(Duration::from_millis(self.step * STEP_MS)));
            self.etcd.step();
            for who in 0..N_CONTROLLERS {
                self.go_on(who)?;
                self.hear(who);
            }
        }
        let n_leading =
            self.controllers.iter().filter(|controller| matches!(controller.state, State::Leads(..))).count();
        if n_leading != 1 {
            return Err(format!("{n_leading} controllers lead at the end"));
        }
        Ok(())
    }

    fn position(&self, who: usize) -> Option<Position> {
        self.controllers[who].followed.position_now().ok().flatten()
    }

    /// The rows in etcd, but those of views.
    fn stored(&self, who: usize, position: Position) -> Result<BTreeSet<RowChange>, Violation> {
        let rows: Result<Vec<RowChange>, _> = self.controllers[who].followed.follower.rows(position).collect();
        let rows = rows.map_err(|error| format!("the rows cannot be read: {error}"))?;
        Ok(rows.into_iter().filter(|row| row.kind != VIEW).collect())
    }

    /// One that leads, and is not behind, has what is in etcd.
    fn compare_leader(&mut self, who: usize) -> Result<(), Violation> {
        let State::Leads(site, lease) = &self.controllers[who].state else { return Ok(()) };
        if self.controllers[who].reached.cut.load(Relaxed) || !self.etcd.keep_alive(*lease) {
            return Ok(());
        }
        let Some(position) = self.position(who).filter(|position| position.term == site.network().term()) else {
            return Ok(());
        };
        let stored = self.stored(who, position)?;
        self.outcome.compared += 1;
        same(&format!("controller {who}, which leads"), &memory(site), &stored)
    }

    fn check_end(&mut self) -> Result<(), Violation> {
        let Some(position) = self.position(0) else { return Err("a big commit is not applied".to_owned()) };
        let stored = self.stored(0, position)?;
        for (who, controller) in self.controllers.iter().enumerate() {
            let (State::Leads(site, _) | State::Follows(site, _)) = &controller.state else {
                return Err(format!("controller {who} does not serve at the end"));
            };
            if let State::Follows(site, _) = &controller.state
                && site.position() != Some(position.number)
            {
                return Err(format!("controller {who} has followed to {:?} of {}", site.position(), position.number));
            }
            self.outcome.compared += 1;
            same(&format!("controller {who}"), &memory(site), &stored)?;
            let state = site.state();
            for (name, possible) in &self.names {
                let parsed = state.parse(&text(*name)).map_err(|error| error.to_string())?;
                let host = state.network.rib().get(&parsed).map(|attachment| {
                    state.hosts.name(attachment.end()).and_then(|host| host[1..].parse::<u64>().ok())
                });
                let host = host.flatten();
                if !possible.values.contains(&host) {
                    return Err(format!("controller {who}: name {name} is at {host:?}, and may be at {possible:?}"));
                }
            }
        }
        Ok(())
    }
}

impl Controller {
    fn new(i: usize, etcd: &Arc<Etcd>, address: &EtcdAddress) -> Controller {
        let reached = Reached::new(etcd);
        let model: Arc<dyn Model> = Arc::clone(&reached) as Arc<dyn Model>;
        let candidate = Candidate::simulated(address, &model, format!("c{i}"));
        let followed = Followed::new(address, &model);
        Controller { reached, candidate, followed, state: State::Down, paused: 0, asked: Vec::new(), said: Vec::new() }
    }
}

/// The writer does what it has to do. False: it failed, so the controller ends.
fn turns(site: &mut Site) -> bool {
    loop {
        match site.turn(usize::MAX) {
            Ok(true) => {}
            Ok(false) => return true,
            Err(_) => return false,
        }
    }
}

/// Three switches in a row, and hosts at them. False: the controller failed.
fn set_up(site: &mut Site) -> bool {
    let place = |switch: u64, port| Place { switch: format!("s{switch}"), port: PortId(port) };
    let hosts = (0..N_HOSTS).map(|i| (format!("h{i}"), place(i % 3, 10 + i as u16))).collect();
    let changes = [
        Change::AddSwitches { names: (0..3).map(|i| format!("s{i}")).collect() },
        Change::AddLink { a: place(0, 1), b: place(1, 1), wanted: Wanted::default() },
        Change::AddLink { a: place(1, 2), b: place(2, 1), wanted: Wanted::default() },
        Change::AddHosts { hosts },
    ];
    // What an earlier leader made is refused.
    changes.into_iter().for_each(|change| drop(site.change(change)));
    turns(site)
}

fn memory(site: &Site) -> BTreeSet<RowChange> {
    controller::kit::rows(site.state()).filter(|row| row.kind != VIEW).collect()
}

fn same(who: &str, memory: &BTreeSet<RowChange>, stored: &BTreeSet<RowChange>) -> Result<(), Violation> {
    let kinds = |one: &BTreeSet<RowChange>, other| -> Vec<u8> { one.difference(other).map(|row| row.kind).collect() };
    let (only_here, only_there) = (kinds(memory, stored), kinds(stored, memory));
    if only_here.is_empty() && only_there.is_empty() {
        return Ok(());
    }
    Err(format!("{who} has rows of kinds {only_here:?} that are not in etcd, which has others of kinds {only_there:?}"))
}
