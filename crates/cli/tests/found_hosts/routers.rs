//! Hosts of IPv6: a router tells them the prefix, a server of DHCPv6 hears them, and hosts do not hear
//! others that claim to be routers.

use super::{Host, Network, STATUS, dnsmasq, dropped, in_step, ip, run, soon, switch, with_sections};
use crate::PATIENCE;
use netio::checksum::{fold, sum};
use std::io;
use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};

/// The address that a host makes of a prefix.
fn address(prefix: &str, index: u8) -> String {
    format!("{prefix}:ff:fe00:{index:x}")
}

fn octets(address: &str) -> [u8; 16] {
    address.parse::<Ipv6Addr>().unwrap().octets()
}

/// A router advertisement of a host with the prefix fd00:bad::/64.
fn rogue(index: u8) -> Vec<u8> {
    let (source, prefix) = ([2, 0, 0, 0, 0, index], octets("fd00:bad::"));
    // Hop limit, flags and lifetime of the router; times; its MAC address; the prefix, on the link and for addresses.
    let mut message = [&[134, 0, 0, 0, 64, 0, 7, 8][..], &[0; 8], &[1, 1], &source, &[3, 4, 64, 0xc0]].concat();
    message.extend([0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    message.extend(prefix);
    let len = message.len() as u16;
    let mut packet =
        [&[0x60, 0, 0, 0][..], &len.to_be_bytes(), &[58, 255], &octets("fe80::bad"), &octets("ff02::1"), &message]
            .concat();
    let checksum = !fold(sum(&packet[8..]) + u64::from(len) + 58);
    packet[42..44].copy_from_slice(&checksum.to_be_bytes());
    [&[0x33, 0x33, 0, 0, 0, 1][..], &source, &[0x86, 0xdd], &packet].concat()
}

/// Asks servers of DHCPv6 for an address, and waits a while for what one says: its kind.
fn solicit(index: u8) -> io::Result<u8> {
    let shown = String::from_utf8(run("ip", &["-o", "link", "show", "eth"]).stdout).unwrap();
    let interface = shown.split(':').next().and_then(|index| index.parse().ok()).unwrap();
    let socket = UdpSocket::bind("[::]:546")?;
    socket.set_read_timeout(Some(Duration::from_millis(500)))?;
    // A solicitation; who asks, by its MAC address; how long it asks; an address that is not temporary.
    let mut message = vec![1, 0, 0, index, 0, 1, 0, 10, 0, 3, 0, 1, 2, 0, 0, 0, 0, index];
    message.extend([0, 8, 0, 2, 0, 0]);
    message.extend([0, 3, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    socket.send_to(&message, SocketAddrV6::new("ff02::1:2".parse().unwrap(), 547, 0, interface))?;
    let mut heard = [0; 1500];
    socket.recv(&mut heard)?;
    Ok(heard[0])
}

pub(super) fn hosts_get_their_addresses_by_a_router_and_hear_no_other_one() {
    const ADVERTISE: u8 = 2;
    with_sections("egress", "[groups]\ntenants = [0]\n", |Network { site, runtime, client, .. }| {
        let [one, two, router, attacker] = [(1, "p1"), (2, "p2"), (0x63, "p9"), (3, "p3")].map(|(index, port)| {
            let host = Host::new();
            host.plug_bare(port, index);
            host
        });
        router.inside(|| ip("addr add fd00:7::1/64 dev eth nodad"));
        let at_router =
            format!("status = '{STATUS}'\n[[port]]\nid = 5\ndevice = 'p9'\nrole = 'host'\nra_trusted = true");
        let _switches =
            [switch(site, "s1", &at_router, "t1", &[(1, "p1"), (3, "p3")]), switch(site, "s2", "", "t2", &[(2, "p2")])];
        soon(runtime, "both switches are in step", async || in_step(client).await == 2);
        const RANGE: &str = "--dhcp-range=fd00:7::100,fd00:7::1ff,slaac,64,1h";
        let _dnsmasq = dnsmasq(site, &router, &["--enable-ra", RANGE]);
        // A host hears others, and is heard, once it is known; it asks for routers until then.
        let has = |host: &Host, address: String| {
            host.inside(move || {
                let shown = run("ip", &["-6", "-o", "addr", "show", "dev", "eth"]).stdout;
                String::from_utf8(shown).unwrap().contains(&address)
            })
        };
        for (host, index) in [(&one, 1), (&two, 2), (&attacker, 3)] {
            soon(runtime, "it has an address of the prefix", async || has(host, address("fd00:7:", index)));
        }
        let reaches = |host: &Host, index, seconds| host.pings(address("fd00:7:", index), seconds);
        let began = Instant::now();
        while !(reaches(&one, 2, "1") & reaches(&two, 1, "1")) {
            assert!(began.elapsed() < PATIENCE, "hosts do not reach each other");
        }
        for (host, index) in [(&one, 1), (&two, 2)] {
            let began = Instant::now();
            while host.inside(move || solicit(index)).ok() != Some(ADVERTISE) {
                assert!(began.elapsed() < PATIENCE, "no server of DHCPv6 answers {index}");
            }
        }

        let before = dropped("source_nd");
        attacker.sends((0..20).map(|_| rogue(3)));
        soon(runtime, "all of them are dropped", async || dropped("source_nd") >= before + 20);
        assert!(reaches(&one, 2, "30") && reaches(&two, 1, "30"));
        for (host, index) in [(&one, 1), (&two, 2)] {
            assert!(!has(host, address("fd00:bad:", index)) && has(host, address("fd00:7:", index)));
        }
    });
}
