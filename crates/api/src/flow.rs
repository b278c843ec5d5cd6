//! The connections that a switch tracks, over gRPC (`fibula.v1.Flows`).

use crate::MAX_MESSAGE_BYTES;
use crate::address::Address;
use crate::gate::{Gate, admit_web};
use crate::v1::FlowFilter;
use crate::v1::flows_server::{Flows, FlowsServer};
use axum::Router;
use axum::middleware::from_fn_with_state;
use std::sync::Arc;

/// Approximate number of flows in one reply.
pub const PAGE_FLOWS: usize = 1 << 14;

/// Describes a filter in words.
pub fn describe(filter: Option<&FlowFilter>) -> String {
    let FlowFilter { protocol, address, port } = filter.cloned().unwrap_or_default();
    let port = port.map(|port| format!("port {port}")).unwrap_or_default();
    let words: Vec<&str> =
        [&protocol, &address, &port].into_iter().map(|word| &word[..]).filter(|word| !word.is_empty()).collect();
    if words.is_empty() { "all".to_owned() } else { words.join(", ") }
}

/// Serves `flows` on `address` to peers that `gate` admits, until the runtime ends, and returns the address it listens
/// on (port 0: the system's choice).
/// # Errors
/// When the address cannot be bound.
pub async fn serve(address: &Address, gate: &Arc<Gate>, flows: impl Flows) -> std::io::Result<Address> {
    let listener = gate.listen(address, false).await?;
    let bound = listener.address().clone();
    let grpc = FlowsServer::new(flows).max_encoding_message_size(MAX_MESSAGE_BYTES);
    let router = Router::new()
        .route_service("/fibula.v1.Flows/{*method}", grpc)
        .layer(listener.limits())
        .layer(from_fn_with_state(Arc::clone(gate), admit_web));
    crate::serve::serve(listener, router, &gate.limits().limits());
    Ok(bound)
}
