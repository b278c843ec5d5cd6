//! Which switch a replica is, of which network: removed and added again, served by a store that was set back, sent names
//! of another kind.

use crate::messages::{ExactUpdate, ExactValue, Report};
use crate::network::laws::lab::{Lab, mac, settings};
use crate::network::*;
use crate::replica::{Limits, MemoryTables, Replica, ReplicaError};
use crate::rib::Attachment;

#[test]
fn switch_removed_and_added_again_starts_over_and_serves_meanwhile() {
    let mut lab = Lab::new(settings(ValueMode::Port));
    let nodes = [lab.add_switch("s0", Tenants::All)];
    for port in [100, 101] {
        lab.change(|net| net.add_host_port(End { node: nodes[0], port: PortId(port) }));
    }
    lab.put(&mac(1), Attachment::new(nodes[0], PortId(100)));
    let mut replica = lab.replicas.remove(&nodes[0]).unwrap();
    lab.network.detach(nodes[0]);
    lab.change(|net| net.remove_name(&mac(1)));
    for port in [100, 101] {
        lab.change(|net| net.remove_host_port(End { node: nodes[0], port: PortId(port) }));
    }
    lab.change(|net| net.remove_switch(nodes[0]));
    let (again, effects) = lab.network.add_switch("s0", Tenants::All).unwrap();
    lab.commit(effects);
    assert_ne!(again, nodes[0]);
    lab.change(|net| net.add_host_port(End { node: again, port: PortId(100) }));
    lab.change(|net| net.set_name(&mac(2), Attachment::new(again, PortId(100))));

    let mut saved = Replica::load(Limits::default(), MemoryTables::default(), &replica.save()).unwrap();
    for replica in [&mut replica, &mut saved] {
        let messages = lab.network.attach(again, &replica.report()).unwrap();
        let error = replica.apply(messages[0].clone()).unwrap_err();
        assert_eq!(error, ReplicaError::WrongNode { got: again, expected: nodes[0] });
        replica.start_over();
        assert_eq!(replica.action(&mac(1)), Action::Port(PortId(100)), "it serves what it has");
        let messages = lab.network.attach(again, &replica.report()).unwrap();
        assert!(matches!(&messages[0].body, Body::Table(header) if header.reset));
        messages.into_iter().for_each(|message| _ = replica.apply(message).unwrap());
        assert_eq!(replica.action(&mac(2)), Action::Port(PortId(100)));
        assert_eq!(replica.report(), lab.network.held(again).unwrap());
        assert_eq!(lab.network.attach(again, &replica.report()).unwrap(), []);
    }
}

#[test]
fn name_that_is_twice_in_a_message_is_refused() {
    let (mut lab, nodes) = Lab::ring(settings(ValueMode::Port), 2);
    lab.put(&mac(1), Attachment::new(nodes[0], PortId(100)));
    let replica = lab.replicas.get_mut(&nodes[0]).unwrap();
    let (kind, before) = (mac(1).kind(), replica.report());
    let twice = vec![(mac(2), PortId(1)), (mac(2), PortId(2))];
    // What a sender that adds both shares would say.
    let digest = twice.iter().fold(0, |sum, (name, value)| sum ^ value.share(name));
    let (version, parts) = (before.local.version + 1, 1);
    let load = ExactUpdate::Load { kind, version, digest, part: 0, parts, entries: twice.clone() };
    let (from, to, digest) = (before.local.version, version, before.local.digest ^ digest);
    let delta = ExactUpdate::Delta { kind, from, to, digest, put: twice, remove: vec![] };
    let message = lab.network.attach(nodes[0], &Report::default()).unwrap().remove(0);
    for update in [load, delta] {
        let refused = replica.apply(Message { body: Body::Local(update), ..message.clone() });
        assert_eq!(refused, Err(ReplicaError::NameTwice));
    }
    assert_eq!(replica.report(), before);
}

#[test]
fn switch_added_again_without_hosts_forgets_its_local_names() {
    let mut lab = Lab::new(settings(ValueMode::Port));
    let s0 = lab.add_switch("s0", Tenants::All);
    let port = End { node: s0, port: PortId(100) };
    lab.change(|net| net.add_host_port(port));
    lab.put(&mac(1), Attachment::new(s0, PortId(100)));
    let replica = lab.replicas.remove(&s0).unwrap();
    lab.network.detach(s0);
    lab.change(|net| net.remove_name(&mac(1)));
    lab.change(|net| net.remove_host_port(port));
    lab.change(|net| net.remove_switch(s0));
    let (again, effects) = lab.network.add_switch("s0", Tenants::All).unwrap();
    lab.commit(effects);

    // Once in one piece, once with the stream broken behind the header, once with a restart there.
    for (broken, restarted) in [(false, false), (true, false), (true, true)] {
        let mut replica = Replica::load(Limits::default(), MemoryTables::default(), &replica.save()).unwrap();
        replica.start_over();
        let mut messages = lab.network.attach(again, &replica.report()).unwrap();
        if broken {
            replica.apply(messages.remove(0)).unwrap();
            assert_eq!(replica.tables().local.len(), 1, "it serves what it has");
            if restarted {
                replica = Replica::load(Limits::default(), MemoryTables::default(), &replica.save()).unwrap();
            }
            messages = lab.network.attach(again, &replica.report()).unwrap();
        }
        messages.into_iter().for_each(|message| _ = replica.apply(message).unwrap());
        assert!(replica.tables().local.is_empty() && replica.tables().valid.is_empty(), "{broken}, {restarted}");
        assert_eq!(replica.report(), lab.network.held(again).unwrap());
    }
}

#[test]
fn controller_whose_store_was_set_back_takes_a_term_after_all_that_its_switches_saw() {
    let (mut lab, nodes) = Lab::ring(settings(ValueMode::Port), 2);
    let backup = lab.store.clone();
    lab.put(&mac(1), Attachment::new(nodes[0], PortId(100)));
    lab.network.raise_term(1_000);
    lab.put(&mac(2), Attachment::new(nodes[0], PortId(100)));
    let replica = lab.replicas.get_mut(&nodes[0]).unwrap();
    assert_eq!(replica.report().term, 1_000);

    let rows = backup.into_iter().map(|((kind, key), value)| RowChange { kind, key, value: Some(value) });
    let (mut network, _) = Network::restore(settings(ValueMode::Port), 2, rows).unwrap();
    let late = network.attach(nodes[0], &replica.report()).unwrap();
    assert_eq!(replica.apply(late[0].clone()), Err(ReplicaError::StaleTerm { got: 2, current: 1_000 }));
    network.raise_term(replica.report().term + 1);
    let messages = network.attach(nodes[0], &replica.report()).unwrap();
    messages.into_iter().for_each(|message| _ = replica.apply(message).unwrap());
    assert_eq!(replica.report(), network.held(nodes[0]).unwrap());
    network.raise_term(3);
    assert_eq!(network.term(), 1_001, "a term never falls");
}

/// The store is set back to before a rekey, and rekeyed again: the new table has the id of the lost one.
#[test]
fn switch_with_a_table_that_a_set_back_store_does_not_know_of_gets_the_one_of_that_id() {
    for (mode, n_names) in [(ValueMode::Port, 50), (ValueMode::Egress, 50), (ValueMode::Port, 0)] {
        let (mut lab, nodes) = Lab::ring(settings(mode), 2);
        (0..n_names).for_each(|i| lab.put(&mac(i), Attachment::new(nodes[0], PortId(100))));
        let (backup, table) = (lab.stored(), lab.replicas[&nodes[1]].report().table);
        lab.change(|net| net.rekey(SecretKey::from_seed(2)));
        let replica = lab.replicas.get_mut(&nodes[1]).unwrap();
        let lost = replica.report().table;
        assert_ne!(lost, table);

        let (mut network, _) = Network::restore(settings(mode), 2, backup).unwrap();
        network.rekey(SecretKey::from_seed(3)).unwrap();
        let messages = network.attach(nodes[1], &replica.report()).unwrap();
        let refused = replica.apply(messages[0].clone());
        assert_eq!(refused, Err(ReplicaError::OtherTable { table: lost }));
        assert!((0..n_names).all(|i| replica.action(&mac(i)) == lab.network.action(nodes[1], &mac(i))), "it serves on");
        assert!(refused.is_err_and(|error| error.needs_resync()));
        let messages = network.attach(nodes[1], &replica.report()).unwrap();
        // It may be interrupted and restarted anywhere.
        let saved = replica.save();
        for n in 0..=messages.len() {
            let mut replica = Replica::load(Limits::default(), MemoryTables::default(), &saved).unwrap();
            messages[..n].iter().for_each(|message| _ = replica.apply(message.clone()).unwrap());
            let mut replica = Replica::load(Limits::default(), MemoryTables::default(), &replica.save()).unwrap();
            for _ in 0..2 {
                let messages = network.attach(nodes[1], &replica.report()).unwrap();
                let _ = messages.into_iter().try_for_each(|message| replica.apply(message).map(|_| ()));
            }
            assert_eq!(replica.report(), network.held(nodes[1]).unwrap(), "{n} messages before the restart");
            assert!((0..n_names).all(|i| replica.action(&mac(i)) == network.action(nodes[1], &mac(i))));
        }
    }
}

#[test]
fn names_of_another_kind_are_refused_and_the_saved_image_stays_usable() {
    let (lab, nodes) = Lab::ring(settings(ValueMode::Port), 2);
    let mut network = lab.network;
    network.set_name(&mac(1), Attachment::new(nodes[0], PortId(100))).unwrap();
    let mut replica = Replica::new(Limits::default(), MemoryTables::default());
    let proper = network.attach(nodes[0], &replica.report()).unwrap();
    let text = Name::from_bytes(NameKind::Text, b"a text").unwrap();
    let version = 1_000;
    let load = |digest, entries| {
        Body::Local(ExactUpdate::Load { kind: NameKind::Text, version, digest, part: 0, parts: 1, entries })
    };
    let whole = load(PortId(1).share(&text), vec![(text.clone(), PortId(1))]);
    proper.iter().for_each(|message| _ = replica.apply(message.clone()).unwrap());
    let before = (replica.report(), replica.save());
    let valid = before.0.valid;
    let change = Body::Valid(ExactUpdate::Delta {
        kind: NameKind::Text,
        from: valid.version,
        to: valid.version + 1,
        digest: valid.digest ^ None.share(&text),
        put: vec![(text, None)],
        remove: vec![],
    });
    let mut header = network.header(nodes[0]);
    header.spec.kind = NameKind::Text;
    for body in [whole, change, load(0, vec![]), Body::Table(header)] {
        let error = replica.apply(Message { body, ..proper[0].clone() }).unwrap_err();
        assert_eq!(error, ReplicaError::WrongKind { got: NameKind::Text, expected: NameKind::Mac });
        assert!(!error.needs_resync());
        assert_eq!((replica.report(), replica.save()), before);
    }
    let again = Replica::load(Limits::default(), MemoryTables::default(), &before.1).unwrap();
    assert_eq!(again.report(), before.0);
}
