//! A connection, plain or with TLS, and the list of connections that a reload may have to end.

use super::{FAREWELL, Foreign, Loaded, Tls, advice::advise};
use crate::address::Origin;
use crate::clock::unix_seconds;
use crate::gate::{Peer, Who};
use crate::identity::{Certificate, Kind};
use crate::limits::Guarded;
use crate::socket::{self, Socket};
use hyper_util::rt::TokioIo;
use std::fmt::{self, Debug, Formatter};
use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{self, CertificateError};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};
use tonic::transport::Uri;
use tonic::transport::server::Connected;

/// Time that a rejected peer gets to read the reason.
const LINGER: Duration = Duration::from_millis(500);
/// Bytes of it that are read and discarded meanwhile.
const LINGER_BYTES: u64 = 64 << 10;

/// The first byte of a TLS alert. It cannot begin HTTP/2, whose first frame is shorter than 2^20 bytes.
const TLS_ALERT: u8 = 0x15;

/// The protocol of a listener with TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spoken {
    /// gRPC only.
    Grpc,
    /// HTTP/1.1 as well.
    Web,
    /// The same, and a withdrawn peer is told so.
    Pages,
}

/// An open connection with TLS.
pub(crate) struct Live {
    chain: Vec<CertificateDer<'static>>,
    /// The name that a server's certificate must be for; none for a client.
    server: Option<ServerName<'static>>,
    peer: Peer,
    end: oneshot::Sender<()>,
}

impl Live {
    fn is_valid(&self, loaded: &Loaded) -> Result<(), String> {
        let Some((first, rest)) = self.chain.split_first() else { return Err("no certificate".to_owned()) };
        let now = UnixTime::since_unix_epoch(Duration::from_secs(unix_seconds().unsigned_abs()));
        let checked = match &self.server {
            Some(name) => loaded.servers.verify_server_cert(first, rest, name, &[], now).map(drop),
            None => loaded.clients.verify_client_cert(first, rest, now).map(drop),
        };
        checked.map_err(|error| why_invalid(&error))
    }
}

impl Tls {
    /// Ends the open connections whose certificates are no longer valid.
    pub(super) fn check_connections(&self) {
        let loaded = self.current();
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        for connection in std::mem::take(&mut *live) {
            if connection.end.is_closed() {
                continue;
            }
            match connection.is_valid(&loaded) {
                Ok(()) => live.push(connection),
                Err(reason) => {
                    tracing::warn!(peer = %connection.peer, reason, "the certificate is no longer valid; the connection ends");
                    connection.peer.withdraw(&reason);
                    let _ = connection.end.send(());
                }
            }
        }
    }

    /// Adds a connection to the list; the receiver ends it.
    fn enlist(&self, loaded: &Arc<Loaded>, live: impl FnOnce(oneshot::Sender<()>) -> Live) -> oneshot::Receiver<()> {
        let (end, ended) = oneshot::channel();
        {
            let mut list = self.live.lock().unwrap_or_else(PoisonError::into_inner);
            if list.len() == list.capacity() {
                list.retain(|connection| !connection.end.is_closed());
            }
            list.push(live(end));
        }
        // A reload during the handshake did not apply to this connection.
        if !Arc::ptr_eq(loaded, &self.current()) {
            self.check_connections();
        }
        ended
    }

    /// The server's side of a handshake.
    pub(crate) async fn accept(&self, stream: Guarded<Socket>, from: Origin, spoken: Spoken) -> io::Result<Connection> {
        let loaded = self.current();
        let config = if spoken == Spoken::Grpc { &loaded.grpc } else { &loaded.web };
        let accepted = TlsAcceptor::from(Arc::clone(config)).accept(stream).into_fallible().await;
        let stream = match accepted {
            Ok(stream) => stream,
            Err((error, stream)) => {
                linger(stream).await;
                return Err(error);
            }
        };
        let chain: Vec<_> = stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
        let who = match chain.first().map(|first| Certificate::parse(first)) {
            Some(Ok(Certificate { identity, serial, .. })) => Who::Certificate { identity, serial },
            Some(Err(error)) => Who::Unnamed { reason: error.to_string() },
            None => Who::Unnamed { reason: "it presented no certificate".to_owned() },
        };
        if let Who::Certificate { identity, .. } = &who {
            stream.get_ref().0.prove(identity)?;
        }
        let peer = Peer::new(who, from);
        let ended = self.enlist(&loaded, |end| Live { chain, server: None, peer: peer.clone(), end });
        let farewell = (spoken == Spoken::Pages).then_some(FAREWELL);
        Ok(Connection { stream: Stream::Tls(Box::new(stream)), peer, ended: Ended::By(ended, farewell) })
    }

    /// Connects to a server whose certificate must be valid, name the host of `uri`, and be one of `kind`.
    pub(crate) async fn connect(&self, uri: Uri, kind: Kind) -> io::Result<TokioIo<Connection>> {
        let refused = |reason: String| io::Error::new(ErrorKind::InvalidData, reason);
        let stream = dial(&uri, 443).await?;
        let address = stream.peer_addr()?;
        let name = ServerName::try_from(host_of(&uri).to_owned()).map_err(|e| refused(e.to_string()))?;
        let loaded = self.current();
        let connector = TlsConnector::from(Arc::clone(&loaded.client));
        let stream = connector.connect(name.clone(), stream).await.map_err(|e| refused(advise(e.to_string())))?;
        let chain: Vec<_> = stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
        let first = chain.first().map(|first| Certificate::parse(first)).transpose();
        let certificate = first.map_err(|e| refused(format!("its certificate: {e}")))?;
        let Some(Certificate { identity, serial, .. }) = certificate.filter(|c| c.identity.kind() == kind) else {
            return Err(refused(format!(
                "its certificate is not that of a {}; another server answers there, or the address is wrong",
                kind.word()
            )));
        };
        let peer = Peer::new(Who::Certificate { identity, serial }, address.into());
        let ended = self.enlist(&loaded, |end| Live { chain, server: Some(name), peer: peer.clone(), end });
        Ok(TokioIo::new(Connection { stream: Stream::Ours(Box::new(stream)), peer, ended: Ended::By(ended, None) }))
    }
}

/// Connects to the host of `uri` without TLS.
pub(crate) async fn connect_plain(uri: Uri) -> io::Result<TokioIo<Connection>> {
    let stream = dial(&uri, 80).await?;
    let peer = Peer::new(Who::Anyone, stream.peer_addr()?.into());
    Ok(TokioIo::new(Connection { stream: Stream::Bare(Socket::Tcp(stream), false), peer, ended: Ended::Never }))
}

/// Connects with TLS to the host of `uri`, which is not ours.
pub(crate) async fn connect_foreign(tls: &Foreign, uri: &Uri) -> io::Result<client::TlsStream<TcpStream>> {
    let refused = |reason: String| io::Error::new(ErrorKind::InvalidData, reason);
    let stream = dial(uri, 443).await?;
    let name = ServerName::try_from(host_of(uri).to_owned()).map_err(|e| refused(e.to_string()))?;
    TlsConnector::from(tls.current()).connect(name, stream).await.map_err(|e| refused(e.to_string()))
}

/// Why the host of `uri` refuses us, if a certificate is the reason. It says so after the handshake, and a client that
/// writes meanwhile sees a broken pipe instead: so this connects, and waits for the reason for a limited time.
pub(crate) async fn refusal(tls: &Foreign, uri: &Uri, within: Duration) -> Option<String> {
    let mut stream = match connect_foreign(tls, uri).await {
        Ok(stream) => stream,
        Err(error) => return Some(error.to_string()).filter(|_| error.kind() == ErrorKind::InvalidData),
    };
    let heard = tokio::time::timeout(within, stream.read_u8()).await.ok()?;
    heard.err().filter(|error| error.kind() == ErrorKind::InvalidData).map(|error| error.to_string())
}

/// Connects to a Unix socket.
pub(crate) async fn connect_unix(path: &Path) -> io::Result<TokioIo<Connection>> {
    let (socket, origin) = socket::connect_unix(path).await?;
    let who = match origin {
        Origin::Unix { uid, .. } => Who::user(uid),
        Origin::Tcp(_) => Who::Anyone,
    };
    let peer = Peer::new(who, origin);
    Ok(TokioIo::new(Connection { stream: Stream::Bare(socket, false), peer, ended: Ended::Never }))
}

async fn dial(uri: &Uri, default_port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host_of(uri), uri.port_u16().unwrap_or(default_port))).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn host_of(uri: &Uri) -> &str {
    uri.host().unwrap_or_default().trim_matches(['[', ']'])
}

/// Lets the peer read the alert with the reason of its rejection: closing at once, with bytes of it unread, would
/// destroy the alert.
async fn linger(mut stream: Guarded<Socket>) {
    let _ = tokio::time::timeout(LINGER, async {
        stream.shutdown().await?;
        tokio::io::copy(&mut (&mut stream).take(LINGER_BYTES), &mut tokio::io::sink()).await
    })
    .await;
}

enum Stream {
    Plain(Guarded<Socket>),
    Tls(Box<server::TlsStream<Guarded<Socket>>>),
    /// A connection that we opened, and whether it has received anything.
    Bare(Socket, bool),
    /// A connection with TLS that we opened.
    Ours(Box<client::TlsStream<TcpStream>>),
}

/// A connection, and the peer at the other end.
pub struct Connection {
    stream: Stream,
    peer: Peer,
    ended: Ended,
}

/// Whether a reload ends a connection.
enum Ended {
    /// No reload does: it has no certificate, or a command stopped watching the files once it was connected.
    Never,
    /// The receiver ends it; the duration is how long it stays for those who ask why.
    By(oneshot::Receiver<()>, Option<Duration>),
    Soon(Pin<Box<Sleep>>),
    Already,
}

impl Debug for Connection {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Connection {
    pub(crate) fn plain(stream: Guarded<Socket>, peer: Peer) -> Self {
        Self { stream: Stream::Plain(stream), peer, ended: Ended::Never }
    }

    /// The peer at the other end.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns an error once a reload has ended the connection. A side that only writes must notice, too: if a peer
    /// sends its next request early, the server reads nothing until a stream has ended.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if let Ended::By(ended, farewell) = &mut self.ended {
            match pin!(ended).poll(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => {
                    let soon = |farewell| Ended::Soon(Box::pin(sleep_until(Instant::now() + farewell)));
                    self.ended = farewell.map_or(Ended::Already, soon);
                }
                Poll::Ready(Err(_)) => self.ended = Ended::Never,
            }
        }
        if let Ended::Soon(until) = &mut self.ended
            && until.as_mut().poll(cx).is_ready()
        {
            self.ended = Ended::Already;
        }
        match self.ended {
            Ended::Already => Err(io::Error::new(ErrorKind::ConnectionAborted, "the certificate is no longer valid")),
            Ended::Never | Ended::By(..) | Ended::Soon(_) => Ok(()),
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Bare(stream, heard) => {
                let before = buf.filled().len();
                let read = Pin::new(stream).poll_read(cx, buf)?;
                let first = buf.filled().get(before).filter(|_| !*heard);
                if first == Some(&TLS_ALERT) {
                    let text = "a server with TLS answers there; use a URL with https://";
                    return Poll::Ready(Err(io::Error::new(ErrorKind::InvalidData, text)));
                }
                *heard |= first.is_some();
                read.map(Ok)
            }
            Stream::Ours(stream) => Pin::new(stream).poll_read(cx, buf).map_err(advised),
        }
    }
}

/// The reason why a certificate is not valid, in words.
fn why_invalid(error: &rustls::Error) -> String {
    let rustls::Error::InvalidCertificate(why) = error else { return error.to_string() };
    match why {
        CertificateError::Revoked => "it is revoked".to_owned(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".to_owned(),
        CertificateError::UnknownIssuer => "its authority is no longer trusted".to_owned(),
        _ => error.to_string(),
    }
}

/// Adds advice to TLS errors: behind gRPC, only their text is left.
fn advised(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), advise(error.to_string()))
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Bare(stream, _) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Ours(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Stream::Bare(stream, _) => Pin::new(stream).poll_write_vectored(cx, slices),
            Stream::Ours(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
            Stream::Bare(stream, _) => stream.is_write_vectored(),
            Stream::Ours(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Bare(stream, _) => Pin::new(stream).poll_flush(cx),
            Stream::Ours(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Bare(stream, _) => Pin::new(stream).poll_shutdown(cx),
            Stream::Ours(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
