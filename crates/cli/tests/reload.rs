//! SIGHUP: daemons go on, open the files that they write again, take what has changed and can be taken, and say what cannot.

mod support;

use netio::testkit::tool_or_skip;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::{FIBULA, Process, Site, eventually, exit_code, stderr, stdout};

/// A switch without ports that tracks connections, with an export and a log.
struct Station {
    directory: tempfile::TempDir,
    control: String,
    switch: Process,
}

const VIRTUAL: &str = "[[flow.virtual]]\naddress = '10.0.0.100'\nport = 80\nservers = [{ address = '10.0.0.11' }]\n";

impl Station {
    fn new() -> Station {
        let directory = tempfile::tempdir().unwrap();
        let reserved = support::reserved_port();
        let control = reserved.local_addr().unwrap().as_socket().unwrap().to_string();
        write_switch(directory.path(), &control, "", VIRTUAL);
        let mut command = Command::new(FIBULA);
        command.args(["switch", "--config"]).arg(directory.path().join("s1.toml"));
        let switch = Process::logging_by_its_configuration(&mut command, &directory.path().join("log"));
        Station { directory, control, switch }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    fn write(&self, top: &str, flow: &str) {
        write_switch(self.directory.path(), &self.control, top, flow);
    }

    /// Sends SIGHUP and waits until the log has so many lines with `word`.
    async fn reload_until(&self, word: &str, n: usize) {
        self.switch.hang_up();
        eventually(&format!("{n} lines with {word} in the log"), async || self.log().matches(word).count() >= n).await;
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn flow(&self, arguments: &[&str]) -> String {
        let output =
            Command::new(FIBULA).arg("flow").args(arguments).env("FIBULA_FLOW", &self.control).output().unwrap();
        assert_eq!(exit_code(&output), 0, "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    }

    fn servers(&self) -> Vec<Vec<String>> {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        self.flow(&["server", "list"]).lines().skip(1).map(words).collect()
    }

    /// The files that the switch has open.
    fn open_files(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(format!("/proc/{}/fd", self.switch.id())).unwrap().flatten();
        all.filter_map(|entry| fs::read_link(entry.path()).ok()).collect()
    }
}

fn write_switch(directory: &Path, control: &str, top: &str, flow: &str) {
    let text = format!(
        "name = 's1'\ncontroller = 'http://127.0.0.1:1'\nstate_dir = '{0}'\n{top}\n[flow]\ncontrol = '{control}'\nexport = \
         '{0}/flows.jsonl'\n{flow}",
        directory.display()
    );
    fs::write(directory.join("s1.toml"), text).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_export_and_a_renamed_audit_trail_are_let_go() {
    let station = Station::new();
    station.flow(&["flush", "--all"]);
    let files = ["flows.jsonl", "audit.jsonl"];
    for file in files {
        fs::rename(station.path(file), station.path(&format!("{file}-before"))).unwrap();
    }
    station.flow(&["flush", "--all"]);
    assert!(!station.path("audit.jsonl").exists(), "until it is told, it goes on in the renamed file");
    station.reload_until("reloaded", 1).await;
    assert!(files.iter().all(|file| station.path(file).exists()));
    let open = station.open_files();
    let before: Vec<&PathBuf> = open.iter().filter(|file| file.to_string_lossy().ends_with("-before")).collect();
    assert!(before.is_empty(), "{before:?}");
    station.flow(&["flush", "--all"]);
    let lines = |file: &str| fs::read_to_string(station.path(file)).unwrap().lines().count();
    assert_eq!((lines("audit.jsonl-before"), lines("audit.jsonl")), (2, 1));
    assert_eq!(station.switch.terminate(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_and_limits_follow_the_file_and_other_keys_are_said_to_wait() {
    let station = Station::new();
    // By an operator, and kept.
    station.flow(&["server", "add", "10.0.0.100:80", "10.0.0.13:80"]);
    let changed = VIRTUAL.replace("{ address = '10.0.0.11' }", "{ address = '10.0.0.12', weight = 7 }");
    station.write("workers = 2", &format!("{changed}[limits]\nidle_ms = 12345\n"));
    station.reload_until("only at a restart", 1).await;
    let servers: Vec<String> = station.servers().iter().map(|row| format!("{} {}", row[2], row[3])).collect();
    let mut servers: Vec<&str> = servers.iter().map(String::as_str).collect();
    servers.sort_unstable();
    assert_eq!(servers, ["10.0.0.12:80 7", "10.0.0.13:80 1"]);
    let log = station.log();
    let line =
        |word: &str| log.lines().find(|line| line.contains(word)).unwrap_or_else(|| panic!("no {word} in {log}"));
    let reloaded = line("reloaded");
    assert!(reloaded.contains("flow.virtual 1.servers") && reloaded.contains("limits.idle_ms"), "{reloaded}");
    let waits = line("only at a restart");
    assert!(waits.contains("workers") && !waits.contains("servers"), "{waits}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_checks_lists_and_sizes_are_taken_and_what_is_a_part_of_its_own_waits() {
    let station = Station::new();
    let list = station.path("list.txt");
    fs::write(&list, "permit any\n").unwrap();
    let rule = "[[flow.rule]]\naction = 'accept'\n";
    let check = VIRTUAL.replace("servers", "check = { interval_s = 3600 }\nservers");
    let rest = "[audit]\nkeep = 2\n[gateway]\nport = 100\nmac = '02:00:00:00:00:64'\naddresses = ['10.0.0.1']\n\
                [[gateway.route]]\nprefix = '0.0.0.0/0'\nvia = 'discard'\n";
    let flow = format!("default = 'accept'\npick_up = true\ntimeouts = {{ udp_new = 7 }}\n{rule}{check}{rest}");
    station.write("", &flow);
    // The last line of a reload that leaves something for a restart.
    station.reload_until("only at a restart", 1).await;
    let log = station.log();
    let line = |word: &str| log.lines().find(|line| line.contains(word)).unwrap_or_else(|| panic!("no {word}: {log}"));
    let reloaded = line("reloaded");
    for key in
        ["audit.keep", "flow.default", "flow.pick_up", "flow.rule", "flow.timeouts.udp_new", "flow.virtual 1.check"]
    {
        assert!(reloaded.contains(key), "{key}: {reloaded}");
    }
    let waits = line("only at a restart");
    assert!(
        waits.contains("gateway.port")
            && waits.contains("gateway.route")
            && !waits.contains("flow")
            && !waits.contains("audit"),
        "{waits}"
    );
    assert!(!reloaded.contains("gateway"), "{reloaded}");
    assert_eq!(station.switch.terminate(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_configuration_keeps_the_one_before_and_says_so() {
    let station = Station::new();
    fs::rename(station.path("flows.jsonl"), station.path("flows.jsonl-before")).unwrap();
    station.write("wrokers = 2", "");
    station.reload_until("the previous one stays in use", 1).await;
    let log = station.log();
    assert!(log.contains("s1.toml") && log.contains("wrokers"), "{log}");
    assert_eq!(station.servers().len(), 1, "the servers are those of before");
    assert!(station.path("flows.jsonl").exists(), "files are opened again nevertheless");
    station.write("", VIRTUAL);
    station.reload_until("reloaded", 1).await;
    assert_eq!(station.switch.terminate(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_access_list_and_certificates_that_cannot_be_used_are_named_and_those_before_are_used() {
    let station = Station::new();
    let acl = station.path("list.txt");
    fs::write(&acl, "permit any\n").unwrap();
    // Without its device the port is down, and the list is there all the same.
    let port = format!("[[port]]\nid = 1\ndevice = 'no-such'\nrole = 'host'\nacl = '{}'\n", acl.display());
    station.write("", &format!("{VIRTUAL}{port}"));
    fs::write(&acl, "permt any\n").unwrap();
    station.reload_until("the previous one stays in use", 1).await;
    let log = station.log();
    assert!(log.contains("list.txt:1") && log.contains("permt"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_takes_what_it_can_and_goes_on() {
    let site = Site::new("auto_switches = 'off'\n");
    let config = site.path("controller.toml");
    let mut command = Command::new(FIBULA);
    command.args(["controller", "--config"]).arg(&config);
    let controller = Process::logging_by_its_configuration(&mut command, &site.path("log"));
    let log = || fs::read_to_string(site.path("log")).unwrap_or_default();
    let add = |name: &str| site.fibula(&["switch", "add", name]);
    let done = |output: Output| assert_eq!(exit_code(&output), 0, "{}", stderr(&output));
    done(add("s1"));
    fs::rename(site.path("rib.audit.jsonl"), site.path("rib.audit.jsonl-before")).unwrap();
    let text = fs::read_to_string(&config).unwrap();
    let changed =
        text.replace("auto_switches = 'off'", "auto_switches = 'on'\nlog = 'warn'").replace("1000000", "2000000");
    fs::write(&config, changed).unwrap();
    controller.hang_up();
    eventually("the new file of the audit trail", async || site.path("rib.audit.jsonl").exists()).await;
    eventually("what waits for a restart", async || log().contains("only at a restart")).await;
    assert!(log().contains("max_names"), "{}", log());
    // A switch that nobody added is now accepted by itself.
    let _switch = site.switch("s2");
    let client = site.client().await;
    eventually("both switches", async || {
        let listed = client.clone().list_switches(api::v1::ListSwitchesRequest {}).await.unwrap().into_inner();
        listed.switches.len() == 2
    })
    .await;
    let filter = stdout(&site.fibula(&["-j", "controller", "log"]));
    assert!(filter.contains("\"filter\":\"warn\""), "{filter}");
    assert_eq!(controller.terminate(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn logrotate_rotates_an_export_by_the_example() {
    let Some(logrotate) = tool_or_skip("logrotate", "logrotate") else { return };
    let station = Station::new();
    let example =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/logrotate/fibula")).unwrap();
    let id = station.switch.id();
    // The files and the user of the test instead of those of a package, and its process instead of a service.
    let own = example
        .replace("/var/lib/fibula/switch/*", station.directory.path().to_str().unwrap())
        .replace("    su fibula fibula\n", "")
        .replace("systemctl kill --kill-who=main --signal=HUP 'fibula-switch@*.service'", &format!("kill -HUP {id}"));
    assert!(own.contains(&format!("kill -HUP {id}")) && !own.contains("/var/lib"), "{own}");
    let (rules, state) = (station.path("logrotate.conf"), station.path("logrotate.state"));
    fs::write(&rules, own).unwrap();
    fs::write(station.path("flows.jsonl"), "{}\n").unwrap();
    let run = || {
        let output = Command::new(&logrotate).args(["--force", "--state"]).arg(&state).arg(&rules).output().unwrap();
        assert!(output.status.success() && stderr(&output).is_empty(), "{}", stderr(&output));
    };
    run();
    eventually("the export in a new file", async || {
        station.log().contains("reloaded") && station.path("flows.jsonl").exists()
    })
    .await;
    assert_eq!(fs::read_to_string(station.path("flows.jsonl.1")).unwrap(), "{}\n");
    let open = station.open_files();
    assert!(open.contains(&station.path("flows.jsonl")) && !open.contains(&station.path("flows.jsonl.1")), "{open:?}");
}
