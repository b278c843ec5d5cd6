//! Drivers that do one thing wrong: the list of fixtures must find each.

use super::rig::{Driver, Rig};
use super::{scenes, wrong};
use netio::{Burst, Device, DeviceCounters, NetError, Packet, Pool, Readiness};
use std::sync::Arc;

/// What a wrong driver makes of a frame.
type Mistake = fn(&mut Packet);

struct Wrong {
    device: Box<dyn Device>,
    of_received: Mistake,
    of_sent: Mistake,
}

fn none(_: &mut Packet) {}

/// A length that is one too small, of frames that are longer than those that show that a driver goes on.
fn cut(packet: &mut Packet) {
    if packet.len() > 100 {
        let kept = packet.frame()[..packet.len() - 1].to_vec();
        packet.fill(&kept).unwrap();
    }
}

/// Padding, as hardware adds it, that is not taken off.
fn pad(packet: &mut Packet) {
    let mut frame = packet.frame().to_vec();
    frame.resize(frame.len().max(60), 0);
    packet.fill(&frame).unwrap();
}

/// A tag that the driver took off and did not put back.
fn untag(packet: &mut Packet) {
    let frame = packet.frame();
    if frame.len() >= 16 && frame[12..14] == [0x81, 0] {
        packet.fill(&[&frame[..12], &frame[16..]].concat()).unwrap();
    }
}

/// Bytes of the frame that was in the buffer before.
fn stale(packet: &mut Packet) {
    if packet.len() > 1000 {
        packet.frame_mut()[999] ^= 1;
    }
}

impl Device for Wrong {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn max_frame(&self) -> usize {
        self.device.max_frame()
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Burst) -> Result<usize, NetError> {
        let n = self.device.rx_burst(pool, out)?;
        let before = out.len() - n;
        out[before..].iter_mut().for_each(self.of_received);
        Ok(n)
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Burst) -> Result<usize, NetError> {
        frames.iter_mut().for_each(self.of_sent);
        self.device.tx_burst(pool, frames)
    }

    fn readiness(&mut self) -> Readiness<'_> {
        self.device.readiness()
    }

    fn woken(&mut self, fault: bool) {
        self.device.woken(fault);
    }

    fn revive(&mut self) -> Result<(), NetError> {
        self.device.revive()
    }

    fn counters(&self) -> Arc<DeviceCounters> {
        self.device.counters()
    }
}

fn receives(device: Box<dyn Device>, of_received: Mistake) -> Box<dyn Device> {
    Box::new(Wrong { device, of_received, of_sent: none })
}

fn sends(device: Box<dyn Device>, of_sent: Mistake) -> Box<dyn Device> {
    Box::new(Wrong { device, of_received: none, of_sent })
}

/// A mistake, the driver that makes it, and a fixture that must find it.
type Mutant = (&'static str, fn(Box<dyn Device>) -> Box<dyn Device>, &'static str);

const MUTANTS: [Mutant; 8] = [
    ("receives one byte less", |device| receives(device, cut), "a long frame"),
    ("sends one byte less", |device| sends(device, cut), "a long frame"),
    ("keeps padding that it received", |device| receives(device, pad), "a runt"),
    ("sends padding", |device| sends(device, pad), "a short frame"),
    ("loses tags that it received", |device| receives(device, untag), "the longest frame with a tag"),
    ("loses tags that it is to send", |device| sends(device, untag), "the longest frame with a tag"),
    ("receives a byte of another frame", |device| receives(device, stale), "a long frame"),
    ("sends a byte of another frame", |device| sends(device, stale), "a long frame"),
];

pub(crate) fn a_driver_with_a_mistake_is_found() {
    let scene = &scenes()[0];
    for (what, wrapped, by) in MUTANTS {
        let mut rig = Rig::with(Driver::Memory, scene, wrapped);
        let found = wrong(scene, &mut rig);
        let first = found.first().unwrap_or_else(|| panic!("nothing finds a driver that {what}"));
        assert!(first.contains(by), "a driver that {what} is found by another fixture: {first}");
    }
}
