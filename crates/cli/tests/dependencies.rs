//! The rules of deny.toml about our dependencies hold. cargo-deny checks more where it is installed (`make deny`).

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde::Deserialize;
use spdx::{Expression, ParseMode};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[derive(Deserialize)]
struct Deny {
    licenses: Licenses,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
    exceptions: Vec<Exception>,
}

#[derive(Deserialize)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    skip: Vec<Ban>,
    deny: Vec<Ban>,
}

#[derive(Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    spec: String,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
}

fn deny() -> Deny {
    let text = std::fs::read_to_string(format!("{ROOT}/deny.toml")).expect("deny.toml");
    toml::from_str(&text).expect("deny.toml is valid")
}

/// All packages that a build of the workspace and its tests uses on this platform, our own included.
fn packages() -> Vec<Package> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform", &target])
        .current_dir(ROOT)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Metadata = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    assert!(metadata.packages.len() > 100, "only {} packages", metadata.packages.len());
    metadata.packages
}

#[test]
fn every_licence_is_allowed() {
    let Licenses { allow, exceptions } = deny().licenses;
    for Package { name, version, license, .. } in packages() {
        let license = license.unwrap_or_else(|| panic!("{name} {version} names no licence"));
        let exception = exceptions.iter().find(|exception| exception.name == name);
        let allowed: Vec<&String> =
            allow.iter().chain(exception.iter().flat_map(|exception| &exception.allow)).collect();
        let expression = Expression::parse_mode(&license, ParseMode::LAX).expect("a licence by the rules of SPDX");
        let is_allowed = expression.evaluate(|required| allowed.iter().any(|id| **id == required.to_string()));
        assert!(is_allowed, "{name} {version} is under {license}, which deny.toml does not allow");
    }
}

#[test]
fn every_package_is_ours_or_from_crates_io() {
    for Package { name, source, .. } in packages() {
        match source {
            None => assert!(name.starts_with("fibula-"), "{name} is a copy in this repository"),
            Some(source) => assert_eq!(source, CRATES_IO, "{name}"),
        }
    }
}

#[test]
fn the_page_on_dependencies_names_all_that_our_crates_ask_for() {
    let page = std::fs::read_to_string(format!("{ROOT}/docs/decisions/0006-dependencies.md")).expect("the page");
    let words: BTreeSet<&str> = page.split(|c: char| !c.is_alphanumeric() && !"-_".contains(c)).collect();
    for package in packages().into_iter().filter(|package| package.source.is_none()) {
        for Dependency { name } in package.dependencies {
            let is_named = name.starts_with("fibula-") || words.contains(name.as_str());
            assert!(is_named, "docs/decisions/0006-dependencies.md does not say why {} needs {name}", package.name);
        }
    }
}

#[test]
fn no_package_is_banned() {
    let bans = deny().bans;
    for Package { name, version, .. } in packages() {
        assert!(bans.deny.iter().all(|ban| ban.spec != name), "{name} {version} is banned in deny.toml");
    }
}

#[test]
fn the_packages_with_two_versions_are_those_that_deny_toml_names() {
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for Package { name, version, .. } in packages() {
        versions.entry(name).or_default().push(version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    let skip = deny().bans.skip;
    for (name, versions) in &versions {
        let named = |version: &&String| {
            skip.iter().any(|ban| format!("{name}@{version}.").starts_with(&format!("{}.", ban.spec)))
        };
        let unnamed = versions.len() - versions.iter().filter(named).count();
        assert!(unnamed <= 1, "{name} is here as {versions:?}: name all but one in deny.toml, or do without");
    }
    for Ban { spec } in skip {
        let name = spec.split('@').next().expect("a name");
        assert!(versions.contains_key(name), "{name} has one version: take {spec} out of deny.toml");
    }
}
