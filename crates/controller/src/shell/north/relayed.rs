//! Questions to a switch through its controller: captures and flows, without access to the switch's machine.
//!
//! ```text
//!  operator ─► Captures, Flows ─► Ask on the stream of the switch
//!  operator ◄─ one batch ahead ◄─ Southbound.Answer, a connection of the switch for this answer alone
//! ```
//! A slow reader holds up a connection that carries nothing else; what a capture loses meanwhile the switch counts and reports. Of an
//! unread answer, the window of that connection and two messages are in memory; room for it is reserved as for other answers
//! (`limits`), per operator and in total. It ends on the switch when the operator goes.
//! Limits: the switch must be connected to this controller; a switch of an earlier version cannot be asked.

use super::North;
use crate::shell::relay::{Answer, broken};
use crate::shell::session::Session;
use api::audit::Audit;
use api::gate::Peer;
use api::limits::Answering;
use api::v1;
use api::v1::Ask;
use api::v1::ask::What;
use api::v1::captures_server::Captures;
use api::v1::flows_server::Flows;
use fib::name::clip;
use lookup::base::visible::visible;
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};

/// How long a switch may take to begin.
const PATIENCE: Duration = Duration::from_secs(15);

/// Bytes of an answer that wait for an operator at most: the usual window of a connection, and messages on their way.
const WAITING_BYTES: usize = 4 << 20;

impl North {
    /// Asks a switch, and waits until it begins to answer.
    async fn ask_for(&self, peer: &Peer, name: &str, what: What) -> Result<(Arc<Session>, Answer), Status> {
        if name.is_empty() {
            return Err(Status::invalid_argument("say which switch: the controller has none itself"));
        }
        let node = self.node(name).await?;
        let session = self.shared.session(node).ok_or_else(|| self.gone(name, node))?;
        let called = clip(name);
        if !session.lock().answers() {
            return Err(Status::failed_precondition(format!(
                "switch `{called}` has an earlier version, which cannot be asked by its controller; update it first, or ask it directly with --at"
            )));
        }
        let (turn, answer) = self.relays.wait(name);
        if !session.lock().ask_for(Ask { number: turn.number, who: peer.to_string(), what: Some(what) }) {
            return Err(Status::unavailable(format!(
                "the stream of switch `{called}` has ended, or it reads too slowly; try again"
            )));
        }
        let begun = tokio::select! {
            biased;
            begun = tokio::time::timeout(PATIENCE, answer) => begun,
            () = session.until_ended() => return Err(broken(name, "its stream ended before it answered")),
        };
        let Ok(Ok(answer)) = begun else {
            let seconds = PATIENCE.as_secs();
            return Err(Status::deadline_exceeded(format!(
                "switch `{called}` has not begun to answer within {seconds} s; see its log, which says why it cannot connect a second time"
            )));
        };
        Ok((session, answer))
    }

    /// Asks for one reply.
    async fn ask_once<M: Message + Default>(&self, peer: &Peer, name: &str, what: What) -> Result<M, Status> {
        let (session, mut answer) = self.ask_for(peer, name, what).await?;
        let reply = tokio::select! {
            biased;
            reply = answer.next(name) => reply?,
            () = session.until_ended() => None,
        };
        reply.ok_or_else(|| broken(name, "its answer has no reply"))
    }

    /// Asks for a change, to its end, and records it, even if the caller is gone.
    async fn ask_change<M: Message + Default + 'static>(
        &self,
        peer: Peer,
        (name, what, detail): (String, &'static str, String),
        ask: What,
        counts: impl FnOnce(&M) -> (u64, u64) + Send + 'static,
    ) -> Result<Response<M>, Status> {
        let north = self.clone();
        let changed = tokio::spawn(async move {
            let changed = north.ask_once(&peer, &name, ask).await;
            record(&north.audit, &peer, (&name, what, &detail), changed.as_ref().map(counts));
            changed
        });
        let changed = changed.await;
        changed
            .unwrap_or_else(|_| {
                Err(Status::internal("the change ended before it was recorded; see the controller's log"))
            })
            .map(Response::new)
    }
}

fn record(audit: &Audit, peer: &Peer, (name, what, detail): (&str, &str, &str), end: Result<(u64, u64), &Status>) {
    let detail = format!("switch {}: {}", clip(name), visible(&clip(detail)));
    match end {
        Err(status) if matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded) => {
            audit.unanswered(peer, what, &detail, &format!("asked, not answered: {}", status.message()));
        }
        end => audit.change(peer, what, &detail, end.map_err(Status::message)),
    }
}

#[tonic::async_trait]
impl Captures for North {
    type CaptureStream = ReceiverStream<Result<v1::CaptureBatch, Status>>;

    async fn capture(&self, request: Request<v1::CaptureRequest>) -> Result<Response<Self::CaptureStream>, Status> {
        let peer = Peer::of(&request)?;
        Answering::reserve(&request, WAITING_BYTES)?;
        let request = request.into_inner();
        let (name, detail) = (request.switch.clone(), api::capture::describe(&request));
        let begun = self.ask_for(&peer, &name, What::Capture(request)).await;
        // A refusal of the switch is the first that it says.
        let begun = match begun {
            Ok((session, mut answer)) => answer.next(&name).await.map(|first| (session, answer, first)),
            Err(status) => Err(status),
        };
        record(&self.audit, &peer, (&name, "capture", &detail), begun.as_ref().map(|_| (0, 0)));
        let (session, answer, first) = begun?;
        let (to, batches) = mpsc::channel(1);
        tokio::spawn(pass_on(name, session, answer, first, to));
        Ok(Response::new(ReceiverStream::new(batches)))
    }
}

/// Passes on what is captured as fast as it is read, until the operator goes, or the switch.
async fn pass_on(
    name: String,
    session: Arc<Session>,
    mut answer: Answer,
    first: Option<v1::CaptureBatch>,
    to: mpsc::Sender<Result<v1::CaptureBatch, Status>>,
) {
    let mut next = Ok(first);
    loop {
        let said = match next {
            Ok(Some(batch)) => Ok(batch),
            Ok(None) => Err(broken(&name, "the switch ended the capture")),
            Err(status) => Err(status),
        };
        let is_last = said.is_err();
        if to.send(said).await.is_err() || is_last {
            return;
        }
        next = tokio::select! {
            biased;
            () = to.closed() => return,
            () = session.until_ended() => Err(broken(&name, "its stream ended")),
            next = answer.next(&name) => next,
        };
    }
}

#[tonic::async_trait]
impl Flows for North {
    async fn show(&self, request: Request<v1::ShowFlowsRequest>) -> Result<Response<v1::ShowFlowsReply>, Status> {
        let peer = Peer::of(&request)?;
        Answering::reserve(&request, WAITING_BYTES)?;
        let request = request.into_inner();
        let name = request.switch.clone();
        self.ask_once(&peer, &name, What::ShowFlows(request)).await.map(Response::new)
    }

    async fn count(&self, request: Request<v1::CountFlowsRequest>) -> Result<Response<v1::CountFlowsReply>, Status> {
        let peer = Peer::of(&request)?;
        let request = request.into_inner();
        let name = request.switch.clone();
        self.ask_once(&peer, &name, What::CountFlows(request)).await.map(Response::new)
    }

    async fn flush(&self, request: Request<v1::FlushFlowsRequest>) -> Result<Response<v1::FlushFlowsReply>, Status> {
        let peer = Peer::of(&request)?;
        let request = request.into_inner();
        let of = (request.switch.clone(), "flush_flows", api::flow::describe(request.filter.as_ref()));
        let counts = |reply: &v1::FlushFlowsReply| (reply.flushed, 0);
        self.ask_change(peer, of, What::FlushFlows(request), counts).await
    }

    async fn stats(&self, request: Request<v1::FlowStatsRequest>) -> Result<Response<v1::FlowStatsReply>, Status> {
        let peer = Peer::of(&request)?;
        let request = request.into_inner();
        let name = request.switch.clone();
        self.ask_once(&peer, &name, What::FlowStats(request)).await.map(Response::new)
    }

    async fn list_servers(
        &self,
        request: Request<v1::ListServersRequest>,
    ) -> Result<Response<v1::ListServersReply>, Status> {
        let peer = Peer::of(&request)?;
        let request = request.into_inner();
        let name = request.switch.clone();
        self.ask_once(&peer, &name, What::ListServers(request)).await.map(Response::new)
    }

    async fn change_server(
        &self,
        request: Request<v1::ChangeServerRequest>,
    ) -> Result<Response<v1::ChangeServerReply>, Status> {
        let peer = Peer::of(&request)?;
        let request = request.into_inner();
        let of = (request.switch.clone(), "change_server", format!("{} of {}", request.server, request.service));
        self.ask_change(peer, of, What::ChangeServer(request), |_: &v1::ChangeServerReply| (1, 0)).await
    }
}
