//! The connections that a switch tracks, over gRPC (`fibula.v1.Flows`).

use crate::MAX_MESSAGE_BYTES;
use crate::v1::flows_server::{Flows, FlowsServer};
use axum::Router;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// About how many flows are in one reply.
pub const PAGE_FLOWS: usize = 1 << 14;

/// Serves `flows` on `address` until the runtime ends, and returns the address it listens on (port 0: the system's
/// choice).
/// # Errors
/// When the address cannot be bound.
pub async fn serve(address: SocketAddr, flows: impl Flows) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let grpc = FlowsServer::new(flows).max_encoding_message_size(MAX_MESSAGE_BYTES);
    let router = Router::new().route_service("/fibula.v1.Flows/{*method}", grpc);
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%address, %error, "the flow server ended; restart the switch");
        }
    });
    Ok(address)
}
