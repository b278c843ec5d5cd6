//! The permissions that each request needs, and the layer in front of the services that checks them.

use super::{Attempt, Gate, Peer, Turned, host, refusal};
use crate::identity::Role;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{self, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::Status;
use tower::{Layer, Service};

/// The permission that a request needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    /// An operator with at least this role.
    Role(Role),
    /// A switch; its hello is checked for the right one.
    Switch,
}

/// Requests that need less than the role `admin`, by path.
const ACCESS: [(&str, Needs); 45] = [
    ("/fibula.v1.Northbound/GetStatus", Needs::Role(Role::Reader)),
    ("/fibula.v1.Northbound/GetName", Needs::Role(Role::Reader)),
    ("/fibula.v1.Northbound/ListNames", Needs::Role(Role::Reader)),
    ("/fibula.v1.Northbound/ExportNames", Needs::Role(Role::Reader)),
    ("/fibula.v1.Northbound/Trace", Needs::Role(Role::Reader)),
    ("/fibula.v1.Northbound/ListSwitches", Needs::Role(Role::Reader)),
    ("/fibula.v1.Northbound/GetSwitch", Needs::Role(Role::Reader)),
    ("/fibula.v1.Northbound/Watch", Needs::Role(Role::Reader)),
    ("/fibula.v1.Northbound/GetLog", Needs::Role(Role::Reader)),
    ("/fibula.v1.Northbound/VerifySwitch", Needs::Role(Role::Reader)),
    ("/fibula.v1.Northbound/ListHosts", Needs::Role(Role::Reader)),
    ("/fibula.v1.Northbound/ListLinks", Needs::Role(Role::Reader)),
    ("/fibula.v1.Northbound/ListGroups", Needs::Role(Role::Reader)),
    ("/fibula.v1.Northbound/PutNames", Needs::Role(Role::Writer)),
    ("/fibula.v1.Northbound/RemoveNames", Needs::Role(Role::Writer)),
    ("/fibula.v1.Northbound/ImportNames", Needs::Role(Role::Writer)),
    ("/fibula.v1.Northbound/ReplaceNames", Needs::Role(Role::Writer)),
    ("/fibula.v1.Northbound/AddHost", Needs::Role(Role::Writer)),
    ("/fibula.v1.Northbound/AddHosts", Needs::Role(Role::Writer)),
    ("/fibula.v1.Northbound/RenameHost", Needs::Role(Role::Writer)),
    ("/fibula.v1.Northbound/RemoveHost", Needs::Role(Role::Writer)),
    ("/fibula.v1.Northbound/AcceptHosts", Needs::Role(Role::Writer)),
    ("/fibula.v1.Northbound/ForgetHost", Needs::Role(Role::Writer)),
    ("/fibula.v1.Northbound/AddLink", Needs::Role(Role::Writer)),
    ("/fibula.v1.Northbound/AddLinks", Needs::Role(Role::Writer)),
    ("/fibula.v1.Northbound/AcceptLinks", Needs::Role(Role::Writer)),
    ("/fibula.v1.Northbound/SetLink", Needs::Role(Role::Writer)),
    ("/fibula.v1.Northbound/DrainLink", Needs::Role(Role::Writer)),
    ("/fibula.v1.Northbound/DrainSwitch", Needs::Role(Role::Writer)),
    ("/fibula.v1.Northbound/RemoveLink", Needs::Role(Role::Writer)),
    ("/fibula.v1.Southbound/Attach", Needs::Switch),
    ("/fibula.v1.Southbound/SeeTrunks", Needs::Switch),
    ("/fibula.v1.Southbound/SeeHosts", Needs::Switch),
    ("/fibula.v1.Southbound/SeeSubscriptions", Needs::Switch),
    ("/fibula.v1.Southbound/SeeSwitch", Needs::Switch),
    ("/fibula.v1.Southbound/Answer", Needs::Switch),
    ("/fibula.v1.Lookup/Lookup", Needs::Role(Role::Reader)),
    ("/fibula.v1.Flows/Show", Needs::Role(Role::Reader)),
    ("/fibula.v1.Flows/Count", Needs::Role(Role::Reader)),
    ("/fibula.v1.Flows/Stats", Needs::Role(Role::Reader)),
    ("/fibula.v1.Flows/ListServers", Needs::Role(Role::Reader)),
    ("/lookup", Needs::Role(Role::Reader)),
    ("/status", Needs::Role(Role::Reader)),
    ("/metrics", Needs::Role(Role::Reader)),
    ("/fibula.v1.Flows/ChangeServer", Needs::Role(Role::Admin)),
];

/// The permission for the request with this path. Unlisted requests need the role `admin`.
pub fn needs(path: &str) -> Needs {
    // The files of the dashboard, and its read requests. Its changes need the permission of the equivalent request.
    if path == "/" || path.starts_with("/ui/") {
        return Needs::Role(Role::Reader);
    }
    ACCESS.iter().find(|(known, _)| *known == path).map_or(Needs::Role(Role::Admin), |(_, needs)| *needs)
}

impl Gate {
    /// Whether a peer has the permission.
    pub fn may(peer: &Peer, needs: Needs) -> bool {
        refusal(peer, needs).is_none()
    }

    /// Admits a request, or counts it and explains the rejection.
    /// # Errors
    /// The error says how to get the permission.
    pub fn admit(&self, peer: Option<&Peer>, path: &str) -> Result<(), Status> {
        let Some(peer) = peer else { return Err(Status::internal("the connection has no peer")) };
        let Some(status) = refusal(peer, needs(path)) else { return Ok(()) };
        let (from, reason) = (peer.address(), status.message());
        let turned = if peer.withdrawn().is_some() { Turned::Handshake } else { Turned::Role };
        self.turn_away(&Attempt { turned, peer: Some(peer), from, what: path, reason });
        Err(status)
    }
}

impl Gate {
    /// Admits a request that no foreign page can have made, or counts it and explains the rejection.
    fn admit_host<B>(&self, peer: &Peer, request: &http::Request<B>) -> Result<(), Status> {
        if !host::is_foreign(peer, request.uri(), request.headers()) {
            return Ok(());
        }
        let (from, what, reason) = (peer.address(), request.uri().path(), host::WHY);
        self.turn_away(&Attempt { turned: Turned::Host, peer: Some(peer), from, what, reason });
        Err(Status::permission_denied(reason))
    }
}

/// Puts [`Gated`] in front of gRPC services.
#[derive(Clone, Debug)]
pub struct GateLayer(pub Arc<Gate>);

impl<S> Layer<S> for GateLayer {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Gated<S> {
        Gated { gate: Arc::clone(&self.0), inner }
    }
}

/// Passes on the requests that the peer of their connection is allowed to make.
#[derive(Clone, Debug)]
pub struct Gated<S> {
    gate: Arc<Gate>,
    inner: S,
}

impl<S, B, R> Service<http::Request<B>> for Gated<S>
where
    S: Service<http::Request<B>, Response = http::Response<R>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    R: Default + Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let peer = request.extensions().get::<Peer>();
        let admitted = peer.map_or(Ok(()), |peer| self.gate.admit_host(peer, &request));
        match admitted.and_then(|()| self.gate.admit(peer, request.uri().path())) {
            Ok(()) => Box::pin(self.inner.call(request)),
            Err(status) => Box::pin(std::future::ready(Ok(status.into_http()))),
        }
    }
}

/// [`Gated`] as the middleware of a router that answers gRPC and HTTP. The services behind it find the [`Peer`] in the
/// extensions of a request.
pub async fn admit_web(
    State(gate): State<Arc<Gate>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let admitted = gate.admit_host(&peer, &request).and_then(|()| gate.admit(Some(&peer), request.uri().path()));
    match admitted {
        Ok(()) => {
            request.extensions_mut().insert(peer);
            next.run(request).await
        }
        Err(status) => {
            let content = request.headers().get(CONTENT_TYPE).map(|value| value.as_bytes());
            if content.is_some_and(|content| content.starts_with(b"application/grpc")) {
                return status.into_http();
            }
            let body = json!({ "error": status.message() }).to_string();
            (StatusCode::FORBIDDEN, [(CONTENT_TYPE, "application/json")], body).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The paths of all requests of the services.
    fn paths() -> BTreeSet<String> {
        let services = ["Northbound", "Southbound", "Lookup", "Flows", "Captures"];
        let files = ["north", "south", "lookup", "flow", "capture"];
        let mut paths: BTreeSet<String> = ["/lookup", "/status", "/metrics"].map(String::from).into();
        for (service, file) in services.iter().zip(files) {
            let path = format!("{}/proto/fibula/v1/{file}.proto", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).unwrap();
            let rpcs = text.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split_once('('));
            paths.extend(rpcs.map(|(rpc, _)| format!("/fibula.v1.{service}/{rpc}")));
        }
        assert!(paths.len() > 25, "{paths:?}");
        paths
    }

    #[test]
    fn the_table_names_requests_that_exist_and_each_once() {
        let paths = paths();
        let listed: BTreeSet<String> = ACCESS.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(listed.len(), ACCESS.len());
        assert!(listed.is_subset(&paths), "{:?}", listed.difference(&paths));
    }

    #[test]
    fn no_request_that_changes_something_is_open_to_readers() {
        let changes = ["Put", "Remove", "Add", "Set", "Import", "Change", "Flush", "Rekey"];
        for path in paths() {
            let method = path.rsplit('/').next().unwrap();
            if changes.iter().any(|verb| method.starts_with(verb)) {
                assert_ne!(needs(&path), Needs::Role(Role::Reader), "{path}");
            }
        }
        assert_eq!(needs("/fibula.v1.Northbound/AddSwitch"), Needs::Role(Role::Admin));
        assert_eq!(needs("/fibula.v1.Flows/Flush"), Needs::Role(Role::Admin));
        assert_eq!(needs("/fibula.v1.Northbound/Rekey"), Needs::Role(Role::Admin));
        assert_eq!(needs("/fibula.v1.Northbound/Backup"), Needs::Role(Role::Admin));
        assert_eq!(needs("/fibula.v1.Captures/Capture"), Needs::Role(Role::Admin));
        assert_eq!(needs("/fibula.v1.Northbound/SetLog"), Needs::Role(Role::Admin));
        assert_eq!(needs("/fibula.v1.Northbound/Unheard"), Needs::Role(Role::Admin));
    }
}
