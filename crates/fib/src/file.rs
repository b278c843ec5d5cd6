//! A FIB on its own, without network and controller: built from a list, written to a file, read back, asked.
//!
//! ```text
//!  0  "FIBULAF1"             8
//!  8  kind of the names      2   name::NameKind::to_wire
//! 10  names                  8
//! 18  design                 4 + its length
//!  …  actions                4 + each, as in codec: index 0 is drop
//!  …  table                  4 + its length, the design's image (see lookup::image)
//!  …  fingerprint            8   of everything before
//! ```
//! The file carries the hash key: whoever has it can choose names that collide.
//!
//! Cost: about 80 ns a name to build on one thread, digests included. Limits: 65,535 actions besides drop, 4 GiB of table.

use crate::action::Action;
use crate::codec::{DecodeError, Input, put_action, put_bytes, put_u32, put_u64};
use crate::designs::{Design, Settings, Table, UnknownDesign};
use crate::messages::fingerprint;
use crate::name::{Name, NameKind};
use lookup::bytes::BytesError;
use lookup::hash::{Digest, Family, Hasher, SecretKey};
use lookup::image::ImageError;
use lookup::traits::InsertError;
use std::collections::HashMap;

const MAGIC: &[u8] = b"FIBULAF1";
/// Other keys tried when two names share a digest: each fails with a probability of n^2 / 2^65.
const MAX_KEYS: usize = 4;

/// A FIB from names of one kind to actions.
pub struct Fib {
    design: &'static Design,
    kind: NameKind,
    n_names: u64,
    actions: Vec<Action>,
    hasher: Hasher,
    table: Box<dyn Table>,
}

impl Fib {
    /// Builds the FIB of `entries`, under a random key.
    /// # Errors
    /// [`FibError`]: a name of another kind or given twice, or too many actions.
    pub fn build(
        design: &'static Design,
        kind: NameKind,
        family: Family,
        threads: usize,
        entries: &[(Name, Action)],
    ) -> Result<Fib, FibError> {
        let mut actions = vec![Action::Drop];
        let mut index: HashMap<Action, u64> = HashMap::from([(Action::Drop, 0)]);
        let mut values = Vec::with_capacity(entries.len());
        for (name, action) in entries {
            if name.kind() != kind {
                return Err(FibError::WrongKind { name: name.clone(), got: name.kind(), expected: kind });
            }
            let next = actions.len() as u64;
            values.push(*index.entry(*action).or_insert_with(|| {
                actions.push(*action);
                next
            }));
        }
        if actions.len() > 1 << 16 {
            return Err(FibError::TooManyActions { got: actions.len() - 1, max: (1 << 16) - 1 });
        }
        let value_bits = (actions.len().next_power_of_two().trailing_zeros() as u8).max(1);
        let mut tries = 0;
        loop {
            let settings = Settings { family, key: SecretKey::random(), value_bits, threads };
            let hasher = Hasher::new(family, &settings.key);
            let digests: Vec<(Digest, u64)> = entries
                .iter()
                .zip(&values)
                .map(|((name, _), value)| (hasher.digest(name.as_bytes()), *value))
                .collect();
            match (design.build)(&settings, &digests) {
                Ok(table) => {
                    let n_names = entries.len() as u64;
                    return Ok(Fib { design, kind, n_names, actions, hasher, table });
                }
                Err(InsertError::DuplicateDigest { digest }) => {
                    let mut of =
                        entries.iter().zip(&digests).filter(|(_, (of, _))| of.0 == digest).map(|(entry, _)| &entry.0);
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
        self.design
    }

    /// Kind of the names.
    pub fn kind(&self) -> NameKind {
        self.kind
    }

    /// Names that it was built from; it does not hold them.
    pub fn n_names(&self) -> u64 {
        self.n_names
    }

    /// The distinct actions; the first is drop.
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }

    /// Family of the digests.
    pub fn family(&self) -> Family {
        self.hasher.family()
    }

    /// Memory that lookups need, in bits, without the action table.
    pub fn size_bits(&self) -> u64 {
        self.table.size_bits()
    }

    /// The action of a name. For an alien it is what the design's [`aliens`](Design::aliens) says.
    pub fn lookup(&self, name: &Name) -> Action {
        let mut value = [0];
        self.table.lookup_batch(&[self.hasher.digest(name.as_bytes())], &mut value);
        self.actions.get(value[0] as usize).copied().unwrap_or(Action::Drop)
    }

    /// The FIB as the bytes of a file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&self.kind.to_wire());
        put_u64(&mut out, self.n_names);
        put_bytes(&mut out, self.design.name.as_bytes());
        put_u32(&mut out, self.actions.len() as u32);
        self.actions.iter().for_each(|action| put_action(&mut out, action));
        put_bytes(&mut out, &self.table.encode());
        let checksum = fingerprint(&out);
        put_u64(&mut out, checksum);
        out
    }

    /// The FIB in the bytes of a file.
    /// # Errors
    /// [`FibError`] for anything but what [`Fib::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<Fib, FibError> {
        let content = bytes.strip_prefix(MAGIC).ok_or(FibError::NotAFib)?;
        let (_, checksum) = content.split_last_chunk::<8>().ok_or(FibError::Damaged)?;
        if fingerprint(&bytes[..bytes.len() - 8]) != u64::from_le_bytes(*checksum) {
            return Err(FibError::Damaged);
        }
        let mut input = Input::raw(&content[..content.len() - 8]);
        let (kind, n_names) = (input.kind()?, input.u64()?);
        let design = Design::by_name(&String::from_utf8_lossy(input.bytes()?))?;
        let actions = input.actions()?;
        let table = (design.decode)(input.bytes()?)?;
        input.end()?;
        let (family, key) = table.hashing();
        let hasher = Hasher::new(family, key);
        Ok(Fib { design, kind, n_names, actions, hasher, table })
    }
}

/// Why there is no FIB.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
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
    /// Two names shared a digest under every key tried.
    #[error("two names had one digest under each of {tries} random keys: choose another hash family")]
    Unlucky { tries: usize },
    /// The table could not be built.
    #[error(transparent)]
    Build(#[from] InsertError),
    /// Another kind of file.
    #[error("this is no FIB file: build one with `fibula fib build`")]
    NotAFib,
    /// Changed or cut bytes.
    #[error("the FIB file is damaged: fetch or build it again")]
    Damaged,
    /// A field makes no sense.
    #[error("the FIB file is damaged: {0}")]
    Decode(#[from] DecodeError),
    /// The table inside makes no sense.
    #[error("the FIB file is damaged: {0}")]
    Image(#[from] ImageError),
    /// Written by a version that knows more.
    #[error(transparent)]
    Design(#[from] UnknownDesign),
}

impl From<BytesError> for FibError {
    fn from(error: BytesError) -> FibError {
        DecodeError::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::PortId;
    use crate::designs::CONCISE;

    fn entries(kind: NameKind, n: u32, n_actions: u32) -> Vec<(Name, Action)> {
        let bytes = |i: u32| match kind {
            NameKind::Text => format!("/video/{i}").into_bytes(),
            NameKind::Mac => (0x0200_0000_0000 + u64::from(i)).to_be_bytes()[2..].to_vec(),
            NameKind::Ipv4 | NameKind::Teid => i.to_be_bytes().to_vec(),
            NameKind::Ipv6 => u128::from(i).to_be_bytes().to_vec(),
            NameKind::FiveTuple => {
                let mut bytes = vec![7; if i.is_multiple_of(2) { 13 } else { 37 }];
                bytes[..4].copy_from_slice(&i.to_be_bytes());
                bytes
            }
            NameKind::Fixed(width) => (0..width).map(|b| (i >> (b % 4 * 8)) as u8).collect(),
        };
        let entry = |i| (Name::from_bytes(kind, &bytes(i)).unwrap(), Action::Port(PortId((i % n_actions) as u16)));
        (0..n).map(entry).collect()
    }

    #[test]
    fn names_of_every_kind_keep_their_actions_through_a_file() {
        let kinds = [
            NameKind::Mac,
            NameKind::Ipv4,
            NameKind::Ipv6,
            NameKind::FiveTuple,
            NameKind::Teid,
            NameKind::Fixed(45),
            NameKind::Text,
        ];
        for (kind, family) in kinds.into_iter().zip(Family::ALL.into_iter().cycle()) {
            let entries = entries(kind, 3000, 17);
            let fib = Fib::build(&CONCISE, kind, family, 2, &entries).unwrap();
            let read = Fib::decode(&fib.encode()).unwrap();
            assert_eq!((read.kind(), read.n_names(), read.actions().len(), read.family()), (kind, 3000, 18, family));
            for (name, action) in &entries {
                assert_eq!((fib.lookup(name), read.lookup(name)), (*action, *action), "{name}");
            }
        }
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

    #[test]
    fn damaged_files_are_refused_and_never_panic() {
        let fib = Fib::build(&CONCISE, NameKind::Ipv4, Family::MulAdd, 1, &entries(NameKind::Ipv4, 50, 3)).unwrap();
        let bytes = fib.encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x41;
            assert!(Fib::decode(&damaged).is_err() && Fib::decode(&bytes[..at]).is_err());
            // The same with a right checksum, so that the fields behind it are reached.
            let end = damaged.len() - 8;
            let checksum = fingerprint(&damaged[..end]).to_le_bytes();
            damaged[end..].copy_from_slice(&checksum);
            let _ = Fib::decode(&damaged);
        }
    }
}
