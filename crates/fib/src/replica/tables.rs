//! Where a replica keeps what it receives: a switch has its own tables, and tests have these.

use crate::action::{Action, PortId};
use crate::designs::{Spec, Table};
use crate::name::{Name, NameKind};
use lookup::hash::Hasher;
use std::collections::HashMap;
use std::net::IpAddr;

/// An exact table of the fast path, written by the replica alone.
pub trait Exact<V> {
    /// Entries that are on their way, and will replace all that are there.
    type Loading;
    /// The value of a name.
    fn get(&self, name: &Name) -> Option<V>;
    /// Puts a name, or changes its value.
    fn put(&mut self, name: Name, value: V);
    /// Removes an existing name.
    fn remove(&mut self, name: &Name);
    /// Starts without entries, and with room for about `n_names`. The served table stays until [`Exact::replace`].
    fn begin(&self, n_names: usize) -> Self::Loading;
    /// Adds entries to those on their way. Of equal names the last counts.
    fn load(&self, loading: &mut Self::Loading, entries: Vec<(Name, V)>);
    /// Replaces all entries with those that were on their way.
    fn replace(&mut self, loading: Self::Loading);
    /// Replaces all entries with these.
    fn replace_with(&mut self, entries: Vec<(Name, V)>) {
        let mut loading = self.begin(entries.len());
        self.load(&mut loading, entries);
        self.replace(loading);
    }
    /// Calls `each` for every entry, in any order.
    fn for_each(&self, each: &mut dyn FnMut(&Name, V));
    /// As [`Exact::for_each`], until `each` returns false.
    fn for_each_while(&self, each: &mut dyn FnMut(&Name, V) -> bool) {
        let mut goes_on = true;
        self.for_each(&mut |name, value| goes_on = goes_on && each(name, value));
    }
}

impl<V: Copy> Exact<V> for HashMap<Name, V> {
    type Loading = Self;
    fn get(&self, name: &Name) -> Option<V> {
        HashMap::get(self, name).copied()
    }
    fn put(&mut self, name: Name, value: V) {
        self.insert(name, value);
    }
    fn remove(&mut self, name: &Name) {
        HashMap::remove(self, name);
    }
    fn begin(&self, _: usize) -> Self {
        HashMap::new()
    }
    fn load(&self, loading: &mut Self, entries: Vec<(Name, V)>) {
        loading.extend(entries);
    }
    fn replace(&mut self, loading: Self) {
        *self = loading;
    }
    fn for_each(&self, each: &mut dyn FnMut(&Name, V)) {
        self.iter().for_each(|(name, value)| each(name, *value));
    }
}

/// The meaning of the values of a FIB.
#[derive(Clone, Copy, Debug)]
pub struct Meaning<'a> {
    /// The action of each value.
    pub actions: &'a [Action],
    /// False until the controller has said it: meanwhile all values drop.
    pub is_known: bool,
}

/// The tables that the fast path of a switch reads besides the FIB.
pub trait Tables {
    /// Holds the valid names.
    type Valid: Exact<Option<IpAddr>>;
    /// Holds the local names.
    type Local: Exact<PortId>;
    /// Valid names with their IP addresses: the ingress check of a gateway, and what ARP and ND answers are made of.
    fn valid(&mut self) -> &mut Self::Valid;
    /// Names attached to this switch, with their ports: the egress check.
    fn local(&mut self) -> &mut Self::Local;
    /// The same tables, read-only.
    fn shared(&self) -> (&Self::Valid, &Self::Local);
    /// Whether the valid names are those of the network, so that a name that is not among them does not exist. Called
    /// when it changes; at first they are not.
    fn valid_held(&mut self, held: bool) {
        let _ = held;
    }
    /// The action table changed; index 0 is drop.
    fn set_actions(&mut self, actions: &[Action]);
    /// The FIB in service changed: earlier answers may be wrong.
    fn fib_changed(&mut self) {}
    /// Another FIB replaced the old one: every worker needs a new [`reader`](Table::reader), and
    /// hashes names of this kind with this hasher.
    fn fib_replaced(&mut self, kind: NameKind, hasher: &Hasher, fib: &dyn Table);
    /// A FIB that has no reader yet: the chance to move it to where other programs can read it.
    fn show(&mut self, spec: &Spec, actions: Meaning<'_>, fib: &mut dyn Table) {
        let _ = (spec, actions, fib);
    }
    /// The actions of the FIB in service changed: the chance to tell other programs.
    fn show_actions(&mut self, actions: Meaning<'_>, fib: &mut dyn Table) {
        let _ = (actions, fib);
    }
}

/// Tables in plain maps, for tests and tools.
#[derive(Clone, Debug, Default)]
pub struct MemoryTables {
    /// Valid names.
    pub valid: HashMap<Name, Option<IpAddr>>,
    /// Local names.
    pub local: HashMap<Name, PortId>,
}

impl Tables for MemoryTables {
    type Valid = HashMap<Name, Option<IpAddr>>;
    type Local = HashMap<Name, PortId>;
    fn valid(&mut self) -> &mut Self::Valid {
        &mut self.valid
    }
    fn local(&mut self) -> &mut Self::Local {
        &mut self.local
    }
    fn shared(&self) -> (&Self::Valid, &Self::Local) {
        (&self.valid, &self.local)
    }
    fn set_actions(&mut self, _: &[Action]) {}
    fn fib_replaced(&mut self, _: NameKind, _: &Hasher, _: &dyn Table) {}
}
