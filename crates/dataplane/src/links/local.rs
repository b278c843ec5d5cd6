//! Frames that are only for the other end of one cable, and their handling where no other switch is expected: at host ports.
//!
//! | frame | sent by |
//! |---|---|
//! | to 01:80:c2:00:00:00 to 0f | bridges, bundles (LACP), LLDP, pause: no bridge forwards it (IEEE 802.1Q, table 8-1) |
//! | a [hello](super::Hello) | a trunk of another switch |
//! | from [`query::SOURCE`] | a switch that asks hosts for their groups, at a host port of its own |
//!
//! No matter who sends them, they go no further, are not copied, and no host is learnt from them: their source is the device at the
//! other end, or no host at all. LLDP is read where the port listens for it. The last hello of a port is kept: a trunk that leads to
//! a host port is a mistake in a configuration or a cable, and is reported.
//!
//! A host can send all of this. It only changes what is shown of its port. Cost: none for other frames.

use super::hello::{self, Hello};
use super::lock;
use crate::budget::Budget;
use crate::parse::{IPV4, IPV6, ether_type};
use crate::shim;
use crate::subscriptions::query;
use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::sync::Mutex;
use std::time::Instant;

/// Hellos of a host port that are read in a second; the others are only noted.
const READ_PER_SECOND: u32 = 2;

/// Whether a frame to a group address is only for the other end of its cable.
pub fn is_for_one_link(frame: &[u8]) -> bool {
    let is_reserved = frame.starts_with(&[0x01, 0x80, 0xc2, 0, 0]) && frame.get(5).is_some_and(|last| *last < 0x10);
    is_reserved || frame.starts_with(&hello::GROUP) || frame.get(6..12) == Some(&query::SOURCE)
}

/// Whether a frame without a shim is one that a kernel sends on its own wherever an interface is up, even at a trunk: a search for IPv6
/// routers or for a duplicate of its own address, reports of the groups that it wants, and announcements of its services on the link.
/// ```text
///  IPv6: from :: or fe80::/10, to ff02::/16        IPv4: IGMP
/// ```
pub(crate) fn is_chatter(frame: &[u8]) -> bool {
    const IGMP: u8 = 2;
    let Ok((kind, at)) = ether_type(frame, shim::AT) else { return false };
    let ip = frame.get(at..).unwrap_or_default();
    match kind {
        IPV4 => frame[0] & 1 != 0 && ip.get(9) == Some(&IGMP),
        IPV6 => {
            let address = |at: usize| Some(Ipv6Addr::from(*ip.get(at..)?.first_chunk::<16>()?));
            let (Some(from), Some(to)) = (address(8), address(24)) else { return false };
            to.octets()[..2] == [0xff, 2] && (from.is_unspecified() || from.is_unicast_link_local())
        }
        _ => false,
    }
}

/// Whether a frame tells nothing of the hosts at a host port: its source is another switch, or a host behind that one.
pub(crate) fn is_of_switch(frame: &[u8]) -> bool {
    is_for_one_link(frame) || shim::is_present(frame)
}

/// Hellos that came at host ports, by the indices of these.
#[derive(Debug, Default)]
pub(super) struct Strays(Mutex<HashMap<u8, Stray>>);

#[derive(Debug)]
struct Stray {
    budget: Budget,
    hello: Option<Hello>,
}

impl Strays {
    /// Takes a frame at a host port. If it is a hello, it is kept for the keeper, which looks for it at its leisure.
    pub(super) fn hear(&self, index: u8, frame: &[u8], now: Instant) {
        if !frame.starts_with(&hello::GROUP) {
            return;
        }
        let mut strays = lock(&self.0);
        let new = || Stray { budget: Budget::full(READ_PER_SECOND, now), hello: None };
        let stray = strays.entry(index).or_insert_with(new);
        // The frame is counted before it is read: a flood costs no more than this.
        if stray.budget.take(now) {
            stray.hello = Hello::decode(frame).or(stray.hello.take());
        }
    }

    /// The last hello of each host port at which one came since.
    pub(super) fn take(&self) -> Vec<(u8, Hello)> {
        let mut strays = lock(&self.0);
        strays.iter_mut().filter_map(|(index, stray)| Some((*index, stray.hello.take()?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::action::PortId;
    use std::time::Duration;

    fn hello(switch: &str) -> Vec<u8> {
        let (switch, port, session) = (switch.to_owned(), PortId(6), 7);
        Hello { switch, port, session, hears: None, cluster: 0, interval_ms: 100, multiplier: 3 }.encode()
    }

    #[test]
    fn what_a_kernel_says_by_itself_is_no_sign_of_a_host() {
        let v6 = |from: &str, to: &str| {
            let mut frame = [&[0x33, 0x33, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60][..], &[0; 7]].concat();
            frame.extend(from.parse::<Ipv6Addr>().unwrap().octets());
            frame.extend(to.parse::<Ipv6Addr>().unwrap().octets());
            frame
        };
        // A router solicitation, a report of groups, detection of duplicate addresses.
        for (from, to) in [("fe80::1", "ff02::2"), ("::", "ff02::16"), ("::", "ff02::1:ff00:1")] {
            assert!(is_chatter(&v6(from, to)), "{from} to {to}");
        }
        for (from, to) in [("fd00::1", "ff02::2"), ("fe80::1", "fe80::2"), ("fe80::1", "ff05::2"), ("::", "fd00::1")] {
            assert!(!is_chatter(&v6(from, to)), "{from} to {to}");
        }
        let v4 = |to: u8, protocol| {
            let mut frame = [&[to, 0, 0x5e, 0, 0, 22, 2, 0, 0, 0, 0, 1, 8, 0, 0x46][..], &[0; 23]].concat();
            frame[14 + 9] = protocol;
            frame
        };
        assert!(is_chatter(&v4(1, 2)) && !is_chatter(&v4(2, 2)) && !is_chatter(&v4(1, 17)));
        for len in 0..54 {
            assert!(!is_chatter(&v6("::", "ff02::2")[..len]), "{len} bytes");
        }
    }

    #[test]
    fn what_is_for_one_link_is_known_by_its_group_or_by_who_asks() {
        let frame = |to: [u8; 6], from: [u8; 6]| [&to[..], &from, &[0x88, 0xcc]].concat();
        let host = [2, 0, 0, 0, 0, 1];
        for last in 0..=0xff {
            assert_eq!(is_for_one_link(&frame([1, 0x80, 0xc2, 0, 0, last], host)), last < 0x10, "{last:02x}");
        }
        assert!(is_for_one_link(&hello("s1")) && is_for_one_link(&frame([1, 0, 0x5e, 0, 0, 1], query::SOURCE)));
        assert!(!is_for_one_link(&frame([0xff; 6], host)) && !is_for_one_link(&frame([1, 0, 0x5e, 0, 0, 1], host)));
        // A frame between switches, from a host elsewhere.
        let shimmed = [&[2, 0, 0, 0, 0, 9][..], &host, &shim::ETHER_TYPE, &[64, 0, 8, 0]].concat();
        assert!(is_of_switch(&shimmed) && !is_for_one_link(&shimmed) && is_of_switch(&hello("s1")));
        assert!(!is_of_switch(&frame(host, host)));
        (0..14).for_each(|len| assert!(!is_of_switch(&shimmed[..len])));
    }

    #[test]
    fn the_last_hello_is_kept_and_a_flood_is_not_read() {
        let (strays, start) = (Strays::default(), Instant::now());
        let heard = |strays: &Strays| strays.take().into_iter().map(|(i, hello)| (i, hello.switch)).collect::<Vec<_>>();
        strays.hear(4, &hello("s1"), start);
        strays.hear(4, &hello("s2"), start);
        (0..1000).for_each(|_| strays.hear(4, &hello("s3"), start));
        assert_eq!((heard(&strays), heard(&strays)), (vec![(4, "s2".to_owned())], vec![]));
        strays.hear(5, &hello("s3"), start);
        assert_eq!(heard(&strays), [(5, "s3".to_owned())], "others are heard meanwhile");
        let later = start + Duration::from_secs(1);
        strays.hear(4, &hello("s1"), later);
        strays.hear(4, &hello("s1")[..30], later);
        assert_eq!(heard(&strays), [(4, "s1".to_owned())], "one that is none takes nothing away");
    }
}
