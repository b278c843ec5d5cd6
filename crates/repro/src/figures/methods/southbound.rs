//! The cost in messages of a change of one name, over [`crate::bench::message`]: bars for a new name, a changed value
//! and a removed name.

use lookup::hash::Family;
use serde::Deserialize;

use super::{Method, Progress, Rows, Setting};
use crate::BenchError;
use crate::bench::{Options, message};
use crate::figures::{Point, X};
use crate::names::NameSet;
use crate::report::Row;

pub(super) const METHODS: &[Method] = &[Method {
    name: "message",
    about: "of designs: mean bytes of a message to a switch's table, M messages/s that a switch takes over, or the parts of \
            the time of a changed value: `clock`, `decode`, `table`; bytes of a message for a new name: `all`, \
            `in place`, `name for bits`",
    check: |setting| Parameters::of(setting).map(drop),
    run,
    toy: "n = 2000\noperations = 60\nruns = 1",
}];

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Measure {
    Bytes,
    Applied,
    /// The time of a changed value at a switch, in its parts.
    Parts,
    /// Bytes for a new name: of all messages, of those that send no table anew, and of the latter if those of a Bloom
    /// forwarder had the name, which the switch hashes, in place of its bits.
    Contents,
}

/// Bytes of a name with its value, in a message that has these.
const NAME_BYTES: f64 = 7.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    n: u64,
    value_bits: u8,
    measure: Measure,
    /// Names that are added, moved and removed.
    operations: u64,
    runs: u32,
}

impl Parameters {
    fn of(setting: &Setting) -> Result<Self, BenchError> {
        let known = message::contestants();
        if let Some(name) = setting.contestants().into_iter().find(|name| known.iter().all(|(known, _)| known != name))
        {
            let known = known.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            return Err(BenchError::UnknownContestant { name, known });
        }
        let parameters: Self = setting.parameters()?;
        parameters.options(setting, 1).check()?;
        Ok(parameters)
    }

    fn options(&self, setting: &Setting, runs: u32) -> Options {
        Options {
            n: vec![self.n],
            contestants: setting.contestants(),
            threads: vec![1],
            value_bits: self.value_bits,
            names: NameSet::Mac,
            runs,
            batch: 1,
            in_flight: vec![1],
            seed: setting.seed,
            family: Family::default(),
            operations: Some(self.operations),
        }
    }
}

fn run(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let parameters = Parameters::of(setting)?;
    let mut rows = Rows::new(setting, progress);
    message::run(&parameters.options(setting, parameters.runs), &mut rows)?;
    let points = |row: &Row| {
        let series = setting.series.iter().find(|series| series.contestant() == row.contestant)?;
        let (change, figures) = (row.bench.strip_prefix("message/")?, row.messages.as_ref()?);
        let point = |x: &str, [y, min, max]: [f64; 3]| Point {
            series: series.name.clone(),
            x: Some(X::Text(x.into())),
            y,
            min,
            max,
        };
        Some(match parameters.measure {
            Measure::Bytes => vec![point(change, [row.median, row.min, row.max])],
            Measure::Applied => vec![point(change, [figures.applied_per_s / 1e6; 3])],
            Measure::Parts if change == "change" => {
                let (clock, decode) = (figures.clock_ns, figures.decode_ns);
                let parts =
                    [("clock", clock), ("decode", decode), ("table", 1e9 / figures.applied_per_s - clock - decode)];
                parts.map(|(part, ns)| point(part, [ns; 3])).into()
            }
            Measure::Contents if change == "add" => {
                let in_place = point("in place", [figures.in_place_bytes; 3]);
                let name = figures.in_place_bytes - figures.position_bytes + NAME_BYTES;
                let with_name = (figures.position_bytes > 0.0).then(|| point("name for bits", [name; 3]));
                [point("all", [row.median, row.min, row.max]), in_place].into_iter().chain(with_name).collect()
            }
            Measure::Parts | Measure::Contents => Vec::new(),
        })
    };
    Ok(rows.rows.iter().filter_map(points).flatten().collect())
}
