//! Lists of IP prefixes.
//!
//! A line of a list is `prefix`, or a prefix and a next hop with a comma or white space between them. The length of the
//! prefix may stand apart, as in `10.0.0.0 8 eth1`. A next hop is any text: an address, an interface, a port, the number
//! of an AS. Empty lines are ignored, as are lines that begin with a [sign](COMMENTS) of a comment. A comment at the end
//! of a line begins with white space and `#` or `;`.

use std::collections::HashMap;
use std::io::{self, Read};
use std::path::Path;

use lookup::lpm::prefix::{Address, Prefix};
use lookup::lpm::trie::Settings;

use crate::open;
use crate::output::{Exit, Failure, OrExit};
use crate::text::TextReader;

/// Signs that begin a line without a prefix.
pub const COMMENTS: [&str; 5] = ["#", ";", "//", "!", "%"];

/// The most next hops of a list.
pub const MAX_HOPS: usize = 1 << 24;

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
        Self::of_input(input(path)?, next_hop)
            .map_err(|text| Failure::new(Exit::BadInput, format!("{}: {text}", path.display())))
    }

    /// Reads a list from bytes that are not compressed.
    /// # Errors
    /// A text for the user, with the number of the line.
    pub fn of_input(input: impl Read, next_hop: Option<&str>) -> Result<Self, String> {
        Self::of_lines(TextReader::new(input).lines(), next_hop)
    }

    fn of_lines(lines: impl Iterator<Item = io::Result<String>>, next_hop: Option<&str>) -> Result<Self, String> {
        let (mut list, mut seen) = (Self::default(), Seen::default());
        for (number, line) in (1u64..).zip(lines) {
            let entry = || {
                let line = line.map_err(|error| error.to_string())?;
                let line = line.trim();
                if line.is_empty() || COMMENTS.iter().any(|sign| line.starts_with(sign)) {
                    return Ok(());
                }
                let (prefix, hop) = cut(without_comment(line));
                let apart;
                let (prefix, hop) = match cut(hop) {
                    (len, hop) if !prefix.contains('/') && is_number(len) => {
                        apart = format!("{prefix}/{len}");
                        (&apart[..], hop)
                    }
                    _ => (prefix, hop),
                };
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
                if self.hops.len() > MAX_HOPS || hop.len() > 255 {
                    return Err("at most 2^24 next hops, of at most 255 bytes each".into());
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

/// The first word of a line, and what comes after a comma or white space.
fn cut(line: &str) -> (&str, &str) {
    let (first, rest) = line.split_once(|sign: char| sign == ',' || sign.is_whitespace()).unwrap_or((line, ""));
    let rest = rest.trim_start();
    // White space before the comma.
    (first, rest.strip_prefix(',').map_or(rest, str::trim_start))
}

/// A line without the comment at its end.
fn without_comment(line: &str) -> &str {
    let begins = |(at, sign): (usize, char)| matches!(sign, '#' | ';') && line[..at].ends_with(char::is_whitespace);
    let end = line.char_indices().find(|&sign| begins(sign)).map_or(line.len(), |(at, _)| at);
    line[..end].trim_end()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() <= 3 && text.bytes().all(|byte| byte.is_ascii_digit())
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

/// Whether an input is text: a list of prefixes has no byte 0, but each record of a routing table dump has. Hands the
/// input back from its beginning.
/// # Errors
/// [`Exit::BadInput`]: the input cannot be read.
pub fn is_text(mut input: Box<dyn Read>) -> anyhow::Result<(bool, Box<dyn Read>)> {
    /// Bytes of the first header of a dump.
    const HEADER: u64 = 12;
    let mut start = Vec::new();
    input.by_ref().take(HEADER).read_to_end(&mut start).or_exit(Exit::BadInput, "the input")?;
    let is_text = !start.contains(&0);
    Ok((is_text, Box::new(io::Cursor::new(start).chain(input))))
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
        assert!(refused("ten/8,a").starts_with("line 1: `ten/8` is no IPv4 prefix"));
        assert!(refused("10.0.0.0/8").starts_with("line 1: 10.0.0.0/8 has no next hop"));
        assert!(refused("10.0.0.0/8,a\n#\n10.0.0.0/8,a").starts_with("line 3: 10.0.0.0/8 is on line 1 already"));
    }
}
