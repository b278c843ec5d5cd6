//! A stand-alone FIB, without network and controller: built from a list, written to a file, read back, looked up in.
//!
//! ```text
//!  0  "FIBULAF2"             8
//!  8  names                  8
//! 16  design                 4 + its length
//!  …  kind of the names      2   name::NameKind::to_wire
//!  …  hash family and key    1 + 32
//!  …  bits of a value        1
//!  …  bits of a fingerprint  1
//!  …  most names             8
//!  …  actions                4 + each, as in codec: index 0 is drop
//!  …  table                  4 + its length, the image of the design's table
//!  …  fingerprint            8   of everything before
//! ```
//! The file carries the hash key: anyone who has it can choose names that collide.
//!
//! Cost: about 80 ns per name to build a Concise on one thread, digests included.
//! Limits: 65,535 actions besides drop, 4 GiB of table.

use crate::action::Action;
use crate::codec::{DecodeError, Input, put_action, put_bytes, put_u32, put_u64};
use crate::designs::{self, Aliens, BURST, Burst, Design, NameList, RateError, Reader, Spec, Table, TableError};
use crate::messages::fingerprint;
use crate::name::{Name, NameKind};
use lookup::base::bytes::BytesError;
use lookup::hash::{Digest, Family, Hasher, SecretKey};
use lookup::traits::InsertError;
use std::collections::HashMap;

/// How a file begins.
pub const MAGIC: &[u8] = b"FIBULAF2";
/// Other keys tried when two names share a digest: each fails with a probability of n^2 / 2^65.
const MAX_KEYS: usize = 4;

/// The widths of a table's values and fingerprints. Those that are not given suit the design and the actions.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Widths {
    /// The share of alien names that may get an action, from which the bits of a fingerprint follow.
    pub rate: Option<f64>,
    /// Bits of a value.
    pub value_bits: Option<u8>,
}

/// A FIB from names of one kind to actions.
pub struct Fib {
    spec: Spec,
    n_names: u64,
    actions: Vec<Action>,
    hasher: Hasher,
    table: Box<dyn Table>,
}

impl Fib {
    /// Builds the FIB of `entries`, under a random key.
    /// # Errors
    /// As [`Fib::build_as`].
    pub fn build(
        design: &'static Design,
        kind: NameKind,
        family: Family,
        threads: usize,
        entries: &[(Name, Action)],
    ) -> Result<Fib, FibError> {
        Fib::build_as(design, kind, family, threads, Widths::default(), entries)
    }

    /// The same with these widths.
    /// # Errors
    /// [`FibError`]: a name of another kind or given twice, too many actions, or a rate that the design cannot hold.
    pub fn build_as(
        design: &'static Design,
        kind: NameKind,
        family: Family,
        threads: usize,
        widths: Widths,
        entries: &[(Name, Action)],
    ) -> Result<Fib, FibError> {
        let mut actions = vec![Action::Drop];
        let mut index: HashMap<Action, usize> = HashMap::from([(Action::Drop, 0)]);
        let mut values = Vec::with_capacity(entries.len());
        for (name, action) in entries {
            if name.kind() != kind {
                return Err(FibError::WrongKind { name: name.clone(), got: name.kind(), expected: kind });
            }
            let next = actions.len();
            values.push(*index.entry(*action).or_insert_with(|| {
                actions.push(*action);
                next
            }));
        }
        if actions.len() > 1 << 16 {
            return Err(FibError::TooManyActions { got: actions.len() - 1, max: (1 << 16) - 1 });
        }
        let values: Vec<u16> = values.into_iter().map(|value| value as u16).collect();
        let n_actions = actions.len() - 1;
        let needed = (actions.len().next_power_of_two().trailing_zeros() as u8).max(1);
        let value_bits = widths.value_bits.unwrap_or(needed);
        if value_bits < needed || value_bits > 16 {
            return Err(FibError::ValueBits { got: value_bits, needed, n_actions });
        }
        let mut tries = 0;
        loop {
            let spec = Spec::new(design, kind, family, SecretKey::random(), value_bits, entries.len().max(1));
            let spec = match widths.rate {
                Some(rate) => spec.with_rate(rate, n_actions as u32)?,
                None => spec,
            };
            let hasher = spec.hasher();
            let keys = designs::keys(&hasher, entries.iter().map(|(name, _)| name));
            let keys: Vec<_> = keys.into_iter().zip(values.iter().copied()).collect();
            match spec.build(&keys, threads) {
                Ok(table) => {
                    let n_names = entries.len() as u64;
                    return Ok(Fib { spec, n_names, actions, hasher, table });
                }
                Err(InsertError::DuplicateDigest { digest }) => {
                    let mut of = keys.iter().filter(|(key, _)| key.digest.0 == digest).map(|(key, _)| key.name);
                    if let (Some(one), Some(other)) = (of.next(), of.next())
                        && one == other
                    {
                        return Err(FibError::DuplicateName { name: one.clone() });
                    }
                }
                Err(error) => return Err(error.into()),
            }
            tries += 1;
            if tries == MAX_KEYS {
                return Err(FibError::Unlucky { tries });
            }
        }
    }

    /// The design.
    pub fn design(&self) -> &'static Design {
        self.spec.design
    }

    /// Kind of the names.
    pub fn kind(&self) -> NameKind {
        self.spec.kind
    }

    /// Number of names that it was built from; it does not store them.
    pub fn n_names(&self) -> u64 {
        self.n_names
    }

    /// The distinct actions; the first is drop.
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }

    /// Everything that the table was built with, except the names.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// What a lookup of an alien name gives: of the table as it is where its words say so, and else at most.
    pub fn aliens(&self) -> Aliens {
        self.spec.aliens_in(&*self.table, self.actions.len() as u32 - 1)
    }

    /// Family of the digests.
    pub fn family(&self) -> Family {
        self.hasher.family()
    }

    /// Memory that lookups need, in bits, without the action table.
    pub fn size_bits(&self) -> u64 {
        self.table.size_bits()
    }

    /// The action of a name. For an alien it is what [`Spec::aliens`] says.
    pub fn lookup(&self, name: &Name) -> Action {
        let mut action = Action::Drop;
        self.lookup_batch(&[name], |_, found| action = found);
        action
    }

    /// Calls `each` with the number of every name and its action.
    pub fn lookup_batch(&self, names: &[&Name], mut each: impl FnMut(usize, Action)) {
        let mut start = 0;
        for names in names.chunks(BURST) {
            let (mut digests, mut values) = ([Digest(0); BURST], [0; BURST]);
            for (digest, name) in digests.iter_mut().zip(names) {
                *digest = self.hasher.digest(name.as_bytes());
            }
            let burst = Burst { digests: &digests[..names.len()], names: &NameList(names) };
            self.table.lookup_batch(&burst, &mut values[..names.len()]);
            for (i, value) in values[..names.len()].iter().enumerate() {
                each(start + i, self.actions.get(*value as usize).copied().unwrap_or(Action::Drop));
            }
            start += names.len();
        }
    }

    /// Access to its table for another thread. Bursts have digests of [`Spec::hasher`]; values are numbers of
    /// [`Fib::actions`].
    pub fn reader(&self) -> Box<Reader> {
        self.table.reader()
    }

    /// Its table as bytes, from which [`Spec::table`] makes the same table.
    pub fn image(&self) -> Vec<u8> {
        self.table.image()
    }

    /// The FIB as the bytes of a file.
    pub fn encode(&self) -> Vec<u8> {
        encode(&self.spec, self.n_names, &self.actions, &self.table.image())
    }

    /// Decodes the FIB in the bytes of a file.
    /// # Errors
    /// [`FibError`] for anything but what [`Fib::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<Fib, FibError> {
        let Content { spec, n_names, actions, image } = Content::decode(bytes)?;
        let table = spec.table(image)?;
        let hasher = spec.hasher();
        Ok(Fib { spec, n_names, actions, hasher, table })
    }
}

/// The bytes of a file, from what it says and the image of its table.
pub fn encode(spec: &Spec, n_names: u64, actions: &[Action], image: &[u8]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    put_u64(&mut out, n_names);
    spec.encode(&mut out);
    put_u32(&mut out, actions.len() as u32);
    actions.iter().for_each(|action| put_action(&mut out, action));
    put_bytes(&mut out, image);
    let checksum = fingerprint(&out);
    put_u64(&mut out, checksum);
    out
}

/// The contents of a file. Its table is not decoded yet.
pub struct Content<'a> {
    /// The parameters that the table was built with.
    pub spec: Spec,
    /// Number of names.
    pub n_names: u64,
    /// What values mean; the first is drop.
    pub actions: Vec<Action>,
    /// The table, as [`Spec::table`] takes it.
    pub image: &'a [u8],
}

impl<'a> Content<'a> {
    /// Decodes all but the table.
    /// # Errors
    /// [`FibError`]: no such file, or changed bytes.
    pub fn decode(bytes: &'a [u8]) -> Result<Content<'a>, FibError> {
        let content = bytes.strip_prefix(MAGIC).ok_or(FibError::NotAFib)?;
        let (_, checksum) = content.split_last_chunk::<8>().ok_or(FibError::Damaged)?;
        if fingerprint(&bytes[..bytes.len() - 8]) != u64::from_le_bytes(*checksum) {
            return Err(FibError::Damaged);
        }
        let mut input = Input::raw(&content[..content.len() - 8]);
        let (n_names, spec) = (input.u64()?, Spec::decode(&mut input)?);
        let (actions, image) = (input.actions()?, input.bytes()?);
        input.end()?;
        Ok(Content { spec, n_names, actions, image })
    }
}

/// Why a FIB was not built or decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum FibError {
    /// A FIB holds names of one kind.
    #[error("`{name}` is a {got} name in a list of {expected} names")]
    WrongKind { name: Name, got: NameKind, expected: NameKind },
    /// The same name twice.
    #[error("`{name}` is in the list twice: remove one of the two")]
    DuplicateName { name: Name },
    /// Over the limit.
    #[error("{got} distinct actions, {max} are possible")]
    TooManyActions { got: usize, max: usize },
    /// Values of another width are needed.
    #[error(
        "values of {got} bits do not suit drop and {n_actions} actions: give {needed} to 16, or leave the width out"
    )]
    ValueBits { got: u8, needed: u8, n_actions: usize },
    /// The design cannot hold the wanted rate.
    #[error(transparent)]
    Rate(#[from] RateError),
    /// Two names shared a digest under every key tried.
    #[error("two names had one digest under each of {tries} random keys: choose another hash family")]
    Unlucky { tries: usize },
    /// The table could not be built.
    #[error(transparent)]
    Build(#[from] InsertError),
    /// Another kind of file.
    #[error("this is not a FIB file: build one with `fibula fib build`")]
    NotAFib,
    /// Changed or cut bytes.
    #[error("the FIB file is damaged: fetch or build it again")]
    Damaged,
    /// A field makes no sense.
    #[error("the FIB file is damaged: {0}")]
    Decode(#[from] DecodeError),
    /// The table inside makes no sense.
    #[error("the FIB file is damaged: {0}")]
    Table(#[from] TableError),
}

impl FibError {
    /// Whether the table is of a design that `fibula-lab` has.
    pub fn is_in_laboratory(&self) -> bool {
        matches!(self, FibError::Decode(DecodeError::Design { name }) if designs::is_elsewhere(name))
    }
}

impl From<BytesError> for FibError {
    fn from(error: BytesError) -> FibError {
        DecodeError::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::designs::{CONCISE, DESIGNS};
    use crate::testkit::files::entries;

    #[test]
    fn names_of_every_kind_keep_their_actions_through_a_file() {
        crate::testkit::names_keep_their_actions_through_a_file(DESIGNS);
    }

    #[test]
    fn damaged_files_are_refused_and_never_panic() {
        crate::testkit::damaged_files_are_refused(DESIGNS);
    }

    #[test]
    fn small_and_wide_fibs_build() {
        for (n, n_actions) in [(0, 1), (1, 1), (2, 1), (70_000, 65_535)] {
            let mut entries = entries(NameKind::Ipv4, n, n_actions);
            if let Some(first) = entries.first_mut() {
                first.1 = Action::Drop;
            }
            let fib = Fib::build(&CONCISE, NameKind::Ipv4, Family::MulAdd, 1, &entries).unwrap();
            assert!(entries.iter().all(|(name, action)| fib.lookup(name) == *action));
        }
        let over = entries(NameKind::Ipv4, 70_000, 65_536);
        let error = Fib::build(&CONCISE, NameKind::Ipv4, Family::MulAdd, 1, &over).err().unwrap();
        assert!(matches!(error, FibError::TooManyActions { got: 65_536, max: 65_535 }));
    }

    #[test]
    fn duplicates_and_strangers_are_named() {
        let mut entries = entries(NameKind::Ipv4, 10, 3);
        entries.push(entries[4].clone());
        let error = Fib::build(&CONCISE, NameKind::Ipv4, Family::MulAdd, 1, &entries).err().unwrap();
        assert!(matches!(&error, FibError::DuplicateName { .. }) && error.to_string().contains("0.0.0.4"), "{error}");
        let error = Fib::build(&CONCISE, NameKind::Teid, Family::MulAdd, 1, &entries).err().unwrap();
        assert!(matches!(error, FibError::WrongKind { .. }));
    }
}
