//! Who may reach a daemon, and what each peer may request.
//!
//! With certificates ([`Tls`]), a listener answers only peers that present one, and [`access`] defines what the
//! identity in it may do. Without certificates, a daemon listens only on loopback addresses, where every process of the
//! machine may do everything, and on Unix sockets, where the permissions of the file decide; `insecure = true` opens
//! other addresses to anyone, and the log repeats that regularly.

mod access;
mod host;
mod listener;

pub use access::{GateLayer, Gated};
pub use access::{Needs, admit_web, needs};
pub use listener::Listener;

use crate::address::{Address, Origin};
use crate::identity::{ANYONE, Identity, Kind, LOOPBACK, UNNAMED};
use crate::limits::Guard;
use crate::status::{MetricsText, plain};
use crate::throttle::Throttle;
use crate::tls::{Spoken, Tls};
use fib::name::{clip, is_label};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::watch;
use tonic::Status;

/// Interval at which the log repeats that a listener is open to anyone.
const REMIND: Duration = Duration::from_secs(600);

/// The identity at the other end of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Who {
    /// The holder of a valid certificate that names them.
    Certificate {
        /// The named identity.
        identity: Identity,
        /// Its serial number.
        serial: String,
    },
    /// The holder of a valid certificate without a name.
    Unnamed {
        /// What is wrong with it.
        reason: String,
    },
    /// A user of this machine whom the file of a Unix socket admits.
    User {
        /// `uid:` and the number, which no certificate can have as a name.
        name: String,
    },
    /// A process of this machine, without a certificate, at a listener on a loopback address.
    Loopback,
    /// Anyone, at a listener that `insecure = true` opened.
    Anyone,
}

impl Who {
    pub(crate) fn user(uid: u32) -> Self {
        Who::User { name: format!("uid:{uid}") }
    }
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer(Arc<End>);

#[derive(Debug)]
struct End {
    who: Who,
    from: Origin,
    /// The reason why its certificate is no longer valid.
    withdrawn: watch::Sender<Option<String>>,
}

impl PartialEq for Peer {
    /// Compares identity and origin.
    fn eq(&self, other: &Self) -> bool {
        (self.who(), self.address()) == (other.who(), other.address())
    }
}

impl Eq for Peer {}

impl Peer {
    /// A peer with its origin.
    pub fn new(who: Who, from: Origin) -> Self {
        Self(Arc::new(End { who, from, withdrawn: watch::Sender::new(None) }))
    }

    /// Marks its certificate as no longer valid: from now on every request is refused.
    pub(crate) fn withdraw(&self, reason: &str) {
        self.0.withdrawn.send_replace(Some(reason.to_owned()));
    }

    /// The reason why its certificate is no longer valid; `None` if it is valid, or there is none.
    pub fn withdrawn(&self) -> Option<String> {
        self.0.withdrawn.borrow().clone()
    }

    /// Returns when its certificate becomes invalid, which ends streams to it.
    pub async fn until_withdrawn(&self) {
        // The sender lives as long as `self`.
        let _ = self.0.withdrawn.subscribe().wait_for(Option::is_some).await;
    }

    /// The peer of a request.
    /// # Errors
    /// The request did not come through one of our listeners.
    pub fn of<T>(request: &tonic::Request<T>) -> Result<Self, Status> {
        request.extensions().get().cloned().ok_or_else(|| Status::internal("the connection has no peer"))
    }

    /// Its identity.
    pub fn who(&self) -> &Who {
        &self.0.who
    }

    /// Its origin.
    pub fn address(&self) -> Origin {
        self.0.from
    }

    /// The name in its certificate; `uid:NUMBER`, `loopback` or `anyone` without one.
    pub fn name(&self) -> &str {
        match self.who() {
            Who::Certificate { identity, .. } => identity.name(),
            Who::Unnamed { .. } => UNNAMED,
            Who::User { name } => name,
            Who::Loopback => LOOPBACK,
            Who::Anyone => ANYONE,
        }
    }

    /// Its role: `reader`, `writer`, `admin`, `switch`, `controller`; `none` without a certificate.
    pub fn role(&self) -> String {
        match self.who() {
            Who::Certificate { identity, .. } => {
                identity.kind().role().map_or_else(|| identity.kind().word().to_owned(), |role| role.to_string())
            }
            _ => "none".to_owned(),
        }
    }

    /// Whether it may say hello as this switch: with the certificate of that switch, or without certificates.
    /// # Errors
    /// The reason why not.
    pub fn may_attach_as(&self, switch: &str) -> Result<(), String> {
        match self.who() {
            Who::User { .. } | Who::Loopback | Who::Anyone => Ok(()),
            Who::Certificate { identity, .. } if identity.kind() == Kind::Switch && identity.name() == switch => Ok(()),
            _ => {
                let help = match is_label(switch) {
                    true => format!("it needs a certificate with that name (`fibula pki issue switch {switch}`)"),
                    false => "this is not a valid name of a switch".to_owned(),
                };
                Err(format!("{} may not attach as switch `{}`: {help}", self.title(), clip(switch)))
            }
        }
    }

    /// A description for messages.
    pub fn title(&self) -> String {
        match self.who() {
            Who::Certificate { identity, .. } => identity.to_string(),
            Who::Unnamed { .. } => "the holder of this certificate".to_owned(),
            Who::User { name } => format!("the user {name}"),
            Who::Loopback => "a process of this machine".to_owned(),
            Who::Anyone => "anyone".to_owned(),
        }
    }
}

impl Display for Peer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.title(), self.address())
    }
}

/// Reasons for rejecting a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turned {
    /// No valid certificate, no TLS, or no handshake in time.
    Handshake,
    /// The role is insufficient for the request.
    Role,
    /// A switch under another name than that in its certificate.
    Name,
    /// Without a certificate, for a host name that may belong to an outsider.
    Host,
}

impl Turned {
    const ALL: [(Turned, &str); 4] = [
        (Turned::Handshake, "handshake"),
        (Turned::Role, "role"),
        (Turned::Name, "switch_name"),
        (Turned::Host, "host_name"),
    ];
}

/// A rejected attempt.
#[derive(Debug)]
pub struct Attempt<'a> {
    /// The reason.
    pub turned: Turned,
    /// The peer, if known.
    pub peer: Option<&'a Peer>,
    /// Its origin.
    pub from: Origin,
    /// The request.
    pub what: &'a str,
    /// The message to the peer.
    pub reason: &'a str,
}

/// A consumer of rejected attempts.
pub type Witness = Box<dyn Fn(&Attempt<'_>) + Send + Sync>;

/// The common state of all listeners of a daemon: its certificates, limits and counters of rejected peers.
pub struct Gate {
    tls: Option<Arc<Tls>>,
    insecure: bool,
    turned: [AtomicU64; Turned::ALL.len()],
    throttle: Throttle,
    limits: Arc<Guard>,
    witness: Option<Witness>,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("tls", &self.tls).field("insecure", &self.insecure).finish_non_exhaustive()
    }
}

impl Gate {
    /// A gate with these certificates, or without, and these limits. `witness` receives rejected attempts.
    pub fn new(tls: Option<Arc<Tls>>, insecure: bool, limits: Arc<Guard>, witness: Option<Witness>) -> Arc<Self> {
        if let Some(tls) = &tls {
            Tls::watch(tls);
        }
        Arc::new(Self { tls, insecure, turned: Default::default(), throttle: Throttle::default(), limits, witness })
    }

    /// The limits that all listeners share.
    pub fn limits(&self) -> &Arc<Guard> {
        &self.limits
    }

    /// The certificates.
    pub fn tls(&self) -> Option<&Arc<Tls>> {
        self.tls.as_ref()
    }

    /// A listener for gRPC (`web`: also HTTP/1.1), with TLS if there are certificates and it is not a Unix socket.
    /// # Errors
    /// When the address cannot be bound.
    pub async fn listen(self: &Arc<Self>, address: &Address, web: bool) -> std::io::Result<Listener> {
        let wire = match (&self.tls, address) {
            (Some(tls), Address::Tcp(_)) => {
                listener::Wire::Tls { tls: Arc::clone(tls), spoken: if web { Spoken::Web } else { Spoken::Grpc } }
            }
            _ => self.plain_wire(address),
        };
        Listener::bind(address, wire, self, false).await
    }

    /// A listener for pages. With certificates, it requires one, unless other machines cannot reach the address, or
    /// `open`. A peer whose certificate is withdrawn is told so for some seconds before its connection ends.
    /// # Errors
    /// When the address cannot be bound.
    pub async fn listen_for_pages(self: &Arc<Self>, address: &Address, open: bool) -> std::io::Result<Listener> {
        let wire = match &self.tls {
            Some(tls) if !open && address.is_remote() => {
                listener::Wire::Tls { tls: Arc::clone(tls), spoken: Spoken::Pages }
            }
            Some(_) if address.is_remote() => listener::Wire::Plain(Who::Anyone),
            _ => self.plain_wire(address),
        };
        Listener::bind(address, wire, self, true).await
    }

    fn plain_wire(&self, address: &Address) -> listener::Wire {
        match address {
            Address::Unix { .. } => return listener::Wire::Local,
            Address::Tcp(address) if address.ip().is_loopback() => return listener::Wire::Plain(Who::Loopback),
            Address::Tcp(_) => {}
        }
        let address = address.clone();
        tokio::spawn(async move {
            let mut tick = tokio::time::interval(REMIND);
            loop {
                tick.tick().await;
                tracing::warn!(
                    %address,
                    "insecure = true: anyone who can reach this address may do everything, and read the traffic; make certificates with `fibula pki init` and name them in [tls]"
                );
            }
        });
        listener::Wire::Plain(Who::Anyone)
    }

    /// Counts a rejected attempt, and logs it unless there are too many.
    pub fn turn_away(&self, attempt: &Attempt<'_>) {
        let Attempt { turned, peer, from, what, reason } = attempt;
        if let Some(count) = self.turned.get(*turned as usize) {
            count.fetch_add(1, Relaxed);
        }
        if let Some(witness) = &self.witness {
            witness(attempt);
        }
        let Some(unsaid) = self.throttle.pass() else { return };
        let who = peer.map_or_else(|| "a peer".to_owned(), Peer::title);
        tracing::warn!(who, %from, what, reason, "turned away");
        if unsaid > 0 {
            tracing::warn!(unsaid, "further peers were turned away without log lines");
        }
    }

    /// The number of rejected attempts so far, by reason.
    pub fn turned_away(&self) -> [(&'static str, u64); 4] {
        let mut counts = Turned::ALL.map(|(_, name)| (name, 0));
        for (count, turned) in counts.iter_mut().zip(&self.turned) {
            count.1 = turned.load(Relaxed);
        }
        counts
    }

    /// Adds these counters to a daemon's metrics.
    pub fn metrics(&self, text: &mut MetricsText) {
        let turned = self.turned_away().map(|(name, n)| (format!("reason=\"{name}\""), n));
        text.counter("fibula_turned_away_total", "Connections and requests refused, by reason.", turned);
        self.limits.metrics(text);
        if let Some(tls) = &self.tls {
            let until = u64::try_from(tls.not_after()).unwrap_or_default();
            text.gauge(
                "fibula_certificate_expires_seconds",
                "Expiry time of this daemon's certificate, in seconds since 1970.",
                plain(until),
            );
            let help = "1: the files of this daemon's certificate changed and cannot be used, so the previous ones stay in use.";
            text.gauge("fibula_certificate_files_refused", help, plain(u64::from(tls.is_refused())));
        }
    }
}

/// Checks that a daemon may listen at an address: one that other machines can reach requires certificates, or `insecure
/// = true`.
/// # Errors
/// The steps to take, with commands.
pub fn check_address(key: &str, address: &Address, has_tls: bool, insecure: bool) -> Result<(), String> {
    let Some(port) = address.tcp().filter(|_| address.is_remote() && !has_tls && !insecure).map(|at| at.port()) else {
        return Ok(());
    };
    Err(format!(
        "{key} = \"{address}\" can be reached from other machines, but there is no [tls], so anyone there could read \
         and change everything. Make certificates:\n  \
         fibula pki init\n  \
         fibula pki issue controller c1 --address ADDRESS\n  \
         fibula pki issue switch NAME\n  \
         fibula pki issue operator NAME --role admin\n\
         and name their directory here: [tls] dir = \"DIRECTORY\". Or listen on this machine only ({key} = \
         \"127.0.0.1:{port}\"), or accept the risk with insecure = true"
    ))
}

/// The reason for refusing a request of a peer, and how to get permission.
fn refusal(peer: &Peer, needs: Needs) -> Option<Status> {
    if let Some(reason) = peer.withdrawn() {
        return Some(Status::permission_denied(format!(
            "the certificate of {} is no longer valid: {reason}; `fibula pki issue` issues a new one",
            peer.title()
        )));
    }
    let (role, is_enough) = match (peer.who(), needs) {
        (Who::User { .. } | Who::Loopback | Who::Anyone, _) => return None,
        (Who::Unnamed { reason }, _) => {
            return Some(Status::permission_denied(format!("the certificate is valid, but {reason}")));
        }
        (Who::Certificate { identity, .. }, Needs::Switch) => {
            ("the certificate of a switch".to_owned(), identity.kind() == Kind::Switch)
        }
        (Who::Certificate { identity, .. }, Needs::Role(role)) => {
            (format!("the role {role}"), identity.kind().role().is_some_and(|got| got >= role))
        }
    };
    if is_enough {
        return None;
    }
    let help = match needs {
        Needs::Role(role) => format!("`fibula pki issue operator NAME --role {role}` issues one"),
        Needs::Switch => "`fibula pki issue switch NAME` issues one".to_owned(),
    };
    Some(Status::permission_denied(format!("{} may not do this; it needs {role}: {help}", peer.title())))
}
