//! DHCP without broadcast: what a client says to everybody goes to the server alone, and what the server says to everybody goes
//! to the client that it is for. Where no server is configured it is a broadcast as others are, and checked all the same.
//!
//! Both are known by name, so only the Ethernet destination is replaced, and the frame is forwarded like any other: no address
//! of a relay, no state. The server sees the client's broadcast as it was sent, to its own MAC address; every server takes that.
//! Other hosts see nothing of it, so no stranger can answer.
//!
//! | to everybody, from a host port | at a port that is trusted | at another |
//! |---|---|---|
//! | a request in the name of another MAC address | goes on: of a relay | `dhcp` |
//! | a request that says that a relay passed it on: its address (giaddr), option 82, a message of relays of DHCPv6 | goes on | `dhcp_relay` |
//! | a request, and the port has sent as many as it may | goes on | `dhcp_rate` |
//! | an answer | goes on | `dhcp_server`, unless it is from the server that is configured, or nobody said what is trusted |
//! | anything else at these ports | `dhcp` | `dhcp` |
//!
//! **To the server itself.** What a host sends to the MAC address of its server, and there to the ports where servers hear, is checked
//! as if it were to everybody, and takes from the same rate: otherwise who makes up clients would write the server's address instead.
//!
//! **The address that a client asks for** is noted at a port that learns, as one that ARP claims is ([`crate::learn`]): a host that
//! says nothing but DHCP is reached then. It is the client's request that says it ([`claimed_address`]), not the server's
//! acknowledgement. The request passes here anyway, at the port where the host is. The acknowledgement comes in at the server's port,
//! often of another switch, which does not know where the host is; and at the host's own switch it is a frame that leaves, which no
//! worker reads. A request is believed no more than ARP is: it takes no address that another name has. One that the server refuses
//! is followed by another request, and the address of that one counts then.
//!
//! Requests of DHCPv6 have no MAC address that could be checked, and count as requests. How else a client calls itself (option 61) is
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

/// Requests that a port may send a second, with each worker, unless it is configured otherwise. A client sends some four to
/// get an address.
pub const REQUESTS_PER_SECOND: u32 = 10;
/// And at once, for each of these: so all behind an access point may come back at one time.
pub const BURST: u32 = 5;

const UDP: u8 = 17;
const UDP_HEADER: usize = 8;
const SERVER: [u8; 2] = 67_u16.to_be_bytes();
const CLIENT: [u8; 2] = 68_u16.to_be_bytes();
const SERVER_V6: [u8; 2] = 547_u16.to_be_bytes();
/// Messages of relays of DHCPv6 (RFC 8415, 7.3).
const RELAY_FORWARD: u8 = 12;
const RELAY_REPLY: u8 = 13;

/// What hosts of a port may do with DHCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The server that they may ask; none: whoever hears what they say to everybody.
    pub server: Option<Mac>,
    /// Whether a server or a relay is there, which speaks for others. None: nobody said it, and whoever is there may answer.
    pub trusted: Option<bool>,
    /// Requests a second, to everybody and to the server itself, with each worker; 0: none.
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

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Message {
    /// Of a client, by its MAC address, and whether it says that a relay passed it on.
    Request(Mac, bool),
    /// For a client.
    Answer(Mac),
    /// Of a client of DHCPv6, or of a relay.
    RequestV6(bool),
    /// At one of these ports, and neither.
    Neither,
}

impl Dhcp {
    pub(crate) fn new(settings: Settings) -> Self {
        let most = settings.requests_per_second.saturating_mul(BURST);
        Self { settings, budget: Budget::with_burst(settings.requests_per_second, most, Instant::now()) }
    }

    /// Gives a broadcast of DHCP the destination that it is for, if there is one. None: it is something else, or for whoever hears it.
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

    /// The server, if what hosts send to it alone is checked.
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

    /// The only one that it is for, if there is one.
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

/// Whether a frame to everybody is a client's request.
pub(crate) fn is_request(frame: &[u8], type_at: usize) -> bool {
    matches!(read(frame, type_at), Some(Message::Request(..)))
}

/// The address that a client says in a DHCPREQUEST that it is going to have, or has: others will reach it by that. None where the
/// client is not the sender of the frame, and where two servers might read two addresses: options that are cut, repeated, of another
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

/// The options of a message that say what a client asks for.
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

/// Whether a message says that a relay passed it on: it has the address of one, or the option of relays, in any field that has options.
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

/// The value of an option in a field, which is read until it ends or makes no sense.
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
    /// Whether it is to the port where servers hear.
    fn is_to_server(&self) -> bool {
        self.to == if self.is_v6 { SERVER_V6 } else { SERVER }
    }

    /// What is in it.
    fn message_bytes(&self) -> &'a [u8] {
        &self.bytes[UDP_HEADER..]
    }

    /// What it is, if it is of DHCP.
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
            // What a later fragment says instead is not seen here. No client sends so long a message.
            _ if self.is_fragment => Message::Neither,
            (Some([1, 1, 6]), Some(client)) if is_of_client => Message::Request(client, is_relayed(message)),
            (Some([2, 1, 6]), Some(client)) if !is_of_client => Message::Answer(client),
            _ => Message::Neither,
        })
    }
}

/// What a frame is, if it is of DHCP.
fn read(frame: &[u8], type_at: usize) -> Option<Message> {
    datagram(frame, type_at)?.message()
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

    const OTHER: Mac = [2, 0, 0, 0, 0, 7];

    /// What becomes of a frame, and its destination then.
    fn sent(dhcp: &mut Dhcp, frame: &[u8], now: Instant) -> (Option<Result<(), DropReason>>, Mac) {
        let mut packet = Packet::from_frame(frame);
        let done = dhcp.direct(&mut packet, shim::AT, now);
        (done, packet.frame().first_chunk().copied().unwrap_or_default())
    }

    #[test]
    fn each_side_is_led_to_the_other_and_nobody_speaks_for_others() {
        let now = Instant::now();
        let settings = Settings { server: Some(SERVER_MAC), requests_per_second: 1000, ..Settings::default() };
        for trusted in [None, Some(false)] {
            let mut dhcp = Dhcp::new(Settings { trusted, ..settings });
            let mut to = |frame: &[u8]| match sent(&mut dhcp, frame, now) {
                (Some(done), to) => Some(done.map(|()| to)),
                (None, _) => None,
            };
            let request = frame(CLIENT_MAC, [CLIENT, SERVER], 1, CLIENT_MAC);
            assert_eq!(to(&request), Some(Ok(SERVER_MAC)));
            assert_eq!(to(&frame(SERVER_MAC, [SERVER, CLIENT], 2, CLIENT_MAC)), Some(Ok(CLIENT_MAC)));
            let wrong = Some(Err(DropReason::Dhcp));
            assert_eq!(to(&frame(CLIENT_MAC, [CLIENT, SERVER], 1, OTHER)), wrong, "in the name of another client");
            let stranger = frame(OTHER, [SERVER, CLIENT], 2, CLIENT_MAC);
            assert_eq!(to(&stranger), Some(Err(DropReason::DhcpServer)), "a stranger that answers");
            assert_eq!(to(&frame(CLIENT_MAC, [CLIENT, SERVER], 2, CLIENT_MAC)), wrong, "an answer to the server");
            assert_eq!(to(&frame(SERVER_MAC, [SERVER, CLIENT], 2, [0xff; 6])), wrong, "a client that is everybody");
            assert_eq!(to(&frame(CLIENT_MAC, [CLIENT, [0, 53]], 1, CLIENT_MAC)), None, "something else");
            for len in 0..request.len() {
                let cut = to(&request[..len]);
                assert!(cut.is_none() || cut == wrong || cut == Some(Ok(SERVER_MAC)), "{len}");
            }
        }
    }

    #[test]
    fn without_a_server_it_is_checked_and_goes_to_whoever_hears_it() {
        let now = Instant::now();
        let answer = frame(OTHER, [SERVER, CLIENT], 2, CLIENT_MAC);
        let forged = frame(CLIENT_MAC, [CLIENT, SERVER], 1, OTHER);
        let refused = |reason| (Some(Err(reason)), [0xff; 6]);
        let goes_on = (None, [0xff; 6]);
        for trusted in [None, Some(false)] {
            let mut dhcp = Dhcp::new(Settings { trusted, ..Settings::default() });
            assert_eq!(sent(&mut dhcp, &frame(CLIENT_MAC, [CLIENT, SERVER], 1, CLIENT_MAC), now), goes_on);
            assert_eq!(sent(&mut dhcp, &forged, now), refused(DropReason::Dhcp));
            let answered = if trusted.is_none() { goes_on } else { refused(DropReason::DhcpServer) };
            assert_eq!(sent(&mut dhcp, &answer, now), answered, "{trusted:?}");
        }
    }

    #[test]
    fn where_a_relay_is_trusted_it_speaks_for_others_as_often_as_it_likes() {
        let now = Instant::now();
        for server in [None, Some(SERVER_MAC)] {
            let settings = Settings { server, trusted: Some(true), requests_per_second: 0 };
            let mut dhcp = Dhcp::new(settings);
            let expected = |to| server.map_or((None, [0xff; 6]), |_| (Some(Ok(())), to));
            for _ in 0..100 {
                let relayed = frame(OTHER, [SERVER, SERVER], 1, CLIENT_MAC);
                assert_eq!(sent(&mut dhcp, &relayed, now), expected(SERVER_MAC));
            }
            let answer = frame(OTHER, [SERVER, CLIENT], 2, CLIENT_MAC);
            assert_eq!(sent(&mut dhcp, &answer, now), expected(CLIENT_MAC));
        }
    }

    /// A solicitation of DHCPv6.
    fn solicitation() -> Vec<u8> {
        let mut frame =
            [&[0x33, 0x33, 0, 1, 0, 2][..], &CLIENT_MAC, &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 12, UDP, 1]].concat();
        frame.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        frame.extend([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2]);
        frame.extend([2, 34, 2, 35, 0, 12, 0, 0, 1, 0, 0, 1]);
        frame
    }

    #[test]
    fn a_port_asks_as_often_as_it_may() {
        let now = Instant::now();
        let second = std::time::Duration::from_secs(1);
        let mut dhcp = Dhcp::new(Settings { server: Some(SERVER_MAC), ..Settings::default() });
        let mut sends =
            |source, ports, operation, at| sent(&mut dhcp, &frame(source, ports, operation, CLIENT_MAC), at);
        for _ in 0..REQUESTS_PER_SECOND * BURST {
            assert_eq!(sends(CLIENT_MAC, [CLIENT, SERVER], 1, now), (Some(Ok(())), SERVER_MAC));
        }
        let too_many = (Some(Err(DropReason::DhcpRate)), [0xff; 6]);
        assert_eq!(sends(CLIENT_MAC, [CLIENT, SERVER], 1, now), too_many);
        assert_eq!(sends(SERVER_MAC, [SERVER, CLIENT], 2, now), (Some(Ok(())), CLIENT_MAC), "answers are not counted");
        let asked = (0..100).filter(|_| sends(CLIENT_MAC, [CLIENT, SERVER], 1, now + second).0 == Some(Ok(())));
        assert_eq!(asked.count(), REQUESTS_PER_SECOND as usize);

        // Both protocols together.
        let mut dhcp = Dhcp::new(Settings { requests_per_second: 1, ..Settings::default() });
        let got: Vec<_> = (0..=BURST).map(|_| sent(&mut dhcp, &solicitation(), now).0).collect();
        assert_eq!(got[..BURST as usize], [None; BURST as usize]);
        assert_eq!(got.last(), Some(&Some(Err(DropReason::DhcpRate))));
        assert_eq!(sent(&mut dhcp, &frame(CLIENT_MAC, [CLIENT, SERVER], 1, CLIENT_MAC), now), too_many);
    }

    #[test]
    fn what_is_sent_to_the_server_itself_is_checked_and_takes_from_the_same_rate() {
        let now = Instant::now();
        let to_server = |source, ports, operation, client| {
            let mut frame = frame(source, ports, operation, client);
            frame[..6].copy_from_slice(&SERVER_MAC);
            frame
        };
        let request = to_server(CLIENT_MAC, [CLIENT, SERVER], 1, CLIENT_MAC);
        for trusted in [None, Some(false)] {
            let settings = Settings { server: Some(SERVER_MAC), trusted, requests_per_second: 2 };
            let mut dhcp = Dhcp::new(settings);
            assert_eq!(dhcp.guarded(), Some(SERVER_MAC));
            let mut admit = |frame: &[u8]| dhcp.admit(frame, shim::AT, now);
            for _ in 0..100 {
                let forged = to_server(CLIENT_MAC, [CLIENT, SERVER], 1, OTHER);
                assert_eq!(admit(&forged), Err(DropReason::Dhcp), "what is dropped takes nothing");
                assert_eq!(admit(&to_server(CLIENT_MAC, [SERVER, SERVER], 1, OTHER)), Err(DropReason::Dhcp), "a relay");
                assert_eq!(admit(&to_server(CLIENT_MAC, [CLIENT, SERVER], 2, CLIENT_MAC)), Err(DropReason::Dhcp));
                assert_eq!(admit(&to_server(CLIENT_MAC, [CLIENT, [0, 53]], 1, OTHER)), Ok(()), "something else");
            }
            // In any of its fragments somebody else could be named.
            for (flags, refused) in [([0x20, 0], Err(DropReason::Dhcp)), ([0, 2], Ok(()))] {
                let mut fragment = request.clone();
                fragment[20..22].copy_from_slice(&flags);
                assert_eq!(admit(&fragment), refused, "nothing comes of a later one alone");
            }
            for len in 0..request.len() {
                assert!(matches!(admit(&request[..len]), Ok(()) | Err(DropReason::Dhcp)), "{len}");
            }
            for _ in 0..5 {
                assert_eq!(admit(&request), Ok(()));
            }
            let to_all = frame(CLIENT_MAC, [CLIENT, SERVER], 1, CLIENT_MAC);
            for _ in 0..5 {
                assert_eq!(sent(&mut dhcp, &to_all, now), (Some(Ok(())), SERVER_MAC));
            }
            assert_eq!(dhcp.admit(&request, shim::AT, now), Err(DropReason::DhcpRate));
            assert_eq!(sent(&mut dhcp, &to_all, now).0, Some(Err(DropReason::DhcpRate)));
            let mut solicitation = solicitation();
            solicitation[..6].copy_from_slice(&SERVER_MAC);
            assert_eq!(dhcp.admit(&solicitation, shim::AT, now), Err(DropReason::DhcpRate), "both protocols together");
        }
        for (server, trusted) in [(None, None), (None, Some(false)), (Some(SERVER_MAC), Some(true))] {
            assert_eq!(Dhcp::new(Settings { server, trusted, ..Settings::default() }).guarded(), None);
        }
    }

    const COOKIE: [u8; 4] = [99, 130, 83, 99];
    const REQUEST: [u8; 3] = [53, 1, 3];
    const ASKED: [u8; 6] = [50, 4, 10, 0, 0, 7];

    /// A message of the client with its own address and these options.
    fn with_options(own: [u8; 4], options: &[&[u8]]) -> Vec<u8> {
        let mut frame = frame(CLIENT_MAC, [CLIENT, SERVER], 1, CLIENT_MAC);
        let message = 14 + 20 + UDP_HEADER;
        frame[message + 12..message + 16].copy_from_slice(&own);
        frame.resize(message + 236, 0);
        frame.extend(COOKIE);
        options.iter().for_each(|option| frame.extend(*option));
        let len = frame.len() as u16 - 14;
        frame[16..18].copy_from_slice(&len.to_be_bytes());
        frame
    }

    #[test]
    fn a_host_does_not_say_that_it_is_behind_a_relay() {
        let now = Instant::now();
        let (message, end) = (14 + 20 + UDP_HEADER, &[255][..]);
        let plain = with_options([0; 4], &[&REQUEST, &ASKED, end]);
        let mut with_address = plain.clone();
        with_address[message + 24..message + 28].copy_from_slice(&[10, 0, 0, 254]);
        let with_option = with_options([0; 4], &[&REQUEST, &[82, 4, 1, 2, 0, 5], end]);
        let mut in_file = with_options([0; 4], &[&REQUEST, &[52, 1, 1], end]);
        let mut named = plain.clone();
        named[message + 108..message + 112].copy_from_slice(b"R.01");
        in_file[message + 108..message + 116].copy_from_slice(&[0, 12, 1, 7, 82, 1, 9, 255]);
        let mut of_v6 = solicitation();
        let at = of_v6.len() - 4;
        of_v6[at] = RELAY_FORWARD;
        for trusted in [None, Some(false), Some(true)] {
            let mut dhcp = Dhcp::new(Settings { server: None, trusted, requests_per_second: 1000 });
            for (what, frame) in
                [("giaddr", &with_address), ("option 82", &with_option), ("in the file", &in_file), ("DHCPv6", &of_v6)]
            {
                let expected = (trusted != Some(true)).then_some(Err(DropReason::DhcpRelay));
                assert_eq!(sent(&mut dhcp, frame, now).0, expected, "{what}, {trusted:?}");
            }
            assert_eq!(sent(&mut dhcp, &plain, now).0, None);
            assert_eq!(sent(&mut dhcp, &named, now).0, None, "the name of a file is no option");
            assert_eq!(sent(&mut dhcp, &solicitation(), now).0, None);
        }
        assert_eq!(claimed_address(&with_option, shim::AT), None, "nobody is believed who says so");
        for len in 0..with_option.len() {
            sent(&mut Dhcp::new(Settings::default()), &with_option[..len], now);
        }
    }

    #[test]
    fn a_client_claims_the_address_that_it_asks_for_and_nothing_that_could_be_read_otherwise() {
        let claims = |own: [u8; 4], options: &[&[u8]]| claimed_address(&with_options(own, options), shim::AT);
        let (seven, none) = (Some(Ipv4Addr::new(10, 0, 0, 7)), [0; 4]);
        let end: &[u8] = &[255];
        assert_eq!(claims(none, &[&REQUEST, &ASKED, end]), seven);
        assert_eq!(claims(none, &[&ASKED, &[0, 0], &[12, 2, 50, 53], &REQUEST, end, &ASKED]), seven, "in any order");
        assert_eq!(claims([10, 0, 0, 7], &[&REQUEST, end]), seven, "it renews");
        assert_eq!(claims([10, 0, 0, 7], &[&REQUEST, &ASKED, end]), seven);
        assert_eq!(claims([10, 0, 0, 8], &[&REQUEST, &ASKED, end]), None, "two addresses");
        assert_eq!(claims(none, &[&REQUEST, end]), None, "no address");
        assert_eq!(claims(none, &[&REQUEST, &[50, 4, 0, 0, 0, 0], end]), None);
        for kind in [0, 1, 2, 4, 5, 6, 7, 8] {
            assert_eq!(claims(none, &[&[53, 1, kind], &ASKED, end]), None, "another message: {kind}");
        }
        assert_eq!(claims(none, &[&ASKED, end]), None, "BOOTP");
        // Of other lengths, twice, in other fields, and without an end.
        for wrong in [&[50, 0][..], &[50, 3, 10, 0, 0], &[50, 5, 10, 0, 0, 7, 0], &ASKED, &REQUEST, &[52, 1, 1]] {
            let (request, asked): (&[u8], &[u8]) = (&REQUEST, &ASKED);
            for options in [[wrong, request, asked, end], [request, asked, wrong, end]] {
                assert_eq!(claims(none, &options), None, "{options:?}");
            }
        }
        for wrong in [&[53, 0][..], &[53, 2, 3, 0], &[53, 3, 3, 3, 3]] {
            assert_eq!(claims(none, &[wrong, &ASKED, end]), None, "{wrong:?}");
        }
        assert_eq!(claims(none, &[&REQUEST, &ASKED]), None);
        assert_eq!(claims(none, &[&REQUEST, &ASKED, &[12, 200, 1]]), None);

        let whole = with_options(none, &[&REQUEST, &ASKED, end]);
        for len in 0..whole.len() {
            assert_eq!(claimed_address(&whole[..len], shim::AT), None, "cut in the frame: {len}");
            let mut cut = whole.clone();
            cut[16..18].copy_from_slice(&(len as u16).to_be_bytes());
            assert!(len >= whole.len() - 14 || claimed_address(&cut, shim::AT).is_none(), "cut in the packet: {len}");
        }
        // In the name of another client, by another one, to a client, and with another cookie.
        let message = 14 + 20 + UDP_HEADER;
        for at in [message + 33, 11, 37, message + 239, message] {
            let mut other = whole.clone();
            other[at] ^= 1;
            assert_eq!(claimed_address(&other, shim::AT), None, "{at}");
        }
    }
}
