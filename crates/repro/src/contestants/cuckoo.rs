//! (2,4)-Cuckoo with full names, the FIB of CuckooSwitch, through a reader beside a writer.

use lookup::cuckoo::exact::{Cuckoo, CuckooQuery, Reader, Settings};
use lookup::traits::{Control, Query};

use super::{Burst, Contestant, Input, Kind};
use crate::BenchError;
use crate::names::value_of;

pub(super) const KIND: Kind = Kind {
    name: "cuckoo",
    about: "(2,4)-Cuckoo with full names, as in CuckooSwitch, through a reader beside a writer",
    build,
    default: false,
};

struct Table(CuckooQuery<1>);

fn build(input: &Input<'_>) -> Result<Box<dyn Contestant>, BenchError> {
    let error = |error| input.build_error(KIND.name, error);
    let n_names = input.names.len();
    let settings = Settings::new(input.name_len as u8, input.value_bits, n_names, input.family, &input.secret_key());
    let mut control = Cuckoo::<1>::with_room(settings, n_names);
    let entries: Vec<_> = input.names.iter().map(|&name| ([name], value_of(name, input.value_bits))).collect();
    control.insert_batch(&entries, &mut Vec::new()).map_err(error)?;
    Ok(Box::new(Table(control.export())))
}

impl Contestant for Table {
    fn size_bits(&self) -> u64 {
        self.0.size_bits()
    }

    fn reader(&self) -> Box<dyn super::Reader + '_> {
        Box::new(Pinning(self.0.reader()))
    }
}

/// A reader that is pinned once a burst, as a worker of a switch does it.
struct Pinning(Reader<1>);

impl Burst for Pinning {
    #[inline]
    fn lookup(&mut self, names: &[u64], values: &mut [u64]) {
        self.0.pin().lookup_batch(names.as_chunks().0, values);
    }
}
