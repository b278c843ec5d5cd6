//! Query structures of one part. One image holds the whole structure.

use super::bytes::DecodeError;
use super::error::ApplyError;
use super::part::{HeldPart, PartId};
use crate::traits::{BatchReader, Image, Query, Replicated};

/// Whether `n_changes` to a structure of `n_names` in one part are better made and sent as a whole: at least 4 changes,
/// and one for every 4 names.
pub(crate) fn is_bulk(n_changes: usize, n_names: usize) -> bool {
    n_changes >= 4 && n_changes * 4 >= n_names
}

/// A [`Replicated`] structure that is not divided into parts.
pub trait Undivided: Query + Sized + Send + 'static {
    /// As [`Replicated::Settings`].
    type Settings: Clone + Send + 'static;
    /// The whole structure.
    type Image: Image;
    /// As [`Replicated::Reader`].
    type Reader: BatchReader<[Self::Key]> + 'static;

    /// The settings that it was built with.
    fn settings(&self) -> Self::Settings;

    /// As [`Replicated::encode_update`].
    fn encode_update(settings: &Self::Settings, update: &Self::Update, out: &mut Vec<u8>);

    /// As [`Replicated::decode_update`].
    /// # Errors
    /// [`DecodeError`].
    fn decode_update(settings: &Self::Settings, bytes: &[u8]) -> Result<Self::Update, DecodeError>;

    /// As [`Replicated::decode_update_over`].
    /// # Errors
    /// [`DecodeError`].
    fn decode_update_over(
        settings: &Self::Settings,
        bytes: &[u8],
        update: &mut Self::Update,
    ) -> Result<(), DecodeError> {
        *update = Self::decode_update(settings, bytes)?;
        Ok(())
    }

    /// The update that carries the whole structure.
    fn update_of(image: Self::Image) -> Self::Update;

    /// The image that an update carries, if any.
    fn image_of(update: &Self::Update) -> Option<&Self::Image>;

    /// Builds the structure from an image.
    /// # Errors
    /// As [`Replicated::from_images`].
    fn from_image(settings: &Self::Settings, image: &Self::Image) -> Result<Self, ApplyError>;

    /// Installs an image whatever its version.
    /// # Errors
    /// As [`Replicated::overwrite`].
    fn overwrite(&mut self, image: &Self::Image) -> Result<(), ApplyError>;

    /// The whole structure.
    fn image(&self) -> Self::Image;

    /// Version and digest.
    fn held(&self) -> (u64, u64);

    /// A reader for another thread.
    fn reader(&self) -> Self::Reader;
}

impl<Q: Undivided> Replicated for Q {
    const DIVIDED: bool = false;

    type Settings = Q::Settings;
    type Image = Q::Image;
    type Reader = Q::Reader;

    fn settings(&self) -> Q::Settings {
        Undivided::settings(self)
    }

    fn encode_update(settings: &Q::Settings, update: &Q::Update, out: &mut Vec<u8>) {
        <Q as Undivided>::encode_update(settings, update, out);
    }

    fn decode_update(settings: &Q::Settings, bytes: &[u8]) -> Result<Q::Update, DecodeError> {
        <Q as Undivided>::decode_update(settings, bytes)
    }

    fn decode_update_over(settings: &Q::Settings, bytes: &[u8], update: &mut Q::Update) -> Result<(), DecodeError> {
        <Q as Undivided>::decode_update_over(settings, bytes, update)
    }

    fn update_of(mut images: Vec<Q::Image>) -> Q::Update {
        <Q as Undivided>::update_of(images.pop().expect("a structure has at least one part"))
    }

    fn images_of(update: &Q::Update) -> Option<&[Q::Image]> {
        Q::image_of(update).map(std::slice::from_ref)
    }

    fn from_images(settings: &Q::Settings, images: &[Q::Image]) -> Result<Self, ApplyError> {
        Q::from_image(settings, the_one(images)?)
    }

    fn overwrite(&mut self, images: &[Q::Image]) -> Result<(), ApplyError> {
        Undivided::overwrite(self, the_one(images)?)
    }

    fn images(&self) -> Vec<Q::Image> {
        vec![self.image()]
    }

    fn held(&self) -> Vec<HeldPart> {
        let (version, digest) = Undivided::held(self);
        vec![HeldPart { id: PartId::WHOLE, version, digest }]
    }

    fn reader(&self) -> Q::Reader {
        Undivided::reader(self)
    }
}

fn the_one<I>(images: &[I]) -> Result<&I, ApplyError> {
    match images {
        [image] => Ok(image),
        _ => Err(ApplyError::Malformed { reason: "a structure of one part comes as one image" }),
    }
}
