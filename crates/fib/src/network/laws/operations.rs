//! Random operations on one lab, checked against the oracles.

use super::lab::{Lab, Random, end, mac, settings};
use crate::network::*;
use crate::replica::{Limits, MemoryTables, Replica};
use crate::rib::{Attachment, RibError};

/// Random operations on one lab; the seed is in every failure's output. A restart may bring other `designs`.
pub(crate) fn random_operations(seed: u64, mode: ValueMode, designs: &[[&'static Design; 2]], steps: usize) {
    operate(seed, settings(mode), designs, steps);
}

/// As [`random_operations`], where values may be too few: ports that are refused are left out. The lab afterwards.
pub(crate) fn operate(seed: u64, settings: Settings, designs: &[[&'static Design; 2]], steps: usize) -> Lab {
    println!("seed {seed}, {} mode, {} bits, {designs:?}", settings.mode, settings.value_bits);
    let mut random = Random(seed);
    let [gateway, core] = designs[0];
    let (mut lab, _) = Lab::ring(Settings { gateway, core, ..settings }, 4);
    let mut port = 10;
    for step in 0..steps {
        let nodes: Vec<NodeId> = lab.network.switches.keys().copied().collect();
        let hosts: Vec<End> = lab.network.host_ports().collect();
        let links: Vec<Link> = lab.network.topology().links().copied().collect();
        match random.below(40) {
            0..16 => {
                let name = mac(random.below(150));
                let Some(at) = random.pick(&hosts) else { continue };
                let tenants: Vec<u32> = (0..3).filter(|t| lab.network.tenants(at.node).unwrap().holds(*t)).collect();
                let ip = (random.below(3) == 0).then(|| std::net::Ipv4Addr::from(random.below(60) as u32).into());
                let attachment =
                    Attachment { tenant: random.pick(&tenants).unwrap(), ip, ..Attachment::new(at.node, at.port) };
                let taken = ip.and_then(|ip| lab.network.rib().by_ip(ip)).is_some_and(|holder| holder != name);
                if taken {
                    assert!(matches!(
                        lab.network.set_name(&name, attachment),
                        Err(NetworkError::Rib(RibError::IpInUse { .. }))
                    ));
                } else {
                    lab.put(&name, attachment);
                }
            }
            16..25 => {
                let names: Vec<&Name> = lab.live.keys().collect();
                let Some(name) = random.pick(&names).cloned() else { continue };
                lab.remove(&name);
            }
            25 => {
                let Some(at) = random.pick(&hosts).filter(|at| *lab.network.tenants(at.node).unwrap() == Tenants::All)
                else {
                    continue;
                };
                let n = random.below(120);
                let batch: Vec<_> =
                    (0..n).map(|_| (mac(random.below(150)), Attachment::new(at.node, at.port))).collect();
                lab.change(|net| net.put_names(&batch));
                lab.removed.retain(|name| !batch.iter().any(|(put, _)| put == name));
                lab.live.extend(batch);
            }
            26 if random.below(2) == 0 => {
                // What is there goes, or gets the address of another one that goes or changes; others come.
                let Some(at) = random.pick(&hosts).filter(|at| *lab.network.tenants(at.node).unwrap() == Tenants::All)
                else {
                    continue;
                };
                let (mut remove, mut put, mut free) = (Vec::new(), BTreeMap::new(), Vec::new());
                for (name, before) in &lab.live {
                    match random.below(3) {
                        0 => remove.push(name.clone()),
                        1 => _ = put.insert(name.clone(), Attachment::new(at.node, at.port)),
                        _ => continue,
                    }
                    free.extend(before.ip);
                }
                put.values_mut().rev().zip(free).for_each(|(attachment, ip)| attachment.ip = Some(ip));
                for name in (0..random.below(60)).map(|i| mac(200 + i)) {
                    remove.retain(|removed| *removed != name);
                    put.entry(name).or_insert(Attachment::new(at.node, at.port));
                }
                let put: Vec<_> = put.into_iter().collect();
                lab.change(|net| net.change_names(&remove, &put));
                lab.live.retain(|name, _| !remove.contains(name));
                lab.removed.extend(remove);
                lab.removed.retain(|name| !put.iter().any(|(put, _)| put == name));
                lab.live.extend(put);
            }
            26 => {
                let batch: Vec<Name> = lab.live.keys().filter(|_| random.below(3) == 0).cloned().collect();
                lab.change(|net| net.remove_names(&batch));
                lab.live.retain(|name, _| !batch.contains(name));
                lab.removed.extend(batch);
            }
            27 | 28 => {
                let Some(link) = random.pick(&links) else { continue };
                lab.change(|net| net.set_link_up(link.a, !link.up));
            }
            29 => {
                let Some(link) = random.pick(&links) else { continue };
                let (cost, weight) = (1 + random.below(3) as u32, [1, 1, 2, 64][random.below(4)]);
                lab.change(|net| net.set_link_cost(link.b, cost));
                lab.change(|net| net.set_link_weight(link.a, weight));
            }
            30 if nodes.len() < 7 => {
                let tenants = if random.below(2) == 0 { Tenants::All } else { Tenants::Only([1, 2].into()) };
                let node = lab.add_switch(&format!("n{step}"), tenants);
                port += 3;
                let peer = random.pick(&nodes).unwrap();
                lab.change_if_there_is_room(|net| net.add_link(end(node, port), end(peer, port), 1));
                lab.change(|net| net.add_host_port(end(node, port - 1)));
            }
            31 => {
                port += 1;
                let (Some(a), Some(b)) = (random.pick(&nodes), random.pick(&nodes)) else { continue };
                if a == b {
                    lab.network.add_link(end(a, port), end(b, port), 1).unwrap_err();
                } else {
                    lab.change_if_there_is_room(|net| net.add_link(end(a, port), end(b, port), 1));
                }
            }
            32 => {
                let Some(link) = random.pick(&links).filter(|_| links.len() > nodes.len()) else { continue };
                lab.change(|net| net.remove_link(link.b));
            }
            33 => {
                port += 1;
                let node = random.pick(&nodes).unwrap();
                lab.change_if_there_is_room(|net| net.add_host_port(end(node, port)));
            }
            34 => {
                let Some(at) = random.pick(&hosts) else { continue };
                let used = lab.live.values().any(|attachment| attachment.end() == at);
                let result = lab.network.remove_host_port(at);
                assert_eq!(result.is_err(), used);
                if let Ok(effects) = result {
                    lab.commit(effects);
                }
            }
            35 => {
                // A switch that misses what happens.
                let node = random.pick(&nodes).unwrap();
                lab.network.detach(node);
            }
            36 => nodes
                .iter()
                .filter(|node| !lab.network.is_attached(**node))
                .copied()
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|node| lab.attach(node)),
            37 => {
                lab.restart(random.pick(designs).unwrap());
                nodes.iter().for_each(|node| lab.attach(*node));
            }
            38 => {
                let key = SecretKey::from_seed(random.next());
                lab.change(|net| net.rekey(key));
                lab.removed.clear();
            }
            _ => {
                // A switch that starts from its saved image.
                let node = random.pick(&nodes).unwrap();
                let saved = lab.replicas[&node].save();
                let loaded = Replica::load(Limits::default(), MemoryTables::default(), &saved).unwrap();
                assert_eq!(loaded.report(), lab.replicas[&node].report());
                lab.replicas.insert(node, loaded);
            }
        }
        if step % 16 == 0 {
            lab.check();
        }
    }
    lab.check();
    lab
}
