//! What values stand for in port mode: ports and switches, as long as there are values.

use super::*;
use crate::designs::no_renewals;
use crate::network::laws::lab::Fate;
use crate::network::laws::values::{Allowed, own, without};

fn narrow(value_bits: u8) -> Settings {
    Settings { value_bits, ..settings(ValueMode::Port) }
}

/// A network whose switch `nodes[0]` has used up its values, with names everywhere.
fn full() -> (Lab, Vec<NodeId>) {
    let (mut lab, nodes) = Lab::ring(narrow(3), 5);
    for i in 0..60 {
        lab.put(&mac(i), Attachment::new(nodes[i % 5], PortId(100 + (i % 2) as u16)));
    }
    // Two links, a chord, two hosts, and two of four destinations.
    assert_eq!(lab.network.switches[&nodes[0]].values.n_free(), 0);
    assert_eq!(own(&lab, nodes[0]), nodes[1..3]);
    // The others have one port less, but for the one at the other end of the chord.
    let sharing = [(nodes[0], 2), (nodes[1], 1), (nodes[2], 2), (nodes[3], 1), (nodes[4], 1)];
    assert_eq!(lab.network.sharing(), sharing.into());
    (lab, nodes)
}

#[test]
fn destinations_have_values_as_long_as_there_are_some() {
    let (mut lab, nodes) = Lab::ring(settings(ValueMode::Port), 5);
    for at in &nodes {
        assert_eq!(own(&lab, *at), without(&nodes, *at));
    }
    // One that has hosts no more needs none, and has the same again when it has hosts.
    let values = |lab: &Lab| lab.network.switches[&nodes[0]].values.clone();
    let before = values(&lab).get(Meaning::Switch(nodes[3]));
    for port in [100, 101] {
        lab.change(|net| net.remove_host_port(end(nodes[3], port)));
    }
    assert_eq!(own(&lab, nodes[0]), [nodes[1], nodes[2], nodes[4]]);
    lab.check();
    lab.change(|net| net.add_host_port(end(nodes[3], 7)));
    assert_eq!(values(&lab).get(Meaning::Switch(nodes[3])), before);
    // A new switch gets to know all.
    let new = lab.add_switch("new", Tenants::All);
    lab.change(|net| net.add_link(end(new, 1), end(nodes[0], 50), 1));
    assert_eq!(own(&lab, new), nodes);
    lab.put(&mac(1), Attachment::new(nodes[3], PortId(7)));
    lab.check();

    let (lab, nodes) = full();
    let shared = lab.network.action(nodes[0], lab.live.iter().find(|(_, at)| at.switch == nodes[3]).unwrap().0);
    assert!(matches!(shared, Action::Port(_) | Action::Protected { .. }), "{shared}");
    for bits in [1, 2] {
        let mut lab = Lab::new(narrow(bits));
        let [a, b] = ["a", "b"].map(|name| lab.add_switch(name, Tenants::All));
        lab.change(|net| net.add_link(end(a, 1), end(b, 1), 1));
        if bits > 1 {
            lab.change(|net| net.add_host_port(end(a, 2)));
        }
        lab.check();
    }
}

/// 20 destinations and 8 bits: 31 values stay free for ports.
#[test]
fn ports_take_values_back_and_leave_them_when_they_go() {
    let mut lab = Lab::new(settings(ValueMode::Port));
    let names: Vec<String> = (0..230).map(|i| format!("s{i}")).collect();
    let (nodes, effects) = lab.network.add_switches(&names.iter().map(|name| &name[..]).collect::<Vec<_>>()).unwrap();
    lab.commit(effects);
    lab.change(|net| net.add_host_ports(&nodes.iter().map(|node| end(*node, 0)).collect::<Vec<_>>()));
    let at = nodes[0];
    // With its own port 225 values are in use: those of 224 destinations.
    assert_eq!(own(&lab, at).len(), 223);
    let hosts = |from: u16, n: u16| (from..from + n).map(|port| end(at, port)).collect::<Vec<_>>();
    let n_own = |lab: &Lab| own(lab, at).len();
    lab.change(|net| net.add_host_ports(&hosts(1, 31)));
    assert_eq!(n_own(&lab), 223, "these were left");
    lab.change(|net| net.add_host_ports(&hosts(32, 1)));
    assert_eq!(n_own(&lab), 223 - 32, "one gave way, and others for those that may come");
    lab.change(|net| net.add_host_ports(&hosts(33, 31)));
    assert_eq!(n_own(&lab), 223 - 32);
    lab.change(|net| net.remove_host_port(end(at, 7)));
    lab.change(|net| net.add_host_ports(&hosts(7, 1)));
    assert_eq!(n_own(&lab), 223 - 32, "a port that comes and goes changes nothing");
    // Those beyond the 31 that stay free are for destinations again.
    for port in 10..55 {
        lab.change(|net| net.remove_host_port(end(at, port)));
    }
    assert_eq!(n_own(&lab), 223 - 32 + 14);
    lab.change(|net| net.add_host_ports(&hosts(2000, 255 - 19)));
    assert_eq!(n_own(&lab), 0);
    let refused = lab.network.add_host_port(end(at, 9999)).unwrap_err();
    assert!(matches!(refused, NetworkError::TooManyActions { max: 255, .. }), "{refused}");
    assert_eq!(own(&lab, nodes[1]).len(), 223, "others have theirs");
}

/// Host ports come until no value is left. After each message, each switch handles each name as before, or correctly,
/// or drops.
#[test]
fn no_switch_takes_a_value_for_another_while_ports_displace_destinations() {
    let mut found = 0;
    for order in [Order::AsSent, Order::ActionsFirst] {
        let (mut lab, nodes) = full();
        let before = own(&lab, nodes[0]).len();
        for port in 0..before as u16 {
            let allowed = Allowed::before(&lab);
            let effects = lab.network.add_host_port(end(nodes[0], 50 + port)).unwrap();
            lab.write(effects.durable);
            let mut messages: Vec<_> = effects.phases.into_iter().flatten().collect();
            if order == Order::ActionsFirst {
                messages.sort_by_key(|(_, message)| match message.body {
                    Body::Actions { version, .. } => u64::MAX - version,
                    _ => u64::MAX,
                });
            }
            for (node, message) in messages {
                lab.deliver(node, &message);
                let broken = allowed.broken(&lab);
                found += usize::from(broken.is_some());
                assert!(order != Order::AsSent || broken.is_none(), "{broken:?} after {message:?}");
                for (name, at) in lab.live.iter().filter(|_| order == Order::AsSent) {
                    let fates = nodes.iter().map(|from| lab.forward(*from, name));
                    assert!(fates.into_iter().all(|fate| [Fate::Delivered(at.end()), Fate::Dropped].contains(&fate)));
                }
            }
            if order == Order::AsSent {
                lab.check();
            }
        }
        assert_eq!(own(&lab, nodes[0]), []);
        assert!(lab.network.add_host_port(end(nodes[0], 99)).is_err());
    }
    assert!(found > 0, "what a value means must not come before the cells without it");
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    AsSent,
    ActionsFirst,
}

/// A switch that is away while ports displace destinations, once or several times, and is cut off again in the middle of what it is sent.
#[test]
fn no_switch_takes_a_value_for_another_after_it_was_away() {
    let (mut found, mut n_interim) = (0, 0);
    for seed in 0..60 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let skips_interim = seed % 3 == 2;
        let (mut lab, nodes) = full();
        let at = nodes[0];
        let mut allowed = Allowed::before(&lab);
        for _ in 0..4 {
            lab.network.detach(at);
            for _ in 0..random.below(4) {
                let host = end(at, 50 + random.below(4) as u16);
                if lab.network.host_ports.contains(&host) {
                    lab.change(|net| net.remove_host_port(host));
                } else {
                    lab.change_if_there_is_room(|net| net.add_host_port(host));
                }
            }
            allowed.add_what_is_right(&lab);
            if random.below(4) == 0 {
                lab.restart([&CONCISE, &CONCISE]);
                without(&nodes, at).iter().for_each(|node| lab.attach(*node));
            }
            let report = lab.replicas[&at].report();
            let messages = lab.network.attach(at, &report).unwrap();
            let is_actions = |message: &Message| matches!(message.body, Body::Actions { .. });
            let n_tables = messages.iter().filter(|message| is_actions(message)).count();
            n_interim += usize::from(n_tables == 2);
            let n_received = random.below(messages.len() + 1);
            let mut left = n_tables;
            for message in messages.into_iter().take(n_received) {
                if skips_interim && is_actions(&message) {
                    left -= 1;
                    let last = left == 0;
                    // The last one comes where the first one was.
                    if last && n_tables == 2 {
                        continue;
                    }
                    let version = lab.network.switches[&at].actions_version;
                    let body = Body::Actions { version, actions: lab.network.switches[&at].actions.clone() };
                    lab.replicas.get_mut(&at).unwrap().apply(Message { body, ..message }).unwrap();
                } else {
                    lab.replicas.get_mut(&at).unwrap().apply(message).unwrap();
                }
                let broken = allowed.broken(&lab);
                found += usize::from(broken.is_some());
                assert!(skips_interim || broken.is_none(), "{broken:?}");
            }
            let rows = lab.network.take_view_rows();
            lab.write(rows);
        }
        if !skips_interim {
            lab.attach(at);
            lab.check();
        }
    }
    assert!(n_interim > 20 && found > 0, "{n_interim} {found}");
}

/// How a store and a switch come to disagree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Apart {
    /// The store is set back to before what the switch has.
    SetBack,
    /// And later changes reach the version of the action table that the switch has.
    SameVersion,
    /// The store lost its last commits, and was salvaged.
    Salvaged,
    /// The switch has forgotten what its cells are of.
    Forgotten,
}

/// Two ports displaced destinations and names moved there, of which the store knows nothing. Each cell of the switch may mean anything then.
#[test]
fn no_switch_takes_a_value_for_another_when_the_store_knows_nothing_of_it() {
    for how in [Apart::SetBack, Apart::SameVersion, Apart::Salvaged, Apart::Forgotten] {
        let (mut lab, nodes) = full();
        let at = nodes[0];
        let (store, live) = (lab.store.clone(), lab.live.clone());
        for port in [50, 51] {
            lab.change(|net| net.add_host_port(end(at, port)));
        }
        assert_eq!(own(&lab, at), []);
        let moved = || (0..60).step_by(5);
        for i in moved() {
            lab.put(&mac(i), Attachment::new(at, PortId(50 + (i % 2) as u16)));
        }
        let allowed = Allowed::before(&lab);
        (lab.store, lab.live) = (store, live);
        if how == Apart::Salvaged {
            let salvaged = crate::durable::salvage(lab.stored(), []).unwrap().rows;
            let (settings, term) = (lab.network.settings().clone(), lab.network.term() + 1);
            let (network, rows) = Network::restore(settings, term, salvaged.clone()).unwrap();
            lab.network = network;
            lab.store.clear();
            lab.write(salvaged);
            lab.write(rows);
        } else {
            lab.restart([&CONCISE, &CONCISE]);
        }
        assert_eq!(own(&lab, at), nodes[1..3]);
        let report = lab.replicas[&at].report();
        match how {
            Apart::Forgotten => lab.replicas.get_mut(&at).unwrap().start_over(),
            Apart::SameVersion => {
                for i in moved() {
                    lab.put(&mac(i), Attachment::new(at, PortId(101 - (i % 2) as u16)));
                }
                lab.put(&mac(0), Attachment::new(at, PortId(100)));
                for cost in [9, 1].into_iter().cycle() {
                    if lab.network.switches[&at].actions_version == report.actions.version {
                        break;
                    }
                    lab.change(|net| net.set_link_cost(end(at, 1), cost));
                }
                assert!(lab.network.switches[&at].local.version > report.local.version);
            }
            Apart::SetBack | Apart::Salvaged => {}
        }
        // Cut off once, after each number of messages.
        for n_received in 0.. {
            let report = lab.replicas[&at].report();
            lab.network.detach(at);
            let messages = lab.network.attach(at, &report).unwrap();
            let is_whole = messages.len() <= n_received;
            for message in messages.into_iter().take(n_received) {
                lab.replicas.get_mut(&at).unwrap().apply(message).unwrap();
                assert_eq!(allowed.broken(&lab), None, "{n_received}, {how:?}");
            }
            if is_whole {
                break;
            }
        }
        nodes.iter().for_each(|node| lab.attach(*node));
        lab.check();
    }
}

/// A gateway is known to be ahead of a salvaged store by its valid names. A switch without hosts has none.
#[test]
fn no_switch_without_hosts_takes_a_value_for_another_after_the_store_was_salvaged() {
    let (mut lab, nodes) = Lab::ring(narrow(3), 5);
    let core = lab.add_switch("core", Tenants::All);
    for (port, node) in [(1, nodes[0]), (2, nodes[2])] {
        lab.change(|net| net.add_link(end(core, port), end(node, 9), 1));
    }
    (0..60).for_each(|i| lab.put(&mac(i), Attachment::new(nodes[i % 5], PortId(100))));
    assert_eq!((own(&lab, core), lab.network.switches[&core].values.n_free()), (nodes.clone(), 0));
    let (store, live) = (lab.store.clone(), lab.live.clone());
    // Of this the store knows nothing afterwards: another port has the value of a destination, and names have it.
    let lost = lab.add_switch("lost", Tenants::All);
    lab.change(|net| net.add_link(end(core, 3), end(lost, 1), 1));
    lab.change(|net| net.add_host_port(end(lost, 100)));
    let moved: Vec<Name> = (2..60).step_by(5).map(mac).collect();
    moved.iter().for_each(|name| lab.put(name, Attachment::new(lost, PortId(100))));
    assert_eq!(own(&lab, core), nodes[..4]);
    let before = lab.replicas[&core].action(&moved[0]);
    assert_eq!(before.port(), Some(PortId(3)));

    (lab.store, lab.live) = (store, live);
    lab.replicas.remove(&lost);
    let salvaged = crate::durable::salvage(lab.stored(), []).unwrap().rows;
    let (settings, term) = (lab.network.settings().clone(), lab.network.term() + 1);
    let (network, rows) = Network::restore(settings, term, salvaged.clone()).unwrap();
    lab.network = network;
    lab.store.clear();
    lab.write(salvaged);
    lab.write(rows);
    assert_eq!(own(&lab, core), nodes);
    for n_received in 0.. {
        let report = lab.replicas[&core].report();
        lab.network.detach(core);
        let messages = lab.network.attach(core, &report).unwrap();
        let is_whole = messages.len() <= n_received;
        for message in messages.into_iter().take(n_received) {
            lab.replicas.get_mut(&core).unwrap().apply(message).unwrap();
            for name in &moved {
                let (got, right) = (lab.replicas[&core].action(name), lab.network.action(core, name));
                assert!([before, Action::Drop, right].contains(&got), "{n_received}: {got}, and {right} is right");
            }
        }
        if is_whole {
            break;
        }
    }
    nodes.iter().chain([&core]).for_each(|node| lab.attach(*node));
    lab.check();
}

/// The cells without the former meaning cannot be made, once or several times; then they can, with a change of names, of links, or at an attach.
#[test]
fn no_value_has_its_new_meaning_before_the_cells_that_could_not_be_made() {
    for last in ["name", "link", "port", "attach"] {
        let (mut lab, nodes) = full();
        let at = nodes[0];
        let commit = |lab: &mut Lab, allowed: &mut Allowed, effects: Effects| {
            allowed.add_what_is_right(lab);
            lab.write(effects.durable);
            for (node, message) in effects.phases.into_iter().flatten() {
                lab.deliver(node, &message);
                assert_eq!(allowed.broken(lab), None, "{last}: after {message:?}");
            }
        };
        let mut allowed = Allowed::before(&lab);
        no_renewals::set(true);
        let effects = lab.network.add_host_port(end(at, 50)).unwrap();
        commit(&mut lab, &mut allowed, effects);
        let to = |n: usize| lab.live.iter().find(|(_, at)| at.switch == nodes[n]).unwrap().0.clone();
        let (displaced, shared) = (to(2), to(3));
        assert_eq!(lab.replicas[&at].action(&displaced), Action::Drop, "its value waits for the cells");
        assert_ne!(lab.replicas[&at].action(&shared), Action::Drop);
        // Routes go on to change, and nothing but these values drops.
        let effects = lab.network.set_link_cost(end(at, 3), 7).unwrap();
        commit(&mut lab, &mut allowed, effects);
        assert_eq!(lab.replicas[&at].action(&displaced), Action::Drop);
        if last == "port" {
            let effects = lab.network.add_host_port(end(at, 51)).unwrap();
            commit(&mut lab, &mut allowed, effects);
        }
        assert!(lab.network.switches[&at].held_back.is_some());
        no_renewals::set(false);
        match last {
            "name" => {
                let (name, place) = (mac(90), Attachment::new(nodes[3], PortId(100)));
                let effects = lab.network.set_name(&name, place).unwrap();
                commit(&mut lab, &mut allowed, effects);
                lab.live.insert(name, place);
            }
            "attach" => {
                let report = lab.replicas[&at].report();
                lab.network.detach(at);
                for message in lab.network.attach(at, &report).unwrap() {
                    lab.replicas.get_mut(&at).unwrap().apply(message).unwrap();
                    assert_eq!(allowed.broken(&lab), None);
                }
                let effects = lab.network.set_link_cost(end(at, 3), 1).unwrap();
                commit(&mut lab, &mut allowed, effects);
            }
            _ => {
                let effects = lab.network.set_link_cost(end(at, 3), 1).unwrap();
                commit(&mut lab, &mut allowed, effects);
            }
        }
        assert_eq!(lab.network.switches[&at].held_back, None, "{last}");
        lab.check();
    }
}

#[test]
fn fibs_agree_with_the_oracles_where_values_are_few() {
    let mut n_shared = 0;
    for seed in 400..424 {
        let bits = 3 + (seed % 3) as u8;
        let lab = operate(seed, narrow(bits), &[[&CONCISE, &CONCISE]], 200);
        let pairs = lab.network.switches.keys().flat_map(|at| lab.network.host_ports.iter().map(|end| (*at, end.node)));
        n_shared += pairs.filter(|(at, to)| at != to && !lab.network.has_own_value(*at, *to)).count();
    }
    assert!(n_shared > 100, "{n_shared}");
}

#[test]
fn network_of_an_earlier_version_goes_on() {
    laws::network_of_an_earlier_version_goes_on(&[&CONCISE, &CFW, &LINE, &OFW]);
}

/// What the messages of names that move to the next switch cost where values are switches, and where they are ports.
#[test]
fn a_name_that_moves_costs_more_where_each_destination_has_a_value() {
    let cost = |(mut lab, nodes): (Lab, Vec<NodeId>)| {
        let n = nodes.len();
        (0..400).for_each(|i| lab.put(&mac(i), Attachment::new(nodes[i % n], PortId(100))));
        let (mut messages, mut bytes) = (0, 0);
        for i in 0..400 {
            let effects = lab.network.set_name(&mac(i), Attachment::new(nodes[(i + 1) % n], PortId(100))).unwrap();
            messages += effects.messages().count();
            bytes += effects.messages().map(|(_, message)| message.encode().len()).sum::<usize>();
            lab.commit(effects);
        }
        (messages, bytes)
    };
    let own = cost(Lab::ring(settings(ValueMode::Port), 20));
    let shared = cost(Lab::ring_of_ports(settings(ValueMode::Port), 20));
    println!("messages and bytes of 400 moves among 20 switches: {own:?}, where values are ports {shared:?}");
    assert!(own.0 > shared.0 && own.0 < 8 * shared.0, "{own:?} {shared:?}");
}
