//! Dumps of routing tables in MRT (RFC 6396, RFC 8050), and the updates of BGP that such files have instead.
//!
//! Of a dump (TABLE_DUMP, TABLE_DUMP_V2) the first route to a prefix counts that has what is asked for: a dump does not say which of
//! several a router would use. Updates (BGP4MP) are replayed in order: what is withdrawn, or is of a peer that went down, is gone, and of
//! what is left to a prefix the oldest counts.
//!
//! Bits behind the length of a prefix are irrelevant (RFC 4271, section 4.3). The table of peers is not needed. The origin of a prefix is
//! the last AS of its path; a path that ends in a set of several, in a confederation, or in AS 0 has none (RFC 6811, RFC 7607). Unicast
//! routes of IPv4 and IPv6 are read; records of other kinds are counted.

mod bgp;

use super::{List, Seen};
use crate::text::address::AnyPrefix;
use bgp::{Attributes, Bytes, Short};
use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::net::IpAddr;

/// Maximum bytes of a record. Those of large tables have some hundred thousand.
const MAX_RECORD: u32 = 16 << 20;

/// The part of a route that counts as its next hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hops {
    /// The address of the next hop.
    NextHop,
    /// The AS that the prefix comes from, as `AS64500`.
    Origin,
}

/// The contents of a file.
pub struct Dump {
    /// Its prefixes.
    pub list: List,
    /// Records that have no unicast routes of IPv4 or IPv6.
    pub n_others: u64,
    /// Updates that end in the middle of a prefix, which is left out.
    pub n_cut: u64,
}

/// Reads a dump, or updates. Prefixes without what counts as a next hop get `next_hop`, or `unknown`.
/// # Errors
/// A text for the user, with the number of the record.
pub fn read(mut input: impl Read, hops: Hops, next_hop: Option<&str>) -> Result<Dump, String> {
    let mut reader = Reader::new(hops);
    for number in 1u64.. {
        let in_record = |why: String| format!("record {number}: {why}");
        let Some((kind, subtype, body)) = record(&mut input).map_err(in_record)? else { break };
        reader.take(number, kind, subtype, &body).map_err(|error| match error {
            Wrong::Short => in_record("it is shorter than what it says is in it; was the file damaged?".to_owned()),
            Wrong::Text(why) => in_record(why),
        })?;
    }
    reader.finish(next_hop.unwrap_or("unknown"))
}

/// Type, subtype and body of the next record; none at the end.
fn record(input: &mut impl Read) -> Result<Option<(u16, u16, Vec<u8>)>, String> {
    let cut = "the file ends in the middle of it; was its transfer cut short?";
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::UnexpectedEof => cut.to_owned(),
        _ => error.to_string(),
    };
    let mut header = Vec::new();
    input.by_ref().take(12).read_to_end(&mut header).map_err(failed)?;
    if header.is_empty() {
        return Ok(None);
    }
    let header = <[u8; 12]>::try_from(header).map_err(|_| cut.to_owned())?;
    let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let (kind, subtype) = (half(4), half(6));
    let len = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
    if !(kind <= 17 || matches!(kind, 32 | 33 | 48 | 49)) {
        return Err(format!("records have no type {kind}; is this an MRT dump?"));
    }
    if len > MAX_RECORD {
        return Err(format!("a record claims {len} bytes; is this an MRT dump?"));
    }
    let mut body = Vec::new();
    input.by_ref().take(len.into()).read_to_end(&mut body).map_err(failed)?;
    if body.len() < len as usize {
        return Err(cut.to_owned());
    }
    Ok(Some((kind, subtype, body)))
}

enum Wrong {
    Short,
    Text(String),
}

impl From<Short> for Wrong {
    fn from(_: Short) -> Self {
        Wrong::Short
    }
}

impl From<String> for Wrong {
    fn from(text: String) -> Self {
        Wrong::Text(text)
    }
}

/// A route of updates: its peer, the number of its path, and its next hop.
struct Path {
    peer: u32,
    id: u32,
    hop: Option<String>,
}

/// The routes to a prefix, the oldest first, and when there was the first.
struct Paths {
    since: u64,
    paths: Vec<Path>,
}

struct Reader {
    hops: Hops,
    list: List,
    seen: Seen,
    /// Prefixes of a dump that had a route without what counts as a next hop.
    without: Vec<AnyPrefix>,
    /// The routes of updates.
    routes: HashMap<AnyPrefix, Paths>,
    peers: HashMap<IpAddr, u32>,
    n_updates: u64,
    n_dumped: u64,
    n_others: u64,
    n_cut: u64,
}

impl Reader {
    fn new(hops: Hops) -> Self {
        Reader {
            hops,
            list: List::default(),
            seen: Seen::default(),
            without: Vec::new(),
            routes: HashMap::new(),
            peers: HashMap::new(),
            n_updates: 0,
            n_dumped: 0,
            n_others: 0,
            n_cut: 0,
        }
    }

    fn take(&mut self, number: u64, kind: u16, subtype: u16, body: &[u8]) -> Result<(), Wrong> {
        let mut body = Bytes(body);
        match (kind, subtype) {
            (12, 1 | 2) => self.table_dump(&mut body, subtype == 1),
            // The table of peers.
            (13, 1) => Ok(()),
            (13, 2 | 4 | 8 | 10) => {
                body.u32()?;
                let prefix = body.prefix(matches!(subtype, 2 | 8))?;
                self.entries(&mut body, prefix, subtype >= 8)
            }
            // RIB_GENERIC, of a family that it names.
            (13, 6 | 12) => {
                body.u32()?;
                match (body.u16()?, body.u8()?) {
                    (family @ (1 | 2), 1) => {
                        let prefix = body.prefix(family == 1)?;
                        self.entries(&mut body, prefix, subtype == 12)
                    }
                    _ => self.other(),
                }
            }
            (16 | 17, 0 | 1 | 4..=11) => {
                if kind == 17 {
                    // Microseconds.
                    body.u32()?;
                }
                self.bgp4mp(number, &mut body, subtype)
            }
            _ => self.other(),
        }?;
        if self.n_updates > 0 && self.n_dumped > 0 {
            let text = "a routing table and updates are in one file, and their order is unknown: use one of the two";
            return Err(text.to_owned().into());
        }
        Ok(())
    }

    fn other(&mut self) -> Result<(), Wrong> {
        self.n_others += 1;
        Ok(())
    }

    fn table_dump(&mut self, body: &mut Bytes<'_>, is_v4: bool) -> Result<(), Wrong> {
        // View and sequence number.
        body.u32()?;
        let address = body.address(is_v4)?;
        let len = body.u8()?;
        let prefix = bgp::prefix_of(address, len)?;
        // Status, time, peer and its AS.
        body.take(1 + 4 + if is_v4 { 4 } else { 16 } + 2)?;
        let len = body.u16()?;
        let attributes = Attributes::read(body.take(len.into())?, false)?;
        self.dumped(prefix, &attributes)
    }

    fn entries(&mut self, body: &mut Bytes<'_>, prefix: AnyPrefix, has_ids: bool) -> Result<(), Wrong> {
        for _ in 0..body.u16()? {
            // Peer and time, and the number of the path.
            body.take(2 + 4 + if has_ids { 4 } else { 0 })?;
            let len = body.u16()?;
            let attributes = Attributes::read(body.take(len.into())?, true)?;
            self.dumped(prefix, &attributes)?;
        }
        Ok(())
    }

    fn dumped(&mut self, prefix: AnyPrefix, attributes: &Attributes<'_>) -> Result<(), Wrong> {
        self.n_dumped += 1;
        match self.hop(attributes, attributes.next_hop) {
            Some(hop) => _ = self.list.add(prefix, &hop, self.n_dumped, &mut self.seen)?,
            None => self.without.push(prefix),
        }
        Ok(())
    }

    fn hop(&self, attributes: &Attributes<'_>, next_hop: Option<IpAddr>) -> Option<String> {
        match self.hops {
            Hops::NextHop => next_hop.map(|hop| hop.to_string()),
            Hops::Origin => attributes.origin().map(|number| format!("AS{number}")),
        }
    }

    fn bgp4mp(&mut self, number: u64, body: &mut Bytes<'_>, subtype: u16) -> Result<(), Wrong> {
        let is_long = matches!(subtype, 4 | 5 | 7 | 9 | 11);
        let has_ids = subtype >= 8;
        // The AS of both ends, and the interface.
        body.take(if is_long { 8 } else { 4 } + 2)?;
        let is_v4 = body.u16()? == 1;
        let peer = body.address(is_v4)?;
        body.address(is_v4)?;
        let n_peers = self.peers.len() as u32;
        let peer = *self.peers.entry(peer).or_insert(n_peers);
        if matches!(subtype, 0 | 5) {
            const ESTABLISHED: u16 = 6;
            self.n_updates += 1;
            body.u16()?;
            if body.u16()? != ESTABLISHED {
                self.routes.values_mut().for_each(|routes| routes.paths.retain(|path| path.peer != peer));
            }
            return Ok(());
        }
        // The marker, and the length of the message.
        body.take(16)?;
        let len = body.u16()?;
        if body.u8()? != 2 {
            // Messages other than updates contain no routes.
            return Ok(());
        }
        let mut message = Bytes(body.take(usize::from(len).checked_sub(19).ok_or(Short)?)?);
        self.n_updates += 1;
        let len = message.u16()?;
        let withdrawn = message.take(len.into())?;
        let len = message.u16()?;
        let attributes = Attributes::read(message.take(len.into())?, is_long)?;
        self.withdraw(peer, withdrawn, true, has_ids)?;
        if let Some((is_v4, withdrawn)) = attributes.unreachable {
            self.withdraw(peer, withdrawn, is_v4, has_ids)?;
        }
        if let Some((is_v4, announced)) = attributes.reachable {
            self.announce(number, peer, &attributes, (announced, is_v4, has_ids), attributes.mp_next_hop)?;
        }
        self.announce(number, peer, &attributes, (message.0, true, has_ids), attributes.v4_next_hop)
    }

    /// The prefixes of an update, with the numbers of their paths. What is left at its end, and is too short for one, is counted: some
    /// collectors wrote a byte too many.
    fn prefixes(&mut self, bytes: &[u8], is_v4: bool, has_ids: bool) -> Result<Vec<(AnyPrefix, u32)>, Wrong> {
        let (mut bytes, mut prefixes) = (Bytes(bytes), Vec::new());
        let next = |bytes: &mut Bytes<'_>| {
            let id = if has_ids { bytes.u32()? } else { 0 };
            Ok((bytes.prefix(is_v4)?, id))
        };
        while !bytes.0.is_empty() {
            match next(&mut bytes) {
                Ok(prefix) => prefixes.push(prefix),
                Err(Wrong::Short) => {
                    self.n_cut += 1;
                    break;
                }
                Err(wrong) => return Err(wrong),
            }
        }
        Ok(prefixes)
    }

    fn withdraw(&mut self, peer: u32, prefixes: &[u8], is_v4: bool, has_ids: bool) -> Result<(), Wrong> {
        for (prefix, id) in self.prefixes(prefixes, is_v4, has_ids)? {
            if let Some(routes) = self.routes.get_mut(&prefix) {
                routes.paths.retain(|path| (path.peer, path.id) != (peer, id));
            }
        }
        Ok(())
    }

    fn announce(
        &mut self,
        number: u64,
        peer: u32,
        attributes: &Attributes<'_>,
        (prefixes, is_v4, has_ids): (&[u8], bool, bool),
        next_hop: Option<IpAddr>,
    ) -> Result<(), Wrong> {
        let hop = self.hop(attributes, next_hop);
        for (prefix, id) in self.prefixes(prefixes, is_v4, has_ids)? {
            let routes = self.routes.entry(prefix).or_insert_with(|| Paths { since: number, paths: Vec::new() });
            // A peer that announces a prefix again replaces what it said.
            match routes.paths.iter_mut().find(|path| (path.peer, path.id) == (peer, id)) {
                Some(path) => path.hop.clone_from(&hop),
                None => routes.paths.push(Path { peer, id, hop: hop.clone() }),
            }
        }
        Ok(())
    }

    fn finish(mut self, next_hop: &str) -> Result<Dump, String> {
        let mut routes: Vec<_> = self.routes.drain().filter(|(_, routes)| !routes.paths.is_empty()).collect();
        routes.sort_unstable_by_key(|(prefix, routes)| (routes.since, prefix.is_v4(), prefix.address(), prefix.len()));
        for (prefix, Paths { since, paths }) in routes {
            match paths.iter().find_map(|path| path.hop.as_deref()) {
                Some(hop) => _ = self.list.add(prefix, hop, since, &mut self.seen)?,
                None => self.without.push(prefix),
            }
        }
        for prefix in std::mem::take(&mut self.without) {
            self.n_dumped += 1;
            self.list.add(prefix, next_hop, u64::MAX - self.n_dumped, &mut self.seen)?;
        }
        if self.list.ipv4.is_empty() && self.list.ipv6.is_empty() {
            return Err(match self.n_updates {
                0 => format!(
                    "it has no routes of IPv4 or IPv6, but {} records of other kinds; is it an MRT table dump?",
                    self.n_others
                ),
                n => format!("no route is left after its {n} updates, all are withdrawn"),
            });
        }
        Ok(Dump { list: self.list, n_others: self.n_others, n_cut: self.n_cut })
    }
}

#[cfg(test)]
mod tests;
