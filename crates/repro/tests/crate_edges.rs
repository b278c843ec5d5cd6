//! Dependencies between our crates point one way, and tokio stays where it may be.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// What each crate may depend on, of ours. ARCHITECTURE.md draws it.
const ALLOWED: [(&str, &[&str]); 9] = [
    ("fibula-lookup", &[]),
    ("fibula-fib", &["lookup"]),
    ("fibula-netio", &[]),
    ("fibula-switch", &["lookup", "fib", "netio", "api"]),
    ("fibula-api", &["lookup", "fib"]),
    ("fibula-controller", &["lookup", "fib", "api"]),
    ("fibula-sim", &["lookup", "fib"]),
    ("fibula-repro", &["lookup", "fib", "netio", "switch", "sim"]),
    ("fibula-cli", &["lookup", "fib", "netio", "switch", "api", "controller", "repro"]),
];
/// Crates with an asynchronous runtime.
const ASYNC: [&str; 4] = ["fibula-api", "fibula-controller", "fibula-switch", "fibula-cli"];

/// Package → names of its dependencies that end up in the product (no dev- or build-dependencies).
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
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

#[test]
fn tokio_appears_only_in_the_daemons_and_their_interface() {
    for (package, depends_on) in dependencies() {
        let is_async = depends_on.iter().any(|name| name.starts_with("tokio") || name.starts_with("tonic"));
        assert!(!is_async || ASYNC.contains(&package.as_str()), "{package} must not depend on tokio or tonic");
    }
}
