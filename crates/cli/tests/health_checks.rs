//! Health checks of the servers of a virtual address: they begin, change and end with the file at SIGHUP, and the controller tells what
//! they find.

mod support;

use std::fs;
use std::net::TcpListener;
use std::process::Command;
use support::{FIBULA, Process, Site, eventually, exit_code, stderr, stdout};

/// The server that is checked, at this machine.
const SERVER: &str = "10.0.0.11";
const NAMED: &str = "s1: the server 10.0.0.11:80 of 10.0.0.100:80 (tcp)";

/// A controller and a switch without ports, which balances.
struct Pair {
    site: Site,
    _controller: Process,
    control: String,
    switch: Process,
}

impl Pair {
    fn new() -> Self {
        let site = Site::new("auto_switches = 'on'\n");
        let controller = site.start();
        let control = format!("unix:{}", site.path("flow.sock").display());
        write(&site, &control, "");
        let switch = Process::spawn(&["switch", "--config", site.path("s1.toml").to_str().unwrap()]);
        Self { site, _controller: controller, control, switch }
    }

    /// Has the switch take a configuration in which servers are checked so.
    fn check(&self, check: &str) {
        write(&self.site, &self.control, check);
        self.switch.hang_up();
    }

    async fn is_told(&self, text: &str, n: usize) {
        eventually(text, async || stdout(&self.site.fibula(&["monitor", "--once"])).matches(text).count() == n).await;
    }

    /// The state of the server.
    fn state(&self) -> String {
        let command = ["-j", "flow", "server", "list"];
        let output = Command::new(FIBULA).args(command).env("FIBULA_FLOW", &self.control).output().unwrap();
        assert_eq!(exit_code(&output), 0, "{}", stderr(&output));
        let row: serde_json::Value = serde_json::from_str(stdout(&output).lines().next().unwrap()).unwrap();
        row["state"].as_str().unwrap().to_owned()
    }
}

fn write(site: &Site, control: &str, check: &str) {
    let (url, state) = (&site.url, site.path("s1").display().to_string());
    let text = format!(
        "name = 's1'\ncontroller = '{url}'\nstate_dir = '{state}'\n[flow]\ncontrol = '{control}'\n\
         [[flow.virtual]]\naddress = '10.0.0.100'\nport = 80\nservers = [{{ address = '{SERVER}' }}]\n{check}"
    );
    fs::write(site.path("s1.toml"), text).unwrap();
}

fn at_port(port: u16) -> String {
    format!("check = {{ interval_s = 1, timeout_s = 1, rise = 1, fall = 1, port = {port} }}\n")
}

fn servers_that_go_down_and_come_up_are_told_and_checks_follow_the_file() {
    netio::testkit::in_namespace(|| {
        for arguments in ["link set lo up", &format!("address add {SERVER}/32 dev lo")] {
            assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success(), "ip {arguments}");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let pair = Pair::new();
            assert_eq!(pair.state(), "active");
            // Nobody listens there.
            pair.check(&at_port(7001));
            let down = format!("bad      switch      {NAMED} is down, and so are all others: ");
            pair.is_told(&down, 1).await;
            assert_eq!(pair.state(), "down");
            // Another check, which it passes.
            let listener = TcpListener::bind((SERVER, 7002)).unwrap();
            pair.check(&at_port(7002));
            pair.is_told(&format!("good     switch      {NAMED} is up again"), 1).await;
            assert_eq!(pair.state(), "active");
            drop(listener);
            pair.is_told(&down, 2).await;
            // Nobody is checked any more.
            pair.check("");
            eventually("it counts as up", async || pair.state() == "active").await;
            pair.is_told(&format!("info     switch      {NAMED} was down, and is no longer checked"), 1).await;
            assert_eq!(pair.switch.terminate(), Some(0));
        });
    });
}

netio::tests! {
    namespaces: [servers_that_go_down_and_come_up_are_told_and_checks_follow_the_file],
    anywhere: []
}
