//! A station with a cable, whose carrier comes and goes, and strangers that send what they like: what must hold of it at any time.

use super::super::pdu::Id;
use super::*;
use lookup::testkit::{Rng, seed};
use std::cell::Cell;
use std::collections::BTreeMap;

/// A round.
const ROUND: Duration = Duration::from_millis(250);
const INTERVAL: Duration = Duration::from_secs(30);
/// The names that strangers send.
const NAMES: u64 = 7;

thread_local! {
    static LEFT_OUT: Cell<Option<Rule>> = const { Cell::new(None) };
}

pub(super) fn holds(rule: Rule) -> bool {
    LEFT_OUT.get() != Some(rule)
}

fn said(name: u64, ttl_s: u16) -> Said {
    let id = |kind, text: String| Id { kind, text };
    Said {
        source: [2, 0, 0, 0, 0, 1],
        chassis: id("local", format!("c{name}")),
        port: id("interface", "eth0".to_owned()),
        ttl_s,
        port_text: None,
        name: None,
        description: None,
        capabilities: vec![],
        addresses: vec![],
    }
}

struct World {
    now: Instant,
    station: Station,
    has_carrier: bool,
    /// When it spoke since it last had no carrier, the latest first.
    spoke: Vec<Instant>,
    /// When it last spoke at all.
    spoke_last: Option<Instant>,
    /// Since when it is to speak quickly.
    hurries: Instant,
    /// Each name that is to be known: when it was last heard, and until when it holds, as announced.
    there: BTreeMap<u64, [Instant; 2]>,
}

impl World {
    fn new() -> Self {
        let now = Instant::now();
        let station = Station::new(Some(INTERVAL), now);
        Self { now, station, has_carrier: true, spoke: vec![], spoke_last: None, hurries: now, there: BTreeMap::new() }
    }

    fn carrier(&mut self, has_carrier: bool) {
        self.station.carrier(has_carrier, self.now);
        if has_carrier && !self.has_carrier {
            self.hurries = self.now;
        }
        if !has_carrier {
            self.spoke.clear();
            self.there.clear();
        }
        self.has_carrier = has_carrier;
    }

    fn hear(&mut self, name: u64, ttl_s: u16) {
        let is_new = !self.there.contains_key(&name);
        self.station.hear(said(name, ttl_s), self.now);
        if !self.has_carrier {
            return;
        }
        if ttl_s == 0 {
            self.there.remove(&name);
            return;
        }
        if is_new && self.there.len() == MOST_NEIGHBOURS {
            let oldest = self.there.iter().min_by_key(|(_, [heard, _])| *heard).map(|(oldest, _)| *oldest);
            oldest.into_iter().for_each(|oldest| _ = self.there.remove(&oldest));
        }
        self.there.insert(name, [self.now, self.now + Duration::from_secs(ttl_s.into())]);
        if is_new {
            self.hurries = self.now;
        }
    }

    /// Runs a round; returns what does not hold then.
    fn round(&mut self) -> Result<(), String> {
        self.now += ROUND;
        let is_due = self.station.deadline().is_some_and(|deadline| deadline <= self.now);
        let (changed, speaks) = (self.station.judge(self.now), self.station.speaks(self.now));
        if (changed || speaks) && !is_due {
            return Err("it does something before its deadline".to_owned());
        }
        self.there.retain(|_, [_, until]| self.now < *until);
        if speaks {
            if !self.has_carrier {
                return Err("it speaks without carrier".to_owned());
            }
            if let Some(last) = self.spoke_last.filter(|last| self.now - *last < QUICKLY) {
                return Err(format!("it speaks after {:?}", self.now - last));
            }
            self.spoke.insert(0, self.now);
            self.spoke_last = Some(self.now);
        }
        let known: Vec<&str> = self.station.neighbours().iter().map(|known| &known.said.chassis.text[..]).collect();
        if known.len() > MOST_NEIGHBOURS {
            return Err(format!("it keeps {known:?}"));
        }
        let mut known: Vec<String> = known.into_iter().map(str::to_owned).collect();
        known.sort_unstable();
        let there: Vec<String> = self.there.keys().map(|name| format!("c{name}")).collect();
        if known != there {
            return Err(format!("of {there:?} it knows {known:?}"));
        }
        if self.has_carrier {
            let since = self.now - self.hurries;
            // A frame may have to wait for a second, and a round.
            let due = (since.as_millis().saturating_sub(1250) / 1250).min(u128::from(QUICK));
            let lately = self.spoke.iter().filter(|at| **at >= self.hurries).count() as u128;
            if lately < due {
                return Err(format!("it spoke {lately} times in {since:?}"));
            }
            if since > INTERVAL + 2 * QUICKLY
                && self.spoke.first().is_none_or(|last| self.now - *last > INTERVAL + ROUND)
            {
                return Err(format!("it has said nothing for longer than {INTERVAL:?}"));
            }
        }
        Ok(())
    }
}

fn run(rng: &mut Rng) -> Result<(), String> {
    let mut world = World::new();
    // Some strangers send other names all the time.
    let n_names = 1 + rng.below(NAMES);
    for _ in 0..400 {
        match rng.below(60) {
            0 | 1 => world.carrier(!world.has_carrier),
            2 => world.carrier(world.has_carrier),
            3..10 => world.hear(rng.below(n_names), rng.below(40) as u16),
            10 => world.hear(rng.below(n_names), 0),
            _ => {}
        }
        world.round()?;
    }
    // After that nothing happens any more.
    (0..200).try_for_each(|_| world.round())
}

#[test]
fn what_must_hold_holds_whatever_happens_and_not_without_any_of_the_rules() {
    let seed = seed();
    (0..300).try_for_each(|i| run(&mut Rng::new(seed + i)).map_err(|what| format!("run {i}: {what}"))).unwrap();
    for rule in [
        Rule::QuickAtFirst,
        Rule::NotTooOften,
        Rule::SilentWithoutCarrier,
        Rule::Expires,
        Rule::FarewellCounts,
        Rule::CableIsAll,
        Rule::Bounded,
    ] {
        LEFT_OUT.set(Some(rule));
        let is_noticed = (0..300).any(|i| run(&mut Rng::new(seed + i)).is_err());
        LEFT_OUT.set(None);
        assert!(is_noticed, "nothing is wrong without {rule:?}");
    }
}

#[test]
fn one_that_only_hears_says_nothing() {
    let now = Instant::now();
    let mut station = Station::new(None, now);
    station.carrier(true, now);
    assert!(station.hear(said(1, 2), now) && !station.speaks(now + INTERVAL));
    assert_eq!(station.deadline(), Some(now + Duration::from_secs(2)));
    assert!(station.judge(now + Duration::from_secs(2)) && station.deadline().is_none());
}
