//! Messages and attributes of BGP, as far as they determine next hops.

use crate::text::address::AnyPrefix;
use std::net::IpAddr;

/// There are fewer bytes than there should be.
pub(super) struct Short;

/// Bytes that are read from the front.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn take(&mut self, n: usize) -> Result<&'a [u8], Short> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Short> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16, Short> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, Short> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(super) fn address(&mut self, is_v4: bool) -> Result<IpAddr, Short> {
        Ok(if is_v4 { self.array::<4>()?.into() } else { self.array::<16>()?.into() })
    }

    /// A length, and as many bytes of an address as it takes.
    pub(super) fn prefix(&mut self, is_v4: bool) -> Result<AnyPrefix, super::Wrong> {
        let len = self.u8()?;
        let n_bytes = usize::from(len).div_ceil(8);
        let address = if is_v4 { padded::<4>(self, n_bytes)?.into() } else { padded::<16>(self, n_bytes)?.into() };
        prefix_of(address, len)
    }
}

fn padded<const N: usize>(bytes: &mut Bytes<'_>, n: usize) -> Result<[u8; N], super::Wrong> {
    let taken = bytes.take(n)?;
    let mut address = [0; N];
    address.get_mut(..n).ok_or_else(|| super::Wrong::Text(too_long(n * 8, N * 8)))?.copy_from_slice(taken);
    Ok(address)
}

fn too_long(len: usize, max: usize) -> String {
    format!("a prefix of {len} bits, where an address has {max}; was the file damaged?")
}

/// The prefix of the first `len` bits of an address, whatever the others are.
pub(super) fn prefix_of(address: IpAddr, len: u8) -> Result<AnyPrefix, super::Wrong> {
    let max = if address.is_ipv4() { 32 } else { 128 };
    if len > max {
        return Err(super::Wrong::Text(too_long(len.into(), max.into())));
    }
    Ok(AnyPrefix::of(address, len))
}

/// The attributes of a route.
#[derive(Default)]
pub(super) struct Attributes<'a> {
    /// The next hop, of whichever attribute.
    pub(super) next_hop: Option<IpAddr>,
    pub(super) v4_next_hop: Option<IpAddr>,
    pub(super) mp_next_hop: Option<IpAddr>,
    /// Prefixes that are announced and withdrawn for a family, if it is unicast: whether it is IPv4, and the bytes.
    pub(super) reachable: Option<(bool, &'a [u8])>,
    pub(super) unreachable: Option<(bool, &'a [u8])>,
    /// The last AS of the path, and of the one in which each has four bytes.
    origin: Option<u32>,
    long_origin: Option<u32>,
}

/// Stands for an AS whose number has no place in two bytes.
const AS_TRANS: u32 = 23456;

impl<'a> Attributes<'a> {
    /// Reads them. `is_long`: numbers of AS in the path have four bytes.
    pub(super) fn read(bytes: &'a [u8], is_long: bool) -> Result<Self, Short> {
        const EXTENDED: u8 = 0x10;
        let (mut bytes, mut read) = (Bytes(bytes), Self::default());
        while !bytes.0.is_empty() {
            let (flags, kind) = (bytes.u8()?, bytes.u8()?);
            let len = if flags & EXTENDED == 0 { bytes.u8()?.into() } else { bytes.u16()?.into() };
            let mut value = Bytes(bytes.take(len)?);
            match kind {
                2 => read.origin = last_of(&mut value, is_long)?,
                3 => read.v4_next_hop = Some(value.address(true)?),
                14 => read.reach(&mut value)?,
                15 => {
                    let (family, subfamily) = (value.u16()?, value.u8()?);
                    read.unreachable = unicast(family, subfamily).map(|is_v4| (is_v4, value.0));
                }
                17 => read.long_origin = last_of(&mut value, true)?,
                _ => {}
            }
        }
        read.next_hop = read.v4_next_hop.or(read.mp_next_hop);
        Ok(read)
    }

    /// The next hop and the prefixes of MP_REACH_NLRI. A dump has the length of the next hop and the next hop alone.
    fn reach(&mut self, value: &mut Bytes<'a>) -> Result<(), Short> {
        let is_whole = value.0.first() == Some(&0);
        let family = if is_whole { unicast(value.u16()?, value.u8()?) } else { None };
        let len = value.u8()?;
        let mut hop = Bytes(value.take(len.into())?);
        self.mp_next_hop = match len {
            4 => Some(hop.address(true)?),
            // One of the link may follow.
            16 | 32 => Some(hop.address(false)?),
            _ => None,
        };
        if let Some(is_v4) = family {
            // An unused byte.
            value.u8()?;
            self.reachable = Some((is_v4, value.0));
        }
        Ok(())
    }

    /// The AS that a route comes from.
    pub(super) fn origin(&self) -> Option<u32> {
        let origin = if self.origin == Some(AS_TRANS) { self.long_origin.or(self.origin) } else { self.origin };
        origin.filter(|number| *number != 0)
    }
}

fn unicast(family: u16, subfamily: u8) -> Option<bool> {
    matches!((family, subfamily), (1 | 2, 1)).then_some(family == 1)
}

/// The last AS of a path, if it ends in one.
fn last_of(path: &mut Bytes<'_>, is_long: bool) -> Result<Option<u32>, Short> {
    const SET: u8 = 1;
    const SEQUENCE: u8 = 2;
    let mut last = None;
    while !path.0.is_empty() {
        let (kind, n) = (path.u8()?, path.u8()?);
        for _ in 0..n {
            let number = if is_long { path.u32()? } else { path.u16()?.into() };
            last = if kind == SEQUENCE || kind == SET && n == 1 { Some(number) } else { None };
        }
    }
    Ok(last)
}
