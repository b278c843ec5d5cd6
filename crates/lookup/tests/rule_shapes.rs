//! The worst shapes of lists of rules: what building and looking up takes, in steps that are the same on every machine.
//!
//! Each shape is built in one go and rule by rule. Of both, and of a search from the start of the list to its end, none may
//! be far better than the others: so no list is slow for the way in which it came.

use std::net::{IpAddr, Ipv4Addr};

use fibula_lookup::hash::{Family, SecretKey};
use fibula_lookup::rules::{Flow, MAX_COMPARED, Prefix, Rule, RuleError, Rules, RulesQuery, Settings};
use fibula_lookup::testkit::{Rng, seed};
use fibula_lookup::traits::{Applied, Query};

/// What a slot that is searched costs, in rules that are compared: as `rules::control` has it.
const SLOT_COST: f64 = 19.0;
/// How much more a lookup may cost than in the best way to hold the same rules.
const WORSE: f64 = 3.0;
/// Steps for each rule and doubling of their number.
const STEPS: f64 = 1000.0;

/// A shape: the rule with each number of so many.
type Shape = fn(u32, u32, &mut Rng) -> Rule;

fn net(bits: u32, len: u8) -> Prefix {
    Prefix::new(IpAddr::V4(Ipv4Addr::from_bits(bits)), len)
}

fn range(rng: &mut Rng, span: u64) -> std::ops::RangeInclusive<u16> {
    let start = rng.below(1 << 16);
    start as u16..=(start + rng.below(span)).min(0xFFFF) as u16
}

fn below(rng: &mut Rng, n: u64) -> u32 {
    rng.below(n) as u32
}

/// The shapes, each with its name. Priorities fall from the first rule to the last, as in a list.
fn shapes() -> Vec<(&'static str, Shape)> {
    fn ports(i: u32, n: u32, _: &mut Rng) -> Rule {
        let first = (i % 65_530) as u16;
        let destination = net(10 << 24, 8);
        Rule { destination, destination_ports: first..=first + 5, protocol: Some(6), ..Rule::any(n - i, i + 1) }
    }
    fn any(i: u32, n: u32, _: &mut Rng) -> Rule {
        Rule::any(n - i, i + 1)
    }
    fn both_ports(i: u32, n: u32, rng: &mut Rng) -> Rule {
        Rule { source_ports: range(rng, 20), destination_ports: range(rng, 2000), ..Rule::any(n - i, i + 1) }
    }
    fn spans(i: u32, n: u32, rng: &mut Rng) -> Rule {
        let span = 1 << below(rng, 12);
        Rule { destination_ports: range(rng, span), ..Rule::any(n - i, i + 1) }
    }
    fn many_masks(i: u32, n: u32, rng: &mut Rng) -> Rule {
        let prefix = |rng: &mut Rng| net(rng.next_u64() as u32, below(rng, 33) as u8);
        let (source, destination, span) = (prefix(rng), prefix(rng), 1 << below(rng, 17));
        let protocol = (rng.below(2) == 0).then_some(6);
        Rule { source, destination, destination_ports: range(rng, span), protocol, ..Rule::any(n - i, i + 1) }
    }
    fn equal_masks(i: u32, n: u32, rng: &mut Rng) -> Rule {
        let (source, destination) = (net(rng.next_u64() as u32, 24), net(rng.next_u64() as u32, 24));
        Rule { source, destination, ..Rule::any(n - i, i + 1) }
    }
    fn shadowed(i: u32, n: u32, rng: &mut Rng) -> Rule {
        if i == 0 { Rule::any(n, 1) } else { many_masks(i, n, rng) }
    }
    fn repeated(i: u32, n: u32, _: &mut Rng) -> Rule {
        Rule { destination: net((10 << 24) | ((i % 50) << 8), 24), ..Rule::any(n - i, i + 1) }
    }
    fn nested_prefixes(i: u32, n: u32, rng: &mut Rng) -> Rule {
        let (source, destination) = (net(0x0A01_0203, below(rng, 33) as u8), net(0x0A01_0203, below(rng, 33) as u8));
        Rule { source, destination, ..Rule::any(n - i, i + 1) }
    }
    fn few_addresses(i: u32, n: u32, rng: &mut Rng) -> Rule {
        let source = net(10 << 24 | below(rng, 16) << 16, 16);
        Rule { source, destination_ports: range(rng, 300), protocol: Some(17), ..Rule::any(n - i, i + 1) }
    }
    vec![
        ("ports that overlap at one prefix", ports),
        ("all flows", any),
        ("both ports", both_ports),
        ("spans of all lengths", spans),
        ("many masks", many_masks),
        ("equal masks", equal_masks),
        ("all behind one", shadowed),
        ("repeated patterns", repeated),
        ("nested prefixes", nested_prefixes),
        ("few addresses", few_addresses),
    ]
}

/// The fields of a flow: addresses, ports, protocol.
type Fields = ([Ipv4Addr; 2], [u16; 2], u8);

/// A flow of every so many rules, and flows that have their fields from several.
fn fields(rules: &[Rule]) -> Vec<Fields> {
    let some: Vec<&Rule> = rules.iter().step_by(rules.len().div_ceil(500)).collect();
    let of = |source: &Rule, destination: &Rule, ports: &Rule| {
        let addresses = [source.source.v4(), destination.destination.v4()];
        let ports_of = [*ports.source_ports.end(), *ports.destination_ports.end()];
        (addresses, ports_of, ports.protocol.unwrap_or(6))
    };
    let whole = some.iter().map(|rule| of(rule, rule, rule));
    let crossed = (0..some.len()).map(|i| of(some[i], some[i * 7 % some.len()], some[(i * 3 + 1) % some.len()]));
    whole.chain(crossed).collect()
}

/// The value of the first rule that matches, by a search through the list, and how many were compared.
fn linear(rules: &[Rule], &(addresses, ports, of): &Fields) -> (u64, usize) {
    let is_in = |prefix: Prefix, address: Ipv4Addr| Prefix::new(address.into(), prefix.len()) == prefix;
    let matches = |rule: &Rule| {
        is_in(rule.source, addresses[0])
            && is_in(rule.destination, addresses[1])
            && rule.source_ports.contains(&ports[0])
            && rule.destination_ports.contains(&ports[1])
            && rule.protocol.is_none_or(|protocol| protocol == of)
    };
    rules.iter().position(matches).map_or((0, rules.len()), |at| (rules[at].value.into(), at + 1))
}

/// What a lookup costs on average, and the answers.
fn asked(query: &RulesQuery<1>, flows: &[Flow<1>]) -> (f64, Vec<u64>) {
    let mut values = vec![0; flows.len()];
    let [slots, compared] = query.lookup_counted(flows, &mut values);
    ((SLOT_COST * slots as f64 + compared as f64) / flows.len() as f64, values)
}

fn settings(seed: u64) -> Settings {
    Settings::new(Family::MulAdd, &SecretKey::from_seed(seed))
}

#[test]
fn no_shape_of_a_list_is_slow_for_the_way_in_which_it_came() {
    let seed = seed();
    let mut wrong = Vec::new();
    for (name, shape) in shapes() {
        let mut steps_before = [0.0; 2];
        for n in [750, 3000] {
            let mut rng = Rng::new(seed);
            let rules: Vec<Rule> = (0..n).map(|i| shape(i, n, &mut rng)).collect();
            let fields = fields(&rules);
            let searched: Vec<(u64, usize)> = fields.iter().map(|fields| linear(&rules, fields)).collect();
            let flows: Vec<Flow<1>> =
                fields.iter().map(|&(addresses, ports, protocol)| Flow::v4(addresses, ports, protocol)).collect();
            let list_cost = SLOT_COST + searched.iter().map(|&(_, n)| n as f64).sum::<f64>() / flows.len() as f64;

            let bulk = Rules::<1>::build(settings(seed), &rules).unwrap_or_else(|error| panic!("{name}: {error}"));
            let mut single = Rules::<1>::new(settings(seed));
            let mut followed = single.export();
            let mut updates = Vec::new();
            for rule in &rules {
                single.insert(rule, &mut updates).unwrap_or_else(|error| panic!("{name}: {error}"));
                for update in updates.drain(..) {
                    assert_eq!(followed.apply(&update), Ok(Applied::Applied), "{name}");
                }
            }
            assert_eq!(followed.held(), single.export().held(), "{name}");
            let answers: Vec<u64> = searched.iter().map(|&(value, _)| value).collect();
            let [(bulk_cost, bulk_answers), (single_cost, single_answers)] =
                [&bulk.export(), &followed].map(|query| asked(query, &flows));
            assert_eq!(bulk_answers, answers, "{name}, seed {seed}");
            assert_eq!(single_answers, answers, "{name}, seed {seed}");
            let best = list_cost.min(bulk_cost).min(single_cost);
            let steps = [&bulk, &single].map(|rules| rules.steps() as f64 / (f64::from(n) * f64::from(n).log2()));
            println!(
                "{name}, {n}: lookup {bulk_cost:.0} in one go, {single_cost:.0} one by one, {list_cost:.0} in a list; steps {:.1} and \
                 {:.1} a rule and doubling; {} and {} tables",
                steps[0],
                steps[1],
                bulk.export().n_tables(),
                followed.n_tables()
            );
            if bulk_cost.max(single_cost) > WORSE * best + 2.0 * SLOT_COST {
                wrong.push(format!("{name}, {n}: lookups cost {bulk_cost:.0} and {single_cost:.0}, at best {best:.0}"));
            }
            if steps[0].max(steps[1]) > STEPS
                || steps_before.iter().zip(steps).any(|(&before, steps)| before > 0.0 && steps > 2.0 * before + 8.0)
            {
                wrong.push(format!("{name}, {n}: steps {steps:?} a rule and doubling, before {steps_before:?}"));
            }
            steps_before = steps;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn ranges_that_no_table_tells_apart_are_refused_and_change_nothing() {
    // Each range has all later ones within it: a packet to the middle matches every rule.
    let of = |i: u32| Rule { destination_ports: i as u16..=u16::MAX - i as u16, ..Rule::any(i, i + 1) };
    let n = MAX_COMPARED as u32;
    let rules: Vec<Rule> = (0..=n).map(of).collect();
    let refused = Rules::<1>::build(settings(1), &rules).err();
    assert!(matches!(refused, Some(RuleError::Alike { .. })), "{refused:?}");
    assert!(refused.unwrap().to_string().contains("merge ranges"));
    let mut single = Rules::<1>::build(settings(1), &rules[..n as usize]).unwrap();
    let (held, mut updates) = (single.export().held(), Vec::new());
    let refused = single.insert(&rules[n as usize], &mut updates);
    assert!(matches!(refused, Err(RuleError::Alike { .. })), "{refused:?}");
    assert_eq!((single.export().held(), single.len(), updates.len()), (held, n as usize, 0));
}

#[test]
fn rules_behind_another_come_back_when_it_goes() {
    let n = 2 * MAX_COMPARED as u32;
    let mut updates = Vec::new();
    // The widest rule has the highest priority, and hides all others.
    let of = |i: u32| Rule { destination_ports: i as u16..=u16::MAX - i as u16, ..Rule::any(n - i, i + 1) };
    let rules: Vec<Rule> = (0..n).map(of).collect();
    let mut held = Rules::<1>::build(settings(1), &rules).unwrap();
    let mut query = held.export();
    let flow = Flow::v4([Ipv4Addr::LOCALHOST; 2], [0, 30_000], 6);
    assert_eq!(query.lookup(flow), 1);
    for (i, rule) in rules.iter().take(3).enumerate() {
        assert!(held.remove(rule, &mut updates));
        for update in updates.drain(..) {
            assert_eq!(query.apply(&update), Ok(Applied::Applied));
        }
        assert_eq!(query.lookup(flow), i as u64 + 2);
    }
    // A rule comes back with another value.
    held.insert(&Rule { value: 9, ..rules[0].clone() }, &mut updates).unwrap_or_else(|error| panic!("{error}"));
    for update in updates.drain(..) {
        assert_eq!(query.apply(&update), Ok(Applied::Applied));
    }
    assert_eq!(query.lookup(flow), 9);
}

#[test]
fn rules_that_no_longer_hide_others_let_them_come_back() {
    // Ranges, each of which hides 60 later rules, and rules before them that push them out of those that hide.
    let outer =
        |i: u32| Rule { destination_ports: 1000 * i as u16..=1000 * i as u16 + 999, ..Rule::any(1 << 20, i + 1) };
    let inner = |i: u32, j: u32| {
        let first = 1000 * i as u16 + j as u16;
        Rule { destination_ports: first..=first + 1, ..Rule::any(1000 - j, 1000 + 100 * i + j) }
    };
    // All overlap the middle of the ports, so that no table tells them apart.
    let wide =
        |i: u32| Rule { destination_ports: i as u16..=u16::MAX - 1 - i as u16, ..Rule::any((1 << 21) + i, 9000 + i) };
    let mut list: Vec<Rule> = (0..16).map(outer).collect();
    list.extend((0..16).flat_map(|i| (0..60).map(move |j| inner(i, j))));
    let mut held = Rules::<1>::build(settings(3), &list).unwrap();
    let mut query = held.export();
    let mut updates = Vec::new();
    for i in 0..40 {
        held.insert(&wide(30_000 - i), &mut updates).unwrap();
        list.push(wide(30_000 - i));
        for update in updates.drain(..) {
            assert_eq!(query.apply(&update), Ok(Applied::Applied));
        }
        let mut ranked = list.clone();
        ranked.sort_by_key(|rule| std::cmp::Reverse(rule.priority));
        for port in (0..20_000).step_by(37).chain([29_980, 31_000, 35_540]) {
            let fields = ([Ipv4Addr::LOCALHOST; 2], [1, port], 6);
            let flow = Flow::v4(fields.0, fields.1, fields.2);
            assert_eq!(query.lookup(flow), linear(&ranked, &fields).0, "port {port}, {i} wide rules");
        }
    }
    // They go again.
    for i in 0..40 {
        assert!(held.remove(&wide(30_000 - i), &mut updates));
        for update in updates.drain(..) {
            assert_eq!(query.apply(&update), Ok(Applied::Applied));
        }
    }
    assert_eq!(query.held(), held.held());
}
