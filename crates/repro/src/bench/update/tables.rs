//! What is changed: both halves of ours with the messages between them, and the peers' tables.

use hashbrown::HashMap;
use lookup::hash::{Digest, Hasher};
use lookup::line::{self, LineTable};
use lookup::othello::update::DecodeError;
use lookup::othello::{self, Option2, Othello, Sizing};
use lookup::traits::{BatchReader, Control, InsertError, Query};

use crate::BenchError;
use crate::contestants::Input;
use crate::names::value_of;

/// The table of a contestant, with the names of `input` in it.
pub(super) fn build(name: &str, input: &Input<'_>, max_names: usize) -> Result<Box<dyn Table>, BenchError> {
    Ok(match name {
        "concise" => Box::new(Ours::<Othello>::build(input, max_names)?),
        "concise-option2" => Box::new(Ours::<Othello<Option2>>::build(input, max_names)?),
        "line" => Box::new(Ours::<LineTable>::build(input, max_names)?),
        #[cfg(feature = "dpdk")]
        "rte_hash" => Box::new(crate::contestants::RteHash::build("rte_hash", input, max_names, false)?),
        #[cfg(not(feature = "dpdk"))]
        "rte_hash" => {
            let reason = "not built in; `make bench` installs it".into();
            return Err(BenchError::Unavailable { contestant: "rte_hash", reason });
        }
        _ => {
            let entries = input.names.iter().map(|&name| (name, value_of(name, input.value_bits)));
            Box::new(entries.collect::<HashMap<u64, u64>>())
        }
    })
}

/// A table that takes changes. What the clock sees is within each call.
pub(super) trait Table {
    /// Inserts or changes.
    fn put(&mut self, changes: &[(u64, u64)]) -> Result<(), BenchError>;
    /// Removes.
    fn remove(&mut self, names: &[(u64, u64)]) -> Result<(), BenchError>;
    /// Inserts or changes all at once; bytes of the messages. `None`, with nothing done, where there is no such call.
    fn put_batch(&mut self, _changes: &[(u64, u64)]) -> Result<Option<usize>, BenchError> {
        Ok(None)
    }
    /// The value of each name after all that was done; of one that is not there, anything.
    fn values(&mut self, names: &[(u64, u64)]) -> Result<Vec<u64>, BenchError>;
}

/// A control half of ours, with what the bench needs to know of its structure.
pub(super) trait Halves: Control<Key = Digest, Query: Send, Query: Query<Key = Digest, Update: Sync>> {
    const NAME: &str;

    /// Both halves.
    fn both(input: &Input<'_>, max_names: usize) -> Result<(Self, Self::Query), InsertError>
    where
        Self: Sized;
    fn encode(update: &UpdateOf<Self>, value_bits: u8, out: &mut Vec<u8>);
    fn decode(&self, bytes: &[u8]) -> Result<UpdateOf<Self>, DecodeError>;
    /// Whether a whole shard was solved anew.
    fn is_rebuild(update: &UpdateOf<Self>) -> bool;
    fn reader(query: &Self::Query) -> impl BatchReader<Key = Digest>;
}

pub(super) type UpdateOf<C> = <<C as Control>::Query as Query>::Update;

impl<S: Sizing> Halves for Othello<S> {
    const NAME: &str = if S::SHARDED { "concise" } else { "concise-option2" };

    fn both(input: &Input<'_>, max_names: usize) -> Result<(Self, Self::Query), InsertError> {
        let settings = othello::Settings::new(input.value_bits, max_names, &input.secret_key());
        Othello::build(settings, &input.entries(), input.build_threads)
    }

    fn encode(update: &othello::Update, value_bits: u8, out: &mut Vec<u8>) {
        update.encode(value_bits, out);
    }

    fn decode(&self, bytes: &[u8]) -> Result<othello::Update, DecodeError> {
        othello::Update::decode(bytes, self.graph().settings().cell_bits())
    }

    fn is_rebuild(update: &othello::Update) -> bool {
        matches!(update, othello::Update::Shards(_))
    }

    fn reader(query: &Self::Query) -> impl BatchReader<Key = Digest> {
        query.reader()
    }
}

impl Halves for LineTable {
    const NAME: &str = "line";

    fn both(input: &Input<'_>, max_names: usize) -> Result<(Self, Self::Query), InsertError> {
        let settings = line::Settings::new(input.value_bits, max_names, &input.secret_key());
        LineTable::build(settings, &input.entries(), input.build_threads)
    }

    fn encode(update: &line::Update, _value_bits: u8, out: &mut Vec<u8>) {
        update.encode(out);
    }

    fn decode(&self, bytes: &[u8]) -> Result<line::Update, DecodeError> {
        line::Update::decode(self.lines().settings(), bytes)
    }

    fn is_rebuild(update: &line::Update) -> bool {
        matches!(update, line::Update::Groups(_) | line::Update::Levels(_))
    }

    fn reader(query: &Self::Query) -> impl BatchReader<Key = Digest> {
        query.reader()
    }
}

/// Both halves, and the messages between them as bytes.
pub(super) struct Ours<C: Halves> {
    pub(super) control: C,
    pub(super) query: C::Query,
    pub(super) hasher: Hasher,
    pub(super) name_len: usize,
    pub(super) value_bits: u8,
    pub(super) updates: Vec<UpdateOf<C>>,
    pub(super) bytes: Vec<u8>,
    pub(super) ends: Vec<usize>,
}

impl<C: Halves> Ours<C> {
    pub(super) fn build(input: &Input<'_>, max_names: usize) -> Result<Self, BenchError> {
        let (control, query) = C::both(input, max_names).map_err(|error| input.build_error(C::NAME, error))?;
        Ok(Self {
            control,
            query,
            hasher: input.hasher(),
            name_len: input.name_len,
            value_bits: input.value_bits,
            updates: Vec::new(),
            bytes: Vec::new(),
            ends: Vec::new(),
        })
    }

    pub(super) fn digest(&self, name: u64) -> Digest {
        self.hasher.digest(&name.to_le_bytes()[..self.name_len])
    }

    pub(super) fn refused(&self, error: impl std::fmt::Display) -> BenchError {
        BenchError::Build { contestant: C::NAME.into(), n: self.control.len() as u64, reason: error.to_string() }
    }

    /// Turns the updates into bytes, as they would leave the controller.
    fn encode(&mut self) {
        for update in self.updates.drain(..) {
            C::encode(&update, self.value_bits, &mut self.bytes);
            self.ends.push(self.bytes.len());
        }
    }

    /// Applies all messages, from their bytes.
    fn deliver(&mut self) -> Result<(), BenchError> {
        let mut start = 0;
        for &end in &self.ends {
            let update = self.control.decode(&self.bytes[start..end]).map_err(|e| self.refused(e))?;
            self.query.apply(&update).map_err(|error| self.refused(error))?;
            start = end;
        }
        self.bytes.clear();
        self.ends.clear();
        Ok(())
    }
}

impl<C: Halves> Table for Ours<C> {
    fn put(&mut self, changes: &[(u64, u64)]) -> Result<(), BenchError> {
        for &(name, value) in changes {
            let digest = self.digest(name);
            if let Err(error) = self.control.insert(digest, value, &mut self.updates) {
                return Err(self.refused(error));
            }
            self.encode();
        }
        Ok(())
    }

    fn remove(&mut self, names: &[(u64, u64)]) -> Result<(), BenchError> {
        for &(name, _) in names {
            let digest = self.digest(name);
            self.control.remove(digest, &mut self.updates);
            self.encode();
        }
        Ok(())
    }

    fn put_batch(&mut self, changes: &[(u64, u64)]) -> Result<Option<usize>, BenchError> {
        let entries: Vec<(Digest, u64)> = changes.iter().map(|&(name, value)| (self.digest(name), value)).collect();
        self.control.insert_batch(&entries, &mut self.updates).map_err(|error| self.refused(error))?;
        self.encode();
        Ok(Some(self.bytes.len()))
    }

    fn values(&mut self, names: &[(u64, u64)]) -> Result<Vec<u64>, BenchError> {
        self.deliver()?;
        Ok(names.iter().map(|&(name, _)| self.query.lookup(self.digest(name))).collect())
    }
}

impl Table for HashMap<u64, u64> {
    fn put(&mut self, changes: &[(u64, u64)]) -> Result<(), BenchError> {
        for &(name, value) in changes {
            self.insert(name, value);
        }
        Ok(())
    }

    fn remove(&mut self, names: &[(u64, u64)]) -> Result<(), BenchError> {
        for (name, _) in names {
            HashMap::remove(self, name);
        }
        Ok(())
    }

    fn values(&mut self, names: &[(u64, u64)]) -> Result<Vec<u64>, BenchError> {
        Ok(names.iter().map(|(name, _)| self.get(name).copied().unwrap_or(0)).collect())
    }
}

#[cfg(feature = "dpdk")]
impl Table for crate::contestants::RteHash {
    fn put(&mut self, changes: &[(u64, u64)]) -> Result<(), BenchError> {
        changes.iter().try_for_each(|&(name, value)| self.add(&[name], &[value]))
    }

    fn remove(&mut self, names: &[(u64, u64)]) -> Result<(), BenchError> {
        names.iter().try_for_each(|&(name, _)| self.delete(&[name]))
    }

    fn values(&mut self, names: &[(u64, u64)]) -> Result<Vec<u64>, BenchError> {
        use crate::contestants::Contestant;
        let names: Vec<u64> = names.iter().map(|&(name, _)| name).collect();
        let mut reader = self.reader();
        Ok(names.iter().map(|&name| reader.sum(&[name], 1, 1)).collect())
    }
}
