//! The report of results: every transcribed value is in its paper, every figure has a row, and plots and report are
//! complete.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use fibula_repro::figures::catalogue::{papers, parse};
use fibula_repro::figures::report;
use fibula_repro::figures::runner::steps;
use fibula_repro::figures::store::{Mode, Record, Source, StepRecord, Store, Stored};
use fibula_repro::figures::verdict::{Explanation, Outcome, Status, number};
use fibula_repro::figures::{Paper, Point, X};
use fibula_repro::machine::Machine;

/// Words separated by single spaces.
fn folded(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What was compared with the papers, as `paper number-of-values fingerprint`, a line each. The papers are not ours to
/// include, so elsewhere the values must be those that were compared where the papers were.
const COMPARED: &str = "../../repro/compared-with-papers.txt";

fn compared(paper: &Paper) -> String {
    let values: Vec<String> = paper.values.iter().map(|value| format!("{}\t{}\n", value.figure, value.quote)).collect();
    format!("{} {} {:016x}", paper.id, values.len(), fib::messages::fingerprint(values.concat().as_bytes()))
}

#[test]
fn transcribed_values_stand_in_the_papers() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let given = std::env::var_os("FIBULA_PAPERS").map(PathBuf::from);
    let folder = given.clone().unwrap_or_else(|| here.join("../../../shared/papers"));
    let papers = papers().expect("a sound catalogue");
    assert!(papers.iter().any(|paper| !paper.values.is_empty()), "no value to compare");
    let mut lines = Vec::new();
    for paper in &papers {
        lines.push(compared(paper));
        for value in &paper.values {
            assert!(value.quote.chars().any(|c| c.is_ascii_digit()), "{}: no number in `{}`", paper.id, value.quote);
        }
        let text = match std::fs::read_to_string(folder.join(&paper.text)) {
            Ok(text) => folded(&text),
            Err(error) => {
                let path = folder.join(&paper.text);
                assert!(given.is_none(), "FIBULA_PAPERS: {}: {error}", path.display());
                println!("{} is not here, so its values are held against {COMPARED}", path.display());
                continue;
            }
        };
        for value in &paper.values {
            assert!(text.contains(&folded(&value.quote)), "{}/{}: no `{}`", paper.id, value.figure, value.quote);
        }
    }
    let path = here.join(COMPARED);
    // Only after all of them were found.
    if given.is_some() && std::env::var_os("FIBULA_WRITE_COMPARED").is_some() {
        std::fs::write(&path, lines.join("\n") + "\n").expect("the list is written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept.lines().eq(&lines),
        "{} is not of these values: compare them where the papers are, by FIBULA_PAPERS=FOLDER FIBULA_WRITE_COMPARED=1 cargo test \
         -p fibula-repro --test figures_report transcribed",
        path.display()
    );
}

#[test]
fn pages_say_what_the_records_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../repro");
    let papers = papers().expect("a sound catalogue");
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(root.join("records").canonicalize().expect("records"), folder.path().join("records"))
        .expect("a link");
    report::write_readmes(&papers, folder.path()).expect("pages");
    if std::env::var_os("FIBULA_WRITE_PAGES").is_some() {
        report::write_readmes(&papers, &root).expect("pages");
    }
    for paper in &papers {
        let page = |root: &Path| {
            let path = root.join(&paper.id).join("README.md");
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        let (kept, made) = (page(&root), page(folder.path()));
        assert!(kept == made, "repro/{}/README.md is out of date: run `fibula repro report --readme repro`", paper.id);
        for figure in &paper.figures {
            let row = format!("| {} (`{}`) |", figure.place, figure.id);
            assert!(kept.contains(&row), "no row of {}/{}", paper.id, figure.id);
        }
    }
}

#[test]
fn every_record_says_which_commit_measured_it_or_that_nobody_knows_and_since_when_it_is_kept() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../repro");
    let papers = papers().expect("a sound catalogue");
    let records = report::records(&papers, &root).expect("readable");
    let stored = || records.iter().flat_map(|(_, entries)| entries).filter_map(|entry| entry.stored.as_ref());
    assert!(stored().count() > 100, "{} results", stored().count());
    for Stored { record, .. } in stored() {
        let sources = record.steps.iter().map(|step| step.source.as_ref().or(record.kept.as_ref()));
        let says = |source: Option<&Source>| {
            source.is_some_and(|source| source.commit.len() >= 7 && source.date.len() == "2026-11-27".len())
        };
        assert!(sources.clone().all(says), "{} in {:?} mode: {:?}", record.figure, record.mode, record.machine.cpu);
    }
}

/// Outcomes of the records whose cause has not been looked for: a new one fails until its cause is found or it is counted here.
const NOT_LOOKED_FOR: usize = 0;

#[test]
fn every_claim_that_fails_in_a_record_has_a_cause_that_was_checked_or_says_that_none_is_known() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../repro");
    let papers = papers().expect("a sound catalogue");
    let records = report::records(&papers, &root).expect("readable");
    let is_recorded = |paper: &str, figure: &str| {
        let all = records.iter().flat_map(|(_, entries)| entries);
        all.filter(|entry| entry.paper.id == paper && entry.figure.id == figure)
            .any(|entry| entry.stored.as_ref().is_some_and(|stored| stored.record.complete))
    };
    let (mut shown, mut scattered, mut needs, mut none) = (0, 0, 0, Vec::new());
    let (mut unchecked, mut open, mut not_looked_for) = (0, 0, 0);
    let mut tried: HashMap<(String, &str), HashSet<String>> = HashMap::new();
    for (name, entries) in &records {
        for entry in entries {
            for verdict in entry.finding.verdicts.iter().filter(|verdict| verdict.is_unmet()) {
                match verdict.explanation() {
                    Some(Explanation::Shown(_)) => shown += 1,
                    Some(Explanation::Scattered(least, most)) => {
                        assert!(least < most, "{}: {}", entry.id(), verdict.claim.says);
                        scattered += 1;
                    }
                    Some(Explanation::Needs(_)) => needs += 1,
                    Some(Explanation::Open(_)) => {
                        open += 1;
                        let record = &entry.stored.as_ref().expect("measured").record;
                        let value = number(verdict.measured.expect("measured"));
                        let outcome = format!("{} {}: {} {value}", record.machine.kind(), record.mode, verdict.outcome);
                        tried.entry((entry.id(), &verdict.claim.says)).or_default().insert(outcome);
                    }
                    Some(Explanation::NotLookedFor) => not_looked_for += 1,
                    // Another record has the experiment.
                    Some(Explanation::Unchecked(figures))
                        if figures.iter().all(|f| is_recorded(&entry.paper.id, f)) =>
                    {
                        unchecked += 1;
                    }
                    _ => none.push(format!(
                        "{name} {}: {}: {}",
                        entry.id(),
                        verdict.claim.says,
                        verdict.measured_text(entry.figure)
                    )),
                }
            }
        }
    }
    println!(
        "{shown} outcomes with a cause, {scattered} that another run might change, {unchecked} whose experiment other records \
         have, {needs} that need what is not here, {open} whose cause was looked for in vain, {not_looked_for} for which nobody \
         looked"
    );
    assert!(none.is_empty(), "{} without any:\n{}", none.len(), none.join("\n"));
    assert_eq!(not_looked_for, NOT_LOOKED_FOR, "look for the causes of what was measured, or say that nobody did");
    let mut wrong = Vec::new();
    for paper in &papers {
        for figure in &paper.figures {
            for claim in &figure.claims {
                let found = tried.remove(&(format!("{}/{}", paper.id, figure.id), claim.says.as_str()));
                let (found, written) = (found.unwrap_or_default(), claim.open_of.iter().cloned().collect());
                if found != written {
                    wrong.push(format!("{}/{}: {}: {found:?}, not {written:?}", paper.id, figure.id, claim.says));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "`open` stands for other outcomes than `open_of` names:\n{}", wrong.join("\n"));
}

const TEXT: &str = r#"
    id = "tiny"
    title = "A <tiny> paper"
    text = "t.txt"
    about = "a & b"
    [[figure]]
    id = "figure-1"
    place = "Figure 1"
    title = "Curves"
    shows = "`two` curves"
    method = "lookup"
    form = "lines"
    x = { label = "names", scale = "log" }
    y = { label = "M lookups/s" }
    better = "higher"
    sweep = "n"
    series = [
      { name = "Cuckoo", contestant = "cuckoo" },
      { name = "Hash | table", contestant = "hashbrown", peer = true },
    ]
    difference = "smaller"
    [figure.common]
    n = [1000, 2000]
    runs = 1
    [[figure.claim]]
    says = "Cuckoo is twice as fast"
    place = "section 1"
    of = "Cuckoo"
    to = "Hash | table"
    at_least = 2.0
    [[figure]]
    id = "figure-2"
    place = "Figure 2"
    title = "Drawing"
    shows = "boxes"
    method = "none"
    why = "a drawing"
    [[figure]]
    id = "figure-3"
    place = "Figure 3"
    title = "Far away"
    shows = "a link of 100 Gb/s"
    method = "lookup"
    hardware = "a link of 100 Gb/s"
"#;

fn tiny() -> Paper {
    let values = "figure,series,x,y,unit,quote\nfigure-1,Cuckoo,1000,40,M lookups/s,40 M\nfigure-1,Cuckoo,,7,MB,7 MB\n";
    parse(TEXT, values).expect("a sound catalogue")
}

fn stored(y: [[f64; 2]; 2]) -> Stored {
    let point = |series: &str, n: f64, y: f64| {
        let point = Point { series: series.into(), x: Some(X::Number(n)), y, min: 0.9 * y, max: 1.1 * y };
        ("0".to_owned(), point)
    };
    Stored {
        record: Record {
            figure: "tiny/figure-1".into(),
            method: "lookup".into(),
            mode: Mode::Quick,
            seed: 1,
            version: "0".into(),
            machine: Machine::read(),
            kept: None,
            steps: vec![StepRecord {
                source: Some(Source { commit: "abc1234".into(), date: "2026-11-30".into() }),
                digest: "0".into(),
                label: String::new(),
                seconds: 0.0,
                missing: Vec::new(),
                notes: Vec::new(),
                measured_for: None,
            }],
            complete: true,
        },
        points: vec![
            point("Cuckoo", 1000.0, y[0][0]),
            point("Hash | table", 1000.0, y[0][1]),
            point("Cuckoo", 2000.0, y[1][0]),
            point("Hash | table", 2000.0, y[1][1]),
        ],
    }
}

#[test]
fn status_follows_from_claims_and_setting() {
    let papers = [tiny()];
    let status = |y| {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::new(folder.path());
        store.save("tiny", "figure-1", &stored(y)).expect("written");
        let entries = report::entries(&papers, &store).expect("readable");
        assert_eq!(entries[1].finding.status, Status::Nothing);
        assert_eq!(entries[2].finding.status, Status::NoHardware);
        (entries[0].finding.status, entries[0].finding.count(Outcome::Met), entries[0].finding.losses.len())
    };
    assert_eq!(status([[40.0, 10.0], [20.0, 10.0]]), (Status::WithDifference, 1, 0));
    assert_eq!(status([[40.0, 10.0], [15.0, 10.0]]), (Status::InPart, 0, 0));
    assert_eq!(status([[40.0, 10.0], [9.0, 10.0]]), (Status::Contradicted, 0, 1));
}

#[test]
fn a_claim_that_was_not_measured_is_never_green() {
    let mut paper = tiny();
    let mut other = paper.figures[0].claims[0].clone();
    other.x = Some(X::Number(4000.0));
    paper.figures[0].claims.push(other);
    let papers = [paper];
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::new(folder.path());
    store.save("tiny", "figure-1", &stored([[40.0, 10.0], [20.0, 10.0]])).expect("written");
    let finding = &report::entries(&papers, &store).expect("readable")[0].finding;
    assert_eq!((finding.count(Outcome::Met), finding.count(Outcome::NotMeasured)), (1, 1));
    assert_eq!(finding.status, Status::InPart);
    assert_eq!(finding.sentence(&papers[0].figures[0]), "1 of 2 claims met, 1 not measured.");
}

#[test]
fn machines_that_disagree_stand_beside_each_other_the_worse_first() {
    let mut papers = [tiny()];
    let results = |y, cpu: &str| {
        let mut stored = stored(y);
        stored.record.machine.cpu = cpu.into();
        stored.record.steps[0].notes = vec![format!("Half of it on {cpu}.")];
        let of_steps = steps(&papers[0].figures[0], Mode::Quick, 1).expect("steps");
        let step = |digest| StepRecord { digest, ..stored.record.steps[0].clone() };
        stored.record.steps = of_steps.into_iter().map(|of| step(of.digest)).collect();
        stored
    };
    let pages = tempfile::tempdir().expect("a folder");
    for (name, y) in [("a-good", [[40.0, 10.0], [21.0, 10.0]]), ("b-bad", [[40.0, 10.0], [15.0, 10.0]])] {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::new(folder.path());
        store.save("tiny", "figure-1", &results(y, name)).expect("written");
        assert_eq!(report::keep(&papers, &store, pages.path(), name).expect("kept"), 1);
        assert!(report::keep(&papers, &store, pages.path(), "../up").is_err());
    }
    assert!(pages.path().join("records/b-bad-quick/tiny.txt").exists());
    let page = |papers: &[Paper]| {
        let paths = report::write_readmes(papers, pages.path()).expect("pages");
        std::fs::read_to_string(&paths[0]).expect("a page")
    };
    let both = page(&papers);
    let row = "missed: 1.5× at names = 2000, unmet at 1 of 2 places (at least 2) [2]; met: 2.1× at names = 2000 (at least 2) [1]";
    assert!(
        both.contains(row) && both.contains("in part: smaller. [1] Half of it on a-good. [2] Half of it on b-bad |"),
        "{both}"
    );
    assert!(
        both.contains("`a-good-quick`, quick run, a-good") && both.contains("`b-bad-quick`, quick run, b-bad"),
        "{both}"
    );
    // Claims are judged anew by the same numbers.
    papers[0].figures[0].claims[0].at_least = Some(1.4);
    let met = page(&papers);
    assert!(
        met.contains("met: 1.5× at names = 2000 (at least 1.4) [2]; met: 2.1× at names = 2000"),
        "the worse first: {met}"
    );
    let made = "; commit abc1234, 2026-11-30.";
    assert!(met.contains(made), "{met}");
    // Numbers of other parameters say nothing.
    papers[0].figures[0].common.insert("runs".into(), 2.into());
    assert!(page(&papers).contains("not measured") && !page(&papers).contains("Measured ["));
}

/// An explanation, and the figure that it is about.
const EXPERIMENT: &str = r#"
        [[why]]
        id = "cold"
        text = "The table is cold"
        [[why.given]]
        says = "cold lookups"
        figure = "figure-9"
        of = "Cuckoo"
        at_most = 50.0
        [[figure]]
        id = "figure-9"
        place = "Experiment"
        title = "Cold"
        shows = "one curve"
        method = "lookup"
        form = "lines"
        x = { label = "names" }
        y = { label = "M lookups/s" }
        sweep = "n"
        series = [{ name = "Cuckoo", contestant = "cuckoo" }, { name = "Hash | table", contestant = "hashbrown" }]
        [figure.common]
        n = [1000, 2000]
        runs = 1
    "#;

#[test]
fn experiments_of_other_runs_explain_where_they_measure_the_same() {
    let claim = "at_least = 2.0\n    because = [\"cold\"]\n    needs = \"a colder day\"";
    let sure = |counted: &str| {
        let experiment = EXPERIMENT.replace("method = \"lookup\"", &format!("method = \"lookup\"\n{counted}"));
        let text = TEXT.replace("at_least = 2.0", claim) + &experiment;
        [parse(&text, "figure,series,x,y,unit,quote\n").expect("a sound catalogue")]
    };
    let page = |papers: &[Paper; 1], cpu: &str, y: [[f64; 2]; 2]| {
        let pages = tempfile::tempdir().expect("a folder");
        for (figure, cpu, record, y) in
            [("figure-1", "here", "first", [[40.0, 10.0], [9.0, 10.0]]), ("figure-9", cpu, "second", y)]
        {
            let folder = tempfile::tempdir().expect("a folder");
            let store = Store::new(folder.path());
            let mut stored = stored(y);
            stored.record.machine.cpu = cpu.into();
            stored.record.figure = format!("tiny/{figure}");
            let of_steps = steps(papers[0].figures.iter().find(|f| f.id == figure).expect("there"), Mode::Quick, 1);
            let step = |digest| StepRecord { digest, ..stored.record.steps[0].clone() };
            stored.record.steps = of_steps.expect("steps").into_iter().map(|of| step(of.digest)).collect();
            store.save("tiny", figure, &stored).expect("written");
            report::keep(papers, &store, pages.path(), record).expect("kept");
        }
        let path = report::write_readmes(papers, pages.path()).expect("pages").remove(0);
        std::fs::read_to_string(path).expect("readable")
    };
    let (cold, warm) = ([[40.0, 1.0], [30.0, 1.0]], [[60.0, 1.0], [60.0, 1.0]]);
    let why =
        "*Why:* The table is cold ([1] cold lookups: 40 M lookups/s at names = 1000, in Experiment of `second-quick`)";
    let (timed, counted) = (sure(""), sure("counted = true"));
    let alike = page(&timed, "here", cold);
    assert!(alike.contains(why), "{alike}");
    let other = page(&timed, "elsewhere", cold);
    assert!(other.contains("*Cause not checked:* no results of figure-9, which may show it ([1])"), "{other}");
    let counts = page(&counted, "elsewhere", cold);
    assert!(counts.contains(why), "{counts}");
    // What does not bear it out does not, wherever it was measured; then the page says what it takes.
    for (papers, cpu) in [(&timed, "here"), (&counted, "elsewhere")] {
        let refuted = page(papers, cpu, warm);
        assert!(refuted.contains("*Cause not checked:* it needs a colder day ([1])"), "{refuted}");
    }
}

#[test]
fn a_cause_stands_under_its_outcome_and_only_if_its_experiment_was_run() {
    let claim = "at_least = 2.0\n    because = [\"cold\"]\n    open = \"warm tables were tried\"\n    \
                 open_of = [\"near quick: contradicted 0.9\"]";
    let kind = Machine { cpu: "here".into(), ..Machine::read() }.kind();
    let machines = format!("about = \"a & b\"\n    machines = {{ near = \"{kind}\" }}");
    let text = TEXT.replace("at_least = 2.0", claim).replace("about = \"a & b\"", &machines) + EXPERIMENT;
    let papers = [parse(&text, "figure,series,x,y,unit,quote\n").expect("a sound catalogue")];
    let (folder, pages) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let store = Store::new(folder.path());
    let show_on = |cpu: &str, figure: &str, y| {
        let mut stored = stored(y);
        stored.record.machine.cpu = cpu.into();
        stored.record.figure = format!("tiny/{figure}");
        let of_steps = steps(papers[0].figures.iter().find(|f| f.id == figure).expect("there"), Mode::Quick, 1);
        let step = |digest| StepRecord { digest, ..stored.record.steps[0].clone() };
        stored.record.steps = of_steps.expect("steps").into_iter().map(|of| step(of.digest)).collect();
        store.save("tiny", figure, &stored).expect("written");
        report::keep(&papers, &store, pages.path(), "a").expect("kept");
        let readme = report::write_readmes(&papers, pages.path()).expect("pages").remove(0);
        let html = report::write(&papers, &store).expect("a report");
        [readme, html].map(|path| std::fs::read_to_string(path).expect("readable"))
    };
    let show = |figure: &str, y| show_on("here", figure, y);
    let has = |pages: &[String; 2], parts: [&str; 2]| {
        for (page, part) in pages.iter().zip(parts) {
            assert!(page.contains(part), "no `{part}`");
        }
    };
    let failing = [[40.0, 10.0], [9.0, 10.0]];
    let alone = show("figure-1", failing);
    has(&alone, ["*Cause not checked:* no results of figure-9", "<b>Cause not checked.</b>"]);
    let warm = show("figure-9", [[60.0, 1.0], [60.0, 1.0]]);
    has(&warm, ["*Cause not found:* warm tables were tried ([1])", "<b>Cause not found.</b> Warm tables were tried."]);
    let cold = show("figure-9", [[40.0, 1.0], [30.0, 1.0]]);
    let numbers = "cold lookups: 40 M lookups/s at names = 1000, in Experiment";
    has(&cold, [&format!("*Why:* The table is cold ([1] {numbers})"), &format!("<i>{numbers}.</i></td></tr>")]);
    let met = show("figure-1", [[40.0, 10.0], [20.0, 10.0]]);
    let shows_a_cause = |page: &String| page.contains("<b>Why") || page.contains("*Why:");
    assert!(!alone.iter().chain(&warm).chain(&met).any(shows_a_cause), "a cause that nothing shows");
    assert!(!met.iter().any(|page| page.contains("Cause not")), "a cause of a claim that holds");
    // What was tried for the outcome of one machine says nothing of another machine's, nor of another outcome.
    show("figure-9", [[60.0, 1.0], [60.0, 1.0]]);
    for (cpu, y) in [("elsewhere", failing), ("here", [[40.0, 10.0], [8.0, 10.0]])] {
        let other = show_on(cpu, "figure-1", y);
        has(&other, ["*Cause not looked for* ([1])", "<b>Cause not looked for.</b> </td>"]);
        assert!(!other.iter().any(|page| page.contains("arm tables")), "{cpu}: {}", other[0]);
    }
    has(&show("figure-1", failing), ["*Cause not found:* warm tables were tried ([1])", "Warm tables were tried."]);
    let stranger = parse(&text.replace("near quick", "far quick"), "figure,series,x,y,unit,quote\n");
    assert!(
        stranger.expect_err("no such machine").to_string().contains("`far quick: contradicted 0.9` has no machine")
    );
    let unused = parse(&(TEXT.to_owned() + EXPERIMENT), "figure,series,x,y,unit,quote\n");
    assert!(unused.is_err(), "nothing names the explanation");
}

#[test]
fn report_is_one_whole_file_with_plots_beside_it() {
    let papers = [tiny()];
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::new(folder.path());
    store.save("tiny", "figure-1", &stored([[40.0, 10.0], [9.0, 10.0]])).expect("written");
    let path = report::write(&papers, &store).expect("a report");
    let page = std::fs::read_to_string(path).expect("readable");
    for part in [
        "A &lt;tiny&gt; paper",
        "a &amp; b",
        "<svg",
        "contradicted",
        "paper 40, 1×",
        "Where fibula loses",
        "7 MB",
        "All 3 tables",
        "<code>two</code> curves.",
    ] {
        assert!(page.contains(part), "no `{part}`");
    }
    for outside in ["http:", "https:", "<script", "src="] {
        let page = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!page.contains(outside), "`{outside}` in a file that stands for itself");
    }
    let png = std::fs::read(store.path("tiny", "figure-1", "png")).expect("a bitmap");
    assert!(png.starts_with(b"\x89PNG") && png.len() > 5000, "{} bytes", png.len());
    let svg = std::fs::read_to_string(store.path("tiny", "figure-1", "svg")).expect("a plot");
    assert!(svg.contains("M lookups/s") && svg.contains("Hash | table") && svg.ends_with("</svg>\n"), "{svg}");
    assert!(store.load("tiny", "figure-2").expect("readable").is_none());

    let readme = folder.path().join("pages");
    report::write_readmes(&papers, &readme).expect("pages");
    let page = std::fs::read_to_string(readme.join("tiny/README.md")).expect("a page");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| Figure")).collect();
    assert_eq!(rows.len(), 3);
    for row in rows {
        assert_eq!(row.replace("\\|", "").matches('|').count(), 7, "{row}");
    }
}
