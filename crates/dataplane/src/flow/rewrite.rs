//! Changes addresses and ports in a packet, and corrects its checksums.
//!
//! A checksum is corrected by the difference of the words that change (RFC 1624, equation 3). So a wrong checksum stays
//! wrong, and the cost does not depend on the length of the packet. Only the checksum of an ICMP error is computed
//! anew, because a packet inside it changes; it is verified before.

use super::packet::{Address, Headers, ICMP, ICMPV6, TCP, Tuple, UDP, addresses, quoted};
use netio::checksum::{fold, sum};

/// A checksum and the changes of the words that it covers.
#[derive(Clone, Copy)]
struct Change(u64);

impl Change {
    /// In ones' complement: the sum of the new words minus the old ones.
    fn add(&mut self, old: &[u8], new: &[u8]) {
        for (old, new) in old.chunks_exact(2).zip(new.chunks_exact(2)) {
            self.0 += u64::from(!u16::from_be_bytes([old[0], old[1]]));
            self.0 += u64::from(u16::from_be_bytes([new[0], new[1]]));
        }
    }

    /// Corrects the checksum at `at`.
    fn apply(self, frame: &mut [u8], at: usize) {
        if let Some(field) = frame.get_mut(at..at + 2) {
            let old = u16::from_be_bytes([field[0], field[1]]);
            field.copy_from_slice(&(!fold(self.0 + u64::from(!old))).to_be_bytes());
        }
    }
}

/// Writes `new` at `at` and records the change.
fn put(frame: &mut [u8], at: usize, new: &[u8], changes: &mut [&mut Change]) {
    let Some(old) = frame.get_mut(at..at + new.len()) else { return };
    changes.iter_mut().for_each(|change| change.add(old, new));
    old.copy_from_slice(new);
}

fn put_address(frame: &mut [u8], at: usize, address: Address, changes: &mut [&mut Change]) {
    let bytes = address.0.to_be_bytes();
    put(frame, at, if address.is_v4() { &bytes[12..] } else { &bytes }, changes);
}

/// The offsets of the addresses in an IP header.
fn places(ip: usize, is_v4: bool) -> (usize, usize) {
    if is_v4 { (ip + 12, ip + 16) } else { (ip + 8, ip + 24) }
}

/// Writes the addresses and ports of `new` into the packet at `ip`, whose transport header is at `transport`. A
/// checksum that is cut off (in a quoted packet) is not corrected.
fn rewrite_at(frame: &mut [u8], ip: usize, transport: usize, new: &Tuple) {
    let is_v4 = new.source.address.is_v4();
    let (mut network, mut inner) = (Change(0), Change(0));
    let (source, destination) = places(ip, is_v4);
    put_address(frame, source, new.source.address, &mut [&mut network, &mut inner]);
    put_address(frame, destination, new.destination.address, &mut [&mut network, &mut inner]);
    if is_v4 {
        network.apply(frame, ip + 10);
    }
    match new.protocol {
        TCP | UDP => {
            put(frame, transport, &new.source.port.to_be_bytes(), &mut [&mut inner]);
            put(frame, transport + 2, &new.destination.port.to_be_bytes(), &mut [&mut inner]);
            if new.protocol == TCP {
                inner.apply(frame, transport + 16);
            } else if frame.get(transport + 6..transport + 8).is_some_and(|field| field != [0, 0]) {
                inner.apply(frame, transport + 6);
                // Zero would mean that there is no checksum. In ones' complement all ones has the same value.
                let field = &mut frame[transport + 6..transport + 8];
                if field == [0, 0] {
                    field.fill(0xff);
                }
            }
        }
        ICMP | ICMPV6 => {
            if new.protocol == ICMP {
                // ICMP over IPv4 has no pseudo-header: its checksum does not cover the addresses.
                inner = Change(0);
            }
            // The side that does not ask has port 0.
            let identifier = new.source.port | new.destination.port;
            put(frame, transport + 4, &identifier.to_be_bytes(), &mut [&mut inner]);
            inner.apply(frame, transport + 2);
        }
        _ => {}
    }
}

/// Writes the addresses and ports of `new` into a packet, and corrects its checksums.
pub fn rewrite(frame: &mut [u8], headers: &Headers, new: &Tuple) {
    rewrite_at(frame, usize::from(headers.ip), usize::from(headers.transport), new);
}

/// Translates an ICMP error, which goes in the direction of `headers.tuple`, to the direction `new`. It changes the
/// packet that the error quotes, and the error's own addresses if they are those of the flow (a router in between has
/// its own). Returns false and changes nothing if the checksum was wrong or the quoted packet is incomplete.
pub fn rewrite_error(frame: &mut [u8], headers: &Headers, new: &Tuple) -> bool {
    debug_assert!(headers.body.is_error());
    let (ip, at, end) = (usize::from(headers.ip), usize::from(headers.transport), headers.end as usize);
    let is_v4 = new.source.address.is_v4();
    let (Some((quoted_ip, quoted_at)), Some((source, destination))) =
        (quoted(&frame[..end], headers), addresses(frame, headers))
    else {
        return false;
    };
    if icmp_sum(frame, ip, at, end, is_v4) != 0xffff {
        return false;
    }
    rewrite_at(&mut frame[..end], quoted_ip, quoted_at, &new.reversed());
    let mut network = Change(0);
    let places = places(ip, is_v4);
    if source == headers.tuple.source.address {
        put_address(frame, places.0, new.source.address, &mut [&mut network]);
    }
    if destination == headers.tuple.destination.address {
        put_address(frame, places.1, new.destination.address, &mut [&mut network]);
    }
    if is_v4 {
        network.apply(frame, ip + 10);
    }
    frame[at + 2..at + 4].fill(0);
    let sum = !icmp_sum(frame, ip, at, end, is_v4);
    frame[at + 2..at + 4].copy_from_slice(&sum.to_be_bytes());
    true
}

/// The folded sum of an ICMP message, checksum included: all ones if it is right.
fn icmp_sum(frame: &[u8], ip: usize, at: usize, end: usize, is_v4: bool) -> u16 {
    let pseudo = if is_v4 { 0 } else { sum(&frame[ip + 8..ip + 40]) + u64::from(ICMPV6) + (end - at) as u64 };
    fold(pseudo + sum(&frame[at..end]))
}
