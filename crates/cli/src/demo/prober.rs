//! The prober: a steady stream of numbered probes to live, removed and unknown names, from every host.
//!
//! Of twenty probes, nine go to hosts, nine to synthetic names (or to hosts, if there are none), one to a removed name and
//! one to an unknown name.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::backend::{Backend, Stop};
use super::frames::{SYNTHETIC_IP, probe, probe_payload};
use super::judge::Judge;
use super::layout::{Layout, Mac, synthetic_mac};

/// Payload of a probe; the frame is 106 bytes.
const PAYLOAD_LEN: usize = 64;
/// The first unknown name: far above every name that a demo adds.
const UNKNOWN_FROM: u64 = 1 << 39;
/// Interval at which the prober wakes up.
const TICK: Duration = Duration::from_millis(1);
/// Most probes sent at once to catch up after a pause of the whole machine.
const MAX_BURST: u64 = 64;
/// Probes to live names in flight at once: fewer than a port's ring holds. If the switches do not get the time to
/// forward them, fewer probes are sent rather than lost.
const WINDOW: usize = 512;
/// A probe that was not seen for this long is no longer in flight.
const MAX_FLIGHT: Duration = Duration::from_secs(2);

/// Names to probe. The prober holds the lock while it sends, so a name removed here gets no more probes.
#[derive(Debug, Default)]
pub(super) struct Targets {
    pub(super) live: Vec<Mac>,
    pub(super) removed: Vec<Mac>,
}

/// When a probe to a live name was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) number: u64,
    pub(super) at: Instant,
}

/// The prober's parts. [`Prober::run`] runs on its own thread.
pub(super) struct Prober<'a> {
    pub(super) layout: &'a Layout,
    pub(super) backend: &'a dyn Backend,
    pub(super) judge: &'a Judge,
    pub(super) targets: &'a Mutex<Targets>,
    pub(super) rate_pps: u64,
}

impl Prober<'_> {
    /// Sends until `done` and at least one probe of each kind, or until `stop`. Returns when the probes to live names
    /// were sent.
    pub(super) fn run(&self, done: &Stop, stop: &Stop) -> Vec<Sent> {
        let begun = Instant::now();
        let mut random = Random(0x5eed);
        let mut log = Vec::new();
        let mut under_way = Vec::new();
        let (mut sent, mut n_to_nobody) = (0, 0);
        while !stop.load(Ordering::Relaxed) {
            if done.load(Ordering::Relaxed) && n_to_nobody > 0 && !log.is_empty() {
                break;
            }
            std::thread::sleep(TICK);
            let due = (begun.elapsed().as_secs_f64() * self.rate_pps as f64) as u64;
            let burst = due.saturating_sub(sent).min(MAX_BURST);
            sent = due;
            under_way.retain(|probe: &Sent| probe.at.elapsed() < MAX_FLIGHT && !self.judge.was_seen(probe.number));
            let burst = burst.min(WINDOW.saturating_sub(under_way.len()) as u64);
            let n_logged = log.len();
            let targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
            for _ in 0..burst {
                n_to_nobody += u64::from(self.send_one(&targets, &mut random, &mut log));
            }
            under_way.extend_from_slice(&log[n_logged..]);
        }
        log
    }

    /// Returns whether it sent a probe to a removed or unknown name.
    fn send_one(&self, targets: &Targets, random: &mut Random, log: &mut Vec<Sent>) -> bool {
        let hosts = &self.layout.hosts;
        let from = random.below(hosts.len());
        let frame_to = |mac: Mac, number| {
            let host = &hosts[from];
            self.backend.send_frame(from, &probe((host.mac, host.ip), (mac, SYNTHETIC_IP), number, PAYLOAD_LEN));
        };
        match random.below(20) {
            18 => {
                if let Some(&mac) = targets.removed.get(random.below(targets.removed.len())) {
                    frame_to(mac, self.judge.send_to_nobody(1));
                    return true;
                }
            }
            19 => {
                let mac = synthetic_mac(UNKNOWN_FROM + random.next() % UNKNOWN_FROM);
                frame_to(mac, self.judge.send_to_nobody(1));
                return true;
            }
            kind if kind < 9 || targets.live.is_empty() => {
                let to = (from + 1 + random.below(hosts.len() - 1)) % hosts.len();
                let number = self.judge.send(1);
                log.push(Sent { number, at: Instant::now() });
                self.backend.send_datagram(from, to, &probe_payload(number, PAYLOAD_LEN));
            }
            _ => {
                let number = self.judge.send(1);
                log.push(Sent { number, at: Instant::now() });
                frame_to(targets.live[random.below(targets.live.len())], number);
            }
        }
        false
    }
}

/// xorshift64*: the choice of probes need not be unpredictable, only the same in every run.
#[derive(Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// An index below `n`; 0 for `n` = 0.
    pub(super) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_stay_below_the_bound_and_reach_all_of_it() {
        let mut random = Random(1);
        let mut seen = [false; 7];
        for _ in 0..1000 {
            seen[random.below(7)] = true;
        }
        assert_eq!(seen, [true; 7]);
        assert_eq!(random.below(0), 0);
    }
}
