//! Results of a bench: one row per contestant and setting, as JSON lines or as a table.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::stats::{Summary, median_ratio};

/// One measured contestant at one setting. Its JSON has exactly the fields that are public and not skipped here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Which bench, such as `lookup` or `update/insert`.
    pub bench: String,
    /// What was measured.
    pub contestant: String,
    /// Names in the table.
    pub n: u64,
    /// Width of a value in bits.
    pub value_bits: u8,
    /// The set of names.
    pub names: String,
    /// Threads that worked at once.
    pub threads: u32,
    /// Names per call.
    pub batch: u32,
    /// Bursts in flight; only where there are several.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub in_flight: u32,
    /// Processes that the samples are from, one median each; only where there are several.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub processes: u32,
    /// Whether processes differ by more than [`STEADY`] times; only where they do.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unsteady: bool,
    /// Unit of `median`, `min` and `max`.
    pub unit: Cow<'static, str>,
    /// The median of the samples.
    #[serde(serialize_with = "rounded")]
    pub median: f64,
    /// The smallest sample.
    #[serde(serialize_with = "rounded")]
    pub min: f64,
    /// The largest sample.
    #[serde(serialize_with = "rounded")]
    pub max: f64,
    /// The median as the time of one name, in ns; only in the bench that compares the parts of a lookup.
    #[serde(serialize_with = "rounded_option", skip_serializing_if = "Option::is_none")]
    pub ns_per_name: Option<f64>,
    /// Memory that lookups need, in bits per name; null if not applicable.
    #[serde(serialize_with = "rounded_option")]
    pub bits_per_name: Option<f64>,
    /// Share of alien names that get an action; only in the bench that measures it.
    #[serde(serialize_with = "rounded_option", skip_serializing_if = "Option::is_none")]
    pub aliens_answered: Option<f64>,
    /// The cost of messages; only in the bench that counts them.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub messages: Option<MessageFigures>,
    /// Sum of the answers of one run, in hexadecimal; equal for all contestants that answer. Null if there are no
    /// answers.
    #[serde(serialize_with = "hex_option", deserialize_with = "option_of_hex")]
    pub checksum: Option<u64>,
    /// The single measurements, round by round or process by process; ratios are computed from them.
    #[serde(serialize_with = "rounded_all")]
    pub samples: Vec<f64>,
    /// A remark for the table, such as the pages a structure is on.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// Processes whose figures differ by at most this factor agree.
pub const STEADY: f64 = 1.3;

/// The cost of changes of one name in messages to tables.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MessageFigures {
    /// Mean bytes of a message.
    #[serde(serialize_with = "rounded")]
    pub mean_bytes: f64,
    /// Bytes that 99 of 100 messages do not exceed.
    pub p99_bytes: u32,
    /// Bytes of the longest message.
    pub max_bytes: u32,
    /// Messages per change, to all switches.
    #[serde(serialize_with = "rounded")]
    pub messages_per_change: f64,
    /// Bytes of all messages to all switches, including those to other tables of theirs.
    #[serde(serialize_with = "rounded")]
    pub all_bytes_per_change: f64,
    /// Changes that the controller makes per second, for all switches, on one thread, before encoding and storing.
    #[serde(serialize_with = "rounded")]
    pub changes_per_s: f64,
    /// Messages that one switch decodes, checks and applies per second.
    #[serde(serialize_with = "rounded")]
    pub applied_per_s: f64,
    /// Nanoseconds of decoding a message once more, without reading the clock.
    #[serde(default, serialize_with = "rounded")]
    pub decode_ns: f64,
    /// Nanoseconds of reading the clock, which are in the time of every message.
    #[serde(default, serialize_with = "rounded")]
    pub clock_ns: f64,
    /// Mean bytes of a message that changes a table in place: of those that send no table anew.
    #[serde(default, serialize_with = "rounded")]
    pub in_place_bytes: f64,
    /// The part of these that says where the filters of a Bloom forwarder have the bits of a name.
    #[serde(default, serialize_with = "rounded")]
    pub position_bytes: f64,
}

/// The settings that the rows of one table share.
#[derive(Clone, Debug)]
pub struct Setting {
    /// See [`Row::n`].
    pub n: u64,
    /// See [`Row::value_bits`].
    pub value_bits: u8,
    /// See [`Row::names`].
    pub names: String,
    /// See [`Row::threads`].
    pub threads: u32,
    /// See [`Row::batch`].
    pub batch: u32,
    /// See [`Row::in_flight`].
    pub in_flight: u32,
}

impl Row {
    /// The row of `samples`.
    /// # Panics
    /// When there are no samples.
    pub fn new(bench: &str, contestant: &str, setting: &Setting, unit: &'static str, samples: Vec<f64>) -> Self {
        let Summary { median, min, max } = Summary::of(&samples);
        Self {
            bench: bench.to_owned(),
            contestant: contestant.to_owned(),
            n: setting.n,
            value_bits: setting.value_bits,
            names: setting.names.clone(),
            threads: setting.threads,
            batch: setting.batch,
            in_flight: setting.in_flight,
            processes: 1,
            unsteady: false,
            unit: unit.into(),
            median,
            min,
            max,
            ns_per_name: None,
            bits_per_name: None,
            aliens_answered: None,
            messages: None,
            checksum: None,
            samples,
            note: String::new(),
        }
    }

    /// The row as one line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a row is plain numbers and text")
    }

    /// Whether `other` is in the same table: the same bench at the same setting, in the same unit.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        let key = |row: &Self| (row.n, row.value_bits, row.threads, row.batch, row.in_flight);
        key(self) == key(other) && self.bench == other.bench && self.names == other.names && self.unit == other.unit
    }

    /// The row of the same measurement in several processes: its samples are their medians.
    /// # Panics
    /// When there are no rows.
    pub(crate) fn merged(rows: &[&Self]) -> Self {
        let samples: Vec<f64> = rows.iter().map(|row| row.median).collect();
        let Summary { median, min, max } = Summary::of(&samples);
        let mut notes: Vec<&str> = rows.iter().map(|row| row.note.as_str()).filter(|note| !note.is_empty()).collect();
        notes.sort_unstable();
        notes.dedup();
        Self {
            processes: rows.len() as u32,
            unsteady: max > STEADY * min,
            median,
            min,
            max,
            samples,
            note: notes.join("; or "),
            ns_per_name: rows[0].ns_per_name.map(|ns| ns * rows[0].median / median),
            ..rows[0].clone()
        }
    }

    /// Whether larger is better, as for rates; times are better when smaller.
    fn is_rate(&self) -> bool {
        self.unit.ends_with("/s")
    }

    /// How much better than `other` this contestant was, as the median over the rounds.
    fn ratio_to(&self, other: &Self) -> f64 {
        if self.is_rate() {
            median_ratio(&self.samples, &other.samples)
        } else {
            median_ratio(&other.samples, &self.samples)
        }
    }
}

/// Four significant digits: more is noise.
fn four_digits(x: f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let scale = 10f64.powi(3 - x.abs().log10().floor() as i32);
    (x * scale).round() / scale
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_one(x: &u32) -> bool {
    *x == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(x: &bool) -> bool {
    !*x
}

fn rounded<S: Serializer>(x: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(four_digits(*x))
}

fn rounded_option<S: Serializer>(x: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    x.map(four_digits).serialize(serializer)
}

fn rounded_all<S: Serializer>(samples: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(samples.iter().map(|&x| four_digits(x)))
}

fn hex_option<S: Serializer>(x: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    x.map(|x| format!("{x:016x}")).serialize(serializer)
}

fn option_of_hex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| u64::from_str_radix(&text, 16).map_err(de::Error::custom)).transpose()
}

/// A size in readable form: 64K, 1M, 1000.
pub fn size_text(n: u64) -> String {
    match n {
        0 => "0".into(),
        n if n.is_multiple_of(1 << 20) => format!("{}M", n >> 20),
        n if n.is_multiple_of(1 << 10) => format!("{}K", n >> 10),
        n => n.to_string(),
    }
}

/// The table of `rows` of one bench and one setting. The others are compared with the contestant called `floor` or
/// `empty`, and with the best.
pub fn table(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut title = format!("{}, n = {}", first.bench, size_text(first.n));
    if first.value_bits > 0 {
        let _ = write!(title, ", {}-bit values", first.value_bits);
    }
    if !first.names.is_empty() {
        let _ = write!(title, ", {} names", first.names);
    }
    let _ = write!(title, ", {} thread{}", first.threads, if first.threads == 1 { "" } else { "s" });
    if first.batch > 1 {
        let _ = write!(title, ", bursts of {}", first.batch);
    }
    if first.in_flight > 1 {
        let _ = write!(title, ", {} in flight", first.in_flight);
    }
    let _ = write!(title, ", {} {}", first.samples.len(), if first.processes > 1 { "processes" } else { "runs" });

    let is_floor = |row: &&Row| ["floor", "empty"].contains(&row.contestant.as_str());
    let floor = rows.iter().find(is_floor);
    let comparable = rows.iter().all(|row| row.samples.len() == first.samples.len() && row.unit == first.unit);
    let best = rows
        .iter()
        .filter(|row| !is_floor(row))
        .reduce(|a, b| if b.ratio_to_median(a) > 1.0 { b } else { a })
        .filter(|_| comparable && rows.len() > 1 + usize::from(floor.is_some()));

    let mut head = vec!["contestant".to_owned(), first.unit.to_string(), "min".into(), "max".into()];
    let with_ns = rows.iter().any(|row| row.ns_per_name.is_some());
    head.extend(with_ns.then(|| "ns/name".to_owned()));
    head.extend(floor.map(|floor| format!("of {}", floor.contestant)));
    head.extend(best.map(|_| "of best".to_owned()));
    let with_bits = rows.iter().any(|row| row.bits_per_name.is_some());
    head.extend(with_bits.then(|| "bits/name".to_owned()));
    let mut lines = vec![head];
    for row in rows {
        let mut line = vec![row.contestant.clone(), number(row.median), number(row.min), number(row.max)];
        line.extend(with_ns.then(|| row.ns_per_name.map_or(String::new(), number)));
        line.extend(floor.map(|floor| times(row.ratio_to(floor))));
        line.extend(best.map(|best| times(row.ratio_to(best))));
        line.extend(with_bits.then(|| row.bits_per_name.map_or(String::new(), |bits| format!("{bits:.2}"))));
        lines.push(line);
    }
    let mut out = format!("{title}\n");
    let columns = lines[0].len();
    let widths: Vec<usize> =
        (0..columns).map(|c| lines.iter().map(|line| line[c].chars().count()).max().unwrap_or(0)).collect();
    let notes = std::iter::once(String::new()).chain(rows.iter().map(Row::remark));
    for (line, note) in lines.iter().zip(notes) {
        let mut text = format!("  {:<width$}", line[0], width = widths[0]);
        for c in 1..columns {
            let _ = write!(text, "  {:>width$}", line[c], width = widths[c]);
        }
        let _ = write!(text, "  {note}");
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

impl Row {
    /// The note, behind a mark if processes differ too much.
    fn remark(&self) -> String {
        if !self.unsteady {
            return self.note.clone();
        }
        let mark = format!("! {:.2} times between processes", self.max / self.min);
        if self.note.is_empty() { mark } else { format!("{mark}; {}", self.note) }
    }

    fn ratio_to_median(&self, other: &Self) -> f64 {
        if self.is_rate() { self.median / other.median } else { other.median / self.median }
    }
}

/// A ratio; none if both are 0.
fn times(ratio: f64) -> String {
    if ratio.is_nan() { "-".to_owned() } else { format!("{ratio:.2}") }
}

/// A number with as many digits as a reader compares.
fn number(x: f64) -> String {
    match x.abs() {
        a if a >= 1000.0 => {
            let digits = format!("{:.0}", x);
            let (sign, digits) = digits.strip_prefix('-').map_or(("", digits.as_str()), |d| ("-", d));
            let mut out = String::from(sign);
            for (i, c) in digits.chars().enumerate() {
                if i > 0 && (digits.len() - i).is_multiple_of(3) {
                    out.push(' ');
                }
                out.push(c);
            }
            out
        }
        a if a >= 100.0 => format!("{x:.0}"),
        a if a >= 10.0 => format!("{x:.1}"),
        _ => format!("{x:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(contestant: &str, unit: &'static str, samples: &[f64]) -> Row {
        let setting = Setting { n: 1 << 20, value_bits: 8, names: "mac".into(), threads: 1, batch: 32, in_flight: 1 };
        Row::new("lookup", contestant, &setting, unit, samples.to_vec())
    }

    #[test]
    fn json_row_has_exactly_the_documented_fields() {
        let mut row = row("concise", "M/s", &[101.23456, 99.0, 104.0]);
        row.bits_per_name = Some(19.3412);
        row.checksum = Some(0xabc);
        assert_eq!(
            row.to_json(),
            r#"{"bench":"lookup","contestant":"concise","n":1048576,"value_bits":8,"names":"mac","threads":1,"batch":32,"unit":"M/s","median":101.2,"min":99.0,"max":104.0,"bits_per_name":19.34,"checksum":"0000000000000abc","samples":[101.2,99.0,104.0]}"#
        );
    }

    #[test]
    fn rows_of_processes_become_one_and_disagreement_is_marked() {
        let mut first = row("concise", "M/s", &[90.0, 100.0, 110.0]);
        first.checksum = Some(0xabc);
        first.note = "on small pages".into();
        let read = |row: &Row| serde_json::from_str::<Row>(&row.to_json()).unwrap();
        assert_eq!(read(&first).to_json(), first.to_json());
        let mut second = row("concise", "M/s", &[125.0]);
        let merged = Row::merged(&[&first, &second, &first]);
        assert_eq!((merged.median, merged.min, merged.max, merged.processes), (100.0, 100.0, 125.0, 3));
        assert_eq!((merged.unsteady, merged.samples.len(), merged.checksum), (false, 3, Some(0xabc)));
        assert!(!merged.to_json().contains("unsteady") && merged.to_json().contains("\"processes\":3"));

        second.median = 140.0;
        let merged = Row::merged(&[&first, &second]);
        assert!(merged.to_json().contains("\"unsteady\":true"), "{}", merged.to_json());
        let table = table(&[merged]);
        assert!(
            table.contains(", 2 processes\n") && table.contains("! 1.40 times between processes; on small"),
            "{table}"
        );
    }

    #[test]
    fn table_compares_rates_to_floor_and_best() {
        let rows = [
            row("floor", "M/s", &[200.0, 200.0, 200.0]),
            row("concise", "M/s", &[150.0, 150.0, 150.0]),
            row("hashbrown", "M/s", &[15.0, 15.0, 15.0]),
        ];
        let table = table(&rows);
        assert_eq!(
            table,
            "lookup, n = 1M, 8-bit values, mac names, 1 thread, bursts of 32, 3 runs\n\
             \x20 contestant   M/s   min   max  of floor  of best\n\
             \x20 floor        200   200   200      1.00     1.33\n\
             \x20 concise      150   150   150      0.75     1.00\n\
             \x20 hashbrown   15.0  15.0  15.0      0.07     0.10\n"
        );
    }

    #[test]
    fn of_times_the_smaller_is_the_better() {
        let rows = [row("a", "ns", &[100.0]), row("b", "ns", &[50.0])];
        let table = table(&rows);
        assert!(table.contains("a            100   100   100     0.50"), "{table}");
    }

    #[test]
    fn sizes_read_as_powers_of_two() {
        assert_eq!(["64K", "1M", "1000", "0"], [1 << 16, 1 << 20, 1000, 0].map(size_text).each_ref().map(|s| &s[..]));
    }
}
