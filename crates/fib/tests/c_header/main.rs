//! `c/include/fibula.h` answers as [`Fib`] does, and refuses what is no FIB file.

#![expect(clippy::disallowed_methods, reason = "a C program reads files; the library does not")]

use fibula_fib::action::{Action, PortId};
use fibula_fib::designs::Design;
use fibula_fib::file::{Fib, Widths};
use fibula_fib::name::{Name, NameKind};
use lookup::hash::{Family, mix64};
use lookup::testkit;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

mod live;

const DESIGNS: [&str; 5] = ["concise", "ofw", "line", "line-fast", "line-small"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compiles a program of one file. Warnings are errors.
fn compile(compiler: &str, source: &str, flags: &[&str], dir: &Path) -> PathBuf {
    let out = dir.join(format!("{}-{}", Path::new(source).file_stem().unwrap().display(), flags.concat().len()));
    let status = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(root().join("c/include"))
        .args(flags)
        .arg(root().join(source))
        .args(["-x", "none", "-o"])
        .arg(&out)
        .status()
        .unwrap_or_else(|error| panic!("{compiler}: {error}; run scripts/setup build"));
    assert!(status.success(), "{compiler} {source}");
    out
}

/// Runs a program; its standard output.
#[track_caller]
fn run(program: &Path, args: &[&str], input: &str) -> String {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut to = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || to.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && error.is_empty(), "{program:?} {args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Different names of a kind.
fn names(kind: NameKind, n: usize, seed: u64) -> Vec<Name> {
    let name = |i: u64| {
        let len = match kind {
            NameKind::Mac => 6,
            NameKind::Ipv4 | NameKind::Teid => 4,
            NameKind::Ipv6 => 16,
            NameKind::FiveTuple => {
                if i.is_multiple_of(2) {
                    13
                } else {
                    37
                }
            }
            NameKind::Fixed(width) => width.into(),
            NameKind::Text => 16 + i % 49,
        };
        // The first bytes tell names apart.
        let mut bytes: Vec<u8> = (i as u32).to_be_bytes().into();
        bytes.extend((0..9).flat_map(|word| mix64(seed ^ i << 8 ^ word).to_le_bytes()));
        bytes.truncate(len as usize);
        match kind {
            NameKind::Text => bytes.iter_mut().for_each(|byte| *byte = b'a' + (*byte & 15)),
            // A unicast address.
            NameKind::Mac => bytes[0] = 2,
            _ => {}
        }
        Name::from_bytes(kind, &bytes)
    };
    (1..).filter_map(|i| name(i).ok()).take(n).collect()
}

fn fib(design: &str, kind: NameKind, family: Family, names: &[Name], n_actions: u16, value_bits: Option<u8>) -> Fib {
    let design = Design::by_name(design).unwrap();
    let action = |at: usize| match at % (usize::from(n_actions) + 1) {
        0 => Action::Local,
        port => Action::Port(PortId(port as u16)),
    };
    let entries: Vec<_> = names.iter().enumerate().map(|(at, name)| (name.clone(), action(at))).collect();
    Fib::build_as(design, kind, family, 1, Widths { value_bits, ..Widths::default() }, &entries).unwrap()
}

/// Names as the program reads them, and what it must say of each.
fn questions(fib: &Fib, names: &[Name]) -> (String, String) {
    let hex = |name: &Name| name.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n";
    let answer = |name: &Name| fib.lookup(name).to_string() + "\n";
    (names.iter().map(hex).collect(), names.iter().map(answer).collect())
}

#[test]
fn c_and_cpp_answer_as_rust_does_for_names_and_aliens() {
    let (seed, dir) = (testkit::seed(), tempfile::tempdir().unwrap());
    let lookup = "examples/c/lookup.c";
    let programs = [
        compile("gcc", lookup, &["-std=c11", "-O2"], dir.path()),
        compile("g++", lookup, &["-std=c++17", "-O2", "-x", "c++"], dir.path()),
        compile(
            "gcc",
            lookup,
            &["-std=c11", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"],
            dir.path(),
        ),
    ];
    let burst = compile("gcc", "examples/c/burst.c", &["-std=c11", "-O2"], dir.path());
    let path = dir.path().join("names.fib");
    let kinds = [
        NameKind::Mac,
        NameKind::Ipv4,
        NameKind::Ipv6,
        NameKind::FiveTuple,
        NameKind::Teid,
        NameKind::Fixed(1),
        NameKind::Fixed(9),
        NameKind::Fixed(64),
        NameKind::Text,
    ];
    let mut n_files = 0;
    for (at, kind) in kinds.into_iter().enumerate() {
        // 1 byte has few names.
        let n = if kind == NameKind::Fixed(1) { 1 } else { 6_000 };
        let all = names(kind, n + 2_000.min(n), seed);
        let (inside, _) = all.split_at(n);
        for (which, design) in DESIGNS.into_iter().enumerate() {
            let family = Family::ALL[(at + which) % 4];
            let value_bits = [None, Some(8), Some(11), Some(16)][(at + 2 * which) % 4];
            let n_actions = if value_bits.is_none() { 1 + 300 * (at as u16 % 3) } else { 200 };
            let fib = fib(design, kind, family, inside, n_actions, value_bits);
            std::fs::write(&path, fib.encode()).unwrap();
            let (input, expected) = questions(&fib, &all);
            for program in &programs {
                assert_eq!(run(program, &[path.to_str().unwrap()], &input), expected, "{design} {kind} {family}");
            }
            n_files += 1;
        }
    }
    assert_eq!(n_files, 45);
    // A million, and as many aliens.
    let all = names(NameKind::Mac, 2_000_000, seed);
    let fib = fib("concise", NameKind::Mac, Family::MulAdd, &all[..1_000_000], 30, None);
    std::fs::write(&path, fib.encode()).unwrap();
    let (input, expected) = questions(&fib, &all);
    assert!(run(&programs[0], &[path.to_str().unwrap()], &input) == expected);
    // By bursts, the last of which is short.
    let few = all[..999_990].iter().map(|name| (name, fib.lookup(name)));
    let sum: u64 = few.map(|(_, action)| fib.actions().iter().position(|&one| one == action).unwrap() as u64).sum();
    let input: String = input.split_inclusive('\n').take(999_990).collect();
    let said = run(&burst, &[path.to_str().unwrap()], &input);
    assert!(said.starts_with("999990 names, ") && said.ends_with(&format!(" sum of values {sum}\n")), "{sum}: {said}");
}

/// Each width of cells has a loop of its own, by vectors and without.
#[test]
fn bursts_give_what_lookups_one_by_one_give() {
    let (seed, dir) = (testkit::seed(), tempfile::tempdir().unwrap());
    let source = "crates/fib/tests/c_header/bursts.c";
    let sanitized = ["-std=c11", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"];
    let programs = [
        compile("gcc", source, &["-std=c11", "-O3"], dir.path()),
        compile("g++", source, &["-std=c++17", "-O2", "-x", "c++"], dir.path()),
        compile("gcc", source, &sanitized, dir.path()),
    ];
    // Every name of one byte, so that each name of a burst is in the table; and more, among which none is.
    let all: Vec<Name> = (0..=255).map(|byte| Name::from_bytes(NameKind::Fixed(1), &[byte]).unwrap()).collect();
    let path = dir.path().join("bursts.fib");
    for design in DESIGNS {
        for value_bits in [5, 8, 11, 16] {
            let n_actions = ((1u32 << value_bits) - 2).min(200) as u16;
            for (names, kind, len) in [
                (&all, NameKind::Fixed(1), 1),
                (&names(NameKind::Mac, 6_000, seed), NameKind::Mac, 6),
                (&names(NameKind::FiveTuple, 6_000, seed), NameKind::FiveTuple, 13),
            ] {
                let family = Family::ALL[usize::from(len == 13 && value_bits == 8)];
                let fib = fib(design, kind, family, names, n_actions, Some(value_bits));
                std::fs::write(&path, fib.encode()).unwrap();
                let said = programs
                    .each_ref()
                    .map(|program| run(program, &[path.to_str().unwrap(), &len.to_string(), &seed.to_string()], ""));
                let n_values: u32 = said[0].trim().parse().unwrap();
                assert!(said.iter().all(|other| *other == said[0]), "{design} {value_bits} {len}: {said:?}");
                // ofw drops almost all names that it does not have.
                let least = if len == 1 || design != "ofw" { 50_000 } else { 0 };
                assert!(n_values >= least, "{design} {value_bits} {len}: {n_values}, seed {seed}");
            }
        }
    }
}

#[test]
fn files_that_are_cut_or_made_up_do_no_harm() {
    let (seed, dir) = (testkit::seed(), tempfile::tempdir().unwrap());
    let flags = ["-std=c11", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"];
    let damage = compile("gcc", "crates/fib/tests/c_header/damage.c", &flags, dir.path());
    for design in DESIGNS {
        let names = names(NameKind::Mac, 3_000, seed);
        let path = dir.path().join(design);
        std::fs::write(&path, fib(design, NameKind::Mac, Family::MulAdd, &names, 9, None).encode()).unwrap();
        let said = run(&damage, &[path.to_str().unwrap(), "3000", &seed.to_string()], "");
        let (accepted, rest) = said.trim().split_once(' ').unwrap();
        // Changed contents of cells are accepted: they lead astray, but nowhere else.
        let accepted: u32 = accepted.parse().unwrap();
        assert!((100..2900).contains(&accepted) && rest == "1", "{design}: {said}");
    }
}

#[test]
fn what_cannot_be_read_is_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile("gcc", "examples/c/lookup.c", &["-std=c11"], dir.path());
    let names = names(NameKind::Mac, 100, 1);
    let good = fib("concise", NameKind::Mac, Family::Wy, &names, 3, None).encode();
    let cuckoo = fib("cuckoo", NameKind::Mac, Family::Wy, &names, 3, None).encode();
    let mut flipped = good.clone();
    flipped[100] ^= 4;
    let path = dir.path().join("x.fib");
    for (bytes, input, says) in [
        (&good[..], "02zz\n", "line 1 is not a name of this table"),
        (&good[..], "0200000001\n", "line 1 is not a name of this table"),
        (&good[..good.len() - 1], "", "damaged or cut"),
        (&flipped[..], "", "damaged or cut"),
        (b"hello", "", "does not begin like a FIB file"),
        (&cuckoo[..], "", "not design cuckoo"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let mut child = Command::new(&program).arg(&path).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(3) && error.contains(says), "{says}: {error}");
    }
    let missing = Command::new(&program).arg(dir.path().join("none")).output().unwrap();
    assert!(String::from_utf8_lossy(&missing.stderr).contains("cannot read"));
}
