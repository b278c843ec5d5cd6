//! Exact tables of simulated switches. Valid names that many switches share are stored once.
//!
//! Every gateway holds every valid name, so a thousand gateways with a million names would fill 50 GB. Here a table is a
//! sorted list that equal tables share, plus the differences from it. Each switch answers from what it was sent; only
//! the memory is shared.

use fib::action::{Action, PortId};
use fib::designs::Table;
use fib::name::{Name, NameKind};
use fib::replica::{Exact, Tables};
use lookup::hash::Hasher;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::{Rc, Weak};

type Ip = Option<IpAddr>;
type Entries = Vec<(Name, Ip)>;

/// The lists that tables share.
#[derive(Clone, Default)]
pub(super) struct Shelf(Rc<RefCell<Vec<Weak<Entries>>>>);

impl Shelf {
    /// These entries, sorted, as a list that may be shared plus the differences from it.
    fn put(&self, entries: Entries) -> (Rc<Entries>, HashMap<Name, Option<Ip>>) {
        let mut lists = self.0.borrow_mut();
        lists.retain(|list| list.strong_count() > 0);
        for list in lists.iter().filter_map(Weak::upgrade) {
            if let Some(changed) = differences(&list, &entries, entries.len() / 8) {
                return (list, changed);
            }
        }
        let list = Rc::new(entries);
        lists.push(Rc::downgrade(&list));
        (list, HashMap::new())
    }
}

/// What to put (`Some`) and remove (`None`) to turn one sorted list into another, unless that is more than `most`.
fn differences(from: &Entries, to: &Entries, most: usize) -> Option<HashMap<Name, Option<Ip>>> {
    let mut changed = HashMap::new();
    let (mut from, mut to) = (from.iter().peekable(), to.iter().peekable());
    while changed.len() <= most {
        match (from.peek(), to.peek()) {
            (None, None) => return Some(changed),
            (Some(old), Some(new)) if old.0 == new.0 => {
                if old.1 != new.1 {
                    changed.insert(new.0.clone(), Some(new.1));
                }
                from.next();
                to.next();
            }
            (Some(old), new) if new.is_none_or(|new| old.0 < new.0) => {
                changed.insert(old.0.clone(), None);
                from.next();
            }
            (_, Some(new)) => {
                changed.insert(new.0.clone(), Some(new.1));
                to.next();
            }
            (Some(_), None) => return None,
        }
    }
    None
}

/// A table of valid names.
pub(super) struct Shared {
    shelf: Shelf,
    list: Rc<Entries>,
    changed: HashMap<Name, Option<Ip>>,
}

impl Shared {
    fn listed(&self, name: &Name) -> Option<Ip> {
        let at = self.list.binary_search_by(|(listed, _)| listed.cmp(name)).ok()?;
        Some(self.list[at].1)
    }

    /// Number of names in the table.
    pub(super) fn len(&self) -> usize {
        let gone = self.changed.iter().filter(|(name, now)| now.is_none() && self.listed(name).is_some()).count();
        let come = self.changed.iter().filter(|(name, now)| now.is_some() && self.listed(name).is_none()).count();
        self.list.len() + come - gone
    }
}

impl Exact<Ip> for Shared {
    type Loading = Entries;

    fn get(&self, name: &Name) -> Option<Ip> {
        self.changed.get(name).copied().unwrap_or_else(|| self.listed(name))
    }

    fn put(&mut self, name: Name, value: Ip) {
        if self.listed(&name) == Some(value) {
            self.changed.remove(&name);
        } else {
            self.changed.insert(name, Some(value));
        }
    }

    fn remove(&mut self, name: &Name) {
        if self.listed(name).is_some() {
            self.changed.insert(name.clone(), None);
        } else {
            self.changed.remove(name);
        }
    }

    fn begin(&self, n_names: usize) -> Entries {
        Vec::with_capacity(n_names)
    }

    fn load(&self, loading: &mut Entries, entries: Entries) {
        loading.extend(entries);
    }

    fn replace(&mut self, mut entries: Entries) {
        if !entries.is_sorted_by(|one, next| one.0 < next.0) {
            entries.sort_by(|one, other| one.0.cmp(&other.0));
            entries.dedup_by(|one, other| one.0 == other.0);
        }
        (self.list, self.changed) = self.shelf.put(entries);
    }

    fn for_each(&self, each: &mut dyn FnMut(&Name, Ip)) {
        let kept = self.list.iter().filter(|(name, _)| !self.changed.contains_key(name));
        kept.for_each(|(name, ip)| each(name, *ip));
        self.changed.iter().for_each(|(name, now)| {
            if let Some(ip) = now {
                each(name, *ip);
            }
        });
    }
}

/// The tables of a simulated switch.
pub(super) struct Held {
    pub(super) valid: Shared,
    pub(super) local: HashMap<Name, PortId>,
}

impl Held {
    pub(super) fn new(shelf: &Shelf) -> Held {
        let valid = Shared { shelf: shelf.clone(), list: Rc::default(), changed: HashMap::new() };
        Held { valid, local: HashMap::new() }
    }
}

impl Tables for Held {
    type Valid = Shared;
    type Local = HashMap<Name, PortId>;
    fn valid(&mut self) -> &mut Shared {
        &mut self.valid
    }
    fn local(&mut self) -> &mut HashMap<Name, PortId> {
        &mut self.local
    }
    fn shared(&self) -> (&Shared, &HashMap<Name, PortId>) {
        (&self.valid, &self.local)
    }
    fn set_actions(&mut self, _: &[Action]) {}
    fn fib_replaced(&mut self, _: NameKind, _: &Hasher, _: &dyn Table) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use lookup::hash::Rng;
    use lookup::testkit;

    fn name(i: u64) -> Name {
        Name::from_bytes(NameKind::Teid, &(i as u32).to_be_bytes()).unwrap()
    }

    #[test]
    fn shared_tables_answer_like_maps() {
        let mut rng = Rng::new(testkit::seed());
        let shelf = Shelf::default();
        let mut tables: Vec<(Shared, HashMap<Name, Ip>)> =
            (0..4).map(|_| (Held::new(&shelf).valid, HashMap::new())).collect();
        for _ in 0..4_000 {
            let from = rng.below(4) as usize;
            let (table, map) = &mut tables[rng.below(4) as usize];
            let (one, ip) = (name(rng.below(60)), (rng.below(2) == 0).then(|| IpAddr::from([10, 0, 0, 1])));
            match rng.below(20) {
                0..12 => {
                    table.put(one.clone(), ip);
                    map.insert(one, ip);
                }
                12..18 if map.remove(&one).is_some() => table.remove(&one),
                18 => {
                    let (mut entries, copy) = (Vec::new(), tables[from].1.clone());
                    tables[from].0.for_each(&mut |name, ip| entries.push((name.clone(), ip)));
                    assert_eq!(entries.len(), copy.len());
                    let (table, map) = &mut tables[rng.below(4) as usize];
                    table.replace_with(entries);
                    *map = copy;
                }
                _ => {}
            }
            for (table, map) in &tables {
                let at = name(rng.below(60));
                assert_eq!(table.get(&at), Exact::get(map, &at));
                assert_eq!(table.len(), map.len());
            }
        }
    }

    #[test]
    fn equal_tables_share_their_list() {
        let shelf = Shelf::default();
        let entries: Entries = (0..100).map(|i| (name(i), None)).collect();
        let mut tables: Vec<Shared> = (0..3).map(|_| Held::new(&shelf).valid).collect();
        tables.iter_mut().for_each(|table| table.replace_with(entries.clone()));
        let mut less = entries.clone();
        less.remove(7);
        tables[2].replace_with(less);
        assert!(tables.windows(2).all(|pair| Rc::ptr_eq(&pair[0].list, &pair[1].list)));
        assert_eq!(tables.iter().map(Shared::len).collect::<Vec<_>>(), [100, 100, 99]);
    }
}
