//! The controllers of a switch, and connections to them.

use api::client::ConnectError;
use api::identity::Kind;
use api::tls::Tls;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::Channel;

/// Time limits for a controller.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    pub(super) connect: Duration,
    /// A controller that is silent for twice this time is considered gone.
    pub(super) silence: Duration,
}

/// For the only controller, since there is no alternative.
pub(super) const LONG: Patience = Patience { connect: Duration::from_secs(5), silence: Duration::from_secs(10) };
/// If another controller can serve instead.
pub(super) const SHORT: Patience = Patience { connect: Duration::from_secs(1), silence: Duration::from_secs(1) };

/// The controllers in a comma-separated list.
pub(super) fn controllers_of(list: &str) -> impl Iterator<Item = &str> + Clone {
    list.split(',').map(str::trim)
}

/// A connection to one of several controllers.
pub(super) async fn connect(controller: &str, tls: Option<&Arc<Tls>>) -> Result<Channel, ConnectError> {
    connect_within(controller, tls, SHORT).await
}

pub(super) async fn connect_within(
    controller: &str,
    tls: Option<&Arc<Tls>>,
    patience: Patience,
) -> Result<Channel, ConnectError> {
    let Patience { connect, silence } = patience;
    api::client::connect_watched(Kind::Controller, controller, tls, connect, silence).await
}
