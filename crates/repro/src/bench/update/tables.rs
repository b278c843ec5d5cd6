//! The tables that are changed: both halves of ours with the messages between them, and the peers' tables.

use hashbrown::HashMap;
use lookup::hash::{Digest, Hasher};
use lookup::line::{self, LineSkeleton};
use lookup::othello::{self, Graph, Option2, Sharded, Sizing};
use lookup::traits::{Control, Query, Replicated, SettingsOf, Single, Skeleton, UpdateOf};

use crate::BenchError;
use crate::contestants::Input;
use crate::names::value_of;

/// The table of a contestant, filled with the names of `input`.
pub(super) fn build(name: &str, input: &Input<'_>, max_names: usize) -> Result<Box<dyn Table>, BenchError> {
    Ok(match name {
        "concise" => Box::new(Ours::<Graph<Sharded, u64>>::build(input, max_names)?),
        "concise-option2" => Box::new(Ours::<Graph<Option2, u64>>::build(input, max_names)?),
        "line" => Box::new(Ours::<LineSkeleton<u64>>::build(input, max_names)?),
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

/// A table that takes changes. The clock measures each call.
pub(super) trait Table {
    /// Inserts or changes.
    fn put(&mut self, changes: &[(u64, u64)]) -> Result<(), BenchError>;
    /// Removes.
    fn remove(&mut self, names: &[(u64, u64)]) -> Result<(), BenchError>;
    /// Inserts or changes all at once. Returns the message bytes; `None`, with nothing done, if there is no such call.
    fn put_batch(&mut self, _changes: &[(u64, u64)]) -> Result<Option<usize>, BenchError> {
        Ok(None)
    }
    /// The current value of each name; arbitrary for a name that is not in the table.
    fn values(&mut self, names: &[(u64, u64)]) -> Result<Vec<u64>, BenchError>;
}

/// The skeleton of a structure of ours, with what the bench needs to know about it.
pub(super) trait Measured: Skeleton<Key = Digest, Payload = u64, Query: Query<Update: Sync>> {
    const NAME: &str;

    fn with_settings(input: &Input<'_>, max_names: usize) -> SettingsOf<Self>;
    /// Whether the update rebuilt a part.
    fn is_rebuild(update: &UpdateOf<Self>) -> bool;
}

impl<S: Sizing> Measured for Graph<S, u64> {
    const NAME: &str = if S::SHARDED { "concise" } else { "concise-option2" };

    fn with_settings(input: &Input<'_>, max_names: usize) -> othello::Settings {
        othello::Settings::new(input.value_bits, max_names, &input.secret_key())
    }

    fn is_rebuild(update: &othello::Update) -> bool {
        matches!(update, othello::Update::Shards(_))
    }
}

impl Measured for LineSkeleton<u64> {
    const NAME: &str = "line";

    fn with_settings(input: &Input<'_>, max_names: usize) -> line::Settings {
        line::Settings::new(input.value_bits, max_names, &input.secret_key())
    }

    fn is_rebuild(update: &line::Update) -> bool {
        matches!(update, line::Update::Groups(_) | line::Update::Levels(_))
    }
}

/// Both halves, and the messages between them as bytes.
pub(super) struct Ours<S: Measured> {
    pub(super) control: Single<S>,
    pub(super) query: S::Query,
    settings: SettingsOf<S>,
    pub(super) hasher: Hasher,
    pub(super) name_len: usize,
    pub(super) updates: Vec<UpdateOf<S>>,
    pub(super) bytes: Vec<u8>,
    pub(super) ends: Vec<usize>,
}

impl<S: Measured> Ours<S> {
    pub(super) fn build(input: &Input<'_>, max_names: usize) -> Result<Self, BenchError> {
        let settings = S::with_settings(input, max_names);
        let built = Single::build(settings.clone(), &input.entries(), input.build_threads);
        let (control, query) = built.map_err(|error| input.build_error(S::NAME, error))?;
        Ok(Self {
            control,
            query,
            settings,
            hasher: input.hasher(),
            name_len: input.name_len,
            updates: Vec::new(),
            bytes: Vec::new(),
            ends: Vec::new(),
        })
    }

    pub(super) fn digest(&self, name: u64) -> Digest {
        self.hasher.digest(&name.to_le_bytes()[..self.name_len])
    }

    pub(super) fn refused(&self, error: impl std::fmt::Display) -> BenchError {
        BenchError::Build { contestant: S::NAME.into(), n: self.control.len() as u64, reason: error.to_string() }
    }

    /// Encodes the updates, as they would leave the controller.
    fn encode(&mut self) {
        for update in self.updates.drain(..) {
            S::Query::encode_update(&self.settings, &update, &mut self.bytes);
            self.ends.push(self.bytes.len());
        }
    }

    /// Decodes and applies all messages.
    fn deliver(&mut self) -> Result<(), BenchError> {
        let mut start = 0;
        for &end in &self.ends {
            let update = S::Query::decode_update(&self.settings, &self.bytes[start..end]);
            let update = update.map_err(|error| self.refused(error))?;
            self.query.apply(&update).map_err(|error| self.refused(error))?;
            start = end;
        }
        self.bytes.clear();
        self.ends.clear();
        Ok(())
    }
}

impl<S: Measured> Table for Ours<S> {
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
        use crate::contestants::{Calls, Contestant};
        let names: Vec<u64> = names.iter().map(|&(name, _)| name).collect();
        let mut reader = self.reader();
        Ok(names.iter().map(|&name| reader.sum(&[name], Calls::new(1, 1), 1)).collect())
    }
}
