//! Which names want which multicast groups of IP, as their switches say it.
//!
//! Each switch says all of it whenever something changed and with every stream, so it is kept in memory alone. Of several controllers each
//! is told, for each serves other switches. What a switch that is away said last holds: its hosts may want it still. A name counts where it
//! is, so what is said of it elsewhere counts for nothing.
//!
//! Bounds: [`MOST`] groups of the names of a switch; what is above is left out.

use crate::change::State;
use api::v1;
use fib::name::Name;
use fib::topology::NodeId;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Groups of all names of a switch.
const MOST: usize = 8192;

/// Bytes of the largest message with them: a name with one group of IPv6 takes 28.
pub(crate) const MOST_BYTES: usize = 32 * MOST;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    said: Mutex<Said>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Said {
    by_node: BTreeMap<NodeId, OfSwitch>,
    version: u64,
}

#[derive(Debug, Default)]
struct OfSwitch {
    session: u64,
    number: u64,
    groups: HashMap<[u8; 6], Vec<IpAddr>>,
}

impl Subscriptions {
    fn lock(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A switch says what its names want.
    pub(crate) fn hear(&self, node: NodeId, said: v1::Subscriptions) {
        let v1::Subscriptions { session, number, asking, subscribers } = said;
        let is_news = {
            let all = &mut *self.lock();
            let is_first = !all.by_node.contains_key(&node);
            let of_switch = all.by_node.entry(node).or_default();
            if !is_first && of_switch.session == session && of_switch.number >= number {
                return;
            }
            (of_switch.session, of_switch.number) = (session, number);
            let mut is_news = is_first;
            if is_first || !asking {
                let groups = groups_of(&subscribers);
                is_news |= groups != of_switch.groups;
                of_switch.groups = groups;
            }
            all.version += u64::from(is_news);
            is_news
        };
        if is_news {
            self.changed.notify_one();
        }
    }

    /// Waits until something was said that is news.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Raised with each change.
    pub(crate) fn version(&self) -> u64 {
        self.lock().version
    }

    /// Whether a switch ever said anything.
    pub(crate) fn knows(&self, node: NodeId) -> bool {
        self.lock().by_node.contains_key(&node)
    }

    /// Calls `each` with every group that a name wants at its switch.
    pub(crate) fn for_each(&self, names: &[(NodeId, [u8; 6])], mut each: impl FnMut(usize, IpAddr)) {
        let all = self.lock();
        for (index, (node, name)) in names.iter().enumerate() {
            let groups = all.by_node.get(node).and_then(|of_switch| of_switch.groups.get(name));
            groups.into_iter().flatten().for_each(|group| each(index, *group));
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().by_node.values().flat_map(|of_switch| of_switch.groups.values()).map(Vec::len).sum()
    }

    /// All of names that are where it was said, by tenant, group and name.
    pub(crate) fn list(&self, state: &State) -> Vec<v1::Subscribed> {
        let (all, rib) = (self.lock(), state.network.rib());
        let mut list = Vec::new();
        for (node, of_switch) in &all.by_node {
            for (bytes, groups) in &of_switch.groups {
                let Ok(name) = Name::from_bytes(state.network.settings().kind, bytes) else { continue };
                let Some(attachment) = rib.get(&name).filter(|attachment| attachment.switch == *node) else { continue };
                let place = state.place(attachment.end());
                list.extend(groups.iter().map(|group| {
                    let at = v1::LinkEnd { switch: place.switch.clone(), port: place.port.0.into() };
                    ((attachment.tenant, *group, name.clone()), at)
                }));
            }
        }
        list.sort_by(|(a, _), (b, _)| a.cmp(b));
        let row = |((tenant, group, name), at): ((u32, IpAddr, Name), v1::LinkEnd)| v1::Subscribed {
            tenant,
            group: group.to_string(),
            name: name.to_string(),
            at: Some(at),
        };
        list.into_iter().map(row).collect()
    }
}

fn groups_of(subscribers: &[v1::Subscriber]) -> HashMap<[u8; 6], Vec<IpAddr>> {
    let mut left = MOST;
    let mut all = HashMap::new();
    for v1::Subscriber { name, groups } in subscribers {
        let Ok(name) = <[u8; 6]>::try_from(&name[..]) else { continue };
        let mut groups: Vec<IpAddr> = groups.iter().filter_map(|bytes| group(bytes)).take(left).collect();
        groups.sort_unstable();
        groups.dedup();
        left -= groups.len();
        if !groups.is_empty() {
            all.insert(name, groups);
        }
    }
    all
}

/// The bytes of a group, as they are sent.
pub(crate) fn bytes_of(group: IpAddr) -> Vec<u8> {
    match group {
        IpAddr::V4(group) => group.octets().to_vec(),
        IpAddr::V6(group) => group.octets().to_vec(),
    }
}

fn group(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let group = <[u8; 16]>::try_from(bytes).map(IpAddr::from).or_else(|_| v4()).ok()?;
    group.is_multicast().then_some(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn said(session: u64, number: u64, asking: bool, groups: &[&str]) -> v1::Subscriptions {
        let groups = groups.iter().map(|group| bytes_of(group.parse().unwrap()).into()).collect();
        let subscribers = vec![v1::Subscriber { name: A.to_vec().into(), groups }];
        v1::Subscriptions { session, number, asking, subscribers }
    }

    fn groups_at(all: &Subscriptions, node: u32) -> Vec<String> {
        let mut groups = Vec::new();
        all.for_each(&[(NodeId(node), A)], |_, group| groups.push(group.to_string()));
        groups
    }

    #[test]
    fn what_a_switch_says_replaces_what_it_said_and_what_comes_late_does_not() {
        let all = Subscriptions::default();
        assert!(!all.knows(NodeId(1)));
        all.hear(NodeId(1), said(7, 2, false, &["239.0.0.1", "ff05::1", "10.0.0.1"]));
        assert_eq!((groups_at(&all, 1), all.version()), (vec!["239.0.0.1".to_owned(), "ff05::1".to_owned()], 1));
        assert!(groups_at(&all, 2).is_empty() && all.knows(NodeId(1)));
        all.hear(NodeId(1), said(7, 1, false, &["239.0.0.2"]));
        all.hear(NodeId(1), said(7, 2, false, &["239.0.0.2"]));
        all.hear(NodeId(1), said(7, 3, false, &["239.0.0.1", "ff05::1"]));
        assert_eq!((all.version(), all.count()), (1, 2), "nothing of it is news");
        // It starts again: what it said holds until it has asked its hosts.
        all.hear(NodeId(1), said(8, 1, true, &[]));
        assert_eq!((all.version(), all.count()), (1, 2));
        all.hear(NodeId(1), said(8, 2, false, &["239.0.0.9"]));
        assert_eq!((groups_at(&all, 1), all.version()), (vec!["239.0.0.9".to_owned()], 2));
        // One of which nothing is known says what it knows.
        all.hear(NodeId(2), said(8, 1, true, &["239.0.0.3"]));
        assert_eq!((groups_at(&all, 2).len(), all.version()), (1, 3));
    }

    #[test]
    fn what_a_switch_says_is_bounded() {
        let all = Subscriptions::default();
        let subscriber = |i: u32| v1::Subscriber {
            name: [&[2, 0][..], &i.to_be_bytes()].concat().into(),
            groups: (0..100).map(|j: u8| vec![0xff, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, j].into()).collect(),
        };
        let subscribers: Vec<_> = (0..100).map(subscriber).collect();
        all.hear(NodeId(1), v1::Subscriptions { subscribers, ..v1::Subscriptions::default() });
        assert_eq!(all.count(), MOST);
        let single = |i: u32| v1::Subscriber { groups: subscriber(i).groups[..1].to_vec(), ..subscriber(i) };
        let most = v1::Subscriptions {
            session: u64::MAX,
            number: u64::MAX,
            asking: true,
            subscribers: (0..MOST as u32).map(single).collect(),
        };
        assert!(prost::Message::encoded_len(&most) <= MOST_BYTES);
    }
}
