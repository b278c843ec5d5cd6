//! Connections that can be cut without a word, as by a switch between two machines that stops forwarding.

use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Passes {
    All,
    /// Requests, but no answers.
    Requests,
    Nothing,
}

/// Forwards connections to an address.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    passes: watch::Sender<Passes>,
}

impl Proxy {
    pub(crate) async fn new(target: String) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let passes = watch::Sender::new(Passes::All);
        let state = Arc::new(passes.subscribe());
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (state, target) = (Arc::clone(&state), target.clone());
                tokio::spawn(async move {
                    let Ok(far) = TcpStream::connect(&*target).await else { return };
                    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                    let requests = (*state).clone();
                    tokio::spawn(forward(near_in, far_out, requests, |passes| *passes != Passes::Nothing));
                    forward(far_in, near_out, (*state).clone(), |passes| *passes == Passes::All).await;
                });
            }
        });
        Proxy { port, passes }
    }

    pub(crate) fn set(&self, passes: Passes) {
        self.passes.send_replace(passes);
    }
}

/// What comes is kept until it may pass.
async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut state: watch::Receiver<Passes>,
    may_pass: fn(&Passes) -> bool,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        if state.wait_for(may_pass).await.is_err() || to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}
