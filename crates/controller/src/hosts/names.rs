//! Names that switches found: which of all names are learnt, and since when they have been at their place.
//!
//! Otherwise they are like declared names. A learnt name that an operator declares belongs to the operator from then on.
//!
//! A learnt name may have more addresses than the one in its record ([`Learnt::more_of`]): a host has one of each family, and addresses of
//! services. Switches are told of them separately from the tables ([`crate::core::groups`]).

use fib::durable::RowChange;
use fib::name::{Name, NameKind};
use fib::network::Network;
use fib::topology::{End, NodeId};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::ops::Bound;

/// The kind of the store's rows that say that a name is learnt: key = its bytes, value = since when, in milliseconds since
/// 1970 (u64), little-endian; then, for each further address, its length (4 or 16) and its bytes.
pub const LEARNT_ROW: u8 = 0xF1;

/// The names that are learnt, and how many each port has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Learnt {
    names: BTreeMap<Name, (u64, End)>,
    at: HashMap<End, u32>,
    of: HashMap<NodeId, u32>,
    /// The further addresses of names, the latest last, and the name that has each.
    more: BTreeMap<Name, Vec<IpAddr>>,
    holders: BTreeMap<IpAddr, Name>,
}

/// The most further addresses of a name, and of all names.
pub(crate) const MAX_MORE_OF_NAME: usize = 8;
pub(crate) const MAX_MORE: usize = 4096;

impl Learnt {
    /// Adds the name in a row of the store. Skips a name that the network does not have and a damaged row: such a name
    /// counts as declared.
    pub(crate) fn restore(&mut self, network: &Network, key: &[u8], value: &[u8]) {
        let known = || {
            let name = Name::from_bytes(network.settings().kind, key).ok()?;
            let end = network.rib().get(&name)?.end();
            let (since_ms, rest) = value.split_first_chunk::<8>()?;
            Some((name, u64::from_le_bytes(*since_ms), end, addresses(rest)?))
        };
        if let Some((name, since_ms, end, more)) = known() {
            self.put(name.clone(), since_ms, end);
            self.put_more(&name, more);
        }
    }

    /// Gives a name exactly these further addresses, and takes them away from other names.
    fn put_more(&mut self, name: &Name, more: Vec<IpAddr>) {
        for ip in self.more.remove(name).into_iter().flatten() {
            self.holders.remove(&ip);
        }
        for ip in &more {
            if let Some(before) = self.holders.insert(*ip, name.clone())
                && let Some(of_other) = self.more.get_mut(&before)
            {
                of_other.retain(|other| other != ip);
            }
        }
        if !more.is_empty() {
            self.more.insert(name.clone(), more);
        }
    }

    /// Gives a learnt name exactly these further addresses; returns the row to commit, if they changed.
    pub(crate) fn set_more(&mut self, name: &Name, more: Vec<IpAddr>) -> Option<RowChange> {
        let (since_ms, _) = *self.names.get(name)?;
        if self.more_of(name) == more {
            return None;
        }
        self.put_more(name, more);
        Some(self.row(name, since_ms))
    }

    /// The further addresses of a name, the latest last.
    pub fn more_of(&self, name: &Name) -> &[IpAddr] {
        self.more.get(name).map_or(&[], Vec::as_slice)
    }

    /// The name that has a further address.
    pub fn holder(&self, ip: IpAddr) -> Option<&Name> {
        self.holders.get(&ip)
    }

    /// All further addresses, and the name that has each.
    pub fn holders(&self) -> &BTreeMap<IpAddr, Name> {
        &self.holders
    }

    fn row(&self, name: &Name, since_ms: u64) -> RowChange {
        row(name.as_bytes(), Some(value(since_ms, self.more_of(name))))
    }

    fn put(&mut self, name: Name, since_ms: u64, end: End) {
        *self.at.entry(end).or_default() += 1;
        *self.of.entry(end.node).or_default() += 1;
        if let Some((_, before)) = self.names.insert(name, (since_ms, end)) {
            self.leave(before);
        }
    }

    fn leave(&mut self, end: End) {
        if let Some(n) = self.of.get_mut(&end.node) {
            *n -= 1;
            if *n == 0 {
                self.of.remove(&end.node);
            }
        }
        if let Some(n) = self.at.get_mut(&end) {
            *n -= 1;
            if *n == 0 {
                self.at.remove(&end);
            }
        }
    }

    /// Notes that a name is learnt at a port, or moved there, or has another address now; returns the row to commit, if there is one.
    pub(crate) fn insert(&mut self, name: &Name, now_ms: u64, end: End) -> Option<RowChange> {
        let before = self.names.get(name).copied();
        let since_ms = before.filter(|(_, at)| *at == end).map_or(now_ms, |(since_ms, _)| since_ms);
        self.put(name.clone(), since_ms, end);
        before.is_none_or(|(before_ms, _)| before_ms != since_ms).then(|| self.row(name, since_ms))
    }

    /// Notes that a name is gone, or declared; returns the row to commit, if it was learnt.
    pub(crate) fn remove(&mut self, name: &Name) -> Option<RowChange> {
        let (_, end) = self.names.remove(name)?;
        self.leave(end);
        self.put_more(name, Vec::new());
        Some(row(name.as_bytes(), None))
    }

    /// Since when the name has been learnt at its place, in milliseconds since 1970; none if it is not learnt.
    pub fn since_ms(&self, name: &Name) -> Option<u64> {
        self.names.get(name).map(|(since_ms, _)| *since_ms)
    }

    /// The number of names learnt at a port.
    pub fn count(&self, end: End) -> u32 {
        self.at.get(&end).copied().unwrap_or(0)
    }

    /// All learnt names, and the place of each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Name, End)> {
        self.names.iter().map(|(name, (_, end))| (name, *end))
    }

    /// The learnt names at a port. O(all learnt names).
    pub fn at(&self, end: End) -> impl Iterator<Item = &Name> {
        self.names.iter().filter(move |(_, (_, at))| *at == end).map(|(name, _)| name)
    }

    /// The latest learnt name of each port that has any, and when it came. O(all learnt names).
    pub(crate) fn latest(&self) -> HashMap<End, (u64, &Name)> {
        let mut latest: HashMap<End, (u64, &Name)> = HashMap::with_capacity(self.at.len());
        for (name, (since_ms, end)) in &self.names {
            let one = latest.entry(*end).or_insert((*since_ms, name));
            *one = (*one).max((*since_ms, name));
        }
        latest
    }

    /// The number of names learnt at all ports of a switch.
    pub fn count_at(&self, node: NodeId) -> u32 {
        self.of.get(&node).copied().unwrap_or(0)
    }

    /// The number of learnt names.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether no name is learnt.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The learnt names after a name, in order.
    pub fn after(&self, name: Option<&Name>) -> impl Iterator<Item = &Name> {
        let after = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.names.range::<Name, _>((after, Bound::Unbounded)).map(|(name, _)| name)
    }

    /// The rows of all learnt names.
    #[cfg(any(test, feature = "kit"))]
    pub(crate) fn rows(&self) -> impl Iterator<Item = RowChange> {
        self.names.iter().map(|(name, (since_ms, _))| self.row(name, *since_ms))
    }
}

/// The value of a row.
fn value(since_ms: u64, more: &[IpAddr]) -> Vec<u8> {
    let mut bytes = since_ms.to_le_bytes().to_vec();
    for ip in more {
        match ip {
            IpAddr::V4(ip) => bytes.extend([&[4][..], &ip.octets()].concat()),
            IpAddr::V6(ip) => bytes.extend([&[16][..], &ip.octets()].concat()),
        }
    }
    bytes
}

/// The addresses in a row.
fn addresses(mut bytes: &[u8]) -> Option<Vec<IpAddr>> {
    let mut all = Vec::new();
    while let Some((len, rest)) = bytes.split_first() {
        let (ip, rest) = match len {
            4 => rest.split_first_chunk::<4>().map(|(ip, rest)| (IpAddr::from(*ip), rest))?,
            16 => rest.split_first_chunk::<16>().map(|(ip, rest)| (IpAddr::from(*ip), rest))?,
            _ => return None,
        };
        all.push(ip);
        bytes = rest;
    }
    Some(all)
}

fn row(key: &[u8], value: Option<Vec<u8>>) -> RowChange {
    RowChange { kind: LEARNT_ROW, key: key.to_vec(), value }
}

/// A learnt name's row, for people.
pub(crate) fn describe(kind: NameKind, key: &[u8]) -> Option<String> {
    Name::from_bytes(kind, key).ok().map(|name| format!("that the name {name} is learnt"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::action::PortId;

    #[test]
    fn a_name_is_where_it_is_since_it_came_there() {
        let name = Name::from_bytes(NameKind::Mac, &[2, 0, 0, 0, 0, 1]).unwrap();
        let end = |port| End { node: NodeId(1), port: PortId(port) };
        let mut learnt = Learnt::default();
        let since =
            |row: Option<RowChange>| row.map(|row| u64::from_le_bytes(*row.value.unwrap().first_chunk().unwrap()));
        assert_eq!(since(learnt.insert(&name, 1000, end(1))), Some(1000));
        assert_eq!(since(learnt.insert(&name, 2000, end(1))), None, "another address, and nothing to store");
        assert_eq!(learnt.since_ms(&name), Some(1000));
        assert_eq!(since(learnt.insert(&name, 3000, end(2))), Some(3000), "it moved, which a restart keeps");
        assert_eq!((learnt.since_ms(&name), learnt.count(end(1)), learnt.count(end(2))), (Some(3000), 0, 1));
        let other = Name::from_bytes(NameKind::Mac, &[2, 0, 0, 0, 0, 2]).unwrap();
        learnt.insert(&other, 2500, end(2));
        assert_eq!(learnt.latest(), HashMap::from([(end(2), (3000, &name))]));
        assert!(learnt.remove(&name).is_some_and(|row| row.value.is_none()) && learnt.since_ms(&name).is_none());
    }
}
