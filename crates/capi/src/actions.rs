//! Meanings of a table's values, for other programs.

use crate::error::{Code, Error, Result};
use fib::action::{Action, PortId};
use fib::designs::Spec;
use fib::topology::NodeId;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The meaning of a value for programs that read an export, a follower's export, or a shared table.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Meaning {
    /// The value, from 1. 0 is drop.
    pub value: u32,
    /// As enum fibula_verb of fibula.h: 0 drop, 1 port, 2 local, 3 tunnel, 4 punt.
    pub verb: u32,
    /// The port (up to 65535), or the node of a tunnel; else 0.
    pub number: u32,
    /// 4 or 16, of a tunnel; else 0.
    pub address_bytes: u32,
    /// The other end of a tunnel, in network order.
    pub address: [u8; 16],
}

/// The actions of values, unless a value's action is the port with its number.
#[derive(Clone, Default)]
pub(crate) struct Meanings(BTreeMap<u16, Action>);

impl Meaning {
    /// Its value and action.
    pub(crate) fn read(&self, spec: &Spec) -> Result<(u16, Action)> {
        let Self { value, verb, number, address_bytes, address } = *self;
        let most = (1u32 << spec.value_bits.min(16)) - 1;
        if value == 0 || value > most {
            return Err(Error::argument(format!("a meaning of value {value}: give one of 1 to {most}; 0 is drop")));
        }
        let wrong = |what: String| Err(Error::argument(format!("the meaning of value {value}: {what}")));
        if address_bytes != 0 && verb != 3 {
            return wrong(format!("address_bytes is {address_bytes}; only a tunnel has an address"));
        }
        let action = match verb {
            0 => Action::Drop,
            1 => match u16::try_from(number) {
                Ok(port) => Action::Port(PortId(port)),
                Err(_) => return wrong(format!("port {number}; ports are 0 to 65535")),
            },
            2 => Action::Local,
            3 => {
                let remote: IpAddr = match address_bytes {
                    4 => [address[0], address[1], address[2], address[3]].into(),
                    16 => address.into(),
                    _ => return wrong(format!("a tunnel to an address of {address_bytes} bytes; give 4 or 16")),
                };
                Action::Tunnel { node: NodeId(number), remote }
            }
            4 => Action::Punt,
            _ => return wrong(format!("verb {verb}; verbs are 0 to 4")),
        };
        Ok((value as u16, action))
    }
}

impl Meanings {
    /// The actions of a FIB file.
    pub(crate) fn of(actions: &[Action]) -> Self {
        let mut meanings = Self::default();
        // There are at most 2^16.
        actions.iter().enumerate().skip(1).for_each(|(value, action)| meanings.set(value as u16, *action));
        meanings
    }

    pub(crate) fn set(&mut self, value: u16, action: Action) {
        if action == Action::Port(PortId(value)) {
            self.0.remove(&value);
        } else {
            self.0.insert(value, action);
        }
    }

    /// The action of every value.
    /// # Errors
    /// Values of more bits than other programs read.
    pub(crate) fn all(&self, spec: &Spec) -> Result<Vec<Action>> {
        if spec.value_bits > 16 {
            let bits = spec.value_bits;
            let text = format!("values of {bits} bits: other programs read tables whose values have at most 16 bits");
            return Err(Error::new(Code::FIBULA_EUNSUPPORTED, text));
        }
        let ports = 1..=((1u32 << spec.value_bits) - 1) as u16;
        let mut actions: Vec<_> =
            std::iter::once(Action::Drop).chain(ports.map(|port| Action::Port(PortId(port)))).collect();
        for (&value, &action) in &self.0 {
            // A file may have fewer bits than actions, and then nothing has the rest.
            if let Some(at) = actions.get_mut(usize::from(value)) {
                *at = action;
            }
        }
        Ok(actions)
    }
}
