//! Which names at this switch want which multicast groups: the reports of their hosts, and the queries that make them repeat these.
//!
//! ```text
//!  worker ─► reports and leaves ─► table ─► keeper (daemon::subscriptions) ─► controllers ─► switches: who gets copies
//!                                    ▲          │
//!  worker ◄── questions ◄────────────┼──────────┘
//! ```
//! A name wants a group until its host leaves it, or has not repeated it for two queries ([`Timing::holds`]). A leave ends it at once:
//! a name is one host, whose network stack speaks for all its programs, so there are no others to ask. A host that gives up some
//! sources of a group is asked whether it still wants it. Where several hosts are behind one port, those of old protocols keep silent
//! when another one answers; so such an answer holds for all at the port that have the group.
//!
//! Bounds: groups of a name, subscriptions of a port, and what a port may report and change a second ([`Limits`]). What a switch keeps in
//! all is divided evenly among its host ports. Any excess is refused and counted, and takes nothing from other ports. A worker
//! refuses frames above their rate before it reads them, without the lock.
//!
//! Cost: the slow path, one lock a report; the keeper holds it for one pass over the table ten times a second. 40 bytes a
//! subscription.
//!
//! Limits: hosts behind a VLAN tag are not asked, so their reports are not kept, and their multicasts go to the whole tenant
//! ([`crate::groups::group_of`]). A host of an old protocol that keeps silent because another one answered is noted only if its name had
//! the group before. A host with IGMPv1 takes up to 10 s to answer, so it loses its groups now and then with an interval below 5 s.

pub mod query;
pub mod report;

pub use query::Timing;

use crate::bits::NotedPorts;
use crate::budget::Budget;
use crate::mac::Mac;
use report::{Report, Says};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Limits on what hosts may have noted: the section `[subscriptions]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Groups of a name.
    pub groups_per_name: u32,
    /// Groups of all names at a port, counted by name.
    pub groups_per_port: u32,
    /// Reports of a port a second, per worker; and groups that its names may join or leave a second. At once, as many as
    /// `groups_per_port`, if that is more: so all may answer a question.
    pub reports_per_second: u32,
}

/// Linux lets a program join 20 groups of IPv4; a report in a frame of 1500 bytes has up to 183.
impl Default for Limits {
    fn default() -> Self {
        Self { groups_per_name: 64, groups_per_port: 1024, reports_per_second: 200 }
    }
}

/// The most that can be configured of each: one message tells a controller of all of them.
/// The most groups that the names of a switch can want, counted for each name.
pub const MOST: usize = 8192;

const MOST_OF_PORT: u32 = 4096;
const MOST_REPORTS: u32 = 100_000;

impl Limits {
    /// # Errors
    /// What is out of range.
    pub fn check(&self) -> Result<(), String> {
        let all = [
            ("groups_per_name", self.groups_per_name, MOST_OF_PORT),
            ("groups_per_port", self.groups_per_port, MOST_OF_PORT),
            ("reports_per_second", self.reports_per_second, MOST_REPORTS),
        ];
        match all.into_iter().find(|(_, value, most)| !(1..=*most).contains(value)) {
            Some((key, value, most)) => {
                Err(format!("subscriptions.{key} = {value} is out of range; write 1 to {most}"))
            }
            None => Ok(()),
        }
    }

    /// The limits for each of this many ports, so that none takes what belongs to another.
    fn shared_by(self, n_host_ports: usize) -> Self {
        let share = (MOST / n_host_ports.max(1)) as u32;
        Self { groups_per_port: self.groups_per_port.min(share), ..self }
    }

    fn budget(self, now: Instant) -> Budget {
        Budget::with_burst(self.reports_per_second, self.reports_per_second.max(self.groups_per_port), now)
    }
}

/// The time besides that which a host has to answer: until the query left, and the answer came.
const ON_THE_WAY: Duration = Duration::from_millis(500);

/// The port's report is not taken, or only in part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused;

/// Why reports of a port are not taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Why {
    /// A name, or the port, has as many groups as it may have.
    Full,
    /// The port reports more, or changes more, than it may.
    Often,
    /// They are malformed.
    Malformed,
}

impl Why {
    const ALL: [Self; 3] = [Self::Full, Self::Often, Self::Malformed];

    /// What an operator can do.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Full => {
                "a name, or the port, is at its limit of groups: look for a host that joins endlessly, or raise groups_per_name or \
                 groups_per_port in [subscriptions]"
            }
            Self::Often => {
                "the port exceeds its rate of reports: look for a flood, or raise reports_per_second in [subscriptions]"
            }
            Self::Malformed => "they are malformed: `fibula capture` shows them",
        }
    }
}

/// Ports whose reports were not taken since the last call, for each reason.
#[derive(Debug, Default)]
struct Refusals([NotedPorts; Why::ALL.len()]);

impl Refusals {
    fn note(&self, port: u8, why: Why) {
        self.0[why as usize].note(port);
    }

    fn take(&self) -> Vec<(u8, Why)> {
        Why::ALL.into_iter().flat_map(|why| self.0[why as usize].take().map(move |port| (port, why))).collect()
    }
}

/// Counts since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Reports and leaves that were taken.
    pub reports: u64,
    /// Reports and leaves that were not taken, or only in part: malformed, too many, or too many groups.
    pub refused: u64,
    /// Queries to ports.
    pub questions: u64,
    /// The present number of subscriptions.
    pub subscriptions: u64,
}

/// Groups of each name.
pub type ByName = BTreeMap<Mac, Vec<IpAddr>>;

/// See the module.
#[derive(Debug)]
pub struct Subscriptions {
    limits: Limits,
    table: Mutex<Table>,
    reports: AtomicU64,
    refused: AtomicU64,
    questions: AtomicU64,
    refusals: Refusals,
}

/// The budget of a port's reports to a worker.
#[derive(Debug)]
pub(crate) struct Allowance(Budget);

impl Allowance {
    pub(crate) fn new(limits: Limits) -> Self {
        Self(limits.budget(Instant::now()))
    }
}

/// The index of a port, and a name there.
type Place = (u8, Mac);

#[derive(Debug, Default)]
struct Table {
    /// Groups of names, and until when each holds.
    names: BTreeMap<Place, Vec<(IpAddr, Instant)>>,
    /// How many groups these are, in all and at each port.
    n: usize,
    n_at: BTreeMap<u8, usize>,
    /// The budget of changes by the names at a port.
    budgets: HashMap<u8, Budget>,
    /// Raised with each group that a name joins or leaves.
    version: u64,
    /// Names whose port is to be asked for a group.
    asks: BTreeSet<(u8, IpAddr, Mac)>,
    /// Ports whose cables were plugged in.
    came_up: BTreeSet<u8>,
}

impl Subscriptions {
    /// An empty table, for a switch with this many host ports.
    pub fn new(limits: Limits, n_host_ports: usize) -> Self {
        let (reports, refused, questions) = Default::default();
        let (limits, table, refusals) = (limits.shared_by(n_host_ports), Mutex::default(), Refusals::default());
        Self { limits, table, reports, refused, questions, refusals }
    }

    /// The limits of each port.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the report of a host whose name is at the port. `keeps` tells of which groups anything is kept.
    /// # Errors
    /// [`Refused`]: some of it is not taken.
    pub fn hear(
        &self,
        port: u8,
        name: Mac,
        report: &Report<'_>,
        (timing, now): (Timing, Instant),
        keeps: impl Fn(IpAddr) -> bool,
    ) -> Result<(), Refused> {
        let holds_until = now + timing.holds();
        let table = &mut *self.lock();
        let mut refused = None;
        for (group, says) in report.words().filter(|(group, _)| keeps(*group)) {
            let place = (port, name);
            // A repeated report changes nothing, and may be made whatever the host changed before.
            let is_change = match says {
                Says::Wants => !table.repeat(place, group, holds_until),
                Says::Leaves | Says::MayLeave => table.has(place, group),
            };
            if is_change {
                let budget = table.budgets.entry(port).or_insert_with(|| self.limits.budget(now));
                let is_done = match budget.take(now) {
                    true => {
                        table.change(&self.limits, place, (group, says), holds_until).then_some(()).ok_or(Why::Full)
                    }
                    false => Err(Why::Often),
                };
                refused = is_done.err().or(refused);
            }
            if report.speaks_for_others() {
                let there = table.names.range_mut((port, [0; 6])..=(port, [0xff; 6]));
                let same = there.flat_map(|(_, groups)| groups).filter(|(other, _)| *other == group);
                same.for_each(|(_, until)| *until = holds_until);
            }
        }
        let Some(why) = refused else {
            self.reports.fetch_add(1, Relaxed);
            return Ok(());
        };
        self.refuse(port, why);
        Err(Refused)
    }

    /// Whether a port may report anything now; if not, that is counted.
    pub(crate) fn admit(&self, port: u8, allowance: &mut Allowance) -> bool {
        let may = allowance.0.take(Instant::now());
        if !may {
            self.refuse(port, Why::Often);
        }
        may
    }

    /// Counts a report of a port that is not taken.
    pub fn refuse(&self, port: u8, why: Why) {
        self.refused.fetch_add(1, Relaxed);
        self.refusals.note(port, why);
    }

    /// The ports whose reports were not taken since the last call, by their indices, with the reasons.
    pub fn take_refusals(&self) -> Vec<(u8, Why)> {
        self.refusals.take()
    }

    /// Counts queries that were sent.
    pub fn count_questions(&self, n: u64) {
        self.questions.fetch_add(n, Relaxed);
    }

    /// Forgets what no longer holds, and the reports of names at ports, given by their indices, where they no longer are.
    pub fn sweep(&self, now: Instant, is_there: impl Fn(&Mac, u8) -> bool) {
        let table = &mut *self.lock();
        table.names.retain(|(port, name), groups| {
            groups.retain(|(_, until)| *until > now);
            !groups.is_empty() && is_there(name, *port)
        });
        table.n_at.clear();
        for ((port, _), groups) in &table.names {
            *table.n_at.entry(*port).or_default() += groups.len();
        }
        let n = table.n_at.values().sum();
        table.version += u64::from(n != std::mem::replace(&mut table.n, n));
    }

    /// Forgets all.
    pub fn clear(&self) {
        let mut table = self.lock();
        table.version += u64::from(!table.names.is_empty());
        table.names.clear();
        table.asks.clear();
        table.n_at.clear();
        table.n = 0;
    }

    /// A number that changes with the result of [`Subscriptions::all`].
    pub fn version(&self) -> u64 {
        self.lock().version
    }

    /// The groups of all names, each once, in order.
    pub fn all(&self) -> ByName {
        let mut all = ByName::new();
        for ((_, name), groups) in &self.lock().names {
            all.entry(*name).or_default().extend(groups.iter().map(|(group, _)| *group));
        }
        for groups in all.values_mut() {
            groups.sort_unstable();
            groups.dedup();
        }
        all
    }

    /// The ports that are to be asked for a group now, since the last call. A subscription that is not repeated ends when its host has had
    /// the time to answer.
    pub fn take_asks(&self, (timing, now): (Timing, Instant)) -> Vec<(u8, IpAddr)> {
        let until = now + timing.last() * query::ROBUSTNESS + ON_THE_WAY;
        let table = &mut *self.lock();
        let asks = std::mem::take(&mut table.asks);
        for (port, group, name) in &asks {
            if let Some(known) = table.find((*port, *name), *group) {
                *known = until.min(*known);
            }
        }
        let mut asks: Vec<_> = asks.into_iter().map(|(port, group, _)| (port, group)).collect();
        asks.dedup();
        asks
    }

    /// Notes that a cable was plugged in at a port: it is to be asked for all groups.
    pub fn came_up(&self, port: u8) {
        self.lock().came_up.insert(port);
    }

    /// The ports for which that was noted since the last call.
    pub fn take_came_up(&self) -> BTreeSet<u8> {
        std::mem::take(&mut self.lock().came_up)
    }

    /// The counts since the start.
    pub fn counts(&self) -> Counts {
        let subscriptions = self.lock().n as u64;
        let read = |count: &AtomicU64| count.load(Relaxed);
        let (reports, refused, questions) = (read(&self.reports), read(&self.refused), read(&self.questions));
        Counts { reports, refused, questions, subscriptions }
    }
}

impl Table {
    fn find(&mut self, place: Place, group: IpAddr) -> Option<&mut Instant> {
        let groups = self.names.get_mut(&place)?;
        groups.iter_mut().find(|(known, _)| *known == group).map(|(_, until)| until)
    }

    fn has(&self, place: Place, group: IpAddr) -> bool {
        self.names.get(&place).is_some_and(|groups| groups.iter().any(|(known, _)| *known == group))
    }

    /// Whether the name already has the group; then it holds until the given time.
    fn repeat(&mut self, (port, name): Place, group: IpAddr, until: Instant) -> bool {
        let Some(known) = self.find((port, name), group) else { return false };
        *known = until;
        // It has answered what it was to be asked.
        self.asks.remove(&(port, group, name));
        true
    }

    /// Whether there was room for it.
    fn change(&mut self, limits: &Limits, (port, name): Place, (group, says): (IpAddr, Says), until: Instant) -> bool {
        match says {
            Says::Wants => {
                let n_of_name = self.names.get(&(port, name)).map_or(0, Vec::len);
                let n_of_port = self.n_at.entry(port).or_default();
                if n_of_name >= limits.groups_per_name as usize || *n_of_port >= limits.groups_per_port as usize {
                    return false;
                }
                *n_of_port += 1;
                self.names.entry((port, name)).or_default().push((group, until));
                (self.n, self.version) = (self.n + 1, self.version + 1);
            }
            Says::Leaves => self.forget((port, name), group),
            // It is asked whether it still wants the group.
            Says::MayLeave => {
                self.asks.insert((port, group, name));
            }
        }
        true
    }

    fn forget(&mut self, place: Place, group: IpAddr) {
        let Some(groups) = self.names.get_mut(&place) else { return };
        let before = groups.len();
        groups.retain(|(other, _)| *other != group);
        if groups.len() < before {
            *self.n_at.entry(place.0).or_insert(1) -= 1;
            self.n -= 1;
            self.version += 1;
        }
        if groups.is_empty() {
            self.names.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests;
