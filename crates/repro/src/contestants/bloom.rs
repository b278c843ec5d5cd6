//! Bloom forwarders: a filter for each value, and an exact table of the names that the filters get wrong. A name of
//! value v belongs to port v + 1, so that values of 5 bits give the 32 ports of the paper.

use lookup::bloom_fib::{BloomFib, BloomFibQuery, Form, Policy, Reader, Settings};
use lookup::hash::{Digest, Hasher};
use lookup::traits::{Control, Query, Replicated};

use super::{Burst, Contestant, Input, Kind, MAX_BATCH};
use crate::BenchError;

/// The collision rate of the paper's figures, which determines the number of hash functions.
pub(super) const COLLISION_RATE: f64 = 0.01;
/// The false-positive rate of BUFFALO in the comparison of the Othello paper.
const FALSE_POSITIVES: f64 = 0.0001;

/// Maximum bits of a value.
pub(super) const MOST_BITS: u8 = 15;

pub(super) const BFW: Kind = Kind {
    name: "bfw",
    about: "Bloom forwarder as published: one filter after another for each name, to the first match",
    build: |input| build::<false>(input, BFW.name, Policy::bfw(COLLISION_RATE, n_ports(input)), Form::Separate),
    default: false,
};

pub(super) const BFW_BATCHED: Kind = Kind {
    name: "bfw-batched",
    about: "the same filters, read for a burst of names at once",
    build: |input| build::<true>(input, BFW_BATCHED.name, Policy::bfw(COLLISION_RATE, n_ports(input)), Form::Separate),
    default: false,
};

pub(super) const BUFFALO: Kind = Kind {
    name: "buffalo",
    about: "BUFFALO, false positives at most 0.01 %, k_max = 8, for a burst of names at once",
    build: |input| build::<true>(input, BUFFALO.name, Policy::buffalo(FALSE_POSITIVES, n_ports(input)), Form::Separate),
    default: false,
};

pub(super) const SLICED: Kind = Kind {
    name: "buffalo-sliced",
    about: "the same with the bits of all ports side by side: 8 reads a name; up to 5 bits a value",
    build: |input| build::<true>(input, SLICED.name, Policy::buffalo(FALSE_POSITIVES, n_ports(input)), Form::Sliced),
    default: false,
};

/// Settings of the Bloom forwarder for values that are the port numbers: none is 0, which means drop.
/// # Errors
/// The values are too wide.
pub(crate) fn bloom_settings(input: &Input<'_>) -> Result<Settings, String> {
    if input.value_bits > MOST_BITS {
        return Err(format!("values may have at most {MOST_BITS} bits here; use --value-bits {MOST_BITS}"));
    }
    let policy = Policy::bfw(COLLISION_RATE, (1 << input.value_bits) - 1);
    Ok(Settings::new(input.value_bits, input.names.len(), policy, Form::Separate, &input.secret_key()))
}

fn n_ports(input: &Input<'_>) -> usize {
    1 << input.value_bits.min(16)
}

/// A table; `BATCHED`: whether bursts are looked up at once.
struct Table<const BATCHED: bool> {
    query: BloomFibQuery,
    hasher: Hasher,
    name_len: usize,
    note: String,
}

fn build<const BATCHED: bool>(
    input: &Input<'_>,
    name: &str,
    policy: Policy,
    form: Form,
) -> Result<Box<dyn Contestant>, BenchError> {
    let most = if form == Form::Sliced { 5 } else { MOST_BITS };
    if input.value_bits > most {
        return Err(
            input.build_error(name, format_args!("values may have at most {most} bits here; use --value-bits {most}"))
        );
    }
    let settings = Settings::new(input.value_bits + 1, input.names.len(), policy, form, &input.secret_key());
    let mut control = BloomFib::new(settings);
    let entries: Vec<(Digest, u64)> = input.entries().into_iter().map(|(digest, value)| (digest, value + 1)).collect();
    control.insert_batch(&entries, &mut Vec::new()).map_err(|error| input.build_error(name, error))?;
    let (hashes, n_exceptions) = (control.plan().ports()[0].hashes, control.n_exceptions());
    let share = 100.0 * n_exceptions as f64 / entries.len() as f64;
    let note = format!("{} ports, {hashes} hash functions, {share:.2} % exceptions", control.plan().n_ports());
    let query = control.export();
    Ok(Box::new(Table::<BATCHED> { query, hasher: input.hasher(), name_len: input.name_len, note }))
}

impl<const BATCHED: bool> Contestant for Table<BATCHED> {
    fn size_bits(&self) -> u64 {
        self.query.size_bits()
    }

    fn reader(&self) -> Box<dyn super::Reader + '_> {
        let (hasher, name_len) = (self.hasher.clone(), self.name_len);
        Box::new(Pinning::<BATCHED> { reader: self.query.reader(), hasher, name_len })
    }

    fn note(&self) -> String {
        self.note.clone()
    }
}

/// A reader that is pinned once per burst, as in a worker of a switch.
struct Pinning<const BATCHED: bool> {
    reader: Reader,
    hasher: Hasher,
    name_len: usize,
}

impl<const BATCHED: bool> Burst for Pinning<BATCHED> {
    #[inline]
    fn lookup(&mut self, names: &[u64], values: &mut [u64]) {
        let mut digests = [Digest(0); MAX_BATCH];
        let digests = &mut digests[..names.len()];
        self.hasher.digest_words(names, self.name_len, digests);
        let pinned = self.reader.pin();
        if BATCHED {
            pinned.lookup_batch(digests, values);
        } else {
            digests.iter().zip(&mut *values).for_each(|(&digest, value)| *value = pinned.lookup(digest));
        }
        // The port of value v is v + 1.
        values.iter_mut().for_each(|value| *value = value.wrapping_sub(1));
    }
}
