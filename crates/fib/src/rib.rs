//! The routing information base: every name, the port that it is attached to, and its tenant.
//!
//! Cost: about 150 bytes per name (ordered map, digest set, and 60 more for a name with an IP address); O(log n) per
//! operation. Ordered by name, so pages are stable while names come and go.
//!
//! Refuses what no structure behind the seam could serve: a name over the limit, of another kind, or with the digest
//! of another live name (DESIGN: rule 2). Everything is refused before anything changes.

use crate::action::PortId;
use crate::name::{Name, NameKind};
use crate::topology::{End, NodeId};
use lookup::hash::{Digest, Hasher};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::BuildHasherDefault;
use std::net::IpAddr;
use std::ops::Bound;

/// The port that a name is attached to, and its tenant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Attachment {
    /// The switch.
    pub switch: NodeId,
    /// Its port.
    pub port: PortId,
    /// The tenant; switches may hold only some tenants' names.
    pub tenant: u32,
    /// The address that ARP and ND requests for this name ask for.
    pub ip: Option<IpAddr>,
}

impl Attachment {
    /// An attachment of tenant 0 without an IP address.
    pub fn new(switch: NodeId, port: PortId) -> Attachment {
        Attachment { switch, port, tenant: 0, ip: None }
    }

    /// The switch and its port.
    pub fn end(&self) -> End {
        End { node: self.switch, port: self.port }
    }
}

/// A digest is a hash already, so a set of digests need not hash it again.
#[derive(Default)]
struct PassThrough(u64);

impl std::hash::Hasher for PassThrough {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        debug_assert!(false, "only u64 keys pass through");
    }
    fn write_u64(&mut self, digest: u64) {
        self.0 = digest;
    }
}

#[derive(Clone, Copy, Debug)]
struct Record {
    attachment: Attachment,
    digest: Digest,
}

/// All names of the network.
pub struct Rib {
    kind: NameKind,
    max_names: usize,
    hasher: Hasher,
    names: BTreeMap<Name, Record>,
    digests: HashSet<u64, BuildHasherDefault<PassThrough>>,
    ips: HashMap<IpAddr, Name>,
    at: HashMap<End, usize>,
}

impl Rib {
    /// An empty RIB for at most `max_names` names of one kind, distinguished by their digests under `hasher`.
    pub fn new(kind: NameKind, max_names: usize, hasher: Hasher) -> Rib {
        Rib {
            kind,
            max_names,
            hasher,
            names: BTreeMap::new(),
            digests: HashSet::default(),
            ips: HashMap::new(),
            at: HashMap::new(),
        }
    }

    /// The digest of a name, known or not.
    pub fn digest(&self, name: &Name) -> Digest {
        self.hasher.digest(name.as_bytes())
    }

    /// Whether [`Rib::upsert`] would accept the name; nothing changes.
    /// # Errors
    /// [`RibError`].
    pub fn check(&self, name: &Name, attachment: &Attachment) -> Result<Digest, RibError> {
        if name.kind() != self.kind {
            return Err(RibError::WrongKind { got: name.kind(), expected: self.kind });
        }
        if let Some(ip) = attachment.ip
            && let Some(holder) = self.ips.get(&ip)
            && holder != name
        {
            return Err(RibError::IpInUse { ip, holder: holder.clone() });
        }
        if let Some(record) = self.names.get(name) {
            return Ok(record.digest);
        }
        if self.names.len() >= self.max_names {
            return Err(RibError::TooManyNames { got: self.names.len() + 1, max: self.max_names });
        }
        let digest = self.digest(name);
        if self.digests.contains(&digest.0) {
            return Err(RibError::DigestCollision { name: name.clone(), digest });
        }
        Ok(digest)
    }

    /// Inserts a name or moves it; returns its digest and its previous attachment.
    /// # Errors
    /// [`RibError`]; unchanged.
    pub fn upsert(&mut self, name: &Name, attachment: Attachment) -> Result<(Digest, Option<Attachment>), RibError> {
        let digest = self.check(name, &attachment)?;
        let before = self.names.insert(name.clone(), Record { attachment, digest }).map(|record| record.attachment);
        match before {
            Some(before) => self.leave(&before),
            None => _ = self.digests.insert(digest.0),
        }
        if let Some(ip) = attachment.ip {
            self.ips.insert(ip, name.clone());
        }
        *self.at.entry(attachment.end()).or_default() += 1;
        Ok((digest, before))
    }

    /// Removes a name; returns its digest and its attachment.
    pub fn remove(&mut self, name: &Name) -> Option<(Digest, Attachment)> {
        let record = self.names.remove(name)?;
        self.digests.remove(&record.digest.0);
        self.leave(&record.attachment);
        Some((record.digest, record.attachment))
    }

    fn leave(&mut self, before: &Attachment) {
        if let Some(ip) = before.ip {
            self.ips.remove(&ip);
        }
        if let Some(count) = self.at.get_mut(&before.end()) {
            *count -= 1;
            if *count == 0 {
                self.at.remove(&before.end());
            }
        }
    }

    /// The attachment of a name.
    pub fn get(&self, name: &Name) -> Option<&Attachment> {
        self.names.get(name).map(|record| &record.attachment)
    }

    /// The name that has this IP address.
    pub fn by_ip(&self, ip: IpAddr) -> Option<&Name> {
        self.ips.get(&ip)
    }

    /// Names in all.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is no name.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Names at one port.
    pub fn len_at(&self, end: End) -> usize {
        self.at.get(&end).copied().unwrap_or(0)
    }

    /// All names in order, with their digests.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, Digest, &Attachment)> {
        self.names.iter().map(|(name, record)| (name, record.digest, &record.attachment))
    }

    /// Up to `limit` names after the name `after` (from the start when `None`), in order.
    ///
    /// The last name of a page is the cursor of the next. A name that is there throughout appears exactly once,
    /// whatever comes and goes between the pages; the cursor itself may have gone.
    pub fn page(&self, after: Option<&Name>, limit: usize) -> impl Iterator<Item = (&Name, &Attachment)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.names.range((from, Bound::Unbounded)).take(limit).map(|(name, record)| (name, &record.attachment))
    }

    /// Changes the hash key: the remedy for a digest collision.
    /// # Errors
    /// [`RibError::DigestCollision`] under the new key (then try a third); unchanged.
    pub fn rekey(&mut self, hasher: Hasher) -> Result<(), RibError> {
        let mut digests = HashSet::with_capacity_and_hasher(self.names.len(), BuildHasherDefault::default());
        for name in self.names.keys() {
            let digest = hasher.digest(name.as_bytes());
            if !digests.insert(digest.0) {
                return Err(RibError::DigestCollision { name: name.clone(), digest });
            }
        }
        for (name, record) in &mut self.names {
            record.digest = hasher.digest(name.as_bytes());
        }
        self.digests = digests;
        self.hasher = hasher;
        Ok(())
    }
}

/// Why a name was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum RibError {
    /// A table holds names of one kind.
    #[error("a {got} name in a network of {expected} names")]
    WrongKind { got: NameKind, expected: NameKind },
    /// The configured maximum.
    #[error("{got} names would be more than the configured {max}: raise max_names or remove names")]
    TooManyNames { got: usize, max: usize },
    /// Another live name has this digest: behind the seam nothing can distinguish the two.
    #[error("`{name}` has the digest {:#018x} of another name: add it again after a rekey of the network", digest.0)]
    DigestCollision { name: Name, digest: Digest },
    /// One address, two names.
    #[error("{ip} belongs to `{holder}`: give this name another address or remove that one's")]
    IpInUse { ip: IpAddr, holder: Name },
}

#[cfg(test)]
mod tests {
    use super::*;
    use lookup::hash::{Family, SecretKey};
    use proptest::prelude::*;

    fn rib(max: usize) -> Rib {
        Rib::new(NameKind::Teid, max, Hasher::new(Family::MulAdd, &SecretKey::from_seed(1)))
    }
    fn name(i: u32) -> Name {
        Name::from_bytes(NameKind::Teid, &i.to_be_bytes()).unwrap()
    }
    fn at(switch: u32, port: u16) -> Attachment {
        Attachment::new(NodeId(switch), PortId(port))
    }

    #[test]
    fn limits_kinds_and_addresses_are_checked_before_anything_changes() {
        let mut rib = rib(2);
        let address = "10.0.0.1".parse().unwrap();
        let ip = Some(address);
        rib.upsert(&name(1), Attachment { ip, ..at(0, 1) }).unwrap();
        rib.upsert(&name(2), at(0, 1)).unwrap();
        assert_eq!(rib.upsert(&name(3), at(0, 1)), Err(RibError::TooManyNames { got: 3, max: 2 }));
        let clash = rib.upsert(&name(2), Attachment { ip, ..at(0, 1) });
        assert!(matches!(clash, Err(RibError::IpInUse { .. })));
        let mac = Name::parse(NameKind::Mac, "02:00:00:00:00:01").unwrap();
        assert!(matches!(rib.upsert(&mac, at(0, 1)), Err(RibError::WrongKind { .. })));
        assert_eq!((rib.len(), rib.len_at(at(0, 1).end())), (2, 2));
        rib.upsert(&name(1), at(5, 5)).unwrap();
        assert_eq!((rib.by_ip(address), rib.len_at(at(0, 1).end())), (None, 1));
    }

    #[test]
    fn second_name_of_a_digest_is_refused() {
        let mut rib = rib(9);
        rib.upsert(&name(1), at(0, 1)).unwrap();
        // No colliding pair can be computed under a secret key, so the first name's digest is planted for the second.
        rib.digests.insert(rib.digest(&name(2)).0);
        assert!(matches!(rib.upsert(&name(2), at(0, 1)), Err(RibError::DigestCollision { .. })));
        assert_eq!(rib.len(), 1);
        rib.rekey(Hasher::new(Family::MulAdd, &SecretKey::from_seed(2))).unwrap();
        rib.upsert(&name(2), at(0, 1)).unwrap();
    }

    proptest! {
        #[test]
        fn agrees_with_a_map_and_pages_cover_it_once(
            operations in proptest::collection::vec((0u32..40, 0u32..3, 0u16..3, any::<bool>()), 0..200),
            limit in 1usize..7,
        ) {
            let mut rib = rib(30);
            let mut oracle = std::collections::BTreeMap::new();
            for (i, switch, port, put) in operations {
                if put {
                    let result = rib.upsert(&name(i), at(switch, port));
                    if oracle.len() == 30 && !oracle.contains_key(&i) {
                        prop_assert!(result.is_err());
                    } else {
                        prop_assert_eq!(result.unwrap().1, oracle.insert(i, at(switch, port)));
                    }
                } else {
                    prop_assert_eq!(rib.remove(&name(i)).map(|r| r.1), oracle.remove(&i));
                }
            }
            prop_assert_eq!(rib.len(), oracle.len());
            let mut pages = Vec::new();
            let mut cursor: Option<Name> = None;
            loop {
                let page: Vec<_> = rib.page(cursor.as_ref(), limit).map(|(n, a)| (n.clone(), *a)).collect();
                let Some((last, _)) = page.last() else { break };
                cursor = Some(last.clone());
                pages.extend(page);
            }
            let expected: Vec<_> = oracle.iter().map(|(i, a)| (name(*i), *a)).collect();
            prop_assert_eq!(pages, expected);
            for switch in 0..3 {
                for port in 0..3 {
                    let here = at(switch, port);
                    prop_assert_eq!(rib.len_at(here.end()), oracle.values().filter(|a| **a == here).count());
                }
            }
        }
    }
}
