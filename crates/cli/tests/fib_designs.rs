//! `fibula fib compare` and `fibula fib advise` as a user runs them.

use serde_json::Value;
use std::process::Command;

/// Exit code, standard output, standard error.
fn fib(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_fibula")).arg("fib").args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn rows(arguments: &[&str]) -> Vec<Value> {
    let (code, stdout, stderr) = fib(arguments);
    assert_eq!(code, 0, "{arguments:?}: {stderr}");
    stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn number(row: &Value, field: &str) -> f64 {
    row[field].as_f64().unwrap_or_else(|| panic!("{field} of {row}"))
}

#[test]
fn every_design_has_a_line_with_its_figures() {
    let (code, text, _) = fib(&["compare", "-n", "1M", "--actions", "32", "--fp", "0.01"]);
    assert_eq!(code, 0);
    assert!(text.starts_with("1048576 names of 48 bits (mac), 32 actions in values of 6 bits"), "{text}");
    for design in fibula_designs() {
        assert!(text.lines().any(|line| line.split_whitespace().next() == Some(&design)), "{design}:\n{text}");
    }
    let rows = rows(&["compare", "-j", "-n", "1M", "--names", "ipv6", "--fp", "0"]);
    assert_eq!(rows.len(), fibula_designs().len());
    let meets: Vec<_> = rows.iter().filter(|row| row["meets_demand"] == true).map(|row| &row["design"]).collect();
    assert_eq!(meets, ["ogw", "cuckoo", "bgw", "sorted", "tss"]);
    assert!(rows.iter().all(|row| row.get("measured").is_none() && number(row, "bits_per_name") > 7.0));
}

/// The designs, taken from the error that lists them.
fn fibula_designs() -> Vec<String> {
    let (_, _, error) = fib(&["build", "-", "--out", "x", "--design", "none"]);
    let list = error.split("use ").nth(1).and_then(|rest| rest.lines().next()).unwrap();
    list.split(", ").map(|design| design.trim().to_owned()).collect()
}

#[test]
fn tables_that_are_built_have_the_size_and_the_rates_that_were_computed() {
    let n = 1 << 17;
    for row in rows(&["compare", "-j", "-n", "128K", "--actions", "15", "--fp", "0.02", "--measure", "--seed", "7"]) {
        let measured = &row["measured"];
        assert_eq!((number(measured, "wrong_answers"), number(measured, "names_asked")), (0.0, f64::from(n)), "{row}");
        let bits = number(measured, "bits_per_name") / number(&row, "bits_per_name");
        assert!((0.9..1.1).contains(&bits), "{bits} times the bits computed: {row}");
        let (computed, got) = (number(&row, "false_positive_rate"), number(measured, "false_positive_rate"));
        if computed < 1.0 {
            // Six standard deviations over 2^20 aliens; filters have more margin than they need.
            let sigma = 6.0 * (computed / f64::from(1 << 20)).sqrt();
            assert!((0.5 * computed - sigma..=1.2 * computed + sigma).contains(&got), "{computed} and {got}: {row}");
        }
        assert!(number(measured, "lookups_m_per_s") > 0.0);
    }
}

#[test]
fn advice_names_a_design_for_each_node_with_its_figures() {
    let (code, text, _) = fib(&["advise", "-n", "10M"]);
    assert_eq!(code, 0);
    for part in [
        "gateway: take cfw (l_f=10)",
        "core: take line-small (l=6, 4 cells a name)",
        "bits a name",
        "0.74 % of the aliens",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    let advised = rows(&["advise", "-j", "--fp", "0", "--gateway"]);
    assert_eq!(advised.len(), 1);
    assert_eq!((&advised[0]["node"], &advised[0]["design"]), (&"gateway".into(), &"cuckoo".into()));
    assert_eq!(advised[0]["others"].as_array().unwrap().len(), fibula_designs().len() - 1);
    let core = rows(&["advise", "-j", "--core", "--names", "text"]);
    assert_eq!((core.len(), &core[0]["design"]), (1, &"line-small".into()));
}

#[test]
fn advice_measures_from_how_many_names_on_a_line_table_is_faster() {
    let advised = rows(&["advise", "-j", "--measure", "--measure-n", "256K"]);
    assert!(advised[0]["node"] == "gateway" && advised[0].get("measured").is_none());
    let measured = &advised[1]["measured"];
    let rates = measured["rates"].as_array().unwrap();
    let rate = |at: usize, design: &str| rates[at][design].as_f64().unwrap();
    assert_eq!((rates[0]["n_names"].as_u64(), rates[1]["n_names"].as_u64()), (Some(64 << 10), Some(256 << 10)));
    let is_faster = [0, 1].map(|at| rate(at, "line") > rate(at, "concise"));
    let from = match is_faster {
        [true, true] => Some(64 << 10),
        [false, true] => Some(256 << 10),
        [_, false] => None,
    };
    assert_eq!(measured["line_is_faster_from"].as_u64(), from, "{measured}");
    let (code, text, _) = fib(&["advise", "--core", "--measure", "--measure-n", "1K"]);
    assert!(code == 0 && text.contains("the faster of the two"), "{text}");
}

#[test]
fn demands_that_make_no_sense_are_refused_with_what_to_do() {
    for (arguments, part) in [
        (&["compare", "--fp", "1"][..], "from 0 (none) to less than 1"),
        (&["compare", "--fp", "nan"], "from 0 (none) to less than 1"),
        (&["advise", "-n", "0"], "from 1 to 4G"),
        (&["compare", "-n", "5G"], "from 1 to 4G"),
        (&["compare", "-n", "many"], "write 1000, 64K or 16M"),
        (&["compare", "--actions", "0"], "1..=65535"),
        (&["advise", "--actions", "32", "--value-bits", "5"], "give 6"),
        (&["compare", "--names", "mac8"], "use mac, ipv4"),
        (&["compare", "-n", "300", "--names", "fixed:1", "--measure"], "--measure-n"),
        (&["compare", "--seed", "2"], "--measure"),
        (&["advise", "--gateway", "--core"], "cannot be used with"),
        (&["advise", "--gateway", "--measure"], "cannot be used with"),
    ] {
        let (code, stdout, stderr) = fib(arguments);
        assert_eq!((code, &*stdout), (2, ""), "{arguments:?}: {stderr}");
        assert!(stderr.contains(part), "{arguments:?}: {stderr}");
    }
}
