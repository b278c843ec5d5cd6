//! A controller, a switch and the commands between them over Unix sockets, with no address of TCP.

mod support;

use api::identity::{Identity, Kind};
use api::pki::Authority;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Output};
use support::{FIBULA, Process, eventually, exit_code, mac, stderr, stdout};
use tempfile::TempDir;

/// A directory with the configurations of a controller and of the switch s1.
struct Local(TempDir);

impl Local {
    /// `extra`: further lines of both configurations.
    fn new(extra: &str) -> Local {
        let local = Local(tempfile::tempdir().unwrap());
        let [controller, status, lookup, switch_status, flow] =
            ["controller", "status", "lookup", "s1-status", "flow"].map(|name| local.at(name));
        local.write(
            "controller.toml",
            &format!(
                "listen = '{controller}'\nstatus = '{status}'\nstore = '{}'\nname_kind = 'mac'\nmax_names = 1000\n{extra}",
                local.path("rib.sqlite").display()
            ),
        );
        local.write(
            "s1.toml",
            &format!(
                "name = 's1'\ncontroller = '{controller}'\nstate_dir = '{}'\nlookup = '{lookup}?mode=0666'\nstatus = \
                 '{switch_status}'\n{extra}[flow]\ncontrol = '{flow}'\n",
                local.path("s1").display()
            ),
        );
        local
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.path(&format!("{name}.sock"))
    }

    /// As commands and configurations name a socket.
    fn at(&self, name: &str) -> String {
        format!("unix:{}", self.socket(name).display())
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.path(file), text).unwrap();
    }

    fn start(&self, daemon: &str, file: &str) -> Process {
        Process::spawn(&[daemon, "--config", self.path(file).to_str().unwrap()])
    }

    fn fibula(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(FIBULA);
        command.args(arguments).env("XDG_CONFIG_HOME", self.path("nowhere"));
        command.env("FIBULA_CONTROLLER", self.at("controller")).output().unwrap()
    }

    /// Runs a command that must succeed.
    #[track_caller]
    fn done(&self, arguments: &[&str]) -> String {
        let output = self.fibula(arguments);
        assert_eq!(exit_code(&output), 0, "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    }

    fn mode(&self, name: &str) -> u32 {
        std::fs::metadata(self.socket(name)).unwrap().permissions().mode() & 0o777
    }

    fn page(&self, name: &str, page: &str) -> String {
        let mut stream = UnixStream::connect(self.socket(name)).unwrap();
        write!(stream, "GET /{page} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Adds a switch, a host and a name, and asks the switch for the name.
    async fn runs(&self) {
        self.done(&["switch", "add", "s1"]);
        self.done(&["host", "add", "h1", "s1:7"]);
        self.done(&["name", "add", &mac(1), "h1"]);
        let _switch = self.start("switch", "s1.toml");
        eventually("the switch in step", async || {
            self.done(&["-j", "switch", "list"]).contains("\"connected\":true,\"in_step\":true")
        })
        .await;
        let answer = self.done(&["-j", "switch", "lookup", "--at", &self.at("lookup"), &mac(1)]);
        assert!(answer.contains("\"outcome\":\"found\",\"port\":7"), "{answer}");
        self.done(&["flow", "--at", &self.at("flow"), "stats"]);
        assert!(self.page("s1-status", "status").contains("\"connected\":true"));
        let (modes, names) =
            ([0o600, 0o600, 0o666, 0o600, 0o600], ["controller", "status", "lookup", "s1-status", "flow"]);
        assert_eq!(names.map(|name| self.mode(name)), modes);
    }

    fn audit(&self) -> Vec<serde_json::Value> {
        let config = self.path("controller.toml");
        let lines = self.done(&["-j", "audit", "show", "--config", config.to_str().unwrap()]);
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_runs_over_unix_sockets_and_the_trail_names_users() {
    let local = Local::new("");
    let _controller = local.start("controller", "controller.toml");
    local.runs().await;
    assert!(local.page("status", "metrics").contains("fibula_names 1\n"));

    let uid = std::fs::metadata(local.0.path()).unwrap().uid();
    let audit = local.audit();
    assert_eq!(audit.len(), 3, "{audit:?}");
    for record in audit {
        assert_eq!((record["who"].as_str(), record["role"].as_str()), (Some(&*format!("uid:{uid}")), Some("none")));
        assert!(record["from"].as_str().unwrap().starts_with("unix:pid="), "{record}");
    }
}

/// The kernel says who is at the other end, so a socket takes no certificate, even from a daemon that has one.
#[tokio::test(flavor = "multi_thread")]
async fn daemons_with_certificates_ask_for_none_on_unix_sockets() {
    let pki = tempfile::tempdir().unwrap();
    let authority = Authority::create(&pki.path().join("pki")).unwrap();
    let controller = authority.make(&Identity::new(Kind::Controller, "c1").unwrap(), &[], 30).unwrap();
    let switch = authority.make(&Identity::new(Kind::Switch, "s1").unwrap(), &[], 30).unwrap();
    let local = Local::new("");
    for (file, dir) in [("controller.toml", controller), ("s1.toml", switch)] {
        let text = std::fs::read_to_string(local.path(file)).unwrap();
        local.write(file, &format!("{text}[tls]\ndir = '{}'\n", dir.display()));
    }
    let _controller = local.start("controller", "controller.toml");
    local.runs().await;
}

#[test]
fn socket_of_a_killed_controller_is_replaced_and_that_of_a_live_one_is_not() {
    let local = Local::new("");
    let controller = local.start("controller", "controller.toml");
    local.done(&["switch", "add", "s1"]);

    let text = std::fs::read_to_string(local.path("controller.toml")).unwrap();
    local.write("other.toml", &text.replace("rib.sqlite", "other.sqlite"));
    let other = local.fibula(&["controller", "--config", local.path("other.toml").to_str().unwrap()]);
    let expected = format!("cannot listen on {}: another process listens there", local.at("controller"));
    assert!(exit_code(&other) == 5 && stderr(&other).contains(&expected), "{}", stderr(&other));
    assert!(local.done(&["-j", "switch", "list"]).contains("\"s1\""));

    controller.kill();
    assert!(local.socket("controller").exists());
    let output = local.fibula(&["switch", "list"]);
    let expected = format!("no controller answers at {}", local.at("controller"));
    assert!(exit_code(&output) == 4 && stderr(&output).contains(&expected), "{}", stderr(&output));

    let controller = local.start("controller", "controller.toml");
    assert!(local.done(&["-j", "switch", "list"]).contains("\"s1\""));
    assert_eq!(controller.terminate(), Some(0));
}

#[test]
fn addresses_that_no_socket_can_have_are_told() {
    let local = Local::new("");
    for (at, exit, part) in [
        ("unix:controller.sock", 2, "unix:/run/fibula/controller.sock"),
        ("unix:/nowhere/controller.sock", 4, "no controller answers at unix:/nowhere/controller.sock"),
    ] {
        let output = local.fibula(&["switch", "list", "--controller", at]);
        assert!(exit_code(&output) == exit && stderr(&output).contains(part), "{}", stderr(&output));
    }
    let text = std::fs::read_to_string(local.path("controller.toml")).unwrap();
    for (socket, exit, part) in
        [("nowhere/a.sock", 5, "a.sock.lock cannot be opened"), ("rib.sqlite", 5, "not a socket")]
    {
        local.write("wrong.toml", &text.replace("controller.sock", socket));
        let output = local.fibula(&["controller", "--config", local.path("wrong.toml").to_str().unwrap()]);
        assert!(exit_code(&output) == exit && stderr(&output).contains(part), "{}", stderr(&output));
    }
}
