//! Connections that have completed the handshake.

use super::{Attempt, Gate, Peer, Turned, Who};
use crate::address::{Address, Origin};
use crate::limits::{self, Guarded, Kind, RequestLayer};
use crate::socket::Socket;
use crate::tls::{Connection, Spoken, Tls, explain_client};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::Stream;

/// Time limit for a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections that wait until the server takes them.
const READY: usize = 64;

/// The protocol of a listener.
#[derive(Clone, Debug)]
pub(super) enum Wire {
    Plain(Who),
    /// A Unix socket: the kernel identifies the other end.
    Local,
    Tls {
        tls: Arc<Tls>,
        spoken: Spoken,
    },
}

/// A listener. Handshakes run concurrently, so that a slow one delays no other; failures are counted at the gate.
#[derive(Debug)]
pub struct Listener {
    address: Address,
    layer: RequestLayer,
    connections: mpsc::Receiver<Connection>,
}

impl Listener {
    pub(super) async fn bind(address: &Address, wire: Wire, gate: &Arc<Gate>, for_pages: bool) -> io::Result<Self> {
        let has_certificates = matches!(wire, Wire::Tls { .. });
        let kind = Kind { has_certificates, for_pages };
        let listener = limits::Listener::bind(address, gate.limits(), kind).await?;
        let (address, layer) = (listener.local_addr()?, listener.layer());
        let (ready, connections) = mpsc::channel(READY);
        tokio::spawn(accept(listener, wire, Arc::downgrade(gate), ready));
        Ok(Self { address, layer, connections })
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The layer that applies the limits to the requests of its connections.
    pub fn limits(&self) -> RequestLayer {
        self.layer.clone()
    }
}

/// Accepts until the listener is dropped.
async fn accept(mut listener: limits::Listener, wire: Wire, gate: Weak<Gate>, ready: mpsc::Sender<Connection>) {
    loop {
        let (stream, from) = tokio::select! {
            () = ready.closed() => return,
            accepted = std::future::poll_fn(|cx| listener.poll_accept(cx)) => accepted,
        };
        match &wire {
            Wire::Plain(_) | Wire::Local => {
                let who = match (&wire, from) {
                    (Wire::Plain(who), _) => who.clone(),
                    (_, Origin::Unix { uid, .. }) => Who::user(uid),
                    (_, Origin::Tcp(_)) => Who::Anyone,
                };
                let connection = Connection::plain(stream, Peer::new(who, from));
                if ready.send(connection).await.is_err() {
                    return;
                }
            }
            Wire::Tls { tls, spoken } => {
                // As many as the limits admit: idle connections are closed for others, and none waits to be accepted.
                let (tls, spoken, gate, ready) = (Arc::clone(tls), *spoken, gate.clone(), ready.clone());
                tokio::spawn(async move {
                    if let Some(connection) = shake_hands(&tls, stream, from, spoken, &gate).await {
                        let _ = ready.send(connection).await;
                    }
                });
            }
        }
    }
}

async fn shake_hands(
    tls: &Tls,
    stream: Guarded<Socket>,
    from: Origin,
    spoken: Spoken,
    gate: &Weak<Gate>,
) -> Option<Connection> {
    let reason = match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream, from, spoken)).await {
        Ok(Ok(connection)) => return Some(connection),
        Ok(Err(error)) => explain_client(&error),
        Err(_) => format!("no handshake within {} s", HANDSHAKE_TIMEOUT.as_secs()),
    };
    let gate = gate.upgrade()?;
    gate.turn_away(&Attempt { turned: Turned::Handshake, peer: None, from, what: "connect", reason: &reason });
    None
}

/// For the gRPC server.
impl Stream for Listener {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.connections.poll_recv(cx).map(|connection| connection.map(Ok))
    }
}

impl Listener {
    /// The next connection; none when the runtime ends.
    pub(crate) async fn accept(&mut self) -> Option<Connection> {
        self.connections.recv().await
    }
}
