//! A network, its store, and one replica per switch, with the oracles that they are checked against.

use crate::designs::{Burst, Key, NameList};
use crate::network::*;
use crate::replica::{Limits, MemoryTables, Replica};
use crate::rib::Attachment;
use std::collections::HashSet;

/// splitmix64: the tests need no more, and print their seeds.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        lookup::hash::mix64(self.0)
    }
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.below(of.len())])
    }
}

pub(crate) fn mac(i: usize) -> Name {
    Name::from_bytes(NameKind::Mac, &(0x0200_0000_0000 + i as u64).to_be_bytes()[2..]).unwrap()
}

pub(crate) fn end(node: NodeId, port: u16) -> End {
    End { node, port: PortId(port) }
}

pub(crate) fn settings(mode: ValueMode) -> Settings {
    Settings { mode, max_names: 50_000, ..Settings::new(7, SecretKey::from_seed(1)) }
}

/// A network, its store, and one replica per switch; messages travel as bytes.
pub(crate) struct Lab {
    pub(crate) network: Network,
    pub(crate) store: BTreeMap<(u8, Vec<u8>), Vec<u8>>,
    pub(crate) replicas: BTreeMap<NodeId, Replica<MemoryTables>>,
    pub(crate) live: BTreeMap<Name, Attachment>,
    pub(crate) removed: HashSet<Name>,
    pub(crate) messages: usize,
}

/// The value that the FIB of a switch has for a name.
fn value_in(replica: &Replica<MemoryTables>, name: &Name) -> u16 {
    let mut value = [0];
    let digests = [replica.hasher().unwrap().digest(name.as_bytes())];
    replica.fib().unwrap().lookup_batch(&Burst { digests: &digests, names: &NameList(&[name]) }, &mut value);
    value[0] as u16
}

#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Delivered(End),
    Dropped,
    Looped,
}

impl Lab {
    pub(crate) fn new(settings: Settings) -> Lab {
        let network = Network::new(settings, 1).unwrap();
        let store = network.rows().map(|row| ((row.kind, row.key), row.value.unwrap())).collect();
        Lab { network, store, replicas: BTreeMap::new(), live: BTreeMap::new(), removed: HashSet::new(), messages: 0 }
    }

    /// `n` switches in a ring with a chord, each with host ports 100 and 101.
    pub(crate) fn ring(settings: Settings, n: usize) -> (Lab, Vec<NodeId>) {
        Lab::new(settings).with_ring(n)
    }

    /// As [`Lab::ring`], by a version in which values are ports alone.
    pub(crate) fn ring_of_ports(settings: Settings, n: usize) -> (Lab, Vec<NodeId>) {
        let mut lab = Lab::new(settings);
        lab.network.has_ports_only = true;
        lab.with_ring(n)
    }

    fn with_ring(self, n: usize) -> (Lab, Vec<NodeId>) {
        let mut lab = self;
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

    pub(crate) fn add_switch(&mut self, name: &str, tenants: Tenants) -> NodeId {
        let (node, effects) = self.network.add_switch(name, tenants).unwrap();
        self.commit(effects);
        self.replicas.insert(node, Replica::new(Limits::default(), MemoryTables::default()));
        self.attach(node);
        node
    }

    pub(crate) fn change(&mut self, mutate: impl FnOnce(&mut Network) -> Result<Effects, NetworkError>) {
        let effects = mutate(&mut self.network).unwrap();
        self.commit(effects);
    }

    /// A change that may be refused because a switch has as many ports as there are values.
    pub(crate) fn change_if_there_is_room(
        &mut self,
        mutate: impl FnOnce(&mut Network) -> Result<Effects, NetworkError>,
    ) {
        match mutate(&mut self.network) {
            Ok(effects) => self.commit(effects),
            Err(NetworkError::TooManyActions { id, max }) => {
                let slots = self.network.switches[&id].values.slots();
                let n_ports = slots.iter().filter(|slot| slot.is_in_use() && !slot.value.is_switch()).count();
                assert_eq!(n_ports, max, "it has room: {slots:?}");
            }
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn put(&mut self, name: &Name, attachment: Attachment) {
        self.change(|net| net.set_name(name, attachment));
        self.live.insert(name.clone(), attachment);
        self.removed.remove(name);
    }

    pub(crate) fn remove(&mut self, name: &Name) {
        self.change(|net| net.remove_name(name));
        self.live.remove(name);
        self.removed.insert(name.clone());
    }

    pub(crate) fn write(&mut self, rows: Vec<RowChange>) {
        for row in rows {
            match row.value {
                Some(value) => _ = self.store.insert((row.kind, row.key), value),
                None => _ = self.store.remove(&(row.kind, row.key)),
            }
        }
    }

    /// Store first, then push.
    pub(crate) fn commit(&mut self, effects: Effects) {
        self.write(effects.durable);
        for (node, message) in effects.phases.into_iter().flatten() {
            self.deliver(node, &message);
        }
    }

    pub(crate) fn deliver(&mut self, node: NodeId, message: &Message) {
        self.messages += 1;
        let replica = self.replicas.get_mut(&node).expect("messages go to attached switches");
        match replica.receive(&message.encode()) {
            Ok(received) => self.network.acknowledge(node, received.change),
            Err(error) if error.needs_resync() => self.attach(node),
            Err(error) => panic!("switch {node}: {error}"),
        }
    }

    pub(crate) fn attach(&mut self, node: NodeId) {
        let report = self.replicas[&node].report();
        for message in self.network.attach(node, &report).unwrap() {
            self.replicas.get_mut(&node).unwrap().receive(&message.encode()).unwrap();
        }
        let rows = self.network.take_view_rows();
        self.write(rows);
    }

    pub(crate) fn stored(&self) -> Vec<RowChange> {
        let row = |((kind, key), value): (&(u8, Vec<u8>), &Vec<u8>)| RowChange {
            kind: *kind,
            key: key.clone(),
            value: Some(value.clone()),
        };
        self.store.iter().map(row).collect()
    }

    pub(crate) fn restart(&mut self, [gateway, core]: [&'static Design; 2]) {
        let settings = self.network.settings().clone();
        let settings = Settings { key: SecretKey::from_seed(99), cluster: 99, gateway, core, ..settings };
        let term = self.network.term() + 1;
        let (network, rows) = Network::restore(settings, term, self.stored()).unwrap();
        self.network = network;
        self.write(rows);
    }

    /// The fate of a frame that switch `from` accepts. No link is found to be down here, so the frame takes no alternate, and is
    /// dropped where its way is its port of entry, as by a worker.
    pub(crate) fn forward(&self, from: NodeId, name: &Name) -> Fate {
        let (mut at, mut came_in) = (from, None);
        for hop in 0..32 {
            let replica = &self.replicas[&at];
            let local = replica.tables().local.get(name).copied();
            let action = replica.action(name);
            // Of several ways another one at each hop, and for each name.
            let flow = self.network.rib.digest(name).0 >> hop;
            let port = if action == Action::Local { local } else { action.port_for(flow) };
            let Some(port) = port else { return Fate::Dropped };
            let out = End { node: at, port };
            match self.network.topology.link(out) {
                Ok(link) if link.carries() && came_in != Some(port) => {
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
    pub(crate) fn check(&mut self) {
        let network = &self.network;
        assert_eq!(network.rib.len(), self.live.len());
        for (node, replica) in &self.replicas {
            if !network.is_attached(*node) {
                continue;
            }
            let tenants = network.tenants(*node).unwrap();
            for (name, attachment) in &self.live {
                let entry = network.entry(*node, name);
                if !tenants.holds(attachment.tenant) {
                    assert_eq!(entry, None, "{name} is not held by {node}");
                    continue;
                }
                assert_eq!(replica.action(name), network.action(*node, name), "{name} at {node}");
                assert_eq!(Some((value_in(replica, name), replica.action(name))), entry, "{name} at {node}");
                let reachable = network.routes.hops(*node, attachment.switch).is_some();
                let expected = if reachable { Fate::Delivered(attachment.end()) } else { Fate::Dropped };
                let all_there = self.replicas.keys().all(|node| network.is_attached(*node));
                if all_there {
                    assert_eq!(self.forward(*node, name), expected, "{name} from {node}");
                }
            }
            for name in &self.removed {
                let key = Key { digest: network.rib.digest(name), name };
                if network.tables[&network.switches[node].table].control.must_drop(key) {
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
    pub(crate) fn check_restored(&self) {
        let settings = Settings { key: SecretKey::from_seed(98), ..self.network.settings().clone() };
        let (mut restored, rows) = Network::restore(settings, 9, self.stored()).unwrap();
        assert_eq!(rows, [], "a restart with the same designs changes no row");
        let nodes: Vec<NodeId> = self.replicas.keys().copied().collect();
        let bytes = |network: &Network| -> Vec<Vec<u8>> {
            network.derive(&nodes).unwrap().into_iter().map(|(_, fib)| fib.image()).collect()
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
