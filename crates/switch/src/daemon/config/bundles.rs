//! `[port.bundle]` of `switch.toml`.

use super::{Config, Driver, MAX_DEVICE_NAME, Port, Role, is_device_name};
use dataplane::bundle::config::Mode;

/// Checks the bundles of a configuration, and names the device of each.
pub(super) fn check(config: &mut Config) -> Result<(), String> {
    for at in 0..config.ports.len() {
        let driver = config.driver_of(&config.ports[at]);
        let port = &mut config.ports[at];
        let id = port.id;
        let Some(section) = &mut port.bundle else {
            if port.device.is_empty() {
                return Err(format!(
                    "port {id} has no device, and \"\" is not the name of an interface; write device = \"eth1\", or [port.bundle] with \
                     members"
                ));
            }
            continue;
        };
        section.lacp.get_or_insert(if port.role == Role::Trunk { Mode::Off } else { Mode::Active });
        section.check().map_err(|why| format!("bundle of port {id}: {why}"))?;
        if !port.device.is_empty() {
            return Err(format!("port {id} has both device and bundle; remove device, and name it among the members"));
        }
        if port.role == Role::Outside {
            return Err(format!(
                "port {id} has bundle, which is for ports with role = \"host\" or \"trunk\"; remove it"
            ));
        }
        if let Some(name) = section.members.iter().find(|name| !is_device_name(name)) {
            return Err(format!(
                "bundle of port {id}: member {name:?} is not the name of an interface; write 1 to {MAX_DEVICE_NAME} letters, \
                 digits and - _ . @"
            ));
        }
        match driver {
            Driver::AfPacket | Driver::AfXdp => {}
            Driver::Xdp | Driver::Dpdk => {
                return Err(format!(
                    "port {id} has bundle and driver = \"{}\", which does not support bundles; write driver = \"af_xdp\" or \
                     \"af_packet\" at this port",
                    if driver == Driver::Xdp { "xdp" } else { "dpdk" }
                ));
            }
        }
        port.device = section.members.join("+");
    }
    Ok(())
}

impl Port {
    /// Its interfaces: one, or the members of its bundle.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        let members = self.bundle.iter().flat_map(|bundle| bundle.members.iter().map(String::as_str));
        Some(&self.device[..]).filter(|_| self.bundle.is_none()).into_iter().chain(members)
    }
}
