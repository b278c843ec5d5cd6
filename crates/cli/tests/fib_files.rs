//! `fibula fib` as a user runs it: from a list to a file and back, and its answers to wrong input.

mod offline;

use offline::{Dir, fibula};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

fn ok(arguments: &[&str], stdin: &str) -> String {
    offline::ok(fibula("fib", arguments), stdin)
}

fn fails(arguments: &[&str]) -> (i32, String) {
    offline::fails(fibula("fib", arguments), "")
}

#[test]
fn names_of_every_kind_go_to_a_file_and_back() {
    let dir = Dir::new();
    let fib = dir.path("kind.fib");
    for (kind, names) in [
        ("mac", ["02:00:00:00:00:01", "02:00:00:00:00:02"]),
        ("ipv4", ["10.0.0.1", "10.0.0.2"]),
        ("ipv6", ["fd00::1", "fd00::2"]),
        ("5-tuple", ["10.0.0.1:80->10.0.0.2:443/tcp", "[fd00::1]:80->[fd00::2]:443/udp"]),
        ("teid", ["0x0000002a", "0x0000002b"]),
        ("fixed:3", ["0x00ff01", "0x00ff02"]),
        ("text", ["/srv/video/intro.mp4", "a, b"]),
    ] {
        let list = dir.file("list.csv", format!("name,action\n\"{}\",port:7\n\"{}\",drop\n", names[0], names[1]));
        ok(&["build", &list, "--kind", kind, "--out", &fib], "");
        let answers = ok(&["lookup", &fib, "-j", names[0], names[1]], "");
        let actions: Vec<serde_json::Value> = answers.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
        assert_eq!((&actions[0]["action"], &actions[1]["action"]), (&"port:7".into(), &"drop".into()), "{kind}");
        let shown: serde_json::Value = serde_json::from_str(&ok(&["show", "-j", &fib], "")).unwrap();
        assert_eq!((&shown["kind"], &shown["names"]), (&kind.into(), &2.into()));
    }
}

#[test]
fn plain_list_from_standard_input_gets_one_action() {
    let dir = Dir::new();
    let fib = dir.path("plain.fib");
    ok(&["build", "-", "--out", &fib, "--action", "3"], "02:00:00:00:00:01\n\n02:00:00:00:00:02\n");
    assert_eq!(ok(&["lookup", &fib], "02:00:00:00:00:02\n"), "02:00:00:00:00:02,port:3\n");
}

#[test]
fn wrong_lines_are_named_and_the_old_file_stays() {
    let dir = Dir::new();
    let good = dir.file("good.csv", "02:00:00:00:00:01,1\n");
    let fib = dir.path("kept.fib");
    ok(&["build", &good, "--out", &fib], "");
    let before = fs::read(&fib).unwrap();
    for (list, line) in [
        ("02:00:00:00:00:01,1\nbogus,1\n", "line 2"),
        ("02:00:00:00:00:01,1\n\n02:00:00:00:00:01,2\n", "line 3"),
        ("02:00:00:00:00:01,1,2\n", "line 1"),
        ("02:00:00:00:00:01,nowhere\n", "line 1"),
    ] {
        let list = dir.file("bad.csv", list);
        let (code, stderr) = fails(&["build", &list, "--out", &fib]);
        assert!(code == 3 && stderr.contains(line), "{code}: {stderr}");
    }
    assert_eq!(fs::read(&fib).unwrap(), before);
    assert_eq!(dir.count(), 3, "nothing is left beside good.csv, bad.csv and the FIB");
}

#[test]
fn damaged_missing_and_foreign_files_have_their_exit_codes() {
    let dir = Dir::new();
    let list = dir.file("list.csv", "02:00:00:00:00:01,1\n02:00:00:00:00:02,2\n");
    let fib = dir.path("whole.fib");
    ok(&["build", &list, "--out", &fib], "");
    let whole = fs::read(&fib).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for content in [&whole[..whole.len() - 1], &whole[..20], &flipped, b"", b"something else"] {
        let damaged = dir.file("damaged.fib", content);
        let (code, stderr) = fails(&["show", &damaged]);
        assert!(code == 3 && stderr.contains("damaged.fib"), "{code}: {stderr}");
    }
    assert_eq!(fails(&["show", &dir.path("missing.fib")]).0, 4);
    assert_eq!(fails(&["build", &dir.path("missing.csv"), "--out", &fib]).0, 4);
    assert_eq!(fails(&["lookup", &fib, "no mac"]).0, 3);
    assert_eq!(fails(&["build", &list, "--out", &fib, "--kind", "colour"]).0, 2);
}

#[test]
fn list_is_not_overwritten_by_its_own_fib_and_a_device_stays_one() {
    let dir = Dir::new();
    let list = dir.file("list.csv", "02:00:00:00:00:01,1\n");
    let link = dir.path("link");
    std::os::unix::fs::symlink(&list, &link).unwrap();
    for out in [&list, &link] {
        let (code, stderr) = fails(&["build", &list, "--out", out]);
        assert!(code == 2 && stderr.contains("the list itself"), "{code}: {stderr}");
    }
    let fib = dir.file("old.fib", "old");
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&fib, &link).unwrap();
    ok(&["build", &list, "--out", &link], "");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink() && ok(&["show", &fib], "").contains("concise"));
    // Instead of /dev/null, which root must not lose.
    let null = dir.path("null");
    std::os::unix::fs::symlink("/dev/null", &null).unwrap();
    ok(&["build", &list, "--out", &null], "");
    assert!(fs::symlink_metadata(&null).unwrap().is_symlink());
    assert_eq!(dir.count(), 4, "nothing is left beside them");
}

#[test]
fn a_file_that_is_replaced_keeps_its_permissions_and_a_link_that_leads_nowhere_gets_a_file() {
    let dir = Dir::new();
    let list = dir.file("list.csv", "02:00:00:00:00:01,1\n");
    let (link, fib) = (dir.path("link"), dir.path("later.fib"));
    std::os::unix::fs::symlink("later.fib", &link).unwrap();
    let mode = || fs::metadata(&fib).unwrap().permissions().mode() & 0o777;
    for expected in [0o600, 0o640] {
        ok(&["build", &list, "--out", &link], "");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink() && !fs::symlink_metadata(&fib).unwrap().is_symlink());
        assert_eq!(mode(), expected);
        fs::set_permissions(&fib, fs::Permissions::from_mode(0o640)).unwrap();
    }
    assert_eq!(dir.count(), 3, "nothing is left beside them");

    // Our own output goes on where it is, if it is a file as well.
    let log = dir.file("log", "before\n");
    let inode = fs::metadata(&log).unwrap().ino();
    let output = fs::File::options().append(true).open(&log).unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_fibula"))
        .args(["fib", "build", &list, "--out", "/dev/stdout"])
        .stdout(output)
        .status()
        .unwrap();
    assert!(status.success());
    let (said, built) = (fs::read(&log).unwrap(), fs::read(&fib).unwrap());
    assert!(said.starts_with(b"before\n") && said[7..].starts_with(&built[..8]), "{said:?}");
    assert_eq!(fs::metadata(&log).unwrap().ino(), inode);
}

#[test]
fn input_that_is_no_text_is_refused_with_the_reason() {
    let dir = Dir::new();
    let fib = dir.path("none.fib");
    for (list, reason) in [
        (&b"\x1f\x8b\x08\x00rest"[..], "line 1: the packed file ends too early"),
        (b"\xff\xfe0\x002\x00", "UTF-16"),
        (b"02:00:00:00:00:01,1\n\xff,2\n", "line 2: this is not UTF-8 text"),
    ] {
        let list = dir.file("list.csv", list);
        let (code, stderr) = fails(&["build", &list, "--out", &fib]);
        assert!(code == 3 && stderr.contains(reason), "{code}: {stderr}");
    }
    for input in ["/dev/zero", "/"] {
        assert_eq!(fails(&["build", input, "--out", &fib]).0, 3);
    }
    assert_eq!(fails(&["show", "/"]).0, 3);
    let escapes = dir.file("list.csv", "\x1b[31m,1\n");
    assert!(!fails(&["build", &escapes, "--out", &fib]).1.contains('\x1b'));
}

#[test]
fn wrong_command_lines_are_json_where_json_is_asked_for() {
    for arguments in [&["-j", "frob"][..], &["show", "--json"], &["show", "x", "-vj", "--frob"]] {
        let (code, stderr) = fails(arguments);
        let error: serde_json::Value = serde_json::from_str(&stderr).unwrap();
        assert_eq!((code, &error["exit"]), (2, &2.into()), "{stderr}");
    }
    let (code, stderr) = fails(&["frob"]);
    assert!(code == 2 && stderr.starts_with("error: "), "{stderr}");
}

#[test]
fn completions_may_be_cut_short_by_their_reader() {
    for shell in ["bash", "zsh", "fish"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(env!("CARGO_BIN_EXE_fibula")).args(["completions", shell]).stdout(writer).output();
        let output = output.unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn closed_sets_are_completed_and_no_files_where_they_belong() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a-file"), "").unwrap();
    let script = dir.path().join("fibula.bash");
    let written = Command::new(env!("CARGO_BIN_EXE_fibula")).args(["completions", "bash"]).output().unwrap();
    std::fs::write(&script, written.stdout).unwrap();
    let completed = |words: &[&str]| -> Vec<String> {
        let run = "source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); \
                   _fibula \"$1\" \"\" \"${COMP_WORDS[COMP_CWORD-1]}\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
        let mut bash = Command::new("bash");
        bash.args(["-c", run, "bash"]).arg(&script).arg("fibula").args(words).arg("").current_dir(dir.path());
        String::from_utf8(bash.output().unwrap().stdout).unwrap().lines().map(str::to_owned).collect()
    };
    assert_eq!(completed(&["monitor", "--kind"]), ["link", "switch", "host", "names", "controller"]);
    assert_eq!(completed(&["pki", "issue", "operator", "--role"]), ["reader", "writer", "admin"]);
    let designs = completed(&["fib", "build", "--design"]);
    assert!(designs.contains(&"concise".to_owned()) && !designs.contains(&"a-file".to_owned()), "{designs:?}");
    let devices = completed(&["init", "switch", "--host"]);
    assert!(!devices.contains(&"a-file".to_owned()), "{devices:?}");
    // Where a file is asked for, there are files.
    assert!(completed(&["fib", "build", "--out"]).contains(&"a-file".to_owned()));
}
