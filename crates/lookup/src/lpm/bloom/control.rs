//! The control half: the prefixes, the entries that they expand to, and a counter for every bit of the filter.

use std::collections::BTreeMap;

use super::query::{BloomLpmQuery, Lengths};
use super::update::{Update, bit_prf, rest_prf};
use super::{Membership, Steps, name};
use crate::cuckoo::exact::update::{MAX_WRITES, SlotsUpdate};
use crate::cuckoo::exact::{self, Cuckoo};
use crate::hash::{Family, SecretKey};
use crate::lpm::prefix::{Address, Prefix};
use crate::traits::{Control, InsertError};

/// Set in an entry's value besides the next hop, so that the value is never 0.
const PRESENT: u16 = 1 << 15;

/// Build parameters of the table.
#[derive(Clone, Debug)]
pub struct Settings<F> {
    /// The lengths that entries have.
    pub steps: Steps,
    /// Maps entries to bits of the filter.
    pub filter: F,
    /// Maximum number of entries; see [`Steps::count_entries`].
    pub max_entries: usize,
    /// How names are hashed in the hash table.
    pub family: Family,
    /// The key that they are hashed with.
    pub key: SecretKey,
}

impl<F> Settings<F> {
    /// Settings of the hash table behind the filter, needed to decode updates.
    pub fn table<A: Address>(&self) -> exact::Settings {
        exact::Settings::new(A::BITS as u8 / 8 + 1, 16, self.max_entries.max(1), self.family, &self.key)
    }
}

/// Control half of prefixes behind a filter.
pub struct BloomLpm<A, F, const W: usize> {
    settings: Settings<F>,
    prefixes: BTreeMap<Prefix<A>, u16>,
    entries: Cuckoo<W>,
    /// The number of entries that have each bit; a counter at its maximum stays there.
    counters: Vec<u8>,
    n_of_len: Vec<usize>,
    version: u64,
    /// See [`Update`].
    digest: u64,
    /// The version of the table that the messages led to.
    table_version: u64,
}

impl<A: Address, F: Membership<A>, const W: usize> BloomLpm<A, F, W> {
    /// An empty table.
    /// # Panics
    /// When `W` words do not hold an address and a length: 1 for IPv4, 3 for IPv6.
    pub fn new(settings: Settings<F>) -> Self {
        assert!(W == if A::VERSION == 4 { 1 } else { 3 }, "{W} words for IPv{} prefixes", A::VERSION);
        let (table, capacity) = (settings.table::<A>(), settings.max_entries);
        let counters = vec![0; settings.filter.n_bits() as usize];
        let n_of_len = vec![0; A::BITS as usize + 1];
        Self {
            settings,
            prefixes: BTreeMap::new(),
            entries: Cuckoo::with_capacity(table, capacity),
            counters,
            n_of_len,
            version: 0,
            digest: 0,
            table_version: 0,
        }
    }

    /// Entries of filter and table.
    pub fn n_entries(&self) -> usize {
        self.entries.len()
    }

    /// The build parameters.
    pub fn settings(&self) -> &Settings<F> {
        &self.settings
    }

    /// The next hop of each entry that `prefix` covers, by its index in `prefix`, from the current prefixes.
    fn expand(&self, prefix: Prefix<A>) -> Vec<Option<u16>> {
        let steps = &self.settings.steps;
        let step = steps.of(prefix.len());
        let wider = (steps.first_of(prefix.len())..prefix.len()).rev();
        let inherited = wider.filter_map(|len| self.prefixes.get(&Prefix::of(prefix.address(), len))).next().copied();
        let mut entries = vec![inherited; 1 << (step - prefix.len())];
        let inside = prefix..=Prefix::of(prefix.last(), step);
        for (other, &value) in self.prefixes.range(inside).filter(|(other, _)| other.len() <= step) {
            let index = |address: A| match step - prefix.len() {
                0 => 0,
                width => address.bits_at(prefix.len().into(), width.into()) as usize,
            };
            entries[index(other.address())..=index(other.last())].fill(Some(value));
        }
        entries
    }

    fn change(
        &mut self,
        prefix: Prefix<A>,
        new: Option<u16>,
        updates: &mut Vec<Update<W>>,
    ) -> Result<Option<u16>, InsertError> {
        let before = self.expand(prefix);
        let old = match new {
            Some(value) => self.prefixes.insert(prefix, value),
            None => self.prefixes.remove(&prefix),
        };
        let after = self.expand(prefix);
        let step = self.settings.steps.of(prefix.len());
        let (from, max) = (self.version, self.settings.max_entries);
        let n_new = after.iter().zip(&before).filter(|(after, before)| after.is_some() && before.is_none()).count();
        if self.entries.len() + n_new > max {
            match old {
                Some(value) => self.prefixes.insert(prefix, value),
                None => self.prefixes.remove(&prefix),
            };
            return Err(InsertError::TooManyNames { max });
        }
        let entry = |index: usize| {
            let wide = prefix.address().widened();
            let place = (index as u128).checked_shl(A::BITS - u32::from(step)).unwrap_or(0);
            Prefix::of(A::narrowed(wide | place), step)
        };
        let (mut set, mut clear, mut table, lengths) = (vec![], vec![], vec![], self.lengths());
        let changed = || before.iter().zip(&after).enumerate().filter(|(_, (before, after))| before != after);
        // All new entries before any that are removed: so no bit is cleared that is set again.
        for (index, (before, after)) in changed() {
            let Some(value) = *after else { continue };
            let entry = entry(index);
            self.entries.insert(name(entry), (value | PRESENT).into(), &mut table)?;
            if before.is_none() {
                self.n_of_len[usize::from(step)] += 1;
                self.count_up(entry, &mut set);
            }
        }
        for (index, _) in changed().filter(|(_, (_, after))| after.is_none()) {
            let entry = entry(index);
            self.entries.remove(name(entry), &mut table);
            self.n_of_len[usize::from(step)] -= 1;
            self.count_down(entry, &mut clear);
        }
        if !table.is_empty() {
            let seed = self.entries.settings().seed();
            self.version += 1;
            let (to, after, table) = (self.version, self.lengths(), self.one_of(table));
            let mut update = Update { from, to, digest: self.digest, lengths: after, set, clear, table };
            let turned = update.set.iter().chain(&update.clear);
            update.digest = turned.fold(self.digest, |digest, &bit| digest ^ bit_prf(seed, bit))
                ^ rest_prf(seed, lengths, std::mem::replace(&mut self.table_version, update.table_version()))
                ^ rest_prf(seed, after, self.table_version);
            self.digest = update.digest;
            updates.push(update);
        }
        Ok(old)
    }

    /// Joins several messages to the table into one, which is applied whole or refused.
    fn one_of(&self, updates: Vec<exact::Update<W>>) -> exact::Update<W> {
        let mut joined: Option<SlotsUpdate<W>> = None;
        for update in updates {
            let exact::Update::Slots(next) = update else {
                return exact::Update::Table(self.entries.images().remove(0));
            };
            match &mut joined {
                Some(joined) => {
                    (joined.to, joined.digest) = (next.to, next.digest);
                    joined.writes.extend(next.writes);
                }
                None => joined = Some(next),
            }
        }
        match joined {
            Some(joined) if joined.writes.len() <= MAX_WRITES => exact::Update::Slots(joined),
            _ => exact::Update::Table(self.entries.images().remove(0)),
        }
    }

    fn lengths(&self) -> Lengths {
        let mut lengths = Lengths::default();
        for (len, _) in self.n_of_len.iter().enumerate().filter(|&(_, &n)| n > 0) {
            lengths[len / 64] |= 1 << (len % 64);
        }
        lengths
    }

    fn count_up(&mut self, entry: Prefix<A>, set: &mut Vec<u64>) {
        if entry.len() == 0 {
            return;
        }
        for bit in self.settings.filter.bits_of(entry) {
            let counter = &mut self.counters[bit as usize];
            if *counter == 0 {
                set.push(bit);
            }
            *counter = counter.saturating_add(1);
        }
    }

    /// The entry must be in, so no counter is zero.
    fn count_down(&mut self, entry: Prefix<A>, clear: &mut Vec<u64>) {
        if entry.len() == 0 {
            return;
        }
        for bit in self.settings.filter.bits_of(entry) {
            let counter = &mut self.counters[bit as usize];
            if *counter < u8::MAX {
                *counter -= 1;
            }
            if *counter == 0 {
                clear.push(bit);
            }
        }
    }
}

fn stored(value: u64) -> Result<u16, InsertError> {
    let too_wide = InsertError::ValueTooWide { value, value_bits: 15 };
    u16::try_from(value).ok().filter(|&value| value < PRESENT).ok_or(too_wide)
}

impl<A: Address, F: Membership<A>, const W: usize> Control for BloomLpm<A, F, W> {
    type Key = Prefix<A>;
    type Query = BloomLpmQuery<A, F, W>;

    fn insert(&mut self, prefix: Prefix<A>, value: u64, updates: &mut Vec<Update<W>>) -> Result<(), InsertError> {
        self.change(prefix, Some(stored(value)?), updates).map(drop)
    }

    fn insert_batch(&mut self, entries: &[(Prefix<A>, u64)], updates: &mut Vec<Update<W>>) -> Result<(), InsertError> {
        entries.iter().try_for_each(|&(prefix, value)| self.insert(prefix, value, updates))
    }

    fn remove(&mut self, prefix: Prefix<A>, updates: &mut Vec<Update<W>>) -> bool {
        self.prefixes.contains_key(&prefix)
            && self.change(prefix, None, updates).expect("fewer entries fit where more did").is_some()
    }

    fn get(&self, prefix: Prefix<A>) -> Option<u64> {
        self.prefixes.get(&prefix).map(|&value| value.into())
    }

    fn export(&self) -> BloomLpmQuery<A, F, W> {
        let mut words = vec![0; self.counters.len().div_ceil(64)];
        for (bit, _) in self.counters.iter().enumerate().filter(|&(_, &count)| count > 0) {
            words[bit / 64] |= 1 << (bit % 64);
        }
        BloomLpmQuery::new(&self.settings, &words, self.lengths(), self.entries.export(), (self.version, self.digest))
    }

    fn len(&self) -> usize {
        self.prefixes.len()
    }
}
