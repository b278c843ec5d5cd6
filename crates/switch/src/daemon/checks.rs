//! Health checks of servers: asks them from the network of this machine, and tells the balancer which are down.
//!
//! Every virtual address with a check has a task. In each interval it asks all its servers at once, and waits for the
//! answers. A server that goes down, comes up, or cannot be asked, is a line of the log.

use crate::flow::Flows;
use crate::flow::balance::{Member, ServerState, endpoint_text};
use crate::flow::check::{Check, Health, Outcome, Question, status_of};
use crate::flow::control::Change;
use crate::flow::packet::Endpoint;
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// The most servers of a switch that are asked at the same time. Each needs a descriptor.
const AT_ONCE: usize = 128;
/// The longest first line of an answer.
const LINE_BYTES: usize = 1024;

/// Starts the checks that are configured.
pub(super) fn start(switch: &str, flows: &Flows) -> Vec<tokio::task::JoinHandle<()>> {
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    let services = flows.settings().virtuals.iter();
    let checked = services.filter_map(|service| Some((service.endpoint, service.protocol, service.check.clone()?)));
    let watch = |(endpoint, protocol, check)| Watch {
        switch: switch.to_owned(),
        flows: flows.clone(),
        service: endpoint,
        protocol,
        check,
        permits: Arc::clone(&permits),
        servers: HashMap::new(),
        is_stuck: false,
    };
    checked.map(watch).map(|watch| tokio::spawn(watch.run())).collect()
}

/// The checks of one virtual address.
struct Watch {
    switch: String,
    flows: Flows,
    service: Endpoint,
    protocol: u8,
    check: Check,
    permits: Arc<Semaphore>,
    servers: HashMap<Endpoint, Health>,
    /// Whether it was said that nothing can be asked.
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
                    "health checks cannot be sent from this machine, so servers stay as they are; see that it has an \
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
            tracing::warn!(switch, service, "every server is down: all get new flows, as if they were not checked");
        }
        let (flows, service, protocol) = (self.flows.clone(), self.service, self.protocol);
        let ends_connections = self.check.ends_connections;
        let change = Change::Health { server: endpoint, is_down, ends_connections };
        // The slots are filled in milliseconds. A server that was removed meanwhile is no news.
        let _ = tokio::task::spawn_blocking(move || flows.change(service, protocol, change)).await;
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
            None => Outcome::Bad("the answer is no HTTP".to_owned()),
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
