//! A program with DPDK whose FIB is libfibula's: `examples/c/dpdk_l2fwd.c`. Where there is no libdpdk, its tests are
//! skipped.

use libtest_mimic::Arguments;
use lookup::hash::mix64;
use lookup::testkit::seed;
use netio::testkit::{runs_here, trial};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[track_caller]
fn done(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; run scripts/setup dpdk"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{error}", output.status);
    output
}

/// Compiles the example against the library that cargo has built beside this test. Warnings of ours are errors.
fn compile(dir: &Path) -> PathBuf {
    let built = std::env::current_exe().unwrap().with_file_name("libfibula.so");
    let name = concat!("libfibula.so.", env!("CARGO_PKG_VERSION_MAJOR"));
    std::os::unix::fs::symlink(&built, dir.join(name)).unwrap();
    let flags = String::from_utf8(done(Command::new("pkg-config").args(["--cflags", "libdpdk"])).stdout).unwrap();
    let program = dir.join("dpdk_l2fwd");
    let mut command = Command::new("gcc");
    command.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I"]).arg(root().join("c/include"));
    // Their headers have warnings of their own.
    for flag in flags.split_whitespace() {
        match flag.strip_prefix("-I") {
            Some(directory) => command.args(["-isystem", directory]),
            None => command.arg(flag),
        };
    }
    command.arg(root().join("examples/c/dpdk_l2fwd.c")).arg("-o").arg(&program).arg("-L").arg(dir);
    done(command.arg(format!("-l:{name}")).args(["-lrte_ethdev", "-lrte_mbuf", "-lrte_mempool", "-lrte_eal"]));
    program
}

fn run(program: &Path, devices: &[String], arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    let prefix = format!("--file-prefix=fibula-test-{}", std::process::id());
    command.args(["--no-huge", "-m", "128", "--no-pci", "--no-telemetry", "--no-shconf", &prefix]);
    command.args(devices.iter().map(|device| format!("--vdev={device}"))).arg("--").args(arguments);
    let dir = program.parent().unwrap();
    // EAL leaves a directory where it runs.
    let output = done(command.env("LD_LIBRARY_PATH", dir).env("RUNTIME_DIRECTORY", dir));
    String::from_utf8(output.stdout).unwrap()
}

/// A capture file of these frames, each behind 16 bytes.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut bytes = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1]);
    for frame in frames {
        bytes.extend(words(&[0, 0, frame.len() as u32, frame.len() as u32]));
        bytes.extend(frame);
    }
    bytes
}

fn frames_of(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    let (mut rest, mut frames) = (&bytes[24..], vec![]);
    while !rest.is_empty() {
        let len = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        frames.push(rest[16..16 + len].to_vec());
        rest = &rest[16 + len..];
    }
    frames
}

fn each_frame_leaves_by_the_port_of_its_destination() {
    const N_NAMES: u64 = 500;
    const N_FRAMES: u64 = 5_000;
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path());
    let seed = seed();
    let name = |i: u64| (0x0200_0000_0000_u64 | mix64(seed ^ i) >> 24).to_be_bytes();
    // Port 1 is where they come from, and 4 is not there.
    let port = |i: u64| 1 + i % 4;
    let mut list = String::from("name,action\n");
    for i in 0..N_NAMES {
        let mac = name(i)[2..].iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(":");
        list += &format!("{mac},port:{}\n", port(i));
    }
    let (mut input, mut expected) = (vec![], vec![vec![]; 5]);
    for number in 0..N_FRAMES {
        let to = mix64(seed.rotate_left(17) ^ number) % N_NAMES;
        let mut frame = name(to)[2..].to_vec();
        frame.extend([2, 0, 0, 0, 0, 99, 0x88, 0xb5]);
        frame.extend(number.to_le_bytes());
        frame.resize(60 + number as usize % 100, 0);
        expected[port(to) as usize].push(frame.clone());
        input.push(frame);
    }
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("names.csv"), list).unwrap();
    std::fs::write(path("1-in"), pcap(&input)).unwrap();
    let devices: Vec<String> = (1..=3)
        .map(|port| {
            if port > 1 {
                std::fs::write(path(&format!("{port}-in")), pcap(&[])).unwrap();
            }
            let file = |way| path(&format!("{port}-{way}")).display().to_string();
            format!("net_pcap{port},rx_pcap={},tx_pcap={}", file("in"), file("out"))
        })
        .collect();
    let said = run(&program, &devices, &[path("names.csv").to_str().unwrap()]);
    let n_sent = expected[2].len() + expected[3].len();
    assert_eq!(said, format!("{n_sent} frames sent, {} dropped\n", N_FRAMES as usize - n_sent), "seed {seed}");
    for port in [2, 3] {
        assert!(frames_of(&path(&format!("{port}-out"))) == expected[port], "port {port}, seed {seed}");
    }
    assert_eq!(frames_of(&path("1-out")), [[0u8; 0]; 0], "seed {seed}");
}

fn a_measurement_checks_every_value_and_says_what_it_is_of() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path());
    let devices = ["net_null0", "net_null1"].map(str::to_owned);
    for design in ["concise", "line"] {
        let said = run(&program, &devices, &["measure", "20000", design, "10000"]);
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines.len(), 3, "{said}");
        for (line, what) in lines.iter().zip(["no look-up", "libfibula", "fibula.h"]) {
            assert!(line.starts_with(&format!("{design}, 20000 names, {what}: ")), "{said}");
            let ratio: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
            assert!(ratio > 0.0, "{said}");
        }
    }
}

fn main() -> ExitCode {
    let has_dpdk =
        Command::new("pkg-config").args(["--exists", "libdpdk"]).status().is_ok_and(|status| status.success());
    let tests: [(&str, fn()); 2] = [
        ("each_frame_leaves_by_the_port_of_its_destination", each_frame_leaves_by_the_port_of_its_destination),
        (
            "a_measurement_checks_every_value_and_says_what_it_is_of",
            a_measurement_checks_every_value_and_says_what_it_is_of,
        ),
    ];
    let what = "libdpdk (package libdpdk-dev; scripts/setup test)";
    let trials = tests.into_iter().map(|(name, test)| runs_here(trial(name, test), has_dpdk, what));
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
