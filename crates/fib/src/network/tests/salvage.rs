//! Networks from what is left of their rows.

use crate::durable::salvage;
use crate::network::laws::lab::{Lab, Random, mac, settings};
use crate::network::*;
use crate::rib::Attachment;

/// Loses rows of these kinds, each with a chance of one in `one_in`.
fn lose(lab: &Lab, random: &mut Random, kinds: &[u8], one_in: usize) -> (Vec<RowChange>, Vec<RowChange>) {
    lab.stored().into_iter().partition(|row| !kinds.contains(&row.kind) || random.below(one_in) > 0)
}

fn lab(mode: ValueMode, random: &mut Random) -> Lab {
    let (mut lab, nodes) = Lab::ring(settings(mode), 5);
    for _ in 0..300 {
        let attachment = Attachment::new(nodes[random.below(5)], PortId(100 + random.below(2) as u16));
        lab.put(&mac(random.below(150)), attachment);
    }
    nodes.iter().for_each(|node| lab.attach(*node));
    lab
}

#[test]
fn switches_follow_a_network_of_what_is_left_of_its_rows() {
    for (seed, mode) in (0..12).flat_map(|seed| [(seed, ValueMode::Port), (seed, ValueMode::Egress)]) {
        println!("seed {seed}, {mode} mode");
        let mut random = Random(seed);
        let mut lab = lab(mode, &mut random);
        let derived: &[u8] = &[6, 7, 8, 9];
        let (kinds, one_in) = [(derived, 1), (derived, 2), (&[2, 3, 4, 5, 6, 7, 8, 9], 8)][seed as usize % 3];
        let (left, gone) = lose(&lab, &mut random, kinds, one_in);
        let salvaged = salvage(left, []).unwrap();
        let words_of_operators = gone.iter().any(|row| [2, 4].contains(&row.kind));
        assert!(words_of_operators || salvaged.lost.is_empty(), "{:?}", salvaged.lost);

        let term = lab.network.term() + 1;
        let n_names = salvaged.rows.iter().filter(|row| row.kind == 5).count();
        let (network, rows) = Network::restore(lab.network.settings().clone(), term, salvaged.rows.clone()).unwrap();
        assert_eq!(network.rib().len(), n_names);
        lab.live.retain(|name, attachment| {
            let is_left = network.rib().get(name) == Some(*attachment);
            let is_gone = gone.iter().any(|row| row.kind == 5 && row.key == name.as_bytes());
            let is_told = salvaged.lost.iter().any(|lost| lost.what.starts_with(&format!("the name {name} at ")));
            assert!(
                is_left != (is_gone || is_told),
                "{name} is left, or lost and said to be, unless its own row is gone"
            );
            is_left
        });
        lab.removed.clear();
        lab.replicas.retain(|node, _| network.topology().node(*node).is_ok());
        lab.network = network;
        lab.store.clear();
        lab.write(salvaged.rows);
        lab.write(rows);
        let nodes: Vec<NodeId> = lab.replicas.keys().copied().collect();
        nodes.iter().for_each(|node| lab.attach(*node));
        lab.check();
        // It also goes on.
        let hosts: Vec<End> = lab.network.host_ports().collect();
        for i in 0..100 {
            let Some(at) = random.pick(&hosts) else { break };
            lab.put(&mac(i), Attachment::new(at.node, at.port));
        }
        lab.check();
    }
}

#[test]
fn host_ports_that_hosts_need_are_made_again() {
    let mut random = Random(1);
    let lab = lab(ValueMode::Port, &mut random);
    let (left, gone) = lose(&lab, &mut random, &[4], 1);
    assert_eq!(gone.len(), 10);
    let salvaged = salvage(left.clone(), lab.network.host_ports()).unwrap();
    assert_eq!((salvaged.lost, salvaged.host_ports.len()), (vec![], 10));
    let salvaged = salvage(left, []).unwrap();
    assert_eq!((salvaged.lost.len(), salvaged.host_ports.len()), (lab.live.len(), 0));
    let (left, _) = lose(&lab, &mut random, &[1], 1);
    assert_eq!(salvage(left, []), Err(RestoreError::NoNetwork));
}
