//! Holds the structure that `lib.rs` draws: which layer may use which, that no modules use each other in a circle, and what the core is
//! without. Tests of a module may use any other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The layers, and those below that each may use.
const LAYERS: [(&str, &[&str]); 5] = [
    ("core", &[]),
    ("store", &["core"]),
    ("wire", &["core", "store"]),
    ("shell", &["core", "store", "wire"]),
    ("kit", &["core", "store", "wire", "shell"]),
];

/// Words that no line of the core may have: the core does not wait, lock or read a clock.
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

/// Fields that the writer, the services and the status page may share.
const MOST_SHARED: usize = 10;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The files of a folder, without those of tests.
fn files(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if path.is_dir() && name != "tests" {
            files(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests" {
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

/// The modules that a file uses, as layer and module: of `use crate::core::{hosts, learnt}` both.
fn used(code: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let (layer, rest) = rest.split_once("::").unwrap_or((rest, ""));
        if !layer.chars().all(is_word) || !LAYERS.iter().any(|(name, _)| *name == layer) {
            continue;
        }
        let modules = match rest.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap_or_default().split(',').map(str::trim).collect(),
            None => vec![rest],
        };
        for module in modules {
            let module: String = module.chars().take_while(|c| is_word(*c)).collect();
            // What begins with a capital is of the layer itself.
            let is_of_layer = module.is_empty() || module.starts_with(char::is_uppercase);
            used.insert(if is_of_layer { layer.to_owned() } else { format!("{layer}::{module}") });
        }
    }
    used
}

/// Which modules each module uses, those of its own layer too. A folder is one module.
fn graph() -> BTreeMap<String, BTreeSet<String>> {
    let (sources, mut all) = (sources(), Vec::new());
    files(&sources, &mut all);
    let mut modules = BTreeMap::<String, BTreeSet<String>>::new();
    let mut names = BTreeMap::new();
    for path in &all {
        let parts: Vec<&str> = path.strip_prefix(&sources).unwrap().iter().map(|part| part.to_str().unwrap()).collect();
        let name = match &parts[..] {
            ["lib.rs" | "imports.rs"] => continue,
            [one] | [one, "mod.rs"] => one.trim_end_matches(".rs").to_owned(),
            [layer, module, ..] => format!("{layer}::{}", module.trim_end_matches(".rs")),
            [] => continue,
        };
        names.insert(path, name);
    }
    for (path, name) in &names {
        // The parent of a file that is a module of its layer is the layer.
        let layer = name.split("::").next().unwrap_or_default();
        let is_of_layer = name != layer && path.parent() == Some(&sources.join(layer));
        let parent = is_of_layer && code(path).contains("super::");
        let known = |used: &String| names.values().any(|name| name == used);
        // A function of a layer's own file is of the layer.
        let file =
            |used: String| if known(&used) { used } else { used.split("::").next().unwrap_or_default().to_owned() };
        let uses = used(&code(path)).into_iter().map(file).filter(|used| used != name);
        modules.entry(name.clone()).or_default().extend(uses.chain(parent.then(|| layer.to_owned())));
    }
    modules
}

#[test]
fn imports_point_down() {
    let mut upwards = Vec::new();
    for (module, uses) in graph() {
        let layer = module.split("::").next().unwrap_or_default();
        let (_, below) = LAYERS.iter().find(|(name, _)| *name == layer).unwrap_or_else(|| {
            panic!("{layer} is new: say in LAYERS what it may use, and in docs/decisions why it is a layer")
        });
        let layers = uses.iter().map(|used| (used, used.split("::").next().unwrap_or_default()));
        let wrong = layers.filter(|(_, of)| *of != layer && !below.contains(of));
        upwards.extend(wrong.map(|(used, _)| format!("{module} uses {used}")));
    }
    assert!(upwards.is_empty(), "what is needed above and below belongs below: {upwards:#?}");
}

#[test]
fn no_modules_use_each_other_in_a_circle() {
    let mut left = graph();
    // Those that use nothing that is left are in no circle.
    loop {
        let free: Vec<String> = left
            .iter()
            .filter(|(_, uses)| !uses.iter().any(|used| left.contains_key(used)))
            .map(|(name, _)| name.clone())
            .collect();
        if free.is_empty() {
            break;
        }
        free.iter().for_each(|name| _ = left.remove(name));
    }
    let circle: BTreeMap<_, Vec<_>> =
        left.iter().map(|(name, uses)| (name, uses.iter().filter(|used| left.contains_key(*used)).collect())).collect();
    assert!(circle.is_empty(), "these use each other; what both need is a module of its own: {circle:#?}");
}

#[test]
fn the_core_waits_for_nothing_locks_nothing_and_has_no_clock() {
    let mut all = Vec::new();
    files(&sources().join("core"), &mut all);
    let mut found = Vec::new();
    for path in &all {
        let code = code(path);
        let lines = code.lines().enumerate();
        let wrong = lines.flat_map(|(i, line)| {
            NOT_IN_CORE.iter().filter(|word| line.contains(**word)).map(move |word| (i + 1, word))
        });
        found.extend(wrong.map(|(line, word)| format!("{}:{line}: {word}", path.display())));
    }
    assert!(found.is_empty(), "the time is an argument, and what waits or locks belongs to the shell: {found:#?}");
}

#[test]
fn little_is_shared_and_the_writer_knows_every_job() {
    let shared = code(&sources().join("shell/shared.rs"));
    let fields = shared.split_once("struct Shared {").unwrap().1.split_once("\n}").unwrap().0;
    let n_fields = fields.lines().filter(|line| line.contains(": ")).count();
    assert!((1..=MOST_SHARED).contains(&n_fields), "{n_fields} fields of Shared: a service owns what it alone needs");
    let mut all = Vec::new();
    files(&sources().join("shell/writer"), &mut all);
    let unreachable: Vec<_> = all.iter().filter(|path| code(path).contains("unreachable!")).collect();
    assert!(unreachable.is_empty(), "a job that cannot come has no variant: {unreachable:?}");
}
