//! The IPv4 packets of a capture file, for benches and tests that take their keys from one.

use std::path::Path;

use command::open;
use command::output::{Exit, Failure};
use etherparse::{Ipv4Slice, NetSlice, SlicedPacket, TransportSlice};
use netio::backend::pcap::Pcap;
use netio::{Burst, Device, Pool};

/// Calls `each` with every IPv4 packet of the capture at `path`, and with its TCP or UDP header.
/// # Errors
/// [`Exit::NotFound`] for a missing file, [`Exit::BadInput`] for one that is not a capture, and those of `each`.
pub(crate) fn ipv4_packets(
    path: &Path,
    mut each: impl FnMut(&Ipv4Slice<'_>, Option<&TransportSlice<'_>>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // A missing file has its own exit code.
    open(path)?;
    let bad = |error| Failure::new(Exit::BadInput, error);
    let mut device = Pcap::open(Some(path), None).map_err(bad)?;
    let (mut pool, mut burst) = (Pool::new(64, device.max_frame()), Burst::new());
    while device.rx_burst(&mut pool, &mut burst).map_err(bad)? > 0 {
        for packet in burst.iter() {
            let Ok(packet) = SlicedPacket::from_ethernet(packet.frame()) else { continue };
            if let Some(NetSlice::Ipv4(ip)) = &packet.net {
                each(ip, packet.transport.as_ref())?;
            }
        }
        pool.put_all(&mut burst);
    }
    Ok(())
}
