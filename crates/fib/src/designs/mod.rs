//! FIB designs: the structures between a name and its action, and their answers for alien names.
//!
//! A design is a structure of `lookup` from name to action, selected by its name, with two declared policies: what an
//! alien name gets, and what a gateway holds that a core node does not. The controller's half is a skeleton of names
//! with one view per switch. The switch's half is a [`Table`], behind one virtual call per burst. One file per design;
//! `docs/how-to/add-a-fib-design.md` says how to add one.
//!
//! | module | what it is |
//! |---|---|
//! | `keys` | names as structures take them: digests, or whole |
//! | `control`, `shared` | the controller's half: what it promises, and the one implementation, for any skeleton |
//! | `table` | the switch's half: what it promises, and the one implementation, for any query structure |
//! | `rates` | the fingerprints that hold a wanted false-positive rate |
//! | `guard` | what can be put round a design that gives aliens any action |
//! | `parts` | parts of a table, compared with a report and put into messages |
//! | `checksum` | designs that recognise no alien, with a checksum of the name beside the action |
//! | `registry` | which designs this program has |
//! | the others | one design each |
//!
//! Here are the designs to choose from. The other designs of the papers are in the crate `papers`, which the laboratory
//! adds.
//!
//! With any design, gateways also hold all valid names exactly: they answer for hosts and refuse aliens at ingress.

mod cfw;
mod checksum;
mod concise;
mod control;
mod cuckoo;
mod guard;
mod keys;
mod line;
mod making;
mod ofw;
mod parts;
mod rates;
mod registry;
mod shared;
mod table;

#[cfg(test)]
pub(crate) use shared::no_renewals;

pub use cfw::{CFW, Cfw};
pub use checksum::{
    CHECKSUM_BITS, CONCISE_CHECKSUM, Checkable, Checksummed, LINE_CHECKSUM, LINE_FAST_CHECKSUM, LINE_SMALL_CHECKSUM,
};
pub use concise::{CONCISE, Othello};
pub use cuckoo::{CUCKOO, cuckoo_settings};
pub use guard::{Guard, GuardError};
pub use keys::{BURST, Burst, BurstNames, Key, NameLayout, NameList, StructureKey, max_keys, put_words};
pub use line::{LINE, LINE_FAST, LINE_SMALL, Line, LineFast, LineSmall};
pub use ofw::OFW;
pub use rates::RateError;
pub use registry::{DESIGNS, LABORATORY, UnknownDesign, add, all};
pub use table::{Reader, Table, TableError};

pub(crate) use control::{Emitted, FibControl, Lacking, ViewUpdates};
pub(crate) use registry::{is_elsewhere, where_it_is};

use crate::codec::{self, Input};
use crate::model::designs::{Demand, Figures};
use crate::name::{Name, NameKind};
use lookup::hash::{Family, Hasher, SecretKey};
use lookup::traits::{InsertError, RestoreError, Row, SettingsOf, Skeleton};
use shared::Shared;
use std::fmt;
use std::ops::RangeInclusive;
use table::Served;

/// A FIB design. [`Design::new`] has what most have in common.
pub struct Design {
    /// The name by which it is selected.
    pub name: &'static str,
    /// One line about it, which says when to choose it.
    pub summary: &'static str,
    /// Upper bound on the answers for aliens, when names have this many actions besides drop.
    pub aliens: fn(&Spec, u32) -> Aliens,
    /// Bits of a fingerprint that suit values of this many bits; 0 where names have none. A Bloom filter of b bits
    /// matches one alien in 2^b.
    pub fingerprint_bits: fn(u8) -> u8,
    /// Of fingerprints with at least this many bits, those that take the least memory, given bits of a value and actions.
    pub widened: fn(u8, u32, u8) -> u8,
    /// Bits that a fingerprint may have with values of this many bits.
    pub fingerprints: fn(u8) -> RangeInclusive<u8>,
    /// Whether every change rebuilds the whole structure: for few names, or names that hardly change.
    pub is_static: bool,
    /// Whether a lookup asks for one value after the other, so that each value in use costs.
    pub tries_values: bool,
    /// The share of aliens that get an action although the words of a table say that they pass, when names have this
    /// many actions besides drop. See [`Table::alien_rate`].
    pub past_words: fn(&Spec, u32) -> f64,
    /// What a table of this spec costs for a demand, by the equations of [`model`](crate::model).
    pub figures: fn(&Spec, &Demand) -> Figures,
    /// Its halves, which may depend on the kind of name.
    pub halves: fn(&Spec) -> &'static Halves,
}

impl Design {
    /// A design that gives aliens any action, has no fingerprints and takes changes of single names. Others say what they
    /// do differently: `Design { aliens: ..., ..Design::new(...) }`.
    pub const fn new(
        name: &'static str,
        summary: &'static str,
        halves: fn(&Spec) -> &'static Halves,
        figures: fn(&Spec, &Demand) -> Figures,
    ) -> Design {
        Design {
            name,
            summary,
            aliens: |_, _| Aliens::Arbitrary,
            fingerprint_bits: |_| 0,
            widened: |_, _, least| least,
            fingerprints: |_| 0..=0,
            is_static: false,
            tries_values: false,
            past_words: |_, _| 1.0,
            figures,
            halves,
        }
    }
}

/// A structure of `lookup` as a design uses it.
pub trait Structure {
    /// Its names, with places.
    type Skeleton: Skeleton<Payload = u32>;
    /// The settings of both halves.
    fn settings(spec: &Spec) -> SettingsOf<Self::Skeleton>;
}

/// The controller's half of a design, or why there is none.
type Made<E> = Result<Box<dyn FibControl>, E>;

/// Calls its argument for each name with its place. This way no caller has to list millions of names for a structure,
/// which makes a list of its own keys.
type Names<'n> = &'n dyn Fn(&mut dyn FnMut(Key<'_>, u32));

/// Makes the two halves of a design.
pub struct Halves {
    /// The controller's half, built from names with their places on this many threads.
    control: fn(&Spec, Names<'_>, usize) -> Made<InsertError>,
    /// The same from stored rows.
    restore: fn(&Spec, &[Row], Names<'_>) -> Made<RestoreError>,
    /// The switch's half, from an image.
    table: FromImage,
}

/// Makes the switch's half of a design from an image.
type FromImage = fn(&Spec, &[u8]) -> Result<Box<dyn Table>, TableError>;

impl Halves {
    /// The halves of a structure: `Shared` of its skeleton, and `Served` of its query.
    pub const fn of<S: Structure>() -> Halves
    where
        <S::Skeleton as Skeleton>::Key: StructureKey,
    {
        Halves {
            control: |spec, names, threads| Shared::<S::Skeleton>::build(spec, &S::settings(spec), names, threads),
            restore: |spec, rows, names| Shared::<S::Skeleton>::restore(spec, &S::settings(spec), rows, names),
            table: |spec, image| {
                Served::<<S::Skeleton as Skeleton>::Query>::from_image(spec.kind, &S::settings(spec), image)
            },
        }
    }
}

/// The halves of a structure of digests.
#[macro_export]
macro_rules! halves {
    ($structure:ty) => {
        |_| const { &$crate::designs::Halves::of::<$structure>() }
    };
}

/// The halves of a structure of whole names; its parameter is the width of names of the kind.
#[macro_export]
macro_rules! halves_by_width {
    ($structure:ident) => {
        |spec| match $crate::designs::NameLayout::of(spec.kind).width {
            1 => const { &$crate::designs::Halves::of::<$structure<1>>() },
            2 => const { &$crate::designs::Halves::of::<$structure<2>>() },
            5 => const { &$crate::designs::Halves::of::<$structure<5>>() },
            _ => const { &$crate::designs::Halves::of::<$structure<8>>() },
        }
    };
}

/// The answer of the FIB for a name that was never inserted, or whose tombstone is gone.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Aliens {
    /// Any action: the frame reaches some port, so gateways must refuse the name first.
    Arbitrary,
    /// Drop, except with this probability.
    DroppedBut {
        /// Expected share of alien names that get an action.
        rate: f64,
    },
    /// Drop.
    Dropped,
}

/// Everything that both halves of a table must agree on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    /// The design.
    pub design: &'static Design,
    /// Kind of the names.
    pub kind: NameKind,
    /// Family of the digests.
    pub family: Family,
    /// Their key.
    pub key: SecretKey,
    /// Bits of a value, 1 to 16.
    pub value_bits: u8,
    /// Bits of a fingerprint, where the design has them.
    pub fingerprint_bits: u8,
    /// Most names.
    pub max_names: usize,
}

impl Spec {
    /// A table of this design with a fingerprint that suits its values.
    pub fn new(
        design: &'static Design,
        kind: NameKind,
        family: Family,
        key: SecretKey,
        value_bits: u8,
        max_names: usize,
    ) -> Spec {
        let fingerprint_bits = (design.fingerprint_bits)(value_bits);
        Spec { design, kind, family, key, value_bits, fingerprint_bits, max_names }
    }

    /// The hasher of the names.
    pub fn hasher(&self) -> Hasher {
        Hasher::new(self.family, &self.key)
    }

    /// What names are and how they are hashed, as a table in memory says it: `docs/formats/table-in-memory.md`.
    pub fn names_in_memory(&self) -> [u64; 5] {
        let [kind, width] = self.kind.to_wire();
        let mut words = [0; 5];
        words[0] = u64::from_le_bytes([self.family.id(), kind, width, 0, 0, 0, 0, 0]);
        for (word, bytes) in words[1..].iter_mut().zip(self.key.as_bytes().chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        }
        words
    }

    /// The table in an image.
    /// # Errors
    /// [`TableError`].
    pub fn table(&self, image: &[u8]) -> Result<Box<dyn Table>, TableError> {
        ((self.design.halves)(self).table)(self, image)
    }

    /// The controller's half, of names with their places, built on this many threads.
    pub(crate) fn control(&self, names: Names<'_>, threads: usize) -> Made<InsertError> {
        ((self.design.halves)(self).control)(self, names, threads)
    }

    /// The controller's half, from stored rows.
    pub(crate) fn restored(&self, rows: &[Row], names: Names<'_>) -> Made<RestoreError> {
        ((self.design.halves)(self).restore)(self, rows, names)
    }

    /// A table of names with their values, without a network around it.
    /// # Errors
    /// [`InsertError`].
    pub fn build(&self, entries: &[(Key<'_>, u16)], threads: usize) -> Result<Box<dyn Table>, InsertError> {
        let largest = entries.iter().map(|(_, value)| *value).max().unwrap_or(0);
        let names = |each: &mut dyn FnMut(Key<'_>, u32)| {
            entries.iter().for_each(|(key, value)| each(*key, (*value).into()));
        };
        let control = self.control(&names, threads)?;
        let tables = control.export_many(&[(0..=largest).collect()])?;
        Ok(tables.into_iter().next().expect("one table was asked for"))
    }

    /// The answers for alien names, for any actions of names.
    pub fn aliens(&self) -> Aliens {
        self.aliens_of((1 << self.value_bits) - 1)
    }

    /// The answers when names have this many actions besides drop.
    pub fn aliens_of(&self, n_actions: u32) -> Aliens {
        (self.design.aliens)(self, n_actions)
    }

    /// What aliens get from a table with this spec in which names have `n_actions` actions besides drop: from the table as it
    /// is, where its words say so, and else at most.
    pub fn aliens_in(&self, table: &dyn Table, n_actions: u32) -> Aliens {
        match (self.aliens_of(n_actions), table.alien_rate()) {
            (Aliens::DroppedBut { .. }, Some(rate)) => {
                Aliens::DroppedBut { rate: rate * (self.design.past_words)(self, n_actions) }
            }
            (declared, _) => declared,
        }
    }

    /// Encodes design, kind, family, key, widths, most names.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_bytes(out, self.design.name.as_bytes());
        out.extend_from_slice(&self.kind.to_wire());
        out.push(self.family.id());
        out.extend_from_slice(self.key.as_bytes());
        out.push(self.value_bits);
        out.push(self.fingerprint_bits);
        codec::put_u64(out, self.max_names as u64);
    }

    pub(crate) fn decode(input: &mut Input<'_>) -> Result<Spec, codec::DecodeError> {
        let unknown = |field, got: u8| codec::DecodeError::Unknown { field, got: got.into() };
        let name = input.bytes()?;
        let design = all().find(|design| design.name.as_bytes() == name);
        let design = design
            .ok_or_else(|| codec::DecodeError::Design { name: crate::name::clip(&String::from_utf8_lossy(name)) })?;
        let kind = input.kind()?;
        let family = input.u8()?;
        let family = Family::from_id(family).map_err(|_| unknown("hash family", family))?;
        let key = SecretKey::from_bytes(input.array()?);
        let (value_bits, fingerprint_bits) = (input.u8()?, input.u8()?);
        if !(1..=16).contains(&value_bits) {
            return Err(unknown("bits of a value", value_bits));
        }
        let max_names = usize::try_from(input.u64()?).unwrap_or(usize::MAX);
        Spec::new(design, kind, family, key, value_bits, max_names).with_fingerprint(fingerprint_bits)
    }

    /// The same with a fingerprint of this many bits.
    /// # Errors
    /// [`DecodeError`](codec::DecodeError): the design has no such fingerprint with these values.
    pub fn with_fingerprint(self, fingerprint_bits: u8) -> Result<Spec, codec::DecodeError> {
        if (self.design.fingerprints)(self.value_bits).contains(&fingerprint_bits) {
            Ok(Spec { fingerprint_bits, ..self })
        } else {
            Err(codec::DecodeError::Unknown { field: "bits of a fingerprint", got: fingerprint_bits.into() })
        }
    }
}

impl PartialEq for Design {
    fn eq(&self, other: &Design) -> bool {
        self.name == other.name
    }
}

impl Eq for Design {}

impl fmt::Debug for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Display for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The names of a list with their digests.
pub fn keys<'a>(hasher: &Hasher, names: impl Iterator<Item = &'a Name>) -> Vec<Key<'a>> {
    names.map(|name| Key { digest: hasher.digest(name.as_bytes()), name }).collect()
}
