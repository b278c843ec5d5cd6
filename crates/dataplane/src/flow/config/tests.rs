use super::*;

fn read(text: &str) -> Result<Settings, String> {
    let section: Section<String> = toml::from_str(text).map_err(|error| error.to_string())?;
    section.settings(&HashSet::from([PortId(1), PortId(2)]))
}

const WHOLE: &str = r#"
    default = "drop"
    max_flows = 5000
    control = "127.0.0.1:4604"
    export = "/tmp/flows.jsonl"
    [timeouts]
    established = 600
    udp_new = 5
    [[rule]]
    action = "accept"
    protocol = "tcp"
    destination = "10.0.0.100"
    ports = 80
    [[rule]]
    action = "accept"
    protocol = "icmp"
    in_port = 2
    [[rule]]
    action = "drop"
    source = "fd00::/8"
    [[virtual]]
    address = "10.0.0.100"
    port = 80
    mac = "02:00:00:00:01:00"
    servers = [{ address = "10.0.0.11", weight = 3 }, { address = "10.0.0.12", port = 8080, mac = "02:00:00:00:00:0c" }]
    [nat]
    inside = ["10.0.0.0/8"]
    addresses = ["192.0.2.1"]
    ports = "2000-2999"
"#;

#[test]
fn a_whole_section_is_read() {
    let settings = read(WHOLE).unwrap();
    assert_eq!(settings.max_flows, 5000);
    assert_eq!(settings.timeouts.of(State::Established), 600);
    assert_eq!(settings.timeouts.of(State::Closed), 10);
    assert_eq!(settings.rules.rules.len(), 3);
    assert_eq!(settings.rules.rules[0].ports, Some(80..=80));
    assert_eq!(settings.rules.rules[1].protocols, [1, 58]);
    let service = &settings.virtuals[0];
    let servers = service.balancer.members().map(|member| member.server);
    let servers: Vec<_> = servers.map(|s| (s.endpoint.port, s.weight, s.mac.is_some())).collect();
    assert_eq!(servers, [(80, 3, false), (8080, 1, true)]);
    let nat = settings.nat.as_ref().unwrap();
    assert_eq!(nat.ports, 2000..=2999);
    assert_eq!(nat.mac[..2], [0x02, 0xf1]);
    assert!(!settings.is_plain() && read("").unwrap().is_plain());
}

/// As in lists of rules.
#[test]
fn words_are_those_of_access_lists() {
    let protocols = |text: &str| read(&format!("[[rule]]\naction = 'drop'\n{text}\n")).unwrap().rules.rules.remove(0);
    assert_eq!(protocols("protocol = 'icmp'").protocols, [1, 58]);
    assert_eq!(protocols("protocol = 'icmpv6'\nsource = 'fd00::/8'").protocols, [58]);
    assert_eq!(protocols("protocol = 'SCTP'").protocols, [132]);
    assert!(protocols("protocol = 'any'").protocols.is_empty());
    let rule = protocols("source = 'any'\ndestination = '10.0.0.0 255.0.0.0'");
    assert_eq!((rule.source, rule.destination), (None, "10.0.0.0/8".parse().ok()));
    for text in ["02:00:00:00:00:0c", "0200.0000.000c", "02-00-00-00-00-0C", "02000000000c"] {
        assert_eq!(mac(text), Ok([2, 0, 0, 0, 0, 12]));
    }
    for text in ["+2:00:00:00:00:0c", "2:0:0:0:0:c", "01:00:00:00:00:0c", "00:00:00:00:00:00"] {
        assert!(mac(text).is_err(), "{text}");
    }
}

#[test]
fn a_check_is_read_with_its_defaults() {
    let check = |rest: &str| {
        let text = format!("[[virtual]]\naddress = '10.0.0.100'\nport = 80\n{rest}");
        read(&text).unwrap().virtuals[0].check.clone()
    };
    assert_eq!(check(""), None);
    let tcp = check("[virtual.check]\n").unwrap();
    assert_eq!((tcp.question, tcp.interval, tcp.timeout), (Question::Connect, secs(5), secs(2)));
    assert_eq!((tcp.rise, tcp.fall, tcp.ends_connections, tcp.port), (2, 3, false, None));
    let http = check(
        "[virtual.check]\nkind = 'http'\npath = '/healthz?x=1'\nstatus = '200-299'\nport = 8081\nhost = 'www.example.com'\n\
         interval_s = 1\ntimeout_s = 1\nrise = 1\nfall = 1\nwhen_down = 'end'\nsource = '10.0.0.250'\n",
    )
    .unwrap();
    let host = Some("www.example.com".to_owned());
    assert_eq!(http.question, Question::Http { path: "/healthz?x=1".to_owned(), host, status: 200..=299 });
    assert_eq!((http.port, http.ends_connections, http.source), (Some(8081), true, "10.0.0.250".parse().ok()));
}

#[test]
fn an_outside_address_may_be_forwarded_and_has_one_mac() {
    let text = "[[virtual]]\naddress = '192.0.2.2'\nport = 80\n\
                [nat]\ninside = ['10.0.0.0/8']\naddresses = ['192.0.2.1', '192.0.2.2']\n";
    let settings = read(text).unwrap();
    assert_eq!(settings.virtuals[0].mac, settings.nat.unwrap().mac);
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn wrong_sections_are_refused_with_the_reason() {
    let virtual_ = |rest: &str| format!("[[virtual]]\naddress = '10.0.0.1'\nport = 80\n{rest}\n");
    let nat = |rest: &str| format!("[nat]\n{rest}\n");
    let rule = |rest: &str| format!("[[rule]]\naction = 'drop'\n{rest}\n");
    for (text, reason) in [
        ("max_flows = 0".to_owned(), "max_flows = 0"),
        ("defaults = 'drop'".to_owned(), "defaults"),
        ("[timeouts]\nestablish = 3".to_owned(), "no state; the states are syn_sent"),
        ("[timeouts]\nudp_new = 16001".to_owned(), "1 to 16000"),
        (
            rule("protocol = 'tpc'"),
            "number 1: protocol = \"tpc\": `tpc` is not a protocol: write tcp, udp, icmp, icmpv6, sctp",
        ),
        (rule("protocol = 'icmp'\nsource = 'fd00::/8'"), "write icmpv6"),
        (rule("protocol = 'icmpv6'\ndestination = '10.0.0.1'"), "write icmp"),
        (rule("source = '10.0.0.0 0.255.255.255'"), "wildcard mask: write 255.0.0.0"),
        (rule("source = '10.0.0.1/8'"), "10.0.0.0/8"),
        (rule("source = '10.0.0.0/8'\ndestination = '::/0'"), "one version of IP"),
        (rule("in_port = 3"), "in_port = 3"),
        (rule("ports = '9-8'"), "write the smaller one first"),
        (rule("protocol = 'icmp'\nports = 8"), "leave the port out"),
        (rule("protocol = 47\nports = 8"), "remove ports"),
        (virtual_("protocol = 'icmp'"), "tcp or udp"),
        (virtual_("mac = '01:00:00:00:00:00'"), "02:00:00:00:00:01"),
        (virtual_("servers = [{ address = '::1' }]"), "both be IPv4 or both IPv6"),
        (virtual_("servers = [{ address = '10.0.0.2', weight = 1001 }]"), "weight 1001"),
        (virtual_("servers = [{ address = '10.0.0.2' }, { address = '10.0.0.2', port = 80 }]"), "twice"),
        (virtual_("") + &virtual_(""), "two sections"),
        (virtual_("") + &virtual_("protocol = 'udp'\nmac = '02:00:00:00:00:01'"), "same"),
        (virtual_("check = { interval_s = 0 }"), "check: interval_s = 0"),
        (virtual_("check = { timeout_s = 6 }"), "interval_s, which is 5"),
        (virtual_("check = { rise = 0 }"), "rise = 0"),
        (virtual_("check = { fall = 101 }"), "fall = 101"),
        (virtual_("check = { port = 0 }"), "port is 0"),
        (virtual_("check = { source = '::1' }"), "both be IPv4 or both IPv6"),
        (virtual_("check = { path = '/' }"), "kind = \"http\""),
        (virtual_("check = { kind = 'http', path = 'healthz' }"), "begin with /"),
        (virtual_("check = { kind = 'http', path = '/a b' }"), "escape spaces"),
        (virtual_("check = { kind = 'http', host = '' }"), "www.example.com"),
        (virtual_("check = { kind = 'http', status = '99-200' }"), "200-399"),
        (virtual_("check = { kind = 'icmp' }"), "icmp"),
        (virtual_("protocol = 'udp'\ncheck = {}"), "accept TCP"),
        (nat("inside = []\naddresses = ['192.0.2.1']"), "at least one entry"),
        (nat("inside = ['10.0.0.0/8']\naddresses = ['10.0.0.1']"), "in one of the inside prefixes"),
        (nat("inside = ['10.0.0.0/8']\naddresses = ['2001:db8::1']"), "IP version of"),
        (nat("inside = ['10.0.0.0/8']\naddresses = ['::1']"), "a loopback address"),
        (virtual_("servers = [{ address = '127.0.0.1' }]"), "a loopback address"),
        (virtual_("").replace("10.0.0.1", "::ffff:10.0.0.1"), "in the form of IPv6"),
        (nat("inside = ['10.0.0.0/8']\naddresses = ['192.0.2.1']\nports = '0-9'"), "begins with 0"),
        (nat("inside = ['fd00::/8']\naddresses = ['192.0.2.1']"), "IP version of"),
        (
            virtual_("mac = '02:00:00:00:00:01'") + &nat("inside = ['10.2.0.0/16']\naddresses = ['10.0.0.1']"),
            "give both the same mac",
        ),
    ] {
        let message = read(&text).unwrap_err();
        assert!(message.contains(reason), "{text}: {message}");
    }
}
