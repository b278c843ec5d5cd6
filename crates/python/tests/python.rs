//! The package as Python sees it: its tests, run with the library that cargo built. `make wheel-test` runs the same ones with
//! a wheel.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[track_caller]
fn done(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; run scripts/setup test"));
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    // unittest is content where it finds no test.
    assert!(!said.contains("Ran 0 tests"), "{said}");
}

/// Copies the files of a package.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).unwrap_or_else(|error| panic!("{}: {error}", from.display())) {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name");
        match path.is_dir() {
            true if name == "__pycache__" => {}
            true => copy(&path, &to.join(name)),
            false => drop(std::fs::copy(&path, to.join(name)).expect("a file")),
        }
    }
}

#[test]
fn the_package_passes_its_tests_in_python() {
    // Cargo has built the library for this test, beside it, and the binaries a directory above.
    let program = std::env::current_exe().expect("a path");
    let beside = program.parent().expect("a directory");
    let target = beside.parent().expect("a directory");
    let fibula = target.join("fibula");
    assert!(fibula.exists(), "the command that the tests compare with is not built: cargo build -p fibula-cli");

    let package = tempfile::tempdir().expect("a directory");
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("python"), package.path());
    let native = beside.join("libfibula_native.so");
    std::fs::copy(&native, package.path().join("fibula/_native.abi3.so"))
        .unwrap_or_else(|error| panic!("{}: {error}", native.display()));

    let environment = target.join("python");
    done(Command::new(root().join("scripts/python-env")).arg(&environment).args(["numpy", "grpcio", "protobuf"]));
    done(
        Command::new(environment.join("bin/python"))
            .args(["-W", "error", "-m", "unittest", "discover", "-s"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"))
            .env("PYTHONPATH", package.path())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("FIBULA", fibula),
    );
}
