//! Paths, ways and alternates of small networks, and what frames do by them.

use super::super::tests::{end, net};
use super::rounds::{Demand, Flags, Round, Value, go_round, links_of};
use super::*;
use proptest::prelude::*;

#[test]
fn shortest_path_wins_and_a_cut_reroutes() {
    let mut topology = net(3, &[], &[(0, 1, 1), (1, 2, 1), (0, 2, 3)]);
    let next = |t: &Topology| t.routes().next_hop(NodeId(0), NodeId(2));
    assert_eq!(next(&topology), Some(PortId(0)));
    assert_eq!(topology.routes().hops(NodeId(0), NodeId(2)), Some(2));
    topology.set_up(end(2, 1), false).unwrap();
    assert_eq!(next(&topology), Some(PortId(2)));
    topology.set_up(end(0, 2), false).unwrap();
    assert_eq!(next(&topology), None);
    assert_eq!(topology.routes().hops(NodeId(0), NodeId(2)), None);
    topology.set_up(end(1, 1), true).unwrap();
    assert_eq!(next(&topology), Some(PortId(0)));
    topology.set_cost(end(0, 0), 9).unwrap();
    topology.set_up(end(0, 2), true).unwrap();
    assert_eq!(next(&topology), Some(PortId(2)));
}

#[test]
fn restricted_switch_carries_no_transit() {
    let routes = net(4, &[1], &[(0, 1, 1), (1, 2, 1), (0, 3, 5), (3, 2, 5)]).routes();
    assert_eq!(routes.next_hop(NodeId(0), NodeId(2)), Some(PortId(2)));
    assert_eq!(routes.next_hop(NodeId(0), NodeId(1)), Some(PortId(0)));
    assert_eq!(routes.next_hop(NodeId(1), NodeId(2)), Some(PortId(1)));
}

/// In a ring of five: two hops away the other way round is loop-free, one hop away the neighbour sends back and turns.
#[test]
fn alternates_exist_where_no_neighbour_sends_back_or_one_turns() {
    let ring: Vec<_> = (0..5).map(|i| (i, (i + 1) % 5, 1)).collect();
    let routes = net(5, &[], &ring).routes();
    let hop = |to| routes.hop(NodeId(0), NodeId(to)).unwrap();
    let hop_of =
        |port, alternate: Option<u16>| Hop { port: PortId(port), ways: None, alternate: alternate.map(PortId) };
    assert_eq!((hop(1), hop(4)), (hop_of(0, Some(4)), hop_of(4, Some(0))));
    assert_eq!((hop(2), hop(3)), (hop_of(0, Some(4)), hop_of(4, Some(0))));
    // Not all that leaves by port 0 may leave by port 4.
    assert_eq!(routes.hop_by(NodeId(0), PortId(0)).alternate, None);

    // A second link to the same neighbour serves, and a third switch serves better: the neighbour may be gone.
    let routes = net(3, &[], &[(0, 1, 1), (0, 1, 1), (0, 2, 1), (2, 1, 1)]).routes();
    let hop = routes.hop(NodeId(0), NodeId(1)).unwrap();
    assert!(hop.port <= PortId(1) && hop.alternate == Some(PortId(2)), "{hop:?}");
    assert_eq!(hop.ways, Ways::new([PortId(0), PortId(1)]));
    assert_eq!(routes.hop_by(NodeId(0), hop.port), Hop { ways: None, ..hop });
    let routes = net(3, &[2], &[(0, 1, 1), (0, 1, 1), (0, 2, 1), (2, 1, 1)]).routes();
    let hop = routes.hop(NodeId(0), NodeId(1)).unwrap();
    assert_eq!((hop.ways, hop.alternate), (Ways::new([PortId(0), PortId(1)]), None), "no frames of others through it");
}

/// One shortest path is direct, the other has three hops: a move reaches those on it before the switch where they part.
#[test]
fn the_longest_of_several_paths_has_fewer_hops_from_each_next_switch() {
    let routes = net(4, &[], &[(0, 3, 3), (0, 1, 1), (1, 2, 1), (2, 3, 1)]).routes();
    let most = |from| routes.most_hops(NodeId(from), NodeId(3));
    assert!(routes.hop(NodeId(0), NodeId(3)).unwrap().ways.is_some());
    assert_eq!([0, 1, 2, 3].map(most), [Some(3), Some(2), Some(1), Some(0)]);
    assert_eq!(net(2, &[], &[]).routes().most_hops(NodeId(0), NodeId(1)), None);
}

#[test]
fn ports_beyond_the_first_64_are_no_ways_and_have_alternates() {
    let links: Vec<_> = (0..70).map(|_| (0, 1, 1)).collect();
    let routes = net(2, &[], &links).routes();
    for (from, to) in [(0, 1), (1, 0)] {
        let hop = routes.hop(NodeId(from), NodeId(to)).unwrap();
        match hop.ways {
            Some(ways) => assert!(ways.contains(&hop.port) && ways.iter().all(|port| port.0 < 64), "{hop:?}"),
            None => assert!(hop.port.0 >= 64, "{hop:?}"),
        }
        assert!(hop.alternate.is_some_and(|port| hop.ways.is_none_or(|ways| !ways.contains(&port))), "{hop:?}");
        assert!(routes.hop_by(NodeId(from), hop.port).alternate.is_some(), "for all that leaves there");
    }
    // Two links, of which the hash may take the one beyond: then the other is its alternate.
    for n in 1..40 {
        let mut links: Vec<_> = (0..64).map(|_| (0, 2, 9)).collect();
        links[usize::from(n)] = (0, 1, 1);
        links.push((0, 1, 1));
        let hop = net(3, &[], &links).routes().hop(NodeId(0), NodeId(1)).unwrap();
        let expected = if hop.port == PortId(64) { PortId(n) } else { PortId(64) };
        assert_eq!((hop.ways, hop.alternate), (None, Some(expected)));
    }
}

#[test]
fn all_shortest_paths_are_ways_and_the_alternate_is_none_of_them() {
    // Two leaves, ten spines; one more path is longer.
    let spines = (2..12).flat_map(|spine| [(0, spine, 1), (1, spine, 1)]);
    let routes = net(13, &[], &spines.chain([(0, 12, 2), (12, 1, 2)]).collect::<Vec<_>>()).routes();
    let hop = routes.hop(NodeId(0), NodeId(1)).unwrap();
    let ways = hop.ways.unwrap();
    assert_eq!(ways.len(), MAX_WAYS);
    assert!(ways.contains(&hop.port) && hop.alternate.is_some_and(|port| !ways.contains(&port)), "{hop:?}");
    assert_eq!(routes.hop(NodeId(2), NodeId(1)).unwrap().ways, None);

    let square = |cost| net(4, &[], &[(0, 1, 1), (1, 3, 1), (0, 2, 1), (2, 3, cost)]).routes();
    let hop = |routes: &Routes| routes.hop(NodeId(0), NodeId(3)).unwrap();
    assert_eq!(hop(&square(1)).ways, Ways::new([PortId(0), PortId(2)]));
    assert_eq!(hop(&square(2)), Hop { port: PortId(0), ways: None, alternate: Some(PortId(2)) });
    assert!(!square(1).same_paths(&square(2)) && square(1).same_paths(&square(1)));
    // Both ways lead by one neighbour that may be gone, and a third path by another.
    let routes = net(3, &[], &[(0, 1, 2), (0, 1, 2), (0, 1, 3), (0, 2, 2), (2, 1, 1)]).routes();
    let hop = routes.hop(NodeId(0), NodeId(1)).unwrap();
    assert_eq!((hop.ways, hop.alternate), (Ways::new([PortId(0), PortId(1)]), Some(PortId(3))));
    let by_two = |routes: &Routes| routes.leads(end(0, 2), Some(NodeId(2)));
    assert!(by_two(&square(1)) && !by_two(&square(2)));
}

#[test]
fn weights_divide_flows_among_ways_and_choose_none() {
    let mut topology = net(4, &[], &[(0, 1, 1), (1, 3, 1), (0, 2, 1), (2, 3, 1), (0, 3, 3), (0, 1, 1)]);
    let before = topology.routes();
    topology.set_weight(end(1, 0), 12).unwrap();
    topology.set_weight(end(2, 2), 4).unwrap();
    topology.set_weight(end(0, 5), 8).unwrap();
    // Beyond the neighbour, and of a longer path: both say nothing.
    topology.set_weight(end(1, 1), 60).unwrap();
    topology.set_weight(end(0, 4), 64).unwrap();
    let routes = topology.routes();
    let hop = |routes: &Routes, from, to| routes.hop(NodeId(from), NodeId(to)).unwrap();
    let ways = Ways::weighed([(PortId(0), 3), (PortId(2), 1), (PortId(5), 2)]);
    assert_eq!(hop(&routes, 0, 3).ways, ways);
    // In both directions.
    assert_eq!(hop(&routes, 1, 0).ways, Ways::weighed([(PortId(0), 3), (PortId(5), 2)]));
    for (from, to) in (0..4).flat_map(|from| (0..4).map(move |to| (NodeId(from), NodeId(to)))) {
        let evened = |hop: Hop| Hop { ways: hop.ways.map(Ways::evened), ..hop };
        assert_eq!(routes.hop(from, to).map(evened), before.hop(from, to), "{from} to {to}");
    }
    assert!(!routes.same_paths(&before) && !routes.differs_from(&before));
}

/// Spines 0 to 3, leaves 4 to 7: each spine goes round a cut by a leaf, which goes on by another spine.
#[test]
fn a_spine_without_its_link_to_a_leaf_turns_at_another_leaf() {
    let links = (0..4).flat_map(|spine| (4..8).map(move |leaf| (spine, leaf, 1)));
    let topology = net(8, &[], &links.collect::<Vec<_>>());
    let routes = topology.routes();
    for (spine, leaf) in (0..4).flat_map(|spine| (4..8).map(move |leaf| (NodeId(spine), NodeId(leaf)))) {
        let hop = routes.hop(spine, leaf).unwrap();
        let at = |port| topology.links_of(spine).find(|(near, ..)| near.port == port).unwrap().1.node;
        assert!(hop.ways.is_none() && at(hop.port) == leaf, "{hop:?}");
        let other = at(hop.alternate.unwrap());
        assert!(other != leaf && routes.hop(other, leaf).unwrap().ways.is_some_and(|ways| ways.len() == 4));
        assert_eq!(routes.hop_by(spine, hop.port).alternate, None, "not for all that leaves there");
    }
    assert_eq!(go_round(&topology, &routes), Ok(()));
    // With one spine there is no other way.
    let star = net(5, &[], &(1..5).map(|leaf| (0, leaf, 1)).collect::<Vec<_>>());
    assert_eq!(star.routes().hop(NodeId(0), NodeId(1)).unwrap().alternate, None);
}

/// With all links of a leaf down each spine turns frames to it at another leaf, which sends them to another spine.
#[test]
fn frames_to_a_leaf_that_died_come_to_an_end() {
    for n_spines in 2..5 {
        let n = n_spines + 5;
        let links = (0..n_spines).flat_map(|spine| (n_spines..n).map(move |leaf| (spine, leaf, 1)));
        let topology = net(n, &[], &links.collect::<Vec<_>>());
        let routes = topology.routes();
        let round = |cut: &[End], has_flags| {
            let (cut, value, demand) = (cut.to_vec(), Value::Switch, Demand::End);
            Round { topology: &topology, routes: &routes, cut, value, demand, has_flags }.go()
        };
        let mut n_loops = 0;
        for leaf in (n_spines..n).map(NodeId) {
            let cut = links_of(&topology, leaf);
            assert_eq!(round(&cut, true), Ok(()));
            n_loops += usize::from(round(&cut, false).is_err_and(|why| why.contains("loops")));
        }
        // Where all spines turn at one leaf, it drops them.
        assert!(n_loops > 1, "without flags they go round: {n_loops}");
        let ends: Vec<[End; 2]> = topology.links().map(|link| [link.a, link.b]).collect();
        for (i, cut) in ends.iter().enumerate() {
            ends[..i].iter().for_each(|other| assert_eq!(round(&[*cut, *other].concat(), true), Ok(())));
        }
    }
}

/// How many of the ordered pairs that each cut leaves joined lose frames until there are new tables.
fn unhealed(topology: &Topology) -> (usize, usize) {
    let routes = topology.routes();
    let (mut n_lost, mut n) = (0, 0);
    for link in topology.links() {
        let mut after = topology.clone();
        after.set_cut(link.a, true).unwrap();
        let after = after.routes();
        let nodes = || topology.nodes().map(|(node, _)| node);
        for (from, to) in nodes().flat_map(|from| nodes().map(move |to| (from, to))) {
            if after.hop(from, to).is_none() {
                continue;
            }
            let cut = vec![link.a, link.b];
            let round =
                Round { topology, routes: &routes, cut, value: Value::Switch, demand: Demand::All, has_flags: true };
            n += 1;
            n_lost += usize::from(round.follow((from, to), None, Flags::default(), 0).is_err());
        }
    }
    (n_lost, n)
}

/// A ring, with some of its links twice.
fn ring(n: u32, n_doubled: u32) -> Topology {
    let pairs = (0..n).chain(0..n_doubled).map(|i| (i, (i + 1) % n, 1));
    net(n, &[], &pairs.collect::<Vec<_>>())
}

fn grid(width: u32, height: u32) -> Topology {
    let right = (0..width * height).filter(|at| at % width + 1 < width).map(|at| (at, at + 1, 1));
    let down = (0..width * (height - 1)).map(|at| (at, at + width, 1));
    net(width * height, &[], &right.chain(down).collect::<Vec<_>>())
}

#[test]
fn any_cut_of_a_ring_a_grid_or_a_fabric_is_gone_round_by_all_that_it_leaves_joined() {
    for n in 3..10 {
        for n_doubled in [0, 1, n / 2, n] {
            assert_eq!(unhealed(&ring(n, n_doubled)).0, 0, "ring of {n}, {n_doubled} of its links twice");
        }
    }
    for (width, height) in [(2, 4), (3, 3), (4, 3)] {
        assert_eq!(unhealed(&grid(width, height)).0, 0, "grid of {width} by {height}");
    }
    for (n_spines, n_leaves) in [(2, 4), (3, 5)] {
        let links = (0..n_spines).flat_map(|a| (0..n_leaves).map(move |b| (a, n_spines + b, 1)));
        assert_eq!(unhealed(&net(n_spines + n_leaves, &[], &links.collect::<Vec<_>>())).0, 0);
    }
    let (mut n_lost, mut n_all) = (0, 0);
    let mut rng = lookup::testkit::Rng::new(7);
    for _ in 0..50 {
        let n = 4 + rng.below(9) as u32;
        let mut link = || (rng.below(n.into()) as u32, rng.below(n.into()) as u32, 1 + rng.below(20) as u32);
        let links: Vec<_> = (0..2 * n).map(|_| link()).filter(|(a, b, _)| a != b).collect();
        let (lost, of) = unhealed(&net(n, &[], &links));
        (n_lost, n_all) = (n_lost + lost, n_all + of);
    }
    println!("random networks: {n_lost} of {n_all} pairs lose frames");
    assert!(n_lost * 200 < n_all, "{n_lost} of {n_all}");
}

/// Both links between two switches are cut, and each pair of others: what takes an alternate arrives where one is left, and ends.
#[test]
fn with_both_of_two_parallel_links_cut_another_neighbour_is_the_alternate() {
    for n in 3..8 {
        for n_doubled in [1, n] {
            let topology = ring(n, n_doubled);
            let routes = topology.routes();
            for (from, to) in [(0, 1), (1, 0)].map(|(from, to)| (NodeId(from), NodeId(to))) {
                let hop = routes.hop(from, to).unwrap();
                assert_eq!(hop.ways.map(|ways| ways.len()), Some(2));
                let far = topology.links_of(from).find(|(near, ..)| Some(near.port) == hop.alternate).unwrap().1.node;
                assert_ne!(far, to, "ring of {n}: the alternate leads elsewhere");
            }
            let both: Vec<End> = topology
                .links_of(NodeId(0))
                .filter(|(_, far, _)| far.node == NodeId(1))
                .flat_map(|(a, b, _)| [a, b])
                .collect();
            let round = |cut: Vec<End>, demand| {
                Round { topology: &topology, routes: &routes, cut, value: Value::Switch, demand, has_flags: true }.go()
            };
            assert_eq!(round(both, Demand::All), Ok(()), "ring of {n}, {n_doubled} of its links twice");
            let ends: Vec<[End; 2]> = topology.links().map(|link| [link.a, link.b]).collect();
            for (i, cut) in ends.iter().enumerate() {
                ends[..i].iter().for_each(|other| assert_eq!(round([*cut, *other].concat(), Demand::End), Ok(())));
            }
        }
    }
}

#[test]
fn conditions_that_are_not_enough_are_found() {
    let mutants: [(&str, Condition); 4] = [
        ("a path back of the same length", |near, back, here| near <= here + back),
        ("any neighbour", |_, _, _| true),
        ("the way back forgotten, and the longest taken", |near, _, here| near > here),
        ("twice the way back", |near, back, here| near < here + 2 * back),
    ];
    let turn_mutants = [Rule::NotByWaysThroughHere, Rule::NotByAlternateThroughHere];
    let mut rng = lookup::testkit::Rng::new(7);
    let (mut found, mut turns_found) = ([false; 4], [false; 2]);
    for _ in 0..400 {
        let n = 3 + rng.below(5) as u32;
        let mut link = || (rng.below(n.into()) as u32, rng.below(n.into()) as u32, 1 + rng.below(3) as u32);
        let links: Vec<_> = (0..2 * n).map(|_| link()).filter(|(a, b, _)| a != b).collect();
        let topology = net(n, &[], &links);
        assert_eq!(go_round(&topology, &topology.routes()), Ok(()));
        for ((_, mutant), found) in mutants.iter().zip(&mut found) {
            *found |= go_round(&topology, &topology.routes_by(*mutant, None)).is_err();
        }
        for (rule, found) in turn_mutants.iter().zip(&mut turns_found) {
            *found |= go_round(&topology, &topology.routes_by(is_loop_free, Some(*rule))).is_err();
        }
    }
    assert_eq!(found, [true; 4], "{:?}", mutants.map(|(name, _)| name));
    assert_eq!(turns_found, [true; 2], "{turn_mutants:?}");
}

proptest! {
    /// Distances against Floyd-Warshall; following next hops arrives, in as many hops as promised.
    #[test]
    fn next_hops_lead_to_the_destination_on_a_shortest_path(
        n in 2u32..8,
        restricted in proptest::collection::vec(0u32..8, 0..2),
        links in proptest::collection::vec((0u32..8, 0u32..8, 1u32..4, any::<bool>()), 0..16),
        same in proptest::option::of(1u32..4),
    ) {
        let link = |(a, b, cost, up)| (a % n, b % n, same.unwrap_or(cost), up);
        let links: Vec<(u32, u32, u32, bool)> = links.into_iter().map(link).filter(|l| l.0 != l.1).collect();
        let plain: Vec<_> = links.iter().map(|l| (l.0, l.1, l.2)).collect();
        let mut topology = net(n, &restricted, &plain);
        for (i, link) in links.iter().enumerate() {
            topology.set_up(end(link.0, i as u16), link.3).unwrap();
        }
        let n = n as usize;
        let transit = |i: usize| !restricted.contains(&(i as u32));
        let mut dist = vec![vec![u64::MAX / 4; n]; n];
        for (i, row) in dist.iter_mut().enumerate() {
            row[i] = 0;
        }
        for (a, b, cost, up) in &links {
            let (a, b) = (*a as usize, *b as usize);
            if *up {
                dist[a][b] = dist[a][b].min(u64::from(*cost));
                dist[b][a] = dist[b][a].min(u64::from(*cost));
            }
        }
        for k in (0..n).filter(|k| transit(*k)) {
            for i in 0..n {
                for j in 0..n {
                    dist[i][j] = dist[i][j].min(dist[i][k] + dist[k][j]);
                }
            }
        }
        let routes = topology.routes();
        for (from, row) in dist.iter().enumerate() {
            for (to, expected) in row.iter().enumerate() {
                let (mut at, goal) = (NodeId(from as u32), NodeId(to as u32));
                let (mut length, mut hops) = (0, 0);
                while at != goal {
                    let Some(port) = routes.next_hop(at, goal) else { break };
                    let (_, far, link) = topology.links_of(at).find(|(near, _, _)| near.port == port).unwrap();
                    prop_assert!(link.up);
                    length += u64::from(link.cost);
                    hops += 1;
                    at = far.node;
                    prop_assert!(at == goal || transit(at.0 as usize));
                    prop_assert!(hops <= n as u32, "a loop");
                }
                if *expected < u64::MAX / 4 {
                    prop_assert_eq!((at, length), (goal, *expected));
                    prop_assert_eq!(routes.hops(NodeId(from as u32), goal), Some(hops));
                } else {
                    prop_assert_eq!(routes.next_hop(NodeId(from as u32), goal), None);
                }
            }
            let (from, all) = (NodeId(from as u32), (0..=n as u32).map(NodeId));
            let prepared: Vec<_> = routes.hops_to(from, &routes.prepared(all.clone())).collect();
            prop_assert_eq!(prepared, all.map(|to| routes.hop(from, to)).collect::<Vec<_>>());
        }
        prop_assert_eq!(go_round(&topology, &routes), Ok(()));
    }

    #[test]
    fn order_of_arrival_does_not_choose_the_path(
        mut links in proptest::collection::vec((0u32..6, 0u32..6, 1u32..3), 1..14),
        seed in any::<u64>(),
    ) {
        links.retain(|l| l.0 != l.1);
        let mut order: Vec<usize> = (0..links.len()).collect();
        order.sort_by_key(|i| (*i as u64 + 1).wrapping_mul(seed | 1));
        let mut shuffled = net(6, &[], &[]);
        for i in order {
            let (a, b, cost) = links[i];
            shuffled.add_link(end(b, i as u16), end(a, i as u16), cost).unwrap();
        }
        prop_assert_eq!(shuffled.routes(), net(6, &[], &links).routes());
    }
}
