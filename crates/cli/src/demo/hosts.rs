//! What the hosts run: ping, bulk TCP and bulk UDP, on sockets of the Linux network stack in their namespaces.
//!
//! The programs are threads of the demo; only their sockets are in the namespaces. So hosts need no software.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use super::backend::SetOnDrop;
use super::frames::{PROBE_PORT, probe_payload};
use super::judge::Judge;
use super::layout::Layout;
use super::netns::{NetnsError, within};
use super::wire::Wires;

const TCP_PORT: u16 = 7002;
const UDP_PORT: u16 = 7003;
/// Payload of a bulk UDP datagram; with its headers it fills an Ethernet frame.
const DATAGRAM_LEN: usize = 1472;
/// Datagrams of one flow in flight at once. Beyond that the sender waits for the receiver: without flow control the
/// demo would measure this machine's overflowing buffers, not the network.
const WINDOW: u64 = 64;
/// A window without progress for this long counts as lost: long enough even on a busy machine.
const STALL: Duration = Duration::from_secs(5);
/// At the end of a flow: datagrams in flight arrive within this, or are lost.
const MAX_FLIGHT: Duration = Duration::from_millis(500);
/// A ping without an answer is sent again after this.
const PING_AGAIN: Duration = Duration::from_secs(1);
/// A connection is established within this, or not at all; each try may take part of it.
const CONNECT_PATIENCE: Duration = Duration::from_secs(60);
const CONNECT_TRY: Duration = Duration::from_secs(3);
/// After the sender is done, a receiver waits this long for data in flight.
const SILENCE: Duration = Duration::from_secs(30);
/// A rate-limited sender writes at least this many bytes at once.
const MIN_WRITE: u64 = 8 << 10;
/// Interval at which sockets wake up to check whether the demo was interrupted.
const TICK: Duration = Duration::from_millis(50);

/// Every host has a socket for probes that is never read, so that its kernel does not answer them with ICMP errors.
pub(super) struct Hosts<'a> {
    layout: &'a Layout,
    wires: &'a Wires,
    /// One per host; they send the probes between hosts.
    probes: Vec<UdpSocket>,
}

/// Outcome of the pings.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Pings {
    /// Ordered pairs of hosts.
    pub(super) pairs: u64,
    pub(super) answered: u64,
    /// Answered without a second try.
    pub(super) at_first_try: u64,
    pub(super) rtt_median_us: f64,
    pub(super) rtt_max_us: f64,
}

impl Pings {
    /// `rtts_us`: one per pair that was answered.
    pub(super) fn new(pairs: u64, at_first_try: u64, mut rtts_us: Vec<f64>) -> Self {
        rtts_us.sort_by(f64::total_cmp);
        Self {
            pairs,
            answered: rtts_us.len() as u64,
            at_first_try,
            rtt_median_us: rtts_us.get(rtts_us.len() / 2).copied().unwrap_or_default(),
            rtt_max_us: rtts_us.last().copied().unwrap_or_default(),
        }
    }
}

/// Outcome of a bulk transfer.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct Bulk {
    pub(super) flows: u64,
    /// Payload that arrived.
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// TCP segments that were retransmitted.
    pub(super) retransmits: u64,
    /// UDP datagrams sent, and distinct ones that the receiving program got.
    pub(super) datagrams_sent: u64,
    pub(super) datagrams_received: u64,
}

impl Bulk {
    pub(super) fn megabits_a_second(&self) -> f64 {
        if self.seconds == 0.0 { 0.0 } else { self.bytes as f64 * 8e-6 / self.seconds }
    }
}

impl<'a> Hosts<'a> {
    pub(super) fn new(layout: &'a Layout, wires: &'a Wires) -> Result<Self, NetnsError> {
        let probes = (0..layout.hosts.len())
            .map(|host| {
                within(&wires.host(host), || {
                    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PROBE_PORT))?;
                    // What waits for an answer to an ARP request fills its buffer; the probes of others go on.
                    socket.set_nonblocking(true)?;
                    Ok(socket)
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { layout, wires, probes })
    }

    fn len(&self) -> usize {
        self.layout.hosts.len()
    }

    fn ip(&self, host: usize) -> Ipv4Addr {
        self.layout.hosts[host].ip
    }

    /// Sends a probe from one host to another. A probe that the sender's kernel refuses counts as lost.
    pub(super) fn send_probe(&self, from: usize, to: usize, payload: &[u8]) {
        let _ = self.probes[from].send_to(payload, (self.ip(to), PROBE_PORT));
    }

    /// Every host pings every other until it has an answer, or until no host has had one for `patience`.
    pub(super) fn ping_all(&self, patience: Duration, stop: &AtomicBool) -> Result<Pings, NetnsError> {
        let n = self.len();
        let sockets: Vec<Socket> = (0..n)
            .map(|host| {
                within(&self.wires.host(host), || {
                    Socket::new(Domain::IPV4, Type::RAW.nonblocking(), Some(Protocol::ICMPV4))
                })
            })
            .collect::<Result<_, _>>()?;
        let mut sent_at = vec![None; n * n];
        let mut rtts_us = Vec::new();
        let mut answered = vec![false; n * n];
        let mut at_first_try = None;
        let wanted = n * (n - 1);
        let mut progress = Instant::now();
        while rtts_us.len() < wanted && progress.elapsed() < patience && !stop.load(Ordering::Relaxed) {
            for from in 0..n {
                for to in (0..n).filter(|&to| to != from && !answered[from * n + to]) {
                    sent_at[from * n + to] = Some(Instant::now());
                    let target = SocketAddrV4::new(self.ip(to), 0);
                    // A full queue or an unresolved address counts as a ping without an answer.
                    let _ = sockets[from].send_to(&echo_message(to as u16), &target.into());
                }
            }
            let again = Instant::now() + PING_AGAIN;
            while rtts_us.len() < wanted && Instant::now() < again && !stop.load(Ordering::Relaxed) {
                let mut idle = true;
                for (from, socket) in sockets.iter().enumerate() {
                    while let Some(to) = next_echo_reply(socket) {
                        idle = false;
                        let pair = from * n + usize::from(to);
                        if let Some(Some(at)) = sent_at.get(pair)
                            && !std::mem::replace(&mut answered[pair], true)
                        {
                            rtts_us.push(at.elapsed().as_secs_f64() * 1e6);
                            progress = Instant::now();
                        }
                    }
                }
                if idle {
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
            at_first_try.get_or_insert(rtts_us.len() as u64);
        }
        Ok(Pings::new(wanted as u64, at_first_try.unwrap_or_default(), rtts_us))
    }

    /// Bulk TCP over `flows` until `until` or `stop`, as fast as possible or at a given rate per flow. Every flow
    /// carries some data, however late it begins.
    pub(super) fn tcp(
        &self,
        flows: &[(usize, usize)],
        bytes_a_second: Option<u64>,
        until: Instant,
        stop: &AtomicBool,
    ) -> Result<Bulk, NetnsError> {
        let begun = Instant::now();
        let resent_before = self.retransmits(flows)?;
        let bytes = AtomicU64::new(0);
        let gone: Vec<AtomicBool> = flows.iter().map(|_| AtomicBool::new(false)).collect();
        std::thread::scope(|scope| -> Result<(), NetnsError> {
            let mut threads = Vec::new();
            for (i, (&(from, to), gone)) in flows.iter().zip(&gone).enumerate() {
                let port = TCP_PORT + 100 + i as u16;
                let listener = within(&self.wires.host(to), || TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))?;
                let target = SocketAddrV4::new(self.ip(to), port);
                let name = self.wires.host(from);
                threads.push(scope.spawn(move || {
                    let _gone = SetOnDrop(gone);
                    within(&name, || match connect(target, stop)? {
                        Some(stream) => send_until(stream, bytes_a_second, until, stop),
                        None => Ok(()),
                    })
                }));
                let (bytes, name) = (&bytes, self.wires.host(to));
                threads.push(scope.spawn(move || within(&name, || receive_all(&listener, bytes, gone, stop))));
            }
            for thread in threads {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            Ok(())
        })?;
        Ok(Bulk {
            flows: flows.len() as u64,
            bytes: bytes.into_inner(),
            seconds: begun.elapsed().as_secs_f64(),
            retransmits: self.retransmits(flows)? - resent_before,
            ..Bulk::default()
        })
    }

    /// Bulk UDP over `flows` until `until` or `stop`. Every datagram is a numbered probe.
    pub(super) fn udp(
        &self,
        flows: &[(usize, usize)],
        judge: &Judge,
        until: Instant,
        stop: &AtomicBool,
    ) -> Result<Bulk, NetnsError> {
        let begun = Instant::now();
        let results = std::thread::scope(|scope| -> Result<Vec<_>, NetnsError> {
            let mut threads = Vec::new();
            for (i, &(from, to)) in flows.iter().enumerate() {
                let port = UDP_PORT + 200 + i as u16;
                let bind = |host: usize, port| {
                    within(&self.wires.host(host), || {
                        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
                        socket.set_read_timeout(Some(TICK))?;
                        Ok(socket)
                    })
                };
                let (sender, receiver) = (bind(from, 0)?, bind(to, port)?);
                let target = SocketAddrV4::new(self.ip(to), port);
                threads.push(scope.spawn(move || udp_flow(&sender, &receiver, target, judge, until, stop)));
            }
            Ok(threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect())
        })?;
        let mut bulk = Bulk { flows: flows.len() as u64, seconds: begun.elapsed().as_secs_f64(), ..Bulk::default() };
        for (sent, received) in results {
            bulk.datagrams_sent += sent;
            bulk.datagrams_received += received;
            bulk.bytes += received * DATAGRAM_LEN as u64;
        }
        Ok(bulk)
    }

    /// TCP segments that the senders' kernels have retransmitted so far.
    fn retransmits(&self, flows: &[(usize, usize)]) -> Result<u64, NetnsError> {
        flows
            .iter()
            .map(|&(from, _)| {
                within(&self.wires.host(from), || {
                    let text = std::fs::read_to_string("/proc/thread-self/net/snmp")?;
                    Ok(snmp_counter(&text, "Tcp:", "RetransSegs").unwrap_or_default())
                })
            })
            .sum()
    }
}

/// At most `n_flows` pairs of `n_hosts` hosts, half the list apart, so that bulk traffic crosses the network.
pub(super) fn across(n_hosts: usize, n_flows: usize) -> Vec<(usize, usize)> {
    let step = n_hosts.div_ceil(n_flows).max(1);
    let pair = |from| (from, (from + n_hosts.div_ceil(2)) % n_hosts);
    (0..n_hosts).step_by(step).map(pair).filter(|(from, to)| from != to).collect()
}

/// One counter of /proc/net/snmp: a line of names, then a line of numbers, both starting with the protocol.
fn snmp_counter(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(protocol));
    let at = lines.next()?.split_whitespace().position(|word| word == name)?;
    lines.next()?.split_whitespace().nth(at)?.parse().ok()
}

/// An ICMP echo request without its IP header; `seq` is the number of the host pinged.
fn echo_message(seq: u16) -> Vec<u8> {
    let echo = etherparse::IcmpEchoHeader { id: std::process::id() as u16, seq };
    let header = etherparse::Icmpv4Header::with_checksum(etherparse::Icmpv4Type::EchoRequest(echo), b"fibula");
    [&header.to_bytes()[..], b"fibula"].concat()
}

/// The sequence number of the next reply to an echo request of ours that a raw socket holds.
fn next_echo_reply(socket: &Socket) -> Option<u16> {
    loop {
        let mut bytes = [0; 128];
        let n = match io::Read::read(&mut &*socket, &mut bytes) {
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return None,
        };
        let Ok(ip) = etherparse::Ipv4Slice::from_slice(&bytes[..n]) else { continue };
        if let Ok(icmp) = etherparse::Icmpv4Slice::from_slice(ip.payload().payload)
            && let etherparse::Icmpv4Type::EchoReply(echo) = icmp.icmp_type()
            && echo.id == std::process::id() as u16
        {
            return Some(echo.seq);
        }
    }
}

/// Connects, with several tries if need be. Returns `None` if `stop` was set meanwhile.
fn connect(target: SocketAddrV4, stop: &AtomicBool) -> io::Result<Option<TcpStream>> {
    let begun = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        match TcpStream::connect_timeout(&target.into(), CONNECT_TRY) {
            Ok(stream) => return Ok(Some(stream)),
            Err(e) if begun.elapsed() > CONNECT_PATIENCE => return Err(e),
            Err(_) => std::thread::sleep(TICK),
        }
    }
    Ok(None)
}

/// Sends until `until` or `stop`, but at least something.
fn send_until(mut stream: TcpStream, bytes_a_second: Option<u64>, until: Instant, stop: &AtomicBool) -> io::Result<()> {
    stream.set_write_timeout(Some(TICK))?;
    let block = [0x5a_u8; 64 << 10];
    let begun = Instant::now();
    let mut sent = 0;
    while (sent == 0 || Instant::now() < until) && !stop.load(Ordering::Relaxed) {
        let allowed = bytes_a_second.map_or(u64::MAX, |rate| (begun.elapsed().as_secs_f64() * rate as f64) as u64);
        // In whole frames: sending the few bytes that a rate allows after each write would cost a system call each.
        if allowed - sent < MIN_WRITE {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        match stream.write(&block[..block.len().min((allowed - sent) as usize)]) {
            Ok(n) => sent += n as u64,
            Err(e) if would_block(&e) => {}
            Err(e) => return Err(e),
        }
    }
    stream.shutdown(std::net::Shutdown::Write)
}

/// Accepts one connection and counts the bytes received until its end, or, once the sender is `gone`, until no more
/// arrive.
fn receive_all(listener: &TcpListener, bytes: &AtomicU64, gone: &AtomicBool, stop: &AtomicBool) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut stream = loop {
        // Read first: a connection made before the sender ended is still accepted.
        let last = gone.load(Ordering::Relaxed);
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(e) if would_block(&e) && !last => std::thread::sleep(Duration::from_millis(2)),
            Err(e) if would_block(&e) => return Ok(()),
            Err(e) => return Err(e),
        }
    };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(TICK))?;
    let mut block = vec![0; 256 << 10];
    let mut last = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                bytes.fetch_add(n as u64, Ordering::Relaxed);
                last = Instant::now();
            }
            Err(e) if would_block(&e) && !(gone.load(Ordering::Relaxed) && last.elapsed() > SILENCE) => {}
            Err(e) if would_block(&e) => return Ok(()),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn would_block(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Sends and receives one flow with at most [`WINDOW`] datagrams in flight, and at least one window, however late it
/// begins.
/// Returns (sent, distinct received).
fn udp_flow(
    sender: &UdpSocket,
    receiver: &UdpSocket,
    target: SocketAddrV4,
    judge: &Judge,
    until: Instant,
    stop: &AtomicBool,
) -> (u64, u64) {
    let mut seen = Vec::<bool>::new();
    let (mut sent, mut received, mut given_up) = (0_u64, 0, 0);
    let mut buffer = [0; 2048];
    let mut progress = Instant::now();
    while (sent == 0 || Instant::now() < until) && !stop.load(Ordering::Relaxed) {
        // Datagrams that were given up may still arrive.
        while (sent - received).saturating_sub(given_up) < WINDOW {
            let mut payload = probe_payload(judge.send(1), DATAGRAM_LEN);
            payload[16..24].copy_from_slice(&sent.to_le_bytes());
            // A datagram that the sender's kernel refuses counts as sent and lost.
            let _ = sender.send_to(&payload, target);
            seen.push(false);
            sent += 1;
        }
        if receive_datagram(receiver, &mut buffer, &mut seen) {
            received += 1;
            progress = Instant::now();
        } else if progress.elapsed() > STALL {
            given_up = sent - received;
            progress = Instant::now();
        }
    }
    // Datagrams in flight, until none arrives for a while.
    while received < sent && !stop.load(Ordering::Relaxed) {
        if receive_datagram(receiver, &mut buffer, &mut seen) {
            received += 1;
            progress = Instant::now();
        } else if progress.elapsed() > if received == 0 { STALL } else { MAX_FLIGHT } {
            break;
        }
    }
    (sent, received)
}

/// Takes one datagram. Returns true if it arrived for the first time.
fn receive_datagram(receiver: &UdpSocket, buffer: &mut [u8], seen: &mut [bool]) -> bool {
    let Ok(n) = receiver.recv(buffer) else { return false };
    let Some(number) = buffer[..n].get(16..24) else { return false };
    let number = u64::from_le_bytes(number.try_into().expect("eight bytes"));
    seen.get_mut(number as usize).is_some_and(|seen| !std::mem::replace(seen, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_cross_the_network_and_never_stay_at_a_host() {
        for n_hosts in 2..30 {
            let flows = across(n_hosts, 4);
            assert!((1..=4).contains(&flows.len()), "{flows:?}");
            assert!(flows.iter().all(|&(from, to)| from != to && to < n_hosts), "{flows:?}");
        }
    }

    #[test]
    fn an_snmp_counter_is_found_by_the_name_above_it() {
        let text = "Ip: A B\nIp: 1 2\nTcp: InSegs RetransSegs OutRsts\nTcp: 10 42 7\nUdp: X\nUdp: 1\n";
        assert_eq!(snmp_counter(text, "Tcp:", "RetransSegs"), Some(42));
        assert_eq!(snmp_counter(text, "Tcp:", "Nothing"), None);
    }
}
