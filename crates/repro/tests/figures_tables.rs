//! Figures of flow tables and filters at small sizes: arithmetic results equal the printed ones, counted results
//! satisfy their invariants. No times. Pages show the worse result first.

use std::collections::HashMap;
use std::path::Path;

use fibula_repro::figures::catalogue::papers;
use fibula_repro::figures::methods::{self, Progress};
use fibula_repro::figures::runner::steps;
use fibula_repro::figures::store::Mode;
use fibula_repro::figures::{Paper, X};
use toml::Table;

struct Silent;

impl Progress for Silent {
    fn say(&mut self, _text: &str) {}

    fn lacks(&mut self, _series: &str, _reason: &str) {}
}

/// The points of a figure, by series and x, with some parameters of the quick run replaced.
fn run(paper: &Paper, figure: &str, instead: &str) -> HashMap<(String, String), f64> {
    let figure = paper.figures.iter().find(|known| known.id == figure).expect(figure);
    let method = methods::find(&figure.method).expect("checked by the catalogue");
    let instead: Table = instead.parse().expect("TOML");
    let mut points = HashMap::new();
    for mut step in steps(figure, Mode::Quick, 7).expect("checked by the catalogue") {
        step.setting.parameters.extend(instead.clone());
        for point in (method.run)(&step.setting, &mut Silent).unwrap_or_else(|error| panic!("{}: {error}", figure.id)) {
            let x = point.x.or_else(|| step.x.clone()).as_ref().map_or(String::new(), X::to_string);
            points.insert((point.series, x), point.y);
        }
    }
    points
}

fn paper(id: &str) -> Paper {
    papers().expect("a sound catalogue").into_iter().find(|paper| paper.id == id).expect(id)
}

fn at(points: &HashMap<(String, String), f64>, series: &str, x: &str) -> f64 {
    *points.get(&(series.into(), x.into())).unwrap_or_else(|| panic!("no {series} at {x}"))
}

#[test]
fn tables_of_arithmetic_come_out_as_printed() {
    let paper = paper("one-hashing");
    for id in ["table-2-k-3", "table-2-k-10", "table-3"] {
        let points = run(&paper, id, "");
        let mut n = 0;
        for value in paper.values.iter().filter(|value| value.figure == id) {
            let x = value.x.as_ref().map_or(String::new(), X::to_string);
            let got = at(&points, &value.series, &x);
            // Printed with two to five digits; the smallest differences with one.
            let digit = if value.unit == "%" { 0.0006 } else { value.y * 5e-5 };
            let digit = if value.unit.is_empty() { value.y * 0.05 } else { digit };
            assert!((got - value.y).abs() <= digit, "{id}, {} at {x}: {got}, {} in the paper", value.series, value.y);
            n += 1;
        }
        assert_eq!(n, points.len(), "{id} is transcribed whole");
    }
}

#[test]
fn matrix_of_pairs_is_complete_and_of_verdicts() {
    let points = run(&paper("one-hashing"), "table-6", "keys = 3000");
    let verdicts = points.iter().filter(|((series, _), _)| series.starts_with('h'));
    assert_eq!(verdicts.clone().count(), 20 * 19);
    assert!(verdicts.clone().all(|(_, verdict)| [0.0, 1.0].contains(verdict)));
    let accepted =
        at(&points, "accepted pairs of 190", "4-byte keys") + at(&points, "accepted pairs of 190", "13-byte keys");
    assert_eq!(verdicts.map(|(_, verdict)| verdict).sum::<f64>(), accepted);
    let points = run(&paper("one-hashing"), "table-5", "keys = 3000");
    for bytes in ["4", "13"] {
        let n: f64 = (1..=20).map(|i| at(&points, &format!("h{i}"), bytes)).sum();
        assert_eq!(n, at(&points, "accepted, of 20", bytes));
    }
}

#[test]
fn partitions_spread_little_and_sizes_are_near_plan() {
    let points = run(&paper("one-hashing"), "figure-3", "");
    let largest = |x: &str| at(&points, "largest |m_f - m_p| up to m_p", x);
    assert!(largest("5000") <= largest("100000") && largest("100000") <= largest("10000000"));
    assert!(largest("10000000") <= 320.0);
    assert!(points.values().all(|&y| y > 0.0 && y < 400.0));
}

#[test]
fn more_entries_are_in_their_second_bucket_the_fuller_a_table_is() {
    let points = run(&paper("cuckoo-plus-plus"), "figure-2", "capacity = 65536");
    let loads = ["0.3", "0.5", "0.7", "0.8", "0.95"];
    for series in ["8 slots", "8 slots, after turnovers", "4 slots (model)"] {
        assert!(loads.map(|load| at(&points, series, load)).is_sorted(), "{series}");
    }
    for load in loads {
        let [filled, turned] = ["8 slots", "8 slots, after turnovers"].map(|series| at(&points, series, load));
        assert!(filled <= turned && filled <= at(&points, "4 slots (model)", load) && filled < 20.0, "{load}");
    }
    // One slot per bucket ends at half load, two at 0.9.
    assert!(!points.contains_key(&("1 slot (model)".into(), "0.55".into())));
    assert!(!points.contains_key(&("2 slots (model)".into(), "0.95".into())));
}

#[test]
fn counters_of_all_buckets_are_counted() {
    let points = run(&paper("cuckoo-plus-plus"), "figure-5", "capacity = 16384");
    for series in ["load 0.6", "load 0.8", "load 0.95", "load 0.8, after turnovers", "load 0.95, after turnovers"] {
        let sum: f64 = points.iter().filter(|((name, _), _)| name == series).map(|(_, share)| share).sum();
        assert!((sum - 100.0).abs() < 1e-6, "{series}: {sum} %");
    }
    assert!(at(&points, "load 0.95", "0") < at(&points, "load 0.6", "0"));
}

#[test]
fn hints_are_wrong_more_often_after_turnovers_and_in_horton_tables() {
    let points = run(&paper("cuckoo-plus-plus"), "table-2", "capacity = 8192");
    for load in ["0.8", "0.95"] {
        let counted = ["Counted filter (fibula)", "Counted filter (fibula), 30 turnovers"];
        let [filled, turned] = counted.map(|series| at(&points, series, load));
        assert!(filled < turned && turned < at(&points, "FPR (Horton)", load), "{load}");
        // The published filter hardly forgets: its rate grows many times over.
        let published = ["FPR (Cuckoo++)", "Cuckoo++, 30 turnovers"].map(|series| at(&points, series, load));
        assert!(filled < published[0] && 10.0 * published[0] < published[1], "{load}: {published:?}");
    }
}

#[test]
fn timers_cost_no_memory() {
    let points = run(&paper("cuckoo-plus-plus"), "memory", "capacity = 1024");
    let [plain, timed] = ["Cuckoo++", "Cuckoo++ with timer"].map(|series| at(&points, series, ""));
    assert!(plain == timed && (40.0..48.0).contains(&plain), "{plain} and {timed} bytes");
}

/// How far a result of a page is from its claim, as far as it is printed: its outcome's rank, and a share.
fn how_bad(result: &str) -> Option<(usize, f64)> {
    let rank = ["contradicted: ", "missed: ", "met: ", "not measured"].iter().position(|o| result.starts_with(o))?;
    let (_, rest) = result.split_once(": ").unwrap_or_default();
    let first = |text: &str| text.split([' ', '×', '(']).next().and_then(|number| number.parse::<f64>().ok());
    let Some((value, at)) = first(rest).zip(rest.rfind(" (")) else { return Some((rank, 0.0)) };
    // The last parentheses: what is wanted.
    let wanted = rest[at + 2..].split(')').next()?;
    let bound = |after: &str| first(wanted.split_once(after)?.1);
    let tie = if wanted.contains(" by over 3 %") { 1.03 } else { 1.0 };
    let below = |low: f64| (low - value) / low;
    let above = |high: f64| (value - high) / high;
    let far = if let Some((near, within)) = wanted.split_once(" ± ") {
        above(first(near)?).abs() - first(within)? / 100.0
    } else if let (Some(low), Some(high)) = (first(wanted), bound(" to ")) {
        below(low).max(above(high))
    } else if let Some(exact) = first(wanted) {
        above(exact).abs()
    } else {
        let low = bound("at least ").or_else(|| Some(bound("more than ")? * tie)).map_or(f64::NEG_INFINITY, below);
        let high = bound("at most ").or_else(|| Some(bound("less than ")? / tie)).map_or(f64::NEG_INFINITY, above);
        low.max(high)
    };
    Some((rank, far))
}

#[test]
fn every_row_of_a_page_shows_the_worse_result_first() {
    let mut groups = 0;
    for paper in papers().expect("a sound catalogue") {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../repro").join(&paper.id).join("README.md");
        let page = std::fs::read_to_string(page).expect("a page");
        for line in page
            .lines()
            .filter(|line| line.starts_with("| "))
            .flat_map(|row| row.split(" | "))
            .flat_map(|cell| cell.split("<br>"))
        {
            let results = line.split_once(". ").filter(|(n, _)| n.parse::<u8>().is_ok()).map_or(line, |(_, rest)| rest);
            let results = results.split(". *").next().unwrap_or_default();
            let bad: Vec<(usize, f64)> = results.split("; ").map_while(how_bad).collect();
            groups += usize::from(bad.len() > 1);
            for pair in bad.windows(2) {
                // Numbers are printed with three digits.
                let is_worse = pair[0].0 < pair[1].0
                    || pair[0].0 == pair[1].0 && pair[0].1 >= pair[1].1 - 0.02 * pair[1].1.abs().max(0.5);
                assert!(is_worse, "{}: {pair:?} in {results}", paper.id);
            }
        }
    }
    assert!(groups > 200, "{groups} groups of several machines");
}
