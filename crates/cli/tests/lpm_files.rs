//! `fibula lpm` as a user runs it: from a list to a file and back, and its answers to wrong input.

mod offline;

use offline::{Dir, fibula};
use std::fs;
use std::process::Command;

fn lpm(dir: &Dir, arguments: &[&str]) -> Command {
    let mut command = fibula("lpm", arguments);
    command.current_dir(dir.0.path());
    command
}

fn ok(dir: &Dir, arguments: &[&str], stdin: &str) -> String {
    offline::ok(lpm(dir, arguments), stdin)
}

fn fails(dir: &Dir, arguments: &[&str], stdin: &str) -> (i32, String) {
    offline::fails(lpm(dir, arguments), stdin)
}

const ROUTES: &str = "0.0.0.0/0,up\n10.0.0.0/8,eth1\n10.1.0.0/16,eth2\n10.1.2.3/32,eth3\n2001:db8::/32,eth1\n";

#[test]
fn a_list_becomes_a_file_that_answers_by_the_longest_prefix() {
    let dir = Dir::new();
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
    let dir = Dir::new();
    for (list, says) in [
        ("10.0.0.0/8,a\n10.0.0.1/8,a\n", "line 2: 10.0.0.1/8 has bits set behind its length: write 10.0.0.0/8"),
        ("10.0.0.0/33,a\n", "line 1: a prefix of 33 bits: IPv4 has lengths from 0 to 32"),
        ("10.0.0.0/8\n", "line 1: 10.0.0.0/8 has no next hop"),
    ] {
        let (code, text) = fails(&dir, &["build", "-", "-o", "routes"], list);
        assert_eq!(code, 3);
        assert!(text.contains(says), "{text}");
    }
    assert!(!dir.0.path().join("routes").exists());
    ok(&dir, &["build", "-", "-o", "routes"], ROUTES);
    let (code, text) = fails(&dir, &["lookup", "routes"], "10.0.0.0\n10.0.0\n");
    assert_eq!((code, text.trim()), (3, "fibula: line 2: `10.0.0` is not an IPv4 or IPv6 address"));
    let path = dir.0.path().join("routes");
    let mut bytes = fs::read(&path).unwrap();
    bytes[100] ^= 1;
    fs::write(&path, bytes).unwrap();
    let (code, text) = fails(&dir, &["show", "routes"], "");
    assert!(code == 3 && text.contains("checksum"), "{text}");
    assert_eq!(fails(&dir, &["show", "nowhere"], "").0, 4);
}

#[test]
fn a_table_has_a_next_hop_for_every_origin_as() {
    let dir = Dir::new();
    let list: String = (0..40_000u32)
        .map(|n| format!("10.{}.{}.0/24 AS{n} ; an origin\n", n / 256, n % 256))
        .chain(["; IPv6\n2001:db8::/32\tAS7\n".to_owned()])
        .collect();
    let built = ok(&dir, &["build", "-", "-o", "routes"], &list);
    assert!(built.starts_with("routes: 40000 IPv4 and 1 IPv6 prefixes, 40000 next hops"), "{built}");
    let answers = ok(&dir, &["lookup", "routes"], "10.0.0.1\n10.155.255.7\n10.156.64.0\n2001:db8::1\n");
    assert_eq!(answers, "10.0.0.1,AS0\n10.155.255.7,AS39935\n10.156.64.0,-\n2001:db8::1,AS7\n");
}

#[test]
fn the_tables_of_the_paper_answer_as_the_trie_does() {
    let dir = Dir::new();
    for design in ["bloom", "bloom-pushed"] {
        ok(&dir, &["build", "-", "-o", design, "--design", design], ROUTES);
        let answers = ok(&dir, &["lookup", design], "10.1.2.3\n10.1.2.4\n10.2.0.0\n1.1.1.1\n2001:db8::1\n::1\n");
        assert_eq!(answers, "10.1.2.3,eth3\n10.1.2.4,eth2\n10.2.0.0,eth1\n1.1.1.1,up\n2001:db8::1,eth1\n::1,-\n");
        let shown = ok(&dir, &["show", design, "-j"], "");
        assert!(shown.contains(&format!("\"design\":\"{design}\",\"filter_bytes\":")), "{shown}");
    }
}

#[test]
fn updates_are_replayed_and_what_is_no_dump_is_told() {
    let dir = Dir::new();
    let build = |name: &str, bytes: &[u8]| {
        dir.file(name, bytes);
        offline::output(lpm(&dir, &["build", name, "-o", "table", "--hops", "origin"]), "")
    };
    // One route of a table dump whose prefix has bits set behind its length, in an MRT record without a table of peers.
    let route = [0x40, 1, 1, 0, 0x40, 2, 6, 2, 1, 0, 0, 0xfd, 0xe8, 0x40, 3, 4, 192, 0, 2, 9];
    let body = [&[0, 0, 0, 0, 13, 11, 13, 0, 1, 0, 0, 0, 0, 0, 0, 0, route.len() as u8][..], &route].concat();
    let dump = [&[0, 0, 0, 0, 0, 13, 0, 2, 0, 0, 0, body.len() as u8][..], &body].concat();
    for _ in 0..2 {
        let output = build("dump.mrt", &dump);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.starts_with("table: 1 IPv4 and 0 IPv6 prefixes, 1 next hops"), "{said}");
        // Whatever reads it keeps its own thoughts to itself.
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(ok(&dir, &["lookup", "table"], "11.8.0.1\n11.16.0.0\n"), "11.8.0.1,AS65000\n11.16.0.0,-\n");
    let output = build("cut.mrt", &dump[..dump.len() - 3]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(error, "fibula: cut.mrt: record 1: the file ends in the middle of it; was its transfer cut short?\n");
}
