//! The routes of a gateway, and how a worker looks them up for a burst.

use super::settings::{Hop, Settings};
use fib::text::address::AnyPrefix;
use lookup::hash::SecretKey;
use lookup::lpm::trie::{Reader, Settings as TrieSettings};
use lookup::lpm::{Address, Prefix, PrefixTrie, PrefixTrieQuery};
use lookup::traits::{BatchReader, Control, InsertError, Replicated};
use netio::BURST;
use std::collections::HashMap;
use std::sync::Arc;

/// The routes of both versions of IP.
pub(super) struct Routes {
    pub(super) hops: Vec<Hop>,
    v4: Table<u32>,
    v6: Table<u128>,
}

/// The routes of one version of IP; a next hop is an index of [`Routes::hops`], plus 1.
struct Table<A: Address>(PrefixTrieQuery<A>);

impl<A: Address> Table<A> {
    fn new(routes: &[(Prefix<A>, u64)]) -> Result<Self, InsertError> {
        // The updates are never sent, so their digests need no secret key.
        let mut trie = PrefixTrie::new(TrieSettings::new(routes.len(), &SecretKey::from_seed(0)));
        trie.insert_batch(routes, &mut Vec::new())?;
        Ok(Self(trie.export()))
    }
}

/// The routes of a gateway. For fuzzing, which makes the same gateway repeatedly: those that this thread made last, if
/// the settings are the same.
#[cfg(feature = "kit")]
fn made_once(
    settings: &Settings,
    make: impl FnOnce() -> Result<Arc<Routes>, InsertError>,
) -> Result<Arc<Routes>, InsertError> {
    use std::cell::RefCell;
    thread_local! {
        static LAST: RefCell<Option<(Settings, Arc<Routes>)>> = const { RefCell::new(None) };
    }
    let same =
        LAST.with_borrow(|last| last.as_ref().filter(|(of, _)| of == settings).map(|(_, made)| Arc::clone(made)));
    if let Some(same) = same {
        return Ok(same);
    }
    let made = make()?;
    LAST.set(Some((settings.clone(), Arc::clone(&made))));
    Ok(made)
}

/// The routes of a gateway.
#[cfg(not(feature = "kit"))]
fn made_once(
    _: &Settings,
    make: impl FnOnce() -> Result<Arc<Routes>, InsertError>,
) -> Result<Arc<Routes>, InsertError> {
    make()
}

impl Routes {
    /// Builds the routes. Of several with one prefix the last counts.
    pub(super) fn new(settings: &Settings) -> Result<Arc<Self>, InsertError> {
        let mut hops = Vec::new();
        let mut index_of = HashMap::new();
        let (mut v4, mut v6) = (HashMap::new(), HashMap::new());
        let mut add = |prefix, hop| {
            let index = *index_of.entry(hop).or_insert_with(|| {
                hops.push(hop);
                hops.len() as u64
            });
            match prefix {
                AnyPrefix::V4(prefix) => drop(v4.insert(prefix, index)),
                AnyPrefix::V6(prefix) => drop(v6.insert(prefix, index)),
            }
        };
        for outside in &settings.outside {
            for &(ip, len) in &outside.addresses {
                add(AnyPrefix::of(ip, len), Hop::Outside { port: outside.port, via: None });
            }
        }
        settings.routes.iter().for_each(|route| add(route.prefix, route.hop));
        let outside = settings.outside.iter().flat_map(|outside| outside.addresses.iter().map(|&(ip, _)| ip));
        for ip in settings.addresses.iter().copied().chain(outside) {
            add(AnyPrefix::of(ip, if ip.is_ipv4() { 32 } else { 128 }), Hop::Own);
        }
        made_once(settings, || {
            let (v4, v6): (Vec<_>, Vec<_>) = (v4.into_iter().collect(), v6.into_iter().collect());
            Ok(Arc::new(Self { hops, v4: Table::new(&v4)?, v6: Table::new(&v6)? }))
        })
    }

    /// A worker's lookups of the routes.
    pub(super) fn queues(&self) -> (Queue<u32>, Queue<u128>) {
        (Queue::new(self.v4.0.reader()), Queue::new(self.v6.0.reader()))
    }
}

/// Addresses of one version of IP in a burst, and their routes.
pub(super) struct Queue<A> {
    reader: Reader<A>,
    addresses: [A; BURST],
    owners: [u8; BURST],
    values: [u64; BURST],
    len: usize,
}

impl<A: Address> Queue<A> {
    fn new(reader: Reader<A>) -> Self {
        Self { reader, addresses: [A::default(); BURST], owners: [0; BURST], values: [0; BURST], len: 0 }
    }

    pub(super) fn push(&mut self, address: A, owner: usize) {
        self.addresses[self.len] = address;
        self.owners[self.len] = owner as u8;
        self.len += 1;
    }

    /// Looks up all queued addresses: pairs of packet and next hop. Empties the queue.
    pub(super) fn resolve(&mut self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let n = std::mem::take(&mut self.len);
        self.reader.lookup_batch(&self.addresses[..n], &mut self.values[..n]);
        self.owners[..n].iter().map(|&owner| usize::from(owner)).zip(self.values[..n].iter().copied())
    }
}
