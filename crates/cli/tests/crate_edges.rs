//! Dependencies between the crates point one way, as ARCHITECTURE.md draws them, and tokio stays at the edge.

use std::collections::BTreeMap;
use std::process::Command;

/// For every crate, the crates of ours that it may use.
const ALLOWED: [(&str, &[&str]); 8] = [
    ("lookup", &[]),
    ("fib", &["lookup"]),
    ("netio", &[]),
    ("api", &["fib", "lookup"]),
    ("switch", &["api", "fib", "lookup", "netio"]),
    ("controller", &["api", "fib", "lookup"]),
    ("repro", &["fib", "lookup", "netio", "switch"]),
    ("cli", &["api", "controller", "fib", "lookup", "netio", "repro", "switch"]),
];
const MAY_USE_TOKIO: [&str; 4] = ["api", "controller", "switch", "cli"];

/// Crate name to the names of its ordinary dependencies.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .expect("cargo runs, for it runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let text = |value: &serde_json::Value| value.as_str().expect("a name").to_owned();
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .map(|package| {
            let all = package["dependencies"].as_array().expect("dependencies");
            let ordinary = all.iter().filter(|dependency| dependency["kind"].is_null());
            (text(&package["name"]), ordinary.map(|dependency| text(&dependency["name"])).collect())
        })
        .collect()
}

#[test]
fn dependencies_point_one_way() {
    let dependencies = dependencies();
    assert_eq!(dependencies.len(), ALLOWED.len(), "a new crate has its place in ARCHITECTURE.md and here");
    for (name, allowed) in ALLOWED {
        for dependency in &dependencies[&format!("fibula-{name}")] {
            if let Some(ours) = dependency.strip_prefix("fibula-") {
                assert!(allowed.contains(&ours), "{name} must not use {ours}");
            }
            if dependency == "tokio" {
                assert!(MAY_USE_TOKIO.contains(&name), "{name} must not use tokio");
            }
        }
    }
}
