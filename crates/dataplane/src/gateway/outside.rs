//! The neighbours on the links outside: finds the MAC addresses of next hops by ARP and neighbour solicitations.
//!
//! An address is learnt only if the gateway has asked for it, or knows it already. So strangers cannot fill the memory.
//! After [`FRESH`] the gateway asks for an address again, and uses the known one meanwhile. After [`ASKED_AT_MOST`]
//! questions without an answer it removes the address.
//!
//! Sources: RFC 826, RFC 1122 (2.3.2), RFC 4861 (7.2). Cost: finding an address is a lookup in a hash map that is
//! replaced as a whole; learning one copies the map.

use super::packet::AT;
use crate::answer::icmpv6_checksum;
use crate::mac::Mac;
use arc_swap::ArcSwap;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long an answer is used without a new question.
pub const FRESH: Duration = Duration::from_secs(60);
/// The time between two questions for one address.
pub const ASK_EVERY: Duration = Duration::from_secs(1);
/// Questions without an answer after which an address is removed.
pub const ASKED_AT_MOST: u32 = 3;
/// The most known addresses, and the most addresses that are asked for.
pub const MAX_KNOWN: usize = 4096;

const ARP_LEN: usize = 28;
/// Hardware type Ethernet, protocol IPv4, lengths 6 and 4.
const ARP_HEAD: [u8; 6] = [0, 1, 8, 0, 6, 4];
const SOLICITATION_LEN: usize = 32;

#[derive(Clone, Copy)]
struct Known {
    mac: Mac,
    since: Instant,
}

struct Asked {
    last: Instant,
    times: u32,
}

/// See the module.
#[derive(Default)]
pub(super) struct Neighbourhood {
    known: ArcSwap<HashMap<IpAddr, Known>>,
    /// The writer of `known` holds it.
    asked: Mutex<HashMap<IpAddr, Asked>>,
}

/// The result of a search for an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    /// Its MAC address.
    pub(super) mac: Option<Mac>,
    /// Whether the caller is to send a question for it.
    pub(super) ask: bool,
}

impl Neighbourhood {
    /// Searches for the MAC address of `ip`, at time `now`.
    pub(super) fn find(&self, ip: IpAddr, now: Instant) -> Found {
        let known = self.known.load().get(&ip).copied();
        match known {
            Some(Known { mac, since }) if now.duration_since(since) < FRESH => Found { mac: Some(mac), ask: false },
            _ => self.find_stale(ip, known.map(|known| known.mac), now),
        }
    }

    fn find_stale(&self, ip: IpAddr, mac: Option<Mac>, now: Instant) -> Found {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.len() >= MAX_KNOWN && !asked.contains_key(&ip) {
            asked.retain(|_, asked| now.duration_since(asked.last) < ASK_EVERY);
            if asked.len() >= MAX_KNOWN {
                return Found { mac, ask: false };
            }
        }
        let times = match asked.get(&ip) {
            Some(asked) if now.duration_since(asked.last) < ASK_EVERY => return Found { mac, ask: false },
            Some(asked) => asked.times,
            None => 0,
        };
        if times >= ASKED_AT_MOST && mac.is_some() {
            self.replace(|known| {
                known.remove(&ip);
            });
            asked.remove(&ip);
            return Found { mac: None, ask: false };
        }
        asked.insert(ip, Asked { last: now, times: times + 1 });
        Found { mac, ask: true }
    }

    /// Whether an address was asked for several times, and has not answered.
    pub(super) fn is_silent(&self, ip: IpAddr) -> bool {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.get(&ip).is_some_and(|asked| asked.times >= ASKED_AT_MOST)
    }

    /// Learns that `ip` has the address `mac`. Returns whether the gateway had asked for it or knew it.
    pub(super) fn learn(&self, ip: IpAddr, mac: Mac, now: Instant) -> bool {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.known.load();
        let is_known = known.contains_key(&ip);
        if mac[0] & 1 != 0 || (!is_known && (!asked.contains_key(&ip) || known.len() >= MAX_KNOWN)) {
            return false;
        }
        drop(known);
        self.replace(|known| {
            known.insert(ip, Known { mac, since: now });
        });
        asked.remove(&ip);
        true
    }

    fn replace(&self, change: impl FnOnce(&mut HashMap<IpAddr, Known>)) {
        let mut known = HashMap::clone(&self.known.load());
        change(&mut known);
        self.known.store(Arc::new(known));
    }
}

/// The sender of an ARP message, which every message names.
pub(super) fn told_by_arp(frame: &[u8]) -> Option<(IpAddr, Mac)> {
    let arp = frame.get(AT..AT + ARP_LEN).filter(|arp| arp[..6] == ARP_HEAD)?;
    let ip: [u8; 4] = arp[14..18].try_into().ok()?;
    let mac: Mac = arp[8..14].try_into().ok()?;
    (mac == frame[6..12]).then_some((IpAddr::from(ip), mac))
}

/// A neighbour message of IPv6.
pub(super) enum Neighbourly {
    /// A solicitation: a question for the owner of an address.
    Solicitation,
    /// An advertisement: this IP address has this MAC address.
    Advertisement(IpAddr, Mac),
}

/// Reads a neighbour solicitation or advertisement (RFC 4861) from a frame with a complete IPv6 packet.
pub(super) fn neighbourly(frame: &[u8]) -> Option<Neighbourly> {
    let ip = frame.get(AT..).filter(|ip| ip.len() >= 64 && frame[12..14] == [0x86, 0xdd])?;
    let payload_len = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
    // A hop limit of 255 proves that it was sent on this link.
    if ip[6] != 58 || ip[7] != 255 || ip[41] != 0 || payload_len < 24 || ip.len() < 40 + payload_len {
        return None;
    }
    match ip[40] {
        135 => Some(Neighbourly::Solicitation),
        136 if icmpv6_checksum(ip, payload_len) == 0 => {
            let target: [u8; 16] = ip[48..64].try_into().ok()?;
            Some(Neighbourly::Advertisement(IpAddr::from(target), frame[6..12].try_into().ok()?))
        }
        _ => None,
    }
}

/// The question for the owner of `wanted`, from the host with `ip` and `mac`. Both addresses have the same version of
/// IP.
pub(super) fn question(wanted: IpAddr, ip: IpAddr, mac: Mac) -> Vec<u8> {
    let mut frame = vec![0; AT];
    frame[6..12].copy_from_slice(&mac);
    match (wanted, ip) {
        (IpAddr::V4(wanted), IpAddr::V4(ip)) => {
            frame[..6].fill(0xff);
            frame[12..].copy_from_slice(&[8, 6]);
            frame.extend(ARP_HEAD);
            frame.extend([0, 1]);
            frame.extend(mac);
            frame.extend(ip.octets());
            frame.extend([0; 6]);
            frame.extend(wanted.octets());
        }
        (wanted, ip) => {
            let octets = |ip: IpAddr| match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            let (wanted, ip) = (octets(wanted), octets(ip));
            let mut group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 0];
            group[13..].copy_from_slice(&wanted[13..]);
            frame[..6].copy_from_slice(&[0x33, 0x33, 0xff, wanted[13], wanted[14], wanted[15]]);
            frame[12..].copy_from_slice(&[0x86, 0xdd]);
            frame.extend([0x60, 0, 0, 0, 0, SOLICITATION_LEN as u8, 58, 255]);
            frame.extend(ip);
            frame.extend(group);
            frame.extend([135, 0, 0, 0, 0, 0, 0, 0]);
            frame.extend(wanted);
            frame.extend([1, 1]);
            frame.extend(mac);
            let checksum = icmpv6_checksum(&frame[AT..], SOLICITATION_LEN);
            frame[AT + 42..AT + 44].copy_from_slice(&checksum.to_be_bytes());
        }
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    const IP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 254));
    const MAC: Mac = [2, 0, 0, 0, 0, 9];

    #[test]
    fn an_address_is_asked_for_once_a_second_and_believed_for_a_minute() {
        let (neighbours, start) = (Neighbourhood::default(), Instant::now());
        let at = |s: u64| start + Duration::from_secs(s);
        assert!(!neighbours.learn(IP, MAC, start), "nobody asked");
        assert_eq!(neighbours.find(IP, start), Found { mac: None, ask: true });
        assert_eq!(neighbours.find(IP, start), Found { mac: None, ask: false });
        assert_eq!(neighbours.find(IP, at(1)), Found { mac: None, ask: true });
        assert!(!neighbours.learn(IP, [1, 0, 0, 0, 0, 9], at(1)), "no host has a group address");
        assert!(neighbours.learn(IP, MAC, at(1)));
        assert_eq!(neighbours.find(IP, at(60)), Found { mac: Some(MAC), ask: false });
        for s in 61..64 {
            assert_eq!(neighbours.find(IP, at(s)), Found { mac: Some(MAC), ask: true }, "{s}");
        }
        assert_eq!(neighbours.find(IP, at(64)), Found { mac: None, ask: false }, "asked thrice in vain");
        assert_eq!(neighbours.find(IP, at(65)), Found { mac: None, ask: true });
    }

    #[test]
    fn questions_for_many_addresses_are_bounded_and_make_room() {
        let (neighbours, start) = (Neighbourhood::default(), Instant::now());
        let ip = |i: usize| IpAddr::from((i as u32).to_be_bytes());
        for i in 0..2 * MAX_KNOWN {
            assert_eq!(neighbours.find(ip(i), start).ask, i < MAX_KNOWN);
        }
        assert!(neighbours.find(ip(MAX_KNOWN), start + ASK_EVERY).ask);
    }

    #[test]
    fn a_question_is_read_as_what_it_is() {
        let arp = question(IP, "192.0.2.1".parse().unwrap(), MAC);
        assert_eq!((arp.len(), told_by_arp(&arp)), (42, Some(("192.0.2.1".parse().unwrap(), MAC))));
        let nd = question("2001:db8::12:3456".parse().unwrap(), "2001:db8::1".parse().unwrap(), MAC);
        assert_eq!(nd[..6], [0x33, 0x33, 0xff, 0x12, 0x34, 0x56]);
        assert!(matches!(neighbourly(&nd), Some(Neighbourly::Solicitation)));
        assert_eq!(icmpv6_checksum(&nd[AT..], SOLICITATION_LEN), 0);
    }
}
