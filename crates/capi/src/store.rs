//! The halves of a table behind one trait: a control half, unless the table follows another, and the query half that
//! readers look up in.

use crate::error::{Code, Error, Result};
use crate::table::Shared;
use fib::action::Action;
use fib::codec::actions_in_memory;
use fib::designs::Spec;
use lookup::base::arena::Arena;
use lookup::base::shown;
use lookup::hash::Digest;
use lookup::line::{self, LineSkeleton, Trade};
use lookup::othello::{self, Graph};
use lookup::traits::{
    ApplyError, BatchReader, Control, InsertError, Query, Replicated, SettingsOf, ShareError, Single, Skeleton,
    UpdateOf,
};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A thread's access to a table.
pub(crate) type Lookups = dyn BatchReader<[Digest]>;

/// Where other programs find a table.
pub(crate) enum Place<'a> {
    /// A file.
    File(&'a Path),
    /// Memory of the program's.
    Memory(Arena),
}

/// A table, whatever its structure.
pub(crate) trait Store: Send {
    /// Gives a name a value.
    /// # Errors
    /// If readers or memory keep lookups from showing it, the change waits for [`Store::sync`]; while one waits, no other is
    /// made. The text says which.
    fn set(&mut self, key: Digest, value: u64) -> Result<()>;

    /// Gives many names values.
    fn set_batch(&mut self, entries: &[(Digest, u64)]) -> Result<()>;

    /// Removes a name; whether it was there.
    fn remove(&mut self, key: Digest) -> Result<bool>;

    /// The value of a name, exactly.
    fn get(&self, key: Digest) -> Result<Option<u64>>;

    /// The number of names; `None`: it follows another table.
    fn n_names(&self) -> Option<u64>;

    /// Carries out what waits for readers.
    fn sync(&mut self) -> Result<()>;

    /// The readers that there will be: those that no thread looks up by are taken offline when memory is needed.
    fn know_readers(&mut self, readers: Arc<Shared>);

    /// The whole table, as readers see it.
    fn image(&self) -> Vec<u8>;

    /// Memory that lookups need.
    fn size_bytes(&self) -> usize;

    /// Replaces the table by that of an image.
    fn overwrite(&mut self, image: &[u8]) -> Result<()>;

    /// Carries out the updates of another table.
    fn apply(&mut self, updates: &[&[u8]]) -> Result<()>;

    /// Updates of later changes are appended to this list, each behind its length.
    fn record(&mut self, record: Option<Vec<u8>>);

    /// The updates that were appended.
    fn recorded(&mut self) -> Option<&mut Vec<u8>>;

    /// Access for a thread.
    fn reader(&self) -> Box<Lookups>;

    /// Moves the table to a place that other programs map, and tells them what values mean. Readers made before see no
    /// later change.
    fn share(&mut self, spec: &Spec, actions: &[Action], place: Place<'_>) -> Result<()>;

    /// The most bytes that it can use there; 0: its structure cannot move.
    fn most_bytes(&self) -> usize;

    /// Tells other programs that map the table what values mean now.
    fn tell_actions(&mut self, actions: &[Action]) -> Result<()>;

    /// Whether other programs may map it.
    fn is_shared(&self) -> bool;
}

/// A table as a specification says it: empty, or the one in an image, which then follows another.
pub(crate) fn open(spec: &Spec, image: Option<&[u8]>) -> Result<Box<dyn Store>> {
    let trade = match spec.design.name {
        "line" => Trade::Balanced,
        "line-fast" => Trade::Fast,
        "line-small" => Trade::Small,
        _ => {
            let settings = othello::Settings::new(spec.value_bits, spec.max_names, &spec.key);
            return made::<Graph<othello::Sharded, u64>>(settings.with_fingerprints(spec.fingerprint_bits), image);
        }
    };
    let settings = line::Settings::new(spec.value_bits, spec.max_names, &spec.key).with_trade(trade);
    made::<LineSkeleton<u64>>(settings, image)
}

fn made<S: Skeleton<Key = Digest, Payload = u64>>(
    settings: SettingsOf<S>,
    image: Option<&[u8]>,
) -> Result<Box<dyn Store>> {
    let (control, query) = match image {
        None => {
            let (control, query) = Single::<S>::build(settings, &[], 1)?;
            (Some(control), query)
        }
        Some(image) => {
            let update = S::Query::decode_update(&settings, image)?;
            let images = S::Query::images_of(&update).ok_or_else(not_whole)?;
            let query = S::Query::from_images(&settings, images).map_err(|error| match error {
                ApplyError::ArenaFull { .. } => error.into(),
                _ => Error::new(Code::FIBULA_EDAMAGED, format!("no table can be made of these bytes: {error}")),
            })?;
            (None, query)
        }
    };
    Ok(Box::new(Held::<S> { control, query, waiting: Vec::new(), record: None, is_shared: false, readers: None }))
}

fn not_whole() -> Error {
    Error::new(Code::FIBULA_EDAMAGED, "changed words where a whole table was due: export the table again")
}

struct Held<S: Skeleton<Payload = u64>> {
    control: Option<Single<S>>,
    query: S::Query,
    /// Updates that the control half has made and the query half has not carried out, in order.
    waiting: Vec<UpdateOf<S>>,
    record: Option<Vec<u8>>,
    is_shared: bool,
    readers: Option<Arc<Shared>>,
}

impl<S: Skeleton<Key = Digest, Payload = u64>> Held<S> {
    /// Does what readers may refuse. If they do, those that no thread looks up by are taken offline, and it is tried once
    /// more.
    fn beside_readers<R>(
        &mut self,
        mut carry_out: impl FnMut(&mut Self) -> std::result::Result<R, ApplyError>,
    ) -> std::result::Result<R, ApplyError> {
        let done = carry_out(self);
        if let (Err(ApplyError::ReadersStalled { .. } | ApplyError::ArenaFull { .. }), Some(readers)) =
            (&done, &self.readers)
        {
            readers.rest();
            return carry_out(self);
        }
        done
    }

    fn change<R>(
        &mut self,
        make: impl FnOnce(&mut Single<S>, &mut Vec<UpdateOf<S>>) -> std::result::Result<R, InsertError>,
    ) -> Result<R> {
        // Otherwise what waits would grow without bound.
        self.sync().map_err(|error| Error {
            text: format!("an earlier change waits, and this one was not made: {}", error.text),
            ..error
        })?;
        let control = self.control.as_mut().ok_or_else(|| {
            let text = "this table follows another: change that one, and give its updates to fibula_table_apply";
            Error::new(Code::FIBULA_EFOLLOWER, text)
        })?;
        let made = make(control, &mut self.waiting);
        if let Some(record) = &mut self.record {
            for update in &self.waiting {
                let start = record.len();
                record.extend_from_slice(&[0; 4]);
                S::Query::encode_update(control.settings(), update, record);
                let len = (record.len() - start - 4) as u32;
                record[start..start + 4].copy_from_slice(&len.to_le_bytes());
            }
        }
        // A batch that fails has updates of the names before.
        let applied = self.sync().map_err(|error| Error {
            text: format!("the change is made, but lookups do not show it until fibula_table_sync: {}", error.text),
            ..error
        });
        let made = made?;
        applied?;
        Ok(made)
    }
}

impl<S: Skeleton<Key = Digest, Payload = u64>> Store for Held<S> {
    fn set(&mut self, key: Digest, value: u64) -> Result<()> {
        self.change(|control, updates| control.insert(key, value, updates))
    }

    fn set_batch(&mut self, entries: &[(Digest, u64)]) -> Result<()> {
        self.change(|control, updates| control.insert_batch(entries, updates))
    }

    fn remove(&mut self, key: Digest) -> Result<bool> {
        self.change(|control, updates| Ok(control.remove(key, updates)))
    }

    fn get(&self, key: Digest) -> Result<Option<u64>> {
        let control = self.control.as_ref().ok_or_else(|| {
            Error::new(
                Code::FIBULA_EFOLLOWER,
                "this table follows another, and stores no names: look them up by a reader",
            )
        })?;
        Ok(control.get(key))
    }

    fn n_names(&self) -> Option<u64> {
        self.control.as_ref().map(|control| control.len() as u64)
    }

    fn sync(&mut self) -> Result<()> {
        let applied = self.beside_readers(|held| {
            let (n_applied, applied) = held.query.apply_batch(&held.waiting);
            held.waiting.drain(..n_applied);
            applied
        });
        match applied {
            Ok(()) => {
                self.waiting.clear();
                Ok(())
            }
            Err(error @ (ApplyError::ReadersStalled { .. } | ApplyError::ArenaFull { .. })) => Err(error.into()),
            Err(error) => panic!("the halves of a table disagree: {error}"),
        }
    }

    fn know_readers(&mut self, readers: Arc<Shared>) {
        self.readers = Some(readers);
    }

    fn image(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        S::Query::encode_update(&self.query.settings(), &S::Query::update_of(self.query.images()), &mut bytes);
        bytes
    }

    fn size_bytes(&self) -> usize {
        self.query.size_bits().div_ceil(8) as usize
    }

    fn overwrite(&mut self, image: &[u8]) -> Result<()> {
        let update = S::Query::decode_update(&self.query.settings(), image)?;
        let images = S::Query::images_of(&update).ok_or_else(not_whole)?;
        Ok(self.beside_readers(|held| held.query.overwrite(images))?)
    }

    fn apply(&mut self, updates: &[&[u8]]) -> Result<()> {
        let settings = self.query.settings();
        // All are read before the first is carried out.
        let updates: std::result::Result<Vec<_>, _> =
            updates.iter().map(|bytes| S::Query::decode_update(&settings, bytes)).collect();
        // Words that have taken effect are ignored when they come again.
        let updates = updates?;
        Ok(self.beside_readers(|held| held.query.apply_batch(&updates).1)?)
    }

    fn record(&mut self, record: Option<Vec<u8>>) {
        self.record = record;
    }

    fn recorded(&mut self) -> Option<&mut Vec<u8>> {
        self.record.as_mut()
    }

    fn reader(&self) -> Box<Lookups> {
        Box::new(self.query.reader())
    }

    fn share(&mut self, spec: &Spec, actions: &[Action], place: Place<'_>) -> Result<()> {
        // Changes that wait for memory, or for readers to leave it, can be made in the new place.
        let _ = self.sync();
        let actions = actions_in_memory(actions);
        let fill = |make: &mut dyn FnMut(usize) -> io::Result<Arena>| {
            let mut moved = self.query.moved_to(make)?;
            let outside = moved.outside().ok_or(ShareError::Unsupported)?;
            outside.set_annex(&actions)?;
            outside.complete(spec.names_in_memory(), shown::this_process()?);
            Ok(moved)
        };
        self.query = match place {
            Place::File(path) => shown::at(path, fill)?,
            Place::Memory(arena) => {
                let mut arena = Some(arena);
                fill(&mut |_| arena.take().ok_or_else(|| io::ErrorKind::OutOfMemory.into()))?
            }
        };
        self.is_shared = true;
        // What still waits is reported by the next call that changes the table.
        let _ = self.sync();
        Ok(())
    }

    fn most_bytes(&self) -> usize {
        let mut most = 0;
        // It asks for this many, and gets none.
        let refused = self.query.moved_to(&mut |bytes| {
            most = bytes;
            Err(io::ErrorKind::OutOfMemory.into())
        });
        drop(refused);
        most
    }

    fn tell_actions(&mut self, actions: &[Action]) -> Result<()> {
        if let Some(outside) = self.query.outside().filter(|_| self.is_shared) {
            outside.set_annex(&actions_in_memory(actions))?;
        }
        Ok(())
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }
}
