//! A device as EAL writes it, and what this backend adds to it.

use crate::HEADROOM;

/// Bytes of a slot of a packet socket's ring before the frame, and a few to spare: the driver's arithmetic differs by version.
const SLOT_HEADER_BYTES: usize = 64;

/// The slots of `net_af_packet` unless its arguments say otherwise.
const SLOT_BYTES: usize = 2048;

/// A device: `NAME[,KEY=VALUE]...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spec {
    text: String,
}

/// A driver that uses an interface of the kernel's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Packet,
    Xdp,
}

impl Spec {
    /// # Errors
    /// The reason.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let name = text.split(',').next().unwrap_or_default();
        if name.is_empty() || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err("it is not a device of DPDK; write one as net_af_packet0,iface=eth7 or 0000:03:00.0".to_owned());
        }
        Ok(Self { text: text.to_owned() })
    }

    /// The device's name, without arguments.
    pub(super) fn name(&self) -> &str {
        self.text.split(',').next().unwrap_or_default()
    }

    fn argument(&self, key: &str) -> Option<&str> {
        self.text.split(',').skip(1).find_map(|argument| argument.strip_prefix(key)?.strip_prefix('='))
    }

    fn kind(&self) -> Option<Kind> {
        let of = |driver: &str| {
            let number = self.name().strip_prefix(driver);
            number.is_some_and(|number| number.bytes().all(|c| c.is_ascii_digit()))
        };
        of("net_af_packet").then_some(Kind::Packet).or(of("net_af_xdp").then_some(Kind::Xdp))
    }

    /// The kernel's interface behind it, if this backend knows its driver to use one.
    pub(super) fn interface(&self) -> Option<&str> {
        self.kind().and_then(|_| self.argument("iface"))
    }

    /// The text for EAL, for `n_workers` workers and frames of `longest` bytes: with a queue for each worker and slots for whole
    /// frames, unless its arguments say something else.
    pub(super) fn for_workers(&self, n_workers: usize, longest: usize) -> String {
        let mut text = self.text.clone();
        let queues = match self.kind() {
            Some(Kind::Packet) => "qpairs",
            Some(Kind::Xdp) => "queue_count",
            None => return text,
        };
        if n_workers > 1 && self.argument(queues).is_none() {
            text += &format!(",{queues}={n_workers}");
        }
        let slot = (longest + SLOT_HEADER_BYTES).next_power_of_two();
        let says_slots = ["framesz", "blocksz"].iter().any(|key| self.argument(key).is_some());
        if self.kind() == Some(Kind::Packet) && slot > SLOT_BYTES && !says_slots {
            text += &format!(",framesz={slot},blocksz={}", slot.max(4096));
        }
        text
    }

    /// Whether the device has as many queues as its arguments say, and deals frames to all of them.
    pub(super) fn has_exact_queues(&self) -> bool {
        self.kind().is_some()
    }

    /// The longest frame that its slots hold, if its arguments say so: the driver would cut off the rest.
    pub(super) fn longest_frame(&self) -> Option<usize> {
        let bytes: usize = self.argument("framesz").filter(|_| self.kind() == Some(Kind::Packet))?.parse().ok()?;
        Some(bytes.saturating_sub(SLOT_HEADER_BYTES))
    }

    /// Buffers that the driver keeps for a queue, beside those of its descriptors: AF_XDP fills rings of 2,048 with them.
    pub(super) fn n_kept(&self) -> u32 {
        if self.kind() == Some(Kind::Xdp) { 2 * 2048 } else { 0 }
    }

    /// Bytes of a buffer for frames of up to `longest` bytes: the driver wants room for a whole slot.
    pub(super) fn buffer_bytes(&self, longest: usize) -> usize {
        let slot = match self.kind() {
            Some(Kind::Packet) => self.argument("framesz").and_then(|bytes| bytes.parse().ok()),
            _ => None,
        };
        let least = (longest + SLOT_HEADER_BYTES).next_power_of_two().max(SLOT_BYTES);
        (slot.unwrap_or(0).max(least) + HEADROOM).min(usize::from(u16::MAX) - 256)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> Spec {
        Spec::parse(text).unwrap()
    }

    #[test]
    fn interfaces_of_the_kernel_are_seen_and_others_left_alone() {
        assert_eq!(spec("net_af_packet0,iface=eth7").interface(), Some("eth7"));
        assert_eq!(spec("net_af_xdp12,start_queue=0,iface=eth7").interface(), Some("eth7"));
        for other in ["net_tap0,iface=tap0", "net_null0", "net_af_packetx,iface=eth7", "0000:03:00.0"] {
            assert_eq!(spec(other).interface(), None, "{other}");
            assert_eq!(spec(other).for_workers(4, 9018), other);
        }
        assert_eq!(spec("net_tap0,iface=tap0").name(), "net_tap0");
    }

    #[test]
    fn a_queue_a_worker_and_slots_for_long_frames_are_asked_for() {
        let text = "net_af_packet0,iface=e";
        assert_eq!(spec(text).for_workers(1, 1518), text);
        assert_eq!(spec(text).for_workers(3, 1518), format!("{text},qpairs=3"));
        assert_eq!(spec(text).for_workers(1, 9018), format!("{text},framesz=16384,blocksz=16384"));
        let own = format!("{text},qpairs=2,framesz=4096,blocksz=8192");
        assert_eq!(spec(&own).for_workers(3, 9018), own);
        assert_eq!(spec(&own).longest_frame(), Some(4032));
        assert!(spec(&own).buffer_bytes(1518) >= 4096 && spec(text).buffer_bytes(9018) >= 16384);
        assert_eq!(spec("net_af_xdp0,iface=e").for_workers(2, 1518), "net_af_xdp0,iface=e,queue_count=2");
    }

    #[test]
    fn what_cannot_be_a_device_is_refused() {
        for text in ["", ",iface=eth7", "net null0", "net_null0,\n"] {
            assert!(Spec::parse(text).is_err(), "{text:?}");
        }
    }
}
