//! Requests of operators, one after another, to a network with one switch that follows.

use crate::pieces::{pieces, put};
use api::v1;
use controller::change::{Change, State};
use controller::hosts::Hosts;
use controller::kit;
use fib::action::Action;
use fib::durable::RowChange;
use fib::messages::Report;
use fib::network::{Network, Settings};
use fib::replica::{Limits, MemoryTables, Replica};
use fib::topology::NodeId;
use lookup::hash::SecretKey;
use prost::Message;
use std::collections::BTreeMap;

type Rows = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

fn settings() -> Settings {
    Settings { max_names: 64, value_bits: 4, ..Settings::new(7, SecretKey::from_seed(3)) }
}

/// The request of a kind, if the bytes are one and it makes sense.
fn change(what: u8, bytes: &[u8]) -> Option<Change> {
    fn read<R: Message + Default>(bytes: &[u8]) -> Option<R> {
        R::decode(bytes).ok()
    }
    match what % 9 {
        0 => read::<v1::PutNamesRequest>(bytes)?.try_into().ok(),
        1 => Some(read::<v1::RemoveNamesRequest>(bytes)?.into()),
        2 => Some(read::<v1::AddSwitchRequest>(bytes)?.into()),
        3 => Some(read::<v1::RemoveSwitchRequest>(bytes)?.into()),
        4 => read::<v1::HostList>(bytes)?.try_into().ok(),
        5 => Some(read::<v1::RemoveHostRequest>(bytes)?.into()),
        6 => read::<v1::Link>(bytes)?.try_into().ok(),
        7 => read::<v1::SetLinkRequest>(bytes)?.try_into().ok(),
        _ => read::<v1::RemoveLinkRequest>(bytes)?.try_into().ok(),
    }
}

/// Carries out requests. The rows, committed one change at a time, restore the network as it is; a switch that follows
/// the messages answers what the network says.
pub(crate) fn requests(data: &[u8]) {
    let network = Network::new(settings(), 1).expect("good settings");
    let mut rows = Rows::new();
    commit(&mut rows, network.rows().collect());
    let mut state = State { network, hosts: Hosts::default() };
    let mut follower: Option<(NodeId, Replica<MemoryTables>)> = None;
    for (what, piece) in pieces(data).take(40) {
        let Some(change) = change(what, piece) else { continue };
        let before: Vec<RowChange> = if what & 0x80 != 0 { state.network.rows().collect() } else { Vec::new() };
        match kit::carry_out(&mut state, change) {
            Ok(done) => {
                commit(&mut rows, done.rows);
                for (node, message) in done.effects.iter().flat_map(|effects| effects.messages()) {
                    let (follows, replica) = follower.as_mut().expect("messages go to attached switches");
                    assert_eq!(node, follows);
                    replica.apply(message.clone()).expect("messages in order are applied");
                }
            }
            Err(refusal) => {
                assert!(!refusal.to_string().is_empty());
                if what & 0x80 != 0 {
                    let after: Vec<RowChange> = state.network.rows().collect();
                    assert!(before == after, "a refused change changed the network: {refusal}");
                }
            }
        }
        if follower.as_ref().is_some_and(|(node, _)| state.network.tenants(*node).is_none()) {
            follower = None;
        }
        let first = state.network.topology().nodes().next().map(|(node, _)| node);
        if follower.is_none()
            && let Some(node) = first
        {
            let mut replica = Replica::new(Limits::default(), MemoryTables::default());
            for message in state.network.attach(node, &Report::default()).expect("the switch is known") {
                replica.apply(message).expect("messages in order are applied");
            }
            follower = Some((node, replica));
        }
    }
    commit(&mut rows, state.network.take_view_rows());
    if let Some((node, replica)) = &follower {
        for (name, _, attachment) in state.network.rib().iter() {
            let expected = state.network.action(*node, &name);
            // A name of a tenant that the switch does not hold is alien to it.
            if state.network.tenants(*node).is_some_and(|tenants| tenants.holds(attachment.tenant)) {
                assert_eq!(replica.action(&name), expected, "{name}");
            } else {
                assert_eq!(expected, Action::Drop);
            }
        }
    }
    let stored =
        rows.iter().map(|((kind, key), value)| RowChange { kind: *kind, key: key.clone(), value: Some(value.clone()) });
    let stored = stored.filter(|row| row.kind != controller::hosts::HOST_ROW);
    let (restored, changed) = Network::restore(settings(), 2, stored).expect("what was committed can be restored");
    assert!(changed.is_empty(), "a restart changes rows: {changed:?}");
    let all = |network: &Network| {
        let mut rows: Vec<RowChange> = network.rows().collect();
        rows.sort();
        rows
    };
    assert!(all(&restored) == all(&state.network), "the rows restore another network");
    let mut hosts = Hosts::default();
    for ((_, key), value) in rows.iter().filter(|((kind, _), _)| *kind == controller::hosts::HOST_ROW) {
        hosts.restore(key, value).expect("rows of hosts are good");
    }
    assert_eq!(hosts, state.hosts);
}

fn commit(rows: &mut Rows, changes: Vec<RowChange>) {
    for RowChange { kind, key, value } in changes {
        match value {
            Some(value) => _ = rows.insert((kind, key), value),
            None => _ = rows.remove(&(kind, key)),
        }
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let end = |switch: &str, port| Some(v1::LinkEnd { switch: switch.to_owned(), port });
    let record = |i: u8, host: &str, tenant| v1::NameRecord {
        name: format!("02:00:00:00:00:{i:02x}"),
        host: host.to_owned(),
        tenant,
        ip: if i.is_multiple_of(2) { format!("10.0.0.{i}") } else { String::new() },
        ..v1::NameRecord::default()
    };
    let host = |name: &str, switch: &str, port| v1::Host {
        name: name.to_owned(),
        switch: switch.to_owned(),
        port,
        ..v1::Host::default()
    };
    let mut seeds = Vec::new();
    for tenants in [vec![], vec![1, 2]] {
        let mut out = Vec::new();
        for (name, tenants) in [("s1", vec![]), ("s2", vec![]), ("s3", tenants)] {
            put(&mut out, 2, &v1::AddSwitchRequest { name: name.to_owned(), tenants }.encode_to_vec());
        }
        put(
            &mut out,
            6,
            &v1::Link { a: end("s1", 8), b: end("s2", 8), cost: 1, up: true, ..v1::Link::default() }.encode_to_vec(),
        );
        put(
            &mut out,
            6,
            &v1::Link { a: end("s2", 9), b: end("s3", 9), cost: 2, up: false, cut: true, ..v1::Link::default() }
                .encode_to_vec(),
        );
        let hosts = vec![host("h1", "s1", 1), host("h2", "s2", 1), host("h3", "s3", 1)];
        put(&mut out, 4, &v1::HostList { hosts, ..v1::HostList::default() }.encode_to_vec());
        let names = (0..6).map(|i| record(i, ["h1", "h2", "h3"][usize::from(i) % 3], 1)).collect();
        put(&mut out, 0, &v1::PutNamesRequest { names, only_new: true }.encode_to_vec());
        put(
            &mut out,
            7,
            &v1::SetLinkRequest { end: end("s2", 9), cost: Some(1), weight: Some(2), up: Some(true), raised: None }
                .encode_to_vec(),
        );
        put(&mut out, 0, &v1::PutNamesRequest { names: vec![record(1, "h3", 2)], only_new: false }.encode_to_vec());
        let names = vec!["02:00:00:00:00:02".to_owned(), "02:00:00:00:00:77".to_owned()];
        put(&mut out, 1, &v1::RemoveNamesRequest { names, ignore_missing: true }.encode_to_vec());
        put(&mut out, 0x80 + 2, &v1::AddSwitchRequest { name: "s1".to_owned(), tenants: vec![] }.encode_to_vec());
        put(&mut out, 8, &v1::RemoveLinkRequest { end: end("s1", 8) }.encode_to_vec());
        put(
            &mut out,
            1,
            &v1::RemoveNamesRequest {
                names: vec!["02:00:00:00:00:00".to_owned(), "02:00:00:00:00:03".to_owned()],
                ignore_missing: true,
            }
            .encode_to_vec(),
        );
        put(&mut out, 5, &v1::RemoveHostRequest { name: "h1".to_owned() }.encode_to_vec());
        put(&mut out, 3, &v1::RemoveSwitchRequest { name: "s1".to_owned() }.encode_to_vec());
        seeds.push(out);
    }
    seeds
}
