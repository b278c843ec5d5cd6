//! The names of a RIB with their attachments, numbered: each name's bytes are kept once.
//!
//! ```text
//!  name:    its bytes, if all names of the kind have one length; else a box of its own
//!  record:  | switch, 4 | port, 2 | tenant, 4 | address, 4 | kind of address, 1 |    15 bytes
//! ```
//! The address of a record is an IPv4 address, or the place of an IPv6 address in a list.

use super::Attachment;
use crate::action::PortId;
use crate::name::{Name, NameKind};
use crate::topology::NodeId;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed)]
struct Record {
    switch: u32,
    port: u16,
    tenant: u32,
    address: u32,
    family: Family,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Family {
    None,
    V4,
    V6,
}

/// The bytes of the names, by number.
#[derive(Debug)]
enum Bytes {
    Even { width: usize, bytes: Vec<u8> },
    Boxed { names: Vec<Box<[u8]>>, n_bytes: usize },
}

/// Names with attachments, by number.
#[derive(Debug)]
pub(super) struct Entries {
    kind: NameKind,
    names: Bytes,
    records: Vec<Record>,
    /// Numbers that no name has.
    free: Vec<u32>,
    wide: Vec<[u8; 16]>,
    free_wide: Vec<u32>,
}

impl Entries {
    pub(super) fn new(kind: NameKind) -> Self {
        let names = match kind.width() {
            Some(width) => Bytes::Even { width, bytes: Vec::new() },
            None => Bytes::Boxed { names: Vec::new(), n_bytes: 0 },
        };
        Self { kind, names, records: Vec::new(), free: Vec::new(), wide: Vec::new(), free_wide: Vec::new() }
    }

    /// Numbers in use or free.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Adds a name; returns its number.
    pub(super) fn insert(&mut self, name: &Name, attachment: &Attachment) -> u32 {
        let record = self.record(attachment);
        let number = self.free.pop().unwrap_or(self.records.len() as u32);
        let at = number as usize;
        let is_new = at == self.records.len();
        match &mut self.names {
            Bytes::Even { width, bytes } if is_new => extend_by(bytes, name.as_bytes(), *width),
            Bytes::Even { width, bytes } => bytes[at * *width..][..*width].copy_from_slice(name.as_bytes()),
            Bytes::Boxed { names, n_bytes } => {
                *n_bytes += name.as_bytes().len();
                match names.get_mut(at) {
                    Some(free) => *free = name.as_bytes().into(),
                    None => extend_by(names, &[name.as_bytes().into()], 1),
                }
            }
        }
        match self.records.get_mut(at) {
            Some(free) => *free = record,
            None => extend_by(&mut self.records, &[record], 1),
        }
        number
    }

    /// Changes the attachment of a name.
    pub(super) fn set(&mut self, number: u32, attachment: &Attachment) {
        self.release_address(number);
        self.records[number as usize] = self.record(attachment);
    }

    pub(super) fn remove(&mut self, number: u32) {
        self.release_address(number);
        if let Bytes::Boxed { names, n_bytes } = &mut self.names {
            *n_bytes -= std::mem::take(&mut names[number as usize]).len();
        }
        self.free.push(number);
    }

    pub(super) fn bytes(&self, number: u32) -> &[u8] {
        let at = number as usize;
        match &self.names {
            Bytes::Even { width, bytes } => &bytes[at * width..][..*width],
            Bytes::Boxed { names, .. } => &names[at],
        }
    }

    pub(super) fn name(&self, number: u32) -> Name {
        Name::from_bytes(self.kind, self.bytes(number)).expect("it was a name of this kind")
    }

    pub(super) fn attachment(&self, number: u32) -> Attachment {
        let Record { switch, port, tenant, .. } = self.records[number as usize];
        Attachment { switch: NodeId(switch), port: PortId(port), tenant, ip: self.ip(number) }
    }

    pub(super) fn ip(&self, number: u32) -> Option<IpAddr> {
        let Record { address, family, .. } = self.records[number as usize];
        match family {
            Family::None => None,
            Family::V4 => Some(IpAddr::V4(Ipv4Addr::from_bits(address))),
            Family::V6 => Some(IpAddr::V6(Ipv6Addr::from(self.wide[address as usize]))),
        }
    }

    /// Bytes of heap memory.
    pub(super) fn heap_bytes(&self) -> usize {
        let names = match &self.names {
            Bytes::Even { bytes, .. } => bytes.capacity(),
            Bytes::Boxed { names, n_bytes } => names.capacity() * size_of::<Box<[u8]>>() + n_bytes,
        };
        let free = (self.free.capacity() + self.free_wide.capacity()) * 4;
        names + self.records.capacity() * size_of::<Record>() + free + self.wide.capacity() * 16
    }

    fn record(&mut self, attachment: &Attachment) -> Record {
        let (family, address) = match attachment.ip {
            None => (Family::None, 0),
            Some(IpAddr::V4(ip)) => (Family::V4, ip.to_bits()),
            Some(IpAddr::V6(ip)) => {
                let place = self.free_wide.pop().unwrap_or(self.wide.len() as u32);
                match self.wide.get_mut(place as usize) {
                    Some(free) => *free = ip.octets(),
                    None => self.wide.push(ip.octets()),
                }
                (Family::V6, place)
            }
        };
        let Attachment { switch, port, tenant, .. } = *attachment;
        Record { switch: switch.0, port: port.0, tenant, address, family }
    }

    fn release_address(&mut self, number: u32) {
        let Record { address, family, .. } = self.records[number as usize];
        if family == Family::V6 {
            self.free_wide.push(address);
        }
    }
}

/// Appends `items`. A list that is full grows by an eighth, and by 64 times what is appended at least: doubling would
/// leave up to half of it unused.
fn extend_by<T: Clone>(list: &mut Vec<T>, items: &[T], unit: usize) {
    if list.capacity() - list.len() < items.len() {
        list.reserve_exact(list.len() / 8 + 64 * unit);
    }
    list.extend_from_slice(items);
}
