//! What tests need of the machine: network namespaces, programs, and one way to say what is missing.
//!
//! A test that cannot run is skipped: it says so by [`missing`], or its runner does by [`runs_here`]. Both print a line that
//! begins with `skipped:`, and add it to the file that `FIBULA_SKIPPED` names. `make test` shows that file at the end, and
//! fails unless it is empty.
//!
//! Programs that only tests run are looked up with [`tool`]: `scripts/setup test` unpacks them into `target/tools`.
//!
//! Tests with real interfaces run in a network namespace of their own.
//! A namespace belongs to the thread that made it, and ends with it, and with it every interface in it: there is nothing to
//! clean up, even after a failure. To make one takes root, or the capability `CAP_SYS_ADMIN`.

pub use crate::namespace::enter as enter_namespace;
use libtest_mimic::{Arguments, Trial};
use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs `test` in a network namespace of its own, which ends with its thread.
/// # Panics
/// Without the privilege to make one; when the test does.
pub fn in_namespace(test: impl FnOnce() + Send) {
    let name = running();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            RUNNING.set(Some(name));
            enter_namespace().expect("root can make a network namespace");
            test();
        });
        thread.join().unwrap_or_else(|panic| resume_unwind(panic));
    });
}

/// Whether this process may make network namespaces.
pub fn may_make_namespaces() -> bool {
    std::thread::spawn(enter_namespace).join().is_ok_and(|entered| entered.is_ok())
}

thread_local! {
    /// The test that runs in this thread, where its runner does not name the thread after it.
    static RUNNING: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The test that runs in this thread.
fn running() -> String {
    let name = RUNNING.with_borrow(Clone::clone).or_else(|| std::thread::current().name().map(str::to_owned));
    name.unwrap_or_default()
}

/// Reports that a test did not run: on standard error, and in the file that `FIBULA_SKIPPED` names.
/// # Panics
/// When that file cannot be written: a skipped test must not go unseen.
fn report(test: &str, what: &str) {
    let program = std::env::current_exe().ok();
    let stem = program.as_deref().and_then(Path::file_stem).and_then(OsStr::to_str).unwrap_or_default();
    // Cargo adds a hash to the name of the test file.
    let file = stem.rsplit_once('-').map_or(stem, |(file, _)| file);
    let line = format!("skipped: {file}::{test}: needs {what}\n");
    eprint!("{line}");
    if let Some(path) = std::env::var_os("FIBULA_SKIPPED") {
        let list = File::options().create(true).append(true).open(&path);
        list.and_then(|mut list| list.write_all(line.as_bytes())).expect("the list of skipped tests can be written");
    }
}

/// Reports that this test, or a part of it, is skipped because the machine lacks something.
pub fn missing(what: &str) {
    report(&running(), what);
}

/// A program that tests run: in `PATH`, or else in `target/tools`, where `scripts/setup` unpacks what only tests need.
pub fn tool(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&path()).map(|folder| folder.join(name)).find(|program| program.is_file())
}

/// A program that this test needs, as [`tool`] finds it. Without it the test is reported as [`missing`] its package.
pub fn tool_or_skip(name: &str, package: &str) -> Option<PathBuf> {
    let found = tool(name);
    if found.is_none() {
        missing(&format!("{name} (package {package}; scripts/setup test)"));
    }
    found
}

/// `PATH` with what [`tool`] finds, programs of administrators included: for programs that start others.
pub fn path() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = tools().map(|tools| tools.join("bin")).into_iter().chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let folders = std::env::split_paths(&path).chain(more);
    std::env::join_paths(folders).expect("PATH and the path of this test have no colon within a name")
}

/// `target/tools`, if there is one: beside the directory of the profile that this test was built in.
pub fn tools() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    program.ancestors().skip(1).take(3).map(|folder| folder.join("tools")).find(|tools| tools.join("bin").is_dir())
}

/// A trial of a test, which [`missing`] then knows by its name.
pub fn trial(name: &str, test: impl FnOnce() + Send + 'static) -> Trial {
    let running = name.to_owned();
    Trial::test(name, move || {
        RUNNING.set(Some(running));
        test();
        Ok(())
    })
}

/// The trial, if its requirement is met. Otherwise it counts as ignored, and is reported as skipped for want of `what`.
pub fn runs_here(trial: Trial, is_there: bool, what: &str) -> Trial {
    let arguments = Arguments::from_args();
    let name = trial.name();
    let is_chosen = match &arguments.filter {
        Some(filter) if arguments.exact => filter == name,
        Some(filter) => name.contains(filter.as_str()),
        None => true,
    };
    if !is_there && is_chosen && !arguments.list {
        report(name, what);
    }
    trial.with_ignored_flag(!is_there)
}

/// What tests in network namespaces need.
pub const NAMESPACES: &str = "root, or CAP_SYS_ADMIN: it runs in network namespaces";

/// A test and its name.
pub type Test = (&'static str, fn());

/// Runs tests as the arguments of the process say. Those with namespaces are skipped where there are none.
pub fn run(with_namespaces: &[Test], anywhere: &[Test]) -> ExitCode {
    let can = with_namespaces.is_empty() || may_make_namespaces();
    let there = with_namespaces.iter().map(|&(name, test)| runs_here(trial(name, test), can, NAMESPACES));
    let trials = there.chain(anywhere.iter().map(|&(name, test)| trial(name, test))).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The main function of a test file: `netio::tests! { namespaces: [a, b], anywhere: [c] }`, with the names of functions.
#[macro_export]
macro_rules! tests {
    (namespaces: [$($(#[$meta:meta])* $with:ident),* $(,)?], anywhere: [$($without:ident),* $(,)?]) => {
        fn main() -> std::process::ExitCode {
            let with: &mut Vec<(&'static str, fn())> = &mut vec![];
            $($(#[$meta])* with.push((stringify!($with), $with));)*
            $crate::testkit::run(with, &[$((stringify!($without), $without)),*])
        }
    };
}
