//! DHCP without broadcast: what a client says to everybody goes to the server alone, and what the server says to everybody goes
//! to the client that it is for.
//!
//! Both are known by name, so only the Ethernet destination is replaced, and the frame is forwarded like any other: no address
//! of a relay, no state. The server sees the client's broadcast as it was sent, to its own MAC address; every server takes that.
//! Other hosts see nothing of it, so no stranger can answer. A broadcast in the name of another MAC address, or one too many, is
//! dropped. What a client sends to the server's own address, and how else it calls itself there, is between the two.
//!
//! Sources: RFC 951, RFC 2131 (sections 2, 4.1). Limits: IPv4; names must be MAC addresses; a relay's own messages are unicast
//! and go their way.

use crate::budget::Budget;
use crate::counters::DropReason;
use crate::parse::{Network, network};
use crate::plane::Mac;
use netio::Packet;
use std::time::Instant;

/// Broadcasts of clients that a port may send a second, and at once. A client sends some four to get an address.
pub const REQUESTS_PER_SECOND: u32 = 50;

const UDP: u8 = 17;
const UDP_HEADER: usize = 8;
const SERVER: [u8; 2] = 67_u16.to_be_bytes();
const CLIENT: [u8; 2] = 68_u16.to_be_bytes();

/// A port whose hosts may ask a server.
#[derive(Debug)]
pub(crate) struct Dhcp {
    server: Mac,
    budget: Budget,
}

impl Dhcp {
    pub(crate) fn new(server: Mac) -> Self {
        Self { server, budget: Budget::full(REQUESTS_PER_SECOND, Instant::now()) }
    }

    /// Gives a broadcast of DHCP the destination that it is for. None: it is something else.
    #[cold]
    pub(crate) fn direct(
        &mut self,
        packet: &mut Packet,
        type_at: usize,
        now: Instant,
    ) -> Option<Result<(), DropReason>> {
        let to = destination(packet.frame(), type_at, self.server)?;
        let to = to.and_then(|to| {
            let may = to != self.server || self.budget.take(now);
            if may { Ok(to) } else { Err(DropReason::Dhcp) }
        });
        Some(to.map(|to| packet.frame_mut()[..6].copy_from_slice(&to)))
    }
}

/// Who a broadcast of DHCP is for.
/// ```text
///  0 operation: 1 of a client, 2 of a server | 1 hardware type | 2 length of its addresses | 28 the client's MAC address
/// ```
fn destination(frame: &[u8], type_at: usize, server: Mac) -> Option<Result<Mac, DropReason>> {
    let Ok(ip @ Network::V4(_)) = network(frame, type_at) else { return None };
    let transport = ip.transport().ok().filter(|transport| transport.protocol == UDP && !transport.later_fragment)?;
    let header = transport.payload.get(..UDP_HEADER)?;
    let (from, to) = (&header[..2], &header[2..4]);
    let (is_of_client, is_of_server) = (to == SERVER, from == SERVER && to == CLIENT);
    if !(is_of_client || is_of_server) {
        return None;
    }
    let message = &transport.payload[UDP_HEADER..];
    let source: Mac = frame.get(6..12)?.try_into().ok()?;
    let client = message.get(28..34).and_then(|mac| Mac::try_from(mac).ok()).filter(|mac| mac[0] & 1 == 0);
    Some(match (message.get(..3), client) {
        (Some([1, 1, 6]), Some(client)) if is_of_client && client == source => Ok(server),
        (Some([2, 1, 6]), Some(client)) if !is_of_client && source == server => Ok(client),
        _ => Err(DropReason::Dhcp),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shim;

    const SERVER_MAC: Mac = [2, 0, 0, 0, 0, 99];
    const CLIENT_MAC: Mac = [2, 0, 0, 0, 0, 1];

    fn frame(source: Mac, ports: [[u8; 2]; 2], operation: u8, client: Mac) -> Vec<u8> {
        let mut frame = vec![0xff; 6];
        frame.extend(source);
        frame.extend([8, 0]);
        let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, UDP, 0, 0];
        ip.extend([0; 4]);
        ip.extend([255; 4]);
        ip.extend(ports.concat());
        ip.extend([0; 4]);
        ip.extend([operation, 1, 6, 0]);
        ip.extend([0; 24]);
        ip.extend(client);
        ip.extend([0; 10]);
        let len = ip.len() as u16;
        ip[2..4].copy_from_slice(&len.to_be_bytes());
        frame.extend(ip);
        frame
    }

    #[test]
    fn each_side_is_led_to_the_other_and_nobody_speaks_for_others() {
        let to = |frame: &[u8]| destination(frame, shim::AT, SERVER_MAC);
        let request = frame(CLIENT_MAC, [CLIENT, SERVER], 1, CLIENT_MAC);
        assert_eq!(to(&request), Some(Ok(SERVER_MAC)));
        assert_eq!(to(&frame(SERVER_MAC, [SERVER, CLIENT], 2, CLIENT_MAC)), Some(Ok(CLIENT_MAC)));
        let wrong = Some(Err(DropReason::Dhcp));
        let other = [2, 0, 0, 0, 0, 7];
        assert_eq!(to(&frame(CLIENT_MAC, [CLIENT, SERVER], 1, other)), wrong, "in the name of another client");
        assert_eq!(to(&frame(other, [SERVER, CLIENT], 2, CLIENT_MAC)), wrong, "a stranger that answers");
        assert_eq!(to(&frame(CLIENT_MAC, [CLIENT, SERVER], 2, CLIENT_MAC)), wrong, "an answer to the server");
        assert_eq!(to(&frame(SERVER_MAC, [SERVER, CLIENT], 2, [0xff; 6])), wrong, "a client that is everybody");
        assert_eq!(to(&frame(CLIENT_MAC, [CLIENT, [0, 53]], 1, CLIENT_MAC)), None, "something else");
        for len in 0..request.len() {
            let cut = to(&request[..len]);
            assert!(cut.is_none() || cut == wrong || cut == Some(Ok(SERVER_MAC)), "{len}");
        }
    }

    #[test]
    fn a_port_asks_as_often_as_it_may() {
        let now = Instant::now();
        let mut dhcp = Dhcp::new(SERVER_MAC);
        let mut sends = |source, ports, operation| {
            let mut packet = Packet::from_frame(&frame(source, ports, operation, CLIENT_MAC));
            (dhcp.direct(&mut packet, shim::AT, now), <[u8; 6]>::try_from(&packet.frame()[..6]).unwrap())
        };
        for _ in 0..REQUESTS_PER_SECOND {
            assert_eq!(sends(CLIENT_MAC, [CLIENT, SERVER], 1), (Some(Ok(())), SERVER_MAC));
        }
        assert_eq!(sends(CLIENT_MAC, [CLIENT, SERVER], 1), (Some(Err(DropReason::Dhcp)), [0xff; 6]));
        assert_eq!(sends(SERVER_MAC, [SERVER, CLIENT], 2), (Some(Ok(())), CLIENT_MAC), "answers are not counted");
    }
}
