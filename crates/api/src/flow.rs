//! The connections that a switch tracks, over gRPC (`fibula.v1.Flows`).

use crate::MAX_MESSAGE_BYTES;
use crate::limits::{Guard, Listener, Remote};
use crate::v1::flows_server::{Flows, FlowsServer};
use axum::Router;
use std::net::SocketAddr;
use std::sync::Arc;

/// About how many flows are in one reply.
pub const PAGE_FLOWS: usize = 1 << 14;

/// Serves `flows` on `address`, under the limits of `guard`, until the runtime ends, and returns the address it listens on (port 0: the system's
/// choice).
/// # Errors
/// When the address cannot be bound.
pub async fn serve(address: SocketAddr, flows: impl Flows, guard: &Arc<Guard>) -> std::io::Result<SocketAddr> {
    let listener = Listener::bind(address, guard).await?;
    let address = listener.local_addr()?;
    let grpc = FlowsServer::new(flows).max_encoding_message_size(MAX_MESSAGE_BYTES);
    let router = Router::new().route_service("/fibula.v1.Flows/{*method}", grpc).layer(listener.layer());
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router.into_make_service_with_connect_info::<Remote>()).await {
            tracing::error!(%address, %error, "the flow server ended; restart the switch");
        }
    });
    Ok(address)
}
