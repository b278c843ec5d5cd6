//! Interfaces in pairs, and frames through them.

#![allow(dead_code, reason = "every test file uses a part of it")]

use fibula_netio::{Burst, Device, Packet, Pool, Waiter};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Anything that arrives at all arrives within this time on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().expect("iproute2 is installed");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn veth(a: &str, b: &str) {
    veth_with("", a, b);
}

/// As [`veth`], with more of what `ip link add` takes for each.
pub(crate) fn veth_with(more: &str, a: &str, b: &str) {
    ip(&format!("link add {a} {more} type veth peer name {b} {more}"));
    for name in [a, b] {
        // No addresses: the interfaces' own IPv6 would send router solicitations of its own, where there is any.
        if Path::new("/proc/sys/net/ipv6").exists() {
            ip(&format!("link set {name} addrgenmode none"));
        }
        ip(&format!("link set {name} up"));
    }
    // The first one up had no carrier: the kernel enables it later, on another thread, and drops what its stack sends
    // until then.
    let end = Instant::now() + PATIENCE;
    while [a, b].iter().any(|name| !ip(&format!("link show {name}")).contains("state UP")) {
        assert!(Instant::now() < end, "{a} and {b} have no carrier");
    }
}

pub(crate) fn frame(source: u8, destination: u8, len: usize, fill: u8) -> Vec<u8> {
    let mut frame = vec![fill; len];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, destination]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, source]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

pub(crate) fn send(device: &mut dyn Device, frames: &[Vec<u8>]) -> usize {
    let mut pool = Pool::new(0, 2048);
    let mut sent = 0;
    for part in frames.chunks(fibula_netio::BURST) {
        let mut burst: Burst = part.iter().map(|f| Packet::from_frame(f)).collect();
        sent += device.tx_burst(&mut pool, &mut burst).unwrap();
    }
    sent
}

/// Receives until `n` frames came or [`PATIENCE`] is over, asleep in between.
pub(crate) fn receive(device: Box<dyn Device>, n: usize) -> (Vec<Vec<u8>>, Box<dyn Device>) {
    let (waiter, mut pool, mut burst) = (Waiter::new().unwrap(), Pool::new(64, 2048), Burst::new());
    let (mut frames, mut devices) = (vec![], [device]);
    let end = Instant::now() + PATIENCE;
    while frames.len() < n && Instant::now() < end {
        if devices[0].rx_burst(&mut pool, &mut burst).unwrap() == 0 {
            waiter.sleep(&mut devices, |_| false, Some(Duration::from_secs(1))).unwrap();
        }
        frames.extend(burst.iter().map(|p| p.frame().to_vec()));
        pool.put_all(&mut burst);
    }
    let [device] = devices;
    (frames, device)
}

/// The test of both paths: a burst of all sizes arrives whole and in order.
pub(crate) fn all_sizes_arrive(mut a: Box<dyn Device>, b: Box<dyn Device>) {
    let frames: Vec<_> = [14, 60, 61, 64, 128, 777, 1513, 1514]
        .iter()
        .cycle()
        .take(200)
        .enumerate()
        .map(|(i, &len)| frame(1, 2, len, i as u8))
        .collect();
    assert_eq!(send(&mut *a, &frames), frames.len());
    let (got, b) = receive(b, frames.len());
    assert_eq!(got, frames);
    let (sent, received) = (a.counters().snapshot(), b.counters().snapshot());
    assert_eq!((sent.tx_frames, received.rx_frames), (200, 200));
    assert_eq!(sent.tx_bytes, received.rx_bytes);
    assert_eq!(sent.rx_frames, 0, "a port does not see what it sends");
}

/// `n` frames, more than rings and buffers hold, arrive in order, none lost, while at most 128 are on their way.
pub(crate) fn numbered_frames_arrive(a: &mut dyn Device, b: &mut dyn Device, n: u32) {
    let (mut pool, mut burst) = (Pool::new(64, 2048), Burst::new());
    let (mut sent, mut got) = (0u32, 0u32);
    let end = Instant::now() + PATIENCE;
    while got < n && Instant::now() < end {
        if sent < n && sent - got < 128 {
            let number = |i: u32| {
                let mut f = frame(1, 2, 60, 0);
                f[20..24].copy_from_slice(&i.to_be_bytes());
                Packet::from_frame(&f)
            };
            let mut frames: Burst = (sent..sent + 32).map(number).collect();
            sent += a.tx_burst(&mut Pool::new(0, 2048), &mut frames).unwrap() as u32;
        }
        b.rx_burst(&mut pool, &mut burst).unwrap();
        for packet in &burst {
            assert_eq!(packet.frame()[20..24], got.to_be_bytes(), "in order, none lost");
            got += 1;
        }
        pool.put_all(&mut burst);
        assert_eq!(pool.available(), 64);
    }
    assert!(got >= n, "{got}");
}
