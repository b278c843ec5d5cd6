//! A network that is restored from another's rows and told the same changes commits the same rows as that one, whatever
//! switches are attached to it; with the Othellos it also sends the same bytes, and a switch that comes to it from the other
//! is sent nothing. Other designs send whole parts once where they do not know what was sent before.

use super::lab::{Lab, Random, end, mac, settings};
use crate::designs::{CONCISE, OFW};
use crate::durable::VIEW;
use crate::network::*;
use crate::rib::Attachment;

type Change = Box<dyn Fn(&mut Network) -> Result<Effects, NetworkError>>;

/// A change that both are told.
fn change(random: &mut Random, network: &Network, step: usize) -> Option<Change> {
    let hosts: Vec<End> = network.host_ports().collect();
    let links: Vec<Link> = network.topology().links().copied().collect();
    let at = random.pick(&hosts)?;
    Some(match random.below(22) {
        21 => {
            let remove: Vec<Name> =
                (0..400).map(mac).filter(|name| network.rib().get(name).is_some()).step_by(3).collect();
            let names: Vec<_> = (300..340).map(|i| (mac(i), Attachment::new(at.node, at.port))).collect();
            Box::new(move |network| network.change_names(&remove, &names))
        }
        0..9 => {
            let (name, attachment) = (mac(random.below(400)), Attachment::new(at.node, at.port));
            Box::new(move |network| network.set_name(&name, attachment))
        }
        9..13 => {
            let name = mac(random.below(400));
            network.rib().get(&name)?;
            Box::new(move |network| network.remove_name(&name))
        }
        13..15 => {
            let first = random.below(400);
            let names: Vec<_> = (first..first + 40).map(|i| (mac(i), Attachment::new(at.node, at.port))).collect();
            Box::new(move |network| network.put_names(&names))
        }
        15..18 => {
            let link = random.pick(&links)?;
            Box::new(move |network| network.set_link_up(link.a, !link.up))
        }
        18 => {
            let (link, cost) = (random.pick(&links)?, 1 + random.below(3) as u32);
            Box::new(move |network| network.set_link_cost(link.a, cost))
        }
        19 => {
            let (link, weight) = (random.pick(&links)?, 1 + random.below(3) as u8);
            Box::new(move |network| network.set_link_weight(link.a, weight))
        }
        // Where values are few, the ports of hosts take them from destinations, and give them back.
        _ if random.below(3) == 0 => Box::new(move |network| network.remove_host_port(at)),
        _ => Box::new(move |network| network.add_host_port(end(at.node, 200 + step as u16))),
    })
}

/// What is committed, in any order, but the rows of views: those of Bloom filters say which were sent whole.
fn rows(effects: &Effects) -> BTreeSet<&RowChange> {
    effects.durable.iter().filter(|row| row.kind != VIEW).collect()
}

/// What each switch is sent, in its order.
fn bytes(effects: &Effects, to: &BTreeSet<NodeId>) -> BTreeMap<NodeId, Vec<Vec<u8>>> {
    let mut sent = BTreeMap::<_, Vec<_>>::new();
    for (node, message) in effects.phases.iter().flatten().filter(|(node, _)| to.contains(node)) {
        sent.entry(*node).or_default().push(message.encode());
    }
    sent
}

pub(crate) fn follows(design: &'static Design, (mode, value_bits): (ValueMode, u8), seed: u64) {
    println!("{design}, {mode} mode, {value_bits} bits, seed {seed}");
    let mut random = Random(seed);
    let (mut lab, _) = Lab::ring(Settings { gateway: design, core: design, value_bits, ..settings(mode) }, 4);
    let is_othello = [&CONCISE, &OFW].contains(&design);
    let mut follower: Option<Network> = None;
    let mut attached = BTreeSet::new();
    for step in 0..120 {
        if step % 40 == 20 {
            // Another one begins, from what is stored then.
            let settings = Settings { key: SecretKey::from_seed(97), ..lab.network.settings().clone() };
            let (mut made, rows) = Network::restore(settings, lab.network.term(), lab.stored()).unwrap();
            assert_eq!(rows, []);
            attached.clear();
            for (node, replica) in lab.replicas.iter().filter(|_| random.below(2) == 0) {
                assert_eq!(made.attach(*node, &replica.report()).unwrap(), []);
                attached.insert(*node);
            }
            follower = Some(made);
        }
        if let Some(follower) = &mut follower
            && step % 40 == 35
            && let Some((node, replica)) = lab.replicas.iter().find(|(node, _)| !attached.contains(node))
        {
            let lacks = follower.attach(*node, &replica.report()).unwrap();
            assert!(lacks.is_empty() || !is_othello, "step {step}: it is sent what it has");
            attached.insert(*node);
        }
        let Some(change) = change(&mut random, &lab.network, step) else { continue };
        let effects = change(&mut lab.network);
        if let Some(follower) = &mut follower {
            let theirs = change(follower);
            match (&effects, &theirs) {
                (Ok(ours), Ok(theirs)) => {
                    let others: Vec<_> = rows(ours).symmetric_difference(&rows(theirs)).copied().cloned().collect();
                    assert_eq!(others, [], "step {step}: other rows");
                    if is_othello {
                        assert!(bytes(ours, &attached) == bytes(theirs, &attached), "step {step}: other bytes");
                    }
                }
                (ours, theirs) => assert_eq!(ours.is_ok(), theirs.is_ok(), "step {step}"),
            }
            let sent = effects.iter().flat_map(|effects| effects.phases.iter().flatten());
            sent.for_each(|(node, message)| follower.acknowledge(*node, message.change));
        }
        if let Ok(effects) = effects {
            lab.commit(effects);
        }
    }
}
