//! Search as you type: the names whose text begins with some characters, in the order of their bytes.
//!
//! Cost: where the order of texts follows that of bytes, a search is one or a few ranges of names, and reads only what it
//! returns. A range that is too wide (IPv6 with `::` in it, the later fields of flows) is read name by name, and
//! [`MOST_READ`] names of it at most.

use crate::name::{Name, NameKind};
use crate::rib::{Attachment, Rib};
use std::net::Ipv4Addr;

/// Names that a search reads at most.
pub const MOST_READ: usize = 50_000;

/// The first names whose text begins with some characters.
#[derive(Debug, Default)]
pub struct Found {
    /// In the order of their bytes.
    pub names: Vec<(Name, Attachment)>,
    /// Whether there are more, or may be: the search has read [`MOST_READ`] names.
    pub more: bool,
}

/// Bytes from the lower bound to the upper one, both included, of as many bytes.
type Span = (Vec<u8>, Vec<u8>);

/// The first `limit` names whose text begins with `text`, whatever the case of hexadecimal digits; MAC addresses also with `-`
/// or nothing between the bytes.
pub fn search(rib: &Rib, kind: NameKind, text: &str, limit: usize) -> Found {
    let mut found = Found::default();
    let wanted = plain(kind, text);
    let mut n_read = 0;
    for (lower, upper) in spans(kind, text.trim()) {
        let first = (!lower.is_empty()).then(|| first_of(kind, &lower)).flatten();
        let exact = first.as_ref().and_then(|name| Some((name.clone(), rib.get(name)?)));
        for (name, attachment) in exact.into_iter().chain(rib.page(first.as_ref(), usize::MAX)) {
            let bytes = name.as_bytes();
            if bytes.get(..upper.len()).unwrap_or(bytes) > &upper[..] {
                break;
            }
            n_read += 1;
            if n_read > MOST_READ {
                found.more = true;
                return found;
            }
            if !plain(kind, &name.to_string()).starts_with(&wanted) {
                continue;
            }
            if found.names.len() == limit {
                found.more = true;
                return found;
            }
            found.names.push((name, attachment));
        }
    }
    found
}

/// Whether the text of any name of a kind can begin so.
pub fn may_begin(kind: NameKind, text: &str) -> bool {
    !spans(kind, text.trim()).is_empty()
}

/// A text as it is compared: with small letters, and a MAC address without what stands between its bytes.
fn plain(kind: NameKind, text: &str) -> String {
    match kind {
        NameKind::Text => text.to_owned(),
        NameKind::Mac => text.chars().filter(|c| !":-.".contains(*c)).map(|c| c.to_ascii_lowercase()).collect(),
        _ => text.trim().to_ascii_lowercase(),
    }
}

/// A name at the start of a span, from which the order of names is read. None: from the first name on.
fn first_of(kind: NameKind, lower: &[u8]) -> Option<Name> {
    let width = match kind {
        // An IPv4 flow: its source comes first, and whatever follows a source of zeros is at least that.
        NameKind::FiveTuple => 13,
        kind => kind.width().unwrap_or(lower.len()),
    };
    let mut bytes = lower.to_vec();
    bytes.resize(width.max(lower.len()), 0);
    Name::from_bytes(kind, &bytes).ok()
}

/// The range of names whose text begins with this, in the order of bytes. None if no text of the kind does.
fn spans(kind: NameKind, text: &str) -> Vec<Span> {
    let everything = || vec![(Vec::new(), Vec::new())];
    if text.is_empty() {
        return everything();
    }
    match kind {
        // No name begins with something longer than itself.
        NameKind::Text if Name::from_bytes(kind, text.as_bytes()).is_err() => Vec::new(),
        NameKind::Text => vec![(text.as_bytes().to_vec(), text.as_bytes().to_vec())],
        NameKind::Mac => nibbles(&plain(kind, text), 6).into_iter().collect(),
        NameKind::Teid | NameKind::Fixed(_) => {
            let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
            match digits {
                Some(digits) => nibbles(digits, kind.width().unwrap_or(4)).into_iter().collect(),
                None if text == "0" => everything(),
                None => Vec::new(),
            }
        }
        NameKind::Ipv4 => octets(text),
        NameKind::Ipv6 => groups(text),
        NameKind::FiveTuple => {
            let source = text.split_once(':').map_or(text, |(source, _)| source);
            if text.starts_with('[') { everything() } else { octets(source) }
        }
    }
}

/// Half bytes from hexadecimal digits, and any that follow.
fn nibbles(digits: &str, width: usize) -> Option<Span> {
    if digits.len() > 2 * width {
        return None;
    }
    let given: Vec<u8> = digits.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    let fill = |with: u8| {
        let at = |i: usize| given.get(i).copied().unwrap_or(with);
        (0..digits.len().div_ceil(2)).map(|byte| at(2 * byte) << 4 | at(2 * byte + 1)).collect()
    };
    Some((fill(0), fill(0xf)))
}

/// The numbers whose text in a base begins with these digits.
fn numbers_from(digits: &str, base: u32, most: u32) -> Vec<(u32, u32)> {
    let Ok(first) = u32::from_str_radix(digits, base) else { return Vec::new() };
    if digits.len() > 1 && digits.starts_with('0') {
        return Vec::new();
    }
    let mut spans = Vec::new();
    let (mut low, mut high) = (first, first);
    while low <= most {
        spans.push((low, high.min(most)));
        if first == 0 {
            break;
        }
        (low, high) = (low * base, high * base + base - 1);
    }
    spans
}

fn octets(text: &str) -> Vec<Span> {
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        // The last number may go on.
        let bytes = address.octets().to_vec();
        let last = numbers_from(text.rsplit('.').next().unwrap_or_default(), 10, 255);
        let span = |(low, high): (u32, u32)| {
            let end = |last: u32| [&bytes[..3], &[last as u8]].concat();
            (end(low), end(high))
        };
        return last.into_iter().map(span).collect();
    }
    let mut parts: Vec<&str> = text.split('.').collect();
    let Some(last) = parts.pop().filter(|_| parts.len() < 4) else { return Vec::new() };
    let whole: Option<Vec<u8>> = parts.iter().map(|part| part.parse().ok()).collect();
    let Some(whole) = whole else { return Vec::new() };
    if last.is_empty() {
        return vec![(whole.clone(), whole)];
    }
    let span = |(low, high): (u32, u32)| ([&whole[..], &[low as u8]].concat(), [&whole[..], &[high as u8]].concat());
    numbers_from(last, 10, 255).into_iter().map(span).collect()
}

fn groups(text: &str) -> Vec<Span> {
    let (before, squeezed) = match text.split_once("::") {
        Some((before, _)) => (before, true),
        None if text == ":" => ("", true),
        None => (text, false),
    };
    let mut parts: Vec<&str> = if before.is_empty() { Vec::new() } else { before.split(':').collect() };
    // The last group may go on, unless something follows it.
    let open = if squeezed { None } else { parts.pop() };
    let whole: Option<Vec<[u8; 2]>> =
        parts.iter().map(|part| u16::from_str_radix(part, 16).ok().map(u16::to_be_bytes)).collect();
    let Some(whole) = whole.filter(|whole| whole.len() < 8) else { return Vec::new() };
    let whole = whole.concat();
    match open {
        None | Some("") => vec![(whole.clone(), whole)],
        Some(last) => {
            let span = |(low, high): (u32, u32)| {
                let end = |group: u32| [&whole[..], &(group as u16).to_be_bytes()].concat();
                (end(low), end(high))
            };
            numbers_from(last, 16, 0xffff).into_iter().map(span).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::PortId;
    use crate::topology::NodeId;
    use lookup::hash::{Family, Hasher, SecretKey};
    use std::net::Ipv6Addr;

    fn rib_of(kind: NameKind, texts: impl IntoIterator<Item = String>) -> Rib {
        let hasher = Hasher::new(Family::MulAdd, &SecretKey::from_seed(7));
        let mut rib = Rib::new(kind, 1 << 20, hasher);
        for text in texts {
            rib.upsert(&Name::parse(kind, &text).unwrap(), Attachment::new(NodeId(1), PortId(1))).unwrap();
        }
        rib
    }

    fn texts(found: &Found) -> Vec<String> {
        found.names.iter().map(|(name, _)| name.to_string()).collect()
    }

    /// What a search must find: a look at every name.
    fn by_looking(rib: &Rib, kind: NameKind, text: &str) -> Vec<String> {
        let all = rib.page(None, usize::MAX).map(|(name, _)| name.to_string());
        all.filter(|name| plain(kind, name).starts_with(&plain(kind, text))).collect()
    }

    #[test]
    fn a_search_finds_what_a_look_at_every_name_finds() {
        let seed = lookup::testkit::seed();
        println!("seed {seed}");
        let mut state = seed | 1;
        let mut next = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut few = |n: u64| [0, 1, 2, 9, 10, 12, 19, 25, 100, 101, 199, 255][next(n.min(12)) as usize];
        let v4: Vec<String> = (0..3000).map(|_| format!("{}.{}.{}.{}", 10, few(4), few(12), few(12))).collect();
        let macs = v4.iter().map(|ip| {
            let b: Ipv4Addr = ip.parse().unwrap();
            let [a, b, c, d] = b.octets();
            format!("02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
        });
        let v6 = v4.iter().map(|ip| {
            let [_, b, c, d] = ip.parse::<Ipv4Addr>().unwrap().octets();
            Ipv6Addr::from([0xfd00, 0, 0, u16::from(b) * 16, 0, 0, u16::from(c), u16::from(d) * 100]).to_string()
        });
        let words = v4.iter().map(|ip| format!("content/{}", ip.replace('.', "/")));
        let flows = v4.iter().map(|ip| format!("{ip}:80->10.1.2.3:443/tcp"));
        let teids = v4.iter().map(|ip| format!("0x{:08x}", u32::from(ip.parse::<Ipv4Addr>().unwrap())));
        let sets: [(NameKind, Vec<String>); 6] = [
            (NameKind::Mac, macs.collect()),
            (NameKind::Ipv4, v4.clone()),
            (NameKind::Ipv6, v6.collect()),
            (NameKind::Text, words.collect()),
            (NameKind::FiveTuple, flows.collect()),
            (NameKind::Teid, teids.collect()),
        ];
        for (kind, names) in sets {
            let rib = rib_of(kind, names.iter().cloned());
            for name in names.iter().step_by(97) {
                let canonical = Name::parse(kind, name).unwrap().to_string();
                for end in 0..=canonical.len() {
                    let text = &canonical[..end];
                    let expected = by_looking(&rib, kind, text);
                    let all = search(&rib, kind, text, usize::MAX);
                    assert_eq!(texts(&all), expected, "{kind}: `{text}`");
                    assert!(!all.more);
                    let some = search(&rib, kind, text, 5);
                    assert_eq!(texts(&some)[..], expected[..expected.len().min(5)], "{kind}: `{text}`");
                    assert_eq!(some.more, expected.len() > 5, "{kind}: `{text}`");
                }
            }
        }
    }

    #[test]
    fn what_begins_no_name_finds_nothing_and_case_and_separators_do_not_matter() {
        let rib = rib_of(NameKind::Mac, ["02:00:ab:00:00:01".to_owned()]);
        for text in ["02:00:AB", "0200ab", "02-00-Ab-0", "2", "zz", "02:00:ab:00:00:01:02", "é", "<script>"] {
            let is_prefix = plain(NameKind::Mac, "02:00:ab:00:00:01").starts_with(&plain(NameKind::Mac, text));
            assert_eq!(search(&rib, NameKind::Mac, text, 9).names.len(), usize::from(is_prefix), "{text}");
        }
        let rib = rib_of(NameKind::Ipv4, ["10.0.0.1".to_owned()]);
        for text in ["10.0.0.01", "010", "1000", "10.0.0.0.1", "10..0", ".", "256", "10.0.0.1.", "-1"] {
            assert!(search(&rib, NameKind::Ipv4, text, 9).names.is_empty(), "{text}");
        }
    }

    #[test]
    fn a_wide_search_reads_only_so_much() {
        let names = (0..60_000_u32).map(|i| format!("[fd00::{:x}:{:x}]:1->[fd00::1]:2/udp", i >> 16, i & 0xffff));
        let rib = rib_of(NameKind::FiveTuple, names);
        let found = search(&rib, NameKind::FiveTuple, "[fe", 9);
        assert!(found.more && found.names.is_empty());
    }
}
