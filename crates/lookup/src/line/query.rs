//! Line tables, query half: a directory and buckets, no names.
//!
//! [`LineQuery`] is the handle of the one writer. Each reading thread has a [`Reader`]. A bucket is written in place:
//! all its words are written between two increments of the table's counter, whose journal records the bucket. If the
//! counter moved during a burst, the reader asks the journal, and reads again the names of the recorded buckets and the
//! bumped ones. If a group or its upper levels are rebuilt, the new group is written elsewhere and published as a
//! whole.
//!
//! The table has one counter, which is checked once per burst. That costs two loads per 32 names, of a line that stays
//! in the reader's cache unless the writer wrote. A counter in every bucket would cost each name a comparison. New
//! versions of groups would cost every update a copy of 8 KB.
//!
//! Cost: one line per lookup. Alien names: an arbitrary value.
//! Limits: one writer; `base::served` bounds what readers may hold back.

#![expect(unsafe_code, reason = "writes groups into the arena that readers hold")]

use std::io;

use super::kernel::{self, Served, Spots};
use super::layout::{Geometry, Layout, STASH_BYTES};
use super::update::{BucketsUpdate, GroupImage, LevelsUpdate, Update, bucket_prf};
use super::{MAX_STASH, Settings};
use crate::base::arena::{Arena, LINE};
use crate::base::part::{HeldPart, MAX_DEPTH, PartId};
use crate::base::prefetch::{BURST, prefetch};
use crate::base::processor::{Kernel, Reads};
use crate::base::root::Form;
use crate::base::served::{self, Held, PartsReader, ServedParts};
use crate::base::touches::{Touch, Touches};
use crate::hash::Digest;
use crate::publish::ring::Ring;
use crate::publish::{ANYWHERE, Pin};
use crate::traits::{Applied, ApplyError, BatchReader, DecodeError, Outside, Query, Replicated, ShareError};

/// The most buckets that are prefetched for one update. Most updates have one.
const MOST_BUCKETS: usize = 4;

/// The query half of a table, and the handle of its one writer.
pub struct LineQuery {
    groups: ServedParts<Geometry, ()>,
    settings: Settings,
    layout: Layout,
}

/// Statistics of a query structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryStats {
    /// Groups served.
    pub n_groups: usize,
    /// Buckets, stashes and directory, in bits.
    pub size_bits: u64,
    /// Bytes of the arena in use. Old groups that wait for readers are included.
    pub arena_bytes: u64,
    /// Bytes of old groups that wait for readers.
    pub retired_bytes: usize,
    /// Bytes of the arena on huge pages, if the operating system reports it.
    pub huge_page_bytes: Option<usize>,
    /// Names in stashes.
    pub n_stashed: usize,
}

impl LineQuery {
    fn of(settings: &Settings, images: &[GroupImage]) -> Result<Self, ApplyError> {
        Self::on(served::reserve(Self::most_bytes(settings))?, settings, images)
    }

    /// The size of the arena: twice what the fastest trade needs, so that there is room for groups that are replaced.
    fn most_bytes(settings: &Settings) -> usize {
        let layout = settings.layout();
        let lines = (settings.max_names.min(Settings::MAX_NAMES) * 3).div_ceil(layout.n_cells());
        served::arena_bytes(lines.saturating_mul(layout.bytes()))
    }

    /// As [`LineQuery::of`], in an arena that is zero.
    fn on(arena: Arena, settings: &Settings, images: &[GroupImage]) -> Result<Self, ApplyError> {
        let layout = settings.layout();
        let form = Form {
            structure: 1,
            value_bits: layout.value_bits as u8,
            fingerprint_bits: 0,
            cells_of_name: layout.n_parts as u8,
        };
        let groups = ServedParts::new(arena, form, Reads::Line, ())?;
        let mut query = Self { groups, settings: settings.clone(), layout };
        query.install(images)?;
        Ok(query)
    }

    /// Statistics. Reads the page accounts of the operating system.
    pub fn stats(&self) -> QueryStats {
        let (arena_bytes, retired_bytes) = self.groups.arena_bytes();
        QueryStats {
            n_groups: self.groups.parts().n_parts(),
            size_bits: self.size_bits(),
            arena_bytes,
            retired_bytes,
            huge_page_bytes: self.groups.huge_page_bytes(),
            n_stashed: self.groups.in_order().map(|held| self.image_of(held).stash.len()).sum(),
        }
    }

    /// Words of the buckets. The stash begins after them.
    fn n_words(&self, geometry: Geometry) -> usize {
        geometry.n_all() * self.layout.n_words()
    }

    fn image_of(&self, held: &Held<Geometry>) -> GroupImage {
        let geometry = held.geometry;
        let n_words = self.n_words(geometry);
        let address = self.groups.address(geometry.offset_lines).cast::<u64>();
        // SAFETY: the block has this many words, and a stash where the group has one. Only the writer writes them, so its
        // own plain reads do not race.
        let word = |index: usize| unsafe { address.add(index).read() };
        let n_stash = if geometry.stash { word(n_words) as usize } else { 0 };
        GroupImage {
            id: held.id,
            version: held.version,
            n_buckets: geometry.n_buckets,
            digest: held.digest,
            stash: (0..n_stash).map(|at| (Digest(word(n_words + 1 + 2 * at)), word(n_words + 2 + 2 * at))).collect(),
            words: (0..n_words).map(word).collect(),
        }
    }

    /// Replaces the groups that hold the digests of `images`, all of them or none.
    fn install(&mut self, images: &[GroupImage]) -> Result<(), ApplyError> {
        let ids: Vec<PartId> = images.iter().map(|image| image.id).collect();
        self.groups.check_cover(&ids)?;
        let mut written: Vec<Held<Geometry>> = Vec::with_capacity(images.len());
        for image in images {
            match self.write(image) {
                Ok(held) => written.push(held),
                Err(error) => {
                    written.into_iter().for_each(|held| self.groups.give(held.block));
                    return Err(error);
                }
            }
        }
        self.groups.install(written)
    }

    /// Writes a group into free lines, which no reader can see yet.
    fn write(&mut self, image: &GroupImage) -> Result<Held<Geometry>, ApplyError> {
        let stash_bytes = if image.stash.is_empty() { 0 } else { STASH_BYTES };
        let block = self.groups.take(image.words.len() * 8 + stash_bytes)?;
        let geometry = Geometry { offset_lines: block.0, ..image.geometry() };
        let count = (!image.stash.is_empty()).then_some(image.stash.len() as u64);
        let stash = count.into_iter().chain(image.stash.iter().flat_map(|&(digest, value)| [digest.0, value]));
        self.groups.fill(block, image.words.iter().copied().chain(stash));
        let (id, version, digest) = (image.id, image.version, image.digest);
        Ok(Held { id, version, digest, geometry, entry: geometry.pack(), block })
    }

    /// The group that an update edits. `None` if the update has been applied already.
    fn edited(&self, update: &BucketsUpdate) -> Result<Option<(u32, Held<Geometry>)>, ApplyError> {
        let Some((slot, &held)) = self.groups.parts().find(update.id) else {
            return Err(ApplyError::Malformed { reason: "the update is for a group that is not here" });
        };
        if update.to <= held.version {
            return Ok(None);
        }
        if held.id != update.id || update.from != held.version {
            return Err(ApplyError::Gap { part: update.id, current: held.version, from: update.from });
        }
        Ok(Some((slot, held)))
    }

    /// The buckets of an update. Each comes once and is below `n_buckets`.
    fn buckets<'a>(
        &self,
        update: &'a BucketsUpdate,
        n_buckets: usize,
    ) -> Result<impl Iterator<Item = (u32, &'a [u64])> + Clone + use<'a>, ApplyError> {
        let (indices, n_words) = (&update.indices, self.layout.n_words());
        if update.words.len() != indices.len() * n_words {
            return Err(ApplyError::Malformed { reason: "buckets and their numbers are not as many" });
        }
        let is_wrong = |(at, index): (usize, &u32)| *index as usize >= n_buckets || indices[..at].contains(index);
        if indices.iter().enumerate().any(is_wrong) {
            return Err(ApplyError::Malformed { reason: "a bucket is out of range, or comes twice" });
        }
        Ok(indices.iter().copied().zip(update.words.chunks_exact(n_words)))
    }

    fn apply_buckets(&mut self, update: &BucketsUpdate) -> Result<Applied, ApplyError> {
        let Some((slot, held)) = self.edited(update)? else { return Ok(Applied::AlreadyThere) };
        let (geometry, n_words) = (held.geometry, self.layout.n_words());
        let buckets = self.buckets(update, geometry.n_all())?;
        let line = |index: u32| geometry.offset_lines + (index << self.layout.log_lines);
        // The digest is checked before anything is stored.
        let mut digest = held.digest;
        let mut old = vec![0; n_words];
        for (index, words) in buckets.clone() {
            let address = self.groups.address(line(index)).cast::<u64>();
            for (at, word) in old.iter_mut().enumerate() {
                // SAFETY: the bucket is in range, and only the writer writes it.
                *word = unsafe { address.add(at).read() };
            }
            let share = |words: &[u64]| bucket_prf(self.settings.seed, index as usize, words);
            digest ^= share(&old) ^ share(words);
        }
        ApplyError::check_digest(update.id, digest, update.digest)?;
        let place = match update.indices[..] {
            [index] => kernel::place_of(self.groups.address(0), self.groups.address(line(index))),
            // A name may have moved from one bucket to another, so they are one write.
            _ => ANYWHERE,
        };
        let changed = buckets.clone().flat_map(|(index, words)| {
            let bucket = self.groups.address(line(index));
            (0..words.len()).map(move |at| bucket.wrapping_add(at * 8))
        });
        self.groups.edit_at(place, changed, || {
            for (index, words) in buckets {
                // SAFETY: the bucket is in range.
                unsafe { kernel::store_bucket(&self.layout, self.groups.address(line(index)), words) };
            }
        });
        self.groups.note(slot, update.to, digest);
        Ok(Applied::Applied)
    }

    /// Replaces a group by one with new upper levels.
    fn apply_levels(&mut self, update: &LevelsUpdate) -> Result<Applied, ApplyError> {
        let Some((_, held)) = self.edited(&update.first)? else { return Ok(Applied::AlreadyThere) };
        let (mut image, n_words) = (self.image_of(&held), self.layout.n_words());
        let [n_first, ..] = image.n_buckets;
        image.words.truncate(usize::from(n_first) * n_words);
        for (index, words) in self.buckets(&update.first, n_first.into())? {
            image.words[index as usize * n_words..][..n_words].copy_from_slice(words);
        }
        image.words.extend_from_slice(&update.words);
        image.n_buckets[1..].copy_from_slice(&update.n_upper);
        image.stash.clone_from(&update.stash);
        (image.version, image.digest) = (update.first.to, update.first.digest);
        check(&self.settings, &image)?;
        self.install(&[image])?;
        Ok(Applied::Applied)
    }

    fn apply_groups(&mut self, images: &[GroupImage]) -> Result<Applied, ApplyError> {
        images.iter().try_for_each(|image| check(&self.settings, image))?;
        let held = |image: &GroupImage| self.groups.parts().newest(image.id);
        if images.iter().all(|image| held(image) >= Some(image.version)) {
            return Ok(Applied::AlreadyThere);
        }
        // A message that is older than a part of what is held must not take that part back.
        if let Some(image) = images.iter().find(|image| held(image) > Some(image.version)) {
            let current = held(image).expect("it is newer");
            return Err(ApplyError::Gap { part: image.id, current, from: image.version });
        }
        self.install(images)?;
        Ok(Applied::Applied)
    }

    fn served(&self) -> Served<'_> {
        self.groups.served()
    }
}

/// Checks everything about a group that readers rely on. The group comes from outside.
fn check(settings: &Settings, image: &GroupImage) -> Result<(), ApplyError> {
    let malformed = |reason| Err(ApplyError::Malformed { reason });
    let PartId { prefix, depth } = image.id;
    let layout = settings.layout();
    let [first, second, third] = image.n_buckets;
    if first == 0 || second > super::layout::MAX_SECOND || third > 1 {
        return malformed("a group has a number of buckets that none can have");
    }
    if image.words.len() != image.geometry().n_all() * layout.n_words() || image.stash.len() > MAX_STASH {
        return malformed("a group has another number of words than its buckets, or too large a stash");
    }
    if depth > MAX_DEPTH || prefix >> depth != 0 {
        return malformed("a group has a prefix out of range");
    }
    if image.stash.iter().any(|&(_, value)| value > layout.value_mask()) {
        return malformed("a stashed value is wider than a cell");
    }
    // A duplicate name would not show in the digest.
    if image.stash.iter().enumerate().any(|(at, one)| image.stash[..at].iter().any(|other| other.0 == one.0)) {
        return malformed("a name is stashed twice");
    }
    let got = image.prove(settings);
    ApplyError::check_digest(image.id, got, image.digest)?;
    Ok(())
}

impl Query for LineQuery {
    type Key = Digest;
    type Update = Update;

    fn lookup(&self, key: Digest) -> u64 {
        kernel::lookup(&self.served(), &self.layout, key)
    }

    fn lookup_batch(&self, keys: &[Digest], values: &mut [u64]) {
        kernel::lookup_batch(Kernel::get(), &self.served(), &self.layout, keys, values);
    }

    fn apply(&mut self, update: &Update) -> Result<Applied, ApplyError> {
        match update {
            Update::Buckets(update) => self.apply_buckets(update),
            Update::Levels(update) => self.apply_levels(update),
            Update::Groups(images) => self.apply_groups(images),
        }
    }

    fn prefetch_update(&self, update: &Update) {
        if let Update::Buckets(update) = update
            && let Some((_, held)) = self.groups.parts().find(update.id)
        {
            let lines = 1 << self.layout.log_lines;
            for &index in update.indices.iter().take(MOST_BUCKETS) {
                // The update is not checked yet. A prefetch never faults.
                let line = held.geometry.offset_lines.wrapping_add(index.wrapping_mul(lines));
                (0..lines).for_each(|at| prefetch(self.groups.address(line.wrapping_add(at)).cast_const()));
            }
        }
    }

    fn size_bits(&self) -> u64 {
        self.groups.size_bits()
    }

    fn prefetches(&self) -> bool {
        self.groups.served().prefetch
    }
}

impl Replicated for LineQuery {
    type Settings = Settings;
    type Image = GroupImage;
    type Reader = Reader;

    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn encode_update(_: &Settings, update: &Update, out: &mut Vec<u8>) {
        update.encode(out);
    }

    fn decode_update(settings: &Settings, bytes: &[u8]) -> Result<Update, DecodeError> {
        Update::decode(settings, bytes)
    }

    fn update_of(groups: Vec<GroupImage>) -> Update {
        Update::Groups(groups)
    }

    fn images_of(update: &Update) -> Option<&[GroupImage]> {
        if let Update::Groups(groups) = update { Some(groups) } else { None }
    }

    fn from_images(settings: &Settings, groups: &[GroupImage]) -> Result<Self, ApplyError> {
        groups.iter().try_for_each(|group| check(settings, group))?;
        Self::of(settings, groups)
    }

    fn from_own(settings: &Settings, groups: &[GroupImage]) -> Self {
        let made = Self::of(settings, groups);
        made.unwrap_or_else(|error| panic!("no memory for a query structure of {} groups: {error}", groups.len()))
    }

    fn overwrite(&mut self, groups: &[GroupImage]) -> Result<(), ApplyError> {
        groups.iter().try_for_each(|group| check(&self.settings, group))?;
        self.install(groups)
    }

    fn images(&self) -> Vec<GroupImage> {
        self.groups.in_order().map(|held| self.image_of(held)).collect()
    }

    fn held(&self) -> Vec<HeldPart> {
        self.groups.in_order().map(Held::part).collect()
    }

    fn moved_to(&self, make: &mut dyn FnMut(usize) -> io::Result<Arena>) -> Result<Self, ShareError> {
        Ok(Self::on(make(Self::most_bytes(&self.settings))?, &self.settings, &self.images())?)
    }

    fn outside(&mut self) -> Option<&mut dyn Outside> {
        Some(&mut self.groups)
    }

    fn reader(&self) -> Reader {
        Reader { groups: self.groups.reader(), layout: self.layout, in_flight: Ring::new(|_| Spots::unwritten()) }
    }
}

impl Touches for LineQuery {
    fn touches(&self, key: Digest, touch: &mut dyn FnMut(Touch)) {
        kernel::touches(&self.served(), &self.layout, key, touch);
    }
}

#[cfg(test)]
impl LineQuery {
    /// As [`kernel::kept`].
    pub(super) fn kept(&self, kernel: Kernel, digests: &[Digest]) -> u32 {
        kernel::kept(kernel, &self.served(), &self.layout, digests)
    }
}

#[cfg(test)]
impl crate::testkit::kernels::ByKernel for LineQuery {
    fn by_batch(&self, kernel: Kernel, digests: &[Digest], values: &mut [u64]) {
        kernel::lookup_batch(kernel, &self.served(), &self.layout, digests, values);
    }

    fn by_phases(&self, kernel: Kernel, digests: &[Digest], values: &mut [u64]) {
        let mut spots = Spots::unwritten();
        kernel::begin(kernel, &self.served(), &self.layout, digests, &mut spots);
        // SAFETY: begun just now, and no one writes meanwhile.
        unsafe { kernel::finish(kernel, &self.served(), &self.layout, digests, &spots, values) };
    }
}

#[cfg(test)]
impl crate::base::touches::Memory for LineQuery {
    fn memory(&self) -> (*mut u8, usize) {
        (self.groups.address(0), self.groups.arena_bytes().0 as usize)
    }

    fn is_word(&self, byte: usize) -> bool {
        self.groups.in_order().any(|held| (held.block.0..held.block.0 + held.block.1).contains(&((byte / LINE) as u32)))
    }
}

/// A reading thread's access, concurrent with the writer.
pub struct Reader {
    groups: PartsReader<()>,
    layout: Layout,
    in_flight: Ring<Spots>,
}

impl Reader {
    /// Opens the table for a burst. The thread was quiescent until now: it uses nothing from an earlier burst.
    #[inline]
    pub fn pin(&mut self) -> Pinned<'_> {
        let (served, pin) = self.groups.pin();
        Pinned { served, layout: self.layout, _pin: pin }
    }
}

impl BatchReader<[Digest]> for Reader {
    #[inline]
    fn lookup_batch(&mut self, digests: &[Digest], values: &mut [u64]) {
        self.pin().lookup_batch(digests, values);
    }

    fn has_phases(&self) -> bool {
        true
    }

    #[inline]
    fn begin(&mut self, digests: &[Digest]) {
        assert!(digests.len() <= BURST, "a burst has at most {BURST} names");
        let spots = self.in_flight.push();
        kernel::begin(Kernel::get(), &self.groups.begin(), &self.layout, digests, spots);
    }

    #[inline]
    fn finish(&mut self, digests: &[Digest], values: &mut [u64]) {
        let spots = self.in_flight.pop();
        // SAFETY: the spots are those of the oldest burst. It was begun on this table, and is in flight until the
        // reader's slot is told.
        unsafe { kernel::finish(Kernel::get(), &self.groups.current(), &self.layout, digests, spots, values) };
        self.groups.finish();
    }

    fn offline(&mut self) {
        self.in_flight.clear();
        self.groups.offline();
    }
}

/// The table during one burst.
pub struct Pinned<'a> {
    served: Served<'a>,
    layout: Layout,
    _pin: Pin<'a>,
}

impl Pinned<'_> {
    /// As [`Query::lookup`].
    pub fn lookup(&self, digest: Digest) -> u64 {
        kernel::lookup(&self.served, &self.layout, digest)
    }

    /// As [`Query::lookup_batch`].
    #[inline]
    pub fn lookup_batch(&self, digests: &[Digest], values: &mut [u64]) {
        kernel::lookup_batch(Kernel::get(), &self.served, &self.layout, digests, values);
    }

    /// The first half of the lookup of a burst alone, to measure it: it finds the lines, prefetches them or not, and
    /// reads none.
    #[inline]
    pub fn locate(&self, digests: &[Digest], prefetch: bool) {
        let mut spots = Spots::unwritten();
        kernel::begin(Kernel::get(), &Served { prefetch, ..self.served }, &self.layout, digests, &mut spots);
        std::hint::black_box(&spots);
    }
}

const _: () = assert!(STASH_BYTES.is_multiple_of(8) && LINE.is_multiple_of(8));
