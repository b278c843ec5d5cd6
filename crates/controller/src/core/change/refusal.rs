//! Why a change is refused, in words that say what to do next.

use crate::hosts::HostError;
use fib::name::{NameError, NameKind};
use fib::network::NetworkError;
use fib::rib::RibError;
use fib::topology::{NodeId, TopologyError};
use fib::unicast::NotUnicast;
use std::net::IpAddr;

/// Why a change was refused; nothing changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A switch reports a term that no controller can have reached.
    #[error(
        "switch `{switch}` has seen term {got}, but a controller reaches at most {max}: remove its saved image and start it again"
    )]
    TermTooLate {
        /// Its name.
        switch: String,
        /// The term that it reports.
        got: u64,
        /// The latest term that is believed.
        max: u64,
    },
    /// No switch of this name.
    #[error("there is no switch `{name}`; `fibula switch list` lists all")]
    UnknownSwitch {
        /// As asked.
        name: String,
    },
    /// No name like this.
    #[error("there is no name `{name}`; `fibula name list` lists all")]
    UnknownName {
        /// As asked.
        name: String,
    },
    /// No name has this IP address.
    #[error("no name has the address {ip}; `fibula name list --ip PREFIX` lists those that have one of a prefix")]
    UnknownAddress {
        /// As asked.
        ip: IpAddr,
    },
    /// No text of a name begins like this.
    #[error("no name of the kind `{kind}` begins with `{prefix}`{advice}")]
    BadPrefix {
        /// As asked.
        prefix: String,
        /// The network's kind of name.
        kind: NameKind,
        /// Likely completions; empty if there are none.
        advice: &'static str,
    },
    /// An address that is no multicast group.
    #[error("`{group}` is not a multicast group: write one like 239.1.2.3 or ff05::9")]
    NoGroup {
        /// As asked.
        group: String,
    },
    /// One of several objects is refused, and all of them with it.
    #[error("{source}")]
    Item {
        /// Which one, from 0.
        index: usize,
        /// Why.
        source: Box<Refusal>,
    },
    /// The name is there and should be new.
    #[error("the name `{name}` exists already; use `fibula name set` to change it")]
    NameExists {
        /// As asked.
        name: String,
    },
    /// One request names it twice.
    #[error("the name `{name}` is in the request twice; keep one of the two")]
    Duplicate {
        /// As asked.
        name: String,
    },
    /// Too many names in one request.
    #[error("{got} objects are too many for one request; send at most {max} in each")]
    BatchTooBig {
        /// Names in the request.
        got: usize,
        /// The limit.
        max: usize,
    },
    /// An empty or overlong name of a switch or host.
    #[error(
        "`{name}` is not a name for a switch or host: use 1 to 63 letters, digits, `-`, `_` and `.`, not `-` or `.` first"
    )]
    BadLabel {
        /// As asked.
        name: String,
    },
    /// The host table refuses.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The text is not a name of the network's kind.
    #[error("name `{name}`: {source}")]
    BadName {
        /// As asked.
        name: String,
        /// Why.
        source: NameError,
    },
    /// A name or an IP address that no host can have.
    #[error("name `{name}`: {source}")]
    NotUnicast {
        /// As asked.
        name: String,
        /// What it is.
        source: NotUnicast,
    },
    /// A tenant's names change faster than they may.
    #[error(
        "more than {per_second} {what} a second of tenant {tenant}: wait {wait_ms} ms, or raise rates.{what}_per_second"
    )]
    TooFast {
        /// Whose.
        tenant: u32,
        /// `names` or `changes`.
        what: &'static str,
        /// The limit.
        per_second: u32,
        /// How long until it may go on.
        wait_ms: u128,
    },
    /// Too many backups at the same time.
    #[error("{max} backups are being made; wait until one is done")]
    TooManyBackups {
        /// The most.
        max: usize,
    },
    /// Rows change faster than a backup is received.
    #[error(
        "more than {bytes} bytes of changes wait for the backup: write it to a faster place, or try again when there are fewer changes"
    )]
    BackupTooSlow {
        /// The most.
        bytes: usize,
    },
    /// The store cannot be read.
    #[error("no backup was made: {reason}")]
    BackupFailed {
        /// Why.
        reason: String,
    },
    /// Another rekey is not done yet.
    #[error("a rekey is in progress; the log says when it is done")]
    RekeyInProgress,
    /// A rekey soon after another.
    #[error("the last rekey was less than {every_s} s ago: wait {wait_s} s, or lower rates.rekey_pause_s")]
    RekeyTooSoon {
        /// How long to wait.
        wait_s: u64,
        /// The setting.
        every_s: u64,
    },
    /// The network refuses.
    #[error("{}", named(source, switch))]
    Network {
        /// Why; it identifies switches by their ids.
        source: NetworkError,
        /// The name of the switch that it concerns, if any.
        switch: String,
    },
    /// The store failed; the controller stops and must be started again.
    #[error("the store failed, so the controller stops: {reason}")]
    StoreFailed {
        /// Why.
        reason: String,
    },
    /// The controller is stopping.
    #[error("the controller is stopping; try again when it runs")]
    Stopping,
    /// Another controller leads.
    #[error(
        "{leader} leads, and this controller follows: it answers queries and serves switches. Name all controllers, as in --controller URL,URL,URL, to reach the one that leads"
    )]
    NotLeader {
        /// Who, and where it listens.
        leader: String,
    },
    /// This controller follows, and is not up to date.
    #[error("this controller has not yet caught up with another one's commits; try again, or use another one")]
    NotUpToDate,
}

impl Refusal {
    /// The refusal of one of several objects.
    pub(super) fn at(self, index: usize) -> Refusal {
        Refusal::Item { index, source: Box::new(self) }
    }

    /// Whether two names have the same digest, which another hash key would resolve.
    pub(crate) fn is_collision(&self) -> bool {
        fn is_collision(error: &NetworkError) -> bool {
            match error {
                NetworkError::Rib(RibError::DigestCollision { .. }) => true,
                NetworkError::Batch { source, .. } => is_collision(source),
                _ => false,
            }
        }
        matches!(self, Refusal::Network { source, .. } if is_collision(source))
    }

    /// Whether the refused change may have changed how names are arranged.
    pub(crate) fn may_leave_traces(&self) -> bool {
        fn may(error: &NetworkError) -> bool {
            match error {
                NetworkError::Graph(_) | NetworkError::Crowded { .. } | NetworkError::TenantCrowds { .. } => true,
                NetworkError::Batch { source, .. } => may(source),
                _ => false,
            }
        }
        matches!(self, Refusal::Network { source, .. } if may(source))
    }

    /// The unknown switch, if that is the reason.
    pub(crate) fn unknown_switch(&self) -> Option<&str> {
        match self {
            Refusal::UnknownSwitch { name } => Some(name),
            Refusal::Item { source, .. } => source.unknown_switch(),
            _ => None,
        }
    }
}

impl From<NetworkError> for Refusal {
    fn from(source: NetworkError) -> Self {
        Refusal::Network { source, switch: String::new() }
    }
}

/// An error of the network in words, with the switch's name in place of its id, which operators do not know.
fn named(error: &NetworkError, switch: &str) -> String {
    let text = error.to_string();
    match subject(error) {
        _ if switch.is_empty() => text,
        _ if matches!(error, NetworkError::Topology(TopologyError::NameTaken { .. })) => {
            format!("a switch `{switch}` exists already: choose another name")
        }
        Some(id) if text.contains(&format!("switch {id}")) => {
            text.replacen(&format!("switch {id}"), &format!("switch `{switch}`"), 1)
        }
        _ => format!("{text} (that switch is `{switch}`)"),
    }
}

/// The switch that an error of the network concerns.
pub(super) fn subject(error: &NetworkError) -> Option<NodeId> {
    use TopologyError::{Loop, NameTaken, NoLink, NodeHasLinks, PortHasLink};
    match error {
        NetworkError::Topology(NodeHasLinks { id, .. } | Loop { id } | NameTaken { id, .. }) => Some(*id),
        NetworkError::Topology(PortHasLink { end } | NoLink { end }) => Some(end.node),
        NetworkError::NoHostPort { end } | NetworkError::PortOfHosts { end } => Some(end.node),
        NetworkError::HasNames { end, .. } => Some(end.node),
        NetworkError::HasHostPorts { id, .. } | NetworkError::TenantNotHeld { id, .. } => Some(*id),
        NetworkError::TooManyActions { id, .. } | NetworkError::WrongCluster { id, .. } => Some(*id),
        NetworkError::Batch { source, .. } => subject(source),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::action::PortId;
    use fib::topology::End;

    #[test]
    fn a_refusal_names_the_switch_and_not_its_number() {
        let (id, end) = (NodeId(1), End { node: NodeId(1), port: PortId(2) });
        let taken = TopologyError::NameTaken { name: "s1".to_owned(), id };
        let text = named(&taken.into(), "s1");
        assert_eq!(text, "a switch `s1` exists already: choose another name");
        let text = named(&NetworkError::PortOfHosts { end }, "s1");
        assert_eq!(text, "port 2 of switch `s1` is a host port already: choose another port or remove that one");
        let batch = NetworkError::Batch { index: 1, source: Box::new(NetworkError::PortOfHosts { end }) };
        assert!(named(&batch, "s1").contains("port 2 of switch `s1` is"), "{}", named(&batch, "s1"));
        // A switch that is gone has no name.
        assert!(named(&NetworkError::PortOfHosts { end }, "").starts_with("port 2 of switch 1 is"));
    }
}
