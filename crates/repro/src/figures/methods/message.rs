//! Bits of the message that a changed name costs: as the papers count them, the minimum, and fibula's.

use std::collections::HashMap;

use lookup::hash::{Family, Hasher, SecretKey};
use lookup::othello::{Option2, Othello, Settings, Sharded, Sizing, Update};
use lookup::traits::{Control, Replicated};
use serde::Deserialize;

use super::{Method, Progress, Rows, Setting};
use crate::BenchError;
use crate::bench::{Options, message};
use crate::figures::{Point, X};
use crate::names::{NameSet, Random, mix64, value_of};

pub(super) const METHODS: &[Method] = &[Method {
    name: "entropy",
    about: "bits of an update message, of `add` and `change`: `list`, `entropy`, `update`, `message`",
    check: |setting| check(setting).map(drop),
    run,
    toy: "row = { n = 4000, value_bits = 8 }\noperations = 300\nmessage_names = 500",
}];

/// The names of series: the paper's list of cells in one graph whose sides are powers of two, and its entropy; an
/// update of fibula's table; the message in which a switch gets it.
const CONTESTANTS: [&str; 8] = [
    "add, list",
    "add, entropy",
    "add, update",
    "add, message",
    "change, list",
    "change, entropy",
    "change, update",
    "change, message",
];
/// Names that are added and moved in the messages' network.
const MOVES: u64 = 500;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    row: Row,
    /// Number of additions, and of changes.
    operations: usize,
    /// Names in the messages' network.
    message_names: u64,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    n: usize,
    value_bits: u8,
}

fn check(setting: &Setting) -> Result<Parameters, BenchError> {
    if let Some(name) = setting.contestants().into_iter().find(|name| !CONTESTANTS.contains(&&**name)) {
        return Err(BenchError::UnknownContestant { name, known: CONTESTANTS.join("; ") });
    }
    let parameters: Parameters = setting.parameters()?;
    let Row { n, value_bits } = parameters.row;
    if n < parameters.operations || n > 1 << 26 || !(4..=16).contains(&value_bits) || parameters.operations == 0 {
        let text = format!("n = {n}, {value_bits} bits: at least as many names as operations, and 4 to 16 bits");
        return Err(BenchError::Setting(text));
    }
    Ok(parameters)
}

fn run(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let Parameters { row, operations, message_names } = check(setting)?;
    let wanted = |what: &str| setting.contestants().iter().any(|name| name.ends_with(what));
    let mut bits: HashMap<String, f64> = HashMap::new();
    if wanted("list") || wanted("entropy") {
        progress.say("changing names of one graph");
        let (changes, cells) = changes::<Option2>(row, operations, setting.seed)?;
        for (kind, changes) in ["add", "change"].into_iter().zip(&changes) {
            // The list of a new name also includes its value once more, as the papers count.
            let extra = if kind == "add" { f64::from(row.value_bits) } else { 0.0 };
            let cell = f64::from(cells).log2().ceil() + f64::from(row.value_bits);
            bits.insert(format!("{kind}, list"), changes.mean_cells() * cell + extra);
            bits.insert(format!("{kind}, entropy"), changes.entropy(cells) + f64::from(row.value_bits));
        }
    }
    if wanted("update") {
        progress.say("changing names in shards");
        let (changes, _) = changes::<Sharded>(row, operations, setting.seed)?;
        for (kind, changes) in ["add", "change"].into_iter().zip(&changes) {
            bits.insert(format!("{kind}, update"), changes.mean_bits);
        }
    }
    if wanted("message") {
        let mut rows = Rows::new(setting, progress);
        let options = Options {
            n: vec![message_names],
            contestants: vec!["concise".into()],
            threads: vec![1],
            value_bits: row.value_bits,
            names: NameSet::Mac,
            runs: 1,
            batch: 32,
            in_flight: vec![1],
            seed: setting.seed,
            family: Family::MulAdd,
            operations: Some(MOVES.min(message_names)),
        };
        message::run(&options, &mut rows)?;
        for row in &rows.rows {
            if let (Some(kind), Some(messages)) = (row.bench.strip_prefix("message/"), &row.messages) {
                bits.insert(format!("{kind}, message"), 8.0 * messages.mean_bytes);
            }
        }
    }
    let x = Some(X::Number(row.n as f64));
    let points = setting.series.iter();
    Ok(points.filter_map(|s| Some(Point::exact(&s.name, x.clone(), *bits.get(s.contestant())?))).collect())
}

/// The cost of one kind of change.
#[derive(Default)]
struct Changes {
    /// Number of times that each number of cells changed, when no shard was solved again.
    cells: HashMap<usize, u64>,
    /// Bits of an encoded update, solved shards included.
    mean_bits: f64,
}

impl Changes {
    fn n(&self) -> f64 {
        self.cells.values().sum::<u64>() as f64
    }

    fn mean_cells(&self) -> f64 {
        self.cells.iter().map(|(&cells, &times)| cells as f64 * times as f64).sum::<f64>() / self.n()
    }

    /// Bits that encode how many of `n_cells` cells change and which: `H(s) + E(log2 (n_cells choose s))`.
    fn entropy(&self, n_cells: u32) -> f64 {
        let log2_choose =
            |s: usize| (0..s).map(|i| (f64::from(n_cells) - i as f64) / (i + 1) as f64).map(f64::log2).sum();
        let bits = |(&s, &times): (&usize, &u64)| {
            let p = times as f64 / self.n();
            let choose: f64 = log2_choose(s);
            p * (choose - p.log2())
        };
        self.cells.iter().map(bits).sum()
    }
}

/// Adds and changes names of a table with about `n`. Returns both kinds, and the total number of cells of all shards.
fn changes<S: Sizing>(row: Row, operations: usize, seed: u64) -> Result<([Changes; 2], u32), BenchError> {
    let refused = |error: lookup::traits::InsertError| BenchError::Build {
        contestant: S::NAME.into(),
        n: row.n as u64,
        reason: error.to_string(),
    };
    let key = SecretKey::from_seed(seed);
    let hasher = Hasher::new(Family::MulAdd, &key);
    // Half of the additions are made before there are n names, half after.
    let (before, max) = (row.n - operations / 2, row.n + operations);
    let names = NameSet::Mac.generate(before + operations, seed);
    let entry = |&name: &u64| (hasher.digest_word(name, 6), value_of(name, row.value_bits));
    let entries: Vec<_> = names.iter().map(entry).collect();
    let settings = Settings::new(row.value_bits, max, &key);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (mut control, query) = Othello::<S>::build(settings, &entries[..before], threads).map_err(refused)?;
    let n_cells = query.images().iter().map(|shard| shard.sides.cells()).sum();

    let mut random = Random::new(seed);
    let mut added = entries[before..].to_vec();
    random.shuffle_front(&mut added, operations);
    let altered = |_| {
        let (digest, value) = entries[random.below(before as u64) as usize];
        // A different value, and again not drop's.
        (digest, Some(value_of(mix64(value), row.value_bits)).filter(|&new| new != value).unwrap_or(value % 2 + 1))
    };
    let altered: Vec<_> = (0..operations).map(altered).collect();
    let mut kinds: [Changes; 2] = Default::default();
    let (mut updates, mut bytes) = (Vec::new(), Vec::new());
    for (changes, list) in kinds.iter_mut().zip([added, altered]) {
        let mut n_messages = 0;
        bytes.clear();
        for (digest, value) in list {
            control.insert(digest, value, &mut updates).map_err(refused)?;
            for update in updates.drain(..) {
                n_messages += 1;
                update.encode(row.value_bits, &mut bytes);
                if let Update::Cells(update) = update {
                    *changes.cells.entry(update.cells.len()).or_default() += 1;
                }
            }
        }
        changes.mean_bits = 8.0 * bytes.len() as f64 / f64::from(n_messages.max(1));
    }
    Ok((kinds, n_cells))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::model::messages::Messages;

    #[test]
    fn cells_of_a_change_are_those_of_the_model() {
        let row = Row { n: 40_000, value_bits: 8 };
        let (changes, cells) = changes::<Option2>(row, 10_000, lookup::testkit::seed()).unwrap();
        assert_eq!(cells, 1 << 17, "two sides of 2^16");
        let model = Messages { n_k: 40_000.0, m: 65_536.0, l: 8 };
        for changes in &changes {
            let (mean, entropy) = (changes.mean_cells(), changes.entropy(cells) + 8.0);
            // The tree with the larger root is recoloured, which is neither always the smaller nor always the larger
            // one.
            assert!((1.0..1.3 * model.chi()).contains(&mean), "{mean} cells, {} in the model", model.chi());
            assert!((entropy / model.entropy() - 1.0).abs() < 0.3, "{entropy} bits, {} in the model", model.entropy());
            assert!(changes.mean_bits > entropy);
        }
    }

    #[test]
    fn entropy_of_one_cell_of_many_is_its_index() {
        let changes = Changes { cells: [(1, 10)].into(), mean_bits: 0.0 };
        assert!((changes.entropy(1 << 20) - 20.0).abs() < 1e-9 && changes.mean_cells() == 1.0);
        let changes = Changes { cells: [(1, 10), (2, 10)].into(), mean_bits: 0.0 };
        let expected = 1.0 + (10.0 + (1024f64 * 1023.0 / 2.0).log2()) / 2.0;
        assert!((changes.entropy(1024) - expected).abs() < 1e-9);
    }
}
