//! The contents of one switch's slots: a skeleton, with the value of each name at that switch.
//!
//! Values are computed from payloads by a function, so hundreds of switches share one skeleton and keep 24 bytes each.
//! Cost: one pass over the slots for a whole table; an update costs as many slots as the skeleton's change has.

use super::skeleton::FiltableSkeleton;
use super::slots::Place;
use super::update::{Image, SlotsUpdate, Update, Write};
use super::{Format, Settings};
use crate::base::part::{Change, HeldPart, PartId, Payload};
use crate::cuckoo::exact::{TableImage, digest_of};
use crate::cuckoo::{SLOTS, slot_prf};
use crate::hash::Digest;
use crate::traits::{InsertError, Skeleton, View};

/// What the data plane holds, as far as the control side knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FiltableView {
    version: u64,
    /// Digests of both levels.
    first: u64,
    second: u64,
}

impl FiltableView {
    fn digest(&self) -> u64 {
        self.first ^ self.second
    }
}

impl<P: Payload> View<FiltableSkeleton<P>> for FiltableView {
    fn export(skeleton: &FiltableSkeleton<P>, value: impl Fn(P) -> u64) -> Result<(Self, Vec<Image>), InsertError> {
        let mut view = Self::default();
        let image = view.image(skeleton, 0, value)?;
        view.note(skeleton, 0, &image);
        Ok((view, vec![image]))
    }

    fn updates(
        &mut self,
        skeleton: &FiltableSkeleton<P>,
        change: &Change,
        value: impl Fn(P) -> u64,
        updates: &mut Vec<Update>,
    ) -> Result<(), InsertError> {
        match change {
            Change::None => return Ok(()),
            Change::Part { .. } => {}
            Change::Parts { .. } => {
                let image = self.image(skeleton, 0, value)?;
                self.note(skeleton, 0, &image);
                updates.push(Update::Table(image));
                return Ok(());
            }
        }
        let settings = skeleton.settings();
        let format = settings.format();
        let (first_seed, second_seed) = (settings.seed, settings.second_seed());
        let mut writes = Vec::with_capacity(skeleton.slots.len());
        for change in &skeleton.slots {
            match change.place {
                Place::First(slot) => {
                    let [old, word] =
                        [change.old, change.new].map(|content| first_word(skeleton, format, content, &value));
                    if old != word {
                        self.first ^=
                            slot_prf(first_seed, slot, &[old.into()]) ^ slot_prf(first_seed, slot, &[word.into()]);
                        writes.push(Write::First { slot, word });
                    }
                }
                Place::Second(slot) => {
                    let [old, new] = [change.old, change.new].map(|content| second_words(settings, content, &value));
                    if old != new {
                        self.second ^= slot_prf(second_seed, slot, &old) ^ slot_prf(second_seed, slot, &new);
                        let (name, value) = change.new.map_or((Digest(0), 0), |(name, p)| (name, value(p)));
                        writes.push(Write::Second { slot, name, value });
                    }
                }
            }
        }
        if writes.is_empty() && !skeleton.second_rebuilt {
            return Ok(());
        }
        let from = std::mem::replace(&mut self.version, skeleton.version);
        let second = skeleton.second_rebuilt.then(|| second_image(skeleton, &value));
        self.second = second.as_ref().map_or(self.second, |image| image.digest);
        updates.push(Update::Slots(SlotsUpdate { from, to: self.version, digest: self.digest(), second, writes }));
        Ok(())
    }

    fn image(
        &self,
        skeleton: &FiltableSkeleton<P>,
        _slot: u32,
        value: impl Fn(P) -> u64,
    ) -> Result<Image, InsertError> {
        let (settings, format) = (skeleton.settings(), skeleton.settings().format());
        let (tweak, slots) = skeleton.first();
        let n_buckets = (skeleton.n_first_slots() / SLOTS) as u32;
        let mut first = vec![0; n_buckets as usize * format.bucket_words()];
        let mut digest = 0;
        for (slot, content) in (0..).zip(slots) {
            let word = first_word(skeleton, format, content, &value);
            let (at, shift) = format.spot(slot);
            first[at] |= u64::from(word) << shift;
            digest ^= slot_prf(settings.seed, slot, &[word.into()]);
        }
        let second = second_image(skeleton, &value);
        Ok(Image { version: skeleton.version, digest: digest ^ second.digest, tweak, n_buckets, first, second })
    }

    fn note(&mut self, _: &FiltableSkeleton<P>, _slot: u32, image: &Image) {
        let second = image.second.digest;
        (self.version, self.first, self.second) = (image.version, image.digest ^ second, second);
    }

    fn held(&self, _skeleton: &FiltableSkeleton<P>) -> Vec<(u32, HeldPart)> {
        vec![(0, HeldPart { id: PartId::WHOLE, version: self.version, digest: self.digest() })]
    }

    fn set_version(&mut self, _slot: u32, version: u64) {
        self.version = version;
    }
}

fn second_image<P: Payload>(skeleton: &FiltableSkeleton<P>, value: impl Fn(P) -> u64) -> TableImage {
    let settings = skeleton.settings();
    let (tweak, slots) = skeleton.second();
    let layout = settings.second_layout();
    let mut words = Vec::with_capacity(skeleton.n_second_slots() * layout.slot_words);
    slots.for_each(|content| words.extend(second_words(settings, content, &value)));
    let digest = digest_of(&words, layout, settings.second_seed());
    let n_buckets = (skeleton.n_second_slots() / SLOTS) as u32;
    TableImage { version: skeleton.version, digest, tweak, n_buckets, words }
}

/// A slot of level 1.
fn first_word<P: Payload>(
    skeleton: &FiltableSkeleton<P>,
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
