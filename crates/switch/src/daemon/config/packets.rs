//! What `switch.toml` says of packet sockets.

use super::Config;
use netio::backend::af_packet;
use std::ops::RangeInclusive;

/// Range of a ring's size: while one burst is copied, another one arrives. Each frame takes 2 KiB or more of memory
/// that is never swapped.
const RING_FRAMES: RangeInclusive<usize> = 64..=65_536;

/// Frames that waited longer than this are out of date.
const MAX_RESTART_WAIT_MS: u32 = 60_000;

/// The default of [`Config::ring_frames`].
pub(super) fn ring_frames() -> usize {
    af_packet::Options::default().ring_frames
}

/// The default of [`Config::restart_wait_ms`].
pub(super) fn restart_wait_ms() -> u32 {
    af_packet::Options::default().max_wait.as_millis() as u32
}

/// Checks what a configuration says of packet sockets.
pub(super) fn check(config: &Config) -> Result<(), String> {
    if !RING_FRAMES.contains(&config.ring_frames) {
        let (least, most) = (RING_FRAMES.start(), RING_FRAMES.end());
        return Err(format!("ring_frames = {} is out of range; write {least} to {most}", config.ring_frames));
    }
    if config.restart_wait_ms > MAX_RESTART_WAIT_MS {
        let given = config.restart_wait_ms;
        return Err(format!("restart_wait_ms = {given} is out of range; write 0 to {MAX_RESTART_WAIT_MS}"));
    }
    Ok(())
}
