//! Addresses for hosts that were given none: dnsmasq runs at the first host, and udhcpc at every other.
//!
//! A client is done when it has a lease. It tells the demo by a script in the directory of the run, as it would tell an operating
//! system, and the host gets its address then ([`super::wire::Wires::set_address`]).

use std::ffi::OsStr;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use command::output::{Exit, Failure};

use super::layout::Layout;
use super::netns::{NetnsError, ip_batch};
use super::processes::{Processes, Program, search_path};
use super::wire::Wires;

/// The host that runs the server. Its address is its own, as a server's is.
pub(super) const SERVER: usize = 0;

/// Addresses that the server gives away, apart from its own: more than a demo has hosts.
const POOL: &str = "10.77.128.1,10.77.255.254,255.255.0.0,1h";
const POOL_STARTS: Ipv4Addr = Ipv4Addr::new(10, 77, 128, 1);
const POOL_ENDS: Ipv4Addr = Ipv4Addr::new(10, 77, 255, 254);
/// Leases at most; dnsmasq has a bound of its own otherwise.
const MAX_LEASES: usize = 20_000;

/// What udhcpc calls: it says which address the host has.
const SCRIPT: &str = "#!/bin/sh\n[ \"$1\" != bound ] || { echo \"$ip\" >\"$0.new\" && mv \"$0.new\" \"$0.lease\"; }\n";

/// Fails with what to install if a program is missing.
pub(super) fn check_installed() -> Result<()> {
    missing_from(&search_path()).map_or(Ok(()), |why| Err(Failure::new(Exit::Refused, why)))
}

/// What to do about programs that no directory of `path` has.
fn missing_from(path: &OsStr) -> Option<String> {
    let is_missing = |program: &&str| !std::env::split_paths(path).any(|directory| directory.join(program).is_file());
    let missing: Vec<&str> = ["dnsmasq", "udhcpc"].into_iter().filter(is_missing).collect();
    (!missing.is_empty()).then(|| {
        let missing = missing.join(" and ");
        format!("hosts get their addresses by {missing}, which is missing: apt-get install dnsmasq-base udhcpc")
    })
}

/// The clients of a run.
pub(super) struct Clients {
    /// The script of each host; that of the server is never run.
    scripts: Vec<PathBuf>,
}

impl Clients {
    /// Starts the server, and a client at every other host.
    pub(super) fn start(directory: &Path, layout: &Layout, wires: &Wires, processes: &mut Processes) -> Result<Self> {
        start_server(directory, layout, wires, processes).context("starting dnsmasq")?;
        let scripts = (0..layout.hosts.len()).map(|host| directory.join(format!("h{host}-dhcp"))).collect();
        let clients = Self { scripts };
        for host in (0..layout.hosts.len()).filter(|host| *host != SERVER) {
            clients.start_client(host, directory, wires, processes).context("starting udhcpc")?;
        }
        Ok(clients)
    }

    /// The client of a host, among the processes.
    pub(super) fn name(host: usize) -> String {
        format!("h{host}-udhcpc")
    }

    fn start_client(&self, host: usize, directory: &Path, wires: &Wires, processes: &mut Processes) -> io::Result<()> {
        let script = &self.scripts[host];
        std::fs::write(script, SCRIPT)?;
        std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755))?;
        // In the foreground, until it has a lease: it asks every second, as often as it takes.
        let arguments = ["-i", "eth0", "-f", "-q", "-t", "60", "-T", "1", "-A", "1", "-s"];
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).chain([script.as_os_str()]).collect();
        let (name, namespace) = (Self::name(host), wires.host(host));
        processes.start_program(
            directory,
            &Program {
                name: &name,
                program: "udhcpc".as_ref(),
                arguments: &arguments,
                namespace: Some(&namespace),
                may_end: true,
            },
        )
    }

    /// The address that a host was given, once it was. `ended`: its client has ended, so what it had to say is said.
    pub(super) fn lease(&self, host: usize, ended: bool) -> Result<Option<Ipv4Addr>> {
        let text = match std::fs::read_to_string(self.scripts[host].with_extension("lease")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && ended => {
                let script = self.scripts[host].display();
                bail!(
                    "udhcpc of h{host} has ended and {script} reported no address: it may be on a file system that runs no programs (noexec); \
                       give another directory with --keep"
                )
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.context("reading the output of udhcpc")?,
        };
        match text.trim().parse() {
            Ok(ip) if (POOL_STARTS..=POOL_ENDS).contains(&ip) => Ok(Some(ip)),
            _ => bail!("host h{host} got the address {text:?}, which no server here has to give"),
        }
    }
}

fn start_server(directory: &Path, layout: &Layout, wires: &Wires, processes: &mut Processes) -> Result<()> {
    let (ip, namespace) = (layout.hosts[SERVER].ip, wires.host(SERVER));
    wires.set_address(SERVER, ip)?;
    serve_at(&namespace, ip)?;
    let leases = directory.join("dnsmasq.leases");
    let arguments = [
        "--keep-in-foreground".to_owned(),
        "--conf-file=/dev/null".to_owned(),
        // Addresses alone: no names.
        "--port=0".to_owned(),
        "--interface=eth0".to_owned(),
        "--bind-interfaces".to_owned(),
        "--dhcp-authoritative".to_owned(),
        "--no-ping".to_owned(),
        // As who it is: it would outlive a demo that is killed if it became somebody else.
        "--user=root".to_owned(),
        "--group=root".to_owned(),
        "--pid-file=".to_owned(),
        format!("--dhcp-lease-max={MAX_LEASES}"),
        format!("--dhcp-range={POOL}"),
        format!("--dhcp-leasefile={}", leases.display()),
    ];
    let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    let dnsmasq = Program {
        name: "dnsmasq",
        program: "dnsmasq".as_ref(),
        arguments: &arguments,
        namespace: Some(&namespace),
        may_end: false,
    };
    Ok(processes.start_program(directory, &dnsmasq)?)
}

/// dnsmasq serves at an interface that has an address of its own.
fn serve_at(namespace: &str, ip: Ipv4Addr) -> Result<(), NetnsError> {
    ip_batch(Some(namespace), &format!("addr add {ip}/16 dev eth0 noprefixroute\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_the_command_that_installs_it() {
        let directory = tempfile::tempdir().unwrap();
        let missing = || missing_from(directory.path().as_os_str());
        assert!(missing().unwrap().starts_with("hosts get their addresses by dnsmasq and udhcpc, which"));
        std::fs::write(directory.path().join("dnsmasq"), "").unwrap();
        let why = missing().unwrap();
        assert!(why.contains("by udhcpc, which") && why.contains("apt-get install dnsmasq-base udhcpc"), "{why}");
        std::fs::write(directory.path().join("udhcpc"), "").unwrap();
        assert_eq!(missing(), None);
    }
}
