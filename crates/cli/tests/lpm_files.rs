//! `fibula lpm` as a user runs it: from a list to a file and back, and its answers to wrong input.

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

fn fibula(dir: &tempfile::TempDir, arguments: &[&str], stdin: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_fibula"))
        .arg("lpm")
        .args(arguments)
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read leaves a closed pipe, which does not concern the test.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    child.wait_with_output().unwrap()
}

fn ok(dir: &tempfile::TempDir, arguments: &[&str], stdin: &str) -> String {
    let output = fibula(dir, arguments, stdin);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn fails(dir: &tempfile::TempDir, arguments: &[&str], stdin: &str) -> (i32, String) {
    let output = fibula(dir, arguments, stdin);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

const ROUTES: &str = "0.0.0.0/0,up\n10.0.0.0/8,eth1\n10.1.0.0/16,eth2\n10.1.2.3/32,eth3\n2001:db8::/32,eth1\n";

#[test]
fn a_list_becomes_a_file_that_answers_by_the_longest_prefix() {
    let dir = tempfile::tempdir().unwrap();
    let built = ok(&dir, &["build", "-", "-o", "routes"], ROUTES);
    assert!(built.starts_with("routes: 4 IPv4 and 1 IPv6 prefixes, 4 next hops"), "{built}");
    let answers = ok(&dir, &["lookup", "routes"], "10.1.2.3\n10.1.2.4\n10.2.0.0\n1.1.1.1\n2001:db8::1\n::1\n");
    assert_eq!(answers, "10.1.2.3,eth3\n10.1.2.4,eth2\n10.2.0.0,eth1\n1.1.1.1,up\n2001:db8::1,eth1\n::1,-\n");
    let one = ok(&dir, &["lookup", "routes", "10.1.2.3", "-j"], "");
    assert_eq!(one, "{\"address\":\"10.1.2.3\",\"next_hop\":\"eth3\"}\n");
    let shown = ok(&dir, &["show", "routes", "-j"], "");
    assert!(shown.starts_with("{\"table\":\"IPv4\",\"prefixes\":4,\"next_hops\":4,\"top_bytes\":4194304,"), "{shown}");
}

#[test]
fn wrong_input_is_refused_with_the_place_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    for (list, says) in [
        ("10.0.0.0/8,a\n10.0.0.1/8,a\n", "line 2: 10.0.0.1/8 has bits set behind its length: write 10.0.0.0/8"),
        ("10.0.0.0/33,a\n", "line 1: a prefix of 33 bits: IPv4 has lengths from 0 to 32"),
        ("10.0.0.0/8\n", "line 1: 10.0.0.0/8 has no next hop"),
    ] {
        let (code, text) = fails(&dir, &["build", "-", "-o", "routes"], list);
        assert_eq!(code, 3);
        assert!(text.contains(says), "{text}");
    }
    assert!(!dir.path().join("routes").exists());
    ok(&dir, &["build", "-", "-o", "routes"], ROUTES);
    let (code, text) = fails(&dir, &["lookup", "routes"], "10.0.0.0\n10.0.0\n");
    assert_eq!((code, text.trim()), (3, "fibula: line 2: `10.0.0` is no IPv4 or IPv6 address"));
    let path = dir.path().join("routes");
    let mut bytes = fs::read(&path).unwrap();
    bytes[100] ^= 1;
    fs::write(&path, bytes).unwrap();
    let (code, text) = fails(&dir, &["show", "routes"], "");
    assert!(code == 3 && text.contains("checksum"), "{text}");
    assert_eq!(fails(&dir, &["show", "nowhere"], "").0, 4);
}
