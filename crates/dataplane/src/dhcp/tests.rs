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

/// The fate of a frame, and its destination afterwards.
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
    let mut frame = [&[0x33, 0x33, 0, 1, 0, 2][..], &CLIENT_MAC, &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 12, UDP, 1]].concat();
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
    let mut sends = |source, ports, operation, at| sent(&mut dhcp, &frame(source, ports, operation, CLIENT_MAC), at);
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
        // Another client could be named in any of its fragments.
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
