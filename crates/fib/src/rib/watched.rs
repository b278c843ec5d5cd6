//! The names of some tenants, for those who ask for them again and again: they need not look at all names.
//!
//! Cost: nothing for a name of another tenant; for one of these 4 to 12 bytes, and O(log n) when it comes, moves or goes. To begin with
//! other tenants takes a pass over all names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

/// Versions are of all RIBs of this process together, so one that takes another's place has others.
static VERSIONS: AtomicU64 = AtomicU64::new(1);

fn next_version() -> u64 {
    VERSIONS.fetch_add(1, Ordering::Relaxed)
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Watched {
    tenants: BTreeMap<u32, OfTenant>,
}

#[derive(Debug)]
struct OfTenant {
    version: u64,
    numbers: BTreeSet<u32>,
}

impl Watched {
    /// Begins with these tenants, if they are others than before. `all` are the tenant and the number of each name.
    pub(super) fn begin(&mut self, tenants: &BTreeSet<u32>, all: impl Iterator<Item = (u32, u32)>) {
        if self.tenants.keys().eq(tenants) {
            return;
        }
        let empty = |tenant: &u32| (*tenant, OfTenant { version: next_version(), numbers: BTreeSet::new() });
        self.tenants = tenants.iter().map(empty).collect();
        for (tenant, number) in all {
            if let Some(of_tenant) = self.tenants.get_mut(&tenant) {
                of_tenant.numbers.insert(number);
            }
        }
    }

    /// A name comes to a tenant.
    #[inline]
    pub(super) fn enter(&mut self, tenant: u32, number: u32) {
        if let Some(of_tenant) = self.tenants.get_mut(&tenant) {
            of_tenant.version = next_version();
            of_tenant.numbers.insert(number);
        }
    }

    /// A name leaves its tenant, or moves.
    #[inline]
    pub(super) fn leave(&mut self, tenant: u32, number: u32) {
        if let Some(of_tenant) = self.tenants.get_mut(&tenant) {
            of_tenant.version = next_version();
            of_tenant.numbers.remove(&number);
        }
    }

    /// Another number for each tenant whose names changed.
    pub(super) fn versions(&self) -> BTreeMap<u32, u64> {
        self.tenants.iter().map(|(tenant, of_tenant)| (*tenant, of_tenant.version)).collect()
    }

    /// The numbers of the names of a tenant; none of one that is not watched.
    pub(super) fn numbers(&self, tenant: u32) -> Option<&BTreeSet<u32>> {
        self.tenants.get(&tenant).map(|of_tenant| &of_tenant.numbers)
    }

    /// Bytes of heap memory, roughly: a node of a tree has room for eleven numbers.
    pub(super) fn heap_bytes(&self) -> usize {
        self.tenants.values().map(|of_tenant| of_tenant.numbers.len() * 8).sum()
    }
}
