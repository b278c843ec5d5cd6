//! What tables show: in the order that people read, no wider than a terminal, and what completions offer of it.

mod support;

use std::process::Command;
use support::{FIBULA, Site, exit_code, mac, stderr, stdout};

#[test]
fn tables_are_sorted_as_people_read_and_at_most_120_columns_wide() {
    let site = Site::new("");
    let _controller = site.start();
    let done = |arguments: &[&str]| {
        let output = site.fibula(arguments);
        assert_eq!(exit_code(&output), 0, "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    };
    for name in ["s10", "s2", "s1", "s3"] {
        done(&["switch", "add", name]);
    }
    // Whichever end comes first.
    for (a, b) in [("s10:1", "s3:9"), ("s2:2", "s1:3"), ("s3:10", "s2:30")] {
        done(&["link", "add", a, b]);
    }
    for (host, port) in [("h10", "s1:100"), ("h9", "s2:100")] {
        done(&["host", "add", host, port]);
    }
    done(&["name", "set", &mac(1), "h9"]);
    let column = |text: &str, n: usize| -> Vec<String> {
        text.lines().skip(1).map(|line| line.split_whitespace().nth(n).unwrap().to_owned()).collect()
    };
    let switches = done(&["switch", "list"]);
    assert_eq!(column(&switches, 0), ["s1", "s2", "s3", "s10"]);
    assert!(switches.lines().nth(1).unwrap().contains("away"), "{switches}");
    let links = done(&["link", "list"]);
    assert_eq!(column(&links, 0), ["s1:3", "s2:30", "s3:9"]);
    assert_eq!(column(&links, 1), ["s2:2", "s3:10", "s10:1"]);
    assert_eq!(column(&done(&["host", "list"]), 0), ["h9", "h10"]);
    assert_eq!(column(&done(&["top", "--once"]), 0), ["s1", "s2", "s3", "s10"]);
    for list in
        [&["switch", "list"][..], &["link", "list"], &["host", "list"], &["top", "--once"], &["switch", "show", "s1"]]
    {
        let text = done(list);
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{list:?}: {text}");
    }
    // JSON has the whole numbers, under the names that scripts know.
    assert!(done(&["-j", "switch", "list"]).contains("\"sent_messages\":"));

    let offered = |arguments: &[&str]| done(arguments).lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(offered(&["live", "switches", "s1"]), ["s1", "s10"]);
    assert_eq!(offered(&["live", "links", "s2:"]), ["s2:2", "s2:30"]);
    assert_eq!(offered(&["live", "hosts"]), ["h9", "h10"]);
    assert_eq!(offered(&["live", "names", "02:00:"]), [mac(1)]);
}

#[test]
fn completions_of_bash_offer_what_the_network_has() {
    let site = Site::new("");
    let _controller = site.start();
    for name in ["s1", "s2"] {
        assert_eq!(exit_code(&site.fibula(&["switch", "add", name])), 0);
    }
    assert_eq!(exit_code(&site.fibula(&["link", "add", "s1:3", "s2:7"])), 0);
    // As bash calls it: it cuts words at colons.
    let script = r#"
source <("$FIBULA" completions bash)
fibula() { "$FIBULA" "$@"; }
offers() {
    COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDS=($2) COMP_CWORD=$3 COMPREPLY=()
    _fibula_live fibula "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
    echo "${COMPREPLY[*]}"
}
offers "fibula switch show s" "fibula switch show s" 3
offers "fibula link drain s1:" "fibula link drain s1 :" 4
"#;
    let mut command = Command::new("bash");
    command.args(["-c", script]).env("FIBULA", FIBULA).env("FIBULA_CONTROLLER", &site.url);
    let output = command.output().unwrap();
    assert_eq!(stdout(&output), "s1 s2\n3\n", "{}", stderr(&output));
}

#[test]
fn help_has_what_all_commands_take_under_a_heading_of_its_own() {
    for arguments in
        [&["switch", "list", "--help"][..], &["name", "add", "--help"], &["top", "--help"], &["pki", "show", "--help"]]
    {
        let output = Command::new(FIBULA).args(arguments).output().unwrap();
        let help = stdout(&output);
        let (own, global) = help.split_once("Global options:").unwrap_or_else(|| panic!("{arguments:?}: {help}"));
        assert!(global.contains("--json") && global.contains("--log-format"), "{arguments:?}: {help}");
        assert!(!own.contains("--json") && !own.contains("--controller"), "{arguments:?}: {help}");
    }
}
