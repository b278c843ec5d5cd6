//! `fibula filter` as a user runs it: from a list to a file and back, and its answers to wrong input.

mod offline;

use offline::{Dir, fibula};
use std::fs;

fn ok(arguments: &[&str], stdin: &str) -> String {
    offline::ok(fibula("filter", arguments), stdin)
}

fn fails(arguments: &[&str]) -> (i32, String) {
    offline::fails(fibula("filter", arguments), "")
}

fn json(line: &str) -> serde_json::Value {
    serde_json::from_str(line).unwrap()
}

#[test]
fn names_of_a_list_are_in_and_few_others_whatever_the_layout() {
    let dir = Dir::new();
    let address = |number: u32| format!("10.{}.{}.{}\n", number >> 16, number >> 8 & 255, number & 255);
    let names: String = (0..2000).map(address).collect();
    let others: String = (2000..4000).map(address).collect();
    let list = dir.file("names.txt", format!("# addresses\n{names}"));
    let filter = dir.path("names.filter");
    for layout in ["one-hashing", "double-hashing", "standard", "partitioned", "blocked", "address-hashing"] {
        for more in [&[][..], &["--counters", "4"], &["--hash", "siphash13", "--capacity", "3000"]] {
            let build = ["build", &list, "--kind", "ipv4", "--layout", layout, "--out", &filter, "-j"];
            let built = json(&ok(&[&build, more].concat(), ""));
            assert_eq!((&built["names"], &built["layout"]), (&2000.into(), &layout.into()));
            assert_eq!(json(&ok(&["show", &filter, "-j"], "")), built);
            let inside = ok(&["lookup", &filter], &names);
            assert_eq!(inside.lines().filter(|line| line.ends_with(",yes")).count(), 2000, "{layout}");
            let outside = ok(&["lookup", &filter], &others).lines().filter(|line| line.ends_with(",yes")).count();
            // 1 % of 2000 is 20; sequential addresses that are their own words behave differently.
            assert!(outside < 60 || layout == "address-hashing", "{layout}: {outside}");
        }
    }
    let answers = ok(&["lookup", &filter, "-j", "10.0.0.1", "10.0.7.200"], "");
    assert_eq!(json(answers.lines().next().unwrap())["present"], true);
    let built =
        json(&ok(&["build", &list, "--kind", "ipv4", "--bits", "10000", "-k", "3", "--out", &filter, "-j"], ""));
    assert_eq!((&built["bits"], &built["positions"]), (&10_003.into(), &3.into()));
}

#[test]
fn a_union_has_the_names_of_all_and_what_cannot_be_united_is_told_how_to() {
    let dir = Dir::new();
    let names = |from: u32, to: u32| (from..to).map(|n| format!("10.0.{}.{}\n", n >> 8, n & 255)).collect::<String>();
    let [one, two, both] = ["one", "two", "both"].map(|name| dir.path(name));
    let lists = [dir.file("1.txt", names(0, 1000)), dir.file("2.txt", names(1000, 2000))];
    for more in [&["--layout", "standard"][..], &["--counters", "8", "--hash", "wy"]] {
        let build = ["build", &lists[0], "--kind", "ipv4", "--capacity", "2000", "--out", &one];
        ok(&[&build, more].concat(), "");
        ok(&["build", &lists[1], "--like", &one, "--out", &two], "");
        let union = json(&ok(&["union", &one, &two, "--out", &both, "-j"], ""));
        assert_eq!(json(&ok(&["show", &both, "-j"], "")), union);
        let first = json(&ok(&["show", &one, "-j"], ""));
        assert_eq!((&union["names"], &union["bits"]), (&2000.into(), &first["bits"]));
        assert_eq!((&union["counters"], &union["hash"]), (&first["counters"], &first["hash"]));
        let yes = |names: &str| ok(&["lookup", &both], names).lines().filter(|line| line.ends_with(",yes")).count();
        assert_eq!(yes(&names(0, 2000)), 2000);
        assert!(yes(&names(2000, 4000)) < 60);
    }
    // Different keys, layouts, kinds and counters: the error names the file, the difference, and what to do.
    let mac = dir.file("mac.txt", "02:00:00:00:00:01\n");
    for (list, more, reason) in [
        (&lists[1], &["--kind", "ipv4", "--hash", "wy"][..], "another key"),
        (&lists[1], &["--kind", "ipv4"], "muladd, not wy"),
        (&lists[1], &["--kind", "ipv4", "--layout", "blocked"], "layout blocked, not one-hashing"),
        (&mac, &[], "kind mac, not ipv4"),
    ] {
        ok(&[&["build", list, "--out", &two], more].concat(), "");
        let before = fs::read(&both).unwrap();
        let (code, error) = fails(&["union", &one, &two, "--out", &both]);
        assert_eq!(code, 5, "{error}");
        assert!(error.contains(&two) && error.contains(reason) && error.contains(&format!("--like {one}")), "{error}");
        assert_eq!(fs::read(&both).unwrap(), before);
    }
    let (code, error) = fails(&["build", &lists[1], "--like", &one, "--fp", "0.1", "--out", &two]);
    assert!(code == 2 && error.contains("--fp"), "{error}");
    assert_eq!(fails(&["union", &one, "--out", &both]).0, 2);
}

#[test]
fn wrong_lists_sizes_and_files_are_refused_with_the_reason_and_the_line() {
    let dir = Dir::new();
    let list = dir.file("list.txt", "02:00:00:00:00:01\n02:00:00:00:00:02\n");
    let filter = dir.path("list.filter");
    ok(&["build", &list, "--out", &filter], "");
    let whole = fs::read(&filter).unwrap();
    for (content, reason) in [
        (&b"02:00:00:00:00:01\nbogus\n"[..], "line 2"),
        (b"02:00:00:00:00:01\n\n02:00:00:00:00:01\n", "line 3"),
        (b"\x1f\x8b\x08\x00rest", "line 1: the packed file ends too early"),
    ] {
        let bad = dir.file("bad.txt", content);
        let (code, stderr) = fails(&["build", &bad, "--out", &filter]);
        assert!(code == 3 && stderr.contains(reason) && stderr.contains("bad.txt"), "{code}: {stderr}");
    }
    for (arguments, code) in [
        (&["--fp", "0"][..], 2),
        (&["--fp", "1.5"], 2),
        (&["--bits", "0", "-k", "3"], 2),
        (&["--bits", "1000"], 2),
        (&["--bits", "1000", "-k", "33"], 2),
        (&["--bits", "1000", "-k", "3", "--fp", "0.1"], 2),
        (&["--bits", "99999999999G", "-k", "3"], 2),
        (&["--bits", "512G", "-k", "3"], 5),
        (&["--bits", "16G", "-k", "3", "--counters", "8"], 5),
        (&["--capacity", "8G"], 5),
        (&["--capacity", "17179869183G"], 2),
        (&["--layout", "round"], 2),
        (&["--counters", "5"], 2),
    ] {
        let (got, stderr) = fails(&[&["build", &list, "--out", &filter], arguments].concat());
        assert_eq!(got, code, "{arguments:?}: {stderr}");
    }
    assert_eq!(fails(&["build", &list, "--out", &list]).0, 2);
    assert_eq!(fs::read(&filter).unwrap(), whole, "the old file stays");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for content in [&whole[..whole.len() - 1], &whole[..20], &flipped, b"", b"something else"] {
        let damaged = dir.file("damaged.filter", content);
        for verb in ["show", "lookup"] {
            let (code, stderr) = fails(&[verb, &damaged]);
            assert!(code == 3 && stderr.contains("damaged.filter"), "{code}: {stderr}");
        }
    }
    assert_eq!(fails(&["show", &dir.path("missing.filter")]).0, 4);
    assert_eq!(fails(&["lookup", &filter, "no mac"]).0, 3);
    let text = dir.file("text.txt", "a name that is longer than a word\n");
    let (code, stderr) = fails(&["build", &text, "--kind", "text", "--layout", "address-hashing", "--out", &filter]);
    assert!(code == 2 && stderr.contains("line 1"), "{code}: {stderr}");
}
