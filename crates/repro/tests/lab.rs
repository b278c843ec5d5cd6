//! `fibula-lab` as `fibula` runs it: hash tests, benches and figures, and the description of its commands.

use std::fs;
use std::process::{Command, Output};

use etherparse::PacketBuilder;
use tempfile::TempDir;

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fibula-lab")).args(arguments).output().unwrap()
}

fn ok(arguments: &[&str]) -> String {
    let output = lab(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Exit code and standard error of a command that fails.
fn fails(arguments: &[&str]) -> (i32, String) {
    let output = lab(arguments);
    assert!(!output.status.success(), "{arguments:?}");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn hash_test(arguments: &[&str]) -> String {
    ok(&[&["filter", "hash-test"], arguments].concat())
}

fn hash_test_fails(arguments: &[&str]) -> (i32, String) {
    fails(&[&["filter", "hash-test"], arguments].concat())
}

fn path(dir: &TempDir, name: &str) -> String {
    dir.path().join(name).to_str().unwrap().to_owned()
}

fn file(dir: &TempDir, name: &str, content: impl AsRef<[u8]>) -> String {
    let path = path(dir, name);
    fs::write(&path, content).unwrap();
    path
}

fn json(line: &str) -> serde_json::Value {
    serde_json::from_str(line).unwrap()
}

#[test]
fn benches_and_figures_are_listed_and_wrong_settings_have_their_exit_codes() {
    let contestants: Vec<_> = ok(&["-j", "bench", "lookup", "--list"]).lines().map(json).collect();
    assert!(contestants.iter().any(|row| row["name"] == "concise"), "{contestants:?}");
    let figures = ok(&["repro", "list", "concise"]);
    assert!(figures.contains("concise/figure-3") && !figures.contains("othello/"), "{figures}");
    let (code, stderr) = fails(&["bench", "lookup", "--contestants", "none", "--n", "1K"]);
    assert!(code == 2 && stderr.contains("no contestant `none`"), "{stderr}");
    assert_eq!(fails(&["repro", "run", "concise/none"]).0, 4);
    let (code, stderr) = fails(&["bench", "-j", "frob"]);
    assert_eq!((code, &json(&stderr)["exit"]), (2, &2.into()));
}

/// The toy run of the catalogue's tests meets Click where there is one.
#[test]
fn without_click_its_figures_are_not_measured_and_say_how_to_get_it() {
    let dir = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut lab = Command::new(env!("CARGO_BIN_EXE_fibula-lab"));
        let output = lab.args(arguments).env_remove("FIBULA_CLICK").output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let how = "git clone https://github.com/kohler/click ../click && make click FIBULA_CLICK=../click";
    let (code, stderr) = run(&["bench", "click", "--n", "1K"]);
    assert!(code == Some(4) && stderr.contains(how), "{code:?}: {stderr}");
    let (code, stderr) = run(&["bench", "click", "--n", "1K", "--value-bits", "9"]);
    assert!(code == Some(2) && stderr.contains("256 ports"), "{code:?}: {stderr}");
    for figure in ["othello/figure-13", "concise/figure-9"] {
        let out = ["--out", dir.path().to_str().unwrap()];
        for _ in 0..2 {
            let (code, stderr) = run(&[&["repro", "run", figure], &out[..]].concat());
            assert_eq!(code, Some(0), "{stderr}");
            assert!(stderr.contains("not measured: Concise, Cuckoo, OBFs, Binary") && stderr.contains(how), "{stderr}");
            assert!(stderr.contains("step 1 of 2"), "what could not be measured is tried again: {stderr}");
        }
        // Of what was not measured, nothing is kept: a record of another day is not replaced by it.
        let page = dir.path().to_str().unwrap();
        let (code, stderr) = run(&[&["repro", "report", "--keep", "none", "--readme", page], &out[..]].concat());
        assert!(code == Some(0) && stderr.contains("kept the results of 0 figures"), "{stderr}");
        let report = fs::read_to_string(dir.path().join("report.html")).unwrap();
        let id = format!("<article id=\"{figure}\">");
        let article = report.split(&id).nth(1).and_then(|rest| rest.split("</article>").next()).expect("its part");
        assert!(article.contains("<span class=\"badge plain\">not measured</span>"), "{article}");
        assert!(article.contains("git clone https://github.com/kohler/click"), "{article}");
        let outcomes = article.matches("<tr><td class=\"").count();
        let plain = article.matches("<tr><td class=\"plain\">not measured</td>").count();
        assert!(outcomes == plain && outcomes >= 5, "{plain} of {outcomes} claims are not measured: {article}");
    }
}

#[test]
fn a_bench_in_processes_reports_medians_over_them_and_why_one_failed() {
    let bench = ["bench", "lookup", "--processes", "2", "--n", "1K", "--runs", "1", "--operations", "4K"];
    let named = ["--contestants", "floor,concise"];
    let rows: Vec<_> = ok(&[&["-j"], &bench[..], &named].concat()).lines().map(json).collect();
    assert_eq!(rows.iter().map(|row| row["contestant"].as_str().unwrap()).collect::<Vec<_>>(), ["floor", "concise"]);
    for row in &rows {
        let samples: Vec<f64> = row["samples"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        let (least, most) = (samples[0].min(samples[1]), samples[0].max(samples[1]));
        assert_eq!((row["processes"].as_u64(), samples.len()), (Some(2), 2), "{row}");
        assert_eq!((row["min"].as_f64(), row["max"].as_f64()), (Some(least), Some(most)), "{row}");
        let marked = row["unsteady"].as_bool().unwrap_or(false);
        // What is printed has four digits.
        assert!(marked == (most > 1.3 * least) || (most / least - 1.3).abs() < 1e-3, "{row}");
    }
    assert!(ok(&[&bench[..], &named].concat()).contains(", 2 processes\n"));
    let bloom = ["bench", "filter", "--n", "1000", "-k", "3", "--key-bytes", "4", "--members", "0", "--runs", "1"];
    let rows = ok(&[&bloom[..], &["--operations", "1K", "--processes", "2", "-j"]].concat());
    assert!(rows.lines().map(json).all(|row| row["processes"] == 2), "{rows}");

    let (code, stderr) = fails(&[&bench[..], &["--contestants", "none"]].concat());
    assert!(
        code == 2 && stderr.contains("process 1 of the bench") && stderr.contains("no contestant `none`"),
        "{stderr}"
    );
    let (code, stderr) = fails(&[&bench[..], &["--list"]].concat());
    assert!(code == 1 && stderr.contains("is no row"), "{stderr}");
}

#[test]
fn longest_prefix_match_is_measured_on_lists_and_captures() {
    let dir = tempfile::tempdir().unwrap();
    let table = file(&dir, "table.txt", "0.0.0.0/0\n10.0.0.0/8\n10.1.0.0/16\n2001:db8::/32\n");
    let capture = file(&dir, "trace.pcap", pcap(&[frame(1), frame(2)]));
    let bench = ["-j", "bench", "lpm", "--contestants", "trie", "--runs", "1", "--operations", "1000"];
    let more = ["--table", &table, "--pcap", &capture, "--destinations", "prefix"];
    let rows: Vec<_> = ok(&[&bench[..], &more].concat()).lines().map(json).collect();
    for destinations in ["prefix", "trace"] {
        assert!(rows.iter().any(|row| row["bench"].as_str().unwrap().contains(destinations)), "{rows:?}");
    }
    let bad = file(&dir, "bad.txt", "10.0.0.0/8\n10.0.0.0/33\n");
    let (code, stderr) = fails(&["bench", "lpm", "--table", &bad]);
    assert!(code == 3 && stderr.contains("bad.txt: line 2: a prefix of 33 bits"), "{stderr}");
    assert_eq!(fails(&["bench", "lpm", "--pcap", &path(&dir, "missing.pcap")]).0, 4);
}

#[test]
fn commands_are_described_with_their_options_and_help_is_that_of_fibula() {
    let described = json(&ok(&["describe"]));
    let names = |commands: &serde_json::Value| -> Vec<String> {
        commands.as_array().unwrap().iter().map(|command| command["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&described), ["bench", "repro", "filter"]);
    assert_eq!(names(&described[2]["commands"]), ["hash-test"]);
    let lookup = &described[0]["commands"][0];
    assert!(lookup["arguments"].as_array().unwrap().iter().any(|argument| argument["long"] == "contestants"));
    assert!(ok(&["bench", "lookup", "--help"]).contains("Usage: fibula bench lookup [OPTIONS]"));
    assert!(ok(&["help", "bench", "lookup"]).contains("Usage: fibula bench lookup [OPTIONS]"));
}

#[test]
fn hash_functions_are_tested_on_generated_keys_lists_and_captures() {
    let text = hash_test(&["--keys", "5000"]);
    for expected in ["h1 ", "h20", "SHA-1", "muladd, key 1", "one function, not two"] {
        assert!(text.contains(expected), "{expected} is missing in:\n{text}");
    }
    let rows: Vec<serde_json::Value> = hash_test(&["--keys", "2000", "-j"]).lines().map(json).collect();
    // 20 functions and 190 pairs, 8 digests and 28 pairs, 2 and 1: for two lengths.
    assert_eq!(rows.len(), 2 * (210 + 36 + 3));

    let dir = tempfile::tempdir().unwrap();
    let addresses: String = (0..500).map(|number| format!("192.0.{}.{}\n", number / 250, number % 250)).collect();
    let list = file(&dir, "addresses.txt", &addresses);
    assert!(hash_test(&["--list", &list, "--key-bytes", "4"]).contains("(500 keys)"));
    let bad = file(&dir, "bad.txt", format!("{addresses}here\n"));
    let (code, stderr) = hash_test_fails(&["--list", &bad, "--key-bytes", "4"]);
    assert!(code == 3 && stderr.contains("line 501"), "{code}: {stderr}");

    let capture = file(&dir, "trace.pcap", pcap(&(0..300u16).map(frame).collect::<Vec<_>>()));
    let text = hash_test(&["--pcap", &capture]);
    assert!(text.contains("4 bytes (150 keys)") && text.contains("13 bytes (300 keys)"), "{text}");
    let short = file(&dir, "short.pcap", pcap(&[frame(1)]));
    let (code, stderr) = hash_test_fails(&["--pcap", &short]);
    assert!(code == 3 && stderr.contains("a test takes 100"), "{code}: {stderr}");
    assert_eq!(hash_test_fails(&["--pcap", &list]).0, 3);
    assert_eq!(hash_test_fails(&["--pcap", &path(&dir, "missing.pcap")]).0, 4);
    for wrong in [&["--keys", "99"][..], &["--keys", "17M"], &["--key-bytes", "6"], &["--alpha", "0"]] {
        assert_eq!(hash_test_fails(wrong).0, 2, "{wrong:?}");
    }
}

/// A frame to one of 150 destinations, from one of 300 ports.
fn frame(number: u16) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 1, 0, (number % 150) as u8], 64);
    let mut frame = Vec::new();
    builder.udp(1000 + number, 53).write(&mut frame, b"question").unwrap();
    frame
}

/// A capture in the classic format, microseconds, little-endian.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for frame in frames {
        for word in [1, 0, frame.len() as u32, frame.len() as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    bytes
}
