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
        let wanted = |i: usize| Wanted { cost: 1 + i as u32 % 2, weight: 1 + i as u8, up: i != 2, found: i == 3 };
        let links: Vec<_> = (0..4).map(|i| (end(ids[i], 1), end(ids[(i + 1) % 4], 2), wanted(i))).collect();
        lab.change(|net| net.add_links(&links));
        assert!(rows(&lab.network) == lab.stored().into_iter().collect(), "the store has what the network has");

        let mut one_by_one = Lab::new(settings(mode));
        for (i, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
            assert_eq!(one_by_one.network.add_switch(name, Tenants::All).unwrap().0, ids[i]);
        }
        for (one, other, Wanted { cost, weight, up, found }) in links {
            let add = if up { Network::add_link } else { Network::add_link_down };
            add(&mut one_by_one.network, one, other, cost).unwrap();
            one_by_one.network.set_link_weight(other, weight).unwrap();
            one_by_one.network.set_link_found(one, found).unwrap();
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

#[test]
fn a_found_link_that_is_cut_gives_way_to_one_that_is_found_at_its_port() {
    for mode in [ValueMode::Port, ValueMode::Egress] {
        let mut lab = Lab::new(Settings { value_bits: 3, ..settings(mode) });
        let (ids, effects) = lab.network.add_switches(&["a", "b", "c"]).unwrap();
        lab.commit(effects);
        let found = Wanted { found: true, ..Wanted::default() };
        let [a, b, c] = [ids[0], ids[1], ids[2]].map(|id| move |port| end(id, port));
        let cabled = [(a(1), b(1), found), (a(2), c(2), Wanted::default()), (b(3), c(3), found)];
        lab.change(|net| net.add_links(&cabled));
        let moved = |wanted| [(a(1), c(1), wanted)];
        let ends = |lab: &Lab| lab.network.topology().links().map(|link| (link.a, link.b)).collect::<Vec<_>>();
        let before = ends(&lab);
        let is_refused = |lab: &mut Lab, links: &[(End, End, Wanted)]| {
            let rows_before = rows(&lab.network);
            assert!(lab.network.add_links(links).is_err());
            assert!(rows(&lab.network) == rows_before, "a refused batch left something");
        };
        is_refused(&mut lab, &moved(found));
        lab.change(|net| net.set_cut(&[(a(1), true), (a(2), true)]));
        // An operator's link stays, and so does one that was found where an operator adds another.
        is_refused(&mut lab, &moved(Wanted::default()));
        is_refused(&mut lab, &[(a(2), b(2), found)]);
        // What was dropped for a batch is there again if the batch is refused.
        is_refused(&mut lab, &[(a(1), c(1), found), (a(4), a(5), found)]);
        assert_eq!(ends(&lab), before);
        // Nor does one go that an operator has taken out of use.
        lab.change(|net| net.set_link_up(a(1), false));
        is_refused(&mut lab, &moved(found));
        lab.change(|net| net.set_link_up(a(1), true));
        lab.change(|net| net.add_links(&moved(found)));
        assert_eq!(ends(&lab), [(a(1), c(1)), before[1], before[2]]);
        assert!(rows(&lab.network) == lab.stored().into_iter().collect(), "the store has what the network has");
        // Two cables are swapped: both links go for the first that is seen.
        lab.change(|net| net.set_cut(&[(a(1), true), (b(3), true)]));
        lab.change(|net| net.add_links(&[(a(1), b(3), found)]));
        assert_eq!(ends(&lab), [(a(1), b(3)), before[1]]);
        let is_found = |lab: &Lab| lab.network.topology().links().map(|link| link.found).collect::<Vec<_>>();
        assert_eq!(is_found(&lab), [true, false]);
        let designs = [lab.network.settings().gateway, lab.network.settings().core];
        lab.restart(designs);
        assert_eq!(is_found(&lab), [true, false], "a restart keeps the mark");
        lab.change(|net| net.set_link_found(b(3), false));
        assert_eq!(is_found(&lab), [false; 2]);
        assert!(rows(&lab.network) == lab.stored().into_iter().collect(), "the store has what the network has");
    }
}
