//! Which files are taken, and what is said of the others.

use super::*;

const GOOD: &str = "name = 's1'\ncontroller = 'http://127.0.0.1:4600'\nstate_dir = '/tmp/s1'\n";
const PORT: &str = "[[port]]\nid = 1\ndevice = 'eth0'\nrole = 'host'\n";

#[test]
fn ports_and_defaults_are_read() {
    let config = Config::parse(&format!("{GOOD}{PORT}[[port]]\nid = 2\ndevice = 'eth1'\nrole = 'trunk'\n")).unwrap();
    assert_eq!((config.workers, config.fixed_offset), (1, None));
    let ports: Vec<_> = config.ports.iter().map(|p| (p.id.0, &p.device[..], p.role)).collect();
    assert_eq!(ports, [(1, "eth0", Role::Host), (2, "eth1", Role::Trunk)]);
}

#[test]
fn sources_are_checked_as_the_switch_or_the_port_says() {
    let port = |id, role, rest| format!("[[port]]\nid = {id}\ndevice = 'eth{id}'\nrole = '{role}'\n{rest}");
    let ports = [port(1, "host", ""), port(2, "host", "check_source = 'off'\n"), port(3, "trunk", "")].concat();
    for (setting, at_1) in [
        ("", CheckSource::Mac),
        ("check_source = 'mac'\n", CheckSource::Mac),
        ("check_source = 'mac+ip'\n", CheckSource::MacAndIp),
        ("check_source = 'off'\n", CheckSource::Off),
    ] {
        let config = Config::parse(&format!("{GOOD}{setting}{ports}")).unwrap();
        let checks: Vec<_> = config.ports.iter().map(|port| config.check_source_at(port)).collect();
        assert_eq!(checks, [at_1, CheckSource::Off, CheckSource::Off], "{setting}");
    }
}

#[test]
fn what_hosts_may_do_with_dhcp_is_as_the_switch_or_the_port_says() {
    let port = |id, role, rest| format!("[[port]]\nid = {id}\ndevice = 'eth{id}'\nrole = '{role}'\n{rest}");
    let ports = [port(1, "host", ""), port(2, "host", "dhcp_trusted = true\ndhcp_requests_per_second = 0\n")].concat();
    let of = |text: &str| {
        let config = Config::parse(&format!("{GOOD}{text}{ports}")).unwrap();
        config.ports.iter().map(|port| config.dhcp_at(port)).collect::<Vec<_>>()
    };
    let at_2 = dhcp::Settings { trusted: Some(true), requests_per_second: 0, ..dhcp::Settings::default() };
    assert_eq!(of(""), [dhcp::Settings::default(), at_2]);
    let server = Some([2, 0, 0, 0, 0, 0x63]);
    let all = "dhcp_trusted = false\ndhcp_requests_per_second = 3\ndhcp_server = '02:00:00:00:00:63'\n";
    let at_1 = dhcp::Settings { server, trusted: Some(false), requests_per_second: 3 };
    assert_eq!(of(all), [at_1, dhcp::Settings { server, ..at_2 }]);
    for key in [
        "dhcp_server = '02:00:00:00:00:63'",
        "dhcp_trusted = true",
        "dhcp_requests_per_second = 3",
        "ra_trusted = true",
    ] {
        let trunk = format!("{GOOD}[[port]]\nid = 1\ndevice = 'eth1'\nrole = 'trunk'\n{key}\n");
        let message = Config::parse(&trunk).unwrap_err();
        let key = key.split(' ').next().unwrap();
        assert!(message.contains(&format!("port 1 has {key}, which is for ports with role = \"host\"")), "{message}");
    }
}

#[test]
fn frames_to_unknown_names_go_where_the_file_says() {
    let ports = format!("{PORT}[[port]]\nid = 2\ndevice = 'eth1'\nrole = 'trunk'\n");
    let read = |text: &str| Config::parse(&format!("{GOOD}{text}{ports}")).and_then(|config| config.aliens());
    assert_eq!(read(""), Ok(Policy::Drop));
    assert_eq!(read("alien = 'punt'\nalien_port = 1\n"), Ok(Policy::Punt(PortId(1))));
    let servers = read("alien = 'spread'\n[[alien_server]]\nport = 1\n");
    assert_eq!(servers, Ok(Policy::Spread(vec![Server { port: PortId(1), weight: 1 }])));
    for (text, reason) in [
        ("alien = 'flood'\n", "`drop`, `punt`, `spread`"),
        ("alien = 'punt'\n", "needs alien_port"),
        ("alien = 'punt'\nalien_port = 2\n", "alien_port = 2 is not a [[port]] with role"),
        ("alien_port = 1\n", "alien_port is for alien"),
        ("alien = 'spread'\n", "needs servers; write [[alien_server]]"),
        ("alien = 'spread'\n[[alien_server]]\nport = 1\nweight = 0\n", "needs servers"),
        ("alien = 'spread'\n[[alien_server]]\nport = 2\n", "port = 2, which is not a [[port]]"),
        ("alien = 'spread'\n[[alien_server]]\nport = 1\nweight = 1001\n", "write 0 to 1000"),
        ("alien = 'spread'\n[[alien_server]]\nport = 1\n[[alien_server]]\nport = 1\n", "two [[alien_server]]"),
        ("[[alien_server]]\nport = 1\n", "is for alien = \"spread\""),
    ] {
        let message = read(text).unwrap_err();
        assert!(message.contains(reason), "{text}: {message}");
    }
}

#[test]
fn other_machines_are_reached_with_certificates_or_insecure_alone() {
    let open = GOOD.replace("127.0.0.1", "10.0.0.1") + "lookup = '0.0.0.0:4603'\nstatus = '10.0.0.2:4602'\n";
    Config::parse(&format!("{open}insecure = true\n")).unwrap();
    Config::parse(&format!("{}[tls]\ndir = '/etc/fibula/tls'\n", open.replace("http:", "https:"))).unwrap();
    Config::parse(&format!("{GOOD}status = '10.0.0.2:4602'\nmetrics_open = true\n{PORT}")).unwrap();
    Config::parse(&format!("{}{PORT}", GOOD.replace("127.0.0.1", "[::1]"))).unwrap();
    Config::parse(&format!("{}{PORT}", GOOD.replace(":4600", ":4600, http://127.0.0.1:4601"))).unwrap();
    let local = GOOD.replace("http://127.0.0.1:4600", "unix:/run/fibula/controller.sock");
    let listens = "lookup = 'unix:/run/fibula/s1.sock?mode=0666'\n";
    for tls in ["", "[tls]\ndir = '/etc/fibula/tls'\n"] {
        Config::parse(&format!("{local}{listens}{tls}")).unwrap();
    }
}

#[test]
fn devices_of_dpdk_have_arguments_and_a_binary_that_has_it() {
    let device = |name: &str| PORT.replace("eth0", &format!("{name},iface=eth0"));
    let other = device("net_tap0").replace("id = 1", "id = 2");
    let text = format!("{GOOD}driver = 'dpdk'\n{}{other}[dpdk]\neal = ['--no-huge']\n", device("net_tap1"));
    match Config::parse(&text) {
        Ok(config) => assert!(cfg!(feature = "dpdk") && config.dpdk.eal == ["--no-huge"]),
        Err(why) => assert!(!cfg!(feature = "dpdk") && why.contains("`make dpdk` builds one"), "{why}"),
    }
    let twice = Config::parse(&text.replace("net_tap1", "net_tap0")).unwrap_err();
    assert!(twice.contains("two ports have the device net_tap0"), "{twice}");
}

#[test]
fn wrong_files_are_refused_with_the_reason() {
    let cases = [
        (format!("{GOOD}worker = 2\n"), "worker"),
        (format!("{GOOD}workers = 0\n"), "workers"),
        (format!("{GOOD}{PORT}").replace("[[", "max_table_bytes = 9\n[["), "max_table_bytes = 9"),
        (format!("{GOOD}[subscriptions]\ngroups_per_name = 0\n"), "subscriptions.groups_per_name = 0 is out of range"),
        (format!("{GOOD}fixed_offset = 1451\n"), "fixed_offset = 1451 is out of range; write 0 to 1450"),
        (format!("{GOOD}fixed_offset = -1\n"), "fixed_offset"),
        (format!("{GOOD}ring_frames = 63\n"), "ring_frames = 63 is out of range; write 64 to 65536"),
        (format!("{GOOD}restart_wait_ms = 60001\n"), "restart_wait_ms = 60001 is out of range; write 0 to 60000"),
        (format!("{GOOD}{PORT}{PORT}"), "two ports have the id 1"),
        (format!("{GOOD}{PORT}{}", PORT.replace('1', "2")), "two ports have the device eth0"),
        (format!("{GOOD}{}", PORT.replace("eth0", "")), "not the name of an interface"),
        (format!("{GOOD}{}", PORT.replace("eth0", "eth0 eth1")), "not the name of an interface"),
        (format!("{GOOD}{}", PORT.replace("eth0", "a-name-of-16-byt")), "not the name of an interface"),
        (format!("{GOOD}{}", PORT.replace("host", "hosts")), "hosts"),
        (format!("{GOOD}{}", PORT.replace("= 1", "= 65536")), "65536"),
        (format!("{GOOD}driver = 'dpdk'\n{}", PORT.replace("eth0", "net null0")), "is not a device of DPDK"),
        (format!("{GOOD}{PORT}[dpdk]\neal = ['--no-huge']\n"), "no port with driver = \"dpdk\""),
        (format!("{GOOD}driver = 'dpdk'\n{PORT}[dpdk]\nmtu = 10\n"), "dpdk.mtu = 10"),
        (format!("{GOOD}check_source = 'ip'\n"), "mac+ip"),
        (format!("{GOOD}{}check_source = 'mac'\n", PORT.replace("host", "trunk")), "port 1 has check_source"),
        (format!("{GOOD}{}acl = '/etc/web.acl'\n", PORT.replace("host", "trunk")), "port 1 has acl"),
        (format!("{GOOD}{PORT}acl = '/nowhere/web.acl'\n"), "acl of port 1: cannot read /nowhere/web.acl"),
        (format!("{GOOD}[links]\nlldp = true\n"), "expected lldp = \"off\", \"send\", \"listen\" or \"both\""),
        (format!("{GOOD}{PORT}lldp = 'rx'\n"), "expected lldp = \"off\", \"send\", \"listen\" or \"both\""),
        (
            format!("{GOOD}{PORT}[links]\nlldp_interval_s = 0\n"),
            "links.lldp_interval_s = 0 is out of range; write 1 to 3600",
        ),
        (format!("{GOOD}lookup = 4602\n"), "lookup"),
        (format!("{GOOD}lookup = '[::1]:4602'\nstatus = '[::1]:4602'\n"), "the address [::1]:4602"),
        (format!("{GOOD}status = '[::1]:4602'\n[flow]\ncontrol = '[::1]:4602'\n"), "the address [::1]:4602"),
        (format!("{GOOD}{PORT}[[flow.rule]]\naction = 'drop'\nin_port = 7\n"), "in_port = 7"),
        (GOOD.to_owned(), "there is no [[port]]"),
        (format!("{GOOD}insecure = true\nlookup = '0.0.0.0:4602'\nstatus = '127.0.0.1:4602'\n"), "another port"),
        (GOOD.replace("/tmp/s1", ""), "state_dir is empty"),
        (GOOD.replace("s1'\nc", "'\nc"), "name"),
        (GOOD.replace("http://127.0.0.1:4600", "unix:north.sock"), "no absolute path"),
        (GOOD.replace(":4600", ":4600,127.0.0.1:4601"), "not a controller's URL"),
        (GOOD.replace("http://", ""), "not a controller's URL"),
        (GOOD.replace("http:", "ftp:"), "not a controller's URL"),
        (GOOD.replace("http:", "https:"), "fibula pki issue switch s1"),
        (GOOD.replace("127.0.0.1", "10.0.0.1"), "insecure = true"),
        (GOOD.replace("127.0.0.1", "controller.example"), "fibula pki issue switch s1"),
        (format!("{GOOD}[tls]\ndir = '/etc/fibula/tls'\n"), "write https://"),
        (format!("{GOOD}lookup = '0.0.0.0:4603'\n"), "fibula pki init"),
        (format!("{GOOD}status = '10.0.0.2:4602'\n"), "fibula pki init"),
        (format!("{GOOD}[flow]\ncontrol = '[::]:4604'\n"), "fibula pki init"),
        (format!("{GOOD}control = '0.0.0.0:4605'\n{PORT}"), "control = \"0.0.0.0:4605\" can be reached"),
        (format!("{GOOD}status = '[::1]:4605'\ncontrol = '[::1]:4605'\n"), "the address [::1]:4605"),
    ];
    for (text, reason) in cases {
        let message = Config::parse(&text).unwrap_err();
        assert!(message.contains(reason), "{text}: {message}");
    }
}

#[test]
fn lldp_is_spoken_as_the_switch_or_the_port_says() {
    let ports = format!("{PORT}[[port]]\nid = 2\ndevice = 'eth1'\nrole = 'trunk'\nlldp = 'off'\n");
    for (section, at_1) in [
        ("", Lldp::Listen),
        ("[links]\nlldp = 'off'\n", Lldp::Off),
        ("[links]\nlldp = 'send'\n", Lldp::Send),
        ("[links]\nlldp = 'both'\nlldp_interval_s = 3600\n", Lldp::Both),
    ] {
        let config = Config::parse(&format!("{GOOD}{ports}{section}")).unwrap();
        let manners: Vec<_> = config.ports.iter().map(|port| config.lldp_at(port)).collect();
        assert_eq!(manners, [at_1, Lldp::Off], "{section}");
    }
    assert!(Lldp::Both.sends() && Lldp::Both.listens() && !Lldp::Send.listens() && !Lldp::Listen.sends());
}
