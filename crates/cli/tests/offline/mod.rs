//! A command of `fibula` that works on files: its output, its errors, and the files of a test.

#![allow(dead_code, reason = "every test file uses a part of it")]

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// The files of one test.
pub(crate) struct Dir(pub(crate) TempDir);

impl Dir {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Writes a file, and returns its path.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// How many files there are.
    pub(crate) fn count(&self) -> usize {
        fs::read_dir(self.0.path()).unwrap().count()
    }
}

/// `fibula NOUN ARGUMENTS...`
pub(crate) fn fibula(noun: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fibula"));
    command.arg(noun).args(arguments);
    command
}

/// What a command says, however it ends.
pub(crate) fn output(mut command: Command, stdin: &str) -> Output {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that does not read leaves a closed pipe, which does not concern the test.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    child.wait_with_output().unwrap()
}

/// Standard output of a command that succeeds.
pub(crate) fn ok(command: Command, stdin: &str) -> String {
    let shown = format!("{command:?}");
    let output = output(command, stdin);
    assert!(output.status.success(), "{shown}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Exit code and standard error of a command that fails.
pub(crate) fn fails(command: Command, stdin: &str) -> (i32, String) {
    let shown = format!("{command:?}");
    let output = output(command, stdin);
    assert!(!output.status.success(), "{shown}");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}
