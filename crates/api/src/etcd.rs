//! The client of etcd: the messages of its v3 API that a store needs, and channels to its members, with TLS or without.

use crate::tls::{Foreign, connect_foreign, connect_plain, refusal};
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint, Uri};

/// The generated messages and clients.
pub mod v3 {
    #![allow(
        missing_docs,
        unreachable_pub,
        clippy::all,
        clippy::allow_attributes_without_reason,
        reason = "generated; documented by etcd"
    )]
    tonic::include_proto!("etcdserverpb");
}

/// A channel to the member at `host:port`, which connects on first use, and reconnects after a failure.
/// # Errors
/// The address is invalid.
pub fn channel(member: &str, tls: Option<&Arc<Foreign>>, timeout: Duration) -> Result<Channel, String> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{member}"));
    let endpoint = endpoint.map_err(|_| format!("{member:?} is not HOST:PORT"))?.connect_timeout(timeout);
    Ok(match tls {
        None => endpoint.connect_with_connector_lazy(tower::service_fn(connect_plain)),
        Some(tls) => {
            let tls = Arc::clone(tls);
            endpoint.connect_with_connector_lazy(tower::service_fn(move |uri: Uri| {
                let tls = Arc::clone(&tls);
                async move { connect_foreign(&tls, &uri).await.map(TokioIo::new) }
            }))
        }
    })
}

/// Time limit for a member to reject a certificate.
const REFUSAL: Duration = Duration::from_millis(500);

/// Why the member at `host:port` rejects our certificate, or we its certificate; none if that is not the problem.
pub async fn why_refused(member: &str, tls: &Foreign) -> Option<String> {
    refusal(tls, &format!("https://{member}").parse().ok()?, REFUSAL).await
}
