//! Commands of the laboratory: `fibula` passes them on to `fibula-lab`, here a script, in its directory or in PATH.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// A directory on the file system of the binary, with a link to it in `bin`.
fn installed() -> TempDir {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for folder in ["bin", "elsewhere"] {
        fs::create_dir(dir.path().join(folder)).unwrap();
    }
    fs::hard_link(env!("CARGO_BIN_EXE_fibula"), dir.path().join("bin/fibula")).unwrap();
    dir
}

/// Puts a laboratory into a folder: a script that prints its arguments and ends with exit code 6.
fn put_laboratory(folder: &Path, describes: &str) {
    let path = folder.join("fibula-lab");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = describe ] && {{ echo '{describes}'; exit 0; }}\nprintf '%s|' \"$0\" \"$@\"\nexit 6\n"
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn fibula(dir: &TempDir, arguments: &[&str]) -> Output {
    let path = format!("{}:/usr/bin:/bin", dir.path().join("elsewhere").display());
    Command::new(dir.path().join("bin/fibula")).args(arguments).env("PATH", path).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn laboratory_gets_the_arguments_as_they_are_and_its_exit_code_is_that_of_fibula() {
    let dir = installed();
    put_laboratory(&dir.path().join("bin"), "[]");
    let program = dir.path().join("bin/fibula-lab").canonicalize().unwrap();
    for arguments in [
        &["bench"][..],
        &["-j", "bench", "lookup", "--n", "1K, 2K", "-vv"],
        &["repro", "-j", "list"],
        &["filter", "hash-test", "--help"],
        &["-v", "filter", "-j", "hash-test"],
        &["help", "bench", "lookup"],
        &["bench", "lookup", "--frob"],
    ] {
        let output = fibula(&dir, arguments);
        assert_eq!(output.status.code(), Some(6), "{arguments:?}");
        assert_eq!(stdout(&output), format!("{}|{}|", program.display(), arguments.join("|")));
    }
    for arguments in [&["filter", "--help"][..], &["help", "filter"], &["help"], &["--help"], &["--", "--help"]] {
        assert!(!stdout(&fibula(&dir, arguments)).contains("fibula-lab"), "{arguments:?}");
    }
}

#[test]
fn laboratory_beside_the_binary_comes_before_that_in_the_path() {
    let dir = installed();
    put_laboratory(&dir.path().join("elsewhere"), "[]");
    assert!(stdout(&fibula(&dir, &["bench"])).contains("elsewhere/fibula-lab|bench|"));
    put_laboratory(&dir.path().join("bin"), "[]");
    assert!(stdout(&fibula(&dir, &["bench"])).contains("bin/fibula-lab|bench|"));
}

#[test]
fn missing_laboratory_is_an_error_that_says_how_to_build_it() {
    let dir = installed();
    let output = fibula(&dir, &["bench", "lookup"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(4) && text.contains("`make build-lab`"), "{text}");
    let output = fibula(&dir, &["repro", "list", "-j"]);
    let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!((output.status.code(), &error["exit"]), (Some(4), &4.into()));
}

#[test]
fn completions_have_the_options_of_the_laboratory_where_there_is_one() {
    let dir = installed();
    let bash = stdout(&fibula(&dir, &["completions", "bash"]));
    for word in ["bench", "repro", "hash-test", "controller"] {
        assert!(bash.contains(word), "{word}");
    }
    assert!(!bash.contains("--contestants"));
    let argument = r#"{"id":"c","long":"contestants","short":null,"help":"Which","takes_value":true,"takes_many":true,
        "is_path":false,"values":[]}"#;
    let described = format!(
        r#"[{{"name":"bench","about":"","commands":[],"arguments":[{argument}]}},
        {{"name":"filter","about":"","arguments":[],"commands":
        [{{"name":"hash-test","about":"","arguments":[],"commands":[]}}]}}]"#
    );
    put_laboratory(&dir.path().join("bin"), &described);
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout(&fibula(&dir, &["completions", shell]));
        assert!(script.contains("contestants") && script.contains("hash-test"), "{shell}:\n{script}");
    }
}

#[test]
fn help_lists_the_commands_by_who_uses_them() {
    let dir = installed();
    let help = stdout(&fibula(&dir, &["--help"]));
    let places = [
        "Usage: fibula",
        "Run:\n  demo",
        "Network:\n  name",
        "Offline tables:\n  fib",
        "Laboratory:\n  bench",
        "Global options:",
    ];
    let places = places.map(|part| help.find(part).unwrap_or_else(|| panic!("{part} is missing in\n{help}")));
    assert!(places.is_sorted(), "{help}");
    assert_eq!(fibula(&dir, &[]).status.code(), Some(2));
}
