//! Links fail, alone and in pairs, the second in any state of convergence of the first: no frame arrives at another host than its
//! own, and when all has run out every frame for which there is a path takes a shortest one.

use fib::messages::ValueMode;
use fibula_sim::failures::{Alone, How, Mutant, Outcome, Scenario, Stage, Violation, run, run_alone};
use fibula_sim::network::{Edge, Graph};
use lookup::hash::Rng;
use lookup::testkit;

fn is_deep() -> bool {
    std::env::var_os("FIBULA_DEEP").is_some()
}

const MODES: [ValueMode; 2] = [ValueMode::Egress, ValueMode::Port];

/// A graph, and the nodes without hosts.
type Net = (Graph, Vec<usize>);

fn ring(n: usize) -> Net {
    (Graph::generate(&format!("ring:{n}"), 0).unwrap(), Vec::new())
}

/// A ring in which the first links join the same switches twice.
fn doubled_ring(n: usize, n_doubled: usize) -> Net {
    let (mut graph, core) = ring(n);
    graph.edges.extend_from_within(..n_doubled);
    (Graph { name: format!("ring:{n}, {n_doubled} doubled"), ..graph }, core)
}

fn grid(width: usize, height: usize) -> Net {
    let right = (0..width * height).filter(|at| at % width + 1 < width).map(|at| (at, at + 1));
    let down = (0..width * (height - 1)).map(|at| (at, at + width));
    let edges = right.chain(down).map(|(a, b)| Edge { a, b, cost: 1 }).collect();
    let nodes = (0..width * height).map(|i| format!("s{i}")).collect();
    (Graph { name: format!("grid {width}x{height}"), nodes, edges }, Vec::new())
}

/// Eleven nodes and fourteen links, as the research network of that name had them. Links cost the same.
fn abilene() -> Net {
    let pairs = [
        (0, 1),
        (0, 2),
        (1, 2),
        (1, 3),
        (2, 5),
        (3, 4),
        (4, 5),
        (4, 7),
        (5, 8),
        (6, 7),
        (6, 10),
        (7, 8),
        (8, 9),
        (9, 10),
    ];
    let edges = pairs.map(|(a, b)| Edge { a, b, cost: 1 }).to_vec();
    (Graph { name: "abilene".to_owned(), nodes: (0..11).map(|i| format!("s{i}")).collect(), edges }, Vec::new())
}

/// Every leaf is joined to every spine; spines have no hosts.
fn fabric(n_spines: usize, n_leaves: usize) -> Net {
    let edges =
        (0..n_leaves).flat_map(|leaf| (0..n_spines).map(move |a| Edge { a, b: n_spines + leaf, cost: 1 })).collect();
    let nodes = (0..n_spines + n_leaves).map(|i| format!("s{i}")).collect();
    (Graph { name: format!("fabric {n_spines}x{n_leaves}"), nodes, edges }, (0..n_spines).collect())
}

/// Some points in a square; links cost as they are long.
fn random(n: usize, seed: u64) -> Net {
    let mut graph = Graph::generate(&format!("random:{n}"), seed).unwrap();
    // Fewer links make more cuts matter: each is left out that leaves all joined, now and then.
    let mut rng = Rng::new(seed);
    for at in (0..graph.edges.len()).rev() {
        let mut less = graph.clone();
        less.edges.remove(at);
        if rng.below(3) == 0 && Graph::parse(&less.to_text()).is_ok() {
            graph = less;
        }
    }
    (graph, Vec::new())
}

fn any_of<T: Copy>(all: &[T], rng: &mut Rng) -> T {
    all[rng.below(all.len() as u64) as usize]
}

/// All ordered pairs of links, and each alone.
fn cuts(graph: &Graph) -> Vec<Vec<usize>> {
    let n = graph.edges.len();
    let pairs = (0..n).flat_map(|a| (0..n).filter(move |b| *b != a).map(move |b| vec![a, b]));
    (0..n).map(|a| vec![a]).chain(pairs).collect()
}

/// Whether an end hears of the first cut if it is there before the switches start.
fn may_be_from_start(cuts: &[(usize, How)]) -> bool {
    matches!(cuts.first(), Some((_, How::OneWay(_))))
}

/// Networks with more links than this have so many pairs that each is run once, in one of the modes.
const MANY_LINKS: usize = 20;

/// Runs some of these, or all of them if that is no fewer.
fn check((graph, core): &Net, most: usize, repaired: bool, seed: u64) -> Outcome {
    let (mut rng, mut all) = (Rng::new(seed), cuts(graph));
    while all.len() > most {
        all.swap_remove(rng.below(all.len() as u64) as usize);
    }
    let (mut sum, mut n_pairs) = (Outcome::default(), 0);
    for (at, links) in all.iter().enumerate() {
        let cuts: Vec<_> = links.iter().map(|link| (*link, any_of(&How::ALL, &mut rng))).collect();
        let from_start = may_be_from_start(&cuts) && rng.below(3) == 0;
        let in_both = is_deep() && graph.edges.len() <= MANY_LINKS;
        let modes = if in_both { &MODES[..] } else { std::slice::from_ref(&MODES[((at as u64 ^ seed) % 2) as usize]) };
        // The second comes in each stage of the first, and in some runs at any time.
        let when = Stage::UNDER_WAY.get(n_pairs % (Stage::UNDER_WAY.len() + 1)).copied();
        n_pairs += usize::from(links.len() > 1);
        let (mode, seed) = (ValueMode::Egress, rng.next_u64());
        let scenario = Scenario { graph, core, mode, cuts, from_start, when, repaired, mutant: None, seed };
        for mode in modes {
            let scenario = Scenario { mode: *mode, ..scenario.clone() };
            let Scenario { cuts, seed, .. } = &scenario;
            let outcome = run(&scenario).unwrap_or_else(|why| {
                panic!(
                    "{}, {mode}, cut {cuts:?}, from the start {from_start}, repaired {repaired}, seed {seed}: {why}\n{}",
                    graph.name,
                    graph.to_text()
                )
            });
            sum.add(&outcome);
        }
    }
    println!("{}: {sum:?}", graph.name);
    sum
}

/// With `FIBULA_DEEP` every single link and every ordered pair; otherwise some.
fn check_all(nets: &[Net], few: usize) -> Outcome {
    let seed = testkit::seed();
    println!("seed {seed}");
    let most = if is_deep() { usize::MAX } else { few };
    let mut sum = Outcome::default();
    for (i, net) in nets.iter().enumerate() {
        for round in 0..if is_deep() && net.0.edges.len() <= MANY_LINKS { 3 } else { 1 } {
            let repaired = (seed as usize).wrapping_add(i + round) % 2 == 1;
            sum.add(&check(net, most, repaired, seed.wrapping_add((8 * i + round) as u64)));
        }
    }
    for stage in Stage::UNDER_WAY {
        assert!(sum.met.contains_key(&stage), "no second cut came in the stage {stage:?} of the first: {sum:?}");
    }
    assert!(sum.lost > 0 && sum.delivered > sum.lost, "something failed, and most arrived all the same: {sum:?}");
    sum
}

#[test]
fn rings_hold_when_any_one_or_two_links_fail() {
    let sum = check_all(&[ring(5), ring(6), ring(9), doubled_ring(4, 1), doubled_ring(4, 4)], 16);
    assert!(sum.looped > 0, "tables of several versions lead in circles: {sum:?}");
}

#[test]
fn abilene_holds_when_any_one_or_two_links_fail() {
    let sum = check_all(&[abilene()], 40);
    assert!(sum.looped > 0, "tables of several versions lead in circles: {sum:?}");
}

#[test]
fn fabrics_hold_when_any_one_or_two_links_fail() {
    check_all(&[fabric(2, 4), fabric(3, 5)], 20);
}

#[test]
fn random_networks_hold_when_any_one_or_two_links_fail() {
    let seed = testkit::seed();
    let sizes: &[usize] = if is_deep() { &[6, 7, 8, 9, 10, 12, 14, 17, 20] } else { &[6, 8, 12, 20] };
    let nets: Vec<Net> = sizes.iter().map(|n| random(*n, seed.wrapping_add(*n as u64))).collect();
    check_all(&nets, 8);
}

/// What arrives when these links are cut and no new tables are made.
fn alone((graph, core): &Net, cuts: Vec<(usize, How)>, mutant: Option<Mutant>, seed: u64) -> Alone {
    let (mode, from_start, when, repaired) = (MODES[(seed % 2) as usize], false, None, false);
    let scenario = Scenario { graph, core, mode, cuts, from_start, when, repaired, mutant, seed };
    run_alone(&scenario)
        .unwrap_or_else(|why| panic!("{}, {mode}, seed {seed}, cut {:?}: {why}", graph.name, scenario.cuts))
}

#[test]
fn without_a_controller_frames_go_round_any_cut_and_never_in_a_circle_round_two() {
    let seed = testkit::seed();
    let mut rng = Rng::new(seed);
    let nets = [
        ring(4),
        ring(5),
        ring(6),
        ring(7),
        doubled_ring(4, 1),
        doubled_ring(5, 5),
        grid(3, 3),
        fabric(2, 4),
        fabric(3, 5),
        abilene(),
    ];
    for net in &nets {
        let n = net.0.edges.len();
        for link in 0..n {
            let Alone { joined, arrived } = alone(net, vec![(link, any_of(&How::ALL, &mut rng))], None, rng.next_u64());
            assert_eq!(arrived, joined, "{}, link {link}", net.0.name);
        }
        let mut sum = Alone::default();
        for (a, b) in (0..n).flat_map(|a| (0..a).map(move |b| (a, b))) {
            // Some of a large number of pairs.
            if !is_deep() && n > 12 && rng.below(3) > 0 {
                continue;
            }
            let cuts = [a, b].map(|link| (link, any_of(&How::ALL, &mut rng))).to_vec();
            let Alone { joined, arrived } = alone(net, cuts, None, rng.next_u64());
            let is_parallel = {
                let ends = |link: usize| (net.0.edges[link].a, net.0.edges[link].b);
                ends(a) == ends(b)
            };
            assert!(!is_parallel || arrived == joined, "{}, parallel links {a} and {b}", net.0.name);
            (sum.joined, sum.arrived) = (sum.joined + joined, sum.arrived + arrived);
        }
        println!("{}: two links cut: {sum:?}", net.0.name);
    }
    let lost = (0..4).any(|link| {
        let Alone { joined, arrived } = alone(&nets[0], vec![(link, How::Pulled)], Some(Mutant::WayOfEntryTaken), seed);
        arrived < joined
    });
    assert!(lost, "a switch that does not turn frames is noticed");
}

/// No end was ever up, and one hears hellos whose sender does not hear it.
#[test]
fn a_link_that_carries_one_way_from_the_start_is_not_used() {
    let seed = testkit::seed();
    for (i, (graph, core)) in [ring(4), ring(5), abilene(), fabric(2, 4)].iter().enumerate() {
        for link in 0..graph.edges.len() {
            for end in 0..2 {
                let (mode, cuts) = (MODES[(link + end + i) % 2], vec![(link, How::OneWay(end))]);
                let (from_start, when, repaired, mutant) = (true, None, link % 2 == 0, None);
                let scenario = Scenario { graph, core, mode, cuts, from_start, when, repaired, mutant, seed };
                let outcome = run(&scenario);
                outcome.unwrap_or_else(|why| panic!("{}, {mode}, link {link} from end {end}: {why}", graph.name));
            }
        }
    }
}

#[test]
fn runs_repeat() {
    let (seed, (graph, core)) = (testkit::seed(), fabric(2, 4));
    let cuts = vec![(0, How::Pulled), (3, How::Silent)];
    let (mode, from_start, when, mutant) = (MODES[0], false, None, None);
    let scenario = Scenario { graph: &graph, core: &core, mode, cuts, from_start, when, repaired: true, mutant, seed };
    let outcome = run(&scenario).unwrap();
    assert_eq!(run(&scenario).as_ref(), Ok(&outcome));
    assert_ne!(run(&Scenario { seed: seed ^ 2, ..scenario }).as_ref(), Ok(&outcome));
}

/// Number of runs in which to look for a mutant.
const MUTANT_RUNS: u64 = 200;

/// Whether a violation is what a mutant must be found by. Others may come of it, too.
fn is_of(mutant: Mutant, violation: &Violation) -> bool {
    match mutant {
        // Two switches that each take the other for the alternate send frames back and forth.
        Mutant::AnyAlternate => matches!(
            violation,
            Violation::DroppedEarly { reason: "input_port" | "hop_limit", .. } | Violation::AlternateNotTaken { .. }
        ),
        Mutant::AlternateWhileUp => matches!(violation, Violation::Detour { .. }),
        Mutant::AlternateNotTaken => matches!(violation, Violation::AlternateNotTaken { .. }),
        Mutant::DownWayTaken => matches!(violation, Violation::DownWayTaken { .. }),
        Mutant::WayOfEntryTaken => matches!(violation, Violation::DroppedEarly { reason: "input_port", .. }),
        Mutant::CirclesNotEnded => matches!(violation, Violation::Endless { .. }),
        Mutant::SentTwice => matches!(violation, Violation::Twice { .. }),
        Mutant::OneWayIsUp => matches!(violation, Violation::NotNoticed { .. }),
        Mutant::UnheardIsUp => matches!(violation, Violation::NotNoticed { .. } | Violation::BlackHole { .. }),
        // Alternates may still lead round both, by a longer path than there is.
        Mutant::SecondCutIgnored => matches!(violation, Violation::BlackHole { .. } | Violation::Detour { .. }),
        Mutant::OldActionsTaken | Mutant::ReportsLost => {
            matches!(violation, Violation::BlackHole { .. })
        }
        Mutant::HostsExchanged => matches!(violation, Violation::Misdelivered { .. }),
    }
}

#[test]
fn every_mutant_is_found_by_what_it_causes_and_nothing_without_one() {
    let nets = [ring(6), abilene(), fabric(2, 4), random(8, 1)];
    let finds = |mutant, i: u64| {
        let mut rng = Rng::new(i);
        let (graph, core) = &nets[(i % 4) as usize];
        let all = cuts(graph);
        let links = &all[rng.below(all.len() as u64) as usize];
        let cuts: Vec<_> = links.iter().map(|link| (*link, any_of(&How::ALL, &mut rng))).collect();
        let (mode, repaired) = (any_of(&MODES, &mut rng), rng.below(4) == 0);
        let from_start = may_be_from_start(&cuts) && rng.below(3) == 0;
        run(&Scenario { graph, core, mode, cuts, from_start, when: None, repaired, mutant, seed: i }).err()
    };
    let (mut missed, mut clean) = (Vec::new(), 0);
    for mutant in Mutant::ALL {
        let mut others = Vec::new();
        let found = (0..MUTANT_RUNS).find_map(|i| {
            let violation = finds(Some(mutant), i)?;
            if is_of(mutant, &violation) {
                return Some((i, violation));
            }
            others.push(violation.to_string());
            None
        });
        let Some((i, violation)) = found else {
            missed.push((mutant, others));
            continue;
        };
        println!("{mutant:?}: run {i}, {violation}; before, {} other violations", others.len());
        for i in clean..=i {
            assert_eq!(finds(None, i), None, "run {i}");
        }
        clean = clean.max(i + 1);
    }
    assert!(missed.is_empty(), "not found by what they cause within {MUTANT_RUNS} runs: {missed:?}");
}
