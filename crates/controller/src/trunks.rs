//! What switches see at their trunks: which links are cut, which cables nobody declared, and which lead elsewhere than declared.
//!
//! A link is cut as soon as one of its switches says that it is down, or sees another neighbour there. It is whole again when
//! one of them says that it is up, which it is only if both hear each other, and none that it is down. What is not known
//! changes nothing: reports are lost with this process, and what followed from them is in the store.
//!
//! Switches also say at which of their host ports they hear a trunk. That is told, and changes nothing: a host may have made it up.

use crate::config::Auto;
use api::v1::SeenTrunk;
use fib::action::PortId;
use fib::name::clip;
use fib::network::Network;
use fib::topology::{End, NodeId, Topology};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Trunks of a switch that are kept.
const MAX_TRUNKS: usize = 1024;

type Seen = BTreeMap<NodeId, BTreeMap<PortId, SeenTrunk>>;

/// The last reports of all switches.
#[derive(Debug, Default)]
pub(crate) struct Trunks {
    auto: OnceLock<Auto>,
    seen: Mutex<Seen>,
}

impl Trunks {
    /// Says, once, what becomes of cables that nobody declared.
    pub(crate) fn set_auto(&self, auto: Auto) {
        let _ = self.auto.set(auto);
    }

    pub(crate) fn auto(&self) -> Auto {
        self.auto.get().copied().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the report of a switch.
    pub(crate) fn report(&self, node: NodeId, trunks: Vec<SeenTrunk>) {
        let known = trunks.into_iter().take(MAX_TRUNKS).filter_map(|trunk| {
            let port = u16::try_from(trunk.port).ok()?;
            Some((PortId(port), trunk))
        });
        self.lock().insert(node, known.collect());
    }

    /// The switches that have reported.
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        self.lock().keys().copied().collect()
    }

    /// The links of a switch that are otherwise than the network has them: an end of each, and whether it is cut.
    pub(crate) fn changed_at(&self, network: &Network, node: NodeId) -> Vec<(End, bool)> {
        let seen = self.lock();
        let topology = network.topology();
        let links = topology.links_of(node).filter_map(|(near, far, link)| {
            let views = [(near, far), (far, near)].map(|(one, other)| view(topology, &seen, one, other));
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

    /// Cables that both their switches see, between ports without a link or a host; none, if they are not looked for.
    pub(crate) fn found(&self, network: &Network) -> Vec<(End, End)> {
        if self.auto() == Auto::Off {
            return Vec::new();
        }
        let seen = self.lock();
        let topology = network.topology();
        let ids: HashMap<&str, NodeId> = topology.nodes().map(|(id, node)| (&*node.name, id)).collect();
        let hosts: HashSet<End> = network.host_ports().collect();
        let far_end = |near: End| {
            let trunk = seen.get(&near.node)?.get(&near.port).filter(|trunk| trunk.state == "up")?;
            let neighbour = trunk.neighbour.as_ref()?;
            let port = PortId(neighbour.port.try_into().ok()?);
            Some(End { node: *ids.get(&*neighbour.switch)?, port })
        };
        let is_free =
            |end: &End| topology.link(*end).is_err() && !hosts.contains(end) && topology.node(end.node).is_ok();
        let nears = seen.iter().flat_map(|(node, trunks)| trunks.keys().map(|port| End { node: *node, port: *port }));
        let cable = |near: End| {
            let far = far_end(near).filter(|far| far_end(*far) == Some(near))?;
            (near < far && near.node != far.node && is_free(&near) && is_free(&far)).then_some((near, far))
        };
        nears.filter_map(cable).collect()
    }

    /// A sentence for each trunk that does not see what it should.
    pub(crate) fn troubles(&self, network: &Network) -> Vec<String> {
        let seen = self.lock();
        let topology = network.topology();
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
                        "{at} hears no switch, and a device that calls itself {device} is there: a cable leads elsewhere, or hellos are off"
                    ));
                }
                "host_port" => {
                    let is_known = neighbour.is_some_and(|other| topology.node_by_name(&other.switch).is_some());
                    return Some(match is_known {
                        true => format!(
                            "{there}, a trunk, leads to host port {at}: make {at} a trunk in its switch.toml, or plug the cable elsewhere"
                        ),
                        false => format!(
                            "host port {at} hears a trunk of a switch that calls itself {there}, and no such switch was added"
                        ),
                    });
                }
                // One that is not down has just started.
                "one_way" if trunk.down => {
                    return Some(format!("{at} hears {there}, which does not hear it: one direction fails"));
                }
                _ => {}
            }
            let link = topology.link(end).ok()?;
            let far = if link.a == end { link.b } else { link.a };
            let declared = format!("{}:{}", topology.node(far.node).ok()?.name, far.port);
            view(topology, &seen, end, far)?.elsewhere.then(|| {
                format!("{at} is joined to {there}, and was declared to lead to {declared}: the cable is elsewhere, or the link")
            })
        };
        let all = seen.iter().flat_map(|(node, trunks)| trunks.iter().map(move |(port, trunk)| (node, port, trunk)));
        all.filter_map(|(node, port, trunk)| sentence(node, port, trunk)).collect()
    }
}

/// What one end of a link says of it.
struct View {
    is_down: bool,
    /// It carries frames both ways, or nothing but its carrier is watched, and that is there.
    is_good: bool,
    /// Another neighbour is there.
    elsewhere: bool,
}

fn view(topology: &Topology, seen: &Seen, end: End, other: End) -> Option<View> {
    let trunk = seen.get(&end.node)?.get(&end.port)?;
    let is_other = |neighbour: &api::v1::LinkEnd| {
        let name = topology.node(other.node).map(|node| &*node.name);
        name == Ok(&*neighbour.switch) && neighbour.port == u32::from(other.port.0)
    };
    let is_up = trunk.state == "up";
    let elsewhere = is_up && !trunk.neighbour.as_ref().is_some_and(is_other);
    Some(View { is_down: trunk.down, is_good: is_up && !elsewhere || trunk.state == "unwatched", elsewhere })
}
