//! Ports of DPDK: `driver = "dpdk"`, in a binary that was built with the feature `dpdk`.

pub use super::config::dpdk::check_built;

#[cfg(feature = "dpdk")]
pub(super) use opening::open;

#[cfg(feature = "dpdk")]
mod opening {
    use super::super::config::dpdk::{Section, devices};
    use super::super::config::{Config, Port, Role};
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
    _: &super::config::Config,
    _: &super::config::Port,
) -> Result<(Vec<netio::backend::loopback::Loopback>, String), netio::NetError> {
    check_built().map(|()| (Vec::new(), String::new())).map_err(|reason| netio::NetError::Driver { reason })
}
