//! Who is where in a demo network: ports, interfaces, stations, addresses and names. Pure data.
//!
//! A **station** is a place where frames leave the network: the hosts first, then one *far end* per gateway. A host is
//! a network namespace with two interfaces that share one MAC address: `eth0` to its home switch, and `eth1` to the
//! next switch, down until the host moves. A far end stands for the many machines behind one port (a hypervisor,
//! another site): it carries the synthetic names of its switch.
//!
//! ```text
//!   port 1..99      trunks, in the order of the links
//!   port 101..199   hosts at their home switch
//!   port 201..299   hosts that moved here
//!   port 900        the far end
//! ```

use std::net::Ipv4Addr;

use super::topology::Topology;

/// An Ethernet address.
pub(super) type Mac = [u8; 6];

/// Index of a station: hosts, then far ends.
pub(super) type Station = usize;

/// The first port for hosts at their home switch.
const HOME_PORT: u16 = 101;
/// The first port for hosts that moved here.
const AWAY_PORT: u16 = 201;
/// The port of the far end of a switch.
pub(super) const FAR_PORT: u16 = 900;
/// Hosts per switch for which the port ranges leave room.
pub(super) const MAX_HOSTS_PER_SWITCH: usize = 99;

/// Where the addresses of all hosts are.
pub(super) const SUBNET: &str = "10.77.0.0/16";

/// A port of a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Port {
    pub(super) id: u16,
    /// Name of the interface; at most 15 bytes, unique in the namespace of the switches.
    pub(super) device: String,
    pub(super) trunk: bool,
}

/// One end of a link: the switch and its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    pub(super) switch: usize,
    pub(super) port: u16,
}

/// A host: a namespace with the plain Linux stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) mac: Mac,
    pub(super) ip: Ipv4Addr,
    /// The ports of `eth0` and of `eth1`.
    pub(super) ends: [End; 2],
}

/// A demo network with its layout.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) topology: Topology,
    /// Ports of each switch, in the order of [`Topology::switches`].
    pub(super) ports: Vec<Vec<Port>>,
    /// Both ends of each link, in the order of [`Topology::links`].
    pub(super) trunks: Vec<[End; 2]>,
    pub(super) hosts: Vec<Host>,
}

impl Layout {
    /// Lays out `topology` with `hosts_per_switch` hosts (1 to [`MAX_HOSTS_PER_SWITCH`]) at every gateway.
    pub(super) fn new(topology: Topology, hosts_per_switch: usize) -> Self {
        assert!((1..=MAX_HOSTS_PER_SWITCH).contains(&hosts_per_switch), "checked with the arguments");
        let (n, n_gateways) = (topology.switches.len(), topology.n_gateways);
        let mut ports: Vec<Vec<Port>> = vec![Vec::new(); n];
        let mut add = |switch: usize, id: u16, trunk: bool| {
            ports[switch].push(Port { id, device: device(switch, id), trunk });
            End { switch, port: id }
        };
        let mut next_trunk = vec![1_u16; n];
        let mut trunk_end = |switch: usize| {
            let id = next_trunk[switch];
            next_trunk[switch] += 1;
            id
        };
        let trunks = topology
            .links
            .iter()
            .map(|link| [link.a, link.b].map(|switch| add(switch, trunk_end(switch), true)))
            .collect();
        let mut hosts = Vec::with_capacity(n_gateways * hosts_per_switch);
        for switch in 0..n_gateways {
            for k in 0..hosts_per_switch {
                let index = hosts.len();
                let home = add(switch, HOME_PORT + k as u16, false);
                let away = add((switch + 1) % n_gateways, AWAY_PORT + k as u16, false);
                hosts.push(Host { mac: host_mac(index), ip: host_ip(index), ends: [home, away] });
            }
        }
        for switch in 0..n_gateways {
            add(switch, FAR_PORT, false);
        }
        Self { topology, ports, trunks, hosts }
    }

    /// The same network with other addresses of its hosts.
    pub(super) fn with_addresses(&self, addresses: &[Ipv4Addr]) -> Self {
        let mut layout = self.clone();
        layout.hosts.iter_mut().zip(addresses).for_each(|(host, ip)| host.ip = *ip);
        layout
    }

    pub(super) fn n_switches(&self) -> usize {
        self.topology.switches.len()
    }

    /// The number of switches with hosts; they come first.
    pub(super) fn n_gateways(&self) -> usize {
        self.topology.n_gateways
    }

    pub(super) fn n_stations(&self) -> usize {
        self.hosts.len() + self.n_gateways()
    }

    /// The far end of a gateway, as a station.
    pub(super) fn far(&self, switch: usize) -> Station {
        self.hosts.len() + switch
    }

    /// The name of a station, for messages.
    pub(super) fn station_name(&self, station: Station) -> String {
        match station.checked_sub(self.hosts.len()) {
            Some(switch) => format!("the far end of {}", self.topology.switches[switch]),
            None => format!("host h{station}"),
        }
    }
}

/// Name of a port's interface.
pub(super) fn device(switch: usize, port: u16) -> String {
    format!("s{switch}p{port}")
}

fn host_mac(index: usize) -> Mac {
    let [.., hi, lo] = (index as u32 + 1).to_be_bytes();
    [0x02, 0xf1, 0xb0, 0x00, hi, lo]
}

fn host_ip(index: usize) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 77, 0, 0)) + index as u32 + 1)
}

/// The `index`-th synthetic name: distinct for every index below 2^40, scattered like the addresses of many vendors.
pub(super) fn synthetic_mac(index: u64) -> Mac {
    // An odd multiplier permutes the integers mod 2^40; so does XOR with the high half of the result.
    let x = index.wrapping_mul(0x9e_3779_b97f) & 0xff_ffff_ffff;
    let x = (x ^ (x >> 20)).wrapping_mul(0x6b_43a9_b5f1) & 0xff_ffff_ffff;
    let [_, _, _, a, b, c, d, e] = x.to_be_bytes();
    // The locally administered bit; the hosts' first byte is 02.
    [0x06, a, b, c, d, e]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn abilene() -> Layout {
        Layout::new(Topology::choose("abilene", None).unwrap(), 2)
    }

    #[test]
    fn every_port_and_device_is_unique_and_short() {
        let layout = abilene();
        let mut devices = HashSet::new();
        for (switch, ports) in layout.ports.iter().enumerate() {
            let mut ids = HashSet::new();
            for port in ports {
                assert!(ids.insert(port.id), "port {} of switch {switch} twice", port.id);
                assert!(port.device.len() <= 15 && devices.insert(port.device.clone()));
            }
        }
        // Two ends of 14 trunks, two interfaces of 22 hosts, 11 far ends.
        assert_eq!(devices.len(), 28 + 44 + 11);
    }

    #[test]
    fn hosts_have_distinct_addresses_and_two_switches() {
        let layout = abilene();
        let macs: HashSet<_> = layout.hosts.iter().map(|h| h.mac).collect();
        let ips: HashSet<_> = layout.hosts.iter().map(|h| h.ip).collect();
        assert_eq!((macs.len(), ips.len()), (22, 22));
        assert!(layout.hosts.iter().all(|h| h.ends[0].switch != h.ends[1].switch));
    }

    #[test]
    fn synthetic_names_are_distinct_unicast_addresses() {
        let macs: HashSet<_> = (0..200_000).map(synthetic_mac).collect();
        assert_eq!(macs.len(), 200_000);
        assert!(macs.iter().all(|mac| mac[0] & 1 == 0));
    }
}
