//! Copies of the frames of a switch, over gRPC (`fibula.v1.Captures`).

use crate::MAX_MESSAGE_BYTES;
use crate::address::Address;
use crate::gate::{Gate, admit_web};
use crate::v1::CaptureRequest;
use crate::v1::captures_server::{Captures, CapturesServer};
use axum::Router;
use axum::middleware::from_fn_with_state;
use std::sync::Arc;

/// Describes a capture in words.
pub fn describe(request: &CaptureRequest) -> String {
    let what = if request.drops_only { "dropped frames" } else { "frames" };
    let at = if request.port.is_empty() { "all ports" } else { &request.port };
    format!("{what} at {at}")
}

/// Serves `captures` on `address` to peers that `gate` admits, until the runtime ends, and returns the address it
/// listens on (port 0: the system's choice).
/// # Errors
/// When the address cannot be bound.
pub async fn serve(address: &Address, gate: &Arc<Gate>, captures: impl Captures) -> std::io::Result<Address> {
    let listener = gate.listen(address, false).await?;
    let bound = listener.address().clone();
    let grpc = CapturesServer::new(captures).max_encoding_message_size(MAX_MESSAGE_BYTES);
    let router = Router::new()
        .route_service("/fibula.v1.Captures/{*method}", grpc)
        .layer(listener.limits())
        .layer(from_fn_with_state(Arc::clone(gate), admit_web));
    crate::serve::serve(listener, router, &gate.limits().limits());
    Ok(bound)
}
