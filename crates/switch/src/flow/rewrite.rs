//! New addresses and ports in a packet, with its checksums brought along.
//!
//! A checksum is corrected by the difference of the words that changed (RFC 1624, equation 3), so that one that was
//! wrong stays wrong, and a packet costs the same whatever its length. Only the checksum of an ICMP error is computed
//! anew, since a packet inside it changes, and only after it was found right.

use super::packet::{Address, Body, Headers, ICMP, ICMPV6, TCP, Tuple, UDP, addresses, quoted};
use netio::checksum::{fold, sum};

/// A checksum with what has changed below it.
#[derive(Clone, Copy)]
struct Change(u64);

impl Change {
    /// In one's complement: the new words added, the old ones taken off.
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

/// Writes `new` at `at` and notes what changed.
fn put(frame: &mut [u8], at: usize, new: &[u8], changes: &mut [&mut Change]) {
    let Some(old) = frame.get_mut(at..at + new.len()) else { return };
    changes.iter_mut().for_each(|change| change.add(old, new));
    old.copy_from_slice(new);
}

fn put_address(frame: &mut [u8], at: usize, address: Address, changes: &mut [&mut Change]) {
    let bytes = address.0.to_be_bytes();
    put(frame, at, if address.is_v4() { &bytes[12..] } else { &bytes }, changes);
}

/// Where the addresses of an IP header stand.
fn places(ip: usize, is_v4: bool) -> (usize, usize) {
    if is_v4 { (ip + 12, ip + 16) } else { (ip + 8, ip + 24) }
}

/// Gives the packet at `ip`, with its transport header at `transport`, the addresses and ports of `new`. A checksum
/// that is not there (in a quoted packet that was cut) is not corrected.
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
                // Zero would say that there is none; in one's complement it is also all ones.
                let field = &mut frame[transport + 6..transport + 8];
                if field == [0, 0] {
                    field.fill(0xff);
                }
            }
        }
        ICMP | ICMPV6 => {
            if new.protocol == ICMP {
                // No pseudo-header: the addresses are not in its sum.
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

/// Gives a packet the addresses and ports of `new`, and corrects its checksums.
pub fn rewrite(frame: &mut [u8], headers: &Headers, new: &Tuple) {
    rewrite_at(frame, usize::from(headers.ip), usize::from(headers.transport), new);
}

/// Translates an ICMP error, which goes in the direction of `headers.tuple`, to the direction `new`: its own addresses
/// where they are those of the flow (a router in between keeps its own), and those of the packet that it quotes.
/// Answers false, and changes nothing, if its checksum was wrong or the quoted packet is not whole.
pub fn rewrite_error(frame: &mut [u8], headers: &Headers, new: &Tuple) -> bool {
    debug_assert!(headers.body == Body::Error);
    let (ip, at, end) = (usize::from(headers.ip), usize::from(headers.transport), usize::from(headers.end));
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
