//! The demo network as wires: namespaces joined by veth pairs, with sniffers and raw senders on them.
//!
//! ```text
//!   fibula-PID-fabric   the controller, every switch process, both ends of every trunk, the switch end of the rest
//!   fibula-PID-hN       host N: eth0, eth1, its address on lo with a route over the interface in use
//!   fibula-PID-far      the far ends: farN is connected to switch N, no address
//! ```
//! All switches share one namespace because creating one costs a process, and they stay separate anyway: each opens
//! only its own interfaces. IPv6 is off everywhere: the kernel would send frames of its own.
//!
//! A trunk that is to fail silently has a bridge in its middle, which repeats frames until it is taken down. A pair of
//! converters between copper and fibre fails like that.

use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use netio::backend::af_packet::enable_gro;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::backend::Fault;
use super::frames::SNAP_LEN;
use super::judge::Judge;
use super::layout::{Layout, SUBNET, Station, device};
use super::netns::{self, Namespaces, NetnsError, ip_batch};
use super::sys::PacketSocket;

/// Trunks carry 1500 bytes and the 4-byte shim, with room to spare.
const TRUNK_MTU: u32 = 1600;
/// Frames judged under one lock acquisition.
const BATCH: usize = 64;

/// The namespaces with everything in them. Dropping it removes all of them.
#[derive(Debug)]
pub(super) struct Wires {
    namespaces: Namespaces,
}

impl Wires {
    /// Builds the network of `layout`. Takes about 10 ms per interface pair. Hosts have no addresses yet.
    ///
    /// `bridged`: the trunk that can fail silently. `in_kernel`: hosts' interfaces take what a program in the kernel sends.
    pub(super) fn build(layout: &Layout, bridged: Option<usize>, in_kernel: bool) -> Result<Self, NetnsError> {
        let roles: Vec<String> = (0..layout.hosts.len()).map(host_role).collect();
        let namespaces = Namespaces::create(roles.iter().map(String::as_str).chain(["fabric", "far"]))?;
        let wires = Self { namespaces };
        let (fabric, far) = (wires.fabric(), wires.far());
        for name in roles.iter().map(|role| wires.namespaces.name(role)).chain([fabric.clone(), far.clone()]) {
            netns::within(&name, disable_ipv6)?;
        }
        ip_batch(Some(&fabric), &fabric_script(layout, bridged, &wires))?;
        if let Some(link) = bridged {
            // A switch whose kernel half sends frames finds no program at the other end of its cable here.
            netns::within(&fabric, || {
                bridge_ports(link).iter().try_for_each(|port| enable_gro(port).map_err(io::Error::other))
            })?;
        }
        for (index, host) in layout.hosts.iter().enumerate() {
            // While the host moves, frames arrive on the cable that it no longer sends on.
            netns::within(&wires.host(index), || disable_reverse_path_filter(&["all", "eth0", "eth1"]))?;
            let script = format!(
                "link set eth0 address {mac}\nlink set eth1 address {mac}\nlink set lo up\nlink set eth0 up\n",
                mac = super::judge::mac_text(&host.mac),
            );
            ip_batch(Some(&wires.host(index)), &script)?;
            if in_kernel {
                netns::within(&wires.host(index), || {
                    ["eth0", "eth1"].iter().try_for_each(|eth| enable_gro(eth).map_err(io::Error::other))
                })?;
            }
        }
        let far_up: String = (0..layout.n_gateways()).map(|s| format!("link set far{s} up\n")).collect();
        ip_batch(Some(&far), &far_up)?;
        Ok(wires)
    }

    /// Namespace of the controller and the switches.
    pub(super) fn fabric(&self) -> String {
        self.namespaces.name("fabric")
    }

    /// Namespace of the far ends.
    fn far(&self) -> String {
        self.namespaces.name("far")
    }

    /// Namespace of a host.
    pub(super) fn host(&self, index: usize) -> String {
        self.namespaces.name(&host_role(index))
    }

    /// Gives a host its address, whichever cable it uses.
    pub(super) fn set_address(&self, host: usize, ip: Ipv4Addr) -> Result<(), NetnsError> {
        let script = format!("addr add {ip}/32 dev lo\nroute add {SUBNET} dev eth0 src {ip}\n");
        ip_batch(Some(&self.host(host)), &script)
    }

    /// Plugs in the host's other cable and sends on it from now on; frames still arrive on both.
    pub(super) fn plug(&self, layout: &Layout, host: usize, into: usize) -> Result<(), NetnsError> {
        let ip = layout.hosts[host].ip;
        let script = format!("link set eth{into} up\nroute replace {SUBNET} dev eth{into} src {ip}\n");
        ip_batch(Some(&self.host(host)), &script)
    }

    /// Unplugs a cable of the host.
    pub(super) fn unplug(&self, host: usize, from: usize) -> Result<(), NetnsError> {
        ip_batch(Some(&self.host(host)), &format!("link set eth{from} down\n"))
    }

    /// Cuts or restores a trunk: both interfaces go down, as when a cable is pulled, or the bridge between them does.
    pub(super) fn set_trunk(&self, layout: &Layout, link: usize, fault: Fault, up: bool) -> Result<(), NetnsError> {
        let state = if up { "up" } else { "down" };
        let set = |device: String| format!("link set {device} {state}\n");
        let script = match fault {
            Fault::Pulled => layout.trunks[link].iter().map(|end| set(device(end.switch, end.port))).collect(),
            Fault::Silent => set(bridge(link)),
        };
        ip_batch(Some(&self.fabric()), &script)
    }

    /// A promiscuous socket on every interface of every station.
    pub(super) fn sniffers(&self, layout: &Layout) -> Result<Sniffers, NetnsError> {
        let mut sockets = Vec::new();
        for index in 0..layout.hosts.len() {
            let both = netns::within(&self.host(index), || {
                Ok([PacketSocket::sniffer("eth0")?, PacketSocket::sniffer("eth1")?])
            })?;
            sockets.extend(both.map(|socket| (index, socket)));
        }
        let far = netns::within(&self.far(), || {
            (0..layout.n_gateways()).map(|s| PacketSocket::sniffer(&format!("far{s}"))).collect::<io::Result<Vec<_>>>()
        })?;
        sockets.extend(far.into_iter().enumerate().map(|(switch, socket)| (layout.far(switch), socket)));
        Ok(Sniffers { sockets })
    }

    /// Sends whole frames from a host, on either cable.
    pub(super) fn raw_sender(&self, host: usize) -> Result<[PacketSocket; 2], NetnsError> {
        netns::within(&self.host(host), || Ok([PacketSocket::sender("eth0")?, PacketSocket::sender("eth1")?]))
    }
}

/// Name of the bridge in the middle of a trunk.
fn bridge(link: usize) -> String {
    format!("wire{link}")
}

fn bridge_ports(link: usize) -> [String; 2] {
    ["a", "b"].map(|end| bridge(link) + end)
}

fn host_role(index: usize) -> String {
    format!("h{index}")
}

fn disable_ipv6() -> io::Result<()> {
    for which in ["all", "default"] {
        match std::fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "1") {
            // A kernel without IPv6 sends none.
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

fn disable_reverse_path_filter(interfaces: &[&str]) -> io::Result<()> {
    interfaces.iter().try_for_each(|name| std::fs::write(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), "0"))
}

fn fabric_script(layout: &Layout, bridged: Option<usize>, wires: &Wires) -> String {
    let mut script = "link set lo up\n".to_owned();
    let pair = |a: &str, b: &str| format!("link add {a} mtu {TRUNK_MTU} type veth peer name {b} mtu {TRUNK_MTU}\n");
    for (link, ends) in layout.trunks.iter().enumerate() {
        let [a, b] = ends.map(|end| device(end.switch, end.port));
        if bridged != Some(link) {
            script.push_str(&pair(&a, &b));
            continue;
        }
        let bridge = bridge(link);
        script.push_str(&format!("link add {bridge} type bridge stp_state 0 mcast_snooping 0\n"));
        for (outer, inner) in [a, b].into_iter().zip(bridge_ports(link)) {
            script.push_str(&pair(&outer, &inner));
            // What it has not learnt it sends on, so nothing depends on where a host was before.
            script.push_str(&format!(
                "link set {inner} master {bridge} up\nlink set {inner} type bridge_slave learning off\n"
            ));
        }
        script.push_str(&format!("link set {bridge} mtu {TRUNK_MTU} up\n"));
    }
    for (index, host) in layout.hosts.iter().enumerate() {
        for (k, end) in host.ends.iter().enumerate() {
            let port = device(end.switch, end.port);
            script.push_str(&format!("link add {port} type veth peer name eth{k} netns {}\n", wires.host(index)));
        }
    }
    for switch in 0..layout.n_gateways() {
        let port = device(switch, super::layout::FAR_PORT);
        script.push_str(&format!("link add {port} type veth peer name far{switch} netns {}\n", wires.far()));
    }
    for port in layout.ports.iter().flatten() {
        script.push_str(&format!("link set {} up\n", port.device));
    }
    script
}

/// The promiscuous sockets, each with its station.
#[derive(Debug)]
pub(super) struct Sniffers {
    sockets: Vec<(Station, PacketSocket)>,
}

impl Sniffers {
    /// Passes every frame to the judge until `stop` is set, including those still queued then. Returns how many frames
    /// the kernel had to drop before they could be judged.
    pub(super) fn watch(&self, judge: &Judge, stop: &AtomicBool) -> io::Result<u64> {
        let mut fds: Vec<PollFd<'_>> =
            self.sockets.iter().map(|(_, socket)| PollFd::new(socket, PollFlags::IN)).collect();
        let mut storage = vec![[0_u8; SNAP_LEN]; BATCH];
        let wait = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        loop {
            // Read first: frames that came before `stop` was set are queued by now.
            let last = stop.load(Ordering::Relaxed);
            match poll(&mut fds, Some(&wait)) {
                Ok(0) if last => break,
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            }
            for (fd, (station, socket)) in fds.iter().zip(&self.sockets) {
                if !fd.revents().is_empty() {
                    drain(socket, *station, judge, &mut storage)?;
                }
            }
        }
        self.sockets.iter().map(|(_, socket)| socket.take_missed()).sum()
    }
}

/// Judges the frames queued in one socket, at most one batch, so that every socket gets its turn.
fn drain(socket: &PacketSocket, station: Station, judge: &Judge, storage: &mut [[u8; SNAP_LEN]]) -> io::Result<()> {
    let mut frames: Vec<&[u8]> = Vec::with_capacity(storage.len());
    for slot in storage {
        match socket.receive(slot)? {
            Some(frame) => frames.push(frame),
            None => break,
        }
    }
    judge.observe(station, frames);
    Ok(())
}

/// Sends raw frames from hosts into the network.
#[derive(Debug)]
pub(super) struct RawSenders(Vec<[PacketSocket; 2]>);

impl RawSenders {
    pub(super) fn open(wires: &Wires, layout: &Layout) -> Result<Self, NetnsError> {
        (0..layout.hosts.len()).map(|host| wires.raw_sender(host)).collect::<Result<_, _>>().map(Self)
    }

    /// Sends `frame` from `host` on its cable `k`.
    pub(super) fn send(&self, host: usize, k: usize, frame: &[u8]) -> io::Result<()> {
        self.0[host][k].send(frame)
    }
}
