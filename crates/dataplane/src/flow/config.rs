//! The section `[flow]` of `switch.toml`.

use super::balance::{Balancer, MAX_SERVERS, MAX_VIRTUALS, Server};
use super::check::{Check, Question};
use super::nat::{MAX_ADDRESSES, NatSettings};
use super::packet::{Address, Endpoint, ICMP, ICMPV6, TCP, UDP};
use super::rules::{MAX_RULES, Prefix, Rule, Rules};
use super::state::{State, Timeouts};
use super::{Settings, Virtual};
use crate::mac::Mac;
use fib::action::PortId;
use fib::name::parse_mac;
use fib::rules::{Protocols, protocols};
use fib::text::address::{is_any, ports};
use fib::unicast::check_unicast;
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// The longest timeout, in seconds. Timers have 16 bits, and a quarter of their range is for entries that have ended
/// but are not removed yet.
const MAX_TIMEOUT_S: u16 = 16_000;
/// The most flows of a stage.
const MAX_FLOWS: u32 = 1 << 28;

/// The section as it is written in the file, with an address of a daemon. Unknown keys are errors.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section<A> {
    /// What happens to a new flow that no rule matches.
    #[serde(default)]
    default: Verdict,
    /// The most flows.
    #[serde(default = "default_max_flows")]
    max_flows: u32,
    /// Whether a TCP connection may be picked up in the middle.
    #[serde(default)]
    pick_up: bool,
    /// The file for ended flows; `-` is standard output.
    pub export: Option<PathBuf>,
    /// The address on which `fibula flow` reaches the switch; without it, the command cannot.
    pub control: Option<A>,
    /// Timeouts in seconds, by state.
    #[serde(default)]
    timeouts: BTreeMap<String, u16>,
    #[serde(default, rename = "rule")]
    rules: Vec<RuleSection>,
    #[serde(default, rename = "virtual")]
    virtuals: Vec<VirtualSection>,
    nat: Option<NatSection>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Accept,
    #[default]
    Drop,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleSection {
    action: Verdict,
    protocol: Option<Protocol>,
    source: Option<String>,
    destination: Option<String>,
    ports: Option<PortsText>,
    in_port: Option<u16>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Protocol {
    Number(u8),
    Name(String),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum PortsText {
    One(u16),
    Range(String),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VirtualSection {
    address: IpAddr,
    port: u16,
    #[serde(default = "default_protocol")]
    protocol: String,
    mac: Option<String>,
    #[serde(default)]
    servers: Vec<ServerSection>,
    check: Option<CheckSection>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckSection {
    #[serde(default)]
    kind: CheckKind,
    path: Option<String>,
    host: Option<String>,
    status: Option<PortsText>,
    port: Option<u16>,
    #[serde(default = "default_interval")]
    interval_s: u64,
    #[serde(default = "default_timeout")]
    timeout_s: u64,
    #[serde(default = "default_rise")]
    rise: u32,
    #[serde(default = "default_fall")]
    fall: u32,
    #[serde(default)]
    when_down: WhenDown,
    source: Option<IpAddr>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum CheckKind {
    #[default]
    Tcp,
    Http,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum WhenDown {
    #[default]
    Drain,
    End,
}

fn default_interval() -> u64 {
    5
}

fn default_timeout() -> u64 {
    2
}

fn default_rise() -> u32 {
    2
}

fn default_fall() -> u32 {
    3
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerSection {
    address: IpAddr,
    port: Option<u16>,
    #[serde(default = "default_weight")]
    weight: u16,
    mac: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NatSection {
    inside: Vec<String>,
    addresses: Vec<IpAddr>,
    #[serde(default = "default_ports")]
    ports: PortsText,
    mac: Option<String>,
}

fn default_max_flows() -> u32 {
    1 << 20
}

fn default_protocol() -> String {
    "tcp".to_owned()
}

fn default_weight() -> u16 {
    1
}

fn default_ports() -> PortsText {
    PortsText::Range("1024-65535".to_owned())
}

/// The protocol number of TCP or UDP.
/// # Errors
/// The names that are allowed.
pub fn service_protocol(name: &str) -> Result<u8, String> {
    match name {
        "tcp" => Ok(TCP),
        "udp" => Ok(UDP),
        other => Err(format!("protocol = {other:?} is unknown; write tcp or udp")),
    }
}

impl Protocol {
    fn named(&self) -> Result<Protocols, String> {
        match self {
            Protocol::Number(number) => Ok(Protocols::One(*number)),
            Protocol::Name(name) => protocols(name).map_err(|error| format!("protocol = {name:?}: {error}")),
        }
    }
}

impl PortsText {
    fn range(&self) -> Result<RangeInclusive<u16>, String> {
        match self {
            PortsText::One(port) => Ok(*port..=*port),
            PortsText::Range(text) => ports(text).map_err(|error| format!("ports = {text:?}: {error}")),
        }
    }
}

/// Reads a MAC address.
/// # Errors
/// How to write one.
pub fn mac(text: &str) -> Result<Mac, String> {
    let wrong = || format!("mac = {text:?} is not the MAC address of one host; write it like 02:00:00:00:00:01");
    let mac: Mac = parse_mac(text).map_err(|_| wrong())?;
    if mac[0] & 1 != 0 || mac == [0; 6] {
        return Err(wrong());
    }
    Ok(mac)
}

/// A locally administered MAC address that is derived from an IP address.
fn own_mac(address: IpAddr) -> Mac {
    let digest = lookup::hash::mix64(Address::from(address).0 as u64 ^ (Address::from(address).0 >> 64) as u64);
    let bytes = digest.to_be_bytes();
    [0x02, 0xf1, bytes[0], bytes[1], bytes[2], bytes[3]]
}

fn optional_mac(text: Option<&String>) -> Result<Option<Mac>, String> {
    text.map(|text| mac(text)).transpose()
}

impl<A> Section<A> {
    /// Checks the section and makes settings of it. `ports` are the ports of the switch.
    /// # Errors
    /// What is wrong, and what to write.
    pub fn settings(&self, ports: &HashSet<PortId>) -> Result<Settings, String> {
        if !(1..=MAX_FLOWS).contains(&self.max_flows) {
            return Err(format!("flow.max_flows = {} is out of range; write 1 to {MAX_FLOWS}", self.max_flows));
        }
        let mut timeouts = Timeouts::default();
        for (name, &seconds) in &self.timeouts {
            let state = State::ALL.iter().find(|state| state.name() == name).ok_or_else(|| {
                let names: Vec<&str> = State::ALL.iter().map(|state| state.name()).collect();
                format!("flow.timeouts.{name} names no state; the states are {}", names.join(", "))
            })?;
            if !(1..=MAX_TIMEOUT_S).contains(&seconds) {
                return Err(format!(
                    "flow.timeouts.{name} = {seconds} is out of range; write 1 to {MAX_TIMEOUT_S} seconds"
                ));
            }
            timeouts.set(*state, seconds);
        }
        if self.rules.len() > MAX_RULES {
            return Err(format!("{} sections [[flow.rule]] are too many; write at most {MAX_RULES}", self.rules.len()));
        }
        let rules =
            self.rules.iter().zip(1..).map(|(rule, number)| {
                rule.read(ports).map_err(|error| format!("[[flow.rule]], number {number}: {error}"))
            });
        let rules = Rules { rules: rules.collect::<Result<_, _>>()?, accept_others: self.default == Verdict::Accept };
        if self.virtuals.len() > MAX_VIRTUALS {
            return Err(format!(
                "{} sections [[flow.virtual]] are too many; write at most {MAX_VIRTUALS}",
                self.virtuals.len()
            ));
        }
        let mut virtuals: Vec<Virtual> = vec![];
        for section in &self.virtuals {
            let named = |error| format!("[[flow.virtual]] {} port {}: {error}", section.address, section.port);
            let service = section.read().map_err(named)?;
            let same = |other: &Virtual| other.endpoint == service.endpoint && other.protocol == service.protocol;
            if virtuals.iter().any(same) {
                return Err(named("there are two sections for it; remove one".to_owned()));
            }
            let differs =
                |other: &Virtual| other.endpoint.address == service.endpoint.address && other.mac != service.mac;
            if virtuals.iter().any(differs) {
                return Err(named(
                    "another [[flow.virtual]] has the same address with another mac; give both the same mac".to_owned(),
                ));
            }
            virtuals.push(service);
        }
        let nat = self.nat.as_ref().map(NatSection::read).transpose().map_err(|e| format!("[flow.nat]: {e}"))?;
        // A forwarded outside address is answered for like the addresses that packets leave with.
        let outside = |service: &Virtual| nat.as_ref().filter(|nat| nat.addresses.contains(&service.endpoint.address));
        for (service, section) in virtuals.iter_mut().zip(&self.virtuals) {
            let Some(nat) = outside(service) else { continue };
            if section.mac.is_some() && service.mac != nat.mac {
                let address = section.address;
                return Err(format!(
                    "{address} is in [flow.nat], and [[flow.virtual]] gives it another mac; give both the same mac, or \
                     remove that of [[flow.virtual]]"
                ));
            }
            service.mac = nat.mac;
        }
        Ok(Settings {
            rules,
            timeouts,
            virtuals,
            nat,
            max_flows: self.max_flows,
            pick_up: self.pick_up,
            export: self.export.is_some(),
        })
    }
}

impl RuleSection {
    fn read(&self, ports: &HashSet<PortId>) -> Result<Rule, String> {
        let named = self.protocol.as_ref().map_or(Ok(Protocols::Any), Protocol::named)?;
        let prefix =
            |text: &Option<String>| text.as_deref().filter(|text| !is_any(text)).map(str::parse::<Prefix>).transpose();
        let (source, destination) = (prefix(&self.source)?, prefix(&self.destination)?);
        if let (Some(source), Some(destination)) = (source, destination)
            && source.is_v4() != destination.is_v4()
        {
            return Err("one of source and destination is IPv4 and the other IPv6, so the rule matches nothing; use one version of IP".to_owned());
        }
        if let Some(port) = self.in_port.map(PortId).filter(|port| !ports.contains(port)) {
            return Err(format!("in_port = {port} is not a port of this switch; write the id of a [[port]]"));
        }
        named.check(source.or(destination).map(|prefix| prefix.is_v4()), self.ports.is_some())?;
        let protocols = match named {
            Protocols::Any => vec![],
            Protocols::Icmp => vec![ICMP, ICMPV6],
            Protocols::Icmpv6 => vec![ICMPV6],
            Protocols::One(number) => vec![number],
        };
        if self.ports.is_some() && protocols.iter().any(|protocol| !matches!(*protocol, TCP | UDP)) {
            return Err("only TCP and UDP have ports; set protocol to one of these, or remove ports".to_owned());
        }
        Ok(Rule {
            accept: self.action == Verdict::Accept,
            protocols,
            source,
            destination,
            ports: self.ports.as_ref().map(PortsText::range).transpose()?,
            in_port: self.in_port.map(PortId),
        })
    }
}

impl VirtualSection {
    fn read(&self) -> Result<Virtual, String> {
        let protocol = service_protocol(&self.protocol)?;
        if self.port == 0 {
            return Err("port is 0; write 1 to 65535".to_owned());
        }
        if self.servers.len() > MAX_SERVERS {
            return Err(format!("{} servers are too many; write at most {MAX_SERVERS}", self.servers.len()));
        }
        let server = |server: &ServerSection| {
            Ok(Server {
                endpoint: Endpoint { address: server.address.into(), port: server.port.unwrap_or(self.port) },
                weight: server.weight,
                mac: optional_mac(server.mac.as_ref())?,
            })
        };
        let servers: Vec<Server> = self.servers.iter().map(server).collect::<Result<_, String>>()?;
        if let Some(server) = servers.iter().find(|server| server.endpoint.port == 0) {
            let server = super::balance::endpoint_text(server.endpoint);
            return Err(format!("the server {server} has port 0; write 1 to 65535"));
        }
        let mut seen = HashSet::new();
        if let Some(twice) = servers.iter().find(|server| !seen.insert(server.endpoint)) {
            return Err(format!(
                "the server {} is listed twice; remove one",
                super::balance::endpoint_text(twice.endpoint)
            ));
        }
        check_unicast(self.address).map_err(|error| error.to_string())?;
        let endpoint = Endpoint { address: self.address.into(), port: self.port };
        let mac = optional_mac(self.mac.as_ref())?.unwrap_or_else(|| own_mac(self.address));
        let balancer = Balancer::new(endpoint.address, &servers).map_err(|error| error.to_string())?;
        self.servers.iter().try_for_each(|server| check_unicast(server.address)).map_err(|error| error.to_string())?;
        let check = self.check.as_ref().map(|check| check.read(self.address)).transpose();
        let check = check.map_err(|error| format!("check: {error}"))?;
        if protocol == UDP && check.as_ref().is_some_and(|check| check.port.is_none()) {
            return Err("check: a check is a TCP connection, and the servers are for UDP; set port to one on which \
                        they accept TCP"
                .to_owned());
        }
        Ok(Virtual { endpoint, protocol, mac, balancer, check })
    }
}

impl CheckSection {
    fn read(&self, of: IpAddr) -> Result<Check, String> {
        let Self { port, interval_s, timeout_s, rise, fall, source, .. } = *self;
        if !(1..=3600).contains(&interval_s) {
            return Err(format!("interval_s = {interval_s} is out of range; write 1 to 3600"));
        }
        if !(1..=interval_s).contains(&timeout_s) {
            return Err(format!(
                "timeout_s = {timeout_s} is out of range; write 1 to interval_s, which is {interval_s}"
            ));
        }
        for (name, value) in [("rise", rise), ("fall", fall)] {
            if !(1..=100).contains(&value) {
                return Err(format!("{name} = {value} is out of range; write 1 to 100"));
            }
        }
        if port == Some(0) {
            return Err("port is 0; write 1 to 65535".to_owned());
        }
        if let Some(source) = source.filter(|source| source.is_ipv4() != of.is_ipv4()) {
            return Err(format!("source {source} and the virtual address must both be IPv4 or both IPv6"));
        }
        let (interval, timeout) = (Duration::from_secs(interval_s), Duration::from_secs(timeout_s));
        let ends_connections = self.when_down == WhenDown::End;
        let question = self.question()?;
        Ok(Check { question, port, interval, timeout, rise, fall, ends_connections, source })
    }

    fn question(&self) -> Result<Question, String> {
        if self.kind == CheckKind::Tcp {
            return match (&self.path, &self.host, &self.status) {
                (None, None, None) => Ok(Question::Connect),
                _ => {
                    Err("path, host and status are of checks with kind = \"http\"; set that, or remove them".to_owned())
                }
            };
        }
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        let path = self.path.clone().unwrap_or_else(|| "/".to_owned());
        if !path.starts_with('/') || !is_plain(&path) {
            return Err(format!("path = {path:?} is not a path; begin with / and escape spaces, as in \"/healthz\""));
        }
        if let Some(host) = self.host.as_ref().filter(|host| host.is_empty() || !is_plain(host)) {
            return Err(format!("host = {host:?} is not a name of a host; write it like \"www.example.com\""));
        }
        let status = self.status.as_ref().map_or(Ok(200..=399), PortsText::range);
        let status = status.ok().filter(|status| *status.start() >= 100 && *status.end() <= 599);
        let status = status.ok_or("status is not a range of status codes; write 200, or \"200-399\"")?;
        Ok(Question::Http { path, host: self.host.clone(), status })
    }
}

impl NatSection {
    fn read(&self) -> Result<NatSettings, String> {
        let inside: Vec<Prefix> = self.inside.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
        self.addresses.iter().try_for_each(|&ip| check_unicast(ip)).map_err(|error| error.to_string())?;
        let addresses: Vec<Address> = self.addresses.iter().map(|&ip| ip.into()).collect();
        if inside.is_empty() || addresses.is_empty() {
            return Err("inside or addresses is empty; write at least one entry in each".to_owned());
        }
        if addresses.len() > MAX_ADDRESSES {
            return Err(format!("{} addresses are too many; write at most {MAX_ADDRESSES}", addresses.len()));
        }
        if addresses.iter().collect::<HashSet<_>>().len() != addresses.len() {
            return Err("addresses contains an address twice; remove one".to_owned());
        }
        for address in &addresses {
            let ip = IpAddr::from(*address);
            if inside.iter().any(|prefix| prefix.contains(*address)) {
                return Err(format!(
                    "the outside address {ip} is in one of the inside prefixes; use an address outside all of them"
                ));
            }
            if !inside.iter().any(|prefix| prefix.is_v4() == address.is_v4()) {
                return Err(format!(
                    "no inside prefix has the IP version of {ip}, so it would never be used; remove it, or add such a prefix"
                ));
            }
        }
        let ports = self.ports.range()?;
        if *ports.start() == 0 {
            return Err("ports begins with 0; begin with at least 1 (1024 is usual)".to_owned());
        }
        let mac = optional_mac(self.mac.as_ref())?.unwrap_or_else(|| own_mac(self.addresses[0]));
        Ok(NatSettings { inside, addresses, ports, mac })
    }
}

#[cfg(test)]
mod tests;
