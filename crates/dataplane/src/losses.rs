//! Losses that no worker sees: frames that devices discard, that interfaces discard before the devices, and that no
//! member of a bundle takes.
//!
//! Each has a name like those of [`crate::counters::DropReason`], is shown with them, and has its sentence in `api::drops`. They are
//! not in the sum of a worker's counters: no worker received these frames.

use netio::DeviceSnapshot;
use netio::statistics::Losses;

type Count<T> = fn(&T) -> u64;

/// The counters of a device that are drops.
const OF_DEVICES: [(&str, Count<DeviceSnapshot>); 4] = [
    ("rx_oversized", |counts| counts.rx_oversized),
    ("rx_overrun", |counts| counts.rx_overrun),
    ("rx_stale", |counts| counts.rx_stale),
    ("rx_malformed", |counts| counts.rx_malformed),
];

const OF_BUNDLES: &str = "bundle_member";

/// The counters of an interface that are drops.
const OF_INTERFACES: [(&str, Count<Losses>); 3] = [
    ("if_rx_dropped", |losses| losses.rx_dropped),
    ("if_rx_errors", |losses| losses.rx_errors),
    ("if_tx_errors", |losses| losses.tx_errors),
];

/// Their names, in a fixed order.
pub fn names() -> impl Iterator<Item = &'static str> {
    let (devices, interfaces) = (OF_DEVICES.iter().map(|(name, _)| *name), OF_INTERFACES.iter().map(|(name, _)| *name));
    devices.chain([OF_BUNDLES]).chain(interfaces)
}

/// The losses of devices and interfaces, and of members of a bundle, by name, in the order of [`names`], zeros included.
pub(crate) fn of(
    devices: &DeviceSnapshot,
    not_taken: u64,
    interfaces: &Losses,
) -> impl Iterator<Item = (&'static str, u64)> + use<> {
    let devices = OF_DEVICES.map(|(name, count)| (name, count(devices)));
    let interfaces = OF_INTERFACES.map(|(name, count)| (name, count(interfaces)));
    devices.into_iter().chain([(OF_BUNDLES, not_taken)]).chain(interfaces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::DropReason;

    #[test]
    fn reasons_without_a_frame_are_those_that_the_guide_to_captures_lists() {
        let guide = include_str!("../../../docs/how-to/capture-frames.md");
        let (_, table) = guide.split_once("## Drops without a frame").unwrap();
        let (table, _) = table.split_once("\n## ").unwrap();
        let listed: Vec<&str> =
            table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name)).collect();
        assert_eq!(listed, names().collect::<Vec<_>>(), "no worker received these frames");
        // For its own reasons a worker has the frame, and its tap is told.
        for reason in DropReason::ALL {
            assert!(!listed.contains(&reason.name()), "{reason:?}");
        }
    }
}
