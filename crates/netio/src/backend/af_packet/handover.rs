//! Sockets that outlive the process: another process keeps them, and the next one continues with the frames in their rings.
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
use super::transmit::Whole;
use super::{AfPacket, Membership, Offloads, Open, Options, VLAN_TAG, interface, sys};
use crate::NetError;
use rustix::net::{AddressFamily, SocketType};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Keeps sockets for the process that comes after this one.
pub trait Vault: Send + Sync {
    /// Keeps a socket under a name, in addition to others under that name.
    fn keep(&self, name: &str, socket: BorrowedFd<'_>);

    /// Closes what it keeps under a name.
    fn forget(&self, name: &str);

    /// Waits until what was asked of it is done, or cannot be. Neither of the others waits.
    fn finish(&self) {}
}

/// See the module.
pub struct Handover {
    vault: Box<dyn Vault>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Sockets that the previous process left, until they are taken over.
    left: Vec<(String, OwnedFd)>,
    /// The names that the vault has.
    kept: BTreeSet<String>,
    /// Interfaces whose names are none for the vault.
    nameless: BTreeSet<String>,
    notices: Vec<String>,
}

/// Why sockets that were left are not taken over.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    #[error("they are {got} sockets of {of} workers, and there are {n_workers}")]
    Workers { got: usize, of: usize, n_workers: usize },
    #[error("one of them is not a packet socket")]
    Kind,
    #[error("they are in another network namespace")]
    Namespace,
    #[error("the interface was deleted and created again")]
    Interface,
    #[error("they do not share the frames as workers do")]
    Fanout,
    #[error(transparent)]
    Ring(#[from] Misfit),
    #[error(transparent)]
    Net(#[from] NetError),
    #[error("one of them cannot be inspected: {0}")]
    Io(#[from] io::Error),
}

impl From<rustix::io::Errno> for Unfit {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}

/// What service managers call descriptors without a name.
const UNKNOWN: &str = "unknown";

/// The name of a worker's socket: the index of the worker, and of how many.
fn name_of(interface: &str, (index, of): (usize, usize)) -> String {
    format!("{interface}-{index}-of-{of}")
}

fn parse(name: &str) -> Option<(&str, (usize, usize))> {
    let (rest, of) = name.rsplit_once("-of-")?;
    let (interface, index) = rest.rsplit_once('-')?;
    Some((interface, (index.parse().ok()?, of.parse().ok()?)))
}

/// Sockets that a service manager started this process with, and their names (`LISTEN_PID`, `LISTEN_FDS`, `LISTEN_FDNAMES`; sd_listen_fds(3)):
/// none if they are for another process. They are handed out once, to the first who asks; dropping them closes them. To be called
/// before anything that may hand descriptors on to other programs.
#[expect(unsafe_code, reason = "what the manager gave is this process's own")]
pub fn inherited() -> Vec<(String, OwnedFd)> {
    let environment = |name| std::env::var(name).unwrap_or_default();
    let (pid, n, names) = (environment("LISTEN_PID"), environment("LISTEN_FDS"), environment("LISTEN_FDNAMES"));
    let named = names_of(&pid, std::process::id(), &n, &names).into_iter().enumerate();
    // SAFETY: the variables say that the manager gave this many to this very process, to own.
    named.filter_map(|(i, name)| Some((name, unsafe { sys::inherited(i) }?))).collect()
}

/// The names of the descriptors that a manager gave this process, by its environment. One that has none is a stranger's.
fn names_of(pid: &str, own: u32, n: &str, names: &str) -> Vec<String> {
    let n = if pid.parse() == Ok(own) { n.parse().unwrap_or(0) } else { 0 };
    let named = names.split(':').filter(|name| !name.is_empty()).chain(std::iter::repeat(UNKNOWN));
    named.take(n.min(sys::MOST_INHERITED)).map(str::to_owned).collect()
}

impl Handover {
    /// `left`: what the process before had kept, which the vault still has.
    pub fn new(vault: Box<dyn Vault>, left: Vec<(String, OwnedFd)>) -> Arc<Self> {
        let kept = left.iter().map(|(name, _)| name.clone()).collect();
        Arc::new(Self { vault, state: Mutex::new(State { left, kept, ..State::default() }) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes what was left and has not been taken over, and waits until the vault has what is open. To be called once all ports are.
    /// Returns what there is to tell.
    pub fn settle(&self) -> Vec<String> {
        let mut state = self.state();
        let left = std::mem::take(&mut state.left);
        for (name, socket) in left {
            drop(socket);
            self.vault.forget(&name);
            state.kept.remove(&name);
            let notice = match parse(&name) {
                Some((interface, (0, _))) => {
                    format!("{interface} is no longer a port with packet sockets; they are closed")
                }
                Some(_) => continue,
                None => format!("the service manager has kept what is no socket of a port, {name}; it is closed"),
            };
            state.notices.push(notice);
        }
        self.vault.finish();
        std::mem::take(&mut state.notices)
    }

    /// Keeps the socket of a worker, in the place of one that was kept before.
    pub(super) fn keep(&self, interface: &str, share: (usize, usize), socket: BorrowedFd<'_>) {
        let name = name_of(interface, share);
        // What service managers take for a name.
        if !name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':') {
            let mut state = self.state();
            if state.nameless.insert(interface.to_owned()) {
                state.notices.push(format!(
                    "{interface}: frames that arrive during a restart will be lost: service managers keep no sockets under such a name; \
                     rename it to one of ASCII without colons"
                ));
            }
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
        let (ifindex, max_frame, found) = Open::prepare(socket.as_fd(), interface, options)?;
        if sys::bound_ifindex(socket.as_fd())? != ifindex as i32 {
            return Err(Unfit::Interface);
        }
        let ring = Ring::take_over(socket.as_fd(), options.ring_frames, max_frame + VLAN_TAG)?;
        // The reader before may have taken a frame from the queue and not noted that.
        let (carries, whole) = (options.offloads == Offloads::Carry, Whole::default());
        let open = Open { socket, ring, max_frame, carries, is_unsure: true, whole, found };
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
    fn descriptors_are_for_the_process_that_they_are_meant_for() {
        let names = |pid, n, names| names_of(pid, 77, n, names);
        assert_eq!(names("77", "2", "eth1-0-of-1:eth2-0-of-1"), ["eth1-0-of-1", "eth2-0-of-1"]);
        assert_eq!(names("77", "1", "eth1-0-of-1:eth2-0-of-1"), ["eth1-0-of-1"]);
        // All of them are to be closed some time.
        assert_eq!(names("77", "3", "eth1-0-of-1"), ["eth1-0-of-1", "unknown", "unknown"]);
        assert_eq!(names("77", "1", ""), ["unknown"]);
        // An ancestor's.
        assert!(names("76", "1", "eth1-0-of-1").is_empty());
        assert!(names("", "", "").is_empty() && names("77", "", "").is_empty() && names("77", "x", "a").is_empty());
        assert_eq!(names("77", "99999999", "a").len(), sys::MOST_INHERITED);
    }

    #[test]
    fn an_interface_that_cannot_be_kept_is_told_of_once() {
        struct Nobody;
        impl Vault for Nobody {
            fn keep(&self, name: &str, _: BorrowedFd<'_>) {
                panic!("{name} is kept");
            }
            fn forget(&self, _: &str) {}
        }
        let handover = Handover::new(Box::new(Nobody), Vec::new());
        let socket = interface::socket().unwrap();
        for share in [(0, 2), (1, 2), (0, 2)] {
            handover.keep("br:1", share, socket.as_fd());
        }
        let notices = handover.settle();
        assert!(notices.len() == 1 && notices[0].starts_with("br:1: "), "{notices:?}");
        assert!(handover.settle().is_empty());
    }

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
