//! Weights at switches that know them, and at those of a version that does not.

use super::*;
use crate::action::Ways;

/// Two switches with two links, each with a name, and the action of the first for that of the second.
fn pair(mode: ValueMode) -> (Lab, [NodeId; 2]) {
    let mut lab = Lab::new(settings(mode));
    let nodes = ["a", "b"].map(|name| lab.add_switch(name, Tenants::All));
    for port in [1, 2] {
        lab.change(|net| net.add_link(end(nodes[0], port), end(nodes[1], port), 1));
    }
    for (i, node) in nodes.into_iter().enumerate() {
        lab.change(|net| net.add_host_port(end(node, 100)));
        lab.put(&mac(i), Attachment::new(node, PortId(100)));
    }
    (lab, nodes)
}

fn spread(weights: [u8; 2]) -> Action {
    let ways = Ways::weighed([PortId(1), PortId(2)].into_iter().zip(weights)).unwrap();
    Action::Spread { ways, alternate: None }
}

#[test]
fn a_weight_changes_action_tables_alone_and_a_restart_keeps_it() {
    for mode in [ValueMode::Port, ValueMode::Egress] {
        let (mut lab, [a, b]) = pair(mode);
        assert_eq!(lab.replicas[&a].action(&mac(1)), spread([1, 1]));
        let effects = lab.network.set_link_weight(end(b, 1), 3).unwrap();
        let is_actions = |(_, message): &(NodeId, Message)| matches!(message.body, Body::Actions { .. });
        assert_eq!(effects.messages().filter(|message| is_actions(message)).count(), 2);
        assert_eq!(effects.messages().count(), 2, "no cell changes");
        lab.commit(effects);
        assert_eq!(lab.replicas[&a].action(&mac(1)), spread([3, 1]));
        assert_eq!(lab.replicas[&b].action(&mac(0)), spread([3, 1]), "in both directions");
        lab.check();
        // The same ratio: nothing to tell.
        lab.change(|net| net.set_link_up(end(a, 2), false));
        lab.change(|net| net.set_link_weight(end(a, 2), 2));
        lab.change(|net| net.set_link_weight(end(a, 1), 6));
        lab.change(|net| net.set_link_up(end(a, 2), true));
        assert_eq!(lab.replicas[&a].action(&mac(1)), spread([3, 1]));
        lab.check();
    }
}

#[test]
fn a_switch_that_knows_no_weights_is_sent_none_until_it_knows_them() {
    for mode in [ValueMode::Port, ValueMode::Egress] {
        let (mut lab, [old, new]) = pair(mode);
        lab.network.set_weighs(old, false);
        lab.attach(old);
        lab.change(|net| net.set_link_weight(end(old, 1), 3));
        assert_eq!(lab.replicas[&old].action(&mac(1)), spread([1, 1]));
        assert_eq!(lab.replicas[&new].action(&mac(0)), spread([3, 1]));
        // What it has is what is expected of it, before and after it comes back.
        let is_in_step = |lab: &Lab| {
            let (held, has) = (lab.network.held(old).unwrap(), lab.replicas[&old].report());
            assert_eq!((held.actions, held.shards), (has.actions, has.shards));
        };
        is_in_step(&lab);
        let report = lab.replicas[&old].report();
        assert_eq!(lab.network.attach(old, &report).unwrap(), []);
        // One that comes empty.
        lab.replicas.insert(old, Replica::new(Limits::default(), MemoryTables::default()));
        lab.attach(old);
        assert_eq!(lab.replicas[&old].action(&mac(1)), spread([1, 1]));
        is_in_step(&lab);

        // After its upgrade it has the same version, and is sent the table.
        lab.network.set_weighs(old, true);
        lab.attach(old);
        assert_eq!(lab.replicas[&old].action(&mac(1)), spread([3, 1]));
        is_in_step(&lab);
        lab.check();
    }
}
