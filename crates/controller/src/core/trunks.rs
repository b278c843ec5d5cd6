//! What switches see at their trunks: which links are cut, which cables are undeclared, and which lead elsewhere than declared.
//!
//! A link is cut as soon as one of its switches says that it is down, or sees another neighbour there. It is whole again when
//! one of them says that it is up, which it is only if both hear each other, and neither says that it is down. What is not known
//! changes nothing: reports are lost with this process, and what followed from them is in the store.
//!
//! A link that was itself found is no longer in the way once it is cut: its cable was moved. A declared link stays in the way, and the
//! operator is told what its switches see.
//!
//! Switches also report at which of their host ports they hear a trunk. That is reported, and changes nothing: a host may have made it up.

#![cfg_attr(not(feature = "kit"), allow(unreachable_pub, reason = "simulations drive it"))]

use crate::core::Auto;
use crate::core::change::State;
use api::v1::{LinkEnd, SeenTrunk};
use fib::action::PortId;
use fib::name::{clip, is_label};
use fib::network::Network;
use fib::topology::{End, Link, NodeId, Topology};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

/// Trunks of a switch that are kept.
const MAX_TRUNKS: usize = 1024;

/// How often in a row a link goes down before it flaps, and how long after the last time that is reported.
const FLAPS: u32 = 3;
const SAID_FOR: Duration = Duration::from_secs(60);

type Seen = BTreeMap<NodeId, BTreeMap<PortId, SeenTrunk>>;

/// What switches see at their trunks, and which links are cut by it: the last reports of all switches.
#[derive(Debug, Default)]
pub struct Trunks {
    auto: Auto,
    seen: Seen,
    /// How often flapping trunks went down in a row, and when that was first reported.
    falls: HashMap<End, (u32, Instant)>,
}

impl Trunks {
    /// Sets, once, what to do with undeclared cables.
    pub(crate) fn set_auto(&mut self, auto: Auto) {
        self.auto = auto;
    }

    pub(crate) fn auto(&self) -> Auto {
        self.auto
    }

    /// Takes the report of a switch.
    pub fn report(&mut self, node: NodeId, trunks: Vec<SeenTrunk>, now: Instant) {
        self.note_falls(node, &trunks, now);
        let known = trunks.into_iter().take(MAX_TRUNKS).filter_map(|trunk| {
            let port = u16::try_from(trunk.port).ok()?;
            Some((PortId(port), trunk))
        });
        self.seen.insert(node, known.collect());
    }

    fn note_falls(&mut self, node: NodeId, trunks: &[SeenTrunk], now: Instant) {
        let falls = &mut self.falls;
        let flapping = trunks.iter().take(MAX_TRUNKS).filter(|trunk| trunk.falls >= FLAPS).filter_map(|trunk| {
            let end = End { node, port: PortId(trunk.port.try_into().ok()?) };
            // It reports again whenever anything changes.
            let before = falls.get(&end).filter(|(n, _)| *n == trunk.falls);
            Some((end, before.copied().unwrap_or((trunk.falls, now))))
        });
        let flapping: Vec<_> = flapping.collect();
        falls.retain(|end, _| end.node != node);
        falls.extend(flapping);
    }

    /// The switches that have reported.
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        self.seen.keys().copied().collect()
    }

    /// The links of a switch whose state differs from the network's: an end of each, and whether it is cut.
    pub fn changed_at(&self, network: &Network, node: NodeId) -> Vec<(End, bool)> {
        let seen = &self.seen;
        let topology = network.topology();
        let links = topology.links_of(node).filter_map(|(near, far, link)| {
            let views = [(near, far), (far, near)].map(|(one, other)| view(topology, seen, one, other));
            let cut = if views.iter().flatten().any(|view| view.is_down || view.elsewhere) {
                true
            } else if views.iter().flatten().any(|view| view.is_good) {
                false
            } else {
                link.cut
            };
            (cut != link.cut).then_some((link.a, cut))
        });
        links.collect()
    }

    /// Cables that both their switches see, between ports without a host, and without a link other than one that
    /// [gives way](Link::gives_way); none, if cables are ignored.
    pub(crate) fn found(&self, network: &Network) -> Vec<(End, End)> {
        if self.auto() == Auto::Off {
            return Vec::new();
        }
        let seen = &self.seen;
        let topology = network.topology();
        let ids = by_name(topology);
        let hosts: HashSet<End> = network.host_ports().collect();
        let far_end = |near: End| {
            let trunk = seen.get(&near.node)?.get(&near.port).filter(|trunk| trunk.state == "up")?;
            let neighbour = trunk.neighbour.as_ref()?;
            let port = PortId(neighbour.port.try_into().ok()?);
            Some(End { node: *ids.get(&*neighbour.switch)?, port })
        };
        let is_free = |end: &End| {
            let has_no_link = topology.link(*end).map_or(true, Link::gives_way);
            has_no_link && !hosts.contains(end) && topology.node(end.node).is_ok()
        };
        let nears = seen.iter().flat_map(|(node, trunks)| trunks.keys().map(|port| End { node: *node, port: *port }));
        let cable = |near: End| {
            let far = far_end(near).filter(|far| far_end(*far) == Some(near))?;
            (near < far && near.node != far.node && is_free(&near) && is_free(&far)).then_some((near, far))
        };
        nears.filter_map(cable).collect()
    }

    /// A sentence for each trunk that does not see what it should.
    pub(crate) fn troubles(&self, state: &State, now: Instant) -> Vec<String> {
        let seen = &self.seen;
        let topology = state.network.topology();
        let ids = by_name(topology);
        let falls = &self.falls;
        let sentence = |node: &NodeId, port: &PortId, trunk: &SeenTrunk| {
            let name = &topology.node(*node).ok()?.name;
            let end = End { node: *node, port: *port };
            let at = format!("{name}:{port}");
            let neighbour = trunk.neighbour.as_ref();
            let there = neighbour.map(|other| format!("{}:{}", clip(&other.switch), other.port)).unwrap_or_default();
            match &*trunk.state {
                "looped" => return Some(format!("{at} hears its own switch, at port {there}: a cable leads back")),
                "several" => {
                    return Some(format!("{at} hears more than one switch, {there} first: a bridge joins them"));
                }
                "foreign" => return Some(format!("{at} is joined to {there}, a switch of another network")),
                "silent" if !trunk.device_there.is_empty() => {
                    let device = clip(&trunk.device_there);
                    return Some(format!(
                        "{at} hears no switch, but a device that calls itself {device} is there: a cable leads elsewhere, or hellos are off"
                    ));
                }
                "host_port" => {
                    let is_known = neighbour.is_some_and(|other| ids.contains_key(&*other.switch));
                    return Some(match is_known {
                        true => format!(
                            "{there}, a trunk, leads to host port {at}: make {at} a trunk in its switch.toml, or plug the cable elsewhere"
                        ),
                        false => format!(
                            "host port {at} hears a trunk of a switch that calls itself {there}, which was not added"
                        ),
                    });
                }
                // One that is not down has just started.
                "one_way" if trunk.down => {
                    return Some(format!("{at} hears {there}, which does not hear it: one direction fails"));
                }
                _ => {}
            }
            let of_neighbour = |neighbour: &LinkEnd| {
                if let Ok(link) = topology.link(end) {
                    let far = if link.a == end { link.b } else { link.a };
                    let was = format!("{}:{}", topology.node(far.node).ok()?.name, far.port);
                    let is_moved = is_elsewhere(topology, far, neighbour);
                    return is_moved.then(|| format!("{at} is joined to {there}, and {}", self.of_moved(link, &was)));
                }
                if let Some(host) = state.hosts.name(end) {
                    return Some(format!(
                        "{at} is joined to {there}, but is the port of the host {host}: `fibula host del {host}` makes room for a link, or plug the cable elsewhere"
                    ));
                }
                (!ids.contains_key(&*neighbour.switch)).then(|| {
                    let other = &neighbour.switch;
                    match is_label(other) {
                        true => format!(
                            "{at} is joined to {there}, a switch that was not added: `fibula switch accept {other}` if `fibula switch pending` lists it, or else `fibula switch add {other}`"
                        ),
                        false => format!("{at} is joined to {there}, a switch with an invalid name: give it another one in its switch.toml"),
                    }
                })
            };
            let flaps = || {
                let (n, since) = falls.get(&end)?;
                let held_s = f64::from(trunk.held_ms) / 1000.0;
                (now.saturating_duration_since(*since) < SAID_FOR).then(|| {
                    format!(
                        "{at} went down {n} times in a row, each time soon after it had come up, and is held down for {held_s} s when it comes back: check its cable and the other end"
                    )
                })
            };
            neighbour.filter(|_| trunk.state == "up").and_then(of_neighbour).or_else(flaps)
        };
        let all = seen.iter().flat_map(|(node, trunks)| trunks.iter().map(move |(port, trunk)| (node, port, trunk)));
        all.filter_map(|(node, port, trunk)| sentence(node, port, trunk)).collect()
    }

    /// How the link came about at which a switch sees another neighbour, and what to do.
    fn of_moved(&self, link: &Link, was: &str) -> String {
        if !link.found {
            return format!("was declared to lead to {was}: the cable or the link is in the wrong place");
        }
        let what = match self.auto() {
            _ if !link.up => "the link is out of use, so it stays: `fibula link del` removes it",
            Auto::Off => "the search for cables is off: remove the link, and add another",
            Auto::Confirm => "`fibula link accept` follows the cable, once both ends see each other",
            Auto::On => "the link follows the cable, once both ends see each other",
        };
        format!("was found to lead to {was}: {what}")
    }
}

/// The switches by name: finding one by its name takes a search of all.
fn by_name(topology: &Topology) -> HashMap<&str, NodeId> {
    topology.nodes().map(|(id, node)| (&*node.name, id)).collect()
}

/// Whether a neighbour differs from the one at this end.
fn is_elsewhere(topology: &Topology, expected: End, neighbour: &LinkEnd) -> bool {
    let name = topology.node(expected.node).map(|node| &*node.name);
    name != Ok(&*neighbour.switch) || neighbour.port != u32::from(expected.port.0)
}

/// What one end of a link reports about it.
struct View {
    is_down: bool,
    /// Whether it carries frames both ways, or only its carrier is watched, and is there.
    is_good: bool,
    /// Whether another neighbour is there.
    elsewhere: bool,
}

fn view(topology: &Topology, seen: &Seen, end: End, other: End) -> Option<View> {
    let trunk = seen.get(&end.node)?.get(&end.port)?;
    let is_up = trunk.state == "up";
    let elsewhere = is_up && trunk.neighbour.as_ref().is_none_or(|neighbour| is_elsewhere(topology, other, neighbour));
    Some(View { is_down: trunk.down, is_good: is_up && !elsewhere || trunk.state == "unwatched", elsewhere })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::change::{Change, Place};
    use crate::hosts::Hosts;
    use fib::network::Settings;
    use fib::topology::Wanted;
    use lookup::hash::SecretKey;

    fn place(switch: &str, port: u16) -> Place {
        Place { switch: switch.to_owned(), port: PortId(port) }
    }

    /// Switches s1 to s3. The link at s1:1 was declared, that at s1:2 was found. The host h is at s1:9.
    struct Bench {
        state: State,
        trunks: Trunks,
        now: Instant,
    }

    fn up(port: u32, switch: &str, far: u32) -> SeenTrunk {
        let neighbour = Some(LinkEnd { switch: switch.to_owned(), port: far });
        SeenTrunk { port, state: "up".to_owned(), neighbour, ..SeenTrunk::default() }
    }

    impl Bench {
        fn new(auto: Auto) -> Bench {
            let network = Network::new(Settings::new(7, SecretKey::from_seed(1)), 1).unwrap();
            let mut state = State { network, hosts: Hosts::default() };
            let found = Wanted { found: true, ..Wanted::default() };
            for change in [
                Change::AddSwitches { names: ["s1", "s2", "s3"].map(str::to_owned).to_vec() },
                Change::AddHosts { hosts: vec![("h".to_owned(), place("s1", 9))] },
                Change::AddLinks {
                    links: vec![
                        (place("s1", 1), place("s2", 1), Wanted::default()),
                        (place("s1", 2), place("s2", 2), found),
                    ],
                },
            ] {
                state.carry_out(change).unwrap();
            }
            let mut trunks = Trunks::default();
            trunks.set_auto(auto);
            Bench { state, trunks, now: Instant::now() }
        }

        /// A switch reports, and its links are cut and whole by it.
        fn report(&mut self, switch: &str, seen: Vec<SeenTrunk>) {
            let node = self.state.node(switch).unwrap();
            self.trunks.report(node, seen, self.now);
            let links = self.trunks.changed_at(&self.state.network, node);
            let links = links.into_iter().map(|(end, cut)| (self.state.place(end), cut)).collect();
            self.state.carry_out(Change::SeeLinks { links }).unwrap();
        }

        fn found(&self) -> Vec<String> {
            let text = |end| {
                let Place { switch, port } = self.state.place(end);
                format!("{switch}:{port}")
            };
            let found = self.trunks.found(&self.state.network);
            found.into_iter().map(|(a, b)| format!("{} {}", text(a), text(b))).collect()
        }

        fn troubles(&self) -> Vec<String> {
            self.trunks.troubles(&self.state, self.now)
        }
    }

    #[test]
    fn a_found_link_that_is_cut_is_not_in_the_way_and_a_declared_one_is() {
        let mut bench = Bench::new(Auto::Confirm);
        // Both cables lead to s3 now. Its end is not known yet.
        bench.report("s1", vec![up(1, "s3", 1), up(2, "s3", 2)]);
        assert_eq!(bench.found(), [""; 0]);
        let declared =
            "s1:1 is joined to s3:1, and was declared to lead to s2:1: the cable or the link is in the wrong place";
        let found = "s1:2 is joined to s3:2, and was found to lead to s2:2: `fibula link accept` follows the cable, once both ends see each other";
        assert_eq!(bench.troubles(), [declared, found]);
        bench.report("s3", vec![up(1, "s1", 1), up(2, "s1", 2)]);
        assert_eq!(bench.found(), ["s1:2 s3:2"]);
        // A link that an operator has taken out of use stays, and one that an operator has set belongs to the operator.
        let set = |up, cost| Change::SetLink { end: place("s1", 2), cost, weight: None, raised: Some(0), up };
        bench.state.carry_out(set(Some(false), None)).unwrap();
        assert_eq!(bench.found(), [""; 0]);
        assert!(
            bench.troubles()[1].ends_with(
                "was found to lead to s2:2: the link is out of use, so it stays: `fibula link del` removes it"
            )
        );
        bench.state.carry_out(set(Some(true), None)).unwrap();
        assert_eq!(bench.found(), ["s1:2 s3:2"], "a drain leaves the mark");
        let set = Change::SetLink { end: place("s1", 2), cost: Some(1), weight: None, raised: None, up: None };
        assert_eq!(bench.state.carry_out(set).unwrap().changed.changed, 1);
        assert_eq!(bench.found(), [""; 0]);
        assert!(bench.troubles()[1].contains("was declared to lead to s2:2"));
    }

    #[test]
    fn trunks_that_lead_to_no_link_have_a_sentence_that_says_what_to_do() {
        let mut bench = Bench::new(Auto::On);
        let trunks = [up(2, "s2", 2), up(7, "s9", 1), up(8, "x\u{7}", 1), up(9, "s3", 1), up(10, "s3", 2)];
        bench.report("s1", trunks.into());
        let unknown = "s1:7 is joined to s9:1, a switch that was not added: `fibula switch accept s9` if `fibula switch pending` lists it, or else `fibula switch add s9`";
        let unnamed =
            "s1:8 is joined to x\\u0007:1, a switch with an invalid name: give it another one in its switch.toml";
        let host = "s1:9 is joined to s3:1, but is the port of the host h: `fibula host del h` makes room for a link, or plug the cable elsewhere";
        assert_eq!(bench.troubles(), [unknown, unnamed, host]);
    }

    #[test]
    fn a_trunk_that_flaps_has_a_sentence_for_a_while() {
        let mut bench = Bench::new(Auto::On);
        let falls = |falls| vec![SeenTrunk { falls, held_ms: 1200, ..up(2, "s2", 2) }];
        bench.report("s1", falls(FLAPS - 1));
        assert_eq!(bench.troubles(), [""; 0]);
        bench.report("s1", falls(FLAPS));
        let flaps = "s1:2 went down 3 times in a row, each time soon after it had come up, and is held down for 1.2 s when it comes back: check its cable and the other end";
        assert_eq!(bench.troubles(), [flaps]);
        // It went down no more, whatever else its switch reports.
        bench.now += SAID_FOR;
        bench.report("s1", falls(FLAPS));
        assert_eq!(bench.troubles(), [""; 0]);
        bench.report("s1", falls(FLAPS + 1));
        assert_eq!(bench.troubles().len(), 1);
    }
}
