//! Serves a router at a listener, under the limits of its connections.

use crate::gate::{Listener, Peer};
use crate::limits::Limits;
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use axum::response::Response;
use axum::routing::future::RouteFuture;
use bytes::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tower::Service;

/// Interval between probes of an idle HTTP/2 connection, and time limit for the answer.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// A router that knows the peer of its requests.
#[derive(Clone)]
struct OfConnection {
    router: Router,
    peer: Peer,
}

impl<B> Service<Request<B>> for OfConnection
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<tonic::codegen::StdError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = RouteFuture<Infallible>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Service::<Request<Body>>::poll_ready(&mut self.router, cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(self.peer.clone()));
        self.router.call(request)
    }
}

/// Serves HTTP/1.1 and HTTP/2 at `listener` until the runtime ends. Handlers find the [`Peer`] as connect info.
pub(crate) fn serve(mut listener: Listener, router: Router, limits: &Limits) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .initial_stream_window_size(limits.window_bytes)
        .initial_connection_window_size(limits.window_bytes)
        .keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE);
    let builder = Arc::new(builder);
    tokio::spawn(async move {
        while let Some(connection) = listener.accept().await {
            let (peer, router, builder) = (connection.peer().clone(), router.clone(), Arc::clone(&builder));
            tokio::spawn(async move {
                let service = OfConnection { router, peer };
                // However the connection ends, the peer knows, or has gone.
                let _ = builder.serve_connection(TokioIo::new(connection), TowerToHyperService::new(service)).await;
            });
        }
    });
}
