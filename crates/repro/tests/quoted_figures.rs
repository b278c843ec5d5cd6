//! Documents quote what the records say: no figure is typed by hand.

use std::path::{Path, PathBuf};
use std::process::Command;

use fibula_repro::records::{Plan, RecordsError, newest_campaign, record, report, suites};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the source tree")
}

fn readme() -> String {
    std::fs::read_to_string(root().join("README.md")).expect("README.md")
}

#[test]
fn documents_quote_what_the_records_say() {
    let report = report(&root(), true).unwrap_or_else(|error| panic!("{error}"));
    assert!(report.stale.is_empty(), "{:?} quote other figures than the records: run `make benchmarks`", report.stale);
    assert!(report.figures > 20, "{} figures in the documents", report.figures);
}

/// Commits after which what a campaign or a long suite did says little of the code.
const MOST_COMMITS: u64 = 200;

/// The commits since `version`; none in a source archive, which has no history and is no place to change code.
fn commits_since(version: &str) -> Option<u64> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(root()).output().expect("git runs");
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    };
    let Some("false") = git(&["rev-parse", "--is-shallow-repository"]).as_deref() else {
        assert!(!root().join(".git").exists(), "the history is cut short: `git fetch --unshallow` brings it");
        return None;
    };
    let version = version.trim_end_matches("-dirty");
    let after = git(&["rev-list", "--count", &format!("{version}..HEAD")]);
    Some(after.unwrap_or_else(|| panic!("{version} is no commit here")).parse().expect("a number"))
}

#[test]
fn newest_campaign_ran_at_most_200_commits_ago() {
    let version = newest_campaign(&root()).expect("records of campaigns").expect("a campaign");
    let Some(after) = commits_since(&version) else { return };
    assert!(
        after <= MOST_COMMITS,
        "the newest campaign ran {version}, {after} commits ago: `make campaign HOURS=1`, then `make benchmarks`"
    );
}

/// Suites that have not run yet since results are recorded.
const NOT_RUN_YET: [&str; 13] = [
    "tests",
    "fuzz",
    "xdp",
    "dpdk",
    "guest",
    "bundle",
    "deb-test",
    "container-test",
    "wheel-test",
    "dashboard-test",
    "neon",
    "click",
    "repro",
];

#[test]
fn each_long_suite_passed_at_most_200_commits_ago() {
    let list = Command::new(root().join("scripts/deep")).arg("--list").output().expect("scripts/deep runs");
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    assert!(list.lines().count() > 5, "{list}");
    let runs = suites(&root()).expect("results of suites");
    for run in &runs {
        assert!(list.lines().any(|suite| suite == run.suite), "{} is no suite any more: remove its result", run.suite);
        assert_eq!(run.outcome, "passed", "{}: `scripts/deep {0}`, then `make benchmarks`", run.suite);
        let Some(after) = commits_since(&run.version) else { return };
        let (suite, version) = (&run.suite, &run.version);
        assert!(
            after <= MOST_COMMITS,
            "{suite} ran {version}, {after} commits ago: `scripts/deep {suite}`, then `make benchmarks`"
        );
    }
    let without: Vec<_> = list.lines().filter(|suite| runs.iter().all(|run| run.suite != *suite)).collect();
    assert_eq!(without, NOT_RUN_YET, "suites without a result: `scripts/deep SUITE`, then `make benchmarks`");
}

#[test]
fn readme_has_at_most_900_words() {
    let words = readme().split_whitespace().count();
    assert!(words <= 900, "{words} words");
}

/// `text` without the text between markers, in code or in links.
fn prose(text: &str) -> String {
    let without = |text: &str, open: &str, close: &str| {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(open) {
            out.push_str(before);
            rest = after.split_once(close).unwrap_or_else(|| panic!("{open} without {close}")).1;
        }
        out + rest
    };
    let text = without(text, "<!--=", "<!--/-->");
    let text = without(&text, "```", "```");
    without(&text, "`", "`")
}

/// Numbers followed by a unit of measurement.
fn measured(text: &str) -> Vec<String> {
    const UNITS: [&str; 12] =
        ["M/s", "M", "ns", "µs", "us", "ms", "times", "x", "million", "M lookups/s", "Mpkt/s", "MB"];
    let words: Vec<&str> =
        text.split_whitespace().map(|word| word.trim_matches(&['(', ')', ',', ';', ':', '|'][..])).collect();
    let is_number = |word: &str| word.contains(|c: char| c.is_ascii_digit()) && word.parse::<f64>().is_ok();
    let is_unit = |word: &str| UNITS.contains(&word.trim_end_matches('.'));
    words.windows(2).filter(|pair| is_number(pair[0]) && is_unit(pair[1])).map(|pair| pair.join(" ")).collect()
}

#[test]
fn no_measured_figure_is_typed_by_hand() {
    for document in ["README.md", "docs/benchmarks.md", "docs/how-a-lookup-spends-its-time.md", "docs/reliability.md"] {
        let text = std::fs::read_to_string(root().join(document)).expect(document);
        assert_eq!(measured(&prose(&text)), [""; 0], "{document}: quote it as <!--=table/row/column--><!--/-->");
    }
    assert_eq!(measured("some 94 M/s, at most 1.3 µs. And 4M names"), ["94 M/s", "1.3 µs."]);
}

/// Pages whose numbers with units are settings, limits or sizes, and nothing that was measured.
const SETTINGS: [&str; 6] = [
    "docs/decisions/0028-flows-over-several-ways.md",
    "docs/decisions/0031-bundles.md",
    "docs/decisions/0033-super-frames.md",
    "docs/formats/link-hellos.md",
    "docs/how-to/bundle-links.md",
    "docs/how-to/connect-guests.md",
];

/// The Markdown below a folder, and its path.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("a file").path());
    let mut all: Vec<PathBuf> = paths
        .flat_map(|path| if path.is_dir() { pages(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    all.sort();
    all
}

/// Whether a text says of which commit and machine the figures are that were typed.
fn says_of_what(text: &str) -> bool {
    let Some((_, rest)) = text.split_once("Typed figures on this page are of commit `") else { return false };
    let Some((commit, rest)) = rest.split_once('`') else { return false };
    commit.len() >= 7 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()) && rest.contains("machine")
}

#[test]
fn a_figure_that_is_typed_says_of_which_commit_and_machine_it_is() {
    let root = root();
    let mut texts: Vec<(PathBuf, String)> = pages(&root.join("docs"))
        .into_iter()
        .map(|path| (path.clone(), std::fs::read_to_string(&path).expect("a page")))
        .collect();
    for folder in std::fs::read_dir(root.join("crates")).expect("crates") {
        let path = folder.expect("a crate").path().join("src/lib.rs");
        if let Ok(text) = std::fs::read_to_string(&path) {
            let docs: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("//!")).collect();
            texts.push((path, docs.join("\n")));
        }
    }
    assert!(texts.len() > 60, "{} pages", texts.len());
    let mut without = Vec::new();
    for (path, text) in &texts {
        let name = path.strip_prefix(&root).expect("below it").display().to_string();
        let found = measured(&prose(text));
        let is_settings = SETTINGS.contains(&name.as_str());
        assert!(!is_settings || !found.is_empty(), "{name} has no figure: take it off the list");
        if !found.is_empty() && !is_settings && !says_of_what(text) {
            without.push(format!("{name}: {}", found.join(", ")));
        }
    }
    assert!(
        without.is_empty(),
        "figures without their commit and machine; quote them as <!--=table/row/column--><!--/-->, or end the page with `Typed \
         figures on this page are of commit ... on machine ...`:\n{}",
        without.join("\n")
    );
    assert!(says_of_what("Typed figures on this page are of commit `a19d5e03` (2026-11-23), on the machines named."));
    assert!(!says_of_what("Typed figures on this page are of commit `unknown`, on the machines named."));
}

/// A source tree with two commands to record, and a program that prints a row for one and fails for the other.
fn tree() -> (tempfile::TempDir, Plan) {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(&path, text).expect("a file");
        path
    };
    write("page.md", "at most <!--=t/one/a--><!--/--> and <!--=t/one/a-of-b--><!--/--> of b\n<!--=t-->old<!--/-->\n");
    write("picture.svg", "<svg>{=bars}{=t/one/a/worst}</svg>");
    let definition = r#"
        documents = ["page.md"]
        text = {}
        [sets]
        quick = ["bench lookup --n 1K", "bench broken"]
        [picture]
        template = "picture.svg"
        output = "out.svg"
        bars = [{ head = "rate", about = "1K names", table = "t", row = "one", columns = ["a", "b"], labels = ["a", "b"] }]
        [table.t]
        head = "names"
        rows = [{ id = "one", n = "1K" }]
        columns = [{ id = "a", contestant = "a" }, { id = "b", contestant = "b" }, { id = "a-of-b", contestant = "a", over = "b" }]
    "#;
    write("docs/benchmarks/figures.toml", definition);
    let program = write(
        "program",
        r#"#!/bin/sh
echo "$*" >> "$(dirname "$0")/log"
[ "$2" = broken ] && exit 1
echo '{"bench":"lookup","contestant":"a","n":1024,"unit":"M/s","median":20.0,"min":10.0,"max":30.0,"samples":[10.0,20.0,30.0]}'
echo '{"bench":"lookup","contestant":"b","n":1024,"unit":"M/s","median":5.0,"min":4.0,"max":6.0,"samples":[5.0,4.0,6.0]}'
"#,
    );
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a program");
    let root = folder.path().to_owned();
    (folder, Plan { root, program, label: "Test 1".into(), set: "quick".into(), remark: None })
}

#[test]
fn recording_goes_on_where_it_stopped_and_pages_show_it() {
    let (folder, plan) = tree();
    let log = || std::fs::read_to_string(folder.path().join("log")).expect("the log");
    let failed = record(&plan, &mut |_| ()).unwrap_err();
    assert!(matches!(&failed, RecordsError::Failed(commands) if commands == &["fibula bench broken"]), "{failed}");
    record(&plan, &mut |_| ()).unwrap_err();
    assert_eq!(
        log(),
        "bench lookup --n 1K -j\nbench broken -j\nbench broken -j\n",
        "what is recorded is not run again"
    );

    let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("a page");
    assert_eq!(report(folder.path(), true).unwrap().stale.len(), 2);
    assert!(page("page.md").contains("old"), "a check changes nothing");
    report(folder.path(), false).unwrap();
    let text = page("page.md");
    // Medians of 10/5, 20/4 and 30/6: ratios are taken round by round.
    assert!(text.starts_with("at most <!--=t/one/a-->20<!--/--> and <!--=t/one/a-of-b-->5<!--/--> of b\n"), "{text}");
    assert!(
        text.contains(
            "| one | Test&nbsp;1 | unknown | 20<br><sub>10–30</sub> | 5<br><sub>4–6</sub> | 5<br><sub>2–5</sub> |"
        ),
        "{text}"
    );
    assert!(text.contains("- `fibula bench lookup --n 1K` (Test 1, 3 runs)"), "{text}");
    assert!(page("out.svg").ends_with("20</svg>"));
    assert!(report(folder.path(), true).unwrap().stale.is_empty());
}

#[test]
fn processes_that_disagree_are_marked() {
    let (folder, plan) = tree();
    record(&plan, &mut |_| ()).unwrap_err();
    let path = folder.path().join("docs/benchmarks/records/test-1.jsonl");
    let of_runs = std::fs::read_to_string(&path).expect("the record");
    let of_processes = of_runs.replace("\"unit\"", "\"processes\":3,\"unit\"").replace("4.0", "5.0");
    std::fs::write(&path, of_processes).expect("the record");
    report(folder.path(), false).unwrap();
    let text = std::fs::read_to_string(folder.path().join("page.md")).expect("the page");
    assert!(text.contains("20<br><sub>10–30&nbsp;‡</sub> | 5<br><sub>5–6</sub>"), "{text}");
    assert!(text.contains("(Test 1, 3 processes)"), "{text}");
}

#[test]
fn worse_record_comes_first_and_strange_markers_are_refused() {
    let (folder, plan) = tree();
    let records = folder.path().join("docs/benchmarks/records");
    record(&plan, &mut |_| ()).unwrap_err();
    let copied = std::fs::read_to_string(records.join("test-1.jsonl")).expect("the record");
    std::fs::write(records.join("better.jsonl"), copied.replace("Test 1", "Better").replace("20.0", "25.0"))
        .expect("a record");
    report(folder.path(), false).unwrap();
    let text = std::fs::read_to_string(folder.path().join("page.md")).expect("the page");
    assert!(text.starts_with("at most <!--=t/one/a-->20 to 25<!--/-->"), "{text}");
    assert!(text.find("| one | Test&nbsp;1 |") < text.find("| one | Better |"), "{text}");

    std::fs::write(records.join("test-1.jsonl"), copied.replace("\"unknown\"", "\"other\"")).expect("a record");
    let other = record(&plan, &mut |_| ()).unwrap_err();
    assert!(matches!(other, RecordsError::OtherRecord { .. }), "{other}");

    std::fs::write(folder.path().join("page.md"), "<!--=t/two/a--><!--/-->").expect("the page");
    let wrong = report(folder.path(), false).unwrap_err().to_string();
    assert!(wrong.contains("no row \"two\" in table t"), "{wrong}");
}
