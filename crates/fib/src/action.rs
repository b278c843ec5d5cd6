//! Actions, and the small per-switch table that a FIB's values index.
//!
//! A FIB maps a name to an [`ActionId`]; the switch's action table maps that to an [`Action`]. So the cells stay a few
//! bits wide, and a route change can be a new table of a few hundred bytes instead of millions of cells.

use crate::topology::NodeId;
use lookup::hash::mix64;
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

/// The largest weight of a way.
pub const MAX_WEIGHT: u8 = 64;

/// Ports that lead to a destination equally well: 2 to [`MAX_WAYS`], each once, in ascending order; and which part of the flows
/// each gets.
///
/// Weights say no more than their ratios: they are divided by their greatest common divisor, so equal ones are all 1, and equal
/// ways have one form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ways {
    n: u8,
    ports: [PortId; MAX_WAYS],
    weights: [u8; MAX_WAYS],
}

impl Ways {
    /// The same ports in any order, all of one weight; `None` if there are too few, too many, or one twice.
    pub fn new(ports: impl IntoIterator<Item = PortId>) -> Option<Ways> {
        Self::weighed(ports.into_iter().map(|port| (port, 1)))
    }

    /// The same ports in any order, with the weight of each; `None` also if a weight is not 1 to [`MAX_WEIGHT`].
    pub fn weighed(ports: impl IntoIterator<Item = (PortId, u8)>) -> Option<Ways> {
        let (mut ways, mut n) = ([(PortId(0), 0); MAX_WAYS], 0);
        for way in ports {
            *ways.get_mut(n)? = way;
            n += 1;
        }
        let used = &mut ways[..n];
        used.sort_unstable();
        let is_right = n >= 2
            && used.is_sorted_by(|(a, _), (b, _)| a < b)
            && used.iter().all(|(_, weight)| (1..=MAX_WEIGHT).contains(weight));
        let divisor = used.iter().fold(0, |divisor, (_, weight)| greatest_common_divisor(divisor, *weight)).max(1);
        let (ports, weights) = (ways.map(|(port, _)| port), ways.map(|(_, weight)| weight / divisor));
        is_right.then_some(Ways { n: n as u8, ports, weights })
    }

    /// The weights, in the order of the ports.
    pub fn weights(&self) -> &[u8] {
        &self.weights[..usize::from(self.n)]
    }

    /// Whether all ports have the same weight.
    pub fn is_even(&self) -> bool {
        self.weights().iter().all(|weight| *weight == 1)
    }

    /// The same ports, all of one weight.
    pub fn evened(mut self) -> Ways {
        self.weights[..usize::from(self.n)].fill(1);
        self
    }

    /// Each port, with its weight.
    pub fn with_weights(&self) -> impl Iterator<Item = (PortId, u8)> {
        self.iter().copied().zip(self.weights().iter().copied())
    }

    /// The place of one of the ports for each number: of numbers that follow each other, each port gets its share.
    pub fn place_for(&self, number: u64) -> usize {
        if self.is_even() {
            return (number % u64::from(self.n)) as usize;
        }
        let sum: u64 = self.weights().iter().copied().map(u64::from).sum();
        // Mixed, so that small numbers do not all have the first port.
        let mut left = mix64(number.wrapping_add(1)) % sum;
        self.weights()
            .iter()
            .position(|weight| {
                let is_here = left < u64::from(*weight);
                left = left.saturating_sub(u64::from(*weight));
                is_here
            })
            .unwrap_or(0)
    }
}

fn greatest_common_divisor(a: u8, b: u8) -> u8 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

impl Deref for Ways {
    type Target = [PortId];
    fn deref(&self) -> &[PortId] {
        &self.ports[..usize::from(self.n)]
    }
}

impl fmt::Debug for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_even() { f.debug_list().entries(self.iter()).finish() } else { write!(f, "[{self}]") }
    }
}

impl fmt::Display for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (port, weight)) in self.with_weights().enumerate() {
            write!(f, "{}{port}", if i == 0 { "" } else { "|" })?;
            if !self.is_even() {
                write!(f, "*{weight}")?;
            }
        }
        Ok(())
    }
}

/// The action of a switch for a frame.
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
        match self {
            Action::Spread { ways, .. } => ways.first().copied(),
            other => other.port_for(0),
        }
    }

    /// As [`Action::port`]; of several one for each number, as often as its weight says. Switches choose by hashes of their own.
    pub fn port_for(self, flow: u64) -> Option<PortId> {
        match self {
            Action::Port(port) | Action::Protected { port, .. } => Some(port),
            Action::Spread { ways, .. } => Some(ways[ways.place_for(flow)]),
            Action::Drop | Action::Local | Action::Tunnel { .. } | Action::Punt => None,
        }
    }

    /// The same without weights, for a switch of a version that does not know them.
    #[must_use]
    pub fn evened(self) -> Action {
        match self {
            Action::Spread { ways, alternate } => Action::Spread { ways: ways.evened(), alternate },
            other => other,
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
    "`{got}` is not an action: write drop, a port (`port:3` or `3`), `tunnel:NODE@ADDRESS`, punt or local; ports are 0 to 65535"
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

    #[test]
    fn weights_are_reduced_and_say_how_often_each_port_is_taken() {
        let ways = |ports: &[(u16, u8)]| Ways::weighed(ports.iter().map(|(port, weight)| (PortId(*port), *weight)));
        let uneven = ways(&[(9, 12), (2, 4), (5, 8)]).unwrap();
        assert_eq!((uneven.weights(), uneven.to_string().as_str()), (&[1, 2, 3][..], "2*1|5*2|9*3"));
        assert_eq!(ways(&[(2, 1), (5, 2), (9, 3)]), Some(uneven));
        assert_eq!(ways(&[(9, 64), (2, 64)]), Ways::new([PortId(2), PortId(9)]));
        assert_eq!(Some(uneven.evened()), Ways::new([PortId(2), PortId(5), PortId(9)]));
        assert!(!uneven.is_even() && uneven.evened().is_even());
        for wrong in [&[(1, 0), (2, 1)][..], &[(1, 65), (2, 1)], &[(1, 0), (2, 0)], &[(1, 1), (1, 2)]] {
            assert_eq!(ways(wrong), None, "{wrong:?}");
        }

        let action = Action::Spread { ways: uneven, alternate: None };
        let taken = |port| (0..6000).filter(|n| action.port_for(*n) == Some(PortId(port))).count();
        let [two, five, nine] = [2, 5, 9].map(taken);
        // Of 6000, a half, a third and a sixth, and six standard deviations.
        assert!((2768..=3232).contains(&nine) && (1781..=2219).contains(&five), "{two} {five} {nine}");
        assert_eq!((two + five + nine, action.port()), (6000, Some(PortId(2))));
        let evened = action.evened();
        assert_eq!([0, 1, 2, 3].map(|n| evened.port_for(n)), [2, 5, 9, 2].map(|port| Some(PortId(port))));
        assert_eq!(Action::Port(PortId(7)).evened(), Action::Port(PortId(7)));
    }
}
