//! The scheduler: events in the order of their time, connections, and faults.

use super::controller::Old;
use super::operators::Facts;
use super::store::{Disk, SharedDisk};
use super::switch::Switch;
use super::watch::Watched;
use super::{Mutant, Outcome, Scenario, Violation};
use crate::random::Random;
use crate::site::{Answer, Site};
use api::seam;
use api::v1::ToSwitch;
use api::v1::from_switch::Body;
use controller::change::Changed;
use controller::kit::{Stream, Verifying};
use fib::designs::{CONCISE, LINE};
use fib::messages::ValueMode;
use fib::network::Settings;
use lookup::hash::SecretKey;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// After the last request, the faults end and so much time passes, in milliseconds.
const HEALING: u64 = 300_000;

/// What happens at a time.
#[derive(Debug)]
pub(super) enum Event {
    /// An operator sends a request.
    Operate,
    /// Something fails.
    Fault,
    /// The writer takes what waits; the pusher goes on; parked switches are released.
    Turn {
        generation: u64,
    },
    Push {
        generation: u64,
    },
    Release {
        generation: u64,
    },
    /// A message of a switch arrives at the controller: the first, the others.
    Hello {
        link: usize,
        generation: u64,
        report: Vec<u8>,
    },
    Up {
        link: usize,
        generation: u64,
        body: Body,
    },
    /// A message arrives at a switch. It takes effect there; only a mutant takes its time.
    Down {
        link: usize,
        message: ToSwitch,
    },
    Late {
        link: usize,
        message: ToSwitch,
    },
    /// A switch without room asks again.
    Retry {
        link: usize,
    },
    /// The switch notices that its connection ended; the controller does.
    BrokenBelow {
        link: usize,
    },
    BrokenAbove {
        link: usize,
        generation: u64,
    },
    Connect {
        switch: usize,
    },
    Save {
        switch: usize,
    },
    StartSwitch {
        switch: usize,
    },
    StartController,
    /// A controller that another one has replaced is stopped.
    EndOld,
    /// Operators add what is missing.
    Repair,
    /// There is room on the disk.
    Room,
}

impl Event {
    /// The connection that it is of, or the start of a controller.
    fn side(&self) -> (Option<usize>, Option<u64>) {
        use Event::{BrokenAbove, Down, Hello, Late, Push, Release, Retry, Turn, Up};
        match self {
            Turn { generation } | Push { generation } | Release { generation } => (None, Some(*generation)),
            Hello { generation, .. } | Up { generation, .. } | BrokenAbove { generation, .. } => {
                (None, Some(*generation))
            }
            Down { link, .. } | Late { link, .. } | Retry { link } => (Some(*link), None),
            _ => (None, None),
        }
    }

    /// Whether it happens to the controller while it runs.
    fn is_of_controller(&self) -> bool {
        use Event::{BrokenAbove, Hello, Push, Release, Turn, Up};
        matches!(self, Turn { .. } | Push { .. } | Release { .. } | Hello { .. } | Up { .. } | BrokenAbove { .. })
    }
}

/// A connection between a switch and a controller.
pub(super) struct Link {
    pub(super) switch: usize,
    pub(super) generation: u64,
    /// Its hello is to be answered; then it has a stream.
    pub(super) welcome: Option<Answer<Stream>>,
    pub(super) above: Option<Stream>,
    /// An operator waits for what the switch says of its tables.
    pub(super) verifying: Option<Verifying>,
    /// When the last message in each direction arrives: the next comes later.
    down: u64,
    up: u64,
    /// Messages for the switch that left and have not arrived.
    pub(super) on_the_way: usize,
    pub(super) broken: bool,
    /// Whether messages on the way to the switch are lost. Those that a process sent before it ended may arrive.
    pub(super) lossy: bool,
}

impl Link {
    pub(super) fn lose_controller(&mut self) {
        (self.welcome, self.above, self.verifying) = (None, None, None);
    }
}

pub(super) struct System {
    pub(super) scenario: Scenario,
    pub(super) settings: Settings,
    pub(super) random: Random,
    pub(super) now: u64,
    events: BTreeMap<(u64, u64), Event>,
    scheduled: u64,
    pub(super) outcome: Outcome,
    pub(super) requests_left: usize,
    pub(super) controller: Option<Box<Site>>,
    /// Starts of controllers and attempts, and that of this one.
    pub(super) n_starts: u64,
    pub(super) generation: u64,
    /// A controller that this one has replaced, and whether what happens now happens to that one.
    pub(super) old: Option<Old>,
    pub(super) on_old_side: bool,
    /// All that were replaced so.
    pub(super) replaced: BTreeSet<u64>,
    pub(super) turn_at: Option<u64>,
    pub(super) release_at: Option<u64>,
    /// How far the clock of the controllers is ahead.
    ahead: u64,
    /// Until when the controller does nothing.
    pub(super) still_until: u64,
    pub(super) backlog_bytes: usize,
    pub(super) turn_names: usize,
    pub(super) disk: SharedDisk,
    backup: Option<Disk>,
    pub(super) is_set_back: bool,
    pub(super) switches: Vec<Switch>,
    pub(super) links: Vec<Link>,
    pub(super) facts: Facts,
    pub(super) asked: VecDeque<(u64, Answer<Changed>)>,
    pub(super) watched: Watched,
    /// The switch that the last event touched.
    pub(super) touched: Option<usize>,
    /// What did not hold, before the checks after the event.
    pub(super) found: Option<Violation>,
}

/// The daemons of this thread are simulated as long as this lives.
struct Held;

impl Drop for Held {
    fn drop(&mut self) {
        seam::set_time(None);
        seam::set_mistake(None);
        fib::mistakes::set_mistake(None);
    }
}

impl System {
    pub(super) fn new(scenario: &Scenario) -> System {
        let mut random = Random::new(scenario.seed);
        let mode = [ValueMode::Port, ValueMode::Egress][random.below(2) as usize];
        let design = [&CONCISE, &LINE][random.below(2) as usize];
        let settings = Settings::new(scenario.seed | 1, SecretKey::from_seed(scenario.seed));
        let value_bits = if mode == ValueMode::Port { scenario.value_bits } else { settings.value_bits };
        let settings = Settings { mode, value_bits, gateway: design, core: design, max_names: 1000, ..settings };
        let n = scenario.switches;
        System {
            facts: Facts::new(n),
            watched: Watched::new(n, scenario.seed, scenario.kill),
            scenario: scenario.clone(),
            settings,
            now: 0,
            events: BTreeMap::new(),
            scheduled: 0,
            outcome: Outcome::default(),
            requests_left: scenario.steps,
            controller: None,
            n_starts: 0,
            generation: 0,
            old: None,
            on_old_side: false,
            replaced: BTreeSet::new(),
            ahead: 0,
            turn_at: None,
            release_at: None,
            // Of some, switches are parked as soon as little waits.
            backlog_bytes: 2_000 << random.below(6),
            // Most answers to reports are made in several turns, and changes come between them.
            turn_names: [3, 12, 8192][random.below(3) as usize],
            still_until: 0,
            disk: SharedDisk::new(scenario.mutant),
            backup: None,
            is_set_back: false,
            switches: (0..n).map(|_| Switch::default()).collect(),
            links: Vec::new(),
            asked: VecDeque::new(),
            touched: None,
            found: None,
            random,
        }
    }

    pub(super) fn schedule(&mut self, after: u64, event: Event) {
        self.events.insert((self.now + after, self.scheduled), event);
        self.scheduled += 1;
    }

    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.scenario.mutant == Some(mutant)
    }

    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    pub(super) fn run(mut self) -> Result<Outcome, Violation> {
        let _held = Held;
        seam::set_time(Some(Duration::ZERO));
        self.begin()?;
        seam::set_mistake(self.scenario.mutant.and_then(Mutant::mistake));
        let of_fib = self.is(Mutant::MeaningAtOnce).then_some(fib::mistakes::Mistake::MeaningAtOnce);
        fib::mistakes::set_mistake(of_fib);
        let mut end = u64::MAX;
        while let Some(((now, n), event)) = self.events.pop_first() {
            if now > end {
                break;
            }
            self.now = now;
            seam::set_time(Some(Duration::from_millis(now + self.ahead)));
            self.outcome.events += 1;
            self.outcome.trace(now << 20 ^ n);
            if self.scenario.log {
                eprintln!("{now} {event:?}");
            }
            let (link, generation) = event.side();
            let generation = link.map(|link| self.links[link].generation).or(generation);
            let is_old = self.old.as_ref().is_some_and(|old| Some(old.generation) == generation);
            if is_old {
                self.change_sides();
            }
            let happened = self.happen(event);
            if is_old {
                self.change_sides();
            }
            happened?;
            self.check_all()?;
            if end == u64::MAX && self.requests_left == 0 {
                self.heal();
                end = now + HEALING;
            }
        }
        self.outcome.millis = self.now;
        self.check_converged()?;
        let mut watch = self.watched.lock();
        self.outcome.points = std::mem::take(&mut watch.points);
        self.outcome.displaced = watch.history.n_displaced();
        drop(watch);
        Ok(self.outcome)
    }

    /// A controller, and a network that it does not follow yet.
    fn begin(&mut self) -> Result<(), Violation> {
        self.start_controller()?;
        self.set_up();
        while self.controller.as_mut().is_some_and(|controller| controller.has_work()) {
            self.turn();
        }
        self.watched.lock().begin_faults();
        (0..self.scenario.switches).for_each(|switch| self.schedule(1 + switch as u64, Event::StartSwitch { switch }));
        self.schedule(20, Event::Operate);
        self.schedule(60, Event::Fault);
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        let current = self.generation;
        if self.now < self.still_until && event.is_of_controller() {
            self.schedule(self.still_until - self.now, event);
            return Ok(());
        }
        match event {
            Event::Operate => self.operate(),
            Event::Fault => self.fail(),
            Event::Turn { generation } if generation == current => self.turn(),
            Event::Push { generation } if generation == current => self.push(),
            Event::Release { generation } if generation == current => self.release(),
            Event::Hello { link, generation, report } if generation == current && !self.links[link].broken => {
                self.hello(link, &report);
            }
            Event::Up { link, generation, body } if generation == current && !self.links[link].broken => {
                self.up(link, body);
            }
            Event::BrokenAbove { link, generation } if generation == current => self.hang_up(link),
            Event::Turn { .. }
            | Event::Push { .. }
            | Event::Release { .. }
            | Event::Hello { .. }
            | Event::Up { .. }
            | Event::BrokenAbove { .. } => {}
            Event::Down { link, message } => self.down(link, message),
            Event::Late { link, message } if self.is_followed(link) => self.receive(link, message),
            Event::Late { .. } => {}
            Event::Retry { link } => self.retry(link),
            Event::BrokenBelow { link } => self.broken_below(link),
            Event::Connect { switch } => self.connect(switch),
            Event::Save { switch } => self.save(switch),
            Event::StartSwitch { switch } => return self.start_switch(switch),
            Event::StartController => return self.start_controller(),
            Event::EndOld => self.end_old(),
            Event::Repair => self.repair(),
            Event::Room => self.disk.lock().full = false,
        }
        Ok(())
    }

    pub(super) fn fault(&mut self, kind: &'static str) {
        *self.outcome.faults.entry(kind).or_default() += 1;
    }

    fn fail(&mut self) {
        if self.requests_left == 0 {
            return;
        }
        let pause = 20 + self.random.below(250);
        self.schedule(pause, Event::Fault);
        let switch = self.random.below(self.scenario.switches as u64) as usize;
        let link = self.switches[switch].agent.as_ref().and_then(|agent| agent.link);
        match self.random.below(17) {
            15 if self.controller.is_some() => {
                let copy = self.backup.take().filter(|_| self.random.below(2) == 0);
                self.twin(copy);
            }
            16 => {
                self.fault("clock jumps ahead");
                self.ahead += self.random.below(3_600_000);
            }
            14 if self.controller.is_some() => self.stand_still(),
            0..2 if self.controller.is_some() => self.crash_controller("controller between turns"),
            2..5 => self.crash_switch(switch, "switch"),
            5..8 => {
                self.fault("switch cut off");
                let until = self.now + 50 + self.random.below(2_000);
                self.switches[switch].cut_until = until;
                if let Some(link) = link.filter(|_| self.random.below(2) == 0) {
                    self.break_link(link);
                }
            }
            8..11 => {
                if let Some(link) = link {
                    self.fault("connection broken");
                    self.break_link(link);
                }
            }
            11 => {
                self.fault("disk full");
                self.disk.lock().full = true;
                let room = 50 + self.random.below(300);
                self.schedule(room, Event::Room);
            }
            12 => self.backup = Some(self.disk.lock().backup()),
            13 if self.random.below(3) == 0 && self.controller.is_some() => {
                if let Some(backup) = self.backup.take() {
                    self.fault("store set back");
                    self.set_back(backup);
                }
            }
            _ => {}
        }
    }

    fn heal(&mut self) {
        self.watched.lock().wild = false;
        self.end_old();
        self.disk.lock().full = false;
        self.switches.iter_mut().for_each(|switch| switch.cut_until = 0);
        self.make_room();
        // What is attached to something that is missing too, later.
        (1..5).for_each(|i| self.schedule(i * 15_000, Event::Repair));
    }

    pub(super) fn open_link(&mut self, switch: usize, generation: u64) -> usize {
        let now = self.now;
        let link = Link {
            switch,
            generation,
            welcome: None,
            above: None,
            verifying: None,
            down: now,
            up: now,
            on_the_way: 0,
            broken: false,
            lossy: false,
        };
        self.links.push(link);
        self.links.len() - 1
    }

    /// Ends a connection; its ends notice later, each at its own time.
    pub(super) fn break_link(&mut self, link: usize) {
        if !std::mem::replace(&mut self.links[link].broken, true) {
            self.links[link].lossy = true;
            let (below, above) = (1 + self.random.below(300), 1 + self.random.below(600));
            let generation = self.links[link].generation;
            self.schedule(below, Event::BrokenBelow { link });
            self.schedule(above, Event::BrokenAbove { link, generation });
        }
    }

    /// When a message arrives that is sent now: after those before it, and not while the switch is cut off.
    fn arrival(&mut self, link: usize, down: bool) -> u64 {
        let delay = 1 + self.random.below(20);
        let of = &mut self.links[link];
        let cut = self.switches[of.switch].cut_until;
        let last = if down { &mut of.down } else { &mut of.up };
        *last = (self.now + delay).max(*last).max(cut);
        *last - self.now
    }

    pub(super) fn send_down(&mut self, link: usize, message: ToSwitch) {
        self.outcome.messages += 1;
        if !self.links[link].broken {
            self.links[link].on_the_way += 1;
            let after = self.arrival(link, true);
            self.schedule(after, Event::Down { link, message });
        }
    }

    pub(super) fn send_hello(&mut self, link: usize, report: Vec<u8>) {
        let (after, generation) = (self.arrival(link, false), self.links[link].generation);
        self.schedule(after, Event::Hello { link, generation, report });
    }

    pub(super) fn send_up(&mut self, link: usize, body: Body) {
        if !self.links[link].broken {
            let (after, generation) = (self.arrival(link, false), self.links[link].generation);
            self.schedule(after, Event::Up { link, generation, body });
        }
    }
}
