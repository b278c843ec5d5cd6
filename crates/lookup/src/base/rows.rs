//! What most skeletons do for their rows: note which parts changed, and keep a version.

use std::collections::{BTreeMap, BTreeSet};

use super::bytes::Bytes;
use super::part::{Change, PartId};
use crate::traits::{RestoreError, Row};

/// The key of the row that has the version of a whole structure. It is shorter than that of a part.
const VERSION_KEY: [u8; 1] = [0];

/// The row of a version.
pub(crate) fn version_row(version: u64) -> Row {
    Row { key: VERSION_KEY.into(), value: Some(version.to_le_bytes().into()) }
}

/// The version in the row that [`version_row`] made.
pub(crate) fn read_version(rows: &[Row]) -> Result<u64, RestoreError> {
    let row = rows.iter().find(|row| row.key == VERSION_KEY).ok_or(RestoreError::Parts)?;
    let mut bytes = Bytes(row.value.as_deref().unwrap_or_default());
    let version = bytes.u64()?;
    bytes.end()?;
    Ok(version)
}

/// Parts that changed, and ids of parts that no longer exist.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangedParts {
    /// Slots of the parts that changed.
    slots: BTreeMap<PartId, u32>,
    gone: BTreeSet<PartId>,
}

impl ChangedParts {
    /// Notes the latest change. `id_of` gives the part in a slot.
    pub(crate) fn note(&mut self, change: &Change, id_of: impl Fn(u32) -> PartId) {
        let (slots, replaced): (&[u32], &[PartId]) = match change {
            Change::None => (&[], &[]),
            Change::Part { slot } => (std::slice::from_ref(slot), &[]),
            Change::Parts { slots, replaced } => (slots, replaced),
        };
        for id in replaced {
            self.slots.remove(id);
            self.gone.insert(*id);
        }
        for &slot in slots {
            self.gone.remove(&id_of(slot));
            self.slots.insert(id_of(slot), slot);
        }
    }

    /// Slots of the parts that changed since the last call, and ids of those that no longer exist.
    pub(crate) fn take(&mut self) -> (Vec<u32>, Vec<PartId>) {
        let Self { slots, gone } = std::mem::take(self);
        (slots.into_values().collect(), gone.into_iter().collect())
    }
}
