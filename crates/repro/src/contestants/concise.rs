//! Our own: the Othello of crate `lookup`, through readers that allow a concurrent writer.
//!
//! The contestant `concise` is what a switch runs. The others hold the same names with a different publication, without
//! any, or in the sizes of the papers, which have a single shard.

use lookup::base::processor::Kernel;
use lookup::base::touches::{Touch, Touches};
use lookup::hash::{Digest, Hasher};
use lookup::othello::{Option1, Option2, Othello, OthelloQuery, Pinned, Reader, Settings, Sharded, Sizing};
use lookup::traits::Query;

use super::parts::part;
use super::{Burst, Calls, Contestant, Hashed, Input, Kind, MAX_BATCH};
use crate::BenchError;

pub(super) const CONCISE: Kind = Kind {
    name: "concise",
    about: "sharded Othello, through a reader beside a writer: what a switch runs",
    build: |input| Ok(Box::new(Concise::<Sharded>::build("concise", input)?)),
    default: true,
};
pub(super) const OFW: Kind = Kind {
    name: "ofw",
    about: "the same with fingerprints of 8 bits, the emptiness indicator among them: 0.25 % of aliens get through",
    build: |input| Ok(Box::new(ofw("ofw", input)?)),
    default: false,
};
pub(super) const SHARED: Kind = Kind {
    name: "concise-shared",
    about: "the same in memory that other programs map, as `share` of a switch makes it",
    build: |input| {
        let concise = Concise::<Sharded>::build("concise-shared", input)?;
        Ok(Box::new(Concise { query: super::shared("concise-shared", &concise.query)?, ..concise }))
    },
    default: false,
};
pub(super) const STATIC: Kind = Kind {
    name: "concise-static",
    about: "the same pinned once a run instead of once a burst: what publication costs is the difference",
    build: |input| Ok(Box::new(Static(Concise::build("concise-static", input)?))),
    default: false,
};
pub(super) const BEGIN: Kind = Kind {
    name: "concise-begin",
    about: "part of a lookup: digests, directory and places of cells, which are neither prefetched nor read",
    build: |input| Concise::build("concise-begin", input)?.begun(input, false),
    default: false,
};
pub(super) const BEGIN_PREFETCH: Kind = Kind {
    name: "concise-begin-prefetch",
    about: "the same, and the cells are prefetched, whether that pays or not",
    build: |input| Concise::build("concise-begin-prefetch", input)?.begun(input, true),
    default: false,
};
pub(super) const OPTION_1: Kind = Kind {
    name: "concise-option1",
    about: "one Othello in the papers' first size: both sides powers of two, 2.67 to 5.33 cells a name",
    build: |input| Ok(Box::new(Concise::<Option1>::build("concise-option1", input)?)),
    default: false,
};
pub(super) const OPTION_2: Kind = Kind {
    name: "concise-option2",
    about: "one Othello in the papers' second size: 2.67 to 4 cells a name",
    build: |input| Ok(Box::new(Concise::<Option2>::build("concise-option2", input)?)),
    default: false,
};

struct Concise<S: Sizing> {
    query: OthelloQuery<S>,
    hasher: Hasher,
    name_len: usize,
}

impl<S: Sizing> Concise<S> {
    fn build(contestant: &str, input: &Input<'_>) -> Result<Self, BenchError> {
        Self::with_settings(contestant, input, Self::settings(input))
    }

    fn settings(input: &Input<'_>) -> Settings {
        Settings::new(input.value_bits, input.names.len(), &input.secret_key())
    }

    fn with_settings(contestant: &str, input: &Input<'_>, settings: Settings) -> Result<Self, BenchError> {
        let (_, query) = Othello::<S>::build(settings, &input.entries(), input.build_threads)
            .map_err(|error| input.build_error(contestant, error))?;
        Ok(Self { query, hasher: input.hasher(), name_len: input.name_len })
    }
}

/// Bits of a fingerprint of `ofw`.
const OFW_BITS: u8 = 8;

fn ofw(contestant: &'static str, input: &Input<'_>) -> Result<Concise<Sharded>, BenchError> {
    if input.value_bits > 64 - OFW_BITS {
        let reason = format!("values of {} bits leave no room for a fingerprint in 64", input.value_bits);
        return Err(BenchError::Unavailable { contestant, reason });
    }
    let settings = Concise::<Sharded>::settings(input).with_fingerprints(OFW_BITS);
    Concise::with_settings(contestant, input, settings)
}

/// The table of `concise`, and the bits of its fingerprints.
pub(super) fn query(contestant: &'static str, input: &Input<'_>) -> Result<(OthelloQuery<Sharded>, u8), BenchError> {
    Ok((Concise::build(contestant, input)?.query, 0))
}

/// The same of `ofw`.
pub(super) fn ofw_query(
    contestant: &'static str,
    input: &Input<'_>,
) -> Result<(OthelloQuery<Sharded>, u8), BenchError> {
    Ok((ofw(contestant, input)?.query, OFW_BITS))
}

impl Concise<Sharded> {
    fn begun(self, input: &Input<'_>, prefetch: bool) -> Result<Box<dyn Contestant>, BenchError> {
        let size_bits = self.query.size_bits();
        let locate = move || {
            let mut reader = self.query.reader();
            move |digests: &[Digest]| reader.pin().locate(digests, prefetch)
        };
        Ok(part(input, Kernel::get(), size_bits, locate))
    }
}

impl<S: Sizing> Contestant for Concise<S> {
    fn size_bits(&self) -> u64 {
        self.query.size_bits()
    }

    fn reader(&self) -> Box<dyn super::Reader + '_> {
        Box::new(Hashed::new(self.query.reader(), &self.hasher, self.name_len))
    }

    fn touches(&self, name: u64, touch: &mut dyn FnMut(Touch)) {
        self.query.touches(self.hasher.digest_word(name, self.name_len), touch);
    }

    fn note(&self) -> String {
        pages_note(&self.query)
    }
}

/// The pages that the cells are on, if they are not the expected ones.
fn pages_note<S: Sizing>(query: &OthelloQuery<S>) -> String {
    let stats = query.stats();
    match stats.huge_page_bytes {
        Some(0) => "on small pages".into(),
        _ => String::new(),
    }
}

struct Static(Concise<Sharded>);

impl Contestant for Static {
    fn size_bits(&self) -> u64 {
        self.0.size_bits()
    }

    fn reader(&self) -> Box<dyn super::Reader + '_> {
        let Concise { query, hasher, name_len } = &self.0;
        Box::new(Unpublished { reader: query.reader(), hasher, name_len: *name_len })
    }

    fn note(&self) -> String {
        self.0.note()
    }
}

/// A reader that no writer ever waits for: pinned from the first burst of a run to the last.
struct Unpublished<'a> {
    reader: Reader,
    hasher: &'a Hasher,
    name_len: usize,
}

impl Unpublished<'_> {
    fn pin(&mut self) -> Held<'_> {
        Held { table: self.reader.pin(), hasher: self.hasher, name_len: self.name_len, digests: [Digest(0); MAX_BATCH] }
    }
}

impl super::Reader for Unpublished<'_> {
    fn has_phases(&self) -> bool {
        false
    }

    fn sum(&mut self, queries: &[u64], calls: Calls, passes: u64) -> u64 {
        super::sum(&mut self.pin(), queries, calls, passes)
    }

    fn first_wrong(&mut self, queries: &[u64], calls: Calls, value_bits: u8) -> Option<(u64, u64, u64)> {
        super::first_wrong(&mut self.pin(), queries, calls, value_bits)
    }
}

struct Held<'a> {
    table: Pinned<'a>,
    hasher: &'a Hasher,
    name_len: usize,
    digests: [Digest; MAX_BATCH],
}

impl Burst for Held<'_> {
    #[inline]
    fn lookup(&mut self, names: &[u64], values: &mut [u64]) {
        let digests = &mut self.digests[..names.len()];
        self.hasher.digest_words(names, self.name_len, digests);
        self.table.lookup_batch(digests, values);
    }
}
