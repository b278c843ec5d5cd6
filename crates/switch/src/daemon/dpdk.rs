//! Ports of DPDK: `driver = "dpdk"`, in a binary that was built with the feature `dpdk`.

use super::config::{Config, Driver};
use serde::Deserialize;

/// `[dpdk]`: what all ports of DPDK have in common.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct Section {
    /// Arguments of EAL, as of any program with DPDK.
    pub eal: Vec<String>,
    /// The MTU of ports that have no interface of the kernel's. Trunks get room for the shim besides, where they can.
    pub mtu: u16,
    /// The longest that a frame waits for a worker that sleeps, in microseconds; 0: workers never sleep.
    pub longest_nap_us: u32,
}

impl Default for Section {
    fn default() -> Self {
        Self { eal: Vec::new(), mtu: 1500, longest_nap_us: 200 }
    }
}

/// Why `--driver dpdk` or `driver = "dpdk"` cannot be, if it cannot.
/// # Errors
/// This binary is without DPDK.
pub fn check_built() -> Result<(), String> {
    if cfg!(feature = "dpdk") {
        return Ok(());
    }
    let why = "this fibula was built without DPDK; `make dpdk` builds one with it, which also needs libdpdk where it runs. \
               Or write driver = \"af_packet\" and names of interfaces";
    Err(why.to_owned())
}

/// The devices of ports with this driver.
fn devices(config: &Config) -> impl Iterator<Item = &str> {
    let ports = config.ports.iter().filter(|port| config.driver_of(port) == Driver::Dpdk);
    ports.map(|port| port.device.as_str())
}

/// Checks `[dpdk]`, and whether there can be ports of DPDK if there are any.
pub(super) fn check(config: &Config) -> Result<(), String> {
    let Section { mtu, longest_nap_us, .. } = config.dpdk;
    if !(64..=9600).contains(&mtu) {
        return Err(format!("dpdk.mtu = {mtu} is out of range; write 64 to 9600"));
    }
    if longest_nap_us > 1_000_000 {
        return Err(format!("dpdk.longest_nap_us = {longest_nap_us} is out of range; write 0 to 1000000"));
    }
    match devices(config).next() {
        None if config.dpdk != Section::default() => {
            Err("there is [dpdk], but no port with driver = \"dpdk\"; write that, or remove [dpdk]".to_owned())
        }
        None => Ok(()),
        Some(_) => check_built().map_err(|why| format!("driver = \"dpdk\": {why}")),
    }
}

/// Whether EAL could know a device by this name.
pub(super) fn is_device(device: &str) -> bool {
    !device.starts_with(',') && !device.is_empty() && !device.chars().any(|c| c.is_whitespace() || c.is_control())
}

#[cfg(feature = "dpdk")]
pub(super) use opening::open;

#[cfg(feature = "dpdk")]
mod opening {
    use super::super::config::{Config, Port, Role};
    use super::{Section, devices};
    use dataplane::shim;
    use netio::NetError;
    use netio::backend::dpdk::{Dpdk, Eal, EalOptions, Options};
    use std::time::Duration;

    /// A queue of the device for each worker, and how frames come. Its interface or peer may be missing: then it is waited
    /// for.
    pub(in super::super) fn open(config: &Config, port: &Port) -> Result<(Vec<Dpdk>, String), NetError> {
        let Section { eal, mtu, longest_nap_us } = config.dpdk.clone();
        let options = EalOptions { arguments: eal, devices: devices(config).map(str::to_owned).collect() };
        let eal = Eal::start(&options).map_err(|error| NetError::Driver { reason: error.to_string() })?;
        let room = if port.role == Role::Trunk { shim::LEN as u16 } else { 0 };
        let longest_nap = Duration::from_micros(longest_nap_us.into());
        let keep = Some(config.state_dir.clone());
        let options = Options { mtu, room, longest_nap, keep, ..Options::default() };
        let members = match Dpdk::open_group(eal, &port.device, &options, config.workers) {
            Err(error) if error.is_transient() => Dpdk::absent_group(eal, &port.device, &options, config.workers)?,
            opened => opened?,
        };
        Ok((members, "dpdk".to_owned()))
    }
}

/// # Errors
/// Always: a configuration that needs it was refused before.
#[cfg(not(feature = "dpdk"))]
pub(super) fn open(
    _: &Config,
    _: &super::config::Port,
) -> Result<(Vec<netio::backend::loopback::Loopback>, String), netio::NetError> {
    check_built().map(|()| (Vec::new(), String::new())).map_err(|reason| netio::NetError::Driver { reason })
}
