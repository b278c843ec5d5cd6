//! Sockets that outlive the process: somebody else keeps them, and the next process goes on with what is in their rings.
//!
//! ```text
//!  process 1 ─ opens ─► socket, ring ◄─ kernel, all the time
//!      └─ keep(name, socket) ─► vault ─ at its start ─► process 2: maps the ring, finds its place, reads on
//! ```
//! A socket is kept when it is opened, so it makes no difference how a process ends. Its name says of which interface and of which
//! worker it is: `eth1-0-of-2`.
//!
//! All sockets of an interface are taken over, or none: the members of a fanout group share its frames. What does not fit (another
//! number of workers, an interface that was made anew, another MTU, another version) is closed, with what waits in it, and opened
//! anew; the reason is told ([`Handover::settle`]).

use super::ring::{Misfit, Ring};
use super::{AfPacket, Membership, Open, Options, VLAN_TAG, interface, sys};
use crate::NetError;
use rustix::net::{AddressFamily, SocketType};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Keeps sockets for the process that comes after this one.
pub trait Vault: Send + Sync {
    /// Keeps a socket under a name, beside others that it has under it.
    fn keep(&self, name: &str, socket: BorrowedFd<'_>);

    /// Closes what it keeps under a name.
    fn forget(&self, name: &str);
}

/// See the module.
pub struct Handover {
    vault: Box<dyn Vault>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What the process before left, until it is taken over.
    left: Vec<(String, OwnedFd)>,
    /// The names that the vault has.
    kept: BTreeSet<String>,
    notices: Vec<String>,
}

/// Why sockets that were left are not taken over.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    #[error("they are {got} sockets of {of} workers, and there are {n_workers}")]
    Workers { got: usize, of: usize, n_workers: usize },
    #[error("one of them is no packet socket")]
    Kind,
    #[error("they are in another network namespace")]
    Namespace,
    #[error("the interface was deleted and made anew")]
    Interface,
    #[error("they do not share the frames as workers do")]
    Fanout,
    #[error(transparent)]
    Ring(#[from] Misfit),
    #[error(transparent)]
    Net(#[from] NetError),
    #[error("one of them cannot be looked at: {0}")]
    Io(#[from] io::Error),
}

impl From<rustix::io::Errno> for Unfit {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}

/// The name of a worker's socket: the index of the worker, and of how many.
fn name_of(interface: &str, (index, of): (usize, usize)) -> String {
    format!("{interface}-{index}-of-{of}")
}

fn parse(name: &str) -> Option<(&str, (usize, usize))> {
    let (rest, of) = name.rsplit_once("-of-")?;
    let (interface, index) = rest.rsplit_once('-')?;
    Some((interface, (index.parse().ok()?, of.parse().ok()?)))
}

/// Sockets that this process was started with, by their names in the order of their descriptors, the first behind the standard
/// ones. Those that are not open, or that somebody has taken before, are not among them.
pub fn inherited<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<(String, OwnedFd)> {
    let named = names.into_iter().enumerate();
    named.filter_map(|(i, name)| Some((name.to_owned(), sys::inherited(i)?))).collect()
}

impl Handover {
    /// `left`: what the process before had kept, which the vault still has.
    pub fn new(vault: Box<dyn Vault>, left: Vec<(String, OwnedFd)>) -> Arc<Self> {
        let kept = left.iter().map(|(name, _)| name.clone()).collect();
        Arc::new(Self { vault, state: Mutex::new(State { left, kept, notices: Vec::new() }) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes what was left and nobody has taken over. To be called once all ports are open. Returns what there is to tell.
    pub fn settle(&self) -> Vec<String> {
        let mut state = self.state();
        let left = std::mem::take(&mut state.left);
        for (name, socket) in left {
            drop(socket);
            self.vault.forget(&name);
            state.kept.remove(&name);
            let notice = match parse(&name) {
                Some((interface, (0, _))) => {
                    format!("{interface} is no port with packet sockets any more; they are closed")
                }
                Some(_) => continue,
                None => format!("the service manager has kept what is no socket of a port, {name}; it is closed"),
            };
            state.notices.push(notice);
        }
        std::mem::take(&mut state.notices)
    }

    /// Keeps the socket of a worker, in the place of one that was kept before.
    pub(super) fn keep(&self, interface: &str, share: (usize, usize), socket: BorrowedFd<'_>) {
        let name = name_of(interface, share);
        // What service managers take for a name. Other interfaces lose what comes while nobody is there.
        if !name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':') {
            return;
        }
        if !self.state().kept.insert(name.clone()) {
            self.vault.forget(&name);
        }
        self.vault.keep(&name, socket);
    }

    /// The members of an interface, with the sockets that were left; none if there are none, or none that fit.
    pub(super) fn take_over(&self, interface: &str, options: &Options, n_workers: usize) -> Option<Vec<AfPacket>> {
        let is_its = |name: &str| parse(name).is_some_and(|(of, _)| of == interface);
        let left: Vec<(String, OwnedFd)> = self.state().left.extract_if(.., |(name, _)| is_its(name)).collect();
        if left.is_empty() {
            return None;
        }
        let names: Vec<String> = left.iter().map(|(name, _)| name.clone()).collect();
        let unfit = match assemble(interface, options, n_workers, left) {
            Ok(members) => return Some(members),
            Err(unfit) => unfit,
        };
        let mut state = self.state();
        for name in names {
            self.vault.forget(&name);
            state.kept.remove(&name);
        }
        state.notices.push(format!(
            "{interface}: its packet sockets are not taken over, and what came meanwhile is lost: {unfit}"
        ));
        None
    }
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover").field("kept", &self.state().kept).finish_non_exhaustive()
    }
}

/// Makes members of the sockets that were left for an interface.
fn assemble(
    interface: &str,
    options: &Options,
    n_workers: usize,
    left: Vec<(String, OwnedFd)>,
) -> Result<Vec<AfPacket>, Unfit> {
    let (got, mut of) = (left.len(), 0);
    let mut sockets: Vec<Option<OwnedFd>> = (0..n_workers).map(|_| None).collect();
    for (name, socket) in left {
        let Some((_, share)) = parse(&name) else { return Err(Unfit::Kind) };
        of = share.1;
        if of == n_workers
            && let Some(place) = sockets.get_mut(share.0)
        {
            *place = Some(socket);
        }
    }
    // Two of one name leave another place empty.
    let sockets: Option<Vec<OwnedFd>> = sockets.into_iter().collect();
    let sockets = sockets.filter(|sockets| sockets.len() == got).ok_or(Unfit::Workers { got, of, n_workers })?;

    let mut opened: Vec<(Open, u32)> = Vec::with_capacity(n_workers);
    let ours = interface::socket()?;
    for socket in sockets {
        let fanout = check(&socket, &ours)?;
        let (ifindex, max_frame) = Open::prepare(socket.as_fd(), interface, options)?;
        if sys::bound_ifindex(socket.as_fd())? != ifindex as i32 {
            return Err(Unfit::Interface);
        }
        let ring = Ring::take_over(socket.as_fd(), options.ring_frames, max_frame + VLAN_TAG)?;
        let open = Open { socket, ring, max_frame };
        // As after a link that was down and is up.
        let _ = open.pending_error();
        opened.push((open, fanout));
    }
    let group = group_of(&opened, interface)?;
    let members = opened.into_iter().enumerate().map(|(i, (open, _))| {
        let mut member = AfPacket::absent(interface, (i, n_workers), options, group.clone());
        member.resume(open);
        member
    });
    Ok(members.collect())
}

/// Checks that it is a packet socket of this namespace. Returns its membership in a fanout group.
fn check(socket: &OwnedFd, ours: &OwnedFd) -> Result<u32, Unfit> {
    let kind = (rustix::net::sockopt::socket_domain(socket)?, rustix::net::sockopt::socket_type(socket)?);
    if kind != (AddressFamily::PACKET, SocketType::RAW) {
        return Err(Unfit::Kind);
    }
    match (sys::namespace_of(socket.as_fd()), sys::namespace_of(ours.as_fd())) {
        (Ok(its), Ok(ours)) if its != ours => return Err(Unfit::Namespace),
        // The number of the interface has to do, where the kernel does not say.
        _ => {}
    }
    let mut fanout: libc::c_uint = 0;
    sys::get_option(socket.as_fd(), libc::PACKET_FANOUT, &mut fanout)?;
    Ok(fanout)
}

/// The group of several, which they must have in common; one alone must have none.
fn group_of(opened: &[(Open, u32)], interface: &str) -> Result<Option<super::Group>, Unfit> {
    let Some((first, fanout)) = opened.first() else { return Ok(None) };
    if opened.iter().any(|(_, other)| other != fanout) {
        return Err(Unfit::Fanout);
    }
    // The number, then the kind, then flags.
    let (id, kind) = (*fanout as u16, *fanout >> 16 & 0xff);
    match opened.len() {
        1 if *fanout == 0 => Ok(None),
        1 => Err(Unfit::Fanout),
        _ if kind != libc::PACKET_FANOUT_CBPF => Err(Unfit::Fanout),
        _ => {
            let ifindex = rustix::net::netdevice::name_to_index(&first.socket, interface)?;
            Ok(Some(Arc::new(Mutex::new(Membership { id, ifindex }))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_which_interface_and_which_worker() {
        for interface in ["eth1", "a-0-of-2", "-", "enp1s0f0np0.100"] {
            for share in [(0, 1), (3, 64)] {
                assert_eq!(parse(&name_of(interface, share)), Some((interface, share)));
            }
        }
        for wrong in ["", "stored", "eth1", "eth1-0", "eth1-x-of-2", "eth1-0-of-", "-of-"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
