//! Who may reach a daemon, and what each may ask.
//!
//! With certificates ([`Tls`]) a listener answers nobody without one, and [`access`] says what the identity in it may
//! do. Without certificates a daemon listens on loopback addresses only, where every process of the machine may do
//! everything, and on Unix sockets, where those may whom the permissions of the file let in; `insecure = true` opens other
//! addresses to everybody, and the log says so again and again.

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

/// How often the log repeats that a listener is open to everybody.
const REMIND: Duration = Duration::from_secs(600);

/// Who is at the other end of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Who {
    /// Somebody with a valid certificate that names them.
    Certificate {
        /// Whom it names.
        identity: Identity,
        /// Its serial number.
        serial: String,
    },
    /// Somebody with a valid certificate that names nobody.
    Unnamed {
        /// What is wrong with it.
        reason: String,
    },
    /// A user of this machine whom the file of a Unix socket lets in.
    User {
        /// `uid:` and the number, which no certificate can have as a name.
        name: String,
    },
    /// A process of this machine, without a certificate, at a listener on a loopback address.
    Loopback,
    /// Anybody, at a listener that `insecure = true` opened.
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
    /// Why its certificate is no longer valid.
    withdrawn: watch::Sender<Option<String>>,
}

impl PartialEq for Peer {
    /// The same one from the same place.
    fn eq(&self, other: &Self) -> bool {
        (self.who(), self.address()) == (other.who(), other.address())
    }
}

impl Eq for Peer {}

impl Peer {
    /// Who, and from where.
    pub fn new(who: Who, from: Origin) -> Self {
        Self(Arc::new(End { who, from, withdrawn: watch::Sender::new(None) }))
    }

    /// Its certificate is no longer valid: from now on it is refused everything.
    pub(crate) fn withdraw(&self, reason: &str) {
        self.0.withdrawn.send_replace(Some(reason.to_owned()));
    }

    /// Why its certificate is no longer valid; `None`: it is, or there is none.
    pub fn withdrawn(&self) -> Option<String> {
        self.0.withdrawn.borrow().clone()
    }

    /// Returns when its certificate is no longer valid: what it is told all the time ends then.
    pub async fn until_withdrawn(&self) {
        // The sender lives as long as this does.
        let _ = self.0.withdrawn.subscribe().wait_for(Option::is_some).await;
    }

    /// Who made a request.
    /// # Errors
    /// When it came by no listener of ours.
    pub fn of<T>(request: &tonic::Request<T>) -> Result<Self, Status> {
        request.extensions().get().cloned().ok_or_else(|| Status::internal("the connection has no peer"))
    }

    /// Who it is.
    pub fn who(&self) -> &Who {
        &self.0.who
    }

    /// Where it connects from.
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
    /// Why not.
    pub fn may_attach_as(&self, switch: &str) -> Result<(), String> {
        match self.who() {
            Who::User { .. } | Who::Loopback | Who::Anyone => Ok(()),
            Who::Certificate { identity, .. } if identity.kind() == Kind::Switch && identity.name() == switch => Ok(()),
            _ => {
                let help = match is_label(switch) {
                    true => format!("it takes a certificate of that name (`fibula pki issue switch {switch}`)"),
                    false => "no switch may have such a name".to_owned(),
                };
                Err(format!("{} may not attach as switch `{}`: {help}", self.title(), clip(switch)))
            }
        }
    }

    /// Who it is, for a message.
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

/// Why somebody is turned away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turned {
    /// No valid certificate, no TLS, or no handshake in time.
    Handshake,
    /// Not the role that the request needs.
    Role,
    /// A switch under another name than that of its certificate.
    Name,
    /// Without a certificate, under the name of a host that may be anybody's.
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

/// An attempt that was refused.
#[derive(Debug)]
pub struct Attempt<'a> {
    /// Why.
    pub turned: Turned,
    /// Who it was, if that is known.
    pub peer: Option<&'a Peer>,
    /// From where.
    pub from: Origin,
    /// What was asked for.
    pub what: &'a str,
    /// What the peer was told.
    pub reason: &'a str,
}

/// Gets the refused attempts.
pub type Witness = Box<dyn Fn(&Attempt<'_>) + Send + Sync>;

/// What all listeners of a daemon have in common: its certificates, and what becomes of those who are turned away.
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
    /// A gate with these certificates, or without, under these limits. `witness` gets the refused attempts.
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

    /// A listener for gRPC (`web`: and HTTP/1.1), with TLS if there are certificates and it is no Unix socket.
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

    /// A listener for pages. With certificates it asks for one, unless other machines cannot reach the address, or `open`. One
    /// whose certificate is withdrawn is told so for some seconds before the connection ends.
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
                    "insecure = true: whoever reaches this address may do everything, and read what passes; make certificates with `fibula pki init` and name them in [tls]"
                );
            }
        });
        listener::Wire::Plain(Who::Anyone)
    }

    /// Counts a refused attempt, and logs it unless there are too many.
    pub fn turn_away(&self, attempt: &Attempt<'_>) {
        let Attempt { turned, peer, from, what, reason } = attempt;
        if let Some(count) = self.turned.get(*turned as usize) {
            count.fetch_add(1, Relaxed);
        }
        if let Some(witness) = &self.witness {
            witness(attempt);
        }
        let Some(unsaid) = self.throttle.pass() else { return };
        let who = peer.map_or_else(|| "somebody".to_owned(), Peer::title);
        tracing::warn!(who, %from, what, reason, "turned away");
        if unsaid > 0 {
            tracing::warn!(unsaid, "others were turned away without a line each");
        }
    }

    /// How many were turned away so far, by reason.
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

/// Whether a daemon may listen at an address: one that other machines reach takes certificates, or `insecure = true`.
/// # Errors
/// What to do, with the commands.
pub fn check_address(key: &str, address: &Address, has_tls: bool, insecure: bool) -> Result<(), String> {
    let Some(port) = address.tcp().filter(|_| address.is_remote() && !has_tls && !insecure).map(|at| at.port()) else {
        return Ok(());
    };
    Err(format!(
        "{key} = \"{address}\" can be reached from other machines, and there is no [tls], so that anyone there could read \
         and change everything. Make certificates:\n  \
         fibula pki init\n  \
         fibula pki issue controller c1 --address ADDRESS\n  \
         fibula pki issue switch NAME\n  \
         fibula pki issue operator NAME --role admin\n\
         and name their directory here: [tls] dir = \"DIRECTORY\". Or listen on this machine only ({key} = \
         \"127.0.0.1:{port}\"), or accept the danger with insecure = true"
    ))
}

/// What is refused to somebody, and what would help.
fn refusal(peer: &Peer, needs: Needs) -> Option<Status> {
    if let Some(reason) = peer.withdrawn() {
        return Some(Status::permission_denied(format!(
            "the certificate of {} is no longer valid: {reason}; `fibula pki issue` issues another one",
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
    Some(Status::permission_denied(format!("{} may not do this; it takes {role}: {help}", peer.title())))
}
