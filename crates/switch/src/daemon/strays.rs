//! Host ports to which trunks of other switches lead, according to their hellos; the controller reports them to the
//! operator.

use super::trunk::Trunk;
use dataplane::links::{Hello, LinkState, Neighbour};
use fib::action::PortId;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A trunk that is silent for this long does not lead there any more: three of the longest intervals between two hellos. For as long,
/// no other one is taken for it: forged hellos cause two messages and log lines in this time, no more.
const HELD: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug)]
pub(super) struct Strays {
    /// Host ports, by their indices.
    ports: BTreeMap<u8, PortId>,
    /// Which trunk leads to each, and when it was heard last.
    heard: BTreeMap<u8, (Trunk, Instant)>,
}

impl Strays {
    pub(super) fn new(ports: BTreeMap<u8, PortId>) -> Self {
        Self { ports, heard: BTreeMap::new() }
    }

    /// Takes the last hellos of host ports, by their indices, at a switch of this network. Whether others are there than before.
    pub(super) fn follow(&mut self, switch: &str, cluster: u64, hellos: Vec<(u8, Hello)>, now: Instant) -> bool {
        let mut has_news = false;
        for (index, hello) in hellos {
            let Some(port) = self.ports.get(&index).copied() else { continue };
            let is_foreign = hello.cluster != 0 && cluster != 0 && hello.cluster != cluster;
            let state = if is_foreign { LinkState::Foreign } else { LinkState::HostPort };
            let neighbour = Some(Neighbour { switch: hello.switch, port: hello.port });
            match self.heard.get_mut(&index) {
                Some((trunk, heard)) if (trunk.state, &trunk.neighbour) == (state, &neighbour) => *heard = now,
                Some(_) => {}
                None => {
                    let there = neighbour.as_ref().map(ToString::to_string).unwrap_or_default();
                    tracing::warn!(
                        switch,
                        %port,
                        trunk = there,
                        "a trunk of a switch leads to a host port; make both ends trunks, or move the cable"
                    );
                    let (device, falls) = (None, (0, Duration::ZERO));
                    let trunk = Trunk { port, state, since: now, is_down: false, neighbour, device, falls };
                    self.heard.insert(index, (trunk, now));
                    has_news = true;
                }
            }
        }
        let before = self.heard.len();
        self.heard.retain(|_, (_, heard)| now.saturating_duration_since(*heard) < HELD);
        has_news || self.heard.len() < before
    }

    /// They, as they are told.
    pub(super) fn trunks(&self) -> impl Iterator<Item = Trunk> + '_ {
        self.heard.values().map(|(trunk, _)| trunk.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(switch: &str, cluster: u64) -> Hello {
        let (switch, port, session) = (switch.to_owned(), PortId(6), 7);
        Hello { switch, port, session, hears: None, cluster, interval_ms: 100, multiplier: 3 }
    }

    #[test]
    fn a_trunk_at_a_host_port_is_told_until_it_is_silent_and_who_makes_up_others_tells_little() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut strays = Strays::new([(3, PortId(4)), (5, PortId(9))].into());
        let there = |strays: &Strays| {
            let told = |trunk: Trunk| (trunk.port.0, trunk.state.name(), trunk.neighbour.unwrap().to_string());
            strays.trunks().map(told).collect::<Vec<_>>()
        };
        assert!(!strays.follow("s2", 7, vec![(1, hello("s1", 7))], at(0)), "no host port");
        assert!(strays.follow("s2", 7, vec![(3, hello("s1", 7)), (5, hello("s9", 8))], at(0)));
        let first = (4, "host_port", "s1:6".to_owned());
        assert_eq!(there(&strays), [first.clone(), (9, "foreign", "s9:6".to_owned())]);
        // The first one is heard on, and one who makes up others changes nothing.
        let n = (1..100).filter(|i| {
            let hellos = vec![(3, hello(&format!("made-up-{i}"), 7)), (3, hello("s1", 7))];
            strays.follow("s2", 7, hellos, at(*i))
        });
        assert_eq!(n.count(), 1, "the other port is silent");
        assert_eq!(there(&strays), [first]);
        let changes = (100..400).filter(|i| strays.follow("s2", 7, vec![(3, hello(&format!("x{i}"), 0))], at(*i)));
        assert!(changes.count() <= 2 * 300 / HELD.as_secs() as usize);
        assert!(strays.follow("s2", 7, vec![], at(500)) && there(&strays).is_empty());
    }
}
