//! `fibula fib compare` and `fibula fib advise` as a user runs them.

use serde_json::Value;
use std::process::Command;

/// The binary under test: `fibula`, or `fibula-lab` in the laboratory's tests.
const FIBULA: &str = match (option_env!("CARGO_BIN_EXE_fibula"), option_env!("CARGO_BIN_EXE_fibula-lab")) {
    (Some(product), _) => product,
    (None, Some(laboratory)) => laboratory,
    (None, None) => panic!("there is no binary to test"),
};
/// Whether it has the designs of the papers.
const IS_LABORATORY: bool = option_env!("CARGO_BIN_EXE_fibula").is_none();
/// Its designs that let no alien pass.
const EXACT: &[&str] = if IS_LABORATORY { &["cuckoo", "ogw", "bgw", "sorted", "tss"] } else { &["cuckoo"] };

/// Exit code, standard output, standard error.
fn fib(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(FIBULA).arg("fib").args(arguments).output().unwrap();
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
    let rows = rows(&["compare", "-j", "-n", "1M", "--kind", "ipv6", "--fp", "0"]);
    assert_eq!(rows.len(), fibula_designs().len());
    let meets = |rows: &[Value]| -> Vec<String> {
        let meets = rows.iter().filter(|row| row["meets_demand"] == true);
        meets.map(|row| row["design"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(meets(&rows), EXACT);
    let short = self::rows(&["compare", "-j", "-n", "1M", "--kind", "mac", "--fp", "0"]);
    assert_eq!(meets(&short), EXACT);
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
        "gateway: take line-small+checksum (r=10)",
        "core: take line-small (l=6, 4 cells)",
        "bits a name",
        "0.098 % of the aliens",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    let advised = rows(&["advise", "-j", "--fp", "0", "--gateway"]);
    assert_eq!(advised.len(), 1);
    assert_eq!((&advised[0]["node"], &advised[0]["design"]), (&"gateway".into(), &"cuckoo".into()));
    assert_eq!(advised[0]["others"].as_array().unwrap().len(), fibula_designs().len() - 1);
    let core = rows(&["advise", "-j", "--core", "--kind", "text"]);
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
        (&["compare", "--kind", "mac8"], "use mac, ipv4"),
        (&["compare", "-n", "300", "--kind", "fixed:1", "--measure"], "--measure-n"),
        (&["compare", "--seed", "2"], "--measure"),
        (&["advise", "--gateway", "--core"], "cannot be used with"),
        (&["advise", "--gateway", "--measure"], "cannot be used with"),
    ] {
        let (code, stdout, stderr) = fib(arguments);
        assert_eq!((code, &*stdout), (2, ""), "{arguments:?}: {stderr}");
        assert!(stderr.contains(part), "{arguments:?}: {stderr}");
    }
}

/// What `fib build` makes of a list of `n` names and 32 actions, with this kind's command from the advice.
fn built(dir: &std::path::Path, command: &str, n: usize) -> std::path::PathBuf {
    let (list, file) = (dir.join("list.csv"), dir.join("fib"));
    let line = |i: usize| format!("{},port:{}\n", mac(i), 1 + i % 32);
    std::fs::write(&list, (0..n).map(line).collect::<String>()).unwrap();
    let words = command.strip_prefix("fibula fib ").unwrap().split(' ').map(|word| match word {
        "LIST" => list.to_str().unwrap(),
        "FIB" => file.to_str().unwrap(),
        word => word,
    });
    let (code, _, stderr) = fib(&words.collect::<Vec<_>>());
    assert_eq!(code, 0, "{command}: {stderr}");
    file
}

fn mac(i: usize) -> String {
    let bytes = (0x0200_0000_0000 + i as u64).to_be_bytes();
    bytes[2..].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// Aliens that get an action, of `n`.
fn aliens_that_pass(file: &std::path::Path, n: usize) -> usize {
    use std::io::Write;
    let mut child = Command::new(FIBULA)
        .args(["fib", "lookup", file.to_str().unwrap()])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let names: String = (0..n).map(|i| mac((1 << 32) + i) + "\n").collect();
    let writer = std::thread::spawn(move || stdin.write_all(names.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let answers = String::from_utf8(output.stdout).unwrap();
    assert_eq!(answers.lines().count(), n);
    answers.lines().filter(|line| !line.ends_with(",drop")).count()
}

#[test]
fn the_printed_command_builds_what_is_recommended_and_the_rate_holds() {
    let dir = tempfile::tempdir().unwrap();
    let (n, n_aliens) = (20_000, 200_000);
    for fp in ["0", "0.0001", "0.001", "0.01", "0.4"] {
        for extra in [&[][..], &["--value-bits", "9"]] {
            let asked = [&["advise", "-j", "--gateway", "-n", "20000", "--fp", fp][..], extra].concat();
            let advised = &rows(&asked)[0];
            let file = built(dir.path(), advised["build"].as_str().unwrap(), n);
            let shown = &rows(&["show", "-j", file.to_str().unwrap()])[0];
            assert_eq!(shown["design"], advised["design"]);
            if shown["fingerprint_bits"] != 0 {
                let parameters = advised["parameters"].as_str().unwrap();
                assert!(parameters.ends_with(&format!("={}", shown["fingerprint_bits"])), "{advised}");
            }
            let wanted: f64 = fp.parse().unwrap();
            let declared = number(shown, "false_positive_rate");
            assert!(declared <= wanted, "{declared} of {wanted}: {shown}");
            // The key is random, so six standard deviations: one run in 10^9 exceeds them.
            let most = wanted * n_aliens as f64 + 6.0 * (wanted * n_aliens as f64).sqrt();
            let passed = aliens_that_pass(&file, n_aliens);
            assert!(passed as f64 <= most, "{passed} of {n_aliens} aliens passed, {fp} wanted: {shown}");
        }
    }
}

#[test]
fn a_rate_that_a_design_cannot_hold_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("list.csv");
    std::fs::write(&list, "02:00:00:00:00:01,port:1\n").unwrap();
    for (design, fp, parts) in [
        ("concise", "1e-12", &["`concise+checksum`", "at best", "take cuckoo"][..]),
        ("cfw", "1e-12", &["`cfw`", "at best", "take cuckoo"]),
        ("cfw", "1", &["not a share", "0 (none) to less than 1"]),
    ] {
        let out = dir.path().join("fib");
        let (list, out) = (list.to_str().unwrap(), out.to_str().unwrap());
        let (code, _, stderr) = fib(&["build", list, "--out", out, "--design", design, "--fp", fp]);
        assert_eq!(code, 2, "{stderr}");
        assert!(parts.iter().all(|part| stderr.contains(part)), "{stderr}");
    }
}

#[test]
fn designs_that_give_aliens_any_action_hold_a_rate_with_checksums() {
    let dir = tempfile::tempdir().unwrap();
    let (n, n_aliens, wanted) = (20_000, 200_000, 0.001);
    for design in ["concise", "line", "setsep"].into_iter().filter(|design| IS_LABORATORY || *design != "setsep") {
        let command = format!("fibula fib build LIST --out FIB --design {design} --fp {wanted}");
        let file = built(dir.path(), &command, n);
        let shown = &rows(&["show", "-j", file.to_str().unwrap()])[0];
        assert_eq!(shown["design"], format!("{design}+checksum"));
        assert!(number(shown, "false_positive_rate") <= wanted, "{shown}");
        let most = wanted * n_aliens as f64 + 6.0 * (wanted * n_aliens as f64).sqrt();
        let passed = aliens_that_pass(&file, n_aliens);
        assert!(passed > 0 && passed as f64 <= most, "{design}: {passed} of {n_aliens} aliens passed");
    }
    let file = built(dir.path(), "fibula fib build LIST --out FIB --aliens checksum", n);
    let shown = &rows(&["show", "-j", file.to_str().unwrap()])[0];
    assert_eq!((&shown["design"], &shown["fingerprint_bits"]), (&"concise+checksum".into(), &10.into()));
    let (code, _, stderr) = fib(&["build", "-", "--out", "x", "--design", "cfw", "--aliens", "checksum"]);
    assert!(code == 2 && stderr.contains("`cfw` with `checksum` against aliens is not a design"), "{stderr}");
    if IS_LABORATORY {
        let file = built(dir.path(), "fibula fib build LIST --out FIB --design line --aliens bloom --fp 0.001", n);
        let shown = &rows(&["show", "-j", file.to_str().unwrap()])[0];
        assert_eq!((&shown["design"], &shown["fingerprint_bits"]), (&"line+bloom".into(), &10.into()));
        let most = wanted * n_aliens as f64 + 6.0 * (wanted * n_aliens as f64).sqrt();
        let passed = aliens_that_pass(&file, n_aliens);
        assert!(passed > 0 && passed as f64 <= most, "{passed} of {n_aliens} aliens passed");
    }
    let (code, _, stderr) = fib(&["build", "-", "--out", "x", "--aliens", "sum"]);
    assert!(code == 2 && stderr.contains("use checksum"), "{stderr}");
}

#[test]
fn a_controller_refuses_a_rate_that_its_gateway_design_cannot_hold() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("controller.toml");
    let check = |gateway: &str, section: &str| {
        let store = dir.path().join("rib.sqlite");
        let text = format!(
            "listen = '127.0.0.1:4600'\nstore = '{}'\nname_kind = 'mac'\nmax_names = 1000\ngateway_design = '{gateway}'\n[design]\n{section}\n",
            store.display()
        );
        std::fs::write(&config, text).unwrap();
        let output = Command::new(FIBULA)
            .args(["controller", "--config", config.to_str().unwrap(), "--check"])
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    for (gateway, section) in [("cfw", "fp = 0.001"), ("concise", "fp = 0.001"), ("ofw+checksum", "")] {
        let (ok, stderr) = check(gateway, section);
        assert_eq!(ok, gateway != "ofw+checksum", "{stderr}");
    }
    if IS_LABORATORY {
        let (ok, stderr) = check("line", "aliens = 'bloom'");
        assert!(ok, "{stderr}");
        let (ok, stderr) = check("summary-cache", "fp = 0.001");
        assert!(!ok && stderr.contains("design.fp") && stderr.contains("take ofw"), "{stderr}");
    }
    let (ok, stderr) = check("cfw", "aliens = 'checksum'");
    assert!(!ok && stderr.contains("design.aliens") && stderr.contains("take one of concise"), "{stderr}");
    let (ok, stderr) = check("line", "aliens = 'sum'");
    assert!(!ok && stderr.contains("use checksum"), "{stderr}");
}

/// The number before these words.
fn before(sentence: &str, words: &str) -> f64 {
    let at = sentence.find(words).unwrap_or_else(|| panic!("`{words}` is not in `{sentence}`"));
    sentence[..at].trim_end().rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn what_the_advice_says_is_true_of_tables_that_were_built() {
    // Names that are short and long, and aliens that matter more and less.
    for demand in [["mac", "0.001"], ["text", "0"]] {
        let demand = ["-n", "32K", "--kind", demand[0], "--fp", demand[1]];
        let wanted: f64 = demand[5].parse().unwrap();
        let measured = rows(&[&["compare", "-j", "--measure"][..], &demand].concat());
        let of = |design: &Value| measured.iter().find(|row| row["design"] == *design).unwrap();
        let built = |row: &Value| number(&row["measured"], "bits_per_name");
        for advised in rows(&[&["advise", "-j"][..], &demand].concat()) {
            let taken = of(&advised["design"]);
            let passed = number(&taken["measured"], "false_positive_rate");
            let reasons = advised["because"].as_array().unwrap().iter().map(|reason| reason.as_str().unwrap());
            for reason in reasons {
                if reason.starts_with("Memory") {
                    let bits = before(reason, "bits a name") / built(taken);
                    assert!((0.88..1.12).contains(&bits), "{reason}: {}", built(taken));
                } else if reason.contains("stored whole") {
                    let name_bits = if demand[3] == "text" { 416.0 } else { 48.0 };
                    assert!(passed == 0.0 && built(taken) > name_bits, "{reason}: {taken}");
                } else if reason.contains("may get any action") {
                    assert!(passed > 0.5 && taken["measured"]["declared_false_positive_rate"].is_null(), "{taken}");
                } else if reason.starts_with("Aliens") {
                    let said = before(reason, "% of the aliens") / 100.0;
                    assert!(said <= wanted && passed <= said + 6.0 * (said / 1e6).sqrt(), "{reason}: {passed}");
                } else {
                    assert!(reason.starts_with("Lookup"), "a sentence that nothing holds: {reason}");
                }
            }
            for other in advised["others"].as_array().unwrap() {
                let (row, against) = (of(&other["design"]), other["against"].as_str().unwrap());
                let (passed, times) = (number(&row["measured"], "false_positive_rate"), built(row) / built(taken));
                if against.contains("rebuilds everything") {
                    assert_eq!(row["changes"], "rebuild", "{other}");
                } else if against.contains("nothing tells aliens") {
                    assert!(passed > 0.5, "{other}: {passed}");
                } else if against.contains("of the aliens get an action") {
                    // Of a million aliens, none shows a rate of less than one in 100,000.
                    let computed = number(row, "false_positive_rate");
                    assert!(passed > wanted || computed < 1e-5, "{other}: {passed}");
                } else if against.contains("times the memory") {
                    let said = before(against, "times the memory");
                    assert!((0.85..1.15).contains(&(said / times)), "{other}: {times}");
                } else if against.contains("about the same memory") {
                    assert!((0.85..1.15).contains(&times), "{other}: {times}");
                } else {
                    assert!(against.contains("times the fewest"), "a sentence that nothing holds: {against}");
                }
            }
        }
    }
}
