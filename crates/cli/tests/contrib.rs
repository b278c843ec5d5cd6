//! What `contrib` says of the product is true.

use netio::testkit::tool_or_skip;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

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
            let counts = |name: &str| code.contains(&format!("\"{name}\""));
            let is_bucket = metric.strip_suffix("_bucket").is_some_and(counts);
            assert!(counts(metric) || is_bucket, "{file} names {metric}, which nobody counts");
        }
    }
}

/// What a program prints, and whether it succeeds.
fn verdict(command: &mut Command) -> (bool, String) {
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.success(), said.concat())
}

/// What promtool says of the tests of the alerts in a directory, and whether it accepts them.
fn test_alerts(promtool: &Path, directory: &Path) -> (bool, String) {
    verdict(Command::new(promtool).args(["test", "rules", "fibula_test.yml"]).current_dir(directory))
}

/// All values of a key in a JSON document.
fn values<'a>(json: &'a serde_json::Value, key: &str, found: &mut Vec<&'a str>) {
    match json {
        serde_json::Value::Object(map) => map.iter().for_each(|(name, value)| match value.as_str() {
            Some(text) if name == key => found.push(text),
            _ => values(value, key, found),
        }),
        serde_json::Value::Array(all) => all.iter().for_each(|value| values(value, key, found)),
        _ => {}
    }
}

#[test]
fn queries_of_the_dashboard_are_queries() {
    let dashboard = std::fs::read_to_string(root().join("contrib/grafana/fibula.json")).unwrap();
    let dashboard = serde_json::from_str(&dashboard).unwrap();
    let mut queries = Vec::new();
    values(&dashboard, "expr", &mut queries);
    assert!(queries.len() > 20, "{} queries", queries.len());
    let Some(promtool) = tool_or_skip("promtool", "prometheus") else { return };
    let directory = tempfile::tempdir().unwrap();
    let check = |queries: &[&str]| {
        let rules = queries.iter().enumerate().map(|(i, query)| {
            let query = query.replace("$instance", ".*").replace("$source", "p");
            assert!(!query.contains('$'), "{query}");
            serde_json::json!({"record": format!("query_{i}"), "expr": query})
        });
        let groups = serde_json::json!({"groups": [{"name": "dashboard", "rules": rules.collect::<Vec<_>>()}]});
        // JSON is YAML.
        let file = directory.path().join("rules.yml");
        std::fs::write(&file, groups.to_string()).unwrap();
        verdict(Command::new(&promtool).args(["check", "rules"]).arg(file))
    };
    let (is_content, said) = check(&queries);
    assert!(is_content, "{said}");
    assert!(!check(&["min by (switch (fibula_switch_waiting_messages)"]).0, "one that is none");
}

#[test]
fn each_alert_fires_in_a_test() {
    let file = |name: &str| std::fs::read_to_string(root().join("contrib/prometheus").join(name)).unwrap();
    let (rules, tests) = (file("fibula.yml"), file("fibula_test.yml"));
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 20, "{} alerts", alerts.len());
    for alert in alerts {
        let fires = format!("alertname: {alert}\n        exp_alerts:\n          - exp_labels:");
        assert!(tests.contains(&fires), "no test shows that {alert} fires");
    }
}

#[test]
fn alerts_fire_when_they_should() {
    let alerts = root().join("contrib/prometheus");
    let Some(promtool) = tool_or_skip("promtool", "prometheus") else { return };
    let (is_content, said) = test_alerts(&promtool, &alerts);
    assert!(is_content, "{said}");

    // What it would say of alerts that forget that each of several controllers serves a part of the switches.
    let directory = tempfile::tempdir().unwrap();
    let rules = std::fs::read_to_string(alerts.join("fibula.yml")).unwrap();
    std::fs::copy(alerts.join("fibula_test.yml"), directory.path().join("fibula_test.yml")).unwrap();
    for (right, wrong) in [
        (
            "expr: max by (switch) (fibula_switch_connected{switch!=\"\"})",
            "expr: fibula_switch_connected{switch!=\"\"}",
        ),
        ("expr: fibula_switch_connected{switch=\"\"} == 0", "expr: fibula_switch_connected == 0"),
    ] {
        assert!(rules.contains(right), "{right}");
        std::fs::write(directory.path().join("fibula.yml"), rules.replace(right, wrong)).unwrap();
        let (is_content, said) = test_alerts(&promtool, directory.path());
        assert!(!is_content, "{wrong}: {said}");
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

/// The services, as a directory of their own in which `fibula` is the binary that was built.
fn services() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (file, name) in [
        ("fibula-controller.service", "fibula-controller.service"),
        ("fibula-switch@.service", "fibula-switch@s1.service"),
    ] {
        let text = std::fs::read_to_string(root().join("contrib/systemd").join(file)).unwrap();
        assert!(text.contains("ExecStart=/usr/bin/fibula "), "{file}");
        let text = text.replace("/usr/bin/fibula", env!("CARGO_BIN_EXE_fibula"));
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

#[test]
fn services_are_valid_and_exposed_little() {
    let Some(analyzer) = tool_or_skip("systemd-analyze", "systemd") else { return };
    let analyze = |arguments: &[&str], unit: &Path| verdict(Command::new(&analyzer).args(arguments).arg(unit));
    let directory = services();
    for name in ["fibula-controller.service", "fibula-switch@s1.service"] {
        let unit = directory.path().join(name);
        let (is_valid, said) = analyze(&["verify", "--man=no"], &unit);
        assert!(is_valid && said.is_empty(), "{said}");
        // In tenths; from 50 on it is called medium.
        let (is_exposed_little, said) = analyze(&["security", "--offline=true", "--threshold=25"], &unit);
        assert!(is_exposed_little, "{said}");

        // What it would say of one that is wrong, and of one that may do everything.
        let text = std::fs::read_to_string(&unit).unwrap();
        std::fs::write(&unit, text.replace("UMask=", "UMaks=")).unwrap();
        assert!(analyze(&["verify", "--man=no"], &unit).1.contains("UMaks"));
        let open: String =
            text.lines().filter(|line| !line.starts_with("SystemCallFilter")).map(|line| format!("{line}\n")).collect();
        std::fs::write(&unit, open.replace("CapabilityBoundingSet=", "#")).unwrap();
        assert!(!analyze(&["security", "--offline=true", "--threshold=25"], &unit).0);
    }
}

#[test]
fn configurations_of_the_package_are_valid() {
    for (daemon, file) in [("controller", "controller.toml"), ("switch", "switch/example.toml")] {
        let path = root().join("contrib/etc").join(file);
        let output = Command::new(env!("CARGO_BIN_EXE_fibula"))
            .args([daemon, "--check", "--config"])
            .arg(&path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        // The lines that are commented out, too.
        let text = std::fs::read_to_string(&path).unwrap();
        let all = text.lines().map(|line| match line.strip_prefix('#') {
            Some(key) if key.starts_with('[') || key.split_once(" = ").is_some_and(|(key, _)| !key.contains(' ')) => {
                key
            }
            _ => line,
        });
        let all = all.map(|line| format!("{line}\n")).collect::<String>().replace("http://", "https://");
        let parsed = match daemon {
            "controller" => controller::config::Config::parse(&all).map(drop),
            _ => switch::daemon::config::Config::parse(&all).map(drop),
        };
        parsed.unwrap_or_else(|error| panic!("{file}: {error}\n{all}"));
        assert!(all.contains("\n[tls]\ndir = "), "{all}");
    }
}

/// Commands of a listing: a line that ends in a backslash goes on, and what a comment says is left out.
fn commands(listing: &str) -> Vec<String> {
    let lines = listing.replace("\\\n", " ");
    let commands = lines.lines().map(|line| line.split("  # ").next().unwrap().split_whitespace());
    commands.map(|words| words.collect::<Vec<_>>().join(" ")).collect()
}

/// `make deb-test` runs those of the how-to.
#[test]
fn first_steps_of_the_manual_are_those_of_the_how_to_on_one_machine() {
    let read = |file: &str| std::fs::read_to_string(root().join(file)).unwrap();
    let between = |text: &str, from: &str, to: &str| {
        let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("there is no {from}"));
        rest.split_once(to).unwrap().0.to_owned()
    };
    let how_to = read("docs/how-to/install.md");
    let how_to = between(&how_to, "## Two switches in ten commands", "## What is where");
    let mut expected = commands(&between(&how_to, "```sh\n", "```"));
    assert_eq!(expected.len(), 10, "{expected:?}");
    expected.retain(|command| !command.starts_with("apt-get") && !command.starts_with("scp"));
    assert_eq!(expected.len(), 8, "{expected:?}");
    expected.push("fibula doctor".to_owned());
    let manual = between(&read("contrib/man/fibula.7"), ".SH \"FIRST STEPS\"", ".SH SERVICES");
    let listing =
        between(&manual, ".nf\n.RS\n", ".RE").replace("\\-", "-").replace("\\(ti", "~").replace("\\e\n", "\\\n");
    let listing: String =
        listing.lines().map(|line| format!("{}\n", line.strip_prefix("# ").unwrap_or(line))).collect();
    assert_eq!(commands(&listing), expected);
}
