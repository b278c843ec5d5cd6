//! Prefixes from outside: lists of text, and table dumps in MRT (RFC 6396).
//!
//! A line of a list is `prefix` or `prefix,next-hop`; empty lines and those that begin with `#` say nothing. A next hop
//! is any text: an address, an interface, a port. Of a dump the first route to a prefix counts, for which next hop a
//! router would take of several is not in it.

use std::collections::HashMap;
use std::io::{self, BufReader, Read};
use std::path::Path;

use bgpkit_parser::BgpkitParser;
use lookup::lpm::prefix::{Address, Prefix};
use lookup::lpm::trie::Settings;

use crate::lines::TextReader;
use crate::output::{Exit, Failure, OrExit};
use crate::whole::open;

/// What a list is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Format {
    /// A prefix a line.
    Text,
    /// A routing table dump, TABLE_DUMP or TABLE_DUMP_V2.
    Mrt,
}

/// The prefixes of a list, each once, with the numbers of their next hops.
#[derive(Default)]
pub(crate) struct List {
    pub(crate) ipv4: Vec<(Prefix<u32>, u64)>,
    pub(crate) ipv6: Vec<(Prefix<u128>, u64)>,
    /// The names of the next hops, from number 1 on.
    pub(crate) hops: Vec<String>,
}

/// What was read, and where.
#[derive(Default)]
struct Seen {
    ipv4: HashMap<Prefix<u32>, u64>,
    ipv6: HashMap<Prefix<u128>, u64>,
    hops: HashMap<String, u64>,
}

impl List {
    /// Reads a list; `-` is standard input.
    /// # Errors
    /// [`Exit::BadInput`] with the number of the line, or of the record of a dump; [`Exit::NotFound`].
    pub(crate) fn read(path: &Path, format: Format, next_hop: Option<&str>) -> anyhow::Result<Self> {
        let what = path.display().to_string();
        let input: Box<dyn Read> = match path.as_os_str() == "-" {
            true => Box::new(io::stdin()),
            false => Box::new(open(path)?),
        };
        let input = unpacked(input).or_exit(Exit::BadInput, &what)?;
        match format {
            Format::Text => Self::of_lines(TextReader::new(input).lines(), next_hop),
            Format::Mrt => Self::of_dump(input, next_hop),
        }
        .map_err(|text| Failure::new(Exit::BadInput, format!("{what}: {text}")))
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

    fn of_dump(input: impl Read, next_hop: Option<&str>) -> Result<Self, String> {
        let (mut list, mut seen) = (Self::default(), Seen::default());
        for (number, route) in (1u64..).zip(BgpkitParser::from_reader(BufReader::new(input)).into_fallible_elem_iter())
        {
            let route = route.map_err(|error| format!("route {number}: {error}"))?;
            let hop = route.next_hop.map(|hop| hop.to_string());
            let hop = hop.as_deref().or(next_hop).unwrap_or("unknown");
            let prefix = route.prefix.prefix.to_string();
            list.add(&prefix, hop, number, &mut seen).map_err(|text| format!("route {number}: {text}"))?;
        }
        if seen.ipv4.is_empty() && seen.ipv6.is_empty() {
            return Err("there is no route in it; is it an MRT table dump?".into());
        }
        Ok(list)
    }

    /// Adds a prefix, unless it was there: then where.
    fn add(&mut self, prefix: &str, hop: &str, place: u64, seen: &mut Seen) -> Result<Option<u64>, String> {
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

/// What gzip packed, unpacked; other bytes as they are.
fn unpacked(mut input: Box<dyn Read>) -> io::Result<Box<dyn Read>> {
    let mut start = Vec::new();
    input.by_ref().take(2).read_to_end(&mut start)?;
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

    /// A TABLE_DUMP_V2: an index of one peer, then one IPv4 prefix with one route by that peer.
    #[test]
    fn table_dumps_are_read() {
        fn record(subtype: u16, body: &[u8]) -> Vec<u8> {
            let mut record = vec![0; 4];
            record.extend(13u16.to_be_bytes());
            record.extend(subtype.to_be_bytes());
            record.extend((body.len() as u32).to_be_bytes());
            record.extend(body);
            record
        }
        // Collector, no view name, one peer: IPv4, AS of 4 bytes.
        let peers = [&[1, 1, 1, 1, 0, 0, 0, 1, 2][..], &[2, 2, 2, 2], &[192, 0, 2, 9], &[0, 0, 0xfd, 0xe8]].concat();
        // ORIGIN, AS_PATH of one, NEXT_HOP.
        let attributes =
            [&[0x40, 1, 1, 0][..], &[0x40, 2, 6, 2, 1, 0, 0, 0xfd, 0xe8], &[0x40, 3, 4, 192, 0, 2, 9]].concat();
        let mut route = vec![0, 0, 0, 0, 16, 10, 1, 0, 1, 0, 0, 0, 0, 0, 0];
        route.extend((attributes.len() as u16).to_be_bytes());
        route.extend(&attributes);
        let dump = [record(1, &peers), record(2, &route)].concat();
        let list = List::of_dump(&dump[..], None).unwrap();
        assert_eq!(list.ipv4, [("10.1.0.0/16".parse().unwrap(), 1)]);
        assert_eq!(list.hops, ["192.0.2.9"]);
        assert!(List::of_dump(&b"this is no dump, but long enough for a header"[..], None).is_err());
    }
}
