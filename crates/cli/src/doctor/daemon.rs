//! Checks for both daemons: addresses, certificates, disk space, and what a running daemon reports.

use super::address::{self, reachable};
use super::service::{Process, Service, State};
use super::way::look_at_way;
use super::{Findings, PATIENCE};
use crate::machine;
use ::controller::config::{Config as Controller, Place};
use ::switch::daemon::config::Config as Switch;
use api::address::Address;
use api::clock;
use api::tls::{Files, Tls};
use serde_json::Value;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

/// Less free space than this is little on any disk.
const LITTLE_ROOM: u64 = 1 << 30;
/// With less free space than this, the next write may fail.
const NO_ROOM: u64 = 64 << 20;
/// Days before a certificate expires at which doctor warns, as daemons do.
const WARN_DAYS: i64 = 14;
const DAY_S: i64 = 86_400;

pub(super) async fn look_at_controller(config: &Controller, service: &Service, findings: &mut Findings) {
    let is_open = config.tls.is_none() || config.metrics_open;
    let status = look_at_status(config.status.as_ref(), is_open, service, "127.0.0.1:4601", findings).await;
    look_at_certificate(config.tls.as_ref(), None, findings);
    match &config.store {
        Place::File(path) => look_at_room("store", path, findings),
        Place::Etcd(address) => {
            for member in &address.members {
                let reached = tokio::time::timeout(PATIENCE, TcpStream::connect(member.as_str())).await;
                match reached.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                    Ok(_) => findings.ok("store", format!("etcd answers at {member}")),
                    Err(error) => findings.warn(
                        "store",
                        format!("etcd does not answer at {member}: {error}; start it, or check the network"),
                    ),
                }
            }
        }
    }
    address::look_at("listen", &config.listen, service, findings).await;
    if let Some(at) = &config.status {
        address::look_at("status", at, service, findings).await;
    }
    let Some(status) = status else { return };
    if let Some(leader) = status["follows"].as_object() {
        findings.ok("controller", format!("runs, and follows {}", Value::from(leader.clone())));
    } else {
        findings.ok("controller", format!("runs, with {} names", status["names"]));
    }
    for switch in status["connected"].as_array().into_iter().flatten() {
        let name = switch["name"].as_str().unwrap_or_default();
        let what = format!("switch {name}");
        match (switch["cannot_follow"].as_str(), switch["in_step"].as_bool()) {
            (Some(why), _) => findings.bad(what, format!("cannot follow: {why}")),
            (None, Some(true)) => findings.ok(what, "is in step"),
            _ => findings.warn(what, "is not in step yet; look again in a moment"),
        }
    }
    let tries_values = [config.gateway_design, config.core_design].iter().any(|design| design.tries_values);
    if !tries_values {
        look_at_values(config.value_bits, &status, findings);
    }
    let (n_known, n_connected) = (status["switches"].as_u64(), status["connected"].as_array().map(Vec::len));
    if let (Some(known), Some(connected)) = (n_known, n_connected)
        && known > connected as u64
    {
        let away = known - connected as u64;
        findings
            .warn("switches", format!("{away} of {known} are not connected here; `fibula switch list` shows which"));
    }
}

/// Whether switches share values because there are too few. With a design that tries one value after another all share,
/// as is documented there.
fn look_at_values(value_bits: u8, status: &Value, findings: &mut Findings) {
    let connected = status["connected"].as_array().into_iter().flatten();
    let sharing: Vec<u64> = connected.filter_map(|switch| switch["sharing"].as_u64()).filter(|n| *n > 0).collect();
    let Some(most) = sharing.iter().max() else { return };
    let n = sharing.len();
    findings.warn(
        "value_bits",
        format!(
            "{value_bits} bits are too few: at {n} of the connected switches, up to {most} others with hosts share a value, so failures heal and flows spread less well; `fibula switch list` shows where; only a new network with value_bits = 16 has more"
        ),
    );
}

pub(super) async fn look_at_switch(config: &Switch, service: &Service, findings: &mut Findings) {
    let is_open = config.tls.is_none() || config.metrics_open;
    let status = look_at_status(config.status.as_ref(), is_open, service, "127.0.0.1:4602", findings).await;
    let tls = look_at_certificate(config.tls.as_ref(), Some(&config.name), findings);
    look_at_room("state_dir", &config.state_dir, findings);
    let control = config.flow.as_ref().and_then(|flow| flow.control.as_ref());
    let listeners = [
        ("status", config.status.as_ref()),
        ("lookup", config.lookup.as_ref()),
        ("control", config.control.as_ref()),
        ("flow.control", control),
    ];
    for (key, address) in listeners {
        if let Some(address) = address {
            // A switch creates its directory at the first start.
            let is_in_state = |path: &Path| path.parent() == Some(config.state_dir.as_path());
            if let Address::Unix { path, .. } = address
                && is_in_state(path)
                && !config.state_dir.exists()
            {
                findings.ok(key, format!("{address}: the switch creates its directory"));
                continue;
            }
            address::look_at(key, address, service, findings).await;
        }
    }
    for url in config.controller.split(',').map(str::trim) {
        if tls.is_some() || config.tls.is_none() {
            look_at_way(url, tls.as_ref(), findings).await;
        } else {
            findings.untried("controller", format!("{url} requires the certificate, which cannot be used"));
        }
    }
    if let Some(status) = status {
        look_at_running_switch(&status, findings);
    }
}

fn look_at_running_switch(status: &Value, findings: &mut Findings) {
    let controller = &status["controller"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if controller["connected"] != true {
        let why = text(&controller["last_error"]);
        findings.bad("switch", format!("runs, but no controller serves it: {why}"));
    } else if !text(&controller["cannot_follow"]).is_empty() {
        findings.bad("switch", format!("runs, but cannot follow: {}", text(&controller["cannot_follow"])));
    } else {
        findings.ok("switch", format!("runs, and serves change {} of the network", status["serving_version"]));
    }
    if status["workers"]["running"] != status["workers"]["configured"] {
        findings.bad(
            "workers",
            format!("{} of {} run; restart the switch", status["workers"]["running"], status["workers"]["configured"]),
        );
    }
    if status["saved_image"]["failures_in_a_row"].as_u64().unwrap_or(0) > 0 {
        findings.bad("saved image", format!("cannot be written: {}", text(&status["saved_image"]["last_error"])));
    }
    for port in status["ports"].as_array().into_iter().flatten().filter(|port| port["up"] == false) {
        findings.bad(format!("port {}", port["id"]), format!("is down: {}", text(&port["last_error"])));
    }
    for port in status["ports"].as_array().into_iter().flatten() {
        for (reason, n) in port["lost"].as_object().into_iter().flatten() {
            let why = api::drops::why(reason);
            findings.warn(
                format!("port {}", port["id"]),
                format!("{} lost {n} frames since the switch started ({reason}). {why}", text(&port["device"])),
            );
        }
    }
    let drops = status["drops"].as_object().into_iter().flatten();
    let is_of_port = |reason: &str| {
        status["ports"].as_array().into_iter().flatten().any(|port| port["lost"][reason].as_u64().unwrap_or(0) > 0)
    };
    for (reason, n) in drops.filter(|(reason, _)| !is_of_port(reason)) {
        if api::drops::worth_an_event(reason) == Some(0.0) {
            let why = api::drops::why(reason);
            findings.warn("drops", format!("the switch dropped {n} frames since it started ({reason}). {why}"));
        }
    }
}

/// Returns the certificate if it is usable.
fn look_at_certificate(files: Option<&Files>, switch: Option<&str>, findings: &mut Findings) -> Option<Arc<Tls>> {
    let Some(files) = files else {
        findings.warn(
            "certificate",
            "there is none: anyone who can reach the daemon may do anything; start with `fibula pki init`",
        );
        return None;
    };
    match Tls::load_for(files, switch) {
        Err(error) => {
            findings.bad("certificate", error);
            None
        }
        Ok(tls) => {
            let days = (tls.not_after() - clock::unix_seconds()).div_euclid(DAY_S);
            let identity = tls.identity();
            let renew = "issue another with `fibula pki renew`, and copy it here";
            match days {
                ..0 => findings
                    .bad("certificate", format!("the one of {identity} has expired, or the clock is wrong; {renew}")),
                0..WARN_DAYS => {
                    findings.warn("certificate", format!("the one of {identity} is valid for {days} days; {renew}"))
                }
                _ => findings.ok("certificate", format!("the one of {identity} is valid for {days} days")),
            }
            Some(tls)
        }
    }
}

fn look_at_room(what: &str, path: &Path, findings: &mut Findings) {
    let shown = path.display();
    match machine::room(path) {
        Ok((free, _)) if free < NO_ROOM => {
            findings.bad(what, format!("{} MiB are free at {shown}; make room", free >> 20));
        }
        Ok((free, _)) if free < LITTLE_ROOM => {
            findings.warn(what, format!("{} MiB are free at {shown}; make room before it is full", free >> 20));
        }
        Ok((free, _)) => findings.ok(what, format!("{} GiB are free at {shown}", free >> 30)),
        Err(error) => findings.bad(what, format!("{shown} cannot be checked: {error}")),
    }
}

/// The outcome of asking a daemon of this machine for its status page.
enum Page {
    Says(Value),
    /// The page requires a certificate, which doctor does not have.
    WantsCertificate,
    /// Connections are accepted, but nothing is sent.
    Silent,
    Nobody(io::Error),
    /// The answer is not from a daemon.
    Odd,
}

/// Asks for the page. `is_open`: it requires no certificate even where other machines can reach it.
async fn ask(at: &Address, is_open: bool) -> Page {
    if !is_open && at.is_remote() {
        return Page::WantsCertificate;
    }
    let connected = tokio::time::timeout(PATIENCE, async {
        Ok(match at {
            Address::Tcp(at) => Ok(TcpStream::connect(reachable(*at)).await?),
            Address::Unix { path, .. } => Err(UnixStream::connect(path).await?),
        })
    });
    let stream = match connected.await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Page::Nobody(error),
        Err(_) => return Page::Silent,
    };
    let answer = tokio::time::timeout(PATIENCE, async {
        match stream {
            Ok(stream) => get(stream).await,
            Err(stream) => get(stream).await,
        }
    });
    let Ok(answer) = answer.await else { return Page::Silent };
    let text = answer.unwrap_or_default();
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).ok().filter(|value: &Value| value["version"].is_string()).map_or(Page::Odd, Page::Says)
}

async fn get(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin) -> io::Result<String> {
    // With HTTP/1.0, the answer is complete and ends with the connection.
    stream.write_all(b"GET /status HTTP/1.0\r\nHost: localhost\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

/// Reports whether the daemon runs and answers, and returns its status.
async fn look_at_status(
    at: Option<&Address>,
    is_open: bool,
    service: &Service,
    default: &str,
    findings: &mut Findings,
) -> Option<Value> {
    let Some(at) = at else {
        service.look_at(false, findings);
        findings.warn("status", format!("there is no status page to ask; configure status = \"{default}\""));
        return None;
    };
    if service.process().is_some_and(|process| process.is_stopped) {
        service.look_at(false, findings);
        findings.untried("status", "the process is stopped");
        return None;
    }
    let page = ask(at, is_open).await;
    service.look_at(matches!(page, Page::Says(_)), findings);
    let (look, restart) = (service.look(), service.restart());
    match (page, service.state()) {
        (Page::Says(status), _) => return Some(status),
        (Page::WantsCertificate, _) => findings.untried(
            "status",
            format!("the page at {at} requires the certificate of an operator; curl --cert cert.pem --key key.pem --cacert ca.pem https://{at}/status"),
        ),
        (Page::Silent, _) => findings.bad(
            "status",
            format!("{at}: connections are accepted, but nothing is sent within {} s, as by a daemon that hangs; {look}; then {restart}", PATIENCE.as_secs()),
        ),
        (Page::Odd, _) => findings.bad(
            "status",
            format!("{at}: something other than a fibula daemon answers; stop it (ss -lntp shows it), or choose another status"),
        ),
        (Page::Nobody(error), State::Runs(Process { pid, .. })) => findings.bad(
            "status",
            format!("{at}: process {pid} runs, but does not answer there ({error}); it is still starting, or was started with another status; {look}; then {restart}"),
        ),
        (Page::Nobody(_), _) => {}
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Grade;
    use serde_json::json;
    use tokio::net::TcpListener;

    fn grades(status: &Value) -> Vec<(String, Grade)> {
        let mut findings = Findings::default();
        look_at_running_switch(status, &mut findings);
        findings.rows.into_iter().map(|row| (row.what, row.grade)).collect()
    }

    #[test]
    fn a_running_switch_is_as_good_as_its_status_says() {
        let mut status = json!({
            "controller": {"connected": true, "last_error": "", "cannot_follow": ""}, "serving_version": 9,
            "workers": {"configured": 2, "running": 2}, "saved_image": {"failures_in_a_row": 0},
            "ports": [{"id": 1, "up": true}, {"id": 9, "up": true}],
        });
        assert_eq!(grades(&status), [("switch".to_owned(), Grade::Ok)]);
        status["workers"]["running"] = json!(1);
        status["saved_image"] = json!({"failures_in_a_row": 3, "last_error": "no space"});
        status["ports"][1] = json!({"id": 9, "up": false, "last_error": "eth2 is down"});
        status["controller"]["cannot_follow"] = json!("too large");
        let all: Vec<_> =
            ["switch", "workers", "saved image", "port 9"].map(|what| (what.to_owned(), Grade::Bad)).into();
        assert_eq!(grades(&status), all);
        status["controller"]["connected"] = json!(false);
        assert_eq!(grades(&status).len(), 4);
        status["ports"][0]["lost"] = json!({"rx_oversized": 7, "tx_refused": 2});
        status["drops"] = json!({"tx_refused": 2, "alien": 900, "flow_table": 3});
        let more: Vec<_> = ["port 1", "port 1", "drops"].map(|what| (what.to_owned(), Grade::Warning)).into();
        assert_eq!(grades(&status)[4..], more);
        assert_eq!(grades(&status)[0], ("switch".to_owned(), Grade::Bad));
    }

    #[test]
    fn values_that_are_shared_are_a_warning() {
        let of = |sharing: [u64; 3]| {
            let connected = sharing.map(|n| json!({"name": "s", "sharing": n}));
            let mut findings = Findings::default();
            look_at_values(8, &json!({"connected": connected}), &mut findings);
            findings.rows.into_iter().map(|row| (row.grade, row.finding)).collect::<Vec<_>>()
        };
        assert_eq!(of([0, 0, 0]), []);
        let found = of([0, 7, 3]);
        assert_eq!((found.len(), found[0].0), (1, Grade::Warning));
        assert!(found[0].1.contains("at 2 of the connected switches, up to 7 others"), "{found:?}");
    }
    #[tokio::test]
    async fn who_accepts_connections_and_says_nothing_hangs() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = Address::Tcp(listener.local_addr().unwrap());
        let service = Service::of(std::path::Path::new("/no/such.toml"), "switch", None);
        let mut findings = Findings::default();
        assert_eq!(look_at_status(Some(&at), true, &service, "", &mut findings).await, None);
        let row = findings.rows.iter().find(|row| row.what == "status").unwrap();
        assert!(row.grade == Grade::Bad && row.finding.contains("nothing is sent within 3 s"), "{row:?}");
        // Where a certificate is asked for, nothing is tried.
        let open = Address::Tcp("192.0.2.77:4602".parse().unwrap());
        assert_eq!(look_at_status(Some(&open), false, &service, "", &mut findings).await, None);
        assert_eq!(findings.rows.last().unwrap().grade, Grade::Untried, "{findings:?}");
    }
}
