//! `fibula flow` against a switch: what it shows, what it changes, and what it says when it cannot.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use support::{FIBULA, Process, exit_code, stderr, stdout};

struct Site {
    _directory: tempfile::TempDir,
    _switch: Process,
    control: String,
}

impl Site {
    fn new(flow: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let control = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let text = format!(
            "name = 's1'\ncontroller = 'http://127.0.0.1:1'\nstate_dir = '{}'\n[flow]\ncontrol = '{control}'\n{flow}",
            directory.path().join("s1").display()
        );
        let file = directory.path().join("switch.toml");
        std::fs::write(&file, text).unwrap();
        let switch = Process::spawn(&["switch", "--config", file.to_str().unwrap()]);
        Self { _directory: directory, _switch: switch, control }
    }

    fn flow(&self, arguments: &[&str]) -> Output {
        Command::new(FIBULA).arg("flow").args(arguments).env("FIBULA_FLOW", &self.control).output().unwrap()
    }

    #[track_caller]
    fn done(&self, arguments: &[&str]) -> String {
        let output = self.flow(arguments);
        assert_eq!(exit_code(&output), 0, "{}", stderr(&output));
        stdout(&output)
    }

    #[track_caller]
    fn refused(&self, arguments: &[&str], exit: i32, part: &str) {
        let output = self.flow(arguments);
        assert!(exit_code(&output) == exit && stderr(&output).contains(part), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn servers_are_listed_added_drained_and_removed() {
    let site = Site::new(
        "[[flow.virtual]]\naddress = '10.0.0.100'\nport = 80\nservers = [{ address = '10.0.0.11', weight = 3 }]\n\
         [[flow.virtual]]\naddress = 'fd00::100'\nport = 53\nprotocol = 'udp'\n",
    );
    let service = "10.0.0.100:80";
    site.done(&["server", "add", service, "10.0.0.12:8080", "--weight", "2", "--mac", "02:00:00:00:00:0c"]);
    site.done(&["server", "add", "[fd00::100]:53", "[fd00::1]:53", "--protocol", "udp"]);
    site.done(&["server", "drain", service, "10.0.0.11:80"]);
    let listed = site.done(&["server", "list"]);
    let rows: Vec<Vec<&str>> = listed.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        rows,
        [
            [service, "tcp", "10.0.0.11:80", "3", "drained", "0", "0"],
            [service, "tcp", "10.0.0.12:8080", "2", "active", "0", "0"],
            ["[fd00::100]:53", "udp", "[fd00::1]:53", "1", "active", "0", "0"],
        ]
    );
    site.done(&["server", "remove", service, "10.0.0.11:80"]);
    assert!(!site.done(&["server", "list"]).contains("10.0.0.11"));
    site.refused(&["server", "remove", service, "10.0.0.11:80"], 4, "has no server 10.0.0.11:80");
    site.refused(&["server", "drain", "10.0.0.99:80", "10.0.0.11:80"], 4, "[[flow.virtual]]");
    site.refused(&["server", "add", service, "[fd00::1]:80"], 3, "IPv6");
    site.refused(&["server", "add", service, "10.0.0.11"], 3, "10.0.0.11:80");
    site.refused(&["server", "add", service, "10.0.0.13:80", "--weight", "1001"], 3, "1000");
    site.refused(&["server", "add", service, "10.0.0.13:80", "--mac", "nonsense"], 3, "02:00:00:00:00:01");
}

#[test]
fn a_switch_without_flows_shows_none_and_counts_zero() {
    let site = Site::new("");
    assert_eq!(site.done(&["-j", "show"]), "");
    assert_eq!(site.done(&["-j", "count", "--protocol", "udp", "--address", "10.0.0.0/8", "--port", "53"]), "");
    assert_eq!(site.done(&["flush", "--all"]), "0 flows flushed\n");
    let stats = site.done(&["-j", "stats"]);
    assert!(stats.contains("{\"name\":\"refused_table_full\",\"value\":0}\n"), "{stats}");
    site.refused(&["flush"], 2, "--all");
    site.refused(&["show", "--protocol", "xyz"], 3, "xyz");
    site.refused(&["show", "--address", "10.0.0.1/8"], 3, "10.0.0.0/8");
    // The controller asks the switch that is named, so an address has no place beside it.
    site.refused(&["stats", "--switch", "s1", "--at", "127.0.0.1:1"], 2, "leave one of them out");
    let Site { _switch, control, _directory } = site;
    assert_eq!(_switch.terminate(), Some(0));
    let gone = Command::new(FIBULA).args(["flow", "stats", "--at", &control]).output().unwrap();
    assert!(exit_code(&gone) == 4 && stderr(&gone).contains("FIBULA_FLOW"), "{}", stderr(&gone));
}

#[test]
fn a_log_in_json_has_an_object_a_line_with_the_fields_of_the_event() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!(
        "name = 's1'\ncontroller = 'http://127.0.0.1:1'\nstate_dir = '{}'\nlookup = '127.0.0.1:0'\n",
        directory.path().join("s1").display()
    );
    let file = directory.path().join("switch.toml");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(FIBULA);
    command.args(["switch", "--config"]).arg(&file).args(["--log-format", "json"]).env("FIBULA_LOG", "info");
    let mut switch = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(switch.stderr.take().unwrap()).read_line(&mut line).unwrap();
    switch.kill().unwrap();
    switch.wait().unwrap();
    let event: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert_eq!([&event["level"], &event["switch"]], ["INFO", "s1"], "{event}");
    assert!(event["message"].as_str().unwrap().starts_with("no saved image"), "{event}");
    let output = Command::new(FIBULA).args(["--log-format", "xml", "switch", "list"]).output().unwrap();
    assert!(exit_code(&output) == 2 && stderr(&output).contains("text, json, journald"), "{}", stderr(&output));
}
