//! The phases of a demo, the same on both networks: ping, bulk TCP, bulk UDP, churn under traffic, a link cut, a drain.
//! Those of a network in which nothing is declared are in [`super::undeclared`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::backend::{Backend, Control, Fault, Put, SetOnDrop, Stop, pause};
use super::hosts::{Bulk, Pings};
use super::judge::{Judge, Phase};
use super::layout::{End, FAR_PORT, Layout, Mac, synthetic_mac};
use super::prober::{Prober, Random, Sent, Targets};
use super::undeclared::{Found, Move};

/// Concurrent bulk flows: more would only compete for the same two cores.
const N_FLOWS: usize = 4;
/// Rate limit of TCP during churn: an overloaded machine drops frames whatever the network does.
const CHURN_FLOW_BYTES_A_SECOND: u64 = 2_500_000;
/// Probes per second in the phases that send them.
pub(super) const PROBE_RATE_PPS: u64 = 2000;
/// Probes per second that are asked for while a switch is drained.
const DRAIN_RATE_PPS: u64 = 10_000;
/// Removed names that are kept as targets of probes.
const MAX_REMOVED_TARGETS: usize = 4096;
/// Frames in flight arrive within this, or are lost.
const MAX_FLIGHT: Duration = Duration::from_millis(500);
/// Rounds of churn per host move.
const ROUNDS_A_HOST_MOVE: u64 = 3;

/// Results of the churn.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Churn {
    pub(super) added: u64,
    pub(super) moved: u64,
    pub(super) removed: u64,
    pub(super) host_moves: u64,
    /// Time in which these changes were committed, sent and confirmed by every switch.
    pub(super) seconds: f64,
    /// From the end of a controller that followed until every switch, those that it served too, had the next change; none if
    /// fewer than three controllers are there.
    pub(super) moved_on: Option<Duration>,
    /// From the end of the controller that led until the next change was acknowledged; none if there is one controller.
    pub(super) leaderless: Option<Duration>,
    pub(super) tcp: Option<Bulk>,
}

impl Churn {
    pub(super) fn updates_a_second(&self) -> f64 {
        let n = self.added + self.moved + self.removed + self.host_moves;
        if self.seconds == 0.0 { 0.0 } else { n as f64 / self.seconds }
    }
}

/// Results of the cut.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cut {
    /// The link, as its two switches.
    pub(super) link: String,
    /// From the cut until every switch had confirmed its new table.
    pub(super) converged_ms: f64,
    /// From the cut until the last probe that did not arrive was sent; 0 if none was lost.
    pub(super) outage_ms: f64,
}

/// Results of the drain.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Drain {
    /// The switch.
    pub(super) switch: String,
    /// Changes of paths until none of others led through it.
    pub(super) steps: u32,
    /// How long that took.
    pub(super) took: Duration,
}

/// Results of all phases. The frame counts are the judge's.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Findings {
    pub(super) pings: Pings,
    pub(super) tcp: Option<Bulk>,
    pub(super) udp: Option<Bulk>,
    pub(super) churn: Option<Churn>,
    /// `None` if the topology has no redundant link.
    pub(super) cut: Option<Cut>,
    /// A cut without loss of carrier, and a host that moved; only where nothing is declared, as what was found.
    pub(super) silent: Option<Cut>,
    pub(super) moved: Option<Move>,
    pub(super) found: Option<Found>,
    /// `None` if no switch can be spared.
    pub(super) drain: Option<Drain>,
}

/// A running demo.
pub(super) struct Run<'a, C> {
    pub(super) layout: &'a Layout,
    pub(super) backend: &'a dyn Backend,
    pub(super) control: &'a mut C,
    pub(super) judge: &'a Judge,
    pub(super) stop: &'a Stop,
    /// Synthetic names to start with.
    pub(super) n_names: u64,
    /// Total seconds of traffic, divided among the phases.
    pub(super) seconds: f64,
    /// Reports what happens next.
    pub(super) progress: &'a dyn Fn(String),
}

/// Where every synthetic name is.
struct Names {
    live: Vec<(Mac, usize)>,
    next_index: u64,
}

impl Names {
    fn targets(&self) -> Mutex<Targets> {
        Mutex::new(Targets { live: self.live.iter().map(|&(mac, _)| mac).collect(), removed: vec![] })
    }
}

impl<C: Control> Run<'_, C> {
    /// Runs all phases in order. At the start the controller has the switches, links and ports, but no names.
    pub(super) fn all(mut self) -> Result<Findings> {
        let mut names = self.register()?;
        let mut findings = Findings::default();

        self.begin(Phase::Ping, "every host pings every other")?;
        findings.pings = self.backend.ping_all(self.stop)?;

        let seconds = self.seconds;
        let share = |part: f64| Instant::now() + Duration::from_secs_f64(seconds * part);
        if self.backend.has_tcp() {
            self.begin(Phase::Tcp, "bulk TCP")?;
            findings.tcp = Some(self.backend.tcp(N_FLOWS, None, share(0.2), self.stop)?);
        }

        self.begin(Phase::Udp, "bulk UDP")?;
        findings.udp = Some(self.backend.udp(N_FLOWS, self.judge, share(0.2), self.stop)?);
        self.settle(0, MAX_FLIGHT);

        self.begin(Phase::Churn, "names come, move and go, hosts change their switch, under traffic")?;
        findings.churn = Some(self.churn(&mut names, share(0.4))?);

        let targets = names.targets();
        if let Some(&link) = self.layout.topology.redundant_links().first() {
            self.begin(Phase::Cut, "a cable is pulled and plugged in again, without telling the controller")?;
            let rest = Duration::from_secs_f64(seconds * 0.1);
            findings.cut = Some(self.cut(&targets, (link, Fault::Pulled), rest)?);
        }

        self.begin(Phase::Drain, "a switch is drained, and lets paths through again")?;
        findings.drain = self.drain(&targets, Duration::from_secs_f64(seconds * 0.05))?;
        Ok(findings)
    }

    pub(super) fn begin(&self, phase: Phase, text: &str) -> Result<()> {
        self.check_stop()?;
        self.judge.enter(phase);
        (self.progress)(text.to_owned());
        Ok(())
    }

    fn check_stop(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }

    /// Waits for frames in flight: until all probes but those that were lost before are accounted for, or none has arrived
    /// within `flight`.
    fn settle(&self, lost_before: u64, flight: Duration) {
        let mut before = self.judge.outstanding();
        let mut since = Instant::now();
        while before > lost_before && since.elapsed() < flight && !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
            let now = self.judge.outstanding();
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
    }

    /// Gives the controller all names, starts the switches, and waits until every switch holds all names.
    fn register(&mut self) -> Result<Names> {
        let n = self.layout.n_gateways();
        let live: Vec<(Mac, usize)> =
            (0..self.n_names).map(|index| (synthetic_mac(index), (index % n as u64) as usize)).collect();
        self.judge.add(self.layout.hosts.iter().enumerate().map(|(index, host)| (host.mac, index)));
        self.judge.add(live.iter().map(|&(mac, switch)| (mac, self.layout.far(switch))));
        let hosts = self.layout.hosts.iter().enumerate();
        let mut puts: Vec<Put> =
            hosts.map(|(index, host)| Put { mac: host.mac, at: host.ends[0], host: Some(index) }).collect();
        puts.extend(live.iter().map(|&(mac, switch)| far_put(mac, switch)));
        (self.progress)(format!("{} names go to the controller", puts.len()));
        self.control.put(&puts)?;
        self.check_stop()?;
        (self.progress)(format!("{n} switches start, and receive their tables"));
        self.control.start_switches(self.stop)?;
        self.control.wait_in_step(self.stop)?;
        Ok(Names { live, next_index: self.n_names })
    }

    /// Does `work` while probes go to hosts and `targets`, and waits for those in flight, as long as one comes within `flight`. When the probes to live names were
    /// sent comes with what it gave.
    pub(super) fn under_probes<T>(
        &mut self,
        targets: &Mutex<Targets>,
        rate_pps: u64,
        flight: Duration,
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<(T, Vec<Sent>)> {
        let lost_before = self.judge.outstanding();
        let prober = Prober { layout: self.layout, backend: self.backend, judge: self.judge, targets, rate_pps };
        let (stop, done) = (self.stop, AtomicBool::new(false));
        let (outcome, log) = std::thread::scope(|scope| {
            let probing = scope.spawn(|| prober.run(&done, stop));
            let probed = SetOnDrop(&done);
            let outcome = work(self);
            drop(probed);
            (outcome, join(probing))
        });
        self.settle(lost_before, flight);
        Ok((outcome?, log))
    }

    fn churn(&mut self, names: &mut Names, until: Instant) -> Result<Churn> {
        let targets = names.targets();
        let (backend, stop) = (self.backend, self.stop);
        let (churn, _) = self.under_probes(&targets, PROBE_RATE_PPS, MAX_FLIGHT, |run| {
            std::thread::scope(|scope| {
                let rate = Some(CHURN_FLOW_BYTES_A_SECOND);
                let tcp = backend.has_tcp().then(|| scope.spawn(move || backend.tcp(N_FLOWS, rate, until, stop)));
                let outcome = run.churn_rounds(names, &targets, until);
                let tcp = tcp.map(join).transpose()?;
                outcome.map(|churn| Churn { tcp, ..churn })
            })
        })?;
        Ok(churn)
    }

    fn churn_rounds(&mut self, names: &mut Names, targets: &Mutex<Targets>, until: Instant) -> Result<Churn> {
        let mut churn = Churn::default();
        let mut random = Random(0xc4c4);
        // A hundredth of all names per round, within limits.
        let batch = (names.live.len() / 100).clamp(1, 500).min(names.live.len());
        let mut next_moved = 0;
        let mut next_host = 0;
        let (begun, lasts) = (Instant::now(), until.saturating_duration_since(Instant::now()));
        let (mut may_lose_follower, mut may_lose_leader) = (true, true);
        for round in 0.. {
            // However slow the machine, make at least one change of each kind.
            let enough = churn.host_moves > 0 && !may_lose_follower && !may_lose_leader && Instant::now() >= until;
            if enough || self.stop.load(Ordering::Relaxed) {
                break;
            }
            if round % ROUNDS_A_HOST_MOVE == 1 {
                churn.seconds += self.move_host(next_host)?.as_secs_f64();
                churn.host_moves += 1;
                next_host = (next_host + 1) % self.layout.hosts.len();
            }
            let n = self.layout.n_gateways();
            let added: Vec<(Mac, usize)> =
                (0..batch as u64).map(|i| (synthetic_mac(names.next_index + i), random.below(n))).collect();
            names.next_index += batch as u64;
            let mut removed = Vec::with_capacity(batch);
            for _ in 0..batch {
                removed.push(names.live.swap_remove(random.below(names.live.len())).0);
            }
            // In turn, so that some time passes between two moves of a name.
            let n_moves = batch.min(names.live.len());
            let mut moves = Vec::with_capacity(n_moves);
            for _ in 0..n_moves {
                next_moved = (next_moved + 1) % names.live.len();
                let (mac, switch) = &mut names.live[next_moved];
                *switch = (*switch + 1 + random.below(n.saturating_sub(1).max(1))) % n;
                moves.push((*mac, *switch));
            }
            self.judge.add(added.iter().map(|&(mac, switch)| (mac, self.layout.far(switch))));
            self.judge.moving(moves.iter().map(|&(mac, switch)| (mac, self.layout.far(switch))));
            // No more probes to names about to be removed; those in flight arrive while the adds are committed.
            lock(targets).live = names.live.iter().map(|&(mac, _)| mac).collect();

            let mut lost = None;
            if may_lose_follower && begun.elapsed() >= lasts / 4 {
                may_lose_follower = false;
                lost = self.control.lose_follower()?;
            }
            let begun_round = Instant::now();
            let puts: Vec<Put> = added.iter().chain(&moves).map(|&(mac, switch)| far_put(mac, switch)).collect();
            self.control.put(&puts)?;
            // In the middle: what was just put is acknowledged, and not all switches have it.
            if may_lose_leader && begun.elapsed() >= lasts / 2 && lost.is_none() {
                may_lose_leader = false;
                churn.leaderless = self.control.lose_leader(&puts[..1], self.stop)?;
            }
            self.control.wait_in_step(self.stop)?;
            churn.moved_on = churn.moved_on.or(lost.map(|lost| lost.elapsed()));
            self.control.remove(&removed)?;
            self.control.wait_in_step(self.stop)?;
            churn.seconds += begun_round.elapsed().as_secs_f64();

            self.judge.moved(moves.iter().map(|&(mac, _)| mac));
            self.judge.removed(removed.iter().copied());
            churn.added += added.len() as u64;
            churn.moved += moves.len() as u64;
            churn.removed += removed.len() as u64;
            names.live.extend(added);
            let mut targets = lock(targets);
            targets.live = names.live.iter().map(|&(mac, _)| mac).collect();
            targets.removed.extend(removed);
            let excess = targets.removed.len().saturating_sub(MAX_REMOVED_TARGETS);
            targets.removed.drain(..excess);
        }
        Ok(churn)
    }

    /// Moves a host to the switch of its other cable: both cables are plugged in while the network learns of the move.
    fn move_host(&mut self, index: usize) -> Result<Duration> {
        let host = &self.layout.hosts[index];
        let cable = self.backend.plug_other(index)?;
        let begun = Instant::now();
        self.control.put(&[Put { mac: host.mac, at: host.ends[cable], host: Some(index) }])?;
        self.control.wait_in_step(self.stop)?;
        let taken = begun.elapsed();
        self.backend.unplug_other(index)?;
        Ok(taken)
    }

    /// Cuts a trunk under probes, and restores it.
    pub(super) fn cut(
        &mut self,
        targets: &Mutex<Targets>,
        (link, fault): (usize, Fault),
        rest: Duration,
    ) -> Result<Cut> {
        let (times, log) =
            self.under_probes(targets, PROBE_RATE_PPS, MAX_FLIGHT, |run| run.cut_and_restore((link, fault), rest))?;
        let (begun, converged, restored) = times;
        let ends = self.layout.topology.links[link];
        let name = |switch: usize| &self.layout.topology.switches[switch];
        Ok(Cut {
            link: format!("{} - {}", name(ends.a), name(ends.b)),
            converged_ms: (converged - begun).as_secs_f64() * 1e3,
            outage_ms: outage(&log, self.judge, begun, restored).as_secs_f64() * 1e3,
        })
    }

    /// Drains a switch that others can do without, one without hosts if there is one.
    pub(super) fn drain(&mut self, targets: &Mutex<Targets>, rest: Duration) -> Result<Option<Drain>> {
        let (drained, _) = self.under_probes(targets, DRAIN_RATE_PPS, MAX_FLIGHT, |run| run.drain_one(rest))?;
        Ok(drained)
    }

    fn drain_one(&mut self, rest: Duration) -> Result<Option<Drain>> {
        pause(rest, self.stop);
        for switch in (0..self.layout.n_switches()).rev() {
            let begun = Instant::now();
            let Some(steps) = self.control.drain(switch, false, self.stop)?.filter(|steps| *steps > 0) else {
                continue;
            };
            let took = begun.elapsed();
            pause(rest, self.stop);
            self.control.drain(switch, true, self.stop)?;
            pause(rest, self.stop);
            let switch = self.layout.topology.switches[switch].clone();
            return Ok(Some(Drain { switch, steps, took }));
        }
        Ok(None)
    }

    /// Returns when the link was cut, when all switches had confirmed their new tables, and when it was restored.
    fn cut_and_restore(
        &mut self,
        (link, fault): (usize, Fault),
        rest: Duration,
    ) -> Result<(Instant, Instant, Instant)> {
        pause(rest / 2, self.stop);
        let begun = Instant::now();
        self.backend.set_trunk(link, fault, false)?;
        self.control.link_changed(link, false, self.stop)?;
        self.control.wait_in_step(self.stop)?;
        let converged = Instant::now();
        pause(rest, self.stop);
        let restored = Instant::now();
        self.backend.set_trunk(link, fault, true)?;
        self.control.link_changed(link, true, self.stop)?;
        self.control.wait_in_step(self.stop)?;
        pause(rest / 2, self.stop);
        Ok((begun, converged, restored))
    }
}

/// From `begun` until the last lost probe that was sent before `end`.
pub(super) fn outage(log: &[Sent], judge: &Judge, begun: Instant, end: Instant) -> Duration {
    log.iter()
        .rev()
        .find(|sent| sent.at < end && !judge.was_seen(sent.number))
        .map_or(Duration::ZERO, |sent| sent.at.saturating_duration_since(begun))
}

fn far_put(mac: Mac, switch: usize) -> Put {
    Put { mac, at: End { switch, port: FAR_PORT }, host: None }
}

fn lock(targets: &Mutex<Targets>) -> std::sync::MutexGuard<'_, Targets> {
    targets.lock().unwrap_or_else(PoisonError::into_inner)
}

fn join<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
