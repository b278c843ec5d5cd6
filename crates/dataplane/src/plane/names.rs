//! The exact tables as the replica writes them: valid names with their IP addresses, and local names with their ports.

use super::Shared;
use crate::exact::{Addresses, Entries, ExactTable, ExactWriter, LoadingEntries, Others, value_of_address};
use crate::kernel::Kernel;
use fib::action::PortId;
use fib::name::{Name, NameKind};
use fib::replica::Exact;
use lookup::hash::Hasher;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

/// The names that hosts may send to, with the IP addresses of those that have one.
///
/// Names that frames can carry are in an exact table, and their addresses are beside it, where the answers to ARP and ND
/// come from. Other names are in maps.
pub struct ValidNames<T> {
    shared: Arc<Shared<T>>,
    exact: ExactWriter,
    others: Arc<Others<Option<IpAddr>>>,
}

/// Valid names that will replace all others.
#[derive(Debug)]
pub struct LoadingValid {
    exact: ExactWriter,
    addresses: Addresses,
    others: Vec<(Name, Option<IpAddr>)>,
}

impl LoadingValid {
    fn new(exact: ExactWriter) -> Self {
        Self { addresses: Addresses::new(exact.table().clone()), exact, others: Vec::new() }
    }

    fn put(&mut self, name: Name, ip: Option<IpAddr>) {
        if !self.exact.accepts(&name) {
            self.others.push((name, ip));
            return;
        }
        if let Some((slot, _)) = self.exact.slot_of(&name) {
            self.addresses.clear(slot);
        }
        if self.exact.put(&name, value_of_address(ip)).is_some() {
            self.addresses = self.addresses.moved(&self.exact);
        }
        if let (Some(ip), Some((slot, _))) = (ip, self.exact.slot_of(&name)) {
            self.addresses.set(slot, ip);
        }
    }
}

impl<T> ValidNames<T> {
    pub(super) fn new(shared: Arc<Shared<T>>, exact: ExactWriter) -> Self {
        Self { shared, exact, others: Arc::new(Others::new()) }
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.exact.len() + self.others.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of heap memory: of the table, of the names outside it, and of the addresses.
    pub fn heap_bytes(&self) -> (usize, usize) {
        let names = self.exact.table().size_bytes() + self.others.heap_bytes();
        (names, self.shared.neighbours.hosts().heap_bytes())
    }

    /// The names that are not in the table, for readers that ask for whole names.
    pub(crate) fn others(&self) -> &Arc<Others<Option<IpAddr>>> {
        &self.others
    }

    /// Changes the hasher, and the kind of names that frames carry. The names stay.
    pub(super) fn rekey(&mut self, kind: NameKind, hasher: &Hasher) -> Arc<ExactTable> {
        if kind == self.exact.kind() {
            self.exact.rekey(kind, hasher);
            self.move_addresses();
            return self.exact.table().clone();
        }
        let mut all = Vec::with_capacity(self.len());
        self.for_each(&mut |name, ip| all.push((name.clone(), ip)));
        self.exact.rekey(kind, hasher);
        let mut loading = self.begin(all.len());
        self.load(&mut loading, all);
        self.take(loading)
    }

    /// To be called after the names have got other slots.
    fn move_addresses(&self) {
        let moved = self.shared.neighbours.hosts().moved(&self.exact);
        self.shared.neighbours.replace_hosts(moved);
    }

    fn take(&mut self, loading: LoadingValid) -> Arc<ExactTable> {
        let LoadingValid { exact, addresses, others } = loading;
        self.exact = exact;
        self.others.replace(others);
        self.shared.neighbours.replace_hosts(addresses);
        self.exact.table().clone()
    }
}

impl<T> Exact<Option<IpAddr>> for ValidNames<T> {
    type Loading = LoadingValid;

    fn get(&self, name: &Name) -> Option<Option<IpAddr>> {
        match self.exact.slot_of(name) {
            Some((slot, _)) => Some(self.shared.neighbours.hosts().at(slot)),
            None => self.others.get(name),
        }
    }

    fn put(&mut self, name: Name, ip: Option<IpAddr>) {
        if !self.exact.accepts(&name) {
            self.others.put(name, ip);
            return;
        }
        if let Some((slot, _)) = self.exact.slot_of(&name) {
            self.shared.neighbours.hosts_mut().clear(slot);
        }
        let replacement = self.exact.put(&name, value_of_address(ip));
        if replacement.is_some() {
            self.move_addresses();
        }
        if let (Some(ip), Some((slot, _))) = (ip, self.exact.slot_of(&name)) {
            self.shared.neighbours.hosts_mut().set(slot, ip);
        }
        if let Some(table) = replacement {
            self.shared.publish(|plane| plane.valid = table);
        }
        // No route has to be forgotten: packets to a name that was not valid were dropped.
    }

    fn remove(&mut self, name: &Name) {
        match self.exact.slot_of(name) {
            Some((slot, _)) => {
                self.shared.neighbours.hosts_mut().clear(slot);
                self.exact.remove(name);
            }
            None => self.others.remove(name),
        }
        self.shared.changed();
    }

    fn begin(&self, n_names: usize) -> LoadingValid {
        LoadingValid::new(self.exact.like(n_names))
    }

    fn load(&self, loading: &mut LoadingValid, entries: Vec<(Name, Option<IpAddr>)>) {
        entries.into_iter().for_each(|(name, ip)| loading.put(name, ip));
    }

    fn replace(&mut self, mut loading: LoadingValid) {
        if !loading.exact.is_keyed_like(&self.exact) {
            let mut all = loading.others;
            for (slot, _) in loading.exact.table().live() {
                let name = loading.exact.table().name_at(slot);
                all.extend(name.map(|name| (name, loading.addresses.at(slot))));
            }
            loading = self.begin(all.len());
            self.load(&mut loading, all);
        }
        let table = self.take(loading);
        self.shared.publish(|plane| plane.valid = table);
    }

    fn for_each(&self, each: &mut dyn FnMut(&Name, Option<IpAddr>)) {
        let hosts = self.shared.neighbours.hosts();
        for (slot, _) in self.exact.table().live() {
            if let Some(name) = self.exact.table().name_at(slot) {
                each(&name, hosts.at(slot));
            }
        }
        self.others.for_each(each);
    }
    fn for_each_while(&self, each: &mut dyn FnMut(&Name, Option<IpAddr>) -> bool) {
        let (table, hosts) = (self.exact.table(), self.shared.neighbours.hosts());
        let is_last = |(slot, _)| table.name_at(slot).is_some_and(|name| !each(&name, hosts.at(slot)));
        if table.live().any(is_last) {
            return;
        }
        let mut goes_on = true;
        self.others.for_each(|name, ip| goes_on = goes_on && each(name, ip));
    }
}

/// The names of hosts at this switch, with their ports.
pub struct LocalNames<T> {
    shared: Arc<Shared<T>>,
    names: Entries<PortId>,
    /// The kernel, which also sends to these names.
    kernel: Option<Arc<Kernel>>,
    /// Number of times that a name changed.
    version: u64,
    /// The names that changed since all of them were replaced, the last [`RECENT`] changes at most, the newest last.
    recent: VecDeque<Name>,
}

/// Changes of local names that are remembered, for readers that check now and then.
const RECENT: usize = 1024;

impl<T> LocalNames<T> {
    pub(super) fn new(shared: Arc<Shared<T>>, names: Entries<PortId>, kernel: Option<Arc<Kernel>>) -> Self {
        Self { shared, names, kernel, version: 0, recent: VecDeque::new() }
    }

    /// Changes with each name.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The names that changed since this version, some of them more than once. None if that was too long ago.
    pub fn changed_since(&self, version: u64) -> Option<impl Iterator<Item = &Name>> {
        let n = usize::try_from(self.version.checked_sub(version)?).ok()?;
        Some(self.recent.range(self.recent.len().checked_sub(n)?..))
    }

    fn note(&mut self, name: &Name) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(name.clone());
        self.version += 1;
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The port of a name.
    pub fn port_of(&self, name: &Name) -> Option<PortId> {
        self.names.get(name)
    }

    /// Bytes of heap memory.
    pub fn heap_bytes(&self) -> usize {
        self.names.heap_bytes()
    }

    /// The names that are not in the table, for readers that ask for whole names.
    pub(crate) fn others(&self) -> &Arc<Others<PortId>> {
        self.names.others()
    }

    /// Changes the hasher, and the kind of names that frames carry. The names stay.
    pub(super) fn rekey(&mut self, kind: NameKind, hasher: &Hasher) -> Arc<ExactTable> {
        let table = self.names.rekey(kind, hasher);
        if let Some(kernel) = self.kernel.as_ref().filter(|kernel| kernel.lacks_local()) {
            self.names.for_each(&mut |name: &Name, port| kernel.put_local(name, Some(port)));
        }
        table
    }
}

impl<T> Exact<PortId> for LocalNames<T> {
    type Loading = LoadingEntries<PortId>;

    fn get(&self, name: &Name) -> Option<PortId> {
        self.names.get(name)
    }

    fn put(&mut self, name: Name, port: PortId) {
        self.note(&name);
        if let Some(kernel) = &self.kernel {
            kernel.put_local(&name, Some(port));
        }
        if let Some(table) = self.names.put(name, port) {
            self.shared.publish(|plane| plane.local = table);
        }
        self.shared.changed();
    }

    fn remove(&mut self, name: &Name) {
        self.note(name);
        if let Some(kernel) = &self.kernel {
            kernel.put_local(name, None);
        }
        self.names.remove(name);
        self.shared.changed();
    }

    fn begin(&self, n_names: usize) -> Self::Loading {
        self.names.begin(n_names)
    }

    fn load(&self, loading: &mut Self::Loading, entries: Vec<(Name, PortId)>) {
        self.names.load(loading, entries);
    }

    fn replace(&mut self, loading: Self::Loading) {
        self.version += 1;
        self.recent.clear();
        let table = self.names.replace(loading);
        if let Some(kernel) = &self.kernel {
            kernel.put_local_again(|name| self.names.get(name));
            self.names.for_each(&mut |name: &Name, port| kernel.put_local(name, Some(port)));
        }
        self.shared.publish(|plane| plane.local = table);
    }

    fn for_each(&self, each: &mut dyn FnMut(&Name, PortId)) {
        self.names.for_each(each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::Groups;
    use crate::mac::Mac;
    use crate::neighbours::Neighbours;
    use crate::plane::{PlaneWriter, ShownTo};
    use lookup::hash::{Family, Rng, SecretKey};
    use lookup::testkit;
    use std::collections::HashMap;

    #[test]
    fn whoever_looks_now_and_then_is_told_which_local_names_changed_since_or_that_nobody_remembers() {
        let (_, mut writer) = PlaneWriter::<()>::new(
            1,
            None,
            true,
            Neighbours::with_own(HashMap::new()),
            ShownTo::Nobody,
            Groups::default(),
            0,
        );
        let mac = |i: u64| Name::from_bytes(NameKind::Mac, &i.to_be_bytes()[2..]).unwrap();
        let local = writer.local();
        let changed =
            |local: &LocalNames<()>, since| local.changed_since(since).map(|names| names.cloned().collect::<Vec<_>>());
        assert_eq!(changed(local, 0), Some(vec![]));
        local.put(mac(1), PortId(1));
        local.put(mac(2), PortId(1));
        let since = local.version();
        local.remove(&mac(1));
        assert_eq!(changed(local, since), Some(vec![mac(1)]));
        assert_eq!(changed(local, 0), Some(vec![mac(1), mac(2), mac(1)]));
        assert_eq!(changed(local, since + 9), None, "a version that never was");
        (0..RECENT as u64).for_each(|i| local.put(mac(10 + i), PortId(2)));
        assert_eq!(changed(local, since), None);
        assert_eq!(changed(local, since + 1).map(|names| names.len()), Some(RECENT));
        let before = local.version();
        local.replace_with(vec![(mac(7), PortId(3))]);
        assert_eq!((changed(local, before), changed(local, local.version())), (None, Some(vec![])));
    }

    fn hasher(seed: u64) -> Hasher {
        Hasher::new(Family::default(), &SecretKey::from_seed(seed))
    }

    fn name(i: u64) -> Name {
        // Some names are not MAC addresses, so no frame of this network carries them.
        let (kind, len) = if i % 7 == 3 { (NameKind::Ipv4, 4) } else { (NameKind::Mac, 6) };
        Name::from_bytes(kind, &i.to_le_bytes()[..len]).unwrap()
    }

    fn ip(i: u64) -> Option<IpAddr> {
        match i % 5 {
            0 => None,
            1 | 2 => Some(IpAddr::from([10, 0, 0, i as u8])),
            _ => Some(IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, i as u16])),
        }
    }

    /// What ARP and ND answers must be: the last name that was given an address has it.
    #[derive(Default)]
    struct Oracle {
        names: HashMap<Name, Option<IpAddr>>,
        owners: HashMap<IpAddr, Mac>,
    }

    impl Oracle {
        fn remove(&mut self, name: &Name) {
            let mac: Option<Mac> = name.as_bytes().try_into().ok();
            if let Some(ip) = self.names.remove(name).flatten()
                && self.owners.get(&ip) == mac.as_ref()
            {
                self.owners.remove(&ip);
            }
        }

        fn put(&mut self, name: Name, ip: Option<IpAddr>) {
            self.remove(&name);
            if let (Some(ip), Ok(mac)) = (ip, Mac::try_from(name.as_bytes())) {
                self.owners.insert(ip, mac);
            }
            self.names.insert(name, ip);
        }
    }

    #[test]
    fn names_and_addresses_are_those_of_maps() {
        let mut rng = Rng::new(testkit::seed());
        let neighbours = Neighbours::with_own(HashMap::new());
        let (shared, mut writer) =
            PlaneWriter::<()>::new(1, None, false, neighbours, ShownTo::Nobody, Groups::default(), 0);
        let mut oracle = Oracle::default();
        for step in 0..6_000 {
            match rng.below(400) {
                0 => {
                    // A controller gives an address to one name of a table.
                    let entry = |i| (name(rng.below(90)), ip(i));
                    let entries: Vec<_> = (0..60).map(entry).collect();
                    oracle = Oracle::default();
                    entries.iter().for_each(|(name, ip)| oracle.put(name.clone(), *ip));
                    let mut loading = writer.valid().begin(rng.below(100) as usize);
                    let half = entries.len() / 2;
                    writer.valid().load(&mut loading, entries[..half].to_vec());
                    if rng.below(2) == 0 {
                        writer.set_table(NameKind::Mac, &hasher(step), || ());
                    }
                    writer.valid().load(&mut loading, entries[half..].to_vec());
                    writer.valid().replace(loading);
                }
                1 => writer.set_table(NameKind::Mac, &hasher(step), || ()),
                2..150 => {
                    let name = name(rng.below(90));
                    if oracle.names.contains_key(&name) {
                        writer.valid().remove(&name);
                    }
                    oracle.remove(&name);
                }
                _ => {
                    let (name, ip) = (name(rng.below(90)), ip(rng.below(60)));
                    writer.valid().put(name.clone(), ip);
                    oracle.put(name, ip);
                }
            }
            let (name, Some(ip)) = (name(rng.below(90)), ip(1 + rng.below(4) + 5 * rng.below(12))) else { continue };
            assert_eq!(Exact::get(writer.valid(), &name), oracle.names.get(&name).copied(), "step {step}, {name}");
            assert_eq!(shared.neighbours.get(ip), oracle.owners.get(&ip).copied(), "step {step}, {ip}");
            assert_eq!(shared.neighbours.len(), oracle.owners.len());
            if let Some((slot, _)) = writer.valid().exact.slot_of(&name) {
                let own = oracle.names.get(&name).copied().flatten();
                let leads_back = |ip: &IpAddr| oracle.owners.get(ip).is_some_and(|mac| mac[..] == *name.as_bytes());
                let got = shared.neighbours.hosts().leading_to(slot);
                assert_eq!(got, own.filter(leads_back), "step {step}, {name}");
            }
            assert_eq!(writer.valid().len(), oracle.names.len());
        }
        let mut all = HashMap::new();
        writer.valid().for_each(&mut |name, ip| _ = all.insert(name.clone(), ip));
        assert_eq!(all, oracle.names);
        // Other kinds of name have no ARP answers, and the names and their addresses stay.
        writer.set_table(NameKind::Ipv4, &hasher(1), || ());
        assert!(shared.neighbours.is_empty());
        assert!(oracle.names.iter().all(|(name, ip)| Exact::get(writer.valid(), name) == Some(*ip)));
        writer.set_table(NameKind::Mac, &hasher(2), || ());
        assert!(oracle.names.iter().all(|(name, ip)| Exact::get(writer.valid(), name) == Some(*ip)));
        assert_eq!(shared.neighbours.is_empty(), oracle.owners.is_empty());
    }

    #[test]
    fn a_name_costs_twelve_bytes_and_twelve_more_with_an_address() {
        let n = 200_000u32;
        for (with_address, bound) in [(false, 12), (true, 24)] {
            let neighbours = Neighbours::with_own(HashMap::new());
            let (_, mut writer) =
                PlaneWriter::<()>::new(1, None, false, neighbours, ShownTo::Nobody, Groups::default(), 0);
            let mut loading = writer.valid().begin(n as usize);
            for part in (0..n).collect::<Vec<_>>().chunks(10_000) {
                let ip = |i: &u32| with_address.then(|| IpAddr::from(i.to_be_bytes()));
                let entries = part
                    .iter()
                    .map(|i| (Name::from_bytes(NameKind::Mac, &u64::from(*i).to_le_bytes()[..6]).unwrap(), ip(i)));
                writer.valid().load(&mut loading, entries.collect());
            }
            writer.valid().replace(loading);
            let (names, addresses) = writer.valid().heap_bytes();
            assert!(names + addresses <= bound * n as usize, "{names} + {addresses} bytes for {n} names");
        }
    }
}
