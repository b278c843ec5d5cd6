//! The table of an access list, and how differences update it.
//!
//! A list without priorities is in order, and a line that is added at its start must not give another priority to all others.
//! So priorities are handed out with gaps between them. Of the lines of a list that were in the one before, those in the
//! same order keep theirs, and new lines get one from the gap where they are. If a gap is full, all get new ones, and the
//! table is built anew; likewise if most rules changed.
//!
//! Two tables take turns: workers use one, the other is a version behind. A difference is applied to the unused
//! one, which is then published whole. So a burst is judged by one list, and no worker waits.
//!
//! Cost of a change: the difference, plus reading the file and comparing it with the previous list. Memory: two tables and
//! their control half.

use fib::rules::ListedRule;
use lookup::hash::{Family, SecretKey};
use lookup::rules::{ALL_PORTS, PRIORITY_BITS, Rule, RuleError, Rules, RulesQuery, Settings, Update};
use lookup::traits::{ApplyError, Query};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The value of a rule that permits, and of one that denies. Of two rules with the same priority and equally many bits
/// the larger value decides, so the rule that denies.
pub(super) const PERMIT: u32 = 1;
pub(super) const DENY: u32 = 2;

/// What changed when a list was read again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Rules that were added, or have another action.
    pub changed: usize,
    /// Rules that were removed, or moved.
    pub removed: usize,
    /// Whether the table was built anew: more changed than stayed, or no priority was left between two rules.
    pub built_anew: bool,
}

/// A rule without priority and value, for IPv4 and for IPv6, where it applies.
type Pattern = [Option<Rule>; 2];

/// A rule of the list: what it applies to, its priority, and its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kept {
    pattern: Pattern,
    priority: u32,
    value: u32,
}

impl Kept {
    /// The rules for IPv4 and IPv6.
    fn rules(&self) -> [Option<Rule>; 2] {
        let with = |rule: &Rule| Rule { priority: self.priority, value: self.value, ..rule.clone() };
        self.pattern.each_ref().map(|rule| rule.as_ref().map(with))
    }

    fn is_over_addresses(&self) -> bool {
        self.pattern.iter().flatten().all(is_over_addresses)
    }
}

/// A table that is looked up.
pub(super) struct InUse {
    pub(super) v4: RulesQuery<1>,
    pub(super) v6: RulesQuery<4>,
    /// Whether all rules are over addresses alone.
    pub(super) only_addresses: bool,
    /// Rules of the list.
    pub(super) n_rules: usize,
}

/// The changes of both tables.
#[derive(Default)]
struct Updates {
    v4: Vec<Update>,
    v6: Vec<Update>,
}

/// The writer of a table.
pub(super) struct Writer {
    settings: Settings,
    v4: Rules<1>,
    v6: Rules<4>,
    /// In the order of the list.
    list: Vec<Kept>,
    /// The table that was in use before, and the changes that it lacks.
    spare: Option<(Arc<InUse>, Updates)>,
}

/// Whether a rule is over addresses alone.
fn is_over_addresses(rule: &Rule) -> bool {
    rule.protocol.is_none() && [&rule.source_ports, &rule.destination_ports].iter().all(|&ports| *ports == ALL_PORTS)
}

impl Writer {
    /// The writer of a table of this list, and the table. `permits` says whether an action permits.
    pub(super) fn new(
        list: &[ListedRule],
        permits: impl Fn(&ListedRule) -> bool,
    ) -> Result<(Self, InUse), AclTableError> {
        let settings = Settings::new(Family::MulAdd, &SecretKey::random());
        let list = read(list, permits, &[]).0;
        let (v4, v6) = built(&settings, &list)?;
        let writer = Self { settings, v4, v6, list, spare: None };
        let table = writer.export();
        Ok((writer, table))
    }

    fn export(&self) -> InUse {
        InUse {
            v4: self.v4.export(),
            v6: self.v6.export(),
            only_addresses: self.list.iter().all(Kept::is_over_addresses),
            n_rules: self.list.len(),
        }
    }

    /// Updates the table to another list, and returns the difference. `publish` gets the table, and returns the previous one.
    /// # Errors
    /// [`AclTableError`]; the previous list stays.
    pub(super) fn follow(
        &mut self,
        list: &[ListedRule],
        permits: impl Fn(&ListedRule) -> bool,
        publish: impl FnOnce(Arc<InUse>) -> Arc<InUse>,
    ) -> Result<Difference, AclTableError> {
        let (list, mut difference) = read(list, permits, &self.list);
        let Self { settings, v4, v6, list: kept, spare } = self;
        let (before, after): (HashSet<&Kept>, HashSet<&Kept>) = (kept.iter().collect(), list.iter().collect());
        let come: Vec<&Kept> = list.iter().filter(|rule| !before.contains(rule)).collect();
        // A rule with another verdict alone is changed in its place.
        let in_place: HashSet<(&Pattern, u32)> = come.iter().map(|rule| (&rule.pattern, rule.priority)).collect();
        let is_gone = |rule: &&Kept| !after.contains(rule) && !in_place.contains(&(&rule.pattern, rule.priority));
        let gone: Vec<&Kept> = kept.iter().filter(is_gone).collect();
        (difference.changed, difference.removed) = (come.len(), gone.len());
        difference.built_anew |= 2 * (come.len() + gone.len()) > list.len();
        let mut updates = Updates::default();
        if difference.built_anew {
            (*v4, *v6) = built(settings, &list)?;
            *spare = None;
        } else if let Err(error) = change(v4, v6, [&gone, &come], &mut updates) {
            (*v4, *v6) = built(settings, kept)?;
            *spare = None;
            return Err(error);
        }
        self.list = list;
        let table = self.spare.take().and_then(|(table, lacking)| self.brought_along(table, &[&lacking, &updates]));
        let table = table.unwrap_or_else(|| Arc::new(self.export()));
        let old = publish(table);
        self.spare = (!difference.built_anew).then_some((old, updates));
        Ok(difference)
    }

    /// The spare table, with the changes that it lacked; none if a worker still uses it, or it cannot be updated.
    fn brought_along(&self, mut table: Arc<InUse>, lacking: &[&Updates]) -> Option<Arc<InUse>> {
        let spare = Arc::get_mut(&mut table)?;
        let apply = |spare: &mut InUse| -> Result<(), ApplyError> {
            for updates in lacking {
                updates.v4.iter().try_for_each(|update| spare.v4.apply(update).map(drop))?;
                updates.v6.iter().try_for_each(|update| spare.v6.apply(update).map(drop))?;
            }
            Ok(())
        };
        apply(spare).ok()?;
        if (spare.v4.held(), spare.v6.held()) != (self.v4.held(), self.v6.held()) {
            return None;
        }
        spare.only_addresses = self.list.iter().all(Kept::is_over_addresses);
        spare.n_rules = self.list.len();
        Some(table)
    }

    /// The steps that all changes so far took.
    #[cfg(test)]
    fn steps(&self) -> u64 {
        self.v4.steps() + self.v6.steps()
    }
}

/// Removes some rules and adds others.
fn change(
    v4: &mut Rules<1>,
    v6: &mut Rules<4>,
    [gone, come]: [&[&Kept]; 2],
    updates: &mut Updates,
) -> Result<(), AclTableError> {
    // Rules that are removed make room first.
    for [of_v4, of_v6] in gone.iter().map(|kept| kept.rules()) {
        of_v4.iter().for_each(|rule| _ = v4.remove(rule, &mut updates.v4));
        of_v6.iter().for_each(|rule| _ = v6.remove(rule, &mut updates.v6));
    }
    for [of_v4, of_v6] in come.iter().map(|kept| kept.rules()) {
        of_v4.iter().try_for_each(|rule| v4.insert(rule, &mut updates.v4))?;
        of_v6.iter().try_for_each(|rule| v6.insert(rule, &mut updates.v6))?;
    }
    Ok(())
}

fn built(settings: &Settings, list: &[Kept]) -> Result<(Rules<1>, Rules<4>), AclTableError> {
    let of = |at: usize| list.iter().filter_map(|kept| kept.rules()[at].clone()).collect::<Vec<_>>();
    Ok((Rules::build(settings.clone(), &of(0))?, Rules::build(settings.clone(), &of(1))?))
}

/// Why a table cannot hold a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct AclTableError(#[from] RuleError);

/// The rules of a list, with priorities that agree with those of the list before where they can.
fn read(list: &[ListedRule], permits: impl Fn(&ListedRule) -> bool, before: &[Kept]) -> (Vec<Kept>, Difference) {
    let pattern = |listed: &ListedRule| {
        let plain = |rule| Rule { priority: 0, value: 0, ..rule };
        [true, false].map(|is_v4| listed.for_version(is_v4).map(plain))
    };
    let value = |listed: &ListedRule| if permits(listed) { PERMIT } else { DENY };
    let n_rules = list.len() as u32;
    // Without priorities in the text, the first rule has the highest one, and each later one the next below.
    if !list.iter().zip(1..).all(|(listed, number)| listed.rule.priority == n_rules - number) {
        let mut at: HashMap<(Pattern, u32), usize> = HashMap::new();
        let mut kept: Vec<Kept> = Vec::new();
        for listed in list {
            let one = Kept { pattern: pattern(listed), priority: listed.rule.priority, value: value(listed) };
            match at.get(&(one.pattern.clone(), one.priority)) {
                // Of rules with the same pattern and priority, the last one counts.
                Some(&at) => kept[at] = one,
                None => {
                    at.insert((one.pattern.clone(), one.priority), kept.len());
                    kept.push(one);
                }
            }
        }
        return (kept, Difference::default());
    }
    let old: HashMap<&Pattern, u32> = before.iter().map(|kept| (&kept.pattern, kept.priority)).collect();
    let mut seen = HashSet::new();
    // A pattern that is repeated further down can match nothing.
    let rules: Vec<(Pattern, u32)> = list
        .iter()
        .map(|listed| (pattern(listed), value(listed)))
        .filter(|(pattern, _)| seen.insert(pattern.clone()))
        .collect();
    let wanted: Vec<Option<u32>> = rules.iter().map(|(pattern, _)| old.get(pattern).copied()).collect();
    let given = priorities(&wanted);
    let built_anew = given.is_none();
    let given = given.unwrap_or_else(|| {
        priorities(&vec![None; rules.len()]).unwrap_or_else(|| unreachable!("there are fewer rules than priorities"))
    });
    let kept = rules.into_iter().zip(given).map(|((pattern, value), priority)| Kept { pattern, priority, value });
    (kept.collect(), Difference { built_anew: built_anew && !before.is_empty(), ..Difference::default() })
}

/// Falling priorities: as many of the wanted ones as possible, each of which occurs once, and others between them; none if
/// there is no room.
fn priorities(wanted: &[Option<u32>]) -> Option<Vec<u32>> {
    let mut given = longest_fall(wanted);
    // Priorities from `below` up to `above` are free, both ends not among them.
    let (mut at, mut above) = (0, 1i64 << PRIORITY_BITS);
    while at < given.len() {
        if let Some(priority) = given[at] {
            (above, at) = (priority.into(), at + 1);
            continue;
        }
        let n = given[at..].iter().take_while(|priority| priority.is_none()).count();
        let below = given.get(at + n).copied().flatten().map_or(-1, i64::from);
        if above - below - 1 < n as i64 {
            return None;
        }
        for i in 0..n {
            given[at + i] = Some((above - (above - below) * (i as i64 + 1) / (n as i64 + 1)) as u32);
        }
        at += n;
        above = below;
    }
    given.into_iter().collect()
}

/// The longest falling subsequence of these; none at the places of the others.
fn longest_fall(wanted: &[Option<u32>]) -> Vec<Option<u32>> {
    // For each length, the end of the falling subsequence of that length whose last element is largest.
    let (mut ends, mut before): (Vec<usize>, Vec<Option<usize>>) = (Vec::new(), vec![None; wanted.len()]);
    for (at, priority) in wanted.iter().enumerate().filter_map(|(at, priority)| Some((at, (*priority)?))) {
        let len = ends.partition_point(|&end| wanted[end].is_some_and(|last| last > priority));
        before[at] = len.checked_sub(1).map(|len| ends[len]);
        match ends.get_mut(len) {
            Some(end) => *end = at,
            None => ends.push(at),
        }
    }
    let mut kept = vec![None; wanted.len()];
    let mut next = ends.last().copied();
    while let Some(at) = next {
        kept[at] = wanted[at];
        next = before[at];
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use lookup::rules::Flow;
    use lookup::testkit::{Rng, seed};

    fn listed(lines: &[String]) -> Vec<ListedRule> {
        fib::rules::read(lines.join("\n").as_bytes(), &fib::rules::Actions::default()).unwrap()
    }

    fn permits(rule: &ListedRule) -> bool {
        rule.action == "permit"
    }

    /// The table of a writer that reads one list after the other.
    struct Reading {
        writer: Writer,
        table: Arc<InUse>,
    }

    impl Reading {
        fn of(lines: &[String]) -> Self {
            let (writer, table) = Writer::new(&listed(lines), permits).unwrap();
            Self { writer, table: Arc::new(table) }
        }

        fn read(&mut self, lines: &[String]) -> Result<Difference, AclTableError> {
            let table = &mut self.table;
            self.writer.follow(&listed(lines), permits, |new| std::mem::replace(table, new))
        }
    }

    fn line(i: u64) -> String {
        format!(
            "{} tcp to 10.{}.{}.0/24 port {}",
            ["permit", "deny"][i as usize % 2],
            i / 250 % 250,
            i % 250,
            1 + i % 1000
        )
    }

    #[test]
    fn a_line_more_changes_one_rule_however_long_the_list() {
        let mut steps = Vec::new();
        for n in [500, 4000] {
            let mut lines: Vec<String> = (0..n).map(line).collect();
            lines.push("permit any".to_owned());
            let mut reading = Reading::of(&lines);
            let before = reading.writer.steps();
            lines.insert(0, "deny udp from 10.9.9.9".to_owned());
            assert_eq!(reading.read(&lines), Ok(Difference { changed: 1, removed: 0, built_anew: false }));
            lines.remove(n as usize / 2);
            assert_eq!(reading.read(&lines), Ok(Difference { changed: 0, removed: 1, built_anew: false }));
            let at = n as usize / 3;
            lines[at] = if lines[at].starts_with("deny") {
                lines[at].replacen("deny", "permit", 1)
            } else {
                lines[at].replacen("permit", "deny", 1)
            };
            assert_eq!(reading.read(&lines), Ok(Difference { changed: 1, removed: 0, built_anew: false }));
            // One line further up.
            lines.swap(at, at + 1);
            assert_eq!(reading.read(&lines), Ok(Difference { changed: 1, removed: 1, built_anew: false }));
            assert_eq!(reading.read(&lines), Ok(Difference::default()));
            steps.push(reading.writer.steps() - before);
        }
        assert!(steps[1] < 200 && steps[1] < 2 * steps[0] + 50, "{steps:?} steps for the same changes");
    }

    #[test]
    fn a_list_that_was_followed_judges_as_one_that_was_read_at_once() {
        let seed = seed();
        let mut rng = Rng::new(seed);
        let word = |rng: &mut Rng| {
            let action = ["permit", "deny"][rng.below(2) as usize];
            let protocol = [" any", " tcp", " udp"][rng.below(3) as usize];
            let from = ["", " from 10.0.0.0/8", " from 10.1.0.0/16", " from 2001:db8::/32"][rng.below(4) as usize];
            let to = ["", " to any port 80", " to any port 1000-2000", " to any port 22-1023"][rng.below(4) as usize];
            format!("{action}{protocol}{from}{to}")
        };
        let mut lines: Vec<String> = (0..30).map(|_| word(&mut rng)).collect();
        let mut reading = Reading::of(&lines);
        let (mut n_followed, mut n_built) = (0, 0);
        for round in 0..300 {
            for _ in 0..1 + rng.below(3) {
                let at = rng.below(lines.len() as u64 + 1) as usize;
                match rng.below(3) {
                    0 if at < lines.len() && lines.len() > 5 => _ = lines.remove(at),
                    1 if at < lines.len() => {
                        let other = rng.below(lines.len() as u64) as usize;
                        lines.swap(at, other);
                    }
                    _ => lines.insert(at, word(&mut rng)),
                }
            }
            let built_anew = reading.read(&lines).unwrap().built_anew;
            (n_followed, n_built) = (n_followed + usize::from(!built_anew), n_built + usize::from(built_anew));
            let fresh = fib::rules::RuleTable::build(&listed(&lines)).unwrap();
            let list = listed(&lines);
            for _ in 0..60 {
                let address = |rng: &mut Rng| [10, rng.below(2) as u8, 0, 1].into();
                let ports = [rng.below(3000) as u16, [80, 1500, 22, 5][rng.below(4) as usize]];
                let protocol = [6, 17, 1][rng.below(3) as usize];
                let flow = Flow::v4([address(&mut rng), address(&mut rng)], ports, protocol);
                let v6 = Flow::v6([[0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into(); 2], ports, protocol);
                for (number, value) in [
                    (fresh.v4().lookup(flow), reading.table.v4.lookup(flow)),
                    (fresh.v6().lookup(v6), reading.table.v6.lookup(v6)),
                ] {
                    let expected =
                        number.checked_sub(1).map_or(0, |at| if permits(&list[at as usize]) { PERMIT } else { DENY });
                    assert_eq!(value, u64::from(expected), "round {round}, seed {seed}: {}", lines.join("\n"));
                }
            }
        }
        assert!(n_followed > 100, "{n_followed} followed, {n_built} built anew");
    }

    #[test]
    fn a_list_that_cannot_be_held_leaves_the_one_before() {
        let nested =
            |n: u16| (0..n).map(|i| format!("deny tcp to any port {i}-{}", 65_535 - i)).rev().collect::<Vec<_>>();
        // Two tables could hold them, one with the protocol and one without: 1,024 in each.
        let mut lines = nested(1500);
        let mut reading = Reading::of(&lines);
        let flow = Flow::v4([[10, 0, 0, 1].into(); 2], [1, 30_000], 6);
        assert_eq!(reading.table.v4.lookup(flow), u64::from(DENY));
        // Some more, by a difference, and many more, by building anew.
        for n in [2200, 5000] {
            assert!(reading.read(&nested(n)).is_err(), "{n} rules");
            assert_eq!(reading.table.v4.lookup(flow), u64::from(DENY));
        }
        lines.insert(0, "permit tcp to any port 30000".to_owned());
        assert_eq!(reading.read(&lines).map(|difference| difference.changed), Ok(1));
        assert_eq!(reading.table.v4.lookup(flow), u64::from(PERMIT));
    }

    #[test]
    fn priorities_fall_and_keep_what_they_can() {
        let given = priorities(&[Some(900), None, Some(200), Some(700), None]).unwrap();
        assert!(given.is_sorted_by(|a, b| a > b), "{given:?}");
        assert_eq!((given[0], given[3], given.len()), (900, 700, 5));
        assert_eq!(priorities(&[Some(9), None, Some(8)]), None);
        assert_eq!(priorities(&[Some(0), None]), None);
        assert_eq!(priorities(&[]), Some(vec![]));
    }
}
