//! Structures that are built once: Bloomier filter, SetSep, orthogonal Bloom filters, binary search.

use lookup::hash::{Digest, Hasher};
use lookup::static_map::{Bloomier, Orthogonal, SetSep, Settings, Sorted, StaticMap};
use lookup::traits::Build;

use super::{Burst, Contestant, Input, Kind, MAX_BATCH};
use crate::BenchError;
use crate::names::value_of;

pub(super) const BLOOMIER: Kind = Kind {
    name: "bloomier",
    about: "Bloomier filter, three cells a lookup; static",
    build: |input| digests::<Bloomier>("bloomier", input),
    default: false,
};
pub(super) const SETSEP: Kind = Kind {
    name: "setsep",
    about: "SetSep, as in ScaleBricks: a hash function a group and bit, found by trying; static",
    build: |input| digests::<SetSep>("setsep", input),
    default: false,
};
pub(super) const OBF: Kind = Kind {
    name: "obf",
    about: "orthogonal Bloom filters, one a bit of the value, and an exact table of their errors; static",
    build: |input| digests::<Orthogonal>("obf", input),
    default: false,
};
pub(super) const SORTED: Kind = Kind {
    name: "sorted",
    about: "binary search over full names; static",
    build: |input| {
        let entries: Vec<_> = input.names.iter().map(|&name| ([name], value_of(name, input.value_bits))).collect();
        let map = Sorted::<1>::build(&settings(input), &entries, input.build_threads);
        Ok(Box::new(Names(map.map_err(|error| input.build_error("sorted", error))?)))
    },
    default: false,
};

fn settings(input: &Input<'_>) -> Settings {
    Settings::new(input.value_bits, &input.secret_key())
}

fn digests<M: StaticMap<Key = Digest> + Sync + 'static>(
    name: &str,
    input: &Input<'_>,
) -> Result<Box<dyn Contestant>, BenchError> {
    let map = M::build(&settings(input), &input.entries(), input.build_threads);
    let map = map.map_err(|error| input.build_error(name, error))?;
    Ok(Box::new(Digests { map, hasher: input.hasher(), name_len: input.name_len }))
}

struct Digests<M> {
    map: M,
    hasher: Hasher,
    name_len: usize,
}

impl<M: StaticMap<Key = Digest> + Sync> Contestant for Digests<M> {
    fn size_bits(&self) -> u64 {
        self.map.size_bits()
    }

    fn reader(&self) -> Box<dyn super::Reader + '_> {
        Box::new(self)
    }
}

impl<M: StaticMap<Key = Digest>> Burst for &Digests<M> {
    #[inline]
    fn lookup(&mut self, names: &[u64], values: &mut [u64]) {
        let mut digests = [Digest(0); MAX_BATCH];
        let digests = &mut digests[..names.len()];
        self.hasher.digest_words(names, self.name_len, digests);
        self.map.lookup_batch(digests, values);
    }
}

struct Names(Sorted<1>);

impl Contestant for Names {
    fn size_bits(&self) -> u64 {
        self.0.size_bits()
    }

    fn reader(&self) -> Box<dyn super::Reader + '_> {
        Box::new(self)
    }
}

impl Burst for &Names {
    #[inline]
    fn lookup(&mut self, names: &[u64], values: &mut [u64]) {
        self.0.lookup_batch(names.as_chunks().0, values);
    }
}
