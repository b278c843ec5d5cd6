//! Lists of IP prefixes.
//!
//! A line of a list is `prefix` or `prefix,next-hop`; empty lines and lines that begin with `#` are ignored. A next hop
//! is any text: an address, an interface, a port.

use std::collections::HashMap;
use std::io::{self, Read};
use std::path::Path;

use lookup::lpm::prefix::{Address, Prefix};
use lookup::lpm::trie::Settings;

use crate::open;
use crate::output::{Exit, Failure, OrExit};
use crate::text::TextReader;

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
    /// Reads a list, compressed with gzip or not; `-` is standard input.
    /// # Errors
    /// [`Exit::BadInput`] with the number of the line; [`Exit::NotFound`].
    pub fn read(path: &Path, next_hop: Option<&str>) -> anyhow::Result<Self> {
        let lines = TextReader::new(input(path)?).lines();
        Self::of_lines(lines, next_hop)
            .map_err(|text| Failure::new(Exit::BadInput, format!("{}: {text}", path.display())))
    }

    fn of_lines(lines: impl Iterator<Item = io::Result<String>>, next_hop: Option<&str>) -> Result<Self, String> {
        let (mut list, mut seen) = (Self::default(), Seen::default());
        for (number, line) in (1u64..).zip(lines) {
            let entry = || {
                let line = line.map_err(|error| error.to_string())?;
                let line = line.trim();
                if line.is_empty() || line.starts_with('#') {
                    return Ok(());
                }
                let (prefix, hop) = line.split_once(',').unwrap_or((line, ""));
                let (prefix, hop) = (prefix.trim(), hop.trim());
                let hop = Some(hop).filter(|hop| !hop.is_empty()).or(next_hop).ok_or_else(|| {
                    format!("{prefix} has no next hop: write {prefix},NEXT-HOP, or give one for all with --next-hop")
                })?;
                let twice = |line: u64| format!("{prefix} is on line {line} already: leave one of them");
                list.add(prefix, hop, number, &mut seen)?.map_or(Ok(()), |line| Err(twice(line)))
            };
            entry().map_err(|text: String| format!("line {number}: {text}"))?;
        }
        Ok(list)
    }

    /// Adds a prefix. If it was there already, returns the place where it was read.
    /// # Errors
    /// A text for the user, if the prefix is invalid or there are too many.
    pub fn add(&mut self, prefix: &str, hop: &str, place: u64, seen: &mut Seen) -> Result<Option<u64>, String> {
        let number = match seen.hops.get(hop) {
            Some(&number) => number,
            None => {
                self.hops.push(hop.to_owned());
                let number = self.hops.len() as u64;
                if number >= 1 << 15 || hop.len() > 255 {
                    return Err("at most 32,767 next hops, of at most 255 bytes each".into());
                }
                seen.hops.insert(hop.to_owned(), number);
                number
            }
        };
        if prefix.contains(':') {
            put(prefix, number, place, &mut self.ipv6, &mut seen.ipv6)
        } else {
            put(prefix, number, place, &mut self.ipv4, &mut seen.ipv4)
        }
    }
}

fn put<A: Address>(
    text: &str,
    hop: u64,
    place: u64,
    routes: &mut Vec<(Prefix<A>, u64)>,
    seen: &mut HashMap<Prefix<A>, u64>,
) -> Result<Option<u64>, String> {
    let prefix: Prefix<A> = text.parse().map_err(|error| format!("{error}"))?;
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

/// Opens a file to read, decompressing gzip; `-` is standard input.
/// # Errors
/// [`Exit::BadInput`] for what cannot be read; [`Exit::NotFound`].
pub fn input(path: &Path) -> anyhow::Result<Box<dyn Read>> {
    let mut input: Box<dyn Read> = match path.as_os_str() == "-" {
        true => Box::new(io::stdin()),
        false => Box::new(open(path)?),
    };
    let mut start = Vec::new();
    input.by_ref().take(2).read_to_end(&mut start).or_exit(Exit::BadInput, path.display())?;
    let is_packed = start == [0x1f, 0x8b];
    let whole = io::Cursor::new(start).chain(input);
    Ok(if is_packed { Box::new(flate2::read::MultiGzDecoder::new(whole)) } else { Box::new(whole) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, next_hop: Option<&str>) -> Result<List, String> {
        List::of_lines(text.lines().map(|line| Ok(line.to_owned())), next_hop)
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
    fn wrong_lines_are_refused_with_their_number() {
        let refused = |text: &str| read(text, None).err().unwrap();
        assert!(refused("10.0.0.0/8,a\n10.0.0.1/8,a").starts_with("line 2: 10.0.0.1/8 has bits set behind its length"));
        assert!(refused("\n10.0.0.0/33,a").starts_with("line 2: a prefix of 33 bits"));
        assert!(refused("10.0.0.0,a").starts_with("line 1: `10.0.0.0` has no length"));
        assert!(refused("ten/8,a").starts_with("line 1: `ten/8` is no IPv4 prefix"));
        assert!(refused("10.0.0.0/8").starts_with("line 1: 10.0.0.0/8 has no next hop"));
        assert!(refused("10.0.0.0/8,a\n#\n10.0.0.0/8,a").starts_with("line 3: 10.0.0.0/8 is on line 1 already"));
    }
}
