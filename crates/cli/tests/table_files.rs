//! What all nouns of offline tables have in common: lists in every dialect, files through pipes, and files of another noun.

mod offline;

use offline::{Dir, fails, fibula, ok, output};
use std::io::Write;
use std::process::{Command, Stdio};

/// Noun, arguments to build with, a list, a question that it has an answer to, and the answer if the list is below a comment.
const TABLES: [(&str, &[&str], &str, &str, &str); 4] = [
    ("fib", &[], "02:00:00:00:00:01,3\n02:00:00:00:00:02,drop\n", "02:00:00:00:00:01", "02:00:00:00:00:01,port:3"),
    ("filter", &["--kind", "ipv4"], "10.0.0.1\n10.0.0.2\n", "10.0.0.2", "10.0.0.2,yes"),
    ("lpm", &[], "10.0.0.0/8,eth1\n", "10.1.2.3", "10.1.2.3,eth1"),
    ("rules", &[], "deny tcp to 10.0.0.0/8\n", "10.0.0.1:1->10.0.0.2:2/tcp", "10.0.0.1:1->10.0.0.2:2/tcp,deny,2"),
];

fn packed(text: &str) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    packed.finish().unwrap()
}

#[test]
fn every_table_is_built_of_a_packed_list_and_goes_through_a_pipe() {
    let dir = Dir::new();
    for (noun, with, list, question, answer) in TABLES {
        let text = format!("\u{feff}# by hand\r\n{}", list.replace('\n', ",,\r\n"));
        let path = dir.file("list.gz", packed(&text));
        let built = output(fibula(noun, &[&["build", &path, "-o", "-"], with].concat()), "");
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success() && said.starts_with("-: "), "{noun}: {said}");
        assert!(built.stdout[..6].eq_ignore_ascii_case(b"fibula"), "{noun}: the table alone is on standard output");

        let mut lookup = fibula(noun, &["lookup", "-", question, "-j"]);
        let mut child = lookup.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&built.stdout).unwrap();
        assert!(child.wait_with_output().unwrap().status.success(), "{noun}");

        let file = dir.file("table", &built.stdout);
        let got = ok(fibula(noun, &["lookup", &file]), &format!("# a question\r\n{question}\r\n\r\n"));
        assert_eq!(got, format!("{answer}\n"), "{noun}");
        // Both the table and the questions cannot be on standard input.
        let (code, error) = fails(fibula(noun, &["lookup", "-"]), "");
        assert!(code == 2 && error.contains("give them as arguments"), "{noun}: {error}");
    }
}

#[test]
fn file_of_another_noun_is_named_with_the_command_for_it() {
    let dir = Dir::new();
    for (noun, with, list, ..) in TABLES {
        let list = dir.file("list", list);
        ok(fibula(noun, &[&["build", &list, "-o", &dir.path(noun)], with].concat()), "");
    }
    let kinds = ["a FIB file", "a filter file", "a file of prefixes", "a file of rules"];
    for (noun, ..) in TABLES {
        for ((other, ..), kind) in TABLES.iter().zip(kinds).filter(|((other, ..), _)| *other != noun) {
            let path = dir.path(other);
            for verb in ["lookup", "show"] {
                let (code, error) = fails(fibula(noun, &[verb, &path]), "");
                let expected = format!("{path}: this is {kind}: fibula {other} {verb} {path}");
                assert!(code == 3 && error.contains(&expected), "{noun} {verb}: {error}");
            }
        }
        let store = dir.file("store.db", "SQLite format 3\0");
        let (code, error) = fails(fibula(noun, &["show", &store]), "");
        assert!(code == 3 && error.contains("this is a controller's store"), "{noun}: {error}");
    }
}

#[test]
fn table_is_not_written_to_a_terminal() {
    let dir = Dir::new();
    let list = dir.file("list", TABLES[2].2);
    // `script` gives the command a terminal.
    let command = format!("{} lpm build {list} -o -", env!("CARGO_BIN_EXE_fibula"));
    let Some(script) = netio::testkit::tool_or_skip("script", "bsdutils") else { return };
    let said = Command::new(script).args(["-qec", &command, "/dev/null"]).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(text.contains("standard output is a terminal") && said.status.code() == Some(2), "{text}");
}

#[test]
fn list_of_a_million_names_is_no_list_of_rules_at_its_first_line() {
    // An endless one: it is refused before it is read.
    let mut command = fibula("rules", &["build", "-", "-o", "/dev/null"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut number = 0u64;
    while stdin
        .write_all(format!("02:00:{:02x}:{:02x}:00:01,port:3\n", number >> 8 & 255, number & 255).as_bytes())
        .is_ok()
    {
        number += 1;
    }
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(3) && error.contains("line 1: ") && error.contains("`fibula fib build`"),
        "{error}"
    );
}

#[test]
fn fib_of_a_rate_is_of_the_design_that_is_advised() {
    let dir = Dir::new();
    let list: String = (0..5000).map(|i| format!("0200.0000.{i:04x},port:{}\n", i % 7)).collect();
    let (list, fib) = (dir.file("list", list), dir.path("fib"));
    for fp in ["0.1", "0.01", "0.0001", "0"] {
        let demand = ["advise", "--gateway", "-j", "-n", "5000", "--actions", "7", "--fp", fp];
        let advice: serde_json::Value = serde_json::from_str(&ok(fibula("fib", &demand), "")).unwrap();
        let built: serde_json::Value =
            serde_json::from_str(&ok(fibula("fib", &["build", &list, "-o", &fib, "--fp", fp, "-j"]), "")).unwrap();
        let of = |text: &serde_json::Value| text.as_str().unwrap().replace("checksum(", "").replace(')', "");
        assert!(of(&built["design"]).contains(&of(&advice["design"])), "{fp}: {built} {advice}");
    }
    let said = ok(fibula("fib", &["build", &list, "-o", &fib]), "");
    assert!(said.contains(": concise, 5000 names"), "{said}");
}
