//! DHCP without broadcast: a client's broadcast goes only to the server, and a server's broadcast only to the client that it is for.
//! Where no server is configured it is a broadcast like others, but still checked.
//!
//! Both are known by name, so only the Ethernet destination is replaced, and the frame is forwarded like any other: no address
//! of a relay, no state. The server sees the client's broadcast as it was sent, to its own MAC address; every server takes that.
//! Other hosts see nothing of it, so only the server can answer.
//!
//! | broadcast from a host port | at a trusted port | at another port |
//! |---|---|---|
//! | a request in the name of another MAC address | goes on: from a relay | `dhcp` |
//! | a request that claims to come through a relay: its address (giaddr), option 82, a relay message of DHCPv6 | goes on | `dhcp_relay` |
//! | a request above the port's rate | goes on | `dhcp_rate` |
//! | an answer | goes on | `dhcp_server`, unless it is from the configured server, or no trust is configured |
//! | anything else at these ports | `dhcp` | `dhcp` |
//!
//! **To the server itself.** What a host sends to the MAC address of its server, and there to the ports of DHCP servers, is checked
//! like a broadcast, and takes from the same rate: otherwise a host that makes up clients would address the server directly.
//!
//! **The address that a client asks for** is noted at a port that learns, like one that ARP claims ([`crate::learn`]): a host that
//! sends nothing but DHCP is then reachable. The source is the client's request ([`claimed_address`]), not the server's
//! acknowledgement. The request passes here anyway, at the port where the host is. The acknowledgement comes in at the server's port,
//! often of another switch, which does not know where the host is; and at the host's own switch it is a frame that leaves, which
//! workers do not read. A request is trusted no more than ARP: it takes no address that another name has. If the server refuses one,
//! another request follows, and the address in that one counts then.
//!
//! Requests of DHCPv6 have no MAC address that could be checked, and count as requests. How else a client identifies itself (option 61) is
//! between it and the server.
//!
//! Sources: RFC 951, RFC 2131 (sections 2, 4.1, 4.3.2), RFC 2132 (8.5, 9.1, 9.3, 9.6), RFC 3046 (2.1), RFC 8415 (7.2, 7.3). Limits: names must be MAC
//! addresses; a relay needs a port that is trusted; DHCP in fragments is malformed here. Cost: one comparison for a frame to one host,
//! at a port that is not trusted and has a server; none otherwise.

use crate::budget::Budget;
use crate::counters::DropReason;
use crate::mac::Mac;
use crate::parse::{Network, network};
use netio::Packet;
use std::net::Ipv4Addr;
use std::time::Instant;

/// Requests that a port may send a second, with each worker, unless it is configured otherwise. A client sends about four to
/// get an address.
pub const REQUESTS_PER_SECOND: u32 = 10;
/// The burst is this many times larger, so that all hosts behind an access point may come back at one time.
pub const BURST: u32 = 5;

const UDP: u8 = 17;
const UDP_HEADER: usize = 8;
const SERVER: [u8; 2] = 67_u16.to_be_bytes();
const CLIENT: [u8; 2] = 68_u16.to_be_bytes();
const SERVER_V6: [u8; 2] = 547_u16.to_be_bytes();
/// The relay messages of DHCPv6 (RFC 8415, 7.3).
const RELAY_FORWARD: u8 = 12;
const RELAY_REPLY: u8 = 13;

/// Limits on what hosts of a port may do with DHCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The server that they may ask; none: their broadcasts go to all receivers.
    pub server: Option<Mac>,
    /// Whether a server or a relay is there, which speaks for others. None: not configured, and any server there may answer.
    pub trusted: Option<bool>,
    /// Requests a second, broadcast or to the server itself, with each worker; 0: none.
    pub requests_per_second: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { server: None, trusted: None, requests_per_second: REQUESTS_PER_SECOND }
    }
}

/// A port whose hosts may ask a server.
#[derive(Debug)]
pub(crate) struct Dhcp {
    settings: Settings,
    budget: Budget,
}

/// The kind of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Message {
    /// From a client, with its MAC address, and whether it claims to come through a relay.
    Request(Mac, bool),
    /// For a client.
    Answer(Mac),
    /// From a client of DHCPv6, or from a relay.
    RequestV6(bool),
    /// To one of these ports, but neither of these.
    Neither,
}

impl Dhcp {
    pub(crate) fn new(settings: Settings) -> Self {
        let most = settings.requests_per_second.saturating_mul(BURST);
        Self { settings, budget: Budget::with_burst(settings.requests_per_second, most, Instant::now()) }
    }

    /// Gives a DHCP broadcast the destination that it is for, if there is one. None: it is something else, or for all receivers.
    #[cold]
    pub(crate) fn direct(
        &mut self,
        packet: &mut Packet,
        type_at: usize,
        now: Instant,
    ) -> Option<Result<(), DropReason>> {
        let frame = packet.frame();
        let (message, source) = (read(frame, type_at)?, frame.get(6..12)?);
        let to = match self.judge(message, source.try_into().ok()?, now) {
            Ok(to) => to?,
            Err(reason) => return Some(Err(reason)),
        };
        packet.frame_mut()[..6].copy_from_slice(&to);
        Some(Ok(()))
    }

    /// The server, if what hosts send directly to it is checked.
    pub(crate) fn guarded(&self) -> Option<Mac> {
        self.settings.server.filter(|_| self.settings.trusted != Some(true))
    }

    /// Whether a frame to the server itself may go on.
    /// # Errors
    /// The reason to drop it.
    #[cold]
    pub(crate) fn admit(&mut self, frame: &[u8], type_at: usize, now: Instant) -> Result<(), DropReason> {
        let asked = datagram(frame, type_at).filter(Datagram::is_to_server);
        let Some(message) = asked.and_then(|datagram| datagram.message()) else { return Ok(()) };
        let source = frame.get(6..12).and_then(|mac| mac.try_into().ok()).ok_or(DropReason::Runt)?;
        self.judge(message, source, now).map(|_| ())
    }

    /// The only destination that it is for, if there is one.
    fn judge(&mut self, message: Message, source: Mac, now: Instant) -> Result<Option<Mac>, DropReason> {
        let Settings { server, trusted, .. } = self.settings;
        let is_trusted = trusted == Some(true);
        let mut may_ask = |now| if is_trusted || self.budget.take(now) { Ok(()) } else { Err(DropReason::DhcpRate) };
        match message {
            Message::Neither => Err(DropReason::Dhcp),
            Message::Request(client, _) if client != source && !is_trusted => Err(DropReason::Dhcp),
            Message::Request(_, true) | Message::RequestV6(true) if !is_trusted => Err(DropReason::DhcpRelay),
            Message::Request(..) => may_ask(now).map(|()| server),
            Message::RequestV6(_) => may_ask(now).map(|()| None),
            Message::Answer(client) => {
                let may_answer = match (server, trusted) {
                    (_, Some(true)) => true,
                    (Some(server), _) => server == source,
                    (None, said) => said.is_none(),
                };
                let is_led = server.is_some().then_some(client);
                if may_answer { Ok(is_led) } else { Err(DropReason::DhcpServer) }
            }
        }
    }
}

/// Whether a broadcast is a client's request.
pub(crate) fn is_request(frame: &[u8], type_at: usize) -> bool {
    matches!(read(frame, type_at), Some(Message::Request(..)))
}

/// The address that a client says in a DHCPREQUEST that it will have, or has: others will reach it there. None where the
/// client is not the sender of the frame, and where two servers might read two addresses: options that are cut, repeated, of unusual
/// length or in other fields (overload).
/// ```text
///  0 as above | 12 ciaddr: the client's address, when it renews | 28 its MAC address | 236 cookie | 240 options: code, length, value
///  option 53: the type of the message; 3: DHCPREQUEST | option 50: the address that is asked for | 0: padding | 255: the end
/// ```
pub(crate) fn claimed_address(frame: &[u8], type_at: usize) -> Option<Ipv4Addr> {
    const REQUEST: [u8; 1] = [3];
    let datagram = datagram(frame, type_at).filter(|datagram| !datagram.is_v6 && datagram.is_to_server())?;
    let Message::Request(client, false) = datagram.message()? else { return None };
    if frame.get(6..12)? != client {
        return None;
    }
    let message = datagram.message_bytes();
    let Options { kind, requested } = options(message)?;
    let own = Ipv4Addr::from(*message.get(12..)?.first_chunk::<4>()?);
    let address = match requested.map(Ipv4Addr::from) {
        Some(requested) if own.is_unspecified() || own == requested => requested,
        Some(_) => return None,
        None => own,
    };
    (kind == Some(REQUEST) && !address.is_unspecified()).then_some(address)
}

/// The options of a message that tell what a client asks for.
struct Options {
    kind: Option<[u8; 1]>,
    requested: Option<[u8; 4]>,
}

/// None: they can be read in more than one way, or not at all.
fn options(message: &[u8]) -> Option<Options> {
    const COOKIE_AT: usize = 236;
    const COOKIE: [u8; 4] = [99, 130, 83, 99];
    const PAD: u8 = 0;
    const REQUESTED: u8 = 50;
    const OVERLOAD: u8 = 52;
    const KIND: u8 = 53;
    const END: u8 = 255;
    let mut rest = message.get(COOKIE_AT..)?.strip_prefix(&COOKIE)?;
    let (mut kind, mut requested) = (None, None);
    loop {
        rest = match *rest {
            [PAD, ref next @ ..] => next,
            [END, ..] => return Some(Options { kind, requested }),
            [code, len, ref next @ ..] => {
                let (value, next) = next.split_at_checked(len.into())?;
                match code {
                    KIND if kind.is_none() => kind = Some(value.try_into().ok()?),
                    REQUESTED if requested.is_none() => requested = Some(value.try_into().ok()?),
                    KIND | REQUESTED | OVERLOAD => return None,
                    _ => {}
                }
                next
            }
            [] | [_] => return None,
        };
    }
}

/// Whether a message claims to come through a relay: it has the address of one, or the relay option, in any field that has options.
/// ```text
///  24 giaddr: the address of the relay | 44 the server's name | 108 the file | 236 cookie | 240 options; option 82: of a relay
///  option 52: 1: the file has options as well, 2: the server's name, 3: both
/// ```
fn is_relayed(message: &[u8]) -> bool {
    const OF_RELAY: u8 = 82;
    const OVERLOAD: u8 = 52;
    let options = message.get(240..).unwrap_or_default();
    let more = option(options, OVERLOAD).and_then(<[u8]>::first).copied().unwrap_or(0);
    let of =
        |bit: u8, field: Option<&[u8]>| more & bit != 0 && field.is_some_and(|field| option(field, OF_RELAY).is_some());
    let has_address = message.get(24..28).is_some_and(|giaddr| giaddr != [0; 4]);
    let in_fields = of(1, message.get(108..236)) || of(2, message.get(44..108));
    has_address || option(options, OF_RELAY).is_some() || in_fields
}

/// The value of an option in a field, which is read until it ends or is malformed.
fn option(mut field: &[u8], wanted: u8) -> Option<&[u8]> {
    loop {
        field = match *field {
            [0, ref next @ ..] => next,
            [255, ..] | [] | [_] => return None,
            [code, len, ref next @ ..] => {
                let (value, next) = next.split_at_checked(len.into()).unwrap_or((next, &[]));
                if code == wanted {
                    return Some(value);
                }
                next
            }
        };
    }
}

/// A packet of UDP, or the first fragment of one.
struct Datagram<'a> {
    is_v6: bool,
    is_fragment: bool,
    from: [u8; 2],
    to: [u8; 2],
    /// With its header.
    bytes: &'a [u8],
}

fn datagram(frame: &[u8], type_at: usize) -> Option<Datagram<'_>> {
    let ip = network(frame, type_at).ok()?;
    let transport = ip.transport().ok().filter(|transport| transport.protocol == UDP && !transport.later_fragment)?;
    let (is_v6, is_fragment) = (matches!(ip, Network::V6(_)), transport.is_fragment);
    let &[a, b, c, d, ..] = transport.payload.get(..UDP_HEADER)? else { return None };
    Some(Datagram { is_v6, is_fragment, from: [a, b], to: [c, d], bytes: transport.payload })
}

impl<'a> Datagram<'a> {
    /// Whether it is to a port of DHCP servers.
    fn is_to_server(&self) -> bool {
        self.to == if self.is_v6 { SERVER_V6 } else { SERVER }
    }

    /// Its contents.
    fn message_bytes(&self) -> &'a [u8] {
        &self.bytes[UDP_HEADER..]
    }

    /// The kind of message, if it is of DHCP.
    /// ```text
    ///  0 operation: 1 of a client, 2 of a server | 1 hardware type | 2 length of its addresses | 28 the client's MAC address
    /// ```
    fn message(&self) -> Option<Message> {
        if self.is_v6 {
            let is_relayed = matches!(self.message_bytes().first(), Some(&(RELAY_FORWARD | RELAY_REPLY)));
            return self.is_to_server().then_some(Message::RequestV6(is_relayed));
        }
        let (is_of_client, is_of_server) = (self.is_to_server(), self.from == SERVER && self.to == CLIENT);
        if !(is_of_client || is_of_server) {
            return None;
        }
        let message = self.message_bytes();
        let client = message.get(28..34).and_then(|mac| Mac::try_from(mac).ok()).filter(|mac| mac[0] & 1 == 0);
        Some(match (message.get(..3), client) {
            // A later fragment that says otherwise is not seen here. No client sends so long a message.
            _ if self.is_fragment => Message::Neither,
            (Some([1, 1, 6]), Some(client)) if is_of_client => Message::Request(client, is_relayed(message)),
            (Some([2, 1, 6]), Some(client)) if !is_of_client => Message::Answer(client),
            _ => Message::Neither,
        })
    }
}

/// The kind of message in a frame, if it is of DHCP.
fn read(frame: &[u8], type_at: usize) -> Option<Message> {
    datagram(frame, type_at)?.message()
}

#[cfg(test)]
mod tests;
