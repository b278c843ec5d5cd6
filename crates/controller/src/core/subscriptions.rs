//! Which names want which IP multicast groups, as their switches report.
//!
//! Each switch reports the whole list whenever something changed and with every stream, so it is kept in memory alone. Every controller
//! gets it, as each serves other switches. The last report of a switch that is away holds: its hosts may still want it. A name counts
//! at its own place; reports of it from elsewhere have no effect.
//!
//! For a switch that has not reported yet what its hosts want, or that never learns it, the wishes of its names are unknown: they receive
//! all groups ([`Subscriptions::wanted`]).
//!
//! Bounds: [`MOST`] groups of the names of a switch; more are left out.

use crate::core::change::{Refusal, State};
use api::groups::{MOST, bytes_of, from_bytes};
use api::v1;
use fib::name::{Name, clip};
use fib::rib::Attachment;
use fib::topology::NodeId;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::net::IpAddr;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    by_node: BTreeMap<NodeId, OfSwitch>,
    version: u64,
}

#[derive(Debug, Default)]
struct OfSwitch {
    session: u64,
    number: u64,
    knows: Knows,
    groups: HashMap<[u8; 6], Vec<IpAddr>>,
}

/// What a switch knows of its hosts' wishes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Knows {
    /// Nothing yet: it is asking them.
    #[default]
    Nothing,
    /// Nothing, and it never will while it runs.
    Never,
    All,
}

impl Subscriptions {
    /// Takes a switch's list of what its names want; none: it does not learn that. Returns whether that is news.
    pub(crate) fn hear(&mut self, node: NodeId, said: Option<v1::Subscriptions>) -> bool {
        let is_first = !self.by_node.contains_key(&node);
        let of_switch = self.by_node.entry(node).or_default();
        let before = of_switch.knows;
        let is_other = match said {
            Some(said) => of_switch.hear(said, is_first),
            None => {
                *of_switch = OfSwitch { knows: Knows::Never, ..OfSwitch::default() };
                false
            }
        };
        let is_news = is_first || is_other || of_switch.knows != before;
        self.version += u64::from(is_news);
        is_news
    }

    /// Forgets the reports of switches that are gone: the number of one may be another's later.
    pub(crate) fn retain(&mut self, nodes: &BTreeSet<NodeId>) {
        self.by_node.retain(|node, _| nodes.contains(node));
    }

    /// Raised with each change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Whether it is known what the names of a switch want, or that the switch never reports that.
    pub(crate) fn is_settled(&self, node: NodeId) -> bool {
        self.by_node.get(&node).is_some_and(|of_switch| of_switch.knows != Knows::Nothing)
    }

    /// Which groups each of these names wants, each name being at its switch. Names with unknown wishes receive every group.
    pub(crate) fn wanted(&self, names: &[(NodeId, [u8; 6])]) -> v1::Wanted {
        let mut by_group = BTreeMap::<IpAddr, Vec<u32>>::new();
        let mut of_all = Vec::new();
        for (index, (node, name)) in (0..).zip(names) {
            let of_switch = self.by_node.get(node);
            if of_switch.is_none_or(|of_switch| of_switch.knows != Knows::All) {
                of_all.push(index);
            }
            let groups = of_switch.and_then(|of_switch| of_switch.groups.get(name));
            groups.into_iter().flatten().for_each(|group| by_group.entry(*group).or_default().push(index));
        }
        let group = |(group, names)| v1::WantedGroup { group: bytes_of(group), names };
        v1::Wanted { groups: by_group.into_iter().map(group).collect(), of_all }
    }

    /// Names of a tenant, and those of them that receive all groups.
    pub(crate) fn members(&self, names: &[(Name, Attachment)]) -> v1::GroupMembers {
        let is_known = |node| self.by_node.get(node).is_some_and(|of_switch| of_switch.knows == Knows::All);
        let of_all = names.iter().filter(|(_, at)| !is_known(&at.switch)).map(|(name, _)| name.to_string()).collect();
        v1::GroupMembers { names: names.iter().map(|(name, _)| name.to_string()).collect(), of_all }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.by_node.values().flat_map(|of_switch| of_switch.groups.values()).map(Vec::len).sum()
    }

    /// The wishes of names at their own places that match what is [asked](Asked) for, by tenant, group and name: the first `limit`, and
    /// whether there are more. O(all) for each page, and as much memory as a page takes.
    pub(crate) fn page(&self, state: &State, asked: &Asked, limit: usize) -> (Vec<v1::Subscribed>, bool) {
        let rib = state.network.rib();
        let mut page = BinaryHeap::new();
        for (node, of_switch) in &self.by_node {
            for (bytes, groups) in &of_switch.groups {
                let Ok(name) = Name::from_bytes(state.network.settings().kind, bytes) else { continue };
                if asked.name.as_ref().is_some_and(|asked| *asked != name) {
                    continue;
                }
                let Some(attachment) = rib.get(&name).filter(|attachment| attachment.switch == *node) else { continue };
                let tenant = attachment.tenant;
                if asked.tenant.is_some_and(|asked| asked != tenant) {
                    continue;
                }
                for group in groups.iter().filter(|group| asked.group.is_none_or(|asked| asked == **group)) {
                    let row = (tenant, *group, name.clone());
                    if asked.after.as_ref().is_some_and(|after| row <= *after) {
                        continue;
                    }
                    // One more than fits says whether there are more.
                    if page.len() <= limit {
                        page.push(row);
                    } else if let Some(mut last) = page.peek_mut().filter(|last| row < **last) {
                        *last = row;
                    }
                }
            }
        }
        let mut page = page.into_sorted_vec();
        let more = page.len() > limit;
        page.truncate(limit);
        let row = |(tenant, group, name): Row| {
            let place = rib.get(&name).map(|attachment| state.place(attachment.end()));
            let at = place.map(|place| v1::LinkEnd { switch: place.switch, port: place.port.0.into() });
            v1::Subscribed { tenant, group: group.to_string(), name: name.to_string(), at }
        };
        (page.into_iter().map(row).collect(), more)
    }
}

/// The wish of a name of a tenant for a group.
type Row = (u32, IpAddr, Name);

/// What a list is to contain.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// What comes after this.
    after: Option<Row>,
    group: Option<IpAddr>,
    tenant: Option<u32>,
    name: Option<Name>,
}

impl Asked {
    /// How many rows a page may have. Earlier commands know no pages: they ask for none, and take what they get for everything.
    pub(crate) fn limit(ask: &v1::ListGroupsRequest, most: usize) -> usize {
        if ask.limit == 0 { usize::MAX } else { (ask.limit as usize).min(most) }
    }

    /// Reads a request, except its limit.
    pub(crate) fn read(state: &State, ask: &v1::ListGroupsRequest) -> Result<Asked, Refusal> {
        let group = |text: &str| match text.parse::<IpAddr>() {
            Ok(group) if group.is_multicast() => Ok(group),
            _ => Err(Refusal::NoGroup { group: clip(text) }),
        };
        let name = |text: &str| state.parse(text);
        let after = ask.after.as_ref().map(|row| Ok::<_, Refusal>((row.tenant, group(&row.group)?, name(&row.name)?)));
        Ok(Asked {
            after: after.transpose()?,
            group: Some(&*ask.group).filter(|text| !text.is_empty()).map(group).transpose()?,
            tenant: ask.tenant,
            name: Some(&*ask.name).filter(|text| !text.is_empty()).map(name).transpose()?,
        })
    }
}

impl OfSwitch {
    /// Whether the wishes that are known then differ.
    fn hear(&mut self, said: v1::Subscriptions, is_first: bool) -> bool {
        let v1::Subscriptions { session, number, asking, subscribers } = said;
        let is_new = is_first || self.knows == Knows::Never;
        if !is_new && self.session == session && self.number >= number {
            return false;
        }
        let began_anew = !is_new && self.session == session;
        (self.session, self.number) = (session, number);
        // A switch that restarted asks its hosts, and its last report holds until it knows what they want. One that keeps running and
        // asks anew has forgotten all of it.
        if asking && !is_new && !began_anew {
            return false;
        }
        self.knows = if asking { Knows::Nothing } else { Knows::All };
        let groups = groups_of(&subscribers);
        std::mem::replace(&mut self.groups, groups) != self.groups
    }
}

fn groups_of(subscribers: &[v1::Subscriber]) -> HashMap<[u8; 6], Vec<IpAddr>> {
    let mut left = MOST;
    let mut all = HashMap::new();
    for v1::Subscriber { name, groups } in subscribers {
        let Ok(name) = <[u8; 6]>::try_from(&name[..]) else { continue };
        let mut groups: Vec<IpAddr> = groups.iter().filter_map(|bytes| from_bytes(bytes)).take(left).collect();
        groups.sort_unstable();
        groups.dedup();
        left -= groups.len();
        if !groups.is_empty() {
            all.insert(name, groups);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::change::{Change, Place, Record};
    use crate::hosts::Hosts;
    use fib::action::PortId;
    use fib::network::{Network, Settings};
    use lookup::hash::SecretKey;
    use std::cell::RefCell;

    const A: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn said(session: u64, number: u64, asking: bool, groups: &[&str]) -> v1::Subscriptions {
        let groups = groups.iter().map(|group| bytes_of(group.parse().unwrap())).collect();
        let subscribers = vec![v1::Subscriber { name: A.to_vec().into(), groups }];
        v1::Subscriptions { session, number, asking, subscribers }
    }

    fn groups_at(all: &Subscriptions, node: u32) -> Vec<String> {
        let wanted = all.wanted(&[(NodeId(node), A)]);
        let text = |wanted: v1::WantedGroup| from_bytes(&wanted.group).unwrap().to_string();
        wanted.groups.into_iter().map(text).collect()
    }

    fn gets_all(all: &Subscriptions, node: u32) -> bool {
        all.wanted(&[(NodeId(node), A)]).of_all == [0]
    }

    #[test]
    fn what_a_switch_says_replaces_what_it_said_and_what_comes_late_does_not() {
        let all = RefCell::new(Subscriptions::default());
        let hear = |node, said| all.borrow_mut().hear(NodeId(node), Some(said));
        assert!(!all.borrow().is_settled(NodeId(1)) && gets_all(&all.borrow(), 1));
        hear(1, said(7, 2, false, &["239.0.0.1", "ff05::1", "10.0.0.1"]));
        assert_eq!(
            (groups_at(&all.borrow(), 1), all.borrow().version()),
            (vec!["239.0.0.1".to_owned(), "ff05::1".to_owned()], 1)
        );
        assert!(
            groups_at(&all.borrow(), 2).is_empty() && all.borrow().is_settled(NodeId(1)) && !gets_all(&all.borrow(), 1)
        );
        hear(1, said(7, 1, false, &["239.0.0.2"]));
        hear(1, said(7, 2, false, &["239.0.0.2"]));
        hear(1, said(7, 3, false, &["239.0.0.1", "ff05::1"]));
        assert_eq!((all.borrow().version(), all.borrow().count()), (1, 2), "nothing of it is news");
        // It starts again: what it said holds until it has asked its hosts.
        hear(1, said(8, 1, true, &[]));
        assert_eq!((all.borrow().version(), all.borrow().count()), (1, 2));
        hear(1, said(8, 2, false, &["239.0.0.9"]));
        assert_eq!((groups_at(&all.borrow(), 1), all.borrow().version()), (vec!["239.0.0.9".to_owned()], 2));
        // It goes on, and has forgotten what it heard.
        hear(1, said(8, 3, true, &[]));
        assert!(
            groups_at(&all.borrow(), 1).is_empty() && gets_all(&all.borrow(), 1) && !all.borrow().is_settled(NodeId(1))
        );
    }

    #[test]
    fn names_get_all_while_nobody_knows_what_they_want_or_where_their_switch_never_hears_it() {
        let all = RefCell::new(Subscriptions::default());
        let hear = |said| all.borrow_mut().hear(NodeId(2), said);
        // That it is asking does not count as a report of its hosts.
        hear(Some(said(8, 1, true, &[])));
        assert!(gets_all(&all.borrow(), 2) && !all.borrow().is_settled(NodeId(2)));
        hear(Some(said(8, 2, false, &[])));
        assert!(!gets_all(&all.borrow(), 2) && all.borrow().is_settled(NodeId(2)));
        let version = all.borrow().version();
        for _ in 0..2 {
            hear(None);
            assert!(gets_all(&all.borrow(), 2) && all.borrow().is_settled(NodeId(2)));
            assert_eq!(all.borrow().version(), version + 1);
        }
        hear(Some(said(8, 2, false, &["239.0.0.1"])));
        assert!(!gets_all(&all.borrow(), 2) && groups_at(&all.borrow(), 2).len() == 1);
        all.borrow_mut().retain(&[NodeId(1)].into());
        assert!(gets_all(&all.borrow(), 2) && groups_at(&all.borrow(), 2).is_empty(), "another switch has its number");
    }

    #[test]
    fn pages_have_each_row_once_and_in_order_and_filters_leave_out_the_others() {
        let network = Network::new(Settings::new(7, SecretKey::from_seed(1)), 1).unwrap();
        let mut state = State { network, hosts: Hosts::default() };
        let text = |i: u8| format!("02:00:00:00:00:{i:02x}");
        let place = |switch: &str| Place { switch: switch.to_owned(), port: PortId(1) };
        let record = |i: u8| Record {
            name: text(i),
            host: if i.is_multiple_of(3) { "a" } else { "b" }.to_owned(),
            tenant: u32::from(i % 2),
            ip: None,
        };
        for change in [
            Change::AddSwitches { names: vec!["s1".to_owned(), "s2".to_owned()] },
            Change::AddHosts { hosts: vec![("a".to_owned(), place("s1")), ("b".to_owned(), place("s2"))] },
            Change::PutNames { records: (0..30).map(record).collect(), only_new: true },
        ] {
            state.carry_out(change).unwrap();
        }
        let mut all = Subscriptions::default();
        let groups = ["239.0.0.1", "239.0.0.2", "ff05::1"];
        // Both switches report all names; each name counts at its own place.
        for switch in ["s1", "s2"] {
            let bytes = || groups.iter().map(|group| bytes_of(group.parse().unwrap())).collect();
            let subscriber = |i: u8| v1::Subscriber { name: vec![2, 0, 0, 0, 0, i].into(), groups: bytes() };
            let subscribers = (0..40).map(subscriber).collect();
            all.hear(state.node(switch).unwrap(), Some(v1::Subscriptions { subscribers, ..Default::default() }));
        }
        let rows = |ask: &v1::ListGroupsRequest, limit| {
            let (page, more) = all.page(&state, &Asked::read(&state, ask).unwrap(), limit);
            for row in &page {
                let index = u8::from_str_radix(&row.name[15..], 16).unwrap();
                assert_eq!(row.at.as_ref().unwrap().switch, if index.is_multiple_of(3) { "s1" } else { "s2" });
            }
            (page, more)
        };
        let (whole, more) = rows(&v1::ListGroupsRequest::default(), 1000);
        assert_eq!((whole.len(), more), (90, false));
        // An earlier command gets all at once, whatever a page may have.
        let limit = |limit| Asked::limit(&v1::ListGroupsRequest { limit, ..Default::default() }, 20);
        assert_eq!((rows(&v1::ListGroupsRequest::default(), limit(0)).0, limit(7), limit(21)), (whole.clone(), 7, 20));
        let key = |row: &v1::Subscribed| (row.tenant, row.group.parse::<IpAddr>().unwrap(), row.name.clone());
        assert!(whole.is_sorted_by_key(key));
        for limit in [1, 7, 89, 90, 91] {
            let (mut pages, mut after) = (Vec::new(), None);
            loop {
                let (page, more) = rows(&v1::ListGroupsRequest { after, ..Default::default() }, limit);
                assert!(page.len() == limit || !more);
                after = page.last().cloned();
                pages.extend(page);
                if !more {
                    break;
                }
            }
            assert_eq!(pages, whole, "pages of {limit}");
        }
        let asks = [
            v1::ListGroupsRequest { tenant: Some(1), ..Default::default() },
            v1::ListGroupsRequest { group: "ff05::1".to_owned(), ..Default::default() },
            v1::ListGroupsRequest { name: text(4), ..Default::default() },
            v1::ListGroupsRequest {
                tenant: Some(0),
                group: "239.0.0.2".to_owned(),
                name: text(4),
                ..Default::default()
            },
        ];
        assert_eq!(asks.each_ref().map(|ask| rows(ask, 1000).0.len()), [45, 30, 3, 1]);
        for wrong in [
            v1::ListGroupsRequest { group: "10.0.0.1".to_owned(), ..Default::default() },
            v1::ListGroupsRequest { name: "nobody".to_owned(), ..Default::default() },
            v1::ListGroupsRequest { after: Some(v1::Subscribed::default()), ..Default::default() },
        ] {
            assert!(Asked::read(&state, &wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_a_switch_says_is_bounded() {
        let mut all = Subscriptions::default();
        let subscriber = |i: u32| v1::Subscriber {
            name: [&[2, 0][..], &i.to_be_bytes()].concat().into(),
            groups: (0..100).map(|j: u8| vec![0xff, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, j].into()).collect(),
        };
        let subscribers: Vec<_> = (0..100).map(subscriber).collect();
        all.hear(NodeId(1), Some(v1::Subscriptions { subscribers, ..v1::Subscriptions::default() }));
        assert_eq!(all.count(), MOST);
    }
}
