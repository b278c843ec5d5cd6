//! Rules over five-tuples: lists of them as text, tables of both versions of IP, and these as a file.
//!
//! A line of a list is an action and what it applies to; the first rule that matches answers:
//! ```text
//! deny tcp from 10.6.0.0/16 to any port 22-23
//! permit tcp to 192.0.2.0/24 port 443
//! permit from 2001:db8::/32 port 1024-65535 priority 7
//! deny any
//! ```
//! The action is one of the [`Actions`] that the list may have: a slip of the pen is none. After it come, each at most once: a protocol
//! (a name, a number, or `any`), `from` and `to` with a [prefix](crate::text::address) or `any`, each with a `port` or a range of ports
//! behind it, and a priority. A rule for all packets says `any`: a word alone is none. Without addresses a rule applies to IPv4 and IPv6;
//! `icmp` is then ICMP of both. If one rule has a priority, each needs one: the highest that matches answers. Lines are those of
//! [`text`](crate::text); upper and lower case mean the same.
//!
//! Lines that begin with `@` are those of ClassBench: prefixes, ranges of ports `low : high`, protocol and mask. Their action
//! is `permit`; flags of TCP, which are in a field of their own behind, are not compared.

mod table;
mod words;

pub use table::{AnyFlow, FORMAT, MAGIC, Match, RuleTable, RuleTableError, encode};
pub use words::{Protocols, protocols};

use crate::text::{Dialect, Line, LineError, Lines, Records};
use lookup::rules::{MAX_RULES, Rule};
use std::io::Read;
use std::str::FromStr;
use words::Parsed;

/// The longest action, in bytes.
pub const MAX_ACTION: usize = 64;

/// The actions that a list may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actions {
    allowed: Vec<String>,
    hint: &'static str,
}

impl Default for Actions {
    /// The actions of an access list: permit and deny.
    fn default() -> Self {
        Actions { allowed: ["permit", "deny"].map(str::to_owned).into(), hint: "" }
    }
}

impl FromStr for Actions {
    type Err = String;

    /// Words with commas between them.
    fn from_str(text: &str) -> Result<Self, String> {
        let word = |word: &str| {
            let word = word.trim().to_lowercase();
            if words::is_action(&word) { Ok(word) } else { Err(words::no_action(&word)) }
        };
        Ok(Actions { allowed: text.split(',').map(word).collect::<Result<_, _>>()?, hint: "" })
    }
}

impl Actions {
    /// The same; errors about an action that is none of them end with `hint`.
    #[must_use]
    pub fn or(self, hint: &'static str) -> Self {
        Actions { hint, ..self }
    }

    /// The action that a word stands for.
    fn named(&self, word: &str) -> Result<&str, String> {
        let is = |action: &str| self.allowed.iter().find(|allowed| allowed.eq_ignore_ascii_case(action));
        let synonym = || match &word.to_ascii_lowercase()[..] {
            "allow" => is("permit"),
            "drop" => is("deny"),
            _ => None,
        };
        let refused = || {
            if !words::is_action(word) {
                return words::no_action(word);
            }
            format!(
                "`{}` is not an action of this list: write {}{}",
                crate::name::clip(word),
                self.allowed.join(" or "),
                self.hint
            )
        };
        is(word).or_else(synonym).map(|action| &action[..]).ok_or_else(refused)
    }
}

/// A rule of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRule {
    /// Line number, from 1.
    pub line: u64,
    /// Its action.
    pub action: String,
    /// The version of IP that it applies to; none: both.
    pub is_v4: Option<bool>,
    /// The rule. Its value is its number in the list, from 1.
    pub rule: Rule,
    /// Whether its protocol is that of ICMP in whichever version of IP: the one of the rule is that of IPv4.
    pub is_any_icmp: bool,
    /// Whether it had flags of TCP, which are not compared.
    pub had_flags: bool,
}

impl ListedRule {
    /// The rule as it is for a version of IP; none if it applies to the other one alone.
    pub fn for_version(&self, is_v4: bool) -> Option<Rule> {
        let protocol = if self.is_any_icmp && !is_v4 { Some(words::ICMPV6) } else { self.rule.protocol };
        let applies = self.is_v4.is_none_or(|version| version == is_v4);
        applies.then(|| Rule { protocol, ..self.rule.clone() })
    }
}

/// Reads a list, packed or not.
/// # Errors
/// The first line that is wrong.
pub fn read(input: impl Read, actions: &Actions) -> Result<Vec<ListedRule>, LineError> {
    let mut rules: Vec<(ListedRule, bool)> = Vec::new();
    for line in Records::new(Lines::new(input), Dialect::Plain, &[&["rule", "rules"]]) {
        let line = line?;
        if rules.len() == MAX_RULES {
            return Err(line.error(format!("there are more than {MAX_RULES} rules; leave some out")));
        }
        rules.push(rule(&line, rules.len() as u32 + 1, actions).map_err(|reason| line.error(reason))?);
    }
    let with = rules.iter().filter(|(_, has_priority)| *has_priority).count();
    let n_rules = rules.len() as u32;
    if let Some((without, _)) = rules.iter().find(|(_, has_priority)| !has_priority)
        && with > 0
    {
        let reason = "the rule has no priority and others have one: write `priority N` behind it, too".to_owned();
        return Err(LineError { line: without.line, reason });
    }
    let in_order = |(rule, has_priority): (ListedRule, bool)| match has_priority {
        true => rule,
        false => ListedRule { rule: Rule { priority: n_rules - rule.rule.value, ..rule.rule }, ..rule },
    };
    Ok(rules.into_iter().map(in_order).collect())
}

/// Reads a list of rules that permit or deny.
/// # Errors
/// The first line that is wrong.
pub fn parse(text: &str) -> Result<Vec<ListedRule>, LineError> {
    read(text.as_bytes(), &Actions::default())
}

fn rule(line: &Line, value: u32, actions: &Actions) -> Result<(ListedRule, bool), String> {
    let fields = Dialect::Plain.fields(&line.text)?;
    let [text] = &fields[..] else { return Err(words::has_commas(&line.text)) };
    // Nobody means a comment by it who does not write white space before: no word has one.
    let text = text.split('#').next().unwrap_or_default();
    let mut parsed = Parsed::default();
    match text.strip_prefix('@') {
        Some(text) => {
            parsed.classbench(&mut text.split_whitespace())?;
            actions.named("permit")?.clone_into(&mut parsed.action);
        }
        None => parsed.words(&text.split_whitespace().collect::<Vec<_>>(), actions)?,
    }
    parsed.rule(line.number, value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lookup::rules::ALL_PORTS;

    #[test]
    fn lists_are_read() {
        let text = "# who may what\n\ndeny tcp from 10.6.0.0/16 to any port 22-23\npermit 6 to 192.0.2.0/24 port 443 # web\n\
            permit any from 2001:db8::/32 port 1024-65535\ndeny any\n";
        let rules = parse(text).unwrap();
        let lines: Vec<_> =
            rules.iter().map(|rule| (rule.line, &rule.action[..], rule.is_v4, rule.rule.priority)).collect();
        let expected = [
            (3, "deny", Some(true), 3),
            (4, "permit", Some(true), 2),
            (5, "permit", Some(false), 1),
            (6, "deny", None, 0),
        ];
        assert_eq!(lines, expected);
        let [deny, web, v6, others] = [0, 1, 2, 3].map(|at| &rules[at].rule);
        assert_eq!((deny.source.v4(), deny.source.len(), deny.protocol), ([10, 6, 0, 0].into(), 16, Some(6)));
        assert_eq!((&deny.source_ports, &deny.destination_ports), (&ALL_PORTS, &(22..=23)));
        assert_eq!((web.destination.len(), &web.destination_ports, web.protocol), (24, &(443..=443), Some(6)));
        assert_eq!((v6.source.len(), &v6.source_ports, v6.protocol), (32, &(1024..=65535), None));
        assert_eq!(*others, Rule::any(0, 4));
    }

    #[test]
    fn rules_of_classbench_are_read() {
        let text = "@1.2.3.4/32\t5.6.0.0/16\t0 : 65535\t1521 : 1525\t0x06/0xFF\t0x0000/0x0200\n\
            @0.0.0.0/0 5.6.0.0/16 7 : 7 0 : 65535 0x00/0x00\n";
        let rules = parse(text).unwrap();
        let [a, b] = [0, 1].map(|at| &rules[at].rule);
        assert_eq!(
            (a.source.len(), a.destination.len(), &a.destination_ports, a.protocol),
            (32, 16, &(1521..=1525), Some(6))
        );
        assert_eq!((b.source.len(), &b.source_ports, b.protocol, b.priority), (0, &(7..=7), None, 0));
        assert_eq!((rules[0].had_flags, rules[1].had_flags, rules[1].is_v4), (true, false, Some(true)));
    }

    #[test]
    fn wrong_lines_say_what_to_write() {
        for (line, says) in [
            ("permit tcpp", "is not a protocol"),
            ("permit tcp udp", "is not understood"),
            ("permit port 80", "whose port"),
            ("permit from", "is the last word"),
            ("permit from 10.0.0.0/33", "from 0 to 32"),
            ("permit from 10.0.0/8", "write it like"),
            ("permit from 10.0.0.0/8 to ::/0", "IPv4 and the other IPv6"),
            ("permit from 10.6.1.2/16", "write 10.6.0.0/16"),
            ("permit from 10.0.0.0 0.255.255.255", "wildcard mask: write 255.0.0.0"),
            ("permit any from ::ffff:10.0.0.1", "write 10.0.0.1"),
            ("permit to any port +80", "not a range of ports"),
            ("permit +6", "not a protocol"),
            ("permit", "write `permit any`"),
            ("deny priority 4", "write `deny any`"),
            ("permt tcp", "`permt` is not an action of this list: write permit or deny"),
            ("permit,tcp,10.0.0.0/8", "has commas"),
            ("02:00:00:00:00:01,port:3", "has commas: a rule is words"),
            ("02:00:00:00:00:01", "is not an action: one is a word"),
            ("/srv/video/intro.mp4", "is not an action: one is a word"),
            ("\u{200b}permit any", "is not an action: one is a word"),
            ("permit icmp from 2001:db8::/32", "write icmpv6"),
            ("permit icmpv6 to 10.0.0.0/8", "write icmp"),
            ("deny icmp to any port 8", "have no ports"),
            ("permit from any from any", "comes twice"),
            ("permit to any port 9-8", "smaller one first"),
            ("permit to any port 99999", "not a range of ports"),
            ("permit priority 16777216", "not a priority"),
            ("@1.2.3.4/32 5.6.7.8/32 0 : 1", "is missing"),
            ("@1.2.3.4/32 5.6.7.8/32 0 : 1 2 : 3 0x06/0x0F", "0x00/0x00 for any"),
        ] {
            let error = parse(&format!("deny any\n{line}\n")).unwrap_err();
            assert!(error.line == 2 && error.reason.contains(says), "{line}: {error}");
        }
        let mixed = parse("deny any priority 4\npermit any\n").unwrap_err();
        assert!(mixed.line == 2 && mixed.reason.contains("priority N"), "{mixed}");
    }

    #[test]
    fn actions_are_those_that_the_list_may_have() {
        let actions: Actions = "Permit, count-1".parse().unwrap();
        let read = |text: &str| super::read(text.as_bytes(), &actions).map(|rules| rules[0].action.clone());
        assert_eq!(read("COUNT-1 tcp"), Ok("count-1".to_owned()));
        assert_eq!(read("allow any"), Ok("permit".to_owned()));
        assert!(read("deny any").unwrap_err().reason.contains("write permit or count-1"));
        assert!(read("drop any").is_err());
        assert_eq!(parse("Allow TCP FROM 10.0.0.0/8\ndrop any").unwrap()[1].action, "deny");
        for wrong in ["", "permit,", "7", "a b", "permit,\u{feff}"] {
            assert!(wrong.parse::<Actions>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn icmp_without_addresses_is_that_of_both_versions() {
        let [both, v4, v6] = ["icmp", "icmp from 10.0.0.0/8", "icmpv6"].map(|of| {
            let rule = parse(&format!("permit {of}")).unwrap().remove(0);
            (rule.is_v4, rule.is_any_icmp, rule.rule.protocol)
        });
        assert_eq!(both, (None, true, Some(1)));
        assert_eq!(v4, (Some(true), false, Some(1)));
        assert_eq!(v6, (Some(false), false, Some(58)));
    }
}
