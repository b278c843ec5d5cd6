//! Health checks of servers: sends checks from the network of this machine, and tells the balancer which servers are
//! down.
//!
//! Every virtual address with a check has a task. In each interval, it checks all its servers concurrently. When a
//! server goes down, comes up, or cannot be checked, that is logged; the controllers are told of the first two.

use api::v1::CheckedServer;
use dataplane::flow::balance::{Member, ServerState, endpoint_text};
use dataplane::flow::check::{Check, Health, Outcome, Question, status_of};
use dataplane::flow::control::Change;
use dataplane::flow::packet::Endpoint;
use dataplane::flow::state::protocol_name;
use dataplane::flow::{Flows, Virtual};
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Maximum number of servers of a switch that are checked at the same time. Each needs a descriptor.
const AT_ONCE: usize = 128;
/// Maximum number of servers to report to the controllers, and how long a recovery is reported.
const TOLD: usize = 256;
const NEWS: Duration = Duration::from_secs(60);
/// The longest first line of an answer.
const LINE_BYTES: usize = 1024;

/// The service that is checked: its endpoint and its protocol.
type Of = (Endpoint, u8);

/// The check of one service.
struct Running {
    check: Check,
    task: JoinHandle<()>,
    is_wanted: Arc<Mutex<bool>>,
}

impl Running {
    /// Afterwards it changes nothing any more.
    fn end(self) {
        *self.is_wanted.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.task.abort();
    }
}

/// The checks that run, and what they found.
pub(super) struct Checks {
    switch: String,
    flows: Flows,
    permits: Arc<Semaphore>,
    running: Mutex<HashMap<Of, Running>>,
    board: Arc<Board>,
}

impl Checks {
    pub(super) fn new(switch: &str, flows: &Flows) -> Arc<Self> {
        let (permits, board) = (Arc::new(Semaphore::new(AT_ONCE)), Arc::default());
        Arc::new(Self { switch: switch.to_owned(), flows: flows.clone(), permits, running: Mutex::default(), board })
    }

    /// Starts the checks of the switch's virtual addresses as configured now, replacing those that differ, and ends
    /// those that are no longer configured. Known states of servers stay; servers that are no longer checked count as
    /// up. Needs a runtime.
    pub(super) fn follow(&self, virtuals: &[Virtual]) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        for service in self.flows.settings().virtuals.iter() {
            let of = (service.endpoint, service.protocol);
            // One that is gone from the configuration stays until the next start, and so does its check.
            let Some(wanted) = virtuals.iter().find(|wanted| (wanted.endpoint, wanted.protocol) == of) else {
                continue;
            };
            if running.get(&of).map(|running| &running.check) == wanted.check.as_ref() {
                continue;
            }
            if let Some(before) = running.remove(&of) {
                before.end();
            }
            let Some(check) = wanted.check.clone() else {
                self.trust(of);
                continue;
            };
            let watch = self.watch(of, check.clone());
            let is_wanted = Arc::clone(&watch.is_wanted);
            running.insert(of, Running { check, task: tokio::spawn(watch.run()), is_wanted });
        }
    }

    fn watch(&self, (service, protocol): Of, check: Check) -> Watch {
        Watch {
            switch: self.switch.clone(),
            flows: self.flows.clone(),
            service,
            protocol,
            check,
            permits: Arc::clone(&self.permits),
            board: Arc::clone(&self.board),
            is_wanted: Arc::new(Mutex::new(true)),
            servers: HashMap::new(),
            is_stuck: false,
        }
    }

    /// Considers every server of a service up, because they are no longer checked.
    fn trust(&self, of: Of) {
        self.board.forget(of);
        let services = self.flows.servers().into_iter().filter(|(service, protocol, _)| (*service, *protocol) == of);
        for member in services.flat_map(|(.., members)| members).filter(|member| member.is_down) {
            let change = Change::Health { server: member.server.endpoint, is_down: false, ends_connections: false };
            // If a server was removed meanwhile, there is nothing to do.
            let _ = self.flows.change(of.0, of.1, change);
        }
    }

    /// The servers to report to the controllers: those that are down, and those that came up lately.
    pub(super) fn told(&self) -> Vec<CheckedServer> {
        let now = Instant::now();
        let mut told = Vec::new();
        for (service, protocol, members) in self.flows.servers() {
            let active = || members.iter().filter(|member| member.state == ServerState::Active);
            let none_is_up = active().all(|member| member.is_down);
            for member in active() {
                let server = member.server.endpoint;
                let Some((is_down, why)) = self.board.of((service, protocol), server, now) else { continue };
                if is_down != member.is_down {
                    // It is being changed.
                    continue;
                }
                told.push(CheckedServer {
                    service: endpoint_text(service),
                    protocol: protocol_name(protocol),
                    server: endpoint_text(server),
                    is_down,
                    none_is_up: is_down && none_is_up,
                    why,
                });
            }
        }
        // Those that are down first, because controllers accept a limited number.
        told.sort_by_key(|server| !server.is_down);
        told.truncate(TOLD);
        told
    }

    pub(super) fn stop(&self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.drain().for_each(|(_, running)| running.end());
    }
}

/// What the checks of each server last found, once it was down.
#[derive(Default)]
struct Board(Mutex<HashMap<(Of, Endpoint), Found>>);

struct Found {
    is_down: bool,
    why: String,
    at: Instant,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, HashMap<(Of, Endpoint), Found>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, of: Of, server: Endpoint, is_down: bool, why: String) {
        let found = Found { is_down, why, at: Instant::now() };
        let mut all = self.lock();
        // Of servers that are gone.
        all.retain(|_, found| found.is_down || found.at.elapsed() < NEWS);
        all.insert((of, server), found);
    }

    /// Whether a server is down, and why; none if it is up and that is not news.
    fn of(&self, of: Of, server: Endpoint, now: Instant) -> Option<(bool, String)> {
        let all = self.lock();
        let found = all.get(&(of, server))?;
        let is_news = found.is_down || now.saturating_duration_since(found.at) < NEWS;
        is_news.then(|| (found.is_down, found.why.clone()))
    }

    fn forget(&self, of: Of) {
        self.lock().retain(|(other, _), _| *other != of);
    }
}

/// The checks of one virtual address.
struct Watch {
    switch: String,
    flows: Flows,
    service: Endpoint,
    protocol: u8,
    check: Check,
    permits: Arc<Semaphore>,
    board: Arc<Board>,
    /// Whether the check is still in force. Held during a change.
    is_wanted: Arc<Mutex<bool>>,
    servers: HashMap<Endpoint, Health>,
    /// Whether it was logged that nothing can be checked.
    is_stuck: bool,
}

impl Watch {
    async fn run(mut self) {
        let mut tick = interval(self.check.interval);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.servers = self.current();
            let mut asked = JoinSet::new();
            for &endpoint in self.servers.keys() {
                let (check, permits) = (self.check.clone(), Arc::clone(&self.permits));
                asked.spawn(async move {
                    let _permit = permits.acquire().await;
                    (endpoint, ask(&check, endpoint).await)
                });
            }
            while let Some(answer) = asked.join_next().await {
                if let Ok((endpoint, outcome)) = answer {
                    self.note(endpoint, outcome).await;
                }
            }
        }
    }

    /// The servers that are to be asked, with what is known of them: those that would get new flows if they are up.
    fn current(&mut self) -> HashMap<Endpoint, Health> {
        let services = self.flows.servers().into_iter();
        let own = services.filter(|(service, protocol, _)| (*service, *protocol) == (self.service, self.protocol));
        let members = own.flat_map(|(_, _, members)| members);
        let active = members.filter(|member| member.state == ServerState::Active);
        let health = |member: Member| {
            let known = self.servers.remove(&member.server.endpoint);
            // It may have been removed and added again.
            let known = known.filter(|health| health.is_down == member.is_down);
            (member.server.endpoint, known.unwrap_or(Health::of(member.is_down)))
        };
        active.map(health).collect()
    }

    async fn note(&mut self, endpoint: Endpoint, outcome: Outcome) {
        let Some(health) = self.servers.get_mut(&endpoint) else { return };
        let turned = health.note(&self.check, &outcome);
        let is_down = health.is_down;
        let (switch, service, server) = (&self.switch, endpoint_text(self.service), endpoint_text(endpoint));
        match &outcome {
            Outcome::Unasked(why) if !self.is_stuck => {
                self.is_stuck = true;
                tracing::warn!(
                    switch,
                    service,
                    server,
                    why,
                    "health checks cannot be sent from this machine, so servers keep their state; make sure that it has an \
                     address in their network, and set `source` in [flow.virtual.check]"
                );
            }
            Outcome::Good | Outcome::Bad(_) => self.is_stuck = false,
            Outcome::Unasked(_) => {}
        }
        self.flows.count_check(&outcome);
        if !turned {
            return;
        }
        match &outcome {
            Outcome::Bad(why) => {
                tracing::warn!(switch, service, server, why, "a server is down: it gets no new flows");
            }
            _ => tracing::info!(switch, service, server, "a server is up again: it gets new flows"),
        }
        if self.servers.values().all(|health| health.is_down) {
            tracing::warn!(switch, service, "every server is down: all get new flows, as if there were no checks");
        }
        let why = if let Outcome::Bad(why) = outcome { why } else { String::new() };
        let (flows, of, board) = (self.flows.clone(), (self.service, self.protocol), Arc::clone(&self.board));
        let ends_connections = self.check.ends_connections;
        let change = Change::Health { server: endpoint, is_down, ends_connections };
        let is_wanted = Arc::clone(&self.is_wanted);
        let changed = move || {
            let is_wanted = is_wanted.lock().unwrap_or_else(PoisonError::into_inner);
            // If a server was removed meanwhile, there is nothing to do.
            if *is_wanted && flows.change(of.0, of.1, change).is_ok() {
                board.put(of, endpoint, is_down, why);
            }
        };
        // The slots are filled in milliseconds.
        let _ = tokio::task::spawn_blocking(changed).await;
    }
}

/// Asks a server.
async fn ask(check: &Check, server: Endpoint) -> Outcome {
    let to = SocketAddr::new(server.address.into(), check.port.unwrap_or(server.port));
    match timeout(check.timeout, converse(check, to)).await {
        Ok(outcome) => outcome,
        Err(_) => Outcome::Bad(format!("no answer within {} s", check.timeout.as_secs())),
    }
}

async fn converse(check: &Check, to: SocketAddr) -> Outcome {
    let mut stream = match connect(check.source, to).await {
        Ok(stream) => stream,
        Err(error) => return of_error(&error),
    };
    let Question::Http { path, host, status } = &check.question else { return Outcome::Good };
    let host = host.clone().unwrap_or_else(|| to.to_string());
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: fibula-check\r\nConnection: close\r\n\r\n");
    match first_line(&mut stream, &request).await {
        Ok(answer) => match status_of(&answer) {
            Some(code) if status.contains(&code) => Outcome::Good,
            Some(code) => Outcome::Bad(format!("status {code}")),
            None => Outcome::Bad("the answer is not HTTP".to_owned()),
        },
        Err(error) => Outcome::Bad(error.to_string()),
    }
}

async fn connect(source: Option<IpAddr>, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(source) = source {
        socket.bind(SocketAddr::new(source, 0))?;
    }
    socket.connect(to).await
}

/// What came of a connection that was not made: an error of this machine says nothing about the server.
fn of_error(error: &io::Error) -> Outcome {
    let why = error.to_string();
    match error.kind() {
        ErrorKind::AddrNotAvailable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::PermissionDenied
        | ErrorKind::NetworkDown => Outcome::Unasked(why),
        ErrorKind::ConnectionRefused
        | ErrorKind::HostUnreachable
        | ErrorKind::TimedOut
        | ErrorKind::ConnectionReset => Outcome::Bad(why),
        // No descriptor, no memory.
        _ => Outcome::Unasked(why),
    }
}

async fn first_line(stream: &mut TcpStream, request: &str) -> io::Result<Vec<u8>> {
    stream.write_all(request.as_bytes()).await?;
    let mut answer = vec![];
    while answer.len() < LINE_BYTES && !answer.contains(&b'\n') {
        let mut bytes = [0; LINE_BYTES];
        let n = stream.read(&mut bytes).await?;
        if n == 0 {
            break;
        }
        answer.extend_from_slice(&bytes[..n]);
    }
    Ok(answer)
}
