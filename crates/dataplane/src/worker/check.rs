//! The memory of the check of one burst's sources: see [`super::sources`].

use crate::source::Checked;
use lookup::base::marked::Searches;
use lookup::hash::{Digest, Hasher};
use netio::BURST;

/// The check of a burst, from its beginning to its end.
pub(super) struct Sources {
    pub(super) checked: Checked,
    /// Frames that have a source.
    pub(super) whole: u32,
    /// Frames of which more must be examined.
    pub(super) more: u32,
    /// The version of the local names before any was looked up, and the first frame whose source was not known under it.
    pub(super) version: u64,
    pub(super) unknown: usize,
    /// The source of each frame, as a name that is to be local.
    pub(super) names: [u64; BURST],
    pub(super) digests: [Digest; BURST],
    pub(super) searches: Searches,
}

impl Default for Sources {
    fn default() -> Self {
        Self {
            checked: Checked::Nothing,
            whole: 0,
            more: 0,
            version: 0,
            unknown: 0,
            names: [0; BURST],
            digests: [Digest(0); BURST],
            searches: Searches::default(),
        }
    }
}

impl Sources {
    pub(super) fn digest(&mut self, hasher: &Hasher, n: usize, name_len: usize) {
        hasher.digest_words(&self.names[..n], name_len, &mut self.digests[..n]);
    }
}
