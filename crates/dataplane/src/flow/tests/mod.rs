//! Packets in and packets out of one stage, at times that the test sets.

mod crowd;
mod filter;
mod in_flight;
mod translation;
mod unanswered;

use super::packet::Endpoint;
use super::rules::{Rule, Rules};
use super::state::State;
use super::{FlowView, Settings, Stage, Tracking};
use crate::counters::DropReason;
use crate::mac::Mac;
use crate::neighbours::Neighbours;
use etherparse::{PacketBuilder, PacketBuilderStep};
use fib::action::PortId;
use netio::{BURST, Burst, Packet};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
const SYN_ACK: u8 = SYN | ACK;

const CLIENT_MAC: Mac = [2, 0, 0, 0, 0, 1];
const GATEWAY_MAC: Mac = [2, 0, 0, 0, 0, 2];

fn end(text: &str) -> Endpoint {
    let address: SocketAddr = text.parse().unwrap();
    Endpoint { address: address.ip().into(), port: address.port() }
}

fn step(source: Endpoint, destination: Endpoint) -> PacketBuilderStep<etherparse::IpHeaders> {
    let builder = PacketBuilder::ethernet2(CLIENT_MAC, GATEWAY_MAC);
    match (IpAddr::from(source.address), IpAddr::from(destination.address)) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let ip =
                etherparse::Ipv4Header::new(0, 64, etherparse::IpNumber::TCP, source.octets(), destination.octets());
            builder.ip(etherparse::IpHeaders::Ipv4(ip.unwrap(), Default::default()))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let ip = etherparse::Ipv6Header {
                hop_limit: 64,
                source: source.octets(),
                destination: destination.octets(),
                ..Default::default()
            };
            builder.ip(etherparse::IpHeaders::Ipv6(ip, Default::default()))
        }
        _ => panic!("of one family"),
    }
}

fn tcp(source: &str, destination: &str, flags: u8, numbers: (u32, u32), payload: &[u8]) -> Vec<u8> {
    let (source, destination) = (end(source), end(destination));
    let mut header = etherparse::TcpHeader::new(source.port, destination.port, numbers.0, 1000);
    header.acknowledgment_number = numbers.1;
    (header.fin, header.syn, header.rst, header.ack) =
        (flags & 1 != 0, flags & SYN != 0, flags & RST != 0, flags & ACK != 0);
    let mut frame = vec![];
    step(source, destination).tcp_header(header).write(&mut frame, payload).unwrap();
    frame
}

fn udp(source: &str, destination: &str, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = (end(source), end(destination));
    let mut frame = vec![];
    step(source, destination).udp(source.port, destination.port).write(&mut frame, payload).unwrap();
    frame
}

/// An echo: the port of the side that asks is the identifier.
fn echo(source: &str, destination: &str, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = (end(source), end(destination));
    let (is_reply, id) = (source.port == 0, source.port | destination.port);
    let (mut frame, step) = (vec![], step(source, destination));
    match (source.address.is_v4(), is_reply) {
        (true, false) => step.icmpv4_echo_request(id, 1).write(&mut frame, payload),
        (true, true) => step.icmpv4_echo_reply(id, 1).write(&mut frame, payload),
        (false, false) => step.icmpv6_echo_request(id, 1).write(&mut frame, payload),
        (false, true) => step.icmpv6_echo_reply(id, 1).write(&mut frame, payload),
    }
    .unwrap();
    frame
}

/// "Unreachable", about a frame that was sent.
fn unreachable(from: &str, to: &str, about: &[u8], quoted_bytes: usize) -> Vec<u8> {
    let (source, destination) = (end(from), end(to));
    let (mut frame, quoted) = (vec![], &about[14..about.len().min(14 + quoted_bytes)]);
    let step = step(source, destination);
    if source.address.is_v4() {
        step.icmpv4_raw(3, 3, [0; 4]).write(&mut frame, quoted).unwrap();
    } else {
        step.icmpv6_raw(1, 4, [0; 4]).write(&mut frame, quoted).unwrap();
    }
    frame
}

/// Whether all checksums of a frame are right, by an implementation that is not ours.
fn is_whole(frame: &[u8]) -> bool {
    let sliced = etherparse::SlicedPacket::from_ethernet(frame).unwrap();
    let (v4, v6) = match sliced.net.unwrap() {
        etherparse::NetSlice::Ipv4(ip) => (Some(ip.header().to_header()), None),
        etherparse::NetSlice::Ipv6(ip) => (None, Some(ip.header().to_header())),
        _ => panic!("no IP"),
    };
    if v4.as_ref().is_some_and(|ip| ip.calc_header_checksum() != ip.header_checksum) {
        return false;
    }
    match sliced.transport.unwrap() {
        etherparse::TransportSlice::Tcp(tcp) => {
            let (header, payload) = (tcp.to_header(), tcp.payload());
            let v4 = v4.map(|ip| header.calc_checksum_ipv4(&ip, payload).unwrap());
            v4.or(v6.map(|ip| header.calc_checksum_ipv6(&ip, payload).unwrap())) == Some(header.checksum)
        }
        etherparse::TransportSlice::Udp(udp) => {
            let (header, payload) = (udp.to_header(), udp.payload());
            let v4 = v4.map(|ip| header.calc_checksum_ipv4(&ip, payload).unwrap());
            v4.or(v6.map(|ip| header.calc_checksum_ipv6(&ip, payload).unwrap())) == Some(header.checksum)
        }
        etherparse::TransportSlice::Icmpv4(icmp) => icmp.icmp_type().calc_checksum(icmp.payload()) == icmp.checksum(),
        etherparse::TransportSlice::Icmpv6(icmp) => {
            let ip = v6.unwrap();
            icmp.icmp_type().calc_checksum(ip.source, ip.destination, icmp.payload()).unwrap() == icmp.checksum()
        }
        other => panic!("{other:?}"),
    }
}

struct Rig {
    stage: Stage,
    now: u64,
    /// The port that frames come in by.
    port: PortId,
    neighbours: Neighbours,
}

impl Rig {
    fn new(settings: Settings) -> Self {
        let neighbours = HashMap::from([("10.0.0.12".parse().unwrap(), [2, 0, 0, 0, 0, 12])]);
        let settings = Settings { max_flows: settings.max_flows.max(1), export: true, ..settings };
        Self {
            stage: Stage::new(settings).unwrap(),
            now: 0,
            port: PortId(1),
            neighbours: Neighbours::with_own(neighbours),
        }
    }

    /// A stage that accepts flows to port 80 and echos.
    fn filter() -> Self {
        Self::new(Settings { rules: to_port_80(), max_flows: 1000, ..Settings::default() })
    }

    fn burst(&mut self, frames: &[Vec<u8>]) -> Vec<Result<Vec<u8>, DropReason>> {
        let mut burst: Burst = frames.iter().map(|frame| Packet::from_frame(frame)).collect();
        let mut tracking = Tracking::default();
        self.stage.begin(&mut tracking, &burst, false, 1);
        self.stage.finish(&mut tracking, &mut burst, self.port, self.now, &self.neighbours);
        fates(&burst, &tracking)
    }

    fn send(&mut self, frame: &[u8]) -> Result<Vec<u8>, DropReason> {
        self.burst(&[frame.to_vec()]).remove(0)
    }

    /// Sends a frame that must come out as another, which is whole.
    #[track_caller]
    fn expect(&mut self, frame: &[u8], out: &[u8]) {
        let got = self.send(frame).unwrap();
        assert!(is_whole(&got));
        assert_eq!(got[12..], out[12..]);
    }

    #[track_caller]
    fn pass(&mut self, frame: &[u8]) {
        assert_eq!(self.send(frame).as_deref(), Ok(frame));
    }

    #[track_caller]
    fn refuse(&mut self, frame: &[u8], reason: DropReason) {
        assert_eq!(self.send(frame), Err(reason));
    }

    fn wait(&mut self, seconds: u64) {
        self.now += seconds;
        let all = self.stage.scan(self.now, 0);
        self.stage.scan(self.now, all);
    }

    fn views(&self) -> Vec<FlowView> {
        let (mut views, mut at) = (vec![], Some(0));
        while let Some(from) = at {
            at = self.stage.show(from, 3, |view| views.push(view));
        }
        views
    }

    fn states(&self) -> Vec<State> {
        self.views().iter().map(|view| view.state).collect()
    }
}

/// The fates of the frames of a burst.
fn fates(burst: &Burst, tracking: &Tracking) -> Vec<Result<Vec<u8>, DropReason>> {
    let fate = |(i, packet): (usize, &Packet)| match tracking.refused >> i & 1 {
        0 => Ok(packet.frame().to_vec()),
        _ => Err(tracking.reasons[i]),
    };
    burst.iter().enumerate().map(fate).collect()
}

fn to_port_80() -> Rules {
    let to = Rule { accept: true, ports: Some(80..=80), ..Rule::default() };
    let icmp = Rule { accept: true, protocols: vec![1, 58, 47], ..Rule::default() };
    Rules { rules: vec![to, icmp], accept_others: false }
}

const C: &str = "10.0.0.1:5000";
const S: &str = "10.0.0.9:80";
