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

/// A FIB file that names a design of the laboratory, as that one writes it.
fn file_of_buffalo(dir: &TempDir) -> String {
    let list = dir.path().join("list.csv");
    fs::write(&list, "02:00:00:00:00:01,port:1\n").unwrap();
    let file = dir.path().join("buffalo.fib");
    let [list, file] = [list, file].map(|path| path.to_str().unwrap().to_owned());
    let built = fibula(dir, &["fib", "build", &list, "--out", &file, "--design", "concise"]);
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let mut bytes = fs::read(&file).unwrap();
    let at = bytes.windows(7).position(|window| window == b"concise").unwrap();
    bytes[at..at + 7].copy_from_slice(b"buffalo");
    let end = bytes.len() - 8;
    let checksum = fib::messages::fingerprint(&bytes[..end]).to_le_bytes();
    bytes[end..].copy_from_slice(&checksum);
    fs::write(&file, bytes).unwrap();
    file
}

fn configuration(dir: &TempDir, designs: &str) -> String {
    let path = dir.path().join("controller.toml");
    let text = format!("listen = '127.0.0.1:4600'\nstore = 'x'\nname_kind = 'mac'\nmax_names = 1000\n{designs}\n");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn commands_that_name_a_design_of_the_laboratory_are_run_by_it_or_say_which_package_has_it() {
    let dir = installed();
    let file = file_of_buffalo(&dir);
    let list = dir.path().join("list.csv");
    let list = list.to_str().unwrap();
    let [gateway, core, bloom] =
        ["gateway_design = 'bfw'", "core_design = 'setsep+checksum'", "[design]\naliens = 'bloom'"];
    let with_design = |arguments: &[&str]| arguments.iter().map(ToString::to_string).collect::<Vec<String>>();
    let commands = [
        (with_design(&["demo", "--design", "bfw"]), ""),
        (with_design(&["-j", "demo", "--gateway-design=ogw"]), ""),
        (with_design(&["fib", "build", list, "--out", "x", "--design", "sorted"]), ""),
        (with_design(&["fib", "build", list, "--out", "x", "--design", "line", "--aliens", "bloom"]), ""),
        (with_design(&["fib", "show", &file]), ""),
        (with_design(&["fib", "lookup", &file, "02:00:00:00:00:01"]), ""),
        (with_design(&["controller", "--check", "--config"]), gateway),
        (with_design(&["controller", "--config"]), core),
        (with_design(&["controller", "--check", "--config"]), bloom),
        (with_design(&["audit", "show", "--config"]), gateway),
    ];
    let run = |(arguments, designs): &(Vec<String>, &str)| {
        let mut arguments = arguments.clone();
        if !designs.is_empty() {
            arguments.push(configuration(&dir, designs));
        }
        let output = fibula(&dir, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
        (output, arguments)
    };
    for command in &commands {
        let (output, arguments) = run(command);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("is in the laboratory: install the package fibula-lab"), "{arguments:?}: {error}");
        assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}");
    }
    put_laboratory(&dir.path().join("bin"), "[]");
    for command in &commands {
        let (output, arguments) = run(command);
        assert_eq!(output.status.code(), Some(6), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(stdout(&output).ends_with(&format!("fibula-lab|{}|", arguments.join("|"))), "{arguments:?}");
    }
    // What the product can do it does itself.
    let own = fibula(&dir, &["fib", "build", list, "--out", dir.path().join("y").to_str().unwrap(), "--design", "cfw"]);
    assert!(own.status.success() && !stdout(&own).contains("fibula-lab"));
    let (output, _) = run(&(with_design(&["controller", "--check", "--config"]), "gateway_design = 'none'"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no FIB design `none`: use concise, line"));
}
