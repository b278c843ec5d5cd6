//! Our crates depend on each other in one direction, the documents draw these edges as they are, and tokio is
//! contained.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Which of our crates each crate may depend on.
const ALLOWED: [(&str, &[&str]); 16] = [
    ("fibula-clock", &[]),
    ("fibula-lookup", &[]),
    ("fibula-fib", &["lookup"]),
    ("fibula-netio", &[]),
    ("fibula-capi", &["lookup", "fib"]),
    ("fibula-python", &["lookup", "fib"]),
    ("fibula-dataplane", &["clock", "lookup", "fib", "netio"]),
    ("fibula-switch", &["lookup", "fib", "netio", "api", "dataplane"]),
    ("fibula-api", &["clock", "lookup", "fib"]),
    ("fibula-controller", &["lookup", "fib", "api"]),
    ("fibula-sim", &["lookup", "fib", "api", "controller", "dataplane", "switch"]),
    ("fibula-command", &["lookup"]),
    ("fibula-papers", &["lookup", "fib"]),
    ("fibula-repro", &["lookup", "fib", "papers", "netio", "dataplane", "switch", "api", "sim", "command", "cli"]),
    ("fibula-cli", &["lookup", "fib", "netio", "dataplane", "switch", "api", "controller", "command"]),
    ("fibula-fuzz", &["lookup", "fib", "papers", "netio", "dataplane", "switch", "api", "controller", "sim"]),
];
/// Crates with an asynchronous runtime: the daemons, and what runs many of their agents.
const ASYNC: [&str; 5] = ["fibula-api", "fibula-controller", "fibula-switch", "fibula-cli", "fibula-repro"];
/// What only the laboratory may depend on: plots, statistics, and the peers' tables that it measures.
const LABORATORY: [&str; 5] = ["plotters", "epaint_default_fonts", "statrs", "hashbrown", "prefix-trie"];

/// Crates that are not built with the product: `make test-lab` tests them.
const APART: [&str; 3] = ["fibula-papers", "fibula-repro", "fibula-fuzz"];

/// What cargo says of our crates. In a crate's own directory it would call that one alone a default member.
fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo prints JSON")
}

/// Package → names of its dependencies that become part of the product (no dev- or build-dependencies).
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let of_package = |package: &Value| {
        let dependencies = package["dependencies"].as_array().expect("dependencies").iter();
        let normal = dependencies.filter(|dependency| dependency["kind"].is_null());
        let names = normal.map(|dependency| dependency["name"].as_str().expect("a name").to_owned());
        (package["name"].as_str().expect("a name").to_owned(), names.collect())
    };
    packages.iter().map(of_package).collect()
}

#[test]
fn every_crate_is_tested_with_the_product_or_apart() {
    let metadata = metadata();
    let count = |key: &str| metadata[key].as_array().map_or(0, Vec::len);
    let default = metadata["workspace_default_members"].to_string();
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        let is_default = default.contains(package["id"].as_str().expect("an id"));
        assert_ne!(is_default, APART.contains(&name), "{name}: say in Cargo.toml whether it is a default member");
    }
    assert_eq!(count("workspace_default_members") + APART.len(), count("packages"));
}

#[test]
fn crates_depend_on_each_other_one_way() {
    let dependencies = dependencies();
    for (package, depends_on) in &dependencies {
        let (_, allowed) = ALLOWED.iter().find(|(name, _)| name == package).unwrap_or_else(|| {
            panic!("{package} is new: say here what it may depend on, and in docs/decisions why it is a crate")
        });
        for dependency in depends_on.iter().filter_map(|name| name.strip_prefix("fibula-")) {
            assert!(allowed.contains(&dependency), "{package} must not depend on fibula-{dependency}");
        }
    }
}

/// Features by which simulations and kills take hold of the daemons. What ships has none of them.
const OF_TESTS: [&str; 2] = ["kit", "crash-points"];

#[test]
fn nothing_that_ships_turns_on_features_for_tests() {
    let metadata = metadata();
    let names = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
    };
    let is_of_tests = |name: &String| OF_TESTS.contains(&name.rsplit('/').next().unwrap_or(name));
    let mut n_with_kit = 0;
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        n_with_kit += u32::from(package["features"]["kit"].is_array());
        if ["fibula-sim", "fibula-fuzz"].contains(&name) {
            continue;
        }
        let by_default = names(&package["features"]["default"]);
        assert!(!by_default.iter().any(is_of_tests), "{name} has {by_default:?} by default");
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let features = names(&dependency["features"]);
            let is_for_tests = dependency["kind"] == "dev";
            assert!(is_for_tests || !features.iter().any(is_of_tests), "{name} turns on {features:?} in what ships");
        }
    }
    assert!(n_with_kit >= 5, "only {n_with_kit} crates have a feature `kit`: is it called otherwise now?");
}

#[test]
fn data_plane_asks_for_no_deliberate_mistakes() {
    let mut folders = vec![concat!(env!("CARGO_MANIFEST_DIR"), "/../dataplane/src").into()];
    let mut n_files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir::<std::path::PathBuf>(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("a text");
                assert!(!text.contains("mistaken("), "{} asks for a mistake", path.display());
                n_files += 1;
            }
        }
    }
    assert!(n_files > 100, "{n_files} files");
}

/// Our crates, each with all of ours that it depends on, directly or indirectly.
fn closure() -> BTreeMap<String, BTreeSet<String>> {
    let short = |name: &String| name.strip_prefix("fibula-").map(str::to_owned);
    let ours = |names: BTreeSet<String>| names.iter().filter_map(short).collect::<BTreeSet<_>>();
    let mut reached: BTreeMap<_, _> = dependencies()
        .into_iter()
        .filter_map(|(package, depends_on)| Some((short(&package)?, ours(depends_on))))
        .collect();
    // No path is longer than one through all crates.
    for _ in 0..reached.len() {
        let before = reached.clone();
        for names in reached.values_mut() {
            names.extend(names.clone().iter().flat_map(|name| before[name].clone()));
        }
    }
    reached
}

/// One line per crate, after the crates that it depends on. Transitive dependencies are left out.
fn diagram() -> String {
    let reached = closure();
    let mut crates: Vec<_> = reached.iter().collect();
    crates.sort_by_key(|(_, names)| names.len());
    let mut text = String::new();
    for (name, names) in crates {
        let further: BTreeSet<_> = names.iter().flat_map(|name| &reached[name]).cloned().collect();
        let direct: Vec<_> = names.difference(&further).cloned().collect();
        let line = if direct.is_empty() { name.clone() } else { format!("{name:<10} ► {}", direct.join(", ")) };
        text += &format!("{line}\n");
    }
    format!("```\n{text}```\n")
}

#[test]
fn both_documents_draw_the_dependencies_as_they_are() {
    let diagram = diagram();
    for file in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let path = format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).expect(&path);
        assert!(text.contains(&diagram), "{file} draws other dependencies between crates; replace them by:\n{diagram}");
    }
}

#[test]
fn tokio_appears_only_in_the_daemons_and_their_interface() {
    for (package, depends_on) in dependencies() {
        let is_async = depends_on.iter().any(|name| name.starts_with("tokio") || name.starts_with("tonic"));
        assert!(!is_async || ASYNC.contains(&package.as_str()), "{package} must not depend on tokio or tonic");
    }
}

/// All packages that become part of what depends on one of our crates, by the lock file.
fn all_below(ours: &str) -> BTreeSet<String> {
    let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).expect("Cargo.lock");
    let lock: toml::Value = toml::from_str(&lock).expect("Cargo.lock is TOML");
    let text = |value: &toml::Value| value.as_str().expect("a text").to_owned();
    // A dependency is a name, with a version if there are several.
    let first = |text: String| text.split(' ').next().unwrap_or_default().to_owned();
    let mut packages = BTreeMap::<String, BTreeSet<String>>::new();
    for package in lock["package"].as_array().expect("packages") {
        let needs = package.get("dependencies").and_then(toml::Value::as_array).into_iter().flatten();
        packages.entry(text(&package["name"])).or_default().extend(needs.map(text).map(first));
    }
    // The lock file lists what our tests need, too.
    packages.extend(dependencies());
    let (mut below, mut left) = (BTreeSet::new(), vec![ours.to_owned()]);
    while let Some(package) = left.pop() {
        let needs = packages.get(&package).cloned().unwrap_or_default();
        left.extend(needs.into_iter().filter(|name| below.insert(name.clone())));
    }
    below
}

#[test]
fn the_path_of_a_frame_has_no_runtime_services_and_tls() {
    const OF_DAEMONS: [&str; 8] = ["tokio", "tonic", "prost", "hyper", "axum", "rustls", "ring", "fibula-api"];
    let found: Vec<_> = OF_DAEMONS.iter().filter(|name| all_below("fibula-dataplane").contains(**name)).collect();
    assert!(
        found.is_empty(),
        "fibula-dataplane must not need {found:?}: what does belongs to the daemon, fibula-switch"
    );
    assert!(OF_DAEMONS.iter().all(|name| all_below("fibula-switch").contains(*name)), "the daemon needs all of them");
}

#[test]
fn plots_statistics_and_tables_of_others_stay_in_the_laboratory() {
    for (package, depends_on) in dependencies().into_iter().filter(|(package, _)| package != "fibula-repro") {
        let of_laboratory = LABORATORY.iter().find(|name| depends_on.contains(**name));
        assert_eq!(of_laboratory, None, "{package} would link it into the product");
    }
}

#[test]
fn designs_that_few_should_choose_stay_in_the_laboratory() {
    let with_papers = dependencies().into_iter().filter(|(_, depends_on)| depends_on.contains("fibula-papers"));
    let packages: Vec<String> = with_papers.map(|(package, _)| package).collect();
    assert_eq!(packages, ["fibula-fuzz", "fibula-repro"]);
}
