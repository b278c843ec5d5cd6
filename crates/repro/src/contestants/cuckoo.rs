//! (2,4)-Cuckoo with full names, the FIB of CuckooSwitch, and Cuckoo Filtable, the FIB of CFW, through readers that
//! allow a concurrent writer.

use lookup::cuckoo::exact::{Cuckoo, CuckooQuery, Settings};
use lookup::cuckoo::filtable::{self, Filtable, FiltableQuery};
use lookup::hash::Hasher;
use lookup::traits::{Control, Query, Replicated};

use super::{Contestant, Hashed, Input, Kind, Whole};
use crate::BenchError;
use crate::names::value_of;

pub(super) const EXACT: Kind = Kind {
    name: "cuckoo",
    about: "(2,4)-Cuckoo with full names, as in CuckooSwitch, through a reader beside a writer",
    build,
    default: false,
};
pub(super) const FILTABLE: Kind = Kind {
    name: "cfw",
    about: "Cuckoo Filtable, the two levels of CFW: value and fingerprint in slots of 16 bits, or 32 for wide values",
    build: build_filtable,
    default: false,
};

fn build(input: &Input<'_>) -> Result<Box<dyn Contestant>, BenchError> {
    Ok(Box::new(Whole(query(input)?)))
}

/// The query half for an input.
pub(crate) fn query(input: &Input<'_>) -> Result<CuckooQuery<1>, BenchError> {
    let error = |error| input.build_error(EXACT.name, error);
    let n_names = input.names.len();
    let settings = Settings::new(input.name_len as u8, input.value_bits, n_names, input.family, &input.secret_key());
    let mut control = Cuckoo::<1>::with_capacity(settings, n_names);
    let entries: Vec<_> = input.names.iter().map(|&name| ([name], value_of(name, input.value_bits))).collect();
    control.insert_batch(&entries, &mut Vec::new()).map_err(error)?;
    Ok(control.export())
}

/// Settings of a Filtable for the values of an input: the fingerprint fills the slot. `None` if none fits.
pub(crate) fn filtable_settings(input: &Input<'_>, max_names: usize) -> Option<filtable::Settings> {
    let slot_bits = if input.value_bits <= 12 { 16 } else { 32 };
    let fingerprint_bits = u8::checked_sub(slot_bits, input.value_bits).filter(|&bits| bits >= 4)?;
    Some(filtable::Settings::new(input.value_bits, fingerprint_bits.min(30), max_names, &input.secret_key()))
}

struct Slots {
    query: FiltableQuery,
    hasher: Hasher,
    name_len: usize,
}

fn build_filtable(input: &Input<'_>) -> Result<Box<dyn Contestant>, BenchError> {
    let settings = filtable_settings(input, input.names.len()).ok_or_else(|| BenchError::Unavailable {
        contestant: FILTABLE.name,
        reason: format!("values of {} bits leave no room for a fingerprint in 32", input.value_bits),
    })?;
    let mut control = Filtable::with_capacity(settings, input.names.len());
    let inserted = control.insert_batch(&input.entries(), &mut Vec::new());
    inserted.map_err(|error| input.build_error(FILTABLE.name, error))?;
    Ok(Box::new(Slots { query: control.export(), hasher: input.hasher(), name_len: input.name_len }))
}

impl Contestant for Slots {
    fn size_bits(&self) -> u64 {
        self.query.size_bits()
    }

    fn reader(&self) -> Box<dyn super::Reader + '_> {
        Box::new(Hashed::new(self.query.reader(), &self.hasher, self.name_len))
    }
}
