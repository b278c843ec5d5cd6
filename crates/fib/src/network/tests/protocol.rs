//! The southbound protocol: order, loss, duplicates, damage, parts, limits.

use crate::messages::{ExactUpdate, Report, Updates};
use crate::network::laws::lab::{Fate, Lab, Random, end, mac, settings};
use crate::network::*;
use crate::replica::{Checksum, Exact, Limits, MemoryTables, Replica, ReplicaError};
use crate::rib::Attachment;

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
fn parts_that_are_made_anew_are_counted_where_they_are_made_and_where_they_come() {
    // Values are ports, so that other paths are other values.
    let (mut lab, nodes) = Lab::ring_of_ports(settings(ValueMode::Port), 4);
    let counted = |lab: &Lab| {
        let made = lab.network.parts_rebuilt();
        assert_eq!(made.keys().copied().collect::<Vec<_>>(), ["concise"]);
        (made["concise"], nodes.iter().map(|node| lab.replicas[node].parts_received()).collect::<Vec<_>>())
    };
    let put = |lab: &mut Lab, i: usize| lab.put(&mac(i), Attachment::new(nodes[i % 4], PortId(100)));
    (0..4).for_each(|i| put(&mut lab, i));
    let (made, received) = counted(&lab);
    // Enough for a graph to grow, to split, and to be cleared of tombstones.
    (4..8000).for_each(|i| put(&mut lab, i));
    (0..7000).for_each(|i| lab.remove(&mac(i)));
    let (made_since, received_since) = counted(&lab);
    assert!(made_since > made + 10, "{made_since} of {made}");
    for (since, before) in received_since.iter().zip(&received) {
        assert_eq!(since - before, made_since - made, "each switch got every part once");
    }
    // What a switch saved itself has not come.
    let saved = lab.replicas[&nodes[0]].save();
    let loaded = Replica::load(Limits::default(), MemoryTables::default(), &saved).unwrap();
    assert_eq!((loaded.report(), loaded.parts_received()), (lab.replicas[&nodes[0]].report(), 0));
    // Other paths are other values, and no other graph.
    lab.change(|net| net.remove_link(end(nodes[0], 1)));
    let (made_now, received_now) = counted(&lab);
    assert_eq!(made_now, made_since);
    assert!(received_now > received_since, "{received_now:?} {received_since:?}");
    // A key for all names makes all parts anew; the count does not go back.
    let before = lab.network.parts_rebuilt()["concise"];
    lab.change(|net| net.rekey(SecretKey::from_seed(99)));
    assert!(lab.network.parts_rebuilt()["concise"] >= before);
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
    let alien = Body::Updates { table: 99, updates: Updates::default() };
    let error = refused(replica, Message { body: alien, ..message.clone() });
    assert!(matches!(error, ReplicaError::UnknownTable { got: 99, .. }) && error.needs_resync());
    let torn = Body::Image { table: before.table, part: 1, parts: 3, bytes: vec![] };
    assert!(matches!(refused(replica, Message { body: torn, ..message.clone() }), ReplicaError::MissingPart { .. }));
    assert_eq!(replica.report(), before);
    // Every truncation and every changed byte of a saved image is refused.
    let saved = replica.save();
    let mut pieces = Vec::new();
    assert!(replica.save_pieces(&mut |piece| pieces.push(piece), &|| false));
    let mut checksum = Checksum::new(pieces.iter().map(|piece| piece.len() as u64).sum());
    pieces.iter().for_each(|piece| checksum.push(piece));
    assert_eq!([pieces.concat(), checksum.finish().to_vec()].concat(), saved);
    for at in (0..saved.len()).step_by(17) {
        let mut damaged = saved.clone();
        damaged[at] ^= 1;
        for bytes in [&damaged[..], &saved[..at]] {
            assert!(Replica::load(Limits::default(), MemoryTables::default(), bytes).is_err());
        }
    }
}

#[test]
fn save_that_gives_way_is_not_whole() {
    let (mut lab, nodes) = Lab::ring(settings(ValueMode::Port), 3);
    (0..600).for_each(|i| lab.put(&mac(i), Attachment::new(nodes[0], PortId(100))));
    let n_pieces = |gives_way: &dyn Fn() -> bool| {
        let mut n_pieces = 0;
        (lab.replicas[&nodes[0]].save_pieces(&mut |_| n_pieces += 1, gives_way), n_pieces)
    };
    let (is_whole, n_all) = n_pieces(&|| false);
    assert!(is_whole);
    let (is_whole, n_before) = n_pieces(&|| true);
    assert!(!is_whole && n_before < n_all, "{n_before} of {n_all}");
}

#[test]
fn image_saved_between_a_reset_and_its_tables_serves_after_a_restart() {
    let (lab, nodes) = Lab::ring(settings(ValueMode::Port), 3);
    let mut network = lab.network;
    (0..50).for_each(|i| _ = network.set_name(&mac(i), Attachment::new(nodes[0], PortId(100))).unwrap());
    let mut replica = Replica::new(Limits::default(), MemoryTables::default());
    for message in network.attach(nodes[0], &Report::default()).unwrap() {
        replica.apply(message).unwrap();
    }
    // A store that was set back: the switch is told to forget its versions, and the rest is lost with the connection.
    let ahead = Report { local: Held { version: 1000, digest: 1 }, ..replica.report() };
    let reset = network.attach(nodes[0], &ahead).unwrap().remove(0);
    assert!(matches!(&reset.body, Body::Table(header) if header.reset));
    replica.apply(reset).unwrap();
    let mut again = Replica::load(Limits::default(), MemoryTables::default(), &replica.save()).unwrap();
    assert_eq!((again.tables().valid.len(), again.tables().local.len()), (50, 50));
    assert_eq!(again.action(&mac(7)), Action::Port(PortId(100)));
    for message in network.attach(nodes[0], &again.report()).unwrap() {
        again.apply(message).unwrap();
    }
    assert!(network.attach(nodes[0], &again.report()).unwrap().is_empty());
}

#[test]
fn switch_limits_bound_what_a_controller_can_send() {
    let (lab, nodes) = Lab::ring(settings(ValueMode::Port), 3);
    let mut network = lab.network;
    for i in 0..50 {
        network.set_name(&mac(i), Attachment::new(nodes[0], PortId(100))).unwrap();
    }
    let messages = network.attach(nodes[0], &Report::default()).unwrap();
    let refused = |limits| {
        let mut replica = Replica::new(limits, MemoryTables::default());
        let errors: Vec<_> = messages.iter().filter_map(|message| replica.apply(message.clone()).err()).collect();
        (replica, errors)
    };
    let (replica, errors) = refused(Limits { max_table_bytes: 100, ..Limits::default() });
    let too_large = errors.iter().filter(|error| matches!(error, ReplicaError::TooLarge { max: 100, .. }));
    assert_eq!(too_large.count(), 3, "local names, FIB and valid names: {errors:?}");
    assert!(errors.iter().all(|error| error.is_over_limit() && !error.needs_resync()));
    assert!(replica.fib().is_none() && replica.tables().valid.is_empty() && replica.tables().local.is_empty());
    let (replica, errors) = refused(Limits { max_names: 10, ..Limits::default() });
    assert!(errors.iter().any(|error| matches!(error, ReplicaError::TooManyNames { max: 10, .. })));
    assert!(replica.tables().valid.is_empty());
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
    lab.restart([&CONCISE, &CONCISE]);
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
    table.replace_with(vec![(mac(2), PortId(2))]);
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

#[test]
fn switch_refused_for_want_of_an_index_leaves_no_table_behind() {
    let mut lab = Lab::new(Settings { value_bits: 1, ..settings(ValueMode::Egress) });
    let first = lab.add_switch("first", Tenants::All);
    let some = || Tenants::Only([7].into());
    let refused = lab.network.add_switch("second", some());
    assert!(matches!(refused, Err(NetworkError::TooManySwitches { max: 1 })));
    lab.change(|network| network.remove_switch(first));
    lab.add_switch("second", some());
    lab.check_restored();
}

#[test]
fn link_added_as_down_never_carries_a_frame() {
    let (mut lab, nodes) = Lab::ring(settings(ValueMode::Port), 4);
    let before: Vec<_> = nodes.iter().map(|node| lab.network.routes().next_hop(*node, nodes[2])).collect();
    let effects = lab.network.add_link_down(end(nodes[0], 77), end(nodes[2], 77), 1).unwrap();
    let after: Vec<_> = nodes.iter().map(|node| lab.network.routes().next_hop(*node, nodes[2])).collect();
    assert_eq!(before, after);
    lab.commit(effects);
    lab.check_restored();
}

#[test]
fn store_with_more_names_than_configured_says_so() {
    let (mut lab, nodes) = Lab::ring(settings(ValueMode::Port), 2);
    let at = lab.network.host_ports().find(|end| end.node == nodes[0]).unwrap();
    (0..3).for_each(|i| lab.put(&mac(i), Attachment::new(at.node, at.port)));
    let few = Settings { max_names: 2, ..settings(ValueMode::Port) };
    let error = Network::restore(few, 9, lab.stored()).err().unwrap();
    assert_eq!(error, RestoreError::TooManyNames { max: 2 });
    assert!(error.to_string().contains("raise max_names"), "{error}");
}

#[test]
fn exact_table_does_not_grow_over_its_limit_by_changes() {
    let mut replica = Replica::new(Limits { max_names: 2, ..Limits::default() }, MemoryTables::default());
    let share = |i| crate::messages::ExactValue::share(&PortId(1), &mac(i));
    let delta = |from, digest, put: &[usize], remove: &[usize]| Message {
        cluster: 1,
        term: 1,
        node: NodeId(1),
        change: 1,
        body: Body::Local(ExactUpdate::Delta {
            kind: NameKind::Mac,
            from,
            to: from + 1,
            digest,
            put: put.iter().map(|i| (mac(*i), PortId(1))).collect(),
            remove: remove.iter().map(|i| mac(*i)).collect(),
        }),
    };
    replica.apply(delta(0, share(1) ^ share(2), &[1, 2], &[])).unwrap();
    let over = replica.apply(delta(1, share(1) ^ share(2) ^ share(3), &[3], &[]));
    assert_eq!(over, Err(ReplicaError::TooManyNames { got: 3, max: 2 }));
    assert_eq!(replica.tables().local.len(), 2);
    replica.apply(delta(1, share(2) ^ share(3), &[3], &[1])).unwrap();
    assert_eq!(replica.tables().local.len(), 2);
}
