//! The routing information base: every name, the port that it is attached to, and its tenant.
//!
//! ```text
//!  entries   number:           name and attachment, once
//!  digests   digest:           number
//!  ips       IP address:       number
//!  order     in name order:    number
//!  watched   tenant:           numbers         of tenants that a caller asks for
//! ```
//! Cost: 15 bytes and the name itself, 9 to 15 bytes for digest and order, and up to 6.3 for an IP address: 30 to 40
//! bytes for a MAC address. A name that is found costs one digest. A name that comes or goes costs O(log n). Ordered by
//! name, so pages are stable while names come and go.
//!
//! Refuses what no structure behind the seam could serve: a name over the limit, of another kind, or with the digest
//! of another live name (DESIGN: rule 2). Everything is refused before anything changes.

use crate::action::PortId;
use crate::name::{Name, NameKind};
use crate::topology::{End, NodeId};
mod entries;
mod loading;
mod order;
mod watched;

use crate::hash_index::HashIndex;
use entries::Entries;
pub(crate) use loading::Loading;
use lookup::hash::{Digest, Hasher};
use order::Order;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use watched::Watched;

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

/// All names of the network.
pub struct Rib {
    kind: NameKind,
    max_names: usize,
    hasher: Hasher,
    entries: Entries,
    digests: HashIndex,
    ips: HashIndex,
    ip_hasher: RandomState,
    order: Order,
    at: HashMap<End, usize>,
    /// Behind a lock, because a reader may start it; a change needs no lock.
    watched: Mutex<Watched>,
    /// The second name has the digest of the first.
    #[cfg(test)]
    twins: Option<[Name; 2]>,
}

impl Rib {
    /// An empty RIB for at most `max_names` names of one kind, distinguished by their digests under `hasher`.
    pub fn new(kind: NameKind, max_names: usize, hasher: Hasher) -> Rib {
        Rib {
            kind,
            // Names are numbered by 32 bits.
            max_names: max_names.min(u32::MAX as usize - 1),
            hasher,
            entries: Entries::new(kind),
            digests: HashIndex::default(),
            ips: HashIndex::default(),
            ip_hasher: RandomState::new(),
            order: Order::default(),
            at: HashMap::new(),
            watched: Mutex::default(),
            #[cfg(test)]
            twins: None,
        }
    }

    /// The digest of a name, known or not.
    pub fn digest(&self, name: &Name) -> Digest {
        self.digest_of(name.as_bytes())
    }

    fn digest_of(&self, name: &[u8]) -> Digest {
        #[cfg(test)]
        if let Some([first, second]) = &self.twins
            && second.as_bytes() == name
        {
            return self.hasher.digest(first.as_bytes());
        }
        self.hasher.digest(name)
    }

    /// The number of the name with this digest.
    fn by_digest(&self, digest: Digest) -> Option<u32> {
        self.digests.find(digest.0, |number| self.digest_of(self.entries.bytes(number)) == digest)
    }

    fn number_of(&self, name: &Name) -> Option<u32> {
        let known = self.by_digest(self.digest(name)).filter(|_| name.kind() == self.kind)?;
        (self.entries.bytes(known) == name.as_bytes()).then_some(known)
    }

    /// The number of the name that has this IP address.
    fn number_at(&self, ip: IpAddr) -> Option<u32> {
        self.ips.find(self.ip_hasher.hash_one(ip), |number| self.entries.ip(number) == Some(ip))
    }

    /// Whether [`Rib::upsert`] would accept the name; nothing changes.
    /// # Errors
    /// [`RibError`].
    pub fn check(&self, name: &Name, attachment: &Attachment) -> Result<Digest, RibError> {
        self.check_number(name, attachment).map(|(digest, _)| digest)
    }

    /// As [`Rib::check`], where there is room for the name, and some names are to give their addresses up before.
    /// # Errors
    /// As [`Rib::check`].
    pub(crate) fn check_among(
        &self,
        name: &Name,
        attachment: &Attachment,
        gives_up: impl Fn(&Name) -> bool,
    ) -> Result<Digest, RibError> {
        self.check_with_number(name, attachment, usize::MAX, gives_up).map(|(digest, _)| digest)
    }

    /// The name's digest, and its number if it is known.
    fn check_number(&self, name: &Name, attachment: &Attachment) -> Result<(Digest, Option<u32>), RibError> {
        self.check_with_number(name, attachment, self.max_names, |_| false)
    }

    fn check_with_number(
        &self,
        name: &Name,
        attachment: &Attachment,
        max_names: usize,
        gives_up: impl Fn(&Name) -> bool,
    ) -> Result<(Digest, Option<u32>), RibError> {
        if name.kind() != self.kind {
            return Err(RibError::WrongKind { got: name.kind(), expected: self.kind });
        }
        if let Some(ip) = attachment.ip
            && let Some(holder) = self.by_ip(ip).filter(|holder| holder != name && !gives_up(holder))
        {
            return Err(RibError::IpInUse { ip, holder });
        }
        let digest = self.digest(name);
        let known = self.by_digest(digest);
        let number = known.filter(|known| self.entries.bytes(*known) == name.as_bytes());
        if number.is_none() && self.len() >= max_names {
            return Err(RibError::TooManyNames { got: self.len() + 1, max: max_names });
        }
        if known != number {
            return Err(RibError::DigestCollision { name: name.clone(), tenant: attachment.tenant, digest });
        }
        Ok((digest, number))
    }

    /// Inserts a name or moves it; returns its digest and its previous attachment.
    /// # Errors
    /// [`RibError`]; unchanged.
    pub fn upsert(&mut self, name: &Name, attachment: Attachment) -> Result<(Digest, Option<Attachment>), RibError> {
        let (digest, known) = self.check_number(name, &attachment)?;
        let before = known.map(|number| self.entries.attachment(number));
        let number = match known {
            Some(number) => {
                self.leave(number);
                self.entries.set(number, &attachment);
                number
            }
            None => {
                let number = self.entries.insert(name, &attachment);
                let mut digests = std::mem::take(&mut self.digests);
                digests.insert(digest.0, number, |number| self.digest_of(self.entries.bytes(number)).0);
                self.digests = digests;
                self.order.insert(&self.entries, name, number);
                number
            }
        };
        if let Some(ip) = attachment.ip {
            self.ips.insert(self.ip_hasher.hash_one(ip), number, ip_hash(&self.ip_hasher, &self.entries));
        }
        *self.at.entry(attachment.end()).or_default() += 1;
        self.watched_mut().enter(attachment.tenant, number);
        Ok((digest, before))
    }

    /// Removes a name; returns its digest and its attachment.
    pub fn remove(&mut self, name: &Name) -> Option<(Digest, Attachment)> {
        let number = self.number_of(name)?;
        let (digest, attachment) = (self.digest(name), self.entries.attachment(number));
        self.leave(number);
        self.order.remove(&self.entries, name);
        let mut digests = std::mem::take(&mut self.digests);
        digests.remove(digest.0, number, |number| self.digest_of(self.entries.bytes(number)).0);
        self.digests = digests;
        self.entries.remove(number);
        Some((digest, attachment))
    }

    /// Before the name has another attachment, or none.
    fn leave(&mut self, number: u32) {
        let before = self.entries.attachment(number);
        self.watched_mut().leave(before.tenant, number);
        if let Some(ip) = before.ip {
            self.ips.remove(self.ip_hasher.hash_one(ip), number, ip_hash(&self.ip_hasher, &self.entries));
        }
        if let Some(count) = self.at.get_mut(&before.end()) {
            *count -= 1;
            if *count == 0 {
                self.at.remove(&before.end());
            }
        }
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watched_mut(&mut self) -> &mut Watched {
        self.watched.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the names of these tenants apart from now on, and of no others. Returns a number for each, which changes with its names.
    /// O(tenants); O(names) if they are others than before.
    pub fn watch(&self, tenants: &BTreeSet<u32>) -> BTreeMap<u32, u64> {
        let mut watched = self.watched();
        let tenant = |number| (self.entries.attachment(number).tenant, number);
        watched.begin(tenants, self.order.after(&self.entries, None).map(tenant));
        watched.versions()
    }

    /// How many names a tenant has that is [watched](Rib::watch); 0 of one that is not.
    pub fn len_of(&self, tenant: u32) -> usize {
        self.watched().numbers(tenant).map_or(0, BTreeSet::len)
    }

    /// The names of a tenant, in order, if there are no more than `most`. O(these). Nothing is known of one that is not
    /// [watched](Rib::watch): that of another RIB in the place of this one is not.
    /// # Errors
    /// Their number.
    pub fn names_of(&self, tenant: u32, most: usize) -> Option<Result<Vec<(Name, Attachment)>, usize>> {
        let watched = self.watched();
        let numbers = watched.numbers(tenant)?;
        if numbers.len() > most {
            return Some(Err(numbers.len()));
        }
        let entry = |number: &u32| (self.entries.name(*number), self.entries.attachment(*number));
        let mut names: Vec<_> = numbers.iter().map(entry).collect();
        names.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Some(Ok(names))
    }

    /// The attachment of a name.
    pub fn get(&self, name: &Name) -> Option<Attachment> {
        self.number_of(name).map(|number| self.entries.attachment(number))
    }

    /// The name that has this IP address.
    pub fn by_ip(&self, ip: IpAddr) -> Option<Name> {
        self.number_at(ip).map(|number| self.entries.name(number))
    }

    /// Names in all.
    pub fn len(&self) -> usize {
        self.digests.len()
    }

    /// Whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Names at one port.
    pub fn len_at(&self, end: End) -> usize {
        self.at.get(&end).copied().unwrap_or(0)
    }

    /// All names in order, with their digests.
    pub fn iter(&self) -> impl Iterator<Item = (Name, Digest, Attachment)> {
        let entry = |number| {
            let digest = self.digest_of(self.entries.bytes(number));
            (self.entries.name(number), digest, self.entries.attachment(number))
        };
        self.order.after(&self.entries, None).map(entry)
    }

    /// How many names of each tenant have digests whose first 32 bits are in `span`. O(names there).
    pub(crate) fn tenants_in(&self, span: Range<u64>) -> BTreeMap<u32, usize> {
        let mut n_names = BTreeMap::new();
        for number in self.digests.near(span.start << 32, ((span.end - 1) << 32) | u64::from(u32::MAX)) {
            if span.contains(&(self.digest_of(self.entries.bytes(number)).0 >> 32)) {
                *n_names.entry(self.entries.attachment(number).tenant).or_default() += 1;
            }
        }
        n_names
    }

    /// Up to `limit` names after the name `after` (from the start when `None`), in order.
    ///
    /// The last name of a page is the cursor of the next. A name that is there throughout appears exactly once,
    /// whatever comes and goes between the pages; the cursor itself may have gone.
    pub fn page(&self, after: Option<&Name>, limit: usize) -> impl Iterator<Item = (Name, Attachment)> {
        let numbers = self.order.after(&self.entries, after).take(limit);
        numbers.map(|number| (self.entries.name(number), self.entries.attachment(number)))
    }

    /// Those names of a [page](Rib::page) whose attachment is wanted, and the last name of the page; none of an empty one.
    pub fn page_where(
        &self,
        after: Option<&Name>,
        limit: usize,
        is_wanted: impl Fn(&Attachment) -> bool,
    ) -> (Vec<(Name, Attachment)>, Option<Name>) {
        let mut last = None;
        let page = self.page(after, limit).inspect(|(name, _)| last = Some(name.clone()));
        let wanted = page.filter(|(_, attachment)| is_wanted(attachment)).collect();
        (wanted, last)
    }

    /// As [`Rib::iter`] after a name, with the numbers of the names and without their digests.
    pub(crate) fn numbered(&self, after: Option<&Name>) -> impl Iterator<Item = (u32, Name, Attachment)> {
        let numbers = self.order.after(&self.entries, after);
        numbers.map(|number| (number, self.entries.name(number), self.entries.attachment(number)))
    }

    /// Adds a name to an index under another key, if the name is there now. It must not be in the index.
    /// # Errors
    /// [`RibError::DigestCollision`].
    pub(crate) fn rehash(&self, rehashed: &mut Rehashed, name: &Name) -> Result<(), RibError> {
        let Some(number) = self.number_of(name) else { return Ok(()) };
        rehashed.insert(number, name, self.entries.attachment(number).tenant)
    }

    /// Changes the hash key: the remedy for a digest collision. The index must have all names.
    pub(crate) fn rekey(&mut self, rehashed: Rehashed) {
        debug_assert_eq!(rehashed.index.len(), self.len(), "the index has all names");
        (self.digests, self.hasher) = (rehashed.index, rehashed.hasher);
        #[cfg(test)]
        {
            self.twins = None;
        }
    }

    /// Bytes of heap memory.
    pub fn heap_bytes(&self) -> usize {
        let indices =
            self.digests.heap_bytes() + self.ips.heap_bytes() + self.order.heap_bytes() + self.watched().heap_bytes();
        // A map of the standard library has a byte for each place besides the entry.
        self.entries.heap_bytes() + indices + self.at.capacity() * 8 / 7 * (size_of::<(End, usize)>() + 1)
    }
}

/// The index of digests under another key, made beside the RIB.
pub(crate) struct Rehashed {
    hasher: Hasher,
    index: HashIndex,
    /// By number.
    digests: Vec<u64>,
}

impl Rehashed {
    /// An index of names with their numbers and tenants.
    /// # Errors
    /// [`RibError::DigestCollision`].
    pub(crate) fn new<'n>(
        hasher: Hasher,
        names: impl ExactSizeIterator<Item = (u32, &'n Name, u32)>,
    ) -> Result<Rehashed, RibError> {
        let index = HashIndex::with_capacity(names.len());
        let mut rehashed = Rehashed { hasher, index, digests: Vec::with_capacity(names.len()) };
        for (number, name, tenant) in names {
            rehashed.insert(number, name, tenant)?;
        }
        Ok(rehashed)
    }

    fn insert(&mut self, number: u32, name: &Name, tenant: u32) -> Result<(), RibError> {
        let digest = self.hasher.digest(name.as_bytes());
        let digests = &mut self.digests;
        if self.index.find(digest.0, |other| digests[other as usize] == digest.0).is_some() {
            return Err(RibError::DigestCollision { name: name.clone(), tenant, digest });
        }
        if digests.len() <= number as usize {
            digests.resize(number as usize + 1, 0);
        }
        digests[number as usize] = digest.0;
        self.index.insert(digest.0, number, |other| digests[other as usize]);
        Ok(())
    }

    /// Removes a name that is in the index under this number.
    pub(crate) fn remove(&mut self, name: &Name, number: u32) {
        let digest = self.hasher.digest(name.as_bytes());
        self.index.remove(digest.0, number, |other| self.digests[other as usize]);
    }

    /// The digest of the name with this number.
    pub(crate) fn digest(&self, number: u32) -> u64 {
        self.digests[number as usize]
    }
}

/// The hash of the address of a name that has one.
fn ip_hash<'a>(hasher: &'a RandomState, entries: &'a Entries) -> impl Fn(u32) -> u64 + 'a {
    |number| entries.ip(number).map_or(0, |ip| hasher.hash_one(ip))
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
    #[error(
        "`{name}` of tenant {tenant} has the digest {:#018x} of another name, which happens by accident once in 2^64 \
         pairs: `fibula rekey` chooses another hash key, then add it again", digest.0
    )]
    DigestCollision { name: Name, tenant: u32, digest: Digest },
    /// One address, two names.
    #[error("{ip} belongs to `{holder}`: give this name another address or remove that one's")]
    IpInUse { ip: IpAddr, holder: Name },
}

#[cfg(test)]
mod tests {
    use super::*;
    use lookup::hash::{Family, Rng, SecretKey};
    use lookup::testkit;
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
        // No colliding pair can be computed under a secret key, so the second name is given the first one's digest.
        rib.twins = Some([name(1), name(2)]);
        assert!(matches!(rib.upsert(&name(2), at(0, 1)), Err(RibError::DigestCollision { .. })));
        assert_eq!(rib.len(), 1);
        let hasher = Hasher::new(Family::MulAdd, &SecretKey::from_seed(2));
        let names: Vec<_> = rib.numbered(None).collect();
        let rehashed = Rehashed::new(hasher, names.iter().map(|(number, name, at)| (*number, name, at.tenant)));
        rib.rekey(rehashed.unwrap());
        rib.upsert(&name(2), at(0, 1)).unwrap();
    }

    #[test]
    fn names_stay_in_order_in_whatever_order_they_come_and_go() {
        let mut rng = Rng::new(testkit::seed());
        let mut rib = Rib::new(NameKind::Text, 100_000, Hasher::new(Family::Wy, &SecretKey::from_seed(1)));
        let text = |i: u64| Name::parse(NameKind::Text, &format!("/name/{i}")).unwrap();
        let mut oracle = std::collections::BTreeMap::new();
        for round in 0..6 {
            for i in 0..3_000 {
                let i = [i, 3_000 - i, rng.below(5_000)][round % 3];
                let ip = i.is_multiple_of(2).then(|| {
                    if i.is_multiple_of(4) {
                        IpAddr::from([10, 0, (i >> 8) as u8, i as u8])
                    } else {
                        IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, i as u16])
                    }
                });
                let attachment = Attachment { ip, ..at(round as u32, 1) };
                assert_eq!(rib.upsert(&text(i), attachment).unwrap().1, oracle.insert(text(i), attachment));
            }
            for _ in 0..2_500 * (round % 2) {
                let name = text(rng.below(5_000));
                assert_eq!(rib.remove(&name).map(|(_, at)| at), oracle.remove(&name));
            }
            let all: Vec<_> = rib.iter().map(|(name, _, attachment)| (name, attachment)).collect();
            assert!(all.iter().map(|(name, at)| (name, at)).eq(&oracle));
            let after = text(rng.below(5_000));
            let rest = oracle.range((std::ops::Bound::Excluded(&after), std::ops::Bound::Unbounded));
            assert!(rib.page(Some(&after), 9).eq(rest.take(9).map(|(name, at)| (name.clone(), *at))));
            assert!(oracle.iter().all(|(name, at)| at.ip.is_none_or(|ip| rib.by_ip(ip).as_ref() == Some(name))));
        }
    }

    #[test]
    fn names_of_watched_tenants_are_those_that_a_pass_over_all_finds() {
        let mut rng = Rng::new(testkit::seed());
        let mut rib = rib(500);
        let (tenants, others) = (BTreeSet::from([1, 2]), BTreeSet::from([0, 2, 3]));
        let mut watched = &tenants;
        let mut before = rib.watch(watched);
        let pass =
            |rib: &Rib, tenant| rib.page(None, usize::MAX).filter(|(_, at)| at.tenant == tenant).collect::<Vec<_>>();
        let mut found = [1, 2].map(|tenant| (tenant, pass(&rib, tenant))).into_iter().collect::<BTreeMap<_, _>>();
        for i in 0..3_000 {
            let name = name(rng.below(60) as u32);
            if rng.below(4) == 0 {
                rib.remove(&name);
            } else {
                let tenant = rng.below(4) as u32;
                rib.upsert(&name, Attachment { tenant, ..at(rng.below(3) as u32, 1) }).unwrap();
            }
            if i == 1_500 {
                watched = &others;
                let (versions, all) = (rib.watch(watched), pass(&rib, 2));
                assert!(versions[&2] > before[&2] && rib.names_of(1, 999).is_none());
                (before, found) = (versions, watched.iter().map(|tenant| (*tenant, pass(&rib, *tenant))).collect());
                assert_eq!(found[&2], all);
            }
            let versions = rib.watch(watched);
            for tenant in watched {
                let now = pass(&rib, *tenant);
                assert!(
                    versions[tenant] > before[tenant] || found[tenant] == now,
                    "nothing says that {tenant} changed"
                );
                assert_eq!(rib.names_of(*tenant, now.len()), Some(Ok(now.clone())));
                if let Some(most) = now.len().checked_sub(1) {
                    assert_eq!(rib.names_of(*tenant, most), Some(Err(now.len())));
                }
                found.insert(*tenant, now);
            }
            before = versions;
        }
        let versions = rib.watch(watched);
        rib.upsert(&name(99), Attachment { tenant: 7, ..at(1, 1) }).unwrap();
        assert_eq!(rib.watch(watched), versions, "a name of another tenant is no news");
    }

    #[test]
    fn a_mac_address_costs_forty_bytes() {
        let mut rng = Rng::new(testkit::seed());
        for (in_order, with_address, bound) in [(true, false, 36), (false, false, 38), (false, true, 45)] {
            let n = 200_000;
            let mut rib = Rib::new(NameKind::Mac, n, Hasher::new(Family::MulAdd, &SecretKey::from_seed(1)));
            for i in 0..n as u64 {
                let bytes = if in_order { i << 16 } else { rng.below(1 << 47) << 16 | 0xffff };
                let name = Name::from_bytes(NameKind::Mac, &bytes.to_be_bytes()[..6]).unwrap();
                let ip = with_address.then(|| IpAddr::from((i as u32).to_be_bytes()));
                rib.upsert(&name, Attachment { ip, ..at(1, 2) }).unwrap();
            }
            let bytes = rib.heap_bytes();
            assert!(bytes <= bound * rib.len(), "{bytes} bytes for {} names", rib.len());
        }
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
                let page: Vec<_> = rib.page(cursor.as_ref(), limit).collect();
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
