//! Channels to a controller, with windows and message limits raised.

use crate::lookup::MAX_LOOKUP_BYTES;
use crate::v1::flows_client::FlowsClient;
use crate::v1::lookup_client::LookupClient;
use crate::v1::northbound_client::NorthboundClient;
use crate::v1::southbound_client::SouthboundClient;
use crate::{MAX_MESSAGE_BYTES, STREAM_WINDOW};
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

/// Why no channel to a controller could be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL does not parse.
    #[error("{url:?} is not the URL of a controller; write it like http://10.0.0.1:4600")]
    BadUrl {
        /// As given.
        url: String,
    },
    /// No controller answers.
    #[error("no controller answers at {url}; is `fibula controller` running there? ({reason})")]
    Unreachable {
        /// As given.
        url: String,
        /// The transport's innermost error.
        reason: String,
    },
}

/// Opens a channel; the connection is up when this returns.
/// # Errors
/// [`ConnectError`], after `timeout` at the latest.
pub async fn connect(url: &str, timeout: Duration) -> Result<Channel, ConnectError> {
    let bad_url = || ConnectError::BadUrl { url: url.to_owned() };
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|_| bad_url())?;
    if endpoint.uri().scheme_str() != Some("http") || endpoint.uri().host().is_none() {
        return Err(bad_url());
    }
    endpoint
        .connect_timeout(timeout)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(STREAM_WINDOW * 4)
        .http2_keep_alive_interval(Duration::from_secs(10))
        .keep_alive_timeout(Duration::from_secs(10))
        .keep_alive_while_idle(true)
        .tcp_nodelay(true)
        .connect()
        .await
        .map_err(|e| ConnectError::Unreachable { url: url.to_owned(), reason: innermost(&e) })
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

fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
