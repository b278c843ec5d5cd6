//! Which port a name is at, for programs that have a name and no frame: names in, ports out, beside the workers.
//!
//! It reads the plane that the workers read, 32 names at a time: one published state, one version of the table a batch.
//! Readers of the FIB are a few, each behind a lock of its own that is held for a batch; the lock of whoever writes the
//! tables is never taken. Where the switch holds the valid names (it has hosts), every name is looked for among them
//! first, exactly; elsewhere the FIB alone answers, and says so.
//!
//! Cost: a lookup in the FIB, and at a gateway one in the exact table or, for texts, in a map.
//! Alien names: [`Answer::Unknown`] at a gateway; elsewhere what the design gives, marked [`Answer::Unchecked`].

use crate::exact::Others;
use crate::plane::{Plane, Shared};
use crate::table::FibTable;
use fib::action::{Action, PortId};
use fib::designs::{BURST, Burst, NameList, Reader};
use fib::name::{Name, NameError, NameKind, clip};
use lookup::hash::{Digest, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// What is known of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// There is no such name.
    Unknown,
    /// The name is there, and is at this port.
    Found(PortId),
    /// If the name is there, it is at this port.
    Unchecked(PortId),
    /// The name is there, and no path leads to it.
    Unreachable,
}

/// Why names were not looked up.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// Nothing to look up in.
    #[error(
        "this switch has no table yet: no controller has answered, and it started without a saved image; `/status` says \
         why, or try again"
    )]
    NoFib,
    /// A text that is no name.
    #[error("name {index} of the request, `{text}`: {source}")]
    Name {
        /// Its place in the request, from 0.
        index: usize,
        /// Its start.
        text: String,
        /// What is wrong.
        source: NameError,
    },
}

/// Questions and answers so far.
#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    refused: AtomicU64,
    unknown: AtomicU64,
    found: AtomicU64,
    unchecked: AtomicU64,
    unreachable: AtomicU64,
}

/// Questions and answers so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DirectoryCounts {
    /// Requests, those refused among them.
    pub requests: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Names, by answer.
    pub answers: [(&'static str, u64); 4],
}

/// The lookups of one FIB for the directory.
pub(crate) struct Asked {
    kind: NameKind,
    hasher: Hasher,
    readers: Box<[Mutex<Box<dyn Reader>>]>,
    next: AtomicUsize,
}

impl Asked {
    pub(crate) fn new(kind: NameKind, hasher: Hasher, readers: impl Iterator<Item = Box<dyn Reader>>) -> Self {
        Self { kind, hasher, readers: readers.map(Mutex::new).collect(), next: AtomicUsize::new(0) }
    }

    /// A reader that nobody uses, or the turn at one that somebody does.
    fn reader(&self) -> MutexGuard<'_, Box<dyn Reader>> {
        let first = self.next.fetch_add(1, Relaxed);
        let reader = |i: usize| &self.readers[(first.wrapping_add(i)) % self.readers.len()];
        let free = (0..self.readers.len()).find_map(|i| match reader(i).try_lock() {
            Ok(free) => Some(free),
            Err(TryLockError::Poisoned(free)) => Some(free.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        });
        free.unwrap_or_else(|| reader(0).lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Answers about names, from any thread. See the module.
pub struct Directory {
    shared: Arc<Shared<FibTable>>,
    valid: Arc<Others<()>>,
    local: Arc<Others<PortId>>,
    counters: Counters,
}

impl Directory {
    pub(crate) fn new(shared: Arc<Shared<FibTable>>, valid: Arc<Others<()>>, local: Arc<Others<PortId>>) -> Self {
        Self { shared, valid, local, counters: Counters::default() }
    }

    /// The answers to names in text form, in their order.
    /// # Errors
    /// [`DirectoryError`]; nothing is answered.
    pub fn lookup(&self, texts: &[&str]) -> Result<Vec<Answer>, DirectoryError> {
        let mut answers = Vec::with_capacity(texts.len());
        self.counters.requests.fetch_add(1, Relaxed);
        for batch in texts.chunks(BURST) {
            self.answer_batch(batch, &mut answers).inspect_err(|_| _ = self.counters.refused.fetch_add(1, Relaxed))?;
        }
        let mut n = [0; 4];
        for answer in &answers {
            n[match answer {
                Answer::Unknown => 0,
                Answer::Found(_) => 1,
                Answer::Unchecked(_) => 2,
                Answer::Unreachable => 3,
            }] += 1;
        }
        let Counters { unknown, found, unchecked, unreachable, .. } = &self.counters;
        for (counter, n) in [unknown, found, unchecked, unreachable].into_iter().zip(n) {
            counter.fetch_add(n, Relaxed);
        }
        Ok(answers)
    }

    /// Counts a request that was refused before it came here.
    pub fn count_refused(&self) {
        self.counters.requests.fetch_add(1, Relaxed);
        self.counters.refused.fetch_add(1, Relaxed);
    }

    /// Questions and answers so far.
    pub fn counts(&self) -> DirectoryCounts {
        let Counters { requests, refused, unknown, found, unchecked, unreachable } = &self.counters;
        let answers = [("unknown", unknown), ("found", found), ("unchecked", unchecked), ("unreachable", unreachable)];
        DirectoryCounts {
            requests: requests.load(Relaxed),
            refused: refused.load(Relaxed),
            answers: answers.map(|(name, n)| (name, n.load(Relaxed))),
        }
    }

    fn answer_batch(&self, texts: &[&str], answers: &mut Vec<Answer>) -> Result<(), DirectoryError> {
        let plane = self.shared.plane.load_full();
        let asked = plane.asked.as_deref().ok_or(DirectoryError::NoFib)?;
        let mut names = Vec::with_capacity(texts.len());
        for (i, text) in texts.iter().enumerate() {
            let name = Name::parse(asked.kind, text);
            let index = answers.len() + i;
            names.push(name.map_err(|source| DirectoryError::Name { index, text: clip(text), source })?);
        }
        let mut digests = [Digest(0); BURST];
        for (digest, name) in digests.iter_mut().zip(&names) {
            *digest = asked.hasher.digest(name.as_bytes());
        }
        let digests = &digests[..names.len()];
        // Before the table: a name that comes is valid last, and one that goes ceases to be so first.
        let mut valid = [true; BURST];
        if plane.valid_held {
            for ((valid, name), digest) in valid.iter_mut().zip(&names).zip(digests) {
                *valid = plane.valid.get_name(name, *digest).is_some() || self.valid.get(name).is_some();
            }
        }
        let mut values = [0; BURST];
        let values = &mut values[..names.len()];
        {
            let names: Vec<&Name> = names.iter().collect();
            let mut reader = asked.reader();
            reader.lookup_batch(&Burst { digests, names: &NameList(&names) }, values);
            reader.offline();
        }
        for (i, name) in names.iter().enumerate() {
            answers.push(if valid[i] { self.answer(&plane, name, digests[i], values[i]) } else { Answer::Unknown });
        }
        Ok(())
    }

    fn answer(&self, plane: &Plane<FibTable>, name: &Name, digest: Digest, value: u64) -> Answer {
        let action = usize::try_from(value).ok().and_then(|value| plane.actions.get(value));
        let port = match action {
            Some(Action::Port(port)) => Some(*port),
            Some(Action::Local) => plane.local.get_name(name, digest).map(PortId).or_else(|| self.local.get(name)),
            Some(Action::Drop | Action::Tunnel { .. } | Action::Punt) | None => None,
        };
        match (port, plane.valid_held) {
            (Some(port), true) => Answer::Found(port),
            (Some(port), false) => Answer::Unchecked(port),
            (None, true) => Answer::Unreachable,
            (None, false) => Answer::Unknown,
        }
    }
}
