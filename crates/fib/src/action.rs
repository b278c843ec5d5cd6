//! Actions, and the small per-switch table that a FIB's values index.
//!
//! A FIB maps a name to an [`ActionId`]; the switch's action table maps that to an [`Action`]. So the cells stay a few
//! bits wide, and a route change can be a new table of a few hundred bytes instead of millions of cells.

use crate::topology::NodeId;
use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::str::FromStr;

/// A port of one switch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct PortId(pub u16);

impl fmt::Display for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Index into a switch's action table, which is what a lookup returns. 0 is always [`Action::Drop`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct ActionId(pub u16);

impl ActionId {
    /// The action every removed name has.
    pub const DROP: ActionId = ActionId(0);
}

/// The most ports of [`Ways`].
pub const MAX_WAYS: usize = 8;

/// Ports that lead to a destination equally well: 2 to [`MAX_WAYS`], each once, in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ways {
    n: u8,
    ports: [PortId; MAX_WAYS],
}

impl Ways {
    /// The same ports in any order; `None` if there are too few, too many, or one twice.
    pub fn new(ports: impl IntoIterator<Item = PortId>) -> Option<Ways> {
        let (mut ways, mut n) = ([PortId(0); MAX_WAYS], 0);
        for port in ports {
            *ways.get_mut(n)? = port;
            n += 1;
        }
        let used = &mut ways[..n];
        used.sort_unstable();
        let is_right = n >= 2 && used.is_sorted_by(|a, b| a < b);
        is_right.then_some(Ways { n: n as u8, ports: ways })
    }
}

impl Deref for Ways {
    type Target = [PortId];
    fn deref(&self) -> &[PortId] {
        &self.ports[..usize::from(self.n)]
    }
}

impl fmt::Debug for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl fmt::Display for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, port) in self.iter().enumerate() {
            write!(f, "{}{port}", if i == 0 { "" } else { "|" })?;
        }
        Ok(())
    }
}

/// What a switch does with a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Action {
    /// Discard and count it.
    Drop,
    /// Send it out of this port.
    Port(PortId),
    /// Send it out of this port; while that is down, out of the other one.
    Protected {
        /// The port.
        port: PortId,
        /// The other one.
        alternate: PortId,
    },
    /// Send it out of one of several ports, always the same for a flow; while that is down, out of one of the others.
    Spread {
        /// The ports.
        ways: Ways,
        /// The port while all of them are down, if there is one.
        alternate: Option<PortId>,
    },
    /// Deliver it here: the exact table of local names gives the port.
    /// (Egress value mode only, where the FIB's value names a switch and not a port.)
    Local,
    /// Send it to this node through a tunnel to that address.
    Tunnel {
        /// The switch at the other end.
        node: NodeId,
        /// Its address in the network below.
        remote: IpAddr,
    },
    /// Hand it to the control plane.
    Punt,
}

impl Action {
    /// The port that it sends to, as long as that is up; of several, the first.
    pub fn port(self) -> Option<PortId> {
        self.port_for(0)
    }

    /// As [`Action::port`]; of several one for each number. Switches choose by hashes of their own.
    pub fn port_for(self, flow: u64) -> Option<PortId> {
        match self {
            Action::Port(port) | Action::Protected { port, .. } => Some(port),
            Action::Spread { ways, .. } => Some(ways[(flow % ways.len() as u64) as usize]),
            Action::Drop | Action::Local | Action::Tunnel { .. } | Action::Punt => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Drop => f.write_str("drop"),
            Action::Port(port) => write!(f, "port:{port}"),
            Action::Protected { port, alternate } => write!(f, "port:{port} (or {alternate})"),
            Action::Spread { ways, alternate: None } => write!(f, "ports:{ways}"),
            Action::Spread { ways, alternate: Some(alternate) } => write!(f, "ports:{ways} (or {alternate})"),
            Action::Local => f.write_str("local"),
            Action::Tunnel { node, remote } => write!(f, "tunnel:{node}@{remote}"),
            Action::Punt => f.write_str("punt"),
        }
    }
}

impl FromStr for Action {
    type Err = ActionError;
    /// Parses what `Display` writes, but neither alternates nor several ports, which a controller finds; a bare number is a port.
    fn from_str(text: &str) -> Result<Action, ActionError> {
        let error = || ActionError { got: crate::name::clip(text) };
        Ok(match text.trim() {
            "drop" => Action::Drop,
            "local" => Action::Local,
            "punt" => Action::Punt,
            other => match other.split_once(':') {
                Some(("port", port)) => Action::Port(PortId(port.parse().map_err(|_| error())?)),
                Some(("tunnel", end)) => {
                    let (node, remote) = end.split_once('@').ok_or_else(error)?;
                    Action::Tunnel {
                        node: NodeId(node.parse().map_err(|_| error())?),
                        remote: remote.parse().map_err(|_| error())?,
                    }
                }
                _ => Action::Port(PortId(other.parse().map_err(|_| error())?)),
            },
        })
    }
}

/// Text that is not an action.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{got}` is no action: write drop, a port (`port:3` or `3`), `tunnel:NODE@ADDRESS`, punt or local; ports are 0 to 65535"
)]
pub struct ActionError {
    /// The start of the text.
    pub got: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_actions_round_trips() {
        let tunnel = Action::Tunnel { node: NodeId(7), remote: "fd00::1".parse().unwrap() };
        for action in [Action::Drop, Action::Port(PortId(65535)), Action::Local, Action::Punt, tunnel] {
            assert_eq!(action.to_string().parse(), Ok(action));
        }
        assert_eq!("3".parse(), Ok(Action::Port(PortId(3))));
        for wrong in ["", "port:", "port:65536", "65536", "tunnel:1", "tunnel:x@1.2.3.4", "flood"] {
            assert!(wrong.parse::<Action>().unwrap_err().to_string().contains(wrong));
        }
    }

    #[test]
    fn ways_are_two_to_eight_different_ports() {
        let ways = |ports: &[u16]| Ways::new(ports.iter().copied().map(PortId));
        assert_eq!(ways(&[9, 2, 5]).map(|ways| ways.to_string()).as_deref(), Some("2|5|9"));
        assert_eq!(ways(&[9, 2, 5]), ways(&[5, 9, 2]));
        assert!(ways(&[0, 1, 2, 3, 4, 5, 6, 7]).is_some_and(|ways| ways.len() == MAX_WAYS));
        for wrong in [&[][..], &[1], &[1, 1], &[3, 1, 3], &[0, 1, 2, 3, 4, 5, 6, 7, 8]] {
            assert_eq!(ways(wrong), None, "{wrong:?}");
        }
    }
}
