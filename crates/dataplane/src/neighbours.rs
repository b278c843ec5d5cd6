//! MAC addresses of IP addresses: those of hosts, an index into the table of valid names, and those of the switch itself.

use crate::exact::{Addresses, ExactTable};
use crate::mac::Mac;
use arc_swap::ArcSwap;
use fib::name::NameKind;
use lookup::hash::Digest;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// MAC addresses of IP addresses, for answers to ARP requests and neighbour solicitations.
#[derive(Debug)]
pub struct Neighbours {
    hosts: RwLock<Addresses>,
    /// Addresses of the switch itself.
    own: HashMap<IpAddr, Mac>,
    more: Arc<MoreAddresses>,
}

/// The further addresses of hosts, besides those of the tables.
pub(crate) type MoreAddresses = ArcSwap<HashMap<IpAddr, Mac>>;

impl Neighbours {
    /// Addresses of the switch itself, and no hosts yet.
    pub(crate) fn with_own(own: HashMap<IpAddr, Mac>) -> Self {
        let none = Addresses::new(Arc::new(ExactTable::empty(NameKind::Mac)));
        Self { own, hosts: RwLock::new(none), more: Arc::default() }
    }

    /// Adds these addresses, which may change.
    pub(crate) fn with_more(self, more: Arc<MoreAddresses>) -> Self {
        Self { more, ..self }
    }

    /// The MAC address for the IP address of a host, or of the switch itself.
    pub fn get(&self, ip: IpAddr) -> Option<Mac> {
        self.view().get(ip)
    }

    /// Whether the switch itself has addresses.
    pub(crate) fn has_own(&self) -> bool {
        !self.own.is_empty()
    }

    /// The MAC address for an IP address of the switch itself.
    pub(crate) fn own(&self, ip: IpAddr) -> Option<Mac> {
        self.own.get(&ip).copied()
    }

    /// A view for several questions. Changes wait until it is dropped.
    pub(crate) fn view(&self) -> NeighboursView<'_> {
        NeighboursView { hosts: self.hosts(), own: &self.own, more: &self.more }
    }

    /// The number of hosts with a known address.
    pub fn len(&self) -> usize {
        self.hosts().len()
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn hosts(&self) -> RwLockReadGuard<'_, Addresses> {
        self.hosts.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the hosts. Readers do not wait until the memory of the old ones is freed.
    pub(crate) fn replace_hosts(&self, new: Addresses) {
        let old = std::mem::replace(&mut *self.hosts_mut(), new);
        drop(old);
    }

    pub(crate) fn hosts_mut(&self) -> RwLockWriteGuard<'_, Addresses> {
        self.hosts.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// [`Neighbours`], locked for reading.
pub(crate) struct NeighboursView<'a> {
    hosts: RwLockReadGuard<'a, Addresses>,
    own: &'a HashMap<IpAddr, Mac>,
    more: &'a MoreAddresses,
}

impl NeighboursView<'_> {
    /// As [`Neighbours::get`].
    pub(crate) fn get(&self, ip: IpAddr) -> Option<Mac> {
        let own = self.own.get(&ip).copied();
        let host = || self.hosts.name_of(ip)?.as_bytes().try_into().ok();
        own.or_else(host).or_else(|| self.more.load().get(&ip).copied())
    }

    /// Begins questions for the IP addresses of hosts: see [`NeighboursView::finish`].
    #[inline]
    pub(crate) fn begin(&self, digests: &[Digest]) {
        self.hosts.begin(digests);
    }

    /// The place of the IP address of a host, which is fetched from now on.
    #[inline]
    pub(crate) fn advance(&self, digest: Digest, mac: u64) -> Option<u32> {
        self.hosts.advance(digest, mac)
    }

    /// The IP address at a place, if [`NeighboursView::get`] leads from it to the host that the place is of.
    #[inline]
    pub(crate) fn finish(&self, place: u32) -> Option<IpAddr> {
        let ip = self.hosts.leading_to(place as usize)?;
        (self.own.is_empty() || !self.own.contains_key(&ip)).then_some(ip)
    }

    /// The IP address of a host.
    pub(crate) fn address_of(&self, digest: Digest, mac: Mac) -> Option<IpAddr> {
        self.hosts.of(digest, &mac)
    }
}
