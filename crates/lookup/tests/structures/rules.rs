//! Rules against a list that is searched from its start to its end; messages, damaged ones too; readers beside the writer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};

use fibula_lookup::base::processor::Kernel;
use fibula_lookup::hash::{Family, SecretKey};
use fibula_lookup::rules::{ALL_PORTS, Flow, Image, Prefix, Rule, RuleError, Rules, RulesQuery, Settings, Update};
use fibula_lookup::testkit::{Rng, seed};
use fibula_lookup::traits::{Applied, ApplyError, BatchReader, Query};

fn settings(seed: u64) -> Settings {
    Settings::new(Family::MulAdd, &SecretKey::from_seed(seed))
}

/// A flow as its fields.
#[derive(Clone, Copy, Debug)]
struct Fields {
    addresses: [IpAddr; 2],
    ports: [u16; 2],
    protocol: u8,
}

/// What differs between IPv4 and IPv6.
trait Ip<const W: usize> {
    /// An address of a few, which share prefixes.
    fn address(rng: &mut Rng) -> IpAddr;
    /// The length of a prefix.
    fn len(rng: &mut Rng) -> u8;
    fn key(fields: &Fields) -> Flow<W>;
}

struct V4;
struct V6;

impl Ip<1> for V4 {
    fn address(rng: &mut Rng) -> IpAddr {
        let top = 10 << 24 | (rng.below(4) << 22) as u32;
        Ipv4Addr::from_bits(top | (rng.below(4) << 8 | rng.below(4)) as u32).into()
    }

    fn len(rng: &mut Rng) -> u8 {
        [0, 8, 9, 10, 23, 24, 31, 32][rng.below(8) as usize]
    }

    fn key(fields: &Fields) -> Flow<1> {
        let [IpAddr::V4(source), IpAddr::V4(destination)] = fields.addresses else { panic!("IPv4") };
        Flow::v4([source, destination], fields.ports, fields.protocol)
    }
}

impl Ip<4> for V6 {
    fn address(rng: &mut Rng) -> IpAddr {
        let bits = 0x2001_0db8 << 96 | u128::from(rng.below(4)) << 62 | u128::from(rng.below(4));
        Ipv6Addr::from_bits(bits).into()
    }

    fn len(rng: &mut Rng) -> u8 {
        [0, 32, 63, 64, 65, 127, 128, 128][rng.below(8) as usize]
    }

    fn key(fields: &Fields) -> Flow<4> {
        let [IpAddr::V6(source), IpAddr::V6(destination)] = fields.addresses else { panic!("IPv6") };
        Flow::v6([source, destination], fields.ports, fields.protocol)
    }
}

fn port(rng: &mut Rng) -> u16 {
    [0, 80, 443, 1024, 8080, u16::MAX][rng.below(6) as usize]
}

fn fields<const W: usize, I: Ip<W>>(rng: &mut Rng) -> Fields {
    let (addresses, ports) = ([I::address(rng), I::address(rng)], [port(rng), port(rng)]);
    Fields { addresses, ports, protocol: [6, 17, 1][rng.below(3) as usize] }
}

fn rule<const W: usize, I: Ip<W>>(rng: &mut Rng) -> Rule {
    let of = fields::<W, I>(rng);
    let ports = |rng: &mut Rng, port: u16| match rng.below(4) {
        0 => port..=port,
        1 => port.min(1024)..=1024,
        2 => 1024..=port.max(1024),
        _ => ALL_PORTS,
    };
    Rule {
        source: Prefix::new(of.addresses[0], I::len(rng)),
        destination: Prefix::new(of.addresses[1], I::len(rng)),
        source_ports: ports(rng, of.ports[0]),
        destination_ports: ports(rng, of.ports[1]),
        protocol: (rng.below(3) > 0).then_some(of.protocol),
        priority: rng.below(20) as u32,
        value: 1 + rng.below(1000) as u32,
    }
}

/// The answer by the definition: highest priority, then most bits, then the larger value.
fn linear(rules: &[Rule], fields: &Fields) -> u64 {
    let starts_with = |prefix: Prefix, address| Prefix::new(address, prefix.len()) == prefix;
    let common = |ports: &std::ops::RangeInclusive<u16>| (ports.start() ^ ports.end()).leading_zeros();
    let matches = rules.iter().filter(|rule| {
        starts_with(rule.source, fields.addresses[0])
            && starts_with(rule.destination, fields.addresses[1])
            && rule.source_ports.contains(&fields.ports[0])
            && rule.destination_ports.contains(&fields.ports[1])
            && rule.protocol.is_none_or(|protocol| protocol == fields.protocol)
    });
    let rank = |rule: &Rule| {
        let ports = common(&rule.source_ports) + common(&rule.destination_ports);
        let prefixes = u32::from(rule.source.len()) + u32::from(rule.destination.len());
        (rule.priority, prefixes + ports + 8 * u32::from(rule.protocol.is_some()), rule.value)
    };
    matches.map(rank).max().map_or(0, |(_, _, value)| value.into())
}

fn is_like(a: &Rule, b: &Rule) -> bool {
    *a == Rule { value: a.value, ..b.clone() }
}

/// Changes in turn: the query half that follows the messages answers as the list, and as a fresh export.
fn follows_every_change<const W: usize, I: Ip<W>>(n_changes: usize) {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut list: Vec<Rule> = Vec::new();
    for _ in 0..rng.below(100) {
        let rule = rule::<W, I>(&mut rng);
        list.retain(|other| !is_like(other, &rule));
        list.push(rule);
    }
    let mut rules = Rules::<W>::build(settings(seed), &list).unwrap();
    let mut query = rules.export();
    let (mut updates, mut bytes, mut n_whole) = (Vec::new(), Vec::new(), 0);
    for change in 0..n_changes {
        // It grows first, and shrinks later.
        let grows = if change < n_changes / 2 { 4 } else { 2 };
        if rng.below(6) < grows {
            let mut new = rule::<W, I>(&mut rng);
            if rng.below(10) == 0 && !list.is_empty() {
                new = Rule { value: new.value, ..list[rng.below(list.len() as u64) as usize].clone() };
            }
            rules.insert(&new, &mut updates).unwrap();
            list.retain(|other| !is_like(other, &new));
            list.push(new);
        } else if !list.is_empty() {
            let old = list.swap_remove(rng.below(list.len() as u64) as usize);
            assert!(rules.remove(&old, &mut updates));
            assert!(!rules.remove(&old, &mut updates));
        }
        for update in updates.drain(..) {
            bytes.clear();
            update.encode(&mut bytes);
            let update = Update::decode::<W>(&bytes).unwrap();
            n_whole += usize::from(matches!(update, Update::Whole(_)));
            assert_eq!(query.apply(&update), Ok(Applied::Applied), "change {change}");
            assert_eq!(query.apply(&update), Ok(Applied::AlreadyThere));
        }
        assert_eq!((rules.len(), query.held()), (list.len(), rules.export().held()), "change {change}");
        let asked: Vec<Fields> = (0..40).map(|_| fields::<W, I>(&mut rng)).collect();
        let keys: Vec<Flow<W>> = asked.iter().map(I::key).collect();
        let mut values = vec![u64::MAX; keys.len()];
        for kernel in Kernel::available() {
            query.lookup_with(kernel, &keys, &mut values);
            for (fields, &value) in asked.iter().zip(&values) {
                assert_eq!(value, linear(&list, fields), "change {change}, {kernel}, {fields:?}, seed {seed}");
            }
        }
    }
    let mut left: Vec<String> = rules.rules().map(|rule| format!("{rule:?}")).collect();
    let mut listed: Vec<String> = list.iter().map(|rule| format!("{rule:?}")).collect();
    left.sort();
    listed.sort();
    assert_eq!(left, listed);
    assert!(n_whole > 0, "no change laid the rules out anew");
}

#[test]
fn query_half_answers_as_the_list_after_every_change() {
    println!("not run, for want of a processor: {:?}", Kernel::unavailable().collect::<Vec<_>>());
    follows_every_change::<1, V4>(3000);
    follows_every_change::<4, V6>(1500);
}

#[test]
fn crowds_of_similar_rules_are_found() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    // Only ports differ, in ranges that share no bits: one run has them all.
    let of = |i: u32| Rule { source_ports: 1000 + i as u16..=40_000 + i as u16, ..Rule::any(i, i + 1) };
    let mut list: Vec<Rule> = (0..500).map(of).collect();
    let mut rules = Rules::<1>::build(settings(seed), &list).unwrap();
    let mut updates = Vec::new();
    for i in 500..700 {
        rules.insert(&of(i), &mut updates).unwrap();
        list.push(of(i));
    }
    for i in 0..300 {
        assert!(rules.remove(&of(i), &mut updates));
    }
    list.drain(..300);
    let query = rules.export();
    for _ in 0..1000 {
        let fields = Fields { ports: [rng.below(1 << 16) as u16, 0], ..fields::<1, V4>(&mut rng) };
        assert_eq!(query.lookup(V4::key(&fields)), linear(&list, &fields));
    }
}

#[test]
fn bad_rules_are_refused() {
    let mut rules = Rules::<1>::new(settings(1));
    let mut updates = Vec::new();
    let any = Rule::any(1, 1);
    let v6 = Prefix::new(Ipv6Addr::LOCALHOST.into(), 128);
    let cases = [
        (Rule { value: 0, ..any.clone() }, RuleError::Value(0)),
        (Rule { value: 1 << 22, ..any.clone() }, RuleError::Value(1 << 22)),
        (Rule { priority: 1 << 24, ..any.clone() }, RuleError::Priority(1 << 24)),
        (Rule { source: v6, ..any.clone() }, RuleError::Family),
        #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
        (Rule { source_ports: 2..=1, ..any.clone() }, RuleError::NoPorts),
    ];
    for (rule, error) in cases {
        assert_eq!(rules.insert(&rule, &mut updates), Err(error.clone()));
        assert_eq!(Rules::<1>::build(settings(1), &[rule]).err(), Some(error));
    }
    assert!(rules.is_empty() && updates.is_empty());
}

#[test]
fn damaged_messages_change_nothing() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let list: Vec<Rule> = (0..200).map(|_| rule::<1, V4>(&mut rng)).collect();
    let mut rules = Rules::<1>::build(settings(seed), &list).unwrap();
    let mut query = rules.export();
    let (mut updates, mut n_refused) = (Vec::new(), 0);
    for _ in 0..300 {
        rules.insert(&rule::<1, V4>(&mut rng), &mut updates).unwrap();
        for update in updates.drain(..) {
            let mut bytes = Vec::new();
            update.encode(&mut bytes);
            let held = query.held();
            for _ in 0..20 {
                let mut damaged = bytes.clone();
                match rng.below(3) {
                    0 => damaged.truncate(rng.below(bytes.len() as u64) as usize),
                    1 => damaged[rng.below(bytes.len() as u64) as usize] ^= 1 << rng.below(8),
                    _ => damaged[rng.below(40.min(bytes.len() as u64)) as usize] = rng.next_u64() as u8,
                }
                if let Ok(damaged) = Update::decode::<1>(&damaged)
                    && damaged != update
                {
                    // The version after it is no part of the digest.
                    let same_rules = |a: &Update, b: &Update| match (a, b) {
                        (Update::Change(a), Update::Change(b)) => (&a.tables, &a.slots) == (&b.tables, &b.slots),
                        (Update::Whole(a), Update::Whole(b)) => (&a.tables, &a.slots) == (&b.tables, &b.slots),
                        _ => false,
                    };
                    if same_rules(&damaged, &update) {
                        continue;
                    }
                    n_refused += 1;
                    let refused = query.apply(&damaged);
                    assert!(matches!(refused, Err(_) | Ok(Applied::AlreadyThere)), "{refused:?}, seed {seed}");
                    assert_eq!(query.held(), held);
                }
            }
            assert_eq!(query.apply(&update), Ok(Applied::Applied));
        }
    }
    assert!(n_refused > 100, "{n_refused}");
    // No memory for rules that never come.
    let greedy = Image { capacity: u32::MAX, ..rules.image() };
    assert!(matches!(RulesQuery::<1>::from_image(rules.settings(), &greedy), Err(ApplyError::Malformed { .. })));
    rules.insert(&rule::<1, V4>(&mut rng), &mut updates).unwrap();
    updates.clear();
    rules.insert(&rule::<1, V4>(&mut rng), &mut updates).unwrap();
    let lost = query.apply(&updates[0]);
    assert!(matches!(lost, Err(ApplyError::Gap { .. })) || matches!(updates[0], Update::Whole(_)), "{lost:?}");
}

#[test]
fn readers_beside_the_writer_see_each_change_whole() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    // Below everything is a rule for all flows; above it rules with the values 2 and 3 come and go.
    let list: Vec<Rule> = (0..100).map(|_| Rule { priority: 0, value: 1, ..rule::<1, V4>(&mut rng) }).collect();
    let mut rules = Rules::<1>::build(settings(seed), &[&list[..], &[Rule::any(1, 1)]].concat()).unwrap();
    let mut query: RulesQuery<1> = rules.export();
    let over = Rule { destination_ports: 80..=443, protocol: Some(6), ..Rule::any(7, 2) };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (mut reader_of, done, mut rng) = (query.reader(), &done, Rng::new(seed ^ reader));
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let asked: Vec<Fields> = (0..64).map(|_| fields::<1, V4>(&mut rng)).collect();
                    let keys: Vec<Flow<1>> = asked.iter().map(V4::key).collect();
                    let mut values = [0; 64];
                    reader_of.lookup_batch(&keys, &mut values);
                    for (fields, value) in asked.iter().zip(values) {
                        let may = (80..=443).contains(&fields.ports[1]) && fields.protocol == 6;
                        assert!(value == 1 || may && (2..=3).contains(&value), "{value}, {fields:?}, seed {seed}");
                    }
                }
                reader_of.offline();
            });
        }
        let mut updates = Vec::new();
        for turn in 0..3000u32 {
            rules.insert(&Rule { value: 2 + turn % 2, ..over.clone() }, &mut updates).unwrap();
            // Others make runs move, and memory grow.
            rules.insert(&Rule { priority: 0, value: 1, ..rule::<1, V4>(&mut rng) }, &mut updates).unwrap();
            if turn % 3 == 0 {
                assert!(rules.remove(&over, &mut updates));
            }
            for update in updates.drain(..) {
                while let Err(ApplyError::ReadersStalled { .. }) = query.apply(&update) {
                    std::thread::yield_now();
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}
