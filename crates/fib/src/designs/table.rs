//! The half of a design that a switch holds: a table that comes as bytes, follows updates, and is read by workers.

use super::keys::{Burst, StructureKey};
use crate::messages::HeldShard;
use crate::name::NameKind;
use lookup::othello::ShardId;
use lookup::othello::update::DecodeError;
use lookup::traits::{Applied, ApplyError, BatchReader, Replicated};

/// What a switch holds of a design, in the hands of its one writer. A virtual call serves a burst, never a name.
pub trait Table: Send {
    /// The values of a burst, in order. Alien names get what the design declares.
    fn lookup_batch(&self, burst: &Burst<'_>, values: &mut [u64]);

    /// Takes over an update, whole or not at all.
    /// # Errors
    /// [`TableError`]; the table answers as before.
    fn apply(&mut self, update: &[u8]) -> Result<Applied, TableError>;

    /// Takes over whole parts of the table whatever their versions: what the controller says after a report counts.
    /// # Errors
    /// [`TableError`]; the table answers as before.
    fn overwrite(&mut self, parts: &[u8]) -> Result<(), TableError>;

    /// All of it as bytes, from which [`Spec::table`](super::Spec::table) makes the same table.
    fn image(&self) -> Vec<u8>;

    /// Versions and digests of its shards, in order of the digests of names. A design without shards has one.
    fn held(&self) -> Vec<HeldShard>;

    /// Memory that lookups need, in bits.
    fn size_bits(&self) -> u64;

    /// Access for another thread.
    fn reader(&self) -> Box<dyn Reader>;
}

/// A thread's access to a table beside its writer.
pub trait Reader: Send {
    /// As [`Table::lookup_batch`], on one version of the table.
    fn lookup_batch(&mut self, burst: &Burst<'_>, values: &mut [u64]);

    /// Says that this thread reads nothing until the next lookup: call it before sleeping.
    fn offline(&mut self);
}

/// Why bytes were refused; the table answers as before.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The bytes are no update of this design.
    #[error("an update that cannot be read: {0}")]
    Decode(#[from] DecodeError),
    /// The update does not fit what the table holds.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// Cells came where whole shards were due.
    #[error("cells came where whole shards were due: report, to get them")]
    NotWhole,
}

/// A structure without shards as one shard of all names.
pub(super) fn one_shard((version, digest): (u64, u64)) -> HeldShard {
    HeldShard { id: ShardId { prefix: 0, depth: 0 }, version, digest }
}

/// A table that is one query structure.
pub(super) struct Served<Q> {
    pub(super) kind: NameKind,
    pub(super) query: Q,
}

impl<Q: Replicated> Served<Q>
where
    Q::Key: StructureKey,
{
    /// The table in an image.
    pub(super) fn from_image(
        kind: NameKind,
        settings: &Q::Settings,
        image: &[u8],
    ) -> Result<Box<dyn Table>, TableError> {
        let update = Q::decode_update(settings, image)?;
        Ok(Box::new(Served { kind, query: Q::from_whole(settings, &update)? }))
    }
}

impl<Q: Replicated> Table for Served<Q>
where
    Q::Key: StructureKey,
{
    fn lookup_batch(&self, burst: &Burst<'_>, values: &mut [u64]) {
        Q::Key::with_burst(self.kind, burst, |keys| self.query.lookup_batch(keys, values));
    }

    fn apply(&mut self, update: &[u8]) -> Result<Applied, TableError> {
        let update = Q::decode_update(self.query.settings(), update)?;
        Ok(self.query.apply(&update)?)
    }

    fn overwrite(&mut self, parts: &[u8]) -> Result<(), TableError> {
        let update = Q::decode_update(self.query.settings(), parts)?;
        Ok(self.query.overwrite(&update)?)
    }

    fn image(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        Q::encode_update(self.query.settings(), &self.query.whole(), &mut bytes);
        bytes
    }

    fn held(&self) -> Vec<HeldShard> {
        vec![one_shard(self.query.held())]
    }

    fn size_bits(&self) -> u64 {
        self.query.size_bits()
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(ServedReader { kind: self.kind, reader: self.query.reader() })
    }
}

struct ServedReader<R> {
    kind: NameKind,
    reader: R,
}

impl<R: BatchReader> Reader for ServedReader<R>
where
    R::Key: StructureKey,
{
    #[inline]
    fn lookup_batch(&mut self, burst: &Burst<'_>, values: &mut [u64]) {
        R::Key::with_burst(self.kind, burst, |keys| self.reader.lookup_batch(keys, values));
    }

    fn offline(&mut self) {
        self.reader.offline();
    }
}
