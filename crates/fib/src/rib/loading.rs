//! A RIB that is filled all at once, as from a store: its indexes are made at the end, each in the order of its hashes.
//!
//! A name that is added alone is searched for first, and a search for what is absent compares it with several names at
//! random places of memory. In the order of hashes, places are written one after the other, and twins are neighbours.
//! Cost: 16 bytes for each of a quarter of the names besides the RIB, and a digest of each name four times.

use super::{Attachment, Rib, RibError, ip_hash};
use crate::hash_index::HashIndex;
use crate::name::{Name, NameKind};
use lookup::hash::Hasher;

/// Number of parts in which names are sorted, by the first two bits of their hashes.
const PARTS: u64 = 4;

/// See the module.
pub(crate) struct Loading(Rib);

impl Loading {
    /// As [`Rib::new`].
    pub(crate) fn new(kind: NameKind, max_names: usize, hasher: Hasher) -> Loading {
        Loading(Rib::new(kind, max_names, hasher))
    }

    /// Adds a name. Fastest if it is after the others.
    /// # Errors
    /// [`RibError`]: a name of another kind, or one too many.
    pub(crate) fn add(&mut self, name: &Name, attachment: &Attachment) -> Result<(), RibError> {
        let Loading(rib) = self;
        if name.kind() != rib.kind {
            return Err(RibError::WrongKind { got: name.kind(), expected: rib.kind });
        }
        if rib.entries.len() >= rib.max_names {
            return Err(RibError::TooManyNames { got: rib.entries.len() + 1, max: rib.max_names });
        }
        let number = rib.entries.insert(name, attachment);
        rib.order.insert(&rib.entries, name, number);
        *rib.at.entry(attachment.end()).or_default() += 1;
        Ok(())
    }

    /// The RIB.
    /// # Errors
    /// [`RibError`]: two names with one digest or one address.
    pub(crate) fn finish(self) -> Result<Rib, RibError> {
        let Loading(mut rib) = self;
        let n = rib.entries.len() as u32;
        let digest = |number| Some(rib.digest_of(rib.entries.bytes(number)).0);
        rib.digests = index(n, n as usize, digest, |_, _| true).map_err(|(_, second)| RibError::DigestCollision {
            name: rib.entries.name(second),
            tenant: rib.entries.attachment(second).tenant,
            digest: rib.digest_of(rib.entries.bytes(second)),
        })?;
        let entries = &rib.entries;
        let n_ips = (0..n).filter(|number| entries.ip(*number).is_some()).count();
        if n_ips > 0 {
            let hash = ip_hash(&rib.ip_hasher, entries);
            let hash = |number| entries.ip(number).map(|_| hash(number));
            let ips = index(n, n_ips, hash, |a, b| entries.ip(a) == entries.ip(b));
            rib.ips = ips.map_err(|(first, second)| match entries.ip(second) {
                Some(ip) => RibError::IpInUse { ip, holder: entries.name(first) },
                None => unreachable!("it has an address"),
            })?;
        }
        Ok(rib)
    }
}

/// An index of those of `n` numbers that have a hash, `n_hashed` in all; or two of one hash that are the same.
fn index(
    n: u32,
    n_hashed: usize,
    hash: impl Fn(u32) -> Option<u64>,
    are_same: impl Fn(u32, u32) -> bool,
) -> Result<HashIndex, (u32, u32)> {
    let mut index = HashIndex::with_capacity(n_hashed);
    let mut part = Vec::new();
    for i in 0..PARTS {
        part.clear();
        let hashed = (0..n).filter_map(|number| Some((hash(number)?, number)));
        part.extend(hashed.filter(|(hash, _)| hash >> (u64::BITS - PARTS.ilog2()) == i));
        part.sort_unstable();
        for (at, &(hash, number)) in part.iter().enumerate() {
            let twins = part[..at].iter().rev().take_while(|(other, _)| *other == hash);
            if let Some((_, twin)) = twins.into_iter().find(|(_, twin)| are_same(*twin, number)) {
                return Err((*twin, number));
            }
            index.insert_next(hash, number);
        }
    }
    Ok(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::PortId;
    use crate::topology::NodeId;
    use lookup::hash::{Family, Rng, SecretKey};
    use lookup::testkit;
    use std::net::IpAddr;

    #[test]
    fn loaded_names_are_those_that_were_added_one_by_one() {
        let mut rng = Rng::new(testkit::seed());
        let hasher = || Hasher::new(Family::Wy, &SecretKey::from_seed(1));
        for (n, in_order) in [(0, true), (1, true), (700, false), (20_000, true), (20_000, false)] {
            let mut keys: Vec<u32> = (0..n).map(|i| i * 3).collect();
            if !in_order {
                (1..keys.len()).for_each(|i| keys.swap(i, rng.below(i as u64 + 1) as usize));
            }
            let mut loading = Loading::new(NameKind::Text, n as usize, hasher());
            let mut rib = Rib::new(NameKind::Text, n as usize, hasher());
            for &key in &keys {
                let name = Name::parse(NameKind::Text, &format!("/name/{key:08}")).unwrap();
                let ip = (key % 2 == 0).then(|| IpAddr::from(key.to_be_bytes()));
                let attachment = Attachment { ip, ..Attachment::new(NodeId(key % 5), PortId(1)) };
                loading.add(&name, &attachment).unwrap();
                rib.upsert(&name, attachment).unwrap();
            }
            let one_more = Name::parse(NameKind::Text, "/one/more").unwrap();
            let place = Attachment::new(NodeId(0), PortId(1));
            assert!(matches!(loading.add(&one_more, &place), Err(RibError::TooManyNames { .. })));
            let mut loaded = loading.finish().unwrap();
            assert!(loaded.iter().eq(rib.iter()) && loaded.len() == n as usize);
            for node in 0..5 {
                let end = Attachment::new(NodeId(node), PortId(1)).end();
                assert_eq!(loaded.len_at(end), rib.len_at(end));
            }
            let all: Vec<_> = rib.iter().collect();
            for (name, _, attachment) in &all {
                assert_eq!(loaded.get(name), Some(*attachment));
                assert!(attachment.ip.is_none_or(|ip| loaded.by_ip(ip).as_ref() == Some(name)));
            }
            // It changes like any other.
            for (name, digest, attachment) in all {
                assert_eq!(loaded.remove(&name), Some((digest, attachment)));
            }
            assert!(loaded.is_empty());
        }
    }

    #[test]
    fn two_names_of_one_address_are_refused() {
        let mut loading = Loading::new(NameKind::Teid, 9, Hasher::new(Family::Wy, &SecretKey::from_seed(1)));
        let ip = Some(IpAddr::from([10, 0, 0, 1]));
        for i in 0..2_u32 {
            let name = Name::from_bytes(NameKind::Teid, &i.to_be_bytes()).unwrap();
            loading.add(&name, &Attachment { ip, ..Attachment::new(NodeId(1), PortId(1)) }).unwrap();
        }
        assert!(matches!(loading.finish(), Err(RibError::IpInUse { .. })));
    }

    #[test]
    fn one_name_twice_is_refused() {
        let mut loading = Loading::new(NameKind::Teid, 9, Hasher::new(Family::Wy, &SecretKey::from_seed(1)));
        let name = Name::from_bytes(NameKind::Teid, &[7; 4]).unwrap();
        for _ in 0..2 {
            loading.add(&name, &Attachment::new(NodeId(1), PortId(1))).unwrap();
        }
        assert!(matches!(loading.finish(), Err(RibError::DigestCollision { .. })));
    }
}
