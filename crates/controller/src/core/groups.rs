//! Tells switches who receives the broadcasts of their hosts: for each allowed tenant ([`Settings`]) with names at a switch, all
//! names of the tenant, and which multicast groups each of them wants ([`crate::core::subscriptions`]). Switches copy such frames
//! (`dataplane::groups`).
//!
//! A controller that starts does not know what names want. Until it has heard from all switches with names of these tenants, or for
//! some seconds, it has switches go on with what they were last told. Names with unknown subscriptions receive every group.
//!
//! In the same message switches get the further addresses of learnt names, besides those of their records ([`crate::hosts::names`]).
//!
//! All this is separate from the tables: nothing is stored, versioned or acknowledged, and a switch that missed it drops those frames
//! as it would without it. Each message replaces the one before; one is sent with every stream and whenever a member changed.
//!
//! A host that makes up names must not end broadcasts for its tenant. If there are more names than allowed, the newest learnt names are
//! left out at the ports that have the most, until the rest fit. Names that an operator declared are all included or none.
//!
//! When they get it: [`crate::shell::groups`].

use crate::hosts::names::Learnt;
use api::v1;
use bytes::Bytes;
use fib::name::Name;
use fib::rib::{Attachment, Rib};
use fib::topology::NodeId;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

/// The most tenants, and names of a tenant, that can be configured: one message tells a switch of all of them.
pub(crate) const MAX_TENANTS: usize = 256;
pub(crate) const MAX_NAMES: u32 = 1024;
/// How many learnt names beyond the limit a tenant may have and still be looked at: eight ports full of them.
const MAX_BEYOND: usize = 8192;

/// The longest query interval, in seconds, that queries can express (RFC 3376, 4.1.7).
const LONGEST_INTERVAL_S: u32 = 127;

/// Decides what to do with a multicast to a group that no host wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unknown {
    /// It is dropped: hosts that want a group must say so.
    #[default]
    Drop,
    /// The whole tenant receives it.
    Flood,
}

/// Decides who receives mDNS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mdns {
    /// The whole tenant, as with other groups that stay on one link.
    #[default]
    All,
    /// The hosts that want it.
    Subscribers,
}

/// The section `[groups]`: delivery of broadcasts and multicasts.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The tenants whose hosts receive each other's broadcasts and multicasts.
    pub tenants: BTreeSet<u32>,
    /// The most names of a tenant; with more, nothing is copied for it, as each such frame costs one copy per name.
    pub max_names: u32,
    /// Whether a multicast goes only to hosts that want its group; otherwise it goes to the whole tenant.
    pub snooping: bool,
    /// Seconds between two queries of switches to their hosts.
    pub query_interval_s: u32,
    /// Decides what to do with a multicast to a group that no host wants.
    pub unknown_multicast: Unknown,
    /// Decides who receives mDNS.
    pub mdns: Mdns,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tenants: BTreeSet::new(),
            max_names: 64,
            snooping: true,
            query_interval_s: 30,
            unknown_multicast: Unknown::default(),
            mdns: Mdns::default(),
        }
    }
}

impl Settings {
    pub(crate) fn check(&self, is_mac: bool) -> Result<(), String> {
        let n_tenants = self.tenants.len();
        if n_tenants > MAX_TENANTS {
            return Err(format!("groups.tenants has {n_tenants} tenants; write {MAX_TENANTS} at most"));
        }
        if !(2..=MAX_NAMES).contains(&self.max_names) {
            return Err(format!("groups.max_names = {} is out of range; write 2 to {MAX_NAMES}", self.max_names));
        }
        if !(1..=LONGEST_INTERVAL_S).contains(&self.query_interval_s) {
            let interval = self.query_interval_s;
            return Err(format!(
                "groups.query_interval_s = {interval} is out of range; write 1 to {LONGEST_INTERVAL_S}"
            ));
        }
        if n_tenants > 0 && !is_mac {
            return Err("[groups] is for names that are MAC addresses; remove groups.tenants".to_owned());
        }
        Ok(())
    }
}

/// The names of a tenant, and where they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Members {
    pub(crate) names: Vec<(NodeId, [u8; 6])>,
    pub(crate) nodes: BTreeSet<NodeId>,
    /// Whether there are more than allowed; then `names` is empty.
    pub(crate) is_crowded: bool,
    /// Learnt names that are left out, because their ports have too many.
    pub(crate) left_out: usize,
}

impl Members {
    /// The members of a tenant with these names; none if there are more than allowed.
    pub(crate) fn of(names: Option<Vec<(Name, Attachment)>>) -> Self {
        // None receives anything, so names that come or go are not news.
        let Some(names) = names else { return Self { is_crowded: true, ..Self::default() } };
        let member = |(name, at): &(Name, Attachment)| Some((at.switch, name.as_bytes().try_into().ok()?));
        let names: Vec<_> = names.iter().filter_map(member).collect();
        let nodes = names.iter().map(|(node, _)| *node).collect();
        Self { names, nodes, is_crowded: false, left_out: 0 }
    }
}

/// The members of each tenant.
pub(crate) type ByTenant = BTreeMap<u32, Members>;

/// Names that fit, and how many were left out.
pub(crate) type Fitting = (Vec<(Name, Attachment)>, usize);

/// The names of one of the tenants that [fit](fit), none if there are too many; and the number that changes with them.
pub(crate) fn names_of(
    rib: &Rib,
    learnt: &Learnt,
    tenants: &BTreeSet<u32>,
    tenant: u32,
    most: usize,
) -> (u64, Option<Fitting>) {
    let versions = rib.watch(tenants);
    let names = rib.names_of(tenant, most + MAX_BEYOND).and_then(Result::ok);
    let fitting = names.and_then(|names| fit(names, most, |name| learnt.since_ms(name)));
    (versions.get(&tenant).copied().unwrap_or_default(), fitting)
}

/// Leaves out learnt names until there are at most `most`: the newest of the ports that have the most. Returns the others, and how many
/// were left out; none if even one learnt name per port is too many. `since` says since when a name has been learnt.
fn fit(names: Vec<(Name, Attachment)>, most: usize, since: impl Fn(&Name) -> Option<u64>) -> Option<Fitting> {
    if names.len() <= most {
        return Some((names, 0));
    }
    let mut of_ports: BTreeMap<_, Vec<(u64, usize)>> = BTreeMap::new();
    for (index, (name, at)) in names.iter().enumerate() {
        if let Some(since) = since(name) {
            of_ports.entry((at.switch, at.port)).or_default().push((since, index));
        }
    }
    let n_learnt: usize = of_ports.values().map(Vec::len).sum();
    let room = most.checked_sub(names.len() - n_learnt)?;
    let carried = |of_each: usize| of_ports.values().map(|of_port| of_port.len().min(of_each)).sum::<usize>();
    // The most of each port that fit.
    let of_each = (1..=most).take_while(|&of_each| carried(of_each) <= room).last()?;
    let mut is_left_out = vec![false; names.len()];
    for of_port in of_ports.values_mut() {
        of_port.sort_unstable();
        of_port.iter().skip(of_each).for_each(|&(_, index)| is_left_out[index] = true);
    }
    let n = names.len();
    let kept: Vec<_> = names.into_iter().zip(is_left_out).filter(|(_, out)| !out).map(|(name, _)| name).collect();
    let left_out = n - kept.len();
    Some((kept, left_out))
}

/// What switches are told of a tenant, and how often that changed.
#[derive(Default)]
struct Told {
    group: v1::Group,
    generation: u64,
}

/// What all switches are told.
#[derive(Default)]
pub(crate) struct All {
    pub(crate) members: ByTenant,
    told: BTreeMap<u32, Told>,
    /// The further addresses of names.
    pub(crate) addresses: BTreeMap<IpAddr, Name>,
    /// Counts what changed.
    pub(crate) generation: u64,
}

impl All {
    /// Takes the members that were found. A name that moves may change which switches are told of its tenant, but not what
    /// they are told.
    pub(crate) fn replace(&mut self, found: ByTenant) {
        self.generation += u64::from(found != self.members);
        self.members = found;
    }

    /// Updates what is told of each tenant. With `wants`, that includes who wants what.
    pub(crate) fn refresh(&mut self, wants: impl Fn(&Members) -> Option<v1::Wanted>) {
        let mut is_news = self.told.len() != self.members.len();
        for (&tenant, members) in &self.members {
            let names = members.names.iter().map(|(_, name)| Bytes::copy_from_slice(name)).collect();
            let group = v1::Group { tenant, names, wanted: wants(members) };
            let told = self.told.entry(tenant).or_default();
            if told.group != group {
                *told = Told { group, generation: self.generation + 1 };
                is_news = true;
            }
        }
        self.generation += u64::from(is_news);
    }

    fn of(&self, node: NodeId) -> impl Iterator<Item = &Told> {
        let is_here = move |(_, members): &(&u32, &Members)| members.nodes.contains(&node);
        self.members.iter().filter(is_here).filter_map(|(tenant, _)| self.told.get(tenant))
    }

    /// The key of what a switch is told: another number whenever that differs.
    pub(crate) fn key(&self, node: NodeId) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.addresses.hash(&mut hasher);
        self.of(node).for_each(|told| (told.group.tenant, told.generation).hash(&mut hasher));
        hasher.finish()
    }

    pub(crate) fn for_switch(&self, settings: &Settings, node: NodeId) -> v1::Groups {
        let snooping = v1::Snooping {
            query_interval_s: settings.query_interval_s,
            floods_unknown: settings.unknown_multicast == Unknown::Flood,
            mdns_for_all: settings.mdns == Mdns::All,
        };
        let groups: Vec<_> = self.of(node).map(|told| told.group.clone()).collect();
        let snooping = Some(snooping).filter(|_| settings.snooping && !groups.is_empty());
        let address = |(ip, name): (&IpAddr, &Name)| {
            let ip = match ip {
                IpAddr::V4(ip) => Bytes::copy_from_slice(&ip.octets()),
                IpAddr::V6(ip) => Bytes::copy_from_slice(&ip.octets()),
            };
            v1::MoreAddress { ip, name: Bytes::copy_from_slice(name.as_bytes()) }
        };
        v1::Groups { groups, snooping, addresses: self.addresses.iter().map(address).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::counters::Said;
    use crate::core::subscriptions::Subscriptions;
    use fib::action::PortId;
    use fib::name::NameKind;
    use std::cell::RefCell;

    fn name(i: u8) -> Name {
        Name::from_bytes(NameKind::Mac, &[2, 0, 0, 0, 0, i]).expect("six bytes")
    }

    fn at(node: u32) -> Attachment {
        Attachment::new(NodeId(node), PortId(1))
    }

    /// Names, each at one of these switches.
    fn members<const N: usize>(nodes: [u32; N]) -> Members {
        Members::of(Some((0..).zip(nodes).map(|(i, node)| (name(i), at(node))).collect()))
    }

    #[test]
    fn names_are_those_of_the_rib_that_is_there_and_so_is_their_number() {
        let rib = |names: &[u8]| {
            let settings = fib::network::Settings::new(7, lookup::hash::SecretKey::from_seed(1));
            let mut network = fib::network::Network::new(settings, 1).unwrap();
            let (nodes, _) = network.add_switches(&["s1"]).unwrap();
            let end = fib::topology::End { node: nodes[0], port: PortId(1) };
            network.add_host_ports(&[end]).unwrap();
            names.iter().for_each(|i| _ = network.set_name(&name(*i), Attachment::new(nodes[0], PortId(1))).unwrap());
            network
        };
        let (before, now, tenants) = (rib(&[1]), rib(&[1, 2]), BTreeSet::from([0]));
        let version = before.rib().watch(&tenants)[&0];
        // The other RIB, which replaces it, has no watches.
        let learnt = Learnt::default();
        let (other, names) = names_of(now.rib(), &learnt, &tenants, 0, 9);
        assert_eq!((other != version, names.map(|(names, _)| names.len())), (true, Some(2)));
        assert_eq!(names_of(now.rib(), &learnt, &tenants, 0, 1), (other, None));
    }

    #[test]
    fn a_port_full_of_learnt_names_ends_broadcasts_for_nobody_else() {
        let at_port = |port: u16| Attachment::new(NodeId(0), PortId(port));
        // Port 1 has 40 learnt names, the newest first; port 2 has 3, port 3 has two that were declared.
        let mut names: Vec<_> = (0..40).map(|i| (name(i), at_port(1))).collect();
        names.extend((100..103).map(|i| (name(i), at_port(2))));
        names.extend((200..202).map(|i| (name(i), at_port(3))));
        let since = |name: &Name| Some(1000 - u64::from(name.as_bytes()[5])).filter(|since| *since > 801);
        let fits = |most| fit(names.clone(), most, since).map(|(names, out)| (names.len(), out));
        let (kept, left_out) = fit(names.clone(), 16, since).unwrap();
        let of_first: Vec<u8> =
            kept.iter().filter(|(_, at)| at.port == PortId(1)).map(|(name, _)| name.as_bytes()[5]).collect();
        assert_eq!((left_out, of_first), (29, (29..40).collect()));
        assert_eq!((kept.len(), kept.iter().filter(|(_, at)| at.port != PortId(1)).count()), (16, 5));
        assert_eq!((fits(45), fits(44), fits(5)), (Some((45, 0)), Some((44, 1)), Some((4, 41))));
        // With less than one learnt name of each port, or more declared names than may be, there are none.
        assert_eq!((fits(4), fits(3), fits(1)), (Some((4, 41)), None, None));
    }

    #[test]
    fn a_switch_is_told_of_the_tenants_that_it_has_and_of_none_that_is_too_large() {
        let mut all = All::default();
        all.replace([(7, members([0, 1, 2])), (8, Members::of(None))].into());
        let settings = Settings::default();
        all.refresh(|_| None);
        let told = all.for_switch(&settings, NodeId(1));
        let [v1::Group { tenant: 7, names, wanted: None }] = &told.groups[..] else { panic!("{told:?}") };
        assert_eq!(names.iter().map(|name| name[5]).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(all.for_switch(&settings, NodeId(5)).groups.is_empty());
        assert_eq!(
            told.snooping,
            Some(v1::Snooping { query_interval_s: 30, floods_unknown: false, mdns_for_all: true })
        );
        let off = Settings { snooping: false, ..settings };
        assert_eq!(all.for_switch(&off, NodeId(1)).snooping, None);
    }

    #[test]
    fn a_switch_is_told_again_when_something_changes_for_it_and_who_is_deaf_hears_all() {
        let subscriptions = RefCell::new(Subscriptions::default());
        let mut all = All::default();
        all.replace([(7, members([0, 1])), (8, Members::of(Some(vec![(name(2), at(2))])))].into());
        let said = |i: u8, number, group: [u8; 4]| v1::Subscriptions {
            number,
            subscribers: vec![v1::Subscriber {
                name: name(i).as_bytes().to_vec().into(),
                groups: vec![group.to_vec().into()],
            }],
            ..v1::Subscriptions::default()
        };
        let hear = |node, said| subscriptions.borrow_mut().hear(NodeId(node), said);
        let keys = |all: &All| [0, 1, 2].map(|node| all.key(NodeId(node)));
        let wanted = |members: &Members| Some(subscriptions.borrow().wanted(&members.names));
        hear(0, None);
        hear(1, Some(said(1, 1, [239, 0, 0, 1])));
        // Of a name that is elsewhere: this has no effect.
        hear(2, Some(said(1, 1, [239, 0, 0, 2])));
        all.refresh(wanted);
        let before = keys(&all);
        let told = all.for_switch(&Settings::default(), NodeId(0)).groups.remove(0).wanted.unwrap();
        assert_eq!(told.of_all, [0]);
        let [v1::WantedGroup { group, names }] = &told.groups[..] else { panic!("{told:?}") };
        assert_eq!((&group[..], &names[..]), (&[239, 0, 0, 1][..], &[1][..]));

        let generation = all.generation;
        all.refresh(wanted);
        assert_eq!((all.generation, keys(&all)), (generation, before));
        hear(1, Some(said(1, 2, [239, 0, 0, 3])));
        all.refresh(wanted);
        let after = keys(&all);
        assert!(after[0] != before[0] && after[1] != before[1] && after[2] == before[2]);
    }

    #[test]
    fn switches_that_a_name_leaves_and_comes_to_are_told_though_it_wants_nothing() {
        let members = |nodes| ByTenant::from([(7, members::<2>(nodes))]);
        let mut all = All::default();
        all.replace(members([0, 1]));
        all.refresh(|_| None);
        let told = [0, 1, 2].map(|node| {
            let mut said = Said::default();
            said.set_takes_groups(true);
            said.set_groups_told(all.generation, all.key(NodeId(node)));
            RefCell::new(said)
        });
        let lack = |all: &All| {
            [0, 1, 2].map(|i| told[i].borrow_mut().lacks_groups(all.generation, || all.key(NodeId(i as u32))))
        };
        assert_eq!(lack(&all), [false; 3]);
        all.replace(members([0, 1]));
        assert_eq!(lack(&all), [false; 3]);
        all.replace(members([0, 2]));
        all.refresh(|_| None);
        assert_eq!(lack(&all), [false, true, true]);
        assert!(all.for_switch(&Settings::default(), NodeId(1)).groups.is_empty());
        assert_eq!(all.for_switch(&Settings::default(), NodeId(2)).groups[0].names.len(), 2);
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        let settings = |tenants: Vec<u32>, max_names| Settings {
            tenants: tenants.into_iter().collect(),
            max_names,
            ..Settings::default()
        };
        assert!(settings(vec![0], 64).check(true).is_ok());
        assert!(settings(vec![], 64).check(false).is_ok());
        assert!(settings(vec![0], 64).check(false).is_err_and(|error| error.contains("MAC")));
        assert!(settings(vec![0], 1).check(true).is_err_and(|error| error.contains("groups.max_names = 1")));
        assert!(settings((0..257).collect(), 64).check(true).is_err_and(|error| error.contains("257")));
        for query_interval_s in [0, 128] {
            let settings = Settings { query_interval_s, ..Settings::default() };
            assert!(settings.check(true).is_err_and(|error| error.contains("groups.query_interval_s")));
        }
    }
}
