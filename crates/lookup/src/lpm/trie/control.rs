//! The control half: the prefixes in order, and what a change of one changes in the data plane.

use std::collections::BTreeMap;

use super::expand::{Expanded, Expander, Prefixes};
use super::leaf::Leaf;
use super::query::PrefixTrieQuery;
use super::update::{Changes, Update};
use super::{Settings, TOP_BITS, TOP_NODES, bits_before};
use crate::lpm::prefix::{Address, Prefix};
use crate::traits::{Control, InsertError};

/// A batch of at least this many prefixes, and an eighth of the table, is expanded as a whole.
const BULK: usize = 1024;

/// Control half of a trie of prefixes.
///
/// Cost: about 14 bytes per IPv4 prefix, 40 per IPv6 prefix, for any number of tables that follow it.
#[derive(Clone, Debug)]
pub struct PrefixTrie<A, L = u16> {
    prefixes: Prefixes<A, L>,
    /// The number of prefixes of each length.
    n_of_len: Vec<u32>,
    settings: Settings,
    version: u64,
    digest: u64,
}

impl<A: Address> PrefixTrie<A> {
    /// An empty table of up to 32,767 next hops.
    pub fn new(settings: Settings) -> Self {
        Self::empty(settings)
    }
}

impl<A: Address> PrefixTrie<A, u32> {
    /// An empty table of up to 2^24 next hops.
    pub fn wide(settings: Settings) -> Self {
        Self::empty(settings)
    }
}

impl<A: Address, L: Leaf> PrefixTrie<A, L> {
    /// An empty table.
    pub fn empty(settings: Settings) -> Self {
        let n_of_len = vec![0; A::BITS as usize + 1];
        Self { prefixes: BTreeMap::new(), n_of_len, settings, version: 0, digest: 0 }
    }

    /// The build parameters.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The longest prefix of `address`, with its next hop. Tries every length that some prefix has.
    pub fn longest(&self, address: A) -> Option<(Prefix<A>, u64)> {
        self.longest_up_to(address, A::BITS as u8).map(|(prefix, value)| (prefix, value.bits().into()))
    }

    fn longest_up_to(&self, address: A, len: u8) -> Option<(Prefix<A>, L)> {
        (0..=len).rev().filter(|&len| self.n_of_len[usize::from(len)] > 0).find_map(|len| {
            let prefix = Prefix::of(address, len);
            self.prefixes.get(&prefix).map(|&value| (prefix, value))
        })
    }

    /// All prefixes with their next hops, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix<A>, u64)> + '_ {
        self.prefixes.iter().map(|(&prefix, &value)| (prefix, value.bits().into()))
    }

    /// The whole table as an update: what a query half starts from.
    pub fn whole(&self) -> Update<A, L> {
        let changes = self.expand_all();
        debug_assert_eq!(changes.digest, self.digest);
        changes.into_update(true, 0, self.version, self.digest)
    }

    /// The whole table, as changes from an empty one.
    fn expand_all(&self) -> Changes<A, L> {
        let mut changes = Changes::new(self.settings.seed);
        let inherited = self.prefixes.get(&Prefix::of(A::default(), 0)).copied().unwrap_or_default();
        let nothing = Expanded::Plain(L::default());
        let each = |index, expanded: &Expanded<L>| changes.top(index, &nothing, expanded);
        Expander::new(self.settings.seed).top(&self.prefixes, &(0..TOP_NODES), (0, inherited), each);
        changes
    }

    fn put(&mut self, prefix: Prefix<A>, value: Option<L>) -> Option<L> {
        let old = match value {
            Some(value) => self.prefixes.insert(prefix, value),
            None => self.prefixes.remove(&prefix),
        };
        let count = &mut self.n_of_len[usize::from(prefix.len())];
        *count = *count + u32::from(value.is_some()) - u32::from(old.is_some());
        old
    }

    /// Changes one prefix and its expansion: the smallest chunk that exists before and after, or nodes of the top.
    fn repaint(&mut self, prefix: Prefix<A>, old: Option<L>, new: Option<L>) -> Changes<A, L> {
        let mut changes = Changes::new(self.settings.seed);
        let mut expander = Expander::new(self.settings.seed);
        let deepest = u32::from(prefix.len()).saturating_sub(17) / 8;
        for level in (1..=deepest as u8).rev() {
            let before = bits_before(level);
            let path = prefix.address().truncated(before);
            let inherited = self.longest_up_to(path, before as u8).map_or_else(L::default, |(_, value)| value);
            let Expanded::Split(was) = expander.one(&self.prefixes, level, path, inherited) else { continue };
            self.put(prefix, new);
            match expander.one(&self.prefixes, level, path, inherited) {
                Expanded::Split(is) => {
                    changes.chunk(level, path, &was, &is);
                    return changes;
                }
                Expanded::Plain(_) => self.put(prefix, old),
            };
        }
        let [first, last] = [prefix.address(), prefix.last()].map(|address| address.bits_at(0, TOP_BITS));
        let nodes = first..last + 1;
        // The prefix's own next hop is expanded and not inherited, unless there is no shorter prefix.
        let bits = (u32::from(prefix.len())).min(TOP_BITS).saturating_sub(1);
        let inherited =
            |trie: &Self| trie.longest_up_to(prefix.address(), bits as u8).map_or_else(L::default, |(_, value)| value);
        let mut was = Vec::with_capacity(nodes.len());
        expander.top(&self.prefixes, &nodes, (bits, inherited(self)), |_, expanded| was.push(expanded.clone()));
        self.put(prefix, new);
        let mut was = was.iter();
        let each = |index, is: &Expanded<L>| changes.top(index, was.next().expect("as many nodes as before"), is);
        expander.top(&self.prefixes, &nodes, (bits, inherited(self)), each);
        changes
    }

    /// Changes one prefix, appends the update if the data plane changes, and returns the old next hop.
    fn change(&mut self, prefix: Prefix<A>, new: Option<L>, updates: &mut Vec<Update<A, L>>) -> Option<L> {
        let old = self.prefixes.get(&prefix).copied();
        if old == new {
            return old;
        }
        let changes = self.repaint(prefix, old, new);
        if !changes.is_empty() {
            self.digest ^= changes.digest;
            self.version += 1;
            updates.push(changes.into_update(false, self.version - 1, self.version, self.digest));
        }
        old
    }
}

fn stored<L: Leaf>(value: u64) -> Result<L, InsertError> {
    let too_wide = InsertError::ValueTooWide { value, value_bits: L::MAX_HOP.ilog2() as u8 + 1 };
    u32::try_from(value).ok().filter(|&value| value <= L::MAX_HOP).map(L::of).ok_or(too_wide)
}

impl<A: Address, L: Leaf> Control for PrefixTrie<A, L> {
    type Key = Prefix<A>;
    type Query = PrefixTrieQuery<A, L>;

    fn insert(&mut self, prefix: Prefix<A>, value: u64, updates: &mut Vec<Update<A, L>>) -> Result<(), InsertError> {
        let value = stored(value)?;
        let max = self.settings.max_prefixes;
        if self.prefixes.len() >= max && !self.prefixes.contains_key(&prefix) {
            return Err(InsertError::TooManyNames { max });
        }
        self.change(prefix, Some(value), updates);
        Ok(())
    }

    fn insert_batch(
        &mut self,
        entries: &[(Prefix<A>, u64)],
        updates: &mut Vec<Update<A, L>>,
    ) -> Result<(), InsertError> {
        let wide = entries.iter().position(|&(_, value)| stored::<L>(value).is_err()).unwrap_or(entries.len());
        let is_bulk = entries.len() >= BULK && entries.len() >= self.len() / 8;
        if !is_bulk || self.len() + entries.len() > self.settings.max_prefixes || wide < entries.len() {
            return entries.iter().try_for_each(|&(prefix, value)| self.insert(prefix, value, updates));
        }
        let new = entries.iter().map(|&(prefix, value)| (prefix, L::of(value as u32)));
        if self.is_empty() {
            self.prefixes = new.collect();
        } else {
            self.prefixes.extend(new);
        }
        self.n_of_len.fill(0);
        for prefix in self.prefixes.keys() {
            self.n_of_len[usize::from(prefix.len())] += 1;
        }
        let changes = self.expand_all();
        self.version += 1;
        self.digest = changes.digest;
        updates.push(changes.into_update(true, 0, self.version, self.digest));
        Ok(())
    }

    fn remove(&mut self, prefix: Prefix<A>, updates: &mut Vec<Update<A, L>>) -> bool {
        self.change(prefix, None, updates).is_some()
    }

    fn get(&self, prefix: Prefix<A>) -> Option<u64> {
        self.prefixes.get(&prefix).map(|&value| value.bits().into())
    }

    /// # Panics
    /// When the operating system has no address space for [`Settings::max_prefixes`].
    fn export(&self) -> PrefixTrieQuery<A, L> {
        PrefixTrieQuery::from_own(&self.settings, &self.whole()).expect("a table of its own control half is whole")
    }

    fn len(&self) -> usize {
        self.prefixes.len()
    }
}
