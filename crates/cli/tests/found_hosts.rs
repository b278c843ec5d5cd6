//! A network of which nothing is declared but the ports of its switches. Hosts with Linux's own network stack reach each other and
//! move, and an attacker among them fills a quota.

#[path = "found_hosts/addresses.rs"]
mod addresses;
#[path = "found_hosts/mistakes.rs"]
mod mistakes;
#[path = "found_hosts/multicast.rs"]
mod multicast;
#[path = "found_hosts/routers.rs"]
mod routers;
mod support;

use addresses::every_address_of_a_host_is_answered_and_one_that_moves_is_at_its_new_host;
use api::v1;
use mistakes::{
    a_loop_through_a_bridge_at_two_host_ports_is_told_and_others_are_served,
    two_hosts_with_one_address_are_told_and_others_are_served,
    two_networks_joined_by_mistake_are_told_and_exchange_nothing,
};
use multicast::what_a_host_joined_follows_it_and_ends_when_it_is_gone_without_a_word;
use netio::backend::af_packet::{AfPacket, Options};
use netio::testkit::{enter_namespace, in_namespace, tool_or_skip};
use netio::{Burst, Device, Packet};
use routers::hosts_get_their_addresses_by_a_router_and_hear_no_other_one;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpStream, UdpSocket};
use std::process::{Command, Output};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use support::{Client, PATIENCE, Process, Site, in_step};

netio::tests! {
    namespaces: [
        hosts_are_found_reach_each_other_move_and_cannot_be_flooded_away,
        hosts_get_their_addresses_by_dhcp_and_nobody_else_hears_of_it,
        a_host_that_says_nothing_is_forgotten_and_one_that_speaks_is_not,
        what_a_host_says_to_everybody_is_heard_by_its_tenant_alone,
        a_multicast_is_heard_by_hosts_that_joined_its_group_and_by_no_other,
        what_a_host_joined_follows_it_and_ends_when_it_is_gone_without_a_word,
        two_hosts_with_one_address_are_told_and_others_are_served,
        a_loop_through_a_bridge_at_two_host_ports_is_told_and_others_are_served,
        two_networks_joined_by_mistake_are_told_and_exchange_nothing,
        hosts_get_their_addresses_by_a_router_and_hear_no_other_one,
        every_address_of_a_host_is_answered_and_one_that_moves_is_at_its_new_host,
    ],
    anywhere: []
}

/// Names that a port may learn.
const QUOTA: u32 = 4;

type Job = Box<dyn FnOnce() + Send>;

/// A host: a namespace with one interface, whose other end is the port of a switch.
struct Host {
    jobs: mpsc::Sender<Job>,
    thread: i32,
}

impl Host {
    fn new() -> Self {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (ready, is_ready) = mpsc::channel();
        std::thread::spawn(move || {
            ready.send(enter_namespace().expect("root can make a network namespace")).unwrap();
            queue.into_iter().for_each(|job| job());
        });
        Self { jobs, thread: is_ready.recv().unwrap() }
    }

    fn inside<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> R {
        let (done, is_done) = mpsc::channel();
        self.jobs.send(Box::new(move || done.send(work()).unwrap())).unwrap();
        is_done.recv().unwrap()
    }

    /// Plugs it in at a port, with an address.
    fn plug(&self, port: &str, index: u8) {
        self.plug_bare(port, index);
        self.inside(move || ip(&format!("addr add 10.0.0.{index}/24 dev eth")));
    }

    /// Plugs it in at a port, without an address.
    fn plug_bare(&self, port: &str, index: u8) {
        ip(&format!("link add {port} mtu 1500 type veth peer name eth netns {}", self.thread));
        ip(&format!("link set {port} up"));
        self.inside(move || {
            ip(&format!("link set eth address 02:00:00:00:00:{index:02x}"));
            ip("link set eth up");
        });
    }

    /// Whether another host answers within a second.
    fn reaches(&self, index: u8) -> bool {
        self.pings(format!("10.0.0.{index}"), "1")
    }

    /// Whether another host answers, on however slow a machine.
    fn is_answered_by(&self, index: u8) -> bool {
        self.pings(format!("10.0.0.{index}"), "30")
    }

    /// Says something to another host, and waits little for an answer.
    fn speaks_to(&self, index: u8) {
        _ = self.pings(format!("10.0.0.{index}"), "0.2");
    }

    /// Whether an address of either family answers one request within so many seconds.
    fn pings(&self, address: String, seconds: &'static str) -> bool {
        self.inside(move || run("ping", &["-n", "-c", "1", "-W", seconds, &address]).status.success())
    }

    /// Asks another host until it answers. A host is found by what it says, so the other one asks as well.
    #[track_caller]
    fn reaches_soon(&self, own: u8, other: &Host, index: u8) {
        let began = Instant::now();
        while !(other.reaches(own) & self.reaches(index)) {
            assert!(began.elapsed() < PATIENCE, "no answer from 10.0.0.{index}");
        }
    }

    /// Sends frames, one after the other.
    fn sends(&self, frames: impl Iterator<Item = Vec<u8>> + Send + 'static) {
        self.inside(move || {
            let mut device = AfPacket::open("eth", &Options { ring_frames: 256, ..Options::default() }).unwrap();
            let (mut pool, mut burst) = (netio::Pool::new(64, 2048), Burst::new());
            let mut frames = frames.peekable();
            while let Some(frame) = frames.next() {
                burst.push(Packet::from_frame(&frame));
                while burst.is_full() || (frames.peek().is_none() && !burst.is_empty()) {
                    device.tx_burst(&mut pool, &mut burst).unwrap();
                }
            }
        });
    }

    /// Looks for DHCP servers, `n` times by broadcast and `n` times at the server itself, each time in its own name and in one that
    /// no host has.
    fn floods(&self, index: u8, n: u32) {
        let discover = move |to: [u8; 6], client: [u8; 6]| {
            let source = [2, 0, 0, 0, 0, index];
            let mut message = [&[1, 1, 6, 0][..], &[0; 24], &client].concat();
            message.resize(236, 0);
            message.extend([99, 130, 83, 99, 53, 1, 1, 255]);
            let len = 28 + message.len() as u16;
            let mut ip = [&[0x45, 0][..], &len.to_be_bytes(), &[0, 0, 0, 0, 64, 17, 0, 0], &[0; 4], &[255; 4]].concat();
            let checksum = !netio::checksum::fold(netio::checksum::sum(&ip));
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            let udp = [&[0, 68, 0, 67][..], &(len - 20).to_be_bytes(), &[0, 0]].concat();
            [&to[..], &source, &[8, 0], &ip, &udp, &message].concat()
        };
        let frames = (0..n).flat_map(move |i| {
            let [a, b, c, d] = i.to_be_bytes();
            let clients = [[2, 0, 0, 0, 0, index], [6, 0, a, b, c, d]];
            [[0xff; 6], [2, 0, 0, 0, 0, 0x63]]
                .map(|to| clients.map(|client| discover(to, client)))
                .into_iter()
                .flatten()
        });
        self.sends(frames);
    }

    /// Sends frames from made-up addresses.
    fn make_up(&self, n: u32) {
        let frames = (0..n).map(|i| {
            let source = [&[0x06, 0][..], &i.to_be_bytes()].concat();
            // An ARP request that says it comes from 10.0.0.1.
            let arp: &[u8] = &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1];
            [&[0xff; 6][..], &source, arp, &source, &[10, 0, 0, 1], &[0; 6], &[10, 0, 0, 2]].concat()
        });
        self.sends(frames);
    }
}

/// A program, also one of administrators.
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()));
    command
}

fn run(program: &str, arguments: &[&str]) -> Output {
    command(program).args(arguments).output().unwrap_or_else(|error| panic!("{program} is not installed: {error}"))
}

fn ip(arguments: &str) {
    let output = run("ip", &arguments.split_whitespace().collect::<Vec<_>>());
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A switch as a process; `ports` have hosts and learn.
fn switch(site: &Site, name: &str, extra: &str, trunk: &str, ports: &[(u16, &str)]) -> Process {
    let state = site.path(name);
    std::fs::create_dir(&state).unwrap();
    let mut toml = format!(
        "name = '{name}'\ncontroller = '{}'\nstate_dir = '{}'\nlearn = 'accept'\n{extra}\n\
         [[port]]\nid = 9\ndevice = '{trunk}'\nrole = 'trunk'\n",
        site.url,
        state.display()
    );
    for (id, device) in ports {
        toml += &format!("[[port]]\nid = {id}\ndevice = '{device}'\nrole = 'host'\nlearn_max = {QUOTA}\n");
    }
    let path = site.path(&format!("{name}.toml"));
    std::fs::write(&path, toml).unwrap();
    Process::spawn(&["switch", "--config", path.to_str().unwrap()])
}

/// A controller that accepts what it finds, and the cable between two switches that are yet to start.
struct Network {
    client: Client,
    runtime: tokio::runtime::Runtime,
    _controller: Process,
    site: Site,
}

fn with_controller(value_mode: &str, test: impl FnOnce(&Network) + Send) {
    with_sections(value_mode, "", test);
}

/// As [`with_controller`], with these sections in its configuration.
fn with_sections(value_mode: &str, sections: &str, test: impl FnOnce(&Network) + Send) {
    in_namespace(|| {
        ip("link set lo up");
        ip("link add t1 mtu 1504 type veth peer name t2 mtu 1504");
        ip("link set t1 up");
        ip("link set t2 up");
        let settings =
            format!("value_mode = \"{value_mode}\"\nauto_links = \"on\"\nauto_switches = \"on\"\n{sections}");
        let site = Site::new(&settings);
        let _controller = site.start();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let client = runtime.block_on(site.client());
        test(&Network { client, runtime, _controller, site });
    });
}

fn hosts_are_found_reach_each_other_move_and_cannot_be_flooded_away() {
    with_controller("egress", |Network { site, runtime, client, .. }| {
        let [one, two, attacker] = [(); 3].map(|()| Host::new());
        one.plug("p1", 1);
        two.plug("p2", 2);
        attacker.plug("p3", 3);
        let _switches = [
            switch(site, "s1", "", "t1", &[(1, "p1"), (3, "p3"), (4, "p4")]),
            switch(site, "s2", "", "t2", &[(2, "p2")]),
        ];
        soon(runtime, "both switches are in step", async || in_step(client).await == 2);

        one.reaches_soon(1, &two, 2);
        attacker.reaches_soon(3, &one, 1);
        assert_eq!(place(runtime, client, 1), "s1.1 10.0.0.1");
        assert_eq!(place(runtime, client, 2), "s2.2 10.0.0.2");

        // A million made-up names, all with the address of another, become at most a quota, and nobody loses anything.
        attacker.make_up(1_000_000);
        soon(runtime, "the quota is full", async || learnt(client).await.len() as u32 == 2 + QUOTA);
        assert!(two.is_answered_by(1), "the hosts that are known are served meanwhile");
        assert_eq!(place(runtime, client, 1), "s1.1 10.0.0.1");
        let list = runtime.block_on(client.clone().list_hosts(v1::ListHostsRequest {})).unwrap().into_inner();
        let learnt_at =
            |port: u32| list.hosts.iter().find(|host| (&*host.switch, host.port) == ("s1", port)).unwrap().learnt;
        assert_eq!((learnt_at(1), learnt_at(3)), (1, QUOTA));
        let said = |words: &str| list.troubles.iter().any(|trouble| trouble.contains(words));
        assert!(said("s1:3 has 4 learnt names, which is the maximum"), "{:?}", list.troubles);
        let printed = site.fibula(&["host", "seen"]);
        let text = String::from_utf8(printed.stdout).unwrap();
        assert!(text.lines().any(|line| line.contains("02:00:00:00:00:02") && line.contains("s2:2")), "{text}");

        // What was made up is forgotten, and what sends comes back.
        soon(runtime, "what was on its way is forgotten, too", async || {
            assert!(site.fibula(&["host", "forget", "s1.3"]).status.success());
            learnt(client).await.len() == 2
        });
        attacker.reaches_soon(3, &one, 1);
        assert!(place(runtime, client, 3).starts_with("s1.3 "), "its address follows with its next ARP packet");
        assert_eq!(site.fibula(&["host", "forget", "nobody"]).status.code(), Some(4));

        // The second host is plugged in elsewhere, and is found there as soon as it says anything.
        two.inside(|| ip("link del eth"));
        two.plug("p4", 2);
        two.reaches_soon(2, &one, 1);
        assert_eq!(place(runtime, client, 2), "s1.4 10.0.0.2");
    });
}

/// A process of a host; killed when dropped.
struct Service(std::process::Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server of DHCP at a host, which does this.
fn dnsmasq(site: &Site, host: &Host, does: &'static [&str]) -> Service {
    let leases = format!("--dhcp-leasefile={}", site.path("leases").display());
    host.inside(move || {
        let arguments = ["--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--interface=eth"];
        let mut server = command("dnsmasq");
        server.args(arguments).args(["--bind-interfaces", "--user=root", "--pid-file=", &leases]).args(does);
        Service(server.spawn().expect("dnsmasq-base is installed"))
    })
}

fn hosts_get_their_addresses_by_dhcp_and_nobody_else_hears_of_it() {
    if tool_or_skip("dnsmasq", "dnsmasq-base").is_none() || tool_or_skip("udhcpc", "udhcpc").is_none() {
        return;
    }
    with_controller("egress", |Network { site, runtime, client, .. }| {
        // The server is declared: it says nothing by itself, and its address is nobody else's.
        for words in ["switch add s1", "host add dhcp s1:5", "name add 02:00:00:00:00:63 dhcp --ip 10.0.0.99"] {
            assert!(site.fibula(&words.split(' ').collect::<Vec<_>>()).status.success(), "{words}");
        }
        let [one, two, server, other] = [(); 4].map(|()| Host::new());
        one.plug_bare("p1", 1);
        two.plug_bare("p2", 2);
        server.plug("p9", 99);
        other.plug("p3", 3);
        let extra = "dhcp_server = '02:00:00:00:00:63'";
        let _switches = [
            switch(site, "s1", &format!("{extra}\nstatus = '{STATUS}'"), "t1", &[(1, "p1"), (3, "p3"), (5, "p9")]),
            switch(site, "s2", extra, "t2", &[(2, "p2")]),
        ];
        soon(runtime, "both switches are in step", async || in_step(client).await == 2);
        const RANGE: &str = "--dhcp-range=10.0.0.100,10.0.0.150,255.255.255.0,1h";
        let _dnsmasq = dnsmasq(site, &server, &["--dhcp-authoritative", "--no-ping", RANGE]);
        let mut ears =
            other.inside(|| AfPacket::open("eth", &Options { ring_frames: 256, ..Options::default() }).unwrap());
        let script = site.path("bound");
        std::fs::write(&script, "#!/bin/sh\n[ \"$1\" != bound ] || ip addr replace $ip/24 dev $interface\n").unwrap();
        run("chmod", &["+x", script.to_str().unwrap()]);
        let lease = |host: &Host, more: &'static [&str]| {
            let script = script.display().to_string();
            host.inside(move || {
                let mut arguments = vec!["-i", "eth", "-n", "-q", "-f", "-t", "60", "-T", "1", "-s", &script];
                arguments.extend(more);
                let got = run("udhcpc", &arguments);
                assert!(got.status.success(), "{}", String::from_utf8_lossy(&got.stderr));
                let shown = String::from_utf8(run("ip", &["-4", "-o", "addr", "show", "dev", "eth"]).stdout).unwrap();
                let address = shown.split_whitespace().find(|word| word.starts_with("10.0.0.")).unwrap();
                address.trim_start_matches("10.0.0.").trim_end_matches("/24").parse::<u8>().unwrap()
            })
        };
        // The second client wants the answers as broadcasts.
        let addresses = [lease(&one, &[]), lease(&two, &["-B"])];
        assert!(addresses.iter().all(|address| (100..=150).contains(address)) && addresses[0] != addresses[1]);
        // They have said nothing but DHCP, and are known with the addresses that they asked for.
        for (index, place_of_name) in [(1, "s1.1"), (2, "s2.2")] {
            let expected = format!("{place_of_name} 10.0.0.{}", addresses[usize::from(index) - 1]);
            soon(runtime, "the address is known", async || place_of(client, index).await == expected);
        }
        // The other one announces nothing, and is reached.
        let began = Instant::now();
        while !one.reaches(addresses[1]) {
            assert!(began.elapsed() < PATIENCE, "no answer from 10.0.0.{}", addresses[1]);
        }
        assert!(two.is_answered_by(addresses[0]));

        let (mut pool, mut burst) = (netio::Pool::new(64, 2048), Burst::new());
        while ears.rx_burst(&mut pool, &mut burst).unwrap() > 0 {
            for packet in burst.drain(..) {
                let is_of_dhcp =
                    packet.frame().get(34..38).is_some_and(|ports| ports.contains(&67) && ports.contains(&68));
                assert!(!is_of_dhcp, "a stranger hears what a client or the server says: {:02x?}", packet.frame());
            }
        }

        // Whoever asks for others, and as often as it can, of everybody and of the server itself, is not heard, and takes nothing.
        other.reaches_soon(3, &one, addresses[0]);
        other.floods(3, 100);
        soon(runtime, "what is made up is dropped", async || dropped("dhcp") >= 200);
        soon(runtime, "what is too often is dropped", async || dropped("dhcp_rate") >= 100);
        let again = lease(&two, &[]);
        assert_eq!(again, addresses[1], "another one keeps its lease");
        assert!(one.is_answered_by(again) && two.is_answered_by(addresses[0]));
    });
}

fn a_host_that_says_nothing_is_forgotten_and_one_that_speaks_is_not() {
    with_controller("port", |Network { site, runtime, client, .. }| {
        let [speaks, silent] = [(); 2].map(|()| Host::new());
        speaks.plug("p1", 1);
        silent.plug("p2", 2);
        // No host says anything by itself.
        for host in [&speaks, &silent] {
            host.inside(|| _ = std::fs::write("/proc/sys/net/ipv6/conf/eth/disable_ipv6", "1"));
        }
        let ports = [(1, "p1"), (2, "p2")];
        let _switch = switch(site, "s1", "learn_forget_s = 10", "t1", &ports);
        soon(runtime, "the switch is in step", async || in_step(client).await == 1);
        speaks.reaches_soon(1, &silent, 2);
        soon(runtime, "both are known", async || learnt(client).await.len() == 2);
        let began = Instant::now();
        let names = || runtime.block_on(learnt(client)).into_iter().map(|name| name.name).collect::<Vec<_>>();
        // One asks for somebody who is not there, once a second.
        while names().len() == 2 {
            assert!(began.elapsed() < PATIENCE, "nobody is forgotten");
            assert!(!speaks.reaches(77));
        }
        assert_eq!(names(), ["02:00:00:00:00:01"]);
    });
}

fn what_a_host_says_to_everybody_is_heard_by_its_tenant_alone() {
    with_sections("egress", "[groups]\ntenants = [0]\n", |Network { site, runtime, client, .. }| {
        let stranger = "name add 02:00:00:00:00:03 stranger --ip 10.0.0.3 --tenant 9";
        for words in ["switch add s2", "host add stranger s2:3", stranger] {
            assert!(site.fibula(&words.split(' ').collect::<Vec<_>>()).status.success(), "{words}");
        }
        let [one, two, stranger] = [(1, "p1"), (2, "p2"), (3, "p3")].map(|(index, port)| {
            let host = Host::new();
            host.plug(port, index);
            host.inside(|| ip("route add 224.0.0.0/4 dev eth"));
            host
        });
        let _switches =
            [switch(site, "s1", "", "t1", &[(1, "p1")]), switch(site, "s2", "", "t2", &[(2, "p2"), (3, "p3")])];
        soon(runtime, "both switches are in step", async || in_step(client).await == 2);
        one.reaches_soon(1, &two, 2);
        // Sockets stay in the namespace where they were made.
        let listen = |host: &Host, index: u8| {
            host.inside(move || {
                let ears = UdpSocket::bind("0.0.0.0:5353").unwrap();
                ears.join_multicast_v4(&Ipv4Addr::new(224, 0, 0, 251), &Ipv4Addr::new(10, 0, 0, index)).unwrap();
                ears.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
                ears
            })
        };
        let (ears, other) = (listen(&two, 2), listen(&stranger, 3));
        let mouth = one.inside(|| UdpSocket::bind("10.0.0.1:0").unwrap());
        mouth.set_broadcast(true).unwrap();
        for to in ["10.0.0.255:5353", "255.255.255.255:5353", "224.0.0.251:5353"] {
            let began = Instant::now();
            let mut heard = [0; 64];
            // The members are told within a second.
            while {
                mouth.send_to(to.as_bytes(), to).unwrap();
                !ears.recv(&mut heard).is_ok_and(|n| heard[..n] == *to.as_bytes())
            } {
                assert!(began.elapsed() < PATIENCE, "nobody hears {to}");
            }
        }
        // An address that no name has is asked for: the host that has it answers for itself.
        two.inside(|| ip("addr add 10.0.0.77/24 dev eth"));
        let began = Instant::now();
        while !one.reaches(77) {
            assert!(began.elapsed() < PATIENCE, "nobody answers for 10.0.0.77");
        }
        other.set_nonblocking(true).unwrap();
        let heard = other.recv(&mut [0; 64]);
        assert!(heard.is_err(), "another tenant hears it: {heard:?}");
    });
}

/// What comes to a host, whether it wants it or not.
struct Ears(AfPacket, netio::Pool);

impl Ears {
    fn of(host: &Host) -> Self {
        let open = || AfPacket::open("eth", &Options { ring_frames: 256, ..Options::default() }).unwrap();
        Self(host.inside(open), netio::Pool::new(64, 2048))
    }

    /// Adds the frames that came since, up to one with this text. Whether that came.
    fn hears(&mut self, mark: &str, heard: &mut Vec<Vec<u8>>) -> bool {
        let (mut burst, began) = (Burst::new(), Instant::now());
        while began.elapsed() < Duration::from_millis(500) {
            self.0.rx_burst(&mut self.1, &mut burst).unwrap();
            for packet in burst.drain(..) {
                heard.push(packet.frame().to_vec());
                self.1.put(packet);
            }
            if heard.iter().any(|frame| has(frame, mark)) {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    /// Waits until it hears broadcasts, and nothing of what is said to the group.
    fn end_of_group(&mut self, mouth: &UdpSocket) {
        let began = Instant::now();
        for i in 0.. {
            assert!(began.elapsed() < PATIENCE, "it hears of the group, or nothing");
            let (data, mark) = (format!("to the group {i};"), format!("to everybody {i};"));
            mouth.send_to(data.as_bytes(), "239.1.2.3:7000").unwrap();
            mouth.send_to(mark.as_bytes(), "10.0.0.255:7000").unwrap();
            // They take the same way, so what is sent first comes first.
            let mut heard = Vec::new();
            if self.hears(&mark, &mut heard) && !heard.iter().any(|frame| has(frame, &data)) {
                return;
            }
            #[expect(clippy::disallowed_methods, reason = "it says less than its port may")]
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn has(frame: &[u8], text: &str) -> bool {
    frame.windows(text.len()).any(|part| part == text.as_bytes())
}

fn a_multicast_is_heard_by_hosts_that_joined_its_group_and_by_no_other() {
    let sections = "[groups]\ntenants = [0]\nquery_interval_s = 2\n";
    with_sections("egress", sections, |Network { site, runtime, client, .. }| {
        let [one, two, three] = [(1, "p1"), (2, "p2"), (3, "p3")].map(|(index, port)| {
            let host = Host::new();
            host.plug(port, index);
            host.inside(|| ip("route add 224.0.0.0/4 dev eth"));
            host
        });
        let extra = "group_frames_per_second = 10000";
        let _switches =
            [switch(site, "s1", extra, "t1", &[(1, "p1")]), switch(site, "s2", "", "t2", &[(2, "p2"), (3, "p3")])];
        soon(runtime, "both switches are in step", async || in_step(client).await == 2);
        one.reaches_soon(1, &two, 2);
        one.reaches_soon(1, &three, 3);
        let (v4, v6) = (Ipv4Addr::new(239, 1, 2, 3), "ff15::7".parse::<Ipv6Addr>().unwrap());
        let (ears, ears6) = two.inside(move || {
            let ears = UdpSocket::bind("0.0.0.0:7000").unwrap();
            ears.join_multicast_v4(&v4, &Ipv4Addr::new(10, 0, 0, 2)).unwrap();
            let ears6 = UdpSocket::bind("[::]:7001").unwrap();
            ears6.join_multicast_v6(&v6, 0).unwrap();
            for ears in [&ears, &ears6] {
                ears.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            }
            (ears, ears6)
        });
        let (mouth, mouth6) =
            one.inside(|| (UdpSocket::bind("10.0.0.1:0").unwrap(), UdpSocket::bind("[::]:0").unwrap()));
        mouth.set_broadcast(true).unwrap();
        // While nobody knows what hosts want, each hears all.
        let mut others = Ears::of(&three);
        others.end_of_group(&mouth);
        for (mouth, ears, to) in [(&mouth, &ears, "239.1.2.3:7000"), (&mouth6, &ears6, "[ff15::7]:7001")] {
            let (began, mut heard) = (Instant::now(), [0; 64]);
            while {
                // Until the host has an address of IPv6, it cannot send.
                let _ = mouth.send_to(to.as_bytes(), to);
                !ears.recv(&mut heard).is_ok_and(|n| heard[..n] == *to.as_bytes())
            } {
                assert!(began.elapsed() < PATIENCE, "nobody hears {to}");
            }
        }
        let list = |arguments: &[&str]| String::from_utf8(site.fibula(arguments).stdout).unwrap();
        let text = list(&["group", "list"]);
        for group in ["239.1.2.3", "ff15::7"] {
            let is_of =
                |line: &&str| line.contains(group) && line.contains("02:00:00:00:00:02") && line.contains("s2:2");
            assert_eq!(text.lines().filter(is_of).count(), 1, "{text}");
        }
        let frame = "01005e010203 020000000001 0800 4500001c00000000401100000a000001ef010203 1b581b5800080000";
        let traced = list(&["trace", frame]);
        assert!(traced.contains("02:00:00:00:00:02") && !traced.contains("02:00:00:00:00:03"), "{traced}");

        // It leaves, and soon hears nothing of the group, though it hears what is to everybody.
        ears.leave_multicast_v4(&v4, &Ipv4Addr::new(10, 0, 0, 2)).unwrap();
        Ears::of(&two).end_of_group(&mouth);
        soon(runtime, "the list has the other group alone", async || {
            let list = client.clone().list_groups(v1::ListGroupsRequest::default()).await.unwrap().into_inner();
            list.subscribed.len() == 1 && list.subscribed[0].group == "ff15::7"
        });
        let (mut heard, began) = (Vec::new(), Instant::now());
        while {
            mouth.send_to(b"the last", "10.0.0.255:7000").unwrap();
            !others.hears("the last", &mut heard)
        } {
            assert!(began.elapsed() < PATIENCE, "it does not hear what is to everybody");
        }
        for text in ["239.1.2.3:7000", "[ff15::7]", "to the group"] {
            assert!(!heard.iter().any(|frame| has(frame, text)), "it hears {text}");
        }
    });
}

fn soon<F: Future<Output = bool>>(runtime: &tokio::runtime::Runtime, what: &str, ask: impl FnMut() -> F) {
    runtime.block_on(support::eventually(what, ask));
}

async fn learnt(client: &Client) -> Vec<v1::NameRecord> {
    let request = v1::ListNamesRequest { learnt: true, ..v1::ListNamesRequest::default() };
    client.clone().list_names(request).await.unwrap().into_inner().names
}

/// Host and address of the name of a host.
fn place(runtime: &tokio::runtime::Runtime, client: &Client, index: u8) -> String {
    runtime.block_on(place_of(client, index))
}

/// As [`place`].
async fn place_of(client: &Client, index: u8) -> String {
    let name = format!("02:00:00:00:00:{index:02x}");
    let request = v1::GetNameRequest { name, ..Default::default() };
    let record = client.clone().get_name(request).await.unwrap().into_inner();
    assert!(record.learnt_ms > 0);
    format!("{} {}", record.host, record.ip)
}

/// Where the first switch shows what it counts, in the network of a test.
const STATUS: &str = "127.0.0.1:9101";

/// How many frames the first switch has dropped for a reason.
fn dropped(reason: &str) -> u64 {
    let mut stream = TcpStream::connect(STATUS).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let metric = format!("fibula_frames_dropped_total{{reason=\"{reason}\"}} ");
    let count = text.lines().find_map(|line| line.strip_prefix(&metric));
    count.unwrap_or_else(|| panic!("no {metric}in {text}")).parse().unwrap()
}
