//! Programs in C and C++ against the library as `make install` leaves it.

use fib::action::{Action, PortId};
use fib::file::Fib;
use fib::name::{Name, NameKind};
use lookup::hash::mix64;
use lookup::testkit::seed;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use tempfile::TempDir;

const DESIGNS: [&str; 5] = ["concise", "ofw", "line", "line-fast", "line-small"];
/// What compiles a program, and its flags.
type Compiler = (&'static str, &'static [&'static str]);
const C: Compiler = ("gcc", &["-std=c11", "-O2"]);
const CPP: Compiler = ("g++", &["-std=c++17", "-O2", "-x", "c++"]);
const SANITIZED: Compiler = ("gcc", &["-std=c11", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"]);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[track_caller]
fn done(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; run scripts/setup build"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{error}", output.status);
    output
}

/// Where `make install` puts the library, its headers and fibula.pc, as DESTDIR=… PREFIX=/usr.
fn installed() -> &'static Path {
    static ROOT: OnceLock<TempDir> = OnceLock::new();
    let dir = ROOT.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a directory");
        // Cargo has built the shared library for this test, beside it.
        let program = std::env::current_exe().expect("a path");
        let mut built = std::ffi::OsString::from("BUILT=");
        built.push(program.parent().expect("a directory"));
        let mut make = Command::new("make");
        let mut destdir = std::ffi::OsString::from("DESTDIR=");
        destdir.push(dir.path());
        make.arg("-C").arg(root()).args(["install", "PREFIX=/usr"]).arg(built).arg(destdir);
        done(&mut make);
        dir
    });
    dir.path()
}

/// What pkg-config says of the installed library.
fn pkg_config(arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command
        .args(arguments)
        .arg("fibula")
        .env("PKG_CONFIG_PATH", installed().join("usr/lib/pkgconfig"))
        .env("PKG_CONFIG_SYSROOT_DIR", installed());
    let output = done(&mut command);
    String::from_utf8(output.stdout).expect("text").split_whitespace().map(str::to_owned).collect()
}

/// Compiles a program as its header says. Warnings are errors.
fn compile((compiler, flags): Compiler, source: &str, dir: &Path) -> PathBuf {
    let program = dir.join(format!("{}-{compiler}{}", source.replace('/', "-"), flags.len()));
    let mut command = Command::new(compiler);
    command
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"])
        .args(flags)
        .arg(root().join(source))
        .args(["-x", "none", "-o"])
        .arg(&program)
        .args(pkg_config(&["--cflags", "--libs"]));
    done(&mut command);
    program
}

/// Runs a program with the installed library; its standard output. It says nothing of errors.
#[track_caller]
fn run(program: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    let output = done(command.args(arguments).env("LD_LIBRARY_PATH", installed().join("usr/lib")));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.is_empty(), "{command:?}: {error}");
    String::from_utf8(output.stdout).expect("text")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

#[test]
fn the_installed_library_has_its_names_and_versions() {
    let lib = installed().join("usr/lib");
    let version = env!("CARGO_PKG_VERSION");
    let major = env!("CARGO_PKG_VERSION_MAJOR");
    assert_eq!(std::fs::read_link(lib.join("libfibula.so")).unwrap(), Path::new(&format!("libfibula.so.{major}")));
    let named = std::fs::read_link(lib.join(format!("libfibula.so.{major}"))).unwrap();
    assert_eq!(named, Path::new(&format!("libfibula.so.{version}")));
    let dynamic = done(Command::new("readelf").arg("-d").arg(lib.join("libfibula.so")));
    let dynamic = String::from_utf8(dynamic.stdout).unwrap();
    assert!(dynamic.contains(&format!("soname: [libfibula.so.{major}]")), "{dynamic}");
    assert_eq!(pkg_config(&["--modversion"]), [version]);
    let text = std::fs::read_to_string(lib.join("pkgconfig/fibula.pc")).unwrap();
    assert!(text.contains("prefix=/usr\n") && !text.contains('@'), "{text}");
    // Nothing but the functions of the header is exported.
    let header = std::fs::read_to_string(root().join("c/include/libfibula.h")).unwrap();
    let symbols = done(Command::new("nm").args(["-D", "--defined-only", "-P"]).arg(lib.join("libfibula.so")));
    let symbols = String::from_utf8(symbols.stdout).unwrap();
    let symbols: Vec<&str> = symbols.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(symbols.len() > 15, "{symbols:?}");
    // It is stripped: names of inner functions take more than the code.
    let sections = done(Command::new("readelf").args(["-S", "--wide"]).arg(lib.join("libfibula.so")));
    let sections = String::from_utf8(sections.stdout).unwrap();
    assert!(
        sections.contains(".dynsym") && !sections.contains(".symtab") && !sections.contains(".debug"),
        "{sections}"
    );
    for symbol in symbols {
        assert!(header.contains(&format!("{symbol}(")), "{symbol} is exported, and not in the header");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for compiler in [C, CPP, SANITIZED] {
        run(&compile(compiler, "crates/capi/tests/c/refusals.c", dir.path()), &[text(dir.path())]);
    }
}

#[test]
fn wrong_handles_cut_exports_and_tables_that_move_or_end_harm_no_reader() {
    let dir = tempfile::tempdir().unwrap();
    let seed = seed().to_string();
    for compiler in [C, CPP, SANITIZED] {
        let program = compile(compiler, "crates/capi/tests/c/hostile.c", dir.path());
        for design in DESIGNS {
            run(&program, &[text(dir.path()), design, &seed]);
        }
    }
}

#[test]
fn a_table_in_memory_of_the_program_is_read_by_another_process_while_it_changes() {
    let dir = tempfile::tempdir().unwrap();
    let seed = seed().to_string();
    for compiler in [C, CPP, SANITIZED] {
        let program = compile(compiler, "crates/capi/tests/c/place.c", dir.path());
        for design in DESIGNS {
            run(&program, &[design, &seed]);
        }
    }
}

#[test]
fn a_million_names_and_as_many_aliens_have_the_values_that_rust_gives() {
    let dir = tempfile::tempdir().unwrap();
    let seed = seed();
    let [plain, sanitized] =
        [C, SANITIZED].map(|compiler| compile(compiler, "crates/capi/tests/c/agree.c", dir.path()));
    for design in DESIGNS {
        let n = if ["concise", "line"].contains(&design) { 1_000_000 } else { 100_000 };
        agree(&plain, design, n, seed, dir.path());
        agree(&sanitized, design, 5_000, seed, dir.path());
    }
}

fn agree(program: &Path, design: &str, n: u64, seed: u64, dir: &Path) {
    let out = dir.join(design);
    run(program, &[design, &n.to_string(), &seed.to_string(), text(&out)]);
    let fib = Fib::decode(&std::fs::read(out.with_extension("fib")).unwrap()).unwrap();
    let values = std::fs::read(out.with_extension("values")).unwrap();
    let values: Vec<u32> = values.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    assert_eq!((values.len() as u64, fib.design().name, fib.kind()), (2 * n, design, NameKind::Fixed(8)));
    let name = |i: u64| Name::from_bytes(NameKind::Fixed(8), &mix64(seed.wrapping_add(i)).to_le_bytes()).unwrap();
    let names: Vec<Name> = (0..2 * n).map(name).collect();
    let names: Vec<&Name> = names.iter().collect();
    let action = |value: u32| if value == 0 { Action::Drop } else { Action::Port(PortId(value as u16)) };
    let mut n_aliens_with_action = 0;
    fib.lookup_batch(&names, |at, got| {
        assert_eq!(got, action(values[at]), "{design}: name {at} of seed {seed}");
        n_aliens_with_action += u64::from(at as u64 >= n && values[at] != 0);
    });
    // What was set, in the order of the program.
    let mut n_names = n;
    for i in 0..n {
        let removed = i % 19 == 3;
        let expected = match i {
            _ if removed && i % 2 == 1 => 7,
            _ if removed => {
                n_names -= 1;
                continue;
            }
            _ if i % 17 == 0 => i * 5 % 4096,
            _ => i % 4096,
        };
        assert_eq!(u64::from(values[i as usize]), expected, "{design}: name {i} of seed {seed}");
    }
    assert_eq!(fib.n_names(), n_names);
    // ofw drops most aliens; the others answer for them.
    let most = if design == "ofw" { n / 50 } else { n };
    let least = if design == "ofw" { 0 } else { n / 2 };
    assert!((least..=most).contains(&n_aliens_with_action), "{design}: {n_aliens_with_action} of {n}, seed {seed}");
}

#[test]
fn followers_have_what_their_table_has() {
    let dir = tempfile::tempdir().unwrap();
    let seed = seed().to_string();
    for compiler in [C, SANITIZED] {
        let program = compile(compiler, "crates/capi/tests/c/follow.c", dir.path());
        for design in DESIGNS {
            run(&program, &[design, &seed]);
        }
    }
}

#[test]
fn writers_take_turns_and_readers_that_sleep_or_end_keep_no_change_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let seed = seed().to_string();
    for compiler in [C, SANITIZED] {
        let program = compile(compiler, "crates/capi/tests/c/threads.c", dir.path());
        for design in ["concise", "line"] {
            run(&program, &[design, &seed]);
        }
    }
}

#[test]
fn two_threads_and_another_program_read_while_a_table_changes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table");
    for compiler in [C, CPP, SANITIZED] {
        let said = run(&compile(compiler, "examples/c/control.c", dir.path()), &[text(&path)]);
        assert_eq!(said, "9999 names, 0 wrong values, 10000 names by fibula.h\n");
    }
    // The table stays when the program has ended.
    let lookup = root().join("examples/c/lookup.c");
    let program = dir.path().join("lookup");
    done(Command::new("gcc").args(["-O2", "-I"]).arg(root().join("c/include")).arg(lookup).arg("-o").arg(&program));
    let mut command = Command::new("sh");
    command.args(["-c", "echo 020000000007 | $0 $1"]).arg(&program).arg(&path);
    assert_eq!(String::from_utf8(done(&mut command).stdout).unwrap(), "port:1\n");
}

#[test]
fn a_program_with_the_static_library_runs_without_the_shared_one() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("static");
    let mut flags = pkg_config(&["--cflags", "--libs", "--static"]);
    for flag in &mut flags {
        if flag == "-lfibula" {
            *flag = "-l:libfibula.a".to_owned();
        }
    }
    let mut command = Command::new("gcc");
    done(
        command
            .args(["-Wall", "-Werror"])
            .arg(root().join("crates/capi/tests/c/refusals.c"))
            .arg("-o")
            .arg(&program)
            .args(flags),
    );
    done(Command::new(&program).arg(dir.path()));
}

/// A frame to `destination` in a pcap file, with a number.
fn frame(destination: u64, number: u32) -> Vec<u8> {
    let mut bytes = destination.to_be_bytes()[2..].to_vec();
    bytes.extend_from_slice(&[2, 0, 0, 0, 0, 99, 0x88, 0xb5]);
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.resize(60, 0);
    let mut frame = Vec::new();
    for word in [number, 0, bytes.len() as u32, bytes.len() as u32] {
        frame.extend_from_slice(&word.to_le_bytes());
    }
    frame.extend_from_slice(&bytes);
    frame
}

#[test]
fn the_forwarder_sends_each_frame_by_the_port_of_its_destination() {
    const N_NAMES: u64 = 500;
    const N_FRAMES: u32 = 5_000;
    let dir = tempfile::tempdir().unwrap();
    let seed = seed();
    let name = |i: u64| 0x0200_0000_0000 | mix64(seed ^ i) >> 24;
    let port = |i: u64| 1 + i % 7;
    let mut list = String::from("name,action\n# hosts\n");
    for i in 0..N_NAMES {
        let octets = name(i).to_be_bytes();
        let mac = octets[2..].iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(":");
        list += &format!("{mac},port:{}\n", port(i));
    }
    let mut header = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    for word in [0x0004_0002_u32, 0, 0, 65_535, 1] {
        header.extend_from_slice(&word.to_le_bytes());
    }
    let mut input = header.clone();
    let mut expected = vec![header.clone(); 8];
    for number in 0..N_FRAMES {
        let to = mix64(seed.rotate_left(17) ^ u64::from(number)) % N_NAMES;
        let frame = frame(name(to), number);
        expected[port(to) as usize].extend_from_slice(&frame);
        input.extend_from_slice(&frame);
    }
    let (csv, pcap, out) = (dir.path().join("names.csv"), dir.path().join("in.pcap"), dir.path().join("out"));
    std::fs::write(&csv, list).unwrap();
    std::fs::write(&pcap, &input).unwrap();
    for compiler in [C, CPP, SANITIZED] {
        let program = compile(compiler, "examples/c/l2fwd.c", dir.path());
        let said = run(&program, &[text(&csv), text(&pcap), text(&out)]);
        assert_eq!(said, format!("{N_FRAMES} frames sent, 0 dropped\n"), "seed {seed}");
        for (port, expected) in expected.iter().enumerate().skip(1) {
            let path = format!("{}{port}.pcap", out.display());
            assert!(std::fs::read(&path).unwrap() == *expected, "port {port}, seed {seed}");
            std::fs::remove_file(&path).unwrap();
        }
        // Frames to names that are not in the list are dropped, most of them.
        let mut aliens = header.clone();
        (0..N_FRAMES).for_each(|number| aliens.extend(frame(name(N_NAMES + u64::from(number)), number)));
        let path = dir.path().join("aliens.pcap");
        std::fs::write(&path, aliens).unwrap();
        let said = run(&program, &[text(&csv), text(&path), text(&out)]);
        let dropped: u32 = said.split_whitespace().nth(3).and_then(|n| n.parse().ok()).expect("a number");
        assert!(dropped > N_FRAMES - N_FRAMES / 50, "{said}, seed {seed}");
    }
}
