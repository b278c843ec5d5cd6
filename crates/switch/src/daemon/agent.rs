//! The switch's end of the southbound stream, which keeps a [`Replica`] in step with the controller.
//!
//! It connects, reports what it holds, applies updates and acknowledges them. After a gap or a wrong digest it sends
//! its report again, and ignores messages that do not apply until that is answered. A switch that was removed from the
//! network and added again has another id: it starts over, and serves what it has until all of it is replaced. Without
//! a controller nothing changes: the switch serves what it has, logs that, and tries again, first after 0.2 s, then
//! after twice the time each, at most 5 s.
//!
//! With several controllers, it prefers one, then another, by its own name. If another one serves it, it checks from
//! time to time whether one that it prefers answers again, and moves there.

pub use super::about::{About, Answering};
pub use super::shared::{LinkStatus, Shared};

use super::controllers::{LONG, Patience, SHORT, connect, connect_within, controllers_of};
use super::leader::{Client, ToLeader, process};
use super::shared::Served;
use super::trunk::Trunk;
use super::{log, others, subscriptions};
use api::client::ConnectError;
use api::clock;
use api::crash::step;
use api::seam::{Mistake, mistaken};
use api::tls::Tls;
use api::v1::from_switch::Body;
use api::v1::{
    Ack, FromSwitch, GetStatusRequest, Hello, LinkEnd, Refused, Resync, SeeTrunksRequest, SeenTrunk, ToSwitch,
    TrunkReport,
};
use dataplane::links::Neighbour;
use fib::messages::Message;
use fib::replica::{ReplicaError, Tables};
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::{ReceiverStream, WatchStream};
use tonic::transport::Channel;

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Delay from the hello to the first report of memory use, and the interval of further reports.
const FIRST_MEMORY: Duration = Duration::from_secs(1);
const MEMORY_EVERY: Duration = Duration::from_secs(10);

/// Interval between reports of counters.
const COUNTERS_EVERY: Duration = Duration::from_secs(2);

/// Interval between checks whether a preferred controller answers again; doubled each time that it answers but sends
/// the switch on.
const HOME_EVERY: Duration = Duration::from_secs(120);
/// The longest interval between these checks, as a multiple of the first.
const MOST_HOME: u32 = 16;

/// Interval of log lines while there is no controller.
const REMIND: Duration = Duration::from_secs(60);

/// Reports answered without progress before the stream is abandoned and opened again.
const MAX_FRUITLESS_REPORTS: u32 = 3;

/// A switch whose limits were exceeded reports again after this time, which doubles with each report.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest time after which such a switch reports again.
const LONGEST_RETRY: Duration = Duration::from_secs(300);

/// Messages above this size are applied where they do not delay other tasks.
const BIG_MESSAGE_BYTES: usize = 64 << 10;

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The switch moves to a controller that it prefers.
    #[error("a controller that this switch prefers answers again")]
    Home,
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The controller refused or ended it, or the connection broke.
    #[error("{}", api::client::reason(.0))]
    Ended(#[from] Box<tonic::Status>),
    /// The controller closed it.
    #[error("the controller closed the stream")]
    Closed,
    /// A message that no resync can repair.
    #[error(transparent)]
    Replica(ReplicaError),
    /// Resyncs do not help.
    #[error(
        "the controller answered {reports} reports in a row with messages that do not fit; the switch reconnects. The last error: {last}"
    )]
    Fruitless {
        /// How many.
        reports: u32,
        /// Why the last message was refused.
        last: ReplicaError,
    },
}

/// Keeps the replica in step with the controller, or with one of a comma-separated list, for ever. `switch`: the name
/// by which the controller knows it, and which `tls` has in its certificate.
pub async fn run<T: Tables + Send>(
    switch: String,
    controller: String,
    tls: Option<Arc<Tls>>,
    shared: Arc<Shared<T>>,
    about: Arc<dyn About>,
) {
    run_with(switch, controller, tls, shared, about, HOME_EVERY).await;
}

/// As [`run`], with this interval between checks whether a preferred controller answers again.
pub async fn run_with<T: Tables + Send>(
    switch: String,
    controller: String,
    tls: Option<Arc<Tls>>,
    shared: Arc<Shared<T>>,
    about: Arc<dyn About>,
    home_every: Duration,
) {
    // All run for ever.
    tokio::join!(
        follow(&switch, &controller, tls.as_ref(), &shared, &about, home_every),
        tell_leader(&switch, &controller, tls.as_ref(), &shared),
        subscriptions::tell_each(&switch, &controller, tls.as_ref(), &shared),
        others::tell_each(&switch, &controller, tls.as_ref(), &shared, &about)
    );
}

/// Reports the trunks to whichever controller leads: this switch may be served by another one, which changes nothing in
/// the network.
async fn tell_leader<T: Tables>(switch: &str, controllers: &str, tls: Option<&Arc<Tls>>, shared: &Shared<T>) {
    let mut trunks = shared.trunks.subscribe();
    if controllers_of(controllers).count() == 1 {
        return;
    }
    let mut leader = ToLeader::new(controllers, tls.cloned(), 2 * SHORT.connect);
    let mut pause = FIRST_PAUSE;
    loop {
        let report = report_of(&mut trunks);
        let is_told = report.is_none() || {
            let request = SeeTrunksRequest { switch: switch.to_owned(), report, process: process() };
            let ask = |mut client: Client| {
                let request = request.clone();
                async move { client.see_trunks(request).await.is_ok() }
            };
            leader.ask(ask).await
        };
        let again = if is_told { None } else { Some(tokio::time::Instant::now() + jitter(pause)) };
        pause = if is_told { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        tokio::select! {
            changed = trunks.changed() => if changed.is_err() { return },
            () = until(again) => {}
        }
    }
}

/// Keeps the replica in step with a controller, for ever.
async fn follow<T: Tables + Send>(
    switch: &str,
    controller: &str,
    tls: Option<&Arc<Tls>>,
    shared: &Shared<T>,
    about: &Arc<dyn About>,
    home_every: Duration,
) {
    let mut pause = FIRST_PAUSE;
    let mut last_said: Option<(Instant, String)> = None;
    let controllers = in_order_for(switch, controllers_of(controller));
    let (mut nth, mut n_sent_on) = (0, 0_u32);
    loop {
        let controller = controllers[nth];
        // After a full round without success, all are probably busy rather than gone.
        let within = if pause == FIRST_PAUSE { SHORT.connect } else { LONG.connect };
        let patience = if controllers.len() == 1 { LONG } else { Patience { connect: within, ..SHORT } };
        let home = home(&controllers[..nth], tls, home_every * (1 << n_sent_on.min(MOST_HOME.ilog2())));
        let channel = connect_within(controller, tls, patience);
        let takes_standing = controllers.len() > 1;
        let Err(error) = session((switch, controller, takes_standing), channel, tls, shared, about, home).await;
        shared.served.send_if_modified(|served| std::mem::take(served).by.is_some());
        if matches!(error, StreamError::Home) {
            tracing::info!(switch, from = controller, "a controller that this switch prefers answers again");
            (nth, n_sent_on) = (0, n_sent_on + 1);
            shared.lock_status().connected = false;
            continue;
        }
        if nth == 0 && shared.lock_status().connected {
            n_sent_on = 0;
        }
        let was_connected = {
            let mut status = shared.lock_status();
            status.last_error = error.to_string();
            let was_connected = std::mem::replace(&mut status.connected, false);
            if was_connected {
                status.since = clock::now();
            }
            was_connected
        };
        if was_connected {
            pause = FIRST_PAUSE;
        }
        let why = error.to_string();
        let is_said = |(at, before): &(Instant, String)| at.elapsed() < REMIND && *before == why;
        if was_connected || !last_said.as_ref().is_some_and(is_said) {
            last_said = Some((Instant::now(), why));
            let LinkStatus { since, serving_change, .. } = shared.status();
            let without = without_controller(was_connected, since.elapsed().unwrap_or_default());
            let goes_on = if serving_change == 0 {
                "has no table yet".to_owned()
            } else {
                format!("forwards by version {serving_change}")
            };
            tracing::warn!(switch, controller, %error, "{without}; the switch {goes_on} and tries again");
        }
        #[expect(clippy::disallowed_methods, reason = "the pause before the next attempt to connect")]
        tokio::time::sleep(jitter(pause)).await;
        nth = (nth + 1) % controllers.len();
        if nth == 0 {
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// Describes the time without a controller.
fn without_controller(was_connected: bool, time: Duration) -> String {
    match time.as_secs() {
        _ if was_connected => "the connection to the controller ended".to_owned(),
        0 => "no controller serves this switch yet".to_owned(),
        seconds => format!("no controller for {seconds} s"),
    }
}

/// The controllers in an order specific to the switch, so that switches spread over them, and those of a failed
/// controller over the others.
fn in_order_for<'a>(switch: &str, controllers: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut controllers: Vec<&str> = controllers.collect();
    controllers.sort_by_cached_key(|controller| {
        let mut hasher = DefaultHasher::new();
        (switch, controller).hash(&mut hasher);
        hasher.finish()
    });
    controllers
}

/// Returns when one of these controllers answers; never, if there are none.
async fn home(preferred: &[&str], tls: Option<&Arc<Tls>>, every: Duration) {
    if preferred.is_empty() {
        return std::future::pending().await;
    }
    loop {
        #[expect(clippy::disallowed_methods, reason = "how often it is looked")]
        tokio::time::sleep(jitter(every)).await;
        for controller in preferred {
            if let Ok(channel) = connect(controller, tls).await
                && answers(channel).await
            {
                return;
            }
        }
    }
}

/// Whether a controller answers at all, even if it does not serve switches: a stalled process also accepts connections.
async fn answers(channel: Channel) -> bool {
    let mut client = api::client::northbound(channel);
    let asked = tokio::time::timeout(SHORT.connect, client.get_status(GetStatusRequest {})).await;
    // Errors of the transport have a source.
    let is_its_own = |status: tonic::Status| std::error::Error::source(&status).is_none();
    asked.is_ok_and(|answer| answer.err().is_none_or(is_its_own))
}

/// Up to a quarter less, so that switches do not all come back at once.
fn jitter(pause: Duration) -> Duration {
    let nanos = clock::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |t| t.subsec_nanos());
    pause - pause.mul_f64(f64::from(nanos % 1000) / 4000.0)
}

/// One stream from its hello to its end.
async fn session<T: Tables>(
    (switch, controller, takes_standing): (&str, &str, bool),
    channel: impl Future<Output = Result<Channel, ConnectError>>,
    tls: Option<&Arc<Tls>>,
    shared: &Shared<T>,
    about: &Arc<dyn About>,
    home: impl Future<Output = ()>,
) -> Result<Infallible, StreamError> {
    let channel = channel.await?;
    let hello = Hello {
        switch: switch.to_owned(),
        report: shared.report().into(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        says_log: true,
        takes_groups: true,
        weighs_ways: true,
        subscriptions: shared.groups.subscriptions().map(|_| shared.subscriptions.borrow().clone()),
        process: process(),
        takes_standing,
        answers: about.answers(),
    };
    let (to_controller, outgoing) = mpsc::channel(4);
    // The last acknowledgement covers the earlier ones: however slow the link, one is enough.
    let (applied, acknowledgements) = watch::channel(0);
    let wrap = |body| FromSwitch { body: Some(body) };
    let _ = step("agent.hello", || to_controller.try_send(wrap(Body::Hello(hello))).is_ok());
    let acknowledgements = WatchStream::from_changes(acknowledgements);
    let acknowledgements = acknowledgements.map(|sequence| FromSwitch { body: Some(Body::Ack(Ack { sequence })) });
    // The hello is queued, and the first of merged streams is polled first. Both end with this session: while the
    // outgoing stream lives, the controller considers the whole stream alive.
    let outgoing = ReceiverStream::new(outgoing).merge(acknowledgements);
    let mut tell = tokio::time::interval_at(tokio::time::Instant::now() + FIRST_MEMORY, MEMORY_EVERY);
    tell.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut count = tokio::time::interval_at(tokio::time::Instant::now() + FIRST_MEMORY, COUNTERS_EVERY);
    count.set_missed_tick_behavior(MissedTickBehavior::Delay);

    let mut client = api::client::southbound(channel);
    let mut incoming = client.attach(outgoing).await.map_err(Box::new)?.into_inner();
    {
        let mut status = shared.lock_status();
        status.connected = true;
        status.since = clock::now();
        status.connects += 1;
    }
    shared.served.send_replace(Served { by: Some(controller.to_owned()), ..Served::default() });
    tracing::info!(switch, controller, "connected to the controller");

    let mut following = Following::default();
    // While its limits are exceeded: when it reports again.
    let mut retry: Option<tokio::time::Instant> = None;
    let mut home = pin!(home);
    let mut trunks = shared.trunks.subscribe();
    // Including changes from before this stream.
    trunks.mark_changed();
    // The hello contains the hosts' subscriptions. Later changes go to controllers that ask for them.
    let (mut subscriptions, mut tells_subscriptions) = (shared.subscriptions.subscribe(), false);
    subscriptions.mark_changed();
    loop {
        let next = tokio::select! {
            () = &mut home => return Err(StreamError::Home),
            Ok(()) = trunks.changed() => {
                if let Some(report) = report_of(&mut trunks) {
                    to_controller.send(wrap(Body::Trunks(report))).await.map_err(|_| StreamError::Closed)?;
                }
                continue;
            }
            Ok(()) = subscriptions.changed(), if tells_subscriptions => {
                let said = Body::Subscriptions(subscriptions.borrow_and_update().clone());
                to_controller.send(wrap(said)).await.map_err(|_| StreamError::Closed)?;
                continue;
            }
            _ = tell.tick() => {
                // The controller need not know what it does not read in time.
                let _ = to_controller.try_send(wrap(Body::Memory(about.memory())));
                continue;
            }
            _ = count.tick() => {
                if let Some(counters) = about.counters() {
                    let _ = to_controller.try_send(wrap(Body::Counters(counters)));
                }
                continue;
            }
            next = incoming.message() => next.map_err(Box::new)?,
            () = until(retry) => {
                retry = None;
                let resync = following.retry(shared);
                to_controller.send(wrap(Body::Resync(resync))).await.map_err(|_| StreamError::Closed)?;
                continue;
            }
        };
        let Some(message) = next else { return Err(StreamError::Closed) };
        if let Some(asked) = message.log {
            let said = Body::Log(log::said(switch, asked));
            to_controller.send(wrap(said)).await.map_err(|_| StreamError::Closed)?;
            continue;
        }
        if let Some(ask) = message.ask {
            if let Some(answering) = about.answer(switch, ask) {
                let (controller, tls) = (controller.to_owned(), tls.cloned());
                tokio::spawn(async move { answer(&controller, tls.as_ref(), answering).await });
            }
            continue;
        }
        if let Some(groups) = message.groups {
            // Also when queries end.
            tells_subscriptions |= groups.snooping.is_some();
            subscriptions::take(groups, &shared.groups);
            continue;
        }
        if let Some(standing) = message.standing {
            shared.served.send_if_modified(|served| {
                let is_new = served.standing != standing;
                served.standing = standing;
                is_new
            });
            continue;
        }
        if message.verify != 0 {
            let verified = tokio::task::block_in_place(|| shared.verify(message.verify));
            let damage = verified.damage.join("; ");
            to_controller.send(wrap(Body::Verified(verified))).await.map_err(|_| StreamError::Closed)?;
            if !damage.is_empty() {
                tracing::error!(switch, damage, "a table is damaged in memory; asking the controller for it");
                let resync = following.report(shared, damage);
                to_controller.send(wrap(Body::Resync(resync))).await.map_err(|_| StreamError::Closed)?;
            }
            continue;
        }
        let done = if message.message.len() > BIG_MESSAGE_BYTES {
            tokio::task::block_in_place(|| following.receive(switch, message, shared))
        } else {
            following.receive(switch, message, shared)
        };
        let answer = match done? {
            Step::Nothing => continue,
            Step::Acknowledge(sequence) => {
                step("agent.acknowledge", || applied.send_replace(sequence));
                continue;
            }
            Step::Report(resync) => Body::Resync(resync),
            Step::Refuse(refused, pause) => {
                retry = Some(tokio::time::Instant::now() + pause);
                Body::Refused(refused)
            }
        };
        to_controller.send(wrap(answer)).await.map_err(|_| StreamError::Closed)?;
    }
}

/// Answers on a separate connection, so that a slow reader delays nothing else. The answer ends when the controller
/// says that it is no longer read, which it also says when the stream of the switch ends.
async fn answer(controller: &str, tls: Option<&Arc<Tls>>, answering: Answering) {
    let channel = match connect_within(controller, tls, LONG).await {
        Ok(channel) => channel,
        Err(error) => {
            return tracing::warn!(controller, %error, "an operator's request through the controller gets no answer");
        }
    };
    let said = ReceiverStream::new(answering.await);
    if let Err(status) = api::client::southbound(channel).answer(said).await {
        let error = api::client::reason(&status);
        tracing::debug!(controller, error, "an answer for an operator ended");
    }
}

/// The trunks, in the form of a report to the controller.
fn report_of(trunks: &mut watch::Receiver<Option<Vec<Trunk>>>) -> Option<TrunkReport> {
    let trunks = trunks.borrow_and_update();
    trunks.as_ref().map(|trunks| TrunkReport { trunks: trunks.iter().map(seen).collect() })
}

/// A trunk, in the form of a report to the controller.
pub(crate) fn seen(Trunk { port, state, is_down, neighbour, device, falls, .. }: &Trunk) -> SeenTrunk {
    let neighbour = neighbour.clone().map(|Neighbour { switch, port }| LinkEnd { switch, port: port.0.into() });
    let device_there = device.clone().unwrap_or_default();
    let (port, state, down) = (port.0.into(), state.name().to_owned(), *is_down);
    let (falls, held_ms) = (falls.0, u32::try_from(falls.1.as_millis()).unwrap_or(u32::MAX));
    SeenTrunk { port, state, down, neighbour, device_there, falls, held_ms }
}

/// The reaction to a message.
#[derive(Debug)]
pub enum Step {
    /// Ignore it.
    Nothing,
    /// Acknowledge this sequence.
    Acknowledge(u64),
    /// Report what is held.
    Report(Resync),
    /// Report that there is no room, and [retry](Following::retry) after this time.
    Refuse(Refused, Duration),
}

/// The state of a stream after its hello.
#[derive(Debug)]
pub struct Following {
    n_reports: u64,
    n_fruitless: u32,
    /// Whether limits are exceeded until the next report.
    is_stuck: bool,
    /// The time until that report.
    pause: Duration,
}

impl Default for Following {
    fn default() -> Self {
        Self { n_reports: 1, n_fruitless: 0, is_stuck: false, pause: FIRST_RETRY }
    }
}

impl Following {
    /// The report of a switch that could not hold what it was sent.
    pub fn retry<T: Tables>(&mut self, shared: &Shared<T>) -> Resync {
        self.is_stuck = false;
        self.pause = (self.pause * 2).min(LONGEST_RETRY);
        self.report(shared, "maybe there is room now".to_owned())
    }

    fn report<T: Tables>(&mut self, shared: &Shared<T>, reason: String) -> Resync {
        shared.lock_status().resyncs += 1;
        self.n_reports += 1;
        Resync { report: shared.report().into(), reason }
    }

    /// Applies a message.
    /// # Errors
    /// [`StreamError`]: the stream ends.
    pub fn receive<T: Tables>(
        &mut self,
        switch: &str,
        message: ToSwitch,
        shared: &Shared<T>,
    ) -> Result<Step, StreamError> {
        if self.is_stuck {
            return Ok(Step::Nothing);
        }
        let ToSwitch { sequence, message, answered, .. } = message;
        if answered < self.n_reports && Message::has_actions(&message) {
            // In the answer, values may have another meaning, and the cells that this needs may be those that were
            // refused. The answer has everything.
            shared.lock_status().received_bytes += message.len() as u64;
            return Ok(Step::Nothing);
        }
        let received = step("agent.apply", || {
            let mut replica = shared.replica_for_message();
            let received = replica.receive(&message);
            shared.cluster.store(replica.cluster(), Relaxed);
            received
        });
        shared.lock_status().received_bytes += message.len() as u64;
        match received {
            Ok(received) => {
                self.n_fruitless = 0;
                let is_whole = !shared.replica().is_loading();
                {
                    let mut status = shared.lock_status();
                    status.serving_change = status.serving_change.max(received.change);
                    if is_whole && answered == self.n_reports {
                        status.cannot_follow.clear();
                    }
                    *if received.applied { &mut status.applied } else { &mut status.duplicates } += 1;
                }
                if received.applied {
                    shared.changed();
                }
                let acknowledges = answered == self.n_reports || mistaken(Mistake::AcknowledgesWhileItWaits);
                Ok(if acknowledges { Step::Acknowledge(sequence) } else { Step::Nothing })
            }
            Err(error) if error.needs_resync() || matches!(error, ReplicaError::WrongNode { .. }) => {
                shared.lock_status().refused += 1;
                if answered < self.n_reports {
                    return Ok(Step::Nothing);
                }
                if let ReplicaError::WrongNode { .. } = error
                    && !mistaken(Mistake::OldIdKept)
                {
                    tracing::warn!(switch, %error, "the controller knows this switch under another id; starting over");
                    shared.replica().start_over();
                }
                if self.n_fruitless == MAX_FRUITLESS_REPORTS {
                    return Err(StreamError::Fruitless { reports: self.n_fruitless, last: error });
                }
                tracing::info!(switch, %error, "asking the controller for the missing parts");
                self.n_fruitless += 1;
                Ok(Step::Report(self.report(shared, error.to_string())))
            }
            Err(error) if error.is_over_limit() => {
                // Remains of an earlier answer have no news.
                if answered < self.n_reports {
                    return Ok(Step::Nothing);
                }
                let (reason, pause) = (error.to_string(), self.pause);
                tracing::warn!(switch, %error, "the controller's tables exceed this switch's limits; it serves what it has, and asks again in {pause:?}");
                {
                    let mut status = shared.lock_status();
                    status.refused += 1;
                    status.cannot_follow.clone_from(&reason);
                }
                if mistaken(Mistake::AcknowledgesWhatItRefuses) {
                    return Ok(Step::Acknowledge(sequence));
                }
                self.is_stuck = true;
                Ok(Step::Refuse(Refused { sequence, reason }, pause))
            }
            Err(error) => Err(StreamError::Replica(error)),
        }
    }
}

/// Returns at this time; never, if there is none.
async fn until(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
