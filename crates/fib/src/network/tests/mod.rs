//! The network against oracles: plain maps, hop-by-hop forwarding, and itself after a restart.

mod chosen_names;
mod damage;
mod identity;
mod prepared;
mod protocol;
mod rates;
mod salvage;
mod values;
mod weights;
mod wiring;

use super::*;
use crate::designs::{CFW, CUCKOO, DESIGNS, LINE, OFW};
use crate::network::laws::operations::{operate, random_operations};
use crate::network::laws::{self, lab};
use crate::replica::{Limits, MemoryTables, Replica};
use crate::rib::{Attachment, RibError};
use lab::{Lab, Random, end, mac, settings};
use std::ops::Range;

#[test]
fn fibs_agree_with_the_oracles_and_survive_restarts_in_port_mode() {
    (0..12).for_each(|seed| random_operations(seed, ValueMode::Port, &[[&CONCISE, &CONCISE]], 200));
}

#[test]
fn fibs_agree_with_the_oracles_and_survive_restarts_in_egress_mode() {
    (100..112).for_each(|seed| random_operations(seed, ValueMode::Egress, &[[&CONCISE, &CONCISE]], 200));
}

#[test]
fn every_design_serves_a_network() {
    laws::serves_a_network(DESIGNS);
}

#[test]
fn a_restored_network_that_is_told_the_same_changes_commits_the_same_rows() {
    laws::followers_commit_the_same_rows(DESIGNS);
    for (design, seed) in [&CONCISE, &OFW, &LINE].into_iter().zip(lookup::testkit::seed()..) {
        laws::followers::follows(design, (ValueMode::Port, 3), seed);
    }
}

#[test]
fn gateways_may_have_another_design_than_the_core_and_a_restart_may_change_both() {
    for seed in 300..306 {
        let designs = [[&CFW, &CONCISE], [&CONCISE, &CFW], [&CUCKOO, &CFW], [&CONCISE, &CONCISE]];
        random_operations(seed, ValueMode::Port, &designs[..1], 150);
        random_operations(seed, if seed % 2 == 0 { ValueMode::Port } else { ValueMode::Egress }, &designs, 150);
    }
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
        let bytes = |node| lab.replicas[&node].fib().unwrap().image().len();
        assert!(bytes(edge) * 3 < bytes(nodes[0]), "{} against {} bytes", bytes(edge), bytes(nodes[0]));
        assert_eq!(lab.replicas[&edge].tables().valid.len(), 31);
        // A name that changes its tenant comes and goes there.
        lab.put(&mac(1), Attachment { tenant: 5, ..Attachment::new(nodes[1], PortId(100)) });
        lab.put(&mac(10), Attachment { tenant: 1, ..Attachment::new(nodes[1], PortId(100)) });
        lab.check();
        assert_eq!(lab.replicas[&edge].action(&mac(10)), Action::Drop);
        // Removing the last switch of a table removes the table.
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
fn link_failure_changes_action_tables_only() {
    for mode in [ValueMode::Port, ValueMode::Egress] {
        let (mut lab, nodes) = Lab::ring(settings(mode), 6);
        for i in 0..100 {
            lab.put(&mac(i), Attachment::new(nodes[i % 6], PortId(100)));
        }
        let effects = lab.network.set_link_up(end(nodes[0], 1), false).unwrap();
        assert!(effects.messages().count() > 0);
        assert!(effects.messages().all(|(_, message)| matches!(message.body, Body::Actions { .. })));
        assert!(effects.durable.iter().all(|row| [1, 2, 3].contains(&row.kind)), "no part has another version");
        lab.commit(effects);
        lab.check();
    }
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
    // A removed switch's index is free once the others have acknowledged a later change.
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
    let error = restore(settings(ValueMode::Port), rows);
    assert!(matches!(error, RestoreError::Row { .. }));
    // Data that a later version has written is not damage.
    assert!(error.to_string().contains("if a later version wrote the store, run that one"), "{error}");
}

/// Gives a switch a table that takes fewer names than the RIB, which no configuration does.
fn take_three_names_at_most(lab: &mut Lab, edge: NodeId) {
    let table = lab.network.switches[&edge].table;
    lab.network.detach(edge);
    let table = lab.network.tables.get_mut(&table).unwrap();
    let small = Spec { max_names: 3, ..table.spec.clone() };
    table.control = small.control(&|_| (), 1).unwrap();
    lab.replicas.insert(edge, Replica::new(Limits::default(), MemoryTables::default()));
    lab.attach(edge);
    lab.store = lab.network.rows().map(|row| ((row.kind, row.key), row.value.unwrap())).collect();
}

#[test]
fn change_that_one_of_several_tables_refuses_is_undone_in_the_others() {
    for mode in [ValueMode::Port, ValueMode::Egress] {
        let (mut lab, nodes) = Lab::ring(settings(mode), 3);
        let edge = lab.add_switch("edge", Tenants::Only([5].into()));
        lab.change(|net| net.add_link(end(edge, 1), end(nodes[0], 50), 1));
        take_three_names_at_most(&mut lab, edge);
        let at = |tenant| Attachment { tenant, ..Attachment::new(nodes[1], PortId(100)) };
        for i in 0..20 {
            lab.put(&mac(i), at(if i < 3 { 5 } else { 1 }));
        }
        let full = |error| matches!(error, NetworkError::Graph(lookup::traits::InsertError::TooManyNames { max: 3 }));
        assert!(full(lab.network.set_name(&mac(50), at(5)).unwrap_err()));
        assert!(lab.network.tables[&1].control.is_behind());
        lab.put(&mac(60), at(1));
        lab.check();
        // A batch that moves, adds and fails; a topology change updates the switches.
        let batch: Vec<_> =
            (0..80).map(|i| (mac(i), Attachment { switch: nodes[2], ..at(if i < 4 { 5 } else { 1 }) })).collect();
        assert!(full(lab.network.put_names(&batch).unwrap_err()));
        lab.change(|net| net.set_link_cost(end(nodes[0], 1), 5));
        lab.check();
        lab.remove(&mac(0));
        lab.change(|net| net.put_names(&batch[..3]));
        lab.live.extend(batch[..3].iter().cloned());
        lab.removed.clear();
        lab.check();
    }
}

#[test]
fn switch_attaches_again_after_a_refused_batch_left_the_graph_with_more_shards() {
    for mode in [ValueMode::Port, ValueMode::Egress] {
        let (mut lab, nodes) = Lab::ring(settings(mode), 3);
        let edge = lab.add_switch("edge", Tenants::Only([5].into()));
        take_three_names_at_most(&mut lab, edge);
        let at = |tenant| Attachment { tenant, ..Attachment::new(nodes[1], PortId(100)) };
        let names = |range: Range<usize>| range.map(|i| (mac(i), at(1))).collect::<Vec<_>>();
        lab.change(|net| net.put_names(&names(0..5_500)));
        lab.live.extend(names(0..5_500));
        let n_shards = |lab: &Lab| lab.network.held(nodes[0]).unwrap().shards.len();
        let before = n_shards(&lab);
        let mut refused = names(10_000..14_000);
        refused.extend((20_000..20_004).map(|i| (mac(i), at(5))));
        lab.network.put_names(&refused).unwrap_err();
        assert!(n_shards(&lab) > before, "{} shards", n_shards(&lab));
        assert!(lab.network.held(nodes[0]).is_some());
        lab.attach(nodes[0]);
        lab.put(&mac(30_000), at(1));
        lab.check();
    }
}

#[test]
fn refused_link_leaves_no_port_index_behind() {
    let (mut lab, nodes) = Lab::ring(Settings { value_bits: 3, ..settings(ValueMode::Port) }, 3);
    // With two links and two hosts, s0 has no index left after these.
    for port in [102, 103, 104] {
        lab.change(|net| net.add_host_port(end(nodes[0], port)));
    }
    let other = lab.add_switch("other", Tenants::All);
    let rows = |lab: &Lab| lab.network.rows().collect::<Vec<RowChange>>();
    let before = rows(&lab);
    let ends = [
        (end(nodes[0], 7), end(other, 1), 1),
        (end(other, 1), end(nodes[0], 7), 1),
        (end(other, 1), end(nodes[1], 1), 1),
        (end(other, 1), end(other, 2), 1),
        (end(other, 1), end(nodes[1], 8), 0),
        (end(other, 1), end(NodeId(99), 8), 1),
    ];
    for (a, b, cost) in ends {
        lab.network.add_link(a, b, cost).unwrap_err();
        lab.network.add_link_down(a, b, cost).unwrap_err();
        assert!(rows(&lab) == before, "{a:?} {b:?} {cost}");
    }
    lab.change(|net| net.add_link(end(other, 1), end(nodes[1], 8), 1));
    lab.check();
}

#[test]
fn names_of_every_kind_travel_and_survive_restarts() {
    type Text = fn(usize) -> String;
    let texts: [(NameKind, Text); 8] = [
        (NameKind::Mac, |i| format!("02:00:00:00:00:{i:02x}")),
        (NameKind::Ipv4, |i| format!("10.0.0.{i}")),
        (NameKind::Ipv6, |i| format!("fd00::{i:x}")),
        (NameKind::FiveTuple, |i| format!("10.0.0.{i}:80->10.0.0.2:443/tcp")),
        (NameKind::FiveTuple, |i| format!("[fd00::{i:x}]:80->[fd00::2]:443/{i}")),
        (NameKind::Teid, |i| i.to_string()),
        (NameKind::Fixed(45), |i| format!("{i:090x}")),
        (NameKind::Text, |i| format!("{i}{}", "/é".repeat(1300))),
    ];
    for (kind, text) in texts {
        let (mut lab, nodes) = Lab::ring(Settings { kind, ..settings(ValueMode::Port) }, 3);
        for i in 0..30 {
            lab.put(&Name::parse(kind, &text(i)).unwrap(), Attachment::new(nodes[i % 3], PortId(101)));
        }
        lab.remove(&Name::parse(kind, &text(7)).unwrap());
        lab.check();
        let stranger = if kind == NameKind::Teid { mac(1) } else { Name::parse(NameKind::Teid, "1").unwrap() };
        let refused = lab.network.add_name(&stranger, Attachment::new(nodes[0], PortId(100)));
        assert!(matches!(refused, Err(NetworkError::Rib(RibError::WrongKind { .. }))));
    }
}
