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
        ("deny any\npermit to 10.0.0.0/40\n", "line 2: a prefix of 40 bits: IPv4 has lengths from 0 to 32"),
        // Slips of the pen, and what is no list of rules: none of it is a rule that matches everything.
        (
            "permt tcp\n",
            "line 1: `permt` is not an action of this list: write permit or deny; for other actions, list all of them with --actions",
        ),
        ("permit,tcp,10.0.0.0/8\n", "line 1: `permit,tcp,10.0.0.0/8` has commas"),
        ("# a\n02:00:00:00:00:01,port:3\n", "line 2: `02:00:00:00:00:01,port:3` has commas: a rule is words"),
        ("permit\n", "line 1: `permit` does not say for what: write `permit any`"),
        ("\u{200b}deny any\n", "line 1: `"),
        ("permit icmp from 2001:db8::/32\n", "line 1: `icmp` is of IPv4"),
        ("permit icmpv6 from 10.0.0.0/8\n", "line 1: `icmpv6` is of IPv6"),
        ("deny port 80\n", "line 1: write `port` behind `from` or `to`"),
        ("deny any priority 1\n\npermit any\n", "line 3: the rule has no priority and others have one"),
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

#[test]
fn a_mark_of_an_editor_is_no_rule_and_other_actions_are_named() {
    let dir = Dir::new();
    let text = format!("\u{feff}{}", LIST.replace('\n', "\r\n"));
    let built = ok(&dir, &["build", "-", "-o", "web.rules"], &text);
    assert!(built.starts_with("web.rules: 4 rules in "), "{built}");
    let answer =
        ok(&dir, &["lookup", "web.rules", "-j", "[2001:db9::1]:1->[::2]:2/tcp", "10.6.1.2:9->192.0.2.1:22/tcp"], "");
    let expected =
        "\"action\":null,\"line\":null}\n{\"flow\":\"10.6.1.2:9->192.0.2.1:22/tcp\",\"action\":\"deny\",\"line\":2}\n";
    assert!(answer.ends_with(expected), "{answer}");

    let list = "permit tcp\nmirror-1 udp\n";
    let (code, text) = fails(&dir, &["build", "-", "-o", "rules"], list);
    assert!(code == 3 && text.contains("line 2: `mirror-1` is not an action of this list"), "{text}");
    ok(&dir, &["build", "-", "-o", "rules", "--actions", "permit,mirror-1"], list);
    let answer = ok(&dir, &["lookup", "rules"], "\u{feff}flow\n# mine\n10.0.0.1:1->10.0.0.2:2/udp ; this one\n");
    assert_eq!(answer, "10.0.0.1:1->10.0.0.2:2/udp,mirror-1,2\n");
    let (code, text) = fails(&dir, &["build", "-", "-o", "rules", "--actions", "permit,7"], list);
    assert!(code == 2 && text.contains("`7` is not an action"), "{text}");
}

#[test]
fn icmp_is_that_of_both_versions_of_ip() {
    let dir = Dir::new();
    ok(&dir, &["build", "-", "-o", "icmp"], "permit icmp\ndeny any\n");
    let flows = "10.0.0.1:0->10.0.0.2:0/icmp\n[2001:db8::1]:0->[2001:db8::2]:0/icmpv6\n10.0.0.1:0->10.0.0.2:0/icmpv6\n";
    let answers = ok(&dir, &["lookup", "icmp"], flows);
    let ends: Vec<_> = answers.lines().map(|line| line.rsplit_once(',').unwrap().1).collect();
    assert_eq!(ends, ["1", "1", "2"], "{answers}");
}
