//! Routing table dumps in MRT (RFC 6396).
//!
//! Only the first route to a prefix counts: a dump does not say which of several next hops a router would use.

use std::io::{BufReader, Read};

use bgpkit_parser::BgpkitParser;
use command::prefix_list::{List, Seen};

/// What of a route counts as its next hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Hops {
    /// The address of the next hop.
    NextHop,
    /// The AS that the prefix comes from, as `AS64500`.
    Origin,
}

/// The prefixes of a dump. Prefixes without what counts as a next hop get `next_hop`.
/// # Errors
/// A text for the user, with the number of the route.
pub(crate) fn routes(input: impl Read, hops: Hops, next_hop: Option<&str>) -> Result<List, String> {
    let (mut list, mut seen) = (List::default(), Seen::default());
    for (number, route) in (1u64..).zip(BgpkitParser::from_reader(BufReader::new(input)).into_fallible_elem_iter()) {
        let route = route.map_err(|error| format!("route {number}: {error}"))?;
        let hop = match hops {
            Hops::NextHop => route.next_hop.map(|hop| hop.to_string()),
            Hops::Origin => {
                route.origin_asns.as_ref().and_then(|origins| origins.first()).map(|asn| format!("AS{}", asn.to_u32()))
            }
        };
        let hop = hop.as_deref().or(next_hop).unwrap_or("unknown");
        let prefix = route.prefix.prefix.to_string();
        list.add(&prefix, hop, number, &mut seen).map_err(|text| format!("route {number}: {text}"))?;
    }
    if list.ipv4.is_empty() && list.ipv6.is_empty() {
        return Err("there is no route in it; is it an MRT table dump?".into());
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // Collector, empty view name, one peer: IPv4, 4-byte AS.
        let peers = [&[1, 1, 1, 1, 0, 0, 0, 1, 2][..], &[2, 2, 2, 2], &[192, 0, 2, 9], &[0, 0, 0xfd, 0xe8]].concat();
        // ORIGIN, AS_PATH with one AS, NEXT_HOP.
        let attributes =
            [&[0x40, 1, 1, 0][..], &[0x40, 2, 6, 2, 1, 0, 0, 0xfd, 0xe8], &[0x40, 3, 4, 192, 0, 2, 9]].concat();
        let mut route = vec![0, 0, 0, 0, 16, 10, 1, 0, 1, 0, 0, 0, 0, 0, 0];
        route.extend((attributes.len() as u16).to_be_bytes());
        route.extend(&attributes);
        let dump = [record(1, &peers), record(2, &route)].concat();
        let list = routes(&dump[..], Hops::NextHop, None).unwrap();
        assert_eq!(list.ipv4, [("10.1.0.0/16".parse().unwrap(), 1)]);
        assert_eq!(list.hops, ["192.0.2.9"]);
        assert_eq!(routes(&dump[..], Hops::Origin, None).unwrap().hops, ["AS65000"]);
        assert!(routes(&b"this is no dump, but long enough for a header"[..], Hops::Origin, None).is_err());
    }
}
