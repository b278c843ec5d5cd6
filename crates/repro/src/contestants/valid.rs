//! The exact check of a gateway: whether a name is valid, from whole names ([`dataplane::exact`]).
//!
//! It distinguishes members from others, and stores no values. So it takes part with values of one bit, of which there is one.

use ::lookup::base::marked::Searches;
use ::lookup::base::prefetch::BURST;
use ::lookup::hash::{Digest, Hasher};
use ::lookup::publish::ring::Ring;
use dataplane::exact::{ExactTable, ExactWriter};
use dataplane::parse::Names;
use fib::name::{Name, NameKind};

use super::{Burst, Contestant, Input, Kind, Reader};
use crate::BenchError;

pub(super) const KIND: Kind = Kind {
    name: "valid-names",
    about: "the exact check of a gateway: whole MAC addresses, members only (needs --value-bits 1)",
    build,
    default: false,
};

struct Valid {
    writer: ExactWriter,
    hasher: Hasher,
}

fn build(input: &Input<'_>) -> Result<Box<dyn Contestant>, BenchError> {
    if input.value_bits != 1 || input.name_len != 6 {
        let reason = "it only tells which MAC addresses are valid; use --names mac --value-bits 1";
        return Err(input.build_error(KIND.name, reason));
    }
    let hasher = input.hasher();
    let names = input.names.iter().map(|name| Name::from_bytes(NameKind::Mac, &name.to_le_bytes()[..6]));
    let names: Result<Vec<Name>, _> = names.collect();
    let names = names.map_err(|error| input.build_error(KIND.name, error))?;
    let mut writer = ExactWriter::with_capacity(NameKind::Mac, hasher.clone(), names.len());
    for name in &names {
        writer.put(name, 0);
    }
    Ok(Box::new(Valid { writer, hasher }))
}

impl Contestant for Valid {
    fn size_bits(&self) -> u64 {
        8 * self.writer.table().size_bytes() as u64
    }

    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(ValidReader {
            table: self.writer.table(),
            hasher: &self.hasher,
            names: Names::default(),
            in_flight: Ring::new(|_| ([Digest(0); BURST], Searches::default())),
        })
    }
}

struct ValidReader<'a> {
    table: &'a ExactTable,
    hasher: &'a Hasher,
    names: Names,
    in_flight: Ring<([Digest; BURST], Searches)>,
}

impl Burst for ValidReader<'_> {
    #[inline]
    fn lookup(&mut self, names: &[u64], values: &mut [u64]) {
        for (names, values) in names.chunks(BURST).zip(values.chunks_mut(BURST)) {
            self.begin(names);
            self.finish(names, values);
        }
    }

    fn has_phases(&self) -> bool {
        true
    }

    #[inline]
    fn begin(&mut self, names: &[u64]) {
        let (digests, searches) = self.in_flight.push();
        let digests = &mut digests[..names.len()];
        self.hasher.digest_words(names, 6, digests);
        self.table.begin(digests, searches);
    }

    #[inline]
    fn finish(&mut self, names: &[u64], values: &mut [u64]) {
        let (digests, searches) = self.in_flight.pop();
        self.names.set_words(names, 6);
        self.table.advance(&self.names, digests, searches);
        let members = self.table.finish(&self.names, digests, searches);
        for (i, value) in values.iter_mut().enumerate() {
            *value = u64::from(members >> i & 1);
        }
    }
}
