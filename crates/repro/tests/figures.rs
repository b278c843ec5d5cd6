//! The figures of the papers: the catalogue is sound, every figure runs on toy sizes, and runs resume where they
//! stopped.

use std::collections::HashSet;

use fibula_repro::figures::catalogue::{self, papers, parse};
use fibula_repro::figures::methods::{self, Progress};
use fibula_repro::figures::runner::{self, Plan, Watch, steps};
use fibula_repro::figures::store::{Mode, Store, Stored};
use fibula_repro::figures::{Paper, X};
use toml::Table;

#[derive(Default)]
struct Silent {
    steps: Vec<String>,
    lacking: Vec<String>,
}

impl Watch for Silent {
    fn step(&mut self, done: usize, of: usize, label: &str) {
        if done < of {
            self.steps.push(label.to_owned());
        }
    }

    fn say(&mut self, _text: &str) {}
}

impl Progress for Silent {
    fn say(&mut self, _text: &str) {}

    fn lacks(&mut self, series: &str, _reason: &str) {
        self.lacking.push(series.to_owned());
    }
}

const PLAN: Plan = Plan { mode: Mode::Quick, seed: 1, again: false };

/// A paper with one figure that runs very fast; `more` adds lines to the figure.
fn tiny(n: &str, more: &str) -> Result<Paper, catalogue::CatalogueError> {
    let text = format!(
        r#"
        id = "tiny"
        title = "t"
        text = "t.txt"
        about = "a"
        [[figure]]
        id = "figure-1"
        place = "Figure 1"
        title = "t"
        shows = "s"
        method = "lookup"
        form = "lines"
        x = {{ label = "names" }}
        y = {{ label = "M lookups/s" }}
        sweep = "n"
        series = [{{ name = "Cuckoo", contestant = "cuckoo" }}, {{ name = "Hash", contestant = "hashbrown" }}]
        {more}
        [figure.common]
        runs = 1
        operations = 4096
        [figure.quick]
        n = {n}
        [figure.full]
        n = {n}
        "#
    );
    parse(&text, "figure,series,x,y,unit,quote\n")
}

#[test]
fn catalogue_is_sound_and_every_figure_can_be_chosen() {
    let papers = papers().unwrap_or_else(|error| panic!("{error}"));
    for paper in &papers {
        for figure in &paper.figures {
            let id = format!("{}/{}", paper.id, figure.id);
            let chosen = catalogue::choose(&papers, std::slice::from_ref(&id)).expect("it exists");
            assert_eq!(chosen.len(), 1, "{id}");
        }
    }
    assert!(catalogue::choose(&papers, &["concise/figure-99".into()]).is_err());
    assert!(catalogue::choose(&papers, &["no-such-paper".into()]).is_err());
}

#[test]
fn every_figure_runs_on_toy_sizes() {
    for paper in papers().expect("a sound catalogue") {
        for figure in paper.figures.iter().filter(|figure| figure.is_runnable()) {
            let id = format!("{}/{}", paper.id, figure.id);
            let method = methods::find(&figure.method).expect("checked by the catalogue");
            let toy: Table = method.toy.parse().expect("toy parameters are TOML");
            let mut seen = HashSet::new();
            let steps = steps(figure, Mode::Quick, 7).expect("checked by the catalogue");
            // One step of each group of series.
            let mut groups = HashSet::new();
            for mut step in steps {
                let names: Vec<String> = step.setting.series.iter().map(|series| series.name.clone()).collect();
                if !groups.insert(names.clone()) {
                    continue;
                }
                step.setting.parameters.extend(toy.clone());
                let mut progress = Silent::default();
                let points = (method.run)(&step.setting, &mut progress).unwrap_or_else(|e| panic!("{id}: {e}"));
                for point in &points {
                    assert!(names.contains(&point.series), "{id}: no series {}", point.series);
                    let ordered = point.min <= point.y && point.y <= point.max && point.min >= 0.0;
                    assert!(ordered && point.max.is_finite(), "{id}: {point:?}");
                    seen.insert(point.series.clone());
                }
                for name in names {
                    assert!(seen.contains(&name) || progress.lacking.contains(&name), "{id}: nothing of {name}");
                }
            }
        }
    }
}

#[test]
fn run_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::new(folder.path());
    let run = |paper: &Paper, plan: &Plan| {
        let mut watch = Silent::default();
        let stored = runner::run(paper, &paper.figures[0], plan, &store, &mut watch).expect("it runs");
        (stored, watch.steps)
    };
    // The second size is refused in its step, as on a machine that is too small for it; the first is kept.
    let paper = tiny("[1000, 2000]", "").expect("a sound catalogue");
    let mut broken = paper.clone();
    broken.figures[0].quick = "n = [1000, 0]".parse().expect("TOML");
    let error = runner::run(&broken, &broken.figures[0], &PLAN, &store, &mut Silent::default());
    assert!(error.is_err());
    let kept = store.load("tiny", "figure-1").expect("readable").expect("the first step");
    assert!(!kept.record.complete && kept.points.len() == 2 && kept.record.steps.len() == 1);

    let (stored, ran) = run(&paper, &PLAN);
    assert_eq!(ran, ["n = 2000"], "the first step is not repeated");
    assert!(stored.record.complete);
    assert_eq!(stored.points[..2], kept.points[..], "its points are those of before");
    let x: Vec<Option<X>> = stored.points().map(|point| point.x.clone()).collect();
    assert_eq!(x, [1000.0, 1000.0, 2000.0, 2000.0].map(|x| Some(X::Number(x))));

    assert!(run(&paper, &PLAN).1.is_empty(), "everything is there");
    let loaded = store.load("tiny", "figure-1").expect("readable").expect("results");
    assert_eq!(loaded.points, stored.points, "what is read is what was measured");
    assert_eq!(run(&paper, &Plan { seed: 2, ..PLAN }).1.len(), 2, "another seed is another run");
    assert_eq!(run(&paper, &Plan { seed: 2, again: true, ..PLAN }).1.len(), 2, "asked for again");
}

#[test]
fn one_measurement_serves_two_papers() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::new(folder.path());
    let paper = tiny("[1000, 2000]", "").expect("a sound catalogue");
    let first = runner::run(&paper, &paper.figures[0], &PLAN, &store, &mut Silent::default()).expect("it runs");
    let mut other = paper.clone();
    other.id = "later".into();
    let mut watch = Silent::default();
    let second = runner::run(&other, &other.figures[0], &PLAN, &store, &mut watch).expect("it runs");
    assert!(watch.steps.is_empty(), "measured twice: {:?}", watch.steps);
    assert!(second.record.complete && second.points == first.points);
    assert_eq!(second.notes(), ["Measured once, for tiny/figure-1."]);
    let loaded = store.load("later", "figure-1").expect("readable").expect("results");
    assert_eq!((loaded.points, loaded.record.steps.len()), (first.points.clone(), 2));
    // The same number of names where nothing is swept has no place on an axis.
    other.id = "fixed".into();
    other.figures[0].sweep = None;
    other.figures[0].quick = "n = 1000".parse().expect("TOML");
    let fixed = runner::run(&other, &other.figures[0], &PLAN, &store, &mut Silent::default()).expect("it runs");
    assert!(fixed.points().all(|point| point.x.is_none()));
    // What is asked for again is measured.
    other.id = "again".into();
    let mut watch = Silent::default();
    runner::run(&other, &other.figures[0], &Plan { again: true, ..PLAN }, &store, &mut watch).expect("it runs");
    assert_eq!(watch.steps.len(), 1);
}

#[test]
fn records_of_a_paper_share_a_file_and_are_replaced_one_by_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let paper = tiny("[1000, 2000]", "").expect("a sound catalogue");
    let results = Store::new(folder.path().join("results"));
    let first = runner::run(&paper, &paper.figures[0], &PLAN, &results, &mut Silent::default()).expect("it runs");
    let mut second = first.clone();
    second.record.figure = "tiny/figure-0".into();
    second.points.truncate(1);
    let records = Store::of_records(folder.path().join("records"));
    let same = |figure: &str, stored: &Stored| {
        let loaded = records.load("tiny", figure).expect("readable").expect("a record");
        let json = |record| serde_json::to_string(record).expect("JSON");
        assert_eq!((loaded.points, json(&loaded.record)), (stored.points.clone(), json(&stored.record)), "{figure}");
    };
    records.save("tiny", "figure-1", &second).expect("written");
    records.save("tiny", "figure-1", &first).expect("written");
    records.save("tiny", "figure-0", &second).expect("written");
    same("figure-0", &second);
    same("figure-1", &first);
    records.save("tiny", "figure-0", &second).expect("written");
    same("figure-1", &first);
    assert!(records.load("tiny", "figure-2").expect("readable").is_none());
    assert!(records.load("other", "figure-1").expect("readable").is_none());
    assert_eq!(std::fs::read_dir(records.root()).expect("the folder").count(), 1);
}

#[test]
fn contestant_that_is_not_there_is_left_out_and_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::new(folder.path());
    // rte_efd holds values of 8 bits, whether it is part of this build or not.
    let more = r#"common.value_bits = 16"#;
    let mut paper = tiny("[1000]", "").expect("a sound catalogue");
    paper.figures[0].common.extend(more.replace("common.", "").parse::<Table>().expect("TOML"));
    paper.figures[0].series[1].contestant = "rte_efd".into();
    let stored = runner::run(&paper, &paper.figures[0], &PLAN, &store, &mut Silent::default()).expect("it runs");
    assert_eq!(stored.points.len(), 1);
    assert_eq!(stored.missing()[0].series, "Hash");
    assert!(stored.missing()[0].reason.contains("rte_efd"), "{:?}", stored.missing());
}

#[test]
fn series_with_parameters_of_their_own_are_steps_of_their_own() {
    let mut paper = tiny("[1000, 2000]", "").expect("a sound catalogue");
    let figure = &mut paper.figures[0];
    figure.series[1].parameters = "threads = 2".parse().expect("TOML");
    let steps = steps(figure, Mode::Quick, 1).expect("sound");
    let labels: Vec<&str> = steps.iter().map(|step| step.label.as_str()).collect();
    assert_eq!(labels, ["n = 1000", "n = 1000, threads = 2", "n = 2000", "n = 2000, threads = 2"]);
    assert!(steps.iter().all(|step| step.setting.series.len() == 1));
}

#[test]
fn catalogue_refuses_what_it_does_not_understand() {
    let claim = |rest: &str| format!("claim = [{{ says = \"c\", place = \"p\", of = \"Cuckoo\", {rest} }}]");
    tiny("[1000]", &claim("to = \"Hash\", at_least = 1.5")).expect("this is how it is written");
    for (n, more, complaint) in [
        ("[1000]", "colour = \"red\"", "colour"),
        ("[1000]", "common.speed = 3", "duplicate key"),
        ("1000", "", "no list of values"),
        ("[]", "", "no list of values"),
        ("[\"many\"]", "", "quick run"),
        ("[1000]", "why = \"a drawing\"", "`why`"),
        ("[1000]", &claim("to = \"Tree\", at_least = 1.5"), "no series `Tree`"),
        ("[1000]", &claim("near = 3.0"), "`within`"),
        ("[1000]", &claim("to = \"Hash\""), "at_least, at_most"),
        ("[1000]", &claim("at_leest = 1.0"), "at_leest"),
    ] {
        let error = tiny(n, more).expect_err(more).to_string();
        assert!(error.contains(complaint), "{n} {more}: {error}");
    }
    let unknown = tiny("[1000]", "").expect("sound").figures[0].clone();
    let mut setting = steps(&unknown, Mode::Quick, 1).expect("sound").remove(0).setting;
    setting.parameters.insert("speed".into(), 3.into());
    let method = methods::find("lookup").expect("a method");
    let error = (method.check)(&setting).expect_err("no such parameter").to_string();
    assert!(error.contains("speed"), "{error}");
}
