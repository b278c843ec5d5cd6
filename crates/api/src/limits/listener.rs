//! Accepting connections within the limits, and closing those that do nothing.

use super::connections::{Connection, Guard, Limit, Listening};
use super::table::Kind;
use crate::address::{Address, Origin};
use crate::identity::Identity;
use crate::socket::{Bound, Socket};
use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long accepting pauses when the system gives no descriptor.
const PAUSE: Duration = Duration::from_millis(50);

/// A listener whose connections a [`Guard`] counts. It never fails, and never ends.
#[derive(Debug)]
pub struct Listener {
    listener: Bound,
    guard: Arc<Guard>,
    listening: Arc<Listening>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Listener {
    /// Listens on `address` under the limits of `guard`.
    /// # Errors
    /// When the address cannot be bound.
    pub(crate) async fn bind(address: &Address, guard: &Arc<Guard>, kind: Kind) -> io::Result<Self> {
        let listener = Bound::bind(address).await?;
        Ok(Self { listener, guard: Arc::clone(guard), listening: guard.new_listener(kind), pause: None })
    }

    /// Where it listens.
    /// # Errors
    /// Those of the system.
    pub fn local_addr(&self) -> io::Result<Address> {
        self.listener.local_addr()
    }

    /// The layer for the requests of its connections.
    pub fn layer(&self) -> super::RequestLayer {
        super::RequestLayer::new(Arc::clone(&self.guard), self.listening.number)
    }

    /// The next connection.
    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<(Guarded<Socket>, Origin)> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match ready!(self.listener.poll_accept(cx)) {
                Ok((stream, origin)) => {
                    if let Some(connection) = self.guard.admit(&self.listening, origin) {
                        return Poll::Ready((Guarded::new(stream, Arc::clone(&self.guard), connection), origin));
                    }
                }
                // The peer has gone already.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused
                    ) => {}
                Err(error) => {
                    self.guard.refuse(Limit::Descriptors, None);
                    tracing::debug!(%error, "a connection cannot be accepted");
                    self.guard.replace_one(&self.listening);
                    self.pause = Some(Box::pin(pause()));
                }
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "what the system lacks comes back by itself, and nothing says when")]
fn pause() -> Sleep {
    tokio::time::sleep(PAUSE)
}

/// A connection that ends when it is closed for another one, or when no request comes in time.
#[derive(Debug)]
pub struct Guarded<Io> {
    io: Io,
    guard: Arc<Guard>,
    connection: Arc<Connection>,
    timer: Pin<Box<Sleep>>,
}

impl<Io> Guarded<Io> {
    fn new(io: Io, guard: Arc<Guard>, connection: Arc<Connection>) -> Self {
        let timer = Box::pin(tokio::time::sleep_until(connection.quiet_since().0 + guard.limits().first_request()));
        Self { io, guard, connection, timer }
    }

    /// The peer has shown the certificate of this holder.
    /// # Errors
    /// When the holder has as many connections as one may have, and all of them have requests in progress; or when this one was closed.
    pub(crate) fn prove(&self, holder: &Identity) -> io::Result<()> {
        if self.guard.prove(&self.connection, holder) {
            return Ok(());
        }
        let most = self.guard.limits().connections_per_peer;
        let why = format!(
            "{holder} has {most} connections, and all of them have requests in progress; end some, or raise limits.connections_per_peer"
        );
        Err(io::Error::new(ErrorKind::ConnectionAborted, why))
    }

    /// Fails when the connection has to end.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.connection.is_closed(cx.waker()) {
            return Err(io::Error::new(ErrorKind::ConnectionAborted, "closed for another connection"));
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            let limits = self.guard.limits();
            let (since, had_request) = self.connection.quiet_since();
            let (limit, time) = match had_request {
                true => (Limit::Idle, limits.idle()),
                false => (Limit::FirstRequest, limits.first_request()),
            };
            let now = tokio::time::Instant::now();
            let is_quiet = self.guard.is_quiet(self.connection.key);
            if is_quiet && now >= since + time {
                self.guard.refuse(limit, Some(self.connection.key.1));
                return Err(io::Error::new(ErrorKind::TimedOut, "no request came in time"));
            }
            // With a request in progress the time counts from its end, which comes after now.
            self.timer.as_mut().reset(if is_quiet { since + time } else { now + limits.idle() });
        }
        Ok(())
    }
}

impl<Io> Drop for Guarded<Io> {
    fn drop(&mut self) {
        self.guard.ended(&self.connection);
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for Guarded<Io> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Guarded<Io> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
