//! The half of a design that a switch holds: a table that is decoded from bytes, updated, and read by workers.

use super::Spec;
use super::keys::{Burst, StructureKey};
use crate::action::Action;
use crate::codec;
use crate::messages::Updates;
use crate::name::NameKind;
use lookup::base::arena::Arena;
use lookup::base::root::Form;
use lookup::traits::{Applied, ApplyError, BatchReader, DecodeError, HeldPart, Replicated, ShareError};
use std::io;
use std::marker::PhantomData;

/// Updates that are decoded before the first of them is applied: their words stay in the cache until then.
const DECODED: usize = 64;

/// The longest update whose memory is used again for later ones. Most have less than a hundred bytes, whole parts have
/// more than this.
const REUSED_BYTES: usize = 1024;

/// A switch's half of a design, owned by its one writer. A virtual call serves a burst, never a single name.
pub trait Table: Send {
    /// The values of a burst, in order. Alien names get what the design declares.
    fn lookup_batch(&self, burst: &Burst<'_>, values: &mut [u64]);

    /// Applies an update, whole or not at all.
    /// # Errors
    /// [`TableError`]; the table answers as before.
    fn apply(&mut self, update: &[u8]) -> Result<Applied, TableError>;

    /// Applies updates in order. Returns how many took effect, also when one was refused.
    /// # Errors
    /// [`TableError`] of the first update that was refused; those after it are not applied.
    fn apply_batch(&mut self, updates: &Updates) -> (usize, Result<(), TableError>);

    /// Replaces whole parts, whatever their versions: the controller's answer to a report is authoritative.
    /// # Errors
    /// [`TableError`]; the table answers as before.
    fn overwrite(&mut self, parts: &[u8]) -> Result<(), TableError>;

    /// Parts that came whole, in updates and in answers to a report, since it was made.
    fn parts_received(&self) -> u64 {
        0
    }

    /// The whole table as bytes, from which [`Spec::table`](super::Spec::table) makes the same table.
    fn image(&self) -> Vec<u8>;

    /// Computes the digests of all parts again, from the words that lookups read. Takes memory for the table once more.
    /// # Errors
    /// [`ApplyError::WrongDigest`] of the first part whose words are not those of its digest.
    fn verify(&self) -> Result<(), TableError>;

    /// Versions and digests of its shards, in the order of name digests. A design without shards has one.
    fn held(&self) -> Vec<HeldPart>;

    /// The share of aliens that get a value from the current table, if its words tell.
    fn alien_rate(&self) -> Option<f64>;

    /// Memory that lookups need, in bits.
    fn size_bits(&self) -> u64;

    /// Whether lookups prefetch what they read, at the size that it has now.
    fn prefetches(&self) -> bool;

    /// Access for another thread.
    fn reader(&self) -> Box<Reader>;

    /// Moves the table to memory that other programs map, before it has readers. `make` makes an arena of the given size;
    /// `writer` is this process and its start time, by which a reader finds out whether the writer lives. Returns how
    /// others read it.
    /// # Errors
    /// [`ShareError`]; the table stays where it is.
    fn share(
        &mut self,
        spec: &Spec,
        writer: [u64; 2],
        make: &mut dyn FnMut(usize) -> io::Result<Arena>,
    ) -> Result<Form, ShareError> {
        let _ = (spec, writer, make);
        Err(ShareError::Unsupported)
    }

    /// Whether other programs can read it.
    fn is_shared(&self) -> bool {
        false
    }

    /// Tells other programs that can read it what values mean.
    /// # Errors
    /// [`ApplyError`]; they have the former actions.
    fn tell_actions(&mut self, actions: &[Action]) -> Result<(), ApplyError> {
        let _ = actions;
        Ok(())
    }
}

/// A thread's access to a table, concurrent with its writer. A virtual call serves a burst.
pub type Reader = dyn for<'a> BatchReader<Burst<'a>>;

/// Why bytes were refused; the table answers as before.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The bytes are not an update of this design.
    #[error("an update that cannot be read: {0}")]
    Decode(#[from] DecodeError),
    /// The update does not fit what the table holds.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// Cells were sent where whole shards are required.
    #[error("changed words came where whole parts were due: report what is held, to get them")]
    NotWhole,
}

/// A table that is one query structure.
pub(super) struct Served<Q: Replicated> {
    kind: NameKind,
    settings: Q::Settings,
    query: Q,
    /// Decoded before, and written over by the next ones.
    decoded: Vec<Q::Update>,
    is_shared: bool,
    parts_received: u64,
}

impl<Q: Replicated> Served<Q>
where
    Q::Key: StructureKey,
{
    pub(super) fn new(kind: NameKind, query: Q) -> Self {
        Served { kind, settings: query.settings(), query, decoded: Vec::new(), is_shared: false, parts_received: 0 }
    }

    /// Decodes updates over those that were decoded before, up to the first that cannot be read. Returns how many.
    fn decode<'a>(&mut self, updates: impl Iterator<Item = &'a [u8]>) -> (usize, Result<(), DecodeError>) {
        let mut n_decoded = 0;
        for bytes in updates {
            let decoded = match self.decoded.get_mut(n_decoded) {
                Some(update) => Q::decode_update_over(&self.settings, bytes, update),
                None => Q::decode_update(&self.settings, bytes).map(|update| self.decoded.push(update)),
            };
            if let Err(error) = decoded {
                return (n_decoded, Err(error));
            }
            n_decoded += 1;
        }
        (n_decoded, Ok(()))
    }

    /// Applies the first decoded updates in order, and counts the parts of those that take effect. Returns how many do.
    fn apply_decoded(&mut self, n_decoded: usize) -> (usize, Result<(), ApplyError>) {
        let n_parts = |update: &Q::Update| Q::images_of(update).map_or(0, <[_]>::len);
        let mut n_applied = 0;
        // An update with parts comes alone: of several, only the number that took effect is known.
        for run in self.decoded[..n_decoded].chunk_by(|a, b| n_parts(a) + n_parts(b) == 0) {
            let (n, applied) = self.query.apply_batch(run);
            n_applied += n;
            if n > 0 {
                self.parts_received += n_parts(&run[0]) as u64;
            }
            if applied.is_err() {
                return (n_applied, applied);
            }
        }
        (n_applied, Ok(()))
    }

    /// Decodes the table in an image.
    pub(super) fn from_image(
        kind: NameKind,
        settings: &Q::Settings,
        image: &[u8],
    ) -> Result<Box<dyn Table>, TableError> {
        let update = Q::decode_update(settings, image)?;
        let images = Q::images_of(&update).ok_or(TableError::NotWhole)?;
        Ok(Box::new(Served::new(kind, Q::from_images(settings, images)?)))
    }
}

impl<Q: Replicated> Table for Served<Q>
where
    Q::Key: StructureKey,
{
    fn lookup_batch(&self, burst: &Burst<'_>, values: &mut [u64]) {
        Q::Key::with_burst(self.kind, burst, |keys| self.query.lookup_batch(keys, values));
        Q::Key::confirm(self.kind, burst, values, |keys, values| self.query.lookup_batch(keys, values));
    }

    fn apply(&mut self, update: &[u8]) -> Result<Applied, TableError> {
        let update = Q::decode_update(&self.settings, update)?;
        let applied = self.query.apply(&update)?;
        if applied == Applied::Applied {
            self.parts_received += Q::images_of(&update).map_or(0, <[_]>::len) as u64;
        }
        Ok(applied)
    }

    fn apply_batch(&mut self, updates: &Updates) -> (usize, Result<(), TableError>) {
        let (mut n_applied, mut updates) = (0, updates.iter().peekable());
        while updates.peek().is_some() {
            let mut longest = 0;
            let piece = updates.by_ref().take(DECODED).inspect(|bytes| longest = longest.max(bytes.len()));
            let (n_decoded, decoded) = self.decode(piece);
            let (n, applied) = self.apply_decoded(n_decoded);
            n_applied += n;
            if longest > REUSED_BYTES {
                self.decoded.clear();
            }
            if let Err(error) = applied.map_err(TableError::from).and(decoded.map_err(TableError::from)) {
                return (n_applied, Err(error));
            }
        }
        (n_applied, Ok(()))
    }

    fn overwrite(&mut self, parts: &[u8]) -> Result<(), TableError> {
        let update = Q::decode_update(&self.settings, parts)?;
        let parts = Q::images_of(&update).ok_or(TableError::NotWhole)?;
        self.query.overwrite(parts)?;
        self.parts_received += parts.len() as u64;
        Ok(())
    }

    fn parts_received(&self) -> u64 {
        self.parts_received
    }

    fn image(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        Q::encode_update(&self.settings, &Q::update_of(self.query.images()), &mut bytes);
        bytes
    }

    fn verify(&self) -> Result<(), TableError> {
        Ok(Q::from_images(&self.settings, &self.query.images()).map(drop)?)
    }

    fn held(&self) -> Vec<HeldPart> {
        self.query.held()
    }

    fn alien_rate(&self) -> Option<f64> {
        self.query.alien_rate()
    }

    fn size_bits(&self) -> u64 {
        self.query.size_bits()
    }

    fn prefetches(&self) -> bool {
        self.query.prefetches()
    }

    fn reader(&self) -> Box<Reader> {
        Box::new(ServedReader { kind: self.kind, reader: self.query.reader(), key: PhantomData })
    }

    fn share(
        &mut self,
        spec: &Spec,
        writer: [u64; 2],
        make: &mut dyn FnMut(usize) -> io::Result<Arena>,
    ) -> Result<Form, ShareError> {
        let mut moved = self.query.moved_to(make)?;
        let outside = moved.outside().ok_or(ShareError::Unsupported)?;
        outside.complete(spec.names_in_memory(), writer);
        let form = outside.form();
        (self.query, self.is_shared) = (moved, true);
        Ok(form)
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }

    fn tell_actions(&mut self, actions: &[Action]) -> Result<(), ApplyError> {
        match self.query.outside().filter(|_| self.is_shared) {
            Some(outside) => outside.set_annex(&codec::actions_in_memory(actions)),
            None => Ok(()),
        }
    }
}

struct ServedReader<R, K> {
    kind: NameKind,
    reader: R,
    key: PhantomData<K>,
}

impl<R: BatchReader<[K]>, K: StructureKey> BatchReader<Burst<'_>> for ServedReader<R, K> {
    #[inline]
    fn lookup_batch(&mut self, burst: &Burst<'_>, values: &mut [u64]) {
        K::with_burst(self.kind, burst, |keys| self.reader.lookup_batch(keys, values));
        K::confirm(self.kind, burst, values, |keys, values| self.reader.lookup_batch(keys, values));
    }

    fn has_phases(&self) -> bool {
        self.reader.has_phases()
    }

    #[inline]
    fn begin(&mut self, burst: &Burst<'_>) {
        if self.reader.has_phases() {
            K::with_burst(self.kind, burst, |keys| self.reader.begin(keys));
        }
    }

    #[inline]
    fn finish(&mut self, burst: &Burst<'_>, values: &mut [u64]) {
        K::with_burst(self.kind, burst, |keys| self.reader.finish(keys, values));
        K::confirm(self.kind, burst, values, |keys, values| self.reader.lookup_batch(keys, values));
    }

    fn offline(&mut self) {
        self.reader.offline();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DESIGNS, Emitted, Key, Spec};
    use super::*;
    use crate::name::Name;
    use lookup::hash::{Family, SecretKey};

    fn name(kind: NameKind, number: u64) -> Name {
        let bytes: Vec<u8> = number
            .to_be_bytes()
            .into_iter()
            .cycle()
            .skip(2)
            .take(if kind == NameKind::Ipv6 { 16 } else { 6 })
            .collect();
        Name::from_bytes(kind, &bytes).expect("so many bytes are a name")
    }

    #[test]
    fn bursts_in_flight_have_values_of_versions_that_were_served_meanwhile() {
        crate::testkit::bursts_in_flight_have_values_that_were_served(DESIGNS);
    }

    #[test]
    fn exact_designs_tell_long_texts_apart_by_every_byte() {
        crate::testkit::long_texts_are_told_apart(&[&super::super::CUCKOO]);
    }

    #[test]
    fn parts_count_when_their_update_takes_effect_and_only_then() {
        let spec = Spec::new(&super::super::CONCISE, NameKind::Mac, Family::MulAdd, SecretKey::from_seed(7), 8, 4000);
        let names: Vec<Name> = (0..3000).map(|number| name(spec.kind, number)).collect();
        let nobody = |_: &mut dyn FnMut(Key<'_>, u32)| ();
        let mut control = spec.control(&nobody, 1).expect("no names fit");
        control.add_view((0..=100).collect(), &[], &[]).expect("values for all places");
        let image = control.image(0).expect("a view");
        let table = || spec.table(&image).expect("the image is its own");
        let mut sent = Vec::new();
        for key in super::super::keys(&spec.hasher(), names.iter()) {
            let mut emitted = Vec::new();
            control.change(&[(key, 50)], &[], &mut emitted).expect("there is room");
            for (_, emitted) in emitted {
                let Emitted::Update(bytes) = emitted else { panic!("Concise sends parts") };
                sent.push(bytes);
            }
        }
        let applied = |table: &mut dyn Table, updates: &[&[Vec<u8>]]| {
            let mut batch = Updates::default();
            updates.concat().iter().for_each(|update| batch.push(update));
            let (n, end) = table.apply_batch(&batch);
            (n, end.is_ok(), table.parts_received())
        };
        let mut one_by_one = table();
        let counts: Vec<u64> = sent
            .iter()
            .map(|update| {
                assert_eq!(one_by_one.apply(update), Ok(Applied::Applied));
                one_by_one.parts_received()
            })
            .collect();
        let made = control.n_rebuilt();
        assert!(made > 2 && counts.last() == Some(&made), "{made} parts, {counts:?}");
        // Each comes twice.
        let twice: Vec<Vec<u8>> = sent.iter().flat_map(|update| [update.clone(), update.clone()]).collect();
        assert_eq!(applied(&mut *table(), &[&twice]), (sent.len(), true, made));
        // Without one that brings parts the next one does not fit, and what comes after that does not count.
        let whole = 1 + counts.windows(2).position(|two| two[0] < two[1]).expect("some bring parts");
        let batch = [&sent[..whole], &sent[whole + 1..whole + 2], &sent[whole..=whole]];
        assert_eq!(applied(&mut *table(), &batch), (whole, false, counts[whole - 1]));
    }
}
