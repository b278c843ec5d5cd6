//! Host ports that learn: sources of frames that are not names there, for the controller.
//!
//! ```text
//!  worker ─► sources that are not known to be true ─► inbox ─► teller (daemon::learn) ─► controller ─► names
//! ```
//! Sources are checked anyway ([`crate::source`]). A refused source is claimed by a host that is unknown at the port. Its
//! frames are dropped until the controller has made a name of it, so it is noted here. Of frames from known names nothing is noted,
//! except from ARP, neighbour discovery and DHCP ([`crate::dhcp`]): an address that no name has.
//!
//! Where silent names are to be forgotten, a port looks at the sources of its frames anew several times within that time (a
//! [period](Learner::period)), and notes those that are true: they are still there.
//!
//! A host that makes up names fills the inbox only at the rate of its port, and up to a share of the free places, so that there is room
//! for other ports however many do so. A claim that was noted is not noted again for a second. A
//! worker that finds the inbox in use goes on without it: the host is heard again. A client may not repeat its DHCP request
//! for hours, so noting that waits.

use crate::bell::Bell;
use crate::budget::Budget;
use crate::dhcp;
use crate::parse::{ARP, ICMPV6, IPV6, ether_type};
use crate::shim;
use fib::name::NameKind;
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Decides what to do with sources that are not names at a host port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Learn {
    /// Nothing: their frames are dropped.
    #[default]
    Off,
    /// The controller lists them.
    Report,
    /// The controller makes names of them.
    Accept,
}

/// How long a noted claim is not noted again.
const AGAIN: Duration = Duration::from_secs(1);

/// The most claims that are remembered as noted, and that wait for the teller.
const MAX_NOTED: usize = 16_384;
const INBOX: usize = 4096;

/// Places that are kept for ports of which nothing is noted: one for each possible port.
const KEPT: usize = 1 << u8::BITS;

/// Sources that a port may note a second, and at once.
pub const NOTES_PER_SECOND: u32 = 1000;

/// The outcome for a source that was to be noted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Noted {
    /// It was not noted: another thread is noting.
    Busy,
    /// It was not noted: there are enough notes.
    Not,
    /// It was noted recently.
    Lately,
    /// It is noted now.
    Now,
}

/// A host's claim to be at a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Claim {
    /// The bytes of the name.
    name: [u8; 16],
    len: u8,
    /// The address that it claims.
    pub ip: Option<IpAddr>,
    /// Whether it announces this address to everyone.
    pub announces: bool,
}

impl Claim {
    pub(crate) fn new(name: &[u8], ip: Option<IpAddr>) -> Self {
        let mut bytes = [0; 16];
        bytes[..name.len()].copy_from_slice(name);
        Self { name: bytes, len: name.len() as u8, ip, announces: false }
    }

    /// The bytes of the name.
    pub fn name(&self) -> &[u8] {
        &self.name[..usize::from(self.len)]
    }

    /// The claim of a frame's sender, if names are of a kind that sources have. A MAC address of a group, or of
    /// no host, claims nothing.
    pub fn of(frame: &[u8], kind: NameKind) -> Option<Self> {
        let mac = frame.get(6..12)?;
        let (ether, at) = ether_type(frame, shim::AT).ok()?;
        let body = frame.get(at..)?;
        match kind {
            NameKind::Mac if mac[0] & 1 != 0 || mac.iter().all(|byte| *byte == 0) => None,
            NameKind::Mac => {
                let leased = || dhcp::claimed_address(frame, shim::AT).map(IpAddr::from);
                let claim = Self::new(mac, claimed_address(ether, body).or_else(leased));
                // A server may refuse what its client asks for.
                Some(Self { announces: is_announcement(ether, body), ..claim })
            }
            NameKind::Ipv4 | NameKind::Ipv6 => {
                let ip = claimed_address(ether, body).or_else(|| source_address(ether, body))?;
                match (kind, ip) {
                    (NameKind::Ipv4, IpAddr::V4(ip)) if !ip.is_unspecified() => Some(Self::new(&ip.octets(), None)),
                    (NameKind::Ipv6, IpAddr::V6(ip)) if !ip.is_unspecified() && !ip.is_unicast_link_local() => {
                        Some(Self::new(&ip.octets(), None))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

/// Whether a frame may be ARP or neighbour discovery, or has a tag that has to be examined.
pub(crate) fn may_claim_address(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([0x08, 0x00]) | None => false,
        Some([0x86, 0xdd]) => matches!(frame.get(54), Some(135 | 136)) && frame.get(20) == Some(&ICMPV6),
        Some(_) => true,
    }
}

/// The address that ARP or neighbour discovery claims for its sender: others will believe it. A probe that only asks whether
/// the address is in use claims nothing (RFC 5227, RFC 4862).
fn claimed_address(ether: u16, body: &[u8]) -> Option<IpAddr> {
    const SOLICITATION: u8 = 135;
    const ADVERTISEMENT: u8 = 136;
    match ether {
        ARP if body.get(..6)? == [0, 1, 8, 0, 6, 4] => {
            let ip = Ipv4Addr::from(*body.get(14..)?.first_chunk::<4>()?);
            (!ip.is_unspecified()).then_some(ip.into())
        }
        IPV6 if *body.get(6)? == ICMPV6 => {
            let ip = match *body.get(40)? {
                SOLICITATION => *body.get(8..)?.first_chunk::<16>()?,
                ADVERTISEMENT => *body.get(48..)?.first_chunk::<16>()?,
                _ => return None,
            };
            let ip = Ipv6Addr::from(ip);
            (!ip.is_unspecified() && !ip.is_unicast_link_local()).then_some(ip.into())
        }
        _ => None,
    }
}

/// Whether ARP or neighbour discovery announces its sender's address unasked (RFC 5227, section 3; RFC 4861, 7.2.6).
/// ```text
///  ARP: 6 operation 1 or 2 | 14 sender IP == 24 target IP        advertisement: 40 type 136 | 44 flags: override 0x20, not solicited 0x40
/// ```
fn is_announcement(ether: u16, body: &[u8]) -> bool {
    match ether {
        ARP => {
            let at = |at: usize| body.get(at..at + 4);
            matches!(body.get(6..8), Some([0, 1 | 2])) && at(14).is_some() && at(14) == at(24)
        }
        IPV6 => {
            body.get(6) == Some(&ICMPV6)
                && body.get(40) == Some(&136)
                && body.get(44).is_some_and(|flags| flags & 0x60 == 0x20)
        }
        _ => false,
    }
}

fn source_address(ether: u16, body: &[u8]) -> Option<IpAddr> {
    match ether {
        crate::parse::IPV4 => Some(Ipv4Addr::from(*body.get(12..)?.first_chunk::<4>()?).into()),
        IPV6 => Some(Ipv6Addr::from(*body.get(8..)?.first_chunk::<16>()?).into()),
        _ => None,
    }
}

/// The claims that the workers have noted, for the teller.
#[derive(Debug, Default)]
pub struct Learner {
    inbox: Mutex<Inbox>,
    heard: Bell,
    period: AtomicU32,
}

#[derive(Debug, Default)]
struct Inbox {
    /// The claims, with the indices of their ports.
    claims: Vec<(u8, Claim)>,
    /// The claims noted since the last turn, and in the turn before.
    lately: [HashSet<(u8, Claim)>; 2],
    /// By port: claims that wait, and the number noted since the last turn.
    waiting: HashMap<u8, usize>,
    noted: HashMap<u8, usize>,
    turned: Option<Instant>,
    /// By port, and separately for true sources: invented sources do not silence them.
    budgets: HashMap<(u8, bool), Budget>,
    counts: Counts,
}

/// The number of claims that were noted, and of those that were not because the port, or the switch, had noted enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// For the controller.
    pub noted: u64,
    /// Left out.
    pub left_out: u64,
}

impl Learner {
    /// A worker met sources at a port that are unknown there.
    #[cold]
    pub(crate) fn note(&self, index: u8, claims: impl Iterator<Item = Claim>, now: Instant) {
        self.note_all(index, false, claims, now);
    }

    /// A worker met a true source at a port that claims an address, and may not claim it again soon.
    #[cold]
    pub(crate) fn note_address(&self, index: u8, claim: Claim, now: Instant) {
        let inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        self.note_into(inbox, index, false, std::iter::once(claim), now);
    }

    /// A worker met a true source.
    #[cold]
    pub(crate) fn note_true(&self, index: u8, claim: Claim, now: Instant) -> Noted {
        self.note_all(index, true, std::iter::once(claim), now)
    }

    /// The least of the outcomes.
    fn note_all(&self, index: u8, are_true: bool, claims: impl Iterator<Item = Claim>, now: Instant) -> Noted {
        // Another worker, or the teller, is using it: what is missed is heard again.
        let Ok(inbox) = self.inbox.try_lock() else { return Noted::Busy };
        self.note_into(inbox, index, are_true, claims, now)
    }

    fn note_into(
        &self,
        mut inbox: MutexGuard<'_, Inbox>,
        index: u8,
        are_true: bool,
        claims: impl Iterator<Item = Claim>,
        now: Instant,
    ) -> Noted {
        let before = inbox.claims.len();
        inbox.turn(now);
        let mut all = Noted::Now;
        for claim in claims {
            all = all.min(inbox.note(index, are_true, claim, now));
        }
        let is_more = inbox.claims.len() > before;
        drop(inbox);
        if is_more {
            self.heard.ring();
        }
        all
    }

    /// The period: in a new one, true sources are noted again.
    #[inline]
    pub(crate) fn period(&self) -> u32 {
        self.period.load(Ordering::Relaxed)
    }

    /// Begins a period.
    pub fn begin_period(&self) {
        self.period.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until something is noted.
    pub async fn heard(&self) {
        self.heard.rung().await;
    }

    /// At most this many of the claims, oldest first, with the indices of their ports.
    pub fn take(&self, most: usize) -> Vec<(u8, Claim)> {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        let n = most.min(inbox.claims.len());
        let taken: Vec<_> = inbox.claims.drain(..n).collect();
        for (index, _) in &taken {
            if let Some(waiting) = inbox.waiting.get_mut(index) {
                *waiting -= 1;
            }
        }
        taken
    }

    /// The counts since the start.
    pub fn counts(&self) -> Counts {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).counts
    }
}

impl Inbox {
    fn turn(&mut self, now: Instant) {
        if self.turned.is_none_or(|turned| now.saturating_duration_since(turned) >= AGAIN) {
            let is_old = self.turned.is_none_or(|turned| now.saturating_duration_since(turned) >= 2 * AGAIN);
            self.turned = Some(now);
            self.lately.swap(0, 1);
            self.lately[0].clear();
            self.noted.clear();
            if is_old {
                self.lately[1].clear();
            }
        }
    }

    fn note(&mut self, index: u8, is_true: bool, claim: Claim, now: Instant) -> Noted {
        let noted = (index, claim);
        if self.lately.iter().any(|lately| lately.contains(&noted)) {
            return Noted::Lately;
        }
        let of_port = |all: &HashMap<u8, usize>| all.get(&index).copied().unwrap_or(0);
        let is_full = !has_share(of_port(&self.waiting), INBOX.saturating_sub(self.claims.len()))
            || !has_share(of_port(&self.noted), MAX_NOTED.saturating_sub(self.lately[0].len()));
        let budget = || Budget::full(NOTES_PER_SECOND, now);
        if is_full || !self.budgets.entry((index, is_true)).or_insert_with(budget).take(now) {
            self.counts.left_out += 1;
            return Noted::Not;
        }
        self.counts.noted += 1;
        self.lately[0].insert(noted);
        self.claims.push(noted);
        *self.waiting.entry(index).or_default() += 1;
        *self.noted.entry(index).or_default() += 1;
        Noted::Now
    }
}

/// Whether a port with this many places may have another one, if so many are free.
fn has_share(has: usize, free: usize) -> bool {
    free > 0 && has == 0 || has < free.saturating_sub(KEPT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

    fn frame(ether: u16, body: &[u8]) -> Vec<u8> {
        let mut frame = [[0xff; 6], MAC].concat();
        frame.extend(ether.to_be_bytes());
        frame.extend(body);
        frame
    }

    fn arp(sender: [u8; 4]) -> Vec<u8> {
        let mut body = vec![0, 1, 8, 0, 6, 4, 0, 1];
        body.extend(MAC);
        body.extend(sender);
        body.extend([0; 6]);
        body.extend([10, 0, 0, 9]);
        frame(ARP, &body)
    }

    fn discovery(kind: u8, source: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
        let mut body = vec![0x60, 0, 0, 0, 0, 24, ICMPV6, 255];
        body.extend(source.octets());
        body.extend([0xff; 16]);
        body.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
        body.extend(target.octets());
        frame(IPV6, &body)
    }

    #[test]
    fn an_address_counts_if_others_will_believe_it() {
        let claimed = |frame: Vec<u8>| Claim::of(&frame, NameKind::Mac).map(|claim| (claim.name().to_vec(), claim.ip));
        let v4 = IpAddr::from([10, 0, 0, 7]);
        assert_eq!(claimed(arp([10, 0, 0, 7])), Some((MAC.to_vec(), Some(v4))));
        assert_eq!(claimed(arp([0, 0, 0, 0])), Some((MAC.to_vec(), None)), "a probe");
        let announces = |frame: &[u8]| Claim::of(frame, NameKind::Mac).is_some_and(|claim| claim.announces);
        assert!(announces(&arp([10, 0, 0, 9])) && !announces(&arp([10, 0, 0, 7])), "for its own address, for another");
        let mut advertisement = discovery(136, "fe80::7".parse().unwrap(), "fd00::7".parse().unwrap());
        for (flags, is) in [(0x20, true), (0x60, false), (0x00, false)] {
            advertisement[14 + 44] = flags;
            assert_eq!(announces(&advertisement), is, "{flags:x}");
        }
        let (own, other): (Ipv6Addr, Ipv6Addr) = ("fd00::7".parse().unwrap(), "fd00::9".parse().unwrap());
        let local = "fe80::7".parse().unwrap();
        assert_eq!(claimed(discovery(135, own, other)), Some((MAC.to_vec(), Some(own.into()))));
        assert_eq!(claimed(discovery(136, local, own)), Some((MAC.to_vec(), Some(own.into()))));
        assert_eq!(claimed(discovery(135, Ipv6Addr::UNSPECIFIED, own)), Some((MAC.to_vec(), None)), "detection");
        assert_eq!(claimed(discovery(135, local, own)), Some((MAC.to_vec(), None)));
        // What a packet says of its source need not be believed.
        let mut packet = vec![0x45; 20];
        packet[12..16].copy_from_slice(&[10, 0, 0, 7]);
        assert_eq!(claimed(frame(crate::parse::IPV4, &packet)), Some((MAC.to_vec(), None)));
        let by_ip = Claim::of(&frame(crate::parse::IPV4, &packet), NameKind::Ipv4).unwrap();
        assert_eq!((by_ip.name(), by_ip.ip), (&[10, 0, 0, 7][..], None));
        for wrong in [[1, 0, 0, 0, 0, 7], [0; 6]] {
            let mut frame = arp([10, 0, 0, 7]);
            frame[6..12].copy_from_slice(&wrong);
            assert_eq!(Claim::of(&frame, NameKind::Mac), None);
        }
        for len in 0..60 {
            let cut = &discovery(136, local, own)[..len];
            let _ = Claim::of(cut, NameKind::Mac);
            assert!(Claim::of(cut, NameKind::Ipv6).is_none() || len > 30);
        }
    }

    #[test]
    fn however_many_ports_flood_another_is_heard() {
        let learner = Learner::default();
        let start = Instant::now();
        for second in 0..20 {
            let now = start + second * AGAIN;
            for port in 0..100u8 {
                let flood = (0..2000u32)
                    .map(|i| Claim::new(&[&[2, port][..], &(second * 2000 + i).to_be_bytes()].concat(), None));
                learner.note(port, flood, now);
            }
            // Nothing is taken, and still there is room.
            let other = Claim::new(&[4, 0, 0, 0, 0, second as u8], None);
            let port = 200 + second as u8;
            assert_eq!(learner.note_all(port, false, std::iter::once(other), now), Noted::Now, "second {second}");
        }
        let taken = learner.take(usize::MAX);
        assert!(taken.len() <= INBOX);
        assert_eq!(taken.iter().filter(|(port, _)| *port >= 200).count(), 20);
        // Taking claims makes room.
        learner.note(7, std::iter::once(Claim::new(&[6; 6], None)), start + 30 * AGAIN);
        assert_eq!(learner.take(usize::MAX).len(), 1);
    }

    #[test]
    fn a_flood_fills_what_its_port_may_note_and_others_are_heard() {
        let learner = Learner::default();
        let start = Instant::now();
        let claims = |n: u32, from: u32| {
            (from..from + n).map(|i| Claim::new(&[&[2, 0][..], &i.to_be_bytes()].concat(), None)).collect::<Vec<_>>()
        };
        learner.note(0, claims(100_000, 0).into_iter(), start);
        let most = u64::from(NOTES_PER_SECOND);
        assert_eq!(learner.counts(), Counts { noted: most, left_out: 100_000 - most });
        learner.note(1, claims(1, 7).into_iter(), start);
        let taken = learner.take(usize::MAX);
        assert_eq!((taken.len() as u64, taken.last().unwrap().0), (most + 1, 1));

        // The same claim is not noted again too early.
        learner.note(1, claims(1, 7).into_iter(), start + AGAIN / 2);
        assert!(learner.take(usize::MAX).is_empty());
        learner.note(1, claims(1, 7).into_iter(), start + AGAIN);
        assert!(learner.take(usize::MAX).is_empty(), "it was noted in the turn before");
        learner.note(1, claims(1, 7).into_iter(), start + 2 * AGAIN);
        assert_eq!(learner.take(usize::MAX), [(1, claims(1, 7)[0])]);
        // Hours later none of that holds any more.
        let later = start + 3600 * AGAIN;
        learner.note(1, claims(1, 7).into_iter(), later);
        assert_eq!(learner.take(usize::MAX).len(), 1);
        // A flood at a port does not silence what is true there.
        learner.note(0, claims(100_000, 0).into_iter(), later);
        learner.take(usize::MAX);
        let (known, other) = (claims(1, 1 << 20)[0], claims(1, 1 << 21)[0]);
        let twice = [(); 2].map(|()| learner.note_true(0, known, later));
        assert_eq!(twice, [Noted::Now, Noted::Lately]);
        assert_eq!(learner.take(usize::MAX), [(0, known)]);
        let inbox = learner.inbox.lock().unwrap();
        assert_eq!(learner.note_true(0, other, later), Noted::Busy, "nobody has it: it is to be told again");
        drop(inbox);
    }
}
