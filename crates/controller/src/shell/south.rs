//! The southbound service: one stream per switch.

use crate::core::Auto;
use crate::core::change::{Change, Refusal};
use crate::core::duplicates::{Process, Welcome, sentence};
use crate::core::happened::Level;
use crate::core::hear::{self, Heard};
use crate::core::owner::{Input, Task};
use crate::core::pending::Noted;
use crate::core::session::{Line, decode, weight};
use crate::shell::job::{Attached, Job, Jobs, Ticket};
use crate::shell::relay::Relays;
use crate::shell::report::decoding;
use crate::shell::session::{Outbox, Session};
use crate::shell::shared::Shared;
use crate::shell::turns::{Reports, Seeing, TOO_MANY, Turn};
use crate::wire::status::{status_of, waits};
use api::address::Origin;
use api::crash::step;
use api::gate::{Attempt, Gate, Peer, Turned};
use api::seam::now;
use api::throttle::Throttle;
use api::v1::from_switch::Body;
use api::v1::southbound_server::Southbound;
use api::v1::{
    AnswerReply, FromSwitch, Hello, Said, SeeHostsReply, SeeHostsRequest, SeeSubscriptionsReply,
    SeeSubscriptionsRequest, SeeSwitchReply, SeeSwitchRequest, SeeTrunksReply, SeeTrunksRequest, ToSwitch,
};
use fib::name::{LABELS, clip, is_label};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

/// How long a switch may take to say hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a switch waits until this controller knows what another has committed.
const ATTACH_PATIENCE: Duration = Duration::from_secs(2);

/// Messages queued for the transport; the others wait in the session, where they are counted.
const MESSAGES_AHEAD: usize = 8;

/// From this size on a message is queued for the transport alone.
const LARGE_BYTES: usize = 64 << 10;

/// The most hosts that a switch may report as seen in one request.
const MAX_SEEN: usize = 1000;

pub(crate) struct South {
    pub(crate) jobs: Jobs,
    pub(crate) gate: Arc<Gate>,
    /// For lines that a switch can cause as fast as it sends.
    pub(crate) throttle: Arc<Throttle>,
    pub(crate) shared: Arc<Shared>,
    /// Operators' questions to switches.
    pub(crate) relays: Arc<Relays>,
    /// Reports of switches that are under way.
    pub(crate) seeing: Seeing,
}

#[tonic::async_trait]
impl Southbound for South {
    type AttachStream = Pin<Box<dyn Stream<Item = Result<ToSwitch, Status>> + Send>>;

    async fn attach(&self, request: Request<Streaming<FromSwitch>>) -> Result<Response<Self::AttachStream>, Status> {
        let peer = Peer::of(&request)?;
        let mut incoming = request.into_inner();
        let first = tokio::time::timeout(HELLO_TIMEOUT, incoming.message())
            .await
            .map_err(|_| Status::deadline_exceeded("no hello message within 10 s; connect again"))??;
        let Some(FromSwitch { body: Some(Body::Hello(hello)) }) = first else {
            return Err(Status::invalid_argument("the first message of a stream must be a hello message"));
        };
        let Hello {
            switch,
            report,
            version,
            says_log,
            takes_groups,
            subscriptions,
            weighs_ways,
            process,
            takes_standing,
            answers,
        } = hello;
        // Before anything is looked up: only the switch itself may replace its stream, and receive names and the hash key.
        self.check(&peer, &switch, "attach")?;
        if self.shared.lead.drained.load(Relaxed) {
            return Err(Status::unavailable("this controller is drained; use another one"));
        }
        self.hear(&peer, &switch, process, true)?;
        // A switch may come from another controller, and have what this one has yet to learn.
        let is_known = self.shared.lead.up_to_date(ATTACH_PATIENCE).await;
        is_known.map_err(|refusal| status_of(&refusal))?;
        // The text from a switch may be as long as a message; the log needs only its start.
        let version = clip(&version);
        let mut attached = self.admit(&peer, &switch, &report, weighs_ways).await?;
        if matches!(attached, Err(Refusal::UnknownSwitch { .. })) && self.add_pending(&peer, &switch, &version).await? {
            attached = self.admit(&peer, &switch, &report, weighs_ways).await?;
        }
        let Attached { session, outbox } = attached.map_err(|error| {
            let (name, status) = (clip(&switch), status_of(&error));
            let status = match error.unknown_switch() {
                Some(_) if !is_label(&switch) => {
                    Status::new(status.code(), format!("`{name}` cannot be the name of a switch; {LABELS}"))
                }
                Some(_) if self.shared.known.pending.lock().waits(&switch, now()) => {
                    Status::new(status.code(), waits(&name))
                }
                _ => status,
            };
            if self.shared.known.pending.lock().is_to_be_said(&name, status.message(), now()) {
                tracing::warn!(switch = name, %peer, error = status.message(), "the switch is refused");
            }
            status
        })?;
        let node = session.with(|session| {
            session.set_answers(answers);
            session.said().set_says_log(says_log);
            session.said().set_takes_groups(takes_groups);
            session.said().set_takes_standing(takes_standing);
            session.node()
        });
        self.shared.known.hear_subscriptions(node, subscriptions);
        tracing::info!(switch, %peer, version, "switch connected");
        self.shared.events.note("switch", Level::Good, &*switch, format!("connected from {}", peer.address()));

        let (messages, outgoing) = mpsc::channel(MESSAGES_AHEAD);
        tokio::spawn(feed(outbox, messages));
        tokio::spawn(listen(
            switch,
            incoming,
            session,
            self.jobs.clone(),
            Arc::clone(&self.throttle),
            Arc::clone(&self.shared),
        ));
        Ok(Response::new(Box::pin(tokio_stream::wrappers::ReceiverStream::new(outgoing))))
    }

    async fn answer(&self, request: Request<Streaming<Said>>) -> Result<Response<AnswerReply>, Status> {
        let peer = Peer::of(&request)?;
        let mut said = request.into_inner();
        let first = tokio::time::timeout(HELLO_TIMEOUT, said.message())
            .await
            .map_err(|_| Status::deadline_exceeded("nothing was sent within 10 s; wait for the next request"))??;
        let first = first.ok_or_else(|| Status::invalid_argument("the first message must say what is answered"))?;
        self.check(&peer, &first.switch, "answer")?;
        self.relays.answer(first, said).await?;
        Ok(Response::new(AnswerReply {}))
    }

    async fn see_trunks(&self, request: Request<SeeTrunksRequest>) -> Result<Response<SeeTrunksReply>, Status> {
        let peer = Peer::of(&request)?;
        let SeeTrunksRequest { switch, report, process } = request.into_inner();
        self.check(&peer, &switch, "see_trunks")?;
        self.hear(&peer, &switch, process, false)?;
        let trunks = report.unwrap_or_default().trunks;
        let name = switch.clone();
        if !self.seeing.may_tell(&switch, now()) {
            pause(TOO_MANY).await;
        }
        self.see((&name, "trunks"), |reply, turn| Input::Trunks {
            switch,
            trunks,
            ticket: Some(Ticket::Seen(reply, turn)),
        })
        .await?;
        Ok(Response::new(SeeTrunksReply {}))
    }

    async fn see_hosts(&self, request: Request<SeeHostsRequest>) -> Result<Response<SeeHostsReply>, Status> {
        let peer = Peer::of(&request)?;
        let SeeHostsRequest { switch, hosts, forgetful, process } = request.into_inner();
        self.check(&peer, &switch, "see_hosts")?;
        self.hear(&peer, &switch, process, false)?;
        if hosts.len() > MAX_SEEN {
            let why = format!("{} hosts are too many for one request; send at most {MAX_SEEN} in each", hosts.len());
            return Err(Status::invalid_argument(why));
        }
        let name = switch.clone();
        self.see((&name, "hosts"), |reply, turn| {
            let (at_ms, ticket) = (api::clock::unix_ms(), Ticket::Seen(reply, turn));
            Input::Hosts { switch, hosts, forgetful, at_ms, ticket }
        })
        .await?;
        Ok(Response::new(SeeHostsReply {}))
    }

    async fn see_subscriptions(
        &self,
        request: Request<SeeSubscriptionsRequest>,
    ) -> Result<Response<SeeSubscriptionsReply>, Status> {
        let peer = Peer::of(&request)?;
        let SeeSubscriptionsRequest { switch, subscriptions, process } = request.into_inner();
        self.check(&peer, &switch, "see_subscriptions")?;
        self.hear(&peer, &switch, process, false)?;
        let node = self.jobs.ask(move |state| state.node(&switch)).await.ok_or_else(stopping)?;
        let node = node.map_err(|refusal| status_of(&refusal))?;
        self.shared.known.hear_subscriptions(node, subscriptions);
        Ok(Response::new(SeeSubscriptionsReply {}))
    }

    async fn see_switch(&self, request: Request<SeeSwitchRequest>) -> Result<Response<SeeSwitchReply>, Status> {
        let peer = Peer::of(&request)?;
        let request = request.into_inner();
        let name = request.switch.clone();
        self.check(&peer, &name, "see_switch")?;
        self.hear(&peer, &name, request.process, false)?;
        let switch = name.clone();
        let node = self.jobs.ask(move |state| state.node(&switch)).await.ok_or_else(stopping)?;
        let node = node.map_err(|refusal| status_of(&refusal))?;
        let by = clip(&request.served_by);
        // A late report does not count for a switch that is served here by now.
        if self.shared.session(node).is_none() && self.shared.known.elsewhere.lock().hear(node, request, now()) {
            self.shared.events.note("switch", Level::Info, &*name, format!("is served by {by}"));
        }
        Ok(Response::new(SeeSwitchReply {}))
    }
}

impl South {
    /// Has the writer begin to serve a switch.
    async fn admit(
        &self,
        peer: &Peer,
        switch: &str,
        report: &[u8],
        weighs_ways: bool,
    ) -> Result<Result<Attached, Refusal>, Status> {
        let report = decoding(report.len(), || decode(report)).map_err(|reason| {
            let why = format!("the report of switch `{}` is malformed: {reason}", clip(switch));
            tracing::warn!(switch = clip(switch), ?peer, reason, "the switch is refused");
            Status::invalid_argument(why)
        })?;
        let attach = |reply| Job::attach(switch.to_owned(), report, weighs_ways, reply);
        self.jobs.answer(attach).await.map_err(|_| stopping())
    }

    /// Lists an unknown switch, or adds it if the configuration says so. Returns whether it was added.
    async fn add_pending(&self, peer: &Peer, switch: &str, version: &str) -> Result<bool, Status> {
        let pending = &self.shared.known.pending;
        let noted = pending.lock().note(switch, version, peer.address().to_string(), now(), api::clock::unix_ms());
        if noted == Noted::New {
            let text = format!("waits to be accepted, from {}", peer.address());
            self.shared.events.note("switch", Level::Warning, switch, text);
        }
        if noted == Noted::Not || pending.lock().auto() != Auto::On || self.shared.lead.leader().is_some() {
            return Ok(false);
        }
        let change = Change::AddSwitch { name: switch.to_owned(), tenants: Vec::new() };
        let added = self.jobs.answer(|reply| Job::change(change, reply)).await.map_err(|_| stopping())?;
        match &added {
            Ok(_) => tracing::info!(switch, %peer, "an unknown switch is accepted"),
            Err(error) => tracing::warn!(switch, %peer, %error, "an unknown switch cannot be accepted"),
        }
        Ok(added.is_ok())
    }

    /// Work that only the leader does; answered once it is committed.
    ///
    /// One at a time of a kind and a switch.
    async fn see(
        &self,
        (switch, kind): (&str, &'static str),
        input: impl FnOnce(oneshot::Sender<()>, Turn) -> Input<Arc<Session>, Ticket>,
    ) -> Result<(), Status> {
        if self.shared.lead.leader().is_some() {
            return Err(status_of(&self.shared.lead.not_leader()));
        }
        let turn = self.seeing.turn(switch, kind).ok_or_else(|| {
            Status::resource_exhausted("the last request of this kind is not answered yet; wait for its answer")
        })?;
        self.jobs.answer(|reply| input(reply, turn)).await.map_err(|_| stopping())
    }

    /// Of two switches that claim the same name, only the first is heard.
    fn hear(&self, peer: &Peer, switch: &str, number: u64, is_ours: bool) -> Result<(), Status> {
        let from = match peer.address() {
            Origin::Tcp(address) => address.ip().to_string(),
            unix @ Origin::Unix { .. } => unix.to_string(),
        };
        let process = Process { number, from: from.clone(), is_ours, spoke: now() };
        let welcome = self.shared.known.duplicates.lock().hear(switch, process, || self.shared.serves(switch));
        match welcome {
            Welcome::Yes => Ok(()),
            Welcome::YesOfTwo(other) => {
                tracing::warn!(switch = clip(switch), "{}", sentence(&clip(switch), &from, &other));
                let text =
                    format!("two switches claim this name: the one at {from} is served, the one at {other} is not");
                self.shared.events.note("switch", Level::Bad, switch, text);
                Ok(())
            }
            Welcome::No(first) => Err(Status::already_exists(format!(
                "another switch says that it is `{}`, from {first}, and was there first; give one of them another name, and a \
                 certificate for it",
                clip(switch)
            ))),
        }
    }

    /// Only the switch itself may speak for it.
    fn check(&self, peer: &Peer, switch: &str, what: &'static str) -> Result<(), Status> {
        peer.may_attach_as(switch).map_err(|reason| {
            let from = peer.address();
            self.gate.turn_away(&Attempt { turned: Turned::Name, peer: Some(peer), from, what, reason: &reason });
            Status::permission_denied(reason)
        })
    }
}

/// Hands the session's messages to the transport, which takes them as fast as the switch reads.
async fn feed(mut outbox: Outbox, messages: mpsc::Sender<Result<ToSwitch, Status>>) {
    while let Some(next) = outbox.next().await {
        // What is in the channel is not counted anywhere, so a large message goes there alone.
        let n_slots = if weight(&next) >= LARGE_BYTES { MESSAGES_AHEAD } else { 1 };
        tokio::select! {
            room = messages.reserve_many(n_slots) => {
                let Ok(mut room) = room else { return };
                if let Some(slot) = room.next() {
                    step("stream.send", || slot.send(Ok(next)));
                }
            }
            () = outbox.until_ended() => break,
        }
    }
    // It does not matter if there is no room: the end of the stream says the same.
    let _ =
        messages.try_send(Err(Status::aborted("the controller ended this stream; connect again with a fresh report")));
}

/// Handles acknowledgements and requests for a resync until the stream or the session ends.
async fn listen(
    switch: String,
    mut incoming: Streaming<FromSwitch>,
    session: Arc<Session>,
    jobs: Jobs,
    throttle: Arc<Throttle>,
    shared: Arc<Shared>,
) {
    let mut trunks = Reports::default();
    let reason = loop {
        let next = tokio::select! {
            () = session.until_ended() => break "ended by the controller".to_owned(),
            next = incoming.next() => next,
        };
        let heard = match next {
            None => break "closed by the switch".to_owned(),
            Some(Err(status)) => break clip(status.message()),
            Some(Ok(message)) => hear(&switch, &session, &shared, &throttle, message.body),
        };
        match heard {
            Ok(Next::Read) => {}
            Ok(Next::TooSoon) => pause(TOO_SOON).await,
            Ok(Next::Job(job)) => {
                if matches!(job, Job::Input(Input::Trunks { .. })) && !trunks.may_come(now()) {
                    pause(TOO_MANY).await;
                }
                if jobs.send(job).await.is_err() {
                    break "the controller stops".to_owned();
                }
            }
            Err(reason) => break reason,
        }
    };
    tracing::info!(switch, reason, "switch disconnected");
    shared.events.note("switch", Level::Bad, &*switch, format!("disconnected: {reason}"));
    session.lock().end();
    let _ = jobs.send(Task::Detach(session)).await;
}

/// How long the stream of a switch is not read after a report that came before the last one was taken. So a switch that
/// reports as fast as it can costs others no processor time; one that reports in time never waits.
const TOO_SOON: Duration = Duration::from_millis(1);

#[expect(clippy::disallowed_methods, reason = "the time itself is what a switch has to wait for")]
fn pause(time: Duration) -> tokio::time::Sleep {
    tokio::time::sleep(time)
}

/// The next step with the stream of a switch after a message.
enum Next {
    /// The next one is read.
    Read,
    /// The writer has to act first.
    Job(Job),
    /// It is a report, and the last one was not taken yet.
    TooSoon,
}

/// Takes in a message of a switch; or returns why its stream ends.
fn hear(
    switch: &str,
    session: &Arc<Session>,
    shared: &Shared,
    throttle: &Throttle,
    body: Option<Body>,
) -> Result<Next, String> {
    let n_bytes = if let Some(Body::Resync(resync)) = &body { resync.report.len() } else { 0 };
    match decoding(n_bytes, || hear::hear(session, body, now()))? {
        Heard::Nothing => {}
        Heard::Acknowledged { is_caught_up, took } => {
            if let Some(time) = took {
                shared.totals.update_times.record(time);
            }
            if shared.progress.wants_room.swap(false, AcqRel) || is_caught_up {
                return Ok(Next::Job(Task::Release.into()));
            }
        }
        Heard::Asks { reason, is_first } => {
            if let Some(unsaid) = throttle.pass() {
                tracing::info!(switch, reason, unsaid, "switch asks for a resync");
                shared.events.note("switch", Level::Warning, switch, format!("requests missing parts: {reason}"));
            }
            shared.totals.resyncs.fetch_add(1, Relaxed);
            if !is_first {
                shared.totals.reports_delayed.fetch_add(1, Relaxed);
                return Ok(Next::TooSoon);
            }
            return Ok(Next::Job(Task::Resync(Arc::clone(session)).into()));
        }
        Heard::Verified(verified) => session.verified(verified),
        Heard::Log(said) => session.said_log(said),
        Heard::Trunks(trunks) => {
            return Ok(Next::Job(Input::Trunks { switch: switch.to_owned(), trunks, ticket: None }.into()));
        }
        Heard::Counted { events, takes_standing } => {
            for (level, text) in events {
                shared.events.note("switch", level, switch, text);
            }
            if takes_standing {
                let standing = shared.standing(session);
                session.lock().tell_standing(standing);
            }
        }
        Heard::Subscriptions(subscriptions) => {
            let node = session.lock().node();
            shared.known.hear_subscriptions(node, Some(subscriptions));
        }
        Heard::Stuck { reason } => {
            if let Some(unsaid) = throttle.pass() {
                tracing::warn!(switch, reason, unsaid, "the switch cannot hold its tables; it serves what it has");
                let text = format!("cannot hold its new table, and serves the one it has: {reason}");
                shared.events.note("switch", Level::Bad, switch, text);
            }
            return Ok(Next::Job(Task::Stuck(Arc::clone(session)).into()));
        }
    }
    Ok(Next::Read)
}

fn stopping() -> Status {
    status_of(&Refusal::Stopping)
}
