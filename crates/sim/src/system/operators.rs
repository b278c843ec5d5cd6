//! Operators: what they ask for, and what they know by the answers.

use super::Violation;
use super::world::System;
use crate::site::Answer;
use controller::change::{Change, Changed, Place, Record, Refusal};
use controller::kit::Sight;
use fib::action::PortId;
use fib::name::{Name, NameKind};
use fib::topology::{End, Wanted};
use std::collections::{BTreeMap, BTreeSet};

/// Names that come, move and go.
pub(super) const NAMES: usize = 24;
/// First host port of a switch, and how many it has.
pub(super) const HOSTS: u16 = 0x8000;
pub(super) const HOST_PORTS: usize = 2;

pub(super) fn name(i: usize) -> Name {
    Name::from_bytes(NameKind::Mac, &[2, 0, 0, 0, 1, i as u8]).expect("six bytes are a MAC address")
}

pub(super) fn switch_name(i: usize) -> String {
    format!("s{i}")
}

fn host_name(i: usize, port: usize) -> String {
    format!("h{i}-{port}")
}

fn place(i: usize, port: u16) -> Place {
    Place { switch: switch_name(i), port: PortId(port) }
}

/// Something that is so or not: the place of a name (0: none, else 1 + number of the host), a link (0: none, 1: down, 2: up),
/// a switch or a host (0: none).
type Fact = (usize, u64);

/// What operators know.
pub(super) struct Facts {
    n_switches: usize,
    known: Vec<u64>,
    /// Requests without an answer, in order.
    open: BTreeMap<u64, Vec<Fact>>,
    next_ticket: u64,
}

impl Facts {
    pub(super) fn new(n_switches: usize) -> Facts {
        let known = vec![0; NAMES + n_switches * (2 + HOST_PORTS)];
        Facts { n_switches, known, open: BTreeMap::new(), next_ticket: 0 }
    }

    fn link(&self, i: usize) -> usize {
        NAMES + i
    }

    fn switch(&self, i: usize) -> usize {
        NAMES + self.n_switches + i
    }

    fn host(&self, i: usize, port: usize) -> usize {
        NAMES + 2 * self.n_switches + i * HOST_PORTS + port
    }

    pub(super) fn refused(&mut self, ticket: u64) {
        self.open.remove(&ticket);
    }

    pub(super) fn answered(&mut self, ticket: u64) {
        for (fact, value) in self.open.remove(&ticket).unwrap_or_default() {
            self.known[fact] = value;
        }
    }

    /// All facts, as the network has them.
    fn of(&self, sight: &Sight<'_>) -> Vec<u64> {
        let network = &sight.state.network;
        let topology = network.topology();
        let mut now = vec![0; self.known.len()];
        for (i, now) in now.iter_mut().enumerate().take(NAMES) {
            let host = network.rib().get(&name(i)).and_then(|place| sight.state.hosts.name(place.end()));
            let number = |host: &str| {
                (0..self.n_switches * HOST_PORTS).find(|n| host_name(n / HOST_PORTS, n % HOST_PORTS) == host)
            };
            // A name at an unknown host is nowhere that anyone asked for.
            *now = host.map_or(0, |host| number(host).map_or(u64::MAX, |number| number as u64 + 1));
        }
        for i in 0..self.n_switches {
            let node = topology.node_by_name(&switch_name(i));
            let link = node.and_then(|node| topology.link(End { node, port: PortId(1) }).ok());
            now[self.switch(i)] = u64::from(node.is_some());
            now[self.link(i)] = link.map_or(0, |link| 1 + u64::from(link.up));
            for port in 0..HOST_PORTS {
                let end = sight.state.hosts.end(&host_name(i, port));
                now[self.host(i, port)] = u64::from(end.is_ok());
            }
        }
        now
    }

    /// After a restart everything is as answered, and each request without an answer was carried out whole or not at all.
    pub(super) fn after_restart(&mut self, sight: &Sight<'_>) -> Result<(), Violation> {
        let now = self.of(sight);
        // All states that may be; of many requests without an answer, only the last could overwrite each other.
        let mut states = BTreeSet::from([self.known.clone()]);
        let open: Vec<Vec<Fact>> = std::mem::take(&mut self.open).into_values().collect();
        for facts in &open {
            // What cannot become the state that is found needs no follow-up: its facts were overwritten, or did not happen.
            let with = |state: &Vec<u64>| {
                let mut state = state.clone();
                facts.iter().for_each(|(fact, value)| state[*fact] = *value);
                state
            };
            let more: Vec<Vec<u64>> = states.iter().map(with).collect();
            states.extend(more);
            if states.len() > 2048 {
                break;
            }
        }
        let possible = if states.len() > 2048 {
            // Fact by fact.
            let may = |fact: usize, value: u64| {
                value == self.known[fact] || open.iter().flatten().any(|(of, asked)| *of == fact && *asked == value)
            };
            (0..now.len()).all(|fact| may(fact, now[fact]))
        } else {
            states.contains(&now)
        };
        if !possible {
            let differ = (0..now.len()).filter(|fact| now[*fact] != self.known[*fact]);
            let differ: Vec<String> =
                differ.map(|f| format!("fact {f} is {}, known {}", now[f], self.known[f])).collect();
            return Err(Violation::Lost { what: differ.join(", "), n_open: open.len() });
        }
        self.known = now;
        Ok(())
    }

    /// The store was set back, and operators know.
    pub(super) fn set_back(&mut self, sight: &Sight<'_>) {
        self.known = self.of(sight);
        self.open.clear();
    }
}

impl System {
    /// What there is in the beginning: a ring of switches, each with hosts.
    pub(super) fn set_up(&mut self) {
        let n = self.scenario.switches;
        (0..n).for_each(|i| self.add_switch(i));
        (0..n).for_each(|i| self.add_link(i));
        (0..n).for_each(|i| self.add_hosts(i));
    }

    fn ask(&mut self, change: Change, facts: Vec<Fact>) {
        // Without a controller it fails at once.
        let Some(controller) = &mut self.controller else { return };
        if self.scenario.log {
            eprintln!("{} {change:?}", self.now);
        }
        let answer = controller.change(change);
        self.wait_for(answer, facts);
    }

    fn wait_for(&mut self, answer: Answer<Changed>, facts: Vec<Fact>) {
        let ticket = self.facts.next_ticket;
        self.facts.next_ticket += 1;
        self.facts.open.insert(ticket, facts);
        self.asked.push_back((ticket, answer));
        self.wake_writer();
    }

    fn rekey(&mut self) {
        let Some(controller) = &mut self.controller else { return };
        self.outcome.rekeys += 1;
        let answer = controller.rekey();
        self.wait_for(answer, Vec::new());
    }

    fn add_switch(&mut self, i: usize) {
        let fact = (self.facts.switch(i), 1);
        self.ask(Change::AddSwitch { name: switch_name(i), tenants: vec![] }, vec![fact]);
    }

    fn add_link(&mut self, i: usize) {
        let next = (i + 1) % self.scenario.switches;
        let fact = (self.facts.link(i), 2);
        self.ask(Change::AddLink { a: place(i, 1), b: place(next, 2), wanted: Wanted::default() }, vec![fact]);
    }

    fn add_hosts(&mut self, i: usize) {
        let hosts = (0..HOST_PORTS).map(|port| (host_name(i, port), place(i, HOSTS + port as u16))).collect();
        let facts = (0..HOST_PORTS).map(|port| (self.facts.host(i, port), 1)).collect();
        self.ask(Change::AddHosts { hosts }, facts);
    }

    /// One request: names put, moved or removed; many names at once; a link; a switch removed and added again; another hash
    /// key; a switch verified.
    pub(super) fn operate(&mut self) {
        if self.requests_left == 0 {
            return;
        }
        self.requests_left -= 1;
        // Some come together, and some long after the others: what is missing then is not noticed by what follows.
        let pause = match self.random.below(10) {
            0..4 => 0,
            4 => 300 + self.random.below(1_500),
            _ => 5 + self.random.below(150),
        };
        self.schedule(pause, super::world::Event::Operate);
        let n = self.scenario.switches;
        match self.random.below(23) {
            20 => self.rekey(),
            21.. => {
                let switch = self.random.below(n as u64) as usize;
                self.verify(switch);
            }
            0..3 => self.put(NAMES as u64 / 2),
            3..6 => {
                let (link, up) = (self.random.below(n as u64) as usize, !self.chance(40));
                let weight = Some(1 + (self.requests_left % 3) as u8);
                let change = Change::SetLink { end: place(link, 1), cost: None, weight, raised: None, up: Some(up) };
                self.ask(change, vec![(self.facts.link(link), 1 + u64::from(up))]);
            }
            6 => {
                let switch = self.random.below(n as u64) as usize;
                self.replace(switch);
            }
            7..11 => self.remove(),
            _ => {
                let count = 1 + self.random.below(3);
                self.put(count);
            }
        }
    }

    fn some_names(&mut self, count: u64) -> BTreeSet<usize> {
        (0..count).map(|_| self.random.below(NAMES as u64) as usize).collect()
    }

    fn put(&mut self, count: u64) {
        let (mut records, mut facts) = (Vec::new(), Vec::new());
        for i in self.some_names(count) {
            let host = self.random.below((self.scenario.switches * HOST_PORTS) as u64) as usize;
            let of = host_name(host / HOST_PORTS, host % HOST_PORTS);
            records.push(Record { name: name(i).to_string(), host: of, tenant: 0, ip: None });
            facts.push((i, host as u64 + 1));
        }
        self.ask(Change::PutNames { records, only_new: false }, facts);
    }

    fn remove(&mut self) {
        let count = 1 + self.random.below(3);
        let names = self.some_names(count);
        self.remove_names(names);
    }

    fn remove_names(&mut self, names: BTreeSet<usize>) {
        let facts = names.iter().map(|i| (*i, 0)).collect();
        let names = names.into_iter().map(|i| name(i).to_string()).collect();
        self.ask(Change::RemoveNames { names, ignore_missing: true }, facts);
    }

    /// A switch is removed, with everything attached to it, and added again. Changes by others meanwhile may cause refusals.
    fn replace(&mut self, i: usize) {
        let before = (i + self.scenario.switches - 1) % self.scenario.switches;
        let at = |host: &u64| *host > 0 && (*host as usize - 1) / HOST_PORTS == i;
        let there = (0..NAMES).filter(|n| at(&self.facts.known[*n])).collect();
        self.remove_names(there);
        for port in 0..HOST_PORTS {
            self.ask(Change::RemoveHost { name: host_name(i, port) }, vec![(self.facts.host(i, port), 0)]);
        }
        for link in [i, before] {
            self.ask(Change::RemoveLink { end: place(link, 1) }, vec![(self.facts.link(link), 0)]);
        }
        self.ask(Change::RemoveSwitch { name: switch_name(i) }, vec![(self.facts.switch(i), 0)]);
        self.add_switch(i);
        self.add_link(i);
        self.add_link(before);
        self.add_hosts(i);
    }

    /// What operators removed and could not add again is added.
    pub(super) fn repair(&mut self) {
        for i in 0..self.scenario.switches {
            if self.facts.known[self.facts.switch(i)] == 0 {
                self.add_switch(i);
            }
        }
        for i in 0..self.scenario.switches {
            if self.facts.known[self.facts.link(i)] == 0 {
                self.add_link(i);
            }
            for port in 0..HOST_PORTS {
                if self.facts.known[self.facts.host(i, port)] == 0 {
                    let hosts = vec![(host_name(i, port), place(i, HOSTS + port as u16))];
                    self.ask(Change::AddHosts { hosts }, vec![(self.facts.host(i, port), 1)]);
                }
            }
        }
    }

    /// Hears the answers that have come.
    pub(super) fn hear_answers(&mut self) {
        let mut waiting = std::mem::take(&mut self.asked);
        waiting.retain_mut(|(ticket, answer)| {
            match answer.poll() {
                None => return true,
                Some(Ok(_)) => {
                    self.outcome.answered += 1;
                    self.facts.answered(*ticket);
                }
                // Whether it was carried out shows after the restart.
                Some(Err(Refusal::StoreFailed { .. } | Refusal::Stopping)) => {}
                Some(Err(_)) => self.facts.refused(*ticket),
            }
            false
        });
        self.asked = waiting;
    }
}
