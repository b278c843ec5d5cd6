//! A hash table with full names: hashbrown, the table behind Rust's `HashMap`, with its default hasher (foldhash).
//!
//! Cost: one group of control bytes, then one 16-byte slot; 19 to 39 bytes per name, depending on the power of two.
//! Alien names are recognised. Lookups of a burst run one after another: the table offers no prefetch.

use hashbrown::HashMap;

use super::{Burst, Contestant, Input, Kind, Reader};
use crate::BenchError;
use crate::names::value_of;

pub(super) const KIND: Kind = Kind {
    name: "hashbrown",
    about: "hash table with full names (Rust's HashMap with the foldhash hasher)",
    build,
    default: true,
};

struct Table(HashMap<u64, u64>);

fn build(input: &Input<'_>) -> Result<Box<dyn Contestant>, BenchError> {
    let mut map = HashMap::with_capacity(input.names.len());
    map.extend(input.names.iter().map(|&name| (name, value_of(name, input.value_bits))));
    Ok(Box::new(Table(map)))
}

impl Contestant for Table {
    fn size_bits(&self) -> u64 {
        8 * self.0.allocation_size() as u64
    }

    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(&self.0)
    }
}

impl Burst for &HashMap<u64, u64> {
    fn lookup(&mut self, names: &[u64], values: &mut [u64]) {
        for (value, name) in values.iter_mut().zip(names) {
            *value = self.get(name).copied().unwrap_or(0);
        }
    }
}
