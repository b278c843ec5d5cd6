//! Lists of IP prefixes, as text and as dumps of routing tables ([`mrt`]).
//!
//! A line of a list is `prefix`, or a prefix and a next hop with a comma or white space between them. The length of the
//! prefix, or its mask, may stand apart, as in `10.0.0.0 8 eth1` and `10.0.0.0 255.0.0.0 eth1`. `default` is the prefix of all addresses:
//! of the version of IP that its next hop is an address of, else of both. A next hop is any text: an address, an interface, a port, the
//! number of an AS. Lines are those of [`text`](crate::text).

pub mod mrt;

use crate::name::clip;
use crate::text::address::{self, AnyPrefix, is_any, mask_len};
use crate::text::{Columns, Dialect, Line, LineError, Lines, Records};
use lookup::lpm::prefix::{Address, Prefix};
use lookup::lpm::trie::Settings;
use std::collections::HashMap;
use std::io::Read;
use std::net::IpAddr;

/// The most next hops of a list.
pub const MAX_HOPS: usize = 1 << 24;

/// Columns of lists.
pub const COLUMNS: Columns = &[
    &["prefix", "prefixes", "network", "networks", "route", "destination", "cidr"],
    &["nexthop", "hop", "via", "gateway", "interface", "port", "as", "asn", "origin"],
];

/// The prefixes of a list, each once, with the numbers of their next hops.
#[derive(Default)]
pub struct List {
    /// IPv4 prefixes, in the order of the list.
    pub ipv4: Vec<(Prefix<u32>, u64)>,
    /// IPv6 prefixes, in the order of the list.
    pub ipv6: Vec<(Prefix<u128>, u64)>,
    /// The names of the next hops, numbered from 1.
    pub hops: Vec<String>,
}

/// Where each prefix was read, and the numbers of the next hops.
#[derive(Default)]
pub struct Seen {
    ipv4: HashMap<Prefix<u32>, u64>,
    ipv6: HashMap<Prefix<u128>, u64>,
    hops: HashMap<String, u64>,
}

impl List {
    /// Reads a list, packed or not. Prefixes without a next hop get `next_hop`.
    /// # Errors
    /// The first line that is wrong.
    pub fn read(input: impl Read, next_hop: Option<&str>) -> Result<Self, LineError> {
        let (mut list, mut seen) = (Self::default(), Seen::default());
        for line in Records::new(Lines::new(input), Dialect::Plain, COLUMNS) {
            let line = line?;
            list.add_line(&line, next_hop, &mut seen).map_err(|reason| line.error(reason))?;
        }
        Ok(list)
    }

    fn add_line(&mut self, line: &Line, next_hop: Option<&str>, seen: &mut Seen) -> Result<(), String> {
        let (prefix, hop) = parts(&line.text)?;
        let hop = Some(&hop[..]).filter(|hop| !hop.is_empty()).or(next_hop).ok_or_else(|| {
            format!("{prefix} has no next hop: write {prefix},NEXT-HOP, or give one for all with --next-hop")
        })?;
        let prefixes = match is_any(&prefix) {
            true => default_by(hop.parse().ok()),
            false => vec![address::prefix(&prefix)?],
        };
        for one in prefixes {
            if let Some(line) = self.add(one, hop, line.number, seen)? {
                return Err(format!("{prefix} is on line {line} already: leave one of them"));
            }
        }
        Ok(())
    }

    /// Adds a prefix. If it was there already, returns the place where it was read.
    /// # Errors
    /// A text for the user, if there are too many.
    pub fn add(&mut self, prefix: AnyPrefix, hop: &str, place: u64, seen: &mut Seen) -> Result<Option<u64>, String> {
        let number = match seen.hops.get(hop) {
            Some(&number) => number,
            None => {
                self.hops.push(hop.to_owned());
                let number = self.hops.len() as u64;
                if self.hops.len() > MAX_HOPS || hop.len() > 255 {
                    return Err("at most 2^24 next hops, of at most 255 bytes each".into());
                }
                seen.hops.insert(hop.to_owned(), number);
                number
            }
        };
        match prefix {
            AnyPrefix::V4(prefix) => put(prefix, number, place, &mut self.ipv4, &mut seen.ipv4),
            AnyPrefix::V6(prefix) => put(prefix, number, place, &mut self.ipv6, &mut seen.ipv6),
        }
    }
}

/// The prefixes of all addresses that a next hop leads to.
pub fn default_by(hop: Option<IpAddr>) -> Vec<AnyPrefix> {
    let all = AnyPrefix::all().into_iter();
    all.filter(|prefix| hop.is_none_or(|hop| hop.is_ipv4() == prefix.is_v4())).collect()
}

/// The prefix of a line, with its length as it is written, and the next hop behind it, which may be empty.
/// # Errors
/// The reason.
pub fn parts(line: &str) -> Result<(String, String), String> {
    let fields = Dialect::Plain.fields(line)?;
    let (mut prefix, behind) = cut(&fields[0]);
    let mut pieces: Vec<&str> = [behind].into_iter().filter(|behind| !behind.is_empty()).collect();
    pieces.extend(fields[1..].iter().map(|field| &field[..]));
    // A length or a mask that stands apart.
    let apart;
    if let Some((len, rest)) = pieces.first().map(|piece| cut(piece))
        && !prefix.contains('/')
        && prefix.parse::<IpAddr>().is_ok()
        && is_len(len)
    {
        apart = format!("{prefix}/{len}");
        prefix = &apart;
        if rest.is_empty() {
            pieces.remove(0);
        } else {
            pieces[0] = rest;
        }
    }
    match pieces[..] {
        [] => Ok((prefix.to_owned(), String::new())),
        [hop] => Ok((prefix.to_owned(), hop.to_owned())),
        _ => Err(format!(
            "`{}` has {} fields behind its prefix: write one next hop, in double quotes if it has commas",
            clip(line),
            pieces.len()
        )),
    }
}

/// The first word, and what is behind it.
fn cut(text: &str) -> (&str, &str) {
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (first, rest.trim_start())
}

/// Whether a word behind an address is its length, or meant as its mask.
fn is_len(word: &str) -> bool {
    let is_mask = |ok: bool| ok || word.starts_with("0.") || word.starts_with("255.");
    is_number(word) || mask_len(word).is_some_and(|mask| is_mask(mask.is_ok()))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() <= 3 && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn put<A: Address>(
    prefix: Prefix<A>,
    hop: u64,
    place: u64,
    routes: &mut Vec<(Prefix<A>, u64)>,
    seen: &mut HashMap<Prefix<A>, u64>,
) -> Result<Option<u64>, String> {
    if routes.len() >= Settings::MAX_PREFIXES {
        return Err(format!("more than {} prefixes", Settings::MAX_PREFIXES));
    }
    let before = *seen.entry(prefix).or_insert(place);
    if before != place {
        return Ok(Some(before));
    }
    routes.push((prefix, hop));
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, next_hop: Option<&str>) -> Result<List, String> {
        List::read(text.as_bytes(), next_hop).map_err(|error| error.to_string())
    }

    #[test]
    fn lists_have_prefixes_of_both_versions_and_next_hops_of_any_kind() {
        let list = read("# routes\n\n10.0.0.0/8,192.0.2.1\n ::/0 , eth0 \n10.1.0.0/16,192.0.2.1\n", None).unwrap();
        assert_eq!(list.hops, ["192.0.2.1", "eth0"]);
        assert_eq!(list.ipv4.iter().map(|(_, hop)| *hop).collect::<Vec<_>>(), [1, 1]);
        assert_eq!(list.ipv6, [(Prefix::of(0, 0), 2)]);
        assert_eq!(read("0.0.0.0/0", Some("up")).unwrap().hops, ["up"]);
    }

    #[test]
    fn lists_are_read_with_their_usual_comments_and_columns() {
        let text = "# a\n; b\n// c\n! d\n% e\n 10.0.0.0/8 AS64500\n10.1.0.0/16\t64501 ; its origin\n\
                    10.2.0.0\t16\t64502_64503 # two\n2001:db8::/32 , up  \n10.3.0.0/16, port;1\n10.4.0.0/16 port 3\n";
        let list = read(text, None).unwrap();
        assert_eq!(list.hops, ["AS64500", "64501", "64502_64503", "up", "port;1", "port 3"]);
        assert_eq!(list.ipv4[2], ("10.2.0.0/16".parse().unwrap(), 3));
        assert_eq!(read("10.0.0.0 8\n10.1.0.0/16 # none\n", Some("up")).unwrap().ipv4.len(), 2);
    }

    #[test]
    fn wrong_lines_are_refused_with_their_number() {
        let refused = |text: &str| read(text, None).err().unwrap();
        assert!(refused("10.0.0.0/8,a\n10.0.0.1/8,a").starts_with("line 2: 10.0.0.1/8 has bits set behind its length"));
        assert!(refused("\n10.0.0.0/33,a").starts_with("line 2: a prefix of 33 bits"));
        assert!(refused("10.0.0.0,a").starts_with("line 1: `10.0.0.0` has no length"));
        assert!(refused("10.0.0.0 192.0.2.1").starts_with("line 1: `10.0.0.0` has no length"));
        assert!(refused("10.0.0.0 0.255.255.255 a").contains("wildcard mask: write 255.0.0.0"));
        assert!(refused("ten/8,a").starts_with("line 1: `ten/8` is not a prefix"));
        assert!(refused("10.0.0.0/8,a,b").contains("2 fields behind its prefix"));
        assert!(refused("default,a\n0.0.0.0/0,b").starts_with("line 2: 0.0.0.0/0 is on line 1 already"));
        assert!(refused("10.0.0.0/8").starts_with("line 1: 10.0.0.0/8 has no next hop"));
        assert!(refused("10.0.0.0/8,a\n#\n10.0.0.0/8,a").starts_with("line 3: 10.0.0.0/8 is on line 1 already"));
    }

    #[test]
    fn every_way_to_write_a_list_makes_the_same_list() {
        let plain = read("10.0.0.0/8,eth 1\n0.0.0.0/0,192.0.2.1\n::/0,fe80::1\n", None).unwrap();
        let list = |list: &List| (list.ipv4.clone(), list.ipv6.clone(), list.hops.clone());
        for text in [
            "\u{feff}# by hand\r\nPrefix,Next hop,,\r\n10.0.0.0 255.0.0.0 eth 1\r\ndefault,192.0.2.1\r\ndefault , fe80::1\r\n",
            "prefix nexthop\r10.0.0.0,255.0.0.0,eth 1\rany 192.0.2.1 ; up\rdefault\tfe80::1",
            "10.0.0.0/255.0.0.0,\"eth 1\",,\n0.0.0.0 0 192.0.2.1\n::,0,fe80::1\n,,\n",
        ] {
            assert_eq!(list(&read(text, None).unwrap()), list(&plain), "{text}");
        }
        let both = read("default,eth0", None).unwrap();
        assert_eq!((both.ipv4.len(), both.ipv6.len()), (1, 1));
    }
}
