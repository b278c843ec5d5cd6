//! Tests with real interfaces: each in a network namespace of its own, by a runner that reports as ignored what it cannot
//! run.
//!
//! A namespace belongs to the thread that made it, and ends with it, and with it every interface in it: there is nothing to
//! clean up, even after a failure. To make one takes root, or the capability `CAP_SYS_ADMIN`.

pub use crate::namespace::enter as enter_namespace;
use libtest_mimic::{Arguments, Trial};
use std::panic::resume_unwind;
use std::process::ExitCode;

/// Runs `test` in a network namespace of its own, which ends with its thread.
/// # Panics
/// Without the privilege to make one; when the test does.
pub fn in_namespace(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
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

/// Says that a test, or a part of one, cannot run here for want of something.
/// # Panics
/// When `FIBULA_COMPLETE` is set, as by `make test`, which installs what tests need: there, a test that does not run has
/// failed.
pub fn missing(what: &str) {
    assert!(std::env::var_os("FIBULA_COMPLETE").is_none(), "this test needs {what}");
    eprintln!("not run, for want of {what}");
}

/// A test and its name.
pub type Test = (&'static str, fn());

/// Runs tests as the arguments of the process say. Those with namespaces count as ignored where there are none.
pub fn run(with_namespaces: &[Test], anywhere: &[Test]) -> ExitCode {
    let trial = |&(name, test): &Test| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    let cannot = !may_make_namespaces();
    if cannot && !with_namespaces.is_empty() {
        eprintln!("{} tests are ignored: network namespaces need root", with_namespaces.len());
    }
    let ignored = with_namespaces.iter().map(|test| trial(test).with_ignored_flag(cannot));
    let trials = ignored.chain(anywhere.iter().map(trial)).collect();
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
