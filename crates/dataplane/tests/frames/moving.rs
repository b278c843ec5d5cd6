//! A name that moves through a network while packets of its flows pass a switch.

use crate::common::frames::{GATEWAY, udp4};
use crate::common::*;
use dataplane::assembly::{Monitor, PortSpec, Settings, build};
use dataplane::counters::DropReason;
use dataplane::flow::rules::Rules;
use dataplane::flow::{self, Flows};
use dataplane::plane::PlaneWriter;
use dataplane::port::Role;
use dataplane::table::FibTable;
use dataplane::worker::Worker;
use fib::action::PortId;
use fib::designs::Design;
use fib::durable::Tenants;
use fib::messages::Message;
use fib::name::{Name, NameKind};
use fib::network::{self, Effects, Network};
use fib::replica::{Limits, Replica};
use fib::rib::Attachment;
use fib::topology::{End, NodeId};
use lookup::hash::SecretKey;
use netio::backend::loopback::{self, Loopback};

pub(crate) fn tracking() -> Settings {
    let rules = Rules { rules: vec![], accept_others: true };
    let flows = flow::Settings { rules, max_flows: 1000, ..flow::Settings::default() };
    Settings { flows: Some(Flows::new(flows, 1).unwrap()), ..Settings::default() }
}

/// The first packet begins the flow, the second tells it where they leave.
/// A switch in a network: hosts at ports 1 and 2, other switches at 8 and 9.
struct Member {
    network: Network,
    nodes: [NodeId; 3],
    replica: Replica<PlaneWriter>,
    worker: Worker<FibTable>,
    monitor: Monitor,
    ends: Vec<(u16, Loopback)>,
}

impl Member {
    fn new(design: &'static Design) -> Self {
        let settings = network::Settings { max_names: 1000, ..network::Settings::new(7, SecretKey::from_seed(3)) };
        let mut network = Network::new(network::Settings { gateway: design, core: design, ..settings }, 1).unwrap();
        let nodes = ["s1", "s2", "s3"].map(|name| network.add_switch(name, Tenants::All).unwrap().0);
        let end = |node: usize, port| End { node: nodes[node], port: PortId(port) };
        network.add_link(end(0, TRUNK_8), end(1, TRUNK_8), 1).unwrap();
        network.add_link(end(0, TRUNK_9), end(2, TRUNK_9), 1).unwrap();
        network.add_host_ports(&[end(0, HOST_1), end(0, HOST_2), end(1, 3), end(2, 3)]).unwrap();
        let (mut ends, mut specs) = (vec![], vec![]);
        let roles = [(HOST_1, Role::Host), (HOST_2, Role::Host), (TRUNK_8, Role::Trunk), (TRUNK_9, Role::Trunk)];
        for (id, role) in roles {
            let (near, far) = loopback::pair("near", "far", &loopback::Settings::default()).unwrap();
            specs.push(PortSpec::new(id, role, near));
            ends.push((id, far));
        }
        let (mut workers, monitor, writer) = build(&tracking(), specs).unwrap();
        let replica = Replica::new(Limits::default(), writer);
        let mut member = Self { network, nodes, replica, worker: workers.remove(0), monitor, ends };
        member.attach();
        member
    }

    fn attach(&mut self) {
        for message in self.network.attach(self.nodes[0], &self.replica.report()).unwrap() {
            self.replica.apply(message).unwrap();
        }
    }

    fn tell(&mut self, effects: &Effects) {
        for (_, message) in effects.messages().filter(|(node, _)| *node == self.nodes[0]) {
            self.replica.apply(Message::clone(message)).unwrap();
        }
    }

    /// Where a frame of the host at port 1 comes out; none if it is dropped.
    fn exit(&mut self, frame: &[u8]) -> Option<u16> {
        assert!(self.ends[0].1.send(frame).unwrap());
        while self.worker.poll_once() > 0 {}
        let mut exits = vec![];
        for (id, end) in &mut self.ends {
            while let Ok(Some(())) = end.recv(|_| ()) {
                exits.push(*id);
            }
        }
        assert!(exits.len() <= 1);
        exits.pop()
    }
}

/// A name that moves through the network takes its open flows along, with each of these designs.
pub(crate) fn takes_its_open_flows_along(designs: &[&'static Design]) {
    let (name, frame) = (Name::from_bytes(NameKind::Mac, &GATEWAY).unwrap(), udp4(b"x", 53));
    for &design in designs {
        let mut member = Member::new(design);
        let moves = [(0, HOST_2), (1, TRUNK_8), (2, TRUNK_9), (0, HOST_2), (2, TRUNK_9), (1, TRUNK_8)];
        for (round, &(node, exit)) in moves.iter().cycle().take(13).enumerate() {
            let port = if node == 0 { HOST_2 } else { 3 };
            let at = Attachment::new(member.nodes[node], PortId(port));
            let effects = if round == 0 {
                member.network.put_names(&[(name.clone(), at)]).unwrap()
            } else {
                member.network.set_name(&name, at).unwrap()
            };
            member.tell(&effects);
            for _ in 0..3 {
                assert_eq!(member.exit(&frame), Some(exit), "{design}, round {round}");
            }
        }
        let effects = member.network.remove_name(&name).unwrap();
        member.tell(&effects);
        assert_eq!(member.exit(&frame), None, "{design}");
        assert_eq!(member.monitor.status().total.dropped(DropReason::Alien), 1);
    }
}
