//! Opens the ports of a switch by their drivers. One that cannot be used gives way to another by name, with the reason.

use super::bundles::{self, Opened};
use super::config::{self, AccessLists, Config, Driver};
use super::dpdk;
use super::late::Late;
use dataplane::assembly::{PortSpec, check_mtus};
use dataplane::kernel::{Kernel, Memory};
use dataplane::learn::Learn;
use dataplane::port::{DriverText, Role};
use netio::backend::af_packet::{self, AfPacket, Handover};
use netio::backend::af_xdp::{self, AfXdp, Ahead};
use netio::{Device, NetError};
use std::sync::Arc;
use std::time::Duration;

/// The losses from offloads that hosts at a port leave to hardware, if there are any, and the remedy. Packet sockets
/// carry all of it; AF_XDP completes checksums, and the kernel segments long packets of a veth's other end for it.
pub fn lost_offloads(driver: Driver, device: &str) -> Option<String> {
    match driver {
        Driver::AfPacket => None,
        Driver::AfXdp | Driver::Xdp => {
            let is_tap = af_packet::driver_of(device).is_some_and(|driver| driver == "tun");
            is_tap.then(|| {
                format!(
                    "{device} is a TAP interface, and with driver = \"{driver}\" the long segments of its guest are lost, so TCP crawls; \
                     give the guest's device gso=off,host_tso4=off,host_tso6=off,host_ufo=off, run `ethtool -K IF tso off gso off` in the \
                     guest, or write driver = \"af_packet\" for this port"
                )
            })
        }
        Driver::Dpdk => {
            let interface = device.split(',').find_map(|argument| argument.strip_prefix("iface="))?;
            let is_virtual = af_packet::driver_of(interface).is_some_and(|driver| driver == "veth" || driver == "tun");
            is_virtual.then(|| {
                format!(
                    "{interface} is a virtual interface, and with driver = \"dpdk\" checksums and long segments that its other end leaves \
                     to hardware are lost, so TCP does not work; run `ethtool -K IF tx off tso off gso off` at the other end, or write \
                     driver = \"af_packet\" for this port"
                )
            })
        }
    }
}

/// The ports, and what forwards in the kernel, if anything is to. `left`: packet sockets that are there.
pub(super) fn open(
    config: &Config,
    lists: &AccessLists,
    left: Option<&Arc<Handover>>,
) -> Result<(Vec<PortSpec>, Option<Arc<Kernel>>), NetError> {
    let [trunks, hosts] = config.kernel_ports();
    let kernel = if trunks.is_empty() {
        None
    } else {
        Some(Kernel::new(&trunks, &hosts, Memory::Best).map_err(|error| error.to_string()))
    };
    match netio::backend::found::restore_left(&config.state_dir) {
        Ok(restored) if restored.is_empty() => {}
        Ok(restored) => {
            let interfaces = restored.join(" ");
            tracing::info!(
                switch = config.name,
                interfaces,
                "offloads that a killed switch had turned off are on again"
            );
        }
        Err(error) => {
            tracing::warn!(switch = config.name, "offloads that were turned off cannot be turned on again: {error}")
        }
    }
    let (mut ports, bell) = (Vec::with_capacity(config.ports.len()), Arc::default());
    for port in &config.ports {
        for lost in port.devices().filter_map(|device| lost_offloads(config.driver_of(port), device)) {
            tracing::warn!(switch = config.name, port = %port.id, "{lost}");
        }
        let open = |port: &config::Port| open_devices(config, port, kernel.as_ref(), left);
        let (bundle, (devices, driver)) = match &port.bundle {
            Some(section) => bundles::open(config, port, section, &bell, open)?,
            None => (None, open(port)?),
        };
        let role = match port.role {
            config::Role::Host => Role::Host,
            config::Role::Trunk => Role::Trunk,
            config::Role::Outside => Role::Outside,
        };
        let acl = port.acl.as_deref().and_then(|path| lists.get(path).cloned());
        let (check_source, learns) = (config.check_source_at(port), config.learn_at(port) != Learn::Off);
        ports.push(PortSpec {
            id: port.id,
            role,
            acl,
            check_source,
            ra_trusted: port.ra_trusted,
            learns,
            notes_true: config.learn_forget_at(port) > 0,
            dhcp: config.dhcp_at(port),
            group_frames_per_second: config.group_frames_at(port),
            bundle,
            driver,
            devices,
        });
    }
    for notice in left.map(|left| left.settle()).unwrap_or_default() {
        tracing::warn!(switch = config.name, "{notice}");
    }
    if let Err(error) = check_mtus(&ports) {
        tracing::warn!(switch = config.name, "long frames will be dropped: {error}");
    }
    Ok((ports, kernel.and_then(Result::ok)))
}

fn open_devices(
    config: &Config,
    port: &config::Port,
    kernel: Option<&Result<Arc<Kernel>, String>>,
    left: Option<&Arc<Handover>>,
) -> Result<Opened, NetError> {
    let fallen = |from: &str, to: &str, why: &str| {
        tracing::warn!(switch = config.name, port = %port.id, "{from} cannot be used, so {to} is: {why}");
        format!(", because {from} cannot be used: {why}")
    };
    if config.driver_of(port) == Driver::Dpdk {
        // Its device is none of the kernel's: there is nothing to give way to.
        return dpdk::open(config, port).map(|(members, driver)| (boxed(members), driver.into()));
    }
    let (ring_frames, offloads) = (config.ring_frames, af_packet::Offloads::Carry);
    let sockets = af_packet::Options { ring_frames, offloads, ..af_packet::Options::default() };
    let (mut ahead, mut reason) = (None, String::new());
    if config.driver_of(port) == Driver::Xdp && port.role != config::Role::Outside {
        match kernel {
            Some(Ok(kernel)) => ahead = kernel.place(port.id).map(|place| place as Arc<dyn Ahead>),
            Some(Err(error)) => reason = fallen("xdp", "af_xdp", error),
            None if config.flow.is_some() => {
                reason = fallen("xdp", "af_xdp", "the workers track connections, so they must see every frame");
            }
            None => reason = fallen("xdp", "af_xdp", "no trunk has it, and the kernel forwards from trunks"),
        }
    }
    let in_kernel = ahead.is_some();
    if config.driver_of(port) != Driver::AfPacket {
        let options = af_xdp::Options { ahead, ..af_xdp::Options::default() };
        let name = if in_kernel { "xdp" } else { "af_xdp" };
        match AfXdp::open_group(&port.device, &options, config.workers) {
            Ok(members) => {
                let mode = members.iter().find_map(AfXdp::mode).unwrap_or_default();
                return Ok((boxed(members), format!("{name}, {mode}{reason}").into()));
            }
            Err(error) if error.is_transient() => {
                let driver = DriverText::from(format!("{name}{reason}"));
                let wanted = AfXdp::absent_group(&port.device, &options, config.workers);
                let instead = AfPacket::absent_group(&port.device, &sockets, config.workers);
                return Ok((Late::group(wanted, instead, name, &reason, &driver), driver));
            }
            Err(error) => reason = fallen(name, "af_packet", &error.to_string()),
        }
    }
    let options = af_packet::Options {
        handover: left.cloned(),
        max_wait: Duration::from_millis(config.restart_wait_ms.into()),
        ..sockets
    };
    // A worker finds it missing, `watch_ports` says so, and the worker brings it up when it is there.
    let members = match AfPacket::open_group(&port.device, &options, config.workers) {
        Err(error) if error.is_transient() => AfPacket::absent_group(&port.device, &options, config.workers),
        opened => opened?,
    };
    Ok((boxed(members), format!("af_packet{reason}").into()))
}

fn boxed<D: Device + 'static>(members: Vec<D>) -> Vec<Box<dyn Device>> {
    members.into_iter().map(|member| Box::new(member) as Box<dyn Device>).collect()
}
