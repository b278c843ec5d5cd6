//! Access lists at ports: which frames from a host, or from outside, may enter.
//!
//! The first rule of the list that matches a packet decides, and what no rule matches is dropped.
//!
//! | frame | |
//! |---|---|
//! | IPv4, IPv6 | by addresses, protocol, and the ports of TCP, UDP, UDP-Lite, DCCP and SCTP (0 for others), of the packet itself: an ICMP error is not what it quotes |
//! | a later fragment | it has no ports: dropped, unless all rules match addresses alone |
//! | ARP, neighbour discovery (hop limit 255) | enters: [`source`](crate::source) checks it |
//! | to a group | enters: it is answered, dropped, or copied ([`groups`](crate::groups)), and each copy is judged |
//! | anything else, more than two VLAN tags, too many extension headers | dropped |
//!
//! A list is a file, as `fibula rules` reads it ([`fib::rules`]). It is read again when it changes. Then the table is changed
//! by the rules that differ, and replaced whole: a burst is judged by one list, before or after. An invalid list leaves
//! the previous one in use.
//! Cost: of a burst, one lookup in [`lookup::rules`] for each version of IP; the read of one flag at ports without a list.
//! Limits: what leaves by a port is not judged; connections are handled by [`flow`](crate::flow).

mod table;

pub use table::{AclTableError, Difference};

use crate::counters::DropReason;
use crate::parse::{ARP, ICMPV6, IPV4, IPV6, Network, SERVICE_VLAN, VLAN, ether_type, network};
use crate::shim;
use arc_swap::{ArcSwap, ArcSwapOption};
use clock::{Stamp, date};
use fib::rules::{self, Actions, AnyFlow, ListedRule};
use fib::text::{LineError, unpacked};
use lookup::rules::Flow;
use lookup::traits::Query;
use netio::{BURST, Counter, Packet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use table::{InUse, PERMIT, Writer};

/// The most bytes of a list.
const MAX_BYTES: u64 = 256 << 20;

/// Why a list cannot be used. The text of an error begins with the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AclError {
    /// It cannot be read.
    #[error(
        "cannot read {path}: {source}; an access list is a file of rules, such as `permit tcp to 10.0.0.9 port 443`"
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It has more bytes than are read.
    #[error("{0} has more than {MAX_BYTES} bytes, so it is not an access list; name a file of rules")]
    TooLong(PathBuf),
    /// A line is wrong.
    #[error("{}:{}: {}", path.display(), error.line, error.reason)]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, and what is wrong.
        error: LineError,
    },
    /// The table cannot hold the rules.
    #[error("{path}: {source}")]
    Table {
        /// The file.
        path: PathBuf,
        /// Why.
        source: AclTableError,
    },
}

/// A list, as all workers share it.
pub struct AccessList {
    path: PathBuf,
    table: ArcSwap<InUse>,
    read: Mutex<LastRead>,
}

struct LastRead {
    writer: Writer,
    /// The file whose rules are in use, or which was refused.
    stamp: Option<Stamp>,
    /// Its state when it was last checked.
    seen: Option<Stamp>,
    at: SystemTime,
    error: Option<String>,
}

/// A list at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclStatus {
    /// Its file.
    pub path: PathBuf,
    /// The rules in use.
    pub rules: usize,
    /// When they were read.
    pub read_at: SystemTime,
    /// Why the present file is not in use, if so.
    pub error: Option<String>,
}

impl std::fmt::Debug for AccessList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessList").field("path", &self.path).finish_non_exhaustive()
    }
}

fn read_list(path: &Path) -> Result<Vec<ListedRule>, AclError> {
    let cannot = |source| AclError::Read { path: path.to_owned(), source };
    let mut input = unpacked(File::open(path).map_err(cannot)?).map_err(cannot)?.take(MAX_BYTES + 1);
    let list = parse(path, &mut input);
    // What is cut off may make a line wrong, so the error should say why.
    if input.limit() == 0 { Err(AclError::TooLong(path.to_owned())) } else { list }
}

fn parse(path: &Path, input: impl Read) -> Result<Vec<ListedRule>, AclError> {
    rules::read(input, &Actions::default()).map_err(|error| AclError::Line { path: path.to_owned(), error })
}

fn permits(rule: &ListedRule) -> bool {
    rule.action == "permit"
}

impl AccessList {
    /// Reads a list.
    /// # Errors
    /// [`AclError`].
    pub fn open(path: &Path) -> Result<Arc<Self>, AclError> {
        let stamp = Stamp::of(path);
        Self::of(path, &read_list(path)?, stamp)
    }

    /// A list that is in no file.
    /// # Errors
    /// [`AclError`].
    pub fn of_text(text: &str) -> Result<Arc<Self>, AclError> {
        let path = Path::new("");
        Self::of(path, &parse(path, text.as_bytes())?, None)
    }

    fn of(path: &Path, list: &[ListedRule], stamp: Option<Stamp>) -> Result<Arc<Self>, AclError> {
        let held = Writer::new(list, permits).map_err(|source| AclError::Table { path: path.to_owned(), source });
        let (writer, table) = held?;
        let read = Mutex::new(LastRead { writer, stamp, seen: stamp, at: date::now(), error: None });
        Ok(Arc::new(Self { path: path.to_owned(), table: ArcSwap::from_pointee(table), read }))
    }

    /// Reads the file again if it differs from the one that was read last. Call it repeatedly: a file is read only
    /// when it was the same twice, so not while it is being written. Returns the difference, if its rules are newly in use.
    /// # Errors
    /// [`AclError`], once for each file; the previous rules stay in use.
    pub fn reload(&self) -> Result<Option<Difference>, AclError> {
        let now = Stamp::of(&self.path);
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if now != std::mem::replace(&mut read.seen, now) || now == read.stamp {
            return Ok(None);
        }
        self.read(&mut read, now)
    }

    /// As [`AccessList::reload`], but at once: the caller vouches that the file is whole.
    /// # Errors
    /// As there.
    pub fn read_again(&self) -> Result<Option<Difference>, AclError> {
        let now = Stamp::of(&self.path);
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.seen = now;
        if now.is_some() && now == read.stamp {
            return Ok(None);
        }
        self.read(&mut read, now)
    }

    fn read(&self, read: &mut LastRead, now: Option<Stamp>) -> Result<Option<Difference>, AclError> {
        read.stamp = now;
        let followed = read_list(&self.path).and_then(|list| {
            let publish = |table| self.table.swap(table);
            let held = read.writer.follow(&list, permits, publish);
            held.map_err(|source| AclError::Table { path: self.path.clone(), source })
        });
        let difference = followed.inspect_err(|error| read.error = Some(error.to_string()))?;
        (read.at, read.error) = (date::now(), None);
        Ok(Some(difference))
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The list in use.
    pub fn status(&self) -> AclStatus {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let rules = self.table.load().n_rules;
        AclStatus { path: self.path.clone(), rules, read_at: read.at, error: read.error.clone() }
    }
}

/// Packets that a port's list let in and kept out. One worker writes it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct AclCounters {
    pub(crate) permitted: Counter,
    pub(crate) denied: Counter,
}

/// The list of a port, which may be replaced while frames are forwarded.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    list: ArcSwapOption<AccessList>,
    /// Whether there is a list: what most bursts read.
    is_there: AtomicBool,
}

impl Slot {
    pub(crate) fn new(list: Option<Arc<AccessList>>) -> Arc<Self> {
        let slot = Self::default();
        slot.set(list);
        Arc::new(slot)
    }

    /// Replaces the list, or removes it. A burst is judged by one of the two.
    pub(crate) fn set(&self, list: Option<Arc<AccessList>>) {
        let is_there = list.is_some();
        self.list.store(list);
        self.is_there.store(is_there, Release);
    }

    pub(crate) fn get(&self) -> Option<Arc<AccessList>> {
        self.list.load_full()
    }
}

/// The list at one worker's end of a port.
pub(crate) struct PortAcl {
    pub(crate) slot: Arc<Slot>,
    pub(crate) counters: Arc<AclCounters>,
}

impl PortAcl {
    /// The frames of a burst that may not enter, as a bit each, with the reasons. None without a list.
    #[inline]
    pub(crate) fn judge(&self, burst: &[Packet]) -> Option<(u32, [DropReason; BURST])> {
        if !self.slot.is_there.load(Acquire) {
            return None;
        }
        self.slot.list.load().as_ref().map(|list| self.judge_by(list, burst))
    }

    fn judge_by(&self, list: &AccessList, burst: &[Packet]) -> (u32, [DropReason; BURST]) {
        let table = list.table.load();
        let (mut refused, mut reasons) = (0, [DropReason::Acl; BURST]);
        let mut v4 = Asked::<1>::new();
        let mut v6 = Asked::<4>::new();
        let mut judged = 0;
        for (i, packet) in burst.iter().enumerate() {
            match read(packet.frame(), table.only_addresses) {
                Ok(None) => continue,
                Ok(Some(AnyFlow::V4(flow))) => v4.push(i, flow),
                Ok(Some(AnyFlow::V6(flow))) => v6.push(i, flow),
                Err(reason) => {
                    refused |= 1 << i;
                    reasons[i] = reason;
                }
            }
            judged += 1;
        }
        // Without a rule, the value is 0.
        let is_denied = |value: u64| value != u64::from(PERMIT);
        refused |= v4.refused(&table.v4, is_denied) | v6.refused(&table.v6, is_denied);
        let denied = u64::from(refused.count_ones());
        self.counters.denied.add(denied);
        self.counters.permitted.add(judged - denied);
        (refused, reasons)
    }
}

/// Flows of a burst to look up.
struct Asked<const W: usize> {
    n: usize,
    flows: [Flow<W>; BURST],
    owners: [u8; BURST],
}

impl<const W: usize> Asked<W> {
    fn new() -> Self {
        Self { n: 0, flows: [Flow::default(); BURST], owners: [0; BURST] }
    }

    fn push(&mut self, owner: usize, flow: Flow<W>) {
        (self.flows[self.n], self.owners[self.n]) = (flow, owner as u8);
        self.n += 1;
    }

    fn refused(&self, table: &lookup::rules::RulesQuery<W>, is_denied: impl Fn(u64) -> bool) -> u32 {
        if self.n == 0 {
            return 0;
        }
        let mut values = [0; BURST];
        table.lookup_batch(&self.flows[..self.n], &mut values[..self.n]);
        let one = |(&owner, &value)| u32::from(is_denied(value)) << owner;
        self.owners.iter().zip(&values[..self.n]).map(one).fold(0, |all, one| all | one)
    }
}

/// The question to the list about a frame; none if the frame enters anyway.
fn read(frame: &[u8], only_addresses: bool) -> Result<Option<AnyFlow>, DropReason> {
    // A frame without a whole header is dropped as such later.
    if frame.len() < shim::AT + 2 || frame[0] & 1 != 0 {
        return Ok(None);
    }
    let kind = ether_type(frame, shim::AT)?.0;
    match kind {
        ARP => return Ok(None),
        IPV4 | IPV6 => {}
        VLAN | SERVICE_VLAN => return Err(DropReason::VlanTags),
        _ => return Err(DropReason::Acl),
    }
    let ip = network(frame, shim::AT)?;
    let transport = ip.transport()?;
    if transport.ends_in_extension() {
        return Err(DropReason::Acl);
    }
    if let Network::V6(header) = ip
        && transport.protocol == ICMPV6
        && !transport.later_fragment
        && header[7] == 255
        && matches!(transport.payload.first(), Some(133..=136))
    {
        return Ok(None);
    }
    let ports = if transport.later_fragment {
        if !only_addresses {
            return Err(DropReason::Fragment);
        }
        [0; 4]
    } else {
        transport.ports()?
    };
    AnyFlow::new(transport.addresses, transport.protocol, ports).map(Some).ok_or(DropReason::Acl)
}
