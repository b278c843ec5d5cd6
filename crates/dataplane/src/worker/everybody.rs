//! A worker's handling of hosts' broadcasts and multicasts, and of frames to the configured DHCP server.
//!
//! ```text
//!  to a group ─► of another switch? ─► DHCP: to the one that it is for ─► answered here? ─► a report of groups? ─► a copy for each
//! ```
//! This is the slow path: frames to one host only meet a comparison with the server's address, if that.

use super::reports;
use super::work::Parsed;
use crate::answer::answer;
use crate::counters::DropReason;
use crate::dhcp;
use crate::learn::Claim;
use crate::mac::Mac;
use crate::plane::{Plane, Shared};
use crate::port::Port;
use crate::source::CheckSource;
use fib::action::PortId;
use lookup::hash::Hasher;
use netio::Packet;
use std::time::Instant;

/// A host port, and what is known there.
pub(super) struct Entry<'a, T> {
    pub(super) shared: &'a Shared<T>,
    pub(super) plane: &'a Plane<T>,
    /// The hasher of the FIB, if names are MAC addresses.
    pub(super) hasher: Option<&'a Hasher>,
    pub(super) port: &'a mut Port,
    pub(super) index: u8,
    /// Whether its frames may have waited for this process.
    pub(super) has_waited: bool,
}

impl<T> Entry<'_, T> {
    /// Decides on a frame to a group. None: it was given its actual destination, whose name is to be looked up.
    #[cold]
    pub(super) fn hear(mut self, packet: &mut Packet, type_at: usize) -> Result<Option<Parsed>, DropReason> {
        if let Some(heard) = self.shared.links.hear_at_host(self.index, packet.frame(), self.has_waited) {
            return if heard { Ok(Some(Parsed::Hello)) } else { Err(DropReason::LinkLocal) };
        }
        if let Some(directed) = self.direct(packet, type_at) {
            return directed.map(|()| None);
        }
        let Err(reason) = answer(packet, type_at, &self.shared.neighbours) else {
            return Ok(Some(Parsed::Answer));
        };
        let (groups, neighbours, frame) = (&self.shared.groups, &self.shared.neighbours, packet.frame());
        let heard = self.hasher.and_then(|hasher| {
            let (local, here) = (&self.plane.local, self.port.id);
            let is_here = |name: &Mac| local.get_bytes(name, hasher.digest(name)).map(PortId) == Some(here);
            let said_by = (self.port.role, self.index, &mut self.port.allowance);
            reports::hear(groups, said_by, frame, type_at, is_here)
        });
        let refusal = match (heard, &mut self.port.group_gate) {
            (Some(reason), _) => reason,
            (None, Some(gate)) if self.hasher.is_some() => {
                match gate.admit(frame, type_at, reason, groups, neighbours) {
                    Ok(()) => return Ok(Some(Parsed::Copy)),
                    Err(reason) => reason,
                }
            }
            _ => reason,
        };
        if refusal == DropReason::Broadcast && self.hasher.is_some() && dhcp::is_request(frame, type_at) {
            groups.note_unheard(self.index);
        }
        Err(refusal)
    }

    /// See [`dhcp::Dhcp::direct`].
    fn direct(&mut self, packet: &mut Packet, type_at: usize) -> Option<Result<(), DropReason>> {
        let dhcp = self.port.dhcp.as_mut().filter(|_| self.hasher.is_some())?;
        let now = Instant::now();
        let directed = dhcp.direct(packet, type_at, now);
        if !matches!(directed, Some(Err(_))) {
            self.note_lease(packet.frame(), type_at, now);
        }
        directed
    }

    /// Checks a frame to the server that is configured for the port.
    #[cold]
    pub(super) fn ask(mut self, frame: &[u8], type_at: usize) -> Result<(), DropReason> {
        let now = Instant::now();
        let admitted = self.port.dhcp.as_mut().map_or(Ok(()), |dhcp| dhcp.admit(frame, type_at, now));
        if admitted.is_ok() {
            self.note_lease(frame, type_at, now);
        }
        admitted
    }

    /// Notes the address that a DHCP client says it will have, if no name has it. Its source is true: it was checked.
    fn note_lease(&mut self, frame: &[u8], type_at: usize, now: Instant) {
        if !self.port.learns || self.port.check_source == CheckSource::Off || self.has_waited {
            return;
        }
        let source = frame.get(6..12).unwrap_or_default();
        let address = dhcp::claimed_address(frame, type_at).map(Into::into);
        let Some(address) = address.filter(|ip| self.shared.neighbours.get(*ip).is_none_or(|owner| owner != source))
        else {
            return;
        };
        self.shared.learner.note_address(self.index, Claim::new(source, Some(address)), now);
    }
}
