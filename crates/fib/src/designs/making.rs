//! A view that is made a few parts at a time, while names change.
//!
//! A part that changes after it was made is made again. So when all parts are made, they are those of one moment: the
//! view is the same as if it had been made at once then. To make it needs as much time in all, and once more for each
//! part that changed meanwhile.

use super::shared::value_at;
use lookup::traits::{Change, ImageOf, InsertError, Skeleton, View};
use std::collections::HashMap;

/// Names of parts that are made in the time in which one name of an exact table is read, about.
const NAMES_A_NAME: usize = 4;

/// A view in the making.
pub(super) struct Making<S: Skeleton<Payload = u32>> {
    view: S::View,
    values: Vec<u16>,
    /// The parts that are made, by slot. A slot may be out of use.
    images: HashMap<u32, ImageOf<S>>,
    /// Parts that were made and changed since the last turn. They are made again beside as many others as usual:
    /// otherwise frequent changes would keep the view from ever being complete.
    n_changed: usize,
}

impl<S: Skeleton<Payload = u32>> Making<S> {
    /// A view without parts; `None` if views of this structure are made at once.
    pub(super) fn begin() -> Option<Self> {
        let view = S::View::without_parts()?;
        Some(Making { view, values: Vec::new(), images: HashMap::new(), n_changed: 0 })
    }

    /// The skeleton changed.
    pub(super) fn note(&mut self, change: &Change) {
        let slots = match change {
            Change::None => &[],
            Change::Part { slot } => std::slice::from_ref(slot),
            Change::Parts { slots, .. } => &slots[..],
        };
        self.n_changed += slots.iter().filter(|slot| self.images.remove(slot).is_some()).count();
    }

    /// Makes parts for as long as it takes to read `n_names` names, and says how many are left of them. Whether all
    /// parts are made.
    /// # Errors
    /// [`InsertError`]: the names have no arrangement with these values.
    pub(super) fn go_on(&mut self, skeleton: &S, values: &[u16], n_names: &mut usize) -> Result<bool, InsertError> {
        // Places that came since are at no name of a part that is made.
        if !values.starts_with(&self.values) {
            self.images.clear();
        }
        values.clone_into(&mut self.values);
        let mut n_extra = std::mem::take(&mut self.n_changed);
        let parts = self.view.held(skeleton);
        let cost = (skeleton.len() / parts.len().max(1) / NAMES_A_NAME).max(1);
        for (slot, _) in parts {
            if self.images.contains_key(&slot) {
                continue;
            }
            if *n_names == 0 && n_extra == 0 {
                return Ok(false);
            }
            let image = self.view.image(skeleton, slot, value_at(&self.values))?;
            self.view.note(skeleton, slot, &image);
            self.images.insert(slot, image);
            match n_extra {
                0 => *n_names = n_names.saturating_sub(cost),
                _ => n_extra -= 1,
            }
        }
        Ok(true)
    }

    /// The view and all its parts, in order of digests. Parts that are not made are made now. `None`: these are not its
    /// values.
    pub(super) fn finish(mut self, skeleton: &S, values: &[u16]) -> Option<(S::View, Vec<ImageOf<S>>)> {
        if self.values != values || !self.go_on(skeleton, values, &mut usize::MAX.clone()).ok()? {
            return None;
        }
        let parts = self.view.held(skeleton).into_iter();
        let images: Option<Vec<_>> = parts.map(|(slot, _)| self.images.remove(&slot)).collect();
        Some((self.view, images?))
    }
}
