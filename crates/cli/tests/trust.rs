//! Certificates: anyone who has none, or not the right one, gets nothing from a controller or a switch, and is told why.

#[path = "trust/names.rs"]
mod names;
#[path = "trust/pages.rs"]
mod pages;
mod support;

use api::client::connect_to;
use api::identity::{Identity, Kind, Role};
use api::limits::{Guard, Limits as PeerLimits};
use api::pki::Authority;
use api::tls::{Files, Tls};
use api::v1::{self, from_switch::Body};
use fib::messages::Uplink;
use fib::replica::{Limits, MemoryTables, Replica};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use support::{FIBULA, PATIENCE, Process, Site, eventually, exit_code, mac, stderr, stdout};
use switch::daemon::agent;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

/// A controller with TLS, an authority, and the certificates of c1, s1, s2 and of an operator for each role.
struct Trust {
    site: Site,
    url: String,
    authority: Authority,
}

impl Trust {
    fn new() -> Trust {
        let site = Site::new("");
        let authority = Authority::create(&site.path("pki")).unwrap();
        let trust = Trust { url: site.url.replace("http:", "https:"), site, authority };
        let controller = trust.issue(Kind::Controller, "c1");
        for (kind, name) in [(Kind::Switch, "s1"), (Kind::Switch, "s2")] {
            trust.issue(kind, name);
        }
        for role in Role::ALL {
            trust.issue(Kind::Operator(role), &role.to_string());
        }
        let file = trust.site.path("controller.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{text}[tls]\ndir = '{}'\n", controller.display())).unwrap();
        trust
    }

    fn issue(&self, kind: Kind, name: &str) -> PathBuf {
        self.authority.make(&Identity::new(kind, name).unwrap(), &[], 30).unwrap()
    }

    fn dir(&self, holder: &str) -> PathBuf {
        self.site.path("pki").join(holder)
    }

    fn tls(&self, holder: &str) -> Arc<Tls> {
        Tls::load(&Files::in_directory(self.dir(holder))).unwrap()
    }

    async fn channel(&self, holder: &str) -> Channel {
        connect_to(Kind::Controller, &self.url, Some(&self.tls(holder)), PATIENCE).await.unwrap()
    }

    async fn admin(&self) -> support::Client {
        api::client::northbound(self.channel("operator/admin").await)
    }

    /// Runs `fibula` against the controller with the certificate of this holder.
    fn fibula(&self, holder: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(FIBULA);
        command.args(arguments).env("FIBULA_CONTROLLER", &self.url).env("XDG_CONFIG_HOME", self.site.path("nowhere"));
        if !holder.is_empty() {
            command.env("FIBULA_TLS", self.dir(holder));
        }
        command.output().unwrap()
    }

    #[track_caller]
    fn refused(&self, holder: &str, arguments: &[&str], exit: i32, parts: &[&str]) {
        let output = self.fibula(holder, arguments);
        let said = stderr(&output);
        assert_eq!(exit_code(&output), exit, "{holder} {arguments:?}: {said} {}", stdout(&output));
        assert!(parts.iter().all(|part| said.contains(part)), "{holder} {arguments:?}: {said}");
    }

    /// Writes switch.toml and starts the switch `s1` with it.
    fn switch(&self, extra: &str) -> Process {
        Process::spawn(&["switch", "--config", self.switch_toml(extra).to_str().unwrap()])
    }

    fn switch_toml(&self, extra: &str) -> PathBuf {
        let (name, file) = ("s1", self.site.path("s1.toml"));
        let text = format!(
            "name = '{name}'\ncontroller = '{}'\nstate_dir = '{}'\n{extra}\n[tls]\ndir = '{}'\n",
            self.url,
            self.site.path("s1").display(),
            self.dir("switch/s1").display()
        );
        std::fs::write(&file, text).unwrap();
        file
    }

    fn audit(&self, arguments: &[&str]) -> Vec<serde_json::Value> {
        let config = self.site.path("controller.toml");
        let arguments = [&["-j", "audit", "show", "--config", config.to_str().unwrap()], arguments].concat();
        let output = self.fibula("", &arguments);
        assert_eq!(exit_code(&output), 0, "{}", stderr(&output));
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn replica() -> Replica<MemoryTables> {
    Replica::new(Limits::default(), MemoryTables::default())
}

/// What keeps a switch's stream open: its end of it, and the connection.
type Open = (mpsc::Sender<v1::FromSwitch>, Channel);

/// Says hello as a switch; the stream, or why not.
async fn attach(channel: Channel, switch: &str) -> Result<(Streaming<v1::ToSwitch>, Open), Status> {
    attach_as(channel, switch, true).await
}

async fn attach_as(channel: Channel, switch: &str, says_log: bool) -> Result<(Streaming<v1::ToSwitch>, Open), Status> {
    let report = Uplink::Report(replica().report()).encode().into();
    let (switch, version) = (switch.to_owned(), "test".to_owned());
    let hello = v1::Hello { switch, report, version, says_log, ..v1::Hello::default() };
    let (to_controller, outgoing) = mpsc::channel(1);
    to_controller.send(v1::FromSwitch { body: Some(Body::Hello(hello)) }).await.unwrap();
    let mut client = api::client::southbound(channel.clone());
    let answer = client.attach(ReceiverStream::new(outgoing)).await?;
    Ok((answer.into_inner(), (to_controller, channel)))
}

/// Why the controller refuses this certificate: said with the connection, or with the first request.
async fn refusal(url: &str, tls: &Arc<Tls>) -> String {
    match connect_to(Kind::Controller, url, Some(tls), PATIENCE).await {
        Err(error) => error.to_string(),
        Ok(channel) => {
            let status = api::client::northbound(channel).get_status(v1::GetStatusRequest {}).await.unwrap_err();
            api::client::reason(&status)
        }
    }
}

fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// What a stranger gets who speaks TLS without a certificate.
fn s_client(address: SocketAddr, arguments: &[&str]) -> String {
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", &address.to_string(), "-alpn", "h2", "-ign_eof"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // What a gRPC client sends first.
    let _ = child.stdin.take().unwrap().write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    let output = child.wait_with_output().unwrap();
    format!("{}{}", stdout(&output), stderr(&output))
}

/// What a client gets that sends this in the clear.
fn in_the_clear(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_gets_nothing_from_any_listener() {
    let trust = Trust::new();
    let _controller = trust.site.start();
    let admin = trust.admin().await;
    support::add_full_mesh(&mut admin.clone(), 1).await;
    let (lookup, flow) = (free_address(), free_address());
    let _switch = trust.switch(&format!("lookup = '{lookup}'\nflow.control = '{flow}'"));
    eventually("the switch in step", async || support::in_step(&admin).await == 1).await;

    let north: SocketAddr = trust.url.trim_start_matches("https://").parse().unwrap();
    let has_openssl = Command::new("openssl").arg("version").output().is_ok_and(|output| output.status.success());
    if !has_openssl {
        netio::testkit::missing("openssl, which says what is agreed in TLS");
    }
    let get = b"GET /lookup?name=02:00:00:00:00:01 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    for address in [north, lookup, flow] {
        for bytes in [&get[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"] {
            let answer = in_the_clear(address, bytes);
            let is_alert = answer.is_empty() || answer.len() == 7 && answer[0] == 21;
            assert!(is_alert, "{address}: {}", String::from_utf8_lossy(&answer));
        }
        if has_openssl {
            let said = s_client(address, &[]);
            assert!(said.contains("certificate required"), "{said}");
            let said = s_client(address, &["-tls1_2"]);
            assert!(said.contains("protocol version"), "{said}");
        }
    }

    // A plain gRPC client, and one whose certificate is of another authority.
    let url = format!("http://{north}");
    let mut plain = api::client::northbound(api::client::connect(&url, PATIENCE).await.unwrap());
    let error = plain.get_status(v1::GetStatusRequest {}).await.unwrap_err();
    assert!(api::client::reason(&error).contains("https://"), "{error:?} {}", api::client::reason(&error));
    let other = Authority::create(&trust.site.path("other")).unwrap();
    let files = other.make(&Identity::new(Kind::Operator(Role::Admin), "mallory").unwrap(), &[], 30).unwrap();
    let said = stderr(&trust.fibula("", &["name", "count", "--tls", files.to_str().unwrap()]));
    assert!(said.contains("another authority"), "{said}");
    let files = Files { ca: Some(trust.dir("operator/admin").join("ca.pem")), ..Files::in_directory(&files) };
    let tls = Tls::load(&files).unwrap();
    let said = refusal(&trust.url, &tls).await;
    assert!(said.contains("another authority"), "{said}");

    trust.refused("", &["name", "count"], 2, &["takes a certificate", "--tls", "fibula pki issue"]);
    let turned = trust.audit(&["--outcome", "turned-away"]);
    assert!(!turned.is_empty() && turned.iter().all(|record| record["who"] == "-"), "{turned:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_may_do_its_own_and_no_more() {
    let trust = Trust::new();
    let _controller = trust.site.start();
    let done = |holder: &str, arguments: &[&str]| {
        let output = trust.fibula(holder, arguments);
        assert_eq!(exit_code(&output), 0, "{holder} {arguments:?}: {}", stderr(&output));
    };
    done("operator/admin", &["switch", "add", "s1"]);
    done("operator/writer", &["host", "add", "h1", "s1:1"]);
    done("operator/writer", &["name", "add", &mac(1), "h1"]);
    for read in [&["name", "list"][..], &["name", "export"], &["switch", "list"], &["host", "list"], &["link", "list"]]
    {
        for role in Role::ALL {
            done(&format!("operator/{role}"), read);
        }
        trust.refused("switch/s1", read, 5, &["switch s1 may not", "the role reader"]);
    }
    let writes: [&[&str]; 5] = [
        &["name", "set", &mac(1), "h1"],
        &["name", "del", &mac(1)],
        &["host", "add", "h2", "s1:2"],
        &["host", "del", "h1"],
        &["link", "add", "s1:8", "s2:8"],
    ];
    for write in writes {
        trust.refused("operator/reader", write, 5, &["operator reader (reader) may not", "--role writer"]);
        trust.refused("switch/s1", write, 5, &["the role writer"]);
    }
    let copy = trust.site.path("copy");
    for holder in ["operator/reader", "operator/writer", "switch/s1", "controller/c1"] {
        trust.refused(holder, &["switch", "add", "s2"], 5, &["may not", "--role admin"]);
        trust.refused(holder, &["switch", "del", "s1"], 5, &["may not", "--role admin"]);
        // The store has the hash key.
        trust.refused(holder, &["store", "backup", "--to", copy.to_str().unwrap()], 5, &["may not", "--role admin"]);
        assert!(!copy.exists());
    }
    assert_eq!(
        stdout(&trust.fibula("operator/admin", &["-j", "name", "count"])),
        "{\"names\":1,\"max_names\":1000000}\n"
    );

    // What happened, by whom.
    let changes: Vec<String> = trust
        .audit(&["--outcome", "done"])
        .iter()
        .map(|r| format!("{} {} {} {} {}", r["who"], r["role"], r["what"], r["detail"], r["changed"]).replace('"', ""))
        .collect();
    assert_eq!(
        changes,
        [
            "admin admin add_switch s1 1".to_owned(),
            "writer writer add_hosts h1 at s1:1 1".to_owned(),
            format!("writer writer add_names {} at h1 1", mac(1)),
        ]
    );
    let turned = trust.audit(&["--outcome", "turned-away", "--who", "reader", "--since", "1h"]);
    assert!(turned.iter().any(|r| r["what"] == "/fibula.v1.Northbound/RemoveNames"), "{turned:?}");
    assert!(trust.audit(&["--since", "2100-01-01"]).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn rekey_takes_an_admin_who_says_yes_and_gives_every_switch_another_table() {
    let trust = Trust::new();
    let _controller = trust.site.start();
    let admin = trust.admin().await;
    support::add_full_mesh(&mut admin.clone(), 1).await;
    let names = (0..500).map(|i| support::record(i, "h1")).collect();
    admin.clone().put_names(v1::PutNamesRequest { names, only_new: true }).await.unwrap();
    let (mut stream, (to_controller, _channel)) = attach(trust.channel("switch/s1").await, "s1").await.unwrap();

    trust.refused("operator/admin", &["rekey"], 2, &["every switch", "--yes"]);
    trust.refused("operator/writer", &["rekey", "--yes"], 5, &["may not", "--role admin"]);
    let mut replica = replica();
    let mut receive = async |until: &dyn Fn(u32, usize) -> bool| {
        loop {
            let message = stream.message().await.unwrap().expect("the stream goes on");
            replica.receive(&message.message).unwrap();
            let ack = v1::Ack { sequence: message.sequence };
            to_controller.send(v1::FromSwitch { body: Some(Body::Ack(ack)) }).await.unwrap();
            let table = replica.report().table;
            if until(table, replica.tables().valid.len()) && !replica.report().shards.is_empty() {
                return table;
            }
        }
    };
    let before = receive(&|_, n_names| n_names == 500).await;
    let rekeyed = trust.fibula("operator/admin", &["-j", "rekey", "--yes"]);
    assert_eq!((exit_code(&rekeyed), &stdout(&rekeyed)[..]), (0, "{\"names\":500}\n"), "{}", stderr(&rekeyed));
    let after = receive(&|table, _| table != before).await;
    assert_ne!(before, after);
    trust.refused("operator/admin", &["rekey", "--yes"], 5, &["rates.rekey_pause_s"]);
    let recorded = trust.audit(&["--who", "admin", "--outcome", "done"]);
    assert!(recorded.iter().any(|r| r["what"] == "rekey" && r["changed"] == 500), "{recorded:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_the_hash_key_go_only_to_the_switch_of_that_name() {
    let trust = Trust::new();
    let _controller = trust.site.start();
    let admin = trust.admin().await;
    support::add_full_mesh(&mut admin.clone(), 2).await;
    let names = vec![support::record(1, "h1")];
    admin.clone().put_names(v1::PutNamesRequest { names, only_new: true }).await.unwrap();

    for (holder, word) in [
        ("switch/s2", "switch s2 may not attach as switch `s1`"),
        ("operator/writer", "fibula pki issue switch"),
        ("operator/admin", "fibula pki issue switch"),
        ("controller/c1", "fibula pki issue switch"),
    ] {
        let status = attach(trust.channel(holder).await, "s1").await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{holder}");
        assert!(status.message().contains(word), "{holder}: {}", status.message());
    }
    let (mut stream, _open) = attach(trust.channel("switch/s1").await, "s1").await.unwrap();
    assert!(stream.message().await.unwrap().is_some());
    // The stream of the real one goes on while others try.
    attach(trust.channel("switch/s2").await, "s1").await.unwrap_err();
    let connected = admin.clone().list_switches(v1::ListSwitchesRequest {}).await.unwrap().into_inner().switches;
    assert!(connected.iter().find(|switch| switch.name == "s1").unwrap().connected);

    // A switch does not take somebody else for the controller, whose certificate is of the same authority.
    let imposter = trust.tls("switch/s2");
    let gate = api::gate::Gate::new(Some(imposter), false, Guard::new(PeerLimits::default()), None);
    let listener = gate.listen(&"127.0.0.1:0".parse().unwrap(), false).await.unwrap();
    let url = format!("https://{}", listener.address());
    let error = connect_to(Kind::Controller, &url, Some(&trust.tls("switch/s1")), PATIENCE).await.unwrap_err();
    assert!(error.to_string().contains("not that of a controller"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_renewed_and_revoked_while_all_runs() {
    let trust = Trust::new();
    let controller_toml = trust.site.path("controller.toml");
    let status = free_address();
    let text = std::fs::read_to_string(&controller_toml).unwrap();
    std::fs::write(&controller_toml, format!("status = '{status}'\n{text}")).unwrap();
    let _controller = trust.site.start();
    let admin = trust.admin().await;
    support::add_full_mesh(&mut admin.clone(), 2).await;
    let (s1, s2) = (trust.tls("switch/s1"), trust.tls("switch/s2"));
    Tls::watch(&s1);
    for (name, tls) in [("s1", &s1), ("s2", &s2)] {
        let shared = agent::Shared::new(replica());
        let memory: Arc<dyn agent::About> = Arc::new(|| api::memory::usage(10, &[("fib", 25)]));
        tokio::spawn(agent::run(name.to_owned(), trust.url.clone(), Some(Arc::clone(tls)), shared, memory));
    }
    let connected = async |wanted: &[&str]| {
        let switches = admin.clone().list_switches(v1::ListSwitchesRequest {}).await.unwrap().into_inner().switches;
        let names: Vec<&str> = switches.iter().filter(|s| s.connected).map(|s| s.name.as_str()).collect();
        names == wanted
    };
    eventually("both switches connected", async || connected(&["s1", "s2"]).await).await;

    // A renewed certificate is read without a restart; the one before can be revoked then.
    let before: Vec<String> =
        trust.authority.issued().unwrap().into_iter().map(|issued| issued.certificate.serial).collect();
    trust.authority.renew("controller", "c1", &[], 30).unwrap();
    trust.authority.renew("switch", "s1", &[], 30).unwrap();
    let c1 = trust.authority.issued().unwrap();
    let old = |kind: &str| {
        let mut of = c1
            .iter()
            .filter(|i| i.certificate.identity.kind().word() == kind && before.contains(&i.certificate.serial));
        of.next().unwrap().certificate.serial.clone()
    };
    assert_eq!(trust.authority.revoke("controller", "c1", Some(&old("controller"))).unwrap(), 1);

    // The connection of a revoked certificate ends, and there is no other.
    assert_eq!(trust.authority.revoke("switch", "s2", None).unwrap(), 1);
    eventually("only s1 connected", async || connected(&["s1"]).await).await;
    // It may see the end of the connection before it sees why.
    let s2 = trust.tls("switch/s2");
    let says_why = async || refusal(&trust.url, &s2).await.contains("our certificate is revoked");
    eventually("s2 refused with the reason", says_why).await;
    trust.authority.revoke("operator", "writer", None).unwrap();
    let revoked = async || {
        let output = trust.fibula("operator/writer", &["name", "count"]);
        exit_code(&output) == 4 && stderr(&output).contains("our certificate is revoked")
    };
    eventually("the writer refused", revoked).await;

    let page = in_the_clear(status, b"GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n");
    let page = String::from_utf8_lossy(&page);
    let metric = page.lines().find(|line| line.starts_with("fibula_turned_away_total{reason=\"handshake\"}")).unwrap();
    assert!(metric.rsplit(' ').next().unwrap().parse::<u64>().unwrap() >= 2, "{metric}");
    assert!(page.contains("fibula_certificate_expires_seconds "), "{page}");
    assert!(page.contains("fibula_certificate_files_refused 0\n"), "{page}");

    // Files of somebody else are not taken: who connects still finds a controller.
    for name in ["key.pem", "cert.pem"] {
        std::fs::copy(trust.dir("operator/admin").join(name), trust.dir("controller/c1").join(name)).unwrap();
    }
    let refused = async || {
        let page = in_the_clear(status, b"GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n");
        String::from_utf8_lossy(&page).contains("fibula_certificate_files_refused 1\n")
    };
    eventually("the files of the operator refused", refused).await;
    // Panics if the controller that is there is none.
    trust.channel("operator/admin").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_changes_what_daemons_log_while_they_run() {
    let trust = Trust::new();
    let [of_controller, of_switch] = ["controller.log", "s1.log"].map(|file| trust.site.path(file));
    let config = trust.site.path("controller.toml");
    let _controller = Process::logging(&["controller", "--config", config.to_str().unwrap()], &of_controller);
    let mut admin = trust.admin().await;
    support::add_full_mesh(&mut admin, 2).await;
    let config = trust.switch_toml("lookup = '127.0.0.1:0'");
    let _switch = Process::logging(&["switch", "--config", config.to_str().unwrap()], &of_switch);
    eventually("the switch in step", async || support::in_step(&admin).await == 1).await;

    let done = |holder: &str, arguments: &[&str]| {
        let output = trust.fibula(holder, arguments);
        assert_eq!(exit_code(&output), 0, "{holder} {arguments:?}: {}", stderr(&output));
        stdout(&output)
    };
    let shown = |of: &[&str]| -> (String, String) {
        let row: serde_json::Value = serde_json::from_str(&done("operator/reader", &[&["-j"], of].concat())).unwrap();
        let text = |key: &str| row[key].as_str().unwrap().to_owned();
        (text("filter"), text("at_start"))
    };
    let logged = |file: &Path, part: &str| std::fs::read_to_string(file).unwrap().contains(part);
    let both = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(shown(&["switch", "log", "s1"]), both("warn", "warn"));
    assert_eq!(shown(&["controller", "log"]), both("warn", "warn"));
    assert!(!logged(&of_controller, "DEBUG") && !logged(&of_switch, "INFO"));

    let filter = "info,fibula_switch=debug";
    let said = done("operator/admin", &["switch", "log", "s1", filter]);
    assert_eq!(said, format!("s1 logs by `{filter}`; it was `warn`, and `warn` at the start\n"));
    assert!(logged(&of_switch, "the controller changed the log filter"));
    assert_eq!(shown(&["switch", "log", "s1"]), both(filter, "warn"));
    assert!(!logged(&of_switch, "DEBUG"));
    done("operator/admin", &["switch", "log", "s1", "info,h2=debug"]);
    eventually("the switch logs more", async || logged(&of_switch, "DEBUG")).await;
    // One that ends the log is its last line.
    let said_before = |file: &Path| {
        let text = std::fs::read_to_string(file).unwrap();
        text.lines().filter(|line| line.contains("the log filter changes") && line.contains("\"off\"")).count()
    };
    done("operator/admin", &["switch", "log", "s1", "off"]);
    assert_eq!(said_before(&of_switch), 1);
    done("operator/admin", &["switch", "log", "s1", filter]);
    done("operator/admin", &["controller", "log", "debug"]);
    let says_more = async || {
        admin.clone().get_status(v1::GetStatusRequest {}).await.unwrap();
        logged(&of_controller, "DEBUG")
    };
    eventually("the controller logs more", says_more).await;
    done("operator/admin", &["controller", "log", "off"]);
    assert_eq!(said_before(&of_controller), 1);
    done("operator/admin", &["controller", "log", "warn"]);
    assert_eq!(shown(&["controller", "log"]), both("warn", "warn"));

    // Whoever may not, what is no filter, and who cannot be asked.
    trust.refused("operator/writer", &["switch", "log", "s1", "debug"], 5, &["the role admin"]);
    trust.refused("operator/writer", &["controller", "log", "debug"], 5, &["the role admin"]);
    // Nor may they see what others say to each other, nor end it; reading which flows there are is for readers.
    trust.refused("operator/writer", &["capture", "s1:all"], 5, &["the role admin"]);
    trust.refused("operator/writer", &["flow", "flush", "--all", "--switch", "s1"], 5, &["the role admin"]);
    trust.refused("operator/reader", &["flow", "show", "--switch", "s1"], 5, &["switch `s1`", "a section [flow]"]);
    trust.refused("operator/admin", &["capture", "s1:all"], 4, &["switch `s1`: switch s1 has no ports"]);
    trust.refused("operator/admin", &["switch", "log", "s1", "degub"], 3, &["`degub`", "TARGET=LEVEL"]);
    trust.refused(
        "operator/admin",
        &["switch", "log", "s1", "\u{a0}[take]=debug"],
        3,
        &["character 1", "TARGET=LEVEL"],
    );
    trust.refused("operator/admin", &["controller", "log", "h2=off"], 3, &["put one first: info,h2=off"]);
    trust.refused("operator/admin", &["controller", "log", "degub"], 3, &["`degub`", "TARGET=LEVEL"]);
    trust.refused("operator/admin", &["controller", "log", ""], 3, &["is empty"]);
    trust.refused("operator/admin", &["controller", "log", &"x".repeat(2000)], 3, &["2000 bytes"]);
    trust.refused("operator/admin", &["switch", "log", "s9", "debug"], 4, &["no switch `s9`"]);
    trust.refused("operator/reader", &["switch", "log", "s2"], 5, &["`s2` is not connected"]);
    assert_eq!(shown(&["switch", "log", "s1"]), both(filter, "warn"));

    let audit = trust.audit(&[]);
    let has = |who: &str, detail: &str, outcome: &str| {
        audit.iter().any(|row| row["who"] == who && row["detail"] == detail && row["outcome"] == outcome)
    };
    assert!(has("admin", &format!("switch s1: {filter}"), "done"), "{audit:#?}");
    assert!(has("admin", "the controller: debug", "done"), "{audit:#?}");
    assert!(has("admin", "switch s1: degub", "refused"), "{audit:#?}");
    let is_turned_away =
        |row: &&serde_json::Value| row["who"] == "writer" && row["what"] == "/fibula.v1.Northbound/SetLog";
    assert_eq!(audit.iter().filter(is_turned_away).count(), 2, "{audit:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_what_is_logged_is_recorded_when_nobody_waits_for_it_or_nobody_answers() {
    let trust = Trust::new();
    let _controller = trust.site.start();
    let admin = trust.admin().await;
    support::add_full_mesh(&mut admin.clone(), 1).await;
    let (mut stream, (to_controller, channel)) = attach(trust.channel("switch/s1").await, "s1").await.unwrap();
    let change = |filter: &str| {
        let (mut admin, filter) = (admin.clone(), filter.to_owned());
        tokio::spawn(async move { admin.set_log(v1::SetLogRequest { switch: "s1".to_owned(), filter }).await })
    };
    let recorded = |filter: &str, outcome: &str| {
        let detail = format!("switch s1: {filter}");
        let is_it =
            |row: &serde_json::Value| row["what"] == "set_log" && row["detail"] == detail && row["outcome"] == outcome;
        trust.audit(&[]).iter().filter(|row| is_it(row)).count()
    };
    let mut asked = async || loop {
        let message = stream.message().await.unwrap().expect("the stream goes on");
        if let Some(asked) = message.log {
            return asked;
        }
    };

    // Whoever asked goes away before the switch answers.
    let changing = change("debug");
    let question = asked().await;
    assert_eq!(question.filter, "debug");
    changing.abort();
    assert!(changing.await.unwrap_err().is_cancelled());
    // On the same connection, so the controller knows that nobody waits.
    admin.clone().get_status(v1::GetStatusRequest {}).await.unwrap();
    let state = v1::LogState { filter: "debug".to_owned(), at_start: "info".to_owned(), before: "info".to_owned() };
    let said = v1::SaidLog { number: question.number, state: Some(state), error: String::new() };
    to_controller.send(v1::FromSwitch { body: Some(Body::Log(said)) }).await.unwrap();
    eventually("the change is recorded", async || recorded("debug", "done") == 1).await;

    // The switch goes away before it answers.
    let changing = change("trace");
    asked().await;
    drop((to_controller, channel, stream));
    let status = changing.await.unwrap().unwrap_err();
    assert!(status.message().contains("`fibula switch log s1` shows it"), "{status}");
    assert_eq!((recorded("trace", "unanswered"), recorded("trace", "refused")), (1, 0));

    // One that would not understand it is not asked.
    let _earlier = attach_as(trust.channel("switch/s1").await, "s1", false).await.unwrap();
    trust.refused(
        "operator/admin",
        &["switch", "log", "s1", "debug"],
        5,
        &["`s1` has an earlier version", "update it"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_is_refused() {
    let trust = Trust::new();
    let _controller = trust.site.start();
    let identity = Identity::new(Kind::Operator(Role::Admin), "late").unwrap();
    trust.authority.make_until(&identity, &[], -60).unwrap();
    trust.refused("operator/late", &["name", "count"], 4, &["our certificate has expired", "fibula pki renew"]);
}

#[test]
fn two_machines_are_set_up_in_five_commands() {
    let directory = tempfile::tempdir().unwrap();
    let pki = directory.path().join("pki");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(FIBULA);
        command.arg("pki").args(arguments).env("FIBULA_PKI", &pki).env("XDG_CONFIG_HOME", directory.path());
        command.output().unwrap()
    };
    let done = |arguments: &[&str]| {
        let output = run(arguments);
        assert_eq!(exit_code(&output), 0, "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    };
    done(&["init"]);
    done(&["issue", "controller", "c1", "--address", "10.0.0.1"]);
    let said = done(&["issue", "switch", "s1", "s2"]);
    assert!(said.contains("switch s2: ") && said.contains("[tls]"), "{said}");
    assert!(said.contains("fibula pki renew switch s1 --address ADDRESS"), "{said}");
    let said = done(&["issue", "operator", "alice", "--role", "admin", "--install"]);
    let copied = directory.path().join("fibula/tls");
    assert!(said.contains(&format!("copied to {}", copied.display())) && said.contains("key.pem"), "{said}");
    let shown = done(&["show"]);
    let rows: Vec<&str> = shown.lines().skip(1).collect();
    assert_eq!(rows.len(), 4, "{shown}");
    assert!(rows.iter().all(|row| row.contains(" valid ")) && rows[0].contains("10.0.0.1"), "{shown}");
    assert!(directory.path().join("fibula/tls/key.pem").exists());

    let refused = |arguments: &[&str], exit: i32, part: &str| {
        let output = run(arguments);
        assert!(exit_code(&output) == exit && stderr(&output).contains(part), "{arguments:?}: {}", stderr(&output));
    };
    refused(&["init"], 5, "exists already");
    refused(&["issue", "switch", "s1"], 5, "fibula pki renew");
    refused(&["issue", "switch", "s3", "a b"], 2, "is not a valid name");
    refused(&["issue", "operator", "bob"], 2, "--role");
    refused(&["issue", "operator", "bob", "--role", "root"], 2, "reader, writer and admin");
    refused(&["issue", "controller", "c2", "--address", "10.0.0.1/24"], 2, "neither a host name");
    refused(&["revoke", "switch", "s9"], 4, "fibula pki show");
    refused(&["renew"], 2, "--within");
    refused(&["show", "--pki", "/nonexistent"], 4, "fibula pki init");
    assert!(done(&["renew", "--within", "400"]).lines().count() == 4);
    assert_eq!(done(&["renew", "--within", "300"]), "no certificate expires by then\n");
    assert!(done(&["revoke", "switch", "s2"]).starts_with("2 certificates of switch s2 revoked"));
    assert_eq!(done(&["show"]).matches(" revoked ").count(), 2);
    done(&["issue", "switch", "s4", "--address", "10.0.0.4:4602"]);
    let addresses = |holder: &str| {
        let shown = done(&["-j", "show"]);
        let mut rows = shown.lines().map(|row| serde_json::from_str::<serde_json::Value>(row).unwrap());
        let last = rows.rfind(|row| row["name"] == holder).unwrap();
        last["addresses"].as_str().unwrap().to_owned()
    };
    assert!(addresses("s4").contains("10.0.0.4") && !addresses("s4").contains("4602"), "{}", addresses("s4"));
    assert!(!addresses("s1").contains("10.0.0.11"));
    done(&["renew", "switch", "s1", "--address", "10.0.0.11", "--days", "500"]);
    assert!(addresses("s1").contains("10.0.0.11") && addresses("s1").contains("localhost"), "{}", addresses("s1"));
    done(&["renew", "switch", "s4", "--days", "500"]);
    assert!(addresses("s4").contains("10.0.0.4"), "they stay where none are given");
    refused(&["renew", "operator", "alice", "--address", "10.0.0.9"], 2, "leave out --address");
}

#[test]
fn daemons_say_how_to_make_certificates_and_check_them() {
    let trust = Trust::new();
    let config = trust.site.path("controller.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let check = |text: &str| {
        std::fs::write(&config, text).unwrap();
        trust.fibula("", &["controller", "--check", "--config", config.to_str().unwrap()])
    };
    assert_eq!(exit_code(&check(&text)), 0);
    let without = text.split("[tls]").next().unwrap().replace("127.0.0.1", "0.0.0.0");
    for (text, part) in [
        (&without, "fibula pki init"),
        (&text.replace("controller/c1", "switch/s1"), "that of switch s1"),
        (&text.replace("controller/c1", "nobody"), "cert.pem"),
    ] {
        let output = check(text);
        assert!(exit_code(&output) == 2 && stderr(&output).contains(part), "{}", stderr(&output));
    }
    assert_eq!(exit_code(&check(&format!("insecure = true\n{without}"))), 0);

    let file = trust.site.path("s1.toml");
    let text = |dir: &Path| {
        format!(
            "name = 's1'\ncontroller = 'https://10.0.0.1:4600'\nstate_dir = '/tmp'\nlookup = '127.0.0.1:4603'\n[tls]\ndir = '{}'\n",
            dir.display()
        )
    };
    for (holder, exit, part) in [("switch/s1", 0, ""), ("switch/s2", 2, "fibula pki issue switch s1")] {
        std::fs::write(&file, text(&trust.dir(holder))).unwrap();
        let output = trust.fibula("", &["switch", "--check", "--config", file.to_str().unwrap()]);
        assert!(exit_code(&output) == exit && stderr(&output).contains(part), "{}", stderr(&output));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_goes_on_when_the_client_and_its_certificate_are_let_go_of() {
    let trust = Trust::new();
    let _controller = trust.site.start();
    let admin = trust.admin().await;
    let mut events = {
        let mut client = api::client::northbound(trust.channel("operator/admin").await);
        client.watch(v1::WatchRequest::default()).await.unwrap().into_inner()
    };
    support::add_full_mesh(&mut admin.clone(), 1).await;
    let event = tokio::time::timeout(PATIENCE, events.message()).await.expect("an event comes");
    assert!(event.unwrap().is_some());
}
