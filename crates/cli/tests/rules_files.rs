//! `fibula rules` as a user runs it: from a list to a file and back, and its answers to wrong input.

mod offline;

use offline::{Dir, fibula};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

fn rules(dir: &Dir, arguments: &[&str]) -> Command {
    let mut command = fibula("rules", arguments);
    command.current_dir(dir.0.path());
    command
}

fn ok(dir: &Dir, arguments: &[&str], stdin: &str) -> String {
    offline::ok(rules(dir, arguments), stdin)
}

fn fails(dir: &Dir, arguments: &[&str], stdin: &str) -> (i32, String) {
    offline::fails(rules(dir, arguments), stdin)
}

const LIST: &str = "# from the outside\ndeny tcp from 10.6.0.0/16 to any port 22-23\npermit tcp to 192.0.2.0/24 port 443\n\
    permit from 2001:db8::/32\ndeny udp\n";

#[test]
fn a_list_becomes_a_file_that_answers_by_the_first_rule_that_matches() {
    let dir = Dir::new();
    let built = ok(&dir, &["build", "-", "-o", "web.rules"], LIST);
    assert!(built.starts_with("web.rules: 4 rules in "), "{built}");
    let flows = "10.6.1.2:9->192.0.2.1:22/tcp\n10.6.1.2:9->192.0.2.1:443/tcp\n[2001:db8::1]:5->[::1]:53/udp\n\
        [::2]:5->[::1]:53/udp\n1.1.1.1:1->2.2.2.2:2/tcp\n";
    let answers: Vec<String> = ok(&dir, &["lookup", "web.rules"], flows).lines().map(String::from).collect();
    let expected = ["deny,2", "permit,3", "permit,4", "deny,5", "-,-"];
    for (answer, expected) in answers.iter().zip(expected) {
        assert!(answer.ends_with(&format!(",{expected}")), "{answer}, {expected}");
    }
    assert_eq!(answers.len(), expected.len());
    let one = ok(&dir, &["lookup", "web.rules", "1.1.1.1:1->2.2.2.2:2/udp", "-j"], "");
    assert_eq!(one, "{\"flow\":\"1.1.1.1:1->2.2.2.2:2/udp\",\"action\":\"deny\",\"line\":5}\n");
    let shown = ok(&dir, &["show", "web.rules", "-j"], "");
    assert!(shown.starts_with("{\"table\":\"IPv4\",\"rules\":3,"), "{shown}");
}

#[test]
fn wrong_input_is_refused_with_the_place_and_what_to_do() {
    let dir = Dir::new();
    for (list, says) in [
        ("deny\npermit to 10.0.0.0/40\n", "line 2: `10.0.0.0/40` is no prefix: 10.0.0.0 has 32 bits"),
        ("deny port 80\n", "line 1: write `port` behind `from` or `to`"),
        ("deny priority 1\n\npermit\n", "line 3: the rule has no priority and others have one"),
    ] {
        let (code, text) = fails(&dir, &["build", "-", "-o", "rules"], list);
        assert!(code == 3 && text.contains(says), "{text}");
    }
    assert!(!dir.0.path().join("rules").exists());
    ok(&dir, &["build", "-", "-o", "rules"], LIST);
    let (code, text) = fails(&dir, &["lookup", "rules"], "1.1.1.1:1->2.2.2.2:2/udp\n1.1.1.1\n");
    assert!(code == 3 && text.contains("line 2: "), "{text}");
    let path = dir.0.path().join("rules");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "it holds the hash key");
    let mut bytes = fs::read(&path).unwrap();
    bytes[100] ^= 1;
    fs::write(&path, bytes).unwrap();
    let (code, text) = fails(&dir, &["show", "rules"], "");
    assert!(code == 3 && text.contains("damaged: build it again"), "{text}");
    assert_eq!(fails(&dir, &["show", "nowhere"], "").0, 4);
}
