//! The network against oracles: plain maps, hop-by-hop forwarding, and itself after a restart.

use super::*;
use crate::messages::{ExactUpdate, Report};
use crate::replica::{Exact, Limits, MemoryTables, Replica, ReplicaError};
use crate::rib::{Attachment, RibError};
use lookup::othello::Update;
use std::collections::HashSet;

/// splitmix64: the tests need no more, and print their seeds.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        lookup::hash::mix64(self.0)
    }
    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
    fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.below(of.len())])
    }
}

fn mac(i: usize) -> Name {
    Name::from_bytes(NameKind::Mac, &(0x0200_0000_0000 + i as u64).to_be_bytes()[2..]).unwrap()
}

fn end(node: NodeId, port: u16) -> End {
    End { node, port: PortId(port) }
}

fn settings(mode: ValueMode) -> Settings {
    Settings { mode, max_names: 50_000, ..Settings::new(7, SecretKey::from_seed(1)) }
}

/// A network, its store, and a replica a switch; messages travel as bytes.
struct Lab {
    network: Network,
    store: BTreeMap<(u8, Vec<u8>), Vec<u8>>,
    replicas: BTreeMap<NodeId, Replica<MemoryTables>>,
    live: BTreeMap<Name, Attachment>,
    removed: HashSet<Name>,
    messages: usize,
}

#[derive(PartialEq, Eq, Debug)]
enum Fate {
    Delivered(End),
    Dropped,
    Looped,
}

impl Lab {
    fn new(settings: Settings) -> Lab {
        let network = Network::new(settings, 1).unwrap();
        let store = network.rows().map(|row| ((row.kind, row.key), row.value.unwrap())).collect();
        Lab { network, store, replicas: BTreeMap::new(), live: BTreeMap::new(), removed: HashSet::new(), messages: 0 }
    }

    /// `n` switches in a ring with a chord, each with host ports 100 and 101.
    fn ring(settings: Settings, n: usize) -> (Lab, Vec<NodeId>) {
        let mut lab = Lab::new(settings);
        let nodes: Vec<NodeId> = (0..n).map(|i| lab.add_switch(&format!("s{i}"), Tenants::All)).collect();
        for i in 0..n {
            lab.change(|net| net.add_link(end(nodes[i], 1), end(nodes[(i + 1) % n], 2), 1));
        }
        if n > 3 {
            lab.change(|net| net.add_link(end(nodes[0], 3), end(nodes[n / 2], 3), 1));
        }
        for node in &nodes {
            for port in [100, 101] {
                lab.change(|net| net.add_host_port(end(*node, port)));
            }
        }
        (lab, nodes)
    }

    fn add_switch(&mut self, name: &str, tenants: Tenants) -> NodeId {
        let (node, effects) = self.network.add_switch(name, tenants).unwrap();
        self.commit(effects);
        self.replicas.insert(node, Replica::new(Limits::default(), MemoryTables::default()));
        self.attach(node);
        node
    }

    fn change(&mut self, mutate: impl FnOnce(&mut Network) -> Result<Effects, NetworkError>) {
        let effects = mutate(&mut self.network).unwrap();
        self.commit(effects);
    }

    fn put(&mut self, name: &Name, attachment: Attachment) {
        self.change(|net| net.set_name(name, attachment));
        self.live.insert(name.clone(), attachment);
        self.removed.remove(name);
    }

    fn remove(&mut self, name: &Name) {
        self.change(|net| net.remove_name(name));
        self.live.remove(name);
        self.removed.insert(name.clone());
    }

    fn write(&mut self, rows: Vec<RowChange>) {
        for row in rows {
            match row.value {
                Some(value) => _ = self.store.insert((row.kind, row.key), value),
                None => _ = self.store.remove(&(row.kind, row.key)),
            }
        }
    }

    /// Store first, then push.
    fn commit(&mut self, effects: Effects) {
        self.write(effects.durable);
        for (node, message) in effects.phases.into_iter().flatten() {
            self.deliver(node, &message);
        }
    }

    fn deliver(&mut self, node: NodeId, message: &Message) {
        self.messages += 1;
        let replica = self.replicas.get_mut(&node).expect("messages go to attached switches");
        match replica.receive(&message.encode()) {
            Ok(received) => self.network.acknowledge(node, received.change),
            Err(error) if error.needs_resync() => self.attach(node),
            Err(error) => panic!("switch {node}: {error}"),
        }
    }

    fn attach(&mut self, node: NodeId) {
        let report = self.replicas[&node].report();
        for message in self.network.attach(node, &report).unwrap() {
            self.replicas.get_mut(&node).unwrap().receive(&message.encode()).unwrap();
        }
    }

    fn stored(&self) -> Vec<RowChange> {
        let row = |((kind, key), value): (&(u8, Vec<u8>), &Vec<u8>)| RowChange {
            kind: *kind,
            key: key.clone(),
            value: Some(value.clone()),
        };
        self.store.iter().map(row).collect()
    }

    fn restart(&mut self) {
        let settings = Settings { key: SecretKey::from_seed(99), cluster: 99, ..self.network.settings().clone() };
        let term = self.network.term() + 1;
        self.network = Network::restore(settings, term, self.stored()).unwrap();
    }

    /// What becomes of a frame that switch `from` accepts.
    fn forward(&self, from: NodeId, name: &Name) -> Fate {
        let (mut at, mut came_in) = (from, None);
        for _ in 0..32 {
            let replica = &self.replicas[&at];
            let local = replica.tables().local.get(name).copied();
            let port = match replica.action(name) {
                Action::Port(port) => port,
                Action::Local => match local {
                    Some(port) => port,
                    None => return Fate::Dropped,
                },
                _ => return Fate::Dropped,
            };
            let out = End { node: at, port };
            match self.network.topology.link(out) {
                Ok(link) if link.up && came_in != Some(port) => {
                    let far = if link.a == out { link.b } else { link.a };
                    (at, came_in) = (far.node, Some(far.port));
                }
                Ok(_) => return Fate::Dropped,
                Err(_) if local == Some(port) => return Fate::Delivered(out),
                Err(_) => return Fate::Dropped,
            }
        }
        Fate::Looped
    }

    /// Every attached switch against the oracles.
    fn check(&mut self) {
        let network = &self.network;
        assert_eq!(network.rib.len(), self.live.len());
        for (node, replica) in &self.replicas {
            if !network.is_attached(*node) {
                continue;
            }
            let tenants = network.tenants(*node).unwrap();
            for (name, attachment) in &self.live {
                if !tenants.holds(attachment.tenant) {
                    continue;
                }
                assert_eq!(replica.action(name), network.action(*node, name), "{name} at {node}");
                let reachable = network.routes.hops(*node, attachment.switch).is_some();
                let expected = if reachable { Fate::Delivered(attachment.end()) } else { Fate::Dropped };
                let all_there = self.replicas.keys().all(|node| network.is_attached(*node));
                if all_there {
                    assert_eq!(self.forward(*node, name), expected, "{name} from {node}");
                }
            }
            for name in &self.removed {
                if network.tables[&network.switches[node].table].graph.has_tombstone(network.rib.digest(name)) {
                    assert_eq!(replica.action(name), Action::Drop, "removed {name} at {node}");
                }
            }
            let here: HashMap<_, _> =
                self.live.iter().filter(|(_, a)| a.switch == *node).map(|(n, a)| (n.clone(), a.port)).collect();
            assert_eq!(replica.tables().local, here);
            let gateway = network.ports_of(*node).next().is_some();
            let valid: HashMap<_, _> = self
                .live
                .iter()
                .filter(|(_, a)| gateway && tenants.holds(a.tenant))
                .map(|(n, a)| (n.clone(), a.ip))
                .collect();
            assert_eq!(replica.tables().valid, valid);
        }
        let rows: BTreeMap<_, _> = network.rows().map(|row| ((row.kind, row.key), row.value.unwrap())).collect();
        assert!(rows == self.store, "what mutations returned is not what the network is");
        self.check_restored();
    }

    /// A restored network derives the same images, and no switch lacks anything.
    fn check_restored(&self) {
        let settings = Settings { key: SecretKey::from_seed(98), ..self.network.settings().clone() };
        let mut restored = Network::restore(settings, 9, self.stored()).unwrap();
        let nodes: Vec<NodeId> = self.replicas.keys().copied().collect();
        let bytes = |network: &Network| -> Vec<Vec<u8>> {
            let encode = |(_, fib): (NodeId, OthelloQuery)| {
                let mut bytes = Vec::new();
                Update::Shards(fib.shards()).encode(8, &mut bytes);
                bytes
            };
            network.derive(&nodes).into_iter().map(encode).collect()
        };
        assert!(bytes(&self.network) == bytes(&restored), "a restored network derives other cells");
        for (node, replica) in &self.replicas {
            if self.network.is_attached(*node) {
                let lacking = restored.attach(*node, &replica.report()).unwrap();
                assert_eq!(lacking, [], "switch {node} lacks something after a restart");
            }
        }
    }
}

/// Random operations on one lab; the seed is in every failure's output.
fn random_operations(seed: u64, mode: ValueMode, steps: usize) {
    println!("seed {seed}, {mode} mode");
    let mut random = Random(seed);
    let (mut lab, _) = Lab::ring(settings(mode), 4);
    let mut port = 10;
    for step in 0..steps {
        let nodes: Vec<NodeId> = lab.network.switches.keys().copied().collect();
        let hosts: Vec<End> = lab.network.host_ports().collect();
        let links: Vec<Link> = lab.network.topology().links().copied().collect();
        match random.below(40) {
            0..16 => {
                let name = mac(random.below(150));
                let Some(at) = random.pick(&hosts) else { continue };
                let tenants: Vec<u32> = (0..3).filter(|t| lab.network.tenants(at.node).unwrap().holds(*t)).collect();
                let ip = (random.below(3) == 0).then(|| std::net::Ipv4Addr::from(random.below(60) as u32).into());
                let attachment =
                    Attachment { tenant: random.pick(&tenants).unwrap(), ip, ..Attachment::new(at.node, at.port) };
                let taken = ip.and_then(|ip| lab.network.rib().by_ip(ip)).is_some_and(|holder| *holder != name);
                if taken {
                    assert!(matches!(
                        lab.network.set_name(&name, attachment),
                        Err(NetworkError::Rib(RibError::IpInUse { .. }))
                    ));
                } else {
                    lab.put(&name, attachment);
                }
            }
            16..25 => {
                let names: Vec<&Name> = lab.live.keys().collect();
                let Some(name) = random.pick(&names).cloned() else { continue };
                lab.remove(&name);
            }
            25 => {
                let Some(at) = random.pick(&hosts).filter(|at| *lab.network.tenants(at.node).unwrap() == Tenants::All)
                else {
                    continue;
                };
                let n = random.below(120);
                let batch: Vec<_> =
                    (0..n).map(|_| (mac(random.below(150)), Attachment::new(at.node, at.port))).collect();
                lab.change(|net| net.put_names(&batch));
                lab.removed.retain(|name| !batch.iter().any(|(put, _)| put == name));
                lab.live.extend(batch);
            }
            26 => {
                let batch: Vec<Name> = lab.live.keys().filter(|_| random.below(3) == 0).cloned().collect();
                lab.change(|net| net.remove_names(&batch));
                lab.live.retain(|name, _| !batch.contains(name));
                lab.removed.extend(batch);
            }
            27 | 28 => {
                let Some(link) = random.pick(&links) else { continue };
                lab.change(|net| net.set_link_up(link.a, !link.up));
            }
            29 => {
                let Some(link) = random.pick(&links) else { continue };
                let cost = 1 + random.below(3) as u32;
                lab.change(|net| net.set_link_cost(link.b, cost));
            }
            30 if nodes.len() < 7 => {
                let tenants = if random.below(2) == 0 { Tenants::All } else { Tenants::Only([1, 2].into()) };
                let node = lab.add_switch(&format!("n{step}"), tenants);
                port += 3;
                let peer = random.pick(&nodes).unwrap();
                lab.change(|net| net.add_link(end(node, port), end(peer, port), 1));
                lab.change(|net| net.add_host_port(end(node, port - 1)));
            }
            31 => {
                port += 1;
                let (Some(a), Some(b)) = (random.pick(&nodes), random.pick(&nodes)) else { continue };
                let result = lab.network.add_link(end(a, port), end(b, port), 1);
                assert_eq!(result.is_ok(), a != b);
                if let Ok(effects) = result {
                    lab.commit(effects);
                }
            }
            32 => {
                let Some(link) = random.pick(&links).filter(|_| links.len() > nodes.len()) else { continue };
                lab.change(|net| net.remove_link(link.b));
            }
            33 => {
                port += 1;
                let node = random.pick(&nodes).unwrap();
                lab.change(|net| net.add_host_port(end(node, port)));
            }
            34 => {
                let Some(at) = random.pick(&hosts) else { continue };
                let used = lab.live.values().any(|attachment| attachment.end() == at);
                let result = lab.network.remove_host_port(at);
                assert_eq!(result.is_err(), used);
                if let Ok(effects) = result {
                    lab.commit(effects);
                }
            }
            35 => {
                // A switch that misses what happens.
                let node = random.pick(&nodes).unwrap();
                lab.network.detach(node);
            }
            36 => nodes
                .iter()
                .filter(|node| !lab.network.is_attached(**node))
                .copied()
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|node| lab.attach(node)),
            37 => {
                lab.restart();
                nodes.iter().for_each(|node| lab.attach(*node));
            }
            38 => {
                let key = SecretKey::from_seed(random.next());
                lab.change(|net| net.rekey(key));
                lab.removed.clear();
            }
            _ => {
                // A switch that starts from its saved image.
                let node = random.pick(&nodes).unwrap();
                let saved = lab.replicas[&node].save();
                let loaded = Replica::load(Limits::default(), MemoryTables::default(), &saved).unwrap();
                assert_eq!(loaded.report(), lab.replicas[&node].report());
                lab.replicas.insert(node, loaded);
            }
        }
        if step % 16 == 0 {
            lab.check();
        }
    }
    lab.check();
}

#[test]
fn fibs_agree_with_the_oracles_and_survive_restarts_in_port_mode() {
    (0..12).for_each(|seed| random_operations(seed, ValueMode::Port, 200));
}

#[test]
fn fibs_agree_with_the_oracles_and_survive_restarts_in_egress_mode() {
    (100..112).for_each(|seed| random_operations(seed, ValueMode::Egress, 200));
}

#[test]
fn shards_split_and_merge_under_attached_switches() {
    for mode in [ValueMode::Port, ValueMode::Egress] {
        let (mut lab, nodes) = Lab::ring(settings(mode), 3);
        let place = |i: usize| Attachment::new(nodes[i % 3], PortId(100));
        let names: Vec<_> = (0..20_000).map(|i| (mac(i), place(i))).collect();
        for batch in names.chunks(7_000) {
            lab.change(|net| net.put_names(batch));
        }
        lab.live = names.iter().cloned().collect();
        lab.check();
        let report = lab.replicas[&nodes[0]].report();
        assert!(report.shards.len() >= 4, "{} shards", report.shards.len());
        // One by one, so that the shards merge on the way.
        for (name, _) in &names[1_000..] {
            lab.remove(name);
        }
        assert!(lab.replicas[&nodes[0]].report().shards.len() < report.shards.len());
        lab.check();
    }
}

#[test]
fn messages_in_flight_never_loop_nor_misdeliver() {
    for mode in [ValueMode::Port, ValueMode::Egress] {
        let (mut lab, nodes) = Lab::ring(settings(mode), 6);
        let name = mac(1);
        let mut places: Vec<Option<Attachment>> = vec![None];
        for i in [0, 3, 1, 5, 2] {
            places.push(Some(Attachment::new(nodes[i], PortId(100 + (i % 2) as u16))));
        }
        places.push(Some(Attachment::new(nodes[2], PortId(101))));
        places.push(None);
        for (before, after) in places.iter().zip(&places[1..]) {
            let effects = match after {
                Some(attachment) => lab.network.set_name(&name, *attachment).unwrap(),
                None => lab.network.remove_name(&name).unwrap(),
            };
            lab.write(effects.durable);
            for (node, message) in effects.phases.into_iter().flatten() {
                lab.deliver(node, &message);
                for from in &nodes {
                    if !lab.replicas[from].tables().valid.contains_key(&name) {
                        continue;
                    }
                    let ends = [before, after].map(|place| place.map(|at| Fate::Delivered(at.end())));
                    let fate = lab.forward(*from, &name);
                    let lost_is_right = after.is_none() || before.is_some();
                    assert!(
                        ends.contains(&Some(Fate::Delivered(match fate {
                            Fate::Delivered(end) => end,
                            Fate::Dropped if lost_is_right => continue,
                            _ => panic!("{before:?} to {after:?}: {fate:?} from {from}"),
                        }))),
                        "{before:?} to {after:?}: misdelivered from {from}"
                    );
                }
            }
        }
    }
}

#[test]
fn destination_learns_first_and_gateways_forget_first() {
    let (mut lab, nodes) = Lab::ring(settings(ValueMode::Port), 4);
    let attachment = Attachment::new(nodes[2], PortId(100));
    let effects = lab.network.add_name(&mac(1), attachment).unwrap();
    let phases = &effects.phases;
    assert!(phases[0].iter().all(|(node, _)| *node == nodes[2]));
    assert!(matches!(phases[0][0].1.body, Body::Local(_)));
    assert!(phases.last().unwrap().iter().all(|(_, message)| matches!(message.body, Body::Valid(_))));
    lab.commit(effects);
    let effects = lab.network.remove_name(&mac(1)).unwrap();
    assert!(effects.phases[0].iter().all(|(_, message)| matches!(message.body, Body::Valid(_))));
    assert!(effects.phases.last().unwrap().iter().all(|(node, _)| *node == nodes[2]));
}

#[test]
fn lost_messages_are_found_and_repaired() {
    for mode in [ValueMode::Port, ValueMode::Egress] {
        let (mut lab, nodes) = Lab::ring(settings(mode), 4);
        for i in 0..400 {
            let attachment = Attachment::new(nodes[i % 4], PortId(100));
            let effects = lab.network.set_name(&mac(i % 60), attachment).unwrap();
            lab.live.insert(mac(i % 60), attachment);
            lab.write(effects.durable);
            for (at, (node, message)) in effects.phases.into_iter().flatten().enumerate() {
                // Every seventh message is lost; the next of its kind shows the gap.
                if (i + at) % 7 != 0 {
                    lab.deliver(node, &message);
                }
            }
        }
        nodes.iter().for_each(|node| lab.attach(*node));
        lab.check();
    }
}

#[test]
fn duplicates_and_stale_messages_change_nothing() {
    let (mut lab, nodes) = Lab::ring(settings(ValueMode::Port), 4);
    let mut sent = Vec::new();
    for i in 0..30 {
        let attachment = Attachment::new(nodes[i % 4], PortId(100));
        let effects = lab.network.set_name(&mac(i % 7), attachment).unwrap();
        lab.live.insert(mac(i % 7), attachment);
        sent.extend(effects.messages().cloned().collect::<Vec<_>>());
        lab.commit(effects);
    }
    for (node, message) in sent {
        let received = lab.replicas.get_mut(&node).unwrap().apply(message).unwrap();
        assert!(!received.applied);
    }
    lab.check();
}

#[test]
fn replica_refuses_strangers_and_keeps_serving() {
    let (mut lab, nodes) = Lab::ring(settings(ValueMode::Port), 3);
    lab.put(&mac(1), Attachment::new(nodes[0], PortId(100)));
    let effects = lab.network.set_name(&mac(1), Attachment::new(nodes[1], PortId(100))).unwrap();
    let (node, message) = effects.messages().next().unwrap().clone();
    let replica = lab.replicas.get_mut(&node).unwrap();
    let before = replica.report();
    let refused = |replica: &mut Replica<MemoryTables>, message: Message| replica.apply(message).unwrap_err();
    assert!(matches!(refused(replica, Message { cluster: 8, ..message.clone() }), ReplicaError::WrongCluster { .. }));
    assert!(matches!(refused(replica, Message { term: 0, ..message.clone() }), ReplicaError::StaleTerm { .. }));
    assert!(matches!(
        refused(replica, Message { node: NodeId(77), ..message.clone() }),
        ReplicaError::WrongNode { .. }
    ));
    let alien = Body::Update { table: 99, bytes: vec![] };
    let error = refused(replica, Message { body: alien, ..message.clone() });
    assert!(matches!(error, ReplicaError::UnknownTable { got: 99, .. }) && error.needs_resync());
    let torn = Body::Image { table: before.table, part: 1, parts: 3, bytes: vec![] };
    assert!(matches!(refused(replica, Message { body: torn, ..message.clone() }), ReplicaError::MissingPart { .. }));
    assert_eq!(replica.report(), before);
    // Every truncation and every changed byte of a saved image is refused.
    let saved = replica.save();
    for at in (0..saved.len()).step_by(17) {
        let mut damaged = saved.clone();
        damaged[at] ^= 1;
        for bytes in [&damaged[..], &saved[..at]] {
            assert!(Replica::load(Limits::default(), MemoryTables::default(), bytes).is_err());
        }
    }
}

#[test]
fn switch_limits_bound_what_a_controller_can_send() {
    let (lab, nodes) = Lab::ring(settings(ValueMode::Port), 3);
    let mut network = lab.network;
    for i in 0..50 {
        network.set_name(&mac(i), Attachment::new(nodes[0], PortId(100))).unwrap();
    }
    let messages = network.attach(nodes[0], &Report::default()).unwrap();
    let small = Limits { max_image_bytes: 100, max_names: 10 };
    let mut replica = Replica::new(small, MemoryTables::default());
    let errors: Vec<_> = messages.into_iter().filter_map(|message| replica.apply(message).err()).collect();
    assert!(errors.iter().any(|error| matches!(error, ReplicaError::ImageTooLarge { max: 100, .. })));
    assert!(errors.iter().any(|error| matches!(error, ReplicaError::TooManyNames { max: 10, .. })));
    assert!(replica.fib().is_none() && replica.tables().valid.is_empty());
}

#[test]
fn refused_changes_leave_everything_as_it_was() {
    let mut small = settings(ValueMode::Port);
    small.max_names = 3;
    let (mut lab, nodes) = Lab::ring(small, 3);
    let only = lab.add_switch("edge", Tenants::Only([5].into()));
    lab.change(|net| net.add_host_port(end(only, 100)));
    let at = Attachment::new(nodes[0], PortId(100));
    lab.put(&mac(1), at);
    let net = &mut lab.network;
    type Expected = fn(&NetworkError) -> bool;
    let refusals: Vec<(Result<Effects, NetworkError>, Expected)> = vec![
        (net.add_name(&mac(1), at), |e| matches!(e, NetworkError::NameExists { .. })),
        (net.remove_name(&mac(2)), |e| matches!(e, NetworkError::UnknownName { .. })),
        (net.set_name(&mac(2), Attachment::new(nodes[0], PortId(9))), |e| matches!(e, NetworkError::NoHostPort { .. })),
        (net.set_name(&mac(2), Attachment::new(NodeId(99), PortId(9))), |e| matches!(e, NetworkError::Topology(_))),
        (net.set_name(&mac(2), Attachment::new(only, PortId(100))), |e| {
            matches!(e, NetworkError::TenantNotHeld { .. })
        }),
        (net.put_names(&[(mac(2), at), (mac(3), at), (mac(4), at)]), |e| {
            matches!(e, NetworkError::Rib(RibError::TooManyNames { got: 4, max: 3 }))
        }),
        (net.put_names(&[(mac(2), at), (mac(3), Attachment::new(nodes[0], PortId(9)))]), |e| {
            matches!(e, NetworkError::Batch { index: 1, .. })
        }),
        (net.remove_names(&[mac(1), mac(2)]), |e| matches!(e, NetworkError::Batch { index: 1, .. })),
        (net.add_host_port(end(nodes[0], 1)), |e| matches!(e, NetworkError::Topology(_))),
        (net.add_host_port(end(nodes[0], 100)), |e| matches!(e, NetworkError::PortOfHosts { .. })),
        (net.add_link(end(nodes[0], 100), end(nodes[1], 9), 1), |e| matches!(e, NetworkError::PortOfHosts { .. })),
        (net.remove_host_port(end(nodes[0], 100)), |e| matches!(e, NetworkError::HasNames { names: 1, .. })),
        (net.remove_host_port(end(nodes[0], 9)), |e| matches!(e, NetworkError::NoHostPort { .. })),
        (net.remove_switch(nodes[0]), |e| matches!(e, NetworkError::HasHostPorts { ports: 2, .. })),
        (net.set_link_up(end(nodes[0], 9), false), |e| matches!(e, NetworkError::Topology(_))),
    ];
    for (result, expected) in refusals {
        let error = result.unwrap_err();
        assert!(expected(&error), "{error}");
    }
    let ip = Some("10.0.0.1".parse().unwrap());
    let twice = [(mac(2), Attachment { ip, ..at }), (mac(3), Attachment { ip, ..at })];
    assert!(matches!(lab.network.put_names(&twice), Err(NetworkError::Batch { index: 1, .. })));
    lab.check();
}

#[test]
fn restricted_switch_gets_its_own_smaller_table() {
    for mode in [ValueMode::Port, ValueMode::Egress] {
        let (mut lab, nodes) = Lab::ring(settings(mode), 3);
        let edge = lab.add_switch("edge", Tenants::Only([5].into()));
        lab.change(|net| net.add_link(end(edge, 1), end(nodes[0], 50), 1));
        lab.change(|net| net.add_link(end(edge, 2), end(nodes[1], 50), 1));
        lab.change(|net| net.add_host_port(end(edge, 100)));
        for i in 0..300 {
            let tenant = if i % 10 == 0 { 5 } else { 1 };
            let at = Attachment { tenant, ..Attachment::new(nodes[i % 3], PortId(100)) };
            lab.put(&mac(i), at);
        }
        lab.put(&mac(1000), Attachment { tenant: 5, ..Attachment::new(edge, PortId(100)) });
        lab.check();
        let cells = |node| lab.replicas[&node].fib().unwrap().shards()[0].sides.cells();
        assert!(cells(edge) * 3 < cells(nodes[0]), "{} against {} cells", cells(edge), cells(nodes[0]));
        assert_eq!(lab.replicas[&edge].tables().valid.len(), 31);
        // A name that changes its tenant comes and goes there.
        lab.put(&mac(1), Attachment { tenant: 5, ..Attachment::new(nodes[1], PortId(100)) });
        lab.put(&mac(10), Attachment { tenant: 1, ..Attachment::new(nodes[1], PortId(100)) });
        lab.check();
        assert_eq!(lab.replicas[&edge].action(&mac(10)), Action::Drop);
        // The last switch of a table takes the table along.
        lab.remove(&mac(1000));
        for port in [1, 2] {
            lab.change(|net| net.remove_link(end(edge, port)));
        }
        lab.change(|net| net.remove_host_port(end(edge, 100)));
        let tables = lab.network.tables.len();
        lab.change(|net| net.remove_switch(edge));
        lab.replicas.remove(&edge);
        assert_eq!(lab.network.tables.len(), tables - 1);
        lab.check();
    }
}

#[test]
fn link_failure_in_egress_mode_changes_action_tables_only() {
    let (mut lab, nodes) = Lab::ring(settings(ValueMode::Egress), 6);
    for i in 0..100 {
        lab.put(&mac(i), Attachment::new(nodes[i % 6], PortId(100)));
    }
    let effects = lab.network.set_link_up(end(nodes[0], 1), false).unwrap();
    assert!(effects.messages().count() > 0);
    assert!(effects.messages().all(|(_, message)| matches!(message.body, Body::Actions { .. })));
    lab.commit(effects);
    lab.check();
}

#[test]
fn all_switches_of_a_table_share_one_image_in_egress_mode() {
    let (mut lab, nodes) = Lab::ring(settings(ValueMode::Egress), 4);
    for i in 0..100 {
        lab.put(&mac(i), Attachment::new(nodes[i % 4], PortId(100)));
    }
    let shards: Vec<_> = nodes.iter().map(|node| lab.replicas[node].report().shards).collect();
    assert!(shards.iter().all(|other| *other == shards[0]));
    lab.check();
}

#[test]
fn ports_and_switches_over_the_width_of_values_are_refused() {
    let narrow = |mode| Settings { value_bits: 2, ..settings(mode) };
    let mut network = Network::new(narrow(ValueMode::Port), 1).unwrap();
    let (node, _) = network.add_switch("s0", Tenants::All).unwrap();
    (1..=3).for_each(|port| _ = network.add_host_port(end(node, port)).unwrap());
    let error = network.add_host_port(end(node, 4)).unwrap_err();
    assert!(matches!(error, NetworkError::TooManyActions { max: 3, .. }), "{error}");
    let mut network = Network::new(narrow(ValueMode::Egress), 1).unwrap();
    for i in 0..3 {
        network.add_switch(&format!("s{i}"), Tenants::All).unwrap();
    }
    assert!(matches!(network.add_switch("s3", Tenants::All), Err(NetworkError::TooManySwitches { max: 3 })));
    // A removed switch's index is free once the others have spoken of a later change.
    let gone = network.topology().node_by_name("s0").unwrap();
    let change = network.remove_switch(gone).unwrap().change;
    assert!(network.add_switch("s3", Tenants::All).is_err());
    network.change += 1;
    for name in ["s1", "s2"] {
        network.acknowledge(network.topology().node_by_name(name).unwrap(), change + 1);
    }
    network.add_switch("s3", Tenants::All).unwrap();
}

#[test]
fn restore_refuses_stores_that_do_not_belong() {
    let (lab, _) = Lab::ring(settings(ValueMode::Port), 3);
    let restore =
        |settings: Settings, rows: Vec<RowChange>| Network::restore(settings, 2, rows).map(|_| ()).unwrap_err();
    assert_eq!(restore(settings(ValueMode::Port), vec![]), RestoreError::NoNetwork);
    assert!(matches!(restore(settings(ValueMode::Egress), lab.stored()), RestoreError::Mismatch { .. }));
    let other = Settings { kind: NameKind::Ipv4, ..settings(ValueMode::Port) };
    assert!(matches!(restore(other, lab.stored()), RestoreError::Mismatch { what: "the kind of name", .. }));
    for kind in [2, 6, 7] {
        let rows = lab.stored().into_iter().filter(|row| row.kind != kind).collect();
        restore(settings(ValueMode::Port), rows);
    }
    let mut rows = lab.stored();
    rows[1].value = Some(vec![1]);
    assert!(matches!(restore(settings(ValueMode::Port), rows), RestoreError::Row { .. }));
}

#[test]
fn restarted_controller_outlives_names_that_went_unsaid() {
    // A store without some switch's messages: the switch was away for a while and lacks exactly the changed shard.
    let (mut lab, nodes) = Lab::ring(settings(ValueMode::Port), 3);
    let names: Vec<_> = (0..20_000).map(|i| (mac(i), Attachment::new(nodes[i % 3], PortId(100)))).collect();
    lab.change(|net| net.put_names(&names));
    lab.live = names.into_iter().collect();
    lab.network.detach(nodes[1]);
    lab.put(&mac(30_000), Attachment::new(nodes[0], PortId(101)));
    lab.restart();
    let report = lab.replicas[&nodes[1]].report();
    let messages = lab.network.attach(nodes[1], &report).unwrap();
    let resyncs: Vec<_> = messages.iter().filter(|m| matches!(m.body, Body::Resync { .. })).collect();
    assert_eq!(resyncs.len(), 1);
    assert!(resyncs[0].encode().len() < 40_000, "one shard, not the table");
    for message in messages {
        lab.replicas.get_mut(&nodes[1]).unwrap().apply(message).unwrap();
    }
    lab.attach(nodes[0]);
    lab.attach(nodes[2]);
    lab.check();
}

#[test]
fn exact_tables_are_pluggable() {
    let mut table: HashMap<Name, PortId> = HashMap::new();
    table.put(mac(1), PortId(1));
    Exact::remove(&mut table, &mac(1));
    table.replace(vec![(mac(2), PortId(2))]);
    assert_eq!(Exact::get(&table, &mac(2)), Some(PortId(2)));
}

#[test]
fn images_and_tables_take_effect_with_their_last_part() {
    let (lab, nodes) = Lab::ring(settings(ValueMode::Port), 3);
    let mut network = lab.network;
    for i in 0..50 {
        network.set_name(&mac(i), Attachment::new(nodes[0], PortId(100))).unwrap();
    }
    let mut split = Vec::new();
    for message in network.attach(nodes[0], &Report::default()).unwrap() {
        match message.body.clone() {
            Body::Image { table, bytes, .. } => {
                let chunks: Vec<_> = bytes.chunks(bytes.len().div_ceil(4)).collect();
                let parts = chunks.len() as u32;
                split.extend((0..).zip(chunks).map(|(part, chunk)| {
                    let body = Body::Image { table, part, parts, bytes: chunk.to_vec() };
                    Message { body, ..message.clone() }
                }));
            }
            Body::Valid(ExactUpdate::Load { kind, version, digest, entries, .. }) => {
                split.extend((0..).zip(entries.chunks(20)).map(|(part, chunk)| {
                    let load = ExactUpdate::Load { kind, version, digest, part, parts: 3, entries: chunk.to_vec() };
                    Message { body: Body::Valid(load), ..message.clone() }
                }));
            }
            _ => split.push(message),
        }
    }
    let mut replica = Replica::new(Limits::default(), MemoryTables::default());
    for message in &split {
        let last = match &message.body {
            Body::Image { part, parts, .. } => part + 1 == *parts,
            Body::Valid(ExactUpdate::Load { part, parts, .. }) => part + 1 == *parts,
            _ => true,
        };
        let before = (replica.fib().is_some(), replica.tables().valid.len());
        replica.apply(message.clone()).unwrap();
        assert_eq!(
            (replica.fib().is_some(), replica.tables().valid.len()) == before,
            !last || matches!(message.body, Body::Table(_) | Body::Actions { .. } | Body::Local(_))
        );
    }
    assert_eq!(network.attach(nodes[0], &replica.report()).unwrap(), []);
    // One part missing: refused, and what was served before still is.
    let mut other = Replica::new(Limits::default(), MemoryTables::default());
    let gap = split.iter().position(|message| matches!(message.body, Body::Image { part: 1, .. })).unwrap();
    split.remove(gap);
    let errors: Vec<_> = split.into_iter().filter_map(|message| other.apply(message).err()).collect();
    assert!(errors.iter().all(|error| error.needs_resync()) && other.fib().is_none());
}

/// Damage that arrives as a well-formed envelope: refused or repaired, never a panic, never served for good.
#[test]
fn damaged_messages_never_panic_and_are_repaired() {
    for seed in 0..150 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let mode = if seed % 2 == 0 { ValueMode::Port } else { ValueMode::Egress };
        let (mut lab, nodes) = Lab::ring(settings(mode), 3);
        for i in 0..40 {
            let attachment = Attachment::new(nodes[random.below(3)], PortId(100));
            let effects = lab.network.set_name(&mac(i % 20), attachment).unwrap();
            lab.live.insert(mac(i % 20), attachment);
            lab.write(effects.durable);
            let mut messages: Vec<_> = effects.phases.into_iter().flatten().collect();
            if random.below(10) == 0 {
                let node = nodes[random.below(3)];
                messages.extend(lab.network.attach(node, &Report::default()).unwrap().into_iter().map(|m| (node, m)));
            }
            for (node, message) in messages {
                let mut bytes = message.encode();
                if random.below(4) == 0 {
                    let at = 30 + random.below(bytes.len() - 30);
                    match random.below(3) {
                        0 => bytes[at] ^= 1 << random.below(8),
                        1 => bytes[at] = random.next() as u8,
                        _ => bytes.truncate(at),
                    }
                }
                let replica = lab.replicas.get_mut(&node).unwrap();
                if replica.receive(&bytes).is_err_and(|error| error.needs_resync()) {
                    lab.attach(node);
                }
            }
        }
        // An empty report is answered with everything, whatever the damage left behind.
        for node in &nodes {
            for message in lab.network.attach(*node, &Report::default()).unwrap() {
                lab.replicas.get_mut(node).unwrap().apply(message).unwrap();
            }
        }
        lab.check();
    }
}
