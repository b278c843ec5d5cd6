//! What both daemons need: addresses, certificates, room on disks; and what a running one says of itself.

use super::Findings;
use crate::machine;
use ::controller::config::{Config as Controller, Place};
use ::switch::daemon::config::Config as Switch;
use api::address::{Address, socket_path};
use api::client;
use api::clock;
use api::identity::Kind;
use api::tls::{Files, Tls};
use serde_json::Value;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

const PATIENCE: Duration = Duration::from_secs(3);
/// Less than this is little on any disk.
const LITTLE_ROOM: u64 = 1 << 30;
/// With less than this the next write may fail.
const NO_ROOM: u64 = 64 << 20;
/// As daemons do, doctor warns so long before a certificate ends.
const WARN_DAYS: i64 = 14;
const DAY_S: i64 = 86_400;

pub(super) async fn look_at_controller(config: &Controller, findings: &mut Findings) {
    look_at_certificate(config.tls.as_ref(), None, findings);
    match &config.store {
        Place::File(path) => look_at_room("store", path, findings),
        Place::Etcd(address) => {
            for member in &address.members {
                let reached = tokio::time::timeout(PATIENCE, TcpStream::connect(member.as_str())).await;
                match reached.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                    Ok(_) => findings.ok("store", format!("etcd is reached at {member}")),
                    Err(error) => findings.warn(
                        "store",
                        format!("etcd is not reached at {member}: {error}; start it, or see to the network"),
                    ),
                }
            }
        }
    }
    look_at_address("listen", &config.listen, findings).await;
    let Some(at) = &config.status else {
        findings.warn("status", "there is no status page to ask; write status = \"127.0.0.1:4601\"");
        return;
    };
    look_at_address("status", at, findings).await;
    let Some(status) = status_of(at).await else { return };
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
    let tries_values = [config.gateway_design, config.core_design].iter().any(|design| design.tries_values());
    if !tries_values {
        look_at_values(config.value_bits, &status, findings);
    }
    let (n_known, n_connected) = (status["switches"].as_u64(), status["connected"].as_array().map(Vec::len));
    if let (Some(known), Some(connected)) = (n_known, n_connected)
        && known > connected as u64
    {
        let away = known - connected as u64;
        findings.warn("switches", format!("{away} of {known} are not connected here; `fibula switch list` says which"));
    }
}

/// Whether values are so few that switches share them. With a design that tries one value after the other all do, as is documented there.
fn look_at_values(value_bits: u8, status: &Value, findings: &mut Findings) {
    let connected = status["connected"].as_array().into_iter().flatten();
    let sharing: Vec<u64> = connected.filter_map(|switch| switch["sharing"].as_u64()).filter(|n| *n > 0).collect();
    let Some(most) = sharing.iter().max() else { return };
    let n = sharing.len();
    findings.warn(
        "value_bits",
        format!(
            "{value_bits} bits are too few: at {n} of the connected switches up to {most} others with hosts have no value of their own, and heal and spread less; `fibula switch list` says where; only a new network with value_bits = 16 has more"
        ),
    );
}

pub(super) async fn look_at_switch(config: &Switch, findings: &mut Findings) {
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
            look_at_address(key, address, findings).await;
        }
    }
    // Without its certificate nothing is learnt from a try.
    if tls.is_some() || config.tls.is_none() {
        for url in config.controller.split(',').map(str::trim) {
            look_at_way(url, tls.as_ref(), findings).await;
        }
    }
    let Some(at) = &config.status else {
        findings.warn("status", "there is no status page to ask; write status = \"127.0.0.1:4602\"");
        return;
    };
    let Some(status) = status_of(at).await else { return };
    look_at_running_switch(&status, findings);
}

fn look_at_running_switch(status: &Value, findings: &mut Findings) {
    let controller = &status["controller"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if controller["connected"] != true {
        let why = text(&controller["last_error"]);
        findings.bad("switch", format!("runs, and no controller serves it: {why}"));
    } else if !text(&controller["cannot_follow"]).is_empty() {
        findings.bad("switch", format!("runs, and cannot follow: {}", text(&controller["cannot_follow"])));
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
}

/// Returns the certificate if it can be used.
fn look_at_certificate(files: Option<&Files>, switch: Option<&str>, findings: &mut Findings) -> Option<Arc<Tls>> {
    let Some(files) = files else {
        findings.warn(
            "certificate",
            "there is none: whoever reaches the daemon may do everything there; `fibula pki init` begins",
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
            let renew = "`fibula pki renew` makes another; copy it here";
            match days {
                ..0 => findings
                    .bad("certificate", format!("that of {identity} has expired, or the clock is wrong; {renew}")),
                0..WARN_DAYS => {
                    findings.warn("certificate", format!("that of {identity} is valid for {days} days; {renew}"))
                }
                _ => findings.ok("certificate", format!("that of {identity} is valid for {days} days")),
            }
            Some(tls)
        }
    }
}

fn look_at_room(what: &str, path: &Path, findings: &mut Findings) {
    let shown = path.display();
    match machine::room(path) {
        Ok((free, _)) if free < NO_ROOM => {
            findings.bad(what, format!("{} MiB are free where {shown} is; make room", free >> 20));
        }
        Ok((free, _)) if free < LITTLE_ROOM => {
            findings.warn(what, format!("{} MiB are free where {shown} is; make room before it is full", free >> 20));
        }
        Ok((free, _)) => findings.ok(what, format!("{} GiB are free where {shown} is", free >> 30)),
        Err(error) => findings.bad(what, format!("{shown} cannot be looked at: {error}")),
    }
}

/// Whether a daemon listens there, or could.
async fn look_at_address(key: &str, address: &Address, findings: &mut Findings) {
    if connects(address).await {
        findings.ok(key, format!("{address}: somebody answers there"));
        return;
    }
    match address {
        Address::Tcp(at) => match TcpListener::bind(SocketAddr::new(at.ip(), 0)).await {
            Ok(_) => findings.ok(key, format!("{at}: free, and an address of this machine")),
            Err(error) => findings.bad(key, format!("{at}: {error}; write an address that `ip address` lists")),
        },
        Address::Unix { path, .. } => match path.parent().filter(|parent| parent.is_dir()) {
            Some(_) => findings.ok(key, format!("{address}: free")),
            // The service makes /run/fibula.
            None if path.starts_with("/run/fibula") => {
                findings.ok(key, format!("{address}: the service makes its directory"))
            }
            None => {
                findings.bad(key, format!("{address}: there is no such directory; make it, for the user of the daemon"))
            }
        },
    }
}

async fn connects(address: &Address) -> bool {
    match address {
        Address::Tcp(at) => {
            matches!(tokio::time::timeout(PATIENCE, TcpStream::connect(reachable(*at))).await, Ok(Ok(_)))
        }
        Address::Unix { path, .. } => UnixStream::connect(path).await.is_ok(),
    }
}

/// An address that leads to a listener on all addresses.
fn reachable(at: SocketAddr) -> SocketAddr {
    let local: IpAddr = if at.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
    if at.ip().is_unspecified() { SocketAddr::new(local, at.port()) } else { at }
}

async fn look_at_way(url: &str, tls: Option<&Arc<Tls>>, findings: &mut Findings) {
    if let Some(path) = socket_path(url) {
        match path {
            Ok(path) if UnixStream::connect(&path).await.is_ok() => {
                findings.ok("controller", format!("{url}: answers"))
            }
            _ => findings.bad("controller", format!("{url}: nobody answers; start the controller")),
        }
        return;
    }
    match client::connect_to(Kind::Controller, url, tls, PATIENCE).await {
        Ok(_) => findings.ok("controller", format!("{url}: answers")),
        Err(error) => findings.bad("controller", error.to_string().replace('\n', " ")),
    }
}

/// What the status page of a daemon of this machine says; none if it does not answer without a certificate.
async fn status_of(at: &Address) -> Option<Value> {
    let answer = tokio::time::timeout(PATIENCE, async {
        match at {
            Address::Tcp(at) => get(TcpStream::connect(reachable(*at)).await?).await,
            Address::Unix { path, .. } => get(UnixStream::connect(path).await?).await,
        }
    });
    let text = answer.await.ok()?.ok()?;
    let (_, body) = text.split_once("\r\n\r\n")?;
    serde_json::from_str(body).ok()
}

async fn get(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin) -> io::Result<String> {
    // By HTTP/1.0 the answer is whole, and ends with the connection.
    stream.write_all(b"GET /status HTTP/1.0\r\nHost: localhost\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Grade;
    use serde_json::json;

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
        assert!(found[0].1.contains("at 2 of the connected switches up to 7 others"), "{found:?}");
    }

    #[tokio::test]
    async fn addresses_are_answered_at_free_or_not_of_this_machine() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let taken = listener.local_addr().unwrap();
        let mut findings = Findings::default();
        look_at_address("a", &Address::Tcp(taken), &mut findings).await;
        // Nobody has an address of the range for documentation.
        look_at_address("b", &Address::Tcp("192.0.2.77:4600".parse().unwrap()), &mut findings).await;
        look_at_address("c", &Address::Unix { path: "/no/such/x.sock".into(), mode: 0o600 }, &mut findings).await;
        let grades: Vec<_> = findings.rows.iter().map(|row| row.grade).collect();
        assert_eq!(grades, [Grade::Ok, Grade::Bad, Grade::Bad], "{findings:?}");
    }
}
