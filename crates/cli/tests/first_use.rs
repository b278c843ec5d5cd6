//! What the README and the how-tos print for the first hours is typed as it stands, on machines that are namespaces of their own.

mod support;

use netio::testkit::{enter_namespace, in_namespace, path, tool_or_skip};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Instant;
use support::{FIBULA, PATIENCE};

netio::tests! {
    namespaces: [
        the_readme_leads_from_nothing_to_a_ping,
        prometheus_reads_every_daemon_by_the_commands_of_its_page,
    ],
    anywhere: []
}

fn page(file: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)).unwrap()
}

/// The first listing of this kind in a section of a page, without the indent of a list.
fn listing(page: &str, section: &str, kind: &str) -> String {
    let (_, rest) = page.split_once(section).unwrap_or_else(|| panic!("there is no {section}"));
    let (before, rest) = rest.split_once(&format!("```{kind}\n")).unwrap();
    let indent = before.lines().last().unwrap_or_default();
    let lines = rest.split_once("```").unwrap().0.lines();
    lines.map(|line| format!("{}\n", line.strip_prefix(indent).unwrap_or(line))).collect()
}

#[track_caller]
fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

type Job = Box<dyn FnOnce() + Send>;

/// A thread in a network namespace of its own: what it starts is there.
struct Place {
    jobs: mpsc::Sender<Job>,
    thread: i32,
}

impl Place {
    fn new() -> Place {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (ready, is_ready) = mpsc::channel();
        std::thread::spawn(move || {
            ready.send(enter_namespace().expect("root can make a network namespace")).unwrap();
            queue.into_iter().for_each(|job| job());
        });
        Place { jobs, thread: is_ready.recv().unwrap() }
    }

    fn inside<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> R {
        let (done, is_done) = mpsc::channel();
        self.jobs.send(Box::new(move || done.send(work()).unwrap())).unwrap();
        is_done.recv().unwrap()
    }

    /// A cable from an interface here to one there. Offloads are as the kernel makes them.
    fn cable(&self, here: &str, other: &Place, there: &str) {
        let words = format!("link add {here} type veth peer name {there} netns {}", other.thread);
        self.inside(move || ip(&words));
    }
}

/// A shell of a machine: a network namespace, and an `/etc` and a `/var/lib` of its own. Daemons end with it.
struct Machine {
    place: Place,
    shell: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// What is done before the first line is typed. `/etc` is a copy, so that nothing of this machine is changed, `/sys` has the interfaces of
/// the namespace, and in the path are the
/// binary that was built and an scp that needs no network.
const PREPARES: &str = r#"
mount --make-rprivate / && cp -a /etc "$MACHINE/etc" && mount --bind "$MACHINE/etc" /etc && rm -rf /etc/fibula
mount -t tmpfs none /var/lib && mount -t tmpfs none /run && mount -t sysfs none /sys && ip link set lo up
cd "$HOME" && exec 2>&1
trap 'kill $(jobs -p); wait' EXIT
"#;

impl Machine {
    fn new(directory: &Path, number: usize) -> Machine {
        let (machine, tools) = (directory.join(format!("machine{number}")), directory.join("bin"));
        let home = machine.join("home");
        std::fs::create_dir_all(&home).unwrap();
        std::fs::create_dir_all(&tools).unwrap();
        _ = std::os::unix::fs::symlink(FIBULA, tools.join("fibula"));
        let scp = format!("#!/bin/sh\nexec cp -r \"$2\" {}/machine2/home/\n", directory.display());
        std::fs::write(tools.join("scp"), scp).unwrap();
        let status = Command::new("chmod").arg("755").arg(tools.join("scp")).status().unwrap();
        assert!(status.success());
        let path = format!("{}:{}", tools.display(), path().display());
        let place = Place::new();
        let mut shell = place.inside(move || {
            let mut command = Command::new("unshare");
            command.args(["--mount", "bash"]).env("MACHINE", machine).env("HOME", home).env("PATH", path);
            command.env_remove("XDG_CONFIG_HOME").env("FIBULA_LOG", "warn");
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
        });
        let (input, output) = (shell.stdin.take().unwrap(), BufReader::new(shell.stdout.take().unwrap()));
        let mut machine = Machine { place, shell, input, output };
        machine.types(PREPARES);
        machine
    }

    /// Types lines, and returns what they print and how the last one ends.
    fn tries(&mut self, lines: &str) -> (String, String) {
        const END: &str = "that was all, with";
        writeln!(self.input, "{lines}\nended=$?; echo; echo {END} $ended").unwrap();
        let (mut said, mut line) = (String::new(), String::new());
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the shell ended after {lines}: {said}");
            match line.strip_prefix(END) {
                Some(status) => return (said, status.trim().to_owned()),
                None => said.push_str(&line),
            }
        }
    }

    /// Types lines that have to end well.
    #[track_caller]
    fn types(&mut self, lines: &str) -> String {
        let (said, status) = self.tries(lines);
        assert_eq!(status, "0", "{lines}: {said}");
        said
    }

    /// Types a line until what it prints is right, on however slow a machine.
    #[track_caller]
    fn types_until(&mut self, line: &str, is_right: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let (said, _) = self.tries(line);
            if is_right(&said) {
                return said;
            }
            assert!(began.elapsed() < PATIENCE, "{line}: {said}");
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        _ = writeln!(self.input, "exit");
        _ = self.shell.wait();
    }
}

/// The lines of a listing for each machine, in parts: a comment says where one begins.
fn by_machine(listing: &str) -> Vec<(usize, Vec<String>)> {
    let mut parts: Vec<(usize, Vec<String>)> = Vec::new();
    for line in listing.lines().filter(|line| !line.trim().is_empty()) {
        match line.strip_prefix("# machine ") {
            Some(rest) => parts.push((rest[..1].parse().unwrap(), vec![])),
            None => parts.last_mut().unwrap().1.push(line.to_owned()),
        }
    }
    parts
}

fn the_readme_leads_from_nothing_to_a_ping() {
    in_namespace(|| {
        let directory = tempfile::tempdir().unwrap();
        let mut machines = [1, 2].map(|number| Machine::new(directory.path(), number));
        let hosts = [Place::new(), Place::new()];
        let [one, two] = &machines;
        one.place.cable("eth0", &two.place, "eth0");
        one.place.cable("eth2", &two.place, "eth2");
        for (i, (machine, host)) in machines.iter().zip(&hosts).enumerate() {
            machine.place.cable("eth1", host, "eth0");
            machine.place.inside(move || {
                ip(&format!("addr add 10.0.0.{}/24 dev eth0", i + 1));
                ip("link set eth0 up");
            });
            host.inside(move || {
                ip(&format!("addr add 10.9.0.{}/24 dev eth0", i + 1));
                ip("link set eth0 up");
            });
        }
        let listing = listing(&page("README.md"), "## First real use", "sh");
        let parts = by_machine(&listing);
        assert_eq!(parts.iter().map(|(machine, _)| *machine).collect::<Vec<_>>(), [1, 2, 1]);
        let mut seen = String::new();
        for line in parts.iter().flat_map(|(machine, lines)| lines.iter().map(move |line| (*machine, line))) {
            let (machine, line) = (&mut machines[line.0 - 1], line.1);
            if line.starts_with("fibula switch accept") {
                // Anyone who types is slower than this test.
                machine.types_until("fibula switch pending", |said| said.contains("s1 ") && said.contains("s2 "));
            }
            if line.starts_with("fibula host seen") {
                assert!(machine.types("fibula link list").contains("up"));
                // Hosts speak when they come up, and these did so before there was a network.
                let pings = |host: &Place, other: usize| {
                    let to = format!("10.9.0.{other}");
                    host.inside(move || {
                        let output = Command::new("ping").args(["-n", "-c", "1", "-W", "1", &to]).output().unwrap();
                        output.status.success()
                    })
                };
                let began = Instant::now();
                while !(pings(&hosts[0], 2) & pings(&hosts[1], 1)) {
                    assert!(began.elapsed() < PATIENCE, "no ping is answered: {}", machine.types("fibula host seen"));
                }
                seen = machine.types(line);
            } else {
                machine.types(line);
            }
        }
        assert_eq!(seen.matches(" learnt ").count(), 2, "{seen}");
        // Neighbours go on saying hello, and that is no traffic.
        machines[0].types_until("fibula -j top --once", |said| {
            let rows = said.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
            let is_idle = |row: serde_json::Value| {
                ["frames_in", "frames_out", "bits_in", "bits_out"]
                    .iter()
                    .all(|of| row[format!("{of}_per_second")] == 0.0)
            };
            rows.map(is_idle).collect::<Vec<_>>() == [true, true]
        });
        let doctor = machines[0].tries("fibula doctor --config /etc/fibula/switch/s1.toml").0;
        assert!(!doctor.contains("\nbad "), "{doctor}");
    });
}

fn prometheus_reads_every_daemon_by_the_commands_of_its_page() {
    if tool_or_skip("prometheus", "prometheus").is_none() {
        return;
    }
    in_namespace(|| {
        let directory = tempfile::tempdir().unwrap();
        // One machine with both addresses: what each daemon listens at and what its certificate names is as on two.
        let mut machine = Machine::new(directory.path(), 1);
        machine.types("ip addr add 10.0.0.1/32 dev lo && ip addr add 10.0.0.2/32 dev lo");
        let page = page("docs/how-to/watch-with-prometheus.md");
        // After the README, whose certificates have no such addresses where they were issued without.
        machine.types("fibula pki init && fibula pki issue controller c1 && fibula pki issue switch s1 s2");
        for line in listing(&page, "# Watch a network", "sh").lines() {
            machine.types(line);
        }
        let status = |file: &str| -> String {
            let row = page.lines().find(|line| line.trim().starts_with(&format!("| `{file}`"))).unwrap();
            row.split('`').nth(3).unwrap().to_owned()
        };
        let write = |file: &str, text: String| std::fs::write(directory.path().join(file), text).unwrap();
        let home = directory.path().join("machine1/home");
        let tls = |holder: &str| format!("[tls]\ndir = '{}'\n", home.join(".config/fibula/pki").join(holder).display());
        let state = directory.path().display();
        let controller = format!(
            "{}\nlisten = '10.0.0.1:4600'\nstore = '{state}/rib'\nname_kind = 'mac'\nmax_names = 1000\n",
            status("controller.toml")
        );
        write("controller.toml", controller + &tls("controller/c1"));
        for switch in ["s1", "s2"] {
            let file = format!("{switch}.toml");
            let text = format!(
                "{}\nname = '{switch}'\ncontroller = 'https://10.0.0.1:4600'\nstate_dir = '{state}/{switch}'\nlookup = \
                 '127.0.0.1:0'\n",
                status(&file)
            );
            write(&file, text + &tls(&format!("switch/{switch}")));
        }
        for (daemon, file) in [("controller", "controller"), ("switch", "s1"), ("switch", "s2")] {
            machine.types(&format!("fibula {daemon} --config {state}/{file}.toml &"));
        }
        // The files lie beside the configuration, as the page says.
        let beside = directory.path().join("prometheus");
        std::fs::create_dir(&beside).unwrap();
        for file in ["ca.pem", "cert.pem", "key.pem"] {
            std::fs::copy(home.join(".config/fibula/pki/operator/prometheus").join(file), beside.join(file)).unwrap();
        }
        let rules: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/prometheus/fibula.yml");
        std::fs::copy(rules, beside.join("fibula.yml")).unwrap();
        let configuration = listing(&page, "# Watch a network", "yaml");
        std::fs::write(beside.join("prometheus.yml"), configuration.replace("10s", "1s")).unwrap();
        machine.types(&format!(
            "cd {}\nprometheus --config.file=prometheus.yml --web.listen-address=127.0.0.1:9090 > log 2>&1 &",
            beside.display()
        ));
        let up = "curl --silent --max-time 5 --get http://127.0.0.1:9090/api/v1/query --data-urlencode 'query=count(up{job=\"fibula\"} == 1)'";
        machine.types_until(up, |said| said.contains("\"3\""));
    });
}
