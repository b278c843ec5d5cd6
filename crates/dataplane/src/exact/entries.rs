//! All entries that a replica has, whether frames can use them or not.

use super::{ExactTable, ExactWriter, MAX_VALUE, Others, Replacement};
use fib::action::PortId;
use fib::name::{Name, NameKind};
use lookup::hash::Hasher;
use std::sync::Arc;

/// A value that a slot can hold.
pub(crate) trait Slot: Copy {
    /// The value in a slot; none if no frame can use it.
    fn to_slot(self) -> Option<u16>;
    /// The inverse of [`Slot::to_slot`].
    fn from_slot(value: u16) -> Self;
}

/// A slot cannot hold the last two port numbers, and no port of a switch has them.
impl Slot for PortId {
    fn to_slot(self) -> Option<u16> {
        (self.0 <= MAX_VALUE).then_some(self.0)
    }

    fn from_slot(value: u16) -> Self {
        PortId(value)
    }
}

/// Entries that will replace all others.
#[derive(Debug)]
pub struct Loading<V> {
    exact: ExactWriter,
    others: Vec<(Name, V)>,
}

/// Entries by name. Those that frames can use are in an exact table. The others (names of another kind than the
/// table's, values that do not fit into a slot) are kept beside it, because the replica has them. A function that
/// replaces the table of the readers returns the new one, and the caller publishes it.
#[derive(Debug)]
pub(crate) struct Entries<V> {
    exact: ExactWriter,
    others: Arc<Others<V>>,
}

impl<V: Slot> Entries<V> {
    pub(crate) fn new(kind: NameKind, hasher: Hasher) -> Self {
        Self { exact: ExactWriter::new(kind, hasher), others: Arc::new(Others::new()) }
    }

    /// The table that workers read.
    pub(crate) fn table(&self) -> &Arc<ExactTable> {
        self.exact.table()
    }

    /// The entries that are not in the table, for readers that ask for whole names.
    pub(crate) fn others(&self) -> &Arc<Others<V>> {
        &self.others
    }

    pub(crate) fn len(&self) -> usize {
        self.exact.len() + self.others.len()
    }

    /// Whether frames carry the name.
    pub(crate) fn accepts(&self, name: &Name) -> bool {
        self.exact.accepts(name)
    }

    fn slot_for(&self, name: &Name, value: V) -> Option<u16> {
        value.to_slot().filter(|_| self.accepts(name))
    }

    pub(crate) fn get(&self, name: &Name) -> Option<V> {
        self.exact.get(name).map(V::from_slot).or_else(|| self.others.get(name))
    }

    pub(crate) fn put(&mut self, name: Name, value: V) -> Option<Replacement> {
        if let Some(slot) = self.slot_for(&name, value) {
            self.others.remove(&name);
            self.exact.put(&name, slot)
        } else {
            self.exact.remove(&name);
            self.others.put(name, value);
            None
        }
    }

    pub(crate) fn remove(&mut self, name: &Name) {
        self.exact.remove(name);
        self.others.remove(name);
    }

    /// No entries yet, with room for `n_names` that frames can use.
    pub(crate) fn begin(&self, n_names: usize) -> Loading<V> {
        Loading { exact: self.exact.like(n_names), others: Vec::new() }
    }

    /// Adds entries to those that are to replace all others.
    pub(crate) fn load(&self, loading: &mut Loading<V>, entries: impl IntoIterator<Item = (Name, V)>) {
        for (name, value) in entries {
            // A change of the kind meanwhile is made up for at the end.
            match value.to_slot().filter(|_| loading.exact.accepts(&name)) {
                // The table that is replaced here has no readers yet.
                Some(slot) => _ = loading.exact.put(&name, slot),
                None => loading.others.push((name, value)),
            }
        }
    }

    /// Replaces all entries.
    pub(crate) fn replace(&mut self, mut loading: Loading<V>) -> Replacement {
        if !loading.exact.is_keyed_like(&self.exact) {
            let mut all = loading.others;
            loading.exact.for_each(|name, value| all.push((name.clone(), V::from_slot(value))));
            loading = self.begin(all.len());
            self.load(&mut loading, all);
        }
        self.exact = loading.exact;
        self.others.replace(loading.others);
        self.exact.table().clone()
    }

    /// Changes the hasher, and the kind of names that frames carry. The entries stay.
    pub(crate) fn rekey(&mut self, kind: NameKind, hasher: &Hasher) -> Replacement {
        if kind == self.exact.kind() {
            return self.exact.rekey(kind, hasher);
        }
        let mut all = Vec::with_capacity(self.len());
        self.for_each(|name, value| all.push((name.clone(), value)));
        self.exact.rekey(kind, hasher);
        let mut loading = self.begin(all.len());
        self.load(&mut loading, all);
        self.replace(loading)
    }

    /// Bytes of heap memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.exact.table().size_bytes() + self.others.heap_bytes()
    }

    pub(crate) fn for_each(&self, mut each: impl FnMut(&Name, V)) {
        self.exact.for_each(|name, value| each(name, V::from_slot(value)));
        self.others.for_each(each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lookup::hash::{Family, SecretKey};

    fn hasher(seed: u64) -> Hasher {
        Hasher::new(Family::default(), &SecretKey::from_seed(seed))
    }

    #[test]
    fn every_entry_is_kept_through_changes_of_value_hasher_and_kind() {
        let mac = |i| Name::from_bytes(NameKind::Mac, &[2, 0, 0, 0, 0, i]).unwrap();
        let ip = |i| Name::from_bytes(NameKind::Ipv4, &[10, 0, 0, i]).unwrap();
        let mut entries = Entries::new(NameKind::Mac, hasher(1));
        let mut loading = entries.begin(3);
        entries.load(&mut loading, [(mac(1), PortId(1)), (mac(2), PortId(u16::MAX)), (ip(1), PortId(3))]);
        let _ = entries.replace(loading);
        // One port gets a number that fits into a slot, the other one that does not.
        assert!(entries.put(mac(2), PortId(2)).is_none() && entries.put(mac(1), PortId(65_534)).is_none());
        let expected = [(mac(1), 65_534), (mac(2), 2), (ip(1), 3)];
        for (kind, n_served) in [(NameKind::Mac, 1), (NameKind::Mac, 1), (NameKind::Ipv4, 1), (NameKind::Text, 0)] {
            let table = entries.rekey(kind, &hasher(n_served as u64 + 5));
            assert!(Arc::ptr_eq(&table, entries.table()));
            assert_eq!((entries.len(), entries.exact.len()), (3, n_served));
            for (name, port) in &expected {
                assert_eq!(entries.get(name), Some(PortId(*port)), "{name} in a table of {kind}");
            }
            let mut n = 0;
            entries.for_each(|_, _| n += 1);
            assert_eq!(n, 3);
        }
        expected.iter().for_each(|(name, _)| entries.remove(name));
        assert_eq!(entries.len(), 0);
    }

    #[test]
    fn entries_on_their_way_survive_a_change_of_hasher_and_kind() {
        let mac = |i| Name::from_bytes(NameKind::Mac, &[2, 0, 0, 0, 0, i]).unwrap();
        let ip = |i| Name::from_bytes(NameKind::Ipv4, &[10, 0, 0, i]).unwrap();
        for kind in [NameKind::Mac, NameKind::Ipv4] {
            let mut entries = Entries::new(NameKind::Mac, hasher(1));
            let mut loading = entries.begin(0);
            entries.load(&mut loading, (0..100).map(|i| (mac(i), PortId(i.into()))));
            let _ = entries.rekey(kind, &hasher(2));
            entries.load(&mut loading, [(ip(1), PortId(7))]);
            let _ = entries.replace(loading);
            assert_eq!(entries.len(), 101);
            assert!((0..100).all(|i| entries.get(&mac(i)) == Some(PortId(i.into()))) && entries.get(&ip(1)).is_some());
        }
    }
}
