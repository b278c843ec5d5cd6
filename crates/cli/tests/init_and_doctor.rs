//! Configurations that `fibula init` writes, and what `fibula doctor` says of them, as users see both.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn fibula(arguments: &[&str]) -> Output {
    // There is nobody to ask.
    Command::new(env!("CARGO_BIN_EXE_fibula")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// What doctor says of a configuration: its exit code, and its findings.
fn doctor(path: &Path) -> (i32, Vec<Value>) {
    let output = fibula(&["doctor", "-j", "--config", text(path)]);
    let lines = String::from_utf8(output.stdout.clone()).unwrap();
    (code(&output), lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn finds(findings: &[Value], grade: &str, what: &str, words: &str) -> bool {
    let is_it =
        |row: &Value| row["grade"] == grade && row["what"] == what && row["finding"].as_str().unwrap().contains(words);
    findings.iter().any(is_it)
}

#[test]
fn a_file_that_is_there_is_replaced_by_force_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("controller.toml");
    let made = fibula(&["init", "controller", "--output", text(&path)]);
    assert_eq!(code(&made), 0, "{made:?}");
    let checked = fibula(&["controller", "--check", "--config", text(&path)]);
    assert_eq!(code(&checked), 0, "{checked:?}");
    let arguments = ["init", "controller", "--max-names", "77", "--output", text(&path)];
    let before = std::fs::read_to_string(&path).unwrap();
    let refused = fibula(&arguments);
    assert!(code(&refused) == 5 && String::from_utf8_lossy(&refused.stderr).contains("--force"), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
    assert_eq!(code(&fibula(&[&arguments[..], &["--force"]].concat())), 0);
    assert!(std::fs::read_to_string(&path).unwrap().contains("max_names = 77"));
}

#[test]
fn what_cannot_be_asked_has_to_be_said() {
    for (arguments, word) in [
        (&["init", "switch", "--host", "eth1"][..], "--name"),
        (&["init", "switch", "--name", "s1"], "--host DEVICE"),
        (&["init", "switch", "--name", "../s1", "--host", "eth1"], "no name for a service"),
        (
            &["init", "switch", "--name", "s1", "--host", "eth1", "--controller", "http://10.0.0.1:4600", "-o", "-"],
            "TLS",
        ),
        (&["init", "controller", "--name-kind", "names", "-o", "-"], "names"),
    ] {
        let output = fibula(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(code(&output) == 2 && stderr.contains(word), "{arguments:?}: {stderr}");
    }
    let printed = fibula(&["init", "switch", "--name", "s1", "--host", "eth1", "--trunk", "eth2", "-o", "-"]);
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.contains("id = 2\ndevice = \"eth2\"\nrole = \"trunk\""), "{printed}");
}

#[test]
fn doctor_says_what_is_bad_and_fails_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("controller.toml");
    let store = directory.path().join("rib.sqlite");
    let config = |listen: &str| {
        format!("listen = '{listen}'\nstore = '{}'\nname_kind = 'mac'\nmax_names = 1000\n", store.display())
    };
    // A port that nobody listens at, since no daemon runs.
    std::fs::write(&path, config("127.0.0.1:0")).unwrap();
    let (good, findings) = doctor(&path);
    assert_eq!(good, 0, "{findings:#?}");
    assert!(finds(&findings, "ok", "configuration", "of a controller"));
    assert!(finds(&findings, "warning", "certificate", "fibula pki init"));
    assert!(findings.iter().any(|row| row["what"] == "kernel" && row["of"].is_null()));

    // An address for documentation is nobody's.
    std::fs::write(&path, format!("{}insecure = true\n", config("192.0.2.77:4600"))).unwrap();
    let (bad, findings) = doctor(&path);
    // As documented for every command whose check failed: the command itself worked.
    assert!(bad == 6 && finds(&findings, "bad", "listen", "ip address"), "{findings:#?}");

    let path = directory.path().join("s1.toml");
    let made = fibula(&["init", "switch", "--name", "s1", "--host", "no-such-nic", "--trunk", "lo", "-o", text(&path)]);
    assert!(String::from_utf8_lossy(&made.stdout).contains("there is no interface no-such-nic"), "{made:?}");
    let (bad, findings) = doctor(&path);
    assert_eq!(bad, 6);
    assert!(finds(&findings, "bad", "port 1", "ip link"), "{findings:#?}");
    assert!(finds(&findings, "bad", "port 2", "no Ethernet"), "{findings:#?}");

    std::fs::write(&path, "name = 's1'\nstate_dir = '/tmp/x'\n").unwrap();
    let (bad, findings) = doctor(&path);
    assert!(bad == 6 && finds(&findings, "bad", "configuration", "controller"), "{findings:#?}");
}
