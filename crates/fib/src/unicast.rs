//! Names and addresses that a host can have: group, broadcast and null addresses have no place of their own.
//!
//! A switch treats such a destination before it looks anything up, so a name like that could never be reached, and an ARP
//! answer with such an address would mislead every host. The check is for what an operator adds. It does not
//! limit which bytes a name may have, so what a store holds already can still be shown and removed.

use crate::name::{Name, NameKind};
use std::net::IpAddr;

/// Why no host can have this name or address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{got}` is {why}, which no host can have: give the address of one host")]
pub struct NotUnicast {
    /// The name or address.
    pub got: String,
    /// The kind of address.
    pub why: &'static str,
}

impl Name {
    /// Whether a host can have this name. Names that are not addresses always pass.
    /// # Errors
    /// [`NotUnicast`].
    pub fn check_unicast(&self) -> Result<(), NotUnicast> {
        let refused = |why| NotUnicast { got: self.to_string(), why };
        match (self.kind(), self.as_bytes()) {
            (NameKind::Mac, bytes) => {
                let why = match bytes {
                    [0, 0, 0, 0, 0, 0] => Some("the zero address"),
                    [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => Some("the broadcast address"),
                    // The first bit on the wire is the lowest of the first byte (IEEE 802).
                    [first, ..] if first & 1 != 0 => Some("a group address"),
                    _ => None,
                };
                why.map_or(Ok(()), |why| Err(refused(why)))
            }
            (NameKind::Ipv4, bytes) => <[u8; 4]>::try_from(bytes).map_or(Ok(()), |ip| check_unicast(ip.into())),
            (NameKind::Ipv6, bytes) => <[u8; 16]>::try_from(bytes).map_or(Ok(()), |ip| check_unicast(ip.into())),
            _ => Ok(()),
        }
    }
}

/// Whether a host can have this IP address.
/// # Errors
/// [`NotUnicast`].
pub fn check_unicast(ip: IpAddr) -> Result<(), NotUnicast> {
    why_not_unicast(ip).map_or(Ok(()), |why| Err(NotUnicast { got: ip.to_string(), why }))
}

/// The kind of an IP address that no host can have. None: a host can have it.
pub fn why_not_unicast(ip: IpAddr) -> Option<&'static str> {
    match ip {
        // The same address would have two forms, and no frame has this one (RFC 4291, 2.5.5.2; RFC 6890).
        IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() => Some("an IPv4 address in the form of IPv6"),
        ip if ip.is_unspecified() => Some("the unspecified address"),
        ip if ip.is_loopback() => Some("a loopback address"),
        ip if ip.is_multicast() => Some("a multicast address"),
        IpAddr::V4(ip) if ip.is_broadcast() => Some("the broadcast address"),
        // 240.0.0.0/4 (RFC 1112, section 4).
        IpAddr::V4(ip) if ip.octets()[0] >= 240 => Some("a reserved address"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_groups_and_of_nobody_are_refused() {
        let cases = [
            (NameKind::Mac, "00:00:00:00:00:00", false),
            (NameKind::Mac, "ff:ff:ff:ff:ff:ff", false),
            (NameKind::Mac, "01:00:5e:00:00:01", false),
            (NameKind::Mac, "03:00:00:00:00:01", false),
            (NameKind::Mac, "02:00:00:00:00:00", true),
            (NameKind::Mac, "00:00:00:00:00:01", true),
            (NameKind::Ipv4, "0.0.0.0", false),
            (NameKind::Ipv4, "224.0.0.1", false),
            (NameKind::Ipv4, "255.255.255.255", false),
            (NameKind::Ipv4, "127.0.0.1", false),
            (NameKind::Ipv4, "240.0.0.1", false),
            (NameKind::Ipv4, "255.255.255.254", false),
            (NameKind::Ipv4, "223.255.255.1", true),
            (NameKind::Ipv4, "10.255.255.255", true),
            (NameKind::Ipv6, "::", false),
            (NameKind::Ipv6, "ff02::1", false),
            (NameKind::Ipv6, "::ffff:224.0.0.1", false),
            (NameKind::Ipv6, "::ffff:10.0.0.1", false),
            (NameKind::Ipv6, "::1", false),
            (NameKind::Ipv6, "fd00::1", true),
            (NameKind::Ipv6, "fe80::1", true),
            (NameKind::Teid, "0", true),
        ];
        for (kind, text, good) in cases {
            let checked = Name::parse(kind, text).unwrap().check_unicast();
            assert_eq!(checked.is_ok(), good, "{kind} {text}: {checked:?}");
            if let Err(error) = checked {
                assert!(error.to_string().contains(text), "{error}");
            }
        }
    }
}
