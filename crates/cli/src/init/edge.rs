//! The parts of `fibula init switch` about outside networks and DHCP.

use super::quoted;
use command::output::{Exit, Failure};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::net::IpAddr;

/// The port of the gateway's name, which no device has.
const PORT: usize = 1000;

/// Arguments about networks outside and DHCP.
#[derive(clap::Args, Default)]
pub(super) struct EdgeArgs {
    /// An interface to outside IP networks, with the gateway's address there and the prefix length, such as
    /// eth3=192.0.2.1/24; repeatable
    #[arg(long, value_name = "DEVICE=ADDRESS/LEN", requires = "gateway")]
    outside: Vec<String>,
    /// The address that hosts inside use as their default gateway; repeatable, for IPv4 and IPv6
    #[arg(long, value_name = "IP", requires = "outside")]
    gateway: Vec<IpAddr>,
    /// The outside router that leads to all other networks; repeatable, for IPv4 and IPv6
    #[arg(long, value_name = "IP", requires = "outside")]
    next_hop: Vec<IpAddr>,
    /// The MAC address of the DHCP server, which gets the clients' broadcasts
    #[arg(long, value_name = "MAC")]
    dhcp_server: Option<String>,
    /// The interface of --host with a DHCP server or relay; no other host may answer DHCP
    #[arg(long, value_name = "DEVICE")]
    dhcp_at: Vec<String>,
}

impl EdgeArgs {
    /// Whether no ports are among them.
    pub(super) fn is_empty(&self) -> bool {
        self.outside.is_empty()
    }

    /// The interfaces that lead outside.
    pub(super) fn devices(&self) -> impl Iterator<Item = &str> {
        self.outside.iter().map(|text| Self::parts(text).0)
    }

    fn parts(text: &str) -> (&str, &str) {
        text.split_once('=').unwrap_or((text, ""))
    }

    /// Checks that nothing required is missing. Addresses are checked as a switch checks them.
    /// # Errors
    /// [`Exit::Usage`].
    pub(super) fn check(&self, hosts: &[String]) -> anyhow::Result<()> {
        let usage = |why: String| Err(Failure::new(Exit::Usage, why));
        if let Some(text) = self.outside.iter().find(|text| !text.contains('=')) {
            return usage(format!("--outside {text} has no address; write {text}=192.0.2.1/24"));
        }
        let hosts: HashSet<&String> = hosts.iter().collect();
        if let Some(device) = self.dhcp_at.iter().find(|device| !hosts.contains(device)) {
            return usage(format!("--dhcp-at {device} is not an interface of hosts; also give --host {device}"));
        }
        Ok(())
    }

    /// The lines about DHCP above all ports.
    pub(super) fn dhcp(&self) -> String {
        let mut text = String::new();
        if let Some(server) = &self.dhcp_server {
            let _ = write!(text, "# The DHCP server that hosts may ask.\ndhcp_server = {}\n", quoted(server));
        }
        if !self.dhcp_at.is_empty() {
            text.push_str("# DHCP answers are accepted only from ports that say so.\ndhcp_trusted = false\n");
        }
        text
    }

    /// The lines about DHCP of a port.
    pub(super) fn of_port(&self, device: &str) -> &'static str {
        if self.dhcp_at.iter().any(|one| one == device) { "dhcp_trusted = true\n" } else { "" }
    }

    /// The section of the gateway; ports outside are numbered from `first`.
    pub(super) fn gateway(&self, switch: &str, first: usize) -> String {
        if self.outside.is_empty() {
            return String::new();
        }
        // Locally administered, and another one for each name.
        let digest = switch
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        let [a, b, c, d, ..] = digest.to_be_bytes();
        let mac = format!("02:f2:{a:02x}:{b:02x}:{c:02x}:{d:02x}");
        let list = |all: &[IpAddr]| all.iter().map(|ip| format!("\"{ip}\"")).collect::<Vec<_>>().join(", ");
        let mut text = format!(
            "\n# The gateway between hosts and networks outside. To the controller it is a name like any other:\n\
             #   fibula host add gateway-{switch} {switch}:{PORT}\n\
             #   fibula name add {mac} gateway-{switch} --ip {}\n\
             [gateway]\nmac = \"{mac}\"\nport = {PORT}\naddresses = [{}]\n",
            self.gateway.first().map(ToString::to_string).unwrap_or_default(),
            list(&self.gateway)
        );
        for (id, outside) in (first..).zip(&self.outside) {
            let (_, address) = Self::parts(outside);
            let _ = write!(text, "\n[[gateway.outside]]\nport = {id}\naddresses = [{}]\n", quoted(address));
        }
        for hop in &self.next_hop {
            let all = if hop.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
            let _ = write!(text, "\n# All other networks.\n[[gateway.route]]\nprefix = \"{all}\"\nvia = \"{hop}\"\n");
        }
        text.push_str(
            "\n# Inside networks need routes of their own: [[gateway.route]] with prefix = \"10.0.0.0/8\" and via = \"inside\".\n",
        );
        for ip in &self.gateway {
            let inside = match ip {
                IpAddr::V4(ip) => format!("{}/24", std::net::Ipv4Addr::from(u32::from(*ip) & 0xffff_ff00)),
                IpAddr::V6(ip) => format!("{}/64", std::net::Ipv6Addr::from(u128::from(*ip) >> 64 << 64)),
            };
            let _ = write!(text, "[[gateway.route]]\nprefix = \"{inside}\"\nvia = \"inside\"\n");
        }
        text
    }

    /// The equivalent flags.
    pub(super) fn words(&self) -> Vec<(&'static str, String)> {
        let mut words = Vec::new();
        words.extend(self.outside.iter().map(|text| ("outside", text.clone())));
        words.extend(self.gateway.iter().map(|ip| ("gateway", ip.to_string())));
        words.extend(self.next_hop.iter().map(|ip| ("next-hop", ip.to_string())));
        words.extend(self.dhcp_server.iter().map(|mac| ("dhcp-server", mac.clone())));
        words.extend(self.dhcp_at.iter().map(|device| ("dhcp-at", device.clone())));
        words
    }
}
