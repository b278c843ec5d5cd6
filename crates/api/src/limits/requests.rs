//! Counting the bytes of requests and of answers.
//!
//! A gRPC message begins with a byte of flags and its length in four bytes. Its bytes are reserved when this has come, then
//! what its [items](super::items) cost once decoded, as they come. Both are given back when the next message of the stream begins, or when the request is answered. Of other requests every
//! byte is reserved as it comes, until the answer.
//!
//! An answer whose length is known is reserved when it is made, and that of a service that reserves [room](Answering) before. Of others each
//! piece counts from when the connection takes it until it takes the next one. An answer is in progress until the peer has read it.

use super::connections::{Guard, Limit};
use super::held::{Answering, Held, Use};
use super::items::{ITEM_BYTES, Items};
use crate::address::Origin;
use crate::gate::Peer;
use axum::extract::ConnectInfo;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Request, Response, StatusCode};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::Sleep;
use tonic::Status;
use tower::{Layer, Service};

/// Flags and length.
const HEADER: usize = 5;

/// Puts the requests of a listener's connections under its limits.
#[derive(Clone, Debug)]
pub struct RequestLayer {
    guard: Arc<Guard>,
    listener: u32,
}

impl RequestLayer {
    pub(super) fn new(guard: Arc<Guard>, listener: u32) -> Self {
        Self { guard, listener }
    }
}

impl<S> Layer<S> for RequestLayer {
    type Service = LimitedService<S>;

    fn layer(&self, inner: S) -> LimitedService<S> {
        LimitedService { inner, layer: self.clone() }
    }
}

/// A service under limits.
#[derive(Clone, Debug)]
pub struct LimitedService<S> {
    inner: S,
    layer: RequestLayer,
}

/// A body that can hold another one.
pub trait WrapBody: Body<Data = Bytes> + Unpin + Send + Default + 'static {
    /// A body with the same frames.
    fn wrap<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<tonic::codegen::StdError>;
}

impl WrapBody for tonic::body::Body {
    fn wrap<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<tonic::codegen::StdError>,
    {
        Self::new(body)
    }
}

impl WrapBody for axum::body::Body {
    fn wrap<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<tonic::codegen::StdError>,
    {
        Self::new(body)
    }
}

impl<S, B> Service<Request<B>> for LimitedService<S>
where
    S: Service<Request<B>, Response = Response<B>>,
    S::Future: Send + 'static,
    B: WrapBody,
    B::Error: Into<tonic::codegen::StdError>,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let held = remote(&request).and_then(|remote| self.layer.guard.begin((self.layer.listener, remote)));
        let Some(held) = held.map(Arc::new) else { return Box::pin(self.inner.call(request)) };
        let is_grpc = request.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(GRPC));
        if !held.takes_turn() {
            held.refuse(Limit::Requests);
            let refusal = too_many_requests(held.limits().requests_per_second, is_grpc);
            return Box::pin(async move { Ok(refusal) });
        }
        if request.body().is_end_stream() {
            held.came_whole();
        }
        request.extensions_mut().insert(Answering(Arc::clone(&held)));
        let request = request.map(|body| B::wrap(Limited::new(body, is_grpc, Arc::clone(&held))));
        let answer = self.inner.call(request);
        Box::pin(async move {
            let response = answer.await?;
            let len = response.body().size_hint().exact().map_or(0, |len| usize::try_from(len).unwrap_or(usize::MAX));
            let more = len.saturating_sub(held.bytes(Use::Answer));
            if more > 0
                && let Err(status) = held.reserve(Use::Answer, more)
            {
                return Ok(refused(&status, is_grpc));
            }
            Ok(response.map(|body| B::wrap(Answer::new(body, held))))
        })
    }
}

const GRPC: &[u8] = b"application/grpc";

fn remote<B>(request: &Request<B>) -> Option<Origin> {
    let extensions = request.extensions();
    match extensions.get::<Peer>() {
        Some(peer) => Some(peer.address()),
        None => extensions.get::<ConnectInfo<Peer>>().map(|info| info.0.address()),
    }
}

fn too_many_requests<B: WrapBody>(max: u32, is_grpc: bool) -> Response<B> {
    let message =
        format!("more than {max} requests a second from your address; slow down, or raise limits.requests_per_second");
    refused(&Status::resource_exhausted(message), is_grpc)
}

/// A refusal by a limit in the form that the peer reads.
fn refused<B: WrapBody>(status: &Status, is_grpc: bool) -> Response<B> {
    if is_grpc {
        return status.clone().into_http();
    }
    let text = serde_json::json!({ "error": status.message() }).to_string();
    let mut response = Response::new(B::wrap(axum::body::Body::from(text)));
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The body of a request.
struct Limited<B> {
    body: B,
    held: Arc<Held>,
    is_grpc: bool,
    /// The start of a message that has not come whole.
    header: [u8; HEADER],
    header_len: usize,
    /// Bytes of the current message that are to come.
    missing: usize,
    /// Its items so far.
    items: Items,
    /// Bytes reserved for it, or for the message before.
    reserved: usize,
    /// When the current message must be complete.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<B> Limited<B> {
    fn new(body: B, is_grpc: bool, held: Arc<Held>) -> Self {
        let mut limited = Self {
            body,
            held,
            is_grpc,
            header: [0; HEADER],
            header_len: 0,
            missing: 0,
            items: Items::default(),
            reserved: 0,
            deadline: None,
        };
        if !is_grpc {
            limited.start_timer();
        }
        limited
    }

    fn start_timer(&mut self) {
        let time = self.held.limits().message();
        self.deadline = Some(Box::pin(tokio::time::sleep_until(tokio::time::Instant::now() + time)));
    }

    /// Counts what has come.
    fn count(&mut self, mut data: &[u8]) -> Result<(), Status> {
        if !self.is_grpc {
            return self.reserve(data.len());
        }
        while !data.is_empty() {
            if self.missing > 0 {
                let n = self.missing.min(data.len());
                let decoded = self.items.count(&data[..n]) * ITEM_BYTES;
                self.reserve(decoded)?;
                self.reserved += decoded;
                data = &data[n..];
                self.missing -= n;
            } else {
                if self.header_len == 0 {
                    self.start_timer();
                }
                let n = (HEADER - self.header_len).min(data.len());
                self.header[self.header_len..self.header_len + n].copy_from_slice(&data[..n]);
                (data, self.header_len) = (&data[n..], self.header_len + n);
                if self.header_len < HEADER {
                    return Ok(());
                }
                let [_, a, b, c, d] = self.header;
                let len = u32::from_be_bytes([a, b, c, d]) as usize;
                self.held.release(Use::Request, std::mem::replace(&mut self.reserved, 0));
                let max = self.held.limits().message_bytes;
                if len > max {
                    self.held.refuse(Limit::Message);
                    return Err(Status::resource_exhausted(format!(
                        "a message of {len} bytes is too large; send at most {max}, or raise limits.message_bytes"
                    )));
                }
                self.reserve(len)?;
                (self.items, self.reserved, self.missing, self.header_len) = (Items::default(), len, len, 0);
            }
            if self.missing == 0 && self.header_len == 0 {
                self.deadline = None;
                self.held.came_whole();
            }
        }
        Ok(())
    }

    fn reserve(&self, n: usize) -> Result<(), Status> {
        self.held.reserve(Use::Request, n)
    }
}

impl<B> Body for Limited<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<tonic::codegen::StdError>,
{
    type Data = Bytes;
    type Error = tonic::codegen::StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::codegen::StdError>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let counted = frame.data_ref().map_or(Ok(()), |data| self.count(data));
                Poll::Ready(Some(counted.map(|()| frame).map_err(Into::into)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => {
                self.held.came_whole();
                Poll::Ready(None)
            }
            Poll::Pending => match &mut self.deadline {
                Some(deadline) => deadline.as_mut().poll(cx).map(|()| {
                    self.deadline = None;
                    self.held.refuse(Limit::MessageTime);
                    let ms = self.held.limits().message_ms;
                    let why =
                        format!("a message took more than {ms} ms to come; send it faster, or raise limits.message_ms");
                    Some(Err(Status::deadline_exceeded(why).into()))
                }),
                None => Poll::Pending,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Bytes of an answer that are handed over at a time. The connection takes the next ones when the peer has room for them; what it has
/// taken is out of our hands.
const PIECE: usize = 32 << 10;

/// The body of an answer: its request ends with it.
struct Answer<B> {
    body: B,
    held: Arc<Held>,
    /// Whether its pieces count as they come, because nothing has been reserved for it.
    counts: bool,
    /// Bytes of the last piece.
    counted: usize,
    /// What is left of the last data of the body.
    rest: Bytes,
    /// Whether a piece was handed over. Then the end is not told with it, but when there is room for more: until then it is not read.
    has_begun: bool,
}

impl<B: Body<Data = Bytes> + Unpin> Answer<B> {
    fn new(body: B, held: Arc<Held>) -> Self {
        let counts = held.bytes(Use::Answer) == 0;
        Self { body, held, counts, counted: 0, rest: Bytes::new(), has_begun: false }
    }

    fn piece(&mut self) -> Frame<Bytes> {
        self.has_begun = true;
        let piece = self.rest.split_to(self.rest.len().min(PIECE));
        if self.counts {
            self.held.release(Use::Answer, self.counted);
            self.counted = piece.len() + self.rest.len();
            self.held.add(Use::Answer, self.counted);
        }
        Frame::data(piece)
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Answer<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(self.piece())));
        }
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(Ok(match frame.into_data() {
                Ok(data) => {
                    self.rest = data;
                    self.piece()
                }
                Err(trailers) => trailers,
            }))),
            polled => polled,
        }
    }

    fn is_end_stream(&self) -> bool {
        !self.has_begun && self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(rest + body.lower());
        if let Some(upper) = body.upper() {
            hint.set_upper(rest + upper);
        }
        hint
    }
}
