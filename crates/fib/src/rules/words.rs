//! The words of a rule.

use super::{Actions, ListedRule, MAX_ACTION};
use crate::name::{clip, protocol_number};
use crate::text::address::{AnyPrefix, digits, is_any, mask_len, ports, prefix_or_address};
use lookup::rules::{ALL_PORTS, PRIORITY_BITS, Prefix, Rule};
use std::ops::RangeInclusive;

const ICMP: u8 = 1;
pub(super) const ICMPV6: u8 = 58;

/// The protocols that a word means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocols {
    /// All.
    Any,
    /// `icmp`: ICMP in packets of IPv4, ICMPv6 in those of IPv6.
    Icmp,
    /// `icmpv6`.
    Icmpv6,
    /// One, in packets of both versions of IP.
    One(u8),
}

impl Protocols {
    /// Refuses a name of ICMP in a rule over addresses of the other version of IP, and ports where no packet has any.
    /// # Errors
    /// What to write.
    pub fn check(self, is_v4: Option<bool>, has_ports: bool) -> Result<(), String> {
        match (self, is_v4) {
            (Protocols::Icmp, Some(false)) => {
                Err("`icmp` is of IPv4, and the addresses are of IPv6: write icmpv6".to_owned())
            }
            (Protocols::Icmpv6, Some(true)) => {
                Err("`icmpv6` is of IPv6, and the addresses are of IPv4: write icmp".to_owned())
            }
            (Protocols::Icmp | Protocols::Icmpv6, _) if has_ports => {
                Err("packets of ICMP have no ports, so that the rule would match none: leave the port out".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// The protocols that a word means.
/// # Errors
/// The words that mean some.
pub fn protocols(word: &str) -> Result<Protocols, String> {
    if is_any(word) {
        return Ok(Protocols::Any);
    }
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    match protocol_number(word).filter(|_| is_number || word.starts_with(|c: char| c.is_ascii_alphabetic())) {
        Some(ICMP) if !is_number => Ok(Protocols::Icmp),
        Some(ICMPV6) if !is_number => Ok(Protocols::Icmpv6),
        Some(number) => Ok(Protocols::One(number)),
        None => Err(format!(
            "`{}` is not a protocol: write tcp, udp, icmp, icmpv6, sctp, any or a number from 0 to 255, then from and to",
            clip(word)
        )),
    }
}

/// Whether a word may be an action.
pub(super) fn is_action(word: &str) -> bool {
    let may_follow = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    word.starts_with(|c: char| c.is_ascii_alphabetic()) && word.len() <= MAX_ACTION && word.chars().all(may_follow)
}

pub(super) fn no_action(word: &str) -> String {
    format!(
        "`{}` is not an action: one is a word of letters, digits, `-`, `_` and `.` that begins with a letter, of at most {MAX_ACTION} bytes",
        clip(word)
    )
}

pub(super) fn has_commas(text: &str) -> String {
    format!(
        "`{}` has commas: a rule is words with white space between them, as in `permit tcp to 10.0.0.0/8 port 443`; \
         `fibula fib build` reads lists of names, `fibula lpm build` lists of prefixes",
        clip(text)
    )
}

/// The fields of a line.
#[derive(Default)]
pub(super) struct Parsed {
    pub(super) action: String,
    protocols: Option<Protocols>,
    /// Source and destination.
    prefixes: [Option<AnyPrefix>; 2],
    ports: [Option<RangeInclusive<u16>>; 2],
    priority: Option<u32>,
    had_flags: bool,
}

type Words<'a> = std::str::SplitWhitespace<'a>;

impl Parsed {
    pub(super) fn words(&mut self, words: &[&str], actions: &Actions) -> Result<(), String> {
        let (action, mut words) = words.split_first().unwrap_or((&"", &[]));
        let action = actions.named(action)?;
        action.clone_into(&mut self.action);
        let (mut side, mut seen) = (None, [false; 2]);
        while let Some((word, rest)) = words.split_first() {
            let value = || rest.first().copied().ok_or(format!("`{word}` is the last word: write what comes after it"));
            let mut n_taken = 2;
            match &word.to_ascii_lowercase()[..] {
                keyword @ ("from" | "to") => {
                    let at = usize::from(keyword == "to");
                    if std::mem::replace(&mut seen[at], true) {
                        return Err(format!("`{word}` comes twice: write one rule for each"));
                    }
                    let text = value()?;
                    if !is_any(text) {
                        // A mask may stand apart.
                        let is_address = text.parse::<std::net::IpAddr>().is_ok();
                        let mask = rest.get(1).filter(|mask| is_address && mask_len(mask).is_some());
                        n_taken += usize::from(mask.is_some());
                        let prefix = match mask {
                            Some(mask) => prefix_or_address(&format!("{text}/{mask}")),
                            None => prefix_or_address(text),
                        };
                        self.prefixes[at] = Some(prefix?);
                    }
                    side = Some(at);
                }
                "port" => {
                    let at = side.ok_or("write `port` behind `from` or `to`, which say whose port it is")?;
                    if self.ports[at].replace(ports(value()?)?).is_some() {
                        return Err("`port` comes twice: write one rule for each range".to_owned());
                    }
                }
                "priority" => {
                    let text = value()?;
                    let priority = digits(text).filter(|priority: &u32| priority >> PRIORITY_BITS == 0);
                    let max = (1 << PRIORITY_BITS) - 1;
                    self.priority =
                        Some(priority.ok_or(format!("`{}` is not a priority: write 0 to {max}", clip(text)))?);
                }
                _ if self.protocols.is_some() || side.is_some() => {
                    return Err(format!("`{}` is not understood: write from, to, port or priority", clip(word)));
                }
                _ => {
                    self.protocols = Some(protocols(word)?);
                    n_taken = 1;
                }
            }
            words = &words[n_taken..];
        }
        if self.protocols.is_none() && side.is_none() {
            return Err(format!("`{action}` does not say for what: write `{action} any` if it is for all packets"));
        }
        Ok(())
    }

    /// `source destination low : high low : high protocol/mask flags/mask`, the last of which may be missing.
    pub(super) fn classbench(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        let mut next = |what: &str| {
            words.next().ok_or(format!(
                "{what} is missing: a rule of ClassBench has prefixes, ports `low : high` and protocol/mask"
            ))
        };
        for (at, what) in ["the source", "the destination"].into_iter().enumerate() {
            self.prefixes[at] = Some(prefix_or_address(next(what)?)?);
        }
        for at in 0..2 {
            let [low, colon, high] = [next("a port")?, next("`:`")?, next("a port")?];
            if colon != ":" {
                return Err(format!("`{}` is between two ports: write `low : high`", clip(colon)));
            }
            self.ports[at] = Some(ports(&format!("{low}-{high}"))?);
        }
        let text = next("the protocol")?;
        let unknown = || format!("`{}` is not a protocol: write it like 0x06/0xFF, or 0x00/0x00 for any", clip(text));
        let (number, mask) = text.split_once('/').ok_or_else(unknown)?;
        self.protocols = Some(match hex(mask).ok_or_else(unknown)? {
            0xFF => Protocols::One(hex(number).and_then(|number| u8::try_from(number).ok()).ok_or_else(unknown)?),
            0 => Protocols::Any,
            _ => return Err(unknown()),
        });
        self.had_flags =
            words.next().is_some_and(|flags| flags.split_once('/').and_then(|(_, mask)| hex(mask)) != Some(0));
        Ok(())
    }

    pub(super) fn rule(self, line: u64, value: u32) -> Result<(ListedRule, bool), String> {
        let versions = self.prefixes.iter().flatten().map(|prefix| prefix.is_v4());
        let is_v4 = versions.clone().next();
        if versions.clone().any(|version| Some(version) != is_v4) {
            return Err("one prefix is IPv4 and the other IPv6: no packet has both".to_owned());
        }
        let protocols = self.protocols.unwrap_or(Protocols::Any);
        protocols.check(is_v4, self.ports.iter().flatten().next().is_some())?;
        let (protocol, is_v4) = match protocols {
            Protocols::Any => (None, is_v4),
            Protocols::Icmp => (Some(ICMP), is_v4),
            Protocols::Icmpv6 => (Some(ICMPV6), Some(false)),
            Protocols::One(number) => (Some(number), is_v4),
        };
        let of = |at: usize| {
            self.prefixes[at].map_or(Prefix::ANY, |prefix: AnyPrefix| Prefix::new(prefix.address(), prefix.len()))
        };
        let [source_ports, destination_ports] = self.ports.clone().map(|ports| ports.unwrap_or(ALL_PORTS));
        let rule = Rule {
            source: of(0),
            destination: of(1),
            source_ports,
            destination_ports,
            protocol,
            priority: self.priority.unwrap_or(0),
            value,
        };
        let is_any_icmp = protocols == Protocols::Icmp && is_v4.is_none();
        let Self { action, had_flags, .. } = self;
        Ok((ListedRule { line, action, is_v4, rule, is_any_icmp, had_flags }, self.priority.is_some()))
    }
}

fn hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text.trim_start_matches("0x").trim_start_matches("0X"), 16).ok()
}
