//! Names that a tenant who has the hash key chose.

use crate::designs::{CONCISE, LINE};
use crate::network::laws::lab::{Lab, mac, settings};
use crate::network::*;
use crate::rib::Attachment;

/// `n` names from `from` on whose digests begin with the same 12 bits.
fn alike(n: usize, from: u64) -> Vec<Name> {
    let hasher = settings(ValueMode::Port).hasher();
    let bytes = |i: u64| (0x0200_0000_0000 + i).to_be_bytes();
    let is_alike = |i: &u64| hasher.digest(&bytes(*i)[2..]).0 >> 52 == 0b1010_1101_1100;
    (from..).filter(is_alike).take(n).map(|i| mac(i as usize)).collect()
}

/// The bytes of all FIBs.
fn fib_bytes(network: &Network, nodes: &[NodeId]) -> usize {
    network.derive(nodes).unwrap().iter().map(|(_, fib)| fib.image().len()).sum()
}

#[test]
fn one_tenants_chosen_names_leave_room_for_those_of_others() {
    for design in [&CONCISE, &LINE] {
        let settings = Settings { gateway: design, core: design, max_names: 200_000, ..settings(ValueMode::Port) };
        let (mut lab, nodes) = Lab::ring(settings, 2);
        let of = |tenant| Attachment { tenant, ..Attachment::new(nodes[0], PortId(100)) };
        let names: Vec<_> = (0..20_000).map(|i| (mac(i), of(1))).collect();
        lab.change(|net| net.put_names(&names));
        let before = fib_bytes(&lab.network, &nodes) as f64 / 20_000.0;

        let chosen = alike(24_000, 1 << 24);
        let mut n_chosen = 0;
        let mut refused = None;
        // In batches first: a batch that does not fit is refused whole, and sends nothing to anyone.
        for batch in chosen[..14_000].chunks(3500) {
            let names: Vec<_> = batch.iter().map(|name| (name.clone(), of(2))).collect();
            lab.change(|net| net.put_names(&names));
            n_chosen += names.len();
        }
        let rest: Vec<_> = chosen[14_000..].iter().map(|name| (name.clone(), of(2))).collect();
        let n_messages = lab.messages;
        let whole = lab.network.put_names(&rest);
        assert!(matches!(whole, Err(NetworkError::TenantCrowds { tenant: 2, .. })), "{whole:?}");
        for (name, attachment) in rest {
            match lab.network.set_name(&name, attachment) {
                Ok(effects) => lab.commit(effects),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
            n_chosen += 1;
        }
        let Some(NetworkError::TenantCrowds { tenant: 2, part, n_names, most }) = refused else {
            panic!("{design:?}: {n_chosen} chosen names, {refused:?}")
        };
        assert!(n_names == n_chosen + 1 && n_names > most && part.depth > 0, "{refused:?}");
        assert!(lab.messages - n_messages < 10 * nodes.len() * n_chosen);

        // A stranger's names that fall into the same part.
        let innocent = alike(1000, 1 << 32);
        let table = lab.network.header(nodes[0]).table;
        for name in &innocent {
            let effects = lab.network.set_name(name, of(3)).unwrap();
            let is_change =
                |message: &Message| matches!(message.body, Body::Local(_) | Body::Updates { .. } | Body::Valid(_));
            assert!(effects.messages().all(|(_, message)| is_change(message)), "nobody is sent a whole table");
            lab.commit(effects);
        }
        assert_eq!(lab.network.header(nodes[0]).table, table, "no other table, and no other key");
        let n_all = 20_000 + n_chosen + innocent.len();
        let after = fib_bytes(&lab.network, &nodes) as f64 / n_all as f64;
        assert!(after < 1.5 * before, "{before} bytes a name before, {after} after");
        for (i, name) in innocent.iter().chain(&chosen[..n_chosen]).enumerate() {
            let at = lab.replicas[&nodes[i % 2]].action(name);
            assert_eq!(at, lab.network.action(nodes[i % 2], name), "{name}");
        }
        // Whoever removes some may add as many.
        lab.change(|net| net.remove_names(&chosen[..5000]));
        let again: Vec<_> = chosen[..2000].iter().map(|name| (name.clone(), of(2))).collect();
        lab.change(|net| net.put_names(&again));
    }
}

#[test]
fn tenants_together_leave_room_as_well() {
    let (mut lab, nodes) = Lab::ring(Settings { max_names: 200_000, ..settings(ValueMode::Port) }, 2);
    let chosen = alike(26_000, 1 << 24);
    let mut n_refused = 0;
    for (i, batch) in chosen.chunks(100).enumerate() {
        let of = Attachment { tenant: i as u32 % 9, ..Attachment::new(nodes[0], PortId(100)) };
        let names: Vec<_> = batch.iter().map(|name| (name.clone(), of)).collect();
        match lab.network.put_names(&names) {
            Ok(effects) => lab.commit(effects),
            Err(NetworkError::TenantCrowds { tenant, .. }) => {
                assert_eq!(tenant, of.tenant);
                n_refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(n_refused > 0, "nine tenants fill the part");
    for name in alike(500, 1 << 32) {
        lab.change(|net| net.set_name(&name, Attachment { tenant: 9, ..Attachment::new(nodes[0], PortId(100)) }));
    }
}

#[test]
fn names_that_nobody_chose_crowd_nothing() {
    let seed = lookup::testkit::seed();
    for design in [&CONCISE, &LINE] {
        let key = SecretKey::from_seed(seed);
        let settings = Settings { gateway: design, core: design, max_names: 200_000, ..Settings::new(7, key) };
        let (mut lab, nodes) = Lab::ring(settings, 2);
        // One tenant, in batches of all sizes and one by one.
        let (mut at, mut size) = (0, 1);
        while at < 100_000 {
            let names: Vec<_> = (at..at + size).map(|i| (mac(i), Attachment::new(nodes[0], PortId(100)))).collect();
            lab.change(|net| net.put_names(&names));
            (at, size) = (at + size, 1 + size * 3 % 40_001);
        }
    }
}
