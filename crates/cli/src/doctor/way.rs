//! The connection from a switch to its controller: finds out by asking what its URL leads to.
//!
//! A controller is contacted as by a switch, with a stream that ends before its first message; the controller reports
//! what is missing, and keeps nothing. If that fails, a request for a status page shows which protocol is spoken there.

use super::{Findings, PATIENCE};
use api::address::socket_path;
use api::client::{self, ConnectError};
use api::identity::Kind;
use api::tls::Tls;
use serde_json::Value;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tonic::Code;
use tonic::transport::{Channel, Uri};

/// Maximum bytes to read from an unknown peer.
const MOST_BYTES: u64 = 1 << 20;

/// The protocol spoken at an address.
#[derive(Clone, PartialEq, Debug)]
enum Spoken {
    Tls,
    /// gRPC, without TLS.
    Grpc,
    /// HTTP, without TLS: a status page, or something else.
    Web(Option<Value>),
    /// Connections are accepted, but nothing is sent.
    Silence,
    /// Something else, or the connection is closed.
    Noise,
}

/// A controller's answer to a stream that ends at once.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Answer {
    AsController,
    /// The peer is not a controller.
    NoSuchService,
    Refused(String),
    Silence,
    Broken(String),
}

/// Reports what a controller's URL leads to.
pub(super) async fn look_at_way(url: &str, tls: Option<&Arc<Tls>>, findings: &mut Findings) {
    match look(url, tls).await {
        Ok(()) => findings.ok("controller", format!("{url}: a controller answers")),
        Err(why) => findings.bad("controller", format!("{url}: {}", why.replace('\n', " "))),
    }
}

async fn look(url: &str, tls: Option<&Arc<Tls>>) -> Result<(), String> {
    let at = match socket_path(url) {
        Some(path) => {
            let path = path?;
            reach_socket(&path).await?;
            None
        }
        None => {
            let at = host_and_port(url).ok_or("that is not a URL; write it like https://10.0.0.1:4600")?;
            reach(&at).await?;
            Some(at)
        }
    };
    let has_tls = url.starts_with("https:");
    let answer = match tokio::time::timeout(PATIENCE, client::connect_to(Kind::Controller, url, tls, PATIENCE)).await {
        Ok(Ok(channel)) => ask(channel).await,
        Ok(Err(ConnectError::Unreachable { reason, .. } | ConnectError::NotTrusted { reason, .. })) => {
            Answer::Broken(reason)
        }
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => Answer::Silence,
    };
    let why = match answer {
        Answer::AsController => return Ok(()),
        Answer::Refused(why) => return Err(format!("the controller there refuses this switch: {why}")),
        Answer::NoSuchService => None,
        Answer::Silence => Some("it sends nothing".to_owned()),
        Answer::Broken(reason) => Some(reason),
    };
    let Some(at) = at else { return Err(why.unwrap_or_else(|| "what answers there is not a controller".to_owned())) };
    let spoken = match TcpStream::connect(&at).await {
        // This would be noise to TLS, and count as a rejected client.
        Ok(_) if has_tls && why.is_none() => Spoken::Tls,
        Ok(stream) => listen(stream).await,
        Err(_) => Spoken::Noise,
    };
    Err(verdict(&at, has_tls, &spoken, why))
}

/// What is wrong, and what to change. `why`: how the connection failed; none if the peer answered that it is not a
/// controller.
fn verdict(at: &str, has_tls: bool, spoken: &Spoken, why: Option<String>) -> String {
    let host = at.rsplit_once(':').map_or(at, |(host, _)| host);
    let own = format!("write the address of its `listen`, {host}:4600 unless controller.toml there says otherwise");
    match spoken {
        Spoken::Web(Some(status)) if status["connected"].is_array() => {
            format!("that is the status page of a controller (its `status`); {own}")
        }
        Spoken::Web(Some(_)) => {
            "that is the status page of a switch; write the address of a controller's `listen`, HOST:4600".to_owned()
        }
        Spoken::Web(None) => "a web server answers there, not a controller; write the address of a controller's `listen`, HOST:4600".to_owned(),
        Spoken::Silence => format!(
            "connections are accepted there, but nothing is sent within {} s, as by a controller that hangs; on its machine: systemctl status fibula-controller; journalctl -e -u fibula-controller",
            PATIENCE.as_secs()
        ),
        Spoken::Tls if !has_tls => {
            "TLS is spoken there; write https://, and [tls] with the certificate from `fibula pki issue switch NAME`".to_owned()
        }
        Spoken::Tls => match why {
            Some(why) => why,
            None => format!("that is not a listener for switches, though it presents a controller's certificate: its `status`, most likely; {own}"),
        },
        Spoken::Grpc if has_tls => {
            "no TLS is spoken there: the controller has no certificate; give it [tls] (`fibula pki issue controller NAME --address ADDRESS`), or write http:// and remove [tls] here".to_owned()
        }
        Spoken::Grpc => "gRPC is spoken there, but not by a controller: `lookup` or `control` of a switch, most likely; write the address of a controller's `listen`, HOST:4600".to_owned(),
        Spoken::Noise => match why {
            Some(why) => format!("what answers there is not a controller ({why}); write the address of a controller's `listen`, HOST:4600"),
            None => "what answers there is not a controller; write the address of a controller's `listen`, HOST:4600".to_owned(),
        },
    }
}

/// `HOST:PORT` of a URL.
fn host_and_port(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    Some(format!("{}:{}", uri.host()?, uri.port_u16().unwrap_or(default)))
}

/// Checks that a listener accepts connections.
async fn reach(at: &str) -> Result<(), String> {
    let looked_up = match tokio::time::timeout(PATIENCE, tokio::net::lookup_host(at)).await {
        Ok(found) => found.map_err(|error| error.to_string()),
        Err(_) => Err("no answer".to_owned()),
    };
    if let Err(error) = looked_up {
        return Err(format!("the name cannot be resolved ({error}); write an address, or a line of /etc/hosts"));
    }
    let error = match tokio::time::timeout(PATIENCE, TcpStream::connect(at)).await {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(error)) => error,
        Err(_) => ErrorKind::TimedOut.into(),
    };
    Err(match error.kind() {
        ErrorKind::ConnectionRefused => format!(
            "no process listens at {at}; on its machine: systemctl start fibula-controller, and check that its `listen` is an address that other machines can reach (ss -lnt)"
        ),
        ErrorKind::TimedOut => format!(
            "no answer from {at} within {} s: that machine is off, or a firewall drops what is sent there",
            PATIENCE.as_secs()
        ),
        _ => format!("{at} cannot be reached: {error}; check the network (ip route get)"),
    })
}

async fn reach_socket(path: &Path) -> Result<(), String> {
    let error = match UnixStream::connect(path).await {
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    Err(match error.kind() {
        ErrorKind::NotFound => {
            "there is no such socket; systemctl start fibula-controller, with this socket as its `listen`".to_owned()
        }
        ErrorKind::ConnectionRefused => {
            "no process listens there any more; systemctl start fibula-controller".to_owned()
        }
        ErrorKind::PermissionDenied => {
            "this user may not connect; write listen = \"unix:PATH?mode=0660\" in controller.toml".to_owned()
        }
        _ => format!("connecting to it fails: {error}; systemctl status fibula-controller"),
    })
}

/// Contacts the controller as a switch does at its start.
async fn ask(channel: Channel) -> Answer {
    let mut client = client::southbound(channel);
    // A peer that speaks HTTP but not gRPC says so after its headers.
    let asked = tokio::time::timeout(PATIENCE, async {
        client.attach(tokio_stream::empty()).await?.into_inner().message().await
    });
    let Ok(asked) = asked.await else { return Answer::Silence };
    let Err(status) = asked else { return Answer::NoSuchService };
    let reason = client::reason(&status);
    match status.code() {
        _ if std::error::Error::source(&status).is_some() => Answer::Broken(reason),
        // The hello is missing.
        Code::InvalidArgument => Answer::AsController,
        Code::Unimplemented => Answer::NoSuchService,
        Code::Internal | Code::Unknown => Answer::Broken(reason),
        _ => Answer::Refused(reason),
    }
}

/// Which protocol the peer speaks, by its answer to a request for a status page.
async fn listen(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin) -> Spoken {
    let mut heard = Vec::new();
    let asked = tokio::time::timeout(PATIENCE, async {
        stream.write_all(b"GET /status HTTP/1.0\r\nHost: localhost\r\n\r\n").await?;
        (&mut stream).take(MOST_BYTES).read_to_end(&mut heard).await
    });
    let ended: Result<io::Result<usize>, _> = asked.await;
    match (heard.as_slice(), ended) {
        // An alert, and a frame of SETTINGS or GOAWAY: types 4 and 7 of HTTP/2.
        ([0x15, 3, ..], _) => Spoken::Tls,
        ([_, _, _, 4 | 7, ..], _) => Spoken::Grpc,
        (heard, _) if heard.starts_with(b"HTTP/") => {
            let text = String::from_utf8_lossy(heard);
            let body = text.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok());
            Spoken::Web(body.filter(|body: &Value| body["version"].is_string()))
        }
        ([], Err(_)) => Spoken::Silence,
        _ => Spoken::Noise,
    }
}
