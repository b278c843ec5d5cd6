//! A list says the same however an editor, a spreadsheet, a router or an archive wrote it, to every reader.

use fibula_fib as fib;

use fib::list::{Layout, List};
use fib::name::NameKind;
use fib::prefixes;
use fib::rules::{Actions, read as read_rules};
use fib::text::{Dialect, Lines};
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::Ipv4Addr;

/// Choices that follow from a seed.
struct Choices(u64);

impl Choices {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len() as u64) as usize]
    }
}

/// The bytes of a file with these lines of fields, in one of the many ways to write it.
fn written(lines: &[Vec<String>], header: &str, separators: &[&str], choices: &mut Choices) -> Vec<u8> {
    let mut text = choices.of(&["", "\u{feff}"]).to_owned();
    let end = choices.of(&["\n", "\r\n", "\r"]);
    let tail = choices.of(&["", ",", ",,,", " , ,"]);
    let nothing = |choices: &mut Choices| {
        choices.of(&["", " ", "\t", ",,,", "# a comment", "; a, comment", "// x", "! x", "%", " # \"x"]).to_owned()
    };
    if choices.below(2) == 0 {
        let _ = write!(text, "{}{end}", nothing(choices));
    }
    if choices.below(2) == 0 {
        let _ = write!(text, "{header}{tail}{end}");
    }
    for fields in lines {
        if choices.below(4) == 0 {
            let _ = write!(text, "{}{end}", nothing(choices));
        }
        let separator = choices.of(separators);
        let field = |field: &String| match choices.below(3) {
            0 if separator.contains(',') => format!("\"{field}\""),
            1 if separator.contains(',') => format!(" {field}\t"),
            _ => field.clone(),
        };
        text += &fields.iter().map(field).collect::<Vec<_>>().join(separator);
        text += tail;
        text += choices.of(&["", " ", "\t# to the end", " ; to, the end"]);
        text += end;
    }
    if choices.below(2) == 0 {
        text.truncate(text.trim_end_matches(['\r', '\n']).len());
    }
    match choices.below(3) {
        0 => text.into_bytes(),
        1 => {
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            packed.write_all(text.as_bytes()).unwrap();
            packed.finish().unwrap()
        }
        _ => {
            let mut packed = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            packed.write_all(text.as_bytes()).unwrap();
            packed.finish().unwrap()
        }
    }
}

fn mac(number: u64, choices: &mut Choices) -> String {
    let digits = format!("02{number:010x}");
    let grouped = |n: usize, sign: &str| {
        digits.as_bytes().chunks(n).map(|group| str::from_utf8(group).unwrap()).collect::<Vec<_>>().join(sign)
    };
    let text = [grouped(2, ":"), grouped(2, "-"), grouped(4, "."), digits.clone()][choices.below(4) as usize].clone();
    if choices.below(2) == 0 { text.to_uppercase() } else { text }
}

fn prefix((address, len): (u32, u8), choices: &mut Choices) -> String {
    let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
    let (address, mask) = (Ipv4Addr::from(address & mask), Ipv4Addr::from(mask));
    match choices.below(4) {
        0 if len == 0 => "any".to_owned(),
        1 => format!("{address}/{mask}"),
        2 => format!("{address} {mask}"),
        _ => format!("{address}/{len}"),
    }
}

fn cased(text: &str, choices: &mut Choices) -> String {
    match choices.below(3) {
        0 => text.to_uppercase(),
        _ => text.to_owned(),
    }
}

proptest! {
    #[test]
    fn names_are_the_same_in_every_dialect(
        names in proptest::collection::btree_map(0u64..1 << 40, 0u16..100, 1..20), seed in any::<u64>(),
    ) {
        let mut choices = Choices(seed);
        let with_actions: Vec<_> =
            names.iter().map(|(name, port)| vec![mac(*name, &mut choices), format!("port:{port}")]).collect();
        let bytes = written(&with_actions, choices.of(&["name,action", "MAC address, Action"]), &[","], &mut choices);
        let list = List::new(NameKind::Mac, Layout::Csv, Lines::new(&bytes[..]));
        let read: Vec<_> = list.map(|entry| entry.map(|e| (e.name.to_string(), e.action.unwrap().to_string()))).collect::<Result<_, _>>()
            .map_err(|error| TestCaseError::fail(format!("{error}: {:?}", String::from_utf8_lossy(&bytes))))?;
        let plain: Vec<_> = names.iter().map(|(name, port)| {
            let name = fib::name::Name::from_bytes(NameKind::Mac, &(2 << 40 | name).to_be_bytes()[2..]).unwrap();
            (name.to_string(), format!("port:{port}"))
        }).collect();
        prop_assert_eq!(&read, &plain);

        // Names alone, as lists, and as the questions of a look-up.
        let alone: Vec<_> = names.keys().map(|name| vec![mac(*name, &mut choices)]).collect();
        let bytes = written(&alone, choices.of(&["name", "MAC address", "\"mac_address\""]), &[","], &mut choices);
        let list = List::new(NameKind::Mac, Layout::Plain, Lines::new(&bytes[..]));
        let read: Vec<_> = list.map(|entry| entry.unwrap().name.to_string()).collect();
        let only: Vec<_> = plain.into_iter().map(|(name, _)| name).collect();
        prop_assert_eq!(&read, &only);
        let name = |text: &str| fib::name::Name::parse(NameKind::Mac, text).unwrap();
        let read: Vec<_> = fib::text::names(Lines::new(&bytes[..]), Dialect::Plain).map(|line| name(&line.unwrap().text).to_string()).collect();
        prop_assert_eq!(&read, &only);
    }

    #[test]
    fn prefixes_are_the_same_in_every_dialect(
        routes in proptest::collection::btree_map((any::<u32>(), 0u8..=32), 0u16..9, 1..20), seed in any::<u64>(),
    ) {
        let mut choices = Choices(seed);
        let mut masked = std::collections::BTreeMap::new();
        for ((address, len), hop) in routes {
            let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            masked.insert((address & mask, len), Ipv4Addr::from(0xc000_0200 | u32::from(hop)).to_string());
        }
        let plain: String = masked.iter().map(|((address, len), hop)| format!("{}/{len},{hop}\n", Ipv4Addr::from(*address))).collect();
        let lines: Vec<_> = masked.iter().map(|(one, hop)| vec![prefix(*one, &mut choices), hop.clone()]).collect();
        let bytes = written(&lines, choices.of(&["prefix,via", "Network,Next hop"]), &[",", " ", "\t", " , "], &mut choices);
        let read = |bytes: &[u8]| prefixes::List::read(bytes, None).map(|list| (list.ipv4, list.ipv6, list.hops));
        let got = read(&bytes).map_err(|error| TestCaseError::fail(format!("{error}: {:?}", String::from_utf8_lossy(&bytes))))?;
        prop_assert_eq!(got, read(plain.as_bytes()).unwrap());
    }

    #[test]
    fn rules_are_the_same_in_every_dialect(
        rules in proptest::collection::vec((any::<bool>(), 0usize..4, (any::<u32>(), 0u8..=32), any::<Option<u16>>()), 1..20),
        seed in any::<u64>(),
    ) {
        let mut choices = Choices(seed);
        let (mut plain, mut lines) = (String::new(), Vec::new());
        for (permits, protocol, (address, len), port) in rules {
            let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            let action = if permits { "permit" } else { "deny" };
            let (protocol, port) = (["any", "tcp", "udp", "17"][protocol], port.map(|port| format!(" port {port}")).unwrap_or_default());
            let shown = if len == 0 { "any".to_owned() } else { format!("{}/{len}", Ipv4Addr::from(address & mask)) };
            let _ = writeln!(plain, "{action} {protocol} to {shown}{port}");
            let to = if len == 0 { choices.of(&["any", "default"]).to_owned() } else { prefix((address, len), &mut choices) };
            let words = format!("{action} {protocol} to {to}{port}");
            lines.push(vec![cased(&words, &mut choices)]);
        }
        let bytes = written(&lines, "Rule", &[","], &mut choices);
        let read = |bytes: &[u8]| read_rules(bytes, &Actions::default()).map(|rules| {
            rules.into_iter().map(|listed| (listed.action, listed.is_v4, listed.rule)).collect::<Vec<_>>()
        });
        let got = read(&bytes).map_err(|error| TestCaseError::fail(format!("{error}: {:?}", String::from_utf8_lossy(&bytes))))?;
        prop_assert_eq!(got, read(plain.as_bytes()).unwrap());
    }
}
