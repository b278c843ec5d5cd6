//! Lookups per second by kind of names, with the tables of FIB designs.
//!
//! Names are contiguous in the order in which they are looked up, as headers are in a ring of buffers: a query is the
//! number of a name. Timed and checked by [`crate::bench::lookup`].

use fib::designs::{BURST, NameList, Spec, Table, keys};
use fib::name::Name;
use lookup::hash::{Digest, Family, Hasher, SecretKey};
use serde::Deserialize;

use super::{Method, Progress, Rows, Setting};
use crate::BenchError;
use crate::bench::Options;
use crate::bench::lookup::{Queries, side_by_side};
use crate::contestants::{Burst, Contestant, Reader};
use crate::figures::catalogue::from_text;
use crate::figures::{Point, X};
use crate::kinds::{Kind, Sources};
use crate::names::{NameSet, value_of};

pub(super) const METHODS: &[Method] = &[Method {
    name: "key-kinds",
    about: "lookups a second, in M/s, of FIB designs, by kind of names: ipv4, mac, ipv6, 5-tuple, url, file-name",
    check: |setting| Parameters::of(setting).map(drop),
    run,
    toy: "n = 500\nruns = 1\noperations = 500",
}];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    #[serde(deserialize_with = "from_text")]
    kind: Kind,
    n: u64,
    value_bits: u8,
    runs: u32,
    operations: Option<u64>,
}

impl Parameters {
    fn of(setting: &Setting) -> Result<Self, BenchError> {
        let parameters: Self = setting.parameters()?;
        for name in setting.contestants() {
            crate::design(&name).map_err(|error| BenchError::Setting(error.to_string()))?;
        }
        if parameters.value_bits > 16 {
            return Err(BenchError::Setting(format!("values have {} bits; use 1 to 16", parameters.value_bits)));
        }
        parameters.options(setting).check()?;
        Ok(parameters)
    }

    fn options(&self, setting: &Setting) -> Options {
        Options {
            n: vec![self.n],
            contestants: setting.contestants(),
            threads: vec![1],
            value_bits: self.value_bits,
            names: NameSet::Uniform,
            runs: self.runs,
            batch: BURST as u32,
            in_flight: vec![1],
            seed: setting.seed,
            family: Family::MulAdd,
            operations: self.operations.or(Some(self.n)),
        }
    }
}

fn run(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let parameters = Parameters::of(setting)?;
    let Parameters { kind, value_bits, .. } = parameters;
    let named = Sources::default().names(kind, parameters.n as usize, setting.seed);
    let n = named.names.len() as u64;
    let mut built: Vec<(String, FibTable<'_>)> = Vec::new();
    for name in setting.contestants() {
        progress.say(&format!("building {name} with {n} names of kind {kind}: {}", named.source));
        match FibTable::build(&name, kind, &named.names, value_bits, setting.seed) {
            Ok(table) => built.push((name, table)),
            Err(reason) => {
                for series in setting.series.iter().filter(|series| series.contestant() == name) {
                    progress.lacks(&series.name, &format!("{kind}: {reason}"));
                }
            }
        }
    }
    let entered: Vec<(&str, &dyn Contestant)> =
        built.iter().map(|(name, table)| (&**name, table as &dyn Contestant)).collect();
    let numbers: Vec<u64> = (0..n).collect();
    let mut rows = Rows::new(setting, progress);
    side_by_side(&entered, Queries::live(&numbers), n, &parameters.options(setting), &mut rows)?;
    let x = X::Text(format!("{kind} ({})", named.source));
    let points = setting.points(&rows.rows, |rate| rate).into_iter();
    Ok(points.map(|point| Point { x: Some(x.clone()), ..point }).collect())
}

/// The table of a design; the value of a name is derived from its number.
struct FibTable<'a> {
    table: Box<dyn Table>,
    hasher: Hasher,
    names: &'a [Name],
}

impl<'a> FibTable<'a> {
    fn build(design: &str, kind: Kind, names: &'a [Name], value_bits: u8, seed: u64) -> Result<Self, String> {
        let design = crate::design(design).map_err(|error| error.to_string())?;
        let key = SecretKey::from_seed(seed);
        let spec = Spec::new(design, kind.name_kind(), Family::MulAdd, key, value_bits, names.len());
        let hasher = spec.hasher();
        let keys = keys(&hasher, names.iter()).into_iter();
        let entries: Vec<_> = keys.zip(0..).map(|(key, number)| (key, value_of(number, value_bits) as u16)).collect();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let table = spec.build(&entries, threads).map_err(|error| error.to_string())?;
        Ok(Self { table, hasher, names })
    }
}

impl Contestant for FibTable<'_> {
    fn size_bits(&self) -> u64 {
        self.table.size_bits()
    }

    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(InOrder { reader: self.table.reader(), hasher: &self.hasher, names: self.names })
    }
}

struct InOrder<'a> {
    reader: Box<fib::designs::Reader>,
    hasher: &'a Hasher,
    names: &'a [Name],
}

impl Burst for InOrder<'_> {
    fn lookup(&mut self, numbers: &[u64], values: &mut [u64]) {
        let names = &self.names[numbers[0] as usize..][..numbers.len()];
        let (mut digests, mut burst) = ([Digest(0); BURST], [&names[0]; BURST]);
        for ((digest, place), name) in digests.iter_mut().zip(&mut burst).zip(names) {
            (*digest, *place) = (self.hasher.digest(name.as_bytes()), name);
        }
        let names = NameList(&burst[..names.len()]);
        self.reader.lookup_batch(&fib::designs::Burst { digests: &digests[..names.0.len()], names: &names }, values);
    }
}
