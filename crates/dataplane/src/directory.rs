//! Tells programs which port a name is at. They send names and get ports, independently of the workers.
//!
//! The directory reads the plane that the workers read, 32 names at a time: a batch sees one published state and one
//! version of the table. It has a few readers of the FIB, each with its own lock, which is held for a batch. It never
//! takes the lock of the writer. A switch with hosts holds the valid names, and looks for every name among them first.
//! On other switches only the FIB answers, and the answer says that the name was not checked.
//!
//! Cost: a lookup in the FIB, and at a gateway one in the exact table or, for texts, in a map. Alien names:
//! [`Answer::Unknown`] at a gateway; elsewhere the design's answer, marked [`Answer::Unchecked`].

use crate::exact::Others;
use crate::plane::{Plane, PlaneWriter, Shared};
use crate::table::FibTable;
use fib::action::{Action, PortId};
use fib::designs::{BURST, Burst, NameList};
use fib::name::{Name, NameError, NameKind, clip};
use lookup::hash::Digest;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

impl PlaneWriter<FibTable> {
    /// The directory that answers programs, with `n_readers` readers of every FIB that is published from now on.
    pub fn directory(&mut self, n_readers: usize) -> Directory {
        self.n_asking = n_readers.max(1);
        let (valid, local) = (self.valid.others().clone(), self.local.others().clone());
        Directory::new(self.shared.clone(), valid, local)
    }
}

/// What is known of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// There is no such name.
    Unknown,
    /// The name exists, and is at this port.
    Found(PortId),
    /// If the name exists, it is at this port.
    Unchecked(PortId),
    /// The name exists, but no path leads to it.
    Unreachable,
}

/// Why names were not looked up.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DirectoryError {
    /// There is no table yet.
    #[error(
        "this switch has no table yet: no controller has answered, and there was no saved image; `/status` says why; try \
         again later"
    )]
    NoFib,
    /// A text of the request is not a name.
    #[error("name {index} of the request, `{text}`: {source}")]
    Name {
        /// Its index in the request.
        index: usize,
        /// The beginning of the text.
        text: String,
        /// What is wrong.
        source: NameError,
    },
}

/// Requests and answers so far.
#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    refused: AtomicU64,
    unknown: AtomicU64,
    found: AtomicU64,
    unchecked: AtomicU64,
    unreachable: AtomicU64,
}

/// Requests and answers so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DirectoryCounts {
    /// Requests, with those that were refused.
    pub requests: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Names, by answer.
    pub answers: [(&'static str, u64); 4],
}

/// Answers questions for names, from any thread. See the module.
pub struct Directory {
    shared: Arc<Shared<FibTable>>,
    valid: Arc<Others<Option<IpAddr>>>,
    local: Arc<Others<PortId>>,
    counters: Counters,
}

impl Directory {
    pub(crate) fn new(
        shared: Arc<Shared<FibTable>>,
        valid: Arc<Others<Option<IpAddr>>>,
        local: Arc<Others<PortId>>,
    ) -> Self {
        Self { shared, valid, local, counters: Counters::default() }
    }

    /// The answers to names in text form, in their order.
    /// # Errors
    /// [`DirectoryError`]; no name is looked up then.
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

    /// The kind of the names, once there is a table.
    pub fn kind(&self) -> Option<NameKind> {
        self.shared.plane.load().asked.as_ref().map(|asked| asked.kind)
    }

    /// Counts a request that the caller refused.
    pub fn count_refused(&self) {
        self.counters.requests.fetch_add(1, Relaxed);
        self.counters.refused.fetch_add(1, Relaxed);
    }

    /// Requests and answers so far.
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
        // Valid names are read before the table: a new name becomes valid last, and a removed name becomes invalid first.
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
            Some(Action::Local) => plane.local.get_name(name, digest).map(PortId).or_else(|| self.local.get(name)),
            other => other.and_then(|action| action.port()),
        };
        match (port, plane.valid_held) {
            (Some(port), true) => Answer::Found(port),
            (Some(port), false) => Answer::Unchecked(port),
            (None, true) => Answer::Unreachable,
            (None, false) => Answer::Unknown,
        }
    }
}
