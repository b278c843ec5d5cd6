//! Requests of operators to this switch through its controller: captures and flows, without access to the machine.
//!
//! The controller checks permissions and records requests; the log here says who made them. Limits: those of captures
//! at `control`.

use super::{capture, flows};
use api::v1::ask::What;
use api::v1::flows_server::Flows as _;
use api::v1::{Ask, ChangeServerReply, Said};
use fib::name::clip;
use prost::Message;
use tokio::sync::mpsc;
use tonic::{Request, Response, Status};

/// Answers what a switch can be asked itself, too.
pub(super) struct Relay {
    pub(super) captures: capture::Control,
    /// None without `[flow]`.
    pub(super) flows: Option<flows::Control>,
}

impl Relay {
    /// Begins to answer. Dropping the receiver ends the answer.
    pub(super) async fn answer(&self, switch: String, Ask { number, who, what }: Ask) -> mpsc::Receiver<Said> {
        // The controller has made sure of who it is, and yet it is a text from elsewhere.
        let who = clip(&who);
        let (to, said) = mpsc::channel(1);
        let first = Said { switch: switch.clone(), number, ..Said::default() };
        let asked = match what {
            Some(What::Capture(request)) => {
                tracing::info!(switch, who, what = api::capture::describe(&request), "captured through the controller");
                match self.captures.begin(request).await {
                    Ok(batches) => {
                        tokio::spawn(pass_on(batches, first, to));
                        return said;
                    }
                    Err(status) => Err(status),
                }
            }
            Some(what) => self.of_flows(what, &switch, &who).await,
            None => Err(Status::unimplemented("this switch has an earlier version than its controller; update it")),
        };
        let last = match asked {
            Ok(reply) => Said { reply: reply.into(), ..first },
            Err(status) => refused(first, &status),
        };
        let _ = to.try_send(last);
        said
    }

    async fn of_flows(&self, what: What, switch: &str, who: &str) -> Result<Vec<u8>, Status> {
        let Some(flows) = &self.flows else {
            let why = "the switch tracks no connections; a section [flow] in its switch.toml makes it do so";
            return Err(Status::failed_precondition(why));
        };
        Ok(match what {
            What::ShowFlows(request) => bytes(flows.show(Request::new(request)).await?),
            What::CountFlows(request) => bytes(flows.count(Request::new(request)).await?),
            What::FlowStats(request) => bytes(flows.stats(Request::new(request)).await?),
            What::ListServers(request) => bytes(flows.list_servers(Request::new(request)).await?),
            What::FlushFlows(request) => {
                let which = api::flow::describe(request.filter.as_ref());
                let reply = flows.flushed(request).await?;
                tracing::info!(switch, who, which, flushed = reply.flushed, "flows ended through the controller");
                reply.encode_to_vec()
            }
            What::ChangeServer(request) => {
                let (server, service) = (request.server.clone(), request.service.clone());
                flows.change_of(request).await?;
                tracing::info!(switch, who, server, service, "a server changed through the controller");
                ChangeServerReply {}.encode_to_vec()
            }
            What::Capture(_) => return Err(Status::internal("a capture is no question of flows")),
        })
    }
}

fn bytes<T: Message>(response: Response<T>) -> Vec<u8> {
    response.into_inner().encode_to_vec()
}

fn refused(first: Said, status: &Status) -> Said {
    Said { code: status.code() as i32, reason: status.message().to_owned(), ..first }
}

/// Passes on what is captured, as fast as it is read. What waits longer is lost, and counted, in the queue of the capture.
async fn pass_on(
    mut batches: mpsc::Receiver<Result<api::v1::CaptureBatch, Status>>,
    first: Said,
    to: mpsc::Sender<Said>,
) {
    let mut next = first;
    loop {
        let batch = tokio::select! {
            () = to.closed() => return,
            batch = batches.recv() => batch,
        };
        let said = match batch {
            Some(Ok(batch)) => Said { reply: batch.encode_to_vec().into(), ..std::mem::take(&mut next) },
            Some(Err(status)) => refused(std::mem::take(&mut next), &status),
            None => return,
        };
        if to.send(said).await.is_err() {
            return;
        }
    }
}
