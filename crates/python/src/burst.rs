//! Lookups of many names, a burst at a time. Two bursts are in flight: while the words of one come from memory, the names
//! of the next are hashed.

use crate::arrays::Packed;
use ::fib::designs::{BURST, Burst, BurstNames, Reader, put_words};
use lookup::hash::{Digest, Hasher};
use std::cell::Cell;

/// Names, or what stands for them, in bursts.
pub(crate) trait Bursts {
    /// The names of one burst, for structures that hold whole names.
    type Names<'a>: BurstNames
    where
        Self: 'a;

    /// The digests of the names from `from` on.
    fn digests(&self, from: usize, out: &mut [Digest]);

    /// The names from `from` on.
    fn names(&self, from: usize) -> Self::Names<'_>;
}

/// Packed names with their hasher.
pub(crate) struct Hashed<'a> {
    pub(crate) names: Packed<'a>,
    pub(crate) hasher: &'a Hasher,
}

/// Packed names from one of them on.
pub(crate) struct From<'a> {
    names: &'a Packed<'a>,
    from: usize,
}

impl BurstNames for From<'_> {
    fn fill(&self, width: usize, with_length: bool, out: &mut [u64]) {
        for (at, words) in (self.from..).zip(out.chunks_exact_mut(width)) {
            put_words(self.names.get(at), with_length, words);
        }
    }

    fn text(&self, at: usize) -> &[u8] {
        self.names.get(self.from + at)
    }
}

impl Bursts for Hashed<'_> {
    type Names<'a>
        = From<'a>
    where
        Self: 'a;

    #[inline]
    fn digests(&self, from: usize, out: &mut [Digest]) {
        self.names.digests(self.hasher, from, out);
    }

    fn names(&self, from: usize) -> From<'_> {
        From { names: &self.names, from }
    }
}

/// Digests without their names. A structure that holds whole names asks for them, and gets zeros: whether one did is known
/// afterwards.
pub(crate) struct Bare<'a> {
    pub(crate) digests: &'a [u64],
    pub(crate) names_were_wanted: Cell<bool>,
}

/// No names.
pub(crate) struct Missing<'a>(&'a Cell<bool>);

impl BurstNames for Missing<'_> {
    fn fill(&self, _: usize, _: bool, out: &mut [u64]) {
        self.0.set(true);
        out.fill(0);
    }
}

impl Bursts for Bare<'_> {
    type Names<'a>
        = Missing<'a>
    where
        Self: 'a;

    fn digests(&self, from: usize, out: &mut [Digest]) {
        let digests = &self.digests[from..from + out.len()];
        out.iter_mut().zip(digests).for_each(|(out, digest)| *out = Digest(*digest));
    }

    fn names(&self, _: usize) -> Missing<'_> {
        Missing(&self.names_were_wanted)
    }
}

/// Looks as many names up as there are places for values. An alien's value that is not the number of an action is 0, drop, as in
/// [`fib::file::Fib::lookup_batch`].
pub(crate) fn look_up<B: Bursts>(reader: &mut Reader, n_actions: usize, names: &B, out: &mut [u16]) {
    let n = out.len();
    let mut digests = [[Digest(0); BURST]; 2];
    let mut values = [0; BURST];
    let begin = |reader: &mut Reader, from: usize, digests: &mut [Digest; BURST]| {
        let digests = &mut digests[..BURST.min(n - from)];
        names.digests(from, digests);
        reader.begin(&Burst { digests, names: &names.names(from) });
    };
    if n > 0 {
        begin(reader, 0, &mut digests[0]);
    }
    for (burst, out) in out.chunks_mut(BURST).enumerate() {
        let from = burst * BURST;
        if from + BURST < n {
            begin(reader, from + BURST, &mut digests[(burst + 1) % 2]);
        }
        let digests = &digests[burst % 2][..out.len()];
        reader.finish(&Burst { digests, names: &names.names(from) }, &mut values[..out.len()]);
        for (out, value) in out.iter_mut().zip(values) {
            *out = if value < n_actions as u64 { value as u16 } else { 0 };
        }
    }
}
