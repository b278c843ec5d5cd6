//! Keeps hosts in their place: checks whether a frame from a host port states its true sender.
//!
//! A *host* is what hangs off one port, under one name or many. The exact table of local names says which names hang off
//! which port. A frame may claim
//!
//! - a MAC address, if it is a local name at this very port;
//! - an IP address, if the RIB gives it to such a name, or to no name at all.
//!
//! | checked | where | dropped as |
//! |---|---|---|
//! | MAC address | Ethernet source | [`DropReason::SourceMac`] |
//! | MAC and IP address | sender of an ARP request or reply | [`DropReason::SourceArp`] |
//! | MAC and IP address | neighbour solicitations and advertisements: IP source or target, link-layer address options | [`DropReason::SourceNd`] |
//! | IP address, if asked for ([`CheckSource::MacAndIp`]) | IPv4 and IPv6 source | [`DropReason::SourceIp`] |
//!
//! With [`CheckSource::MacAndIp`], a name to which the RIB gives an address of a family may use no unknown address of that
//! family. The unspecified address claims nothing: ARP probes, duplicate address detection and DHCP begin with it. An IPv6
//! link-local address is in no RIB, so each host may use any. No host may speak for [addresses that no host can
//! have](fib::unicast). But a link-local address that was made from the MAC address of a valid name
//! (EUI-64) belongs to that name. Router advertisements and redirects are dropped: hosts are not routers. Where a port is configured
//! with a router (RFC 6105), its advertisements are checked like other messages of hosts; redirects are dropped there too.
//!
//! Names must be MAC addresses for this. If they are IP addresses, only IP sources can be checked: with
//! [`CheckSource::MacAndIp`], a packet must come from a local name at this port. Names of other kinds say nothing about
//! sources, and nothing is checked.
//!
//! Cost: a port remembers the true sources of its frames, some sixty, as long as no local name goes or moves. Of a burst of
//! IPv4 frames whose sources it all remembers, one comparison of a few words a frame. Otherwise, of a frame with IPv4, the
//! digest of its source and one line of the table of local names, for a burst at once; of a frame with IPv6, also its next
//! header. If IP sources are checked, also one line of the table of valid names and the address of the name, fetched for a
//! burst at once. An address that is not that of the name is looked up alone, and so are names in ARP and neighbour
//! discovery, under a read lock. The lines are fetched while other bursts are handled.
//!
//! Sources: RFC 826, RFC 5227, RFC 4861 (sections 4.1 to 4.6), RFC 4862 (5.4), RFC 6105, RFC 6980, RFC 7113. Limits: two hosts at one
//! port may pose as each other; the frame need not pass this switch for that. Up to two VLAN tags are skipped; a frame with more is dropped as
//! [`DropReason::VlanTags`]. What a
//! later fragment holds is not seen; receivers ignore fragments of neighbour discovery (RFC 6980).

use crate::counters::DropReason;
use crate::exact::ExactTable;
use crate::mac::Mac;
use crate::neighbours::NeighboursView;
use crate::parse::{ARP, ICMPV6, IPV4, IPV6, Network, SERVICE_VLAN, VLAN, ether_type, network};
use crate::shim;
use fib::action::PortId;
use fib::name::NameKind;
use fib::unicast::why_not_unicast;
use lookup::hash::Hasher;
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The check of frame sources at a host port. See [the module](self).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckSource {
    /// Nothing.
    Off,
    /// MAC addresses, and the contents of ARP and neighbour discovery.
    #[default]
    Mac,
    /// As [`CheckSource::Mac`], and the IP source of every packet.
    #[serde(rename = "mac+ip")]
    MacAndIp,
}

impl CheckSource {
    /// The check that is possible if names are of a kind.
    pub fn with_names(self, kind: NameKind) -> Checked {
        match (kind, self) {
            (NameKind::Mac, Self::Mac) => Checked::Mac,
            (NameKind::Mac, Self::MacAndIp) => Checked::MacAndIp,
            (NameKind::Ipv4 | NameKind::Ipv6, Self::MacAndIp) => Checked::Ip,
            _ => Checked::Nothing,
        }
    }
}

/// The effective check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checked {
    /// Nothing.
    Nothing,
    /// The MAC source.
    Mac,
    /// The MAC source, and the IP source of every packet.
    MacAndIp,
    /// The IP source.
    Ip,
}

impl Checked {
    /// The name on the status page.
    pub fn text(self) -> &'static str {
        match self {
            Self::Nothing => "off",
            Self::Mac => "mac",
            Self::MacAndIp => "mac+ip",
            Self::Ip => "ip",
        }
    }
}

/// Bytes of an Ethernet header.
const HEADER: usize = 14;
const ARP_LEN: usize = 28;
const IPV6_HEADER: usize = 40;

/// The source address of a frame as a name, and whether more of the frame than that must be checked.
#[inline]
pub(crate) fn source(frame: &[u8], checked: Checked) -> Option<(u64, bool)> {
    let bytes = frame.get(6..14)?.first_chunk::<8>()?;
    let word = u64::from_le_bytes(*bytes);
    let says_more = checked != Checked::Mac || word >> 48 != u64::from(IPV4.swap_bytes());
    Some((word & 0xffff_ffff_ffff, says_more))
}

/// The IPv4 source of a packet, as a name, if names are IPv4 addresses. Other names are looked up one by one.
#[inline]
pub(crate) fn ip_source(frame: &[u8], kind: NameKind) -> Option<u64> {
    let from = match network(frame, shim::AT) {
        Ok(Network::V4(ip)) if kind == NameKind::Ipv4 => array_at(ip, 12)?,
        _ => return None,
    };
    Some(u32::from_le_bytes(from).into())
}

/// Checks the sender of a frame that a host sends into a port of a switch, as the switch does if names are MAC addresses and
/// `check_source` is `mac`: for programs that know the names from elsewhere.
/// # Errors
/// The reason to drop it.
pub fn check(frame: &[u8], port: PortId, known: &impl Known) -> Result<(), DropReason> {
    let source = frame.get(..HEADER).and_then(|header| mac_at(header, 6)).ok_or(DropReason::Runt)?;
    if known.port_of(&source) != Some(port) {
        return Err(DropReason::SourceMac);
    }
    Place { port, checked: Checked::Mac, has_router: false, known, led: None }.check(frame)
}

/// The questions of the check about names.
pub trait Known {
    /// The kind of names.
    fn kind(&self) -> NameKind;

    /// The port of this switch that a name is at.
    fn port_of(&self, name: &[u8]) -> Option<PortId>;

    /// The name that has an IP address.
    fn owner_of(&self, ip: IpAddr) -> Option<Mac>;

    /// The IP address of a name.
    fn address_of(&self, mac: Mac) -> Option<IpAddr>;

    /// Whether there is such a name, here or elsewhere.
    fn is_valid(&self, mac: Mac) -> bool;
}

/// The tables of a switch.
pub(crate) struct Tables<'a> {
    pub(crate) local: &'a ExactTable,
    pub(crate) valid: &'a ExactTable,
    pub(crate) hasher: &'a Hasher,
    pub(crate) neighbours: NeighboursView<'a>,
}

impl Known for Tables<'_> {
    fn kind(&self) -> NameKind {
        self.local.kind()
    }

    fn port_of(&self, name: &[u8]) -> Option<PortId> {
        self.local.get_bytes(name, self.hasher.digest(name)).map(PortId)
    }

    fn owner_of(&self, ip: IpAddr) -> Option<Mac> {
        self.neighbours.get(ip)
    }

    fn address_of(&self, mac: Mac) -> Option<IpAddr> {
        self.neighbours.address_of(self.hasher.digest(&mac), mac)
    }

    fn is_valid(&self, mac: Mac) -> bool {
        self.valid.get_bytes(&mac, self.hasher.digest(&mac)).is_some()
    }
}

/// A host port, and what is known of names.
pub(crate) struct Place<'a, K> {
    pub(crate) port: PortId,
    pub(crate) checked: Checked,
    /// Whether a router is there, which may advertise itself.
    pub(crate) has_router: bool,
    pub(crate) known: &'a K,
    /// The IP address of the name that the frame is from, if it is known to lead to that name.
    pub(crate) led: Option<IpAddr>,
}

impl<K: Known> Place<'_, K> {
    /// Checks what a frame claims besides its Ethernet source, which was checked.
    /// # Errors
    /// The reason to drop it.
    pub(crate) fn check(&self, frame: &[u8]) -> Result<(), DropReason> {
        let source = mac_at(frame, 6).ok_or(DropReason::Runt)?;
        let (kind, at) = ether_type(frame, shim::AT)?;
        match kind {
            ARP if self.checked != Checked::Ip => self.check_arp(frame.get(at..).unwrap_or_default(), source),
            IPV4 if self.checked == Checked::Mac => Ok(()),
            // More tags than are skipped. A host may skip them all, and find ARP.
            VLAN | SERVICE_VLAN if self.checked != Checked::Ip => Err(DropReason::VlanTags),
            IPV4 | IPV6 => match network(frame, shim::AT) {
                Ok(Network::V4(ip)) => {
                    let from = Ipv4Addr::from(array_at(ip, 12).ok_or(DropReason::Truncated)?);
                    self.check_ip(from.into(), source)
                }
                Ok(Network::V6(ip)) => self.check_ipv6(ip, source),
                Err(DropReason::NoName) => Err(DropReason::SourceIp),
                Err(reason) => Err(reason),
            },
            _ => Ok(()),
        }
    }

    /// ```text
    ///  0 hardware type | 2 protocol | 4 lengths | 6 operation | 8 sender MAC | 14 sender IP | 18 target MAC | 24 target IP
    /// ```
    fn check_arp(&self, arp: &[u8], source: Mac) -> Result<(), DropReason> {
        let arp = arp.get(..ARP_LEN).ok_or(DropReason::Truncated)?;
        // The sender cannot be read from an ARP packet for other addresses. None is answered either.
        if arp[..6] != [0, 1, 8, 0, 6, 4] {
            return Err(DropReason::SourceArp);
        }
        let (Some(mac), Some(ip)) = (mac_at(arp, 8), array_at(arp, 14)) else { return Err(DropReason::Truncated) };
        let is_true = self.is_here(mac, source) && self.may_claim(Ipv4Addr::from(ip).into(), mac, source);
        if is_true { Ok(()) } else { Err(DropReason::SourceArp) }
    }

    fn check_ip(&self, ip: IpAddr, source: Mac) -> Result<(), DropReason> {
        if self.may_claim(ip, source, source) { Ok(()) } else { Err(DropReason::SourceIp) }
    }

    fn check_ipv6(&self, ip: &[u8], source: Mac) -> Result<(), DropReason> {
        let from = Ipv6Addr::from(array_at(ip, 8).ok_or(DropReason::Truncated)?);
        if self.checked != Checked::Mac {
            self.check_ip(from.into(), source)?;
        }
        match icmpv6(ip)? {
            Some(message) => self.check_discovery(message, from, source),
            None => Ok(()),
        }
    }

    /// ```text
    ///  solicitation  135: 0 type | 8 target | 24 options; option 1: the MAC address of the IP source
    ///  advertisement 136: 0 type | 8 target | 24 options; option 2: the MAC address of the target
    ///  router solicitation 133:       8 options; option 1 as above
    ///  router advertisement 134: 4 hop limit, flags | 6 times | 16 options; option 1 as above
    /// ```
    fn check_discovery(&self, message: &[u8], from: Ipv6Addr, source: Mac) -> Result<(), DropReason> {
        const ROUTER_SOLICITATION: u8 = 133;
        const ROUTER_ADVERTISEMENT: u8 = 134;
        const SOLICITATION: u8 = 135;
        const ADVERTISEMENT: u8 = 136;
        const REDIRECT: u8 = 137;
        let target = || array_at(message, 8).map(Ipv6Addr::from).ok_or(DropReason::Truncated);
        let (claimed, options) = match message.first() {
            Some(&ROUTER_SOLICITATION) => (from, 8),
            Some(&ROUTER_ADVERTISEMENT) if self.has_router => (from, 16),
            Some(&SOLICITATION) => (from, 24),
            Some(&ADVERTISEMENT) => (target()?, 24),
            Some(&(ROUTER_ADVERTISEMENT | REDIRECT)) => return Err(DropReason::SourceNd),
            _ => return Ok(()),
        };
        if !self.may_claim(claimed.into(), source, source) {
            return Err(DropReason::SourceNd);
        }
        // An option: type, length in units of 8 bytes, value. Receivers ignore a message with an option of length 0.
        let mut options = message.get(options..).ok_or(DropReason::Truncated)?;
        while let [kind, units, ..] = *options {
            let option = options.get(..8 * usize::from(units)).filter(|option| !option.is_empty());
            let option = option.ok_or(DropReason::Truncated)?;
            if matches!(kind, 1 | 2) {
                let mac = mac_at(option, 2).ok_or(DropReason::Truncated)?;
                if units != 1 || !self.is_here(mac, source) || !self.may_claim(claimed.into(), mac, source) {
                    return Err(DropReason::SourceNd);
                }
            }
            options = &options[option.len()..];
        }
        Ok(())
    }

    /// Whether an address is a name at this port. The source of the frame is.
    fn is_here(&self, mac: Mac, source: Mac) -> bool {
        mac == source || self.checked == Checked::Ip || self.known.port_of(&mac) == Some(self.port)
    }

    /// Whether the name `mac` at this port may have an IP address.
    fn may_claim(&self, ip: IpAddr, mac: Mac, source: Mac) -> bool {
        if ip.is_unspecified() || (mac == source && self.led == Some(ip)) {
            return true;
        }
        if why_not_unicast(ip).is_some() {
            return false;
        }
        let (is_link_local, made_from) = match ip {
            IpAddr::V4(_) => (false, None),
            IpAddr::V6(ip) => (ip.is_unicast_link_local(), made_from(ip)),
        };
        if self.checked == Checked::Ip {
            let is_here = |name: &[u8]| self.known.port_of(name) == Some(self.port);
            return is_link_local
                || match (ip, self.known.kind()) {
                    (IpAddr::V4(ip), NameKind::Ipv4) => is_here(&ip.octets()),
                    (IpAddr::V6(ip), NameKind::Ipv6) => is_here(&ip.octets()),
                    // Packets of the other family have no name, and are not forwarded.
                    _ => true,
                };
        }
        let owner = self.known.owner_of(ip).or_else(|| made_from.filter(|mac| self.known.is_valid(*mac)));
        match owner {
            Some(owner) => owner == mac || self.is_here(owner, source),
            None => is_link_local || self.checked == Checked::Mac || !self.has_other(mac, ip),
        }
    }

    /// Whether the RIB gives a name an address of the family of `ip`.
    fn has_other(&self, mac: Mac, ip: IpAddr) -> bool {
        self.known.address_of(mac).is_some_and(|own| own.is_ipv4() == ip.is_ipv4())
    }
}

/// The MAC address that a link-local address was made from (RFC 4291, appendix A), if it looks like one that was.
fn made_from(ip: Ipv6Addr) -> Option<Mac> {
    match ip.octets() {
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, 0xff, 0xfe, d, e, f] => Some([a ^ 2, b, c, d, e, f]),
        _ => None,
    }
}

/// The ICMPv6 message in a packet; none if it holds something else.
fn icmpv6(ip: &[u8]) -> Result<Option<&[u8]>, DropReason> {
    if ip[6] == ICMPV6 {
        return Ok(Some(&ip[IPV6_HEADER..]));
    }
    let transport = Network::V6(ip).transport()?;
    if transport.ends_in_extension() {
        // A host may read on where this switch does not.
        return Err(DropReason::SourceNd);
    }
    let is_message = transport.protocol == ICMPV6 && !transport.later_fragment;
    Ok(is_message.then_some(transport.payload))
}

fn mac_at(bytes: &[u8], at: usize) -> Option<Mac> {
    array_at(bytes, at)
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}
