//! What `contrib` says of the product is true.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(directory: &Path, text: &mut String) {
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}

/// The metrics that a text names.
fn metrics(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("fibula_") && *word != "fibula_test").collect()
}

#[test]
fn every_metric_of_alerts_and_dashboard_exists() {
    let mut code = String::new();
    for name in ["api", "controller", "switch"] {
        sources(&root().join("crates").join(name).join("src"), &mut code);
    }
    for file in ["contrib/prometheus/fibula.yml", "contrib/grafana/fibula.json", "docs/how-to/watch-with-prometheus.md"]
    {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        let named = metrics(&text);
        assert!(named.len() > 10, "{file} names {} metrics", named.len());
        for metric in named {
            assert!(code.contains(&format!("\"{metric}\"")), "{file} names {metric}, which nobody counts");
        }
    }
}

#[test]
fn the_dashboard_is_whole() {
    let text = std::fs::read_to_string(root().join("contrib/grafana/fibula.json")).unwrap();
    let board: serde_json::Value = serde_json::from_str(&text).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        assert!(panel["description"].as_str().is_some_and(|text| !text.is_empty()), "{}", panel["title"]);
        assert!(panel["targets"].as_array().is_some_and(|targets| !targets.is_empty()), "{}", panel["title"]);
    }
}
