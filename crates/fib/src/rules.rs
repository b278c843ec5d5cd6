//! Rules over five-tuples: lists of them as text, tables of both versions of IP, and these as a file.
//!
//! A line of a list is an action and what it applies to; the first rule that matches answers:
//! ```text
//! deny tcp from 10.6.0.0/16 to any port 22-23
//! permit tcp to 192.0.2.0/24 port 443
//! permit from 2001:db8::/32 port 1024-65535 priority 7
//! deny
//! ```
//! After the action come, each at most once: a protocol (a name or a number; without one any), `from` and `to` with a
//! prefix or `any`, each with a `port` or a range of ports behind it, and a priority. Without addresses a rule applies to
//! IPv4 and IPv6. If one rule has a priority, each needs one: the highest that matches answers. `#` begins a comment.
//!
//! Lines that begin with `@` are those of ClassBench: prefixes, ranges of ports `low : high`, protocol and mask. Their action
//! is `permit`; flags of TCP, which are in a field of their own behind, are not compared.

mod table;

pub use table::{AnyFlow, FORMAT, MAGIC, Match, RuleTable, RuleTableError, encode};

use crate::name::{clip, protocol_number};
use lookup::rules::{ALL_PORTS, MAX_RULES, PRIORITY_BITS, Prefix, Rule};
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// The longest action, in bytes.
pub const MAX_ACTION: usize = 64;

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
    /// Whether it had flags of TCP, which are not compared.
    pub had_flags: bool,
}

impl ListedRule {
    /// The rule as it is for a version of IP; none if it applies to the other one alone.
    pub fn for_version(&self, is_v4: bool) -> Option<Rule> {
        self.is_v4.is_none_or(|version| version == is_v4).then(|| self.rule.clone())
    }
}

/// What is wrong with a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct RuleListError {
    /// Line number, from 1.
    pub line: u64,
    /// What is wrong, and what to write.
    pub reason: String,
}

/// Reads a list.
/// # Errors
/// [`RuleListError`] of the first line that is wrong.
pub fn parse(text: &str) -> Result<Vec<ListedRule>, RuleListError> {
    let mut rules: Vec<(ListedRule, bool)> = Vec::new();
    for (line, text) in (1u64..).zip(text.lines()) {
        let text = text.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        let wrong = |reason| RuleListError { line, reason };
        if rules.len() == MAX_RULES {
            return Err(wrong(format!("there are more than {MAX_RULES} rules; leave some out")));
        }
        let mut words = text.split_whitespace();
        let mut parsed = Parsed::default();
        match text.strip_prefix('@') {
            Some(text) => parsed.classbench(&mut text.split_whitespace()),
            None => parsed.words(&mut words),
        }
        .map_err(wrong)?;
        rules.push(parsed.rule(line, rules.len() as u32 + 1).map_err(wrong)?);
    }
    let with = rules.iter().filter(|(_, has_priority)| *has_priority).count();
    let n_rules = rules.len() as u32;
    if let Some((without, _)) = rules.iter().find(|(_, has_priority)| !has_priority)
        && with > 0
    {
        let reason = "the rule has no priority and others have one: write `priority N` behind it, too".to_owned();
        return Err(RuleListError { line: without.line, reason });
    }
    let in_order = |(rule, has_priority): (ListedRule, bool)| match has_priority {
        true => rule,
        false => ListedRule { rule: Rule { priority: n_rules - rule.rule.value, ..rule.rule }, ..rule },
    };
    Ok(rules.into_iter().map(in_order).collect())
}

/// The fields of a line.
#[derive(Default)]
struct Parsed {
    action: String,
    protocol: Option<u8>,
    /// Source and destination.
    prefixes: [Option<(IpAddr, u8)>; 2],
    ports: [Option<RangeInclusive<u16>>; 2],
    priority: Option<u32>,
    had_flags: bool,
}

type Words<'a> = std::str::SplitWhitespace<'a>;

impl Parsed {
    fn words(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        let action = words.next().unwrap_or_default();
        if action.len() > MAX_ACTION {
            return Err(format!("the action `{}` has more than {MAX_ACTION} bytes", clip(action)));
        }
        action.clone_into(&mut self.action);
        let (mut side, mut has_protocol, mut seen) = (None, false, [false; 2]);
        while let Some(word) = words.next() {
            let mut value =
                |of: &str| words.next().ok_or(format!("`{of}` is the last word: write what comes after it"));
            match word {
                "from" | "to" => {
                    let at = usize::from(word == "to");
                    if std::mem::replace(&mut seen[at], true) {
                        return Err(format!("`{word}` comes twice: write one rule for each"));
                    }
                    self.prefixes[at] = prefix(value(word)?)?;
                    side = Some(at);
                }
                "port" => {
                    let at = side.ok_or("write `port` behind `from` or `to`, which say whose port it is")?;
                    if self.ports[at].replace(ports(value(word)?)?).is_some() {
                        return Err("`port` comes twice: write one rule for each range".to_owned());
                    }
                }
                "priority" => {
                    let text = value(word)?;
                    let priority = text.parse().ok().filter(|priority: &u32| priority >> PRIORITY_BITS == 0);
                    let max = (1 << PRIORITY_BITS) - 1;
                    self.priority = Some(priority.ok_or(format!("`{text}` is no priority: write 0 to {max}"))?);
                }
                _ if has_protocol || side.is_some() => {
                    return Err(format!("`{}` is not understood: write from, to, port or priority", clip(word)));
                }
                "any" => has_protocol = true,
                _ => {
                    let unknown = || {
                        format!(
                            "`{}` is no protocol: write tcp, udp, icmp, icmpv6, sctp, any or a number, then from and to",
                            clip(word)
                        )
                    };
                    self.protocol = Some(protocol_number(word).ok_or_else(unknown)?);
                    has_protocol = true;
                }
            }
        }
        Ok(())
    }

    /// `source destination low : high low : high protocol/mask flags/mask`, the last of which may be missing.
    fn classbench(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        let mut next = |what: &str| {
            words.next().ok_or(format!(
                "{what} is missing: a rule of ClassBench has prefixes, ports `low : high` and protocol/mask"
            ))
        };
        "permit".clone_into(&mut self.action);
        self.prefixes = [prefix(next("the source")?)?, prefix(next("the destination")?)?];
        for at in 0..2 {
            let [low, colon, high] = [next("a port")?, next("`:`")?, next("a port")?];
            if colon != ":" {
                return Err(format!("`{}` is between two ports: write `low : high`", clip(colon)));
            }
            self.ports[at] = Some(ports(&format!("{low}-{high}"))?);
        }
        let text = next("the protocol")?;
        let unknown = || format!("`{}` is no protocol: write it like 0x06/0xFF, or 0x00/0x00 for any", clip(text));
        let (number, mask) = text.split_once('/').ok_or_else(unknown)?;
        self.protocol = match hex(mask).ok_or_else(unknown)? {
            0xFF => Some(hex(number).and_then(|number| u8::try_from(number).ok()).ok_or_else(unknown)?),
            0 => None,
            _ => return Err(unknown()),
        };
        self.had_flags =
            words.next().is_some_and(|flags| flags.split_once('/').and_then(|(_, mask)| hex(mask)) != Some(0));
        Ok(())
    }

    fn rule(self, line: u64, value: u32) -> Result<(ListedRule, bool), String> {
        let versions = self.prefixes.iter().flatten().map(|(address, _)| address.is_ipv4());
        let is_v4 = versions.clone().next();
        if versions.clone().any(|version| Some(version) != is_v4) {
            return Err("one prefix is IPv4 and the other IPv6: no packet has both".to_owned());
        }
        let of = |at: usize| self.prefixes[at].map_or(Prefix::ANY, |(address, len)| Prefix::new(address, len));
        let [source_ports, destination_ports] = self.ports.clone().map(|ports| ports.unwrap_or(ALL_PORTS));
        let rule = Rule {
            source: of(0),
            destination: of(1),
            source_ports,
            destination_ports,
            protocol: self.protocol,
            priority: self.priority.unwrap_or(0),
            value,
        };
        let Self { action, had_flags, .. } = self;
        Ok((ListedRule { line, action, is_v4, rule, had_flags }, self.priority.is_some()))
    }
}

fn hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text.trim_start_matches("0x").trim_start_matches("0X"), 16).ok()
}

/// A prefix, or none for `any`. The prefixes without bits say which version of IP is meant.
fn prefix(text: &str) -> Result<Option<(IpAddr, u8)>, String> {
    if text == "any" {
        return Ok(None);
    }
    let wrong = || format!("`{}` is no prefix: write it like 10.0.0.0/8 or 2001:db8::/32, or any", clip(text));
    let (address, len) = text.split_once('/').map_or((text, None), |(address, len)| (address, Some(len)));
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    let len: u8 = len.map_or(Ok(max), |len| len.parse().map_err(|_| wrong()))?;
    if len > max {
        return Err(format!("`{}` is no prefix: {address} has {max} bits", clip(text)));
    }
    Ok(Some((address, len)))
}

fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let wrong = || format!("`{}` is no range of ports: write it like 80 or 1024-65535", clip(text));
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (low, high) = (low.parse().map_err(|_| wrong())?, high.parse().map_err(|_| wrong())?);
    if low > high { Err(format!("`{}` has no port: write the smaller one first", clip(text))) } else { Ok(low..=high) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        let text = "# who may what\n\ndeny tcp from 10.6.0.0/16 to any port 22-23\npermit 6 to 192.0.2.0/24 port 443 # web\n\
            permit any from 2001:db8::/32 port 1024-65535\ndeny\n";
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
            ("permit tcpp", "is no protocol"),
            ("permit tcp udp", "is not understood"),
            ("permit port 80", "whose port"),
            ("permit from", "is the last word"),
            ("permit from 10.0.0.0/33", "has 32 bits"),
            ("permit from 10.0.0/8", "write it like"),
            ("permit from 10.0.0.0/8 to ::/0", "IPv4 and the other IPv6"),
            ("permit from any from any", "comes twice"),
            ("permit to any port 9-8", "smaller one first"),
            ("permit to any port 99999", "no range of ports"),
            ("permit priority 16777216", "no priority"),
            ("@1.2.3.4/32 5.6.7.8/32 0 : 1", "is missing"),
            ("@1.2.3.4/32 5.6.7.8/32 0 : 1 2 : 3 0x06/0x0F", "0x00/0x00 for any"),
        ] {
            let error = parse(&format!("deny\n{line}\n")).unwrap_err();
            assert!(error.line == 2 && error.reason.contains(says), "{line}: {error}");
        }
        let mixed = parse("deny priority 4\npermit\n").unwrap_err();
        assert!(mixed.line == 2 && mixed.reason.contains("priority N"), "{mixed}");
    }
}
