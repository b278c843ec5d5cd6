//! The IP headers that lead to a transport header, outermost first: in a segment each has another length.
//!
//! ```text
//!   Ethernet ─► tags ─► IPv4 | IPv6 ─► the transport header
//!                            └► IP, GRE, UDP (VXLAN, Geneve) ─► IPv4 | IPv6, or Ethernet ─► ..
//! ```

use crate::checksum::{fold, sum};
use arrayvec::ArrayVec;

const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;
/// Of local experiments (IEEE 802): 4 bytes long here, and laid out as a VLAN tag.
const LOCAL_TAG: u16 = 0x88b5;
pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86dd;
/// Ethernet in GRE and Geneve.
const BRIDGED: u16 = 0x6558;
const VXLAN_PORT: u16 = 4789;
const GENEVE_PORT: u16 = 6081;
/// The most tunnels that may be nested.
const MOST: usize = 6;
const MAX_EXTENSIONS: usize = 8;

/// A header with a length in it, and its offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Layer {
    V4(usize),
    V6(usize),
    /// The layers of a tunnel.
    Udp(usize),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Layers(pub(super) ArrayVec<Layer, MOST>);

/// The headers lead elsewhere, or through an unknown protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unknown;

impl Layers {
    pub(super) fn is_tunnel(&self) -> bool {
        self.0.len() > 1
    }

    /// Writes the sums of the pseudo-headers of the innermost transport header, and of those of tunnels around a super-frame.
    pub(super) fn put_pseudo_header(
        &self,
        frame: &mut [u8],
        start: usize,
        (field, protocol): (usize, u8),
        is_super: bool,
    ) {
        let mut network = None;
        let put = |frame: &mut [u8], network: Option<Layer>, start: usize, field: usize, protocol: u8| {
            let (addresses, end) = match network {
                Some(Layer::V4(at)) => (at + 12..at + 20, at + usize::from(half(frame, at + 2).unwrap_or(0))),
                Some(Layer::V6(at)) => (at + 8..at + 40, at + 40 + usize::from(half(frame, at + 4).unwrap_or(0))),
                _ => return,
            };
            let addresses = frame.get(addresses).map_or(0, sum);
            let sum = fold(addresses + u64::from(protocol) + end.saturating_sub(start) as u64);
            if let Some(field) = frame.get_mut(field..field + 2) {
                field.copy_from_slice(&sum.to_be_bytes());
            }
        };
        for layer in &self.0 {
            match *layer {
                Layer::Udp(at) if is_super && half(frame, at + 6).is_ok_and(|field| field != 0) => {
                    put(frame, network, at, at + 6, 17);
                }
                Layer::Udp(_) => {}
                layer => network = Some(layer),
            }
        }
        put(frame, network, start, field, protocol);
    }

    fn push(&mut self, layer: Layer) -> Result<(), Unknown> {
        self.0.try_push(layer).map_err(|_| Unknown)
    }
}

fn half(frame: &[u8], at: usize) -> Result<u16, Unknown> {
    let bytes = frame.get(at..at + 2).ok_or(Unknown)?;
    Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn byte(frame: &[u8], at: usize) -> Result<u8, Unknown> {
    frame.get(at).copied().ok_or(Unknown)
}

/// The headers from the beginning of a frame to the transport header at `to`.
pub(super) fn walk(frame: &[u8], to: usize) -> Result<Layers, Unknown> {
    let mut layers = Layers(ArrayVec::new());
    let (mut kind, mut at) = ethernet(frame, 0)?;
    // Each round goes on by a header, and there are few.
    loop {
        let (protocol, next) = match kind {
            IPV4 => {
                let header = usize::from(byte(frame, at)? & 15) * 4;
                if header < 20 || half(frame, at + 6)? & 0x3fff != 0 {
                    return Err(Unknown);
                }
                layers.push(Layer::V4(at))?;
                (byte(frame, at + 9)?, at + header)
            }
            IPV6 => {
                layers.push(Layer::V6(at))?;
                extensions(frame, at)?
            }
            _ => return Err(Unknown),
        };
        if next >= to {
            return if next == to { Ok(layers) } else { Err(Unknown) };
        }
        (kind, at) = match protocol {
            4 => (IPV4, next),
            41 => (IPV6, next),
            47 => gre(frame, next)?,
            17 => {
                layers.push(Layer::Udp(next))?;
                udp(frame, next)?
            }
            _ => return Err(Unknown),
        };
    }
}

/// The kind and the offset of what an Ethernet header and tags lead to.
#[inline]
pub(super) fn ethernet(frame: &[u8], at: usize) -> Result<(u16, usize), Unknown> {
    let mut at = at + 12;
    for _ in 0..4 {
        match half(frame, at)? {
            VLAN | SERVICE_VLAN | LOCAL_TAG => at += 4,
            kind => return Ok((kind, at + 2)),
        }
    }
    Err(Unknown)
}

fn extensions(frame: &[u8], ip: usize) -> Result<(u8, usize), Unknown> {
    let (mut next, mut at) = (byte(frame, ip + 6)?, ip + 40);
    for _ in 0..MAX_EXTENSIONS {
        if !matches!(next, 0 | 43 | 60) {
            break;
        }
        next = byte(frame, at)?;
        at += 8 + 8 * usize::from(byte(frame, at + 1)?);
    }
    Ok((next, at))
}

fn gre(frame: &[u8], at: usize) -> Result<(u16, usize), Unknown> {
    let flags = half(frame, at)?;
    // Version 0; with a key or a number. Its checksum would cover all of a segment.
    if flags & !0x3000 != 0 {
        return Err(Unknown);
    }
    let len = 4 * (1 + (flags & 0x3000).count_ones() as usize);
    inner(frame, half(frame, at + 2)?, at + len)
}

fn udp(frame: &[u8], at: usize) -> Result<(u16, usize), Unknown> {
    match half(frame, at + 2)? {
        VXLAN_PORT => ethernet(frame, at + 16),
        GENEVE_PORT => {
            let options = usize::from(byte(frame, at + 8)? & 63) * 4;
            inner(frame, half(frame, at + 10)?, at + 16 + options)
        }
        _ => Err(Unknown),
    }
}

fn inner(frame: &[u8], kind: u16, at: usize) -> Result<(u16, usize), Unknown> {
    if kind == BRIDGED { ethernet(frame, at) } else { Ok((kind, at)) }
}
