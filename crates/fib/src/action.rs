//! Actions, and the small per-switch table that a FIB's values index.
//!
//! A FIB maps a name to an [`ActionId`]; the switch's action table maps that to an [`Action`]. So the cells stay a few
//! bits wide, and a route change can be a new table of a few hundred bytes instead of millions of cells.

use crate::topology::NodeId;
use std::fmt;
use std::net::IpAddr;
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
    /// The port that it sends to, as long as that is up.
    pub fn port(self) -> Option<PortId> {
        match self {
            Action::Port(port) | Action::Protected { port, .. } => Some(port),
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
            Action::Local => f.write_str("local"),
            Action::Tunnel { node, remote } => write!(f, "tunnel:{node}@{remote}"),
            Action::Punt => f.write_str("punt"),
        }
    }
}

impl FromStr for Action {
    type Err = ActionError;
    /// Parses what `Display` writes, but no alternates, which a controller finds; a bare number is a port.
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
}
