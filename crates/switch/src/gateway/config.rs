//! The section `[gateway]` of `switch.toml`.

use super::{Hop, Outside, Route, RoutePrefix, Settings};
use crate::flow::config::mac;
use fib::action::PortId;
use fib::unicast::check_unicast;
use lookup::lpm::Prefix;
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::path::PathBuf;

/// The section as it is written in the file. Unknown keys are errors.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// The gateway's MAC address, inside and outside.
    mac: String,
    /// The port of its name at the controller. No device has it.
    port: u16,
    /// Its addresses inside, which hosts have as their default gateway.
    addresses: Vec<IpAddr>,
    #[serde(default, rename = "outside")]
    outside: Vec<OutsideSection>,
    #[serde(default, rename = "route")]
    routes: Vec<RouteSection>,
    /// A file with more routes, `prefix,via` on each line.
    routes_file: Option<PathBuf>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutsideSection {
    port: u16,
    addresses: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteSection {
    prefix: String,
    via: String,
}

impl Section {
    /// Checks the section and makes settings of it. `outside` are the ports with that role, `others` all other ports.
    /// # Errors
    /// What is wrong, and what to write.
    pub fn settings(&self, outside: &HashSet<PortId>, others: &HashSet<PortId>) -> Result<Settings, String> {
        let own = mac(&self.mac).map_err(|reason| format!("[gateway] mac: {reason}"))?;
        let port = PortId(self.port);
        if outside.contains(&port) || others.contains(&port) {
            return Err(format!(
                "gateway.port = {port} is a port with a device; choose a number that no [[port]] has, and tell the \
                 controller that the gateway's name is at that port"
            ));
        }
        if self.addresses.is_empty() {
            return Err(
                "gateway.addresses is empty; write the address that hosts inside use as their gateway".to_owned()
            );
        }
        self.addresses.iter().try_for_each(|&ip| check("gateway.addresses", ip).map(drop))?;
        let mut sides = BTreeMap::new();
        for section in &self.outside {
            let port = PortId(section.port);
            if !outside.contains(&port) {
                return Err(format!(
                    "[[gateway.outside]] has port = {port}, but no [[port]] with role = 'outside' has that id; correct one of them"
                ));
            }
            let addresses = section.addresses.iter().map(|text| interface(text)).collect::<Result<_, _>>()?;
            if sides.insert(port, addresses).is_some() {
                return Err(format!("two sections [[gateway.outside]] have port {port}; merge them"));
            }
        }
        if let Some(port) = outside.iter().find(|port| !sides.contains_key(port)) {
            return Err(format!("port {port} has role = 'outside'; add a [[gateway.outside]] with its addresses"));
        }
        let outside: Vec<_> = sides.into_iter().map(|(port, addresses)| Outside { port, addresses }).collect();
        let mut routes = Vec::new();
        for RouteSection { prefix, via } in &self.routes {
            routes.push(route(prefix, via, &outside).map_err(|reason| format!("[[gateway.route]] {reason}"))?);
        }
        if let Some(path) = &self.routes_file {
            let shown = path.display();
            let text = std::fs::read_to_string(path)
                .map_err(|error| format!("[gateway] routes_file = {shown:?} cannot be read: {error}"))?;
            for (line, text) in (1..).zip(text.lines()) {
                let text = text.trim();
                if text.is_empty() || text.starts_with('#') {
                    continue;
                }
                let parts = text.split_once(',').ok_or_else(|| format!("{text:?} is not like prefix,via"));
                let parsed = parts.and_then(|(prefix, via)| route(prefix.trim(), via.trim(), &outside));
                routes.push(parsed.map_err(|reason| format!("{shown}:{line}: {reason}"))?);
            }
        }
        Ok(Settings { mac: own, port, addresses: self.addresses.clone(), outside, routes })
    }
}

/// Refuses addresses that no host can have.
fn check(what: &str, ip: IpAddr) -> Result<IpAddr, String> {
    check_unicast(ip).map(|()| ip).map_err(|error| format!("{what}: {error}"))
}

/// Reads an address with the length of the prefix of its link.
fn interface(text: &str) -> Result<(IpAddr, u8), String> {
    let wrong = || format!("{text:?} is not an address with a prefix length; write it like 192.0.2.1/24");
    let (address, len) = text.split_once('/').ok_or_else(wrong)?;
    let (address, len): (IpAddr, u8) = (address.parse().map_err(|_| wrong())?, len.parse().map_err(|_| wrong())?);
    if len > if address.is_ipv4() { 32 } else { 128 } {
        return Err(wrong());
    }
    Ok((check("gateway.outside", address)?, len))
}

fn route(prefix: &str, via: &str, outside: &[Outside]) -> Result<Route, String> {
    let prefix = if prefix.contains(':') {
        prefix.parse::<Prefix<u128>>().map(RoutePrefix::V6)
    } else {
        prefix.parse::<Prefix<u32>>().map(RoutePrefix::V4)
    }
    .map_err(|error| error.to_string())?;
    let hop = match via {
        "inside" => Hop::Inside,
        "discard" => Hop::Discard,
        via => {
            let unreadable = |_| format!("via = {via:?} is unknown; write an address, inside or discard");
            let next = check("via", via.parse().map_err(unreadable)?)?;
            if next.is_ipv4() != matches!(prefix, RoutePrefix::V4(_)) {
                return Err(format!(
                    "the next hop {via} and the prefix {prefix} have different versions of IP; give both the same"
                ));
            }
            let on_link = |outside: &&Outside| outside.has_on_link(next);
            let port = outside.iter().find(on_link).map(|outside| outside.port).ok_or_else(|| {
                format!("no network of [[gateway.outside]] contains the next hop {via}; add its network there")
            })?;
            Hop::Outside { port, via: Some(next) }
        }
    };
    Ok(Route { prefix, hop })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "mac = '02:00:00:00:00:fe'\nport = 100\naddresses = ['10.0.0.1', 'fd00::1']\n\
        [[outside]]\nport = 3\naddresses = ['192.0.2.1/24', '2001:db8::1/64']\n\
        [[route]]\nprefix = '0.0.0.0/0'\nvia = '192.0.2.254'\n[[route]]\nprefix = '10.0.0.0/8'\nvia = 'inside'\n";

    fn read(text: &str) -> Result<Settings, String> {
        let section: Section = toml::from_str(text).map_err(|error| error.to_string())?;
        section.settings(&HashSet::from([PortId(3)]), &HashSet::from([PortId(1)]))
    }

    #[test]
    fn routes_find_their_ports() {
        let settings = read(GOOD).unwrap();
        assert_eq!((settings.mac, settings.port, settings.routes.len()), ([2, 0, 0, 0, 0, 0xfe], PortId(100), 2));
        let via = "192.0.2.254".parse().ok();
        assert_eq!(settings.routes[0].hop, Hop::Outside { port: PortId(3), via });
        assert_eq!(settings.routes[1].hop, Hop::Inside);
    }

    #[test]
    fn wrong_sections_are_refused_with_the_reason() {
        let cases = [
            ("02:00:00:00:00:fe", "02:00", "mac"),
            ("port = 100", "port = 1", "a port with a device"),
            ("['10.0.0.1', 'fd00::1']", "[]", "addresses is empty"),
            ("port = 3", "port = 4", "role = 'outside'"),
            ("192.0.2.1/24", "192.0.2.1", "not an address with a prefix length"),
            ("192.0.2.1/24", "192.0.2.1/33", "not an address with a prefix length"),
            ("192.0.2.1/24", "127.0.0.1/8", "a loopback address"),
            ("'10.0.0.1'", "'::ffff:10.0.0.1'", "an IPv4 address in the form of IPv6"),
            ("'10.0.0.1'", "'240.0.0.1'", "a reserved address"),
            ("0.0.0.0/0", "0.0.0.1/0", "0.0.0.0/0"),
            ("0.0.0.0/0", "0.0.0.0/33", "33"),
            ("0.0.0.0/0", "::/0", "different versions"),
            ("192.0.2.254", "198.51.100.1", "no network of"),
            ("'inside'", "'outside'", "write an address"),
        ];
        for (good, bad, reason) in cases {
            let message = read(&GOOD.replacen(good, bad, 1)).unwrap_err();
            assert!(message.contains(reason), "{bad}: {message}");
        }
        let no_outside = GOOD.split("[[outside]]").next().unwrap();
        assert!(read(no_outside).unwrap_err().contains("[[gateway.outside]]"));
    }
}
