//! `fibula filter union`: merges all names of several filters into one.

use std::path::{Path, PathBuf};

use clap::Args;
use command::output::{Exit, Failure, OrExit, Output};
use lookup::bloom::image::{self, Header};
use lookup::bloom::{Bloom, CounterBits, Counting, Layout, UnionError};
use lookup::with_layout;

use crate::table_file;

use super::{decode, kind_of, read, write};

/// The filters, and the target.
#[derive(Args, Debug)]
pub(crate) struct UnionArgs {
    /// The filter files; all but the first were built with `--like` the first
    #[arg(required = true, num_args = 2..)]
    files: Vec<PathBuf>,
    /// The filter file to write; `-` is standard output
    #[arg(short, long)]
    out: PathBuf,
}

impl UnionArgs {
    pub(crate) fn run(&self, out: &Output) -> anyhow::Result<()> {
        table_file::check_out(&self.out)?;
        let images = self.files.iter().map(|file| read(file, "union")).collect::<anyhow::Result<Vec<_>>>()?;
        let layout = images[0].1;
        for (file, (_, other)) in self.files.iter().zip(&images) {
            if *other != layout {
                return Err(self.differs(file, &format!("has layout {other}, not {layout}")));
            }
        }
        let images: Vec<_> = images.into_iter().map(|(bytes, _)| bytes).collect();
        with_layout!(layout, L => self.unite::<L>(&images, out))
    }

    fn unite<L: Layout>(&self, images: &[Vec<u8>], out: &Output) -> anyhow::Result<()> {
        let (mut header, filter) = decode::<L>(&self.files[0], &images[0])?;
        for (file, image) in self.files.iter().zip(images).skip(1) {
            let other = image::header(image).or_exit(Exit::BadInput, file.display())?;
            self.check(file, &header, &other)?;
            // A name that is in several filters counts once for each.
            header.n_names = header.n_names.saturating_add(other.n_names);
        }
        let refused = |file: &Path, error: UnionError| self.differs(file, &format!("has no union: {error}"));
        let others = || self.files.iter().zip(images).skip(1);
        let (filter, bytes) = if header.counters.is_some() {
            let counting = |file: &Path, image| -> anyhow::Result<Counting<L>> {
                Ok(image::decode_counting(image).or_exit(Exit::BadInput, file.display())?.1)
            };
            let mut union = counting(&self.files[0], &images[0])?;
            for (file, image) in others() {
                union.union_with(&counting(file, image)?, &mut Vec::new()).map_err(|error| refused(file, error))?;
            }
            let bytes = image::encode_counting(&union, &header);
            (union.into_filter(), bytes)
        } else {
            let mut union: Bloom<L> = filter;
            for (file, image) in others() {
                union.union_with(&decode::<L>(file, image)?.1).map_err(|error| refused(file, error))?;
            }
            let bytes = image::encode(&union, &header);
            (union, bytes)
        };
        write(&self.out, &bytes, &filter, out)
    }

    /// Whether a name has the same bits in both filters.
    fn check(&self, file: &Path, first: &Header, other: &Header) -> anyhow::Result<()> {
        let counters = |bits: Option<CounterBits>| bits.map_or(0, |bits| bits as u8);
        let what = if other.kind != first.kind {
            format!("is over names of kind {}, not {}", kind_of(other)?, kind_of(first)?)
        } else if other.family != first.family {
            format!("hashes names with {}, not {}", other.family, first.family)
        } else if other.key != first.key || other.seed != first.seed {
            "hashes names with another key".to_owned()
        } else if counters(other.counters) != counters(first.counters) {
            format!("has counters of {} bits, not {}", counters(other.counters), counters(first.counters))
        } else {
            return Ok(());
        };
        Err(self.differs(file, &what))
    }

    fn differs(&self, file: &Path, what: &str) -> anyhow::Error {
        let (file, first) = (file.display(), self.files[0].display());
        Failure::new(Exit::Refused, format!("{file} {what}; build it again with --like {first}"))
    }
}
