//! A port whose interface was missing at the start, so that it was unknown whether AF_XDP can use it.

use dataplane::port::DriverText;
use netio::backend::af_packet::AfPacket;
use netio::backend::af_xdp::AfXdp;
use netio::{Burst, Device, DeviceCounters, NetError, Pool, Readiness};
use std::sync::Arc;

/// One worker's device: AF_XDP once it can be opened; packet sockets if it is there and cannot be opened.
pub(super) struct Late {
    /// None once it has given way.
    wanted: Option<AfXdp>,
    instead: AfPacket,
    /// What the port was to have, and why it has not what was asked for.
    name: &'static str,
    reason: String,
    driver: DriverText,
}

impl Late {
    /// A device for each worker, from those that are absent. `driver` tells from now on what it has.
    pub(super) fn group(
        wanted: Vec<AfXdp>,
        instead: Vec<AfPacket>,
        name: &'static str,
        reason: &str,
        driver: &DriverText,
    ) -> Vec<Box<dyn Device>> {
        let late = |(wanted, mut instead): (AfXdp, AfPacket)| {
            instead.count_in(wanted.counters());
            Box::new(Self { wanted: Some(wanted), instead, name, reason: reason.to_owned(), driver: driver.clone() })
                as Box<dyn Device>
        };
        wanted.into_iter().zip(instead).map(late).collect()
    }

    fn device(&mut self) -> &mut dyn Device {
        match &mut self.wanted {
            Some(wanted) => wanted,
            None => &mut self.instead,
        }
    }
}

impl Device for Late {
    fn name(&self) -> &str {
        self.instead.name()
    }

    fn max_frame(&self) -> usize {
        self.wanted.as_ref().map_or_else(|| self.instead.max_frame(), Device::max_frame)
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Burst) -> Result<usize, NetError> {
        self.device().rx_burst(pool, out)
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Burst) -> Result<usize, NetError> {
        self.device().tx_burst(pool, frames)
    }

    fn readiness(&mut self) -> Readiness<'_> {
        self.device().readiness()
    }

    fn woken(&mut self, fault: bool) {
        self.device().woken(fault);
    }

    fn is_told(&self) -> bool {
        self.wanted.as_ref().map_or_else(|| self.instead.is_told(), Device::is_told)
    }

    fn takes_offloads(&self) -> bool {
        self.wanted.as_ref().map_or_else(|| self.instead.takes_offloads(), Device::takes_offloads)
    }

    fn revive(&mut self) -> Result<(), NetError> {
        let Some(wanted) = &mut self.wanted else { return self.instead.revive() };
        let Self { name, reason, .. } = self;
        match wanted.revive() {
            Ok(()) => {
                let mode = wanted.mode().unwrap_or_default();
                self.driver.set(format!("{name}, {mode}{reason}"));
                Ok(())
            }
            Err(error) if error.is_transient() => Err(error),
            Err(error) => {
                tracing::warn!(port = self.instead.name(), "{name} cannot be used, so af_packet is: {error}");
                self.driver.set(format!("af_packet, because {name} cannot be used: {error}"));
                // Its queue and its program are free before the packet socket looks.
                self.wanted = None;
                self.instead.revive()
            }
        }
    }

    fn counters(&self) -> Arc<DeviceCounters> {
        self.instead.counters()
    }
}
