//! Which files of a crate use which others, and which layers the controller has: no import points up, and files that use each other in a
//! circle become fewer.
//!
//! A file may use its own submodules, and tests of a module may use any other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The crates with files that use each other in circles, and how many files those are. Each number may only fall; a crate that is not
/// here has none.
const CIRCLES: [(&str, usize); 7] =
    [("api", 6), ("capi", 3), ("cli", 13), ("fib", 7), ("lookup", 42), ("repro", 13), ("sim", 7)];

/// The layers of the controller, and those below that each may use.
const LAYERS: [(&str, &[&str]); 6] = [
    ("hosts", &[]),
    ("store", &["hosts"]),
    ("core", &["hosts"]),
    ("wire", &["hosts", "store", "core"]),
    ("shell", &["hosts", "store", "core", "wire"]),
    ("kit", &["hosts", "store", "core", "wire", "shell"]),
];

/// Words that no line of the controller's core may have: it does not wait, lock or read a clock.
const NOT_IN_CORE: [&str; 20] = [
    "tokio",
    "tonic",
    "rusqlite",
    "axum",
    "Mutex",
    "RwLock",
    "Condvar",
    "OnceLock",
    "Atomic",
    "mpsc",
    "oneshot",
    "async ",
    ".await",
    "thread::",
    "Instant::now",
    "SystemTime",
    "seam::now",
    "clock::",
    "std::fs",
    "std::net::Tcp",
];

/// Fields that the controller's writer, services and status page may share.
const MOST_SHARED: usize = 10;

/// Which modules each module uses.
type Graph = BTreeMap<String, BTreeSet<String>>;

fn sources(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(of).join("src")
}

/// The files of a folder, without those of tests.
fn files(folder: &Path, all: &mut Vec<PathBuf>) {
    const OF_TESTS: [&str; 2] = ["tests", "model"];
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_of_tests = OF_TESTS.iter().any(|name| path.file_stem().is_some_and(|stem| stem == *name));
        if path.is_dir() && !is_of_tests {
            files(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_of_tests {
            all.push(path);
        }
    }
}

/// What is compiled into the product: no comments, no tests.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The paths at the beginning of a text such as `plane::{Plane, names::{A, B as C}}`, after `prefix`, and what is left of the text.
fn paths<'a>(text: &'a str, prefix: &[&'a str], all: &mut Vec<Vec<&'a str>>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut text) = text.strip_prefix('{') {
        loop {
            text = paths(text, prefix, all).trim_start();
            text = text.strip_prefix(',').unwrap_or(text).trim_start();
            match text.strip_prefix('}') {
                Some(rest) => return rest,
                None if text.is_empty() => return text,
                None => {}
            }
        }
    }
    let (word, rest) = text.split_at(text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len()));
    let path: Vec<_> = prefix.iter().copied().chain((!word.is_empty()).then_some(word)).collect();
    match rest.strip_prefix("::") {
        Some(rest) => paths(rest, &path, all),
        None => {
            all.push(path);
            // What it is called here, or a star.
            &rest[rest.find([',', '}', ';', '\n']).unwrap_or(rest.len())..]
        }
    }
}

/// The modules that a module uses, by paths that begin at the crate or at a parent.
fn used(module: &[&str], code: &str, modules: &BTreeSet<String>) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for begin in ["crate::", "super::"] {
        for (at, _) in code.match_indices(begin).filter(|(at, _)| !code[..*at].ends_with("::")) {
            let mut all = Vec::new();
            paths(&code[at..], &[], &mut all);
            for path in all {
                let n_up = path.iter().take_while(|word| **word == "super").count();
                let base = if path[0] == "crate" { &[][..] } else { &module[..module.len().saturating_sub(n_up)] };
                let path: Vec<_> = base.iter().chain(&path[n_up.max(1)..]).copied().collect();
                // The longest beginning that is a module: what follows is in it.
                used.extend((1..=path.len()).rev().map(|n| path[..n].join("::")).find(|name| modules.contains(name)));
            }
        }
    }
    used
}

fn graph(of: &str) -> Graph {
    let (sources, mut all) = (sources(of), Vec::new());
    files(&sources, &mut all);
    let name_of = |path: &PathBuf| {
        let name = path.strip_prefix(&sources).unwrap().with_extension("").to_str().unwrap().replace('/', "::");
        name.trim_end_matches("::mod").to_owned()
    };
    let is_root = |name: &String| ["lib", "main"].contains(&name.as_str());
    let modules: BTreeSet<_> = all.iter().map(name_of).filter(|name| !is_root(name)).collect();
    let uses = |path: &PathBuf| {
        let name = name_of(path);
        let mut used = used(&name.split("::").collect::<Vec<_>>(), &code(path), &modules);
        used.remove(&name);
        (name, used)
    };
    all.iter().map(uses).filter(|(name, _)| !is_root(name)).collect()
}

/// The modules of a graph that use themselves by way of others, with those that they use among them.
fn circles(graph: &Graph) -> Graph {
    let reached = |from: &String| {
        let (mut reached, mut left) = (BTreeSet::new(), vec![from]);
        while let Some(module) = left.pop() {
            let new = graph.get(module).into_iter().flatten().filter(|used| !reached.contains(*used));
            let new: Vec<_> = new.collect();
            reached.extend(new.iter().copied());
            left.extend(new);
        }
        reached.contains(from)
    };
    let in_circles: BTreeSet<_> = graph.keys().filter(|name| reached(name)).collect();
    let of_circles = |uses: &BTreeSet<String>| uses.iter().filter(|used| in_circles.contains(used)).cloned().collect();
    in_circles.iter().map(|name| ((*name).clone(), of_circles(&graph[*name]))).collect()
}

#[test]
fn imports_are_found() {
    let graph = graph("dataplane");
    let uses = |name: &str, used: &str| graph[name].contains(used);
    assert!(uses("worker", "plane") && uses("flow::stage::crowd", "flow::stage::loose") && uses("port", "known"));
    assert!(graph.len() > 80 && graph.values().map(BTreeSet::len).sum::<usize>() > 200, "{}", graph.len());
    let mut all = Vec::new();
    let rest = paths("crate::a::{B, c::{D as E, *}, self};x", &[], &mut all);
    let all: Vec<_> = all.iter().map(|path| path.join("::")).collect();
    assert_eq!(
        (rest, all),
        (";x", ["crate::a::B", "crate::a::c::D", "crate::a::c", "crate::a::self"].map(str::to_owned).to_vec())
    );
}

#[test]
fn circles_are_found() {
    let graph = [("a", "b"), ("b", "c"), ("c", "b"), ("d", "a")];
    let graph = graph.map(|(name, used)| (name.to_owned(), BTreeSet::from([used.to_owned()])));
    assert_eq!(circles(&graph.into()).into_keys().collect::<Vec<_>>(), ["b", "c"]);
}

#[test]
fn files_use_each_other_in_no_circle_or_in_fewer_than_before() {
    let (mut found, mut checked) = (Vec::new(), BTreeSet::new());
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !sources(&name).is_dir() {
            continue;
        }
        let circles = circles(&graph(&name));
        let known = CIRCLES.iter().find(|(of, _)| *of == name).map_or(0, |(_, n)| *n);
        if circles.len() != known {
            found.push(format!("{name}: {} files and not {known}: {circles:#?}", circles.len()));
        }
        checked.insert(name);
    }
    assert!(CIRCLES.iter().all(|(name, _)| checked.contains(*name)), "a crate that is gone: {CIRCLES:?}");
    assert!(
        found.is_empty(),
        "these use each other in circles; what several need belongs below them. Where there are fewer, say so in CIRCLES: {found:#?}"
    );
}

fn layer(module: &str) -> &str {
    module.split("::").next().unwrap_or_default()
}

#[test]
fn imports_of_the_controller_point_down() {
    let mut upwards = Vec::new();
    for (module, uses) in graph("controller") {
        let (_, below) = LAYERS.iter().find(|(name, _)| *name == layer(&module)).unwrap_or_else(|| {
            panic!("{module} is new: say in LAYERS what it may use, and in docs/decisions why it is a layer")
        });
        let wrong = uses.iter().filter(|used| layer(used) != layer(&module) && !below.contains(&layer(used)));
        upwards.extend(wrong.map(|used| format!("{module} uses {used}")));
    }
    assert!(upwards.is_empty(), "what is needed above and below belongs below: {upwards:#?}");
}

/// Modules of the controller's layers, each with its whole folder, are in no circle, either.
#[test]
fn modules_of_the_controller_use_each_other_in_no_circle() {
    let module = |file: &String| file.split("::").take(2).collect::<Vec<_>>().join("::");
    let mut modules = Graph::new();
    for (file, uses) in graph("controller") {
        let name = module(&file);
        let used = uses.iter().map(module).filter(|used| *used != name);
        modules.entry(name.clone()).or_default().extend(used);
    }
    let circles = circles(&modules);
    assert!(circles.is_empty(), "what several need is a module of its own: {circles:#?}");
}

/// Whether a line has a word, and that does not go on: `.awaited` is a field.
fn has(line: &str, word: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| word != ".await" || !line[at + word.len()..].starts_with(goes_on))
}

#[test]
fn the_core_of_the_controller_waits_for_nothing_locks_nothing_and_has_no_clock() {
    let mut all = Vec::new();
    files(&sources("controller").join("core"), &mut all);
    assert!(all.len() > 20);
    let mut found = Vec::new();
    for path in &all {
        let code = code(path);
        let lines = code.lines().enumerate();
        let wrong = lines
            .flat_map(|(i, line)| NOT_IN_CORE.iter().filter(|word| has(line, word)).map(move |word| (i + 1, word)));
        found.extend(wrong.map(|(line, word)| format!("{}:{line}: {word}", path.display())));
    }
    assert!(found.is_empty(), "the time is an argument, and what waits or locks belongs to the shell: {found:#?}");
}

#[test]
fn little_is_shared_and_the_writer_knows_every_job() {
    let sources = sources("controller");
    let shared = code(&sources.join("shell/shared.rs"));
    let fields = shared.split_once("struct Shared {").unwrap().1.split_once("\n}").unwrap().0;
    let n_fields = fields.lines().filter(|line| line.contains(": ")).count();
    assert!((1..=MOST_SHARED).contains(&n_fields), "{n_fields} fields of Shared: a service owns what it alone needs");
    let mut all = Vec::new();
    ["shell/writer", "core/owner"].iter().for_each(|folder| files(&sources.join(folder), &mut all));
    let unreachable: Vec<_> = all.iter().filter(|path| code(path).contains("unreachable!")).collect();
    assert!(unreachable.is_empty(), "a job that cannot come has no variant: {unreachable:?}");
}
