//! Broadcasts and multicasts: one copy for each other name of the sender's tenant.
//!
//! A network of flat names has no flooding. Broadcasts and multicasts that must arrive nevertheless (mDNS, DHCP, a question
//! for an address that no name has) are copied where they come in: in each copy the Ethernet destination is the name of one member, so
//! it is forwarded, checked at ingress and egress, and counted like any other frame. Switches on the way know nothing of groups. There
//! is no tree to keep, nothing can loop, and a copy reaches only names that the controller counts to the tenant.
//!
//! Where the controller requests it ([`Snooping`]), a multicast goes only to those names of the tenant whose hosts want its group
//! ([`crate::subscriptions`]), and the controller lists these names. Groups that hosts need not ask for go to the whole tenant
//! ([`is_for_all`]), as do frames that are not IP multicasts, and multicasts with a VLAN tag: hosts are not asked behind tags. Until the
//! controller has first listed the wishes, everything goes to the whole tenant.
//!
//! Hosts take an IP multicast or broadcast in a unicast frame; access points and Linux's bridge (`multicast_to_unicast`) do the
//! same. The controller sends the members; they are kept while it is away.
//!
//! Bounds: frames a second of a port ([`Gate`]), copies a second of a tenant ([`COPIES_PER_SECOND`]) and in total, each per worker; and
//! the controller sends no tenant with too many names. A worker copies at most a burst between two polls.
//!
//! Limits: names must be MAC addresses. A switch that tracks connections copies nothing: its translations are not for broadcasts or
//! multicasts. Sources of a group are not told apart. A frame to n members takes n lookups here, and n frames on the trunks that they
//! share.

use crate::bits::NotedPorts;
use crate::budget::Budget;
use crate::counters::DropReason;
use crate::links::local::is_for_one_link;
use crate::mac::Mac;
use crate::neighbours::{MoreAddresses, Neighbours};
use crate::parse::{ARP, IPV4, IPV6, Network, ether_type, is_tagged, network};
use crate::subscriptions::{Subscriptions, Timing};
use arc_swap::ArcSwap;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

/// Broadcasts and multicasts that a port may send a second, and at once, unless it is configured otherwise.
pub const FRAMES_PER_SECOND: u32 = 50;

/// The most copies that a worker makes a second, and at once, for a tenant.
pub const COPIES_PER_SECOND: u32 = 10_000;
/// The same for all tenants together.
pub const ALL_COPIES_PER_SECOND: u32 = 5 * COPIES_PER_SECOND;

/// Settings for multicasts that go to subscribers, and for finding these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Snooping {
    /// When hosts are asked.
    pub timing: Timing,
    /// Whether a multicast to an unwanted group goes to the whole tenant; otherwise it is dropped.
    pub floods_unknown: bool,
    /// Whether mDNS goes to the whole tenant, like other groups of one link; otherwise to subscribers.
    pub mdns_for_all: bool,
}

/// A tenant whose names receive each other's broadcasts, as the controller sends it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Told {
    /// The tenant.
    pub id: u32,
    /// Its names.
    pub names: Vec<Mac>,
    /// The wishes for groups; none: they are unchanged.
    pub wanted: Option<Wanted>,
}

/// The wishes of a tenant's names for groups.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// The names that want each group.
    pub by_group: HashMap<IpAddr, Vec<Mac>>,
    /// Names that receive all groups, because their wishes are unknown.
    pub of_all: Vec<Mac>,
}

/// The names that receive each other's broadcasts.
#[derive(Debug)]
pub(crate) struct Tenant {
    pub(crate) id: u32,
    pub(crate) names: Arc<[Mac]>,
    /// None: the wishes are unknown.
    wanted: Option<Arc<Audiences>>,
    snooping: Option<Snooping>,
}

/// The receivers of a multicast, by its group, and the names that receive all groups.
#[derive(Debug, Default)]
struct Audiences {
    by_group: HashMap<IpAddr, Audience>,
    of_all: Arc<[Mac]>,
}

/// The receivers of a group.
#[derive(Debug)]
struct Audience {
    /// The names that want it, and those that receive all groups.
    names: Arc<[Mac]>,
    /// The only name that wants it.
    only: Option<Mac>,
}

impl From<Wanted> for Audiences {
    fn from(Wanted { by_group, of_all }: Wanted) -> Self {
        let in_order = |names: &mut Vec<Mac>| {
            names.sort_unstable();
            names.dedup();
        };
        let audience = |(group, mut names): (IpAddr, Vec<Mac>)| {
            in_order(&mut names);
            let only = (names.len() == 1).then(|| names[0]);
            names.extend(&of_all);
            in_order(&mut names);
            (group, Audience { names: names.into(), only })
        };
        let by_group = by_group.into_iter().filter(|(_, names)| !names.is_empty()).map(audience).collect();
        Self { by_group, of_all: of_all.as_slice().into() }
    }
}

impl Tenant {
    /// The receivers of one name's multicasts to this IP group or, without a group, of its other broadcasts and multicasts. None: no name.
    pub(crate) fn audience(&self, sender: Mac, group: Option<IpAddr>) -> Option<&Arc<[Mac]>> {
        let Some((snooping, group)) = self.snooping.zip(group) else { return Some(&self.names) };
        if is_for_all(group, snooping.mdns_for_all) {
            return Some(&self.names);
        }
        let Some(Audiences { by_group, of_all }) = self.wanted.as_deref() else { return Some(&self.names) };
        // A sender that wants its own group does not count as another host that wants it.
        match by_group.get(&group).filter(|audience| audience.only != Some(sender)) {
            Some(audience) => Some(&audience.names),
            None if snooping.floods_unknown => Some(&self.names),
            None => of_all.iter().any(|name| *name != sender).then_some(of_all),
        }
    }
}

/// Whether an IP multicast group is for all hosts, regardless of their wishes: groups that stay on one link, 224.0.0.0/24 and
/// ff02::/16 (RFC 4541, 2.1.2 and 3). That includes the groups of neighbour solicitations.
pub fn is_for_all(group: IpAddr, mdns_for_all: bool) -> bool {
    const MDNS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
    const MDNS_IPV6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
    match group {
        IpAddr::V4(group) => group.octets().starts_with(&[224, 0, 0]) && (mdns_for_all || group != MDNS),
        IpAddr::V6(group) => group.segments()[0] == 0xff02 && (mdns_for_all || group != MDNS_IPV6),
    }
}

/// The IP multicast group that a frame without a VLAN tag is sent to. `type_at` as in [`crate::parse::NameField::extract`].
pub fn group_of(frame: &[u8], type_at: usize) -> Option<IpAddr> {
    let group: IpAddr = match network(frame, type_at).ok().filter(|_| !is_tagged(frame, type_at))? {
        Network::V4(ip) => Ipv4Addr::from(*ip[16..].first_chunk::<4>()?).into(),
        Network::V6(ip) => Ipv6Addr::from(*ip[24..].first_chunk::<16>()?).into(),
    };
    group.is_multicast().then_some(group)
}

/// The receivers of each name's broadcasts and multicasts. Any thread may change them.
#[derive(Debug, Default)]
pub struct Groups {
    told: ArcSwap<Names>,
    /// What the hosts here want; none at a switch that does not listen for that.
    subscriptions: Option<Subscriptions>,
    unheard: NotedPorts,
    /// The further addresses of names, besides those of the tables.
    addresses: Arc<MoreAddresses>,
}

#[derive(Debug, Default)]
struct Names {
    tenants: HashMap<Mac, Arc<Tenant>>,
    snooping: Option<Snooping>,
    /// Counts replacements.
    version: u64,
    /// The version in which the set of names last changed.
    names_version: u64,
}

impl Groups {
    /// No host receives anything yet. Where the switch listens for what hosts want, `subscriptions` holds it.
    pub fn new(subscriptions: Option<Subscriptions>) -> Self {
        Self { subscriptions, ..Self::default() }
    }

    /// The further addresses of names, besides those of the tables.
    pub(crate) fn addresses(&self) -> &Arc<MoreAddresses> {
        &self.addresses
    }

    /// Replaces these addresses.
    pub fn set_addresses(&self, addresses: impl IntoIterator<Item = (IpAddr, Mac)>) {
        self.addresses.store(Arc::new(addresses.into_iter().collect()));
    }

    /// Replaces all names by those of these tenants, which receive all broadcasts and multicasts. A name belongs to one tenant.
    pub fn set(&self, tenants: impl IntoIterator<Item = (u32, Vec<Mac>)>) {
        self.tell(None, tenants.into_iter().map(|(id, names)| Told { id, names, wanted: None }));
    }

    /// Replaces all names by those of these tenants, and their wishes. For one writer.
    pub fn tell(&self, snooping: Option<Snooping>, tenants: impl IntoIterator<Item = Told>) {
        let before = self.told.load();
        let mut all = HashMap::new();
        for Told { id, names, wanted } in tenants {
            let known = || before.tenants.values().find(|tenant| tenant.id == id)?.wanted.clone();
            let wanted = wanted.map_or_else(known, |wanted| Some(Arc::new(wanted.into())));
            let tenant = Arc::new(Tenant { id, names: names.into(), wanted, snooping });
            all.extend(tenant.names.iter().map(|&name| (name, tenant.clone())));
        }
        let version = before.version + 1;
        let are_same = all.len() == before.tenants.len() && all.keys().all(|name| before.tenants.contains_key(name));
        let names_version = if are_same { before.names_version } else { version };
        self.told.store(Arc::new(Names { tenants: all, snooping, version, names_version }));
    }

    /// Whether multicasts go to subscribers, as the controller requests, and how.
    pub fn snooping(&self) -> Option<Snooping> {
        self.told.load().snooping
    }

    /// A number that changes with what the controller sends.
    pub fn version(&self) -> u64 {
        self.told.load().version
    }

    /// The receivers of a name's broadcasts and multicasts, to this IP group if there is one; they may include the sender. None: no name.
    pub fn audience(&self, sender: Mac, group: Option<IpAddr>) -> Option<Arc<[Mac]>> {
        self.of(sender)?.audience(sender, group).cloned()
    }

    /// A number that changes when a name joins or leaves those that receive each other's broadcasts.
    pub fn names_version(&self) -> u64 {
        self.told.load().names_version
    }

    /// The number of names that receive each other's broadcasts.
    pub fn n_names(&self) -> usize {
        self.told.load().tenants.len()
    }

    /// Whether a name is among those that receive each other's broadcasts.
    pub fn has(&self, name: &Mac) -> bool {
        self.told.load().tenants.contains_key(name)
    }

    /// The names that receive each other's broadcasts.
    pub fn names(&self) -> Vec<Mac> {
        self.told.load().tenants.keys().copied().collect()
    }

    /// What the hosts here want, if the switch listens for that.
    pub fn subscriptions(&self) -> Option<&Subscriptions> {
        self.subscriptions.as_ref()
    }

    /// Notes that a host at a port asks for an address by DHCP, without a receiver.
    pub(crate) fn note_unheard(&self, index: u8) {
        self.unheard.note(index);
    }

    /// The host ports, by their indices, at which that was noted since the last call.
    pub fn take_unheard(&self) -> Vec<u8> {
        self.unheard.take().collect()
    }

    /// The tenant of a name; none if it has no receivers.
    pub(crate) fn of(&self, name: Mac) -> Option<Arc<Tenant>> {
        self.told.load().tenants.get(&name).cloned()
    }
}

/// The sender of a frame.
pub(crate) fn sender(frame: &[u8]) -> Option<Mac> {
    frame.get(6..12)?.try_into().ok()
}

/// Limits which frames of a host port are copied.
#[derive(Debug)]
pub(crate) struct Gate(Budget);

impl Gate {
    /// None: the port may send no broadcasts or multicasts.
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
            DropReason::Broadcast
                | DropReason::Multicast
                | DropReason::ArpUnknown
                | DropReason::NdUnknown
                | DropReason::RouterSolicitation
        );
        let goes = is_for_all && may_be_copied(frame, type_at) && !is_for_one_host(frame, type_at, neighbours);
        let sender = sender(frame).filter(|_| goes);
        let Some((sender, tenant)) = sender.and_then(|sender| Some((sender, groups.of(sender)?))) else {
            return Err(instead_of);
        };
        // Frames without receivers do not count against the port's rate.
        if tenant.audience(sender, group_of(frame, type_at)).is_none() {
            return Err(DropReason::NoSubscriber);
        }
        if self.0.take(Instant::now()) { Ok(()) } else { Err(DropReason::GroupRate) }
    }
}

/// Whether a frame to a group address may be copied, as far as the frame itself tells: other frames are for one link only, or
/// claims an address.
pub fn may_be_copied(frame: &[u8], type_at: usize) -> bool {
    !is_for_one_link(frame) && is_no_claim(frame, type_at)
}

/// Whether the packet in a frame to a group is for one address, so that hosts that are routers would forward it if a copy brought it; or
/// is not a whole packet, so that its destination cannot be told.
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
        Err(_) => matches!(ether_type(frame, type_at), Ok((IPV4 | IPV6, _))),
    }
}

/// Whether it is not an ARP packet, or asks for an address. A broadcast that announces an address wants to be believed.
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

    #[test]
    fn the_version_of_the_names_changes_with_them_alone() {
        let groups = Groups::default();
        let tell = |names: &[Mac], wanted| groups.tell(None, [Told { id: 7, names: names.to_vec(), wanted }]);
        tell(&[A, B], None);
        let (version, names) = (groups.version(), groups.names_version());
        tell(&[B, A], Some(Wanted { by_group: HashMap::new(), of_all: vec![A] }));
        assert_eq!((groups.version(), groups.names_version(), groups.n_names()), (version + 1, names, 2));
        assert!(groups.has(&A) && !groups.has(&C));
        tell(&[A, C], None);
        assert_ne!(groups.names_version(), names);
        let names = groups.names_version();
        tell(&[A], None);
        assert_ne!(groups.names_version(), names);
    }

    #[test]
    fn a_group_is_heard_by_those_who_want_it_and_what_stays_on_a_link_by_all() {
        let groups = Groups::default();
        let snooping =
            |floods_unknown, mdns_for_all| Some(Snooping { timing: Timing::new(30), floods_unknown, mdns_for_all });
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let (wanted, unwanted) = (ip("239.1.2.3"), ip("ff15::9"));
        let told = |wanted| [Told { id: 7, names: vec![A, B, C], wanted }];
        let by_b = Wanted { by_group: [(wanted, vec![B])].into(), of_all: vec![] };
        groups.tell(snooping(false, true), told(Some(by_b.clone())));
        let hears =
            |sender, group| groups.of(sender).unwrap().audience(sender, Some(group)).map(|names| names.to_vec());
        let all = Some(vec![A, B, C]);
        assert_eq!((hears(A, wanted), hears(A, unwanted)), (Some(vec![B]), None));
        assert_eq!(hears(B, wanted), None, "it is the only one that wants it");
        for group in ["224.0.0.1", "224.0.0.251", "ff02::1", "ff02::fb", "ff02::1:ff00:7"] {
            assert_eq!(hears(A, ip(group)), all, "{group}");
        }
        assert_eq!(groups.of(A).unwrap().audience(A, None).unwrap().len(), 3, "no multicast of IP");
        assert_eq!((hears(A, ip("224.0.1.1")), hears(A, ip("ff05::1"))), (None, None));

        // Names that receive all groups do not make a group wanted, and a sender alone does not either.
        groups.tell(snooping(true, true), told(Some(Wanted { of_all: vec![C], ..by_b.clone() })));
        assert_eq!((hears(A, wanted), hears(A, unwanted)), (Some(vec![B, C]), all.clone()));
        assert_eq!((hears(B, wanted), hears(C, wanted)), (all.clone(), Some(vec![B, C])));
        groups.tell(snooping(false, true), told(Some(by_b.clone())));

        // Until the wishes are known again, the previous ones hold.
        groups.tell(snooping(true, false), told(None));
        assert_eq!((hears(A, wanted), hears(A, unwanted)), (Some(vec![B]), all.clone()));
        assert_eq!(hears(A, ip("224.0.0.251")), all, "nobody wants it, and all get that");
        groups.tell(snooping(false, false), told(Some(Wanted { of_all: vec![C], ..by_b })));
        assert_eq!((hears(A, wanted), hears(A, unwanted)), (Some(vec![B, C]), Some(vec![C])));
        assert_eq!(hears(C, unwanted), None);
        assert_eq!((hears(A, ip("224.0.0.251")), hears(A, ip("224.0.0.252"))), (Some(vec![C]), all.clone()));
        groups.set([(7, vec![A, B, C])]);
        assert_eq!((hears(A, unwanted), groups.snooping()), (all.clone(), None));

        // The wishes were never known.
        let fresh = Groups::default();
        fresh.tell(snooping(false, true), told(None));
        assert_eq!(fresh.of(A).unwrap().audience(A, Some(wanted)).map(|names| names.to_vec()), all);
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
        let packet = frame([1, 0, 0x5e, 0, 0, 0xfb], A, Some([224, 0, 0, 251]));
        assert_eq!(admit(&packet[..packet.len() - 1], multicast), Err(multicast), "no whole packet");
        assert_eq!(admit(&packet, multicast), Ok(()), "the sixth");
        assert_eq!(admit(&to_all(None), broadcast), Err(DropReason::GroupRate));
        assert!(Gate::new(0).is_none());
    }
}
