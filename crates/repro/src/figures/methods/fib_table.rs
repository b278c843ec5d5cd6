//! The cost of FIBs for many kinds of names: the papers' tables of memory and of the maximum lines that a lookup reads.

use fib::model::mcq;
use lookup::cuckoo::exact::{self, Cuckoo};
use lookup::hash::{Family, SecretKey};
use lookup::line::Trade;
use lookup::traits::{Control, Query};
use serde::Deserialize;

use super::{Method, Progress, Setting};
use crate::BenchError;
use crate::contestants::{self, Input};
use crate::figures::{Point, X};
use crate::names::{NameSet, mix64, value_of};

pub(super) const METHODS: &[Method] = &[Method {
    name: "fib-table",
    about: "memory or most lines of the contestants of `fibula bench lookup`, for names of any kind",
    check,
    run,
    toy: "scale = 1000\nrow = { name = \"toy\", name_bits = 48, n = 700000, value_bits = 4 }",
}];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    row: Row,
    column: Column,
    /// A table of `n / scale` names is built, and its size is multiplied by `scale`.
    scale: u64,
    /// Bits of a line, or of a word if words are counted.
    #[serde(default = "line_bits")]
    line_bits: u64,
}

/// A kind of names, their number, and bits of a value.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    name_bits: u32,
    n: u64,
    value_bits: u8,
}

/// The reported quantity of each FIB.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Column {
    /// Memory in MiB.
    Mib,
    /// Memory in bits per name.
    Bits,
    /// Maximum lines per lookup, by the model.
    Lines,
}

fn line_bits() -> u64 {
    512
}

fn check(setting: &Setting) -> Result<(), BenchError> {
    let Parameters { row, column, scale, line_bits } = setting.parameters()?;
    if row.n / scale.max(1) == 0 || scale == 0 || !(1..=512).contains(&row.name_bits) || line_bits == 0 {
        return Err(BenchError::Setting(format!(
            "{} has no names at {} / {scale}, or they have no 1 to 512 bits; change scale or name_bits",
            row.name, row.n
        )));
    }
    let contestants = setting.contestants();
    contestants::choose(&contestants)?;
    let unknown =
        contestants.into_iter().find(|name| column == Column::Lines && lines(name, &row, line_bits).is_none());
    match unknown {
        None => Ok(()),
        Some(name) => Err(BenchError::Setting(format!("the model does not count lines of `{name}`"))),
    }
}

fn run(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let Parameters { row, column, scale, line_bits } = setting.parameters()?;
    let x = Some(X::Text(row.name.clone()));
    let mut points = Vec::new();
    for series in &setting.series {
        let contestant = series.contestant();
        if column == Column::Lines {
            let lines = lines(contestant, &row, line_bits);
            points.extend(lines.map(|lines| Point::exact(&series.name, x.clone(), lines as f64)));
            continue;
        }
        progress.say(&format!("building {contestant} for {}", row.name));
        match size_bits(contestant, &row, row.n / scale, setting.seed) {
            Ok(bits) if column == Column::Mib => {
                let mib = bits as f64 * scale as f64 / f64::from(8 << 20);
                points.push(Point::exact(&series.name, x.clone(), mib));
            }
            Ok(bits) => {
                points.push(Point::exact(&series.name, x.clone(), bits as f64 / (row.n / scale) as f64));
            }
            Err(error) => progress.lacks(&series.name, &error.to_string()),
        }
    }
    Ok(points)
}

/// Memory that lookups need in a table that was built with `n` such names.
fn size_bits(contestant: &str, row: &Row, n: u64, seed: u64) -> Result<u64, BenchError> {
    let name_bytes = row.name_bits.div_ceil(8) as usize;
    if contestant == "cuckoo" {
        return match name_bytes.div_ceil(8) {
            1 => cuckoo_bits::<1>(row, n, seed),
            2 => cuckoo_bits::<2>(row, n, seed),
            3..=6 => cuckoo_bits::<6>(row, n, seed),
            7 => cuckoo_bits::<7>(row, n, seed),
            _ => cuckoo_bits::<8>(row, n, seed),
        };
    }
    let kind = contestants::choose(&[contestant.to_owned()])?[0];
    if name_bytes > 8 && ["hashbrown", "sorted", "rte_hash", "rte_hash-lf", "rte_efd"].contains(&contestant) {
        let reason = format!("holds names of up to 8 bytes, not {name_bytes}");
        return Err(BenchError::Unavailable { contestant: kind.name, reason });
    }
    if contestant.starts_with("rte_") {
        contestants::start_dpdk((512 << 20) + 160 * n)?;
    }
    // Structures that take digests do not depend on the length of names.
    let names = NameSet::Mac.generate(n as usize, seed);
    let input = Input {
        names: &names,
        name_len: NameSet::Mac.name_len(),
        value_bits: row.value_bits,
        family: Family::MulAdd,
        seed,
        build_threads: std::thread::available_parallelism().map_or(1, usize::from),
        floor_bytes: 0,
    };
    Ok((kind.build)(&input)?.size_bits())
}

/// Words per slot of the exact cuckoo table: name and value.
fn slot_words(row: &Row) -> u64 {
    (u64::from(row.name_bits.next_multiple_of(8)) + u64::from(row.value_bits)).div_ceil(64)
}

fn cuckoo_bits<const W: usize>(row: &Row, n: u64, seed: u64) -> Result<u64, BenchError> {
    let key = SecretKey::from_seed(seed);
    let name_bytes = row.name_bits.div_ceil(8) as u8;
    let settings = exact::Settings::new(name_bytes, row.value_bits, n as usize, Family::MulAdd, &key);
    let mut control = Cuckoo::<W>::with_capacity(settings, n as usize);
    let name = |number: u64| {
        let mut words = [0; W];
        // The number itself, scattered over 32 bits: names have at least 4 bytes.
        words[0] = u64::from((number as u32).wrapping_mul(0x9e37_79b1));
        for (at, word) in words.iter_mut().enumerate().skip(1) {
            let bits = (8 * u32::from(name_bytes)).saturating_sub(64 * at as u32).min(64);
            *word = if bits == 0 { 0 } else { mix64(number.wrapping_add(at as u64)) >> (64 - bits) };
        }
        (words, value_of(number, row.value_bits))
    };
    let entries: Vec<_> = (0..n).map(name).collect();
    control.insert_batch(&entries, &mut Vec::new()).map_err(|error| BenchError::Build {
        contestant: "cuckoo".into(),
        n,
        reason: error.to_string(),
    })?;
    Ok(control.export().size_bits())
}

/// Maximum lines per lookup; `None` for contestants that the model does not cover.
fn lines(contestant: &str, row: &Row, line_bits: u64) -> Option<u64> {
    let l = u32::from(row.value_bits);
    Some(match contestant {
        "concise-option1" | "concise-option2" => 2,
        // The directory entry, and two cells.
        "concise" => 3,
        // The directory entry; a bucket, and the bucket of the names that did not fit there.
        "line" if line_bits == 512 => 1 + 2 * u64::from(Trade::lines(row.value_bits)),
        "cuckoo" => mcq::cuckoo_lines(64 * slot_words(row) as u32, line_bits),
        "buffalo" => mcq::buffalo_lines(1 << l, line_bits),
        "obf-sliced" => mcq::obf_lines(l, line_bits),
        "setsep" => mcq::setsep_lines(l, line_bits),
        "bloomier" => 3,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuckoo_slots_are_as_long_as_the_model_says() {
        for (name_bits, value_bits, words) in
            [(48, 8, 1), (32, 4, 1), (128, 8, 3), (356, 8, 6), (356, 16, 6), (425, 4, 7)]
        {
            let row = Row { name: String::new(), name_bits, n: 5000, value_bits };
            assert_eq!(slot_words(&row), words, "{name_bits} bits");
            // At a load of 0.95; one counter per bucket beside the slots, whose number is a power of two.
            let bits = size_bits("cuckoo", &row, 5000, 1).unwrap() as f64 / 5000.0;
            let expected = 64.0 * words as f64 / 0.95 + 64.0 * 2048.0 / 5000.0;
            assert!((bits / expected - 1.0).abs() < 0.05, "{name_bits} bits: {bits:.0} a name, {expected:.0}");
        }
    }
}
