//! An Othello as a switch holds it: see [`Replicated`].

use std::io;

use super::query::{OthelloQuery, Reader};
use super::sizing::Sizing;
use super::update::{ShardImage, Update};
use super::{Settings, query};
use crate::base::arena::Arena;
use crate::traits::{ApplyError, DecodeError, HeldPart, Outside, Replicated, ShareError};

impl<S: Sizing> Replicated for OthelloQuery<S> {
    type Settings = Settings;
    type Image = ShardImage;
    type Reader = Reader<S>;

    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn encode_update(settings: &Settings, update: &Update, out: &mut Vec<u8>) {
        update.encode(settings.cell_bits(), out);
    }

    fn decode_update(settings: &Settings, bytes: &[u8]) -> Result<Update, DecodeError> {
        Update::decode(bytes, settings.cell_bits())
    }

    fn decode_update_over(settings: &Settings, bytes: &[u8], update: &mut Update) -> Result<(), DecodeError> {
        update.decode_over(bytes, settings.cell_bits())
    }

    fn update_of(shards: Vec<ShardImage>) -> Update {
        Update::Shards(shards)
    }

    fn images_of(update: &Update) -> Option<&[ShardImage]> {
        if let Update::Shards(shards) = update { Some(shards) } else { None }
    }

    fn from_images(settings: &Settings, shards: &[ShardImage]) -> Result<Self, ApplyError> {
        Self::of(settings, shards, false)
    }

    fn from_own(settings: &Settings, shards: &[ShardImage]) -> Self {
        let made = Self::of(settings, shards, true);
        made.unwrap_or_else(|error| panic!("no memory for a query structure of {} shards: {error}", shards.len()))
    }

    fn overwrite(&mut self, shards: &[ShardImage]) -> Result<(), ApplyError> {
        shards.iter().try_for_each(|shard| self.check(shard, true))?;
        self.install(shards)
    }

    fn images(&self) -> Vec<ShardImage> {
        self.shards.in_order().map(|held| self.image_of(held)).collect()
    }

    fn held(&self) -> Vec<HeldPart> {
        self.shards.in_order().map(query::Held::part).collect()
    }

    fn reader(&self) -> Reader<S> {
        OthelloQuery::reader(self)
    }

    fn moved_to(&self, make: &mut dyn FnMut(usize) -> io::Result<Arena>) -> Result<Self, ShareError> {
        if !S::SHARDED {
            return Err(ShareError::Unsupported);
        }
        let arena = make(Self::most_bytes(&self.settings))?;
        Ok(Self::on(arena, &self.settings, &self.images(), true)?)
    }

    fn outside(&mut self) -> Option<&mut dyn Outside> {
        if S::SHARDED { Some(&mut self.shards) } else { None }
    }
}
