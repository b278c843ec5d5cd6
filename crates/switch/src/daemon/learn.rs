//! Tells the controller that leads what the ports that learn have seen.
//!
//! One request is under way at a time, of at most [`AT_ONCE`] names. What a controller does not take is dropped: hosts that still
//! send are seen again.

use super::agent::Shared;
use super::config::Config;
use super::leader::{Client, ToLeader, process};
use api::tls::Tls;
use api::v1::{ForgetfulPort, SeeHostsRequest, SeenHost};
use dataplane::learn::{Claim, Learn, Learner};
use fib::action::PortId;
use fib::replica::Tables;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Names in a request.
const AT_ONCE: usize = 1000;

/// How long names are collected: many hosts speak at the same time.
const COLLECT: Duration = Duration::from_millis(1);

/// How long a controller may take for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Number of times that true sources are noted within the time after which a silent name is forgotten.
const PERIODS: u32 = 4;

/// Interval at which a controller is told which ports forget, even if no host was seen: it may be another controller.
const LONGEST: Duration = Duration::from_secs(30);

/// The pause after a round that failed.
const PAUSE: Duration = Duration::from_millis(500);

/// What a port may learn.
#[derive(Clone, Copy, Debug)]
struct Terms {
    port: PortId,
    accept: bool,
    tenant: u32,
    max_names: u32,
    forget_s: u32,
}

/// See the module.
pub(super) struct Teller {
    switch: String,
    leader: ToLeader,
    /// By the indices of ports.
    terms: HashMap<u8, Terms>,
    learner: Arc<Learner>,
}

impl Teller {
    /// None if no port learns.
    pub(super) fn new(config: &Config, tls: Option<&Arc<Tls>>, learner: &Arc<Learner>) -> Option<Self> {
        let learning = (0..).zip(&config.ports).filter(|(_, port)| config.learn_at(port) != Learn::Off);
        let terms: HashMap<u8, Terms> = learning
            .map(|(index, port)| {
                let accept = config.learn_at(port) == Learn::Accept;
                let (tenant, max_names) = (port.learn_tenant, port.learn_max);
                (index, Terms { port: port.id, accept, tenant, max_names, forget_s: config.learn_forget_at(port) })
            })
            .collect();
        (!terms.is_empty()).then(|| Self {
            switch: config.name.clone(),
            leader: ToLeader::new(&config.controller, tls.cloned(), PATIENCE),
            terms,
            learner: Arc::clone(learner),
        })
    }

    /// Runs for ever.
    pub(super) async fn run<T: Tables>(mut self, shared: Arc<Shared<T>>) {
        // The port that forgets soonest says how often true sources are noted.
        let soonest = self.terms.values().map(|terms| terms.forget_s).filter(|forget_s| *forget_s > 0).min();
        let period = soonest.map_or(Duration::MAX, |forget_s| Duration::from_secs(forget_s.into()) / PERIODS);
        let (mut began, mut said) = (Instant::now(), None::<Instant>);
        loop {
            tokio::select! {
                () = self.learner.heard() => pause(COLLECT).await,
                () = pause(period.saturating_sub(began.elapsed()).min(LONGEST)) => {}
            }
            if soonest.is_some() && said.is_none_or(|said| said.elapsed() >= LONGEST) {
                said = Some(Instant::now());
                if shared.cluster() != 0 {
                    self.tell(Vec::new()).await;
                }
            }
            if began.elapsed() >= period {
                began = Instant::now();
                self.learner.begin_period();
            }
            loop {
                let claims = self.learner.take(AT_ONCE);
                // Before it knows the network, a switch knows no name.
                if claims.is_empty() {
                    break;
                }
                if shared.cluster() == 0 {
                    continue;
                }
                let hosts: Vec<SeenHost> =
                    claims.iter().filter_map(|(index, claim)| self.seen(*index, claim)).collect();
                if !self.tell(hosts).await {
                    pause(PAUSE).await;
                }
            }
        }
    }

    fn seen(&self, index: u8, claim: &Claim) -> Option<SeenHost> {
        let Terms { port, accept, tenant, max_names, .. } = *self.terms.get(&index)?;
        let ip = match claim.ip {
            None => Vec::new(),
            Some(IpAddr::V4(ip)) => ip.octets().to_vec(),
            Some(IpAddr::V6(ip)) => ip.octets().to_vec(),
        };
        let name = claim.name().to_vec().into();
        let announces = claim.announces;
        Some(SeenHost { port: port.0.into(), name, ip: ip.into(), accept, tenant, max_names, announces })
    }

    /// Tells the controller that leads; whether it took it.
    async fn tell(&mut self, hosts: Vec<SeenHost>) -> bool {
        let forgets = self.terms.values().filter(|terms| terms.forget_s > 0);
        let port = |terms: &Terms| ForgetfulPort { port: terms.port.0.into(), forget_s: terms.forget_s };
        let (switch, forgetful) = (self.switch.clone(), forgets.map(port).collect());
        let request = SeeHostsRequest { switch, hosts, forgetful, process: process() };
        let ask = |mut client: Client| {
            let request = request.clone();
            async move { client.see_hosts(request).await.is_ok() }
        };
        self.leader.ask(ask).await
    }
}

#[expect(clippy::disallowed_methods, reason = "the time itself is what is waited for")]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
