//! What the conformance test needs besides a structure's [`Control`] and [`Query`]: which answers are right.
//!
//! The test keeps the live keys with their values in a map. From them, an [`Oracle`] says what a lookup must answer.
//! What is inserted and what is looked up may differ in kind: a prefix and an address, a rule and a flow, a name and a
//! name at one of several switches. For names, [`Names`] is the oracle.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;

use super::Rng;
use crate::base::prefetch::BURST;
use crate::traits::{BatchReader, Control, Query, Replicated};

/// A control structure that the conformance test can drive.
pub trait Subject: Control<Key: Eq + Hash + Debug, Query: Query<Key: Debug, Update: Debug>> {}

impl<C: Control<Key: Eq + Hash + Debug, Query: Query<Key: Debug, Update: Debug>>> Subject for C {}

/// The live keys of a control structure and their values.
pub type Live<C> = HashMap<<C as Control>::Key, u64>;
/// What is looked up in the query structure of a control structure.
pub type ProbeOf<C> = <<C as Control>::Query as Query>::Key;
/// The update of a control structure's query structure.
pub type UpdateOf<C> = <<C as Control>::Query as Query>::Update;

/// Says what a structure must answer.
pub trait Oracle<C: Subject> {
    /// Lookups whose answers a change of `key` can change, and others near them.
    fn probes(&self, key: C::Key, rng: &mut Rng) -> Vec<ProbeOf<C>>;

    /// The right answer to `probe` with the keys `live`; none if every answer is allowed.
    fn expected(&self, control: &C, live: &Live<C>, probe: ProbeOf<C>) -> Option<u64>;

    /// Takes note of an operation on `keys`, which emitted `updates`.
    fn note(&mut self, _control: &C, _live: &Live<C>, _keys: &[C::Key], _updates: &[UpdateOf<C>]) {}

    /// What two query structures with the same answers must have in common, for example their bytes.
    fn state(&self, _query: &C::Query) -> Vec<u8> {
        Vec::new()
    }

    /// The answers of a reader that keeps bursts in flight.
    fn in_flight(&self, query: &C::Query, probes: &[ProbeOf<C>]) -> Vec<u64> {
        let mut values = vec![0; probes.len()];
        query.lookup_batch(probes, &mut values);
        values
    }

    /// `update` encoded and decoded; none if it has no bytes.
    fn carried(&self, _query: &C::Query, _update: &UpdateOf<C>) -> Option<UpdateOf<C>> {
        None
    }
}

/// The bytes of a whole structure: an implementation of [`Oracle::state`].
pub fn bytes_of<Q: Replicated>(query: &Q) -> Vec<u8> {
    let mut bytes = Vec::new();
    Q::encode_update(&query.settings(), &Q::update_of(query.images()), &mut bytes);
    bytes
}

/// The answers of a reader with up to three bursts of several lengths in flight: an implementation of
/// [`Oracle::in_flight`].
pub fn by_phases<Q: Replicated>(query: &Q, probes: &[Q::Key]) -> Vec<u64> {
    const LENGTHS: [usize; 4] = [BURST, 1, BURST - 1, 11];
    let mut reader = query.reader();
    let mut values = vec![u64::MAX; probes.len()];
    let mut bursts: VecDeque<(&[Q::Key], &mut [u64])> = VecDeque::new();
    let (mut probes, mut rest) = (probes, &mut values[..]);
    for length in LENGTHS.into_iter().cycle() {
        let (begun, more) = probes.split_at(length.min(probes.len()));
        let (to_fill, more_values) = rest.split_at_mut(begun.len());
        (probes, rest) = (more, more_values);
        if begun.is_empty() {
            break;
        }
        reader.begin(begun);
        bursts.push_back((begun, to_fill));
        if bursts.len() == 3 {
            // A whole lookup in between must not disturb the bursts in flight.
            reader.lookup_batch(&begun[..1], &mut [0]);
            bursts.pop_front().into_iter().for_each(|(keys, values)| reader.finish(keys, values));
        }
    }
    bursts.into_iter().for_each(|(keys, values)| reader.finish(keys, values));
    values
}

/// An update after encoding and decoding: an implementation of [`Oracle::carried`].
/// # Panics
/// When the update does not survive the round trip.
pub fn over_bytes<Q: Replicated>(query: &Q, update: &Q::Update) -> Option<Q::Update> {
    let (settings, [mut sent, mut again]) = (query.settings(), [Vec::new(), Vec::new()]);
    Q::encode_update(&settings, update, &mut sent);
    let mut carried = Q::decode_update(&settings, &sent).unwrap_or_else(|error| panic!("its own bytes: {error}"));
    // A switch decodes over an earlier update. What that left behind must not matter, nor what a refused one did.
    let half = &sent[..sent.len() / 2];
    let refused = Q::decode_update_over(&settings, half, &mut carried).err();
    assert_eq!(refused, Q::decode_update(&settings, half).err(), "half of the bytes of an update");
    let decoded = Q::decode_update_over(&settings, &sent, &mut carried);
    decoded.unwrap_or_else(|error| panic!("its own bytes over another update: {error}"));
    Q::encode_update(&settings, &carried, &mut again);
    assert_eq!(sent, again, "an update changed on its way through bytes");
    Some(carried)
}

/// The oracle of names, which are looked up as they are inserted. A live name has its value, a removed one drops as
/// long as the structure promises, and any other name may get any answer.
pub struct Names<C: Subject> {
    must_drop: fn(&C, C::Key) -> bool,
    may_forget: fn(&UpdateOf<C>) -> bool,
    state: fn(&C::Query) -> Vec<u8>,
    in_flight: fn(&C::Query, &[ProbeOf<C>]) -> Vec<u64>,
    carried: fn(&C::Query, &UpdateOf<C>) -> Option<UpdateOf<C>>,
    /// Removed names that must still drop.
    removed: HashSet<C::Key>,
}

impl<C: Subject> Names<C> {
    /// A removed name drops where `must_drop` says so, and from then on until an update that `may_forget` it.
    pub fn until(must_drop: fn(&C, C::Key) -> bool, may_forget: fn(&UpdateOf<C>) -> bool) -> Self {
        let in_flight = |query: &C::Query, probes: &[ProbeOf<C>]| {
            let mut values = vec![0; probes.len()];
            query.lookup_batch(probes, &mut values);
            values
        };
        Self { must_drop, may_forget, state: |_| Vec::new(), in_flight, carried: |_, _| None, removed: HashSet::new() }
    }

    /// Every absent name drops: the structure is exact.
    pub fn exact() -> Self {
        Self::until(|_, _| true, |_| false)
    }

    /// A removed name is an alien at once, and an alien may get any answer.
    pub fn aliens() -> Self {
        Self::until(|_, _| false, |_| true)
    }

    /// Updates go through bytes, equal structures have equal bytes, and readers keep bursts in flight.
    pub fn in_bytes(self) -> Self
    where
        C::Query: Replicated,
    {
        Self { state: bytes_of, in_flight: by_phases, carried: over_bytes, ..self }
    }
}

impl<C: Subject> Oracle<C> for Names<C>
where
    C::Query: Query<Key = C::Key>,
{
    fn probes(&self, key: C::Key, _rng: &mut Rng) -> Vec<C::Key> {
        vec![key]
    }

    fn expected(&self, control: &C, live: &Live<C>, name: C::Key) -> Option<u64> {
        let dropped = || (self.removed.contains(&name) || (self.must_drop)(control, name)).then_some(0);
        live.get(&name).copied().or_else(dropped)
    }

    fn note(&mut self, control: &C, live: &Live<C>, names: &[C::Key], updates: &[UpdateOf<C>]) {
        if updates.iter().any(self.may_forget) {
            self.removed.clear();
        }
        for &name in names {
            if live.contains_key(&name) {
                self.removed.remove(&name);
            } else if (self.must_drop)(control, name) {
                self.removed.insert(name);
            }
        }
    }

    fn state(&self, query: &C::Query) -> Vec<u8> {
        (self.state)(query)
    }

    fn in_flight(&self, query: &C::Query, probes: &[C::Key]) -> Vec<u64> {
        (self.in_flight)(query, probes)
    }

    fn carried(&self, query: &C::Query, update: &UpdateOf<C>) -> Option<UpdateOf<C>> {
        (self.carried)(query, update)
    }
}
