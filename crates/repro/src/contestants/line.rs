//! Our own: one cache line per lookup, at several points of its trade of memory against speed.

use lookup::base::processor::Kernel;
use lookup::base::touches::{Touch, Touches};
use lookup::hash::{Digest, Hasher};
use lookup::line::{LineQuery, LineTable, Settings, Trade};
use lookup::traits::{Query, Replicated};

use super::parts::part;
use super::{Contestant, Hashed, Input, Kind};
use crate::BenchError;

pub(super) const LINE: Kind = Kind {
    name: "line",
    about: "one cache line a lookup: three cells of a line that a small linear system was solved for",
    build: |input| Ok(Box::new(Line::build("line", input, Trade::Balanced)?)),
    default: true,
};
pub(super) const SHARED: Kind = Kind {
    name: "line-shared",
    about: "the same in memory that other programs map, as `share` of a switch makes it",
    build: |input| {
        let line = Line::build("line-shared", input, Trade::Balanced)?;
        Ok(Box::new(Line { query: super::shared("line-shared", &line.query)?, ..line }))
    },
    default: false,
};
pub(super) const FAST: Kind = Kind {
    name: "line-fast",
    about: "the same with lines less full: more memory, fewer names that need a second line",
    build: |input| Ok(Box::new(Line::build("line-fast", input, Trade::Fast)?)),
    default: false,
};
pub(super) const SMALL: Kind = Kind {
    name: "line-small",
    about: "the same with four cells a name and lines fuller",
    build: |input| Ok(Box::new(Line::build("line-small", input, Trade::Small)?)),
    default: false,
};

pub(super) const BEGIN: Kind = Kind {
    name: "line-begin",
    about: "part of a lookup: digests, directory and places of lines, which are neither prefetched nor read",
    build: |input| begun("line-begin", input, false),
    default: false,
};
pub(super) const BEGIN_PREFETCH: Kind = Kind {
    name: "line-begin-prefetch",
    about: "the same, and the lines are prefetched, whether that pays or not",
    build: |input| begun("line-begin-prefetch", input, true),
    default: false,
};

struct Line {
    query: LineQuery,
    hasher: Hasher,
    name_len: usize,
}

impl Line {
    fn build(contestant: &'static str, input: &Input<'_>, trade: Trade) -> Result<Self, BenchError> {
        if input.value_bits > 32 {
            let reason = format!("a value has at most 32 bits, not {}", input.value_bits);
            return Err(BenchError::Unavailable { contestant, reason });
        }
        let settings = Settings::new(input.value_bits, input.names.len(), &input.secret_key()).with_trade(trade);
        let (_, query) = LineTable::build(settings, &input.entries(), input.build_threads)
            .map_err(|error| input.build_error(contestant, error))?;
        Ok(Self { query, hasher: input.hasher(), name_len: input.name_len })
    }
}

/// The table of `line`, and the bits of its fingerprints.
pub(super) fn query(contestant: &'static str, input: &Input<'_>) -> Result<(LineQuery, u8), BenchError> {
    Ok((Line::build(contestant, input, Trade::Balanced)?.query, 0))
}

fn begun(contestant: &'static str, input: &Input<'_>, prefetch: bool) -> Result<Box<dyn Contestant>, BenchError> {
    let Line { query, .. } = Line::build(contestant, input, Trade::Balanced)?;
    let size_bits = query.size_bits();
    let locate = move || {
        let mut reader = query.reader();
        move |digests: &[Digest]| reader.pin().locate(digests, prefetch)
    };
    Ok(part(input, Kernel::get(), size_bits, locate))
}

impl Contestant for Line {
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
        match self.query.stats().huge_page_bytes {
            Some(0) => "on small pages".into(),
            _ => String::new(),
        }
    }
}
