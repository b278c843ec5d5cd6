//! Frames to everybody: one copy for each other name of the sender's tenant.
//!
//! A network of flat names has no flooding. What hosts say to everybody and what must be heard all the same (mDNS, DHCP, a question
//! for an address that no name has) is copied where it comes in: in each copy the Ethernet destination is the name of one member, so
//! it is forwarded, checked at ingress and egress, and counted like any other frame. Nothing on the way knows of groups. There is no
//! tree to keep, nothing can loop, and a copy reaches nobody but a name that the controller counts to the tenant.
//!
//! Hosts take an IP multicast or broadcast in a unicast frame; access points and Linux's bridge (`multicast_to_unicast`) do the
//! same. Members are told by the controller, and kept while it is away.
//!
//! Bounds: frames a second of a port ([`Gate`]), copies a second of a tenant ([`COPIES_PER_SECOND`]) and of all, each of one worker; and
//! the controller tells of no tenant that has more names than it may. A worker copies at most a burst between two polls.
//!
//! Limits: names must be MAC addresses. A switch that tracks connections copies nothing: its translations are not for packets to
//! everybody. Whole tenants only: hosts that joined an IP multicast group are not told from others, and
//! what they say about that is dropped. A frame to n members is n lookups here, and n frames on the trunks that they share.

use crate::budget::Budget;
use crate::counters::DropReason;
use crate::parse::{ARP, Network, ether_type, network};
use crate::plane::{Mac, Neighbours};
use arc_swap::ArcSwap;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

/// Frames to everybody that a port may send a second, and at once, unless it is configured otherwise.
pub const FRAMES_PER_SECOND: u32 = 50;

/// Copies that a worker makes a second, and at once, for a tenant.
pub const COPIES_PER_SECOND: u32 = 10_000;
/// And for all tenants together.
pub const ALL_COPIES_PER_SECOND: u32 = 5 * COPIES_PER_SECOND;

/// The names that hear each other.
#[derive(Debug)]
pub(crate) struct Tenant {
    pub(crate) id: u32,
    pub(crate) names: Vec<Mac>,
}

/// Who hears what a name says to everybody. Any thread may change it.
#[derive(Debug, Default)]
pub struct Groups(ArcSwap<HashMap<Mac, Arc<Tenant>>>);

impl Groups {
    /// Replaces all names by those of these tenants. A name is of one tenant.
    pub fn set(&self, tenants: impl IntoIterator<Item = (u32, Vec<Mac>)>) {
        let mut all = HashMap::new();
        for (id, names) in tenants {
            let tenant = Arc::new(Tenant { id, names });
            all.extend(tenant.names.iter().map(|&name| (name, tenant.clone())));
        }
        self.0.store(Arc::new(all));
    }

    /// The tenant of a name; none if nobody hears it.
    pub(crate) fn of(&self, name: Mac) -> Option<Arc<Tenant>> {
        self.0.load().get(&name).cloned()
    }

    fn has(&self, name: Mac) -> bool {
        self.0.load().contains_key(&name)
    }
}

/// The sender of a frame.
pub(crate) fn sender(frame: &[u8]) -> Option<Mac> {
    frame.get(6..12)?.try_into().ok()
}

/// Which frames of a host port go to everybody.
#[derive(Debug)]
pub(crate) struct Gate(Budget);

impl Gate {
    /// None: a port that may send none.
    pub(crate) fn new(frames_per_second: u32) -> Option<Self> {
        (frames_per_second > 0).then(|| Self(Budget::full(frames_per_second, Instant::now())))
    }

    /// Whether a frame to a group address, which would be dropped for this reason, is to be copied.
    /// # Errors
    /// The reason to drop it.
    #[cold]
    pub(crate) fn admit(
        &mut self,
        frame: &[u8],
        type_at: usize,
        instead_of: DropReason,
        groups: &Groups,
        neighbours: &Neighbours,
    ) -> Result<(), DropReason> {
        let is_for_all = matches!(
            instead_of,
            DropReason::Broadcast | DropReason::Multicast | DropReason::ArpUnknown | DropReason::NdUnknown
        );
        let goes = is_for_all
            && !is_for_one_link(frame)
            && is_no_claim(frame, type_at)
            && !is_for_one_host(frame, type_at, neighbours)
            && sender(frame).is_some_and(|sender| groups.has(sender));
        match goes {
            false => Err(instead_of),
            true if self.0.take(Instant::now()) => Ok(()),
            true => Err(DropReason::GroupRate),
        }
    }
}

/// Whether no bridge may forward it (IEEE 802.1Q, table 8-1): spanning tree, LLDP, LACP, pause frames.
fn is_for_one_link(frame: &[u8]) -> bool {
    frame.starts_with(&[0x01, 0x80, 0xc2, 0, 0]) && frame.get(5).is_some_and(|last| *last < 0x10)
}

/// Whether the packet in a frame to a group is for one address, which hosts that are routers would forward if a copy brought it.
/// Subnets have a broadcast address that is the sender's up to some bits, which are ones.
fn is_for_one_host(frame: &[u8], type_at: usize, neighbours: &Neighbours) -> bool {
    let address = |ip: &[u8], at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(ip.get(at..at + 4)?).ok()?));
    match network(frame, type_at) {
        Ok(Network::V4(ip)) => {
            let (Some(from), Some(to)) = (address(ip, 12), address(ip, 16)) else { return true };
            let n_ones = to.to_bits().trailing_ones().min(24);
            let is_of_subnet = n_ones >= 2
                && to.to_bits() >> n_ones == from.to_bits() >> n_ones
                && neighbours.get(IpAddr::V4(to)).is_none();
            !(to.is_broadcast() || to.is_multicast() || is_of_subnet)
        }
        Ok(Network::V6(ip)) => ip.get(24) != Some(&0xff),
        Err(_) => false,
    }
}

/// Whether it is no ARP packet, or asks for an address. Who says to everybody where an address is wants to be believed.
fn is_no_claim(frame: &[u8], type_at: usize) -> bool {
    match ether_type(frame, type_at) {
        Ok((ARP, at)) => frame.get(at + 6..at + 8) == Some(&[0, 1]),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shim;

    const A: Mac = [2, 0, 0, 0, 0, 1];
    const B: Mac = [2, 0, 0, 0, 0, 2];
    const C: Mac = [2, 0, 0, 0, 0, 3];

    #[test]
    fn a_name_is_heard_by_its_tenant_and_what_is_set_replaces_what_was() {
        let groups = Groups::default();
        assert!(groups.of(A).is_none());
        groups.set([(7, vec![A, B]), (8, vec![C])]);
        let tenant = groups.of(B).expect("a member");
        assert_eq!((tenant.id, &tenant.names[..]), (7, &[A, B][..]));
        groups.set([(7, vec![B])]);
        assert!(groups.of(A).is_none() && groups.of(C).is_none() && groups.of(B).is_some());
    }

    /// An IPv4 packet, or another frame.
    fn frame(destination: Mac, source: Mac, ip: Option<[u8; 4]>) -> Vec<u8> {
        let mut frame = [&destination[..], &source, &[8, if ip.is_some() { 0 } else { 0x42 }]].concat();
        frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1]);
        frame.extend(ip.unwrap_or_default());
        frame.extend([0; 8]);
        frame
    }

    #[test]
    fn only_what_is_for_everybody_is_copied_and_no_more_than_the_port_may() {
        let (groups, neighbours) = (Groups::default(), Neighbours::with_own([([10, 0, 1, 255].into(), B)].into()));
        groups.set([(7, vec![A, B])]);
        let mut gate = Gate::new(6).expect("some");
        let mut admit = |frame: &[u8], reason| gate.admit(frame, shim::AT, reason, &groups, &neighbours);
        let to_all = |ip| frame([0xff; 6], A, ip);
        let broadcast = DropReason::Broadcast;
        let mut gate_of_many = Gate::new(100).expect("some");
        for last in [3, 127, 255] {
            let frame = to_all(Some([10, 0, 0, last]));
            assert_eq!(gate_of_many.admit(&frame, shim::AT, broadcast, &groups, &neighbours), Ok(()), "{last}");
        }
        for ip in [None, Some([255; 4]), Some([224, 0, 0, 251]), Some([10, 0, 3, 255])] {
            assert_eq!(admit(&to_all(ip), broadcast), Ok(()), "{ip:?}");
        }
        for ip in [[10, 0, 0, 8], [8, 8, 8, 255], [10, 0, 1, 255], [10, 0, 0, 1]] {
            assert_eq!(admit(&to_all(Some(ip)), broadcast), Err(broadcast), "one host has {ip:?}");
        }
        assert_eq!(admit(&to_all(None), DropReason::ArpUnknown), Ok(()));
        assert_eq!(admit(&frame([0xff; 6], C, None), broadcast), Err(broadcast), "of no tenant");
        for reason in [DropReason::ArpOwn, DropReason::ListenerReport, DropReason::Dhcp, DropReason::Truncated] {
            assert_eq!(admit(&to_all(None), reason), Err(reason));
        }
        let multicast = DropReason::Multicast;
        assert_eq!(admit(&frame([1, 0x80, 0xc2, 0, 0, 0], A, None), multicast), Err(multicast), "spanning tree");
        assert_eq!(admit(&frame([1, 0, 0x5e, 0, 0, 0xfb], A, Some([224, 0, 0, 251])), multicast), Ok(()), "the sixth");
        assert_eq!(admit(&to_all(None), broadcast), Err(DropReason::GroupRate));
        assert!(Gate::new(0).is_none());
    }
}
