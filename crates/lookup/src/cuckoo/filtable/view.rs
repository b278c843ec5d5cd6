//! What one switch's slots hold: a skeleton, with what each name means at that switch.
//!
//! Values come from a function of what a name carries, so that hundreds of switches share one skeleton, and keep 24
//! bytes each. Cost: a pass over the slots for a whole table; an update costs what the skeleton's change has slots.

use super::query::FiltableQuery;
use super::skeleton::{Change, Place, Skeleton};
use super::update::{Image, SlotsUpdate, Update, Write};
use super::{Format, Settings};
use crate::cuckoo::exact::{TableImage, digest_of};
use crate::cuckoo::slot_prf;
use crate::hash::Digest;

/// What the other side of the seam has, as far as this side knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    version: u64,
    /// Digests of both levels.
    first: u64,
    second: u64,
}

impl View {
    /// Fills the slots for one switch: its view, and the query structure that it describes.
    ///
    /// `value` gives the value of a name at this switch from what the name carries; it must fit into a slot.
    /// # Panics
    /// When there is no memory for it, as any allocation does.
    pub fn export<P: Copy + PartialEq>(skeleton: &Skeleton<P>, value: impl Fn(P) -> u64) -> (Self, FiltableQuery) {
        let mut view = Self::default();
        let image = view.image(skeleton, value);
        let query = FiltableQuery::from_image(skeleton.settings(), &image);
        (view, query.unwrap_or_else(|error| panic!("no memory for a query structure: {error}")))
    }

    /// The whole table for this switch: after a rebuild, or because the switch asked for it.
    pub fn image<P: Copy + PartialEq>(&mut self, skeleton: &Skeleton<P>, value: impl Fn(P) -> u64) -> Image {
        self.version = skeleton.version();
        self.same_image(skeleton, value)
    }

    /// As [`View::image`], of the version that the switch has: where it had all updates, they are the same.
    pub(super) fn same_image<P: Copy + PartialEq>(
        &mut self,
        skeleton: &Skeleton<P>,
        value: impl Fn(P) -> u64,
    ) -> Image {
        let (settings, format) = (skeleton.settings(), skeleton.settings().format());
        let (tweak, slots) = skeleton.first();
        let n_buckets = (skeleton.n_first_slots() / crate::cuckoo::SLOTS) as u32;
        let mut first = vec![0; n_buckets as usize * format.bucket_words()];
        self.first = 0;
        for (slot, content) in (0..).zip(slots) {
            let word = first_word(skeleton, format, content, &value);
            let (at, shift) = format.spot(slot);
            first[at] |= u64::from(word) << shift;
            self.first ^= slot_prf(settings.seed, slot, &[word.into()]);
        }
        let second = self.second_image(skeleton, &value);
        Image { version: self.version, digest: self.digest(), tweak, n_buckets, first, second }
    }

    fn second_image<P: Copy + PartialEq>(&mut self, skeleton: &Skeleton<P>, value: impl Fn(P) -> u64) -> TableImage {
        let settings = skeleton.settings();
        let (tweak, slots) = skeleton.second();
        let layout = settings.second_layout();
        let mut words = Vec::with_capacity(skeleton.n_second_slots() * layout.slot_words);
        slots.for_each(|content| words.extend(second_words(settings, content, &value)));
        self.second = digest_of(&words, layout, settings.second_seed());
        let n_buckets = (skeleton.n_second_slots() / crate::cuckoo::SLOTS) as u32;
        TableImage { version: self.version, digest: self.second, tweak, n_buckets, words }
    }

    fn digest(&self) -> u64 {
        self.first ^ self.second
    }

    /// Version and digest of what was sent last.
    pub fn held(&self) -> (u64, u64) {
        (self.version, self.digest())
    }

    /// Notes that what the switch has is right, under an earlier version: later ones changed no slot of it.
    pub fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    /// Appends the update that brings this switch along after `change`, the latest mutation of `skeleton`.
    ///
    /// Where no slot holds something else at this switch, nothing is appended. `value` is the one that the view was
    /// made with.
    pub fn updates<P: Copy + PartialEq>(
        &mut self,
        skeleton: &Skeleton<P>,
        change: &Change<P>,
        value: impl Fn(P) -> u64,
        updates: &mut Vec<Update>,
    ) {
        let (second_rebuilt, slots) = match change {
            Change::None => return,
            Change::Rebuilt => {
                updates.push(Update::Table(self.image(skeleton, value)));
                return;
            }
            Change::Slots { second_rebuilt, slots } => (*second_rebuilt, slots),
        };
        let settings = skeleton.settings();
        let format = settings.format();
        let Settings { seed, .. } = *settings;
        let mut writes = Vec::with_capacity(slots.len());
        for change in slots {
            match change.place {
                Place::First(slot) => {
                    let old = first_word(skeleton, format, change.old, &value);
                    let word = first_word(skeleton, format, change.new, &value);
                    if old != word {
                        self.first ^= slot_prf(seed, slot, &[old.into()]) ^ slot_prf(seed, slot, &[word.into()]);
                        writes.push(Write::First { slot, word });
                    }
                }
                Place::Second(slot) => {
                    let [old, new] = [change.old, change.new].map(|content| second_words(settings, content, &value));
                    if old != new {
                        let seed = settings.second_seed();
                        self.second ^= slot_prf(seed, slot, &old) ^ slot_prf(seed, slot, &new);
                        let (name, value) = change.new.map_or((Digest(0), 0), |(name, p)| (name, value(p)));
                        writes.push(Write::Second { slot, name, value });
                    }
                }
            }
        }
        if writes.is_empty() && !second_rebuilt {
            return;
        }
        let from = std::mem::replace(&mut self.version, skeleton.version());
        let second = second_rebuilt.then(|| self.second_image(skeleton, &value));
        updates.push(Update::Slots(SlotsUpdate { from, to: self.version, digest: self.digest(), second, writes }));
    }
}

/// A slot of level 1.
fn first_word<P: Copy + PartialEq>(
    skeleton: &Skeleton<P>,
    format: Format,
    content: Option<(Digest, P)>,
    value: impl Fn(P) -> u64,
) -> u32 {
    content.map_or(0, |(digest, payload)| {
        let value = value(payload);
        debug_assert!(value <= skeleton.settings().max_value(), "a value must fit into a slot");
        format.slot(skeleton.fingerprint(digest), value)
    })
}

/// A slot of level 2.
fn second_words<P>(settings: &Settings, content: Option<(Digest, P)>, value: impl Fn(P) -> u64) -> [u64; 2] {
    content.map_or([0; 2], |(digest, payload)| settings.second_slot(digest, value(payload)))
}
