//! What a store keeps of a skeleton besides the names: a header, and pages of both levels and the tombstones.
//!
//! ```text
//! header: | buckets of level 1 4 | rebuilds 8 | room 8 | level 2: buckets 4, rebuilds 8, room 8 |
//!         | oldest tombstone 4 | tombstones 4 | version 8 |      little-endian
//! pages:  table 1 is level 1, table 2 is level 2, table 3 the ring of tombstones
//! ```

use super::first::{First, State};
use super::index::Index;
use super::skeleton::{FiltableSkeleton, second_capacity, second_seed};
use super::{Settings, first_buckets};
use crate::base::part::{PartId, Payload};
use crate::cuckoo::places::{Entry, Itself, Places};
use crate::cuckoo::rows::{find_header, header, join, misplaced, read_count, read_pages};
use crate::cuckoo::{SLOTS, most_buckets, tweak};
use crate::hash::Digest;
use crate::traits::{RestoreError, Row};

const FIRST: u8 = 1;
const SECOND: u8 = 2;
const TOMBSTONES: u8 = 3;

impl<P: Payload> FiltableSkeleton<P> {
    fn header(&self) -> Row {
        let mut value = self.first.n_buckets().to_le_bytes().to_vec();
        value.extend(self.n_tweaks.to_le_bytes());
        value.extend((self.capacity as u64).to_le_bytes());
        self.second.encode(&mut value);
        value.extend(self.tombstones.oldest.to_le_bytes());
        value.extend(self.tombstones.len.to_le_bytes());
        value.extend(self.version.to_le_bytes());
        header(value)
    }

    pub(super) fn take_changed_rows(&mut self) -> Vec<Row> {
        let mut rows = vec![self.header()];
        let digest = |name: u32| self.names[name as usize].digest.0;
        self.first.slots.take_rows(FIRST, digest, &mut rows);
        self.tombstones.ring.take_rows(TOMBSTONES, digest, &mut rows);
        rows.extend(self.second.take_rows(SECOND));
        rows
    }

    pub(super) fn all_rows(&self) -> impl Iterator<Item = Row> + '_ {
        let digest = |name: u32| self.names[name as usize].digest.0;
        let first = self.first.slots.rows(FIRST, digest);
        let tombstones = self.tombstones.ring.rows(TOMBSTONES, digest);
        std::iter::once(self.header()).chain(first).chain(self.second.rows(SECOND)).chain(tombstones)
    }

    /// Notes that a store has, or will be given, all rows.
    pub(super) fn forget_dirty(&mut self) {
        self.first.slots.forget_dirty();
        self.second.forget_dirty();
        self.tombstones.ring.forget_dirty();
    }
}

/// The skeleton of `rows` and the `live` names: the same as before, so that every view has the same slots.
pub(super) fn restore<P: Payload>(
    settings: &Settings,
    rows: &[Row],
    live: &[(Digest, P)],
) -> Result<FiltableSkeleton<P>, RestoreError> {
    let out_of_range = RestoreError::OutOfRange { part: PartId::WHOLE };
    let mut bytes = find_header(rows)?;
    let (n_buckets, n_tweaks, capacity) = (bytes.u32()?, read_count(&mut bytes)?, bytes.u64()?);
    let max_names = settings.max_names;
    let most = most_buckets(first_buckets(max_names, settings.fingerprint_bits));
    if n_buckets == 0 || n_buckets > most || capacity > max_names as u64 {
        return Err(out_of_range);
    }
    let first = First::new(n_buckets, tweak(settings.seed, n_tweaks), settings);
    // All names may collide, and level 2 grows by a quarter.
    let most_second = second_capacity(&first).max(max_names / 4 * 5 + 4);
    let second = Places::decode(&mut bytes, second_seed(settings, n_tweaks), Itself, most_second)?;
    let index = Index::new(live.len());
    let mut made = FiltableSkeleton::empty(settings.clone(), first, second, capacity as usize, index);
    (made.tombstones.oldest, made.tombstones.len) = (bytes.u32()?, bytes.u32()?);
    (made.n_tweaks, made.version, made.n_live) = (n_tweaks, read_count(&mut bytes)?, live.len());
    bytes.end()?;
    let ring = made.tombstones.ring.len();
    if made.tombstones.oldest as usize >= ring || made.tombstones.len as usize >= ring {
        return Err(out_of_range);
    }
    let slots = read_pages(rows, &[made.n_first_slots(), made.n_second_slots(), ring])?;
    let (tombstones, slots): (Vec<_>, Vec<_>) =
        slots.into_iter().partition(|stored| stored.table + 1 == TOMBSTONES.into());
    let misplaced = || misplaced(live.len());
    for (stored, payload) in join(slots, live.iter().map(|&(digest, payload)| (digest.0, payload)).collect())? {
        let (digest, slot) = (Digest(stored.digest), stored.slot);
        let name = made.remember(digest, payload);
        let (state, fits) = if stored.table + 1 == FIRST.into() {
            let is_own = made.first.spots(digest).buckets.contains(&(slot / SLOTS as u32));
            made.first.n_names += 1;
            (State::First(slot), is_own && made.first.slots.set(slot, Some(name)).is_none())
        } else {
            (State::Second, made.second.put_back(slot, Entry { name: [digest.0], payload: name }))
        };
        made.names[name as usize].state = state;
        if !fits {
            return Err(misplaced());
        }
    }
    for stored in tombstones {
        let (digest, slot) = (Digest(stored.digest), stored.slot);
        let is_known = made.find(digest).is_some();
        let name = made.remember(digest, P::default());
        made.names[name as usize].state = State::Tombstone(slot);
        if is_known || !made.tombstones.covers(slot) || made.tombstones.ring.set(slot, Some(name)).is_some() {
            return Err(misplaced());
        }
    }
    if made.first.slots.iter().flatten().any(|name| made.colliders(name).next().is_some()) {
        return Err(misplaced());
    }
    made.forget_dirty();
    Ok(made)
}
