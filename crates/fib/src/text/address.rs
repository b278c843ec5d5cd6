//! Addresses and prefixes as people write them, in one dialect.
//!
//! | written | |
//! |---|---|
//! | `10.0.0.0/8`, `2001:db8::/32` | a prefix |
//! | `10.0.0.0/255.0.0.0`, `10.0.0.0 255.0.0.0` | likewise, with a mask |
//! | `10.0.0.9` | that address alone, where an address is as good as a prefix |
//! | `any`, `default` | every address |
//!
//! Bits behind the length are refused: anyone who wrote `10.1.2.3/8` meant another address or another length. So are wildcard masks, as
//! `0.255.255.255`, and prefixes of IPv4 addresses in IPv6 (`::ffff:10.0.0.1`), which no packet has.

use crate::name::clip;
use lookup::lpm::prefix::{Prefix, PrefixError};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A prefix of either version of IP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AnyPrefix {
    /// Of IPv4.
    V4(Prefix<u32>),
    /// Of IPv6.
    V6(Prefix<u128>),
}

impl AnyPrefix {
    /// The prefixes of all addresses.
    pub fn all() -> [AnyPrefix; 2] {
        [AnyPrefix::V4(Prefix::of(0, 0)), AnyPrefix::V6(Prefix::of(0, 0))]
    }

    /// Whether its addresses are IPv4.
    pub fn is_v4(self) -> bool {
        matches!(self, AnyPrefix::V4(_))
    }

    /// Its address, followed by zeros.
    pub fn address(self) -> IpAddr {
        match self {
            AnyPrefix::V4(prefix) => Ipv4Addr::from(prefix.address()).into(),
            AnyPrefix::V6(prefix) => Ipv6Addr::from(prefix.address()).into(),
        }
    }

    /// The number of its bits.
    #[expect(clippy::len_without_is_empty, reason = "the length of a prefix is a number of bits")]
    pub fn len(self) -> u8 {
        match self {
            AnyPrefix::V4(prefix) => prefix.len(),
            AnyPrefix::V6(prefix) => prefix.len(),
        }
    }

    /// The prefix with the first `len` bits of an address.
    /// # Panics
    /// If `len` is larger than the address.
    pub fn of(address: IpAddr, len: u8) -> AnyPrefix {
        match address {
            IpAddr::V4(address) => AnyPrefix::V4(Prefix::of(address.into(), len)),
            IpAddr::V6(address) => AnyPrefix::V6(Prefix::of(address.into(), len)),
        }
    }

    /// Whether an address begins with it.
    pub fn covers(self, address: IpAddr) -> bool {
        match (self, address) {
            (AnyPrefix::V4(prefix), IpAddr::V4(address)) => prefix.covers(address.into()),
            (AnyPrefix::V6(prefix), IpAddr::V6(address)) => prefix.covers(address.into()),
            _ => false,
        }
    }

    fn new(address: IpAddr, len: u8) -> Result<AnyPrefix, PrefixError> {
        Ok(match address {
            IpAddr::V4(address) => AnyPrefix::V4(Prefix::new(address.into(), len)?),
            IpAddr::V6(address) => AnyPrefix::V6(Prefix::new(address.into(), len)?),
        })
    }
}

impl fmt::Display for AnyPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnyPrefix::V4(prefix) => prefix.fmt(f),
            AnyPrefix::V6(prefix) => prefix.fmt(f),
        }
    }
}

/// Whether a word means every address.
pub fn is_any(word: &str) -> bool {
    ["any", "default"].iter().any(|any| any.eq_ignore_ascii_case(word))
}

/// Reads a prefix. `address mask` may have white space between the two.
/// # Errors
/// What is wrong, and what to write.
pub fn prefix(text: &str) -> Result<AnyPrefix, String> {
    match parts(text)? {
        (address, Some(len)) => AnyPrefix::new(address, len).map_err(|error| error.to_string()),
        (address, None) => {
            let max = if address.is_ipv4() { 32 } else { 128 };
            Err(PrefixError::NoLength { text: address.to_string(), max }.to_string())
        }
    }
}

/// Reads a prefix, or an address that stands for itself.
/// # Errors
/// What is wrong, and what to write.
pub fn prefix_or_address(text: &str) -> Result<AnyPrefix, String> {
    let (address, len) = parts(text)?;
    let len = len.unwrap_or(if address.is_ipv4() { 32 } else { 128 });
    AnyPrefix::new(address, len).map_err(|error| error.to_string())
}

/// The number of bits of a network mask, if a word is one, or the reason why it is none.
pub fn mask_len(word: &str) -> Option<Result<u8, String>> {
    let mask = u32::from(word.parse::<Ipv4Addr>().ok()?);
    if mask.leading_ones() + mask.trailing_zeros() >= 32 {
        return Some(Ok(mask.leading_ones() as u8));
    }
    let wrong = match mask.leading_zeros() + mask.trailing_ones() {
        32.. => format!("`{word}` is a wildcard mask: write {}, or a length", Ipv4Addr::from(!mask)),
        _ => format!("`{word}` is not a network mask: its ones do not all come first"),
    };
    Some(Err(wrong))
}

fn parts(text: &str) -> Result<(IpAddr, Option<u8>), String> {
    let text = text.trim();
    let wrong = || {
        let example = if text.contains(':') { "2001:db8::/32" } else { "10.0.0.0/8" };
        format!("`{}` is not a prefix: write it like {example}", clip(text))
    };
    let (address, len) = match text.split_once('/') {
        Some((address, len)) => (address, Some(len)),
        None => {
            text.split_once(char::is_whitespace).map_or((text, None), |(address, mask)| (address, Some(mask.trim())))
        }
    };
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let Some(len) = len else { return Ok((checked(address, 128)?, None)) };
    if let Some(mask) = mask_len(len) {
        return if address.is_ipv4() { Ok((address, Some(mask?))) } else { Err(wrong()) };
    }
    let len: u32 = digits(len).ok_or_else(wrong)?;
    let (max, version) = if address.is_ipv4() { (32, 4) } else { (128, 6) };
    match u8::try_from(len).ok().filter(|len| *len <= max) {
        Some(len) => Ok((checked(address, len)?, Some(len))),
        None => Err(PrefixError::TooLong { len, max, version }.to_string()),
    }
}

/// The number that a word is, if it is digits alone: `+24` is a number elsewhere, but no one means one by it.
pub fn digits<T: FromStr>(word: &str) -> Option<T> {
    let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { word.parse().ok() } else { None }
}

/// Refuses addresses of IPv4 that are written as those of IPv6.
fn checked(address: IpAddr, len: u8) -> Result<IpAddr, String> {
    match address {
        IpAddr::V6(v6) if len > 96 => match v6.to_ipv4_mapped() {
            Some(v4) => Err(format!("`{v6}` is an IPv4 address, and no packet has it as one of IPv6: write {v4}")),
            None => Ok(address),
        },
        _ => Ok(address),
    }
}

/// Reads a port, or a range of ports such as `1024-65535`.
/// # Errors
/// What is wrong, and what to write.
pub fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let wrong = || format!("`{}` is not a range of ports: write it like 80 or 1024-65535", clip(text));
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| digits::<u16>(text.trim()).ok_or_else(wrong);
    let (low, high) = (port(low)?, port(high)?);
    if low > high { Err(format!("`{}` has no port: write the smaller one first", clip(text))) } else { Ok(low..=high) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_prefix_is_the_same_prefix() {
        for text in ["10.0.0.0/8", "10.0.0.0/255.0.0.0", "10.0.0.0 255.0.0.0", " 10.0.0.0\t255.0.0.0 ", "10.0.0.0 8"] {
            assert_eq!(prefix(text), Ok(AnyPrefix::V4("10.0.0.0/8".parse().unwrap())), "{text}");
        }
        assert_eq!(prefix("0.0.0.0 0.0.0.0"), Ok(AnyPrefix::all()[0]));
        assert_eq!(prefix_or_address("10.0.0.9"), prefix("10.0.0.9/32"));
        assert_eq!(prefix_or_address("fd00::9"), prefix("fd00::9/128"));
        assert!(is_any("any") && is_any("Default") && !is_any("all"));
    }

    #[test]
    fn what_is_no_prefix_is_refused_with_what_to_write() {
        for (text, says) in [
            ("10.0.0.1/8", "write 10.0.0.0/8"),
            ("10.0.0.1 255.0.0.0", "write 10.0.0.0/8"),
            ("10.0.0.0/0.255.255.255", "wildcard mask: write 255.0.0.0"),
            ("10.0.0.0 255.0.255.0", "not a network mask"),
            ("10.0.0.0", "has no length: write 10.0.0.0/32"),
            ("10.0.0.0/33", "a prefix of 33 bits"),
            ("10.0.0.0/+8", "not a prefix"),
            ("10.0.0.0/-1", "not a prefix"),
            ("10.0.0.0/", "not a prefix"),
            ("10.0.0/8", "not a prefix"),
            ("", "not a prefix"),
            ("fd00:: 255.0.0.0", "not a prefix"),
            ("::ffff:10.0.0.1/128", "write 10.0.0.1"),
        ] {
            let error = prefix(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
        assert!(prefix("::ffff:0:0/96").is_ok());
        for text in ["+80", "80-", "-80", "", "80:90", "http", "80,443", "0-65536", "9-8"] {
            assert!(ports(text).is_err(), "{text}");
        }
        assert_eq!((ports("80"), ports("8000 - 8999")), (Ok(80..=80), Ok(8000..=8999)));
    }
}
