//! Which names at this switch want which multicast groups: what their hosts say of it, and the questions that make them repeat it.
//!
//! ```text
//!  worker ─► reports and leaves ─► table ─► keeper (daemon::subscriptions) ─► controllers ─► switches: who gets copies
//!                                    ▲          │
//!  worker ◄── questions ◄────────────┼──────────┘
//! ```
//! A name wants a group until its host leaves it, or has not repeated it for two questions ([`Timing::holds`]). A leave ends it at once:
//! a name is one host, whose network stack speaks for all its programs, so there is nobody else to ask. A host that gives up some
//! sources of a group is asked whether it wants it still. Where several hosts are behind one port, those of old protocols keep silent
//! when another one answers; so such an answer holds for all at the port that have the group.
//!
//! Bounds: groups of a name, subscriptions of a port, and records that a port may send a second ([`Limits`]). What is above is refused
//! and counted, and harms nobody at other ports.
//!
//! Cost: the slow path, one lock a report. 24 bytes a subscription.

pub mod query;
pub mod report;

pub use query::Timing;

use crate::budget::Budget;
use crate::plane::Mac;
use report::{Report, Says};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What hosts may have noted: the section `[subscriptions]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Groups of a name.
    pub groups_per_name: u32,
    /// Groups of all names at a port, counted by name.
    pub groups_per_port: u32,
    /// What the hosts of a port may say a second, counted by group; as much at once.
    pub reports_per_second: u32,
}

/// Linux lets a program join 20 groups of IPv4; a report in a frame of 1500 bytes has up to 183.
impl Default for Limits {
    fn default() -> Self {
        Self { groups_per_name: 64, groups_per_port: 1024, reports_per_second: 200 }
    }
}

/// The most that can be configured of each: a controller is told of all in one message.
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
}

/// What all names at a switch may have noted, whatever the ports may: a report of all is some 230 KB.
const MOST: usize = 8192;

/// Why a report is not taken: the port said too much, or the name has as many groups as it may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused;

/// What was heard, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Reports and leaves that were taken.
    pub reports: u64,
    /// Those that were not, all or in part: malformed, too many, or too many groups.
    pub refused: u64,
    /// Questions to ports.
    pub questions: u64,
    /// Subscriptions now.
    pub subscriptions: u64,
}

/// Groups of each name.
pub type ByName = BTreeMap<Mac, Vec<IpAddr>>;

/// See the module.
#[derive(Debug)]
pub struct Subscriptions {
    limits: Limits,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// By the index of the port and the name: groups, and until when each holds.
    names: BTreeMap<(u8, Mac), Vec<(IpAddr, Instant)>>,
    /// How many groups these are.
    n: usize,
    budgets: HashMap<u8, Budget>,
    /// Raised with each group of a name that comes or goes.
    version: u64,
    /// Ports that are to be asked for a group.
    asks: Vec<(u8, IpAddr)>,
    /// Ports whose cables were plugged in.
    came_up: BTreeSet<u8>,
    counts: Counts,
}

impl Subscriptions {
    /// None yet.
    pub fn new(limits: Limits) -> Self {
        Self { limits, table: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A host spoke, as a name that is at the port. `keeps` says of which groups anything is kept.
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
        let table = &mut *self.lock();
        let budget = table.budgets.entry(port).or_insert_with(|| Budget::full(self.limits.reports_per_second, now));
        let n_records = report.words().count().max(1);
        let mut all = budget.take_many(n_records, now);
        if all {
            let holds_until = now + timing.holds();
            for (group, says) in report.words().filter(|(group, _)| keeps(*group)) {
                match says {
                    Says::Wants => all &= table.want(&self.limits, port, name, group, holds_until),
                    Says::Leaves => table.forget(port, name, group),
                    Says::MayLeave => table.doubt(port, name, group, now + timing.last() * query::ROBUSTNESS),
                }
                if report.speaks_for_others() {
                    let there = table.names.range_mut((port, [0; 6])..=(port, [0xff; 6]));
                    let same = there.flat_map(|(_, groups)| groups).filter(|(other, _)| *other == group);
                    same.for_each(|(_, until)| *until = holds_until);
                }
            }
        }
        *if all { &mut table.counts.reports } else { &mut table.counts.refused } += 1;
        if all { Ok(()) } else { Err(Refused) }
    }

    /// A host sent a report that is not as it should be.
    pub fn count_malformed(&self) {
        self.lock().counts.refused += 1;
    }

    /// So many questions were sent.
    pub fn count_questions(&self, n: u64) {
        self.lock().counts.questions += n;
    }

    /// Forgets what does not hold any more, and what names said at ports, given by their indices, where they are not any more.
    pub fn sweep(&self, now: Instant, is_there: impl Fn(&Mac, u8) -> bool) {
        let table = &mut *self.lock();
        table.names.retain(|(port, name), groups| {
            groups.retain(|(_, until)| *until > now);
            !groups.is_empty() && is_there(name, *port)
        });
        let n = table.names.values().map(Vec::len).sum();
        table.version += u64::from(n != std::mem::replace(&mut table.n, n));
    }

    /// Forgets all.
    pub fn clear(&self) {
        let mut table = self.lock();
        table.version += u64::from(!table.names.is_empty());
        table.names.clear();
        table.asks.clear();
        table.n = 0;
    }

    /// Changes with what [`Subscriptions::all`] says.
    pub fn version(&self) -> u64 {
        self.lock().version
    }

    /// The groups of all names, each once, in order.
    pub fn all(&self) -> ByName {
        let mut all = ByName::new();
        for ((_, name), groups) in &self.lock().names {
            let of_name = all.entry(*name).or_default();
            of_name.extend(groups.iter().map(|(group, _)| *group));
            of_name.sort_unstable();
            of_name.dedup();
        }
        all
    }

    /// The ports that are to be asked for a group, since this was called last.
    pub fn take_asks(&self) -> Vec<(u8, IpAddr)> {
        std::mem::take(&mut self.lock().asks)
    }

    /// A cable was plugged in at a port: it is to be asked for all.
    pub fn came_up(&self, port: u8) {
        self.lock().came_up.insert(port);
    }

    /// The ports of which this was said, since this was called last.
    pub fn take_came_up(&self) -> BTreeSet<u8> {
        std::mem::take(&mut self.lock().came_up)
    }

    /// What was heard since the start.
    pub fn counts(&self) -> Counts {
        let table = self.lock();
        Counts { subscriptions: table.n as u64, ..table.counts }
    }
}

impl Table {
    fn len_at(&self, port: u8) -> usize {
        self.names.range((port, [0; 6])..=(port, [0xff; 6])).map(|(_, groups)| groups.len()).sum()
    }

    /// Whether there was room for it.
    fn want(&mut self, limits: &Limits, port: u8, name: Mac, group: IpAddr, until: Instant) -> bool {
        if let Some(known) = self.names.get_mut(&(port, name)).and_then(|groups| find(groups, group)) {
            *known = until;
            return true;
        }
        let n_of_name = self.names.get(&(port, name)).map_or(0, Vec::len);
        if n_of_name >= limits.groups_per_name as usize
            || self.len_at(port) >= limits.groups_per_port as usize
            || self.n >= MOST
        {
            return false;
        }
        self.names.entry((port, name)).or_default().push((group, until));
        self.n += 1;
        self.version += 1;
        true
    }

    fn forget(&mut self, port: u8, name: Mac, group: IpAddr) {
        let Some(groups) = self.names.get_mut(&(port, name)) else { return };
        let before = groups.len();
        groups.retain(|(other, _)| *other != group);
        if groups.len() < before {
            self.n -= 1;
            self.version += 1;
        }
        if groups.is_empty() {
            self.names.remove(&(port, name));
        }
    }

    /// It holds until then at most, if its host does not repeat it, which is asked for.
    fn doubt(&mut self, port: u8, name: Mac, group: IpAddr, until: Instant) {
        if let Some(known) = self.names.get_mut(&(port, name)).and_then(|groups| find(groups, group)) {
            *known = until.min(*known);
            if !self.asks.contains(&(port, group)) {
                self.asks.push((port, group));
            }
        }
    }
}

fn find(groups: &mut [(IpAddr, Instant)], group: IpAddr) -> Option<&mut Instant> {
    groups.iter_mut().find(|(known, _)| *known == group).map(|(_, until)| until)
}

#[cfg(test)]
mod tests;
