//! `fibula capture` against a switch between real interfaces: lines, pcapng, what was dropped and why, and how it ends.

mod support;

use fib::action::PortId;
use fib::durable::Tenants;
use fib::name::{Name, NameKind};
use fib::network::{Network, Settings};
use fib::replica::{Limits, MemoryTables, Replica};
use fib::rib::Attachment;
use fib::topology::End;
use lookup::hash::SecretKey;
use netio::backend::af_packet::{AfPacket, Options};
use netio::testkit::{in_namespace, tool_or_skip};
use netio::{Burst, Device, Packet, Pool};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use support::{FIBULA, Process, exit_code, stderr, stdout};
use switch::daemon::saved::SavedImage;

netio::tests! {
    namespaces: [
        frames_are_captured_as_lines_and_as_pcapng_with_why_they_were_dropped,
        a_full_disk_ends_a_capture_and_leaves_a_whole_file,
        the_controller_asks_a_switch_for_frames_and_flows,
        who_reads_a_relayed_capture_slowly_loses_frames_and_holds_up_nobody_else,
    ],
    anywhere: [captures_are_refused_with_what_to_do]
}

/// A controller that does not answer.
const NOBODY: &str = "http://127.0.0.1:1";

const HOST: u16 = 1;
const TRUNK: u16 = 8;

fn mac(i: u8) -> Name {
    Name::from_bytes(NameKind::Mac, &[2, 0, 0, 0, 0, i]).unwrap()
}

/// A frame between two names; `number` tells it from others.
fn frame(from: u8, to: u8, number: u8) -> Vec<u8> {
    let mut frame = [mac(to).as_bytes(), mac(from).as_bytes(), &[0x99, 0x99, number]].concat();
    frame.resize(60, 0);
    frame
}

/// A switch `s1` that serves what it was last told: name 1 is at its port 1, name 2 behind its port 8.
struct Site {
    directory: tempfile::TempDir,
    _switch: Process,
    control: String,
}

impl Site {
    fn new(ports: &str) -> Self {
        Self::at(NOBODY, ports)
    }

    /// As [`Site::new`], with a controller.
    fn at(controller: &str, ports: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let control = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let state = directory.path().join("s1");
        let text = format!(
            "name = 's1'\ncontroller = '{controller}'\nstate_dir = '{}'\ncontrol = '{control}'\n\
             lookup = '127.0.0.1:0'\n[links]\nhello_ms = 0\n{ports}",
            state.display()
        );
        // With a controller it begins with nothing: the image is of another network.
        if controller == NOBODY {
            SavedImage::new(&state).unwrap().write(&image()).unwrap();
        }
        let file = directory.path().join("switch.toml");
        std::fs::write(&file, text).unwrap();
        let switch = Process::spawn(&["switch", "--config", file.to_str().unwrap()]);
        Self { directory, _switch: switch, control }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(FIBULA);
        command.arg("capture").args(arguments).env("FIBULA_CONTROL", &self.control);
        command
    }

    fn capture(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Begins a capture that writes pcapng to standard output, and returns when it has begun.
    fn begin(&self, arguments: &[&str]) -> Running {
        Self::begun(self.command(arguments))
    }

    fn begun(mut command: Command) -> Running {
        let mut child = command.args(["-w", "-"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        // The blocks at the head come when the switch copies frames.
        assert!(!stdout.fill_buf().unwrap().is_empty(), "{:?}", child.wait_with_output());
        Running { child, stdout }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }
}

struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    /// All that it writes, and what it says at the end.
    fn end(mut self) -> (Vec<u8>, Output) {
        let mut bytes = vec![];
        self.stdout.read_to_end(&mut bytes).unwrap();
        (bytes, self.child.wait_with_output().unwrap())
    }
}

fn image() -> Vec<u8> {
    let settings = Settings { kind: NameKind::Mac, max_names: 1000, ..Settings::new(7, SecretKey::from_seed(3)) };
    let mut network = Network::new(settings, 1).unwrap();
    let (s1, _) = network.add_switch("s1", Tenants::All).unwrap();
    let (s2, _) = network.add_switch("s2", Tenants::All).unwrap();
    let end = |node, port| End { node, port: PortId(port) };
    network.add_link(end(s1, TRUNK), end(s2, TRUNK), 1).unwrap();
    network.add_host_port(end(s1, HOST)).unwrap();
    network.add_host_port(end(s2, HOST)).unwrap();
    network.add_name(&mac(1), Attachment::new(s1, PortId(HOST))).unwrap();
    network.add_name(&mac(2), Attachment::new(s2, PortId(HOST))).unwrap();
    let mut replica = Replica::new(Limits::default(), MemoryTables::default());
    for message in network.attach(s1, &replica.report()).unwrap() {
        replica.apply(message).unwrap();
    }
    replica.save()
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", stderr(&output));
}

/// Two cables, and what is at the other ends of the switch's ports.
fn cables() -> (AfPacket, AfPacket) {
    ip("link set lo up");
    for (near, far, mtu) in [("sw-host", "host", 1500), ("sw-trunk", "trunk", 1504)] {
        ip(&format!("link add {near} mtu {mtu} type veth peer name {far} mtu {mtu}"));
        for name in [near, far] {
            if Path::new("/proc/sys/net/ipv6").exists() {
                ip(&format!("link set {name} addrgenmode none"));
            }
            ip(&format!("link set {name} up"));
        }
    }
    let options = Options { ring_frames: 256, ..Options::default() };
    (AfPacket::open("host", &options).unwrap(), AfPacket::open("trunk", &options).unwrap())
}

const PORTS: &str =
    "[[port]]\nid = 1\ndevice = 'sw-host'\nrole = 'host'\n[[port]]\nid = 8\ndevice = 'sw-trunk'\nrole = 'trunk'\n";

fn send(device: &mut AfPacket, frame: &[u8]) {
    let mut burst = Burst::from_iter([Packet::from_frame(frame)]);
    assert_eq!(device.tx_burst(&mut Pool::new(0, 2048), &mut burst).unwrap(), 1);
}

/// What tshark reads, unless it is missing: number of the interface, direction, length, comment.
fn read_by_tshark(file: &str) -> Option<Vec<String>> {
    let fields = ["frame.interface_name", "frame.packet_flags_direction", "frame.len", "frame.comment"];
    let mut command = Command::new(tool_or_skip("tshark", "tshark")?);
    command.args(["-n", "-r", file, "-T", "fields", "-E", "separator=;"]);
    fields.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    Some(stdout(&output).lines().map(str::to_owned).collect())
}

fn frames_are_captured_as_lines_and_as_pcapng_with_why_they_were_dropped() {
    in_namespace(|| {
        let (mut host, mut trunk) = cables();
        let site = Site::new(PORTS);
        let all = site.begin(&["all", "-c", "6", "--snap", "30"]);
        let drops = site.begin(&["sw-host", "--drops", "-c", "2"]);
        let named = site.begin(&["all", "--name", "02:00:00:00:00:01", "--for", "60s", "-c", "5"]);
        // Delivered both ways, an alien, and somebody who is not there.
        send(&mut host, &frame(1, 2, 10));
        let shimmed = |frame: &[u8]| [&frame[..12], &[0x88, 0xb5, 5, 0], &frame[12..]].concat();
        send(&mut trunk, &shimmed(&frame(2, 1, 11)));
        send(&mut host, &frame(1, 99, 12));
        send(&mut host, &frame(7, 2, 13));
        let ends = [all, drops, named].map(Running::end);
        for (_, output) in &ends {
            assert_eq!(exit_code(output), 0, "{}", stderr(output));
        }
        let [(all, said), (drops, _), (named, _)] = ends;
        let alien =
            "dropped: alien (A host sent to a name that no host has. `fibula name list` shows those that exist)";
        assert!(stderr(&said).contains(&format!("6 frames\n1 {alien}\n")), "{}", stderr(&said));
        let path = site.path("all.pcapng");
        std::fs::write(&path, &all).unwrap();
        let contains = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(contains(&all, alien) && contains(&all, "port 8, trunk"));
        assert!(contains(&drops, alien) && contains(&drops, "dropped: source_mac (") && !contains(&drops, "sw-trunk"));
        assert!(contains(&named, alien) && !contains(&named, "source_mac"));
        if let Some(mut lines) = read_by_tshark(&path) {
            // Frames of two ports come in any order.
            lines.sort();
            let source = "dropped: source_mac (A host sent from a MAC address that is not a name at its port. Declare the name there, or let the port learn (`learn = \"accept\"`))";
            let mut expected = vec![
                "sw-host;0x00000001;60;".to_owned(),
                "sw-trunk;0x00000002;64;".to_owned(),
                "sw-trunk;0x00000001;64;".to_owned(),
                "sw-host;0x00000002;60;".to_owned(),
                format!("sw-host;0x00000001;60;{alien}"),
                format!("sw-host;0x00000001;60;{source}"),
            ];
            expected.sort();
            assert_eq!(lines, expected);
        }
        lines_say_the_same(&site, &mut host);
    });
}

fn lines_say_the_same(site: &Site, host: &mut AfPacket) {
    let mut child = site.command(&["8", "-c", "2", "-j"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    // It has begun when it shows a frame: they are sent until then.
    while child.try_wait().unwrap().is_none() {
        send(host, &frame(1, 2, 20));
        std::thread::yield_now();
    }
    lines.read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(text.lines().count(), 2);
    for line in text.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!([&row["direction"], &row["verdict"], &row["device"]], ["out", "sent", "sw-trunk"]);
        assert_eq!([&row["source"], &row["destination"]], ["02:00:00:00:00:01", "02:00:00:00:00:02"]);
        assert_eq!((&row["port"], &row["bytes"]), (&8.into(), &64.into()));
    }
    // A reader that goes away ends it without a complaint.
    let mut child = site.command(&["1", "--drops"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let first = std::thread::spawn(move || {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        line
    });
    while child.try_wait().unwrap().is_none() {
        send(host, &frame(1, 99, 21));
        std::thread::yield_now();
    }
    let line = first.join().unwrap();
    assert!(line.contains("02:00:00:00:00:01 → 02:00:00:00:00:63") && line.ends_with("dropped: alien\n"), "{line}");
    let output = child.wait_with_output().unwrap();
    assert_eq!((exit_code(&output), stderr(&output)), (0, String::new()));
}

fn a_full_disk_ends_a_capture_and_leaves_a_whole_file() {
    in_namespace(|| {
        let (mut host, _trunk) = cables();
        let site = Site::new(PORTS);
        let disk = site.path("disk");
        std::fs::create_dir(&disk).unwrap();
        // The disk is in a mount namespace of its own, which ends with the shell. What the capture left is copied out of it.
        let script = "mount -t tmpfs -o size=64k none \"$1\" && \"$2\" capture 1 -w \"$1/c.pcapng\"; status=$?; \
                      cp \"$1/c.pcapng\" \"$3\"; exit $status";
        let copy = site.path("copy.pcapng");
        let mut child = Command::new("unshare")
            .args(["--mount", "sh", "-c", script, "sh", &disk, FIBULA, &copy])
            .env("FIBULA_CONTROL", &site.control)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        while child.try_wait().unwrap().is_none() {
            send(&mut host, &frame(1, 99, 30));
            std::thread::yield_now();
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(exit_code(&output), 1, "{}", stderr(&output));
        assert!(stderr(&output).contains("No space left on device"), "{}", stderr(&output));
        assert!(stderr(&output).contains("a whole capture; make room"), "{}", stderr(&output));
        let bytes = std::fs::read(&copy).unwrap();
        let (mut at, mut blocks) = (0, 0);
        while at < bytes.len() {
            let length = u32::from_ne_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
            assert_eq!(bytes[at + length - 4..at + length], bytes[at + 4..at + 8]);
            (at, blocks) = (at + length, blocks + 1);
        }
        assert!(at == bytes.len() && blocks > 100, "{blocks} blocks");
    });
}

fn the_controller_asks_a_switch_for_frames_and_flows() {
    in_namespace(|| {
        let (mut host, _trunk) = cables();
        let network = support::Site::new("");
        let _controller = network.start();
        let asked = |arguments: &[&str]| {
            let output = network.fibula(arguments);
            (exit_code(&output), stdout(&output) + &stderr(&output))
        };
        let refused = |arguments: &[&str], exit: i32, part: &str| {
            let (code, said) = asked(arguments);
            assert!(code == exit && said.contains(part), "{arguments:?}: {code} {said}");
        };
        assert_eq!(asked(&["switch", "add", "s1"]).0, 0);
        refused(&["capture", "s1:all"], 5, "switch `s1` is not connected to this controller");
        refused(&["flow", "show", "--switch", "s2"], 4, "s2");
        refused(&["capture", "s1:"], 2, "write it like s1:3, s1:eth1 or s1:all");

        let site = Site::at(&network.url, &format!("{PORTS}[flow]\n"));
        let until = std::time::Instant::now() + support::PATIENCE;
        while asked(&["switch", "log", "s1"]).0 != 0 {
            assert!(std::time::Instant::now() < until, "the switch does not connect");
        }
        let capture = |arguments: &[&str]| {
            let mut command = Command::new(FIBULA);
            command.arg("capture").args(arguments).env("FIBULA_CONTROLLER", &network.url);
            command
        };
        let begin = |arguments: &[&str]| Site::begun(capture(arguments));
        let running = begin(&["s1:sw-host", "-c", "2"]);
        send(&mut host, &frame(7, 99, 40));
        send(&mut host, &frame(7, 99, 41));
        let (bytes, said) = running.end();
        assert_eq!(exit_code(&said), 0, "{}", stderr(&said));
        for number in [40, 41] {
            let sent = frame(7, 99, number);
            assert_eq!(bytes.windows(sent.len()).filter(|window| *window == sent).count(), 1, "{number}");
        }
        let path = site.path("relayed.pcapng");
        std::fs::write(&path, &bytes).unwrap();
        if let Some(lines) = read_by_tshark(&path) {
            assert_eq!(lines.len(), 2, "{lines:?}");
        }
        refused(&["capture", "s1:7"], 4, "switch `s1`: switch s1 has no port `7`; it has 1 (sw-host), 8 (sw-trunk)");

        // More of them leave than there may be at once: each ends at the switch.
        for _ in 0..6 {
            let mut leaver = loop {
                let mut child =
                    capture(&["s1:all", "-w", "-"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
                let mut stdout = BufReader::new(child.stdout.take().unwrap());
                if !stdout.fill_buf().unwrap().is_empty() {
                    break child;
                }
                let said = stderr(&child.wait_with_output().unwrap());
                assert!(
                    said.contains("captures are running at this switch") && std::time::Instant::now() < until,
                    "{said}"
                );
            };
            leaver.kill().unwrap();
            leaver.wait().unwrap();
        }

        assert_eq!(asked(&["-j", "flow", "show", "--switch", "s1"]), (0, String::new()));
        assert_eq!(asked(&["flow", "flush", "--all", "--switch", "s1"]), (0, "0 flows flushed\n".to_owned()));
        refused(&["flow", "flush", "--switch", "s1", "--address", "nowhere"], 3, "switch `s1`");
        refused(&["flow", "server", "drain", "10.0.0.100:80", "10.0.0.11:80", "--switch", "s1"], 4, "switch `s1`");
        let (_, trail) = asked(&["-j", "audit", "show"]);
        for part in ["switch s1: frames at sw-host", "\"flush_flows\"", "switch s1: all", "\"change_server\""] {
            assert!(trail.contains(part), "{part}: {trail}");
        }

        // A switch that goes ends it with an error, and what is there is whole.
        let mut running = begin(&["s1:all"]);
        send(&mut host, &frame(7, 99, 42));
        let (mut bytes, sent) = (vec![], frame(7, 99, 42));
        while !bytes.windows(sent.len()).any(|window| *window == sent) {
            let more = running.stdout.fill_buf().unwrap().to_vec();
            assert!(!more.is_empty(), "the capture ended by itself");
            running.stdout.consume(more.len());
            bytes.extend(more);
        }
        drop(site);
        let (_, said) = running.end();
        assert_eq!(exit_code(&said), 4, "{}", stderr(&said));
        assert!(stderr(&said).contains("switch `s1` broke"), "{}", stderr(&said));
    });
}

fn who_reads_a_relayed_capture_slowly_loses_frames_and_holds_up_nobody_else() {
    in_namespace(|| {
        let (mut host, _trunk) = cables();
        let network = support::Site::new("");
        let _controller = network.start();
        assert_eq!(exit_code(&network.fibula(&["switch", "add", "s1"])), 0);
        let _site = Site::at(&network.url, PORTS);
        let is_late = {
            let until = std::time::Instant::now() + support::PATIENCE;
            move || std::time::Instant::now() > until
        };
        while exit_code(&network.fibula(&["switch", "log", "s1"])) != 0 {
            assert!(!is_late(), "the switch does not connect");
        }
        let begin = |arguments: &[&str]| {
            let mut command = Command::new(FIBULA);
            command.arg("capture").args(arguments).env("FIBULA_CONTROLLER", &network.url);
            Site::begun(command)
        };
        let mut slow = begin(&["s1:sw-host"]);
        // Far more than waits on the way: in the switch, on both connections, in the pipe.
        let mut long = frame(7, 99, 0);
        long.resize(1500, 0);
        for _ in 0..40_000 {
            let mut burst = Burst::from_iter([Packet::from_frame(&long)]);
            while host.tx_burst(&mut Pool::new(0, 2048), &mut burst).unwrap() == 0 {
                assert!(!is_late(), "the switch takes no more frames");
                std::thread::yield_now();
            }
        }
        // Others are served meanwhile: operators, another capture, and the switch by its controller.
        let quick = begin(&["s1:sw-host", "-c", "1"]);
        send(&mut host, &frame(7, 99, 50));
        let (_, said) = quick.end();
        assert_eq!(exit_code(&said), 0, "{}", stderr(&said));
        for arguments in [&["switch", "log", "s1"][..], &["switch", "list"], &["switch", "verify", "s1"]] {
            let output = network.fibula(arguments);
            assert_eq!(exit_code(&output), 0, "{arguments:?}: {}{}", stdout(&output), stderr(&output));
        }

        // Once it is read again what comes then arrives, and what was lost is said.
        let (head, mut next) = (frame(7, 99, 0)[..14].to_vec(), 51);
        let has_mark = |bytes: &[u8]| bytes.windows(15).any(|window| window.starts_with(&head) && window[14] > 50);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut bytes = vec![];
                while !has_mark(&bytes) {
                    // What was looked through is not looked through again.
                    bytes.drain(..bytes.len().saturating_sub(64));
                    let more = slow.stdout.fill_buf().unwrap().to_vec();
                    assert!(!more.is_empty(), "the capture ended by itself");
                    slow.stdout.consume(more.len());
                    bytes.extend(more);
                }
            });
            while !reader.is_finished() {
                assert!(!is_late(), "frames do not arrive any more");
                send(&mut host, &frame(7, 99, next));
                next = if next == 250 { 51 } else { next + 1 };
            }
        });
        let killed = Command::new("kill").args(["-INT", &slow.child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        let (_, said) = slow.end();
        assert_eq!(exit_code(&said), 0, "{}", stderr(&said));
        assert!(stderr(&said).contains("more were not captured: they came too fast"), "{}", stderr(&said));
    });
}

fn captures_are_refused_with_what_to_do() {
    let site = Site::new("");
    let refused = |arguments: &[&str], exit: i32, part: &str| {
        let output = site.capture(arguments);
        assert!(exit_code(&output) == exit && stderr(&output).contains(part), "{arguments:?}: {}", stderr(&output));
    };
    refused(&["7"], 4, "switch s1 has no port `7`; it has none");
    refused(&["all"], 4, "switch s1 has no ports");
    refused(&["all", "--for", "soon"], 2, "500ms");
    refused(&["all", "-c", "0"], 2, "0 is not in");
    refused(&["all", "--at", "127.0.0.1:1"], 4, "control = \"127.0.0.1:4605\"");
    refused(&["all", "--at", "nonsense"], 2, "10.0.0.2:4605");
    // The controller asks the switch that stands before a port, so an address has no place beside it.
    for option in ["--at", "--switch"] {
        let why = format!("directly: fibula capture 8 --at {}", site.control);
        refused(&["s1:8", option, &site.control], 2, &why);
    }
}
