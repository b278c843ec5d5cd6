//! No files of this crate use each other in a circle. A file may use its own submodules, and tests of a module may use any other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

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

fn graph() -> BTreeMap<String, BTreeSet<String>> {
    let (sources, mut all) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), Vec::new());
    files(&sources, &mut all);
    let name_of = |path: &PathBuf| {
        let name = path.strip_prefix(&sources).unwrap().with_extension("").to_str().unwrap().replace('/', "::");
        name.trim_end_matches("::mod").to_owned()
    };
    let modules: BTreeSet<_> = all.iter().map(name_of).filter(|name| name != "lib").collect();
    let uses = |path: &PathBuf| {
        let name = name_of(path);
        let mut used = used(&name.split("::").collect::<Vec<_>>(), &code(path), &modules);
        used.remove(&name);
        (name, used)
    };
    all.iter().map(uses).filter(|(name, _)| name != "lib").collect()
}

#[test]
fn imports_are_found() {
    let graph = graph();
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
fn no_files_use_each_other_in_a_circle() {
    let mut left = graph();
    // Those that use nothing that is left are in no circle.
    loop {
        let is_free = |uses: &BTreeSet<String>| !uses.iter().any(|used| left.contains_key(used));
        let free: Vec<_> = left.iter().filter(|(_, uses)| is_free(uses)).map(|(name, _)| name.clone()).collect();
        if free.is_empty() {
            break;
        }
        free.iter().for_each(|name| _ = left.remove(name));
    }
    // Those that nobody uses only lead to one.
    loop {
        let is_used = |name: &String| left.values().any(|uses| uses.contains(name));
        let Some(unused) = left.keys().find(|name| !is_used(name)).cloned() else { break };
        left.remove(&unused);
    }
    let names: BTreeSet<_> = left.keys().cloned().collect();
    left.values_mut().for_each(|uses| uses.retain(|used| names.contains(used)));
    assert!(left.is_empty(), "these use each other in a circle; what several need belongs below them: {left:#?}");
}
