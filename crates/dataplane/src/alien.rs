//! Frames to names that the network does not know: dropped, sent to one port, or spread over servers.
//!
//! A name is unknown if a host sends to it and the exact table of valid names lacks it; a switch without that table drops
//! what hosts send. A frame that comes through a trunk passed that check elsewhere: its name is unknown if the FIB says
//! drop and, where there is an exact table, that lacks it too. So at a core node the design determines which aliens
//! are recognised ([`fib::designs::Aliens`]).
//!
//! Servers are at host ports. The digest of the name chooses one, by a Maglev table ([`maglev`]): in proportion to
//! weights, the same for all frames to a name, and with few names that move when the list changes. While the port of a
//! server is down, its names go to others, by their weights, and all other names stay. docs/how-to compares that
//! with the random colours of the papers.
//! Cost: a frame to an unknown name reads one slot. The table has 128 KiB, once for all workers.

use crate::maglev::{self, MAX_WEIGHT, NOBODY, SLOTS};
use crate::port::Role;
use fib::action::PortId;
use lookup::hash::{Digest, mix64};
use std::sync::Arc;

/// Decides what to do with frames to unknown names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// They are dropped.
    #[default]
    Drop,
    /// They are sent to this host port.
    Punt(PortId),
    /// They are spread over these servers.
    Spread(Vec<Server>),
}

/// A server of unknown names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Server {
    /// The host port that it is at.
    pub port: PortId,
    /// Its share, relative to the sum of all weights: 0 to [`MAX_WEIGHT`].
    pub weight: u16,
}

/// A policy over the ports of a data plane, by their indices.
#[derive(Clone, Debug)]
pub(crate) enum Aliens {
    Drop,
    Punt(u8),
    Spread { slots: Arc<[u16]> },
}

/// Slots that are tried for a server whose port is up.
const TRIES: usize = 16;

impl Policy {
    /// # Errors
    /// A port that does not exist, or is at no host; no server, or one with too much weight; with the reason.
    pub(crate) fn over(&self, ports: &[(PortId, Role)]) -> Result<Aliens, (PortId, &'static str)> {
        let index = |port: PortId| {
            let at = ports.iter().position(|known| *known == (port, Role::Host));
            at.map(|at| at as u8).ok_or((port, "is not a port with role = \"host\""))
        };
        Ok(match self {
            Policy::Drop => Aliens::Drop,
            Policy::Punt(port) => Aliens::Punt(index(*port)?),
            Policy::Spread(servers) => {
                let mut there = Vec::new();
                for &Server { port, weight } in servers {
                    if weight > MAX_WEIGHT {
                        return Err((port, "has a weight over 1000"));
                    }
                    there.push(maglev::Server { index: index(port)?.into(), name: name_of(port), weight });
                }
                let mut slots = vec![NOBODY; SLOTS];
                maglev::fill(&mut slots, there.into_iter());
                Aliens::Spread { slots: slots.into() }
            }
        })
    }
}

/// The seed of a server's order of slots.
fn name_of(port: PortId) -> u64 {
    mix64(u64::from(port.0) + 1)
}

impl Aliens {
    /// The index of the port by which a frame to an unknown name leaves, if it is not dropped.
    #[inline]
    pub(crate) fn exit(&self, name: Digest, is_up: impl Fn(u8) -> bool) -> Option<u8> {
        match self {
            Aliens::Drop => None,
            Aliens::Punt(exit) => Some(*exit),
            Aliens::Spread { slots } => {
                let mut digest = name.0;
                let mut at = || {
                    let index = slots[maglev::slot(digest)];
                    digest = mix64(digest);
                    (index != NOBODY).then_some(index as u8)
                };
                let first = at();
                let next = std::iter::once(first).chain(std::iter::repeat_with(at).take(TRIES - 1));
                next.flatten().find(|&exit| is_up(exit)).or(first)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(servers: &[(u16, u16)], n_ports: u16) -> Aliens {
        let ports: Vec<_> = (0..n_ports).map(|id| (PortId(id), Role::Host)).collect();
        let servers = servers.iter().map(|&(port, weight)| Server { port: PortId(port), weight }).collect();
        Policy::Spread(servers).over(&ports).unwrap()
    }

    const NAMES: u64 = 100_000;

    fn exits(aliens: &Aliens, is_up: impl Fn(u8) -> bool) -> Vec<u8> {
        (0..NAMES).map(|name| aliens.exit(Digest(mix64(name + 1)), &is_up).unwrap()).collect()
    }

    #[test]
    fn names_go_to_servers_by_weight_and_only_those_of_a_server_that_is_down_move() {
        let aliens = spread(&[(1, 3), (2, 1), (4, 0), (5, 2)], 6);
        let before = exits(&aliens, |_| true);
        let share = |exits: &[u8], of: u8| exits.iter().filter(|&&exit| exit == of).count() as f64 / NAMES as f64;
        for (exit, due) in [(1, 0.5), (2, 1.0 / 6.0), (4, 0.0), (5, 1.0 / 3.0)] {
            // Five standard deviations.
            assert!((share(&before, exit) - due).abs() < 5.0 * (0.25 / NAMES as f64).sqrt(), "port {exit}");
        }
        let without = exits(&aliens, |exit| exit != 5);
        assert!(before.iter().zip(&without).all(|(old, new)| old == new || *old == 5));
        assert_eq!(share(&without, 5), 0.0);
        assert!((share(&without, 1) - 0.75).abs() < 5.0 * (0.25 / NAMES as f64).sqrt());
        // With all down it stays where it belongs.
        assert_eq!(exits(&aliens, |_| false), before);
    }

    #[test]
    fn without_servers_there_is_nowhere_to_go() {
        assert_eq!(spread(&[(1, 0)], 2).exit(Digest(7), |_| true), None);
        assert_eq!(spread(&[], 2).exit(Digest(7), |_| true), None);
    }
}
