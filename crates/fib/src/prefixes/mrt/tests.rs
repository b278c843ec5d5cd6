use super::*;

fn record(kind: u16, subtype: u16, body: &[u8]) -> Vec<u8> {
    let mut record = vec![0; 4];
    record.extend(kind.to_be_bytes());
    record.extend(subtype.to_be_bytes());
    record.extend((body.len() as u32).to_be_bytes());
    record.extend(body);
    record
}

/// Collector, empty name of a view, one peer: IPv4, AS of four bytes.
fn peers() -> Vec<u8> {
    record(13, 1, &[&[1, 1, 1, 1, 0, 0, 0, 1, 2][..], &[2, 2, 2, 2], &[192, 0, 2, 9], &[0, 0, 0xfd, 0xe8]].concat())
}

/// ORIGIN, AS_PATH with these segments of numbers of four bytes, NEXT_HOP.
fn attributes(segments: &[(u8, &[u32])], last: u8) -> Vec<u8> {
    let mut path = Vec::new();
    for (kind, numbers) in segments {
        path.extend([*kind, numbers.len() as u8]);
        numbers.iter().for_each(|number| path.extend(number.to_be_bytes()));
    }
    [&[0x40, 1, 1, 0, 0x40, 2, path.len() as u8][..], &path, &[0x40, 3, 4, 192, 0, 2, last]].concat()
}

fn rib(subtype: u16, prefix: &[u8], routes: &[&[u8]]) -> Vec<u8> {
    let mut body = [&[0, 0, 0, 0][..], prefix, &(routes.len() as u16).to_be_bytes()].concat();
    for route in routes {
        body.extend([0; 6]);
        body.extend((route.len() as u16).to_be_bytes());
        body.extend(*route);
    }
    record(13, subtype, &body)
}

/// An update of a peer, with numbers of AS of four bytes.
fn update(peer: u8, withdrawn: &[u8], attributes: &[u8], announced: &[u8]) -> Vec<u8> {
    let len = (19 + 4 + withdrawn.len() + attributes.len() + announced.len()) as u16;
    let mut body = vec![0, 0, 0xfd, 0xe8, 0, 0, 0xfd, 0xe9, 0, 0, 0, 1, 192, 0, 2, peer, 192, 0, 2, 254];
    body.extend([0xff; 16]);
    body.extend(len.to_be_bytes());
    body.push(2);
    for part in [withdrawn, attributes] {
        body.extend((part.len() as u16).to_be_bytes());
        body.extend(part);
    }
    body.extend(announced);
    record(16, 4, &body)
}

const SEQUENCE: u8 = 2;

fn listed(dump: &[u8], hops: Hops) -> Result<Vec<(String, String)>, String> {
    let Dump { list, .. } = read(dump, hops, None)?;
    let hop = |number: u64| list.hops[number as usize - 1].clone();
    let v4 = list.ipv4.iter().map(|(prefix, number)| (prefix.to_string(), hop(*number)));
    Ok(v4.chain(list.ipv6.iter().map(|(prefix, number)| (prefix.to_string(), hop(*number)))).collect())
}

fn routes(routes: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
    Ok(routes.iter().map(|(prefix, hop)| ((*prefix).to_owned(), (*hop).to_owned())).collect())
}

#[test]
fn table_dumps_are_read_whatever_is_behind_the_length_of_a_prefix() {
    let route = attributes(&[(SEQUENCE, &[65001, 65000])], 9);
    let all = [
        rib(2, &[16, 10, 1], &[&route]),
        rib(2, &[13, 11, 13], &[&route]),
        rib(4, &[33, 0x20, 1, 0xd, 0xb8, 0xff], &[&route]),
    ]
    .concat();
    let expected = |hop| routes(&[("10.1.0.0/16", hop), ("11.8.0.0/13", hop), ("2001:db8:8000::/33", hop)]);
    // With the table of peers and without.
    for dump in [all.clone(), [peers(), all.clone()].concat()] {
        assert_eq!(listed(&dump, Hops::NextHop), expected("192.0.2.9"));
        assert_eq!(listed(&dump, Hops::Origin), expected("AS65000"));
    }
    assert_eq!(read(&[all, record(11, 0, &[])].concat()[..], Hops::Origin, None).unwrap().n_others, 1);
}

#[test]
fn table_dumps_of_the_first_version_are_read() {
    // AS_TRANS at the end of the path of two bytes, and the AS in the path of four.
    let path = [0x40, 2, 6, SEQUENCE, 2, 0xfd, 0xe9, 0x5b, 0xa0];
    let long = [0xc0, 17, 10, SEQUENCE, 2, 0, 0, 0xfd, 0xe9, 0, 1, 0, 7];
    let attributes = [&path[..], &long, &[0x40, 3, 4, 192, 0, 2, 9]].concat();
    let mut body = vec![0, 0, 0, 0, 10, 1, 255, 255, 17, 1, 0, 0, 0, 0, 192, 0, 2, 1, 0xfd, 0xe9];
    body.extend((attributes.len() as u16).to_be_bytes());
    body.extend(attributes);
    let dump = record(12, 1, &body);
    assert_eq!(listed(&dump, Hops::Origin), routes(&[("10.1.128.0/17", "AS65543")]));
    assert_eq!(listed(&dump, Hops::NextHop), routes(&[("10.1.128.0/17", "192.0.2.9")]));
}

#[test]
fn next_hops_of_ipv6_are_read_in_both_forms() {
    let hop = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    let short = [&[0x80, 14, 17, 16][..], &hop].concat();
    let whole = [&[0x80, 14, 37, 0, 2, 1, 32][..], &hop, &[0xfe; 16], &[0]].concat();
    for attribute in [short, whole] {
        let dump = rib(4, &[16, 0x20, 2], &[&attribute]);
        assert_eq!(listed(&dump, Hops::NextHop), routes(&[("2002::/16", "2001:db8::9")]));
    }
}

#[test]
fn path_without_an_origin_hides_none_that_has_one() {
    let none: [&[(u8, &[u32])]; 4] = [
        &[],
        &[(SEQUENCE, &[65001]), (1, &[65003, 65002])],
        &[(SEQUENCE, &[65001]), (3, &[64999])],
        &[(SEQUENCE, &[0])],
    ];
    for without in none {
        let (without, with) = (attributes(without, 1), attributes(&[(SEQUENCE, &[65001]), (1, &[65002])], 2));
        // In one record, and in two.
        let one = rib(2, &[8, 10], &[&without, &with]);
        let two = [rib(2, &[8, 10], &[&without]), rib(2, &[8, 10], &[&with])].concat();
        let updates = [update(1, &[], &without, &[8, 10]), update(2, &[], &with, &[8, 10])].concat();
        for dump in [one, two, updates] {
            assert_eq!(listed(&dump, Hops::Origin), routes(&[("10.0.0.0/8", "AS65002")]));
            assert_eq!(listed(&dump, Hops::NextHop), routes(&[("10.0.0.0/8", "192.0.2.1")]));
        }
        assert_eq!(listed(&rib(2, &[8, 10], &[&without]), Hops::Origin), routes(&[("10.0.0.0/8", "unknown")]));
    }
}

#[test]
fn updates_are_replayed_and_what_is_withdrawn_is_gone() {
    let to = |last| attributes(&[(SEQUENCE, &[65000 + u32::from(last)])], last);
    let mut updates = [
        update(1, &[], &to(1), &[8, 10, 13, 11, 13, 0]),
        update(2, &[], &to(2), &[8, 10]),
        // Bits behind the length are irrelevant here, too.
        update(1, &[8, 10, 13, 11, 15], &[], &[]),
    ]
    .concat();
    assert_eq!(listed(&updates, Hops::NextHop), routes(&[("0.0.0.0/0", "192.0.2.1"), ("10.0.0.0/8", "192.0.2.2")]));
    // Announced again, with another next hop.
    updates.extend(update(2, &[], &to(3), &[8, 10]));
    assert_eq!(listed(&updates, Hops::Origin), routes(&[("0.0.0.0/0", "AS65001"), ("10.0.0.0/8", "AS65003")]));
    // The session with the first peer ends.
    let down = [0, 0, 0xfd, 0xe8, 0, 0, 0xfd, 0xe9, 0, 0, 0, 1, 192, 0, 2, 1, 192, 0, 2, 254, 0, 6, 0, 1];
    updates.extend(record(16, 5, &down));
    assert_eq!(listed(&updates, Hops::NextHop), routes(&[("10.0.0.0/8", "192.0.2.3")]));
    updates.extend(update(2, &[8, 10], &[], &[]));
    assert!(listed(&updates, Hops::NextHop).unwrap_err().contains("all are withdrawn"));
}

/// As a collector of 2010 wrote it: numbers of AS of two bytes, bits behind the length of the prefix, and a byte behind it.
#[test]
fn update_that_ends_in_the_middle_of_a_prefix_has_those_before() {
    let path = [7018u16, 3549, 12389, 48275, 51044].map(u16::to_be_bytes).concat();
    let attributes = [
        &[0x40, 1, 1, 0, 0x40, 2, 12, SEQUENCE, 5][..],
        &path,
        &[0x40, 3, 4, 12, 0, 1, 63, 0xc0, 8, 4, 0x1b, 0x0b, 0x0d, 0x0b],
    ]
    .concat();
    let mut body = [&[0x1b, 0x6a, 0xfd, 0xe8, 0, 0, 0, 1, 12, 0, 1, 63, 10, 0, 0, 1][..], &[0xff; 16]].concat();
    body.extend([0, 60, 2, 0, 0, 0, attributes.len() as u8]);
    body.extend(&attributes);
    body.extend([13, 11, 13, 11]);
    let dump = record(16, 1, &body);
    assert_eq!(listed(&dump, Hops::Origin), routes(&[("11.8.0.0/13", "AS51044")]));
    assert_eq!(listed(&dump, Hops::NextHop), routes(&[("11.8.0.0/13", "12.0.1.63")]));
    assert_eq!(read(&dump[..], Hops::Origin, None).unwrap().n_cut, 1);
}

#[test]
fn prefixes_of_ipv6_are_announced_and_withdrawn_in_updates() {
    let mut reach = vec![0, 2, 1, 16];
    reach.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 16, 0x20, 2, 16, 0x20, 3]);
    let announced = [&[0x80, 14, reach.len() as u8][..], &reach].concat();
    let withdrawn = [0x80, 15, 6, 0, 2, 1, 16, 0x20, 2];
    let updates = [update(1, &[], &announced, &[]), update(1, &[], &withdrawn, &[])].concat();
    assert_eq!(listed(&updates, Hops::NextHop), routes(&[("2003::/16", "2001:db8::9")]));
}

#[test]
fn what_is_cut_or_no_dump_is_refused_with_the_number_of_the_record() {
    let route = attributes(&[(SEQUENCE, &[65000])], 9);
    let dump = [peers(), rib(2, &[8, 10], &[&route]), rib(2, &[8, 11], &[&route])].concat();
    for n in [1, 9, dump.len() - peers().len() - 70] {
        let error = listed(&dump[..dump.len() - n], Hops::Origin).unwrap_err();
        assert!(error.starts_with("record ") && error.contains("cut short"), "{n}: {error}");
    }
    let error = listed(&dump[..dump.len() - 9], Hops::Origin).unwrap_err();
    assert!(error.starts_with("record 3: "), "{error}");
    for (bytes, says) in [
        (b"this is no dump, but long enough for a header".to_vec(), "is this an MRT dump?"),
        (peers(), "no routes of IPv4 or IPv6"),
        (rib(2, &[33, 10, 1, 1, 1, 1], &[&route]), "a prefix of"),
        (rib(2, &[8, 10], &[&[0x40, 3, 9, 1]]), "shorter than"),
        ([dump, update(1, &[], &route, &[8, 10])].concat(), "use one of the two"),
    ] {
        let error = listed(&bytes, Hops::NextHop).unwrap_err();
        assert!(error.contains(says), "{says}: {error}");
    }
}

#[test]
fn damaged_dumps_never_panic() {
    let route = attributes(&[(SEQUENCE, &[65000])], 9);
    let dump = [rib(2, &[8, 10], &[&route]), update(1, &[8, 10], &route, &[13, 11, 13])];
    for whole in dump {
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                let _ = listed(&damaged, Hops::NextHop);
            }
        }
    }
}
