//! Many switches and links at once against one after another.

use super::*;
use std::collections::BTreeSet;

fn rows(network: &Network) -> BTreeSet<RowChange> {
    network.rows().collect()
}

#[test]
fn many_switches_and_links_at_once_are_those_one_by_one() {
    for mode in [ValueMode::Port, ValueMode::Egress] {
        let mut lab = Lab::new(settings(mode));
        let (ids, effects) = lab.network.add_switches(&["a", "b", "c", "d"]).unwrap();
        lab.commit(effects);
        let wanted = |i: usize| Wanted { cost: 1 + i as u32 % 2, weight: 1 + i as u8, up: i != 2 };
        let links: Vec<_> = (0..4).map(|i| (end(ids[i], 1), end(ids[(i + 1) % 4], 2), wanted(i))).collect();
        lab.change(|net| net.add_links(&links));
        assert!(rows(&lab.network) == lab.stored().into_iter().collect(), "the store has what the network has");

        let mut one_by_one = Lab::new(settings(mode));
        for (i, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
            assert_eq!(one_by_one.network.add_switch(name, Tenants::All).unwrap().0, ids[i]);
        }
        for (one, other, Wanted { cost, weight, up }) in links {
            let add = if up { Network::add_link } else { Network::add_link_down };
            add(&mut one_by_one.network, one, other, cost).unwrap();
            one_by_one.network.set_link_weight(other, weight).unwrap();
        }
        let (many, one_by_one) = (&lab.network, &one_by_one.network);
        assert_eq!(many.topology(), one_by_one.topology());
        assert_eq!(many.routes(), one_by_one.routes());
        for id in ids {
            assert_eq!(many.action_table(id), one_by_one.action_table(id));
        }
    }
}

#[test]
fn one_refused_of_many_leaves_the_network_as_it_was() {
    for mode in [ValueMode::Port, ValueMode::Egress] {
        let mut lab = Lab::new(Settings { value_bits: 2, ..settings(mode) });
        let (ids, effects) = lab.network.add_switches(&["a", "b"]).unwrap();
        lab.commit(effects);
        let before = rows(&lab.network);
        assert!(lab.network.add_switches(&["c", "a"]).is_err());
        assert!(lab.network.add_switches(&["c", "c"]).is_err());
        assert_eq!(lab.network.add_switches(&["c", "d", "e"]).is_err(), mode == ValueMode::Egress);
        if mode == ValueMode::Port {
            continue;
        }
        let link = |port| (end(ids[0], port), end(ids[1], port), Wanted::default());
        assert!(lab.network.add_links(&[link(1), link(1)]).is_err());
        assert!(lab.network.add_links(&[link(1), (end(ids[0], 2), end(ids[0], 3), Wanted::default())]).is_err());
        for weight in [0, 65] {
            let (one, other, wanted) = link(2);
            assert!(lab.network.add_links(&[link(1), (one, other, Wanted { weight, ..wanted })]).is_err());
            assert!(lab.network.add_link_as(one, other, Wanted { weight, ..wanted }).is_err());
        }
        assert!(rows(&lab.network) == before, "a refused batch left something");
    }
    let mut lab = Lab::new(Settings { value_bits: 2, ..settings(ValueMode::Port) });
    let (ids, effects) = lab.network.add_switches(&["a", "b"]).unwrap();
    lab.commit(effects);
    let before = rows(&lab.network);
    let links: Vec<_> = (1..=4).map(|port| (end(ids[0], port), end(ids[1], port), Wanted::default())).collect();
    assert!(matches!(lab.network.add_links(&links), Err(NetworkError::TooManyActions { max: 3, .. })));
    assert!(rows(&lab.network) == before, "indices of ports stay free");
    lab.change(|net| net.add_links(&links[..3]));
}
