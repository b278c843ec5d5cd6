//! The section `[gateway]` of `switch.toml`.

use super::{Hop, Outside, Route, Settings};
use crate::flow::config::mac;
use fib::action::PortId;
use fib::prefixes;
use fib::text::address::{self, AnyPrefix, is_any};
use fib::text::{Dialect, Lines, Records};
use fib::unicast::check_unicast;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

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
    /// A file with more routes, `prefix,via` on each line, as `fibula lpm build` reads it.
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
        let mut seen = HashMap::new();
        for (number, RouteSection { prefix, via }) in (1u64..).zip(&self.routes) {
            let place = format!("in [[gateway.route]] {number}");
            add_routes(prefix, via, &outside, place, &mut seen, &mut routes)
                .map_err(|reason| format!("[[gateway.route]] {reason}"))?;
        }
        if let Some(path) = &self.routes_file {
            read_routes(path, &outside, &mut seen, &mut routes)?;
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
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    let len = match address::mask_len(len).filter(|_| address.is_ipv4()) {
        Some(len) => len?,
        None => address::digits(len).filter(|len| *len <= max).ok_or_else(wrong)?,
    };
    Ok((check("gateway.outside", address)?, len))
}

/// Reads a file of routes.
fn read_routes(
    path: &Path,
    outside: &[Outside],
    seen: &mut HashMap<AnyPrefix, String>,
    routes: &mut Vec<Route>,
) -> Result<(), String> {
    let shown = path.display();
    let file =
        File::open(path).map_err(|error| format!("[gateway] routes_file = {shown:?} cannot be read: {error}"))?;
    for line in Records::new(Lines::new(file), Dialect::Plain, prefixes::COLUMNS) {
        let line = line.map_err(|error| format!("{shown}:{}: {}", error.line, error.reason))?;
        let place = format!("on line {}", line.number);
        prefixes::parts(&line.text)
            .and_then(|(prefix, via)| match &via[..] {
                "" => Err(format!("{:?} is not like prefix,via", line.text)),
                via => add_routes(&prefix, via, outside, place, seen, routes),
            })
            .map_err(|reason| format!("{shown}:{}: {reason}", line.number))?;
    }
    Ok(())
}

/// Adds the routes to a prefix, of which `default` is one for each version of IP that `via` leads to.
fn add_routes(
    prefix: &str,
    via: &str,
    outside: &[Outside],
    place: String,
    seen: &mut HashMap<AnyPrefix, String>,
    routes: &mut Vec<Route>,
) -> Result<(), String> {
    let prefixes = match is_any(prefix) {
        true => prefixes::default_by(via.parse().ok()),
        false => vec![address::prefix(prefix)?],
    };
    for one in prefixes {
        if let Some(before) = seen.insert(one, place.clone()) {
            return Err(format!("{prefix} is {before} already: keep only one of them"));
        }
        routes.push(route(one, via, outside)?);
    }
    Ok(())
}

fn route(prefix: AnyPrefix, via: &str, outside: &[Outside]) -> Result<Route, String> {
    let hop = match via {
        "inside" => Hop::Inside,
        "discard" => Hop::Discard,
        via => {
            let unreadable = |_| format!("via = {via:?} is unknown; write an address, inside or discard");
            let next = check("via", via.parse().map_err(unreadable)?)?;
            if next.is_ipv4() != prefix.is_v4() {
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
    fn file_of_routes_is_read_as_any_list_of_prefixes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("routes.csv");
        let only_file = format!(
            "mac = '02:00:00:00:00:fe'\nport = 100\naddresses = ['10.0.0.1']\nroutes_file = '{}'\n\
             [[outside]]\nport = 3\naddresses = ['192.0.2.1/255.255.255.0', '2001:db8::1/64']\n",
            path.display()
        );
        let read_file = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read(&only_file)
        };
        let plain = read_file("10.0.0.0/8,inside\n0.0.0.0/0,192.0.2.254\n10.9.0.0/16,discard\n").unwrap();
        for text in [
            "\u{feff}# routes\r\nprefix,via,,\r\n10.0.0.0/8,inside,,\r\ndefault,192.0.2.254,,\r\n10.9.0.0/16 , discard ; no\r\n,,\r\n",
            "10.0.0.0 255.0.0.0 inside\nany 192.0.2.254\n10.9.0.0/255.255.0.0,\"discard\"",
        ] {
            assert_eq!(read_file(text).unwrap().routes, plain.routes, "{text}");
        }
        assert_eq!(read_file("default,discard").unwrap().routes.len(), 2);
        for (text, reason) in [
            (
                "# a\n10.0.0.0/8,inside\n10.0.0.0 255.0.0.0 discard",
                "routes.csv:3: 10.0.0.0/255.0.0.0 is on line 2 already",
            ),
            ("10.0.0.1/8,inside", "routes.csv:1: 10.0.0.1/8 has bits set"),
            ("10.0.0.0/8", "not like prefix,via"),
            ("10.0.0.0/8,inside,out", "2 fields behind"),
        ] {
            let message = read_file(text).unwrap_err();
            assert!(message.contains(reason), "{text}: {message}");
        }
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
        let twice = GOOD.to_owned() + "[[route]]\nprefix = '10.0.0.0 255.0.0.0'\nvia = 'discard'\n";
        assert!(read(&twice).unwrap_err().contains("in [[gateway.route]] 2 already"));
        let no_outside = GOOD.split("[[outside]]").next().unwrap();
        assert!(read(no_outside).unwrap_err().contains("[[gateway.outside]]"));
    }
}
