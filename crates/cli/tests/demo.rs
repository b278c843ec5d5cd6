//! The demo, run as a user runs it: the real binary, real processes, namespaces and promiscuous sockets.
//! Tests that need root count as ignored without it.

mod sound;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use netio::testkit::tool_or_skip;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sound::{assert_sound, number};

/// No demo of these tests takes longer on any machine; one that does hangs.
const PATIENCE: Duration = Duration::from_secs(600);

/// One network at a time: two would compete for the cores of a small machine and lose each other's frames.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_fibula"))
        .arg("demo")
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn wait(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("the demo still runs after {PATIENCE:?}");
        }
        #[expect(clippy::disallowed_methods, reason = "processes can only be polled")]
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a demo to its end. Its output is small enough for the pipes.
fn demo(arguments: &[&str]) -> Output {
    let mut child = start(arguments);
    let status = wait(&mut child);
    let mut output = Output { status, stdout: Vec::new(), stderr: Vec::new() };
    child.stdout.take().unwrap().read_to_end(&mut output.stdout).unwrap();
    child.stderr.take().unwrap().read_to_end(&mut output.stderr).unwrap();
    output
}

fn report(arguments: &[&str]) -> Value {
    let output = demo(arguments);
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {log}\n{}", output.status, String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("not one JSON object ({e}); {log}"))
}

fn of_phase(report: &Value, phase: &str, key: &str) -> u64 {
    number(report["phases"].as_array().unwrap().iter().find(|p| p["phase"] == phase).unwrap(), key)
}

/// Namespaces, processes and files of the demo with this PID.
fn remains(pid: u32) -> Vec<String> {
    let names = |directory: &Path| -> Vec<String> {
        std::fs::read_dir(directory)
            .map(|entries| entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect())
            .unwrap_or_default()
    };
    let state = format!("fibula-demo-{pid}");
    let mut found: Vec<String> =
        names(Path::new("/run/netns")).into_iter().filter(|name| name.starts_with(&format!("fibula-{pid}-"))).collect();
    found.extend(names(&std::env::temp_dir()).into_iter().filter(|name| *name == state));
    found.extend(names(Path::new("/proc")).into_iter().filter_map(|process| {
        let line = std::fs::read(format!("/proc/{process}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(&format!("{state}/")).then_some(line)
    }));
    found
}

/// Reads the demo's progress up to a line with `text`.
fn wait_for_progress(child: &mut Child, text: &str) {
    let stderr = BufReader::new(child.stderr.as_mut().unwrap());
    let mut log = String::new();
    for line in stderr.lines() {
        let line = line.unwrap();
        if line.contains(text) {
            return;
        }
        log.push_str(&line);
        log.push('\n');
    }
    panic!("the demo ended before {text:?}: {log}");
}

fn four_switches_of_their_own_processes_misdeliver_nothing() {
    let _alone = alone();
    let report = report(&["--topology", "ring", "--switches", "4", "--names", "2000", "--seconds", "5", "-j"]);
    assert_sound(&report, "namespaces", 2004);
    assert!(number(&report, "tcp_bytes") > 0 && number(&report, "udp_datagrams_received") > 0, "{report}");
}

fn a_network_in_which_nothing_is_declared_finds_itself_heals_and_follows() {
    if tool_or_skip("dnsmasq", "dnsmasq-base").is_none() || tool_or_skip("udhcpc", "udhcpc").is_none() {
        return;
    }
    let _alone = alone();
    let report = report(&["--undeclared", "--topology", "ring", "--switches", "4", "--seconds", "8", "-j"]);
    assert_eq!(number(&report, "frames_misdelivered"), 0, "{report}");
    assert_eq!((number(&report, "pings_answered"), number(&report, "pings_sent")), (24, 24), "{report}");
    assert_eq!(number(&report, "names"), 4, "{report}");
    for key in [
        "found_switches_ms",
        "found_links_ms",
        "found_hosts_ms",
        "converged_ms",
        "silent_converged_ms",
        "followed_ms",
        "drained_ms",
    ] {
        assert!(report[key].as_f64().is_some_and(|ms| ms > 0.0), "{key} in {report}");
    }
    assert_eq!((&report["moved_host"], &report["moved_to"]), (&"h1".into(), &"s2.201".into()), "{report}");
    let frames = |phase: &str, what: &str| of_phase(&report, phase, what);
    let phases = ["cut", "silent", "move", "drain"];
    let seen: u64 = phases.iter().map(|phase| frames(phase, "seen")).sum();
    assert!(number(&report, "missed_by_sniffers") * 1000 < seen, "frames pass without being judged: {report}");
    for phase in phases {
        assert!(frames(phase, "delivered") > 0 && frames(phase, "sent_to_nobody") > 0, "{phase} in {report}");
    }
    // Until hellos are missed nobody knows, so this shows that the link was cut.
    assert!(frames("silent", "lost") > 0, "{report}");
    // A machine that is loaded loses some; what does not heal loses nearly all.
    for (phase, part) in [("cut", 10), ("silent", 2), ("move", 2), ("drain", 100)] {
        assert!(frames(phase, "lost") * part <= frames(phase, "sent"), "{phase} in {report}");
    }
    for (key, most) in [("outage_ms", 2e3), ("silent_outage_ms", 5e3), ("move_outage_ms", 1e4)] {
        assert!(report[key].as_f64().is_some_and(|ms| ms < most), "{key} in {report}");
    }
}

/// Two spines: every path between leaves has another one of the same cost.
fn flows_over_several_paths_keep_their_order_and_a_drain_loses_nothing() {
    let _alone = alone();
    let report = report(&["--topology", "fabric", "--switches", "6", "--names", "500", "--seconds", "4", "-j"]);
    assert_sound(&report, "namespaces", 504);
    assert!(of_phase(&report, "udp", "delivered") > 0, "{report}");
    assert_eq!(of_phase(&report, "udp", "reordered"), 0, "no path changes meanwhile: {report}");
    assert!(of_phase(&report, "drain", "delivered") > 0 && number(&report, "drain_steps") > 0, "{report}");
    // A machine that is too slow for its frames loses some, and each of them is counted where it is lost.
    let too_slow = number(&report, "missed_by_sniffers")
        + number(&report, "overrun_at_switches")
        + report["drops"]["tx_full"].as_u64().unwrap_or(0);
    assert!(of_phase(&report, "drain", "lost") <= too_slow, "a drain lost frames: {report}");
}

fn a_network_of_af_xdp_ports_is_as_sound() {
    let _alone = alone();
    let report = report(&[
        "--topology",
        "ring",
        "--switches",
        "4",
        "--seconds",
        "4",
        "--names",
        "1000",
        "--driver",
        "af_xdp",
        "--json",
    ]);
    assert_sound(&report, "namespaces", 1004);
    assert_eq!(report["driver"], "af_xdp");
}

fn a_network_of_dpdk_ports_is_as_sound_where_dpdk_is_built_in() {
    let _alone = alone();
    let arguments =
        ["--topology", "ring", "--switches", "4", "--seconds", "4", "--names", "1000", "--driver", "dpdk", "-j"];
    if cfg!(feature = "dpdk") {
        let report = report(&arguments);
        assert_sound(&report, "namespaces", 1004);
        assert_eq!(report["driver"], "dpdk");
    } else {
        let output = demo(&arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("`make dpdk` builds one"), "{error}");
    }
}

fn egress_values_reach_the_same_hosts() {
    let _alone = alone();
    let arguments = ["--topology", "ring", "--switches", "3", "--hosts-per-switch", "2", "--names", "500"];
    let report = report(&[&arguments[..], &["--seconds", "3", "--value-mode", "egress", "-j"]].concat());
    assert_sound(&report, "namespaces", 506);
}

fn networks_of_other_designs_are_as_sound() {
    let _alone = alone();
    for (gateways, core) in [("cfw", "line"), ("cuckoo", "ofw")] {
        let network = ["--topology", "ring", "--switches", "4", "--names", "500", "--seconds", "3", "-j"];
        let report = report(&[&network[..], &["--gateway-design", gateways, "--design", core]].concat());
        assert_sound(&report, "namespaces", 504);
    }
}

fn the_same_network_runs_in_one_process() {
    let _alone = alone();
    let report = report(&["--in-process", "--topology", "abilene", "--names", "5000", "--seconds", "3", "-j"]);
    assert_sound(&report, "in-process", 5011);
    assert_eq!(of_phase(&report, "udp", "lost"), 0, "memory loses nothing while nothing changes: {report}");
    assert_eq!(of_phase(&report, "drain", "lost"), 0, "nor while paths do step by step: {report}");
}

fn ctrl_c_leaves_no_namespace_process_or_file() {
    let _alone = alone();
    let mut child = start(&["--topology", "ring", "--switches", "3", "--names", "100", "--seconds", "100"]);
    wait_for_progress(&mut child, "bulk TCP");
    let pid = child.id();
    assert!(remains(pid).len() > 4, "it runs, so there is something to remove");
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::INT).unwrap();
    assert_eq!(wait(&mut child).code(), Some(130));
    assert_eq!(remains(pid), Vec::<String>::new());
}

fn the_next_demo_removes_what_a_killed_one_left() {
    let _alone = alone();
    let small = ["--topology", "line", "--switches", "2", "--names", "10"];
    let mut child = start(&[&small[..], &["--seconds", "100"]].concat());
    wait_for_progress(&mut child, "bulk TCP");
    let pid = child.id();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(remains(pid).iter().any(|name| name.starts_with("fibula-")), "kill -9 leaves the namespaces");
    assert!(demo(&[&small[..], &["--seconds", "0.5"]].concat()).status.success());
    // Its processes were killed with it, and end when they get CPU time.
    let deadline = Instant::now() + PATIENCE;
    while !remains(pid).is_empty() {
        assert!(Instant::now() < deadline, "still there: {:?}", remains(pid));
        #[expect(clippy::disallowed_methods, reason = "processes can only be polled")]
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn a_malformed_topology_file_is_bad_input() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("topology.toml");
    std::fs::write(&path, "name = \"t\"\nswitches = [\"a\", \"b\"]\nlinks = []\n").unwrap();
    let output = demo(&["--topology", path.to_str().unwrap()]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{error}");
    assert!(error.contains("\"b\" cannot be reached"), "{error}");
}

fn a_wrong_command_line_is_a_usage_error_that_says_what_to_do() {
    for (arguments, hint) in [
        (&["--topology", "/no/such/file"][..], "abilene, line, ring, star, mesh"),
        (&["--topology", "abilene", "--switches", "3"], "--switches"),
        (&["--topology", "star", "--switches", "1"], "--hosts-per-switch"),
        (&["--undeclared", "--names", "5"], "--names"),
    ] {
        let output = demo(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(hint), "{error}");
    }
}

netio::tests! {
    namespaces: [
        four_switches_of_their_own_processes_misdeliver_nothing,
        a_network_in_which_nothing_is_declared_finds_itself_heals_and_follows,
        flows_over_several_paths_keep_their_order_and_a_drain_loses_nothing,
        a_network_of_af_xdp_ports_is_as_sound,
        a_network_of_dpdk_ports_is_as_sound_where_dpdk_is_built_in,
        egress_values_reach_the_same_hosts,
        networks_of_other_designs_are_as_sound,
        ctrl_c_leaves_no_namespace_process_or_file,
        the_next_demo_removes_what_a_killed_one_left,
    ],
    anywhere: [
        the_same_network_runs_in_one_process,
        a_malformed_topology_file_is_bad_input,
        a_wrong_command_line_is_a_usage_error_that_says_what_to_do,
    ]
}
