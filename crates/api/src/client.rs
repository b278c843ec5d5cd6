//! Channels to a controller or a switch, with windows and message limits raised.

use crate::address::socket_path;
use crate::identity::Kind;
use crate::lookup::MAX_LOOKUP_BYTES;
use crate::tls::{Tls, connect_plain, connect_unix, explain, is_of_tls};
use crate::v1::captures_client::CapturesClient;
use crate::v1::flows_client::FlowsClient;
use crate::v1::lookup_client::LookupClient;
use crate::v1::northbound_client::NorthboundClient;
use crate::v1::southbound_client::SouthboundClient;
use crate::{MAX_MESSAGE_BYTES, STREAM_WINDOW};
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;
use tonic::transport::{Channel, Endpoint, Uri};

/// Why no channel to a controller could be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL does not parse.
    #[error(
        "{url:?} is not the URL of a controller; write it like https://10.0.0.1:4600 or unix:/run/fibula/controller.sock"
    )]
    BadUrl {
        /// As given.
        url: String,
    },
    /// No controller answers.
    #[error("no controller answers at {url}; is `fibula controller` running there? ({reason})")]
    Unreachable {
        /// As given.
        url: String,
        /// The innermost error of the transport.
        reason: String,
    },
    /// A server answers, but one of the two sides does not trust the other.
    #[error("a server answers at {url}, but the TLS connection fails: {reason}")]
    NotTrusted {
        /// As given.
        url: String,
        /// The error of TLS, with advice.
        reason: String,
    },
    /// The URL requires TLS, and there is no certificate to present.
    #[error(
        "{url} takes a certificate, and there is none; set --tls DIR or FIBULA_TLS to a directory that `fibula pki issue` made"
    )]
    NoCertificate {
        /// As given.
        url: String,
    },
}

/// Time without traffic after which a server is probed; after the same time without an answer, it is considered gone.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Opens a channel without TLS; the connection is up when this returns.
/// # Errors
/// [`ConnectError`], after `timeout` at the latest.
pub async fn connect(url: &str, timeout: Duration) -> Result<Channel, ConnectError> {
    connect_to(Kind::Controller, url, None, timeout).await
}

/// Opens a channel to a server of a kind; the connection is up when this returns. With `https://`, both ends present
/// certificates, and the server's must name the host of the URL. With `unix:` and a path, the connection uses a Unix
/// socket, without certificates.
/// # Errors
/// [`ConnectError`], after `timeout` at the latest. A server that rejects our certificate reports that only with the
/// first request.
pub async fn connect_to(
    kind: Kind,
    url: &str,
    tls: Option<&Arc<Tls>>,
    timeout: Duration,
) -> Result<Channel, ConnectError> {
    connect_watched(kind, url, tls, timeout, KEEPALIVE).await
}

/// As [`connect_to`]; the connection ends when the server is silent for twice `silence`.
/// # Errors
/// As [`connect_to`].
pub async fn connect_watched(
    kind: Kind,
    url: &str,
    tls: Option<&Arc<Tls>>,
    timeout: Duration,
    silence: Duration,
) -> Result<Channel, ConnectError> {
    let bad_url = || ConnectError::BadUrl { url: url.to_owned() };
    let unreachable = |e: tonic::transport::Error| {
        let (url, reason) = (url.to_owned(), explain(&e));
        if is_of_tls(&e) { ConnectError::NotTrusted { url, reason } } else { ConnectError::Unreachable { url, reason } }
    };
    if let Some(path) = socket_path(url) {
        let path = path.map_err(|_| bad_url())?;
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { connect_unix(&path).await }
        });
        // Requests must name a host.
        let endpoint = kept_alive(Endpoint::from_static("http://localhost").connect_timeout(timeout), silence);
        return endpoint.connect_with_connector(connector).await.map_err(unreachable);
    }
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|_| bad_url())?;
    if endpoint.uri().host().is_none() {
        return Err(bad_url());
    }
    let tls = match (endpoint.uri().scheme_str(), tls) {
        (Some("http"), _) => None,
        (Some("https"), Some(tls)) => Some(Arc::clone(tls)),
        (Some("https"), None) => return Err(ConnectError::NoCertificate { url: url.to_owned() }),
        _ => return Err(bad_url()),
    };
    let endpoint = kept_alive(endpoint.connect_timeout(timeout), silence);
    let connected = match tls {
        None => endpoint.connect_with_connector(tower::service_fn(connect_plain)).await,
        Some(tls) => {
            let connector = tower::service_fn(move |uri: Uri| {
                let tls = Arc::clone(&tls);
                async move { tls.connect(uri, kind).await }
            });
            endpoint.connect_with_connector(connector).await
        }
    };
    connected.map_err(unreachable)
}

/// Applies our windows and keep-alives.
fn kept_alive(endpoint: Endpoint, silence: Duration) -> Endpoint {
    endpoint
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(STREAM_WINDOW * 4)
        .http2_keep_alive_interval(silence)
        .keep_alive_timeout(silence)
        .keep_alive_while_idle(true)
}

/// The reason of a failed request: the server's message, or the cause of a broken connection with advice.
pub fn reason(status: &Status) -> String {
    match std::error::Error::source(status) {
        None => status.message().to_owned(),
        Some(source) => {
            let reason = explain(source);
            if source.is::<tonic::transport::Error>() || !status.message().contains(&reason) {
                format!("the connection broke: {reason}")
            } else {
                status.message().to_owned()
            }
        }
    }
}

/// A northbound client with the limits raised.
pub fn northbound(channel: Channel) -> NorthboundClient<Channel> {
    NorthboundClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}

/// A southbound client with the limits raised.
pub fn southbound(channel: Channel) -> SouthboundClient<Channel> {
    SouthboundClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}

/// A client of a switch's look-up service with the limits raised.
pub fn lookup(channel: Channel) -> LookupClient<Channel> {
    LookupClient::new(channel).max_decoding_message_size(MAX_LOOKUP_BYTES).max_encoding_message_size(MAX_LOOKUP_BYTES)
}

/// A client of a switch that tracks connections, with the limits raised.
pub fn flows(channel: Channel) -> FlowsClient<Channel> {
    FlowsClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES)
}

/// A client of a switch that copies frames, with the limits raised.
pub fn captures(channel: Channel) -> CapturesClient<Channel> {
    CapturesClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES)
}
