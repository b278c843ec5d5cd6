//! `[dpdk]` of `switch.toml`.

use super::{Config, Driver};
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
pub(in super::super) fn devices(config: &Config) -> impl Iterator<Item = &str> {
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
